//! Options for reading traces.

use clap::builder::{PathBufValueParser, TypedValueParser};
use mglru_workload::trace::{Format, OpenOptions};
use std::path::{Path, PathBuf};

/// Parses the path of a trace that is read; `-` is stdin.
pub fn input() -> impl TypedValueParser<Value = PathBuf> {
    path_or("/dev/stdin")
}

/// Parses the path of a trace that is written; `-` is stdout.
pub fn output() -> impl TypedValueParser<Value = PathBuf> {
    path_or("/dev/stdout")
}

fn path_or(stream: &'static str) -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(move |path| if path == Path::new("-") { stream.into() } else { path })
}

/// Options for reading traces.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Reading traces")]
pub struct TraceOptions {
    /// Format, if it is not recognised; `mglru trace formats` lists them.
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Skip and count bad records instead of stopping at the first one.
    #[arg(long)]
    lossy: bool,
    /// Bytes per block number, in formats of block numbers: 512, or 4096 for ARC's OLTP trace.
    #[arg(long, value_name = "BYTES")]
    unit: Option<u32>,
}

impl TraceOptions {
    /// The same for the trace readers.
    pub fn open_options(&self) -> OpenOptions {
        OpenOptions {
            format: self.format,
            lossy: self.lossy,
            unit_bytes: self.unit,
            ..OpenOptions::default()
        }
    }
}
