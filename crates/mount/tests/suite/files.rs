//! Names, links, attributes and what databases rely on.

use crate::common::{Setup, mount_again, mounted, mounted_with, skipped};
use mglru_workload::PAGE_BYTES;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, fcntl_lock};
use rustix::io::{Errno, ReadWriteFlags};
use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::IoSlice;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, SystemTime};

#[test]
fn two_names_of_a_file_share_its_content() {
    let Some(mounted) = mounted() else { return };
    let (a, b, c) = (mounted.at("a"), mounted.at("b"), mounted.at("c"));
    fs::write(&a, "before").unwrap();
    fs::hard_link(&a, &b).unwrap();
    let one = OpenOptions::new().read(true).write(true).open(&a).unwrap();
    let two = File::open(&b).unwrap();
    one.write_all_at(b"AFTER", 0).unwrap();
    let mut buffer = [0; 6];
    two.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"AFTERe", "without a sync");
    fs::rename(&a, &c).unwrap();
    one.write_all_at(b"!", 5).unwrap();
    assert_eq!(fs::read(&c).unwrap(), b"AFTER!");
    let (b, c) = (fs::metadata(&b).unwrap(), fs::metadata(&c).unwrap());
    assert_eq!((b.ino(), b.nlink()), (c.ino(), 2));
}

#[test]
fn a_removed_file_lives_until_it_is_closed() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.at("f");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(b"still here", 0).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "another").unwrap();
    let mut buffer = [0; 10];
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"still here");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    // A file that is replaced by a rename, too.
    let replaced = File::open(&path).unwrap();
    fs::write(mounted.at("g"), "third").unwrap();
    fs::rename(mounted.at("g"), &path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"third");
    let mut buffer = [0; 7];
    replaced.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"another");
}

#[test]
fn length_holes_and_reserved_space() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.at("f");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(&[7; 20_000], 0).unwrap();
    file.set_len(10_000).unwrap();
    file.set_len(30_000).unwrap();
    let content = fs::read(&path).unwrap();
    assert!(content.len() == 30_000 && content[..10_000] == [7; 10_000]);
    assert!(content[10_000..].iter().all(|&byte| byte == 0), "what was cut off came back");

    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1000, 8000).unwrap();
    let content = fs::read(&path).unwrap();
    assert!(content[..1000] == [7; 1000] && content[9000..10_000] == [7; 1000]);
    assert_eq!(content[1000..9000], [0; 8000]);
    // A hole at the end of what was never written to the disk keeps the length.
    file.write_all_at(&[8; 4096], 40_960).unwrap();
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 40_960, 4096).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::metadata(mounted.below().join("f")).unwrap().len(), 45_056);

    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 45_056);
    fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 2 << 20).unwrap();
    assert_eq!(fs::read(&path).unwrap(), vec![0; 2 << 20]);
    let collapse = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(collapse, Err(Errno::OPNOTSUPP));

    // Longer than a file of the cache: refused, and nothing is zeroed before.
    file.write_all_at(&[7; 4096], 0).unwrap();
    assert_eq!(fallocate(&file, FallocateFlags::ZERO_RANGE, 0, (1 << 44) + 1), Err(Errno::FBIG));
    assert_eq!(fs::read(&path).unwrap()[..4096], [7; 4096]);
}

/// A file without any space on the disk is a hole to `tar --sparse`, which once kept nothing of
/// files whose pages were not written yet.
#[test]
fn unwritten_data_counts_as_space_on_the_disk() {
    let Some(mounted) = mounted() else { return };
    let blocks = |name: &str| fs::metadata(mounted.at(name)).unwrap().blocks();
    fs::write(mounted.at("full"), [1; 300_000]).unwrap();
    assert!(blocks("full") * 512 >= 300_000);
    let sparse = File::create(mounted.at("sparse")).unwrap();
    sparse.write_all_at(&[1], 5 << 30).unwrap();
    assert!((1..100).contains(&blocks("sparse")), "{}", blocks("sparse"));
    sparse.sync_all().unwrap();
    drop(sparse);
    assert!((1..100).contains(&blocks("sparse")), "{}", blocks("sparse"));
    // The kernel does not say what is stored through a map.
    let mapped = OpenOptions::new().read(true).write(true).create_new(true).open(mounted.at("map")).unwrap();
    mapped.set_len(100_000).unwrap();
    assert!(blocks("map") > 0);
    drop(mapped);
    assert_eq!(mounted.finish().path().join("map").metadata().unwrap().blocks(), 0);
}

