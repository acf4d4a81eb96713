//! Descriptor hits: reads of a page that is in memory.
//!
//! How many hits to random pages overlap depends on how many instructions each takes, as the
//! processor looks only so many ahead ([book: hit-path]). So most hits take the shortest way,
//! [`CachedFile::copy_counted`]: within one whole page, whose accesses are all counted, they change
//! nothing but the handle's own counts. All others go through [`CachedFile::copy_cached`].
//!
//! # Locking
//!
//! None. Bytes are copied out and the slot is looked at again ([`Glance`]).

use crate::error::Error;
use crate::file::CachedFile;
use crate::piece::Piece;
use crate::prefetch::prefetch_for_read;
use crate::stat::HandleStats;
use mglru_core::mapping::Glance;
use mglru_core::{Lookup, PAGE_BYTES};

impl CachedFile {
    /// Reads within a cached page if the access changes no state of the page: its accesses are all
    /// counted. Where the last read ended then makes no difference. The caller counts the hit
    /// ([`Self::end_of_hit`]).
    #[inline(always)]
    pub(crate) fn copy_counted(&self, buffer: &mut [u8], offset: u64) -> bool {
        let (mapping, page, in_page) =
            (&*self.inode.mapping, offset / PAGE_BYTES, (offset % PAGE_BYTES) as usize);
        // An empty read would be longer than any page.
        let is_in_page = buffer.len().wrapping_sub(1) < PAGE_BYTES as usize - in_page;
        if !is_in_page {
            return false;
        }
        // Each kind of glance gets code of its own: a slot in a range has no way to check.
        let in_range = mapping.range().and_then(|range| Glance::in_range(range, page as u32));
        match in_range {
            Some(seen) => self.copy_glanced(seen, page, in_page, buffer),
            None => match self.shared.core.glance_in_pool(mapping, page as u32) {
                Some(seen) => seen.is_readable() && self.copy_glanced(seen, page, in_page, buffer),
                None => false,
            },
        }
    }

    /// Whether the bytes before `end` in a page belong to the file. Asked between the look at the
    /// page and the check that it is unchanged. Before the look, the file may have become shorter
    /// since, and the page have zeros behind the end. After the check, it may have grown again, by
    /// a write of this page that the copy does not have.
    pub(crate) fn has_bytes(&self, index: u32, end: usize) -> bool {
        u64::from(index) * PAGE_BYTES + end as u64 <= self.inode.len()
    }

    #[inline(always)]
    fn copy_glanced(&self, seen: Glance<'_>, page: u64, in_page: usize, out: &mut [u8]) -> bool {
        // As in `has_bytes`: between the look at the page and the check.
        let is_there = self.inode.has_whole_page(page) && !self.inode.is_suspect();
        if !is_there || !self.shared.core.is_counted_full(&seen) {
            return false;
        }
        self.shared.frames.copy_out(seen.folio().0, in_page, out);
        seen.still()
    }

    /// Counts the hit of [`Self::copy_counted`], of `bytes` bytes, and notes its page.
    #[inline(always)]
    pub(crate) fn end_of_hit(&self, bytes: usize, offset: u64) -> Result<usize, Error> {
        let page = offset / PAGE_BYTES;
        if self.stats.hit_of_owner(page) { Ok(bytes) } else { self.end_of_shared_hit(bytes, page) }
    }

    /// [`Self::end_of_hit`] on a thread other than the first one.
    #[inline(never)]
    fn end_of_shared_hit(&self, bytes: usize, page: u64) -> Result<usize, Error> {
        self.stats.note_last_page(page);
        self.count(false);
        Ok(bytes)
    }

    /// Counts an access: a miss or a hit.
    #[inline]
    pub(crate) fn count(&self, missed: bool) {
        if missed {
            self.stats.miss();
        } else if self.stats.hit() {
            self.add_lanes();
        }
    }

    /// Gives each thread counters of its own, if the tenant can pay for them now.
    #[cold]
    fn add_lanes(&self) {
        let threads = self.shared.core.options().cpus;
        if self.lanes_charge.get().is_none() {
            let bytes = HandleStats::lanes_bytes(threads);
            let Some(charge) = self.shared.try_charge_metadata(&self.task(), bytes) else { return };
            if let Err(mut charge) = self.lanes_charge.set(charge) {
                return self.shared.uncharge_metadata(&mut charge);
            }
        }
        self.stats.add_lanes(threads);
    }

    /// [`Self::read_at`] in all other cases.
    #[inline(never)]
    pub(crate) fn read_cached(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        let in_page = (offset % PAGE_BYTES) as usize;
        let is_inside = offset.checked_add(buffer.len() as u64).is_some_and(|end| end <= self.inode.len());
        let is_simple = !buffer.is_empty() && in_page + buffer.len() <= PAGE_BYTES as usize && is_inside;
        if is_simple && !self.inode.is_suspect() {
            let page = offset / PAGE_BYTES;
            let again = self.is_reread(page, in_page);
            if self.copy_cached(page as u32, in_page, buffer, again, false) {
                self.stats.note_last_page(page);
                return Ok(buffer.len());
            }
        }
        self.read(buffer, offset, false)
    }

    /// Copies bytes out of a page in memory and counts the access. Returns `false` if the page is
    /// missing, is being changed, or has the readahead mark, or if the file has become shorter or
    /// may have been changed by another process.
    pub(crate) fn copy_cached(
        &self,
        index: u32,
        in_page: usize,
        out: &mut [u8],
        again: bool,
        missed: bool,
    ) -> bool {
        let Some(seen) = self.glance(index) else { return false };
        let is_there = self.has_bytes(index, in_page + out.len()) && !self.inode.is_suspect();
        if !seen.is_readable() || seen.readahead() || !is_there {
            return false;
        }
        if !again {
            // Where the access is counted after the copy.
            prefetch_for_read(self.shared.flags(seen.folio()));
        }
        self.shared.frames.copy_out(seen.folio().0, in_page, out);
        if !seen.still() {
            return false;
        }
        if !again {
            let shared = &*self.shared;
            if shared.core.accessed_glance(&shared.host, || shared.cpu(), &seen) {
                self.read_on(index);
            }
        }
        self.count(missed);
        true
    }

    /// The state of a page, as read from its slot.
    #[inline(always)]
    pub(crate) fn glance(&self, index: u32) -> Option<Glance<'_>> {
        self.shared.core.glance(&self.inode.mapping, index)
    }

    /// The state of a page that a mapped access would not change, as read from its slot.
    pub(crate) fn young_glance(&self, index: u32) -> Option<Glance<'_>> {
        self.glance(index).filter(|seen| self.shared.core.is_young(&self.inode.mapping, index, seen))
    }

    /// [`Self::copy_cached`] for a page that may have the readahead mark, which starts the next
    /// window.
    #[cold]
    pub(crate) fn copy_hit(&self, piece: &Piece, out: &mut [u8], again: bool, missed: bool) -> bool {
        let (shared, mapping) = (&*self.shared, &*self.inode.mapping);
        let Lookup::Hit(hit) = shared.core.lookup(mapping, piece.index) else { return false };
        if !self.has_bytes(piece.index, piece.in_page.end) {
            return false;
        }
        shared.frames.copy_out(hit.folio.0, piece.in_page.start, out);
        if !shared.core.confirm(mapping, piece.index, &hit) {
            return false;
        }
        self.count_hit(piece.index, &hit, again, missed);
        true
    }
}
