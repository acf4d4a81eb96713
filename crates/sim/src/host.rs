//! The host of the simulated core: provides the time and records wake-up requests.
//!
//! A request is only recorded. After every step of an actor, the simulator makes the requested
//! actors runnable; nothing else happens inside a call of the core.

use crate::checker::Model;
use crate::clock::Clock;
use crate::machine::Machine;
use crate::swap::Swap;
use mglru_core::{
    Event, FlushReason, FolioId, Host, MappingId, MemcgId, OomDecision, OutOfMemory, SwapOut, SwapOutcome,
    SwapStore, Time,
};
use mglru_workload::Random;
use prefetch_index::prefetch_index;
use std::cell::{Cell, RefCell};

/// Receives the core's events.
pub trait Observer {
    /// Called when an event happens at `now`.
    fn event(&mut self, now: Time, event: &Event);

    /// Called when a job accesses a page.
    fn touch(&mut self, now: Time, touch: &PageTouch) {
        let _ = (now, touch);
    }

    /// Whether the observer needs page accesses and events of individual folios, which make a run
    /// slower.
    fn sees_folios(&self) -> bool {
        false
    }
}

/// A page access of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageTouch {
    /// Number of accesses, of all jobs, that started before.
    pub access: u64,
    /// The page's name in the job.
    pub page: u64,
    /// The memcg of the job.
    pub memcg: MemcgId,
    /// Whether it is anonymous memory, which has a separate name space.
    pub anon: bool,
    /// Whether it is a write.
    pub write: bool,
    /// Whether it goes through a mapping.
    pub mapped: bool,
    /// Whether nothing had to be read.
    pub hit: bool,
    /// Whether the page was missing and this job inserts it.
    pub arrives: bool,
    /// The page's mapping and position in the core.
    pub place: (MappingId, u32),
}

impl<F: FnMut(Time, &Event)> Observer for F {
    fn event(&mut self, now: Time, event: &Event) {
        self(now, event);
    }
}

/// Requests of the core since the simulator last took them.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Calls {
    /// Reclaim found only dirty pages.
    pub(crate) flush_for_reclaim: bool,
    /// The number of dirty pages is above the background threshold.
    pub(crate) flush_for_background: bool,
    /// Free memory is below the low watermark.
    pub(crate) background: bool,
    /// Tasks that wait for background reclaim may go on.
    pub(crate) throttled: bool,
    /// Memcgs to kill.
    pub(crate) kills: Vec<MemcgId>,
    /// Pages to write to swap.
    pub(crate) swap_outs: Vec<SwapOut>,
    /// The pass that asked for these and earlier ones is over.
    pub(crate) end_swap_outs: bool,
    /// Folios whose waiters should look again.
    pub(crate) folios: Vec<FolioId>,
}

/// The host of a simulated core.
#[derive(Default)]
pub struct SimHost {
    pub(crate) clock: Clock,
    called: Cell<bool>,
    /// Number of times the host was asked about an OOM.
    asked: Cell<u64>,
    calls: RefCell<Calls>,
    retired_frames: Cell<u32>,
    /// How swap writes end; `None`: no swap.
    swap: Option<SwapStore>,
    /// How many pages of a million compressed memory refuses, and the draws that choose them.
    /// `None`: it takes all.
    refusals: RefCell<Option<(u64, Random)>>,
    /// Pages compressed since last taken.
    compressed: Cell<u64>,
    observers: Vec<RefCell<Box<dyn Observer>>>,
    /// Whether an observer needs every folio.
    sees_folios: bool,
    pub(crate) model: Option<RefCell<Model>>,
}

impl SimHost {
    /// The host of a machine.
    pub(crate) fn new(machine: &Machine) -> SimHost {
        let per_million = u64::from(machine.swap_refusals_per_million);
        let refusals = (per_million > 0).then(|| (per_million, Random::stream(machine.seed, 0x2EF5)));
        SimHost {
            swap: machine.swap.map(|_| Swap::options(machine.swap).store),
            refusals: RefCell::new(refusals),
            ..SimHost::default()
        }
    }

    /// Whether compressed memory refuses the next page.
    fn refuses_page(&self) -> bool {
        let mut refusals = self.refusals.borrow_mut();
        refusals.as_mut().is_some_and(|(per_million, random)| random.below(1_000_000) < *per_million)
    }

    /// Whether there are requests.
    #[inline]
    pub(crate) fn is_called(&self) -> bool {
        self.called.get()
    }

    /// Pages to write to swap since the requests were last taken.
    pub(crate) fn swap_outs(&self) -> u64 {
        self.calls.borrow().swap_outs.len() as u64
    }

