//! Memory cgroups ("tenants"): who pays for a page.
//!
//! ```text
//! root ─┬─ a ─┬─ a/x      a page is charged to its memcg and all its ancestors ([`counter`]), in advance and in
//!       │     └─ a/y      batches ([`stock`]); what reclaim spares is in [`protection`]; the tree, and how it is walked,
//!       └─ b              in [`tree`]; how a memcg goes in [`offline`];
//!                      how much its tasks were stalled in [`pressure`].
//! ```
//!
//! Each memcg has its own lists ([`Lruvec`]). The pages of a memcg that went belong to its *heir*,
//! the nearest ancestor that is there.
//!
//! # Locking
//!
//! Usage, limits and counters are atomic words. The tree has a lock of its own. A number is used
//! again only when nothing refers to it any more, so that a memcg is found by number without a
//! lock.

mod counter;
mod id;
mod limits;
mod offline;
mod oom;
pub(crate) mod pace;
mod pending;
mod pressure;
mod protection;
mod stat;
mod stock;
mod totals;
mod tree;

pub use counter::{PageCounter, UNLIMITED};
pub use id::MemcgId;
pub use limits::Limits;
pub(crate) use oom::OomState;
pub(crate) use pace::Pace;
pub(crate) use pending::Pending;
pub use pressure::Stall;
pub use protection::Effective;
pub use stat::{Counter, Stat};
pub use stock::CHARGE_BATCH_PAGES;
pub(crate) use stock::{Charge, Stocks};
pub(crate) use totals::Totals;
pub use tree::Memcgs;
use tree::SharedWalk;
pub(crate) use tree::TreeWalk;

use crate::lru::{Lruvec, MemcgOrder};
use crate::mm::SpaceList;
use crate::sync::{AtomicBool, AtomicU32, Mutex, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use pressure::Pressure;
use protection::Protection;
use std::sync::Arc;

/// Most memcgs at once, the root included.
pub const MEMCGS_MAX: u32 = 1 << MemcgId::BITS;
/// Most levels below the root.
pub const DEPTH_MAX: u32 = 64;
/// Most bytes of a name.
pub const NAME_BYTES_MAX: usize = 255;

/// How far a memcg's life has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Life {
    /// Tasks may be charged to it.
    Online,
    /// It was removed, and something still refers to it: pages, swap slots, children or handles.
    Offline,
    /// Nothing does: the number is free.
    Free,
}

/// One memory cgroup.
#[derive(Debug)]
pub struct Memcg {
    id: MemcgId,
    name: Mutex<Arc<str>>,
    parent: AtomicU32,
    life: AtomicU32,
    /// Who has its pages since it went.
    heir: AtomicU32,
    /// Owners outside the core, who may still charge to it.
    handles: AtomicU32,
    /// `memory.oom.group`.
    oom_group: AtomicBool,
    pub(crate) oom: OomState,
    pub(crate) memory: PageCounter,
    pub(crate) swap: PageCounter,
    protection: Protection,
    /// Where those who reclaim from its subtree together are.
    shared_walk: Mutex<SharedWalk>,
    /// The order in which its subtree gives pages, once somebody asked for it.
    pub(crate) order: Mutex<Option<Box<MemcgOrder>>>,
    /// Its place in the orders that it is in.
    pub(crate) group: AtomicU32,
    /// It has, or had, children: it keeps an order, in which it is itself.
    pub(crate) has_children: AtomicBool,
    pub(crate) stat: Stat,
    /// Of its subtree.
    pub(crate) pending: Pending,
    /// How fast each of its tasks may dirty pages, once one was slowed down.
    pub(crate) pace: Mutex<Option<Box<Pace>>>,
    pressure: Mutex<Option<Box<Pressure>>>,
    pub(crate) lruvec: Lruvec,
    pub(crate) spaces: SpaceList,
}

impl Memcg {
    /// Bytes of an empty one, with its place in the tree and its name. They stay when it goes, for
    /// the next.
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
            protection: Protection::new(),
            shared_walk: Mutex::default(),
            order: Mutex::new(None),
            group: AtomicU32::new(0),
            has_children: AtomicBool::new(id == MemcgId::ROOT),
            stat: Stat::new(),
            pending: Pending::default(),
            pace: Mutex::new(None),
            pressure: Mutex::new(None),
            lruvec: Lruvec::new(id, now),
            spaces: SpaceList::new(),
        }
    }

    /// Its number.
    pub fn id(&self) -> MemcgId {
        self.id
    }

    /// Its name, unique among its siblings; empty for the root.
    pub fn name(&self) -> Arc<str> {
        self.name.lock().clone()
    }

    /// The memcg that it is a child of; of the root, the root itself.
    pub fn parent(&self) -> MemcgId {
        let parent = self.parent.load(Relaxed);
        if parent == MemcgId::NONE { MemcgId::ROOT } else { MemcgId(parent) }
    }

    /// Whether it was not removed.
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

    /// Who has its pages, if it went and passed them on.
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

    /// `memory.oom.group`: whoever kills one of its tasks kills all.
    pub(crate) fn oom_group(&self) -> bool {
        self.oom_group.load(Relaxed)
    }

    pub(crate) fn set_oom_group(&self, all: bool) {
        self.oom_group.store(all, Relaxed);
    }

    /// `memory.current`, in pages.
    pub fn usage_pages(&self) -> u64 {
        self.memory.usage_pages()
    }

    /// `memory.peak`, in pages.
    pub fn peak_pages(&self) -> u64 {
        self.memory.peak_pages()
    }

    /// Its own counters; [`Memcgs::subtree_stat`] has those of its children, too.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Its lists.
    pub fn lruvec(&self) -> &Lruvec {
        &self.lruvec
    }
}

