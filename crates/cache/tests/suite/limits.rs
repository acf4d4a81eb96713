//! Limits hold at all times: those of tenants, the budget of the whole cache including metadata,
//! and those of arguments.

use crate::common::{Disk, PAGE, Random, assert_same, memory, page, pages, read};
use mglru_cache::{
    Advice, CachedFile, Error, FRAME_METADATA_BYTES, FileSource, Map, MapAdvice, OpenMode, PageCache,
    PageGuard, Swap,
};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// Bytes reserved for a tenant's lists, counters and Bloom filters.
const TENANT_BYTES: u64 = 24 << 10;

/// Asserts that memory is within the budget, and metadata within 64 bytes per frame plus 8 per page
/// in leaves, which exist where pages were accessed.
#[track_caller]
fn assert_within_budget(cache: &PageCache, opened_pages: u64, what: &str) {
    let stats = cache.stats();
    let frames = stats.frames;
    assert!(stats.frame_bytes + stats.metadata_bytes <= stats.budget_bytes, "{what}: {stats:?}");
    let most = FRAME_METADATA_BYTES * frames + 8 * opened_pages + TENANT_BYTES * stats.tenants as u64;
    assert!(stats.metadata_bytes <= most, "{what}: {} bytes of at most {most}", stats.metadata_bytes);
    cache.validate().unwrap();
}

#[test]
fn metadata_is_paid_for_and_small_when_files_are_read_in_order() {
    for budget in [1 << 20, 8 << 20, 80 << 20] {
        let disk = Disk::uring();
        let file = fs::File::create(disk.path("f")).unwrap();
        file.set_len(3 * budget).unwrap();
        let cache = disk.builder(budget).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadOnly).unwrap();
        let mut buffer = vec![1; 1 << 18];
        for offset in (0..3 * budget).step_by(buffer.len()) {
            assert_eq!(file.read_at(&mut buffer, offset).unwrap(), buffer.len());
        }
        assert_within_budget(&cache, 3 * budget / PAGE as u64, "in order");
    }
}

#[test]
fn metadata_is_paid_for_when_a_huge_file_is_read_at_random() {
    for budget in [2 << 20, 8 << 20, 80 << 20] {
        let disk = Disk::uring();
        let len = 64u64 << 30;
        fs::File::create(disk.path("f")).unwrap().set_len(len).unwrap();
        let cache = disk.builder(budget).tenant("t", budget / 3).build().unwrap();
        let file = cache.tenant("t").unwrap().open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let wide = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let map = wide.map().unwrap();
        let mut random = Random(budget);
        for step in 0..6000 {
            let index = random.below(len / PAGE as u64);
            let mut word = [1; 8];
            match step % 4 {
                0 => file.read_at(&mut word, index * PAGE as u64).map(|_| ()),
                1 => wide.read_at(&mut word, index * PAGE as u64).map(|_| ()),
                2 => map.load(index * PAGE as u64, &mut word),
                _ => {
                    word = [0; 8];
                    wide.write_at(&[0; 8], index * PAGE as u64).map(|_| ())
                }
            }
            .unwrap_or_else(|error| panic!("budget {budget}, step {step}: {error}"));
            assert_eq!(word, [0; 8]);
        }
        assert_within_budget(&cache, len / PAGE as u64, "at random");
    }
}

#[test]
fn metadata_is_paid_for_when_there_are_many_small_files() {
    let (disk, _files) = memory(1);
    let budget = 8 << 20;
    let cache = disk.builder(budget).build().unwrap();
    let mut handles = Vec::new();
    for number in 0..800u64 {
        let name = format!("f{number}");
        disk.set(&name, &page(number));
        let file = cache.open(disk.path(&name), OpenMode::ReadOnly).unwrap();
        assert_same(&read(&file, 0, PAGE), &page(number), "page");
        handles.push(file);
    }
    let stats = cache.stats();
    assert!(stats.frame_bytes + stats.metadata_bytes <= stats.budget_bytes, "{stats:?}");
    cache.validate().unwrap();
    for (number, file) in handles.iter().enumerate() {
        assert_same(&read(file, 0, PAGE), &page(number as u64), "page");
    }
    let before = cache.stats().metadata_bytes;
    drop(handles);
    assert!(cache.stats().metadata_bytes < before, "closed files need no index");
    cache.validate().unwrap();
}

