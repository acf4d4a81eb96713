//! Evidence: what was published, what we measured, how far it scatters, and what that comes to.
//!
//! Of each metric the medians of all runs are shown, with the distance of the quartiles as their spread. A metric counts as
//! *reproduced* if it changes in the published direction by at least 70 % of the published change (and at most as much
//! more), as *weaker* if the direction is right and the change larger than the spread of both sides, and as *not
//! reproduced* otherwise. Where no change was published, or a control should not change, it *holds* if the change is
//! below 2 % or below the spread.

use crate::table::Table;
use mglru_workload::Random;
use serde_json::{Value, json};

/// The part of a published change that has to show.
const SHARE: f64 = 0.7;
/// A change that is none.
const NO_CHANGE: f64 = 0.02;

/// What was published of a metric.
#[derive(Debug, Clone, Copy)]
pub enum Published {
    /// So much before and after.
    Change {
        /// With the mechanism off.
        before: f64,
        /// With it on.
        after: f64,
    },
    /// Nothing; it is not meant to change.
    Same,
    /// Nothing.
    Nothing,
}

/// A metric in all runs of three settings.
#[derive(Debug)]
pub struct Row {
    /// Its stable name.
    pub metric: &'static str,
    /// Of what the figures are.
    pub unit: &'static str,
    /// What was published.
    pub published: Published,
    /// With the mechanism off, per run.
    pub before: Vec<f64>,
    /// With it on.
    pub after: Vec<f64>,
    /// With our defaults.
    pub default: Vec<f64>,
}

/// Something that has to be true for the figures to mean anything.
#[derive(Debug)]
pub struct Check {
    /// What.
    pub name: String,
    /// Whether it is.
    pub holds: bool,
}

/// An experiment that was run.
#[derive(Debug)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// Where it ran.
    pub world: &'static str,
    /// What it runs, in sentences of at most 100 columns.
    pub workload: String,
    /// Runs of each setting.
    pub runs: u32,
    /// How long all took.
    pub seconds: f64,
    /// What was measured.
    pub rows: Vec<Row>,
    /// What was checked.
    pub checks: Vec<Check>,
}

/// The value that lies at that share of the sorted values, between two of them if need be.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

/// The value in the middle.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// From the first to the third quartile.
fn spread(values: &[f64]) -> f64 {
    quantile(values, 0.75) - quantile(values, 0.25)
}

/// Standard deviation of a sample, in percent of its mean.
pub fn deviation_percent(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    100.0 * (squares / (values.len() - 1).max(1) as f64).sqrt() / mean
}

/// A statistic of resampled values, many times over: its spread says how far the sample determines it (bootstrap; Efron,
/// "Bootstrap methods", 1979).
pub fn resampled(values: &[f64], statistic: fn(&[f64]) -> f64, seed: u64) -> Vec<f64> {
    const SAMPLES: usize = 500;
    let mut random = Random::stream(seed, 0xB0);
    let mut draw = || values[random.below(values.len() as u64) as usize];
    (0..SAMPLES).map(|_| statistic(&values.iter().map(|_| draw()).collect::<Vec<f64>>())).collect()
}

/// From nothing to something is a change by all of it.
fn change(before: f64, after: f64) -> f64 {
    match (before == 0.0, after == 0.0) {
        (true, true) => 0.0,
        (true, false) => after.signum(),
        _ => after / before - 1.0,
    }
}

impl Row {
    fn change(&self) -> f64 {
        change(median(&self.before), median(&self.after))
    }

    /// What it comes to.
    pub fn verdict(&self) -> &'static str {
        let ours = self.change();
        let noise = (spread(&self.before).max(spread(&self.after))) / median(&self.before).abs().max(1e-9);
        match self.published {
            Published::Same if ours.abs() <= NO_CHANGE.max(noise) => "holds",
            Published::Same => "changes",
            Published::Nothing => "-",
            Published::Change { before, after } => {
                let published = change(before, after);
                if published.abs() <= NO_CHANGE {
                    if ours.abs() <= NO_CHANGE.max(noise) { "reproduced" } else { "not reproduced" }
                } else if ours * published <= 0.0 || ours.abs() <= noise {
                    "not reproduced"
                } else if ours / published >= SHARE {
                    "reproduced"
                } else {
                    "weaker"
                }
            }
        }
    }

    fn published_pair(&self) -> Option<(f64, f64)> {
        if let Published::Change { before, after } = self.published { Some((before, after)) } else { None }
    }
}

