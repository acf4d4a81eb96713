//! Look-around: eviction found a young page-table entry, so it scans the 64 entries around it.
//!
//! Reaching one entry through the reverse map costs more than reading its neighbours, and pages
//! that are neighbours in a table are often used together.
//!
//! Source: [book: aging#look-around], [book: access#young-neighbours].

use super::walk::{DENSITY, counts_for};
use crate::event::FoundBy;
use crate::folio::{FolioId, Neighbour};
use crate::host::Host;
use crate::lru::{Context, Queue, Scan, emit};
use crate::mapping::TABLE_PAGES;
use crate::memcg::Memcg;

/// Entries scanned.
const WINDOW: u64 = 64;

/// The scanned part of the page table over `index`: 32 entries to either side, or the first or
/// last 64.
fn window(index: u64, mapped_pages: u64) -> std::ops::Range<u64> {
    let table_pages = u64::from(TABLE_PAGES);
    let start = index / table_pages * table_pages;
    let end = (start + table_pages).min(mapped_pages.max(index + 1));
    if end - start <= WINDOW {
        start..end
    } else if index - start < WINDOW / 2 {
        start..start + WINDOW
    } else if end - index < WINDOW / 2 {
        end - WINDOW..end
    } else {
        index - WINDOW / 2..index + WINDOW / 2
    }
}

