//! `mglru replay` as a user sees it: numbers that do not depend on how they are asked for, and errors that help.

mod common;

use common::{command, document, done, fails, mglru, text};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const WRITE: u32 = 1 << 31;
const MAPPED: u32 = 1 << 30;
const ANON: u32 = 1 << 29;

/// A page that is more often a low one, by a generator of its own.
fn skewed(accesses: u64, pages: u64) -> impl Iterator<Item = u64> {
    let mut state = 1u64;
    let mut draw = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % pages
    };
    (0..accesses).map(move |_| draw().min(draw()))
}

fn lines(folder: &Path, name: &str, lines: impl Iterator<Item = String>) {
    fs::write(folder.join(name), lines.map(|line| line + "\n").collect::<String>()).unwrap();
}

fn words(folder: &Path, name: &str, words: impl Iterator<Item = u32>) {
    fs::write(folder.join(name), words.flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
}

/// A folder with `skewed.txt`: 20,000 accesses, every seventh written, to 1,000 pages.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let line = |(n, page): (usize, u64)| format!("{} {page} 1", if n % 7 == 6 { 'W' } else { 'R' });
    lines(folder.path(), "skewed.txt", skewed(20_000, 1000).enumerate().map(line));
    folder
}

/// The document without what depends on the machine's speed.
fn timeless(mut document: Value) -> Value {
    for run in document["runs"].as_array_mut().unwrap() {
        let run = run.as_object_mut().unwrap();
        assert!(run.remove("seconds").unwrap().as_f64().unwrap() >= 0.0);
        assert!(run.remove("accesses_per_second").unwrap().as_u64().unwrap() > 0);
    }
    document
}

/// The only run of a document.
fn run(document: Value) -> Value {
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1);
    runs[0].clone()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

#[test]
fn the_document_has_what_is_promised() {
    let folder = folder();
    let run = run(document(folder.path(), "replay skewed.txt --memory 300p --preset linux-7.2 --warm 0.25"));
    assert_eq!(run["trace"], "skewed.txt");
    assert_eq!(run["preset"], "linux-7.2");
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

/// Only how long it took may differ.
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
    // One task alone, on a machine without chance: the seed has nothing to decide.
    assert_eq!(first, timeless(document(folder.path(), &format!("{replay} --seed 7"))));
    let table = |text: String| -> Vec<String> {
        let speed = |line: &str| line.starts_with("  skewed.txt");
        let trimmed = |line: &str| match speed(line) {
            true => line.rsplit_once("  ").unwrap().0.trim_end().to_owned(),
            false => line.to_owned(),
        };
        // The heading's width depends on nothing but the heading.
        text.lines().map(trimmed).collect()
    };
    let text = done(folder.path(), replay);
    assert_eq!(table(text.clone()), table(done(folder.path(), replay)));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let misses = number(&first["runs"][0]["misses"]).to_string();
    assert!(text.replace(',', "").contains(&misses), "the table has the document's numbers: {text}");
}

