//! Mapped access: loads and stores that set an accessed bit instead of counting, and guards that
//! lend a page's bytes.
//!
//! The page-table entry is part of the page's slot (see `mglru_core::mapping`). A repeated access
//! finds the bits set and writes nothing. The kernel's fault-around ([`mglru_core::readahead`])
//! would save no faults here: a load that finds the bits clear sets them in the word it has just
//! read.
//!
//! # Guards
//!
//! A [`PageGuard`] lends `&[u8]`. While it lives, the frame is not reused, and no thread writes the
//! page: guards are counted in the folio's state word, so that a writer sees in the step with which
//! it begins whether there is one. A writer that waits for guards holds no lock: the holder of a
//! guard can read the page, lend it again, and write other pages.
//!
//! A lent page leaves its mapping only if the file is truncated before it, or if another process
//! changed the file. The guard then keeps the old bytes.

use crate::error::Error;
use crate::fault::alone;
use crate::file::{Access, CachedFile, LOOKS_MAX};
use crate::frames::{Frames, use_huge_pages, zeroed_slots};
use crate::guard::{OwnedPageGuard, PageGuard};
use crate::piece::pieces;
use crate::tenant::Tenant;
use mglru_core::folio::NotLent;
use mglru_core::mapping::{Glance, SettledPage, SlotRange};
use mglru_core::readahead::Window;
use mglru_core::{Arrival, FolioId, Hit, Lookup, MemcgId, PAGE_BYTES};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// Accesses of a batch in progress together: more than the cache misses that one core can have
/// outstanding (16).
const TOGETHER: usize = 32;

/// Expected access pattern of a map (`madvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapAdvice {
    /// Accesses protect pages.
    Normal,
    /// Accesses do not protect pages, for example because they are sequential or random.
    NoRecency,
}

/// A file mapped from its beginning. The map's length follows the length of the file.
pub struct Map {
    pub(crate) file: CachedFile,
    /// The slots of the file's first pages: of all that it had when it was first mapped, or of
    /// none.
    pub(crate) range: Arc<SlotRange>,
    /// The cache's frames, kept here to save a pointer dereference per load.
    pub(crate) frames: Arc<Frames>,
}

impl CachedFile {
    /// Maps the file. Accesses through the map set accessed bits instead of counting hits.
    ///
    /// # Errors
    /// As [`Self::try_clone`].
    pub fn map(&self) -> Result<Map, Error> {
        Ok(Map::new(self.try_clone()?))
    }
}

/// The range of slots of a file that is being mapped; without pages if it cannot pay for one.
fn range_of(file: &CachedFile) -> Arc<SlotRange> {
    let mapping = &file.inode.mapping;
    if mapping.range().is_none() {
        give_range(file);
    }
    mapping.range().cloned().unwrap_or_else(|| Arc::new(SlotRange::new(Box::default())))
}

fn give_range(file: &CachedFile) {
    let shared = &*file.shared;
    let pages = file.len().div_ceil(PAGE_BYTES);
    let bytes = SlotRange::bytes(pages);
    if pages == 0 || !shared.slot_charges.reserve(bytes) {
        return;
    }
    let range = shared.charge_metadata(&file.task(), bytes).ok().and_then(|charge| {
        let slots = || zeroed_slots(SlotRange::slots(pages) as usize);
        shared.slot_charges.settle(&file.inode.mapping, || charge.keep(), slots)
    });
    match range {
        Some(range) if shared.frames.huge_pages() => use_huge_pages(range.addresses()),
        Some(_) => {}
        None => shared.slot_charges.give_back(bytes),
    }
}

impl Map {
    pub(crate) fn new(file: CachedFile) -> Map {
        file.tenant.join(&file.shared.core);
        let map = Map { frames: file.shared.frames.clone(), range: range_of(&file), file };
        let mut maps = map.file.inode.maps();
        *maps.entry(map.file.task.memcg).or_default() += 1;
        map.cover(map.file.len());
        drop(maps);
        map
    }

    /// Extends the page tables to cover the file up to `len`.
    fn cover(&self, len: u64) {
        let file = &self.file;
        file.shared.core.map(&file.task, &file.inode.mapping, len.div_ceil(PAGE_BYTES));
    }

    /// Charges pages that this map brings in from now on to `tenant`. Cached pages stay charged as
    /// they are.
    ///
    /// # Errors
    /// The tenant belongs to another cache.
    pub fn move_to(&mut self, tenant: &Tenant) -> Result<(), Error> {
        let inode = self.file.inode.clone();
        let from = self.file.task.clone();
        let mut maps = inode.maps();
        self.file.move_to(tenant)?;
        let core = &self.file.shared.core;
        tenant.state().join(core);
        let to = &self.file.task;
        *maps.entry(to.memcg).or_default() += 1;
        if is_last(&mut maps, from.memcg) {
            core.move_mapping(&from, to, &inode.mapping);
        } else {
            core.map(to, &inode.mapping, inode.mapping.mapped_pages());
        }
        Ok(())
    }

