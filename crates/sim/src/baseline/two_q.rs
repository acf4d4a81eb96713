//! 2Q: new pages pass through a FIFO queue; only those accessed again afterwards enter an LRU list.
//!
//! T. Johnson and D. Shasha, "2Q: a low overhead high performance buffer management replacement
//! algorithm", VLDB 1994, the full version, with the paper's recommended sizes: A1in a quarter of
//! memory, A1out as many names as half of memory has pages.
//!
//! ```text
//! miss ─► A1in  a queue ─► A1out  names only ─► forgotten
//! miss on a name in A1out ─► Am  LRU ─► forgotten
//! ```

use super::Policy;
use super::queue::{Pages, Queue};

/// The 2Q policy.
#[derive(Debug)]
pub struct TwoQ {
    memory_pages: u32,
    a1in_max: u32,
    a1out_max: u32,
    pages: Pages<Place>,
    a1in: Queue,
    a1out: Queue,
    am: Queue,
}

#[derive(Debug, Clone, Copy, Default)]
enum Place {
    #[default]
    Out,
    A1in,
    A1out,
    Am,
}

impl TwoQ {
    /// Creates the policy for a memory of `memory_pages` pages.
    pub fn new(memory_pages: u32) -> TwoQ {
        TwoQ {
            memory_pages,
            a1in_max: memory_pages / 4,
            a1out_max: memory_pages / 2,
            pages: Pages::default(),
            a1in: Queue::EMPTY,
            a1out: Queue::EMPTY,
            am: Queue::EMPTY,
        }
    }

    /// Makes room for a page: the paper's `reclaimfor`.
    fn reclaim(&mut self) {
        if self.a1in.len() + self.am.len() < self.memory_pages {
            return;
        }
        if self.a1in.len() > self.a1in_max {
            if let Some(victim) = self.a1in.pop(&mut self.pages) {
                self.pages.set_tag(victim, Place::A1out);
                self.a1out.push(&mut self.pages, victim);
            }
            if self.a1out.len() > self.a1out_max
                && let Some(forgotten) = self.a1out.pop(&mut self.pages)
            {
                self.pages.set_tag(forgotten, Place::Out);
            }
        } else if let Some(victim) = self.am.pop(&mut self.pages) {
            self.pages.set_tag(victim, Place::Out);
        }
    }
}

impl Policy for TwoQ {
    #[inline]
    fn touch(&mut self, page: u32) -> bool {
        match self.pages.reach(page) {
            // Accesses to a new page are correlated and do not predict later use.
            Place::A1in => return true,
            Place::Am => {
                self.am.renew(&mut self.pages, page);
                return true;
            }
            Place::A1out => {
                self.a1out.remove(&mut self.pages, page);
                self.reclaim();
                self.am.push(&mut self.pages, page);
                self.pages.set_tag(page, Place::Am);
            }
            Place::Out => {
                self.reclaim();
                self.a1in.push(&mut self.pages, page);
                self.pages.set_tag(page, Place::A1in);
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
    fn only_returning_pages_are_kept() {
        // A1in of 1, A1out of 2, memory of 4.
        let mut policy = TwoQ::new(4);
        assert_eq!(hits(&mut policy, "abcda"), "....h", "A1in may use all memory until Am needs some");
        assert_eq!(
            hits(&mut policy, "ef"),
            "..",
            "a and b leave in their order, though a was touched: names remain"
        );
        assert_eq!(hits(&mut policy, "b"), ".", "known: into Am, and c leaves for it");
        // A scan does not touch Am.
        assert_eq!(hits(&mut policy, "ghijklmb"), ".......h");
        // a's name was dropped: a is new, and stays as long as A1in has the memory that Am does not
        // use.
        assert_eq!(hits(&mut policy, "anoapqa"), "...h...");
        assert_eq!((policy.a1in.len(), policy.a1out.len(), policy.am.len()), (2, 2, 2));
    }
}
