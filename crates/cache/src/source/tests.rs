//! Sources that do as they promise, and sources that do not.

use super::{BlockSource, FileSource, RangeRequest, SourceState};
use crate::{Advice, CachedFile, Error, OpenMode, PageCache};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub(crate) const PAGE: usize = 4096;

/// Bytes that differ in every word of every version.
pub(crate) fn content(version: u64, bytes: usize) -> Vec<u8> {
    let mut word = version << 40;
    let mut next = || {
        word += 1;
        word.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
    };
    let mut all: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| next()).collect();
    all.truncate(bytes);
    all
}

/// How a source answers requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Right,
    /// On a thread of its own, after `read_ranges` has returned.
    Later,
    /// One byte less than asked for.
    Short,
    /// The whole source, as a server that ignores ranges.
    Whole,
    FailsEveryThird,
    Fails(io::ErrorKind),
    Drops,
    Panics,
    /// Keeps requests until the test takes them.
    Keeps,
}

#[derive(Debug)]
pub(crate) struct Object {
    /// The version, and the manner of answering.
    pub(crate) now: Mutex<(u64, Manner)>,
    /// The content of version 1 and of version 2.
    pub(crate) contents: Arc<[Vec<u8>; 2]>,
    pub(crate) claims: u64,
    pub(crate) block_bytes: u64,
    pub(crate) asked: Mutex<Vec<Range<u64>>>,
    pub(crate) kept: Mutex<Vec<RangeRequest>>,
    pub(crate) count: AtomicU64,
}

pub(crate) fn object(bytes: usize) -> Object {
    Object {
        now: Mutex::new((1, Manner::Right)),
        contents: Arc::new([content(1, bytes), content(2, bytes)]),
        claims: bytes as u64,
        block_bytes: PAGE as u64,
        asked: Mutex::default(),
        kept: Mutex::default(),
        count: AtomicU64::new(0),
    }
}

impl Object {
    pub(crate) fn set(&self, version: u64, manner: Manner) {
        *self.now.lock().unwrap() = (version, manner);
    }

    fn answer(contents: &[Vec<u8>; 2], version: u64, manner: Manner, request: RangeRequest) {
        let all = &contents[version as usize - 1];
        let bytes = all.len();
        let range = request.range();
        let end = (range.end as usize).min(bytes);
        let part = &all[(range.start as usize).min(end)..end];
        let etag = version.to_string();
        match manner {
            Manner::Short => request.fulfil(Some(&etag), &part[..part.len() - 1]),
            Manner::Whole => request.fulfil(Some(&etag), all),
            _ => request.fulfil(Some(&etag), part),
        }
    }
}

impl BlockSource for Object {
    fn name(&self) -> String {
        "bucket/object".to_owned()
    }

    fn state(&self) -> io::Result<SourceState> {
        Ok(SourceState { len: self.claims, version: Some(self.now.lock().unwrap().0.to_string()) })
    }

    fn read_ranges(&self, requests: Vec<RangeRequest>) {
        let (version, manner) = *self.now.lock().unwrap();
        self.asked.lock().unwrap().extend(requests.iter().map(RangeRequest::range));
        match manner {
            Manner::Panics => std::panic::resume_unwind(Box::new("a test")),
            Manner::Drops => return,
            Manner::Keeps => return self.kept.lock().unwrap().extend(requests),
            Manner::Later => {
                let contents = self.contents.clone();
                std::thread::spawn(move || {
                    requests
                        .into_iter()
                        .rev()
                        .for_each(|one| Object::answer(&contents, version, manner, one));
                });
                return;
            }
            _ => {}
        }
        for request in requests {
            if let Manner::Fails(kind) = manner {
                request.fail(kind.into());
            } else if manner == Manner::FailsEveryThird && self.count.fetch_add(1, Relaxed) % 3 == 2 {
                request.fail(io::Error::new(io::ErrorKind::ConnectionReset, "the third"));
            } else {
                Object::answer(&self.contents, version, manner, request);
            }
        }
    }

    fn block_bytes(&self) -> u64 {
        self.block_bytes
    }
}

pub(crate) fn read(file: &CachedFile, page: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0xaa; PAGE];
    let read = file.read_at(&mut bytes, (page * PAGE) as u64)?;
    bytes.truncate(read);
    Ok(bytes)
}

