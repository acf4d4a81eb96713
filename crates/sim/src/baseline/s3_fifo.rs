//! S3-FIFO: three FIFO queues. Most pages are accessed once and soon leave through the small one.
//!
//! J. Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023, Algorithm 1: S has
//! a tenth of memory, M the rest, G nine tenths as many names as memory has pages; a counter of two
//! bits, cleared on the way from S to M.
//!
//! ```text
//! miss ─► S ─► G  names only          accessed at most once meanwhile
//!           └► M ─► M again, count−1   accessed twice in S, or since M's hand passed
//! miss on a name in G ─► M
//! ```
//!
//! In the paper, M evicts when S passes a page to a full M, and S still continues until a page
//! leaves it. Here, as in the authors' libCacheSim, exactly one page is evicted per new page.

use super::Policy;
use super::queue::{Pages, Queue};

/// The counter's largest value.
const TOUCHES_MAX: u8 = 3;
/// Accesses in S that move a page to M.
const TOUCHES_FOR_MAIN: u8 = 2;

/// The S3-FIFO policy.
#[derive(Debug)]
pub struct S3Fifo {
    memory_pages: u32,
    main_pages: u32,
    ghost_max: u32,
    pages: Pages<State>,
    small: Queue,
    main: Queue,
    ghost: Queue,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    place: Place,
    touches: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Place {
    #[default]
    Out,
    Small,
    Main,
    Ghost,
}

impl S3Fifo {
    /// Creates the policy for a memory of `memory_pages` pages.
    pub fn new(memory_pages: u32) -> S3Fifo {
        S3Fifo {
            memory_pages,
            main_pages: memory_pages - (memory_pages / 10).max(1),
            ghost_max: (u64::from(memory_pages) * 9 / 10) as u32,
            pages: Pages::default(),
            small: Queue::EMPTY,
            main: Queue::EMPTY,
            ghost: Queue::EMPTY,
        }
    }

    fn put(&mut self, page: u32, place: Place, touches: u8) {
        let queue = match place {
            Place::Small => &mut self.small,
            Place::Main => &mut self.main,
            _ => &mut self.ghost,
        };
        queue.push(&mut self.pages, page);
        self.pages.set_tag(page, State { place, touches });
    }

    /// Evicts at least one page if memory is full.
    fn make_room(&mut self) {
        while self.small.len() + self.main.len() >= self.memory_pages {
            if self.main.len() > self.main_pages || self.small.len() == 0 {
                self.evict_from_main();
            } else {
                self.evict_from_small();
            }
        }
    }

    fn evict_from_small(&mut self) {
        while let Some(page) = self.small.pop(&mut self.pages) {
            if self.pages.tag(page).touches >= TOUCHES_FOR_MAIN {
                self.put(page, Place::Main, 0);
                continue;
            }
            self.put(page, Place::Ghost, 0);
            if self.ghost.len() > self.ghost_max
                && let Some(forgotten) = self.ghost.pop(&mut self.pages)
            {
                self.pages.set_tag(forgotten, State::default());
            }
            return;
        }
    }

    fn evict_from_main(&mut self) {
        while let Some(page) = self.main.pop(&mut self.pages) {
            match self.pages.tag(page).touches {
                0 => return self.pages.set_tag(page, State::default()),
                touches => self.put(page, Place::Main, touches - 1),
            }
        }
    }
}

impl Policy for S3Fifo {
    #[inline]
    fn touch(&mut self, page: u32) -> bool {
        let State { place, touches } = self.pages.reach(page);
        match place {
            Place::Small | Place::Main => {
                self.pages.set_tag(page, State { place, touches: (touches + 1).min(TOUCHES_MAX) });
                return true;
            }
            Place::Ghost => {
                self.ghost.remove(&mut self.pages, page);
                self.make_room();
                self.put(page, Place::Main, 0);
            }
            Place::Out => {
                self.make_room();
                self.put(page, Place::Small, 0);
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::hits;

    #[test]
    fn pages_seen_once_leave_through_the_small_queue() {
        // S of 1, M and G of 3.
        let mut policy = S3Fifo::new(4);
        assert_eq!(hits(&mut policy, "abcd"), "....", "S uses all memory until M needs some");
        assert_eq!(hits(&mut policy, "aab"), "hhh");
        // a was accessed twice and moves to M. b was accessed once: its name is kept, and known
        // when b returns.
        assert_eq!(hits(&mut policy, "e"), ".");
        assert_eq!((policy.small.len(), policy.main.len(), policy.ghost.len()), (3, 1, 1));
        assert_eq!(hits(&mut policy, "b"), ".");
        assert_eq!((policy.small.len(), policy.main.len(), policy.ghost.len()), (2, 2, 1));
        // A scan passes through S only.
        assert_eq!(hits(&mut policy, "fghijklab"), ".......hh");
    }

    #[test]
    fn m_is_a_clock() {
        let mut policy = S3Fifo::new(4);
        // All four move to M for e, which makes M too large. As their counts restart, a is evicted;
        // it is unknown when it returns, but e's name is known.
        assert_eq!(hits(&mut policy, "abcdaabbccddeabcde"), "....hhhhhhhh..hhh.");
        assert_eq!((policy.small.len(), policy.main.len(), policy.ghost.len()), (0, 4, 1));
        // For x, the hand passes b, c and d, which were accessed, and evicts e.
        assert_eq!(hits(&mut policy, "xbcde"), ".hhh.");
    }
}
