//! Tests of the whole policy: a naive model beside it, and additions for a page cache.

use super::List;
use super::clock::{Clock, Period};
use super::constants::fewest_pages;
use super::constants::{
    HAND_STEPS, MAIN_REACH_PERCENT, NEWCOMER_REACH_PERCENT, PROMOTING_REFS, SHADOW_MEMORIES, SLACK_PAGES,
    TURN_SHARE, UNREAD_PART,
};
use super::place::Manner;
use super::share::{Share, ShareRules, Signal};
use crate::folio::{Kind, Stamp};
use crate::lru::Swappiness;
use crate::lru::scan_control::{Isolated, LastMapping};
use crate::reclaim::{EffortKind, Proactive, RequestStep};
use crate::sync::AtomicU32;
use crate::testing::{Fetching, Harness};
use crate::{Arrival, Counter, Lru, Mechanisms, Preset, Switch};
use std::collections::{BTreeMap, VecDeque};

fn harness(limit_pages: u64) -> Harness {
    let mechanisms = Mechanisms::preset(Preset::Default).with_lru(Lru::Ranked);
    Harness::with_mechanisms(mechanisms, limit_pages, 1)
}

fn pages_on(harness: &Harness, list: List) -> Vec<u32> {
    let locked = harness.memcg().lruvec.lock(&harness.core.folios);
    let list = super::list_of(list, Kind::File);
    locked
        .lists
        .lists
        .iter(&harness.core.folios, list)
        .map(|folio| harness.core.folios.index(folio))
        .collect()
}

#[derive(Clone, Copy, Default)]
struct Page {
    main: bool,
    refs: u32,
    /// Accessed since the hand left it.
    touched: bool,
    first: bool,
    stamp: Option<Stamp>,
    /// Evicted: whether from the main list, and the evictions from that list before.
    out: Option<(bool, u64)>,
}

/// The rules of the design, page by page: lists are deques, and all runs in sequence.
struct Naive {
    limit: u64,
    pages: BTreeMap<u32, Page>,
    lists: [VecDeque<u32>; 2],
    share: Share,
    clock: Clock,
    period: Period,
    evicted: [u64; 2],
    low: u64,
    evictions: Vec<u32>,
}

const RULES: ShareRules = ShareRules { adapts: true, refusals: true, momentum: true };

impl Naive {
    fn new(limit: u64) -> Naive {
        Naive {
            limit,
            pages: BTreeMap::new(),
            lists: Default::default(),
            share: Share::START,
            clock: Clock::default(),
            period: Period::UNKNOWN,
            evicted: [0; 2],
            low: 0,
            evictions: Vec::new(),
        }
    }

    fn resident(&self) -> u64 {
        (self.lists[0].len() + self.lists[1].len()) as u64
    }

    fn memory(&self) -> u64 {
        if self.low == 0 {
            return self.limit - fewest_pages(self.limit);
        }
        self.low.max(self.resident().saturating_sub(SLACK_PAGES))
    }

    fn main_may_have(&self) -> u64 {
        (self.memory() - self.share.pages(self.memory())).max(1)
    }

    fn signal(&mut self, signal: Signal) {
        self.share = self.share.after(signal, self.memory(), RULES);
    }

    fn note_period(&mut self, stamp: Stamp) {
        self.period = self.period.seen(self.clock.age_pages(stamp, self.memory()));
    }

    /// The first page of the main list without an access.
    fn hand(&mut self) -> Option<u32> {
        for _ in 0..HAND_STEPS {
            let page = *self.lists[1].front()?;
            let mut state = self.pages[&page];
            if state.refs == 0 {
                return Some(page);
            }
            if state.touched {
                self.note_period(state.stamp.unwrap());
                state.stamp = Some(self.clock.stamp());
            }
            state.refs -= 1;
            state.touched = false;
            self.pages.insert(page, state);
            self.lists[1].rotate_left(1);
        }
        None
    }

