//! `mglru replay --explain` and `--events`.

use crate::common::{document, done, fails, folder, lines, number, run, skewed, timeless, words};
use serde_json::Value;
use std::fs;
use std::path::Path;

const MAPPED: u32 = 1 << 30;
const ANON: u32 = 1 << 29;
const WRITE: u32 = 1 << 31;

/// The events of a file of JSON Lines.
fn events(folder: &Path, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(folder.join(name)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

fn count(events: &[Value], wanted: impl Fn(&Value) -> bool) -> u64 {
    events.iter().filter(|event| wanted(event)).count() as u64
}

#[test]
fn events_are_counted_as_the_counters_count() {
    let folder = folder();
    let replay = "replay skewed.txt --memory 100p --preset linux-7.2";
    let with = run(timeless(document(folder.path(), &format!("{replay} --events all.jsonl"))));
    assert_eq!(with, run(timeless(document(folder.path(), replay))), "watching changes no result");
    let events = events(folder.path(), "all.jsonl");
    let of = |name: &str| count(&events, |event| event["event"] == name);
    let counter = |name: &str| number(&with["counters"][name]);
    assert_eq!(of("touch"), 20_000);
    let touches = events.iter().filter(|event| event["event"] == "touch");
    assert!(touches.map(|event| number(&event["access"])).eq(0..20_000), "numbers of accesses begin at 0");
    assert_eq!(count(&events, |event| event["hit"] == false), number(&with["misses"]));
    assert_eq!(of("insert"), number(&with["misses"]));
    assert_eq!(count(&events, |event| event["refault"] == true), counter("workingset_refault_file"));
    assert_eq!((of("evict"), of("isolate")), (counter("pgsteal"), counter("pgscan")));
    assert_eq!((of("sort"), of("age")), (counter("pgrefill"), number(&with["generations"]["created"])));
    assert!(of("effort") > 0 && of("list") > of("evict") && of("judge") >= of("isolate"));
    let times: Vec<u64> = events.iter().map(|event| number(&event["nanos"])).collect();
    assert!(times.is_sorted());
    let whole = ["age", "effort"];
    let nameless = |event: &Value| event.get("page").is_none();
    assert!(events.iter().all(|event| nameless(event) == whole.contains(&event["event"].as_str().unwrap())));
}

/// Consecutive hits of a page are one line of its history.
#[test]
fn consecutive_hits_are_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let touches = (0..40).map(|n| format!("{} 7 1", if n % 4 == 3 { "W" } else { "R" }));
    lines(folder.path(), "hot.txt", touches);
    let replay = "replay hot.txt --memory 100p --explain 7,8";
    let text = done(folder.path(), replay);
    for part in [
        "page 7: touched 40 times, missed once, never evicted",
        "read and written (10 writes): hit, 39 times until access 39",
        "page 8: never touched",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let life = run(document(folder.path(), replay))["explain"][0].clone();
    let events = life["events"].as_array().unwrap();
    assert_eq!((&events[2]["times"], &events[2]["writes"]), (&39.into(), &10.into()), "{life}");
}

/// Page 7 is read twice, is evicted by other pages, and refaults.
#[test]
fn a_page_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let pages = (0..5).map(|_| 7).chain(100..400).chain([7]);
    lines(folder.path(), "story.txt", pages.map(|page| format!("R {page} 1")));
    // Without the switch, 7.2 forgets the page in so small a memory.
    let kernel = "--preset linux-7.2 --with shadows_by_size";
    let replay = &format!("replay story.txt --memory 100p {kernel} --explain 7,0x64,5");
    let lives = run(document(folder.path(), &format!("{replay} --events all.jsonl")))["explain"].clone();
    let life = &lives[0];
    let names: Vec<&str> =
        life["events"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names[..4], ["touch", "insert", "touch", "list"]);
    assert_eq!(names[names.len() - 2..], ["touch", "insert"], "{names:?}");
    assert_eq!((&life["page"], &life["touches"], &life["misses"]), (&7.into(), &6.into(), &2.into()));
    assert_eq!((&life["events"][2]["times"], &life["events"][2]["last_access"]), (&4.into(), &4.into()));
    let back = life["events"].as_array().unwrap().last().unwrap();
    assert_eq!(back["refault"], true);
    let events = events(folder.path(), "all.jsonl");
    let of_page = |name: &str| events.iter().rfind(|event| event["event"] == name && event["page"] == 7);
    let evicted = number(&of_page("evict").unwrap()["oldest_generation"]);
    let opened =
        events.iter().filter(|event| event["event"] == "age").map(|event| number(&event["generation"]));
    let (distance, reach) = (number(&back["distance"]), number(&back["reach"]));
    assert_eq!((distance, reach), (opened.max().unwrap() - evicted, 3));
    assert_eq!(back["recent"], distance <= reach);
    for name in ["recent", "distance", "reach"] {
        assert_eq!(of_page("insert").unwrap()[name], back[name]);
    }
    let of_page = count(&events, |event| event["page"] == 7);
    assert_eq!(of_page, names.len() as u64 + 3, "four hits are one line");
    assert_eq!((&lives[1]["page"], &lives[1]["misses"]), (&100.into(), &1.into()));
    assert_eq!(lives[2]["events"], Value::Array(vec![]));
    let text = done(folder.path(), replay);
    for part in [
        "page 7: touched 6 times, missed 2 times, evicted once",
        "read: hit, 4 times until access 4",
        "added to generation",
        "verdict: free",
        &format!("a refault, too long ago, after {distance} generations (recent up to 3)"),
        "page 5: never touched",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn mapped_and_anonymous_pages_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let word = |(n, page): (usize, u64)| match n % 4 {
        0 => page as u32,
        1 => page as u32 | MAPPED,
        2 => page as u32 | ANON | WRITE,
        _ => page as u32 | ANON,
    };
    words(folder.path(), "mixed.bin", skewed(20_000, 300).enumerate().map(word));
    let options = "--memory 150p --swap 2MiB --swap-device zram --swappiness 100 --preset linux-7.2";
    let replay = format!("replay mixed.bin {options} --explain 3,anon:3 --events all.jsonl");
    let run = run(document(folder.path(), &replay));
    let events = events(folder.path(), "all.jsonl");
    for (life, anon) in [(0, false), (1, true)] {
        let life = &run["explain"][life];
        let touched = |event: &Value| {
            event["event"] == "touch" && event["page"] == 3 && event.get("anon").is_some() == anon
        };
        assert_eq!((&life["anon"], number(&life["touches"])), (&anon.into(), count(&events, touched)));
        assert!(number(&life["touches"]) > 50, "{life}");
    }
    let of = |name: &str| count(&events, |event| event["event"] == name);
    assert_eq!(of("evict"), number(&run["counters"]["pgsteal"]));
    assert_eq!(of("insert"), number(&run["misses"]) + number(&run["zero_fills"]));
    assert!(count(&events, |event| event["verdict"] == "swap_out") > 0);
    assert!(
        of("promote") > 0 && events.iter().all(|event| event["event"] != "insert" || event["page"].is_u64())
    );
}

#[test]
fn the_classic_lru_has_lists_instead_of_generations() {
    let folder = folder();
    let replay = "replay skewed.txt --memory 100p --lru classic --explain 3 --events all.jsonl";
    let run = run(document(folder.path(), replay));
    let events = events(folder.path(), "all.jsonl");
    for list in ["active", "inactive"] {
        assert!(count(&events, |event| event["list"] == list) > 100, "{list}");
    }
    let generations = ["generation", "oldest_generation"];
    assert!(events.iter().all(|event| generations.iter().all(|name| event.get(name).is_none())));
    assert_eq!(count(&events, |event| event["event"] == "evict"), number(&run["counters"]["pgsteal"]));
    let busy =
        events.iter().find(|event| event["from"] == "activation").expect("some page was accessed twice");
    let page = number(&busy["page"]);
    let text =
        done(folder.path(), &format!("replay skewed.txt --memory 100p --lru classic --explain {page}"));
    for part in ["added to the inactive list", "accessed twice: moved to the active list"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Distances are counted in evictions and activations, and compared with the length of the active
/// list: 7 and 8 are on it when 9 refaults after 300 pages.
#[test]
fn distances_of_the_classic_lru_are_those_it_judges_by() {
    let folder = tempfile::tempdir().unwrap();
    let pages = [7, 8, 7, 8, 7, 8, 9].into_iter().chain(100..400).chain([9]);
    lines(folder.path(), "story.txt", pages.map(|page| format!("R {page} 1")));
    let replay = "replay story.txt --memory 100p --lru classic --explain 9 --events all.jsonl";
    let run = run(document(folder.path(), replay));
    let back = run["explain"][0]["events"].as_array().unwrap().last().unwrap().clone();
    let all = events(folder.path(), "all.jsonl");
    let evicted = all.iter().position(|event| event["event"] == "evict" && event["page"] == 9).unwrap();
    let since = &all[evicted..];
    let (evictions, activations) = (
        count(since, |event| event["event"] == "evict"),
        count(since, |event| event["from"] == "activation"),
    );
    assert_eq!((&back["refault"], &back["recent"]), (&true.into(), &false.into()), "{back}");
    assert_eq!((number(&back["distance"]), number(&back["reach"])), (evictions + activations, 2), "{back}");
    // The text is wrapped.
    let text = done(folder.path(), replay).split_whitespace().collect::<Vec<_>>().join(" ");
    let expected =
        format!("too long ago, after {} evictions and activations (recent up to 2)", back["distance"]);
    assert!(text.contains(&expected), "{expected}: {text}");
}

#[test]
fn unwatchable_replays_are_refused() {
    let folder = folder();
    std::fs::copy(folder.path().join("skewed.txt"), folder.path().join("other.txt")).unwrap();
    for (options, part) in [
        ("skewed.txt other.txt --explain 5", "give one trace and one preset"),
        ("skewed.txt --preset linux-7.2,default --events a.jsonl", "give one trace and one preset"),
        ("skewed.txt --curve 5%,10% --events a.jsonl", "--curve"),
        ("skewed.txt --events a.json", ".jsonl"),
        ("skewed.txt --events a.json", ".perfetto"),
        ("skewed.txt --explain page", "such as 4711"),
    ] {
        let error = fails(folder.path(), &format!("replay {options}"), 2);
        assert!(error.contains(part), "{options}: {error}");
    }
    let error = fails(folder.path(), "replay skewed.txt --events missing/a.jsonl", 1);
    assert!(error.contains("missing/a.jsonl: cannot write the events"), "{error}");
    let full = Path::new("/dev/full");
    for name in ["full.jsonl", "full.perfetto"].iter().filter(|_| full.exists()) {
        std::os::unix::fs::symlink(full, folder.path().join(name)).unwrap();
        let error = fails(folder.path(), &format!("replay skewed.txt --events {name}"), 1);
        assert!(error.contains(&format!("{name}: cannot write the events")), "{error}");
    }
}

/// The kernel's tracepoints count what the counters count.
#[test]
fn tracepoints_are_printed_as_perf_script_does() {
    let folder = folder();
    let replay = "replay skewed.txt --memory 100p --preset linux-7.2 --events all.txt";
    let run = run(document(folder.path(), replay));
    let text = fs::read_to_string(folder.path().join("all.txt")).unwrap();
    let counter = |name: &str| number(&run["counters"][name]);
    let lines = |event: &str| text.lines().filter(|line| line.contains(event)).collect::<Vec<_>>();
    let sum = |event: &str, field: &str| -> u64 {
        let field = format!(" {field}=");
        let value = |line: &&str| {
            line.split_once(&field).unwrap().1.split(' ').next().unwrap().parse::<u64>().unwrap()
        };
        lines(event).iter().map(value).sum()
    };
    assert_eq!(lines("mm_filemap_add_to_page_cache").len() as u64, number(&run["misses"]));
    assert_eq!(lines("mm_filemap_delete_from_page_cache").len() as u64, counter("pgsteal"));
    assert_eq!(sum("mm_vmscan_lru_shrink_inactive", "nr_reclaimed"), counter("pgsteal"));
    assert_eq!(sum("mm_vmscan_lru_isolate", "nr_taken"), counter("pgscan"));
    // The kernel's multi-gen LRU counts folios that it sorted in both.
    let scanned = sum("mm_vmscan_lru_isolate", "nr_scanned");
    assert_eq!(sum("mm_vmscan_lru_shrink_inactive", "nr_scanned"), scanned);
    assert!(
        (counter("pgscan") + 1..=counter("pgscan") + counter("pgrefill")).contains(&scanned),
        "{scanned}"
    );
    assert_eq!(sum("mm_vmscan_memcg_reclaim_end", "nr_reclaimed"), counter("pgsteal"));
    assert_eq!(lines("mm_vmscan_memcg_reclaim_begin").len(), lines("mm_vmscan_memcg_reclaim_end").len());
    let time = |line: &str| {
        let (head, _) = line.split_once(": ").unwrap();
        head.split_whitespace().last().unwrap().parse::<f64>().unwrap()
    };
    assert!(text.lines().map(time).is_sorted());
}

/// Batches of the ranked policy have pages of both types, and the whole batch had the type of one.
#[test]
fn sums_of_tracepoints_equal_the_counters_by_type() {
    let folder = folder();
    done(folder.path(), "trace generate tpcc both.bin --accesses 30000");
    let replay = "replay both.bin --swap 64MiB --memory 300p --events both.txt";
    for rules in ["default", "linux-7.2", "linux-7.2 --lru classic"] {
        let run = run(document(folder.path(), &format!("{replay} --preset {rules}")));
        let text = fs::read_to_string(folder.path().join("both.txt")).unwrap();
        let sum = |event: &str, of: &str, field: &str| -> u64 {
            let field = format!(" {field}=");
            let lines = text.lines().filter(|line| line.contains(event) && line.contains(of));
            let values = lines.map(|line| line.split_once(&field).unwrap().1.split(' ').next().unwrap());
            values.map(|value| value.parse::<u64>().unwrap()).sum()
        };
        let counter = |name: &str| number(&run["counters"][name]);
        for (of, lru, flag) in [
            ("file", "lru=inactive_file", "RECLAIM_WB_FILE"),
            ("anon", "lru=inactive_anon", "RECLAIM_WB_ANON"),
        ] {
            let taken = sum("mm_vmscan_lru_isolate", lru, "nr_taken");
            assert_eq!(taken, counter(&format!("pgscan_{of}")), "{rules}: {of}");
            let reclaimed = sum("mm_vmscan_lru_shrink_inactive", flag, "nr_reclaimed");
            assert_eq!(reclaimed, counter(&format!("pgsteal_{of}")), "{rules}: {of}");
        }
        let dirty = sum("mm_vmscan_lru_shrink_inactive", "", "nr_dirty");
        assert!(dirty >= counter("nr_vmscan_immediate_reclaim") && dirty > 0, "{rules}: {dirty}");
    }
}

/// A page that was truncated went without an event, and came back as if it had never been cached.
#[test]
fn truncated_pages_are_removed() {
    let folder = folder();
    let read = |page: u64| format!("f read {} 4096", page * 4096);
    let mut log = vec!["fio version 2 iolog".to_owned(), "f add".to_owned(), "f open".to_owned()];
    log.extend((0..40).map(read));
    log.extend(["f trim 0 81920".to_owned(), read(5), "f close".to_owned()]);
    fs::write(folder.path().join("trim.log"), log.join("\n") + "\n").unwrap();
    let replay = "replay trim.log --memory 100p --preset linux-7.2 --events";
    let run = run(document(folder.path(), &format!("{replay} all.txt")));
    let text = fs::read_to_string(folder.path().join("all.txt")).unwrap();
    let lines = |event: &str| text.lines().filter(|line| line.contains(event)).count() as u64;
    assert_eq!((lines("add_to_page_cache"), lines("delete_from_page_cache")), (41, 20));
    assert_eq!(number(&run["counters"]["file"]), 21);
    done(folder.path(), &format!("{replay} all.jsonl"));
    let removed = events(folder.path(), "all.jsonl").into_iter().filter(|event| event["event"] == "remove");
    assert!(removed.map(|event| number(&event["page"])).eq(0..20));
    let life = done(folder.path(), "replay trim.log --memory 100p --explain 5");
    assert!(life.contains("  removed: its bytes were truncated"), "{life}");
}

#[test]
fn events_are_filtered_by_page_and_time() {
    let folder = folder();
    let replay = "replay skewed.txt --memory 100p --preset linux-7.2 --events";
    done(folder.path(), &format!("{replay} all.jsonl"));
    done(
        folder.path(),
        &format!("{replay} part.jsonl --events-page 3,5 --events-from 0.1 --events-until 0.5"),
    );
    let wanted = |event: &Value| {
        let nanos = number(&event["nanos"]);
        (event["page"] == 3 || event["page"] == 5) && (100_000_000..500_000_000).contains(&nanos)
    };
    let all = events(folder.path(), "all.jsonl");
    let expected: Vec<Value> = all.into_iter().filter(|event| wanted(event)).collect();
    assert!(expected.len() > 10);
    assert_eq!(events(folder.path(), "part.jsonl"), expected);
    let text = done(folder.path(), &format!("{replay} none.jsonl --events-page 99999999"));
    assert!(text.contains("No event is in none.jsonl"), "{text}");
    assert!(events(folder.path(), "none.jsonl").is_empty());
    fails(folder.path(), "replay skewed.txt --events-page 3", 2);
}
