//! The state of the policy `ranked` in an lruvec.
//!
//! # Locking
//!
//! Sizes, the clock with the beginnings of its generations, the period and the counts of the hand
//! change under the lruvec lock and are read without it: a reader may see a clock whose generation
//! has just begun. The share, evictions, returns and the size of memory are statistics that all
//! threads write. Where two write at once, one step is lost.

use super::clock::{Clock, Period};
use super::constants::{
    ASK_EVERY, BIRTHS, LOOK_SHARE, LOOKED_MIN, MAIN_REACH_PERCENT, MISSED_PART, NEWCOMER_REACH_PERCENT,
    PERIOD_EVICTIONS, RETURNS_MIN, SHADOW_MEMORIES, SLACK_PAGES, SLACK_SHIFT, UNMISSED_PERIODS, UNREAD_PART,
    UNREAD_REACH_MIN, UNREAD_REACH_PART, UNREAD_STEP, USED_PART, fewest_pages,
};
use super::memory::Memory;
use super::share::{Share, ShareRules, Signal};
use crate::Core;
use crate::folio::{Kind, MAIN, NEWCOMER, Stamp};
use crate::lru::terms::UNEVICTABLE;
use crate::lru::{Distance, Swappiness};
use crate::mechanism::{Mechanisms, Switch};
use crate::sync::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::ops::Deref;
use std::sync::OnceLock;

/// One of a kind's two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// Pages brought in lately that have not earned a place on the main list.
    Newcomers = 0,
    /// The main list.
    Main = 1,
}

impl List {
    /// The mark of folios on this list.
    pub(super) fn mark(self) -> u8 {
        match self {
            List::Newcomers => NEWCOMER,
            List::Main => MAIN,
        }
    }

    /// The list with this mark, which must be of this policy.
    pub(in crate::lru) fn of_mark(mark: u8) -> List {
        if mark == MAIN { List::Main } else { List::Newcomers }
    }
}

/// The first of the newcomer and main lists, by kind.
pub(in crate::lru) const FIRST_LIST: usize = UNEVICTABLE + 1;

pub(in crate::lru) fn list_of(list: List, kind: Kind) -> usize {
    FIRST_LIST + list as usize * 2 + kind as usize
}

/// All lists, in the order of their numbers.
pub(in crate::lru) const LISTS: [(List, Kind); 4] = [
    (List::Newcomers, Kind::Anon),
    (List::Newcomers, Kind::File),
    (List::Main, Kind::Anon),
    (List::Main, Kind::File),
];

/// The state of this policy in an lruvec.
#[derive(Debug)]
pub(crate) struct Ranked {
    /// Pages by list and kind. May be negative for a moment.
    sizes: [[AtomicI64; 2]; 2],
    share: AtomicU64,
    clock: [AtomicU64; 3],
    /// Pages brought in until the last walk over page tables.
    pub(super) walked_at: AtomicU64,
    /// When the latest generations began, by the node's clock; by their numbers, in a ring.
    births: [AtomicU64; BIRTHS],
    period: AtomicU64,
    /// Steps of the hand.
    hand_steps: AtomicU64,
    /// Pages that the hand has looked at since the last verdict on their use, and those of them
    /// that were accessed since the look before.
    looked: [AtomicU64; 2],
    /// That verdict.
    in_use: AtomicBool,
    /// The node's time at which the coldest page was used last, as found by the last visit.
    coldest_used_at: AtomicU64,
    /// Pages evicted from each list.
    evicted: [AtomicU64; 2],
    /// Newcomers that stay while the oldest of them was read ahead and not read yet.
    unread: AtomicU64,
    /// Pages that came back soon in this period; evictions before it, and in the period before;
    /// periods in a row without enough such pages.
    came_back: AtomicU64,
    judged: [AtomicU64; 2],
    unmissed_periods: AtomicU32,
    /// Pages at the end of the last reclaim, and their growth until the next one begins.
    low_pages: AtomicU64,
    slack_pages: AtomicU64,
    /// Pages expected at the end of the first reclaim, by the limits.
    expected_pages: AtomicU64,
    /// Swappiness of reclaim that nobody requested.
    swappiness: AtomicU32,
}

/// The state of this policy in an lruvec, created at its first use: under other policies, a tenant
/// of a cache pays only 16 bytes for it.
#[derive(Debug, Default)]
pub(crate) struct RankedOnUse(OnceLock<Box<Ranked>>);