/// As short as a figure can be read: three or four digits, or thousands and millions.
fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1e9.. => format!("{:.2} G", value / 1e9),
        1e6.. => format!("{:.2} M", value / 1e6),
        1e4.. => format!("{:.1} k", value / 1e3),
        100.0.. => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

fn percent(change: f64) -> String {
    format!("{:+.1} %", 100.0 * change)
}

impl Experiment {
    /// The verdict on the whole: that of the metric that the publication is about, which stands first.
    fn verdict(&self) -> &'static str {
        self.rows[0].verdict()
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut table = Table::new([
            "metric",
            "published",
            "before",
            "after",
            "default",
            "± of median",
            "change",
            "verdict",
        ])
        .with_words_last();
        for row in &self.rows {
            let published = row.published_pair();
            let spread = spread(&row.before).max(spread(&row.after));
            table.row([
                row.metric.to_owned(),
                published.map_or("-".to_owned(), |(before, after)| percent(change(before, after))),
                figure(median(&row.before)),
                figure(median(&row.after)),
                figure(median(&row.default)),
                figure(spread / 2.0),
                percent(row.change()),
                row.verdict().to_owned(),
            ]);
        }
        let mut text = format!("{}\n\n{}", self.workload, table.text());
        for check in &self.checks {
            text.push_str(&format!(
                "\n  {}: {}",
                if check.holds { "holds" } else { "DOES NOT HOLD" },
                check.name
            ));
        }
        text.push_str(&format!("\n\n  {} runs of each setting, {:.0} s in all\n", self.runs, self.seconds));
        text
    }

    /// The document of some experiments.
    pub fn document(experiments: &[Experiment]) -> Value {
        let one = |experiment: &Experiment| {
            let rows: Vec<Value> = experiment.rows.iter().map(row_value).collect();
            let check = |check: &Check| json!({"name": check.name, "holds": check.holds});
            json!({
                "name": experiment.name,
                "world": experiment.world,
                "runs": experiment.runs,
                "seconds": experiment.seconds,
                "verdict": experiment.verdict(),
                "rows": rows,
                "checks": experiment.checks.iter().map(check).collect::<Vec<_>>(),
            })
        };
        json!({"experiments": experiments.iter().map(one).collect::<Vec<_>>()})
    }
}

fn row_value(row: &Row) -> Value {
    let of = |sum_up: fn(&[f64]) -> f64| {
        json!({
            "before": sum_up(&row.before),
            "after": sum_up(&row.after),
            "default": sum_up(&row.default),
        })
    };
    json!({
        "metric": row.metric,
        "unit": row.unit,
        "published": row.published_pair().map(|(before, after)| json!({"before": before, "after": after})),
        "measured": of(median),
        "spread": of(spread),
        "verdict": row.verdict(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(published: Published, before: [f64; 3], after: [f64; 3]) -> Row {
        Row {
            metric: "m",
            unit: "1",
            published,
            before: before.into(),
            after: after.into(),
            default: vec![1.0],
        }
    }

    #[test]
    fn quantiles_lie_between_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!((quantile(&[1.0, 2.0], 0.5), spread(&[1.0, 2.0, 3.0, 4.0, 5.0])), (1.5, 2.0));
        assert!((deviation_percent(&[90.0, 100.0, 110.0]) - 10.0).abs() < 1e-9);
        assert_eq!(deviation_percent(&[5.0]), 0.0);
        let deviations = resampled(&[90.0, 100.0, 110.0, 95.0, 105.0], deviation_percent, 1);
        assert!((4.0..9.0).contains(&median(&deviations)) && spread(&deviations) > 0.5);
    }

    #[test]
    fn verdicts_ask_for_direction_size_and_spread() {
        let half = Published::Change { before: 100.0, after: 50.0 };
        let still = [100.0, 100.0, 100.0];
        assert_eq!(row(half, still, [55.0; 3]).verdict(), "reproduced");
        assert_eq!(row(half, still, [80.0; 3]).verdict(), "weaker");
        assert_eq!(row(half, still, [120.0; 3]).verdict(), "not reproduced");
        assert_eq!(
            row(half, [60.0, 100.0, 140.0], [80.0; 3]).verdict(),
            "not reproduced",
            "within the spread"
        );
        assert_eq!(row(Published::Same, still, [101.0; 3]).verdict(), "holds");
        assert_eq!(row(Published::Same, still, [110.0; 3]).verdict(), "changes");
        assert_eq!(
            row(Published::Change { before: 7.0, after: 7.0 }, still, [100.5; 3]).verdict(),
            "reproduced"
        );
    }
}
