//! Runs a scenario with the cache on real files, in real time.
//!
//! Each instance of a job and each client of a load has a thread. The calling thread carries out
//! the actions and reads control files at their times. A moved job takes its open files along. When
//! a tenant is removed, its jobs are stopped; their remaining accesses are charged to the
//! parent, as in the simulator. Files of jobs stay open to the end, so that their cached pages
//! remain visible until then.

mod beneath;
mod files;

use super::outcome::{Answered, Killed, Read, ReadingsSize, ScenarioOutcome, TenantRow};
use super::plan::{Plan, SUMS};
use crate::error::Error;
use crate::fio::job::Runner;
use crate::fio::meter::Meter;
use crate::fio::open_one;
use crate::fio::plan::{Plan as FioPlan, PlannedJob};
use crate::gate::Gate;
use crate::layout;
use crate::load::{RealLoad, Setup};
use crate::membership::{Member, Membership};
use crate::parallel;
use crate::temporary::TemporaryFolder;
use crate::watch::{Quiet, Watch};
use files::TraceJob;
use mglru_cache::{PageCache, Swap, Tenant, TenantStats};
use mglru_core::lru::Swappiness;
use mglru_workload::Load;
use mglru_workload::scenario::{Action, Command, Work};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Time between two looks at whether the work was cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs a plan. `directory` holds the files of jobs in fio's language, which remain there. With
/// `None` they are in the run's own folder, which also has all other files (swap, files of traces
/// and of loads) and is removed at the end.
///
/// # Errors
/// If the cache cannot be built or files cannot be created, or if the work was cancelled.
pub fn run(plan: &Plan, directory: Option<&Path>, watch: &dyn Watch) -> Result<ScenarioOutcome, Error> {
    let parent = directory.map_or_else(layout::default_directory, Path::to_owned);
    let cannot = |error| {
        let place = parent.display();
        Error::work(format_args!(
            "cannot create a folder in {place}: {error}; name another directory with --directory"
        ))
    };
    let own = TemporaryFolder::create(&parent, "mglru-run-").map_err(cannot)?;
    let files = own.path().join("files");
    std::fs::create_dir(&files).map_err(cannot)?;
    let of_machine = |failure: Error| failure.at(&plan.scenario.path.display().to_string());
    let cache = build(plan, own.path()).map_err(of_machine)?;
    if let Some(directory) = directory {
        check_files(plan, directory)?;
    }
    let fio = fio_plan(plan, directory.unwrap_or(&files))?;
    if directory.is_none() {
        // Nobody else can make the folders that names of files have there.
        make_folders(plan, &files).map_err(cannot)?;
    }
    // Its stages would be confused with those of other work: the whole run is no stage.
    let watch = &Quiet(watch);
    fio.lay_out(watch)?;
    let parts = parts(plan, &fio, own.path(), watch)?;
    let stage = Stage::new(plan, &cache, parts.len())?;
    let files: Vec<String> = plan.scenario.print.files.iter().map(|file| file.value.clone()).collect();
    std::thread::scope(|scope| {
        let start = |part| {
            let stage = &stage;
            parallel::spawn(scope, move || {
                let _leaving = Leaving(stage);
                Part::perform(part, stage, watch)
            })
            .map_err(|failure| failure.at(&part.place))
        };
        let threads: Result<Vec<_>, Error> = parts.iter().map(start).collect();
        let threads = threads.inspect_err(|_| stage.cancel(&parts))?;
        let done = administer(plan, &cache, &stage, &parts, &files, watch);
        let done = done.and_then(|done| stage.wait(None, |state| state.left == 0, watch).map(|()| done));
        if done.is_err() {
            stage.cancel(&parts);
        }
        let joined = threads.into_iter().map(|thread| thread.join());
        let ended: Vec<Ended> =
            joined.map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect();
        let time = stage.began.elapsed();
        let (answers, mut readings, unread) = done?;
        readings.extend(read(&cache, &files, time));
        let mut kills = Vec::new();
        let mut tenants = vec![row(&cache.tenant("")?.stats(), None, &parts, &ended)];
        for (number, presence) in stage.state().tenants.iter().enumerate() {
            if let Some(tenant) = &presence.tenant {
                tenants.push(row(&tenant.stats(), Some(number), &parts, &ended));
                kills.extend(tenant.killed().map(|report| Killed { time: None, report }));
            }
        }
        lift_limits(&cache)?;
        let failures = parts.iter().zip(&ended).filter_map(|(part, ended)| ended.failure(&part.place));
        let failures = failures.chain(unread).collect();
        // Failed requests are reported by their jobs, among the failures.
        Ok(ScenarioOutcome {
            answers,
            kills,
            readings,
            skipped_records: parts.iter().map(Part::skipped_records).sum(),
            failures,
            ..ScenarioOutcome::new(plan, time, tenants)
        })
    })
}

