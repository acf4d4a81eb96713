//! Space on the disk for data that is in memory only.
//!
//! Pages are written long after a program wrote them. If the disk were found full only then, a
//! program that does not sync would lose data without an error. So a write that extends a file
//! first looks whether the file system has room for it beside everything unwritten, and is
//! shortened to that room. DIR may have several, since others can be mounted below it; each has an
//! account. A write that fills a hole of a file is not checked; a lack of space is then reported by
//! the next sync.
//!
//! # Locking
//!
//! `counting` is held while everything is written out. `left` is a leaf.

use crate::refused::Answer;
use mglru_cache::{PageCache, file_system_room_bytes};
use mglru_workload::PAGE_BYTES;
use rustix::fs::fstatvfs;
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How much programs may still write before their file system is asked again.
#[derive(Default)]
pub(crate) struct Space {
    /// Bytes, by device.
    left: Mutex<HashMap<u64, u64>>,
    counting: Mutex<()>,
}

impl Space {
    /// Takes room for `bytes` at the end of a file, or as much as there is after everything is
    /// written: the bytes that may be written. The file's file system has the number of its device.
    ///
    /// # Errors
    /// The file system does not say how much room it has.
    pub(crate) fn take(
        &self,
        bytes: u64,
        cache: &PageCache,
        (device, file): (u64, impl AsFd),
    ) -> Answer<u64> {
        if let Some(left) = self.left().get_mut(&device)
            && let Some(rest) = left.checked_sub(bytes)
        {
            *left = rest;
            return Ok(bytes);
        }
        let _one = self.counting.lock().unwrap_or_else(PoisonError::into_inner);
        let room = || -> Answer<u64> {
            let found = fstatvfs(&file)?;
            Ok(match file_system_room_bytes(found.f_blocks, found.f_bavail, found.f_frsize) {
                u64::MAX => u64::MAX,
                room => room.saturating_sub(cache.stats().pending_pages * PAGE_BYTES),
            })
        };
        let mut found = room()?;
        if found < bytes {
            // Unwritten pages may replace others on the disk, and then need no room. A write that
            // fails is reported to its own file.
            let _ = cache.sync();
            found = room()?;
        }
        // Others may use the disk, too: ask again after half of it.
        self.left().insert(device, found.saturating_sub(bytes) / 2);
        Ok(bytes.min(found))
    }

    fn left(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
