//! How often a source is asked for a page that it does not give, and other failures of sources.

use super::tests::{Gate, Gated, Manner, PAGE, kind, object, read};
use super::{BlockSource, FileSource, RangeRequest, SourceState};
#[cfg(feature = "async")]
use crate::fault::alone;
use crate::{Advice, CachedFile, Error, OpenMode, PageCache};
#[cfg(feature = "async")]
use mglru_core::Arrival;
use mglru_core::readahead::Window;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A source whose reads all fail: one that is gone is not asked twice for a page.
#[test]
fn an_error_of_the_whole_source_is_one_request() {
    use io::ErrorKind::{
        ConnectionReset, NotFound, PermissionDenied, StaleNetworkFileHandle, TimedOut, Unsupported,
    };
    for (manner, requests) in [
        (Manner::Fails(NotFound), 1),
        (Manner::Fails(PermissionDenied), 1),
        (Manner::Fails(StaleNetworkFileHandle), 1),
        (Manner::Fails(TimedOut), 1),
        (Manner::Fails(Unsupported), 1),
        (Manner::Fails(ConnectionReset), 2),
    ] {
        let object = Arc::new(object(300 * PAGE));
        object.set(1, manner);
        let cache = PageCache::builder(1 << 20).build().unwrap();
        let file = cache.open_source(object.clone(), OpenMode::ReadOnly).unwrap();
        let map = file.map().unwrap();
        let asked = |read: &dyn Fn() -> Result<(), Error>| {
            let before = object.asked.lock().unwrap().len();
            assert_eq!(Manner::Fails(kind(read())), manner);
            object.asked.lock().unwrap().len() - before
        };
        assert_eq!(asked(&|| read(&file, 0).map(drop)), requests, "{manner:?}");
        assert_eq!(asked(&|| map.load(100 * PAGE as u64, &mut [0])), requests, "{manner:?}");
        #[cfg(feature = "async")]
        assert_eq!(asked(&|| block_on(file.read_at_async(&mut [0], 0)).map(drop)), requests, "{manner:?}");
        // Nothing is ahead of the last page: this was a read of one page.
        assert_eq!(asked(&|| read(&file, 299).map(drop)), 1, "{manner:?}");
    }
}

/// Waits for a future on this thread.
#[cfg(feature = "async")]
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// A source that reads a page of its own through the cache, in the way that the test says.
#[derive(Debug, Default)]
struct Selfish {
    file: Mutex<Option<CachedFile>>,
    way: AtomicU64,
    calls: AtomicU64,
}

impl BlockSource for Selfish {
    fn name(&self) -> String {
        "selfish".to_owned()
    }

    fn state(&self) -> io::Result<SourceState> {
        Ok(SourceState::new(100 * PAGE as u64))
    }

    fn read_ranges(&self, requests: Vec<RangeRequest>) {
        self.calls.fetch_add(1, Relaxed);
        for request in requests {
            let file = self.file.lock().unwrap().as_ref().map(|file| file.try_clone().unwrap()).unwrap();
            let read = match self.way.load(Relaxed) {
                0 => file.read_at(&mut [0], request.range().start).map(drop),
                1 => file.map().unwrap().load(50 * PAGE as u64, &mut [0]),
                #[cfg(feature = "async")]
                2 => block_on(file.read_at_async(&mut [0], request.range().start)).map(drop),
                _ => Ok(()),
            };
            request.fail(read.map_or_else(io::Error::from, |()| io::ErrorKind::Other.into()));
        }
    }
}

/// Each wait for its own answer ended at the deadline, and asked the source again, for ever.
#[test]
fn a_source_that_reads_its_own_pages_is_told() {
    let cache = PageCache::builder(1 << 20).build().unwrap();
    let source = Arc::new(Selfish::default());
    let file = cache.open_source(source.clone(), OpenMode::ReadOnly).unwrap();
    *source.file.lock().unwrap() = Some(file.try_clone().unwrap());
    for way in 0..if cfg!(feature = "async") { 3 } else { 2 } {
        source.way.store(way, Relaxed);
        let error = read(&file, 7).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Deadlock, "{way}: {error}");
        assert!(error.to_string().contains("cannot read selfish: the source reads its own pages"), "{error}");
        assert_eq!(source.calls.load(Relaxed), way + 1, "once");
    }
    // The source has a handle of a file that has the source.
    source.file.lock().unwrap().take();
}

/// A file as a source, whose reads pass a gate.
#[derive(Debug)]
struct GatedFile(FileSource, Arc<Gate>);

impl BlockSource for GatedFile {
    fn name(&self) -> String {
        self.0.name()
    }

    fn state(&self) -> io::Result<SourceState> {
        self.0.state()
    }

