//! Errors of the cache.

use mglru_core::{ControlError, MechanismError, MemcgError, OutOfMemory};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An error of a cache or of a cached file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system reported an error.
    Io {
        /// The operation that failed, as a verb: "read".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// Dirty pages could not be written to the file. They stay in memory, dirty, and are written
    /// again later. Each handle that was open reports the error once.
    WriteBack {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// Dirty pages could not be written to the file before the cache was closed
    /// ([`crate::PageCache::close`]), and are lost with it.
    Lost {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// Reclaim could not free a page for this request.
    OutOfMemory(Box<OutOfMemory>),
    /// The tenant was OOM-killed ([`crate::OomPolicy`]). It gets no pages until
    /// [`crate::Tenant::revive`], and the content of its anonymous memory is lost. The report names
    /// the tenant whose limit was reached.
    Killed(Box<OutOfMemory>),
    /// The cache is closed.
    Closed,
    /// Memory is short and the request does not wait, or a page has the maximum number of guards.
    Busy,
    /// The calling thread holds a guard of the page that it changes, and would wait for itself.
    OwnGuard {
        /// The file.
        path: PathBuf,
        /// The page, counted from 0.
        page: u32,
    },
    /// A guard lends the page that [`crate::CachedFile::try_write_at`] was to change.
    Lent {
        /// The file.
        path: PathBuf,
        /// The page, counted from 0.
        page: u32,
    },
    /// A read reached the end of the file before the buffer was full.
    Short {
        /// The file.
        path: PathBuf,
        /// The offset of the request, in bytes.
        offset: u64,
        /// Bytes that were wanted.
        wanted: usize,
        /// Bytes that were read.
        read: usize,
    },
    /// The file was opened for reading only.
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The request ends beyond 16 TiB (2^32 pages), the largest offset.
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The end of the request, in bytes.
        end: u64,
    },
    /// The range of a mapped access reaches beyond the end of the file.
    BeyondEnd {
        /// The file.
        path: PathBuf,
        /// The end of the request, in bytes.
        end: u64,
        /// The length of the file, in bytes.
        len: u64,
    },
    /// Metadata takes half of the budget, or a quarter where io_uring has registered the cache's
    /// memory: that of open files, tenants and pages, and what [`crate::Tenant::reserve`] keeps.
    TooManyFiles {
        /// Number of files that are open or have dirty pages.
        open: usize,
    },
    /// As [`Error::TooManyFiles`], for a new tenant.
    TooManyTenants {
        /// Number of tenants.
        tenants: usize,
    },
    /// The tenant cannot be created, changed or removed.
    Tenant(MemcgError),
    /// No tenant has that path.
    NoSuchTenant(String),
    /// The tenant belongs to another cache.
    ForeignTenant(String),
    /// The root has neither limits nor protections.
    RootHasNoLimits,
    /// A control file could not be read or written.
    Control(ControlError),
    /// The requested mechanisms do not exist.
    Mechanisms(MechanismError),
    /// The budget is too small for a cache.
    BudgetTooSmall {
        /// The requested budget, in bytes.
        bytes: u64,
        /// The smallest possible budget, in bytes.
        least_bytes: u64,
        /// The part of it that swap takes: compressed memory, and the table of its slots.
        swap_bytes: u64,
    },
    /// The budget is all that this process can ever have, or more ([`crate::memory_limit_bytes`]).
    BudgetTooLarge {
        /// The requested budget, in bytes.
        bytes: u64,
        /// The bound: the machine, or its control groups, in words.
        bound: &'static str,
        /// The memory and swap that it has or allows, in bytes.
        bound_bytes: u64,
    },
}

impl Error {
    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Error {
        Error::Io { doing, path: path.to_owned(), source: Arc::new(source) }
    }

    /// This error as one of a cache that ends with it.
    pub(crate) fn at_the_end(self) -> Error {
        match self {
            Error::WriteBack { path, source } => Error::Lost { path, source },
            other => other,
        }
    }

    /// The standard library's kind of this error. `From<Error>` for [`io::Error`] uses it, and
    /// [`io::Error::downcast`] returns the error itself.
    ///
    /// | kind | errors |
    /// |---|---|
    /// | of the system's error, or the source's | `Io`, `WriteBack`, `Lost`, `Control` |
    /// | `NotConnected` | `Closed` |
    /// | `WouldBlock` | `Busy`, `Lent` |
    /// | `Deadlock` | `OwnGuard` |
    /// | `UnexpectedEof` | `BeyondEnd`, `Short` |
    /// | `FileTooLarge` | `TooLarge` |
    /// | `OutOfMemory` | `OutOfMemory`, `Killed`, `BudgetTooLarge` |
    /// | `QuotaExceeded` | `TooManyFiles`, `TooManyTenants` |
    /// | `PermissionDenied` | `ReadOnly` |
    /// | `NotFound` | `NoSuchTenant` |
    /// | `InvalidInput` | the others |
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Error::Io { source, .. } | Error::WriteBack { source, .. } | Error::Lost { source, .. } => {
                source.kind()
            }
            Error::Control(error) => io::Error::from_raw_os_error(error.errno.number()).kind(),
            Error::Closed => io::ErrorKind::NotConnected,
            Error::Busy | Error::Lent { .. } => io::ErrorKind::WouldBlock,
            Error::OwnGuard { .. } => io::ErrorKind::Deadlock,
            Error::BeyondEnd { .. } | Error::Short { .. } => io::ErrorKind::UnexpectedEof,
            Error::TooLarge { .. } => io::ErrorKind::FileTooLarge,
            Error::OutOfMemory(_) | Error::Killed(_) | Error::BudgetTooLarge { .. } => {
                io::ErrorKind::OutOfMemory
            }
            Error::TooManyFiles { .. } | Error::TooManyTenants { .. } => io::ErrorKind::QuotaExceeded,
            Error::ReadOnly { .. } => io::ErrorKind::PermissionDenied,
            Error::NoSuchTenant(_) => io::ErrorKind::NotFound,
            Error::Tenant(_)
            | Error::ForeignTenant(_)
            | Error::RootHasNoLimits
            | Error::Mechanisms(_)
            | Error::BudgetTooSmall { .. } => io::ErrorKind::InvalidInput,
        }
    }

    /// The operating system's error, if one caused this error.
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Error::Io { source, .. } | Error::WriteBack { source, .. } | Error::Lost { source, .. } => {
                Some(source)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io { doing, path, source } => {
                write!(f, "cannot {doing} {}: {source}", path.display())?;
                match source.raw_os_error() {
                    Some(libc::EMFILE) => write!(f, "; close files or raise `ulimit -n`"),
                    _ if *doing == "sync" => {
                        write!(f, "; writes since its last good sync may be lost: repeat them, then sync")
                    }
                    _ => Ok(()),
                }
            }
            Error::WriteBack { path, source } => {
                let what_to_do = match source.kind() {
                    io::ErrorKind::FileTooLarge => {
                        "truncate the file to a length that its file system and `ulimit -f` allow"
                    }
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                        "permit writes to the file and its file system"
                    }
                    _ => "free space or repair the device",
                };
                write!(
                    f,
                    "earlier writes to {} could not be written back: {source}; they stay in memory and are retried: \
                     {what_to_do}, then sync again",
                    path.display()
                )
            }
            Error::Lost { path, source } => write!(
                f,
                "earlier writes to {} are lost: they could not be written back before the cache was closed: {source}; \
                 sync before you close, and close when that succeeds",
                path.display()
            ),
            Error::OutOfMemory(report) | Error::Killed(report) => report.fmt(f),
            Error::Closed => {
                write!(f, "the cache is closed: open the file through a cache that is still open")
            }
            Error::Busy => write!(
                f,
                "no free page, or this page has the maximum number of guards: drop page guards or retry"
            ),
            Error::OwnGuard { path, page } => write!(
                f,
                "this thread lends page {page} of {} and would wait for itself: drop the guard before changing the \
                 page",
                path.display()
            ),
            Error::Lent { path, page } => write!(
                f,
                "a guard lends page {page} of {}: drop it, or use write_at to wait for it",
                path.display()
            ),
            Error::Short { path, offset, wanted, read } => write!(
                f,
                "{} ends {read} bytes after byte {offset}, and {wanted} bytes were to be read: read fewer, or use \
                 read_at",
                path.display()
            ),
            Error::ReadOnly { path } => {
                write!(f, "{} was opened for reading only: open it with OpenMode::ReadWrite", path.display())
            }
            Error::TooLarge { path, end } => {
                write!(f, "byte {end} of {} is beyond 16 TiB, the maximum file size", path.display())
            }
            Error::BeyondEnd { path, end, len } => {
                write!(f, "byte {end} of {} is beyond its end ({len} bytes)", path.display())
            }
            Error::TooManyFiles { open } => {
                write!(
                    f,
                    "{open} files are open, and metadata and reservations take all that they may take of the budget: close \
                     files, drop reservations or raise the budget"
                )
            }
            Error::Tenant(error) => error.fmt(f),
            Error::NoSuchTenant(path) => {
                write!(f, "there is no tenant '{path}': add it first; a parent comes before its children")
            }
            Error::ForeignTenant(path) => {
                write!(f, "the tenant '{path}' belongs to another cache: use a tenant of this cache")
            }
            Error::RootHasNoLimits => {
                write!(
                    f,
                    "the root tenant has no limit except the cache's budget: set limits of another tenant"
                )
            }
            Error::TooManyTenants { tenants } => write!(
                f,
                "there are {tenants} tenants, and metadata takes all that it may take of the budget: remove tenants or \
                 raise the budget"
            ),
            Error::Control(error) => error.fmt(f),
            Error::Mechanisms(error) => error.fmt(f),
            Error::BudgetTooSmall { bytes, least_bytes, swap_bytes } => {
                write!(
                    f,
                    "a budget of {bytes} bytes is too small: a cache needs at least {least_bytes} bytes"
                )?;
                match swap_bytes {
                    0 => Ok(()),
                    _ => write!(f, ", of which swap takes {swap_bytes}"),
                }
            }
            Error::BudgetTooLarge { bytes, bound, bound_bytes } => write!(
                f,
                "a budget of {bytes} bytes is too large: {bound} {bound_bytes} bytes of memory and swap: choose a \
                 smaller budget"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::OutOfMemory(report) | Error::Killed(report) => Some(&**report),
            Error::Tenant(error) => Some(error),
            Error::Control(error) => Some(error),
            Error::Mechanisms(error) => Some(error),
            _ => self.io_error().map(|error| error as _),
        }
    }
}

