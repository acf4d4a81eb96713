//! The order in which the memcgs of a subtree give pages: the kernel's memcg LRU, our turns, or a
//! walk over the tree.
//!
//! With `subtree_lru`, every memcg with children keeps the turns of its subtree; else, with
//! `memcg_lru`, the root keeps an LRU of all. Where neither is, the tree is walked
//! ([`crate::memcg`]). Turns need ages that compare across memcgs, which only the policy `ranked`
//! has: under the others the tree is walked, too.
//!
//! # Locking
//!
//! The order of a memcg has a lock of its own, a leaf. Membership of turns changes with the
//! member's lruvec lock held.

use super::multigen::memcg_lru::{LruWalk, MemcgLru, Op, Segment};
use super::turns::{Given, MemcgOrder, Turns, TurnsWalk};
use crate::Core;
use crate::folio::Kind;
use crate::mechanism::Mechanisms;
use crate::memcg::{Memcg, MemcgId, TreeWalk};
use crate::sync::Ordering::Relaxed;

/// The fewest pages that make a turn worth the visit, two batches: a memcg not touched for long
/// costs some 5 µs of cache misses. With one batch, a page of 1,000 memcgs took 110 ns, against 60
/// ns with few memcgs.
pub(crate) const TURN_PAGES: u64 = 128;

/// Result of a visit to a memcg, for its place in the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Visit {
    /// Whether it is under its protection and was passed over: under `min`, or (with the LRU) under
    /// `low` at the first visit.
    pub(crate) below_min: bool,
    pub(crate) below_low: bool,
    /// Whether this visit opened a generation.
    pub(crate) aged: bool,
    /// Whether it can give pages at this priority.
    pub(crate) sizable: bool,
    /// Unprotected pages before the visit.
    pub(crate) giving_pages: u64,
    /// Pages scanned, and pages freed.
    pub(crate) scanned: u64,
    pub(crate) stolen: u64,
    /// All that it could give was read ahead and not read yet.
    pub(crate) unread: bool,
}

