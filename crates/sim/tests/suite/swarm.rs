//! Swarm runs: random machines and jobs, generated from one seed and run under the checker.
//!
//! Every seed enables a random set of behaviours (swarm testing: Groce and others, ISSTA 2012),
//! because a run that does a little of everything rarely does much of anything. Each seed runs
//! twice: with the checker and without the simulator's shortcuts, then the other way round. Both
//! runs must report the same.
//!
//! Every third seed has *trouble*: many writes and syncs on a device that is slow, stalls for up to
//! a minute, fails one write in a hundred, or is full, and finally recovers. Then the load must end
//! and all of its writes must be on the device.
//!
//! Every seed also has an OOM policy: requests fail, a tenant is killed, or the host is asked. Half
//! of the seeds are *greedy*: tight nested limits and more anonymous memory than fits. No tenant
//! may exceed a limit; under our preset none is killed while pages can be freed; and a killed
//! tenant has given back all of its anonymous memory.
//!
//! Half of the seeds also have draws that came later (`swarm/later.rs`): control files of every
//! kind, which are written by the administrator and by jobs, and read at intervals; jobs of several
//! processes; swap that refuses pages; and operations of traces.
//!
//! A failure names its seed, which is enough to reproduce it. The example `swarm` runs as many
//! seeds as it is told to, with this file.

#[path = "swarm/later.rs"]
mod later;
#[path = "swarm/machine.rs"]
mod machine;

use machine::{random_device, random_machine, random_tenant, slow_device};
use mglru_core::Refresh;
use mglru_core::lru::Swappiness;
use mglru_core::lru::switch::SWITCH_FOLIOS;
use mglru_core::reclaim::Watermarks;
use mglru_core::swap::FREE_SLOTS_MIN;
use mglru_core::writeback::FlusherOptions;
use mglru_core::{
    Counter, Grain, Lru, LruLock, Mechanisms, OomPolicy, PcpSizes, Preset, Switch, Time, UNLIMITED, Zone,
};
use mglru_sim::{
    Access, Command, DeviceModel, DrainStalls, FlusherStart, Interleaving, Lane, Latency, Machine, Numbering,
    Operation, Preemption, Report, SimError, Simulator, SwapBatches, SwapDevice, SwapModel, Tenant, Trouble,
    Writes,
};
use mglru_workload::Random;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Least maximum of a run's virtual time. The slowest of 300 seeds took a quarter of an hour.
const TIME_MAX: Duration = Duration::from_secs(3600);
/// Maximum time of an access that fails, by reclaim in batches of up to a millisecond. All accesses
/// of a tenant fail if its neighbours' protections take its whole limit.
const REFUSAL_MAX: Duration = Duration::from_secs(4);
/// Maximum pause of a charge above `memory.swap.high`. A tenant far above it makes two or three
/// charges per second, as in the kernel.
const HIGH_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Maximum virtual time of a greedy run: where no tenant can be killed, each of up to 9,000
/// accesses may wait some seconds before it fails.
const GREEDY_TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Smallest limit for batched charging: near smaller ones, CPUs charge page by page, even with
/// `charge_near_limit`. One seed in eight has limits from here on.
const LARGE_LIMIT_PAGES: u64 = 2048;

/// Seeds that failed once, and that tests run: draws that came later leave them as they were.
const FAILED_ONCE: [u64; 7] = [1669, 100_755, 933_415, 991_206, 1_050_431, 2_050_640, 2_051_258];

/// A seed without failure.
#[derive(Clone, Debug)]
pub struct SwarmReport {
    /// Steps of actors in the checked run.
    pub steps: u64,
    /// The results.
    pub report: Report,
}

/// A seed that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwarmFailure {
    /// The seed.
    pub seed: u64,
    /// The step of the checked run after which the failure was detected.
    pub step: u64,
    /// The failure.
    pub what: String,
}

impl fmt::Display for SwarmFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "swarm seed {}, step {}: {}", self.seed, self.step, self.what)
    }
}

impl std::error::Error for SwarmFailure {}

