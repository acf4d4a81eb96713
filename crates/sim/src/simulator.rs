//! Runs a machine: chooses the next actor and advances virtual time.
//!
//! ```text
//! loop   handle all due events        writes end, rests end
//!        one runnable actor acts      the first, or one chosen by the seed
//!        wake the called actors       flusher, background reclaim, waiters for a page
//!        no actor runnable            time jumps to the next event
//! ```
//!
//! An actor that is the only runnable one may skip rests that end before the next event, which
//! changes nothing but speed; [`Simulator::set_shortcuts`] turns that off.

use crate::actor::{
    Actor, Administrator, Answer, BackgroundActor, Command, ControlReader, FlusherActor, Job, Process,
    Reading, Reaper,
};
use crate::checker::{self, Model};
use crate::host::Observer;
use crate::machine::{Interleaving, Machine, Tenant};
use crate::operation::{Source, SourceError};
use crate::report::{Report, RequestReport, TenantReport};
use crate::sample::Sample;
use crate::swap::Swap;
use crate::world::{ActorId, Due, Pause, TenantState, World};
use mglru_core::{Core, MemcgError, MemcgId, OomPolicy, Task, Time};
use mglru_workload::Random;
use mglru_workload::fio::Latencies;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// Steps without an access or clock advance after which the run is stuck.
const FRUITLESS_STEPS_MAX: u64 = 10_000_000;

/// An error while building or running a machine.
#[derive(Debug)]
#[non_exhaustive]
pub enum SimError {
    /// The machine's configuration is invalid.
    Machine(String),
    /// A tenant could not be created.
    Tenant(MemcgError),
    /// The input of the job with this number cannot be read, or uses an unsupported feature.
    Job(usize, SourceError),
    /// All actors wait, or spin without progress. A bug.
    Stuck(String),
    /// The checker found an inconsistency. A bug.
    Check {
        /// Number of steps before it was found.
        step: u64,
        /// The inconsistency.
        what: String,
    },
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimError::Machine(what) => write!(f, "the machine cannot be built: {what}"),
            SimError::Tenant(error) => error.fmt(f),
            SimError::Job(job, error) => write!(f, "job {job}: {error}"),
            SimError::Stuck(what) => write!(f, "the simulation is stuck: {what}"),
            SimError::Check { step, what } => write!(f, "after step {step}: {what}"),
        }
    }
}

impl std::error::Error for SimError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SimError::Tenant(error) => Some(error),
            SimError::Job(_, error) => Some(&**error),
            _ => None,
        }
    }
}

/// An actor and the reason why it waits.
#[derive(Debug)]
struct Place {
    actor: Actor,
    pause: Pause,
    /// Number of the current rest, so that the end of a rest that was cut short is not mistaken for
    /// the end of a later one.
    nap: u64,
}

/// A machine and its jobs.
#[derive(Debug)]
pub struct Simulator {
    world: World,
    places: Vec<Place>,
    runnable: VecDeque<ActorId>,
    background: ActorId,
    flusher: Option<ActorId>,
    /// Present if tenants may be killed.
    reaper: Option<ActorId>,
    /// Number of actors that wait for a write to end.
    writes_awaited: usize,
    jobs: usize,
    jobs_left: usize,
    cpus: usize,
    interleaving: Interleaving,
    random: Random,
    shortcuts: bool,
    check_every: Option<u64>,
    steps: u64,
    /// The step of the last progress, and the accesses and time then.
    progress: (u64, u64, Time),
}