#[track_caller]
pub(crate) fn assert_page(file: &CachedFile, page: usize, all: &[u8]) {
    let expected = &all[page * PAGE..all.len().min((page + 1) * PAGE)];
    assert!(read(file, page).unwrap() == expected, "page {page}");
}

pub(crate) fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> io::ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn each_page_is_asked_for_once_whoever_wants_it() {
    for manner in [Manner::Right, Manner::Later] {
        let object = Arc::new(object(200 * PAGE + 777));
        object.set(1, manner);
        let all = content(1, 200 * PAGE + 777);
        let cache = PageCache::builder(2 << 20).build().unwrap();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let file = cache.open_source(object.clone(), OpenMode::ReadOnly).unwrap();
                let all = &all;
                scope.spawn(move || {
                    (0..201).for_each(|step| assert_page(&file, (step * 7 + number * 20) % 201, all));
                });
            }
        });
        let mut asked = BTreeMap::new();
        for range in object.asked.lock().unwrap().iter() {
            for page in range.start / PAGE as u64..range.end.div_ceil(PAGE as u64) {
                *asked.entry(page).or_insert(0) += 1;
            }
        }
        assert_eq!(asked.len(), 201);
        assert!(asked.values().all(|&times| times == 1), "{asked:?}");
        let stats = cache.stats();
        assert_eq!((stats.source_bytes, stats.source_failures), (all.len() as u64, 0));
        assert!(stats.source_calls <= stats.source_ranges && stats.source_ranges > 0, "{stats:?}");
        cache.validate().unwrap();
    }
}

#[test]
fn a_tenant_reads_a_source_within_its_limit_by_maps_batches_and_guards() {
    let object = Arc::new(object(900 * PAGE + 5));
    let all = content(1, 900 * PAGE + 5);
    let cache = PageCache::builder(4 << 20).tenant("t", 400 << 10).build().unwrap();
    let tenant = cache.tenant("t").unwrap();
    let file = tenant.open_source(object, OpenMode::ReadOnly).unwrap();
    let map = file.map().unwrap();
    for step in 0..2000 {
        let page = step * 37 % 901;
        assert_page(&file, page, &all);
        let guard = map.page((page * 11 % 901) as u32).unwrap();
        assert!(guard[..] == all[page * 11 % 901 * PAGE..][..guard.len()]);
    }
    let mut buffers = vec![[0; 64]; 300];
    let mut requests: Vec<_> = buffers
        .iter_mut()
        .enumerate()
        .map(|(at, buffer)| crate::ReadRequest { offset: (at * 3 * PAGE + 9) as u64, buffer, read: 0 })
        .collect();
    file.read_many(&mut requests).unwrap();
    assert!(requests.iter().all(|request| request.buffer == &all[request.offset as usize..][..64]));
    let stats = tenant.stats();
    assert!(stats.peak_pages <= 100 && stats.counters.by_name("pgsteal_file") > Some(800), "{stats:?}");
    let mut end = [0; 10];
    assert_eq!(file.read_at(&mut end, 900 * PAGE as u64).unwrap(), 5);
    assert_eq!(file.read_at(&mut end, 1 << 40).unwrap(), 0);
    drop(map);
    cache.validate().unwrap();
}

#[test]
fn a_miss_brings_in_its_block() {
    let block = 64 * PAGE as u64;
    let object = Arc::new(Object { block_bytes: block, ..object(1000 * PAGE) });
    let all = content(1, 1000 * PAGE);
    let cache = PageCache::builder(8 << 20).build().unwrap();
    let file = cache.open_source(object.clone(), OpenMode::ReadOnly).unwrap();
    assert_page(&file, 500, &all);
    assert_eq!(object.asked.lock().unwrap()[0], 7 * block..8 * block);
    for page in 448..512 {
        assert_page(&file, page, &all);
    }
    assert_eq!(object.asked.lock().unwrap().len(), 1);
    // The last block is shorter.
    assert_page(&file, 990, &all);
    assert_eq!(object.asked.lock().unwrap()[1], 15 * block..1000 * PAGE as u64);
    // One read of several blocks asks for all of them at once.
    let mut bytes = vec![0; 3 * block as usize];
    file.read_exact_at(&mut bytes, PAGE as u64).unwrap();
    assert!(bytes == all[PAGE..][..bytes.len()]);
    assert_eq!(object.asked.lock().unwrap()[2], 0..4 * block);
}

