//! Tenants: who pays for pages, as a tree that grows and shrinks while the cache runs.
//!
//! A tenant is a memory cgroup of the core, found by its path. What is open belongs to a tenant; it
//! keeps the tenant's number from being given to another until it is closed, also after the tenant
//! was removed. From then on, its pages are charged to the parent.
//!
//! # Locking
//!
//! The registry's lock is taken with nothing held. It is held alone where a tenant is added, so
//! that whoever finds one finds its state as well. The list of a tenant's handles is a leaf.

use crate::error::Error;
use crate::shared::Shared;
use crate::stat::TenantStats;
use crate::tenants::{Owner, TENANT_BYTES, TenantState};
use mglru_core::lru::GenerationRow;
use mglru_core::reclaim::{Lowering, RequestStep};
use mglru_core::{
    Counter, Host, Limits, Memcg, MemcgError, MemcgId, OutOfMemory, PAGE_BYTES, Task, UNLIMITED,
};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

fn pages(bytes: Option<u64>) -> u64 {
    bytes.map_or(UNLIMITED, |bytes| bytes / PAGE_BYTES)
}

fn limit(pages: u64) -> Option<u64> {
    (pages != UNLIMITED).then_some(pages)
}

impl Shared {
    /// All of them, the root first.
    pub(crate) fn tenants(self: &Arc<Self>) -> Vec<Tenant> {
        let tenants = self.tenants.by_number.read().unwrap_or_else(PoisonError::into_inner);
        tenants.values().map(|state| Tenant { shared: self.clone(), state: state.clone() }).collect()
    }

    /// The root gets its state.
    pub(crate) fn add_root(self: &Arc<Self>) {
        self.core.memcgs().add_handle(MemcgId::ROOT);
        let mut tenants = self.tenants.by_number.write().unwrap_or_else(PoisonError::into_inner);
        tenants.insert(MemcgId::ROOT, self.new_state("", MemcgId::ROOT));
    }

    fn new_state(self: &Arc<Self>, path: &str, memcg: MemcgId) -> Arc<TenantState> {
        self.core.count_host_bytes(TENANT_BYTES);
        let owner: Arc<dyn Owner> = self.clone();
        Arc::new(TenantState::new(&owner, path, memcg))
    }

    /// Makes a tenant. `paid`: what is kept about it is set aside already.
    pub(crate) fn add_tenant(
        self: &Arc<Self>,
        path: &str,
        limits: &Limits,
        paid: bool,
    ) -> Result<Tenant, Error> {
        let trimmed = path.strip_prefix('/').unwrap_or(path);
        let (parent, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
        let max_pages = limits.max_bytes.map_or(UNLIMITED, |bytes| (bytes / PAGE_BYTES).max(1));
        let state = {
            let mut tenants = self.tenants.by_number.write().unwrap_or_else(PoisonError::into_inner);
            let parent =
                self.core.memcgs().hold(parent).map_err(|_| Error::NoSuchTenant(parent.to_owned()))?;
            let added = self.core.add_child(parent, name, max_pages, self.host.now()).map(Memcg::id);
            self.core.drop_handle(parent);
            let memcg = added.map_err(Error::Tenant)?;
            self.core.memcgs().set_limits(memcg, limits);
            let state = self.new_state(&self.core.memcgs().path(memcg), memcg);
            tenants.insert(memcg, state.clone());
            state
        };
        let number = state.memcg().0;
        if self.tenants.paid.fetch_max(number + 1, Ordering::AcqRel) <= number && !paid {
            self.core.count_host_bytes(Memcg::BYTES);
        }
        let tenant = Tenant { shared: self.clone(), state };
        if !paid && let Err(error) = self.pay_for_index(&tenant.root_task()) {
            // Somebody else may have removed it already.
            let _ = self.remove_found(&tenant);
            return Err(match error {
                Error::TooManyFiles { .. } => Error::TooManyTenants { tenants: self.tenants.len() },
                other => other,
            });
        }
        Ok(tenant)
    }

    pub(crate) fn find_tenant(self: &Arc<Self>, path: &str) -> Result<Tenant, Error> {
        let missing = || Error::NoSuchTenant(path.to_owned());
        let tenants = self.tenants.by_number.read().unwrap_or_else(PoisonError::into_inner);
        let memcg = self.core.memcgs().find(path).map_err(|_| missing())?;
        let state = tenants.get(&memcg).cloned().ok_or_else(missing)?;
        drop(tenants);
        Ok(Tenant { shared: self.clone(), state })
    }

    pub(crate) fn remove_found(&self, tenant: &Tenant) -> Result<(), MemcgError> {
        let memcg = tenant.state.memcg();
        self.core.remove_memcg(&self.host, memcg)?;
        let mut tenants = self.tenants.by_number.write().unwrap_or_else(PoisonError::into_inner);
        let state = tenants.remove(&memcg);
        // What its end does is done without the lock.
        drop(tenants);
        drop(state);
        Ok(())
    }
}

/// One tenant: a share of the budget, with pages of its own. Clones are the same tenant.
#[derive(Clone)]
pub struct Tenant {
    shared: Arc<Shared>,
    state: Arc<TenantState>,
}

impl std::fmt::Debug for Tenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tenant").field(&self.state.path()).finish()
    }
}

