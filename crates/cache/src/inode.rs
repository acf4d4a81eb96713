//! A file as the cache sees it, shared by all open handles.
//!
//! # Length
//!
//! Readers see the cache's length; the file on disk follows when dirty pages are written. A hit
//! does not ask the system whether another process changed the file. [`Inode::revalidate`] detects
//! that when a read reaches the end or finds less on disk than before, and at every sync and open.
//! Pages for which a read found less are suspect until the length is known, and are dropped then.
//! While writers are active, detection may be left to a later read. Readers wait for one another.
//!
//! The part of the last page behind the end of the file reads as zero, in memory and on disk,
//! because the file may grow over it.
//!
//! # Write-back errors
//!
//! Errors are numbered in an [`ErrorSequence`]. Each handle remembers up to which number it has
//! reported errors.
//!
//! # Locking
//!
//! Writers hold `resize` shared; a thread that changes the length holds it exclusively; readers
//! take no lock. It comes before every other lock but `opening`. No thread that holds it waits for
//! guards, because the thread with the guard may write first. `transfers` and `errors` are leaves;
//! `maps` comes before the core's locks.

use crate::backend::{BackendFile, FileIdentity};
use crate::error::Error;
use crate::piece::Piece;
use crate::resize::ResizeLock;
use crate::source::refuse_in_own_call;
use mglru_core::readahead::{DEFAULT_MAX_PAGES, Window};
use mglru_core::writeback::ErrorSequence;
use mglru_core::{HostCharge, Mapping, MappingId, MemcgId, PAGE_BYTES, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The end of the largest file: 2^32 pages.
pub(crate) const LEN_MAX: u64 = PAGE_BYTES << 32;

/// The largest block of a source that a miss brings in whole: 16 MiB.
const BLOCK_PAGES_MAX: u32 = 4096;

/// Write-back errors of a file.
#[derive(Debug, Default)]
struct Errors {
    sequence: ErrorSequence,
    last: Option<(Failed, Arc<io::Error>)>,
    /// The last failure of a sync, and the number of errors with it.
    last_sync: Option<(u64, Arc<io::Error>)>,
}

impl Errors {
    /// The error to report if there were more than `count`. After a failed sync, written data may
    /// be lost, so that is reported even if pages could not be written since: those are dirty.
    fn worst_since(&self, count: u64) -> Option<(Failed, Arc<io::Error>)> {
        match &self.last_sync {
            Some((number, error)) if *number > count => Some((Failed::Sync, error.clone())),
            _ => self.last.clone().filter(|_| self.sequence.count() > count),
        }
    }
}

/// The operation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// Writing pages; they stay dirty.
    WriteBack,
    /// Syncing written data to stable storage.
    Sync,
}

/// Write-back of this file in progress.
#[derive(Debug, Default)]
struct Transfers {
    next: u64,
    under_way: BTreeSet<u64>,
    /// Set by a truncation until the file system has answered; no write-back starts meanwhile.
    held: bool,
}

impl Transfers {
    fn begin(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        self.under_way.insert(number);
        number
    }
}

/// Ranges of pages that are locked in memory, up to the least end of the file since, by number; and
/// the task that pays for their pages.
#[derive(Debug, Default)]
pub(crate) struct Locked {
    pub(crate) next: u64,
    pub(crate) ranges: BTreeMap<u64, (Range<u64>, Task)>,
}

impl Locked {
    /// Whether a range has this page.
    pub(crate) fn has(&self, index: u32) -> bool {
        self.ranges.values().any(|(pages, _)| pages.contains(&u64::from(index)))
    }
}

/// Keeps write-back of a file from starting until dropped. See [`Inode::hold_transfers`].
pub(crate) struct HeldTransfers<'a>(&'a Inode);

impl Drop for HeldTransfers<'_> {
    fn drop(&mut self) {
        self.0.transfers.lock().unwrap_or_else(PoisonError::into_inner).held = false;
        self.0.transferred.notify_all();
    }
}

