//! Space on the disk for data that is in memory only.
//!
//! Pages are written long after a program wrote them. If the disk were found full only then, a
//! program that does not sync would lose data without an error. So a write that extends a file
//! first looks whether the file system has room for it beside everything unwritten. A write that
//! fills a hole of a file is not checked; a lack of space is then reported by the next sync.
//!
//! # Locking
//!
//! `counting` is held while everything is written out, with no other lock.

use crate::refused::Answer;
use mglru_cache::PageCache;
use mglru_workload::PAGE_BYTES;
use rustix::fs::fstatvfs;
use rustix::io::Errno;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// How much programs may still write before the file system is asked again.
#[derive(Default)]
pub(crate) struct Space {
    left: AtomicU64,
    counting: Mutex<()>,
}

impl Space {
    /// Takes room for `bytes` at the end of a file.
    ///
    /// # Errors
    /// `ENOSPC`: the file system of `directory` has no room, even after everything is written.
    pub(crate) fn take(&self, bytes: u64, cache: &PageCache, directory: impl AsFd) -> Answer<()> {
        let taken = |left: u64| left.checked_sub(bytes);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok() {
            return Ok(());
        }
        let _one = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        let room = || -> Answer<u64> {
            let found = fstatvfs(&directory)?;
            let unwritten = cache.stats().pending_pages * PAGE_BYTES;
            Ok((found.f_bavail * found.f_frsize).saturating_sub(unwritten))
        };
        let mut found = room()?;
        if found < bytes {
            // Unwritten pages may replace others on the disk, and then need no room. A write that
            // fails is reported to its own file.
            let _ = cache.sync();
            found = room()?;
        }
        let rest = found.checked_sub(bytes).ok_or(Errno::NOSPC)?;
        // Others may use the disk, too: ask again after half of it.
        self.left.store(rest / 2, Ordering::Relaxed);
        Ok(())
    }
}
