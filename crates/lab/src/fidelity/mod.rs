//! Fidelity: recorded runs of real kernels, repeated with the engine and compared.
//!
//! A table of the kernel lab has one row per run of a kernel. Its header identifies one of four
//! kinds: [`Table`] has replays of traces, [`memcg_reclaim`] has reclaim requests among many
//! memcgs, [`oom`] has loads that may end in an OOM kill, and [`stores`] has runs of a store.
//!
//! # Example
//!
//! A kernel reclaimed 100 % of the requested pages; the example shows the allowed difference:
//!
//! ```
//! use mglru_lab::Unwatched;
//! use mglru_lab::fidelity::{Filter, memcg_reclaim};
//!
//! # fn main() -> Result<(), mglru_lab::Error> {
//! let folder = tempfile::tempdir().expect("a temporary directory");
//! let path = folder.path().join("rows.csv");
//! let header = "kernel,lru,memcgs,pages_each,rounds,request_bytes,touch_fraction,ratio_percent,\
//!               stddev_over_mean_percent,scan_per_steal,first_quarter_percent,first_round,seconds";
//! let row = "7.2.12,mglru,4,256,2,65536,0.5,100,50,1,25,0,1";
//! std::fs::write(&path, format!("{header}\n{row}\n")).expect("a file");
//! let compared = memcg_reclaim::compare(&path, &Filter::default(), &Unwatched)?;
//! let [sum, _spread] = compared[0].figures();
//! assert_eq!((sum.kernel, sum.tolerance), (100.0, 3.0));
//! # Ok(())
//! # }
//! ```

pub mod capacity;
mod columns;
mod compare;
pub mod counts;
pub mod deltas;
mod filter;
mod kernel_run;
pub mod load;
pub mod memcg_reclaim;
pub mod oom;
mod results;
pub mod stores;
mod tolerance;
mod variant;

pub use columns::columns;
pub use compare::{Comparison, Subject, subjects};
pub use filter::Filter;
pub use kernel_run::{Access, KernelRun, Measure, Setting, Skipped, version_of};
pub use results::{Table, trace_of};
pub use tolerance::Tolerance;
pub use variant::Variant;

use crate::error::Error;
use crate::pipe;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longest first line of a table; that of the kernel lab's has 5 KiB.
const HEADER_BYTES_MAX: u64 = 1 << 16;

fn refuse_pipe(path: &Path) -> Result<(), Error> {
    pipe::refuse(path, "a table is read more than once")
}

/// The kinds of tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableKind {
    /// Counts of replayed traces: [`counts`].
    Counts,
    /// [`memcg_reclaim`].
    MemcgReclaim,
    /// [`oom`].
    Oom,
    /// [`stores`].
    Stores,
}

impl TableKind {
    /// The tables to compare: one, and perhaps another with further runs of the same cases.
    ///
    /// # Errors
    /// There is another, and this kind of table has all its runs in one, or the other is a pipe.
    pub fn tables<'a>(self, table: &'a Path, also: Option<&'a Path>) -> Result<Vec<&'a Path>, Error> {
        if also.is_some() && self != TableKind::Oom {
            return Err(Error::usage(
                "--also needs a table like oom.csv; add repetitions of other rows to their table",
            ));
        }
        also.map_or(Ok(()), refuse_pipe)?;
        Ok(std::iter::once(table).chain(also).collect())
    }

    /// The kind of the table in a file, by its header.
    ///
    /// # Errors
    /// The file cannot be read, or is a pipe: a table is read more than once.
    pub fn of(path: &Path) -> Result<TableKind, Error> {
        refuse_pipe(path)?;
        let failure = |e: std::io::Error| Error::work(format_args!("{}: {e}", path.display()));
        // A binary trace has no line for a long time.
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(failure)?.take(HEADER_BYTES_MAX);
        BufReader::new(file).read_until(b'\n', &mut bytes).map_err(failure)?;
        let is_longer = bytes.len() as u64 == HEADER_BYTES_MAX;
        let header = String::from_utf8(bytes).ok().filter(|_| !is_longer).ok_or_else(|| {
            let what = "this is no table of text; expected one like results.csv, with one row per kernel run";
            Error::work(format_args!("{}: {what}", path.display()))
        })?;
        Ok(match header {
            header if oom::is_meant(&header) => TableKind::Oom,
            header if memcg_reclaim::is_meant(&header) => TableKind::MemcgReclaim,
            header if stores::is_meant(&header) => TableKind::Stores,
            _ => TableKind::Counts,
        })
    }
}
