//! `mglru fio` as a user runs it: real files, real I/O, every block verified.

use crate::common::{document, done, fails};
use serde_json::Value;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

const KINDS: [&str; 6] = ["read", "write", "randread", "randwrite", "rw", "randrw"];

/// Reads and writes of each job.
fn ios(document: &Value) -> Vec<(u64, u64)> {
    let count = |job: &Value, direction: &str| job[direction]["total_ios"].as_u64().expect("a count");
    let jobs = document["jobs"].as_array().expect("jobs");
    jobs.iter().map(|job| (count(job, "read"), count(job, "write"))).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn every_kind_verifies_through_both_channels_and_backends() {
    for backend in ["auto", "threads"] {
        for engine in ["psync", "mmap"] {
            for kind in KINDS {
                let here = tempfile::tempdir().unwrap();
                // The cache is an eighth of the file: most verified blocks come from the disk.
                let report = document(
                    here.path(),
                    &format!(
                        "fio --name=a --rw={kind} --size=8m --bs=8k --verify=crc32c --ioengine={engine} --memory=1MiB \
                         --backend={backend}"
                    ),
                );
                let job = &report["jobs"][0];
                assert_eq!((&job["error"], &job["verify_errors"]), (&0.into(), &0.into()), "{kind}");
                let (reads, writes) = ios(&report)[0];
                // A mixed job reads and writes 1024 blocks in all, and then reads the written
                // blocks again.
                assert_eq!(reads, 1024, "{engine} {kind}");
                match kind {
                    "read" | "randread" => assert_eq!(writes, 0),
                    "write" | "randwrite" => assert_eq!(writes, 1024),
                    _ => assert!(writes.abs_diff(512) < 100, "{writes}"),
                }
                let tenant = &report["mglru"]["tenants"][0];
                let count = |name: &str| tenant[name].as_u64().unwrap();
                assert_eq!(count("hits") + count("misses"), (reads + writes) * 2, "pages of {engine} {kind}");
                assert!(tenant["counters"]["pgsteal"].as_u64().unwrap() > 1000, "{tenant}");
            }
        }
    }
}

#[test]
fn the_document_is_fios_and_ours() {
    let here = tempfile::tempdir().unwrap();
    let report = document(here.path(), "fio --bs=4k --name=a --rw=randread --size=4m --memory=2MiB --seed=7");
    assert_eq!(
        keys(&report),
        ["fio version", "timestamp", "timestamp_ms", "time", "global options", "jobs", "mglru"]
    );
    assert_eq!(report["jobs"][0]["jobname"], "a");
    assert_eq!(report["jobs"][0]["read"]["io_bytes"], 4 << 20);
    let ours = &report["mglru"];
    for key in
        ["budget_bytes", "backend", "why_not_uring", "preset", "mechanisms", "metadata_bytes", "tenants"]
    {
        assert!(keys(ours).contains(&key), "{key}");
    }
    assert_eq!((&ours["budget_bytes"], &ours["preset"]), (&(2 << 20).into(), &"default".into()));
    assert!(ours["mechanisms"]["workingset_rework"].is_boolean());
    let bytes = |key: &str| ours[key].as_u64().unwrap();
    assert!(bytes("frame_bytes") + bytes("metadata_bytes") <= 2 << 20, "{ours}");
    let tenant = &ours["tenants"][0];
    assert_eq!((&tenant["name"], &tenant["max_pages"]), (&"".into(), &Value::Null));
    assert!(tenant["counters"]["workingset_refault_file"].is_u64());
    let generation = &tenant["generations"][0];
    assert_eq!(keys(generation), ["seq", "age_ms", "anon", "file"]);
}

#[test]
fn the_same_seed_gives_the_same_hits() {
    let here = tempfile::tempdir().unwrap();
    let line = |seed| {
        format!(
            "fio --name=a --rw=randread --size=4m --random_distribution=zipf:1.2 --memory=64MiB --seed={seed}"
        )
    };
    let hits = |seed| document(here.path(), &line(seed))["mglru"]["tenants"][0]["hits"].clone();
    assert_eq!(hits(1), hits(1));
    assert_ne!(hits(1), hits(2));
}

#[test]
fn the_text_is_fios_and_ours() {
    let here = tempfile::tempdir().unwrap();
    let line = "fio --name=a --rw=randrw --size=4m --memory=2MiB --lru=multigen";
    let text = done(here.path(), line);
    for part in [
        "a: (g=0): rw=randrw, bs=(R) 4096B-4096B",
        "a: Laying out IO file (1 file / 4MiB)",
        "a: (groupid=0, jobs=1): err= 0:",
        "clat percentiles",
        "Run status group 0 (all jobs):",
        "mglru: memory 2 MiB",
        "hit ratio",
        "generations, oldest first",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let ours = &text[text.find("mglru: memory").unwrap()..];
    assert_eq!(ours.lines().find(|line| line.chars().count() > 100), None);
}

#[test]
fn instances_have_files_of_their_own_or_share_one() {
    let here = tempfile::tempdir().unwrap();
    let path = here.path();
    let report =
        document(path, "fio --name=a --rw=write --size=1m --numjobs=3 --memory=2MiB --verify=crc32c");
    assert_eq!(ios(&report), [(256, 256); 3]);
    assert!((0..3).all(|instance| path.join(format!("a.{instance}.0")).exists()));
    let report = document(
        path,
        "fio --name=b --rw=randwrite --filename=f --size=1m --numjobs=4 --memory=1MiB --verify=crc32c \
         --group_reporting",
    );
    assert_eq!(ios(&report), [(1024, 1024)]);
    assert_eq!(fs::metadata(path.join("f")).unwrap().len(), 1 << 20);
    // A job with another block size reads the written file itself.
    document(path, "fio --name=c --rw=read --filename=f --verify=crc32c --memory=1MiB");
}

#[test]
fn a_job_file_with_tenants() {
    let here = tempfile::tempdir().unwrap();
    fs::write(
        here.path().join("jobs.fio"),
        "[global]\nsize=4m\nrw=randread\n\n[web]\nrandom_distribution=zipf:1.1\n\n[batch]\nioengine=mmap\nrw=read\n",
    )
    .unwrap();
    let report = document(here.path(), "fio --memory=8MiB --tenant=web=2MiB --tenant=batch=100p jobs.fio");
    let tenants = report["mglru"]["tenants"].as_array().unwrap();
    let max: Vec<_> = tenants.iter().map(|tenant| (&tenant["name"], tenant["max_pages"].as_u64())).collect();
    assert_eq!(max, [(&"".into(), None), (&"web".into(), Some(512)), (&"batch".into(), Some(100))]);
    for tenant in tenants {
        let count = |name: &str| tenant[name].as_u64().unwrap();
        assert!(count("peak_pages") <= tenant["max_pages"].as_u64().unwrap_or(u64::MAX), "{tenant}");
        let accesses = if tenant["name"] == "" { 0 } else { 1024 };
        assert_eq!(count("hits") + count("misses"), accesses, "{tenant}");
    }
}

#[test]
fn a_runtime_ends_a_job_that_has_no_end() {
    let here = tempfile::tempdir().unwrap();
    let report = document(
        here.path(),
        "fio --name=a --rw=randread --size=8k --runtime=500ms --time_based --memory=1MiB",
    );
    assert!(ios(&report)[0].0 > 2, "{report}");
}

#[test]
fn a_damaged_block_is_found_and_named() {
    let here = tempfile::tempdir().unwrap();
    document(here.path(), "fio --name=w --filename=f --rw=write --size=1m --verify=crc32c --memory=1MiB");
    let file = OpenOptions::new().write(true).open(here.path().join("f")).unwrap();
    file.write_all_at(b"!", 20 * 4096 + 100).unwrap();
    file.write_all_at(&[0; 4096], 30 * 4096).unwrap();
    for engine in ["psync", "mmap"] {
        let line =
            format!("fio --name=r --filename=f --rw=read --verify=crc32c --ioengine={engine} --memory=1MiB");
        let stderr = fails(here.path(), &line, 1);
        assert!(stderr.contains("offset 81920") && stderr.contains("byte 100"), "{stderr}");
        assert!(stderr.contains("job `r`") && stderr.contains("1 more"), "{stderr}");
    }
    let output =
        crate::common::mglru(here.path(), "fio --name=r --filename=f --verify=crc32c --memory=1MiB --json");
    let report: Value = serde_json::from_slice(&output.stdout).expect("the document is complete");
    assert_eq!((&report["jobs"][0]["error"], &report["jobs"][0]["verify_errors"]), (&84.into(), &2.into()));
    assert_eq!(ios(&report), [(256, 0)], "it went on");
}

#[test]
fn unusable_files_are_reported_with_a_remedy() {
    let here = tempfile::tempdir().unwrap();
    for (arguments, says) in [
        ("--directory=missing --size=1m", "choose another"),
        ("--size=1p", "are needed: make room"),
        ("--filename=. --size=1m", "no regular file"),
    ] {
        let stderr = fails(here.path(), &format!("fio --name=a --memory=1MiB {arguments}"), 1);
        assert!(stderr.contains(says), "{arguments}: {stderr}");
    }
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "nothing is left");
}

#[test]
fn written_blocks_are_in_the_file_afterwards() {
    let here = tempfile::tempdir().unwrap();
    done(here.path(), "fio --name=a --rw=randwrite --size=1m --verify=crc32c --memory=64MiB");
    let content = fs::read(here.path().join("a.0.0")).unwrap();
    for (block, bytes) in content.chunks(4096).enumerate() {
        mglru_workload::verify::check_generation(bytes, block as u64 * 4096, 1).unwrap();
    }
}

/// The report of the real fio, if fio is installed.
fn of_fio(directory: &Path, line: &str) -> Option<Value> {
    let words = line.split_whitespace();
    match Command::new("fio").current_dir(directory).arg("--output-format=json").args(words).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: fio is not installed");
            None
        }
        output => {
            // fio may print notes before the document.
            let text = crate::common::text(&output.expect("fio starts").stdout);
            let document = text.find('{').and_then(|start| serde_json::from_str(&text[start..]).ok());
            Some(document.unwrap_or_else(|| panic!("fio {line}: {text}")))
        }
    }
}

