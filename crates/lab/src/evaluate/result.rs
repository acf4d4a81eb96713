//! Effects and verdicts.

use super::loads::{Load, Size};
use super::{EvaluationRequest, Revisions, Setting};
use crate::document::document;
use crate::effect::{Count, Effect, Metric, Verdict};
use serde::{Serialize, Serializer};

/// The compared metrics; the first decides the verdict.
pub const METRICS: [Metric; 5] =
    [Metric::Misses, Metric::ScannedPerReclaimed, Metric::Written, Metric::LockHolds, Metric::WalkedEntries];

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
        Evaluation { change, seed, size, rows, settings, refused, runs, revisions }
    }

    /// Confidence of the intervals, 0 to 1.
    pub fn confidence(&self) -> f64 {
        self.rows.first().map_or(0.0, |row| row.misses().interval.confidence)
    }

    /// Names of the loads and settings with a verdict: `skewed (linux-7.2)`.
    pub fn with(&self, verdict: Verdict) -> Vec<String> {
        let rows = self.rows.iter().filter(|row| row.verdict == verdict);
        rows.map(|row| format!("{} ({})", row.load, row.setting)).collect()
    }
}

impl Serialize for Evaluation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let refused = self.refused.iter().map(|(preset, why)| Refused { preset, why });
        document!(serializer, {
            "change": self.change,
            "version": env!("CARGO_PKG_VERSION"),
            "revisions": self.revisions,
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
