//! More files than descriptors.

use crate::common::{MEMORY, Mounted, Setup, mount_again, mounted_with};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

/// Descriptors that a mount may use: 32 for cached files, 25 for names, the rest for programs.
const DESCRIPTORS: u64 = 100;

/// Number of files: more than descriptors, or as many as the environment says.
fn files() -> usize {
    std::env::var("MGLRU_MOUNT_FILES")
        .map_or(300, |text| text.parse().expect("MGLRU_MOUNT_FILES is a number"))
}

fn mounted() -> Option<Mounted> {
    mounted_with(Setup { descriptors: Some(DESCRIPTORS), ..Setup::default() })
}

/// Descriptors that this process has for files in the mounted directory.
fn descriptors(mounted: &Mounted) -> usize {
    let below = fs::canonicalize(mounted.below()).unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let leads_there = |path: std::path::PathBuf| fs::read_link(path).is_ok_and(|to| to.starts_with(&below));
    open.filter(|entry| entry.as_ref().is_ok_and(|entry| leads_there(entry.path()))).count()
}

#[test]
fn more_files_than_descriptors_are_created_listed_read_and_removed() {
    let Some(mounted) = mounted() else { return };
    let files = files();
    let at = |number: usize| mounted.at(&format!("{}/f{number}", number % 3));
    (0..3).for_each(|number| fs::create_dir(mounted.at(&number.to_string())).unwrap());
    for number in 0..files {
        fs::write(at(number), format!("file {number}")).unwrap();
    }
    // The kernel still knows all of them, and asks for each by its number.
    for _ in 0..2 {
        for number in 0..files {
            assert_eq!(fs::read(at(number)).unwrap(), format!("file {number}").into_bytes());
        }
        assert!(descriptors(&mounted) as u64 <= DESCRIPTORS, "{}", descriptors(&mounted));
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    println!("{files} files, {} descriptors, {resident}", descriptors(&mounted));
    // Files below a directory with another name than before.
    fs::rename(mounted.at("1"), mounted.at("moved")).unwrap();
    for number in (1..files).step_by(3) {
        let path = mounted.at(&format!("moved/f{number}"));
        File::options().append(true).open(&path).unwrap().write_all(b"!").unwrap();
        assert_eq!(fs::read(&path).unwrap(), format!("file {number}!").into_bytes());
    }
    let listed = ["0", "moved", "2"].map(|name| fs::read_dir(mounted.at(name)).unwrap().count());
    assert_eq!(listed, [0, 1, 2].map(|rest| (files - rest).div_ceil(3)));
    for name in ["0", "moved"] {
        fs::remove_dir_all(mounted.at(name)).unwrap();
    }
    assert!(descriptors(&mounted) as u64 <= DESCRIPTORS, "{}", descriptors(&mounted));
    let directory = mounted.finish();
    for number in (2..files).step_by(3) {
        let below = directory.path().join(format!("2/f{number}"));
        assert_eq!(fs::read(below).unwrap(), format!("file {number}").into_bytes());
    }
}

/// Bytes of metadata that the mount's state has.
fn metadata_bytes(mounted: &Mounted) -> u64 {
    mglru_mount::state_of_mount(&mounted.at("")).unwrap().metadata_bytes
}

/// The mount's memory of known files is in the budget and takes at most an eighth of it: the kernel
/// forgets the others, and finds them again.
#[test]
fn names_are_part_of_the_budget_and_the_kernel_forgets_most_of_many() {
    let below = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..4000).map(|number| format!("a file with a long name, number {number}")).collect();
    names.iter().for_each(|name| drop(File::create(below.path().join(name)).unwrap()));
    let Some(mounted) = mount_again(below) else { return };
    let before = metadata_bytes(&mounted);
    let open = File::open(mounted.at(&names[0])).unwrap();
    let mut most = 0;
    for name in &names {
        assert_eq!(fs::symlink_metadata(mounted.at(name)).unwrap().len(), 0);
        most = most.max(metadata_bytes(&mounted));
    }
    assert!(most > before + MEMORY / 16, "{most} after {before}");
    // Only a thread that is never run would take so long.
    let end = Instant::now() + Duration::from_secs(60);
    while metadata_bytes(&mounted) > before + MEMORY / 8 + (64 << 10) {
        assert!(Instant::now() < end, "{} after {before}", metadata_bytes(&mounted));
        std::thread::yield_now();
    }
    for name in &names {
        assert_eq!(fs::read(mounted.at(name)).unwrap(), b"");
    }
    assert_eq!(fs::read_dir(mounted.at("")).unwrap().count(), names.len());
    assert_eq!(open.metadata().unwrap().len(), 0);
}

#[test]
fn a_file_that_lost_its_descriptor_is_found_under_its_other_names() {
    let Some(mounted) = mounted() else { return };
    let touch_others = || {
        for number in 0..300 {
            drop(File::create(mounted.at(&format!("other{number}"))).unwrap());
        }
    };
    fs::write(mounted.at("a"), "linked").unwrap();
    fs::hard_link(mounted.at("a"), mounted.at("b")).unwrap();
    fs::write(mounted.at("old"), "moved").unwrap();
    let removed =
        File::options().read(true).write(true).create_new(true).open(mounted.at("removed")).unwrap();
    removed.write_all_at(b"without a name", 0).unwrap();
    // The kernel refers to it without having opened it.
    let path = rustix::fs::OFlags::PATH;
    let reference = rustix::fs::open(mounted.at("removed"), path, rustix::fs::Mode::empty()).unwrap();
    touch_others();
    fs::rename(mounted.at("old"), mounted.at("new")).unwrap();
    fs::remove_file(mounted.at("a")).unwrap();
    fs::remove_file(mounted.at("removed")).unwrap();
    touch_others();
    assert_eq!(fs::read(mounted.at("b")).unwrap(), b"linked");
    assert_eq!(fs::read(mounted.at("new")).unwrap(), b"moved");
    // Renamed in the directory itself.
    fs::rename(mounted.below().join("new"), mounted.below().join("newer")).unwrap();
    touch_others();
    assert_eq!(fs::read(mounted.at("newer")).unwrap(), b"moved");
    let mut buffer = [0; 14];
    removed.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!((&buffer, removed.metadata().unwrap().nlink()), (b"without a name", 0));
    drop(removed);
    assert_eq!(rustix::fs::fstat(&reference).unwrap().st_nlink, 0);
}
