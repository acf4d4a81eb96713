//! `mglru reproduce reclaim-loop`: its rows and their invariants, in both worlds.

use crate::common::document;
use serde_json::Value;

fn row<'d>(experiment: &'d Value, metric: &str) -> &'d Value {
    let rows = experiment["rows"].as_array().unwrap();
    rows.iter().find(|row| row["metric"] == metric).unwrap_or_else(|| panic!("no {metric} in {experiment}"))
}

#[test]
fn the_document_has_all_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let document = document(folder.path(), "reproduce reclaim-loop --quick --runs 1");
    let experiment = &document["experiments"][0];
    for metric in [
        "ycsb_b_refault_file",
        "ycsb_b_pgpgin",
        "ycsb_b_operations_per_second",
        "fairness_jain",
        "file_anon_mix_rounds",
        "dd_small_memcg_survives",
    ] {
        let row = row(experiment, metric);
        assert!(row["published"]["after"].is_number(), "{row}");
        for setting in ["before", "after", "default"] {
            assert!(row["measured"][setting].as_f64().is_some_and(f64::is_finite), "{row}");
        }
    }
    let measured =
        |metric: &str, setting: &str| row(experiment, metric)["measured"][setting].as_f64().unwrap();
    for setting in ["before", "after", "default"] {
        assert!(measured("ycsb_b_refault_file", setting) > 1000.0);
        assert!((0.9..=1.0).contains(&measured("fairness_jain", setting)));
    }
    assert_eq!(measured("dd_small_memcg_survives", "default"), 1.0);
    let control = row(experiment, "read_only_refault_file");
    assert_eq!(
        (control["verdict"].as_str(), control["caveat"].as_str()),
        (Some("no verdict"), Some("quick, 1 run"))
    );
    let change = control["change"]["median"].as_f64().unwrap();
    assert!(change.abs() < 0.02, "{control}");
    let checks = experiment["checks"].as_array().unwrap();
    let fails: Vec<_> = checks.iter().filter(|check| check["holds"] == false).collect();
    assert!(fails.is_empty(), "{fails:?}");
    let must = experiment["crosschecks"]["must"].as_array().unwrap();
    assert!(must.len() == 3 && must.iter().all(|check| check["holds"] == true), "{must:?}");
    let shown = experiment["shown"].as_array().unwrap();
    assert_eq!(
        shown.iter().map(|shown| &shown["kind"]).collect::<Vec<_>>(),
        ["timelines", "timelines", "fairness", "steps"]
    );
    assert_eq!(
        shown[3]["steps"].as_array().unwrap().len(),
        10,
        "before, eight patches, and the minimum scan"
    );
    for column in shown[3]["columns"].as_array().unwrap() {
        assert_eq!(column["values"].as_array().unwrap().len(), 10, "{column}");
    }
    let survives = &shown[3]["columns"][5];
    assert_eq!((survives["metric"].as_str(), &survives["values"][0]), (Some("dd_survives"), &0.0.into()));
    assert_eq!(survives["values"][8], 1.0, "{survives}");
    for settings in [&shown[0]["timelines"], &shown[1]["timelines"], &shown[2]["settings"]] {
        assert_eq!(settings.as_array().unwrap().len(), 3);
    }
    assert_eq!(shown[2]["settings"][0]["values"].as_array().unwrap().len(), 64, "workers");
}

/// Speed depends on the machine, contents do not.
#[test]
fn a_real_store_keeps_its_values() {
    let folder = tempfile::tempdir().unwrap();
    let document =
        document(folder.path(), "reproduce reclaim-loop --world real --directory . --quick --runs 1");
    let experiment = &document["experiments"][0];
    assert_eq!(experiment["world"], "real");
    assert!(row(experiment, "ycsb_b_operations_per_second")["measured"]["default"].as_f64().unwrap() > 0.0);
    let checks = experiment["checks"].as_array().unwrap();
    // Two files per run: through the cache, and past it. A quick run has a 12th of the records.
    let records = 6 * 2 * (93_750 / 12);
    assert!(checks[0]["holds"] == true && checks[0]["name"].as_str().unwrap().contains(&records.to_string()));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "files are gone");
}
