//! The interface around reads and writes: errors, guards, cursors, and ranges of pages.

use crate::common::{Disk, PAGE, assert_same, memory, page, pages, read};
use mglru_cache::backend::{Fault, FaultEffect, FaultOperation, FaultTrigger};
use mglru_cache::{
    Advice, CachedFile, Counter, Error, Event, FileCursor, FileSource, OpenMode, OwnedPageGuard,
};
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

#[test]
fn a_file_says_whether_it_goes_past_the_cache_of_the_system() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    std::fs::write(&path, page(1)).unwrap();
    let mut direct = std::fs::OpenOptions::new();
    let is_permitted = direct.read(true).custom_flags(libc::O_DIRECT).open(&path).is_ok();
    let cache = mglru_cache::PageCache::builder(2 << 20).build().unwrap();
    let file = cache.open(&path, OpenMode::ReadOnly).unwrap();
    assert_eq!(file.is_direct(), is_permitted);
}

/// Reads every page of the file, which evicts what the cache has no room for.
fn scan(file: &CachedFile) {
    for number in 0..file.len() / PAGE as u64 {
        assert_same(&read(file, number as usize * PAGE, PAGE), &page(number), "scanned page");
    }
}

fn resident(file: &CachedFile, first: usize, count: usize) -> usize {
    let mut found = vec![false; count];
    file.resident((first * PAGE) as u64, &mut found);
    found.into_iter().filter(|&resident| resident).count()
}

#[test]
fn errors_become_kinds_of_the_standard_library_and_can_be_recovered() {
    let (disk, _files) = memory(1);
    disk.set("f", &page(0));
    let cache = disk.builder(1 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    let kind = |error: Error| io::Error::from(error).kind();
    assert_eq!(kind(file.write_at(&[0], 0).unwrap_err()), io::ErrorKind::PermissionDenied);
    assert_eq!(kind(file.map().unwrap().load(5000, &mut [0]).unwrap_err()), io::ErrorKind::UnexpectedEof);
    assert_eq!(kind(cache.open("none", OpenMode::ReadOnly).unwrap_err()), io::ErrorKind::NotFound);
    assert_eq!(kind(cache.tenant("none").unwrap_err()), io::ErrorKind::NotFound);
    let error = file.read_exact_at(&mut [0; 10], 4090).unwrap_err();
    assert!(matches!(error, Error::Short { offset: 4090, wanted: 10, read: 6, .. }), "{error:?}");
    assert_eq!(kind(error), io::ErrorKind::UnexpectedEof);
    let writable = cache.open("f", OpenMode::ReadWrite).unwrap();
    cache.close().unwrap();
    let error = io::Error::from(writable.write_at(&[1], 0).unwrap_err());
    assert_eq!(error.kind(), io::ErrorKind::NotConnected);
    assert!(matches!(error.downcast::<Error>().unwrap(), Error::Closed));
}

#[test]
fn a_writer_that_meets_a_guard_of_its_own_thread_gets_an_error() {
    for disk in Disk::each(2) {
        disk.set("f", &pages(0..4));
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let map = file.map().unwrap();
        let guards = [map.page(1).unwrap(), map.page(2).unwrap(), map.page(2).unwrap()];
        let offset = 2 * PAGE as u64;
        for _ in 0..2 {
            for error in [
                file.write_at(&page(9), offset).unwrap_err(),
                map.store(offset, &[9]).unwrap_err(),
                file.truncate(offset + 7).unwrap_err(),
            ] {
                assert!(matches!(&error, Error::OwnGuard { page: 2, .. }), "{error:?}");
                assert_eq!(error.kind(), io::ErrorKind::Deadlock);
            }
        }
        file.write_at(&page(7), 0).unwrap();
        assert_same(&guards[1], &page(2), "lent page");
        // A thread without a guard waits until both are dropped.
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| file.write_at(&page(8), offset).unwrap());
            let [first, second, third] = guards;
            drop(second);
            assert!(matches!(file.write_at(&[1], offset), Err(Error::OwnGuard { .. })));
            drop((first, third));
            writer.join().unwrap();
        });
        file.write_at(&page(5), PAGE as u64).unwrap();
        let expected = [page(7), page(5), page(8), page(3)].concat();
        assert_same(&read(&file, 0, 4 * PAGE), &expected, "written pages");
        file.sync_data().unwrap();
        assert_same(&disk.contents("f"), &expected, "synced file");
        cache.validate().unwrap();
    }
}