impl Deref for RankedOnUse {
    type Target = Ranked;

    fn deref(&self) -> &Ranked {
        self.0.get_or_init(|| Box::new(Ranked::new()))
    }
}

/// Questions that are asked under every policy. Without a state there are no pages.
impl RankedOnUse {
    /// Resets everything, for the next memcg with this number.
    pub(in crate::lru) fn reset(&self) {
        self.0.get().inspect(|ranked| ranked.reset());
    }

    pub(crate) fn size(&self, list: List, kind: Kind) -> u64 {
        self.0.get().map_or(0, |ranked| ranked.size(list, kind))
    }

    /// Steps of the hand of the main list.
    pub(in crate::lru) fn hand_steps(&self) -> u64 {
        self.0.get().map_or(0, |ranked| ranked.hand_steps.load(Relaxed))
    }

    pub(in crate::lru) fn pages(&self, kind: Kind) -> u64 {
        self.0.get().map_or(0, |ranked| ranked.pages(kind))
    }
}

impl Ranked {
    fn new() -> Ranked {
        let ranked = Ranked {
            sizes: Default::default(),
            share: AtomicU64::new(0),
            clock: Default::default(),
            walked_at: AtomicU64::new(0),
            births: Default::default(),
            period: AtomicU64::new(0),
            hand_steps: AtomicU64::new(0),
            looked: Default::default(),
            in_use: AtomicBool::new(false),
            coldest_used_at: AtomicU64::new(u64::MAX),
            evicted: Default::default(),
            unread: AtomicU64::new(0),
            came_back: AtomicU64::new(0),
            judged: Default::default(),
            unmissed_periods: AtomicU32::new(UNMISSED_PERIODS),
            low_pages: AtomicU64::new(0),
            slack_pages: AtomicU64::new(0),
            expected_pages: AtomicU64::new(0),
            swappiness: AtomicU32::new(0),
        };
        ranked.reset();
        ranked
    }

    fn reset(&self) {
        self.sizes.iter().flatten().for_each(|size| size.store(0, Relaxed));
        let counts = self.evicted.iter().chain(&self.judged).chain(&self.looked);
        let words = self.clock.iter().chain(&self.births).chain(counts);
        words.for_each(|word| word.store(0, Relaxed));
        self.in_use.store(false, Relaxed);
        self.coldest_used_at.store(u64::MAX, Relaxed);
        self.unread.store(0, Relaxed);
        self.came_back.store(0, Relaxed);
        self.unmissed_periods.store(UNMISSED_PERIODS, Relaxed);
        self.share.store(Share::START.pack(), Relaxed);
        self.period.store(Period::UNKNOWN.word(), Relaxed);
        self.walked_at.store(0, Relaxed);
        self.hand_steps.store(0, Relaxed);
        self.low_pages.store(0, Relaxed);
        self.slack_pages.store(SLACK_PAGES, Relaxed);
        self.expected_pages.store(0, Relaxed);
        self.swappiness.store(u32::from(Swappiness::DEFAULT.get()), Relaxed);
    }

    pub(super) fn size(&self, list: List, kind: Kind) -> u64 {
        self.sizes[list as usize][kind as usize].load(Relaxed).max(0) as u64
    }

    /// Changes the size; the caller holds the lists' lock.
    pub(super) fn resize(&self, list: List, kind: Kind, pages: i64) {
        let size = &self.sizes[list as usize][kind as usize];
        size.store(size.load(Relaxed) + pages, Relaxed);
    }

    pub(super) fn pages(&self, kind: Kind) -> u64 {
        self.size(List::Newcomers, kind) + self.size(List::Main, kind)
    }

    /// Swappiness of reclaim that nobody requested, as of the last turn. Requests may have another:
    /// that holds for their own turns only.
    pub(super) fn swappiness(&self) -> Swappiness {
        Swappiness::new(self.swappiness.load(Relaxed) as u8).expect("stored from a swappiness")
    }

    /// As in the kernel, 200 leaves files alone while there is anonymous memory.
    pub(super) fn sparing_files(&self, swappiness: Swappiness) -> Swappiness {
        match swappiness.get() {
            200 if self.pages(Kind::Anon) > 0 => Swappiness::ANON_ONLY,
            _ => swappiness,
        }
    }

