//! The descriptor path: reading and writing a cached file by offset.
//!
//! A hit copies the bytes out of the frame while nothing is held, and then checks that the page was
//! still there and that nobody wrote to it meanwhile. A writer takes the page's lock and copies in.
//! So a read of bytes within one page sees either all of a write or nothing of it.
//!
//! # Locking
//!
//! `Inode::resize` (writers shared, truncation alone), then one folio lock at a time. Reads take
//! nothing.

use crate::backend::OpenMode;
use crate::error::Error;
use crate::frames::Frames;
use crate::inode::{Failed, Inode, LEN_MAX};
use crate::piece::{Piece, pieces};
use crate::shared::Shared;
use crate::stat::HandleStats;
use crate::tenant::Tenant;
use crate::tenants::TenantState;
use mglru_core::mapping::Glance;
use mglru_core::readahead::{DEFAULT_MAX_PAGES, Readahead, Window, pages_max};
use mglru_core::{Arrival, FolioId, Hit, Kind, LockAttempt, Lookup, Mapping, MemcgId, PAGE_BYTES, Task};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How a file is going to be used (posix_fadvise).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// No advice: readahead adapts.
    Normal,
    /// In order: reads ahead twice as far.
    Sequential,
    /// At random: reads nothing ahead.
    Random,
    /// The range is needed soon: begins to read it.
    WillNeed,
    /// The range is not needed: its clean pages leave, its dirty ones are written and leave next.
    DontNeed,
    /// Once: mapped accesses to it do not protect its pages.
    NoReuse,
}

/// Bytes per file: its mapping, and what this cache and the backend keep about it.
const FILE_BYTES: u64 = (size_of::<Mapping>() + size_of::<Inode>()) as u64 + 512;

/// An open file whose pages are cached.
///
/// A handle may be shared by threads; threads that each have their own (see
/// [`CachedFile::try_clone`]) disturb each other less, and each is recognised as a sequential
/// reader on its own.
pub struct CachedFile {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inode: Arc<Inode>,
    pub(crate) task: Task,
    pub(crate) tenant: Arc<TenantState>,
    writable: bool,
    pub(crate) stats: Arc<HandleStats>,
    /// Page in which the last read ended, plus one. Reading on in the same page is the same access.
    last_page: AtomicU64,
    readahead: Mutex<Readahead>,
    /// Errors of write-back that this handle's user was told about.
    errors_told: AtomicU64,
    random: AtomicBool,
}

impl CachedFile {
    pub(crate) fn new(
        shared: Arc<Shared>,
        inode: Arc<Inode>,
        tenant: Arc<TenantState>,
        writable: bool,
    ) -> CachedFile {
        let errors_told = AtomicU64::new(inode.errors_told());
        CachedFile {
            task: tenant.task(shared.cpu()),
            stats: tenant.new_handle(),
            shared,
            inode,
            tenant,
            writable,
            last_page: AtomicU64::new(0),
            readahead: Mutex::new(Readahead::new(DEFAULT_MAX_PAGES)),
            errors_told,
            random: AtomicBool::new(false),
        }
    }

    /// The path that the file was opened by.
    pub fn path(&self) -> &Path {
        self.inode.file.path()
    }

    /// Whose pages this handle fills.
    pub fn memcg(&self) -> MemcgId {
        self.task.memcg
    }

    /// From now on, pages that this handle brings in are charged to `tenant`. Those that are there
    /// stay where they are charged. Clones and maps of the handle are not moved with it: each is by
    /// itself.
    ///
    /// # Errors
    /// The tenant is another cache's.
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

    /// Length in bytes, as readers of this cache see it.
    pub fn len(&self) -> u64 {
        self.inode.len()
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The task of the calling thread.
    pub(crate) fn task(&self) -> Task {
        Task { cpu: self.shared.cpu(), ..self.task.clone() }
    }

    /// Reads up to `buffer.len()` bytes from `offset`; how many there were. Fewer only at the end
    /// of the file.
    ///
    /// # Errors
    /// The system cannot read a page, or no memory can be freed for it. What was read before is not
    /// reported.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.read(buffer, offset, false)
    }

