//! Sweeps: grids that are refused, interruptions, failed units, and equal rows.

use super::*;
use crate::Unwatched;
use crate::columns::Column;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A folder with the traces `a.plain` and `b.plain`.
fn traces() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, step) in [("a", 7), ("b", 13)] {
        let text: String = (0..3000u64).map(|n| format!("{}\n", n * n * step % 251)).collect();
        std::fs::write(folder.path().join(format!("{name}.plain")), text).unwrap();
    }
    folder
}

const GRID: &str = r#"
traces = ["a.plain", { path = "b.plain", format = "plain" }]
policies = ["default", "linux-7.2 -reclaim_loop", "arc"]
memory = ["10%", "64p", 1048576]
seeds = [1, 2]
warm = 0.25
"#;

fn sweep(folder: &tempfile::TempDir) -> Sweep {
    GridFile::parse(GRID).unwrap().sweep(folder.path()).unwrap()
}

/// All rows of a sweep in order, as text without the duration.
fn rows(sweep: &Sweep, units: &[Unit]) -> String {
    let columns = sweep.columns(units);
    let lasting = |column: &&Column| column.name != "seconds";
    columns.columns().iter().filter(lasting).map(|column| format!("{column:?}\n")).collect()
}

fn run_range(sweep: &Sweep, units: Range<u64>) -> Result<Vec<Unit>, Error> {
    let trace = sweep.load(sweep.trace_of(units.start), &Unwatched);
    sweep.run_units(units, &trace, &Unwatched)
}

fn all(sweep: &Sweep) -> Vec<Unit> {
    sweep.pending(&[]).into_iter().flat_map(|units| run_range(sweep, units).unwrap()).collect()
}

#[test]
fn ranges_cover_every_unit_once_and_stay_in_a_trace() {
    let trace = |name: &str| SweepTrace::new(Path::new(name), Path::new(""));
    for seeds in [1, 5, 100, 777, 40_000] {
        let grid = Grid { seeds: (0..seeds).collect(), ..Grid::default() };
        let sweep = Sweep::new(grid, vec![trace("a"), trace("b"), trace("c")]).unwrap();
        let whole = sweep.pending(&[]);
        let mut next = 0;
        for range in &whole {
            assert!(range.start == next && !range.is_empty() && range.end - range.start <= RANGE_UNITS_MAX);
            assert_eq!(sweep.trace_of(range.start), sweep.trace_of(range.end - 1));
            next = range.end;
        }
        assert_eq!(next, sweep.units());
        // The rest is cut at the same places, whichever ranges are done.
        let (done, left): (Vec<_>, Vec<_>) =
            whole.iter().cloned().partition(|range| range.start % 7 < 3 || range.start > seeds);
        assert_eq!(sweep.pending(&done), left);
        assert_eq!(sweep.pending(&whole), []);
        let odd = sweep.units() / 3..sweep.units() / 2;
        let left: u64 =
            sweep.pending(std::slice::from_ref(&odd)).iter().map(|range| range.end - range.start).sum();
        assert_eq!(left, sweep.units() - (odd.end - odd.start));
    }
}

#[test]
fn wrong_grids_are_refused_with_their_key() {
    let folder = traces();
    for (from, to, why) in [
        ("\"arc\"", "\"mru\"", "policies: unknown policy `mru`; expected a preset"),
        ("\"64p\"", "\"lots\"", "memory: "),
        ("\"64p\"", "[1]", "expected text such as"),
        ("seeds = [1, 2]", "seeds = []", "no seeds"),
        ("seeds = [1, 2]", "seeds = [-1]", "invalid value"),
        ("seeds = [1, 2]", "sedes = [1, 2]", "unknown field `sedes`"),
        ("memory = [\"10%\", \"64p\", 1048576]", "memory = []", "no memory sizes"),
        ("warm = 0.25", "warm = 7", "warm: a share of the accesses"),
        ("warm = 0.25", "writes = \"soon\"", "writes: unknown `soon`; expected rmw or blind"),
        ("warm = 0.25", "writes = \"exact\"", "writes: unknown `exact`; expected rmw or blind"),
        ("warm = 0.25", "swap_device = \"tape\"", "expected zram or disk"),
        ("format = \"plain\"", "format = \"tape\"", "format: "),
        ("format = \"plain\"", "fromat = \"plain\"", "expected the path of a trace, or { path"),
        ("format = \"plain\"", "sample = 1", "sample: a sample of 1 of the pages"),
        (
            "format = \"plain\"",
            "storage_options = {}",
            "traces: storage_options: only for a URL, and `b.plain`",
        ),
        ("traces = [\"a.plain\", { path = \"b.plain\", format = \"plain\" }]", "traces = []", "no traces"),
        ("policies =", "policies", "TOML parse error at line 3"),
    ] {
        let text = GRID.replace(from, to);
        assert_ne!(text, GRID, "{from}");
        let result = GridFile::parse(&text).and_then(|file| file.sweep(folder.path()));
        let Err(Error::Usage(error)) = result else { panic!("{to}: {result:?}") };
        assert!(error.contains(why), "{to}: {error}");
    }
    let missing = GRID.replace("a.plain", "c.plain");
    let sweep = GridFile::parse(&missing).unwrap().sweep(folder.path()).unwrap();
    assert!(sweep.check_traces().unwrap_err().text().contains("c.plain: No such file"));
}

