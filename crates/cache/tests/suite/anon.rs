//! Anonymous memory larger than the cache: every load returns the last stored bytes, whether they
//! were in memory or in swap.

use crate::common::{Disk, PAGE, Random, assert_same, counter, page};
use mglru_cache::backend::{Fault, FaultEffect, FaultOperation, FaultTrigger, MemoryFiles};
use mglru_cache::{AnonRegion, Error, PageCache, Swap};
use std::io::ErrorKind;
use std::path::Path;

const BUDGET: u64 = 3 << 20;

/// A page that compresses to a few bytes, or not at all.
fn bytes(number: u64) -> Vec<u8> {
    if number.is_multiple_of(4) {
        page(number)
    } else {
        [number as u8 | 1, (number >> 8) as u8].repeat(PAGE / 2)
    }
}

fn load(region: &AnonRegion, offset: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0xee; bytes];
    region.load(offset, &mut out).unwrap();
    out
}

/// Runs a test with swap in memory, and in a file on each kind of backend.
fn each(mut test: impl FnMut(&Disk, Swap)) {
    test(&Disk::threads(), Swap::compressed(1 << 20));
    for disk in Disk::each(5) {
        let file = disk.path("swap");
        test(&disk, Swap::file(&file, 16 << 20));
    }
}

fn swapped(cache: &PageCache) -> [u64; 3] {
    ["pswpout", "pswpin", "workingset_refault_anon"].map(|name| counter(cache, "", name))
}

#[test]
fn memory_larger_than_the_cache_keeps_its_contents() {
    each(|disk, swap| {
        let what = format!("{swap:?}");
        let cache = disk.builder(BUDGET).swap(swap).build().unwrap();
        let region = cache.tenant("").unwrap().anonymous(1000 * PAGE as u64).unwrap();
        for number in 0..1000 {
            region.store(number * PAGE as u64, &bytes(number)).unwrap();
        }
        for round in 0..3 {
            for number in 0..1000 {
                let got = load(&region, number * PAGE as u64, PAGE);
                assert_same(&got, &bytes(number), format_args!("{what}, round {round}, page {number}"));
            }
        }
        let [out, into, refaults] = swapped(&cache);
        // A page that memory has no room for has left it once, and comes back in each round.
        let absent = 1000 - BUDGET / PAGE as u64;
        assert!(
            out >= absent && into >= 3 * absent && into == refaults,
            "{what}: {out} out, {into} in, {refaults} refaults, {absent} at least absent"
        );
        cache.validate().unwrap();
        drop(region);
        cache.validate().unwrap();
        assert_eq!(counter(&cache, "", "anon"), 0, "{what}");
        let empty = cache.stats().swap_bytes;
        assert!(empty < 64 << 10, "{what}: {empty} bytes of nothing");
    });
}

/// Random loads, stores and discards of any length agree with an array.
#[test]
fn any_bytes_are_those_of_an_array() {
    each(|disk, swap| {
        let what = format!("{swap:?}");
        let cache = disk
            .builder(BUDGET)
            .swap(swap)
            .swappiness(mglru_core::lru::Swappiness::new(200).unwrap())
            .build()
            .unwrap();
        let length = 900 * PAGE + 123;
        let region = cache.tenant("").unwrap().anonymous(length as u64).unwrap();
        let mut array = vec![0u8; length];
        let mut random = Random(11);
        for step in 0..6000u64 {
            let at = random.below(length as u64) as usize;
            let most = if random.one_in(8) { 3 * PAGE } else { 200 };
            let end = (at + 1 + random.below(most as u64) as usize).min(length);
            match random.below(20) {
                0..=8 => {
                    let value = bytes(step);
                    let value: Vec<u8> = value.iter().copied().cycle().take(end - at).collect();
                    region.store(at as u64, &value).unwrap();
                    array[at..end].copy_from_slice(&value);
                }
                9 => {
                    let pages = at.div_ceil(PAGE) * PAGE..if end == length { end } else { end / PAGE * PAGE };
                    region.discard(at as u64..end as u64).unwrap();
                    if pages.start < pages.end {
                        array[pages].fill(0);
                    }
                }
                _ => assert_same(
                    &load(&region, at as u64, end - at),
                    &array[at..end],
                    format_args!("{what}, {step}"),
                ),
            }
        }
        assert_same(&load(&region, 0, length), &array, &what);
        assert!(swapped(&cache)[1] > 100, "{what}: {:?}", swapped(&cache));
        cache.validate().unwrap();
    });
}

