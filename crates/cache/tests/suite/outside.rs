//! Files that another process extends, truncates, replaces or removes while they are cached.

use crate::common::{Disk, PAGE, Random, assert_same, memory, page, pages, read};
#[cfg(feature = "async")]
use mglru_cache::backend::{Fault, FaultEffect, FaultOperation, FaultTrigger};
use mglru_cache::{Advice, CachedFile, Error, Map, OpenMode, ReadRequest};
use std::fs;
#[cfg(feature = "async")]
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

#[test]
fn appends_by_others_are_read() {
    for disk in Disk::each(1) {
        let mut contents = pages(0..5)[..4 * PAGE + 100].to_vec();
        disk.set("f", &contents);
        let cache = disk.builder(4 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadOnly).unwrap();
        for _ in 0..20 {
            // The file's last page is in memory, with zeros behind the end.
            let mut buffer = vec![0; contents.len() + 10];
            assert_eq!(file.read_at(&mut buffer, 0).unwrap(), contents.len());
            assert_same(&buffer[..contents.len()], &contents, "before");
            let more = &page(contents.len() as u64)[..1500];
            disk.append("f", more);
            contents.extend_from_slice(more);
        }
        file.sync_data().unwrap();
        assert_eq!(file.len() as usize, contents.len());
        assert_same(&read(&file, 0, contents.len()), &contents, "after a sync");
    }
}

