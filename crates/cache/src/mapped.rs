//! The mapped path: accesses that set an accessed bit and count nothing, and guards that lend a
//! page's bytes.
//!
//! Page-table entries are bits of the page's slot (see `mglru_core::mapping`). A repeated access
//! finds its bits set and writes nothing. There is no fault to save by making entries of
//! neighbours, too ([`mglru_core::readahead`]): the slot of a page in memory is its entry already,
//! and a load that finds its bits clear sets them in the word that it has at hand.
//!
//! # Guards
//!
//! [`PageGuard`] lends `&[u8]`. While it lives, the frame is not reused (the guard holds a
//! reference) and nobody writes the page: a writer announces itself, then sees that the page is
//! lent, withdraws, and sleeps; a guard counts itself, then sees that a writer is there, and
//! withdraws. Both steps are sequentially consistent, so that one of them sees the other. A writer
//! that waits for guards keeps nobody from reading: who holds one may read the page, and lend it
//! once more.
//!
//! # Safety
//!
//! The one `unsafe` site here rests on that.

use crate::error::Error;
use crate::file::CachedFile;
use crate::frames::Frames;
use crate::inode::Inode;
use crate::piece::pieces;
use crate::shared::Shared;
use crate::tenant::Tenant;
use mglru_core::folio::LENT_REFERENCES_MAX;
use mglru_core::mapping::Glance;
use mglru_core::{Arrival, FolioId, Hit, Lookup, MemcgId, PAGE_BYTES};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Accesses of a batch that are under way together: more than a core can have cache misses
/// outstanding (16).
const TOGETHER: usize = 32;

/// How a map is going to be used (madvise).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapAdvice {
    /// Accesses protect pages.
    Normal,
    /// Accesses do not protect pages: they are sequential, or random.
    NoRecency,
}

/// A file mapped into the cache's address space, from its beginning. Its length is that of the
/// file, whenever it is looked at.
pub struct Map {
    file: CachedFile,
    /// Those of the cache, one step nearer.
    frames: Arc<Frames>,
}

impl CachedFile {
    /// Maps the file as it is now: accesses through the map set an accessed bit and count nothing.
    ///
    /// # Errors
    /// None today; a later version may refuse.
    pub fn map(&self) -> Result<Map, Error> {
        Ok(Map::new(self.try_clone()))
    }
}

impl Map {
    pub(crate) fn new(file: CachedFile) -> Map {
        file.tenant.join(&file.shared.core);
        let map = Map { frames: file.shared.frames.clone(), file };
        let mut maps = map.file.inode.maps();
        *maps.entry(map.file.task.memcg).or_default() += 1;
        map.cover(map.file.len());
        drop(maps);
        map
    }

    /// Page tables cover the file up to `len` from now on.
    fn cover(&self, len: u64) {
        let file = &self.file;
        file.shared.core.map(&file.task, &file.inode.mapping, len.div_ceil(PAGE_BYTES));
    }

    /// From now on, pages that this map brings in are charged to `tenant`. Those that are there
    /// stay where they are charged.
    ///
    /// # Errors
    /// The tenant is another cache's.
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

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Says whether accesses through maps of this file are to protect its pages.
    pub fn advise(&self, advice: MapAdvice) {
        self.file.inode.mapping.set_recency(advice == MapAdvice::Normal);
    }

    /// The length of the file, if the range lies within.
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

    /// Loads `out.len()` bytes from `offset`. Bytes within one page are all from one moment.
    ///
    /// # Errors
    /// The range reaches beyond the end, a page cannot be read, or no memory can be freed for it.
    #[inline(always)]
    pub fn load(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let in_page = (offset % PAGE_BYTES) as usize;
        // A page whose entry is young was covered.
        if in_page + out.len() <= PAGE_BYTES as usize
            && offset.checked_add(out.len() as u64).is_some_and(|end| end <= self.file.len())
            && let Some(seen) = self.file.glance((offset / PAGE_BYTES) as u32)
            && seen.is_young()
        {
            self.frames.copy_out(seen.folio().0, in_page, out);
            if seen.still() {
                return Ok(());
            }
        }
        self.load_pieces(offset, out)
    }

