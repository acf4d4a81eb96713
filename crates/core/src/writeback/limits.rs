//! Limits of dirty pages.

/// Share of memory that may be dirty before writers wait, in percent.
pub const DIRTY_PERCENT: u64 = 20;
/// Share of memory that may be dirty before the flusher starts by itself, in percent.
pub const BACKGROUND_DIRTY_PERCENT: u64 = 10;

/// Limits of dirty pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyLimits {
    /// Above this, the flusher writes.
    pub background_pages: u64,
    /// At this number, writers wait.
    pub pages: u64,
}

impl DirtyLimits {
    /// The limits for `memory_pages`. The limit is at least one page, so that tiny tenants can
    /// write.
    pub fn of(memory_pages: u64) -> DirtyLimits {
        DirtyLimits {
            background_pages: memory_pages * BACKGROUND_DIRTY_PERCENT / 100,
            pages: (memory_pages * DIRTY_PERCENT / 100).max(1),
        }
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
}