#[test]
fn owned_guards_outlive_everything_and_move_between_threads() {
    for disk in Disk::each(3) {
        disk.set("f", &pages(0..600));
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let map = file.map().unwrap();
        let guards: Vec<OwnedPageGuard> =
            (0..10).map(|number| map.page_owned(number * 60).unwrap()).collect();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| file.write_at(&page(7000), 0).unwrap());
            let (first, rest) = guards.split_at(1);
            let first = first.to_vec();
            scope.spawn(|| {
                (1..600).for_each(|number| {
                    assert_same(
                        &read(&file, number * PAGE, PAGE),
                        &page(number as u64),
                        "page beside lent ones",
                    );
                })
            });
            for (guard, number) in rest.iter().zip(1..) {
                assert_same(guard, &page(number * 60), "lent page");
            }
            assert_same(&first[0], &page(0), "lent page before the write");
            assert!(!writer.is_finished());
            drop(guards.into_iter().take(1).collect::<Vec<_>>());
            // The clone lends it, too.
            assert!(!writer.is_finished());
            drop(first);
            writer.join().unwrap();
        });
        let last = map.page_owned(599).unwrap();
        assert_same(&map.page(0).unwrap(), &page(7000), "written page");
        drop((map, file));
        cache.close().unwrap();
        let copy = std::thread::spawn(move || last.to_vec()).join().unwrap();
        assert_same(&copy, &page(599), "page of a closed cache");
    }
}

/// A generic user of the standard library's trait.
fn exactly(file: &impl FileExt, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    file.read_exact_at(&mut buffer, offset).map(|()| buffer)
}

#[test]
fn cursors_vectors_and_generic_code_read_what_was_written() {
    for disk in Disk::each(4) {
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::Create).unwrap();
        let (one, two) = (page(1), pages(2..4));
        let written = file.write_vectored_at(&[IoSlice::new(&one), IoSlice::new(&two)], 10).unwrap();
        assert_eq!((written, file.len()), (3 * PAGE, 10 + 3 * PAGE as u64));
        let expected = [&[0; 10][..], &one, &two].concat();

        let mut parts = ([0; 5000], [0; 100], vec![0; 10_000]);
        let mut buffers = [&mut parts.0[..], &mut parts.1, &mut parts.2].map(IoSliceMut::new);
        assert_eq!(file.read_vectored_at(&mut buffers, 0).unwrap(), expected.len());
        let got = [&parts.0[..], &parts.1, &parts.2].concat();
        assert_same(&got[..expected.len()], &expected, "vectored");

        let mut cursor = file.cursor();
        assert_eq!(cursor.seek(SeekFrom::End(-100)).unwrap(), expected.len() as u64 - 100);
        let mut rest = Vec::new();
        cursor.read_to_end(&mut rest).unwrap();
        assert_same(&rest, &expected[expected.len() - 100..], "last bytes");
        let error = cursor.seek(SeekFrom::Current(-1 << 40)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().ends_with("before byte 0"), "{error}");
        assert_eq!(cursor.position(), expected.len() as u64);
        cursor.set_position(u64::MAX);
        let error = cursor.seek(SeekFrom::Current(1)).unwrap_err();
        assert!(error.to_string().ends_with("beyond the largest position"), "{error}");
        cursor.set_position(expected.len() as u64);
        cursor.write_all(b"\na line\n").unwrap();
        cursor.set_position(expected.len() as u64 + 1);
        let lines: Vec<_> =
            BufReader::new(FileCursor::new(cursor.into_inner().try_clone().unwrap())).split(b'\n').collect();
        assert_eq!(lines.last().unwrap().as_ref().unwrap(), b"a line");

        assert_same(&exactly(&file, 3, 9000).unwrap(), &expected[3..9003], "generic");
        assert_eq!(exactly(&file, file.len() - 1, 2).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        FileExt::write_all_at(&file, b"x", 0).unwrap();
        assert_eq!(exactly(&file, 0, 1).unwrap(), b"x");
        cache.validate().unwrap();
    }
}

