//! `mglru trace`: inspection, conversion and generation.

use crate::common::{document, done, fails};
use std::fs;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), "R 10 3\nW 11 1\nF 12 1\nS 0 0\nR 10 1\n").unwrap();
    folder
}

#[test]
fn info_counts_the_contents_of_a_trace() {
    let folder = folder();
    let trace = &document(folder.path(), "trace info a.txt")["traces"][0];
    assert_eq!(trace["trace"], "a.txt");
    assert_eq!(trace["format"], "shared-text");
    for (name, value) in [
        ("accesses", 6),
        ("requests", 4),
        ("records", 7),
        ("distinct_pages", 3),
        ("writes", 1),
        ("mapped", 1),
        ("syncs", 1),
        ("anon", 0),
        ("lowest_page", 10),
        ("highest_page", 12),
        ("skipped", 0),
    ] {
        assert_eq!(trace[name], value, "{name}");
    }
    let text = done(folder.path(), "trace info a.txt");
    assert!(text.starts_with("a.txt: shared-text\n") && text.contains("10 … 12"), "{text}");
    assert!(text.contains("1 (16.67 %)"), "{text}");
}

#[test]
fn converting_there_and_back_keeps_everything() {
    let folder = folder();
    done(folder.path(), "trace convert a.txt b.txt.zst");
    let converted = document(folder.path(), "trace convert b.txt.zst c.txt --to shared-text");
    assert_eq!(
        (&converted["accesses"], &converted["syncs"], &converted["dropped"]),
        (&6.into(), &1.into(), &0.into())
    );
    let records = |name: &str| {
        let mut document = document(folder.path(), &format!("trace info {name}"))["traces"][0].clone();
        for field in ["trace", "compression", "requests"] {
            document[field].take();
        }
        document
    };
    assert_eq!(records("a.txt"), records("c.txt"));
    assert_eq!(records("a.txt"), records("b.txt.zst"));
}

#[test]
fn inexpressible_records_are_dropped_only_on_request() {
    let folder = folder();
    let error = fails(folder.path(), "trace convert a.txt b.bin", 1);
    assert!(error.contains("a fault; --drop"), "{error}");
    assert!(!folder.path().join("b.bin").exists(), "nothing is left behind");
    let text = done(folder.path(), "trace convert a.txt b.bin --drop --renumber");
    assert!(
        text.contains("3 distinct pages, renumbered") && text.contains("2 records were left out or changed"),
        "{text}"
    );
    let info = &document(folder.path(), "trace info b.bin")["traces"][0];
    assert_eq!((&info["lowest_page"], &info["highest_page"]), (&0.into(), &2.into()));
    assert_eq!(info["warm"], serde_json::Value::Null);
}

#[test]
fn formats_explain_sizes_and_offsets() {
    let folder = folder();
    let formats = document(folder.path(), "trace formats")["formats"].as_array().unwrap().clone();
    assert!(formats.iter().any(|format| format["name"] == "kernel-lab" && format["written"] == true));
    assert!(formats.iter().all(|format| !format["summary"].as_str().unwrap().is_empty()));
    let text = done(folder.path(), "trace formats");
    assert!(formats.iter().all(|format| text.contains(format["name"].as_str().unwrap())), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
}

#[test]
fn other_programs_traces_are_recognised() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text, format, accesses, pages, writes) in [
        ("a", "l 0x1000 1\ns 0x1fff 2\nl 0x2000 3\n", "address", 3, 2, 1),
        ("q", "5 0 8 16 0\n9 1 8 8 1\n", "mqsim", 3, 3, 2),
        ("kv.csv", "key,op,size,op_count\nx,GET,9,4\ny,SET,9,1\ny,DELETE,0,1\n", "cachelib", 5, 2, 1),
        ("b.csv", "block_id,io_size,io_offset,op_name\nx,8192,0,getChunkData.X\n", "cachelib", 2, 2, 0),
        ("adapt_size", "1 0 68\n2 1 7454\n3 0 68\n", "libcachesim-csv", 3, 2, 0),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
        let info = &document(folder.path(), &format!("trace info {name}"))["traces"][0];
        let counts = |name: &str| info[name].as_u64().unwrap();
        assert_eq!(info["format"], format, "{name}");
        assert_eq!(
            (counts("accesses"), counts("distinct_pages"), counts("writes")),
            (accesses, pages, writes)
        );
        let replay = document(folder.path(), &format!("replay {name} --memory 10p"));
        assert_eq!(
            (&replay["runs"][0]["accesses"], &replay["runs"][0]["misses"]),
            (&accesses.into(), &pages.into())
        );
    }
}

