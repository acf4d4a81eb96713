//! `mglru evaluate`: a mechanism, two presets, and another build of the program.

use crate::common::{document, done, fails};
use serde_json::Value;

const SMALL: &str = "--accesses 3000 --pages 600 --load skewed,mapped,anon";

fn rows(document: &Value) -> &Vec<Value> {
    document["evaluation"]["rows"].as_array().unwrap()
}

#[test]
fn a_mechanism_is_tried_on_three_presets() {
    let here = tempfile::tempdir().unwrap();
    let arguments = format!("evaluate reclaim_loop {SMALL}");
    let of = document(here.path(), &arguments);
    assert_eq!(rows(&of).len(), 9);
    assert_eq!(of["evaluation"]["settings"], serde_json::json!(["linux-7.1", "linux-7.2", "default"]));
    for row in rows(&of) {
        let misses = &row["effects"][0];
        let number = |name: &str| misses[name].as_f64().unwrap();
        assert!(number("low") <= number("change") && number("change") <= number("high"), "{row}");
        let expected = match () {
            () if number("high") < 0.0 => vec!["gains"],
            () if number("low") > 0.0 => vec!["loses"],
            () => vec!["nothing", "untouched"],
        };
        assert!(expected.contains(&row["verdict"].as_str().unwrap()), "{row}");
    }
    assert!(rows(&of).iter().any(|row| row["verdict"] != "untouched"), "the loop changes something: {of:#}");
    let text = done(here.path(), &arguments);
    let shown = |row: &Value| format!("{:+.2} %", row["effects"][0]["change"].as_f64().unwrap());
    assert!(
        rows(&of)
            .iter()
            .filter(|row| row["effects"][0]["same"] == false)
            .all(|row| text.contains(&shown(row)))
    );
    assert!(text.contains("Folios scanned per reclaimed, before"), "{text}");
    let (_, walked) = text.split_once("Page-table entries walked").unwrap();
    assert!(walked.contains("  mapped ") && !walked.contains("  skewed "), "a cost of mapped loads: {text}");
    assert!(text.contains("Pages written per 1,000 accesses"), "swap is written to: {text}");
    assert_eq!(of, document(here.path(), &arguments), "the same to the last bit");
    let markdown = done(here.path(), &format!("{arguments} --format markdown"));
    assert!(
        markdown.starts_with("## Evaluation of reclaim_loop") && markdown.contains("|---|---:|---:|---:|")
    );
}

/// The fix corrects two steps of the rework, so that neither alone can be told apart.
#[test]
fn mechanisms_that_need_each_other_are_evaluated_together() {
    let here = tempfile::tempdir().unwrap();
    let rest = "--accesses 3000 --pages 600 --load mapped --runs 2 --preset linux-7.1";
    let alone = fails(here.path(), &format!("evaluate workingset_rework {rest}"), 2);
    assert!(alone.contains("lulesh_fix"), "{alone}");
    let arguments = format!("evaluate workingset_rework lulesh_fix {rest}");
    let both = document(here.path(), &arguments);
    assert_eq!(rows(&both).len(), 1);
    assert_ne!(rows(&both)[0]["verdict"], "untouched", "{both:#}");
    let text = done(here.path(), &arguments);
    assert!(text.starts_with("Evaluation of workingset_rework, lulesh_fix: off → on"), "{text}");
    let twice =
        done(here.path(), &arguments.replace("lulesh_fix", "lulesh_fix workingset_rework lulesh_fix"));
    assert_eq!(twice.lines().next(), text.lines().next(), "a mechanism counts once");
}