    fn evict(&mut self, page: u32) {
        let state = self.pages.get_mut(&page).unwrap();
        let from = usize::from(state.main);
        self.lists[from].retain(|&other| other != page);
        if !state.main && state.refs > 0 {
            state.stamp = Some(self.clock.midway(state.stamp.unwrap()));
        }
        state.out = Some((state.main, self.evicted[from]));
        self.evicted[from] += 1;
        self.evictions.push(page);
    }

    /// One batch: chosen first, evicted afterwards.
    fn batch(&mut self, wanted: u64, budget: u64, left: &mut [u64; 2]) -> (u64, u64) {
        let (mut chosen, mut scanned) = (Vec::new(), 0);
        while scanned < budget && (chosen.len() as u64) < wanted && self.resident() > 0 {
            scanned += 1;
            let newcomers = self.lists[0].len() as u64;
            let from_main = !self.lists[1].is_empty()
                && (newcomers == 0
                    || left[0] == 0
                    || left[1] > 0 && newcomers < self.share.pages(self.memory()));
            if from_main {
                left[1] = left[1].saturating_sub(1);
                chosen.extend(self.choose_from_main());
                continue;
            }
            let page = *self.lists[0].front().unwrap();
            left[0] = left[0].saturating_sub(1);
            self.lists[0].pop_front();
            if self.pages[&page].refs < PROMOTING_REFS {
                chosen.push(page);
                continue;
            }
            let state = self.pages.get_mut(&page).unwrap();
            *state = Page { main: true, refs: 0, touched: false, stamp: Some(self.clock.stamp()), ..*state };
            self.lists[1].push_back(page);
            if self.lists[1].len() as u64 > self.main_may_have() {
                chosen.extend(self.choose_from_main());
            }
        }
        chosen.iter().for_each(|&page| self.evict(page));
        (scanned, chosen.len() as u64)
    }

    fn choose_from_main(&mut self) -> Option<u32> {
        let page = self.hand().or_else(|| self.lists[1].front().copied())?;
        self.note_period(self.pages[&page].stamp.unwrap());
        self.lists[1].pop_front();
        Some(page)
    }

    /// An effort, which scans larger and larger shares of the lists.
    fn reclaim(&mut self) {
        let (goal, mut freed) = (fewest_pages(self.limit), 0);
        for priority in (0..=12).rev() {
            let budget = (self.resident() >> priority).max((self.resident() / TURN_SHARE).min(goal));
            let (mut scanned, mut left) = (0, [0, 1].map(|list| self.lists[list].len() as u64));
            while scanned < budget && freed < goal.max(2) {
                let wanted = goal.saturating_sub(freed).clamp(1, 64);
                let (looked, taken) = self.batch(wanted, (budget - scanned).min(64), &mut left);
                scanned += looked;
                freed += taken;
                if taken > 0 {
                    self.low = self.resident();
                }
            }
            if freed >= goal {
                return;
            }
        }
    }

    fn read(&mut self, page: u32) {
        let state = self.pages.get(&page).copied().unwrap_or_default();
        let resident = state.stamp.is_some() && state.out.is_none();
        if resident {
            let next = match (state.first, state.refs) {
                (false, _) => Page { first: true, ..state },
                (true, 3) => state,
                (true, refs) => Page { refs: refs + 1, touched: true, ..state },
            };
            self.pages.insert(page, next);
            return;
        }
        if self.resident() == self.limit {
            self.reclaim();
        }
        self.bring(page, state);
        self.read(page);
    }

