//! The cache and the simulator request the same writes, because the core decides when and what to
//! write.

use crate::common::{PAGE, memory};
use mglru_cache::OpenMode;
use mglru_sim::{Access, Machine, Operation, Simulator, Tenant, Writes};
use std::time::{Duration, Instant};

const LIMIT_PAGES: u64 = 400;
/// One more than 15 % of the limit.
const DIRTY_PAGES: u64 = 61;

/// Transfers and pages in them.
type Asked = (u64, u64);

/// What is asked for within a while, which is long if it ends with `expected` pages written.
fn in_the_cache(writes: &[(u64, u64)], expected: u64) -> Asked {
    let (disk, files) = memory(7);
    (0..2).for_each(|file| disk.set(&format!("f{file}"), &[]));
    let cache = disk.builder(16 << 20).tenant("t", LIMIT_PAGES * PAGE as u64).build().unwrap();
    let tenant = cache.tenant("t").unwrap();
    let open = |file| tenant.open(format!("f{file}"), OpenMode::ReadWrite).unwrap();
    let handles = [0, 1].map(open);
    for &(file, page) in writes {
        handles[file as usize].write_at(&[1; PAGE], page * PAGE as u64).unwrap();
    }
    let asked = || {
        let counts = [0, 1].map(|file| files.counts(format!("f{file}")));
        let bytes: u64 = counts.iter().map(|counts| counts.written_bytes).sum();
        (counts.iter().map(|counts| counts.writes).sum(), bytes / PAGE as u64)
    };
    // Shorter than the 30 seconds after which pages are written for their age.
    let end = Instant::now() + Duration::from_secs(if expected == 0 { 1 } else { 25 });
    while (expected == 0 || asked().1 < expected) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    let asked = asked();
    drop(handles);
    cache.close().unwrap();
    asked
}

fn in_the_simulator(writes: &[(u64, u64)]) -> Asked {
    let tenants = vec![Tenant::new("t", LIMIT_PAGES)];
    let machine = Machine { tenants, writes: Writes::Overwrite, ..Machine::new(4096) };
    let mut simulator = Simulator::new(&machine).unwrap();
    let writes: Vec<Operation> =
        writes.iter().map(|&(file, page)| Access::write(file << 32 | page).into()).collect();
    simulator.add_job(0, writes.into_iter().chain([Operation::Rest { nanos: 2_000_000_000 }]));
    let report = simulator.run().unwrap();
    (report.device.writes, report.device.pages_written)
}

#[test]
fn both_hosts_ask_for_the_same_writes() {
    let loads: [(Vec<(u64, u64)>, Asked); 4] = [
        // Too few dirty pages: nothing is written.
        ((0..DIRTY_PAGES - 1).map(|page| (0, page)).collect(), (0, 0)),
        ((0..DIRTY_PAGES).map(|page| (0, page)).collect(), (1, DIRTY_PAGES)),
        // No two pages are adjacent.
        ((0..DIRTY_PAGES).map(|page| (page % 2, 2 * page)).collect(), (DIRTY_PAGES, DIRTY_PAGES)),
        // Runs of five pages, from the end, and the last page alone.
        (
            (0..DIRTY_PAGES).map(|page| (page / 40, 1000 - page - page / 5)).collect(),
            (DIRTY_PAGES.div_ceil(5), DIRTY_PAGES),
        ),
    ];
    for (load, expected) in loads {
        assert_eq!(
            (in_the_cache(&load, expected.1), in_the_simulator(&load)),
            (expected, expected),
            "{load:?}"
        );
    }
}