impl Tenant {
    pub(crate) fn state(&self) -> &Arc<TenantState> {
        &self.state
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    fn memcg(&self) -> &Memcg {
        self.shared.core.memcg(self.state.memcg())
    }

    /// What everybody pays for together.
    fn root_task(&self) -> Task {
        Task { memcg: MemcgId::ROOT, space: Arc::default(), cpu: self.shared.cpu() }
    }

    /// Its path; empty for the root.
    pub fn name(&self) -> &str {
        self.state.path()
    }

    /// Whether it was not removed.
    pub fn is_online(&self) -> bool {
        self.memcg().is_online()
    }

    /// The tenant of that name, or path, below this one.
    ///
    /// # Errors
    /// [`Error::NoSuchTenant`].
    pub fn child(&self, name: &str) -> Result<Tenant, Error> {
        self.shared.find_tenant(&self.path_of(name))
    }

    /// Makes a tenant below this one. See [`crate::PageCache::add_tenant`].
    ///
    /// # Errors
    /// As [`crate::PageCache::add_tenant`].
    pub fn add_child(&self, name: &str, limits: &Limits) -> Result<Tenant, Error> {
        self.shared.add_tenant(&self.path_of(name), limits, false)
    }

    fn path_of(&self, child: &str) -> String {
        if self.state.path().is_empty() { child.to_owned() } else { format!("{}/{child}", self.state.path()) }
    }

    fn check_online(&self) -> Result<&Memcg, Error> {
        let memcg = self.memcg();
        if memcg.id() == MemcgId::ROOT {
            return Err(Error::RootHasNoLimits);
        }
        if memcg.is_online() { Ok(memcg) } else { Err(Error::Tenant(MemcgError::Gone)) }
    }

    /// Sets `memory.min`: so much of it, in bytes, is never taken to make room for others.
    ///
    /// # Errors
    /// It was removed, or is the root.
    pub fn set_min(&self, bytes: u64) -> Result<(), Error> {
        let memcg = self.check_online()?.id();
        self.shared.core.memcgs().set_min(memcg, bytes / PAGE_BYTES);
        Ok(())
    }

    /// Sets `memory.low`: so much of it, in bytes, is taken only if nothing else is left.
    ///
    /// # Errors
    /// It was removed, or is the root.
    pub fn set_low(&self, bytes: u64) -> Result<(), Error> {
        let memcg = self.check_online()?.id();
        self.shared.core.memcgs().set_low(memcg, bytes / PAGE_BYTES);
        Ok(())
    }

    /// Sets `memory.high`, in bytes: who uses more is slowed down. What is above it is reclaimed
    /// before this returns, as far as it can be.
    ///
    /// # Errors
    /// It was removed, or is the root; or the cache was closed.
    pub fn set_high(&self, bytes: Option<u64>) -> Result<(), Error> {
        let memcg = self.check_online()?;
        memcg.set_high_pages(pages(bytes));
        self.lower(Lowering::new(memcg.id(), true, self.shared.cpu())).map(|_| ())
    }

    /// Sets `memory.max`, in bytes: nobody uses more. What is above it is reclaimed before this
    /// returns, as far as it can be; what cannot be stays, and counts as `oom`.
    ///
    /// # Errors
    /// It was removed, or is the root; or the cache was closed.
    pub fn set_max(&self, bytes: Option<u64>) -> Result<(), Error> {
        let memcg = self.check_online()?;
        memcg.set_max_pages(pages(bytes));
        self.lower(Lowering::new(memcg.id(), false, self.shared.cpu()))
    }

    fn lower(&self, mut lowering: Lowering) -> Result<(), Error> {
        let shared = &self.shared;
        shared.run_steps(|| match lowering.step(&shared.core, &shared.host) {
            RequestStep::More => Ok(Some(None)),
            RequestStep::Wait(throttle) => Ok(Some(Some(throttle))),
            RequestStep::Done(_) | RequestStep::TryAgain(_) => Ok(None),
        })
    }

    /// Sets `memory.swap.high`, in bytes: who has more in swap is slowed down.
    ///
    /// # Errors
    /// It was removed, or is the root.
    pub fn set_swap_high(&self, bytes: Option<u64>) -> Result<(), Error> {
        self.check_online()?.set_swap_high_pages(pages(bytes));
        Ok(())
    }

    /// Sets `memory.swap.max`, in bytes: nobody has more in swap. What is there stays.
    ///
    /// # Errors
    /// It was removed, or is the root.
    pub fn set_swap_max(&self, bytes: Option<u64>) -> Result<(), Error> {
        self.check_online()?.set_swap_max_pages(pages(bytes));
        Ok(())
    }

    /// Why it was killed, if it was and was not revived ([`crate::OomPolicy`]).
    pub fn killed(&self) -> Option<OutOfMemory> {
        self.shared.core.oom_killed(self.state.memcg()).map(|report| *report)
    }

    /// Gives a tenant that was killed pages again. Its files go on; of its anonymous memory, the
    /// regions that were lost stay lost, and fail: they are to be dropped and made anew. `false`:
    /// it was not killed.
    pub fn revive(&self) -> bool {
        self.shared.revive(self.state.memcg())
    }

    /// What it holds and did.
    pub fn stats(&self) -> TenantStats {
        let (state, core, memcg) = (&self.state, &self.shared.core, self.memcg());
        let (hits, misses) = state.hits_and_misses();
        TenantStats {
            name: state.path().to_owned(),
            min_pages: memcg.min_pages(),
            low_pages: memcg.low_pages(),
            high_pages: limit(memcg.memory().high_pages()),
            max_pages: limit(memcg.max_pages()),
            usage_pages: core.memcgs().used_pages(memcg.id()),
            peak_pages: memcg.peak_pages(),
            swap_pages: memcg.swap().usage_pages(),
            hits,
            misses,
            counters: Counter::ALL
                .iter()
                .map(|&counter| (counter.name(), memcg.stat().get(counter)))
                .collect(),
            generations: self.generations(),
        }
    }

    /// Its live generations, oldest first.
    pub fn generations(&self) -> Vec<GenerationRow> {
        self.memcg().lruvec().generations(self.shared.host.now())
    }
}