#[test]
fn ranges_are_counted_and_evicted() {
    for disk in Disk::each(5) {
        disk.set("f", &pages(0..100));
        let cache = disk.builder(4 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        scan(&file);
        let all = 0..100 * PAGE as u64;
        assert_eq!(resident(&file, 0, 120), 100);
        file.write_at(&page(500), 10 * PAGE as u64).unwrap();
        file.write_at(&page(501), 11 * PAGE as u64).unwrap();
        let counts = file.pages_in(all.clone());
        assert_eq!((counts.cached, counts.dirty + counts.writeback), (100, 2), "{counts:?}");
        assert_eq!(file.pages_in(PAGE as u64 - 1..PAGE as u64 + 1).cached, 2);

        // Only whole pages are evicted, dirty ones are written first, and a lent page stays.
        let map = file.map().unwrap();
        let guard = map.page(12).unwrap();
        assert_eq!(file.evict(PAGE as u64 + 1..20 * PAGE as u64 + 5).unwrap(), 1);
        assert_eq!((resident(&file, 0, 2), resident(&file, 2, 18), resident(&file, 20, 80)), (2, 1, 80));
        assert_same(&guard, &page(12), "lent page");
        let mut expected = pages(0..100);
        expected[10 * PAGE..12 * PAGE].copy_from_slice(&[page(500), page(501)].concat());
        assert_same(&disk.contents("f"), &expected, "written by evict");
        drop(guard);
        drop(map);
        assert_eq!(file.evict(0..u64::MAX).unwrap(), 0);
        assert_eq!(file.pages_in(0..u64::MAX).cached, 0);
        assert_same(&read(&file, 0, 100 * PAGE), &expected, "read again");
        assert_eq!(file.evict(u64::MAX - 1..u64::MAX).unwrap(), 0);
        cache.validate().unwrap();
    }
}

#[test]
fn locked_pages_stay_in_memory_until_the_last_lock_is_dropped() {
    for disk in Disk::each(6) {
        disk.set("f", &pages(0..2000));
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let bytes = |pages: std::ops::Range<u64>| pages.start * PAGE as u64..pages.end * PAGE as u64;
        let locked = file.lock(bytes(100..130)).unwrap();
        let overlapping = file.lock(bytes(120..140)).unwrap();
        assert_eq!(overlapping.range(), bytes(120..140));
        for _ in 0..3 {
            scan(&file);
            assert_eq!(resident(&file, 100, 40), 40);
        }
        assert_eq!(file.evict(bytes(0..2000)).unwrap(), 40);
        // Locked pages can be written, and reach the file.
        file.write_at(&page(9000), bytes(125..126).start).unwrap();
        file.sync_data().unwrap();
        assert_same(&disk.contents("f")[125 * PAGE..126 * PAGE], &page(9000), "written while locked");
        file.write_at(&page(125), bytes(125..126).start).unwrap();

        // More than there is, so reclaim takes all that it can.
        let reclaim = || cache.control().write("memory.reclaim", "2M").unwrap_err();
        reclaim();
        assert_eq!(resident(&file, 100, 40), 40);
        drop(locked);
        reclaim();
        assert_eq!((resident(&file, 100, 20), resident(&file, 120, 20)), (0, 20));
        scan(&file);
        drop(overlapping);
        assert_eq!(file.evict(bytes(0..2000)).unwrap(), 0);
        cache.validate().unwrap();
    }
}

#[test]
fn more_than_fits_cannot_be_locked_and_stays_unlocked() {
    let (disk, _files) = memory(7);
    disk.set("f", &pages(0..400));
    let cache = disk.builder(4 << 20).tenant("t", 100 * PAGE as u64).build().unwrap();
    let file = cache.tenant("t").unwrap().open("f", OpenMode::ReadWrite).unwrap();
    let error = file.lock(0..u64::MAX).unwrap_err();
    assert!(matches!(&error, Error::OutOfMemory(report) if report.tenant == "t"), "{error:?}");
    scan(&file);
    scan(&file);
    assert_eq!(file.evict(0..u64::MAX).unwrap(), 0);
    // A range that is cut off is dropped, and a page that comes back is not locked.
    let locked = file.lock(0..50 * PAGE as u64).unwrap();
    assert_eq!(locked.file().path(), Path::new("f"));
    file.truncate(10 * PAGE as u64).unwrap();
    file.truncate(400 * PAGE as u64).unwrap();
    assert_eq!(file.pages_in(0..u64::MAX).cached, 10);
    assert_same(&read(&file, 20 * PAGE, PAGE), &[0; PAGE], "page that came back");
    assert_eq!(file.evict(0..u64::MAX).unwrap(), 10);
    assert_same(&read(&file, 0, 10 * PAGE), &pages(0..10), "locked pages");
    drop(locked);
    assert_eq!(file.evict(0..u64::MAX).unwrap(), 0);
    let counters = cache.tenant("t").unwrap().stats().counters;
    assert_eq!(counters[Counter::EventOom], counters.by_name("oom").unwrap());
    assert!(counters.get(Counter::EventMax) > 0, "{counters:?}");
    cache.validate().unwrap();
}

/// An empty range inside of a page has no page, also if it ends before it begins.
#[test]
fn an_empty_range_has_no_pages() {
    for disk in Disk::each(8) {
        disk.set("f", &pages(0..20));
        let cache = disk.builder(4 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadOnly).unwrap();
        let page = PAGE as u64;
        for (start, end) in [(5, 5), (9, 5), (2 * page + 1, 2 * page + 1), (7 * page, 5), (20 * page - 1, 1)]
        {
            let range = std::ops::Range { start, end };
            file.advise(Advice::WillNeed, range.clone()).unwrap();
            let locked = file.lock(range.clone()).unwrap();
            assert!(locked.range().is_empty(), "{:?}", locked.range());
            assert_eq!(file.pages_in(0..u64::MAX).cached, 0, "{range:?}");
        }
        scan(&file);
        assert_eq!((file.pages_in(5..5).cached, file.pages_in(5..6).cached), (0, 1));
        file.advise(Advice::DontNeed, 5..5).unwrap();
        assert_eq!(file.pages_in(0..u64::MAX).cached, 20);
        cache.validate().unwrap();
    }
}

/// A sparse file may have far more pages than there is memory, and be nearly as long as its file
/// system allows. Neither makes a call slow, or fail.
#[test]
fn ranges_of_the_longest_files_end() {
    const LEN: u64 = 1 << 43;
    let disk = Disk::threads();
    disk.set("f", &pages(0..10));
    let cache = disk.builder(1 << 20).build().unwrap();
    let cached = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
    // Some file systems end far before 16 TiB.
    cached.punch_hole(100..(1 << 44) - 1).unwrap();
    assert_same(&read(&cached, 0, 100), &pages(0..10)[..100], "before the hole");
    assert_same(&read(&cached, 100, 10 * PAGE - 100), &vec![0; 10 * PAGE - 100], "the hole");
    if cached.truncate(LEN).is_err() {
        return;
    }
    let error = cached.lock(0..u64::MAX).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    assert_eq!(cached.evict(0..u64::MAX).unwrap(), 0, "a page is still locked");
    cache.validate().unwrap();
}

#[test]
fn a_source_of_a_file_without_a_length_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
    let paths =
        [(&*fifo, "a FIFO"), (Path::new("/dev/null"), "character device"), (directory.path(), "directory")];
    for (path, what) in paths.into_iter().chain([(Path::new("/proc/self/maps"), "procfs")]) {
        let error = FileSource::open(path).unwrap_err();
        assert!(error.to_string().contains(what), "{}: {error}", path.display());
    }
}

