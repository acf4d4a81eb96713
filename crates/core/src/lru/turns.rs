//! `subtree_lru`, our own: the memcgs of any subtree give pages in turn.
//!
//! ```text
//! 2^0…  (few pages)   D  G
//!  ⋮
//! 2^11… (2,048 pages) A  C  F     ◄── a pass at priority 11 takes turns only among these
//! 2^12…               B  E        ◄── and these: whoever is smaller has nothing to give at that priority
//! ```
//!
//! Each memcg has a count of what it gave, as a share of what it has beyond its protection, and
//! whose is lowest is next (stride scheduling; Waldspurger and Weihl 1995). Who is ahead of the
//! others by a quarter of a pass's share is left out of the pass, so that among equals everyone
//! gives the same. A turn ends with twice the memcg's share of what is wanted ([`super::order`]),
//! as one whose cold pages are found together would else give for all. A page that was looked at
//! and kept counts a little, so that who uses its pages gives less. A memcg that comes begins with
//! the lowest count there is, so that it does not have to make up for the time before.
//!
//! Who is protected holds nobody back: it is put beside the next. And the last pass of
//! an effort leaves nobody out, since those who are behind may have nothing but dirty pages.
//!
//! Members are only those with pages, grouped by size, which keeps the cost of a pass at the number
//! of those that can give: 100,000 tenants of which 1,000 are in use cost as much as 1,000.
//!
//! The kernel has an order ([`super::multigen::memcg_lru`]) only for all memcgs together, and walks
//! the tree for a subtree. Its order moves on only when a memcg was aged: of twelve requests, equal
//! memcgs gave pages with a deviation of 19 %.
//!
//! # Locking
//!
//! Behind the lock of the order's owner. Whether a memcg is a member, and in which group, changes
//! under its lruvec lock.

use super::multigen::memcg_lru::MemcgLru;
use crate::memcg::MemcgId;
use std::collections::BTreeSet;
use std::ops::Bound;

/// What giving all of its pages once counts, but for those that are protected.
const WHOLE: u64 = 1 << 32;
/// A page that is looked at and kept counts one in so many. Of 16 equal memcgs of 491,520 pages, 40
/// % of them touched between two requests, what each gave in 12 requests deviated by 20 % with 64,
/// and by 6 % with 256. With none at all it was 0.3 %, but then who used 60 % of its pages gave
/// about as much as who used 2 %.
const KEPT_SHARE: u64 = 256;

/// The group of a memcg with so many pages, or of whatever else: 0 of one without, else one more
/// than the logarithm.
pub(crate) fn group_of(pages: u64) -> u32 {
    u64::BITS - pages.leading_zeros()
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// 0: it is no member.
    group: u32,
    /// What it gave.
    given: u64,
    /// The pass that visited it last.
    pass: u64,
}

/// Members of one block.
const BLOCK: usize = 32;

/// The members of one subtree by their numbers, in blocks that are made when one of theirs comes.
/// Two steps find one; among 100,000 in a B-tree, whose nodes are in no cache by the next turn, it
/// was five, and a sixth of the time of a request.
#[derive(Debug, Default)]
struct Members {
    blocks: Vec<Option<Box<[Member; BLOCK]>>>,
    number: u64,
}

impl Members {
    fn get_mut(&mut self, memcg: MemcgId) -> Option<&mut Member> {
        let block = self.blocks.get_mut(memcg.0 as usize / BLOCK)?.as_mut()?;
        Some(&mut block[memcg.0 as usize % BLOCK]).filter(|member| member.group > 0)
    }

    fn insert(&mut self, memcg: MemcgId, member: Member) {
        let at = memcg.0 as usize / BLOCK;
        if self.blocks.len() <= at {
            self.blocks.resize_with(at + 1, || None);
        }
        self.blocks[at].get_or_insert_default()[memcg.0 as usize % BLOCK] = member;
        self.number += 1;
    }

    fn remove(&mut self, memcg: MemcgId) -> Option<Member> {
        let member = self.get_mut(memcg).map(std::mem::take)?;
        self.number -= 1;
        Some(member)
    }
}

/// Whose turn it is in one subtree.
#[derive(Debug)]
pub(crate) struct Turns {
    /// By what was given; as many groups as the largest member needs.
    groups: Vec<BTreeSet<(u64, MemcgId)>>,
    members: Members,
    passes: u64,
}

impl Turns {
    pub(crate) fn new() -> Turns {
        Turns { groups: Vec::new(), members: Members::default(), passes: 0 }
    }