    fn bring(&mut self, page: u32, before: Page) {
        let mut remembered = before.out;
        if let Some((from_main, evictions)) = remembered {
            let (memory, passed) = (self.memory(), self.evicted[usize::from(from_main)] - evictions);
            if passed > SHADOW_MEMORIES * memory {
                remembered = None;
            } else if from_main && passed * 100 < memory * MAIN_REACH_PERCENT {
                self.signal(Signal::Smaller);
            } else if !from_main {
                let age = self.clock.age_pages(before.stamp.unwrap(), memory);
                if passed < self.period.discounted(memory * NEWCOMER_REACH_PERCENT / 100, age) {
                    self.signal(Signal::Larger);
                }
            }
        }
        self.clock = self.clock.tick(self.memory());
        let has_room = (self.lists[1].len() as u64) < self.main_may_have();
        let main = match remembered {
            _ if has_room => true,
            None => false,
            Some(_) => self.hand().is_some_and(|candidate| {
                let age = |stamp: Option<Stamp>| self.clock.age(stamp.unwrap());
                age(before.stamp) < age(self.pages[&candidate].stamp)
            }),
        };
        if remembered.is_some() && !main {
            self.signal(Signal::Refused);
        }
        let refs = u32::from(main && remembered.is_some_and(|(from_main, _)| from_main));
        let stamp = Some(self.clock.stamp());
        self.pages.insert(page, Page { main, refs, touched: refs > 0, first: false, stamp, out: None });
        self.lists[usize::from(main)].push_back(page);
    }
}

/// Skewed reads, loops and scans, by seed: pages are evicted in the same order, and the lists are
/// the same at each step.
#[test]
fn ranked_agrees_with_a_naive_model() {
    for seed in 0..6u64 {
        let limit = [70, 200, 333][seed as usize % 3];
        let (mut harness, mut naive) = (harness(limit), Naive::new(limit));
        let mut state = seed + 1;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (mut next, mut loops) = (10_000, 0);
        for at in 0..12_000u64 {
            let page = match (random(10), at / 3000) {
                (0, _) => {
                    next += 1;
                    next
                }
                (1..=3, 1 | 3) => {
                    loops = (loops + 1) % (limit as u32 * 5 / 4);
                    5_000 + loops
                }
                _ => (random(limit * 2) * random(limit * 2) / (limit * 2)) as u32,
            };
            harness.read(page);
            naive.read(page);
            if at % 97 == 0 {
                let lists = [List::Newcomers, List::Main].map(|list| pages_on(&harness, list));
                let expected = [0, 1].map(|list: usize| Vec::from(naive.lists[list].clone()));
                assert_eq!(lists, expected, "seed {seed}, read {at}");
            }
        }
        assert_eq!(harness.evicted(), naive.evictions, "seed {seed}");
        assert_eq!(harness.memcg().lruvec.ranked.share(), naive.share);
        harness.core.validate().unwrap();
    }
}

/// A loop slightly larger than memory: the pages on the main list stay there and hit.
#[test]
fn a_loop_keeps_hitting() {
    let mut harness = harness(200);
    let mut misses = 0;
    for round in 0..60 {
        let before = harness.misses;
        harness.read_all(0..240);
        misses = if round < 30 { 0 } else { misses + harness.misses - before };
    }
    // 40 of 240 do not fit; the multi-gen LRU would miss all 240.
    assert!(misses < 30 * 90, "{misses} misses in 30 rounds");
}

/// Pages that are read ahead and never accessed leave the newcomers' share alone and do not fill
/// the main list.
#[test]
fn pages_read_ahead_in_vain_say_nothing() {
    let mut harness = harness(100);
    for round in 0..20 {
        for page in (0..90).map(|page| page + round % 3 * 90) {
            if !harness.is_cached(page) {
                harness.bring(page, Arrival { ahead: true, ..Arrival::default() });
            }
        }
    }
    assert_eq!(pages_on(&harness, List::Main), []);
    assert_eq!(harness.memcg().lruvec.ranked.share(), Share::START);
    // Once accessed, such a page is a newcomer like others.
    let cached = (0..270).find(|&page| harness.is_cached(page)).unwrap();
    harness.read(cached);
    assert!(harness.flags(cached).referenced() && harness.flags(cached).refs() == 0);
    harness.core.validate().unwrap();
}

