//! Effects of switching mechanisms off, from pairs of runs with the same seed.
//!
//! An effect is the median of these differences with its 95 % confidence interval
//! ([`median_interval`]; for six seeds the interval is their whole range). An effect is significant
//! if its interval lies wholly on one side of zero; any other is within the noise. With fewer than
//! six runs, no effect is significant.

use super::input::{Input, Run, TenantCounts};
use super::variant::Variants;
use crate::columns::{Columns, Get};
use crate::statistics::{CONFIDENCE, Interval, median, median_interval};
use crate::timeline::Timeline;
use mglru_core::Mechanisms;

/// A compared metric.
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
    /// Scanned pages per reclaimed page.
    ScannedPerReclaimed,
    /// Touches per second of simulated time.
    Throughput,
    /// 99th percentile of access latency.
    P99,
}

impl Metric {
    /// The metrics of an input.
    pub fn of(input: &Input) -> &'static [Metric] {
        use Metric::{MissRatio, Misses, P99, RefaultRatio, Refaults, ScannedPerReclaimed, Throughput};
        if input.has_time() {
            &[Throughput, P99, MissRatio, RefaultRatio, ScannedPerReclaimed]
        } else {
            &[Misses, Refaults, ScannedPerReclaimed]
        }
    }

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
        }
    }

    /// Description for people.
    pub fn words(self) -> &'static str {
        match self {
            Metric::Misses => "misses",
            Metric::Refaults => "refaults",
            Metric::MissRatio => "misses per 100 accesses",
            Metric::RefaultRatio => "refaults per 100 accesses",
            Metric::ScannedPerReclaimed => "scanned per reclaimed",
            Metric::Throughput => "accesses per second of simulated time",
            Metric::P99 => "99th percentile of access latency, µs of simulated time",
        }
    }

    fn value(self, run: &Run) -> f64 {
        let per_100 = |count: u64| 100.0 * count as f64 / run.accesses.max(1) as f64;
        match self {
            Metric::Misses => run.misses as f64,
            Metric::Refaults => run.refaults as f64,
            Metric::MissRatio => per_100(run.misses),
            Metric::RefaultRatio => per_100(run.refaults),
            Metric::ScannedPerReclaimed if run.reclaimed == 0 => 0.0,
            Metric::ScannedPerReclaimed => run.scanned as f64 / run.reclaimed as f64,
            Metric::Throughput => run.accesses_per_second,
            Metric::P99 => run.p99_nanos as f64 / 1000.0,
        }
    }
}

/// Effect on one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// Median over all seeds of the metric with the mechanism off.
    pub without: f64,
    /// Median of the differences, seed by seed.
    pub median: f64,
    /// Confidence interval of that median.
    pub interval: Interval,
    /// Whether differences are in percent of the full set's value. They are absolute if that is 0.
    pub is_percent: bool,
    /// For a pair, the effect beyond the sum of the two single effects, in the same unit.
    pub beyond: Option<(f64, Interval)>,
}

impl Effect {
    /// Whether the effect is within the noise. `None` with too few runs.
    pub fn is_noise(&self) -> Option<bool> {
        is_noise(&self.interval)
    }
}

/// Whether an interval contains 0. `None` if too few runs make it unreliable.
pub fn is_noise(interval: &Interval) -> Option<bool> {
    (interval.confidence >= CONFIDENCE).then(|| interval.contains(0.0))
}

/// Result of a variant.
#[derive(Debug, Clone)]
pub struct Row {
    /// Name of the variant.
    pub name: String,
    /// Mechanisms that were off.
    pub without: Vec<&'static str>,
    /// Whether it combines two variants.
    pub is_pair: bool,
    /// Whether every counter of every run was the same as with the full set.
    pub changes_nothing: bool,
    /// For a pair: the single variant whose counters were the same in every run. The other
    /// mechanism then has no effect here, and `beyond` is its single effect negated.
    pub same_as: Option<String>,
    /// Reason why the variant could not be run, if so.
    pub failed: Option<String>,
    /// One effect per metric; empty if the variant could not be run.
    pub effects: Vec<Effect>,
}

