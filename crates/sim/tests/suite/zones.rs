//! A machine with two zones, and when its tasks wait for background reclaim.

use mglru_core::reclaim::Watermarks;
use mglru_core::{Counter, Lru, Mechanisms, PcpSizes, Preset, Zone};
use mglru_sim::{Access, Machine, Report, Simulator};
use std::time::Duration;

/// 512 MiB less ballast: a zone of 5,000 pages, and perhaps the 3,840 pages of a zone for old
/// devices, with the marks of Linux 6.12. A task reads `pages` pages in a row, twice.
fn read_through(lru: Lru, with_lower: bool, pages: u64) -> Report {
    let watermarks = Watermarks { min: 657, low: 821, high: 985 };
    let sizes = |managed_pages, low| Some(PcpSizes::for_machine(managed_pages, low, 2));
    let lower = Zone {
        pages: 3840,
        watermarks: Watermarks { min: 22, low: 27, high: 32 },
        spared_pages: 437,
        pcp_sizes: sizes(3840, 27),
    };
    let machine = Machine {
        watermarks,
        pcp_sizes: sizes(114_838, watermarks.low),
        lower_zones: if with_lower { vec![lower] } else { Vec::new() },
        cpus: 2,
        mechanisms: Mechanisms::preset(Preset::Linux612).with_lru(lru),
        access_time: Duration::from_micros(40),
        batch_time: Duration::from_micros(5),
        scan_time: Duration::from_micros(2),
        ..Machine::new(if with_lower { 8840 } else { 5000 })
    };
    let mut simulator = Simulator::new(&machine).unwrap();
    simulator.check_every(1000);
    simulator.add_job(0, (0..2 * pages).map(move |page| Access::read(page % pages).into()));
    simulator.run().unwrap()
}

/// [book: reclaim-loop#zones]: "So a small zone decides when kswapd stops." [book:
/// writeback#throttling]: "Tasks also stop before direct reclaim when free pages are below half of
/// the sum of `min`".
#[test]
fn a_small_zone_ends_runs_early_and_spares_tasks_the_wait() {
    let counts = |lru, with_lower| {
        let total = read_through(lru, with_lower, 20_000).total();
        let count = |counter| total.counters.get(counter);
        (count(Counter::Pageoutrun), count(Counter::PgscanDirectThrottle), count(Counter::PgstealKswapd))
    };
    let (runs, waits, stolen) = counts(Lru::Classic, false);
    assert!(waits > 0 && stolen / runs > 200, "{waits} waits, {runs} runs for {stolen} pages");
    let (runs, waits, stolen) = counts(Lru::Classic, true);
    assert!(waits == 0 && stolen / runs < 150, "{waits} waits, {runs} runs for {stolen} pages");
    let (runs, waits, stolen) = counts(Lru::MultiGen, true);
    assert!(waits == 0 && stolen / runs > 200, "{waits} waits, {runs} runs for {stolen} pages");
}