/// As `mglru replay` does with `--curve`: rows that are there twice would count twice in a mean.
#[test]
fn what_a_grid_names_twice_is_replayed_once() {
    let folder = traces();
    let twice = GRID
        .replace("format = \"plain\" }]", "format = \"plain\" }, \"b.plain\", \"a.plain\"]")
        .replace("\"arc\"", "\"arc\", \"default\", \"all\"")
        .replace("1048576]", "1048576, \"256p\", \"1MiB\", \"10%\", \"10.0%\"]")
        .replace("seeds = [1, 2]", "seeds = [2, 1, 2, 1, 1]");
    let sweep = GridFile::parse(&twice).unwrap().sweep(folder.path()).unwrap();
    let Grid { policies, sizes, seeds, .. } = &sweep.grid;
    assert_eq!(policies.len(), 2 + mglru_sim::Baseline::ALL.len());
    let sizes: Vec<&str> = sizes.iter().map(|size| size.text()).collect();
    assert_eq!((sizes, seeds.as_slice()), (vec!["10%", "64p", "1048576"], &[2, 1][..]));
    // With other options, it is another one.
    let names: Vec<&str> = sweep.traces.iter().map(|trace| &*trace.name).collect();
    assert_eq!(names, ["a.plain", "b.plain", "b.plain"]);
}

#[test]
fn a_billion_units_are_refused_before_they_start() {
    let grid = Grid { seeds: (0..1000).collect(), ..Grid::default() };
    let trace = SweepTrace::new(Path::new("t"), Path::new(""));
    let error = Sweep::new(grid, vec![trace; 1_000_000]).unwrap_err();
    assert!(
        error.text().contains("1000000000 units (1000000 traces × 1 policies × 1 sizes × 1000 seeds)"),
        "{error}"
    );
}

#[test]
fn rows_are_equal_whatever_the_threads_and_the_order() {
    let folder = traces();
    let sweep = sweep(&folder);
    assert_eq!(sweep.units(), 36);
    let expected = rows(&sweep, &all(&sweep));
    let mut backwards: Vec<Unit> = Vec::new();
    for units in sweep.pending(&[]).into_iter().rev() {
        backwards.extend(run_range(&sweep, units).unwrap());
    }
    backwards.sort_by_key(|unit| unit.number);
    assert_eq!(rows(&sweep, &backwards), expected);
    let parts = |threads: usize| -> Vec<(String, usize)> {
        let path = folder.path().join(format!("rows-{threads}"));
        let output = Folder::open(&path, &sweep).unwrap();
        let report = run(&sweep, &output, threads, &Unwatched).unwrap();
        assert_eq!((report.units, report.done_units, report.failed_units), (36, 36, 0));
        assert_eq!(report.accesses, 36 * 3000);
        let mut names = output.names().unwrap();
        names.sort();
        // Durations differ, and sizes do not depend on them.
        let size = |name: String| {
            let bytes = std::fs::metadata(path.join(&name)).unwrap().len();
            (name, bytes as usize)
        };
        names.into_iter().map(size).collect()
    };
    let one = parts(1);
    assert_eq!(one.len(), 37, "a file per unit of this small grid, and what the rows depend on");
    assert_eq!(parts(3), one);
}

