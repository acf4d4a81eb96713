//! Jobs compute on the CPUs of the machine.

use mglru_core::Time;
use mglru_sim::{Access, DeviceModel, Lane, Latency, Machine, Operation, Simulator};
use std::time::Duration;

const COMPUTE: Duration = Duration::from_micros(650);
const TURNS: u32 = 10;

/// Time until `jobs` jobs have computed ten times each, and read a page after each time.
fn duration(cpus: usize, jobs: u32) -> Duration {
    let machine = Machine { cpus, access_time: Duration::ZERO, ..Machine::ideal(4096, 15) };
    let mut simulator = Simulator::new(&machine).unwrap();
    for job in 0..jobs {
        let first = u64::from(job * TURNS);
        simulator.add_job(
            0,
            (0..u64::from(TURNS)).flat_map(move |turn| {
                let nanos = COMPUTE.as_nanos() as u64;
                [Operation::Compute { nanos }, Access::read(first + turn).into()]
            }),
        );
    }
    while simulator.step().unwrap() {}
    Duration::from_nanos(simulator.now().as_nanos())
}

#[test]
fn jobs_of_a_cpu_compute_one_after_the_other() {
    assert_eq!(duration(1, 1), COMPUTE * TURNS);
    assert_eq!(duration(1, 3), COMPUTE * TURNS * 3);
    assert_eq!(duration(3, 3), COMPUTE * TURNS);
    // Jobs 0 and 2 share the first CPU.
    assert_eq!(duration(2, 3), COMPUTE * TURNS * 2);
}

#[test]
fn waits_need_no_cpu() {
    let machine = Machine { access_time: Duration::ZERO, ..Machine::ideal(4096, 15) };
    let mut simulator = Simulator::new(&machine).unwrap();
    for _ in 0..3 {
        simulator.add_job(0, [Operation::Rest { nanos: 1000 }].into_iter());
    }
    while simulator.step().unwrap() {}
    assert_eq!(simulator.now().as_nanos(), 1000);
}

/// A job reads while another computes twice on its CPU. With a CPU for reads, it goes on when the
/// first computation ends, although it did not ask for one.
#[test]
fn a_read_may_need_the_cpu_to_go_on() {
    for (reads_need_cpu, readahead_pages) in [(false, 0), (true, 0), (false, 8), (true, 8)] {
        let read = Lane { latency: Latency::Fixed(Duration::from_nanos(300)), ..Lane::IDEAL };
        let machine = Machine {
            reads_need_cpu,
            readahead_pages,
            access_time: Duration::ZERO,
            device: DeviceModel { read, ..DeviceModel::IDEAL },
            ..Machine::ideal(4096, 15)
        };
        let mut simulator = Simulator::new(&machine).unwrap();
        let computes = [1000, 1000].map(|nanos| Operation::Compute { nanos });
        simulator.add_job(0, computes.into_iter());
        simulator.add_job(0, [Access::read(0).into(), Operation::Rest { nanos: 10_000 }].into_iter());
        let expected = if reads_need_cpu { 1000 } else { 300 };
        assert_eq!(simulator.run().unwrap().now.as_nanos(), expected + 10_000);
    }
}

/// Waits that end after the end of the clock, some 584 years, end with it.
#[test]
fn no_wait_goes_beyond_the_end_of_time() {
    let forever = [Operation::Rest { nanos: u64::MAX }, Operation::Compute { nanos: u64::MAX }];
    for wait in forever {
        let mut simulator = Simulator::new(&Machine::ideal(100, 1)).unwrap();
        let moment = Operation::Rest { nanos: 1 };
        let operations = [Access::read(0).into(), moment, wait, wait, Access::read(1).into()];
        simulator.add_job(0, operations.into_iter());
        let report = simulator.run().unwrap();
        assert_eq!((report.now, report.accesses()), (Time::from_nanos(u64::MAX), 2));
    }
}
