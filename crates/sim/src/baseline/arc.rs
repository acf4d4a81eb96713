//! ARC: two LRU lists, one of pages accessed once and one of pages accessed again. Misses adjust
//! the lists' shares of memory.
//!
//! N. Megiddo and D. S. Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003,
//! Figure 4. The target `p` is a real number, as in the paper.
//!
//! ```text
//!          in memory   names only
//! once     T1          B1     a miss on a name here: T1 was too small, p grows
//! again    T2          B2     a miss on a name here: T2 was too small, p shrinks
//! ```

use super::Policy;
use super::queue::{Pages, Queue};

/// The ARC policy.
#[derive(Debug)]
pub struct Arc {
    memory_pages: u32,
    /// Target size of T1, 0 to `memory_pages`.
    p: f64,
    pages: Pages<Place>,
    t1: Queue,
    b1: Queue,
    t2: Queue,
    b2: Queue,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Place {
    #[default]
    Out,
    T1,
    B1,
    T2,
    B2,
}

impl Arc {
    /// Creates the policy for a memory of `memory_pages` pages.
    pub fn new(memory_pages: u32) -> Arc {
        Arc {
            memory_pages,
            p: 0.0,
            pages: Pages::default(),
            t1: Queue::EMPTY,
            b1: Queue::EMPTY,
            t2: Queue::EMPTY,
            b2: Queue::EMPTY,
        }
    }

    /// Evicts one page and keeps its name: the paper's REPLACE. `from_b2`: the new page's name is
    /// in B2.
    fn replace(&mut self, from_b2: bool) {
        let t1 = f64::from(self.t1.len());
        let from_t1 = self.t1.len() > 0 && (t1 > self.p || (from_b2 && t1 == self.p));
        if from_t1 || self.t2.len() == 0 {
            if let Some(victim) = self.t1.pop(&mut self.pages) {
                self.b1.push(&mut self.pages, victim);
                self.pages.set_tag(victim, Place::B1);
            }
        } else if let Some(victim) = self.t2.pop(&mut self.pages) {
            self.b2.push(&mut self.pages, victim);
            self.pages.set_tag(victim, Place::B2);
        }
    }

    fn forget(pages: &mut Pages<Place>, from: &mut Queue) {
        if let Some(page) = from.pop(pages) {
            pages.set_tag(page, Place::Out);
        }
    }

    /// Makes room for a page without a known name: case IV.
    fn make_room(&mut self) {
        let once = self.t1.len() + self.b1.len();
        if once == self.memory_pages {
            if self.t1.len() < self.memory_pages {
                Arc::forget(&mut self.pages, &mut self.b1);
                self.replace(false);
            } else {
                Arc::forget(&mut self.pages, &mut self.t1);
            }
        } else {
            let known = u64::from(once) + u64::from(self.t2.len()) + u64::from(self.b2.len());
            if known >= u64::from(self.memory_pages) {
                if known == 2 * u64::from(self.memory_pages) {
                    Arc::forget(&mut self.pages, &mut self.b2);
                }
                self.replace(false);
            }
        }
    }
}

/// Step of the target on a hit in a list of `hit` names beside one of `other`.
fn step(hit: u32, other: u32) -> f64 {
    if hit >= other { 1.0 } else { f64::from(other) / f64::from(hit) }
}

impl Policy for Arc {
    #[inline]
    fn touch(&mut self, page: u32) -> bool {
        let place = self.pages.reach(page);
        match place {
            Place::T2 => {
                self.t2.renew(&mut self.pages, page);
                return true;
            }
            Place::T1 => self.t1.remove(&mut self.pages, page),
            Place::B1 => {
                self.p = (self.p + step(self.b1.len(), self.b2.len())).min(f64::from(self.memory_pages));
                self.b1.remove(&mut self.pages, page);
                self.replace(false);
            }
            Place::B2 => {
                self.p = (self.p - step(self.b2.len(), self.b1.len())).max(0.0);
                self.b2.remove(&mut self.pages, page);
                self.replace(true);
            }
            Place::Out => {
                self.make_room();
                self.t1.push(&mut self.pages, page);
                self.pages.set_tag(page, Place::T1);
                return false;
            }
        }
        self.t2.push(&mut self.pages, page);
        self.pages.set_tag(page, Place::T2);
        place == Place::T1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::hits;

    #[test]
    fn the_target_follows_the_names_that_are_missed() {
        let mut policy = Arc::new(4);
        let sizes = |policy: &Arc| {
            let Arc { t1, b1, t2, b2, .. } = policy;
            [t1, b1, t2, b2].map(Queue::len)
        };
        // Two pages twice, then two once.
        assert_eq!(hits(&mut policy, "abab"), "..hh");
        assert_eq!(hits(&mut policy, "cd"), "..");
        assert_eq!((sizes(&policy), policy.p), ([2, 0, 2, 0], 0.0));
        // p is 0: T1 evicts c. c returns: p grows, and T1 (d, e), still larger, evicts d.
        assert_eq!(hits(&mut policy, "ec"), "..");
        assert_eq!((sizes(&policy), policy.p), ([1, 1, 3, 0], 1.0));
        // f: T1 is no longer above its target, so T2 evicts its least recently used page, a.
        assert_eq!(hits(&mut policy, "f"), ".");
        assert_eq!((sizes(&policy), policy.p), ([2, 1, 2, 1], 1.0));
        // a returns: p shrinks, and T1 evicts e.
        assert_eq!(hits(&mut policy, "a"), ".");
        assert_eq!((sizes(&policy), policy.p), ([1, 2, 3, 0], 0.0));
    }

    /// Section IV.E: pages used twice stay during a scan of any length.
    #[test]
    fn a_scan_passes_through_t1() {
        let mut policy = Arc::new(4);
        assert_eq!(hits(&mut policy, "abcabc"), "...hhh");
        for page in 100..1000 {
            assert!(!policy.touch(page));
        }
        assert_eq!(hits(&mut policy, "abc"), "hhh");
    }
}
