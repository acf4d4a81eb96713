//! Effects of a failing device on its users, and of timed operations during reclaim.

use mglru_core::{Counter, Mechanisms, Preset, Time};
use mglru_sim::{Access, Machine, Operation, Report, Simulator, Tenant, Trouble, Writes};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A writer fills a tenant of 64 pages three times, while the device stalls for the first minute.
fn write_while_it_stands_still(preset: Preset) -> Report {
    let machine = Machine {
        tenants: vec![Tenant::new("t", 64)],
        mechanisms: Mechanisms::preset(preset),
        trouble: Trouble { stall: Some((Time::ZERO, MINUTE)), ..Trouble::default() },
        memcg_dirty_limits: false,
        writes: Writes::Overwrite,
        batch_time: Duration::from_micros(50),
        ..Machine::new(1024)
    };
    let mut simulator = Simulator::new(&machine).unwrap();
    let writes = (0..192).map(|page| Operation::from(Access::write(page)));
    simulator.add_job(0, writes.chain([Operation::Sync { page: 0 }]));
    simulator.check_every(101);
    let report = simulator.run().unwrap();
    simulator.finish().unwrap();
    report
}

/// As long as the device owes a completion, the default preset waits for it, where Linux 7.1 kills.
#[test]
fn a_device_that_stands_still_is_waited_for() {
    let report = write_while_it_stands_still(Preset::Default);
    assert_eq!(report.total().counts.out_of_memory, 0);
    assert!(report.now > Time::ZERO + MINUTE, "{:?}", report.now);
    assert!(write_while_it_stands_still(Preset::Linux71).total().counts.out_of_memory > 0);
}

/// A walk takes time in proportion to the entries it reads. The counts stay the same, because no
/// other job runs.
#[test]
fn walks_take_time() {
    let run = |walk_time| {
        let mut machine = Machine { walk_time, ..Machine::ideal(1000, 31) };
        machine.mechanisms = machine.mechanisms.with_lru(mglru_core::Lru::MultiGen);
        let mut simulator = Simulator::new(&machine).unwrap();
        let pages = (0_u64..8000).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % 1500);
        simulator.add_job(0, pages.map(|page| Operation::from(Access::load(page))));
        simulator.run().unwrap()
    };
    let (none, some) = (run(Duration::ZERO), run(Duration::from_micros(1)));
    let counters = |report: &Report| report.total().counters;
    let aged = counters(&none).get(Counter::Aged);
    assert_eq!(counters(&none), counters(&some));
    assert!(aged > 2, "{aged} generations");
    let took = some.now.since(none.now);
    assert!(took >= Duration::from_micros(512) * (aged as u32 - 1), "{took:?} for {aged} generations");
}
