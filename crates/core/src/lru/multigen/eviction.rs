//! Eviction: sorts the oldest generation, and isolates folios that neither accesses nor tiers
//! protect.
//!
//! Source: [book: eviction].
//!
//! # Locking
//!
//! A scan of at most 64 folios holds the lruvec lock. The isolated folios are examined without it,
//! in [`crate::pageout`].

use super::lists::list_in;
use crate::event::Sorted;
use crate::folio::{Climb, Kind, Tier};
use crate::host::Host;
use crate::lru::lists::{AHEAD, NEXT, TAIL};
use crate::lru::{Isolated, LockedLruvec, MIN_GENERATIONS, Swappiness};
use crate::mechanism::Switch;

/// Isolated or skipped pages at which a scan stops.
const STOP_PAGES: usize = 64;

impl LockedLruvec<'_> {
    /// Scans up to `request` pages of the kind that suffers less, and isolates at most 64 of them,
    /// and at most `most`, into an empty `batch`.
    ///
    /// Without `exact_scan`, empty generations are dropped only afterwards, and a scan that
    /// isolates nothing counts only if it used up the request.
    pub(crate) fn isolate(
        &mut self,
        host: &impl Host,
        request: u64,
        most: u64,
        swappiness: Swappiness,
        batch: &mut Isolated,
    ) {
        let mechanisms = self.folios.mechanisms();
        let exact = mechanisms.is_on(Switch::ExactScan);
        let most = if exact { most.min(STOP_PAGES as u64) as usize } else { STOP_PAGES };
        if exact {
            self.drop_empty_generations(swappiness);
        }
        let (mut kind, mut limit) = self.first_kind(swappiness);
        for _ in swappiness.evictable() {
            let before = batch.scanned;
            let limit = limit.take().unwrap_or_else(|| self.tier_limit(kind));
            self.scan(host, kind, limit, (request, most), batch);
            let scanned = batch.scanned - before;
            if !batch.folios.is_empty() || !exact && scanned == request {
                break;
            }
            if !exact {
                batch.scanned = 0;
            }
            // Where pages were scanned but not isolated: the same kind again.
            let stays = scanned > 0 && mechanisms.is_on(Switch::SameType);
            if !stays && swappiness.evicts(kind.other()) {
                kind = kind.other();
            }
        }
        if exact {
            if batch.scanned > 0 {
                self.drop_empty_generations(swappiness);
            }
            return;
        }
        // A drop counts as a page scanned, so that the caller goes on. With two generations left,
        // it must stop.
        batch.scanned += u64::from(self.drop_empty_generations(swappiness));
        let left = self.lruvec.evictable_generations(swappiness, mechanisms);
        if left.is_some_and(|left| left <= MIN_GENERATIONS) {
            batch.scanned = 0;
        }
    }

    /// Scans the oldest generation of one kind from the tail, the highest zone first
    /// ([book: eviction#scan-order]). Tiers above `limit` are protected.
    fn scan(
        &mut self,
        host: &impl Host,
        kind: Kind,
        limit: Tier,
        (request, most): (u64, usize),
        batch: &mut Isolated,
    ) {
        let window = &self.lruvec.window;
        if window.generations(kind) == MIN_GENERATIONS {
            return;
        }
        batch.kind = Some(kind);
        let (oldest, before) = (window.min(kind).index(), batch.scanned);
        for zone in self.folios.zones() {
            let left = request - (batch.scanned - before);
            if left == 0 || batch.folios.len() >= most {
                break;
            }
            let (list, bounds) = (list_in(zone, oldest, kind), (left, most));
            match self.looks_ahead(list, false) {
                AHEAD => self.scan_list::<AHEAD>(host, list, kind, limit, bounds, batch),
                NEXT => self.scan_list::<NEXT>(host, list, kind, limit, bounds, batch),
                _ => self.scan_list::<TAIL>(host, list, kind, limit, bounds, batch),
            }
        }
    }

    fn scan_list<const LOOK: u8>(
        &mut self,
        host: &impl Host,
        list: usize,
        kind: Kind,
        limit: Tier,
        (request, most): (u64, usize),
        batch: &mut Isolated,
    ) {
        let oldest = self.lruvec.window.min(kind).index();
        let (mut next, mut left) = (None, request);
        while left > 0 && batch.folios.len() < most && batch.skipped.len() < STOP_PAGES {
            let Some(folio) = next.or_else(|| self.lists.lists.tail(list)) else { break };
            next = self.look_ahead::<LOOK>(host, folio);
            left -= 1;
            batch.scanned += 1;
            if self.sort(folio, kind, oldest, limit, batch) {
                batch.sorted += 1;
                continue;
            }
            if self.isolate_folio(host, folio) {
                batch.folios.push(folio);
            } else {
                // It is being freed, or another thread has it: set aside until the scan is over.
                self.lists.lists.remove(self.folios, folio);
                batch.skipped.push(folio);
            }
        }
        for &folio in &batch.skipped {
            self.lists.lists.push_head(self.folios, list, folio);
        }
        batch.skipped.clear();
    }

    /// Moves a folio to the generation that it belongs to, if not this one
    /// ([book: eviction#sorting]). `false`: it may be isolated.
    fn sort(
        &mut self,
        folio: crate::folio::FolioId,
        kind: Kind,
        oldest: crate::folio::GenIndex,
        limit: Tier,
        batch: &mut Isolated,
    ) -> bool {
        let flags = &self.folios.flags(folio);
        let now = flags.load();
        if now.mlocked() {
            // It passes to isolation; put-back sends it to the unevictable list.
            return false;
        }
        if let Some(label) = now.generation()
            && label != oldest
        {
            self.relist(folio, self.generation_list(folio, label, kind), true);
            batch.note_sorted(folio, label, Sorted::Relabelled);
            return true;
        }
        let mechanisms = self.folios.mechanisms();
        let (tier, saturated) = (now.tier(mechanisms), now.saturated(mechanisms));
        let protected = tier > limit || saturated;
        let dirty = now.dirty() && kind == Kind::File;
        let waits = !mechanisms.is_on(Switch::IsolateDirty) && (dirty || now.writeback());
        if !protected && !waits {
            return false;
        }
        if !protected && dirty {
            batch.dirty += 1;
            batch.unqueued_dirty += u64::from(!now.writeback());
        }
        match flags.climb(oldest, !protected, mechanisms) {
            Climb::Moved(next) => {
                self.resize(oldest, kind, -1);
                self.resize(next, kind, 1);
                let why = match (protected, saturated) {
                    (false, _) => Sorted::Dirty,
                    (true, true) => Sorted::Saturated,
                    (true, false) => Sorted::Protected(tier),
                };
                batch.note_sorted(folio, next, why);
                // Before the rework, a protected folio is evicted next in its new generation; since
                // then, last.
                let at_head = !protected || mechanisms.workingset_rework();
                self.relist(folio, self.generation_list(folio, next, kind), at_head);
                batch.protected += u64::from(protected);
                // Before the rework, saturated folios were counted as protected, too.
                if protected && (!saturated || !mechanisms.workingset_rework()) {
                    self.lists.averages[kind as usize].protected[usize::from(tier)] += 1;
                }
            }
            Climb::Relabelled(label) => {
                self.relist(folio, self.generation_list(folio, label, kind), true);
                batch.note_sorted(folio, label, Sorted::Relabelled);
            }
        }
        true
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Preset;
    use crate::Zone;
    use crate::folio::GenIndex;
    use crate::lru::Seq;
    use crate::reclaim::Watermarks;
    use crate::sync::Ordering::Relaxed;
    use crate::testing::Harness;

    /// [book: eviction#checks]: "A saturated folio moves from the oldest to the second oldest
    /// generation, at the head, and `protected` does not change".
    #[test]
    fn saturated_folios_are_promoted_lazily() {
        let mut harness = Harness::new(100, 1);
        harness.bring_at([10, 11], 3);
        harness.read_ahead([0, 1, 2]);
        (0..5).for_each(|_| harness.read(0));
        let batch = harness.isolate(2);
        assert_eq!((batch.scanned, batch.sorted, harness.pages(&batch)), (2, 1, vec![1]));
        assert_eq!((harness.list(0), harness.list(1)), (vec![2], vec![10, 11, 0]));
        assert_eq!((harness.rfw(0), harness.seq_of(0)), ((false, 0, true), Some(1)));
        assert_eq!(harness.feedback(), [[0; 4]; 3]);
        assert_eq!(harness.sizes(), [1, 3, 0, 0]);
    }

    /// [book: eviction#scan-order]: "A scan begins at the highest zone that the request can use and
    /// goes down to zone 0."
    #[test]
    fn a_generations_pages_in_lower_zones_are_scanned_last() {
        let mut options = Harness::multigen_options(10);
        options.watermarks = Watermarks { min: 0, low: 2, high: 2 };
        let watermarks = Watermarks { min: 0, low: 0, high: 0 };
        options.lower_zones = vec![Zone { pages: 3, watermarks, spared_pages: 0, pcp_sizes: None }];
        let mut harness = Harness::with_options(options, 100);
        // Pages 5 to 7 are in the lower zone, since only two others are free then.
        harness.read_ahead(0..10);
        harness.drain();
        let zone = |page| harness.core.folios.zone_of(harness.folio(page));
        assert_eq!((0..10).filter(|&page| zone(page) == 1).collect::<Vec<u32>>(), [5, 6, 7]);
        harness.core.validate().unwrap();
        let pages = |request| harness.pages(&harness.isolate(request));
        assert_eq!(pages(4), [0, 1, 2, 3]);
        assert_eq!(pages(4), [4, 8, 9, 5], "one scan visits both");
        assert_eq!(pages(64), [6, 7]);
        assert!(pages(64).is_empty());
    }

    /// [book: eviction#checks]: "A tier-2 folio above the limit moves likewise and `protected[2]`
    /// grows by its pages".
    #[test]
    fn a_tier_that_refaults_is_protected() {
        let mut harness = Harness::new(100, 1);
        harness.bring_at([10], 3);
        harness.read_ahead([0, 1]);
        (0..3).for_each(|_| harness.read(0));
        let lruvec = &harness.memcg().lruvec;
        let file = Kind::File as usize;
        lruvec.refaulted[file][2].store(200, Relaxed);
        lruvec.evicted[file][2].store(200, Relaxed);
        let batch = harness.isolate(1);
        assert_eq!((batch.scanned, batch.sorted, batch.protected), (1, 1, 1));
        assert_eq!((harness.list(0), harness.list(1)), (vec![1], vec![10, 0]));
        assert_eq!(harness.feedback()[2], [0, 0, 1, 0]);
        assert_eq!(harness.rfw(0), (false, 0, false));
    }

    /// [book: eviction#checks]: "All refault counters < 64: tier limit 3; a folio with tier 3 via W
    /// but not saturated is isolated".
    #[test]
    fn hot_is_not_enough_to_stay() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead([0]);
        harness.make_hot(0);
        (0..3).for_each(|_| harness.read(0));
        assert_eq!(harness.flags(0).tier(harness.core.mechanisms()), 3);
        assert_eq!(harness.pages(&harness.isolate(64)), [0]);
    }

    /// [book: eviction#checks]: "A re-labelled folio met at the tail moves to the head of its
    /// label's list; sizes do not change again". [book: folios#checks]: "After promotion by walk,
    /// the folio is still physically on its old list while the size counters already show the
    /// youngest generation". [book: aging#checks]: "a generation holding only re-labelled folios is
    /// not dropped until they are sorted away".
    #[test]
    fn relabelled_folios_are_sorted_when_they_are_met() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead([0, 1]);
        harness.promote(0);
        harness.promote(1);
        assert_eq!((harness.list(0), harness.list(3)), (vec![0, 1], vec![]));
        assert_eq!(harness.sizes(), [0, 0, 0, 2]);
        assert_eq!(harness.memcg().lruvec.active_pages(Kind::File), 2);
        let batch = harness.isolate(1);
        assert_eq!((batch.scanned, batch.sorted, harness.min_seq()), (1, 1, 0));
        assert_eq!((harness.list(0), harness.list(3)), (vec![1], vec![0]));
        let batch = harness.isolate(64);
        assert_eq!((batch.scanned, batch.sorted, batch.folios.len()), (1, 1, 0));
        assert_eq!(harness.list(3), [0, 1]);
        assert_eq!(harness.min_seq(), 2, "then the empty generations are dropped");
        assert_eq!(harness.sizes(), [0, 2]);
    }

    /// [book: aging#checks]: "Empty oldest generations are dropped before scanning".
    #[test]
    fn empty_generations_are_dropped_before_a_scan() {
        let mut harness = Harness::new(100, 1);
        harness.bring_at([0], 3);
        assert_eq!((harness.min_seq(), harness.pages(&harness.isolate(1))), (0, vec![0]));
        assert_eq!(harness.min_seq(), 2, "dropped once more after the scan");
        assert_eq!(harness.isolate(1).scanned, 0, "two generations are left, and nothing may be taken");
    }

    /// [book: eviction#checks]: "Scan of 64 unprotected clean pages isolates exactly 64 and stops",
    /// even if more are requested.
    #[test]
    fn a_scan_stops_at_64() {
        let mut harness = Harness::new(300, 1);
        harness.read_ahead(0..200);
        for (request, from) in [(64, 0), (4096, 64)] {
            let batch = harness.isolate(request);
            assert_eq!((batch.scanned, batch.sorted), (64, 0));
            assert!(harness.pages(&batch).into_iter().eq(from..from + 64));
        }
        assert_eq!(harness.isolate(7).folios.len(), 7, "a smaller request is met exactly");
    }

    /// [book: eviction#checks]: "A failing isolation leaves the folio in the oldest generation, at
    /// the head side".
    #[test]
    fn folios_that_cannot_be_isolated_are_set_aside() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead(0..4);
        let flags = &harness.core.folios.flags(harness.folio(0));
        assert!(flags.clear_lru(), "another thread has it");
        let batch = harness.isolate(2);
        assert_eq!((batch.scanned, batch.sorted, harness.pages(&batch)), (2, 0, vec![1]));
        assert_eq!(harness.list(0), [2, 3, 0]);
        assert_eq!(harness.seq_of(0), Some(0));
    }

    /// [book: eviction#batch-limits]: "stop the current zone when skipped ≥ 64 pages".
    #[test]
    fn a_scan_that_only_skips_stops_at_64() {
        let mut harness = Harness::new(300, 1);
        harness.read_ahead(0..200);
        for page in 0..200 {
            harness.core.folios.flags(harness.folio(page)).clear_lru();
        }
        let batch = harness.isolate(4096);
        assert_eq!((batch.scanned, batch.folios.len(), batch.skipped.len()), (64, 0, 0));
        assert_eq!(harness.list(0).len(), 200);
    }

    /// [book: eviction#sorting] row 1: an unevictable folio "passes to isolation and is culled
    /// later by put-back".
    #[test]
    fn sorting_passes_unevictable_folios_on() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead([0]);
        (0..5).for_each(|_| harness.read(0));
        harness.core.set_mlocked(harness.folio(0), true);
        assert_eq!(harness.pages(&harness.isolate(1)), [0], "although it is saturated");
    }

    /// An isolation with both kinds allowed; file pages come first, as nothing refaulted.
    fn isolate_both(harness: &Harness, request: u64) -> Isolated {
        let mut batch = Isolated::default();
        harness.memcg().lruvec.lock(&harness.core.folios).isolate(
            &harness.host,
            request,
            u64::MAX,
            Swappiness::DEFAULT,
            &mut batch,
        );
        batch
    }

    /// [book: eviction#checks]: "7.2: `scanned > 0, isolated = 0` in the first type → the second
    /// round uses the same type".
    #[test]
    fn a_kind_that_was_only_sorted_is_scanned_again() {
        let mut harness = Harness::new(100, 1);
        harness.add_anon();
        harness.read_ahead(0..4);
        harness.promote(0);
        harness.promote(1);
        let batch = isolate_both(&harness, 2);
        assert_eq!((batch.kind, batch.scanned, batch.sorted), (Some(Kind::File), 4, 2));
        assert_eq!(harness.pages(&batch), [2, 3]);
    }

    /// [book: eviction#type-choice]: 7.2 switches to the other kind when "nothing was *scanned*".
    #[test]
    fn a_kind_that_has_nothing_gives_way_to_the_other() {
        let harness = Harness::new(100, 1);
        let anon = harness.add_anon();
        let batch = isolate_both(&harness, 2);
        assert_eq!((batch.kind, batch.folios), (Some(Kind::Anon), vec![anon]));
    }

    /// [book: eviction#sorting]: "Moved up one generation" re-checks the label, which a walk may
    /// change at any time.
    #[test]
    fn a_walk_may_win_against_sorting() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead([0]);
        harness.promote(0);
        let before = harness.flags(0);
        let flags = &harness.core.folios.flags(harness.folio(0));
        assert_eq!(
            flags.climb(GenIndex::new(0), false, harness.core.mechanisms()),
            Climb::Relabelled(Seq(3).index())
        );
        assert_eq!(flags.load(), before);
    }

    /// [book: eviction#checks]: "7.1: it moves to the head of the second oldest generation at sort
    /// time with `reclaim` set and is never isolated"; 7.2 and late updates of 6.12 isolate it
    /// ([book: versions#version-names]).
    #[test]
    fn dirty_folios_were_sorted_away() {
        let isolated = |preset| {
            let mut harness = Harness::with_preset(preset, 100, 31);
            harness.read_ahead([10]);
            harness.make_hot(10);
            harness.drain();
            harness.read_ahead([0, 1, 2]);
            harness.drain();
            harness.write(0);
            if preset == Preset::Linux612 {
                // All pages were placed in the second oldest generation; the empty oldest must go
                // first.
                harness.isolate(0);
            }
            let batch = harness.isolate(2);
            (harness.pages(&batch), batch.sorted, batch.dirty, harness.flags(0).reclaim(), harness.list(1))
        };
        assert_eq!(isolated(Preset::Linux71), (vec![1], 1, 1, true, vec![10, 0]));
        assert_eq!(isolated(Preset::Linux72), (vec![0, 1], 0, 0, false, vec![10]));
        assert_eq!(isolated(Preset::Linux612), (vec![10, 0], 0, 0, false, vec![1, 2]));
    }

    /// [book: eviction#sorting] row 4, before the rework: "to the **tail**", and "everything is
    /// counted".
    #[test]
    fn protected_folios_were_the_next() {
        let mut harness = Harness::with_preset(Preset::Linux612, 100, 1);
        harness.read_ahead([0, 1]);
        assert!(harness.open_generation());
        harness.bring_at([10], 4);
        assert_eq!((harness.list(1), harness.list(2)), (vec![0, 1], vec![10]));
        (0..5).for_each(|_| harness.read(0));
        let batch = harness.isolate(2);
        assert_eq!((batch.sorted, harness.pages(&batch)), (1, vec![1]));
        assert_eq!((harness.list(2), harness.rfw(0)), (vec![0, 10], (false, 0, false)));
    }

    /// [book: eviction#type-choice], before the reclaim loop: the scan switches to the other kind
    /// "when the scan result was 0", as it is if nothing was isolated, unless "the folio quota ran
    /// out".
    #[test]
    fn a_kind_that_was_only_sorted_gave_way() {
        let isolated = |request| {
            let mut harness = Harness::with_preset(Preset::Linux71, 100, 1);
            let anon = harness.add_anon();
            harness.read_ahead(0..2);
            harness.promote(0);
            harness.promote(1);
            let batch = isolate_both(&harness, request);
            (batch.kind, batch.folios == [anon], batch.sorted)
        };
        assert_eq!(isolated(4), (Some(Kind::Anon), true, 2));
        assert_eq!(isolated(2), (Some(Kind::File), false, 2));
    }

    /// [book: eviction#eviction-step], before the reclaim loop: generations are dropped after
    /// isolation only, which counts as one page; and "0 if afterwards only 2 generations are left".
    #[test]
    fn dropping_generations_counted_as_looking() {
        let mut harness = Harness::with_preset(Preset::Linux71, 100, 31);
        harness.read_ahead([0, 1]);
        harness.make_hot(0);
        harness.make_hot(1);
        harness.drain();
        let batch = harness.isolate(1);
        assert_eq!((batch.scanned, batch.folios.len(), harness.min_seq()), (1, 0, 1), "the oldest was empty");
        assert_eq!(harness.isolate(1).scanned, 1);
        assert_eq!((harness.isolate(1).scanned, harness.min_seq()), (0, 2));
    }
}
