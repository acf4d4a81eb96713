//! Evidence: what was published, what we measured, how far it scatters, and what that comes to.
//!
//! Of each metric the medians of all runs are shown, with the distance of the quartiles as their spread. A metric counts as
//! *reproduced* if it changes in the published direction by at least 70 % of the published change (and at most as much
//! more), as *weaker* if the direction is right and the change larger than the spread of both sides, and as *not
//! reproduced* otherwise. Where no change was published, or a control should not change, it *holds* if the change is
//! below 2 % or below the spread.

use super::page::Shown;
use crate::statistics::{median, spread};
use crate::table::{Table, wrapped};
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

impl Check {
    /// Whether it holds.
    pub fn word(&self) -> &'static str {
        if self.holds { "holds" } else { "DOES NOT HOLD" }
    }
}

/// What every reproduction has to report of its runs (spec 95, "Cross-checks").
#[derive(Debug)]
pub enum Crosschecks {
    /// There is nothing to be checked, for this reason.
    NotApplicable(&'static str),
    /// Of runs that were seen event by event.
    Seen {
        /// What holds unless there is a bug, so that no figure means anything if it does not.
        must: Vec<Check>,
        /// In which regime reclaim was, in words.
        regime: Vec<String>,
    },
}

impl Crosschecks {
    /// What must hold.
    pub fn must(&self) -> &[Check] {
        match self {
            Crosschecks::NotApplicable(_) => &[],
            Crosschecks::Seen { must, .. } => must,
        }
    }

    fn text(&self) -> String {
        match self {
            Crosschecks::NotApplicable(reason) => format!("\n  cross-checks: not applicable: {reason}"),
            Crosschecks::Seen { must, regime } => {
                let must = must.iter().map(|check| format!("\n  {}: {}", check.word(), check.name));
                must.chain(regime.iter().map(|words| format!("\n  regime: {words}"))).collect()
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Crosschecks::NotApplicable(reason) => json!({"not_applicable": reason}),
            Crosschecks::Seen { must, regime } => {
                json!({"must": must.iter().map(check_value).collect::<Vec<_>>(), "regime": regime})
            }
        }
    }
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
    /// What was expected.
    pub checks: Vec<Check>,
    /// What was checked.
    pub crosschecks: Crosschecks,
    /// What it shows besides.
    pub shown: Vec<Shown>,
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
    /// The change of the median, as a share of what was before.
    pub fn change(&self) -> f64 {
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

    /// The published change, as a share of what was before.
    pub fn published_change(&self) -> Option<f64> {
        self.published_pair().map(|(before, after)| change(before, after))
    }

    /// What was published.
    pub fn published_pair(&self) -> Option<(f64, f64)> {
        if let Published::Change { before, after } = self.published { Some((before, after)) } else { None }
    }
}

/// As short as a figure can be read: three or four digits, or thousands and millions.
pub fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1e9.. => format!("{:.2} G", value / 1e9),
        1e6.. => format!("{:.2} M", value / 1e6),
        1e4.. => format!("{:.1} k", value / 1e3),
        100.0.. => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

/// Shorter: three digits.
pub fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        1e9.. => (value / 1e9, " G"),
        1e6.. => (value / 1e6, " M"),
        1e4.. => (value / 1e3, " k"),
        _ => (value, ""),
    };
    match value.abs() {
        0.0 => "0".to_owned(),
        100.0.. => format!("{value:.0}{unit}"),
        10.0.. => format!("{value:.1}{unit}"),
        _ => format!("{value:.2}{unit}"),
    }
}

/// A share as a change.
pub fn percent(change: f64) -> String {
    format!("{:+.1} %", 100.0 * change)
}

impl Experiment {
    /// The verdict on the whole: that of the metric that the publication is about, which stands first.
    fn verdict(&self) -> &'static str {
        self.rows[0].verdict()
    }

    /// Its metrics.
    pub fn table(&self) -> Table {
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
        table
    }

    /// Everything that was checked: what was expected first.
    pub fn all_checks(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().chain(self.crosschecks.must())
    }

    /// As text.
    pub fn text(&self) -> String {
        let mut checks = String::new();
        for check in &self.checks {
            checks.push_str(&format!("\n  {}: {}", check.word(), check.name));
        }
        checks.push_str(&self.crosschecks.text());
        let mut text = format!("{}\n\n{}{}", wrapped(&self.workload), self.table().text(), wrapped(&checks));
        text.push_str(&format!("\n\n  {} runs of each setting, {:.0} s in all\n", self.runs, self.seconds));
        text
    }

    /// As part of a document.
    pub fn json(&self) -> Value {
        json!({
            "name": self.name,
            "world": self.world,
            "runs": self.runs,
            "seconds": self.seconds,
            "verdict": self.verdict(),
            "rows": self.rows.iter().map(row_value).collect::<Vec<_>>(),
            "checks": self.checks.iter().map(check_value).collect::<Vec<_>>(),
            "crosschecks": self.crosschecks.json(),
            "shown": self.shown.iter().map(Shown::json).collect::<Vec<_>>(),
        })
    }
}

fn check_value(check: &Check) -> Value {
    json!({"name": check.name, "holds": check.holds})
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
        "runs": {"before": row.before, "after": row.after, "default": row.default},
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
    fn figures_are_short() {
        let of = [0.0, 0.991, 16.0, 425.0, 8747.6, 134_743.7, 5_019_627.0, 34_365_441.0, 1_294_678_786.0];
        assert_eq!(
            of.map(short),
            ["0", "0.99", "16.0", "425", "8748", "135 k", "5.02 M", "34.4 M", "1.29 G"]
        );
        assert_eq!(of[6..].iter().map(|&of| figure(of)).collect::<Vec<_>>(), ["5.02 M", "34.37 M", "1.29 G"]);
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
