//! Names and lengths of files that tracepoints know by device and inode number.

use super::Identity;
use rustix::fs::{major, minor};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

/// The files of a recording, by number.
#[derive(Default)]
pub(super) struct Names {
    numbers: HashMap<Identity, u32>,
    /// Name, and length if it is known.
    files: Vec<(Vec<u8>, Option<u64>)>,
}

impl Names {
    /// The number of a file, and whether it is new. `find` looks for its name and length.
    pub(super) fn number(
        &mut self,
        identity: Identity,
        find: impl FnOnce(Identity) -> Option<(Vec<u8>, u64)>,
    ) -> (u32, bool) {
        if let Some(&number) = self.numbers.get(&identity) {
            return (number, false);
        }
        let number = self.files.len() as u32;
        let ((major, minor), inode) = identity;
        let file = match find(identity) {
            Some((name, bytes)) => (name, Some(bytes)),
            None => (format!("{major}:{minor}:{inode}").into_bytes(), None),
        };
        self.files.push(file);
        self.numbers.insert(identity, number);
        (number, true)
    }

    pub(super) fn name(&self, number: u32) -> &[u8] {
        &self.files[number as usize].0
    }

    /// Notes that a file is at least so long.
    pub(super) fn grows_to(&mut self, number: u32, end: u64) {
        if let Some(bytes) = &mut self.files[number as usize].1 {
            *bytes = end.max(*bytes);
        }
    }

    /// Where a read ends: programs ask for more than the rest of the file.
    pub(super) fn end_of_read(&self, number: u32, from: u64, to: u64) -> u64 {
        match self.files[number as usize].1 {
            // Else the file has grown in a way that was not seen.
            Some(bytes) if from < bytes => to.min(bytes),
            _ => to,
        }
    }
}

/// Looks for a file among those that the threads' processes have open, or have mapped.
pub(super) fn find(threads: &[u32], identity: Identity) -> Option<(Vec<u8>, u64)> {
    let mut seen = HashSet::new();
    for thread in threads {
        // Threads of a process share their descriptors.
        let status = fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
        let process = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse::<u32>().ok());
        let Some(process) = process.filter(|&process| seen.insert(process)) else { continue };
        for folder in ["fd", "map_files"] {
            let entries = fs::read_dir(format!("/proc/{process}/{folder}")).into_iter().flatten().flatten();
            for path in entries.map(|entry| entry.path()) {
                let Ok(found) = fs::metadata(&path) else { continue };
                if ((major(found.dev()), minor(found.dev())), found.ino()) == identity {
                    let name = fs::read_link(&path).ok()?;
                    return Some((name.as_os_str().as_bytes().to_vec(), found.len()));
                }
            }
        }
    }
    None
}