/// Threads use separate parts of a region, while a file competes for memory.
#[test]
fn threads_load_their_own_stores() {
    each(|disk, swap| {
        disk.set("file", &crate::common::pages(0..600));
        let cache = disk.builder(BUDGET).swap(swap).build().unwrap();
        let region = cache.tenant("").unwrap().anonymous(800 * PAGE as u64).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let region = &region;
                scope.spawn(move || {
                    let mut random = Random(thread);
                    let mut last = [0u64; 200];
                    for step in 1..4000 {
                        let number = random.below(200);
                        let offset = (thread * 200 + number) * PAGE as u64;
                        if random.one_in(2) {
                            last[number as usize] = step;
                            region.store(offset, &bytes(step)).unwrap();
                        } else {
                            let last = last[number as usize];
                            let expected = if last == 0 { vec![0; PAGE] } else { bytes(last) };
                            assert_same(
                                &load(region, offset, PAGE),
                                &expected,
                                format_args!("page {number}"),
                            );
                        }
                    }
                });
            }
            let file = cache.open(disk.path("file"), mglru_cache::OpenMode::ReadOnly).unwrap();
            let mut random = Random(9);
            for _ in 0..3000 {
                let number = random.below(600);
                assert_same(
                    &crate::common::read(&file, number as usize * PAGE, PAGE),
                    &page(number),
                    "of the file",
                );
            }
        });
        cache.validate().unwrap();
    });
}

#[test]
fn without_swap_anonymous_memory_is_limited_by_the_budget() {
    let cache = Disk::threads().builder(BUDGET).build().unwrap();
    let region = cache.tenant("").unwrap().anonymous(8 << 20).unwrap();
    assert_eq!(load(&region, 5 << 20, 10), [0; 10]);
    let full = (0..2048)
        .find_map(|number| region.store(number * PAGE as u64, &bytes(number)).err().map(|e| (number, e)));
    let Some((stored, Error::OutOfMemory(_))) = full else { panic!("{full:?}") };
    for number in 0..stored {
        assert_same(&load(&region, number * PAGE as u64, PAGE), &bytes(number), "what was stored before");
    }
    cache.validate().unwrap();
    // Makes room again.
    region.discard(0..4 << 20).unwrap();
    region.store(5 << 20, b"more").unwrap();
    assert_eq!((load(&region, 5 << 20, 4), load(&region, 0, 4)), (b"more".to_vec(), vec![0; 4]));
}

/// Incompressible pages fill compressed memory, then stay in their frames. When both are full,
/// nothing can be swapped in until something is freed.
#[test]
fn compressed_memory_is_part_of_the_budget() {
    let cache = Disk::threads().builder(BUDGET).swap(Swap::compressed(256 << 10)).build().unwrap();
    let region = cache.tenant("").unwrap().anonymous(8 << 20).unwrap();
    let full = (0..2048).find(|&number| region.store(number * PAGE as u64, &page(number)).is_err());
    let stored = full.expect("8 MiB of noise do not fit");
    let stats = cache.stats();
    assert!(stats.swap_bytes > 200 << 10 && stats.swap_bytes <= 256 << 10, "{}", stats.swap_bytes);
    region.discard(0..64 * PAGE as u64).unwrap();
    for number in 64..stored {
        assert_same(&load(&region, number * PAGE as u64, PAGE), &page(number), format_args!("page {number}"));
    }
    cache.validate().unwrap();
}

/// The core's metadata per slot is also charged to the budget: 34 MiB for 8 GiB of swap.
#[test]
fn slots_are_part_of_the_budget() {
    let disk = Disk::Memory(MemoryFiles::new(4));
    let swap = Swap::file(Path::new("swap"), 8 << 30);
    let cache = disk.builder(64 << 20).swap(swap).build().unwrap();
    let stats = cache.stats();
    assert!(stats.metadata_bytes > (8 << 30) / 4096 * 16, "{}", stats.metadata_bytes);
    cache.validate().unwrap();
}

/// A truncated swap file is an error and must not read as zeros, not even after it grew again. A
/// real swap file has no name by which it could be truncated.
#[test]
fn a_swap_file_that_ends_early_is_an_error() {
    for grows_again in [false, true] {
        let (disk, _) = crate::common::memory(5);
        let swap = disk.path("swap");
        let cache = disk.builder(BUDGET).swap(Swap::file(&swap, 16 << 20)).build().unwrap();
        let region = cache.tenant("").unwrap().anonymous(1000 * PAGE as u64).unwrap();
        for number in 0..1000 {
            region.store(number * PAGE as u64, &bytes(number)).unwrap();
        }
        // After this nothing needs to be swapped out, which would extend the file with holes.
        region.discard(300 * PAGE as u64..1000 * PAGE as u64).unwrap();
        cache.validate().unwrap();
        disk.resize("swap", 0);
        if grows_again {
            // As far as it was, and all of it a hole.
            disk.resize("swap", 16 << 20);
        }
        let mut lost = 0;
        for number in 0..300 {
            let mut got = vec![0; PAGE];
            match region.load(number * PAGE as u64, &mut got) {
                Ok(()) => assert_same(&got, &bytes(number), format_args!("page {number}, in memory")),
                Err(error) => {
                    let kind = if grows_again { ErrorKind::InvalidData } else { ErrorKind::UnexpectedEof };
                    assert_eq!(error.io_error().unwrap().kind(), kind, "{error}");
                    lost += 1;
                }
            }
        }
        assert!(lost > 0);
        drop(region);
        cache.validate().unwrap();
    }
}