    /// Loads `N` bytes from each of `offsets`, as [`Self::load`] does one by one. With accesses in
    /// no order this is several times as fast: the processor waits for many of them together, see
    /// docs/hit-path.md.
    ///
    /// # Errors
    /// As for [`Self::load`], of the first that fails; what is in `out` then means nothing.
    ///
    /// # Panics
    /// If `out` is not as long as `offsets`.
    pub fn load_many<const N: usize>(&self, offsets: &[u64], out: &mut [[u8; N]]) -> Result<(), Error> {
        assert_eq!(offsets.len(), out.len(), "a place for every offset");
        for (offsets, out) in offsets.chunks(TOGETHER).zip(out.chunks_mut(TOGETHER)) {
            self.load_together(offsets, out)?;
        }
        Ok(())
    }

    /// At most [`TOGETHER`] of them: first all slots, then all bytes, then all checks.
    fn load_together<const N: usize>(&self, offsets: &[u64], out: &mut [[u8; N]]) -> Result<(), Error> {
        let len = self.file.len();
        let mut seen = [None; TOGETHER];
        for (seen, &offset) in seen.iter_mut().zip(offsets) {
            let inside = offset.checked_add(N as u64).is_some_and(|end| end <= len);
            if inside && (offset % PAGE_BYTES) as usize + N <= PAGE_BYTES as usize {
                *seen = self.file.glance((offset / PAGE_BYTES) as u32).filter(Glance::is_young);
            }
        }
        for ((seen, &offset), out) in seen.iter().zip(offsets).zip(&mut *out) {
            if let Some(seen) = seen {
                self.frames.copy_out(seen.folio().0, (offset % PAGE_BYTES) as usize, out);
            }
        }
        for ((seen, &offset), out) in seen.iter().zip(offsets).zip(out) {
            if !seen.is_some_and(|seen| seen.still()) {
                self.load_pieces(offset, out)?;
            }
        }
        Ok(())
    }