/// Cancels after some units.
struct After(AtomicU64);

impl Watch for After {
    fn advance(&self, steps: u64) {
        self.0.fetch_sub(steps.min(self.0.load(Relaxed)), Relaxed);
    }
    fn is_cancelled(&self) -> bool {
        self.0.load(Relaxed) == 0
    }
}

#[test]
fn an_interrupted_sweep_goes_on() {
    let folder = traces();
    let sweep = sweep(&folder);
    let output = Folder::open(&folder.path().join("rows"), &sweep).unwrap();
    assert_eq!(run(&sweep, &output, 1, &After(AtomicU64::new(10))), Err(Error::Cancelled));
    let done: u64 = output.done().unwrap().0.iter().map(|units| units.end - units.start).sum();
    assert_eq!(done, 10);
    let path = |name: &str| folder.path().join("rows").join(name);
    for name in [".unfinished-1-units", ".unfinished-2-units"] {
        std::fs::write(path(name), "half a row").unwrap();
    }
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let old = std::fs::File::options().append(true).open(path(".unfinished-1-units")).unwrap();
    old.set_modified(long_ago).unwrap();
    // A file system lost its content, so its unit runs again.
    std::fs::write(path(&part_name(&(0..1))), "").unwrap();
    let output = Folder::open(&folder.path().join("rows"), &sweep).unwrap();
    let report = run(&sweep, &output, 2, &Unwatched).unwrap();
    assert_eq!(report.done_units, 27);
    assert_eq!(sweep.pending(&output.done().unwrap().0), []);
    assert!(!path(".unfinished-1-units").exists());
    assert!(path(".unfinished-2-units").exists(), "another process may be writing it");
}

/// A worker died in the middle of a range, and machines lost parts of files.
#[test]
fn damaged_parts_run_again_and_no_row_is_there_twice() {
    let folder = traces();
    let sweep = sweep(&folder);
    let output = Folder::open(&folder.path().join("rows"), &sweep).unwrap();
    run(&sweep, &output, 2, &Unwatched).unwrap();
    let path = |units: Range<u64>| folder.path().join("rows").join(part_name(&units));
    let read = |unit: u64| std::fs::read(path(unit..unit + 1)).unwrap();
    let joined = joined_parts((0..4).map(read)).unwrap();
    assert_eq!(part_errors(&(0..4), joined.clone()), Some(vec![]));
    assert_eq!(part_errors(&(0..5), joined.clone()), None, "a unit is missing");
    std::fs::write(path(0..4), joined).unwrap();
    let mut hole = read(5);
    hole[512..1024].fill(0);
    std::fs::write(path(5..6), hole).unwrap();
    std::fs::write(path(7..8), read(8)).unwrap();
    std::fs::write(path(10..12), &read(10)[..1000]).unwrap();
    let report = run(&sweep, &output, 2, &Unwatched).unwrap();
    assert_eq!(report.done_units, 2, "5 and 7");
    let (parts, _) = output.done().unwrap();
    let units: Vec<u64> = parts.iter().cloned().flatten().collect();
    assert_eq!(units, (0..36).collect::<Vec<_>>());
    let names = output.names().unwrap();
    let there = names.iter().filter_map(|name| part_units(name)).count();
    assert_eq!((parts[0].clone(), there), (0..4, 33), "{names:?}");
}

#[test]
fn parts_within_others_are_contained() {
    let parts = [0..4, 4..5, 1..2, 0..1, 3..4, 6..9, 8..9, 5..6, 0..4];
    assert_eq!(contained_parts(&parts), [0..4, 0..1, 1..2, 3..4, 8..9]);
    assert_eq!(contained_parts(&[]), []);
}

#[test]
fn rows_of_a_trace_that_changed_are_refused() {
    let folder = traces();
    let rows = folder.path().join("rows");
    Folder::open(&rows, &sweep(&folder)).unwrap();
    let path = folder.path().join("b.plain");
    let mut text = std::fs::read(&path).unwrap();
    *text.iter_mut().rev().find(|byte| byte.is_ascii_digit()).unwrap() ^= 1;
    std::fs::write(&path, text).unwrap();
    let error = Folder::open(&rows, &sweep(&folder)).unwrap_err();
    assert!(error.text().contains("the rows of another sweep are there"), "{error}");
}

