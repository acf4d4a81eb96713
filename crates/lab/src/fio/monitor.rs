//! Starts the threads of instances, stage by stage, and reports on them while they run.

use super::job::Runner;
use super::meter::Progress;
use crate::Error;
use crate::gate::Gate;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Callback during a run. It returns the time until its next call. Its error ends the jobs.
pub type Look<'l> = &'l mut dyn FnMut(&Progress) -> Result<Duration, Error>;

/// Runs instances, given in the order of their stages, each stage to its end. Loads release their
/// memory and files before the next stage. Those of the last stage keep them for the cache's
/// statistics.
pub fn run(runners: &mut [Runner], progress: &mut Progress, look: Look<'_>) -> Result<(), Error> {
    let mut stages =
        runners.chunk_by_mut(|one, next| one.planned().job.stage == next.planned().job.stage).peekable();
    while let Some(stage) = stages.next() {
        run_stage(stage, progress, look)?;
        if stages.peek().is_some() {
            stage.iter_mut().for_each(Runner::end_load);
        }
    }
    Ok(())
}

fn run_stage(runners: &mut [Runner], progress: &mut Progress, look: Look<'_>) -> Result<(), Error> {
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
                let advice = match started {
                    0 => "the limit of threads leaves room for no job (`ulimit -u`, `pids.max`)",
                    _ => "use fewer `numjobs`",
                };
                return Err(Error::work(format_args!(
                    "only {started} of {all} jobs could be started: {error}; {advice}"
                )));
            }
        }
        gate.open_for(all);
        drop(finished);
        look_until_finished(&wait, progress, look).inspect_err(|_| progress.stop())
    })
}

/// Waits until all runners have ended. No message is sent: the channel closes when the last runner
/// drops its end.
fn look_until_finished(wait: &Receiver<()>, progress: &mut Progress, look: Look<'_>) -> Result<(), Error> {
    let mut next_look = Some(Instant::now());
    loop {
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        let pause = progress.next_sample().min(next_look.map_or(Duration::MAX, until));
        if wait.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return Ok(());
        }
        progress.sample();
        if next_look.is_some_and(|at| at <= Instant::now()) {
            // `None`, if the time is too far away to represent, means never.
            next_look = Instant::now().checked_add(look(progress)?);
        }
    }
}
