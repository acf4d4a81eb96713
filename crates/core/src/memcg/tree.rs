//! The tree of memcgs, and the orders in which it is walked.
//!
//! A lookup by number takes no lock; parents and names have a lock. A walk is in pre-order: the
//! target first, each memcg before its children, siblings in order of creation. Removed memcgs stay
//! in the tree as long as something refers to them.
//!
//! Concurrent reclaimers of one target *share* a walk: each takes the next memcg, and a walk ends
//! with the round that it joined.
//!
//! Source: [book: memcgs#tree-walk] (Linux 6.12 to 7.2).
//!
//! # Locking
//!
//! The tree's lock may be taken with an lruvec lock held, to note a cost or to sum sizes of a
//! subtree. Under it, a thread that frees a number takes leaves: the locks of orders, of the index
//! of shadow owners and of Bloom filters. A thread that creates a memcg takes all locks of its
//! place, including its lruvec lock. The number is free: another thread may hold one of them only
//! for a moment, to find nothing there, and does not wait for the tree meanwhile.
//!
//! A shared walk has a lock per target, and takes the tree's under it.

use super::stock::Stocks;
use super::{DEPTH_MAX, Life, MEMCGS_MAX, Memcg, MemcgError, MemcgId, NAME_BYTES_MAX};
use crate::segments::Segments;
use crate::sync::{
    AtomicU32, Mutex, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// 32 × 2^15 memcgs.
const SEGMENTS: usize = 15;

/// A number is reused only after so many others were freed, since a thread that looked up its
/// former memcg may still add to the counters. Counts added meanwhile pass to an ancestor
/// ([`Memcgs::settle_late`]), later ones to the root.
#[cfg(not(loom))]
pub(super) const NUMBERS_RESTING: usize = 64;
/// None, so that loom meets numbers that are reused.
#[cfg(loom)]
const NUMBERS_RESTING: usize = 0;

/// A freed number.
#[derive(Clone, Copy, Debug)]
struct Freed {
    number: u32,
    /// The memcg that gets late counts: the former parent, or its nearest existing ancestor.
    heir: u32,
}

/// The neighbours of one memcg.
#[derive(Clone, Copy, Debug)]
struct Links {
    first_child: u32,
    last_child: u32,
    next: u32,
    previous: u32,
    depth: u32,
}

const NONE: u32 = MemcgId::NONE;

impl Links {
    fn at_depth(depth: u32) -> Links {
        Links { first_child: NONE, last_child: NONE, next: NONE, previous: NONE, depth }
    }
}

#[derive(Debug, Default)]
struct Tree {
    links: Vec<Links>,
    /// Online memcgs by parent and name.
    names: BTreeMap<(u32, Arc<str>), u32>,
    /// Freed numbers in the order of release; the last ones are not reused yet.
    free: VecDeque<Freed>,
}

/// All memcgs: their tree, charges and limits.
#[derive(Debug)]
pub struct Memcgs {
    /// Memcgs are boxed, since segments have room for twice as many.
    memcgs: Segments<Box<Memcg>, SEGMENTS>,
    /// Numbers used so far.
    len: AtomicU32,
    tree: Mutex<Tree>,
    pub(super) stocks: Stocks,
    pub(super) charge_near_limit: bool,
}

/// The keys of a memcg's children in `names`.
fn children_of(parent: MemcgId) -> std::ops::Range<(u32, Arc<str>)> {
    (parent.0, Arc::from(""))..(parent.0 + 1, Arc::from(""))
}

fn check_name(name: &str) -> Result<(), MemcgError> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.contains('/') {
        "it has a slash; create the parent first, then the child under it"
    } else if name == "." || name == ".." {
        "it has another meaning in a path"
    } else if name.chars().any(char::is_control) {
        "it has control characters"
    } else if name.len() > NAME_BYTES_MAX {
        "it is longer than 255 bytes"
    } else if name.starts_with("memory.") || ["lru_gen", "lru_gen_full", "vmstat"].contains(&name) {
        "the name is reserved for control files"
    } else {
        return Ok(());
    };
    Err(MemcgError::BadName { name: name.to_owned(), reason })
}

