//! Effects of reads, loads and write-back on the state of pages and files that only this crate can
//! see.

use crate::backend::{BackendKind, Fault, FaultEffect, FaultOperation, FaultTrigger, MemoryFiles};
use crate::host::CacheHost;
use crate::workers::Workers;
use crate::{Advice, AnonRegion, CachedFile, Error, Map, OpenMode, PageCache, ReadRequest};
use mglru_core::folio::Flags;
use mglru_core::{Counter, Hit, LockAttempt, Lookup, Lru, Mechanisms, MemcgId, Throttle};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// The shortest pause of a throttled writer.
const TICK: Duration = Duration::from_millis(4);

/// Actions to run at a point where another thread may interleave, one per visit.
#[derive(Default)]
pub(crate) struct Acts(Mutex<VecDeque<Act>>);

type Act = Box<dyn FnOnce() + Send>;

impl Acts {
    fn push(&self, act: impl FnOnce() + Send + 'static) {
        self.0.lock().unwrap().push_back(Box::new(act));
    }

    fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }

    fn clear(&self) {
        self.0.lock().unwrap().clear();
    }

    pub(crate) fn next(&self) {
        let act = self.0.lock().unwrap().pop_front();
        act.into_iter().for_each(|act| act());
    }
}

/// An empty file of a new cache.
fn created() -> (Arc<MemoryFiles>, PageCache, CachedFile) {
    let files = MemoryFiles::new(1);
    let cache = PageCache::builder(8 << 20).backend(BackendKind::Memory(files.clone())).build().unwrap();
    let file = cache.open("f", OpenMode::Create).unwrap();
    (files, cache, file)
}

fn open(pages: usize) -> (PageCache, CachedFile) {
    open_under(multigen(), pages)
}

fn open_under(mechanisms: Mechanisms, pages: usize) -> (PageCache, CachedFile) {
    let files = MemoryFiles::new(1);
    let contents: Vec<u8> = (0..pages * PAGE).map(|at| (at / PAGE * 31 + at) as u8).collect();
    files.set_contents("f", &contents);
    let builder = PageCache::builder(8 << 20).mechanisms(mechanisms);
    let cache = builder.backend(BackendKind::Memory(files)).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    (cache, file)
}

/// The multi-gen LRU, which counts every recorded access in the folio's state.
fn multigen() -> Mechanisms {
    Mechanisms::default().with_lru(Lru::MultiGen)
}

fn random(pages: usize) -> (PageCache, CachedFile) {
    let (cache, file) = open(pages);
    file.advise(Advice::Random, 0..0).unwrap();
    (cache, file)
}

fn hit(file: &CachedFile, index: u32) -> Hit {
    match file.shared.core.lookup(&file.inode.mapping, index) {
        Lookup::Hit(hit) => hit,
        other => panic!("page {index}: {other:?}"),
    }
}

fn flags(file: &CachedFile, index: u32) -> Flags {
    hit(file, index).flags
}

fn read(file: &CachedFile, offset: usize, bytes: usize) {
    assert_eq!(file.read_at(&mut vec![0; bytes], offset as u64).unwrap(), bytes);
}

/// [book: access#checks]: "Reading a 4096-byte page in 512-byte sequential reads on one open file
/// records 1 access, not 8".
#[test]
fn a_page_read_in_pieces_is_one_access() {
    let (_cache, file) = random(4);
    for page in 0..3 {
        for piece in 0..8 {
            read(&file, page * PAGE + piece * 512, 512);
        }
    }
    assert_eq!([0, 1, 2].map(|index| flags(&file, index).nrefs(multigen())), [1, 1, 1]);
}

/// Under `ranked`, a read that begins with the page counts each time; pieces of a page, or reads
/// from inside of it, count once.
#[test]
fn whole_pages_read_again_count_under_ranked() {
    let (_cache, file) = open_under(Mechanisms::default(), 4);
    file.advise(Advice::Random, 0..0).unwrap();
    (0..3).for_each(|_| read(&file, 0, PAGE));
    (0..8).for_each(|piece| read(&file, PAGE + piece * 512, 512));
    (0..3).for_each(|_| read(&file, 2 * PAGE + 100, 512));
    // The access that brings a page in is not among `refs`.
    assert_eq!([0, 1, 2].map(|index| flags(&file, index).refs()), [2, 0, 0]);
}

/// [book: access#checks]: "Reading the same page from two open files alternately records one access
/// per read".
#[test]
fn two_open_files_count_for_themselves() {
    let (_cache, file) = random(4);
    let other = file.try_clone().unwrap();
    for reads in 1..=2 {
        // Each handle leaves the page in between, from its own point of view.
        for handle in [&file, &other] {
            read(handle, 0, 100);
            read(handle, PAGE, 100);
        }
        assert_eq!(flags(&file, 0).nrefs(multigen()), 2 * reads);
    }
    let (_cache, file) = random(4);
    let other = file.try_clone().unwrap();
    read(&file, 0, 100);
    read(&other, 0, 100);
    assert_eq!(flags(&file, 0).nrefs(multigen()), 2);
}

