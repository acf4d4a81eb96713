//! Memory cgroups ("tenants"): charges, limits and their tree.
//!
//! ```text
//! root ─┬─ a ─┬─ a/x      a page is charged to its memcg and all its ancestors ([`counter`]), in advance and in
//!       │     └─ a/y      batches ([`stock`]); metadata likewise, in bytes ([`index`]); what reclaim spares is in
//!       └─ b              [`protection`]; the tree, and how it is walked, in [`tree`]; removal in [`offline`]; stall times
//!                         in [`pressure`].
//! ```
//!
//! Each memcg has its own lists ([`Lruvec`]). The pages of a removed memcg belong to its *heir*,
//! the nearest ancestor that is online.
//!
//! # Locking
//!
//! Usage, limits and counters are atomic words. The tree has a lock of its own. A number is reused
//! only after the last reference to it is gone, so that a lookup by number needs no lock.

pub(crate) mod charging;
mod counter;
mod effective;
mod id;
mod index;
mod limits;
mod offline;
mod oom;
pub(crate) mod pace;
mod pending;
mod pressure;
mod protection;
mod stall;
mod stat;
mod stock;
mod totals;
mod tree;
mod visit;

pub use counter::{PageCounter, UNLIMITED};
pub use id::MemcgId;
pub use index::HostCharge;
pub(crate) use index::IndexPaid;
pub use limits::Limits;
pub(crate) use oom::OomState;
pub(crate) use pace::Pace;
pub(crate) use pending::Pending;
pub use pressure::{PressureStats, Stall};
pub use protection::Effective;
pub use stat::{Counter, Stat};
pub use stock::CHARGE_BATCH_PAGES;
pub(crate) use stock::{Charge, Stocks};
pub(crate) use totals::Totals;
pub use tree::Memcgs;
pub(crate) use tree::TreeWalk;

use crate::lru::{Lruvec, MemcgOrder};
use crate::mm::SpaceList;
use crate::sync::{
    AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};
use pressure::Pressure;
use protection::Protection;
use std::sync::Arc;

/// The most memcgs at once, including the root.
pub const MEMCGS_MAX: u32 = 1 << MemcgId::BITS;
/// The most levels below the root.
pub const DEPTH_MAX: u32 = 64;
/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Life {
    /// Tasks may be charged to it.
    Online,
    /// Removed, but still referenced by pages, swap slots, children or handles.
    Offline,
    /// Unreferenced: the number is free.
    Free,
}

/// One memory cgroup.
#[derive(Debug)]
pub struct Memcg {
    id: MemcgId,
    name: Mutex<Arc<str>>,
    parent: AtomicU32,
    life: AtomicU32,
    /// The memcg that got the pages when this one was removed.
    heir: AtomicU32,
    /// Handles of owners outside the core, which may still charge to the memcg.
    handles: AtomicU32,
    /// `memory.oom.group`.
    oom_group: AtomicBool,
    pub(crate) oom: OomState,
    pub(crate) memory: PageCounter,
    pub(crate) swap: PageCounter,
    /// Where pages are charged one by one: pages that the last check of `memory.high` was for, too.
    checked_ahead: AtomicU64,
    /// Metadata that it pays for: a packed `Bill` of [`index`].
    index_bill: AtomicU64,
    /// Its cost, which its parent pays: a packed [`HostCharge`], or 0.
    own_charge: AtomicU64,
    protection: Protection,
    /// The position of concurrent reclaimers that share a walk of the subtree.
    shared_walk: Mutex<SharedWalk>,
    /// The order in which the memcgs of the subtree give pages, once it was needed.
    pub(crate) order: Mutex<Option<Box<MemcgOrder>>>,
    /// Whether the memcg is a member of the orders above it, under `subtree_lru`.
    pub(crate) in_turns: AtomicBool,
    /// Whether the memcg has or had children: then it keeps an order and is in it.
    pub(crate) has_children: AtomicBool,
    pub(crate) stat: Stat,
    /// Dirty and writeback pages of the subtree.
    pub(crate) pending: Pending,
    /// Dirty rate limit of each task, once a task was throttled.
    pub(crate) pace: Mutex<Option<Box<Pace>>>,
    pressure: Mutex<Option<Box<Pressure>>>,
    pub(crate) lruvec: Lruvec,
    pub(crate) spaces: SpaceList,
}

impl Memcg {
    /// Bytes of an empty memcg, including its place in the tree and its name. They are kept for
    /// reuse after the memcg is removed.
    pub const BYTES: u64 = 2048;

    fn new(id: MemcgId, now: crate::Time) -> Memcg {
        Memcg {
            id,
            name: Mutex::new("".into()),
            parent: AtomicU32::new(MemcgId::NONE),
            life: AtomicU32::new(Life::Free as u32),
            heir: AtomicU32::new(MemcgId::NONE),
            handles: AtomicU32::new(0),
            oom_group: AtomicBool::new(false),
            oom: OomState::new(),
            memory: PageCounter::new(UNLIMITED),
            swap: PageCounter::new(UNLIMITED),
            checked_ahead: AtomicU64::new(0),
            index_bill: AtomicU64::new(0),
            own_charge: AtomicU64::new(0),
            protection: Protection::new(),
            shared_walk: Mutex::default(),
            order: Mutex::new(None),
            in_turns: AtomicBool::new(false),
            has_children: AtomicBool::new(id == MemcgId::ROOT),
            stat: Stat::new(),
            pending: Pending::default(),
            pace: Mutex::new(None),
            pressure: Mutex::new(None),
            lruvec: Lruvec::new(id, now),
            spaces: SpaceList::new(),
        }
    }

