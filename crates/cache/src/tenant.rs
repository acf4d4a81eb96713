//! Tenants: who pays for pages, as a tree that grows and shrinks while the cache runs.
//!
//! A tenant is a memory cgroup of the core, found by its path. What is open belongs to a tenant; it keeps the tenant's
//! number from being given to another until it is closed, also after the tenant was removed. From then on, its pages are
//! charged to the parent.
//!
//! # Locking
//!
//! The registry's lock is taken with nothing held. It is held alone where a tenant is added, so that whoever finds one finds
//! its state as well. The list of a tenant's handles is a leaf.

use crate::anon::AnonRegion;
use crate::backend::OpenMode;
use crate::cache::{PageCache, Shared};
use crate::error::Error;
use crate::file::{CachedFile, LEN_MAX};
use crate::inode::Inode;
use crate::stat::{HandleStats, TenantStats};
use mglru_core::lru::GenerationRow;
use mglru_core::mm::AddressSpace;
use mglru_core::reclaim::{Lowering, RequestStep};
use mglru_core::{
    Core, Counter, Host, Kind, Mapping, Memcg, MemcgError, MemcgId, OutOfMemory, PAGE_BYTES, Task, UNLIMITED,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

/// Bytes that the cache keeps about a tenant, its place in the registry and its path included.
const TENANT_BYTES: u64 = (size_of::<TenantState>() + size_of::<AddressSpace>()) as u64 + 160;
/// Bytes per file: its mapping, and what this cache and the backend keep about it.
const FILE_BYTES: u64 = (size_of::<Mapping>() + size_of::<Inode>()) as u64 + 512;

/// What a tenant may use, and what of that is spared. The default is no limit, and no protection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `memory.min`, in bytes: so much is never taken to make room for others.
    pub min_bytes: u64,
    /// `memory.low`, in bytes: so much is taken only if nothing else is left.
    pub low_bytes: u64,
    /// `memory.high`, in bytes: who uses more is slowed down. `None`: nobody is.
    pub high_bytes: Option<u64>,
    /// `memory.max`, in bytes: nobody uses more. `None`: the budget is the limit.
    pub max_bytes: Option<u64>,
    /// `memory.swap.high`, in bytes: who has more in swap is slowed down.
    pub swap_high_bytes: Option<u64>,
    /// `memory.swap.max`, in bytes: nobody has more in swap.
    pub swap_max_bytes: Option<u64>,
}

impl Limits {
    /// At most `bytes`, and nothing else.
    pub fn max(bytes: u64) -> Limits {
        Limits { max_bytes: Some(bytes), ..Limits::default() }
    }
}

fn pages(bytes: Option<u64>) -> u64 {
    bytes.map_or(UNLIMITED, |bytes| bytes / PAGE_BYTES)
}

fn limit(pages: u64) -> Option<u64> {
    (pages != UNLIMITED).then_some(pages)
}

/// What the cache keeps about a tenant.
pub(crate) struct TenantState {
    cache: Weak<Shared>,
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
        let Some(shared) = self.cache.upgrade() else { return };
        if *self.joined.get_mut() {
            shared.core.end_task(&self.task(0));
        }
        shared.core.forget_host_bytes(TENANT_BYTES);
        shared.core.drop_handle(self.memcg);
    }
}

/// The tenants that there are.
#[derive(Default)]
pub(crate) struct Tenants {
    by_number: RwLock<BTreeMap<MemcgId, Arc<TenantState>>>,
    /// Memcgs below this number are paid for: they stay, to be used again.
    paid: AtomicU32,
}

