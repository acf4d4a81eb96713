//! Command lines and job files as users write them, and the jobs that result.

use mglru_workload::fio::{
    Channel, DEPTH_MAX, Engine, Error, Eta, FileSize, Hint, Invocation, Job, OutputFormat, Rate, SyncEvery,
    Verify,
};
use mglru_workload::{BlockBytes, Distribution, Length, Mix, Order};
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
    assert_eq!((job.block_bytes, job.size), (BlockBytes::both(4096), FileSize::Bytes(1 << 20)));
    assert_eq!((job.engine, job.engine.channel()), (Engine::Psync, Channel::Descriptor));
    assert_eq!(job.files, [PathBuf::from("hello.0.0")]);
    assert_eq!((job.runtime, job.time_based, job.verify, job.group_reporting), (None, false, None, false));
}

#[test]
fn common_options_are_understood() {
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
    assert_eq!((job.block_bytes, job.size), (BlockBytes::both(8192), FileSize::Bytes(960 << 20)));
    assert_eq!(job.files, [PathBuf::from("/data/shared")]);
    assert_eq!((job.runtime, job.time_based), (Some(Duration::from_secs(360)), true));
    assert_eq!(job.engine.channel(), Channel::Mapped);
    assert_eq!((job.verify, job.group_reporting), (Some(Verify::Crc32c), true));
}

#[test]
fn options_before_the_first_name_are_global_and_each_name_begins_a_job() {
    let invocation = parse("--bs=8k --rw=randread --name=a --size=64k --name=b --size=32k --bs 16k").unwrap();
    let [a, b] = &invocation.jobs[..] else { panic!("two jobs") };
    assert_eq!((a.name.as_str(), a.block_bytes.read, a.size), ("a", 8192, FileSize::Bytes(65_536)));
    assert_eq!((b.name.as_str(), b.block_bytes.write, b.size), ("b", 16_384, FileSize::Bytes(32_768)));
    assert_eq!(b.read_write(), "randread");
    let pairs =
        |options: &[(String, String)]| options.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>();
    assert_eq!(pairs(&invocation.global_options), ["bs=8k", "rw=randread"]);
    assert_eq!(pairs(&b.options), ["name=b", "size=32k", "bs=16k"]);
}

