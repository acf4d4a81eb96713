//! fio's language: what a user says, what it means, and how results are told.
//!
//! ```text
//! command line, job files        command_line.rs, ini.rs
//!   | what was said: settings, each with the place where it stands     setting.rs
//!   | one by one, by name                                              options/
//! JobText: typed, nothing derived                                      job_text.rs
//!   | defaults, contradictions, instances
//! Job: what it means             job.rs  ->  Pattern -> Accesses
//!   | a host performs them
//! Outcome -> Report              report/: text and JSON as fio prints them
//! ```
//!
//! fio 3.33 is the reference. Where its manual leaves a question open, it was asked by experiment,
//! and the answer stands at the code concerned. Where fio guesses or ignores (an unknown unit, a
//! fraction of a size), we refuse: a job that silently means something else is worse than one that
//! does not start.

mod command_line;
mod error;
mod histogram;
mod ini;
mod job;
mod job_text;
mod options;
pub mod report;
mod setting;
pub(crate) mod units;

pub use command_line::{Eta, Invocation, OutputFormat};
pub use error::Error;
pub use histogram::Latencies;
pub use ini::jobs_of_text;
pub use job::{Channel, DEPTH_MAX, Engine, FileSize, Hint, Job, Rate, SyncEvery, Verify};
pub use setting::Origin;
