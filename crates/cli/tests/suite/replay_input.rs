//! Input of `mglru replay`: long, scattered, foreign, broken or missing traces, and wrong options.

use crate::common::{
    command, document, done, fails, folder, lines, mglru, number, run, shared, skewed, text, timeless, words,
};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Formats of other programs, and the same requests converted to pages by another program.
#[test]
fn native_traces_replay_as_their_folded_twins_do() {
    let Some(folder) = shared("traces") else { return };
    for (native, folded) in [
        ("native/mqsim_tpcc-small.trace.zst", "blk_tpcc.txt.zst"),
        ("native/lirs_multi1.trace.gz", "lirs_multi1.txt.zst"),
        ("native/address_gcc.trace.gz", "mem_gcc.txt.zst"),
    ] {
        let of = |name: &str| {
            // Page numbers do not tell where in its page a read begins, by which rereads count.
            let arguments = format!("replay {name} --memory 10% --without rereads");
            let mut run = run(timeless(document(&folder, &arguments)));
            run["trace"].take();
            run
        };
        assert_eq!(of(native), of(folded), "{native}");
    }
}

/// `-` is stdin and stdout. The report on a trace that goes to stdout goes to stderr: it was in the
/// trace, as bytes of another record.
#[test]
fn traces_go_through_pipes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let generated = mglru(path, "trace generate tpcc - --accesses 2000 --warehouses 1");
    done(path, "trace generate tpcc same.bin --accesses 2000 --warehouses 1");
    assert!(generated.stdout == fs::read(path.join("same.bin")).unwrap());
    assert!(text(&generated.stderr).starts_with("/dev/stdout: tpcc, 2,0"), "{}", text(&generated.stderr));
    let piped = |arguments: &str| {
        let bytes = fs::File::open(path.join("same.bin")).unwrap();
        command(path, arguments).stdin(bytes).output().unwrap()
    };
    let converted = piped("trace convert - - --format kernel-lab --to plain --drop --renumber --json");
    assert_eq!(text(&converted.stdout).lines().next(), Some("0"));
    assert_eq!(text(&converted.stderr).lines().next(), Some("{"));
    let replayed = piped("replay - --format kernel-lab --swap 4MiB --memory 500p");
    assert!(replayed.status.success() && text(&replayed.stdout).contains("  stdin "), "{replayed:?}");
    assert_eq!(fs::read_dir(path).unwrap().count(), 2, "no file is called -");
}

/// More records than are decoded ahead: the trace is streamed.
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
    // The last record is cut off: the error comes in the middle of the replay.
    let path = folder.path().join("long.bin");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let error = fails(folder.path(), "replay long.bin --memory 64p", 1);
    assert!(error.contains(&format!("long.bin: byte {}", bytes.len() - 4)), "{error}");
    let lossy = document(folder.path(), "replay long.bin --memory 64p --lossy");
    assert!(lossy["runs"][0]["notes"][0].as_str().unwrap().contains("one bad record "), "{lossy}");
}

