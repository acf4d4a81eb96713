//! Who of a subtree gives pages next: by the kernel's memcg LRU, by our turns, or by a walk over
//! the tree.
//!
//! With `subtree_lru`, every memcg with children keeps the turns of its subtree; else, with
//! `memcg_lru`, the root keeps an LRU of all. Where neither is, the tree is walked
//! ([`crate::memcg`]).
//!
//! # Locking
//!
//! The order of a memcg has a lock of its own, a leaf. Membership of turns changes with the
//! member's lruvec lock held.

use super::multigen::memcg_lru::{LruWalk, MemcgLru, Op, Segment};
use super::turns::{Given, MemcgOrder, Turns, TurnsWalk, group_of};
use crate::Core;
use crate::folio::Kind;
use crate::memcg::{Memcg, MemcgId, TreeWalk};
use crate::sync::Ordering::Relaxed;

/// Pages of a turn that is worth the visit, two batches: a memcg that was not touched for long
/// costs some 5 µs of cache misses. With one batch a page of 1,000 memcgs took 110 ns, against 60
/// ns of few.
pub(crate) const TURN_PAGES: u64 = 128;

/// What a visit to a memcg came to, as far as its place in the order depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visit {
    /// It is under its protection, and was passed over: `min`, or (with the LRU) `low` at the first
    /// visit.
    pub(crate) below_min: bool,
    pub(crate) below_low: bool,
    /// This visit opened a generation.
    pub(crate) aged: bool,
    /// It has something to give at this priority.
    pub(crate) sizable: bool,
    /// Pages that it had before, but for what is protected.
    pub(crate) giving_pages: u64,
    /// Pages looked at, and freed.
    pub(crate) scanned: u64,
    pub(crate) stolen: u64,
}

impl Visit {
    /// What this visit and another to the same memcg came to together.
    pub(crate) fn and(self, other: Visit) -> Visit {
        Visit {
            below_min: self.below_min || other.below_min,
            below_low: self.below_low || other.below_low,
            aged: self.aged || other.aged,
            sizable: self.sizable || other.sizable,
            giving_pages: self.giving_pages.max(other.giving_pages),
            scanned: self.scanned + other.scanned,
            stolen: self.stolen + other.stolen,
        }
    }
}

/// One pass over the memcgs of a target.
#[derive(Debug)]
pub(crate) enum OrderWalk {
    Tree(TreeWalk),
    Lru(LruWalk),
    Turns(TurnsWalk),
}

impl OrderWalk {
    /// `full`: of a walk over the tree, everybody, whoever else is walking it.
    pub(crate) fn new(core: &Core, target: MemcgId, priority: u8, full: bool) -> OrderWalk {
        let mechanisms = core.mechanisms();
        if mechanisms.subtree_lru() && core.memcg(target).has_children.load(Relaxed) {
            return core
                .with_order(target, |order| OrderWalk::Turns(TurnsWalk::new(order.turns(), priority)));
        }
        // The kernel's order is one by generations: its classic LRU walks the tree.
        let by_generations = !mechanisms.any_policy(|lru| !lru.habits().has_generations);
        if mechanisms.memcg_lru() && target == MemcgId::ROOT && by_generations {
            return core.with_order(target, |order| OrderWalk::Lru(LruWalk::new(order.lru())));
        }
        OrderWalk::Tree(TreeWalk::new(full))
    }

    /// The next memcg; what came of the visit to the one before.
    pub(crate) fn next(
        &mut self,
        core: &Core,
        target: MemcgId,
        before: Option<(MemcgId, Visit)>,
    ) -> Option<MemcgId> {
        match self {
            OrderWalk::Tree(walk) => walk.next(&core.memcgs, target),
            OrderWalk::Turns(walk) => {
                let given = before.map(|(memcg, visit)| core.given(memcg, visit));
                core.with_order(target, |order| walk.next(order.turns(), given))
            }
            OrderWalk::Lru(walk) => core.with_order(target, |order| {
                let lru = order.lru();
                let op = before.and_then(|(memcg, visit)| judge(core, lru, memcg, visit));
                walk.next(lru, op)
            }),
        }
    }

    /// Ends the pass before all were visited.
    pub(crate) fn stop(&mut self, core: &Core, target: MemcgId, last: Option<(MemcgId, Visit)>) {
        match self {
            OrderWalk::Tree(walk) => *walk = TreeWalk::Finished,
            OrderWalk::Turns(walk) => {
                let given = last.map(|(memcg, visit)| core.given(memcg, visit));
                core.with_order(target, |order| walk.stop(order.turns(), given));
            }
            OrderWalk::Lru(walk) => core.with_order(target, |order| {
                let lru = order.lru();
                let op = last.and_then(|(memcg, visit)| judge(core, lru, memcg, visit));
                walk.stop(lru, op);
            }),
        }
    }

    /// What a memcg of `own` pages whose turn it is gives at most of `goal_pages` that are wanted
    /// from the target: twice its share, so that one that has much that is cold does not give for
    /// all, and not less than two batches. Elsewhere, whatever it has.
    pub(crate) fn most_pages(&self, core: &Core, target: MemcgId, goal_pages: u64, own: u64) -> u64 {
        let OrderWalk::Turns(_) = self else { return u64::MAX };
        let all = core.pages_in_turns(target).max(1);
        let share = u128::from(goal_pages) * u128::from(own) / u128::from(all);
        (2 * share as u64).max(TURN_PAGES)
    }

    /// Whether a memcg below `low` is visited all the same now: the second time, in the LRU.
    pub(crate) fn visits_below_low(&self, core: &Core, target: MemcgId, memcg: MemcgId) -> bool {
        matches!(self, OrderWalk::Lru(_))
            && core.with_order(target, |order| order.lru().segment(memcg)) == Some(Segment::Tail)
    }

