//! Evidence: published and measured values, their spread, and the verdict.
//!
//! Each metric is shown as the median of all runs. Runs before and after form pairs: they have the
//! same seed, or alternate. A verdict depends on the confidence interval of the median change
//! ([`median_interval`], 95 % from six pairs on), never on medians alone, so that noise does not
//! make settings look equal. [`MetricRow::judge`] has the rules.

use crate::statistics::{Interval, jain, median, median_interval, quantile, spread};
use crate::timeline::Timeline;
use serde::{Serialize, Serializer};

/// Share of a published change that must be measured.
const SHARE: f64 = 0.7;
/// Largest change that counts as none.
const NO_CHANGE: f64 = 0.02;
/// Largest distance from zero of an interval that shows no change, and largest width of one that
/// can tell a change from its share. On a busy machine, quartiles of twelve runs are 10 to 30 %
/// apart.
const TELLING: f64 = 0.05;
/// With fewer pairs of runs no interval has 95 % confidence.
pub const PAIRS_MIN: usize = 6;

/// Published result of a metric.
#[derive(Debug, Clone, Copy)]
pub enum Published {
    /// Published values before and after.
    Change {
        /// Value with the mechanism off.
        before: f64,
        /// Value with the mechanism on.
        after: f64,
    },
    /// A control, which should stay the same. Its values were not published.
    Same,
    /// No value was published.
    Nothing,
}

/// Kind of a metric's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Counts or simulated times: the same on every machine.
    Counted,
    /// Real times: they depend on the machine and its load.
    Timed,
    /// A statistic of resampled runs, with the same resamples before and after. The values are not
    /// runs.
    Resampled {
        /// Number of runs per setting that are resampled.
        runs: usize,
    },
    /// Follow from the setup, and not from what reclaim does: a fixed duration, or the count of a
    /// unit test. They cannot turn out otherwise, so they reproduce nothing.
    Given,
}

/// Verdict on a metric or an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The change has the published direction and at least [`SHARE`] of the published size.
    Reproduced,
    /// The direction is right; the change is smaller than that, but not zero.
    Weaker,
    /// The change is not as published.
    NotReproduced,
    /// A control does not change, or a metric whose published change is next to nothing.
    Holds,
    /// Such a metric changes.
    Changes,
    /// The spread admits both the published change and none.
    TooNoisy,
    /// The metric is a time, and the machine was not fit for timing.
    NotMeasurable,
    /// A single run before or after: nothing says how far apart equal runs are.
    OneRun,
    /// The values follow from the setup ([`Values::Given`]).
    ByConstruction,
    /// No value was published.
    Unpublished,
}

impl Verdict {
    /// The verdict as text.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Weaker => "weaker",
            Verdict::NotReproduced => "not reproduced",
            Verdict::Holds => "holds",
            Verdict::Changes => "changes",
            Verdict::TooNoisy => "too noisy to tell",
            Verdict::NotMeasurable => "not measurable here",
            Verdict::OneRun => "no verdict",
            Verdict::ByConstruction => "by construction",
            Verdict::Unpublished => "-",
        }
    }
}

/// All runs of a metric under three settings.
#[derive(Debug)]
pub struct MetricRow {
    /// Stable name of the metric.
    pub metric: &'static str,
    /// Unit of the values.
    pub unit: &'static str,
    /// Kind of the values.
    pub values: Values,
    /// Published result.
    pub published: Published,
    /// Values with the mechanism off, per run.
    pub before: Vec<f64>,
    /// Values with the mechanism on, per run.
    pub after: Vec<f64>,
    /// Values with this project's defaults, per run.
    pub default: Vec<f64>,
}

/// A condition that must hold for the values to be meaningful.
#[derive(Debug, Serialize)]
pub struct Check {
    /// Description of the condition.
    pub name: String,
    /// Whether it holds.
    pub holds: bool,
}

