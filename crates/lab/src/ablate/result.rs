//! Effects of switching mechanisms off.

use super::input::{Input, Run, TenantCounts};
use super::variant::Variants;
use crate::columns::{Columns, Get};
use crate::document::document;
use crate::effect::{Effect, Metric, is_noise};
use crate::mechanisms::Settings;
use crate::statistics::{Interval, median, median_interval};
use crate::timeline::Timeline;
use mglru_core::Mechanisms;
use serde::{Serialize, Serializer};

/// Result of a variant.
#[derive(Debug, Clone)]
pub struct VariantRow {
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
    /// One effect per metric: before is the full set, and after the variant. Empty if the variant
    /// could not be run.
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
    /// The first seed.
    pub seed: u64,
    /// Compared metrics.
    pub metrics: &'static [Metric],
    /// Values of the full set, by metric and seed.
    pub full: Vec<Vec<f64>>,
    /// The variants, sorted by their effect on the first metric; those within the noise come last.
    pub rows: Vec<VariantRow>,
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
        seed: u64,
        seconds: f64,
    ) -> Ablation {
        let metrics = input.metrics();
        let done = |runs: &[Result<Run, String>]| runs.iter().cloned().collect::<Result<Vec<Run>, String>>();
        let full = done(&runs[0]).expect("a failure of the full set is an error");
        let values = |runs: &[Run], metric: Metric| metric.values(runs.iter().map(|run| &run.count));
        let all: Vec<Result<Vec<Run>, String>> = runs.iter().map(|runs| done(runs)).collect();
        let mut rows: Vec<VariantRow> = Vec::new();
        for (variant, runs) in variants.run.iter().zip(&all).skip(1) {
            let effect = |runs: &[Run], metric: Metric| {
                let (before, after) = (values(&full, metric), values(runs, metric));
                let parts =
                    variant.pair.map(|pair| pair.map(|at| all[at].as_ref().map(|runs| values(runs, metric))));
                let parts = parts.and_then(|[a, b]| Some([a.ok()?, b.ok()?]));
                Effect::of(metric, &before, &after, parts)
            };
            rows.push(VariantRow {
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
            seed,
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
    /// Runs of each variant.
    pub fn runs(&self) -> usize {
        self.full[0].len()
    }

    /// Confidence of the intervals, 0 to 1.
    pub fn confidence(&self) -> f64 {
        median_interval(&self.full[0]).confidence
    }

    /// A row per variant and metric. A variant that could not be run has one row, with the reason.
    pub fn columns(&self) -> Columns {
        struct Line<'a>(&'a VariantRow, Option<&'a Effect>);
        let mut lines = Vec::new();
        for row in &self.rows {
            match row.effects.as_slice() {
                [] => lines.push(Line(row, None)),
                effects => lines.extend(effects.iter().map(|effect| Line(row, Some(effect)))),
            }
        }
        Columns::of(
            &lines,
            &[
                ("without", Get::Text(|line| Some(line.0.name.clone()))),
                ("metric", Get::Text(|line| Some(line.1?.metric.name().to_owned()))),
                ("value", Get::Real(|line| Some(line.1?.after))),
                ("change", Get::Real(|line| Some(line.1?.median))),
                ("change_low", Get::Real(|line| Some(line.1?.interval.low))),
                ("change_high", Get::Real(|line| Some(line.1?.interval.high))),
                ("confidence", Get::Real(|line| Some(line.1?.interval.confidence))),
                ("is_percent", Get::Flag(|line| Some(line.1?.is_percent))),
                ("is_noise", Get::Flag(|line| line.1?.is_noise())),
                ("beyond_sum", Get::Real(|line| Some(line.1?.beyond.as_ref()?.0))),
                ("is_pair", Get::Flag(|line| Some(line.0.is_pair))),
                ("changes_nothing", Get::Flag(|line| Some(line.0.changes_nothing))),
                ("error", Get::Text(|line| line.0.failed.clone())),
            ],
        )
    }
}

/// The ends of an interval; a single run has none.
pub fn ends(interval: &Interval) -> [Option<f64>; 2] {
    [interval.low, interval.high].map(|end| (interval.confidence > 0.0).then_some(end))
}

impl Serialize for Ablation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let full = self.metrics.iter().zip(&self.full);
        let full =
            full.map(|(metric, values)| Full { metric: metric.name(), median: median(values), values });
        let not_alone = self.variants.not_alone.iter().map(|(name, why)| Reason { mechanism: name, why });
        let reasons = self.variants.cannot_matter.iter().map(|(name, why)| (name, why.clause(false)));
        let reasons: Vec<_> = reasons.collect();
        let cannot_matter = reasons.iter().map(|(mechanism, why)| Reason { mechanism, why });
        document!(serializer, {
            "input": self.kind.1,
            "kind": self.kind.0,
            "preset": self.mechanisms.name(),
            "mechanisms": Settings(self.mechanisms),
            "memory_pages": self.memory_pages,
            "runs": self.runs(),
            "seed": self.seed,
            "varied": self.varied,
            "confidence": self.confidence(),
            "seconds": self.seconds,
            "full": full.collect::<Vec<_>>(),
            "variants": self.rows,
            "cannot_matter": cannot_matter.collect::<Vec<_>>(),
            "not_alone": not_alone.collect::<Vec<_>>(),
            "off": self.variants.off,
            "tenants": self.tenants,
            "timeline": self.timeline,
        })
    }
}

#[derive(Serialize)]
struct Full<'a> {
    metric: &'static str,
    median: f64,
    values: &'a [f64],
}

