//! `mglru run`: the scenarios of `experiments/` in both worlds, and errors of wrong scenarios.

use crate::common::{document, done, fails, folder, mglru, number};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn experiment(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(name)
}

/// Runs a scenario of `experiments/`.
fn run(name: &str, options: &str) -> Value {
    let here = tempfile::tempdir().unwrap();
    let document = document(here.path(), &format!("run {} {options}", experiment(name).display()));
    assert_eq!(fs::read_dir(here.path()).unwrap().count(), 0, "nothing is left over");
    document
}

fn tenant<'d>(document: &'d Value, path: &str) -> &'d Value {
    let tenants = document["tenants"].as_array().unwrap();
    tenants.iter().find(|tenant| tenant["path"] == path).unwrap_or_else(|| panic!("{path}: {document:#}"))
}

fn counter(document: &Value, path: &str, name: &str) -> u64 {
    number(&tenant(document, path)["counters"][name])
}

/// Half of A's accesses bring its pages in. With its floor, the other half hits.
fn keeps_its_floor(document: &Value) {
    let a = tenant(document, "a");
    let (hits, misses) = (number(&a["hits"]), number(&a["misses"]));
    assert_eq!(hits + misses, 6144);
    assert!(misses < 3200, "{a}");
    assert!(counter(document, "b", "pgsteal") > 20_000);
    assert_eq!(document["failures"], Value::Array(Vec::new()));
}

#[test]
fn a_floor_keeps_a_tenant_from_starving() {
    // The kernels' memcg LRU takes from a tenant below its `memory.low` at the second visit, so the
    // floor needs `subtree_lru`.
    let with = run("floors.toml", "--with subtree_lru");
    keeps_its_floor(&with);
    assert_eq!(with, run("floors.toml", "--with subtree_lru"), "the same to the last bit");

    let here = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(experiment("floors.toml")).unwrap().replace("memory.low", "memory.high");
    let text = text.replace("\"14MiB\"", "\"max\"");
    fs::write(here.path().join("bare.toml"), text).unwrap();
    let without = document(here.path(), "run bare.toml");
    assert!(number(&tenant(&without, "a")["misses"]) > 5000, "without it, it does starve");
}

#[test]
fn a_floor_keeps_a_real_tenant_from_starving() {
    keeps_its_floor(&run("floors.toml", "--with subtree_lru --world real"));
}

/// A working set that is used all the time is read once, and stays while its tenant sleeps.
#[test]
fn a_tenant_in_use_keeps_its_pages_beside_a_stream() {
    for name in ["beside-sleeper.toml", "beside-bursts.toml", "beside-many.toml"] {
        let document = run(name, "");
        let tenants = document["tenants"].as_array().unwrap();
        let used = tenants.iter().filter(|tenant| {
            let path = tenant["path"].as_str().unwrap();
            path.starts_with('t') || path == "hits" || path == "sleeper"
        });
        let misses: Vec<u64> = used.map(|tenant| number(&tenant["misses"])).collect();
        let all: u64 = misses.iter().sum();
        assert!((8192..=8192 * 102 / 100).contains(&all), "{name}: {misses:?} misses of 32 MiB");
        assert_eq!(document["failures"], Value::Array(Vec::new()));
    }
}

/// A stream reads each page once, although the tenant beside it takes all the memory it can get.
/// The switch costs that tenant nothing, and does nothing where memory is large enough. A quarter
/// of the scenario's memory and time shows the same.
#[test]
fn pages_that_were_read_ahead_stay_until_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut scenario = fs::read_to_string(experiment("beside-ahead.toml")).unwrap();
    for (whole, quarter) in [
        ("memory = \"128MiB\"", "memory = \"32MiB\""),
        ("size=144m", "size=36m"),
        ("runtime=12s", "runtime=3s"),
        ("runtime=10s", "runtime=2500ms"),
        ("start = \"2s\"", "start = \"500ms\""),
    ] {
        assert!(scenario.contains(whole), "{whole}");
        scenario = scenario.replace(whole, quarter);
    }
    fs::write(folder.path().join("ahead.toml"), scenario).unwrap();
    let misses_and_refaults = |options: &str| {
        let document = document(folder.path(), &format!("run ahead.toml {options}"));
        let misses = |path| number(&tenant(&document, path)["misses"]);
        [misses("hits"), misses("stream"), counter(&document, "stream", "workingset_refault_file")]
    };
    let [used, missed, refaults] = misses_and_refaults("");
    let [used_without, missed_without, refaults_without] = misses_and_refaults("--without keep_unread");
    assert!(missed < 13 && missed_without > 1500, "{missed} {missed_without} of 125,000");
    assert!(refaults < 125 && refaults_without > 30_000, "{refaults} {refaults_without} of 125,000");
    assert!(used * 50 < used_without * 51, "{used} {used_without}");
    let room = "--memory 64MiB";
    assert_eq!(misses_and_refaults(room), misses_and_refaults(&format!("{room} --without keep_unread")));
}

