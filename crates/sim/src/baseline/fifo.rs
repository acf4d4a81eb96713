//! FIFO: evicts the page that was brought in first, used or not.
//!
//! L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
//! Journal 5(2), 1966.

use super::Policy;
use super::queue::Memory;

/// The FIFO policy. A tag says whether the page is in memory.
#[derive(Debug)]
pub struct Fifo(Memory<bool>);

impl Fifo {
    /// Creates the policy for a memory of `memory_pages` pages.
    pub fn new(memory_pages: u32) -> Fifo {
        Fifo(Memory::new(memory_pages))
    }
}

impl Policy for Fifo {
    #[inline]
    fn touch(&mut self, page: u32) -> bool {
        let memory = &mut self.0;
        if memory.pages.reach(page) {
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

    /// Belady's anomaly, in the example of Belady, Nelson and Shedler (CACM 1969): more memory,
    /// more misses.
    #[test]
    fn more_memory_may_miss_more() {
        let pages = "abcdabeabcde";
        assert_eq!(hits(&mut Fifo::new(3), pages), ".......hh..h");
        assert_eq!(hits(&mut Fifo::new(4), pages), "....hh......");
    }
}
