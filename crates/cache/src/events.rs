//! Events as a queue that another thread reads: bounded, and never waited for.
//!
//! The core reports events with its locks held, so that an observer that waits would stop the
//! cache. A queue keeps what has room in it and counts the rest.

use mglru_core::Event;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bytes of an event in a queue, with a word for its place.
pub(crate) const EVENT_BYTES: u64 = size_of::<Event>() as u64 + 8;

/// The events of a cache, in the order in which they happened on each thread. See
/// [`crate::Builder::events`].
///
/// It ends when the cache is gone: closed, and all its files, tenants and guards dropped. Then
/// [`Self::wait`] returns at once.
pub struct Events {
    receiver: Receiver<Event>,
    dropped: Arc<AtomicU64>,
}

impl Events {
    /// The next event, if there is one now.
    pub fn try_next(&self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }

    /// Waits for the next event. `None`: the time is over, or the cache is gone.
    pub fn wait(&self, timeout: Duration) -> Option<Event> {
        self.receiver.recv_timeout(timeout).ok()
    }

    /// Number of events so far that found the queue full and were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}

/// The end of the queue that the core writes to.
pub(crate) struct EventQueue {
    sender: SyncSender<Event>,
    dropped: Arc<AtomicU64>,
    /// Until the user takes it.
    events: Mutex<Option<Events>>,
}

impl EventQueue {
    /// A queue of up to `capacity` events, at least one.
    pub(crate) fn new(capacity: usize) -> EventQueue {
        let (sender, receiver) = sync_channel(capacity.max(1));
        let dropped = Arc::<AtomicU64>::default();
        let events = Mutex::new(Some(Events { receiver, dropped: dropped.clone() }));
        EventQueue { sender, dropped, events }
    }

    /// Adds an event, or counts it as dropped: if the queue is full, or nobody reads any more.
    pub(crate) fn add(&self, event: Event) {
        if self.sender.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn take(&self) -> Option<Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}
