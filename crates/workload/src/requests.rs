//! Requests to workers that each have a heap, as of browsers' or script engines' workers.
//!
//! A request computes for 5 to 80 ms: of four that follow one another, one each takes up to 10, 20,
//! 40 and 80 ms, in any order (a hundredth of the seconds by which the published run sorted its
//! requests). While it computes it touches its heap: four pages in five are of the young fifth, and
//! a third of all are stored to. So how long requests take without pressure is known, and what
//! reclaim adds shows as requests that go to a later bucket, and as workers that get less done.

use crate::load::Step;
use crate::random::Random;
use crate::trace::PageAccess;

/// Computing per page that is touched.
const TOUCH_NANOS: u64 = 20_000;
/// What the shortest request takes.
const LEAST_NANOS: u64 = 5_000_000;

/// The workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// Of each; at least a page.
    pub heap_pages: u32,
}

/// One worker.
#[derive(Debug)]
struct Worker {
    random: Random,
    /// Kinds of requests that are to come before all come anew: 0 to 3.
    deck: Vec<u32>,
    /// Where its young part begins; it moves on with every request, as an allocator does.
    young: u64,
}

/// Their requests.
#[derive(Debug)]
pub struct Workers {
    heap_pages: u64,
    workers: Vec<Worker>,
}

impl Workers {
    /// So many workers.
    pub fn new(requests: Requests, workers: u32, seed: u64) -> Workers {
        let worker = |worker| Worker {
            random: Random::stream(seed, 0x4E9_0000 + u64::from(worker)),
            deck: Vec::new(),
            young: 0,
        };
        Workers { heap_pages: u64::from(requests.heap_pages), workers: (0..workers).map(worker).collect() }
    }

    /// Appends a request of a worker.
    pub fn next(&mut self, worker: usize, steps: &mut Vec<Step>) {
        let heap = self.heap_pages;
        let region = (worker as u64 + 1) << 32;
        let Worker { random, deck, young } = &mut self.workers[worker];
        if deck.is_empty() {
            deck.extend(0..4);
        }
        let kind = deck.swap_remove(random.below(deck.len() as u64) as usize);
        let least = LEAST_NANOS << kind;
        let nanos = least + random.below(least);
        let touches = nanos / TOUCH_NANOS;
        let fifth = (heap / 5).max(1);
        *young = (*young + touches / 5) % heap;
        for _ in 0..touches {
            steps.push(Step::Rest { nanos: TOUCH_NANOS });
            let page =
                if random.below(5) < 4 { (*young + random.below(fifth)) % heap } else { random.below(heap) };
            let write = random.below(3) == 0;
            steps.push(Step::Touch(PageAccess { page: region | page, write, mapped: true, anon: true }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(steps: &[Step]) -> f64 {
        let nanos = |step: &Step| if let Step::Rest { nanos } = step { *nanos } else { 0 };
        steps.iter().map(nanos).sum::<u64>() as f64 / 1e9
    }

    #[test]
    fn a_quarter_of_the_requests_falls_into_each_bucket() {
        let mut workers = Workers::new(Requests { heap_pages: 100 }, 2, 5);
        let mut buckets = [0; 4];
        for _ in 0..100 {
            let mut steps = Vec::new();
            workers.next(1, &mut steps);
            let bucket = [0.01, 0.02, 0.04, 0.08].iter().position(|&end| seconds(&steps) < end).unwrap();
            buckets[bucket] += 1;
        }
        assert_eq!(buckets, [25; 4]);
    }

    #[test]
    fn workers_touch_their_own_heaps() {
        let mut workers = Workers::new(Requests { heap_pages: 10 }, 3, 5);
        for worker in 0..3 {
            let mut steps = Vec::new();
            workers.next(worker, &mut steps);
            let own = |step: &Step| match step {
                Step::Touch(touch) => touch.page >> 32 == worker as u64 + 1 && touch.page & 0xffff_ffff < 10,
                _ => true,
            };
            assert!(steps.iter().all(own) && steps.len() > 100);
        }
    }
}
