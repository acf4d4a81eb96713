//! Page-out: examines isolated folios, frees the cold ones and rejects the others.
//!
//! Source: [book: eviction].
//!
//! # Locking
//!
//! This thread has isolated the folios and owns their list membership. It examines a folio under
//! the folio lock, if that is free. A folio leaves its mapping under the mapping's lock, at the
//! moment when its last references are taken.

mod verdict;

pub use crate::lru::References;
pub use verdict::{Facts, Reason, Slot, Verdict, judge};

use crate::Core;
use crate::event::Event;
use crate::folio::{Flags, FolioId, Kind};
use crate::host::Host;
use crate::lru::scan_control::{EffortKind, Scan, Tallies};
use crate::lru::{self, Context, Evictions, PagedOut};
use crate::mapping::{FolioPlace, LockedMapping, ShadowLeaf};
use crate::memcg::{Counter, Memcg};
use crate::swap::{SwapOut, SwapOutcome};
use crate::workingset;

/// References of an otherwise unused isolated folio: the mapping's and the isolation's.
const EXPECTED_REFERENCES: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stay,
    /// The caller frees it. `locked`: this thread holds its lock until then.
    Free {
        locked: bool,
    },
}

impl Fate {
    /// The fate of a folio that may go. References are counted now: one held by a batch keeps the
    /// folio, even if that batch is drained while the other folios are examined.
    fn of_doomed(now: Flags, locked: bool) -> Fate {
        let is_used = now.references() != EXPECTED_REFERENCES || now.lent();
        if !is_used { Fate::Free { locked } } else { Fate::Stay }
    }
}

/// Facts found out about a folio while it is judged.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    references: Option<References>,
    slots_exhausted: bool,
}

/// Memory that the batches of an effort reuse.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    fates: Vec<Fate>,
    /// Freed folios whose frames are returned together.
    freed: Vec<FolioId>,
    /// Leaves that became shadow-only when a page of this batch was freed.
    shadow_leaves: Vec<ShadowLeaf>,
}

/// Examines the isolated folios of the batch, frees those that may go and rejects the others.
/// Leaves the batch empty.
pub(crate) fn page_out(
    cx: &mut Context<'_, impl Host>,
    workspace: &mut Workspace,
    memcg: &Memcg,
) -> PagedOut {
    let (core, orders) = (cx.core, cx.orders);
    let mut folios = std::mem::take(&mut cx.scan.batch.folios);
    let mut batch = Batch { cx, memcg, tallies: Tallies::default() };
    batch.wait_for_slots(&folios);
    workspace.fates.clear();
    workspace.fates.extend(folios.iter().map(|&folio| batch.examine(folio)));
    let freed = batch.free(workspace, &folios);
    let Batch { cx, tallies, .. } = batch;
    let total = freed[0] + freed[1];
    if total > 0 {
        core.release_frames(memcg, Some(orders.cpu), &workspace.freed);
        workspace.freed.clear();
        memcg.stat.add(orders.kind.pgsteal(), total);
        memcg.stat.add(Counter::PgstealAnon, freed[Kind::Anon as usize]);
        memcg.stat.add(Counter::PgstealFile, freed[Kind::File as usize]);
        cx.scan.progress.reclaimed += total;
    }
    folios.clear();
    cx.scan.batch.folios = folios;
    PagedOut { tallies, freed: total }
}

/// A batch of isolated folios of one memcg, under examination.
struct Batch<'a, 'c, H> {
    cx: &'a mut Context<'c, H>,
    memcg: &'a Memcg,
    /// Obstacles met so far.
    tallies: Tallies,
}

impl<H: Host> Batch<'_, '_, H> {
    /// Reports the verdict on an isolated folio to observers.
    #[inline]
    fn emit_judged(&self, folio: FolioId, verdict: Verdict) {
        if self.cx.host.observes() {
            self.cx.host.event(Event::Judged { folio, verdict });
        }
    }

    /// Loads the slots of all folios of a batch before they are changed one by one, so that the
    /// CPU's cache misses overlap. Evicted pages were not touched for long, so their slots are not
    /// in a cache. Replays of zipf 0.99 gain some 3 % (2 to 6 % in three pairs of runs).
    fn wait_for_slots(&mut self, folios: &[FolioId]) {
        let core = self.cx.core;
        for &folio in folios {
            let (id, index) = core.folios.page_of(folio);
            let mapping = self.cx.scan.last_mapping.get(core, id);
            std::hint::black_box(mapping.and_then(|mapping| mapping.find(&core.leaves, index)));
        }
    }

