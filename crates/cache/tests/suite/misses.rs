//! Misses: one read per missing page regardless of the number of readers, readahead for sequential
//! reads, and errors only for readers of the unreadable page.

use crate::common::{Disk, PAGE, assert_same, counter, memory, number, page, pages, read};
use mglru_cache::backend::{Fault, FaultEffect, FaultOperation, FaultTrigger};
use mglru_cache::{Advice, OpenMode, ReadRequest, ReadStream};
use std::io::{IoSlice, Write};

fn fault(trigger: FaultTrigger, effect: FaultEffect) -> Fault {
    Fault::new(FaultOperation::Read, trigger, effect)
}

fn bytes_of(pages: std::ops::Range<u64>) -> FaultTrigger {
    FaultTrigger::Within(pages.start * PAGE as u64..pages.end * PAGE as u64)
}

#[test]
fn eight_threads_that_want_one_page_read_it_once() {
    let (disk, files) = memory(1);
    disk.set("f", &pages(0..100));
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    file.advise(Advice::Random, 0..u64::MAX).unwrap();
    let map = file.map().unwrap();
    for number in 0..20 {
        files.hold();
        let before = files.counts("f").reads;
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (file, map) = (file.try_clone().unwrap(), &map);
                scope.spawn(move || {
                    let mut buffer = vec![0; PAGE];
                    match thread % 3 {
                        0 => assert_eq!(file.read_at(&mut buffer, number * PAGE as u64).unwrap(), PAGE),
                        1 => map.load(number * PAGE as u64, &mut buffer).unwrap(),
                        _ => buffer.copy_from_slice(&map.page(number as u32).unwrap()),
                    }
                    assert_same(&buffer, &page(number), "page");
                });
            }
            files.wait_held(1);
            files.release();
        });
        assert_eq!(files.counts("f").reads, before + 1, "page {number}");
    }
}

#[test]
fn many_pages_are_read_together() {
    let (disk, files) = memory(4);
    disk.set("f", &pages(0..1000));
    let cache = disk.builder(8 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    read(&file, 7 * PAGE, PAGE);
    // Page 7 is in memory, page 37 is requested twice, and the last request reaches beyond the end
    // of the file.
    let numbers: Vec<u64> = (0..30).map(|at| at * 30 + 7).chain([37, 999]).collect();
    let mut buffers = vec![vec![0; PAGE]; numbers.len()];
    let request = |(buffer, &number): (_, &u64)| {
        let offset = number * PAGE as u64 + if number == 999 { 100 } else { 0 };
        ReadRequest { offset, buffer, read: 0 }
    };
    let mut requests: Vec<_> = buffers.iter_mut().map(Vec::as_mut_slice).zip(&numbers).map(request).collect();
    files.hold();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| file.read_many(&mut requests).unwrap());
        files.wait_held(29);
        files.release();
        reader.join().unwrap();
    });
    let last = requests.pop().unwrap();
    assert_same(&last.buffer[..last.read], &page(999)[100..], "the last page");
    for (request, number) in requests.iter().zip(numbers) {
        assert_eq!(request.read, PAGE);
        assert_same(request.buffer, &page(number), "page");
    }
    let stats = cache.tenant("").unwrap().stats();
    assert_eq!((stats.hits, stats.misses), (2, 31), "page 7, and page 37 the second time");

    // A read beyond the end returns nothing; an unreadable page is an error of this call.
    let mut buffer = [0; 8];
    let mut beyond = [ReadRequest { offset: 1 << 40, buffer: &mut buffer, read: 9 }];
    file.read_many(&mut beyond).unwrap();
    assert_eq!(beyond[0].read, 0);
    files.inject(fault(bytes_of(500..501), FaultEffect::Error(libc::EIO)));
    let mut failing = [ReadRequest { offset: 500 * PAGE as u64, buffer: &mut buffer, read: 0 }];
    assert_eq!(number(file.read_many(&mut failing)), libc::EIO);
}