#[test]
fn bad_input_is_refused() {
    let folder = folder();
    fs::write(folder.path().join("empty.txt"), "").unwrap();
    for (arguments, status, what) in [
        ("trace info empty.txt", 1, "empty trace"),
        ("trace info missing.txt", 1, "missing.txt"),
        ("trace info a.txt --format gif", 2, "unknown trace format"),
        ("trace info", 2, "FILE"),
        ("trace convert a.txt b.xyz", 2, "--to"),
        ("trace convert a.txt b.txt --to vscsi", 2, "only read"),
        ("trace convert a.txt a.txt", 2, "same file"),
        ("trace convert a.txt missing/b.txt", 1, "missing"),
        ("trace", 2, "info"),
    ] {
        let error = fails(folder.path(), arguments, status);
        assert!(error.contains(what), "{arguments}: {error}");
    }
}

/// Generated traces can be replayed, and a seed gives the same trace again.
#[test]
fn loads_are_generated() {
    let folder = tempfile::tempdir().unwrap();
    let generate = |arguments: &str| document(folder.path(), &format!("trace generate {arguments}"));
    let tpcc = "--warehouses 1 --cache 4MiB --accesses 20000";
    assert!(generate(&format!("tpcc a.bin {tpcc}"))["accesses"].as_u64().unwrap() >= 20_000);
    generate(&format!("tpcc b.bin {tpcc}"));
    generate(&format!("tpcc c.bin {tpcc} --seed 2"));
    let bytes = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert!(bytes("a.bin") == bytes("b.bin") && bytes("a.bin") != bytes("c.bin"));
    let info = document(folder.path(), "trace info a.bin");
    let trace = &info["traces"][0];
    let count = |name: &str| trace[name].as_u64().unwrap();
    assert!(count("anon") > 5000 && count("writes") > 5000 && count("anon") < count("accesses"));
    let replay = document(folder.path(), "replay a.bin --memory 1000p --swap 2000p --preset linux-6.12");
    assert!(replay["runs"][0]["counters"]["pswpout"].as_u64().unwrap() > 0);

    let sweep = generate("sweep d.bin.zst --size 400p --accesses 9000");
    assert_eq!((sweep["accesses"].as_u64(), sweep["distinct_pages"].as_u64()), (Some(9000), Some(400)));
    let message = fails(folder.path(), "trace generate sweep e.bin --size 40p", 2);
    assert!(message.contains("each of 8 threads needs at least a page"), "{message}");
}

/// By another name, a generated trace could not be read back.
#[test]
fn a_generated_trace_has_a_name_by_which_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = |to: &str| format!("trace generate sweep {to} --size 400p --accesses 1000");
    for name in ["a", "a.txt", "bin", "a.bin.bz2", "a.zst", "a.bin.gz.old"] {
        let error = fails(folder.path(), &sweep(name), 2);
        assert!(error.contains("ends with .bin, .bin.gz, .bin.xz or .bin.zst"), "{error}");
    }
    let error = fails(folder.path(), "trace generate sweep a.bin --accesses 0", 2);
    assert!(error.contains("--accesses"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    done(folder.path(), &sweep("/dev/null"));
    for name in ["a.bin", "a.bin.gz", "a.bin.xz", "a.bin.zst"] {
        done(folder.path(), &sweep(name));
        done(folder.path(), &format!("trace info {name}"));
    }
}

/// Text is recognised by any name, and the binary format is not.
#[test]
fn a_conversion_says_when_reading_needs_the_format() {
    let folder = folder();
    for (options, needs_format) in [
        ("b.bin --drop", false),
        ("b.txt", false),
        ("b.dat --to shared-text", false),
        ("b.dat --to plain --drop", false),
        ("b.dat --to kernel-lab --drop", true),
        ("b.iolog --to kernel-lab --drop", true),
        ("/dev/null --to kernel-lab --drop", false),
    ] {
        let text = done(folder.path(), &format!("trace convert a.txt {options}"));
        assert_eq!(text.contains("reading it needs --format kernel-lab"), needs_format, "{options}: {text}");
        let name = options.split(' ').next().unwrap();
        match needs_format {
            true => drop(done(folder.path(), &format!("trace info {name} --format kernel-lab"))),
            false if name != "/dev/null" => drop(done(folder.path(), &format!("trace info {name}"))),
            false => {}
        }
    }
}
