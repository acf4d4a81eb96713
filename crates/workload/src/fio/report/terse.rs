//! The report in fio's terse format, version 3: one line per row, values separated by semicolons.
//!
//! The order of the values is that of fio's manual ("Terse output"). The disk values at the end of
//! a line are omitted, as fio does in its client and server mode.

use super::{DEPTHS, Direction, JobRow, PERCENTILES, Report, VERSION, latency_shares};
use crate::fio::histogram::Latencies;
use std::fmt::Display;

/// Number of percentiles in the format.
const PERCENTILE_FIELDS: usize = 20;

pub(super) fn report(report: &Report) -> String {
    report.rows.iter().map(|row| line(report, row)).collect()
}

fn line(report: &Report, row: &JobRow) -> String {
    let mut fields = Fields::default();
    let outcome = &row.outcome;
    fields.add([&"3", &VERSION, &row.name, &row.group]);
    fields.add([&outcome.failure.as_ref().map_or(0, |failure| failure.errno)]);
    for direction in [Direction::Read, Direction::Write] {
        let transfer = direction.of(outcome);
        let bandwidth = transfer.bandwidth_bytes_per_second();
        fields.add([&(transfer.bytes / 1024), &(bandwidth / 1024), &(transfer.iops() as u64)]);
        fields.add([&transfer.runtime_ms]);
        fields.latencies(&Latencies::default());
        fields.latencies(&transfer.latencies);
        for percent in PERCENTILES {
            match transfer.latencies.samples() {
                0 => fields.add([&"0%=0"]),
                _ => fields.add([&format_args!(
                    "{percent:.6}%={}",
                    transfer.latencies.percentile_ns(percent) / 1000
                )]),
            }
        }
        (PERCENTILES.len()..PERCENTILE_FIELDS).for_each(|_| fields.add([&"0%=0"]));
        fields.latencies(&transfer.latencies);
        let samples = &transfer.bandwidth_kib;
        fields.add([&samples.min(), &samples.max()]);
        fields.add([&format_args!("{:.6}%", report.share_of_group(row, direction))]);
        fields.add([&format_args!("{:.6}", samples.mean()), &format_args!("{:.6}", samples.stddev())]);
    }
    let cpu = &outcome.cpu;
    let (user, system) = cpu.shares();
    fields.add([&format_args!("{user:.6}%"), &format_args!("{system:.6}%")]);
    fields.add([&cpu.context_switches, &cpu.major_faults, &cpu.minor_faults]);
    DEPTHS.iter().for_each(|&(least, _)| fields.add([&format_args!("{:.1}%", row.share_of_depth(least))]));
    let [(_, nanoseconds), (_, mut microseconds), (_, milliseconds)] = latency_shares(row);
    // The format begins with 2 µs, so that bucket includes shorter latencies.
    microseconds[0].1 += nanoseconds.iter().map(|(_, share)| share).sum::<f64>();
    for (_, share) in microseconds.iter().chain(&milliseconds) {
        fields.add([&format_args!("{share:.2}%")]);
    }
    if let Some(description) = &row.description {
        fields.add([description]);
    }
    fields.line + "\n"
}

#[derive(Default)]
struct Fields {
    line: String,
}

impl Fields {
    fn add<const N: usize>(&mut self, values: [&dyn Display; N]) {
        for value in values {
            if !self.line.is_empty() {
                self.line.push(';');
            }
            self.line.push_str(&value.to_string());
        }
    }

    /// Minimum, maximum, mean and deviation, in microseconds.
    fn latencies(&mut self, latencies: &Latencies) {
        self.add([&(latencies.min_ns() / 1000), &(latencies.max_ns() / 1000)]);
        self.add([&format_args!("{:.6}", latencies.mean_ns() / 1e3)]);
        self.add([&format_args!("{:.6}", latencies.stddev_ns() / 1e3)]);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{jobs, transfer};
    use super::super::{JobOutcome, Samples};
    use super::*;

    #[test]
    fn fields_are_where_fio_has_them() {
        let jobs = jobs("--size=1m --name=hello --rw=randrw --description=text");
        let mut outcome = JobOutcome { read: transfer(100), write: transfer(200), ..JobOutcome::default() };
        outcome.read.bandwidth_kib = Samples::of(&[1000, 3000]);
        let text = Report::new(0, 77, Vec::new(), &jobs, vec![outcome]).terse();
        let fields: Vec<&str> = text.trim_end().split(';').collect();
        // 5, 41 per direction, 5 for the CPU, 7 depths, 22 latencies, and the description. Counted
        // in a line of fio 3.33, without its 9 fields about a disk.
        assert_eq!(fields.len(), 5 + 2 * 41 + 5 + 7 + 22 + 1);
        assert_eq!(fields[..9], ["3", VERSION, "hello", "0", "0", "400", "4000", "1000", "100"]);
        assert_eq!(fields[13..18], ["10", "1000", "505.000000", "290.114920", "1.000000%=10"]);
        assert_eq!(fields[34], "0%=0");
        assert_eq!(fields[41..46], ["1000", "3000", "50.000000%", "2000.000000", "1414.213562"]);
        assert_eq!(fields[46..48], ["400", "2000"]);
        assert_eq!(fields[92..94], ["100.0%", "0.0%"]);
        assert_eq!(fields[fields.len() - 1], "text");
    }
}