/// An open file takes memory before anything is read from it. The number of open files is limited,
/// and closing files makes room.
#[test]
fn open_files_are_paid_for() {
    let (disk, _files) = memory(6);
    disk.set("f", &page(0));
    let cache = disk.builder(2 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    let mut handles = Vec::new();
    let error = loop {
        assert_same(&read(&file, 0, PAGE), &page(0), "page");
        match cache.open(disk.path(&format!("f{}", handles.len())), OpenMode::Create) {
            Ok(file) => handles.push(file),
            Err(error) => break error,
        }
        if handles.len() % 100 == 0 {
            cache.validate().unwrap();
        }
    };
    assert!(
        matches!(error, Error::TooManyFiles { .. }) && handles.len() > 450,
        "{error} after {}",
        handles.len()
    );
    handles.clear();
    cache.validate().unwrap();
    assert_same(&read(&file, 0, PAGE), &page(0), "page");
    cache.open("new", OpenMode::Create).unwrap().write_at(&page(1), 0).unwrap();
}

/// Of frames that the kernel holds as registered buffers, only a quarter can pay for the index. A
/// file that needs more index gets along with that and does not disturb others. Once it is closed,
/// the frames hold pages again.
#[test]
fn the_index_of_a_huge_file_makes_room_for_itself_and_goes() {
    let disk = Disk::uring();
    let len = 1u64 << 40;
    fs::File::create(disk.path("f")).unwrap().set_len(len).unwrap();
    disk.set("other", &pages(0..500));
    let cache = disk.builder(72 << 20).tenant("other", 8 << 20).build().unwrap();
    let other = cache.tenant("other").unwrap().open(disk.path("other"), OpenMode::ReadOnly).unwrap();
    assert_same(&read(&other, 0, PAGE), &page(0), "page");
    let paid_bytes = || cache.stats().frames * PAGE as u64 - cache.stats().frame_bytes;
    let first = paid_bytes();
    let file = cache.open(disk.path("f"), OpenMode::ReadOnly).unwrap();
    file.advise(Advice::Random, 0..0).unwrap();
    let mut random = Random(1);
    for step in 0..12_000 {
        let offset = random.below(len / PAGE as u64) * PAGE as u64;
        let read = file.read_at(&mut [1; 8], offset);
        assert!(matches!(read, Ok(8)), "read {step}: {read:?}, {:?}", cache.stats());
        if step % 1000 == 0 {
            assert_same(
                &crate::common::read(&other, step / 1000 * PAGE, PAGE),
                &page(step as u64 / 1000),
                "page",
            );
        }
    }
    let most = paid_bytes();
    assert!(most - first > 4 << 20, "{most} bytes");
    cache.validate().unwrap();
    drop(file);
    let left = paid_bytes();
    assert!(left - first < (most - first) / 3, "{left} bytes of {most}, {first} at first");
    cache.validate().unwrap();
}

#[test]
fn tenants_stay_within_their_limits_while_all_of_them_work() {
    let disk = Disk::uring();
    let limits = [("a", 10 * PAGE as u64), ("b", 100 * PAGE as u64), ("c", 1 << 20), ("d", 3 << 20)];
    let mut builder = disk.builder(4 << 20);
    for (name, bytes) in limits {
        builder = builder.tenant(name, bytes);
        disk.set(name, &pages(0..800));
    }
    let cache = builder.build().unwrap();
    std::thread::scope(|scope| {
        for (name, _) in limits {
            for seed in 0..2 {
                let (cache, disk) = (&cache, &disk);
                scope.spawn(move || {
                    let file =
                        cache.tenant(name).unwrap().open(disk.path(name), OpenMode::ReadWrite).unwrap();
                    let map = file.map().unwrap();
                    let mut random = Random(seed);
                    for _ in 0..3000 {
                        let number = random.below(800);
                        let offset = number * PAGE as u64;
                        let mut bytes = page(number);
                        match random.below(4) {
                            0 => assert_eq!(file.write_at(&bytes, offset).unwrap(), PAGE),
                            1 => map.load(offset, &mut bytes).unwrap(),
                            _ => assert_eq!(file.read_at(&mut bytes, offset).unwrap(), PAGE),
                        }
                        assert_same(&bytes, &page(number), "page");
                    }
                });
            }
        }
    });
    for (name, bytes) in limits {
        let stats = cache.tenant(name).unwrap().stats();
        assert_eq!(stats.max_pages, Some(bytes / PAGE as u64));
        assert!(stats.peak_pages <= bytes / PAGE as u64, "{stats:?}");
        assert!(stats.counter("pgsteal_direct") > Some(0) && stats.counter("oom") == Some(0), "{stats:?}");
    }
    cache.validate().unwrap();
}

/// If every page of a tenant is lent, none can be freed, and requests fail until a guard is
/// dropped.
#[test]
fn memory_that_is_lent_cannot_be_freed() {
    let (disk, _files) = memory(2);
    disk.set("f", &pages(0..100));
    // One page of the limit is for the file, its handles and its index.
    let cache = disk.builder(4 << 20).tenant("t", 21 * PAGE as u64).build().unwrap();
    let file = cache.tenant("t").unwrap().open("f", OpenMode::ReadWrite).unwrap();
    let map = file.map().unwrap();
    let mut guards: Vec<PageGuard> = (0..20).map(|index| map.page(index).unwrap()).collect();
    for _ in 0..2 {
        let mut buffer = [0; 8];
        let Err(Error::OutOfMemory(report)) = file.read_at(&mut buffer, 50 * PAGE as u64) else { panic!() };
        assert_eq!((report.tenant.as_str(), report.usage_pages, report.max_pages), ("t", 21, 21));
        assert!(matches!(map.page(50), Err(Error::OutOfMemory(_))));
        assert!(matches!(file.write_at(&page(1), 50 * PAGE as u64), Err(Error::OutOfMemory(_))));
    }
    for (index, guard) in guards.iter().enumerate() {
        assert_same(guard, &page(index as u64), "lent page");
    }
    guards.truncate(18);
    assert_same(&read(&file, 50 * PAGE, PAGE), &page(50), "page");
    // Other tenants are not affected.
    let other = cache.open("f", OpenMode::ReadOnly).unwrap();
    assert_same(&read(&other, 60 * PAGE, PAGE), &page(60), "page");
    drop(guards);
    cache.validate().unwrap();
}

/// Such a page can still be written back, because one reference is reserved for that.
#[test]
fn a_page_is_lent_some_thousand_times_at_once() {
    let (disk, _files) = memory(3);
    disk.set("f", &pages(0..1));
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    let map = file.map().unwrap();
    file.write_at(&page(7), 0).unwrap();
    let mut guards = Vec::new();
    let error = loop {
        match map.page(0) {
            Ok(guard) => guards.push(guard),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Busy) && guards.len() == 2047, "{error:?} after {}", guards.len());
    file.sync_data().unwrap();
    assert_same(&disk.contents("f"), &page(7), "synced page");
    assert!(matches!(map.page(0), Err(Error::Busy)));
    assert_same(&read(&file, 0, PAGE), &page(7), "page");
    guards.clear();
    assert_same(&map.page(0).unwrap(), &page(7), "page");
    cache.validate().unwrap();
}

/// Guards keep writers out and frames in place, while the cache turns over many times.
#[test]
fn a_lent_page_does_not_change() {
    for disk in Disk::each(4) {
        disk.set("f", &pages(0..1000));
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let map = file.map().unwrap();
        let guards: Vec<PageGuard> = (0..20).map(|index| map.page(index * 50).unwrap()).collect();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for index in 0..20u64 {
                    file.write_at(&page(index + 5000), index * 50 * PAGE as u64).unwrap();
                }
            });
            for number in 0..1000 {
                if number % 50 != 0 {
                    assert_same(&read(&file, number * PAGE, PAGE), &page(number as u64), "page");
                }
            }
            for (index, guard) in guards.iter().enumerate() {
                assert_same(guard, &page(index as u64 * 50), "lent page");
            }
            assert!(!writer.is_finished());
            drop(guards);
            writer.join().unwrap();
        });
        for index in 0..20 {
            assert_same(&map.page(index * 50).unwrap(), &page(u64::from(index) + 5000), "written page");
        }
    }
}

