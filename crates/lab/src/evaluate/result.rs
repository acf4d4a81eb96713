//! Effects and verdicts.

use super::loads::{Load, Size};
use super::{EvaluationRequest, Revisions, Setting};
use crate::document::document;
use crate::effect::{Count, Effect, Metric, Verdict};
use serde::{Serialize, Serializer};

/// The compared metrics; the first decides the verdict.
pub const METRICS: [Metric; 5] =
    [Metric::Misses, Metric::ScannedPerReclaimed, Metric::Written, Metric::LockHolds, Metric::WalkedEntries];

/// The smallest median change of a cost that a report names, in percent.
pub const NOTABLE_PERCENT: f64 = 5.0;

/// A load in a setting.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadRow {
    /// Name of the load.
    pub load: &'static str,
    /// A description of the load.
    #[serde(skip)]
    pub words: &'static str,
    /// Name of the setting: of a preset, or of both.
    pub setting: String,
    /// The verdict.
    pub verdict: Verdict,
    /// An effect per metric, in the order of [`METRICS`].
    pub effects: Vec<Effect>,
}

impl LoadRow {
    /// The effect on misses.
    pub fn misses(&self) -> &Effect {
        &self.effects[0]
    }
}

/// Result of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// The evaluated change, in a line.
    pub change: String,
    /// The first seed.
    pub seed: u64,
    /// Length of each load.
    pub size: Size,
    /// The rows, by load and then by setting.
    pub rows: Vec<LoadRow>,
    /// Names of the settings.
    pub settings: Vec<String>,
    /// Presets on which the change cannot be tried, with reasons.
    pub refused: Vec<(&'static str, String)>,
    /// Number of seeds.
    pub runs: usize,
    /// The revisions of the builds.
    pub revisions: Revisions,
    /// Whether the other build is this one, byte for byte.
    pub is_same_program: bool,
}

impl Evaluation {
    /// Compares counts by setting, load and seed.
    pub(super) fn new(
        request: &EvaluationRequest,
        loads: &[Load],
        settings: &[Setting],
        refused: Vec<(&'static str, String)>,
        before: &[Vec<Vec<Count>>],
        after: &[Vec<Vec<Count>>],
    ) -> Evaluation {
        let mut rows = Vec::new();
        for (at, load) in loads.iter().enumerate() {
            for (number, setting) in settings.iter().enumerate() {
                let (before, after) = (&before[number][at], &after[number][at]);
                let effect =
                    |metric: Metric| Effect::of(metric, &metric.values(before), &metric.values(after), None);
                let effects: Vec<Effect> = METRICS.into_iter().map(effect).collect();
                let verdict = effects[0].verdict(before == after);
                let setting = setting.name.clone();
                rows.push(LoadRow { load: load.name, words: load.words, setting, verdict, effects });
            }
        }
        let runs = before.first().and_then(|loads| loads.first()).map_or(0, Vec::len);
        let settings = settings.iter().map(|setting| setting.name.clone()).collect();
        let (change, revisions) = (request.change.words(), request.revisions());
        let (seed, size) = (request.seed, request.size);
        let is_same_program = false;
        Evaluation { change, seed, size, rows, settings, refused, runs, revisions, is_same_program }
    }

    /// Confidence of the intervals, 0 to 1.
    pub fn confidence(&self) -> f64 {
        self.rows.first().map_or(0.0, |row| row.misses().interval.confidence)
    }

    /// The loads with a verdict, each with the settings in which it has it: `skewed (linux-7.2)`.
    pub fn with(&self, verdict: Verdict) -> Vec<String> {
        self.loads_of(|row| (row.verdict == verdict).then(String::new))
    }

    /// The loads for which a cost, a metric after the first, rises (`up`) or falls by at least
    /// [`NOTABLE_PERCENT`], with the changes: `writes (linux-7.2 +8.0 %)`. All of the interval is
    /// on that side of 0.
    pub fn with_cost(&self, metric: usize, up: bool) -> Vec<String> {
        self.loads_of(|row| {
            let effect = &row.effects[metric];
            let is_notable = effect.is_noise() == Some(false)
                && (effect.median > 0.0) == up
                // A cost that is 0 before is notable from 1 on: it has no percentage.
                && effect.median.abs() >= if effect.is_percent { NOTABLE_PERCENT } else { 1.0 };
            is_notable.then(|| match effect.is_percent {
                true => format!(" {:+.1} %", effect.median),
                false => format!(" {:.2} → {:.2}", effect.before, effect.after),
            })
        })
    }

    /// The loads of the rows for which there is a remark, each with the settings and the remarks;
    /// `all` stands for all of several settings without a remark, and `all loads` for all rows.
    fn loads_of(&self, remark: impl Fn(&LoadRow) -> Option<String>) -> Vec<String> {
        let of_load = |rows: &[LoadRow]| {
            let found: Vec<(&str, String)> =
                rows.iter().filter_map(|row| Some((&row.setting[..], remark(row)?))).collect();
            let is_bare = found.iter().all(|(_, remark)| remark.is_empty());
            let settings = match &found[..] {
                [] => return None,
                all if is_bare && all.len() == self.settings.len() && all.len() > 1 => "all".to_owned(),
                some => {
                    let words: Vec<String> =
                        some.iter().map(|(setting, remark)| format!("{setting}{remark}")).collect();
                    words.join(", ")
                }
            };
            Some(format!("{} ({settings})", rows[0].load))
        };
        if self.rows.len() > 1 && self.rows.iter().all(|row| remark(row).is_some_and(|it| it.is_empty())) {
            return vec!["all loads".to_owned()];
        }
        self.rows.chunk_by(|a, b| a.load == b.load).filter_map(of_load).collect()
    }
}

impl Serialize for Evaluation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let refused = self.refused.iter().map(|(preset, why)| Refused { preset, why });
        document!(serializer, {
            "change": self.change,
            "version": env!("CARGO_PKG_VERSION"),
            "revisions": self.revisions,
            "same_program": self.is_same_program,
            "settings": self.settings,
            "not_applicable": refused.collect::<Vec<_>>(),
            "runs": self.runs,
            "seed": self.seed,
            "accesses": self.size.accesses,
            "pages": self.size.pages,
            "memory_pages": self.size.memory_pages(),
            "confidence": self.confidence(),
            "rows": self.rows,
        })
    }
}