/// Pages that are read ahead are evicted unread and come back, until as many newcomers stay as they
/// are, and main gives. Others that never come back end that.
#[test]
fn unread_pages_stay_while_their_likes_come_back() {
    let mut harness = harness(100);
    harness.read_all(0..100);
    let bring = |harness: &mut Harness, pages: std::ops::Range<u32>| {
        let missing: Vec<_> = pages.filter(|&page| !harness.is_cached(page)).collect();
        for &page in &missing {
            harness.bring(page, Arrival { ahead: true, ..Arrival::default() });
        }
        missing.len()
    };
    let brought: Vec<_> = (0..20).map(|_| bring(&mut harness, 200..230)).collect();
    assert!(brought[1] > 15 && brought[19] == 0, "newcomers begin with 5 pages: {brought:?}");
    let kept = harness.memcg().lruvec.ranked.unread_pages();
    assert!((20..=100 / UNREAD_PART).contains(&kept), "{kept}");
    assert!(pages_on(&harness, List::Main).len() < 75);
    bring(&mut harness, 300..500);
    assert_eq!(harness.memcg().lruvec.ranked.unread_pages(), 0, "these were read ahead in vain");
    harness.core.validate().unwrap();
}

/// A dirty page at the tail is written, not promoted, and leaves when it is clean.
#[test]
fn dirty_newcomers_stay_newcomers() {
    let mut harness = harness(200);
    harness.read_all(0..190);
    let newcomers = pages_on(&harness, List::Newcomers);
    let dirty = newcomers[0];
    harness.write(dirty);
    harness.read_all(1000..1030);
    assert!(harness.is_cached(dirty) && harness.flags(dirty).reclaim(), "{:?}", harness.flags(dirty));
    assert!(pages_on(&harness, List::Newcomers).contains(&dirty));
    let folios = harness.start_writeback();
    harness.end_writeback(folios);
    assert_eq!(pages_on(&harness, List::Newcomers)[0], dirty, "it is next, without a batch");
    assert!(harness.stat(Counter::Pgrotated) > 0);
    harness.core.validate().unwrap();
}

/// An effort that meets only newcomers under writeback passes to the main list, and does not look
/// at them again.
#[test]
fn newcomers_under_writeback_are_scanned_once() {
    let mut harness = harness(2000);
    (0..3).for_each(|_| harness.read_all(0..1400));
    harness.read_all(2000..3000);
    let newcomers = pages_on(&harness, List::Newcomers);
    assert!(newcomers.len() > 64, "{newcomers:?}");
    newcomers.iter().for_each(|&page| harness.write(page));
    let written = harness.start_writeback();
    let before = (harness.stat(Counter::PgscanDirect), harness.stat(Counter::PgstealDirect));
    harness.effort(EffortKind::Limit, 32);
    let scanned = harness.stat(Counter::PgscanDirect) - before.0;
    assert_eq!(harness.stat(Counter::PgstealDirect) - before.1, 32);
    assert!((96..=128).contains(&scanned), "{scanned} scanned");
    harness.end_writeback(written);
    // Nothing holds them once they are written.
    harness.effort(EffortKind::Limit, 32);
    assert_eq!(harness.stat(Counter::PgscanDirect) - before.0 - scanned, 32);
    harness.core.validate().unwrap();
}

/// Page 0 alone on the main list, beside newcomers below page `end`, of which an effort took some.
fn page_0_on_main(end: u32) -> (Harness, Vec<u32>) {
    let mechanisms = Mechanisms::preset(Preset::Default).with_lru(Lru::Ranked);
    let mut harness = Harness::with_mechanisms(mechanisms.without(&[Switch::FillMain]).unwrap(), 24, 1);
    harness.read_all([0; 4]);
    harness.read_all(1..end);
    harness.effort(EffortKind::Limit, 1);
    assert_eq!(pages_on(&harness, List::Main), [0]);
    let newcomers = pages_on(&harness, List::Newcomers);
    (harness, newcomers)
}

/// A turn's budget is its lruvec's pages, so it reaches the main list's last page only if it looks
/// at each newcomer once. The newcomers are dirty, and batches of four do not divide them evenly.
#[test]
fn the_last_clean_page_is_found_behind_dirty_newcomers() {
    let (harness, newcomers) = page_0_on_main(13);
    assert_eq!(newcomers.len(), 10, "{newcomers:?}");
    newcomers.iter().for_each(|&page| harness.write(page));
    harness.effort(EffortKind::Limit, 4);
    assert!(!harness.is_cached(0), "{:?}", harness.flags(0));
    harness.core.validate().unwrap();
}

