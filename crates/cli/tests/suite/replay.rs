//! `mglru replay`: documents, texts, curves and options.

use crate::common::{
    command, document, done, fails, folder, folder_of, lines, number, run, skewed, timeless, words,
};
use std::fs;
use std::io::Read;
use std::path::Path;

const WRITE: u32 = 1 << 31;
const MAPPED: u32 = 1 << 30;
const ANON: u32 = 1 << 29;

#[test]
fn the_document_has_the_documented_fields() {
    let folder = folder();
    let run = run(document(folder.path(), "replay skewed.txt --memory 300p --preset linux-7.2 --warm 0.25"));
    assert_eq!(run["trace"], "skewed.txt");
    assert_eq!((&run["policy"], &run["preset"]), (&"multigen".into(), &"linux-7.2".into()));
    assert_eq!(run["mechanisms"]["lru"], "multigen");
    assert_eq!(run["mechanisms"]["reclaim_loop"], true);
    assert_eq!(run["memory_pages"], 300);
    assert_eq!(run["accesses"], 20_000);
    assert_eq!(number(&run["hits"]) + number(&run["misses"]), 20_000);
    assert_eq!(run["miss_ratio"], number(&run["misses"]) as f64 / 20_000.0);
    let warm = &run["warm"];
    assert_eq!((number(&warm["from_access"]), number(&warm["accesses"])), (5000, 15_000));
    assert_eq!(number(&warm["hits"]) + number(&warm["misses"]), 15_000);
    for counters in [&run["counters"], &warm["counters"]] {
        for name in
            ["workingset_refault_file", "pgscan", "pgsteal", "pgactivate", "pgrefill", "pgmajfault", "file"]
        {
            assert!(counters[name].is_u64(), "{name}");
        }
        assert!(number(&counters["pgsteal"]) > 0 && number(&counters["nr_written"]) > 0);
    }
    assert!(number(&warm["counters"]["pgsteal"]) < number(&run["counters"]["pgsteal"]));
    let generations = &run["generations"];
    assert!(number(&generations["created"]) > 0);
    let live = generations["live"].as_array().unwrap();
    let newest = number(&live.last().unwrap()["seq"]);
    assert_eq!(newest, 3 + number(&generations["created"]), "the first youngest generation is number 3");
    let files: u64 = live.iter().map(|generation| number(&generation["file"])).sum();
    assert!(files <= number(&run["counters"]["file"]) && live[0]["age_ms"].is_u64() && live[0]["anon"] == 0);
}

/// The default policy has newcomers and a main list instead of generations.
#[test]
fn the_lists_of_ranked_are_shown() {
    let folder = folder();
    let replay = "replay skewed.txt --memory 300p --preset default";
    let run = run(document(folder.path(), replay));
    let lists = run["lists"].as_array().unwrap();
    assert_eq!([&lists[0]["name"], &lists[1]["name"]], ["newcomers", "main"]);
    let pages: u64 = lists.iter().map(|list| number(&list["file"])).sum();
    // The youngest pages are not on a list yet.
    assert!((200..=300).contains(&pages) && lists.iter().all(|list| list["anon"] == 0), "{lists:?}");
    let text = done(folder.path(), replay);
    let main = format!("main {}", lists[1]["file"]);
    let shown = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    assert!(shown.into_iter().any(|line| line == main) && !text.contains("generation,"), "{text}");
}

/// Only the time taken may differ.
#[test]
fn the_same_replay_gives_the_same_output_however_it_is_asked_for() {
    let folder = folder();
    let replay = "replay skewed.txt --memory 10% --warm 0.5";
    let first = timeless(document(folder.path(), replay));
    assert_eq!(first, timeless(document(folder.path(), replay)));
    assert_eq!(
        first,
        timeless(document(folder.path(), &format!("{replay} --check=500"))),
        "the checker only looks"
    );
    assert_eq!(first, timeless(document(folder.path(), &format!("{replay} --check"))));
    // A single task makes no random choices: the seed is irrelevant.
    assert_eq!(first, timeless(document(folder.path(), &format!("{replay} --seed 7"))));
    let table = |text: String| -> Vec<String> {
        let speed = |line: &str| line.starts_with("  skewed.txt");
        let trimmed = |line: &str| match speed(line) {
            true => line.rsplit_once("  ").unwrap().0.trim_end().to_owned(),
            false => line.to_owned(),
        };
        // The width of the first line depends on the headings only.
        text.lines().map(trimmed).collect()
    };
    let text = done(folder.path(), replay);
    assert_eq!(table(text.clone()), table(done(folder.path(), replay)));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let misses = number(&first["runs"][0]["misses"]).to_string();
    assert!(text.replace(',', "").contains(&misses), "the table has the document's numbers: {text}");
}