/// With fio installed: the same command line transfers the same blocks and bytes, and syncs as
/// often.
#[test]
fn fio_itself_does_as_many_accesses() {
    let here = tempfile::tempdir().unwrap();
    for line in [
        "--name=a --rw=randread --size=1000k --bs=16k --numjobs=2 --thread",
        "--name=a --rw=write --size=1m --verify=crc32c",
        "--name=a --rw=randrw --size=1m --rwmixread=100 --bs=8k --group_reporting --numjobs=2 --thread",
        "--name=a --rw=randwrite --size=1m --name=b --size=50% --filename=a.0.0",
        "--name=a --rw=read --size=1m --filename=x:y --loops=2",
        "--name=a --rw=randwrite --size=1m --nrfiles=4 --fsync=16",
        "--name=a --rw=read --size=1m --offset=512k --name=b --filename=a.0.0 --offset=256k",
        "--name=a --rw=randread --filesize=256k --size=500k --nrfiles=3 --name=b --filesize=64k --nrfiles=2",
        "--name=a --rw=write --size=1m --io_size=2m --nrfiles=3",
        "--name=a --rw=randread --size=1m --io_size=3m --ioengine=io_uring --iodepth=16 --iodepth_batch=4",
        "--name=a --rw=write --size=1m --bs=8k,16k --name=b --stonewall --rw=read --size=512k --bs=8k,16k",
        "--name=a --rw=randread --size=1m --ioengine=mmap --norandommap --random_distribution=pareto:0.2",
        "--name=a --rw=randrw --rwmixread=0 --size=1m --numjobs=3 --new_group --name=b --rw=write --size=1m",
    ] {
        let line = format!("--direct=0 {line}");
        let Some(theirs) = of_fio(here.path(), &line) else { return };
        remove_files(here.path());
        let ours = document(here.path(), &format!("fio {line} --memory=2MiB"));
        remove_files(here.path());
        assert_eq!(ios(&ours), ios(&theirs), "{line}");
        for counted in ["/read/io_bytes", "/write/io_bytes", "/sync/total_ios"] {
            let count = |document: &Value| -> Vec<u64> {
                let jobs = document["jobs"].as_array().unwrap().iter();
                jobs.map(|job| job.pointer(counted).and_then(Value::as_u64).unwrap()).collect()
            };
            assert_eq!(count(&ours), count(&theirs), "{line}: {counted}");
        }
        let names = |document: &Value| -> Vec<Value> {
            document["jobs"].as_array().unwrap().iter().map(|job| job["jobname"].clone()).collect()
        };
        assert_eq!(names(&ours), names(&theirs), "{line}");
    }
}

