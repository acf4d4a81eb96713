//! `mglru sweep`: rows in files, interruptions, and grids that are refused; `--sample` of a replay.

use crate::common::{command, document, done, fails, lines, number, run, skewed};
use std::fs;
use std::path::Path;
use std::process::Stdio;

const GRID: &str =
    "traces = ['skewed.plain']\npolicies = ['default', 'arc']\nmemory = ['1%', '10%', '20%']\n";

fn skewed_trace(folder: &Path, accesses: u64) {
    lines(folder, "skewed.plain", skewed(accesses, 5000).map(|page| page.to_string()));
}

fn parts(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("units-")).count()
}

#[test]
fn a_sweep_writes_its_rows_and_goes_on_where_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    skewed_trace(folder.path(), 20_000);
    fs::write(folder.path().join("grid.toml"), GRID).unwrap();
    let report = document(folder.path(), "sweep grid.toml --out rows");
    assert_eq!((number(&report["units"]), number(&report["done_units"])), (6, 6));
    assert_eq!(number(&report["accesses"]), 120_000);
    assert_eq!(parts(&folder.path().join("rows")), 6);
    let again = done(folder.path(), "sweep grid.toml --out rows");
    assert!(
        again.contains("6 units, 6 of them done before") && again.contains("The rows are in rows"),
        "{again}"
    );
    fs::remove_file(folder.path().join("rows/units-000000002-000000002.parquet")).unwrap();
    assert_eq!(number(&document(folder.path(), "sweep grid.toml --out rows --threads 1")["done_units"]), 1);
}

#[test]
fn a_killed_sweep_loses_no_row() {
    let folder = tempfile::tempdir().unwrap();
    skewed_trace(folder.path(), 3000);
    let grid = GRID.to_owned() + &format!("seeds = {:?}\n", (0..20).collect::<Vec<_>>());
    fs::write(folder.path().join("grid.toml"), grid).unwrap();
    let rows = folder.path().join("rows");
    let mut before = 0;
    for _ in 0..2 {
        let start = || command(folder.path(), "sweep grid.toml --out rows").stdout(Stdio::null()).spawn();
        let mut program = start().unwrap();
        while parts(&rows) <= before && program.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let _ = program.kill();
        program.wait().unwrap();
        before = parts(&rows);
    }
    let report = document(folder.path(), "sweep grid.toml --out rows");
    assert_eq!(number(&report["units"]), 120);
    assert_eq!(number(&report["failed_units"]), 0);
    assert_eq!(parts(&rows), 120);
}

#[test]
fn a_wrong_grid_is_refused_before_it_starts() {
    let folder = tempfile::tempdir().unwrap();
    skewed_trace(folder.path(), 100);
    let write = |grid: &str| fs::write(folder.path().join("grid.toml"), grid).unwrap();
    let refused = |why: &str| {
        let error = fails(folder.path(), "sweep grid.toml --out rows", 2);
        assert!(error.contains(why), "{why}: {error}");
        assert!(!folder.path().join("rows").exists());
    };
    // A missing file is no wrong grid.
    assert!(fails(folder.path(), "sweep grid.toml --out rows", 1).contains("grid.toml: No such file"));
    write(&GRID.replace("arc", "mru"));
    refused("grid.toml: policies: unknown policy `mru`");
    write(&(GRID.to_owned() + "fault_around = \"4MiB\"\n"));
    refused("grid.toml: fault_around: expected a power of two from 4KiB to 2MiB");
    let seeds = |count: usize| format!("seeds = {:?}\n", (0..count).collect::<Vec<_>>());
    write(&(GRID.to_owned() + &seeds(1_700_000)));
    refused("grid.toml: the grid has 10200000 units");
    write(&GRID.replace("skewed", "other"));
    let error = fails(folder.path(), "sweep grid.toml --out rows", 1);
    assert!(error.contains("other.plain: No such file"), "{error}");
    write(GRID);
    let error = fails(folder.path(), "sweep grid.toml --out grid.toml", 1);
    assert!(error.contains("grid.toml: cannot write rows there"), "{error}");
}

#[test]
fn failed_units_are_reported_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    skewed_trace(folder.path(), 100);
    lines(folder.path(), "bad.plain", ["1", "2", "three"].map(str::to_owned).into_iter());
    let grid = GRID.replace("'skewed.plain'", "{ path = 'bad.plain', format = 'plain' }, 'skewed.plain'");
    fs::write(folder.path().join("grid.toml"), grid).unwrap();
    let error = fails(folder.path(), "sweep grid.toml --out rows", 1);
    assert!(error.contains("6 of 12 units failed") && error.contains("bad.plain: line 3"), "{error}");
    assert_eq!(parts(&folder.path().join("rows")), 12);
}

#[test]
fn a_sample_estimates_the_miss_ratio() {
    let folder = tempfile::tempdir().unwrap();
    lines(folder.path(), "skewed.plain", skewed(300_000, 20_000).map(|page| page.to_string()));
    for options in ["--memory 10%", "--memory 4000p", "--memory 40% --warm 0.5"] {
        let ratio = |sample: &str| {
            let run = run(document(folder.path(), &format!("replay skewed.plain {options} {sample}")));
            (run["warm"]["miss_ratio"].as_f64().unwrap(), number(&run["memory_pages"]))
        };
        let ((whole, pages), (sampled, of_pages)) = (ratio(""), ratio("--sample 10%"));
        assert!((whole - sampled).abs() < 0.02, "{options}: {whole} and {sampled}");
        assert!(pages.abs_diff(of_pages) * 10 < pages, "{options}: {pages} and {of_pages}");
    }
    let ratios = [7, 8, 9].map(|salt| {
        let replay = format!("replay skewed.plain --memory 10% --sample 10%#{salt} --preset linux-7.2");
        run(document(folder.path(), &replay))["miss_ratio"].as_f64().unwrap()
    });
    let several = "replay skewed.plain --sample 10%#7 --salts 3 --preset linux-7.2";
    let mean = run(document(folder.path(), &format!("{several} --memory 10%")));
    let average = ratios.iter().sum::<f64>() / 3.0;
    let deviation = (ratios.iter().map(|ratio| (ratio - average).powi(2)).sum::<f64>() / 2.0).sqrt();
    let of_mean = |value: &serde_json::Value| value.as_f64().unwrap();
    assert!((of_mean(&mean["miss_ratio"]) - average).abs() < 1e-9, "{mean}");
    assert!((of_mean(&mean["samples"]["miss_ratio_deviation"]) - deviation).abs() < 1e-9, "{mean}");
    assert_eq!(mean["samples"]["salts"], 3);
    for sizes in ["--memory 10%", "--curve 5%,10% --baseline lru"] {
        let text = done(folder.path(), &format!("{several} {sizes}"));
        assert!(text.contains("± points") && text.contains(&format!("{:.2}", deviation * 100.0)), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
    fails(folder.path(), "replay skewed.plain --salts 3", 2);
    let error = fails(folder.path(), "replay skewed.plain --sample 2", 2);
    assert!(error.contains("expected a share above 0 and below 1"), "{error}");
    let error = fails(folder.path(), "replay skewed.plain --sample 1% --readahead 128KiB", 2);
    assert!(error.contains("no neighbouring pages"), "{error}");
}
