//! Other policies on the same trace with the same memory.

use super::run::PAGES_WITHOUT_COUNTING;
use crate::error::Error;
use crate::trace_file::TraceFile;
use crate::watch::Unwatched;
use mglru_sim::Baseline;
use mglru_sim::baseline::{BaselineReport, Progress, replay};
use std::time::{Duration, Instant};

/// Steps of progress of the whole.
const STEPS: u64 = 1000;

/// What to replay.
#[derive(Debug, Clone)]
pub struct BaselinePlan<'a> {
    /// The trace.
    pub trace: &'a TraceFile,
    /// Who decides which page leaves.
    pub baseline: Baseline,
    /// How memory was asked for.
    pub memory: String,
    /// What that is, in pages.
    pub memory_pages: u64,
    /// The access from which on counting starts again.
    pub warm_from: u64,
}

/// What came of it.
#[derive(Debug)]
pub struct BaselineOutcome<'a> {
    /// What was replayed.
    pub plan: BaselinePlan<'a>,
    /// What happened.
    pub report: BaselineReport,
    /// How long the replay took.
    pub took: Duration,
}

impl<'a> BaselinePlan<'a> {
    /// Replays. `told` hears how many thousandths of it are done, now and then; its error ends the
    /// replay.
    ///
    /// # Errors
    /// The trace is damaged, or too long for a policy that has to know all of it.
    pub fn run(&self, told: impl Fn(u64) -> Result<(), Error>) -> Result<BaselineOutcome<'a>, Error> {
        let mut memory_pages = self.memory_pages;
        if memory_pages > PAGES_WITHOUT_COUNTING {
            // More than all pages is of no use, and what is kept per page of memory costs space.
            memory_pages = memory_pages.min(self.trace.counts(&Unwatched)?.distinct_pages.max(1));
        }
        let (mut source, decoding) = self.trace.source()?;
        // The optimum reads the trace first, and replays it then.
        let reading = if self.baseline == Baseline::Opt { STEPS / 2 } else { STEPS };
        let mut wish = Ok(());
        let mut tell = |progress| {
            let told = told(match progress {
                Progress::Read => decoding.permille() * reading / STEPS,
                Progress::Replayed { accesses, of } => reading + accesses * (STEPS - reading) / of,
            });
            wish = std::mem::replace(&mut wish, Ok(())).and(told);
        };
        let began = Instant::now();
        let report = replay(self.baseline, memory_pages, self.warm_from, &mut source, &mut tell)
            .map_err(|error| Error::work(format_args!("{}: {error}", self.baseline.name())))?;
        wish?;
        Ok(BaselineOutcome { plan: self.clone(), report, took: began.elapsed() })
    }
}
