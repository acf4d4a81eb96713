//! Effect of `memory.min` and `memory.low`: the kernel's own published example, and proportional
//! shares.
//!
//! The example's tree and numbers are those of Linux's memory cgroup self-test (`test_memcg_min`
//! and `test_memcg_low` in the kernel's sources). Three children have 50 MiB of page cache each,
//! and their parent protects 50 MiB, while another tenant allocates 148 MiB of anonymous memory.

use mglru_core::{Counter, Mechanisms, Preset, Refresh, Switch};
use mglru_sim::{Access, Machine, Operation, Report, Request, Simulator, Tenant};
use std::time::Duration;

const MIB_PAGES: u64 = 256;

fn preset(preset: Preset, classic: bool) -> Mechanisms {
    let mechanisms = Mechanisms::preset(preset);
    if classic { mechanisms.with_lru(mglru_core::Lru::Classic) } else { mechanisms }
}

/// Reads `mib` MiB of a file that no other job uses.
fn cached(file: u64, mib: u64) -> impl Iterator<Item = Operation> {
    (0..mib * MIB_PAGES).map(move |page| Operation::from(Access::read(file << 32 | page)))
}

fn usage_mib(report: &Report, path: &str) -> f64 {
    let tenant = report.tenants.iter().find(|tenant| tenant.name == path).unwrap();
    tenant.usage_pages as f64 / MIB_PAGES as f64
}

/// A job writes control files between its accesses: a lower limit takes effect at once, and a
/// request has freed its pages when the job goes on.
#[test]
fn a_job_writes_control_files() {
    let mut simulator = Simulator::new(&Machine::ideal(100, 1)).unwrap();
    simulator.check_every(1);
    let writes =
        [("ideal/memory.max", "200K"), ("ideal/memory.reclaim", "80K"), ("ideal/memory.reclaim", "4M")];
    simulator.control_writes(writes.map(|(file, value)| (file.to_owned(), value.to_owned())).into());
    let reads = |pages: std::ops::Range<u64>| pages.map(|page| Operation::from(Access::read(page)));
    let control = |write| [Operation::Control { write }];
    let all = reads(0..90).chain(control(0)).chain(control(1)).chain(control(2)).chain(reads(90..94));
    simulator.add_job(0, all);
    let report = simulator.run().unwrap();
    simulator.finish().unwrap();
    let refused: Vec<bool> =
        simulator.answers().iter().map(|answer| answer.control_error().is_some()).collect();
    assert_eq!(refused, [false, false, true], "{:?}", simulator.answers());
    assert_eq!(report.tenants[1].max_pages, 50);
    assert_eq!(report.tenants[1].usage_pages, 4, "nothing was left when the last pages came");
}

/// As in the kernel lab, statistics are read after an access, and control files are written before
/// the next one. So a lowered limit reclaims with list sizes that are known: 30 inactive pages are
/// few beside 50 active ones, which are scanned, too. Read later, they are not.
#[test]
fn statistics_are_read_before_a_control_file_is_written() {
    let refilled = |statistics_reads| {
        let machine = Machine {
            mechanisms: preset(Preset::Linux72, true),
            statistics_refresh: Refresh::NEVER,
            statistics_reads: Some(statistics_reads),
            ..Machine::ideal(100, 1)
        };
        let mut simulator = Simulator::new(&machine).unwrap();
        simulator.control_writes(vec![("ideal/memory.max".to_owned(), "240K".to_owned())]);
        let pages = (0..50).chain(0..50).chain(50..80);
        let reads = pages.map(|page| Operation::from(Access::read(page)));
        let write = [Operation::Control { write: 0 }, Access::read(0).into()];
        simulator.add_job(0, reads.chain(write));
        let report = simulator.run().unwrap();
        assert_eq!(report.tenants[1].usage_pages.div_ceil(60), 1, "the limit holds");
        report.total().counters.get(Counter::Pgrefill)
    };
    assert!(refilled(130) > 0);
    assert_eq!(refilled(131), 0);
}

