//! The project's own loads as traces, for replays and for real kernels.

use crate::{Error, Stage, Unit, Watch};
use mglru_workload::Load;
use mglru_workload::load::Step;
use mglru_workload::trace::{Converted, Format, Record, TraceWriter, WriteOptions};
use std::path::Path;

/// Accesses that are written together.
const BATCH_ACCESSES: usize = 1 << 16;

/// A trace that is to be made of a load.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Whose accesses.
    pub load: Load,
    /// By so many clients, in turn.
    pub clients: u32,
    /// Decides every random choice.
    pub seed: u64,
    /// Accesses, at least: the last transaction is whole.
    pub accesses: u64,
}

/// Writes a trace in the kernel lab's format. Its name ends with `.bin`, or `.bin.gz`, `.bin.xz`,
/// `.bin.zst`.
///
/// ```
/// use mglru_lab::{Unwatched, generate};
/// use mglru_workload::Load;
///
/// # fn main() -> Result<(), mglru_lab::Error> {
/// let folder = tempfile::tempdir().expect("a temporary directory");
/// let load = Load::Sweep { arrays: 4, array_pages: 16 };
/// let request = generate::Request { load, clients: 1, seed: 1, accesses: 1000 };
/// let made = generate::write(&request, &folder.path().join("sweep.bin"), &Unwatched)?;
/// assert!(made.accesses >= 1000);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The load makes no sense, or the trace cannot be written.
pub fn write(request: &Request, to: &Path, watch: &dyn Watch) -> Result<Converted, Error> {
    let &Request { load, clients, seed, accesses: wanted } = request;
    let mut running = load.start(clients, seed).map_err(Error::usage)?;
    // Only this format knows anonymous pages; it numbers pages from 0.
    let options = WriteOptions { renumber: true, drop: false };
    let mut writer = TraceWriter::create(to, Format::KernelLab, options)?;
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

/// What a trace can hold.
fn record(step: &Step) -> Option<Record> {
    match *step {
        Step::Touch(access) => Some(Record::Access(access)),
        Step::Sync { page } => Some(Record::Sync { file: (page >> 32) as u32 }),
        Step::Rest { .. } | Step::Release { .. } => None,
    }
}
