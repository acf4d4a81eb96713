//! `subtree_lru`, our own: of any subtree, the memcg with the coldest page gives next.
//!
//! ```text
//!   node's clock ─────────────────────────────────────────────► now
//!      A's coldest      B's    C's │                 D's
//!          │             │      │  half as old        │
//!          └── equally cold: by share ──┘             └── in use: left alone
//! ```
//!
//! *Coldness decides.* Each lruvec notes at which time of the node, in pages reclaimed, its
//! generations began ([`super::ranked`]), so that ages compare across memcgs. A memcg is as cold as
//! the older of its lists' tails. Memcgs at least half as old as the coldest are equally cold. All
//! others have no turn, but in the last pass of an effort. The policy of the memcg chooses which
//! pages it gives.
//!
//! *A memcg in use is spared beside a stream*: if an eighth of the pages that the hand finds there
//! is in use, it counts as used now. Its next turn comes when the others have grown old, and is
//! short. But if the pages that the coldest gives come back soon, that one is in use as well, and
//! only seems colder: its hand turns faster, so its accessed bits had less time to be set. Then the
//! memcg stays as cold as its tail, and the hands of all turn equally fast. Otherwise, of 128
//! memcgs that use their pages alike, 27 gave 71 % of the pages.
//!
//! *A share decides among the equally cold.* Each memcg has a count of what it gave, as a share of
//! what it has beyond its protection (stride scheduling; Waldspurger and Weihl 1995). A round is
//! all that are equally cold, but for those that gave more than the others, the lowest count first.
//! It goes on across efforts, so that its cost is spread over its turns. A turn ends with twice the
//! memcg's share of what is wanted ([`super::order`]). A memcg that comes begins with the lowest
//! count of the last round: it does not make up for the time before.
//!
//! A protected memcg does not hold the others back: it is put beside those that gave most.
//!
//! # Locking
//!
//! Behind the lock of the order's owner. Whether a memcg is a member changes under its lruvec lock.

use super::multigen::memcg_lru::MemcgLru;
use crate::memcg::MemcgId;
use std::collections::{BTreeSet, VecDeque};

/// The count for giving all unprotected pages once.
const WHOLE: u64 = 1 << 32;
/// A page that is looked at and kept counts one in so many: memcgs that use their pages give less.
const KEPT_SHARE: u64 = 256;
/// A memcg that gave a turn more than another sits out a round: at least 1/256 of its pages, and at
/// most 1/64.
const AHEAD_MIN: u64 = WHOLE / 256;
const AHEAD_MAX: u64 = WHOLE / 64;
/// Turns after which a large one is forgotten, as a power of two.
const TURN_SHIFT: u32 = 4;
/// Rounds that a pass may begin.
const ROUNDS: u32 = 2;

/// The group for a size: 0 for none, else one more than its base-2 logarithm.
pub(crate) fn group_of(pages: u64) -> u32 {
    u64::BITS - pages.leading_zeros()
}

#[derive(Clone, Copy, Debug, Default)]
struct Member {
    is_member: bool,
    /// The node's time at which its coldest page was used last, as far as known.
    used_at: u64,
    /// Whether a good part of its pages was in use at the last visit.
    in_use: bool,
    /// Whether pages that it gave lately came back soon, as far as known.
    is_missed: bool,
    /// Count of pages given.
    given: u64,
    /// The last pass that visited it.
    pass: u64,
}

/// Members per block.
const BLOCK: usize = 32;

/// The members of one subtree by number, in blocks that are created for their first member. A
/// lookup takes two steps. A B-tree of 100,000 takes five, with nodes that are out of the caches by
/// the next turn, and a sixth of the time of a request.
#[derive(Debug, Default)]
struct Members {
    blocks: Vec<Option<Box<[Member; BLOCK]>>>,
    number: u64,
}

impl Members {
    fn get(&self, memcg: MemcgId) -> Option<&Member> {
        let block = self.blocks.get(memcg.0 as usize / BLOCK)?.as_ref()?;
        Some(&block[memcg.0 as usize % BLOCK]).filter(|member| member.is_member)
    }