#[test]
fn the_command_lines_of_the_experiments_run() {
    // As published ([book: published-experiments#prefetch],
    // [book: published-experiments#memcg-lru], [book: published-experiments#reclaim-loop] test 6);
    // the options after `cut` make them small.
    let depth = "--ioengine=io_uring --iodepth=128 --iodepth_batch_submit=32 --iodepth_batch_complete=32";
    let timed = "--norandommap --time_based --ramp_time=1m";
    let cut = "--size=2m --ramp_time=100ms --runtime=300ms --memory=4MiB";
    let lines = [
        format!(
            "-name=mglru --numjobs=16 --directory=. --size=960m --buffered=1 {depth} --rw=randread \
             --random_distribution=zipf:0.5 {timed} --runtime=6m --group_reporting {cut}"
        ),
        format!(
            "--numjobs=8 --directory=. --size=960m --buffered=1 {depth} --random_distribution=zipf:0.7 {timed} \
             --runtime=30m --group_reporting {cut} --name=one --rw=randread --name=two --rw=randrw"
        ),
        format!(
            "--name=memcg0 --numjobs=1 --ioengine=mmap --filename=/dev/zero --size=1920M --rw=randrw \
             --rate=64m,64m --random_distribution=random --fadvise_hint=0 --time_based --runtime=10h \
             --group_reporting {cut}"
        ),
        format!(
            "--name=mapped --numjobs=16 --directory=. --size=3g --buffered=1 --ioengine=mmap --rw=randread \
             --random_distribution=zipf:1.2 {timed} --runtime=5m --group_reporting {cut}"
        ),
    ];
    for line in lines {
        let here = tempfile::tempdir().unwrap();
        let report = document(here.path(), &format!("fio {line}"));
        let job = &report["jobs"][0];
        let (reads, writes) = ios(&report)[0];
        assert!(reads > 100 && (writes > 100 || !line.contains("randrw --rate")), "{line}: {job}");
        assert!(job["read"]["runtime"].as_u64().unwrap() > 0, "{line}: {job}");
        assert_eq!(job["error"], 0);
    }
}