/// [book: access#descriptor-accesses]: "1 for each of the k (the first subject to the exception
/// above)".
#[test]
fn only_the_first_page_of_a_read_can_go_on_from_the_last() {
    let (_cache, file) = random(10);
    read(&file, 5 * PAGE, 10);
    read(&file, 4 * PAGE, 3 * PAGE);
    assert_eq!([4, 5, 6].map(|index| flags(&file, index).nrefs(multigen())), [1, 2, 1]);
    read(&file, 6 * PAGE, 2 * PAGE);
    assert_eq!([6, 7].map(|index| flags(&file, index).nrefs(multigen())), [1, 1], "the last one ended in 6");
}

/// [book: access#checks]: "Read-ahead alone leaves R=0".
#[test]
fn readahead_is_no_access() {
    let (_cache, file) = open(100);
    read(&file, 0, PAGE);
    assert_eq!(file.inode.mapping.folios(), 4, "the first window");
    assert!(flags(&file, 0).referenced());
    assert!((1..4).all(|index| !flags(&file, index).referenced() && flags(&file, index).refs() == 0));
    file.advise(Advice::WillNeed, 10 * PAGE as u64..20 * PAGE as u64).unwrap();
    file.shared.backend.drain();
    assert!((10..20).all(|index| !flags(&file, index).referenced()));
}

#[test]
fn a_write_is_no_access() {
    let (_cache, file) = random(10);
    read(&file, 0, PAGE);
    for _ in 0..5 {
        file.write_at(&[1; 100], 0).unwrap();
        file.write_at(&[1; PAGE], 4 * PAGE as u64).unwrap();
    }
    assert_eq!((flags(&file, 0).nrefs(multigen()), flags(&file, 4).nrefs(multigen())), (1, 0));
}

#[test]
fn a_mapped_access_sets_bits_once_and_then_writes_nothing() {
    let (cache, file) = random(10);
    let map = file.map().unwrap();
    let mut word = [0; 8];
    map.load(3 * PAGE as u64, &mut word).unwrap();
    assert!(flags(&file, 3).mapped());
    let before = format!("{:?}", hit(&file, 3));
    assert!(before.contains("mapped"), "{before}");
    let faults = cache.tenant("").unwrap().stats().counter("pgfault");
    for _ in 0..100 {
        map.load(3 * PAGE as u64 + 100, &mut word).unwrap();
    }
    assert_eq!(format!("{:?}", hit(&file, 3)), before, "slot and flags are as they were");
    let guard = map.page(3).unwrap();
    assert_eq!(flags(&file, 3).references(), hit(&file, 3).flags.references());
    drop(guard);
    assert_eq!(format!("{:?}", hit(&file, 3)), before);
    assert_eq!(cache.tenant("").unwrap().stats().counter("pgfault"), faults);
}

/// A folio that was accessed five times is saturated: reading it once more writes nothing.
#[test]
fn a_hot_page_is_read_without_a_write() {
    let (_cache, file) = random(10);
    for _ in 0..10 {
        read(&file, 0, 10);
        read(&file, PAGE, 10);
    }
    let before = format!("{:?}", hit(&file, 0));
    for _ in 0..10 {
        read(&file, 0, 10);
        read(&file, PAGE, 10);
    }
    assert_eq!(format!("{:?}", hit(&file, 0)), before);
}

/// The first access to a page may be a store, which changes the content before it returns.
#[test]
fn a_store_maps_the_page() {
    let (cache, file) = random(10);
    read(&file, 0, 10);
    let map = file.map().unwrap();
    map.store(5, b"x").unwrap();
    assert!(flags(&file, 0).mapped() && flags(&file, 0).dirty());
    assert_eq!(cache.tenant("").unwrap().stats().counter("file_mapped"), Some(1));
    drop(map);
    assert!(!flags(&file, 0).mapped());
    assert_eq!(cache.tenant("").unwrap().stats().counter("file_mapped"), Some(0));
}

