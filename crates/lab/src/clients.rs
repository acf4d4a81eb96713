//! Clients of a load on a simulated machine, and their results: operations, latencies, fairness,
//! and the reclaim during the run.

use crate::experiment::crosscheck::{Crosscheck, Watcher};
use crate::statistics::jain;
use crate::timeline::{self, Timeline};
use crate::{Error, Watch};
use mglru_core::{Counter, Event, Time};
use mglru_sim::{Machine, Operation, Report, Simulator, Source, SourceError, Tally, Tenant};
use mglru_workload::Load;
use mglru_workload::load::Step;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Start and end of counting, which require all of these conditions.
#[derive(Debug, Clone, Copy, Default)]
pub struct Window {
    /// Draws before counting starts.
    pub warm_draws: u64,
    /// Counted draws.
    pub draws: u64,
    /// Counted simulated time.
    pub time: Duration,
    /// End the run early after this many rounds of each allocator, or at a failed allocation; 0 to
    /// disable.
    pub rounds: u64,
}

/// Parameters of a run.
pub struct Script {
    /// The machine.
    pub machine: Machine,
    /// The load.
    pub load: Load,
    /// Number of clients, which use the machine's tenants in turn.
    pub clients: u32,
    /// Counted part of the run.
    pub window: Window,
    /// Whether to observe events and record a timeline.
    pub watched: bool,
}

impl Script {
    /// A script that counts nothing and is not observed.
    pub fn new(machine: Machine, load: Load, clients: u32) -> Script {
        Script { machine, load, clients, window: Window::default(), watched: false }
    }
}

/// Results of reclaim efforts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Efforts {
    /// Number of efforts, by their final priority.
    pub at_priority: [u64; 13],
    /// Pages reclaimed by all efforts.
    pub reclaimed: u64,
}

impl Efforts {
    fn note(&mut self, event: &Event) {
        if let Event::Effort { reclaimed, priority, .. } = *event {
            self.at_priority[usize::from(priority.min(12))] += 1;
            self.reclaimed += reclaimed;
        }
    }

    fn since(&self, before: &Efforts) -> Efforts {
        Efforts {
            at_priority: std::array::from_fn(|at| self.at_priority[at] - before.at_priority[at]),
            reclaimed: self.reclaimed - before.reclaimed,
        }
    }

    /// Number of efforts.
    pub fn count(&self) -> u64 {
        self.at_priority.iter().sum()
    }
}

/// Results of the counted part of a run.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Counters and counts.
    pub tally: Tally,
    /// Pages read from the device.
    pub pages_read: u64,
    /// Pages that operations read from files, cached or not, in whole draws.
    pub file_reads: u64,
    /// Draws of the load.
    pub operations: u64,
    /// Draws of each client.
    pub of_client: Vec<u64>,
    /// Average number of rounds per allocator.
    pub rounds: f64,
    /// Whether an allocation failed for lack of memory.
    pub died: bool,
    /// Duration on the machine's clock, in seconds.
    pub seconds: f64,
    /// Reclaim efforts.
    pub efforts: Efforts,
    /// Whether the counters of the whole run agree: isolated ≥ stolen, and pages stolen by tasks
    /// are those reclaimed by their efforts. Background reclaim reports no efforts.
    pub adds_up: bool,
    /// Timeline of the whole run for all tenants, if watched.
    pub timeline: Option<Timeline>,
    /// Observed events, if watched.
    pub crosscheck: Option<Crosscheck>,
}

impl Facts {
    /// Value of a counter.
    pub fn count(&self, counter: Counter) -> f64 {
        self.tally.counters.get(counter) as f64
    }

    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }

    /// Jain's fairness index of the clients' operations.
    pub fn jain(&self) -> f64 {
        jain(&self.of_client.iter().map(|&done| done as f64).collect::<Vec<f64>>())
    }
}

/// Counts of the clients.
#[derive(Debug, Default, Clone)]
struct Counts {
    /// Draws of all clients since the start of the run.
    begun: u64,
    /// Draws that each client ended since counting started.
    done_of_client: Vec<u64>,
    /// Ended rounds of allocators since the start of the run.
    releases: u64,
    /// Pages read from files since counting started.
    file_reads: u64,
    /// Whether clients must not begin new draws.
    over: bool,
}

/// Gives a client its next steps.
type Draw = dyn FnMut(usize, &mut Vec<Step>);

struct Client {
    draw: Rc<RefCell<Draw>>,
    counts: Rc<RefCell<Counts>>,
    number: usize,
    /// Whether a draw is under way.
    began: bool,
    steps: Vec<Step>,
}

impl Source for Client {
    fn at(&mut self, _: Time) {
        if std::mem::replace(&mut self.began, true) {
            self.counts.borrow_mut().done_of_client[self.number] += 1;
        }
    }

    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        self.steps.clear();
        self.draw.borrow_mut()(self.number, &mut self.steps);
        let counts = &mut *self.counts.borrow_mut();
        counts.begun += 1;
        let reads = |step: &&Step| matches!(step, Step::Touch(touch) if !touch.anon && !touch.write);
        counts.file_reads += self.steps.iter().filter(reads).count() as u64;
        counts.releases +=
            self.steps.iter().filter(|step| matches!(step, Step::Release { .. })).count() as u64;
        batch.extend(self.steps.iter().map(|&step| Operation::from(step)));
        Ok(())
    }

    fn end(&self) -> Option<Time> {
        self.counts.borrow().over.then_some(Time::ZERO)
    }
}