/// Runs one seed.
///
/// # Errors
/// The failure and its step: a failed check, a panic, a stuck run, or a difference between the two
/// runs.
pub fn run_seed(seed: u64) -> Result<SwarmReport, SwarmFailure> {
    let plan = Plan::new(seed);
    let failure = |step, what: String| SwarmFailure { seed, step, what };
    let (steps, checked) = run(&plan, Some(plan.check_every)).map_err(|(step, what)| failure(step, what))?;
    let (_, unchecked) =
        run(&plan, None).map_err(|(step, what)| failure(step, format!("unchecked: {what}")))?;
    if checked != unchecked {
        let what = format!("the checker or the shortcuts changed the result: {checked:?} and {unchecked:?}");
        return Err(failure(steps, what));
    }
    Ok(SwarmReport { steps, report: checked })
}

/// Performs one run. Returns the number of steps and the report, or the step and the failure.
fn run(plan: &Plan, check_every: Option<u64>) -> Result<(u64, Report), (u64, String)> {
    let mut simulator = Simulator::new(&plan.machine).map_err(|error| (0, error.to_string()))?;
    if !plan.commands.is_empty() || plan.reads.is_some() {
        simulator.administer(plan.later.clone(), plan.commands.clone(), plan.reads.clone());
    }
    simulator.control_writes(plan.control_writes.clone());
    for job in &plan.jobs {
        simulator.add_job_of(&job.processes, job.operations());
    }
    simulator.set_warm_from(plan.warm_from);
    if let Some(steps) = check_every {
        simulator.check_every(steps);
    }
    let run = catch_unwind(AssertUnwindSafe(|| -> Result<Report, SimError> {
        while simulator.step()? {
            if simulator.now() > Time::ZERO + plan.time_max {
                return Err(SimError::Stuck("the load exceeds its maximum virtual time".to_owned()));
            }
        }
        let report = simulator.report();
        simulator.finish()?;
        Ok(report)
    }));
    let steps = simulator.steps();
    match run {
        Ok(Ok(report)) => match plan.unfinished(&report).or_else(|| plan.wrong(&report)) {
            Some(what) => Err((steps, what)),
            None => Ok((steps, report)),
        },
        Ok(Err(error)) => Err((steps, error.to_string())),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            // After a failed assertion, dropping the core may not be safe.
            std::mem::forget(simulator);
            Err((steps, format!("panic: {}", text.unwrap_or("of an unknown kind"))))
        }
    }
}

/// The machine, jobs and commands of a seed.
#[derive(Debug)]
struct Plan {
    machine: Machine,
    jobs: Vec<JobPlan>,
    /// Tenants that commands create, and the commands.
    later: Vec<Tenant>,
    commands: Vec<(Time, Command)>,
    /// Control files that jobs write, and those that are read at intervals.
    control_writes: Vec<(String, String)>,
    reads: Option<(Duration, Vec<String>)>,
    check_every: u64,
    warm_from: u64,
    time_max: Duration,
}

/// Relative frequency of each operation of a job.
#[derive(Clone, Copy, Debug)]
struct Weights {
    read: u64,
    write: u64,
    load: u64,
    store: u64,
    sync: u64,
    truncate: u64,
    discard: u64,
    unmap: u64,
    remove: u64,
    anon_load: u64,
    anon_store: u64,
    release: u64,
    switch: u64,
    /// See `swarm/later.rs`.
    later: [u64; later::OPERATIONS],
}

impl Weights {
    const ORDER: usize = 13 + later::OPERATIONS;

    fn all(&self) -> [u64; Weights::ORDER] {
        let Weights { read, write, load, store, sync, truncate, discard, unmap, remove, .. } = *self;
        let Weights { anon_load, anon_store, release, switch, later, .. } = *self;
        let of_files = [read, write, load, store, sync, truncate, discard, unmap, remove];
        let others = [anon_load, anon_store, release, switch];
        let mut all = of_files.into_iter().chain(others).chain(later);
        std::array::from_fn(|_| all.next().expect("a weight of each kind"))
    }
}

/// The order in which a job accesses pages.
#[derive(Clone, Copy, Debug)]
enum Order {
    Uniform,
    /// The smaller of two draws.
    Skewed,
    /// Sequential, repeated.
    Cyclic,
    /// Uniform over a moving tenth of the pages.
    Drifting,
}

#[derive(Clone, Copy, Debug)]
struct FilePlan {
    first_page: u64,
    pages: u64,
}

#[derive(Clone, Debug)]
struct JobPlan {
    /// The tenants of its processes.
    processes: Vec<Option<usize>>,
    seed: u64,
    operations: u64,
    files: Vec<FilePlan>,
    /// Size of the anonymous region that all jobs share.
    anon_pages: u64,
    order: Order,
    weights: Weights,
    /// At its end, the job waits until this time and then syncs all of its files.
    well_from: Option<Time>,
    /// Number of tenants of the machine, and of control files that jobs write.
    tenants: usize,
    control_writes: usize,
}

