//! Short texts that ask for much: each is refused before it takes memory or time.

use mglru_workload::fio::{Invocation, Rate};
use mglru_workload::scenario::Scenario;
use std::path::Path;

fn message(arguments: &[&str]) -> String {
    Invocation::parse(arguments).expect_err("it asks for too much").to_string()
}

#[test]
fn a_rate_of_0_sets_no_limit_as_in_fio() {
    let rate = |options: &str| {
        let line = format!("--name=a --size=1m --bs=4k {options}");
        Invocation::parse(&line.split_whitespace().collect::<Vec<_>>()).unwrap().jobs[0].rate
    };
    for none in ["--rate=0", "--rate_iops=0", "--rate=0,0", "--rate=5m --rate=0"] {
        assert_eq!(rate(none), Rate { read: None, write: None }, "{none}");
    }
    assert_eq!(rate("--rate=0,1m"), Rate { read: None, write: Some(1 << 20) });
    assert_eq!(rate("--rate_iops=3,0"), Rate { read: Some(3 * 4096), write: None });
}

#[test]
fn endless_files_are_neither_jobs_nor_scenarios() {
    for device in ["/dev/zero", "/dev/urandom"] {
        let text = message(&[device]);
        assert!(text.contains("1 MiB of text"), "{text}");
        let text = Scenario::read(Path::new(device), None).unwrap_err().to_string();
        assert!(text.contains("longer than 1048576 bytes"), "{text}");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.fio");
        std::fs::write(&path, format!("[a]\ninclude {device}\n")).unwrap();
        let text = message(&[path.to_str().unwrap()]);
        assert!(text.contains("a.fio:2: ") && text.contains("1 MiB of text"), "{text}");
    }
}

#[test]
fn files_that_include_each_other_in_great_numbers_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = |level: u32| directory.path().join(format!("{level}.fio"));
    for level in 0..10 {
        let text = format!("include {}.fio\n", level + 1).repeat(10);
        std::fs::write(path(level), if level == 0 { format!("[a]\n{text}") } else { text }).unwrap();
    }
    std::fs::write(path(10), "").unwrap();
    let text = message(&[path(0).to_str().unwrap()]);
    assert!(text.contains("1 MiB of text"), "{text}");
}

#[test]
fn options_that_multiply_are_refused() {
    let text = message(&["--name=a", "--size=1m", "--numjobs=4096", "--nrfiles=4096"]);
    assert!(text.contains("64 MiB of memory") && text.contains("`numjobs`"), "{text}");
    let long = format!("--filename_format={}", "$jobname".repeat(4000));
    let name = format!("--name={}", "n".repeat(4000));
    let text = message(&[&name, "--size=1m", "--nrfiles=100", &long]);
    assert!(text.contains("64 MiB of memory"), "{text}");
    let description = format!("--description={}", "d".repeat(100_000));
    let text = message(&["--name=a", "--size=1m", "--numjobs=4096", &description]);
    assert!(text.contains("64 MiB of memory"), "{text}");

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.fio");
    std::fs::write(&path, format!("[global]\n{}{}", "bs=1\n".repeat(10_000), "[a]\n".repeat(100))).unwrap();
    let text = message(&[path.to_str().unwrap()]);
    assert!(text.contains("global options") && text.contains(":10028: "), "{text}");

    // All jobs of a scenario share the limit.
    let job = "[[job]]\nfio = \"[a]\\nsize=1m\\nnumjobs=4096\\nnrfiles=64\"\n";
    let text = format!("[machine]\nmemory = \"1MiB\"\n{}", job.repeat(10));
    let text = Scenario::parse(&text, Path::new("a.toml"), None).unwrap_err().to_string();
    assert!(text.contains("64 MiB of memory"), "{text}");
}

/// Starting such a load would allocate gigabytes.
#[test]
fn a_load_is_checked_without_being_started() {
    let text =
        "[machine]\nmemory = \"1MiB\"\n[[job]]\nload = \"ycsb:records=2147483648\"\nruntime = \"1s\"\n";
    let scenario = Scenario::parse(text, Path::new("a.toml"), None).unwrap();
    assert_eq!(scenario.jobs.len(), 1);
}
