//! Results in fio's formats.
//!
//! The caller fills an [`JobOutcome`] per [`Job`]. [`Report::new`] forms rows from them and merges
//! those with `group_reporting`. [`Report::text`], [`Report::json`] and [`Report::terse`] print.
//! The format is that of fio 3.33, so scripts for fio's output can read it. Lines and keys about
//! values that are not measured here (submission latency, trims, disk utilisation) are omitted from
//! the text, and empty where the format requires them.

mod json;
mod number;
mod samples;
mod terse;
mod text;

pub use samples::Samples;

use super::histogram::Latencies;
use super::job::Job;

/// The version string: the version of fio whose format this is, and this program's own. Tools read
/// it as fio 3.33, as they read fio's development versions (`fio-3.33-12-gabcdef`).
pub const VERSION: &str = concat!("fio-3.33-mglru-", env!("CARGO_PKG_VERSION"));

/// The percentiles that fio reports by default.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// fio's depth classes: the least depth of each, and its name.
const DEPTHS: [(u32, &str); 7] =
    [(1, "1"), (2, "2"), (4, "4"), (8, "8"), (16, "16"), (32, "32"), (64, ">=64")];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

impl Direction {
    fn of(self, outcome: &JobOutcome) -> &Transfer {
        match self {
            Direction::Read => &outcome.read,
            Direction::Write => &outcome.write,
        }
    }
}

/// Transfers in one direction.
#[derive(Debug, Clone, Default)]
pub struct Transfer {
    /// Bytes transferred.
    pub bytes: u64,
    /// Number of successful accesses.
    pub ios: u64,
    /// Milliseconds from the start of the first access to the end of the last; after a merge, the
    /// longest.
    pub runtime_ms: u64,
    /// Latencies of accesses from issue to completion. fio: `clat`.
    pub latencies: Latencies,
    /// Sampled bandwidth in KiB per second.
    pub bandwidth_kib: Samples,
    /// Sampled accesses per second.
    pub rate: Samples,
}

impl Transfer {
    /// Records one access.
    #[inline]
    pub fn record(&mut self, bytes: u32, latency_ns: u64) {
        self.bytes += u64::from(bytes);
        self.ios += 1;
        self.latencies.record(latency_ns);
    }

    /// Adds the transfers of a concurrent job.
    pub fn merge(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.ios += other.ios;
        self.runtime_ms = self.runtime_ms.max(other.runtime_ms);
        self.latencies.merge(&other.latencies);
        self.bandwidth_kib.merge(&other.bandwidth_kib);
        self.rate.merge(&other.rate);
    }

    /// Bandwidth in bytes per second. A runtime below a millisecond counts as one.
    pub fn bandwidth_bytes_per_second(&self) -> u64 {
        (u128::from(self.bytes) * 1000 / u128::from(self.runtime_ms.max(1))) as u64
    }

    /// Accesses per second. A runtime below a millisecond counts as one.
    pub fn iops(&self) -> f64 {
        self.ios as f64 * 1000.0 / self.runtime_ms.max(1) as f64
    }
}

/// Results of one job.
#[derive(Debug, Clone, Default)]
pub struct JobOutcome {
    /// Reads, including those that verify contents.
    pub read: Transfer,
    /// Writes.
    pub write: Transfer,
    /// Latencies of file syncs.
    pub sync: Latencies,
    /// Processor use of its threads.
    pub cpu: Cpu,
    /// The error that ended the job early, if any.
    pub failure: Option<Failure>,
    /// Number of blocks that failed verification.
    pub verify_errors: u64,
}

/// Processor use of threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Milliseconds from the first start of a thread to the last end; after a merge, the sum over
    /// all jobs.
    pub elapsed_ms: u64,
    /// User time in milliseconds.
    pub user_ms: u64,
    /// System time in milliseconds.
    pub system_ms: u64,
    /// Number of context switches.
    pub context_switches: u64,
    /// Page faults that waited for a device.
    pub major_faults: u64,
    /// Other page faults.
    pub minor_faults: u64,
}

impl Cpu {
    /// Adds the use of other threads.
    pub fn merge(&mut self, other: &Self) {
        self.elapsed_ms += other.elapsed_ms;
        self.user_ms += other.user_ms;
        self.system_ms += other.system_ms;
        self.context_switches += other.context_switches;
        self.major_faults += other.major_faults;
        self.minor_faults += other.minor_faults;
    }

    /// Shares of user and system time, in percent.
    fn shares(&self) -> (f64, f64) {
        let share = |ms: u64| ms as f64 * 100.0 / self.elapsed_ms.max(1) as f64;
        if self.elapsed_ms == 0 { (0.0, 0.0) } else { (share(self.user_ms), share(self.system_ms)) }
    }
}

/// The error that ended a job early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Error number of the operating system; 84 (`EILSEQ`) for contents that failed verification,
    /// as in fio.
    pub errno: i32,
    /// The failed operation, and where it failed.
    pub message: String,
}

