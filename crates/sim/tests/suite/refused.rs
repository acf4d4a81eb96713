//! Machines that cannot be built and operations that name what is not there are errors, and no
//! panics.

use mglru_core::reclaim::Watermarks;
use mglru_core::{PcpSizes, Zone};
use mglru_sim::{
    Access, DeviceModel, Machine, Operation, Preemption, Request, SimError, Simulator, SwapDevice, SwapModel,
};
use mglru_sim::{Lane, Latency};
use std::time::Duration;

#[test]
fn a_machine_that_cannot_be_built_says_why() {
    let flawed = |change: &dyn Fn(&mut Machine)| {
        let mut machine = Machine::new(100);
        change(&mut machine);
        match Simulator::new(&machine) {
            Err(error @ SimError::Machine(_)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let slow = Lane { depth: 0, ..Lane::IDEAL };
    let broken = Lane { failures_per_million: 1_000_001, ..Lane::IDEAL };
    let disk = |pages, write, cpu| {
        let model = DeviceModel { write, ..DeviceModel::IDEAL };
        Some(SwapModel { pages, device: SwapDevice::Disk { model, cpu } })
    };
    let narrow = PcpSizes { batch_pages: 4, high_min_pages: 15, high_max_pages: 15 };
    let zone = |pages, pcp_sizes| Zone {
        pages,
        watermarks: Watermarks { min: 0, low: 0, high: 0 },
        spared_pages: 0,
        pcp_sizes,
    };
    for (error, words) in [
        (flawed(&|machine| machine.memory_pages = 0), "set at least one page"),
        (flawed(&|machine| machine.cpus = 0), "set device_cpu below cpus"),
        (flawed(&|machine| machine.batch_folios = 0), "set batch_folios"),
        (flawed(&|machine| machine.batch_folios = 32), "1 to 31 folios"),
        (flawed(&|machine| machine.charge_batch_pages = u64::MAX), "set charge_batch_pages"),
        (flawed(&|machine| machine.pcp_batch_frames = usize::MAX), "pcp_batch_frames lower"),
        (flawed(&|machine| machine.pcp_sizes = Some(narrow)), "no room for four batches"),
        (flawed(&|machine| machine.lower_zones = vec![zone(1, None); 3]), "at most two in lower_zones"),
        (
            flawed(&|machine| machine.lower_zones = vec![zone(machine.memory_pages, None)]),
            "no memory for the highest",
        ),
        (flawed(&|machine| machine.lower_zones = vec![zone(u32::MAX, None); 2]), "no memory for the highest"),
        (flawed(&|machine| machine.lower_zones = vec![zone(1, Some(narrow))]), "no room for four batches"),
        (flawed(&|machine| machine.device.read = slow), "set the depth"),
        (flawed(&|machine| machine.device.write = broken), "failures_per_million"),
        (flawed(&|machine| machine.swap = disk(0, Lane::IDEAL, 0)), "its swap has 0 pages"),
        (flawed(&|machine| machine.swap = disk(1, Lane::IDEAL, 1)), "set its cpu below cpus"),
        (flawed(&|machine| machine.swap = disk(1, slow, 0)), "set the depth"),
        (
            flawed(&|machine| {
                machine.preemption = Some(Preemption { slice: Duration::ZERO, away: Latency::ZERO });
            }),
            "set the slice",
        ),
    ] {
        assert!(error.starts_with("the machine cannot be built: ") && error.contains(words), "{error}");
    }
}

#[test]
fn an_operation_that_names_what_is_not_there_ends_the_run() {
    let error = |operation: Operation| {
        let mut simulator = Simulator::new(&Machine::new(100)).unwrap();
        simulator.add_job(0, [].into_iter());
        simulator.add_job(0, [Access::read(1).into(), operation].into_iter());
        simulator.run().unwrap_err().to_string()
    };
    let switch = error(Operation::Switch { process: 1 });
    assert_eq!(switch, "job 1: it switches to process 1 of 1, which are numbered from 0");
    let control = error(Operation::Control { write: 0 });
    assert_eq!(control, "job 1: it writes control file number 0 of 0, which are numbered from 0");
    let request = Request { tenant: Some(1), pages: 1, swappiness: None, unsliced: false };
    let reclaim = error(Operation::Reclaim(request));
    assert_eq!(reclaim, "job 1: it reclaims from tenant 1, which the machine does not have now");
}

/// A hole without pages once ended a checked run with a panic.
#[test]
fn the_first_and_the_last_page_of_all_and_no_pages_at_all_are_valid() {
    const LAST: u64 = u64::MAX;
    let device = SwapDevice::Disk { model: DeviceModel::IDEAL, cpu: 0 };
    let machine = Machine { swap: Some(SwapModel { pages: 10, device }), ..Machine::new(100) };
    let mut simulator = Simulator::new(&machine).unwrap();
    simulator.check_every(1);
    let touched =
        [Access::write(0), Access::write(LAST), Access::store(0).anon(), Access::store(LAST).anon()];
    let operations = [0, 5].into_iter().flat_map(|page| {
        let empty = [Operation::Punch { page, pages: 0 }, Operation::Discard { page, pages: 0 }];
        empty.into_iter().chain([Operation::Release { page, pages: 0 }])
    });
    let last = [
        Operation::Sync { page: LAST },
        Operation::Discard { page: LAST, pages: u32::MAX },
        Operation::Punch { page: LAST, pages: u32::MAX },
        Operation::Release { page: LAST, pages: u32::MAX },
        Operation::Truncate { page: LAST },
        Operation::Loads { first: LAST - 63, pages: u64::MAX },
    ];
    simulator.add_job(0, touched.into_iter().map(Operation::from).chain(operations).chain(last));
    simulator.run().unwrap();
    simulator.finish().unwrap();
}
