//! Samples of a rate over time.

/// Rates sampled at equal intervals. Merging adds the rates of concurrent jobs, as fio does for the
/// jobs of a group: the rate of the group is about the sum of its jobs' rates.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Samples {
    count: u64,
    min: u64,
    max: u64,
    mean: f64,
    /// Variance of one job, or of the sum after a merge.
    variance: f64,
}

impl Samples {
    /// Samples of one job.
    pub fn of(rates: &[u64]) -> Self {
        if rates.is_empty() {
            // The sum of no numbers is -0.0.
            return Self::default();
        }
        let count = rates.len() as f64;
        let mean = rates.iter().map(|&rate| rate as f64).sum::<f64>() / count;
        let squares: f64 = rates.iter().map(|&rate| (rate as f64 - mean).powi(2)).sum();
        Self {
            count: rates.len() as u64,
            min: rates.iter().copied().min().unwrap_or(0),
            max: rates.iter().copied().max().unwrap_or(0),
            mean,
            variance: if rates.len() < 2 { 0.0 } else { squares / (count - 1.0) },
        }
    }

    /// Adds the samples of a concurrent job.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.min += other.min;
        self.max += other.max;
        self.mean += other.mean;
        self.variance += other.variance;
    }

    /// Number of samples.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The lowest rate; 0 without samples.
    pub fn min(&self) -> u64 {
        self.min
    }

    /// The highest rate; 0 without samples.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The mean rate; 0 without samples.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The standard deviation; 0 with fewer than two samples.
    pub fn stddev(&self) -> f64 {
        self.variance.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_up() {
        let mut samples = Samples::of(&[10, 20, 30]);
        assert_eq!((samples.count(), samples.min(), samples.max()), (3, 10, 30));
        assert_eq!((samples.mean(), samples.stddev()), (20.0, 10.0));
        samples.merge(&Samples::of(&[5, 5]));
        assert_eq!((samples.count(), samples.min(), samples.max(), samples.mean()), (5, 15, 35, 25.0));
        assert_eq!(Samples::of(&[]), Samples::default());
        assert!(Samples::of(&[]).mean().is_sign_positive(), "printed as 0, not as -0");
        assert_eq!(Samples::of(&[7]).stddev(), 0.0);
    }
}
