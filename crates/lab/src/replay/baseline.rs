//! Replays a trace with other policies and the same memory.

use super::run::{STEPS, Task, useful_pages};
use crate::error::Error;
use crate::trace_file::TraceFile;
use crate::watch::Unwatched;
use mglru_sim::Baseline;
use mglru_sim::baseline::{BaselineReport, Progress, replay};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Memory of a policy per page of its memory, in bytes, with the page's number.
const BYTES_PER_PAGE: u64 = 48;
/// Memory of the optimal policy per access of the trace, in bytes: the time of the next access to
/// its page, and a bit.
const BYTES_PER_ACCESS: u64 = 5;

/// A replay with another policy.
#[derive(Debug, Clone)]
pub struct BaselinePlan<'a> {
    /// The trace.
    pub trace: &'a TraceFile,
    /// The policy.
    pub baseline: Baseline,
    /// Memory as requested.
    pub memory: String,
    /// Memory in pages.
    pub memory_pages: u64,
    /// The access at which counting restarts.
    pub warm_from: u64,
}

/// Result of a replay with another policy.
#[derive(Debug)]
pub struct BaselineOutcome<'a> {
    /// The replay.
    pub plan: BaselinePlan<'a>,
    /// Counts of the replay.
    pub report: BaselineReport,
    /// Duration of the replay.
    pub took: Duration,
}

impl Task for BaselinePlan<'_> {
    fn trace(&self) -> &TraceFile {
        self.trace
    }

    fn needed_bytes(&self) -> Result<u64, Error> {
        let policy = useful_pages(self.trace, self.memory_pages)?.saturating_mul(BYTES_PER_PAGE);
        let accesses = match self.baseline {
            Baseline::Opt => self.trace.counts(&Unwatched)?.accesses,
            _ => 0,
        };
        Ok(policy.saturating_add(accesses.saturating_mul(BYTES_PER_ACCESS)))
    }
}

impl<'a> BaselinePlan<'a> {
    /// Replays. `progress` is called now and then with the thousandths that are done. Its error
    /// ends the replay.
    ///
    /// # Errors
    /// If the trace is damaged, or too long for a policy that needs the whole trace in advance.
    pub fn run(&self, progress: impl Fn(u64) -> Result<(), Error>) -> Result<BaselineOutcome<'a>, Error> {
        let memory_pages = useful_pages(self.trace, self.memory_pages)?;
        let (mut source, decoding) = self.trace.source()?;
        // The optimal policy reads the trace first, finds the next accesses and replays it then.
        let (reading, linked) = match self.baseline {
            Baseline::Opt => (STEPS / 2, STEPS * 5 / 8),
            _ => (STEPS, STEPS),
        };
        let mut result = Ok(());
        let mut report_progress = |stage| {
            let reported = progress(match stage {
                Progress::Read => decoding.permille() * reading / STEPS,
                Progress::Linked { accesses, of } => reading + accesses * (linked - reading) / of,
                Progress::Replayed { accesses, of } => linked + accesses * (STEPS - linked) / of,
            });
            result = reported;
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let began = Instant::now();
        let report = replay(self.baseline, memory_pages, self.warm_from, &mut source, &mut report_progress)
            .map_err(|error| Error::work(format_args!("{}: {error}", self.baseline.name())))?;
        result?;
        Ok(BaselineOutcome { plan: self.clone(), report, took: began.elapsed() })
    }
}
