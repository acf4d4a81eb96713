//! Buffers of requests: how large they are, and their memory as a part of the budget.
//!
//! Each thread that serves the mount has two, and keeps them: the FUSE library receives writes in
//! one, and the answers to reads are made in the other. So the largest request depends on the
//! budget and on the number of threads. The kernel splits what programs ask for beyond it.

use mglru_cache::{Error, Reserved, Tenant};

/// Largest request in bytes: 256 pages, the kernel's own limit.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// Requests of at least this size are served with every budget: a page of most databases.
const REQUEST_BYTES_MIN: u64 = 16 << 10;

/// Buffers of a thread.
const BUFFERS: u64 = 2;

/// All buffers together take one part of the budget in as many, unless that is too little for the
/// smallest requests.
const SHARE: u64 = 16;

/// The size of all buffers, reserved until this is dropped.
pub(crate) struct Buffers {
    request_bytes: u64,
    _reserved: Reserved,
}

impl Buffers {
    /// Reserves memory for the buffers of so many threads.
    ///
    /// # Errors
    /// As for [`Tenant::reserve`].
    pub(crate) fn new(root: &Tenant, budget_bytes: u64, threads: usize) -> Result<Buffers, Error> {
        let (request_bytes, bytes) = sizes(budget_bytes, threads as u64);
        Ok(Buffers { request_bytes, _reserved: root.reserve(bytes)? })
    }

    /// The largest request, in bytes.
    pub(crate) fn request_bytes(&self) -> u32 {
        self.request_bytes as u32
    }
}

/// The largest request, a power of two, and all buffers together, in bytes.
fn sizes(budget_bytes: u64, threads: u64) -> (u64, u64) {
    let count = BUFFERS * threads;
    let share = (budget_bytes / SHARE / count).clamp(REQUEST_BYTES_MIN, REQUEST_BYTES_MAX);
    let request_bytes = 1 << share.ilog2();
    (request_bytes, request_bytes * count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_take_a_sixteenth_of_the_budget_at_most() {
        const MIB: u64 = 1 << 20;
        for (budget, threads, expected) in [
            (4 * MIB, 16, (16 << 10, MIB / 2)),
            (64 * MIB, 16, (128 << 10, 4 * MIB)),
            (64 * MIB, 1, (MIB, 2 * MIB)),
            (1 << 30, 16, (MIB, 32 * MIB)),
            (1 << 40, 16, (MIB, 32 * MIB)),
        ] {
            assert_eq!(sizes(budget, threads), expected, "{budget}, {threads} threads");
        }
        let cache = mglru_cache::PageCache::builder(8 * MIB).build().unwrap();
        let root = cache.tenant("").unwrap();
        let before = cache.stats().metadata_bytes;
        let buffers = Buffers::new(&root, 8 * MIB, 16).unwrap();
        assert_eq!(buffers.request_bytes(), 16 << 10);
        assert!(cache.stats().metadata_bytes >= before + MIB / 2);
        assert!(Buffers::new(&root, 8 * MIB, 1000).is_err(), "more than there is");
    }
}
