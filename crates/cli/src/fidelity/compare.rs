//! Which replays are made, and which numbers are held against each other.
//!
//! ```text
//! one kernel run, reads     one replay at its capacity
//! … mapped, writes, swap     the mean of five replays, at its capacity and 10 and 20 pages beside it
//! … and its repetitions     the same; what they differ by is allowed
//! five limits, mapped       besides: the mean of the runs against the mean of a replay for each
//! ```

use super::kernel_run::{Access, KernelRun, Measure, Setting};
use super::tolerance::{RowKind, Tolerance, tolerance};

/// Capacities of the replays of runs that do not repeat to the page, relative to the kernel's. Ten pages more or less
/// change them as another run would.
const AROUND_PAGES: [i64; 5] = [-20, -10, 0, 10, 20];
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
    /// Memory of the replays.
    pub memories: Vec<u64>,
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
        let around: &[i64] = if run.access == Access::Reads { &[0] } else { &AROUND_PAGES };
        let memories = around.iter().filter_map(|&by| run.memory_pages.checked_add_signed(by));
        let memories = memories.filter(|&pages| pages > 0).collect();
        Subject { memories, repetitions, kind: kind(&run, false), runs: vec![run] }
    }

    /// Runs of mapped reads at several limits that are close together.
    fn series(runs: Vec<KernelRun>) -> Option<Subject> {
        let first = runs.first()?;
        let last = runs.last()?;
        let is_series = first.access == Access::MappedReads
            && runs.len() >= SERIES_RUNS_MIN
            && last.limit_pages - first.limit_pages <= SERIES_SPAN_PAGES;
        let kind = kind(first, true);
        is_series.then(|| Subject {
            memories: runs.iter().map(|run| run.memory_pages).collect(),
            repetitions: Vec::new(),
            kind,
            runs,
        })
    }

    /// Compares all numbers. `ours`: of a replay with that memory.
    pub fn compare(&self, ours: impl Fn(u64, Measure) -> f64) -> Vec<Comparison> {
        let mean = |values: &mut dyn Iterator<Item = f64>, number: usize| values.sum::<f64>() / number as f64;
        let compare = |measure: Measure| {
            let kernel = mean(&mut self.runs.iter().map(|run| run.count(measure)), self.runs.len());
            let number = self.memories.len();
            Comparison {
                setting: self.runs[0].setting.clone(),
                limit_pages: self.runs.iter().map(|run| run.limit_pages).sum::<u64>()
                    / self.runs.len() as u64,
                memory_pages: self.memories.iter().sum::<u64>() / number as u64,
                measure,
                kernel,
                kernel_runs: self.runs.len(),
                ours: mean(&mut self.memories.iter().map(|&memory| ours(memory, measure)), number),
                our_runs: number,
                tolerance: tolerance(self.kind, measure).or_noise(self.noise_percent(measure)),
            }
        };
        Measure::of(&self.runs[0].setting).map(compare).collect()
    }

    /// What repetitions differ by, in percent of the run that they repeat.
    fn noise_percent(&self, measure: Measure) -> f64 {
        let counts = || self.repetitions.iter().map(|run| run.count(measure));
        let (least, most) = (counts().fold(f64::MAX, f64::min), counts().fold(0.0, f64::max));
        let count = self.runs[0].count(measure);
        if self.repetitions.len() < 2 || count == 0.0 { 0.0 } else { 100.0 * (most - least) / count }
    }
}

fn kind(run: &KernelRun, means: bool) -> RowKind {
    let shifts = run.setting.workload.contains("shift");
    RowKind { preset: run.preset, access: run.access, shifts, means, limit_pages: run.limit_pages }
}
