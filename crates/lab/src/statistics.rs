//! Medians, quartiles, spreads and confidence intervals of runs.
//!
//! Quantiles interpolate between two values (Hyndman and Fan's definition 7, as most programs do).
//! Differences of pairs are judged by their signs, without assuming a distribution.

use mglru_workload::Random;

/// Confidence level of intervals, if there are enough values.
pub const CONFIDENCE: f64 = 0.95;

/// The quantile at `share`, interpolated between two sorted values if needed.
///
/// # Panics
/// If `values` is empty.
pub fn quantile(values: &[f64], share: f64) -> f64 {
    let sorted = sorted(values);
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The first and the third quartile.
pub fn quartiles(values: &[f64]) -> (f64, f64) {
    (quantile(values, 0.25), quantile(values, 0.75))
}

/// The interquartile range.
pub fn spread(values: &[f64]) -> f64 {
    let (first, third) = quartiles(values);
    third - first
}

/// The arithmetic mean.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The minimum and the maximum.
pub fn range(values: &[f64]) -> (f64, f64) {
    values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &value| (least.min(value), most.max(value)))
}

/// Standard deviation of the sample.
pub fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1).max(1) as f64).sqrt()
}

/// Standard deviation of the sample, in percent of its mean.
pub fn deviation_percent(values: &[f64]) -> f64 {
    100.0 * deviation(values) / mean(values)
}

/// Jain's fairness index: 1 if all values are equal, 1 / n if one of n has everything (Jain, Chiu
/// and Hawe, "A quantitative measure of fairness", 1984).
pub fn jain(values: &[f64]) -> f64 {
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares == 0.0 { 1.0 } else { values.iter().sum::<f64>().powi(2) / (values.len() as f64 * squares) }
}

/// Bootstrap: the statistic of many resamples of the values. Their spread shows how precisely the
/// sample determines the statistic (Efron, "Bootstrap methods", 1979).
pub fn resampled(values: &[f64], statistic: fn(&[f64]) -> f64, seed: u64) -> Vec<f64> {
    const SAMPLES: usize = 500;
    let mut random = Random::stream(seed, 0xB0);
    let mut draw = || values[random.below(values.len() as u64) as usize];
    (0..SAMPLES).map(|_| statistic(&values.iter().map(|_| draw()).collect::<Vec<f64>>())).collect()
}

/// The probability of at most `count` heads in `throws` throws of a coin.
pub fn heads_at_most(count: usize, throws: usize) -> f64 {
    let mut chance = 0.5f64.powi(throws as i32);
    let mut sum = chance;
    for heads in 1..=count {
        chance *= (throws - heads + 1) as f64 / heads as f64;
        sum += chance;
    }
    sum.min(1.0)
}

/// A confidence interval of a median.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// Probability that the median is inside: at least 0.95 with six or more values.
    pub confidence: f64,
}

impl Interval {
    /// Whether the value is inside the interval.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// Confidence interval of the median of the population that the values are a sample of. It inverts
/// the sign test and assumes no distribution. For six values it is their whole range, with 97 %
/// confidence.
///
/// # Panics
/// If `values` is empty.
pub fn median_interval(values: &[f64]) -> Interval {
    let sorted = sorted(values);
    let confidence = |left_out: usize| 1.0 - 2.0 * heads_at_most(left_out, sorted.len());
    let left_out =
        (0..sorted.len() / 2).take_while(|&count| confidence(count) >= CONFIDENCE).last().unwrap_or(0);
    Interval {
        low: sorted[left_out],
        high: sorted[sorted.len() - 1 - left_out],
        confidence: confidence(left_out).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!((quantile(&[1.0, 2.0], 0.5), spread(&[1.0, 2.0, 3.0, 4.0, 5.0])), (1.5, 2.0));
        assert_eq!((mean(&[1.0, 2.0, 6.0]), range(&[2.0, -1.0, 6.0])), (3.0, (-1.0, 6.0)));
        assert!((deviation_percent(&[90.0, 100.0, 110.0]) - 10.0).abs() < 1e-9);
        assert_eq!(deviation_percent(&[5.0]), 0.0);
        let deviations = resampled(&[90.0, 100.0, 110.0, 95.0, 105.0], deviation_percent, 1);
        assert!((4.0..9.0).contains(&median(&deviations)) && spread(&deviations) > 0.5);
    }

    #[test]
    fn fairness_is_1_at_most() {
        assert_eq!(
            (jain(&[3.0, 3.0, 3.0]), jain(&[5.0, 0.0, 0.0, 0.0]), jain(&[0.0, 0.0])),
            (1.0, 0.25, 1.0)
        );
    }

    /// The textbook table: n = 6: all, 96.9 %; 12: 2 left out on each side, 96.1 %; 20: 5, 95.9 %.
    #[test]
    fn medians_are_between_the_values_of_the_sign_test() {
        for (count, left_out, confidence) in
            [(1, 0, 0.0), (5, 0, 0.9375), (6, 0, 0.969), (12, 2, 0.961), (20, 5, 0.959)]
        {
            let values: Vec<f64> = (0..count).map(f64::from).collect();
            let interval = median_interval(&values);
            assert_eq!((interval.low, interval.high), (f64::from(left_out), f64::from(count - 1 - left_out)));
            assert!((interval.confidence - confidence).abs() < 1e-3, "{interval:?}");
        }
    }

    /// The share of intervals that contain the median of a skewed distribution is as high as
    /// promised.
    #[test]
    fn intervals_cover() {
        let mut random = Random::new(7);
        let covered = (0..2000).filter(|_| {
            let values: Vec<f64> = (0..9).map(|_| -(1.0 - random.unit()).ln()).collect();
            median_interval(&values).contains(2f64.ln())
        });
        let share = covered.count() as f64 / 2000.0;
        assert!((0.94..0.98).contains(&share), "{share}");
    }
}