impl Check {
    /// Result of the check as text.
    pub fn word(&self) -> &'static str {
        if self.holds { "holds" } else { "DOES NOT HOLD" }
    }
}

/// Checks that every experiment reports ([book: published-experiments#cross-checks]).
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Crosschecks {
    /// No checks apply.
    NotApplicable {
        /// Reason.
        not_applicable: &'static str,
    },
    /// Results from runs observed event by event.
    Seen {
        /// Conditions that hold unless there is a bug. If one fails, no value is meaningful.
        must: Vec<Check>,
        /// Description of the reclaim regime.
        regime: Vec<String>,
    },
}

impl Crosschecks {
    /// The conditions that must hold.
    pub fn must(&self) -> &[Check] {
        match self {
            Crosschecks::NotApplicable { .. } => &[],
            Crosschecks::Seen { must, .. } => must,
        }
    }
}

/// Result of an experiment.
#[derive(Debug)]
pub struct Experiment {
    /// Name of the experiment.
    pub name: &'static str,
    /// Environment: `sim` or `real`.
    pub world: &'static str,
    /// Description of the workload. Each line is a paragraph.
    pub workload: String,
    /// Runs per setting.
    pub runs: u32,
    /// Whether the runs were so short that they only test the experiment itself.
    pub quick: bool,
    /// Reason why the machine was not fit for timing, if so.
    pub untimely: Option<&'static str>,
    /// Duration of the experiment in seconds.
    pub seconds: f64,
    /// Measured metrics.
    pub rows: Vec<MetricRow>,
    /// Expected conditions.
    pub checks: Vec<Check>,
    /// Cross-checks.
    pub crosschecks: Crosschecks,
    /// Additional data to show.
    pub shown: Vec<Shown>,
}

/// Relative change. From zero to anything is a change of 1.
pub fn change(before: f64, after: f64) -> f64 {
    match (before == 0.0, after == 0.0) {
        (true, true) => 0.0,
        (true, false) => after.signum(),
        _ => after / before - 1.0,
    }
}

impl MetricRow {
    /// Relative change of the median.
    pub fn change(&self) -> f64 {
        change(median(&self.before), median(&self.after))
    }

    /// Confidence interval of the relative change.
    pub fn interval(&self) -> Interval {
        let pairs = self.before.iter().zip(&self.after);
        let changes: Vec<f64> = pairs.map(|(&before, &after)| change(before, after)).collect();
        match self.values {
            // Each value is already a statistic of many runs, so take the central 95 % of them.
            Values::Resampled { .. } => {
                Interval { low: quantile(&changes, 0.025), high: quantile(&changes, 0.975), confidence: 0.95 }
            }
            Values::Counted | Values::Timed | Values::Given => median_interval(&changes),
        }
    }