/// Runs the example with `memory.low` if `low`, else with `memory.min`.
fn the_kernels_example(mechanisms: Mechanisms, low: bool) -> Report {
    let tenant = |path: &str, protected_mib: u64, max_pages: u64| {
        let mut tenant = Tenant::new(path, max_pages);
        *(if low { &mut tenant.low_pages } else { &mut tenant.min_pages }) = protected_mib * MIB_PAGES;
        tenant
    };
    let unlimited = mglru_core::UNLIMITED;
    let machine = Machine {
        tenants: vec![
            tenant("A", 50, 200 * MIB_PAGES),
            tenant("A/B", 50, unlimited),
            tenant("A/B/C", 75, unlimited),
            tenant("A/B/D", 25, unlimited),
            tenant("A/B/E", 0, unlimited),
            tenant("A/B/F", 500, unlimited),
            tenant("A/G", 0, unlimited),
        ],
        mechanisms,
        ..Machine::new(1024 * MIB_PAGES as u32)
    };
    let mut simulator = Simulator::new(&machine).unwrap();
    for (file, tenant) in [2, 3, 4].into_iter().enumerate() {
        simulator.add_job(tenant, cached(file as u64 + 1, 50));
    }
    let later = Operation::RestUntil { time: mglru_core::Time::ZERO + Duration::from_secs(30) };
    let memory = (0..148 * MIB_PAGES).map(|page| Access { anon: true, mapped: true, ..Access::write(page) });
    simulator.add_job(6, [later].into_iter().chain(memory.map(Operation::from)));
    let report = simulator.run().unwrap();
    simulator.finish().unwrap();
    assert_eq!(report.total().counts.out_of_memory, 0);
    report
}

/// Published: B keeps about 50 MiB, C 29, D 21, E nothing, each within a tenth.
#[test]
fn the_kernels_example_of_a_protected_tree() {
    for (name, classic) in [
        (Preset::Default, false),
        (Preset::Linux72, false),
        (Preset::Linux71, false),
        (Preset::Linux72, true),
    ] {
        for low in [false, true] {
            let report = the_kernels_example(preset(name, classic), low);
            let usage = |path| usage_mib(&report, path);
            let case = format!("{name:?}, classic {classic}, low {low}");
            let near = |path, mib: f64| {
                assert!((usage(path) - mib).abs() <= mib / 10.0, "{case}: {path} has {:.1}", usage(path));
            };
            near("A/B", 50.0);
            near("A/B/C", 29.0);
            near("A/B/D", 21.0);
            assert!(usage("A/B/E") < 2.5, "{case}: {}", usage("A/B/E"));
        }
    }
}

/// `subtree_lru`: of two equal tenants, one protects 90 % of its pages and the other 10 %. Reclaim
/// of the root takes pages in proportion to their unprotected pages, 1 to 9.
#[test]
fn protected_tenants_give_in_proportion() {
    let tenant = |path: &str, low_mib: u64| Tenant {
        low_pages: low_mib * MIB_PAGES,
        ..Tenant::new(path, mglru_core::UNLIMITED)
    };
    let mut machine =
        Machine { tenants: vec![tenant("c", 90), tenant("d", 10)], ..Machine::new(1024 * MIB_PAGES as u32) };
    machine.mechanisms = Mechanisms::compose(Preset::Default, &[Switch::SubtreeLru], &[]).unwrap();
    let mut simulator = Simulator::new(&machine).unwrap();
    for number in 0..2 {
        simulator.add_job(number, cached(number as u64 + 1, 100));
    }
    let later = Operation::RestUntil { time: mglru_core::Time::ZERO + Duration::from_secs(30) };
    let request = Request { tenant: None, pages: 20 * MIB_PAGES, swappiness: None, unsliced: false };
    simulator.add_job_of(&[None], [later, Operation::Reclaim(request)].into_iter());
    let report = simulator.run().unwrap();
    let given = ["c", "d"].map(|path| 100.0 - usage_mib(&report, path));
    assert!((19.5..20.5).contains(&(given[0] + given[1])), "{given:?}");
    assert!((7.5..10.5).contains(&(given[1] / given[0])), "{given:?}");
}
