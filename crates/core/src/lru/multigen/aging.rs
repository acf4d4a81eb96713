//! Aging: opening young generations.
//!
//! Eviction consumes the oldest generation; aging opens a new one in time. Before that it walks
//! page tables and labels folios accessed since the last walk with the current youngest generation.
//! So a mapped folio is examined twice before it can be evicted.
//!
//! Source: [book: aging], [book: aging#oldest-generation].
//!
//! # Locking
//!
//! A walk only changes flags and collects size changes; opening and closing generations takes the
//! lruvec lock.

use super::lists::list_in;
use super::window::WalkBatch;
use crate::Core;
use crate::event::Event;
use crate::folio::{Climb, GenIndex, Kind};
use crate::host::Host;
use crate::lru::lists::{AHEAD, NEXT, TAIL};
use crate::lru::{LockedLruvec, Lruvec, MAX_GENERATIONS, MIN_GENERATIONS, Seq, Swappiness};
use crate::mechanism::Mechanisms;
use crate::memcg::{Counter, Memcg, MemcgId, Memcgs};
use crate::mm::Next;
use crate::tunables::LEAF_WALK;

/// Folios moved per lock hold while making room.
const MOVES_PER_LOCK: u32 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    No,
    /// One generation can be evicted from, but none is in reserve.
    Should,
    /// Nothing can be evicted before aging.
    Must,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgeStep {
    /// Call again; other threads may run before.
    More,
    /// All address spaces are walked, and this caller must open the generation.
    Walked,
    /// Other threads have opened it or are about to.
    Others,
}

impl Lruvec {
    /// Generations of the evictable kind that has the most. Before the rework: of anonymous pages
    /// if they are evictable, since those of files were never behind them.
    pub(crate) fn evictable_generations(
        &self,
        swappiness: Swappiness,
        mechanisms: Mechanisms,
    ) -> Option<u64> {
        let mut generations = swappiness.evictable().map(|kind| self.window.generations(kind));
        if mechanisms.workingset_rework() { generations.max() } else { generations.next() }
    }

    /// Whether aging is due, by the generations of the evictable kinds.
    pub(crate) fn aging_due(&self, swappiness: Swappiness, mechanisms: Mechanisms) -> Due {
        match self.evictable_generations(swappiness, mechanisms) {
            Some(..=MIN_GENERATIONS) => Due::Must,
            Some(3) if mechanisms.workingset_rework() || self.is_lopsided(swappiness) => Due::Should,
            _ => Due::No,
        }
    }

    /// Before the rework, three generations sufficed unless the youngest held more than half of the
    /// pages, or the oldest less than a quarter ([book: aging#when-to-age]).
    fn is_lopsided(&self, swappiness: Swappiness) -> bool {
        let max = self.window.max();
        let pages = |seq: Seq| {
            let of = |kind| if seq < self.window.min(kind) { 0 } else { self.size(seq.index(), kind) };
            swappiness.evictable().map(of).sum::<u64>()
        };
        let all = self.pages_in_generations(swappiness);
        2 * pages(max) > all || 4 * pages(Seq(max.0 - 2)) < all
    }
}

