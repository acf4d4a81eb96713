//! Naive models of the policies, written from their descriptions with linear searches: slow but
//! simple.
//!
//! Vectors are ordered from old to new. W-TinyLFU's counts are exact.

use mglru_sim::Baseline;
use mglru_sim::baseline::Policy;
use std::collections::BTreeMap;

/// The naive policy for a trace.
pub fn policy(baseline: Baseline, memory: usize, trace: &[u32]) -> Box<dyn Policy> {
    match baseline {
        Baseline::Fifo => Box::new(Fifo { memory, queue: vec![] }),
        Baseline::Lru => Box::new(Lru { memory, queue: vec![] }),
        Baseline::Clock => Box::new(Clock { memory, ring: vec![], hand: 0 }),
        Baseline::TwoQ => Box::new(TwoQ { memory, ..TwoQ::default() }),
        Baseline::Arc => Box::new(Arc { memory, ..Arc::default() }),
        Baseline::Lirs => Box::new(Lirs { memory, ..Lirs::default() }),
        Baseline::S3Fifo => Box::new(S3Fifo { memory, ..S3Fifo::default() }),
        Baseline::Sieve => Box::new(Sieve { memory, ..Sieve::default() }),
        Baseline::WTinyLfu => Box::new(WTinyLfu { memory, ..WTinyLfu::default() }),
        Baseline::Opt => Box::new(Opt { memory, trace: trace.to_vec(), now: 0, inside: vec![] }),
    }
}

/// Removes a page if it is present. Returns whether it was.
fn take(pages: &mut Vec<u32>, page: u32) -> bool {
    let found = pages.iter().rposition(|&other| other == page);
    found.map(|at| pages.remove(at)).is_some()
}

struct Fifo {
    memory: usize,
    queue: Vec<u32>,
}

impl Policy for Fifo {
    fn touch(&mut self, page: u32) -> bool {
        if self.queue.contains(&page) {
            return true;
        }
        if self.queue.len() == self.memory {
            self.queue.remove(0);
        }
        self.queue.push(page);
        false
    }
}

struct Lru {
    memory: usize,
    queue: Vec<u32>,
}

impl Policy for Lru {
    fn touch(&mut self, page: u32) -> bool {
        let hit = take(&mut self.queue, page);
        self.queue.push(page);
        if self.queue.len() > self.memory {
            self.queue.remove(0);
        }
        hit
    }
}

/// A ring of frames with a hand, not a queue.
struct Clock {
    memory: usize,
    ring: Vec<(u32, bool)>,
    hand: usize,
}

impl Policy for Clock {
    fn touch(&mut self, page: u32) -> bool {
        if let Some(frame) = self.ring.iter_mut().find(|frame| frame.0 == page) {
            frame.1 = true;
            return true;
        }
        if self.ring.len() < self.memory {
            self.ring.push((page, false));
            return false;
        }
        while self.ring[self.hand].1 {
            self.ring[self.hand].1 = false;
            self.hand = (self.hand + 1) % self.memory;
        }
        self.ring[self.hand] = (page, false);
        self.hand = (self.hand + 1) % self.memory;
        false
    }
}

#[derive(Default)]
struct Sieve {
    memory: usize,
    queue: Vec<(u32, bool)>,
    hand: usize,
}

impl Policy for Sieve {
    fn touch(&mut self, page: u32) -> bool {
        if let Some(entry) = self.queue.iter_mut().find(|entry| entry.0 == page) {
            entry.1 = true;
            return true;
        }
        if self.queue.len() == self.memory {
            if self.hand == self.queue.len() {
                self.hand = 0;
            }
            while self.queue[self.hand].1 {
                self.queue[self.hand].1 = false;
                self.hand = (self.hand + 1) % self.queue.len();
            }
            self.queue.remove(self.hand);
            // Behind the newest page, the hand restarts at the oldest, even though a newer page
            // comes now.
            if self.hand == self.queue.len() {
                self.hand = 0;
            }
        }
        self.queue.push((page, false));
        false
    }
}

#[derive(Default)]
struct TwoQ {
    memory: usize,
    a1in: Vec<u32>,
    a1out: Vec<u32>,
    am: Vec<u32>,
}