    /// Pages that reclaim may take, by list, in the order of [`List`]. Other pages do not take part
    /// in the ranking.
    #[inline]
    pub(super) fn takeable(&self) -> [u64; 2] {
        self.takeable_with(self.swappiness())
    }

    /// Pages that a turn with this swappiness may take, by list.
    #[inline]
    pub(super) fn takeable_with(&self, swappiness: Swappiness) -> [u64; 2] {
        let size = |list, kind| if swappiness.evicts(kind) { self.size(list, kind) } else { 0 };
        [List::Newcomers, List::Main].map(|list| size(list, Kind::Anon) + size(list, Kind::File))
    }

    fn takeable_pages(&self) -> u64 {
        self.takeable().iter().sum()
    }

    /// Size of memory (N): pages at the end of reclaim. If there are more than usual at its start,
    /// memory has grown.
    pub(super) fn memory_pages(&self) -> u64 {
        self.memory_with(self.takeable())
    }

    /// [`Self::memory_pages`] with these pages on the lists.
    #[inline]
    fn memory_with(&self, takeable: [u64; 2]) -> u64 {
        let low = self.low_pages.load(Relaxed);
        if low == 0 {
            return self.expected_pages.load(Relaxed).max(1);
        }
        let grown = (takeable[0] + takeable[1]).saturating_sub(self.slack_pages.load(Relaxed));
        low.max(grown)
    }

    /// Before the first reclaim, takes the expected size of memory from the limits, checked now and
    /// then.
    pub(super) fn expect(&self, limit_pages: impl FnOnce() -> u64) {
        if self.low_pages.load(Relaxed) == 0 && self.clock().words().0.is_multiple_of(ASK_EVERY) {
            let limit_pages = limit_pages();
            self.expected_pages.store(limit_pages - fewest_pages(limit_pages).min(limit_pages), Relaxed);
        }
    }

    /// The newcomers' target (p) with these pages on the lists.
    #[inline]
    pub(super) fn newcomers_target(&self, takeable: [u64; 2]) -> u64 {
        self.share().pages(self.memory_with(takeable))
    }

    /// Whether the main list is smaller than its share, with these pages on the lists.
    #[inline]
    pub(super) fn main_has_room(&self, takeable: [u64; 2]) -> bool {
        takeable[List::Main as usize] < self.main_target(takeable)
    }

    /// Whether the main list is larger than its share.
    pub(super) fn main_is_full(&self) -> bool {
        let takeable = self.takeable();
        takeable[List::Main as usize] > self.main_target(takeable)
    }

    #[inline]
    fn main_target(&self, takeable: [u64; 2]) -> u64 {
        let memory_pages = self.memory_with(takeable);
        memory_pages.saturating_sub(self.share().pages(memory_pages)).max(1)
    }

    pub(super) fn share(&self) -> Share {
        Share::unpack(self.share.load(Relaxed))
    }

    /// Adjusts the newcomers' share after a signal.
    #[inline]
    pub(super) fn signal(&self, core: &Core, signal: Signal) {
        let mechanisms = core.mechanisms();
        let rules = ShareRules {
            adapts: mechanisms.is_on(Switch::AdaptiveNewcomers),
            refusals: mechanisms.is_on(Switch::RefusalPressure),
            momentum: mechanisms.is_on(Switch::ShareMomentum),
        };
        self.share.store(self.share().after(signal, self.memory_pages(), rules).pack(), Relaxed);
    }

    pub(super) fn clock(&self) -> Clock {
        let [pages, begun, generation] = [0, 1, 2].map(|at: usize| self.clock[at].load(Relaxed));
        Clock::new(pages, begun, generation)
    }

    /// A page was brought in, at a time of the node, when these pages were on the lists.
    #[inline]
    pub(super) fn tick(&self, node_pages: u64, takeable: [u64; 2]) {
        let clock = self.clock();
        // The first generation began when there was something.
        if clock == Clock::default() {
            self.births.iter().for_each(|birth| birth.store(node_pages, Relaxed));
        }
        self.set_clock(clock, clock.tick(self.memory_with(takeable)), node_pages);
    }

