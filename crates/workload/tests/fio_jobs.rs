//! Command lines and job files as users write them, and what they mean.

use mglru_workload::fio::{Channel, Engine, Error, FileSize, Invocation, Job, OutputFormat, Verify};
use mglru_workload::{Distribution, Mix, Order};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn parse(line: &str) -> Result<Invocation, Error> {
    Invocation::parse(&line.split_whitespace().collect::<Vec<_>>())
}

fn jobs(line: &str) -> Vec<Job> {
    parse(line).unwrap_or_else(|error| panic!("{line}: {error}")).jobs
}

fn message(line: &str) -> String {
    parse(line).expect_err(line).to_string()
}

#[test]
fn a_job_has_fios_defaults() {
    let [job] = &jobs("--name=hello --size=1m")[..] else { panic!("one job") };
    assert_eq!(job.read_write(), "read");
    assert_eq!((job.order, job.mix), (Order::Sequential, Mix::Read));
    assert_eq!((job.block_bytes, job.size), (4096, FileSize::Bytes(1 << 20)));
    assert_eq!((job.engine, job.engine.channel()), (Engine::Psync, Channel::Descriptor));
    assert_eq!(job.path, PathBuf::from("hello.0.0"));
    assert_eq!((job.runtime, job.time_based, job.verify, job.group_reporting), (None, false, None, false));
}

#[test]
fn every_option_of_the_first_cut_is_understood() {
    let [job] = &jobs(
        "--name=all --rw=randrw --rwmixread=70 --bs=8k --size=960m --numjobs=1 --directory=/data --filename=shared \
         --runtime=6m --time_based --random_distribution=zipf:0.7 --ioengine=mmap --group_reporting --verify=crc32c \
         --randseed=9 --thread --direct=0 --buffered=1",
    )[..] else {
        panic!("one job")
    };
    assert_eq!(job.read_write(), "randrw");
    assert_eq!(job.order, Order::Random(Distribution::Zipf { theta: 0.7 }));
    assert_eq!(job.mix, Mix::Mixed { read_percent: 70 });
    assert_eq!((job.block_bytes, job.size), (8192, FileSize::Bytes(960 << 20)));
    assert_eq!(job.path, PathBuf::from("/data/shared"));
    assert_eq!((job.runtime, job.time_based), (Some(Duration::from_secs(360)), true));
    assert_eq!(job.engine.channel(), Channel::Mapped);
    assert_eq!((job.verify, job.group_reporting), (Some(Verify::Crc32c), true));
}

#[test]
fn options_before_the_first_name_are_global_and_each_name_begins_a_job() {
    let invocation = parse("--bs=8k --rw=randread --name=a --size=64k --name=b --size=32k --bs 16k").unwrap();
    let [a, b] = &invocation.jobs[..] else { panic!("two jobs") };
    assert_eq!((a.name.as_str(), a.block_bytes, a.size), ("a", 8192, FileSize::Bytes(65_536)));
    assert_eq!((b.name.as_str(), b.block_bytes, b.size), ("b", 16_384, FileSize::Bytes(32_768)));
    assert_eq!(b.read_write(), "randread");
    let pairs =
        |options: &[(String, String)]| options.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>();
    assert_eq!(pairs(&invocation.global_options), ["bs=8k", "rw=randread"]);
    assert_eq!(pairs(&b.options), ["name=b", "size=32k", "bs=16k"]);
}

