//! The threads of a cache (background reclaim and the flusher) and the completion of transfers.

mod background;
mod completion;
mod flusher;

use crate::backend::start_thread;
use crate::shared::Shared;
#[cfg(feature = "async")]
pub(crate) use flusher::Pacing;
pub(crate) use flusher::Synced;
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

type Run = fn(&Shared);

/// The longest pause before a worker that panicked is restarted.
const RESTART_PAUSE: Duration = Duration::from_millis(10);

pub(crate) struct Workers(Vec<JoinHandle<()>>);

impl Workers {
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Workers> {
        let mut workers = Workers(Vec::new());
        let runs: [(&str, Run); 2] = [("mglru-reclaim", background::run), ("mglru-flush", flusher::run)];
        for (name, run) in runs {
            let for_thread = shared.clone();
            let work = move || {
                OF_CACHE.set(for_thread.number);
                supervise(&for_thread, run);
            };
            match start_thread(name, work) {
                Ok(thread) => workers.0.push(thread),
                Err(error) => {
                    workers.stop(shared);
                    return Err(error);
                }
            }
        }
        Ok(workers)
    }

    /// Stops the threads and waits for them. The caller is none of them.
    pub(crate) fn stop(self, shared: &Shared) {
        Workers::tell_to_stop(shared);
        self.join();
    }

    /// Tells the threads to stop, and everyone that the cache is closed.
    pub(crate) fn tell_to_stop(shared: &Shared) {
        shared.stopping.store(true, Ordering::Release);
        shared.host.flusher.ring();
        shared.host.background.ring();
        shared.host.progress.ring();
        shared.host.closed.ring();
        shared.keepers.end();
    }

    fn join(self) {
        for thread in self.0 {
            // `supervise` caught all panics of the worker.
            let _ = thread.join();
        }
    }
}

thread_local! {
    /// The number of the cache whose worker the thread is.
    static OF_CACHE: Cell<u64> = const { Cell::new(0) };
}

/// Whether the calling thread is a worker of this cache.
pub(crate) fn is_worker_of(shared: &Shared) -> bool {
    OF_CACHE.get() == shared.number
}

/// Runs a worker until the cache stops, and restarts it after a panic: without the worker,
/// write-back would stop silently. The restarted worker continues from the core's state.
/// [`crate::CacheStats::worker_panics`] counts the panics.
fn supervise(shared: &Shared, run: Run) {
    while catch_unwind(AssertUnwindSafe(|| run(shared))).is_err() {
        shared.worker_panics.fetch_add(1, Ordering::Relaxed);
        if shared.stopping.load(Ordering::Acquire) {
            return;
        }
        // The cause of the panic may persist: do not spin.
        shared.sleep(RESTART_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{BackendKind, MemoryFiles};
    use crate::{OpenMode, PageCache};

    /// A worker that panics works on.
    #[test]
    fn a_worker_that_panics_is_started_anew() {
        let files = MemoryFiles::new(1);
        let cache = PageCache::builder(2 << 20).backend(BackendKind::Memory(files.clone())).build().unwrap();
        let file = cache.open("f", OpenMode::Create).unwrap();
        file.write_at(b"hello", 0).unwrap();
        let shared = file.shared.clone();
        // The flusher of this cache is at rest for seconds: another one, which panics twice.
        supervise(&shared, |shared| {
            if shared.worker_panics.load(Ordering::Relaxed) < 2 {
                shared.host.progress.ring();
                std::panic::resume_unwind(Box::new("a test"));
            }
            for inode in shared.inodes() {
                shared.submit_dirty(&inode);
                inode.wait_for_transfers();
            }
        });
        assert_eq!(cache.stats().worker_panics, 2);
        assert_eq!(files.contents("f").unwrap(), b"hello");
    }
}