/// On ext4, the largest file has one block less than the cache's largest one.
#[test]
fn a_write_ends_at_the_largest_length_of_the_file_system() {
    const LARGEST: u64 = 1 << 44;
    let Some(mounted) = mounted() else { return };
    let open = |path: std::path::PathBuf| File::options().write(true).create_new(true).open(path).unwrap();
    let (file, plain) = (open(mounted.at("f")), open(mounted.below().join("plain")));
    for offset in [1 << 30, LARGEST - 8192, LARGEST - 4096, LARGEST - 2048, LARGEST] {
        let write = |file: &File| file.write_at(&[1; 8192], offset).map_err(|error| error.raw_os_error());
        let expected = match write(&plain) {
            // On a file system with larger files, the cache's limit is the file's.
            Ok(written) => match written.min((LARGEST - offset) as usize) {
                0 => Err(Some(Errno::FBIG.raw_os_error())),
                some => Ok(some),
            },
            refused => refused,
        };
        assert_eq!(write(&file), expected, "at {offset}");
    }
    file.sync_all().unwrap();
    let len = |name| fs::metadata(mounted.below().join(name)).unwrap().len();
    assert_eq!(len("f"), len("plain").min(LARGEST));
}

#[test]
fn locks_hold_between_opens() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.at("f"), "x").unwrap();
    let open = || OpenOptions::new().read(true).write(true).open(mounted.at("f")).unwrap();
    let (one, two) = (open(), open());
    rustix::fs::flock(&one, FlockOperation::LockExclusive).unwrap();
    assert_eq!(rustix::fs::flock(&two, FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN));
    rustix::fs::flock(&one, FlockOperation::Unlock).unwrap();
    rustix::fs::flock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
    fcntl_lock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
}

/// The times of file systems are those of the kernel's last tick. A more precise time of a write
/// would be later than that of a file which is made afterwards.
#[test]
fn a_file_that_is_made_after_a_write_is_not_older() {
    let Some(mounted) = mounted() else { return };
    for number in 0..50 {
        let name = |kind| mounted.at(&format!("{kind}{number}"));
        let written = File::create(name("written")).unwrap();
        written.write_all_at(b"x", 0).unwrap();
        let made = File::create(name("made")).unwrap();
        let modified = |file: &File| file.metadata().unwrap().modified().unwrap();
        assert!(modified(&written) <= modified(&made), "file {number}");
    }
}

#[test]
fn extended_attributes() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.at("f");
    fs::write(&path, "x").unwrap();
    let value = vec![9; 1000];
    match rustix::fs::setxattr(&path, "user.test", &value, rustix::fs::XattrFlags::CREATE) {
        Err(Errno::OPNOTSUPP) => {
            return eprintln!("skipped: the temporary directory has no extended attributes");
        }
        done => done.unwrap(),
    }
    let mut buffer = [0; 2000];
    assert_eq!(rustix::fs::getxattr(&path, "user.test", &mut buffer[..]), Ok(1000));
    assert_eq!(buffer[..1000], value);
    assert_eq!(rustix::fs::getxattr(&path, "user.test", &mut buffer[..10]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::listxattr(&path, &mut buffer[..]), Ok(10));
    rustix::fs::removexattr(&path, "user.test").unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.test", &mut buffer[..]), Err(Errno::NODATA));
    let refused = rustix::fs::setxattr(
        &path,
        "system.posix_acl_access",
        &[2, 0, 0, 0],
        rustix::fs::XattrFlags::empty(),
    );
    assert!(refused.is_err(), "access control lists would not be enforced");
}

