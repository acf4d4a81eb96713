//! Experiments on the page cache, and on its simulation.
//!
//! A front end says what to do in typed options, gives a [`Watch`] that hears how far the work is,
//! and gets values back, most of which serde can serialise. This crate prints nothing, draws
//! nothing, and reads no command line.
//!
//! ```text
//! run           scenarios: tenants, jobs, and what happens when; simulated or on real files
//! ablate        each mechanism off, against all of them
//! experiment    the published experiments, before against after
//! fidelity      what real kernels replayed, and how near the counts are
//! replay        traces under a virtual clock, by the engine and by other policies
//! mechanisms    which behaviours are on
//! trace_file    a trace: decoded ahead of its replays, counted
//! statistics    medians, quartiles, intervals
//! parallel      independent tasks, several at a time, results in their order
//! layout        files with verifiable contents, and where they go
//! fio           jobs in fio's language on real files
//! load          loads with verified contents on a real cache
//! equal_memcgs  many tenants that are asked for pages together
//! experiment    the published experiments, before against after
//! fidelity      what real kernels did, run again
//! generate      the project's own loads as traces
//! timeline      a simulated run over time
//! membership    which tenant a real job is in, while it runs
//! ```
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
mod cpu;
pub mod equal_memcgs;
mod error;
pub mod experiment;
pub mod fidelity;
pub mod fio;
pub mod generate;
pub mod layout;
pub mod load;
pub mod mechanisms;
pub mod membership;
pub mod parallel;
pub mod replay;
pub mod run;
pub mod size;
pub mod statistics;
pub mod temporary;
pub mod timeline;
pub mod trace_file;
mod watch;

pub use error::Error;
pub use watch::{Stage, Unit, Unwatched, Watch};
