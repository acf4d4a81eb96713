//! Written pages reach the file, or every handle reports that they did not: sync reports write-back
//! errors once to every handle that was open, and the pages stay in memory until they can be
//! written.

use crate::common::{Disk, PAGE, assert_same, counter, memory, number, page, pages, read};
use mglru_cache::backend::{Fault, FaultEffect, FaultOperation, FaultTrigger};
use mglru_cache::{CachedFile, Error, OpenMode, PageCache};

fn fail(operation: FaultOperation, error: i32) -> Fault {
    Fault::new(operation, FaultTrigger::Always, FaultEffect::Error(error)).on("f")
}

fn is_write_back<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::WriteBack { .. }))
}

#[test]
fn a_failed_write_back_reaches_every_open_handle_once_and_keeps_the_pages() {
    let (disk, files) = memory(1);
    disk.set("f", &pages(0..4));
    let cache = disk.builder(4 << 20).build().unwrap();
    let open = || cache.open("f", OpenMode::ReadWrite).unwrap();
    let (first, second) = (open(), open());
    let clone = first.try_clone().unwrap();
    let reader = cache.open("f", OpenMode::ReadOnly).unwrap();
    first.write_at(&page(9), PAGE as u64).unwrap();
    files.inject(fail(FaultOperation::Write, libc::ENOSPC));
    assert_eq!(number(first.sync_data()), libc::ENOSPC);
    files.clear_faults();
    assert_eq!(counter(&cache, "", "file_dirty"), 1, "it is still dirty");
    assert_same(&read(&second, PAGE, PAGE), &page(9), "and in memory");
    assert_same(&disk.contents("f"), &pages(0..4), "nothing was written");
    for handle in [&second, &clone, &reader] {
        // The first sync writes the pages now and reports the earlier error.
        assert!(is_write_back(handle.sync_all()));
        handle.sync_all().unwrap();
    }
    first.sync_all().unwrap();
    open().sync_all().unwrap();
    assert_same(&disk.contents("f")[PAGE..2 * PAGE], &page(9), "written");
    cache.validate().unwrap();
}

/// The error of such a close said that the pages stay in memory and are written again. One that
/// wrote all at its second try failed, too.
#[test]
fn a_close_that_cannot_write_says_what_is_lost() {
    for (trigger, is_lost) in [(FaultTrigger::Always, true), (FaultTrigger::Nth(1), false)] {
        let (disk, files) = memory(1);
        disk.set("f", &[]);
        let cache = disk.builder(4 << 20).build().unwrap();
        let file = cache.open("f", OpenMode::ReadWrite).unwrap();
        file.write_at(b"lost?", 0).unwrap();
        let full = FaultEffect::Error(libc::ENOSPC);
        files.inject(Fault::new(FaultOperation::Write, trigger, full).on("f"));
        let clone = cache.clone();
        match cache.close() {
            Err(error @ Error::Lost { .. }) if is_lost => {
                let words = error.to_string();
                assert!(
                    words.starts_with("earlier writes to f are lost: ") && !words.contains("stay in memory")
                );
                assert_eq!(error.io_error().unwrap().raw_os_error(), Some(libc::ENOSPC));
                assert!(matches!(clone.close(), Err(Error::Lost { .. })), "still");
            }
            result => assert!(!is_lost && result.is_ok(), "{result:?}"),
        }
        assert_eq!(disk.contents("f"), if is_lost { &b""[..] } else { b"lost?" });
    }
}

#[test]
fn an_unreported_error_goes_to_the_next_handle_opened() {
    let (disk, files) = memory(2);
    disk.set("f", &[]);
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(b"lost?", 0).unwrap();
    files.inject(fail(FaultOperation::Write, libc::EIO));
    assert!(is_write_back(cache.sync()), "the sync of everything gets this one, and it is not counted");
    drop(file);
    files.clear_faults();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    assert_eq!(read(&file, 0, 5), b"lost?");
    assert_eq!(number(file.sync_data()), libc::EIO);
    file.sync_data().unwrap();
    assert_eq!(disk.contents("f"), b"lost?");
    cache.open("f", OpenMode::ReadOnly).unwrap().sync_data().unwrap();
}

