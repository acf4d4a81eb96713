//! Naive models of libCacheSim (2024-10-07) where it deviates from the papers. They reproduce its
//! miss ratios, so these deviations explain all differences.

#![allow(dead_code, reason = "the tests and the example use their parts")]

use mglru_sim::baseline::Policy;
use mglru_workload::Random;
use std::collections::{HashMap, VecDeque};

fn take(pages: &mut Vec<u32>, page: u32) -> bool {
    let found = pages.iter().rposition(|&other| other == page);
    found.map(|at| pages.remove(at)).is_some()
}

/// LIRS with one additional rule. A hit in the queue on a page outside of the stack turns the LIR
/// page at the bottom into a HIR page and evicts the first page of the queue, as if the hit page
/// became LIR. But it does not, so the next new page becomes LIR at once. If the queue has one
/// page, the hit page itself is evicted, and its stack entry still counts as in memory.
#[derive(Default)]
pub struct Lirs {
    memory: usize,
    lir_max: usize,
    queue_max: usize,
    /// From bottom to top.
    stack: Vec<Entry>,
    queue: Vec<u32>,
    names: Vec<u32>,
    lir: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    page: u32,
    lir: bool,
    inside: bool,
}

impl Lirs {
    pub fn new(memory: usize) -> Lirs {
        let queue_max = (memory / 100).max(1);
        Lirs { memory, queue_max, lir_max: memory - queue_max, ..Lirs::default() }
    }

    fn leave(&mut self) {
        let page = self.queue.remove(0);
        if let Some(entry) = self.stack.iter_mut().find(|entry| entry.page == page) {
            entry.inside = false;
            self.names.push(page);
        }
    }

    fn demote(&mut self) {
        let bottom = self.stack.remove(0);
        self.lir -= 1;
        while self.queue.len() >= self.queue_max {
            self.leave();
        }
        self.queue.push(bottom.page);
        self.prune();
    }

    fn prune(&mut self) {
        while self.stack.len() > 1 && !self.stack[0].lir {
            let bottom = self.stack.remove(0);
            take(&mut self.names, bottom.page);
        }
    }
}

impl Policy for Lirs {
    fn touch(&mut self, page: u32) -> bool {
        let in_stack = self.stack.iter().rposition(|entry| entry.page == page);
        let in_stack = in_stack.map(|at| self.stack.remove(at));
        self.stack.extend(in_stack);
        let in_queue = take(&mut self.queue, page);
        let hit = match in_stack {
            Some(Entry { lir: true, .. }) => {
                self.prune();
                true
            }
            Some(Entry { inside, .. }) => {
                while self.lir >= self.lir_max {
                    self.demote();
                }
                take(&mut self.names, page);
                let top = self.stack.last_mut().expect("the page itself");
                (top.lir, top.inside) = (true, true);
                self.lir += 1;
                inside
            }
            None if in_queue => {
                self.queue.push(page);
                while self.lir >= self.lir_max {
                    self.demote();
                }
                self.stack.push(Entry { page, lir: false, inside: true });
                true
            }
            None => {
                let lir = self.lir < self.lir_max;
                if lir {
                    self.lir += 1;
                } else {
                    while self.queue.len() >= self.queue_max {
                        self.leave();
                    }
                    self.queue.push(page);
                }
                self.stack.push(Entry { page, lir, inside: true });
                false
            }
        };
        while self.stack.len() > 2 * self.memory && !self.names.is_empty() {
            let oldest = self.names.remove(0);
            self.stack.retain(|entry| entry.page != oldest);
        }
        hit
    }
}

/// Pages in order. Removed pages are skipped later, so that long traces can be replayed.
#[derive(Default)]
struct Queue {
    order: VecDeque<(u32, u64)>,
    /// Push number of each page in the queue.
    pushed: HashMap<u32, u64>,
    pushes: u64,
}

impl Queue {
    fn len(&self) -> usize {
        self.pushed.len()
    }

    fn push(&mut self, page: u32) {
        self.pushes += 1;
        self.order.push_back((page, self.pushes));
        self.pushed.insert(page, self.pushes);
    }

    fn take(&mut self, page: u32) -> bool {
        self.pushed.remove(&page).is_some()
    }

    fn first(&mut self) -> Option<u32> {
        while let Some(&(page, pushed)) = self.order.front() {
            if self.pushed.get(&page) == Some(&pushed) {
                return Some(page);
            }
            self.order.pop_front();
        }
        None
    }