    /// Length of the file, in bytes.
    pub fn len(&self) -> u64 {
        self.file.len()
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets whether accesses through maps of this file protect its pages.
    pub fn advise(&self, advice: MapAdvice) {
        self.file.inode.mapping.set_recency(advice == MapAdvice::Normal);
    }

    /// Checks that the range lies within the file and returns the file's length.
    #[inline]
    fn check(&self, offset: u64, bytes: usize) -> Result<u64, Error> {
        let end = offset.saturating_add(bytes as u64);
        let len = self.file.len();
        if end > len {
            return Err(Error::BeyondEnd { path: self.file.path().to_owned(), end, len });
        }
        if len > self.file.inode.mapping.mapped_pages() * PAGE_BYTES {
            self.cover(len);
        }
        Ok(len)
    }

    /// How many bytes of a page are in the file; at least one.
    pub(crate) fn bytes_of_page(&self, index: u32) -> Result<usize, Error> {
        let start = u64::from(index) * PAGE_BYTES;
        Ok((self.check(start, 1)? - start).min(PAGE_BYTES) as usize)
    }

    /// The page of a load that lies within one page of the range, if the load would change nothing:
    /// no accessed bit is to be set. Such a page lies wholly inside the file.
    #[inline(always)]
    fn settled(&self, offset: u64, bytes: usize) -> Option<SettledPage<'_>> {
        let in_page = (offset % PAGE_BYTES) as usize;
        if bytes <= PAGE_BYTES as usize && in_page <= PAGE_BYTES as usize - bytes {
            return self.range.settled(offset / PAGE_BYTES);
        }
        None
    }

    /// Loads a value of a fixed size from `offset`, such as a `u64` or a header that derives
    /// zerocopy's traits. The value need not be aligned in the file. This is the fastest access.
    ///
    /// # Errors
    /// As for [`Self::load`].
    #[inline(always)]
    pub fn load_value<T: FromBytes + IntoBytes>(&self, offset: u64) -> Result<T, Error> {
        if let Some(seen) = self.settled(offset, size_of::<T>()) {
            let value = self.frames.load(seen.folio().0, (offset % PAGE_BYTES) as usize);
            if seen.still() {
                return Ok(value);
            }
        }
        self.load_value_pooled(offset)
    }

