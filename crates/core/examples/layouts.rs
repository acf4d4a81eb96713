//! Compares layouts of an lruvec: threads reclaim, each in a tenant of its own, under common
//! ancestors whose clocks and locks they share.
//!
//! `make layouts` builds this program once per layout (`--cfg lruvec_layout="…"`); one of the
//! builds then runs all of them in turns:
//!
//! ```text
//! layouts [THREADS]
//!     one layout: its name, size, pages reclaimed per second, and processors that the threads had
//! layouts compare ROUNDS THREADS PROGRAM…
//!     all of them: medians over the rounds, quartiles, and each round relative to the first program
//! ```

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "an example is a host"
)]

#[path = "../tests/suite/common/mod.rs"]
mod common;

use common::QuietHost;
use mglru_core::lru::Lruvec;
use mglru_core::memcg::MemcgId;
use mglru_core::reclaim::Watermarks;
use mglru_core::*;
use std::process::Command;
use std::time::{Duration, Instant};

const LAYOUT: &str = if cfg!(lruvec_layout = "lock_apart") {
    "lock_apart"
} else if cfg!(lruvec_layout = "lock_behind") {
    "lock_behind"
} else if cfg!(lruvec_layout = "clock_apart") {
    "clock_apart"
} else {
    "natural"
};
const TENANT_PAGES: u32 = 16_384;
const DEPTH: u32 = 4;
const RUNS: usize = 12;
const TIME: Duration = Duration::from_millis(200);

/// Reads random pages, each twice, out of twice as many as fit. Returns the pages reclaimed.
fn read(core: &Core, tenant: MemcgId, cpu: usize, time: Duration) -> u64 {
    let (task, mapping, host) =
        (core.new_task(tenant, cpu), core.open_mapping(Kind::File), QuietHost::default());
    let reclaimed = || core.memcg(tenant).stat().get(Counter::PgstealFile);
    let (before, began) = (reclaimed(), Instant::now());
    let mut state = cpu as u64 + 1;
    while began.elapsed() < time {
        for _ in 0..256 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let page = (state >> 33) as u32 % (2 * TENANT_PAGES);
            for _ in 0..2 {
                let hit = loop {
                    match core.lookup(&mapping, page) {
                        Lookup::Hit(hit) => break hit,
                        Lookup::Pending(_) => unreachable!("the thread has its own file"),
                        Lookup::Miss => {}
                    }
                    let mut charging = Charging::new(tenant, cpu);
                    let new = loop {
                        match charging.step(core, &host) {
                            ChargeStep::Charged(new) => break new,
                            ChargeStep::More | ChargeStep::Wait(_) => {}
                            ChargeStep::OutOfMemory(report) => panic!("all pages are clean: {report:?}"),
                        }
                    };
                    let folio = core.insert(&host, &task, &mapping, page, new, Arrival::default());
                    core.publish(&host, &mapping, folio.expect("no other thread inserts"));
                };
                core.accessed(&host, || cpu, &hit);
            }
        }
    }
    reclaimed() - before
}

/// Measures one layout: bytes of an lruvec, thousands of pages per second (of all threads), and
/// processors used.
fn measure(threads: usize) -> (usize, f64, f64) {
    let mut options = Options::new((threads as u32 + 1) * TENANT_PAGES);
    options.watermarks = Watermarks { min: 0, low: 0, high: 0 };
    options.mechanisms = Mechanisms::preset(Preset::Linux72).with_lru(Lru::Classic);
    options.cpus = threads;
    options.pcp_batch_frames = PCP_BATCH_FRAMES;
    options.statistics_refresh = Refresh { first: TIME / 10, period: TIME / 10 };
    let core = &Core::new(options, Time::ZERO);
    let add = |parent, name: String, max| core.add_child(parent, &name, max, Time::ZERO).unwrap().id();
    let parent = (1..DEPTH).fold(MemcgId::ROOT, |parent, level| add(parent, format!("a{level}"), UNLIMITED));
    let tenants: Vec<MemcgId> =
        (0..threads).map(|n| add(parent, format!("t{n}"), u64::from(TENANT_PAGES))).collect();
    let run = || {
        let began = Instant::now();
        let reclaimed: u64 = std::thread::scope(|scope| {
            let start = |(cpu, &tenant)| scope.spawn(move || read(core, tenant, cpu, TIME));
            let running: Vec<_> = tenants.iter().enumerate().map(start).collect();
            running.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        reclaimed as f64 / began.elapsed().as_secs_f64()
    };
    run();
    let (began, ticks) = (Instant::now(), ticks());
    let rates = (0..RUNS).map(|_| run()).collect();
    let processors = (self::ticks() - ticks) as f64 / 100.0 / began.elapsed().as_secs_f64();
    (size_of::<Lruvec>(), quartiles(rates)[1] / 1e3, processors)
}

/// CPU time of all threads of the process, in hundredths of a second; 0 where unknown.
fn ticks() -> u64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = text.rsplit(')').next().unwrap_or_default();
    after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() * quarter / 4).min(values.len() - 1)])
}

/// Runs each program once per round, with so many threads.
fn compare(rounds: usize, threads: &str, programs: &[String]) {
    let mut all: Vec<(String, String, Vec<[f64; 2]>)> = Vec::new();
    all.resize_with(programs.len(), Default::default);
    for round in 0..rounds {
        for at in 0..programs.len() {
            let number = if round.is_multiple_of(2) { at } else { programs.len() - 1 - at };
            let output = Command::new(&programs[number]).arg(threads).output().expect("a layout's program");
            let text = String::from_utf8_lossy(&output.stdout);
            let words: Vec<&str> = text.split_whitespace().collect();
            let [layout, bytes, rate, processors] = words[..] else { panic!("it printed: {text}") };
            let of = |word: &str| word.parse::<f64>().expect("a number");
            (all[number].0, all[number].1) = (layout.to_owned(), bytes.to_owned());
            all[number].2.push([of(rate), of(processors)]);
        }
    }
    println!(
        "{:12} {:>6} {:>16} {:>15} {:>11}  against the first, round by round",
        "layout", "bytes", "k pages/s", "quartiles", "processors"
    );
    for (layout, bytes, runs) in &all {
        let of = |which: usize| runs.iter().map(|run| run[which]).collect::<Vec<f64>>();
        let [low, median, high] = quartiles(of(0));
        let changes: Vec<f64> =
            runs.iter().zip(&all[0].2).map(|(run, first)| 100.0 * (run[0] / first[0] - 1.0)).collect();
        let ups = changes.iter().filter(|&&change| change > 0.0).count();
        let [from, change, to] = quartiles(changes);
        let against = format!("{change:+.1} % ({from:+.1} to {to:+.1}), {ups} of {rounds} faster");
        println!(
            "{layout:12} {bytes:>6} {median:>16.0} {:>15} {:>11.2}  {against}",
            format!("{low:.0} to {high:.0}"),
            quartiles(of(1))[1]
        );
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, rounds, threads, programs @ ..] = &words[..]
        && mode == "compare"
    {
        return compare(rounds.parse().expect("a number of rounds"), threads, programs);
    }
    let threads = words.first().map_or(2, |threads| threads.parse().expect("a number of threads"));
    let (bytes, rate, processors) = measure(threads);
    println!("{LAYOUT} {bytes} {rate:.1} {processors:.2}");
}