impl Memcgs {
    /// A tree with only the root.
    pub(crate) fn new(stocks: Stocks, charge_near_limit: bool, now: crate::Time) -> Memcgs {
        let memcgs = Segments::new();
        memcgs.get_or_init(0, || Box::new(Memcg::new(MemcgId::ROOT, now))).set_life(Life::Online);
        let tree = Tree { links: vec![Links::at_depth(0)], ..Tree::default() };
        Memcgs { memcgs, len: AtomicU32::new(1), tree: Mutex::new(tree), stocks, charge_near_limit }
    }

    /// Creates a child. The caller gets a handle on it.
    pub(crate) fn add(
        &self,
        parent: MemcgId,
        name: &str,
        max_pages: u64,
        now: crate::Time,
    ) -> Result<&Memcg, MemcgError> {
        check_name(name)?;
        let mut guard = self.tree.lock();
        let tree = &mut *guard;
        if !self.get(parent).is_online() {
            return Err(MemcgError::Gone);
        }
        let depth = tree.links[parent.0 as usize].depth + 1;
        if depth > DEPTH_MAX {
            return Err(MemcgError::TooDeep);
        }
        let key = (parent.0, Arc::from(name));
        if tree.names.contains_key(&key) {
            return Err(MemcgError::Exists(name.to_owned()));
        }
        let is_new = tree.free.len() <= NUMBERS_RESTING && tree.links.len() < MEMCGS_MAX as usize;
        let number = is_new.then(|| {
            tree.links.push(Links::at_depth(depth));
            tree.links.len() as u32 - 1
        });
        let number = match number {
            Some(number) => number,
            None => {
                let freed = tree.free.pop_front().ok_or(MemcgError::TooMany)?;
                self.settle(freed);
                freed.number
            }
        };
        tree.links[number as usize] = Links::at_depth(depth);
        tree.append(parent.0, number);
        let memcg = self.memcgs.get_or_init(number, || Box::new(Memcg::new(MemcgId(number), now)));
        memcg.parent.store(parent.0, Relaxed);
        memcg.heir.store(NONE, Release);
        // A thread may be about to give back a handle that it took too late ([`Self::hold_payer`]).
        memcg.handles.fetch_add(1, AcqRel);
        memcg.set_oom_group(false);
        memcg.oom.reset();
        memcg.memory.reset(max_pages);
        memcg.swap.reset(super::UNLIMITED);
        memcg.protection.reset();
        memcg.pending.reset();
        *memcg.pace.lock() = None;
        *memcg.pressure.lock() = None;
        memcg.lruvec.reset(now);
        memcg.spaces.reset();
        memcg.in_turns.store(false, Relaxed);
        memcg.checked_ahead.store(0, Relaxed);
        memcg.has_children.store(false, Relaxed);
        *memcg.order.lock() = None;
        *memcg.name.lock() = key.1.clone();
        tree.names.insert(key, number);
        memcg.set_life(Life::Online);
        self.len.fetch_max(number + 1, Release);
        Ok(memcg)
    }

    /// One more than the highest number used so far.
    pub(crate) fn numbers(&self) -> u32 {
        self.len.load(Acquire)
    }

    /// As [`Self::numbers`], under the lock: whoever uses a higher number later sees all that this
    /// caller has seen.
    pub(crate) fn numbers_created(&self) -> u32 {
        let _tree = self.tree.lock();
        self.numbers()
    }

    #[inline]
    pub(crate) fn get(&self, id: MemcgId) -> &Memcg {
        self.memcgs.get(id.0).expect("a memcg's place stays once it was made")
    }

    /// All memcgs by number, the root first, including removed ones that still have pages.
    pub fn iter(&self) -> impl Iterator<Item = &Memcg> {
        (0..self.numbers()).map(|number| self.get(MemcgId(number))).filter(|memcg| memcg.life() != Life::Free)
    }

    /// Finds a memcg by its path, like `a/b`. The empty path and `/` are the root.
    ///
    /// # Errors
    /// [`MemcgError::Missing`]: no memcg has this path.
    pub fn find(&self, path: &str) -> Result<MemcgId, MemcgError> {
        self.tree.lock().find(path)
    }

    /// As [`Self::find`], and takes a handle on the memcg, so that its number stays valid;
    /// [`crate::Core::drop_handle`] gives the handle back.
    ///
    /// # Errors
    /// [`MemcgError::Missing`]: no memcg has this path.
    pub fn hold(&self, path: &str) -> Result<MemcgId, MemcgError> {
        let tree = self.tree.lock();
        let found = tree.find(path)?;
        // Under the lock, so that the memcg cannot be released before the handle is taken.
        self.add_handle(found);
        Ok(found)
    }

