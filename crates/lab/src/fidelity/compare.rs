//! Selection of the replays of each kernel run, and comparison of the counts.
//!
//! ```text
//! one kernel run, reads     one replay at its capacity
//! … mapped, writes, swap     the mean of five replays, at its capacity and 10 and 20 pages beside it
//! … of the classic LRU       the median of five replays, which differ in when statistics are collected; what they differ by
//!                            is allowed
//! … of several memcgs       under background reclaim: as of the classic LRU, with five seeds
//! … and its repetitions     the same; what they differ by is allowed
//! five limits, mapped       also: the mean of the runs against the mean of a replay for each
//! ```

use super::kernel_run::{Access, KernelRun, Measure, Setting};
use super::tolerance::{RowKind, Tolerance, tolerance};
use super::variant::Variant;
use crate::Error;
use crate::document::{document, rounded};
use crate::statistics::{mean, median, range};
use mglru_core::Lru;
use serde::{Serialize, Serializer};

/// Largest distance between the limits of a series, in pages.
const SERIES_SPAN_PAGES: u64 = 128;
const SERIES_RUNS_MIN: usize = 5;

/// Kernel runs and replays whose means are compared.
#[derive(Debug)]
pub struct Subject {
    /// The runs. The first one gives limit and setting.
    pub runs: Vec<KernelRun>,
    /// Repetitions of a single run, including the run itself.
    repetitions: Vec<KernelRun>,
    /// The replays.
    pub variants: Vec<Variant>,
    kind: RowKind,
}

/// Comparison of one measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Setting of the runs.
    pub setting: Setting,
    /// `memory.max` in pages; the mean of a series.
    pub limit_pages: u64,
    /// Memory of the replay in pages; the mean of several.
    pub memory_pages: u64,
    /// The compared measure.
    pub measure: Measure,
    /// The kernel's value.
    pub kernel: f64,
    /// Number of kernel runs in the mean.
    pub kernel_runs: usize,
    /// The engine's value.
    pub ours: f64,
    /// Number of replays in the mean.
    pub our_runs: usize,
    /// Allowed difference.
    pub tolerance: Tolerance,
}

impl Comparison {
    /// Whether the difference is within the tolerance.
    pub fn within(&self) -> bool {
        self.tolerance.allows(self.kernel, self.ours)
    }

    /// Difference in percent of the kernel's value; `None` if only that is 0.
    pub fn difference_percent(&self) -> Option<f64> {
        difference_percent(self.kernel, self.ours)
    }
}

/// The message of tables whose figures have tolerances.
pub(super) const FURTHER: &str = "further from the kernel than allowed";

/// Fails if something is outside of what is allowed.
///
/// # Errors
/// `what`, and all that is outside.
pub(super) fn refuse_outside(what: &str, outside: impl Iterator<Item = String>) -> Result<(), Error> {
    let outside: Vec<String> = outside.collect();
    if outside.is_empty() {
        return Ok(());
    }
    Err(Error::work(format_args!("{what}: {}", outside.join("; "))))
}

/// Difference in percent of the kernel's value; `None` if only that is 0.
pub(super) fn difference_percent(kernel: f64, ours: f64) -> Option<f64> {
    match kernel {
        0.0 => (ours == 0.0).then_some(0.0),
        _ => Some(100.0 * (ours / kernel - 1.0)),
    }
}

/// A count as a whole number, or a mean with one decimal.
#[derive(Serialize)]
#[serde(untagged)]
enum Number {
    Whole(u64),
    Mean(f64),
}

fn number(value: f64) -> Number {
    if value.fract() == 0.0 {
        Number::Whole(value as u64)
    } else {
        Number::Mean((value * 10.0).round() / 10.0)
    }
}

impl Serialize for Comparison {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document!(serializer, {
            "workload": self.setting.workload,
            "kernel": self.setting.kernel,
            "lru": self.setting.lru,
            "swap": self.setting.swap,
            "readahead_pages": self.setting.readahead_pages,
            "fault_around_pages": self.setting.fault_around_pages,
            "tasks": self.setting.tasks,
            "swappiness": self.setting.swappiness,
            "memcg": self.setting.memcg,
            "limit_pages": self.limit_pages,
            "memory_pages": self.memory_pages,
            "counter": self.measure.name(),
            "kernel_count": number(self.kernel),
            "our_count": number(self.ours),
            "difference_percent": self.difference_percent().map(rounded),
            "tolerance_percent": self.tolerance.percent_of(self.kernel).map(rounded),
            "within": self.within(),
            "kernel_runs": self.kernel_runs,
            "our_runs": self.our_runs,
        })
    }
}

/// The comparisons that the rows of a table allow.
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

    /// A series of runs with mapped reads at several limits close together.
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

    /// Compares all measures. `ours` returns a measure of the replay with a given index.
    pub fn compare(&self, ours: impl Fn(usize, Measure) -> f64) -> Vec<Comparison> {
        let compare = |measure: Measure| {
            let kernel = mean(&self.runs.iter().map(|run| run.count(measure)).collect::<Vec<_>>());
            let ours: Vec<f64> = (0..self.variants.len()).map(|number| ours(number, measure)).collect();
            let varies = self.kind.lru == Lru::Classic || self.runs[0].setting.draws_memcgs();
            let allowed = tolerance(self.kind, measure).or_noise(self.noise_percent(measure));
            let spread = if varies && kernel > 0.0 { 100.0 * spread(&ours) / kernel } else { 0.0 };
            Comparison {
                setting: self.runs[0].setting.clone(),
                limit_pages: self.runs.iter().map(|run| run.limit_pages).sum::<u64>()
                    / self.runs.len() as u64,
                memory_pages: self.variants.iter().map(|variant| variant.memory_pages).sum::<u64>()
                    / self.variants.len() as u64,
                measure,
                kernel,
                kernel_runs: self.runs.len(),
                ours: if varies { median(&ours) } else { mean(&ours) },
                our_runs: ours.len(),
                tolerance: allowed.or_noise(spread),
            }
        };
        Measure::of(&self.runs[0]).map(compare).collect()
    }

    /// Spread of repeated runs, in percent of the run that they repeat.
    fn noise_percent(&self, measure: Measure) -> f64 {
        let counts: Vec<f64> = self.repetitions.iter().map(|run| run.count(measure)).collect();
        let count = self.runs[0].count(measure);
        if count == 0.0 { 0.0 } else { 100.0 * spread(&counts) / count }
    }
}

/// Difference between maximum and minimum.
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
        is_loose: run.setting.is_loose(),
        means,
        limit_pages: run.limit_pages,
    }
}
