//! How ways to do the same are measured beside each other.
//!
//! A round takes one sample of each way with each number of threads, and each round starts with
//! another way: a disturbance of the machine meets all alike. A sample lasts a fixed time, of which
//! the first part does not count: by then the processor's caches hold what they hold of this way
//! while it is used. All ways of a round go through the same offsets, which were drawn before.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Accesses between two looks at the clock.
const BATCH: usize = 1024;
/// The uncounted part of a sample, as a divisor of the counted one.
const WARM_UP_DIVISOR: u32 = 4;
/// How often a sample is taken until it is kept however it came about.
const ATTEMPTS_MAX: usize = 5;

/// How long to measure.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Samples of hits; at least 5, for the median to mean something.
    pub hit_rounds: usize,
    /// How long each lasts.
    pub hit_sample: Duration,
    /// Samples for which a device works, or another thread.
    pub long_rounds: usize,
    /// How long each lasts.
    pub long_sample: Duration,
}

/// Makes all accesses of a batch.
type Run<'a> = dyn Fn(&[u64]) -> u64 + Send + Sync + 'a;

/// A way to do what is compared.
pub struct Way<'a> {
    name: &'static str,
    run: Box<Run<'a>>,
}

impl<'a> Way<'a> {
    /// A way that makes one access to a byte offset. What the access returns is added up, so that
    /// none is left out.
    pub fn new(name: &'static str, access: impl Fn(u64) -> u64 + Send + Sync + 'a) -> Way<'a> {
        let run =
            move |offsets: &[u64]| offsets.iter().fold(0u64, |sum, &offset| sum.wrapping_add(access(offset)));
        Way { name, run: Box::new(run) }
    }

    /// A way that makes many accesses at once; their sum.
    pub fn in_batches(name: &'static str, accesses: impl Fn(&[u64]) -> u64 + Send + Sync + 'a) -> Way<'a> {
        Way { name, run: Box::new(accesses) }
    }
}

/// What was measured of one way, in nanoseconds per operation as each thread sees it.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Which way.
    pub name: &'static str,
    /// How many threads went it at once.
    pub threads: usize,
    /// One per round, in their order.
    samples: Vec<f64>,
}

impl Figures {
    /// Figures from one sample per round.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(name: &'static str, threads: usize, samples: Vec<f64>) -> Figures {
        assert!(!samples.is_empty(), "{name} was measured");
        Figures { name, threads, samples }
    }

    /// The middle sample.
    pub fn median_ns(&self) -> f64 {
        median(self.samples.clone())
    }

    /// The least sample.
    pub fn min_ns(&self) -> f64 {
        self.samples.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The largest sample.
    pub fn max_ns(&self) -> f64 {
        self.samples.iter().copied().fold(0.0, f64::max)
    }

    /// This over the other, in the median of all rounds. A disturbance that lasts longer than a
    /// round changes the times of both, but not how they relate.
    pub fn over(&self, other: &Figures) -> f64 {
        median(self.samples.iter().zip(&other.samples).map(|(ours, theirs)| ours / theirs).collect())
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

/// Measures all ways with each number of threads, in turns.
pub fn compare(ways: &[Way<'_>], threads: &[usize], offsets: &[u64], effort: Effort) -> Vec<Figures> {
    let contests: Vec<_> =
        ways.iter().flat_map(|way| threads.iter().map(move |&count| (way, count))).collect();
    let mut samples = vec![Vec::new(); contests.len()];
    for round in 0..effort.hit_rounds {
        let start = offsets.len() / effort.hit_rounds * round;
        for turn in 0..contests.len() {
            let at = (round + turn) % contests.len();
            let (way, threads) = contests[at];
            samples[at].push(undisturbed(|| sample(way, threads, offsets, start, effort.hit_sample)));
        }
    }
    contests
        .into_iter()
        .zip(samples)
        .map(|((way, threads), samples)| Figures::new(way.name, threads, samples))
        .collect()
}

/// A sample during which the kernel read no page that it had dropped: hits are compared, and such a
/// page is none.
fn undisturbed(mut sample: impl FnMut() -> f64) -> f64 {
    for _ in 1..ATTEMPTS_MAX {
        let before = major_faults();
        let ns = sample();
        if major_faults() == before {
            return ns;
        }
    }
    sample()
}

/// Nanoseconds per access on each of `threads` threads that use a way at once.
pub fn sample(way: &Way<'_>, threads: usize, offsets: &[u64], start: usize, length: Duration) -> f64 {
    let all_warm = Barrier::new(threads);
    let worker = |number: usize| {
        let batches = offsets.len() / BATCH;
        let mut batch = start / BATCH + batches / threads * number;
        let mut run_for = |length: Duration| {
            let began = Instant::now();
            let mut accesses = 0;
            loop {
                let first = batch % batches * BATCH;
                black_box((way.run)(&offsets[first..first + BATCH]));
                batch += 1;
                accesses += BATCH;
                let elapsed = began.elapsed();
                if elapsed >= length {
                    return accesses as f64 / elapsed.as_nanos() as f64;
                }
            }
        };
        run_for(length / WARM_UP_DIVISOR);
        all_warm.wait();
        run_for(length)
    };
    let rate: f64 = thread::scope(|scope| {
        let worker = &worker;
        let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || worker(number))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker ends without a panic")).sum()
    });
    threads as f64 / rate
}

/// Measures while another thread repeats something.
pub fn beside<T>(disturb: impl FnMut() + Send, measure: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (stop, mut disturb) = (&stop, disturb);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                disturb();
            }
        });
        let measured = measure();
        stop.store(true, Ordering::Relaxed);
        measured
    })
}

/// How often this process waited for the kernel to read a page that it had mapped. `None`: the
/// system does not say.
pub fn major_faults() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The fields behind the name, which is in parentheses and may contain blanks; majflt is the
    // tenth of them.
    let (_, fields) = status.rsplit_once(')')?;
    fields.split_whitespace().nth(9)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let figures = |samples: &[f64]| Figures::new("way", 1, samples.to_vec());
        assert_eq!(figures(&[9.0, 1.0, 2.0]).median_ns(), 2.0);
        assert_eq!(figures(&[9.0, 1.0, 2.0, 4.0]).median_ns(), 3.0);
        // The second round was disturbed.
        assert_eq!(figures(&[9.0, 90.0, 8.0]).over(&figures(&[3.0, 30.0, 2.0])), 3.0);
        assert_eq!((figures(&[9.0, 1.0]).min_ns(), figures(&[9.0, 1.0]).max_ns()), (1.0, 9.0));
    }

    #[test]
    fn every_way_gets_a_sample_per_round_and_count_of_threads() {
        let offsets: Vec<u64> = (0..4 * BATCH as u64).collect();
        let ways = [Way::new("one", |offset| offset), Way::new("two", |offset| offset + 1)];
        let length = Duration::from_millis(1);
        let effort = Effort { hit_rounds: 3, hit_sample: length, long_rounds: 3, long_sample: length };
        let figures = compare(&ways, &[1, 2], &offsets, effort);
        let seen: Vec<_> = figures.iter().map(|f| (f.name, f.threads, f.samples.len())).collect();
        assert_eq!(seen, [("one", 1, 3), ("one", 2, 3), ("two", 1, 3), ("two", 2, 3)]);
        assert!(figures.iter().all(|figures| figures.min_ns() > 0.0));
    }
}