/// Reads of a file of `pages` pages, one after another, of which each checks its bytes.
struct Checked<'a> {
    pages: u64,
    offsets: std::vec::IntoIter<u64>,
    bytes: usize,
    /// Offsets of reads that have begun and not ended.
    open: Vec<u64>,
    most_open: usize,
    is_over: bool,
    ended: &'a mut Vec<u64>,
}

impl<'a> Checked<'a> {
    fn new(pages: u64, offsets: Vec<u64>, bytes: usize, ended: &'a mut Vec<u64>) -> Checked<'a> {
        let (offsets, open) = (offsets.into_iter(), Vec::new());
        Checked { pages, offsets, bytes, open, most_open: 0, is_over: false, ended }
    }
}

impl ReadStream for Checked<'_> {
    type Buffer = Vec<u8>;

    fn next(&mut self) -> Option<(u64, Vec<u8>)> {
        assert!(!self.is_over, "a stream that has ended is asked for nothing");
        self.is_over = self.offsets.as_slice().is_empty();
        let offset = self.offsets.next()?;
        self.open.push(offset);
        self.most_open = self.most_open.max(self.open.len());
        Some((offset, vec![0; self.bytes]))
    }

    /// A hint may be wrong: of every fourth read it is a page that nobody reads, or none at all.
    fn peek(&self) -> Option<u64> {
        let next = self.offsets.as_slice().first().copied();
        match self.ended.len() % 8 {
            0 => Some(u64::MAX),
            4 => Some(3 * PAGE as u64),
            _ => next,
        }
    }

    fn ended(&mut self, offset: u64, buffer: Vec<u8>, bytes: usize) {
        let at = self.open.iter().position(|&open| open == offset).expect("a read ends once");
        self.open.swap_remove(at);
        self.ended.push(offset);
        let expected = self.bytes.min((self.pages * PAGE as u64).saturating_sub(offset) as usize);
        assert_eq!(bytes, expected, "at {offset}");
        let first = offset / PAGE as u64;
        let there = pages(first..first + 3);
        assert_same(&buffer[..bytes], &there[offset as usize % PAGE..][..bytes], "the read's bytes");
    }
}

/// Of whole pages, parts of pages and pieces across their boundaries, some beyond the end of the
/// file, in much less memory than the file.
#[test]
fn the_reads_of_a_stream_each_begin_and_end() {
    const PAGES: u64 = 800;
    for disk in Disk::each(5) {
        disk.set("f", &pages(0..PAGES));
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadOnly).unwrap();
        for (depth, bytes, shift) in [(1, PAGE, 0), (32, 300, 40), (64, PAGE, 9), (200, PAGE, 0)] {
            let offset = |at: u64| at * 77 % (PAGES + 9) * PAGE as u64 + shift;
            let mut offsets: Vec<u64> = (0..2000).map(offset).collect();
            let mut ended = Vec::new();
            let mut reads = Checked::new(PAGES, offsets.clone(), bytes, &mut ended);
            file.read_stream(depth, &mut reads).unwrap();
            assert!(reads.open.is_empty(), "depth {depth}: {:?}", reads.open);
            assert!(reads.most_open <= 3 * depth + 8, "depth {depth}: {} at once", reads.most_open);
            offsets.sort_unstable();
            ended.sort_unstable();
            assert_eq!(ended, offsets, "depth {depth}");
        }
    }
}

/// Reads that go on until the first three have ended: two of one page and one across a boundary.
#[derive(Default)]
struct Endless {
    begun: u64,
    first_ended: usize,
}

impl Endless {
    const FIRST: [u64; 3] = [0, 300, 8 * PAGE as u64 - 100];
    /// No device answers so many reads before an earlier one.
    const MANY: u64 = 200_000;
}

impl ReadStream for Endless {
    type Buffer = [u8; 200];

    fn next(&mut self) -> Option<(u64, [u8; 200])> {
        if self.first_ended == Self::FIRST.len() || self.begun == Self::MANY {
            return None;
        }
        self.begun += 1;
        let other = (20 + self.begun * 77 % 700) * PAGE as u64;
        Some((*Self::FIRST.get(self.begun as usize - 1).unwrap_or(&other), [0; 200]))
    }

