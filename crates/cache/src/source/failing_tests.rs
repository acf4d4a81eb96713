//! How often a source is asked for a page that it does not give.

use super::tests::{Manner, PAGE, kind, object, read};
use super::{BlockSource, RangeRequest, SourceState};
use crate::{CachedFile, Error, OpenMode, PageCache};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

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
