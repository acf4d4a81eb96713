//! W-TinyLFU: a small LRU window. A page that leaves it is admitted to the rest of memory only if
//! it was accessed more often than the page that it would evict.
//!
//! G. Einziger, R. Friedman and B. Manes, "TinyLFU: a highly efficient cache admission policy", ACM
//! Transactions on Storage 13(4), 2017, section 4: a hundredth of memory for the window, four
//! fifths of the rest for pages accessed there.
//!
//! ```text
//! miss ─► window LRU ─► more frequent than the oldest of probation?
//!                         └► probation ─► protected   on a hit; back to probation when that is full
//! ```
//!
//! Recent accesses are counted in four bits per page, over a sample of ten accesses per page of
//! memory; then all counts are halved. The paper counts approximately, in a sketch with a
//! doorkeeper, because a cache cannot keep a counter for every possible page. Here every page has a
//! counter, in order to compare the policy itself and not its compact implementation.

use super::Policy;
use super::queue::{Pages, Queue};

/// The largest count.
const COUNT_MAX: u8 = 15;
/// Accesses per page of memory after which counts are halved.
const SAMPLE: u64 = 10;

/// The W-TinyLFU policy.
#[derive(Debug)]
pub struct WTinyLfu {
    window_max: u32,
    main_max: u32,
    protected_max: u32,
    pages: Pages<State>,
    window: Queue,
    probation: Queue,
    protected: Queue,
    /// Accesses in the current sample, and its size.
    touches: u64,
    touches_max: u64,
    /// Number of times that counts were halved.
    halvings: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    place: Place,
    /// The count as of this number of halvings.
    count: u8,
    halvings: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Place {
    #[default]
    Out,
    Window,
    Probation,
    Protected,
}

impl WTinyLfu {
    /// Creates the policy for a memory of `memory_pages` pages.
    pub fn new(memory_pages: u32) -> WTinyLfu {
        let window_max = (memory_pages / 100).max(1);
        let main_max = memory_pages - window_max;
        WTinyLfu {
            window_max,
            main_max,
            protected_max: (u64::from(main_max) * 4 / 5) as u32,
            pages: Pages::default(),
            window: Queue::EMPTY,
            probation: Queue::EMPTY,
            protected: Queue::EMPTY,
            touches: 0,
            touches_max: u64::from(memory_pages) * SAMPLE,
            halvings: 0,
        }
    }

    /// The number of recent accesses to a page.
    fn count(&self, page: u32) -> u8 {
        let State { count, halvings, .. } = self.pages.tag(page);
        count.checked_shr(self.halvings - halvings).unwrap_or(0)
    }

    /// Counts an access.
    fn record(&mut self, page: u32) {
        let count = (self.count(page) + 1).min(COUNT_MAX);
        let place = self.pages.tag(page).place;
        self.pages.set_tag(page, State { place, count, halvings: self.halvings });
        self.touches += 1;
        if self.touches == self.touches_max {
            self.touches /= 2;
            self.halvings += 1;
        }
    }

    fn set_place(&mut self, page: u32, place: Place) {
        self.pages.set_tag(page, State { place, ..self.pages.tag(page) });
    }

    /// Admits or evicts a page that left the window.
    fn admit(&mut self, candidate: u32) {
        if self.probation.len() + self.protected.len() == self.main_max {
            let victim = self.probation.oldest().or(self.protected.oldest());
            match victim {
                Some(victim) if self.count(candidate) > self.count(victim) => {
                    let probation = self.pages.tag(victim).place == Place::Probation;
                    let from = if probation { &mut self.probation } else { &mut self.protected };
                    from.remove(&mut self.pages, victim);
                    self.set_place(victim, Place::Out);
                }
                _ => return self.set_place(candidate, Place::Out),
            }
        }
        self.probation.push(&mut self.pages, candidate);
        self.set_place(candidate, Place::Probation);
    }

    fn protect(&mut self, page: u32) {
        self.probation.remove(&mut self.pages, page);
        self.protected.push(&mut self.pages, page);
        self.set_place(page, Place::Protected);
        if self.protected.len() > self.protected_max
            && let Some(back) = self.protected.pop(&mut self.pages)
        {
            self.probation.push(&mut self.pages, back);
            self.set_place(back, Place::Probation);
        }
    }
}

impl Policy for WTinyLfu {
    #[inline]
    fn touch(&mut self, page: u32) -> bool {
        let place = self.pages.reach(page).place;
        self.record(page);
        match place {
            Place::Window => self.window.renew(&mut self.pages, page),
            Place::Probation => self.protect(page),
            Place::Protected => self.protected.renew(&mut self.pages, page),
            Place::Out => {
                if self.window.len() == self.window_max
                    && let Some(candidate) = self.window.pop(&mut self.pages)
                {
                    self.admit(candidate);
                }
                self.window.push(&mut self.pages, page);
                self.set_place(page, Place::Window);
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::hits;

    /// Memory of five pages: a window of one, and four behind it, three of them protected.
    #[test]
    fn a_page_is_admitted_if_it_is_more_frequent_than_the_victim() {
        let mut policy = WTinyLfu::new(5);
        assert_eq!(hits(&mut policy, "abcde"), ".....", "all have room");
        assert_eq!(hits(&mut policy, "aabb"), "hhhh", "a and b are protected");
        // f pushes e out of the window. e is no more frequent than c, so e is evicted.
        assert_eq!(hits(&mut policy, "fe"), "..");
        // By now e was accessed twice, f and c once: when g pushes e out of the window, e replaces
        // c.
        assert_eq!(hits(&mut policy, "gec"), ".h.");
        // More frequent pages stay during a scan of any length.
        for page in 100..120 {
            assert!(!policy.touch(page), "{page}");
        }
        assert_eq!(hits(&mut policy, "ab"), "hh");
    }

    /// A loop larger than memory: the first pages stay, because none is more frequent.
    #[test]
    fn a_loop_keeps_all_but_the_window() {
        let mut policy = WTinyLfu::new(5);
        for round in 0..4 {
            assert_eq!(hits(&mut policy, "abcdefgh"), if round == 0 { "........" } else { "hhhh...." });
        }
    }

    #[test]
    fn counts_end_at_fifteen_and_are_halved_in_time() {
        let mut policy = WTinyLfu::new(10);
        (0..20).for_each(|_| {
            policy.touch(7);
        });
        policy.touch(8);
        assert_eq!((policy.count(7), policy.count(8)), (15, 1));
        (21..100).for_each(|_| {
            policy.touch(8);
        });
        assert_eq!((policy.count(7), policy.count(8), policy.touches), (7, 7, 50));
        (0..500).for_each(|_| {
            policy.touch(8);
        });
        assert_eq!((policy.count(7), policy.halvings), (0, 11));
    }
}