    /// Judges one folio until it is settled.
    #[inline]
    fn examine(&mut self, folio: FolioId) -> Fate {
        let (core, host, memcg) = (self.cx.core, self.cx.host, self.memcg);
        let flags = core.folios.flags(folio);
        let now = flags.load();
        if !now.locked() && self.verdict(now, false, Asked::default()) == Verdict::Free {
            self.emit_judged(folio, Verdict::Free);
            // The common case: freeing takes one step, which fails if anything changes until then.
            return Fate::of_doomed(now, false);
        }
        let locked = flags.try_lock();
        let now = flags.load();
        if locked && !now.swapbacked() {
            self.count_dirty(now);
        }
        let mut asked = Asked::default();
        loop {
            let now = flags.load();
            let verdict = self.verdict(now, !locked, asked);
            self.emit_judged(folio, verdict);
            match verdict {
                Verdict::LookAtMappings => {
                    asked.references = Some(lru::references(self.cx, memcg, folio));
                }
                // Truncated while a batch held it: it is in no mapping any more, and its content is
                // not needed.
                Verdict::AssignSlot if !self.is_in_mapping(folio) => break,
                Verdict::AssignSlot => asked.slots_exhausted = !core.assign_slot(folio),
                Verdict::SwapOut => match self.swap_out(folio) {
                    SwapOutcome::Done => self.tallies.swapped += 1,
                    SwapOutcome::Started => {
                        self.tallies.swapped += 1;
                        break;
                    }
                    SwapOutcome::Refused => {
                        self.activate(folio, now);
                        break;
                    }
                },
                Verdict::Unmap => self.unmap(folio),
                Verdict::Free => {
                    let fate = Fate::of_doomed(now, true);
                    if fate == Fate::Stay {
                        break;
                    }
                    return fate;
                }
                Verdict::Keep(_) => break,
                Verdict::Activate(reason) => {
                    self.note_obstacle(folio, reason);
                    self.activate(folio, now);
                    break;
                }
            }
        }
        if locked && flags.unlock() {
            host.wake_waiters(folio);
        }
        Fate::Stay
    }

    /// Counts a locked file folio in state `now` if it is dirty or being written.
    fn count_dirty(&mut self, now: Flags) {
        self.tallies.dirty += u64::from(now.dirty() || now.writeback());
        self.tallies.unqueued_dirty += u64::from(now.dirty() && !now.writeback());
        self.tallies.congested += u64::from(now.writeback() && now.reclaim());
    }

    /// Counts the obstacle that keeps a folio, and marks one that has to be written to be freed as
    /// soon as it is clean.
    fn note_obstacle(&mut self, folio: FolioId, reason: Reason) {
        let flags = self.cx.core.folios.flags(folio);
        match reason {
            Reason::Immediate => self.tallies.immediate += 1,
            Reason::Writeback => {
                self.tallies.writeback += 1;
                flags.set_reclaim();
            }
            Reason::Dirty => {
                flags.set_reclaim();
                self.memcg.stat.add(Counter::NrVmscanImmediateReclaim, 1);
            }
            _ => {}
        }
    }

    fn unmap(&mut self, folio: FolioId) {
        let core = self.cx.core;
        match self.cx.scan.last_mapping.get(core, core.folios.mapping_of(folio)) {
            Some(mapping) => core.unmap_folio(mapping, self.memcg, folio),
            None => _ = core.folios.flags(folio).clear_mapped(),
        }
    }

    /// Activates a rejected folio, which is to be put back in a younger generation
    /// ([book: eviction#verdicts]). Releases its swap slot if slots are short: its copy in swap is
    /// not needed soon.
    fn activate(&self, folio: FolioId, now: Flags) {
        let core = self.cx.core;
        core.release_slot_if_short(self.cx.host, folio);
        if !now.mlocked() {
            if lru::activates_rejected(core) {
                core.folios.flags(folio).set_active();
            }
            self.memcg.stat.add(Counter::Pgactivate, 1);
        }
    }