/// A preset on which the change cannot be tried.
#[derive(Serialize)]
struct Refused<'a> {
    preset: &'a str,
    why: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::{Change, LOADS};
    use crate::statistics::CONFIDENCE;
    use mglru_core::{Preset, Switch};

    fn counts(misses: [u64; 6]) -> Vec<Count> {
        let of = Count { accesses: 1000, scanned: 30, reclaimed: 10, lock_holds: 50, ..Count::default() };
        misses.map(|misses| Count { misses, ..of }).into()
    }

    fn evaluated(before: Vec<Count>, after: Vec<Count>) -> Evaluation {
        let request = EvaluationRequest {
            presets: vec![Preset::Linux72],
            ..EvaluationRequest::new(Change::Mechanisms(vec![Switch::ReclaimLoop]))
        };
        let (settings, refused) = request.settings();
        Evaluation::new(&request, &LOADS[..1], &settings, refused, &[vec![before]], &[vec![after]])
    }

    #[test]
    fn misses_decide() {
        let evaluation = evaluated(counts([100; 6]), counts([90; 6]));
        let misses = evaluation.rows[0].misses();
        assert_eq!((misses.before, misses.after), (100.0, 90.0));
        assert!((misses.median + 10.0).abs() < 1e-9 && evaluation.confidence() >= CONFIDENCE);
        assert_eq!(evaluation.with(Verdict::Gains), ["skewed (linux-7.2)"]);
        assert_eq!(evaluation.with(Verdict::Loses), Vec::<String>::new());
        let same = evaluated(counts([100; 6]), counts([100; 6]));
        assert_eq!(same.rows[0].verdict, Verdict::Untouched);
    }

    #[test]
    fn few_runs_decide_nothing_and_costs_are_beside_the_misses() {
        let before: Vec<Count> = counts([100; 6]).into_iter().take(5).collect();
        let mut after = before.clone();
        after.iter_mut().for_each(|count| (count.misses, count.lock_holds) = (50, 60));
        let evaluation = evaluated(before, after);
        let row = &evaluation.rows[0];
        assert_eq!(row.verdict, Verdict::Uncertain);
        let locks = &row.effects[3];
        assert_eq!((locks.before, locks.after, locks.is_same), (50.0, 60.0, false));
        assert!([1, 2, 4].into_iter().all(|other| row.effects[other].is_same));
    }

    /// A change that made reclaim scan twice as much was called nothing to see.
    #[test]
    fn loads_are_listed_with_their_settings_and_notable_costs() {
        let before = counts([100; 6]);
        let after: Vec<Count> =
            before.iter().map(|&count| Count { scanned: 60, lock_holds: 51, ..count }).collect();
        let mut evaluation = evaluated(before, after);
        assert_eq!(evaluation.with_cost(1, true), ["skewed (linux-7.2 +100.0 %)"]);
        assert_eq!(evaluation.with_cost(1, false), Vec::<String>::new());
        assert_eq!(evaluation.with_cost(3, true), Vec::<String>::new(), "2 %");
        let first = evaluation.rows.remove(0);
        evaluation.settings.push("default".to_owned());
        for (load, verdicts) in [("skewed", [Verdict::Gains; 2]), ("flat", [Verdict::Gains, Verdict::Loses])]
        {
            let settings = evaluation.settings.iter().zip(verdicts);
            evaluation.rows.extend(settings.map(|(setting, verdict)| LoadRow {
                load,
                setting: setting.clone(),
                verdict,
                ..first.clone()
            }));
        }
        assert_eq!(evaluation.with(Verdict::Gains), ["skewed (all)", "flat (linux-7.2)"]);
        assert_eq!(evaluation.with(Verdict::Loses), ["flat (default)"]);
        evaluation.rows[3].verdict = Verdict::Gains;
        assert_eq!(evaluation.with(Verdict::Gains), ["all loads"]);
    }

    /// A change that only moved when pages were written, or which pages were activated, was called
    /// untouched.
    #[test]
    fn a_change_of_any_counter_is_no_untouched_load() {
        let before = counts([100; 6]);
        let mut after = before.clone();
        after[5].digest += 1;
        let evaluation = evaluated(before, after);
        assert!(evaluation.rows[0].effects.iter().all(|effect| effect.is_same));
        assert_eq!(evaluation.rows[0].verdict, Verdict::Nothing);
    }
}
