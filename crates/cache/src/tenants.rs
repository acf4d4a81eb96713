//! Per-tenant state: memcg number, address space and counters of its handles.
//!
//! # Locking
//!
//! The table's lock is taken with no other lock held. The list of a tenant's handles is a leaf
//! lock.

use crate::stat::{Accesses, HandleStats};
use mglru_core::mm::AddressSpace;
use mglru_core::{Core, MemcgId, Task};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

/// Bytes charged per tenant, including its registry entry and its path.
pub(crate) const TENANT_BYTES: u64 = (size_of::<TenantState>() + size_of::<AddressSpace>()) as u64 + 160;

/// The cache that owns a tenant, as needed when the tenant is dropped.
pub(crate) trait Owner: Send + Sync {
    fn core(&self) -> &Core;
}

pub(crate) struct TenantState {
    cache: Weak<dyn Owner>,
    path: Box<str>,
    memcg: MemcgId,
    /// Whether page table walks know its address space, because it has mapped something.
    joined: AtomicBool,
    /// Created for its first task.
    space: OnceLock<Arc<AddressSpace>>,
    handles: Mutex<Handles>,
    /// The largest estimate of mapped hits so far.
    mapped_hits: AtomicU64,
}

/// Counters of a tenant's handles.
#[derive(Default)]
struct Handles {
    /// Open handles, by address.
    open: BTreeMap<usize, Arc<HandleStats>>,
    /// Accesses through closed handles.
    closed: Accesses,
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
            mapped_hits: AtomicU64::new(0),
        }
    }

    /// The tenant's path; empty for the root.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Accesses through its handles, open and closed.
    pub(crate) fn accesses(&self) -> Accesses {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let mut accesses = handles.closed;
        handles.open.values().for_each(|handle| accesses.add(handle));
        accesses
    }

    /// The largest of all estimates so far: each is at most the true number, which only grows.
    pub(crate) fn mapped_hits(&self, estimate: u64) -> u64 {
        self.mapped_hits.fetch_max(estimate, Ordering::Relaxed).max(estimate)
    }

    pub(crate) fn memcg(&self) -> MemcgId {
        self.memcg
    }

    /// Creates and registers counters for a new handle.
    pub(crate) fn new_handle(&self) -> Arc<HandleStats> {
        let stats = Arc::new(HandleStats::default());
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.open.insert(Arc::as_ptr(&stats) as usize, stats.clone());
        stats
    }

    /// Adds a closed handle's counts to the tenant's.
    pub(crate) fn close_handle(&self, stats: &Arc<HandleStats>) {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.open.remove(&(Arc::as_ptr(stats) as usize));
        handles.closed.add(stats);
    }

    /// The tenant's task on `cpu`.
    pub(crate) fn task(&self, cpu: usize) -> Task {
        Task { memcg: self.memcg, space: self.space.get_or_init(Arc::default).clone(), cpu }
    }

    /// Registers the address space with the core before its first map.
    pub(crate) fn join(&self, core: &Core) {
        if !self.joined.swap(true, Ordering::AcqRel) {
            core.begin_task(&self.task(0));
        }
    }
}

impl Drop for TenantState {
    /// Runs when a removed tenant has no open handle left, or when the cache is dropped.
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

#[derive(Default)]
pub(crate) struct Tenants {
    pub(crate) by_number: RwLock<BTreeMap<MemcgId, Arc<TenantState>>>,
    /// Memcgs below this number are charged to the budget. Their metadata is kept for reuse.
    pub(crate) paid: AtomicU32,
}

impl Tenants {
    /// Number of tenants, including the root.
    pub(crate) fn len(&self) -> usize {
        self.by_number.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
