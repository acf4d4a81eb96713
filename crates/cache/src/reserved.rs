//! Memory that the program allocates itself, as a part of the budget.

use crate::error::Error;
use crate::shared::Shared;
use crate::tenant::Tenant;
use mglru_core::{HostCharge, Task};
use std::sync::Arc;

/// A part of the budget that holds no pages, because the program uses as much memory outside of the
/// cache. Dropping it gives the memory back to pages.
#[must_use = "dropped at once, it reserves nothing"]
pub struct Reserved {
    shared: Arc<Shared>,
    charge: HostCharge,
}

impl Reserved {
    /// The size, in bytes.
    pub fn bytes(&self) -> u64 {
        self.charge.bytes()
    }
}

impl std::fmt::Debug for Reserved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reserved").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Tenant {
    /// Charges `bytes` to this tenant and to the budget for memory that the program allocates
    /// itself, such as a table that grows with the number of its files. Pages are reclaimed to make
    /// room. The memory counts as metadata ([`crate::CacheStats::metadata_bytes`]).
    ///
    /// ```
    /// # let cache = mglru_cache::PageCache::builder(1 << 20).build()?;
    /// let before = cache.stats().metadata_bytes;
    /// let reserved = cache.tenant("")?.reserve(100_000)?;
    /// assert!(cache.stats().metadata_bytes >= before + reserved.bytes());
    /// drop(reserved);
    /// assert!(cache.stats().metadata_bytes < before + 100_000);
    /// # Ok::<(), mglru_cache::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]: pages that cannot be reclaimed leave no room, in the tenant or in
    /// the budget. [`Error::TooManyFiles`]: metadata takes all of the budget that it may take.
    /// [`Error::Killed`]: the tenant was killed.
    pub fn reserve(&self, bytes: u64) -> Result<Reserved, Error> {
        let shared = self.shared();
        let task = Task { cpu: shared.cpu(), ..self.state().task(0) };
        let charge = shared.charge_metadata(&task, bytes)?.keep();
        Ok(Reserved { shared: shared.clone(), charge })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.shared.uncharge_metadata(&mut self.charge);
    }
}