/// The newcomers give although they have fewer pages than their share, if the main list cannot: all
/// that is left of it is dirty.
#[test]
fn clean_newcomers_are_found_beside_a_dirty_main_list() {
    let (harness, newcomers) = page_0_on_main(21);
    let ranked = &harness.memcg().lruvec.ranked;
    (0..100).for_each(|_| ranked.signal(&harness.core, Signal::Larger));
    assert!(
        newcomers.len() > 1 && (newcomers.len() as u64) < ranked.newcomers_target(ranked.takeable()),
        "{newcomers:?}"
    );
    harness.write(0);
    harness.effort(EffortKind::Limit, 1);
    assert!(!harness.is_cached(newcomers[0]), "{:?}", harness.flags(newcomers[0]));
    harness.core.validate().unwrap();
}

/// The same if the newcomers are to stay because nobody has read them yet (swarm seed 932588).
#[test]
fn unread_newcomers_are_found_beside_a_dirty_main_list() {
    let mechanisms = Mechanisms::preset(Preset::Default).with_lru(Lru::Ranked);
    let mut harness = Harness::with_mechanisms(mechanisms.without(&[Switch::FillMain]).unwrap(), 24, 1);
    harness.read_all([0; 4]);
    harness.read_ahead(1..21);
    harness.effort(EffortKind::Limit, 1);
    assert_eq!(pages_on(&harness, List::Main), [0]);
    harness.write(0);
    let newcomers = || pages_on(&harness, List::Newcomers).len();
    while newcomers() > 0 {
        let before = newcomers();
        (0..20).for_each(|_| harness.memcg().lruvec.ranked.note_unread_return(0, 24));
        harness.effort(EffortKind::Limit, 1);
        assert!(newcomers() < before, "none of {before} was taken");
    }
    harness.core.validate().unwrap();
}

/// The access of the fault itself does not count; the next one does, and one accessed bit suffices.
#[test]
fn mapped_newcomers_are_promoted_by_a_second_access() {
    let mut harness = harness(200);
    harness.read_all(0..190);
    (300..304).for_each(|page| harness.load(page));
    assert!(!harness.is_young(300), "the fault is for the first access");
    harness.load(300);
    assert!(harness.is_young(300));
    harness.read_all(1000..1040);
    assert!(pages_on(&harness, List::Main).contains(&300));
    assert!((301..304).all(|page| !harness.is_cached(page)));
    harness.core.validate().unwrap();
}

/// A walk turns the accessed bits of all pages into counts, wherever they are on their lists.
#[test]
fn walks_count_accessed_bits() {
    for walks in [true, false] {
        let without: &[Switch] = if walks { &[] } else { &[Switch::PageWalk] };
        let mechanisms = Mechanisms::compose(Preset::Default, &[], without).unwrap();
        let mut harness = Harness::with_mechanisms(mechanisms, 200, 1);
        harness.read_all(0..190);
        // Eight of the 64 pages of one leaf are enough for a walk, one page of another is not.
        (0..2).for_each(|_| (320..328).chain([400]).for_each(|page| harness.load(page)));
        harness.read_all(1000..1007);
        assert!([320, 400].map(|page| pages_on(&harness, List::Newcomers).contains(&page)) == [true; 2]);
        let seen = [320, 400].map(|page| (harness.is_young(page), harness.flags(page).refs()));
        assert_eq!(seen, [if walks { (false, 2) } else { (true, 0) }, (true, 0)]);
        assert_eq!(harness.memcg().lruvec.walked_entries(), if walks { 3 * 64 + 64 } else { 0 });
        harness.core.validate().unwrap();
    }
}

/// A read from the beginning of a page reads it anew; others may continue the read before.
#[test]
fn rereads_count_from_the_beginning_of_a_page() {
    let counts = |mechanisms| {
        let harness = Harness::with_mechanisms(mechanisms, 200, 1);
        [0, 1, 4095].map(|in_page| harness.core.counts_reread(in_page > 0))
    };
    let default = Mechanisms::preset(Preset::Default);
    assert_eq!(counts(default), [true, false, false]);
    assert_eq!(counts(default.without(&[Switch::Rereads]).unwrap()), [false; 3]);
    assert_eq!(counts(Mechanisms::preset(Preset::Linux72)), [false; 3]);
}

