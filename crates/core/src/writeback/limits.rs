//! How much may be dirty.

/// Share of memory that may be dirty before writers wait.
pub const DIRTY_PERCENT: u64 = 20;
/// Share of memory that may be dirty before the flusher starts by itself.
pub const BACKGROUND_DIRTY_PERCENT: u64 = 10;

/// How much may be dirty, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyLimits {
    /// From here on, the flusher writes.
    pub background_pages: u64,
    /// From here on, who dirties waits.
    pub pages: u64,
}

impl DirtyLimits {
    /// The limits within `memory_pages`. A limit of at least one page lets tiny tenants write at
    /// all.
    pub fn of(memory_pages: u64) -> DirtyLimits {
        DirtyLimits {
            background_pages: memory_pages * BACKGROUND_DIRTY_PERCENT / 100,
            pages: (memory_pages * DIRTY_PERCENT / 100).max(1),
        }
    }

    /// Pages dirty or under writeback up to which nobody who dirties is slowed down.
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
