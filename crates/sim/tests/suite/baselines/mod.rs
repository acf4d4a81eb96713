//! Compares the baselines with naive models on random traces, and with libCacheSim's numbers on the
//! shared traces.

mod miss_ratio;
mod naive;
mod reference;

use mglru_sim::baseline::{Progress, replay};
use mglru_sim::{Access, Baseline, Operation};
use mglru_workload::Random;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Longest trace replayed in tests, in accesses; `examples/baselines.rs` replays all.
const ACCESSES_MAX: usize = 300_000;
/// Longest trace for models that search vectors.
const ACCESSES_MAX_NAIVE: usize = 60_000;
/// Number of hashes tried for W-TinyLFU's filter.
const HASHES: u64 = 4;

/// A mix of loops, scans, hot pages and random accesses to so many times 60 pages.
fn trace(seed: u64, times: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    let mut trace = Vec::new();
    while trace.len() < 3000 * times as usize {
        let (first, pages) = (random.below(30 * times), 1 + random.below(25 * times));
        let kind = random.below(4);
        for n in 0..random.below(150 * times) {
            let page = match kind {
                0 => n % pages,
                1 => n,
                2 => random.below(pages).min(random.below(pages)),
                _ => random.below(60 * times),
            };
            trace.push(((first + page) % (60 * times)) as u32);
        }
    }
    trace
}

fn operations(trace: &[u32]) -> impl Iterator<Item = Operation> {
    trace.iter().map(|&page| Access::read(u64::from(page)).into())
}

fn agrees(baseline: Baseline, memory: usize, trace: &[u32], seed: u64) {
    let mut model = naive::policy(baseline, memory, trace);
    let misses = trace.iter().filter(|&&page| !model.touch(page)).count() as u64;
    let mut source = operations(trace);
    let report = replay(baseline, memory as u64, 0, &mut source, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.total.misses, misses, "{baseline:?}, seed {seed}, {memory} pages");
}

#[test]
fn policies_agree_with_naive_models() {
    for seed in 0..60 {
        let trace = trace(seed, 1);
        for memory in [1, 2, 3, 4, 7, 10, 13, 20, 31, 45, 60] {
            Baseline::ALL.into_iter().for_each(|baseline| agrees(baseline, memory, &trace, seed));
        }
    }
}

/// From 200 pages on, a hundredth of memory is more than one page: the queue of LIRS, and the
/// window of W-TinyLFU.
#[test]
fn shares_of_memory_agree_with_naive_models() {
    for seed in 0..4 {
        let trace = trace(seed, 8);
        for memory in [199, 200, 317, 450] {
            for baseline in [Baseline::TwoQ, Baseline::Lirs, Baseline::WTinyLfu, Baseline::S3Fifo] {
                agrees(baseline, memory, &trace, seed);
            }
        }
    }
}

#[test]
fn a_replay_ends_when_its_caller_says_so() {
    let accesses_until = |baseline, is_last: fn(Progress) -> bool| {
        let mut source = (0..200_000).map(|at| Operation::from(Access::read(at % 1000)));
        let mut end =
            |progress| if is_last(progress) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        replay(baseline, 100, 0, &mut source, &mut end).unwrap().total.accesses
    };
    for baseline in Baseline::ALL {
        assert_eq!(accesses_until(baseline, |_| false), 200_000, "{baseline:?}");
        assert_eq!(accesses_until(baseline, |_| true), 0, "{baseline:?}");
    }
    // The optimum reads all of the source and finds the next accesses before it replays.
    let linked = |progress| matches!(progress, Progress::Linked { accesses, .. } if accesses > 100_000);
    assert_eq!(accesses_until(Baseline::Opt, linked), 0);
    let accesses = accesses_until(Baseline::Opt, |progress| matches!(progress, Progress::Replayed { .. }));
    assert!((1..200_000).contains(&accesses), "{accesses}");
}

