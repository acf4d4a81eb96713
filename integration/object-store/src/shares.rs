//! Shares of the memory for reads that miss.
//!
//! Blocks would push out others that nobody has copied yet if too many were read at once, so a read
//! that misses first takes a share. The store may hang on a read, and that one keeps its share
//! until the cache gives it up. In a small cache it has all of them. So a thread looks from time to
//! time, while others wait, whether any share came back; if none did, those that wait go on without
//! a share, and read from the store alone what they need.

use futures_util::future::{Either, select};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// The number of all shares.
pub(crate) const SHARES: u32 = 1 << 20;

/// The shares of a store.
pub(crate) struct Shares {
    free: Semaphore,
    looking: Arc<Looking>,
    stalled_after: Duration,
}

/// The state that the reads share with the thread that looks.
#[derive(Default)]
struct Looking {
    state: Mutex<State>,
    /// Tells those that wait that no share came back.
    stalled: Notify,
}

#[derive(Default)]
struct State {
    /// Number of reads that wait.
    waiting: usize,
    /// Number of times that shares came back.
    returned: u64,
    /// Whether the thread runs.
    looks: bool,
}

/// Shares that come back when this is dropped.
pub(crate) struct Share<'s> {
    looking: &'s Looking,
    _free: SemaphorePermit<'s>,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.looking.state().returned += 1;
    }
}

/// A read that waits.
struct Waiting<'s>(&'s Looking);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl Shares {
    /// All shares, of which some come back within `stalled_after` unless the store hangs.
    pub(crate) fn new(stalled_after: Duration) -> Shares {
        Shares { free: Semaphore::new(SHARES as usize), looking: Arc::default(), stalled_after }
    }

    /// Takes shares, and waits for them. `None`: none came back for long.
    pub(crate) async fn take(&self, shares: u32) -> Option<Share<'_>> {
        let taken = |free| Share { looking: &self.looking, _free: free };
        if let Ok(free) = self.free.try_acquire_many(shares) {
            return Some(taken(free));
        }
        // Before the thread may look.
        let stalled = self.looking.stalled.notified();
        let _waiting = self.looking.wait(self.stalled_after);
        match select(pin!(self.free.acquire_many(shares)), pin!(stalled)).await {
            // It fails if the semaphore is closed, which nobody does.
            Either::Left((free, _)) => free.ok().map(taken),
            Either::Right(_) => None,
        }
    }
}

impl Looking {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a read that waits. The first one starts the thread.
    fn wait(self: &Arc<Self>, stalled_after: Duration) -> Waiting<'_> {
        let mut state = self.state();
        state.waiting += 1;
        if !state.looks {
            let (looking, returned) = (self.clone(), state.returned);
            let look = move || looking.look(stalled_after, returned);
            // Not a timer of the reader's runtime, which may have none. Without the thread reads
            // wait until the cache gives the others up.
            state.looks = std::thread::Builder::new().name("mglru-stalls".to_owned()).spawn(look).is_ok();
        }
        Waiting(self)
    }

    /// Looks until nobody waits any more.
    fn look(&self, stalled_after: Duration, mut returned: u64) {
        loop {
            std::thread::sleep(stalled_after);
            let mut state = self.state();
            if state.waiting == 0 {
                state.looks = false;
                return;
            }
            if state.returned == returned {
                self.stalled.notify_waiters();
            }
            returned = state.returned;
        }
    }
}
