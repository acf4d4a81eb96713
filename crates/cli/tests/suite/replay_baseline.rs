//! `mglru replay --baseline`: rows of other policies beside the engine's.

use crate::common::{document, done, fails, folder, lines, number, run, timeless};
use serde_json::Value;

const ALL: [&str; 10] = ["fifo", "lru", "clock", "2q", "lirs", "arc", "w-tinylfu", "s3-fifo", "sieve", "opt"];

fn policies(document: &Value) -> Vec<&str> {
    document["runs"].as_array().unwrap().iter().map(|run| run["policy"].as_str().unwrap()).collect()
}

#[test]
fn other_policies_stand_beside_the_engine() {
    let folder = folder();
    let replay = "replay skewed.txt --memory 10% --warm 0.25";
    let alone = run(timeless(document(folder.path(), replay)));
    let all = timeless(document(folder.path(), &format!("{replay} --baseline all")));
    let runs = all["runs"].as_array().unwrap();
    assert_eq!(runs[0], alone, "the engine's row does not depend on the others");
    assert_eq!(policies(&all)[1..], ALL);
    let opt = number(&runs[10]["misses"]);
    for run in &runs[1..] {
        assert_eq!((&run["memory_pages"], &run["accesses"]), (&alone["memory_pages"], &alone["accesses"]));
        assert_eq!(number(&run["hits"]) + number(&run["misses"]), 20_000);
        assert_eq!(run["miss_ratio"], number(&run["misses"]) as f64 / 20_000.0);
        let warm = &run["warm"];
        assert_eq!((&warm["from_access"], &warm["accesses"]), (&5000.into(), &15_000.into()));
        assert!(number(&warm["misses"]) < number(&run["misses"]));
        assert!(number(&run["misses"]) >= opt, "{run}");
        assert!(run.get("preset").is_none() && run.get("counters").is_none(), "{run}");
    }
    assert!(number(&alone["misses"]) >= opt);
    let text = done(folder.path(), &format!("{replay} --baseline all"));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert_eq!(text.lines().count(), 13, "{text}");
    let marked = |line: &str| line.split_whitespace().nth(1) == Some("*");
    assert!(text.lines().enumerate().all(|(at, line)| marked(line) == (at == 1)), "{text}");
    assert_eq!(text.lines().last(), Some("* the engine; the others are baselines"));
    for (line, run) in text.lines().skip(1).zip(runs) {
        let misses = number(&run["misses"]).to_string();
        let policy = run["policy"].as_str().unwrap();
        assert!(line.contains(policy) && line.replace(',', "").contains(&misses), "{policy}: {text}");
    }
}

#[test]
fn rows_are_sorted_by_trace() {
    let folder = folder();
    lines(folder.path(), "cycle.txt", (0..5000).map(|n| format!("R {} 1", n % 100)));
    let document = document(
        folder.path(),
        "replay skewed.txt cycle.txt --memory 50p --preset linux-7.2,default --baseline opt,lru,opt",
    );
    assert_eq!(policies(&document), ["multigen", "ranked", "opt", "lru", "multigen", "ranked", "opt", "lru"]);
    let misses = |row: usize| number(&document["runs"][row]["misses"]);
    assert_eq!(document["runs"][6]["trace"], "cycle.txt");
    assert_eq!(misses(7), 5000, "a cycle of twice the memory misses always under LRU");
    // Belady on a cycle of 100 pages with room for 50: 49 pages stay, and the others pass through
    // the last one.
    assert!((2500..2600).contains(&misses(6)), "{}", misses(6));
}

#[test]
fn curves_have_one_of_each_policy() {
    let folder = folder();
    let of = "replay skewed.txt --curve 5%,20%,900TiB --baseline arc,opt";
    let all = document(folder.path(), of);
    let curves = all["curves"].as_array().unwrap();
    let names: Vec<_> = curves.iter().map(|curve| (&curve["policy"], curve["preset"].as_str())).collect();
    assert_eq!(names, [(&"ranked".into(), Some("default")), (&"arc".into(), None), (&"opt".into(), None)]);
    for (curve, runs) in curves.iter().zip(all["runs"].as_array().unwrap().chunks(3)) {
        for (point, run) in curve["points"].as_array().unwrap().iter().zip(runs) {
            assert_eq!((&point["miss_ratio"], &run["policy"]), (&run["miss_ratio"], &curve["policy"]));
        }
    }
    let least = |curve: usize| curves[curve]["points"][2]["miss_ratio"].as_f64().unwrap();
    assert_eq!((least(0), least(1)), (least(1), least(2)), "with memory for all, only first touches miss");
    let text = done(folder.path(), &format!("{of} --plot curve.svg"));
    assert!(text.contains("skewed.txt, policy arc") && text.contains("skewed.txt, preset default"), "{text}");
    let svg = std::fs::read_to_string(folder.path().join("curve.svg")).unwrap();
    assert!(svg.contains("skewed.txt, policy opt") && svg.contains("skewed.txt, preset default"), "{svg}");
}

#[test]
fn every_size_of_memory_works() {
    let folder = folder();
    for pages in [1, 2, 3, 9, 64] {
        let document =
            document(folder.path(), &format!("replay skewed.txt --memory {pages}p --baseline all"));
        for run in document["runs"].as_array().unwrap() {
            assert_eq!(number(&run["hits"]) + number(&run["misses"]), 20_000, "{run}");
        }
    }
}

#[test]
fn an_unknown_policy_is_refused_with_the_known_ones() {
    let folder = folder();
    for wrong in ["mru", "arc,mru", ""] {
        let error = fails(folder.path(), &format!("replay skewed.txt --baseline={wrong}"), 2);
        assert!(error.contains("--baseline"), "{error}");
        assert!(ALL.iter().all(|name| error.contains(name)), "{error}");
    }
}