/// After `Error::WriteBack` another sync is enough; after a failed sync it is not.
#[test]
fn a_failed_sync_is_not_hidden_by_a_failed_write() {
    let (disk, files) = memory(3);
    disk.set("f", &[]);
    let cache = disk.builder(4 << 20).build().unwrap();
    let one = cache.open("f", OpenMode::ReadWrite).unwrap();
    let other = one.try_clone().unwrap();
    one.write_at(&[1; 4096], 0).unwrap();
    let once = |operation| Fault::new(operation, FaultTrigger::Nth(1), FaultEffect::Error(libc::EIO)).on("f");
    files.inject(once(FaultOperation::Sync));
    let error = one.sync_data().unwrap_err();
    assert!(matches!(error, Error::Io { doing: "sync", .. }));
    assert!(error.to_string().contains("may be lost: repeat them, then sync"), "{error}");
    one.write_at(&[2; 4096], 0).unwrap();
    files.inject(once(FaultOperation::Write));
    assert!(is_write_back(one.sync_data()));
    one.write_at(&[3; 4096], 0).unwrap();
    files.inject(once(FaultOperation::Write));
    assert!(matches!(other.sync_data(), Err(Error::Io { doing: "sync", .. })));
    other.sync_data().unwrap();
}

#[test]
fn a_failed_sync_is_reported_to_every_handle() {
    let (disk, files) = memory(3);
    disk.set("f", &[]);
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    let other = file.try_clone().unwrap();
    file.write_at(b"x", 0).unwrap();
    files.inject(
        Fault::new(FaultOperation::Sync, FaultTrigger::Nth(1), FaultEffect::Error(libc::EIO)).on("f"),
    );
    assert_eq!(number(file.sync_data()), libc::EIO);
    assert_eq!(number(other.sync_data()), libc::EIO, "although the system reported it only once");
    file.sync_data().unwrap();
    other.sync_data().unwrap();
}

