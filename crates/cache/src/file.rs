//! Reading and writing a cached file by offset (the descriptor path).
//!
//! A hit copies the bytes out of the frame without a lock, then checks that the page is still there
//! and that no thread wrote to it meanwhile. A writer locks the folio and copies in. So a read of
//! bytes within one page sees all of a write or none of it.
//!
//! # Locking
//!
//! Writers hold `Inode::resize` shared and truncation holds it exclusively; then they take one
//! folio lock at a time. Reads take no lock. No thread waits for guards while it holds a lock.

use crate::error::Error;
use crate::fault::alone;
use crate::inode::{Inode, LEN_MAX};
use crate::piece::{Piece, pages_of, pieces};
use crate::shared::Shared;
use crate::stat::HandleStats;
use crate::tenant::Tenant;
use crate::tenants::TenantState;
use crate::workers::Synced;
use mglru_core::readahead::{Readahead, Window, pages_max};
use mglru_core::{Arrival, FolioId, Hit, HostCharge, Lookup, MemcgId, PAGE_BYTES, Task, WriteAttempt};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Expected access pattern of a file (`posix_fadvise`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// No advice: readahead adapts to the accesses.
    Normal,
    /// Sequential access: doubles the readahead window.
    Sequential,
    /// Random access: disables readahead.
    Random,
    /// The range is needed soon: starts reading it.
    WillNeed,
    /// The range is not needed: drops its clean pages, starts writing its dirty pages, and makes
    /// pages that cannot be dropped yet the next to be reclaimed.
    DontNeed,
    /// The file is used once: mapped accesses do not protect its pages.
    NoReuse,
}

/// Looks of a read at the length because another process may have changed the file, with another
/// copy after each. While threads write to the file, no look clears that up.
pub(crate) const LOOKS_MAX: u32 = 16;

/// The way in which a page is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// By a call that waits for guards.
    Call,
    /// By a call that does not.
    Try,
    /// Through a map.
    Map,
}

/// The result of a write within one page.
pub(crate) enum Written {
    /// The page was in memory.
    Hit,
    /// The page was not in memory.
    Missed,
    /// Nothing was written, because a guard lends the page. The caller has a reference to the folio
    /// and drops it after it has waited for the guard.
    Lent(FolioId),
}

/// The result of an attempt to write within one page.
pub(crate) enum WriteStep {
    /// [`Shared::write_page`] has its result.
    Done(Written),
    /// Try again when the folio is unlocked.
    Wait(FolioId),
    /// The page is not in memory. `whole`: it need not be read, only inserted.
    Missing { whole: bool },
    /// Try again.
    Again,
}

/// Bytes charged per handle: itself, its counters, and its place among the tenant's handles.
pub(crate) const HANDLE_BYTES: u64 = (size_of::<CachedFile>() + size_of::<HandleStats>()) as u64 + 192;

/// A handle on an open file whose pages are cached.
///
/// Threads may share a handle; their hits do not contend. With a handle each (see
/// [`CachedFile::try_clone`]), readahead recognises each thread's sequential reads.
pub struct CachedFile {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inode: Arc<Inode>,
    pub(crate) task: Task,
    pub(crate) tenant: Arc<TenantState>,
    writable: bool,
    pub(crate) stats: Arc<HandleStats>,
    readahead: Mutex<Readahead>,
    /// Write-back errors that this handle has reported.
    errors_reported: AtomicU64,
    random: AtomicBool,
    charge: HostCharge,
    /// For the lanes of `stats`, once there are some.
    pub(crate) lanes_charge: OnceLock<HostCharge>,
}

impl CachedFile {
    /// A handle for which `charge` was made, and which `inode.handles` counts already.
    pub(crate) fn new(
        shared: Arc<Shared>,
        inode: Arc<Inode>,
        tenant: Arc<TenantState>,
        writable: bool,
        charge: HostCharge,
    ) -> CachedFile {
        let errors_reported = AtomicU64::new(inode.errors_reported());
        let readahead = shared.core.new_readahead(inode.pages_ahead_max());
        CachedFile {
            task: tenant.task(shared.cpu()),
            stats: tenant.new_handle(),
            shared,
            tenant,
            writable,
            readahead: Mutex::new(readahead),
            inode,
            errors_reported,
            random: AtomicBool::new(false),
            charge,
            lanes_charge: OnceLock::new(),
        }
    }