#[test]
fn no_policy_misses_less_than_the_optimum() {
    for seed in 100..120 {
        let trace = trace(seed, 1);
        let misses = |baseline, memory| {
            let mut source = operations(&trace);
            replay(baseline, memory, 0, &mut source, &mut |_| ControlFlow::Continue(())).unwrap().total.misses
        };
        for memory in [1, 5, 17, 40] {
            let opt = misses(Baseline::Opt, memory);
            for baseline in Baseline::ALL {
                assert!(misses(baseline, memory) >= opt, "{baseline:?}, seed {seed}, {memory} pages");
            }
        }
        let mut distinct = trace.clone();
        distinct.sort_unstable();
        distinct.dedup();
        for baseline in Baseline::ALL {
            let enough = misses(baseline, distinct.len() as u64);
            assert_eq!(enough, distinct.len() as u64, "{baseline:?}, seed {seed}, memory for all");
        }
    }
}

/// The directory `traces` below `MGLRU_SHARED` (default: the directory `shared` beside the
/// repository). `None`, with a message, if it is missing.
fn shared_traces() -> Option<PathBuf> {
    let shared = std::env::var_os("MGLRU_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let path = shared.join("traces");
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: there is no {}", path.display());
    None
}

#[test]
fn miss_ratios_are_those_of_libcachesim() {
    let Some(folder) = shared_traces() else { return };
    let rows = miss_ratio::compare(&folder, ACCESSES_MAX, |_| {});
    let mut compared = 0;
    for row in &rows {
        let tolerance = match row.baseline {
            // libCacheSim's algorithm differs: see `their_rules_explain_the_differences`.
            Baseline::WTinyLfu => continue,
            Baseline::Lirs => 0.005,
            _ => 0.0,
        };
        assert!(row.difference().abs() <= tolerance, "{row:?}");
        compared += 1;
    }
    assert!(compared > 300, "{compared} rows");
}

/// Models of LIRS and W-TinyLFU by libCacheSim's rules. LIRS reproduces its miss ratios.
/// W-TinyLFU's depend on the hashes of its crowded filter, so libCacheSim's must be within the
/// range of other hashes.
#[test]
fn their_rules_explain_the_differences() {
    let Some(folder) = shared_traces() else { return };
    let mut compared = [0, 0];
    for (trace, wanted) in miss_ratio::wanted(&folder) {
        let accesses = miss_ratio::accesses(&folder, &trace);
        if accesses.len() > ACCESSES_MAX {
            continue;
        }
        let pages = miss_ratio::positions(&accesses);
        for (memory, baseline, reference) in wanted {
            if baseline == Baseline::Lirs && pages.len() <= ACCESSES_MAX_NAIVE {
                let ratio = miss_ratio::miss_ratio(reference::Lirs::new(memory as usize), &pages);
                assert_eq!(miss_ratio::difference(ratio, reference), 0.0, "{trace}, {memory} pages: {ratio}");
                compared[0] += 1;
            }
            if baseline == Baseline::WTinyLfu {
                let (least, most) = miss_ratio::their_w_tiny_lfu(memory, &pages, HASHES);
                println!("{trace}, {memory} pages: {least:.4} to {most:.4}, theirs {reference}");
                // A few are slightly outside of this range.
                assert!((0.98 * least..=1.02 * most).contains(&reference), "{trace}, {memory} pages");
                compared[1] += 1;
            }
        }
    }
    assert!(compared[0] > 15 && compared[1] > 35, "{compared:?} rows");
}

/// `docs/w-tinylfu.csv` has a row for each size of each trace. Its last column, our miss ratio,
/// must be exact.
#[test]
fn w_tiny_lfu_gives_the_documented_miss_ratios() {
    let Some(folder) = shared_traces() else { return };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/w-tinylfu.csv");
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 79);
    let mut compared = 0;
    for (trace, wanted) in miss_ratio::wanted(&folder) {
        let accesses = miss_ratio::accesses(&folder, &trace);
        for (memory, ..) in wanted.into_iter().filter(|(_, baseline, _)| *baseline == Baseline::WTinyLfu) {
            let mut source = accesses.iter().copied();
            let ours = replay(Baseline::WTinyLfu, memory, 0, &mut source, &mut |_| ControlFlow::Continue(()))
                .unwrap()
                .total;
            let row =
                rows.iter().find(|row| row[0] == trace && row[1] == memory.to_string()).expect("its row");
            assert_eq!(format!("{:.4}", ours.miss_ratio()), row[5], "{trace}, {memory} pages");
            compared += 1;
        }
    }
    assert_eq!(compared, rows.len());
}