    fn get_mut(&mut self, memcg: MemcgId) -> Option<&mut Member> {
        let block = self.blocks.get_mut(memcg.0 as usize / BLOCK)?.as_mut()?;
        Some(&mut block[memcg.0 as usize % BLOCK]).filter(|member| member.is_member)
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

/// The turns of one subtree.
#[derive(Debug)]
pub(crate) struct Turns {
    /// By the time at which they were used last.
    by_age: BTreeSet<(u64, MemcgId)>,
    members: Members,
    /// The rest of the round: equally cold when it began, the one that gave least first.
    round: VecDeque<MemcgId>,
    /// The least and the most that one of the equally cold had given when the round began.
    least: u64,
    most: u64,
    /// The most that one has given in a turn lately.
    turn: u64,
    passes: u64,
}

impl Turns {
    pub(crate) fn new() -> Turns {
        Turns {
            by_age: BTreeSet::new(),
            members: Members::default(),
            round: VecDeque::new(),
            least: 0,
            most: 0,
            turn: 0,
            passes: 0,
        }
    }

    /// Number of memcgs with pages.
    pub(crate) fn members(&self) -> u64 {
        self.members.number
    }

    /// A memcg has pages from now on.
    pub(crate) fn join(&mut self, memcg: MemcgId, now: u64) {
        if self.members.get_mut(memcg).is_none() {
            let member = Member { is_member: true, used_at: now, given: self.least, ..Member::default() };
            self.members.insert(memcg, member);
            self.by_age.insert((now, memcg));
        }
    }

    /// It has none any more.
    pub(crate) fn leave(&mut self, memcg: MemcgId) {
        if let Some(member) = self.members.remove(memcg) {
            self.by_age.remove(&(member.used_at, memcg));
        }
    }

    /// The members that are equally cold, those that have given least first, and all others, the
    /// coldest first.
    fn by_coldness(&self, now: u64) -> (Vec<(u64, MemcgId)>, impl Iterator<Item = MemcgId> + '_) {
        let oldest = self.by_age.first().map_or(now, |&(used_at, _)| used_at);
        let younger = (now - now.saturating_sub(oldest) / 2 + 1, MemcgId(0));
        let given =
            |&(_, memcg): &(u64, MemcgId)| (self.members.get(memcg).map_or(0, |member| member.given), memcg);
        let mut equal: Vec<_> = self.by_age.range(..younger).map(given).collect();
        equal.sort_unstable();
        (equal, self.by_age.range(younger..).map(|&(_, memcg)| memcg))
    }

    /// The coldest member besides `memcg`.
    fn coldest_beside(&self, memcg: MemcgId) -> Option<&Member> {
        let coldest = self.by_age.iter().map(|&(_, other)| other).find(|&other| other != memcg)?;
        self.members.get(coldest)
    }

    /// Whether a memcg is in use, and the coldest besides it neither in use nor missed.
    pub(super) fn is_beside_stream(&self, memcg: MemcgId) -> bool {
        let streams = |other: &Member| !other.in_use && !other.is_missed;
        self.members.get(memcg).is_some_and(|member| member.in_use)
            && self.coldest_beside(memcg).is_some_and(streams)
    }

    fn begin_round(&mut self, now: u64) {
        let (mut equal, _) = self.by_coldness(now);
        let Some(&(least, _)) = equal.first() else { return };
        let most = equal.last().map_or(least, |&(given, _)| given);
        let ahead = self.turn.clamp(AHEAD_MIN, AHEAD_MAX);
        equal.retain(|&(given, _)| given <= least.saturating_add(ahead));
        self.round.clear();
        self.round.extend(equal.into_iter().map(|(_, memcg)| memcg));
        (self.least, self.most) = (least, most);
    }
}

/// One pass: a visit to each memcg of the rest of the round, and of the next two, as one may have
/// none but protected ones. At priority 0, to each memcg that there is: the coldest may have
/// nothing but dirty pages.
#[derive(Debug)]
pub(crate) struct TurnsWalk {
    number: u64,
    /// Rounds that this pass may still begin.
    rounds_left: u32,
    /// At priority 0, all memcgs, the last one first.
    all: Option<Vec<MemcgId>>,
    finished: bool,
}

impl TurnsWalk {
    /// `now`: the time of the node.
    pub(crate) fn new(turns: &mut Turns, priority: u8, now: u64) -> TurnsWalk {
        turns.passes += 1;
        let number = turns.passes;
        let all = (priority == 0).then(|| {
            let (equal, others) = turns.by_coldness(now);
            let mut all: Vec<_> = equal.into_iter().map(|(_, memcg)| memcg).chain(others).collect();
            all.reverse();
            all
        });
        TurnsWalk { number, rounds_left: ROUNDS, all, finished: false }
    }

    /// The next memcg; what the visit to the one before brought.
    pub(crate) fn next(&mut self, turns: &mut Turns, before: Option<Given>, now: u64) -> Option<MemcgId> {
        settle(turns, before, now);
        while let Some(memcg) = self.candidate(turns, now).filter(|_| !self.finished) {
            if let Some(member) = turns.members.get_mut(memcg)
                && member.pass != self.number
            {
                member.pass = self.number;
                return Some(memcg);
            }
        }
        self.finished = true;
        None
    }

    fn candidate(&mut self, turns: &mut Turns, now: u64) -> Option<MemcgId> {
        if let Some(all) = &mut self.all {
            return all.pop();
        }
        if turns.round.is_empty() && self.rounds_left > 0 {
            self.rounds_left -= 1;
            turns.begin_round(now);
        }
        turns.round.pop_front()
    }

    /// Ends the pass.
    pub(crate) fn stop(&mut self, turns: &mut Turns, last: Option<Given>, now: u64) {
        settle(turns, last, now);
        self.finished = true;
    }
}

fn settle(turns: &mut Turns, given: Option<Given>, now: u64) {
    let Some(Given { memcg, giving_pages, scanned, stolen, protected, used_at, in_use, is_missed }) = given
    else {
        return;
    };
    let most = turns.most;
    // Left alone as long as the coldest of the others gives what nobody misses.
    let is_spared = in_use && turns.coldest_beside(memcg).is_none_or(|other| !other.is_missed);
    let Some(member) = turns.members.get_mut(memcg) else { return };
    let counts = stolen + scanned.saturating_sub(stolen) / KEPT_SHARE;
    let share = (u128::from(counts) * u128::from(WHOLE) / u128::from(giving_pages.max(1))) as u64;
    turns.turn = share.max(turns.turn - (turns.turn >> TURN_SHIFT));
    member.given =
        if protected { member.given.max(most) } else { member.given.max(turns.least).saturating_add(share) };
    (member.in_use, member.is_missed) = (in_use, is_missed);
    let used_at = if is_spared { now } else { used_at.min(now) };
    let before = std::mem::replace(&mut member.used_at, used_at);
    turns.by_age.remove(&(before, memcg));
    turns.by_age.insert((used_at, memcg));
}

/// Result of a visit to a memcg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) memcg: MemcgId,
    /// Unprotected pages before the visit.
    pub(crate) giving_pages: u64,
    pub(crate) scanned: u64,
    pub(crate) stolen: u64,
    /// Whether it was passed over as protected.
    pub(crate) protected: bool,
    /// The node's time at which its coldest page was used last.
    pub(crate) used_at: u64,
    /// A good part of what it would have given was found in use.
    pub(crate) in_use: bool,
    /// Whether pages that it gave lately came back soon, as far as known.
    pub(crate) is_missed: bool,
}

/// The order of a subtree, kept by its memcg.
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