/// The thread holds the guard itself: `write_at` would wait for ever.
#[test]
fn a_write_that_does_not_wait_stops_at_a_lent_page() {
    for disk in Disk::each(21) {
        disk.set("f", &pages(0..6));
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let map = file.map().unwrap();
        let (lent, borrowed) = (map.page_owned(2).unwrap(), map.page(4).unwrap());
        assert_eq!(file.try_write_at(&pages(10..16), 0).unwrap(), 2 * PAGE);
        for (number, bytes) in [(2u64, PAGE), (2, 1), (4, PAGE)] {
            let error = file.try_write_at(&vec![1; bytes], number * PAGE as u64).unwrap_err();
            assert!(matches!(error, Error::Lent { page, .. } if u64::from(page) == number), "{error}");
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
        assert_same(&lent, &page(2), "lent page");
        assert_eq!(file.try_write_at(&page(13), 3 * PAGE as u64).unwrap(), PAGE);
        drop((lent, borrowed));
        assert_eq!(file.try_write_at(&pages(20..26), 0).unwrap(), 6 * PAGE);
        file.sync_data().unwrap();
        assert_same(&disk.contents("f"), &pages(20..26), "file");
        cache.validate().unwrap();
    }
}

#[test]
fn clones_are_the_same_cache_and_the_last_one_writes_it() {
    let (disk, files) = memory(22);
    let cache = disk.builder(1 << 20).build().unwrap();
    let clone = cache.clone();
    let file = cache.open("f", OpenMode::Create).unwrap();
    file.write_at(&page(1), 0).unwrap();
    drop(cache);
    assert_same(&read(&file, 0, PAGE), &page(1), "page");
    clone.open("g", OpenMode::Create).unwrap().write_at(&page(2), 0).unwrap();
    drop(clone);
    assert_same(&disk.contents("f"), &page(1), "f");
    assert_same(&files.contents("g").unwrap(), &page(2), "g");
    let cache = disk.builder(1 << 20).build().unwrap();
    let clone = cache.clone();
    cache.close().unwrap();
    assert!(matches!(clone.open("f", OpenMode::ReadWrite), Err(Error::Closed)));
    assert!(matches!(clone.open("new", OpenMode::Create), Err(Error::Closed)));
    assert_eq!(files.contents("new"), None, "it was not created");
}

#[test]
fn a_sync_of_all_files_reaches_stable_storage_and_a_write_of_all_does_not() {
    let (disk, files) = memory(23);
    let cache = disk.builder(1 << 20).build().unwrap();
    let open = ["a", "b"].map(|name| cache.open(name, OpenMode::Create).unwrap());
    open.iter().for_each(|file| assert_eq!(file.write_at(&page(1), 0).unwrap(), PAGE));
    cache.sync().unwrap();
    assert_eq!([files.counts("a").syncs, files.counts("b").syncs], [0, 0]);
    assert_same(&disk.contents("a"), &page(1), "a");
    cache.sync_all().unwrap();
    assert_eq!([files.counts("a").syncs, files.counts("b").syncs], [1, 1]);
    let error = FaultEffect::Error(libc::EIO);
    files.inject(Fault::new(FaultOperation::Sync, FaultTrigger::Nth(1), error).on("a"));
    open.iter().for_each(|file| assert_eq!(file.write_at(&page(2), 0).unwrap(), PAGE));
    let failed = cache.sync_all().unwrap_err();
    assert!(matches!(&failed, Error::Io { doing: "sync", path, .. } if path.ends_with("a")), "{failed}");
    // The other file is synced nevertheless, and the handle reports it, too.
    assert_eq!(files.counts("b").syncs, 2);
    assert!(open[0].sync_data().is_err());
    open[0].sync_data().unwrap();
    cache.sync_all().unwrap();
    assert_same(&disk.contents("a"), &page(2), "a");
}

/// The queue keeps what it has room for, without a reader, and counts the rest.
#[test]
fn events_are_kept_dropped_and_counted_without_a_wait() {
    let (disk, _files) = memory(24);
    disk.set("f", &pages(0..100));
    let seen = Arc::new(AtomicU64::new(0));
    let counted = seen.clone();
    let count = move |_| _ = counted.fetch_add(1, Relaxed);
    let cache = disk.builder(1 << 20).events(10).observer(count).build().unwrap();
    let events = cache.take_events().unwrap();
    assert!(cache.take_events().is_none());
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    scan(&file);
    let all = seen.load(Relaxed);
    assert!(all >= 100);
    assert_eq!([events.dropped(), cache.stats().events_dropped], [all - 10; 2]);
    let kept: Vec<_> = std::iter::from_fn(|| events.try_next()).collect();
    assert!(matches!(kept[0], Event::Inserted { page: (_, 0), .. }) && kept.len() == 10, "{kept:?}");
    file.evict(0..u64::MAX).unwrap();
    read(&file, 0, PAGE);
    assert!(matches!(events.wait(Duration::from_secs(60)), Some(Event::Inserted { .. })));
    drop((file, cache));
    while events.try_next().is_some() {}
    // The queue ends with the cache.
    assert_eq!(events.wait(Duration::MAX), None);
}

#[cfg(feature = "serde")]
#[test]
fn reports_events_and_limits_are_serialized() {
    use mglru_cache::Limits;
    let (disk, _files) = memory(25);
    disk.set("f", &pages(0..100));
    let cache = disk.builder(1 << 20).events(1000).tenant("t", 16 * PAGE as u64).build().unwrap();
    let events = cache.take_events().unwrap();
    let file = cache.tenant("t").unwrap().open("f", OpenMode::ReadOnly).unwrap();
    read(&file, 0, PAGE);
    fn json(value: &impl serde::Serialize) -> serde_json::Value {
        serde_json::to_value(value).unwrap()
    }
    assert_eq!(json(&file.pages_in(0..PAGE as u64))["cached"], 1);
    let event = json(&events.try_next().unwrap());
    assert_eq!(event["Inserted"]["page"][1], 0, "{event}");
    let Err(Error::OutOfMemory(report)) = file.lock(0..100 * PAGE as u64) else { panic!("too much") };
    let report = json(&*report);
    assert!(report["tenant"] == "t" && report["max_pages"] == 16 && report["generations"].is_array());
    let limits: Limits = serde_json::from_str(r#"{"low_bytes": 4096, "max_bytes": 8192}"#).unwrap();
    assert_eq!(limits, Limits::max(8192).with_low(4096));
    assert_eq!(serde_json::from_value::<Limits>(json(&limits)).unwrap(), limits);
    let stats = json(&cache.tenant("t").unwrap().stats());
    assert!(stats["counters"]["pgyoung"] == 0 && stats["mapped_hits"] == 0, "{stats}");
}