/// Each tenant has its own address space: one tenant's unmap leaves the others' maps of the file.
#[test]
fn maps_of_two_tenants_come_and_go() {
    let files = MemoryFiles::new(1);
    files.set_contents("f", &[7; 10 * PAGE]);
    let builder = PageCache::builder(8 << 20).backend(BackendKind::Memory(files));
    let cache = builder.tenant("a", 1 << 20).tenant("b", 1 << 20).build().unwrap();
    let open = |name| cache.tenant(name).unwrap().open("f", OpenMode::ReadOnly).unwrap();
    let (a, b) = (open("a"), open("b"));
    let (first, second) = (a.map().unwrap(), b.map().unwrap());
    first.page(2).unwrap();
    drop(first);
    drop(a);
    assert_eq!(second.page(2).unwrap()[..], [7; PAGE]);
    assert!(b.inode.mapping.mapped_pages() == 10 && flags(&b, 2).mapped());
    drop(second);
    assert_eq!(b.inode.mapping.mapped_pages(), 0);
    assert!(b.inode.maps().is_empty() && !flags(&b, 2).mapped());
    cache.validate().unwrap();
}

/// The flusher extends a file during a length check; the check must not mistake that for a
/// truncation by another process.
#[test]
fn write_back_is_not_taken_for_a_cut() {
    let (files, _cache, file) = created();
    file.write_at(&[7; 2 * PAGE], 0).unwrap();
    // After each check, one more page is on the disk; no page is dirty after the second.
    for end in 1..=2 {
        let (shared, inode) = (file.shared.clone(), file.inode.clone());
        files.after_looks.push(move || {
            shared.submit_dirty_in(&inode, 0, end);
            inode.wait_for_transfers();
        });
    }
    file.inode.revalidate(&file.shared).unwrap();
    assert!(files.after_looks.is_empty());
    assert_eq!((file.len(), file.inode.disk_len()), (2 * PAGE as u64, 2 * PAGE as u64));
    // The write must not land on a page of zeros.
    file.write_at(b"!", PAGE as u64 + 9).unwrap();
    file.sync_data().unwrap();
    let mut expected = vec![7; 2 * PAGE];
    expected[PAGE + 9] = b'!';
    assert!(files.contents("f").unwrap() == expected);
}