pub(crate) struct Inode {
    pub(crate) identity: FileIdentity,
    pub(crate) file: Arc<dyn BackendFile>,
    /// Present once a handle was opened for writing.
    pub(crate) writable: Mutex<Option<Arc<dyn BackendFile>>>,
    pub(crate) mapping: Arc<Mapping>,
    /// The length that readers see, in bytes.
    len: AtomicU64,
    /// The length of the file on disk when this cache last checked or wrote it.
    disk_len: AtomicU64,
    /// The length that another process has given the file, while it is being adopted; or 0.
    pub(crate) growing_to: AtomicU64,
    pub(crate) resize: ResizeLock,
    /// The preferred size of reads, in pages.
    block_pages: u32,
    /// Number of open handles and maps.
    pub(crate) handles: AtomicU32,
    /// The file was opened again after its last handle was closed: its pages may be out of date.
    pub(crate) stale: AtomicBool,
    /// Held while a changed length is adopted, or outdated pages of a file that is opened again are
    /// dropped.
    pub(crate) opening: Mutex<()>,
    /// Number of live maps per tenant.
    maps: Mutex<BTreeMap<MemcgId, u32>>,
    /// Ranges of pages that are locked in memory.
    locked: Mutex<Locked>,
    /// At least the number of these, without the lock.
    pub(crate) locked_count: AtomicU32,
    /// Upper half: the number of times that a read found less on disk than expected, or a
    /// revalidation was postponed. Lower half: how many of these are cleared up, as the length is
    /// known. One word, so that no look falls between two.
    suspicions: AtomicU64,
    /// Pages for which reads found too little, and which may have zeros that are not in the file;
    /// and the number of these reads.
    short_reads: Mutex<(Range<u64>, u32)>,
    /// The file on disk may be shorter than its length here: a truncation is under way.
    pub(crate) being_cut: AtomicBool,
    /// Whether the last write-back failed.
    failing: AtomicBool,
    /// None until the first error: most files have none, and pay for their inode.
    errors: Mutex<Option<Box<Errors>>>,
    transfers: Mutex<Transfers>,
    transferred: Condvar,
    /// Actions that tests run before a thread looks at the length, and afterwards.
    #[cfg(test)]
    pub(crate) looks: [crate::tests::Acts; 2],
}

#[derive(Default)]
pub(crate) struct Inodes {
    /// With what is charged for each.
    by_identity: BTreeMap<FileIdentity, (Arc<Inode>, HostCharge)>,
    by_mapping: BTreeMap<MappingId, Arc<Inode>>,
}

impl Inodes {
    /// The file with this backend identity.
    pub(crate) fn find(&self, identity: FileIdentity) -> Option<&Arc<Inode>> {
        self.by_identity.get(&identity).map(|(inode, _)| inode)
    }

    /// The file with this mapping.
    pub(crate) fn of_mapping(&self, mapping: MappingId) -> Option<Arc<Inode>> {
        self.by_mapping.get(&mapping).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.by_identity.values().map(|(inode, _)| inode.clone()).collect()
    }

    /// Adds a file, for which `charge` was made.
    pub(crate) fn insert(&mut self, inode: &Arc<Inode>, charge: HostCharge) {
        self.by_identity.insert(inode.identity, (inode.clone(), charge));
        self.by_mapping.insert(inode.mapping.id(), inode.clone());
    }

    /// Removes a file. Its mapping is closed under the same lock, because the mapping's number may
    /// be reused at once. Returns what is charged for the file.
    pub(crate) fn remove(&mut self, inode: &Inode) -> Option<HostCharge> {
        self.by_mapping.remove(&inode.mapping.id());
        self.by_identity.remove(&inode.identity).map(|(_, charge)| charge)
    }
}

impl Inode {
    pub(crate) fn new(file: Arc<dyn BackendFile>, writable: bool, mapping: Arc<Mapping>, len: u64) -> Inode {
        let block_pages = file.block_pages();
        mapping.set_whole_pages(len / PAGE_BYTES);
        Inode {
            block_pages: block_pages.min(u64::from(BLOCK_PAGES_MAX)) as u32,
            identity: file.identity(),
            writable: Mutex::new(writable.then(|| file.clone())),
            file,
            resize: ResizeLock::new(mapping.id().0.into()),
            mapping,
            len: AtomicU64::new(len),
            disk_len: AtomicU64::new(len),
            growing_to: AtomicU64::new(0),
            handles: AtomicU32::new(0),
            stale: AtomicBool::new(false),
            opening: Mutex::new(()),
            maps: Mutex::default(),
            suspicions: AtomicU64::new(0),
            short_reads: Mutex::default(),
            being_cut: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            locked: Mutex::default(),
            locked_count: AtomicU32::new(0),
            errors: Mutex::default(),
            transfers: Mutex::default(),
            transferred: Condvar::new(),
            #[cfg(test)]
            looks: Default::default(),
        }
    }

