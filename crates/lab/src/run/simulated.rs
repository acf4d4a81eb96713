//! Runs a scenario on the simulated machine.

use super::events::{Recording, TenantSink};
use super::outcome::{Answered, Killed, Read, ReadingsSize, Refused, ScenarioOutcome, TenantRow};
use super::plan::{Plan, SUMS};
use super::sources::{Client, Files, FioSource, Names, Numbers, Replay, Span};
use crate::Unwatched;
use crate::error::Error;
use crate::trace_file::{Decoding, TraceFile};
use crate::watch::{Stage, Unit, Watch};
use mglru_core::lru::Swappiness;
use mglru_core::readahead::DEFAULT_SWAP_PAGES;
use mglru_core::{PAGE_BYTES, Time, UNLIMITED};
use mglru_sim::{
    Command, Counters, DeviceModel, Machine, Numbering, SimError, Simulator, SwapDevice, SwapModel, Tenant,
    TenantReport, Writes,
};
use mglru_workload::fio;
use mglru_workload::scenario::{self, Allocator, Device, Job, MEMORY_BYTES_MAX, Work};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Time for reclaim to examine a page: 4 GB/s. If neither this nor a visit to a memcg took time,
/// the clock would stop while all requests fail after trying everything. No `runtime` would end,
/// and a trace with failing requests would run for a minute instead of seconds.
pub const SCAN_TIME: Duration = Duration::from_micros(1);
/// Time for a visit to a memcg.
pub(crate) const BATCH_TIME: Duration = Duration::from_micros(1);

/// Runs a plan.
///
/// # Errors
/// If the machine cannot be built or a trace cannot be read, or of a bug in the simulator.
pub fn run(plan: &Plan) -> Result<ScenarioOutcome, Error> {
    run_watched(plan, &Unwatched)
}

/// Runs a plan. Now and then the simulated time and the accesses are noted.
///
/// # Errors
/// As [`run`], or if the work was cancelled.
pub fn run_watched(plan: &Plan, watch: &dyn Watch) -> Result<ScenarioOutcome, Error> {
    simulate(plan, |_| (), |_| (), |_| (), watch).map(|(outcome, ())| outcome)
}

/// As [`run_watched`], and passes all events to `sink`.
///
/// # Errors
/// As [`run_watched`].
pub fn run_recorded(plan: &Plan, sink: TenantSink<'_>, watch: &dyn Watch) -> Result<ScenarioOutcome, Error> {
    let mut recording = Recording::new(plan.mechanisms.lru(), sink);
    let observer = recording.observer();
    let prepare = |simulator: &mut Simulator| simulator.observe(observer);
    let outcome = simulate(plan, prepare, |_| (), |simulator| recording.pass_on(simulator.core()), watch);
    outcome.map(|(outcome, ())| outcome)
}

/// Runs a plan on a simulator. One callback prepares it before the run, the other reads it
/// afterwards.
///
/// # Errors
/// As [`run_watched`].
pub fn run_with<R>(
    plan: &Plan,
    prepare: impl FnOnce(&mut Simulator),
    look: impl FnOnce(&Simulator) -> R,
    watch: &dyn Watch,
) -> Result<(ScenarioOutcome, R), Error> {
    simulate(plan, prepare, look, |_| (), watch)
}

/// The time at which all jobs end; `None` if one of them ends when its work is done.
fn end_of(scenario: &scenario::Scenario) -> Option<Duration> {
    let end = |job: &Job| {
        let runtime = match &job.work {
            Work::Fio(jobs) => {
                let end = |job: &fio::Job| {
                    Some(job.start_delay.saturating_add(job.ramp).saturating_add(job.runtime?))
                };
                jobs.iter().map(end).collect::<Option<Vec<_>>>()?.into_iter().max()?
            }
            Work::Trace { runtime, .. } => (*runtime)?,
            Work::Load { runtime, .. } => *runtime,
        };
        Some(job.start.saturating_add(runtime))
    };
    let end = scenario.jobs.iter().map(end).collect::<Option<Vec<_>>>()?.into_iter().max()?;
    (end > Duration::ZERO).then_some(end)
}

/// Steps of the simulator between two notes; a step is at most some ten thousand accesses.
const STEPS_PER_NOTE: u64 = 4096;

