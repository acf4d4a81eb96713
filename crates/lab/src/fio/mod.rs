//! Runs jobs in fio's language with the cache on real files.
//!
//! `mglru_workload::fio` parses jobs and formats their reports. A [`Plan`] resolves the files that
//! the jobs need. [`run`] runs the jobs, with at least one thread per instance, and returns their
//! outcomes.
//!
//! # Example
//!
//! ```
//! use mglru_cache::PageCache;
//! use mglru_core::Mechanisms;
//! use mglru_lab::{Unwatched, fio};
//! use mglru_workload::fio::Invocation;
//!
//! # fn main() -> Result<(), mglru_lab::Error> {
//! let folder = tempfile::tempdir().expect("a temporary directory");
//! let directory = format!("--directory={}", folder.path().display());
//! let options = [directory.as_str(), "--name=hot", "--rw=randread", "--size=256k"];
//! let jobs = Invocation::parse(&options).expect("jobs").jobs;
//! let plan = fio::Plan::new(&jobs, &[])?;
//! plan.lay_out(&Unwatched)?;
//! let mechanisms = Mechanisms::default();
//! let cache = PageCache::builder(4 << 20).mechanisms(mechanisms).build()?;
//! let done = fio::run(&plan, &cache, mechanisms, &Unwatched)?;
//! done.check(&plan)?;
//! assert_eq!(done.outcomes[0].read.bytes, 256 << 10);
//! # Ok(())
//! # }
//! ```

mod blocks;
pub(crate) mod job;
pub(crate) mod meter;
mod monitor;
pub(crate) mod plan;
pub(crate) mod source;
mod together;

use crate::cache_counts::CacheCounts;
use crate::load::{RealLoad, Setup};
use crate::{Error, Stage, Unit, Watch};
use blocks::Blocks;
use job::Runner;
use mglru_cache::{OpenMode, PageCache, Tenant, TenantStats};
use mglru_core::Mechanisms;
use mglru_workload::fio::Channel;
use mglru_workload::fio::report::JobOutcome;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use meter::Progress;
pub use monitor::Look;
pub use plan::{Layout, Plan, PlannedJob, PlannedUse};

/// Interval of progress reports to a [`Watch`].
const TICK: Duration = Duration::from_millis(250);
/// Progress steps of a run.
const STEPS: u64 = 1000;

/// A tenant with its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantLimit {
    /// Name of the tenant. Jobs of this name run in it.
    pub name: String,
    /// Memory limit in bytes.
    pub max_bytes: u64,
}

/// Result of a run.
#[derive(Debug)]
pub struct Done {
    /// JobOutcome of each instance, in the plan's order.
    pub outcomes: Vec<JobOutcome>,
    /// The cache after the jobs ended and before their files were closed.
    pub cache: CacheCounts,
}

/// Runs jobs whose files are laid out, in a cache with these mechanisms.
///
/// # Errors
/// If a file cannot be opened or a thread cannot be started. Failed accesses are in the outcomes
/// ([`Done::check`]).
pub fn run(plan: &Plan, cache: &PageCache, mechanisms: Mechanisms, watch: &dyn Watch) -> Result<Done, Error> {
    let stage = Stage::begin(watch, "jobs", STEPS, Unit::Steps);
    run_looking(plan, cache, mechanisms, &mut |progress| stage.advance_to(progress.share()).map(|()| TICK))
}

/// Runs jobs whose files are laid out, and calls `look` during the run.
///
/// # Errors
/// As [`run`], or the error of `look`.
pub fn run_looking(
    plan: &Plan,
    cache: &PageCache,
    mechanisms: Mechanisms,
    look: Look<'_>,
) -> Result<Done, Error> {
    let mut runners = open(plan, cache)?;
    let mut progress = Progress::new(runners.iter().map(|runner| runner.meter.clone()).collect());
    monitor::run(&mut runners, &mut progress, look)?;
    // The files are still open, so their pages are still in memory and counted.
    let began = Instant::now();
    let wrote = plan.jobs.iter().any(|planned| planned.job.mix.writes());
    let mut outcomes: Vec<JobOutcome> = runners.iter().map(Runner::finish).collect();
    let sync = wrote.then(|| began.elapsed());
    progress.add_to(&mut outcomes);
    let mut cache = CacheCounts { sync, ..CacheCounts::of(cache, mechanisms) };
    count_mapped_hits(&mut cache.tenants, &runners);
    for (runner, outcome) in runners.iter_mut().zip(&mut outcomes) {
        runner.end_load();
        runner.add_load_failure(outcome);
    }
    Ok(Done { outcomes, cache })
}

