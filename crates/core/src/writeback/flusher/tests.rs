//! Tests of causes, turns and delays.

use super::*;
use crate::testing::Harness;
use crate::{FolioId, Kind, Options};
use std::sync::Arc;

/// A memcg of 1,000 pages on a node of 10,000.
fn clean() -> Harness {
    let mut harness = Harness::with_options(Options::new(10_000), 1000);
    harness.read_ahead(0..700);
    harness
}

/// The same after the first write, with these pages dirty.
fn dirty(pages: Range<u32>) -> Harness {
    let harness = clean();
    harness.write(699);
    let folios = harness.start_writeback();
    harness.end_writeback(folios);
    pages.for_each(|page| harness.write(page));
    harness
}

fn flusher(options: FlusherOptions) -> Flusher {
    Flusher::new(options, Time::ZERO)
}

/// Whether a flusher woken now writes.
fn writes(harness: &Harness) -> bool {
    let step = flusher(FlusherOptions::default()).step(&harness.core, &harness.host);
    matches!(step, FlusherStep::Write(_))
}

/// Carries out all orders as a host whose writes never end. Returns what was written, and the last
/// step.
fn run(harness: &Harness, flusher: &mut Flusher) -> (Vec<(u32, usize)>, Vec<FolioId>, FlusherStep) {
    let (mut runs, mut folios) = (Vec::new(), Vec::new());
    loop {
        let order = match flusher.step(&harness.core, &harness.host) {
            FlusherStep::Write(order) => order,
            other => return (runs, folios, other),
        };
        let mapping = harness.core.mapping(order.mapping).unwrap();
        let run = harness.core.start_writeback(&mapping, order.from, 1 << 32, order.pages_max as usize);
        let pages = run.map(|run| {
            let first = u64::from(run.first);
            runs.push((run.first, run.folios.len()));
            folios.extend(&run.folios);
            first..first + run.folios.len() as u64
        });
        if let Some(until) = flusher.wrote(&harness.core, &harness.host, pages) {
            return (runs, folios, FlusherStep::Sleep(until));
        }
    }
}

/// The documentation of `vm.dirty_background_ratio`, and where `balance_dirty_pages` starts the
/// flusher for a memcg.
#[test]
fn much_is_dirty_from_the_free_run_on() {
    // (dirty, under writeback) of 1,000 pages: 10 % in the background, free run to 15 %.
    let table = [
        (128, 0, false),
        (150, 0, false),
        (160, 0, true),
        (40, 120, false),
        (128, 22, false),
        (128, 40, true),
    ];
    for (dirty_pages, writeback_pages, expected) in table {
        let harness = dirty(300..300 + dirty_pages);
        (0..writeback_pages).for_each(|page| harness.write(page));
        let run = harness.core.start_writeback(&harness.mapping, 0, 300, 1000);
        assert_eq!(run.map_or(0, |run| run.folios.len()), writeback_pages as usize);
        // Noticed every 32 pages, or by a writer's check.
        let mut dirtier = super::super::Dirtier::default();
        harness.core.balance_dirty(&harness.host, harness.task.memcg, &mut dirtier);
        assert_eq!(writes(&harness), expected, "{dirty_pages} dirty, {writeback_pages} under writeback");
    }
}

/// The seconds at which a flusher writes that looks every second; another page gets dirty at second
/// `more_at`, if not 0.
fn seconds_of_writes(harness: &Harness, more_at: u32) -> Vec<u32> {
    let mut flusher = flusher(FlusherOptions::default());
    (1..24)
        .filter(|&second| {
            harness.host.advance(Duration::from_secs(1));
            if second == more_at {
                harness.write(0);
            }
            let (runs, folios, _) = run(harness, &mut flusher);
            harness.end_writeback(folios);
            !runs.is_empty()
        })
        .collect()
}

/// The tracepoints of Linux 6.12 (`writeback_start` with the reason "background"): above its
/// background threshold but below its free run, a memcg is written when the timer runs out.
#[test]
fn a_memcg_above_its_background_threshold_waits_for_the_timer() {
    for (dirty_pages, expected) in [(96, &[][..]), (128, &[5])] {
        let harness = dirty(300..300 + dirty_pages);
        assert_eq!(seconds_of_writes(&harness, 0), expected, "{dirty_pages} dirty");
    }
}

/// `wb_calc_thresh`: the share of a memcg is zero until one of its pages has been written. The
/// timer runs from the first dirty page.
#[test]
fn the_first_dirty_pages_of_a_memcg_are_written_when_the_timer_runs_out() {
    assert_eq!(seconds_of_writes(&clean(), 3), [8]);
    assert_eq!(seconds_of_writes(&dirty(0..0), 3), []);
}