impl Simulator {
    /// Builds a machine.
    ///
    /// # Errors
    /// [`SimError::Machine`] or [`SimError::Tenant`]: the configuration is invalid.
    pub fn new(machine: &Machine) -> Result<Simulator, SimError> {
        if let Some(flaw) = machine.flaw() {
            return Err(SimError::Machine(flaw.to_owned()));
        }
        let mut simulator = Simulator {
            world: World::new(machine).map_err(SimError::Tenant)?,
            places: Vec::new(),
            runnable: VecDeque::new(),
            background: ActorId(0),
            flusher: None,
            reaper: None,
            writes_awaited: 0,
            jobs: 0,
            jobs_left: 0,
            cpus: machine.cpus,
            interleaving: machine.interleaving,
            random: Random::stream(machine.seed, 0x51),
            shortcuts: true,
            check_every: None,
            steps: 0,
            progress: (0, 0, Time::ZERO),
        };
        let background = BackgroundActor::new(&simulator.world.core, machine.cpus - 1);
        simulator.background = simulator.place(Actor::Background(background));
        if let Some(options) = machine.flusher {
            let flusher = FlusherActor::new(options, machine.flusher_start, &simulator.world);
            simulator.flusher = Some(simulator.place(Actor::Flusher(flusher)));
        }
        if machine.oom_policy != OomPolicy::Fail {
            simulator.reaper = Some(simulator.place(Actor::Reaper(Reaper)));
        }
        Ok(simulator)
    }

    fn place(&mut self, actor: Actor) -> ActorId {
        let id = ActorId(self.places.len());
        self.places.push(Place { actor, pause: Pause::Ready, nap: 0 });
        self.runnable.push_back(id);
        id
    }

    /// Adds a job of the machine's tenant number `tenant`. Returns the job's number.
    ///
    /// # Panics
    /// If there is no such tenant.
    pub fn add_job(&mut self, tenant: usize, source: impl Source + 'static) -> usize {
        self.add_job_of(&[Some(tenant)], source)
    }

    /// Adds a job that acts as several processes, one at a time ([`crate::Operation::Switch`]),
    /// starting as the first. `tenants` are the processes' tenants; `None` is the root. Returns the
    /// job's number.
    ///
    /// # Panics
    /// If a tenant does not exist, or `tenants` is empty.
    pub fn add_job_of(&mut self, tenants: &[Option<usize>], source: impl Source + 'static) -> usize {
        let cpu = self.jobs % self.cpus;
        let process = |tenant: &Option<usize>| {
            let tenant = tenant.map_or(0, |tenant| tenant + 1);
            // A process of a tenant that is created later starts in the root.
            let memcg = self.world.tenants[tenant].memcg.unwrap_or(MemcgId::ROOT);
            let task: Task = self.world.core.new_task(memcg, cpu);
            self.world.tasks.push(task.clone());
            Process::new(self.world.tasks.len(), tenant, task)
        };
        let mut processes: Vec<Process> = tenants.iter().map(process).collect();
        let first = processes.remove(0);
        self.place(Actor::Job(Box::new(Job::new(first, processes, Box::new(source)))));
        self.jobs += 1;
        self.jobs_left += 1;
        self.jobs - 1
    }

    /// Executes commands, each at its time or after the previous one ends, and reads control files
    /// at intervals of `every`, from the start. `later`: tenants that commands create; they are
    /// numbered after the machine's. Call it once, before jobs are added. The run also waits for
    /// all commands.
    ///
    /// # Panics
    /// If there are jobs already.
    pub fn administer(
        &mut self,
        later: Vec<Tenant>,
        commands: Vec<(Time, Command)>,
        every: Option<(Duration, Vec<String>)>,
    ) {
        assert_eq!(self.jobs, 0, "the administrator comes before the jobs");
        let first_later = self.world.tenants.len();
        self.world.tenants.extend(later.iter().map(|_| TenantState::new(None)));
        self.place(Actor::Administrator(Administrator::new(first_later, later, commands)));
        self.jobs_left += 1;
        if let Some((every, files)) = every {
            self.place(Actor::Reader(ControlReader::new(every, files)));
        }
    }

    /// The control files and values that jobs write with [`crate::Operation::Control`], such as
    /// (`a/memory.max`, `64M`).
    pub fn control_writes(&mut self, writes: Vec<(String, String)>) {
        self.world.control_writes = writes;
    }

    /// Results of the commands, and of the control files that jobs wrote, so far.
    pub fn answers(&self) -> &[Answer] {
        &self.world.answers
    }

    /// Texts of control files read so far.
    pub fn readings(&self) -> &[Reading] {
        &self.world.readings
    }