/// While a read looks at a page and at the file's length, the file is truncated, and a write fills
/// it again: what is read is what the file had at some time, and no zeros from in between.
#[test]
fn a_read_beside_a_truncation_and_a_write_has_no_zeros_that_were_not_there() {
    let cut = PAGE as u64 + 100;
    type Read = fn(&CachedFile, &Map) -> Vec<u8>;
    fn load(map: &Map, offset: usize, bytes: usize) -> Vec<u8> {
        let mut loaded = vec![0; bytes];
        map.load(offset as u64, &mut loaded).map_or(Vec::new(), |()| loaded)
    }
    let reads: [Read; 7] = [
        |file, _| {
            let mut read = vec![0; 200];
            let bytes = file.read_at(&mut read, PAGE as u64 + 50).unwrap();
            read[..bytes].to_vec()
        },
        |file, _| {
            let mut read = vec![0; 2 * PAGE];
            let bytes = file.read_at(&mut read, 0).unwrap();
            read[..bytes].to_vec()
        },
        |file, _| {
            let mut read = vec![0; 200];
            let mut requests = [ReadRequest { offset: PAGE as u64 + 50, buffer: &mut read, read: 0 }];
            file.read_many(&mut requests).unwrap();
            let [ReadRequest { read: bytes, .. }] = requests;
            read[..bytes].to_vec()
        },
        |_, map| load(map, PAGE + 50, 200),
        |_, map| load(map, 50, PAGE + 200),
        |_, map| {
            let mut loaded = [[0; 200]; 2];
            let result = map.load_many(&[PAGE as u64 + 50, 0], &mut loaded);
            result.map_or(Vec::new(), |()| loaded.concat())
        },
        |_, map| {
            let view = map.read_page(1, |page| {
                let mut loaded = vec![0; page.len()];
                page.load(0, &mut loaded).unwrap();
                loaded
            });
            view.unwrap_or_default()
        },
    ];
    let mut failed = Vec::new();
    for (kind, mapped_early, looks) in
        (0..reads.len() * 16).map(|case| (case / 16, case % 2 > 0, case / 2 % 8))
    {
        let (_files, _cache, file) = created();
        // A range has the slots of those pages that the file had when it was mapped.
        let early = mapped_early.then(|| {
            file.truncate(3 * PAGE as u64).unwrap();
            file.map().unwrap()
        });
        file.write_at(&[7; 3 * PAGE], 0).unwrap();
        let map = early.unwrap_or_else(|| file.map().unwrap());
        // All accesses are counted, and all accessed bits set.
        for _ in 0..5 {
            read(&file, 0, 3 * PAGE);
            load(&map, 0, 3 * PAGE);
        }
        (0..looks).for_each(|_| file.inode.looks[1].push(|| ()));
        let (other, inode) = (file.try_clone().unwrap(), file.inode.clone());
        file.inode.looks[1].push(move || {
            other.truncate(cut).unwrap();
            inode.looks[0].push(move || _ = other.write_at(&[8; 2 * PAGE], cut).unwrap());
        });
        let bytes = reads[kind](&file, &map);
        file.inode.looks.iter().for_each(Acts::clear);
        if !bytes.iter().all(|byte| [7, 8].contains(byte)) {
            failed.push((kind, mapped_early, looks));
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

/// The file ends in the page by the time that the page is lent.
#[test]
fn a_page_lent_beside_a_truncation_ends_where_the_file_does() {
    let (_files, _cache, file) = created();
    file.write_at(&[7; 3 * PAGE], 0).unwrap();
    let other = file.try_clone().unwrap();
    file.inode.looks[1].push(move || other.truncate(PAGE as u64 + 100).unwrap());
    assert!(file.cached_page(1).unwrap()[..] == [7; 100]);
    let other = file.try_clone().unwrap();
    file.inode.looks[1].push(move || other.truncate(10).unwrap());
    assert!(file.cached_page(1).is_none());
}

/// Work in steps, such as the lowering of a limit, is cancelled if the cache is closed meanwhile:
/// dropped, it could keep its tenant from aging.
#[test]
fn work_in_steps_is_cancelled_when_the_cache_is_closed() {
    let (_files, _cache, file) = created();
    let (shared, mut cancelled) = (&file.shared, None);
    let step = |steps: &mut u32| {
        *steps += 1;
        if *steps == 3 {
            Workers::tell_to_stop(shared);
        }
        Ok(Some(Some(Throttle::NoProgress)))
    };
    let result = shared.run_steps(0, step, |steps| cancelled = Some(steps));
    assert!(matches!(result, Err(Error::Closed)));
    assert_eq!(cancelled, Some(3));
}

/// A read finds that another process has shortened the file. While it looks at the length, another
/// read finds the zeros in memory that the first one got: they are no part of the file.
#[test]
fn a_suspicion_holds_until_the_length_is_known() {
    let (files, _cache, file) = created();
    file.write_at(&[7; 3 * PAGE], 0).unwrap();
    file.sync_data().unwrap();
    file.evict(0..3 * PAGE as u64).unwrap();
    let other = file.try_clone().unwrap();
    files.set_contents("f", &[7; 10]);
    let seen = Arc::new(Mutex::new(None));
    let found = seen.clone();
    files.after_looks.push(move || {
        *found.lock().unwrap() = Some(other.read_at(&mut [0; 100], 2 * PAGE as u64).unwrap());
    });
    assert_eq!(file.read_at(&mut [0; 100], 2 * PAGE as u64).unwrap(), 0);
    assert_eq!(*seen.lock().unwrap(), Some(0), "zeros behind the end");
    assert_eq!(file.len(), 10);
}

/// A file's last handle is closed and its write-back extends it while another thread opens it: the
/// new inode must not have the length from before.
#[test]
fn a_file_that_grows_while_it_is_opened_is_not_taken_for_shorter() {
    let (files, cache, file) = created();
    file.write_at(&[7; 2 * PAGE], 0).unwrap();
    // At every later look that holds no lock, other threads could use the inode as it is then.
    let (later, seen) = (files.clone(), Arc::new(Mutex::new(Vec::new())));
    let found = seen.clone();
    files.after_looks.push(move || {
        file.sync_data().unwrap();
        let (shared, inode) = (file.shared.clone(), file.inode.clone());
        drop(file);
        shared.forget_if_idle(&inode);
        for _ in 0..2 {
            let (shared, found, identity) = (shared.clone(), found.clone(), inode.identity);
            later.after_looks.push(move || {
                let Ok(inodes) = shared.inodes.try_lock() else { return };
                let lengths = inodes.find(identity).map(|inode| (inode.len(), inode.disk_len()));
                found.lock().unwrap().extend(lengths);
            });
        }
    });
    let again = cache.open("f", OpenMode::ReadWrite).unwrap();
    let whole = 2 * PAGE as u64;
    assert!(seen.lock().unwrap().iter().all(|&lengths| lengths == (whole, whole)));
    assert_eq!((again.inode.len(), again.inode.disk_len()), (whole, whole));
    let mut read = vec![0; 2 * PAGE];
    assert_eq!((again.len(), again.read_at(&mut read, 0).unwrap()), (whole, 2 * PAGE));
    assert!(read.iter().all(|&byte| byte == 7));
}

/// While a sync waits for the write of a page that is dirty again, another thread begins the next
/// write of it, and that write fails: the sync must not say that all is written.
#[test]
fn a_sync_waits_for_write_back_that_began_meanwhile() {
    for _ in 0..50 {
        let (files, _cache, file) = created();
        file.write_at(&[1; PAGE], 0).unwrap();
        files.hold();
        file.shared.submit_dirty(&file.inode);
        files.wait_held(1);
        file.write_at(&[2; PAGE], 0).unwrap();
        let trigger = FaultTrigger::Nth(2);
        let effect = FaultEffect::Error(libc::EIO);
        files.inject(Fault { path: None, operation: FaultOperation::Write, trigger, effect });
        let begun = file.inode.transfers_begun();
        let synced = std::thread::scope(|scope| {
            let sync = scope.spawn(|| file.sync_data());
            // Until the sync looks for dirty pages.
            while file.inode.transfers_begun() == begun {
                std::thread::yield_now();
            }
            files.release();
            while flags(&file, 0).writeback() {
                std::hint::spin_loop();
            }
            file.shared.submit_dirty(&file.inode);
            sync.join().unwrap()
        });
        assert!(synced.is_err());
    }
}

fn expires(file: &CachedFile) -> bool {
    file.shared.core.dirty_since(&file.inode.mapping).is_some()
}

#[test]
fn dirty_pages_expire() {
    let (files, _cache, file) = created();
    file.write_at(&[1; PAGE], 0).unwrap();
    file.write_at(&[1; PAGE], 100 * PAGE as u64).unwrap();
    file.advise(Advice::DontNeed, 0..PAGE as u64).unwrap();
    file.inode.wait_for_transfers();
    assert!(expires(&file), "page 100");
    file.sync_data().unwrap();
    assert!(!expires(&file));
    // A page dirtied again while it is being written is left for the next round.
    files.hold();
    file.write_at(&[2; PAGE], 0).unwrap();
    file.shared.submit_dirty(&file.inode);
    assert!(!expires(&file));
    file.write_at(&[3; PAGE], 0).unwrap();
    file.shared.submit_dirty(&file.inode);
    let expires_then = expires(&file);
    files.release();
    assert!(expires_then, "page 0");
    file.inode.wait_for_transfers();
    file.sync_data().unwrap();
    assert!(!expires(&file));
}

/// Rings for unrelated progress each time the waiter goes to sleep: if rings ended its waits, 16
/// waits would pass quickly.
fn ring_for_others<T>(file: &CachedFile, waiter: &ScopedJoinHandle<'_, T>) {
    let CacheHost { progress, closed, .. } = &file.shared.host;
    for sleeps in 0..40 {
        while progress.sleeps.load(Relaxed) + closed.sleeps.load(Relaxed) <= sleeps && !waiter.is_finished() {
            std::thread::yield_now();
        }
        progress.ring();
    }
}

/// A pause for dirtying ends when the cache is closed, and no progress wakes the paused thread.
#[test]
fn only_the_close_of_the_cache_ends_a_pause() {
    let (_, cache, file) = created();
    let shared = file.shared.clone();
    std::thread::scope(|scope| {
        let paused = scope.spawn(|| shared.park(Throttle::Dirty(Duration::from_secs(3600)), 0));
        while shared.host.closed.sleeps.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        shared.host.progress.ring();
        assert!(!paused.is_finished());
        assert_eq!(shared.host.progress.sleeps.load(Relaxed), 0, "it does not listen");
        Workers::tell_to_stop(&shared);
    });
    drop((file, cache));
}

/// With one failing file and one slow device, a writer to the slow device waits, regardless of
/// other progress.
#[test]
fn a_writer_waits_for_a_slow_device_beside_a_failing_file() {
    let files = MemoryFiles::new(1);
    let cache = PageCache::builder(2 << 20).backend(BackendKind::Memory(files.clone())).build().unwrap();
    let open = |path: &str| cache.open(path, OpenMode::Create).unwrap();
    let (failing, file) = (open("failing"), open("f"));
    files.inject(Fault {
        path: Some("failing".into()),
        operation: FaultOperation::Write,
        trigger: FaultTrigger::Always,
        effect: FaultEffect::Error(libc::EIO),
    });
    failing.write_at(&[1; PAGE], 0).unwrap();
    assert!(failing.sync_data().is_err());
    files.hold();
    let began = Instant::now();
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| file.write_at(&[1; 200 * PAGE], 0));
        ring_for_others(&file, &writer);
        files.release();
        writer.join().unwrap()
    });
    // Sixteen pauses take at least 64 ms.
    assert!(written.is_ok() || began.elapsed() >= 16 * TICK, "{written:?}");
    // Failing pages that are truncated no longer block writers.
    assert!(file.shared.failing().0.is_some());
    failing.truncate(0).unwrap();
    assert!(file.shared.failing().0.is_none());
}