/// Copying programs ask for the value of each name, and report those that they do not get.
#[test]
fn each_extended_attribute_that_is_listed_can_be_read() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.at("f"), "x").unwrap();
    // Version 2: the owner, the user 1, the group, the mask, and others.
    let mut list = vec![2, 0, 0, 0];
    for (tag, permissions, id) in
        [(1_u16, 6_u16, u32::MAX), (2, 4, 1), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 4, u32::MAX)]
    {
        list.extend(tag.to_ne_bytes().into_iter().chain(permissions.to_ne_bytes()).chain(id.to_ne_bytes()));
    }
    let below = mounted.below().join("f");
    for (name, value) in [("user.a", &[1][..]), ("system.posix_acl_access", &list), ("trusted.b", &[2])] {
        if let Err(reason) = rustix::fs::setxattr(&below, name, value, rustix::fs::XattrFlags::empty()) {
            return skipped(&format!("{name} cannot be set here: {reason}"));
        }
    }
    let listed = |program: &mut Command| {
        let script = "import os; [print(name, os.getxattr('f', name)) for name in sorted(os.listxattr('f'))]";
        let output = program.args(["-c", script]).current_dir(mounted.at("")).output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8(output.stdout).unwrap())
    };
    let Some(by_root) = listed(&mut Command::new("python3")) else { return skipped("there is no python3") };
    assert_eq!(by_root, "trusted.b b'\\x02'\nuser.a b'\\x01'\n");
    fs::set_permissions(mounted.at(""), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(listed(Command::new("python3").uid(65534)).unwrap(), "user.a b'\\x01'\n");
}

/// Of a file whose pages are not written yet, the mount remembers when they changed. A later change
/// of its names or permissions is in DIR only.
#[test]
fn the_time_of_change_has_new_names_and_permissions_of_a_file_with_unwritten_pages() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let Some(mounted) = mounted() else { return };
    let time = |at: &std::path::Path| at.metadata().map(|data| (data.ctime(), data.ctime_nsec())).unwrap();
    let (there, below) = (mounted.at("f"), mounted.below().join("f"));
    fs::write(&there, "written").unwrap();
    let written = time(&there);
    // File systems note the clock's last tick.
    while time(&below) <= written {
        fs::set_permissions(&there, fs::Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(&there, mounted.at("g")).unwrap();
        fs::remove_file(mounted.at("g")).unwrap();
    }
    assert!(time(&there) > written, "{:?} is not after {written:?}", time(&there));
}