#[test]
fn wrong_answers_are_errors_and_never_bytes() {
    let all = content(1, 300 * PAGE + 9);
    for (manner, expected) in [
        (Manner::Short, io::ErrorKind::InvalidData),
        (Manner::Whole, io::ErrorKind::InvalidData),
        (Manner::Drops, io::ErrorKind::Other),
        (Manner::Panics, io::ErrorKind::Other),
    ] {
        let object = Arc::new(object(300 * PAGE + 9));
        let cache = PageCache::builder(1 << 20).build().unwrap();
        let file = cache.open_source(object.clone(), OpenMode::ReadOnly).unwrap();
        assert_page(&file, 3, &all);
        object.set(1, manner);
        for page in [100, 101, 300] {
            assert_eq!(kind(read(&file, page)), expected, "{manner:?}");
        }
        let error = read(&file, 50).unwrap_err().to_string();
        assert!(error.starts_with("cannot read bucket/object: "), "{error}");
        assert_page(&file, 3, &all);
        object.set(1, Manner::Right);
        (0..301).for_each(|page| assert_page(&file, page, &all));
        assert!(cache.stats().source_failures >= 4);
        cache.validate().unwrap();
    }
}

#[test]
fn a_length_that_is_a_lie_is_found() {
    let object = Arc::new(Object { claims: 20 * PAGE as u64, ..object(10 * PAGE + 1) });
    let all = content(1, 10 * PAGE + 1);
    let cache = PageCache::builder(1 << 20).build().unwrap();
    let file = cache.open_source(object, OpenMode::ReadOnly).unwrap();
    file.advise(crate::Advice::Random, 0..0).unwrap();
    (0..10).for_each(|page| assert_page(&file, page, &all));
    for page in 10..20 {
        assert_eq!(kind(read(&file, page)), io::ErrorKind::InvalidData);
    }
}

#[test]
fn failures_now_and_then_are_read_again() {
    let object = Arc::new(object(600 * PAGE));
    object.set(1, Manner::FailsEveryThird);
    let all = content(1, 600 * PAGE);
    let cache = PageCache::builder(1 << 20).build().unwrap();
    let file = cache.open_source(object, OpenMode::ReadOnly).unwrap();
    for reads_ahead in [true, false] {
        if !reads_ahead {
            file.advise(Advice::Random, 0..file.len()).unwrap();
        }
        let mut failures = 0;
        for step in 0..1500 {
            let page = step * 7 % 600;
            let result = read(&file, page).or_else(|error| {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
                failures += 1;
                read(&file, page)
            });
            // Requests of readahead count, too, so that the second may be a third one again.
            match result {
                Ok(bytes) => assert!(bytes == all[page * PAGE..][..PAGE], "page {page}"),
                Err(error) => assert!(reads_ahead, "page {page}: {error}"),
            }
        }
        assert!(reads_ahead || failures > 100, "{failures}");
    }
    cache.validate().unwrap();
}

#[test]
fn blocks_of_no_bytes_are_refused() {
    let cache = PageCache::builder(1 << 20).build().unwrap();
    let source = Arc::new(Object { block_bytes: 0, ..object(10 * PAGE) });
    let error = cache.open_source(source, OpenMode::ReadOnly).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("bucket/object: the source asks for blocks of 0 bytes"), "{error}");
}

/// A source that looks at the cache when it is asked for its blocks.
#[derive(Debug)]
struct Curious(Mutex<Option<PageCache>>);

impl BlockSource for Curious {
    fn name(&self) -> String {
        "curious".to_owned()
    }

    fn state(&self) -> io::Result<SourceState> {
        Ok(SourceState::new(PAGE as u64))
    }

    fn read_ranges(&self, _: Vec<RangeRequest>) {}

    fn block_bytes(&self) -> u64 {
        let cache = self.0.lock().unwrap().clone().unwrap();
        cache.sync().unwrap();
        4096
    }
}

/// It was asked with the list of open files locked.
#[test]
fn a_source_may_use_the_cache_whenever_it_is_asked() {
    let cache = PageCache::builder(1 << 20).build().unwrap();
    let source = Arc::new(Curious(Mutex::new(Some(cache.clone()))));
    drop(cache.open_source(source.clone(), OpenMode::ReadOnly).unwrap());
    source.0.lock().unwrap().take();
}

