//! What the program says about itself, and about what it does not understand.

mod common;

use common::{command, done, fails, text};
use std::fs;
use std::process::Stdio;

#[test]
fn it_teaches() {
    let here = tempfile::tempdir().unwrap();
    for (arguments, teaches) in [
        ("--help", "mglru fio --name"),
        ("demo --help", "--seconds"),
        ("replay --help", "--baseline"),
        ("reproduce --help", "memcg-lru"),
        ("ablate --help", "--pairs"),
        ("fio --help", "--random_distribution"),
        ("fio -h", "--memory"),
        ("help fio", "--tenant"),
        ("run --help", "[[tenant]]"),
        ("fio --version", env!("CARGO_PKG_VERSION")),
        ("--version", env!("CARGO_PKG_VERSION")),
    ] {
        let text = done(here.path(), arguments);
        assert!(text.contains(teaches), "{arguments}: {text}");
        let long = text.lines().find(|line| line.chars().count() > 100);
        assert_eq!(long, None, "{arguments}");
    }
}

#[test]
fn wrong_usage_is_named_and_has_status_2() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("jobs.fio"), "[global]\nsize=1m\n\n[a]\nrw=randread\nblocksiz=4k\n").unwrap();
    fs::write(here.path().join("fine.fio"), "[a]\nrw=randread\nsize=1m\n").unwrap();
    for (arguments, names) in [
        ("", "subcommand"),
        ("dmeo", "dmeo"),
        ("demo --foo", "'--foo'"),
        ("demo --size 1GB", "write GiB"),
        ("demo --size 4k", "1 MiB at least"),
        ("demo --memory 4k", "2 MiB at least"),
        ("demo --seconds 0", "--seconds"),
        ("fio", "no job"),
        ("fio --name=a --foo=1", "`--foo`"),
        ("fio --name=a --rwmixred=1", "did you mean `--rwmixread`?"),
        ("fio --name=a --size=1m --zonemode=zbd", "`--zonemode` is fio's, but mglru does not support it yet"),
        ("fio --name=a --size=1m --direct=1", "its own cache"),
        ("fio --name=a", "size="),
        ("fio --name=a --size=1m --memory=lots", "--memory"),
        ("fio --name=a --size=1m --memory=100", "at least"),
        (
            "fio --name=a --size=1m --preset=linux-6.12 --with=fault_placement",
            "fault_placement places by the distances that the rework counts in",
        ),
        ("fio --name=a --size=1m --preset=linux-9", "linux-9"),
        ("fio --name=a --size=1m --with=turbo", "turbo"),
        ("fio --name=a --size=1m --without=workingset_rework", "workingset_rework is off"),
        ("fio --name=a --size=1m --lru=random", "there are multigen, classic"),
        ("fio --name=a --size=1m --backend=floppy", "floppy"),
        ("fio --name=a --size=1m --tenant=b=1MiB", "the jobs are: a"),
        ("fio --name=a --size=1m --tenant=a", "NAME=SIZE"),
        ("fio --name=a --size=1m --tenant=a=1MiB --tenant=a=2MiB", "a"),
        ("fio jobs.fio", "jobs.fio:6"),
        ("fio fine.fio missing.fio", "missing.fio"),
    ] {
        let stderr = fails(here.path(), arguments, 2);
        assert!(stderr.contains(names), "{arguments}: {stderr}");
    }
    let mut left: Vec<_> =
        fs::read_dir(here.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["fine.fio", "jobs.fio"], "nothing was laid out");
}

#[test]
fn a_reader_that_leaves_is_no_reason_to_panic() {
    let here = tempfile::tempdir().unwrap();
    for arguments in [
        "--help",
        "fio --help",
        "fio --name=a --size=1m --memory=2MiB",
        "fio --name=a --size=1m --memory=2MiB --json",
    ] {
        let mut child = command(here.path(), arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{arguments}");
    }
    assert_eq!(fs::metadata(here.path().join("a.0.0")).unwrap().len(), 1 << 20, "the job ran");
}