fn build(plan: &Plan, directory: &Path) -> Result<PageCache, Error> {
    let machine = &plan.scenario.machine;
    let mut builder = PageCache::builder(plan.memory_bytes)
        .mechanisms(plan.mechanisms)
        .oom_policy(plan.oom_policy)
        .swappiness(machine.swappiness.and_then(Swappiness::new).unwrap_or(Swappiness::DEFAULT));
    if let Some(swap) = machine.swap {
        builder = builder.swap(match swap.on_disk {
            true => Swap::file(directory.join("swap"), swap.bytes),
            false => Swap::compressed(swap.bytes),
        });
    }
    for tenant in plan.scenario.first_tenants() {
        builder = builder.tenant_with(&tenant.path, tenant.limits);
    }
    Ok(builder.build()?)
}

/// Removes the limits of all tenants. The final verification reads swapped pages back into memory,
/// and the tenants' own limits may not hold them.
fn lift_limits(cache: &PageCache) -> Result<(), Error> {
    for tenant in cache.tenants().iter().filter(|tenant| !tenant.name().is_empty()) {
        tenant.set_max(None)?;
        tenant.set_high(None)?;
        tenant.set_swap_max(None)?;
        tenant.set_swap_high(None)?;
    }
    Ok(())
}

/// Checks that no symbolic link leads the files of jobs out of the directory.
fn check_files(plan: &Plan, directory: &Path) -> Result<(), Error> {
    for job in &plan.scenario.jobs {
        let Work::Fio(instances) = &job.work else { continue };
        // `/dev/zero` stands for the job's own memory.
        let files = instances.iter().flat_map(|instance| &instance.files).filter(|file| file.is_relative());
        for file in files {
            let (shown, place) = (file.display(), directory.display());
            let fail = |reason: String| Error::work(reason).at(&plan.scenario.place(job.place));
            match beneath::is_beneath(directory, file) {
                Ok(true) => {}
                Ok(false) => {
                    return Err(fail(format!(
                        "`{shown}` leads out of {place} through a symbolic link, and a run leaves the files of others \
                         alone: remove the link, or name another --directory"
                    )));
                }
                Err(error) => return Err(fail(format!("cannot look for `{shown}` in {place}: {error}"))),
            }
        }
    }
    Ok(())
}

/// Makes the folders for files of jobs in the run's own directory.
fn make_folders(plan: &Plan, directory: &Path) -> std::io::Result<()> {
    for job in &plan.scenario.jobs {
        let Work::Fio(instances) = &job.work else { continue };
        let files = instances.iter().flat_map(|instance| &instance.files);
        for folder in files.filter(|file| file.is_relative()).filter_map(|file| file.parent()) {
            std::fs::create_dir_all(directory.join(folder))?;
        }
    }
    Ok(())
}

/// The files of the jobs in fio's language, with names in the directory.
fn fio_plan(plan: &Plan, directory: &Path) -> Result<FioPlan, Error> {
    let mut jobs = Vec::new();
    for job in &plan.scenario.jobs {
        let Work::Fio(instances) = &job.work else { continue };
        for instance in instances {
            let mut instance = instance.clone();
            instance.index = jobs.len() as u32;
            instance.files.iter_mut().for_each(|file| *file = directory.join(&*file));
            // The delay is waited for here, where a removal can interrupt it.
            instance.start_delay = Duration::ZERO;
            jobs.push(instance);
        }
    }
    FioPlan::new(&jobs, &[])
}