    /// The time of the node.
    const NOW: u64 = 10_000;

    /// Members that were used so many pages ago.
    fn turns(ages: &[u64]) -> Turns {
        let mut turns = Turns::new();
        ages.iter().zip(0..).for_each(|(&age, n)| turns.join(MemcgId(n), NOW - age));
        turns
    }

    /// It gives so many of 1,000 pages, and is as cold as before.
    fn gave(turns: &mut Turns, memcg: MemcgId, stolen: u64) -> Given {
        let used_at = turns.members.get_mut(memcg).unwrap().used_at;
        Given {
            memcg,
            giving_pages: 1000,
            scanned: stolen,
            stolen,
            protected: false,
            used_at,
            in_use: false,
            is_missed: false,
        }
    }

    /// A pass, by what each visit brings: the memcgs that were visited.
    fn visits(turns: &mut Turns, priority: u8, visit: impl Fn(Given) -> Given) -> Vec<u32> {
        let mut walk = TurnsWalk::new(turns, priority, NOW);
        let (mut visited, mut before) = (Vec::new(), None);
        while let Some(memcg) = walk.next(turns, before, NOW) {
            visited.push(memcg.0);
            before = Some(visit(gave(turns, memcg, 0)));
        }
        visited
    }

    /// A pass in which each memcg gives what `gives` says, of 1,000 pages.
    fn pass(turns: &mut Turns, priority: u8, gives: impl Fn(u32) -> u64) -> Vec<u32> {
        visits(turns, priority, |given| {
            let stolen = gives(given.memcg.0);
            Given { scanned: stolen, stolen, ..given }
        })
    }

    #[test]
    fn only_the_coldest_have_turns() {
        let mut turns = turns(&[4000, 100, 2000, 1999, 0]);
        assert_eq!(pass(&mut turns, 12, |_| 0), [0, 2], "0, and 2 that is half as old");
        assert_eq!(pass(&mut turns, 0, |_| 0), [0, 2, 3, 1, 4], "the last pass of an effort visits all");
        turns.leave(MemcgId(0));
        assert_eq!(pass(&mut turns, 5, |_| 0), [2, 3]);
    }

