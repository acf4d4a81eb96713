//! What can be wrong with a trace. Every message says what, where, and what to do about it.

use super::Format;
use super::source::{Compression, Input};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why a trace cannot be read, or not be written.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system refused.
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The trace has no access in it.
    Empty {
        /// The file.
        path: PathBuf,
        /// Its format, if there was enough to tell.
        format: Option<Format>,
        /// Bad records that were skipped on the way.
        skipped: u64,
    },
    /// Neither content nor name says which format this is.
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// Several formats fit the content, and the name does not decide.
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The formats that fit.
        candidates: Vec<Format>,
    },
    /// The compressed stream is broken or breaks off.
    Compressed {
        /// The file.
        path: PathBuf,
        /// The compressions, outermost first.
        layers: Vec<Compression>,
        /// Bytes of the decompressed stream that could be recovered.
        offset: u64,
        /// What the decompressor said; `None`: the file ends too early.
        corrupt: Option<String>,
    },
    /// A record that cannot be.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: Format,
        /// Where the record starts, in bytes of the decompressed stream.
        offset: u64,
        /// The line, counted from 1, of a text format.
        line: Option<u64>,
        /// What is wrong with it.
        what: String,
    },
    /// The last record is cut in the middle.
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: Format,
        /// Where the record starts, in bytes of the decompressed stream.
        offset: u64,
        /// Bytes there are.
        have_bytes: u64,
        /// Bytes a record has.
        need_bytes: u64,
    },
    /// A CSV trace without the columns that its format needs.
    Columns {
        /// The file.
        path: PathBuf,
        /// The format that was tried.
        format: Format,
        /// What is missing and what was found.
        what: String,
    },
    /// The options do not fit the trace.
    Usage {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        what: String,
    },
    /// The target format cannot say what the record says.
    Unrepresentable {
        /// The file that was being written.
        path: PathBuf,
        /// The format that was being written.
        format: Format,
        /// The record, counted from 1.
        record: u64,
        /// What it cannot say, and the way out.
        what: String,
    },
}

impl TraceError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        TraceError::Io { path: path.to_path_buf(), source }
    }

    /// An error of reading the (perhaps compressed) stream: the disk's fault, or the stream's?
    pub(super) fn stream(path: &Path, input: &Input, error: io::Error) -> Self {
        if is_disk_error(&error) || input.layers().is_empty() {
            return TraceError::io(path, error);
        }
        let truncated = error.kind() == io::ErrorKind::UnexpectedEof;
        TraceError::Compressed {
            path: path.to_path_buf(),
            layers: input.layers().to_vec(),
            offset: input.end_offset(),
            corrupt: (!truncated).then(|| error.to_string()),
        }
    }

    /// The byte of the decompressed stream that the error points at.
    pub fn offset(&self) -> Option<u64> {
        match self {
            TraceError::Compressed { offset, .. }
            | TraceError::Damaged { offset, .. }
            | TraceError::Truncated { offset, .. } => Some(*offset),
            _ => None,
        }
    }

    /// The line, counted from 1, that the error points at.
    pub fn line(&self) -> Option<u64> {
        match self {
            TraceError::Damaged { line, .. } => *line,
            _ => None,
        }
    }
}

/// The operating system's own errors carry its error number; a decompressor's do not.
pub(super) fn is_disk_error(error: &io::Error) -> bool {
    error.raw_os_error().is_some()
}

const LOSSY: &str = "--lossy skips and counts bad records";

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Io { path, source } => write!(f, "{}: {source}", path.display()),
            TraceError::Empty { path, format, skipped } => {
                write!(f, "{}: empty trace: no page access in it", path.display())?;
                if let Some(note) = format.and_then(Format::what_counts) {
                    write!(f, " ({note})")?;
                }
                match (skipped, format) {
                    (0, Some(format)) => write!(f, "; is it {format}? --format names another format"),
                    (0, None) => Ok(()),
                    (skipped, _) => write!(f, "; {skipped} bad records were skipped: is --format right?"),
                }
            }
            TraceError::UnknownFormat { path } => {
                write!(
                    f,
                    "{}: not a trace format that is recognised; say which with --format:",
                    path.display()
                )?;
                names(f, &Format::ALL)
            }
            TraceError::Ambiguous { path, candidates } if candidates.len() == 1 => {
                let (path, only) = (path.display(), candidates[0]);
                write!(f, "{path}: binary, could be {only} as any bytes could; say so with --format {only}")
            }
            TraceError::Ambiguous { path, candidates } => {
                write!(f, "{}: several formats fit; say which with --format:", path.display())?;
                names(f, candidates)
            }
            TraceError::Compressed { path, layers, offset, corrupt } => {
                let layers: Vec<String> = layers.iter().map(Compression::to_string).collect();
                write!(f, "{}: ", path.display())?;
                match corrupt {
                    None => write!(f, "truncated: the {} stream ends early", layers.join(" in "))?,
                    Some(what) => write!(f, "damaged {} stream ({what})", layers.join(" in "))?,
                }
                write!(
                    f,
                    ", after {offset} decompressed bytes; copy the file again, or --lossy uses what there is"
                )
            }
            TraceError::Damaged { path, format, offset, line, what } => {
                write!(f, "{}: ", path.display())?;
                if let Some(line) = line {
                    write!(f, "line {line}, ")?;
                }
                write!(
                    f,
                    "byte {offset}: damaged {format} record: {what}; {LOSSY}, --format names another format"
                )
            }
            TraceError::Truncated { path, format, offset, have_bytes, need_bytes } => write!(
                f,
                "{}: byte {offset}: truncated {format} record: {have_bytes} of {need_bytes} bytes; {LOSSY}",
                path.display()
            ),
            TraceError::Columns { path, format, what } => {
                write!(
                    f,
                    "{}: not the columns of {format}: {what}; --format names another format",
                    path.display()
                )
            }
            TraceError::Usage { path, what } => write!(f, "{}: {what}", path.display()),
            TraceError::Unrepresentable { path, format, record, what } => {
                write!(f, "{}: record {record} cannot be written as {format}: {what}", path.display())
            }
        }
    }
}

fn names(f: &mut fmt::Formatter<'_>, formats: &[Format]) -> fmt::Result {
    for (index, format) in formats.iter().enumerate() {
        write!(f, "{}{format}", if index == 0 { " " } else { ", " })?;
    }
    Ok(())
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            TraceError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
