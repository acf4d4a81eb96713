//! Tenants: a tree of memory budgets to which pages are charged. It can change while the cache
//! runs.
//!
//! A tenant is a memcg of the core, found by its path. An open handle keeps its tenant's memcg
//! number from being reused, even after the tenant is removed; its pages are then charged to the
//! parent.
//!
//! # Locking
//!
//! The registry's lock is taken with no other lock held. Adding a tenant holds it exclusively, so
//! that a thread that finds a tenant also finds its state. The list of a tenant's handles is a leaf
//! lock.

use crate::error::Error;
use crate::shared::Shared;
use crate::stat::{Counters, TenantStats};
use crate::tenants::{Owner, TENANT_BYTES, TenantState};
use mglru_core::lru::GenerationRow;
use mglru_core::reclaim::{Lowering, RequestStep};
use mglru_core::{
    Counter, Host, HostCharge, Limits, Memcg, MemcgError, MemcgId, OutOfMemory, PAGE_BYTES, Task, UNLIMITED,
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
    /// All tenants, the root first.
    pub(crate) fn tenants(self: &Arc<Self>) -> Vec<Tenant> {
        let tenants = self.tenants.by_number.read().unwrap_or_else(PoisonError::into_inner);
        tenants.values().map(|state| Tenant { shared: self.clone(), state: state.clone() }).collect()
    }

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

    /// Creates a tenant. `paid`: its metadata is already part of the budget.
    pub(crate) fn add_tenant(
        self: &Arc<Self>,
        path: &str,
        limits: &Limits,
        paid: bool,
    ) -> Result<Tenant, Error> {
        let trimmed = path.strip_prefix('/').unwrap_or(path);
        let (parent, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
        let found = self.core.memcgs().hold(parent).map_err(|_| Error::NoSuchTenant(parent.to_owned()))?;
        let tenant = self.charge_tenant(found).and_then(|charge| self.add_below(found, name, limits, charge));
        self.core.drop_handle(found);
        let tenant = tenant?;
        let number = tenant.state.memcg().0;
        if self.tenants.paid.fetch_max(number + 1, Ordering::AcqRel) <= number && !paid {
            self.core.count_host_bytes(Memcg::BYTES);
        }
        if !paid && let Err(error) = self.pay_for_index(&tenant.root_task()) {
            // Another thread may have removed it already.
            let _ = self.remove_found(&tenant);
            return Err(match error {
                Error::TooManyFiles { .. } => Error::TooManyTenants { tenants: self.tenants.len() },
                other => other,
            });
        }
        Ok(tenant)
    }

    /// Charges a tenant below `parent` to it. Below a limit, that includes the page of metadata
    /// that every tenant has free; otherwise many small tenants would escape the limit together.
    fn charge_tenant(&self, parent: MemcgId) -> Result<HostCharge, Error> {
        let task = Task { memcg: parent, space: Arc::default(), cpu: self.cpu() };
        let free_bytes = if parent == MemcgId::ROOT { 0 } else { PAGE_BYTES };
        self.charge_to_tenant(&task, TENANT_BYTES + Memcg::BYTES + free_bytes)
    }

    fn add_below(
        self: &Arc<Self>,
        parent: MemcgId,
        name: &str,
        limits: &Limits,
        mut charge: HostCharge,
    ) -> Result<Tenant, Error> {
        let max_pages = pages(limits.max_bytes);
        let mut tenants = self.tenants.by_number.write().unwrap_or_else(PoisonError::into_inner);
        let added = self.core.add_child(parent, name, max_pages, self.host.now()).map(Memcg::id);
        let memcg = match added {
            Ok(memcg) => memcg,
            Err(error) => {
                drop(tenants);
                self.core.uncharge_host(&mut charge);
                return Err(Error::Tenant(error));
            }
        };
        self.core.pay_for_memcg(memcg, charge);
        self.core.memcgs().set_limits(memcg, limits);
        let state = self.new_state(&self.core.memcgs().path(memcg), memcg);
        tenants.insert(memcg, state.clone());
        Ok(Tenant { shared: self.clone(), state })
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
        // Dropped after the lock is released.
        drop(tenants);
        drop(state);
        Ok(())
    }
}

/// A tenant: pages with a common budget, limits and statistics. Clones refer to the same tenant.
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

    /// The task to which shared metadata is charged.
    fn root_task(&self) -> Task {
        Task { memcg: MemcgId::ROOT, space: Arc::default(), cpu: self.shared.cpu() }
    }

    /// The tenant's path; empty for the root.
    pub fn name(&self) -> &str {
        self.state.path()
    }

    /// Whether the tenant exists, that is, has not been removed.
    pub fn is_online(&self) -> bool {
        self.memcg().is_online()
    }

    /// The tenant with this name, or relative path, below this one.
    ///
    /// # Errors
    /// [`Error::NoSuchTenant`].
    pub fn child(&self, name: &str) -> Result<Tenant, Error> {
        self.shared.find_tenant(&self.path_of(name))
    }

    /// Creates a tenant below this one. See [`crate::PageCache::add_tenant`].
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

    /// Sets `memory.min`: usage, in bytes, that reclaim for other tenants never takes.
    ///
    /// # Errors
    /// The tenant was removed, or is the root.
    pub fn set_min(&self, bytes: u64) -> Result<(), Error> {
        let memcg = self.check_online()?.id();
        self.shared.core.memcgs().set_min(memcg, bytes / PAGE_BYTES);
        Ok(())
    }

    /// Sets `memory.low`: usage, in bytes, that reclaim takes only if nothing else is left.
    ///
    /// # Errors
    /// The tenant was removed, or is the root.
    pub fn set_low(&self, bytes: u64) -> Result<(), Error> {
        let memcg = self.check_online()?.id();
        self.shared.core.memcgs().set_low(memcg, bytes / PAGE_BYTES);
        Ok(())
    }

    /// Sets `memory.high`, in bytes. A tenant above it is throttled. Reclaims the excess, as far as
    /// possible, before returning.
    ///
    /// # Errors
    /// The tenant was removed, or is the root; or the cache is closed.
    pub fn set_high(&self, bytes: Option<u64>) -> Result<(), Error> {
        let memcg = self.check_online()?;
        memcg.set_high_pages(pages(bytes));
        self.lower(Lowering::new(memcg.id(), true, self.shared.cpu())).map(|_| ())
    }

    /// Sets `memory.max`, in bytes: the hard limit. Reclaims the excess, as far as possible, before
    /// returning. Any excess that remains counts as an `oom` event.
    ///
    /// # Errors
    /// The tenant was removed, or is the root; or the cache is closed.
    pub fn set_max(&self, bytes: Option<u64>) -> Result<(), Error> {
        let memcg = self.check_online()?;
        memcg.set_max_pages(pages(bytes));
        self.lower(Lowering::new(memcg.id(), false, self.shared.cpu()))
    }

    fn lower(&self, lowering: Lowering) -> Result<(), Error> {
        let shared = &self.shared;
        let step = |lowering: &mut Lowering| match lowering.step(&shared.core, &shared.host) {
            RequestStep::More => Ok(Some(None)),
            RequestStep::Wait(throttle) => Ok(Some(Some(throttle))),
            RequestStep::Done(_) | RequestStep::TryAgain(_) => Ok(None),
        };
        shared.run_steps(lowering, step, |lowering| lowering.cancel(&shared.core, &shared.host))
    }

    /// Sets `memory.swap.high`, in bytes. A tenant above it is throttled.
    ///
    /// # Errors
    /// The tenant was removed, or is the root.
    pub fn set_swap_high(&self, bytes: Option<u64>) -> Result<(), Error> {
        self.check_online()?.set_swap_high_pages(pages(bytes));
        Ok(())
    }

    /// Sets `memory.swap.max`, in bytes: the hard limit for new swap. Pages already in swap stay
    /// there.
    ///
    /// # Errors
    /// The tenant was removed, or is the root.
    pub fn set_swap_max(&self, bytes: Option<u64>) -> Result<(), Error> {
        self.check_online()?.set_swap_max_pages(pages(bytes));
        Ok(())
    }

    /// The most bytes of pages that the tenant may have at present: the least of its limits
    /// (`memory.max` and `memory.high`), those of the tenants above it, and the frames of the
    /// cache. Other tenants and locked pages may leave less.
    ///
    /// ```
    /// # let cache = mglru_cache::PageCache::builder(8 << 20).tenant("a", 4 << 20).build()?;
    /// assert_eq!(cache.tenant("a")?.most_bytes(), 4 << 20);
    /// assert!((4 << 20..8 << 20).contains(&cache.tenant("")?.most_bytes()));
    /// # Ok::<(), mglru_cache::Error>(())
    /// ```
    pub fn most_bytes(&self) -> u64 {
        let core = &self.shared.core;
        let frames = u64::from(core.folios().len() - core.retired_pages());
        core.memcgs().limit_pages(self.memcg().id()).min(frames) * PAGE_BYTES
    }

    /// The report of the tenant's OOM kill, until it is revived ([`crate::OomPolicy`]).
    pub fn killed(&self) -> Option<OutOfMemory> {
        self.shared.core.oom_killed(self.state.memcg()).map(|report| *report)
    }

    /// Lets a killed tenant charge pages again. Its files keep working. Anonymous regions that were
    /// lost stay lost and return errors; drop them and create new ones. Returns `false` if the
    /// tenant was not killed.
    pub fn revive(&self) -> bool {
        self.shared.revive(self.state.memcg())
    }

    /// The tenant's sizes and counters.
    pub fn stats(&self) -> TenantStats {
        let (state, core, memcg) = (&self.state, &self.shared.core, self.memcg());
        core.settle_index();
        let accesses = state.accesses();
        TenantStats {
            name: state.path().to_owned(),
            min_pages: memcg.min_pages(),
            low_pages: memcg.low_pages(),
            high_pages: limit(memcg.memory().high_pages()),
            max_pages: limit(memcg.max_pages()),
            usage_pages: core.memcgs().used_pages(memcg.id()),
            peak_pages: memcg.peak_pages(),
            swap_pages: memcg.swap().usage_pages(),
            hits: accesses.hits,
            misses: accesses.misses,
            mapped_hits: state.mapped_hits(accesses.mapped_hits(memcg.stat().get(Counter::Pgyoung))),
            counters: Counters::new(|counter| memcg.stat().get(counter)),
            pressure: memcg.pressure_stats(self.shared.host.now()).into(),
            generations: self.generations(),
        }
    }

    /// The tenant's live generations, oldest first.
    pub fn generations(&self) -> Vec<GenerationRow> {
        self.memcg().lruvec().generations(self.shared.host.now())
    }
}