    /// Whether a locked folio is still the page that it was inserted as.
    #[cold]
    fn is_in_mapping(&mut self, folio: FolioId) -> bool {
        let core = self.cx.core;
        let (id, index) = core.folios.page_of(folio);
        let mapping = self.cx.scan.last_mapping.get(core, id);
        let slot = mapping.and_then(|mapping| mapping.slot(&core.leaves, index));
        slot.is_some_and(|slot| slot.load().folio() == Some(folio))
    }

    /// Asks the host to write a folio to its swap slot.
    #[cold]
    fn swap_out(&self, folio: FolioId) -> SwapOutcome {
        let (core, host, memcg) = (self.cx.core, self.cx.host, self.memcg);
        let flags = core.folios.flags(folio);
        // Complete this before asking the host: it may have written the page, on another thread,
        // before it answers.
        flags.start_swap_out();
        core.count_pending(memcg, 0, 1);
        let write = SwapOut { page: core.folios.page_of(folio), folio, slot: core.swap.slot_of(folio) };
        let outcome = host.swap_out(write);
        if outcome == SwapOutcome::Started {
            memcg.stat.add(Counter::Pswpout, 1);
            return outcome;
        }
        if outcome == SwapOutcome::Done {
            memcg.stat.add(Counter::Pswpout, 1);
        } else {
            flags.set_dirty();
        }
        core.count_pending(memcg, 0, -1);
        if flags.end_writeback().waiters() {
            host.wake_waiters(folio);
        }
        core.put(host, folio);
        outcome
    }

    #[inline]
    fn verdict(&self, now: Flags, locked_by_other: bool, asked: Asked) -> Verdict {
        let (core, orders) = (self.cx.core, self.cx.orders);
        let referenced = lru::referenced(core.mechanisms(), now);
        judge(Facts {
            locked_by_other,
            evictable: !now.mlocked(),
            mapped: now.mapped(),
            writeback: now.writeback(),
            reclaim: now.reclaim(),
            dirty: now.dirty(),
            kind: now.kind(),
            node_writeback: orders.kind == EffortKind::Background && core.node.is_full_of_writeback(),
            referenced: referenced.counts,
            young_meanwhile: referenced.young_meanwhile,
            slot: match (now.swapcache(), asked.slots_exhausted) {
                (true, _) => Slot::Assigned,
                (false, true) => Slot::Exhausted,
                (false, false) => Slot::Missing,
            },
            references: asked.references,
        })
    }

    /// Takes the folios to be freed out of their mappings, leaves shadows, and frees them. Rejects
    /// folios that are in use. Returns the freed pages by kind.
    fn free(&mut self, workspace: &mut Workspace, folios: &[FolioId]) -> [u64; 2] {
        let (core, host, memcg) = (self.cx.core, self.cx.host, self.memcg);
        let Scan { last_mapping, rejected, .. } = &mut *self.cx.scan;
        let Workspace { fates, freed, shadow_leaves } = workspace;
        let to_free = fates.iter().filter(|fate| matches!(fate, Fate::Free { .. })).count();
        freed.reserve(to_free);
        let mut evictions = Evictions::begin(core, self.cx.orders.target, to_free as u64);
        let mut rest = folios.iter().copied().zip(fates.iter().copied()).peekable();
        // Folios with waiters. These are woken without a lock, as a host may wake tasks, and the
        // waker of a task may drop it, with files that it has open.
        let mut awaited = Vec::new();
        while let Some(&(first, fate)) = rest.peek() {
            let id = core.folios.mapping_of(first);
            let (Fate::Free { .. }, Some(mapping)) = (fate, last_mapping.get(core, id)) else {
                awaited.extend(spare(core, first, fate));
                rejected.push(first);
                rest.next();
                continue;
            };
            // One hold of the lock per run of folios of one part of a mapping.
            let kind = mapping.kind();
            let mut locked = mapping.lock(&core.leaves, core.folios.index(first));
            while let Some((folio, fate)) = rest.next_if(|&(folio, _)| {
                let (mapping, index) = core.folios.page_of(folio);
                mapping == id && locked.covers(index)
            }) {
                let Some((place, before)) = freeze_in_slot(core, &locked, folio, fate) else {
                    awaited.extend(spare(core, folio, fate));
                    rejected.push(folio);
                    continue;
                };
                let shadow = evictions.evicted(core, memcg, folio, (kind, before));
                let word = shadow.pack();
                let index = core.folios.index(folio);
                let left = if kind == Kind::Anon { core.swap.entry_of(folio, Some(word)) } else { word };
                shadow_leaves.extend(locked.remove_at(place, Some(left), memcg.id()));
                if before.waiters() {
                    awaited.push(folio);
                }
                host.event(Event::Evicted { page: (id, index), folio, memcg: memcg.id(), shadow });
                freed.push(folio);
            }
        }
        awaited.into_iter().for_each(|folio| host.wake_waiters(folio));
        let pages = evictions.end(core, memcg);
        shadow_leaves.drain(..).for_each(|leaf| workingset::note_leaf(core, memcg, leaf));
        for kind in Kind::ALL.into_iter().filter(|&kind| pages[kind as usize] > 0) {
            core.forget_folios(memcg, kind, pages[kind as usize]);
        }
        pages
    }
}

