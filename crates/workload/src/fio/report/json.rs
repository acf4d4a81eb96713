//! The report as JSON: fio's `--output-format=json`.

use super::number::date;
use super::{PERCENTILES, Report, Row, Transfer, VERSION, latency_shares};
use crate::fio::histogram::Latencies;
use serde_json::{Map, Value, json};

pub(super) fn report(report: &Report) -> Value {
    let mut object = Map::new();
    object.insert("fio version".to_owned(), VERSION.into());
    object.insert("timestamp".to_owned(), (report.timestamp_ms / 1000).into());
    object.insert("timestamp_ms".to_owned(), report.timestamp_ms.into());
    object.insert("time".to_owned(), date(report.timestamp_ms / 1000).into());
    // fio leaves the key out where there is nothing to tell.
    if !report.global_options.is_empty() {
        object.insert("global options".to_owned(), options(&report.global_options));
    }
    object.insert("jobs".to_owned(), report.rows.iter().map(job).collect());
    Value::Object(object)
}

fn job(row: &Row) -> Value {
    let outcome = &row.outcome;
    let mut object = Map::new();
    object.insert("jobname".to_owned(), row.name.as_str().into());
    object.insert("groupid".to_owned(), row.group.into());
    object.insert("error".to_owned(), outcome.failure.as_ref().map_or(0, |failure| failure.errno).into());
    object.insert("job options".to_owned(), options(&row.options));
    object.insert("read".to_owned(), transfer(&outcome.read));
    object.insert("write".to_owned(), transfer(&outcome.write));
    object.insert("trim".to_owned(), transfer(&Transfer::default()));
    for (unit, shares) in latency_shares(row) {
        let shares = shares.into_iter().map(|(limit, share)| (limit, decimal(share))).collect();
        object.insert(format!("latency_{unit}"), Value::Object(shares));
    }
    // Not fio's: it ends at the first error.
    object.insert("verify_errors".to_owned(), outcome.verify_errors.into());
    if let Some(failure) = &outcome.failure {
        object.insert("error_message".to_owned(), failure.message.as_str().into());
    }
    Value::Object(object)
}

fn transfer(transfer: &Transfer) -> Value {
    let rate = transfer.bandwidth_bytes_per_second();
    let mut completion = latencies(&transfer.latencies);
    if transfer.latencies.samples() > 0 {
        let percentile =
            |&percent: &f64| (format!("{percent:.6}"), transfer.latencies.percentile_ns(percent).into());
        let percentiles = PERCENTILES.iter().map(percentile).collect();
        completion.insert("percentile".to_owned(), Value::Object(percentiles));
    }
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
        // Nothing is queued: submission takes no time of its own, and both latencies are one.
        "slat_ns": latencies(&Latencies::default()),
        "clat_ns": completion,
        "lat_ns": latencies(&transfer.latencies),
    })
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
    use super::super::{Failure, Outcome};
    use super::*;

    fn document() -> Value {
        let jobs = jobs("--bs=8k --name=hello --rw=randread --size=1m");
        let outcome = Outcome { read: transfer(100), ..Outcome::default() };
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
                "latency_ns",
                "latency_us",
                "latency_ms",
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
                "lat_ns"
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
    fn a_failure_is_told() {
        let failure = Some(Failure { errno: 5, message: "read at 4096: EIO".to_owned() });
        let outcome = Outcome { failure, verify_errors: 3, ..Outcome::default() };
        let document = Report::new(0, 1, Vec::new(), &jobs("--name=a --size=1m"), vec![outcome]).json();
        assert_eq!(document["jobs"][0]["error"], 5);
        assert_eq!(document["jobs"][0]["verify_errors"], 3);
        assert_eq!(document["jobs"][0]["error_message"], "read at 4096: EIO");
        assert!(document.get("global options").is_none());
    }
}
