//! Effects of a change, from pairs of runs with the same seed.
//!
//! An effect is the median of the differences of the pairs with its 95 % confidence interval
//! ([`median_interval`]; for six pairs the interval is their whole range). An effect is significant
//! if its interval lies wholly on one side of zero; any other is within the noise. With fewer than
//! six pairs, no effect is significant.
//!
//! ```text
//! Count     of one run              ablate and evaluate make them
//! Metric    a value of a count
//! Effect    of pairs of values      Effect::of
//! Verdict   on an effect            Effect::verdict
//! ```

use crate::document::document;
use crate::replay::run::Costs;
use crate::statistics::{CONFIDENCE, Interval, median, median_interval};
use mglru_core::Counter::{NrWritten, Pswpout, WorkingsetRefaultAnon, WorkingsetRefaultFile};
use mglru_sim::Tally;
use mglru_workload::hash::fnv1a;
use serde::{Deserialize, Serialize, Serializer};

/// Counts of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// Counted accesses. In a scenario each variant completes a different number.
    pub accesses: u64,
    /// Accesses that waited for a device.
    pub misses: u64,
    /// Evicted pages that came back.
    pub refaults: u64,
    /// Scanned folios.
    pub scanned: u64,
    /// Reclaimed folios.
    pub reclaimed: u64,
    /// Pages written, to files and to swap.
    pub written: u64,
    /// Hash of all counters of the run: where it differs, the change acted, even if no other field
    /// shows it.
    pub digest: u64,
    /// Times that a lock of lists was taken, in the whole run; only of traces.
    pub lock_holds: u64,
    /// Page-table entries that walks visited, in the whole run; only of traces.
    pub walked_entries: u64,
    /// Accesses per second of simulated time; only of scenarios.
    #[serde(skip)]
    pub accesses_per_second: f64,
    /// 99th percentile of access latency, in nanoseconds of simulated time; only of scenarios.
    #[serde(skip)]
    pub p99_nanos: u64,
}

impl Count {
    /// The counts of a run.
    pub fn of(tally: &Tally, costs: Costs) -> Count {
        let refaults = [WorkingsetRefaultFile, WorkingsetRefaultAnon];
        Count {
            accesses: tally.counts.accesses,
            misses: tally.counts.misses,
            refaults: refaults.into_iter().map(|counter| tally.counters.get(counter)).sum(),
            scanned: tally.counters.pgscan(),
            reclaimed: tally.counters.pgsteal(),
            written: tally.counters.get(NrWritten) + tally.counters.get(Pswpout),
            digest: digest(tally),
            lock_holds: costs.lock_holds,
            walked_entries: costs.walked_entries,
            ..Count::default()
        }
    }
}

/// A hash of names and values of the counters that are not 0, so that a counter which another
/// build lacks, and which stays 0, makes no difference.
fn digest(tally: &Tally) -> u64 {
    let counters = tally.counters.iter().chain([("dirty_pauses", tally.counts.dirty_pauses)]);
    let counted = counters.filter(|&(_, value)| value > 0);
    fnv1a(counted.flat_map(|(name, value)| name.bytes().chain(value.to_le_bytes())))
}

/// A compared quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Accesses that waited for a device.
    Misses,
    /// Evicted pages that came back.
    Refaults,
    /// Misses per 100 accesses. A scenario has a fixed duration: with fewer misses it completes
    /// more accesses, so its number of misses may stay the same.
    MissRatio,
    /// Refaults per 100 accesses.
    RefaultRatio,
    /// Scanned folios per reclaimed folio.
    ScannedPerReclaimed,
    /// Accesses per second of simulated time.
    Throughput,
    /// 99th percentile of access latency.
    P99,
    /// Pages written, to files and to swap, per 1,000 accesses.
    Written,
    /// Times that a lock of lists was taken, per 1,000 accesses.
    LockHolds,
    /// Page-table entries that walks visited, per 1,000 accesses.
    WalkedEntries,
}

