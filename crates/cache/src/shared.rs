//! What all parts of a cache share.
//!
//! # Locking
//!
//! `inodes` guards which files are known. It is taken with nothing held, and nobody waits for I/O
//! under it.

use crate::backend::Backend;
use crate::flight::InFlight;
use crate::frames::Frames;
use crate::host::{CacheHost, thread_number};
use crate::inode::{Inode, Inodes};
use crate::regions::Regions;
use crate::tenants::{Owner, Tenants};
use mglru_core::folio::{Flags, FolioFlags};
use mglru_core::{Core, FolioId, Throttle};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

/// What all parts of a cache share.
pub(crate) struct Shared {
    pub(crate) core: Core,
    pub(crate) host: CacheHost,
    pub(crate) frames: Arc<Frames>,
    /// Guards that lend the bytes of each frame.
    pub(crate) lent: Box<[AtomicU32]>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) inodes: Mutex<Inodes>,
    pub(crate) regions: Regions,
    pub(crate) in_flight: InFlight,
    pub(crate) stopping: AtomicBool,
    /// Held shared by workers while they do something, and alone by who wants them to keep still.
    pub(crate) at_work: RwLock<()>,
    pub(crate) tenants: Tenants,
    /// Of this cache, among all of the process.
    pub(crate) number: u64,
    pub(crate) budget_bytes: u64,
    pub(crate) why_not_uring: Option<String>,
}

impl Shared {
    pub(crate) fn cpu(&self) -> usize {
        thread_number() % self.core.options().cpus
    }

    /// Parks the calling thread as the core asked. Only pauses of who charges above `memory.high`,
    /// or dirties pages too fast, last their time whatever happens; the others end when pages were
    /// written since `heard`.
    pub(crate) fn park(&self, throttle: Throttle, heard: u64) {
        let (Throttle::OverHigh(pause) | Throttle::Dirty(pause)) = throttle else {
            return self.host.park(throttle, heard);
        };
        let end = Instant::now() + pause;
        let mut heard = heard;
        while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            heard = self.host.progress.wait(heard, left);
        }
    }

    pub(crate) fn lock_inodes(&self) -> MutexGuard<'_, Inodes> {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn inodes(&self) -> Vec<Arc<Inode>> {
        self.lock_inodes().all()
    }

    /// A file without handles, dirty pages and transfers is forgotten. Waits for no transfer: each
    /// rings the flusher when it is over.
    pub(crate) fn forget_if_idle(&self, inode: &Arc<Inode>) {
        loop {
            let mut inodes = self.lock_inodes();
            // In this order: write-back that fails makes pages dirty before it is over. Nobody else
            // dirties any, without a handle.
            if inode.handles.load(Ordering::Acquire) > 0
                || inode.has_transfers()
                || self.core.dirty_pages(&inode.mapping) > 0
                || !inodes.find(inode.identity).is_some_and(|known| Arc::ptr_eq(known, inode))
            {
                return;
            }
            // Emptied first: once it is closed there is no way back, and somebody might open the
            // file meanwhile.
            let Some(busy) = self.core.truncate(&self.host, &inode.mapping, 0, 1 << 32) else {
                let closed = self.core.close_mapping(&self.host, &inode.mapping);
                assert!(closed.is_none(), "without a handle, nobody brings pages in");
                inodes.remove(inode);
                return;
            };
            drop(inodes);
            if self.flags(busy).load().writing() {
                // Readahead, which nobody waits for any more.
                return;
            }
            self.wait_for_folio(busy);
        }
    }
}

impl Owner for Shared {
    fn core(&self) -> &Core {
        &self.core
    }
}

impl Shared {
    pub(crate) fn flags(&self, folio: FolioId) -> &FolioFlags {
        self.core.folios().flags(folio)
    }

    /// Sleeps until a folio is neither locked nor being written.
    pub(crate) fn wait_for_folio(&self, folio: FolioId) {
        self.wait_while(folio, |flags| flags.locked() || flags.writeback());
    }

    pub(crate) fn wait_while(&self, folio: FolioId, asleep_while: impl Fn(Flags) -> bool) {
        self.host.latches.wait(folio, self.flags(folio), asleep_while);
    }

    /// Sleeps until a folio's bytes are there, and nobody is changing them.
    pub(crate) fn wait_for_content(&self, folio: FolioId) {
        self.wait_while(folio, |flags| flags.locked() && flags.writing());
    }

    /// Drops all pages from `first` on, with what was written to them.
    pub(crate) fn drop_pages(&self, inode: &Inode, first: u64) {
        let Ok(first) = u32::try_from(first) else { return };
        while let Some(busy) = self.core.truncate(&self.host, &inode.mapping, first, 1 << 32) {
            self.wait_for_folio(busy);
        }
    }

    /// Drops the clean pages from `first` on, to be read again.
    pub(crate) fn drop_clean_pages(&self, inode: &Inode, first: u64) {
        let Ok(first) = u32::try_from(first) else { return };
        while let Some(busy) = self.core.drop_clean(&self.host, &inode.mapping, first, 1 << 32) {
            self.wait_for_folio(busy);
        }
    }
}