/// One row of a report: a job, or the jobs of a group.
#[derive(Debug, Clone)]
pub struct JobRow {
    /// Name of the (first) job.
    pub name: String,
    /// Reporting group.
    pub group: u32,
    /// Number of jobs in the row.
    pub jobs: u32,
    /// Purpose of the (first) job, in the user's words.
    pub description: Option<String>,
    /// The requested `iodepth` of the (first) job.
    pub iodepth: u32,
    /// Concurrent accesses that were performed.
    pub depth: u32,
    /// Options of the (first) job, as given.
    pub options: Vec<(String, String)>,
    /// Merged results of the jobs, with the first failure.
    pub outcome: JobOutcome,
}

/// Results of a run.
#[derive(Debug, Clone)]
pub struct Report {
    /// Time of the report in milliseconds since 1970 (UTC).
    pub timestamp_ms: u64,
    /// Process id.
    pub pid: u32,
    /// The global options as given.
    pub global_options: Vec<(String, String)>,
    /// Rows, in order.
    pub rows: Vec<JobRow>,
}

impl Report {
    /// Forms the rows: one per job, or one per group for jobs with `group_reporting`.
    ///
    /// # Panics
    /// Unless there is one outcome per job.
    pub fn new(
        timestamp_ms: u64,
        pid: u32,
        global_options: Vec<(String, String)>,
        jobs: &[Job],
        outcomes: Vec<JobOutcome>,
    ) -> Self {
        assert_eq!(jobs.len(), outcomes.len(), "one outcome per job");
        let mut rows: Vec<JobRow> = Vec::new();
        // JobRow index of each group.
        let mut shared: Vec<(u32, usize)> = Vec::new();
        for (job, outcome) in jobs.iter().zip(outcomes) {
            let row_of_group = shared.iter().find(|&&(group, _)| group == job.group).map(|&(_, row)| row);
            if let (true, Some(row)) = (job.group_reporting, row_of_group) {
                rows[row].merge(outcome);
                continue;
            }
            if job.group_reporting {
                shared.push((job.group, rows.len()));
            }
            rows.push(JobRow {
                name: job.name.clone(),
                group: job.group,
                jobs: 1,
                description: job.description.clone(),
                iodepth: job.iodepth,
                depth: job.depth,
                options: job.options.clone(),
                outcome,
            });
        }
        Self { timestamp_ms, pid, global_options, rows }
    }

    /// Whether any job failed or read contents that failed verification.
    pub fn failed(&self) -> bool {
        self.rows.iter().any(|row| row.outcome.failure.is_some() || row.outcome.verify_errors > 0)
    }

    /// The report as fio prints it with `--output-format=normal`, beginning with the blank line
    /// after the progress line.
    pub fn text(&self) -> String {
        text::report(self)
    }

    /// The report as fio prints it with `--output-format=json`: an object to which the caller may
    /// add keys.
    pub fn json(&self) -> serde_json::Value {
        json::report(self)
    }

    /// The report as fio prints it with `--minimal`.
    pub fn terse(&self) -> String {
        terse::report(self)
    }

    /// A row's share of the bandwidth of its group, averaged over its samples, in percent.
    fn share_of_group(&self, row: &JobRow, direction: Direction) -> f64 {
        let rows = || self.rows.iter().filter(|other| other.group == row.group);
        let transfers = || rows().map(|row| direction.of(&row.outcome));
        let together = Transfer {
            bytes: transfers().map(|transfer| transfer.bytes).sum(),
            runtime_ms: transfers().map(|transfer| transfer.runtime_ms).max().unwrap_or(0),
            ..Transfer::default()
        };
        match together.bandwidth_bytes_per_second() {
            0 => 0.0,
            all => (direction.of(&row.outcome).bandwidth_kib.mean() * 1024.0 * 100.0 / all as f64).min(100.0),
        }
    }
}

/// The lines that fio prints before it runs: a line per job, the version, and the number of
/// threads.
pub fn preamble(jobs: &[Job]) -> String {
    text::preamble(jobs)
}

impl JobRow {
    fn merge(&mut self, outcome: JobOutcome) {
        self.jobs += 1;
        self.outcome.read.merge(&outcome.read);
        self.outcome.write.merge(&outcome.write);
        self.outcome.sync.merge(&outcome.sync);
        self.outcome.cpu.merge(&outcome.cpu);
        self.outcome.verify_errors += outcome.verify_errors;
        if self.outcome.failure.is_none() {
            self.outcome.failure = outcome.failure;
        }
    }

    /// Share of accesses in a depth class, in percent. All accesses of a row are in one class.
    fn share_of_depth(&self, least: u32) -> f64 {
        let class =
            DEPTHS.iter().rev().find(|&&(least, _)| least <= self.depth).map_or(1, |&(least, _)| least);
        if class == least && self.outcome.read.ios + self.outcome.write.ios > 0 { 100.0 } else { 0.0 }
    }
}

