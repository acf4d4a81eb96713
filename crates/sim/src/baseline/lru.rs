//! LRU: evicts the page with the oldest last access.
//!
//! R. L. Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2),
//! 1970.

use super::Policy;
use super::queue::{Pages, Queue};

/// The LRU policy.
#[derive(Debug)]
pub struct Lru {
    memory_pages: u32,
    /// Whether each page is in memory.
    pages: Pages<bool>,
    queue: Queue,
}

impl Lru {
    /// Creates the policy for a memory of `memory_pages` pages.
    pub fn new(memory_pages: u32) -> Lru {
        Lru { memory_pages, pages: Pages::default(), queue: Queue::EMPTY }
    }
}

impl Policy for Lru {
    #[inline]
    fn touch(&mut self, page: u32) -> bool {
        if self.pages.reach(page) {
            self.queue.renew(&mut self.pages, page);
            return true;
        }
        if self.queue.len() == self.memory_pages
            && let Some(victim) = self.queue.pop(&mut self.pages)
        {
            self.pages.set_tag(victim, false);
        }
        self.queue.push(&mut self.pages, page);
        self.pages.set_tag(page, true);
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
