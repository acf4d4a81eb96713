//! CLOCK (second chance): evicts the oldest page, unless it was accessed since the last check; then
//! it becomes the newest.
//!
//! F. J. Corbató, "A paging experiment with the Multics system", MIT Project MAC report MAC-M-384,
//! 1968, with one usage bit. The clock's hand is the oldest end of a queue; pages that it passes
//! become the newest. A new page's bit is clear.

use super::Policy;
use super::queue::{Pages, Queue};

/// The CLOCK policy.
#[derive(Debug)]
pub struct Clock {
    memory_pages: u32,
    pages: Pages<State>,
    queue: Queue,
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    #[default]
    Out,
    Unused,
    Used,
}

impl Clock {
    /// Creates the policy for a memory of `memory_pages` pages.
    pub fn new(memory_pages: u32) -> Clock {
        Clock { memory_pages, pages: Pages::default(), queue: Queue::EMPTY }
    }

    fn evict(&mut self) {
        while let Some(page) = self.queue.pop(&mut self.pages) {
            match self.pages.tag(page) {
                State::Used => {
                    self.pages.set_tag(page, State::Unused);
                    self.queue.push(&mut self.pages, page);
                }
                _ => return self.pages.set_tag(page, State::Out),
            }
        }
    }
}

impl Policy for Clock {
    #[inline]
    fn touch(&mut self, page: u32) -> bool {
        if !matches!(self.pages.reach(page), State::Out) {
            self.pages.set_tag(page, State::Used);
            return true;
        }
        if self.queue.len() == self.memory_pages {
            self.evict();
        }
        self.pages.set_tag(page, State::Unused);
        self.queue.push(&mut self.pages, page);
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
