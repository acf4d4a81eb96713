//! How fast tasks may dirty pages: together as fast as pages are written, each as fast as the
//! others.
//!
//! ```text
//! pages dirty or being written
//!   0 ── background ── free run ────── setpoint ────── limit
//!        10 %          15 %            17.5 %          20 %     of the memory of a memcg, of one above it, and of all
//!   ratio:             2 ╲____________ 1 ____________╲ 0        (a cubic: flat in the middle, steep at the ends)
//!
//! pause = pages that the task dirtied / (rate × ratio)
//! ```
//!
//! Up to the free run nobody pauses. Above it, a task that has dirtied a few dozen pages pauses for
//! as long as it may take to dirty them. The *rate* is that of one task, the same for all that
//! dirty pages of one memcg. Every 200 ms it is moved an eighth of the way to rate × ratio × pages
//! written / pages dirtied, which is the bandwidth divided by the number of tasks, without anybody
//! counting tasks: below the setpoint only up, above it only down. The bandwidth is that of
//! completed writes, smoothed over 3 s. Pauses of less than 10 ms are put together. None is longer
//! than an eighth of what is pending takes to be written, so that the device does not run dry, nor
//! than 200 ms. At the limit tasks pause for so long, again and again; where the device stalls, its
//! bandwidth is seen to fall, and it is 200 ms soon.
//!
//! Source: Wu Fengguang, "IO-less dirty throttling" (Linux Plumbers Conference 2011; LWN, "Dynamic
//! writeback throttling", 2010), and the texts with which he posted it for Linux 3.2; all later
//! kernels have it. There, a share of all memory is that of each device, too; here there is one.
//! [book: writeback#flusher] has the free run and the limits.
//!
//! # Locking
//!
//! The pace of a memcg ([`crate::memcg`]) has a lock of its own, a leaf, taken once per few dozen
//! pages, above the free run only.

use super::limits::DirtyLimits;
use crate::Core;
use crate::host::{FlushReason, Host, Throttle, Time};
use crate::memcg::pace::{ONE, TICK, nanos, scale};
use crate::memcg::{Counter, Memcg, MemcgId};
use std::time::Duration;

/// A pause that is shorter is put off; where half of the longest is less, one shorter than that,
/// but none of a tick.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Most pages that a task dirties before it looks whether it has to pause.
const LOOK_PAGES: u32 = 32;
/// A task that dirties pages of files.
#[derive(Clone, Copy, Debug)]
pub struct Dirtier {
    /// Pages that it dirtied and did not account for.
    pages: u32,
    /// It looks after so many.
    look_pages: u32,
    /// By then it may have dirtied what it has.
    due: Time,
}

impl Default for Dirtier {
    fn default() -> Dirtier {
        Dirtier { pages: 0, look_pages: 1, due: Time::ZERO }
    }
}

impl Dirtier {
    /// It made a clean page dirty. `true`: it should look, with [`Core::balance_dirty`], as soon as
    /// it holds no page.
    #[inline]
    pub fn dirtied(&mut self) -> bool {
        self.pages += 1;
        self.must_look()
    }

    /// It was told to pause and gives up instead: it looks again before it dirties anything.
    pub fn look_again(&mut self) {
        self.pages = self.look_pages;
    }

    /// Whether it should look.
    #[inline]
    pub fn must_look(&self) -> bool {
        self.pages >= self.look_pages
    }
}

/// How much faster or slower than its rate a task may be; `None`: as fast as it can.
fn ratio(pending_pages: u64, limits: DirtyLimits) -> Option<u64> {
    let free_run = limits.free_run_pages();
    if pending_pages <= free_run {
        return None;
    }
    if pending_pages >= limits.pages {
        return Some(0);
    }
    let setpoint = (free_run + limits.pages) / 2;
    let one = ONE as i64;
    let distance = (setpoint as i64 - pending_pages as i64) * one / (limits.pages - setpoint) as i64;
    Some((one + distance * distance * distance / (one * one)).clamp(0, 2 * one) as u64)
}

/// So many pages below a limit, a task need not look before it dirtied their square root: a hundred
/// of them do no harm.
fn look_pages(below_limit: u64) -> u32 {
    let root = 1 << (below_limit.max(1).ilog2() / 2);
    LOOK_PAGES.min(root)
}

impl Core {
    /// Whether a task that dirties pages of `memcg` has to pause now, and for how long. To be asked
    /// when [`Dirtier::dirtied`] says so, and again after the pause, until it has not. The flusher
    /// is woken where there is something to write.
    pub fn balance_dirty(&self, host: &impl Host, memcg: MemcgId, dirtier: &mut Dirtier) -> Option<Throttle> {
        let memcg = self.memcgs.payer(memcg);
        let pages = std::mem::take(&mut dirtier.pages);
        let mut slowest: Option<u64> = None;
        let mut room = u64::MAX;
        for level in self.dirty_levels(memcg) {
            let pending = level.pending.pages();
            room = room.min(level.limits.pages.saturating_sub(pending));
            if let Some(ratio) = ratio(pending, level.limits) {
                slowest = Some(slowest.unwrap_or(u64::MAX).min(ratio));
                self.note_over_background(level.memcg);
            }
        }
        let now = host.now();
        let Some(ratio) = slowest else {
            *dirtier = Dirtier { pages: 0, look_pages: look_pages(room), due: now };
            return None;
        };
        host.wake_flusher(FlushReason::Background);
        let (paced, written, pending) = self.who_is_paced(memcg);
        let (rate, longest) = {
            let mut pace = paced.pace.lock();
            let pace = pace.get_or_insert_default();
            let rate = scale(pace.note(now, pages, written, ratio), ratio, ONE);
            (rate, pace.longest_pause(pending))
        };
        // So many in half of the longest pause; and where others slow it down, it may still be near
        // a limit of its own.
        dirtier.look_pages = look_pages(room).min((rate / 10).clamp(1, u64::from(LOOK_PAGES)) as u32);
        if rate == 0 {
            return Some(Throttle::Dirty(longest));
        }
        let earned = Time::from_nanos(now.as_nanos().saturating_sub(nanos(longest)));
        let taken = Duration::from_nanos(scale(u64::from(pages), 1_000_000_000, rate));
        dirtier.due = (dirtier.due.max(earned) + taken).min(now + longest);
        let pause = dirtier.due.since(now);
        (pause >= (longest / 2).clamp(TICK, PAUSE_MIN)).then_some(Throttle::Dirty(pause))
    }

    /// Whose pace it is, and how many pages of that were written, and are pending: a memcg's own,
    /// or that of all.
    fn who_is_paced<'a>(&'a self, memcg: &'a Memcg) -> (&'a Memcg, u64, u64) {
        if self.options.memcg_dirty_limits {
            (memcg, memcg.stat.get(Counter::NrWritten), memcg.pending.pages())
        } else {
            let all = &self.node.pending;
            (self.memcg(MemcgId::ROOT), all.written_pages(), all.pages())
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
