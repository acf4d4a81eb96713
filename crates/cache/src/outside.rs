//! Detection of changes that other processes make to a file. See [`Inode`].

use crate::error::Error;
use crate::file::CachedFile;
use crate::inode::{Inode, LEN_MAX};
use crate::shared::Shared;
use mglru_core::PAGE_BYTES;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, TryLockError};

impl Inode {
    /// Revalidates the file if a read suggested that another process changed it. Returns whether it
    /// did.
    #[inline]
    pub(crate) fn revalidate_if_changed(self: &Arc<Self>, shared: &Shared) -> Result<bool, Error> {
        let Some(seen) = self.suspicions() else { return Ok(false) };
        self.clear_up(shared, seen).map(|()| true)
    }

    /// Revalidates the file, of which there are `seen` suspicions, and ends these.
    pub(crate) fn clear_up(self: &Arc<Self>, shared: &Shared, seen: u32) -> Result<(), Error> {
        self.revalidate(shared)?;
        self.drop_short_reads(|pages| {
            shared.drop_clean_pages(self, pages);
            true
        });
        // Not before: other readers would take zeros for a part of the file.
        self.clear_suspicion(seen);
        Ok(())
    }

    /// As [`Self::clear_up`], without waiting. `false`: it is not done.
    #[cfg(feature = "async")]
    pub(crate) fn try_clear_up(self: &Arc<Self>, shared: &Shared, seen: u32) -> Result<bool, Error> {
        let is_done = self.try_revalidate(shared, false)?
            && self.drop_short_reads(|pages| shared.try_drop_clean_pages(self, pages).is_none());
        if is_done {
            self.clear_suspicion(seen);
        }
        Ok(is_done)
    }

    /// Adopts a change of the file's length by another process. Drops cached pages beyond a new,
    /// smaller end, and the page in which the file ended before it grew. Data that was written
    /// through this cache and is not on disk yet stays, and extends the file again.
    ///
    /// Costs one system call if nothing changed. If writers hold `resize`, the next read retries.
    pub(crate) fn revalidate(self: &Arc<Self>, shared: &Shared) -> Result<(), Error> {
        self.try_revalidate(shared, true).map(|_| ())
    }

    /// As [`Self::revalidate`]. `false`: the change was not adopted, because the caller may not
    /// wait. It would have to wait for write-back, which may be what extends the file, for the read
    /// of a page that must go, or for another thread that adopts the change.
    pub(crate) fn try_revalidate(self: &Arc<Self>, shared: &Shared, may_wait: bool) -> Result<bool, Error> {
        if self.len_on_disk()? == self.disk_len() {
            return Ok(true);
        }
        // Of several readers, one adopts the change. The others wait until they see it, too.
        let _one = match self.opening.try_lock() {
            Ok(one) => one,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if !may_wait => return Ok(false),
            Err(TryLockError::WouldBlock) => self.opening.lock().unwrap_or_else(PoisonError::into_inner),
        };
        if self.len_on_disk()? == self.disk_len() {
            return Ok(true);
        }
        let Some(_alone) = self.resize.try_alone(&shared.writers) else {
            self.suspect();
            return Ok(true);
        };
        self.adopt_len(shared, may_wait)
    }

    /// The length of the file on disk, as the system knows it now.
    pub(crate) fn len_on_disk(&self) -> Result<u64, Error> {
        self.file.len().map_err(|e| self.error("read the length of", e))
    }

    /// [`Self::try_revalidate`] for a caller that holds `resize` exclusively, and no page.
    pub(crate) fn adopt_len(self: &Arc<Self>, shared: &Shared, may_wait: bool) -> Result<bool, Error> {
        if self.len_on_disk()? == self.disk_len() {
            return Ok(true);
        }
        // Write-back extends the file, too, so only a change while there was none comes from
        // another process. Writers are locked out, the flusher is not.
        let (before, now, last_dirty) = loop {
            let begun = match may_wait {
                true => self.wait_for_transfers(),
                // Not a check and then a wait: the flusher may begin in between.
                false => match self.begun_if_idle() {
                    Some(begun) => begun,
                    None => return Ok(false),
                },
            };
            let found =
                (self.disk_len(), self.len_on_disk()?.min(LEN_MAX), shared.core.last_dirty(&self.mapping));
            if self.transfers_begun() == begun {
                break found;
            }
        };
        let ended_in = before.min(now) / PAGE_BYTES;
        if now > before {
            // Our dirty bytes in the former last page are written up to our end and meet the
            // appended data there.
            if let Ok(index) = u32::try_from(ended_in)
                && before % PAGE_BYTES > 0
                && last_dirty.is_some_and(|last| last >= index)
            {
                if !may_wait {
                    return Ok(false);
                }
                shared.submit_dirty_in(self, index, ended_in + 1);
                self.wait_for_transfers();
            }
            // First: reads that end from now on find out if the new part is cut off again. Pages of
            // earlier ones are dropped.
            self.growing_to.store(now, Ordering::SeqCst);
            let is_dropped = match may_wait {
                true => {
                    shared.drop_clean_pages(self, ended_in..1 << 32);
                    true
                }
                false => shared.try_drop_clean_pages(self, ended_in..1 << 32).is_none(),
            };
            if is_dropped {
                self.grow_to(now);
                // The flusher may have extended the file since.
                self.disk_len_reached(now);
            }
            self.growing_to.store(0, Ordering::SeqCst);
            if !is_dropped {
                return Ok(false);
            }
        } else if now < before {
            // Readers must see the new length before the pages go, and then it is too late to stop.
            if !may_wait {
                return Ok(false);
            }
            // First: dirty pages may be written from now on and extend the file again.
            self.set_disk_len(now);
            let kept = last_dirty.map_or(0, |index| (u64::from(index) + 1) * PAGE_BYTES);
            self.set_len(now.max(kept.min(self.len())));
            shared.drop_clean_pages(self, ended_in..1 << 32);
        }
        Ok(true)
    }
}

impl CachedFile {
    /// Forgets what the cache knows of the file on disk, because another process changed it: drops
    /// the clean pages and adopts the length. Reads that begin afterwards, through any handle, see
    /// the change. Data that was written through this cache and is not on disk yet stays. A guard
    /// that lends a page keeps the old one.
    ///
    /// Changes of the length are noticed without it, at the latest by a read at the end. Pages that
    /// are locked in memory ([`Self::lock`]) are read again at once.
    ///
    /// # Errors
    /// The system does not tell the file's length, or a locked page cannot be read again.
    pub fn invalidate(&self) -> Result<(), Error> {
        self.shared.drop_clean_pages(&self.inode, 0..1 << 32);
        self.inode.revalidate(&self.shared)?;
        self.read_locked_again()
    }
}
