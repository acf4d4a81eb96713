//! The smaller rows: workers, mapped reads, selects, compilers, files beside anonymous memory, and
//! a writer in a small memcg.
//!
//! Sizes are the published ones divided by the factor stated for each row. Ratios are kept.

use super::super::SCAN_TIME;
use super::store::WALK_TIME;
use crate::clients::{self, Facts, Script, Window};
use crate::fidelity::load::DirtyWriter;
use crate::{Error, Watch};
use mglru_core::Mechanisms;
use mglru_sim::{
    Access, DeviceModel, Interleaving, Lane, Latency, Machine, Operation, Simulator, SwapDevice, SwapModel,
    Tenant, Writes,
};
use mglru_workload::compile::Compile;
use mglru_workload::file_anon::FileAnon;
use mglru_workload::requests::Requests;
use mglru_workload::select::Select;
use mglru_workload::{BlockBytes, Distribution, Length, Load, Mix, Order, Pattern};
use std::time::Duration;

const GIB_PAGES: u64 = 1 << 18;
/// Divides the sizes of a quick run, which only checks that everything works.
const QUICK_SMALLER: u64 = 4;
const TOUCH_TIME: Duration = Duration::from_nanos(500);
/// Time to read 128 KiB from an NVMe disk: 80 µs, and 44 µs for the transfer.
const READ_TIME: Duration = Duration::from_micros(124);
/// Workers of the fairness row, as published.
pub const WORKERS: u32 = 64;
/// Rounds of the mix that count as survival.
pub const ROUNDS: u64 = 128;

/// Divisor of sizes for a run whose length is divided by `shorter`.
pub fn smaller(shorter: u32) -> u64 {
    if shorter > 1 { QUICK_SMALLER } else { 1 }
}

fn with_swap(machine: Machine, mechanisms: Mechanisms, swap_pages: u64, seed: u64) -> Machine {
    Machine {
        mechanisms,
        device: DeviceModel::nvme(),
        swap: (swap_pages > 0).then(|| SwapModel { pages: swap_pages as u32, device: SwapDevice::zram() }),
        access_time: TOUCH_TIME,
        device_cpu: 0,
        writes: Writes::Overwrite,
        interleaving: Interleaving::Seeded,
        seed,
        ..machine
    }
}

/// Row 2: 64 workers in 32 memcgs. Their heaps are 1.5 times the memory; swap is compressed memory.
pub fn workers(
    mechanisms: Mechanisms,
    seed: u64,
    shorter: u32,
    watched: bool,
    watch: &dyn Watch,
) -> Result<Facts, Error> {
    let heap_pages = 4096 / smaller(shorter);
    let heaps = u64::from(WORKERS) * heap_pages;
    let memory = (heaps * 2 / 3) as u32;
    let tenants = (0..32).map(|memcg| Tenant::new(&format!("m{memcg:02}"), u64::from(memory))).collect();
    let machine = Machine { tenants, cpus: WORKERS as usize, ..Machine::new(memory) };
    let script = Script {
        window: Window {
            warm_draws: 10 * u64::from(WORKERS),
            // Fewer requests are less even by chance.
            time: Duration::from_secs(4) / shorter,
            ..Window::default()
        },
        watched,
        ..Script::new(
            with_swap(machine, mechanisms, 4 * heaps, seed),
            Load::Requests(Requests { heap_pages: heap_pages as u32 }),
            WORKERS,
        )
    };
    clients::run(&script, watch)
}

/// Row 5 at a sixteenth: a buffer pool of 24.3 G under 2 G, point selects by 48 threads.
pub fn selects(mechanisms: Mechanisms, seed: u64, shorter: u32, watch: &dyn Watch) -> Result<Facts, Error> {
    let smaller = 16 * smaller(shorter);
    let limit = 2 * GIB_PAGES / smaller;
    let pool = 26_106_127_360 / 4096 / smaller;
    let machine = Machine { cpus: 48, ..Machine::kernel_lab(limit) };
    let script = Script {
        window: Window {
            warm_draws: 100_000 / u64::from(shorter),
            draws: 100_000 / u64::from(shorter),
            ..Window::default()
        },
        ..Script::new(
            with_swap(machine, mechanisms, 2 * pool, seed),
            Load::Select(Select { rows: 48 * 2_000_000 / smaller as u32, cache_pages: pool as u32 }),
            48,
        )
    };
    clients::run(&script, watch)
}