    /// `begun`: its first page was missing, and began to be read for this request.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64, begun: bool) -> Result<usize, Error> {
        if buffer.is_empty() {
            return Ok(0);
        }
        self.inode.revalidate_if_changed(&self.shared)?;
        let left = || self.inode.len().saturating_sub(offset);
        if buffer.len() as u64 > left() {
            // At the end: perhaps somebody else appended.
            self.inode.revalidate(&self.shared)?;
        }
        let bytes = (buffer.len() as u64).min(left()) as usize;
        if bytes == 0 {
            return Ok(0);
        }
        let last = ((offset + bytes as u64 - 1) / PAGE_BYTES) as u32;
        let before = self.last_page.load(Ordering::Relaxed);
        for piece in pieces(offset, bytes) {
            // Reading on in the page where the last read ended is the same access.
            let again = piece.in_buffer.start == 0 && before == u64::from(piece.index) + 1;
            let request = last - piece.index + 1;
            let missed = begun && piece.in_buffer.start == 0;
            self.read_page(&piece, &mut buffer[piece.in_buffer.clone()], request, again, missed)?;
        }
        if before != u64::from(last) + 1 {
            self.last_page.store(u64::from(last) + 1, Ordering::Relaxed);
        }
        if self.inode.revalidate_if_changed(&self.shared)? {
            // It ended earlier than we knew: what was read behind the end is not there.
            return Ok((bytes as u64).min(left()) as usize);
        }
        Ok(bytes)
    }

    /// Reads a part of one page. `request` pages are wanted from it on; `again`: it is the page in
    /// which the last read ended; `missed`: it is counted as a miss, although it may be there by
    /// now.
    #[inline]
    fn read_page(
        &self,
        piece: &Piece,
        out: &mut [u8],
        request: u32,
        again: bool,
        missed: bool,
    ) -> Result<(), Error> {
        if self.copy_cached(piece.index, piece.in_page.start, out, again, missed) {
            return Ok(());
        }
        self.read_page_slowly(piece, out, request, again, missed)
    }

    /// Copies bytes out of a page that is in memory, and counts the access. `false`: it is not
    /// there, is being changed, or asks for more to be read.
    #[inline]
    pub(crate) fn copy_cached(
        &self,
        index: u32,
        in_page: usize,
        out: &mut [u8],
        again: bool,
        missed: bool,
    ) -> bool {
        let Some(seen) = self.glance(index) else { return false };
        if !seen.is_readable() || seen.readahead() {
            return false;
        }
        self.shared.frames.copy_out(seen.folio().0, in_page, out);
        if !seen.still() {
            return false;
        }
        if !again {
            let shared = &*self.shared;
            shared.core.accessed_glance(&shared.host, || shared.cpu(), &seen);
        }
        self.stats.count(missed);
        true
    }

    /// What the slot tells of a page.
    #[inline]
    pub(crate) fn glance(&self, index: u32) -> Option<Glance<'_>> {
        self.shared.core.glance(&self.inode.mapping, index)
    }

    /// As [`Self::read_page`], where the page is missing, being changed, or asks for more to be
    /// read.
    #[cold]
    fn read_page_slowly(
        &self,
        piece: &Piece,
        out: &mut [u8],
        request: u32,
        again: bool,
        mut missed: bool,
    ) -> Result<(), Error> {
        let shared = &*self.shared;
        let mapping = &*self.inode.mapping;
        loop {
            match shared.core.lookup(mapping, piece.index) {
                Lookup::Hit(hit) => {
                    shared.frames.copy_out(hit.folio.0, piece.in_page.start, out);
                    if !shared.core.confirm(mapping, piece.index, &hit) {
                        continue;
                    }
                    if !again {
                        shared.core.accessed(&shared.host, || shared.cpu(), &hit);
                    }
                    if hit.readahead() {
                        self.continue_readahead(piece.index, &hit);
                    }
                    self.stats.count(missed);
                    return Ok(());
                }
                Lookup::Pending(folio) => shared.wait_for_content(folio),
                Lookup::Miss => {
                    missed = true;
                    self.read_miss(piece.index, request)?;
                }
            }
        }
    }

    #[cold]
    fn read_miss(&self, index: u32, request: u32) -> Result<(), Error> {
        let window = {
            let mut readahead = self.readahead.lock().unwrap_or_else(PoisonError::into_inner);
            let window = readahead.on_miss(index, request.min(DEFAULT_MAX_PAGES));
            readahead.note_read(index, request);
            window
        };
        self.shared.fault(&self.inode, &self.task(), index, window, Arrival::default())
    }

    /// What a miss through a map brings.
    pub(crate) fn window_of_fault(&self, index: u32) -> Window {
        self.readahead.lock().unwrap_or_else(PoisonError::into_inner).on_fault(index)
    }

    /// A load through a map found a page in memory that had no entry, or that asks for more to be
    /// read.
    #[cold]
    pub(crate) fn note_mapped(&self, index: u32, hit: &Hit) {
        self.readahead.lock().unwrap_or_else(PoisonError::into_inner).note_mapped(1);
        if hit.readahead() {
            self.continue_readahead(index, hit);
        }
    }

    #[cold]
    fn continue_readahead(&self, index: u32, hit: &Hit) {
        if self.random.load(Ordering::Relaxed)
            || !self.shared.core.take_readahead_mark(&self.inode.mapping, index, hit)
        {
            return;
        }
        let window = {
            let mut readahead = self.readahead.lock().unwrap_or_else(PoisonError::into_inner);
            readahead.note_read(index, 1);
            readahead.on_mark(index)
        };
        if let Some(window) = window {
            self.shared.read_ahead(&self.inode, &self.task(), window);
        }
    }

    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.writable { Ok(()) } else { Err(Error::ReadOnly { path: self.path().to_owned() }) }
    }

    /// Writes all of `bytes` at `offset`; the file grows as needed. They are in memory when this
    /// returns, and in the file after a successful sync.
    ///
    /// # Errors
    /// The handle is read-only, the end is beyond 16 TiB, a page that is written in part cannot be
    /// read, no memory can be freed, or pages cannot be written back fast enough because writing
    /// fails. What was written before stays.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Error> {
        self.check_writable()?;
        let end = offset.saturating_add(bytes.len() as u64);
        if end > LEN_MAX {
            return Err(Error::TooLarge { path: self.path().to_owned(), end });
        }
        for piece in pieces(offset, bytes.len()) {
            self.write_piece(&piece, &bytes[piece.in_buffer.clone()], false)?;
        }
        Ok(bytes.len())
    }

    /// One page's part of a write.
    pub(crate) fn write_piece(&self, piece: &Piece, bytes: &[u8], mapped: bool) -> Result<(), Error> {
        let task = self.task();
        self.shared.pause_dirtying(task.memcg)?;
        let _shared = self.inode.resize.read().unwrap_or_else(PoisonError::into_inner);
        let (end, len) = (u64::from(piece.index) * PAGE_BYTES + piece.in_page.end as u64, self.inode.len());
        if mapped && end > len {
            // Cut since the range was checked. A store does not make the file longer.
            return Err(Error::BeyondEnd { path: self.path().to_owned(), end, len });
        }
        if self.shared.write_page(&self.inode, &task, piece, bytes, mapped)? {
            self.stats.miss();
        } else if !mapped {
            self.stats.hit();
        }
        Ok(())
    }

    /// Writes this file's dirty pages and waits until they, and what it takes to find them, are on
    /// stable storage.
    ///
    /// # Errors
    /// A page could not be written, now or since the last sync of this handle
    /// ([`Error::WriteBack`]; it stays in memory and is tried again), or the device cannot sync.
    pub fn sync_data(&self) -> Result<(), Error> {
        self.sync(false)
    }

    /// As [`Self::sync_data`], with all of the file's metadata.
    ///
    /// # Errors
    /// As [`Self::sync_data`].
    pub fn sync_all(&self) -> Result<(), Error> {
        self.sync(true)
    }

    fn sync(&self, all: bool) -> Result<(), Error> {
        // Before our pages extend a file that somebody else cut: afterwards nothing would tell.
        self.inode.revalidate(&self.shared)?;
        self.shared.write_out(&self.inode);
        let file = self.inode.writable().unwrap_or_else(|| self.inode.file.clone());
        if let Err(error) = if all { file.sync_all() } else { file.sync_data() } {
            // The system tells it once; all our handles are to hear of it.
            self.inode.note_error(Failed::Sync, error);
        }
        match self.inode.untold_error(&self.errors_told) {
            Some(error) => Err(error),
            None => self.inode.revalidate(&self.shared),
        }
    }

    /// Cuts the file to `len` bytes, or extends it with zeroes. Pages beyond the end are dropped,
    /// with what was written to them.
    ///
    /// # Errors
    /// The handle is read-only, `len` is beyond 16 TiB, or the system refuses.
    pub fn truncate(&self, len: u64) -> Result<(), Error> {
        self.check_writable()?;
        if len > LEN_MAX {
            return Err(Error::TooLarge { path: self.path().to_owned(), end: len });
        }
        let file = self.inode.writable().expect("a writable handle opened it");
        let _alone = self.inode.resize.write().unwrap_or_else(PoisonError::into_inner);
        let before = self.inode.len();
        // Write-back is planned with the length: none may begin with a length that the file system
        // can still refuse, or end after the file was cut.
        let held = self.inode.hold_transfers();
        file.set_len(len).map_err(|source| self.inode.error("truncate", source))?;
        self.inode.set_disk_len(len);
        self.inode.set_len(len);
        drop(held);
        if len < before {
            // Only now: a page that is read before the file is cut brings back what is cut off.
            self.shared.drop_pages(&self.inode, len.div_ceil(PAGE_BYTES));
            self.shared.zero_tail(&self.inode, len);
        }
        Ok(())
    }

    /// Tells how the bytes in `range` (or the whole file, for advice about all of it) will be used.
    ///
    /// # Errors
    /// None today; a later version may refuse. A dirty page that cannot be written
    /// ([`Advice::DontNeed`]) is told by the next sync.
    pub fn advise(&self, advice: Advice, range: Range<u64>) -> Result<(), Error> {
        let end = range.end.min(self.len()).div_ceil(PAGE_BYTES);
        let first = (range.start / PAGE_BYTES).min(u64::from(u32::MAX)) as u32;
        match advice {
            Advice::Normal => self.set_pages_ahead_max(DEFAULT_MAX_PAGES),
            Advice::Sequential => self.set_pages_ahead_max(2 * DEFAULT_MAX_PAGES),
            Advice::Random => self.set_pages_ahead_max(0),
            Advice::NoReuse => self.inode.mapping.set_recency(false),
            Advice::WillNeed => {
                let task = self.task();
                // More than that would push out what it brought itself.
                let end = end.min(u64::from(first) + pages_max(&self.shared.core, task.memcg));
                let mut at = u64::from(first);
                while at < end {
                    let pages = (end - at).min(u64::from(DEFAULT_MAX_PAGES));
                    let window = Window { first: at as u32, pages: pages as u32, mark: None };
                    self.shared.read_ahead(&self.inode, &task, window);
                    at += pages;
                }
            }
            Advice::DontNeed => {
                self.shared.submit_dirty_in(&self.inode, first, end);
                self.shared.core.invalidate(
                    &self.shared.host,
                    &self.inode.mapping,
                    first,
                    end,
                    self.task().cpu,
                );
            }
        }
        Ok(())
    }

    /// Another handle on the same file, with the same advice, its own place in the file for
    /// sequential reading, and its own account of which errors it told.
    pub fn try_clone(&self) -> CachedFile {
        self.inode.handles.fetch_add(1, Ordering::AcqRel);
        let clone =
            CachedFile::new(self.shared.clone(), self.inode.clone(), self.tenant.clone(), self.writable);
        clone.set_pages_ahead_max(self.readahead.lock().unwrap_or_else(PoisonError::into_inner).max_pages());
        clone
    }

    fn set_pages_ahead_max(&self, pages: u32) {
        self.random.store(pages == 0, Ordering::Relaxed);
        self.readahead.lock().unwrap_or_else(PoisonError::into_inner).set_max_pages(pages);
    }
}