    /// The path of a memcg: the names from the root down, separated by slashes; empty for the root.
    pub fn path(&self, memcg: MemcgId) -> String {
        let mut names: Vec<_> = self.with_ancestors(memcg).map(Memcg::name).collect();
        names.reverse();
        names.join("/")
    }

    /// Adds a handle: another owner outside the core refers to the memcg.
    pub fn add_handle(&self, memcg: MemcgId) {
        self.get(memcg).handles.fetch_add(1, AcqRel);
    }

    /// The owner of a memcg's pages: itself, or its heir.
    #[inline]
    pub(crate) fn living(&self, memcg: MemcgId) -> &Memcg {
        let mut memcg = self.get(memcg);
        while let Some(heir) = memcg.heir() {
            memcg = self.get(heir);
        }
        memcg
    }

    /// The payer of new pages for a task of `memcg`: itself, or its nearest online ancestor.
    #[inline]
    pub(crate) fn payer(&self, memcg: MemcgId) -> &Memcg {
        let mut memcg = self.get(memcg);
        while !memcg.is_online() {
            memcg = self.get(memcg.parent());
        }
        memcg
    }

    /// As [`Self::payer`], and takes a handle on it, without a lock. The memcgs in `late` were
    /// removed meanwhile: the caller gives back a handle on each.
    pub(super) fn hold_payer(&self, memcg: MemcgId, late: &mut Vec<MemcgId>) -> &Memcg {
        loop {
            let payer = self.payer(memcg);
            self.add_handle(payer.id);
            // The thread that releases it either sees the handle or is seen here to have removed it
            // ([`Memcg::has_handles`]).
            if payer.is_online() {
                return payer;
            }
            late.push(payer.id);
        }
    }

    /// Takes a handle on the memcg with this number. `false`: the number is free.
    pub(crate) fn hold_number(&self, id: MemcgId) -> bool {
        let tree = self.tree.lock();
        let there = (id.0 as usize) < tree.links.len() && self.get(id).life() != Life::Free;
        if there {
            self.add_handle(id);
        }
        there
    }

    /// The names of a memcg's online children, sorted.
    pub(crate) fn children(&self, parent: MemcgId) -> Vec<Arc<str>> {
        let tree = self.tree.lock();
        tree.names.range(children_of(parent)).map(|((_, name), _)| name.clone()).collect()
    }

    /// Whether a memcg has online children.
    pub(crate) fn has_online_children(&self, parent: MemcgId) -> bool {
        self.tree.lock().names.range(children_of(parent)).next().is_some()
    }

    /// Visits a memcg and its descendants, parents first, while none can be added or released.
    /// `visit` must not take a lock.
    pub(crate) fn visit<'a>(&'a self, top: MemcgId, mut visit: impl FnMut(&'a Memcg)) {
        let tree = self.tree.lock();
        let mut next = Some(top.0);
        while let Some(at) = next {
            visit(self.get(MemcgId(at)));
            next = self.after(&tree, at, top.0);
        }
    }

    /// Takes an online memcg's name away, unless it has an online child.
    pub(super) fn take_offline(&self, memcg: &Memcg) -> Result<(), MemcgError> {
        if memcg.id == MemcgId::ROOT {
            return Err(MemcgError::IsRoot);
        }
        let mut tree = self.tree.lock();
        if !memcg.is_online() {
            return Err(MemcgError::Gone);
        }
        if tree.names.range(children_of(memcg.id)).next().is_some() {
            return Err(MemcgError::HasChildren);
        }
        let name = memcg.name();
        tree.names.remove(&(memcg.parent().0, name));
        memcg.set_life(Life::Offline);
        Ok(())
    }

    /// Frees the number of an offline memcg, if `unused` holds under the lock.
    pub(super) fn release(&self, memcg: &Memcg, unused: impl FnOnce() -> bool) -> bool {
        let mut tree = self.tree.lock();
        let childless = tree.links[memcg.id.0 as usize].first_child == NONE;
        if memcg.life() != Life::Offline || !childless || !unused() {
            return false;
        }
        let (number, heir) = (memcg.id.0, memcg.parent().0);
        tree.unlink(heir, number);
        memcg.set_life(Life::Free);
        tree.resting().filter(|freed| freed.heir == number).for_each(|freed| freed.heir = heir);
        tree.free.push_back(Freed { number, heir });
        if let Some(rested) = tree.free.len().checked_sub(NUMBERS_RESTING + 1) {
            let rested = &mut tree.free[rested];
            self.settle(*rested);
            rested.heir = MemcgId::ROOT.0;
        }
        true
    }