#[test]
fn every_access_of_every_thread_is_counted() {
    let here = tempfile::tempdir().unwrap();
    let line =
        "fio --name=a --rw=randrw --size=8m --ioengine=io_uring --iodepth=16 --iodepth_batch=4 --memory=2MiB";
    let report = document(here.path(), line);
    let (reads, writes) = ios(&report)[0];
    let tenant = &report["mglru"]["tenants"][0];
    let count = |name: &str| tenant[name].as_u64().unwrap();
    assert_eq!((reads + writes, count("hits") + count("misses")), (2048, 2048));
    assert_eq!(report["jobs"][0]["iodepth_level"]["16"], 100.0);
}

#[test]
fn reads_of_one_thread_keep_the_depth() {
    let here = tempfile::tempdir().unwrap();
    let line = "fio --name=a --rw=randread --size=8m --bs=2k --ioengine=io_uring --iodepth=16 --memory=2MiB";
    let report = document(here.path(), line);
    let tenant = &report["mglru"]["tenants"][0];
    let count = |name: &str| tenant[name].as_u64().unwrap();
    assert_eq!((ios(&report)[0].0, count("hits") + count("misses")), (4096, 4096));
    let latency = &report["jobs"][0]["read"]["lat_ns"];
    assert_eq!(latency["N"], 4096);
}

