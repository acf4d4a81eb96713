use super::*;
use crate::Random;

/// The example of docs/scenarios.md and of the help, which uses every key.
const WHOLE: &str = r#"
description = "everything"
[machine]
memory = "64MiB"
preset = "default"
with = ["memcg_lru"]
without = []
lru = "multigen"
swap = "16MiB"
swap_device = "disk"
swappiness = 100
device = "nvme"
cpus = 2
seed = 7

[[tenant]]
path = "a"
memory.max = "32MiB"
memory.swap.max = "max"

[[tenant]]
path = "a/b"
memory.min = "4MiB"
memory.low = "8MiB"
memory.high = "16MiB"
memory.swap.high = "1MiB"

[[action]]
at = "20s"
remove = "c"

[[action]]
at = "10s"
create = "c"
memory.low = "1MiB"

[[action]]
at = "500ms"
write = { "a/memory.max" = "24M", "memory.reclaim" = "1M" }

[[job]]
tenant = "a/b"
fio = """
[one]
rw=randread
size=1m
numjobs=2
"""

[[job]]
tenant = "c"
start = "12s"
load = "tpcc:warehouses=1"
clients = 2
runtime = "5s"

[[job]]
trace = "some.bin"
runtime = "3s"
name = "again"

[print]
every = "1s"
files = ["a/b/memory.stat", "c/memory.current", "lru_gen/enabled", "vmstat"]
counters = ["pgsteal"]

[[action]]
at = "15s"
move = "again"
to = "a/b"

[[action]]
at = "16s"
move = "again"
to = ""
"#;

fn parse(text: &str) -> Result<Scenario, Error> {
    Scenario::parse(text, Path::new("dir/s.toml"), None)
}

#[test]
fn a_scenario_is_understood() {
    let scenario = parse(WHOLE).unwrap();
    let seconds = Duration::from_secs;
    assert_eq!(scenario.name(), "s");
    assert_eq!((scenario.machine.memory_bytes, scenario.machine.seed), (64 << 20, 7));
    assert_eq!(scenario.machine.swap, Some(Swap { bytes: 16 << 20, on_disk: true }));
    let paths: Vec<&str> = scenario.tenants.iter().map(|tenant| tenant.path.as_str()).collect();
    assert_eq!(paths, ["a", "a/b", "c"]);
    assert_eq!(scenario.first_tenants().len(), 2);
    let [a, b, c] = &scenario.tenants[..] else { unreachable!() };
    assert_eq!((a.limits.max_bytes, a.limits.swap_max_bytes, a.limits.min_bytes), (Some(32 << 20), None, 0));
    assert_eq!((b.limits.min_bytes, b.limits.low_bytes), (4 << 20, 8 << 20));
    assert_eq!((b.limits.high_bytes, b.limits.swap_high_bytes), (Some(16 << 20), Some(1 << 20)));
    assert_eq!((c.from, c.until), (seconds(10), Some(seconds(20))));
    let commands: Vec<(Duration, &Command)> =
        scenario.actions.iter().map(|action| (action.at, &action.command)).collect();
    let write = |file: &str, value: &str| Command::Write { file: file.to_owned(), value: value.to_owned() };
    let half = Duration::from_millis(500);
    assert_eq!(
        commands,
        [
            (half, &write("a/memory.max", "24M")),
            (half, &write("memory.reclaim", "1M")),
            (seconds(10), &Command::Create(2)),
            (seconds(15), &Command::Move { job: 2, to: Some(1) }),
            (seconds(16), &Command::Move { job: 2, to: None }),
            (seconds(20), &Command::Remove(2)),
        ]
    );
    let tenants: Vec<Option<usize>> = scenario.jobs.iter().map(|job| job.tenant).collect();
    assert_eq!(tenants, [Some(1), Some(2), None]);
    let Work::Fio(instances) = &scenario.jobs[0].work else { panic!("{:?}", scenario.jobs[0]) };
    assert_eq!((instances.len(), instances[0].origin.to_string().as_str()), (2, "dir/s.toml:44"));
    assert!(matches!(&scenario.jobs[2].work, Work::Trace { path, .. } if path == Path::new("dir/some.bin")));
    assert_eq!(scenario.print.files.len(), 4);
    assert_eq!(Scenario::parse(WHOLE, Path::new("s"), Some(3)).unwrap().machine.seed, 3);
}

