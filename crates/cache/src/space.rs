//! Space of a file: holes and preallocation (`fallocate`), and writing without a sync.
//!
//! # Locking
//!
//! As a truncation, a hole holds `Inode::resize` exclusively and lets no write-back start. Pages
//! that a guard lends at an edge of the hole are waited for without `resize`.

use crate::error::Error;
use crate::file::{CachedFile, Written};
use crate::inode::LEN_MAX;
use crate::piece::pieces;
use mglru_core::PAGE_BYTES;
use std::ops::Range;
use std::sync::PoisonError;

/// Zeros for the parts of pages at the edges of a hole.
static ZEROS: [u8; PAGE_BYTES as usize] = [0; PAGE_BYTES as usize];

impl CachedFile {
    /// Whether the cache holds data that is not in the file yet: dirty pages, or pages that are
    /// being written.
    pub fn has_unwritten(&self) -> bool {
        self.shared.has_unwritten(&self.inode)
    }

    /// Writes this file's dirty pages and waits for the writes. The device may still hold them in
    /// its own cache; [`Self::sync_data`] also syncs the device.
    ///
    /// # Errors
    /// A page could not be written now ([`Error::WriteBack`]). It stays in memory, and each handle
    /// still reports the error at its next sync.
    pub fn write_back(&self) -> Result<(), Error> {
        self.shared.write_back(&self.inode)
    }

    /// Turns the bytes in `range` into a hole: they read as zero and take no space. The length of
    /// the file stays. Other threads may see a part of the hole before the rest.
    ///
    /// # Errors
    /// The handle is read-only, the range is empty, the file system has no holes (`EOPNOTSUPP`), or
    /// a page at an edge of the hole cannot be read.
    pub fn punch_hole(&self, range: Range<u64>) -> Result<(), Error> {
        self.check_writable()?;
        let (shared, inode) = (&*self.shared, &self.inode);
        let file = inode.writable().expect("a writable handle opened it");
        let task = self.task();
        shared.pause_dirtying(task.memcg)?;
        let _alone = 'locked: loop {
            let alone = inode.resize.write().unwrap_or_else(PoisonError::into_inner);
            // Behind the end of the file the page is zero already.
            let end = range.end.min(inode.len());
            for edge in edges(range.start..end) {
                for piece in pieces(edge.start, (edge.end - edge.start) as usize) {
                    let zeros = &ZEROS[..piece.in_page.len()];
                    if let Written::Lent(folio) = shared.write_page(inode, &task, &piece, zeros, false)? {
                        drop(alone);
                        shared.put_when_taken_back(inode, piece.index, folio)?;
                        continue 'locked;
                    }
                }
            }
            break alone;
        };
        // Held until the pages are gone: write-back of one of them would fill the hole again.
        let held = inode.hold_transfers();
        file.punch_hole(range.clone()).map_err(|source| inode.error("punch a hole into", source))?;
        let whole = range.start.div_ceil(PAGE_BYTES)..range.end / PAGE_BYTES;
        if let Ok(first) = u32::try_from(whole.start)
            && whole.start < whole.end
        {
            // A page read meanwhile is dropped too: it may have been read before the hole was made.
            while let Some(busy) = shared.core.truncate(&shared.host, &inode.mapping, first, whole.end) {
                shared.wait_for_folio(busy);
            }
        }
        let len = inode.len();
        if inode.disk_len() < len {
            // The last dirty page, which would have extended the file, may be gone.
            file.set_len(len).map_err(|source| inode.error("extend", source))?;
            inode.set_disk_len(len);
        }
        drop(held);
        shared.core.return_frames(&shared.host);
        Ok(())
    }

    /// Reserves space for the bytes in `range`, so that writing them cannot fail for lack of space.
    /// Without `keep_len`, the file grows to the end of the range.
    ///
    /// # Errors
    /// The handle is read-only, the end is beyond 16 TiB, or the file system has too little space
    /// or cannot reserve any.
    pub fn allocate(&self, range: Range<u64>, keep_len: bool) -> Result<(), Error> {
        self.check_writable()?;
        if range.end > LEN_MAX {
            return Err(Error::TooLarge { path: self.path().to_owned(), end: range.end });
        }
        let inode = &self.inode;
        let file = inode.writable().expect("a writable handle opened it");
        let _alone = inode.resize.write().unwrap_or_else(PoisonError::into_inner);
        // As in a truncation: write-back depends on the length.
        let _held = inode.hold_transfers();
        file.allocate(range.clone(), keep_len).map_err(|source| inode.error("reserve space for", source))?;
        if !keep_len {
            inode.disk_len_reached(range.end);
            inode.grow_to(range.end);
        }
        Ok(())
    }
}

/// The parts of a range that are parts of pages, at most one at each end.
fn edges(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let first = range.start.next_multiple_of(PAGE_BYTES).min(range.end.max(range.start));
    let last = (range.end / PAGE_BYTES * PAGE_BYTES).max(first);
    [range.start..first, last..range.end].into_iter().filter(|edge| edge.start < edge.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_what_whole_pages_leave() {
        let of = |start, end| edges(Range { start, end }).map(|r| (r.start, r.end)).collect::<Vec<_>>();
        assert_eq!(of(0, 4096), []);
        assert_eq!(of(1, 4096), [(1, 4096)]);
        assert_eq!(of(0, 4095), [(0, 4095)]);
        assert_eq!(of(10, 20), [(10, 20)]);
        assert_eq!(of(4000, 8200), [(4000, 4096), (8192, 8200)]);
        assert_eq!(of(4000, 4196), [(4000, 4096), (4096, 4196)]);
        assert_eq!(of(9000, 9000), []);
        // The end of the file is before the range.
        assert_eq!(of(9000, 10), []);
    }
}