    /// The path by which the file was opened.
    pub fn path(&self) -> &Path {
        self.inode.file.path()
    }

    /// Whether pages of this file go past the system's page cache (`O_DIRECT`). Otherwise each page
    /// that is transferred is there too, outside of the budget, until the system has forgotten it.
    /// A file system may permit `O_DIRECT` and refuse the first transfer; then this becomes false.
    pub fn is_direct(&self) -> bool {
        self.inode.file.is_direct()
    }

    /// The memcg to which this handle's new pages are charged.
    pub fn memcg(&self) -> MemcgId {
        self.task.memcg
    }

    /// Charges pages that this handle brings in from now on to `tenant`. Cached pages stay charged
    /// as they are, and the handle itself, too. Clones and maps of the handle are separate and do
    /// not move.
    ///
    /// # Errors
    /// The tenant belongs to another cache.
    pub fn move_to(&mut self, tenant: &Tenant) -> Result<(), Error> {
        if !tenant.is_of(&self.shared) {
            return Err(Error::ForeignTenant(tenant.name().to_owned()));
        }
        self.tenant.close_handle(&self.stats);
        self.tenant = tenant.state().clone();
        self.task = self.tenant.task(self.shared.cpu());
        self.stats = self.tenant.new_handle();
        Ok(())
    }

    /// Page accesses through this handle so far: those that found the page in memory, and those
    /// that did not.
    pub fn accesses(&self) -> (u64, u64) {
        (self.stats.hits(), self.stats.misses())
    }

    /// Length in bytes, including data that is not yet written to disk.
    pub fn len(&self) -> u64 {
        self.inode.len()
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tenant's task, on the calling thread's CPU.
    pub(crate) fn task(&self) -> Task {
        Task { cpu: self.shared.cpu(), ..self.task.clone() }
    }

    /// Reads up to `buffer.len()` bytes from `offset` and returns the number read. That is less
    /// than `buffer.len()` only at the end of the file.
    ///
    /// # Errors
    /// The system cannot read a page, or no memory can be freed for it. The number of bytes read
    /// before the error is lost.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        // A hit makes no call unless it is the last thing, and so saves few registers.
        if self.copy_counted(buffer, offset) {
            return self.end_of_hit(buffer.len(), offset);
        }
        self.read_cached(buffer, offset)
    }