const MOVE: &str = "at = \"15s\"\nmove = \"again\"\nto = \"a/b\"";

/// Each case replaces one part of the example and names the expected message.
#[test]
fn errors_name_file_line_and_column() {
    for (there, instead, expected) in [
        (
            "memory = \"64MiB\"",
            "memroy = \"64MiB\"",
            "dir/s.toml:4:1: [machine] has no `memroy`; did you mean `memory`?",
        ),
        ("seed = 7", "seed = 7\nmemory = \"8MiB\"", "15:1: `memory` is there a second time"),
        (
            "memory.min = \"4MiB\"",
            "memory.max = \"4MiB\"\nmemory.max = \"5MiB\"",
            ": `max` is there a second time",
        ),
        ("seed = 7", "sede = 7", "14:1: [machine] has no `sede`; did you mean `seed`?"),
        ("memory = \"64MiB\"", "", "3:1: [machine] needs `memory`, such as memory = \"64MiB\""),
        ("memory = \"64MiB\"", "memory = \"64MB\"", "4:10: `memory`: \"64MB\": `MB` is a power of 1000"),
        ("memory = \"64MiB\"", "memory = 64", "4:10: `memory`: is integer, and should be a size in quotes"),
        ("memory = \"64MiB\"", "memory = \"1k\"", "less than a page"),
        ("memory = \"64MiB\"", "memory = \"2TiB\"", "more than 1 TiB"),
        ("cpus = 2", "cpus = 0", "13:8: `cpus`: should be a whole number from 1 to 1024"),
        ("cpus = 2", "cpus = 0xfffffffffffffffffff", "`cpus`"),
        ("device = \"nvme\"", "device = \"floppy\"", "unknown device `floppy`; expected nvme, slow or ideal"),
        ("swap = \"16MiB\"", "", "`swap_device` needs `swap`"),
        ("path = \"a/b\"", "path = \"d/b\"", "tenant `d/b`: its parent `d` does not exist; there are: a"),
        ("path = \"a/b\"", "path = \"a\"", "22:8: tenant `a`: already exists"),
        ("path = \"a/b\"", "path = \"a//b\"", "single slashes"),
        ("path = \"a/b\"", "path = \"a/\"", "single slashes"),
        ("path = \"a/b\"", "path = \"a/../b\"", "no names of tenants"),
        ("path = \"a/b\"", "path = \"a/memory.max\"", "reserved for control files"),
        ("memory.min = \"4MiB\"", "memory.mni = \"4MiB\"", "[memory] has no `mni`; did you mean `min`?"),
        (
            "memory.min = \"4MiB\"",
            "memory.min = \"lots\"",
            "`memory.min`: \"lots\": a size is a whole number",
        ),
        ("memory.max = \"32MiB\"", "memory.max = \"32\"", "`memory.max`: is less than a page"),
        ("at = \"10s\"", "at = \"soon\"", "33:6: `at`: \"soon\""),
        ("at = \"10s\"", "at = 10", "`at`: is integer, and should be a time in quotes, such as \"10s\""),
        ("at = \"10s\"", "at = \"10 parsecs\"", "not a unit of time"),
        ("at = \"10s\"", "at = \"99999d\"", "more than 1000 days"),
        ("at = \"10s\"", "", "[[action]] needs `at`"),
        ("at = \"10s\"", "at = \"30s\"", "30:10: tenant `c` does not exist; there are: a, a/b"),
        ("remove = \"c\"", "remove = \"a\"", "tenant `a` has `a/b` below it: remove that first"),
        ("remove = \"c\"", "", "an action is one of `write`, `create`, `remove` and `move`"),
        ("to = \"a/b\"", "", "67:1: [[action]] needs `to`, such as to = \"a\""),
        ("to = \"a/b\"", "to = \"d\"", "70:6: tenant `d` does not exist; there are: a, a/b, c"),
        (
            MOVE,
            "at = \"9s\"\nmove = \"again\"\nto = \"c\"",
            "70:6: tenant `c` does not exist; there are: a, a/b",
        ),
        (MOVE, "at = \"25s\"\nmove = \"again\"\nto = \"c\"", "tenant `c` is removed at 20s"),
        ("move = \"again\"", "move = \"agian\"", "69:8: `move`: unknown job `agian`; did you mean `again`?"),
        ("name = \"again\"", "", "unknown job `again`; no job has a name: give it one with `name`"),
        ("name = \"again\"", "name = \"\"", "60:8: `name`: is empty"),
        (
            "load = \"tpcc",
            "name = \"again\"\nload = \"tpcc",
            "another job is called `again`: choose another name",
        ),
        ("remove = \"c\"", "remove = \"c\"\nto = \"a\"", "`to`: is for `move`"),
        ("remove = \"c\"", "remove = \"c\"\nmove = \"again\"", "an action is one of"),
        ("remove = \"c\"", "remove = \"c\"\nmemory.max = \"1M\"", "is for `create`"),
        ("\"a/memory.max\" = \"24M\"", "\"c/memory.max\" = \"24M\"", "tenant `c` does not exist"),
        ("\"a/memory.max\" = \"24M\"", "\"a/memory.max\" = 24", "is integer, and should be text in quotes"),
        ("tenant = \"a/b\"", "tenant = \"a/c\"", "42:10: tenant `a/c` does not exist; did you mean `a/b`?"),
        ("start = \"12s\"", "start = \"9s\"", "tenant `c` is created at 10s only: do this later"),
        (
            "start = \"12s\"",
            "start = \"20s\"",
            "tenant `c` is removed at 20s: do this before, or create it again",
        ),
        ("load = \"tpcc:warehouses=1\"", "load = \"tpch\"", "expected one of tpcc, sweep"),
        ("load = \"tpcc:warehouses=1\"", "", "a job has one of `fio`, `trace` and `load`"),
        ("runtime = \"5s\"", "", "a load has no end"),
        ("runtime = \"5s\"", "runtime = \"0s\"", "is no time, so nothing would be done"),
        ("rw=randread", "rw=randraed", "dir/s.toml:45:1: `rw=randraed`"),
        ("rw=randread", "stonewalll", "45:1: unknown option `stonewalll`; did you mean `stonewall`?"),
        (
            "numjobs=2",
            "filename=/etc/passwd",
            "44:1: job `one`: `/etc/passwd` is outside the run's directory",
        ),
        ("numjobs=2", "filename=a/../../b", "44:1: job `one`: `a/../../b` is outside the run's directory"),
        ("numjobs=2", "directory=/srv", "44:1: job `one`: `/srv/one.0.0` is outside the run's directory"),
        ("numjobs=2", "startdelay=9999d", "44:1: job `one`: a time is more than 1000 days"),
        ("numjobs=2", "  workload=tpcc\nruntime=1", "45:1: job `one`: `rw` controls block accesses"),
        ("\"c/memory.current\"", "\"d/memory.current\"", "tenant `d` does not exist"),
        ("every = \"1s\"", "every = \"0s\"", "less than 1ms"),
        ("[print]", "[prnt]", "a scenario has no `prnt`; did you mean `print`?"),
        ("[print]", "[print", "this is not TOML"),
        (
            "[[tenant]]",
            "[tenant]",
            "21:3: `tenant` is there a second time: where there may be several, each is",
        ),
    ] {
        assert!(WHOLE.contains(there), "{there}");
        let error = parse(&WHOLE.replacen(there, instead, 1)).expect_err(instead).to_string();
        assert!(
            error.starts_with("dir/s.toml:") && error.contains(expected),
            "{instead}\n{error}\n{expected}"
        );
    }
    assert!(parse("").unwrap_err().to_string().contains("begins with its [machine]"));
    assert!(parse("[machine]\nmemory = \"1m\"").unwrap_err().to_string().contains("has no job"));
    let missing = Scenario::read(Path::new("no/such.toml"), None).unwrap_err();
    assert!(missing.place().is_none() && missing.to_string().contains("No such file"), "{missing}");
}