/// Its dirty pages are its parent's, and written as such.
#[test]
fn a_removed_memcg_is_not_over_its_threshold() {
    let harness = dirty(300..500);
    let mut flusher = flusher(FlusherOptions::default());
    harness.core.remove_memcg(&harness.host, harness.task.memcg).unwrap();
    flusher.ask();
    let (runs, folios, _) = run(&harness, &mut flusher);
    harness.end_writeback(folios);
    assert_eq!(runs, [(300, 200)]);
    harness.write(0);
    assert_eq!(run(&harness, &mut flusher).0, [], "one page is dirty");
}

/// Of all memory, only dirty pages count.
#[test]
fn much_is_dirty_of_all_memory() {
    let mut options = Options::new(10_000);
    options.memcg_dirty_limits = false;
    let mut harness = Harness::with_options(options, 5000);
    harness.read_ahead(0..2000);
    (0..1000).for_each(|page| harness.write(page));
    assert!(!writes(&harness), "10 %");
    harness.write(1000);
    assert!(writes(&harness));
    let options = FlusherOptions { memory_permille: 1000, ..FlusherOptions::default() };
    let step = flusher(options).step(&harness.core, &harness.host);
    assert_eq!(
        step,
        FlusherStep::Sleep(Time::ZERO + Duration::from_secs(5)),
        "a machine that has more memory"
    );
}

#[test]
fn old_pages_are_written_at_the_next_period() {
    let harness = dirty(0..5);
    let mut flusher = flusher(FlusherOptions::default());
    assert_eq!(harness.core.dirty_since(&harness.mapping), Some(harness.host.now()));
    let dirtied = harness.host.now();
    for seconds in 1..35 {
        harness.host.advance(Duration::from_secs(1));
        let (runs, _, step) = run(&harness, &mut flusher);
        let age = harness.host.now().since(dirtied).as_secs();
        assert_eq!(runs.len(), usize::from(age == 30), "{seconds} s");
        let FlusherStep::Sleep(until) = step else { panic!("{step:?}") };
        assert!(until > harness.host.now() && until.since(harness.host.now()) <= Duration::from_secs(5));
    }
    assert_eq!(harness.core.dirty_since(&harness.mapping), None, "all is being written");
}

/// Files take turns of a portion each. Runs are no longer than a transfer. Pages that become dirty
/// behind the flusher are left for the next pass, as young ones.
#[test]
fn files_take_turns() {
    let harness = dirty(0..5);
    let other = harness.core.open_mapping(Kind::File);
    let task = &harness.task;
    for page in 0..5 {
        let new = harness.charge();
        let folio = harness.core.insert(&harness.host, task, &other, page, new, Default::default()).unwrap();
        harness.core.end_filling(&other, folio);
        assert!(harness.core.set_dirty(&harness.host, &other, folio));
        harness.core.unlock(&harness.host, folio);
    }
    let options = FlusherOptions { portion_pages: 3, transfer_pages: 2, ..FlusherOptions::default() };
    let mut flusher = flusher(options);
    flusher.ask();
    let mut seen = Vec::new();
    while let FlusherStep::Write(order) = flusher.step(&harness.core, &harness.host) {
        assert_eq!(order.pages_max, 2);
        let mapping = harness.core.mapping(order.mapping).unwrap();
        let run = harness.core.start_writeback(&mapping, order.from, 1 << 32, 2);
        let pages = run.map(|run| u64::from(run.first)..u64::from(run.first) + run.folios.len() as u64);
        seen.push((Arc::ptr_eq(&mapping, &other), pages.clone()));
        if seen.len() == 3 {
            // Behind it: a page of the first file whose first version is still under writeback.
            harness.write(0);
        }
        assert_eq!(flusher.wrote(&harness.core, &harness.host, pages), None);
    }
    let (first, second) = (false, true);
    let expected = [
        (first, Some(0..2)),
        (first, Some(2..4)),
        (second, Some(0..2)),
        (second, Some(2..4)),
        (first, Some(4..5)),
        (first, None),
        (second, Some(4..5)),
        (second, None),
    ];
    assert_eq!(seen, expected);
    assert_eq!(harness.core.dirty_since(&harness.mapping), Some(harness.host.now()));
    assert_eq!(harness.core.dirty_since(&other), None);
}

/// All dirty pages have an older version under writeback: the flusher waits for a write to end.
#[test]
fn pages_under_writeback_are_waited_for() {
    let harness = dirty(0..200);
    let mut flusher = flusher(FlusherOptions::default());
    let (runs, folios, step) = run(&harness, &mut flusher);
    assert_eq!((&runs[..], matches!(step, FlusherStep::Sleep(_))), (&[(0, 200)][..], true));
    (0..200).for_each(|page| harness.write(page));
    let (runs, _, step) = run(&harness, &mut flusher);
    assert_eq!((runs.len(), step), (0, FlusherStep::Sleep(Time::ZERO + Duration::from_secs(5))));
    harness.end_writeback(folios);
    assert_eq!(run(&harness, &mut flusher).0, [(0, 200)]);
}

