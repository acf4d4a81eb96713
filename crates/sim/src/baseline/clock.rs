//! CLOCK (second chance): evicts the oldest page, unless it was accessed since the last check; then
//! it becomes the newest.
//!
//! F. J. Corbató, "A paging experiment with the Multics system", MIT Project MAC report MAC-M-384,
//! 1968, with one usage bit. The clock's hand is the oldest end of a queue; pages that it passes
//! become the newest. A new page's bit is clear.

use super::Policy;
use super::queue::Memory;

/// The CLOCK policy.
#[derive(Debug)]
pub struct Clock(Memory<Bit>);

/// The usage bit of a page in memory.
#[derive(Debug, Clone, Copy, Default)]
enum Bit {
    #[default]
    Out,
    Unused,
    Used,
}

impl Clock {
    /// Creates the policy for a memory of `memory_pages` pages.
    pub fn new(memory_pages: u32) -> Clock {
        Clock(Memory::new(memory_pages))
    }

    fn evict(&mut self) {
        while let Some(page) = self.0.queue.oldest() {
            let is_used = matches!(self.0.pages.tag(page), Bit::Used);
            self.0.take_out(page);
            if !is_used {
                return;
            }
            self.0.bring_in(page, Bit::Unused);
        }
    }
}

impl Policy for Clock {
    #[inline]
    fn touch(&mut self, page: u32) -> bool {
        if !matches!(self.0.pages.reach(page), Bit::Out) {
            self.0.pages.set_tag(page, Bit::Used);
            return true;
        }
        if self.0.is_full() {
            self.evict();
        }
        self.0.bring_in(page, Bit::Unused);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::hits;

    #[test]
    fn a_used_page_gets_a_second_chance() {
        // For d, the hand passes a and evicts b; for b, it evicts c; a's chance is used up, so c
        // replaces a.
        assert_eq!(hits(&mut Clock::new(3), "abcadbca"), "...h....");
        // With all pages used, the hand goes round and evicts the first one after all.
        assert_eq!(hits(&mut Clock::new(3), "abcabcdbca"), "...hhh.hh.");
    }
}
