//! Measures alternative ways to do the same, side by side.
//!
//! Each round takes one sample of each way with each number of threads and starts with a different
//! way, so that disturbances affect all ways equally. A sample lasts a fixed time; its first part,
//! in which the processor's caches warm up, does not count. All ways of a round use the same
//! offsets, drawn in advance, and others for each number of threads: what one sample brought into a
//! cache is no hit of the next.

use crate::counters::Counts;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Accesses between two reads of the clock.
const BATCH: usize = 1024;
/// Accesses whose instructions and misses the processor counts.
const COUNTED: usize = 1 << 20;
/// The counted part of a sample divided by the warm-up.
const WARM_UP_DIVISOR: u32 = 4;
/// Attempts at an undisturbed sample before a disturbed one is accepted.
const ATTEMPTS_MAX: usize = 5;

/// Number and length of samples.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Number of hit samples; at least 5, for a meaningful median.
    pub hit_rounds: usize,
    /// Length of a hit sample.
    pub hit_sample: Duration,
    /// Number of samples that involve a device or another thread.
    pub long_rounds: usize,
    /// Length of such a sample.
    pub long_sample: Duration,
}

/// Performs all accesses of a batch.
type Run<'a> = dyn Fn(&[u64]) -> u64 + Send + Sync + 'a;

/// A way to do the compared work.
pub struct Way<'a> {
    name: &'static str,
    run: Box<Run<'a>>,
}

impl<'a> Way<'a> {
    /// A way that makes one access per byte offset. The results of accesses are summed so that the
    /// compiler keeps all of them.
    pub fn new(name: &'static str, access: impl Fn(u64) -> u64 + Send + Sync + 'a) -> Way<'a> {
        let run =
            move |offsets: &[u64]| offsets.iter().fold(0u64, |sum, &offset| sum.wrapping_add(access(offset)));
        Way { name, run: Box::new(run) }
    }

    /// A way that makes many accesses per call and returns their sum.
    pub fn in_batches(name: &'static str, accesses: impl Fn(&[u64]) -> u64 + Send + Sync + 'a) -> Way<'a> {
        Way { name, run: Box::new(accesses) }
    }

    /// Makes the accesses at these offsets.
    pub fn run(&self, offsets: &[u64]) -> u64 {
        (self.run)(offsets)
    }
}

/// Results of one way, in nanoseconds per operation and thread.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Name of the way.
    pub name: &'static str,
    /// Number of threads.
    pub threads: usize,
    /// The processor's counts, where it counts.
    pub counts: Option<Counts>,
    /// One sample per round, in order.
    samples: Vec<f64>,
}

impl Figures {
    /// Results from one sample per round.
    ///
    /// # Panics
    /// If there are no samples.
    pub fn new(name: &'static str, threads: usize, samples: Vec<f64>) -> Figures {
        assert!(!samples.is_empty(), "{name} was measured");
        Figures { name, threads, counts: None, samples }
    }

    /// Quartiles of the samples.
    pub fn quartiles_ns(&self) -> Quartiles {
        Quartiles::of(self.samples.clone())
    }

    /// This time divided by the other, by round. A disturbance longer than a round changes both
    /// times, but not their ratio.
    pub fn over(&self, other: &Figures) -> Ratios {
        Ratios(self.samples.clone()).over(&Ratios(other.samples.clone()))
    }
}

/// One ratio per round, in order.
#[derive(Clone, Debug)]
pub struct Ratios(Vec<f64>);

impl Ratios {
    /// These divided by others, by round.
    pub fn over(&self, other: &Ratios) -> Ratios {
        Ratios(self.0.iter().zip(&other.0).map(|(ours, theirs)| ours / theirs).collect())
    }

    /// Quartiles over all rounds.
    pub fn quartiles(self) -> Quartiles {
        Quartiles::of(self.0)
    }
}

/// The middle of some values and of their halves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    /// A quarter of the values is smaller.
    pub lower: f64,
    /// Half of the values is smaller.
    pub median: f64,
    /// A quarter of the values is larger.
    pub upper: f64,
}

impl Quartiles {
    /// Quartiles of at least one value, interpolated between neighbours.
    fn of(mut values: Vec<f64>) -> Quartiles {
        values.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = (values.len() - 1) as f64 * part;
            let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Quartiles { lower: at(0.25), median: at(0.5), upper: at(0.75) }
    }

    /// The quartiles of values `factor` times as large.
    pub fn times(self, factor: f64) -> Quartiles {
        let Quartiles { lower, median, upper } = self;
        Quartiles { lower: lower * factor, median: median * factor, upper: upper * factor }
    }

    /// Lower quartile, median and upper quartile.
    pub fn values(self) -> [f64; 3] {
        [self.lower, self.median, self.upper]
    }
}

/// Measures all ways with each number of threads, in turns.
pub fn compare(ways: &[Way<'_>], counts: &[usize], offsets: &[u64], effort: Effort) -> Vec<Figures> {
    let contests: Vec<_> =
        ways.iter().flat_map(|way| counts.iter().map(move |&count| (way, count))).collect();
    let mut samples = vec![Vec::new(); contests.len()];
    let stride = offsets.len() / (effort.hit_rounds * counts.len());
    for round in 0..effort.hit_rounds {
        for turn in 0..contests.len() {
            let at = (round + turn) % contests.len();
            let (way, threads) = contests[at];
            let start = stride * (round * counts.len() + at % counts.len());
            samples[at].push(undisturbed(|| sample(way, threads, offsets, start, effort.hit_sample)));
        }
    }
    contests
        .into_iter()
        .zip(samples)
        .map(|((way, threads), samples)| Figures {
            counts: if threads == 1 {
                Counts::of(way, &offsets[..COUNTED.min(offsets.len())]).ok()
            } else {
                None
            },
            ..Figures::new(way.name, threads, samples)
        })
        .collect()
}

/// Takes a sample without major faults: a page that the kernel dropped and reads again is not a
/// hit.
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

/// Nanoseconds per access on each of `threads` concurrent threads.
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

/// Measures while another thread repeats `disturb`.
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

/// Processor time of this process so far, in seconds.
pub fn cpu_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Major faults of this process. `None`: unknown to the system.
pub fn major_faults() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The fields after the name, which is in parentheses and may contain blanks; majflt is the
    // tenth of them.
    let (_, fields) = status.rsplit_once(')')?;
    fields.split_whitespace().nth(9)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_in_the_middle_of_halves() {
        let figures = |samples: &[f64]| Figures::new("way", 1, samples.to_vec());
        assert_eq!(figures(&[9.0, 1.0, 2.0]).quartiles_ns().median, 2.0);
        assert_eq!(figures(&[9.0, 1.0, 2.0, 4.0]).quartiles_ns().median, 3.0);
        let Quartiles { lower, median, upper } = figures(&[5.0, 1.0, 4.0, 2.0, 3.0]).quartiles_ns();
        assert_eq!([lower, median, upper], [2.0, 3.0, 4.0]);
        assert_eq!(figures(&[7.0]).quartiles_ns().values(), [7.0; 3]);
        // The second round was disturbed.
        assert_eq!(figures(&[9.0, 90.0, 8.0]).over(&figures(&[3.0, 30.0, 2.0])).quartiles().median, 3.0);
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
        assert!(figures.iter().all(|figures| figures.quartiles_ns().lower > 0.0));
    }
}
