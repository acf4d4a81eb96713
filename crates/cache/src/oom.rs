//! Killing a tenant: its anonymous memory is given up, so that others get on.
//!
//! The core chooses ([`mglru_core::OomPolicy`]), marks the victim, which charges nothing from then
//! on, and leaves it here. The thread whose charge it was takes the memory before it tries again
//! ([`Reaping`]). Here, each region is marked as lost before it loses its first page, so that its
//! users get the reason instead of zeros. Files of the victim keep every byte: their dirty pages
//! are written as ever, and stay readable as far as they are in memory.
//!
//! # Locking
//!
//! Victims are taken with nothing held but locks of file pages that are being read, as in
//! [`crate::fault`]. Who has a page of anonymous memory locked pays for nothing meanwhile, so that
//! waiting for it ends.

use crate::shared::Shared;
use mglru_core::reclaim::{ReapStep, Reaping};
use mglru_core::{MemcgId, Throttle};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl Shared {
    /// Takes the memory of those who were killed.
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
            // Those who wait for it look again.
            self.host.progress.ring();
        }
    }

    fn reap_one(&self, victim: MemcgId) {
        let Some(report) = self.core.oom_killed(victim) else { return };
        let mut reaping = Reaping::new(&self.core, victim);
        loop {
            match reaping.step(&self.core, &self.host) {
                ReapStep::Begin(mapping) => {
                    // In this order: who misses a page finds out why.
                    self.regions.lose(&mapping, &report);
                    self.core.seal_mapping(&mapping);
                }
                ReapStep::Taken(_) => {}
                ReapStep::Wait(_, busy) => self.wait_for_folio(busy),
                ReapStep::Done => return,
            }
        }
    }

    /// A tenant that was killed may charge again, once its memory is gone. `false`: it was not
    /// killed.
    pub(crate) fn revive(&self, memcg: MemcgId) -> bool {
        while self.core.oom_killed(memcg).is_some() {
            let heard = self.host.progress.rings();
            self.reap_victims();
            if self.core.oom_revive(memcg) {
                return true;
            }
            // Another thread is at it.
            self.host.park(Throttle::NoProgress, heard);
        }
        false
    }
}