    /// Whether `low` is respected by this walk at the first visit only, and not by the effort as a
    /// whole.
    pub(crate) fn is_lru(&self) -> bool {
        matches!(self, OrderWalk::Lru(_))
    }
}

/// Where the LRU moves a memcg that was visited ([book: memcgs#memcg-lru-events]).
fn judge(core: &Core, lru: &MemcgLru, memcg: MemcgId, visit: Visit) -> Option<Op> {
    let segment = lru.segment(memcg)?;
    if visit.below_min {
        return Some(Op::Young);
    }
    if visit.below_low {
        return Some(Op::Tail);
    }
    if visit.aged && core.memcg(memcg).is_online() {
        return Some(Op::Young);
    }
    if visit.sizable {
        return None;
    }
    Some(if segment == Segment::Tail { Op::Young } else { Op::Tail })
}

impl Core {
    /// Pages that a memcg below `target` has on average, where several take turns.
    pub(crate) fn turn_pages(&self, target: MemcgId) -> Option<u64> {
        let takes_turns = self.mechanisms().subtree_lru() && self.memcg(target).has_children.load(Relaxed);
        let members = takes_turns.then(|| self.with_order(target, |order| order.turns().members()))?;
        (members > 1).then(|| self.pages_in_turns(target) / members)
    }

    /// Pages of all who take turns in the subtree of `target`.
    fn pages_in_turns(&self, target: MemcgId) -> u64 {
        if target == MemcgId::ROOT {
            Kind::ALL.into_iter().map(|kind| self.folios.listed().pages(kind)).sum()
        } else {
            self.memcg(target).usage_pages()
        }
    }

    /// Works on the order of `target`'s subtree.
    fn with_order<R>(&self, target: MemcgId, work: impl FnOnce(&mut MemcgOrder) -> R) -> R {
        let mut order = self.memcg(target).order.lock();
        let new = || {
            Box::new(if self.mechanisms().subtree_lru() {
                MemcgOrder::Turns(Turns::new())
            } else {
                // Each has its own stream, the same one in every run.
                MemcgOrder::Lru(Box::new(MemcgLru::new(self.options.seed ^ u64::from(target.0) << 32)))
            })
        };
        work(order.get_or_insert_with(new))
    }

    /// Works on the kernel's order of all memcgs, where that is the one that is kept.
    fn with_lru(&self, work: impl FnOnce(&mut MemcgLru)) {
        if self.mechanisms().memcg_lru() && !self.mechanisms().subtree_lru() {
            self.with_order(MemcgId::ROOT, |order| work(order.lru()));
        }
    }

    /// A memcg was made: the LRU has all of them.
    pub(crate) fn join_order(&self, memcg: MemcgId) {
        self.with_lru(|lru| lru.add(memcg));
    }

    /// A memcg gets a child: from now on it keeps the turns of its subtree, where it may be the
    /// first.
    pub(crate) fn begin_order(&self, memcg: &Memcg) {
        if self.mechanisms().subtree_lru() && !memcg.has_children.swap(true, Relaxed) {
            self.regroup(memcg.id(), true);
        }
    }

    /// A memcg was removed and keeps its pages: the LRU meets it early
    /// ([book: memcgs#offline-memcgs]).
    pub(crate) fn age_in_order(&self, memcg: MemcgId) {
        self.with_lru(|lru| lru.apply(memcg, Op::Old));
    }

    /// Limit reclaim opened a generation of a memcg: in the LRU, it is young
    /// ([book: memcgs#memcg-lru-events]).
    pub(crate) fn rejuvenate_in_order(&self, memcg: MemcgId) {
        self.with_lru(|lru| lru.apply(memcg, Op::Young));
    }

    /// A memcg goes for good, and nobody adds pages to it any more.
    pub(crate) fn leave_orders(&self, memcg: &Memcg) {
        if self.mechanisms().subtree_lru() {
            self.set_size(memcg, 0);
        }
        self.with_lru(|lru| lru.apply(memcg.id(), Op::Leave));
    }

    /// Pages were added to the lists of a memcg, which are locked: it may have grown into another
    /// group.
    #[inline]
    pub(crate) fn grew(&self, memcg: &Memcg) {
        if self.mechanisms().subtree_lru() {
            let pages = memcg.lruvec.reclaimable_pages();
            if group_of(pages) > memcg.group.load(Relaxed) {
                self.set_size(memcg, pages);
            }
        }
    }

    /// A memcg was visited, and may have become smaller.
    fn given(&self, id: MemcgId, visit: Visit) -> Given {
        let Visit { giving_pages, scanned, stolen, below_min, below_low, .. } = visit;
        self.regroup(id, false);
        Given { memcg: id, giving_pages, scanned, stolen, protected: below_min || below_low }
    }

    /// Puts a memcg, or who inherited its lists, among those of its size, if it is not there;
    /// `anew`: anyway.
    fn regroup(&self, memcg: MemcgId, anew: bool) {
        let (memcg, _locked) = self.lock_living(memcg);
        let pages = memcg.lruvec.reclaimable_pages();
        if anew || group_of(pages) != memcg.group.load(Relaxed) {
            self.set_size(memcg, pages);
        }
    }

    #[cold]
    fn set_size(&self, memcg: &Memcg, pages: u64) {
        memcg.group.store(group_of(pages), Relaxed);
        for keeper in self.memcgs.lineage(memcg).filter(|keeper| keeper.has_children.load(Relaxed)) {
            self.with_order(keeper.id(), |order| order.turns().set_size(memcg.id(), pages));
        }
    }
}
