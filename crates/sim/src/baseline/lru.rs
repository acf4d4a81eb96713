//! LRU: evicts the page with the oldest last access.
//!
//! R. L. Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2),
//! 1970.

use super::Policy;
use super::queue::Memory;

/// The LRU policy. A tag says whether the page is in memory.
#[derive(Debug)]
pub struct Lru(Memory<bool>);

impl Lru {
    /// Creates the policy for a memory of `memory_pages` pages.
    pub fn new(memory_pages: u32) -> Lru {
        Lru(Memory::new(memory_pages))
    }
}

impl Policy for Lru {
    #[inline]
    fn touch(&mut self, page: u32) -> bool {
        let memory = &mut self.0;
        if memory.pages.reach(page) {
            memory.queue.renew(&mut memory.pages, page);
            return true;
        }
        memory.replace_oldest(page, true);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::hits;

    #[test]
    fn the_least_recently_used_leaves() {
        // a is used again, so d evicts b, and b evicts c.
        assert_eq!(hits(&mut Lru::new(3), "abcadbac"), "...h..h.");
    }

    /// Mattson et al.: a larger memory contains everything that a smaller one does.
    #[test]
    fn more_memory_never_misses_more() {
        let pages = "abcdabeabcde";
        let misses = |memory| hits(&mut Lru::new(memory), pages).matches('.').count();
        assert_eq!([1, 2, 3, 4, 5].map(misses), [12, 12, 10, 8, 5]);
    }

    #[test]
    fn a_cycle_larger_than_memory_never_hits() {
        assert_eq!(hits(&mut Lru::new(3), "abcdabcdabcd"), "............");
    }
}
