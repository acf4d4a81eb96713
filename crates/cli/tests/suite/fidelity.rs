//! `mglru fidelity`: tables made here, and some rows of the kernel lab.

use crate::common::{document, done, fails, mglru, shared, skipped, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const MAPPED: u32 = 1 << 30;

/// A row of a table, by column.
type Row = BTreeMap<&'static str, String>;

/// A folder with a trace `work.bin`, and a table of a kernel that has exactly our counts.
fn folder(flags: u32) -> (tempfile::TempDir, Row) {
    let folder = tempfile::tempdir().unwrap();
    let mut state = 1u64;
    let mut draw = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u32 % 2000
    };
    let words = (0..30_000).flat_map(|_| (draw().min(draw()) | flags).to_le_bytes()).collect::<Vec<u8>>();
    fs::write(folder.path().join("work.bin"), words).unwrap();
    let row = measured(folder.path(), flags, 528);
    (folder, row)
}

/// The counts of a replay with that memory, as a row.
fn measured(folder: &Path, flags: u32, memory_pages: u64) -> Row {
    let replay =
        document(folder, &format!("replay work.bin --memory {memory_pages}p --preset linux-7.2 --warm 0.25"));
    let run = &replay["runs"][0];
    let count = |value: &Value| value.as_u64().unwrap().to_string();
    let warm = |name: &str| count(&run["warm"]["counters"][name]);
    let mapped = if flags & MAPPED == 0 { "0" } else { "30000" };
    let seq = 3 + run["generations"]["created"].as_u64().unwrap();
    Row::from([
        ("workload", "work".to_owned()),
        ("kernel", "7.2.12".to_owned()),
        ("lru", "mglru".to_owned()),
        ("limit_pages", (memory_pages + 100).to_string()),
        ("swap", "none".to_owned()),
        ("tag", String::new()),
        ("wmode", "rmw".to_owned()),
        ("n", "30000".to_owned()),
        ("warm_index", count(&run["warm"]["from_access"])),
        ("acc_mapped", mapped.to_owned()),
        ("acc_anon", "0".to_owned()),
        ("acc_write", "0".to_owned()),
        ("cap_file_mean", format!("{}.4", memory_pages - 28)),
        ("cap_anon_mean", "4.0".to_owned()),
        ("total_vm_pswpin", "0".to_owned()),
        ("total_vm_pswpout", "0".to_owned()),
        ("total_misses", count(&run["misses"])),
        ("warm_misses", count(&run["warm"]["misses"])),
        ("warm_workingset_refault_file", warm("workingset_refault_file")),
        ("warm_workingset_restore_file", warm("workingset_restore_file")),
        ("warm_workingset_activate_file", warm("workingset_activate_file")),
        ("total_elapsed_ns", "1200000000".to_owned()),
        ("warm_pgscan", warm("pgscan")),
        ("warm_pgsteal", warm("pgsteal")),
        ("total_pgrefill", count(&run["counters"]["pgrefill"])),
        ("warm_pgactivate", warm("pgactivate")),
        ("gen_start_max_seq", "3".to_owned()),
        ("gen_end_max_seq", seq.to_string()),
    ])
}

fn with(row: &Row, column: &'static str, value: impl ToString) -> Row {
    let mut row = row.clone();
    row.insert(column, value.to_string());
    row
}

/// The value of a column, changed by a number of percent.
fn off_by(row: &Row, column: &'static str, percent: f64) -> Row {
    let value: f64 = row[column].parse().unwrap();
    with(row, column, (value * (1.0 + percent / 100.0)).round())
}

fn write(folder: &Path, rows: &[Row]) {
    let columns: Vec<&str> = rows[0].keys().copied().collect();
    let line = |row: &Row| columns.iter().map(|&column| row[column].as_str()).collect::<Vec<_>>().join(",");
    let lines: Vec<String> = [columns.join(",")].into_iter().chain(rows.iter().map(line)).collect();
    fs::write(folder.join("results.csv"), lines.join("\n") + "\n").unwrap();
}

