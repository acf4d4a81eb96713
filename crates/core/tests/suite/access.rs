//! Effects of accesses on lists, and places of new pages: the checklists of [book: overview],
//! [book: folios] and [book: access], as far as they are visible from outside.

use crate::common::Harness;
use mglru_core::reclaim::EffortKind;
use mglru_core::*;

/// [book: overview#checks]: "`max_seq` is one number per lruvec; `min_seq` is two numbers": pages
/// read before their batch drained leave the oldest generation of files empty, and only that one is
/// closed.
#[test]
fn each_kind_has_its_own_oldest_generation() {
    let mut harness = Harness::new(1000, 31);
    harness.read_all(0..1000);
    harness.effort(EffortKind::Limit, 32);
    let lruvec = harness.memcg().lruvec();
    assert_eq!(lruvec.max_seq(), lru::Seq(3));
    assert_eq!((lruvec.min_seq(Kind::Anon), lruvec.min_seq(Kind::File)), (lru::Seq(0), lru::Seq(1)));
}

/// [book: folios#checks]: "The reported active size equals the sum over the two youngest
/// generations".
#[test]
fn active_pages_are_the_two_youngest_generations() {
    let mut harness = Harness::new(4096, 31);
    for round in 0..6 {
        harness.read_all((0..2000).chain(round * 3000 + 2000..round * 3000 + 5000));
        (0..200).for_each(|page| harness.load(page));
        let lruvec = harness.memcg().lruvec();
        let rows = lruvec.generations(harness.host.now());
        let of = |rows: &[lru::GenerationRow]| rows.iter().map(|row| row.file_pages).sum::<u64>();
        let (old, young) = rows.split_at(rows.len() - 2);
        assert_eq!(
            (lruvec.inactive_pages(Kind::File), lruvec.active_pages(Kind::File)),
            (of(old), of(young))
        );
    }
    assert!(
        harness.max_seq() > 3 && harness.memcg().lruvec().active_pages(Kind::File) > 0,
        "something moved"
    );
}

/// [book: folios#checks]: "Batch of 31 single-page adds": nothing is on a list before the 31st.
#[test]
fn new_pages_are_listed_31_at_a_time() {
    let mut harness = Harness::new(100, 31);
    for (pages, listed) in [(30, 0), (31, 31), (61, 31), (62, 62)] {
        harness.read_all(0..pages);
        assert_eq!(harness.sizes().iter().sum::<u64>(), listed, "after {pages}");
        assert_eq!(harness.flags(pages - 1).generation().is_some(), u64::from(pages) == listed);
    }
    // One lock hold per batch: 31, 31, and one page. The sizes above are read without it.
    let mut harness = Harness::new(100, 31);
    for (pages, batches) in [(30, 0), (31, 1), (61, 1), (62, 2)] {
        harness.read_all(0..pages);
        assert_eq!(harness.memcg().lruvec().lock_counts().taken, batches, "after {pages}");
    }
}

/// [book: access#checks]: "7.2: with 4 generations, a folio read by fd once *before* its add batch
/// drains goes to the second oldest generation; read-ahead-only goes to the oldest"; "Read-ahead
/// alone leaves R=0".
#[test]
fn pages_that_were_read_start_higher_than_those_read_ahead() {
    let mut harness = Harness::new(100, 31);
    harness.read(0);
    harness.read_ahead([1]);
    harness.drain();
    harness.read(1);
    assert_eq!((harness.seq_of(0), harness.seq_of(1)), (Some(1), Some(0)), "a later read moves nothing");
    harness.read_ahead([2]);
    harness.drain();
    assert_eq!(harness.rfw(2), (false, 0, false));
}

/// [book: access#checks]: "7.2: fault-in places a file folio in `max_seq − 2` with 4 generations;
/// R=1".
#[test]
fn faulted_in_pages_start_in_the_second_oldest_generation() {
    let mut harness = Harness::new(100, 31);
    harness.load(0);
    harness.drain();
    assert_eq!((harness.seq_of(0), harness.rfw(0), harness.min_seq()), (Some(1), (true, 0, false), 0));
}