#[test]
fn files_of_a_job_take_turns_and_verify() {
    let here = tempfile::tempdir().unwrap();
    for engine in ["psync", "mmap"] {
        for names in ["--filename=x:y:z", "--nrfiles=3"] {
            let line = format!(
                "fio --name=a --rw=randwrite --size=3m --verify=crc32c --ioengine={engine} {names} --memory=1MiB"
            );
            assert_eq!(ios(&document(here.path(), &line)), [(768, 768)], "{line}");
            let sizes =
                fs::read_dir(here.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
            assert_eq!(sizes.collect::<Vec<_>>(), [1 << 20; 3]);
            remove_files(here.path());
        }
    }
}

#[test]
fn a_part_of_a_file_verifies() {
    let here = tempfile::tempdir().unwrap();
    let report = document(
        here.path(),
        "fio --filename=f --verify=crc32c --memory=1MiB --name=a --rw=randrw --offset=64k --size=1m --name=b --stonewall \
         --offset=512k --rw=read",
    );
    let (reads, writes) = ios(&report)[0];
    assert_eq!((reads, ios(&report)[1]), (256, (144, 0)), "{writes} writes are read again");
    assert_eq!(fs::metadata(here.path().join("f")).unwrap().len(), (1 << 20) + (64 << 10));
}

#[test]
fn zeroes_are_memory_of_each_instance() {
    let here = tempfile::tempdir().unwrap();
    let line = "fio --name=a --ioengine=mmap --filename=/dev/zero --rw=randwrite --size=4m --numjobs=2 --verify=crc32c \
                --memory=1MiB";
    let report: Value = {
        let output = crate::common::command(here.path(), &format!("{line} --json"))
            .env("TMPDIR", here.path())
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).expect("one document")
    };
    assert_eq!(ios(&report), [(1024, 1024), (1024, 1024)]);
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "nothing is left");
    let stderr = fails(here.path(), "fio --name=a --filename=/dev/zero --size=4m --memory=1MiB", 1);
    assert!(stderr.contains("ioengine=mmap"), "{stderr}");
}

#[test]
fn a_rate_is_kept() {
    let here = tempfile::tempdir().unwrap();
    let line = "fio --name=a --rw=randrw --size=1m --rate=2m,1m --runtime=2 --time_based --memory=4MiB";
    let report = document(here.path(), line);
    for (direction, limit) in [("read", 2 << 20), ("write", 1 << 20)] {
        let rate = report["jobs"][0][direction]["bw_bytes"].as_u64().unwrap();
        // A busy machine may be slower, but never faster.
        assert!(rate <= limit + limit / 20 && rate > limit / 2, "{direction}: {rate}");
    }
    let samples = report["jobs"][0]["read"]["bw_samples"].as_u64().unwrap();
    assert!((1..=4).contains(&samples), "{samples}");
}

