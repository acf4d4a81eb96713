//! The simulated world as the core sees it: it can ask for the time, and for somebody to be woken.
//!
//! A wish is only noted. The simulator looks at the notes after every step of an actor, and makes
//! whoever is wanted runnable: nothing happens inside a call of the core.

use crate::checker::Model;
use crate::clock::Clock;
use mglru_core::{
    Event, FlushReason, FolioId, Host, MappingId, MemcgId, OomDecision, OutOfMemory, SwapOut, SwapOutcome,
    SwapStore, Time,
};
use std::cell::{Cell, RefCell};

/// Sees what happens inside the core, as it happens.
pub trait Observer {
    /// Something happened at `now`.
    fn event(&mut self, now: Time, event: &Event);

    /// A job touches a page.
    fn touch(&mut self, now: Time, touch: &PageTouch) {
        let _ = (now, touch);
    }

    /// Whether it wants to see touches, and events of every folio, which makes a run slower.
    fn sees_folios(&self) -> bool {
        false
    }
}

/// A touch of a page by a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageTouch {
    /// How many touches began before it, by all jobs.
    pub access: u64,
    /// The page, as the job names it.
    pub page: u64,
    /// It is of anonymous memory, which is another space of names.
    pub anon: bool,
    /// It is written to.
    pub write: bool,
    /// Through a mapping.
    pub mapped: bool,
    /// It was cached, or nothing had to be read.
    pub hit: bool,
    /// It was not cached, and this job is going to insert it.
    pub arrives: bool,
    /// The page, as the core names it.
    pub place: (MappingId, u32),
}

impl<F: FnMut(Time, &Event)> Observer for F {
    fn event(&mut self, now: Time, event: &Event) {
        self(now, event);
    }
}

/// What the core asked for since the last look.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Calls {
    /// Reclaim met nothing but dirty pages.
    pub(crate) flush_for_reclaim: bool,
    /// More pages are dirty than may be in the background.
    pub(crate) flush_for_background: bool,
    /// Free memory is below the low watermark.
    pub(crate) background: bool,
    /// Who is killed.
    pub(crate) kills: Vec<MemcgId>,
    /// Pages that are to be written to swap.
    pub(crate) swap_outs: Vec<SwapOut>,
    /// Whoever waits for these should look again.
    pub(crate) folios: Vec<FolioId>,
}

/// The host of a simulated core.
#[derive(Default)]
pub struct SimHost {
    pub(crate) clock: Clock,
    called: Cell<bool>,
    /// How often it was asked what to do where no page can be had.
    asked: Cell<u64>,
    calls: RefCell<Calls>,
    retired_frames: Cell<u32>,
    /// How writes to swap end; `None`: there is no swap.
    swap: Option<SwapStore>,
    /// Pages that were compressed since the last look.
    compressed: Cell<u64>,
    observers: Vec<RefCell<Box<dyn Observer>>>,
    /// One of them wants to see all.
    sees_folios: bool,
    /// What the checker knows.
    pub(crate) model: Option<RefCell<Model>>,
}

impl SimHost {
    /// The host of a machine with such swap, if any.
    pub(crate) fn new(swap: Option<SwapStore>) -> SimHost {
        SimHost { swap, ..SimHost::default() }
    }

    /// Somebody was called and has not been woken yet.
    #[inline]
    pub(crate) fn is_called(&self) -> bool {
        self.called.get()
    }

    /// Takes the calls.
    pub(crate) fn take_calls(&self) -> Calls {
        self.called.set(false);
        self.calls.take()
    }

    /// Pages that were compressed since the last call of this.
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

    /// Shows a touch to those who want to see it.
    #[cold]
    pub(crate) fn tell_touch(&self, touch: &PageTouch) {
        for observer in &self.observers {
            observer.borrow_mut().touch(self.now(), touch);
        }
    }

    /// Frames that the core gave up to pay for its own memory.
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

    /// Kills who would be killed under `Victim`; but every fourth time it hopes for better, and
    /// every fourth it refuses.
    fn out_of_memory(&self, report: &OutOfMemory) -> OomDecision {
        let asked = self.asked.replace(self.asked.get() + 1);
        match (&report.victim, asked % 4) {
            (_, 1) => OomDecision::Retry,
            (Some(victim), 0 | 2) => OomDecision::Kill(victim.clone()),
            _ => OomDecision::Fail,
        }
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

    fn wake_waiters(&self, folio: FolioId) {
        self.call(|calls| calls.folios.push(folio));
    }

    fn swap_out(&self, write: SwapOut) -> SwapOutcome {
        match self.swap {
            None => SwapOutcome::Refused,
            Some(SwapStore::Memory) => {
                self.compressed.set(self.compressed.get() + 1);
                SwapOutcome::Done
            }
            Some(SwapStore::Device) => {
                self.call(|calls| calls.swap_outs.push(write));
                SwapOutcome::Started
            }
        }
    }

    fn oom_kill(&self, victim: MemcgId) -> bool {
        self.call(|calls| calls.kills.push(victim));
        true
    }

    fn frame_retired(&self, _: FolioId) {
        self.retired_frames.set(self.retired_frames.get() + 1);
    }

    #[inline]
    fn observes(&self) -> bool {
        self.sees_folios
    }

    fn event(&self, event: Event) {
        if let Some(model) = &self.model {
            model.borrow_mut().event(&event);
        }
        for observer in &self.observers {
            observer.borrow_mut().event(self.now(), &event);
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