/// Somebody watches: the trace is read through a progress bar, and bars are drawn, but not on stdout.
#[test]
fn progress_changes_no_number() {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    let folder = folder();
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).and_then(|()| unlockpt(&terminal)).unwrap();
    for replay in ["replay skewed.txt --memory 10%", "replay skewed.txt --curve 5%,10% --check=500"] {
        let other_end = ioctl_tiocgptpeer(&terminal, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let mut terminal = fs::File::from(terminal.try_clone().unwrap());
        let drawn = std::thread::spawn(move || {
            let mut drawn = Vec::new();
            // Ends with an error when the program has closed its end.
            let _ = terminal.read_to_end(&mut drawn);
            drawn
        });
        // The command goes away, and its end of the terminal with it.
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

/// Every size of memory must work, even one in which the batch of arrivals alone does not fit.
#[test]
fn tiny_memories_replay() {
    let folder = folder();
    for pages in [1, 2, 3, 31, 32, 33, 64] {
        let run = run(document(folder.path(), &format!("replay skewed.txt --memory {pages}p --check=7")));
        assert_eq!(run["accesses"], 20_000);
        assert_eq!(number(&run["hits"]) + number(&run["misses"]), 20_000, "{pages} pages");
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
}

#[test]
fn curves_are_drawn() {
    let folder = folder();
    let text = done(folder.path(), "replay skewed.txt --curve 5%,10%,20% --plot curve.svg");
    assert!(text.contains("curve.svg"), "{text}");
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    let svg = String::from_utf8(read("curve.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("skewed.txt") && svg.contains("polyline"), "{svg}");
    assert!(svg.trim_end().ends_with("</svg>"), "{svg}");
    for name in ["curve.png", "again.png", "again.svg"] {
        document(folder.path(), &format!("replay skewed.txt --curve 5%,10%,20% --plot {name}"));
    }
    let png = read("curve.png");
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png[..png.len() - 4].ends_with(b"IEND"));
    assert_eq!((png, svg.into_bytes()), (read("again.png"), read("again.svg")), "the same picture again");
    let error = fails(folder.path(), "replay skewed.txt --curve 5%,10% --plot missing/curve.png", 1);
    assert!(error.contains("missing/curve.png"), "{error}");
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
    // A page that is overwritten whole was not accessed before it was evicted: nothing tells that it was used.
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
    let run = run(document(folder.path(), "replay mapped.bin --memory 100p"));
    assert_eq!(run["counters"]["pgmajfault"], run["misses"]);
    assert!(number(&run["counters"]["pgactivate"]) > 0);
}

/// More records than are decoded before the clock starts: they stream.
#[test]
fn long_traces_stream() {
    let folder = tempfile::tempdir().unwrap();
    let records = (4 << 20) + 70_000;
    words(folder.path(), "long.bin", (0..records).map(|n| if n % 64 == 0 { n / 64 % 1000 } else { n % 64 }));
    let run = run(document(folder.path(), "replay long.bin --memory 50% --warm 0.5"));
    assert_eq!(number(&run["accesses"]), u64::from(records));
    assert_eq!(number(&run["warm"]["from_access"]), u64::from(records) / 2);
    assert_eq!(run["memory_pages"], 500);
    assert!(number(&run["misses"]) > 1000 && number(&run["misses"]) < u64::from(records) / 50);
    // Cut in the middle of the last record: the replay is well under way when that shows.
    let path = folder.path().join("long.bin");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let error = fails(folder.path(), "replay long.bin --memory 64p", 1);
    assert!(error.contains(&format!("long.bin: byte {}", bytes.len() - 4)), "{error}");
    let lossy = document(folder.path(), "replay long.bin --memory 64p --lossy");
    assert!(lossy["runs"][0]["notes"][0].as_str().unwrap().contains("1 bad records"), "{lossy}");
    // An anonymous page behind the first four million.
    let mut anonymous = bytes;
    let last = anonymous.len() - 4;
    anonymous[last..].copy_from_slice(&(5 | ANON).to_le_bytes());
    fs::write(&path, &anonymous).unwrap();
    let error = fails(folder.path(), "replay long.bin --memory 64p", 1);
    assert!(error.contains(&format!("record {records} touches anonymous page 5")), "{error}");
}

/// The most memory that the program ever had, in KiB.
fn peak_kib(folder: &Path, arguments: &str) -> u64 {
    let mut program = command(folder, arguments).stdout(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", program.id());
    let mut peak = 0;
    loop {
        // It only grows; when the program is over, the line is gone.
        let text = fs::read_to_string(&status).unwrap_or_default();
        if let Some(line) = text.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
            peak = line.trim().trim_end_matches(" kB").parse().unwrap();
        }
        if let Some(status) = program.try_wait().unwrap() {
            assert!(status.success(), "{arguments}");
            return peak;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn memory_does_not_grow_with_the_length_of_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let requests = 8 << 14;
    lines(folder.path(), "long.txt", (0..requests).map(|n| format!("R {} 64", n % 16 * 64)));
    // 16 bytes for each of the 8 million records would be 128 MiB.
    for arguments in ["replay long.txt --memory 1024p", "trace info long.txt"] {
        let peak = peak_kib(folder.path(), arguments);
        assert!((1..100 << 10).contains(&peak), "{arguments}: {peak} KiB");
    }
}

#[test]
fn a_compressed_trace_that_breaks_off_is_an_error_or_counted() {
    let folder = folder();
    let path = folder.path();
    for (end, name) in [("gz", "gzip"), ("xz", "xz"), ("zst", "zstd")] {
        let trace = format!("cut.txt.{end}");
        done(path, &format!("trace convert skewed.txt {trace}"));
        let bytes = fs::read(path.join(&trace)).unwrap();
        fs::write(path.join(&trace), &bytes[..bytes.len() - 20]).unwrap();
        for mode in ["replay", "trace info"] {
            let error = fails(path, &format!("{mode} {trace}"), 1);
            let expected = format!("{trace}: truncated: the {name} stream ends early, after ");
            assert!(error.contains(&expected) && error.contains("--lossy"), "{error}");
        }
        let info = &document(path, &format!("trace info {trace} --lossy"))["traces"][0];
        assert_eq!(info["skipped"], 1, "{info}");
        let run = run(document(path, &format!("replay {trace} --lossy --memory 10p")));
        assert_eq!(run["accesses"], info["accesses"]);
        assert_eq!(run["notes"][0], "1 bad records were skipped");
    }
}

#[test]
fn bad_traces_are_refused_with_place_and_remedy() {
    let folder = folder();
    let path = folder.path();
    fs::write(path.join("empty.txt"), "").unwrap();
    fs::write(path.join("nothing.txt"), "# nothing\n").unwrap();
    fs::write(path.join("kv.csv"), "key,op\na,GET\nb,TOUCH\n").unwrap();
    fs::write(path.join("block.csv"), "block_id,op_name\na,putChunk\n").unwrap();
    lines(path, "damaged.txt", ["R 1 1", "R 2 1", "R three 1", "R 4 1"].map(str::to_owned).into_iter());
    words(path, "anon.bin", [1, 2 | WRITE, 7 | ANON].into_iter());
    fs::write(path.join("cut.bin"), [0; 10]).unwrap();
    fs::write(path.join("columns.csv"), "when,where\n1,2\n3,4\n").unwrap();
    fs::write(path.join("binary.dat"), (0..=255u8).cycle().take(4096).collect::<Vec<_>>()).unwrap();
    for (arguments, status, what) in [
        ("replay empty.txt", 1, "empty.txt: empty trace"),
        ("replay nothing.txt --format shared-text", 1, "empty trace"),
        ("replay damaged.txt", 1, "damaged.txt: line 3, byte 12"),
        ("replay damaged.txt", 1, "--lossy"),
        ("replay anon.bin", 1, "anon.bin: record 3 touches anonymous page 7"),
        ("replay anon.bin", 1, "not implemented yet"),
        ("replay cut.bin", 1, "byte 8: truncated"),
        ("replay columns.csv --format libcachesim-csv", 1, "columns.csv: not the columns"),
        ("replay columns.csv", 1, "neither id nor lbn and size"),
        ("replay kv.csv", 1, "kv.csv: line 3, byte 13: damaged cachelib record: op is \"TOUCH\""),
        ("replay block.csv --format cachelib", 1, "io_offset"),
        ("replay damaged.txt --format mqsim", 1, "damaged mqsim record"),
        ("replay damaged.txt --format address", 1, "damaged address record"),
        ("replay binary.dat", 2, "--format"),
        ("replay missing.txt", 1, "missing.txt"),
        ("replay .", 1, "directory"),
    ] {
        let error = fails(path, arguments, status);
        assert!(error.contains(what), "{arguments}: {error}");
    }
    let lossy = document(path, "replay damaged.txt --lossy --memory 10p");
    assert_eq!(lossy["runs"][0]["accesses"], 3);
    assert!(
        lossy["runs"][0]["notes"]
            .as_array()
            .unwrap()
            .iter()
            .any(|note| note.as_str().unwrap().contains("skipped"))
    );
}

#[test]
fn wrong_usage_is_refused_before_anything_is_done() {
    let folder = folder();
    for (arguments, what) in [
        ("replay", "TRACE"),
        ("replay skewed.txt --memory 0", "no memory"),
        ("replay skewed.txt --memory 0%", "no memory"),
        ("replay skewed.txt --memory 100", "at least a page"),
        ("replay skewed.txt --memory ten%", "percentage"),
        ("replay skewed.txt --memory 10% --curve 1%,2%", "cannot be used with"),
        ("replay skewed.txt --curve 1%,none", "whole number"),
        ("replay skewed.txt --plot x.svg", "--curve"),
        ("replay skewed.txt --curve 1% --plot x.pdf", ".svg or .png"),
        ("replay skewed.txt --preset linux-9", "there is no preset 'linux-9'"),
        ("replay skewed.txt --preset linux-6.12", "linux-6.12 is not implemented yet"),
        ("replay skewed.txt --with turbo", "there is no mechanism 'turbo'"),
        ("replay skewed.txt --lru classic", "not implemented yet"),
        ("replay skewed.txt --format gif", "unknown trace format"),
        ("replay skewed.txt --warm 1.5", "less than 1"),
        ("replay skewed.txt --check=0", "1.."),
        ("replay skewed.txt --unit 4096", "unit"),
        ("replay skewed.txt --seed minus", "invalid digit"),
    ] {
        let error = fails(folder.path(), arguments, 2);
        assert!(error.contains(what), "{arguments}: {error}");
    }
    let output = mglru(folder.path(), "replay --help");
    assert!(text(&output.stdout).contains("--curve") && output.status.success());
}

/// Scattered pages get a place each in the order of their first use: what is kept per page stays small, and no
/// count changes.
#[test]
fn scattered_pages_replay_as_dense_ones_do() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, scale: u64| {
        lines(folder.path(), name, skewed(10_000, 800).map(|page| format!("R {} 1", page * scale)));
    };
    write("dense.txt", 1);
    write("scattered.txt", 1_000_003);
    let of = |name: &str| run(timeless(document(folder.path(), &format!("replay {name} --memory 200p"))));
    let (mut dense, mut scattered) = (of("dense.txt"), of("scattered.txt"));
    for run in [&mut dense, &mut scattered] {
        run["trace"].take();
        // Where pages are in the index is all that differs.
        run["counters"]["workingset_nodes"].take();
        run["warm"]["counters"]["workingset_nodes"].take();
    }
    assert_eq!(dense, scattered);
}
