//! Which replays are made, and which numbers are held against each other.
//!
//! ```text
//! one kernel run, reads     one replay at its capacity
//! … mapped, writes, swap     the mean of five replays, at its capacity and 10 and 20 pages beside it
//! … of the classic LRU       the median of five replays, which differ in when statistics are collected; what they differ by
//!                            is allowed
//! … and its repetitions     the same; what they differ by is allowed
//! five limits, mapped       besides: the mean of the runs against the mean of a replay for each
//! ```

use super::kernel_run::{Access, KernelRun, Measure, Setting};
use super::tolerance::{RowKind, Tolerance, tolerance};
use super::variant::Variant;
use crate::statistics::{mean, median, range};
use mglru_core::Lru;

/// Limits of a series are not further apart.
const SERIES_SPAN_PAGES: u64 = 128;
/// Runs of a series, at least.
const SERIES_RUNS_MIN: usize = 5;

/// What is compared, as numbers of kernel runs and replays to be averaged.
#[derive(Debug)]
pub struct Subject {
    /// The runs; the first one names limit and setting.
    pub runs: Vec<KernelRun>,
    /// Repetitions of a single run, itself among them.
    repetitions: Vec<KernelRun>,
    /// The replays.
    pub variants: Vec<Variant>,
    kind: RowKind,
}

/// A kernel's number, and ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// What was run.
    pub setting: Setting,
    /// `memory.max`; the mean of a series.
    pub limit_pages: u64,
    /// Memory of the replay; the mean, if there are several.
    pub memory_pages: u64,
    /// Which number.
    pub measure: Measure,
    /// The kernel's.
    pub kernel: f64,
    /// Over how many runs that is the mean.
    pub kernel_runs: usize,
    /// Ours.
    pub ours: f64,
    /// Over how many replays that is the mean.
    pub our_runs: usize,
    /// How far they may be apart.
    pub tolerance: Tolerance,
}

impl Comparison {
    /// Whether they are close enough.
    pub fn within(&self) -> bool {
        self.tolerance.allows(self.kernel, self.ours)
    }

    /// In percent of the kernel's; `None`: that is 0, and ours is not.
    pub fn difference_percent(&self) -> Option<f64> {
        if self.kernel > 0.0 {
            Some(100.0 * (self.ours / self.kernel - 1.0))
        } else {
            (self.ours == 0.0).then_some(0.0)
        }
    }
}

/// What the rows of a table give to compare.
pub fn subjects(runs: &[KernelRun]) -> Vec<Subject> {
    let mut subjects = Vec::new();
    let mut settings: Vec<&Setting> = Vec::new();
    for run in runs {
        if !settings.contains(&&run.setting) {
            settings.push(&run.setting);
        }
    }
    for setting in settings {
        let of_setting = || runs.iter().filter(|run| run.setting == *setting);
        let mut limits: Vec<u64> = of_setting().map(|run| run.limit_pages).collect();
        limits.sort_unstable();
        limits.dedup();
        let mut mains = Vec::new();
        for &limit in &limits {
            let repetitions: Vec<KernelRun> =
                of_setting().filter(|run| run.limit_pages == limit).cloned().collect();
            let untagged = repetitions.iter().find(|run| run.tag.is_empty());
            let main = untagged.unwrap_or(&repetitions[0]).clone();
            mains.push(main.clone());
            subjects.push(Subject::single(main, repetitions));
        }
        subjects.extend(Subject::series(mains));
    }
    subjects
}

impl Subject {
    fn single(run: KernelRun, repetitions: Vec<KernelRun>) -> Subject {
        Subject { variants: Variant::of(&run), repetitions, kind: kind(&run, false), runs: vec![run] }
    }

    /// Runs of mapped reads at several limits that are close together.
    fn series(runs: Vec<KernelRun>) -> Option<Subject> {
        let first = runs.first()?;
        let last = runs.last()?;
        let is_series = first.access == Access::MappedReads
            && first.lru == Lru::MultiGen
            && runs.len() >= SERIES_RUNS_MIN
            && last.limit_pages - first.limit_pages <= SERIES_SPAN_PAGES;
        let kind = kind(first, true);
        is_series.then(|| Subject {
            variants: runs.iter().map(Variant::plain).collect(),
            repetitions: Vec::new(),
            kind,
            runs,
        })
    }

    /// Compares all numbers. `ours`: of the replay of that number.
    pub fn compare(&self, ours: impl Fn(usize, Measure) -> f64) -> Vec<Comparison> {
        let compare = |measure: Measure| {
            let kernel = mean(&self.runs.iter().map(|run| run.count(measure)).collect::<Vec<_>>());
            let ours: Vec<f64> = (0..self.variants.len()).map(|number| ours(number, measure)).collect();
            let is_classic = self.kind.lru == Lru::Classic;
            let allowed = tolerance(self.kind, measure).or_noise(self.noise_percent(measure));
            let spread = if is_classic && kernel > 0.0 { 100.0 * spread(&ours) / kernel } else { 0.0 };
            Comparison {
                setting: self.runs[0].setting.clone(),
                limit_pages: self.runs.iter().map(|run| run.limit_pages).sum::<u64>()
                    / self.runs.len() as u64,
                memory_pages: self.variants.iter().map(|variant| variant.memory_pages).sum::<u64>()
                    / self.variants.len() as u64,
                measure,
                kernel,
                kernel_runs: self.runs.len(),
                ours: if is_classic { median(&ours) } else { mean(&ours) },
                our_runs: ours.len(),
                tolerance: allowed.or_noise(spread),
            }
        };
        Measure::of(&self.runs[0]).map(compare).collect()
    }

    /// What repetitions differ by, in percent of the run that they repeat.
    fn noise_percent(&self, measure: Measure) -> f64 {
        let counts: Vec<f64> = self.repetitions.iter().map(|run| run.count(measure)).collect();
        let count = self.runs[0].count(measure);
        if count == 0.0 { 0.0 } else { 100.0 * spread(&counts) / count }
    }
}

/// From the least to the most.
fn spread(values: &[f64]) -> f64 {
    let (least, most) = range(values);
    most - least
}

fn kind(run: &KernelRun, means: bool) -> RowKind {
    let shifts = run.setting.workload.contains("shift");
    RowKind {
        preset: run.preset,
        lru: run.lru,
        access: run.access,
        shifts,
        means,
        limit_pages: run.limit_pages,
    }
}