impl LockedLruvec<'_> {
    /// Empties the oldest generation of a kind and closes it. `false`: the lock was held long
    /// enough; call again.
    fn make_room(&mut self, host: &impl Host, kind: Kind, swappiness: Swappiness) -> bool {
        let oldest = self.lruvec.window.min(kind);
        let label = oldest.index();
        // Folios of a kind that is not evictable stay on their list and become members of the
        // youngest generation, which uses the same list: a cold/hot inversion that the kernel
        // accepts.
        if swappiness.evicts(kind) {
            let mut moves_left = MOVES_PER_LOCK;
            for zone in self.folios.zones().rev() {
                let list = list_in(zone, label, kind);
                moves_left = match self.looks_ahead(list, false) {
                    AHEAD => self.move_on::<AHEAD>(host, list, kind, label, moves_left),
                    NEXT => self.move_on::<NEXT>(host, list, kind, label, moves_left),
                    _ => self.move_on::<TAIL>(host, list, kind, label, moves_left),
                };
                if moves_left == 0 {
                    return false;
                }
            }
        }
        self.carry_over(kind);
        self.lruvec.window.close_until(kind, oldest.next());
        true
    }

    /// Moves the folios of a generation's list to the next generation. Returns the moves that are
    /// left; with 0, folios may be left, too.
    // The caller's frame would have three of them.
    #[inline(never)]
    fn move_on<const LOOK: u8>(
        &mut self,
        host: &impl Host,
        list: usize,
        kind: Kind,
        label: GenIndex,
        moves_left: u32,
    ) -> u32 {
        let mechanisms = self.folios.mechanisms();
        let (mut next, mut moves_left) = (None, moves_left);
        while let Some(folio) = next.or_else(|| self.lists.lists.tail(list)) {
            next = self.look_ahead::<LOOK>(host, folio);
            let flags = &self.folios.flags(folio);
            let before = flags.load();
            match flags.climb(label, false, mechanisms) {
                Climb::Moved(next) => {
                    self.resize(label, kind, -1);
                    self.resize(next, kind, 1);
                    self.relist(folio, self.generation_list(folio, next, kind), false);
                    if mechanisms.workingset_rework() && !before.saturated(mechanisms) {
                        let tier = usize::from(before.tier(mechanisms));
                        self.lists.averages[kind as usize].protected[tier] += 1;
                    }
                }
                Climb::Relabelled(label) => {
                    self.relist(folio, self.generation_list(folio, label, kind), false);
                }
            }
            moves_left -= 1;
            if moves_left == 0 {
                break;
            }
        }
        moves_left
    }

    /// Closes oldest generations with empty lists ([book: aging#oldest-generation]). A generation
    /// of relabelled folios is not empty until they were sorted away. `true`: some were closed.
    pub(crate) fn drop_empty_generations(&mut self, swappiness: Swappiness) -> bool {
        let window = &self.lruvec.window;
        let max = window.max();
        let old = Kind::ALL.map(|kind| window.min(kind));
        let mut min = old;
        for kind in swappiness.evictable() {
            let min = &mut min[kind as usize];
            while min.0 + MIN_GENERATIONS <= max.0 && self.is_empty(min.index(), kind) {
                *min = min.next();
            }
        }
        if min == old {
            return false;
        }
        if !self.folios.mechanisms().workingset_rework() {
            if swappiness.evicts(Kind::Anon) {
                // Files advance only together with anonymous pages, and never beyond them.
                let [anon, file] = &mut min;
                *anon = (*anon).min(*file);
                *file = (*anon).max(old[Kind::File as usize]);
            }
        } else if (1..=200).contains(&swappiness.get()) {
            // One kind must not fall to two generations while the other still has four.
            let second = Seq(max.0 - 2);
            let [anon, file] = &mut min;
            if *anon > second && *file < second {
                *anon = second;
            } else if *file > second && *anon < second {
                *file = second;
            }
        }
        let mut closed = false;
        for kind in swappiness.evictable() {
            if min[kind as usize] > old[kind as usize] {
                self.carry_over(kind);
                self.lruvec.window.close_until(kind, min[kind as usize]);
                closed = true;
            }
        }
        closed
    }
}

/// One aging of a memcg: the walk of its address spaces, and the generation that is opened then.
pub(crate) struct Aging<'a, H> {
    pub(crate) core: &'a Core,
    pub(crate) host: &'a H,
    pub(crate) memcg: &'a Memcg,
    /// The youngest generation that the caller knows.
    pub(crate) seq: Seq,
    pub(crate) swappiness: Swappiness,
    /// Walks all tables, even where no walk is expected to find much.
    pub(crate) force: bool,
}