#[test]
fn a_full_disk_stops_writers_with_an_error_and_lets_them_go_on_when_there_is_room() {
    let (disk, files) = memory(4);
    disk.set("f", &[]);
    disk.set("g", &pages(0..8));
    files.set_capacity_pages(16);
    let cache = disk.builder(2 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    let healthy = cache.open("g", OpenMode::ReadWrite).unwrap();
    let fill = |file: &CachedFile| {
        let mut written = 0;
        loop {
            match file.write_at(&page(written), written * PAGE as u64) {
                Ok(_) => written += 1,
                Err(error) => break (written, number::<()>(Err(error))),
            }
        }
    };
    let (written, error) = fill(&file);
    assert_eq!(error, libc::ENOSPC);
    assert!(written > 40, "a tenth of the cache may be refused, without its metadata: {written}");
    assert_eq!(number(file.write_at(&page(1), 0)), libc::ENOSPC, "at once");
    // A file without refused pages is written as before, however much.
    let rewrite = |rounds: std::ops::Range<u64>| {
        for number in rounds.clone().flat_map(|round| (0..8).map(move |page| (round, page))) {
            healthy.write_at(&page(number.0), number.1 * PAGE as u64).unwrap();
        }
        healthy.sync_data().unwrap();
        assert_same(&disk.contents("g")[7 * PAGE..], &page(rounds.end - 1), "of a healthy file");
    };
    rewrite(0..100);
    // Also beside more files that have no room.
    for path in ["h", "i"] {
        let more = cache.open(path, OpenMode::Create).unwrap();
        assert_eq!(fill(&more).1, libc::ENOSPC);
        rewrite(100..200);
        more.truncate(0).unwrap();
    }
    // All pages are still in memory and readable.
    for number in 0..written {
        assert_same(&read(&file, number as usize * PAGE, PAGE), &page(number), "page");
    }
    files.set_capacity_pages(u64::MAX);
    assert!(is_write_back(file.sync_all()), "reported now");
    file.sync_all().unwrap();
    assert_same(&disk.contents("f"), &pages(0..written), "all of them");
    healthy.write_at(&page(100), 0).unwrap();
    healthy.sync_all().unwrap();
    assert_same(&disk.contents("g")[..PAGE], &page(100), "healthy");
    drop((file, healthy));
    cache.validate().unwrap();
}

#[test]
fn short_writes_are_continued() {
    let (disk, files) = memory(5);
    disk.set("f", &[]);
    files.inject(Fault::new(FaultOperation::Write, FaultTrigger::Always, FaultEffect::Short(1000)).on("f"));
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    let contents = &pages(0..30)[..29 * PAGE + 77];
    file.write_at(contents, 0).unwrap();
    file.sync_all().unwrap();
    assert_same(&disk.contents("f"), contents, "file");
}

#[test]
fn neighbours_are_written_together() {
    let (disk, files) = memory(6);
    disk.set("f", &[]);
    let cache = disk.builder(16 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    // Not in file order.
    for number in 0..300u64 {
        let number = number * 7 % 300;
        file.write_at(&page(number), number * PAGE as u64).unwrap();
    }
    file.write_at(&page(400), 400 * PAGE as u64).unwrap();
    file.sync_data().unwrap();
    let counts = files.counts("f");
    assert_eq!((counts.writes, counts.written_bytes, counts.reads), (3, 301 * PAGE as u64, 0));
    file.sync_data().unwrap();
    assert_eq!(files.counts("f").writes, 3, "nothing is dirty");
}

/// The flusher writes in the background: at 15 % of a tenant's memory, and for files without
/// handles.
#[test]
fn the_flusher_writes_without_being_asked() {
    let (disk, files) = memory(7);
    disk.set("f", &[]);
    let cache = disk.builder(16 << 20).tenant("t", 400 * PAGE as u64).build().unwrap();
    let file = cache.tenant("t").unwrap().open("f", OpenMode::ReadWrite).unwrap();
    files.hold();
    for number in 0..64 {
        file.write_at(&page(number), number * PAGE as u64).unwrap();
    }
    // More than 60 of 400 pages.
    files.wait_held(1);
    files.release();
    file.sync_all().unwrap();

    disk.set("g", &[]);
    let other = cache.open("g", OpenMode::ReadWrite).unwrap();
    other.write_at(b"left behind", 0).unwrap();
    files.hold();
    drop(other);
    files.wait_held(1);
    // The file is not forgotten yet: opening it again finds the written data.
    let again = cache.open("g", OpenMode::ReadOnly).unwrap();
    assert_eq!(read(&again, 0, 11), b"left behind");
    files.release();
    drop(again);
    cache.sync().unwrap();
    assert_eq!(disk.contents("g"), b"left behind");
}

#[test]
fn dropping_the_cache_writes_everything() {
    for disk in Disk::each(8) {
        disk.set("f", &[]);
        let cache = disk.builder(4 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        file.write_at(&pages(0..50), 3).unwrap();
        drop(cache);
        assert_same(&disk.contents("f")[3..], &pages(0..50), "file");
        drop(file);
    }
}

/// Handles outlive the cache: cached data stays readable, other requests fail, and nothing hangs.
#[test]
fn handles_of_a_closed_cache_read_cached_pages_and_fail_otherwise() {
    for disk in Disk::each(9) {
        disk.set("f", &pages(0..100));
        let cache = disk.builder(4 << 20).build().unwrap();
        let tenant = cache.tenant("").unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let map = file.map().unwrap();
        file.advise(mglru_cache::Advice::Random, 0..1).unwrap();
        assert_same(&read(&file, 0, PAGE), &page(0), "page");
        let guard = map.page(1).unwrap();
        cache.close().unwrap();
        assert_same(&guard, &page(1), "lent page");
        assert_same(&read(&file, PAGE, PAGE), &page(1), "cached page");
        let mut buffer = [0; 10];
        assert!(matches!(file.read_at(&mut buffer, 50 * PAGE as u64), Err(Error::Closed)));
        assert!(matches!(map.load(50 * PAGE as u64, &mut buffer), Err(Error::Closed)));
        assert!(matches!(file.write_at(&buffer, 0), Err(Error::Closed)));
        assert!(matches!(map.store(0, &buffer), Err(Error::Closed)));
        assert!(matches!(tenant.open(disk.path("f"), OpenMode::ReadOnly), Err(Error::Closed)));
        file.advise(mglru_cache::Advice::WillNeed, 0..u64::MAX).unwrap();
        file.advise(mglru_cache::Advice::DontNeed, 0..u64::MAX).unwrap();
        file.sync_all().unwrap();
        drop(guard);
        drop(map);
        file.truncate(10).unwrap();
        assert_eq!(file.len(), 10);
    }
}

#[test]
fn a_reader_and_a_writer_share_a_file() {
    for disk in Disk::each(10) {
        disk.set("f", &pages(0..10));
        let cache = disk.builder(4 << 20).build().unwrap();
        let reader = cache.open(disk.path("f"), OpenMode::ReadOnly).unwrap();
        assert!(matches!(reader.write_at(b"x", 0), Err(Error::ReadOnly { .. })));
        assert!(matches!(reader.truncate(0), Err(Error::ReadOnly { .. })));
        assert!(matches!(reader.map().unwrap().store(0, b"x"), Err(Error::ReadOnly { .. })));
        assert_same(&read(&reader, 0, PAGE), &page(0), "page");
        let writer = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        writer.write_at(&page(77), 0).unwrap();
        assert_same(&read(&reader, 0, PAGE), &page(77), "what was written");
        drop(writer);
        reader.sync_all().unwrap();
        assert_same(&disk.contents("f")[..PAGE], &page(77), "on disk");
    }
}

/// The file was longer on disk than in the cache, which took that for a change by another process.
#[test]
fn a_file_has_the_length_that_a_failed_allocation_left() {
    let (disk, files) = memory(5);
    disk.set("f", &pages(0..2)[..PAGE + 100]);
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(b"unwritten", PAGE as u64 + 50).unwrap();
    files.set_capacity_pages(6);
    let full = file.allocate(0..10 * PAGE as u64, false);
    assert_eq!(number(full), libc::ENOSPC);
    let grown = 6 * PAGE;
    assert_eq!((file.len() as usize, disk.contents("f").len()), (grown, grown), "by a part of it");
    let mut expected = pages(0..2)[..PAGE + 100].to_vec();
    expected[PAGE + 50..PAGE + 59].copy_from_slice(b"unwritten");
    expected.resize(grown, 0);
    assert_same(&read(&file, 0, grown), &expected, "read");
    file.sync_data().unwrap();
    assert_same(&disk.contents("f"), &expected, "on disk");
    // A kept length stays.
    file.allocate(0..10 * PAGE as u64, true).unwrap();
    assert_eq!(file.len() as usize, grown);
    cache.validate().unwrap();
}

/// The device does not answer, and the call returns all the same.
#[test]
fn write_back_can_be_started_without_waiting_for_it() {
    let (disk, files) = memory(11);
    disk.set("f", &[]);
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(&pages(0..20), 0).unwrap();
    files.hold();
    file.start_write_back();
    files.wait_held(1);
    let sizes = || [counter(&cache, "", "file_dirty"), counter(&cache, "", "file_writeback")];
    assert!(file.has_unwritten() && sizes() == [0, 20], "{:?}", sizes());
    files.inject(fail(FaultOperation::Write, libc::ENOSPC));
    files.release();
    assert!(is_write_back(file.sync_data()), "an error is left to the next sync");
    files.clear_faults();
    file.sync_data().unwrap();
    assert_same(&disk.contents("f"), &pages(0..20), "on disk");
}

/// Write-back planned before a truncation must not restore truncated data.
#[test]
fn truncation_waits_for_write_back_under_way() {
    let (disk, files) = memory(11);
    disk.set("f", &[]);
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(&pages(0..20), 0).unwrap();
    files.hold();
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| file.sync_data());
        files.wait_held(1);
        let cutting = scope.spawn(|| file.truncate(PAGE as u64 + 5));
        files.release();
        cutting.join().unwrap().unwrap();
        syncing.join().unwrap().unwrap();
    });
    file.sync_all().unwrap();
    assert_same(&disk.contents("f"), &pages(0..20)[..PAGE + 5], "on disk");
    file.truncate(20 * PAGE as u64).unwrap();
    assert!(read(&file, PAGE + 5, 19 * PAGE - 5).iter().all(|byte| *byte == 0));
}

