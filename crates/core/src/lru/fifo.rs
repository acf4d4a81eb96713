//! First in, first out: a minimal policy, for tests only.
//!
//! New folios enter at the head of their kind's list, reclaim takes from the tail, and nothing
//! moves a folio in between. A refault is reported to the host and has no effect.

use super::lruvec::FIFO_LISTS;
use super::{Context, Grant, Habits, LockedLruvec, PagedOut, Refault, Shadow, TurnStep, Visit};
use crate::Core;
use crate::event::Event;
use crate::folio::{CountedFull, FolioId, Kind};
use crate::host::Host;
use crate::memcg::{Memcg, MemcgId};
use crate::sync::{AtomicI64, Ordering::Relaxed};

pub(super) const MARK: u8 = 7;

pub(super) const HABITS: Habits = Habits {
    has_generations: false,
    activates_in_arrival_batches: false,
    rotates_at_once: false,
    starts_by_size: false,
    finishes_passes: false,
    waits_for_writeback: false,
    trims_at_once: false,
    counts_rereads: false,
    counted_full: CountedFull::REFS,
    takes_turns: false,
    shows_lists: false,
};

pub(super) fn list_of(kind: Kind) -> usize {
    FIFO_LISTS + kind as usize
}

/// Pages on the lists of an lruvec, by kind.
#[derive(Debug, Default)]
pub(super) struct Fifo([AtomicI64; 2]);

impl Fifo {
    pub(super) fn pages(&self, kind: Kind) -> u64 {
        self.0[kind as usize].load(Relaxed).max(0) as u64
    }
}

impl LockedLruvec<'_> {
    pub(super) fn resize_fifo(&mut self, kind: Kind, pages: i64) {
        self.lruvec.fifo.0[kind as usize].fetch_add(pages, Relaxed);
        self.listed[kind as usize][0] += pages;
    }

    pub(super) fn add_fifo(&mut self, folio: FolioId, rotation: bool) {
        self.folios.flags(folio).enlist_marked(MARK);
        let kind = self.kind_of(folio);
        self.resize_fifo(kind, 1);
        self.push(folio, list_of(kind), !rotation);
    }

    pub(super) fn leave_fifo(&mut self, folio: FolioId) {
        self.folios.flags(folio).leave_generation(|_| false);
        self.resize_fifo(self.kind_of(folio), -1);
    }

    pub(super) fn join_fifo(&mut self, folio: FolioId) {
        self.folios.flags(folio).move_to_mark(MARK);
        let kind = self.kind_of(folio);
        self.resize_fifo(kind, 1);
        self.relist(folio, list_of(kind), false);
    }
}

/// The turn of one lruvec: one batch from the tail of each kind's list.
#[derive(Debug)]
pub(super) struct FifoTurn {
    memcg: MemcgId,
    /// Pages still to scan, by kind.
    left: [u64; 2],
}

impl FifoTurn {
    pub(super) fn begin(grant: Grant<'_>) -> FifoTurn {
        let fifo = &grant.memcg.lruvec.fifo;
        FifoTurn { memcg: grant.memcg.id(), left: Kind::ALL.map(|kind| fifo.pages(kind) >> grant.priority) }
    }

    pub(super) fn step(&mut self, cx: &mut Context<'_, impl Host>) -> TurnStep {
        let core = cx.core;
        let kinds = cx.orders.swappiness.evictable();
        let Some(kind) = kinds.clone().find(|&kind| self.left[kind as usize] > 0) else {
            return TurnStep::Finished;
        };
        let mut batch = cx.scan.take_batch(cx.host);
        let mut locked = core.memcg(self.memcg).lruvec.lock(&core.folios);
        while self.left[kind as usize] > 0 && batch.folios.len() < 32 {
            let Some(folio) = locked.lists.lists.tail(list_of(kind)) else { break };
            self.left[kind as usize] -= 1;
            batch.scanned += 1;
            if locked.isolate_folio(cx.host, folio) {
                batch.folios.push(folio);
            } else {
                locked.relist(folio, list_of(kind), true);
            }
        }
        drop(locked);
        cx.scan.progress.scanned += batch.scanned;
        if batch.scanned == 0 {
            self.left[kind as usize] = 0;
        }
        let taken = !batch.folios.is_empty();
        cx.scan.batch = batch;
        if taken { TurnStep::PageOut } else { TurnStep::More }
    }

    pub(super) fn put_back(&mut self, cx: &mut Context<'_, impl Host>, _: PagedOut) -> TurnStep {
        let (core, scan) = (cx.core, &mut *cx.scan);
        let (_, mut locked) = core.lock_living(self.memcg);
        scan.rejected.iter().for_each(|&folio| locked.place(folio, false));
        drop(locked);
        scan.rejected.drain(..).for_each(|folio| core.put(cx.host, folio));
        if cx.should_stop() { TurnStep::Finished } else { TurnStep::More }
    }