    /// Whether a write replaces all that its page has, that is, all bytes or those up to the end of
    /// the file; and whether the page need not be read, also because the file ends before it.
    pub(crate) fn is_overwritten(&self, piece: &Piece) -> (bool, bool) {
        let len = self.len().max(self.disk_len());
        let whole =
            piece.in_page.start == 0 && (piece.end().is_multiple_of(PAGE_BYTES) || piece.end() >= len);
        (whole, whole || piece.start() >= len)
    }

    /// The largest readahead window, in pages.
    pub(crate) fn pages_ahead_max(&self) -> u32 {
        DEFAULT_MAX_PAGES.max(2 * self.block_pages)
    }

    /// The most pages of one request that its first miss brings in together.
    pub(crate) fn request_pages_max(&self) -> u32 {
        if self.block_pages == 1 { self.pages_ahead_max() } else { BLOCK_PAGES_MAX }
    }

    /// Extends a window to whole blocks.
    pub(crate) fn whole_blocks(&self, window: Window) -> Window {
        if self.block_pages == 1 {
            return window;
        }
        let block = u64::from(self.block_pages);
        let first = u64::from(window.first) / block * block;
        let end = (u64::from(window.first) + u64::from(window.pages)).next_multiple_of(block);
        Window { first: first as u32, pages: (end - first) as u32, mark: window.mark }
    }

    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.look(|| self.len.load(Ordering::Acquire))
    }

    /// Whether a page lies wholly inside the file.
    #[inline(always)]
    pub(crate) fn has_whole_page(&self, page: u64) -> bool {
        self.look(|| self.mapping.has_whole_page(page))
    }

    #[cfg(not(test))]
    #[inline(always)]
    fn look<T>(&self, look: impl FnOnce() -> T) -> T {
        look()
    }

    #[cfg(test)]
    fn look<T>(&self, look: impl FnOnce() -> T) -> T {
        self.looks[0].next();
        let seen = look();
        self.looks[1].next();
        seen
    }

    pub(crate) fn set_len(&self, bytes: u64) {
        self.len.store(bytes, Ordering::Release);
        self.mapping.set_whole_pages(bytes / PAGE_BYTES);
        if self.locked_count.load(Ordering::Relaxed) > 0 {
            let pages = bytes.div_ceil(PAGE_BYTES);
            self.locked().ranges.values_mut().for_each(|(range, _)| range.end = range.end.min(pages));
        }
    }

    /// Extends the length to `end` after a write.
    pub(crate) fn grow_to(&self, end: u64) {
        // Most writes are inside of the file, and writers of one file share this word.
        if self.len() < end {
            self.len.fetch_max(end, Ordering::AcqRel);
            self.mapping.grow_whole_pages(end / PAGE_BYTES);
        }
    }

    pub(crate) fn set_disk_len(&self, bytes: u64) {
        self.disk_len.store(bytes, Ordering::Release);
    }

    /// Records that write-back extended the file on disk to at least `end`.
    pub(crate) fn disk_len_reached(&self, end: u64) {
        self.disk_len.fetch_max(end, Ordering::AcqRel);
    }

    pub(crate) fn disk_len(&self) -> u64 {
        self.disk_len.load(Ordering::Acquire)
    }

    /// The descriptor for writing.
    pub(crate) fn writable(&self) -> Option<Arc<dyn BackendFile>> {
        self.writable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn error(&self, doing: &'static str, source: io::Error) -> Error {
        Error::io(doing, self.file.path(), source)
    }

    /// Fails in the call of the file's own source that reads its ranges. Asked before a wait for a
    /// page.
    pub(crate) fn refuse_in_own_call(&self) -> Result<(), Error> {
        refuse_in_own_call(&self.file).map_err(|source| self.error("read", source))
    }

    fn errors(&self) -> MutexGuard<'_, Option<Box<Errors>>> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_error(&self, failed: Failed, error: io::Error) {
        let mut errors = self.errors();
        let errors = errors.get_or_insert_default();
        errors.sequence.note();
        let error = Arc::new(error);
        if failed == Failed::Sync {
            errors.last_sync = Some((errors.sequence.count(), error.clone()));
        }
        errors.last = Some((failed, error));
    }

    /// Records the result of write-back.
    pub(crate) fn note_writeback(&self, written: bool) {
        self.failing.store(!written, Ordering::Release);
    }

    /// The error of the last write-back, if it failed.
    pub(crate) fn failing(&self) -> Option<Error> {
        let failing = self.failing.load(Ordering::Acquire);
        let (_, source) = self.last_error().filter(|_| failing)?;
        Some(Error::WriteBack { path: self.file.path().to_owned(), source })
    }

    /// How many errors a new handle treats as already reported: all, unless no handle has reported
    /// the last one.
    pub(crate) fn errors_reported(&self) -> u64 {
        self.errors().as_ref().map_or(0, |errors| errors.sequence.reported_at_open())
    }

    /// Number of errors so far.
    pub(crate) fn error_count(&self) -> u64 {
        self.errors().as_ref().map_or(0, |errors| errors.sequence.count())
    }

    /// Returns the worst error that a handle has not reported yet and marks all as reported.
    pub(crate) fn unreported_error(&self, reported: &AtomicU64) -> Option<Error> {
        let mut errors = self.errors();
        let errors = errors.as_mut()?;
        // Changes under the lock only.
        let mut known = reported.load(Ordering::Acquire);
        let worst = errors.worst_since(known);
        if !errors.sequence.report(&mut known) {
            return None;
        }
        reported.store(known, Ordering::Release);
        worst.map(|worst| self.error_of(worst))
    }

    /// The worst error after the first `count`, reported or not.
    pub(crate) fn error_since(&self, count: u64) -> Option<Error> {
        let worst = self.errors().as_ref()?.worst_since(count);
        worst.map(|worst| self.error_of(worst))
    }

    fn error_of(&self, (failed, source): (Failed, Arc<io::Error>)) -> Error {
        let path = self.file.path().to_owned();
        match failed {
            Failed::WriteBack => Error::WriteBack { path, source },
            Failed::Sync => Error::Io { doing: "sync", path, source },
        }
    }

    /// The last error, reported or not.
    pub(crate) fn last_error(&self) -> Option<(Failed, Arc<io::Error>)> {
        self.errors().as_ref()?.last.clone()
    }

    /// Registers write-back that is about to take pages. Sleeps while transfers are held.
    pub(crate) fn begin_transfer(&self) -> u64 {
        let transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.transferred.wait_while(transfers, |transfers| transfers.held);
        free.unwrap_or_else(PoisonError::into_inner).begin()
    }

    /// As [`Self::begin_transfer`]. `None`: transfers are held.
    pub(crate) fn try_begin_transfer(&self) -> Option<u64> {
        let mut transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        (!transfers.held).then(|| transfers.begin())
    }

    pub(crate) fn end_transfer(&self, number: u64) {
        let mut transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        transfers.under_way.remove(&number);
        drop(transfers);
        self.transferred.notify_all();
    }

    pub(crate) fn has_transfers(&self) -> bool {
        !self.transfers.lock().unwrap_or_else(PoisonError::into_inner).under_way.is_empty()
    }

    /// As [`Self::wait_for_transfers`], without sleeping. `None`: write-back is under way.
    pub(crate) fn begun_if_idle(&self) -> Option<u64> {
        let transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        transfers.under_way.is_empty().then_some(transfers.next)
    }

    /// Sleeps until all write-back in progress has ended, not counting what starts later. Returns
    /// the number of write-backs started so far.
    pub(crate) fn wait_for_transfers(&self) -> u64 {
        let transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        let end = transfers.next;
        let ended =
            self.transferred.wait_while(transfers, |t| t.under_way.first().is_some_and(|&first| first < end));
        drop(ended.unwrap_or_else(PoisonError::into_inner));
        end
    }

    /// Waits for write-back of this file to end and lets none start until the guard is dropped.
    /// Later write-back uses the file's length at that time. The caller holds `resize` exclusively.
    pub(crate) fn hold_transfers(&self) -> HeldTransfers<'_> {
        let mut transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(!transfers.held, "the one that holds `resize` holds them");
        transfers.held = true;
        let ended = self.transferred.wait_while(transfers, |transfers| !transfers.under_way.is_empty());
        drop(ended.unwrap_or_else(PoisonError::into_inner));
        HeldTransfers(self)
    }

    /// Number of write-backs started so far.
    pub(crate) fn transfers_begun(&self) -> u64 {
        self.transfers.lock().unwrap_or_else(PoisonError::into_inner).next
    }

    /// Records that a read up to `end` returned `bytes` of `wanted` bytes.
    pub(crate) fn note_read(&self, end: u64, bytes: usize, wanted: usize) {
        // Less than the known length: another process truncated the file.
        if bytes < wanted && end < self.disk_len().max(self.growing_to.load(Ordering::SeqCst)) {
            let pages = end / PAGE_BYTES..(end + (wanted - bytes) as u64).div_ceil(PAGE_BYTES);
            let mut short = self.short_reads();
            let (before, reads) = &*short;
            let all = before.start.min(pages.start)..before.end.max(pages.end);
            *short = (if before.is_empty() { pages } else { all }, reads.wrapping_add(1));
            drop(short);
            self.suspect();
        }
    }

    /// Whether another process may have changed the file. Asked between the look at a page and the
    /// check that it is unchanged: it is so for as long as there are pages of reads that found less
    /// than expected.
    #[inline(always)]
    pub(crate) fn is_suspect(&self) -> bool {
        let suspicions = self.suspicions.load(Ordering::Relaxed);
        suspicions != suspicions.rotate_left(32)
    }

    /// The number of suspicions so far, if all are cleared up. Bytes that are copied between two
    /// calls that return the same number are of no read that found too little
    /// ([`Self::is_still_unsuspected`]).
    pub(crate) fn unsuspected(&self) -> Option<u32> {
        let suspicions = self.suspicions.load(Ordering::SeqCst);
        (suspicions == suspicions.rotate_left(32)).then_some(suspicions as u32)
    }

    /// Whether nothing was suspect when [`Self::unsuspected`] returned `before`, nor since.
    pub(crate) fn is_still_unsuspected(&self, before: Option<u32>) -> bool {
        before.is_some() && self.unsuspected() == before
    }

    /// Notes that another process may have changed the file.
    pub(crate) fn suspect(&self) {
        self.suspicions.fetch_add(1 << 32, Ordering::SeqCst);
    }

    /// The number of suspicions that [`Self::clear_up`] is to clear up, if there are any.
    #[inline]
    pub(crate) fn suspicions(&self) -> Option<u32> {
        self.is_suspect().then(|| (self.suspicions.load(Ordering::SeqCst) >> 32) as u32)
    }

    /// Ends the first `seen` suspicions.
    pub(crate) fn clear_suspicion(&self, seen: u32) {
        let _ = self.suspicions.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |suspicions| {
            let is_more = seen.wrapping_sub(suspicions as u32).cast_signed() > 0;
            is_more.then_some(suspicions >> 32 << 32 | u64::from(seen))
        });
    }

    fn short_reads(&self) -> MutexGuard<'_, (Range<u64>, u32)> {
        self.short_reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `drop` drop the pages for which reads found too little: another process may have
    /// truncated the file for a while, and it may be as long as before. `false`: `drop` could not.
    pub(crate) fn drop_short_reads(&self, drop: impl FnOnce(Range<u64>) -> bool) -> bool {
        let seen = self.short_reads().clone();
        let is_done = seen.0.is_empty() || drop(seen.0.clone());
        // Not before: other readers drop them, too, before they take the length for known.
        let mut now = self.short_reads();
        if is_done && *now == seen {
            now.0 = 0..0;
        }
        is_done
    }

    pub(crate) fn locked(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn maps(&self) -> MutexGuard<'_, BTreeMap<MemcgId, u32>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