    fn set_clock(&self, before: Clock, after: Clock, node_pages: u64) {
        let (pages, begun, generation) = after.words();
        if generation != before.words().2 {
            self.births[generation as usize % BIRTHS].store(node_pages, Relaxed);
        }
        self.clock
            .iter()
            .zip([pages, begun, generation])
            .for_each(|(word, value)| word.store(value, Relaxed));
    }

    /// Begins a generation if the latest is older than one of this memory by the node's clock: a
    /// memcg that hits all the time brings nothing in, and what is found in use there is to be
    /// young.
    pub(super) fn follow(&self, node_pages: u64) {
        if self.is_behind(node_pages) {
            let clock = self.clock();
            self.set_clock(clock, clock.next_generation(), node_pages);
        }
    }

    /// Whether [`Self::follow`] begins a generation.
    pub(super) fn is_behind(&self, node_pages: u64) -> bool {
        let birth = self.births[self.clock().words().2 as usize % BIRTHS].load(Relaxed);
        node_pages.saturating_sub(birth) >= Clock::unit(self.memory_pages())
    }

    /// The node's time at which the generation of a stamp began; of an old one, no later than that.
    pub(super) fn born(&self, stamp: Stamp) -> u64 {
        let clock = self.clock();
        let generation = clock.words().2;
        let age = clock.age(stamp).min(BIRTHS as u64 - 1).min(generation);
        self.births[(generation - age) as usize % BIRTHS].load(Relaxed)
    }

    pub(super) fn period(&self) -> Period {
        Period::from_word(self.period.load(Relaxed))
    }

    /// Notes that a page of the main list with this stamp was found accessed, or leaves.
    #[inline]
    pub(super) fn note_period(&self, stamp: Stamp) {
        let age_pages = self.clock().age_pages(stamp, self.memory_pages());
        self.period.store(self.period().seen(age_pages).word(), Relaxed);
    }

    /// Counts a step of the hand, to a page that was accessed since the last one or not; the caller
    /// holds the lists' lock.
    pub(super) fn count_hand_step(&self, accessed: bool) {
        let add = |word: &AtomicU64, steps: u64| word.store(word.load(Relaxed) + steps, Relaxed);
        add(&self.hand_steps, 1);
        add(&self.looked[0], 1);
        add(&self.looked[1], accessed.into());
    }

    /// The verdicts of the last visit: the node's time at which the coldest page was used last (of
    /// none: the end of time), whether pages were in use, and whether those that left are missed.
    pub(in crate::lru) fn last_verdicts(&self) -> (u64, bool, bool) {
        let is_missed = self.unmissed_periods.load(Relaxed) < UNMISSED_PERIODS;
        (self.coldest_used_at.load(Relaxed), self.in_use.load(Relaxed), is_missed)
    }

    /// Notes the first of [`Self::last_verdicts`]; the others note themselves.
    pub(in crate::lru) fn note_coldest(&self, used_at: Option<u64>) {
        self.coldest_used_at.store(used_at.unwrap_or(u64::MAX), Relaxed);
    }

    /// Judges whether a good part of the pages that the hand met was in use, as soon as it has
    /// looked at enough of them. The caller holds the lists' lock.
    pub(in crate::lru) fn judge_use(&self) {
        let [looked, used] = [0, 1].map(|at: usize| self.looked[at].load(Relaxed));
        if looked >= (self.takeable_pages() / LOOK_SHARE).max(LOOKED_MIN) {
            self.in_use.store(used * USED_PART >= looked, Relaxed);
            self.looked.iter().for_each(|word| word.store(0, Relaxed));
        }
    }

    /// Evictions from a list, without those of batches that have not ended.
    pub(super) fn evicted(&self, list: List) -> u64 {
        self.evicted[list as usize].load(Relaxed)
    }

    /// Counts a batch of evictions, by list; so many of the newcomers were read ahead in vain.
    pub(super) fn count_evicted(&self, pages: [u64; 2], unread: u64) {
        self.evicted.iter().zip(pages).for_each(|(count, pages)| _ = count.fetch_add(pages, Relaxed));
        let kept = self.unread.load(Relaxed);
        if unread > 0 && kept > 0 {
            self.unread.store(kept.saturating_sub(unread), Relaxed);
        }
    }

    /// Newcomers that stay while the oldest of them was read ahead and not read yet.
    pub(super) fn unread_pages(&self) -> u64 {
        self.unread.load(Relaxed)
    }