/// Runs a script.
///
/// # Errors
/// A bug in the simulator, or [`Error::Cancelled`].
pub fn run(script: &Script, watch: &dyn Watch) -> Result<Facts, Error> {
    let simulator = Simulator::new(&script.machine).map_err(Error::work)?;
    let mut running = script.load.start(script.clients, script.machine.seed).map_err(Error::work)?;
    let allocators = match script.load {
        Load::FileAnon(mix) => script.clients - mix.readers,
        _ => script.clients,
    };
    let clients = Clients {
        tenants: &script.machine.tenants,
        number: script.clients,
        allocators,
        window: script.window,
        watched: script.watched,
    };
    clients.run(simulator, move |client, steps| running.draw(client, steps), watch)
}

/// Clients that draw from one load, and the counted part of their run.
pub struct Clients<'a> {
    /// The machine's tenants, which the clients use in turn.
    pub tenants: &'a [Tenant],
    /// Number of clients.
    pub number: u32,
    /// Number of those that allocate memory in rounds.
    pub allocators: u32,
    /// Counted part of the run.
    pub window: Window,
    /// Whether to observe events and record a timeline.
    pub watched: bool,
}

impl Clients<'_> {
    /// Runs the clients on a machine. `draw` gives the client with a number its next steps.
    ///
    /// # Errors
    /// A bug in the simulator, or [`Error::Cancelled`].
    pub fn run(
        &self,
        mut simulator: Simulator,
        draw: impl FnMut(usize, &mut Vec<Step>) + 'static,
        watch: &dyn Watch,
    ) -> Result<Facts, Error> {
        let draw = Rc::new(RefCell::new(draw));
        let counts = Counts { done_of_client: vec![0; self.number as usize], ..Counts::default() };
        let counts = Rc::new(RefCell::new(counts));
        for number in 0..self.number as usize {
            let client = Client {
                draw: draw.clone(),
                counts: counts.clone(),
                number,
                began: false,
                steps: Vec::new(),
            };
            simulator.add_job(number % self.tenants.len(), client);
        }
        let watcher = self.watched.then(|| {
            timeline::watch(&mut simulator);
            Watcher::watch(&mut simulator)
        });
        let efforts = Rc::new(RefCell::new(Efforts::default()));
        let seen = efforts.clone();
        simulator.observe(move |_, event: &Event| seen.borrow_mut().note(event));

        let Window { warm_draws, draws, time, rounds } = self.window;
        while counts.borrow().begun < warm_draws {
            watch.check()?;
            simulator.step().map_err(Error::work)?;
        }
        let (from, efforts_before, begun_before) =
            (simulator.report(), efforts.borrow().clone(), counts.borrow().begun);
        {
            let counts = &mut *counts.borrow_mut();
            counts.done_of_client.fill(0);
            counts.file_reads = 0;
        }
        let allocators = u64::from(self.allocators);
        let end = from.now + time;
        let died = |now: &Report| now.total().counts.out_of_memory > 0;
        let mut steps = 0_u64;
        loop {
            watch.check()?;
            steps += 1;
            // Reading all counters is slow and needed rarely: an allocator without memory only
            // retries for a long time.
            if rounds > 0 && steps.is_multiple_of(64) && died(&simulator.report()) {
                break;
            }
            let (begun, releases) = (counts.borrow().begun, counts.borrow().releases);
            let all_rounds = rounds > 0 && releases >= rounds * allocators;
            let enough = begun >= warm_draws + draws && simulator.now() >= end;
            if all_rounds || rounds == 0 && enough || !simulator.step().map_err(Error::work)? {
                break;
            }
        }
        let to = simulator.report();
        let died = died(&to);
        let efforts_seen = efforts;
        let efforts = efforts_seen.borrow().since(&efforts_before);
        // All clients finish before the final count.
        let ended = counts.borrow().clone();
        counts.borrow_mut().over = true;
        // A client without memory would keep failing slowly, page by page.
        let adds_up = rounds > 0 && died || {
            let whole = simulator.run().map_err(Error::work)?.total().counters;
            simulator.finish().map_err(Error::work)?;
            whole.pgscan() >= whole.pgsteal()
                && efforts_seen.borrow().reclaimed == whole.get(Counter::PgstealDirect)
        };
        let names: Vec<String> = self.tenants.iter().map(|tenant| tenant.path.clone()).collect();
        let counts = &ended;
        Ok(Facts {
            tally: to.total().since(&from.total()),
            pages_read: to.device.pages_read - from.device.pages_read,
            file_reads: counts.file_reads,
            operations: counts.begun - begun_before,
            of_client: counts.done_of_client.clone(),
            rounds: counts.releases as f64 / allocators as f64,
            died,
            seconds: to.now.since(from.now).as_secs_f64(),
            efforts,
            adds_up,
            timeline: watcher.as_ref().map(|_| Timeline::of("", &simulator, &names)),
            crosscheck: watcher.map(|watcher| watcher.finish(&simulator)),
        })
    }
}
