//! The memcg LRU: the order in which memcgs give up pages.
//!
//! ```text
//!            bin 0     bin 1          bin 7
//! old   (s)  A  F      C          …   B         reclaimers walk it, each from a random bin
//! young (s+1)   D                 …   E         memcgs that were served or aged wait here
//! (s+2)      empty
//! ```
//!
//! Two sets of eight bins are live. When the old one is empty, the young one becomes old. Memcgs
//! that join or move go to a random bin, so that reclaimers meet different memcgs ("sharding"). A
//! served memcg moves to young, so that the others come first next time ("eventual fairness"): a
//! walk may stop at any moment without being unfair for long, and need not visit all.
//!
//! There is one memcg LRU, for the root, with all memcgs. [`crate::lru::turns`] does the same for
//! any subtree; no kernel has that.
//!
//! Source: [book: memcgs] (Linux 6.12 to 7.2; the walk stays in its set, as a later fix has it).
//!
//! # Locking
//!
//! None of its own: its owner's lock protects it. A walk takes that lock for one step at a time. If
//! other threads move the member that the walk is at, the walk begins the bin again.

use crate::memcg::MemcgId;
use crate::random::Random;
use std::collections::BTreeMap;

const BINS: usize = 8;
/// Two sets are live. Thanks to the third, a reader whose `seq` is one behind never takes young for
/// old.
const SETS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// To the front of its set. (The kernel uses it for soft limits of the legacy hierarchy; this
    /// engine does not use it.)
    #[cfg(all(test, not(loom)))]
    Head,
    /// To the back of its set.
    Tail,
    /// To the front of the old set.
    Old,
    /// To the back of the young set.
    Young,
    /// Out of the order.
    Leave,
}

/// Whether a memcg has moved inside its set since it came there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Default,
    #[cfg(all(test, not(loom)))]
    Head,
    Tail,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    set: u8,
    bin: u8,
    segment: Segment,
    previous: Option<MemcgId>,
    next: Option<MemcgId>,
}

type Ends = (Option<MemcgId>, Option<MemcgId>);

#[derive(Debug)]
pub(crate) struct MemcgLru {
    seq: u64,
    bins: [[Ends; BINS]; SETS],
    counts: [u32; SETS],
    members: BTreeMap<MemcgId, Member>,
    random: Random,
}

impl MemcgLru {
    pub(crate) fn new(seed: u64) -> MemcgLru {
        MemcgLru {
            seq: 0,
            bins: Default::default(),
            counts: [0; SETS],
            members: BTreeMap::new(),
            random: Random::new(seed),
        }
    }

    fn old(&self) -> u8 {
        (self.seq % SETS as u64) as u8
    }

    fn young(&self) -> u8 {
        ((self.seq + 1) % SETS as u64) as u8
    }

    /// Adds a memcg, at the back of the old set.
    pub(crate) fn add(&mut self, memcg: MemcgId) {
        if !self.members.contains_key(&memcg) {
            let set = self.old();
            self.link(memcg, set, Segment::Default, false);
        }
    }

    pub(crate) fn segment(&self, memcg: MemcgId) -> Option<Segment> {
        self.members.get(&memcg).map(|member| member.segment)
    }

    /// Moves a member. Memcgs that are not members are ignored.
    pub(crate) fn apply(&mut self, memcg: MemcgId, op: Op) {
        let Some(&Member { set, segment: _segment, .. }) = self.members.get(&memcg) else { return };
        let (to, segment, front) = match op {
            #[cfg(all(test, not(loom)))]
            Op::Head if _segment == Segment::Head => return,
            #[cfg(all(test, not(loom)))]
            Op::Head => (set, Segment::Head, true),
            Op::Tail => (set, Segment::Tail, false),
            Op::Old => (self.old(), Segment::Default, true),
            Op::Young => (self.young(), Segment::Default, false),
            Op::Leave => {
                self.unlink(memcg);
                self.advance(set);
                return;
            }
        };
        self.unlink(memcg);
        self.link(memcg, to, segment, front);
        self.advance(set);
    }

    /// Makes the young set the old one, if `set` is the old set and its last member has left.
    fn advance(&mut self, set: u8) {
        if self.counts[usize::from(set)] == 0 && set == self.old() {
            self.seq += 1;
        }
    }

    fn link(&mut self, memcg: MemcgId, set: u8, segment: Segment, front: bool) {
        let bin = self.random.below(BINS as u64) as u8;
        let ends = &mut self.bins[usize::from(set)][usize::from(bin)];
        let mut member = Member { set, bin, segment, previous: None, next: None };
        if front {
            member.next = ends.0.replace(memcg);
            ends.1.get_or_insert(memcg);
        } else {
            member.previous = ends.1.replace(memcg);
            ends.0.get_or_insert(memcg);
        }
        self.join(member.previous, Some(memcg));
        self.join(Some(memcg), member.next);
        self.members.insert(memcg, member);
        self.counts[usize::from(set)] += 1;
    }