/// Ends writes of pages of the harness's file with an error.
fn fail(harness: &Harness, folios: Vec<FolioId>) {
    for folio in folios {
        harness.core.end_writeback(&harness.host, &harness.mapping, folio, false, 0);
    }
}

/// A device that refuses at once is tried less and less often, and normally again once it works.
#[test]
fn failures_are_waited_out() {
    let harness = dirty(0..200);
    let mut flusher = flusher(FlusherOptions::default());
    let mut delays = Vec::new();
    while delays.len() < 9 {
        let (runs, folios, step) = run(&harness, &mut flusher);
        let FlusherStep::Sleep(until) = step else { panic!("{step:?}") };
        if !runs.is_empty() {
            assert_eq!(runs, [(0, 200)]);
            fail(&harness, folios);
            continue;
        }
        delays.push(until.since(harness.host.now()).as_millis());
        // Being woken earlier changes nothing.
        assert_eq!(flusher.step(&harness.core, &harness.host), FlusherStep::Sleep(until));
        harness.host.advance(until.since(harness.host.now()));
    }
    assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 100, 100]);
    let (_, folios, _) = run(&harness, &mut flusher);
    harness.end_writeback(folios);
    // It begins anew.
    (0..200).for_each(|page| harness.write(page));
    let (runs, folios, _) = run(&harness, &mut flusher);
    assert_eq!(runs, [(0, 200)]);
    fail(&harness, folios);
    let (_, _, step) = run(&harness, &mut flusher);
    assert_eq!(step, FlusherStep::Sleep(harness.host.now() + RETRY_MIN));
}

/// A file that a full disk refuses rests, and another one is written meanwhile.
#[test]
fn a_file_that_rests_holds_up_no_other() {
    let mut harness = dirty(0..200);
    let mut flusher = flusher(FlusherOptions::default());
    let (_, folios, _) = run(&harness, &mut flusher);
    fail(&harness, folios);
    let other = harness.core.open_mapping(Kind::File);
    let refused = std::mem::replace(&mut harness.mapping, other);
    harness.read_ahead(0..200);
    (0..200).for_each(|page| harness.write(page));
    let mut dirtier = super::super::Dirtier::default();
    harness.core.balance_dirty(&harness.host, harness.task.memcg, &mut dirtier);
    let (runs, folios, step) = run(&harness, &mut flusher);
    assert_eq!((runs, step), (vec![(0, 200)], FlusherStep::Sleep(harness.host.now() + RETRY_MIN)));
    harness.end_writeback(folios);
    assert_eq!(harness.core.dirty_pages(&refused), 200);
    harness.core.validate().unwrap();
}

/// A file that is not open any more is written whatever its age.
#[test]
fn wanted_files_are_due() {
    let harness = dirty(0..5);
    let mut flusher = flusher(FlusherOptions::default());
    assert!(run(&harness, &mut flusher).0.is_empty());
    flusher.want(harness.mapping.id());
    assert_eq!(run(&harness, &mut flusher).0, [(0, 5)]);
    harness.core.validate().unwrap();
}

/// A file for which the host would have to wait keeps its age, and is due in the next pass.
#[test]
fn a_file_that_was_passed_over_is_due_again() {
    let harness = dirty(0..10);
    let mut flusher = flusher(FlusherOptions::default());
    let since = harness.core.dirty_since(&harness.mapping);
    flusher.ask();
    let FlusherStep::Write(order) = flusher.step(&harness.core, &harness.host) else { panic!("asked") };
    assert!(flusher.passed_over(), "nothing was written");
    assert_eq!(harness.core.dirty_since(&harness.mapping), since);
    assert_eq!(flusher.step(&harness.core, &harness.host), FlusherStep::Write(order));
    assert_eq!(run(&harness, &mut flusher).0, [(0, 10)]);
    assert!(matches!(flusher.step(&harness.core, &harness.host), FlusherStep::Sleep(_)));
}

/// One file was passed over, and the dirty pages of the other have an older version under
/// writeback: the host is not to ask again at once.
#[test]
fn a_pass_without_writes_is_followed_by_a_wait() {
    let mut harness = dirty(0..10);
    let other = harness.core.open_mapping(Kind::File);
    let held_up = std::mem::replace(&mut harness.mapping, other).id();
    harness.read_ahead(0..10);
    (0..10).for_each(|page| harness.write(page));
    harness.start_writeback();
    (0..10).for_each(|page| harness.write(page));
    harness.host.advance(Duration::from_secs(1));
    let mut flusher = flusher(FlusherOptions::default());
    flusher.ask();
    let until = loop {
        let FlusherStep::Write(order) = flusher.step(&harness.core, &harness.host) else { panic!("asked") };
        if order.mapping == held_up {
            assert!(!flusher.passed_over(), "the other file is next");
        } else if let Some(until) = flusher.wrote(&harness.core, &harness.host, None) {
            break until;
        }
    };
    assert_eq!(until, harness.host.now() + FlusherOptions::default().period);
}