#[test]
fn this_build_equals_itself_and_presets_differ() {
    let here = tempfile::tempdir().unwrap();
    let own = env!("CARGO_BIN_EXE_mglru");
    let same = document(here.path(), &format!("evaluate --binary {own} {SMALL} --runs 2 --preset linux-7.2"));
    assert_eq!(rows(&same).len(), 3);
    assert!(rows(&same).iter().all(|row| row["verdict"] == "untouched"), "{same:#}");
    let other = document(here.path(), &format!("evaluate --presets linux-7.1,linux-7.2 {SMALL} --runs 2"));
    assert!(rows(&other).iter().all(|row| row["verdict"] == "uncertain"), "two runs: {other:#}");
    assert_eq!(rows(&other)[0]["setting"], "linux-7.1 → linux-7.2");
}

/// The tree of the other build was not named.
#[test]
fn a_report_names_the_revisions_that_it_compares() {
    let here = tempfile::tempdir().unwrap();
    let git = |arguments: &str| {
        let mut command = std::process::Command::new("git");
        command.current_dir(here.path()).args([
            "-c",
            "user.name=a test",
            "-c",
            "user.email=test@example.com",
        ]);
        command.args(arguments.split(' ')).output().is_ok_and(|output| output.status.success())
    };
    if !git("init --quiet") {
        return;
    }
    std::fs::create_dir_all(here.path().join("crates/cli")).unwrap();
    let manifest = here.path().join("crates/cli/Cargo.toml");
    std::fs::write(&manifest, "name = \"mglru-cli\"\n").unwrap();
    assert!(git("add crates") && git("commit --quiet --message one"));
    std::fs::write(&manifest, "name = \"mglru-cli\" # changed\n").unwrap();
    let other = here.path().join("mglru");
    let _ = std::fs::remove_file(&other);
    std::fs::hard_link(env!("CARGO_BIN_EXE_mglru"), &other)
        .or_else(|_| std::fs::copy(env!("CARGO_BIN_EXE_mglru"), &other).map(drop))
        .unwrap();
    let arguments = "evaluate --binary ./mglru --accesses 1000 --pages 320 --runs 1 --load flat";
    let of = document(here.path(), arguments);
    let after = &of["evaluation"]["revisions"]["after"];
    let commit = after["commit"].as_str().unwrap();
    assert!(commit.len() >= 12 && after["dirty"] == true, "{after}");
    let text = done(here.path(), arguments).replace('\n', " ");
    let words = format!("after is revision {commit} with uncommitted changes.");
    assert!(text.contains(" Before is ") && text.contains(&words), "{text}");
    assert!(text.contains("Both builds are the same program, byte for byte"), "{text}");
    assert_eq!(of["evaluation"]["same_program"], true);
    // A name alone was looked for in `PATH`: another program was run, or none.
    let named = document(here.path(), &arguments.replace("./mglru", "mglru"));
    assert_eq!(rows(&named), rows(&of));
}

/// The report only said that every count is the same, as of a change that does not act.
#[test]
fn what_changes_the_speed_alone_is_named() {
    let here = tempfile::tempdir().unwrap();
    let rest = "--accesses 1000 --pages 320 --runs 1 --load flat --preset linux-7.2";
    let text = done(here.path(), &format!("evaluate prefetch {rest}")).replace('\n', " ");
    let why =
        "prefetch has no effect here: it prefetches the states of folios ahead and changes no decision.";
    assert!(text.contains("Every count the same: flat (linux-7.2).") && text.contains(why), "{text}");
    assert!(!done(here.path(), &format!("evaluate reclaim_loop {rest}")).contains("no effect here"));
}

/// More shadows change no miss of this cycle, but counters that the report does not show.
#[test]
fn a_change_that_only_other_counters_show_is_seen() {
    let here = tempfile::tempdir().unwrap();
    let arguments = "evaluate main_shadows --load cycle --preset default --accesses 12000 --pages 1500";
    let of = document(here.path(), arguments);
    let row = &rows(&of)[0];
    assert_eq!(row["verdict"], "nothing", "{row:#}");
    assert!(row["effects"].as_array().unwrap().iter().all(|effect| effect["same"] == true), "{row:#}");
}

