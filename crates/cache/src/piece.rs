//! Requests split into pages, and the pages of a range.

use mglru_core::PAGE_BYTES;
use std::ops::Range;

/// The part of a request that lies in one page.
pub(crate) struct Piece {
    pub(crate) index: u32,
    pub(crate) in_page: Range<usize>,
    pub(crate) in_buffer: Range<usize>,
}

impl Piece {
    /// Offset of its page in the file, in bytes.
    pub(crate) fn start(&self) -> u64 {
        u64::from(self.index) * PAGE_BYTES
    }

    /// Offset of its end in the file, in bytes.
    pub(crate) fn end(&self) -> u64 {
        self.start() + self.in_page.end as u64
    }
}

/// Splits the request of `len` bytes at `offset` into pages.
pub(crate) fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let from = (at % PAGE_BYTES) as usize;
        let bytes = (len - done).min(PAGE_BYTES as usize - from);
        let piece = Piece {
            index: (at / PAGE_BYTES) as u32,
            in_page: from..from + bytes,
            in_buffer: done..done + bytes,
        };
        done += bytes;
        (bytes > 0).then_some(piece)
    })
}

/// Pages with at least one byte in a range of bytes.
pub(crate) fn pages_of(bytes: &Range<u64>) -> Range<u64> {
    let first = (bytes.start / PAGE_BYTES).min(1 << 32);
    // A range inside of a page that ends before it begins, or there, has no byte of that page.
    let end = if bytes.is_empty() { first } else { bytes.end.div_ceil(PAGE_BYTES).min(1 << 32) };
    first..end
}