struct Choices(Random);

impl Choices {
    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.0.below(most - least + 1)
    }

    /// True with probability 1 / `times`.
    fn one_in(&mut self, times: u64) -> bool {
        self.0.below(times) == 0
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.0.below(choices.len() as u64) as usize]
    }

    fn micros(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.0.below(most + 1))
    }
}

impl Plan {
    fn new(seed: u64) -> Plan {
        let mut choices = Choices(Random::stream(seed, 0x5A));
        let large = Choices(Random::stream(seed, 0x1A46)).one_in(8);
        let machine = random_machine(&mut choices, seed, large);
        let files = random_files(&mut choices, &machine);
        let jobs = choices.between(1, 6);
        let mut jobs: Vec<JobPlan> = (0..jobs).map(|_| random_job(&mut choices, &machine, &files)).collect();
        if large {
            jobs.iter_mut().for_each(|job| job.operations *= 8);
        }
        let accesses: u64 = jobs.iter().map(|job| job.operations).sum();
        let (later, commands) = random_commands(&mut choices, &machine);
        // Requests and limits that cannot be met make reclaim take many steps.
        let check_every = choices.one_of(if commands.is_empty() { &[5, 23, 61] } else { &[61, 211, 499] });
        let slowed_down = machine.tenants.iter().any(|tenant| tenant.swap_high_pages < UNLIMITED);
        let access_max = REFUSAL_MAX + if slowed_down { HIGH_PAUSE_MAX } else { Duration::ZERO };
        let time_max = TIME_MAX.max(access_max * accesses as u32);
        let mut plan = Plan {
            machine,
            jobs,
            later,
            commands,
            control_writes: Vec::new(),
            reads: None,
            check_every,
            warm_from: accesses / 3,
            time_max,
        };
        if seed % 3 == 2 {
            plan.get_into_trouble(&mut choices);
        }
        if large {
            // The duration of a check is proportional to memory size.
            plan.check_every = plan.check_every.max(997);
        }
        // A separate random stream, so that the rest of a seed's plan does not depend on it.
        plan.choose_oom_policy(&mut Choices(Random::stream(seed, 0xDEAD)));
        if !FAILED_ONCE.contains(&seed) {
            plan.add_later_draws(&mut Choices(Random::stream(seed, 0x1A7E)));
        }
        plan
    }

    /// Adds many writes and syncs, and a device that cannot keep up.
    fn get_into_trouble(&mut self, choices: &mut Choices) {
        // Reclaim retries many times while the device stalls.
        self.check_every = choices.one_of(&[211, 499, 1009]);
        let Plan { machine, jobs, .. } = self;
        machine.batch_time = choices.one_of(&[50, 200, 1000]) * Duration::from_micros(1);
        machine.walk_time = choices.one_of(&[0, 1, 50]) * Duration::from_micros(1);
        machine.device = if choices.one_in(2) { slow_device(choices) } else { random_device(choices) };
        if choices.one_in(2) {
            machine.mechanisms = Mechanisms::default();
        }
        if choices.one_in(2) {
            machine.device.write.failures_per_million = 10_000;
            machine.device.read.failures_per_million = 1000;
        }
        let stall = (Time::ZERO + choices.micros(50_000), choices.one_of(&[100, 5000, 60_000]));
        let stall = (!choices.one_in(3)).then_some((stall.0, Duration::from_millis(stall.1)));
        let stalled = stall.map_or(Duration::ZERO, |(_, length)| length);
        let full_after_pages = choices.one_in(2).then(|| choices.between(0, u64::from(machine.memory_pages)));
        let well_from = Some(Time::ZERO + stalled + choices.micros(30_000_000));
        machine.trouble = Trouble { stall, full_after_pages, well_from };
        let flusher = machine.flusher.get_or_insert_default();
        flusher.period = Duration::from_millis(choices.between(1, 5000));
        for job in jobs {
            job.well_from = well_from;
            job.weights.write = choices.between(100, 1000);
            job.weights.store = choices.between(0, 500);
            job.weights.sync = choices.between(1, 30);
        }
    }

