//! What is kept about each tenant: its number, its address space, and what its handles counted.
//!
//! # Locking
//!
//! The table's lock is taken with nothing held. The list of a tenant's handles is a leaf.

use crate::stat::HandleStats;
use mglru_core::mm::AddressSpace;
use mglru_core::{Core, MemcgId, Task};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

/// Bytes that the cache keeps about a tenant, its place in the registry and its path included.
pub(crate) const TENANT_BYTES: u64 = (size_of::<TenantState>() + size_of::<AddressSpace>()) as u64 + 160;
/// The cache that tenants are of, as far as they need it when they go.
pub(crate) trait Owner: Send + Sync {
    fn core(&self) -> &Core;
}

/// What the cache keeps about a tenant.
pub(crate) struct TenantState {
    cache: Weak<dyn Owner>,
    path: Box<str>,
    memcg: MemcgId,
    /// Walks know its address space: it mapped something.
    joined: AtomicBool,
    /// Made for its first task.
    space: OnceLock<Arc<AddressSpace>>,
    handles: Mutex<Handles>,
}

/// What a tenant's handles counted.
#[derive(Default)]
struct Handles {
    /// Those that are open, by address.
    open: BTreeMap<usize, Arc<HandleStats>>,
    /// Of those that were closed.
    hits: u64,
    misses: u64,
}

impl TenantState {
    pub(crate) fn new(owner: &Arc<dyn Owner>, path: &str, memcg: MemcgId) -> TenantState {
        TenantState {
            cache: Arc::downgrade(owner),
            path: path.into(),
            memcg,
            joined: AtomicBool::new(false),
            space: OnceLock::new(),
            handles: Mutex::default(),
        }
    }

    /// Its path; empty for the root.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Hits and misses of its handles, open and closed.
    pub(crate) fn hits_and_misses(&self) -> (u64, u64) {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |of: fn(&HandleStats) -> u64| handles.open.values().map(|handle| of(handle)).sum::<u64>();
        (handles.hits + sum(HandleStats::hits), handles.misses + sum(HandleStats::misses))
    }

    pub(crate) fn memcg(&self) -> MemcgId {
        self.memcg
    }

    /// Counts for a new handle.
    pub(crate) fn new_handle(&self) -> Arc<HandleStats> {
        let stats = Arc::new(HandleStats::default());
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.open.insert(Arc::as_ptr(&stats) as usize, stats.clone());
        stats
    }

    /// What a handle counted goes to its tenant when it is closed.
    pub(crate) fn close_handle(&self, stats: &Arc<HandleStats>) {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.open.remove(&(Arc::as_ptr(stats) as usize));
        handles.hits += stats.hits();
        handles.misses += stats.misses();
    }

    /// A task on `cpu`.
    pub(crate) fn task(&self, cpu: usize) -> Task {
        Task { memcg: self.memcg, space: self.space.get_or_init(Arc::default).clone(), cpu }
    }

    /// It is about to map something.
    pub(crate) fn join(&self, core: &Core) {
        if !self.joined.swap(true, Ordering::AcqRel) {
            core.begin_task(&self.task(0));
        }
    }
}

impl Drop for TenantState {
    /// Nothing of a tenant that was removed is open any more, or the cache goes.
    fn drop(&mut self) {
        let Some(owner) = self.cache.upgrade() else { return };
        let core = owner.core();
        if *self.joined.get_mut() {
            core.end_task(&self.task(0));
        }
        core.forget_host_bytes(TENANT_BYTES);
        core.drop_handle(self.memcg);
    }
}

/// The tenants that there are.
#[derive(Default)]
pub(crate) struct Tenants {
    pub(crate) by_number: RwLock<BTreeMap<MemcgId, Arc<TenantState>>>,
    /// Memcgs below this number are paid for: they stay, to be used again.
    pub(crate) paid: AtomicU32,
}

impl Tenants {
    /// How many there are, the root included.
    pub(crate) fn len(&self) -> usize {
        self.by_number.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