#[test]
fn failed_units_are_rows_and_the_rest_goes_on() {
    let folder = traces();
    let damaged: String = (0..3000).map(|n| format!("{}\n", n % 50)).chain(["xyz\n".to_owned()]).collect();
    std::fs::write(folder.path().join("b.plain"), damaged).unwrap();
    let sweep = sweep(&folder);
    let output = Folder::open(&folder.path().join("rows"), &sweep).unwrap();
    let report = run(&sweep, &output, 2, &Unwatched).unwrap();
    assert_eq!((report.done_units, report.failed_units), (36, 18));
    assert!(report.first_failure.as_ref().unwrap().contains("line 3001"));
    // They are not run again, and still failures.
    let again = run(&sweep, &output, 2, &Unwatched).unwrap();
    assert_eq!((again.done_units, again.failed_units), (0, 18));
    assert_eq!(again.first_failure, report.first_failure);
    let units = all(&sweep);
    let columns = sweep.columns(&units);
    let Some(Column { values: Values::Text(errors), .. }) = columns.columns().last() else {
        panic!("errors")
    };
    assert!(errors[..18].iter().all(Option::is_none) && errors[18..].iter().all(Option::is_some));
    let lost = sweep.failed_units(3..5, "the worker was lost");
    assert_eq!(sweep.columns(&lost).rows(), 2);
    assert!(run_range(&sweep, 17..19).is_err(), "units of two traces");
    assert!(run_range(&sweep, 35..37).is_err(), "units beyond the end");
}

#[test]
fn a_panic_is_an_error() {
    let error = caught(|| -> Result<(), Error> { panic!("at page {}", 7) }).unwrap_err();
    assert!(error.text().starts_with("panicked: at page 7; "), "{error}");
    assert_eq!(caught(|| Ok(7)), Ok(7));
}

#[test]
fn folders_of_others_and_without_rights_are_refused_before_the_start() {
    let folder = traces();
    let sweep = sweep(&folder);
    let path = folder.path().join("rows");
    Folder::open(&path, &sweep).unwrap();
    let other = GRID.replace("0.25", "0.5");
    let other = GridFile::parse(&other).unwrap().sweep(folder.path()).unwrap();
    let error = Folder::open(&path, &other).unwrap_err();
    assert!(error.text().contains("now `warm Some(0.5)`, there `warm Some(0.25)`"), "{error}");
    std::fs::write(folder.path().join("a.plain"), "1\n").unwrap();
    let error = Folder::open(&path, &sweep).unwrap_err();
    assert!(error.text().contains("the rows of another sweep"), "the trace is another: {error}");
    let error = Folder::open(&folder.path().join("b.plain"), &sweep).unwrap_err();
    assert!(error.text().contains("b.plain: cannot write rows there"), "{error}");
    let error = Folder::open("/proc/no-such-folder".as_ref(), &sweep).unwrap_err();
    assert!(error.text().contains("cannot write rows there"), "{error}");
}

/// The description beside a trace of the kernel lab says where counting starts.
#[test]
fn the_warm_point_of_a_sidecar_belongs_to_what_rows_depend_on() {
    let folder = traces();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("c.bin"), [1u32, 2, 1].map(u32::to_le_bytes).concat()).unwrap();
    let identity = |grid: &str| {
        let grid = grid.replace("a.plain", "c.bin");
        GridFile::parse(&grid).unwrap().sweep(folder.path()).unwrap().identity().unwrap()
    };
    let describe = |warm: &str| std::fs::write(path("c.json"), format!("{{\"warm\": {warm}}}")).unwrap();
    let unsaid = GRID.replace("warm = 0.25", "");
    describe("0.5");
    let (before, given) = (identity(&unsaid), identity(GRID));
    assert!(before.contains(", counted from 0.5 on\n"), "{before}");
    describe("0.75");
    assert_ne!(identity(&unsaid), before);
    assert_eq!(identity(GRID), given, "the grid says it");
}

