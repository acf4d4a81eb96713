//! The report as JSON: fio's `--output-format=json`.

use super::number::date;
use super::{DEPTHS, Direction, JobRow, PERCENTILES, Report, Transfer, VERSION, latency_shares};
use crate::fio::histogram::Latencies;
use serde_json::{Map, Value, json};

pub(super) fn report(report: &Report) -> Value {
    let mut object = Map::new();
    object.insert("fio version".to_owned(), VERSION.into());
    object.insert("timestamp".to_owned(), (report.timestamp_ms / 1000).into());
    object.insert("timestamp_ms".to_owned(), report.timestamp_ms.into());
    object.insert("time".to_owned(), date(report.timestamp_ms / 1000).into());
    // fio omits an empty object.
    if !report.global_options.is_empty() {
        object.insert("global options".to_owned(), options(&report.global_options));
    }
    object.insert("jobs".to_owned(), report.rows.iter().map(|row| job(report, row)).collect());
    Value::Object(object)
}

fn job(report: &Report, row: &JobRow) -> Value {
    let outcome = &row.outcome;
    let mut object = Map::new();
    object.insert("jobname".to_owned(), row.name.as_str().into());
    object.insert("groupid".to_owned(), row.group.into());
    object.insert("error".to_owned(), outcome.failure.as_ref().map_or(0, |failure| failure.errno).into());
    if let Some(description) = &row.description {
        object.insert("desc".to_owned(), description.as_str().into());
    }
    object.insert("job options".to_owned(), options(&row.options));
    for (name, direction) in [("read", Direction::Read), ("write", Direction::Write)] {
        let share = report.share_of_group(row, direction);
        object.insert(name.to_owned(), transfer(direction.of(outcome), share));
    }
    object.insert("trim".to_owned(), transfer(&Transfer::default(), 0.0));
    let sync = json!({ "total_ios": outcome.sync.samples(), "lat_ns": with_percentiles(&outcome.sync) });
    object.insert("sync".to_owned(), sync);
    let cpu = &outcome.cpu;
    let (user, system) = cpu.shares();
    object.insert("job_runtime".to_owned(), cpu.elapsed_ms.into());
    object.insert("usr_cpu".to_owned(), decimal(user));
    object.insert("sys_cpu".to_owned(), decimal(system));
    object.insert("ctx".to_owned(), cpu.context_switches.into());
    object.insert("majf".to_owned(), cpu.major_faults.into());
    object.insert("minf".to_owned(), cpu.minor_faults.into());
    let levels =
        DEPTHS.iter().map(|&(least, name)| (name.to_owned(), decimal(row.share_of_depth(least)))).collect();
    object.insert("iodepth_level".to_owned(), Value::Object(levels));
    for (unit, shares) in latency_shares(row) {
        let shares = shares.into_iter().map(|(limit, share)| (limit, decimal(share))).collect();
        object.insert(format!("latency_{unit}"), Value::Object(shares));
    }
    object.insert("latency_depth".to_owned(), row.iodepth.into());
    // Not in fio, which ends at the first error.
    object.insert("verify_errors".to_owned(), outcome.verify_errors.into());
    if let Some(failure) = &outcome.failure {
        object.insert("error_message".to_owned(), failure.message.as_str().into());
    }
    Value::Object(object)
}

fn transfer(transfer: &Transfer, share_of_group: f64) -> Value {
    let rate = transfer.bandwidth_bytes_per_second();
    let (bandwidth, iops) = (&transfer.bandwidth_kib, &transfer.rate);
    json!({
        "io_bytes": transfer.bytes,
        "io_kbytes": transfer.bytes / 1024,
        "bw_bytes": rate,
        "bw": rate / 1024,
        "iops": decimal(transfer.iops()),
        "runtime": transfer.runtime_ms,
        "total_ios": transfer.ios,
        "short_ios": 0,
        "drop_ios": 0,
        // Submission takes no time here, so both latencies are equal.
        "slat_ns": latencies(&Latencies::default()),
        "clat_ns": with_percentiles(&transfer.latencies),
        "lat_ns": latencies(&transfer.latencies),
        "bw_min": bandwidth.min(),
        "bw_max": bandwidth.max(),
        "bw_agg": decimal(share_of_group),
        "bw_mean": decimal(bandwidth.mean()),
        "bw_dev": decimal(bandwidth.stddev()),
        "bw_samples": bandwidth.count(),
        "iops_min": iops.min(),
        "iops_max": iops.max(),
        "iops_mean": decimal(iops.mean()),
        "iops_stddev": decimal(iops.stddev()),
        "iops_samples": iops.count(),
    })
}

fn with_percentiles(of: &Latencies) -> Map<String, Value> {
    let mut object = latencies(of);
    if of.samples() > 0 {
        let percentile = |&percent: &f64| (format!("{percent:.6}"), of.percentile_ns(percent).into());
        object.insert("percentile".to_owned(), Value::Object(PERCENTILES.iter().map(percentile).collect()));
    }
    object
}