/// Work of one thread.
struct Part<'p> {
    /// The scenario's file and the place of the job, for errors.
    place: String,
    job: usize,
    start: Duration,
    task: Task<'p>,
    /// Tells the thread to stop. Set under the lock of `meter`.
    stop: AtomicBool,
    /// Whether it stops because the work was cancelled.
    cancelled: AtomicBool,
    /// The meter that stops the threads of a job in fio's language, once that has begun.
    meter: Mutex<Option<Arc<Meter>>>,
    /// The job's tenants, once it has begun.
    membership: OnceLock<Arc<Membership>>,
}

enum Task<'p> {
    Fio(&'p FioPlan, &'p PlannedJob),
    Trace(TraceJob),
    Load { load: Load, clients: u32, runtime: Duration, seed: u64, directory: &'p Path, name: String },
}

/// Result of a part, with its open files.
struct Ended<'p> {
    /// Whether hits through mappings have to be counted here.
    mapped: bool,
    failure: Option<String>,
    open: Open<'p>,
}

enum Open<'p> {
    Nothing,
    Fio(Box<Runner<'p>>),
    Trace { _files: files::OpenFiles },
    Load(RealLoad),
}

impl Ended<'_> {
    /// Error of the job at `place`. The last possible errors come from syncing and checking its
    /// writes.
    fn failure(&self, place: &str) -> Option<String> {
        let at_last = || match &self.open {
            Open::Fio(runner) => {
                let name = &runner.planned().job.name;
                runner.finish().failure.map(|failure| format!("job `{name}` failed: {}", failure.message))
            }
            Open::Load(load) => load.verify(false).err().map(|error| error.to_string()),
            Open::Trace { .. } | Open::Nothing => None,
        };
        self.failure.clone().or_else(at_last).map(|failure| format!("{place}: {failure}"))
    }
}

fn parts<'p>(
    plan: &Plan,
    fio: &'p FioPlan,
    directory: &'p Path,
    watch: &dyn Watch,
) -> Result<Vec<Part<'p>>, Error> {
    let mut planned = fio.jobs.iter();
    let mut parts = Vec::new();
    for (number, job) in plan.scenario.jobs.iter().enumerate() {
        let name = format!("job{}", number + 1);
        let place = plan.scenario.place(job.place);
        let mut add = |start: Duration, task| {
            parts.push(Part {
                place: place.clone(),
                job: number,
                start,
                task,
                stop: AtomicBool::new(false),
                cancelled: AtomicBool::new(false),
                meter: Mutex::new(None),
                membership: OnceLock::new(),
            });
        };
        match &job.work {
            Work::Fio(instances) => {
                for (instance, planned) in instances.iter().zip(&mut planned) {
                    add(job.start.saturating_add(instance.start_delay), Task::Fio(fio, planned));
                }
            }
            Work::Trace { path, open, runtime } => {
                let trace = TraceJob::new(path, *open, *runtime, &directory.join(name), watch);
                add(job.start, Task::Trace(trace.map_err(|failure| failure.at(&place))?));
            }
            &Work::Load { load, clients, runtime } => {
                let seed = plan.scenario.machine.seed;
                add(job.start, Task::Load { load, clients, runtime, seed, directory, name });
            }
        }
    }
    Ok(parts)
}

impl<'p> Part<'p> {
    /// Bad records of its trace that were skipped.
    fn skipped_records(&self) -> u64 {
        if let Task::Trace(job) = &self.task { job.skipped } else { 0 }
    }

    fn stop(&self) {
        let meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
        self.stop.store(true, Relaxed);
        if let Some(meter) = &*meter {
            self.tell(meter);
        }
    }