impl TwoQ {
    fn reclaim(&mut self) {
        if self.a1in.len() + self.am.len() < self.memory {
            return;
        }
        if self.a1in.len() > self.memory / 4 {
            self.a1out.push(self.a1in.remove(0));
            if self.a1out.len() > self.memory / 2 {
                self.a1out.remove(0);
            }
        } else {
            self.am.remove(0);
        }
    }
}

impl Policy for TwoQ {
    fn touch(&mut self, page: u32) -> bool {
        if self.a1in.contains(&page) {
            return true;
        }
        if take(&mut self.am, page) {
            self.am.push(page);
            return true;
        }
        if take(&mut self.a1out, page) {
            self.reclaim();
            self.am.push(page);
        } else {
            self.reclaim();
            self.a1in.push(page);
        }
        false
    }
}

/// Figure 4 of the paper, case by case.
#[derive(Default)]
struct Arc {
    memory: usize,
    p: f64,
    t1: Vec<u32>,
    b1: Vec<u32>,
    t2: Vec<u32>,
    b2: Vec<u32>,
}

impl Arc {
    fn replace(&mut self, in_b2: bool) {
        let t1 = self.t1.len() as f64;
        if !self.t1.is_empty() && ((in_b2 && t1 == self.p) || t1 > self.p) || self.t2.is_empty() {
            self.b1.push(self.t1.remove(0));
        } else {
            self.b2.push(self.t2.remove(0));
        }
    }
}

impl Policy for Arc {
    fn touch(&mut self, page: u32) -> bool {
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        if take(&mut self.t1, page) || take(&mut self.t2, page) {
            self.t2.push(page);
            return true;
        }
        if take(&mut self.b1, page) {
            self.p = (self.p + (b2 / b1).max(1.0)).min(self.memory as f64);
            self.replace(false);
            self.t2.push(page);
            return false;
        }
        if take(&mut self.b2, page) {
            self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
            self.replace(true);
            self.t2.push(page);
            return false;
        }
        let l1 = self.t1.len() + self.b1.len();
        let l2 = self.t2.len() + self.b2.len();
        if l1 == self.memory && self.b1.is_empty() {
            self.t1.remove(0);
        } else if l1 == self.memory {
            self.b1.remove(0);
            self.replace(false);
        } else if l1 + l2 >= self.memory {
            if l1 + l2 == 2 * self.memory {
                self.b2.remove(0);
            }
            self.replace(false);
        }
        self.t1.push(page);
        false
    }
}

/// The stack and the queue of the paper, with a table of page states.
#[derive(Default)]
struct Lirs {
    memory: usize,
    stack: Vec<u32>,
    queue: Vec<u32>,
    lir: Vec<u32>,
    names: Vec<u32>,
}

impl Lirs {
    fn lir_max(&self) -> usize {
        self.memory - (self.memory / 100).max(1)
    }

    fn make_room(&mut self) {
        if self.lir.len() + self.queue.len() == self.memory {
            let victim = self.queue.remove(0);
            if self.stack.contains(&victim) {
                self.names.push(victim);
            }
        }
    }

    fn make_lir(&mut self, page: u32) {
        take(&mut self.stack, page);
        self.stack.push(page);
        self.lir.push(page);
        if self.lir.len() > self.lir_max() {
            let bottom = self.stack.remove(0);
            assert!(take(&mut self.lir, bottom), "a LIR page is at the bottom");
            self.queue.push(bottom);
        }
    }
}

impl Policy for Lirs {
    fn touch(&mut self, page: u32) -> bool {
        let in_stack = take(&mut self.stack, page);
        self.stack.push(page);
        let mut hit = true;
        if self.lir.contains(&page) {
        } else if self.queue.contains(&page) {
            take(&mut self.queue, page);
            if in_stack { self.make_lir(page) } else { self.queue.push(page) }
        } else if in_stack {
            take(&mut self.names, page);
            self.make_room();
            self.make_lir(page);
            hit = false;
        } else {
            self.make_room();
            if self.lir.len() < self.lir_max() {
                self.lir.push(page)
            } else {
                self.queue.push(page)
            }
            hit = false;
        }
        while self.stack.first().is_some_and(|bottom| !self.lir.contains(bottom)) {
            let bottom = self.stack.remove(0);
            take(&mut self.names, bottom);
        }
        while self.stack.len() > 2 * self.memory && !self.names.is_empty() {
            let oldest = self.names.remove(0);
            take(&mut self.stack, oldest);
        }
        hit
    }
}