    /// Reads as [`Self::read_at`]. `begun`: a read of the first page, which was missing, was
    /// started for this request.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64, begun: bool) -> Result<usize, Error> {
        let mut bytes = self.readable(buffer.len(), offset)?;
        let (mut looks, mut unsuspected) = (0, self.inode.unsuspected());
        'shorter: loop {
            if bytes == 0 {
                return Ok(0);
            }
            let last = ((offset + bytes as u64 - 1) / PAGE_BYTES) as u32;
            for piece in pieces(offset, bytes) {
                let again =
                    piece.in_buffer.start == 0 && self.is_reread(piece.index.into(), piece.in_page.start);
                let request = last - piece.index + 1;
                let missed = begun && piece.in_buffer.start == 0;
                let out = &mut buffer[piece.in_buffer.clone()];
                if !self.read_page(&piece, out, request, again, missed)? {
                    bytes = self.readable(bytes, offset)?;
                    continue 'shorter;
                }
            }
            if looks < LOOKS_MAX && !self.inode.is_still_unsuspected(unsuspected) {
                // The file may be shorter than its known length, or may have been so for a while:
                // what was copied may be zeros, which are dropped.
                looks += 1;
                bytes = self.readable(bytes, offset)?;
                unsuspected = self.inode.unsuspected();
                continue;
            }
            return self.end_of_read(offset, bytes);
        }
    }

    /// How many of `wanted` bytes from `offset` on can be read.
    pub(crate) fn readable(&self, wanted: usize, offset: u64) -> Result<usize, Error> {
        if wanted == 0 {
            return Ok(0);
        }
        self.inode.revalidate_if_changed(&self.shared)?;
        if self.reaches_end(wanted, offset) {
            self.inode.revalidate(&self.shared)?;
        }
        Ok(self.left(wanted, offset))
    }

    /// Whether a read reaches the end of the file, to which another process may have appended.
    pub(crate) fn reaches_end(&self, wanted: usize, offset: u64) -> bool {
        wanted as u64 > self.inode.len().saturating_sub(offset)
    }

    /// How many of `wanted` bytes from `offset` on are before the known end of the file.
    pub(crate) fn left(&self, wanted: usize, offset: u64) -> usize {
        (wanted as u64).min(self.inode.len().saturating_sub(offset)) as usize
    }

    /// Whether a read that begins at byte `in_page` of a page continues where the last one ended:
    /// it counts as the same access.
    #[inline]
    pub(crate) fn is_reread(&self, page: u64, in_page: usize) -> bool {
        self.stats.has_last_read(page) && !self.shared.core.counts_reread(in_page > 0)
    }

    /// Notes a read of `bytes` bytes and returns their number.
    pub(crate) fn note_read_to(&self, offset: u64, bytes: usize) -> usize {
        if bytes > 0 {
            self.stats.note_last_page((offset + bytes as u64 - 1) / PAGE_BYTES);
        }
        bytes
    }

    /// Notes a read of `bytes` bytes and returns how many of them are in the file.
    pub(crate) fn end_of_read(&self, offset: u64, bytes: usize) -> Result<usize, Error> {
        if self.note_read_to(offset, bytes) == 0 {
            return Ok(0);
        }
        if self.inode.revalidate_if_changed(&self.shared)? {
            // The file turned out to be shorter than its known length.
            return Ok(self.left(bytes, offset));
        }
        Ok(bytes)
    }

    /// Reads a part of one page. `request`: pages wanted from this one on. `again`: the last read
    /// ended in this page. `missed`: count a miss even if the page is in memory by now. `false`:
    /// the file ends before that.
    #[inline]
    fn read_page(
        &self,
        piece: &Piece,
        out: &mut [u8],
        request: u32,
        again: bool,
        missed: bool,
    ) -> Result<bool, Error> {
        if self.copy_cached(piece.index, piece.in_page.start, out, again, missed) {
            return Ok(true);
        }
        self.read_page_slowly(piece, out, request, again, missed)
    }

    /// Counts a read of a page that is in memory. `again`: it is part of the last access. `missed`:
    /// the page was missing when the read began.
    pub(crate) fn count_hit(&self, index: u32, hit: &Hit, again: bool, missed: bool) {
        let shared = &*self.shared;
        if !again {
            shared.core.accessed(&shared.host, || shared.cpu(), hit);
        }
        if shared.core.has_readahead_mark(hit) {
            self.continue_readahead(index, hit);
        }
        self.count(missed);
    }

    /// [`Self::read_page`] for a page that is missing, is being changed, or has the readahead mark.
    #[cold]
    fn read_page_slowly(
        &self,
        piece: &Piece,
        out: &mut [u8],
        request: u32,
        again: bool,
        mut missed: bool,
    ) -> Result<bool, Error> {
        let shared = &*self.shared;
        let mut was_read = false;
        while !self.copy_hit(piece, out, again, missed) {
            if piece.end() > self.inode.len() {
                return Ok(false);
            }
            match shared.core.lookup(&self.inode.mapping, piece.index) {
                Lookup::Hit(_) => {}
                Lookup::Pending(folio) => shared.wait_for_read(&self.inode, folio)?,
                Lookup::Miss => {
                    missed = true;
                    let index = piece.index;
                    let window = if was_read { alone(index) } else { self.window_of_miss(index, request) };
                    was_read = true;
                    shared.fault(&self.inode, &self.task(), index, window, Arrival::default())?;
                }
            }
        }
        Ok(true)
    }

    /// The readahead window for a miss of a read of `request` pages.
    pub(crate) fn window_of_miss(&self, index: u32, request: u32) -> Window {
        let request_now = request.min(self.inode.request_pages_max());
        if self.random.load(Ordering::Relaxed) {
            // Threads that share the handle do not wait for each other.
            return Window { first: index, pages: request_now.max(1), mark: None };
        }
        let mut readahead = self.readahead.lock().unwrap_or_else(PoisonError::into_inner);
        let window = readahead.on_miss(index, request_now, |page| self.is_cached(page));
        readahead.note_read(index, request);
        self.inode.whole_blocks(window)
    }

    fn is_cached(&self, page: u32) -> bool {
        self.shared.core.is_cached(&self.inode.mapping, page)
    }

    /// The readahead window for a miss through a map.
    pub(crate) fn window_of_fault(&self, index: u32) -> Window {
        let window = self.readahead.lock().unwrap_or_else(PoisonError::into_inner).on_fault(index);
        self.inode.whole_blocks(window)
    }

    /// Updates readahead after a load through a map found a page in memory that has no page-table
    /// entry.
    #[cold]
    pub(crate) fn note_mapped(&self, index: u32, hit: &Hit) {
        self.readahead.lock().unwrap_or_else(PoisonError::into_inner).note_mapped(true, 0);
        if self.shared.core.has_readahead_mark(hit) {
            self.continue_readahead(index, hit);
        }
    }

    /// Continues readahead after a read of a page whose folio carries the mark.
    #[cold]
    pub(crate) fn read_on(&self, index: u32) {
        if let Lookup::Hit(hit) = self.shared.core.lookup(&self.inode.mapping, index) {
            self.continue_readahead(index, &hit);
        }
    }

    #[cold]
    fn continue_readahead(&self, index: u32, hit: &Hit) {
        // A hit waits for no device. The mark stays, and a later hit reads on.
        if self.random.load(Ordering::Relaxed) || !self.shared.backend.has_room(&self.inode.file) {
            return;
        }
        let window = {
            let mut readahead = self.readahead.lock().unwrap_or_else(PoisonError::into_inner);
            // Without readahead, marks stay for others who read the file.
            if readahead.max_pages() == 0
                || !self.shared.core.take_readahead_mark(&self.inode.mapping, index, hit)
            {
                return;
            }
            readahead.note_read(index, 1);
            readahead.on_mark(index, |page| self.is_cached(page))
        };
        if let Some(window) = window {
            self.shared.read_ahead(&self.inode, &self.task(), window, false);
        }
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.writable { Ok(()) } else { Err(Error::ReadOnly { path: self.path().to_owned() }) }
    }

    /// Writes all of `bytes` at `offset` and extends the file as needed. The bytes are in memory on
    /// return, and in the file after a successful sync.
    ///
    /// # Errors
    /// The handle is read-only, the end is beyond 16 TiB, a partly overwritten page cannot be read,
    /// or no memory can be freed. A guard of this thread lends a page of the range. Pages of this
    /// file could not be written, and a tenth of memory is such pages ([`Error::WriteBack`]). Bytes
    /// before the failing page stay written.
    ///
    /// # Guards
    /// The call waits until no guard lends a page that it changes. The cache knows which
    /// [`crate::PageGuard`]s are of this thread, and fails ([`Error::OwnGuard`]). It cannot know
    /// which thread holds an [`crate::OwnedPageGuard`], or `Bytes` made of one: a thread that holds
    /// one of the page itself waits for ever. [`Self::try_write_at`] never waits for guards.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        self.check_write(offset, bytes.len())?;
        for piece in pieces(offset, bytes.len()) {
            self.write_piece(&piece, &bytes[piece.in_buffer.clone()], Access::Call)?;
        }
        Ok(bytes.len())
    }

    /// Writes as [`Self::write_at`], but does not wait for guards. Returns the number of bytes
    /// written: fewer than all if a guard lends a page behind the first. It may still wait for
    /// memory and for the device.
    ///
    /// ```
    /// # use mglru_cache::{Error, OpenMode, PageCache};
    /// # let directory = tempfile::tempdir().expect("a temporary folder");
    /// # let cache = PageCache::builder(1 << 20).build()?;
    /// let file = cache.open(directory.path().join("f"), OpenMode::Create)?;
    /// file.write_at(&[1; 8192], 0)?;
    /// let lent = file.map()?.page_owned(1)?;
    /// assert_eq!(file.try_write_at(&[2; 8192], 0)?, 4096); // write_at would wait for itself
    /// assert!(matches!(file.try_write_at(&[2; 4096], 4096), Err(Error::Lent { page: 1, .. })));
    /// # drop(lent); Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Lent`], whose kind is `WouldBlock`, if a guard lends the first page. Else as
    /// [`Self::write_at`], also after bytes were written.
    pub fn try_write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        self.check_write(offset, bytes.len())?;
        for piece in pieces(offset, bytes.len()) {
            match self.write_piece(&piece, &bytes[piece.in_buffer.clone()], Access::Try) {
                Ok(()) => {}
                Err(Error::Lent { .. }) if piece.in_buffer.start > 0 => return Ok(piece.in_buffer.start),
                Err(error) => return Err(error),
            }
        }
        Ok(bytes.len())
    }

    /// Writes as [`Self::write_at`], but returns the number of bytes before a page that cannot be
    /// written, as `write` of POSIX does. The next call, which begins with that page, has the
    /// error.
    ///
    /// # Errors
    /// As [`Self::write_at`]; nothing is written then.
    pub fn write_some_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        self.check_write(offset, bytes.len())?;
        for piece in pieces(offset, bytes.len()) {
            match self.write_piece(&piece, &bytes[piece.in_buffer.clone()], Access::Call) {
                Ok(()) => {}
                Err(_) if piece.in_buffer.start > 0 => return Ok(piece.in_buffer.start),
                Err(error) => return Err(error),
            }
        }
        Ok(bytes.len())
    }

    pub(crate) fn check_write(&self, offset: u64, bytes: usize) -> Result<(), Error> {
        self.check_writable()?;
        let end = offset.saturating_add(bytes as u64);
        match end > LEN_MAX {
            true => Err(Error::TooLarge { path: self.path().to_owned(), end }),
            false => Ok(()),
        }
    }

    /// Writes the part of a write that lies in one page.
    pub(crate) fn write_piece(&self, piece: &Piece, bytes: &[u8], access: Access) -> Result<(), Error> {
        let mapped = access == Access::Map;
        self.shared.pause_dirtying(self.task.memcg, &self.inode)?;
        let end = u64::from(piece.index) * PAGE_BYTES + piece.in_page.end as u64;
        loop {
            let shared = self.inode.resize.share(&self.shared.writers);
            let len = self.inode.len();
            if mapped && end > len {
                // Truncated since the range was checked. A store does not extend the file.
                return Err(Error::BeyondEnd { path: self.path().to_owned(), end, len });
            }
            match self.shared.write_page(&self.inode, &self.task, piece, bytes, mapped)? {
                Written::Missed if mapped => self.stats.map_fault(true),
                Written::Missed => self.stats.miss(),
                Written::Hit if !mapped => self.count(false),
                Written::Hit => {}
                Written::Lent(folio) => {
                    // Release `resize` before waiting: a truncation would queue for it, and the
                    // thread with the guard would queue behind that when it writes another page.
                    drop(shared);
                    if access == Access::Try {
                        self.shared.core.put(&self.shared.host, folio);
                        return Err(Error::Lent { path: self.path().to_owned(), page: piece.index });
                    }
                    self.shared.put_when_taken_back(&self.inode, piece.index, folio)?;
                    continue;
                }
            }
            // If the cache was closed meanwhile, nobody writes the page.
            return self.shared.check_open();
        }
    }

    /// Writes this file's dirty pages and waits until they, and the metadata needed to read them,
    /// are on stable storage.
    ///
    /// # Errors
    /// A page could not be written, now or since the last sync of this handle
    /// ([`Error::WriteBack`]; the page stays in memory and is written again later), or the device
    /// cannot sync ([`Error::Io`]): then what was written since the last sync may be lost, and no
    /// later sync stores it unless it is written again.
    pub fn sync_data(&self) -> Result<(), Error> {
        self.sync(false)
    }

    /// As [`Self::sync_data`], but succeeds if pages could not be written earlier, also before this
    /// handle was opened, and are by now. For a database, which would undo a commit, or refuse all
    /// further work, although the data is stored.
    ///
    /// # Errors
    /// A page cannot be written now, or the device could not sync, now or since the last sync of
    /// this handle.
    pub fn sync_data_again(&self) -> Result<(), Error> {
        match self.sync_data() {
            Err(Error::WriteBack { .. }) => self.sync_data(),
            result => result,
        }
    }

    /// As [`Self::sync_data`], including all metadata of the file.
    ///
    /// # Errors
    /// As [`Self::sync_data`].
    pub fn sync_all(&self) -> Result<(), Error> {
        self.sync(true)
    }

    fn sync(&self, all: bool) -> Result<(), Error> {
        self.end_of_sync(self.shared.sync(&self.inode, all))
    }

    /// Reports errors of earlier writes and syncs, and the error of a sync that has ended, also if
    /// another sync has reported it for this handle.
    pub(crate) fn end_of_sync(&self, synced: Synced) -> Result<(), Error> {
        let (synced, unreported) = (synced?, self.inode.unreported_error(&self.errors_reported));
        match (synced, unreported) {
            // An earlier error may be worse: after a failed sync the data must be written again.
            (Ok(()) | Err(Error::WriteBack { .. }), Some(error)) => Err(error),
            (synced, _) => synced,
        }
    }

    /// Declares how the bytes in `range` will be used. Some advice applies to the whole file.
    ///
    /// # Errors
    /// None today; a later version may refuse. If [`Advice::DontNeed`] cannot write a dirty page,
    /// the next sync reports it.
    pub fn advise(&self, advice: Advice, range: Range<u64>) -> Result<(), Error> {
        let pages = pages_of(&(range.start..range.end.min(self.len())));
        match advice {
            Advice::Normal => self.set_pages_ahead_max(self.inode.pages_ahead_max()),
            Advice::Sequential => self.set_pages_ahead_max(2 * self.inode.pages_ahead_max()),
            Advice::Random => self.set_pages_ahead_max(0),
            Advice::NoReuse => self.inode.mapping.set_recency(false),
            Advice::WillNeed => {
                let task = self.task();
                // Reading more would evict pages that this call has just read.
                let end = pages.end.min(pages.start + pages_max(&self.shared.core, task.memcg));
                let mut at = pages.start;
                while at < end {
                    let pages = (end - at).min(u64::from(self.inode.pages_ahead_max()));
                    let window = Window { first: at as u32, pages: pages as u32, mark: None };
                    self.shared.read_ahead(&self.inode, &task, window, true);
                    at += pages;
                }
            }
            Advice::DontNeed => {
                let Ok(first) = u32::try_from(pages.start) else { return Ok(()) };
                let (shared, inode) = (&self.shared, &self.inode);
                shared.submit_dirty_in(inode, first, pages.end);
                shared.core.invalidate(&shared.host, &inode.mapping, first, pages.end, self.task().cpu);
            }
        }
        Ok(())
    }

    /// Creates another handle on the same file, with the same advice. Its sequential-read position
    /// and its record of reported errors are its own.
    ///
    /// # Errors
    /// No memory is left for the handle, in the tenant or in the budget: [`Error::Killed`] if the
    /// tenant was killed.
    pub fn try_clone(&self) -> Result<CachedFile, Error> {
        let (shared, tenant) = (self.shared.clone(), self.tenant.clone());
        let charge = shared.charge_metadata(&self.task(), HANDLE_BYTES)?.keep();
        self.inode.handles.fetch_add(1, Ordering::AcqRel);
        let clone = CachedFile::new(shared, self.inode.clone(), tenant, self.writable, charge);
        clone.set_pages_ahead_max(self.readahead.lock().unwrap_or_else(PoisonError::into_inner).max_pages());
        Ok(clone)
    }

    fn set_pages_ahead_max(&self, pages: u32) {
        self.random.store(pages == 0, Ordering::Relaxed);
        self.readahead.lock().unwrap_or_else(PoisonError::into_inner).set_max_pages(pages);
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        self.tenant.close_handle(&self.stats);
        self.shared.uncharge_metadata(&mut self.charge);
        if let Some(charge) = self.lanes_charge.get_mut() {
            self.shared.uncharge_metadata(charge);
        }
        if self.inode.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            // The flusher writes the dirty pages, then forgets the file.
            self.shared.host.flusher.ring();
            self.shared.forget_if_idle(&self.inode);
        }
    }
}

