//! Totals: counters of a whole subtree.
//!
//! # Locking
//!
//! The lock of the tree, so that each memcg is counted once while memcgs come and go. Counts of a
//! removed memcg pass to its heir one by one and may be missing in between. Counts that a late
//! thread adds to a removed memcg are passed on before a sum is taken.

use super::{Counter, Memcg, MemcgId, Memcgs};
use crate::folio::Kind;

/// Counters and sizes of the lists of a subtree, in pages and events.
#[derive(Clone, Debug)]
pub(crate) struct Totals {
    counters: [i64; Counter::ALL.len()],
    /// Pages by kind, on the inactive and the active side.
    listed: [[u64; 2]; 2],
    unevictable_pages: u64,
}

impl Totals {
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        // A page may be counted in one memcg when it comes and in another when it goes: only the
        // sum is right.
        self.counters[counter as usize].max(0) as u64
    }

    pub(crate) fn listed_pages(&self, kind: Kind, active: bool) -> u64 {
        self.listed[kind as usize][usize::from(active)]
    }

    pub(crate) fn unevictable_pages(&self) -> u64 {
        self.unevictable_pages
    }
}

impl Memcgs {
    /// All counters of a memcg and its descendants. Visits every one of them.
    pub(crate) fn subtree_totals(&self, memcg: MemcgId) -> Totals {
        let mut totals =
            Totals { counters: [0; Counter::ALL.len()], listed: [[0; 2]; 2], unevictable_pages: 0 };
        self.settle_late(memcg);
        self.visit(memcg, |memcg| {
            for &counter in Counter::ALL {
                totals.counters[counter as usize] += memcg.stat.signed(counter);
            }
            for kind in Kind::ALL {
                let [inactive, active] = &mut totals.listed[kind as usize];
                *inactive += memcg.lruvec.inactive_pages(kind);
                *active += memcg.lruvec.active_pages(kind);
            }
            totals.unevictable_pages += memcg.lruvec.unevictable_pages();
        });
        totals
    }

    /// A counter, summed over a memcg and its descendants. Visits every one of them.
    pub fn subtree_stat(&self, memcg: MemcgId, counter: Counter) -> u64 {
        self.subtree_sum(memcg, |memcg| memcg.stat.signed(counter))
    }

    /// The sum of `of` over a memcg and its descendants.
    pub(crate) fn subtree_sum(&self, memcg: MemcgId, of: impl Fn(&Memcg) -> i64) -> u64 {
        let mut sum = 0;
        self.settle_late(memcg);
        self.visit(memcg, |memcg| sum += of(memcg));
        sum.max(0) as u64
    }
}