#[test]
fn a_new_version_is_another_file() {
    let object = Arc::new(object(100 * PAGE));
    let cache = PageCache::builder(2 << 20).build().unwrap();
    let old = cache.open_source(object.clone(), OpenMode::ReadOnly).unwrap();
    let (first, second) = (content(1, 100 * PAGE), content(2, 100 * PAGE));
    assert_page(&old, 7, &first);
    object.set(2, Manner::Right);
    assert_page(&old, 7, &first);
    let error = read(&old, 60).unwrap_err();
    assert!(error.to_string().contains("version 1 and now has version 2"), "{error}");
    let new = cache.open_source(object.clone(), OpenMode::ReadOnly).unwrap();
    (0..100).for_each(|page| assert_page(&new, page, &second));
    assert_page(&old, 7, &first);
    assert_eq!(kind(read(&old, 61)), io::ErrorKind::StaleNetworkFileHandle);
    drop(old);
    assert_page(&new, 7, &second);
    cache.validate().unwrap();
}

#[test]
fn a_source_that_stalls_delays_its_readers_until_the_deadline_only() {
    let object = Arc::new(object(100 * PAGE));
    object.set(1, Manner::Keeps);
    let cache = PageCache::builder(600 << 10).source_deadline(Duration::from_millis(200)).build().unwrap();
    let stalled = cache.open_source(object.clone(), OpenMode::ReadOnly).unwrap();
    assert_eq!(kind(read(&stalled, 5)), io::ErrorKind::TimedOut);
    // Its frames get other pages; the late answers must not touch them.
    object.set(1, Manner::Right);
    let all = content(1, 100 * PAGE);
    (0..100).for_each(|page| assert_page(&stalled, page, &all));
    let late = std::mem::take(&mut *object.kept.lock().unwrap());
    assert!(!late.is_empty() && late.iter().all(|request| !request.is_wanted()));
    late.into_iter().for_each(|request| {
        let range = request.range();
        request.fulfil(Some("1"), &vec![0xee; (range.end - range.start) as usize]);
    });
    (0..100).for_each(|page| assert_page(&stalled, page, &all));
    cache.validate().unwrap();
    // The cache closes although requests are kept.
    object.set(1, Manner::Keeps);
    stalled.evict(0..u64::MAX).unwrap();
    stalled.advise(crate::Advice::WillNeed, 0..u64::MAX).unwrap();
    cache.close().unwrap();
}

#[test]
fn a_file_is_a_source_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    let cache = PageCache::builder(600 << 10).build().unwrap();
    let source = Arc::new(FileSource::create(&path).unwrap());
    let file = cache.open_source(source.clone(), OpenMode::Create).unwrap();
    let all = content(3, 300 * PAGE + 100);
    for (at, part) in all.chunks(10_000).enumerate() {
        file.write_at(part, at as u64 * 10_000).unwrap();
    }
    (0..301).for_each(|page| assert_page(&file, page, &all));
    file.sync_data().unwrap();
    assert!(std::fs::read(&path).unwrap() == all);
    file.truncate(50 * PAGE as u64 + 1).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 50 * PAGE as u64 + 1);
    (0..51).for_each(|page| assert_page(&file, page, &all[..50 * PAGE + 1]));
    drop((file, source));
    cache.close().unwrap();

    let cache = PageCache::builder(600 << 10).build().unwrap();
    let source = Arc::new(FileSource::open(&path).unwrap());
    let error = cache.open_source(source.clone(), OpenMode::ReadWrite).unwrap_err();
    assert!(error.to_string().contains("cannot be written"), "{error}");
    let file = cache.open_source(source, OpenMode::ReadOnly).unwrap();
    assert_page(&file, 9, &all);
    // A change of the file is a new version: what is not in memory is not mixed with it.
    std::fs::write(&path, content(4, 50 * PAGE)).unwrap();
    assert_page(&file, 9, &all);
    assert_eq!(kind(read(&file, 44)), io::ErrorKind::StaleNetworkFileHandle);
    let source = Arc::new(FileSource::open(&path).unwrap());
    assert_page(&cache.open_source(source, OpenMode::ReadOnly).unwrap(), 44, &content(4, 50 * PAGE));
}