/// Regression test. A truncation shortened the length before the file system agreed. Write-back in
/// between wrote the shorter file and counted the rest as written. The file system refused, the
/// length was restored, and a sync succeeded: the rest was lost.
#[test]
fn a_refused_truncation_loses_nothing() {
    let (disk, files) = memory(21);
    disk.set("f", &pages(0..3));
    let cache = disk.builder(2 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    files.inject(Fault::new(
        FaultOperation::SetLength,
        FaultTrigger::Always,
        FaultEffect::Error(libc::EPERM),
    ));
    for round in 1..100 {
        let bytes = pages(3 * round..3 * round + 3);
        file.write_at(&bytes, 0).unwrap();
        files.hold();
        std::thread::scope(|scope| {
            let cutting = scope.spawn(|| number(file.truncate(PAGE as u64 + 100)));
            files.wait_held(1);
            let syncing = scope.spawn(|| file.sync_data());
            // Lets write-back come as far as it can.
            (0..1000).take_while(|_| files.held() < 2).for_each(|_| std::thread::yield_now());
            assert_eq!(file.len(), 3 * PAGE as u64, "no reader sees a length that is refused");
            files.release();
            assert_eq!(cutting.join().unwrap(), libc::EPERM);
            syncing.join().unwrap().unwrap();
        });
        assert_same(&read(&file, 0, 3 * PAGE), &bytes, "in memory");
        assert_same(&disk.contents("f"), &bytes, format_args!("on disk, round {round}"));
    }
}

/// A page that is read while the system truncates the file is zero behind the new end, before the
/// length says so. Neither a read nor a guard takes that for bytes of the file.
#[test]
fn nobody_sees_zeros_of_a_truncation_under_way() {
    let (disk, files) = memory(22);
    disk.set("f", &[]);
    let cache = disk.builder(2 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    let map = file.map().unwrap();
    for round in 0..100 {
        file.truncate(0).unwrap();
        file.write_at(&[0xff; 4 * PAGE], 0).unwrap();
        file.sync_data().unwrap();
        file.invalidate().unwrap();
        files.hold();
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| match round % 2 {
                0 => {
                    let mut bytes = vec![7; 2 * PAGE];
                    let count = file.read_at(&mut bytes, 0).unwrap();
                    bytes.truncate(count);
                    bytes
                }
                _ => map.page(1).map_or(Vec::new(), |page| page.to_vec()),
            });
            files.wait_held(1);
            let cutting = scope.spawn(|| file.truncate(0));
            files.wait_held(2);
            files.release();
            assert!(reading.join().unwrap().iter().all(|byte| *byte == 0xff), "round {round}");
            cutting.join().unwrap().unwrap();
        });
    }
    closes(cache);
}

