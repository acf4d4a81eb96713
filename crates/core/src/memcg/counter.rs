//! Page counters: the usage of a memcg's subtree, and its limits.
//!
//! A page is charged to its memcg and to every ancestor below the root. The root has no limit and
//! counts only its own pages. Each memcg has one counter for memory and one for swap.
//!
//! A page is charged before it has a frame; Linux takes the frame first. Where its task first
//! reclaims a frame, or pauses for `memory.high`, the page is *waiting*: it counts against limits,
//! but it is no memory. So are pages of metadata whose frames are yet to be reclaimed. The peak
//! leaves out waiting pages, and so does `memory.current`; otherwise both could exceed the
//! machine's memory. The usage is highest just before it falls, so uncharges note the peak. A
//! charge that an ancestor refuses leaves no trace in it.
//!
//! # Locking
//!
//! None: atomic words. A charge walks up the tree and is taken back if an ancestor refuses. An
//! uncharge begins with the parent and ends with the memcg itself. So while a page is being charged
//! or uncharged, a child may count it and its parent not.

use crate::sync::{AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};

/// The value of a limit that is not set.
pub const UNLIMITED: u64 = u64::MAX;

/// Usage and limits, in pages.
#[derive(Debug)]
pub struct PageCounter {
    usage: AtomicU64,
    /// The highest usage before an uncharge.
    peak: AtomicU64,
    /// Charged pages without a frame.
    waiting: AtomicU64,
    high: AtomicU64,
    max: AtomicU64,
}

impl PageCounter {
    pub(super) fn new(max_pages: u64) -> PageCounter {
        PageCounter {
            usage: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            high: AtomicU64::new(UNLIMITED),
            max: AtomicU64::new(max_pages),
        }
    }

    /// Resets everything, for the next memcg with this number.
    pub(super) fn reset(&self, max_pages: u64) {
        for word in [&self.usage, &self.peak, &self.waiting] {
            word.store(0, Relaxed);
        }
        self.high.store(UNLIMITED, Relaxed);
        self.max.store(max_pages, Relaxed);
    }

    /// Pages charged now, with those that wait for a frame.
    pub fn usage_pages(&self) -> u64 {
        self.usage.load(Relaxed)
    }

    /// Whether nothing is charged. Then the caller sees all that other threads did before they took
    /// their charges off.
    pub(super) fn is_unused(&self) -> bool {
        self.usage.load(Acquire) == 0
    }

    /// Pages charged now, without those that wait for a frame.
    pub fn held_pages(&self) -> u64 {
        self.held(self.usage_pages())
    }

    /// The highest number of charged pages so far, without those that waited for a frame.
    pub fn peak_pages(&self) -> u64 {
        self.held_pages().max(self.peak.load(Relaxed))
    }

    fn held(&self, usage: u64) -> u64 {
        usage.saturating_sub(self.waiting.load(Relaxed))
    }

    /// Charged pages begin to wait for frames.
    pub(super) fn begin_wait(&self, pages: u64) {
        self.waiting.fetch_add(pages, Relaxed);
    }

    /// Charged pages have their frames.
    pub(super) fn end_wait(&self, pages: u64) {
        self.waiting.fetch_sub(pages, Relaxed);
    }

    /// The usage above which charges are throttled.
    pub fn high_pages(&self) -> u64 {
        self.high.load(Relaxed)
    }

    /// The most pages that may be charged.
    pub fn max_pages(&self) -> u64 {
        self.max.load(Relaxed)
    }

    /// The lower of `max` and `high`, in pages.
    pub fn limit_pages(&self) -> u64 {
        self.max_pages().min(self.high_pages())
    }

    pub(super) fn set_high(&self, pages: u64) {
        self.high.store(pages, Relaxed);
    }

    pub(super) fn set_max(&self, pages: u64) {
        self.max.store(pages, Relaxed);
    }

