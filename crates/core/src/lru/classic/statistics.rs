//! List sizes and activated refaults as reclaim knows them: aggregated over a memcg and those below it, and late.
//!
//! The kernel collects these from per-CPU increments every two seconds, or when somebody reads the memcg's statistics.
//! Until then every decision that uses them is the same: whether the active list gives up pages is frozen, so it swings
//! far around its balance. Without that, nothing agrees with a measured kernel (spec 80 §14.4).
//!
//! The mechanism `exact_statistics` has them always right.
//!
//! Source: spec 80 §4.1.

use super::LISTS;
use crate::folio::Kind;
use crate::host::Host;
use crate::memcg::{Counter, Memcg};
use crate::sync::{AtomicU64, Ordering::Relaxed};
use crate::{Core, Time};
use std::time::Duration;

/// What was known at the last refresh.
#[derive(Debug)]
pub(super) struct Aggregated {
    /// Pages, as [`LISTS`].
    sizes: [AtomicU64; 4],
    /// Refaults that were activated, by kind.
    activated: [AtomicU64; 2],
}

impl Aggregated {
    pub(super) fn new() -> Aggregated {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Aggregated { sizes: zeros(), activated: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    fn load(&self) -> Statistics {
        let load = |words: &[AtomicU64]| words.iter().map(|word| word.load(Relaxed)).collect::<Vec<_>>();
        let (sizes, activated) = (load(&self.sizes), load(&self.activated));
        Statistics {
            sizes: [sizes[0], sizes[1], sizes[2], sizes[3]],
            activated: [activated[0], activated[1]],
        }
    }
}

/// What is known of a memcg and those below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    sizes: [u64; 4],
    activated: [u64; 2],
}

impl Statistics {
    /// Pages on the inactive list of a kind.
    pub(crate) fn inactive(&self, kind: Kind) -> u64 {
        self.sizes[kind as usize * 2]
    }

    /// Pages on the active list of a kind.
    pub(crate) fn active(&self, kind: Kind) -> u64 {
        self.sizes[kind as usize * 2 + 1]
    }

    /// Refaults of a kind that were activated.
    pub(crate) fn activated(&self, kind: Kind) -> u64 {
        self.activated[kind as usize]
    }

    /// Pages on all four lists.
    pub(crate) fn pages(&self) -> u64 {
        self.sizes.iter().sum()
    }

    fn add(&mut self, memcg: &Memcg) {
        let lruvec = &memcg.lruvec;
        for (size, (kind, active)) in self.sizes.iter_mut().zip(LISTS) {
            *size += if active { lruvec.active_pages(kind) } else { lruvec.inactive_pages(kind) };
        }
        let counters = [Counter::WorkingsetActivateAnon, Counter::WorkingsetActivateFile];
        for (activated, counter) in self.activated.iter_mut().zip(counters) {
            *activated += memcg.stat.get(counter);
        }
    }
}

/// When statistics are refreshed without anybody asking for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// For the first time, so long after the host began.
    pub first: Duration,
    /// And then every so long.
    pub period: Duration,
}

impl Default for Refresh {
    /// Every two seconds.
    fn default() -> Refresh {
        let period = Duration::from_secs(2);
        Refresh { first: period, period }
    }
}

impl Refresh {
    /// Only when somebody reads them.
    pub const NEVER: Refresh = Refresh { first: Duration::MAX, period: Duration::MAX };

    /// The first refresh after `now`.
    pub(crate) fn after(self, now: Time) -> Time {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let (first, period) = (nanos(self.first), nanos(self.period).max(1));
        let passed = now.as_nanos().checked_sub(first).map_or(0, |since| since / period + 1);
        Time::from_nanos(first.saturating_add(period.saturating_mul(passed)))
    }
}

impl Core {
    /// Collects the statistics of all memcgs, as reading a memcg's statistics does in the kernel.
    pub fn refresh_statistics(&self) {
        for memcg in self.memcgs.iter() {
            let now = self.collect(memcg);
            let aggregated = &memcg.lruvec.classic.aggregated;
            aggregated.sizes.iter().zip(now.sizes).for_each(|(word, value)| word.store(value, Relaxed));
            aggregated
                .activated
                .iter()
                .zip(now.activated)
                .for_each(|(word, value)| word.store(value, Relaxed));
        }
    }

    /// What is known of a memcg now.
    pub(crate) fn statistics(&self, host: &impl Host, memcg: &Memcg) -> Statistics {
        if self.mechanisms().exact_statistics() {
            return self.collect(memcg);
        }
        let now = host.now();
        let due = self.statistics_due_ns.load(Relaxed);
        if now.as_nanos() >= due {
            let next = self.options.statistics_refresh.after(now).as_nanos();
            // One of those who notice does it.
            if self.statistics_due_ns.compare_exchange(due, next, Relaxed, Relaxed).is_ok() {
                self.refresh_statistics();
            }
        }
        memcg.lruvec.classic.aggregated.load()
    }

    fn collect(&self, memcg: &Memcg) -> Statistics {
        let mut sum = Statistics::default();
        self.subtree(memcg).for_each(|memcg| sum.add(memcg));
        sum
    }

    /// An effort on `memcg` ends: activated refaults that are known now are no news to the next.
    pub(crate) fn note_refaults_seen(&self, host: &impl Host, memcg: &Memcg) {
        let known = self.statistics(host, memcg);
        for kind in Kind::ALL {
            memcg.lruvec.classic.refaults_seen[kind as usize].store(known.activated(kind), Relaxed);
        }
    }

    /// Whether refaults of a kind were activated since the last effort on `memcg` ended, as far as is known.
    pub(crate) fn has_new_refaults(&self, memcg: &Memcg, known: &Statistics, kind: Kind) -> bool {
        memcg.lruvec.classic.refaults_seen[kind as usize].load(Relaxed) != known.activated(kind)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn refreshes_keep_their_phase() {
        let seconds = |seconds: u64| Duration::from_secs(seconds);
        let at = |refresh: Refresh, now| refresh.after(Time::ZERO + seconds(now));
        let refresh = Refresh { first: seconds(1), period: seconds(2) };
        assert_eq!(
            [0, 1, 2, 3, 8].map(|now| at(refresh, now)),
            [1, 3, 3, 5, 9].map(|s| Time::ZERO + seconds(s))
        );
        assert_eq!(at(Refresh::NEVER, 1_000_000).as_nanos(), u64::MAX);
    }
}