    fn unlink(&mut self, memcg: MemcgId) {
        let Some(member) = self.members.remove(&memcg) else { return };
        self.counts[usize::from(member.set)] -= 1;
        let ends = &mut self.bins[usize::from(member.set)][usize::from(member.bin)];
        if member.previous.is_none() {
            ends.0 = member.next;
        }
        if member.next.is_none() {
            ends.1 = member.previous;
        }
        self.join(member.previous, member.next);
    }

    /// Links two members, as far as they exist.
    fn join(&mut self, first: Option<MemcgId>, second: Option<MemcgId>) {
        if let Some(member) = first.and_then(|first| self.members.get_mut(&first)) {
            member.next = second;
        }
        if let Some(member) = second.and_then(|second| self.members.get_mut(&second)) {
            member.previous = first;
        }
    }
}

/// One reclaimer's walk over the old set.
#[derive(Debug)]
pub(crate) struct LruWalk {
    set: u8,
    first_bin: u8,
    bin: u8,
    at: Option<MemcgId>,
    finished: bool,
}

impl LruWalk {
    pub(crate) fn new(lru: &mut MemcgLru) -> LruWalk {
        let bin = lru.random.below(BINS as u64) as u8;
        LruWalk { set: lru.old(), first_bin: bin, bin, at: None, finished: false }
    }

    /// The next memcg to visit. Applies the move decided for the previous memcg once its successor
    /// is known.
    pub(crate) fn next(&mut self, lru: &mut MemcgLru, decided: Option<Op>) -> Option<MemcgId> {
        if self.finished {
            return None;
        }
        let bins = |lru: &MemcgLru, bin: u8| lru.bins[usize::from(self.set)][usize::from(bin)].0;
        let mut next = match self.at {
            None => bins(lru, self.bin),
            Some(at) => match lru.members.get(&at) {
                Some(member) if (member.set, member.bin) == (self.set, self.bin) => member.next,
                // Another thread moved it: its neighbours are no longer those of this bin.
                _ => bins(lru, self.bin),
            },
        };
        if let (Some(at), Some(op)) = (self.at, decided) {
            lru.apply(at, op);
        }
        while next.is_none() {
            self.bin = (self.bin + 1) % BINS as u8;
            if self.bin == self.first_bin {
                self.finished = true;
                return None;
            }
            next = bins(lru, self.bin);
        }
        self.at = next;
        next
    }

