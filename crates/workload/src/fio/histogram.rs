//! Latency histograms with buckets whose width grows with the value.
//!
//! Each power of two is divided into 64 equal buckets. A bucket is therefore at most 1/64 of its
//! values wide. A percentile is reported as the middle of its bucket, with an error below 1 %.
//! Values below 128 ns have a bucket each. 3,776 counters of 8 bytes cover every `u64`, and
//! recording is a shift and an increment. fio reports with the same resolution.

/// log₂ of the buckets per power of two.
const SUB_BITS: u32 = 6;
const SUB_BUCKETS: u64 = 1 << SUB_BITS;
const BUCKETS: usize = bucket(u64::MAX) + 1;

/// A latency histogram with exact minimum, maximum, mean and standard deviation.
#[derive(Debug, Clone)]
pub struct Latencies {
    counts: Box<[u64]>,
    samples: u64,
    min_ns: u64,
    max_ns: u64,
    /// Running mean, and sum of squared differences from it (Welford).
    mean_ns: f64,
    squares: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        let counts = vec![0; BUCKETS].into_boxed_slice();
        Self { counts, samples: 0, min_ns: u64::MAX, max_ns: 0, mean_ns: 0.0, squares: 0.0 }
    }
}

impl Latencies {
    /// Records one latency.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.counts[bucket(latency_ns)] += 1;
        self.samples += 1;
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
        let from_mean = latency_ns as f64 - self.mean_ns;
        self.mean_ns += from_mean / self.samples as f64;
        self.squares += from_mean * (latency_ns as f64 - self.mean_ns);
    }

    /// Records one latency several times.
    pub fn record_many(&mut self, latency_ns: u64, times: u64) {
        if times == 0 {
            return;
        }
        let (ours, theirs) = (self.samples as f64, times as f64);
        let apart = latency_ns as f64 - self.mean_ns;
        self.counts[bucket(latency_ns)] += times;
        self.samples += times;
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
        self.squares += apart * apart * ours * theirs / (ours + theirs);
        self.mean_ns += apart * theirs / (ours + theirs);
    }

    /// Adds the samples of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if other.samples == 0 {
            return;
        }
        let (ours, theirs) = (self.samples as f64, other.samples as f64);
        let apart = other.mean_ns - self.mean_ns;
        self.squares += other.squares + apart * apart * ours * theirs / (ours + theirs);
        self.mean_ns += apart * theirs / (ours + theirs);
        self.samples += other.samples;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.counts.iter_mut().zip(&other.counts).for_each(|(ours, theirs)| *ours += theirs);
    }

    /// Number of recorded latencies.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The shortest latency in nanoseconds; 0 without samples.
    pub fn min_ns(&self) -> u64 {
        if self.samples == 0 { 0 } else { self.min_ns }
    }

    /// The longest latency in nanoseconds; 0 without samples.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The mean in nanoseconds; 0 without samples.
    pub fn mean_ns(&self) -> f64 {
        self.mean_ns
    }

    /// The sample standard deviation in nanoseconds; 0 with fewer than two samples.
    pub fn stddev_ns(&self) -> f64 {
        if self.samples < 2 { 0.0 } else { (self.squares / (self.samples - 1) as f64).sqrt() }
    }

    /// The latency that `percent` of the samples do not exceed, to within 1 %, in nanoseconds.
    /// 0 without samples.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        let rank = ((percent / 100.0 * self.samples as f64).ceil() as u64).clamp(1, self.samples.max(1));
        let mut seen = 0;
        for (index, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                // fio may report the middle of a bucket that is beyond every sample. The exact
                // extremes are better.
                return middle(index).clamp(self.min_ns, self.max_ns);
            }
        }
        0
    }

    /// Number of latencies in `from_ns..to_ns`, with the bounds rounded to a bucket (under 2 %).
    pub fn between(&self, from_ns: u64, to_ns: u64) -> u64 {
        self.counts[bucket(from_ns)..bucket(to_ns)].iter().sum()
    }
}

/// The bucket of a value: the position of its highest bit, and the six bits after it.
const fn bucket(value: u64) -> usize {
    if value < 2 * SUB_BUCKETS {
        return value as usize;
    }
    let shift = u64::BITS - 1 - value.leading_zeros() - SUB_BITS;
    (shift as u64 * SUB_BUCKETS + (value >> shift)) as usize
}

