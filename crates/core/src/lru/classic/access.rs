//! Two accesses activate a folio.
//!
//! Source: spec 80 §2, §9.

use crate::Core;
use crate::folio::{Flags, FolioId};
use crate::host::Host;
use crate::lru::Queue;
use crate::memcg::{Counter, Memcg};

impl Core {
    /// A folio was accessed the second time since it was, or might have been, moved. It carries a reference for that;
    /// `before` is its state at the access. The clock goes on at once, whatever becomes of the move.
    #[cold]
    pub(crate) fn accessed_again(&self, host: &impl Host, cpu: usize, folio: FolioId, before: Flags) {
        self.advance_nonresident_age(self.owner_of(folio), 1);
        if before.lru() {
            self.enqueue_held(host, cpu, Queue::Activate, folio);
            return;
        }
        // A new folio that still waits for its place gets it on the active list. One that waits elsewhere, or is isolated,
        // is not looked for.
        let flags = self.folios.flags(folio);
        self.arrivals.while_queued(cpu, Queue::Add, folio, || flags.set_active());
        self.put(host, folio);
    }

    /// So many pages of `memcg` were activated or evicted: its clock goes on, and that of each of its ancestors. Its clock
    /// before: the time of the first of them.
    pub(crate) fn advance_nonresident_age(&self, memcg: &Memcg, pages: u64) -> u64 {
        memcg.stat.add(Counter::NonresidentAgeWrites, 1);
        let own = memcg.lruvec.classic.advance(pages);
        for ancestor in self.lineage(memcg).skip(1) {
            ancestor.lruvec.classic.advance(pages);
        }
        own
    }

    /// So many of those were not evicted after all.
    pub(crate) fn set_back_nonresident_age(&self, memcg: &Memcg, pages: u64) {
        memcg.stat.add(Counter::NonresidentAgeWrites, 1);
        for memcg in self.lineage(memcg) {
            memcg.lruvec.classic.set_back(pages);
        }
    }
}
