//! Pages that reads, and misses through mappings, bring in beside the needed one.

use mglru_sim::{Access, Machine, Numbering, Operation, Report, SimError, Simulator};

const FILE_PAGES: u64 = 1000;

fn machine(readahead_pages: u32, fault_around_pages: u32) -> Machine {
    Machine { readahead_pages, fault_around_pages, ..Machine::new(4096) }
}

fn run(machine: &Machine, accesses: impl Iterator<Item = Access> + 'static) -> Report {
    let mut simulator = Simulator::new(machine).unwrap();
    simulator.set_file_pages(0, FILE_PAGES);
    simulator.check_every(1);
    simulator.add_job(0, accesses.map(Operation::from));
    let report = simulator.run().unwrap();
    simulator.finish().unwrap();
    report
}

/// The windows of the core's rule: 4 pages, then 8, 16 and 32. Each is requested at the beginning
/// of the previous one, and none is behind the file's end.
#[test]
fn a_file_that_is_read_in_order_is_read_ahead() {
    let report = run(&machine(32, 0), (0..FILE_PAGES).map(Access::read));
    let (counts, device) = (&report.total().counts, &report.device);
    assert_eq!((counts.misses, counts.hits), (1, FILE_PAGES - 1));
    assert_eq!((device.reads, device.pages_read), (3 + (FILE_PAGES - 28).div_ceil(32), FILE_PAGES));
    let without = run(&machine(0, 0), (0..FILE_PAGES).map(Access::read));
    assert_eq!((without.total().counts.misses, without.device.reads), (FILE_PAGES, FILE_PAGES));
    assert!(report.now < without.now);
}

#[test]
fn reads_in_no_order_bring_only_themselves() {
    let pages = (1..FILE_PAGES).map(|n| n * 377 % FILE_PAGES);
    let report = run(&machine(32, 0), pages.map(Access::read));
    assert_eq!((report.device.reads, report.device.pages_read), (FILE_PAGES - 1, FILE_PAGES - 1));
}

/// A miss reads 128 KiB around it, and maps the cached pages of an aligned window of 64 KiB.
#[test]
fn misses_through_a_mapping_read_and_map_around() {
    let loads = || [500u64].into_iter().chain(484..516).map(Access::load);
    let report = run(&machine(32, 0), loads());
    let counts = &report.total().counts;
    assert_eq!((counts.misses, counts.minor_faults), (1, 31));
    // The last quarter requests more.
    assert_eq!((report.device.reads, report.device.pages_read), (2, 64));

    let report = run(&machine(32, 16), loads());
    // A fault at 484 maps up to 495. One at 496 maps up to 507, but not 508, which has the
    // readahead mark. The others are at 508 and 512.
    assert_eq!(report.total().counts.minor_faults, 4);
    assert_eq!(run(&machine(0, 16), loads()).device.pages_read, 32, "nothing is read for it");
}

#[test]
fn a_machine_that_cannot_read_ahead_is_refused() {
    let refused = |machine: &Machine| match Simulator::new(machine) {
        Err(SimError::Machine(why)) => why,
        other => panic!("{other:?}"),
    };
    let keys = Machine { numbering: Numbering::Keys, ..machine(32, 0) };
    assert!(refused(&keys).contains("readahead needs pages that are positions in files"));
    assert!(refused(&machine(0, 12)).contains("fault-around is of 2, 4, 8, … pages"));
}
