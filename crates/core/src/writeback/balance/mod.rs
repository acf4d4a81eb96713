//! Dirty throttling: pauses tasks so that together they dirty pages as fast as pages are written,
//! and each as fast as the others.
//!
//! ```text
//! pages dirty or being written
//!   0 ── background ── free run ────── setpoint ────── limit
//!        10 %          15 %            17.5 %          20 %     of the memory of a memcg, of an ancestor, and of all
//!   ratio:             2 ╲____________ 1 ____________╲ 0        (a cubic: flat in the middle, steep at the ends)
//!
//! pause = pages that the task dirtied / (rate × ratio)
//! ```
//!
//! Up to the free run no task pauses. Above it, a task that has dirtied a few dozen pages pauses
//! for as long as it may take to dirty them.
//!
//! All tasks that dirty pages of one memcg have the same *rate*. Every 200 ms it moves an eighth of
//! the way to rate × ratio × pages written / pages dirtied, only up below the setpoint and only
//! down above it. This divides the bandwidth among the tasks without counting them.
//! The bandwidth is that of completed writes, smoothed over 3 s.
//!
//! Pauses shorter than 10 ms are combined. A pause lasts at most an eighth of the time that writing
//! the pending pages takes, so that the device does not run dry, and at most 200 ms. At the limit,
//! tasks take such pauses again and again. If the device stalls, its measured bandwidth falls, and
//! pauses soon reach 200 ms.
//!
//! Source: Wu Fengguang, "IO-less dirty throttling" (Linux Plumbers Conference 2011; LWN, "Dynamic
//! writeback throttling", 2010), and the texts with which he posted it for Linux 3.2; all later
//! kernels have it. There, each device has a share of all memory, too; here there is one device.
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

/// Shorter pauses are combined. Half of the longest pause takes its place if that is less, but at
/// least a tick.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// The most pages that a task dirties between two checks.
const LOOK_PAGES: u32 = 32;

/// A task that dirties file pages.
#[derive(Clone, Copy, Debug)]
pub struct Dirtier {
    /// Pages dirtied since the last account.
    pages: u32,
    /// Pages until the next check.
    look_pages: u32,
    /// The time by which its dirtied pages are within its rate.
    due: Time,
}

impl Default for Dirtier {
    fn default() -> Dirtier {
        Dirtier { pages: 0, look_pages: 1, due: Time::ZERO }
    }
}

impl Dirtier {
    /// Counts a clean page that the task made dirty. `true`: call [`Core::balance_dirty`] as soon
    /// as the task holds no page.
    #[inline]
    pub fn dirtied(&mut self) -> bool {
        self.pages += 1;
        self.must_look()
    }

    /// Skips a pause: the task checks again before it dirties another page.
    pub fn look_again(&mut self) {
        self.pages = self.look_pages;
    }

    /// Whether a check is due.
    #[inline]
    pub fn must_look(&self) -> bool {
        self.pages >= self.look_pages
    }
}

/// The factor on a task's rate; `None`: unlimited.
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

/// Pages until the next check, at a distance below a limit: its square root, so that even a hundred
/// tasks exceed the limit little.
fn look_pages(below_limit: u64) -> u32 {
    let root = 1 << (below_limit.max(1).ilog2() / 2);
    LOOK_PAGES.min(root)
}

impl Core {
    /// The pause of a task that dirties pages of `memcg`, if it must pause now. To be asked when
    /// [`Dirtier::dirtied`] says so, and again after each pause. Wakes the flusher if there is
    /// something to write.
    pub fn balance_dirty(&self, host: &impl Host, memcg: MemcgId, dirtier: &mut Dirtier) -> Option<Throttle> {
        self.refresh_dirty_counts(host);
        let memcg = self.memcgs.payer(memcg);
        let pages = std::mem::take(&mut dirtier.pages);
        let mut slowest: Option<u64> = None;
        let mut room = u64::MAX;
        for level in self.dirty_levels(memcg) {
            let pending = level.counted_pages();
            room = room.min(level.limits.pages.saturating_sub(pending));
            if let Some(ratio) = ratio(pending, level.limits) {
                slowest = Some(slowest.unwrap_or(u64::MAX).min(ratio));
                self.flushing.note_over_background(level.memcg);
            }
        }
        let now = host.now();
        let Some(ratio) = slowest else {
            *dirtier = Dirtier { pages: 0, look_pages: look_pages(room), due: now };
            return None;
        };
        host.wake_flusher(FlushReason::Background);
        let (paced, written, pending) = self.paced_memcg(memcg);
        let (rate, longest) = {
            let mut pace = paced.pace.lock();
            let pace = pace.get_or_insert_default();
            let rate = scale(pace.note(now, pages, written, ratio), ratio, ONE);
            (rate, pace.longest_pause(pending))
        };
        // As many as in half of the longest pause; a task that others slow down may still be near a
        // limit of its own.
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

    /// The memcg whose pace applies (the memcg itself, or the root for all memory), its written
    /// pages and its pending pages.
    fn paced_memcg<'a>(&'a self, memcg: &'a Memcg) -> (&'a Memcg, u64, u64) {
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
