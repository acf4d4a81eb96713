//! Evidence: what was published, what we measured, how far it scatters, and what that comes to.
//!
//! Of each metric the medians of all runs are shown. Runs before and after are pairs: they have the
//! same seed, or took turns. A verdict looks at the interval in which the median of their changes
//! lies ([`median_interval`], 95 % from six pairs on), never at medians alone: noise makes nothing
//! more alike. [`Row::judge`] has the rules.

use crate::statistics::{Interval, jain, median, median_interval, quantile, spread};
use crate::timeline::Timeline;
use serde::{Serialize, Serializer};

/// The part of a published change that has to show.
const SHARE: f64 = 0.7;
/// A change that is none.
const NO_CHANGE: f64 = 0.02;
/// How far an interval may reach if it is to show that nothing changes, and how wide it may be if
/// it is to tell a change from its share. A few percent: of a busy machine, quartiles of twelve
/// runs are 10 to 30 % apart.
const TELLING: f64 = 0.05;
/// With fewer pairs of runs no interval is certain to 95 %.
pub const PAIRS_MIN: usize = 6;

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

/// What the values of a metric are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Counts, or times of the simulator: the same on every machine.
    Counted,
    /// Real time: it depends on the machine, and on what else it does.
    Timed,
    /// A statistic of runs drawn again and again from all of them, before and after the same ones:
    /// not runs themselves.
    Resampled,
}

/// What a metric, or an experiment, comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It changes as published: in that direction, by at least [`SHARE`] of it.
    Reproduced,
    /// The direction is right, and the change is less, but more than none.
    Weaker,
    /// It does not change as published.
    NotReproduced,
    /// A control that does not change.
    Holds,
    /// A control that does.
    Changes,
    /// Runs scatter so far that the published change and none are both possible.
    TooNoisy,
    /// It is a time, and the machine was not fit to measure times.
    Untold,
    /// Nothing was published.
    Unpublished,
}

impl Verdict {
    /// In words.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Weaker => "weaker",
            Verdict::NotReproduced => "not reproduced",
            Verdict::Holds => "holds",
            Verdict::Changes => "changes",
            Verdict::TooNoisy => "too noisy to tell",
            Verdict::Untold => "cannot be told here",
            Verdict::Unpublished => "-",
        }
    }
}