#[test]
fn instances_have_files_and_seeds_of_their_own() {
    let instances = jobs("--name=a --size=1m --rw=randread --numjobs=3 --directory=/d --name=b --size=1m");
    let paths: Vec<_> = instances.iter().map(|job| job.path.to_str().unwrap()).collect();
    // fio 3.33 makes these files.
    assert_eq!(paths, ["/d/a.0.0", "/d/a.1.0", "/d/a.2.0", "b.0.0"]);
    assert_eq!(instances.iter().map(|job| job.index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!((instances[2].instance, instances[2].instances), (2, 3));
    let order = |job: &Job| job.pattern(1 << 20).accesses().unwrap().collect::<Vec<_>>();
    assert_ne!(order(&instances[0]), order(&instances[1]));
    let mut seeds: Vec<_> = instances.iter().map(|job| job.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 4);
}

#[test]
fn a_given_filename_is_shared() {
    let instances = jobs("--name=a --size=1m --numjobs=2 --filename=/tmp/x");
    assert!(instances.iter().all(|job| job.path == Path::new("/tmp/x")));
}

#[test]
fn seeds_repeat_and_differ() {
    let seed = |line: &str| jobs(line)[0].seed;
    assert_eq!(seed("--name=a --size=1m"), seed("--name=a --size=1m"));
    assert_ne!(seed("--name=a --size=1m"), seed("--name=a --size=1m --randseed=2"));
    assert_eq!(seed("--seed=2 --name=a --size=1m"), seed("--name=a --size=1m --randseed=2"));
    assert_eq!(seed("--name=a --size=1m --randseed=3 --seed 2"), seed("--name=a --size=1m --randseed=3"));
}

#[test]
fn the_last_mix_counts() {
    let mix = |line: &str| jobs(&format!("--name=a --size=1m --rw=randrw {line}"))[0].mix;
    assert_eq!(mix(""), Mix::Mixed { read_percent: 50 });
    assert_eq!(mix("--rwmixwrite=30"), Mix::Mixed { read_percent: 70 });
    assert_eq!(mix("--rwmixwrite=30 --rwmixread=80"), Mix::Mixed { read_percent: 80 });
    assert_eq!(jobs("--name=a --size=1m --rw=randread --rwmixread=10")[0].mix, Mix::Read);
}

#[test]
fn our_own_options_are_told_apart() {
    let invocation = parse(
        "--memory 512MiB --name=a --size=1m --tenant hot=64m --tenant=cold=1g --preset=linux-7.2 --with prefetch \
         --without=memcg_lru --backend=threads --json",
    )
    .unwrap();
    assert_eq!(
        invocation.own,
        [
            "--memory=512MiB",
            "--tenant=hot=64m",
            "--tenant=cold=1g",
            "--preset=linux-7.2",
            "--with=prefetch",
            "--without=memcg_lru",
            "--backend=threads",
            "--json",
        ]
    );
    assert_eq!(invocation.output_format, OutputFormat::Json);
    assert_eq!(invocation.jobs.len(), 1);
    assert_eq!(parse("--help").unwrap().own, ["--help"]);
    assert_eq!(parse("-h").unwrap().own, ["--help"]);
    assert_eq!(message("--json=1 --name=a"), "command line: `--json=1`: is a flag and takes no value");
    assert!(
        message("--name=a --size=1m --memory").starts_with("command line: option `--memory` needs a value")
    );
}

#[test]
fn formats() {
    let format =
        |value: &str| parse(&format!("--name=a --size=1m --output-format={value}")).map(|i| i.output_format);
    assert_eq!(format("json").unwrap(), OutputFormat::Json);
    assert_eq!(format("normal").unwrap(), OutputFormat::Normal);
    assert!(matches!(format("json+"), Err(Error::UnsupportedValue { .. })));
    assert!(matches!(format("normal,json"), Err(Error::UnsupportedValue { .. })));
    assert!(matches!(format("xml"), Err(Error::InvalidValue { .. })));
}

#[test]
fn errors_say_what_where_and_what_to_do() {
    for (line, expected) in [
        ("--name=a --rwmixred=5", "command line: unknown option `--rwmixred`; did you mean `--rwmixread`?"),
        (
            "--name=a --iodepth=32",
            "command line: option `--iodepth` is fio's, but mglru does not support it yet; the nearest supported option \
             is `--numjobs`",
        ),
        (
            "--name=a --rate=64m",
            "command line: option `--rate` is fio's, but mglru does not support it yet; the nearest supported option is \
             `--numjobs`",
        ),
        (
            "--name=a --size=1m --random_distribution=pareto:0.2",
            "command line: `--random_distribution=pareto:0.2` is fio's, but mglru does not support it yet; use random or \
             zipf:THETA",
        ),
        (
            "--name=a --size=1.5g",
            "command line: `--size=1.5g`: must be one whole number; give fractions in a smaller unit (1536 for 1.5k)",
        ),
        (
            "--name=a --size=",
            "command line: `--size=`: the value is missing: bytes to use of the file and to transfer, such as 960m, or a percentage of the file, such as 20%",
        ),
        ("--name=a --rwmixread=101", "command line: `--rwmixread=101`: must be a whole number from 0 to 100"),
        (
            "--name=a --time_based",
            "command line: job `a`: `time_based` runs for the whole runtime; give `runtime=` too",
        ),
        (
            "--name=a --size=3k",
            "command line: job `a`: `size` is 3072 bytes, less than one block (`bs`) of 4096",
        ),
        (
            "--name=a --bs=16 --verify=crc32c",
            "command line: job `a`: `verify` needs blocks of at least 40 bytes for its header; `bs` is 16",
        ),
        (
            "--name=a --directory=/d --filename=/x",
            "command line: job `a`: `filename=/x` is absolute and cannot lie in `directory=/d`; make it relative",
        ),
    ] {
        assert_eq!(message(line), expected);
    }
    assert!(message("--name=a --direct=1").contains("its own cache"));
    assert!(message("--bs=4k").starts_with("no job"));
    assert!(message("").starts_with("no job"));
    assert!(message("/nonexistent/x.fio").starts_with("job file `/nonexistent/x.fio`: No such file"));
    assert!(
        Invocation::parse(&["--name=a", "--size=${SIZE}"])
            .unwrap_err()
            .to_string()
            .contains("does not support it yet")
    );
}

#[test]
fn the_size_of_an_existing_file_is_used_where_none_is_given() {
    let size = |line: &str, existing| jobs(line)[0].size_bytes(existing);
    assert_eq!(size("--name=a", Some(10_000)).unwrap(), 10_000);
    assert_eq!(size("--name=a --size=50%", Some(20_000)).unwrap(), 10_000);
    assert_eq!(size("--name=a --size=1m", None).unwrap(), 1 << 20);
    assert_eq!(
        size("--name=a", None).unwrap_err().to_string(),
        "command line: job `a`: `a.0.0` does not exist or is empty; say with `size=` how large to make it"
    );
    assert!(size("--name=a", Some(4095)).unwrap_err().to_string().contains("does not hold one block"));
}

#[test]
fn a_job_file_inherits_the_command_line_and_overrides_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let first = file("1.fio", "[global]\nbs=8k\n[one]\nrw=randwrite\n[named]\nname=zed\n");
    let second = file("2.fio", "[two]\nsize=1m\n");
    let jobs = jobs(&format!("--bs=16k --size=64k {first} {second} --name=cmd"));
    let told: Vec<_> = jobs.iter().map(|job| (job.name.as_str(), job.block_bytes, job.size)).collect();
    // fio 3.33: the second file does not see the command line's options.
    assert_eq!(
        told,
        [
            ("cmd", 16_384, FileSize::Bytes(65_536)),
            ("one", 8192, FileSize::Bytes(65_536)),
            ("zed", 8192, FileSize::Bytes(65_536)),
            ("two", 4096, FileSize::Bytes(1 << 20)),
        ]
    );
    let wrong = file("3.fio", "[a]\nsize=1m\n\nbs=4q\n");
    assert_eq!(
        message(&wrong),
        format!("{wrong}:4: `bs=4q`: `q` is no unit; use k, m, g, t or p (powers of 1024)")
    );
}