#[test]
fn invalid_settings_and_calls_are_refused() {
    let (disk, _files) = memory(5);
    disk.set("f", &pages(0..2));
    let refused = |bytes| disk.builder(bytes).build().err().unwrap();
    for bytes in [0, 1, 4096, 300_000] {
        let Error::BudgetTooSmall { least_bytes, .. } = refused(bytes) else { panic!() };
        disk.builder(least_bytes).build().unwrap();
        assert!(matches!(refused(least_bytes - 1), Error::BudgetTooSmall { .. }));
    }
    let twice = disk.builder(4 << 20).tenant("a", 1 << 20).tenant("a", 1 << 20).build();
    assert!(matches!(twice, Err(Error::Tenant(_))));
    assert!(matches!(disk.builder(4 << 20).tenant("", 1).build(), Err(Error::Tenant(_))));

    let cache = disk.builder(4 << 20).tenant("tiny", 0).build().unwrap();
    assert!(matches!(cache.tenant("none"), Err(Error::NoSuchTenant(name)) if name == "none"));
    assert_eq!(crate::common::number(cache.open("missing", OpenMode::ReadWrite).map(|_| ())), libc::ENOENT);
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    check_ranges(&file, &file.map().unwrap());
    // A tenant has at least one page, and works with it.
    let tiny = cache.tenant("tiny").unwrap().open("f", OpenMode::ReadWrite).unwrap();
    for round in 0..3 {
        for number in 0..2 {
            assert_same(&read(&tiny, number * PAGE, PAGE), &page(number as u64), format!("round {round}"));
        }
    }
    tiny.write_at(&pages(0..2), 0).unwrap();
    tiny.sync_all().unwrap();
}

