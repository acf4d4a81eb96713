//! Memory of what the mount remembers of each file that the kernel knows: a part of the budget.
//!
//! Its size is what programs looked up, and the kernel says when it forgets a file. Above an eighth
//! of the budget, a thread asks the kernel to forget names of files that no program has open,
//! longest unused first. It is a thread of its own because the kernel locks the directory of a name
//! for that, and a program that made a request may hold this lock.
//!
//! # Locking
//!
//! The ledger is a leaf.

use crate::content::Files;
use crate::node::{Nodes, Victim};
use fuser::{INodeNo, Notifier};
use mglru_cache::{Error, Reserved, Tenant};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// One part of the budget in as many.
const SHARE: u64 = 8;

/// Bytes that are reserved at once.
const CHUNK_BYTES: u64 = 16 << 10;

/// Files that become known before the next search if none can be forgotten, as all are open.
const PATIENCE: u64 = 1024;

#[derive(Default)]
struct Ledger {
    used_bytes: u64,
    /// Each has `CHUNK_BYTES`.
    reserved: Vec<Reserved>,
    /// Files that became known while there were too many.
    added: u64,
    /// The budget had no room for more.
    is_short: bool,
    ended: bool,
}

/// The memory of known files.
pub(crate) struct Known {
    tenant: Tenant,
    max_bytes: u64,
    ledger: Mutex<Ledger>,
    changed: Condvar,
}

impl Known {
    /// Charged to `tenant`, and at most about an eighth of `budget_bytes`.
    pub(crate) fn new(tenant: Tenant, budget_bytes: u64) -> Known {
        let max_bytes = budget_bytes / SHARE;
        Known { tenant, max_bytes, ledger: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory that it should not exceed.
    pub(crate) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Charges a file. May have to wait for pages to be reclaimed.
    ///
    /// # Errors
    /// As for [`Tenant::reserve`].
    pub(crate) fn add(&self, bytes: u64) -> Result<(), Error> {
        loop {
            {
                let mut ledger = self.lock();
                if ledger.used_bytes + bytes <= ledger.reserved.len() as u64 * CHUNK_BYTES {
                    ledger.used_bytes += bytes;
                    if ledger.used_bytes > self.max_bytes {
                        ledger.added += 1;
                        self.changed.notify_one();
                    }
                    return Ok(());
                }
            }
            let more = self.tenant.reserve(CHUNK_BYTES).inspect_err(|_| {
                let mut ledger = self.lock();
                ledger.is_short = true;
                ledger.added += 1;
                self.changed.notify_one();
            })?;
            self.lock().reserved.push(more);
        }
    }

    /// Ends a charge of [`Self::add`].
    pub(crate) fn remove(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut ledger = self.lock();
        ledger.used_bytes -= bytes;
        // One is left for the next file.
        let needed = ledger.used_bytes.div_ceil(CHUNK_BYTES) as usize + 1;
        let kept = needed.min(ledger.reserved.len());
        let unneeded = ledger.reserved.split_off(kept);
        drop(ledger);
        drop(unneeded);
    }

    /// Has the kernel forget files when there are too many, until [`Self::end`].
    pub(crate) fn limit(&self, nodes: &Nodes, files: &Files, notifier: &Notifier) {
        let mut seen = 0;
        let mut patience = 0;
        loop {
            let excess_bytes = {
                let is_fine = |ledger: &mut Ledger| !ledger.ended && ledger.added <= seen + patience;
                let waited = self.changed.wait_while(self.lock(), is_fine);
                let mut ledger = waited.unwrap_or_else(PoisonError::into_inner);
                if ledger.ended {
                    return;
                }
                seen = ledger.added;
                let short = std::mem::take(&mut ledger.is_short);
                let max_bytes = if short { ledger.used_bytes } else { self.max_bytes };
                ledger.used_bytes.saturating_sub(max_bytes - max_bytes / SHARE)
            };
            if excess_bytes == 0 {
                continue;
            }
            let (victims, bytes) = nodes.unneeded(excess_bytes);
            patience = if victims.is_empty() { PATIENCE } else { 0 };
            for Victim { parent, name } in victims {
                // An error: the mount has ended, or the kernel does not know the name any more.
                let _ = notifier.inval_entry(INodeNo(parent), &name);
            }
            if bytes < excess_bytes {
                // The kernel has forgotten the others. They are known because they are cached.
                let count = (excess_bytes - bytes).div_ceil(crate::node::NODE_BYTES);
                files.give_up(nodes, count as usize);
            }
        }
    }

    /// Ends [`Self::limit`].
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_cache::PageCache;

    /// The index of pages may grow while the cache looks for room.
    const INDEX_BYTES: u64 = 64 << 10;

    #[test]
    fn files_are_part_of_the_budget_until_they_are_removed() {
        let cache = PageCache::builder(2 << 20).build().unwrap();
        let known = Known::new(cache.tenant("").unwrap(), 2 << 20);
        let before = cache.stats().metadata_bytes;
        let charged = || cache.stats().metadata_bytes - before;
        for count in 1..=1000 {
            known.add(500).unwrap();
            assert!(
                (count * 500..=count * 500 + CHUNK_BYTES + INDEX_BYTES).contains(&charged()),
                "{}",
                charged()
            );
        }
        for count in (0..1000).rev() {
            known.remove(500);
            assert!(
                (count * 500..=count * 500 + 2 * CHUNK_BYTES + INDEX_BYTES).contains(&charged()),
                "{}",
                charged()
            );
        }
        // The budget is hard.
        let most = (0..).take_while(|_| known.add(500).is_ok()).count() as u64;
        assert!((1000..(2 << 20) / 500).contains(&most), "{most}");
        let stats = cache.stats();
        assert!(stats.frame_bytes + stats.metadata_bytes <= stats.budget_bytes, "{stats:?}");
        (0..most).for_each(|_| known.remove(500));
        assert!(charged() <= CHUNK_BYTES + INDEX_BYTES, "{}", charged());
    }
}