/// Ten thousand reads of a source are under way at once, begun by one thread.
#[cfg(feature = "async")]
#[test]
fn futures_of_a_source_need_no_threads() {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    let object = Arc::new(object(10_000 * PAGE));
    object.set(1, Manner::Keeps);
    let all = content(1, 10_000 * PAGE);
    let cache = PageCache::builder(48 << 20).build().unwrap();
    let file = cache.open_source(object.clone(), OpenMode::ReadOnly).unwrap();
    file.advise(crate::Advice::Random, 0..0).unwrap();
    let mut buffers = vec![[0; 100]; 10_000];
    let mut reads: Vec<_> = buffers
        .iter_mut()
        .enumerate()
        .map(|(at, buffer)| file.read_at_async(buffer, (at * PAGE + 50) as u64))
        .collect();
    let mut cx = Context::from_waker(Waker::noop());
    // The queue has room for a thousand; the source takes them quickly.
    while object.kept.lock().unwrap().len() < 10_000 {
        for read in &mut reads {
            assert!(Pin::new(read).poll(&mut cx).is_pending());
        }
        std::thread::yield_now();
    }
    for request in std::mem::take(&mut *object.kept.lock().unwrap()) {
        let range = request.range();
        request.fulfil(Some("1"), &all[range.start as usize..range.end as usize]);
    }
    for read in &mut reads {
        assert!(matches!(Pin::new(read).poll(&mut cx), Poll::Ready(Ok(100))));
    }
    drop(reads);
    for (at, buffer) in buffers.iter().enumerate() {
        assert!(buffer[..] == all[at * PAGE + 50..][..100], "page {at}");
    }
    cache.validate().unwrap();
}

/// A gate that calls of a source wait at while it is closed.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<(Option<&'static str>, usize)>, Condvar);

impl Gate {
    /// Closes the gate to one kind of call; opens it to the others.
    pub(super) fn close_to(&self, call: &'static str) {
        self.0.lock().unwrap().0 = Some(call);
        self.1.notify_all();
    }

    pub(super) fn open(&self) {
        self.0.lock().unwrap().0 = None;
        self.1.notify_all();
    }

    pub(super) fn pass(&self, call: &'static str) {
        let mut state = self.0.lock().unwrap();
        state.1 += 1;
        self.1.notify_all();
        state = self.1.wait_while(state, |(closed, _)| *closed == Some(call)).unwrap();
        state.1 -= 1;
        self.1.notify_all();
    }

    /// Calls that are at the gate now.
    pub(super) fn waiting(&self) -> usize {
        self.0.lock().unwrap().1
    }

    /// Waits until so many calls are at the gate.
    pub(super) fn wait_for(&self, calls: usize) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |(_, now)| *now != calls).unwrap());
    }
}

/// A source in memory, each of whose calls passes a gate.
#[derive(Debug)]
pub(super) struct Gated {
    name: String,
    bytes: Mutex<Vec<u8>>,
    writable: bool,
    gate: Arc<Gate>,
}

impl Gated {
    pub(super) fn new(number: u64, pages: usize, writable: bool, gate: &Arc<Gate>) -> Arc<Gated> {
        let bytes = Mutex::new(content(number, pages * PAGE));
        Arc::new(Gated { name: format!("gated/{number}"), bytes, writable, gate: gate.clone() })
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }
}

impl BlockSource for Gated {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn state(&self) -> io::Result<SourceState> {
        self.gate.pass("state");
        let len = self.bytes.lock().unwrap().len() as u64;
        self.gate.pass("answer of state");
        Ok(SourceState { len, version: None })
    }

    fn read_ranges(&self, requests: Vec<RangeRequest>) {
        self.gate.pass("read");
        for request in requests {
            let range = request.range();
            let all = self.bytes();
            let end = all.len().min(range.end as usize);
            request.fulfil(None, &all[end.min(range.start as usize)..end]);
        }
    }

