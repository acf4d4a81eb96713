//! Refusals: the error numbers that programs get.

use mglru_cache::{Error, MemcgError};
use rustix::io::Errno;

/// Why a request of a program fails: the system's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) Errno);

/// A result with the error number for the program.
pub(crate) type Answer<T> = Result<T, Refused>;

impl Refused {
    /// The number as the FUSE library sends it.
    pub(crate) fn to_fuse(self) -> fuser::Errno {
        fuser::Errno::from_i32(self.0.raw_os_error())
    }
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Refused {
        Refused(errno)
    }
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Refused {
        Refused(number(&error))
    }
}

/// The system's number, or the one that it has for such an error.
fn number(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or_else(|| match error.kind() {
        // The cache refuses files of procfs and the like.
        std::io::ErrorKind::InvalidInput => Errno::OPNOTSUPP,
        _ => Errno::IO,
    })
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        if let Some(error) = error.io_error() {
            return Refused(number(error));
        }
        Refused(match &error {
            Error::OutOfMemory(_)
            | Error::Killed(_)
            | Error::Busy
            | Error::TooManyFiles { .. }
            | Error::TooManyTenants { .. } => Errno::NOMEM,
            Error::ReadOnly { .. } => Errno::BADF,
            Error::TooLarge { .. } => Errno::FBIG,
            Error::Control(error) => Errno::from_raw_os_error(error.errno.number()),
            Error::NoSuchTenant(_) => Errno::NOENT,
            Error::Tenant(error) => match error {
                MemcgError::Exists(_) => Errno::EXIST,
                MemcgError::TooMany => Errno::NOSPC,
                MemcgError::TooDeep => Errno::AGAIN,
                MemcgError::Gone => Errno::NODEV,
                MemcgError::Missing(_) => Errno::NOENT,
                MemcgError::HasChildren | MemcgError::IsRoot => Errno::BUSY,
                _ => Errno::INVAL,
            },
            _ => Errno::IO,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn programs_get_the_system_s_number() {
        let full = io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error());
        assert_eq!(Refused::from(full), Refused(Errno::NOSPC));
        assert_eq!(Refused::from(io::Error::other("no number")), Refused(Errno::IO));
        let of_procfs = io::Error::new(io::ErrorKind::InvalidInput, "only regular files can be cached");
        assert_eq!(Refused::from(of_procfs), Refused(Errno::OPNOTSUPP));
        assert_eq!(Refused::from(Error::Busy), Refused(Errno::NOMEM));
        assert_eq!(Refused(Errno::NOSPC).to_fuse().code(), 28);
    }
}
