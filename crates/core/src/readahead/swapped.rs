//! Readahead from swap: the swapped-out pages around a fault that are read with its page.
//!
//! Pages that lie side by side in an address space are often used together, whatever slots they
//! have. The window of a fault has room for the page, one more and as many as the last window had
//! *hits*, pages that were used. So a program that goes through its memory soon reads whole
//! windows, and one that jumps reads single pages. A window lies behind the faults of a program
//! that goes forwards, before those of one that goes backwards, and around others
//! ([book: swap#swap-readahead]).
//!
//! Source: the readahead of Linux by address space ("mm, swap: VMA based swap readahead",
//! Linux 4.14), as behaviour.
//!
//! # Locking
//!
//! One atomic word. Faults that race may choose a window twice or lose a hit: it is a guess.

use super::Window;
use crate::mapping::TABLE_PAGES;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// The largest window that a kernel reads by default: 32 KiB (`vm.page-cluster` is 3).
pub const DEFAULT_SWAP_PAGES: u32 = 8;
/// The largest window that can be asked for: 128 KiB, the kernel's limit.
pub const SWAP_PAGES_MAX: u32 = 32;
/// Least pages of a window after one with hits.
const PAGES_AFTER_HITS: u32 = 4;
/// The first window is as large as after so many hits.
const HITS_AT_FIRST: u32 = 4;

/// The state of a region of anonymous memory.
#[derive(Debug)]
pub struct SwapReadahead {
    max_pages: u32,
    /// A [`State`].
    state: AtomicU64,
}

/// The last fault or hit, the window of the last fault in pages, and its hits.
#[derive(Clone, Copy, Debug)]
struct State {
    index: u32,
    pages: u16,
    hits: u16,
}

impl State {
    fn pack(self) -> u64 {
        u64::from(self.index) << 32 | u64::from(self.pages) << 16 | u64::from(self.hits)
    }

    fn unpack(word: u64) -> State {
        State { index: (word >> 32) as u32, pages: (word >> 16) as u16, hits: word as u16 }
    }
}

impl SwapReadahead {
    /// For a new region. `max_pages`: the largest window, at most [`SWAP_PAGES_MAX`]; up to 1, each
    /// fault reads its page alone.
    pub fn new(max_pages: u32) -> SwapReadahead {
        let state = State { index: 0, pages: 0, hits: HITS_AT_FIRST as u16 };
        SwapReadahead { max_pages: max_pages.min(SWAP_PAGES_MAX), state: AtomicU64::new(state.pack()) }
    }

    /// The window of a fault on the swapped-out page `index`, within its page table. Those of its
    /// pages are read that are swapped out, and all but `index` get the readahead mark
    /// ([`Filling::swapped`](super::Filling::swapped)).
    pub fn on_fault(&self, index: u32) -> Window {
        let alone = Window { first: index, pages: 1, mark: None };
        if self.max_pages <= 1 {
            return alone;
        }
        let last = State::unpack(self.state.load(Relaxed));
        let follows = last.index.checked_add(1) == Some(index);
        let precedes = index.checked_add(1) == Some(last.index);
        let wanted = match u32::from(last.hits) {
            0 if follows || precedes => 2,
            0 => 1,
            hits => (hits + 2).next_power_of_two().max(PAGES_AFTER_HITS),
        };
        let pages = wanted.min(self.max_pages).max(u32::from(last.pages) / 2);
        self.state.store(State { index, pages: pages as u16, hits: 0 }.pack(), Relaxed);
        let before = match (follows, precedes) {
            (true, _) => 0,
            (_, true) => pages - 1,
            _ => (pages - 1) / 2,
        };
        let table = index / TABLE_PAGES * TABLE_PAGES;
        let first = index.saturating_sub(before).max(table);
        let end =
            (u64::from(index) + u64::from(pages - before)).min(u64::from(table) + u64::from(TABLE_PAGES));
        Window { first, pages: (end - u64::from(first)) as u32, mark: None }
    }

    /// Notes the first access to a page that was read beside another one.
    pub fn note_hit(&self, index: u32) {
        let State { pages, hits, .. } = State::unpack(self.state.load(Relaxed));
        let hits = hits.saturating_add(1).min(SWAP_PAGES_MAX as u16);
        self.state.store(State { index, pages, hits }.pack(), Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn range(readahead: &SwapReadahead, index: u32) -> std::ops::Range<u32> {
        let Window { first, pages, mark } = readahead.on_fault(index);
        assert_eq!(mark, None);
        first..first + pages
    }

    /// The pages of the window but the faulting one are used.
    fn use_all(readahead: &SwapReadahead, window: std::ops::Range<u32>, fault: u32) {
        window.filter(|&page| page != fault).for_each(|page| readahead.note_hit(page));
    }

    #[test]
    fn a_program_that_goes_through_its_memory_reads_whole_windows() {
        let readahead = SwapReadahead::new(DEFAULT_SWAP_PAGES);
        let first = range(&readahead, 1000);
        assert_eq!(first, 997..1005, "around the first fault");
        use_all(&readahead, 1001..1005, 1000);
        for start in [1005, 1013] {
            let window = range(&readahead, start);
            assert_eq!(window, start..start + 8, "behind");
            use_all(&readahead, window, start);
        }
        // Backwards, each window ends with the fault.
        readahead.note_hit(900);
        let window = range(&readahead, 899);
        assert_eq!(window, 892..900);
        (892..899).rev().for_each(|page| readahead.note_hit(page));
        assert_eq!(range(&readahead, 891), 884..892);
    }

    /// Half as much each time, down to the page.
    #[test]
    fn a_program_that_jumps_reads_single_pages() {
        let readahead = SwapReadahead::new(32);
        let sizes = [10_000, 20_000, 30_000, 40_000].map(|page| range(&readahead, page).len());
        assert_eq!(sizes, [8, 4, 2, 1]);
        assert_eq!(range(&readahead, 40_001), 40_001..40_003, "a neighbour may be the beginning");
        assert_eq!(range(&readahead, 40_000), 39_999..40_001, "also backwards");
        // Each window is twice as large as its hits, roughly.
        let mut page = 100_000;
        for (hits, pages) in [(1, 4), (2, 4), (3, 8), (6, 8), (7, 16), (15, 32), (32, 32)] {
            (0..hits).for_each(|_| readahead.note_hit(page));
            page += 10_000;
            assert_eq!(range(&readahead, page).len(), pages, "{hits} hits");
        }
    }

    #[test]
    fn windows_stay_in_their_page_table_and_in_memory() {
        for max_pages in [0, 1] {
            assert_eq!(range(&SwapReadahead::new(max_pages), 77), 77..78);
        }
        let readahead = SwapReadahead::new(1000);
        assert_eq!(range(&readahead, 511), 508..512);
        (0..32).for_each(|_| readahead.note_hit(1));
        assert_eq!(range(&readahead, 512), 512..529, "half of 31 before it are another table's");
        (0..32).for_each(|_| readahead.note_hit(1));
        assert_eq!(range(&readahead, 3), 0..20);
        (0..32).for_each(|_| readahead.note_hit(u32::MAX - 1));
        let window = readahead.on_fault(u32::MAX);
        assert_eq!((window.first, window.pages), (u32::MAX, 1));
    }
}