    fn is_writable(&self) -> bool {
        self.writable
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.gate.pass("write");
        let mut all = self.bytes.lock().unwrap();
        let end = offset as usize + bytes.len();
        let len = all.len().max(end);
        all.resize(len, 0);
        all[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.gate.pass("set_len");
        self.bytes.lock().unwrap().resize(len as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.gate.pass("sync");
        Ok(())
    }
}

/// Ten sources that do not return, one of them with more requests than may wait, delay only their
/// own readers. No deadline helps: it is an hour.
#[cfg(feature = "async")]
#[test]
fn sources_that_never_return_delay_no_others() {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    let gate = Arc::new(Gate::default());
    gate.close_to("read");
    let cache = PageCache::builder(12 << 20).source_deadline(Duration::from_secs(3600)).build().unwrap();
    let mut cx = Context::from_waker(Waker::noop());
    let stuck: Vec<_> = (0..10)
        .map(|number| {
            let source = Gated::new(number, 1500, false, &gate);
            let file = cache.open_source(source, OpenMode::ReadOnly).unwrap();
            file.advise(Advice::Random, 0..0).unwrap();
            file
        })
        .collect();
    let mut buffers = vec![[0; 10]; 1500];
    let reads = stuck.iter().flat_map(|file| {
        let count = if file.path().ends_with("0") { 1500 } else { 20 };
        (0..count).map(move |page| (file, page))
    });
    let mut more = vec![[0; 10]; 180];
    let mut reads: Vec<_> = reads
        .zip(buffers.iter_mut().chain(&mut more))
        .map(|((file, page), buffer)| Box::pin(file.read_at_async(buffer, page * PAGE as u64)))
        .collect();
    for _ in 0..20 {
        assert!(reads.iter_mut().all(|read| read.as_mut().poll(&mut cx).is_pending()));
    }
    let object = Arc::new(object(300 * PAGE));
    let other = cache.open_source(object, OpenMode::ReadOnly).unwrap();
    let all = content(1, 300 * PAGE);
    (0..300).for_each(|page| assert_page(&other, page, &all));
    let mut buffer = [0; 10];
    let mut hit = pin!(other.read_at_async(&mut buffer, 0));
    assert!(matches!(hit.as_mut().poll(&mut cx), Poll::Ready(Ok(10))));
    gate.open();
    drop(reads);
    for (number, file) in stuck.iter().enumerate() {
        assert_page(file, 1400, &content(number as u64, 1500 * PAGE));
    }
    cache.validate().unwrap();
}

/// A source whose writes or truncations do not return holds the flusher up for no other file.
#[test]
fn the_flusher_passes_over_sources_that_do_not_return() {
    let gate = Arc::new(Gate::default());
    let cache = PageCache::builder(64 << 20).source_deadline(Duration::from_secs(3600)).build().unwrap();
    let stuck = cache.open_source(Gated::new(1, 10, true, &gate), OpenMode::ReadWrite).unwrap();
    let other_is_written = |number| {
        let source = Gated::new(number, 10, true, &Arc::default());
        let other = cache.open_source(source.clone(), OpenMode::ReadWrite).unwrap();
        other.write_at(&[b'x'; PAGE], 0).unwrap();
        // Dirty pages of files that are not open are written at once, and others if reclaim asks.
        drop(other);
        cache.shared.host.flush_for_reclaim.store(true, Release);
        cache.shared.host.flusher.ring();
        while source.bytes()[..PAGE] != [b'x'; PAGE] {
            std::thread::yield_now();
        }
    };
    gate.close_to("write");
    // More runs than may wait.
    for page in 0..1200 {
        stuck.write_at(&[b'a'; PAGE], 2 * page * PAGE as u64).unwrap();
    }
    other_is_written(2);
    gate.open();
    stuck.sync_data().unwrap();
    stuck.write_at(&[b'b'; PAGE], 0).unwrap();
    gate.close_to("set_len");
    std::thread::scope(|scope| {
        let cutting = scope.spawn(|| stuck.truncate(9 * PAGE as u64));
        gate.wait_for(1);
        other_is_written(3);
        gate.open();
        cutting.join().unwrap().unwrap();
    });
    cache.validate().unwrap();
}

/// A source answers with what is left of it, because the cache truncated it since it was asked. A
/// source that another program truncated is refused.
#[test]
fn a_read_over_a_truncation_does_not_fail() {
    let gate = Arc::new(Gate::default());
    let source = Gated::new(1, 3, true, &gate);
    let cache = PageCache::builder(1 << 20).build().unwrap();
    let file = cache.open_source(source.clone(), OpenMode::ReadWrite).unwrap();
    file.advise(Advice::Random, 0..0).unwrap();
    for (len, by_other) in [(PAGE, false), (PAGE + 10, false), (PAGE, true)] {
        gate.close_to("read");
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| read(&file, 2));
            gate.wait_for(1);
            let cutting = scope.spawn(|| match by_other {
                false => file.truncate(len as u64).unwrap(),
                true => source.bytes.lock().unwrap().truncate(len),
            });
            while source.bytes().len() > len {
                std::thread::yield_now();
            }
            gate.open();
            assert_eq!(reading.join().unwrap().is_err(), by_other);
            cutting.join().unwrap();
        });
        if !by_other {
            assert_eq!(file.len(), len as u64);
            file.truncate(3 * PAGE as u64).unwrap();
            let mut now = content(1, PAGE * 3);
            now[len..].fill(0);
            (0..3).for_each(|page| assert_page(&file, page, &now));
            file.write_at(&content(1, 3 * PAGE)[PAGE..], PAGE as u64).unwrap();
            file.sync_data().unwrap();
            file.invalidate().unwrap();
        }
    }
    cache.validate().unwrap();
}