/// The value in the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * SUB_BUCKETS {
        return bucket;
    }
    let shift = bucket / SUB_BUCKETS - 1;
    ((bucket % SUB_BUCKETS + SUB_BUCKETS) << shift) + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn of(values: &[u64]) -> Latencies {
        let mut latencies = Latencies::default();
        values.iter().for_each(|&value| latencies.record(value));
        latencies
    }

    #[test]
    fn many_at_once_are_as_one_by_one() {
        let (mut one_by_one, mut at_once) = (of(&[5, 900]), of(&[5, 900]));
        (0..1000).for_each(|_| one_by_one.record(77));
        at_once.record_many(77, 1000);
        at_once.record_many(1, 0);
        assert_eq!(at_once.counts, one_by_one.counts);
        assert_eq!((at_once.samples(), at_once.min_ns(), at_once.max_ns()), (1002, 5, 900));
        assert!((at_once.mean_ns() - one_by_one.mean_ns()).abs() < 1e-6);
        assert!((at_once.stddev_ns() - one_by_one.stddev_ns()).abs() < 1e-6);
    }

    #[test]
    fn buckets_are_in_order_and_narrow() {
        assert_eq!(BUCKETS, 3776);
        let mut random = Random::new(1);
        for bits in 0..64 {
            let value = random.next_u64() >> bits;
            let centre = middle(bucket(value));
            assert!(centre.abs_diff(value) as f64 <= value as f64 / 128.0 + 0.5, "{value} near {centre}");
        }
        let indices: Vec<usize> = (0..100_000).map(bucket).collect();
        assert!(indices.windows(2).all(|pair| pair[1] == pair[0] || pair[1] == pair[0] + 1));
    }

    #[test]
    fn statistics_are_those_of_the_samples() {
        let latencies = of(&[2, 4, 4, 4, 5, 5, 7, 9]);
        assert_eq!((latencies.samples(), latencies.min_ns(), latencies.max_ns()), (8, 2, 9));
        assert_eq!(latencies.mean_ns(), 5.0);
        assert!((latencies.stddev_ns() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn percentiles_agree_with_sorting() {
        let mut random = Random::new(9);
        let mut values: Vec<u64> =
            (0..10_001).map(|_| random.below(1 << (10 + random.clone().below(20)))).collect();
        let latencies = of(&values);
        values.sort_unstable();
        for percent in [0.0, 1.0, 50.0, 90.0, 99.0, 99.99, 100.0] {
            let rank = ((percent / 100.0 * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1];
            let reported = latencies.percentile_ns(percent);
            assert!(
                reported.abs_diff(exact) as f64 <= exact as f64 / 100.0 + 1.0,
                "{percent}: {reported}, not {exact}"
            );
        }
    }

    #[test]
    fn no_percentile_exceeds_the_longest() {
        assert_eq!(of(&[1_000_000]).percentile_ns(99.99), 1_000_000);
    }

    #[test]
    fn merging_is_counting_together() {
        let (left, right) = ([100, 200, 300_000], [5, 1_000_000_000]);
        let mut merged = of(&left);
        merged.merge(&of(&right));
        merged.merge(&Latencies::default());
        let together = of(&[100, 200, 300_000, 5, 1_000_000_000]);
        assert_eq!(merged.counts, together.counts);
        assert_eq!((merged.min_ns(), merged.max_ns(), merged.samples()), (5, 1_000_000_000, 5));
        assert!((merged.mean_ns() / together.mean_ns() - 1.0).abs() < 1e-12);
        assert!((merged.stddev_ns() / together.stddev_ns() - 1.0).abs() < 1e-12);
        let mut from_nothing = Latencies::default();
        from_nothing.merge(&of(&left));
        assert_eq!((from_nothing.min_ns(), from_nothing.samples()), (100, 3));
    }

    #[test]
    fn an_empty_histogram_is_all_zero() {
        let empty = Latencies::default();
        assert_eq!((empty.min_ns(), empty.max_ns(), empty.percentile_ns(50.0)), (0, 0, 0));
        assert_eq!((empty.mean_ns(), empty.stddev_ns()), (0.0, 0.0));
    }

    #[test]
    fn ranges_count_their_latencies() {
        let latencies = of(&[1, 3, 3, 10, 5_000]);
        assert_eq!(latencies.between(0, 2), 1);
        assert_eq!(latencies.between(2, 4), 2);
        assert_eq!(latencies.between(4_000, 10_000), 1);
    }
}
