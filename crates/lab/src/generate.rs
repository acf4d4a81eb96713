//! Writes the built-in loads as traces, for replays and for real kernels.

use crate::{Error, Stage, Unit, Watch, trace_file};
use mglru_workload::Load;
use mglru_workload::load::Step;
use mglru_workload::trace::{Converted, Format, Record, WriteOptions};
use std::path::Path;

/// Accesses written at once.
const BATCH_ACCESSES: usize = 1 << 16;

/// A request to write a trace of a load.
#[derive(Debug, Clone, Copy)]
pub struct TraceRequest {
    /// The load.
    pub load: Load,
    /// Number of clients, which take turns.
    pub clients: u32,
    /// Seed of all random choices.
    pub seed: u64,
    /// Minimum number of accesses. The last transaction is completed.
    pub accesses: u64,
}

/// Writes a trace in the `kernel-lab` format. The path must end with `.bin`, or with `.bin.gz`,
/// `.bin.xz` or `.bin.zst`, unless it is an existing pipe or device.
///
/// ```
/// use mglru_lab::{Unwatched, generate};
/// use mglru_workload::Load;
///
/// # fn main() -> Result<(), mglru_lab::Error> {
/// let folder = tempfile::tempdir().expect("a temporary directory");
/// let load = Load::Sweep { arrays: 4, array_pages: 16 };
/// let request = generate::TraceRequest { load, clients: 1, seed: 1, accesses: 1000 };
/// let made = generate::write(&request, &folder.path().join("sweep.bin"), &Unwatched)?;
/// assert!(made.accesses >= 1000);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the load, the path or the number of accesses is invalid, or the trace cannot be written.
pub fn write(request: &TraceRequest, to: &Path, watch: &dyn Watch) -> Result<Converted, Error> {
    let &TraceRequest { load, clients, seed, accesses: wanted } = request;
    check_name(to)?;
    if wanted == 0 {
        return Err(Error::usage("a trace without accesses cannot be read: ask for at least one"));
    }
    let mut running = load.start(clients, seed).map_err(Error::usage)?;
    // Only this format has anonymous pages. It numbers pages from 0.
    let options = WriteOptions { renumber: true, drop: false };
    let (mut writer, _unfinished) = trace_file::writer(to, Format::KernelLab, options)?;
    let stage = Stage::begin(watch, "generating", wanted, Unit::Steps);
    let (mut steps, mut client) = (Vec::new(), 0);
    let (mut records, mut written) = (Vec::with_capacity(2 * BATCH_ACCESSES), 0);
    while written < wanted {
        records.clear();
        while records.len() < BATCH_ACCESSES && written + (records.len() as u64) < wanted {
            steps.clear();
            running.draw(client, &mut steps);
            client = (client + 1) % clients as usize;
            records.extend(steps.iter().filter_map(record));
        }
        writer.write(&records)?;
        written += records.len() as u64;
        stage.advance(records.len() as u64)?;
    }
    Ok(writer.finish()?)
}

/// Refuses names by which the trace could not be read back, except those of pipes and devices.
fn check_name(to: &Path) -> Result<(), Error> {
    let target = to.canonicalize().unwrap_or_else(|_| to.to_path_buf());
    let is_special = target.metadata().is_ok_and(|metadata| !metadata.is_file());
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    match [".bin", ".bin.gz", ".bin.xz", ".bin.zst"].iter().any(|ending| name.ends_with(ending)) || is_special
    {
        true => Ok(()),
        false => Err(Error::usage(format_args!(
            "{}: a generated trace is recognised by its name, which ends with .bin, .bin.gz, .bin.xz or .bin.zst",
            to.display()
        ))),
    }
}

/// The record of a step; `None` if a trace cannot represent it.
fn record(step: &Step) -> Option<Record> {
    match *step {
        Step::Touch(access) => Some(Record::Access(access)),
        Step::Sync { page } => Some(Record::Sync { file: (page >> 32) as u32 }),
        Step::Request { .. } | Step::Compute { .. } | Step::Rest { .. } | Step::Release { .. } => None,
    }
}