#[test]
fn stages_follow_each_other() {
    let here = tempfile::tempdir().unwrap();
    // The second job reads the blocks of the first: without stonewall they might not be written
    // yet.
    let line = "fio --filename=f --size=2m --verify=crc32c --name=w --rw=write --do_verify=0 --name=r --stonewall --rw=read \
                --memory=1MiB";
    let report = document(here.path(), line);
    assert_eq!(ios(&report), [(0, 512), (512, 0)]);
    assert_eq!((&report["jobs"][0]["groupid"], &report["jobs"][1]["groupid"]), (&0.into(), &1.into()));
}

#[test]
fn syncs_are_counted() {
    let here = tempfile::tempdir().unwrap();
    let report = document(
        here.path(),
        "fio --rw=write --size=1m --memory=4MiB --name=a --fdatasync=32 --end_fsync=1 --name=b --fsync=128",
    );
    let syncs = |job: usize| report["jobs"][job]["sync"]["total_ios"].as_u64().unwrap();
    assert_eq!((syncs(0), syncs(1)), (7, 1), "not after the last write");
}

#[test]
fn a_job_file_with_everything() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("common.fio"), "bs=4k\ndirectory=${WHERE}\n").unwrap();
    fs::write(
        here.path().join("jobs.fio"),
        "; a comment\n[global]\ninclude common.fio\nsize=1m\n[reader]\ndescription=reads it\nrw=randread ; uniform\n\
         [global]\nsize=512k\n[writer]\nrw=write\n[never]\nrw=randrw\n",
    )
    .unwrap();
    fs::create_dir(here.path().join("data")).unwrap();
    let run = |rest: &str| {
        let mut command = crate::common::command(here.path(), &format!("fio --memory=2MiB jobs.fio {rest}"));
        command.env("WHERE", "data").output().unwrap()
    };
    let output = run("--section=reader --section=writer --output-format=json --output=result.json");
    assert_eq!((output.status.code(), crate::common::text(&output.stdout)), (Some(0), String::new()));
    let report: Value = serde_json::from_slice(&fs::read(here.path().join("result.json")).unwrap()).unwrap();
    assert_eq!(ios(&report), [(256, 0), (0, 128)]);
    assert_eq!(report["jobs"][0]["desc"], "reads it");
    assert!(here.path().join("data/reader.0.0").exists());
    let terse = crate::common::text(&run("--minimal").stdout);
    let lines: Vec<_> =
        terse.lines().map(|line| line.split(';').take(3).collect::<Vec<_>>().join(";")).collect();
    let version = concat!("3;fio-3.33-mglru-", env!("CARGO_PKG_VERSION"));
    assert_eq!(lines, ["reader", "writer", "never"].map(|name| format!("{version};{name}")));
    let stderr = crate::common::text(&run("--section=nobody").stderr);
    assert!(stderr.contains("`jobs.fio` has no such section"), "{stderr}");
}

#[test]
fn intermediate_results_are_printed() {
    let here = tempfile::tempdir().unwrap();
    let line =
        "fio --name=a --rw=randread --size=1m --runtime=1 --time_based --status-interval=300ms --memory=4MiB";
    let text = done(here.path(), line);
    let reports = text.matches("a: (groupid=0, jobs=1): err= 0:").count();
    assert!((2..=4).contains(&reports), "{reports}: {text}");
    assert_eq!(text.matches("mglru: memory").count(), 1);
    let output = crate::common::mglru(here.path(), &format!("{line} --runtime=2 --eta=always"));
    assert!(crate::common::text(&output.stderr).contains("jobs running: 1"), "{output:?}");
}