    /// How many memcgs have pages.
    pub(crate) fn members(&self) -> u64 {
        self.members.number
    }

    /// A memcg has so many pages now. Who is no member becomes one; who has none is none.
    pub(crate) fn set_size(&mut self, memcg: MemcgId, pages: u64) {
        if pages == 0 {
            return self.leave(memcg);
        }
        let group = group_of(pages);
        if self.members.get_mut(memcg).is_none() {
            let lowest = self.groups.iter().filter_map(|group| group.first()).min();
            let given = lowest.map_or(0, |&(given, _)| given);
            self.members.insert(memcg, Member { group, given, pass: 0 });
        }
        self.change(memcg, |member| member.group = group);
    }

    /// The groups of those who have something to give at a priority.
    fn large_enough(&self, priority: u8) -> impl Iterator<Item = &BTreeSet<(u64, MemcgId)>> {
        self.groups.iter().skip(group_of(1 << priority) as usize)
    }

    /// The lowest count of those who have something to give at a priority, but for one.
    fn lowest(&self, priority: u8, but: Option<MemcgId>) -> Option<u64> {
        let firsts = self
            .large_enough(priority)
            .filter_map(|group| group.iter().find(|(_, memcg)| Some(*memcg) != but));
        firsts.map(|&(given, _)| given).min()
    }

    fn leave(&mut self, memcg: MemcgId) {
        if let Some(member) = self.members.remove(memcg) {
            self.groups[member.group as usize].remove(&(member.given, memcg));
        }
    }

    /// Changes a member, if it is one, and puts it into its place.
    fn change(&mut self, memcg: MemcgId, change: impl FnOnce(&mut Member)) {
        let Some(member) = self.members.get_mut(memcg) else { return };
        let before = *member;
        change(member);
        let after = *member;
        if let Some(group) = self.groups.get_mut(before.group as usize) {
            group.remove(&(before.given, memcg));
        }
        let group = after.group as usize;
        if self.groups.len() <= group {
            self.groups.resize_with(group + 1, BTreeSet::new);
        }
        self.groups[group].insert((after.given, memcg));
    }
}

/// One pass: everyone who has something to give at its priority, once, but for those who are ahead.
/// If the others have too little that is cold, the next pass asks them for a larger share; only
/// then is more taken from those who are ahead. At priority 0 these have their turns, too, after
/// the others.
#[derive(Debug)]
pub(crate) struct TurnsWalk {
    number: u64,
    priority: u8,
    /// The count of the one visited last, and what was added to it in advance, so that others who
    /// reclaim at the same time take other memcgs.
    after: Option<(u64, MemcgId)>,
    advance: i64,
    /// Who gave more than this is ahead of the others by a share, and left out.
    most: u64,
    /// At priority 0, those who were left out, the last one first, once the others had their turns.
    left_out: Option<Vec<MemcgId>>,
    finished: bool,
}

impl TurnsWalk {
    pub(crate) fn new(turns: &mut Turns, priority: u8) -> TurnsWalk {
        turns.passes += 1;
        let share = WHOLE >> priority;
        let lowest = turns.lowest(priority, None);
        let most = lowest.map_or(0, |given| given.saturating_add(share / 4));
        let (number, advance) = (turns.passes, share as i64);
        TurnsWalk { number, priority, after: None, advance, most, left_out: None, finished: false }
    }

    pub(crate) fn next(&mut self, turns: &mut Turns, before: Option<Given>) -> Option<MemcgId> {
        self.settle(turns, before);
        while let Some(memcg) = self.candidate(turns).filter(|_| !self.finished) {
            // Visited before in this pass, it is behind the others by now.
            let mut first = false;
            turns.change(memcg, |member| {
                first = member.pass != self.number;
                if first {
                    member.pass = self.number;
                    member.given = member.given.saturating_add_signed(self.advance);
                }
            });
            if first {
                return Some(memcg);
            }
        }
        self.finished = true;
        None
    }

    fn candidate(&mut self, turns: &Turns) -> Option<MemcgId> {
        if self.left_out.is_none() {
            let from = self.after.map_or(Bound::Unbounded, Bound::Excluded);
            let groups = turns.large_enough(self.priority);
            let firsts = groups.filter_map(|group| group.range((from, Bound::Unbounded)).next());
            if let Some(&(given, memcg)) = firsts.min().filter(|(given, _)| *given <= self.most) {
                self.after = Some((given, memcg));
                return Some(memcg);
            }
            if self.priority > 0 {
                return None;
            }
            // As they are now: while others reclaim, too, counts grow, and one might meet the same
            // ones for ever.
            let mut ahead: Vec<_> =
                turns.groups.iter().flatten().filter(|(given, _)| *given > self.most).collect();
            ahead.sort_unstable_by(|one, other| other.cmp(one));
            self.left_out = Some(ahead.into_iter().map(|&(_, memcg)| memcg).collect());
        }
        self.left_out.as_mut()?.pop()
    }