fn simulate<R>(
    plan: &Plan,
    prepare: impl FnOnce(&mut Simulator),
    look: impl FnOnce(&Simulator) -> R,
    mut after_step: impl FnMut(&Simulator),
    watch: &dyn Watch,
) -> Result<(ScenarioOutcome, R), Error> {
    let scenario = &plan.scenario;
    let first = scenario.first_tenants();
    let tenants: Vec<Tenant> = scenario.tenants.iter().map(tenant).collect();
    let (now, later) = tenants.split_at(first.len());
    let mut simulator = Simulator::new(&machine(plan, now.to_vec())?).map_err(failure)?;
    let files: Vec<String> = scenario.print.files.iter().map(|file| file.value.clone()).collect();
    let numbers = job_numbers(&scenario.jobs);
    let commands = scenario.actions.iter().map(|action| command(action, &numbers)).collect();
    let every = scenario.print.every.filter(|_| !files.is_empty());
    simulator.administer(later.to_vec(), commands, every.map(|every| (every, files.clone())));
    let file_numbers = Numbers::default();
    let mut shared_files = Files::new(file_numbers.clone());
    let mut decodings = Vec::new();
    for job in &scenario.jobs {
        let place = scenario.place(job.place);
        let seed = scenario.machine.seed;
        add(&mut simulator, job, &place, seed, &file_numbers, &mut shared_files, &mut decodings)?;
    }
    for (number, pages) in shared_files.lengths() {
        simulator.set_file_pages(u64::from(number) << 32, pages);
    }
    prepare(&mut simulator);
    let stage = Stage::begin(watch, &scenario.name(), 1000, Unit::Steps);
    let end = end_of(scenario);
    let mut steps = 0u64;
    let (mut counted, mut readings_size) = (0, ReadingsSize::default());
    let mut goes_on = true;
    while goes_on {
        // The last step has events, too.
        goes_on = simulator.step().map_err(failure)?;
        steps += 1;
        for reading in &simulator.readings()[counted..] {
            let text = reading.text.as_deref().unwrap_or_default();
            readings_size.add(plan, since_start(reading.time), text)?;
            counted += 1;
        }
        after_step(&simulator);
        watch.check()?;
        if steps.is_multiple_of(STEPS_PER_NOTE) {
            let seconds = since_start(simulator.now()).as_secs_f64();
            let millions = simulator.accesses() as f64 / 1e6;
            watch.note(&format!("{}: {seconds:.1} s simulated, {millions:.1} M accesses", scenario.name()));
            stage.advance_to(end.map_or(0.0, |end| (seconds / end.as_secs_f64()).min(1.0)))?;
        }
    }
    drop(stage);
    let report = simulator.report();
    let looked = look(&simulator);
    let mut readings: Vec<Read> = simulator
        .readings()
        .iter()
        .map(|reading| Read {
            time: since_start(reading.time),
            file: files[reading.file].clone(),
            text: reading.text.clone().map_err(|error| error.to_string()),
        })
        .collect();
    let end = simulator.now();
    readings.extend(files.iter().map(|file| Read {
        time: since_start(end),
        file: file.clone(),
        text: simulator.core().read_control(file, end).map_err(|error| error.to_string()),
    }));
    let answers = scenario.actions.iter().zip(simulator.answers()).map(|(action, answer)| {
        let (began, ended) = answer.time;
        let error = answer.result.as_ref().err().map(ToString::to_string);
        Answered::new(scenario, action, (since_start(began), since_start(ended)), error)
    });
    let answers = answers.collect();
    simulator.finish().map_err(failure)?;
    let tenants = report.tenants.iter().map(row).collect();
    let outcome = ScenarioOutcome {
        answers,
        kills: report
            .kills
            .into_iter()
            .map(|kill| Killed { time: Some(since_start(kill.time)), report: kill.report })
            .collect(),
        refusals: report
            .refusals
            .into_iter()
            .map(|refusal| Refused {
                tenant: refusal.tenant,
                time: since_start(refusal.time),
                report: refusal.report,
            })
            .collect(),
        readings,
        skipped_records: decodings.iter().map(|decoding| decoding.skipped()).sum(),
        ..ScenarioOutcome::new(plan, since_start(report.now), tenants)
    };
    Ok((outcome, looked))
}

fn since_start(time: Time) -> Duration {
    time.since(Time::ZERO)
}

fn failure(error: SimError) -> Error {
    match error {
        SimError::Machine(_) | SimError::Tenant(_) => Error::usage(error),
        SimError::Job(_, error) => Error::work(error),
        error => {
            Error::work(format_args!("{error}; this is a bug in mglru: please report it with the scenario"))
        }
    }
}

