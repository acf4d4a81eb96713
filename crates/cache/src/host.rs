//! The cache as the core's host: real time, wake-ups and sleeping threads.
//!
//! # Locking
//!
//! The core calls these methods with its own locks held. They only set flags, wake threads and, for
//! swap, copy a page.

use crate::events::EventQueue;
use crate::frames::{Frames, forget_zeros};
use crate::latch::Latches;
use crate::prefetch::prefetch_for_write;
use crate::swap::Store;
use crate::waking::wake_all;
use mglru_core::{
    Event, FlushReason, FolioId, Host, MemcgId, OomDecision, OutOfMemory, SwapOut, SwapOutcome, SwapSlot,
    Throttle, Time,
};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How many waiting tasks are looked at before one is registered again.
const TASKS_LOOKED_AT: usize = 64;
/// Tasks that a ring wakes. Of thousands that wait for memory, most would find none.
const TASKS_WOKEN: usize = 32;

/// A bell that any thread can ring. One worker, or all threads that wait for progress, sleep on it.
/// Without sleepers, ringing costs one atomic addition.
#[derive(Default)]
pub(crate) struct Bell {
    rings: AtomicU64,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    rung: Condvar,
    /// Tasks that wait for a ring, and their number.
    tasks: Mutex<VecDeque<Waker>>,
    waiting: AtomicUsize,
    /// Number of times a thread went to sleep.
    #[cfg(test)]
    pub(crate) sleeps: AtomicU64,
}

impl Bell {
    pub(crate) fn ring(&self) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.rung.notify_all();
        }
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            let count = tasks.len().min(TASKS_WOKEN);
            let woken: Vec<_> = tasks.drain(..count).collect();
            self.waiting.store(tasks.len(), Ordering::SeqCst);
            drop(tasks);
            wake_all(woken);
        }
    }

    /// Registers a task to be woken by a ring: the next one, unless many tasks wait. All of them
    /// also wait for a timer. The caller checks afterwards whether the bell was rung before.
    #[cfg_attr(not(feature = "async"), allow(dead_code, reason = "for futures"))]
    pub(crate) fn register(&self, waker: &Waker) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if !tasks.iter().rev().take(TASKS_LOOKED_AT).any(|known| known.will_wake(waker)) {
            tasks.push_back(waker.clone());
        }
        self.waiting.store(tasks.len(), Ordering::SeqCst);
    }

    /// Number of rings so far.
    pub(crate) fn rings(&self) -> u64 {
        self.rings.load(Ordering::SeqCst)
    }

    /// Sleeps until there are more rings than `rings_before`, at most `timeout`. Returns the
    /// number of rings.
    pub(crate) fn wait(&self, rings_before: u64, timeout: Duration) -> u64 {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Announce before checking: a ringing thread sees the sleeper, or rang before this check.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        #[cfg(test)]
        self.sleeps.fetch_add(1, Ordering::SeqCst);
        let woken = self.rung.wait_timeout_while(guard, timeout, |()| self.rings() <= rings_before);
        drop(woken.unwrap_or_else(PoisonError::into_inner));
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        self.rings()
    }
}

/// A callback that receives every event.
pub type Observer = Box<dyn Fn(Event) + Send + Sync>;

/// A callback that decides when no page can be freed.
pub(crate) type OomCallback = Box<dyn Fn(&OutOfMemory) -> OomDecision + Send + Sync>;

/// Time, wake-ups and sleepers of one cache.
pub(crate) struct CacheHost {
    began: Instant,
    frames: Arc<Frames>,
    pub(crate) latches: Latches,
    pub(crate) swap: Option<Store>,
    pub(crate) flusher: Bell,
    /// Reclaim has asked for write-back: the flusher writes even if few pages are dirty.
    pub(crate) flush_for_reclaim: AtomicBool,
    /// Number of writes of file pages that have ended.
    pub(crate) writes_ended: AtomicU64,
    /// Each write that ends rings the flusher.
    pub(crate) flusher_awaits_write: AtomicBool,
    pub(crate) background: Bell,
    /// Rung whenever pages were written or read. Reclaimers wait for it.
    pub(crate) progress: Bell,
    /// Rung when the cache is closed.
    pub(crate) closed: Bell,
    /// Rung when enough isolated pages are back on the lists.
    isolated: Bell,
    pub(crate) observer: OnceLock<Observer>,
    pub(crate) events: OnceLock<EventQueue>,
    pub(crate) oom_callback: OnceLock<OomCallback>,
    /// A callback of the user panicked. The observer is not called any more.
    pub(crate) callback_panicked: AtomicBool,
    /// OOM-killed tenants whose memory is not taken yet.
    pub(crate) victims: Mutex<Vec<MemcgId>>,
    /// Whether `victims` may be non-empty.
    pub(crate) has_victims: AtomicBool,
}

