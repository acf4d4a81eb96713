//! The threads of a cache: background reclaim, the flusher, and what happens when a transfer completes.

mod background;
mod completion;
mod flusher;

pub(crate) use completion::{Flight, InFlight};

use crate::cache::Shared;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The running threads.
pub(crate) struct Workers(Vec<JoinHandle<()>>);

impl Workers {
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<Workers> {
        let mut threads = Vec::new();
        let runs: [(&str, fn(&Shared)); 2] =
            [("mglru-reclaim", background::run), ("mglru-flush", flusher::run)];
        for (name, run) in runs {
            let shared = shared.clone();
            threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(move || run(&shared))?);
        }
        Ok(Workers(threads))
    }

    pub(crate) fn join(self) {
        for thread in self.0 {
            // A worker that panicked said so itself; there is nothing to add.
            let _ = thread.join();
        }
    }
}