/// Another program appends to a source, or cuts it, after its last handle was closed. The next
/// handle sees that, even if the cache still knows the file.
#[test]
fn a_source_that_is_opened_again_has_the_length_of_now() {
    let gate = Arc::new(Gate::default());
    let cache = PageCache::builder(1 << 20).build().unwrap();
    let shared = cache.shared.clone();
    let wait_until_forgotten = || {
        while !shared.inodes().is_empty() {
            std::thread::yield_now();
        }
    };
    for is_unwritten in [false, true] {
        for pages in [3, 6, 9] {
            let source = Gated::new(1, 6, true, &gate);
            let open = || cache.open_source(source.clone(), OpenMode::ReadWrite).unwrap();
            let file = open();
            (0..6).for_each(|page| assert_page(&file, page, &content(1, 6 * PAGE)));
            file.write_at(&[b'a'; PAGE], 0).unwrap();
            let known = file.inode.file.clone();
            gate.close_to(if is_unwritten { "write" } else { "none" });
            drop(file);
            if is_unwritten {
                gate.wait_for(1);
            } else {
                wait_until_forgotten();
            }
            let mut now = content(2, pages * PAGE);
            now[..PAGE].fill(b'a');
            *source.bytes.lock().unwrap() = now.clone();
            let file = std::thread::scope(|scope| {
                let opening = scope.spawn(open);
                gate.wait_for(usize::from(is_unwritten));
                gate.open();
                opening.join().unwrap()
            });
            drop(known);
            file.sync_all().unwrap();
            assert_eq!((file.len(), source.bytes().len()), ((pages * PAGE) as u64, pages * PAGE));
            (0..pages).for_each(|page| assert_page(&file, page, &now));
            // The next source has the same number: the cache would go on with this one as long as a
            // thread of its own has it.
            let source = Arc::downgrade(&file.inode.file);
            drop(file);
            while source.strong_count() > 0 {
                std::thread::yield_now();
            }
        }
    }
    cache.validate().unwrap();
}

/// A handle is opened while the last one is closed. The source says its length, then the cache
/// writes what extends it and forgets the file. The new handle once had the length from before.
#[test]
fn a_source_that_is_opened_beside_its_write_back_has_its_whole_length() {
    let gate = Arc::new(Gate::default());
    let source = Gated::new(1, 1, true, &gate);
    let cache = PageCache::builder(1 << 20).build().unwrap();
    let open = || cache.open_source(source.clone(), OpenMode::ReadWrite).unwrap();
    let first = open();
    first.write_at(&[b'a'; PAGE], 2 * PAGE as u64).unwrap();
    let known = Arc::downgrade(&first.inode.file);
    gate.close_to("answer of state");
    let file = std::thread::scope(|scope| {
        let opening = scope.spawn(open);
        gate.wait_for(1);
        drop(first);
        while known.strong_count() > 0 {
            std::thread::yield_now();
        }
        gate.open();
        opening.join().unwrap()
    });
    assert_eq!((file.len(), source.bytes().len()), (3 * PAGE as u64, 3 * PAGE));
    assert!(read(&file, 2).unwrap() == [b'a'; PAGE]);
    cache.validate().unwrap();
}

