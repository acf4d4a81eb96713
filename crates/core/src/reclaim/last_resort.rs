//! Last resort after fruitless reclaim: waits for transfers under way, then applies the OOM policy.
//!
//! A charge, or a write that lowers a limit, comes here after 16 fruitless retries.
//!
//! Source: [book: memcgs#limits], [book: reclaim-loop#oom]. No kernel has the wait
//! (`wait_before_oom`).

use super::OutOfMemory;
use super::oom::{OomStep, out_of_memory};
use crate::Core;
use crate::host::{FlushReason, Host, Throttle, Time};
use crate::memcg::{Counter, MemcgId, Totals};

/// Waits of 100 ms without a page written or read, while the device was idle or refused, before a
/// request fails. A device that is busy but does not answer is waited for.
const FRUITLESS_WAITS: u32 = 16;
/// Waits of one tick for a dying memcg before a request fails: about a second.
const DYING_WAITS: u32 = 256;

pub(crate) enum LastStep {
    /// The request fails.
    Fail(Box<OutOfMemory>),
    /// A memcg was killed, or the host made room: reclaim starts anew.
    Retry,
    /// Wait, then try another effort.
    Wait(Throttle),
}

/// State of a caller that waits for memory that reclaim does not find.
#[derive(Debug, Default)]
pub(crate) struct LastResort {
    fruitless_waits: u32,
    dying_waits: u32,
    /// Number of OOM kills when it began to reclaim.
    kills_seen: u64,
    /// What [`seen`] returned at the last wait.
    seen_before: [u64; 5],
    /// Failed writes, at the last wait.
    failed_before: u64,
    /// Generations opened, at the last wait.
    aged_before: u64,
    /// The last wait and its start.
    wait: Option<(Throttle, Time)>,
}

impl LastResort {
    /// For a caller that begins to reclaim.
    pub(crate) fn new(core: &Core) -> LastResort {
        LastResort { kills_seen: core.oom.kills(), ..LastResort::default() }
    }

    /// The rest of the last wait, to be waited before `target` is reclaimed from again, if it was
    /// cut short without progress. Hosts wake waiters for any completed page, so readers of other
    /// tenants could end 16 waits in microseconds. A wait that takes no time at all, as with a
    /// simulated device that refuses at once, is over.
    pub(crate) fn rest(&self, core: &Core, host: &impl Host, target: MemcgId) -> Option<Throttle> {
        let (throttle, began) = self.wait?;
        let waited = host.now().since(began);
        let cut_short = !waited.is_zero() && waited < throttle.timeout();
        (cut_short && seen(core, target, &core.memcgs.subtree_totals(target)) == self.seen_before)
            .then_some(throttle)
    }

    /// Decides what to do when reclaim did not bring `target` below its limit.
    /// `wanted_pages`: those that the caller needs at once.
    pub(crate) fn step(
        &mut self,
        core: &Core,
        host: &impl Host,
        target: MemcgId,
        wanted_pages: u64,
    ) -> LastStep {
        let next = self.next(core, host, target, wanted_pages);
        self.wait = match next {
            LastStep::Wait(throttle) => Some((throttle, host.now())),
            LastStep::Fail(_) | LastStep::Retry => None,
        };
        next
    }

    fn next(&mut self, core: &Core, host: &impl Host, target: MemcgId, wanted_pages: u64) -> LastStep {
        if core.mechanisms().wait_before_oom()
            && let Some(throttle) = self.wait_for_transfers(core, host, target)
        {
            return LastStep::Wait(throttle);
        }
        match out_of_memory(core, host, target, wanted_pages, &mut self.kills_seen) {
            OomStep::Fail(report) => LastStep::Fail(report),
            OomStep::Retry => {
                (self.fruitless_waits, self.dying_waits) = (0, 0);
                LastStep::Retry
            }
            OomStep::Wait if self.dying_waits < DYING_WAITS => {
                self.dying_waits += 1;
                LastStep::Wait(Throttle::NoProgress)
            }
            OomStep::Wait => {
                LastStep::Fail(Box::new(OutOfMemory::of(core, target, wanted_pages, host.now())))
            }
        }
    }

