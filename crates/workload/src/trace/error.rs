//! Errors of traces. Every message says what is wrong, where, and what to do.

use super::members::TrailingBytes;
use super::source::{Compression, Foreign, Input, is_memory_error};
use super::{Format, OpenOptions, OptionOrigin};
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
        /// The options to try instead.
        advice: Advice,
    },
    /// Neither content nor name identify the format.
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// The options to try instead.
        advice: Advice,
    },
    /// Several formats fit the content, and the name does not decide.
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The formats that fit.
        candidates: Vec<Format>,
        /// The options to try instead.
        advice: Advice,
    },
    /// The file is compressed in a way that the reader does not support.
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Name of the compression.
        compression: &'static str,
    },
    /// The file is of a kind that the reader does not support, such as an archive.
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its kind, and what makes a trace of it.
        kind: Foreign,
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
        /// The options to try instead.
        advice: Advice,
    },
    /// Other bytes follow the complete compressed stream.
    Trailing {
        /// The file.
        path: PathBuf,
        /// The compressions, outermost first.
        layers: Vec<Compression>,
        /// Bytes of the decompressed stream.
        offset: u64,
        /// The options to try instead.
        advice: Advice,
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
        /// The options to try instead.
        advice: Advice,
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
        /// The options to try instead.
        advice: Advice,
    },
    /// A CSV trace lacks columns that its format requires.
    Columns {
        /// The file.
        path: PathBuf,
        /// The format that was tried.
        format: Format,
        /// The missing columns and the found ones.
        what: String,
        /// The options to try instead.
        advice: Advice,
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

/// Advice about options that read a trace after all, in the words of the place where its options
/// were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice {
    origin: OptionOrigin,
    lossy: bool,
}

impl Advice {
    pub(super) fn of(options: &OpenOptions) -> Advice {
        Advice { origin: options.origin, lossy: options.lossy }
    }

    /// The option that skips bad records; `None` if it is on already.
    fn lossy(self) -> Option<&'static str> {
        let option = match self.origin {
            OptionOrigin::CommandLine => "--lossy",
            OptionOrigin::Keys => "`lossy`",
            OptionOrigin::Nowhere => "`mglru trace convert --lossy`",
        };
        (!self.lossy).then_some(option)
    }

    /// The option that names a format.
    fn format(self) -> &'static str {
        match self.origin {
            OptionOrigin::CommandLine => "--format",
            OptionOrigin::Keys => "`format`",
            OptionOrigin::Nowhere => "`mglru trace convert --format`",
        }
    }
}