    /// Ends the pass.
    pub(crate) fn stop(&mut self, turns: &mut Turns, last: Option<Given>) {
        self.settle(turns, last);
        self.finished = true;
    }

    fn settle(&mut self, turns: &mut Turns, given: Option<Given>) {
        let Some(Given { memcg, giving_pages, scanned, stolen, protected }) = given else { return };
        let next = protected.then(|| turns.lowest(self.priority, Some(memcg))).flatten();
        turns.change(memcg, |member| {
            let counts = stolen + scanned.saturating_sub(stolen) / KEPT_SHARE;
            let share = (u128::from(counts) * u128::from(WHOLE) / u128::from(giving_pages.max(1))) as i64;
            let share = if protected { 0 } else { share };
            member.given = member.given.saturating_add_signed(share - self.advance);
            member.given = member.given.max(next.unwrap_or(0));
        });
    }
}

/// What a visit to a memcg brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) memcg: MemcgId,
    /// What it had before, but for what is protected.
    pub(crate) giving_pages: u64,
    pub(crate) scanned: u64,
    pub(crate) stolen: u64,
    /// It was passed over.
    pub(crate) protected: bool,
}

/// The order that a memcg keeps of its subtree.
#[derive(Debug)]
pub(crate) enum MemcgOrder {
    Lru(Box<MemcgLru>),
    Turns(Turns),
}

impl MemcgOrder {
    pub(super) fn lru(&mut self) -> &mut MemcgLru {
        match self {
            MemcgOrder::Lru(lru) => lru,
            MemcgOrder::Turns(_) => unreachable!("mechanisms do not change"),
        }
    }

