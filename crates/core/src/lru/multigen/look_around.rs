//! The look-around: eviction found one young page-table entry, so it looks at the 64 around it.
//!
//! Reaching one entry of a page table through the reverse map costs more than reading its neighbours, and pages
//! that are neighbours in a table are often used together.
//!
//! Source: spec 30 §5, spec 20 §7.3 (Linux 7.2).

use super::walk::{DENSITY, WalkBatch};
use crate::Core;
use crate::folio::FolioId;
use crate::host::Host;
use crate::lru::Queue;
use crate::mapping::{Mapping, TABLE_PAGES};
use crate::memcg::Memcg;

/// Entries looked at.
const WINDOW: u64 = 64;

/// The part of the page table over `index` that is looked at: 32 to either side, or the first or last 64.
fn window(index: u64, mapped_pages: u64) -> std::ops::Range<u64> {
    let table_pages = u64::from(TABLE_PAGES);
    let start = index / table_pages * table_pages;
    let end = (start + table_pages).min(mapped_pages.max(index + 1));
    if end - start <= WINDOW {
        start..end
    } else if index - start < WINDOW / 2 {
        start..start + WINDOW
    } else if end - index < WINDOW / 2 {
        end - WINDOW..end
    } else {
        index - WINDOW / 2..index + WINDOW / 2
    }
}

impl Core {
    /// Tests and clears the accessed bit of an isolated folio's entry, and those around it. `true`: it was young.
    ///
    /// With a `walk` context, neighbours are relabelled at once; without, they are queued for activation.
    pub(crate) fn look_around(
        &self,
        host: &impl Host,
        memcg: &Memcg,
        mapping: &Mapping,
        folio: FolioId,
        cpu: usize,
        mut walk: Option<&mut WalkBatch>,
    ) -> bool {
        let index = self.folios.get(folio).index();
        let young = mapping.slot(&self.leaves, index).is_some_and(|slot| slot.clear_accessed(folio));
        if !young {
            return false;
        }
        let window = window(u64::from(index), mapping.mapped_pages());
        if window.end - window.start <= 1 || !mapping.has_recency() {
            return true;
        }
        let Some(locked) = mapping.try_lock(&self.leaves) else { return true };
        let entries = window.end - window.start;
        let max = memcg.lruvec.window.max();
        let mut count = 1;
        for neighbour in window {
            let Some((other, slot)) = locked.young_entry(neighbour as u32) else { continue };
            if !self.counts_for(memcg, other) {
                continue;
            }
            slot.clear_accessed(other);
            count += 1;
            let flags = &self.folios.get(other).flags;
            if let Some(batch) = walk.as_deref_mut() {
                batch.note(mapping.kind(), flags.found_young_by_walk(max.index()));
            } else if flags.found_young_by_eviction() {
                let label = flags.load().generation();
                if label.is_some_and(|label| label != max.index()) {
                    self.enqueue(host, cpu, Queue::Activate, other);
                }
            }
        }
        if u64::from(count * DENSITY) >= entries {
            memcg.lruvec.filters.insert(max, mapping.id(), index / TABLE_PAGES);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// spec 30 §5, step 3.
    #[test]
    fn the_window_stays_in_the_table_and_the_mapping() {
        let far = 1 << 20;
        assert_eq!(window(0, far), 0..64);
        assert_eq!(window(31, far), 0..64);
        assert_eq!(window(32, far), 0..64);
        assert_eq!(window(100, far), 68..132);
        assert_eq!(window(511, far), 448..512);
        assert_eq!(window(481, far), 448..512);
        assert_eq!(window(480, far), 448..512);
        assert_eq!(window(512, far), 512..576);
        assert_eq!(window(90, 100), 36..100);
        assert_eq!(window(10, 40), 0..40);
        assert_eq!(window(0, 1), 0..1);
    }
}
