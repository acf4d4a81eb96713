//! Starts the threads of instances, stage by stage, and tells about them while they run.

use super::gate::Gate;
use super::job::Runner;
use super::meter::{Meter, Watch};
use crate::error::Failure;
use crate::progress;
use indicatif::ProgressBar;
use mglru_workload::fio::Eta;
use std::io::Write;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How long threads get to tell what they did, when results are wanted before the end.
const TELL: Duration = Duration::from_millis(50);

/// How often a line about the progress is printed where that is no terminal.
const LINE: Duration = Duration::from_secs(1);

/// What is told while instances run.
pub struct Monitor<'a> {
    /// Counts them.
    pub watch: Watch,
    /// When to show progress.
    pub eta: Eta,
    /// How often to print results.
    pub status_interval: Option<Duration>,
    /// Prints results.
    pub print_status: &'a mut dyn FnMut(&Watch) -> Result<(), Failure>,
}

impl Monitor<'_> {
    /// Runs instances that are in the order of their stages, each stage to its end. Loads give up what they have before
    /// the next stage begins; those of the last keep it, for what is told about the cache.
    ///
    /// # Errors
    /// There are not enough threads, or results cannot be printed.
    pub fn run(&mut self, runners: &mut [Runner]) -> Result<(), Failure> {
        let mut stages =
            runners.chunk_by_mut(|one, next| one.planned().job.stage == next.planned().job.stage).peekable();
        while let Some(stage) = stages.next() {
            self.run_stage(stage)?;
            if stages.peek().is_some() {
                stage.iter_mut().for_each(Runner::end_load);
            }
        }
        Ok(())
    }

    fn run_stage(&mut self, runners: &mut [Runner]) -> Result<(), Failure> {
        let gate = Gate::default();
        let all = runners.len();
        std::thread::scope(|scope| {
            let (finished, wait) = mpsc::channel::<()>();
            for (started, runner) in runners.iter_mut().enumerate() {
                let (finished, gate) = (finished.clone(), &gate);
                let run = move || {
                    runner.run(gate);
                    drop(finished);
                };
                if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, run) {
                    gate.turn_away();
                    return Err(Failure::work(format_args!(
                        "{started} of {all} jobs have a thread, and the next has none: {error}; use fewer `numjobs`"
                    )));
                }
            }
            gate.open_for(all);
            drop(finished);
            self.watch_until_finished(&wait)
        })
    }

    /// Nothing is ever sent: the channel closes when the last runner has dropped its end.
    fn watch_until_finished(&mut self, wait: &Receiver<()>) -> Result<(), Failure> {
        let mut progress = Progress::new(self.eta);
        let mut status = Every::new(self.status_interval);
        loop {
            let pause = self.watch.next_sample().min(progress.every.left()).min(status.left());
            if wait.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                progress.clear();
                return Ok(());
            }
            self.watch.sample();
            if progress.every.is_due() {
                progress.show(&self.watch);
            }
            if status.is_due() {
                self.watch.ask();
                std::thread::sleep(TELL);
                (self.print_status)(&self.watch)?;
            }
        }
    }
}

/// Something that is to be done again and again.
struct Every {
    interval: Option<Duration>,
    last: Instant,
}

impl Every {
    fn new(interval: Option<Duration>) -> Every {
        Every { interval, last: Instant::now() }
    }

    fn left(&self) -> Duration {
        self.interval.map_or(Duration::MAX, |interval| interval.saturating_sub(self.last.elapsed()))
    }

    /// Whether it is time to; the next time is counted from now.
    fn is_due(&mut self) -> bool {
        let is_due = self.left().is_zero();
        if is_due {
            self.last = Instant::now();
        }
        is_due
    }
}

/// Says on stderr how far it is.
struct Progress {
    every: Every,
    /// `None`: lines.
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new(eta: Eta) -> Progress {
        let is_terminal = progress::is_watched();
        let interval = match eta {
            Eta::Auto | Eta::Always if is_terminal => Some(progress::TICK),
            Eta::Always => Some(LINE),
            Eta::Auto | Eta::Never => None,
        };
        let bar = (interval.is_some() && is_terminal).then(|| progress::of_share(Meter::DONE));
        Progress { every: Every::new(interval), bar }
    }

    fn show(&self, watch: &Watch) {
        let (share, line) = watch.summary();
        match &self.bar {
            Some(bar) => {
                bar.set_position(share);
                bar.set_message(line);
            }
            // Nobody is kept from working because nobody listens.
            None => drop(writeln!(std::io::stderr(), "{}% {line}", share * 100 / Meter::DONE)),
        }
    }

    fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
