//! Ranges of a file's pages: which are in memory, keeping them there, and evicting them.
//!
//! # Locking
//!
//! `Inode::locked` is taken with no other lock held, and before the core's. Unlocking a page holds
//! it from the look for other locked ranges until the page is unlocked, so that a range that is
//! locked meanwhile locks the page again.

use crate::error::Error;
use crate::fault::alone;
use crate::file::CachedFile;
use crate::inode::Locked;
use mglru_core::readahead::Window;
use mglru_core::{Arrival, Lookup, PAGE_BYTES, PagesInRange};
use std::ops::Range;

/// Pages with at least one byte in a range of bytes.
fn pages_of(bytes: &Range<u64>) -> Range<u64> {
    let end = bytes.end.div_ceil(PAGE_BYTES).min(1 << 32);
    (bytes.start / PAGE_BYTES).min(end)..end
}

/// Pages that are wholly inside of a range of bytes, with the last page of a file of `len` bytes if
/// the range includes its end.
fn whole_pages_of(bytes: &Range<u64>, len: u64) -> Range<u64> {
    let end = if bytes.end >= len { len.div_ceil(PAGE_BYTES) } else { bytes.end / PAGE_BYTES };
    bytes.start.div_ceil(PAGE_BYTES).min(end)..end
}

impl CachedFile {
    /// Counts the pages of a range of bytes that are in memory, are dirty, or were evicted, as
    /// Linux's `cachestat` does. It counts no access. The result may be outdated when it is
    /// returned, unless the pages are locked ([`Self::lock`]).
    pub fn pages_in(&self, range: Range<u64>) -> PagesInRange {
        let Range { start, end } = pages_of(&range);
        self.shared.core.pages_in(&self.inode.mapping, start, end)
    }

    /// Tells for each page from byte `offset` on whether it is in memory, as `mincore` does:
    /// `resident[0]` is about the page with that byte. It counts no access. Pages that are being
    /// read are not in memory yet.
    pub fn resident(&self, offset: u64, resident: &mut [bool]) {
        for (index, resident) in (offset / PAGE_BYTES..).zip(resident) {
            let found = u32::try_from(index).ok().and_then(|index| self.glance(index));
            *resident = found.is_some_and(|seen| seen.is_readable());
        }
    }

    /// Evicts the pages that lie wholly in a range of bytes: writes dirty ones, waits for that, and
    /// drops all that are not mapped, lent, locked or in use. Returns how many pages of the range
    /// are in memory afterwards. [`crate::Advice::DontNeed`] does not wait.
    ///
    /// # Errors
    /// A page cannot be written; it stays in memory, dirty ([`Error::WriteBack`]). The pages that
    /// could be written are evicted.
    pub fn evict(&self, range: Range<u64>) -> Result<u64, Error> {
        let (shared, inode) = (&self.shared, &self.inode);
        let pages = whole_pages_of(&range, self.len());
        let Ok(first) = u32::try_from(pages.start) else { return Ok(0) };
        let errors = inode.error_count();
        shared.submit_dirty_in(inode, first, pages.end);
        inode.wait_for_transfers();
        shared.core.invalidate(&shared.host, &inode.mapping, first, pages.end, self.task().cpu);
        match inode.error_since(errors) {
            Some(error) => Err(error),
            None => Ok(shared.core.pages_in(&inode.mapping, pages.start, pages.end).cached),
        }
    }

    /// Reads the pages of a range of bytes that are missing and locks all in memory, as `mlock`
    /// does: reclaim never takes them until the returned value is dropped. The part of the range
    /// beyond the end of the file is ignored.
    ///
    /// Locked pages stay charged to their tenant. Their content can change, they are written back,
    /// and they are dropped if the file is truncated before them. Ranges may overlap.
    ///
    /// # Errors
    /// A page cannot be read, or no memory can be freed for it ([`Error::OutOfMemory`]), for
    /// example because the range is larger than the tenant's limit. Nothing stays locked then.
    pub fn lock(&self, range: Range<u64>) -> Result<LockedRange, Error> {
        let pages = pages_of(&(range.start..range.end.min(self.len())));
        let file = self.try_clone()?;
        let number = {
            let mut locked = file.inode.locked();
            let number = locked.next;
            locked.next += 1;
            locked.ranges.insert(number, pages.clone());
            number
        };
        let locked = LockedRange { file, number, pages };
        let chunk = u64::from(self.inode.pages_ahead_max());
        for first in locked.pages.clone().step_by(chunk as usize) {
            let end = locked.pages.end.min(first + chunk);
            let window = Window { first: first as u32, pages: (end - first) as u32, mark: None };
            self.shared.read_ahead(&self.inode, &self.task(), window);
            for index in first..end {
                // An error drops `locked`, which unlocks the pages before this one.
                locked.file.lock_page(index as u32)?;
            }
        }
        Ok(locked)
    }

    /// Reads a page if it is missing and locks it in memory.
    fn lock_page(&self, index: u32) -> Result<(), Error> {
        let (shared, inode) = (&*self.shared, &self.inode);
        loop {
            match shared.core.lookup(&inode.mapping, index) {
                Lookup::Hit(hit) => {
                    if !shared.core.try_get(&inode.mapping, index, &hit) {
                        continue;
                    }
                    shared.core.set_mlocked(hit.folio, true);
                    // With the reference the folio is still this page, unless it was truncated:
                    // then the bit is lost with the folio.
                    let stays = shared.core.is_there(&inode.mapping, index, &hit);
                    shared.core.put(&shared.host, hit.folio);
                    if stays {
                        return Ok(());
                    }
                }
                Lookup::Pending(folio) => shared.wait_for_content(folio),
                Lookup::Miss => {
                    if u64::from(index) * PAGE_BYTES >= self.len() {
                        // Truncated meanwhile.
                        return Ok(());
                    }
                    shared.fault(inode, &self.task(), index, alone(index), Arrival::default())?;
                }
            }
        }
    }

    /// Unlocks a page unless another locked range has it. The caller holds `Inode::locked`.
    fn unlock_page(&self, locked: &Locked, index: u32) {
        if locked.ranges.values().any(|pages| pages.contains(&u64::from(index))) {
            return;
        }
        let core = &self.shared.core;
        loop {
            match core.lookup(&self.inode.mapping, index) {
                Lookup::Hit(hit) if core.try_get(&self.inode.mapping, index, &hit) => {
                    core.set_mlocked(hit.folio, false);
                    core.rescue(hit.folio);
                    core.put(&self.shared.host, hit.folio);
                    return;
                }
                Lookup::Hit(_) => {}
                Lookup::Pending(folio) => self.shared.wait_for_content(folio),
                Lookup::Miss => return,
            }
        }
    }
}

/// Pages of a file that are locked in memory, until this is dropped. See [`CachedFile::lock`].
#[derive(Debug)]
pub struct LockedRange {
    file: CachedFile,
    number: u64,
    pages: Range<u64>,
}

impl LockedRange {
    /// The file.
    pub fn file(&self) -> &CachedFile {
        &self.file
    }

    /// The range, in bytes, extended to whole pages.
    pub fn range(&self) -> Range<u64> {
        self.pages.start * PAGE_BYTES..self.pages.end * PAGE_BYTES
    }
}

impl Drop for LockedRange {
    fn drop(&mut self) {
        let mut locked = self.file.inode.locked();
        locked.ranges.remove(&self.number);
        drop(locked);
        for index in self.pages.clone() {
            self.file.unlock_page(&self.file.inode.locked(), index as u32);
        }
    }
}