/// As on other file systems: `tar` says that a file changed as it was read if this time differs.
#[test]
fn writing_back_and_giving_up_a_file_do_not_move_its_time_of_change() {
    // Fewer descriptors than files: most closed ones are given up.
    let Some(mounted) = mounted_with(Setup { descriptors: Some(100), ..Setup::default() }) else { return };
    let of = |data: fs::Metadata| (data.ctime(), data.ctime_nsec());
    let (there, below) = (mounted.at("f"), mounted.below().join("f"));
    let file = File::create(&there).unwrap();
    file.write_all_at(&[1; 10_000], 0).unwrap();
    let written = of(file.metadata().unwrap());
    // File systems note the clock's last tick.
    let tick = mounted.below().join("tick");
    while of(File::create(&tick).unwrap().metadata().unwrap()) <= written {
        fs::remove_file(&tick).unwrap();
    }
    file.sync_all().unwrap();
    assert!(of(below.metadata().unwrap()) > written, "DIR has the time of the write-back");
    let told = || {
        // Not what the kernel remembers.
        let data = rustix::fs::statx(
            rustix::fs::CWD,
            &there,
            rustix::fs::AtFlags::STATX_FORCE_SYNC,
            rustix::fs::StatxFlags::BASIC_STATS,
        );
        let time = data.unwrap().stx_ctime;
        (time.tv_sec, i64::from(time.tv_nsec))
    };
    assert_eq!(told(), written, "after a sync");
    drop(file);
    assert_eq!(told(), written, "after the last close");
    for number in 0..100 {
        fs::write(mounted.at(&format!("other-{number}")), [2; 100]).unwrap();
    }
    assert_eq!(told(), written, "after it was given up");
    assert_eq!(fs::read(&there).unwrap(), [1; 10_000]);
    assert_eq!(told(), written, "after a read");

    let mut before = written;
    let mut moves = |what: &str, act: &dyn Fn()| {
        while told() == before {
            act();
        }
        assert!(told() > before, "{what}");
        before = told();
    };
    moves("permissions", &|| fs::set_permissions(&there, Permissions::from_mode(0o640)).unwrap());
    moves("a name more, and less", &|| {
        fs::hard_link(&there, mounted.at("g")).unwrap();
        fs::remove_file(mounted.at("g")).unwrap();
    });
    moves("another name and back", &|| {
        fs::rename(&there, mounted.at("g")).unwrap();
        fs::rename(mounted.at("g"), &there).unwrap();
    });
    moves("a time that was set", &|| {
        let file = OpenOptions::new().write(true).open(&there).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    });
    moves("a write", &|| {
        let file = OpenOptions::new().write(true).open(&there).unwrap();
        file.write_all_at(&[3], 0).unwrap();
        file.sync_all().unwrap();
    });
    moves("a change in DIR of a closed file", &|| fs::write(&below, "short").unwrap());
}

#[test]
fn times_modes_and_symbolic_links() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.at("f");
    let file = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    file.write_all_at(&[1; 100_000], 0).unwrap();
    let written = file.metadata().unwrap().modified().unwrap();
    assert!(written.elapsed().is_ok_and(|ago| ago < Duration::from_secs(60)));
    file.set_modified(long_ago).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    symlink("f", mounted.at("link")).unwrap();
    assert_eq!(fs::read_link(mounted.at("link")).unwrap().to_str(), Some("f"));
    assert_eq!(fs::read(mounted.at("link")).unwrap().len(), 100_000);
    drop(file);
    let directory = mounted.finish();
    let below = fs::metadata(directory.path().join("f")).unwrap();
    assert_eq!(below.modified().unwrap(), long_ago, "pages written later change the time");
    assert_eq!(below.permissions().mode() & 0o7777, 0o755);
}

/// A write with `O_DSYNC` was once answered before it was on the disk: only `O_SYNC` was synced.
#[test]
fn a_synchronous_write_is_on_disk_when_it_returns() {
    let Some(mounted) = mounted() else { return };
    let below = || fs::read(mounted.below().join("f")).unwrap();
    let open = |flags| OpenOptions::new().write(true).create(true).custom_flags(flags).open(mounted.at("f"));
    for (value, flags) in [(1, libc::O_DSYNC), (2, libc::O_SYNC), (3, libc::O_DSYNC | libc::O_APPEND)] {
        open(flags).unwrap().write_all_at(&[value; 100], u64::from(value) * 10_000).unwrap();
        assert_eq!(below().iter().filter(|&&byte| byte == value).count(), 100, "{value}");
    }
    // A single write can be synchronous, too.
    let file = open(0).unwrap();
    for (value, how) in [(4, ReadWriteFlags::DSYNC), (5, ReadWriteFlags::SYNC)] {
        rustix::io::pwritev2(&file, &[IoSlice::new(&[value; 100])], u64::from(value) * 10_000, how).unwrap();
        assert_eq!(below().iter().filter(|&&byte| byte == value).count(), 100, "{value}");
    }
}

/// A mount that was killed once left an empty file where there had been two with content.
#[test]
fn a_file_that_replaces_another_is_in_dir_with_its_content() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.at("f"), "old").unwrap();
    fs::write(mounted.at("new"), [1; 100_000]).unwrap();
    fs::rename(mounted.at("new"), mounted.at("f")).unwrap();
    assert_eq!(fs::read(mounted.below().join("f")).unwrap(), [1; 100_000]);
}