    fn read_ranges(&self, requests: Vec<RangeRequest>) {
        self.1.pass("read");
        self.0.read_ranges(requests);
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
}

/// A read failed if the file was truncated before the source came to read it.
#[test]
fn a_file_is_read_as_far_as_it_goes_when_it_is_cut_meanwhile() {
    let (directory, gate) = (tempfile::tempdir().unwrap(), Arc::new(Gate::default()));
    let path = directory.path().join("f");
    std::fs::write(&path, [7; 3 * PAGE]).unwrap();
    let source = Arc::new(GatedFile(FileSource::create(&path).unwrap(), gate.clone()));
    let cache = PageCache::builder(1 << 20).build().unwrap();
    let file = cache.open_source(source, OpenMode::ReadWrite).unwrap();
    file.advise(Advice::Random, 0..0).unwrap();
    gate.close_to("read");
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read(&file, 2));
        gate.wait_for(1);
        let cutting = scope.spawn(|| file.truncate(PAGE as u64));
        while std::fs::metadata(&path).unwrap().len() > PAGE as u64 {
            std::thread::yield_now();
        }
        gate.open();
        assert_eq!(reading.join().unwrap().unwrap(), []);
        cutting.join().unwrap().unwrap();
    });
    assert_eq!(read(&file, 0).unwrap(), [7; PAGE]);
    cache.validate().unwrap();
}

/// Bytes written through the second handle stayed in memory, and no sync could write them.
#[test]
fn a_source_that_is_open_for_reading_only_is_not_opened_for_writing() {
    let gate = Arc::new(Gate::default());
    let cache = PageCache::builder(1 << 20).build().unwrap();
    let open = |is_writable, mode| cache.open_source(Gated::new(1, 3, is_writable, &gate), mode);
    let reader = open(false, OpenMode::ReadOnly).unwrap();
    let error = open(true, OpenMode::ReadWrite).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("cannot open gated/1: it is open through a source"), "{error}");
    drop(reader);
    let writer = loop {
        match open(true, OpenMode::ReadWrite) {
            Ok(file) => break file,
            // The cache is about to forget it.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ResourceBusy),
        }
    };
    writer.write_at(b"written", 0).unwrap();
    writer.sync_data().unwrap();
    assert_eq!(open(false, OpenMode::ReadOnly).unwrap().read_at(&mut [0; PAGE], 0).unwrap(), PAGE);
}

/// An open source that does not return from reads, and whose queue is full. Pages 0 to 3 are in
/// memory, and page 1 has the readahead mark.
fn stalled(gate: &Arc<Gate>) -> (PageCache, CachedFile) {
    let cache = PageCache::builder(32 << 20).source_deadline(Duration::from_secs(3600)).build().unwrap();
    let file = cache.open_source(Gated::new(1, 6000, false, gate), OpenMode::ReadOnly).unwrap();
    read(&file, 0).unwrap();
    gate.wait_for(0);
    gate.close_to("read");
    // Runs of one page, until each thread that a source may have is in a call, and the queue full.
    let mut page = 100;
    while file.shared.backend.has_room(&file.inode.file) || gate.waiting() < 8 {
        if file.shared.backend.has_room(&file.inode.file) {
            file.advise(Advice::WillNeed, page * PAGE as u64..(page + 1) * PAGE as u64).unwrap();
            page += 2;
        }
        std::thread::yield_now();
    }
    (cache, file)
}

/// A hit of a page with the readahead mark waited until the queue had room for the next window.
#[test]
fn hits_continue_while_the_queue_of_a_stalled_source_is_full() {
    let gate = Arc::new(Gate::default());
    let (cache, file) = stalled(&gate);
    std::thread::scope(|scope| {
        let (done, is_done) = sync_channel(2);
        let file = &file;
        scope.spawn(move || {
            read(file, 1).unwrap();
            done.send("read").unwrap();
            file.cached_page(1).unwrap();
            done.send("lent").unwrap();
        });
        // Time for the slowest machine; without the limit the test would hang instead of fail.
        let hits = [(); 2].map(|()| is_done.recv_timeout(Duration::from_secs(60)));
        gate.open();
        assert_eq!(hits, [Ok("read"), Ok("lent")]);
    });
    // The mark is still there, and continues readahead once there is room.
    cache.shared.backend.drain();
    assert!(!cache.shared.core.is_cached(&file.inode.mapping, 4));
    read(&file, 1).unwrap();
    assert!(cache.shared.core.is_cached(&file.inode.mapping, 4));
}

/// A hit or a task that had seen room waited if other threads took it before the read was queued.
#[test]
fn hits_and_tasks_wait_for_no_room_that_others_take_meanwhile() {
    let gate = Arc::new(Gate::default());
    let (cache, file) = stalled(&gate);
    std::thread::scope(|scope| {
        let (done, is_done) = sync_channel(2);
        let file = &file;
        let (shared, inode) = (&file.shared, &file.inode);
        scope.spawn(move || {
            let task = file.task();
            shared.read_ahead(inode, &task, Window { first: 4, pages: 4, mark: None }, false);
            done.send("hit").unwrap();
            #[cfg(feature = "async")]
            {
                let folio = shared.try_insert(inode, &task, 8).unwrap();
                let outcome = Arc::default();
                shared.submit_fault(inode, &task, (8, folio), alone(8), Arrival::default(), outcome);
            }
            done.send("task").unwrap();
        });
        let both = [(); 2].map(|()| is_done.recv_timeout(Duration::from_secs(60)));
        gate.open();
        assert_eq!(both, [Ok("hit"), Ok("task")]);
    });
    cache.shared.backend.drain();
    for page in 4..if cfg!(feature = "async") { 9 } else { 8 } {
        assert!(cache.shared.core.is_cached(&file.inode.mapping, page), "page {page}");
    }
}