    /// Whether a pass has ended since the requests were last taken.
    pub(crate) fn ends_swap_outs(&self) -> bool {
        self.calls.borrow().end_swap_outs
    }

    pub(crate) fn take_calls(&self) -> Calls {
        self.called.set(false);
        self.calls.take()
    }

    /// Pages compressed since the last call.
    pub(crate) fn take_compressed(&self) -> u64 {
        self.compressed.take()
    }

    fn call(&self, note: impl FnOnce(&mut Calls)) {
        self.called.set(true);
        note(&mut self.calls.borrow_mut());
    }

    pub(crate) fn observe(&mut self, observer: Box<dyn Observer>) {
        self.sees_folios |= observer.sees_folios();
        self.observers.push(RefCell::new(observer));
    }

    /// Reports an access to the observers.
    #[cold]
    pub(crate) fn report_touch(&self, touch: &PageTouch) {
        for observer in &self.observers {
            observer.borrow_mut().touch(self.now(), touch);
        }
    }

    /// Frames that the core retired to pay for its own memory.
    pub(crate) fn retired_frames(&self) -> u32 {
        self.retired_frames.get()
    }
}

impl std::fmt::Debug for SimHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimHost")
            .field("clock", &self.clock)
            .field("calls", &self.calls)
            .finish_non_exhaustive()
    }
}

impl Host for SimHost {
    fn now(&self) -> Time {
        self.clock.now()
    }

    /// Kills the victim that `Victim` would choose, except that every fourth request is retried and
    /// every fourth fails.
    fn out_of_memory(&self, report: &OutOfMemory) -> OomDecision {
        let asked = self.asked.replace(self.asked.get() + 1);
        match (&report.victim, asked % 4) {
            (_, 1) => OomDecision::Retry,
            (Some(victim), 0 | 2) => OomDecision::Kill(victim.clone()),
            _ => OomDecision::Fail,
        }
    }

    /// Only a hint to the processor: a replay takes less time and has the same results.
    #[inline]
    fn prefetch<T>(&self, at: &T) {
        prefetch_index(std::slice::from_ref(at), 0);
    }

    fn wake_flusher(&self, reason: FlushReason) {
        self.call(|calls| match reason {
            FlushReason::Reclaim => calls.flush_for_reclaim = true,
            FlushReason::Background => calls.flush_for_background = true,
        });
    }

    fn wake_background(&self) {
        self.call(|calls| calls.background = true);
    }

    fn wake_throttled(&self) {
        self.call(|calls| calls.throttled = true);
    }

    fn wake_waiters(&self, folio: FolioId) {
        self.call(|calls| calls.folios.push(folio));
    }

    fn swap_out(&self, write: SwapOut) -> SwapOutcome {
        match self.swap {
            None => SwapOutcome::Refused,
            Some(SwapStore::Memory) => {
                self.compressed.set(self.compressed.get() + 1);
                if self.refuses_page() { SwapOutcome::Refused } else { SwapOutcome::Done }
            }
            Some(SwapStore::Device) => {
                self.call(|calls| calls.swap_outs.push(write));
                SwapOutcome::Started
            }
        }
    }

    fn end_swap_outs(&self) {
        if self.swap == Some(SwapStore::Device) {
            self.call(|calls| calls.end_swap_outs = true);
        }
    }

    fn oom_kill(&self, victim: MemcgId) -> bool {
        self.call(|calls| calls.kills.push(victim));
        true
    }

    fn frame_retired(&self, _: FolioId) {
        self.retired_frames.set(self.retired_frames.get() + 1);
    }

    fn frame_restored(&self, _: FolioId) {
        self.retired_frames.set(self.retired_frames.get() - 1);
    }

    #[inline]
    fn observes(&self) -> bool {
        self.sees_folios
    }

    #[inline]
    fn event(&self, event: Event) {
        if self.model.is_some() || !self.observers.is_empty() {
            self.report(&event);
        }
    }
}

impl SimHost {
    /// Shows an event to the model and to the observers.
    #[inline(never)]
    fn report(&self, event: &Event) {
        if let Some(model) = &self.model {
            model.borrow_mut().event(event);
        }
        for observer in &self.observers {
            observer.borrow_mut().event(self.now(), event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_noted_once() {
        let host = SimHost::default();
        assert!(!host.is_called());
        host.wake_flusher(FlushReason::Reclaim);
        host.wake_waiters(FolioId(7));
        assert!(host.is_called());
        let calls = host.take_calls();
        assert!(calls.flush_for_reclaim && !calls.flush_for_background && !calls.background);
        assert_eq!(calls.folios, [FolioId(7)]);
        assert!(!host.is_called());
        assert_eq!(host.take_calls(), Calls::default());
    }
}
