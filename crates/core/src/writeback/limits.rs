//! Limits of dirty pages.

/// Share of memory that may be dirty before writers wait, in percent.
const DIRTY_PERCENT: u64 = 20;
/// Share of memory that may be dirty before the flusher starts by itself, in percent.
const BACKGROUND_DIRTY_PERCENT: u64 = 10;

/// Limits of dirty pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirtyLimits {
    /// Above this, the flusher writes.
    pub(super) background_pages: u64,
    /// At this number, writers wait.
    pub(super) pages: u64,
}

impl DirtyLimits {
    /// The limits for `memory_pages`. The limit is at least one page, so that tiny tenants can
    /// write.
    pub(super) fn of(memory_pages: u64) -> DirtyLimits {
        DirtyLimits {
            background_pages: memory_pages * BACKGROUND_DIRTY_PERCENT / 100,
            pages: (memory_pages * DIRTY_PERCENT / 100).max(1),
        }
    }

    /// The limits beside refused pages ([`super::refused`]): half of what these leave of twice the
    /// limit, if that is less.
    pub(super) fn beside_refused(self, refused_pages: u64) -> DirtyLimits {
        if refused_pages == 0 {
            return self;
        }
        let pages = self.pages.min((2 * self.pages).saturating_sub(refused_pages) / 2).max(1);
        DirtyLimits { background_pages: self.background_pages.min(pages / 2), pages }
    }

    /// Dirty and writeback pages up to which no writer is throttled.
    pub(super) fn free_run_pages(self) -> u64 {
        (self.background_pages + self.pages) / 2
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shares_of_memory() {
        assert_eq!(DirtyLimits::of(8192), DirtyLimits { background_pages: 819, pages: 1638 });
        assert_eq!(DirtyLimits::of(3), DirtyLimits { background_pages: 0, pages: 1 });
    }

    #[test]
    fn refused_pages_shrink_limits() {
        let pages = |refused_pages| {
            let limits = DirtyLimits::of(1000).beside_refused(refused_pages);
            (limits.background_pages, limits.pages)
        };
        let expected = [(100, 200), (99, 199), (50, 100), (25, 50), (0, 1), (0, 1)];
        assert_eq!([0, 1, 200, 300, 400, 500].map(pages), expected);
        assert_eq!(DirtyLimits::of(3).beside_refused(0), DirtyLimits::of(3));
    }
}