/// A metric in all runs of three settings.
#[derive(Debug)]
pub struct Row {
    /// Its stable name.
    pub metric: &'static str,
    /// Of what the figures are.
    pub unit: &'static str,
    /// What they are.
    pub values: Values,
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
#[derive(Debug, Serialize)]
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

/// What every reproduction has to report of its runs ([book: published-experiments#cross-checks]).
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Crosschecks {
    /// There is nothing to be checked.
    NotApplicable {
        /// For this reason.
        not_applicable: &'static str,
    },
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
            Crosschecks::NotApplicable { .. } => &[],
            Crosschecks::Seen { must, .. } => must,
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
    /// So short that it shows whether it works, and not what comes out.
    pub quick: bool,
    /// The machine was not fit to measure times, for this reason.
    pub untimely: Option<&'static str>,
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
pub fn change(before: f64, after: f64) -> f64 {
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

    /// Where the change is, as a share of what was before.
    pub fn interval(&self) -> Interval {
        let pairs = self.before.iter().zip(&self.after);
        let changes: Vec<f64> = pairs.map(|(&before, &after)| change(before, after)).collect();
        match self.values {
            // Each is a median already, so to say: 95 of 100 of them.
            Values::Resampled => {
                Interval { low: quantile(&changes, 0.025), high: quantile(&changes, 0.975), confidence: 0.95 }
            }
            Values::Counted | Values::Timed => median_interval(&changes),
        }
    }

    /// What it comes to, if times mean anything.
    ///
    /// If a change was published, the interval decides where it is wholly beyond the share that has
    /// to show, below it, or on the wrong side of nothing or next to it. Where it is not, it must
    /// not be wider than a few percent, or than the published change; then the median decides.
    /// Where none was published, or next to none, all of the interval has to be near nothing, and
    /// the median closer; what is wholly away from it is a change.
    fn judge(&self) -> Verdict {
        let Interval { low, high, .. } = self.interval();
        let unchanged = |yes, no| match (low, high) {
            (low, high) if low > NO_CHANGE || high < -NO_CHANGE => no,
            (low, high) if low >= -TELLING && high <= TELLING && self.change().abs() <= NO_CHANGE => yes,
            _ => Verdict::TooNoisy,
        };
        let published = match self.published {
            Published::Nothing => return Verdict::Unpublished,
            Published::Same => return unchanged(Verdict::Holds, Verdict::Changes),
            Published::Change { before, after } => change(before, after),
        };
        if published.abs() <= NO_CHANGE {
            return unchanged(Verdict::Reproduced, Verdict::NotReproduced);
        }
        // As shares of what was published.
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

    /// The published change, as a share of what was before.
    pub fn published_change(&self) -> Option<f64> {
        self.published_pair().map(|(before, after)| change(before, after))
    }

    /// What was published.
    pub fn published_pair(&self) -> Option<(f64, f64)> {
        if let Published::Change { before, after } = self.published { Some((before, after)) } else { None }
    }
}

impl Experiment {
    /// What a metric comes to.
    pub fn verdict_of(&self, row: &Row) -> Verdict {
        match row.judge() {
            Verdict::Unpublished => Verdict::Unpublished,
            _ if row.values == Values::Timed && self.untimely.is_some() => Verdict::Untold,
            verdict => verdict,
        }
    }

    /// The verdict on the whole: that of the metric that the publication is about, which stands
    /// first.
    pub fn verdict(&self) -> Verdict {
        self.verdict_of(&self.rows[0])
    }

    /// Why no verdict on a metric is final, if so.
    fn caveat(&self, row: &Row) -> Option<String> {
        let runs = match row.values {
            Values::Resampled => self.runs as usize,
            Values::Counted | Values::Timed => row.before.len(),
        };
        let exact = row.interval().low == row.interval().high && row.values != Values::Timed;
        match self.verdict_of(row) {
            Verdict::Unpublished | Verdict::Untold => None,
            _ if row.values == Values::Timed && self.quick => Some("quick".to_owned()),
            _ if runs < PAIRS_MIN && !exact => Some(match runs {
                1 => "1 run".to_owned(),
                runs => format!("{runs} runs"),
            }),
            _ => None,
        }
    }

    /// The verdict on a metric in words, with what is to be known of it.
    pub fn told(&self, row: &Row) -> String {
        let word = self.verdict_of(row).word();
        self.caveat(row).map_or(word.to_owned(), |caveat| format!("{word} ({caveat})"))
    }

    fn row_document<'a>(&self, row: &'a Row) -> RowDocument<'a> {
        let Interval { low, high, confidence } = row.interval();
        RowDocument {
            metric: row.metric,
            unit: row.unit,
            timed: row.values == Values::Timed,
            published: row.published_pair().map(|(before, after)| PublishedDocument { before, after }),
            measured: row.of_settings(median),
            spread: row.of_settings(spread),
            change: ChangeDocument { median: row.change(), low, high, confidence },
            runs: row.of_settings(|runs| runs),
            verdict: self.verdict_of(row).word(),
            caveat: self.caveat(row),
        }
    }

    /// Everything that was checked: what was expected first.
    pub fn all_checks(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().chain(self.crosschecks.must())
    }
}

/// What an experiment shows besides its metrics.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Shown {
    /// Runs of some settings over time.
    Timelines {
        /// Of what: letters, digits, `-`.
        name: &'static str,
        /// Of what, in words.
        about: &'static str,
        /// The runs.
        timelines: Vec<Timeline>,
    },
    /// What each of many equal tenants got, or lost, in one run of each setting.
    Fairness {
        /// What.
        about: &'static str,
        /// What a tenant is called: a worker, a memcg.
        #[serde(skip)]
        who: &'static str,
        /// The settings.
        settings: Vec<Shares>,
    },
    /// What each pair of runs says, before and after one after the other.
    Pairs {
        /// By metric.
        metrics: Vec<PairChanges>,
    },
}

/// What equal tenants got under one setting.
#[derive(Debug, Clone, Serialize)]
pub struct Shares {
    /// The setting's name.
    pub label: &'static str,
    /// Jain's index of the values: 1 where all got the same, 1/n where one of n got everything.
    pub jain: f64,
    /// A value for each tenant, in the order in which they were made.
    pub values: Vec<f64>,
}