/// Pages of which each has a leaf of its own: the index keeps shadows of an eighth of memory, the
/// table of compact shadows those of a whole one. A truncated file has none.
#[test]
fn shadows_outlive_their_leaves() {
    let refaults = |without: &[Switch], truncated: bool| {
        let mechanisms = Mechanisms::compose(Preset::Default, &[], without).unwrap();
        let mut harness = Harness::with_mechanisms(mechanisms, 2000, 1);
        harness.read_all((0..3000).map(|page| page * 64));
        if truncated {
            assert_eq!(harness.core.truncate(&harness.host, &harness.mapping, 0, 1 << 32), None);
        }
        harness.read_all((0..3000).map(|page| page * 64));
        harness.core.validate().unwrap();
        harness.stat(Counter::WorkingsetRefaultFile)
    };
    let (with, without) = (refaults(&[], false), refaults(&[Switch::CompactShadows], false));
    assert!(with > 2 * without && with > 800, "{with} {without}");
    assert_eq!(refaults(&[], true), 0);
}

/// The newcomers' target follows a limit that shrinks or grows.
#[test]
fn a_limit_that_changes_is_followed() {
    let mut harness = harness(800);
    harness.read_all(0..1600);
    let target = |harness: &Harness| {
        let ranked = &harness.memcg().lruvec.ranked;
        ranked.newcomers_target(ranked.takeable())
    };
    let before = target(&harness);
    // As a write that lowers the limit does, before the limit holds.
    harness.effort(EffortKind::Limit, 610);
    harness.memcg().set_max_pages(200);
    harness.read_all(2000..2300);
    let smaller = target(&harness);
    harness.memcg().set_max_pages(800);
    harness.read_all(3000..4000);
    let larger = target(&harness);
    let expected = (35..=40).contains(&before) && smaller <= 10 && (35..=40).contains(&larger);
    assert!(expected, "{before} {smaller} {larger}");
    harness.core.validate().unwrap();
}

/// Neither a request for pages of one kind nor the machine's swappiness of 200, which spares files
/// at first, is a reason to rank by one kind alone: memory is as large as before, and the clock as
/// fast.
#[test]
fn sparing_one_kind_leaves_the_size_of_memory_alone() {
    let requests = [Swappiness::ANON_ONLY, Swappiness::FILE_ONLY].map(|wish| (60, Some(wish)));
    for (swappiness, wish) in requests.into_iter().chain([(200, None)]) {
        let mut options = Harness::multigen_options(1000);
        options.mechanisms = Mechanisms::default();
        options.swappiness = Swappiness::new(swappiness).unwrap();
        options.swap.pages = 1000;
        let mut harness = Harness::with_options(options, 800);
        let few = if wish == Some(Swappiness::FILE_ONLY) { (100, 600) } else { (600, 100) };
        harness.read_all(0..few.0);
        let (core, host, memcg) = (&harness.core, &harness.host, harness.task.memcg);
        for _ in 0..few.1 {
            core.folios.set_memcg(harness.add_anon(), memcg.0);
            core.memcgs.charge_pages(memcg, 1).unwrap();
        }
        let ranked = &harness.memcg().lruvec.ranked;
        let mut request = Proactive::new(core, memcg, 1, wish, 0);
        let mut goes_on = true;
        while goes_on {
            goes_on = matches!(request.step(core, host), RequestStep::More | RequestStep::Wait(_));
            let pages = ranked.memory_pages();
            assert!((680..=800).contains(&pages), "{swappiness}, {wish:?}: {pages}");
        }
        let generation = |harness: &Harness| harness.memcg().lruvec.ranked.clock().words().2;
        let before = generation(&harness);
        harness.read_all(10_000..10_050);
        assert!(generation(&harness) - before <= 1, "{wish:?}: 50 pages are less than a quarter of memory");
    }
}