    pub(crate) fn stop(&mut self, lru: &mut MemcgLru, decided: Option<Op>) {
        if let (Some(at), Some(op), false) = (self.at, decided, self.finished) {
            lru.apply(at, op);
        }
        self.finished = true;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn lru(members: u32) -> MemcgLru {
        let mut lru = MemcgLru::new(1);
        (0..members).for_each(|n| lru.add(MemcgId(n)));
        lru
    }

    fn set_of(lru: &MemcgLru, memcg: u32) -> u8 {
        lru.members[&MemcgId(memcg)].set
    }

    /// Members of a bin, front to back, checked from both ends.
    fn bin(lru: &MemcgLru, set: u8, bin: u8) -> Vec<u32> {
        let ends = lru.bins[usize::from(set)][usize::from(bin)];
        let follow = |from: Option<MemcgId>, next: fn(&Member) -> Option<MemcgId>| {
            std::iter::successors(from, |at| next(&lru.members[at])).map(|id| id.0).collect::<Vec<_>>()
        };
        let (forth, mut back) = (follow(ends.0, |m| m.next), follow(ends.1, |m| m.previous));
        back.reverse();
        assert_eq!(forth, back);
        forth
    }

    fn walk_all(lru: &mut MemcgLru, mut visit: impl FnMut(MemcgId) -> Option<Op>) -> Vec<u32> {
        let mut walk = LruWalk::new(lru);
        let (mut visited, mut decided) = (Vec::new(), None);
        while let Some(memcg) = walk.next(lru, decided) {
            visited.push(memcg.0);
            decided = visit(memcg);
        }
        visited
    }

    /// [book: memcgs#checks]: "New memcg: old set, default segment, at the back of a random bin".
    #[test]
    fn new_memcgs_join_the_old_set() {
        let lru = lru(800);
        assert!((0..800).all(|n| set_of(&lru, n) == 0 && lru.segment(MemcgId(n)) == Some(Segment::Default)));
        let bins: Vec<_> = (0..8).map(|b| bin(&lru, 0, b)).collect();
        assert!(bins.iter().all(|members| (60..140).contains(&members.len()) && members.is_sorted()));
        assert_eq!(bins.concat().len(), 800);
    }

    /// [book: memcgs#checks]: "When the last lruvec leaves the old set, `mseq` grows by 1 and the
    /// former young set is walked next".
    #[test]
    fn young_becomes_old() {
        let mut lru = lru(3);
        lru.apply(MemcgId(0), Op::Young);
        lru.apply(MemcgId(1), Op::Young);
        assert_eq!((lru.seq, set_of(&lru, 0), set_of(&lru, 2)), (0, 1, 0));
        assert_eq!(walk_all(&mut lru, |_| Some(Op::Leave)), [2]);
        assert_eq!((lru.seq, lru.old()), (1, 1));
        let mut walked = walk_all(&mut lru, |_| None);
        walked.sort_unstable();
        assert_eq!(walked, [0, 1]);
        lru.apply(MemcgId(0), Op::Old);
        assert_eq!((lru.seq, set_of(&lru, 0)), (1, 1), "not out of it");
    }

    /// Even if the last one leaves meanwhile:
    ///
    /// * [book: memcgs#checks]: "A walk started at `mseq = s` visits only lruvecs with
    ///   `memcg_gen = s mod 3`."
    /// * [book: memcgs#memcg-lru-walk]: "a memcg that got YOUNG during this walk cannot be visited
    ///   again in this walk."
    #[test]
    fn a_walk_stays_in_its_set() {
        let mut lru = lru(50);
        let mut visited = walk_all(&mut lru, |_| Some(Op::Young));
        visited.sort_unstable();
        assert!(visited.iter().copied().eq(0..50));
        assert_eq!(lru.seq, 1);
    }

    /// [book: memcgs#checks]: "A tiny memcg: first visit → tail, second → young", where both may be
    /// in one walk.
    #[test]
    fn tail_and_then_young() {
        let mut lru = lru(20);
        let mut visits = BTreeMap::new();
        for _ in 0..2 {
            let segments = std::cell::RefCell::new(BTreeMap::new());
            (0..20).for_each(|n| {
                segments.borrow_mut().insert(n, Segment::Default);
            });
            walk_all(&mut lru, |memcg| {
                let seen = segments.borrow_mut().insert(memcg.0, Segment::Tail);
                *visits.entry(memcg.0).or_insert(0) += 1;
                Some(if seen == Some(Segment::Tail) { Op::Young } else { Op::Tail })
            });
        }
        assert!((0..20).all(|n| visits[&n] >= 2), "{visits:?}");
    }

    /// [book: memcgs#memcg-lru-moves] and [book: memcgs#checks]: "HEAD is a no-op for a lruvec
    /// already in segment head"; TAIL and HEAD stay in their set.
    #[test]
    fn operations_choose_set_segment_and_end() {
        let mut lru = lru(100);
        lru.apply(MemcgId(7), Op::Head);
        assert_eq!((lru.segment(MemcgId(7)), set_of(&lru, 7)), (Some(Segment::Head), 0));
        let place = lru.members[&MemcgId(7)].bin;
        assert_eq!(bin(&lru, 0, place)[0], 7);
        (0..20).for_each(|_| lru.apply(MemcgId(7), Op::Head));
        assert_eq!(lru.members[&MemcgId(7)].bin, place, "it was not moved");
        lru.apply(MemcgId(7), Op::Tail);
        let place = lru.members[&MemcgId(7)].bin;
        assert_eq!(*bin(&lru, 0, place).last().unwrap(), 7);
        assert_eq!((lru.segment(MemcgId(7)), set_of(&lru, 7)), (Some(Segment::Tail), 0));
        lru.apply(MemcgId(7), Op::Young);
        assert_eq!((lru.segment(MemcgId(7)), set_of(&lru, 7)), (Some(Segment::Default), 1));
        lru.apply(MemcgId(7), Op::Old);
        let place = lru.members[&MemcgId(7)].bin;
        assert_eq!((bin(&lru, 0, place)[0], lru.counts), (7, [100, 0, 0]));
    }

    /// [book: memcgs#memcg-lru-walk]: a member that another thread moves during its visit does not
    /// lead the walk out of its set.
    #[test]
    fn a_member_that_others_move_is_no_exit() {
        let mut lru = lru(30);
        let mut walk = LruWalk::new(&mut lru);
        let mut visited = std::collections::BTreeSet::new();
        while let Some(memcg) = walk.next(&mut lru, None) {
            assert_eq!(set_of(&lru, memcg.0), 0);
            visited.insert(memcg.0);
            lru.apply(memcg, Op::Young);
            lru.apply(memcg, Op::Leave);
        }
        assert_eq!((visited.len(), lru.members.len(), lru.counts), (30, 0, [0; 3]));
    }

    /// A stopped walk applies its last decision and leaves the other members for the next walk.
    #[test]
    fn a_walk_may_stop_at_any_time() {
        let mut lru = lru(10);
        let mut walk = LruWalk::new(&mut lru);
        let first = walk.next(&mut lru, None).unwrap();
        walk.stop(&mut lru, Some(Op::Young));
        assert_eq!((walk.next(&mut lru, None), lru.counts), (None, [9, 1, 0]));
        assert!(!walk_all(&mut lru, |_| None).contains(&first.0));
    }
}
