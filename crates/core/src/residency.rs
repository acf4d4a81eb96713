//! How many pages of a range are in memory, as Linux's `cachestat` reports.

use crate::Core;
use crate::mapping::{Mapping, Slot};

/// Slots looked at before the lock of their part is released for others.
const SLOTS_PER_LOCK: u32 = 256;

/// Counts of the pages in a range of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PagesInRange {
    /// Pages in memory, including those that are being read.
    pub cached: u64,
    /// Pages that are dirty and not under writeback.
    pub dirty: u64,
    /// Pages under writeback.
    pub writeback: u64,
    /// Pages that were evicted and are remembered by their shadows.
    pub evicted: u64,
}

impl Core {
    /// Counts the pages of `mapping` from `from` to `end`, in memory or evicted. No access is
    /// counted. Pages may come and go meanwhile.
    pub fn pages_in(&self, mapping: &Mapping, from: u64, end: u64) -> PagesInRange {
        let mut pages = PagesInRange::default();
        self.find_slot(mapping, from, end, |slot| {
            match slot.folio() {
                Some(folio) => {
                    let flags = self.folios.flags(folio).load();
                    pages.cached += 1;
                    pages.writeback += u64::from(flags.writeback());
                    pages.dirty += u64::from(flags.dirty() && !flags.writeback());
                }
                None => pages.evicted += 1,
            }
            false
        });
        pages
    }

    /// The first page of `mapping` from `from` to `end` that is in memory, or being read.
    pub fn next_in_memory(&self, mapping: &Mapping, from: u64, end: u64) -> Option<u32> {
        self.find_slot(mapping, from, end, |slot| slot.folio().is_some())
    }

    /// The first occupied slot from `from` to `end` for which `is_wanted` holds.
    fn find_slot(
        &self,
        mapping: &Mapping,
        from: u64,
        end: u64,
        mut is_wanted: impl FnMut(Slot) -> bool,
    ) -> Option<u32> {
        let mut at = u32::try_from(from).ok()?;
        loop {
            let (locked, mut index, mut slot) = mapping.lock_next(&self.leaves, at, end)?;
            for _ in 0..SLOTS_PER_LOCK {
                if is_wanted(slot) {
                    return Some(index);
                }
                at = index.checked_add(1)?;
                let Some(found) = locked.next(at, end) else { break };
                (index, slot) = found;
            }
        }
    }
}
