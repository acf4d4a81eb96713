//! `mglru ablate`: traces and scenarios, comparisons, and errors.

use crate::common::{ablated, document, done, fails, folder, folder_of};
use serde_json::Value;
use std::fs;

const SCENARIO: &str = r#"
[machine]
memory = "8MiB"

[[tenant]]
path = "a"
memory.low = "2MiB"

[[tenant]]
path = "b"

[[job]]
tenant = "a"
fio = """
[hot]
rw=randread
size=6m
rate_iops=4000
time_based
runtime=2
"""

[[job]]
tenant = "b"
fio = """
[scan]
rw=read
size=32m
"""
"#;

fn variants(ablation: &Value) -> &Vec<Value> {
    ablation["variants"].as_array().unwrap()
}

fn effect<'a>(variant: &'a Value, metric: &str) -> &'a Value {
    let effects = variant["effects"].as_array().unwrap();
    effects.iter().find(|effect| effect["metric"] == metric).unwrap()
}

#[test]
fn a_trace_has_counts_and_no_time() {
    let ablation = &ablated()["ablation"];
    assert_eq!((ablation["kind"].as_str(), ablation["runs"].as_u64()), (Some("trace"), Some(6)));
    assert!(ablation["confidence"].as_f64().unwrap() >= 0.95);
    let full = ablation["full"].as_array().unwrap();
    let metrics: Vec<&str> = full.iter().map(|metric| metric["metric"].as_str().unwrap()).collect();
    assert_eq!(metrics, ["misses", "refaults", "scanned_per_reclaimed"]);
    let misses = full[0]["values"].as_array().unwrap();
    assert!(misses.iter().any(|value| value != &misses[0]), "seeds vary something: {misses:?}");
    let classic = variants(ablation).iter().find(|variant| variant["without"][0] == "lru").unwrap();
    assert_eq!((classic["changes_nothing"].as_bool(), classic["pair"].as_bool()), (Some(false), Some(false)));
    let of = effect(classic, "misses");
    let number = |name: &str| of[name].as_f64().unwrap();
    assert!(number("low") <= number("effect") && number("effect") <= number("high"));
    assert_eq!(of["within_noise"], number("low") <= 0.0 && number("high") >= 0.0);
    assert!(ablation["timeline"]["tenants"][0]["samples"].as_array().unwrap().len() >= 40);
    let names =
        ablation["cannot_matter"].as_array().unwrap().iter().map(|one| one["mechanism"].as_str().unwrap());
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            // Mechanisms of multi-gen and of classic, which are off.
            "workingset_rework",
            "lulesh_fix",
            "reclaim_loop",
            "fault_placement",
            "batch_nonresident_age",
            "prefetch",
            "fixed_budget",
            "aging_apart",
            "exact_scan",
            "same_type",
            "small_batches",
            "scan_after_aging",
            "isolate_dirty",
            "keep_reclaim_mark",
            "flush_per_batch",
            "dirty_tallies",
            "fault_counts",
            "referenced_placement",
            "age_per_batch",
            "age_after_unlock",
            "age_with_cost",
            "age_once_per_refault",
            "age_evictions_per_batch",
            "cost_releases_lock",
            "prefetch_next",
            "proportional_protection",
            "bounded_steps",
            "shadows_by_size",
            "stop_at_goal",
            "lru_lock"
        ]
    );
}

/// The first seed runs the same replay as `mglru replay`.
#[test]
fn the_full_set_is_a_replay() {
    let folder = folder();
    let ablation = document(folder.path(), "ablate skewed.txt --memory 20% --runs 1 --preset linux-7.1");
    let replay = document(folder.path(), "replay skewed.txt --memory 20% --preset linux-7.1");
    assert_eq!(
        ablation["ablation"]["full"][0]["values"][0].as_f64(),
        replay["runs"][0]["misses"].as_f64(),
        "{ablation}"
    );
    assert!(ablation["ablation"]["confidence"].as_f64().unwrap() < 0.95, "one seed is sure of nothing");
}