impl Memcgs {
    /// A memcg and its ancestors below the root; of the root, itself.
    #[inline]
    pub(crate) fn with_ancestors(&self, memcg: MemcgId) -> impl Iterator<Item = &Memcg> {
        let mut next = Some(memcg);
        std::iter::from_fn(move || {
            let memcg = self.get(next?);
            next = Some(memcg.parent()).filter(|&parent| parent != MemcgId::ROOT);
            Some(memcg)
        })
    }

    /// A memcg and its ancestors, the root included.
    pub(crate) fn lineage(&self, memcg: &Memcg) -> impl Iterator<Item = &Memcg> {
        let root = (memcg.id != MemcgId::ROOT).then(|| self.get(MemcgId::ROOT));
        self.with_ancestors(memcg.id).chain(root)
    }

    /// Whether `memcg` is `ancestor` or below it.
    pub(crate) fn is_within(&self, memcg: MemcgId, ancestor: MemcgId) -> bool {
        ancestor == MemcgId::ROOT || self.with_ancestors(memcg).any(|memcg| memcg.id == ancestor)
    }

    /// Charges a memcg and all its ancestors; or, where one refuses, takes back what the others
    /// were charged.
    fn charge_all(
        &self,
        memcg: MemcgId,
        charge: impl Fn(&Memcg) -> bool,
        uncharge: impl Fn(&Memcg),
    ) -> Result<(), MemcgId> {
        let Some(refused) = self.with_ancestors(memcg).find(|&payer| !charge(payer)) else { return Ok(()) };
        self.with_ancestors(memcg).take_while(|paid| paid.id != refused.id).for_each(uncharge);
        Err(refused.id)
    }

    /// Charges `pages` to a memcg and its ancestors.
    ///
    /// # Errors
    /// Nothing was charged: it would exceed the limit of this one.
    pub(crate) fn charge_pages(&self, memcg: MemcgId, pages: u64) -> Result<(), MemcgId> {
        let charge = |payer: &Memcg| {
            let usage = payer.memory.try_charge(pages);
            let charged =
                usage.map(|usage| payer.protection.update(usage, || &self.get(payer.parent()).protection));
            charged.is_some()
        };
        self.charge_all(memcg, charge, |paid| self.uncharge_one(paid, pages))
    }

    pub(super) fn uncharge_one(&self, payer: &Memcg, pages: u64) {
        let usage = payer.memory.uncharge(pages);
        let usage = usage.unwrap_or_else(|| panic!("memcg {:?} was uncharged below zero", payer.id));
        payer.protection.update(usage, || &self.get(payer.parent()).protection);
    }

    /// Charges a swap slot to a memcg and its ancestors.
    ///
    /// # Errors
    /// This one may have no more.
    pub(crate) fn charge_swap(&self, memcg: MemcgId) -> Result<(), MemcgId> {
        self.charge_all(memcg, |payer| payer.swap.try_charge(1).is_some(), |paid| _ = paid.swap.uncharge(1))?;
        let over = self.with_ancestors(memcg).filter(|payer| payer.swap.overage() > 0);
        over.for_each(|payer| payer.stat.add(Counter::EventSwapHigh, 1));
        Ok(())
    }

    /// Sets `memory.min`, in pages. More than `memory.max` protects as much as that.
    pub fn set_min(&self, memcg: MemcgId, pages: u64) {
        self.get(memcg).protection.set_min(pages);
        self.update_protection(memcg);
    }

    /// Sets `memory.low`, in pages.
    pub fn set_low(&self, memcg: MemcgId, pages: u64) {
        self.get(memcg).protection.set_low(pages);
        self.update_protection(memcg);
    }

    fn update_protection(&self, memcg: MemcgId) {
        let memcg = self.get(memcg);
        memcg.protection.update(memcg.usage_pages(), || &self.get(memcg.parent()).protection);
    }

    /// A memcg and all below it, in the order in which the tree is walked: each before its
    /// children, siblings as they were made.
    pub fn subtree(&self, memcg: MemcgId) -> impl Iterator<Item = &Memcg> {
        let mut next = Some(memcg);
        std::iter::from_fn(move || {
            let here = next?;
            next = self.next_in(memcg, Some(here));
            Some(self.get(here))
        })
    }
}

/// Why a memcg could not be made, found or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemcgError {
    /// The name is taken.
    Exists(String),
    /// As many exist as their numbers in shadow entries can tell apart.
    TooMany,
    /// The parent has as many ancestors as there may be.
    TooDeep,
    /// The name cannot be part of a path.
    BadName {
        /// It.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// It was removed.
    Gone,
    /// There is no such path.
    Missing(String),
    /// It has children: remove those first.
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
                write!(f, "there are {} tenants already, which is the most: remove some", MEMCGS_MAX - 1)
            }
            MemcgError::TooDeep => write!(f, "the tree of tenants has {DEPTH_MAX} levels at most"),
            MemcgError::BadName { name, reason } => {
                write!(f, "'{name}' cannot be the name of a tenant: {reason}")
            }
            MemcgError::Gone => write!(f, "the tenant was removed: make it anew"),
            MemcgError::Missing(path) => write!(f, "there is no tenant '{path}': make it first"),
            MemcgError::HasChildren => write!(f, "the tenant has tenants below it: remove those first"),
            MemcgError::IsRoot => write!(f, "the root cannot be removed"),
        }
    }
}

impl std::error::Error for MemcgError {}
