//! `mglru demo`, small.

use crate::common::{document, done, fails};
use std::fs;

#[test]
fn it_tells_what_happened() {
    let here = tempfile::tempdir().unwrap();
    let text = done(here.path(), "demo --directory . --size 8MiB --memory 2MiB --seconds 1");
    for part in [
        "Three tenants",
        "Every page that is read is verified",
        "hit ratio",
        "generations, oldest first",
        "no difference",
        "system MiB/s",
        "The system's cache is not held to 2 MiB",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.lines().find(|line| line.chars().count() > 100), None);
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn the_same_as_a_document() {
    let here = tempfile::tempdir().unwrap();
    let told =
        document(here.path(), "demo --directory . --size 8MiB --memory 2MiB --seconds 1 --backend threads");
    let demo = &told["demo"];
    assert!(demo["pages_verified"].as_u64().unwrap() > 0);
    assert_eq!((&demo["pages_wrong"], &demo["file_bytes"]), (&0.into(), &(8 << 20).into()));
    for side in ["run", "system"] {
        let names = demo[side]["tenants"].as_array().unwrap().iter().map(|tenant| &tenant["name"]);
        assert!(names.eq(["hot", "scan", "mixed"]), "{side}");
        for tenant in demo[side]["tenants"].as_array().unwrap() {
            assert!(
                tenant["operations"].as_u64().unwrap() > 0 && tenant["latency_ns"]["p99"].is_u64(),
                "{tenant}"
            );
        }
    }
    assert_eq!(told["mglru"]["backend"], "threads");
    // The root, which does nothing, and the three.
    let tenants = told["mglru"]["tenants"].as_array().unwrap();
    assert_eq!(tenants.len(), 4);
    for tenant in &tenants[1..] {
        assert!(tenant["counters"]["pgsteal"].as_u64().unwrap() > 0, "{tenant}");
        assert!(tenant["peak_pages"].as_u64() <= tenant["max_pages"].as_u64(), "{tenant}");
        assert!(!tenant["generations"].as_array().unwrap().is_empty());
    }
}

#[test]
fn it_says_why_it_cannot() {
    let here = tempfile::tempdir().unwrap();
    let stderr = fails(here.path(), "demo --directory missing --size 8MiB", 1);
    assert!(stderr.contains("choose another with --directory"), "{stderr}");
    let stderr = fails(here.path(), "demo --directory . --size 1024TiB", 1);
    assert!(stderr.contains("are needed") && stderr.contains("a smaller --size"), "{stderr}");
}