    /// [`Self::load_value`] outside of the range, and for pages with accessed bits to be set.
    #[inline(never)]
    fn load_value_pooled<T: FromBytes + IntoBytes>(&self, offset: u64) -> Result<T, Error> {
        let mut value = T::new_zeroed();
        self.load_pooled(offset, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Loads `out.len()` bytes from `offset`. Bytes within one page are consistent with each other.
    ///
    /// # Errors
    /// The range reaches beyond the end, a page cannot be read, or no memory can be freed for it.
    #[inline(always)]
    pub fn load(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        if let Some(seen) = self.settled(offset, out.len()) {
            self.frames.copy_out(seen.folio().0, (offset % PAGE_BYTES) as usize, out);
            if seen.still() {
                return Ok(());
            }
        }
        self.load_pooled(offset, out)
    }

    /// [`Self::load`] outside of the range, and for pages with accessed bits to be set.
    fn load_pooled(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let in_page = (offset % PAGE_BYTES) as usize;
        // A page whose entry is young is already covered by the page tables.
        if in_page + out.len() <= PAGE_BYTES as usize
            && offset.checked_add(out.len() as u64).is_some_and(|end| end <= self.file.len())
            && let Some(seen) = self.file.young_glance((offset / PAGE_BYTES) as u32)
            && self.file.has_bytes((offset / PAGE_BYTES) as u32, in_page + out.len())
        {
            self.frames.copy_out(seen.folio().0, in_page, out);
            if seen.still() {
                return Ok(());
            }
        }
        self.load_pieces(offset, out)
    }

    /// Loads `N` bytes from each of `offsets`, as [`Self::load`] does for one. Random accesses are
    /// several times as fast this way because their cache misses overlap ([book: hit-path]).
    ///
    /// # Errors
    /// As for [`Self::load`], of the first load that fails; the content of `out` is then
    /// unspecified.
    ///
    /// # Panics
    /// If `out` and `offsets` differ in length.
    pub fn load_many<const N: usize>(&self, offsets: &[u64], out: &mut [[u8; N]]) -> Result<(), Error> {
        assert_eq!(offsets.len(), out.len(), "a place for every offset");
        for (offsets, out) in offsets.chunks(TOGETHER).zip(out.chunks_mut(TOGETHER)) {
            self.load_together(offsets, out)?;
        }
        Ok(())
    }

    fn load_together<const N: usize>(&self, offsets: &[u64], out: &mut [[u8; N]]) -> Result<(), Error> {
        if self.range.addresses().is_empty() {
            let look = |offset: u64| {
                let (page, end) = (offset / PAGE_BYTES, (offset % PAGE_BYTES) as usize + N);
                let index = u32::try_from(page).ok().filter(|_| end <= PAGE_BYTES as usize)?;
                self.file.young_glance(index).filter(|_| self.file.has_bytes(index, end))
            };
            return self.load_seen(offsets, out, look, Glance::folio, Glance::still);
        }
        let look = |offset: u64| self.settled(offset, N);
        self.load_seen(offsets, out, look, SettledPage::folio, SettledPage::still)
    }

    /// Loads at most [`TOGETHER`] parts: looks at all slots, then copies all bytes, then checks all
    /// versions.
    #[inline(always)]
    fn load_seen<S, const N: usize>(
        &self,
        offsets: &[u64],
        out: &mut [[u8; N]],
        look: impl Fn(u64) -> Option<S>,
        folio: impl Fn(&S) -> FolioId,
        still: impl Fn(&S) -> bool,
    ) -> Result<(), Error> {
        let mut seen = [const { None }; TOGETHER];
        for (seen, &offset) in seen.iter_mut().zip(offsets) {
            *seen = look(offset);
        }
        for ((seen, &offset), out) in seen.iter().zip(offsets).zip(&mut *out) {
            if let Some(seen) = seen {
                self.frames.copy_out(folio(seen).0, (offset % PAGE_BYTES) as usize, out);
            }
        }
        for ((seen, &offset), out) in seen.iter().zip(offsets).zip(out) {
            if !seen.as_ref().is_some_and(&still) {
                self.load_pooled(offset, out)?;
            }
        }
        Ok(())
    }

    /// [`Self::load`] for several pages, and for a page that is missing or has no young entry.
    #[cold]
    fn load_pieces(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.check(offset, out.len())?;
        for piece in pieces(offset, out.len()) {
            let out = &mut out[piece.in_buffer.clone()];
            let shared = &*self.file.shared;
            loop {
                let hit = self.find(piece.index)?;
                // The file may have become shorter. See `CachedFile::has_bytes`.
                self.check(piece.start(), piece.in_page.end)?;
                shared.frames.copy_out(hit.folio.0, piece.in_page.start, out);
                if shared.core.confirm(&self.file.inode.mapping, piece.index, &hit) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Stores `bytes` at `offset`, within the file.
    ///
    /// # Errors
    /// The handle is read-only; otherwise as for [`Self::load`] and [`CachedFile::write_at`].
    pub fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.file.check_writable()?;
        self.check(offset, bytes.len())?;
        for piece in pieces(offset, bytes.len()) {
            self.file.write_piece(&piece, &bytes[piece.in_buffer.clone()], Access::Map)?;
        }
        Ok(())
    }

    /// Lends a page. The guard keeps it in memory and unchanged. Other threads that write to the
    /// page wait until the guard is dropped; on the guard's own thread such a write fails with
    /// [`Error::OwnGuard`].
    ///
    /// # Errors
    /// The page is beyond the end, cannot be read, or no memory can be freed for it; or the page
    /// already has 2,047 guards.
    pub fn page(&self, index: u32) -> Result<PageGuard<'_>, Error> {
        let (folio, bytes) = self.lend(index)?;
        Ok(PageGuard::new(&self.file.shared, folio, bytes))
    }

    /// Lends a page as [`Self::page`] does, with a guard that borrows nothing and can be moved to
    /// another thread.
    ///
    /// # Errors
    /// As [`Self::page`].
    pub fn page_owned(&self, index: u32) -> Result<OwnedPageGuard, Error> {
        let (folio, bytes) = self.lend(index)?;
        Ok(OwnedPageGuard::new(&self.file.shared, folio, bytes))
    }

    /// Counts a guard on a page. Returns its folio and how many of its bytes are in the file.
    pub(crate) fn lend(&self, index: u32) -> Result<(FolioId, usize), Error> {
        let shared = &*self.file.shared;
        if let Some(seen) = self.range.settled(index.into()) {
            // Locked steps let no later load begin before they end.
            self.frames.prefetch(seen.folio().0);
            if shared.core.lend_settled(&shared.host, &seen) {
                return Ok((seen.folio(), PAGE_BYTES as usize));
            }
        }
        self.lend_slowly(index)
    }

    #[inline(never)]
    fn lend_slowly(&self, index: u32) -> Result<(FolioId, usize), Error> {
        let shared = &*self.file.shared;
        loop {
            self.bytes_of_page(index)?;
            let hit = self.find(index)?;
            match shared.core.lend(&shared.host, &self.file.inode.mapping, index, &hit) {
                Ok(()) => {
                    // The file may have become shorter since. From now on the bytes stay.
                    let bytes = self.bytes_of_page(index);
                    let take_back = |_: &Error| shared.core.take_back(&shared.host, hit.folio);
                    return bytes.inspect_err(take_back).map(|bytes| (hit.folio, bytes));
                }
                Err(NotLent::Gone) => {}
                Err(NotLent::TooOften) => return Err(Error::Busy),
                Err(NotLent::Changing) => shared.wait_for_content(hit.folio),
            }
        }
    }

    /// Finds a page, reads it if it is missing, and sets its accessed bit.
    #[inline]
    pub(crate) fn find(&self, index: u32) -> Result<Hit, Error> {
        let (shared, inode) = (&*self.file.shared, &self.file.inode);
        let (mut missed, mut looks) = (false, 0);
        loop {
            match shared.core.lookup(&inode.mapping, index) {
                // The read of the page may have found that another process has cut the file. Faster
                // accesses, which do not look, are to pages that were found here.
                Lookup::Hit(_) if inode.is_suspect() && looks < LOOKS_MAX => {
                    looks += 1;
                    inode.revalidate_if_changed(shared)?;
                }
                Lookup::Hit(hit) => {
                    shared.core.touch(&self.file.task, &inode.mapping, index, &hit);
                    let is_fault = !hit.flags.mapped();
                    if missed || is_fault {
                        self.file.stats.map_fault(missed);
                    }
                    if !missed && is_fault {
                        self.file.note_mapped(index, &hit);
                    }
                    return Ok(hit);
                }
                Lookup::Pending(folio) => shared.wait_for_read(inode, folio)?,
                Lookup::Miss => {
                    let window = if missed { alone(index) } else { self.file.window_of_fault(index) };
                    missed = true;
                    self.fault(index, window)?;
                }
            }
        }
    }

    #[cold]
    fn fault(&self, index: u32, window: Window) -> Result<(), Error> {
        let file = &self.file;
        let arrival = Arrival { in_fault: true, ..Arrival::default() };
        file.shared.fault(&file.inode, &file.task(), index, window, arrival)
    }
}

/// Removes one map of a memcg. Returns whether it was the memcg's last.
fn is_last(maps: &mut BTreeMap<MemcgId, u32>, memcg: MemcgId) -> bool {
    let left = maps.get_mut(&memcg).expect("counted when it was made");
    *left -= 1;
    let is_last = *left == 0;
    if is_last {
        maps.remove(&memcg);
    }
    is_last
}

impl Drop for Map {
    fn drop(&mut self) {
        let mut maps = self.file.inode.maps();
        if is_last(&mut maps, self.file.task.memcg) {
            // Removes the entries of all tenants; maps of other tenants recreate theirs on access.
            let shared = &*self.file.shared;
            shared.core.unmap(&shared.host, &self.file.task, &self.file.inode.mapping);
        }
    }
}

impl CachedFile {
    /// Lends page `index` if it is in memory, as [`Map::page_owned`] does, and counts a read of it.
    /// `None`: it is missing, being read or written, beyond the end of the file, or has 2,047
    /// guards. Then [`Self::read_at_async`] reads it. This never waits, so a task may call it.
    ///
    /// ```
    /// # use mglru_cache::{OpenMode, PageCache};
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("f");
    /// # std::fs::write(&path, "some bytes")?;
    /// let cache = PageCache::builder(1 << 20).build()?;
    /// let file = cache.open(&path, OpenMode::ReadOnly)?;
    /// assert!(file.cached_page(0).is_none());
    /// file.read_at(&mut [0], 0)?;
    /// assert_eq!(&file.cached_page(0).unwrap()[5..], b"bytes");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cached_page(&self, index: u32) -> Option<OwnedPageGuard> {
        let (shared, inode) = (&self.shared, &self.inode);
        if !self.has_bytes(index, 1) {
            return None;
        }
        let Lookup::Hit(hit) = shared.core.lookup(&inode.mapping, index) else { return None };
        if inode.is_suspect() {
            return None;
        }
        shared.core.lend(&shared.host, &inode.mapping, index, &hit).ok()?;
        // The file may have become shorter since. From now on the bytes stay.
        let left = self.len().saturating_sub(u64::from(index) * PAGE_BYTES);
        let guard = OwnedPageGuard::new(shared, hit.folio, left.min(PAGE_BYTES) as usize);
        if left == 0 {
            return None;
        }
        self.count_hit(index, &hit, false, false);
        Some(guard)
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map").field("file", &self.file).finish_non_exhaustive()
    }
}
