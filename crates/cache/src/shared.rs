//! The state that all parts of a cache share.
//!
//! # Locking
//!
//! `inodes` guards the set of known files. A thread takes it without holding another lock, and does
//! not wait for I/O while it holds it.

use crate::backend::Backend;
use crate::error::Error;
use crate::flight::InFlight;
use crate::frames::Frames;
#[cfg(feature = "async")]
use crate::future::Futures;
use crate::host::{CacheHost, thread_number};
use crate::inode::{Inode, Inodes};
use crate::keepers::{Keepers, Kept};
use crate::regions::Regions;
use crate::resize::Writers;
use crate::slot_range::SlotCharges;
use crate::source::Sources;
use crate::tenants::{Owner, Tenants};
use crate::trace::slow_path;
use mglru_core::folio::{Flags, FolioFlags};
use mglru_core::{Core, FolioId, Throttle};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// The state that all parts of a cache share.
pub(crate) struct Shared {
    pub(crate) core: Core,
    pub(crate) host: CacheHost,
    pub(crate) frames: Arc<Frames>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) sources: Arc<Sources>,
    #[cfg(feature = "async")]
    pub(crate) futures: Futures,
    pub(crate) inodes: Mutex<Inodes>,
    pub(crate) regions: Regions,
    pub(crate) in_flight: InFlight,
    pub(crate) stopping: AtomicBool,
    /// Held shared by workers while they work, and exclusively by a thread that needs them to stop.
    pub(crate) at_work: RwLock<()>,
    pub(crate) tenants: Tenants,
    /// Number of panics of workers, which were restarted.
    pub(crate) worker_panics: AtomicU64,
    pub(crate) slot_charges: SlotCharges,
    pub(crate) keepers: Keepers<Shared>,
    pub(crate) writers: Writers,
    /// This cache's number within the process.
    pub(crate) number: u64,
    pub(crate) budget_bytes: u64,
    pub(crate) why_not_uring: Option<String>,
}

impl Shared {
    /// Fails once the cache is closed.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.stopping.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// A reference for an owned guard.
    pub(crate) fn keep(self: &Arc<Shared>) -> Kept<Shared> {
        self.keepers.keep(self.cpu(), self, || !self.stopping.load(Ordering::Acquire))
    }

    pub(crate) fn cpu(&self) -> usize {
        (thread_number() - 1) % self.core.options().cpus
    }

    /// Parks the calling thread as the core asked. Pauses for charging above `memory.high` and for
    /// dirtying too fast last their full time unless the cache is closed; the others also end when
    /// pages were written or read since `rings_before`.
    pub(crate) fn park(&self, throttle: Throttle, rings_before: u64) {
        slow_path!("wait", reason = tracing::field::debug(throttle));
        match throttle {
            Throttle::OverHigh(pause) | Throttle::Dirty(pause) => self.sleep(pause),
            _ => self.host.park(throttle, rings_before),
        }
    }

    /// Sleeps until the time is over or the cache is closed. Nothing else wakes the thread: a write
    /// that ends would otherwise wake each of many paused writers, in vain.
    pub(crate) fn sleep(&self, pause: Duration) {
        let closed = &self.host.closed;
        let rings_before = closed.rings();
        if !self.stopping.load(Ordering::Acquire) {
            closed.wait(rings_before, pause);
        }
    }

    pub(crate) fn lock_inodes(&self) -> MutexGuard<'_, Inodes> {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn inodes(&self) -> Vec<Arc<Inode>> {
        self.lock_inodes().all()
    }

    /// Whether a file has pages that are dirty or being written. Pages that a thread dirties
    /// meanwhile may be missed.
    pub(crate) fn has_unwritten(&self, inode: &Inode) -> bool {
        loop {
            let begun = inode.transfers_begun();
            // In this order: failed write-back marks pages dirty before it ends.
            if inode.has_transfers() || self.core.dirty_pages(&inode.mapping) > 0 {
                return true;
            }
            // Write-back that began between these two looks has made pages clean that are not on
            // disk, and may fail.
            if inode.transfers_begun() == begun {
                return false;
            }
        }
    }

    /// Removes a file that has no handles, dirty pages or transfers. Does not wait for transfers:
    /// each rings the flusher when it ends.
    pub(crate) fn forget_if_idle(&self, inode: &Arc<Inode>) {
        loop {
            let mut inodes = self.lock_inodes();
            // Without a handle, only failed write-back marks pages dirty.
            if inode.handles.load(Ordering::Acquire) > 0
                || self.has_unwritten(inode)
                || !inodes.find(inode.identity).is_some_and(|known| Arc::ptr_eq(known, inode))
            {
                return;
            }
            // Emptied first, because closing the mapping cannot be undone and another thread may
            // open the file meanwhile.
            let Some(busy) = self.core.truncate(&self.host, &inode.mapping, 0, 1 << 32) else {
                let slots = self.slot_charges.take(inode.mapping.id());
                let closed = self.core.close_mapping(&self.host, &inode.mapping);
                assert!(closed.is_none(), "without a handle, no thread inserts pages");
                let charge = inodes.remove(inode);
                let charges = charge.into_iter().chain(slots);
                charges.for_each(|mut charge| self.uncharge_metadata(&mut charge));
                // Not before: a thread that closed the last handle and finds the file forgotten by
                // a worker finds it paid back, too.
                drop(inodes);
                return;
            };
            drop(inodes);
            if self.flags(busy).load().writing() {
                // Readahead; its completion rings the flusher.
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

    /// Sleeps until a folio is neither locked nor under writeback.
    pub(crate) fn wait_for_folio(&self, folio: FolioId) {
        self.wait_while(folio, |flags| flags.locked() || flags.writeback());
    }

    pub(crate) fn wait_while(&self, folio: FolioId, asleep_while: impl Fn(Flags) -> bool) {
        self.host.latches.wait(folio, self.flags(folio), asleep_while, || true);
    }

    /// Sleeps until a page that is being read has its content, or was given up.
    ///
    /// # Errors
    /// The calling thread is to bring it in: it is in a call of the file's source.
    pub(crate) fn wait_for_read(&self, inode: &Inode, folio: FolioId) -> Result<(), Error> {
        inode.refuse_in_own_call()?;
        self.wait_for_content(folio);
        Ok(())
    }

    /// Sleeps until a folio has its content and no thread is changing it.
    pub(crate) fn wait_for_content(&self, folio: FolioId) {
        self.wait_while(folio, |flags| flags.locked() && flags.writing());
    }

    /// Drops all pages from `first` on, including dirty ones.
    pub(crate) fn drop_pages(&self, inode: &Inode, first: u64) {
        let Ok(first) = u32::try_from(first) else { return };
        while let Some(busy) = self.core.truncate(&self.host, &inode.mapping, first, 1 << 32) {
            self.wait_for_folio(busy);
        }
    }

    /// Drops the clean pages in a range, so that they are read again.
    pub(crate) fn drop_clean_pages(&self, inode: &Inode, pages: Range<u64>) {
        while let Some(busy) = self.try_drop_clean_pages(inode, pages.clone()) {
            self.wait_for_folio(busy);
        }
    }

    /// As [`Self::drop_clean_pages`]. `Some`: this page is in use, and those from it on are left.
    pub(crate) fn try_drop_clean_pages(&self, inode: &Inode, pages: Range<u64>) -> Option<FolioId> {
        let first = u32::try_from(pages.start).ok()?;
        self.core.drop_clean(&self.host, &inode.mapping, first, pages.end)
    }
}