    /// The memcg's number.
    pub fn id(&self) -> MemcgId {
        self.id
    }

    /// The name, unique among siblings; empty for the root.
    pub fn name(&self) -> Arc<str> {
        self.name.lock().clone()
    }

    /// The parent; the root is its own parent.
    pub fn parent(&self) -> MemcgId {
        let parent = self.parent.load(Relaxed);
        if parent == MemcgId::NONE { MemcgId::ROOT } else { MemcgId(parent) }
    }

    /// Whether the memcg has not been removed.
    pub fn is_online(&self) -> bool {
        self.life() == Life::Online
    }

    pub(crate) fn life(&self) -> Life {
        match self.life.load(Acquire) {
            0 => Life::Online,
            1 => Life::Offline,
            _ => Life::Free,
        }
    }

    fn set_life(&self, life: Life) {
        self.life.store(life as u32, Release);
    }

    /// Whether anybody outside the core refers to the memcg. Writes to the count, so that a thread
    /// that takes a handle afterwards sees whatever the caller has seen.
    fn has_handles(&self) -> bool {
        self.handles.fetch_add(0, AcqRel) > 0
    }

    /// The memcg that got the pages, if this one was removed and handed them over.
    pub(crate) fn heir(&self) -> Option<MemcgId> {
        let heir = self.heir.load(Acquire);
        (heir != MemcgId::NONE).then_some(MemcgId(heir))
    }

    /// `memory.current`, `.peak`, `.high` and `.max`.
    pub fn memory(&self) -> &PageCounter {
        &self.memory
    }

    /// `memory.swap.current`, `.peak`, `.high` and `.max`.
    pub fn swap(&self) -> &PageCounter {
        &self.swap
    }

    /// `memory.max`, in pages.
    pub fn max_pages(&self) -> u64 {
        self.memory.max_pages()
    }

    /// `memory.min`, in pages.
    pub fn min_pages(&self) -> u64 {
        self.protection.min_pages()
    }

    /// `memory.low`, in pages.
    pub fn low_pages(&self) -> u64 {
        self.protection.low_pages()
    }

    /// Sets `memory.max`, in pages. A smaller limit takes effect with the next charge;
    /// [`crate::reclaim::Lowering`] makes room at once.
    pub fn set_max_pages(&self, pages: u64) {
        self.memory.set_max(pages);
    }

    /// Sets `memory.high`, in pages.
    pub fn set_high_pages(&self, pages: u64) {
        self.memory.set_high(pages);
    }

    /// Sets `memory.swap.max`, in pages.
    pub fn set_swap_max_pages(&self, pages: u64) {
        self.swap.set_max(pages);
    }

    /// Sets `memory.swap.high`, in pages.
    pub fn set_swap_high_pages(&self, pages: u64) {
        self.swap.set_high(pages);
    }

    /// `memory.oom.group`: an OOM kill of one task kills all tasks of the memcg.
    pub(crate) fn oom_group(&self) -> bool {
        self.oom_group.load(Relaxed)
    }

    pub(crate) fn set_oom_group(&self, all: bool) {
        self.oom_group.store(all, Relaxed);
    }

    /// Pages charged now, with those that wait for a frame. `memory.current` leaves these out
    /// ([`PageCounter::held_pages`]).
    pub fn usage_pages(&self) -> u64 {
        self.memory.usage_pages()
    }

    /// `memory.peak`, in pages.
    pub fn peak_pages(&self) -> u64 {
        self.memory.peak_pages()
    }

    /// Counters of this memcg alone; [`Memcgs::subtree_stat`] adds those of its descendants.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// The lists of the memcg.
    pub fn lruvec(&self) -> &Lruvec {
        &self.lruvec
    }
}

/// The position of a shared walk.
#[derive(Debug, Default)]
pub(super) struct SharedWalk {
    pub(super) last: Option<MemcgId>,
    pub(super) round: u64,
}

/// The reason why a memcg could not be created, found or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemcgError {
    /// The name is taken.
    Exists(String),
    /// All numbers that fit into a shadow are in use.
    TooMany,
    /// The parent is at the deepest level.
    TooDeep,
    /// The name cannot be part of a path.
    BadName {
        /// The name.
        name: String,
        /// The problem with it.
        reason: &'static str,
    },
    /// The memcg has been removed.
    Gone,
    /// No memcg has this path.
    Missing(String),
    /// The memcg has children: remove those first.
    HasChildren,
    /// The root cannot be removed.
    IsRoot,
}

impl std::fmt::Display for MemcgError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MemcgError::Exists(name) => {
                write!(f, "a tenant named '{name}' exists already: choose another name")
            }
            MemcgError::TooMany => {
                write!(f, "there are already {} tenants, the maximum: remove some", MEMCGS_MAX - 1)
            }
            MemcgError::TooDeep => {
                write!(
                    f,
                    "the tree of tenants has {DEPTH_MAX} levels at most: add the tenant nearer to the root"
                )
            }
            MemcgError::BadName { name, reason } => {
                write!(f, "'{name}' cannot be the name of a tenant: {reason}")
            }
            MemcgError::Gone => write!(f, "the tenant was removed: create it again"),
            MemcgError::Missing(path) => write!(f, "there is no tenant '{path}': create it first"),
            MemcgError::HasChildren => write!(f, "the tenant has tenants below it: remove those first"),
            MemcgError::IsRoot => write!(f, "the root cannot be removed"),
        }
    }
}

impl std::error::Error for MemcgError {}