    /// Waits while everything is dirty or being written or read, as long as pages get through: that
    /// is slow, not hopeless.
    fn wait_for_transfers(&mut self, core: &Core, host: &impl Host, target: MemcgId) -> Option<Throttle> {
        let totals = core.memcgs.subtree_totals(target);
        let dirty = totals.get(Counter::FileDirty) > 0;
        // A device that is busy with pages of others writes its dirty pages later.
        let is_busy = || core.memcgs.subtree_totals(MemcgId::ROOT).get(Counter::FileWriteback) > 0;
        let in_flight =
            totals.get(Counter::FileWriteback) + totals.get(Counter::FileReading) > 0 || dirty && is_busy();
        let under_way = in_flight || dirty;
        let now = seen(core, target, &totals);
        let moves = now != self.seen_before;
        if moves {
            self.seen_before = now;
            self.fruitless_waits = 0;
        }
        // If all but one of a few generations are empty, nothing can be taken until the threads
        // that walk for the next one are done, and they may wait for a CPU longer than 18 efforts
        // take (docs/fidelity.md). That justifies another try, but is no progress: otherwise an
        // effort that can take nothing would open a generation each time, forever.
        let aged = std::mem::replace(&mut self.aged_before, totals.get(Counter::Aged));
        let ages = core.memcgs.is_aging(target) || aged != self.aged_before;
        if !under_way && !ages && !moves || self.fruitless_waits == FRUITLESS_WAITS {
            return None;
        }
        let [_, failed] = core.ended_writes(target);
        let refused = std::mem::replace(&mut self.failed_before, failed) != failed;
        self.fruitless_waits += u32::from(!in_flight || refused);
        if !under_way {
            return Some(Throttle::NoProgress);
        }
        host.wake_flusher(FlushReason::Reclaim);
        Some(Throttle::Writeback)
    }
}

/// Pages of the target that were written, are being read and were stolen, how its file pages are
/// spread over memcgs, and those that are unevictable. A page that another task read or unlocked
/// since the last effort looked for pages can be taken by the next one. So can one that comes to a
/// memcg without protection, also if another leaves a protected one.
///
/// Pages of other memcgs do not count, as none of theirs will be taken. Nor does the length of the
/// lists, as it changes with every batch that another thread isolates and puts back in vain.
fn seen(core: &Core, target: MemcgId, totals: &Totals) -> [u64; 5] {
    let [written, _] = core.ended_writes(target);
    let stolen = totals.get(Counter::PgstealFile) + totals.get(Counter::PgstealAnon);
    [written, totals.get(Counter::FileReading), stolen, totals.file_spread(), totals.unevictable_pages()]
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::testing::Harness;
    use crate::{ChargeStep, Charging};

    /// As many pages came to the limited memcg as left a protected one below it, and nobody looked
    /// for them: the request failed.
    #[test]
    fn pages_that_come_to_another_memcg_are_seen() {
        let seen = |of_parent: u32, of_child: u32| {
            let mut harness = Harness::new(100, 31);
            let parent = harness.task.memcg;
            harness.bring_at(0..of_parent, 4);
            let child = harness.core.add_child(parent, "child", 100, crate::Time::ZERO).unwrap().id();
            harness.task = harness.core.new_task(child, 0);
            harness.bring_at(of_parent..of_parent + of_child, 4);
            super::seen(&harness.core, parent, &harness.core.memcgs.subtree_totals(parent))
        };
        assert_eq!(seen(3, 20), seen(3, 20));
        assert_ne!(seen(3, 20), seen(0, 23));
        assert_ne!(seen(3, 20), seen(3, 21));
    }

    /// Several threads reclaim in vain from one memcg: the pages that some have isolated while
    /// others look are no reason to try again. Otherwise the threads would keep each other going.
    #[test]
    fn pages_that_others_have_isolated_are_no_progress() {
        let mut harness = Harness::new(100, 31);
        harness.bring_at(0..100, 4);
        for page in 0..100 {
            // As if a user worked with its bytes.
            assert!(harness.core.folios.flags(harness.folio(page)).try_get());
        }
        let mut charging = Charging::new(harness.task.memcg, 0);
        let (mut waits, mut isolated) = (0, Vec::new());
        loop {
            match charging.step(&harness.core, &harness.host) {
                ChargeStep::More => {}
                ChargeStep::Wait(_) => {
                    waits += 1;
                    assert!(waits < 100, "it waits forever");
                    for folio in std::mem::take(&mut isolated) {
                        harness.memcg().lruvec.lock(&harness.core.folios).place(folio, false);
                        harness.core.put(&harness.host, folio);
                    }
                    if waits % 2 == 1 {
                        isolated = harness.isolate(8).folios;
                        assert!(!isolated.is_empty());
                    }
                }
                ChargeStep::Charged(_) => panic!("nothing could be freed"),
                ChargeStep::OutOfMemory(_) => break,
            }
        }
        assert!(waits <= 17, "{waits}");
    }
}
