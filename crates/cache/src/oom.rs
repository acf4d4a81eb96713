//! Killing a tenant: its anonymous memory is given up, so that others get on.
//!
//! The core chooses ([`mglru_core::OomPolicy`]), marks the victim, which charges nothing from then on, and leaves it here. The
//! thread whose charge it was takes the memory before it tries again: the victim's regions, whole, whoever their pages are charged
//! to, as a killed process loses its address space. What is charged to the victim of a region that was moved to another tenant is
//! that tenant's to keep. Files of the victim keep every byte: their dirty pages are written as ever, and stay readable as far
//! as they are in memory.
//!
//! # Locking
//!
//! Victims are taken with nothing held but locks of file pages that are being read, as in [`crate::fault`]. Who has a page
//! of anonymous memory locked pays for nothing meanwhile, so that waiting for it ends.

use crate::cache::Shared;
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
            self.core.oom_reaped(victim);
            // Those who wait for it look again.
            self.host.progress.ring();
        }
    }

    fn reap_one(&self, victim: MemcgId) {
        let (Some(state), Some(report)) = (self.tenant_of(victim), self.core.oom_killed(victim)) else {
            return;
        };
        for region in state.regions() {
            // In this order: who misses a page finds out why.
            let _ = region.killed.set(report.clone());
            self.core.seal_mapping(&region.mapping);
            while let Some(busy) = self.core.truncate(&self.host, &region.mapping, 0, 1 << 32) {
                self.wait_for_folio(busy);
            }
        }
    }

    /// A tenant that was killed may charge again, once its memory is gone. `false`: it was not killed.
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
