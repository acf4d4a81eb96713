//! Mounts that are refused, with what to do.

use crate::common::{Setup, mounted, try_mount};
use mglru_mount::Error;
use std::fs;
use std::path::Path;

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
