//! Runs scenarios, in the simulator or on real files.
//!
//! ```text
//! Scenario    the parsed file                 mglru_workload::scenario
//! Plan        checked against the core        plan.rs
//! ScenarioOutcome     results                         simulated.rs | real.rs
//! ```
//!
//! ```
//! use mglru_lab::run::{Overrides, Plan, World, run};
//! use mglru_workload::scenario::Scenario;
//!
//! # fn main() -> Result<(), mglru_lab::Error> {
//! let text = "
//!     [machine]
//!     memory = \"4MiB\"
//!     [[tenant]]
//!     path = \"web\"
//!     [[job]]
//!     tenant = \"web\"
//!     fio = \"[pages]\\nrw=read\\nsize=1m\"
//! ";
//! let scenario =
//!     Scenario::parse(text, "web.toml".as_ref(), None).map_err(mglru_lab::Error::usage)?;
//! let plan = Plan::new(scenario, World::Sim, &Overrides::default())?;
//! let outcome = run(&plan, None)?;
//! assert_eq!(outcome.tenants[1].misses, 256);
//! # Ok(())
//! # }
//! ```

pub mod events;
mod outcome;
mod plan;
mod real;
pub mod simulated;
pub mod sources;

pub use outcome::{Answered, Killed, Read, Refused, ScenarioOutcome, TenantRow};
pub(crate) use plan::SUMS;
pub use plan::{Overrides, Plan};

use crate::error::Error;
use crate::watch::{Unwatched, Watch};
use std::path::Path;

/// The environment of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum World {
    /// The simulator, under a virtual clock.
    Sim,
    /// The cache on real files.
    Real,
}

impl World {
    /// Stable name.
    pub fn name(self) -> &'static str {
        match self {
            World::Sim => "sim",
            World::Real => "real",
        }
    }
}

/// Runs a plan. In a real run, `directory` holds the files of jobs in fio's language, which remain
/// there. With `None` these files are in the run's temporary folder, which also has all other files
/// and is removed at the end.
///
/// # Errors
/// If the machine or the cache cannot be built, a trace cannot be read, or a file cannot be
/// created.
pub fn run(plan: &Plan, directory: Option<&Path>) -> Result<ScenarioOutcome, Error> {
    run_watched(plan, directory, &Unwatched)
}

/// As [`run`]. A simulated run is a stage. It advances with the simulated time if all jobs have a
/// runtime, and notes the time and the accesses as its text.
///
/// # Errors
/// As [`run`], or if the work was cancelled.
pub fn run_watched(
    plan: &Plan,
    directory: Option<&Path>,
    watch: &dyn Watch,
) -> Result<ScenarioOutcome, Error> {
    match plan.world {
        World::Sim => simulated::run_watched(plan, watch),
        World::Real => real::run(plan, directory, watch),
    }
}

