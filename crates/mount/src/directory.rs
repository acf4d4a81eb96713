//! Open directories.
//!
//! A position in a directory is the file system's own cookie of the entry before it, so that a
//! program may go on anywhere, also after entries were added or removed.
//!
//! # Locking
//!
//! The listing's lock is a leaf.

use crate::attributes;
use crate::refused::Answer;
use fuser::FileType;
use rustix::fs::{RawDir, SeekFrom, seek};
use std::ffi::OsString;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Mutex, PoisonError};

/// Bytes of entries that are read from the system at once.
const READ_BYTES: usize = 32 << 10;

/// An entry of a directory.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) inode: u64,
    /// The position behind this entry.
    pub(crate) next: u64,
    pub(crate) kind: FileType,
    pub(crate) name: OsString,
}

#[derive(Default)]
struct Listing {
    /// Entries that were read, last first.
    ahead: Vec<Entry>,
    /// The position of the first entry in `ahead`, or of the descriptor if there are none.
    at: u64,
}

/// An open directory.
pub(crate) struct Directory {
    pub(crate) fd: OwnedFd,
    listing: Mutex<Listing>,
}

impl Directory {
    pub(crate) fn new(fd: OwnedFd) -> Directory {
        Directory { fd, listing: Mutex::default() }
    }

    /// Passes the entries from position `from` on to `take`, until it returns `false` because it
    /// has no room.
    pub(crate) fn read(&self, from: u64, mut take: impl FnMut(&Entry) -> bool) -> Answer<()> {
        let mut listing = self.listing.lock().unwrap_or_else(PoisonError::into_inner);
        if listing.at != from {
            listing.ahead.clear();
            seek(&self.fd, SeekFrom::Start(from))?;
            listing.at = from;
        }
        loop {
            if listing.ahead.is_empty() && !self.read_ahead(&mut listing)? {
                return Ok(());
            }
            while let Some(entry) = listing.ahead.last() {
                if !take(entry) {
                    return Ok(());
                }
                listing.at = entry.next;
                listing.ahead.pop();
            }
        }
    }

    /// Reads more entries. Returns `false` at the end.
    fn read_ahead(&self, listing: &mut Listing) -> Answer<bool> {
        let mut buffer = [const { MaybeUninit::uninit() }; READ_BYTES];
        let mut raw = RawDir::new(&self.fd, &mut buffer);
        while let Some(entry) = raw.next() {
            let entry = entry?;
            listing.ahead.push(Entry {
                inode: entry.ino(),
                next: entry.next_entry_cookie(),
                kind: attributes::to_fuse(entry.file_type()),
                name: OsString::from_vec(entry.file_name().to_bytes().to_vec()),
            });
            if raw.is_buffer_empty() {
                break;
            }
        }
        listing.ahead.reverse();
        Ok(!listing.ahead.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs::File;

    #[test]
    fn every_entry_once_from_any_position() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..2000 {
            File::create(folder.path().join(format!("a-file-with-a-long-name-{number}"))).unwrap();
        }
        let directory = Directory::new(File::open(folder.path()).unwrap().into());
        let mut names = BTreeSet::new();
        let mut at = 0;
        loop {
            let mut room = 7;
            let before = at;
            directory
                .read(at, |entry| {
                    room -= 1;
                    if room < 0 {
                        return false;
                    }
                    assert!(names.insert(entry.name.clone()), "{:?} twice", entry.name);
                    at = entry.next;
                    true
                })
                .unwrap();
            if at == before {
                break;
            }
        }
        assert_eq!(names.len(), 2002, "with `.` and `..`");
        // Again from the beginning, without reading to the end.
        let mut first = None;
        directory
            .read(0, |entry| {
                first = Some(entry.name.clone());
                false
            })
            .unwrap();
        assert!(first.is_some());
    }
}
