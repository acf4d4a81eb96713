//! A directory whose file system is full.

use crate::common::mount_again;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A small file system in memory, unmounted when dropped.
struct Small(PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_is_an_error_of_the_write_that_extends_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let options = Some(c"size=6m");
    if let Err(reason) = mount("none", folder.path(), "tmpfs", MountFlags::empty(), options) {
        return eprintln!("skipped: cannot mount a small file system: {reason}");
    }
    let _small = Small(folder.path().to_owned());
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
