//! What happened: the tracepoints of the core.
//!
//! What becomes of pages (they come, come back and leave) and what reclaim as a whole does is told to every host. What
//! happens to folios on the way is told only to a host that asks for it: for any other, [`Host::observes`] is a constant, and
//! nothing is left of it.

use crate::Core;
use crate::folio::{Flags, FolioId, GenIndex, Tier};
use crate::host::Host;
use crate::lru::Shadow;
use crate::lru::{Distance, Isolated, MAX_GENERATIONS, Queue};
use crate::mapping::MappingId;
use crate::memcg::{Memcg, MemcgId};
use crate::pageout::Verdict;

/// One thing that happened to a page or to a memcg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A page entered the cache.
    Inserted {
        /// Which page.
        page: (MappingId, u32),
        /// The folio it got.
        folio: FolioId,
        /// Who pays for it.
        memcg: MemcgId,
    },
    /// Reclaim evicted a page.
    Evicted {
        /// Which page.
        page: (MappingId, u32),
        /// The folio that it had.
        folio: FolioId,
        /// Whose it was.
        memcg: MemcgId,
        /// What is remembered of it.
        shadow: Shadow,
    },
    /// A page that had been evicted is back.
    Refault {
        /// The folio it got.
        folio: FolioId,
        /// Who pays for it.
        memcg: MemcgId,
        /// What was remembered of it.
        shadow: Shadow,
        /// How long ago it was evicted. `None`: by the clock of a memcg that was removed since.
        distance: Option<Distance>,
        /// That is within reach. Classic: it is activated.
        recent: bool,
    },
    /// A new youngest generation was opened.
    Aged {
        /// Whose.
        memcg: MemcgId,
        /// Its number.
        max_seq: u64,
    },
    /// A reclaim effort ended.
    Effort {
        /// Whose pages it was to reclaim.
        target: MemcgId,
        /// Pages looked at.
        scanned: u64,
        /// Pages reclaimed.
        reclaimed: u64,
        /// The last priority.
        priority: u8,
    },
    /// A folio came to a list. Only for hosts that observe, as all that follow.
    Listed {
        /// Which folio.
        folio: FolioId,
        /// Whose it is.
        memcg: MemcgId,
        /// Where it is now.
        list: List,
        /// From where it came.
        from: ListedFrom,
    },
    /// A folio was found young, and got the label of the youngest generation; it stays on its list until that is sorted.
    Promoted {
        /// Which folio.
        folio: FolioId,
        /// Whose it is.
        memcg: MemcgId,
        /// The generation.
        seq: u64,
        /// Who looked at its accessed bit.
        by: FoundBy,
    },
    /// Eviction met a folio at the old end, and moved it on instead of isolating it.
    Sorted {
        /// Which folio.
        folio: FolioId,
        /// Whose it is.
        memcg: MemcgId,
        /// The generation to which it was moved.
        seq: u64,
        /// Why it was not isolated.
        why: Sorted,
    },
    /// A folio was taken off its list, to be judged.
    Isolated {
        /// Which folio.
        folio: FolioId,
        /// Whose it is.
        memcg: MemcgId,
    },
    /// An isolated folio was judged, perhaps not for the last time.
    Judged {
        /// Which folio.
        folio: FolioId,
        /// What is to be done with it.
        verdict: Verdict,
    },
}

/// Where a folio is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum List {
    /// In the generation of this number.
    Generation(u64),
    /// Classic LRU: on the active list.
    Active,
    /// Classic LRU: on the inactive list.
    Inactive,
    /// With those that reclaim must not take.
    Unevictable,
}

/// From where a folio came to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedFrom {
    /// It is new: from the batch of arrivals.
    Arrivals,
    /// Its write-back ended after reclaim had met it: to be evicted next.
    Rotation,
    /// It was advised to be unneeded.
    Deactivation,
    /// It was found young beside a folio that was judged; classic LRU: it was accessed twice.
    Activation,
    /// It was isolated, and is put back.
    Isolation,
}

impl From<Queue> for ListedFrom {
    fn from(queue: Queue) -> ListedFrom {
        match queue {
            Queue::Add => ListedFrom::Arrivals,
            Queue::Rotate => ListedFrom::Rotation,
            Queue::DeactivateFile => ListedFrom::Deactivation,
            Queue::Activate => ListedFrom::Activation,
        }
    }
}

/// Who found a folio young.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// A walk of page tables.
    Walk,
    /// A look around a folio that was judged.
    LookAround,
}

/// Why a folio was moved on instead of being isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sorted {
    /// A walk had given it the label of another generation.
    Relabelled,
    /// Pages of its tier return too often.
    Protected(Tier),
    /// Its count of accesses is at its end.
    Saturated,
    /// It is dirty or being written.
    Dirty,
}

impl Core {
    /// Where a folio of `memcg` in this state is.
    fn list_of(memcg: &Memcg, flags: Flags) -> Option<List> {
        if flags.unevictable() {
            return Some(List::Unevictable);
        }
        match flags.generation() {
            Some(label) => Some(List::Generation(seq_of(memcg, label))),
            None if !flags.lru() => None,
            None => Some(if flags.active() { List::Active } else { List::Inactive }),
        }
    }

    /// Tells where a folio is now.
    #[inline]
    pub(crate) fn tell_listed(&self, host: &impl Host, memcg: &Memcg, folio: FolioId, from: ListedFrom) {
        if host.observes()
            && let Some(list) = Core::list_of(memcg, self.folios.flags(folio).load())
        {
            host.event(Event::Listed { folio, memcg: memcg.id(), list, from });
        }
    }

    /// Tells what a scan met.
    #[inline]
    pub(crate) fn tell_isolated(&self, host: &impl Host, memcg: &Memcg, batch: &Isolated) {
        if !host.observes() {
            return;
        }
        for &(folio, label, why) in &batch.sorted_folios {
            host.event(Event::Sorted { folio, memcg: memcg.id(), seq: seq_of(memcg, label), why });
        }
        for &folio in &batch.folios {
            host.event(Event::Isolated { folio, memcg: memcg.id() });
        }
    }

    /// Tells what is to be done with an isolated folio.
    #[inline]
    pub(crate) fn tell_judged(&self, host: &impl Host, folio: FolioId, verdict: Verdict) {
        if host.observes() {
            host.event(Event::Judged { folio, verdict });
        }
    }

    /// Tells that a folio has a new label.
    #[inline]
    pub(crate) fn tell_promoted(
        &self,
        host: &impl Host,
        memcg: &Memcg,
        folio: FolioId,
        label: GenIndex,
        by: FoundBy,
    ) {
        if host.observes() {
            host.event(Event::Promoted { folio, memcg: memcg.id(), seq: seq_of(memcg, label), by });
        }
    }
}

/// The live generation that has this label.
fn seq_of(memcg: &Memcg, label: GenIndex) -> u64 {
    let max = memcg.lruvec.window.max();
    max.0 - (u64::from(max.index().0) + MAX_GENERATIONS - u64::from(label.0)) % MAX_GENERATIONS
}
