//! Compares jobs with the real fio: number of accesses, share of reads, and hits per block. Needs
//! fio (`apt-get install fio`); without it, the tests print a notice.
//!
//! fio performs no I/O (`ioengine=null`) and logs its accesses (`write_iolog`). Both sides use
//! fixed seeds, so every run has the same result. The tolerances are for other versions of fio and
//! other seeds here.

use mglru_workload::Access;
use mglru_workload::fio::Invocation;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// The accesses of the real fio, or `None` if fio is missing.
fn of_fio(options: &str) -> Option<Vec<Access>> {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let status = Command::new("fio")
        .current_dir(directory.path())
        .args(["--ioengine=null", "--write_iolog=log"])
        .args(options.split_whitespace())
        .stdout(Stdio::null())
        .status();
    match status {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: fio is not installed");
            return None;
        }
        status => assert!(status.expect("fio starts").success(), "fio {options}"),
    }
    let log = std::fs::read_to_string(directory.path().join("log")).expect("fio wrote its log");
    // `260 a.0.0 read 4096 4096`: milliseconds, file, action, offset, length.
    let access = |line: &str| {
        let [_, _, action @ ("read" | "write"), offset, bytes] =
            line.split_whitespace().collect::<Vec<_>>()[..]
        else {
            return None;
        };
        Some(Access { offset: offset.parse().ok()?, bytes: bytes.parse().ok()?, write: action == "write" })
    };
    Some(log.lines().filter_map(access).collect())
}

fn of_ours(options: &str) -> Vec<Access> {
    let invocation = Invocation::parse(&options.split_whitespace().collect::<Vec<_>>()).expect(options);
    let [job] = &invocation.jobs[..] else { panic!("one job: {options}") };
    job.pattern(0, job.size_bytes(0, None).expect("a size")).accesses().expect("a block").collect()
}

/// Hits per block, highest first.
fn frequencies(accesses: &[Access]) -> Vec<usize> {
    let mut hits = BTreeMap::<u64, usize>::new();
    accesses.iter().for_each(|access| *hits.entry(access.offset).or_default() += 1);
    let mut hits: Vec<usize> = hits.into_values().collect();
    hits.sort_unstable_by(|a, b| b.cmp(a));
    hits
}

#[test]
fn a_job_touches_as_many_bytes_and_reads_as_large_a_share() {
    for options in [
        "--name=a --size=4m --rw=read",
        "--name=a --size=4m --rw=write --bs=64k",
        "--name=a --size=10k --rw=read",
        "--name=a --size=10k --rw=randread",
        "--name=a --size=4000kib --rw=randwrite --bs=1kib",
        "--name=a --size=64m --rw=rw --rwmixread=70",
        "--name=a --size=64m --rw=randrw --rwmixwrite=10",
        "--name=a --size=4m --io_size=1m --rw=read",
        "--name=a --size=1m --io_size=3m --rw=randread",
        "--name=a --size=1m --io_size=2500k --rw=read",
        "--name=a --size=1m --loops=3 --rw=randwrite",
        "--name=a --size=2m --io_size=1m --loops=2 --rw=write",
        "--name=a --size=4m --rw=randread --norandommap",
    ] {
        let Some(theirs) = of_fio(options) else { return };
        let ours = of_ours(options);
        assert_eq!(ours.len(), theirs.len(), "{options}");
        let bytes = |accesses: &[Access]| accesses.iter().map(|access| u64::from(access.bytes)).sum::<u64>();
        assert_eq!(bytes(&ours), bytes(&theirs), "{options}");
        let reads = |accesses: &[Access]| {
            accesses.iter().filter(|access| !access.write).count() as f64 / accesses.len() as f64
        };
        // Mixed jobs have 16,384 accesses here: four standard deviations of the difference are 2 %.
        let (our_share, their_share) = (reads(&ours), reads(&theirs));
        assert!((our_share - their_share).abs() < 0.02, "{options}: {our_share} reads, fio {their_share}");
    }
}