/// Runs a plan in the simulator, and passes the events of its pages to `sink`.
///
/// # Errors
/// As [`run_watched`], or if the plan is for real files, which have no events.
pub fn run_recorded(
    plan: &Plan,
    sink: events::TenantSink<'_>,
    watch: &dyn Watch,
) -> Result<ScenarioOutcome, Error> {
    match plan.world {
        World::Sim => simulated::run_recorded(plan, sink, watch),
        World::Real => Err(Error::usage("only a simulated run has events: use the world sim")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel;
    use crate::watch::Unit;
    use mglru_workload::scenario::Scenario;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// Counts steps, and the times that some were done.
    #[derive(Default)]
    struct Steps {
        done: AtomicU64,
        of: AtomicU64,
        advances: AtomicU64,
    }

    impl Watch for Steps {
        fn begin(&self, _: &str, steps: u64, _: Unit) {
            self.of.store(steps, Relaxed);
        }

        fn advance(&self, steps: u64) {
            self.done.fetch_add(steps, Relaxed);
            self.advances.fetch_add(u64::from(steps > 0), Relaxed);
        }
    }

    fn progress(load: &str) -> (u64, u64) {
        let text = format!("[machine]\nmemory = \"1MiB\"\n[[job]]\n{load}\n");
        let scenario = Scenario::parse(&text, Path::new("a.toml"), None).unwrap();
        let plan = Plan::new(scenario, World::Sim, &Overrides::default()).unwrap();
        let steps = Steps::default();
        run_watched(&plan, None, &steps).unwrap();
        (1000 * steps.done.into_inner() / steps.of.into_inner(), steps.advances.into_inner())
    }

    /// Cancels the work once the load of job 3 has begun, as the thread sees it that carries out
    /// the actions.
    struct OnceLoaded<'p>(&'p Path, std::thread::ThreadId);

    impl Watch for OnceLoaded<'_> {
        fn is_cancelled(&self) -> bool {
            let in_folder = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
            let is_load = |name: std::ffi::OsString| name.to_string_lossy().starts_with("job3");
            std::thread::current().id() == self.1
                && in_folder(self.0)
                    .flat_map(|own| in_folder(&own.path()))
                    .any(|file| is_load(file.file_name()))
        }
    }

    /// A job waits for its start, and others for their next access, for an hour.
    #[test]
    fn a_cancelled_real_run_ends_at_once_and_leaves_the_files_of_jobs_alone() {
        let above = tempfile::tempdir().unwrap();
        let jobs = [
            "fio = \"[late]\\nrw=read\\nsize=4k\"\nstart = \"1h\"",
            "fio = \"[slow]\\nrw=write\\nsize=1m\\nrate_iops=1\\nruntime=1h\\nverify=crc32c\"",
            "load = \"ycsb:records=1000,cache=100k\"\nruntime = \"1h\"",
        ];
        let jobs = jobs.map(|job| format!("[[job]]\n{job}\n")).concat();
        let text = format!("[machine]\nmemory = \"4MiB\"\n{jobs}");
        let scenario = Scenario::parse(&text, Path::new("a.toml"), None).unwrap();
        let plan = Plan::new(scenario, World::Real, &Overrides::default()).unwrap();
        let run =
            run_watched(&plan, Some(above.path()), &OnceLoaded(above.path(), std::thread::current().id()));
        assert_eq!(run.err(), Some(Error::Cancelled));
        let left = std::fs::read_dir(above.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let left: Vec<_> = left.map(|name| name.into_string().unwrap()).collect();
        assert!(left.iter().all(|name| !name.starts_with("mglru-run-")), "{left:?}");
    }

    /// The process may have few threads. It once panicked while the first job waited for its start.
    #[test]
    fn a_real_run_without_a_thread_for_each_job_ends_at_once() {
        let above = tempfile::tempdir().unwrap();
        let late = "[[job]]\nfio = \"[late]\\nrw=read\\nsize=4k\"\nstart = \"1h\"\n";
        let text = format!("[machine]\nmemory = \"4MiB\"\n{}", late.repeat(2));
        let scenario = Scenario::parse(&text, Path::new("a.toml"), None).unwrap();
        let plan = Plan::new(scenario, World::Real, &Overrides::default()).unwrap();
        parallel::grants::limit(1);
        let error = run(&plan, Some(above.path())).unwrap_err().to_string();
        assert!(error.starts_with("a.toml:6:1: cannot start a thread: "), "{error}");
    }

    /// Removing a folder takes descriptors, too. With 4 to 6 in all, an empty one was left behind.
    #[test]
    fn a_real_run_without_descriptors_leaves_no_folder() {
        const NAME: &str = "run::tests::a_real_run_without_descriptors_leaves_no_folder";
        const ABOVE: &str = "MGLRU_TEST_ABOVE";
        if let Some(above) = std::env::var_os(ABOVE) {
            let text = "[machine]\nmemory = \"4MiB\"\n[[job]]\nfio = \"[a]\\nrw=read\\nsize=4k\"\n";
            let scenario = Scenario::parse(text, Path::new("a.toml"), None).unwrap();
            let plan = Plan::new(scenario, World::Real, &Overrides::default()).unwrap();
            let _ = run(&plan, Some(Path::new(&above)));
            return;
        }
        // A process of its own: the limit is that of all threads.
        for descriptors in 4..10 {
            let above = tempfile::tempdir().unwrap();
            let limited = format!("ulimit -n {descriptors} && exec \"$0\" --exact {NAME}");
            let mut command = std::process::Command::new("sh");
            command.arg("-c").arg(limited).arg(std::env::current_exe().unwrap()).env(ABOVE, above.path());
            let output = command.output().unwrap();
            assert!(output.status.success(), "{descriptors}: {output:?}");
            let left = std::fs::read_dir(above.path()).unwrap().map(|entry| entry.unwrap().file_name());
            let left: Vec<_> = left.map(|name| name.into_string().unwrap()).collect();
            assert!(left.iter().all(|name| !name.starts_with("mglru-run-")), "{descriptors}: {left:?}");
        }
    }

    #[test]
    fn a_simulated_run_advances_with_its_time() {
        let (permille, advances) =
            progress("load = \"ycsb:records=20000,cache=100k\"\nclients = 8\nruntime = \"2s\"");
        assert!((900..=1000).contains(&permille) && advances >= 10, "{permille} in {advances} advances");
        // The end of a job without a runtime is unknown.
        assert_eq!(progress("fio = \"[a]\\nrw=read\\nsize=64m\"").0, 0);
    }
}