#[test]
fn readahead_and_fault_around_are_sizes_and_off_by_default() {
    let machine = |keys: &str| {
        parse(&WHOLE.replace("seed = 7", &format!("seed = 7\n{keys}")))
            .map(|scenario| (scenario.machine.readahead_pages, scenario.machine.fault_around_pages))
    };
    assert_eq!(machine("").unwrap(), (0, 0));
    assert_eq!(machine("readahead = \"128KiB\"\nfault_around = \"64KiB\"").unwrap(), (32, 16));
    for (keys, reason) in [
        ("readahead = \"1GiB\"", "more than 256 MiB"),
        ("readahead = \"3\"", "less than a page"),
        ("readahead = 32", "in quotes"),
        ("fault_around = \"48KiB\"", "a power of two"),
        ("fault_around = \"4MiB\"", "4KiB to 2MiB"),
    ] {
        let error = machine(keys).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn the_allocator_is_plain_or_the_kernels() {
    let machine = |keys: &str| {
        parse(&WHOLE.replace("seed = 7", &format!("seed = 7\n{keys}")))
            .map(|scenario| scenario.machine.allocator)
    };
    assert_eq!(machine("").unwrap(), Allocator::Plain);
    assert_eq!(machine("allocator = \"plain\"").unwrap(), Allocator::Plain);
    assert_eq!(machine("allocator = \"kernel\"").unwrap(), Allocator::Kernel);
    let error = machine("allocator = \"zones\"").unwrap_err().to_string();
    assert!(error.contains("unknown allocator `zones`; expected plain or kernel"), "{error}");
}

/// As in Linux, a tenant may have no page at all.
#[test]
fn a_limit_of_nothing_is_allowed() {
    let text = WHOLE.replacen("memory.min = \"4MiB\"", "memory.max = \"0\"", 1);
    assert_eq!(parse(&text).unwrap().tenants[1].limits.max_bytes, Some(0));
}

/// The kernel allows it. The protection is then never reached in full.
#[test]
fn a_floor_above_the_ceiling_is_allowed() {
    let text = WHOLE.replacen("memory.min = \"4MiB\"", "memory.min = \"max\"\nmemory.max = \"1MiB\"", 1);
    assert_eq!(parse(&text).unwrap().tenants[1].limits.min_bytes, u64::MAX);
}

#[test]
fn damaged_scenarios_never_panic() {
    let mut good = 0;
    for end in (0..=WHOLE.len()).filter(|&end| WHOLE.is_char_boundary(end)) {
        good += usize::from(parse(&WHOLE[..end]).is_ok());
    }
    assert!(good > 0, "the whole is good");
    let mut random = Random::stream(11, 0);
    let mut refused = 0;
    for _ in 0..3000 {
        let mut bytes = WHOLE.as_bytes().to_vec();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(3) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"\"'[]{}=\n\\.#0\xc3\xa9"[random.below(14) as usize]),
            }
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Err(error) = parse(&text) {
            refused += 1;
            let place = error.place().expect("it could be read");
            assert!(place.line <= text.lines().count() + 1 && place.column > 0, "{error}");
        }
    }
    assert!(refused > 1000, "{refused}");
}

#[test]
fn the_reference_has_a_scenario_that_is_one() {
    let (_, text) = include_str!("../../../../docs/scenarios.md").split_once("```toml\n").unwrap();
    let (text, _) = text.split_once("```").unwrap();
    let scenario = parse(text).unwrap();
    assert_eq!((scenario.tenants.len(), scenario.jobs.len(), scenario.actions.len()), (4, 3, 5));
}
