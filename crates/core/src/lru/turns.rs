//! `subtree_lru`, our own: the memcgs of any subtree give pages in turn.
//!
//! ```text
//! 2^0…  (few pages)   D  G
//!  ⋮
//! 2^11… (2,048 pages) A  C  F     ◄── a pass at priority 11 takes turns only among these
//! 2^12…               B  E        ◄── and these: whoever is smaller has nothing to give at that priority
//! ```
//!
//! Each memcg has a ticket. Who is due is the lowest ticket; who was visited gets the highest; one that was stopped in the
//! middle of its turn, because enough was reclaimed, stays first. So everyone gives the same share of its size, whatever
//! sizes the requests have. Members are only those with pages, grouped by size, which keeps the cost of a pass at
//! the number of those that can give: 100,000 tenants of which 1,000 are in use cost as much as 1,000.
//!
//! The kernel has such an order ([`super::multigen::memcg_lru`]) only for all memcgs together, and walks the tree for a subtree.
//!
//! # Locking
//!
//! Behind the lock of the order's owner. Whether a memcg is a member, and in which group, changes under its lruvec lock.

use crate::memcg::MemcgId;
use std::collections::BTreeMap;

/// The group of a memcg with so many pages, which are more than none.
fn group_of(pages: u64) -> u8 {
    pages.max(1).ilog2() as u8
}

/// Whose turn it is in one subtree.
#[derive(Debug)]
pub(crate) struct Turns {
    /// By ticket; as many as the largest member needs.
    groups: Vec<BTreeMap<i64, MemcgId>>,
    tickets: BTreeMap<MemcgId, (u8, i64)>,
    first: i64,
    next: i64,
}

impl Turns {
    pub(crate) fn new() -> Turns {
        Turns { groups: Vec::new(), tickets: BTreeMap::new(), first: 0, next: 0 }
    }

    /// A memcg has so many pages now. Who is no member becomes one, as the last.
    pub(crate) fn set_size(&mut self, memcg: MemcgId, pages: u64) {
        let ticket = match self.tickets.get(&memcg) {
            Some(&(_, ticket)) => ticket,
            None => self.last(),
        };
        self.place(memcg, group_of(pages), ticket);
    }

    /// How many memcgs have pages.
    pub(crate) fn members(&self) -> u64 {
        self.tickets.len() as u64
    }

    /// A memcg without pages is no member.
    pub(crate) fn leave(&mut self, memcg: MemcgId) {
        if let Some((group, ticket)) = self.tickets.remove(&memcg) {
            self.groups[usize::from(group)].remove(&ticket);
        }
    }

    /// The memcg whose turn it is among those with at least 2^`priority` pages that were not visited since `before` was
    /// the next ticket. It is the last from now on, so that others who reclaim take other ones.
    fn take(&mut self, priority: u8, before: i64) -> Option<MemcgId> {
        let large_enough = self.groups.iter().skip(usize::from(priority));
        let firsts = large_enough.filter_map(|group| group.first_key_value());
        let (&ticket, &memcg) = firsts.min()?;
        if ticket >= before {
            return None;
        }
        let (group, _) = self.tickets[&memcg];
        let last = self.last();
        self.place(memcg, group, last);
        Some(memcg)
    }

    /// A member goes first again.
    fn put_first(&mut self, memcg: MemcgId) {
        if let Some(&(group, _)) = self.tickets.get(&memcg) {
            self.first -= 1;
            self.place(memcg, group, self.first);
        }
    }

    fn last(&mut self) -> i64 {
        self.next += 1;
        self.next - 1
    }

    fn place(&mut self, memcg: MemcgId, group: u8, ticket: i64) {
        self.leave(memcg);
        if self.groups.len() <= usize::from(group) {
            self.groups.resize_with(usize::from(group) + 1, BTreeMap::new);
        }
        self.groups[usize::from(group)].insert(ticket, memcg);
        self.tickets.insert(memcg, (group, ticket));
    }
}

/// One pass: everyone who has something to give at its priority, once.
#[derive(Debug)]
pub(crate) struct TurnsWalk {
    priority: u8,
    before: i64,
    at: Option<MemcgId>,
}

impl TurnsWalk {
    pub(crate) fn new(turns: &Turns, priority: u8) -> TurnsWalk {
        TurnsWalk { priority, before: turns.next, at: None }
    }

    pub(crate) fn next(&mut self, turns: &mut Turns) -> Option<MemcgId> {
        self.at = turns.take(self.priority, self.before);
        self.at
    }

    /// Ends the pass. `unfinished`: the memcg that it is at has not given its share.
    pub(crate) fn stop(&mut self, turns: &mut Turns, unfinished: bool) {
        if let (Some(at), true) = (self.at.take(), unfinished) {
            turns.put_first(at);
        }
        self.before = i64::MIN;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn turns(sizes: &[u64]) -> Turns {
        let mut turns = Turns::new();
        sizes.iter().zip(0..).for_each(|(&pages, n)| turns.set_size(MemcgId(n), pages));
        turns
    }

    fn pass(turns: &mut Turns, priority: u8) -> Vec<u32> {
        let mut walk = TurnsWalk::new(turns, priority);
        std::iter::from_fn(|| walk.next(turns)).map(|memcg| memcg.0).collect()
    }

    #[test]
    fn a_pass_visits_everyone_who_can_give_once() {
        let mut turns = turns(&[5000, 10, 4096, 4095, 1 << 40]);
        assert_eq!(pass(&mut turns, 12), [0, 2, 4]);
        assert_eq!(pass(&mut turns, 11), [3, 0, 2, 4], "who was not visited goes first");
        assert_eq!(pass(&mut turns, 0), [1, 3, 0, 2, 4]);
        turns.set_size(MemcgId(1), 9000);
        turns.set_size(MemcgId(4), 1);
        turns.leave(MemcgId(0));
        assert_eq!(pass(&mut turns, 12), [1, 2]);
    }

    /// Who was stopped in the middle of its turn goes on with it next time.
    #[test]
    fn the_next_pass_goes_on_where_one_stopped() {
        let mut turns = turns(&[100; 5]);
        let mut walk = TurnsWalk::new(&turns, 6);
        assert_eq!((walk.next(&mut turns), walk.next(&mut turns)), (Some(MemcgId(0)), Some(MemcgId(1))));
        walk.stop(&mut turns, true);
        assert_eq!(walk.next(&mut turns), None);
        let mut walk = TurnsWalk::new(&turns, 6);
        assert_eq!(walk.next(&mut turns), Some(MemcgId(1)));
        walk.stop(&mut turns, false);
        assert_eq!(pass(&mut turns, 6), [2, 3, 4, 0, 1]);
    }

    /// Two reclaimers at the same time take different memcgs.
    #[test]
    fn reclaimers_share_the_members() {
        let mut turns = turns(&[100; 4]);
        let (mut one, mut two) = (TurnsWalk::new(&turns, 0), TurnsWalk::new(&turns, 0));
        let mut taken = Vec::new();
        while let (Some(a), Some(b)) = (one.next(&mut turns), two.next(&mut turns)) {
            taken.extend([a.0, b.0]);
        }
        assert_eq!(taken, [0, 1, 2, 3]);
        turns.leave(MemcgId(2));
        turns.leave(MemcgId(2));
        assert_eq!(pass(&mut turns, 0), [0, 1, 3]);
    }
}
