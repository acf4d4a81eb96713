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
    file_spread: u64,
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

    /// A number that changes if file pages come or go, and if as many come to one memcg as leave
    /// another.
    pub(crate) fn file_spread(&self) -> u64 {
        self.file_spread
    }
}

impl Memcgs {
    /// All counters of a memcg and its descendants. Visits every one of them.
    pub(crate) fn subtree_totals(&self, memcg: MemcgId) -> Totals {
        let mut totals = Totals {
            counters: [0; Counter::ALL.len()],
            listed: [[0; 2]; 2],
            unevictable_pages: 0,
            file_spread: 0,
        };
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
            // Numbers are small: their multiples could cancel each other out.
            let weight = u64::from(memcg.id().0 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let weighted = (memcg.stat.signed(Counter::File) as u64).wrapping_mul(weight ^ weight >> 29);
            totals.file_spread = totals.file_spread.wrapping_add(weighted);
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
