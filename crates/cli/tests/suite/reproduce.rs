//! `mglru reproduce`: output and errors.

use crate::common::{document, fails, reproduced};
use std::process::Stdio;

#[test]
fn the_document_has_all_metrics() {
    let document = &reproduced().document;
    let experiment = &document["experiments"][0];
    assert_eq!(
        (experiment["name"].as_str(), experiment["world"].as_str()),
        (Some("workingset"), Some("sim"))
    );
    let rows = experiment["rows"].as_array().unwrap();
    let row = |metric: &str| {
        let mut found = rows.iter().filter(|row| row["metric"] == metric);
        found.next().unwrap_or_else(|| panic!("no {metric} in {document}"))
    };
    for metric in [
        "tpcc_refault_file",
        "tpcc_refault_anon",
        "tpcc_transactions",
        "lulesh_mean_zones_per_second",
        "lulesh_deviation_percent",
    ] {
        let row = row(metric);
        assert!(
            row["published"]["before"].as_f64().unwrap() > row["published"]["after"].as_f64().unwrap() * 0.1
        );
        assert!(row["verdict"].is_string() && row["spread"]["after"].is_number(), "{row}");
    }
    for setting in ["before", "after", "default"] {
        assert!(row("tpcc_refault_file")["measured"][setting].as_f64().unwrap() > 1000.0);
    }
    assert!(row("control_refault_file")["published"].is_null());
    let checks = experiment["checks"].as_array().unwrap();
    assert!(checks.iter().any(|check| check["name"].as_str().unwrap().contains("lack of memory")));
}

/// The same rows on real files. Measurements depend on the machine, contents do not.
#[test]
fn the_real_world_has_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let document =
        document(folder.path(), "reproduce workingset --world real --directory . --quick --runs 1");
    let experiment = &document["experiments"][0];
    assert_eq!(experiment["world"], "real");
    let rows = experiment["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12);
    let transactions = rows.iter().find(|row| row["metric"] == "tpcc_transactions").unwrap();
    assert!(transactions["measured"]["after"].as_f64().unwrap() > 0.0);
    let checks = experiment["checks"].as_array().unwrap();
    let verified = checks.iter().find(|check| check["name"].as_str().unwrap().contains("contents")).unwrap();
    assert_eq!(verified["holds"], true);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "files are gone");
}

/// With the real cache, every loaded page is verified, and every reclaim request is met.
/// Rows of real programs stand beside it, in the document and in the report.
#[test]
fn the_memcg_lru_runs_in_the_cache() {
    let (folder, beside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [apps, report] = ["apps.json", "report.html"].map(|name| beside.path().join(name));
    let rows =
        r#"{"sqlite": {"point reads": {"default": {"hits": [27.6, 27.5, 27.7], "refaults/s": [6490]}}}}"#;
    std::fs::write(&apps, rows).unwrap();
    let options = format!("--apps {} --report {}", apps.display(), report.display());
    let command = format!("reproduce memcg-lru --world real --directory . --quick --runs 1 {options}");
    let document = document(folder.path(), &command);
    assert_eq!(document["apps"]["sqlite"]["point reads"]["default"]["hits"][1], 27.5);
    let report = std::fs::read_to_string(&report).unwrap();
    assert!(report.contains("sqlite: point reads") && report.contains("27.6 (27.5 to 27.7)"));
    let experiment = &document["experiments"][0];
    assert_eq!(experiment["world"], "real");
    assert_eq!(experiment["rows"].as_array().unwrap().len(), 4);
    assert_eq!(experiment["checks"][0]["holds"], true, "{}", experiment["checks"]);
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "files are gone");
}

#[test]
fn unknown_experiments_and_options_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, expected) in [
        ("reproduce nothing", "unknown experiment `nothing`; expected prefetch"),
        ("reproduce --world moon", "--world"),
        ("reproduce --directory .", "needs --world real"),
        ("reproduce workingset --ablate", "--ablate"),
        ("reproduce --runs 0", "--runs"),
    ] {
        let message = fails(folder.path(), arguments, 2);
        assert!(message.contains(expected), "{arguments}: {message}");
    }
}

/// Errors come before runs that take minutes.
#[test]
fn an_unwritable_place_is_reported_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    for arguments in ["reproduce --figures file/figures", "reproduce --report file/report.html"] {
        let message = fails(folder.path(), arguments, 1);
        assert!(message.contains("cannot write") && message.contains("file/"), "{message}");
    }
}

/// Rows of real programs come from a file, which is read before anything runs.
#[test]
fn a_file_without_real_programs_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("empty.json"), "{}").unwrap();
    for (file, reason, status) in
        [("none.json", "No such file", 1), ("empty.json", "no program was measured", 2)]
    {
        let message = fails(folder.path(), &format!("reproduce prefetch --apps {file}"), status);
        assert!(message.contains(reason) && message.contains("experiments/apps/run --json"), "{message}");
    }
}

/// Experiments leave no files: they are large, and some are in memory.
#[test]
fn nothing_is_left_behind_by_an_interrupt() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = "reproduce workingset --world real --directory .";
    let mut child = crate::common::command(folder.path(), arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let entries = || std::fs::read_dir(folder.path()).unwrap().count();
    while entries() == 0 {
        assert_eq!(child.try_wait().unwrap(), None, "it runs for minutes");
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(crate::common::text(&output.stderr), "mglru: interrupted; temporary files are removed\n");
    assert_eq!(entries(), 0);
}
