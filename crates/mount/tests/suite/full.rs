//! A directory whose file system is full.

use crate::common::{Setup, mount_again, mounted, mounted_in, skipped};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CStr;
use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// A small file system in memory, unmounted when dropped.
pub struct Small(PathBuf);

/// Mounts a file system with so much space; `None` where that is forbidden.
pub fn small(at: &Path, options: &CStr) -> Option<Small> {
    match mount("none", at, "tmpfs", MountFlags::empty(), Some(options)) {
        Ok(()) => Some(Small(at.to_owned())),
        Err(reason) => {
            skipped(&format!("cannot mount a small file system: {reason}"));
            None
        }
    }
}

/// Mounts a new ext4 of so many bytes, kept in the file `image`; `None` where that is impossible.
fn ext4(at: &Path, image: &Path, bytes: u64) -> Option<Small> {
    File::create(image).unwrap().set_len(bytes).unwrap();
    let ran = |command: &mut Command| match command.output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let reason =
                String::from_utf8_lossy(&output.stderr).replace(&image.display().to_string(), "a file");
            skipped(&format!("no ext4 can be made or mounted: {}", reason.trim()));
            false
        }
        Err(reason) => {
            skipped(&format!("no ext4 can be made or mounted: {command:?}: {reason}"));
            false
        }
    };
    let is_there = ran(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image))
        && ran(Command::new("mount").args(["-o", "loop"]).args([image, at]));
    is_there.then(|| Small(at.to_owned()))
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

/// The request in the middle of which the disk is full failed whole, although a part fitted.
#[test]
fn a_write_is_as_long_as_the_disk_has_room() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_small) = small(folder.path(), c"size=1000k") else { return };
    let Some(mounted) = mount_again(folder) else { return };
    let file = File::options().read(true).write(true).create_new(true).open(mounted.at("f")).unwrap();
    file.write_all_at(&[1; 100], 0).unwrap();
    let mut written = file.write_at(&[2; 2 << 20], 50).unwrap();
    assert!((950 << 10..1000 << 10).contains(&written), "{written}");
    // The page in which the file ended had room, too.
    let error = loop {
        match file.write_at(&[2; 4096], 50 + written as u64) {
            Ok(more) => written += more,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    assert!(written < 1000 << 10, "{written}");
    // A part is there already.
    assert_eq!(file.write_at(&[4; 8192], written as u64 + 50 - 4096).unwrap(), 4096);
    file.sync_all().unwrap();
    drop(file);
    let directory = mounted.finish();
    let content = fs::read(directory.path().join("f")).unwrap();
    assert!(content.len() == 50 + written && content[..50] == [1; 50]);
    assert!(content[50..content.len() - 4096].iter().all(|byte| *byte == 2));
    assert!(content[content.len() - 4096..] == [4; 4096]);
}

/// Regression test: such a file system reports no blocks, which was taken for a full disk.
#[test]
fn a_file_system_without_a_size_is_not_full() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_small) = small(folder.path(), c"size=0") else { return };
    let Some(mounted) = mount_again(folder) else { return };
    fs::write(mounted.at("f"), vec![1; 1 << 20]).unwrap();
    let directory = mounted.finish();
    assert!(fs::read(directory.path().join("f")).unwrap() == vec![1; 1 << 20]);
}

/// Another file system is mounted below the directory. The directory's own has room.
#[test]
fn each_file_system_below_the_directory_has_its_own_space() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_large) = small(folder.path(), c"size=64m") else { return };
    fs::create_dir(folder.path().join("below")).unwrap();
    let _small = small(&folder.path().join("below"), c"size=1m").unwrap();
    let Some(mounted) = mount_again(folder) else { return };
    let large = File::create(mounted.at("f")).unwrap();
    large.write_all_at(&[1; 65_536], 0).unwrap();
    let file = File::create(mounted.at("below/f")).unwrap();
    let write = |number: u64| file.write_all_at(&[2; 65_536], number * 65_536);
    let error = (0..32).find_map(|number| write(number).err()).expect("it is full");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    large.write_all_at(&[1; 2 << 20], 65_536).unwrap();
    file.sync_all().unwrap();
    large.sync_all().unwrap();
}

