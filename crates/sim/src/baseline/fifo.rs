//! FIFO: evicts the page that was brought in first, used or not.
//!
//! L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
//! Journal 5(2), 1966.

use super::Policy;
use super::queue::{Pages, Queue};

/// The FIFO policy.
#[derive(Debug)]
pub struct Fifo {
    memory_pages: u32,
    /// Whether each page is in memory.
    pages: Pages<bool>,
    queue: Queue,
}

impl Fifo {
    /// Creates the policy for a memory of `memory_pages` pages.
    pub fn new(memory_pages: u32) -> Fifo {
        Fifo { memory_pages, pages: Pages::default(), queue: Queue::EMPTY }
    }
}

impl Policy for Fifo {
    #[inline]
    fn touch(&mut self, page: u32) -> bool {
        if self.pages.reach(page) {
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

    /// Belady's anomaly, in the example of Belady, Nelson and Shedler (CACM 1969): more memory,
    /// more misses.
    #[test]
    fn more_memory_may_miss_more() {
        let pages = "abcdabeabcde";
        assert_eq!(hits(&mut Fifo::new(3), pages), ".......hh..h");
        assert_eq!(hits(&mut Fifo::new(4), pages), "....hh......");
    }
}