/// Row 7 at a sixteenth: 96 compilers under 3 G; swap is compressed memory.
pub fn compilers(mechanisms: Mechanisms, seed: u64, shorter: u32, watch: &dyn Watch) -> Result<Facts, Error> {
    let smaller = 16 * smaller(shorter);
    let machine = Machine { cpus: 96, ..Machine::kernel_lab(3 * GIB_PAGES / smaller) };
    let units = 1500 / u64::from(shorter);
    let script = Script {
        window: Window { warm_draws: units / 3, draws: units, ..Window::default() },
        ..Script::new(
            with_swap(machine, mechanisms, 64 * GIB_PAGES / smaller, seed),
            // 70 MiB per compiler on average.
            Load::Compile(Compile {
                sources: 60_000 / smaller as u32,
                heap_pages: (70 * 256 / smaller) as u32,
            }),
            96,
        )
    };
    clients::run(&script, watch)
}

/// Row 6 at a sixteenth: 16 jobs read 16 files of 3 G through mappings under 12 G, zipf 1.2.
pub fn mapped_reads(
    mechanisms: Mechanisms,
    seed: u64,
    shorter: u32,
    watch: &dyn Watch,
) -> Result<Facts, Error> {
    let smaller = 16 * smaller(shorter);
    const JOBS: u64 = 16;
    let machine = Machine { cpus: JOBS as usize, ..Machine::kernel_lab(12 * GIB_PAGES / smaller) };
    let machine = with_swap(machine, mechanisms, 0, seed);
    let mut simulator = Simulator::new(&machine).map_err(Error::work)?;
    for job in 0..JOBS {
        let pattern = Pattern {
            order: Order::Random(Distribution::Zipf { theta: 1.2 }),
            mix: Mix::Read,
            block_bytes: BlockBytes::both(4096),
            size_bytes: 3 * GIB_PAGES / smaller * 4096,
            length: Length::Endless,
            seed: seed * JOBS + job,
        };
        let reads = pattern.accesses().map_err(Error::work)?;
        simulator.add_job(
            0,
            reads.map(move |read| Operation::from(Access::load((job << 32) + read.offset / 4096))),
        );
    }
    let accesses = 16_000_000 / u64::from(shorter);
    let mut to = |accesses: u64| -> Result<_, Error> {
        while simulator.accesses() < accesses {
            watch.check()?;
            simulator.step().map_err(Error::work)?;
        }
        Ok(simulator.report())
    };
    let from = to(accesses / 2)?;
    let end = to(accesses)?;
    Ok(Facts {
        tally: end.total().since(&from.total()),
        operations: end.accesses() - from.accesses(),
        pages_read: end.device.pages_read - from.device.pages_read,
        seconds: end.now.since(from.now).as_secs_f64(),
        ..Facts::default()
    })
}

/// Row 3: 44 G of anonymous memory and a file of 8 G under 48 G without swap, divided by `smaller`;
/// 8 clients read, 8 allocate. A mapped file is read in units of 128 KiB, so each page takes a 32nd
/// of such a read.
pub fn file_anon(
    mechanisms: Mechanisms,
    seed: u64,
    smaller: u64,
    rounds: u64,
    watch: &dyn Watch,
) -> Result<Facts, Error> {
    let machine = Machine {
        cpus: 16,
        scan_time: SCAN_TIME,
        walk_time: WALK_TIME,
        ..with_swap(Machine::kernel_lab(48 * GIB_PAGES / smaller), mechanisms, 0, seed)
    };
    let nvme = machine.device.read;
    let read = Lane { latency: Latency::Skewed { median: READ_TIME / 32, spread_permille: 250 }, ..nvme };
    let machine = Machine { device: DeviceModel { read, ..machine.device }, ..machine };
    let mix = FileAnon {
        file_pages: (8 * GIB_PAGES / smaller) as u32,
        anon_pages: (44 * GIB_PAGES / smaller) as u32,
        readers: 8,
    };
    let script = Script {
        window: Window { rounds, ..Window::default() },
        ..Script::new(machine, Load::FileAnon(mix), 16)
    };
    clients::run(&script, watch)
}

/// Row 4: a file of three times the limit is written as fast as possible to a disk of 40 MB/s,
/// without dirty limits of the cgroup. The limit is a quarter of the published 256 M, as in the
/// runs on real kernels, whose machine is modelled here ([`fidelity`](crate::fidelity::oom)).
pub fn small_writer(mechanisms: Mechanisms, seed: u64, watch: &dyn Watch) -> Result<Facts, Error> {
    const LIMIT_PAGES: u64 = GIB_PAGES / 16;
    let writer = DirtyWriter {
        limit_pages: LIMIT_PAGES,
        file_pages: 3 * LIMIT_PAGES,
        disk_bytes_per_second: 40_000_000,
        memcg_dirty_limits: false,
        reads_statistics: false,
        large_folios: true,
    };
    let outcome = writer.run(mechanisms, seed, watch)?;
    Ok(Facts { died: outcome.killed, ..Facts::default() })
}