    /// The direction of the change: `up`, `down` or `same`; `open` if the interval contains
    /// increases and decreases, or there is a single pair of runs.
    pub fn direction(&self) -> &'static str {
        let Interval { low, high, .. } = self.interval();
        if self.values != Values::Given && self.runs() < 2 {
            "open"
        } else if low > 0.0 {
            "up"
        } else if high < 0.0 {
            "down"
        } else if low == 0.0 && high == 0.0 {
            "same"
        } else {
            "open"
        }
    }

    /// Runs per setting behind the values.
    pub fn runs(&self) -> usize {
        match self.values {
            Values::Resampled { runs } => runs,
            Values::Counted | Values::Timed | Values::Given => self.before.len().min(self.after.len()),
        }
    }

    /// The verdict, provided that times are meaningful.
    ///
    /// With a published change, the interval decides if it lies wholly above the required share,
    /// wholly below it, or on the wrong side of zero or close to zero. Otherwise the interval must
    /// not be wider than a few percent, or than the published change; then the median decides.
    /// Without a published change, or with a negligible one, the metric holds or changes; it is not
    /// "reproduced". To hold, the whole interval must be near zero and the median closer. An
    /// interval wholly away from zero is a change.
    fn judge(&self) -> Verdict {
        match self.published {
            Published::Nothing => return Verdict::Unpublished,
            _ if self.values == Values::Given => return Verdict::ByConstruction,
            _ if self.runs() < 2 => return Verdict::OneRun,
            _ => {}
        }
        let Interval { low, high, .. } = self.interval();
        let unchanged = |yes, no| match (low, high) {
            (low, high) if low > NO_CHANGE || high < -NO_CHANGE => no,
            (low, high) if low >= -TELLING && high <= TELLING && self.change().abs() <= NO_CHANGE => yes,
            _ => Verdict::TooNoisy,
        };
        let published = match self.published {
            Published::Change { before, after } => change(before, after),
            Published::Same | Published::Nothing => 0.0,
        };
        if published.abs() <= NO_CHANGE {
            return unchanged(Verdict::Holds, Verdict::Changes);
        }
        // Relative to the published change.
        let (one, other) = (low / published, high / published);
        let (least, most) = (one.min(other), one.max(other));
        if least >= SHARE {
            Verdict::Reproduced
        } else if most <= 0.0 || (low >= -NO_CHANGE && high <= NO_CHANGE) {
            Verdict::NotReproduced
        } else if least > 0.0 && most < SHARE {
            Verdict::Weaker
        } else if high - low > published.abs().max(TELLING) || (least <= 0.0 && most >= SHARE) {
            Verdict::TooNoisy
        } else if least <= 0.0 {
            Verdict::NotReproduced
        } else if self.change() / published >= SHARE {
            Verdict::Reproduced
        } else {
            Verdict::Weaker
        }
    }

    /// The published relative change.
    pub fn published_change(&self) -> Option<f64> {
        self.published_pair().map(|(before, after)| change(before, after))
    }

    /// The published values.
    pub fn published_pair(&self) -> Option<(f64, f64)> {
        if let Published::Change { before, after } = self.published { Some((before, after)) } else { None }
    }
}

impl Experiment {
    /// The verdict on a metric.
    pub fn verdict_of(&self, row: &MetricRow) -> Verdict {
        match row.judge() {
            Verdict::Unpublished => Verdict::Unpublished,
            _ if row.values == Values::Timed && self.untimely.is_some() => Verdict::NotMeasurable,
            verdict => verdict,
        }
    }

    /// The verdict on the experiment: that of its first metric, which the publication is about.
    pub fn verdict(&self) -> Verdict {
        self.verdict_of(&self.rows[0])
    }

    /// Reasons why the verdict on a metric is provisional. In a quick test, that holds for every
    /// metric.
    fn caveat(&self, row: &MetricRow) -> Option<String> {
        let runs = row.runs();
        let few = match self.verdict_of(row) {
            Verdict::Unpublished | Verdict::NotMeasurable | Verdict::ByConstruction => None,
            _ if runs < PAIRS_MIN => Some(match runs {
                1 => "1 run".to_owned(),
                runs => format!("{runs} runs"),
            }),
            _ => None,
        };
        let quick = self.quick.then(|| "quick".to_owned());
        let all: Vec<String> = quick.into_iter().chain(few).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// The verdict on a metric as text, with its caveat.
    pub fn verdict_text(&self, row: &MetricRow) -> String {
        let word = self.verdict_of(row).word();
        self.caveat(row).map_or(word.to_owned(), |caveat| format!("{word} ({caveat})"))
    }

    fn row_document<'a>(&self, row: &'a MetricRow) -> RowDocument<'a> {
        let Interval { low, high, confidence } = row.interval();
        RowDocument {
            metric: row.metric,
            unit: row.unit,
            timed: row.values == Values::Timed,
            published: row.published_pair().map(|(before, after)| PublishedDocument { before, after }),
            measured: row.of_settings(median),
            spread: row.of_settings(spread),
            change: ChangeDocument {
                median: row.change(),
                low,
                high,
                confidence,
                direction: row.direction(),
            },
            runs: row.of_settings(|runs| runs),
            verdict: self.verdict_of(row).word(),
            caveat: self.caveat(row),
        }
    }

    /// All checks: expected conditions first, then cross-checks.
    pub fn all_checks(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().chain(self.crosschecks.must())
    }
}