/// Two runs give no interval, and the interval of three is too uncertain for a verdict.
#[test]
fn with_few_seeds_nothing_is_certain() {
    let folder = folder_of(5_000);
    for (runs, low) in [(1, Some(Value::Null)), (5, None)] {
        let arguments = format!("ablate skewed.txt --memory 200p --runs {runs}");
        let document = document(folder.path(), &arguments);
        for variant in variants(&document["ablation"]) {
            let of = effect(variant, "misses");
            assert!(of["within_noise"].is_null() && low.as_ref().is_none_or(|low| of["low"] == *low), "{of}");
        }
        let text = done(folder.path(), &arguments);
        let row =
            text.lines().find(|line| line.trim_start().starts_with("ranked (multigen instead) ")).unwrap();
        assert!(row.ends_with("uncertain"), "{row}");
        assert!(!text.contains("1 seeds") && text.replace('\n', " ").contains("confidence"), "{text}");
    }
}

#[test]
fn text_and_document_agree_on_every_machine() {
    let folder = folder();
    let timeless =
        |text: String| text.lines().filter(|line| !line.contains("runs in")).collect::<Vec<_>>().join("\n");
    let text = timeless(done(folder.path(), "ablate skewed.txt --memory 200p"));
    assert_eq!(text, timeless(done(folder.path(), "ablate skewed.txt --memory 200p")));
    for words in [
        "by at most 1 %",
        "prefetch has no effect here",
        "turn both on, or both off",
        "scanned per reclaimed",
    ] {
        assert!(text.replace('\n', " ").contains(words), "{words} in {text}");
    }
    let classic =
        variants(&ablated()["ablation"]).iter().find(|variant| variant["without"][0] == "lru").unwrap();
    let shown = format!("{:+.2} %", effect(classic, "misses")["effect"].as_f64().unwrap());
    let line = text.lines().find(|line| line.trim_start().starts_with("ranked (multigen instead) ")).unwrap();
    assert!(line.contains(&shown), "{shown} in {line}");
}

#[test]
fn pairs_do_more_or_less_than_the_sum() {
    let folder = folder_of(5_000);
    let document =
        document(folder.path(), "ablate skewed.txt --memory 200p --pairs --runs 3 --preset linux-7.2");
    let pairs: Vec<&Value> =
        variants(&document["ablation"]).iter().filter(|variant| variant["pair"] == true).collect();
    assert!(pairs.len() >= 6, "{}", pairs.len());
    for pair in pairs {
        let effect = effect(pair, "misses");
        let beyond = &effect["beyond"];
        assert!(beyond["low"].as_f64().unwrap() <= beyond["high"].as_f64().unwrap(), "{pair}");
    }
}

/// The working-set rework is irrelevant under the classic LRU, and is reported as such.
#[test]
fn a_pair_that_is_one_of_its_parts_is_named_as_that_and_noise_stands_last() {
    let folder = folder_of(5_000);
    let arguments = "ablate skewed.txt --memory 200p --pairs --preset linux-7.2";
    let document = document(folder.path(), arguments);
    let pairs = || variants(&document["ablation"]).iter().filter(|variant| variant["pair"] == true);
    let with_lru = pairs().find(|pair| {
        pair["without"] == serde_json::json!(["lru", "workingset_rework", "lulesh_fix", "fault_placement"])
    });
    assert_eq!(with_lru.unwrap()["same_as"], "multigen (classic instead)");
    let text = done(folder.path(), arguments);
    let (_, after) = text.split_once("misses, pairs\n").unwrap();
    let (table, _) = after.split_once("\n\nrefaults").unwrap();
    let verdicts: Vec<bool> = table.lines().skip(2).map(|line| line.ends_with("noise")).collect();
    assert!(!table.contains("lru + workingset_rework"), "{table}");
    let noisy_at = verdicts.iter().position(|&noise| noise).unwrap_or(verdicts.len());
    let others = table.lines().filter(|line| line.contains("others:")).count();
    assert!(verdicts[noisy_at..verdicts.len() - others].iter().all(|&noise| noise), "{table}");
    assert!(text.replace("\n", " ").contains("of them alone (in brackets)"), "{text}");
}