impl Tenant {
    /// Opens a file whose pages, as far as they are read or written first through this handle, this
    /// tenant pays for. Handles on the same file share its pages, whichever tenants they belong to.
    ///
    /// Pages stay in memory while some handle is open; after the last is closed, dirty pages are
    /// written and the file is forgotten, so that opening it again sees what others did to it.
    ///
    /// # Errors
    /// The system refuses to open it, it is beyond 16 TiB, the cache was closed, or there is no
    /// memory for what is kept about an open file.
    pub fn open(&self, path: &Path, mode: OpenMode) -> Result<CachedFile, Error> {
        let shared = self.shared();
        let fail = |source| Error::io("open", path, source);
        let file = shared.backend.open(path, mode).map_err(fail)?;
        if shared.stopping.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        let len = file.len().map_err(fail)?;
        if len > LEN_MAX {
            return Err(Error::TooLarge { path: path.to_owned(), end: len });
        }
        let writable = mode != OpenMode::ReadOnly;
        let mut was_idle = false;
        let inode = {
            let mut inodes = shared.lock_inodes();
            let inode = match inodes.find(file.identity()) {
                Some(inode) => {
                    if writable {
                        let mut known = inode.writable.lock().unwrap_or_else(PoisonError::into_inner);
                        known.get_or_insert(file);
                    }
                    inode.clone()
                }
                None => {
                    let mapping = shared.core.open_mapping_with(Kind::File, FILE_BYTES);
                    let inode = Arc::new(Inode::new(file, writable, mapping, len));
                    inodes.insert(&inode);
                    inode
                }
            };
            was_idle |= inode.handles.fetch_add(1, Ordering::AcqRel) == 0;
            inode
        };
        let handle = CachedFile::new(shared.clone(), inode.clone(), self.state().clone(), writable);
        shared.pay_for_index(&handle.task)?;
        if was_idle {
            // It was about to be forgotten; what is left of it may be out of date.
            shared.drop_clean_pages(&inode, 0);
        }
        inode.revalidate(shared)?;
        Ok(handle)
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        self.tenant.close_handle(&self.stats);
        if self.inode.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Dirty pages are left to the flusher, which then forgets the file.
            self.shared.host.flusher.ring();
            self.shared.forget_if_idle(&self.inode);
        }
    }
}