    /// A page comes back that was evicted unread, so many evictions of newcomers ago.
    /// `limit_pages`: the most pages that the memcg may have.
    pub(super) fn note_unread_return(&self, passed: u64, limit_pages: u64) {
        let most = limit_pages / UNREAD_PART;
        let reach = (limit_pages / UNREAD_REACH_PART).max(UNREAD_REACH_MIN.min(most));
        if passed < reach {
            self.unread.store((self.unread_pages() + UNREAD_STEP).min(most), Relaxed);
        }
    }

    /// Whether a page that comes back after so many evictions does so soon.
    fn is_soon(&self, passed: u64) -> bool {
        passed * 100 < self.memory_pages() * MAIN_REACH_PERCENT
    }

    /// Notes that a page came back after so many evictions from its list.
    pub(super) fn note_return(&self, passed: u64) {
        if self.is_soon(passed) {
            self.came_back.fetch_add(1, Relaxed);
        }
    }

    /// Judges whether a good part of the pages that were evicted lately came back soon, as far as
    /// is known, and ends a period that is long enough. The caller holds the lists' lock.
    pub(in crate::lru) fn judge_returns(&self) {
        let evicted: u64 = self.evicted.iter().map(|word| word.load(Relaxed)).sum();
        let [begun, before] = [0, 1].map(|at: usize| self.judged[at].load(Relaxed));
        let (now, came_back) = (evicted - begun, self.came_back.load(Relaxed));
        let mut unmissed = self.unmissed_periods.load(Relaxed);
        if came_back >= RETURNS_MIN && came_back * MISSED_PART >= before + now {
            unmissed = 0;
        } else if now >= PERIOD_EVICTIONS && came_back * MISSED_PART < before {
            // One period may be too short for pages to come back, so several in a row must agree.
            unmissed = (unmissed + 1).min(UNMISSED_PERIODS);
        }
        self.unmissed_periods.store(unmissed, Relaxed);
        if now >= PERIOD_EVICTIONS {
            self.came_back.store(0, Relaxed);
            self.judged.iter().zip([evicted, now]).for_each(|(word, value)| word.store(value, Relaxed));
        }
    }

    /// Evictions since the page left, from its list, and the number up to which its shadow counts.
    pub(super) fn distance(&self, memory: Memory) -> Distance {
        let list = if memory.left_main() { List::Main } else { List::Newcomers };
        let evicted = self.evicted[list as usize].load(Relaxed);
        let passed = memory.evictions_since(evicted);
        Distance { passed, reach: SHADOW_MEMORIES * self.memory_pages() }
    }

    /// The signal that a returning page gives, after so many evictions from its list.
    #[inline]
    pub(super) fn judge(&self, memory: Memory, passed: u64, mechanisms: Mechanisms) -> Option<Signal> {
        let memory_pages = self.memory_pages();
        if memory.left_main() {
            return self.is_soon(passed).then_some(Signal::Smaller);
        }
        let reach = memory_pages * NEWCOMER_REACH_PERCENT / 100;
        let reach = if mechanisms.is_on(Switch::PeriodDiscount) {
            self.period().discounted(reach, self.clock().age_pages(memory.stamp(), memory_pages))
        } else {
            reach
        };
        (passed < reach).then_some(Signal::Larger)
    }

    /// Begins a turn of reclaim. `swappiness`: that of reclaim that nobody requested.
    pub(super) fn begin_reclaim(&self, swappiness: Swappiness) {
        self.swappiness.store(u32::from(swappiness.get()), Relaxed);
        let low = self.low_pages.load(Relaxed);
        if low > 0 {
            let (slack, grown) = (self.slack_pages.load(Relaxed), self.takeable_pages().saturating_sub(low));
            let slack = (slack - (slack >> SLACK_SHIFT)).max(SLACK_PAGES);
            self.slack_pages.store(slack.max(grown), Relaxed);
        }
    }

    /// Ends a turn of reclaim.
    pub(super) fn end_reclaim(&self) {
        self.low_pages.store(self.takeable_pages().max(1), Relaxed);
    }

    /// The figures of `lru_gen` beside the lists: the newcomers' share in percent, and pages
    /// brought in.
    pub(crate) fn figures(&self) -> (u64, u64) {
        (self.share().percent(), self.clock().words().0)
    }
}