impl From<Box<OutOfMemory>> for Error {
    fn from(report: Box<OutOfMemory>) -> Error {
        if report.victim.is_some() { Error::Killed(report) } else { Error::OutOfMemory(report) }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_descriptors_is_told_what_to_do() {
        let error = |code| Error::Io {
            doing: "open",
            path: PathBuf::from("f"),
            source: io::Error::from_raw_os_error(code).into(),
        };
        let text = error(libc::EMFILE).to_string();
        assert!(
            text.starts_with("cannot open f: ") && text.ends_with("; close files or raise `ulimit -n`"),
            "{text}"
        );
        assert!(!error(libc::ENOENT).to_string().contains("ulimit"));
    }

    /// No free space helps where the file system has no file that long.
    #[test]
    fn what_to_do_about_refused_writes_depends_on_the_refusal() {
        let says = |number: i32| {
            let source = Arc::new(io::Error::from_raw_os_error(number));
            Error::WriteBack { path: "f".into(), source }.to_string()
        };
        assert!(says(libc::ENOSPC).contains("free space"), "{}", says(libc::ENOSPC));
        assert!(says(libc::EFBIG).contains("truncate the file"), "{}", says(libc::EFBIG));
        for number in [libc::EPERM, libc::EROFS] {
            assert!(says(number).contains("permit writes"), "{}", says(number));
        }
    }
}