/// Additional data of an experiment.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Shown {
    /// Timelines of some settings.
    Timelines {
        /// Identifier of letters, digits and `-`.
        name: &'static str,
        /// Description.
        about: &'static str,
        /// The runs.
        timelines: Vec<Timeline>,
    },
    /// A value per tenant of many equal ones, in one run of each setting.
    Fairness {
        /// Description of the value.
        about: &'static str,
        /// Word for a tenant, such as worker or memcg.
        #[serde(skip)]
        who: &'static str,
        /// The settings.
        settings: Vec<Shares>,
    },
    /// Values step by step, where each step adds to the one before.
    Steps {
        /// Description.
        about: &'static str,
        /// Names of the steps.
        steps: Vec<&'static str>,
        /// Metrics, each with a value per step.
        columns: Vec<Column>,
    },
    /// Change of each pair of runs, before and after.
    Pairs {
        /// Changes by metric.
        metrics: Vec<PairChanges>,
    },
}

/// Values of equal tenants under one setting.
#[derive(Debug, Clone, Serialize)]
pub struct Shares {
    /// Name of the setting.
    pub label: &'static str,
    /// Jain's fairness index: 1 if all values are equal, 1/n if one of n tenants has everything.
    pub jain: f64,
    /// A value per tenant, in order of creation.
    pub values: Vec<f64>,
}

impl Shares {
    /// Shares from a value per tenant.
    pub fn new(label: &'static str, values: Vec<f64>) -> Shares {
        Shares { label, jain: jain(&values), values }
    }
}

/// A metric's values step by step.
#[derive(Debug, Clone, Serialize)]
pub struct Column {
    /// Name of the metric.
    pub metric: &'static str,
    /// Unit of the values.
    pub unit: &'static str,
    /// A value per step.
    pub values: Vec<f64>,
    /// Published values, in the order of the series: without it first, with all of it last. Those
    /// in between belong to some of the steps. Empty: none was published.
    pub published: &'static [f64],
}

/// Changes of a metric per pair of runs.
#[derive(Debug, Clone, Serialize)]
pub struct PairChanges {
    /// Name of the metric.
    pub metric: &'static str,
    /// Change of each pair from before to after, in percent.
    pub change_percent: Vec<f64>,
}

impl Shown {
    /// Whether there is no data.
    pub fn is_empty(&self) -> bool {
        match self {
            Shown::Timelines { timelines, .. } => timelines.is_empty(),
            Shown::Fairness { settings, .. } => settings.is_empty(),
            Shown::Steps { columns, .. } => columns.is_empty(),
            Shown::Pairs { metrics } => metrics.is_empty(),
        }
    }
}

#[derive(Serialize)]
struct OfSettings<T> {
    before: T,
    after: T,
    default: T,
}

impl MetricRow {
    fn of_settings<'a, T>(&'a self, figure: impl Fn(&'a [f64]) -> T) -> OfSettings<T> {
        OfSettings {
            before: figure(&self.before),
            after: figure(&self.after),
            default: figure(&self.default),
        }
    }
}

#[derive(Serialize)]
struct RowDocument<'a> {
    metric: &'static str,
    unit: &'static str,
    timed: bool,
    published: Option<PublishedDocument>,
    measured: OfSettings<f64>,
    spread: OfSettings<f64>,
    change: ChangeDocument,
    runs: OfSettings<&'a [f64]>,
    verdict: &'static str,
    caveat: Option<String>,
}

#[derive(Serialize)]
struct PublishedDocument {
    before: f64,
    after: f64,
}

