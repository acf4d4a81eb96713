//! Hits through descriptors, maps and guards do not allocate. Tenants allocate little, and so do
//! futures that wait for the device.

mod common;

use common::{Disk, PAGE, assert_same, page, pages};
use mglru_cache::{Limits, OpenMode};
use mglru_core::{Core, Memcg, Options, Time};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes allocated and not freed.
    static BYTES: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: passes everything on to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        BYTES.set(BYTES.get() + layout.size() as i64);
        // SAFETY: the caller's obligation.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.set(BYTES.get() - layout.size() as i64);
        // SAFETY: the caller's obligation; `System` allocated it.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

/// An empty memcg takes at most 2 KiB, a tenant of the cache 2.1 KiB, and at most its charge.
#[test]
fn an_empty_tenant_takes_little() {
    const TENANTS: i64 = 20_000;
    let core = Core::new(Options::new(64), Time::ZERO);
    // From its first child on, the root stores the order of its subtree.
    core.add_memcg("first", 1, Time::ZERO).unwrap();
    let before = BYTES.get();
    for number in 0..TENANTS {
        core.add_memcg(&format!("tenant-{number}"), 1, Time::ZERO).unwrap();
    }
    let bytes = (BYTES.get() - before) / TENANTS;
    println!("{bytes} bytes per empty memcg");
    assert!((500..=Memcg::BYTES as i64).contains(&bytes), "{bytes} bytes per empty memcg");
    let (disk, _files) = common::memory(1);
    let cache = disk.builder(256 << 20).build().unwrap();
    let (before, counted) = (BYTES.get(), cache.stats().metadata_bytes as i64);
    for number in 0..TENANTS {
        cache.add_tenant(&format!("tenant-{number}"), &Limits::default()).unwrap();
    }
    let bytes = (BYTES.get() - before) / TENANTS;
    let counted = (cache.stats().metadata_bytes as i64 - counted) / TENANTS;
    println!("{bytes} bytes per empty tenant, {counted} counted");
    assert!(bytes <= counted.min(2150), "{bytes} bytes per empty tenant, {counted} counted");
}

#[test]
fn hits_allocate_nothing() {
    for disk in Disk::each(1) {
        disk.set("f", &pages(0..200));
        let cache = disk.builder(8 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let map = file.map().unwrap();
        let mut buffer = vec![0; 200 * PAGE];
        let count = allocations(|| assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 200 * PAGE));
        assert!(count > 0, "misses do");
        assert_same(&buffer, &pages(0..200), "file");
        let expected = page(150);
        let count = allocations(|| {
            for round in 0..1000u64 {
                let number = round * 7 % 200;
                let offset = number * PAGE as u64;
                assert_eq!(file.read_at(&mut buffer[..PAGE], offset).unwrap(), PAGE);
                assert_eq!(file.read_at(&mut buffer[..10_000], offset / 2 + 3).unwrap(), 10_000);
                map.load(offset + 5, &mut buffer[..8]).unwrap();
                let offsets = [offset, offset + 4088, 16];
                let mut words = [[0; 8]; 3];
                map.load_many(&offsets, &mut words).unwrap();
                for (word, offset) in words.iter().zip(offsets) {
                    map.load(offset, &mut buffer[..8]).unwrap();
                    assert_eq!(word[..], buffer[..8]);
                }
                let guard = map.page(number as u32).unwrap();
                assert!(number != 150 || guard[..] == expected);
            }
        });
        assert_eq!(count, 0);
        // Neither do writes to cached pages that are already dirty.
        file.write_at(&expected, 0).unwrap();
        let count = allocations(|| {
            for _ in 0..100 {
                file.write_at(&expected, 0).unwrap();
                map.store(8, &expected[..8]).unwrap();
            }
        });
        assert_eq!(count, 0);
    }
}

/// Ten thousand reads under way at once: a bounded number of bytes each, and no thread for any.
#[cfg(feature = "async")]
#[test]
fn a_future_that_waits_takes_little_and_no_thread() {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    const READS: usize = 10_000;
    let (disk, files) = common::memory(2);
    disk.set("f", &vec![7; READS * PAGE]);
    let cache = disk.builder(48 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    file.advise(mglru_cache::Advice::Random, 0..0).unwrap();
    let mut buffers = vec![0; READS];
    files.hold();
    let before = BYTES.get();
    let mut reads: Vec<_> = buffers
        .iter_mut()
        .enumerate()
        .map(|(at, buffer)| file.read_at_async(std::slice::from_mut(buffer), (at * PAGE) as u64))
        .collect();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(reads.iter_mut().all(|read| Pin::new(read).poll(&mut cx).is_pending()));
    let bytes = (BYTES.get() - before) / READS as i64;
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    println!("{bytes} bytes per future, of which {} are itself; {threads} threads", size_of_val(&reads[0]));
    assert!(bytes <= 1000, "{bytes} bytes per future");
    // Those of all tests of this file, which run at the same time.
    assert!(threads < 100, "{threads} threads");
    files.release();
    let mut pending: Vec<_> = reads.iter_mut().collect();
    while !pending.is_empty() {
        pending.retain_mut(|read| match Pin::new(&mut **read).poll(&mut cx) {
            Poll::Ready(read) => read.unwrap() != 1,
            Poll::Pending => true,
        });
        std::thread::yield_now();
    }
    drop(reads);
    assert!(buffers.iter().all(|&byte| byte == 7));
}
