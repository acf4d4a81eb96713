//! Space of a file: length, holes and preallocation (`ftruncate`, `fallocate`), and writing without
//! a sync.
//!
//! A truncation or a hole may end inside of a page. Such a page is held while the system acts: no
//! thread can read or borrow it. It is zeroed once the system has agreed, and is as before if the
//! system refuses.
//!
//! # Locking
//!
//! A truncation and a hole hold `Inode::resize` exclusively and let no write-back start. Pages that
//! a guard lends are waited for without `resize`.

use crate::error::Error;
use crate::file::CachedFile;
use crate::inode::{Inode, LEN_MAX};
use crate::resize::Alone;
use crate::shared::Shared;
use mglru_core::{FolioId, LockAttempt, Lookup, PAGE_BYTES};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The bytes of a page that are cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    index: u32,
    in_page: Range<usize>,
}

/// A page of which a part is cut off.
enum Page {
    /// Locked, referenced, and announced to a writer: no thread can read or borrow it.
    Held(FolioId),
    /// A guard lends it. The caller has a reference.
    Lent(FolioId),
    /// It is not in memory.
    Missing,
}

/// Parts of pages, each with its folio if it is in memory, and the lock that keeps writers out. The
/// pages are as before when this is dropped, unless the parts were zeroed ([`Self::zero`]).
struct HeldParts<'a> {
    shared: &'a Shared,
    inode: &'a Inode,
    parts: Vec<(Part, Option<FolioId>)>,
    _alone: Alone<'a>,
}

impl HeldParts<'_> {
    /// Zeroes the parts, as they are on disk, also in pages that were read while the system acted.
    fn zero(&mut self) {
        for (part, folio) in std::mem::take(&mut self.parts) {
            match folio {
                Some(folio) => self.shared.let_page_go(self.inode, folio, Some(part.in_page)),
                None => self.shared.zero_late(self.inode, part),
            }
        }
    }
}

impl Drop for HeldParts<'_> {
    fn drop(&mut self) {
        let folios = self.parts.iter().filter_map(|(_, folio)| *folio);
        folios.for_each(|folio| self.shared.let_page_go(self.inode, folio, None));
    }
}

impl CachedFile {
    /// Whether the cache holds data that is not in the file yet: dirty pages, or pages that are
    /// being written.
    pub fn has_unwritten(&self) -> bool {
        self.shared.has_unwritten(&self.inode)
    }

