//! Writers faster than the device are throttled to its bandwidth, evenly and without spinning.

use mglru_core::Time;
use mglru_sim::{
    Access, DeviceModel, Lane, Latency, Machine, Operation, Simulator, Source, SourceError, Tenant, Writes,
};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const LIMIT_PAGES: u64 = 16_384;
/// The device's bandwidth.
const PAGES_PER_SECOND: u64 = 5000;

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// A tenant on a device with this write bandwidth and latency. Only the tenant's own limits are
/// reached.
fn simulator(pages_per_second: u64, latency: Duration) -> Simulator {
    let write = Lane {
        latency: Latency::Fixed(latency),
        bytes_per_second: pages_per_second * mglru_core::PAGE_BYTES,
        depth: 8,
        burst: Duration::ZERO,
        in_order: false,
        failures_per_million: 0,
    };
    let machine = Machine {
        tenants: vec![Tenant::new("writers", LIMIT_PAGES)],
        device: DeviceModel { read: Lane::IDEAL, write },
        writes: Writes::Overwrite,
        ..Machine::new(16 * LIMIT_PAGES as u32)
    };
    Simulator::new(&machine).unwrap()
}

/// Writes a file from its beginning, endlessly, and counts.
struct Writer {
    file: u64,
    written: Rc<Cell<u64>>,
}

impl Source for Writer {
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        let first = self.written.replace(self.written.get() + 16);
        batch.extend((first..first + 16).map(|page| Operation::from(Access::write(self.file << 32 | page))));
        Ok(())
    }
}

fn add(simulator: &mut Simulator, file: u64) -> Rc<Cell<u64>> {
    let written = Rc::new(Cell::new(0));
    simulator.add_job(0, Writer { file, written: written.clone() });
    written
}

fn run_until(simulator: &mut Simulator, time: Time) {
    while simulator.now() < time {
        simulator.step().unwrap();
    }
}

fn pauses(simulator: &Simulator) -> u64 {
    simulator.report().tenants[1].total.counts.dirty_pauses
}

/// Holds for any bandwidth, also far above and below the initial estimate of 100 MB/s.
#[test]
fn a_writer_gets_the_bandwidth_of_the_device() {
    // Seconds of the measurement; a fast device settles sooner.
    let devices = [(1000, 20..30), (PAGES_PER_SECOND, 20..30), (100_000, 5..8)];
    for (pages_per_second, seconds) in devices {
        let mut simulator = simulator(pages_per_second, Duration::from_millis(1));
        simulator.time_accesses();
        let written = add(&mut simulator, 1);
        run_until(&mut simulator, at(seconds.start));
        let (before, pauses_before) = (written.get(), pauses(&simulator));
        run_until(&mut simulator, at(seconds.end));
        let (pages, pauses) = (written.get() - before, pauses(&simulator) - pauses_before);
        let length = seconds.end - seconds.start;
        assert!(
            pages.abs_diff(length * pages_per_second) < length * pages_per_second / 20,
            "{pages} of {pages_per_second}/s"
        );
        assert!((2 * length..=250 * length + 1).contains(&pauses), "of 4 to 200 ms each: {pauses}");
        // With a wrong initial estimate, the writer may reach the limit and pause several times for
        // one write. On a fast device, the longest pause is a tick.
        let longest = simulator.latencies().nth(1).unwrap().max_ns();
        assert!((4_000_000..=1_001_000_000).contains(&longest), "{longest} ns");
    }
}

#[test]
fn two_writers_share_evenly() {
    let mut simulator = simulator(PAGES_PER_SECOND, Duration::from_millis(1));
    let writers = [1, 2, 3].map(|file| add(&mut simulator, file));
    run_until(&mut simulator, at(10));
    let before = writers.each_ref().map(|written| written.get());
    run_until(&mut simulator, at(30));
    let shares: Vec<u64> =
        writers.iter().zip(before).map(|(written, before)| written.get() - before).collect();
    let all: u64 = shares.iter().sum();
    assert!(all.abs_diff(20 * PAGES_PER_SECOND) < PAGES_PER_SECOND, "{shares:?}");
    assert!(shares.iter().all(|share| share.abs_diff(all / 3) < all / 60), "within 5 %: {shares:?}");
}

/// A device that completes after 15 s. The writer reaches its limit and pauses, soon for 200 ms at
/// a time; it continues when writes end.
#[test]
fn a_device_that_stalls_is_waited_for() {
    let mut simulator = simulator(0, Duration::from_secs(15));
    let written = add(&mut simulator, 1);
    run_until(&mut simulator, at(1));
    let (pages, pauses_before, steps) = (written.get(), pauses(&simulator), simulator.steps());
    assert!((LIMIT_PAGES * 15 / 100..LIMIT_PAGES * 22 / 100).contains(&pages), "{pages}");
    run_until(&mut simulator, at(14));
    assert!(written.get() - pages <= 32, "it stands still");
    let paused = pauses(&simulator) - pauses_before;
    // 65 pauses of 200 ms, and more before the measured bandwidth reaches zero, while an eighth of
    // the pending pages takes 16 ms.
    assert!((65..=300).contains(&paused), "13 s: {paused}");
    assert!(simulator.steps() - steps < 10 * paused, "no writer spins");
    run_until(&mut simulator, at(16));
    assert!(written.get() > pages + 1000, "{} after {pages}", written.get());
}