impl Shared {
    /// Copies bytes into one page and makes it dirty. `true`: it was not in memory. `mapped`: it is
    /// an access through a mapping.
    pub(crate) fn write_page(
        &self,
        inode: &Arc<Inode>,
        task: &Task,
        piece: &Piece,
        bytes: &[u8],
        mapped: bool,
    ) -> Result<bool, Error> {
        let mut missed = false;
        let start = u64::from(piece.index) * PAGE_BYTES;
        let (from, end) = (piece.in_page.start, piece.in_page.end);
        loop {
            match self.core.lookup(&inode.mapping, piece.index) {
                Lookup::Hit(hit) => match self.core.try_lock(&self.host, &inode.mapping, piece.index, &hit) {
                    LockAttempt::Gone => {}
                    LockAttempt::Busy => self.wait_while(hit.folio, |flags| flags.locked()),
                    LockAttempt::Locked => {
                        if mapped {
                            // Before the content gets a new version, which the hit would not be of.
                            self.core.touch(task, &inode.mapping, piece.index, &hit);
                        }
                        self.change(inode, hit.folio, |frames| frames.copy_in(hit.folio.0, from, bytes));
                        inode.grow_to(start + end as u64);
                        self.dirty_and_unlock(inode, hit.folio);
                        self.core.put(&self.host, hit.folio);
                        return Ok(missed);
                    }
                },
                Lookup::Pending(folio) => self.wait_while(folio, |flags| flags.locked()),
                Lookup::Miss => {
                    missed = true;
                    // Nothing of the page's old content is left, or there is none: it need not be
                    // read.
                    let is_whole = || {
                        let len = inode.len().max(inode.disk_len());
                        let whole = from == 0 && (end as u64 == PAGE_BYTES || start + end as u64 >= len);
                        (whole, whole || start >= len)
                    };
                    let (overwrite, whole) = is_whole();
                    let arrival = Arrival { in_fault: mapped, overwrite, ..Arrival::default() };
                    if whole && !mapped {
                        let Some(folio) = self.insert_new(inode, task, piece.index, arrival)? else {
                            continue;
                        };
                        if !is_whole().1 {
                            // Others wrote beyond while memory was short, and their page may have
                            // come and gone.
                            self.core.abandon(&self.host, &inode.mapping, folio);
                            continue;
                        }
                        self.frames.zero(folio.0, 0..from);
                        self.frames.copy_in(folio.0, from, bytes);
                        self.frames.zero(folio.0, end..PAGE_BYTES as usize);
                        inode.grow_to(start + end as u64);
                        self.core.end_filling(&inode.mapping, folio);
                        self.dirty_and_unlock(inode, folio);
                        return Ok(true);
                    }
                    let window = Window { first: piece.index, pages: 1, mark: None };
                    self.fault(inode, task, piece.index, window, arrival)?;
                }
            }
        }
    }

