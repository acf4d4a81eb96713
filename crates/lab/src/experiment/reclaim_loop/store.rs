//! YCSB on a document store under one limit: the runs behind rows 1 and its controls.

use super::super::SCAN_TIME;
use super::clients::{self, Facts, Script, Window};
use crate::Error;
use mglru_core::Mechanisms;
use mglru_sim::{DeviceModel, FlusherModel, Interleaving, Lane, Latency, Machine, Writes};
use mglru_workload::Load;
use mglru_workload::ycsb::{Letter, Ycsb};
use std::time::Duration;

/// As published.
pub const CLIENTS: u32 = 32;
/// 10 G.
pub const PUBLISHED_LIMIT_PAGES: u64 = 2_621_440;
/// The published proportions, per page of limit: 20 M records, 6 M operations, and a cache of 4.5
/// G.
const RECORDS_PER_LIMIT: f64 = 20_000_000.0 / PUBLISHED_LIMIT_PAGES as f64;
const OPERATIONS_PER_LIMIT: f64 = 6_000_000.0 / PUBLISHED_LIMIT_PAGES as f64;
const CACHE_PER_LIMIT: f64 = 0.45;
/// Before anything is counted, a third as many operations as are counted fill memory.
const WARM: u64 = 3;
const TOUCH_TIME: Duration = Duration::from_nanos(500);
/// A leaf's eight pages are read one after the other here: each in an eighth of the time of one
/// read of 32 KiB.
const LEAF_READ_TIME: Duration = Duration::from_micros(96);
/// What a walk takes for an entry of a page table that is in the processor's cache. Nothing that is
/// counted depends on it or on [`SCAN_TIME`] by more than 0.3 % (docs/experiments/reclaim-loop.md).
pub(super) const WALK_TIME: Duration = Duration::from_nanos(10);
const WRITE_TIME: Duration = Duration::from_micros(20);

/// Reads of a leaf take 96 µs, at 3 GB/s; writes 20 µs, at 1.5 GB/s.
fn device() -> DeviceModel {
    let lane = |median: Duration, bytes_per_second| Lane {
        latency: Latency::Skewed { median, spread_permille: 250 },
        bytes_per_second,
        depth: 128,
        burst: Duration::ZERO,
        failures_per_million: 0,
    };
    DeviceModel { read: lane(LEAF_READ_TIME / 8, 3_000_000_000), write: lane(WRITE_TIME, 1_500_000_000) }
}

/// A run.
#[derive(Debug, Clone, Copy)]
pub struct StoreRun {
    /// How the cache behaves.
    pub mechanisms: Mechanisms,
    /// Of a hundred operations.
    pub writes_percent: u32,
    /// The limit. Records, operations and the engine's cache are in proportion to it.
    pub limit_pages: u64,
    /// Decides every random choice.
    pub seed: u64,
    /// Operations are divided by this.
    pub shorter: u64,
    /// It is seen event by event, and over time.
    pub watched: bool,
}

impl StoreRun {
    /// As published, but for the size.
    pub fn new(mechanisms: Mechanisms, limit_pages: u64, seed: u64) -> StoreRun {
        StoreRun { mechanisms, writes_percent: 5, limit_pages, seed, shorter: 1, watched: false }
    }

    fn load(&self) -> Load {
        let limit = self.limit_pages as f64;
        Load::Ycsb(Ycsb {
            letter: Letter::B,
            writes_percent: self.writes_percent,
            records: (limit * RECORDS_PER_LIMIT) as u32,
            cache_pages: (limit * CACHE_PER_LIMIT) as u32,
            uniform: false,
        })
    }

    /// Runs it.
    pub fn run(&self) -> Result<Facts, Error> {
        let machine = Machine {
            mechanisms: self.mechanisms,
            cpus: CLIENTS as usize,
            device: device(),
            // The published machine has 128 GB: only the limit is short.
            flusher: Some(FlusherModel { memory_permille: 1000, ..FlusherModel::default() }),
            writes: Writes::Overwrite,
            access_time: TOUCH_TIME,
            scan_time: SCAN_TIME,
            walk_time: WALK_TIME,
            interleaving: Interleaving::Seeded,
            seed: self.seed,
            ..Machine::kernel_lab(self.limit_pages)
        };
        let operations = (self.limit_pages as f64 * OPERATIONS_PER_LIMIT) as u64;
        // Memory is filled whatever is shorter.
        let (warm, counted) = (operations / WARM, operations / self.shorter);
        clients::run(&Script {
            watched: self.watched,
            window: Window { warm_draws: warm, draws: counted, ..Window::default() },
            ..Script::new(machine, self.load(), CLIENTS)
        })
    }
}