/// A load that is named twice had a row of twice as many cells as the table has columns.
#[test]
fn names_that_are_repeated_count_once() {
    let here = tempfile::tempdir().unwrap();
    let rest = "--accesses 1000 --pages 320 --runs 1";
    let arguments = "evaluate reclaim_loop reclaim_loop --load flat,flat --preset linux-7.2,linux-7.2";
    let text = done(here.path(), &format!("{arguments} {rest}"));
    let once = done(here.path(), &format!("evaluate reclaim_loop --load flat --preset linux-7.2 {rest}"));
    let without_the_command = |text: &str| text.trim_end().rsplit_once('\n').unwrap().0.to_owned();
    assert_eq!(without_the_command(&text), without_the_command(&once));
    assert!(text.contains("\n1 load × 1 setting × 1 seed, simulated"), "{text}");
    let fewer = "evaluate --presets linux-7.1,default --load flat";
    let one = done(here.path(), &format!("{fewer} {rest}"));
    assert!(one.contains("\nMisses: change\n") && !one.contains('['), "one seed gives no interval: {one}");
}

/// The advice for a build that crashed was that for an old one, and a program that printed without
/// end took all memory.
#[test]
fn another_build_that_fails_is_described() {
    let here = tempfile::tempdir().unwrap();
    // A shell writes them: a file that this process has open for writing, or a child of another
    // test's, cannot be run.
    let write = r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod +x "$1""#;
    let program = |name: &str, script: &str| {
        let mut shell = std::process::Command::new("sh");
        shell.current_dir(here.path()).args(["-c", write, "sh", name, script]);
        assert!(shell.status().unwrap().success());
    };
    program("crash", "kill -SEGV $$");
    program("panics", "echo 'index out of bounds' >&2; exit 101");
    program("old", "echo \"error: unexpected argument '--counts' found\" >&2; exit 2");
    program("endless", "exec yes");
    program("noisy", "head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1");
    let repeats = "`./crash evaluate --counts --preset linux-7.2 --load flat --runs 1 --seed 1 --accesses 1000 \
                   --pages 320` repeats it";
    for (name, parts) in [
        ("crash", ["crash: it cannot count the loads (signal: 11 (SIGSEGV)", repeats]),
        ("panics", ["(index out of bounds)", "repeats it"]),
        ("old", ["unexpected argument '--counts' found)", "rebase its branch on this build's revision"]),
        ("endless", ["endless: cannot be run", "it prints without end"]),
        ("noisy", ["noisy: it cannot count the loads (xxx", "x); `./noisy evaluate"]),
    ] {
        let load = "--preset linux-7.2 --load flat --runs 1 --accesses 1000 --pages 320";
        let arguments = format!("evaluate --binary {name} {load}");
        let error = fails(here.path(), &arguments, 1);
        assert!(parts.iter().all(|part| error.contains(part)), "{name}: {error}");
        assert!(error.len() < 3000, "{name}: {error}");
    }
}

#[test]
fn wrong_usage_is_refused() {
    let here = tempfile::tempdir().unwrap();
    for (arguments, status, what) in [
        ("evaluate", 2, "nothing to evaluate: name a mechanism"),
        ("evaluate --load flat", 2, "or give --presets or --binary"),
        ("evaluate reclaim_loop --json --format markdown", 2, "cannot be used with"),
        ("evaluate nothing", 2, "nothing"),
        ("evaluate --presets linux-7.1", 2, "before,after"),
        ("evaluate reclaim_loop --load none", 2, "expected skewed, flat"),
        ("evaluate --binary /no/such/mglru", 1, "/no/such/mglru: cannot be run"),
        ("evaluate --binary /bin/false --runs 1", 1, "/bin/false: it cannot count the loads"),
        ("evaluate --binary /bin/true --runs 1", 1, "name the program `mglru` of a branch"),
    ] {
        let smaller = if arguments.contains("--runs") { " --accesses 1000 --pages 320" } else { "" };
        let error = fails(here.path(), &format!("{arguments}{smaller}"), status);
        assert!(error.contains(what), "{arguments}: {error}");
    }
}