fn check_ranges(file: &CachedFile, map: &Map) {
    const LARGEST: u64 = PAGE as u64 * (1 << 32);
    let mut buffer = [7; 100];
    for offset in [2 * PAGE as u64, LARGEST - 1, LARGEST, u64::MAX - 99, u64::MAX] {
        assert_eq!(file.read_at(&mut buffer, offset).unwrap(), 0);
        assert_eq!(file.read_at(&mut [], offset).unwrap(), 0);
        assert!(matches!(map.load(offset, &mut buffer), Err(Error::BeyondEnd { .. })));
        assert!(matches!(map.store(offset, &buffer), Err(Error::BeyondEnd { .. })));
    }
    assert!(matches!(map.page(2), Err(Error::BeyondEnd { .. })));
    assert!(matches!(map.page(u32::MAX), Err(Error::BeyondEnd { .. })));
    for offset in [LARGEST - 99, LARGEST, u64::MAX - 99, u64::MAX] {
        assert!(matches!(file.write_at(&buffer, offset), Err(Error::TooLarge { .. })));
    }
    assert!(matches!(file.truncate(LARGEST + 1), Err(Error::TooLarge { .. })));
    assert_eq!((buffer, file.len()), ([7; 100], 2 * PAGE as u64));
    assert_eq!(file.write_at(&[], 0).unwrap(), 0);
    assert_eq!(file.write_at(&[], 1 << 40).unwrap(), 0);
    map.load(PAGE as u64, &mut []).unwrap();
    map.store(2 * PAGE as u64, &[]).unwrap();
    assert_eq!(file.len(), 2 * PAGE as u64, "writing nothing does not extend a file");
    map.advise(MapAdvice::NoRecency);
    // The last possible page.
    file.write_at(&buffer, LARGEST - 100).unwrap();
    assert_eq!(file.len(), LARGEST);
    assert_eq!(read(file, (LARGEST - 150) as usize, 150), [[0; 50].as_slice(), &buffer].concat());
    file.sync_all().unwrap();
    // It has no successor. Regression test: a miss of it retried an empty window for ever.
    for advice in [Advice::Normal, Advice::WillNeed] {
        file.advise(Advice::DontNeed, LARGEST - PAGE as u64..LARGEST).unwrap();
        file.advise(advice, LARGEST - PAGE as u64..LARGEST).unwrap();
        assert_eq!(read(file, (LARGEST - 100) as usize, 100), buffer);
    }
    assert_eq!(map.page(u32::MAX).unwrap()[PAGE - 100..], buffer);
    file.advise(Advice::DontNeed, 0..u64::MAX).unwrap();
    file.advise(Advice::WillNeed, LARGEST - 100..u64::MAX).unwrap();
    file.truncate(2 * PAGE as u64).unwrap();
    assert_same(&read(file, 0, 2 * PAGE), &pages(0..2), "file");
}