    fn ended(&mut self, offset: u64, _: [u8; 200], bytes: usize) {
        assert_eq!(bytes, 200);
        self.first_ended += usize::from(Self::FIRST.contains(&offset));
    }
}

#[test]
fn no_read_waits_for_the_end_of_its_stream() {
    for disk in Disk::each(5) {
        disk.set("f", &pages(0..800));
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadOnly).unwrap();
        let mut reads = Endless::default();
        file.read_stream(16, &mut reads).unwrap();
        assert!(reads.begun < Endless::MANY, "{} of three reads ended", reads.first_ended);
    }
}

/// No read begins after it, and no page stays locked.
#[test]
fn a_stream_ends_with_the_first_read_that_fails() {
    let (disk, files) = memory(4);
    disk.set("f", &pages(0..1000));
    let cache = disk.builder(8 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    files.inject(fault(bytes_of(500..501), FaultEffect::Error(libc::EIO)));
    let mut ended = Vec::new();
    let offsets = (0..1000).map(|at| at * PAGE as u64).collect();
    let mut reads = Checked::new(1000, offsets, PAGE, &mut ended);
    assert_eq!(number(file.read_stream(16, &mut reads)), libc::EIO);
    let left = reads.offsets.len();
    assert!((400..500).contains(&left), "{left} reads did not begin");
    assert!((485..=500 + 16).contains(&ended.len()), "{} reads ended", ended.len());
    assert!(!ended.contains(&(500 * PAGE as u64)));
    let offsets = (501..1000).map(|at| at * PAGE as u64).collect();
    let mut ended = Vec::new();
    file.read_stream(16, &mut Checked::new(1000, offsets, PAGE, &mut ended)).unwrap();
    assert_eq!(ended.len(), 499);
}

/// In far less memory than the file's size, also on real files.
#[test]
fn many_pages_are_read_through_little_memory() {
    for disk in Disk::each(5) {
        disk.set("f", &pages(0..800));
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadOnly).unwrap();
        let mut buffers = vec![vec![0; PAGE]; 800];
        for round in [1, 7, 333] {
            let number = |at: usize| (at * round + 5) % 800;
            let request = |(at, buffer)| ReadRequest { offset: (number(at) * PAGE) as u64, buffer, read: 0 };
            let mut requests: Vec<_> =
                buffers.iter_mut().map(Vec::as_mut_slice).enumerate().map(request).collect();
            file.read_many(&mut requests).unwrap();
            for (at, request) in requests.iter().enumerate() {
                assert_eq!(request.read, PAGE);
                assert_same(request.buffer, &page(number(at) as u64), "page");
            }
        }
    }
}

#[test]
fn a_sequential_reader_reads_few_large_pieces() {
    let (disk, files) = memory(2);
    disk.set("f", &pages(0..1000));
    let cache = disk.builder(16 << 20).tenant("t", 8 << 20).build().unwrap();
    let file = cache.tenant("t").unwrap().open("f", OpenMode::ReadOnly).unwrap();
    for number in 0..1000 {
        assert_same(&read(&file, number * PAGE, PAGE), &page(number as u64), "page");
    }
    let counts = files.counts("f");
    assert_eq!(counts.read_bytes, 1000 * PAGE as u64, "no page twice, none beyond the end");
    assert!(counts.reads < 60, "{counts:?}: windows are of 32 pages");
    let stats = cache.tenant("t").unwrap().stats();
    assert_eq!(stats.counter("file"), Some(1000), "readahead is charged to the reader's tenant");
    assert!((1000..1008).contains(&stats.usage_pages), "{stats:?}");
    assert_eq!(cache.tenant("").unwrap().stats().usage_pages, 0);
    assert!(stats.misses < 60 && stats.hits + stats.misses == 1000, "{stats:?}");

    file.advise(Advice::DontNeed, 0..u64::MAX).unwrap();
    file.advise(Advice::Sequential, 0..u64::MAX).unwrap();
    for number in 0..1000 {
        read(&file, number * PAGE, PAGE);
    }
    assert!(files.counts("f").reads - counts.reads < 30, "twice as far ahead: {:?}", files.counts("f"));
}