fn remove_files(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

/// Built-in loads: a database and arrays, verified while they run and at the end.
#[test]
fn loads_run_with_verified_contents() {
    let here = tempfile::tempdir().unwrap();
    for line in [
        "--name=db --workload=tpcc:warehouses=1,cache=2m --numjobs=2 --runtime=300ms --group_reporting",
        "--name=db --workload=tpcc:warehouses=1,cache=2m --ioengine=mmap --runtime=200ms",
        "--name=a --workload=sweep:size=8m --numjobs=2 --runtime=300ms --group_reporting",
        "--name=s --workload=ycsb:workload=a,records=9000,cache=1m --numjobs=2 --runtime=300ms --group_reporting",
    ] {
        let report = document(here.path(), &format!("fio {line} --memory=8MiB --swap=3MiB"));
        let job = &report["jobs"][0];
        assert_eq!((&job["error"], &job["verify_errors"]), (&0.into(), &0.into()), "{line}");
        let (reads, writes) = ios(&report)[0];
        assert!(reads > 50 && writes > 50, "{line}: {reads} {writes}");
        let swapped = report["mglru"]["tenants"][0]["counters"]["pswpout"].as_u64().unwrap();
        assert!(swapped > 0 || !line.contains("sweep"), "{line}");
    }
    assert!(
        here.path().join("db.order-line").is_file() && here.path().join("db.stock-index.nodes").is_file()
    );
    assert!(fs::metadata(here.path().join("db.stock")).unwrap().len() > 30_000_000);
}

/// A load releases its memory at the end of its stage: there is room for one load at a time.
#[test]
fn a_load_begins_when_the_one_before_has_given_up_its_memory() {
    let here = tempfile::tempdir().unwrap();
    let jobs = "[global]\nworkload=sweep:size=5m,arrays=4\nruntime=1\n[a]\n[b]\nstonewall\n";
    fs::write(here.path().join("a.fio"), jobs).unwrap();
    let report = document(here.path(), "fio a.fio --memory=8MiB");
    for job in 0..2 {
        assert_eq!(report["jobs"][job]["error"], 0);
        let writes = ios(&report)[job].1;
        assert!(writes > 1280, "each page of the arrays at least: {writes}");
    }
    // Both at once do not fit: the failure is a lack of memory, not a wrong block.
    fs::write(here.path().join("b.fio"), jobs.replace("stonewall\n", "")).unwrap();
    let message = fails(here.path(), "fio b.fio --memory=8MiB --output-format=json --output=result.json", 1);
    assert!(message.contains("no page could be freed"), "{message}");
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(here.path().join("result.json")).unwrap()).unwrap();
    for job in 0..2 {
        assert_eq!(report["jobs"][job]["verify_errors"], 0);
    }
}

#[test]
fn options_that_contradict_a_load_are_refused_with_their_place() {
    let here = tempfile::tempdir().unwrap();
    let refused = |text: &str| {
        fs::write(here.path().join("a.fio"), text).unwrap();
        fails(here.path(), "fio a.fio", 2)
    };
    for (text, expected) in [
        ("[a]\nworkload=tpcc\nruntime=1\nbs=8k\n", "a.fio:4: job `a`: `bs` controls block accesses"),
        ("[global]\nsize=1g\n[a]\nworkload=sweep\nruntime=1\n", "a.fio:2: job `a`: `size` controls"),
        ("[a]\nworkload=tpcc\n", "a.fio:1: job `a`: `workload=tpcc` has no end; give `runtime=` too"),
        ("[a]\nworkload=sweep\nruntime=1\nioengine=mmap\n", "a.fio:4: job `a`: `ioengine` says how files"),
        (
            "[a]\nworkload=ycsb\nruntime=1\nioengine=mmap\n",
            "`workload=ycsb` decides that itself: leave it out",
        ),
        ("[a]\nworkload=select\nruntime=1\n", "select is a page workload: write it as `load = \"select\"`"),
        ("[a]\nworkload=tpch\n", "expected one of tpcc, sweep"),
        ("[a]\nruntime=1\nworkload=sweep:size=80k,arrays=10\nnumjobs=3\n", "fewer threads"),
        ("[a]\nworkload=tpcc\nruntime=1\nverify=0\n", "always verifies"),
    ] {
        let message = refused(text);
        assert!(message.contains(expected), "{text}: {message}");
    }
}