/// A file and anonymous memory of a tenant that may have 1 MiB.
fn small_tenant() -> (PageCache, CachedFile, AnonRegion) {
    let files = MemoryFiles::new(1);
    let cache = PageCache::builder(8 << 20).backend(BackendKind::Memory(files)).tenant("t", 1 << 20);
    let cache = cache.build().unwrap();
    let tenant = cache.tenant("t").unwrap();
    let file = tenant.open("f", OpenMode::Create).unwrap();
    let region = tenant.anonymous(1 << 20).unwrap();
    (cache, file, region)
}

/// The flusher was asked to write the dirty pages in the way but has not started yet. The request
/// must wait, not fail for lack of memory.
#[test]
fn dirty_pages_are_waited_for_however_busy_others_are() {
    let (_cache, file, region) = small_tenant();
    let still = file.shared.at_work.write().unwrap();
    file.write_at(&[1; 24 * PAGE], 0).unwrap();
    let began = Instant::now();
    let stored = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| region.store(0, &[1; 250 * PAGE]));
        ring_for_others(&file, &waiter);
        drop(still);
        waiter.join().unwrap()
    });
    assert!(stored.is_ok() || began.elapsed() >= 16 * Throttle::Writeback.timeout(), "{stored:?}");
}

/// A request for memory waits for dirty pages when the cache is closed: it fails for that reason at
/// once, since no worker is left that would write them.
#[test]
fn a_request_for_memory_ends_when_the_cache_is_closed() {
    let (cache, file, region) = small_tenant();
    // No page is written.
    let still = file.shared.at_work.write().unwrap();
    file.write_at(&[1; 24 * PAGE], 0).unwrap();
    let stored = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| region.store(0, &[1; 250 * PAGE]));
        while file.shared.host.progress.sleeps.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
        Workers::tell_to_stop(&file.shared);
        waiter.join().unwrap()
    });
    assert!(matches!(stored, Err(Error::Closed)), "{stored:?}");
    drop(still);
    drop(region);
    // No page is being written any more.
    let shared = file.shared.clone();
    drop((file, cache));
    shared.core.validate().unwrap();
}