    /// Stops it without the check of its writes at the end.
    fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
        self.stop();
    }

    fn tell(&self, meter: &Meter) {
        meter.stop.store(self.stop.load(Relaxed), Relaxed);
        meter.cancelled.store(self.cancelled.load(Relaxed), Relaxed);
    }

    /// Waits for the job's start time and tenant, then does its work.
    fn perform(&self, stage: &Stage, watch: &dyn Watch) -> Ended<'p> {
        let ended = |failure| Ended { mapped: false, failure, open: Open::Nothing };
        let Some(membership) = stage.enter(self) else { return ended(None) };
        let done = match &self.task {
            Task::Fio(plan, planned) => self.perform_fio(plan, planned, membership),
            Task::Trace(job) => job.run(&membership, &self.stop).map(|(mapped, failure, files)| Ended {
                mapped,
                failure,
                open: Open::Trace { _files: files },
            }),
            Task::Load { load, clients, runtime, seed, directory, name } => {
                let tenant = membership.tenant();
                let (load, clients, seed, tenant) = (*load, *clients, *seed, &tenant);
                let setup = Setup { load, clients, seed, tenant, directory, name, mapped: false };
                let load = RealLoad::new(&setup, watch);
                load.and_then(|load| self.perform_load(load, clients, *runtime, &membership))
            }
        };
        done.unwrap_or_else(|failure| ended(Some(failure.text().to_owned())))
    }

    fn perform_fio(
        &self,
        plan: &'p FioPlan,
        planned: &'p PlannedJob,
        membership: Arc<Membership>,
    ) -> Result<Ended<'p>, Error> {
        let mut runner = open_one(plan, planned, &membership.tenant(), None)?;
        runner.membership = Some(membership);
        {
            let mut meter = self.meter.lock().unwrap_or_else(PoisonError::into_inner);
            self.tell(&runner.meter);
            *meter = Some(runner.meter.clone());
        }
        let gate = Gate::default();
        gate.open_for(0);
        runner.run(&gate);
        Ok(Ended { mapped: runner.is_mapped(), failure: None, open: Open::Fio(Box::new(runner)) })
    }

    fn perform_load(
        &self,
        load: RealLoad,
        clients: u32,
        runtime: Duration,
        membership: &Membership,
    ) -> Result<Ended<'p>, Error> {
        let deadline = Instant::now() + runtime;
        // Write-locked only while the load's files are moved.
        let load = RwLock::new(load);
        let client = |client: usize| {
            let (mut accesses, mut member, mut failure) = (0, Member::default(), None);
            while failure.is_none() && Instant::now() < deadline && !self.stop.load(Relaxed) {
                let moved = membership.moved(&mut member, accesses);
                failure = match moved.filter(|_| client == 0) {
                    Some(tenant) => {
                        let moved = load.write().unwrap_or_else(PoisonError::into_inner).move_to(&tenant);
                        moved.err().map(|failure| failure.text().to_owned())
                    }
                    None => {
                        let load = load.read().unwrap_or_else(PoisonError::into_inner);
                        load.step(client, &mut |_| accesses += 1).err().map(|error| error.to_string())
                    }
                };
            }
            membership.report(&mut member, accesses);
            failure
        };
        let done: Vec<Option<String>> = parallel::each(0..clients as usize, client)?;
        let load = load.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Ended { mapped: true, failure: done.into_iter().flatten().next(), open: Open::Load(load) })
    }
}

#[derive(Default)]
struct Presence {
    /// The tenant, once created. It is kept after removal for its counters.
    tenant: Option<Tenant>,
    /// Whether it was removed, or could not be created.
    gone: bool,
}

struct State {
    /// Number of parts that have not ended.
    left: usize,
    /// Whether the work was cancelled, so that no part begins.
    cancelled: bool,
    tenants: Vec<Presence>,
    /// Per job, the tenant that it is in or will begin in; `None` for the root.
    jobs: Vec<Option<usize>>,
}

/// Marks a part as ended when dropped, whatever the reason.
struct Leaving<'s>(&'s Stage);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.state().left -= 1;
        self.0.changed.notify_all();
    }
}

/// Shared state of all threads: the time, and the tenants that exist.
struct Stage {
    began: Instant,
    root: Tenant,
    state: Mutex<State>,
    changed: Condvar,
}

