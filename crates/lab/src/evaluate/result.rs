//! Effects and verdicts.

use super::loads::Load;
use super::measure::Count;
use crate::statistics::{CONFIDENCE, Interval, median, median_interval};

/// A compared quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Misses: the benefit.
    Misses,
    /// Scanned folios per reclaimed folio.
    ScannedPerReclaimed,
    /// Times that a lock of lists was taken, per 1,000 accesses.
    LockHolds,
    /// Page-table entries that walks visited, per 1,000 accesses.
    WalkedEntries,
}

impl Metric {
    /// All metrics; the first decides the verdict.
    pub const ALL: [Metric; 4] =
        [Metric::Misses, Metric::ScannedPerReclaimed, Metric::LockHolds, Metric::WalkedEntries];

    /// Stable name.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Misses => "misses",
            Metric::ScannedPerReclaimed => "scanned_per_reclaimed",
            Metric::LockHolds => "lock_holds_per_1000_accesses",
            Metric::WalkedEntries => "walked_entries_per_1000_accesses",
        }
    }

    /// Description for people.
    pub fn words(self) -> &'static str {
        match self {
            Metric::Misses => "misses",
            Metric::ScannedPerReclaimed => "folios scanned per reclaimed",
            Metric::LockHolds => "lock holds per 1,000 accesses",
            Metric::WalkedEntries => "page-table entries walked per 1,000 accesses",
        }
    }

    fn value(self, count: &Count) -> f64 {
        let per_1000 = |value: u64| 1000.0 * value as f64 / count.accesses.max(1) as f64;
        match self {
            Metric::Misses => count.misses as f64,
            Metric::ScannedPerReclaimed if count.reclaimed == 0 => 0.0,
            Metric::ScannedPerReclaimed => count.scanned as f64 / count.reclaimed as f64,
            Metric::LockHolds => per_1000(count.lock_holds),
            Metric::WalkedEntries => per_1000(count.walked_entries),
        }
    }
}

/// A change of one metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// Median before.
    pub before: f64,
    /// Median after.
    pub after: f64,
    /// Median of the changes seed by seed, in percent of the value before; absolute where that is
    /// 0.
    pub median: f64,
    /// Its confidence interval.
    pub interval: Interval,
    /// Whether every run has the same value before and after.
    pub is_same: bool,
}

/// The judgement of a change under a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Fewer misses: the whole interval is below 0.
    Gains,
    /// More misses: the whole interval is above 0.
    Loses,
    /// The interval contains 0.
    Nothing,
    /// Every count of every run is the same.
    Untouched,
    /// There are too few runs for a verdict.
    Uncertain,
}

impl Verdict {
    /// Stable name.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Gains => "gains",
            Verdict::Loses => "loses",
            Verdict::Nothing => "nothing",
            Verdict::Untouched => "untouched",
            Verdict::Uncertain => "uncertain",
        }
    }
}

/// A load in a setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Name of the load.
    pub load: &'static str,
    /// A description of the load.
    pub words: &'static str,
    /// Name of the setting: of a preset, or of both.
    pub setting: String,
    /// An effect per metric, in the order of [`Metric::ALL`].
    pub effects: Vec<Effect>,
    /// The verdict.
    pub verdict: Verdict,
}

impl Row {
    /// The effect on misses.
    pub fn misses(&self) -> &Effect {
        &self.effects[0]
    }
}

/// Result of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// The rows, by load and then by setting.
    pub rows: Vec<Row>,
    /// Names of the settings.
    pub settings: Vec<String>,
    /// Presets on which the change cannot be tried, with reasons.
    pub refused: Vec<(&'static str, String)>,
    /// Number of seeds.
    pub runs: usize,
}