/// A timed job that waits for a disk: with less memory it misses a larger share of fewer accesses.
#[test]
fn scenarios_are_compared_per_access() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("two.toml"), SCENARIO).unwrap();
    let document = document(folder.path(), "ablate two.toml --runs 1");
    let full = document["ablation"]["full"].as_array().unwrap();
    let per_100 = |name: &str| {
        let metric = full.iter().find(|metric| metric["metric"] == name).unwrap();
        metric["median"].as_f64().unwrap()
    };
    let tenants = document["ablation"]["tenants"][0].as_array().unwrap();
    let sum = |name: &str| tenants.iter().map(|tenant| tenant[name].as_f64().unwrap()).sum::<f64>();
    let (hits, misses) = (sum("hits"), sum("misses"));
    assert!((per_100("misses_per_100_accesses") - 100.0 * misses / (hits + misses)).abs() < 1e-9);
    assert!((0.0..100.0).contains(&per_100("refaults_per_100_accesses")));
}

#[test]
fn a_scenario_has_time_and_tenants() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("two.toml"), SCENARIO).unwrap();
    let document = document(folder.path(), "ablate two.toml --runs 3");
    let ablation = &document["ablation"];
    assert_eq!(ablation["kind"], "scenario");
    let full = ablation["full"].as_array().unwrap();
    let metrics: Vec<&str> = full.iter().map(|metric| metric["metric"].as_str().unwrap()).collect();
    assert_eq!(
        metrics,
        [
            "accesses_per_second",
            "p99_access_us",
            "misses_per_100_accesses",
            "refaults_per_100_accesses",
            "scanned_per_reclaimed"
        ]
    );
    assert!(full[..3].iter().all(|metric| metric["median"].as_f64().unwrap() > 0.0), "{full:?}");
    let misses = full[2]["values"].as_array().unwrap();
    assert!(misses.iter().any(|value| value != &misses[0]), "seeds vary something: {misses:?}");
    let tenants = ablation["tenants"][0].as_array().unwrap();
    assert_eq!(tenants.iter().map(|tenant| tenant["name"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn invalid_arguments_are_refused() {
    let folder = folder();
    fs::write(folder.path().join("two.toml"), SCENARIO).unwrap();
    for (arguments, status, expected) in [
        ("ablate", 2, "TRACE|SCENARIO"),
        ("ablate missing.txt", 1, "missing.txt"),
        ("ablate missing.toml", 1, "missing.toml"),
        ("ablate skewed.txt --runs 0", 2, "--runs"),
        ("ablate skewed.txt --without workingset_rework", 2, "workingset_rework is off"),
        ("ablate skewed.txt --report x.txt", 2, ".html"),
        ("ablate skewed.txt --report no/such/folder/x.html", 1, "no/such/folder/x.html"),
        ("ablate two.toml --warm 0.5", 2, "about traces"),
        ("ablate two.toml --swap 1MiB", 2, "about traces"),
        ("ablate two.toml --swappiness 10", 2, "about traces"),
        ("ablate two.toml --format plain", 2, "about a trace"),
        ("ablate two.toml --lossy", 2, "about a trace"),
        ("ablate two.toml --unit 4096", 2, "about a trace"),
        ("ablate two.toml --memory 10%", 2, "for traces; give a size"),
    ] {
        let message = fails(folder.path(), arguments, status);
        assert!(message.contains(expected), "{arguments}: {message}");
    }
}

#[test]
fn a_report_never_replaces_a_trace_of_the_scenario() {
    let folder = folder();
    let path = |name: &str| folder.path().join(name);
    let scenario = "[machine]\nmemory = \"1MiB\"\n[[job]]\ntrace = \"skewed.txt\"\n";
    fs::write(path("traced.toml"), scenario).unwrap();
    let trace = fs::read(path("skewed.txt")).unwrap();
    fs::hard_link(path("skewed.txt"), path("hard.html")).unwrap();
    std::os::unix::fs::symlink("skewed.txt", path("soft.html")).unwrap();
    for report in ["hard.html", "soft.html"] {
        let message = fails(folder.path(), &format!("ablate traced.toml --runs 1 --report {report}"), 2);
        assert!(
            message.contains("the same file as the input ") && message.contains("skewed.txt"),
            "{message}"
        );
    }
    assert_eq!(fs::read(path("skewed.txt")).unwrap(), trace);
}
