//! One file as the cache sees it, shared by all handles that are open on it.
//!
//! # Length
//!
//! The cache's length is what readers see; the file on disk follows when dirty pages are written. A
//! cached page is served without asking the system whether somebody else changed the file; that is
//! noticed when a read reaches the end or finds less on disk than there was, and at every sync and
//! open ([`Inode::revalidate`]). While others write, this may have to wait for a later read.
//!
//! Behind the end, the page in which the file ends reads zero, in memory as on disk: the file may
//! grow over it.
//!
//! # Write-back errors
//!
//! Counted in a sequence ([`ErrorSequence`]). Each handle remembers up to where it has told its
//! user.
//!
//! # Locking
//!
//! `resize` is held shared by writers and alone by whoever changes the length; readers take
//! nothing. It comes before every other lock. A writer keeps it while it waits for guards, so only
//! those wait for it who may wait for guards themselves: writers and truncation. `transfers` and
//! `errors` are leaves; `maps` comes before the core's locks.

use crate::backend::{BackendFile, FileIdentity};
use crate::error::Error;
use mglru_core::writeback::ErrorSequence;
use mglru_core::{Mapping, MappingId, MemcgId, PAGE_BYTES};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

/// The end of the largest file: 2^32 pages.
pub(crate) const LEN_MAX: u64 = PAGE_BYTES << 32;

/// Errors of write-back.
#[derive(Debug, Default)]
struct Errors {
    sequence: ErrorSequence,
    last: Option<(Failed, Arc<io::Error>)>,
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// Writing pages; they are still dirty.
    WriteBack,
    /// Bringing what was written to stable storage.
    Sync,
}

/// Write-back of this file that is under way.
#[derive(Debug, Default)]
struct Transfers {
    next: u64,
    under_way: BTreeSet<u64>,
    /// A truncation waits for the file system's answer: no write-back begins before it is there.
    held: bool,
}

/// Keeps write-back of a file from beginning until it is dropped. See [`Inode::hold_transfers`].
pub(crate) struct HeldTransfers<'a>(&'a Inode);

impl Drop for HeldTransfers<'_> {
    fn drop(&mut self) {
        self.0.transfers.lock().unwrap_or_else(PoisonError::into_inner).held = false;
        self.0.transferred.notify_all();
    }
}

/// A file and its mapping.
pub(crate) struct Inode {
    pub(crate) identity: FileIdentity,
    pub(crate) file: Arc<dyn BackendFile>,
    /// Present once some handle may write.
    pub(crate) writable: Mutex<Option<Arc<dyn BackendFile>>>,
    pub(crate) mapping: Arc<Mapping>,
    /// Length that readers see, in bytes.
    len: AtomicU64,
    /// Length that the file on disk had when this cache looked or wrote last.
    disk_len: AtomicU64,
    pub(crate) resize: RwLock<()>,
    /// Open handles and maps.
    pub(crate) handles: AtomicU32,
    /// Live maps of each tenant.
    maps: Mutex<BTreeMap<MemcgId, u32>>,
    /// A read found less on disk than there was, or nobody had the time yet to look closer.
    pub(crate) changed_outside: AtomicBool,
    /// The last write-back failed.
    failing: AtomicBool,
    errors: Mutex<Errors>,
    transfers: Mutex<Transfers>,
    transferred: Condvar,
}

/// The files that are known.
#[derive(Default)]
pub(crate) struct Inodes {
    by_identity: BTreeMap<FileIdentity, Arc<Inode>>,
    by_mapping: BTreeMap<MappingId, Arc<Inode>>,
}

impl Inodes {
    /// The file that is known as this one to the backend.
    pub(crate) fn find(&self, identity: FileIdentity) -> Option<&Arc<Inode>> {
        self.by_identity.get(&identity)
    }

