//! Ends in unusual places: a thread, a cache or a handle that ends where few programs let one end.

use crate::common::{PAGE, assert_same, memory, page, pages};
use mglru_cache::backend::MemoryFiles;
use mglru_cache::{
    Advice, BlockSource, CachedFile, Error, Map, OpenMode, PageCache, RangeRequest, ReadRequest, SourceState,
};
use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Condvar, Mutex};

/// Lends a page when its thread has dropped the cache's own thread-local values.
struct AtExit(Option<(CachedFile, Map)>);

impl Drop for AtExit {
    fn drop(&mut self) {
        let (file, map) = self.0.take().expect("it was set");
        assert_same(&map.page(1).unwrap(), &page(1), "page of an ending thread");
        let lent = map.page(2).unwrap();
        assert!(file.try_write_at(&[1; PAGE], 2 * PAGE as u64).is_err(), "it is lent");
        drop(lent);
        file.write_at(&page(7), 2 * PAGE as u64).unwrap();
    }
}

thread_local! {
    static AT_EXIT: RefCell<AtExit> = const { RefCell::new(AtExit(None)) };
}

#[test]
fn a_thread_lends_pages_while_it_drops_its_thread_local_values() {
    let (disk, _) = memory(1);
    disk.set("f", &pages(0..3));
    let cache = disk.builder(4 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    let map = file.map().unwrap();
    // Joined: a scope ends before the values are dropped.
    let lender = (file.try_clone().unwrap(), map);
    let thread = std::thread::spawn(move || {
        // Values are dropped in the reverse order of their first use.
        AT_EXIT.with_borrow_mut(|at_exit| {
            drop(lender.1.page(0).unwrap());
            at_exit.0 = Some(lender);
        });
    });
    thread.join().unwrap();
    assert_same(&file.map().unwrap().page(2).unwrap(), &page(7), "written page");
    file.try_write_at(&pages(0..3), 0).unwrap();
    cache.validate().unwrap();
}

/// A stage that a source has reached, and the one that it may go on to.
#[derive(Debug, Default)]
struct Stages(Mutex<(usize, usize)>, Condvar);

impl Stages {
    /// Waits in `stage` until the test lets the source go on.
    fn pass(&self, stage: usize) {
        let mut now = self.0.lock().unwrap();
        now.0 = stage;
        self.1.notify_all();
        drop(self.1.wait_while(now, |(_, go)| *go < stage).unwrap());
    }

    fn wait_for(&self, stage: usize) {
        drop(self.1.wait_while(self.0.lock().unwrap(), |(at, _)| *at < stage).unwrap());
    }

    fn let_go(&self, stage: usize) {
        self.0.lock().unwrap().1 = stage;
        self.1.notify_all();
    }
}

/// A source of three pages that owns a cache.
#[derive(Debug)]
struct Owning {
    stages: Arc<Stages>,
    /// Dropped after the answer.
    cache: Mutex<Option<PageCache>>,
    panics: bool,
}

impl BlockSource for Owning {
    fn name(&self) -> String {
        "owning".to_owned()
    }

    fn state(&self) -> io::Result<SourceState> {
        Ok(SourceState::new(3 * PAGE as u64))
    }

    fn read_ranges(&self, requests: Vec<RangeRequest>) {
        self.stages.pass(1);
        for request in requests {
            let range = request.range();
            request.fulfil(None, &pages(0..3)[range.start as usize..range.end as usize]);
        }
        self.stages.pass(2);
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write(&self, _: u64, _: &[u8]) -> io::Result<()> {
        self.stages.pass(3);
        Ok(())
    }
}

impl Drop for Owning {
    fn drop(&mut self) {
        drop(self.cache.lock().unwrap().take());
        // Not if that panicked.
        self.stages.pass(4);
        if self.panics {
            std::panic::resume_unwind(Box::new("a test"));
        }
    }
}

/// Waits until no cache has these files any more: all of its threads have ended.
fn wait_for_end(files: &Arc<MemoryFiles>, others: usize) {
    while Arc::strong_count(files) > others {
        std::thread::yield_now();
    }
}

/// The last references to a source, and with it to a cache below, go on a thread of the cache above
/// that calls the source. The cache below ends in full, and the one above works on, also if the
/// source panics.
#[test]
fn a_cache_below_a_source_ends_with_it() {
    for panics in [false, true] {
        let (disk, files) = memory(1);
        let below = disk.builder(1 << 20).build().unwrap();
        below.open("g", OpenMode::Create).unwrap().write_at(&page(9), 0).unwrap();
        let above = PageCache::builder(1 << 20).build().unwrap();
        let metadata_bytes = above.stats().metadata_bytes;
        let stages = Arc::<Stages>::default();
        let source = Owning { stages: stages.clone(), cache: Mutex::new(Some(below)), panics };
        let file = above.open_source(Arc::new(source), OpenMode::ReadOnly).unwrap();
        file.advise(Advice::WillNeed, 0..PAGE as u64).unwrap();
        stages.wait_for(1);
        drop(file);
        stages.let_go(1);
        stages.wait_for(2);
        // The cache above forgets the file: then only the thread that calls the source has it.
        while above.stats().metadata_bytes > metadata_bytes {
            std::thread::yield_now();
        }
        stages.let_go(4);
        stages.wait_for(4);
        wait_for_end(&files, 2);
        assert_same(&disk.contents("g"), &page(9), "file of the cache below");
        let source = Owning { stages, cache: Mutex::default(), panics: false };
        let file = above.open_source(Arc::new(source), OpenMode::ReadOnly).unwrap();
        assert_same(&file.map().unwrap().page(1).unwrap(), &page(1), "page of the cache above");
        drop(file);
        above.close().unwrap();
    }
}

/// The flusher writes the last dirty page of a source that owns its own cache, and forgets it.
#[test]
fn a_cache_ends_on_its_own_threads() {
    let (disk, files) = memory(1);
    let cache = disk.builder(1 << 20).build().unwrap();
    let stages = Arc::<Stages>::default();
    let source =
        Arc::new(Owning { stages: stages.clone(), cache: Mutex::new(Some(cache.clone())), panics: false });
    let file = cache.open_source(source, OpenMode::ReadWrite).unwrap();
    file.write_at(&page(9), 0).unwrap();
    drop((file, cache));
    stages.wait_for(3);
    stages.let_go(4);
    stages.wait_for(4);
    wait_for_end(&files, 2);
}

/// A task that is gone but for its waker, which has the last reference to a cache.
#[cfg(feature = "async")]
struct Task(#[expect(dead_code, reason = "kept")] PageCache);

#[cfg(feature = "async")]
impl std::task::Wake for Task {
    fn wake(self: Arc<Self>) {}
}

/// The completion of a read drops the waker, on a thread of the backend.
#[cfg(feature = "async")]
#[test]
fn a_cache_ends_with_the_waker_of_a_task() {
    use std::task::{Context, Waker};
    let (disk, files) = memory(1);
    disk.set("f", &pages(0..3));
    let cache = disk.builder(1 << 20).build().unwrap();
    cache.open("g", OpenMode::Create).unwrap().write_at(&page(9), 0).unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    files.hold();
    let waker = Waker::from(Arc::new(Task(cache)));
    let mut out = [0; 10];
    let mut read = Box::pin(file.read_at_async(&mut out, 0));
    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // A future that is dropped takes its waker along.
    std::mem::forget(read);
    drop(waker);
    files.wait_held(1);
    files.release();
    drop(file);
    wait_for_end(&files, 2);
    assert_same(&disk.contents("g"), &page(9), "file of the cache");
}

/// A source of three pages that is answered by the test.
#[derive(Debug, Default)]
struct Keeping(Mutex<Vec<RangeRequest>>, Condvar);

impl BlockSource for Keeping {
    fn name(&self) -> String {
        "keeping".to_owned()
    }

    fn state(&self) -> io::Result<SourceState> {
        Ok(SourceState::new(3 * PAGE as u64))
    }

    fn read_ranges(&self, requests: Vec<RangeRequest>) {
        self.0.lock().unwrap().extend(requests);
        self.1.notify_all();
    }
}

/// The same on a thread of a source, which answers the read.
#[cfg(feature = "async")]
#[test]
fn a_cache_ends_on_the_thread_that_answers_for_a_source() {
    use std::task::{Context, Waker};
    let (disk, files) = memory(1);
    let cache = disk.builder(1 << 20).build().unwrap();
    let source = Arc::<Keeping>::default();
    let file = cache.open_source(source.clone(), OpenMode::ReadOnly).unwrap();
    file.advise(Advice::Random, 0..0).unwrap();
    let waker = Waker::from(Arc::new(Task(cache)));
    let mut out = [0; 10];
    let mut read = Box::pin(file.read_at_async(&mut out, 0));
    assert!(read.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    // A future that is dropped takes its waker along.
    std::mem::forget(read);
    drop(waker);
    let request =
        source.1.wait_while(source.0.lock().unwrap(), |kept| kept.is_empty()).unwrap().pop().unwrap();
    let range = request.range();
    request.fulfil(None, &pages(0..3)[range.start as usize..range.end as usize]);
    drop(file);
    wait_for_end(&files, 2);
}

#[test]
fn a_closed_cache_begins_no_reads() {
    let (disk, files) = memory(1);
    disk.set("f", &pages(0..3));
    let cache = disk.builder(1 << 20).build().unwrap();
    let source = Arc::<Keeping>::default();
    let of_source = cache.open_source(source.clone(), OpenMode::ReadOnly).unwrap();
    let file = cache.open("f", OpenMode::ReadOnly).unwrap();
    cache.close().unwrap();
    files.hold();
    for file in [&file, &of_source] {
        file.advise(Advice::WillNeed, 0..3 * PAGE as u64).unwrap();
        let mut buffers = [[0; 10]; 3];
        let requests = buffers.iter_mut().enumerate();
        let mut requests: Vec<_> = requests
            .map(|(page, buffer)| ReadRequest { offset: (page * PAGE) as u64, buffer, read: 0 })
            .collect();
        assert!(matches!(file.read_many(&mut requests), Err(Error::Closed)));
        assert_eq!(file.pages_in(0..u64::MAX).cached, 0);
    }
    files.release();
}

/// The cache is closed while a write reads the rest of its page. The write fails, as nobody would
/// write its page back; before, it succeeded, and its bytes were lost.
#[test]
fn a_write_that_is_overtaken_by_a_close_fails() {
    let (disk, files) = memory(8);
    disk.set("f", &pages(0..2));
    let cache = disk.builder(1 << 20).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    files.hold();
    std::thread::scope(|scope| {
        let write = scope.spawn(|| file.write_at(&[9; 10], 5));
        files.wait_held(1);
        cache.close().unwrap();
        files.release();
        assert!(matches!(write.join().unwrap(), Err(Error::Closed)));
    });
}