impl<H: Host> Aging<'_, H> {
    /// Opens the generation after `seq`. `false`: another thread did.
    pub(crate) fn open_generation(&self) -> bool {
        let lruvec = &self.memcg.lruvec;
        loop {
            if self.seq < lruvec.window.max() {
                return false;
            }
            let mut locked = lruvec.lock(&self.core.folios);
            if self.seq != lruvec.window.max() {
                return false;
            }
            let mut full =
                Kind::ALL.into_iter().filter(|&kind| lruvec.window.generations(kind) == MAX_GENERATIONS);
            if full.all(|kind| locked.make_room(self.host, kind, self.swappiness)) {
                locked.open_generation(self.host.now());
                self.memcg.stat.add(Counter::Aged, 1);
                return true;
            }
        }
    }

    /// Walks the address spaces and opens the next generation, in one go. `true`: this thread
    /// opened it.
    pub(crate) fn run(&self, batch: &mut WalkBatch) -> bool {
        loop {
            match self.step(batch) {
                AgeStep::More => {}
                AgeStep::Walked => return self.open(),
                AgeStep::Others => return false,
            }
        }
    }

    /// Walks the next address space, if one is left. The caller that finds none left must open the
    /// generation ([`Self::open`]); no other thread does.
    pub(crate) fn step(&self, batch: &mut WalkBatch) -> AgeStep {
        let Aging { core, memcg, seq, .. } = *self;
        let mut added_bytes = 0;
        let begin = || {
            memcg.lruvec.forget_walks();
            added_bytes = memcg.lruvec.filters.clear(seq.next(), |bytes| core.leaves.count_bytes(bytes));
        };
        let next = if core.tunables.has(LEAF_WALK) {
            memcg.spaces.next(seq.0, self.force, begin)
        } else {
            memcg.spaces.skip(seq.0)
        };
        match next {
            Next::Finished => AgeStep::Others,
            Next::Walk { space, forced } => {
                // Without room for a new filter, walks visit all tables.
                if !core.grow_memcg(memcg, added_bytes) {
                    core.leaves.forget_bytes(memcg.lruvec.filters.remove(seq.next()));
                }
                self.walk_space(&space, forced, batch);
                batch.flush(core, memcg.id());
                AgeStep::More
            }
            Next::Advance => AgeStep::Walked,
        }
    }

    /// Opens the generation that all address spaces were walked for. `false`: it is open already.
    pub(crate) fn open(&self) -> bool {
        let opened = self.open_generation();
        if opened {
            self.host.event(Event::Aged { memcg: self.memcg.id(), max_seq: self.seq.next().0 });
        }
        opened
    }
}

