//! Compares the baselines' miss ratios with libCacheSim's, which are in `missratio.csv` beside the
//! shared traces.

#![allow(dead_code, reason = "the tests and the example use their parts")]

use super::reference::WTinyLfu;
use mglru_sim::Operation;
use mglru_sim::baseline::{Policy, replay};
use mglru_sim::{Access, Baseline};
use mglru_workload::trace::{OpenOptions, open};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

/// A comparable row of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// Name of the trace.
    pub trace: String,
    /// Memory, in pages.
    pub memory_pages: u64,
    /// The policy.
    pub baseline: Baseline,
    /// libCacheSim's miss ratio, to four decimals.
    pub reference: f64,
    /// Our miss ratio.
    pub miss_ratio: f64,
    /// Number of accesses.
    pub accesses: u64,
    /// CPU time of the replay, in seconds.
    pub seconds: f64,
}

impl Row {
    /// Relative difference of our miss ratio from libCacheSim's.
    pub fn difference(&self) -> f64 {
        difference(self.miss_ratio, self.reference)
    }
}

/// Relative difference of a miss ratio from the reference. A difference within the reference's
/// rounding to four decimals counts as 0.
pub fn difference(miss_ratio: f64, reference: f64) -> f64 {
    let apart = miss_ratio - reference;
    if apart.abs() < 0.000_050_001 { 0.0 } else { apart / reference }
}

/// The policy with this name in libCacheSim.
fn baseline(algorithm: &str) -> Option<Baseline> {
    let ours = match algorithm {
        "twoq" => "2q",
        "s3fifo" => "s3-fifo",
        "wtinylfu" => "w-tinylfu",
        "belady" => "opt",
        same => same,
    };
    Baseline::parse(ours).ok()
}

/// The rows of `missratio.csv` for one trace: memory, policy, miss ratio.
pub type Wanted = Vec<(u64, Baseline, f64)>;

/// The rows for our policies, by trace.
pub fn wanted(folder: &Path) -> BTreeMap<String, Wanted> {
    let text = std::fs::read_to_string(folder.join("missratio.csv")).expect("missratio.csv can be read");
    let mut by_trace: BTreeMap<String, Wanted> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let [trace, pages, algorithm, ratio] = cells[..] else { panic!("four cells: {line}") };
        if let Some(baseline) = baseline(algorithm) {
            let row = (pages.parse().expect(line), baseline, ratio.parse().expect(line));
            by_trace.entry(trace.to_owned()).or_default().push(row);
        }
    }
    assert!(by_trace.len() > 10, "{} traces", by_trace.len());
    by_trace
}

/// Replays the traces with at most `accesses_max` accesses and calls `report_rows` for each.
pub fn compare(folder: &Path, accesses_max: usize, mut report_rows: impl FnMut(&[Row])) -> Vec<Row> {
    let mut all = Vec::new();
    for (trace, wanted) in wanted(folder) {
        let accesses = accesses(folder, &trace);
        if accesses.len() > accesses_max {
            continue;
        }
        let row = |(memory_pages, baseline, reference)| {
            let began = cpu_seconds();
            let mut source = accesses.iter().copied();
            let report = replay(baseline, memory_pages, 0, &mut source, &mut |_| ControlFlow::Continue(()))
                .expect("no error");
            let counts = report.total;
            assert_eq!(counts.accesses, accesses.len() as u64);
            Row {
                trace: trace.clone(),
                memory_pages,
                baseline,
                reference,
                miss_ratio: counts.miss_ratio(),
                accesses: counts.accesses,
                seconds: cpu_seconds() - began,
            }
        };
        let rows: Vec<Row> = wanted.into_iter().map(row).collect();
        report_rows(&rows);
        all.extend(rows);
    }
    all
}

/// The accesses of a trace.
pub fn accesses(folder: &Path, trace: &str) -> Vec<Operation> {
    let path = folder.join(format!("{trace}.txt.zst"));
    let mut reader = open(&path, OpenOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while reader.next_batch(&mut batch).unwrap_or_else(|error| panic!("{error}")) > 0 {
        let operations = batch.iter().map(|&record| Operation::from(record));
        all.extend(operations.filter(|operation| matches!(operation, Operation::Access(_))));
    }
    all
}

/// The pages of a trace as positions.
pub fn positions(operations: &[Operation]) -> Vec<u32> {
    let mut positions = BTreeMap::new();
    let position = |operation: &Operation| {
        let Operation::Access(Access { page, .. }) = *operation else { panic!("only accesses") };
        let next = positions.len() as u32;
        *positions.entry(page).or_insert(next)
    };
    operations.iter().map(position).collect()
}

/// Miss ratio of a model.
pub fn miss_ratio(mut policy: impl Policy, pages: &[u32]) -> f64 {
    pages.iter().filter(|&&page| !policy.touch(page)).count() as f64 / pages.len() as f64
}

/// Minimum and maximum miss ratio of libCacheSim's W-TinyLFU over `hashes` filter hashes.
pub fn their_w_tiny_lfu(memory_pages: u64, pages: &[u32], hashes: u64) -> (f64, f64) {
    let ratios = (0..hashes).map(|seed| miss_ratio(WTinyLfu::new(memory_pages as usize, seed), pages));
    ratios.fold((1.0, 0.0), |(least, most), ratio| (ratio.min(least), ratio.max(most)))
}

/// CPU time of this thread in seconds, which excludes waiting for other processes. Linux only;
/// elsewhere 0.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}