/// Each mechanism of the policy has an effect that disappears when it is off.
#[test]
fn every_mechanism_does_something() {
    let evicted = |without: &[Switch]| {
        let mechanisms = Mechanisms::compose(Preset::Default, &[], without).unwrap().with_lru(Lru::Ranked);
        let mut harness = Harness::with_mechanisms(mechanisms, 128, 1);
        let mut state = 3u64;
        for at in 0..20_000u32 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (a, b) = ((state >> 33) as u32 % 400, (state >> 45) as u32 % 400);
            match at % 5 {
                0 => harness.read(1000 + at % 700 / 5),
                1 => harness.load(a * b / 400),
                _ => harness.read(a * b / 400),
            }
        }
        harness.core.validate().unwrap();
        harness.evicted()
    };
    let whole = evicted(&[]);
    let rules = [
        Switch::RankByGeneration,
        Switch::FillMain,
        Switch::MainShadows,
        Switch::AdaptiveNewcomers,
        Switch::PeriodDiscount,
        Switch::RefusalPressure,
        Switch::ShareMomentum,
        Switch::FirstLook,
        Switch::PageWalk,
        Switch::FaultUses,
    ];
    for rule in rules {
        assert!(evicted(&[rule]) != whole, "without {}, all is the same", rule.name());
    }
}

/// A memcg whose pages come back is missed at once, until eight periods have passed in which its
/// pages stayed away.
#[test]
fn pages_that_come_back_are_missed() {
    let mut harness = harness(1000);
    harness.read_all(0..1100);
    let ranked = &harness.memcg().lruvec.ranked;
    let evict = |pages: u64| ranked.count_evicted([0, pages], 0);
    let is_missed = || {
        ranked.judge_returns();
        ranked.last_verdicts().2
    };
    assert!(!is_missed(), "nothing has come back yet");
    (0..40).for_each(|_| ranked.note_return(50));
    assert!(is_missed(), "40 of some 100");
    (0..40).for_each(|_| ranked.note_return(900));
    // The first is the one in which they came back.
    for period in 0..=8 {
        evict(64);
        assert_eq!(is_missed(), period < 8, "period {period}");
    }
    (0..15).for_each(|_| ranked.note_return(1));
    assert!(!is_missed(), "too few to say");
}

/// [book: eviction#prefetch], with the stamp, which decides from which kind's list the scan takes
/// its next folio.
#[test]
fn the_words_of_the_folio_after_the_next_are_prefetched() {
    for prefetch in [true, false] {
        let (harness, [a, b, c, d, e]) = Harness::with_scattered(Mechanisms::preset(Preset::Default));
        harness.core.set_prefetch(prefetch);
        let folios = &harness.core.folios;
        let address = |word: &AtomicU32| std::ptr::from_ref(word).addr();
        let ahead = |folio| {
            let [flags, links] = [
                std::ptr::from_ref(folios.flags(folio)).addr(),
                std::ptr::from_ref(folios.links(folio)).addr(),
            ];
            [flags, links, address(folios.memcg_word(folio))]
        };
        let page = |folio| std::ptr::from_ref(folios.page_word(folio)).addr();
        let (host, mut batch) = (Fetching::default(), Isolated::default());
        let mut locked = harness.memcg().lruvec.lock(folios);
        let swappiness = Swappiness::DEFAULT;
        let manner = Manner { left: [u64::MAX; 2], spares_used: false, swappiness };
        locked.isolate_ranked(
            (&harness.core, &host),
            (64, 64),
            manner,
            &mut LastMapping::default(),
            &mut batch,
        );
        assert_eq!(batch.folios, [a, b, c, d, e]);
        let [[c1, c2, c3], [d1, d2, d3], [e1, e2, e3]] = [c, d, e].map(ahead);
        let pages = [a, b, c, d, e].map(page);
        let expected = [c1, c2, c3, pages[0], d1, d2, d3, pages[1], e1, e2, e3, pages[2], pages[3], pages[4]];
        assert_eq!(*host.0.borrow(), if prefetch { &expected[..] } else { &[] });
    }
}