impl CacheHost {
    pub(crate) fn new(frames: Arc<Frames>, swap: Option<Store>) -> CacheHost {
        CacheHost {
            began: Instant::now(),
            frames,
            latches: Latches::new(),
            swap,
            flusher: Bell::default(),
            flush_for_reclaim: AtomicBool::new(false),
            writes_ended: AtomicU64::new(0),
            flusher_awaits_write: AtomicBool::new(false),
            background: Bell::default(),
            progress: Bell::default(),
            closed: Bell::default(),
            isolated: Bell::default(),
            observer: OnceLock::new(),
            events: OnceLock::new(),
            oom_callback: OnceLock::new(),
            callback_panicked: AtomicBool::new(false),
            victims: Mutex::default(),
            has_victims: AtomicBool::new(false),
        }
    }

    /// Calls a callback of the user. Returns `None` if it panicked. The panic must not unwind
    /// through the core, which may hold locks and isolated pages here; the panic hook has reported
    /// it.
    fn guarded<R>(&self, call: impl FnOnce() -> R) -> Option<R> {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
        if result.is_err() {
            self.callback_panicked.store(true, Ordering::Relaxed);
        }
        result.ok()
    }

    /// Counts the end of a write of file pages.
    pub(crate) fn note_write_ended(&self) {
        self.writes_ended.fetch_add(1, Ordering::SeqCst);
        if self.flusher_awaits_write.load(Ordering::SeqCst) {
            self.flusher.ring();
        }
    }

    /// Parks the calling thread as the core asked, unless pages were written or read since
    /// `rings_before`.
    pub(crate) fn park(&self, throttle: Throttle, rings_before: u64) {
        match throttle {
            // Completed transfers return no isolated page. A ring just before this wait is missed,
            // which costs up to 20 ms.
            Throttle::Isolated => self.isolated.wait(self.isolated.rings(), throttle.timeout()),
            _ => self.progress.wait(rings_before, throttle.timeout()),
        };
    }
}

impl Host for CacheHost {
    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wake_flusher(&self, reason: FlushReason) {
        if reason == FlushReason::Reclaim {
            self.flush_for_reclaim.store(true, Ordering::Release);
        }
        self.flusher.ring();
    }

    fn wake_background(&self) {
        self.background.ring();
    }

    fn wake_waiters(&self, folio: FolioId) {
        self.latches.wake(folio);
    }

    fn wake_isolated(&self) {
        self.isolated.ring();
    }

    fn swap_out(&self, write: SwapOut) -> SwapOutcome {
        self.swap.as_ref().map_or(SwapOutcome::Refused, |swap| swap.swap_out(&self.frames, write))
    }

    fn swap_freed(&self, slot: SwapSlot) {
        if let Some(swap) = &self.swap {
            swap.freed(slot);
        }
    }

    fn out_of_memory(&self, report: &OutOfMemory) -> OomDecision {
        let callback = self.oom_callback.get();
        callback.and_then(|callback| self.guarded(|| callback(report))).unwrap_or(OomDecision::Fail)
    }

    fn oom_kill(&self, victim: MemcgId) -> bool {
        self.victims.lock().unwrap_or_else(PoisonError::into_inner).push(victim);
        self.has_victims.store(true, Ordering::Release);
        true
    }

    #[inline]
    fn prefetch<T>(&self, at: &T) {
        prefetch_for_write(at);
    }

    fn frame_retired(&self, frame: FolioId) {
        self.frames.release(frame.0);
    }

    fn zeros_unused(&self, pages: Range<*const u8>) -> bool {
        forget_zeros(pages)
    }

    fn event(&self, event: Event) {
        if let Some(events) = self.events.get() {
            events.add(event);
        }
        if let Some(observer) = self.observer.get()
            && !self.callback_panicked.load(Ordering::Relaxed)
        {
            self.guarded(|| observer(event));
        }
    }
}

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

/// A number for the calling thread, from 1 on; it selects the per-CPU batches the thread uses.
#[inline]
pub(crate) fn thread_number() -> usize {
    match known_thread_number() {
        0 => number_thread(),
        number => number,
    }
}

/// [`thread_number`] if the thread has one already, or 0.
#[inline(always)]
pub(crate) fn known_thread_number() -> usize {
    NUMBER.get()
}

#[cold]
fn number_thread() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    NUMBER.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
    NUMBER.get()
}