impl Shared {
    /// Copies bytes into one page and marks it dirty, unless a guard lends it. `task`: on any CPU.
    /// `mapped`: count an access through a mapping.
    pub(crate) fn write_page(
        &self,
        inode: &Arc<Inode>,
        task: &Task,
        piece: &Piece,
        bytes: &[u8],
        mapped: bool,
    ) -> Result<Written, Error> {
        let mut missed = false;
        loop {
            match self.try_write_page(inode, task, piece, bytes, mapped) {
                WriteStep::Done(Written::Hit) if missed => return Ok(Written::Missed),
                WriteStep::Done(written) => return Ok(written),
                WriteStep::Again => {}
                WriteStep::Wait(folio) => self.wait_while(folio, |flags| flags.locked()),
                WriteStep::Missing { whole } => {
                    missed = true;
                    let task = &Task { cpu: self.cpu(), ..task.clone() };
                    let overwrite = inode.is_overwritten(piece).0;
                    let arrival = Arrival { in_fault: mapped, overwrite, ..Arrival::default() };
                    if !whole {
                        self.fault(inode, task, piece.index, alone(piece.index), arrival)?;
                    } else if let Some(folio) = self.insert_new(inode, task, piece.index, arrival)?
                        && self.write_new_page(inode, piece, bytes, folio)
                    {
                        return Ok(Written::Missed);
                    }
                }
            }
        }
    }

