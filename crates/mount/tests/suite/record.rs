//! Recording: the trace has what programs asked for; a full disk or a full budget stops it alone.

use crate::common::{MEMORY, Setup, mounted_in, mounted_with, skipped};
use crate::full::small;
use mglru_mount::RecordOptions;
use mglru_workload::trace::{OpenOptions, PageAccess, Record, Trim, open};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_trace_has_every_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.zst");
    let record = Some(RecordOptions { path: path.clone(), failed: Box::new(|error| panic!("{error}")) });
    let Some(mounted) = mounted_with(Setup { record, ..Setup::default() }) else { return };
    fs::create_dir(mounted.at("a directory")).unwrap();
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(mounted.at("a directory/f"))
        .unwrap();
    file.write_all_at(&[1; 8192], 4096).unwrap();
    file.sync_data().unwrap();
    // Another name of the same file.
    fs::hard_link(mounted.at("a directory/f"), mounted.at("g")).unwrap();
    let mut buffer = [0; 100];
    File::open(mounted.at("g")).unwrap().read_exact_at(&mut buffer, 5000).unwrap();
    fs::write(mounted.at("h"), "x").unwrap();
    // A read at the end of the file returns 0 bytes and touches no page.
    assert_eq!(file.read_at(&mut buffer, 1 << 20).unwrap(), 0);
    // Pages that are cut off, removed, or removed when the last program closes the file.
    file.set_len(5000).unwrap();
    for name in ["h", "g", "a directory/f"] {
        fs::remove_file(mounted.at(name)).unwrap();
    }
    drop(file);
    let (_directory, summary) = mounted.finish_with_summary();
    assert_eq!((summary.requests.reads, summary.requests.read_bytes), (1, 100));
    assert_eq!((summary.requests.writes, summary.requests.written_bytes), (2, 8193));
    assert_eq!((summary.requests.syncs, summary.recorded), (1, Some((path.clone(), Ok(())))));
    let records: Vec<_> = open(&path, OpenOptions::default()).unwrap().collect::<Result<_, _>>().unwrap();
    let access = |page, write, inside| Record::Access(PageAccess { write, inside, ..PageAccess::read(page) });
    let expected = [
        access(1, true, false),
        access(2, true, false),
        Record::Sync { file: 0 },
        access(1, false, true),
        access(1 << 32, true, false),
        Record::Trim(Trim { page: 2, pages: 1 }),
        Record::Trim(Trim { page: 1 << 32, pages: 1 }),
        Record::Trim(Trim { page: 0, pages: 2 }),
    ];
    assert_eq!(records, expected);
}

/// Once the bytes were zeroed before the lack of room was found.
#[test]
fn a_range_without_room_is_neither_zeroed_nor_recorded() {
    let (folder, traces) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(_small) = small(folder.path(), c"size=1m") else { return };
    let path = traces.path().join("trace.zst");
    let record = Some(RecordOptions { path: path.clone(), failed: Box::new(|error| panic!("{error}")) });
    let Some(mounted) = mounted_in(folder, Setup { record, ..Setup::default() }) else { return };
    let file = File::create(mounted.at("f")).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    let zeroed = fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 4 << 20);
    assert_eq!(zeroed, Err(rustix::io::Errno::NOSPC));
    assert!(fs::read(mounted.at("f")).unwrap() == [1; 4096]);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 8192).unwrap();
    assert!(fs::read(mounted.at("f")).unwrap() == [0; 8192]);
    drop(file);
    mounted.finish();
    let records = open(&path, OpenOptions::default()).unwrap().map(Result::unwrap);
    let trims: Vec<_> = records.filter(|record| matches!(record, Record::Trim(_))).collect();
    assert_eq!(trims, [Record::Trim(Trim { page: 0, pages: 2 })]);
}

#[test]
fn a_full_disk_stops_the_recording_and_not_the_mount() {
    if !Path::new("/dev/full").exists() {
        return skipped("there is no /dev/full");
    }
    // The header fits into the buffer of a compressor, so that the first requests fail.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("full.gz");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let stopped = Arc::new(AtomicBool::new(false));
    let rings_before = stopped.clone();
    let failed = Box::new(move |_: &str| rings_before.store(true, Ordering::Release));
    let record = Some(RecordOptions { path, failed });
    let Some(mounted) = mounted_with(Setup { record, ..Setup::default() }) else { return };
    for number in 0..3 {
        fs::write(mounted.at("f"), vec![number; 100_000]).unwrap();
    }
    assert_eq!(fs::read(mounted.at("f")).unwrap(), vec![2; 100_000]);
    let (_directory, summary) = mounted.finish_with_summary();
    assert!(stopped.load(Ordering::Acquire));
    assert!(summary.recorded.is_some_and(|(_, ended)| ended.is_err()));
}

/// Unlike /dev/full, the disk takes the beginning of the trace.
#[test]
fn a_disk_that_fills_stops_the_recording_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_small) = small(folder.path(), c"size=64k") else { return };
    let path = folder.path().join("trace.log");
    let (say, said) = std::sync::mpsc::channel();
    let failed = Box::new(move |error: &str| say.send(error.to_owned()).unwrap());
    let record = Some(RecordOptions { path: path.clone(), failed });
    let Some(mounted) = mounted_with(Setup { record, ..Setup::default() }) else { return };
    fs::write(mounted.at("f"), [7; 4096]).unwrap();
    let file = File::open(mounted.at("f")).unwrap();
    let mut byte = [0];
    for at in 0..10_000 {
        file.read_exact_at(&mut byte, at % 4096).unwrap();
    }
    let message = said.recv().unwrap();
    assert!(message.contains("No space left") && message.contains("trace.log"), "{message}");
    file.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, [7], "the mount goes on");
    drop(file);
    let (_directory, summary) = mounted.finish_with_summary();
    assert!(summary.recorded.is_some_and(|(_, ended)| ended.is_err()) && summary.requests.reads >= 10_001);
}

/// Names of recorded files are a part of the budget, and never grow beyond it.
#[test]
fn a_budget_without_room_for_more_names_stops_the_recording_with_a_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let (say, said) = std::sync::mpsc::channel();
    let failed = Box::new(move |error: &str| say.send(error.to_owned()).unwrap());
    let record = Some(RecordOptions { path: path.clone(), failed });
    let Some(mounted) = mounted_with(Setup { record, ..Setup::default() }) else { return };
    let error = (0..MEMORY / 200).find_map(|number| {
        let name = mounted.at("f");
        fs::write(&name, number.to_string()).unwrap();
        // The trace keeps the name of a file that is gone.
        fs::remove_file(&name).unwrap();
        said.try_recv().ok()
    });
    let error =
        error.or_else(|| said.recv_timeout(std::time::Duration::from_secs(10)).ok()).expect("it is full");
    assert!(error.contains("no memory for the names of more files"), "{error}");
    fs::write(mounted.at("g"), "written").unwrap();
    assert_eq!(fs::read(mounted.at("g")).unwrap(), b"written", "the mount goes on");
    mounted.finish();
}

#[test]
fn a_recording_inside_of_the_mount_is_refused() {
    let (directory, point) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let record = Some(RecordOptions { path: point.path().join("trace"), failed: Box::new(|_| {}) });
    let setup = Setup { record, ..Setup::default() };
    let reason = crate::refused::refused_with(directory.path(), point.path(), setup);
    assert!(reason.contains("inside of the mount"), "{reason}");
    assert_eq!(fs::read_dir(point.path()).unwrap().count(), 0, "nothing was created");
}