impl Shares {
    /// Of these values.
    pub fn new(label: &'static str, values: Vec<f64>) -> Shares {
        Shares { label, jain: jain(&values), values }
    }
}

/// Changes of a metric, run by run.
#[derive(Debug, Clone, Serialize)]
pub struct PairChanges {
    /// The metric's name.
    pub metric: &'static str,
    /// Of each pair of runs, from before to after, in percent.
    pub change_percent: Vec<f64>,
}

impl Shown {
    /// There is nothing to see.
    pub fn is_empty(&self) -> bool {
        match self {
            Shown::Timelines { timelines, .. } => timelines.is_empty(),
            Shown::Fairness { settings, .. } => settings.is_empty(),
            Shown::Pairs { metrics } => metrics.is_empty(),
        }
    }
}

/// A figure of each setting.
#[derive(Serialize)]
struct OfSettings<T> {
    before: T,
    after: T,
    default: T,
}

impl Row {
    fn of_settings<'a, T>(&'a self, figure: impl Fn(&'a [f64]) -> T) -> OfSettings<T> {
        OfSettings {
            before: figure(&self.before),
            after: figure(&self.after),
            default: figure(&self.default),
        }
    }
}

/// A row of a document.
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
}

/// Serialised, an experiment is its part of the document of `mglru reproduce --json`.
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

    fn row(published: Published, before: &[f64], after: &[f64]) -> Row {
        let (before, after) = (before.into(), after.into());
        Row { metric: "m", unit: "1", values: Values::Counted, published, before, after, default: vec![1.0] }
    }

    fn times(quick: bool, untimely: Option<&'static str>, row: Row) -> String {
        let experiment = Experiment {
            name: "x",
            world: "real",
            workload: String::new(),
            runs: row.before.len() as u32,
            quick,
            untimely,
            seconds: 0.0,
            rows: vec![Row { values: Values::Timed, ..row }],
            checks: Vec::new(),
            crosschecks: Crosschecks::NotApplicable { not_applicable: "a test" },
            shown: Vec::new(),
        };
        assert_eq!(experiment.verdict(), experiment.verdict_of(&experiment.rows[0]));
        experiment.told(&experiment.rows[0])
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
        assert_eq!(of(none, &[100.5; 6]), Verdict::Reproduced);
        assert_eq!(of(none, &[110.0; 6]), Verdict::NotReproduced);
        // Where the interval does not decide, and is narrow, the median does.
        let some = Published::Change { before: 100.0, after: 110.0 };
        assert_eq!(of(some, &[105.0, 106.0, 108.0, 108.0, 109.0, 109.0]), Verdict::Reproduced);
        assert_eq!(of(some, &[104.0, 105.0, 106.0, 106.0, 107.0, 108.0]), Verdict::Weaker);
        assert_eq!(of(some, &[98.0, 99.0, 100.0, 101.0, 102.0, 102.0]), Verdict::NotReproduced);
    }

    /// The spread of runs once counted as room for a control: what scattered by 22 % was
    /// "reproduced".
    #[test]
    fn noise_makes_nothing_alike() {
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
        // Runs that scatter together say something all the same.
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
        assert_eq!(times(true, None, same(2)), "holds (quick)");
        assert_eq!(times(false, None, same(2)), "holds (2 runs)");
        assert_eq!(times(false, Some("busy"), same(6)), "cannot be told here");
        assert_eq!(times(true, Some("busy"), Row { published: Published::Nothing, ..same(2) }), "-");
    }

    /// 500 values of a bootstrap are not 500 runs: an interval of their median would be far too
    /// narrow.
    #[test]
    fn resampled_values_are_not_counted_as_runs() {
        let after: Vec<f64> = (0..=200).map(|at| f64::from(at) / 2.0).collect();
        let resampled = Row { values: Values::Resampled, ..row(Published::Same, &[50.0; 201], &after) };
        let interval = resampled.interval();
        assert!((interval.low + 0.95).abs() < 1e-9 && (interval.high - 0.95).abs() < 1e-9, "{interval:?}");
    }
}
