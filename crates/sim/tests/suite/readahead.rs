//! Pages that reads, and misses through mappings, bring in beside the needed one.

use mglru_core::{Counter, Lru, Mechanisms, Time};
use mglru_sim::{
    Access, DeviceModel, Lane, Latency, Machine, Numbering, Operation, Report, SimError, Simulator,
    SwapDevice, SwapModel, Writes,
};
use mglru_workload::Load;
use mglru_workload::trace::RequestStart;
use std::time::Duration;

const FILE_PAGES: u64 = 1000;

fn machine(readahead_pages: u32, fault_around_pages: u32) -> Machine {
    Machine { readahead_pages, fault_around_pages, ..Machine::new(4096) }
}

fn run(machine: &Machine, accesses: impl Iterator<Item = Access> + 'static) -> Report {
    run_operations(machine, accesses.map(Operation::from))
}

fn run_operations(machine: &Machine, operations: impl Iterator<Item = Operation> + 'static) -> Report {
    let mut simulator = Simulator::new(machine).unwrap();
    simulator.set_file_pages(0, FILE_PAGES);
    simulator.check_every(1);
    simulator.add_job(0, operations);
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

/// A reader that is faster than the disk meets marks on pages that are still being read. It asks
/// for the next window before it waits, so that two are being read at a time.
#[test]
fn a_mark_counts_before_its_page_has_been_read() {
    let latency = Duration::from_millis(10);
    let read = Lane { latency: Latency::Fixed(latency), ..Lane::IDEAL };
    let machine = Machine { device: DeviceModel { read, ..DeviceModel::IDEAL }, ..machine(32, 0) };
    let report = run(&machine, (0..FILE_PAGES).map(Access::read));
    let windows = report.device.reads as u32;
    assert_eq!((windows, report.device.pages_read), (3 + (FILE_PAGES as u32 - 28).div_ceil(32), FILE_PAGES));
    let took = report.now.since(Time::ZERO);
    assert!(took > windows / 2 * latency && took < (windows / 2 + 2) * latency, "{took:?} for {windows}");
}

#[test]
fn reads_in_no_order_bring_only_themselves() {
    // Without neighbours, which would be the trace of a sequential reader.
    let pages = (1..499).map(|n| n * 377 % 499 * 2);
    let report = run(&machine(32, 0), pages.map(Access::read));
    assert_eq!((report.device.reads, report.device.pages_read), (498, 498));
}

fn request(handle: u32, pages: std::ops::Range<u64>) -> impl Iterator<Item = Operation> {
    let start = RequestStart { pages: (pages.end - pages.start) as u32, handle, ends_inside: false };
    [Operation::Request(start)].into_iter().chain(pages.map(|page| Access::read(page).into()))
}

/// Without the requests, the second page of each would look like the next one of a sequential read.
#[test]
fn a_request_of_several_pages_is_not_a_sequential_read() {
    for handle in [0, 7, RequestStart::NO_HANDLE] {
        let requests = (1..=15).flat_map(move |n| request(handle, n * 62..n * 62 + 2));
        let device = run_operations(&machine(32, 0), requests).device;
        assert_eq!((device.reads, device.pages_read), (15, 30), "open file {handle}");
    }
    let pages = (1..=15).flat_map(|n| n * 62..n * 62 + 2);
    assert!(run(&machine(32, 0), pages.map(Access::read)).device.pages_read > 60);
}

/// Two readers of one file. The first begins at its beginning, so that one miss shows that it is
/// sequential; of the second, it takes two. With one open file for both, none continues the other,
/// and the pages that are cached before a miss tell after one more.
#[test]
fn each_open_file_is_read_ahead_on_its_own() {
    let in_turn = |second| {
        let both = move |n: u64| request(0, n..n + 1).chain(request(second, 500 + n..501 + n));
        run_operations(&machine(32, 0), (0..400).flat_map(both)).total().counts.misses
    };
    assert_eq!((in_turn(1), in_turn(0)), (3, 4));
}

#[test]
fn a_write_reads_only_pages_that_it_changes_in_part() {
    let writes = |first_inside: bool, ends_inside: bool| {
        let start = RequestStart { pages: 3, handle: 0, ends_inside };
        let pages = (10..13).map(move |page| {
            Operation::Access(Access { inside: page == 10 && first_inside, ..Access::write(page) })
        });
        let machine = Machine { writes: Writes::AsRequested, ..machine(32, 0) };
        run_operations(&machine, [Operation::Request(start)].into_iter().chain(pages)).device.pages_read
    };
    let read = [(false, false), (true, false), (false, true), (true, true)].map(|(a, b)| writes(a, b));
    assert_eq!(read, [0, 1, 1, 2]);
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
    // The miss maps 496 to 507, but not 508, which has the readahead mark. A fault at 484 maps up
    // to 495. The others are at 508 and 512.
    assert_eq!((report.total().counts.misses, report.total().counts.minor_faults), (1, 3));
    assert_eq!(run(&machine(0, 16), loads()).device.pages_read, 32, "nothing is read for it");
}

/// Without requests, a process reads a file through one descriptor and maps it through another. So
/// mapped misses beside a sequential reader change none of its windows.
#[test]
fn reads_and_a_mapping_read_ahead_on_their_own() {
    let reads = || (0..300u64).map(Access::read);
    let loads = || (0..300u64).filter(|n| n.is_multiple_of(60)).map(|n| Access::load(400 + n * 2));
    let alone = [run(&machine(32, 0), reads()), run(&machine(32, 0), loads())].map(|report| report.device);
    let between =
        |n: u64| [Access::read(n)].into_iter().chain(n.is_multiple_of(60).then(|| Access::load(400 + n * 2)));
    let both = run(&machine(32, 0), (0..300).flat_map(between)).device;
    let sum = (alone[0].reads + alone[1].reads, alone[0].pages_read + alone[1].pages_read);
    assert_eq!((both.reads, both.pages_read), sum);
}

#[test]
fn a_machine_that_cannot_read_ahead_is_refused() {
    let refused = |machine: &Machine| match Simulator::new(machine) {
        Err(SimError::Machine(why)) => why,
        other => panic!("{other:?}"),
    };
    let keys = Machine { numbering: Numbering::Keys, ..machine(32, 0) };
    assert!(refused(&keys).contains("readahead needs pages that are positions in files"));
    assert!(refused(&machine(0, 12)).contains("fault-around is of 1, 2, 4, 8, … pages"));
}

/// A store reads a leaf of eight pages at a random place in one request. Readahead brings in no
/// other pages, except where the two leaves before it are cached.
#[test]
fn a_store_s_leaves_are_no_sequential_reader() {
    let read = |readahead_pages| {
        let load = Load::parse("ycsb:workload=c,records=1000000,cache=1m").unwrap();
        let (mut running, mut steps) = (load.start(1, 5).unwrap(), Vec::new());
        (0..4000).for_each(|_| running.draw(0, &mut steps));
        let mut simulator = Simulator::new(&machine(readahead_pages, 0)).unwrap();
        simulator.add_job(0, steps.into_iter().map(Operation::from));
        let pages = simulator.run().unwrap().device.pages_read;
        simulator.finish().unwrap();
        pages
    };
    let (without, with) = (read(0), read(32));
    assert!(with >= without && with * 100 < without * 103, "{with} pages instead of {without}");
}

/// A program that goes through swapped-out memory takes a fault for an eighth of the pages, and one
/// that jumps reads hardly a page in vain. Under each LRU.
#[test]
fn swapped_out_neighbours_are_read_together() {
    let run = |lru, swap_readahead_pages, pages: &[u64]| {
        let machine = Machine {
            mechanisms: Mechanisms::default().with_lru(lru),
            swap: Some(SwapModel { pages: 4000, device: SwapDevice::lab_disk() }),
            swap_readahead_pages,
            ..Machine::kernel_lab(600)
        };
        let mut simulator = Simulator::new(&machine).unwrap();
        simulator.check_every(11);
        let stores = (0..2000).map(|page| Access::store(page).anon());
        let loads = Vec::from(pages).into_iter().map(|page| Access::load(page).anon());
        simulator.add_job(0, stores.chain(loads).map(Operation::from));
        let report = simulator.run().unwrap();
        simulator.finish().unwrap();
        [Counter::Pswpin, Counter::Pgmajfault].map(|counter| report.total().counters.get(counter))
    };
    let forwards: Vec<u64> = (0..2000).collect();
    let backwards: Vec<u64> = (0..2000).rev().collect();
    let anyhow: Vec<u64> = (0..2000).map(|step| step * 1373 % 2000).collect();
    for lru in Lru::ALL {
        for pages in [&forwards, &backwards] {
            let [alone, with] = [0, 8].map(|most| run(lru, most, pages));
            assert!(alone[0] > 1000 && alone[0] == alone[1], "{lru:?}: {alone:?}");
            assert!(with[0] > 1000 && with[1] * 7 < with[0], "{lru:?}: {with:?}");
        }
        let [read, faults] = run(lru, 8, &anyhow);
        assert!(read > 1000 && read < faults + 40, "{lru:?}: {read} pages for {faults} faults");
    }
}