    /// Number of dirty pages: those that no write has begun to bring to the file. Pages that
    /// threads dirty meanwhile may be missed.
    pub fn dirty_pages(&self) -> u64 {
        self.shared.core.dirty_pages(&self.inode.mapping) as u64
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

    /// Starts writing this file's dirty pages, and does not wait for the writes, only for room in
    /// the queue of the device, as Linux's `sync_file_range` with `SYNC_FILE_RANGE_WRITE` does. A
    /// page that cannot be written stays in memory, and each handle reports the error at its next
    /// sync.
    pub fn start_write_back(&self) {
        self.shared.submit_dirty(&self.inode);
    }

    /// Truncates the file to `len` bytes, or extends it with zeros. Pages beyond the end are
    /// dropped, including dirty ones.
    ///
    /// # Errors
    /// The handle is read-only, `len` is beyond 16 TiB, a guard of this thread lends the page in
    /// which the file will end, or the system refuses.
    pub fn truncate(&self, len: u64) -> Result<(), Error> {
        self.check_writable()?;
        if len > LEN_MAX {
            return Err(Error::TooLarge { path: self.path().to_owned(), end: len });
        }
        let file = self.inode.writable().expect("a writable handle opened it");
        let (shared, inode) = (&*self.shared, &self.inode);
        // The page in which the file will end, up to its end.
        let tail = |before: u64| if len < before { tail_from(len).into_iter().collect() } else { Vec::new() };
        let mut held = shared.hold_parts(inode, tail)?;
        let before = inode.len();
        // Write-back depends on the length: none may start with a length that the file system can
        // still refuse, or end after the truncation.
        let transfers = inode.hold_transfers();
        // No reader sees a length that the system refuses, or zeros from a file that is shorter
        // than its length.
        inode.being_cut.store(true, Ordering::SeqCst);
        let cut = file.set_len(len);
        if cut.is_ok() {
            inode.set_disk_len(len);
            inode.set_len(len);
        }
        inode.being_cut.store(false, Ordering::SeqCst);
        drop(transfers);
        cut.map_err(|source| inode.error("truncate", source))?;
        if len < before {
            // Not before the file is truncated: a read in between would bring the cut-off data
            // back.
            shared.drop_pages(inode, len.div_ceil(PAGE_BYTES));
            held.zero();
            drop(held);
            shared.core.return_frames(&shared.host);
        }
        Ok(())
    }

    /// Turns the bytes in `range` into a hole: they read as zero and take no space. The length of
    /// the file stays. Other threads may see a part of the hole before the rest.
    ///
    /// # Errors
    /// The handle is read-only, the range is empty (`EINVAL`), the file system has no holes
    /// (`EOPNOTSUPP`) or otherwise refuses, or a guard of this thread lends a page at an edge of
    /// the hole. The file is then as before.
    pub fn punch_hole(&self, range: Range<u64>) -> Result<(), Error> {
        self.check_writable()?;
        let (shared, inode) = (&*self.shared, &self.inode);
        let failed = |source| inode.error("punch a hole into", source);
        if range.is_empty() {
            return Err(failed(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        let file = inode.writable().expect("a writable handle opened it");
        // Behind the end of the file there are no pages.
        let parts =
            |len| parts_of(range.clone()).filter(move |part| u64::from(part.index) * PAGE_BYTES < len);
        let mut held = shared.hold_parts(inode, |len| parts(len).collect())?;
        let end_of_file = inode.len().max(inode.disk_len()).next_multiple_of(PAGE_BYTES);
        // Further than any file system reaches, which refuse that: up to the end of the file.
        let range = if range.end > LEN_MAX { range.start..end_of_file } else { range };
        if range.is_empty() {
            return Ok(());
        }
        // Held until the pages are gone or zeroed: write-back of one would fill the hole again.
        let transfers = inode.hold_transfers();
        let len = inode.len();
        // The last dirty page, which would extend the file, may go with the hole. If another
        // process has extended the file since, it must not be cut.
        if inode.disk_len() < len && inode.len_on_disk()? < len {
            file.set_len(len).map_err(|source| inode.error("extend", source))?;
            inode.set_disk_len(len);
        }
        match file.punch_hole(range.clone()) {
            // Some file systems have no file that long, and none of it is behind the end.
            Err(error) if error.raw_os_error() == Some(libc::EFBIG) && range.end > end_of_file => {
                if range.start < end_of_file {
                    file.punch_hole(range.start..end_of_file).map_err(failed)?;
                }
            }
            punched => punched.map_err(failed)?,
        }
        let whole = range.start.div_ceil(PAGE_BYTES)..range.end / PAGE_BYTES;
        if let Ok(first) = u32::try_from(whole.start)
            && whole.start < whole.end
        {
            // A page read meanwhile is dropped too: it may have been read before the hole was made.
            while let Some(busy) = shared.core.truncate(&shared.host, &inode.mapping, first, whole.end) {
                shared.wait_for_folio(busy);
            }
        }
        // Before that, write-back would write the old bytes, and their page would count as clean.
        held.zero();
        drop(transfers);
        drop(held);
        shared.core.return_frames(&shared.host);
        Ok(())
    }

    /// Reserves space for the bytes in `range`, so that writing them cannot fail for lack of space.
    /// Without `keep_len`, the file grows to the end of the range.
    ///
    /// # Errors
    /// The handle is read-only, the range is empty (`EINVAL`), its end is beyond 16 TiB, or the
    /// file system has too little space or cannot reserve any. Where space runs out, the file may
    /// have grown by a part of the range, as on ext4.
    pub fn allocate(&self, range: Range<u64>, keep_len: bool) -> Result<(), Error> {
        self.check_writable()?;
        if range.end > LEN_MAX {
            return Err(Error::TooLarge { path: self.path().to_owned(), end: range.end });
        }
        let inode = &self.inode;
        let file = inode.writable().expect("a writable handle opened it");
        let _alone = inode.resize.alone(&self.shared.writers);
        inode.adopt_len(&self.shared, true)?;
        // As in a truncation: write-back depends on the length.
        let transfers = inode.hold_transfers();
        let allocated = file.allocate(range.clone(), keep_len);
        if allocated.is_ok() && !keep_len {
            inode.disk_len_reached(range.end);
            inode.grow_to(range.end);
        }
        drop(transfers);
        if allocated.is_err() {
            // By how much the file has grown, if at all. If the system does not say, a later read
            // or sync asks again.
            let _ = inode.adopt_len(&self.shared, true);
        }
        allocated.map_err(|source| inode.error("reserve space for", source))
    }
}

impl Shared {
    /// Locks all others out, and the pages that are in memory of the parts that `choose` names for
    /// a file of this length. Adopts a change of the length by another process before: the caller
    /// changes the file, and later the other's change could not be seen any more.
    ///
    /// # Errors
    /// A guard of this thread lends one of them, or the system does not tell the length.
    fn hold_parts<'a>(
        &'a self,
        inode: &'a Arc<Inode>,
        choose: impl Fn(u64) -> Vec<Part>,
    ) -> Result<HeldParts<'a>, Error> {
        'lent: loop {
            let alone = inode.resize.alone(&self.writers);
            inode.adopt_len(self, true)?;
            let mut held = HeldParts { shared: self, inode, parts: Vec::new(), _alone: alone };
            for part in choose(inode.len()) {
                match self.hold_page(inode, part.index) {
                    Page::Held(folio) => held.parts.push((part, Some(folio))),
                    Page::Missing => held.parts.push((part, None)),
                    Page::Lent(folio) => {
                        // Release `resize` before waiting: the thread with the guard may need it to
                        // write another page.
                        drop(held);
                        self.put_when_taken_back(inode, part.index, folio)?;
                        continue 'lent;
                    }
                }
            }
            return Ok(held);
        }
    }

    /// Locks a page if it is in memory. The caller holds `resize` exclusively.
    fn hold_page(&self, inode: &Inode, index: u32) -> Page {
        loop {
            match self.core.lookup(&inode.mapping, index) {
                Lookup::Miss => return Page::Missing,
                Lookup::Pending(folio) => self.wait_while(folio, |flags| flags.locked()),
                Lookup::Hit(hit) => match self.core.try_lock(&self.host, &inode.mapping, index, &hit) {
                    LockAttempt::Gone => {}
                    LockAttempt::Busy => self.wait_while(hit.folio, |flags| flags.locked()),
                    LockAttempt::Locked if self.core.begin_content(&inode.mapping, hit.folio) => {
                        return Page::Held(hit.folio);
                    }
                    LockAttempt::Locked => {
                        self.core.unlock(&self.host, hit.folio);
                        return Page::Lent(hit.folio);
                    }
                },
            }
        }
    }

    /// Unlocks a page that [`Self::hold_page`] locked. `zeroed`: these bytes are zeroed before;
    /// otherwise the page is as before.
    fn let_page_go(&self, inode: &Inode, folio: FolioId, zeroed: Option<Range<usize>>) {
        match zeroed {
            Some(in_page) => {
                self.frames.zero(folio.0, in_page);
                self.core.end_cut(&inode.mapping, folio);
            }
            None => self.core.cancel_content(&self.host, &inode.mapping, folio),
        }
        self.core.unlock(&self.host, folio);
        self.core.put(&self.host, folio);
    }

    /// Zeroes a part of a page that may have been read before the part was cut off. The page is
    /// clean, because the caller holds `resize` exclusively: if a guard lends it, it is dropped
    /// instead.
    fn zero_late(&self, inode: &Inode, part: Part) {
        match self.hold_page(inode, part.index) {
            Page::Missing => {}
            Page::Held(folio) => self.let_page_go(inode, folio, Some(part.in_page)),
            Page::Lent(folio) => {
                self.core.put(&self.host, folio);
                // No other page: the caller may hold that of the other part.
                let page = u64::from(part.index);
                self.drop_clean_pages(inode, page..page + 1);
            }
        }
    }
}

/// The rest of the page in which a file of `len` bytes ends.
fn tail_from(len: u64) -> Option<Part> {
    parts_of(len..len.next_multiple_of(PAGE_BYTES)).next()
}

/// The parts of a range that are parts of pages, at most one at each end.
fn parts_of(range: Range<u64>) -> impl Iterator<Item = Part> {
    let first = range.start.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
    let first = first.min(range.end.max(range.start));
    let last = (range.end / PAGE_BYTES * PAGE_BYTES).max(first);
    [range.start..first, last..range.end].into_iter().filter_map(|edge| {
        let index = u32::try_from(edge.start / PAGE_BYTES).ok().filter(|_| !edge.is_empty())?;
        let start = (edge.start % PAGE_BYTES) as usize;
        Some(Part { index, in_page: start..start + (edge.end - edge.start) as usize })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_what_whole_pages_leave() {
        let of = |start, end| {
            let parts = parts_of(Range { start, end });
            parts.map(|part| (part.index, part.in_page.start, part.in_page.end)).collect::<Vec<_>>()
        };
        assert_eq!(of(0, 4096), []);
        assert_eq!(of(1, 4096), [(0, 1, 4096)]);
        assert_eq!(of(0, 4095), [(0, 0, 4095)]);
        assert_eq!(of(10, 20), [(0, 10, 20)]);
        assert_eq!(of(4000, 8200), [(0, 4000, 4096), (2, 0, 8)]);
        assert_eq!(of(4000, 4196), [(0, 4000, 4096), (1, 0, 100)]);
        assert_eq!(of(9000, 9000), []);
        // The end of the file is before the range.
        assert_eq!(of(9000, 10), []);
        assert_eq!(of(u64::MAX - 1, u64::MAX), []);
    }
}