/// The document of a comparison that fails.
fn out(folder: &Path) -> Value {
    let output = mglru(folder, "fidelity results.csv --json");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn of<'a>(document: &'a Value, counter: &str) -> &'a Value {
    let mut rows = document["rows"].as_array().unwrap().iter();
    rows.find(|row| row["counter"] == counter).unwrap_or_else(|| panic!("no {counter} in {document}"))
}

#[test]
fn a_kernel_with_equal_counts_agrees() {
    let (folder, row) = folder(0);
    write(folder.path(), &[row]);
    let document = document(folder.path(), "fidelity results.csv");
    let rows = document["rows"].as_array().unwrap();
    let counters: Vec<&str> = rows.iter().map(|row| row["counter"].as_str().unwrap()).collect();
    assert_eq!(
        counters,
        [
            "total_misses",
            "misses",
            "workingset_refault_file",
            "pgscan",
            "pgsteal",
            "pgrefill",
            "pgactivate",
            "workingset_restore_file",
            "generations_created"
        ]
    );
    for row in rows {
        assert_eq!(row["kernel_count"], row["our_count"], "{row}");
        assert_eq!((&row["within"], &row["difference_percent"]), (&true.into(), &0.0.into()), "{row}");
    }
    let misses = of(&document, "misses");
    assert_eq!(
        (&misses["workload"], &misses["kernel"], &misses["lru"]),
        (&"work".into(), &"7.2.12".into(), &"mglru".into())
    );
    assert_eq!((&misses["limit_pages"], &misses["memory_pages"]), (&628.into(), &528.into()));
    assert_eq!(misses["tolerance_percent"], 0.3);
    let text = done(folder.path(), "fidelity results.csv");
    assert!(text.contains("all 9 counts are within") && text.contains("+0.00 %"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn a_count_that_is_too_far_off_fails() {
    let (folder, row) = folder(0);
    write(folder.path(), &[off_by(&row, "warm_misses", 1.0)]);
    let document = out(folder.path());
    assert_eq!(of(&document, "misses")["within"], false);
    assert_eq!(of(&document, "total_misses")["within"], true);
    let difference = of(&document, "misses")["difference_percent"].as_f64().unwrap();
    assert!((-1.1..-0.9).contains(&difference), "ours is the smaller: {difference}");
    let error = fails(folder.path(), "fidelity results.csv", 1);
    assert!(error.contains("7.2.12 work misses -0.99 %"), "{error}");
    // The book allows more where the working set shifts.
    fs::copy(folder.path().join("work.bin"), folder.path().join("workshift.bin")).unwrap();
    write(folder.path(), &[with(&off_by(&row, "warm_misses", 0.9), "workload", "workshift")]);
    done(folder.path(), "fidelity results.csv");
}

#[test]
fn differences_between_repetitions_are_allowed() {
    let (folder, row) = folder(0);
    let repetition = with(&off_by(&row, "warm_misses", 3.0), "tag", "rep2");
    write(folder.path(), &[off_by(&row, "warm_misses", 1.0), repetition]);
    let document = document(folder.path(), "fidelity results.csv");
    assert_eq!(document["rows"].as_array().unwrap().len(), 9, "a repetition is no row of its own");
    let tolerance = of(&document, "misses")["tolerance_percent"].as_f64().unwrap();
    assert!((1.9..2.1).contains(&tolerance), "{tolerance}");
    assert_eq!(of(&document, "pgscan")["tolerance_percent"], 0.6);
}

#[test]
fn mapped_reads_are_compared_as_means() {
    let (folder, row) = folder(MAPPED);
    write(folder.path(), &[row]);
    let single = document(folder.path(), "fidelity results.csv");
    assert_eq!(
        (&of(&single, "misses")["our_runs"], &of(&single, "misses")["kernel_runs"]),
        (&5.into(), &1.into())
    );
    assert_eq!(of(&single, "misses")["tolerance_percent"], 3.5);
    // With five limits, the means are also compared, within a narrower tolerance.
    let rows: Vec<Row> =
        [508, 518, 528, 538, 548].map(|memory| measured(folder.path(), MAPPED, memory)).into();
    write(folder.path(), &rows);
    let series = document(folder.path(), "fidelity results.csv --workload work");
    let rows = series["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6 * 9);
    let means = rows.iter().filter(|row| row["kernel_runs"] == 5).collect::<Vec<_>>();
    assert_eq!(means.len(), 9);
    assert!(means.iter().all(|row| row["difference_percent"] == 0.0 && row["within"] == true), "{means:?}");
    assert_eq!((&means[1]["tolerance_percent"], &means[1]["memory_pages"]), (&0.5.into(), &528.into()));
}

#[test]
fn rows_that_are_not_covered_are_listed_with_the_reason() {
    let (folder, row) = folder(0);
    let others = [
        with(&row, "lru", "random"),
        with(&row, "kernel", "6.1.99"),
        with(&row, "swap", "tape"),
        with(&row, "acc_anon", 5),
    ];
    let rows: Vec<Row> = [row].into_iter().chain(others.clone()).collect();
    write(folder.path(), &rows);
    let document = document(folder.path(), "fidelity results.csv");
    let reasons: Vec<&str> =
        document["skipped"].as_array().unwrap().iter().map(|row| row["reason"].as_str().unwrap()).collect();
    for (reason, what) in reasons.iter().zip(["random", "6.1.99", "tape", "anonymous pages without swap"]) {
        assert!(reason.contains(what), "{reason}");
    }
    assert_eq!((reasons.len(), document["rows"].as_array().unwrap().len()), (4, 9));
    let text = done(folder.path(), "fidelity results.csv");
    assert!(text.contains("skipped 1 row: unknown lru `random`; expected mglru or classic"), "{text}");
    write(folder.path(), &others);
    let error = fails(folder.path(), "fidelity results.csv", 1);
    assert!(error.contains("no row can be replayed"), "{error}");
}

#[test]
fn bad_input_is_refused() {
    let (folder, row) = folder(0);
    let path = folder.path();
    fs::write(path.join("other.csv"), "workload,kernel\nwork,7.2.12\n").unwrap();
    let error = fails(path, "fidelity other.csv", 1);
    assert!(
        error.contains("columns are missing: total_misses, warm_misses,") && error.contains("cap_file_mean"),
        "{error}"
    );
    write(path, std::slice::from_ref(&row));
    let kills = "case,kernel,lru,cgroup_version,limit_bytes,parameters,outcome,iterations,oom_kills,seconds,max_events,\
                 peak_dirty_pages,pgscan_file,pgsteal_file\n";
    let memory = "v2,67108864,write_bytes=1048576 chunk=1048576 disk_write_bytes_per_s=unlimited memory=6G";
    let kill = |case, kernel| format!("{case},{kernel},mglru,{memory},finished,1,0,1,0,0,0,0\n");
    fs::write(path.join("empty.csv"), kills).unwrap();
    fs::write(path.join("oom.csv"), kills.to_owned() + &kill("A", "7.1.13") + &kill("B", "7.2.12")).unwrap();
    let memcgs = "kernel,lru,memcgs,pages_each,rounds,request_bytes,touch_fraction,requested_pages,sum_pgsteal,\
                  ratio_percent,stddev_over_mean_percent,min,max,eagain,seconds,first_round,pgscan,scan_per_steal,\
                  first_quarter_percent\n7.2.12,mglru,128,2048,60,1048576,0.4,15360,16502,107.4,41.3,44,277,0,16.0,0,\
                  124645,7.55,23.5\n";
    fs::write(path.join("memcgs.csv"), memcgs).unwrap();
    fs::write(path.join("bytes.csv"), [0xff, 0xfe, b'\n']).unwrap();
    for (arguments, status, what) in [
        ("fidelity", 2, "RESULTS.csv"),
        ("fidelity missing.csv", 1, "missing.csv"),
        ("fidelity results.csv --kernel 9.9", 2, "it has 7.2.12"),
        ("fidelity results.csv --workload nothing", 2, "it has work"),
        ("fidelity results.csv --lru ranked", 2, "it has multigen"),
        ("fidelity oom.csv --kernel 9", 2, "oom.csv has no such row; it has 7.1.13, 7.2.12"),
        ("fidelity oom.csv --workload C", 2, "it has A, B"),
        (
            "fidelity oom.csv --kernel 7.1.13 --workload B",
            2,
            "no row has --kernel 7.1.13 and --workload B together",
        ),
        ("fidelity memcgs.csv --lru classic", 2, "memcgs.csv has no such row; it has multigen"),
        ("fidelity memcgs.csv --workload A", 2, "one load"),
        ("fidelity empty.csv", 1, "empty.csv: no rows in it"),
        ("fidelity bytes.csv", 1, "this is no table of text; expected one like"),
        ("fidelity /dev/zero", 2, "/dev/zero: a pipe or a device can be read once only"),
    ] {
        let error = fails(path, arguments, status);
        assert!(error.contains(what), "{arguments}: {error}");
    }
    for (bad, what) in [
        (with(&row, "warm_misses", "many"), "line 2, column warm_misses: 'many' is not a count"),
        (with(&row, "workload", "other"), "other.bin.zst: the trace of a row is missing"),
        (with(&row, "n", 7), "not the trace of the row: it has 30000 accesses"),
    ] {
        write(path, &[bad]);
        let error = fails(path, "fidelity results.csv", 1);
        assert!(error.contains(what), "{error}");
    }
    fs::write(path.join("results.csv"), "").unwrap();
    assert!(fails(path, "fidelity results.csv", 1).contains("columns are missing"));
    write(path, std::slice::from_ref(&row));
    let text = fs::read_to_string(path.join("results.csv")).unwrap();
    fs::write(path.join("results.csv"), text + "1,2,3\n").unwrap();
    let error = fails(path, "fidelity results.csv", 1);
    assert!(error.contains("line: 3") || error.contains("line 3"), "{error}");
}

/// A kernel with our counts of the classic LRU. The trace is so short that only the first two of
/// five moments of a statistics refresh matter.
#[test]
fn rows_of_the_classic_lru_are_compared_by_medians() {
    let (folder, row) = folder(0);
    write(folder.path(), &[row.clone(), with(&row, "lru", "classic")]);
    let output = mglru(folder.path(), "fidelity results.csv --json --lru classic");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = document["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["lru"] == "classic" && row["our_runs"] == 5), "{rows:?}");
    let counters: Vec<&str> = rows.iter().map(|row| row["counter"].as_str().unwrap()).collect();
    assert_eq!((counters.len(), counters[8]), (9, "workingset_activate_file"));
    // The row has the counts of the other policy.
    assert_eq!(
        (of(&document, "misses")["tolerance_percent"].as_f64() >= Some(0.5), output.status.code()),
        (true, Some(1))
    );
    let classic = document_of_classic(folder.path());
    assert_ne!(of(&document, "misses")["our_count"], row["warm_misses"].parse::<u64>().unwrap());
    assert_eq!(classic["mechanisms"]["lru"], "classic");
}

/// A replay under the classic LRU.
fn document_of_classic(folder: &Path) -> Value {
    document(folder, "replay work.bin --memory 528p --lru classic --lru-lock node")["runs"][0].clone()
}

/// Short rows of the classic LRU: reads, mapped reads, writes, and swap on a disk, on different
/// kernels.
#[test]
fn real_kernels_agree_on_the_classic_lru() {
    let Some(lab) = shared("kernel") else { return };
    for (arguments, rows) in [
        ("--kernel 7.2.12 --workload zipf12,loop12,bigref_zipf07", 3 * 9),
        ("--kernel 7.1.13 --workload mapzipf,ycsbb", 2 * 9),
        ("--kernel 6.12.117 --workload anonfile", 2 * 11),
    ] {
        let document = document(&lab, &format!("fidelity results.csv --lru classic {arguments}"));
        assert_eq!(document["rows"].as_array().unwrap().len(), rows);
    }
}

/// Short rows of Linux 7.2: two skewed traces, and a cycle in which every access misses.
#[test]
fn real_kernels_agree_on_descriptor_reads() {
    let Some(lab) = shared("kernel") else { return };
    let document = document(
        &lab,
        "fidelity results.csv --lru multigen --kernel 7.2.12 --workload zipf12,loop12,bigref_zipf07",
    );
    assert_eq!(document["rows"].as_array().unwrap().len(), 3 * 9);
}

/// Kernels before the working-set rework and before the reclaim loop: reads, mapped reads, writes,
/// swap.
#[test]
fn older_kernels_agree() {
    let Some(lab) = shared("kernel") else { return };
    // Runs without swap have 9 counts, those with swap 11.
    for (kernel, with_swap) in [("6.12.117", 2), ("7.1.13", 1)] {
        let of = format!("--kernel {kernel} --workload zipf12,mapzipf,tpcc,anonfile");
        let document = document(&lab, &format!("fidelity results.csv --lru multigen {of}"));
        assert_eq!(document["rows"].as_array().unwrap().len(), 3 * 9 + with_swap * 11);
    }
}

/// Half of the accesses to anonymous memory, with swap on a disk and in compressed memory.
#[test]
fn real_kernels_agree_on_swap() {
    let Some(lab) = shared("kernel") else { return };
    let document = document(&lab, "fidelity results.csv --lru multigen --kernel 7.2.12 --workload anonfile");
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 11, "two rows, each with pages swapped in and out");
    let swapped = |name: &str| rows.iter().filter(|row| row["counter"] == name).collect::<Vec<_>>();
    for row in swapped("pswpin").into_iter().chain(swapped("pswpout")) {
        assert!(row["our_count"].as_f64().unwrap() > 400.0, "{row}");
    }
}

/// Mapped reads on 7.2 change by 3 % with ten pages more or less, in the kernel and here. The mean
/// over five limits does not. The kernel's counts are those of `../shared/kernel/README.md`: limits
/// 8172 … 8212, misses of the whole replay.
#[test]
fn real_kernels_agree_on_mapped_reads_in_the_mean() {
    let Some(lab) = shared("kernel") else { return };
    let kernel = [74_228.0, 75_702.0, 76_570.0, 76_115.0, 75_355.0].iter().sum::<f64>() / 5.0;
    // The measured capacity of limit 8192, and half a reclaim run.
    let sizes: Vec<String> = [-20, -10, 0, 10, 20].map(|by| format!("{}p", 7946 + 28 + by)).into();
    let replays =
        document(&lab, &format!("replay mapzipf.bin.zst --preset linux-7.2 --curve {}", sizes.join(",")));
    let misses = replays["runs"].as_array().unwrap().iter().map(|run| run["misses"].as_f64().unwrap());
    let ours = misses.sum::<f64>() / 5.0;
    let percent = 100.0 * (ours / kernel - 1.0);
    assert!(percent.abs() <= 0.5, "{ours} misses, {percent:+.2} %");
}

/// A kernel that changed nothing from 7.1 to 7.2, beside an engine whose presets differ.
#[test]
fn changes_between_kernels_are_compared() {
    let (folder, row) = folder(0);
    write(folder.path(), &[with(&row, "kernel", "7.1.13"), row]);
    let output = mglru(folder.path(), "fidelity results.csv --json --report page.html");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let deltas = document["deltas"].as_array().unwrap();
    assert_eq!(deltas.len(), 1);
    let delta = &deltas[0];
    assert_eq!((&delta["from"]["kernel"], &delta["to"]["kernel"]), (&"7.1.13".into(), &"7.2.12".into()));
    assert_eq!((&delta["kernel_percent"], &delta["sign_agrees"]), (&0.0.into(), &Value::Null));
    // The engine's own change, from its own counts.
    let misses = |kernel: &str| {
        let rows = document["rows"].as_array().unwrap();
        let found = rows.iter().find(|row| row["kernel"] == kernel && row["counter"] == "total_misses");
        found.unwrap()["our_count"].as_f64().unwrap()
    };
    let expected = 100.0 * (misses("7.2.12") / misses("7.1.13") - 1.0);
    assert!((delta["our_percent"].as_f64().unwrap() - expected).abs() < 0.001, "{delta}");
    assert_eq!(document["agreement"]["deltas"], 1);
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("Changes between kernels and policies") && page.contains("class=\"band\""));
    let text = text(&mglru(folder.path(), "fidelity results.csv").stdout);
    assert!(text.contains("0 of 0 signs agree"), "{text}");
}

#[test]
fn a_capacity_is_predicted_from_limit_and_trace() {
    let (folder, row) = folder(0);
    // 2,000 pages need 32 index nodes above 64 pages each, and one above those.
    let room = 628 - 28 - 6 - (33 * 584_u64).div_ceil(4096);
    write(folder.path(), &[with(&row, "cap_file_mean", room)]);
    let output = mglru(folder.path(), "fidelity results.csv --json --capacity predicted");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let capacity = &document["capacities"][0];
    assert_eq!((&capacity["measured_pages"], &capacity["limit_pages"]), (&(room as f64).into(), &628.into()));
    assert!(capacity["difference_percent"].as_f64().unwrap().abs() < 0.2, "{capacity}");
    assert_eq!(of(&document, "misses")["memory_pages"], room + 28, "the replay gets the prediction");
}

#[test]
fn pages_and_capacities_are_for_tables_of_counts() {
    let (folder, _) = folder(0);
    let header = "kernel,lru,memcgs,pages_each,rounds,request_bytes,touch_fraction,ratio_percent,\
                  stddev_over_mean_percent,scan_per_steal,first_quarter_percent,first_round,seconds";
    fs::write(
        folder.path().join("memcg.csv"),
        format!("{header}\n7.2.12,mglru,4,256,2,65536,0.5,100,50,1,25,0,1\n"),
    )
    .unwrap();
    for option in ["--report x.html", "--capacity predicted"] {
        let error = fails(folder.path(), &format!("fidelity memcg.csv {option}"), 2);
        assert!(error.contains("needs a table like results.csv"), "{error}");
    }
}

/// A store of 24,000 records in 12 MiB: two kernels, of which the second opens generations.
#[test]
fn runs_of_a_store_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let header = "case,kernel,lru,referenced_placement,updates_percent,disk,inserts,old_log_pages,clients,cpus,\
                  limit_bytes,records,warm_operations,operations,seconds,read_ms,anon_pages,cache_pages,pages_asked,\
                  pages_read,pages_stolen,refaults,generations\n";
    let row = |kernel: &str, stolen: u32, generations: u32| {
        format!(
            "small,{kernel},mglru,,5,fast,0,600,8,2,12582912,24000,4000,8000,2,0.1,1400,1000,40000,32000,{stolen},16000,{generations}\n"
        )
    };
    let document = |rows: &str, is_within: bool| {
        fs::write(path.join("stores.csv"), header.to_owned() + rows).unwrap();
        let output = mglru(path, "fidelity stores.csv --json");
        assert_eq!(output.status.code(), Some(i32::from(!is_within)), "{output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    // These kernels stole next to nothing. The next table has the engine's counts as theirs.
    let found = document(&(row("7.1.13", 1, 0) + &row("7.2.12", 1, 1)), false);
    let ours = |at: usize| {
        let row = &found["rows"][at];
        assert_eq!((&row["counter"], &row["within"]), (&"pgsteal_per_operation".into(), &false.into()));
        row["our_count"].as_f64().unwrap()
    };
    let stolen = [0, 1].map(|at: usize| (ours(at) * 8000.0) as u32);
    let same = row("7.1.13", stolen[0], 0) + &row("7.2.12", stolen[1], 9);
    assert_eq!(document(&same, true)["changes"].as_array().unwrap().len(), 1);
    let text = done(path, "fidelity stores.csv --kernel 7.1.13");
    assert!(text.contains("small 7.1") && !text.contains("OUTSIDE") && !text.contains("Change"), "{text}");
    // A generation that the engine does not open is a difference, too.
    let error = {
        document(&row("7.1.13", stolen[0], 1), false);
        fails(path, "fidelity stores.csv", 1)
    };
    assert!(error.contains("further from the kernel than allowed: small 7.1"), "{error}");
    fs::write(path.join("stores.csv"), header.to_owned() + &row("7.1.13", 1, 0).replace("fast", "tape"))
        .unwrap();
    let error = fails(path, "fidelity stores.csv", 1);
    assert!(
        error.contains("stores.csv: small 7.1.13 mglru: cannot be simulated: disk is fast or slow"),
        "{error}"
    );
    let error = fails(path, "fidelity stores.csv --also stores.csv", 2);
    assert!(error.contains("--also needs a table like oom.csv"), "{error}");
}

/// `lab-kernel/store-row` on these runs; `None` without Python.
fn store_rows(runs: &[u8]) -> Option<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab-kernel/store-row");
    let mut command = Command::new("python3");
    command.arg(script).arg("-").stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        skipped("python3 is not installed");
        return None;
    };
    child.stdin.take().unwrap().write_all(runs).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    Some(text(&output.stdout))
}

/// The script that made `docs/stores.csv` was not in the repository.
#[test]
fn a_recorded_run_of_a_store_becomes_a_row() {
    let state = |ops: u32, t: f64, pages: u32, seq: u32| {
        let count = 10 * ops;
        serde_json::json!({
            "ops": ops, "t": t, "diskstat": format!("  {ops} 0 9 {} 8\n", 3 * ops / 2), "lru_gen": format!("memcg 1 /a\n node 0\n 9 5 0 1 \n {seq} 1 0 7 \n x 0r 0e 0p 1\n"),
            "mem": { "pgsteal": count, "workingset_refault_file": count / 2 }, "vm": { "pgpgin": 4 * count },
            "wt": { "block_byte_read": 4096 * 12 * ops, "bytes_inuse": 4096 * pages },
        })
    };
    let run = |kernel: &str, load: u32, more: &[u32], end: &str| {
        let sample = |ops: u32, anon: u32, cache: u32| {
            let mut sample = vec![0; 19];
            (sample[1], sample[5]) = (ops, anon);
            sample.extend(more.iter().map(|more| cache + more));
            sample
        };
        let series = [sample(50, 1, 1), sample(100, 2, 1), sample(200, 500, 222), sample(300, 502, 444)];
        let run = serde_json::json!({
            "kernel": kernel, "lru": "mglru", "limit": 8_388_608, "n": 1000, "threads": 4, "warm": 100, "upd": 0.2,
            "smp": 2, "load": load, "throttle": [], "series": series,
            "snaps": { "warm": state(100, 1.5, 111, 10), end: state(300, 3.04, 333, 12) },
        });
        run.to_string() + "\n"
    };
    let runs = run("7.2.12", 0, &[0], "end")
        + &run("7.1.13-placement", 0, &[], "end")
        + &run("7.1.13-noplacement", 1, &[], "end")
        + &run("7.1.13", 0, &[], "died");
    let Some(rows) = store_rows(runs.as_bytes()) else { return };
    let table = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stores.csv")).unwrap();
    let size = "4,2,8388608,1000,100,200,1.5,1.5,501";
    let counts = "2400,2000,2000,1000,2";
    let expected = [
        table.lines().next().unwrap().to_owned(),
        format!("updates-20,7.2.12,mglru,,20,fast,0,25600,{size},300,{counts}"),
        format!("updates-20,7.1.13,mglru,on,20,fast,0,25600,{size},200,{counts}"),
        format!("loaded,7.1.13,mglru,off,20,fast,1,0,{size},300,{counts}"),
    ];
    assert_eq!(rows.lines().collect::<Vec<_>>(), expected);
    // The rows of the repository, from the runs that they are of.
    let Some(folder) = shared("kernel-lab/wiredtiger") else { return };
    let unpacked = Command::new("gzip").arg("-dc").arg(folder.join("results.jsonl.gz")).output().unwrap();
    let rows = store_rows(&unpacked.stdout).unwrap();
    let sorted = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(sorted(&rows), sorted(&table));
}