#[derive(Default)]
struct S3Fifo {
    memory: usize,
    small: Vec<u32>,
    main: Vec<u32>,
    ghost: Vec<u32>,
    touches: BTreeMap<u32, u32>,
}

impl S3Fifo {
    fn evict_small(&mut self) {
        while !self.small.is_empty() {
            let page = self.small.remove(0);
            if self.touches[&page] > 1 {
                self.main.push(page);
                self.touches.insert(page, 0);
            } else {
                self.ghost.push(page);
                if self.ghost.len() > self.memory * 9 / 10 {
                    self.ghost.remove(0);
                }
                return;
            }
        }
    }

    fn evict_main(&mut self) {
        while !self.main.is_empty() {
            let page = self.main.remove(0);
            match self.touches[&page] {
                0 => return,
                touches => {
                    self.touches.insert(page, touches - 1);
                    self.main.push(page);
                }
            }
        }
    }
}

impl Policy for S3Fifo {
    fn touch(&mut self, page: u32) -> bool {
        if self.small.contains(&page) || self.main.contains(&page) {
            let touches = self.touches[&page];
            self.touches.insert(page, (touches + 1).min(3));
            return true;
        }
        let known = take(&mut self.ghost, page);
        while self.small.len() + self.main.len() == self.memory {
            let small_share = (self.memory / 10).max(1);
            if self.small.len() >= small_share { self.evict_small() } else { self.evict_main() }
        }
        if known {
            self.main.push(page)
        } else {
            self.small.push(page)
        }
        self.touches.insert(page, 0);
        false
    }
}

#[derive(Default)]
struct WTinyLfu {
    memory: usize,
    window: Vec<u32>,
    probation: Vec<u32>,
    protected: Vec<u32>,
    counts: BTreeMap<u32, u32>,
    touches: usize,
}

impl Policy for WTinyLfu {
    fn touch(&mut self, page: u32) -> bool {
        let count = self.counts.entry(page).or_default();
        *count = (*count + 1).min(15);
        self.touches += 1;
        if self.touches == self.memory * 10 {
            self.counts.values_mut().for_each(|count| *count /= 2);
            self.touches /= 2;
        }
        let window_max = (self.memory / 100).max(1);
        let main_max = self.memory - window_max;
        if take(&mut self.window, page) {
            self.window.push(page);
            return true;
        }
        if take(&mut self.protected, page) || take(&mut self.probation, page) {
            self.protected.push(page);
            if self.protected.len() > main_max * 4 / 5 {
                self.probation.push(self.protected.remove(0));
            }
            return true;
        }
        self.window.push(page);
        if self.window.len() > window_max {
            let candidate = self.window.remove(0);
            let victims = if self.probation.is_empty() { &mut self.protected } else { &mut self.probation };
            let full = main_max == victims.len() || main_max == self.probation.len() + self.protected.len();
            if !full {
                self.probation.push(candidate);
            } else if main_max > 0 {
                let victims =
                    if self.probation.is_empty() { &mut self.protected } else { &mut self.probation };
                if self.counts[&candidate] > self.counts[&victims[0]] {
                    victims.remove(0);
                    self.probation.push(candidate);
                }
            }
        }
        false
    }
}

struct Opt {
    memory: usize,
    trace: Vec<u32>,
    now: usize,
    inside: Vec<u32>,
}

impl Policy for Opt {
    fn touch(&mut self, page: u32) -> bool {
        self.now += 1;
        if self.inside.contains(&page) {
            return true;
        }
        if self.inside.len() == self.memory {
            let next = |page: u32| self.trace[self.now..].iter().position(|&other| other == page);
            let farthest = |&page: &u32| next(page).unwrap_or(usize::MAX);
            let victim = *self.inside.iter().max_by_key(|page| farthest(page)).expect("memory is full");
            take(&mut self.inside, victim);
        }
        self.inside.push(page);
        false
    }
}
