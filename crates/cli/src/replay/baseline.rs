//! Other policies on the same trace with the same memory: `--baseline`.

use super::run::PAGES_WITHOUT_COUNTING;
use crate::error::Failure;
use crate::trace_file::TraceFile;
use mglru_lab::Unwatched;
use mglru_sim::Baseline;
use mglru_sim::baseline::{BaselineReport, Progress, replay};
use std::time::{Duration, Instant};

/// Steps of progress of the whole.
const STEPS: u64 = 1000;

/// The policies that `--baseline` names: names, or `all`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// All that there are.
    All,
    /// This one.
    One(Baseline),
}

/// One of the names that `--baseline` takes.
///
/// # Errors
/// There is no such policy.
pub fn parse(name: &str) -> Result<Choice, String> {
    match name {
        "all" => Ok(Choice::All),
        _ => Baseline::parse(name).map(Choice::One).map_err(|error| format!("{error}, and all")),
    }
}

/// The policies that were chosen, each once, in the order of the choice.
pub fn chosen(choices: &[Choice]) -> Vec<Baseline> {
    let mut baselines = Vec::new();
    for choice in choices {
        let more = match choice {
            Choice::All => &Baseline::ALL[..],
            Choice::One(baseline) => std::slice::from_ref(baseline),
        };
        for &baseline in more {
            if !baselines.contains(&baseline) {
                baselines.push(baseline);
            }
        }
    }
    baselines
}

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
    /// Replays. `advance` is told how many thousandths of it are done, now and then.
    ///
    /// # Errors
    /// The trace is damaged, or too long for a policy that has to know all of it.
    pub fn run(&self, advance: impl Fn(u64)) -> Result<BaselineOutcome<'a>, Failure> {
        let mut memory_pages = self.memory_pages;
        if memory_pages > PAGES_WITHOUT_COUNTING {
            // More than all pages is of no use, and what is kept per page of memory costs space.
            memory_pages = memory_pages.min(self.trace.counts(&Unwatched)?.distinct_pages.max(1));
        }
        let (mut source, decoding) = self.trace.source()?;
        // The optimum reads the trace first, and replays it then.
        let reading = if self.baseline == Baseline::Opt { STEPS / 2 } else { STEPS };
        let mut tell = |progress| {
            advance(match progress {
                Progress::Read => decoding.permille() * reading / STEPS,
                Progress::Replayed { accesses, of } => reading + accesses * (STEPS - reading) / of,
            })
        };
        let began = Instant::now();
        let report = replay(self.baseline, memory_pages, self.warm_from, &mut source, &mut tell)
            .map_err(|error| Failure::work(format_args!("{}: {error}", self.baseline.name())))?;
        Ok(BaselineOutcome { plan: self.clone(), report, took: began.elapsed() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_chosen_by_name_each_once() {
        let choose = |names: &str| -> Vec<&str> {
            let choices: Vec<Choice> = names.split(',').map(|name| parse(name).unwrap()).collect();
            chosen(&choices).into_iter().map(Baseline::name).collect()
        };
        assert_eq!(choose("opt,arc,opt"), ["opt", "arc"]);
        assert_eq!(choose("sieve,all").len(), Baseline::ALL.len());
        assert_eq!(choose("sieve,all")[0], "sieve");
        assert!(parse("mru").unwrap_err().contains("opt, and all"));
    }
}