/// A hole is not made in part.
#[test]
fn a_refused_hole_changes_nothing() {
    let (disk, files) = memory(23);
    let refused = FaultEffect::Error(libc::EOPNOTSUPP);
    files.inject(Fault::new(FaultOperation::PunchHole, FaultTrigger::Always, refused));
    let before = pages(0..3);
    disk.set("f", &before);
    let cache = disk.builder(2 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    for (start, end) in [(100, 200), (100, 2 * PAGE as u64 + 9), (5, u64::MAX), (0, PAGE as u64)] {
        assert_eq!(number(file.punch_hole(start..end)), libc::EOPNOTSUPP);
        assert_same(&read(&file, 0, 3 * PAGE), &before, "in memory");
    }
    let lent = file.map().unwrap();
    let guard = lent.page(2).unwrap();
    let result = file.punch_hole(100..2 * PAGE as u64 + 9);
    assert!(matches!(result, Err(Error::OwnGuard { page: 2, .. })), "{result:?}");
    assert_same(&guard, &page(2), "lent");
    drop(guard);
    // Nor if only the length is refused, which a hole over unwritten pages needs.
    files.clear_faults();
    files.inject(Fault::new(
        FaultOperation::SetLength,
        FaultTrigger::Always,
        FaultEffect::Error(libc::ENOSPC),
    ));
    file.write_at(&page(3), 3 * PAGE as u64).unwrap();
    let before = [before, page(3)].concat();
    assert_eq!(number(file.punch_hole(100..4 * PAGE as u64)), libc::ENOSPC);
    assert_same(&read(&file, 0, 4 * PAGE), &before, "in memory");
    files.clear_faults();
    file.sync_data().unwrap();
    assert_same(&disk.contents("f"), &before, "on disk");
    closes(cache);
}

#[test]
fn a_hole_may_reach_beyond_every_file() {
    for disk in Disk::each(24) {
        disk.set("f", &pages(0..4)[..3 * PAGE + 10]);
        let cache = disk.builder(2 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        file.punch_hole(u64::MAX - 1..u64::MAX).unwrap();
        assert_same(&read(&file, 0, 3 * PAGE + 10), &pages(0..4)[..3 * PAGE + 10], "behind the end");
        // Dirty, clean, and not in memory.
        file.write_at(&page(9), PAGE as u64).unwrap();
        assert_eq!(file.evict(2 * PAGE as u64..3 * PAGE as u64).unwrap(), 0);
        file.punch_hole(PAGE as u64 + 100..u64::MAX).unwrap();
        let expected = [page(0), page(9)[..100].to_vec(), vec![0; 2 * PAGE - 90]].concat();
        assert_same(&read(&file, 0, 3 * PAGE + 10), &expected, "in memory");
        file.sync_data().unwrap();
        assert_same(&disk.contents("f"), &expected, "on disk");
        assert_eq!(number(file.punch_hole(7..7)), libc::EINVAL);
        closes(cache);
    }
}

/// A thread has a state for pauses in each cache: alternating between two does not lose it.
#[test]
fn a_thread_that_writes_to_two_caches_is_held_back() {
    let (disk, files) = memory(25);
    let caches = [0, 1].map(|_| disk.builder(4 << 20).build().unwrap());
    let handles = ["f", "f2"].map(|name| {
        disk.set(name, &[]);
        name
    });
    let handles = [0, 1].map(|number| caches[number].open(handles[number], OpenMode::ReadWrite).unwrap());
    files.inject(Fault::new(FaultOperation::Write, FaultTrigger::Always, FaultEffect::Error(libc::EIO)));
    let frames = (4 << 20) / PAGE as u64;
    let written = (0..frames).take_while(|number| {
        handles.iter().all(|file| file.write_at(&page(*number), number * PAGE as u64).is_ok())
    });
    // A fifth, and what is written between two looks.
    let written = written.count() as u64;
    assert!(written < frames / 3, "{written} of {frames} frames are dirty in each");
    // One of them was first to give the error.
    for file in &handles {
        let mut places = (written..frames).map(|number| number * PAGE as u64);
        let refused = places.find(|&at| is_write_back(file.write_at(&page(1), at)));
        assert!(refused.is_some_and(|at| at < frames / 3 * PAGE as u64), "{refused:?}");
    }
}

fn closes(cache: PageCache) {
    cache.validate().unwrap();
    cache.close().unwrap();
}

#[test]
fn appended_holes_read_zero_and_take_no_space() {
    for disk in Disk::each(12) {
        disk.set("f", b"begin");
        let cache = disk.builder(2 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        file.write_at(b"end", 5 << 30).unwrap();
        assert_eq!(file.len(), (5 << 30) + 3);
        let middle = read(&file, (2 << 30) + 17, 3 * PAGE);
        assert!(middle.iter().all(|byte| *byte == 0));
        assert_eq!(&read(&file, 0, 8), b"begin\0\0\0");
        file.sync_all().unwrap();
        assert_eq!(&read(&file, (5 << 30) - 2, 5), b"\0\0end");
        file.truncate(7).unwrap();
        file.sync_all().unwrap();
        assert_eq!(disk.contents("f"), b"begin\0\0");
        drop(file);
        closes(cache);
    }
}