    /// Chooses the OOM policy. Greedy seeds run out of memory.
    fn choose_oom_policy(&mut self, choices: &mut Choices) {
        let Plan { machine, jobs, commands, .. } = self;
        machine.oom_policy =
            choices.one_of(&[OomPolicy::Fail, OomPolicy::Victim, OomPolicy::Victim, OomPolicy::Ask]);
        if machine.oom_policy == OomPolicy::Fail || choices.one_in(2) {
            return;
        }
        if choices.one_in(2) {
            machine.mechanisms = Mechanisms::default();
        }
        let memory_pages = u64::from(machine.memory_pages);
        let least = if memory_pages > LARGE_LIMIT_PAGES { LARGE_LIMIT_PAGES } else { 8 };
        for tenant in &mut machine.tenants {
            tenant.max_pages = tenant.max_pages.min(choices.between(least, memory_pages));
            tenant.high_pages = UNLIMITED;
            if choices.one_in(4) {
                let file = format!("{}/memory.oom.group", tenant.path);
                commands.insert(0, (Time::ZERO, Command::Write { file, value: "1".to_owned() }));
            }
        }
        if choices.one_in(2) {
            machine.swap = None;
        }
        for job in jobs {
            job.anon_pages = choices.between(8, 2 * memory_pages);
            job.weights.anon_load = choices.between(0, 300);
            job.weights.anon_store = choices.between(100, 1000);
            job.weights.release = choices.between(0, 3);
        }
        self.check_every = self.check_every.max(499);
        self.time_max = GREEDY_TIME_MAX;
    }

    /// Describes a forbidden outcome, if any.
    fn wrong(&self, report: &Report) -> Option<String> {
        let kills = &report.kills;
        if self.machine.oom_policy == OomPolicy::Fail && !kills.is_empty() {
            return Some(format!("a kill despite the policy to fail requests: {kills:?}"));
        }
        // A page that waits for its frame is no memory; pages in stock are charged without frames.
        let has_stocks = self.machine.charge_batch_pages > 1;
        let most = if has_stocks { UNLIMITED } else { self.machine.memory_pages.into() };
        if let Some(tenant) = report.tenants.iter().find(|tenant| tenant.peak_pages > most) {
            return Some(format!("{} had {} pages of {most}", tenant.name, tenant.peak_pages));
        }
        // Commands change limits, and create and remove tenants.
        let changes = |file: &str, tenant: &str| {
            file.trim_start_matches('/').starts_with(tenant) && !file.ends_with("oom.group")
        };
        let ordered = |tenant: &str| {
            let by_jobs = self.control_writes.iter().any(|(file, _)| changes(file, tenant));
            by_jobs
                || self.commands.iter().any(|(_, command)| match command {
                    Command::Write { file, .. } => changes(file, tenant),
                    Command::Create(_) | Command::Move { .. } => false,
                    Command::Remove(_) => true,
                })
        };
        // Jobs that moved left pages behind, which a kill of their tenant does not take.
        let moved = self.commands.iter().any(|(_, command)| matches!(command, Command::Move { .. }));
        for tenant in report.tenants.iter().skip(1).filter(|tenant| !ordered(&tenant.name)) {
            if tenant.peak_pages > tenant.max_pages {
                return Some(format!(
                    "{} had {} of {} pages",
                    tenant.name, tenant.peak_pages, tenant.max_pages
                ));
            }
            let killed = kills.iter().any(|kill| kill.report.victim.as_deref() == Some(&*tenant.name));
            let anon_pages = tenant.total.counters.get(Counter::Anon);
            if killed && anon_pages > 0 && !moved {
                return Some(format!(
                    "{} was killed but still has {anon_pages} pages of anonymous memory",
                    tenant.name
                ));
            }
        }
        if self.machine.mechanisms != Mechanisms::default()
            || self.machine.trouble.stall.is_some()
            || self.sets_min_ttl()
        {
            return None;
        }
        // Reclaimable pages are clean, unmapped file pages above all protections. Pages in other
        // CPUs' batches of new pages and of charges are out of reach.
        let Machine { cpus, batch_folios, charge_batch_pages, .. } = self.machine;
        let out_of_reach = cpus as u64 * (4 * batch_folios as u64 + charge_batch_pages);
        kills.iter().find_map(|kill| {
            let of = &kill.report;
            let stuck =
                [of.anon_pages, of.dirty_pages, of.writeback_pages, of.mapped_pages, of.protected_pages];
            let stuck = stuck.iter().sum::<u64>() + of.unevictable_pages + of.metadata_pages;
            let left = of.usage_pages.saturating_sub(stuck);
            (left > out_of_reach)
                .then(|| format!("a kill with {left} reclaimable pages, more than {out_of_reach}: {kill:?}"))
        })
    }