    /// Restarts the peak at the current usage.
    pub(crate) fn reset_peak(&self) {
        self.peak.store(self.held_pages(), Relaxed);
    }

    /// Pages that may still be charged below `max`.
    pub fn margin_pages(&self) -> u64 {
        self.max_pages().saturating_sub(self.usage_pages())
    }

    /// Charges `pages`. `false`: they do not fit under the limit.
    #[inline]
    pub(super) fn try_charge(&self, pages: u64) -> bool {
        let max = self.max_pages();
        let charged = self.usage.fetch_update(AcqRel, Relaxed, |usage| {
            let next = usage + pages;
            (next <= max).then_some(next)
        });
        charged.is_ok()
    }

    /// Charges `pages` regardless of the limit.
    pub(super) fn charge(&self, pages: u64) {
        self.usage.fetch_add(pages, AcqRel);
    }

    /// Ends a charge and returns the new usage. `None`: less than `pages` was charged.
    #[inline]
    pub(super) fn uncharge(&self, pages: u64) -> Option<u64> {
        let usage = self.usage.fetch_sub(pages, AcqRel);
        let held = self.held(usage);
        if held > self.peak.load(Relaxed) {
            self.peak.fetch_max(held, Relaxed);
        }
        usage.checked_sub(pages)
    }

    /// Takes back a charge that came to nothing, and returns the new usage. `None` as for
    /// [`Self::uncharge`].
    pub(super) fn cancel(&self, pages: u64) -> Option<u64> {
        self.usage.fetch_sub(pages, AcqRel).checked_sub(pages)
    }

    /// Excess over `memory.high` (or `memory.swap.high`) as a share of it, times 2^20
    /// ([book: memcgs#limits]). 0: not above.
    pub(crate) fn overage(&self) -> u64 {
        let (usage, high) = (self.usage_pages(), self.high_pages());
        if usage <= high {
            return 0;
        }
        ((usage - high) << 20) / high.max(1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn charges_stop_at_the_limit() {
        let counter = PageCounter::new(10);
        assert_eq!([8, 3, 2].map(|pages| counter.try_charge(pages)), [true, false, true]);
        assert_eq!(counter.uncharge(4), Some(6));
        assert_eq!((counter.usage_pages(), counter.peak_pages(), counter.margin_pages()), (6, 10, 4));
        assert_eq!(counter.uncharge(7), None);
    }

    #[test]
    fn the_peak_leaves_out_pages_without_frames() {
        let counter = PageCounter::new(10);
        assert!(counter.try_charge(4));
        // Two pages wait while reclaim frees one and one gets its frame; the other gives up.
        for _ in 0..2 {
            assert!(counter.try_charge(1));
            counter.begin_wait(1);
        }
        assert_eq!((counter.usage_pages(), counter.held_pages(), counter.peak_pages()), (6, 4, 4));
        counter.uncharge(1).unwrap();
        counter.end_wait(1);
        assert_eq!((counter.held_pages(), counter.peak_pages()), (4, 4));
        counter.end_wait(1);
        counter.cancel(1).unwrap();
        assert_eq!((counter.usage_pages(), counter.held_pages(), counter.peak_pages()), (4, 4, 4));
        assert!(counter.try_charge(2));
        assert_eq!(counter.peak_pages(), 6, "before it falls");
        counter.uncharge(2).unwrap();
        assert_eq!(counter.peak_pages(), 6, "and after");
        counter.reset_peak();
        assert_eq!(counter.peak_pages(), 4);
    }

    #[test]
    fn overage_is_a_share_of_the_limit() {
        let counter = PageCounter::new(UNLIMITED);
        assert!(counter.try_charge(110));
        assert_eq!(counter.overage(), 0);
        counter.set_high(100);
        assert_eq!(counter.overage(), (10 << 20) / 100);
        counter.set_high(0);
        assert_eq!(counter.overage(), 110 << 20, "no division by zero");
    }
}
