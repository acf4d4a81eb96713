//! Experiments on the page cache and on its simulator.
//!
//! A front end builds a typed request, passes a [`Watch`] that receives progress and can cancel the
//! work, and gets a result value. Most results implement `serde::Serialize`. This crate does not
//! print, draw or read a command line.
//!
//! Requests; each module has an example:
//!
//! * [`run`]: run a scenario (tenants, jobs, and actions over time) in the simulator or on real
//!   files.
//! * [`ablate`]: switch mechanisms off one by one, and measure the effect of each.
//! * [`evaluate`]: measure one change over the standard loads.
//! * [`experiment`]: reproduce the published experiments, before against after.
//! * [`fidelity`]: repeat recorded runs of real kernels, and compare the counts.
//! * [`replay`]: replay traces under a virtual clock with the engine and with other policies.
//! * [`sweep`]: replay a grid of traces, policies, sizes and seeds into Parquet files.
//! * [`fio`]: run jobs in fio's language on real files.
//! * [`demo`]: compare caches of the same size under a skewed reader beside a scan.
//! * [`generate`]: write the built-in loads as traces.
//!
//! Building blocks:
//!
//! * [`mechanisms`]: select behaviours by preset, switches, policy and lock.
//! * [`trace_file`]: decode and count a trace ahead of its replays.
//! * [`load`]: run the built-in loads with verified contents on a real cache.
//! * [`effect`]: effects of a change with confidence intervals, from pairs of runs.
//! * [`equal_memcgs`]: a load of many equal tenants under reclaim from the root.
//! * [`layout`]: create files with verifiable contents.
//! * [`membership`]: move a running job between tenants.
//! * [`timeline`]: record a simulated run over time.
//! * [`statistics`]: medians, quartiles and confidence intervals.
//! * [`cache_counts`]: sizes and counts of a real cache and its tenants.
//! * [`columns`]: results as columns, for data frames and Parquet files.
//! * [`parquet`]: columns as Parquet files.
//! * [`sampling`]: replay a sample of the pages of a long trace.
//! * [`parallel`]: run independent tasks on several threads, with results in order.
//! * [`size`] and [`temporary`]: format sizes, and remove temporary folders.
//!
//! # Example
//!
//! ```
//! use mglru_lab::{Unwatched, trace_file::TraceFile};
//!
//! # fn main() -> Result<(), mglru_lab::Error> {
//! let directory = tempfile::tempdir().expect("a temporary directory");
//! let path = directory.path().join("loop.plain");
//! std::fs::write(&path, "1\n2\n3\n1\n2\n3\n").expect("a file");
//! let trace = TraceFile::load(&path, Default::default(), &Unwatched)?;
//! assert_eq!(trace.counts(&Unwatched)?.distinct_pages, 3);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod ablate;
pub mod arguments;
pub mod cache_counts;
mod clients;
pub mod columns;
mod cpu;
pub mod demo;
mod document;
pub mod effect;
pub mod equal_memcgs;
mod error;
pub mod evaluate;
pub mod experiment;
pub mod fidelity;
pub mod fio;
mod gate;
pub mod generate;
pub mod layout;
pub mod load;
pub mod mechanisms;
pub mod membership;
pub mod memory;
pub mod parallel;
pub mod parquet;
mod pipe;
pub mod replay;
pub mod reuse;
pub mod run;
pub mod sampling;
pub mod size;
pub mod statistics;
pub mod sweep;
pub mod temporary;
pub mod timeline;
pub mod trace_file;
mod watch;

pub use error::Error;
pub use watch::{Quiet, Stage, Unit, Unwatched, Watch};