fn machine(plan: &Plan, tenants: Vec<Tenant>) -> Result<Machine, Error> {
    let wanted = &plan.scenario.machine;
    if plan.memory_bytes > MEMORY_BYTES_MAX {
        return Err(Error::usage("--memory: at most 1 TiB can be simulated"));
    }
    let pages = (plan.memory_bytes / PAGE_BYTES) as u32;
    let device = match wanted.device {
        Device::Nvme => DeviceModel::nvme(),
        Device::Slow => DeviceModel::slow(),
        Device::Ideal => DeviceModel::IDEAL,
    };
    let swap = wanted.swap.map(|swap| SwapModel {
        pages: (swap.bytes / PAGE_BYTES) as u32,
        device: match swap.on_disk {
            true => SwapDevice::Disk { model: device, cpu: 0 },
            false => SwapDevice::zram(),
        },
    });
    let machine = Machine {
        tenants,
        mechanisms: plan.mechanisms,
        cpus: wanted.cpus.unwrap_or(1) as usize,
        device,
        swap,
        swappiness: wanted.swappiness.and_then(Swappiness::new).unwrap_or(Swappiness::DEFAULT),
        oom_policy: plan.oom_policy,
        scan_time: SCAN_TIME,
        batch_time: BATCH_TIME,
        // As in fio and in databases, whose blocks are whole pages.
        writes: Writes::Overwrite,
        seed: wanted.seed,
        readahead_pages: wanted.readahead_pages,
        // As the cache's swap file.
        swap_readahead_pages: DEFAULT_SWAP_PAGES,
        fault_around_pages: wanted.fault_around_pages,
        ..Machine::new(pages)
    };
    Ok(match wanted.allocator {
        Allocator::Plain => machine,
        Allocator::Kernel => machine.with_kernel_allocator(),
    })
}

fn pages(bytes: Option<u64>) -> u64 {
    bytes.map_or(UNLIMITED, |bytes| bytes / PAGE_BYTES)
}

fn tenant(wanted: &scenario::Tenant) -> Tenant {
    let limits = &wanted.limits;
    let protection = |bytes: u64| if bytes == u64::MAX { UNLIMITED } else { bytes / PAGE_BYTES };
    Tenant {
        path: wanted.path.clone(),
        max_pages: pages(limits.max_bytes),
        high_pages: pages(limits.high_bytes),
        low_pages: protection(limits.low_bytes),
        min_pages: protection(limits.min_bytes),
        swap_max_pages: pages(limits.swap_max_bytes),
        swap_high_pages: pages(limits.swap_high_bytes),
    }
}

/// For each job, the indices of its instances on the machine, in the order of their addition.
fn job_numbers(jobs: &[Job]) -> Vec<Range<usize>> {
    let mut end = 0;
    let numbers = |job: &Job| {
        let start = end;
        end += match &job.work {
            Work::Fio(instances) => instances.len(),
            Work::Trace { .. } => 1,
            Work::Load { clients, .. } => *clients as usize,
        };
        start..end
    };
    jobs.iter().map(numbers).collect()
}

fn command(action: &scenario::Action, numbers: &[Range<usize>]) -> (Time, Command) {
    (Time::ZERO + action.at, action.command.map(|&job| numbers[job].clone(), |&tenant| tenant))
}

/// Adds a job with all its instances or clients.
fn add(
    simulator: &mut Simulator,
    job: &Job,
    place: &str,
    seed: u64,
    numbers: &Numbers,
    files: &mut Files,
    decodings: &mut Vec<Arc<Decoding>>,
) -> Result<(), Error> {
    let tenant = [job.tenant];
    match &job.work {
        Work::Fio(jobs) => {
            for instance in jobs {
                simulator.add_job_of(&tenant, FioSource::new(instance, job.start, files)?);
            }
        }
        Work::Trace { path, open, runtime } => {
            let trace = TraceFile::load(path, *open, &Unwatched).map_err(|failure| failure.at(place))?;
            let span = Span::new(job.start, *runtime);
            let (replay, decoding) = Replay::new(&trace, span, numbers.clone())?;
            decodings.push(decoding);
            simulator.add_job_of(&tenant, replay);
        }
        Work::Load { load, clients, runtime } => {
            let running = load.start(*clients, seed).map_err(Error::usage)?;
            let names = Names::new(numbers.clone(), Numbering::Files);
            let load = Rc::new(RefCell::new((running, names)));
            let span = Span::new(job.start, Some(*runtime));
            for client in 0..*clients as usize {
                let source = Client { span, client, load: load.clone(), started: false, steps: Vec::new() };
                simulator.add_job_of(&tenant, source);
            }
        }
    }
    Ok(())
}

fn row(tenant: &TenantReport) -> TenantRow {
    let counts = &tenant.total.counts;
    TenantRow {
        path: tenant.name.clone(),
        usage_pages: tenant.usage_pages,
        peak_pages: tenant.peak_pages,
        hits: counts.hits,
        misses: counts.misses,
        out_of_memory: counts.out_of_memory,
        counters: counters(&tenant.total.counters),
        ..TenantRow::default()
    }
}

fn counters(counters: &Counters) -> Vec<(&'static str, u64)> {
    let sum = |&(name, of): &(&'static str, [mglru_core::Counter; 2])| {
        (name, of.iter().map(|&counter| counters.get(counter)).sum())
    };
    SUMS.iter().map(sum).chain(counters.iter()).collect()
}