/// A mount that was killed once left an empty file long after a program had replaced the content.
#[test]
fn new_content_of_a_file_that_was_emptied_is_written_from_its_close_on() {
    // One thread answers requests in their order: a close, which no program waits for, and then the
    // reader of the control file.
    let setup = Setup { threads: Some(1), ..Setup::default() };
    let Some(mounted) = mounted_with(setup) else { return };
    let dirty = || mounted.counter("file_dirty");
    let of_pages = |pages: u64| pages * PAGE_BYTES;
    fs::write(mounted.at("new"), [1; 10_000]).unwrap();
    assert_eq!(dirty(), of_pages(3), "a new file waits for the flusher");
    fs::write(mounted.at("new"), [2; 10_000]).unwrap();
    assert_eq!(dirty(), 0, "it was opened with O_TRUNC");
    let file = OpenOptions::new().read(true).write(true).open(mounted.at("new")).unwrap();
    for shorter in [5000, 0] {
        file.set_len(shorter).unwrap();
        file.write_all_at(&[3; 10_000], 0).unwrap();
        drop(File::open(mounted.at("new")).unwrap());
        assert_eq!(dirty(), if shorter == 0 { 0 } else { of_pages(3) }, "cut to {shorter}");
    }
    // That close has done it.
    file.write_all_at(&[4; 10_000], 0).unwrap();
    drop(file);
    assert_eq!(dirty(), of_pages(3));
    assert_eq!(fs::read(mounted.finish().path().join("new")).unwrap(), [4; 10_000]);
}

/// It would be lost if the mount were killed.
#[test]
fn a_time_that_was_set_is_on_disk_after_a_sync() {
    let Some(mounted) = mounted() else { return };
    let long_ago = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let below = || fs::metadata(mounted.below().join("f")).unwrap().modified().unwrap();
    let file = File::create(mounted.at("f")).unwrap();
    for turn in 0..2 {
        file.write_all_at(&[1; 10_000], turn * 5000).unwrap();
        file.set_modified(long_ago).unwrap();
        if turn == 0 { file.sync_all() } else { file.sync_data() }.unwrap();
        assert_eq!((below(), file.metadata().unwrap().modified().unwrap()), (long_ago, long_ago));
    }
    // A later write changes it again.
    file.write_all_at(&[1], 0).unwrap();
    file.sync_all().unwrap();
    assert!(below() > long_ago && file.metadata().unwrap().modified().unwrap() > long_ago);
}

/// Nanoseconds count forward from the second before; the FUSE library subtracts them.
#[test]
fn times_before_1970_are_set_as_they_are() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.at("f");
    fs::write(&path, [1; 10_000]).unwrap();
    for before in [Duration::new(0, 1), Duration::new(7, 250_000_000), Duration::from_secs(9)] {
        let time = SystemTime::UNIX_EPOCH - before;
        let file = File::open(&path).unwrap();
        file.set_times(FileTimes::new().set_accessed(time).set_modified(time)).unwrap();
        let shown = file.metadata().unwrap();
        assert_eq!((shown.accessed().unwrap(), shown.modified().unwrap()), (time, time));
        file.sync_all().unwrap();
        assert_eq!(fs::metadata(mounted.below().join("f")).unwrap().modified().unwrap(), time);
    }
}

#[test]
fn a_large_directory_is_listed_once_and_may_shrink_meanwhile() {
    let Some(mounted) = mounted() else { return };
    let names: BTreeSet<String> = (0..3000).map(|number| format!("file-{number}")).collect();
    fs::create_dir(mounted.at("many")).unwrap();
    for name in &names {
        File::create(mounted.at("many").join(name)).unwrap();
    }
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(mounted.at("many")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        fs::remove_file(mounted.at("many").join(&name)).unwrap();
        assert!(found.insert(name), "twice");
    }
    assert_eq!(found, names);
    fs::remove_dir(mounted.at("many")).unwrap();
    assert_eq!(fs::read_dir(mounted.below()).unwrap().count(), 0);
}