/// Syncs as futures of files and of other sources go on meanwhile. The deadline is an hour.
#[cfg(feature = "async")]
#[test]
fn a_source_that_does_not_return_delays_no_other_syncs() {
    use crate::{BackendKind, backend::MemoryFiles};
    use std::pin::pin;
    use std::task::{Context, Waker};
    let gate = Arc::new(Gate::default());
    let files = MemoryFiles::new(1);
    let builder = PageCache::builder(4 << 20).backend(BackendKind::Memory(files.clone()));
    let cache = builder.source_deadline(Duration::from_secs(3600)).build().unwrap();
    let open = |number, gate| {
        let source = Gated::new(number, 3, true, gate);
        let file = cache.open_source(source.clone(), OpenMode::ReadWrite).unwrap();
        file.write_at(&[b'a'; PAGE], 0).unwrap();
        (source, file)
    };
    let (stuck, stuck_file) = open(1, &gate);
    let (other, other_file) = open(2, &Arc::default());
    let file = cache.open("f", OpenMode::Create).unwrap();
    file.write_at(b"hello", 0).unwrap();
    gate.close_to("write");
    let mut cx = Context::from_waker(Waker::noop());
    let mut stuck_sync = pin!(stuck_file.sync_data_async());
    assert!(stuck_sync.as_mut().poll(&mut cx).is_pending());
    gate.wait_for(1);
    for file in [&file, &other_file] {
        let mut sync = pin!(file.sync_data_async());
        while sync.as_mut().poll(&mut cx).is_pending() {
            std::thread::yield_now();
        }
    }
    assert_eq!(files.contents("f").unwrap(), b"hello");
    assert!(other.bytes()[..PAGE] == [b'a'; PAGE] && stuck.bytes()[..PAGE] != [b'a'; PAGE]);
    assert!(stuck_sync.as_mut().poll(&mut cx).is_pending());
    gate.open();
    while stuck_sync.as_mut().poll(&mut cx).is_pending() {
        std::thread::yield_now();
    }
    assert!(stuck.bytes()[..PAGE] == [b'a'; PAGE]);
}

/// Each kind of call that does not return fails at its deadline. The cache notices a late effect of
/// such a call, which never undoes later writes.
#[test]
fn calls_that_do_not_return_fail_and_take_no_effect_after_later_ones() {
    let gate = Arc::new(Gate::default());
    let source = Gated::new(1, 10, true, &gate);
    let cache = PageCache::builder(1 << 20).source_deadline(Duration::from_millis(200)).build().unwrap();
    let timed_out = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    };
    gate.close_to("state");
    timed_out(cache.open_source(source.clone(), OpenMode::ReadWrite).map(drop));
    gate.open();
    let file = cache.open_source(source.clone(), OpenMode::ReadWrite).unwrap();
    assert_page(&file, 3, &content(1, 10 * PAGE));

    // The first write is late, and the second one must not come before it.
    gate.close_to("write");
    gate.wait_for(0);
    file.write_at(&[b'a'; PAGE], 0).unwrap();
    timed_out(file.sync_data());
    file.write_at(&[b'b'; PAGE], 0).unwrap();
    let error = file.sync_data().unwrap_err();
    assert!(error.to_string().contains("an earlier write"), "{error}");
    gate.open();
    while file.sync_data().is_err() {
        std::thread::yield_now();
    }
    assert!(source.bytes()[..PAGE] == [b'b'; PAGE]);

    gate.close_to("sync");
    timed_out(file.sync_data());
    gate.open();
    file.sync_data().unwrap();

    // A truncation that is late is as one by another program.
    gate.close_to("set_len");
    gate.wait_for(0);
    timed_out(file.truncate(5 * PAGE as u64));
    assert_eq!((file.len(), source.bytes().len()), (10 * PAGE as u64, 10 * PAGE));
    file.write_at(&[b'c'; PAGE], PAGE as u64).unwrap();
    assert!(file.sync_data().is_err());
    gate.open();
    while file.sync_data().is_err() || file.len() != 5 * PAGE as u64 {
        std::thread::yield_now();
    }
    assert!(source.bytes()[..2 * PAGE] == [[b'b'; PAGE], [b'c'; PAGE]].concat());
    assert_eq!(source.bytes().len(), 5 * PAGE);

    // The cache closes in time, too.
    gate.close_to("write");
    gate.wait_for(0);
    file.write_at(&[b'd'; PAGE], 0).unwrap();
    timed_out(cache.close());
    gate.open();
}