#[test]
fn instances_have_files_and_seeds_of_their_own() {
    let instances = jobs("--name=a --size=1m --rw=randread --numjobs=3 --directory=/d --name=b --size=1m");
    let paths: Vec<_> = instances.iter().map(|job| job.files[0].to_str().unwrap()).collect();
    // fio 3.33 creates these files.
    assert_eq!(paths, ["/d/a.0.0", "/d/a.1.0", "/d/a.2.0", "b.0.0"]);
    assert_eq!(instances.iter().map(|job| job.index).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!((instances[2].instance, instances[2].instances), (2, 3));
    let order = |job: &Job| job.pattern(0, 1 << 20).accesses().unwrap().collect::<Vec<_>>();
    assert_ne!(order(&instances[0]), order(&instances[1]));
    let mut seeds: Vec<_> = instances.iter().map(|job| job.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 4);
}

#[test]
fn a_given_filename_is_shared() {
    let instances = jobs("--name=a --size=1m --numjobs=2 --filename=/tmp/x");
    assert!(instances.iter().all(|job| job.files == [Path::new("/tmp/x")]));
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
fn our_own_options_are_separated() {
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

/// As published ([book: published-experiments]), except for file locations.
#[test]
fn the_command_lines_of_the_experiments_are_understood() {
    let depth = "--ioengine=io_uring --iodepth=128 --iodepth_batch_submit=32 --iodepth_batch_complete=32";
    let line = format!(
        "-name=mglru --numjobs=16 --buffered=1 --size=960m {depth} --rw=randread --random_distribution=zipf:0.5 \
         --norandommap --time_based --ramp_time=1m --runtime=6m --group_reporting"
    );
    let e1 = jobs(&line);
    assert_eq!(e1.len(), 16);
    let job = &e1[15];
    assert_eq!((job.iodepth, job.batch, job.depth), (128, 32, DEPTH_MAX / 16));
    assert_eq!((job.ramp, job.runtime), (Duration::from_secs(60), Some(Duration::from_secs(360))));
    assert_eq!(job.order, Order::Random(Distribution::Zipf { theta: 0.5 }));

    let common = format!(
        "--buffered=1 --numjobs=8 --size=960m --directory=/mnt {depth} --random_distribution=zipf:0.7 --norandommap \
         --time_based --ramp_time=1m --runtime=30m --group_reporting"
    );
    let hybrid = jobs(&format!("{common} --rw=randread --name=r --name=w --rw=randrw"));
    assert_eq!((hybrid.len(), hybrid[0].read_write(), hybrid[8].read_write()), (16, "randread", "randrw"));

    let [memcg] = &jobs(
        "--name=memcg1 --numjobs=1 --ioengine=mmap --filename=/dev/zero --size=1920M --rw=randrw --rate=64m,64m \
         --random_distribution=random --fadvise_hint=0 --time_based --runtime=10h --group_reporting --minimal",
    )[..] else {
        panic!("one job")
    };
    assert_eq!(memcg.rate, Rate { read: Some(64 << 20), write: Some(64 << 20) });
    assert_eq!((memcg.hint, memcg.engine.channel()), (Hint::Nothing, Channel::Mapped));

    let mapped = jobs(
        "--name=m --numjobs=16 --directory=/mnt --size=3g --ioengine=mmap --rw=randread \
         --random_distribution=zipf:1.2 --norandommap --time_based --ramp_time=1m --runtime=5m",
    );
    assert_eq!((mapped.len(), mapped[0].hint), (16, Hint::OfEngine));
}

#[test]
fn how_much_is_transferred() {
    let length = |line: &str| {
        let job = &jobs(&format!("--name=a {line}"))[0];
        job.pattern(0, job.size_bytes(0, Some(1 << 20)).unwrap()).length
    };
    let loops = |bytes, count| Length::Loops { bytes, count };
    assert_eq!(length("--size=1m"), loops(1 << 20, 1));
    assert_eq!(length("--size=1m --io_size=3m --loops=2"), loops(3 << 20, 2));
    assert_eq!(length("--io_size=50%"), loops(1 << 19, 1));
    assert_eq!(length("--size=1m --time_based --runtime=1 --loops=3"), Length::Endless);
    // Several files share both values.
    assert_eq!(length("--filename=x:y --size=1m --io_size=4m"), loops(2 << 20, 1));
    assert_eq!(length("--nrfiles=3 --filesize=256k --size=512k"), loops(172 << 10, 1));
    let limit = |line: &str| jobs(&format!("--name=a {line}"))[0].limit_bytes();
    assert_eq!(limit("--nrfiles=3 --filesize=256k --size=512k"), Some(512 << 10));
    assert_eq!(limit("--nrfiles=3 --filesize=256k --size=5m"), Some(768 << 10));
    assert_eq!(limit("--size=1m"), None);
    let size =
        |line: &str, existing| jobs(&format!("--name=a {line}"))[0].size_bytes(0, Some(existing)).unwrap();
    assert_eq!(size("--offset=1m", 3 << 20), 2 << 20);
    assert_eq!(size("--offset=1m --size=5m", 3 << 20), 5 << 20);
    assert_eq!(size("--offset=2m --size=50%", 3 << 20), 1 << 20);
}

#[test]
fn files_have_names_by_instance_and_number() {
    let files = |line: &str| {
        let jobs = jobs(line);
        let name = |path: &PathBuf| path.to_str().unwrap().to_owned();
        jobs.iter().map(|job| job.files.iter().map(name).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(files("--name=a --size=1m --nrfiles=2"), ["a.0.0 a.0.1"]);
    assert_eq!(
        files("--name=a --size=1m --numjobs=3 --directory=/x:/y"),
        ["/x/a.0.0", "/y/a.1.0", "/x/a.2.0"]
    );
    assert_eq!(
        files("--name=a --size=1m --numjobs=2 --directory=/x:/y --filename=f:g"),
        ["/x/f /x/g", "/x/f /x/g"]
    );
    assert_eq!(
        files("--name=a --size=1m --numjobs=2 --filename_format=$jobname-$jobnum/$filenum"),
        ["a-0/0", "a-1/0"]
    );
}

#[test]
fn walls_and_groups() {
    let jobs = jobs(
        "--size=1m --name=a --stonewall --name=b --numjobs=2 --name=c --stonewall --name=d --new_group --name=e",
    );
    let places: Vec<_> = jobs.iter().map(|job| (job.name.as_str(), job.stage, job.group)).collect();
    assert_eq!(places, [("a", 0, 0), ("b", 0, 0), ("b", 0, 0), ("c", 1, 1), ("d", 1, 2), ("e", 1, 2)]);
}

#[test]
fn depth_is_for_asynchronous_random_jobs() {
    let depth = |line: &str| jobs(&format!("--name=a --size=1m --iodepth=8 {line}"))[0].depth;
    assert_eq!(depth("--ioengine=io_uring --rw=randread"), 8);
    assert_eq!(depth("--ioengine=io_uring --rw=read"), 1);
    assert_eq!(depth("--ioengine=io_uring --rw=randwrite --fsync=4"), 1);
    assert_eq!(depth("--ioengine=io_uring --rw=randread --verify=crc32c"), 1);
    assert_eq!(depth("--ioengine=psync --rw=randread"), 1);
    assert_eq!(depth("--ioengine=mmap --rw=randread"), 1);
}

#[test]
fn rates_syncs_and_the_rest() {
    let job = |line: &str| jobs(&format!("--name=a --size=1m {line}")).remove(0);
    let rate = |line: &str| (job(line).rate.read, job(line).rate.write);
    assert_eq!(rate("--rate=1m"), (Some(1 << 20), Some(1 << 20)));
    assert_eq!(rate("--rate=,500k"), (None, Some(500 << 10)));
    assert_eq!(rate("--rate=500k,"), (Some(500 << 10), None));
    assert_eq!(rate("--rate_iops=100 --bs=8k --rate=1m,100k"), (Some(100 * 8192), Some(100 << 10)));
    let sync = SyncEvery { fsync_writes: 32, fdatasync_writes: 8, end_fsync: true };
    assert_eq!(job("--fsync=32 --fdatasync=8 --end_fsync=1").sync, sync);
    let blocks = job("--bs=8k,32k").block_bytes;
    assert_eq!((blocks.read, blocks.write), (8192, 32_768));
    assert_eq!(job("--rw=randread --norandommap").order, Order::Random(Distribution::Independent));
    let pareto = Distribution::Pareto { h: 0.3 };
    assert_eq!(
        job("--rw=randread --random_distribution=pareto:0.3 --norandommap").order,
        Order::Random(pareto)
    );
    assert_eq!(job("--startdelay=2").start_delay, Duration::from_secs(2));
    assert!(!job("--invalidate=0").invalidate && job("").invalidate);
    assert!(!job("--verify=crc32c --do_verify=0").verify_written);
    assert_eq!(job("--description=why").description.as_deref(), Some("why"));
}

#[test]
fn options_choose_how_results_are_printed() {
    let options = parse("--name=a --size=1m --minimal --output=f --eta=never --status-interval=5").unwrap();
    assert_eq!((options.output_format, options.eta), (OutputFormat::Terse, Eta::Never));
    assert_eq!((options.output, options.status_interval), (Some("f".into()), Some(Duration::from_secs(5))));
}

#[test]
fn formats() {
    let format =
        |value: &str| parse(&format!("--name=a --size=1m --output-format={value}")).map(|i| i.output_format);
    assert_eq!(format("json").unwrap(), OutputFormat::Json);
    assert_eq!(format("normal").unwrap(), OutputFormat::Normal);
    assert_eq!(format("terse").unwrap(), OutputFormat::Terse);
    assert!(matches!(format("json+"), Err(Error::UnsupportedValue { .. })));
    assert!(matches!(format("normal,json"), Err(Error::UnsupportedValue { .. })));
    assert!(matches!(format("xml"), Err(Error::InvalidValue { .. })));
}

#[test]
fn errors_name_the_problem_the_place_and_a_remedy() {
    for (line, expected) in [
        ("--name=a --rwmixred=5", "command line: unknown option `--rwmixred`; did you mean `--rwmixread`?"),
        (
            "--name=a --bsrange=1k-2k",
            "command line: option `--bsrange` is fio's, but mglru does not support it yet; the nearest supported option \
             is `--bs`",
        ),
        (
            "--name=a --size=1m --random_distribution=normal:10",
            "command line: `--random_distribution=normal:10` is fio's, but mglru does not support it yet; use random, \
             zipf:THETA or pareto:H",
        ),
        (
            "--name=a --size=${NO_SUCH_SIZE}",
            "command line: `--size=${NO_SUCH_SIZE}`: the environment has no `NO_SUCH_SIZE` that is text; set it: \
             NO_SUCH_SIZE=... mglru fio",
        ),
        (
            "--name=a --size=1m --io_size=1k",
            "command line: job `a`: `io_size` is 1024 bytes, less than one block (`bs`) of 4096",
        ),
        (
            "--name=a --size=1m --rw=rw --bs=4k,8k --verify=crc32c",
            "command line: job `a`: `verify` reads the blocks that were written; give one `bs` for both",
        ),
        (
            "--name=a --size=1m --offset=1k --verify=crc32c",
            "command line: job `a`: `verify` needs an `offset` that is a multiple of `bs`; 1024 is not a multiple of 4096",
        ),
        ("--section=b --name=a", "command line: `--section=b`: is about job files; name one"),
        ("--eta=soon --name=a", "command line: `--eta=soon`: use auto, always or never"),
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
}

#[test]
fn a_missing_size_defaults_to_that_of_the_existing_file() {
    let size = |line: &str, existing| jobs(line)[0].size_bytes(0, existing);
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
    let found: Vec<_> = jobs.iter().map(|job| (job.name.as_str(), job.block_bytes.read, job.size)).collect();
    // fio 3.33: the second file does not see the command line's options.
    assert_eq!(
        found,
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
        format!("{wrong}:4: `bs=4q`: `q` is not a unit; use k, m, g, t or p (powers of 1024)")
    );
}
