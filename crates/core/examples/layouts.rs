//! What the layout of an lruvec is worth: threads reclaim, each in a tenant of its own, all below the same ancestors, whose clocks and
//! locks they share.
//!
//! ```text
//! for layout in natural lock_apart clock_apart; do
//!   RUSTFLAGS="--cfg lruvec_layout=\"$layout\"" cargo build --release -p mglru-core --example layouts --target-dir target/$layout
//! done        # then run the three in turns: target/$layout/release/examples/layouts [THREADS]
//! ```
//!
//! Prints the layout's size of an lruvec, pages reclaimed per second (median of twelve), and how many processors the threads had.

#[path = "../tests/common/mod.rs"]
mod common;

use common::QuietHost;
use mglru_core::lru::{Lruvec, Refresh};
use mglru_core::memcg::MemcgId;
use mglru_core::reclaim::Watermarks;
use mglru_core::*;
use std::time::{Duration, Instant};

const TENANT_PAGES: u32 = 16_384;
const DEPTH: u32 = 4;
const RUNS: usize = 12;
const TIME: Duration = Duration::from_millis(200);

/// Reads pages at random, each twice, out of twice as many as fit.
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
                    core.publish(&host, &mapping, folio.expect("nobody else inserts"));
                };
                core.accessed(&host, || cpu, &hit);
            }
        }
    }
    reclaimed() - before
}

fn main() {
    let threads = std::env::args().nth(1).map_or(2, |threads| threads.parse().expect("a number of threads"));
    let mut options = Options::new((threads as u32 + 1) * TENANT_PAGES);
    options.watermarks = Watermarks { min: 0, low: 0, high: 0 };
    options.mechanisms = Mechanisms::preset(Preset::Linux72).with_lru(Lru::Classic);
    options.cpus = threads;
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
    let mut rates: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    rates.sort_by(f64::total_cmp);
    let [low, median, high] = [RUNS / 4, RUNS / 2, 3 * RUNS / 4].map(|at| rates[at] / 1e3);
    println!(
        "lruvec of {} bytes: {median:.0} k pages/s (quartiles {low:.0} to {high:.0})",
        size_of::<Lruvec>()
    );
}