    pub(super) fn visit(&self, core: &Core) -> Visit {
        let fifo = &core.memcg(self.memcg).lruvec.fifo;
        Visit { sizable: Kind::ALL.iter().any(|&kind| fifo.pages(kind) > 0), ..Visit::default() }
    }
}

/// The shadow of an evicted page, which names only its memcg.
pub(super) fn shadow_of(memcg: &Memcg) -> Shadow {
    Shadow { memcg: memcg.id(), workingset: false, token: 0 }
}

pub(super) fn refaulted(_: &Core, host: &impl Host, refault: Refault<'_>) {
    let Refault { folio, memcg, shadow, .. } = refault;
    host.event(Event::Refault { folio, memcg: memcg.id(), shadow, distance: None, recent: false });
}

#[cfg(not(loom))]
mod tests {
    use crate::Lru;
    use crate::lru::switch::SwitchStep;
    use crate::testing::Harness;
    use crate::{Mechanisms, Preset};

    fn harness(lru: Lru) -> Harness {
        let mechanisms = Mechanisms::preset(Preset::Default).with_lru(lru);
        Harness::with_mechanisms(mechanisms, 100, 1)
    }

    fn switch(harness: &Harness, to: Lru) {
        let mut switch = harness.core.switch_lru(to);
        while switch.step(&harness.core, 7) == SwitchStep::More {
            harness.core.validate().unwrap();
        }
        harness.core.validate().unwrap();
    }

    /// Pages leave in the order of arrival, whatever was read; pages that return start over.
    #[test]
    fn pages_leave_in_the_order_in_which_they_came() {
        let mut harness = harness(Lru::Fifo);
        harness.read_ahead(0..100);
        (0..3).for_each(|_| (0..10).for_each(|page| harness.read(page)));
        harness.core.validate().unwrap();
        harness.read_ahead(100..150);
        let evicted = harness.evicted();
        assert!(evicted.len() >= 50 && evicted.iter().copied().eq(0..evicted.len() as u32), "{evicted:?}");
        assert!(!harness.is_cached(0));
        harness.read(0);
        assert!(harness.is_cached(0) && harness.host.recent_refaults() == 0);
        harness.core.validate().unwrap();
    }

    /// Enough accesses fill a policy's count, and accesses to a folio whose count is full change
    /// nothing: a hit may skip them. Multi-gen counts differently before Linux 7.1.
    #[test]
    fn accesses_change_nothing_once_they_are_counted() {
        let presets = [Preset::Default, Preset::Linux612];
        for (lru, preset) in Lru::ALL.into_iter().flat_map(|lru| presets.map(|preset| (lru, preset))) {
            let mechanisms = Mechanisms::preset(preset).with_lru(lru);
            let mut harness = Harness::with_mechanisms(mechanisms, 100, 1);
            harness.read_ahead(0..10);
            let full = harness.core.folios.counted_full();
            let folio = harness.folio(3);
            let state = || harness.core.folios.flags(folio).load();
            assert!(!state().is_counted(full), "{lru:?}");
            let mut changes = 0;
            for _ in 0..20 {
                let before = state();
                let activated = crate::lru::count_access(&harness.core, folio, before);
                if let Some(before) = activated {
                    crate::lru::accessed_again(&harness.core, &harness.host, 0, folio, before);
                    harness.core.drain_all(&harness.host);
                }
                assert_eq!(before == state(), before.is_counted(full), "{lru:?}, {preset:?}: {before:?}");
                changes += u32::from(before != state());
            }
            assert!((2..10).contains(&changes) && state().is_counted(full), "{lru:?}: {:?}", state());
        }
    }

    /// Switching from each policy to each other loses no folio, and reclaim finds those on the way.
    #[test]
    fn folios_move_between_all_policies() {
        for (from, to) in Lru::POLICIES.into_iter().flat_map(|from| Lru::POLICIES.map(|to| (from, to))) {
            let mut harness = harness(from);
            harness.read_ahead(0..60);
            let mut begun = harness.core.switch_lru(to);
            assert_eq!(begun.step(&harness.core, 20), SwitchStep::More);
            harness.core.validate().unwrap();
            harness.read_ahead(60..130);
            let evicted = harness.evicted().len();
            assert!(evicted > 0, "{from:?} to {to:?}");
            switch(&harness, to);
            harness.read_ahead(130..160);
            let cached = (0..160).filter(|&page| harness.is_cached(page)).count();
            assert_eq!(cached, 160 - evicted - harness.evicted().len(), "{from:?} to {to:?}");
            harness.core.validate().unwrap();
        }
    }
}