/// On a terminal, bars are drawn on stderr, and stdout stays the same.
#[test]
fn progress_changes_no_number() {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    let folder = folder();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).unwrap();
    for replay in [
        "replay skewed.txt --memory 10%",
        "replay skewed.txt --curve 5%,10% --check=500",
        "replay skewed.txt --baseline lru,opt",
    ] {
        let other_end = ioctl_tiocgptpeer(&terminal, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let mut terminal = fs::File::from(terminal.try_clone().unwrap());
        let drawn = std::thread::spawn(move || {
            let mut drawn = Vec::new();
            // Reading ends with an error when the program has closed its end.
            let _ = terminal.read_to_end(&mut drawn);
            drawn
        });
        // Dropping the command closes its end of the terminal.
        let watched = command(folder.path(), &format!("{replay} --json")).stderr(other_end).output().unwrap();
        assert!(!drawn.join().unwrap().is_empty(), "nothing was drawn");
        let watched = serde_json::from_slice(&watched.stdout).expect("one document");
        assert_eq!(timeless(watched), timeless(document(folder.path(), replay)), "{replay}");
    }
}

#[test]
fn several_traces_and_presets_in_one_call() {
    let folder = folder();
    lines(folder.path(), "cycle.txt", (0..5000).map(|n| format!("R {} 1", n % 100)));
    let document = document(
        folder.path(),
        "replay skewed.txt cycle.txt --memory 50p --preset linux-7.2 --preset default",
    );
    let runs = document["runs"].as_array().unwrap();
    let names: Vec<(&str, &str)> =
        runs.iter().map(|run| (run["trace"].as_str().unwrap(), run["preset"].as_str().unwrap())).collect();
    assert_eq!(
        names,
        [
            ("skewed.txt", "linux-7.2"),
            ("skewed.txt", "default"),
            ("cycle.txt", "linux-7.2"),
            ("cycle.txt", "default")
        ]
    );
    assert_eq!(runs[2]["misses"], 5000, "a cycle of twice the memory misses always");
    let text = done(folder.path(), "replay skewed.txt cycle.txt --memory 50p --preset linux-7.2,default");
    assert_eq!(text.lines().count(), 5, "{text}");
    // A trace that was named twice was replayed twice.
    let text = done(folder.path(), "replay skewed.txt cycle.txt skewed.txt --memory 50p");
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn memory_is_a_size_pages_or_a_share_of_the_pages() {
    let folder = folder();
    let pages = |memory: &str| {
        number(&run(document(folder.path(), &format!("replay skewed.txt --memory {memory}")))["memory_pages"])
    };
    let distinct = number(&document(folder.path(), "trace info skewed.txt")["traces"][0]["distinct_pages"]);
    assert_eq!(pages("1MiB"), 256);
    assert_eq!(pages("64p"), 64);
    assert_eq!(pages("10%"), distinct.div_ceil(10));
    assert_eq!(pages("0.05%"), 1);
    assert_eq!(
        number(&run(document(folder.path(), "replay skewed.txt"))["memory_pages"]),
        distinct.div_ceil(10)
    );
}

/// Every size of memory must work, even one that is smaller than a batch of arrivals.
#[test]
fn tiny_memories_replay() {
    let folder = folder_of(4_000);
    for pages in [1, 2, 3, 31, 32, 33, 64] {
        let run = run(document(folder.path(), &format!("replay skewed.txt --memory {pages}p --check=7")));
        assert_eq!(run["accesses"], 4_000);
        assert_eq!(number(&run["hits"]) + number(&run["misses"]), 4_000, "{pages} pages");
        assert!(number(&run["counters"]["file"]) <= pages);
    }
}

#[test]
fn more_memory_than_the_trace_needs_is_fine() {
    let folder = folder();
    let distinct = number(&document(folder.path(), "trace info skewed.txt")["traces"][0]["distinct_pages"]);
    for memory in ["100%", "1g", "900TiB"] {
        let run = run(document(folder.path(), &format!("replay skewed.txt --memory {memory}")));
        assert_eq!(number(&run["misses"]), distinct, "only first touches miss, with {memory}");
        let enough = memory == "100%" || run["notes"][0].as_str().unwrap().contains("larger than the trace");
        assert!(enough, "{run}");
    }
    let text = done(folder.path(), "replay skewed.txt --memory 1g");
    assert!(text.contains("note: memory is larger than the trace"), "{text}");
}

#[test]
fn the_warm_point_comes_from_beside_the_trace_or_from_the_user() {
    let folder = folder();
    words(folder.path(), "lab.bin", skewed(4000, 500).map(|page| page as u32));
    let from = |options: &str| {
        number(
            &run(document(folder.path(), &format!("replay lab.bin --memory 100p{options}")))["warm"]["from_access"],
        )
    };
    assert_eq!(from(""), 0);
    fs::write(folder.path().join("lab.json"), r#"{"n": 4000, "warm": 0.25}"#).unwrap();
    assert_eq!(from(""), 1000);
    assert_eq!(from(" --warm 50%"), 2000);
    assert_eq!(from(" --warm 0"), 0);
    let all = run(document(folder.path(), "replay lab.bin --memory 100p --warm 0"));
    assert_eq!(all["warm"]["misses"], all["misses"]);
    assert_eq!(all["warm"]["counters"], all["counters"]);
}

#[test]
fn curves_are_the_single_replays_side_by_side() {
    let folder = folder();
    let curve =
        document(folder.path(), "replay skewed.txt --curve 5%,20%,200p,1MiB --preset linux-7.2,default");
    let points = curve["curves"][0]["points"].as_array().unwrap();
    assert_eq!(curve["curves"].as_array().unwrap().len(), 2);
    assert_eq!(curve["runs"].as_array().unwrap().len(), 8);
    let sizes = ["5%", "20%", "200p", "1MiB"];
    for (point, size) in points.iter().zip(sizes) {
        let single =
            document(folder.path(), &format!("replay skewed.txt --memory {size} --preset linux-7.2"));
        assert_eq!(point["memory"], size);
        assert_eq!(point["memory_pages"], single["runs"][0]["memory_pages"]);
        assert_eq!(point["miss_ratio"], single["runs"][0]["miss_ratio"]);
    }
    let single = document(folder.path(), "replay skewed.txt --memory 200p --preset linux-7.2");
    assert_eq!(timeless(curve.clone())["runs"][2], timeless(single)["runs"][0]);
    assert_eq!(timeless(curve), {
        timeless(document(
            folder.path(),
            "replay skewed.txt --curve 5%,20%,200p,1MiB --preset linux-7.2,default",
        ))
    });
    let text = done(folder.path(), "replay skewed.txt --curve 5%,20%");
    assert!(text.contains("miss ratio") && text.contains("20%"), "{text}");
    // Sizes that were named twice were replayed twice.
    let twice = document(folder.path(), "replay skewed.txt --curve 5%,256p,5%,5.0%,1MiB");
    let points = twice["curves"][0]["points"].as_array().unwrap();
    assert_eq!(points.iter().map(|point| &point["memory"]).collect::<Vec<_>>(), ["5%", "256p"]);
    assert_eq!(twice["runs"].as_array().unwrap().len(), 2);
}

#[test]
fn curves_are_drawn() {
    let folder = folder();
    let text = done(folder.path(), "replay skewed.txt --curve 5%,10%,20% --plot curve.svg");
    assert!(text.contains("curve.svg"), "{text}");
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    let svg = String::from_utf8(read("curve.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("skewed.txt") && svg.contains("class=\"curve"), "{svg}");
    assert!(svg.trim_end().ends_with("</svg>"), "{svg}");
    document(folder.path(), "replay skewed.txt --curve 5%,10%,20% --plot again.svg");
    assert_eq!(svg.into_bytes(), read("again.svg"), "the same picture again");
    let error = fails(folder.path(), "replay skewed.txt --curve 5%,10% --plot missing/curve.svg", 1);
    assert!(error.contains("missing/curve.svg"), "{error}");
}

/// Off by default, as in the runs of the kernel lab.
#[test]
fn readahead_and_fault_around_are_options() {
    let folder = tempfile::tempdir().unwrap();
    lines(folder.path(), "ordered.txt", (0..1000).map(|page| format!("R {page} 1")));
    words(folder.path(), "mapped.bin", (0..1000u32).chain((0..1000).map(|page| page | MAPPED)));
    let of = |options: &str| run(document(folder.path(), &format!("replay {options}")));
    let misses = |options: &str| number(&of(options)["misses"]);
    assert_eq!(misses("ordered.txt --memory 500p"), 1000);
    assert_eq!(misses("ordered.txt --memory 500p --readahead 128KiB"), 1, "one window asks for the next");
    let faults = |options: &str| {
        number(
            &of(&format!("mapped.bin --format kernel-lab --memory 2000p {options}"))["counters"]["pgfault"],
        )
    };
    assert_eq!((faults(""), faults("--fault-around 64KiB")), (1000, 1000u64.div_ceil(16)));
    assert_eq!((faults("--fault-around 4KiB"), faults("--fault-around 2MiB")), (1000, 2));
}

#[test]
fn writes_are_written_back_and_synced() {
    let folder = tempfile::tempdir().unwrap();
    let writes = (0..500).map(|n| format!("W {} 1", n % 50)).chain(["S 0 0".to_owned()]);
    lines(folder.path(), "synced.txt", writes);
    let synced = run(document(folder.path(), "replay synced.txt --memory 1000p"));
    assert_eq!(synced["counters"]["nr_written"], 50, "each dirty page once, at the sync");
    assert_eq!(synced["counters"]["file_dirty"], 0);
    assert_eq!(synced["misses"], 50);
    // Overwriting a whole page does not count as an access, so the page has no access when it is
    // evicted.
    lines(folder.path(), "writes.txt", skewed(5000, 300).map(|page| format!("W {page} 1")));
    let of =
        |how: &str| run(document(folder.path(), &format!("replay writes.txt --memory 100p --writes {how}")));
    let (rmw, blind) = (of("rmw"), of("blind"));
    assert!(number(&rmw["counters"]["nr_written"]) > 0 && number(&blind["counters"]["nr_written"]) > 0);
    assert_ne!(rmw["counters"], blind["counters"]);
    assert_eq!(blind["counters"]["workingset_refault_file"], 0, "nothing is read back");
}

#[test]
fn mapped_pages_fault() {
    let folder = tempfile::tempdir().unwrap();
    words(folder.path(), "mapped.bin", skewed(5000, 300).map(|page| page as u32 | MAPPED));
    let run = run(document(folder.path(), "replay mapped.bin --memory 100p --preset linux-7.2"));
    assert_eq!(run["counters"]["pgmajfault"], run["misses"]);
    assert!(number(&run["counters"]["pgactivate"]) > 0);
}

/// 5,000 accesses: two thirds to anonymous memory, half of them stores; the others to a file with
/// the same page numbers.
fn anonymous(folder: &Path) {
    let words_of = skewed(5000, 300).zip(0u32..).map(|(page, n)| match n % 3 {
        0 => page as u32,
        1 => page as u32 | ANON,
        _ => page as u32 | ANON | WRITE,
    });
    words(folder, "anon.bin", words_of);
}

#[test]
fn anonymous_pages_are_swapped() {
    let folder = tempfile::tempdir().unwrap();
    anonymous(folder.path());
    let of = |options: &str| {
        run(document(folder.path(), &format!("replay anon.bin --memory 150p --check=100 {options}")))
    };
    let (disk, zram) = (of("--swap 2MiB"), of("--swap 512p --swap-device zram"));
    for run in [&disk, &zram] {
        let counters = &run["counters"];
        let count = |name: &str| number(&counters[name]);
        assert!(count("pswpout") > 100 && count("pswpin") > 100, "{counters}");
        assert_eq!(count("pswpin"), count("workingset_refault_anon"), "no memory of them is lost");
        assert_eq!((count("pswpin"), &run["swap_pages"]), (count("pgmajfault"), &512.into()));
        assert_eq!(number(&run["hits"]) + number(&run["misses"]), 5000);
        assert!(count("pgsteal_anon") >= count("pswpin") && number(&run["zero_fills"]) > 100);
        assert_eq!((count("file_dirty"), count("nr_written"), count("file_mapped")), (0, 0, 0));
    }
    // Compressed memory keeps no copy of pages in memory, so every evicted page is written.
    assert!(number(&zram["counters"]["pswpout"]) >= number(&zram["counters"]["pgsteal_anon"]));
    assert!(number(&disk["counters"]["pswpout"]) < number(&disk["counters"]["pgsteal_anon"]));
    let text = done(folder.path(), "replay anon.bin --memory 150p --swap 2MiB --preset linux-7.2");
    assert!(text.contains("anon pages") && text.contains("pswpout"), "{text}");
}

#[test]
fn swappiness_decides_which_kind_is_evicted() {
    let folder = tempfile::tempdir().unwrap();
    anonymous(folder.path());
    let stolen = |swappiness: &str, memory: u32| {
        let options = format!("--swap 2MiB --memory {memory}p --swappiness {swappiness}");
        let run = run(document(folder.path(), &format!("replay anon.bin {options}")));
        ["pgsteal_anon", "pgsteal_file"].map(|name| number(&run["counters"][name]))
    };
    let [none, files] = stolen("0", 400);
    assert!(none == 0 && files > 0);
    let ([few, _], [many, _]) = (stolen("1", 150), stolen("200", 150));
    assert!(few < many, "{few} {many}");
    let [anon, none] = stolen("max", 400);
    assert!(anon > 0 && none == 0);
}

#[test]
fn anonymous_pages_without_room_in_swap_stay_until_memory_is_full() {
    let folder = tempfile::tempdir().unwrap();
    anonymous(folder.path());
    for (options, advice) in [
        ("", "give --swap SIZE, or more --memory"),
        ("--swap 100p", "more --swap"),
        ("--swap 2MiB --swappiness 0", "--swappiness 0"),
        ("--swap 2MiB --swappiness max", "pages of files are never taken"),
    ] {
        let memory = if options.contains("max") { 8 } else { 150 };
        let error = fails(folder.path(), &format!("replay anon.bin --memory {memory}p {options}"), 1);
        assert!(
            error.contains("anon.bin: out of memory at access") && error.contains(advice),
            "{options}: {error}"
        );
    }
    let run = run(document(folder.path(), "replay anon.bin --memory 500p"));
    assert_eq!((&run["counters"]["pgsteal_anon"], &run["counters"]["pswpout"]), (&0.into(), &0.into()));
    // A load from memory that was never stored to needs no page.
    words(folder.path(), "zeros.bin", (0..1000).map(|page| page | ANON));
    let run =
        crate::common::run(document(folder.path(), "replay zeros.bin --format kernel-lab --memory 10p"));
    assert_eq!((&run["misses"], &run["counters"]["anon"]), (&0.into(), &0.into()));
}

/// A row and a curve name the policy if it is not the preset's own.
#[test]
fn a_policy_other_than_the_presets_is_named() {
    let folder = folder();
    let label = |options: &str| {
        let text = done(folder.path(), &format!("replay skewed.txt --memory 100p {options}"));
        let row = text.lines().map(str::trim).find(|line| line.starts_with("skewed.txt")).unwrap();
        let words: Vec<&str> = row.split_whitespace().skip(1).take_while(|word| *word != "100").collect();
        words.join(" ")
    };
    for (options, expected) in [
        ("--preset linux-7.2", "linux-7.2"),
        ("--preset linux-7.2 --lru multigen", "linux-7.2"),
        ("--preset linux-7.2 --lru ranked", "ranked linux-7.2"),
        ("--lru multigen", "multigen default"),
        ("--lru ranked", "default"),
        ("--lru classic", "classic default"),
    ] {
        assert_eq!(label(options), expected, "{options}");
    }
    let curve = done(folder.path(), "replay skewed.txt --curve 100p,200p --lru multigen");
    assert!(curve.contains("skewed.txt, policy multigen, preset default"), "{curve}");
    let curve = done(folder.path(), "replay skewed.txt --curve 100p,200p");
    assert!(curve.contains("skewed.txt, preset default"), "{curve}");
}
