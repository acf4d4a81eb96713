//! Ranges of a file's pages: which are in memory, keeping them there, and evicting them.
//!
//! # Locking
//!
//! `Inode::locked` is taken with no other lock held but `Inode::resize` and those of folios, and
//! before the core's. A thread that holds it waits for nothing. Unlocking a page holds it from the
//! look for other locked ranges until the page is unlocked, so that a range that is locked
//! meanwhile locks the page again; locking a page that comes back holds it likewise.

use crate::error::Error;
use crate::fault::alone;
use crate::file::CachedFile;
use crate::inode::Inode;
use crate::piece::pages_of;
use crate::shared::Shared;
use mglru_core::readahead::Window;
use mglru_core::{Arrival, FolioId, Lookup, PAGE_BYTES, PagesInRange, Task};
use std::ops::Range;
use std::sync::atomic::Ordering;

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
    /// and they are dropped and no longer locked if the file is truncated before them. Pages that
    /// are dropped because another process changed the file are locked again when they come back:
    /// [`Self::invalidate`] reads them at once, and otherwise the next access does. Ranges may
    /// overlap.
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
            file.inode.locked_count.fetch_add(1, Ordering::Relaxed);
            locked.ranges.insert(number, (pages.clone(), self.task.clone()));
            number
        };
        let locked = LockedRange { file, number, pages };
        // An error drops `locked`, which unlocks the pages that are locked by then.
        self.read_all(&locked.pages, &self.task(), true)?;
        Ok(locked)
    }

    /// Reads the pages of locked ranges that were dropped.
    pub(crate) fn read_locked_again(&self) -> Result<(), Error> {
        if self.inode.locked_count.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let ranges: Vec<_> = self.inode.locked().ranges.values().cloned().collect();
        ranges.into_iter().try_for_each(|(pages, task)| {
            // `Shared::lock_inserted` locks them, as far as the range still exists.
            self.read_all(&pages, &Task { cpu: self.shared.cpu(), ..task }, false)
        })
    }

    /// Reads the pages that are missing. `lock`: locks all in memory.
    fn read_all(&self, pages: &Range<u64>, task: &Task, lock: bool) -> Result<(), Error> {
        let chunk = u64::from(self.inode.pages_ahead_max());
        for first in pages.clone().step_by(chunk as usize) {
            if first * PAGE_BYTES >= self.len() {
                // Truncated meanwhile.
                break;
            }
            let end = pages.end.min(first + chunk);
            let window = Window { first: first as u32, pages: (end - first) as u32, mark: None };
            self.shared.read_ahead(&self.inode, task, window, true);
            for index in first..end {
                self.read_one(index as u32, task, lock)?;
            }
        }
        Ok(())
    }

    /// Reads a page if it is missing. `lock`: locks it in memory.
    fn read_one(&self, index: u32, task: &Task, lock: bool) -> Result<(), Error> {
        let (shared, inode) = (&*self.shared, &self.inode);
        loop {
            match shared.core.lookup(&inode.mapping, index) {
                Lookup::Hit(_) if !lock => return Ok(()),
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
                Lookup::Pending(folio) => shared.wait_for_read(inode, folio)?,
                Lookup::Miss => {
                    if u64::from(index) * PAGE_BYTES >= self.len() {
                        // Truncated meanwhile.
                        return Ok(());
                    }
                    shared.fault(inode, task, index, alone(index), Arrival::default())?;
                }
            }
        }
    }

    /// Unlocks a page unless another locked range has it.
    fn unlock_page(&self, index: u32) {
        let core = &self.shared.core;
        loop {
            let locked = self.inode.locked();
            if locked.has(index) {
                return;
            }
            match core.lookup(&self.inode.mapping, index) {
                Lookup::Hit(hit) if core.try_get(&self.inode.mapping, index, &hit) => {
                    core.set_mlocked(hit.folio, false);
                    core.rescue(hit.folio);
                    core.put(&self.shared.host, hit.folio);
                    return;
                }
                Lookup::Hit(_) => {}
                Lookup::Pending(folio) => {
                    // The thread that reads the page may wait for the lock.
                    drop(locked);
                    self.shared.wait_for_content(folio);
                }
                Lookup::Miss => return,
            }
        }
    }
}

impl Shared {
    /// Locks those of the pages from `first` on in memory that a locked range has: the pages were
    /// dropped, and come back. The caller holds the locks of the folios, which it has inserted.
    pub(crate) fn lock_inserted(&self, inode: &Inode, first: u32, folios: &[FolioId]) {
        // A thread that locks a range later finds these pages pending, or locks them itself.
        if inode.locked_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let locked = inode.locked();
        for (index, &folio) in (first..=u32::MAX).zip(folios) {
            if locked.has(index) {
                self.core.set_mlocked(folio, true);
            }
        }
    }
}

/// Pages of a file that are locked in memory, until this is dropped. See [`CachedFile::lock`].
#[must_use = "dropped at once, it locks nothing"]
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
        self.file.inode.locked_count.fetch_sub(1, Ordering::Relaxed);
        drop(locked);
        // A sparse file may have many more pages than memory has.
        let (core, mapping) = (&self.file.shared.core, &self.file.inode.mapping);
        let mut from = self.pages.start;
        while let Some(index) = core.next_in_memory(mapping, from, self.pages.end) {
            self.file.unlock_page(index);
            from = u64::from(index) + 1;
        }
    }
}