    /// Sets the length of the file that contains `page`, in pages. Readahead stops there; without a
    /// length, it also reads pages behind the last one that a job reads.
    pub fn set_file_pages(&mut self, page: u64, pages: u64) {
        let file = self.world.files.file_of(&self.world.core, page);
        self.world.files.set_pages(file, pages);
    }

    /// Starts the warm counts at this access; the first access has number 0.
    pub fn set_warm_from(&mut self, access: u64) {
        self.world.set_warm_from(access);
    }

    /// Takes at least `wanted` evenly spaced samples of hits and generations if the run is long
    /// enough, and fewer than twice as many. Changes no result. Call it before the run.
    pub fn sample(&mut self, wanted: usize) {
        self.world.sample(wanted);
    }

    /// The samples so far, and one of the current state.
    pub fn samples(&self) -> Vec<Sample> {
        let now = (self.world.accesses > 0).then(|| self.world.sample_now());
        let mut samples = self.world.samples().to_vec();
        samples.extend(now.filter(|now| samples.last().is_none_or(|last| last.access < now.access)));
        samples
    }

    /// Measures the duration of each access, from its start until the job can continue. Changes no
    /// result. Call it before the run.
    pub fn time_accesses(&mut self) {
        self.world.times_accesses = true;
    }

    /// Access durations measured so far: the root's first, then those of the machine's tenants.
    pub fn latencies(&self) -> impl Iterator<Item = &Latencies> {
        self.world.tenants.iter().map(|tenant| &tenant.latencies)
    }

    /// Passes all events of the core to `observer`.
    pub fn observe(&mut self, observer: impl Observer + 'static) {
        self.world.host.observe(Box::new(observer));
    }

    /// Checks the machine after every `steps` steps. Slow; changes no result. Call it before the
    /// run.
    pub fn check_every(&mut self, steps: u64) {
        assert!(steps > 0 && self.steps == 0, "checking begins with the run");
        self.check_every = Some(steps);
        self.world.host.model = Some(RefCell::new(Model::default()));
    }

    /// Whether the only runnable actor may bypass the event queue. Default: yes. Changes no result.
    pub fn set_shortcuts(&mut self, shortcuts: bool) {
        self.shortcuts = shortcuts;
    }

    /// The core, for inspection by one thread at a time ([`Core::of_one_thread`]).
    pub fn core(&self) -> &Core {
        &self.world.core
    }

    /// The machine's time.
    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// Reclaim requests finished so far.
    pub fn requests(&self) -> &[RequestReport] {
        &self.world.requests
    }

    /// Page accesses started so far.
    pub fn accesses(&self) -> u64 {
        self.world.accesses
    }

    /// Steps of actors so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Bytes used for page numbering, in addition to the core's memory.
    pub fn numbering_bytes(&self) -> u64 {
        self.world.files.bytes()
    }

