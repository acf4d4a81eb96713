//! The threads of a cache (background reclaim and the flusher) and the completion of transfers.

mod background;
mod completion;
mod flusher;

use crate::shared::Shared;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

type Run = fn(&Shared);

pub(crate) struct Workers(Vec<JoinHandle<()>>);

impl Workers {
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Workers> {
        let mut workers = Workers(Vec::new());
        let runs: [(&str, Run); 2] = [("mglru-reclaim", background::run), ("mglru-flush", flusher::run)];
        for (name, run) in runs {
            let for_thread = shared.clone();
            match std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&for_thread)) {
                Ok(thread) => workers.0.push(thread),
                Err(error) => {
                    workers.stop(shared);
                    return Err(error);
                }
            }
        }
        Ok(workers)
    }

    /// Stops the threads and waits for them.
    pub(crate) fn stop(self, shared: &Shared) {
        shared.stopping.store(true, Ordering::Release);
        shared.host.flusher.ring();
        shared.host.background.ring();
        shared.host.progress.ring();
        self.join();
    }

    fn join(self) {
        for thread in self.0 {
            // A worker that panicked has already printed its message.
            let _ = thread.join();
        }
    }
}