/// Eight tenants with equal loads miss alike: the largest difference is under 2 %.
#[test]
fn tenants_that_need_the_same_get_the_same() {
    let document = run("equal.toml", "");
    let tenants = document["tenants"].as_array().unwrap();
    let used = tenants.iter().filter(|tenant| tenant["path"].as_str().unwrap().starts_with('t'));
    let misses: Vec<u64> = used.map(|tenant| number(&tenant["misses"])).collect();
    assert_eq!(misses.len(), 8);
    let (least, most) = (misses.iter().min().unwrap(), misses.iter().max().unwrap());
    assert!(*least > 8192 && most - least < least / 50, "{misses:?}");
}

/// The tenant is throttled, and never reaches its limit.
fn is_slowed_down(document: &Value) {
    assert!(counter(document, "log", "high") > 50);
    assert_eq!((counter(document, "log", "max"), counter(document, "log", "oom")), (0, 0));
    assert!(number(&tenant(document, "log")["peak_pages"]) < 4096, "16 of 32 MiB");
}

#[test]
fn a_soft_limit_throttles_before_the_hard_one() {
    is_slowed_down(&run("soft-limit.toml", ""));
    is_slowed_down(&run("soft-limit.toml", "--world real"));
}

fn comes_and_goes(document: &Value) {
    let (first, second) = (tenant(document, "jobs/first"), tenant(document, "jobs/second"));
    assert_eq!((&first["created_seconds"], &first["removed_seconds"]), (&0.5.into(), &1.5.into()));
    // Some metadata may be left until the parent takes it over.
    assert!(number(&first["usage_pages"]) < 10, "its parent has its pages: {first}");
    assert!(number(&first["misses"]) > 100 && number(&second["misses"]) > 100);
    assert!(number(&second["usage_pages"]) <= 6 << 8, "6 MiB");
    assert!(number(&tenant(document, "jobs")["usage_pages"]) <= 10 << 8);
    let actions = document["actions"].as_array().unwrap();
    assert!(actions.len() == 5 && actions.iter().all(|action| action["error"].is_null()), "{actions:?}");
    let texts: Vec<&Value> = document["readings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|reading| reading["file"] == "jobs/first/memory.current")
        .map(|reading| &reading["text"])
        .collect();
    assert!(texts[0].is_null() && texts.last().unwrap().is_null(), "it is not there");
    assert!(texts.iter().any(|text| text.is_string()));
}

#[test]
fn tenants_come_and_go() {
    comes_and_goes(&run("churn.toml", ""));
}

#[test]
fn real_tenants_come_and_go() {
    comes_and_goes(&run("churn.toml", "--world real"));
}

/// The kill ends the leaking load; the service continues.
#[test]
fn a_leak_is_killed_and_its_neighbour_goes_on() {
    let killed = run("kill.toml", "");
    let kills = killed["kills"].as_array().unwrap();
    assert_eq!(kills.len(), 1, "{kills:?}");
    assert_eq!((&kills[0]["victim"], &kills[0]["limit_of"]), (&"host/leak".into(), &"host".into()));
    let at = kills[0]["seconds"].as_f64().unwrap();
    assert!((2.0..3.0).contains(&at), "{at}");
    let [service, leak] = ["host/service", "host/leak"];
    assert_eq!((counter(&killed, leak, "oom_kill"), counter(&killed, "host", "oom")), (1, 1));
    assert_eq!(number(&tenant(&killed, leak)["usage_pages"]), 0);
    assert_eq!(number(&tenant(&killed, service)["out_of_memory"]), 0);

    let failed = run("kill.toml", "--oom-policy fail");
    assert_eq!((failed["kills"].as_array().unwrap().len(), counter(&failed, leak, "oom_kill")), (0, 0));
    assert!(number(&tenant(&failed, leak)["out_of_memory"]) > 10);
    assert!(number(&tenant(&failed, leak)["usage_pages"]) > 4000, "it keeps its pages");
    let text = done(Path::new("."), &format!("run {}", experiment("kill.toml").display()));
    assert!(text.contains("killed") && text.contains("tenant 'host/leak' was chosen"), "{text}");
}

/// In the simulator requests fail or jobs end, and the status is 0. On real files jobs fail, also
/// later ones: all are listed with their places, and the status is 1.
#[test]
fn failures_for_lack_of_memory_are_reported_in_both_worlds() {
    let here = tempfile::tempdir().unwrap();
    let scenario = "\
[machine]
memory = \"24MiB\"
[[tenant]]
path = \"host\"
memory.max = \"12MiB\"
[[tenant]]
path = \"host/service\"
memory.low = \"4MiB\"
[[tenant]]
path = \"host/leak\"
[[job]]
tenant = \"host/service\"
load = \"sweep:size=3m,arrays=4\"
runtime = \"2s\"
[[job]]
tenant = \"host/leak\"
start = \"300ms\"
load = \"sweep:size=40m,arrays=10\"
runtime = \"2s\"
[[job]]
tenant = \"host/leak\"
start = \"1900ms\"
load = \"sweep:size=16m,arrays=4\"
runtime = \"1s\"
";
    fs::write(here.path().join("oom.toml"), scenario).unwrap();
    let leak = "host/leak";
    for policy in ["fail", "victim"] {
        let killed = policy == "victim";
        let sim = document(here.path(), &format!("run oom.toml --oom-policy {policy}"));
        assert_eq!(
            (&sim["failures"], sim["kills"].as_array().unwrap().len()),
            (&Value::Array(Vec::new()), usize::from(killed))
        );
        let refused = number(&tenant(&sim, leak)["out_of_memory"]);
        assert!(if killed { refused == 1 } else { refused > 10 }, "{refused} touches found no page");

        let command = format!("run oom.toml --oom-policy {policy} --world real --json");
        let output = mglru(here.path(), &command);
        let message = crate::common::text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        let real: Value = serde_json::from_slice(&output.stdout).expect("one document");
        let failures: Vec<&str> =
            real["failures"].as_array().unwrap().iter().map(|failure| failure.as_str().unwrap()).collect();
        // The service continues.
        assert_eq!(failures.len(), 2, "{failures:?}");
        for (failure, place) in failures.iter().zip(["oom.toml:15:1: ", "oom.toml:20:1: "]) {
            assert!(failure.starts_with(place) && failure.contains("tenant 'host'"), "{failure}");
            assert_eq!(failure.contains("tenant 'host/leak' was chosen"), killed, "{failure}");
        }
        assert!(message.starts_with(&format!("mglru: {}", failures[0])), "{message}");
        assert_eq!(counter(&real, leak, "oom_kill"), u64::from(killed));
        // The event belongs to the tenant whose limit was reached.
        let oom = [counter(&real, "host", "oom"), number(&tenant(&real, "host")["out_of_memory"])];
        assert!(oom[0] == oom[1] && oom[0] >= 1, "{real}");
        let kills = real["kills"].as_array().unwrap();
        assert_eq!(kills.len(), usize::from(killed));
        for kill in kills {
            assert_eq!((&kill["victim"], &kill["limit_of"]), (&leak.into(), &"host".into()));
            assert!(kill["seconds"].is_null(), "{kill}");
        }
        // Its files' metadata may outlive its pages.
        let usage = number(&tenant(&real, leak)["usage_pages"]);
        assert!(if killed { usage < 10 } else { usage > 2000 }, "{usage} pages are left");
    }
}

#[test]
fn an_unknown_oom_policy_is_refused() {
    let here = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(experiment("kill.toml")).unwrap().replace("\"victim\"", "\"pray\"");
    fs::write(here.path().join("pray.toml"), text).unwrap();
    for (command, place) in
        [("run pray.toml", "pray.toml:5:14"), ("run pray.toml --oom-policy hope", "--oom-policy")]
    {
        let message = fails(here.path(), command, 2);
        assert!(message.contains(place) && message.contains("fail, victim"), "{message}");
    }
}

#[test]
fn proactive_reclaim_is_requested_and_reported() {
    let document = run("proactive.toml", "");
    let stolen = counter(&document, "web", "pgsteal_proactive");
    assert!((4096..4500).contains(&stolen), "16 MiB were asked for: {stolen}");
    let text = done(Path::new("."), &format!("run {}", experiment("proactive.toml").display()));
    for expected in ["web/memory.reclaim = 4M swappiness=0  3.000 s", "pgsteal_", "web/memory.current"] {
        assert!(text.contains(expected), "{text}");
    }
}

const TRACE_AND_LOAD: &str = r#"
[machine]
memory = "40MiB"
swap = "16MiB"
swap_device = "disk"
seed = 3

[[tenant]]
path = "t"
memory.max = "2MiB"

[[tenant]]
path = "s"
memory.max = "4MiB"

[[job]]
tenant = "t"
trace = "skewed.txt"

[[job]]
tenant = "s"
load = "sweep:size=6m,arrays=4"
clients = 2
runtime = "300ms"

[[job]]
fio = """
[of_the_root]
size=1m
"""

[print]
files = ["t/memory.max"]
"#;

#[test]
fn traces_and_loads_run_in_both_worlds() {
    let here = folder();
    // A busy machine needs longer than a simulated one.
    for (world, runtime) in [("real", "1500ms"), ("sim", "300ms")] {
        let scenario = TRACE_AND_LOAD.replace("runtime = \"300ms\"", &format!("runtime = \"{runtime}\""));
        fs::write(here.path().join("s.toml"), scenario).unwrap();
        let document = document(here.path(), &format!("run s.toml --world {world}"));
        let t = tenant(&document, "t");
        assert_eq!(number(&t["hits"]) + number(&t["misses"]), 20_000, "{world}: all of the trace");
        assert!(number(&t["misses"]) > 1000 && number(&t["usage_pages"]) <= 512, "{world}: {t}");
        assert!(counter(&document, "s", "pswpout") > 100, "{world}");
        assert_eq!(document["readings"][0]["text"], "2097152\n");
        assert_eq!(document["world"], world);
    }
    let of = |options: &str| document(here.path(), &format!("run s.toml {options}"));
    assert_eq!(of("--seed 3"), of(""));
    assert_ne!(of("--seed 4")["tenants"], of("")["tenants"]);
    assert_eq!(of("--memory 8MiB")["memory_pages"], 2048);
    assert_eq!(of("--preset linux-7.2 --lru classic")["mechanisms"]["lru"], "classic");
    let ahead = TRACE_AND_LOAD.replace("seed = 3", "seed = 3\nreadahead = \"128KiB\"");
    fs::write(here.path().join("ahead.toml"), ahead).unwrap();
    let misses = |document: &Value| number(&tenant(document, "")["misses"]);
    assert_eq!(misses(&of("")), 256, "a page at a time");
    assert_eq!(misses(&document(here.path(), "run ahead.toml")), 1, "each window asks for the next");
    done(here.path(), "run s.toml --world real --directory .");
    assert!(here.path().join("of_the_root.0.0").is_file(), "files stay where they were asked for");
}

/// On real files, compressed swap is a part of the memory.
#[test]
fn a_real_run_says_that_swap_leaves_no_room() {
    let here = tempfile::tempdir().unwrap();
    let text = TRACE_AND_LOAD.replace("swap = \"16MiB\"", "swap = \"40MiB\"").replace("\"disk\"", "\"zram\"");
    fs::write(here.path().join("s.toml"), text).unwrap();
    let error = fails(here.path(), "run s.toml --world real", 2);
    assert!(error.contains("s.toml: a budget of") && error.contains("have less swap"), "{error}");
}

/// With zones and lists of free pages per CPU, kswapd is late at times, and the classic LRU's stops
/// early.
#[test]
fn the_kernels_allocator_decides_when_kswapd_runs() {
    let here = tempfile::tempdir().unwrap();
    let scenario = |allocator: &str| {
        format!(
            "[machine]\nmemory = \"128MiB\"\npreset = \"linux-7.2\"\nallocator = \"{allocator}\"\n[[job]]\nfio = \"\"\"\n\
             [reader]\nrw=randread\nsize=512m\nrate_iops=20000\nio_size=512m\n\"\"\"\n\
             [print]\ncounters = [\"pageoutrun\", \"allocstall\"]\n"
        )
    };
    let counts = |allocator: &str, lru: &str| {
        fs::write(here.path().join("s.toml"), scenario(allocator)).unwrap();
        let root = tenant(&document(here.path(), &format!("run s.toml --lru {lru}")), "").clone();
        ["pageoutrun", "allocstall"].map(|name| number(&root["counters"][name]))
    };
    assert!(counts("plain", "multigen")[1] == 0 && counts("plain", "classic")[1] == 0);
    let [multigen_runs, multigen_efforts] = counts("kernel", "multigen");
    let [classic_runs, classic_efforts] = counts("kernel", "classic");
    assert!(multigen_efforts > 0 && classic_efforts > 0);
    assert!(classic_runs > 2 * multigen_runs, "{classic_runs} {multigen_runs}");
}

#[test]
fn scenario_errors_name_their_place() {
    let here = folder();
    let write = |there: &str, instead: &str| {
        assert!(TRACE_AND_LOAD.contains(there));
        fs::write(here.path().join("s.toml"), TRACE_AND_LOAD.replacen(there, instead, 1)).unwrap();
    };
    for (there, instead, expected) in [
        ("seed = 3", "sede = 3", "s.toml:6:1: [machine] has no `sede`; did you mean `seed`?"),
        ("seed = 3", "preset = \"linux-9\"", "s.toml:6:10: unknown preset 'linux-9'"),
        ("seed = 3", "with = [\"turbo\"]", "s.toml:6:9: unknown mechanism 'turbo'"),
        (
            "seed = 3",
            "with = [\"reclaimloop\"]",
            "s.toml:6:9: unknown mechanism 'reclaimloop'; did you mean `reclaim_loop`?",
        ),
        ("seed = 3", "lru = \"random\"", "s.toml:6:7: "),
        ("t/memory.max", "t/memory.mx", "no control file 'memory.mx' (ENOENT); did you mean `memory.max`?"),
        ("t/memory.max", "t/memory.high.low", "control-files.md lists the files"),
        (
            "[print]",
            "[[action]]\nat = \"1s\"\nwrite = {}\n[print]",
            "s.toml:34:9: `write`: names no file; such as { \"a/memory.max\" = \"64M\" }",
        ),
        (
            "memory.max = \"2MiB\"",
            "memory.oom.group = \"1\"",
            "[memory] has no `oom`; it has: min, low, high, max, swap",
        ),
        ("t/memory.max", "t/memory.reclaim", "can only be written to"),
        (
            "[print]",
            "[print]\ncounters = [\"pgstael\"]",
            "s.toml:33:13: unknown counter `pgstael`; did you mean `pgsteal`?",
        ),
        (
            "[print]",
            "[[action]]\nat = \"1s\"\nwrite = { \"t/memory.max\" = \"lots\" }\n[print]",
            "s.toml:34:11: 't/memory.max': 'lots' is neither a size",
        ),
        (
            "[print]",
            "[[action]]\nat = \"1s\"\nwrite = { \"t/memory.stat\" = \"1\" }\n[print]",
            "s.toml:34:11: 't/memory.stat': it can only be read",
        ),
        ("size=1m", "size=20%", "does not exist"),
        ("memory = \"40MiB\"", "memory = \"40MiB", "this is not TOML"),
    ] {
        write(there, instead);
        let stderr = fails(here.path(), "run s.toml", 2);
        assert!(stderr.contains(expected), "{instead}: {stderr}");
    }
    write("skewed.txt", "missing.txt");
    assert!(fails(here.path(), "run s.toml", 1).contains("missing.txt"));
    write("size=6m", "size=6m");
    assert!(fails(here.path(), "run s.toml --directory x", 2).contains("--world real"));
    assert!(fails(here.path(), "run missing.toml", 1).contains("missing.toml"));
    assert!(fails(here.path(), "run", 2).contains("SCENARIO.toml"));
}

/// The loads of the reclaim loop's publication, for a part of their time: pages are evicted, and
/// every request finds memory.
#[test]
fn published_loads_run() {
    let here = tempfile::tempdir().unwrap();
    for (name, [length, shorter], counter_name) in [
        ("ycsb.toml", ["2s", "500ms"], "workingset_refault_file"),
        ("workers.toml", ["5s", "1s"], "pswpin"),
        ("dd.toml", ["size=800m", "size=400m"], "nr_written"),
        ("select.toml", ["2s", "1s"], "pswpin"),
        ("compile.toml", ["1s", "500ms"], "pswpout"),
        ("mapped-zipf.toml", ["runtime=1", "runtime=500ms"], "workingset_refault_file"),
        ("file-anon.toml", ["10s", "500ms"], "workingset_refault_file"),
    ] {
        let text = fs::read_to_string(experiment(name)).unwrap();
        assert!(text.contains(length), "{name}");
        fs::write(here.path().join(name), text.replace(length, shorter)).unwrap();
        let document = document(here.path(), &format!("run {name} --preset default"));
        for tenant in &document["tenants"].as_array().unwrap()[1..] {
            assert_eq!(number(&tenant["out_of_memory"]), 0, "{name}: {tenant}");
            assert!(number(&tenant["counters"][counter_name]) > 0, "{name}: {tenant}");
        }
    }
    // This one is too large to run here.
    let text = fs::read_to_string(experiment("ycsb-b.toml")).unwrap();
    mglru_workload::scenario::Scenario::parse(&text, Path::new("ycsb-b.toml"), None).unwrap();
}

#[test]
fn a_page_workload_has_no_real_world() {
    let here = tempfile::tempdir().unwrap();
    let scenario = "[machine]\nmemory = \"64MiB\"\n[[job]]\nload = \"select\"\nruntime = \"1s\"\n";
    fs::write(here.path().join("y.toml"), scenario).unwrap();
    assert!(fails(here.path(), "run y.toml --world real", 2).contains("y.toml:3:1: select"));
}

/// About half of 2,048 pages are read before the move, and the rest after it. The earlier pages
/// stay charged to the first tenant.
fn is_moved(world: &str) {
    let here = tempfile::tempdir().unwrap();
    let scenario = "\
[machine]
memory = \"64MiB\"
[[tenant]]
path = \"day\"
[[tenant]]
path = \"night\"
[[job]]
name = \"reader\"
tenant = \"day\"
fio = \"\"\"
[read]
rw=read
size=8m
rate_iops=1000
\"\"\"
[[job]]
name = \"mapped\"
tenant = \"day\"
fio = \"\"\"
[mapped]
rw=randread
ioengine=mmap
size=8m
rate_iops=1000
\"\"\"
[[job]]
name = \"arrays\"
tenant = \"day\"
load = \"sweep:size=4m,arrays=4\"
clients = 2
runtime = \"2s\"
[[job]]
name = \"later\"
tenant = \"day\"
start = \"1500ms\"
load = \"sweep:size=1m,arrays=4\"
runtime = \"1s\"
[[action]]
at = \"1s\"
move = \"reader\"
to = \"night\"
[[action]]
at = \"1s\"
move = \"mapped\"
to = \"night\"
[[action]]
at = \"1s\"
move = \"arrays\"
to = \"\"
[[action]]
at = \"1s\"
move = \"later\"
to = \"night\"
[print]
counters = [\"anon\", \"file\"]
";
    fs::write(here.path().join("move.toml"), scenario).unwrap();
    let moved = document(here.path(), &format!("run move.toml --world {world}"));
    let done = |action: &Value| action["error"].is_null();
    assert!(moved["actions"].as_array().unwrap().iter().all(done), "{moved}");
    assert_eq!(moved["actions"][2]["move"], "arrays");
    assert_eq!((&moved["actions"][0]["to"], &moved["actions"][2]["to"]), (&"night".into(), &"".into()));
    assert_eq!(moved["failures"], Value::Array(Vec::new()));
    let [day, night] = ["day", "night"].map(|path| ["anon", "file"].map(|name| counter(&moved, path, name)));
    // The arrays were stored to before the move, except those of the job that begins in `night`.
    assert_eq!((day[0], night[0]), (1024, 256), "{moved}");
    assert_eq!(day[1] + night[1], 4096, "{moved}");
    assert!(day[1] > 500 && night[1] > 500, "{moved}");
    let touched = |path: &str| {
        let tenant = tenant(&moved, path);
        number(&tenant["hits"]) + number(&tenant["misses"])
    };
    assert!(["", "day", "night"].iter().all(|path| touched(path) > 500), "{moved}");
}

#[test]
fn jobs_move_to_other_tenants() {
    is_moved("sim");
    is_moved("real");
}

#[test]
fn a_document_store_runs_for_real() {
    let here = tempfile::tempdir().unwrap();
    let scenario = "\
[machine]
memory = \"8MiB\"
[[tenant]]
path = \"store\"
memory.max = \"2MiB\"
[[job]]
tenant = \"store\"
load = \"ycsb:workload=f,records=3000,cache=256k\"
clients = 2
runtime = \"300ms\"
";
    fs::write(here.path().join("f.toml"), scenario).unwrap();
    let document = document(here.path(), "run f.toml --world real");
    let store = &document["tenants"][1];
    assert_eq!(document["failures"].as_array().map(Vec::len), Some(0), "{document}");
    assert!(number(&store["misses"]) > 0 && number(&store["hits"]) > 0, "{store}");
    assert!(number(&store["counters"]["pgsteal"]) > 0, "2 MiB of memory for 4 MiB of records: {store}");
}

/// Memory and swap are too small for the load: requests fail one after the other, and time passes.
const TOO_SMALL: &str = "
[machine]
memory = \"64MiB\"
swap = \"32MiB\"
preset = \"linux-7.2\"
[[tenant]]
path = \"a\"
memory.max = \"4MiB\"
memory.swap.max = \"2MiB\"
[[job]]
tenant = \"a\"
load = \"requests:heap=8m\"
runtime = \"1s\"
";

#[test]
fn the_first_failed_request_of_each_tenant_is_reported() {
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("s.toml"), TOO_SMALL).unwrap();
    let document = document(here.path(), "run s.toml --oom-policy fail");
    let failed = number(&tenant(&document, "a")["out_of_memory"]);
    assert!((1..100_000).contains(&failed), "each takes its time: {failed}");
    let seconds = document["seconds"].as_f64().unwrap();
    assert!((1.0..5.0).contains(&seconds), "it ends with a request: {seconds}");
    let refusals = document["refusals"].as_array().unwrap();
    assert_eq!(
        (refusals.len(), &refusals[0]["tenant"], &refusals[0]["limit_of"]),
        (1, &"a".into(), &"a".into())
    );
    let report = refusals[0]["report"].as_str().unwrap();
    let (_, left) = report.split_once(" anonymous with ").unwrap();
    let left: u64 = left.split(' ').next().unwrap().parse().unwrap();
    assert!(
        left < 64 && report.contains("(fewer than 64 are not used)") == (left > 0),
        "of 512, not of 8,192: {report}"
    );
    assert!(done(here.path(), "run s.toml").contains("refused  first at"));
}

/// Swapped pages are read back for verification, although the tenant's swap limit is 0 by then.
#[test]
fn verification_ignores_the_limits_of_the_tenant() {
    let here = tempfile::tempdir().unwrap();
    let scenario = "
[machine]
memory = \"48MiB\"
swap = \"24MiB\"
[[tenant]]
path = \"a\"
memory.max = \"4MiB\"
[[job]]
tenant = \"a\"
load = \"sweep:size=6m,arrays=4\"
runtime = \"1s\"
[[action]]
at = \"3s\"
write = { \"a/memory.swap.max\" = \"0\" }
";
    fs::write(here.path().join("s.toml"), scenario).unwrap();
    let document = document(here.path(), "run s.toml --world real");
    assert_eq!(document["failures"], Value::Array(Vec::new()));
}

/// Other files of a run are in a temporary folder: existing files of the same name stay unchanged.
#[test]
fn files_of_others_stay_as_they_are() {
    let here = folder();
    fs::write(here.path().join("s.toml"), TRACE_AND_LOAD).unwrap();
    let mine = ["swap", "job1", "job1.0", "job1.1", "job2", "job2.1"];
    mine.iter().for_each(|name| fs::write(here.path().join(name), name).unwrap());
    done(here.path(), "run s.toml --world real --directory .");
    for name in mine {
        assert_eq!(fs::read_to_string(here.path().join(name)).unwrap(), name);
    }
}

/// The file's events, as the counters of each tenant count, and the part of one tenant.
#[test]
fn events_are_filtered_by_tenant() {
    let here = tempfile::tempdir().unwrap();
    let floors = format!("run {} --with subtree_lru", experiment("floors.toml").display());
    let read = |name: &str| -> Vec<Value> {
        let text = fs::read_to_string(here.path().join(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let with = document(here.path(), &format!("{floors} --events all.jsonl"));
    assert_eq!(with, document(here.path(), &floors), "watching changes no result");
    let all = read("all.jsonl");
    let evicted = |path: &str| {
        all.iter().filter(|event| event["event"] == "evict" && event["tenant"] == path).count() as u64
    };
    for path in ["a", "b"] {
        assert_eq!(evicted(path), counter(&with, path, "pgsteal"), "{path}");
    }
    assert!(evicted("b") > 20_000 && evicted("/") == 0);
    // Those of the last accesses of the run, too.
    for tenant in with["tenants"].as_array().unwrap() {
        let path = if tenant["path"] == "" { &Value::from("/") } else { &tenant["path"] };
        for (name, hit) in [("hits", true), ("misses", false)] {
            let touches = all.iter().filter(|event| event["tenant"] == *path && event["hit"] == hit);
            assert_eq!(touches.count() as u64, number(&tenant[name]), "{name} of {path}");
        }
    }
    done(
        here.path(),
        &format!("{floors} --events part.jsonl --events-tenant /b --events-from 1 --events-until 1.5"),
    );
    let wanted = |event: &Value| {
        let time = (1_000_000_000..1_500_000_000).contains(&number(&event["nanos"]));
        let reclaims = ["effort", "wake", "sleep"].iter().any(|name| event["event"] == *name);
        time && (event["tenant"] == "b" || reclaims && event["tenant"] == "/")
    };
    let expected: Vec<&Value> = all.iter().filter(|event| wanted(event)).collect();
    let part = read("part.jsonl");
    assert!(part.len() > 1000 && part.iter().collect::<Vec<_>>() == expected);
    for (options, message) in [
        ("--events all.jsonl --world real", "one scenario in the simulator"),
        ("--events-tenant b", "--events"),
        ("--events all.jsonl --events-tenant b,,", "a tenant is its path"),
        ("--events all.jsonl --events-tenant b,web", "has no tenant `web`; it has /, a, b"),
        ("--events all.jsonl --events-from 2 --events-until 2", "no event is between them"),
    ] {
        let error = fails(here.path(), &format!("{floors} {options}"), 2);
        assert!(error.contains(message), "{options}: {error}");
    }
}

/// Each tenant is a process, and lines are in the order of time.
#[test]
fn tracepoints_of_tenants() {
    let here = tempfile::tempdir().unwrap();
    let floors = format!("run {} --preset linux-7.2", experiment("floors.toml").display());
    let with = document(here.path(), &format!("{floors} --events all.txt"));
    let text = fs::read_to_string(here.path().join("all.txt")).unwrap();
    for path in ["a", "b"] {
        let removed = |line: &&str| {
            line.split_whitespace().next() == Some(path) && line.contains("mm_filemap_delete_from_page_cache")
        };
        assert_eq!(text.lines().filter(removed).count() as u64, counter(&with, path, "pgsteal"), "{path}");
    }
    // Background reclaim is no effort of a task.
    assert!(!text.contains("memcg_reclaim_") && text.contains("mm_vmscan_lru_shrink_inactive: nid=0"));
    let time = |line: &str| {
        let (head, _) = line.split_once(": ").unwrap();
        head.split_whitespace().last().unwrap().parse::<f64>().unwrap()
    };
    assert!(text.lines().map(time).is_sorted());
    done(here.path(), &format!("{floors} --events all.perfetto --events-tenant b"));
    assert!(fs::read(here.path().join("all.perfetto")).unwrap().windows(6).any(|part| part == b"tenant"));
}

/// A scenario's traces are inputs, too, under whatever name.
#[test]
fn events_do_not_replace_a_trace_that_a_job_reads() {
    let here = folder();
    let text = "[machine]\nmemory = \"1MiB\"\n[[job]]\ntrace = \"skewed.txt\"\n";
    fs::write(here.path().join("s.toml"), text).unwrap();
    let trace = fs::read(here.path().join("skewed.txt")).unwrap();
    std::os::unix::fs::symlink("skewed.txt", here.path().join("link.txt")).unwrap();
    for name in ["skewed.txt", "link.txt"] {
        let error = fails(here.path(), &format!("run s.toml --events {name}"), 2);
        assert!(error.contains("same file as the input"), "{error}");
    }
    assert_eq!(fs::read(here.path().join("skewed.txt")).unwrap(), trace);
}

/// A job's trace can be read as `--lossy` and `--format` of other commands read it.
#[test]
fn a_damaged_trace_of_a_job_is_read_with_lossy() {
    let here = tempfile::tempdir().unwrap();
    let write = |keys: &str| {
        let text = format!("[machine]\nmemory = \"1MiB\"\n[[job]]\ntrace = \"t.odd\"\n{keys}\n");
        fs::write(here.path().join("s.toml"), text).unwrap();
    };
    fs::write(here.path().join("t.odd"), "R 1 1\nR x 1\nR 3 1\n").unwrap();
    for world in ["sim", "real"] {
        let command = format!("run s.toml --world {world}");
        write("format = \"shared-text\"");
        let error = fails(here.path(), &command, 1);
        assert!(error.contains("s.toml:3:1: t.odd") && error.contains("`lossy` skips"), "{error}");
        write("format = \"shared-text\"\nlossy = true");
        let document = document(here.path(), &command);
        let root = tenant(&document, "");
        assert_eq!(number(&root["hits"]) + number(&root["misses"]), 2, "{world}: the good records");
        assert_eq!(number(&document["skipped_records"]), 1, "{world}");
        assert!(done(here.path(), &command).contains("One bad record of a trace was skipped."));
    }
    for (keys, expected) in [
        ("lossy = \"yes\"", "s.toml:5:9: `lossy`: is string, and should be true or false"),
        ("format = \"pcap\"", "s.toml:5:10: `format`: unknown trace format \"pcap\""),
        ("unit = 0", "s.toml:5:8: `unit`: should be a whole number"),
    ] {
        write(keys);
        let error = fails(here.path(), "run s.toml", 2);
        assert!(error.contains(expected), "{error}");
    }
    write("");
    let text = fs::read_to_string(here.path().join("s.toml")).unwrap();
    let load = text.replace("trace = \"t.odd\"", "load = \"tpcc\"\nruntime = \"1s\"\nlossy = true");
    fs::write(here.path().join("s.toml"), load).unwrap();
    assert!(fails(here.path(), "run s.toml", 2).contains("s.toml:6:9: `lossy`: is for a `trace`"));
}

/// Readings of a long run do not take all memory.
#[test]
fn readings_take_a_bounded_memory() {
    let here = tempfile::tempdir().unwrap();
    let text = "[machine]\nmemory = \"1MiB\"\n[[job]]\nfio = \"[a]\\nrw=read\\nsize=1m\"\n\
                [[action]]\nat = \"100d\"\nwrite = { \"memory.reclaim\" = \"4K\" }\n\
                [print]\nevery = \"1ms\"\nfiles = [\"lru_gen_full\", \"memory.stat\", \"vmstat\"]\n";
    fs::write(here.path().join("s.toml"), text).unwrap();
    let error = fails(here.path(), "run s.toml", 2);
    assert!(error.contains("s.toml: [print]: ") && error.contains("choose a longer time"), "{error}");
}

/// Of several jobs and scenarios that fail, only the first failure was printed.
#[test]
fn every_failure_is_reported() {
    let here = tempfile::tempdir().unwrap();
    let tenant = |name: &str| format!("[[tenant]]\npath = \"{name}\"\nmemory.max = \"0\"\n");
    let job = |name: &str| format!("[[job]]\ntenant = \"{name}\"\nfio = \"[j]\\nrw=read\\nsize=4k\"\n");
    let of = |names: &[&str]| {
        let tables = names.iter().map(|name| tenant(name)).chain(names.iter().map(|name| job(name)));
        format!("[machine]\nmemory = \"4MiB\"\n{}", tables.collect::<String>())
    };
    fs::write(here.path().join("one.toml"), of(&["a"])).unwrap();
    fs::write(here.path().join("two.toml"), of(&["a", "b"])).unwrap();
    let said = fails(here.path(), "run one.toml two.toml --world real", 1);
    let places = ["one.toml:6:1", "two.toml:9:1", "two.toml:12:1"];
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("mglru: ")).collect();
    assert_eq!(lines.len(), places.len(), "{said}");
    for (line, place) in lines.iter().zip(places) {
        assert!(line.starts_with(&format!("mglru: {place}: no page could be freed for tenant ")), "{line}");
    }
    // A scenario that cannot run leaves none out either.
    let small = of(&["a"]).replace("4MiB", "100KiB");
    fs::write(here.path().join("small.toml"), small).unwrap();
    let said = fails(here.path(), "run one.toml small.toml --world real", 2);
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("mglru: ")).collect();
    let [of_job, of_scenario] = lines[..] else { panic!("{said}") };
    assert!(of_job.contains(": no page could be freed") && of_scenario.contains("too small"), "{said}");
}

/// The document was lost with the results of hours.
#[test]
fn results_are_printed_although_a_later_scenario_cannot_run() {
    let here = tempfile::tempdir().unwrap();
    let of =
        |memory| format!("[machine]\nmemory = \"{memory}\"\n[[job]]\nfio = \"[j]\\nrw=read\\nsize=4k\"\n");
    fs::write(here.path().join("fine.toml"), of("4MiB")).unwrap();
    fs::write(here.path().join("small.toml"), of("100KiB")).unwrap();
    let ran = mglru(here.path(), "run fine.toml small.toml --world real --json");
    assert_eq!(ran.status.code(), Some(2));
    let printed: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let scenarios = printed["scenarios"].as_array().unwrap();
    assert_eq!((scenarios.len(), &scenarios[0]["scenario"]), (1, &"fine".into()));
    assert!(
        String::from_utf8_lossy(&ran.stderr).contains("small.toml: a budget of 102400 bytes is too small")
    );
}

/// In the run's own directory, which has no other folders, nobody could make one.
#[test]
fn files_of_jobs_may_be_in_folders_of_the_run() {
    let here = tempfile::tempdir().unwrap();
    let text =
        "[machine]\nmemory = \"4MiB\"\n[[job]]\nfio = \"[j]\\nrw=read\\nsize=16k\\nfilename=deep/er/x\"\n";
    fs::write(here.path().join("s.toml"), text).unwrap();
    let document = document(here.path(), "run s.toml --world real");
    assert_eq!(number(&tenant(&document, "")["hits"]) + number(&tenant(&document, "")["misses"]), 4);
    let said = fails(here.path(), "run s.toml --world real --directory .", 1);
    assert!(
        said.contains("/deep/er: No such file or directory") && said.contains("create the directory"),
        "{said}"
    );
}