    /// The file with this mapping.
    pub(crate) fn of_mapping(&self, mapping: MappingId) -> Option<Arc<Inode>> {
        self.by_mapping.get(&mapping).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Inode>> {
        self.by_identity.values().cloned().collect()
    }

    pub(crate) fn insert(&mut self, inode: &Arc<Inode>) {
        self.by_identity.insert(inode.identity, inode.clone());
        self.by_mapping.insert(inode.mapping.id(), inode.clone());
    }

    /// Its mapping was closed, under the lock that guards this: the number may be another file's
    /// soon.
    pub(crate) fn remove(&mut self, inode: &Inode) {
        self.by_identity.remove(&inode.identity);
        self.by_mapping.remove(&inode.mapping.id());
    }
}

impl Inode {
    pub(crate) fn new(file: Arc<dyn BackendFile>, writable: bool, mapping: Arc<Mapping>, len: u64) -> Inode {
        Inode {
            identity: file.identity(),
            writable: Mutex::new(writable.then(|| file.clone())),
            file,
            mapping,
            len: AtomicU64::new(len),
            disk_len: AtomicU64::new(len),
            resize: RwLock::new(()),
            handles: AtomicU32::new(0),
            maps: Mutex::default(),
            changed_outside: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            errors: Mutex::default(),
            transfers: Mutex::default(),
            transferred: Condvar::new(),
        }
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    pub(crate) fn set_len(&self, bytes: u64) {
        self.len.store(bytes, Ordering::Release);
    }

    /// A write reached `end`.
    pub(crate) fn grow_to(&self, end: u64) {
        self.len.fetch_max(end, Ordering::AcqRel);
    }

    pub(crate) fn set_disk_len(&self, bytes: u64) {
        self.disk_len.store(bytes, Ordering::Release);
    }

    /// Write-back extended the file on disk to at least `end`.
    pub(crate) fn disk_len_reached(&self, end: u64) {
        self.disk_len.fetch_max(end, Ordering::AcqRel);
    }

    pub(crate) fn disk_len(&self) -> u64 {
        self.disk_len.load(Ordering::Acquire)
    }

    /// The descriptor to write through.
    pub(crate) fn writable(&self) -> Option<Arc<dyn BackendFile>> {
        self.writable.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn error(&self, doing: &'static str, source: io::Error) -> Error {
        Error::io(doing, self.file.path(), source)
    }

    // Errors.

    pub(crate) fn note_error(&self, failed: Failed, error: io::Error) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.sequence.note();
        errors.last = Some((failed, Arc::new(error)));
    }

    /// Write-back ended.
    pub(crate) fn note_writeback(&self, written: bool) {
        self.failing.store(!written, Ordering::Release);
    }

    /// Why the last write-back failed, if it did.
    pub(crate) fn failing(&self) -> Option<Error> {
        let failing = self.failing.load(Ordering::Acquire);
        let (_, source) = self.last_error().filter(|_| failing)?;
        Some(Error::WriteBack { path: self.file.path().to_owned(), source })
    }

    /// How many errors a new handle counts as told: all, unless nobody heard of the last one.
    pub(crate) fn errors_told(&self) -> u64 {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).sequence.told_at_open()
    }

    /// All errors so far.
    pub(crate) fn error_count(&self) -> u64 {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).sequence.count()
    }

    /// The error that a handle has not told yet. Afterwards it has.
    pub(crate) fn untold_error(&self, told: &AtomicU64) -> Option<Error> {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        // Changed under the lock only.
        let mut known = told.load(Ordering::Acquire);
        if !errors.sequence.tell(&mut known) {
            return None;
        }
        told.store(known, Ordering::Release);
        let (failed, source) = errors.last.clone()?;
        let path = self.file.path().to_owned();
        Some(match failed {
            Failed::WriteBack => Error::WriteBack { path, source },
            Failed::Sync => Error::Io { doing: "sync", path, source },
        })
    }

    /// The last error, told or not.
    pub(crate) fn last_error(&self) -> Option<(Failed, Arc<io::Error>)> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).last.clone()
    }

    // Transfers.

    /// Registers write-back that is about to take pages. Sleeps while transfers are held.
    pub(crate) fn begin_transfer(&self) -> u64 {
        let transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.transferred.wait_while(transfers, |transfers| transfers.held);
        let mut transfers = free.unwrap_or_else(PoisonError::into_inner);
        let number = transfers.next;
        transfers.next += 1;
        transfers.under_way.insert(number);
        number
    }

    pub(crate) fn end_transfer(&self, number: u64) {
        let mut transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        transfers.under_way.remove(&number);
        drop(transfers);
        self.transferred.notify_all();
    }

    /// Whether write-back is under way.
    pub(crate) fn has_transfers(&self) -> bool {
        !self.transfers.lock().unwrap_or_else(PoisonError::into_inner).under_way.is_empty()
    }

    /// Sleeps until all write-back that is under way now has ended. What begins later is not waited
    /// for. How much began so far.
    pub(crate) fn wait_for_transfers(&self) -> u64 {
        let transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        let end = transfers.next;
        let ended =
            self.transferred.wait_while(transfers, |t| t.under_way.first().is_some_and(|&first| first < end));
        drop(ended.unwrap_or_else(PoisonError::into_inner));
        end
    }

    /// Waits until no write-back of this file is under way, and lets none begin until the guard is
    /// dropped. A page that is written then is written up to the length that the file has by then.
    /// The caller holds `resize` alone.
    pub(crate) fn hold_transfers(&self) -> HeldTransfers<'_> {
        let mut transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        transfers.held = true;
        let ended = self.transferred.wait_while(transfers, |transfers| !transfers.under_way.is_empty());
        drop(ended.unwrap_or_else(PoisonError::into_inner));
        HeldTransfers(self)
    }

    /// How much write-back began so far.
    pub(crate) fn transfers_begun(&self) -> u64 {
        self.transfers.lock().unwrap_or_else(PoisonError::into_inner).next
    }

    // Changes from outside.

    /// A read of `bytes` bytes up to `end` was to bring `wanted`.
    pub(crate) fn note_read(&self, end: u64, bytes: usize, wanted: usize) {
        // Less than there used to be: somebody else cut the file.
        if bytes < wanted && end < self.disk_len() {
            self.changed_outside.store(true, Ordering::Release);
        }
    }

    pub(crate) fn maps(&self) -> MutexGuard<'_, BTreeMap<MemcgId, u32>> {
        self.maps.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