    /// Runs until all jobs have ended.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn run(&mut self) -> Result<Report, SimError> {
        while self.step()? {}
        Ok(self.report())
    }

    /// Runs at most some ten thousand accesses, and at most to the end of a reclaim request of a
    /// job. Returns `false` if all jobs have ended.
    ///
    /// # Errors
    /// See [`SimError`].
    pub fn step(&mut self) -> Result<bool, SimError> {
        if self.is_over() {
            return Ok(false);
        }
        self.let_things_happen();
        let Some(id) = self.choose() else {
            let Some(next) = self.world.events.next_time() else {
                return Err(self.stuck("all actors wait"));
            };
            self.world.host.clock.advance(next);
            return Ok(true);
        };
        let alone = self.shortcuts && self.check_every.is_none() && self.runnable.is_empty();
        let acted = self.places[id.0].actor.step(&mut self.world, alone);
        // Actors numbered before the jobs, such as background reclaim, have no source.
        let pause = acted.map_err(|error| SimError::Job(id.0 - (self.places.len() - self.jobs), error))?;
        self.answer_calls();
        self.move_jobs();
        self.settle(id, pause);
        self.steps += 1;
        self.check()?;
        Ok(!self.is_over())
    }

    /// Whether all jobs have ended and the memory of all victims is freed.
    fn is_over(&self) -> bool {
        self.jobs_left == 0 && self.world.victims.is_empty()
    }

    /// Handles all due events.
    fn let_things_happen(&mut self) {
        while let Some(due) = self.world.events.take_due(self.world.now()) {
            match due {
                Due::Resume { actor, nap } if self.places[actor.0].nap == nap => self.wake(actor),
                Due::Resume { .. } => {}
                Due::Written(write) => {
                    self.world.written(write);
                    // Most writes end while no actor waits for one, and there may be many actors.
                    if self.writes_awaited > 0 {
                        self.wake_where(|pause| matches!(pause, Pause::Written(_)));
                    }
                    self.answer_calls();
                }
                Due::Read(read) => {
                    self.world.read_ended(read);
                    self.answer_calls();
                }
            }
        }
    }

    /// Wakes the actors that the core called. Actors that start to wait later are not affected.
    fn answer_calls(&mut self) {
        if !self.world.host.is_called() {
            return;
        }
        let calls = self.world.host.take_calls();
        calls.swap_outs.iter().for_each(|&write| self.world.swap_out(write));
        if calls.end_swap_outs {
            self.world.end_swap_outs();
        }
        for &victim in &calls.kills {
            self.world.kill(victim);
            self.wake_killed();
        }
        if calls.background {
            self.call(self.background);
        }
        if let Some(flusher) = self.flusher
            && (calls.flush_for_reclaim || calls.flush_for_background)
        {
            if let Actor::Flusher(actor) = &mut self.places[flusher.0].actor
                && calls.flush_for_reclaim
            {
                actor.ask();
            }
            self.call(flusher);
        }
        if calls.throttled {
            self.wake_where(|pause| matches!(pause, Pause::Throttled(_)));
        }
        if !calls.folios.is_empty() {
            self.wake_where(|pause| matches!(pause, Pause::Folio(folio) if calls.folios.contains(&folio)));
        }
    }

    /// Moves jobs as the administrator ordered. Ended jobs stay where they were.
    fn move_jobs(&mut self) {
        let first = self.places.len() - self.jobs;
        for (jobs, tenant) in std::mem::take(&mut self.world.moves) {
            for place in self.places[first..].iter_mut().take(jobs.end).skip(jobs.start) {
                if let Actor::Job(job) = &mut place.actor
                    && place.pause != Pause::Done
                {
                    job.move_to(&mut self.world, tenant);
                }
            }
        }
    }

    /// Wakes the jobs of killed tenants, and the reaper.
    fn wake_killed(&mut self) {
        for actor in 0..self.places.len() {
            let place = &self.places[actor];
            let sleeps = !matches!(place.pause, Pause::Ready | Pause::Done);
            if sleeps && matches!(&place.actor, Actor::Job(job) if job.is_cut_short(&self.world)) {
                self.wake(ActorId(actor));
            }
        }
        if let Some(reaper) = self.reaper {
            self.call(reaper);
        }
    }

    fn call(&mut self, actor: ActorId) {
        if matches!(self.places[actor.0].pause, Pause::Called(_)) {
            self.wake(actor);
        }
    }

    fn wake_where(&mut self, waits: impl Fn(Pause) -> bool) {
        for actor in 0..self.places.len() {
            if waits(self.places[actor].pause) {
                self.wake(ActorId(actor));
            }
        }
    }

    fn wake(&mut self, actor: ActorId) {
        let place = &mut self.places[actor.0];
        place.nap += 1;
        self.writes_awaited -= usize::from(matches!(place.pause, Pause::Written(_)));
        place.pause = Pause::Ready;
        self.runnable.push_back(actor);
    }

    /// The next actor to run.
    fn choose(&mut self) -> Option<ActorId> {
        if self.interleaving == Interleaving::InOrder || self.runnable.len() < 2 {
            return self.runnable.pop_front();
        }
        let chosen = self.random.below(self.runnable.len() as u64) as usize;
        self.runnable.remove(chosen)
    }

    /// Records an actor's pause after its step.
    fn settle(&mut self, actor: ActorId, pause: Pause) {
        let now = self.world.now();
        let place = &mut self.places[actor.0];
        place.pause = pause;
        self.writes_awaited += usize::from(matches!(pause, Pause::Written(_)));
        let until = match pause {
            Pause::Ready => Some(now),
            Pause::Until(time) | Pause::Throttled(time) => Some(time),
            Pause::Written(until) | Pause::Called(until) => until,
            Pause::Folio(_) => None,
            Pause::Done => {
                self.jobs_left -= 1;
                None
            }
        };
        match until {
            Some(time) if time <= now => self.wake(actor),
            Some(time) => self.world.events.plan(time, Due::Resume { actor, nap: place.nap }),
            None => {}
        }
    }

    fn check(&mut self) -> Result<(), SimError> {
        if self.check_every.is_some_and(|every| self.steps.is_multiple_of(every)) {
            let actors = self.places.iter().map(|place| &place.actor);
            checker::check(&self.world, actors).map_err(|what| SimError::Check { step: self.steps, what })?;
        }
        let (at, accesses, now) = self.progress;
        if accesses != self.world.accesses || now != self.world.now() {
            self.progress = (self.steps, self.world.accesses, self.world.now());
        } else if self.steps - at > FRUITLESS_STEPS_MAX {
            return Err(self.stuck("no actor makes progress"));
        }
        Ok(())
    }

    /// Builds the error, naming a few of the waiting actors only; thousands would fill megabytes.
    fn stuck(&self, why: &str) -> SimError {
        const NAMED_MAX: usize = 8;
        let waiting = self.places.iter().enumerate().filter(|(_, place)| place.pause != Pause::Done);
        let mut what = format!(
            "{why} at step {}, {} of {} actors",
            self.steps,
            waiting.clone().count(),
            self.places.len()
        );
        for (id, place) in waiting.take(NAMED_MAX) {
            what += &format!("; actor {id}, {}: {:?}", place.actor.kind(), place.pause);
        }
        SimError::Stuck(what)
    }

    /// Waits for active transfers after all jobs have ended, and checks that nothing is left over.
    ///
    /// # Errors
    /// [`SimError::Check`]: something is left over.
    pub fn finish(&mut self) -> Result<(), SimError> {
        assert_eq!(self.jobs_left, 0, "jobs still run");
        while !self.world.writes.is_empty() || !self.world.reads.is_empty() {
            let next = self.world.events.next_time().expect("the end of a transfer is planned");
            self.world.host.clock.advance(next);
            while let Some(due) = self.world.events.take_due(next) {
                match due {
                    Due::Written(write) => self.world.written(write),
                    Due::Read(read) => self.world.read_ended(read),
                    Due::Resume { .. } => {}
                }
            }
        }
        let actors = self.places.iter().map(|place| &place.actor);
        checker::check(&self.world, actors)
            .and_then(|()| checker::check_idle(&self.world))
            .and_then(|()| self.world.core.validate())
            .map_err(|what| SimError::Check { step: self.steps, what })
    }

    /// The results so far.
    pub fn report(&self) -> Report {
        let world = &self.world;
        let tenant = |tenant: usize| {
            let memcg = world.memcg(tenant)?;
            let total = world.tally(tenant);
            Some(TenantReport {
                name: world.core.memcgs().path(memcg.id()),
                max_pages: memcg.max_pages(),
                usage_pages: memcg.usage_pages(),
                peak_pages: memcg.peak_pages(),
                total,
                warm: world.tenants[tenant].at_warm.map(|warm| total.since(&warm)),
                generations: memcg.lruvec().generations(world.now()),
                lists: memcg.lruvec().ranked_lists(),
            })
        };
        let tenants: Vec<TenantReport> = (0..world.tenants.len()).filter_map(tenant).collect();
        Report {
            now: world.now(),
            requests: world.requests.clone(),
            kills: world.kills.clone(),
            refusals: world.refusals.clone(),
            warm_from: tenants[0].warm.is_some().then_some(world.warm_from()),
            tenants,
            device: world.device.counts(),
            swap: world.swap.as_ref().map(Swap::counts),
        }
    }
}
