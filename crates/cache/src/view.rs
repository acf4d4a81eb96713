//! Optimistic reads: many loads from one page with one check, and a cursor that keeps its page.
//!
//! [`Map::read_page`] hands a [`PageView`] to a closure and repeats the closure if the page changed
//! meanwhile. That is the optimistic latch of vmcache (Leis et al., "Virtual-Memory Assisted Buffer
//! Management", SIGMOD 2023): a reader writes nothing, so readers of the root of a tree do not
//! disturb each other. A [`PageCursor`] checks after each load, but finds the slot only once per
//! page.
//!
//! A view lends no references, because a writer may change the bytes at any moment: it copies them
//! out, as [`Map::load`] does. Values from a page that was changing do not leave the closure's last
//! run. During a run they may be torn, so a view answers `None` for an offset outside of the page.

use crate::error::Error;
use crate::frames::Frames;
use crate::guard::PageGuard;
use crate::mapped::Map;
use mglru_core::mapping::SettledPage;
use mglru_core::{FolioId, PAGE_BYTES};
use std::fmt;
use zerocopy::{FromBytes, IntoBytes};

/// Runs of a closure over a page that changes each time, before a guard keeps writers away.
const OPTIMISTIC_RUNS: usize = 8;

/// The bytes of a page that other threads may change. See [`Map::read_page`].
pub struct PageView<'a> {
    frames: &'a Frames,
    folio: FolioId,
    bytes: usize,
}

impl PageView<'_> {
    /// The number of bytes: 4,096, or fewer in the page with the end of the file.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the page has no bytes; never true for a page of a file.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Loads a value of a fixed size from `offset` in the page. `None`: it reaches beyond the
    /// page's bytes. An offset that was itself read from the page can be wrong while the page
    /// changes; return anything then, because the closure runs again.
    #[inline(always)]
    pub fn load_value<T: FromBytes + IntoBytes>(&self, offset: usize) -> Option<T> {
        let is_inside = size_of::<T>() <= self.bytes && offset <= self.bytes - size_of::<T>();
        is_inside.then(|| self.frames.load(self.folio.0, offset))
    }

    /// Copies `out.len()` bytes from `offset` in the page. `None`: they reach beyond the page's
    /// bytes.
    #[inline]
    pub fn load(&self, offset: usize, out: &mut [u8]) -> Option<()> {
        let is_inside = out.len() <= self.bytes && offset <= self.bytes - out.len();
        is_inside.then(|| self.frames.copy_out(self.folio.0, offset, out))
    }
}

impl fmt::Debug for PageView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageView").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Map {
    /// Reads page `index` with a closure that may load from it many times, such as the binary
    /// search in a node of a tree, with one check for all. The closure runs again if the page
    /// changed meanwhile, so it must have no effects but its result, which is of an unchanged page.
    /// After a few runs the page is lent to this thread ([`Self::page`]), and writers wait.
    ///
    /// # Errors
    /// As for [`Self::page`].
    #[inline]
    pub fn read_page<R>(&self, index: u32, mut read: impl FnMut(&PageView<'_>) -> R) -> Result<R, Error> {
        if let Some(seen) = self.range.settled(index.into()) {
            let view = self.view(seen.folio(), PAGE_BYTES as usize);
            let result = read(&view);
            if seen.still() {
                return Ok(result);
            }
        }
        self.read_page_slowly(index, read)
    }

    fn view(&self, folio: FolioId, bytes: usize) -> PageView<'_> {
        PageView { frames: &self.frames, folio, bytes }
    }

    /// [`Self::read_page`] for a page that is not settled or was changed meanwhile.
    #[inline(never)]
    fn read_page_slowly<R>(&self, index: u32, mut read: impl FnMut(&PageView<'_>) -> R) -> Result<R, Error> {
        let file = &self.file;
        for _ in 0..OPTIMISTIC_RUNS {
            self.bytes_of_page(index)?;
            let hit = self.find(index)?;
            // The file may have become shorter. See `CachedFile::has_bytes`.
            let bytes = self.bytes_of_page(index)?;
            let result = read(&self.view(hit.folio, bytes));
            if file.shared.core.confirm(&file.inode.mapping, index, &hit) {
                return Ok(result);
            }
        }
        let (folio, bytes) = self.lend(index)?;
        let _guard = PageGuard::new(&file.shared, folio, bytes);
        Ok(read(&self.view(folio, bytes)))
    }

    /// A cursor for loads that often stay in one page.
    pub fn cursor(&self) -> PageCursor<'_> {
        PageCursor { map: self, page: 0, seen: None }
    }
}

/// Loads from a map, faster as long as they stay in one page. See [`Map::cursor`].
#[derive(Clone)]
pub struct PageCursor<'a> {
    map: &'a Map,
    /// The page of `seen`.
    page: u64,
    seen: Option<SettledPage<'a>>,
}

impl<'a> PageCursor<'a> {
    /// Loads a value as [`Map::load_value`] does.
    ///
    /// # Errors
    /// As for [`Map::load`].
    #[inline(always)]
    pub fn load_value<T: FromBytes + IntoBytes>(&mut self, offset: u64) -> Result<T, Error> {
        let in_page = (offset % PAGE_BYTES) as usize;
        if offset / PAGE_BYTES == self.page
            && let Some(seen) = &self.seen
            && in_page + size_of::<T>() <= PAGE_BYTES as usize
        {
            let value = self.map.frames.load(seen.folio().0, in_page);
            if seen.still() {
                return Ok(value);
            }
        }
        self.turn_to(offset / PAGE_BYTES);
        self.map.load_value(offset)
    }

    /// Keeps another page, if a load from it would change nothing.
    #[inline(always)]
    fn turn_to(&mut self, page: u64) {
        self.page = page;
        self.seen = self.map.range.settled(page);
    }

    /// The map.
    pub fn map(&self) -> &'a Map {
        self.map
    }
}

impl fmt::Debug for PageCursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageCursor").field("page", &self.page).finish_non_exhaustive()
    }
}
