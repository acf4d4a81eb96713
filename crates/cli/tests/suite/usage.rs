//! Help, width of the output, and errors of wrong usage.

use crate::common::command_lines::{arguments, blocks, pages, root, words};
use crate::common::{command, done, fails, on_terminal, text};
use mglru_core::{Preset, Switch};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

#[test]
fn help_shows_options_and_examples() {
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
        ("help --help", "mglru help [COMMAND]"),
        ("help fio -h", "--tenant"),
        ("mount --help", "MOUNTPOINT"),
        ("record --help", "MGLRU_MOUNT"),
        ("top --help", "--once"),
        ("run --help", "[[tenant]]"),
        ("completions bash", "--baseline"),
        ("man", ".TH mglru 1"),
        ("fio --version", env!("CARGO_PKG_VERSION")),
        ("--version", env!("CARGO_PKG_VERSION")),
    ] {
        let text = done(here.path(), arguments);
        assert!(text.contains(teaches), "{arguments}: {text}");
        let long = text.lines().find(|line| line.chars().count() > 100);
        assert!(long.is_none() || !arguments.contains("help"), "{arguments}: {long:?}");
    }
    for mode in ["demo", "fio", "mount", "record", "replay", "run", "ablate"] {
        let text = done(here.path(), &format!("{mode} --help"));
        let names = Preset::ALL.map(Preset::name).into_iter().chain(Switch::ALL.map(Switch::name));
        assert_eq!(names.into_iter().find(|name| !text.contains(name)), None, "{mode}");
    }
    assert!(done(here.path(), "reproduce --help").contains("40 minutes and 5.4 GB"));
}

/// Long names, a long description, many files, and a reclaim request that falls short.
const WIDE: &str = r#"
description = """Words that go on and on, as descriptions do that say what a scenario is for, who asked for it, and what was
expected of it, and what came of it in the end."""

[machine]
memory = "8MiB"

[[tenant]]
path = "a-tenant-with-a-name"

[[tenant]]
path = "a-tenant-with-a-name/and-a-child"

[[job]]
tenant = "a-tenant-with-a-name/and-a-child"
fio = """
[j]
rw=read
size=16m
"""

[[action]]
at = "100ms"
write = { "a-tenant-with-a-name/and-a-child/memory.reclaim" = "1G" }

[print]
every = "1s"
files = [
  "a-tenant-with-a-name/and-a-child/memory.current",
  "a-tenant-with-a-name/and-a-child/memory.peak",
  "a-tenant-with-a-name/and-a-child/memory.max",
  "a-tenant-with-a-name/and-a-child/memory.high",
]
counters = ["pgsteal_proactive", "workingset_refault_file", "workingset_activate_file", "workingset_restore_file", "pgscan_proactive"]
"#;

/// Long cells and lines are wrapped on a terminal. In a pipe a row is one line.
#[test]
fn nothing_on_a_terminal_is_wider_than_100_columns() {
    let folder = crate::common::folder();
    let experiments = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let long =
        "a_trace_with_quite_a_long_name_as_those_of_the_collections_of_block_traces_have_in_general.txt";
    fs::copy(folder.path().join("skewed.txt"), folder.path().join(long)).unwrap();
    fs::write(folder.path().join("wide.toml"), WIDE).unwrap();
    let scenario = |name: &str| format!("run {}", experiments.join(name).display());
    let mut all = vec![
        "trace formats".to_owned(),
        "run wide.toml".to_owned(),
        "replay skewed.txt --memory 200p --lru classic --baseline arc,w-tinylfu --preset linux-7.2,default --without reclaim_loop --without fault_placement".to_owned(),
        format!("replay {long} --memory 200p --explain 1,2 --warm 0.25"),
        format!("replay {long} --curve 10%,20% --lru classic"),
        "ablate skewed.txt --memory 200p --pairs --runs 2 --preset linux-7.2".to_owned(),
    ];
    all.extend(["floors.toml", "kill.toml", "proactive.toml"].map(scenario));
    for arguments in all {
        let text = on_terminal(folder.path(), &arguments);
        let wide = text.lines().find(|line| line.chars().count() > 100);
        assert_eq!(wide, None, "{arguments}");
    }
    let piped = done(folder.path(), "run wide.toml");
    let headings = piped.lines().find(|line| line.trim_start().starts_with("tenant ")).unwrap();
    assert!(headings.contains("usage") && headings.contains("pgscan_proactive"), "{piped}");
}

