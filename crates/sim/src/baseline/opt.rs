//! Belady's optimum (MIN): evicts the page whose next access is farthest away. No policy that
//! brings in every page misses less.
//!
//! L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
//! Journal 5(2), 1966: MIN.
//!
//! It needs the whole trace, 4 bytes per access. `new` replaces each access by the time of the next
//! access to its page. After that, pages need no names: a page in memory is represented by the time
//! of its next access, and an access is a hit if its own time is among those.

use super::Policy;
use super::replay::ACCESSES_PER_REPORT;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

/// The time of an access that never comes.
const NEVER: u32 = u32::MAX;

/// The MIN policy. Call `touch` with the pages of the trace in order.
#[derive(Debug)]
pub struct Opt {
    memory_pages: u32,
    /// By access: the time of the next access to its page.
    next_touch: Vec<u32>,
    now: usize,
    /// One bit per access: whether its page has stayed in memory since its previous access.
    kept: Vec<u64>,
    /// Next access times of the pages in memory, and some past times.
    farthest: BinaryHeap<u32>,
    pages_kept: u32,
}

impl Opt {
    /// Creates the policy for a memory of `memory_pages` pages and a trace of positions.
    ///
    /// # Panics
    /// If the trace has 2^32 - 1 accesses or more.
    pub fn new(memory_pages: u32, trace: Vec<u32>) -> Opt {
        let never = &mut |_| ControlFlow::Continue(());
        Opt::watched(memory_pages, trace, never).expect("nothing ends it")
    }

    /// [`Self::new`], which takes seconds for a long trace. `advance` is called now and then with
    /// the accesses whose next ones are known. `None`: it returned [`ControlFlow::Break`].
    pub(super) fn watched(
        memory_pages: u32,
        trace: Vec<u32>,
        advance: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Option<Opt> {
        assert!(trace.len() < NEVER as usize, "a time is a word");
        let mut next_touch = trace;
        let (mut pages, mut known) = (0, 0);
        for part in next_touch.chunks(ACCESSES_PER_REPORT) {
            pages = part.iter().fold(pages, |pages, &page| pages.max(page as usize + 1));
            if advance(known).is_break() {
                return None;
            }
        }
        let mut next_of_page = vec![NEVER; pages];
        let accesses = next_touch.len();
        for part in next_touch.rchunks_mut(ACCESSES_PER_REPORT) {
            let first = accesses - known - part.len();
            for (within, entry) in part.iter_mut().enumerate().rev() {
                let page = *entry as usize;
                *entry = next_of_page[page];
                next_of_page[page] = (first + within) as u32;
            }
            known += part.len();
            if advance(known).is_break() {
                return None;
            }
        }
        let kept = vec![0; accesses.div_ceil(64)];
        Some(Opt { memory_pages, next_touch, now: 0, kept, farthest: BinaryHeap::new(), pages_kept: 0 })
    }
}

impl Policy for Opt {
    #[inline]
    fn touch(&mut self, _page: u32) -> bool {
        let now = self.now;
        let next = self.next_touch[now];
        let hit = self.kept[now / 64] >> (now % 64) & 1 == 1;
        if !hit {
            if self.pages_kept < self.memory_pages {
                self.pages_kept += 1;
            } else {
                // Past times are smaller than those of the pages in memory, so they are never on
                // top.
                match self.farthest.pop() {
                    None | Some(NEVER) => {}
                    Some(touch) => self.kept[touch as usize / 64] &= !(1 << (touch % 64)),
                }
            }
        }
        self.farthest.push(next);
        if next != NEVER {
            self.kept[next as usize / 64] |= 1 << (next % 64);
        }
        // Every hit leaves a past time behind. Removing them at half of the heap keeps the cost
        // constant per access.
        if self.farthest.len() as u64 > 2 * u64::from(self.memory_pages) + 64 {
            self.farthest.retain(|&touch| touch as usize > now);
        }
        self.now += 1;
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misses(memory_pages: u32, trace: &[u32]) -> u32 {
        let mut policy = Opt::new(memory_pages, trace.to_vec());
        trace.iter().map(|&page| u32::from(!policy.touch(page))).sum()
    }

    #[test]
    fn the_textbooks_reference_string() {
        // Silberschatz et al., Operating System Concepts: 9 faults with three frames.
        let trace = [7, 0, 1, 2, 0, 3, 0, 4, 2, 3, 0, 3, 2, 1, 2, 0, 1, 7, 0, 1];
        assert_eq!(misses(3, &trace), 9);
    }

    #[test]
    fn a_cycle_keeps_all_but_one() {
        // A cycle of 5 pages with room for 4: a page that stays never misses; one in four accesses
        // misses.
        let trace: Vec<u32> = (0..405).map(|n| n % 5).collect();
        assert_eq!(misses(4, &trace), 5 + 100);
    }

    #[test]
    fn memory_for_all_misses_first_touches_only() {
        let trace: Vec<u32> = (0..1000).map(|n| n * n % 17).collect();
        assert_eq!(misses(17, &trace), 9);
        assert_eq!(misses(1, &[0, 0, 1, 1, 0]), 3);
    }
}