#[derive(Serialize)]
struct Reason<'a> {
    mechanism: &'a str,
    why: &'a str,
}

impl Serialize for VariantRow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document!(serializer, {
            "without": self.without,
            "pair": self.is_pair,
            "changes_nothing": self.changes_nothing,
            "same_as": self.same_as,
            "failed": self.failed,
            "effects": self.effects.iter().map(Without::of).collect::<Vec<_>>(),
        })
    }
}

/// The effect of a variant.
#[derive(Serialize)]
struct Without {
    metric: &'static str,
    without: f64,
    unit: &'static str,
    #[serde(flatten)]
    effect: Sure,
    #[serde(skip_serializing_if = "Option::is_none")]
    beyond: Option<Sure>,
}

#[derive(Serialize)]
struct Sure {
    effect: f64,
    low: Option<f64>,
    high: Option<f64>,
    within_noise: Option<bool>,
}

impl Without {
    fn of(of: &Effect) -> Without {
        let sure = |effect: f64, interval: &Interval| {
            let [low, high] = ends(interval);
            Sure { effect, low, high, within_noise: is_noise(interval) }
        };
        Without {
            metric: of.metric.name(),
            without: of.after,
            unit: of.unit(),
            effect: sure(of.median, &of.interval),
            beyond: of.beyond.map(|(beyond, interval)| sure(beyond, &interval)),
        }
    }
}

/// Whether all counters are the same, seed by seed.
fn same(runs: &[Run], others: &[Run]) -> bool {
    runs.iter().zip(others).all(|(run, other)| {
        run.counters == other.counters
            && run.count.p99_nanos == other.count.p99_nanos
            && run.tenants == other.tenants
    })
}

/// Sorts by the effect on a metric. Variants that could not be run come first, those within the
/// noise last.
pub fn sort(rows: &mut [VariantRow], metric: usize) {
    let rank = |row: &VariantRow| match row.effects.get(metric) {
        None => (0, 0.0),
        Some(effect) if effect.is_noise() == Some(true) => (2, -effect.median.abs()),
        Some(effect) => (1, -effect.median.abs()),
    };
    rows.sort_by(|a, b| {
        let ((a_class, a_size), (b_class, b_size)) = (rank(a), rank(b));
        a_class.cmp(&b_class).then(a_size.total_cmp(&b_size))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_effects_come_first_and_noise_last() {
        let row = |name: &str, median, low, high| VariantRow {
            name: name.to_owned(),
            without: Vec::new(),
            is_pair: false,
            changes_nothing: false,
            same_as: None,
            failed: None,
            effects: vec![Effect {
                metric: Metric::Misses,
                before: 0.0,
                after: 0.0,
                median,
                interval: Interval { low, high, confidence: 0.97 },
                is_percent: true,
                is_same: false,
                beyond: None,
            }],
        };
        let mut rows =
            vec![row("noise", 9.0, -1.0, 20.0), row("small", 1.0, 0.5, 2.0), row("large", -5.0, -6.0, -4.0)];
        rows.push(VariantRow {
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