impl Visit {
    /// Adds up two visits to the same memcg.
    pub(crate) fn and(self, other: Visit) -> Visit {
        Visit {
            below_min: self.below_min || other.below_min,
            below_low: self.below_low || other.below_low,
            aged: self.aged || other.aged,
            sizable: self.sizable || other.sizable,
            giving_pages: self.giving_pages.max(other.giving_pages),
            scanned: self.scanned + other.scanned,
            stolen: self.stolen + other.stolen,
            unread: self.unread || other.unread,
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
    /// `full`: the last try of an effort, or an effort that takes all. A walk over the tree visits
    /// every memcg, instead of sharing it with other reclaimers. The memcg LRU shows a walk only
    /// its old set, which may lack the one memcg with pages at the last priority, so with
    /// `wait_before_oom` such a walk goes over the tree.
    pub(crate) fn new(core: &Core, target: MemcgId, priority: u8, full: bool) -> OrderWalk {
        let mechanisms = core.mechanisms();
        if takes_turns(core, mechanisms, target) {
            begin_time(core);
            let now = pages_reclaimed(core);
            return with_order(core, target, |order| {
                OrderWalk::Turns(TurnsWalk::new(order.turns(), priority, now))
            });
        }
        // The order needs generations: under the classic LRU, the kernel walks the tree.
        let by_generations = !mechanisms.any_policy(|lru| !lru.habits().has_generations);
        let in_lru = mechanisms.memcg_lru() && !mechanisms.subtree_lru() && target == MemcgId::ROOT;
        if in_lru && by_generations && !(full && mechanisms.wait_before_oom()) {
            return with_order(core, target, |order| OrderWalk::Lru(LruWalk::new(order.lru())));
        }
        OrderWalk::Tree(TreeWalk::new(full))
    }

    /// The next memcg, and whether it has its turn only to find out whether it is still in use.
    /// `before`: the previous memcg and the result of its visit. The caller ends the visit with
    /// [`Core::end_visit`], after it has asked for the next.
    pub(crate) fn next(
        &mut self,
        core: &Core,
        target: MemcgId,
        mut before: Option<(MemcgId, Visit)>,
    ) -> Option<(MemcgId, bool)> {
        if let OrderWalk::Tree(walk) = self {
            return walk.next(&core.memcgs, target).map(|memcg| (memcg, false));
        }
        loop {
            let named @ (memcg, _) = self.name_next(core, target, before.take())?;
            if core.memcgs.hold_named(memcg, target) {
                return Some(named);
            }
            core.end_visit(memcg, target);
        }
    }

    /// The next memcg of an order, which another thread may release meanwhile.
    fn name_next(
        &mut self,
        core: &Core,
        target: MemcgId,
        before: Option<(MemcgId, Visit)>,
    ) -> Option<(MemcgId, bool)> {
        let memcg = match self {
            OrderWalk::Tree(_) => unreachable!("the tree names no memcg that it does not hold"),
            OrderWalk::Turns(walk) => {
                let given = before.map(|(memcg, visit)| given(core, memcg, visit));
                let now = pages_reclaimed(core);
                return with_order(core, target, |order| {
                    let turns = order.turns();
                    let memcg = walk.next(turns, given, now)?;
                    Some((memcg, turns.is_beside_stream(memcg)))
                });
            }
            OrderWalk::Lru(walk) => with_order(core, target, |order| {
                let lru = order.lru();
                let op = before.and_then(|(memcg, visit)| judge(core, lru, memcg, visit));
                walk.next(lru, op)
            }),
        };
        memcg.map(|memcg| (memcg, false))
    }

    /// Ends the pass early.
    pub(crate) fn stop(&mut self, core: &Core, target: MemcgId, last: Option<(MemcgId, Visit)>) {
        match self {
            OrderWalk::Tree(walk) => *walk = TreeWalk::Finished,
            OrderWalk::Turns(walk) => {
                let given = last.map(|(memcg, visit)| given(core, memcg, visit));
                let now = pages_reclaimed(core);
                with_order(core, target, |order| walk.stop(order.turns(), given, now));
            }
            OrderWalk::Lru(walk) => with_order(core, target, |order| {
                let lru = order.lru();
                let op = last.and_then(|(memcg, visit)| judge(core, lru, memcg, visit));
                walk.stop(lru, op);
            }),
        }
    }

    /// Most pages that a turn takes from a memcg of `own` pages when `goal_pages` are wanted from
    /// the target: twice its share, but at least two batches. So a memcg with many cold pages does
    /// not give for all. Without turns there is no limit.
    pub(crate) fn most_pages(&self, core: &Core, target: MemcgId, goal_pages: u64, own: u64) -> u64 {
        let OrderWalk::Turns(_) = self else { return u64::MAX };
        let all = pages_in_turns(core, target).max(1);
        let share = u128::from(goal_pages) * u128::from(own) / u128::from(all);
        (2 * share as u64).max(TURN_PAGES)
    }

    /// Whether memcgs have turns by the age of their pages.
    pub(crate) fn is_by_age(&self) -> bool {
        matches!(self, OrderWalk::Turns(_))
    }

    /// Whether a memcg below `low` is visited now: in the LRU, the second time.
    pub(crate) fn visits_below_low(&self, core: &Core, target: MemcgId, memcg: MemcgId) -> bool {
        matches!(self, OrderWalk::Lru(_))
            && with_order(core, target, |order| order.lru().segment(memcg)) == Some(Segment::Tail)
    }

    /// Whether this walk goes over the tree.
    pub(crate) fn is_tree(&self) -> bool {
        matches!(self, OrderWalk::Tree(_))
    }

    /// Whether this walk respects `low` only at the first visit; elsewhere the effort as a whole
    /// does.
    pub(crate) fn is_lru(&self) -> bool {
        matches!(self, OrderWalk::Lru(_))
    }
}

/// The LRU's move of a visited memcg ([book: memcgs#memcg-lru-events]).
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

/// Average pages of the memcgs below `target`, if several take turns.
pub(crate) fn turn_pages(core: &Core, target: MemcgId) -> Option<u64> {
    let takes_turns = takes_turns(core, core.mechanisms(), target);
    let members = takes_turns.then(|| with_order(core, target, |order| order.turns().members()))?;
    (members > 1).then(|| pages_in_turns(core, target) / members)
}

/// Whether the memcgs below `target` give pages in turn, by the age of what they have.
fn takes_turns(core: &Core, mechanisms: Mechanisms, target: MemcgId) -> bool {
    mechanisms.subtree_lru()
        && mechanisms.lru().habits().takes_turns
        && core.memcg(target).has_children.load(Relaxed)
}

/// The time of the node: pages that were reclaimed, from all memcgs. It stands still while
/// memory is filled, so the order in which memcgs filled it makes none of them colder. Counted
/// with `subtree_lru` only.
pub(crate) fn pages_reclaimed(core: &Core) -> u64 {
    core.reclaimed.load(Relaxed)
}

/// Reclaim begins. The first time, what filled memory is as old as a whole turnover:
/// otherwise a memcg found in use would soon be half as old as that.
fn begin_time(core: &Core) {
    if pages_reclaimed(core) == 0 {
        let _ = core.reclaimed.compare_exchange(0, u64::from(core.folios.len()), Relaxed, Relaxed);
    }
}

/// So many pages were reclaimed.
pub(super) fn count_reclaimed(core: &Core, pages: u64) {
    if pages > 0 && core.mechanisms().subtree_lru() {
        begin_time(core);
        core.reclaimed.fetch_add(pages, Relaxed);
    }
}

/// Pages of all memcgs that take turns below `target`.
fn pages_in_turns(core: &Core, target: MemcgId) -> u64 {
    if target == MemcgId::ROOT {
        Kind::ALL.into_iter().map(|kind| core.folios.listed().pages(kind)).sum()
    } else {
        core.memcg(target).usage_pages()
    }
}

/// Runs `work` on the order of `target`'s subtree.
fn with_order<R>(core: &Core, target: MemcgId, work: impl FnOnce(&mut MemcgOrder) -> R) -> R {
    let mut order = core.memcg(target).order.lock();
    let new = || {
        Box::new(if core.mechanisms().subtree_lru() {
            MemcgOrder::Turns(Turns::new())
        } else {
            // Each order has its own random stream, the same one in every run.
            MemcgOrder::Lru(Box::new(MemcgLru::new(core.options.seed ^ u64::from(target.0) << 32)))
        })
    };
    work(order.get_or_insert_with(new))
}

/// Runs `work` on the kernel's order of all memcgs, if that is in use.
fn with_lru(core: &Core, work: impl FnOnce(&mut MemcgLru)) {
    if core.mechanisms().memcg_lru() && !core.mechanisms().subtree_lru() {
        with_order(core, MemcgId::ROOT, |order| work(order.lru()));
    }
}

/// Adds a new memcg to the LRU of all memcgs.
pub(crate) fn join(core: &Core, memcg: MemcgId) {
    with_lru(core, |lru| lru.add(memcg));
}

/// Prepares a memcg for its first child: from now on it keeps the turns of its subtree.
pub(crate) fn begin(core: &Core, memcg: &Memcg) {
    if core.mechanisms().subtree_lru() && !memcg.has_children.swap(true, Relaxed) {
        let (memcg, _locked) = core.lock_living(memcg.id());
        set_member(core, memcg, memcg.lruvec.reclaimable_pages() > 0);
    }
}

/// Moves a removed memcg that keeps its pages, so that the LRU meets it early
/// ([book: memcgs#offline-memcgs]).
pub(crate) fn age(core: &Core, memcg: MemcgId) {
    with_lru(core, |lru| lru.apply(memcg, Op::Old));
}

/// Makes a memcg young in the LRU after limit reclaim opened one of its generations
/// ([book: memcgs#memcg-lru-events]).
pub(crate) fn rejuvenate(core: &Core, memcg: MemcgId) {
    with_lru(core, |lru| lru.apply(memcg, Op::Young));
}

/// Removes a memcg from all orders for good. No more pages are added to it.
pub(crate) fn leave(core: &Core, memcg: &Memcg) {
    if core.mechanisms().subtree_lru() {
        set_member(core, memcg, false);
    }
    with_lru(core, |lru| lru.apply(memcg.id(), Op::Leave));
}

/// Pages were added to the lists of a memcg, which are locked: it may have had none before.
#[inline]
pub(crate) fn grew(core: &Core, memcg: &Memcg) {
    if core.mechanisms().subtree_lru()
        && !memcg.in_turns.load(Relaxed)
        && memcg.lruvec.reclaimable_pages() > 0
    {
        set_member(core, memcg, true);
    }
}

/// The result of a visit. If another thread holds the lists, with the verdicts of the visit before:
/// they only place the memcg in the order, and many threads that reclaim from one memcg wait for
/// each other often enough.
fn given(core: &Core, id: MemcgId, visit: Visit) -> Given {
    let Visit { giving_pages, scanned, stolen, below_min, below_low, unread, .. } = visit;
    // If it was removed meanwhile, the memcg that has its pages.
    let memcg = core.memcgs.living(id);
    judge_visited(core, memcg);
    let (used_at, in_use, is_missed) = memcg.lruvec.ranked.last_verdicts();
    let now = pages_reclaimed(core);
    // Pages that are about to be read count as used now.
    let used_at = if unread { now } else { used_at.min(now) };
    let protected = below_min || below_low;
    Given { memcg: id, giving_pages, scanned, stolen, protected, used_at, in_use, is_missed }
}

/// Makes the verdicts on a visited memcg, after checking whether it has shrunk into another group,
/// unless another thread holds its lists.
fn judge_visited(core: &Core, memcg: &Memcg) {
    let Some(locked) = memcg.lruvec.try_lock(&core.folios).filter(|_| memcg.heir().is_none()) else { return };
    let ranked = &memcg.lruvec.ranked;
    ranked.note_coldest(locked.coldest_used_at());
    let has_pages = memcg.lruvec.reclaimable_pages() > 0;
    if has_pages != memcg.in_turns.load(Relaxed) {
        set_member(core, memcg, has_pages);
    }
    ranked.judge_use();
    ranked.judge_returns();
}

/// The lists of a memcg are locked: it takes turns from now on, or does not any more.
#[cold]
fn set_member(core: &Core, memcg: &Memcg, is_member: bool) {
    memcg.in_turns.store(is_member, Relaxed);
    let (id, now) = (memcg.id(), pages_reclaimed(core));
    for keeper in core.memcgs.lineage(memcg).filter(|keeper| keeper.has_children.load(Relaxed)) {
        with_order(core, keeper.id(), |order| match is_member {
            true => order.turns().join(id, now),
            false => order.turns().leave(id),
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Preset;
    use crate::mechanism::Switch;
    use crate::testing::Harness;

    /// A request must not fail because the memcg with pages was in the LRU's young set whenever the
    /// last priority came (swarm seed 20006473).
    #[test]
    fn the_last_try_before_a_refusal_visits_every_memcg() {
        let visited = |with: &[Switch], full: bool| {
            let mechanisms = Mechanisms::compose(Preset::Linux72, with, &[]).unwrap();
            let core = &Harness::with_mechanisms(mechanisms, 1000, 31).core;
            join(core, MemcgId::ROOT);
            let before = visits(core, false);
            rejuvenate(core, MemcgId::ROOT);
            assert!(before.contains(&MemcgId::ROOT) && before.len() > 1, "{before:?}");
            visits(core, full).contains(&MemcgId::ROOT)
        };
        let waits = &[Switch::WaitBeforeOom];
        assert_eq!([visited(waits, true), visited(waits, false), visited(&[], true)], [true, false, false]);
    }

    /// The memcgs that a walk visits, without moving any.
    fn visits(core: &Core, full: bool) -> Vec<MemcgId> {
        let mut walk = OrderWalk::new(core, MemcgId::ROOT, 0, full);
        std::iter::from_fn(|| walk.next(core, MemcgId::ROOT, None)).map(|(memcg, _)| memcg).collect()
    }

    /// A visit to a memcg whose lists another thread holds gives the verdicts of the visit before,
    /// and does not wait.
    #[test]
    fn a_visit_beside_another_thread_repeats_the_last_verdicts() {
        let mut harness = Harness::with_mechanisms(Mechanisms::preset(Preset::Default), 1000, 1);
        harness.read_ahead(0..100);
        let (core, memcg) = (&harness.core, harness.task.memcg);
        core.reclaimed.store(5000, Relaxed);
        let used_at = |now| {
            core.reclaimed.store(now, Relaxed);
            given(core, memcg, Visit::default()).used_at
        };
        let locked = harness.memcg().lruvec.lock(&core.folios);
        assert_eq!(used_at(5000), 5000, "nothing is known yet");
        drop(locked);
        let known = used_at(6000);
        assert!(known < 5000, "{known}");
        let _locked = harness.memcg().lruvec.lock(&core.folios);
        assert_eq!(used_at(7000), known);
    }
}