/// A file of numbers with another unit is another trace.
#[test]
fn the_unit_of_a_trace_belongs_to_what_rows_depend_on() {
    let folder = traces();
    let identity = |options: &str| {
        let grid = GRID.replace("format = \"plain\"", options);
        GridFile::parse(&grid).unwrap().sweep(folder.path()).unwrap().identity().unwrap()
    };
    let [pages, sectors] =
        [4096, 512].map(|bytes| identity(&format!("format = \"arc\", unit_bytes = {bytes}")));
    assert_ne!(pages, sectors);
    assert!(sectors.contains(", as arc, in units of 512 bytes\n"), "{sectors}");
}

#[test]
fn names_of_parts_lead_back() {
    for units in [0..1, 0..40, 999_999_999..1_000_000_001, 12..13] {
        assert_eq!(part_units(&part_name(&units)), Some(units));
    }
    for name in
        ["units-5-4.parquet", "units-1-2.parquet", "units-000000005-000000004.parquet", "_sweep.txt", ""]
    {
        assert_eq!(part_units(name), None, "{name}");
    }
}

/// A reader of URLs that has one trace in memory.
#[derive(Debug)]
struct Memory(AtomicU64);

impl Remote for Memory {
    fn state(&self, trace: &SweepTrace) -> Result<String, Error> {
        match trace.name.strip_prefix("memory://") {
            Some("a.plain") => Ok("17 bytes".to_owned()),
            _ => Err(Error::usage("not found").at(&trace.name)),
        }
    }

    fn load(&self, trace: &SweepTrace, _: Loading, _: &dyn Watch) -> Result<TraceFile, Error> {
        assert_eq!(trace.storage_options["anon"].as_bool(), Some(true));
        self.0.fetch_add(1, Relaxed);
        TraceFile::of_pages(&trace.name, (0..3000).map(|n| n * n * 7 % 251))
    }
}

#[test]
fn traces_at_urls_are_read_once_by_whoever_can() {
    let folder = traces();
    let of = |path: &str| {
        let grid = GRID
            .replace("\"b.plain\", format = \"plain\"", &format!("\"{path}\", storage_options.anon = true"));
        GridFile::parse(&grid).unwrap().sweep(folder.path()).unwrap()
    };
    let error = of("memory://a.plain").check_traces().unwrap_err();
    assert!(
        matches!(&error, Error::Usage(text) if text.contains("memory://a.plain: this program reads files only"))
    );
    let remote = Arc::new(Memory(AtomicU64::new(0)));
    let missing = of("memory://c.plain").with_remote(remote.clone()).check_traces().unwrap_err();
    assert_eq!(missing, Error::usage("memory://c.plain: not found"));
    let sweep = of("memory://a.plain").with_remote(remote.clone());
    sweep.check_traces().unwrap();
    assert!(sweep.identity().unwrap().contains("trace memory://a.plain, 17 bytes"));
    let rows = Folder::open(&folder.path().join("rows"), &sweep).unwrap();
    assert_eq!(super::run(&sweep, &rows, 2, &Unwatched).unwrap().failed_units, 0);
    assert_eq!(remote.0.load(Relaxed), 1);
    // The same trace as a file has the same rows but for its name.
    let units = all(&sweep);
    let (file, url) = units.split_at(units.len() / 2);
    let misses = |units: &[Unit]| {
        let columns = sweep.columns(units);
        format!("{:?}", columns.columns().iter().find(|column| column.name == "misses"))
    };
    assert_eq!(misses(file), misses(url));
}

#[test]
fn a_url_begins_with_a_protocol() {
    for url in ["s3://bucket/a.zst", "file:///a", "simplecache::s3://bucket/a", "git+ssh://host/a"] {
        assert!(SweepTrace::new(Path::new(url), Path::new("/folder")).is_remote(), "{url}");
    }
    for path in ["a.zst", "/a/b", "://a", "a b://c", "./s3://a", "7z://a"] {
        let trace = SweepTrace::new(Path::new(path), Path::new("/folder"));
        assert!(!trace.is_remote() && trace.path.starts_with("/"), "{path}");
    }
}

#[test]
fn a_unit_without_room_fails() {
    let folder = traces();
    let sweep = sweep(&folder);
    let trace = sweep.load(0, &Unwatched);
    let unit = sweep.run_unit_in(Room::of_bytes(1 << 20), 0, &trace, &Unwatched).unwrap();
    let text = unit.result.unwrap_err();
    assert!(text.contains("a.plain: 9") && text.contains(" of memory are needed"), "{text}");
}