    /// Tries [`Self::write_page`] without waiting.
    pub(crate) fn try_write_page(
        &self,
        inode: &Inode,
        task: &Task,
        piece: &Piece,
        bytes: &[u8],
        mapped: bool,
    ) -> WriteStep {
        let hit = match self.core.lookup(&inode.mapping, piece.index) {
            Lookup::Hit(hit) => hit,
            Lookup::Pending(folio) => return WriteStep::Wait(folio),
            Lookup::Miss => return WriteStep::Missing { whole: inode.is_overwritten(piece).1 && !mapped },
        };
        if hit.flags.lent() {
            // Without the lock, whose release wakes all that wait for the folio: two tasks that
            // wait for one guard would wake each other for as long as it lives.
            return match self.core.try_get(&inode.mapping, piece.index, &hit) {
                true => WriteStep::Done(Written::Lent(hit.folio)),
                false => WriteStep::Again,
            };
        }
        // Each locked step waits until earlier bytes are written: without this, they would
        // come from memory one step after the other.
        self.frames.prefetch_for_write(hit.folio.0, piece.in_page.clone());
        match self.core.begin_write(&self.host, &inode.mapping, piece.index, &hit) {
            WriteAttempt::Gone | WriteAttempt::Lent => return WriteStep::Again,
            WriteAttempt::Busy => return WriteStep::Wait(hit.folio),
            WriteAttempt::Begun => {}
        }
        if mapped {
            // Before the content gets a new version, which would make `hit` stale.
            self.core.touch(task, &inode.mapping, piece.index, &hit);
        }
        self.frames.copy_in(hit.folio.0, piece.in_page.start, bytes);
        inode.grow_to(piece.end());
        if self.core.end_write(&self.host, &inode.mapping, hit.folio) {
            self.note_dirtied();
        }
        WriteStep::Done(Written::Hit)
    }