/// [book: access#fault-placement]: faults in a mapping without recency do not promote a page.
#[test]
fn advice_takes_the_merit_of_faults_away() {
    let mut harness = Harness::new(100, 31);
    harness.mapping.set_recency(false);
    harness.load(0);
    harness.drain();
    assert_eq!((harness.seq_of(0), harness.rfw(0)), (Some(0), (false, 0, false)));
}

/// [book: access#checks]: "Reading the same page from two open files alternately records one access
/// per read": the core counts each reported access, and distinguishes up to five ("after the
/// rework, W is set by the 5th").
#[test]
fn every_recorded_access_counts() {
    let mut harness = Harness::new(100, 31);
    let mut seen = Vec::new();
    for _ in 0..6 {
        harness.read(0);
        let flags = harness.flags(0);
        let now = harness.core.options().mechanisms;
        seen.push((flags.nrefs(now), flags.tier(now), flags.workingset()));
    }
    let expected = [(1, 0, false), (2, 1, false), (3, 2, false), (4, 2, false), (4, 3, true), (4, 3, true)];
    assert_eq!(seen, expected);
}

/// [book: access#descriptor-accesses]: accesses of uncached requests are never counted.
#[test]
fn uncached_reads_do_not_count() {
    let mut harness = Harness::new(100, 31);
    harness.bring(0, Arrival { dropbehind: true, ..Arrival::default() });
    harness.read(0);
    assert_eq!(harness.rfw(0), (false, 0, false));
}

/// [book: access#descriptor-accesses]: "unmapping a file folio from a page table whose entry is
/// young, in a mapping with recency": 1 access.
#[test]
fn unmapping_counts_young_entries() {
    for (recency, expected) in [(true, true), (false, false)] {
        let mut harness = Harness::new(100, 31);
        harness.read_ahead([0]);
        harness.load(0);
        harness.mapping.set_recency(recency);
        harness.core.unmap(&harness.host, &harness.task, &harness.mapping);
        assert_eq!(harness.flags(0).referenced(), expected);
        assert!(!harness.flags(0).mapped());
        assert_eq!(harness.stat(Counter::FileMapped), 0);
        // Not mapped any more: the second unmap counts no access.
        let before = harness.rfw(0);
        harness.core.unmap(&harness.host, &harness.task, &harness.mapping);
        assert_eq!(harness.rfw(0), before);
    }
}

/// [book: overview#checks]: "A page evicted by truncation, invalidation or inode removal leaves no
/// shadow"; [book: refaults#checks]: "Truncating a file removes pages and shadows; re-reading
/// causes no refault".
#[test]
fn truncation_leaves_no_shadows() {
    let mut harness = Harness::new(100, 31);
    harness.read_all(0..200);
    assert_eq!((harness.is_cached(0), harness.is_cached(199)), (false, true));
    assert!(harness.core.truncate(&harness.host, &harness.mapping, 0, 1 << 32).is_none());
    harness.drain();
    assert_eq!(
        (harness.mapping.folios(), harness.memcg().usage_pages(), harness.core.leaves_in_use()),
        (0, 0, 0)
    );
    harness.read_all([0, 199]);
    assert_eq!(harness.stat(Counter::WorkingsetRefaultFile), 0);
}

/// [book: overview#checks]: the same for advice that pages are not needed.
#[test]
fn invalidation_leaves_no_shadows() {
    let mut harness = Harness::new(100, 31);
    harness.read_all(0..50);
    harness.load(3);
    harness.write(4);
    harness.drain();
    harness.core.invalidate(&harness.host, &harness.mapping, 0, 1 << 32, 0);
    let left: Vec<u32> = (0..50).filter(|&page| harness.is_cached(page)).collect();
    assert_eq!(left, [3, 4], "mapped and dirty pages stay");
    harness.read_all(0..50);
    assert_eq!(harness.stat(Counter::WorkingsetRefaultFile), 0);
    harness.core.validate().unwrap();
}