/// Outputs must not overwrite inputs.
#[test]
fn inputs_are_never_overwritten() {
    let folder = crate::common::folder();
    let path = folder.path();
    fs::rename(path.join("skewed.txt"), path.join("t.jsonl")).unwrap();
    let content = fs::read(path.join("t.jsonl")).unwrap();
    for name in ["t.html", "t.svg", "hard.jsonl", "t.txt"] {
        fs::hard_link(path.join("t.jsonl"), path.join(name)).unwrap();
    }
    symlink("t.jsonl", path.join("soft.jsonl")).unwrap();
    fs::write(path.join("jobs.fio"), "[a]\nrw=randread\nsize=64k\n").unwrap();
    let jobs = fs::read(path.join("jobs.fio")).unwrap();
    for arguments in [
        "replay t.jsonl --format shared-text --events t.jsonl",
        "replay t.jsonl --format shared-text --events hard.jsonl",
        "replay t.jsonl --format shared-text --events soft.jsonl",
        "replay soft.jsonl --format shared-text --report t.html",
        "replay t.jsonl --format shared-text --curve 10%,20% --plot t.svg",
        "ablate t.jsonl --format shared-text --report t.html",
        "trace convert t.jsonl t.txt --format shared-text",
        "fio jobs.fio --output=jobs.fio",
    ] {
        let message = fails(path, arguments, 2);
        assert!(message.contains("the same file"), "{arguments}: {message}");
        assert_eq!(fs::read(path.join("t.jsonl")).unwrap(), content, "{arguments}");
        assert_eq!(fs::read(path.join("jobs.fio")).unwrap(), jobs, "{arguments}");
    }
}

#[test]
fn wrong_usage_is_named_and_has_status_2() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("jobs.fio"), "[global]\nsize=1m\n\n[a]\nrw=randread\nblocksiz=4k\n").unwrap();
    fs::write(here.path().join("fine.fio"), "[a]\nrw=randread\nsize=1m\n").unwrap();
    for (arguments, names) in [
        ("", "name a command\n\nLinux's page reclaim in user space"),
        ("trace", "name a command\n\nInspect, convert or generate traces"),
        ("dmeo", "dmeo"),
        ("demo --foo", "'--foo'"),
        ("demo --size 1GB", "write GiB"),
        ("demo --size 4k", "at least 1 MiB"),
        ("demo --memory 4k", "at least 2 MiB"),
        ("demo --seconds 0", "0.1 to 3600 seconds"),
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
        ("fio --name=a --size=1m --lru=random", "multigen, classic, ranked"),
        ("fio --name=a --size=1m --backend=floppy", "floppy"),
        ("fio --name=a --size=1m --tenant=b=1MiB", "the jobs are: a"),
        ("fio --name=a --size=1m --tenant=a", "NAME=SIZE"),
        ("fio --name=a --size=1m --tenant=a=1MiB --tenant=a=2MiB", "a"),
        ("fio jobs.fio", "jobs.fio:6"),
    ] {
        let stderr = fails(here.path(), arguments, 2);
        assert!(stderr.contains(names), "{arguments}: {stderr}");
    }
    let mut left: Vec<_> =
        fs::read_dir(here.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["fine.fio", "jobs.fio"], "nothing was laid out");
}