#[test]
fn a_large_buffer_is_filled_by_large_reads() {
    for disk in Disk::each(3) {
        let contents = pages(0..500);
        disk.set("f", &contents[..contents.len() - 100]);
        let cache = disk.builder(1 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadOnly).unwrap();
        let mut buffer = vec![0; contents.len()];
        let expected = &contents[3..contents.len() - 100];
        assert_eq!(file.read_at(&mut buffer, 3).unwrap(), expected.len());
        assert_same(&buffer[..expected.len()], expected, "all");
        if let Disk::Memory(files) = &disk {
            assert!(files.counts("f").reads < 50, "{:?}", files.counts("f"));
        }
    }
}

#[test]
fn with_advice_random_one_page_is_read() {
    let (disk, files) = memory(4);
    disk.set("f", &pages(0..1000));
    let cache = disk.builder(8 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    file.advise(Advice::Random, 0..u64::MAX).unwrap();
    for number in [0, 1, 2, 3, 500, 501, 502, 999] {
        read(&file, number * PAGE, PAGE);
    }
    let counts = files.counts("f");
    assert_eq!((counts.reads, counts.read_bytes), (8, 8 * PAGE as u64));
    // Other advice does not cancel it.
    file.advise(Advice::DontNeed, 0..8 * PAGE as u64).unwrap();
    for number in 0..4 {
        read(&file, number * PAGE, PAGE);
    }
    assert_eq!(files.counts("f").read_bytes - counts.read_bytes, 4 * PAGE as u64);
}

#[test]
fn will_need_brings_pages_in_and_dont_need_drops_them() {
    let (disk, files) = memory(5);
    disk.set("f", &pages(0..100));
    let cache = disk.builder(8 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    file.advise(Advice::WillNeed, 10 * PAGE as u64..90 * PAGE as u64).unwrap();
    for number in 10..90 {
        assert_same(&read(&file, number * PAGE, PAGE), &page(number as u64), "page");
    }
    assert_eq!(files.counts("f").read_bytes, 80 * PAGE as u64);
    assert_eq!(cache.tenant("").unwrap().stats().misses, 0);
    file.write_at(&page(7), 20 * PAGE as u64).unwrap();
    file.advise(Advice::DontNeed, 0..u64::MAX).unwrap();
    file.sync_data().unwrap();
    file.advise(Advice::DontNeed, 0..u64::MAX).unwrap();
    assert_eq!(counter(&cache, "", "file"), 0);
    assert_same(&read(&file, 20 * PAGE, PAGE), &page(7), "written page");
    // Meaningless ranges do no harm.
    for range in [u64::MAX - 1..u64::MAX, 0..0, 1 << 60..1 << 61] {
        for advice in [Advice::WillNeed, Advice::DontNeed, Advice::Normal] {
            file.advise(advice, range.clone()).unwrap();
        }
    }
}

#[test]
fn an_unreadable_page_fails_only_its_own_readers() {
    let (disk, files) = memory(6);
    disk.set("f", &pages(0..64));
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    files.inject(fault(bytes_of(10..11), FaultEffect::Error(libc::EIO)));
    // Sequential, so that readahead covers the bad page, too.
    for number in 0..64 {
        let mut buffer = vec![0; PAGE];
        let result = file.read_at(&mut buffer, number * PAGE as u64);
        if number == 10 {
            assert_eq!(crate::common::number(result), libc::EIO);
        } else {
            result.unwrap();
            assert_same(&buffer, &page(number), "page");
        }
    }
    let mut buffer = vec![0; 20 * PAGE];
    assert_eq!(number(file.read_at(&mut buffer, 0)), libc::EIO, "the buffer includes the page");
    let map = file.map().unwrap();
    assert_eq!(number(map.load(10 * PAGE as u64 + 5, &mut buffer[..1])), libc::EIO);
    assert_eq!(number(map.page(10).map(|_| ())), libc::EIO);
    files.clear_faults();
    assert_same(&read(&file, 10 * PAGE, PAGE), &page(10), "repaired page");
    drop((map, file));
    cache.validate().unwrap();
}

#[test]
fn threads_that_wait_for_a_page_that_fails_try_themselves() {
    let (disk, files) = memory(7);
    disk.set("f", &pages(0..8));
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    file.advise(Advice::Random, 0..u64::MAX).unwrap();
    files.inject(fault(FaultTrigger::Nth(1), FaultEffect::Error(libc::EIO)));
    files.hold();
    let failed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let file = file.try_clone().unwrap();
                scope.spawn(move || {
                    let mut buffer = vec![0; PAGE];
                    let result = file.read_at(&mut buffer, 5 * PAGE as u64);
                    result.map(|_| assert_same(&buffer, &page(5), "page")).is_err()
                })
            })
            .collect();
        files.wait_held(1);
        files.release();
        threads.into_iter().filter_map(|thread| thread.join().unwrap().then_some(())).count()
    });
    assert_eq!(failed, 1, "only the reader of that page");
}

