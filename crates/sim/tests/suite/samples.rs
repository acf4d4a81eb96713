//! Samples and latencies are consistent and do not change the run.

use mglru_sim::{Access, DeviceModel, Machine, Operation, Report, Simulator};
use mglru_workload::Random;

const ACCESSES: u64 = 100_000;

fn run(look: bool, jobs: u64) -> (Report, Simulator) {
    let machine = Machine {
        cpus: jobs as usize,
        device_cpu: 0,
        device: DeviceModel::nvme(),
        ..Machine::kernel_lab(1000)
    };
    let mut simulator = Simulator::new(&machine).unwrap();
    simulator.set_warm_from(30_000);
    if look {
        simulator.sample(50);
        simulator.time_accesses();
    }
    for job in 0..jobs {
        let mut random = Random::stream(1, job);
        let touches = (0..ACCESSES / jobs).map(move |_| {
            let page = random.below(3000).min(random.below(3000));
            if page.is_multiple_of(9) { Access::write(page) } else { Access::read(page) }
        });
        simulator.add_job(0, touches.map(Operation::from));
    }
    (simulator.run().unwrap(), simulator)
}

#[test]
fn looking_changes_nothing_and_adds_up() {
    for jobs in [1, 4] {
        let (report, looked) = run(true, jobs);
        assert_eq!(report, run(false, jobs).0, "{jobs} jobs");
        let samples = looked.samples();
        assert!((50..=101).contains(&samples.len()), "{}", samples.len());
        let last = samples.last().unwrap();
        let counts = report.total().counts;
        assert_eq!((last.access, last.time), (ACCESSES, report.now));
        assert_eq!((last.tenants[1].accesses, last.tenants[1].hits), (counts.accesses, counts.hits));
        assert_eq!(last.tenants[1].generations, report.tenants[1].generations);
        for pair in samples.windows(2) {
            assert!(pair[0].access < pair[1].access && pair[0].time <= pair[1].time);
            assert!(pair[0].tenants[1].hits <= pair[1].tenants[1].hits);
        }
        let latencies: Vec<_> = looked.latencies().collect();
        assert_eq!((latencies[0].samples(), latencies[1].samples()), (0, ACCESSES));
        let access = Machine::kernel_lab(1000).access_time.as_nanos() as u64;
        assert_eq!(latencies[1].min_ns(), access, "a hit takes as long as a hit takes");
        assert!(latencies[1].max_ns() > 2 * access, "a miss takes longer");
    }
}