/// Every command names an input that does not exist, and has status 1.
#[test]
fn a_missing_input_has_status_1() {
    let here = tempfile::tempdir().unwrap();
    fs::create_dir(here.path().join("empty")).unwrap();
    fs::write(here.path().join("fine.fio"), "[a]\nrw=randread\nsize=1m\n").unwrap();
    fs::write(here.path().join("grid.toml"), "traces=[\"none\"]\npolicies=[\"lru\"]\nmemory=[\"10%\"]\n")
        .unwrap();
    fs::write(here.path().join("trace.toml"), "[[job]]\ntrace = \"none\"\n[machine]\nmemory = \"1MiB\"\n")
        .unwrap();
    for arguments in [
        "replay none",
        "ablate none",
        "sweep none --out rows",
        "sweep grid.toml --out rows",
        "run none",
        "run trace.toml",
        "trace info none",
        "trace convert none out.bin",
        "fidelity none",
        "fio none",
        "fio fine.fio none",
        "mount none empty",
        "record --directory none -- true",
        "top none --once",
        "top ./none --once",
        "evaluate --binary none",
    ] {
        let stderr = fails(here.path(), arguments, 1);
        assert!(stderr.contains("none"), "{arguments}: {stderr}");
    }
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

/// Traces are made this long, for time.
const ACCESSES: &str = "20000";

/// Blocks of the documentation whose fence says `sh run` are run, line by line, in a folder of
/// their own with the scenarios of `experiments`.
#[test]
fn marked_command_lines_of_the_documentation_work() {
    let mut count = 0;
    for page in pages() {
        let (blocks, _) = blocks(&fs::read_to_string(&page).unwrap());
        for block in blocks.iter().filter(|block| block.info.split(' ').any(|word| word == "run")) {
            let folder = tempfile::tempdir().unwrap();
            symlink(root().join("experiments"), folder.path().join("experiments")).unwrap();
            for line in block.lines.iter().filter_map(|line| arguments(line)) {
                let mut words = words(&line);
                if let Some(at) = words.iter().position(|word| word == "--accesses") {
                    words[at + 1] = ACCESSES.to_owned();
                }
                let started = std::time::Instant::now();
                let output = command(folder.path(), "").args(&words).output().unwrap();
                println!("{:?} mglru {line}", started.elapsed());
                let errors = text(&output.stderr);
                assert!(output.status.success(), "{}: mglru {line}\n{errors}", page.display());
                assert!(!text(&output.stdout).is_empty(), "{}: mglru {line}", page.display());
                count += 1;
            }
        }
    }
    assert!(count >= 20, "only {count} command lines are run");
}

/// The error is about the value, not about an argument that is none.
#[test]
fn negative_values_are_values() {
    let here = tempfile::tempdir().unwrap();
    for (arguments, what) in [
        ("replay x --memory -1", "invalid value '-1' for '--memory <SIZE>'"),
        ("trace generate tpcc x.bin --accesses -5", "invalid value '-5' for '--accesses <N>'"),
        ("demo --seconds -0.5", "invalid value '-0.5' for '--seconds <SECONDS>'"),
    ] {
        let error = fails(here.path(), arguments, 2);
        assert!(error.contains(what) && !error.contains("tip:"), "{error}");
    }
}

/// A terminal would obey them, and SVG may not contain them.
#[test]
fn control_characters_of_names_are_shown_as_escapes() {
    let here = tempfile::tempdir().unwrap();
    let name = "a\x1b[31mb.plain";
    fs::write(here.path().join(name), "1\n2\n3\n1\n").unwrap();
    let rest = "--curve 2p,3p --plot c.svg --report r.html";
    let output = command(here.path(), &format!("replay {name} {rest}")).output().unwrap();
    assert!(output.status.success());
    let written =
        [fs::read(here.path().join("c.svg")).unwrap(), fs::read(here.path().join("r.html")).unwrap()];
    for bytes in [&output.stdout, &written[0], &written[1]] {
        assert!(!bytes.contains(&0x1b) && text(bytes).contains("a\\u{1b}[31mb"));
    }
    let error = fails(here.path(), "replay no\x1bfile", 1);
    assert!(error.contains("no\\u{1b}file"), "{error}");
}