/// Advice that a page is not needed leaves a lent page in memory. Otherwise the page could get a
/// second frame, which a writer changes beside the lent one.
#[test]
fn advice_does_not_drop_a_lent_page() {
    let files = MemoryFiles::new(1);
    files.set_contents("f", &[7; 10 * PAGE]);
    let builder = PageCache::builder(8 << 20).backend(BackendKind::Memory(files));
    let cache = builder.tenant("a", 1 << 20).tenant("b", 1 << 20).build().unwrap();
    let open = |name| cache.tenant(name).unwrap().open("f", OpenMode::ReadWrite).unwrap();
    let (a, b) = (open("a"), open("b"));
    let (first, second) = (a.map().unwrap(), b.map().unwrap());
    let guard = second.page(2).unwrap();
    let folio = hit(&b, 2).folio;
    // It takes the page-table entries of all tenants with it: the page is mapped no more.
    drop(first);
    assert!(!flags(&b, 2).mapped());
    a.advise(Advice::DontNeed, 0..10 * PAGE as u64).unwrap();
    assert_eq!(hit(&b, 2).folio, folio, "the lent page stays");
    drop(guard);
    a.advise(Advice::DontNeed, 0..10 * PAGE as u64).unwrap();
    assert!(matches!(b.shared.core.lookup(&b.inode.mapping, 2), Lookup::Miss));
    cache.validate().unwrap();
}

/// Sleeps until a thread waits for a page.
fn await_waiter(file: &CachedFile, index: u32) {
    // A locked page is pending, and may have a waiter, too.
    let has_waiter = || match file.shared.core.lookup(&file.inode.mapping, index) {
        Lookup::Hit(hit) => hit.flags.waiters(),
        Lookup::Pending(folio) => file.shared.core.folios().flags(folio).load().waiters(),
        Lookup::Miss => panic!("page {index} is gone"),
    };
    while !has_waiter() {
        std::thread::yield_now();
    }
}

/// A writer that waits for a guard keeps no truncation waiting, behind which the thread with the
/// guard would wait as soon as it writes to another page.
#[test]
fn a_writer_that_waits_for_a_guard_does_not_delay_truncation() {
    let (_cache, file) = random(10);
    let map = file.map().unwrap();
    std::thread::scope(|scope| {
        let guard = map.page(0).unwrap();
        let writer = scope.spawn(|| file.write_at(&[9; PAGE], 0));
        await_waiter(&file, 0);
        let truncation = scope.spawn(|| file.truncate(6 * PAGE as u64));
        let mut turns = 0;
        while !truncation.is_finished() {
            turns += 1;
            assert!(turns < 100_000_000, "the truncation waits for the guard");
            std::thread::yield_now();
        }
        assert_eq!(file.write_at(&[2; PAGE], 5 * PAGE as u64).unwrap(), PAGE);
        assert!(guard[1] == 1 && !writer.is_finished());
        drop(guard);
        assert_eq!(writer.join().unwrap().unwrap(), PAGE);
        truncation.join().unwrap().unwrap();
    });
    assert_eq!((file.len(), map.page(0).unwrap()[..] == [9; PAGE]), (6 * PAGE as u64, true));
}