impl Metric {
    /// Stable name.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Misses => "misses",
            Metric::Refaults => "refaults",
            Metric::MissRatio => "misses_per_100_accesses",
            Metric::RefaultRatio => "refaults_per_100_accesses",
            Metric::ScannedPerReclaimed => "scanned_per_reclaimed",
            Metric::Throughput => "accesses_per_second",
            Metric::P99 => "p99_access_us",
            Metric::Written => "written_pages_per_1000_accesses",
            Metric::LockHolds => "lock_holds_per_1000_accesses",
            Metric::WalkedEntries => "walked_entries_per_1000_accesses",
        }
    }

    /// Description for people.
    pub fn words(self) -> &'static str {
        match self {
            Metric::Misses => "misses",
            Metric::Refaults => "refaults",
            Metric::MissRatio => "misses per 100 accesses",
            Metric::RefaultRatio => "refaults per 100 accesses",
            Metric::ScannedPerReclaimed => "folios scanned per reclaimed",
            Metric::Throughput => "accesses per second of simulated time",
            Metric::P99 => "99th percentile of access latency, µs of simulated time",
            Metric::Written => "pages written per 1,000 accesses",
            Metric::LockHolds => "lock holds per 1,000 accesses",
            Metric::WalkedEntries => "page-table entries walked per 1,000 accesses",
        }
    }

    /// Its value in each run.
    pub fn values<'c>(self, counts: impl IntoIterator<Item = &'c Count>) -> Vec<f64> {
        counts.into_iter().map(|count| self.value(count)).collect()
    }

    fn value(self, count: &Count) -> f64 {
        let per = |accesses: f64, value: u64| accesses * value as f64 / count.accesses.max(1) as f64;
        match self {
            Metric::Misses => count.misses as f64,
            Metric::Refaults => count.refaults as f64,
            Metric::MissRatio => per(100.0, count.misses),
            Metric::RefaultRatio => per(100.0, count.refaults),
            Metric::ScannedPerReclaimed if count.reclaimed == 0 => 0.0,
            Metric::ScannedPerReclaimed => count.scanned as f64 / count.reclaimed as f64,
            Metric::Throughput => count.accesses_per_second,
            Metric::P99 => count.p99_nanos as f64 / 1000.0,
            Metric::Written => per(1000.0, count.written),
            Metric::LockHolds => per(1000.0, count.lock_holds),
            Metric::WalkedEntries => per(1000.0, count.walked_entries),
        }
    }
}

/// A change of one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// The metric.
    pub metric: Metric,
    /// Median before.
    pub before: f64,
    /// Median after.
    pub after: f64,
    /// Median of the differences, seed by seed.
    pub median: f64,
    /// Confidence interval of that median.
    pub interval: Interval,
    /// Whether differences are in percent of the value before. They are absolute if one of these
    /// is 0.
    pub is_percent: bool,
    /// Whether every run has the same value before and after.
    pub is_same: bool,
    /// For two changes together, the effect beyond the sum of both alone, in the same unit.
    pub beyond: Option<(f64, Interval)>,
}

/// The judgement of a change under a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Less: the whole interval is below 0.
    Gains,
    /// More: the whole interval is above 0.
    Loses,
    /// The interval contains 0.
    Nothing,
    /// Every count of every run is the same.
    Untouched,
    /// There are too few runs for a verdict.
    Uncertain,
}

/// Whether an interval contains 0. `None` if too few runs make it unreliable.
pub fn is_noise(interval: &Interval) -> Option<bool> {
    (interval.confidence >= CONFIDENCE).then(|| interval.contains(0.0))
}

impl Effect {
    /// The effect of `after` against `before`. `parts` are the values of each of two changes alone,
    /// which `after` has together.
    pub fn of(metric: Metric, before: &[f64], after: &[f64], parts: Option<[Vec<f64>; 2]>) -> Effect {
        let is_percent = before.iter().all(|&value| value > 0.0);
        let difference = |before: f64, after: f64| {
            if is_percent { 100.0 * (after / before - 1.0) } else { after - before }
        };
        let differences: Vec<f64> = before.iter().zip(after).map(|(&b, &a)| difference(b, a)).collect();
        let beyond = parts.map(|[first, second]| {
            let beyond: Vec<f64> = (0..before.len())
                .map(|seed| {
                    let alone = |values: &[f64]| difference(before[seed], values[seed]);
                    differences[seed] - alone(&first) - alone(&second)
                })
                .collect();
            (median(&beyond), median_interval(&beyond))
        });
        Effect {
            metric,
            before: median(before),
            after: median(after),
            median: median(&differences),
            interval: median_interval(&differences),
            is_percent,
            is_same: before == after,
            beyond,
        }
    }