    /// The hand found nothing but pages in use there.
    #[test]
    fn a_memcg_in_use_waits_until_the_others_are_old() {
        for is_missed in [false, true] {
            let mut turns = turns(&[4000, 3000]);
            assert_eq!(visits(&mut turns, 5, |given| Given { is_missed, ..given }), [0, 1]);
            let visit = |given: Given| Given { in_use: given.memcg.0 == 0, is_missed, ..given };
            assert_eq!(visits(&mut turns, 5, visit), [0, 1]);
            let later: &[u32] = if is_missed { &[0, 1] } else { &[1] };
            assert_eq!(visits(&mut turns, 5, visit), later, "{is_missed}");
            assert_eq!(turns.by_age.len(), 2);
        }
    }

    #[test]
    fn among_the_equally_cold_the_one_that_gave_least_is_first() {
        let mut turns = turns(&[100; 4]);
        assert_eq!(pass(&mut turns, 5, |n| [3, 1, 2, 0][n as usize]), [0, 1, 2, 3]);
        assert_eq!(pass(&mut turns, 5, |_| 0), [3, 1, 2, 0]);
        assert_eq!(pass(&mut turns, 5, |n| if n == 3 { 0 } else { 9 }), [3, 1, 2, 0]);
        assert_eq!(pass(&mut turns, 5, |_| 0), [3], "the others are ahead by more than a turn");
        turns.join(MemcgId(9), NOW - 100);
        assert_eq!(pass(&mut turns, 5, |_| 0), [3, 9], "a new one does not catch up");
    }

    /// Of 100 pages each, the first memcg has 90 protected, the second 10: they give one to nine.
    #[test]
    fn shares_are_of_unprotected_pages() {
        let mut turns = turns(&[100, 100]);
        let mut times = [0_u32; 2];
        for _ in 0..5000 {
            let visit = |given: Given| Given {
                giving_pages: [10, 90][given.memcg.0 as usize],
                scanned: 2,
                stolen: 2,
                ..given
            };
            visits(&mut turns, 4, visit).iter().for_each(|&n| times[n as usize] += 1);
        }
        assert!((8.5..9.5).contains(&(f64::from(times[1]) / f64::from(times[0]))), "{times:?}");
    }

    /// 0 is protected, and 1 gives all the same, however much it gave. Later, 0 need not make up
    /// for it.
    #[test]
    fn a_protected_memcg_does_not_hold_others_back() {
        let mut turns = turns(&[100, 100]);
        let mut times = [0_u32; 2];
        for _ in 0..100 {
            let visit = |given: Given| match given.memcg.0 {
                0 => Given { protected: true, ..given },
                _ => Given { scanned: 31, stolen: 31, ..given },
            };
            visits(&mut turns, 5, visit).iter().for_each(|&n| times[n as usize] += 1);
        }
        assert!(times[1] >= 50, "it may sit out a round, but not the next: {times:?}");
        times = [0; 2];
        (0..10).for_each(|_| pass(&mut turns, 5, |_| 31).iter().for_each(|&n| times[n as usize] += 1));
        assert!(times[0].abs_diff(times[1]) <= 2, "{times:?}");
    }

    /// Two concurrent reclaimers take different memcgs.
    #[test]
    fn reclaimers_share_a_round() {
        let mut turns = turns(&[100; 4]);
        let mut one = TurnsWalk::new(&mut turns, 3, NOW);
        let mut two = TurnsWalk::new(&mut turns, 3, NOW);
        let taken: Vec<u32> = (0..4)
            .map(|n| if n % 2 == 0 { &mut one } else { &mut two }.next(&mut turns, None, NOW).unwrap().0)
            .collect();
        assert_eq!(taken, [0, 1, 2, 3]);
        one.stop(&mut turns, None, NOW);
        assert_eq!(one.next(&mut turns, None, NOW), None);
        turns.leave(MemcgId(2));
        turns.leave(MemcgId(2));
        assert_eq!(pass(&mut turns, 0, |_| 0), [0, 1, 3]);
    }

    /// A round goes on where the effort before ended.
    #[test]
    fn a_round_outlives_an_effort() {
        let mut turns = turns(&[100; 5]);
        let mut first = TurnsWalk::new(&mut turns, 3, NOW);
        let visited: Vec<_> = (0..3).map(|_| first.next(&mut turns, None, NOW).unwrap().0).collect();
        first.stop(&mut turns, None, NOW);
        assert_eq!(visited, [0, 1, 2]);
        let mut second = TurnsWalk::new(&mut turns, 3, NOW);
        assert_eq!((0..2).map(|_| second.next(&mut turns, None, NOW).unwrap().0).collect::<Vec<_>>(), [3, 4]);
    }
}