/// The page that a writer waits for is truncated: the writer goes on with a new one, although the
/// old one stays lent.
#[test]
fn a_writer_does_not_wait_for_a_guard_of_a_truncated_page() {
    let (_cache, file) = random(3);
    let map = file.map().unwrap();
    let guard = map.page_owned(2).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| file.write_at(&[9; PAGE], 2 * PAGE as u64));
        await_waiter(&file, 2);
        let folio = hit(&file, 2).folio;
        file.truncate(PAGE as u64).unwrap();
        let mut turns = 0;
        while !writer.is_finished() {
            turns += 1;
            assert!(turns < 100_000_000, "the writer waits for the guard of {folio:?}");
            std::thread::yield_now();
        }
        assert_eq!(writer.join().unwrap().unwrap(), PAGE);
    });
    assert!(guard[1] != 9 && map.page(2).unwrap()[..] == [9; PAGE]);
    #[cfg(feature = "async")]
    {
        let newer = map.page_owned(2).unwrap();
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut writing = std::pin::pin!(file.write_at_async(&[8; PAGE], 2 * PAGE as u64));
        assert!(writing.as_mut().poll(&mut cx).is_pending());
        file.truncate(PAGE as u64).unwrap();
        assert!(writing.as_mut().poll(&mut cx).is_ready(), "the task waits for the guard");
        assert!(newer[..] == [9; PAGE] && map.page(2).unwrap()[..] == [8; PAGE]);
    }
}

/// Nor is a truncation that waits for the guard of the page in which the file will end.
#[test]
fn a_truncation_that_waits_for_a_guard_does_not_block_others() {
    let (_cache, file) = random(10);
    let map = file.map().unwrap();
    std::thread::scope(|scope| {
        let guard = map.page(0).unwrap();
        let truncation = scope.spawn(|| file.truncate(100));
        await_waiter(&file, 0);
        assert!(file.inode.resize.try_share(&file.shared.writers).is_some(), "writers are held up");
        assert_eq!(file.write_at(&[2; PAGE], 5 * PAGE as u64).unwrap(), PAGE);
        assert_eq!(guard.len(), PAGE);
        drop(guard);
        truncation.join().unwrap().unwrap();
    });
    file.truncate(PAGE as u64).unwrap();
    let page = map.page(0).unwrap();
    assert!(file.len() == PAGE as u64 && page[99] != 0 && page[100..].iter().all(|&byte| byte == 0));
}

/// No write-back begins until both ends of a hole are zeroed: it would write their old bytes, and
/// the page would count as clean.
#[test]
fn write_back_waits_until_the_ends_of_a_hole_are_zeroed() {
    let (files, _cache, file) = created();
    files.set_contents("f", &[7; 3 * PAGE]);
    file.invalidate().unwrap();
    file.write_at(&[8; PAGE], 2 * PAGE as u64).unwrap();
    let (shared, inode) = (&*file.shared, &file.inode);
    std::thread::scope(|scope| {
        let (locked, is_locked) = std::sync::mpsc::channel();
        let reader = file.try_clone().unwrap();
        // The first page is missing when the hole begins, and comes in locked.
        files.after_holes.push(move || {
            read(&reader, 0, PAGE);
            let Lookup::Hit(hit) = reader.shared.core.lookup(&reader.inode.mapping, 0) else { panic!() };
            let attempt = reader.shared.core.try_lock(&reader.shared.host, &reader.inode.mapping, 0, &hit);
            assert!(matches!(attempt, LockAttempt::Locked));
            locked.send(hit.folio).unwrap();
        });
        let hole = scope.spawn(|| file.punch_hole(100..2 * PAGE as u64 + 100));
        let folio = is_locked.recv().unwrap();
        await_waiter(&file, 0);
        let begun = inode.try_begin_transfer();
        shared.core.unlock(&shared.host, folio);
        shared.core.put(&shared.host, folio);
        begun.inspect(|&number| inode.end_transfer(number));
        hole.join().unwrap().unwrap();
        assert_eq!(begun, None);
    });
    file.sync_data().unwrap();
    let mut expected = [[7; PAGE], [0; PAGE], [8; PAGE]].concat();
    expected[100..2 * PAGE + 100].fill(0);
    assert!(files.contents("f").unwrap() == expected);
}