/// Peak memory of the program, in KiB.
fn peak_kib(folder: &Path, arguments: &str) -> u64 {
    let mut program = command(folder, arguments).stdout(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", program.id());
    let mut peak = 0;
    loop {
        // The value only grows; the line is missing once the program has ended.
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
    // The 8 million records would take 128 MiB, at 16 bytes each.
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
        assert_eq!(run["notes"][0], "one bad record was skipped");
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
    fs::write(path.join("cut.bin"), [0; 10]).unwrap();
    fs::write(path.join("columns.csv"), "when,where\n1,2\n3,4\n").unwrap();
    fs::write(path.join("large.txt"), "1\n18446744073709551616\n3\n").unwrap();
    fs::write(path.join("alibaba.csv"), "419,W,8192,4096,7\n419,R,8192,4096,8\n").unwrap();
    fs::write(path.join("utf16.txt"), b"\xff\xfe1\0\n\0").unwrap();
    fs::write(path.join("binary.dat"), (0..=255u8).cycle().take(4096).collect::<Vec<_>>()).unwrap();
    for (arguments, status, what) in [
        ("replay empty.txt", 1, "empty.txt: empty trace"),
        ("replay nothing.txt --format shared-text", 1, "empty trace"),
        ("replay damaged.txt", 1, "damaged.txt: line 3, byte 12"),
        ("replay damaged.txt", 1, "--lossy"),
        ("replay cut.bin", 1, "byte 8: truncated"),
        ("replay columns.csv --format libcachesim-csv", 1, "columns.csv: not the columns"),
        ("replay columns.csv", 1, "neither id, nor lbn and size or sectors, nor offset and size"),
        ("replay large.txt", 1, "large.txt: line 2, byte 2: damaged plain record"),
        ("replay large.txt", 1, "expected at most 18446744073709551615"),
        ("replay alibaba.csv", 1, "put a line in front that names the columns"),
        ("replay utf16.txt", 1, "utf16.txt: text in UTF-16, which is not supported; convert it first: iconv"),
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
        ("replay skewed.txt --memory 0", "at least one page"),
        ("replay skewed.txt --memory 0%", "at least one page"),
        ("replay skewed.txt --memory 100", "at least one page"),
        ("replay skewed.txt --memory ten%", "percentage"),
        ("replay skewed.txt --memory 10% --curve 1%,2%", "cannot be used with"),
        ("replay skewed.txt --curve 1%,none", "whole number"),
        ("replay skewed.txt --plot x.svg", "--curve"),
        ("replay skewed.txt --memory 20% --plot x.svg", "instead of --memory"),
        ("replay skewed.txt --curve 1% --plot x.png", "ends in .svg"),
        ("replay skewed.txt --preset linux-9", "linux-9"),
        ("replay skewed.txt --preset linux-6.12 --with lulesh_fix", "workingset_rework is off"),
        ("replay skewed.txt --with turbo", "turbo"),
        ("replay skewed.txt --lru random", "multigen, classic, ranked"),
        ("replay skewed.txt --lru-lock zone", "lruvec"),
        ("replay skewed.txt --format gif", "unknown trace format"),
        ("replay skewed.txt --warm 1.5", "less than 1"),
        ("replay skewed.txt --check=0", "1.."),
        ("replay skewed.txt --unit 4096", "unit"),
        ("replay skewed.txt --seed minus", "expected a whole number"),
        ("replay skewed.txt --swap 0", "swap needs at least 4096 bytes"),
        ("replay skewed.txt --swap 2TiB", "more than 1 TiB"),
        ("replay skewed.txt --swap 1MiB --swap-device tape", "zram"),
        ("replay skewed.txt --swap-device zram", "--swap"),
        ("replay skewed.txt --swappiness 202", "0 to 200, or max"),
        ("replay skewed.txt --events e.jsonl --events-from 2 --events-until 1", "no event is between them"),
        ("replay skewed.txt --readahead 0", "4KiB to 256MiB"),
        ("replay skewed.txt --fault-around 48KiB", "a power of two from 4KiB to 2MiB"),
        ("replay skewed.txt --fault-around 4MiB", "a power of two from 4KiB to 2MiB"),
        ("replay skewed.txt --fault-around 1TiB", "a power of two from 4KiB to 2MiB"),
        ("replay skewed.txt --fault-around 0", "a power of two from 4KiB to 2MiB"),
    ] {
        let error = fails(folder.path(), arguments, 2);
        assert!(error.contains(what), "{arguments}: {error}");
    }
    let output = mglru(folder.path(), "replay --help");
    assert!(text(&output.stdout).contains("--curve") && output.status.success());
}

/// Such a replay looked as if the mechanism had no effect.
#[test]
fn a_switch_that_changes_nothing_is_named() {
    let folder = folder();
    let notes = |arguments: &str| {
        let output = mglru(folder.path(), &format!("replay skewed.txt --memory 10% {arguments}"));
        assert!(output.status.success(), "{arguments}");
        text(&output.stderr)
            .lines()
            .filter(|line| line.contains("note: "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        notes("--preset linux-7.2,default --without fill_main"),
        [
            "mglru: note: fill_main has no effect under linux-7.2: it is a rule of the policy ranked, which is off"
        ]
    );
    let momentum = notes("--without adaptive_newcomers --with share_momentum");
    assert!(
        momentum.len() == 1 && momentum[0].ends_with("it works through adaptive_newcomers, which is off")
    );
    assert_eq!(notes("--without adaptive_newcomers --without share_momentum"), [""; 0]);
    assert_eq!(notes("--preset linux-7.1 --with memcg_lru --without bounded_steps"), [""; 0]);
}

/// Scattered pages are numbered in the order of their first use, which keeps the index small and
/// changes no count.
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
        // Only the places of pages in the index differ.
        run["counters"]["workingset_nodes"].take();
        run["warm"]["counters"]["workingset_nodes"].take();
    }
    assert_eq!(dense, scattered);
}