    /// Describes unfinished work, if any.
    fn unfinished(&self, report: &Report) -> Option<String> {
        // Jobs of a killed or removed tenant end early.
        let cut_short = !report.kills.is_empty()
            || self.commands.iter().any(|(_, command)| matches!(command, Command::Remove(_)));
        let counters = report.total().counters;
        let mut left = [Counter::FileDirty, Counter::FileWriteback].map(|counter| counters.get(counter));
        if self.machine.swap.is_some() {
            // These include pages on their way to swap, which no job syncs.
            left[1] = 0;
        }
        let all_synced = self.machine.trouble.well_from.is_some() && !cut_short;
        (all_synced && left != [0, 0]).then(|| format!("dirty and writeback pages after all syncs: {left:?}"))
    }
}

fn random_files(choices: &mut Choices, machine: &Machine) -> Vec<FilePlan> {
    let files = choices.between(1, 5);
    let memory_pages = u64::from(machine.memory_pages);
    let all_pages = memory_pages * choices.between(1, 6) + 16;
    let mut file = |number: u64| {
        let pages = choices.between(1, 1 + 2 * all_pages / files);
        // Most files are numbered from 0 and start at 0; some are not, or end at the last possible
        // page.
        let name = if choices.one_in(8) { u64::from(u32::MAX) - number } else { number };
        let first = match choices.between(0, 15) {
            0 => (1 << 32) - pages,
            1 | 2 => choices.between(1, 1 << 20),
            _ => 0,
        };
        FilePlan { first_page: name << 32 | first, pages }
    };
    (0..files).map(&mut file).collect()
}

fn random_job(choices: &mut Choices, machine: &Machine, files: &[FilePlan]) -> JobPlan {
    // Each kind of operation is missing in about half of the jobs.
    let mut weight = |most: u64| if choices.one_in(2) { 0 } else { choices.between(0, most) };
    let mut weights = Weights {
        read: weight(1000),
        write: weight(500),
        load: weight(1000),
        store: weight(500),
        sync: weight(10),
        truncate: weight(6),
        discard: weight(20),
        unmap: weight(6),
        remove: weight(4),
        anon_load: 0,
        anon_store: 0,
        release: 0,
        switch: 0,
        later: [0; later::OPERATIONS],
    };
    if choices.one_in(4) {
        weights.switch = choices.between(1, 20);
    }
    if choices.one_in(2) {
        weights.anon_load = choices.between(0, 1000);
        weights.anon_store = choices.between(1, 1000);
        weights.release = choices.between(0, 20);
    }
    if machine.flusher.is_none() {
        // Without a flusher, dirty pages stay until a sync. Many of them would only test how long
        // reclaim keeps trying.
        (weights.write, weights.store) = (weights.write.min(weights.sync), weights.store.min(weights.sync));
    }
    if machine.numbering == Numbering::Keys {
        // Opaque keys have no ranges to truncate or discard.
        (weights.truncate, weights.discard) = (0, 0);
        weights.release = 0;
    }
    if weights.all().iter().take(4).sum::<u64>() == 0 {
        weights.read = 100;
    }
    let some_file = choices.between(1, files.len() as u64) as usize;
    JobPlan {
        processes: vec![Some(choices.between(0, machine.tenants.len() as u64 - 1) as usize)],
        seed: choices.0.next_u64(),
        operations: choices.between(50, 1500),
        files: files[..some_file].to_vec(),
        anon_pages: anon_pages(machine),
        order: choices.one_of(&[Order::Uniform, Order::Skewed, Order::Cyclic, Order::Drifting]),
        weights,
        well_from: None,
        tenants: machine.tenants.len(),
        control_writes: 0,
    }
}