/// If a read from swap fails, that load fails, and the page remains for the next one. If a write
/// fails, the page stays in memory. With readahead, a load fails only if reading its page alone
/// fails, too.
#[test]
fn swap_that_fails_loses_nothing() {
    for (readahead_pages, failing, errors_min) in [(1, 10, 20), (8, 2, 20)] {
        let files = MemoryFiles::new(3);
        let disk = Disk::Memory(files.clone());
        let swap = Swap::file(Path::new("swap"), 16 << 20).readahead_pages(readahead_pages);
        let cache = disk.builder(BUDGET).swap(swap).build().unwrap();
        let region = cache.tenant("").unwrap().anonymous(1000 * PAGE as u64).unwrap();
        let fail = |operation, one_in| {
            let trigger = FaultTrigger::OneIn(one_in);
            files.inject(Fault::new(operation, trigger, FaultEffect::Error(libc::EIO)).on("swap"));
        };
        fail(FaultOperation::Write, 10);
        for number in 0..1000 {
            region.store(number * PAGE as u64, &bytes(number)).unwrap();
        }
        fail(FaultOperation::Read, failing);
        let mut errors = 0;
        for number in 0..1000 {
            let mut got = vec![0; PAGE];
            while let Err(error) = region.load(number * PAGE as u64, &mut got) {
                assert_eq!(error.io_error().unwrap().raw_os_error(), Some(libc::EIO));
                errors += 1;
            }
            assert_same(&got, &bytes(number), format_args!("page {number}"));
        }
        assert!(errors > errors_min, "{readahead_pages}: {errors}");
        cache.validate().unwrap();
    }
}

/// A program that goes through swapped-out memory, forwards or backwards, waits for few of the
/// pages, and one that jumps reads no page in vain, after its first.
#[test]
fn swapped_out_neighbours_come_together() {
    const PAGES: u64 = 2000;
    for disk in Disk::each(5) {
        for (readahead_pages, faults_per_page) in [(1, 1.0), (8, 0.25)] {
            let swap = Swap::file(disk.path("swap"), 16 << 20).readahead_pages(readahead_pages);
            let cache = disk.builder(BUDGET).swap(swap).build().unwrap();
            let region = cache.tenant("").unwrap().anonymous(PAGES * PAGE as u64).unwrap();
            for number in 0..PAGES {
                region.store(number * PAGE as u64, &bytes(number)).unwrap();
            }
            let counts = || ["pswpin", "pgmajfault"].map(|name| counter(&cache, "", name));
            let went = |pages: &mut dyn Iterator<Item = u64>| {
                let before = counts();
                for number in pages {
                    let got = load(&region, number * PAGE as u64, PAGE);
                    assert_same(&got, &bytes(number), format_args!("page {number}"));
                }
                let after = counts();
                [after[0] - before[0], after[1] - before[1]]
            };
            for [read, faults] in [went(&mut (0..PAGES)), went(&mut (0..PAGES).rev())] {
                let most = read as f64 * faults_per_page;
                assert!(read > PAGES / 2, "{read} of {PAGES} pages were in swap");
                assert!(faults as f64 <= most, "{readahead_pages}: {faults} faults for {read} pages");
            }
            let [read, faults] = went(&mut (0..PAGES).map(|step| step * 977 % PAGES));
            assert!(read <= faults + 20, "{readahead_pages}: {read} pages for {faults} faults");
            cache.validate().unwrap();
            drop(region);
        }
    }
}

#[test]
fn ranges_beyond_the_end_are_refused() {
    let cache = Disk::threads().builder(BUDGET).build().unwrap();
    let region = cache.tenant("").unwrap().anonymous(5000).unwrap();
    assert!(matches!(region.load(4999, &mut [0; 2]), Err(Error::BeyondEnd { end: 5001, len: 5000, .. })));
    assert!(matches!(region.store(u64::MAX, &[1]), Err(Error::BeyondEnd { .. })));
    assert!(matches!(region.discard(0..5001), Err(Error::BeyondEnd { .. })));
    assert!(matches!(cache.tenant("").unwrap().anonymous(u64::MAX), Err(Error::TooLarge { .. })));
    region.store(4990, &[7; 10]).unwrap();
    region.discard(0..5000).unwrap();
    assert_eq!((load(&region, 4990, 10), region.len(), region.is_empty()), (vec![0; 10], 5000, false));
    cache.validate().unwrap();
}
