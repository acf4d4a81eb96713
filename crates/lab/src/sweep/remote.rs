//! Traces at URLs, which the program around the laboratory reads.

use super::SweepTrace;
use crate::error::Error;
use crate::trace_file::{Loading, TraceFile};
use crate::watch::Watch;
use std::fmt::Debug;
use std::path::Path;

/// A reader of the traces that a grid names by URL. Threads of a sweep share it.
pub trait Remote: Debug + Send + Sync {
    /// Length and version of a trace as text, for [`Sweep::identity`](super::Sweep::identity): two
    /// traces with equal text have equal bytes.
    ///
    /// # Errors
    /// If it is not there, or its protocol is unknown.
    fn state(&self, trace: &SweepTrace) -> Result<String, Error>;

    /// Decodes a trace, which is read once from its beginning to its end.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or is too long to be kept decoded.
    fn load(&self, trace: &SweepTrace, loading: Loading, watch: &dyn Watch) -> Result<TraceFile, Error>;
}

/// Whether the path of a trace is a URL: it begins with a protocol, as in `s3://bucket/trace.zst`.
pub fn is_url(path: &Path) -> bool {
    let protocol = path.to_str().and_then(|path| path.split_once("://")).map(|(protocol, _)| protocol);
    protocol.is_some_and(|protocol| {
        protocol.starts_with(|first: char| first.is_ascii_alphabetic())
            && protocol.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.:".contains(letter))
    })
}

/// The reader of programs that have none.
#[derive(Debug)]
pub(super) struct NoRemote;

impl NoRemote {
    fn refused(trace: &SweepTrace) -> Error {
        Error::usage(format_args!(
            "{}: this program reads files only; the Python package reads URLs: mglru.sweep(grid, out)",
            trace.name
        ))
    }
}

impl Remote for NoRemote {
    fn state(&self, trace: &SweepTrace) -> Result<String, Error> {
        Err(NoRemote::refused(trace))
    }

    fn load(&self, trace: &SweepTrace, _: Loading, _: &dyn Watch) -> Result<TraceFile, Error> {
        Err(NoRemote::refused(trace))
    }
}