/// As in the kernel: a failed writeback is an error of the next sync of each file that was open
/// then, once, also if the pages are written meanwhile. A file that is opened later does not get
/// it.
#[test]
fn a_failed_writeback_is_an_error_of_one_sync_of_each_open_file() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_small) = small(folder.path(), c"size=4m") else { return };
    // So much that the flusher does not write, and fail, too.
    let setup = Setup { memory: Some(64 << 20), ..Setup::default() };
    let Some(mounted) = mounted_in(folder, setup) else { return };
    let open = || File::options().read(true).write(true).open(mounted.at("f")).unwrap();
    // A hole, for which no space is kept.
    File::create(mounted.at("f")).unwrap().set_len(1 << 20).unwrap();
    let [writer, other] = [open(), open()];
    fs::write(mounted.below().join("filler"), vec![1; 7 << 19]).unwrap();
    writer.write_all_at(&vec![2; 1 << 20], 0).unwrap();
    let error = writer.sync_all().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    fs::remove_file(mounted.below().join("filler")).unwrap();
    writer.sync_all().unwrap();
    let later = open();
    let error = other.sync_data().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
    other.sync_data().unwrap();
    later.sync_all().unwrap();
    drop([writer, other, later]);
    let directory = mounted.finish();
    assert!(fs::read(directory.path().join("f")).unwrap() == vec![2; 1 << 20], "nothing is lost");
}

#[test]
fn a_mount_that_ends_with_unwritten_data_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_small) = small(folder.path(), c"size=4m") else { return };
    let setup = Setup { memory: Some(64 << 20), ..Setup::default() };
    let Some(mounted) = mounted_in(folder, setup) else { return };
    for name in ["f", "g"] {
        // A hole, for which no space is kept.
        let file = File::create(mounted.at(name)).unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&vec![2; 1 << 20], 0).unwrap();
    }
    fs::write(mounted.below().join("filler"), vec![1; 7 << 19]).unwrap();
    let point = mounted.at("").canonicalize().unwrap();
    let below = mounted.below().to_owned();
    let (_directory, ended) = mounted.finish_with_result();
    let error = ended.unwrap_err().to_string();
    let expected = |name: &str| {
        format!(
            "{} was unmounted, and data is lost: cannot write {} and 1 other file: No space left on device (os error 28)",
            point.display(),
            below.join(name).display()
        )
    };
    assert!(error == expected("f") || error == expected("g"), "{error}");
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

/// ext4 extends a file before it finds the disk full. The kernel showed the length and the time of
/// before for up to a second.
#[test]
fn a_failed_allocation_shows_the_length_that_the_file_has() {
    let (folder, images) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(_small) = ext4(folder.path(), &images.path().join("image"), 16 << 20) else { return };
    let Some(mounted) = mount_again(folder) else { return };
    let file = File::options().read(true).write(true).create_new(true).open(mounted.at("f")).unwrap();
    file.write_all_at(b"content", 0).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH;
    file.set_times(FileTimes::new().set_modified(long_ago)).unwrap();
    let shown = || file.metadata().unwrap();
    assert_eq!((shown().len(), shown().modified().unwrap()), (7, long_ago));
    let full = fallocate(&file, FallocateFlags::empty(), 0, 64 << 20);
    assert_eq!(full, Err(rustix::io::Errno::NOSPC));
    let below = fs::metadata(mounted.below().join("f")).unwrap();
    assert!((8..64 << 20).contains(&below.len()), "by a part of it: {below:?}");
    assert_eq!(shown().len(), below.len());
    assert!(shown().modified().unwrap() > long_ago);
    // Without a new length, nothing has changed but the space that the file takes.
    file.set_len(7).unwrap();
    file.set_times(FileTimes::new().set_modified(long_ago)).unwrap();
    let full = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 64 << 20);
    assert_eq!(full, Err(rustix::io::Errno::NOSPC));
    assert_eq!((shown().len(), shown().modified().unwrap()), (7, long_ago));
    let below = fs::metadata(mounted.below().join("f")).unwrap();
    assert_eq!(shown().blocks(), below.blocks());
    file.set_len(0).unwrap();
    file.write_all_at(b"new", 0).unwrap();
    drop(file);
    assert_eq!(fs::read(mounted.finish().path().join("f")).unwrap(), b"new");
}
