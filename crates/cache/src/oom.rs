//! OOM kill of a tenant: drops its anonymous memory to make room for the other tenants.
//!
//! The core chooses the victim ([`mglru_core::OomPolicy`]) and stops it from charging pages. The
//! thread whose charge failed takes the victim's memory ([`Reaping`]) before it retries. Each
//! region is marked as lost before its first page is dropped, so that its users get the reason
//! instead of zeros. The victim's files lose nothing: their dirty pages are still written back, and
//! cached pages stay readable.
//!
//! # Locking
//!
//! A thread that reaps holds no locks except those of file pages that are being read, as in
//! [`crate::fault`]. A thread that holds the lock of an anonymous page does not charge pages, so
//! waiting for that lock ends.

use crate::shared::Shared;
use mglru_core::reclaim::{ReapStep, Reaping};
use mglru_core::{MemcgId, Throttle};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl Shared {
    /// Takes the memory of all victims.
    #[inline]
    pub(crate) fn reap_victims(&self) {
        if self.host.has_victims.load(Ordering::Acquire) {
            self.reap();
        }
    }

    #[cold]
    fn reap(&self) {
        let victims = {
            let mut victims = self.host.victims.lock().unwrap_or_else(PoisonError::into_inner);
            self.host.has_victims.store(false, Ordering::Release);
            std::mem::take(&mut *victims)
        };
        for victim in victims {
            self.reap_one(victim);
            // Wakes the threads that wait for this memory.
            self.host.progress.ring();
        }
    }

    fn reap_one(&self, victim: MemcgId) {
        let Some(report) = self.core.oom_killed(victim) else { return };
        let mut reaping = Reaping::new(&self.core, victim);
        loop {
            match reaping.step(&self.core, &self.host) {
                ReapStep::Begin(mapping) => {
                    // In this order, so that a thread that misses a page finds the reason.
                    self.regions.lose(&mapping, &report);
                    self.core.seal_mapping(&mapping);
                }
                ReapStep::Taken(_) => {}
                ReapStep::Wait(_, busy) => self.wait_for_folio(busy),
                ReapStep::Done => return,
            }
        }
    }

    /// Lets a killed tenant charge pages again after its memory is gone. Returns `false` if it was
    /// not killed.
    pub(crate) fn revive(&self, memcg: MemcgId) -> bool {
        while self.core.oom_killed(memcg).is_some() {
            let rings_before = self.host.progress.rings();
            self.reap_victims();
            if self.core.oom_revive(memcg) {
                return true;
            }
            // Another thread is reaping it.
            self.host.park(Throttle::NoProgress, rings_before);
        }
        false
    }
}
