//! The walk over page tables: counts accessed bits in bulk, three times per turnover of memory.
//!
//! An accessed bit stands for any number of accesses. At the tail of a list it says that a page
//! was used at all since it came; a walk in between tells a page that is used again and again from
//! one that was used in a burst. Only tables that were accessed since the last walk are walked,
//! and only in address spaces that ran. Where few pages of a region are cached, the walk leaves
//! them out: it would look at many entries for each bit.
//!
//! # Locking
//!
//! A page table is walked under the lock of its part of the mapping, which keeps the folios in its
//! slots; a table whose lock is taken is skipped. Counts change by compare-and-swap. No lruvec lock
//! is held.

use super::constants::{WALKED_PART, WALKS_PER_MEMORY};
use super::state::Ranked;
use crate::Core;
use crate::lru::Swappiness;
use crate::mapping::{Mapping, TABLE_PAGES};
use crate::mechanism::Switch;
use crate::memcg::Memcg;
use crate::sync::Ordering::Relaxed;
use crate::tunables::{LEAF_WALK, TABLE_WALK};

impl Ranked {
    /// Whether a walk is due. Of several threads that ask, one begins it.
    fn begins_walk(&self) -> bool {
        self.begins_walk_at(self.clock().words().0)
    }

    /// [`Self::begins_walk`] for a thread that has read so many pages from the clock. Another
    /// thread may have begun a walk since, with more of them.
    fn begins_walk_at(&self, now: u64) -> bool {
        let last = self.walked_at.load(Relaxed);
        now.saturating_sub(last) >= (self.memory_pages() / WALKS_PER_MEMORY).max(1)
            && self.walked_at.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
    }
}

/// Walks the page tables of a memcg, if that is due.
pub(super) fn walk(core: &Core, memcg: &Memcg, swappiness: Swappiness) {
    let is_on = core.mechanisms().is_on(Switch::PageWalk) && core.tunables.has(LEAF_WALK);
    if !is_on || !memcg.lruvec.ranked.begins_walk() {
        return;
    }
    memcg.lruvec.forget_walks();
    for space in memcg.spaces.take_ran() {
        for mapping in space.regions() {
            if mapping.has_recency() && swappiness.evicts(mapping.kind()) {
                walk_mapping(core, memcg, &mapping);
            }
        }
    }
}

fn walk_mapping(core: &Core, memcg: &Memcg, mapping: &Mapping) {
    for table in mapping.tables(&core.leaves, 0..mapping.mapped_tables()) {
        if !mapping.clear_young_table(&core.leaves, table) && core.tunables.has(TABLE_WALK) {
            continue;
        }
        let Some(locked) = mapping.try_lock(&core.leaves, table * TABLE_PAGES) else { continue };
        let (mut entries, mut young) = (0, 0);
        for pages in locked.leaves_within(mapping.pages_of_table(table), WALKED_PART) {
            entries += pages.end - pages.start;
            for (folio, slot) in locked.young_entries(pages) {
                // An isolated folio keeps its bit, by which reclaim decides.
                let is_listed = core.folios.flags(folio).load().mark() != 0;
                if is_listed && core.folios.memcg_of(folio) == memcg.id() && slot.clear_accessed(folio) {
                    core.folios.flags(folio).found_accessed();
                    young += 1;
                }
            }
        }
        memcg.stat.found_young(mapping.kind(), young);
        memcg.lruvec.count_walked([entries, young, 1, 0]);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::state::RankedOnUse;

    /// A thread that read the clock before another one began the walk begins none: the clock once
    /// seemed to be far ahead of the walk.
    #[test]
    fn of_two_threads_one_begins_a_walk() {
        let ranked = RankedOnUse::default();
        // A memory of eight pages is walked every two pages.
        ranked.expect(|| 9);
        (0..3).for_each(|_| ranked.tick(0, ranked.takeable()));
        assert!(ranked.begins_walk_at(3));
        assert!(!ranked.begins_walk_at(2), "read before the other thread's page came");
        assert_eq!([4, 5, 5].map(|now| ranked.begins_walk_at(now)), [false, true, false]);
    }
}