/// The first page is missing when a hole begins, and is lent when the hole is there. It is dropped
/// without waiting for the last page, which the hole itself has locked.
#[test]
fn a_hole_whose_first_page_is_lent_meanwhile_does_not_wait_for_itself() {
    let (files, _cache, file) = created();
    files.set_contents("f", &[7; 3 * PAGE]);
    file.invalidate().unwrap();
    read(&file, 2 * PAGE, PAGE);
    file.evict(0..PAGE as u64).unwrap();
    let (lent, is_lent) = std::sync::mpsc::channel();
    let map = file.map().unwrap();
    files.after_holes.push(move || lent.send(map.page_owned(0).unwrap()).unwrap());
    file.punch_hole(100..2 * PAGE as u64 + 100).unwrap();
    let guard = is_lent.recv().unwrap();
    assert!(guard[..100] == [7; 100]);
    let mut bytes = vec![1; 3 * PAGE];
    file.read_at(&mut bytes, 0).unwrap();
    let mut expected = vec![7; 3 * PAGE];
    expected[100..2 * PAGE + 100].fill(0);
    assert!(bytes == expected);
}

/// A reader adopts a length that another process changed, and waits for a page that must go. No
/// other reader takes the old length for the end meanwhile.
#[test]
fn readers_at_the_end_wait_for_the_one_that_adopts_a_new_length() {
    let (files, _cache, file) = created();
    files.set_contents("f", &[7; PAGE + 100]);
    file.invalidate().unwrap();
    files.hold();
    std::thread::scope(|scope| {
        scope.spawn(|| read(&file, PAGE, 10));
        files.wait_held(1);
        files.set_contents("f", &[7; 3 * PAGE]);
        let to_end = || file.read_at(&mut [0; 4 * PAGE], PAGE as u64).unwrap();
        let adopts = scope.spawn(to_end);
        await_waiter(&file, 1);
        #[cfg(feature = "async")]
        {
            let mut bytes = [0; 4 * PAGE];
            let mut future = std::pin::pin!(file.read_at_async(&mut bytes, PAGE as u64));
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(future.as_mut().poll(&mut cx).is_pending());
        }
        let other = scope.spawn(to_end);
        files.release();
        assert_eq!((adopts.join().unwrap(), other.join().unwrap()), (2 * PAGE, 2 * PAGE));
    });
}

/// A function of the user's that panics is the user's problem: nothing of the cache is lost in the
/// middle of what it was about.
#[test]
fn an_observer_that_panics_is_not_asked_again() {
    let files = MemoryFiles::new(1);
    files.set_contents("f", &[7; 1000 * PAGE]);
    let calls = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let counted = calls.clone();
    let builder = PageCache::builder(2 << 20).backend(BackendKind::Memory(files));
    let cache = builder
        .observer(move |_| {
            if counted.fetch_add(1, Relaxed) == 50 {
                std::panic::resume_unwind(Box::new("a test"));
            }
        })
        .build()
        .unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    assert!(!cache.stats().callback_panicked);
    for page in 0..1000 {
        read(&file, page * PAGE, PAGE);
    }
    let stats = cache.stats();
    assert!(stats.callback_panicked && stats.worker_panics == 0 && calls.load(Relaxed) < 100, "{stats:?}");
    cache.validate().unwrap();
}

/// On another thread, which has ended when this returns.
fn elsewhere(act: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(act).join().unwrap();
    });
}

#[test]
fn threads_that_share_a_handle_count_apart() {
    let (cache, file) = random(1);
    let read = |_| {
        let mut bytes = [1; 8];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7]);
    };
    let hits = |count| (0..count).for_each(read);
    // The accesses of the page are all counted then, and the first lane is this thread's.
    hits(100);
    elsewhere(|| hits(500));
    assert!(file.lanes_charge.get().is_none(), "a few hits of others are no reason");
    let bytes = || file.shared.core.memcg(MemcgId::ROOT).stat().get(Counter::SlabUnreclaimable);
    let before = bytes();
    elsewhere(|| hits(2000));
    let charge = file.lanes_charge.get().expect("two threads share the handle").bytes();
    assert!(charge > 0 && charge.is_multiple_of(128), "{charge}");
    assert_eq!(bytes() - before, charge);
    elsewhere(|| hits(1000));
    hits(400);
    let (hit, missed) = file.accesses();
    assert_eq!((hit + missed, missed), (4000, 1));
    drop(file);
    cache.validate().unwrap();
}

/// Owned guards share references to the cache, which the cache keeps until it is closed.
#[test]
fn a_closed_cache_is_freed_with_its_last_guard() {
    let (cache, file) = open(2);
    let map = file.map().unwrap();
    let before = map.page_owned(0).unwrap();
    let shared = Arc::downgrade(&file.shared);
    cache.close().unwrap();
    let after = map.page_owned(0).unwrap();
    drop((map, file));
    assert!(before[..] == after[..] && shared.strong_count() > 0);
    drop(before);
    assert!(shared.strong_count() > 0 && after.len() == PAGE);
    drop(after);
    assert_eq!(shared.strong_count(), 0);
}