/// Commands of an administrator while jobs run: change limits, reclaim, create and remove tenants,
/// move jobs.
fn random_commands(choices: &mut Choices, machine: &Machine) -> (Vec<Tenant>, Vec<(Time, Command)>) {
    let (mut later, mut commands, mut time) = (Vec::new(), Vec::new(), Time::ZERO);
    if choices.one_in(2) {
        return (later, commands);
    }
    let pages = u64::from(machine.memory_pages);
    for number in 0..choices.between(1, 12) {
        time = time + choices.micros(3000);
        let numbers = machine.tenants.len() + later.len();
        let some = choices.0.below(numbers as u64) as usize;
        let path = machine.tenants.iter().chain(&later).nth(some).map(|tenant: &Tenant| tenant.path.clone());
        let path = path.expect("a number of a tenant");
        let bytes = choices.between(pages / 8, pages) * mglru_core::PAGE_BYTES;
        commands.push((
            time,
            match choices.between(0, 10) {
                0 => {
                    later.push(random_tenant(choices, &machine.tenants, &format!("l{number}"), pages));
                    Command::Create(numbers)
                }
                1 => Command::Remove(some),
                10 => Command::Move { job: 0..choices.between(1, 3) as usize, to: Some(some) },
                2 => Command::Write { file: "memory.reclaim".to_owned(), value: format!("{}", bytes / 8) },
                3 | 4 => Command::Write { file: format!("{path}/memory.reclaim"), value: format!("{bytes}") },
                _ => {
                    let file =
                        choices.one_of(&["max", "max", "low", "low", "min", "high", "swap.max", "swap.high"]);
                    let bytes = match file {
                        "min" => bytes / 8,
                        "high" => bytes.max(pages / 2 * mglru_core::PAGE_BYTES),
                        _ => bytes,
                    };
                    Command::Write { file: format!("{path}/memory.{file}"), value: format!("{bytes}") }
                }
            },
        ));
    }
    (later, commands)
}

/// Size of anonymous memory: slightly more than fits into swap. The excess stays in memory; much of
/// it would only test how long reclaim keeps trying.
fn anon_pages(machine: &Machine) -> u64 {
    let least = machine.tenants.iter().map(|tenant| tenant.max_pages).min();
    let stuck = least.unwrap_or(UNLIMITED).min(u64::from(machine.memory_pages)) / 4;
    let swapped = machine.swap.filter(|_| machine.swappiness != Swappiness::FILE_ONLY);
    stuck + swapped.map_or(0, |swap| u64::from(swap.pages.saturating_sub(2 * FREE_SLOTS_MIN)))
}

impl JobPlan {
    fn operations(&self) -> impl Iterator<Item = Operation> + use<> {
        let plan = self.clone();
        let mut choices = Choices(Random::new(plan.seed));
        let end = plan.well_from.map(|time| Operation::RestUntil { time });
        let files = plan.files.clone().into_iter().filter(move |_| end.is_some());
        let syncs = files.map(|file| Operation::Sync { page: file.first_page });
        (0..plan.operations).map(move |at| plan.operation(at, &mut choices)).chain(end).chain(syncs)
    }