    /// Passes counts that were added late to released memcgs below `top` on to living ones.
    pub(super) fn settle_late(&self, top: MemcgId) {
        let mut tree = self.tree.lock();
        let below_top = tree.resting().filter(|freed| self.is_below(freed.heir, top.0));
        below_top.for_each(|freed| self.settle(*freed));
    }

    /// As [`Self::settle_late`], for all released memcgs, however long ago.
    pub(crate) fn settle_all(&self) {
        self.tree.lock().free.iter().for_each(|freed| self.settle(*freed));
    }

    fn settle(&self, freed: Freed) {
        self.get(MemcgId(freed.number)).stat.move_late(&self.get(MemcgId(freed.heir)).stat);
    }

    /// The memcg after `at` in the subtree of `top`; for `None`, the first. It is held: the caller
    /// ends the visit with [`crate::Core::end_visit`].
    pub(super) fn hold_next(&self, top: MemcgId, at: Option<MemcgId>) -> Option<MemcgId> {
        let Some(MemcgId(at)) = at else { return Some(top) };
        let tree = self.tree.lock();
        if !self.is_below(at, top.0) {
            // It was removed, and its number may be reused by now.
            return None;
        }
        let next = self.after(&tree, at, top.0).map(MemcgId);
        // Under the lock, so that it cannot be released before the handle is taken.
        next.inspect(|&next| self.add_handle(next))
    }

    /// Holds a memcg that an order of `top` has named, for a visit. `false`: it has gone meanwhile.
    /// In both cases, the caller ends the visit with [`crate::Core::end_visit`].
    pub(crate) fn hold_named(&self, memcg: MemcgId, top: MemcgId) -> bool {
        if !super::visit::is_held(memcg, top) {
            return true;
        }
        self.add_handle(memcg);
        // As in [`Self::hold_payer`]. A removed one may be being released: the lock tells.
        let is_there = self.get(memcg).is_online() || {
            let _tree = self.tree.lock();
            self.get(memcg).life() != Life::Free
        };
        is_there && self.is_within(memcg, top)
    }

    /// The next memcg in pre-order.
    fn after(&self, tree: &Tree, mut at: u32, top: u32) -> Option<u32> {
        let child = tree.links[at as usize].first_child;
        if child != NONE {
            return Some(child);
        }
        while at != top {
            let next = tree.links[at as usize].next;
            if next != NONE {
                return Some(next);
            }
            at = self.get(MemcgId(at)).parent().0;
        }
        None
    }

    fn is_below(&self, mut at: u32, top: u32) -> bool {
        if self.get(MemcgId(at)).life() == Life::Free {
            return false;
        }
        while at != top && at != MemcgId::ROOT.0 {
            at = self.get(MemcgId(at)).parent().0;
        }
        at == top
    }
}

impl Tree {
    fn find(&self, path: &str) -> Result<MemcgId, MemcgError> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        let child = |parent, name| self.names.get(&(parent, Arc::from(name))).copied();
        let found = names.try_fold(MemcgId::ROOT.0, child);
        found.map(MemcgId).ok_or_else(|| MemcgError::Missing(path.to_owned()))
    }

    /// Freed numbers that are not reused yet.
    fn resting(&mut self) -> impl Iterator<Item = &mut Freed> {
        self.free.iter_mut().rev().take(NUMBERS_RESTING)
    }

    fn append(&mut self, parent: u32, child: u32) {
        let last = std::mem::replace(&mut self.links[parent as usize].last_child, child);
        self.links[child as usize].previous = last;
        if last == NONE {
            self.links[parent as usize].first_child = child;
        } else {
            self.links[last as usize].next = child;
        }
    }

    fn unlink(&mut self, parent: u32, child: u32) {
        let Links { previous, next, .. } = self.links[child as usize];
        if previous == NONE {
            self.links[parent as usize].first_child = next;
        } else {
            self.links[previous as usize].next = next;
        }
        if next == NONE {
            self.links[parent as usize].last_child = previous;
        } else {
            self.links[next as usize].previous = previous;
        }
    }
}

