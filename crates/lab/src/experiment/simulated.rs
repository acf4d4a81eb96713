//! Runs of the experiments in the simulator.

use super::crosscheck::Watcher;
use super::workingset::{CLIENTS, Part, Run, SWEEP_THREADS, Task};
use crate::timeline::{self, Timeline};
use crate::{Error, Watch};
use mglru_core::lru::Swappiness;
use mglru_core::{Counter, Mechanisms, Time};
use mglru_sim::{
    Access, DeviceModel, Interleaving, Lane, Latency, Machine, Operation, Simulator, Source, SourceError,
    SwapDevice, SwapModel,
};
use mglru_workload::load::{Running, Step};
use mglru_workload::random::mix;
use mglru_workload::{Load, Random};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// The limit of the experiments.
pub const LIMIT_PAGES: u64 = 16_384;
/// The default of most distributions.
pub const SWAPPINESS: Swappiness = Swappiness::DEFAULT;
/// Description of the scale.
pub const SCALE: &str =
    "  In the simulator: limit 64 MiB, A 30 s, its control 8 s and B 6 s of simulated time.";

const TPCC_TIME: Duration = Duration::from_secs(30);
/// Processor time per page touched by a transaction.
const TOUCH_TIME: Duration = Duration::from_micros(1);
const CONTROL_TIME: Duration = Duration::from_secs(8);
const SWEEP_TIME: Duration = Duration::from_secs(6);
/// Computing time per array, for one page of each of three arrays.
const ZONE_TIME: Duration = Duration::from_micros(10);
/// Read time of persistent memory through a block device.
const PERSISTENT_READ_TIME: Duration = Duration::from_micros(20);

/// A client of a shared load.
struct Client {
    running: Rc<RefCell<Running>>,
    number: usize,
    mapped_percent: u64,
    begun: Rc<Cell<u64>>,
    steps: Vec<Step>,
}

impl Source for Client {
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        self.steps.clear();
        self.running.borrow_mut().draw(self.number, &mut self.steps);
        self.begun.set(self.begun.get() + 1);
        batch.extend(self.steps.iter().map(|&step| match step {
            Step::Touch(touch) => {
                let mapped = touch.mapped || mix(touch.page) % 100 < self.mapped_percent;
                Access { mapped, ..Access::from(touch) }.into()
            }
            step => Operation::from(step),
        }));
        Ok(())
    }
}

/// A run of a load under a limit: the building block of the experiments.
pub struct LoadRun {
    /// The load.
    pub load: Load,
    /// Number of clients, each with a processor.
    pub clients: u32,
    /// Percentage of file pages that are accessed through mappings.
    pub mapped_percent: u64,
    /// Mechanisms of the cache.
    pub mechanisms: Mechanisms,
    /// Limit in pages.
    pub limit_pages: u64,
    /// Swappiness.
    pub swappiness: Swappiness,
    /// Seed of all random choices.
    pub seed: u64,
    /// Simulated duration.
    pub time: Duration,
    /// Whether to record a timeline.
    pub watched: bool,
}

impl LoadRun {
    fn machine(&self) -> Machine {
        let persistent = Lane { latency: Latency::Fixed(PERSISTENT_READ_TIME), ..Lane::IDEAL };
        let (access_time, swap) = match self.load {
            Load::Sweep { .. } => {
                let model = DeviceModel { read: persistent, write: persistent };
                (ZONE_TIME, SwapDevice::Disk { model, cpu: 0 })
            }
            _ => (TOUCH_TIME, SwapDevice::zram()),
        };
        Machine {
            mechanisms: self.mechanisms,
            swappiness: self.swappiness,
            access_time,
            seed: self.seed,
            ..machine(self.limit_pages, self.clients, swap)
        }
    }