    fn operation(&self, at: u64, choices: &mut Choices) -> Operation {
        let file = choices.one_of(&self.files);
        let pages = file.pages;
        let draw = |choices: &mut Choices| choices.0.below(pages);
        let page = file.first_page
            + match self.order {
                Order::Uniform => draw(choices),
                Order::Skewed => draw(choices).min(draw(choices)),
                Order::Cyclic => at % pages,
                Order::Drifting => (at / 8 + choices.0.below(pages / 10 + 1)) % pages,
            };
        let anon = page % self.anon_pages.max(1);
        let weights = self.weights.all();
        let mut left = choices.0.below(weights.iter().sum());
        let kind = weights.iter().position(|&weight| {
            let chosen = left < weight;
            left = left.wrapping_sub(weight);
            chosen
        });
        match kind.expect("the draw is below the sum") {
            0 => Access::read(page).into(),
            1 => Access::write(page).into(),
            2 => Access::load(page).into(),
            3 => Access::store(page).into(),
            4 => Operation::Sync { page },
            5 => Operation::Truncate { page },
            6 => Operation::Discard { page, pages: 1 + choices.0.below(pages) as u32 },
            7 => Operation::Unmap { page },
            8 => Operation::Remove { page },
            9 => Access::load(anon).anon().into(),
            10 => Access::store(anon).anon().into(),
            11 => Operation::Release { page: anon, pages: 1 + choices.0.below(pages) as u32 },
            12 => Operation::SwitchLru {
                to: choices.one_of(&Lru::ALL),
                folios: choices.one_of(&[1, 7, 50, SWITCH_FOLIOS]),
            },
            later => self.later_operation(later - 13, page, pages, choices),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events of runs that show what the seeds reached.
    #[derive(Default)]
    struct Reached {
        accesses: u64,
        sync_errors: u64,
        stalled: u32,
        full: u32,
        refused: u32,
        kills: u32,
    }

    impl Reached {
        fn by(seeds: impl Iterator<Item = u64>) -> Reached {
            let mut reached = Reached::default();
            for seed in seeds {
                let SwarmReport { report, .. } = run_seed(seed).unwrap_or_else(|failure| panic!("{failure}"));
                reached.accesses += report.accesses();
                reached.stalled += u32::from(report.now > Time::ZERO + Duration::from_secs(60));
                reached.full += u32::from(report.device.no_space > 0);
                reached.refused += u32::from(report.device.write_failures > report.device.no_space);
                reached.sync_errors += report.total().counts.sync_errors;
                reached.kills += u32::from(!report.kills.is_empty());
            }
            reached
        }

        fn assert_at_least(&self, kills: u32, trouble: u32, sync_errors: u64) {
            assert!(self.accesses > 50_000, "{} accesses are too few to mean anything", self.accesses);
            assert!(self.kills > kills, "only {} seeds have kills", self.kills);
            let seeds = [self.stalled, self.full, self.refused];
            let enough = seeds.iter().all(|&seeds| seeds > trouble) && self.sync_errors > sync_errors;
            assert!(enough, "{seeds:?} seeds, {} errors reported", self.sync_errors);
        }
    }

    /// Two tests, so that they run side by side. Seeds 2050640 and 2051258: what was seen of a page
    /// in advance was used after the page had changed, and so changed the result.
    /// Seed 991206: two charges paid for one directory, and the second kept its pages, which have
    /// no frames, in the peak.
    #[test]
    fn even_seeds_run_clean() {
        Reached::by((0..60).map(|seed| 2 * seed).chain([991_206, 2_050_640, 2_051_258]))
            .assert_at_least(4, 1, 20);
    }

    /// Seed 1669: a page that was new at its look-up was swapped out before its charge, and could
    /// not be read. Seed 100755: a check uncharged what was freed, and so changed the result. Seed
    /// 1050431: a tenant's pages were dirty while a device that stalled held pages of others. Seed
    /// 933415: metadata that waited for frames made a peak above the size of memory.
    #[test]
    fn odd_seeds_run_clean() {
        let seeds = (0..60).map(|seed| 2 * seed + 1).chain([1669, 100_755, 933_415, 1_050_431]);
        Reached::by(seeds).assert_at_least(4, 1, 20);
    }

    #[test]
    fn every_switch_is_off_in_some_seeds_and_on_in_others() {
        let plans: Vec<Plan> = (0..600).map(Plan::new).collect();
        for (switch, lru) in Switch::ALL.into_iter().flat_map(|switch| Lru::ALL.map(|lru| (switch, lru))) {
            let of_policy = plans.iter().map(|plan| plan.machine.mechanisms).filter(|on| on.lru() == lru);
            let (on, off): (Vec<_>, Vec<_>) = of_policy.partition(|mechanisms| mechanisms.is_on(switch));
            assert!(
                on.len() > 5 && off.len() > 5,
                "{} is on in {} seeds, off in {}",
                switch.name(),
                on.len(),
                off.len()
            );
        }
    }

    /// The seeds include limits near which CPUs charge more than one page at once.
    #[test]
    fn large_tenants_get_near_their_limits() {
        let near = |seed: &u64| {
            let plan = Plan::new(*seed);
            let machine = &plan.machine;
            if machine.memory_pages < 2048 || !machine.mechanisms.is_on(Switch::ChargeNearLimit) {
                return false;
            }
            let report = run_seed(*seed).unwrap_or_else(|failure| panic!("{failure}")).report;
            report.tenants.iter().any(|tenant| {
                (LARGE_LIMIT_PAGES..UNLIMITED).contains(&tenant.max_pages)
                    && tenant.peak_pages + 32 > tenant.max_pages
            })
        };
        assert!((0..200).filter(near).nth(1).is_some(), "two of them at least");
    }

    #[test]
    fn a_seed_repeats_and_seeds_differ() {
        let reports = [7, 7, 8].map(|seed| run_seed(seed).unwrap()).map(|of| (of.steps, of.report));
        assert_eq!(reports[0], reports[1]);
        assert_ne!(reports[0], reports[2]);
    }
}
