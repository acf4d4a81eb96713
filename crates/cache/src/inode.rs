//! One file as the cache sees it, shared by all handles that are open on it.
//!
//! # Length
//!
//! The cache's length is what readers see; the file on disk follows when dirty pages are written. A cached page is
//! served without asking the system whether somebody else changed the file; that is noticed when a read reaches
//! the end or finds less on disk than there was, and at every sync and open ([`Inode::revalidate`]).
//!
//! # Write-back errors
//!
//! Counted in a sequence. Each handle remembers up to where it has told its user, so that every handle that was
//! open reports an error once, and one that nobody reported is told to the next that opens the file.
//!
//! # Locking
//!
//! `resize` is held shared by writers and alone by whoever changes the length; readers take nothing. It comes before
//! every other lock. `transfers` and `errors` are leaves.

use crate::backend::{BackendFile, FileIdentity};
use crate::cache::Shared;
use crate::error::Error;
use mglru_core::folio::{Flags, FolioFlags};
use mglru_core::{FolioId, Mapping, PAGE_BYTES};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};

/// Errors of write-back, in order.
#[derive(Debug, Default)]
struct Errors {
    count: u64,
    last: Option<Arc<io::Error>>,
    /// Some handle told its user about the last one.
    reported: bool,
}

/// Write-back of this file that is under way.
#[derive(Debug, Default)]
struct Transfers {
    next: u64,
    under_way: BTreeSet<u64>,
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
    /// Live maps.
    pub(crate) maps: AtomicU32,
    /// When the oldest dirty page became dirty, in nanoseconds of the cache's clock; 0: none is dirty.
    pub(crate) dirty_since_ns: AtomicU64,
    /// A read found less on disk than there was.
    pub(crate) changed_outside: AtomicBool,
    errors: Mutex<Errors>,
    transfers: Mutex<Transfers>,
    transferred: Condvar,
}

impl Inode {
    pub(crate) fn new(
        file: Arc<dyn BackendFile>,
        writable: bool,
        mapping: Arc<Mapping>,
    ) -> io::Result<Inode> {
        let len = file.len()?;
        Ok(Inode {
            identity: file.identity(),
            writable: Mutex::new(writable.then(|| file.clone())),
            file,
            mapping,
            len: AtomicU64::new(len),
            disk_len: AtomicU64::new(len),
            resize: RwLock::new(()),
            handles: AtomicU32::new(0),
            maps: AtomicU32::new(0),
            dirty_since_ns: AtomicU64::new(0),
            changed_outside: AtomicBool::new(false),
            errors: Mutex::default(),
            transfers: Mutex::default(),
            transferred: Condvar::new(),
        })
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

    pub(crate) fn note_writeback_error(&self, error: io::Error) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.count += 1;
        errors.last = Some(Arc::new(error));
        errors.reported = false;
    }

    /// How many errors a new handle counts as told: all, unless nobody heard of the last one.
    pub(crate) fn errors_told(&self) -> u64 {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.reported || errors.count == 0 { errors.count } else { errors.count - 1 }
    }

    /// All errors so far.
    pub(crate) fn error_count(&self) -> u64 {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// The error that a handle has not told yet. Afterwards it has.
    pub(crate) fn untold_error(&self, told: &AtomicU64) -> Option<Error> {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if told.swap(errors.count, Ordering::AcqRel) >= errors.count {
            return None;
        }
        errors.reported = true;
        let source = errors.last.clone()?;
        Some(Error::WriteBack { path: self.file.path().to_owned(), source })
    }

    /// The last error, told or not.
    pub(crate) fn last_error(&self) -> Option<Arc<io::Error>> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).last.clone()
    }

    // Transfers.

    pub(crate) fn begin_transfer(&self) -> u64 {
        let mut transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Sleeps until all write-back that is under way now has ended. What begins later is not waited for.
    pub(crate) fn wait_for_transfers(&self) {
        let transfers = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        let end = transfers.next;
        let ended =
            self.transferred.wait_while(transfers, |t| t.under_way.first().is_some_and(|&first| first < end));
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    /// Adopts what somebody else did to the file's length. Cached pages beyond a new, smaller end are dropped;
    /// what was written through this cache and is not on disk yet stays and will extend the file again.
    pub(crate) fn revalidate(self: &Arc<Self>, shared: &Shared) -> Result<(), Error> {
        let _alone = self.resize.write().unwrap_or_else(PoisonError::into_inner);
        let now = self.file.len().map_err(|e| self.error("look at the length of", e))?;
        let before = self.disk_len();
        if now == before {
            return Ok(());
        }
        if now > before {
            self.grow_to(now);
        } else {
            // Write-back that is under way extends the file again: only what it leaves is somebody else's doing.
            self.wait_for_transfers();
            let now = self.file.len().map_err(|e| self.error("look at the length of", e))?;
            if now >= self.disk_len() {
                return Ok(());
            }
            let kept =
                shared.core.last_dirty(&self.mapping).map_or(0, |last| (u64::from(last) + 1) * PAGE_BYTES);
            let len = now.max(kept.min(self.len()));
            shared.drop_pages(self, now.div_ceil(PAGE_BYTES) as u32, false);
            shared.zero_tail(self, now, false)?;
            self.set_len(len);
        }
        self.set_disk_len(now);
        Ok(())
    }
}

impl Shared {
    pub(crate) fn flags(&self, folio: FolioId) -> &FolioFlags {
        &self.core.folios().get(folio).flags
    }

    /// Sleeps until a folio is neither locked nor being written.
    pub(crate) fn wait_for_folio(&self, folio: FolioId) {
        self.wait_while(folio, |flags| flags.locked() || flags.writeback());
    }

    pub(crate) fn wait_while(&self, folio: FolioId, asleep_while: impl Fn(Flags) -> bool) {
        self.host.latches.wait(folio, self.flags(folio), asleep_while);
    }

    /// Drops the pages from `first` on: all of them, or only those that are clean.
    pub(crate) fn drop_pages(&self, inode: &Inode, first: u32, also_dirty: bool) {
        if also_dirty {
            while let Some(busy) = self.core.truncate(&self.host, &inode.mapping, first, 1 << 32) {
                self.wait_for_folio(busy);
            }
        } else {
            self.core.invalidate(&self.host, &inode.mapping, first, 1 << 32, self.cpu());
        }
    }
}