#[derive(Serialize)]
struct ChangeDocument {
    median: f64,
    low: f64,
    high: f64,
    confidence: f64,
    direction: &'static str,
}

/// An experiment serialises to its part of the document of `mglru reproduce --json`.
impl Serialize for Experiment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Document<'a> {
            name: &'static str,
            world: &'static str,
            runs: u32,
            seconds: f64,
            quick: bool,
            times_say_nothing: Option<&'static str>,
            verdict: &'static str,
            rows: Vec<RowDocument<'a>>,
            checks: &'a [Check],
            crosschecks: &'a Crosschecks,
            shown: &'a [Shown],
        }
        let document = Document {
            name: self.name,
            world: self.world,
            runs: self.runs,
            seconds: self.seconds,
            quick: self.quick,
            times_say_nothing: self.untimely,
            verdict: self.verdict().word(),
            rows: self.rows.iter().map(|row| self.row_document(row)).collect(),
            checks: &self.checks,
            crosschecks: &self.crosschecks,
            shown: &self.shown,
        };
        document.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(published: Published, before: &[f64], after: &[f64]) -> MetricRow {
        let (before, after) = (before.into(), after.into());
        MetricRow {
            metric: "m",
            unit: "1",
            values: Values::Counted,
            published,
            before,
            after,
            default: vec![1.0],
        }
    }

    fn experiment(row: MetricRow) -> Experiment {
        Experiment {
            name: "x",
            world: "real",
            workload: String::new(),
            runs: row.before.len() as u32,
            quick: false,
            untimely: None,
            seconds: 0.0,
            rows: vec![row],
            checks: Vec::new(),
            crosschecks: Crosschecks::NotApplicable { not_applicable: "a test" },
            shown: Vec::new(),
        }
    }

    fn times(quick: bool, untimely: Option<&'static str>, row: MetricRow) -> String {
        let experiment =
            Experiment { quick, untimely, ..experiment(MetricRow { values: Values::Timed, ..row }) };
        assert_eq!(experiment.verdict(), experiment.verdict_of(&experiment.rows[0]));
        experiment.verdict_text(&experiment.rows[0])
    }

    #[test]
    fn verdicts_ask_for_direction_and_size() {
        let half = Published::Change { before: 100.0, after: 50.0 };
        let still = [100.0; 6];
        let of = |published, after: &[f64]| row(published, &still, after).judge();
        assert_eq!(of(half, &[55.0; 6]), Verdict::Reproduced);
        assert_eq!(of(half, &[20.0; 6]), Verdict::Reproduced);
        assert_eq!(of(half, &[80.0; 6]), Verdict::Weaker);
        assert_eq!(of(half, &[100.0; 6]), Verdict::NotReproduced);
        assert_eq!(of(half, &[99.9; 6]), Verdict::NotReproduced, "certain, and next to nothing");
        assert_eq!(of(half, &[120.0; 6]), Verdict::NotReproduced);
        assert_eq!(of(Published::Same, &[101.0; 6]), Verdict::Holds);
        assert_eq!(of(Published::Same, &[110.0; 6]), Verdict::Changes);
        let none = Published::Change { before: 7.0, after: 7.0 };
        assert_eq!(of(none, &[100.5; 6]), Verdict::Holds, "an absent effect is not reproduced");
        assert_eq!(of(none, &[110.0; 6]), Verdict::Changes);
        // If a narrow interval does not decide, the median does.
        let some = Published::Change { before: 100.0, after: 110.0 };
        assert_eq!(of(some, &[105.0, 106.0, 108.0, 108.0, 109.0, 109.0]), Verdict::Reproduced);
        assert_eq!(of(some, &[104.0, 105.0, 106.0, 106.0, 107.0, 108.0]), Verdict::Weaker);
        assert_eq!(of(some, &[98.0, 99.0, 100.0, 101.0, 102.0, 102.0]), Verdict::NotReproduced);
    }

    /// Noise must not count as tolerance for a control: values that scatter by 22 % are not
    /// "reproduced".
    #[test]
    fn noisy_values_are_not_reproduced() {
        let still = [100.0; 6];
        let noisy = [60.0, 75.0, 99.0, 101.0, 125.0, 140.0];
        for published in [
            Published::Same,
            Published::Change { before: 100.0, after: 100.2 },
            Published::Change { before: 100.0, after: 107.2 },
        ] {
            assert_eq!(row(published, &still, &noisy).judge(), Verdict::TooNoisy);
        }
        assert_eq!(row(Published::Same, &[100.0, 60.0], &[77.4, 61.0]).judge(), Verdict::TooNoisy);
        // Pairs that scatter together still show a change.
        let twice = noisy.map(|value| 2.0 * value);
        assert_eq!(
            row(Published::Change { before: 1.0, after: 2.0 }, &noisy, &twice).judge(),
            Verdict::Reproduced
        );
        assert_eq!(row(Published::Same, &noisy, &noisy).judge(), Verdict::Holds);
    }

    #[test]
    fn times_of_an_unfit_machine_or_of_a_few_quick_runs_are_not_final() {
        let same = |runs: usize| row(Published::Same, &vec![100.0; runs], &vec![100.0; runs]);
        assert_eq!(times(false, None, same(6)), "holds");
        assert_eq!(times(true, None, same(6)), "holds (quick)");
        assert_eq!(times(true, None, same(2)), "holds (quick, 2 runs)");
        assert_eq!(times(false, None, same(2)), "holds (2 runs)");
        assert_eq!(times(false, Some("busy"), same(6)), "not measurable here");
        let unpublished =
            |quick| times(quick, Some("busy"), MetricRow { published: Published::Nothing, ..same(2) });
        assert_eq!((unpublished(true), unpublished(false)), ("- (quick)".to_owned(), "-".to_owned()));
    }

    /// A change of exactly the published size, once, says nothing; nor does a value that the setup
    /// decides.
    #[test]
    fn one_run_and_given_values_have_no_verdict() {
        let half = Published::Change { before: 100.0, after: 50.0 };
        let of =
            |runs: usize, values| MetricRow { values, ..row(half, &vec![100.0; runs], &vec![50.0; runs]) };
        assert_eq!(of(1, Values::Counted).judge(), Verdict::OneRun);
        assert_eq!(times(false, None, of(1, Values::Timed)), "no verdict (1 run)");
        assert_eq!(of(6, Values::Given).judge(), Verdict::ByConstruction);
        assert_eq!(of(6, Values::Counted).judge(), Verdict::Reproduced);
        let directions = [&[50.0, 60.0][..], &[100.0, 100.0], &[150.0, 110.0], &[90.0, 110.0], &[50.0]]
            .map(|after| row(half, &vec![100.0; after.len()], after).direction());
        assert_eq!(directions, ["down", "same", "up", "open", "open"]);
    }

    /// 500 values of a bootstrap are not 500 runs: an interval of their median would be far too
    /// narrow.
    #[test]
    fn resampled_values_are_not_counted_as_runs() {
        let after: Vec<f64> = (0..=200).map(|at| f64::from(at) / 2.0).collect();
        let resampled = MetricRow {
            values: Values::Resampled { runs: 10 },
            ..row(Published::Same, &[50.0; 201], &after)
        };
        let interval = resampled.interval();
        assert!((interval.low + 0.95).abs() < 1e-9 && (interval.high - 0.95).abs() < 1e-9, "{interval:?}");
        assert_eq!(resampled.runs(), 10);
        // However often one run is drawn, it does not say how far apart runs are.
        let one = MetricRow {
            values: Values::Resampled { runs: 1 },
            ..row(Published::Change { before: 12.0, after: 2.0 }, &[0.0; 500], &[0.0; 500])
        };
        assert_eq!((one.judge(), one.direction()), (Verdict::OneRun, "open"));
    }
}