impl Tenants {
    /// How many there are, the root included.
    pub(crate) fn len(&self) -> usize {
        self.by_number.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Shared {
    /// All of them, the root first.
    pub(crate) fn tenants(self: &Arc<Self>) -> Vec<Tenant> {
        let tenants = self.tenants.by_number.read().unwrap_or_else(PoisonError::into_inner);
        tenants.values().map(|state| Tenant { shared: self.clone(), state: state.clone() }).collect()
    }

    /// The root gets its state.
    pub(crate) fn add_root(self: &Arc<Self>) {
        self.core.add_handle(MemcgId::ROOT);
        let mut tenants = self.tenants.by_number.write().unwrap_or_else(PoisonError::into_inner);
        tenants.insert(MemcgId::ROOT, self.new_state("", MemcgId::ROOT));
    }

    fn new_state(self: &Arc<Self>, path: &str, memcg: MemcgId) -> Arc<TenantState> {
        self.core.count_host_bytes(TENANT_BYTES);
        Arc::new(TenantState {
            cache: Arc::downgrade(self),
            path: path.into(),
            memcg,
            joined: AtomicBool::new(false),
            space: OnceLock::new(),
            handles: Mutex::default(),
        })
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
            let parent = self.core.hold_memcg(parent).map_err(|_| Error::NoSuchTenant(parent.to_owned()))?;
            let added = self.core.add_child(parent, name, max_pages, self.host.now()).map(Memcg::id);
            self.core.drop_handle(parent);
            let memcg = added.map_err(Error::Tenant)?;
            self.set_limits(memcg, limits);
            let state = self.new_state(&self.core.memcg_path(memcg), memcg);
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

    fn set_limits(&self, memcg: MemcgId, limits: &Limits) {
        self.core.set_min(memcg, limits.min_bytes / PAGE_BYTES);
        self.core.set_low(memcg, limits.low_bytes / PAGE_BYTES);
        let memcg = self.core.memcg(memcg);
        memcg.set_high_pages(pages(limits.high_bytes));
        memcg.set_swap_high_pages(pages(limits.swap_high_bytes));
        memcg.set_swap_max_pages(pages(limits.swap_max_bytes));
    }

    fn find_tenant(self: &Arc<Self>, path: &str) -> Result<Tenant, Error> {
        let missing = || Error::NoSuchTenant(path.to_owned());
        let tenants = self.tenants.by_number.read().unwrap_or_else(PoisonError::into_inner);
        let memcg = self.core.find_memcg(path).map_err(|_| missing())?;
        let state = tenants.get(&memcg).cloned().ok_or_else(missing)?;
        drop(tenants);
        Ok(Tenant { shared: self.clone(), state })
    }

    fn remove_found(&self, tenant: &Tenant) -> Result<(), MemcgError> {
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

impl PageCache {
    /// The tenant of a path, like `a/b`. The empty path is the root.
    ///
    /// # Errors
    /// [`Error::NoSuchTenant`].
    pub fn tenant(&self, path: &str) -> Result<Tenant, Error> {
        self.shared.find_tenant(path)
    }

    /// All tenants, the root first, in no other order that means anything.
    pub fn tenants(&self) -> Vec<Tenant> {
        self.shared.tenants()
    }

    /// Makes a tenant. `path` is that of its parent, which must be there, a slash, and its name; or only its name, below the
    /// root.
    ///
    /// # Errors
    /// The name is taken or cannot be one, there is no such parent, there are too many tenants or levels of them, or what is
    /// kept about them takes too much of the budget.
    pub fn add_tenant(&self, path: &str, limits: &Limits) -> Result<Tenant, Error> {
        self.shared.add_tenant(path, limits, false)
    }

    /// Removes a tenant. Its pages stay in memory and are its parent's from now on, where the mechanisms say so; handles that
    /// are open go on working, and their pages are charged to the parent.
    ///
    /// # Errors
    /// There is none of that path, it has children, or it is the root.
    pub fn remove_tenant(&self, path: &str) -> Result<(), Error> {
        let tenant = self.shared.find_tenant(path)?;
        self.shared.remove_found(&tenant).map_err(|error| match error {
            // Somebody else was faster.
            MemcgError::Gone => Error::NoSuchTenant(path.to_owned()),
            other => Error::Tenant(other),
        })
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
        f.debug_tuple("Tenant").field(&self.state.path).finish()
    }
}

impl Tenant {
    pub(crate) fn state(&self) -> &Arc<TenantState> {
        &self.state
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
        &self.state.path
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

    /// Makes a tenant below this one. See [`PageCache::add_tenant`].
    ///
    /// # Errors
    /// As [`PageCache::add_tenant`].
    pub fn add_child(&self, name: &str, limits: &Limits) -> Result<Tenant, Error> {
        self.shared.add_tenant(&self.path_of(name), limits, false)
    }

    fn path_of(&self, child: &str) -> String {
        if self.state.path.is_empty() { child.to_owned() } else { format!("{}/{child}", self.state.path) }
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
        self.shared.core.set_min(memcg, bytes / PAGE_BYTES);
        Ok(())
    }

    /// Sets `memory.low`: so much of it, in bytes, is taken only if nothing else is left.
    ///
    /// # Errors
    /// It was removed, or is the root.
    pub fn set_low(&self, bytes: u64) -> Result<(), Error> {
        let memcg = self.check_online()?.id();
        self.shared.core.set_low(memcg, bytes / PAGE_BYTES);
        Ok(())
    }

    /// Sets `memory.high`, in bytes: who uses more is slowed down. What is above it is reclaimed before this returns, as far
    /// as it can be.
    ///
    /// # Errors
    /// It was removed, or is the root; or the cache was closed.
    pub fn set_high(&self, bytes: Option<u64>) -> Result<(), Error> {
        let memcg = self.check_online()?;
        memcg.set_high_pages(pages(bytes));
        self.lower(Lowering::new(memcg.id(), true, self.shared.cpu())).map(|_| ())
    }

    /// Sets `memory.max`, in bytes: nobody uses more. What is above it is reclaimed before this returns, as far as it can be;
    /// what cannot be stays, and counts as `oom`.
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

    /// Opens a file whose pages, as far as they are read or written first through this handle, this tenant pays for.
    /// Handles on the same file share its pages, whichever tenants they belong to.
    ///
    /// Pages stay in memory while some handle is open; after the last is closed, dirty pages are written and the file
    /// is forgotten, so that opening it again sees what others did to it.
    ///
    /// # Errors
    /// The system refuses to open it, it is beyond 16 TiB, the cache was closed, or there is no memory for what is kept
    /// about an open file.
    pub fn open(&self, path: &Path, mode: OpenMode) -> Result<CachedFile, Error> {
        let shared = &self.shared;
        let fail = |source| Error::io("open", path, source);
        let file = shared.backend.open(path, mode).map_err(fail)?;
        if shared.stopping.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        let len = file.len().map_err(fail)?;
        if len > LEN_MAX {
            return Err(Error::TooLarge { path: path.to_owned(), end: len });
        }
        let writable = mode != OpenMode::ReadOnly;
        let mut was_idle = false;
        let inode = {
            let mut inodes = shared.lock_inodes();
            let inode = match inodes.find(file.identity()) {
                Some(inode) => {
                    if writable {
                        let mut known = inode.writable.lock().unwrap_or_else(PoisonError::into_inner);
                        known.get_or_insert(file);
                    }
                    inode.clone()
                }
                None => {
                    let mapping = shared.core.open_mapping_with(Kind::File, FILE_BYTES);
                    let inode = Arc::new(Inode::new(file, writable, mapping, len));
                    inodes.insert(&inode);
                    inode
                }
            };
            was_idle |= inode.handles.fetch_add(1, Ordering::AcqRel) == 0;
            inode
        };
        let handle = CachedFile::new(shared.clone(), inode.clone(), self.state.clone(), writable);
        shared.pay_for_index(&handle.task)?;
        if was_idle {
            // It was about to be forgotten; what is left of it may be out of date.
            shared.drop_clean_pages(&inode, 0);
        }
        inode.revalidate(shared)?;
        Ok(handle)
    }

    /// Makes `bytes` of anonymous memory, all zeros, that this tenant pays for as far as it is stored to.
    ///
    /// # Errors
    /// It is more than 16 TiB, the cache was closed, or there is no memory for what is kept about it.
    pub fn anonymous(&self, bytes: u64) -> Result<AnonRegion, Error> {
        AnonRegion::new(self.shared.clone(), self.state.clone(), bytes)
    }

    /// Why it was killed, if it was and was not revived ([`crate::OomPolicy`]).
    pub fn killed(&self) -> Option<OutOfMemory> {
        self.shared.core.oom_killed(self.state.memcg()).map(|report| *report)
    }

    /// Gives a tenant that was killed pages again. Its files go on; of its anonymous memory, the regions that were lost stay
    /// lost, and fail: they are to be dropped and made anew. `false`: it was not killed.
    pub fn revive(&self) -> bool {
        self.shared.revive(self.state.memcg())
    }

    /// What it holds and did.
    pub fn stats(&self) -> TenantStats {
        let (state, core, memcg) = (&self.state, &self.shared.core, self.memcg());
        let (hits, misses) = {
            let handles = state.handles.lock().unwrap_or_else(PoisonError::into_inner);
            let sum =
                |of: fn(&HandleStats) -> u64| handles.open.values().map(|handle| of(handle)).sum::<u64>();
            (handles.hits + sum(HandleStats::hits), handles.misses + sum(HandleStats::misses))
        };
        TenantStats {
            name: state.path.to_string(),
            min_pages: memcg.min_pages(),
            low_pages: memcg.low_pages(),
            high_pages: limit(memcg.memory().high_pages()),
            max_pages: limit(memcg.max_pages()),
            usage_pages: core.used_pages(memcg.id()),
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
