//! Errors of traces. Every message says what is wrong, where, and what to do.

use super::Format;
use super::source::{Compression, Input, is_memory_error};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Reason why a trace cannot be read or written.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// The operating system reported an error.
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The trace contains no access.
    Empty {
        /// The file.
        path: PathBuf,
        /// Its format, if it could be recognised.
        format: Option<Format>,
        /// Number of bad records that were skipped.
        skipped: u64,
    },
    /// Neither content nor name identify the format.
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
    /// The compressed stream is damaged or incomplete.
    Compressed {
        /// The file.
        path: PathBuf,
        /// The compressions, outermost first.
        layers: Vec<Compression>,
        /// Recovered bytes of the decompressed stream.
        offset: u64,
        /// The decompressor's message; `None` if the file ends too early.
        corrupt: Option<String>,
    },
    /// The compressed stream needs more memory than a reader of traces may take.
    TooMuchMemory {
        /// The file.
        path: PathBuf,
        /// The compressions, outermost first.
        layers: Vec<Compression>,
    },
    /// A record is invalid.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Format of the trace.
        format: Format,
        /// Start of the record in bytes of the decompressed stream.
        offset: u64,
        /// Line, from 1; text formats only.
        line: Option<u64>,
        /// The problem.
        what: String,
    },
    /// The last record is incomplete.
    Truncated {
        /// The file.
        path: PathBuf,
        /// Format of the trace.
        format: Format,
        /// Start of the record in bytes of the decompressed stream.
        offset: u64,
        /// Bytes that exist.
        have_bytes: u64,
        /// Bytes that a record requires.
        need_bytes: u64,
    },
    /// A CSV trace lacks columns that its format requires.
    Columns {
        /// The file.
        path: PathBuf,
        /// The format that was tried.
        format: Format,
        /// The missing columns and the found ones.
        what: String,
    },
    /// The options do not fit the trace.
    Usage {
        /// The file.
        path: PathBuf,
        /// The conflict.
        what: String,
    },
    /// The target format cannot represent a record.
    Unrepresentable {
        /// The file being written.
        path: PathBuf,
        /// The format being written.
        format: Format,
        /// Number of the record, from 1.
        record: u64,
        /// The unsupported property, and how to avoid it.
        what: String,
    },
}

impl TraceError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        TraceError::Io { path: path.to_path_buf(), source }
    }

    /// Classifies an error of the (possibly compressed) stream as one of the disk or of the
    /// compression.
    pub(super) fn stream(path: &Path, input: &Input, error: io::Error) -> Self {
        if is_disk_error(&error) || input.layers().is_empty() {
            return TraceError::io(path, error);
        }
        if is_memory_error(&error) {
            return TraceError::TooMuchMemory { path: path.to_path_buf(), layers: input.layers().to_vec() };
        }
        let truncated = error.kind() == io::ErrorKind::UnexpectedEof;
        TraceError::Compressed {
            path: path.to_path_buf(),
            layers: input.layers().to_vec(),
            offset: input.end_offset(),
            corrupt: (!truncated).then(|| error.to_string()),
        }
    }

    /// Position of the error in bytes of the decompressed stream.
    pub fn offset(&self) -> Option<u64> {
        match self {
            TraceError::Compressed { offset, .. }
            | TraceError::Damaged { offset, .. }
            | TraceError::Truncated { offset, .. } => Some(*offset),
            _ => None,
        }
    }

    /// Line of the error, from 1.
    pub fn line(&self) -> Option<u64> {
        match self {
            TraceError::Damaged { line, .. } => *line,
            _ => None,
        }
    }
}

/// Whether the error is one of the operating system, which has an error number. A decompressor's
/// error has none.
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
                if let Some(note) = format.and_then(Format::access_events) {
                    write!(f, " ({note})")?;
                }
                match (skipped, format) {
                    (0, Some(format)) => write!(f, "; is it {format}? --format names another format"),
                    (0, None) => Ok(()),
                    (skipped, _) => write!(f, "; {skipped} bad records were skipped: is --format right?"),
                }
            }
            TraceError::UnknownFormat { path } => {
                write!(f, "{}: unrecognised trace format; name it with --format:", path.display())?;
                names(f, &Format::ALL)
            }
            TraceError::Ambiguous { path, candidates } if candidates.len() == 1 => {
                let (path, only) = (path.display(), candidates[0]);
                write!(f, "{path}: binary, and any bytes can be {only}; confirm with --format {only}")
            }
            TraceError::Ambiguous { path, candidates } => {
                write!(f, "{}: several formats fit; name one with --format:", path.display())?;
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
                    ", after {offset} decompressed bytes; copy the file again, or use the intact part with --lossy"
                )
            }
            TraceError::TooMuchMemory { path, layers } => {
                let layers: Vec<String> = layers.iter().map(Compression::to_string).collect();
                write!(
                    f,
                    "{}: the {} stream needs a window of more than 128 MiB to decompress; compress the trace again, \
                     with `xz -9` or `zstd -19` at most",
                    path.display(),
                    layers.join(" in ")
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