    /// Whether the effect is within the noise. `None` with too few runs.
    pub fn is_noise(&self) -> Option<bool> {
        is_noise(&self.interval)
    }

    /// The verdict, if less of the metric is better. `is_untouched`: all counts are the same.
    pub fn verdict(&self, is_untouched: bool) -> Verdict {
        match self.is_noise() {
            _ if is_untouched => Verdict::Untouched,
            None => Verdict::Uncertain,
            Some(true) => Verdict::Nothing,
            Some(false) if self.interval.high < 0.0 => Verdict::Gains,
            Some(false) => Verdict::Loses,
        }
    }

    /// Unit of the differences.
    pub fn unit(&self) -> &'static str {
        if self.is_percent { "%" } else { "1" }
    }
}

impl Serialize for Effect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document!(serializer, {
            "metric": self.metric.name(),
            "before": self.before,
            "after": self.after,
            "change": self.median,
            "unit": self.unit(),
            "low": self.interval.low,
            "high": self.interval.high,
            "same": self.is_same,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(before: &[f64], after: &[f64], parts: Option<[Vec<f64>; 2]>) -> Effect {
        Effect::of(Metric::Misses, before, after, parts)
    }

    #[test]
    fn pairs_of_runs_are_compared_seed_by_seed() {
        // The scatter of the runs is far larger than the effect.
        let before = [100.0, 200.0, 300.0, 400.0, 500.0, 600.0];
        let after = before.map(|value| value * 1.01);
        let found = effect(&before, &after, None);
        assert!(
            (found.median - 1.0).abs() < 1e-9 && found.is_noise() == Some(false) && found.is_percent,
            "{found:?}"
        );
        let mixed = [101.0, 198.0, 303.0, 396.0, 505.0, 594.0];
        assert_eq!(effect(&before, &mixed, None).is_noise(), Some(true));
        assert_eq!(effect(&before, &before, None).is_noise(), Some(true));
        assert_eq!(
            effect(&before[..5], &after[..5], None).is_noise(),
            None,
            "of five runs nothing is certain"
        );
    }

    #[test]
    fn a_change_from_zero_has_no_percentage() {
        let found = effect(&[0.0; 6], &[5.0; 6], None);
        assert_eq!((found.median, found.is_percent, found.is_noise()), (5.0, false, Some(false)));
        let found = effect(&[0.0, 100.0, 100.0, 100.0, 100.0, 100.0], &[5.0; 6], None);
        assert_eq!((found.median, found.unit()), (-95.0, "1"), "all pairs have one unit");
    }

    #[test]
    fn two_together_do_more_than_each() {
        let before = [100.0; 6];
        let found = effect(&before, &[130.0; 6], Some([vec![110.0; 6], vec![105.0; 6]]));
        let (beyond, interval) = found.beyond.unwrap();
        assert!((beyond - 15.0).abs() < 1e-9 && !interval.contains(0.0));
    }

    #[test]
    fn an_interval_on_one_side_of_0_decides() {
        let of = |after: [f64; 6]| effect(&[100.0; 6], &after, None).verdict(false);
        assert_eq!(of([99.0, 98.0, 97.0, 96.0, 95.0, 94.0]), Verdict::Gains);
        assert_eq!(of([101.0; 6]), Verdict::Loses);
        assert_eq!(of([99.0, 98.0, 97.0, 96.0, 95.0, 101.0]), Verdict::Nothing);
        assert_eq!(effect(&[100.0; 5], &[50.0; 5], None).verdict(false), Verdict::Uncertain);
        assert_eq!(effect(&[100.0; 6], &[100.0; 6], None).verdict(true), Verdict::Untouched);
    }
}