    /// Fills a page that was inserted for a write that replaces its whole content. `false`: it does
    /// not any more, because another thread extended the file while this one waited for memory, and
    /// that thread's page may have been evicted again.
    pub(crate) fn write_new_page(&self, inode: &Inode, piece: &Piece, bytes: &[u8], folio: FolioId) -> bool {
        if !inode.is_overwritten(piece).1 {
            self.core.abandon(&self.host, &inode.mapping, folio);
            return false;
        }
        self.frames.zero(folio.0, 0..piece.in_page.start);
        self.frames.copy_in(folio.0, piece.in_page.start, bytes);
        self.frames.zero(folio.0, piece.in_page.end..PAGE_BYTES as usize);
        inode.grow_to(piece.end());
        self.lock_inserted(inode, piece.index, &[folio]);
        self.core.end_filling(&inode.mapping, folio);
        self.dirty_and_unlock(inode, folio);
        true
    }

    /// Marks a folio dirty that the caller wrote to, and releases the caller's lock on it.
    pub(crate) fn dirty_and_unlock(&self, inode: &Inode, folio: FolioId) {
        if self.core.set_dirty(&self.host, &inode.mapping, folio) {
            self.note_dirtied();
        }
        self.core.unlock(&self.host, folio);
    }
}

impl fmt::Debug for CachedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedFile")
            .field("path", &self.path())
            .field("len", &self.len())
            .field("tenant", &self.tenant.path())
            .field("writable", &self.writable)
            .finish_non_exhaustive()
    }
}
