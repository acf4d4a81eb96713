//! Fault-around: a fault on a cached page also creates page-table entries for its neighbours.
//!
//! Neighbours are the other pages of an aligned window (64 KiB in the kernel). Only pages are
//! mapped that are cached, complete, unlocked and without a readahead mark; nothing is read. The
//! new entries are young, as on x86: until the next walk, untouched neighbours look accessed. Under
//! the policy `ranked` the entries are old.
//!
//! A host with page-table entries saves a fault per neighbour. The cache would save nothing: its
//! slot *is* the entry, and a load without one sets two bits of a word that it has loaded anyway.
//! Fault-around would only mark untouched pages as accessed. So only the simulator does it.
//!
//! Source: "mm: map few pages around fault address if they are in page cache" (Linux 3.15),
//! `fault_around_bytes` in debugfs.

use crate::Core;
use crate::access::{Lookup, Task};
use crate::lru;
use crate::mapping::Mapping;

/// The kernel's window: 64 KiB.
pub const FAULT_AROUND_PAGES: u32 = 16;

impl Core {
    /// Creates page-table entries for the neighbours of page `index`, which a task loaded through a
    /// mapping without an entry. `pages`, a power of two, is the size of the window. Returns the
    /// number of new entries.
    pub fn fault_around(&self, task: &Task, mapping: &Mapping, index: u32, pages: u32) -> u32 {
        assert!(pages.is_power_of_two(), "a window of {pages} pages is not aligned");
        let first = index - index % pages;
        let mapped_end = mapping.mapped_pages().min(u64::from(first) + u64::from(pages));
        let mut made = 0;
        for at in u64::from(first)..mapped_end {
            let at = at as u32;
            if at == index {
                continue;
            }
            let Lookup::Hit(hit) = self.lookup(mapping, at) else { continue };
            let is_free = !hit.flags.mapped() && !hit.flags.locked() && !self.has_readahead_mark(&hit);
            if is_free && self.make_entry(mapping, at, &hit).is_some() {
                made += 1;
                if lru::maps_around_old(self) {
                    self.make_old(mapping, at, hit.folio);
                }
            }
        }
        if made > 0 && mapping.touch_table(&self.leaves, index) {
            task.space.mark_accessed();
        }
        made
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Counter;
    use crate::testing::Harness;

    /// Only pages of the aligned window that are cached, complete and without a mark are mapped.
    #[test]
    fn neighbours_in_memory_are_mapped() {
        let mut harness = Harness::with_options(Harness::multigen_options(1000), 500);
        harness.read_ahead([15, 16, 18, 20, 31, 32]);
        let locked = harness.folio(18);
        assert!(harness.core.folios().flags(locked).try_lock());
        harness.load(17);
        let faults = harness.stat(Counter::Pgfault);
        assert_eq!(harness.core.fault_around(&harness.task, &harness.mapping, 17, FAULT_AROUND_PAGES), 3);
        let mapped = [15, 16, 17, 18, 20, 31, 32].map(|page| harness.flags(page).mapped());
        assert_eq!(mapped, [false, true, true, false, true, true, false]);
        assert!(harness.is_young(16) && !harness.is_young(15));
        assert_eq!((harness.stat(Counter::Pgfault), harness.stat(Counter::FileMapped)), (faults, 4));
        assert_eq!(harness.core.fault_around(&harness.task, &harness.mapping, 17, FAULT_AROUND_PAGES), 0);
        harness.core.unlock(&harness.host, locked);
        harness.core.validate().unwrap();
    }
}