#[test]
fn short_reads_are_continued() {
    let (disk, files) = memory(8);
    disk.set("f", &pages(0..100));
    files.inject(fault(FaultTrigger::Always, FaultEffect::Short(1000)));
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    for number in 0..100 {
        assert_same(&read(&file, number * PAGE, PAGE), &page(number as u64), "page");
    }
}

#[test]
fn bytes_behind_the_end_of_the_last_page_are_zero() {
    for disk in Disk::each(9) {
        disk.set("f", &vec![0xff; PAGE + 10]);
        let cache = disk.builder(4 << 20).build().unwrap();
        let file = cache.open(disk.path("f"), OpenMode::ReadWrite).unwrap();
        let map = file.map().unwrap();
        assert_eq!(map.page(1).unwrap()[..], [0xff; 10]);
        // Truncated data does not come back, neither by extending the file nor by writing beyond
        // its end.
        file.truncate(PAGE as u64 + 4).unwrap();
        file.truncate(PAGE as u64 + 20).unwrap();
        file.write_at(&[1], 3 * PAGE as u64).unwrap();
        let mut expected = vec![0xff; PAGE + 4];
        expected.resize(3 * PAGE, 0);
        expected.push(1);
        assert_same(&read(&file, 0, expected.len()), &expected, "in the cache");
        file.sync_all().unwrap();
        assert_same(&disk.contents("f"), &expected, "on disk");
    }
}

/// A write of the standard library that fails has written nothing; this one had written two pages.
#[test]
fn a_write_ends_before_the_page_that_cannot_be_written() {
    let (disk, files) = memory(5);
    disk.set("f", &pages(0..10));
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    files.inject(fault(bytes_of(4..5), FaultEffect::Error(libc::EIO)));
    // The last page is overwritten in part, and must be read.
    let (bytes, start) = (pages(20..23), 2 * PAGE as u64);
    let short = 2 * PAGE + 10;
    assert_eq!(file.write_some_at(&bytes[..short], start).unwrap(), 2 * PAGE);
    assert!(file.write_some_at(&bytes[2 * PAGE..short], start + 2 * PAGE as u64).is_err());
    let mut cursor = file.cursor();
    cursor.set_position(start);
    let parts = [IoSlice::new(&bytes[..PAGE]), IoSlice::new(&bytes[PAGE..short])];
    assert_eq!(cursor.write_vectored(&parts).unwrap(), 2 * PAGE);
    assert_eq!(cursor.position(), start + 2 * PAGE as u64);
    assert!(cursor.write_all(&bytes[2 * PAGE..short]).is_err());
    assert!(file.write_at(&bytes[..short], start).is_err());
    files.clear_faults();
    assert_same(&read(&file, 2 * PAGE, 3 * PAGE), &[&bytes[..2 * PAGE], &page(4)[..]].concat(), "pages");
}
