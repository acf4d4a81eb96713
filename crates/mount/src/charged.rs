//! An open file's handle on the cache, charged to the tenant of the program that uses it now.
//!
//! As in the kernel, a program that moves takes nothing along: pages in memory stay charged as they
//! are, and what it brings in from then on is charged to its new tenant, also through files that it
//! opened before. To look up a program's tenant for each request would take longer than the
//! request. So a handle remembers the generation of the rules for which its tenant was decided, and
//! the next request after a change of any rule decides again.
//!
//! # Locking
//!
//! Requests hold the handle's lock for reading. A request that moves the handle waits for those
//! that are in progress.

use mglru_cache::{CachedFile, Error, Tenant};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// A handle with the generation of the rules that its tenant was decided by.
pub(crate) struct Charged {
    file: RwLock<CachedFile>,
    generation: AtomicU64,
}

impl Charged {
    /// `generation` is that of before the tenant of `file` was decided.
    pub(crate) fn new(file: CachedFile, generation: u64) -> Charged {
        Charged { file: RwLock::new(file), generation: AtomicU64::new(generation) }
    }

    /// The handle, for what brings in no pages.
    pub(crate) fn get(&self) -> RwLockReadGuard<'_, CachedFile> {
        self.file.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle; it moves to `tenant` if the rules have changed since its tenant was decided.
    ///
    /// # Errors
    /// Those of `tenant`.
    pub(crate) fn decided(
        &self,
        generation: u64,
        tenant: impl FnOnce() -> Result<Tenant, Error>,
    ) -> Result<RwLockReadGuard<'_, CachedFile>, Error> {
        if self.generation.load(Ordering::Acquire) != generation {
            let tenant = tenant()?;
            let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
            file.move_to(&tenant)?;
            self.generation.store(generation, Ordering::Release);
        }
        Ok(self.get())
    }
}
