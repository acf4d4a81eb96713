//! Second chance: the oldest page leaves, unless it was touched since it was looked at last; then
//! it starts over.
//!
//! F. J. Corbató, "A paging experiment with the Multics system", MIT Project MAC report MAC-M-384,
//! 1968: with one bit of usage. The clock's hand is the queue's oldest end; what it passes becomes
//! the newest. A page comes in with its bit clear.

use super::Policy;
use super::queue::{Pages, Queue};

/// The policy.
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
    /// With so much memory.
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
        // For d, a is passed and b leaves; for b, c leaves; a's chance is used up, and it leaves
        // for c.
        assert_eq!(hits(&mut Clock::new(3), "abcadbca"), "...h....");
        // With all used, the hand goes round, and the first one leaves after all.
        assert_eq!(hits(&mut Clock::new(3), "abcabcdbca"), "...hhh.hh.");
    }
}