    /// Changes the bytes of a folio whose lock the caller holds, once nobody has them borrowed.
    fn change(&self, inode: &Inode, folio: FolioId, write: impl FnOnce(&Frames)) {
        self.begin_change(inode, folio);
        write(&self.frames);
        self.core.end_content(&inode.mapping, folio);
    }

    /// The caller wrote to a folio whose lock it holds: it is dirty now, and unlocked.
    pub(crate) fn dirty_and_unlock(&self, inode: &Inode, folio: FolioId) {
        if self.core.set_dirty(&self.host, &inode.mapping, folio) {
            self.note_dirtied();
        }
        self.core.unlock(&self.host, folio);
    }

    /// Zeroes what is cached of the page in which the file ends, behind its end, as the disk does
    /// where the file was cut.
    fn zero_tail(&self, inode: &Arc<Inode>, len: u64) {
        let tail = (len % PAGE_BYTES) as usize;
        let Ok(index) = u32::try_from(len / PAGE_BYTES) else { return };
        if tail == 0 {
            return;
        }
        loop {
            match self.core.lookup(&inode.mapping, index) {
                Lookup::Miss => return,
                Lookup::Pending(folio) => self.wait_while(folio, |flags| flags.locked()),
                Lookup::Hit(hit) => match self.core.try_lock(&self.host, &inode.mapping, index, &hit) {
                    LockAttempt::Gone => {}
                    LockAttempt::Busy => self.wait_while(hit.folio, |flags| flags.locked()),
                    LockAttempt::Locked => {
                        self.change(inode, hit.folio, |frames| {
                            frames.zero(hit.folio.0, tail..PAGE_BYTES as usize)
                        });
                        self.core.unlock(&self.host, hit.folio);
                        self.core.put(&self.host, hit.folio);
                        return;
                    }
                },
            }
        }
    }
}