/// Takes the last references of a folio to be freed, and returns its place and its state before.
/// `None`: the folio is in use, or was truncated while isolated and its references belong to
/// others.
#[inline]
fn freeze_in_slot<'a>(
    core: &Core,
    locked: &LockedMapping<'a>,
    folio: FolioId,
    fate: Fate,
) -> Option<(FolioPlace<'a>, Flags)> {
    let Fate::Free { locked: is_locked } = fate else { return None };
    let place = locked.place_of(core.folios.index(folio), folio)?;
    Some((place, core.folios.flags(folio).freeze(EXPECTED_REFERENCES, is_locked)?))
}

/// Rejects a folio that was to be freed. `Some`: it has waiters, which the caller wakes.
fn spare(core: &Core, folio: FolioId, fate: Fate) -> Option<FolioId> {
    (fate == (Fate::Free { locked: true }) && core.folios.flags(folio).unlock()).then_some(folio)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::reclaim::evict_step;
    use crate::testing::Harness;
    use crate::{Event, FlushReason, Mechanisms, Preset, Switch, Time};
    use std::cell::Cell;

    fn reclaim_flushes(harness: &Harness) -> usize {
        harness.host.flushes.borrow().iter().filter(|&&reason| reason == FlushReason::Reclaim).count()
    }

    /// [book: eviction#checks]: "a dirty file folio at the tail is isolated, gets `reclaim`, is put
    /// back with A (at `max_seq − 1`, or `max_seq` if W)".
    #[test]
    fn dirty_folios_make_way() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead([0, 1, 2]);
        harness.make_hot(1);
        harness.write(0);
        harness.write(1);
        assert_eq!(harness.evict(2).0, 2);
        for (page, seq) in [(0, 2), (1, 3)] {
            let flags = harness.flags(page);
            assert!(flags.reclaim() && flags.dirty() && !flags.active(), "{page}: {flags:?}");
            assert_eq!(harness.seq_of(page), Some(seq));
        }
        let counts = [Counter::PgscanDirect, Counter::NrVmscanImmediateReclaim, Counter::Pgactivate];
        assert_eq!(counts.map(|counter| harness.stat(counter)), [2, 2, 2]);
        harness.core.validate().unwrap();
    }

    /// [book: eviction#verdicts] row 7: a folio under write-back gets `reclaim` and is activated.
    #[test]
    fn folios_under_writeback_make_way() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead([0, 1]);
        harness.write(0);
        let folios = harness.start_writeback();
        let (_, scan) = harness.evict(1);
        assert_eq!((scan.tallies.writeback, scan.tallies.dirty, scan.tallies.unqueued_dirty), (1, 1, 0));
        assert!(harness.flags(0).reclaim() && harness.flags(0).writeback());
        assert_eq!(harness.seq_of(0), Some(2));
        harness.end_writeback(folios);
        harness.core.validate().unwrap();
    }

    /// [book: reclaim-loop#checks]: "a step with 64 isolated pages all dirty and not queued wakes
    /// the flusher once; 63 dirty + 1 clean does not"; nor do 64 of which one is under writeback.
    #[test]
    fn only_a_batch_of_dirty_folios_wakes_the_flusher() {
        let harness = |dirty: u32| {
            let mut harness = Harness::new(1000, 1);
            harness.read_ahead(0..100);
            (0..dirty).for_each(|page| harness.write(page));
            harness
        };
        for (dirty, wakes) in [(64, 1), (63, 0)] {
            let harness = harness(dirty);
            assert_eq!(harness.evict(64).0, 64);
            assert_eq!(reclaim_flushes(&harness), wakes, "{dirty} of 64 are dirty");
            assert_eq!(harness.evicted().len() as u32, 64 - dirty);
        }
        let harness = harness(64);
        let run = harness.core.start_writeback(&harness.mapping, 5, 6, 1).unwrap();
        harness.evict(64);
        assert_eq!(reclaim_flushes(&harness), 0, "one is queued already");
        harness.end_writeback(run.folios);
    }

    /// A host on which another thread acts as soon as the first page is evicted.
    struct Meanwhile<'a> {
        other_thread: Cell<Option<Box<dyn FnOnce() + 'a>>>,
        evicted: Cell<Vec<u32>>,
        /// Folios whose waiters were woken, and how many pages were evicted by then.
        woken: Cell<Vec<(FolioId, usize)>>,
    }

    impl Host for Meanwhile<'_> {
        fn now(&self) -> Time {
            Time::ZERO
        }

        fn wake_flusher(&self, _: FlushReason) {}

        fn wake_background(&self) {}

        fn wake_waiters(&self, folio: FolioId) {
            let (mut woken, evicted) = (self.woken.take(), self.evicted.take());
            woken.push((folio, evicted.len()));
            self.woken.set(woken);
            self.evicted.set(evicted);
        }

        fn frame_retired(&self, _: FolioId) {}

        fn event(&self, event: Event) {
            if let Event::Evicted { page: (_, index), .. } = event {
                if let Some(act) = self.other_thread.take() {
                    act();
                }
                let mut evicted = self.evicted.take();
                evicted.push(index);
                self.evicted.set(evicted);
            }
        }
    }

    /// One eviction step. Returns the evicted pages.
    fn evict_meanwhile<'a>(harness: &'a Harness, request: u64, act: impl FnOnce() + 'a) -> Vec<u32> {
        let host = meanwhile(act);
        evict_on(harness, &host, request)
    }

    fn meanwhile<'a>(act: impl FnOnce() + 'a) -> Meanwhile<'a> {
        let other_thread = Cell::new(Some(Box::new(act) as _));
        Meanwhile { other_thread, evicted: Cell::default(), woken: Cell::default() }
    }

    fn evict_on(harness: &Harness, host: &Meanwhile<'_>, request: u64) -> Vec<u32> {
        let orders = harness.orders(1);
        let mut scan = Scan::default();
        let cx = &mut Context::new(&harness.core, host, &orders, &mut scan);
        evict_step(cx, harness.memcg(), request);
        let evicted = host.evicted.take();
        assert_eq!(scan.progress.reclaimed, evicted.len() as u64);
        evicted
    }

    /// A thread waits for a folio that is then evicted. It is woken after the batch, without a
    /// lock.
    #[test]
    fn waiters_are_woken_without_a_lock() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead([0, 1, 2]);
        let folio = harness.folio(1);
        let host = meanwhile(|| assert!(harness.core.folios.flags(folio).announce_waiter(|_| true)));
        assert_eq!(evict_on(&harness, &host, 3), [0, 1, 2]);
        assert_eq!(host.woken.take(), [(folio, 3)]);
        harness.core.validate().unwrap();
    }

    /// [book: eviction#checks]: "A clean unmapped folio rejected because its lock was held is
    /// retried once within the step".
    #[test]
    fn a_locked_folio_is_tried_again() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead([0, 1]);
        let flags = &harness.core.folios.flags(harness.folio(0));
        assert!(flags.try_lock());
        let evicted = evict_meanwhile(&harness, 2, || assert!(!flags.unlock()));
        assert_eq!(evicted, [1, 0]);
        assert_eq!(harness.stat(Counter::PgscanDirect), 2, "the second try is not another scan");
        harness.core.validate().unwrap();
    }

    /// [book: eviction#leftovers]: "a folio's writeback may have ended while it was isolated, so
    /// its rotation was missed; such a folio is clean now and can be freed at once": no batch holds
    /// a reference to it.
    #[test]
    fn a_folio_that_was_written_while_isolated_is_freed() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead([0, 1]);
        harness.write(1);
        let folios = harness.start_writeback();
        harness.core.folios.flags(folios[0]).set_reclaim();
        let mut batch = harness.isolate(2);
        harness.end_writeback(folios);
        let (orders, mut scan) = (harness.orders(1), Scan::default());
        batch.taken = 2;
        scan.batch = batch;
        let cx = &mut Context::new(&harness.core, &harness.host, &orders, &mut scan);
        let outcome = page_out(cx, &mut Workspace::default(), harness.memcg());
        assert!(!lru::put_back_oldest(cx, harness.memcg(), outcome));
        assert_eq!(scan.progress.reclaimed, 2);
        assert_eq!(harness.stat(Counter::Pgrotated), 0);
        harness.core.validate().unwrap();
    }

    /// [book: eviction#checks]: "A folio kept in pass 2 whose target would be the oldest generation
    /// ends at `max_seq − 1` (or `max_seq` if W)"; others go where the distance rule says, with
    /// their flags ([book: eviction#leftovers] row 4).
    #[test]
    fn a_folio_kept_twice_leaves_the_oldest_generation() {
        // With four generations, tier 0 would go to the oldest, hot folios would not.
        let mut harness = Harness::new(100, 1);
        harness.read_ahead([0, 1, 2]);
        harness.read(0);
        harness.make_hot(1);
        for page in [0, 1] {
            assert!(harness.core.folios.flags(harness.folio(page)).try_get(), "it is in use");
        }
        // A page that was read goes to the second oldest; so forget its access.
        harness.core.folios.flags(harness.folio(0)).forget_accesses(harness.core.mechanisms());
        assert_eq!(harness.evict(2).0, 2);
        assert_eq!((harness.seq_of(0), harness.rfw(0)), (Some(2), (false, 0, false)));
        assert_eq!((harness.seq_of(1), harness.rfw(1)), (Some(1), (false, 0, true)));
        assert_eq!(harness.stat(Counter::Pgactivate), 0, "put-back does not count activations");
        // With three, hot folios would go to the oldest, too.
        let mut harness = Harness::new(100, 31);
        harness.bring_at([0, 1, 2], 3);
        harness.make_hot(1);
        for page in [0, 1] {
            assert!(harness.core.folios.flags(harness.folio(page)).try_get());
        }
        assert_eq!((harness.evict(2).0, harness.min_seq()), (2, 1));
        assert_eq!((harness.seq_of(0), harness.rfw(0)), (Some(2), (false, 0, false)));
        assert_eq!((harness.seq_of(1), harness.rfw(1)), (Some(3), (false, 0, true)));
    }

    /// [book: eviction#leftovers]: "Put-back keeps the order of rejection: the earliest rejected is
    /// added first, each at the head".
    #[test]
    fn rejected_folios_keep_their_order() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead(0..4);
        (0..3).for_each(|page| harness.write(page));
        harness.evict(3);
        assert_eq!((harness.list(0), harness.list(2)), (vec![3], vec![0, 1, 2]));
    }

    /// [book: access#checks]: "7.2 reverse-map check, young, R=1,F=0,W=0: verdict activate, F
    /// becomes 1, W stays 0, re-added at `max_seq − 1`. The next time: W=1 and re-added at
    /// `max_seq`".
    #[test]
    fn a_mapped_folio_climbs_by_being_found_young() {
        let mut harness = Harness::new(100, 31);
        harness.load(0);
        harness.load(1);
        harness.drain();
        assert_eq!((harness.rfw(0), harness.seq_of(0)), ((true, 0, false), Some(1)));
        // The other page keeps its generation open: a window of two would have nothing between old
        // and young.
        assert_eq!(harness.evict(1).0, 1);
        assert_eq!((harness.rfw(0), harness.seq_of(0)), ((true, 1, false), Some(2)));
        assert!(!harness.is_young(0));
        assert!(harness.open_generation());
        harness.load(0);
        assert_eq!((harness.evict(1).0, harness.list(2)), (1, vec![0]), "the other page was in front");
        assert_eq!(harness.evict(1).0, 1);
        assert_eq!((harness.rfw(0), harness.seq_of(0)), ((false, 0, true), Some(4)));
        harness.core.validate().unwrap();
    }

    /// [book: eviction#verdicts]: a mapped folio that is not young is unmapped and freed; one that
    /// is young for the first time is kept.
    #[test]
    fn an_unused_mapped_folio_is_freed() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead([0, 1, 2]);
        harness.load(0);
        harness.load(1);
        assert_eq!(harness.stat(Counter::FileMapped), 2);
        let slot = harness.mapping.slot(&harness.core.leaves, 0).unwrap();
        assert!(slot.clear_accessed(harness.folio(0)));
        assert_eq!((harness.evict(2).0, harness.evicted()), (2, vec![0]));
        assert_eq!((harness.rfw(1), harness.stat(Counter::FileMapped)), ((true, 0, false), 1));
        assert_eq!(harness.seq_of(1), Some(1), "R counts as an access for its place");
        harness.core.validate().unwrap();
    }

    /// [book: access#young-neighbours]: a folio in the activation batch carries its reference: "if
    /// it is isolated meanwhile, it is unmapped but cannot be freed, goes through the retry, and
    /// the next access is a minor fault".
    #[test]
    fn a_queued_folio_is_unmapped_but_not_freed() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead([0]);
        harness.load(0);
        let folio = harness.folio(0);
        let slot = harness.mapping.slot(&harness.core.leaves, 0).unwrap();
        slot.clear_accessed(folio);
        harness.core.enqueue(&harness.host, 0, crate::lru::Queue::Activate, folio);
        harness.evict(1);
        assert!(harness.is_cached(0) && !harness.flags(0).mapped());
        assert_eq!(harness.stat(Counter::FileMapped), 0);
        let faults = harness.stat(Counter::Pgfault);
        harness.load(0);
        assert_eq!(harness.stat(Counter::Pgfault), faults + 1);
        harness.drain();
        harness.core.validate().unwrap();
    }

    /// [book: eviction#leftovers] row 1: an unevictable folio goes to the unevictable list and
    /// returns when it becomes evictable.
    #[test]
    fn unevictable_folios_are_culled_and_rescued() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead([0, 1, 2]);
        let folio = harness.folio(0);
        harness.core.set_mlocked(folio, true);
        harness.evict(2);
        assert_eq!(harness.evicted(), [1]);
        assert_eq!((harness.memcg().lruvec.unevictable_pages(), harness.seq_of(0)), (1, None));
        harness.core.validate().unwrap();
        harness.core.rescue(folio);
        assert_eq!(harness.memcg().lruvec.unevictable_pages(), 1, "it is still locked in memory");
        harness.core.set_mlocked(folio, false);
        harness.core.rescue(folio);
        assert_eq!(harness.list(0), [2, 0]);
        harness.core.validate().unwrap();
    }

    /// [book: access#checks]: "7.1 reverse-map check, young, R=0,W=0: verdict keep", which is the
    /// first part of the LULESH fix: without it the folio is activated.
    #[test]
    fn a_folio_young_for_the_first_time_is_kept() {
        let seen = |without: &[Switch]| {
            let mechanisms = Mechanisms::compose(Preset::Linux71, &[], without).unwrap();
            let mut harness = Harness::with_mechanisms(mechanisms, 100, 1);
            harness.read_ahead([0, 1]);
            harness.load(0);
            harness.evict(1);
            (harness.rfw(0), harness.seq_of(0), harness.stat(Counter::Pgactivate))
        };
        // If kept, it would go to the oldest generation: when rejected, it loses the access, too.
        assert_eq!(seen(&[]), ((false, 0, false), Some(2), 0));
        assert_eq!(seen(&[Switch::LuleshFix]), ((true, 0, false), Some(2), 1));
    }

    /// [book: access#young-in-eviction], before the rework: "young = 1 otherwise: keep";
    /// [book: eviction#verdicts] row 5: one that an earlier folio's look-around found young while
    /// it was isolated is kept, too, "without any check"; [book: eviction#leftovers] row 3: both
    /// become the youngest.
    #[test]
    fn young_folios_were_made_the_youngest() {
        let mut harness = Harness::with_preset(Preset::Linux612, 100, 1);
        harness.read_ahead(0..4);
        assert!(harness.open_generation());
        (0..2).for_each(|page| harness.load(page));
        assert_eq!((harness.evict(3).0, harness.evicted()), (3, vec![2]));
        assert_eq!([0, 1].map(|page| harness.seq_of(page)), [Some(4), Some(4)]);
        assert_eq!([0, 1].map(|page| harness.rfw(page)), [(false, 0, false); 2]);
        assert_eq!((harness.stat(Counter::Pgactivate), harness.is_young(1)), (0, false));
        harness.core.validate().unwrap();
    }
}