impl Evaluation {
    /// Compares counts by setting, load and seed.
    pub(super) fn new(
        loads: &[Load],
        settings: Vec<String>,
        refused: Vec<(&'static str, String)>,
        before: &[Vec<Vec<Count>>],
        after: &[Vec<Vec<Count>>],
    ) -> Evaluation {
        let mut rows = Vec::new();
        for (at, load) in loads.iter().enumerate() {
            for (number, setting) in settings.iter().enumerate() {
                let (before, after) = (&before[number][at], &after[number][at]);
                let effects: Vec<Effect> =
                    Metric::ALL.into_iter().map(|metric| effect(metric, before, after)).collect();
                let verdict = verdict(&effects[0], before == after);
                rows.push(Row {
                    load: load.name,
                    words: load.words,
                    setting: setting.clone(),
                    effects,
                    verdict,
                });
            }
        }
        let runs = before.first().and_then(|loads| loads.first()).map_or(0, Vec::len);
        Evaluation { rows, settings, refused, runs }
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

fn effect(metric: Metric, before: &[Count], after: &[Count]) -> Effect {
    let values = |counts: &[Count]| counts.iter().map(|count| metric.value(count)).collect::<Vec<f64>>();
    let (before, after) = (values(before), values(after));
    let change = |(&before, &after): (&f64, &f64)| {
        if before == 0.0 { after } else { 100.0 * (after / before - 1.0) }
    };
    let changes: Vec<f64> = before.iter().zip(&after).map(change).collect();
    Effect {
        before: median(&before),
        after: median(&after),
        median: median(&changes),
        interval: median_interval(&changes),
        is_same: before == after,
    }
}

fn verdict(misses: &Effect, is_same: bool) -> Verdict {
    let interval = misses.interval;
    match () {
        () if is_same => Verdict::Untouched,
        () if interval.confidence < CONFIDENCE => Verdict::Uncertain,
        () if interval.high < 0.0 => Verdict::Gains,
        () if interval.low > 0.0 => Verdict::Loses,
        () => Verdict::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::LOADS;

    fn counts(misses: [u64; 6]) -> Vec<Count> {
        let count = |misses| Count {
            accesses: 1000,
            misses,
            refaults: 0,
            scanned: 30,
            reclaimed: 10,
            lock_holds: 50,
            walked_entries: 0,
        };
        misses.map(count).into()
    }

    fn evaluated(before: Vec<Count>, after: Vec<Count>) -> Evaluation {
        Evaluation::new(
            &LOADS[..1],
            vec!["linux-7.2".to_owned()],
            Vec::new(),
            &[vec![before]],
            &[vec![after]],
        )
    }

    #[test]
    fn an_interval_on_one_side_of_0_decides() {
        let before = || counts([100; 6]);
        let of = |misses: [u64; 6]| evaluated(before(), counts(misses)).rows[0].verdict;
        assert_eq!(of([99, 98, 97, 96, 95, 94]), Verdict::Gains);
        assert_eq!(of([101; 6]), Verdict::Loses);
        assert_eq!(of([99, 98, 97, 96, 95, 101]), Verdict::Nothing);
        assert_eq!(of([100; 6]), Verdict::Untouched);
        let evaluation = evaluated(before(), counts([90; 6]));
        let misses = evaluation.rows[0].misses();
        assert_eq!((misses.before, misses.after), (100.0, 90.0));
        assert!((misses.median + 10.0).abs() < 1e-9 && evaluation.confidence() >= CONFIDENCE);
        assert_eq!(evaluation.with(Verdict::Gains), ["skewed (linux-7.2)"]);
        assert_eq!(evaluation.with(Verdict::Loses), Vec::<String>::new());
    }

    #[test]
    fn few_runs_decide_nothing_and_costs_are_beside_the_misses() {
        let before: Vec<Count> = counts([100; 6]).into_iter().take(5).collect();
        let mut after = before.clone();
        after.iter_mut().for_each(|count| (count.misses, count.lock_holds) = (50, 60));
        let evaluation = evaluated(before, after);
        let row = &evaluation.rows[0];
        assert_eq!(row.verdict, Verdict::Uncertain);
        let locks = &row.effects[2];
        assert_eq!((locks.before, locks.after, locks.is_same), (50.0, 60.0, false));
        assert!(row.effects[1].is_same && row.effects[3].is_same);
    }
}