impl Stage {
    fn new(plan: &Plan, cache: &PageCache, left: usize) -> Result<Stage, Error> {
        let mut tenants: Vec<Presence> = plan.scenario.tenants.iter().map(|_| Presence::default()).collect();
        for (presence, tenant) in tenants.iter_mut().zip(plan.scenario.first_tenants()) {
            presence.tenant = Some(cache.tenant(&tenant.path)?);
        }
        Ok(Stage {
            began: Instant::now(),
            root: cache.tenant("")?,
            state: Mutex::new(State {
                left,
                cancelled: false,
                tenants,
                jobs: plan.scenario.jobs.iter().map(|job| job.tenant).collect(),
            }),
            changed: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a time, if there is one, or until `over` returns true.
    ///
    /// # Errors
    /// If the work is cancelled meanwhile.
    fn wait(
        &self,
        until: Option<Duration>,
        over: impl Fn(&State) -> bool,
        watch: &dyn Watch,
    ) -> Result<(), Error> {
        let mut state = self.state();
        loop {
            watch.check()?;
            let left = until.map_or(LOOK_EVERY, |until| until.saturating_sub(self.began.elapsed()));
            if left.is_zero() || over(&state) {
                return Ok(());
            }
            let waited = self.changed.wait_timeout(state, left.min(LOOK_EVERY));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Stops all parts, and lets no further one begin.
    fn cancel(&self, parts: &[Part]) {
        self.state().cancelled = true;
        self.changed.notify_all();
        parts.iter().for_each(Part::cancel);
    }

    /// Waits until a part may begin. Returns its membership, or `None` if its tenant is gone or the
    /// work was cancelled.
    fn enter(&self, part: &Part) -> Option<Arc<Membership>> {
        let gone = |state: &State| {
            state.cancelled || state.jobs[part.job].is_some_and(|tenant| state.tenants[tenant].gone)
        };
        let mut state = self.state();
        while let Some(left) = part.start.checked_sub(self.began.elapsed()).filter(|left| !left.is_zero())
            && !gone(&state)
        {
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        loop {
            if state.cancelled {
                return None;
            }
            let number = state.jobs[part.job];
            let tenant = match number.map(|number| &state.tenants[number]) {
                Some(Presence { gone: true, .. }) => return None,
                Some(Presence { tenant, .. }) => tenant.clone(),
                None => Some(self.root.clone()),
            };
            match tenant {
                Some(tenant) => {
                    let membership = || Arc::new(Membership::new(number, tenant));
                    return Some(part.membership.get_or_init(membership).clone());
                }
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// The tenant with this index, if it exists.
    fn tenant(&self, plan: &Plan, number: Option<usize>) -> Result<Tenant, mglru_cache::Error> {
        let Some(number) = number else { return Ok(self.root.clone()) };
        let state = self.state();
        let there = state.tenants.get(number).filter(|presence| !presence.gone);
        let gone = || mglru_cache::Error::NoSuchTenant(plan.scenario.tenants[number].path.clone());
        there.and_then(|presence| presence.tenant.clone()).ok_or_else(gone)
    }
}

/// Results of the actions, readings of control files, and why the latter ended early.
type Administered = (Vec<Answered>, Vec<Read>, Option<String>);

/// Carries out the actions and reads files at their times until all parts have ended.
///
/// # Errors
/// If the work was cancelled.
fn administer(
    plan: &Plan,
    cache: &PageCache,
    stage: &Stage,
    parts: &[Part],
    files: &[String],
    watch: &dyn Watch,
) -> Result<Administered, Error> {
    let (mut answers, mut readings) = (Vec::new(), Vec::new());
    let mut actions = plan.scenario.actions.iter().peekable();
    let mut every = plan.scenario.print.every.filter(|_| !files.is_empty());
    let (mut readings_size, mut failure) = (ReadingsSize::default(), None);
    let mut next_read = Duration::ZERO;
    loop {
        let action_at = actions.peek().map(|action| action.at);
        let read_at = every.map(|_| next_read);
        let Some(next) = action_at.into_iter().chain(read_at).min() else { break };
        stage.wait(Some(next), |state| action_at.is_none() && state.left == 0, watch)?;
        if action_at.is_none() && stage.state().left == 0 {
            break;
        }
        // Of events that are due together, actions come first.
        if let Some(action) = actions.next_if(|action| action.at <= next) {
            let began = stage.began.elapsed();
            let done = carry_out(plan, action, cache, stage, parts);
            let error = done.err().map(|error| error.to_string());
            let time = (began, stage.began.elapsed());
            answers.push(Answered::new(&plan.scenario, action, time, error));
        } else if let Some(interval) = every {
            for reading in read(cache, files, stage.began.elapsed()) {
                let text = reading.text.as_deref().unwrap_or_default();
                if let Err(error) = readings_size.add(plan, reading.time, text) {
                    // The jobs go on: a real run takes its time, and its other results are right.
                    (every, failure) = (None, Some(error.to_string()));
                    break;
                }
                readings.push(reading);
            }
            while next_read <= stage.began.elapsed() {
                next_read += interval;
            }
        }
    }
    Ok((answers, readings, failure))
}

fn carry_out(
    plan: &Plan,
    action: &Action,
    cache: &PageCache,
    stage: &Stage,
    parts: &[Part],
) -> Result<(), mglru_cache::Error> {
    match &action.command {
        Command::Write { file, value } => cache.control().write(file, value),
        &Command::Create(number) => {
            let tenant = &plan.scenario.tenants[number];
            let made = cache.add_tenant(&tenant.path, &tenant.limits);
            let error = made.as_ref().err().is_some();
            let result = made.map(|made| stage.state().tenants[number].tenant = Some(made));
            stage.state().tenants[number].gone = error;
            stage.changed.notify_all();
            result
        }
        &Command::Remove(number) => {
            cache.remove_tenant(&plan.scenario.tenants[number].path)?;
            let mut state = stage.state();
            state.tenants[number].gone = true;
            stage.changed.notify_all();
            parts.iter().filter(|part| state.jobs[part.job] == Some(number)).for_each(Part::stop);
            Ok(())
        }
        &Command::Move { job, to } => {
            let tenant = stage.tenant(plan, to)?;
            // Under the lock, so that a job that begins now sees the move or begins in the new
            // tenant.
            let mut state = stage.state();
            state.jobs[job] = to;
            let begun = parts.iter().filter(|part| part.job == job).filter_map(|part| part.membership.get());
            begun.for_each(|membership| membership.move_to(to, tenant.clone()));
            stage.changed.notify_all();
            Ok(())
        }
    }
}

fn read(cache: &PageCache, files: &[String], time: Duration) -> Vec<Read> {
    let control = cache.control();
    let read = |file: &String| {
        let text = control.read(file).map_err(|error| error.to_string());
        Read { time, file: file.clone(), text }
    };
    files.iter().map(read).collect()
}

fn row(stats: &TenantStats, number: Option<usize>, parts: &[Part], ended: &[Ended]) -> TenantRow {
    let there = |part: &Part| part.membership.get().and_then(|membership| membership.accesses(number));
    let of_tenant = || parts.iter().zip(ended).filter_map(|(part, ended)| Some((there(part)?, ended.mapped)));
    let accesses: u64 = of_tenant().map(|(accesses, _)| accesses).sum();
    let hits = match of_tenant().any(|(_, mapped)| mapped) {
        true => accesses.saturating_sub(stats.misses),
        false => stats.hits,
    };
    let counter = |name: &str| stats.counter(name).unwrap_or(0);
    let sums = SUMS.iter().map(|&(name, of)| (name, of.iter().map(|of| counter(of.name())).sum()));
    TenantRow {
        path: stats.name.clone(),
        usage_pages: stats.usage_pages,
        peak_pages: stats.peak_pages,
        hits,
        misses: stats.misses,
        out_of_memory: counter("oom"),
        counters: sums.chain(stats.counters.iter()).collect(),
        ..TenantRow::default()
    }
}