impl TraceError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        TraceError::Io { path: path.to_path_buf(), source }
    }

    /// Classifies an error of the (possibly compressed) stream as one of the disk or of the
    /// compression.
    pub(super) fn stream(path: &Path, input: &Input, error: io::Error, advice: Advice) -> Self {
        if is_disk_error(&error) || input.layers().is_empty() {
            return TraceError::io(path, error);
        }
        if is_memory_error(&error) {
            return TraceError::TooMuchMemory { path: path.to_path_buf(), layers: input.layers().to_vec() };
        }
        let (path, layers, offset) = (path.to_path_buf(), input.layers().to_vec(), input.end_offset());
        if error.get_ref().is_some_and(|inner| inner.is::<TrailingBytes>()) {
            return TraceError::Trailing { path, layers, offset, advice };
        }
        let truncated = error.kind() == io::ErrorKind::UnexpectedEof;
        let corrupt = (!truncated).then(|| error.to_string());
        TraceError::Compressed { path, layers, offset, corrupt, advice }
    }

    /// Position of the error in bytes of the decompressed stream.
    pub fn offset(&self) -> Option<u64> {
        match self {
            TraceError::Compressed { offset, .. }
            | TraceError::Trailing { offset, .. }
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

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::Io { path, source } => write!(f, "{}: {source}", path.display()),
            TraceError::Empty { path, format, skipped, advice } => {
                write!(f, "{}: empty trace: no page access in it", path.display())?;
                if let Some(note) = format.and_then(Format::access_events) {
                    write!(f, " ({note})")?;
                }
                let option = advice.format();
                match (skipped, format) {
                    (0, Some(format)) => write!(f, "; is it {format}? {option} names another format"),
                    (0, None) => Ok(()),
                    (1, _) => write!(f, "; one bad record was skipped: is {option} right?"),
                    (skipped, _) => write!(f, "; {skipped} bad records were skipped: is {option} right?"),
                }
            }
            TraceError::UnknownFormat { path, advice } => {
                let (path, option) = (path.display(), advice.format());
                write!(f, "{path}: unrecognised trace format; name it with {option}:")?;
                names(f, &Format::ALL)
            }
            TraceError::Ambiguous { path, candidates, advice } if candidates.len() == 1 => {
                let (path, only, option) = (path.display(), candidates[0], advice.format());
                write!(f, "{path}: binary, and any bytes can be {only}; confirm with {option} {only}")
            }
            TraceError::Unsupported { path, compression } => write!(
                f,
                "{}: compressed with {compression}, which is not supported; decompress it first",
                path.display()
            ),
            TraceError::Foreign { path, kind: Foreign { name, remedy } } => {
                write!(f, "{}: {name}, which is not supported; {remedy}", path.display())
            }
            TraceError::Ambiguous { path, candidates, advice } => {
                let (path, option) = (path.display(), advice.format());
                write!(f, "{path}: several formats fit; name one with {option}:")?;
                names(f, candidates)
            }
            TraceError::Compressed { path, layers, offset, corrupt, advice } => {
                write!(f, "{}: ", path.display())?;
                match corrupt {
                    None => write!(f, "truncated: the {} stream ends early", nested(layers))?,
                    Some(what) => write!(f, "damaged {} stream ({what})", nested(layers))?,
                }
                write!(f, ", after {offset} decompressed bytes; copy the file again")?;
                match advice.lossy() {
                    Some(option) => write!(f, ", or use the intact part with {option}"),
                    None => Ok(()),
                }
            }
            TraceError::Trailing { path, layers, offset, advice } => {
                let (path, layers) = (path.display(), nested(layers));
                write!(
                    f,
                    "{path}: other bytes follow the complete {layers} stream of {offset} decompressed bytes; remove them"
                )?;
                match advice.lossy() {
                    Some(option) => write!(f, ", or leave them out with {option}"),
                    None => Ok(()),
                }
            }
            TraceError::TooMuchMemory { path, layers } => write!(
                f,
                "{}: the {} stream needs a window of more than 128 MiB to decompress; compress the trace again, with \
                 `xz -9` or `zstd -19` at most",
                path.display(),
                nested(layers)
            ),
            TraceError::Damaged { path, format, offset, line, what, advice } => {
                write!(f, "{}: ", path.display())?;
                if let Some(line) = line {
                    write!(f, "line {line}, ")?;
                }
                write!(f, "byte {offset}: damaged {format} record: {what}; ")?;
                if let Some(option) = advice.lossy() {
                    write!(f, "{option} skips and counts bad records, ")?;
                }
                write!(f, "{} names another format", advice.format())
            }
            TraceError::Truncated { path, format, offset, have_bytes, need_bytes, advice } => {
                let path = path.display();
                write!(
                    f,
                    "{path}: byte {offset}: truncated {format} record: {have_bytes} of {need_bytes} bytes"
                )?;
                match advice.lossy() {
                    Some(option) => write!(f, "; {option} skips and counts bad records"),
                    None => Ok(()),
                }
            }
            TraceError::Columns { path, format, what, advice } => {
                let (path, option) = (path.display(), advice.format());
                write!(f, "{path}: not the columns of {format}: {what}; {option} names another format")
            }
            TraceError::Usage { path, what } => write!(f, "{}: {what}", path.display()),
            TraceError::Unrepresentable { path, format, record, what } => {
                write!(f, "{}: record {record} cannot be written as {format}: {what}", path.display())
            }
        }
    }
}

/// Compressions, outermost first.
fn nested(layers: &[Compression]) -> String {
    layers.iter().map(Compression::to_string).collect::<Vec<_>>().join(" in ")
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
