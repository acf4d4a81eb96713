//! Stalls of tasks: each counts in the pressure of its memcg and of the memcgs above.
//!
//! Source: docs.kernel.org/accounting/psi.html (since Linux 4.20).
//!
//! # Locking
//!
//! The pressure of each memcg has a lock, a leaf. A stall holds a handle on its memcg, so that it
//! ends where it began.

use super::pressure::{Pressure, PressureStats, Stall};
use super::{Memcg, MemcgId};
use crate::Core;
use crate::folio::FolioId;
use crate::host::{Host, Time};

impl Core {
    /// Begins a stall of a task of `memcg`, or of its nearest living ancestor.
    pub(crate) fn begin_stall(&self, host: &impl Host, memcg: MemcgId) -> Stall {
        // The handle keeps the number until the stall ends.
        let mut late = Vec::new();
        let memcg = self.memcgs.hold_payer(memcg, &mut late);
        late.into_iter().for_each(|memcg| self.drop_handle(memcg));
        let now = host.now();
        self.memcgs.lineage(memcg).for_each(|memcg| memcg.pressed(now, |pressure| pressure.begin(now)));
        Stall(memcg.id)
    }

    /// Begins a stall if the inserted page, which its task waits for, was in use when it was
    /// evicted.
    pub fn begin_refault(&self, host: &impl Host, folio: FolioId) -> Option<Stall> {
        let thrashes = self.folios.flags(folio).load().workingset();
        thrashes.then(|| self.begin_stall(host, self.folios.memcg_of(folio)))
    }

    /// Ends a stall.
    pub fn end_stall(&self, host: &impl Host, stall: Stall) {
        let now = host.now();
        self.memcgs
            .lineage(self.memcg(stall.0))
            .for_each(|memcg| memcg.pressed(now, |pressure| pressure.end(now)));
        self.drop_handle(stall.0);
    }
}

impl Memcg {
    /// `memory.pressure`: shares in percent, and the total in microseconds.
    pub(crate) fn pressure_text(&self, now: Time) -> String {
        self.pressure_until(now, Pressure::text)
    }

    /// The figures of `memory.pressure`.
    pub fn pressure_stats(&self, now: Time) -> PressureStats {
        self.pressure_until(now, Pressure::stats)
    }

    /// Reads the state of the time `now`.
    fn pressure_until<T>(&self, now: Time, read: impl FnOnce(&Pressure) -> T) -> T {
        match &mut *self.pressure.lock() {
            Some(pressure) => {
                pressure.advance(now);
                read(pressure)
            }
            None => read(&Pressure::new(now)),
        }
    }

    /// The state is created at the first stall: most memcgs have none.
    #[inline]
    fn pressed(&self, now: Time, change: impl FnOnce(&mut Pressure)) {
        change(self.pressure.lock().get_or_insert_with(|| Box::new(Pressure::new(now))));
    }
}
