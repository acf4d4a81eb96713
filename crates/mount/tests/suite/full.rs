//! A directory whose file system is full.

use crate::common::{mount_again, mounted};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A small file system in memory, unmounted when dropped.
pub struct Small(PathBuf);

/// Mounts a file system with so much space; `None` where that is forbidden.
pub fn small(at: &Path, options: &CStr) -> Option<Small> {
    match mount("none", at, "tmpfs", MountFlags::empty(), Some(options)) {
        Ok(()) => Some(Small(at.to_owned())),
        Err(reason) => {
            eprintln!("skipped: cannot mount a small file system: {reason}");
            None
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_is_an_error_of_the_write_that_extends_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_small) = small(folder.path(), c"size=6m") else { return };
    let Some(mounted) = mount_again(folder) else { return };
    let file = File::options().read(true).write(true).create_new(true).open(mounted.at("f")).unwrap();
    let mut written = 0;
    let error = loop {
        match file.write_at(&[1; 65_536], written) {
            Ok(bytes) => written += bytes as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    assert!((4 << 20..=6 << 20).contains(&written), "{written}");
    // Existing bytes may be replaced, and every accepted write reaches the disk.
    file.write_all_at(&[2; 65_536], 0).unwrap();
    file.sync_all().unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(&[3; 65_536], 1 << 20).unwrap();
    drop(file);
    let directory = mounted.finish();
    let content = fs::read(directory.path().join("f")).unwrap();
    assert!(content.len() == (1 << 20) + 65_536 && content[..65_536] == [2; 65_536]);
    assert!(content[1 << 20..] == [3; 65_536]);
}

#[test]
fn a_directory_that_vanishes_is_an_error_of_each_request() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.at("f"), "before").unwrap();
    let file = File::open(mounted.at("f")).unwrap();
    fs::remove_dir_all(mounted.below()).unwrap();
    let mut buffer = [0; 6];
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"before", "it was open");
    assert_eq!(fs::write(mounted.at("new"), "x").unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(fs::create_dir(mounted.at("new")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(fs::read_dir(mounted.at("")).unwrap().count(), 0);
    drop(file);
    // Nothing is left to be written.
    mounted.finish();
}