impl Memcgs {
    /// A memcg and its ancestors below the root; for the root, the root itself.
    #[inline]
    pub(crate) fn with_ancestors(&self, memcg: MemcgId) -> impl Iterator<Item = &Memcg> {
        let mut next = Some(memcg);
        std::iter::from_fn(move || {
            let memcg = self.get(next?);
            next = Some(memcg.parent()).filter(|&parent| parent != MemcgId::ROOT);
            Some(memcg)
        })
    }

    /// As [`Self::with_ancestors`], but the memcg comes last. For uncharges: without its last
    /// charge, a removed memcg may be released by another thread. That thread goes on with the
    /// parent, and must find it uncharged, too.
    pub(super) fn ancestors_first(&self, memcg: MemcgId) -> impl Iterator<Item = &Memcg> {
        self.with_ancestors(memcg).skip(1).chain([self.get(memcg)])
    }

    /// The least of the memory limits of a memcg and of its ancestors, in pages.
    pub fn limit_pages(&self, memcg: MemcgId) -> u64 {
        self.with_ancestors(memcg).map(|memcg| memcg.memory.limit_pages()).min().expect("itself")
    }

    /// A memcg and its ancestors, including the root.
    pub(crate) fn lineage(&self, memcg: &Memcg) -> impl Iterator<Item = &Memcg> {
        let root = (memcg.id != MemcgId::ROOT).then(|| self.get(MemcgId::ROOT));
        self.with_ancestors(memcg.id).chain(root)
    }

    /// Whether `memcg` is `ancestor` or below it.
    pub(crate) fn is_within(&self, memcg: MemcgId, ancestor: MemcgId) -> bool {
        ancestor == MemcgId::ROOT || self.with_ancestors(memcg).any(|memcg| memcg.id == ancestor)
    }
}

/// One reclaimer's walk over the subtree of a target.
#[derive(Debug)]
pub(crate) enum TreeWalk {
    /// Shared with others; `Some`: the round that it joined.
    Shared(Option<u64>),
    /// A walk of its own over all memcgs; `Some`: its position.
    Full(Option<MemcgId>),
    /// The walk has ended.
    Finished,
}

impl TreeWalk {
    pub(crate) fn new(full: bool) -> TreeWalk {
        if full { TreeWalk::Full(None) } else { TreeWalk::Shared(None) }
    }

    /// The next memcg to visit, as [`Memcgs::hold_next`] has it. The caller holds the one before.
    pub(crate) fn next(&mut self, memcgs: &Memcgs, target: MemcgId) -> Option<MemcgId> {
        let found = match self {
            TreeWalk::Finished => None,
            TreeWalk::Full(at) => {
                *at = memcgs.hold_next(target, *at);
                *at
            }
            TreeWalk::Shared(joined) => {
                let mut walk = memcgs.get(target).shared_walk.lock();
                match *joined {
                    Some(round) if round != walk.round => None,
                    _ => {
                        let mut next = memcgs.hold_next(target, walk.last);
                        if next.is_none() {
                            walk.round += 1;
                            // A walk that joins at the end begins the next round; the others end.
                            next = joined.is_none().then_some(target);
                        }
                        *joined = Some(walk.round);
                        walk.last = next;
                        next
                    }
                }
            }
        };
        if found.is_none() {
            *self = TreeWalk::Finished;
        }
        found
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Core, Options, Time, UNLIMITED};

    fn core() -> Core {
        Core::new(Options::new(64), Time::ZERO)
    }

    fn add(core: &Core, parent: MemcgId, name: &str) -> MemcgId {
        core.add_child(parent, name, UNLIMITED, Time::ZERO).unwrap().id()
    }

    fn names(core: &Core, ids: impl IntoIterator<Item = MemcgId>) -> String {
        ids.into_iter().map(|id| core.memcg(id).name().to_string()).collect::<Vec<_>>().join(" ")
    }

    fn tree(core: &Core) -> [MemcgId; 5] {
        let a = add(core, MemcgId::ROOT, "a");
        let b = add(core, MemcgId::ROOT, "b");
        let ax = add(core, a, "x");
        let ay = add(core, a, "y");
        [a, b, ax, ay, add(core, ax, "z")]
    }

