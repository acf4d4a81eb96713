//! Per-memcg dirty rate limit: the writeback bandwidth of the memcg and each task's share of it.
//! `writeback/balance` pauses writers accordingly and names the source.
//!
//! # Locking
//!
//! Callers hold the lock of the memcg's `pace`.

use crate::Time;
use std::time::Duration;

/// The longest pause. While almost nothing is pending, the longest is one tick.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(200);
pub(crate) const TICK: Duration = Duration::from_millis(4);
/// A pause lasts at most this fraction of the time that writing the pending pages takes.
const SAFETY: u64 = 8;
/// Interval between adjustments of the rates.
const INTERVAL: Duration = Duration::from_millis(200);
/// After so long without a pause, the pages written since say nothing about the bandwidth.
const IDLE: Duration = Duration::from_secs(1);
/// Smoothing period of the bandwidth.
const PERIOD: Duration = Duration::from_secs(3);
/// Initial rate: 100 MB/s.
const FIRST_PAGES_PER_SECOND: u64 = 25_600;
/// A ratio of 1.
pub(crate) const ONE: u64 = 1024;

#[derive(Debug)]
pub(crate) struct Pace {
    /// Time of the last adjustment, and pages written by then.
    since: Time,
    written: u64,
    /// Pages dirtied since the last adjustment.
    pub(crate) dirtied: u64,
    /// Pages written per second.
    pub(crate) bandwidth: u64,
    /// Pages per second and task. `balanced`: the value by the last interval alone.
    pub(crate) rate: u64,
    balanced: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace {
            since: Time::ZERO,
            written: 0,
            dirtied: 0,
            bandwidth: FIRST_PAGES_PER_SECOND,
            rate: FIRST_PAGES_PER_SECOND,
            balanced: FIRST_PAGES_PER_SECOND,
        }
    }
}

/// `a × b / c`, without overflow on the way.
pub(crate) fn scale(a: u64, b: u64, c: u64) -> u64 {
    u64::try_from(u128::from(a) * u128::from(b) / u128::from(c.max(1))).unwrap_or(u64::MAX)
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

impl Pace {
    /// Notes that a task dirtied `pages`, after `written` pages of the memcg were written in all.
    /// Returns pages per second and task, at a ratio of 1.
    pub(crate) fn note(&mut self, now: Time, pages: u32, written: u64, ratio: u64) -> u64 {
        self.dirtied += u64::from(pages);
        let elapsed = now.since(self.since);
        if elapsed < INTERVAL {
            return self.rate;
        }
        if elapsed <= IDLE {
            let per_second = |pages| scale(pages, 1_000_000_000, nanos(elapsed));
            let now = per_second(written.saturating_sub(self.written));
            let period = nanos(PERIOD);
            let smoothed =
                scale(now, nanos(elapsed), period) + scale(self.bandwidth, period - nanos(elapsed), period);
            self.bandwidth = smoothed.max(1);
            self.adjust(per_second(self.dirtied), ratio);
        }
        *self = Pace { since: now, written, dirtied: 0, ..*self };
        self.rate
    }

    /// The longest pause of a task while `pending_pages` are pending.
    pub(crate) fn longest_pause(&self, pending_pages: u64) -> Duration {
        let to_write = scale(pending_pages, 1_000_000_000, self.bandwidth);
        Duration::from_nanos(to_write / SAFETY).clamp(TICK, PAUSE_MAX)
    }

    fn adjust(&mut self, dirtied_per_second: u64, ratio: u64) {
        if dirtied_per_second == 0 {
            // All tasks are at the limit, which says nothing about the rate each could reach.
            return;
        }
        let task = scale(self.rate, ratio, ONE);
        let balanced = scale(task, self.bandwidth, dirtied_per_second).min(self.bandwidth);
        // The last intervals and the position must agree, so that fluctuations have no effect.
        if ratio >= ONE {
            let target = task.min(balanced).min(self.balanced);
            self.rate += target.saturating_sub(self.rate).div_ceil(8);
        } else {
            let target = task.max(balanced).max(self.balanced);
            self.rate -= self.rate.saturating_sub(target).div_ceil(8);
        }
        self.rate = self.rate.max(1);
        self.balanced = balanced;
    }
}