/// Tests and clears the accessed bits of an isolated folio's entry and of those around it.
/// `true`: the folio was young, in a mapping whose accesses count.
///
/// While the effort owns a walk context, neighbours are relabelled at once; otherwise they are
/// queued for activation.
pub(crate) fn look_around(cx: &mut Context<'_, impl Host>, memcg: &Memcg, folio: FolioId) -> bool {
    let (core, host) = (cx.core, cx.host);
    let Scan { last_mapping, walk, .. } = &mut *cx.scan;
    let Some(mapping) = last_mapping.get(core, core.folios.mapping_of(folio)) else { return false };
    let index = core.folios.index(folio);
    let young = mapping.slot(&core.leaves, index).is_some_and(|slot| slot.clear_accessed(folio));
    if !young {
        return false;
    }
    memcg.stat.found_young(mapping.kind(), 1);
    let window = window(u64::from(index), mapping.mapped_pages());
    if window.end - window.start <= 1 || !mapping.has_recency() {
        return mapping.has_recency();
    }
    let Some(locked) = mapping.try_lock(&core.leaves, index) else { return true };
    let entries = window.end - window.start;
    let max = memcg.lruvec.window.max();
    let mechanisms = core.mechanisms();
    // The second part of the LULESH fix: the first version of the rework noted twice what a
    // walk notes once.
    let twice = mechanisms.workingset_rework() && !mechanisms.lulesh_fix();
    let mut count = 1;
    // Activated after the mapping's lock is released: draining a batch may release the last page
    // of a removed memcg, and with it shadows in this mapping, too.
    let (mut activated, mut activations) = ([FolioId(0); WINDOW as usize], 0);
    for (other, slot) in locked.young_entries(window) {
        if !counts_for(core, memcg, other) {
            continue;
        }
        slot.clear_accessed(other);
        count += 1;
        let flags = &core.folios.flags(other);
        if let Some(batch) = walk {
            let change = flags.found_young_by_walk(max.index(), mechanisms);
            if let Neighbour::Relabelled(_, label) = change {
                emit::promoted(host, memcg, other, label, FoundBy::LookAround);
            }
            batch.note(mapping.kind(), change);
            if !twice {
                continue;
            }
        }
        if flags.found_young_as_neighbour(max.index(), mechanisms) {
            let label = flags.load().generation();
            if label.is_some_and(|label| label != max.index()) && flags.try_get_queued() {
                activated[activations] = other;
                activations += 1;
            }
        }
    }
    drop(locked);
    memcg.stat.found_young(mapping.kind(), u64::from(count) - 1);
    for &other in &activated[..activations] {
        core.enqueue_held(host, cx.orders.cpu, Queue::Activate, other);
    }
    if u64::from(count * DENSITY) >= entries {
        memcg.lruvec.filters.insert(max, mapping.id(), index / TABLE_PAGES);
    }
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::lru::Seq;
    use crate::lru::multigen::window::WalkBatch;
    use crate::memcg::Counter;
    use crate::testing::Harness;
    use crate::{Mechanisms, Preset, Switch};

    /// [book: aging#look-around], step 3.
    #[test]
    fn the_window_stays_in_the_table_and_the_mapping() {
        let far = 1 << 20;
        assert_eq!(window(0, far), 0..64);
        assert_eq!(window(31, far), 0..64);
        assert_eq!(window(32, far), 0..64);
        assert_eq!(window(100, far), 68..132);
        assert_eq!(window(511, far), 448..512);
        assert_eq!(window(481, far), 448..512);
        assert_eq!(window(480, far), 448..512);
        assert_eq!(window(512, far), 512..576);
        assert_eq!(window(90, 100), 36..100);
        assert_eq!(window(10, 40), 0..40);
        assert_eq!(window(0, 1), 0..1);
    }

    /// Looks around a page, with the walk context that `walk` has.
    fn look_around(harness: &Harness, page: u32, walk: &mut Option<WalkBatch>) -> bool {
        let (orders, mut scan) = (harness.orders(1), Scan { walk: walk.take(), ..Scan::default() });
        let cx = &mut Context::new(&harness.core, &harness.host, &orders, &mut scan);
        let young = super::look_around(cx, harness.memcg(), harness.folio(page));
        *walk = scan.walk;
        young
    }

    /// [book: access#checks]: "a mapped folio still in the add batch keeps its accessed bit through
    /// a walk and a look-around".
    #[test]
    fn queued_folios_keep_their_accessed_bits() {
        let mut harness = Harness::new(100, 31);
        (0..31).for_each(|page| harness.load(page));
        harness.load(31);
        assert!(harness.flags(30).generation().is_some() && harness.flags(31).generation().is_none());
        assert!(look_around(&harness, 0, &mut None));
        let young = || (0..32).filter(|&page| harness.is_young(page)).collect::<Vec<_>>();
        assert_eq!(young(), [31]);
        assert!(harness.age());
        assert_eq!(young(), [31]);
        assert_eq!(harness.rfw(31), (true, 0, false), "as the fault left it");
    }

    /// [book: access#young-neighbours]: without a walk context, neighbours seen before are queued
    /// unless they are youngest.
    #[test]
    fn neighbours_are_queued_the_second_time() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead(0..4);
        harness.promote(3);
        let activated = |harness: &Harness| {
            harness.drain();
            harness.stat(Counter::Pgactivate)
        };
        (0..4).for_each(|page| harness.load(page));
        assert!(look_around(&harness, 0, &mut None));
        assert_eq!(
            (harness.rfw(0), harness.rfw(1)),
            ((false, 0, false), (true, 0, false)),
            "the first is not changed"
        );
        assert_eq!(activated(&harness), 0, "3 was hot, but is already the youngest");
        assert_eq!(harness.rfw(3), (true, 0, true));
        (0..4).for_each(|page| harness.load(page));
        assert!(look_around(&harness, 0, &mut None));
        assert_eq!(activated(&harness), 2);
        assert_eq!((harness.rfw(1), harness.seq_of(1)), ((true, 1, false), Some(2)));
        assert!(!look_around(&harness, 0, &mut None), "nothing is young any more");
    }

    /// [book: access#young-neighbours]: with a walk context, neighbours are relabelled at once.
    #[test]
    fn a_walk_context_relabels_neighbours() {
        let mut harness = Harness::new(100, 31);
        (0..4).for_each(|page| harness.load(page));
        harness.drain();
        let mut walk = Some(WalkBatch::default());
        assert!(look_around(&harness, 2, &mut walk));
        assert_eq!([0, 1, 2, 3].map(|page| harness.seq_of(page)), [Some(3), Some(3), Some(1), Some(3)]);
        assert_eq!(harness.sizes(), [0, 4, 0, 0], "sizes follow later");
        walk.unwrap().flush(&harness.core, harness.memcg().id());
        assert_eq!(harness.sizes(), [0, 1, 0, 3]);
        assert_eq!(harness.list(1), [0, 1, 2, 3]);
        harness.core.validate().unwrap();
    }

    /// [book: aging#bloom-filters]: a table that the look-around found dense while `max_seq = s` is
    /// walked when `s + 1` is produced.
    #[test]
    fn dense_windows_are_walked_next() {
        let mut harness = Harness::new(1000, 1);
        let filters = |harness: &Harness, table| {
            harness.memcg().lruvec.filters.may_contain(Seq(3), harness.mapping.id(), table)
        };
        // Eight young entries of 64 in the first table, seven in the second.
        (0..8).chain(512..519).for_each(|page| harness.load(page));
        assert!(look_around(&harness, 0, &mut None));
        assert!(filters(&harness, 1), "the filter is missing, and the found table is lost");
        harness.memcg().lruvec.filters.clear(Seq(3), |_| ());
        (0..8).for_each(|page| harness.load(page));
        assert!(look_around(&harness, 0, &mut None) && look_around(&harness, 512, &mut None));
        assert_eq!((filters(&harness, 0), filters(&harness, 1)), (true, false));
    }

    /// [book: access#checks]: "before the rework it loses the bit and gets R=1", in a look-around
    /// with or without a walk context, and in a walk; on a list it is activated, or relabelled at
    /// once.
    #[test]
    fn queued_folios_lost_their_accessed_bits() {
        for walk in [false, true] {
            let mut harness = Harness::with_preset(Preset::Linux612, 100, 31);
            harness.bring_at([0, 1], 4);
            harness.load(2);
            (0..2).for_each(|page| harness.load(page));
            assert!(look_around(&harness, 0, &mut walk.then(WalkBatch::default)));
            assert!((0..3).all(|page| !harness.is_young(page)));
            assert_eq!((harness.rfw(2), harness.seq_of(2)), ((true, 0, false), None));
            assert_eq!(harness.seq_of(1), Some(if walk { 3 } else { 1 }));
            harness.drain();
            assert_eq!((harness.seq_of(1), harness.stat(Counter::Pgactivate)), (Some(3), u64::from(!walk)));
        }
        let mut harness = Harness::with_preset(Preset::Linux612, 100, 31);
        harness.load(0);
        assert!(harness.age());
        assert_eq!((harness.is_young(0), harness.rfw(0)), (false, (true, 0, false)));
    }

    /// [book: published-experiments#workingset], the second part of the LULESH fix: "in the
    /// look-around without walk context, the step is applied only when the folio was not already
    /// handled by the walk-context branch". Without it, one look counts twice.
    #[test]
    fn a_walk_context_notes_a_neighbour_once() {
        let noted = |without: &[Switch]| {
            let mechanisms = Mechanisms::compose(Preset::Linux71, &[], without).unwrap();
            let mut harness = Harness::with_mechanisms(mechanisms, 100, 1);
            harness.read_ahead([0, 1]);
            (0..2).for_each(|page| harness.load(page));
            assert!(look_around(&harness, 0, &mut Some(WalkBatch::default())));
            harness.drain();
            (harness.rfw(1), harness.seq_of(1), harness.stat(Counter::Pgactivate))
        };
        assert_eq!(noted(&[]), ((true, 0, false), Some(0), 0));
        assert_eq!(noted(&[Switch::LuleshFix]), ((false, 0, true), Some(3), 1));
    }
}