fn latencies(latencies: &Latencies) -> Map<String, Value> {
    Map::from_iter([
        ("min".to_owned(), latencies.min_ns().into()),
        ("max".to_owned(), latencies.max_ns().into()),
        ("mean".to_owned(), decimal(latencies.mean_ns())),
        ("stddev".to_owned(), decimal(latencies.stddev_ns())),
        ("N".to_owned(), latencies.samples().into()),
    ])
}

fn options(options: &[(String, String)]) -> Value {
    Value::Object(options.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect())
}

/// fio writes six decimals.
fn decimal(value: f64) -> Value {
    ((value * 1e6).round() / 1e6).into()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{jobs, transfer};
    use super::super::{Failure, JobOutcome};
    use super::*;

    fn document() -> Value {
        let jobs = jobs("--bs=8k --name=hello --rw=randread --size=1m");
        let outcome = JobOutcome { read: transfer(100), ..JobOutcome::default() };
        let global = vec![("bs".to_owned(), "8k".to_owned())];
        Report::new(1_795_203_743_262, 77, global, &jobs, vec![outcome]).json()
    }

    fn keys(value: &Value) -> Vec<&str> {
        value.as_object().expect("an object").keys().map(String::as_str).collect()
    }

    #[test]
    fn keys_and_their_order_are_fios() {
        let document = document();
        assert_eq!(
            keys(&document),
            ["fio version", "timestamp", "timestamp_ms", "time", "global options", "jobs"]
        );
        let job = &document["jobs"][0];
        assert_eq!(
            keys(job),
            [
                "jobname",
                "groupid",
                "error",
                "job options",
                "read",
                "write",
                "trim",
                "sync",
                "job_runtime",
                "usr_cpu",
                "sys_cpu",
                "ctx",
                "majf",
                "minf",
                "iodepth_level",
                "latency_ns",
                "latency_us",
                "latency_ms",
                "latency_depth",
                "verify_errors"
            ]
        );
        assert_eq!(
            keys(&job["read"]),
            [
                "io_bytes",
                "io_kbytes",
                "bw_bytes",
                "bw",
                "iops",
                "runtime",
                "total_ios",
                "short_ios",
                "drop_ios",
                "slat_ns",
                "clat_ns",
                "lat_ns",
                "bw_min",
                "bw_max",
                "bw_agg",
                "bw_mean",
                "bw_dev",
                "bw_samples",
                "iops_min",
                "iops_max",
                "iops_mean",
                "iops_stddev",
                "iops_samples"
            ]
        );
        assert_eq!(keys(&job["read"]["clat_ns"]), ["min", "max", "mean", "stddev", "N", "percentile"]);
        assert_eq!(keys(&job["write"]["clat_ns"]), ["min", "max", "mean", "stddev", "N"]);
        assert_eq!(
            keys(&job["latency_us"]),
            ["2", "4", "10", "20", "50", "100", "250", "500", "750", "1000"]
        );
    }

    #[test]
    fn values_are_those_of_the_outcome() {
        let document = document();
        assert_eq!(document["timestamp"], 1_795_203_743);
        assert_eq!(document["time"], "Fri Nov 20 19:42:23 2026");
        assert_eq!(document["global options"]["bs"], "8k");
        let job = &document["jobs"][0];
        assert_eq!(job["job options"], json!({"name": "hello", "rw": "randread", "size": "1m"}));
        let read = &job["read"];
        assert_eq!((&read["io_bytes"], &read["io_kbytes"]), (&json!(409_600), &json!(400)));
        assert_eq!(
            (&read["bw_bytes"], &read["bw"], &read["iops"]),
            (&json!(4_096_000), &json!(4000), &json!(1000.0))
        );
        assert_eq!(read["clat_ns"]["max"], 1_000_000);
        assert_eq!(read["clat_ns"]["mean"], 505_000.0);
        let median = read["clat_ns"]["percentile"]["50.000000"].as_u64().unwrap();
        assert!(median.abs_diff(500_000) <= 5_000, "{median}");
        assert_eq!(job["write"]["total_ios"], 0);
    }

    #[test]
    fn a_failure_is_reported() {
        let failure = Some(Failure { errno: 5, message: "read at 4096: EIO".to_owned() });
        let outcome = JobOutcome { failure, verify_errors: 3, ..JobOutcome::default() };
        let document = Report::new(0, 1, Vec::new(), &jobs("--name=a --size=1m"), vec![outcome]).json();
        assert_eq!(document["jobs"][0]["error"], 5);
        assert_eq!(document["jobs"][0]["verify_errors"], 3);
        assert_eq!(document["jobs"][0]["error_message"], "read at 4096: EIO");
        assert!(document.get("global options").is_none());
    }
}