#[test]
fn space_is_that_of_the_directory_s_file_system() {
    let Some(mounted) = mounted() else { return };
    let space = |path| rustix::fs::statvfs(path).map(|found| (found.f_blocks, found.f_bsize)).unwrap();
    assert_eq!(space(mounted.at("").as_path()), space(mounted.below()));
}

#[test]
fn a_directory_on_another_mount_is_mounted_as_any_other() {
    let Some(outer) = mounted() else { return };
    let folder = tempfile::tempdir_in(outer.at("")).unwrap();
    let below = outer.below().join(folder.path().file_name().unwrap());
    let inner = mount_again(folder).unwrap();
    let content: Vec<u8> = (0..2_000_000u32).map(|number| (number / 11) as u8).collect();
    fs::write(inner.at("f"), &content).unwrap();
    assert!(fs::read(inner.at("f")).unwrap() == content);
    let folder = inner.finish();
    assert!(fs::read(folder.path().join("f")).unwrap() == content);
    File::open(folder.path().join("f")).unwrap().sync_all().unwrap();
    assert!(fs::read(below.join("f")).unwrap() == content);
    drop(folder);
    outer.finish();
}

/// The kernel does not clear the bits of a mount itself, and remembers attributes for a second.
#[test]
fn a_write_without_privileges_clears_set_user_id_at_once() {
    let Some(mounted) = mounted() else { return };
    fs::write(mounted.at("f"), "program").unwrap();
    fs::set_permissions(mounted.at("f"), Permissions::from_mode(0o6775)).unwrap();
    assert_eq!(fs::metadata(mounted.at("f")).unwrap().mode() & 0o7777, 0o6775);
    let mut echo = Command::new("echo");
    if rustix::process::geteuid().is_root() {
        echo.uid(65534);
    }
    let file = File::options().write(true).open(mounted.at("f")).unwrap();
    assert!(echo.arg("x").stdout(file).status().unwrap().success());
    assert_eq!(fs::metadata(mounted.at("f")).unwrap().mode() & 0o7777, 0o775);
    assert_eq!(fs::read(mounted.at("f")).unwrap(), b"x\nogram");
}

/// As the kernel: a capability belongs to the content. One that is set stays although pages written
/// before are still in memory only, and a write removes it at once.
#[test]
fn a_capability_stays_until_the_next_write() {
    const NAME: &str = "security.capability";
    let Some(mounted) = mounted() else { return };
    let there = || rustix::fs::getxattr(mounted.at("f"), NAME, &mut [0_u8; 64][..]);
    let below = || rustix::fs::getxattr(mounted.below().join("f"), NAME, &mut [0_u8; 64][..]);
    // Version 2, with no capability in it.
    let mut value = [0; 20];
    value[3] = 2;
    let file = File::create(mounted.at("f")).unwrap();
    for offset in [0, 3000, 8000] {
        file.write_all_at(&[7; 5000], offset).unwrap();
        assert_eq!((there(), below()), (Err(Errno::NODATA), Err(Errno::NODATA)), "at {offset}");
        match rustix::fs::setxattr(mounted.at("f"), NAME, &value, rustix::fs::XattrFlags::empty()) {
            Err(reason @ (Errno::OPNOTSUPP | Errno::PERM)) => {
                return eprintln!("skipped: no capability can be set here: {reason}");
            }
            done => done.unwrap(),
        }
        file.sync_all().unwrap();
        assert_eq!((there(), below()), (Ok(20), Ok(20)), "at {offset}");
    }
    // One that is set in DIR.
    file.write_all_at(b"x", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    rustix::fs::setxattr(mounted.below().join("f"), NAME, &value, rustix::fs::XattrFlags::empty()).unwrap();
    let file = File::options().write(true).open(mounted.at("f")).unwrap();
    file.write_all_at(b"x", 0).unwrap();
    assert_eq!(below(), Err(Errno::NODATA));
}
