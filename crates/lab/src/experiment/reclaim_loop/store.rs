//! YCSB on a document store under one limit: the runs of row 1 and its controls.

use super::super::SCAN_TIME;
use crate::clients::{self, Facts, Script, Window};
use crate::{Error, Watch};
use mglru_core::Mechanisms;
use mglru_sim::{DeviceModel, FlusherModel, Interleaving, Lane, Latency, Machine, Writes};
use mglru_workload::Load;
use mglru_workload::ycsb::{Letter, Ycsb};
use std::time::Duration;

/// As published.
pub const CLIENTS: u32 = 32;
/// 10 G.
pub const PUBLISHED_LIMIT_PAGES: u64 = 2_621_440;
/// The published proportions per page of limit: 20 M records, 6 M operations, and a cache of 4.5 G.
const RECORDS_PER_LIMIT: f64 = 20_000_000.0 / PUBLISHED_LIMIT_PAGES as f64;
const OPERATIONS_PER_LIMIT: f64 = 6_000_000.0 / PUBLISHED_LIMIT_PAGES as f64;
const CACHE_PER_LIMIT: f64 = 0.45;
/// A third of the counted operations fill memory before counting starts.
const WARM: u64 = 3;
const TOUCH_TIME: Duration = Duration::from_nanos(500);
/// Read time of each of a leaf's eight pages, which are read one by one here: an eighth of a read
/// of 32 KiB.
const LEAF_READ_TIME: Duration = Duration::from_micros(96);
/// Time of a walk per page-table entry in the processor's cache. Counters depend on it and on
/// [`SCAN_TIME`] by 0.3 % at most.
pub(super) const WALK_TIME: Duration = Duration::from_nanos(10);
const WRITE_TIME: Duration = Duration::from_micros(20);

/// Reads of a leaf take 96 µs, at 3 GB/s; writes 20 µs, at 1.5 GB/s.
fn device() -> DeviceModel {
    let lane = |median: Duration, bytes_per_second| Lane {
        latency: Latency::Skewed { median, spread_permille: 250 },
        bytes_per_second,
        depth: 128,
        burst: Duration::ZERO,
        in_order: false,
        failures_per_million: 0,
    };
    DeviceModel { read: lane(LEAF_READ_TIME / 8, 3_000_000_000), write: lane(WRITE_TIME, 1_500_000_000) }
}

/// Parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct StoreRun {
    /// Mechanisms of the cache.
    pub mechanisms: Mechanisms,
    /// Percentage of operations that write.
    pub writes_percent: u32,
    /// Limit in pages. Records, operations and the engine's cache scale with it.
    pub limit_pages: u64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Divisor of the number of operations.
    pub shorter: u64,
    /// Whether to observe events and record a timeline.
    pub watched: bool,
}

impl StoreRun {
    /// The published run, scaled to the limit.
    pub fn new(mechanisms: Mechanisms, limit_pages: u64, seed: u64) -> StoreRun {
        StoreRun { mechanisms, writes_percent: 5, limit_pages, seed, shorter: 1, watched: false }
    }

    fn load(&self) -> Load {
        let limit = self.limit_pages as f64;
        let [records, cache_pages] =
            [RECORDS_PER_LIMIT, CACHE_PER_LIMIT].map(|per_limit| (limit * per_limit) as u32);
        Load::Ycsb(Ycsb { writes_percent: self.writes_percent, ..Ycsb::new(Letter::B, records, cache_pages) })
    }

    /// Runs the store.
    ///
    /// # Errors
    /// As [`clients::run`].
    pub fn run(&self, watch: &dyn Watch) -> Result<Facts, Error> {
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
        // Memory is filled regardless of `shorter`.
        let (warm, counted) = (operations / WARM, operations / self.shorter);
        let script = Script {
            watched: self.watched,
            window: Window { warm_draws: warm, draws: counted, ..Window::default() },
            ..Script::new(machine, self.load(), CLIENTS)
        };
        clients::run(&script, watch)
    }
}
