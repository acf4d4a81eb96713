//! Mounts that are refused, with what to do.

use crate::common::{Setup, mounted, mounted_in, skipped, try_mount};
use fuser::{Config, FileAttr, FileHandle, FileType, Filesystem, INodeNo, ReplyAttr, ReplyEmpty, Request};
use mglru_mount::Error;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// The reason why a mount is refused as wrong usage.
fn refused(directory: &Path, point: &Path) -> String {
    refused_with(directory, point, Setup::default())
}

/// As [`refused`], with more than a directory.
pub fn refused_with(directory: &Path, point: &Path, setup: Setup) -> String {
    match try_mount(directory, point, setup) {
        Err(Error::Usage(reason)) => reason,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it is mounted"),
    }
}

#[test]
fn a_bad_directory_or_mount_point_is_refused_with_a_reason() {
    let here = tempfile::tempdir().unwrap();
    let (directory, point) = (here.path().join("dir"), here.path().join("point"));
    fs::create_dir_all(directory.join("inside")).unwrap();
    fs::create_dir(&point).unwrap();
    fs::write(here.path().join("file"), "x").unwrap();
    let none = here.path().join("none");
    for (directory, point, what) in [(&none, &point, "the directory"), (&directory, &none, "the mount point")]
    {
        match try_mount(directory, point, Setup::default()) {
            Err(Error::Work(reason)) => {
                assert!(reason.starts_with(what) && reason.contains("No such file"), "{reason}");
            }
            Err(other) => panic!("a missing input is no wrong usage: {other:?}"),
            Ok(_) => panic!("it is mounted"),
        }
    }
    assert!(refused(&here.path().join("file"), &point).contains("is not a directory"));
    assert!(refused(&directory, &here.path().join("file")).contains("is not a directory"));
    assert!(refused(&directory, &directory.join("inside")).contains("inside of"));
    assert!(refused(&directory, &directory).contains("inside of"));
    let threads = Setup { threads: Some(500), ..Setup::default() };
    assert!(refused_with(&directory, &point, threads).contains("no room for the requests of 500 threads"));
    fs::write(point.join("file"), "x").unwrap();
    assert!(refused(&directory, &point).contains("is not empty"));
    assert!(refused(&directory, Path::new("/proc")).contains("mounted at"));
}

#[test]
fn a_mount_point_is_used_once() {
    let Some(mounted) = mounted() else { return };
    let other = tempfile::tempdir().unwrap();
    assert!(refused(other.path(), &mounted.at("")).contains("mounted at"));
}

/// A file system that takes each extended attribute of its one directory.
struct Taking(Arc<Mutex<Vec<OsString>>>);

impl Filesystem for Taking {
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let (kind, time) = (FileType::Directory, SystemTime::UNIX_EPOCH);
        let attributes = FileAttr {
            ino,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm: 0o755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        reply.attr(&Duration::ZERO, &attributes);
    }

    fn setxattr(&self, _: &Request, _: INodeNo, name: &OsStr, _: &[u8], _: i32, _: u32, reply: ReplyEmpty) {
        self.0.lock().unwrap().push(name.to_owned());
        reply.ok();
    }
}

/// The kernel leaves it to the file system who may set such an attribute. NFS would see root, and
/// take an access control list from any user of the mount.
#[test]
fn attributes_that_a_file_system_guards_itself_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let taken = Arc::<Mutex<Vec<OsString>>>::default();
    let below = match fuser::spawn_mount(Taking(taken.clone()), folder.path(), &Config::default()) {
        Ok(below) => below,
        Err(reason) => return skipped(&format!("cannot mount a file system: {reason}")),
    };
    if let Some(mounted) = mounted_in(folder, Setup::default()) {
        let set = |name| rustix::fs::setxattr(mounted.at(""), name, b"x", rustix::fs::XattrFlags::empty());
        assert_eq!(set("user.test"), Ok(()));
        assert_eq!(set("system.nfs4_acl"), Err(rustix::io::Errno::OPNOTSUPP));
        let get = rustix::fs::getxattr(mounted.at(""), "system.nfs4_acl", &mut [0_u8; 9][..]);
        assert_eq!(get, Err(rustix::io::Errno::OPNOTSUPP));
        let folder = mounted.finish();
        drop(below);
        drop(folder);
        assert_eq!(*taken.lock().unwrap(), ["user.test"]);
    }
}

/// `cp` and `git` make files that nobody may write to, and write to them. The cache of another user
/// than root opened such a file by its permissions, and was refused. The test runs itself again as
/// such a user, who may open the device and mount.
#[test]
fn a_new_file_can_be_written_to_whatever_its_permissions_are() {
    const NAME: &str = "refused::a_new_file_can_be_written_to_whatever_its_permissions_are";
    if rustix::process::geteuid().is_root() {
        let here = tempfile::tempdir().unwrap();
        fs::set_permissions(here.path(), Permissions::from_mode(0o777)).unwrap();
        let script = "mknod fuse c 10 229 && chmod 666 fuse && mount --bind fuse /dev/fuse && exec setpriv \
             --reuid 65534 --regid 65534 --clear-groups --inh-caps +sys_admin --ambient-caps +sys_admin \
             \"$0\" --exact \"$1\"";
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", script]).arg(std::env::current_exe().unwrap()).arg(NAME);
        return match unshare.current_dir(here.path()).env("TMPDIR", here.path()).output() {
            Ok(output) if String::from_utf8_lossy(&output.stdout).contains("running 1 test") => {
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            }
            Ok(output) => skipped(String::from_utf8_lossy(&output.stderr).trim()),
            Err(reason) => skipped(&format!("unshare: {reason}")),
        };
    }
    let Some(mounted) = mounted() else { return };
    for mode in [0o444, 0o400, 0o200, 0] {
        let path = mounted.at(&format!("{mode:o}"));
        let file = File::options().write(true).create_new(true).mode(mode).open(&path).unwrap();
        // The second one is longer than every file system takes.
        for offset in [0, 300 << 20] {
            file.write_all_at(b"content", offset).unwrap();
        }
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
        let below = mounted.below().join(format!("{mode:o}"));
        assert_eq!(fs::metadata(below).unwrap().mode() & 0o7777, mode);
    }
    let directory = mounted.finish();
    let content = File::open(directory.path().join("444")).unwrap();
    let mut buffer = [0; 7];
    content.read_exact_at(&mut buffer, 300 << 20).unwrap();
    assert_eq!(&buffer, b"content");
}