/// A directory is rejected, and a failed open leaves nothing behind.
#[test]
fn a_failed_open_leaves_nothing_behind() {
    let disk = Disk::uring();
    let cache = disk.builder(4 << 20).build().unwrap();
    let Disk::Real(directory, _) = &disk else { unreachable!() };
    assert!(matches!(cache.open(directory.path(), OpenMode::ReadOnly), Err(Error::Io { .. })));
    assert!(cache.open(disk.path("none"), OpenMode::ReadOnly).is_err());
    let created = cache.open(disk.path("none"), OpenMode::Create).unwrap();
    assert!(created.is_empty());
    drop(created);
    cache.validate().unwrap();
}

/// Nothing is charged for a reservation that cannot fit, and no page is evicted for it.
#[test]
fn a_reservation_beyond_the_budget_is_refused() {
    let (disk, _) = memory(1);
    disk.set("f", &pages(0..100));
    let cache = disk.builder(4 << 20).tenant("t", 1 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    read(&file, 0, 100 * PAGE);
    let before = cache.stats();
    for bytes in [5 << 20, 1 << 41, 5 << 40, 1 << 45, 1 << 60, u64::MAX - 5000, u64::MAX] {
        for tenant in ["", "t"] {
            let error = cache.tenant(tenant).unwrap().reserve(bytes).unwrap_err();
            assert!(matches!(error, Error::OutOfMemory(_)), "{bytes} bytes of '{tenant}': {error}");
        }
    }
    assert_eq!(cache.stats().metadata_bytes, before.metadata_bytes);
    assert_eq!(file.pages_in(0..u64::MAX).cached, 100);
    cache.validate().unwrap();
    assert_eq!(cache.tenant("t").unwrap().reserve(100_000).unwrap().bytes(), 100_000);
}

/// Sums of them do not wrap around to a size that would fit.
#[test]
fn the_largest_swap_is_too_large_for_the_budget() {
    for bytes in [u64::MAX, u64::MAX - 300_000, u64::MAX - 73_014_100_000, 1 << 63] {
        for swap in [Swap::compressed(bytes), Swap::file("swap", bytes)] {
            let (disk, _) = memory(1);
            let error = disk.builder(4 << 20).swap(swap).events(usize::MAX).build().unwrap_err();
            assert!(matches!(error, Error::BudgetTooSmall { least_bytes: u64::MAX, .. }), "{error}");
            let error = disk.builder(4 << 20).swap(Swap::compressed(bytes)).build().unwrap_err();
            assert!(matches!(error, Error::BudgetTooSmall { .. }), "{error}");
            assert!(error.to_string().contains("of which swap takes"), "{error}");
        }
    }
}

#[test]
fn the_longest_deadline_of_a_source_is_one() {
    let disk = Disk::threads();
    disk.set("f", &page(7));
    let cache = disk.builder(4 << 20).source_deadline(Duration::MAX).build().unwrap();
    let source = Arc::new(FileSource::open(disk.path("f")).unwrap());
    let file = cache.open_source(source, OpenMode::ReadOnly).unwrap();
    assert_same(&read(&file, 0, PAGE), &page(7), "page");
}
