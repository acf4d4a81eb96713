//! W-TinyLFU: a small window under LRU; a page that leaves it is admitted to the rest of memory only if it was touched
//! more often than the page that would have to leave there.
//!
//! G. Einziger, R. Friedman and B. Manes, "TinyLFU: a highly efficient cache admission policy", ACM Transactions on Storage
//! 13(4), 2017, section 4: a hundredth of memory for the window, four fifths of the rest for pages touched there.
//!
//! ```text
//! miss ─► window LRU ─► more frequent than the oldest of probation?
//!                         └► probation ─► protected   on a hit; back to probation when that is full
//! ```
//!
//! How often pages are touched is counted approximately, in ten small counters per page of memory. There is no
//! doorkeeper in front of them, which saves space and is no part of the policy.

use super::Policy;
use super::queue::{Pages, Queue};

/// The policy.
#[derive(Debug)]
pub struct WTinyLfu {
    window_max: u32,
    main_max: u32,
    protected_max: u32,
    pages: Pages<Place>,
    window: Queue,
    probation: Queue,
    protected: Queue,
    sketch: Sketch,
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
    /// With so much memory.
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
            sketch: Sketch::new(memory_pages),
        }
    }

    /// A page left the window: it is admitted, or leaves memory.
    fn admit(&mut self, candidate: u32) {
        if self.probation.len() + self.protected.len() == self.main_max {
            let from = if self.probation.len() > 0 { &mut self.probation } else { &mut self.protected };
            match from.oldest() {
                Some(victim) if self.sketch.frequency(candidate) > self.sketch.frequency(victim) => {
                    from.remove(&mut self.pages, victim);
                    self.pages.set_tag(victim, Place::Out);
                }
                _ => return self.pages.set_tag(candidate, Place::Out),
            }
        }
        self.probation.push(&mut self.pages, candidate);
        self.pages.set_tag(candidate, Place::Probation);
    }

    fn protect(&mut self, page: u32) {
        self.probation.remove(&mut self.pages, page);
        self.protected.push(&mut self.pages, page);
        self.pages.set_tag(page, Place::Protected);
        if self.protected.len() > self.protected_max
            && let Some(back) = self.protected.pop(&mut self.pages)
        {
            self.probation.push(&mut self.pages, back);
            self.pages.set_tag(back, Place::Probation);
        }
    }
}

impl Policy for WTinyLfu {
    #[inline]
    fn touch(&mut self, page: u32) -> bool {
        self.sketch.record(page);
        match self.pages.reach(page) {
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
                self.pages.set_tag(page, Place::Window);
                return false;
            }
        }
        true
    }
}

/// Counters per page.
const ROWS: u32 = 4;
/// The largest count: four bits, as in the paper's section 3.4.2, where a sample of ten times memory needs no more.
const COUNT_MAX: u8 = 15;
/// Touches per page of memory after which all counts are halved.
const SAMPLE: u64 = 10;

/// So few that they cost nothing, and so many that a memory of a few pages is not confused.
const COUNTERS_MIN: u64 = 1 << 13;

/// Approximate counts of touches: the smallest of four counters, of which only the smallest are incremented.
#[derive(Debug)]
struct Sketch {
    counters: Box<[u8]>,
    mask: u32,
    touches: u64,
    sample: u64,
}

impl Sketch {
    fn new(memory_pages: u32) -> Sketch {
        // Ten to twenty counters per page of memory: with four of them per page, few pages share all of theirs.
        let counters = (u64::from(memory_pages) * 10).next_power_of_two().clamp(COUNTERS_MIN, 1 << 32);
        Sketch {
            counters: vec![0; counters as usize].into(),
            mask: (counters - 1) as u32,
            touches: 0,
            sample: u64::from(memory_pages) * SAMPLE,
        }
    }

    /// The places of a page's counters.
    #[inline]
    fn places(&self, page: u32) -> impl Iterator<Item = usize> + use<> {
        // The finalizer of SplitMix64 on an odd multiple: see `mglru_workload::random`.
        let mut word = (u64::from(page) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word ^= word >> 27;
        let (first, step, mask) = (word as u32, (word >> 32) as u32 | 1, self.mask);
        (0..ROWS).map(move |row| (first.wrapping_add(row.wrapping_mul(step)) & mask) as usize)
    }

    #[inline]
    fn frequency(&self, page: u32) -> u8 {
        self.places(page).map(|place| self.counters[place]).min().unwrap_or(0)
    }

    #[inline]
    fn record(&mut self, page: u32) {
        let least = self.frequency(page);
        if least < COUNT_MAX {
            for place in self.places(page) {
                if self.counters[place] == least {
                    self.counters[place] += 1;
                }
            }
        }
        self.touches += 1;
        if self.touches == self.sample {
            self.counters.iter_mut().for_each(|counter| *counter /= 2);
            self.touches /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::hits;

    /// Memory of five: a window of one, four behind it, three of them protected.
    #[test]
    fn a_page_is_admitted_if_it_is_more_frequent_than_the_victim() {
        let mut policy = WTinyLfu::new(5);
        assert_eq!(hits(&mut policy, "abcde"), ".....", "all have room");
        assert_eq!(hits(&mut policy, "aabb"), "hhhh", "a and b are protected");
        // f puts e out of the window, which is no more frequent than c: e leaves.
        assert_eq!(hits(&mut policy, "fe"), "..");
        // By now e was touched twice, f and c once: when e leaves the window for g, it is admitted for c.
        assert_eq!(hits(&mut policy, "gec"), ".h.");
        // However long a scan is, pages that are more frequent stay.
        for page in 100..1000 {
            assert!(!policy.touch(page), "{page}");
        }
        assert_eq!(hits(&mut policy, "ab"), "hh");
    }

    #[test]
    fn counts_end_at_fifteen_and_are_halved_in_time() {
        let mut sketch = Sketch::new(10);
        for _ in 0..20 {
            sketch.record(7);
        }
        assert_eq!((sketch.frequency(7), sketch.frequency(8)), (15, 0));
        for _ in 20..100 {
            sketch.record(8);
        }
        assert_eq!((sketch.frequency(7), sketch.frequency(8), sketch.touches), (7, 7, 50));
    }

    /// With twenty touches of a thousand pages each, hardly any count is wrong.
    #[test]
    fn the_sketch_counts_almost_exactly() {
        let mut sketch = Sketch::new(1000);
        for round in 0..9 {
            for page in 0..1000 {
                if page % 10 >= round {
                    sketch.record(page);
                }
            }
        }
        let wrong =
            (0..1000).filter(|&page| u32::from(sketch.frequency(page)) != (page % 10 + 1).min(9)).count();
        assert!(wrong < 30, "{wrong} of 1000");
    }
}
