//! Runs of YCSB on a document store under one limit, in the simulator.

use super::Facts;
use crate::error::Failure;
use mglru_core::{Event, Mechanisms};
use mglru_sim::{
    DeviceModel, FlusherModel, Interleaving, Lane, Latency, Machine, Operation, Simulator, Source,
    SourceError, Writes,
};
use mglru_workload::Load;
use mglru_workload::load::{Running, Step};
use mglru_workload::ycsb::{Letter, Ycsb};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// As published.
pub const CLIENTS: u32 = 32;
/// The published proportions, per limit: 20 M records and a cache of 4.5 G for 10 G.
const RECORDS_PER_LIMIT: f64 = 20_000_000.0 / 2_621_440.0;
const CACHE_PER_LIMIT: f64 = 0.45;
/// 10 G.
pub const LIMIT_PAGES: u64 = 2_621_440;
const TOUCH_TIME: Duration = Duration::from_nanos(500);
/// A leaf's eight pages are read one after the other here: each in an eighth of the time of one read of 32 KiB.
const LEAF_READ_TIME: Duration = Duration::from_micros(96);

/// A device, by what a read of a leaf and writing take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// NVMe: 96 µs, 1.5 GB/s.
    Nvme,
    /// A SATA disk without moving parts: 250 µs, 200 MB/s.
    Sata,
    /// A network disk: 1 ms, 60 MB/s.
    Network,
}

impl Disk {
    fn model(self) -> DeviceModel {
        let (read_times, bytes_read, bytes_written) = match self {
            Disk::Nvme => (1, 3_000_000_000, 1_500_000_000),
            Disk::Sata => (3, 500_000_000, 200_000_000),
            Disk::Network => (10, 200_000_000, 60_000_000),
        };
        let lane = |time: Duration, bytes_per_second| Lane {
            latency: Latency::Skewed { median: time, spread_permille: 250 },
            bytes_per_second,
            depth: 128,
            failures_per_million: 0,
        };
        DeviceModel {
            read: lane(LEAF_READ_TIME * read_times / 8, bytes_read),
            write: lane(Duration::from_micros(20) * read_times, bytes_written),
        }
    }
}

/// A run.
#[derive(Debug, Clone, Copy)]
pub struct StoreRun {
    /// How the cache behaves.
    pub mechanisms: Mechanisms,
    /// Of a hundred operations.
    pub writes_percent: u32,
    /// The limit; records and cache are in proportion to it.
    pub limit_pages: u64,
    /// Where the file is.
    pub disk: Disk,
    /// Operations before anything is counted, and those that are.
    pub operations: (u64, u64),
    /// Decides every random choice.
    pub seed: u64,
}

struct Client {
    running: Rc<RefCell<Running>>,
    begun: Rc<Cell<u64>>,
    steps: Vec<Step>,
}

impl Source for Client {
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        self.steps.clear();
        self.running.borrow_mut().draw(0, &mut self.steps);
        self.begun.set(self.begun.get() + 1);
        batch.extend(self.steps.iter().map(|&step| Operation::from(step)));
        Ok(())
    }
}

impl StoreRun {
    /// The load.
    pub fn load(&self) -> Load {
        let limit = self.limit_pages as f64;
        Load::Ycsb(Ycsb {
            letter: Letter::B,
            writes_percent: self.writes_percent,
            records: (limit * RECORDS_PER_LIMIT) as u32,
            cache_pages: (limit * std::env::var("CACHE").map_or(CACHE_PER_LIMIT, |v| v.parse().unwrap()))
                as u32,
            uniform: std::env::var("UNIFORM").is_ok(),
        })
    }

    fn machine(&self) -> Machine {
        Machine {
            mechanisms: self.mechanisms,
            cpus: CLIENTS as usize,
            device: self.disk.model(),
            // The published machine has 128 GB: only the limit is short.
            flusher: Some(FlusherModel { memory_permille: 1000, ..FlusherModel::default() }),
            writes: Writes::Overwrite,
            access_time: TOUCH_TIME,
            interleaving: Interleaving::Seeded,
            seed: self.seed,
            ..Machine::kernel_lab(self.limit_pages)
        }
    }

    /// Runs it.
    pub fn run(&self) -> Result<Facts, Failure> {
        let mut simulator = Simulator::new(&self.machine()).map_err(Failure::work)?;
        let running = self.load().start(CLIENTS, self.seed).map_err(Failure::work)?;
        let (running, begun) = (Rc::new(RefCell::new(running)), Rc::new(Cell::new(0)));
        for _ in 0..CLIENTS {
            let (running, begun) = (running.clone(), begun.clone());
            simulator.add_job(0, Client { running, begun, steps: Vec::new() });
        }
        let efforts = Rc::new(RefCell::new(super::Efforts::default()));
        let seen = efforts.clone();
        simulator.observe(move |_, event: &Event| seen.borrow_mut().note(event));
        let (warm, counted) = self.operations;
        let advance = |simulator: &mut Simulator, to: u64| -> Result<(), Failure> {
            while begun.get() < to {
                simulator.step().map_err(Failure::work)?;
            }
            Ok(())
        };
        advance(&mut simulator, warm)?;
        let (from, device, efforts_before) =
            (simulator.report(), simulator.report().device, efforts.borrow().clone());
        advance(&mut simulator, warm + counted)?;
        simulator.core().validate().map_err(Failure::work)?;
        let to = simulator.report();
        let tally = to.total().since(&from.total());
        let efforts = efforts.borrow().since(&efforts_before);
        Ok(Facts {
            tally,
            pages_read: to.device.pages_read - device.pages_read,
            operations: counted,
            seconds: to.now.since(from.now).as_secs_f64(),
            efforts,
            ..Facts::default()
        })
    }
}