/// Result of an ablation.
pub struct Ablation {
    /// Kind of the input, and its name.
    pub kind: (&'static str, String),
    /// The full set of mechanisms.
    pub mechanisms: Mechanisms,
    /// Memory in pages.
    pub memory_pages: u64,
    /// The quantity that seeds vary.
    pub varied: &'static str,
    /// Compared metrics.
    pub metrics: &'static [Metric],
    /// Values of the full set, by metric and seed.
    pub full: Vec<Vec<f64>>,
    /// The variants, sorted by their effect on the first metric; those within the noise come last.
    pub rows: Vec<Row>,
    /// The variants, and the mechanisms that were not run.
    pub variants: Variants,
    /// Tenants of the full set, by seed.
    pub tenants: Vec<Vec<TenantCounts>>,
    /// Timeline of the full set with the first seed.
    pub timeline: Option<Timeline>,
    /// Whether the input has meaningful times. A trace has none.
    pub has_time: bool,
    /// Duration of the ablation in seconds.
    pub seconds: f64,
}

impl Ablation {
    /// Compares runs, given by variant and then by seed. The full set comes first, and all its runs
    /// succeeded.
    pub fn new(
        input: &Input,
        variants: Variants,
        runs: Vec<Vec<Result<Run, String>>>,
        seconds: f64,
    ) -> Ablation {
        let metrics = Metric::of(input);
        let done = |runs: &[Result<Run, String>]| runs.iter().cloned().collect::<Result<Vec<Run>, String>>();
        let full = done(&runs[0]).expect("a failure of the full set is an error");
        let values =
            |runs: &[Run], metric: Metric| runs.iter().map(|run| metric.value(run)).collect::<Vec<f64>>();
        let all: Vec<Result<Vec<Run>, String>> = runs.iter().map(|runs| done(runs)).collect();
        let mut rows: Vec<Row> = Vec::new();
        for (variant, runs) in variants.run.iter().zip(&all).skip(1) {
            let effect = |runs: &[Run], metric: Metric| {
                let (before, after) = (values(&full, metric), values(runs, metric));
                let parts =
                    variant.pair.map(|pair| pair.map(|at| all[at].as_ref().map(|runs| values(runs, metric))));
                let parts = parts.and_then(|[a, b]| Some([a.ok()?, b.ok()?]));
                effect(&before, &after, parts)
            };
            rows.push(Row {
                name: variant.name(),
                without: variant.without.clone(),
                is_pair: variant.pair.is_some(),
                changes_nothing: runs.as_ref().is_ok_and(|runs| same(runs, &full)),
                same_as: variant.pair.and_then(|pair| {
                    let runs = runs.as_ref().ok()?;
                    let part =
                        pair.into_iter().find(|&at| all[at].as_ref().is_ok_and(|part| same(runs, part)))?;
                    Some(variants.run[part].name())
                }),
                failed: runs.as_ref().err().cloned(),
                effects: match runs {
                    Ok(runs) => metrics.iter().map(|&metric| effect(runs, metric)).collect(),
                    Err(_) => Vec::new(),
                },
            });
        }
        sort(&mut rows, 0);
        Ablation {
            kind: input.kind(),
            mechanisms: input.mechanisms(),
            memory_pages: input.memory_pages(),
            varied: input.varied(),
            metrics,
            full: metrics.iter().map(|&metric| values(&full, metric)).collect(),
            rows,
            variants,
            tenants: full.iter().map(|run| run.tenants.clone()).collect(),
            timeline: full.iter().find_map(|run| run.timeline.clone()),
            has_time: input.has_time(),
            seconds,
        }
    }
}

impl Ablation {
    /// A row per variant and metric. A variant that could not be run has one row, with the reason.
    pub fn columns(&self) -> Columns {
        struct Line<'a>(&'a Row, Option<(Metric, &'a Effect)>);
        let mut lines = Vec::new();
        for row in &self.rows {
            match row.effects.as_slice() {
                [] => lines.push(Line(row, None)),
                effects => lines
                    .extend(self.metrics.iter().copied().zip(effects).map(|effect| Line(row, Some(effect)))),
            }
        }
        Columns::of(
            &lines,
            &[
                ("without", Get::Text(|line| Some(line.0.name.clone()))),
                ("metric", Get::Text(|line| Some(line.1?.0.name().to_owned()))),
                ("value", Get::Real(|line| Some(line.1?.1.without))),
                ("change", Get::Real(|line| Some(line.1?.1.median))),
                ("change_low", Get::Real(|line| Some(line.1?.1.interval.low))),
                ("change_high", Get::Real(|line| Some(line.1?.1.interval.high))),
                ("confidence", Get::Real(|line| Some(line.1?.1.interval.confidence))),
                ("is_percent", Get::Flag(|line| Some(line.1?.1.is_percent))),
                ("is_noise", Get::Flag(|line| line.1?.1.is_noise())),
                ("beyond_sum", Get::Real(|line| Some(line.1?.1.beyond.as_ref()?.0))),
                ("is_pair", Get::Flag(|line| Some(line.0.is_pair))),
                ("changes_nothing", Get::Flag(|line| Some(line.0.changes_nothing))),
                ("error", Get::Text(|line| line.0.failed.clone())),
            ],
        )
    }
}

/// Whether all counters are the same, seed by seed.
fn same(runs: &[Run], others: &[Run]) -> bool {
    runs.iter().zip(others).all(|(run, other)| {
        run.counters == other.counters && run.p99_nanos == other.p99_nanos && run.tenants == other.tenants
    })
}

/// Sorts by the effect on a metric. Variants that could not be run come first, those within the
/// noise last.
pub fn sort(rows: &mut [Row], metric: usize) {
    let rank = |row: &Row| match row.effects.get(metric) {
        None => (0, 0.0),
        Some(effect) if effect.is_noise() == Some(true) => (2, -effect.median.abs()),
        Some(effect) => (1, -effect.median.abs()),
    };
    rows.sort_by(|a, b| {
        let ((a_class, a_size), (b_class, b_size)) = (rank(a), rank(b));
        a_class.cmp(&b_class).then(a_size.total_cmp(&b_size))
    });
}

/// The effect of `after` against `before`. `parts` are the two single variants of a pair.
fn effect(before: &[f64], after: &[f64], parts: Option<[Vec<f64>; 2]>) -> Effect {
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
        without: median(after),
        median: median(&differences),
        interval: median_interval(&differences),
        is_percent,
        beyond,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn two_together_do_more_than_each() {
        let before = [100.0; 6];
        let found = effect(&before, &[130.0; 6], Some([vec![110.0; 6], vec![105.0; 6]]));
        let (beyond, interval) = found.beyond.unwrap();
        assert!((beyond - 15.0).abs() < 1e-9 && !interval.contains(0.0));
    }

    #[test]
    fn large_effects_come_first_and_noise_last() {
        let row = |name: &str, median, low, high| Row {
            name: name.to_owned(),
            without: Vec::new(),
            is_pair: false,
            changes_nothing: false,
            same_as: None,
            failed: None,
            effects: vec![Effect {
                without: 0.0,
                median,
                interval: Interval { low, high, confidence: 0.97 },
                is_percent: true,
                beyond: None,
            }],
        };
        let mut rows =
            vec![row("noise", 9.0, -1.0, 20.0), row("small", 1.0, 0.5, 2.0), row("large", -5.0, -6.0, -4.0)];
        rows.push(Row {
            effects: Vec::new(),
            failed: Some("why".to_owned()),
            ..row("failed", 0.0, 0.0, 0.0)
        });
        sort(&mut rows, 0);
        assert_eq!(
            rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(),
            ["failed", "large", "small", "noise"]
        );
    }
}