impl Memcgs {
    /// Whether a thread walks for a new generation of the memcg or a descendant, or is about to
    /// open it.
    pub(crate) fn is_aging(&self, memcg: MemcgId) -> bool {
        let mut aging = false;
        self.visit(memcg, |memcg| aging |= memcg.spaces.are_walked_for(memcg.lruvec.max_seq().0));
        aging
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Preset;
    use crate::Time;
    use crate::testing::{Harness, QuietHost};

    /// [book: aging#checks]: "Aging with 4 generations of file moves the oldest generation's folios
    /// to the *tail* of the second oldest and increases `min_seq[file]`".
    #[test]
    fn a_full_window_makes_room() {
        let mut harness = Harness::new(100, 1);
        harness.bring_at([10, 11], 3);
        harness.bring_at([0, 1, 2], 4);
        assert_eq!((harness.list(0), harness.list(1)), (vec![0, 1, 2], vec![10, 11]));
        assert!(harness.open_generation());
        assert_eq!(harness.list(1), [2, 1, 0, 10, 11], "taken from the tail, added at the tail, one by one");
        assert_eq!((harness.min_seq(), harness.max_seq()), (1, 4));
        assert_eq!(harness.sizes(), [5, 0, 0, 0]);
        harness.core.validate().unwrap();
    }

    /// [book: aging#new-generation]: a folio that a walk relabelled "goes to the tail of the list
    /// of its own label instead and its flags are untouched".
    #[test]
    fn making_room_sorts_relabelled_folios() {
        let mut harness = Harness::new(100, 1);
        harness.bring_at([0, 1], 4);
        harness.promote(1);
        let before = harness.flags(1);
        assert!(harness.open_generation());
        assert_eq!((harness.list(1), harness.list(3)), (vec![0], vec![1]));
        assert_eq!(harness.flags(1), before);
        harness.core.validate().unwrap();
    }

    /// [book: aging#checks]: "The same with swappiness 0: anon's `min_seq` grows but no anon folio
    /// changes list or label, and those folios now count as youngest".
    #[test]
    fn unevictable_kinds_count_as_youngest() {
        let harness = Harness::new(100, 1);
        let anon = harness.add_anon();
        let lruvec = &harness.memcg().lruvec;
        let oldest = Seq(0).index();
        let pages = |seq: Seq| {
            let rows = lruvec.generations(Time::ZERO);
            rows.iter().find(|row| row.seq == seq.0).map(|row| row.anon_pages)
        };
        assert_eq!((lruvec.min_seq(Kind::Anon), pages(Seq(0)), pages(Seq(3))), (Seq(0), Some(1), Some(0)));
        assert!(harness.open_generation());
        assert_eq!((lruvec.min_seq(Kind::Anon), lruvec.max_seq()), (Seq(1), Seq(4)));
        assert_eq!(harness.core.folios.flags(anon).load().generation(), Some(oldest));
        assert_eq!(
            lruvec.lock(&harness.core.folios).lists.lists.tail(list_in(0, oldest, Kind::Anon)),
            Some(anon)
        );
        assert_eq!((pages(Seq(1)), pages(Seq(4))), (Some(0), Some(1)));
        // With a swappiness that allows it, it would have been moved.
        assert!(Aging { swappiness: Swappiness::DEFAULT, ..harness.aging() }.open_generation());
        let anon = harness.add_anon();
        (0..3).for_each(|_| {
            assert!(Aging { swappiness: Swappiness::DEFAULT, ..harness.aging() }.open_generation())
        });
        assert_eq!(
            harness.core.folios.flags(anon).load().generation(),
            Some(lruvec.min_seq(Kind::Anon).index())
        );
    }

    /// [book: aging#checks]: "forced moves add to `protected[tier]`, except saturated folios".
    /// Making room closes the generation, so the averages hold the counts, halved.
    #[test]
    fn forced_moves_are_counted_as_protected() {
        let mut harness = Harness::new(100, 1);
        // Two pages accessed once, four twice, six three times, eight hot ones, ten saturated ones.
        let mut pages = 0..;
        for (count, accesses, hot) in
            [(2, 1, false), (4, 2, false), (6, 3, false), (8, 0, true), (10, 5, false)]
        {
            for page in pages.by_ref().take(count) {
                harness.bring_at([page], 4);
                (0..accesses).for_each(|_| harness.read(page));
                if hot {
                    harness.make_hot(page);
                }
            }
        }
        assert!(harness.open_generation());
        let totals =
            harness.memcg().lruvec.lock(&harness.core.folios).lists.averages[Kind::File as usize].total;
        assert_eq!(totals, [1, 2, 3, 4]);
    }

    /// [book: aging#new-generation]: "After 4096 folios, stop" and go on with the lock taken anew,
    /// until all are moved.
    #[test]
    fn making_room_for_a_large_generation_goes_on() {
        let mut harness = Harness::new(10_000, 1);
        harness.read_ahead(0..10_000);
        let kind = Kind::File;
        let folios = &harness.core.folios;
        let mut locked = harness.memcg().lruvec.lock(folios);
        assert!(!locked.make_room(&harness.host, kind, Swappiness::FILE_ONLY));
        assert_eq!(harness.memcg().lruvec.size(Seq(1).index(), kind), 4096);
        drop(locked);
        assert!(harness.open_generation());
        assert_eq!(harness.sizes(), [10_000, 0, 0, 0]);
    }

    /// [book: aging#checks]: "Two threads asking to age the same `seq`: `max_seq` grows by exactly
    /// 1".
    #[test]
    fn one_of_many_threads_ages() {
        let harness = Harness::new(100, 1);
        let core = &harness.core;
        for round in 0..50 {
            let seq = Seq(3 + round);
            let barrier = std::sync::Barrier::new(4);
            #[allow(clippy::disallowed_methods, reason = "a test is a host")]
            let opened: usize = std::thread::scope(|scope| {
                let age = || {
                    barrier.wait();
                    let (host, memcg) = (&QuietHost::default(), core.memcg(crate::MemcgId(1)));
                    let swappiness = Swappiness::FILE_ONLY;
                    let aging = Aging { core, host, memcg, seq, swappiness, force: false };
                    usize::from(aging.open_generation())
                };
                [(); 4].map(|()| scope.spawn(age)).into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!((opened, harness.max_seq()), (1, seq.0 + 1));
        }
    }

    /// [book: aging#checks]: "With g = 4, no automatic aging happens"; with 3 it should, with 2 it
    /// must.
    #[test]
    fn aging_is_due_by_generations() {
        let harness = Harness::new(100, 1);
        let lruvec = &harness.memcg().lruvec;
        let due = |min_file| {
            let _locked = lruvec.lock(&harness.core.folios);
            lruvec.window.close_until(Kind::File, Seq(min_file));
            {
                let now = Mechanisms::default();
                (lruvec.aging_due(Swappiness::FILE_ONLY, now), lruvec.aging_due(Swappiness::DEFAULT, now))
            }
        };
        assert_eq!(due(0), (Due::No, Due::No));
        assert_eq!(due(1), (Due::Should, Due::No), "anonymous pages still have four");
        assert_eq!(due(2), (Due::Must, Due::No));
    }

    /// [book: aging#oldest-generation]: "a type may not go down to 2 generations while the other
    /// still has 4".
    #[test]
    fn a_kind_waits_for_the_other() {
        let mut harness = Harness::new(100, 31);
        harness.bring_at([0], 2);
        harness.add_anon();
        let drop_empty = |swappiness| {
            let mut locked = harness.memcg().lruvec.lock(&harness.core.folios);
            locked.drop_empty_generations(Swappiness::new(swappiness).unwrap())
        };
        assert!(drop_empty(60));
        assert_eq!(harness.min_seq(), 1, "three generations are left, not two");
        assert!(drop_empty(0));
        assert_eq!(harness.min_seq(), 2);
        assert_eq!(harness.memcg().lruvec.min_seq(Kind::Anon), Seq(0));
    }

    /// [book: aging#checks]: "First walk: forced; it fills the filter of `seq + 1`; the filter of
    /// `seq` stays missing"; "A table with 64 of 512 young entries is dense (64×8 ≥ 512); with 63
    /// it is not".
    #[test]
    fn the_first_walk_is_forced_and_fills_the_next_filter() {
        let mut harness = Harness::new(1000, 1);
        (0..64).chain(512..512 + 63).for_each(|page| harness.load(page));
        // Forced: includes tables that were not used since.
        let leaves = &harness.core.leaves;
        assert!([0, 1].map(|table| harness.mapping.clear_young_table(leaves, table)) == [true; 2]);
        assert!(harness.age());
        assert!((0..64).chain(512..512 + 63).all(|page| !harness.is_young(page)));
        let filters = &harness.memcg().lruvec.filters;
        let contains = |seq, table| filters.may_contain(Seq(seq), harness.mapping.id(), table);
        assert_eq!((contains(4, 0), contains(4, 1)), (true, false));
        assert!((0..100).all(|table| contains(3, table)), "a missing filter passes every table");
    }

    /// [book: aging#checks]: "A table made dense in the walk producing s+1 is visited again in the
    /// walk producing s+2"; a sparse table is not, but its upper-level bit is cleared all the same
    /// ([book: aging#page-table-walk]).
    #[test]
    fn a_dense_table_is_visited_again() {
        let mut harness = Harness::new(1000, 1);
        let all = || (0..64).chain(512..512 + 63);
        all().for_each(|page| harness.load(page));
        assert!(harness.age());
        all().for_each(|page| harness.load(page));
        harness.task.space.mark_ran();
        assert!(harness.age());
        assert!((0..64).all(|page| !harness.is_young(page)));
        assert!((512..512 + 63).all(|page| harness.is_young(page)));
        assert!(harness.mapping.touch_table(&harness.core.leaves, 512), "its bit was cleared");
    }

    /// [book: aging#checks]: "Two agings inside one effort of the only task: the second reads no
    /// accessed bit and leaves both filters as they are".
    #[test]
    fn the_second_aging_of_an_effort_reads_nothing() {
        let mut harness = Harness::new(1000, 1);
        (0..64).for_each(|page| harness.load(page));
        assert!(harness.age());
        let filters = || harness.memcg().lruvec.filters.bytes();
        assert_eq!(filters(), 4096, "one of two exists");
        // The forced first walk left the table's own bit, so no later access marks the task as
        // having run.
        assert!(!harness.mapping.touch_table(&harness.core.leaves, 0));
        let slot = harness.mapping.slot(&harness.core.leaves, 0).unwrap();
        slot.touch(slot.load().folio().unwrap());
        assert!(harness.age());
        assert!(harness.is_young(0));
        assert_eq!((harness.max_seq(), filters()), (5, 4096));
        // The next effort reads the bit; the filter of the skipped walk stays missing.
        harness.task.space.mark_ran();
        assert!(harness.age());
        assert!(!harness.is_young(0));
        assert_eq!(filters(), 4096);
    }

    /// [book: aging#thrash-prevention]: "`birth[gen]` is set when a generation becomes the
    /// youngest".
    #[test]
    fn generations_know_when_they_were_opened() {
        let harness = Harness::new(100, 1);
        harness.host.advance(std::time::Duration::from_millis(70));
        assert!(harness.open_generation());
        harness.host.advance(std::time::Duration::from_millis(30));
        let ages: Vec<u64> =
            harness.memcg().lruvec.generations(harness.host.now()).iter().map(|row| row.age_ms).collect();
        assert_eq!(ages, [100, 100, 100, 30]);
        assert_eq!(harness.stat(Counter::Aged), 1);
    }

    /// [book: aging#checks]: "6.12: g = 3, young 40 %, old 30 % of pages → no aging; young 51 % →
    /// aging; old 24 % → aging"; "With g = 4, no automatic aging happens in any version".
    #[test]
    fn aging_was_due_by_sizes() {
        let due = |min, old, middle, young| {
            let lruvec = Lruvec::new(crate::MemcgId(0), Time::ZERO);
            let folios = crate::folio::FolioTable::new(1);
            let mut locked = lruvec.lock(&folios);
            lruvec.window.close_until(Kind::File, Seq(min));
            for (seq, pages) in [(1, old), (2, middle), (3, young)] {
                locked.resize(Seq(seq).index(), Kind::File, pages);
            }
            drop(locked);
            let due = |preset| lruvec.aging_due(Swappiness::FILE_ONLY, Mechanisms::preset(preset));
            [Preset::Linux612, Preset::Linux71].map(due)
        };
        assert_eq!(due(1, 30, 30, 40), [Due::No, Due::Should]);
        assert_eq!(due(1, 25, 24, 51), [Due::Should, Due::Should]);
        assert_eq!(due(1, 24, 36, 40), [Due::Should, Due::Should]);
        assert_eq!(due(0, 24, 36, 40), [Due::No, Due::No]);
        assert_eq!(due(2, 0, 60, 40), [Due::Must, Due::Must]);
    }

    /// [book: aging#when-to-age]: before the rework, the window of anonymous pages decides if they
    /// are evictable.
    #[test]
    fn before_the_rework_the_anon_window_decides() {
        let harness = Harness::new(100, 1);
        let lruvec = &harness.memcg().lruvec;
        lruvec.window.close_until(Kind::Anon, Seq(1));
        let of = |swappiness, preset| {
            lruvec
                .evictable_generations(Swappiness::new(swappiness).unwrap(), Mechanisms::preset(preset))
                .unwrap()
        };
        assert_eq!((of(60, Preset::Linux612), of(60, Preset::Linux71)), (3, 4));
        assert_eq!((of(0, Preset::Linux612), of(0, Preset::Linux71)), (4, 4));
    }

    /// [book: aging#new-generation] step 3: "Before the rework: no accounting"; by step 2,
    /// `workingset` is cleared with the count.
    #[test]
    fn forced_moves_were_not_counted() {
        let mut harness = Harness::with_preset(Preset::Linux612, 100, 1);
        harness.read_ahead([0]);
        (0..3).for_each(|_| harness.read(0));
        assert!(harness.open_generation());
        assert!(harness.open_generation());
        assert_eq!((harness.seq_of(0), harness.rfw(0)), (Some(2), (false, 0, false)));
        let lruvec = harness.memcg().lruvec.lock(&harness.core.folios);
        assert_eq!(lruvec.lists.averages[Kind::File as usize].total, [0; 4]);
    }

    /// [book: aging#oldest-generation], before the rework: "file advances only together with anon".
    #[test]
    fn files_waited_for_anonymous_pages() {
        let mut harness = Harness::with_preset(Preset::Linux612, 100, 31);
        harness.add_anon();
        assert!(Aging { swappiness: Swappiness::DEFAULT, ..harness.aging() }.open_generation());
        harness.bring_at([0], 2);
        let mut locked = harness.memcg().lruvec.lock(&harness.core.folios);
        let min = |locked: &LockedLruvec<'_>| Kind::ALL.map(|kind| locked.lruvec.min_seq(kind).0);
        assert!(locked.drop_empty_generations(Swappiness::DEFAULT));
        assert_eq!(
            min(&locked),
            [2, 2],
            "the anonymous page is in the third generation, the other in the fifth"
        );
        assert!(locked.drop_empty_generations(Swappiness::FILE_ONLY));
        assert_eq!(min(&locked), [2, 3]);
    }
}
