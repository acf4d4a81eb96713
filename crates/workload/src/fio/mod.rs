//! fio's job language: parsing, its meaning, and reports in fio's formats.
//!
//! ```text
//! command line, job files        command_line.rs, ini.rs
//!   | settings, each with its place                                    setting.rs
//!   | parsed one by one, by name                                       options/
//! JobText: typed, nothing derived                                      job_text.rs
//!   | defaults, contradictions, instances
//! Job: fully resolved            job.rs  ->  Pattern -> Accesses
//!   | the caller performs them
//! Outcome -> Report              report/: text and JSON as fio prints them
//! ```
//!
//! The reference is fio 3.33. Where its manual leaves a question open, the answer was measured and
//! is stated beside the code. Where fio guesses or ignores input (an unknown unit, a fraction of a
//! size), this module refuses it: a job that silently means something else is worse than one that
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
pub(crate) use ini::embedded_jobs;
pub use ini::jobs_of_text;
pub use job::{Channel, DEPTH_MAX, Engine, FileSize, Hint, Job, Rate, SyncEvery, Verify};
pub(crate) use job_text::JOBS_BYTES_MAX;
pub use setting::Origin;
