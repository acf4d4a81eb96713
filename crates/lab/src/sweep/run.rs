//! Runs a sweep on the threads of this machine.

use super::{Folder, Sweep, Unit};
use crate::error::Error;
use crate::memory::Room;
use crate::parallel;
use crate::size::count;
use crate::trace_file::TraceFile;
use crate::watch::{self, Quiet, Stage, Watch};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Result of a run.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct Report {
    /// Units of the grid.
    pub units: u64,
    /// Units that this run did; those of earlier runs are not among them.
    pub done_units: u64,
    /// Units of the grid that failed, in this run or an earlier one. Their rows have an error.
    pub failed_units: u64,
    /// The error of the failed unit with the lowest number, of an earlier run if one has any.
    pub first_failure: Option<String>,
    /// Accesses that were replayed.
    pub accesses: u64,
    /// Processor time of the replays in seconds, without decoding.
    pub replay_seconds: f64,
    /// Duration of the run in seconds.
    pub seconds: f64,
}

impl Report {
    /// Counts a unit.
    fn add(&mut self, unit: &Unit, first_failed: &mut u64) {
        self.done_units += 1;
        match &unit.result {
            Ok(done) => {
                self.accesses += done.row.total.accesses;
                self.replay_seconds += done.row.seconds;
            }
            Err(error) => {
                self.failed_units += 1;
                if unit.number < *first_failed {
                    *first_failed = unit.number;
                    self.first_failure = Some(error.clone());
                }
            }
        }
    }
}

/// A range, and its units that are done.
struct Part {
    units: Range<u64>,
    done: Mutex<Vec<Unit>>,
}

/// A trace, decoded by the first unit that needs it and dropped after the last one.
struct Slot {
    trace: Option<Arc<Result<TraceFile, Error>>>,
    units_left: u64,
}

/// Runs all units whose rows are not in the folder, at most `threads` at a time. Of the traces, at
/// most as many are decoded at a time.
///
/// # Errors
/// If rows cannot be written, or the run was cancelled. Units that fail are counted in the report.
pub fn run(sweep: &Sweep, folder: &Folder, threads: usize, watch: &dyn Watch) -> Result<Report, Error> {
    let began = Instant::now();
    let (done, failures) = folder.done()?;
    let pending = sweep.pending(&done);
    let mut slots: Vec<Slot> = sweep.traces().iter().map(|_| Slot { trace: None, units_left: 0 }).collect();
    let mut units = Vec::new();
    for (part, range) in pending.iter().enumerate() {
        slots[sweep.trace_of(range.start)].units_left += range.end - range.start;
        units.extend(range.clone().map(|unit| (part as u32, unit)));
    }
    let parts: Vec<Part> =
        pending.into_iter().map(|units| Part { units, done: Mutex::new(Vec::new()) }).collect();
    let slots: Vec<Mutex<Slot>> = slots.into_iter().map(Mutex::new).collect();
    let stage = Stage::begin(watch, "units", units.len() as u64, watch::Unit::Steps);
    let failed_units = failures.len() as u64;
    let first_failure = failures.into_iter().next();
    let first_failed = if first_failure.is_some() { 0 } else { u64::MAX };
    let before = Report { units: sweep.units(), failed_units, first_failure, ..Report::default() };
    let report = Mutex::new((before, first_failed));
    let next = AtomicUsize::new(0);
    let workers = 0..threads.clamp(1, units.len().max(1));
    // Before the first unit: later, units that are under way would count twice.
    let room = Room::for_runs(workers.len());
    let work = || -> Result<(), Error> {
        while let Some(&(part, number)) = units.get(next.fetch_add(1, Relaxed)) {
            let slot = &slots[sweep.trace_of(number)];
            let trace = {
                // Others that need this trace wait; it is decoded once.
                let mut slot = slot.lock().expect("no panic");
                let load = || Arc::new(sweep.load(sweep.trace_of(number), &Quiet(watch)));
                slot.trace.get_or_insert_with(load).clone()
            };
            let unit = sweep.run_unit_in(room, number, &trace, watch);
            drop(trace);
            let mut slot = slot.lock().expect("no panic");
            slot.units_left -= 1;
            if slot.units_left == 0 {
                slot.trace = None;
            }
            drop(slot);
            let unit = unit?;
            let done_units = {
                let (report, first_failed) = &mut *report.lock().expect("no panic");
                report.add(&unit, first_failed);
                report.done_units
            };
            finish(sweep, folder, &parts[part as usize], unit)?;
            watch.note(&estimate(done_units, units.len() as u64, began.elapsed().as_secs_f64()));
            stage.advance(1)?;
        }
        Ok(())
    };
    let stop = || next.store(units.len(), Relaxed);
    let results = parallel::each(workers, |_| work().inspect_err(|_| stop()))?;
    results.into_iter().collect::<Result<(), Error>>()?;
    let (report, _) = report.into_inner().expect("no panic");
    Ok(Report { seconds: began.elapsed().as_secs_f64(), ..report })
}

/// Adds a unit to its part, and writes the part when it is complete.
fn finish(sweep: &Sweep, folder: &Folder, part: &Part, unit: Unit) -> Result<(), Error> {
    let mut done = part.done.lock().expect("no panic");
    done.push(unit);
    if (done.len() as u64) < part.units.end - part.units.start {
        return Ok(());
    }
    let mut rows = std::mem::take(&mut *done);
    drop(done);
    rows.sort_unstable_by_key(|unit| unit.number);
    folder.write(&part.units, sweep, &rows)
}

/// `12 of 400 units, about 5 min left`.
fn estimate(done: u64, of: u64, seconds: f64) -> String {
    let left = seconds / done.max(1) as f64 * of.saturating_sub(done) as f64;
    let left = match left {
        left if left < 90.0 => format!("{left:.0} s"),
        left if left < 5400.0 => format!("{:.0} min", left / 60.0),
        left => format!("{:.1} h", left / 3600.0),
    };
    format!("{} of {} units, about {left} left", count(done), count(of))
}