    /// As [`Self::load`], where pages are missing, were not accessed lately, or are more than one.
    #[cold]
    fn load_pieces(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        self.check(offset, out.len())?;
        for piece in pieces(offset, out.len()) {
            let out = &mut out[piece.in_buffer.clone()];
            let shared = &*self.file.shared;
            loop {
                let hit = self.find(piece.index)?;
                shared.frames.copy_out(hit.folio.0, piece.in_page.start, out);
                if shared.core.confirm(&self.file.inode.mapping, piece.index, &hit) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Stores `bytes` at `offset`, inside the file.
    ///
    /// # Errors
    /// The handle is read-only, or as for [`Self::load`] and [`CachedFile::write_at`].
    pub fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.file.check_writable()?;
        self.check(offset, bytes.len())?;
        for piece in pieces(offset, bytes.len()) {
            self.file.write_piece(&piece, &bytes[piece.in_buffer.clone()], true)?;
        }
        Ok(())
    }

    /// Lends a page. The guard keeps it in memory and unchanged. A thread that writes to the page,
    /// or truncates the file, while it holds a guard waits for itself.
    ///
    /// # Errors
    /// The page is beyond the end, cannot be read, or no memory can be freed for it; or it is lent
    /// 3,800 times.
    pub fn page(&self, index: u32) -> Result<PageGuard<'_>, Error> {
        let start = u64::from(index) * PAGE_BYTES;
        let bytes = (self.check(start, 1)? - start).min(PAGE_BYTES) as usize;
        let shared = &*self.file.shared;
        loop {
            let hit = self.find(index)?;
            if !shared.core.try_get(&self.file.inode.mapping, index, &hit) {
                if shared.flags(hit.folio).load().references() >= LENT_REFERENCES_MAX {
                    return Err(Error::Busy);
                }
                continue;
            }
            if shared.lend(hit.folio) {
                return Ok(PageGuard { shared, folio: hit.folio, bytes });
            }
            shared.core.put(&shared.host, hit.folio);
            shared.wait_for_content(hit.folio);
        }
    }

    /// Finds a page, bringing it in if it is missing, and sets its accessed bit.
    #[inline]
    fn find(&self, index: u32) -> Result<Hit, Error> {
        let (shared, inode) = (&*self.file.shared, &*self.file.inode);
        let mut missed = false;
        loop {
            match shared.core.lookup(&inode.mapping, index) {
                Lookup::Hit(hit) => {
                    shared.core.touch(&self.file.task, &inode.mapping, index, &hit);
                    if missed {
                        self.file.stats.miss();
                    } else if !hit.flags.mapped() || hit.readahead() {
                        self.file.note_mapped(index, &hit);
                    }
                    return Ok(hit);
                }
                Lookup::Pending(folio) => shared.wait_for_content(folio),
                Lookup::Miss => {
                    missed = true;
                    self.fault(index)?;
                }
            }
        }
    }

    #[cold]
    fn fault(&self, index: u32) -> Result<(), Error> {
        let file = &self.file;
        let arrival = Arrival { in_fault: true, ..Arrival::default() };
        file.shared.fault(&file.inode, &file.task(), index, file.window_of_fault(index), arrival)
    }
}

/// One map of a memcg less: whether there is none left.
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
            // Other tenants' maps make their entries anew.
            let shared = &*self.file.shared;
            shared.core.unmap(&shared.host, &self.file.task, &self.file.inode.mapping);
        }
    }
}

/// A page that is lent. See [`Map::page`].
pub struct PageGuard<'a> {
    shared: &'a Shared,
    folio: FolioId,
    bytes: usize,
}

impl Deref for PageGuard<'_> {
    type Target = [u8];

    /// The page's bytes, up to the end of the file.
    fn deref(&self) -> &[u8] {
        // SAFETY: `lend` counted this guard while no writer was there; a writer that comes later
        // sees the count and sleeps until it is gone. The reference keeps the frame from being
        // freed, given back or read into.
        #[expect(unsafe_code, reason = "lends a frame's bytes without a copy")]
        let frame = unsafe { self.shared.frames.bytes(self.folio.0) };
        &frame[..self.bytes]
    }
}

impl Drop for PageGuard<'_> {
    fn drop(&mut self) {
        self.shared.take_back(self.folio);
        self.shared.core.put(&self.shared.host, self.folio);
    }
}

impl Shared {
    /// Counts a guard on a folio. `false`: somebody is changing it.
    fn lend(&self, folio: FolioId) -> bool {
        self.lent[folio.0 as usize].fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.flags(folio).load().writing() {
            self.take_back(folio);
            return false;
        }
        true
    }

    fn take_back(&self, folio: FolioId) {
        self.lent[folio.0 as usize].fetch_sub(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.flags(folio).load().waiters() {
            self.host.latches.wake(folio);
        }
    }

    /// Announces a writer on a folio whose lock the caller holds, as soon as nobody has the bytes
    /// borrowed.
    pub(crate) fn begin_change(&self, inode: &Inode, folio: FolioId) {
        let (flags, lent) = (self.flags(folio), &self.lent[folio.0 as usize]);
        let is_lent = || lent.load(Ordering::SeqCst) > 0;
        loop {
            self.core.begin_content(&inode.mapping, folio);
            fence(Ordering::SeqCst);
            if !is_lent() {
                return;
            }
            // Not kept up while we sleep: who has the page borrowed may want to read it before
            // giving it back.
            self.core.cancel_content(&self.host, &inode.mapping, folio);
            self.host.latches.wait_until(folio, flags, || !is_lent());
        }
    }
}