    /// Runs the load.
    ///
    /// # Errors
    /// A bug in the simulator, or [`Error::Cancelled`].
    pub fn run(&self, watch: &dyn Watch) -> Result<Run, Error> {
        let mut simulator = Simulator::new(&self.machine()).map_err(Error::work)?;
        let watcher = self.watched.then(|| {
            timeline::watch(&mut simulator);
            Watcher::watch(&mut simulator)
        });
        let running = self.load.start(self.clients, self.seed).map_err(Error::work)?;
        let (running, begun) = (Rc::new(RefCell::new(running)), Rc::new(Cell::new(0)));
        for number in 0..self.clients as usize {
            let (running, begun) = (running.clone(), begun.clone());
            let mapped_percent = self.mapped_percent;
            simulator.add_job(0, Client { running, number, mapped_percent, begun, steps: Vec::new() });
        }
        let run = finish(&mut simulator, self.time, watch)?;
        let timeline = self.watched.then(|| Timeline::of("", &simulator, &["the load".to_owned()]));
        let crosscheck = watcher.map(|watcher| watcher.finish(&simulator));
        Ok(Run { transactions: begun.get(), timeline, crosscheck, ..run })
    }
}

/// A machine with a CPU per client, a fast disk, and swap of four times the limit.
fn machine(limit_pages: u64, clients: u32, swap: SwapDevice) -> Machine {
    Machine {
        cpus: clients as usize,
        device_cpu: 0,
        device: DeviceModel::nvme(),
        swap: Some(SwapModel { pages: 4 * limit_pages as u32, device: swap }),
        access_time: TOUCH_TIME,
        interleaving: Interleaving::Seeded,
        ..Machine::kernel_lab(limit_pages)
    }
}

/// Runs until the time is over, and sums up.
fn finish(simulator: &mut Simulator, time: Duration, watch: &dyn Watch) -> Result<Run, Error> {
    let until = Time::ZERO + time;
    while simulator.now() < until && simulator.step().map_err(Error::work)? {
        watch.check()?;
    }
    simulator.core().validate().map_err(Error::work)?;
    let report = simulator.report();
    let tally = report.total();
    Ok(Run {
        counters: Counter::ALL.iter().map(|&counter| (counter.name(), tally.counters.get(counter))).collect(),
        accesses: tally.counts.accesses,
        out_of_memory: tally.counts.out_of_memory,
        seconds: report.now.as_nanos() as f64 / 1e9,
        ..Run::default()
    })
}

/// Runs a part of an experiment.
///
/// # Errors
/// As [`LoadRun::run`].
pub fn run(task: &Task, watch: &dyn Watch) -> Result<Run, Error> {
    let &Task { part, mechanisms, seed, shorter, watched } = task;
    let (clients, mapped_percent, time) = match part {
        Part::Tpcc { mapped_percent } => (CLIENTS, mapped_percent, TPCC_TIME),
        Part::Control => (1, 0, CONTROL_TIME),
        Part::Sweep => (SWEEP_THREADS, 0, SWEEP_TIME),
    };
    let time = time / shorter;
    let (limit_pages, swappiness) = (LIMIT_PAGES, SWAPPINESS);
    if let Some(load) = part.load(LIMIT_PAGES) {
        let run = LoadRun {
            load,
            clients,
            mapped_percent,
            mechanisms,
            limit_pages,
            swappiness,
            seed,
            time,
            watched,
        };
        return run.run(watch);
    }
    let machine =
        Machine { mechanisms, swappiness, seed, ..machine(limit_pages, clients, SwapDevice::zram()) };
    let mut simulator = Simulator::new(&machine).map_err(Error::work)?;
    // Two jobs, because a single one would run beyond the end of the time.
    for job in 0..2 {
        let mut random = Random::stream(seed, job);
        let read = move || Access::read(random.below(2 * LIMIT_PAGES)).into();
        simulator.add_job(0, std::iter::repeat_with(read));
    }
    finish(&mut simulator, time, watch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::CancelAfter;

    /// A run looked at no watch.
    #[test]
    fn every_part_is_cancelled_while_it_runs() {
        for part in [Part::Tpcc { mapped_percent: 0 }, Part::Control, Part::Sweep] {
            let mechanisms = Mechanisms::default();
            let task = Task { part, mechanisms, seed: 1, shorter: 100, watched: false };
            assert!(matches!(run(&task, &CancelAfter::looks(100)), Err(Error::Cancelled)));
        }
    }
}