impl Done {
    /// Checks that all jobs succeeded.
    ///
    /// # Errors
    /// The first failed job with its reason, and the number of other failed jobs.
    pub fn check(&self, plan: &Plan) -> Result<(), Error> {
        let with_failure = |(planned, outcome)| {
            let (planned, outcome): (&PlannedJob, &JobOutcome) = (planned, outcome);
            Some((&planned.job.name, outcome.failure.as_ref()?, outcome.verify_errors))
        };
        let failed: Vec<_> = plan.jobs.iter().zip(&self.outcomes).filter_map(with_failure).collect();
        let Some((name, failure, wrong)) = failed.first() else { return Ok(()) };
        let mut text = format!("job `{name}` failed: {}", failure.message);
        if *wrong > 1 {
            text.push_str(&format!(" (and {} more blocks of this job)", wrong - 1));
        }
        if failed.len() > 1 {
            let all = plan.jobs.len();
            text.push_str(&format!("; {} of {all} jobs failed, the report names all", failed.len()));
        }
        Err(Error::Work(text))
    }
}

/// A runner per instance, with its files open.
fn open<'a>(plan: &'a Plan, cache: &PageCache) -> Result<Vec<Runner<'a>>, Error> {
    // Load of the job whose instances are being opened.
    let mut load: Option<Arc<RealLoad>> = None;
    let open = |planned: &'a PlannedJob| {
        if planned.job.instance == 0 {
            load = start_load(planned, cache)?.map(Arc::new);
        }
        open_one(plan, planned, &cache.tenant(&planned.tenant)?, load.clone())
    };
    plan.jobs.iter().map(open).collect()
}

/// The runner of an instance, with its files open in a tenant.
///
/// # Errors
/// If a file cannot be opened.
pub(crate) fn open_one<'a>(
    plan: &Plan,
    planned: &'a PlannedJob,
    tenant: &Tenant,
    load: Option<Arc<RealLoad>>,
) -> Result<Runner<'a>, Error> {
    let job = &planned.job;
    let mode = if job.mix.writes() { OpenMode::ReadWrite } else { OpenMode::ReadOnly };
    let files: Result<_, _> = planned.files.iter().map(|used| tenant.open(&used.path, mode)).collect();
    let blocks = |used: &PlannedUse| Blocks::new(job, used, plan.others(planned, used));
    let verified = planned.files.iter().filter(|_| job.verify.is_some());
    Runner::new(planned, files?, verified.map(blocks).collect(), load)
}

/// Sets up a job's load, if it has one, and its files.
fn start_load(planned: &PlannedJob, cache: &PageCache) -> Result<Option<RealLoad>, Error> {
    let job = &planned.job;
    let Some(load) = job.load else { return Ok(None) };
    let path = std::path::absolute(&job.files[0]).map_err(Error::work)?;
    let setup = Setup {
        load,
        clients: job.instances,
        seed: job.seed,
        tenant: &cache.tenant(&planned.tenant)?,
        directory: path.parent().unwrap_or(Path::new("/")),
        name: &job.name,
        mapped: job.engine.channel() == Channel::Mapped,
    };
    RealLoad::new(&setup, &crate::Unwatched).map(Some)
}

/// Fills in hits through mappings. The cache does not count them, because that would cost more than
/// the hit. They are the jobs' accesses minus the cache's misses.
fn count_mapped_hits(tenants: &mut [TenantStats], runners: &[Runner]) {
    for tenant in tenants {
        let of_tenant = || runners.iter().filter(|runner| runner.planned().tenant == tenant.name);
        if of_tenant().any(Runner::is_mapped) {
            let accesses: u64 = of_tenant().map(Runner::page_accesses).sum();
            tenant.hits = accesses.saturating_sub(tenant.misses);
        }
    }
}