    #[test]
    fn the_tree_is_walked_in_pre_order() {
        let core = core();
        let [a, b, ax, ..] = tree(&core);
        let walked = |target, full| {
            let mut walk = TreeWalk::new(full);
            names(&core, std::iter::from_fn(|| walk.next(&core.memcgs, target)))
        };
        for full in [true, false, false] {
            assert_eq!(walked(MemcgId::ROOT, full), " a x z y b");
            assert_eq!((walked(a, full), walked(b, full)), ("a x z y".into(), "b".into()));
            assert_eq!(walked(ax, full), "x z");
        }
        assert_eq!(names(&core, core.subtree(a).map(Memcg::id)), "a x z y");
    }

    /// [book: memcgs#tree-walk]: "one position …, shared by all concurrent reclaimers; each takes
    /// the next memcg. A walk ends when the shared cycle it joined ends. A new walker that hits the
    /// end at once restarts from the beginning."
    #[test]
    fn reclaimers_share_a_round() {
        let core = core();
        let [a, ..] = tree(&core);
        let (mut first, mut second) = (TreeWalk::new(false), TreeWalk::new(false));
        let next =
            |walk: &mut TreeWalk| walk.next(&core.memcgs, a).map(|id| core.memcg(id).name().to_string());
        assert_eq!(next(&mut first).as_deref(), Some("a"));
        assert_eq!(next(&mut second).as_deref(), Some("x"));
        assert_eq!(next(&mut second).as_deref(), Some("z"));
        assert_eq!(next(&mut first).as_deref(), Some("y"));
        assert_eq!(next(&mut second), None, "the round is over");
        let mut third = TreeWalk::new(false);
        assert_eq!(next(&mut third), Some("a".into()));
        assert_eq!((next(&mut first), next(&mut second)), (None, None), "nor do they join another");
        // It leaves in the middle, and the next walk continues there.
        let mut fourth = TreeWalk::new(false);
        assert_eq!(next(&mut fourth).as_deref(), Some("x"));
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        let core = core();
        let a = add(&core, MemcgId::ROOT, "a");
        let refused =
            |parent, name: &str| core.add_child(parent, name, UNLIMITED, Time::ZERO).unwrap_err().to_string();
        assert!(refused(MemcgId::ROOT, "a").contains("exists already"));
        for name in ["", "a/b", "..", "new\nline", "memory.max", &"x".repeat(256)] {
            assert!(refused(a, name).starts_with(&format!("'{name}' cannot be")), "{name}");
        }
        add(&core, a, "a");
        let mut parent = a;
        for depth in 2..=DEPTH_MAX {
            parent = add(&core, parent, &format!("d{depth}"));
        }
        assert!(refused(parent, "deeper").contains("64 levels"));
    }

    /// Numbers are reused after a while, and nothing of the former memcg is left.
    #[test]
    fn numbers_are_used_again() {
        let core = core();
        let first = add(&core, MemcgId::ROOT, "first");
        core.memcg(first).set_max_pages(7);
        core.memcgs.set_low(first, 3);
        core.remove_memcg(&crate::testing::QuietHost::default(), first).unwrap();
        core.drop_handle(first);
        let mut used = std::collections::BTreeSet::new();
        for n in 0..1000 {
            let memcg = add(&core, MemcgId::ROOT, &format!("t{n}"));
            used.insert(memcg);
            assert_eq!((core.memcg(memcg).max_pages(), core.memcg(memcg).low_pages()), (UNLIMITED, 0));
            core.remove_memcg(&crate::testing::QuietHost::default(), memcg).unwrap();
            core.drop_handle(memcg);
        }
        assert!(used.contains(&first) && used.len() <= NUMBERS_RESTING + 1, "{}", used.len());
        assert_eq!(core.memcgs.iter().count(), 1);
    }

    #[test]
    fn a_memcg_with_children_cannot_be_removed() {
        let core = core();
        let [a, _, _, ay, _] = tree(&core);
        let host = crate::testing::QuietHost::default();
        assert_eq!(core.remove_memcg(&host, a), Err(MemcgError::HasChildren));
        assert_eq!(core.remove_memcg(&host, MemcgId::ROOT), Err(MemcgError::IsRoot));
        assert_eq!(core.remove_memcg(&host, ay), Ok(()));
        assert_eq!(core.remove_memcg(&host, ay), Err(MemcgError::Gone));
        let refused = core.add_child(ay, "below", UNLIMITED, Time::ZERO).unwrap_err();
        assert_eq!(refused, MemcgError::Gone);
        add(&core, a, "y");
    }
}