#[test]
fn an_append_merges_with_a_cached_write_to_the_same_page() {
    for disk in Disk::each(2) {
        disk.set("f", &[1; 100]);
        let cache = disk.builder(4 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        file.write_at(&[2; 10], 0).unwrap();
        disk.append("f", &[3; 50]);
        file.sync_data().unwrap();
        let expected = [&[2; 10][..], &[1; 90], &[3; 50]].concat();
        assert_same(&read(&file, 0, 150), &expected, "read");
        file.sync_data().unwrap();
        assert_same(&disk.contents("f"), &expected, "on disk");
    }
}

#[test]
fn a_file_truncated_by_others_ends_there() {
    for disk in Disk::each(3) {
        let contents = pages(0..100);
        disk.set("f", &contents);
        let cache = disk.builder(4 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadOnly).unwrap();
        file.advise(Advice::Random, 0..1).unwrap();
        let map = file.map().unwrap();
        let cached = 60 * PAGE;
        assert_same(&read(&file, cached, PAGE), &page(60), "page");
        map.page(61).unwrap();
        disk.resize("f", 50 * PAGE + 10);
        // An uncached page: there is less on disk than expected.
        let mut buffer = vec![0xee; 4 * PAGE];
        assert_eq!(file.read_at(&mut buffer, 49 * PAGE as u64).unwrap(), PAGE + 10);
        assert_same(&buffer[..PAGE + 10], &contents[49 * PAGE..50 * PAGE + 10], "what is left");
        assert_eq!(
            (file.len(), file.read_at(&mut buffer, cached as u64).unwrap()),
            (50 * PAGE as u64 + 10, 0)
        );
        assert!(map.page(61).is_err() && map.load(cached as u64, &mut buffer[..1]).is_err());
        // The file grows again: the cached data of the old end, mapped or not, must not come back.
        disk.resize("f", 100 * PAGE);
        file.sync_data().unwrap();
        assert!(read(&file, 50 * PAGE + 10, 50 * PAGE - 10).iter().all(|byte| *byte == 0));
        assert!(map.page(61).unwrap().iter().all(|byte| *byte == 0));
        drop((map, file));
        cache.validate().unwrap();
    }
}

/// Another process truncates a file and writes it anew, as long as before. Pages that are read in
/// between find nothing on disk: later reads do not have their zeros.
#[cfg(feature = "async")]
#[test]
fn a_file_that_others_write_anew_has_no_zeros_from_in_between() {
    type Read = fn(&CachedFile) -> Vec<u8>;
    fn bytes(read: impl FnOnce(&mut [u8]) -> Result<usize, Error>) -> Vec<u8> {
        let mut bytes = vec![0xee; PAGE];
        let count = read(&mut bytes).unwrap();
        bytes.truncate(count);
        bytes
    }
    let at = 2 * PAGE as u64;
    let is_read = |file: &CachedFile| {
        let mut resident = [false];
        file.resident(2 * PAGE as u64, &mut resident);
        resident[0]
    };
    let reads: [Read; 3] = [
        |file| bytes(|bytes| file.read_at(bytes, 2 * PAGE as u64)),
        |file| bytes(|bytes| crate::tasks::block_on(file.read_at_async(bytes, 2 * PAGE as u64))),
        |file| {
            bytes(|bytes| {
                let mut requests = [ReadRequest { offset: 2 * PAGE as u64, buffer: bytes, read: 0 }];
                file.read_many(&mut requests).map(|()| requests[0].read)
            })
        },
    ];
    for (number, read) in reads.into_iter().enumerate() {
        for is_under_way in [false, true] {
            let (disk, files) = memory(15);
            disk.set("f", &pages(0..4));
            let cache = disk.builder(4 << 20).build().unwrap();
            let file = cache.open("f", OpenMode::ReadOnly).unwrap();
            disk.resize("f", PAGE + 10);
            let mut first = vec![0xee; PAGE];
            let mut under_way = file.read_at_async(&mut first, at);
            if is_under_way {
                files.hold();
                assert!(crate::tasks::poll_once(&mut under_way).is_pending());
                files.release();
            } else {
                file.advise(Advice::WillNeed, 0..4 * PAGE as u64).unwrap();
            }
            while !is_read(&file) {
                std::thread::yield_now();
            }
            disk.set("f", &pages(10..14));
            if is_under_way {
                assert_eq!(crate::tasks::block_on(under_way).unwrap(), PAGE);
                assert_same(&first, &page(12), "a read that was under way");
            }
            assert_same(&read(&file), &page(12), number);
        }
    }
}

/// Another process truncates a file and writes it anew again and again. What threads read of it was
/// in the file at some time, and never has zeros.
#[cfg(feature = "async")]
#[test]
fn readers_of_a_file_that_others_write_anew_get_no_zeros() {
    let (disk, _) = memory(16);
    let (most, rounds) = (12 * PAGE, 2000);
    disk.set("f", &vec![1; most]);
    let cache = disk.builder(1 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    let is_over = AtomicBool::new(false);
    let read = |seed| {
        let (file, mut random) = (file.try_clone().unwrap(), Random(seed));
        let map = file.map().unwrap();
        while !is_over.load(SeqCst) {
            let offset = random.below(most as u64);
            let mut bytes = vec![0; 1 + random.below(2 * PAGE as u64) as usize];
            let in_page = bytes.len().min(PAGE - offset as usize % PAGE);
            let count = match random.below(6) {
                0 => file.read_at(&mut bytes, offset).unwrap(),
                1 => file.read_at(&mut bytes[..in_page], offset).unwrap(),
                2 => crate::tasks::block_on(file.read_at_async(&mut bytes, offset)).unwrap(),
                3 => {
                    let mut requests = [ReadRequest { offset, buffer: &mut bytes[..in_page], read: 0 }];
                    file.read_many(&mut requests).unwrap();
                    requests[0].read
                }
                4 => map.load(offset, &mut bytes).map_or(0, |()| bytes.len()),
                _ => map.page_owned((offset / PAGE as u64) as u32).map_or(0, |page| {
                    bytes = page.to_vec();
                    bytes.len()
                }),
            };
            assert!(!bytes[..count].contains(&0), "{count} bytes at {offset}");
        }
    };
    std::thread::scope(|scope| {
        let readers = [1, 2].map(|seed| scope.spawn(move || read(seed)));
        let mut random = Random(3);
        for round in 0..rounds {
            let byte = 1 + (round % 255) as u8;
            disk.set("f", &vec![byte; random.below(most as u64) as usize]);
            disk.set("f", &vec![byte; most]);
            if random.one_in(4) {
                file.invalidate().unwrap();
            }
        }
        is_over.store(true, SeqCst);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

/// Reads of a batch find less than expected, too.
#[test]
fn a_batch_ends_where_others_have_cut_the_file() {
    for disk in Disk::each(13) {
        disk.set("f", &pages(0..20));
        let cache = disk.builder(4 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadOnly).unwrap();
        disk.resize("f", PAGE + 10);
        let mut buffers = [[0xee; 100]; 20];
        let requests = buffers.iter_mut().zip((0..).step_by(PAGE));
        let mut requests: Vec<_> =
            requests.map(|(buffer, offset)| ReadRequest { offset, buffer, read: 0 }).collect();
        // Those from the third on are of the part that is gone.
        file.read_many(&mut requests[2..]).unwrap();
        assert!(requests.iter().all(|request| request.read == 0));
        file.read_many(&mut requests[..3]).unwrap();
        assert_eq!([0, 1, 2].map(|number| requests[number].read), [100, 10, 0]);
    }
}

/// Loads and guards that find less than expected, of a file that is mapped.
#[test]
fn a_map_ends_where_others_have_cut_the_file() {
    type Access = fn(&Map) -> Result<(), Error>;
    let accesses: [Access; 6] = [
        |map| map.load(2 * PAGE as u64, &mut [0; 10]),
        |map| map.load(10, &mut [0; 3 * PAGE]),
        |map| map.load_value::<u64>(3 * PAGE as u64).map(|_| ()),
        |map| map.load_many(&[2 * PAGE as u64], &mut [[0; 8]]),
        |map| map.read_page(3, |_| ()),
        |map| map.page_owned(2).map(|_| ()),
    ];
    for (number, access) in accesses.into_iter().enumerate() {
        for disk in Disk::each(14) {
            disk.set("f", &pages(0..4));
            let cache = disk.builder(4 << 20).build().unwrap();
            let file = cache.open(disk.path("f"), OpenMode::ReadOnly).unwrap();
            let map = file.map().unwrap();
            disk.resize("f", PAGE + 10);
            assert!(matches!(access(&map), Err(Error::BeyondEnd { .. })), "{number}");
            assert_eq!(map.page(1).unwrap()[..], page(1)[..10]);
        }
    }
}

/// A read finds less than expected, and then the system does not tell the length. That read fails,
/// and the next one, by a call or as a future, does not take the zeros for a part of the file.
#[cfg(feature = "async")]
#[test]
fn a_length_that_is_not_told_is_asked_for_again() {
    for is_async in [false, true] {
        let (disk, files) = memory(12);
        disk.set("f", &pages(0..4));
        let cache = disk.builder(4 << 20).build().unwrap();
        let file = cache.open("f", OpenMode::ReadOnly).unwrap();
        file.advise(Advice::Random, 0..1).unwrap();
        disk.resize("f", PAGE + 10);
        let (trigger, effect) = (FaultTrigger::Always, FaultEffect::Error(libc::EIO));
        files.inject(Fault::new(FaultOperation::Length, trigger, effect));
        let read = |page: usize| {
            let mut bytes = [0xee; 100];
            let offset = (page * PAGE) as u64;
            match is_async {
                false => file.read_at(&mut bytes, offset),
                true => crate::tasks::block_on(file.read_at_async(&mut bytes, offset)),
            }
        };
        for page in [2, 2, 3] {
            assert!(read(page).is_err(), "{page}");
        }
        files.clear_faults();
        assert_eq!([2, 3, 1, 0].map(|page| read(page).unwrap()), [0, 0, 10, 100]);
        assert_eq!(file.len(), PAGE as u64 + 10);
    }
}

#[test]
fn a_truncation_by_others_keeps_newer_cached_writes() {
    for disk in Disk::each(4) {
        disk.set("f", &pages(0..10));
        let cache = disk.builder(4 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        read(&file, 0, 10 * PAGE);
        file.write_at(b"mine", 7 * PAGE as u64 + 6).unwrap();
        disk.resize("f", 3 * PAGE);
        file.sync_data().unwrap();
        let len = file.len() as usize;
        let contents = disk.contents("f");
        assert_same(&read(&file, 0, len), &contents, "as on disk");
        assert_same(&contents[..3 * PAGE], &pages(0..3), "what was left");
        assert_eq!(&contents[7 * PAGE + 6..7 * PAGE + 10], b"mine");
    }
}

/// A hole over pages that are not written yet extends the file. It must not cut what another
/// process has appended meanwhile.
#[test]
fn a_hole_cuts_nothing_that_others_appended() {
    for disk in Disk::each(9) {
        disk.set("f", &pages(0..2)[..PAGE + 100]);
        let cache = disk.builder(4 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        file.write_at(&page(9), 3 * PAGE as u64).unwrap();
        disk.set("f", &pages(0..8));
        file.punch_hole(2 * PAGE as u64..4 * PAGE as u64).unwrap();
        let expected = [pages(0..2), vec![0; 2 * PAGE], pages(4..8)].concat();
        file.sync_data().unwrap();
        assert_same(&disk.contents("f"), &expected, "on disk");
        assert_eq!(file.len() as usize, expected.len());
        assert_same(&read(&file, 0, expected.len()), &expected, "read");
        cache.validate().unwrap();
    }
}

/// A truncation and an allocation first adopt a length that another process changed.
#[test]
fn a_truncation_sees_what_others_appended_or_cut() {
    for disk in Disk::each(11) {
        let cache = disk.builder(4 << 20).build().unwrap();
        for allocates in [false, true] {
            for others in [1, 6] {
                disk.set("f", &pages(0..3)[..2 * PAGE + 100]);
                let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
                read(&file, 0, 2 * PAGE + 100);
                disk.set("f", &pages(0..others));
                let (end, mut expected) = (5 * PAGE as u64, pages(0..others.min(5)));
                match if allocates { file.allocate(0..end, false) } else { file.truncate(end) } {
                    // Some file systems reserve no space.
                    Err(error) if allocates && error.kind() == std::io::ErrorKind::Unsupported => continue,
                    result => result.unwrap(),
                }
                if allocates && others == 6 {
                    expected = pages(0..6);
                }
                expected.resize(expected.len().max(end as usize), 0);
                assert_same(&read(&file, 0, expected.len()), &expected, format!("{allocates} {others}"));
                assert_same(&disk.contents("f"), &expected, "on disk");
                assert_eq!(file.len() as usize, expected.len());
            }
        }
        cache.validate().unwrap();
    }
}

#[test]
fn a_file_that_is_replaced_is_another_file() {
    for disk in Disk::each(5) {
        disk.set("f", &pages(0..3));
        let cache = disk.builder(4 << 20).build().unwrap();
        let old = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        read(&old, 0, PAGE);
        disk.remove("f");
        assert!(cache.open(disk.path("f"), OpenMode::ReadWrite).is_err());
        disk.set("f", &pages(10..12));
        let new = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        assert_same(&read(&new, 0, 2 * PAGE), &pages(10..12), "the new one");
        assert_same(&read(&old, 0, 3 * PAGE), &pages(0..3), "the old one");
        old.write_at(&page(99), 0).unwrap();
        old.sync_all().unwrap();
        assert_same(&read(&old, 0, PAGE), &page(99), "the old one, written to");
        assert_same(&disk.contents("f"), &pages(10..12), "the new one on disk");
    }
}

#[test]
fn a_reopened_file_shows_changes_by_others() {
    for disk in Disk::each(6) {
        let cache = disk.builder(4 << 20).build().unwrap();
        for round in 0..20 {
            disk.set("f", &pages(round..round + 8));
            let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
            // Readahead is still active when the handle is dropped.
            assert_same(&read(&file, 0, PAGE), &page(round), "page");
            assert_same(&read(&file, PAGE, PAGE), &page(round + 1), "page");
            if round % 3 == 0 {
                file.write_at(&page(round), 0).unwrap();
                file.sync_data().unwrap();
            }
        }
    }
}

#[test]
fn an_invalidated_file_shows_changes_by_others() {
    for disk in Disk::each(8) {
        disk.set("f", &pages(0..8));
        let cache = disk.builder(4 << 20).build().unwrap();
        let [file, other] = [(); 2].map(|()| cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap());
        assert_same(&read(&file, 0, 8 * PAGE), &pages(0..8), "before");
        file.write_at(&page(99), 2 * PAGE as u64).unwrap();
        let map = other.map().unwrap();
        let guard = map.page(4).unwrap();
        for first in [10, 20] {
            // Of the same length, then longer.
            let count = if first == 10 { 8 } else { 11 };
            disk.set("f", &pages(first..first + count));
            file.invalidate().unwrap();
            let mut expected = pages(first..first + count);
            expected[2 * PAGE..3 * PAGE].copy_from_slice(&page(99));
            assert_eq!(other.len() as usize, expected.len());
            assert_same(&read(&other, 0, expected.len()), &expected, "after");
        }
        assert_same(&guard, &page(4), "lent");
        drop(guard);
        file.sync_all().unwrap();
        assert_same(&disk.contents("f")[2 * PAGE..3 * PAGE], &page(99), "written");
        drop((map, file, other));
        cache.validate().unwrap();
    }
}

#[test]
fn two_paths_to_one_file_share_its_pages() {
    let Disk::Real(directory, kind) = Disk::uring() else { unreachable!() };
    let disk = Disk::Real(directory, kind);
    disk.set("f", &pages(0..4));
    fs::hard_link(disk.path("f"), disk.path("g")).unwrap();
    std::os::unix::fs::symlink(disk.path("f"), disk.path("h")).unwrap();
    let cache = disk.builder(4 << 20).build().unwrap();
    let files = ["f", "g", "h"].map(|name| cache.open(disk.path(name), OpenMode::ReadWrite).unwrap());
    files[0].write_at(b"shared", 10).unwrap();
    for file in &files {
        assert_eq!(read(file, 10, 6), b"shared");
    }
}

/// A reader at the end of a file checks its length. That must not wait for a writer, which may
/// itself wait for a guard of the reader.
#[test]
fn a_guard_holder_may_read_at_the_end_while_others_write() {
    let (disk, files) = memory(7);
    disk.set("f", &pages(0..3));
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    let map = file.map().unwrap();
    let guard = map.page(0).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| file.write_at(&page(9), 0).unwrap());
        for round in 0..200 {
            files.set_contents("f", &pages(0..3 + round % 2));
            let mut buffer = vec![0; 8 * PAGE];
            file.read_at(&mut buffer, 0).unwrap();
            assert_same(&buffer[..PAGE], &guard, "the lent page");
            // The page itself can be read in every way, and lent again.
            map.load(5, &mut buffer[..10]).unwrap();
            assert_same(&map.page(0).unwrap(), &page(0), "lent once more");
        }
        assert_same(&guard, &page(0), "unchanged");
        drop(guard);
        writer.join().unwrap();
    });
    assert_same(&read(&file, 0, PAGE), &page(9), "written");
}

/// Pages that are dropped because the file changed are locked again when they come back.
#[test]
fn locked_pages_stay_locked_when_others_change_the_file() {
    for disk in Disk::each(8) {
        disk.set("f", &pages(0..4)[..3 * PAGE + 100]);
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let all = 0..4 * PAGE as u64;
        let (locked, part) = (file.lock(all.clone()).unwrap(), file.lock(0..10).unwrap());
        let cached = || file.pages_in(0..u64::MAX).cached;
        disk.set("f", &pages(10..14)[..3 * PAGE + 100]);
        file.invalidate().unwrap();
        assert_eq!((cached(), file.evict(all.clone()).unwrap()), (4, 4));
        assert_same(&read(&file, 0, 3 * PAGE), &pages(10..13), "new content");

        // Another process appends: the last page is read again by whoever needs it.
        disk.append("f", &page(13)[100..]);
        file.sync_data().unwrap();
        assert_same(&read(&file, 3 * PAGE, PAGE), &page(13), "appended");
        assert_eq!(file.evict(all.clone()).unwrap(), 4);

        // Another process truncates: the pages that are cut off are not locked any more.
        disk.resize("f", 2 * PAGE);
        file.sync_data().unwrap();
        disk.resize("f", 4 * PAGE);
        file.sync_data().unwrap();
        read(&file, 0, 4 * PAGE);
        assert_eq!(file.evict(all.clone()).unwrap(), 2);
        drop(locked);
        assert_eq!(file.evict(all.clone()).unwrap(), 1);
        file.invalidate().unwrap();
        read(&file, 0, 4 * PAGE);
        assert_eq!(file.evict(all.clone()).unwrap(), 1);
        drop(part);
        assert_eq!(file.evict(all).unwrap(), 0);
        cache.validate().unwrap();
    }
}
