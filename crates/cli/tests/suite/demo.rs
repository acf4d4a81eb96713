//! `mglru demo`, with a small file.

use crate::common::{document, done, fails, mglru};
use std::fs;

const SMALL: &str = "demo --directory . --size 8MiB --memory 2MiB --seconds 0.2";

#[test]
fn a_chart_comes_before_the_tables_and_words_are_explained() {
    let here = tempfile::tempdir().unwrap();
    let text = done(here.path(), SMALL);
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    let parts = [
        "Every page is verified",
        "Reads of the reader that found",
        "█",
        "Beside the scan",
        "reads/s",
        "waits for the disk",
    ];
    let places = parts.map(place);
    assert!(places.is_sorted(), "{places:?}: {text}");
    for part in
        ["mglru, default", "mglru, linux-7.2", "plain LRU", "Evicted: pages", "none was wrong", "p99 µs"]
    {
        place(part);
    }
    // A process does not fit into a memory cgroup of 2 MiB.
    assert!(text.contains("left out") && text.contains("too small for a process"), "{text}");
    assert_eq!(text.lines().find(|line| line.chars().count() > 100), None);
    assert!(!text.contains('\x1b'), "colours are for terminals");
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn the_document_has_every_cache() {
    let here = tempfile::tempdir().unwrap();
    let report = document(here.path(), &format!("{SMALL} --backend threads --preset linux-7.1"));
    let demo = &report["demo"];
    assert!(demo["pages_verified"].as_u64().unwrap() > 0);
    assert_eq!((&demo["pages_wrong"], &demo["file_bytes"]), (&0.into(), &(8 << 20).into()));
    let caches = demo["caches"].as_array().unwrap();
    let names: Vec<&str> = caches.iter().map(|cache| cache["name"].as_str().unwrap()).collect();
    assert_eq!(names[..3], ["mglru, linux-7.1", "mglru, linux-7.2", "plain LRU"]);
    assert!(names.len() == 3 && demo["system_left_out"].as_str().unwrap().contains("too small"), "{demo}");
    for cache in caches {
        let reader = &cache["reader"];
        let [reads, p99] =
            [&reader["reads"], &reader["latency_ns"]["p99"]].map(|value| value.as_u64().unwrap());
        assert!(reads > 0 && p99 > 0 && cache["scan"]["bytes"].as_u64().unwrap() > 0, "{cache}");
        if cache["kind"] != "system" {
            let hits = reader["hits"].as_u64().unwrap();
            assert!(hits > 0 && hits < reads, "{cache}");
        }
    }
    let mglru = &caches[0]["mglru"];
    assert_eq!(mglru["backend"], "threads");
    assert!(mglru["tenants"][0]["counters"]["pgsteal"].as_u64().unwrap() > 0, "{mglru}");
    assert!(caches[2]["mglru"].is_null());
}

#[test]
fn errors_name_a_remedy() {
    let here = tempfile::tempdir().unwrap();
    let stderr = fails(here.path(), "demo --directory missing --size 8MiB", 1);
    assert!(stderr.contains("choose another with --directory"), "{stderr}");
    let stderr = fails(here.path(), "demo --directory . --size 1024TiB", 1);
    assert!(stderr.contains("are needed") && stderr.contains("a smaller --size"), "{stderr}");
    let stderr = fails(here.path(), "demo --size 1MiB --memory 1MiB", 2);
    assert!(stderr.contains("at least 2 MiB"), "{stderr}");
    let output = mglru(here.path(), "demo --size 0");
    assert!(output.stdout.is_empty() && output.status.code() == Some(2), "refused before anything is said");
}