    pub(super) fn turns(&mut self) -> &mut Turns {
        match self {
            MemcgOrder::Turns(turns) => turns,
            MemcgOrder::Lru(_) => unreachable!("mechanisms do not change"),
        }
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

    fn give(turns: &mut Turns, n: u32, counts: u64) {
        turns.change(MemcgId(n), |member| member.given += counts);
    }

    /// All that it looked at, of 1,000 pages.
    fn gave(memcg: MemcgId, stolen: u64) -> Given {
        Given { memcg, giving_pages: 1000, scanned: stolen, stolen, protected: false }
    }

    /// A pass, by what each visit brings: who was visited.
    fn visits(turns: &mut Turns, priority: u8, visit: impl Fn(MemcgId) -> Given) -> Vec<u32> {
        let mut walk = TurnsWalk::new(turns, priority);
        let (mut visited, mut before) = (Vec::new(), None);
        while let Some(memcg) = walk.next(turns, before) {
            visited.push(memcg.0);
            before = Some(visit(memcg));
        }
        visited
    }

    /// A pass in which everybody gives what `gives` says, of 1,000 pages.
    fn pass(turns: &mut Turns, priority: u8, gives: impl Fn(u32) -> u64) -> Vec<u32> {
        visits(turns, priority, |memcg| gave(memcg, gives(memcg.0)))
    }

    #[test]
    fn a_pass_visits_everyone_who_can_give_once() {
        let mut turns = turns(&[5000, 10, 4096, 4095, 1 << 40]);
        assert_eq!(pass(&mut turns, 12, |_| 0), [0, 2, 4]);
        assert_eq!(pass(&mut turns, 11, |_| 0), [0, 2, 3, 4]);
        assert_eq!(pass(&mut turns, 0, |_| 0), [0, 1, 2, 3, 4]);
        turns.set_size(MemcgId(1), 9000);
        turns.set_size(MemcgId(4), 1);
        turns.leave(MemcgId(0));
        assert_eq!(pass(&mut turns, 12, |_| 0), [1, 2]);
    }

    /// Who gave least, for its size, is next.
    #[test]
    fn who_gave_least_is_first() {
        let mut turns = turns(&[1000, 1000, 2000, 1000]);
        let visit = |memcg: MemcgId| Given {
            giving_pages: [1000, 1000, 2000, 1000][memcg.0 as usize],
            ..gave(memcg, [30, 10, 40, 0][memcg.0 as usize])
        };
        assert_eq!(visits(&mut turns, 5, visit), [0, 1, 2, 3]);
        assert_eq!(pass(&mut turns, 5, |_| 0), [3], "the others are ahead by more than 1/128");
        assert_eq!(pass(&mut turns, 0, |_| 0), [3, 1, 2, 0], "40 of 2,000 are less than 30 of 1,000");
        turns.set_size(MemcgId(9), 1000);
        give(&mut turns, 3, 1);
        assert_eq!(pass(&mut turns, 0, |_| 0), [9, 3, 1, 2, 0], "a new one does not catch up");
    }

    /// Of 100 pages each, 90 of the first are protected, and 10 of the second: they give one to
    /// nine.
    #[test]
    fn who_is_protected_gives_less() {
        let mut turns = turns(&[100, 100]);
        let mut times = [0_u32; 2];
        for _ in 0..1000 {
            let visit = |memcg: MemcgId| Given { giving_pages: [10, 90][memcg.0 as usize], ..gave(memcg, 2) };
            visits(&mut turns, 4, visit).iter().for_each(|&n| times[n as usize] += 1);
        }
        assert!((8.5..9.5).contains(&(f64::from(times[1]) / f64::from(times[0]))), "{times:?}");
    }

    /// However far ahead one is: the others may have nothing, and then it has to give all.
    #[test]
    fn the_last_pass_leaves_nobody_out() {
        let mut turns = turns(&[1000; 2]);
        for round in 1..=10 {
            let gave = |n| [900, 0][n as usize];
            let visited = pass(&mut turns, 0, gave);
            assert!(visited.contains(&0) && visited.len() == 2, "round {round}");
            assert_eq!(pass(&mut turns, 1, |_| 0), [1], "only there");
        }
    }

    /// What is looked at and kept counts one in 256.
    #[test]
    fn keeping_counts_little() {
        let mut turns = turns(&[1000; 2]);
        let mut walk = TurnsWalk::new(&mut turns, 5);
        let mut visit = |before| walk.next(&mut turns, before);
        assert_eq!(visit(None), Some(MemcgId(0)));
        assert_eq!(visit(Some(Given { scanned: 256, ..gave(MemcgId(0), 0) })), Some(MemcgId(1)));
        assert_eq!(visit(Some(gave(MemcgId(1), 2))), None);
        assert_eq!(pass(&mut turns, 0, |_| 0), [0, 1], "one against two");
    }

    /// 0 is protected, and 1 gives all the same, however much it gave. Later, 0 has nothing to make
    /// up for.
    #[test]
    fn who_is_protected_holds_nobody_back() {
        let mut turns = turns(&[1000, 1000]);
        let mut times = [0_u32; 2];
        for _ in 0..100 {
            let visit = |memcg: MemcgId| match memcg.0 {
                0 => Given { protected: true, ..gave(memcg, 0) },
                _ => gave(memcg, 31),
            };
            visits(&mut turns, 5, visit).iter().for_each(|&n| times[n as usize] += 1);
        }
        assert!(times[1] >= 50, "it may be left out of a pass, but not of the next: {times:?}");
        times = [0; 2];
        (0..10).for_each(|_| pass(&mut turns, 5, |_| 31).iter().for_each(|&n| times[n as usize] += 1));
        assert!(times[0].abs_diff(times[1]) <= 1, "{times:?}");
    }

    /// All that 0 has is dirty.
    #[test]
    fn the_last_pass_goes_past_those_with_dirty_pages() {
        let mut turns = turns(&[1000, 1000]);
        give(&mut turns, 1, 7 * WHOLE);
        let mut dirty_pass = |priority| {
            visits(&mut turns, priority, |memcg| Given { scanned: 1000 >> priority, ..gave(memcg, 0) })
        };
        assert_eq!([5, 1, 0].map(&mut dirty_pass), [vec![0], vec![0], vec![0, 1]]);
    }

    /// Two reclaimers at the same time take different memcgs.
    #[test]
    fn reclaimers_share_the_members() {
        let mut turns = turns(&[100; 4]);
        let mut one = TurnsWalk::new(&mut turns, 0);
        let mut two = TurnsWalk::new(&mut turns, 0);
        let taken: Vec<u32> = (0..4)
            .map(|n| if n % 2 == 0 { &mut one } else { &mut two }.next(&mut turns, None).unwrap().0)
            .collect();
        assert_eq!(taken, [0, 1, 2, 3]);
        one.stop(&mut turns, None);
        assert_eq!(one.next(&mut turns, None), None);
        turns.leave(MemcgId(2));
        turns.leave(MemcgId(2));
        assert_eq!(pass(&mut turns, 0, |_| 0), [0, 1, 3]);
    }
}
