//! The page-table walk: reads and clears accessed bits in bulk.
//!
//! Source: [book: aging#page-table-walk], [book: access#young-in-walk]. A page table is worth
//! walking if it was dense (an eighth of its entries young) last time; the Bloom filters remember
//! those.
//!
//! # Locking
//!
//! A page table is walked under the lock of its part of the mapping, which keeps the folios in its
//! slots. If another thread holds the lock, the table is skipped. Labels change by
//! compare-and-swap; sizes follow in batches, under the lruvec lock.

use super::aging::Aging;
use super::window::WalkBatch;
use crate::Core;
use crate::event::FoundBy;
use crate::folio::{FolioId, GenIndex, Kind, Neighbour};
use crate::host::Host;
use crate::lru::emit;
use crate::mapping::{Mapping, TABLE_PAGES};
use crate::memcg::{Memcg, MemcgId};
use crate::mm::AddressSpace;
use crate::tunables::TABLE_WALK;

/// The most label changes before sizes are corrected.
const CHANGES_PER_FLUSH: u32 = 4096;
/// A table is dense if `young × 8 >= entries`. Eight 8-byte entries share a cache line; with one
/// young entry per line, a walk is as cheap as finding the entries one by one.
pub(crate) const DENSITY: u32 = 8;

impl WalkBatch {
    /// Applies the changes for pages of a memcg, or of the heir that inherited them with their
    /// labels.
    pub(crate) fn flush(&mut self, core: &Core, memcg: MemcgId) {
        if self.changes == 0 {
            return;
        }
        let (_, mut locked) = core.lock_living(memcg);
        for (generation, pages) in self.pages.iter().enumerate() {
            for kind in Kind::ALL {
                if pages[kind as usize] != 0 {
                    locked.resize(GenIndex::new(generation as u8), kind, pages[kind as usize]);
                }
            }
        }
        *self = WalkBatch::default();
    }
}

impl<H: Host> Aging<'_, H> {
    /// Walks one address space. `forced`: includes tables that were not accessed or not dense.
    pub(super) fn walk_space(&self, space: &AddressSpace, forced: bool, batch: &mut WalkBatch) {
        let Aging { core, memcg, seq, swappiness, .. } = *self;
        for mapping in space.regions() {
            if !mapping.has_recency() || !swappiness.evicts(mapping.kind()) {
                continue;
            }
            for table in mapping.tables(&core.leaves, 0..mapping.mapped_tables()) {
                if memcg.lruvec.window.max() != seq {
                    return;
                }
                if !forced {
                    let used =
                        mapping.clear_young_table(&core.leaves, table) || !core.tunables.has(TABLE_WALK);
                    if !used || !memcg.lruvec.filters.may_contain(seq, mapping.id(), table) {
                        continue;
                    }
                }
                let added = self.walk_table(&mapping, table, batch);
                if added {
                    memcg.lruvec.filters.insert(seq.next(), mapping.id(), table);
                }
                memcg.lruvec.count_walked([0, 0, 1, u64::from(added)]);
                if batch.changes >= CHANGES_PER_FLUSH {
                    batch.flush(core, memcg.id());
                }
            }
        }
    }

    /// Walks one page table. `true`: it was dense.
    fn walk_table(&self, mapping: &Mapping, table: u32, batch: &mut WalkBatch) -> bool {
        let Aging { core, memcg, .. } = *self;
        let mechanisms = core.mechanisms();
        let Some(locked) = mapping.try_lock(&core.leaves, table * TABLE_PAGES) else {
            return mechanisms.workingset_rework();
        };
        let youngest = memcg.lruvec.window.max().index();
        let pages = mapping.pages_of_table(table);
        if pages.is_empty() {
            return false;
        }
        let entries = pages.end - pages.start;
        let mut young = 0;
        for (folio, slot) in locked.young_entries(pages) {
            if !counts_for(core, memcg, folio) {
                continue;
            }
            slot.clear_accessed(folio);
            young += 1;
            let change = core.folios.flags(folio).found_young_by_walk(youngest, mechanisms);
            if let Neighbour::Relabelled(_, label) = change {
                emit::promoted(self.host, memcg, folio, label, FoundBy::Walk);
            }
            batch.note(mapping.kind(), change);
        }
        memcg.stat.found_young(mapping.kind(), young.into());
        memcg.lruvec.count_walked([entries, u64::from(young), 0, 0]);
        u64::from(young * DENSITY) >= entries
    }
}

/// Whether `memcg` may take the accessed bit of a folio ([book: access#young-neighbours]): the
/// folio is charged to it and on a generation list. Since the working-set rework, a folio that is
/// isolated or queued keeps its bit.
pub(super) fn counts_for(core: &Core, memcg: &Memcg, folio: FolioId) -> bool {
    let listed = || core.folios.flags(folio).load().generation().is_some();
    core.folios.memcg_of(folio) == memcg.id() && (!core.mechanisms().workingset_rework() || listed())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::lru::multigen::window::WalkBatch;
    use crate::testing::Harness;
    use crate::{Counter, Kind};

    /// A relabelled folio is removed before the walk corrects sizes, and a generation is opened in
    /// between: the node still counts inactive pages correctly.
    #[test]
    fn sizes_may_be_corrected_late() {
        let mut harness = Harness::new(100, 1);
        harness.read_ahead(0..10);
        let youngest = harness.memcg().lruvec.max_seq().index();
        let mut batch = WalkBatch::default();
        let mechanisms = harness.core.mechanisms();
        for _ in 0..2 {
            let flags = harness.core.folios.flags(harness.folio(3));
            batch.note(Kind::File, flags.found_young_by_walk(youngest, mechanisms));
        }
        assert!(harness.open_generation());
        assert_eq!(harness.core.truncate(&harness.host, &harness.mapping, 3, 4), None);
        // The generation that lost one page more than it got is no longer active.
        assert!(harness.open_generation());
        batch.flush(&harness.core, harness.task.memcg);
        assert_eq!(harness.stat(Counter::File), 9);
        harness.core.validate().unwrap();
    }

    /// A walk counts the tables first; the file may be unmapped in between.
    #[test]
    fn a_table_that_was_unmapped_has_no_entries() {
        let mut harness = Harness::new(1000, 1);
        (512..520).for_each(|page| harness.load(page));
        let walk = |harness: &Harness| {
            let mut batch = WalkBatch::default();
            let added = harness.aging().walk_table(&harness.mapping, 1, &mut batch);
            (added, harness.memcg().lruvec.walked_entries())
        };
        assert_eq!(walk(&harness), (false, 512));
        harness.core.unmap(&harness.host, &harness.task, &harness.mapping);
        assert_eq!(walk(&harness), (false, 512));
    }
}
