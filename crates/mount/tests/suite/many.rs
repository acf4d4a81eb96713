//! More files than descriptors.

use crate::common::{MEMORY, Mounted, Setup, mount_again, mounted_in, mounted_with, wait_for_at_most};
use mglru_mount::{Member, RecordOptions, Who};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};

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
    wait_for_at_most(before + MEMORY / 8 + (64 << 10), || metadata_bytes(&mounted));
    for name in &names {
        assert_eq!(fs::read(mounted.at(name)).unwrap(), b"");
    }
    assert_eq!(fs::read_dir(mounted.at("")).unwrap().count(), names.len());
    assert_eq!(open.metadata().unwrap().len(), 0);
}

/// Whether the kernel can forget directories: Linux 6.18 and later.
fn kernel_forgets_directories() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-', '\n']).map_while(|word| word.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 18)
}

/// As many directories as a tenth of [`files`], in ten directories. Each has ten files.
#[test]
fn directories_are_forgotten_like_files_and_never_under_a_program() {
    if !kernel_forgets_directories() {
        return eprintln!("skipped: kernels before Linux 6.18 cannot forget directories alone");
    }
    let below = tempfile::tempdir().unwrap();
    let directories: Vec<_> = (0..files().max(4000) / 10)
        .map(|number| format!("directory number {}/with a long name, {number}", number % 10))
        .collect();
    for directory in &directories {
        fs::create_dir_all(below.path().join(directory)).unwrap();
        (0..10)
            .for_each(|file| drop(File::create(below.path().join(format!("{directory}/{file}"))).unwrap()));
    }
    let Some(mounted) = mount_again(below) else { return };
    let before = metadata_bytes(&mounted);
    let mut program = std::process::Command::new("cat");
    let program = program.stdin(std::process::Stdio::piped()).current_dir(mounted.at(&directories[0]));
    let mut program = program.spawn().unwrap();
    let open = File::open(mounted.at(&directories[1])).unwrap();
    let look = || {
        for directory in &directories {
            for file in 0..10 {
                assert!(fs::metadata(mounted.at(&format!("{directory}/{file}"))).unwrap().is_file());
            }
        }
    };
    for _ in 0..2 {
        look();
        wait_for_at_most(before + MEMORY / 8 + (64 << 10), || metadata_bytes(&mounted));
    }
    let working = fs::read_link(format!("/proc/{}/cwd", program.id())).unwrap();
    assert_eq!(working, mounted.at(&directories[0]), "it was not forgotten");
    assert_eq!(rustix::fs::fstat(&open).unwrap().st_nlink, 2);
    // A directory that was forgotten is renamed, and a file below it is written.
    fs::write(mounted.at(&format!("{}/5", directories[9])), "before").unwrap();
    look();
    fs::rename(mounted.at("directory number 9"), mounted.at("renamed")).unwrap();
    let renamed = directories[9].replace("directory number 9", "renamed");
    assert_eq!(fs::read(mounted.at(&format!("{renamed}/5"))).unwrap(), b"before");
    drop(program.stdin.take());
    program.wait().unwrap();
    drop(open);
    for directory in &directories[..10] {
        if *directory != directories[9] {
            fs::remove_dir_all(mounted.at(directory)).unwrap();
            assert!(!mounted.at(directory).exists());
        }
    }
    let below = mounted.finish();
    assert_eq!(fs::read(below.path().join(format!("{renamed}/5"))).unwrap(), b"before");
}

/// Names are charged to the tenant that looks them up, and take at most an eighth of its limit.
#[test]
fn names_are_charged_to_tenants() {
    const MAX: u64 = 1 << 20;
    let below = tempfile::tempdir().unwrap();
    let names: Vec<_> = (0..2000).map(|number| format!("small/a long name, number {number}")).collect();
    fs::create_dir(below.path().join("small")).unwrap();
    names.iter().for_each(|name| drop(File::create(below.path().join(name)).unwrap()));
    let members = vec![Member { tenant: "small".to_owned(), who: Who::Below("small".to_owned()) }];
    let setup = Setup { tenants: vec![("small", MAX)], members, ..Setup::default() };
    let Some(mounted) = mounted_in(below, setup) else { return };
    let bytes = || -> u64 {
        let text = fs::read_to_string(mounted.at(".mglru/small/memory.stat")).unwrap();
        text.lines().find_map(|line| line.strip_prefix("slab ")).unwrap().parse().unwrap()
    };
    let mut most = 0;
    for name in &names {
        fs::metadata(mounted.at(name)).unwrap();
        most = most.max(bytes());
    }
    assert!(most > MAX / 16, "{most}");
    wait_for_at_most(MAX / 8 + (64 << 10), bytes);
    for name in &names {
        assert_eq!(fs::read(mounted.at(name)).unwrap(), b"");
    }
    // Its names stay charged somewhere when it is removed.
    fs::remove_dir(mounted.at(".mglru/small")).unwrap();
    for name in &names {
        fs::metadata(mounted.at(name)).unwrap();
    }
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

/// An eighth of the budget is taken by buffers of requests and of the recording. Files can be
/// opened beside them. A budget without room says so, and not that there are too many files.
#[test]
fn many_files_can_be_open_at_once_and_the_budget_ends_that() {
    let folder = tempfile::tempdir().unwrap();
    let record = Some(RecordOptions {
        path: folder.path().join("trace"),
        failed: Box::new(|error| panic!("{error}")),
    });
    let setup = Setup { memory: Some(64 << 20), record, ..Setup::default() };
    let Some(mounted) = mounted_with(setup) else { return };
    let open = |number: u32| File::create(mounted.at(&number.to_string()));
    let files: Vec<_> = (0..600).map_while(|number| open(number).ok()).collect();
    assert_eq!(files.len(), 600);
    drop((files, mounted));
    let Some(mounted) = mounted_with(Setup { memory: Some(1 << 20), threads: Some(1), ..Setup::default() })
    else {
        return;
    };
    let mut files = Vec::new();
    let error = loop {
        match File::create(mounted.at(&files.len().to_string())) {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory, "{error} after {} files", files.len());
    // It is about open files: others can be made and read.
    files.truncate(files.len() / 2);
    fs::write(mounted.at("new"), "x").unwrap();
    assert_eq!(fs::read(mounted.at("new")).unwrap(), b"x");
}