/// Shares of latencies below fio's limits, in percent of all: (unit, limits in that unit, shares).
/// Each share covers the range between its limit and the previous one. The last limit in
/// milliseconds is open.
fn latency_shares(row: &JobRow) -> [(&'static str, Vec<(String, f64)>); 3] {
    const LIMITS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
    let JobOutcome { read, write, .. } = &row.outcome;
    let total = (read.latencies.samples() + write.latencies.samples()) as f64;
    let share = |from: u64, to: u64| match total {
        0.0 => 0.0,
        _ => (read.latencies.between(from, to) + write.latencies.between(from, to)) as f64 / total * 100.0,
    };
    let mut from = 0;
    let mut shares = |scale: u64| {
        let limits = LIMITS.map(|limit| {
            (limit.to_string(), share(std::mem::replace(&mut from, limit * scale), limit * scale))
        });
        Vec::from(limits)
    };
    let (nanoseconds, microseconds, mut milliseconds) = (shares(1), shares(1000), shares(1_000_000));
    milliseconds.push(("2000".to_owned(), share(1_000_000_000, 2_000_000_000)));
    milliseconds.push((">=2000".to_owned(), share(2_000_000_000, u64::MAX)));
    [("ns", nanoseconds), ("us", microseconds), ("ms", milliseconds)]
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::fio::Invocation;

    pub(in crate::fio) fn jobs(line: &str) -> Vec<Job> {
        Invocation::parse(&line.split_whitespace().collect::<Vec<_>>()).expect(line).jobs
    }

    /// 100 accesses of 4 KiB with latencies of 10 to 1000 µs, in `runtime_ms` milliseconds.
    pub(in crate::fio) fn transfer(runtime_ms: u64) -> Transfer {
        let mut transfer = Transfer { runtime_ms, ..Transfer::default() };
        (1..=100).for_each(|step| transfer.record(4096, step * 10_000));
        transfer
    }

    fn outcome() -> JobOutcome {
        JobOutcome { read: transfer(100), ..JobOutcome::default() }
    }

    #[test]
    fn rates_are_per_second() {
        let transfer = transfer(100);
        assert_eq!(transfer.bandwidth_bytes_per_second(), 4_096_000);
        assert_eq!(transfer.iops(), 1000.0);
        assert_eq!(Transfer::default().bandwidth_bytes_per_second(), 0);
    }

    #[test]
    fn jobs_of_a_group_share_a_row_if_asked() {
        let rows = |line: &str| {
            let jobs = jobs(line);
            let outcomes = jobs.iter().map(|_| outcome()).collect();
            let report = Report::new(0, 1, Vec::new(), &jobs, outcomes);
            report
                .rows
                .iter()
                .map(|row| (row.name.clone(), row.jobs, row.outcome.read.ios))
                .collect::<Vec<_>>()
        };
        let row = |name: &str, jobs, ios| (name.to_owned(), jobs, ios);
        assert_eq!(rows("--size=1m --name=a --numjobs=2"), [row("a", 1, 100), row("a", 1, 100)]);
        assert_eq!(rows("--size=1m --group_reporting --name=a --numjobs=2 --name=b"), [row("a", 3, 300)]);
        assert_eq!(
            rows("--size=1m --name=a --name=b --numjobs=2 --group_reporting"),
            [row("a", 1, 100), row("b", 2, 200)]
        );
    }

    #[test]
    fn merging_takes_the_longest_runtime_and_the_first_failure() {
        let jobs = jobs("--size=1m --group_reporting --name=a --numjobs=3");
        let failure = |errno| Some(Failure { errno, message: String::new() });
        let outcomes = [(50, None, 0), (70, failure(5), 1), (60, failure(28), 2)].map(
            |(runtime_ms, failure, verify_errors)| JobOutcome {
                write: transfer(runtime_ms),
                failure,
                verify_errors,
                ..JobOutcome::default()
            },
        );
        let report = Report::new(0, 1, Vec::new(), &jobs, outcomes.into());
        let merged = &report.rows[0].outcome;
        assert_eq!((merged.write.runtime_ms, merged.write.bytes), (70, 300 * 4096));
        assert_eq!((merged.failure.clone(), merged.verify_errors), (failure(5), 3));
        assert!(report.failed());
    }

    #[test]
    fn latency_shares_add_up() {
        let report = Report::new(0, 1, Vec::new(), &jobs("--name=a --size=1m"), vec![outcome()]);
        let row = &report.rows[0];
        let shares = latency_shares(row);
        let sum: f64 = shares.iter().flat_map(|(_, shares)| shares).map(|(_, share)| share).sum();
        assert!((sum - 100.0).abs() < 1e-9, "{sum}");
        let (_, microseconds) = &shares[1];
        let fifty = microseconds.iter().find(|(limit, _)| limit == "50").expect("a limit").1;
        assert!((fifty - 3.0).abs() < 1.1, "20, 30 and 40 µs: {fifty}");
    }
}
