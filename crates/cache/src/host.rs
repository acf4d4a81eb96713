//! The cache as the core's host: real time, and threads that wait.
//!
//! # Locking
//!
//! The core calls these methods with its own locks held: they only set flags, wake threads and, for
//! swap, copy a page.

use crate::frames::Frames;
use crate::latch::Latches;
use crate::prefetch::prefetch_for_write;
use crate::swap::Store;
use mglru_core::{
    Event, FlushReason, FolioId, Host, MemcgId, OomDecision, OutOfMemory, SwapOut, SwapOutcome, SwapSlot,
    Throttle, Time,
};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A bell: rung by anyone, slept on by one worker or by everybody who waits for progress. Ringing
/// it costs one atomic addition while nobody sleeps.
#[derive(Default)]
pub(crate) struct Bell {
    rings: AtomicU64,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    rung: Condvar,
    /// How often somebody went to sleep.
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
    }

    /// How often it was rung.
    pub(crate) fn rings(&self) -> u64 {
        self.rings.load(Ordering::SeqCst)
    }

    /// Sleeps until it was rung more often than `heard`, at most `timeout`. The rings now.
    pub(crate) fn wait(&self, heard: u64, timeout: Duration) -> u64 {
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Announced before looking: who rings either sees the sleeper, or rang before this look.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        #[cfg(test)]
        self.sleeps.fetch_add(1, Ordering::SeqCst);
        let woken = self.rung.wait_timeout_while(guard, timeout, |()| self.rings() <= heard);
        drop(woken.unwrap_or_else(PoisonError::into_inner));
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        self.rings()
    }
}

/// Who is told about every event.
pub type Observer = Box<dyn Fn(Event) + Send + Sync>;

/// Who is asked where a page cannot be had.
pub(crate) type OomCallback = Box<dyn Fn(&OutOfMemory) -> OomDecision + Send + Sync>;

/// Time, wake-ups and sleepers of one cache.
pub(crate) struct CacheHost {
    began: Instant,
    frames: Arc<Frames>,
    pub(crate) latches: Latches,
    pub(crate) swap: Option<Store>,
    pub(crate) flusher: Bell,
    /// Reclaim asked for the flusher: it writes although little is dirty.
    pub(crate) flush_for_reclaim: AtomicBool,
    pub(crate) background: Bell,
    /// Rung whenever pages were written or read: those who dirty or reclaim too fast wait for it.
    pub(crate) progress: Bell,
    /// Rung when those who reclaim have put enough pages back.
    isolated: Bell,
    pub(crate) observer: OnceLock<Observer>,
    pub(crate) oom_callback: OnceLock<OomCallback>,
    /// Who was killed, and has memory yet.
    pub(crate) victims: Mutex<Vec<MemcgId>>,
    /// There may be some.
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
            background: Bell::default(),
            progress: Bell::default(),
            isolated: Bell::default(),
            observer: OnceLock::new(),
            oom_callback: OnceLock::new(),
            victims: Mutex::default(),
            has_victims: AtomicBool::new(false),
        }
    }

    /// Parks the calling thread as the core asked, unless pages were written since `heard`.
    pub(crate) fn park(&self, throttle: Throttle, heard: u64) {
        match throttle {
            // What is written or read puts no page back. A ring in this moment is missed, for 20
            // ms.
            Throttle::Isolated => self.isolated.wait(self.isolated.rings(), throttle.timeout()),
            _ => self.progress.wait(heard, throttle.timeout()),
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
        self.oom_callback.get().map_or(OomDecision::Fail, |callback| callback(report))
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

    fn event(&self, event: Event) {
        if let Some(observer) = self.observer.get() {
            observer(event);
        }
    }
}

/// A number for the calling thread, which chooses the batches that it uses.
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    NUMBER.with(|number| *number)
}
