//! Mounts that are refused, with what to do.

use crate::common::mounted;
use mglru_cache::PageCache;
use mglru_mount::{Error, Mount, Options};
use std::fs;
use std::path::Path;

/// The reason why a mount is refused as wrong usage.
fn refused(directory: &Path, point: &Path) -> String {
    let cache = PageCache::builder(4 << 20).build().unwrap();
    match Mount::new(directory, point, cache, &Options::default()) {
        Err(Error::Usage(reason)) => reason,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it is mounted"),
    }
}

#[test]
fn what_cannot_be_mounted_is_refused_with_a_reason() {
    let here = tempfile::tempdir().unwrap();
    let (directory, point) = (here.path().join("dir"), here.path().join("point"));
    fs::create_dir_all(directory.join("inside")).unwrap();
    fs::create_dir(&point).unwrap();
    fs::write(here.path().join("file"), "x").unwrap();
    assert!(refused(&here.path().join("none"), &point).contains("No such file"));
    assert!(refused(&directory, &here.path().join("none")).contains("the mount point"));
    assert!(refused(&here.path().join("file"), &point).contains("is no directory"));
    assert!(refused(&directory, &here.path().join("file")).contains("is no directory"));
    assert!(refused(&directory, &directory.join("inside")).contains("inside of"));
    assert!(refused(&directory, &directory).contains("inside of"));
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
