//! Errors of a [`CachedStore`](crate::CachedStore): those of the wrapped store as they are, and
//! those of the cache.
//!
//! One request to the wrapped store may answer several readers. So its error travels through the
//! cache as an [`io::Error`] with a [`Failed`] inside, and each reader gets it back as what it was.

use object_store::Error;
use object_store::path::Path;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

const STORE: &str = "CachedStore";

/// An error of this store.
pub(crate) fn generic(error: impl StdError + Send + Sync + 'static) -> Error {
    Error::Generic { store: STORE, source: Box::new(error) }
}

/// An error of the wrapped store, on its way through the cache.
#[derive(Debug)]
struct Failed(Arc<Error>);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Failed {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}

/// Errors of the cache for `count` requests that one request to the wrapped store was to answer.
pub(crate) fn failures(error: Error, count: usize) -> impl Iterator<Item = io::Error> {
    let (kind, error) = (kind_of(&error), Arc::new(error));
    std::iter::repeat_n(error, count).map(move |error| io::Error::new(kind, Failed(error)))
}

/// The cause of an error that several callers get. It reads as the cause itself, which is its
/// source.
#[derive(Debug)]
struct Cause(Arc<Error>);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.source() {
            Some(cause) => write!(f, "{cause}"),
            None => self.0.fmt(f),
        }
    }
}

impl StdError for Cause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}

/// An error that several callers get, with the same variant, fields and words for each.
pub(crate) fn shared(error: Arc<Error>) -> Error {
    let error = match Arc::try_unwrap(error) {
        Ok(error) => return error,
        Err(error) => error,
    };
    let source = Box::new(Cause(error.clone()));
    match &*error {
        Error::Generic { store, .. } => Error::Generic { store, source },
        Error::NotFound { path, .. } => Error::NotFound { path: path.clone(), source },
        Error::AlreadyExists { path, .. } => Error::AlreadyExists { path: path.clone(), source },
        Error::Precondition { path, .. } => Error::Precondition { path: path.clone(), source },
        Error::NotModified { path, .. } => Error::NotModified { path: path.clone(), source },
        Error::PermissionDenied { path, .. } => Error::PermissionDenied { path: path.clone(), source },
        Error::Unauthenticated { path, .. } => Error::Unauthenticated { path: path.clone(), source },
        Error::NotSupported { .. } => Error::NotSupported { source },
        Error::NotImplemented { operation, implementer } => {
            Error::NotImplemented { operation: operation.clone(), implementer: implementer.clone() }
        }
        _ => generic(error),
    }
}

/// An error of the cache. One of the wrapped store inside is what it was there, unless it says that
/// the object has another version: the reader opens that one.
pub(crate) fn of_cache(error: mglru_cache::Error, location: &Path) -> Error {
    let inner = error.io_error().and_then(io::Error::get_ref);
    match inner.and_then(|inner| inner.downcast_ref::<Failed>()) {
        Some(Failed(failed)) if !is_of_change(kind_of(failed)) => {
            let failed = failed.clone();
            // It may be the last one, which then needs no copy.
            drop(error);
            return shared(failed);
        }
        _ => {}
    }
    match (&error, error.kind()) {
        (mglru_cache::Error::Io { .. }, io::ErrorKind::NotFound) => {
            Error::NotFound { path: location.to_string(), source: Box::new(error) }
        }
        _ => generic(error),
    }
}

/// Whether an error of this kind says that the object has another version by now. The cache has the
/// same kind for answers of another version.
fn is_of_change(kind: io::ErrorKind) -> bool {
    kind == io::ErrorKind::StaleNetworkFileHandle
}

/// The kind of an error of the store.
fn kind_of(error: &Error) -> io::ErrorKind {
    match error {
        Error::Precondition { .. } | Error::NotModified { .. } => io::ErrorKind::StaleNetworkFileHandle,
        Error::NotFound { .. } => io::ErrorKind::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => io::ErrorKind::PermissionDenied,
        Error::NotSupported { .. } | Error::NotImplemented { .. } => io::ErrorKind::Unsupported,
        _ => io::ErrorKind::Other,
    }
}

/// Whether the wrapped store says that the object has another version by now.
pub(crate) fn says_changed(error: &Error) -> bool {
    is_of_change(kind_of(error))
}

/// An error of a read that was conditional on the version of the object, without the cache.
pub(crate) fn of_version(error: Error) -> Error {
    if says_changed(&error) { changed(error.to_string()) } else { error }
}

/// The object has another version than the one that is read.
pub(crate) fn changed(what: String) -> Error {
    generic(has_changed(what))
}

/// [`changed`], for the cache.
pub(crate) fn has_changed(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::StaleNetworkFileHandle, what)
}

/// Whether the cache has no memory left: for pages, or for the metadata of one more object.
pub(crate) fn is_out_of_room(error: &Error) -> bool {
    let Error::Generic { source, .. } = error else { return false };
    let error = source.downcast_ref::<mglru_cache::Error>();
    error.is_some_and(|error| {
        matches!(error, mglru_cache::Error::TooManyFiles { .. } | mglru_cache::Error::OutOfMemory(_))
    })
}

/// Whether a read failed because the object has another version by now.
pub(crate) fn is_change(error: &Error) -> bool {
    io_error(error).is_some_and(|error| is_of_change(error.kind()))
}

/// The end of the tokio runtime whose task read from the store.
#[derive(Debug)]
struct RuntimeEnded;

impl fmt::Display for RuntimeEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the tokio runtime that read from the store has ended: read again")
    }
}

impl StdError for RuntimeEnded {}

/// The error of reads whose runtime has ended.
pub(crate) fn runtime_ended() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, RuntimeEnded)
}

/// Whether a read failed because the runtime ended whose task read from the store.
pub(crate) fn is_end_of_runtime(error: &Error) -> bool {
    io_error(error).and_then(io::Error::get_ref).is_some_and(|error| error.is::<RuntimeEnded>())
}

/// The error of input and output that is the cause of an error of this store. Errors of the wrapped
/// store have causes of their own, which say nothing here.
fn io_error(error: &Error) -> Option<&io::Error> {
    let Error::Generic { store: STORE, source } = error else { return None };
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&**source);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref() {
            return Some(error);
        }
        cause = error.source();
    }
    None
}
