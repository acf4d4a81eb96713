//! Requests to workers that each have a heap, like the workers of a browser or script engine.
//!
//! A request computes for 5 to 80 ms. Of four successive requests, one each takes up to 10, 20, 40
//! and 80 ms, in random order: a hundredth of the buckets, in seconds, of the published run. While
//! it computes, a request touches its heap. Four fifths of the touched pages are in the young fifth
//! of the heap, and a third of all touches are stores. The latency without pressure is thus known.
//! Reclaim shows as requests in a later bucket and as a lower rate of requests.

use crate::load::Step;
use crate::random::Random;
use crate::trace::PageAccess;

/// Computing time per touched page.
const TOUCH_NANOS: u64 = 20_000;
/// Duration of the shortest request.
const LEAST_NANOS: u64 = 5_000_000;

/// Parameters of the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// Pages of each worker's heap; at least 1.
    pub heap_pages: u32,
}

#[derive(Debug)]
struct Worker {
    random: Random,
    /// Duration classes, 0 to 3, that remain before all four are dealt again.
    deck: Vec<u32>,
    /// Start of the young part. It advances with every request, as in an allocator.
    young: u64,
}

/// The running workers.
#[derive(Debug)]
pub struct Workers {
    heap_pages: u64,
    workers: Vec<Worker>,
}

impl Workers {
    /// Starts `workers` workers.
    pub fn new(requests: Requests, workers: u32, seed: u64) -> Workers {
        let worker = |worker| Worker {
            random: Random::stream(seed, 0x4E9_0000 + u64::from(worker)),
            deck: Vec::new(),
            young: 0,
        };
        Workers { heap_pages: u64::from(requests.heap_pages), workers: (0..workers).map(worker).collect() }
    }

    /// Appends the steps of a worker's next request.
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
            steps.push(Step::Compute { nanos: TOUCH_NANOS });
            let page =
                if random.below(5) < 4 { (*young + random.below(fifth)) % heap } else { random.below(heap) };
            let write = random.below(3) == 0;
            steps.push(Step::Touch(PageAccess {
                write,
                mapped: true,
                anon: true,
                ..PageAccess::read(region | page)
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(steps: &[Step]) -> f64 {
        let nanos = |step: &Step| if let Step::Compute { nanos } = step { *nanos } else { 0 };
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