    fn pop(&mut self) -> Option<u32> {
        let page = self.first()?;
        self.take(page);
        Some(page)
    }
}

/// W-TinyLFU with other rules:
///
/// * Accesses are counted when a page is brought in, on a hit outside of the window, and again when
///   the page leaves the window, admitted or not; not on a hit in the window.
/// * The counts are those of a counting Bloom filter with 14.4 counters per page, ten of them per
///   key. That gives one error in a thousand for as many keys as pages of memory, but all pages of
///   the trace are added. Counts have no maximum, and are halved after 32 hits outside of the
///   window per page of it.
/// * Until memory is full, the window uses all of it. Then pages move on until the rest is full:
///   first into probation, but into the protected part once probation's fifth is full.
/// * If probation has one page more than its fifth, as rounding causes, a hit evicts a page.
/// * After a page is admitted, the next one leaves the window, until one is not admitted, which
///   makes room for several.
pub struct WTinyLfu {
    memory: usize,
    main_max: usize,
    segment_max: [usize; 2],
    window: Queue,
    /// Probation and the protected part.
    segments: [Queue; 2],
    counts: Vec<u32>,
    hits: usize,
    seed: u64,
}

impl WTinyLfu {
    /// `seed`: for the filter's hashes.
    pub fn new(memory: usize, seed: u64) -> WTinyLfu {
        let main_max = memory - memory / 100;
        WTinyLfu {
            memory,
            main_max,
            segment_max: [main_max / 5, main_max * 4 / 5],
            window: Queue::default(),
            segments: Default::default(),
            counts: vec![0; (main_max as f64 * 14.377_587).ceil() as usize],
            hits: 0,
            seed,
        }
    }

    fn main_pages(&self) -> usize {
        self.segments[0].len() + self.segments[1].len()
    }

    fn places(&self, page: u32) -> impl Iterator<Item = usize> + use<> {
        let hash = Random::stream(self.seed, page.into()).next_u64();
        let (first, step, counters) = (hash as u32, (hash >> 32) as u32, self.counts.len());
        (0..10u32).map(move |n| first.wrapping_add(n.wrapping_mul(step)) as usize % counters)
    }

    fn count(&mut self, page: u32) {
        for place in self.places(page) {
            self.counts[place] += 1;
        }
    }

    fn touches(&self, page: u32) -> u32 {
        self.places(page).map(|place| self.counts[place]).min().expect("ten places")
    }

    fn main_victims(&mut self) -> &mut Queue {
        let first = usize::from(self.segments[0].len() == 0);
        &mut self.segments[first]
    }

    fn insert(&mut self, page: u32) {
        let room = |&segment: &usize| self.segments[segment].len() < self.segment_max[segment];
        let segment = [0, 1].into_iter().find(room).unwrap_or(0);
        self.segments[segment].push(page);
    }

    fn make_room(&mut self) {
        loop {
            let Some(candidate) = self.window.pop() else {
                self.main_victims().pop();
                return;
            };
            let mut left = false;
            if self.main_pages() < self.main_max {
                self.insert(candidate);
            } else {
                let victim = self.main_victims().first().expect("it is full");
                if self.touches(candidate) > self.touches(victim) {
                    self.main_victims().pop();
                    self.insert(candidate);
                } else {
                    left = true;
                }
            }
            self.count(candidate);
            if left {
                return;
            }
        }
    }
}

impl Policy for WTinyLfu {
    fn touch(&mut self, page: u32) -> bool {
        if self.window.take(page) {
            self.window.push(page);
            return true;
        }
        let hit = (0..2).find(|&segment| self.segments[segment].take(page));
        if hit.is_some() {
            self.segments[1].push(page);
            while self.segments[1].len() > self.segment_max[1] {
                let back = self.segments[1].pop().expect("it is too long");
                self.segments[0].push(back);
                while self.segments[0].len() > self.segment_max[0] {
                    self.segments[0].pop();
                }
            }
            self.count(page);
            self.hits += 1;
            if self.hits >= 32 * self.main_max {
                self.hits = 0;
                self.counts.iter_mut().for_each(|count| *count /= 2);
            }
            return true;
        }
        while self.window.len() + self.main_pages() >= self.memory {
            self.make_room();
        }
        self.window.push(page);
        self.count(page);
        false
    }
}
