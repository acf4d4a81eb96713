//! One access of a workload, as generators produce it and callers perform it.

/// A read or a write of consecutive bytes of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    /// First byte, counted from the beginning of the file.
    pub offset: u64,
    /// Length in bytes. Never 0.
    pub bytes: u32,
    /// Whether the access writes.
    pub write: bool,
}

impl Access {
    /// First byte after the access.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.bytes)
    }

    /// Numbers of the pages that the access touches, for pages of `page_bytes`.
    ///
    /// # Panics
    /// If `page_bytes` or the length of the access is 0.
    pub fn pages(&self, page_bytes: u32) -> std::ops::RangeInclusive<u64> {
        assert!(self.bytes > 0, "an access touches at least one byte");
        let page_bytes = u64::from(page_bytes);
        self.offset / page_bytes..=(self.end() - 1) / page_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_touches_every_page_that_it_overlaps() {
        let pages = |offset, bytes| Access { offset, bytes, write: false }.pages(4096);
        assert_eq!(pages(0, 4096), 0..=0);
        assert_eq!(pages(0, 4097), 0..=1);
        assert_eq!(pages(4095, 2), 0..=1);
        assert_eq!(pages(4096, 1), 1..=1);
        assert_eq!(pages(10_000, 10_000), 2..=4);
    }
}
