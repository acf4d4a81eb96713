//! Progress of instances: the progress line, rates over time, and intermediate results.

use mglru_workload::fio::Job;
use mglru_workload::fio::report::{JobOutcome, Samples};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Time between two looks, while it waits, at whether an instance was told to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Progress of one thread of an instance. Only that thread writes the counts.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LaneMeter {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    /// Its outcome when it last answered, or at its end.
    outcome: Mutex<JobOutcome>,
}

impl LaneMeter {
    /// Counts an access.
    #[inline]
    pub fn count(&self, write: bool, bytes: u32) {
        let (count, sum) = match write {
            false => (&self.reads, &self.read_bytes),
            true => (&self.writes, &self.written_bytes),
        };
        count.store(count.load(Relaxed) + 1, Relaxed);
        sum.store(sum.load(Relaxed) + u64::from(bytes), Relaxed);
    }

    /// Publishes the outcome so far.
    pub fn publish(&self, outcome: &JobOutcome) {
        outcome.clone_into(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Progress of an instance.
#[derive(Debug)]
pub struct Meter {
    /// One per thread.
    pub lanes: Box<[LaneMeter]>,
    /// Bytes to transfer; 0 if the job has no end.
    goal_bytes: u64,
    start_delay: Duration,
    ramp: Duration,
    runtime: Option<Duration>,
    /// Start time, after the delay.
    pub began: OnceLock<Instant>,
    /// Whether it has ended.
    pub done: AtomicBool,
    /// Tells its threads to stop.
    pub stop: AtomicBool,
    /// Whether they stop because the work was cancelled, so that nothing is verified.
    pub cancelled: AtomicBool,
    /// Number of requests to its threads to publish their outcomes.
    pub asked: AtomicU32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
}

impl Meter {
    /// `goal_bytes` is the amount to transfer, unless the job has no end.
    pub fn new(job: &Job, goal_bytes: u64) -> Meter {
        Meter {
            lanes: (0..job.depth).map(|_| LaneMeter::default()).collect(),
            goal_bytes: if job.time_based { 0 } else { goal_bytes },
            start_delay: job.start_delay,
            ramp: job.ramp,
            runtime: job.runtime,
            began: OnceLock::new(),
            done: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            asked: AtomicU32::new(0),
        }
    }

    /// Sleeps. `false` if the threads were told to stop meanwhile.
    pub fn rest(&self, time: Duration) -> bool {
        let began = Instant::now();
        while !self.stop.load(Relaxed) {
            let left = time.saturating_sub(began.elapsed());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(LOOK_EVERY));
        }
        false
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for lane in &self.lanes {
            counts.reads += lane.reads.load(Relaxed);
            counts.read_bytes += lane.read_bytes.load(Relaxed);
            counts.writes += lane.writes.load(Relaxed);
            counts.written_bytes += lane.written_bytes.load(Relaxed);
        }
        counts
    }

    /// The sum of its threads' last published outcomes.
    pub fn outcome(&self) -> JobOutcome {
        let mut outcome = JobOutcome::default();
        for lane in &self.lanes {
            let published = lane.outcome.lock().unwrap_or_else(PoisonError::into_inner);
            outcome.read.merge(&published.read);
            outcome.write.merge(&published.write);
            outcome.sync.merge(&published.sync);
            outcome.cpu.merge(&published.cpu);
            outcome.verify_errors += published.verify_errors;
            outcome.failure = outcome.failure.or_else(|| published.failure.clone());
        }
        outcome
    }

    fn is_running(&self) -> bool {
        self.began.get().is_some() && !self.done.load(Relaxed)
    }

    fn share(&self) -> f64 {
        if self.done.load(Relaxed) {
            return 1.0;
        }
        let elapsed = self.began.get().map_or(Duration::ZERO, |began| self.start_delay + began.elapsed());
        let counts = self.counts();
        let bytes = (counts.read_bytes + counts.written_bytes) as f64;
        let of_size = if self.goal_bytes == 0 { 0.0 } else { bytes / self.goal_bytes as f64 };
        let of_time = self.runtime.map_or(0.0, |runtime| {
            elapsed.as_secs_f64() / (self.start_delay + self.ramp + runtime).as_secs_f64()
        });
        of_size.max(of_time).min(1.0)
    }
}

/// Time for threads to publish their outcomes when intermediate results are requested.
const TELL: Duration = Duration::from_millis(50);

/// Sampling interval of rates, as in fio (`bwavgtime`).
const SAMPLE: Duration = Duration::from_millis(500);

/// Progress of all jobs of a run.
pub struct Progress {
    meters: Vec<Arc<Meter>>,
    began: Instant,
    sampled: Instant,
    before: Vec<Counts>,
    /// Per instance: bandwidths in KiB/s and accesses per second, of reads and writes.
    rates: Vec<[[Vec<u64>; 2]; 2]>,
}

impl Progress {
    /// Starts sampling now.
    pub(super) fn new(meters: Vec<Arc<Meter>>) -> Progress {
        let now = Instant::now();
        let before = vec![Counts::default(); meters.len()];
        let rates = vec![Default::default(); meters.len()];
        Progress { meters, began: now, sampled: now, before, rates }
    }

    /// Current outcomes of all instances. Their threads get a moment to publish them.
    pub fn outcomes(&self) -> Vec<JobOutcome> {
        for meter in &self.meters {
            meter.asked.fetch_add(1, Relaxed);
        }
        std::thread::sleep(TELL);
        let mut outcomes = self.meters.iter().map(|meter| meter.outcome()).collect::<Vec<_>>();
        self.add_to(&mut outcomes);
        outcomes
    }

    /// Stops all instances, each after its current access.
    pub(super) fn stop(&self) {
        self.meters.iter().for_each(|meter| meter.stop.store(true, Relaxed));
    }

    /// Time until [`Progress::sample`] is due.
    pub(super) fn next_sample(&self) -> Duration {
        SAMPLE.saturating_sub(self.sampled.elapsed())
    }

    /// Takes samples, if they are due.
    pub(super) fn sample(&mut self) {
        let elapsed = self.sampled.elapsed();
        if elapsed < SAMPLE {
            return;
        }
        self.sampled = Instant::now();
        for ((meter, before), rates) in self.meters.iter().zip(&mut self.before).zip(&mut self.rates) {
            let now = meter.counts();
            let was = std::mem::replace(before, now);
            // Only instances that were measured during the whole sample.
            let whole = |began: &Instant| began.elapsed() >= meter.ramp + elapsed;
            if !meter.is_running() || !meter.began.get().is_some_and(whole) {
                continue;
            }
            let per_second = |count: u64| (count as f64 / elapsed.as_secs_f64()) as u64;
            let [read, write] = rates;
            for ([bandwidth, rate], bytes, count) in [
                (read, now.read_bytes - was.read_bytes, now.reads - was.reads),
                (write, now.written_bytes - was.written_bytes, now.writes - was.writes),
            ] {
                bandwidth.push(per_second(bytes / 1024));
                rate.push(per_second(count));
            }
        }
    }

    /// Adds the samples to the outcomes.
    pub(super) fn add_to(&self, outcomes: &mut [JobOutcome]) {
        for (outcome, [read, write]) in outcomes.iter_mut().zip(&self.rates) {
            for (transfer, [bandwidth, rate]) in [(&mut outcome.read, read), (&mut outcome.write, write)] {
                if transfer.ios > 0 {
                    transfer.bandwidth_kib = Samples::of(bandwidth);
                    transfer.rate = Samples::of(rate);
                }
            }
        }
    }

    /// Bytes per second that all instances read and wrote since they began.
    pub fn bytes_per_second(&self) -> [f64; 2] {
        let seconds = self.began.elapsed().as_secs_f64().max(1e-3);
        let counts = self.meters.iter().map(|meter| meter.counts());
        let (read, written) =
            counts.fold((0, 0), |sum, of| (sum.0 + of.read_bytes, sum.1 + of.written_bytes));
        [read as f64 / seconds, written as f64 / seconds]
    }

    /// Number of running instances.
    pub fn running(&self) -> usize {
        self.meters.iter().filter(|meter| meter.is_running()).count()
    }

    /// Share of the work that is done, 0 to 1.
    pub fn share(&self) -> f64 {
        self.meters.iter().map(|meter| meter.share()).sum::<f64>() / self.meters.len() as f64
    }

    /// Estimated time left; `None` at the start.
    pub fn left(&self) -> Option<Duration> {
        let (seconds, share) = (self.began.elapsed().as_secs_f64(), self.share());
        (share > 0.0).then(|| Duration::from_secs_f64((seconds / share - seconds).max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_workload::fio::Invocation;

    #[test]
    fn a_delay_is_a_part_of_the_work_and_ends_when_the_job_is_told_to_stop() {
        let line = "--name=a --size=4k --time_based --startdelay=1h --runtime=3h".split_whitespace();
        let jobs = Invocation::parse(&line.collect::<Vec<_>>()).unwrap().jobs;
        let meter = Meter::new(&jobs[0], 4096);
        assert_eq!(meter.share(), 0.0);
        meter.began.set(Instant::now()).unwrap();
        // Far more than this test may take.
        assert!((0.25..0.5).contains(&meter.share()), "{}", meter.share());
        assert!(meter.rest(Duration::ZERO));
        meter.stop.store(true, Relaxed);
        assert!(!meter.rest(Duration::MAX));
    }
}
