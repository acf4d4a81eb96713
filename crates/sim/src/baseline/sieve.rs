//! SIEVE: a hand moves over a FIFO queue from old to new and evicts the first page that was not
//! accessed since it passed.
//!
//! Y. Zhang et al., "SIEVE is simpler than LRU: an efficient turn-key eviction algorithm for web
//! caches", NSDI 2024, Algorithm 1. Unlike in [`clock`](super::clock), a page that the hand passes
//! keeps its place, and new pages enter at the newest end, not at the hand: they are checked before
//! the survivors.

use super::Policy;
use super::queue::Memory;

/// The SIEVE policy.
#[derive(Debug)]
pub struct Sieve {
    memory: Memory<Visit>,
    /// The next page to check; `None`: the oldest.
    hand: Option<u32>,
}

/// Whether a page in memory was accessed since the hand passed.
#[derive(Debug, Clone, Copy, Default)]
enum Visit {
    #[default]
    Out,
    Unvisited,
    Visited,
}

impl Sieve {
    /// Creates the policy for a memory of `memory_pages` pages.
    pub fn new(memory_pages: u32) -> Sieve {
        Sieve { memory: Memory::new(memory_pages), hand: None }
    }

    fn evict(&mut self) {
        let memory = &mut self.memory;
        while let Some(page) = self.hand.or(memory.queue.oldest()) {
            self.hand = memory.queue.newer(&memory.pages, page);
            if matches!(memory.pages.tag(page), Visit::Unvisited) {
                return memory.take_out(page);
            }
            memory.pages.set_tag(page, Visit::Unvisited);
        }
    }
}

impl Policy for Sieve {
    #[inline]
    fn touch(&mut self, page: u32) -> bool {
        if !matches!(self.memory.pages.reach(page), Visit::Out) {
            self.memory.pages.set_tag(page, Visit::Visited);
            return true;
        }
        if self.memory.is_full() {
            self.evict();
        }
        self.memory.bring_in(page, Visit::Unvisited);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::hits;

    fn inside(sieve: &Sieve) -> String {
        let mut inside = String::new();
        let mut next = sieve.memory.queue.oldest();
        while let Some(page) = next {
            inside.push(char::from(b'a' + page as u8));
            next = sieve.memory.queue.newer(&sieve.memory.pages, page);
        }
        inside
    }

    #[test]
    fn the_hand_moves_from_old_to_new_and_survivors_stay_where_they_are() {
        let mut sieve = Sieve::new(7);
        assert_eq!(hits(&mut sieve, "abcdefgabg"), ".......hhh");
        // The hand passes a and b, and evicts c.
        assert_eq!((hits(&mut sieve, "h").as_str(), inside(&sieve).as_str()), (".", "abdefgh"));
        // The hand is at d, which was accessed meanwhile: it evicts e, although a and b are older.
        assert_eq!((hits(&mut sieve, "di").as_str(), inside(&sieve).as_str()), ("h.", "abdfghi"));
        assert_eq!((hits(&mut sieve, "j").as_str(), inside(&sieve).as_str()), (".", "abdghij"));
        // The hand passes g, which stays behind it with all survivors; new pages are evicted one
        // after the other.
        assert_eq!((hits(&mut sieve, "klmn").as_str(), inside(&sieve).as_str()), ("....", "abdglmn"));
    }
}
