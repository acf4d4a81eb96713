//! What is done where reclaim has tried everything: first waiting for what is under way, then the
//! OOM policy.
//!
//! Both who is charged and who lowers a limit come here, after 16 fruitless efforts each time.
//!
//! Source: [book: memcgs#limits], [book: reclaim-loop#oom]. The waiting is ours
//! (`wait_before_oom`): no kernel does it.
//!
//! # Locking
//!
//! Nothing is held between steps.

use super::OutOfMemory;
use super::oom::OomStep;
use crate::Core;
use crate::host::{FlushReason, Host, Throttle, Time};
use crate::memcg::{Counter, MemcgId, Totals};

/// Waits of 100 ms in which nothing was written or read, and the device had nothing to do or said
/// no, before a request fails. As long as it has something to do and does not answer, it is waited
/// for.
const FRUITLESS_WAITS: u32 = 16;
/// Waits of one tick for somebody who was killed, before a request fails: about a second.
const DYING_WAITS: u32 = 256;

/// What comes next.
pub(crate) enum LastStep {
    /// Nothing can be done.
    Fail(Box<OutOfMemory>),
    /// Somebody was killed, or the host made room: reclaim begins anew.
    Retry,
    /// Another effort is worth it after that.
    Wait(Throttle),
}

/// How long somebody has waited for memory that reclaim does not find.
#[derive(Debug, Default)]
pub(crate) struct LastResort {
    fruitless_waits: u32,
    dying_waits: u32,
    /// Who was killed when it began to reclaim.
    kills_seen: u64,
    /// Pages written, being read and stolen when it waited last.
    seen_before: [u64; 3],
    /// Pages that could not be written until then.
    failed_before: u64,
    /// Generations opened until then.
    aged_before: u64,
    /// That wait, and when it began.
    wait: Option<(Throttle, Time)>,
}

impl LastResort {
    /// Of somebody who begins to reclaim.
    pub(crate) fn new(core: &Core) -> LastResort {
        LastResort { kills_seen: core.oom_kills(), ..LastResort::default() }
    }

    /// What to wait for once more before `target` is reclaimed from again: a wait was cut short,
    /// and nothing moved. Hosts wake who waits for any page that is done; readers of other tenants
    /// end 16 waits in microseconds. Where a wait takes no time at all, as for a simulated device
    /// that refuses at once, it is over.
    pub(crate) fn rest(&self, core: &Core, host: &impl Host, target: MemcgId) -> Option<Throttle> {
        let (throttle, began) = self.wait?;
        let waited = host.now().since(began);
        let cut_short = !waited.is_zero() && waited < throttle.timeout();
        (cut_short && seen(core, &core.memcgs.subtree_totals(target)) == self.seen_before).then_some(throttle)
    }

    /// Reclaim did not bring `target` below its limit.
    pub(crate) fn step(&mut self, core: &Core, host: &impl Host, target: MemcgId) -> LastStep {
        let next = self.next(core, host, target);
        self.wait = match next {
            LastStep::Wait(throttle) => Some((throttle, host.now())),
            LastStep::Fail(_) | LastStep::Retry => None,
        };
        next
    }

    fn next(&mut self, core: &Core, host: &impl Host, target: MemcgId) -> LastStep {
        if core.mechanisms().wait_before_oom()
            && let Some(throttle) = self.wait_for_transfers(core, host, target)
        {
            return LastStep::Wait(throttle);
        }
        match core.out_of_memory(host, target, &mut self.kills_seen) {
            OomStep::Fail(report) => LastStep::Fail(report),
            OomStep::Retry => {
                (self.fruitless_waits, self.dying_waits) = (0, 0);
                LastStep::Retry
            }
            OomStep::Wait if self.dying_waits < DYING_WAITS => {
                self.dying_waits += 1;
                LastStep::Wait(Throttle::NoProgress)
            }
            OomStep::Wait => LastStep::Fail(Box::new(OutOfMemory::of(core, target, host.now()))),
        }
    }

    /// Everything is dirty, being written or being read: that is slow, not hopeless, as long as
    /// pages do get through.
    fn wait_for_transfers(&mut self, core: &Core, host: &impl Host, target: MemcgId) -> Option<Throttle> {
        let totals = core.memcgs.subtree_totals(target);
        let in_flight = totals.get(Counter::FileWriteback) + totals.get(Counter::FileReading) > 0;
        let under_way = in_flight || totals.get(Counter::FileDirty) > 0;
        let now = seen(core, &totals);
        let moves = now != self.seen_before;
        if moves {
            self.seen_before = now;
            self.fruitless_waits = 0;
        }
        // Where all but one of a few generations are empty, nobody takes anything until those who
        // walk for the next one are done; and who walks may have to wait for a CPU longer than 16
        // efforts take (docs/fidelity.md). This is worth another try, but no progress: where
        // nothing can be taken, every effort opens a generation, for ever.
        let aged = std::mem::replace(&mut self.aged_before, totals.get(Counter::Aged));
        let ages = core.is_aging(target) || aged != self.aged_before;
        if !under_way && !ages && !moves || self.fruitless_waits == FRUITLESS_WAITS {
            return None;
        }
        let failed = core.failed_writes(target);
        let refused = std::mem::replace(&mut self.failed_before, failed) != failed;
        self.fruitless_waits += u32::from(!in_flight || refused);
        if !under_way {
            return Some(Throttle::NoProgress);
        }
        host.wake_flusher(FlushReason::Reclaim);
        Some(Throttle::Writeback)
    }
}

/// Pages written, being read and stolen.
fn seen(core: &Core, totals: &Totals) -> [u64; 3] {
    let stolen = totals.get(Counter::PgstealFile) + totals.get(Counter::PgstealAnon);
    [core.written_pages(), totals.get(Counter::FileReading), stolen]
}