#[test]
fn sequential_and_uniform_jobs_touch_the_same_blocks() {
    for options in
        ["--name=a --size=1m --rw=read", "--name=a --size=1m --rw=randread", "--name=a --size=1m --rw=randrw"]
    {
        let Some(theirs) = of_fio(options) else { return };
        let sorted = |accesses: Vec<Access>| {
            let mut offsets: Vec<u64> = accesses.into_iter().map(|access| access.offset).collect();
            if options.contains("rand") {
                offsets.sort_unstable();
            }
            offsets
        };
        assert_eq!(sorted(of_ours(options)), sorted(theirs), "{options}");
    }
}

#[test]
fn blocks_of_two_sizes_transfer_as_much() {
    // With a random map, fio 3.33 ends such a job after about half of the bytes, when no free block
    // is left for one of the sizes. This crate transfers all of them.
    let options = "--name=a --size=64m --rw=randrw --bs=4k,16k --norandommap";
    let Some(theirs) = of_fio(options) else { return };
    let ours = of_ours(options);
    let bytes = |accesses: &[Access]| accesses.iter().map(|access| u64::from(access.bytes)).sum::<u64>();
    // At the end, a job here stops when its largest block no longer fits; fio stops after an access
    // goes beyond.
    assert!(bytes(&ours).abs_diff(bytes(&theirs)) <= 32 << 10, "{} {}", bytes(&ours), bytes(&theirs));
    let reads = |accesses: &[Access]| accesses.iter().filter(|access| !access.write).count() as f64;
    let share = |accesses: &[Access]| reads(accesses) / accesses.len() as f64;
    assert!((share(&ours) - share(&theirs)).abs() < 0.03, "{} {}", share(&ours), share(&theirs));
}

#[test]
fn without_a_random_map_as_many_blocks_are_left_out() {
    let options = "--name=a --size=64m --rw=randread --norandommap";
    let Some(theirs) = of_fio(options) else { return };
    let distinct = |accesses: &[Access]| frequencies(accesses).len() as f64;
    let ratio = distinct(&of_ours(options)) / distinct(&theirs);
    assert!((ratio - 1.0).abs() < 0.02, "{ratio}");
}

#[test]
fn skewed_jobs_hit_blocks_as_often() {
    // If the number of blocks is a power of two, every block can be drawn; otherwise only some.
    for (size, distribution) in [
        ("160000k", "zipf:0.5"),
        ("160000k", "zipf:0.99"),
        ("160000k", "zipf:1.2"),
        ("128m", "zipf:0.8"),
        ("1g", "zipf:1.1"),
        ("160000k", "pareto:0.2"),
        ("128m", "pareto:0.35"),
        ("160000k", "pareto:0.05"),
    ] {
        let options = format!("--name=a --size={size} --rw=randread --random_distribution={distribution}");
        let Some(theirs) = of_fio(&options) else { return };
        let ours = of_ours(&options);
        assert_eq!(ours.len(), theirs.len(), "{options}");
        let total = ours.len() as f64;
        let (ours, theirs) = (frequencies(&ours), frequencies(&theirs));
        let near = |ours: f64, theirs: f64, tolerance: f64, what: &str| {
            assert!((ours / theirs - 1.0).abs() < tolerance, "{options}: {what}: {ours}, fio {theirs}");
        };
        near(ours.len() as f64, theirs.len() as f64, 0.05, "blocks touched");
        for hottest in [1, 10, 100, 1000] {
            let sum = |hits: &[usize]| hits.iter().take(hottest).sum::<usize>() as f64;
            // Five standard deviations of the difference of two counts.
            let tolerance = 5.0 * (2.0 / sum(&theirs)).sqrt();
            near(sum(&ours), sum(&theirs), tolerance, &format!("share of the hottest {hottest} of {total}"));
        }
    }
}
