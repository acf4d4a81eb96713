//! How the baselines agree with libCacheSim: the tables of `docs/baselines.md`.
//!
//! ```text
//! cargo run --release -p mglru-sim --example baselines ../shared/traces [ACCESSES_MAX]
//! ```
#[path = "../tests/baselines/miss_ratio.rs"]
mod miss_ratio;

use mglru_sim::Baseline;
use miss_ratio::Row;
use std::path::PathBuf;

/// Rows that differ by less are not listed.
const LISTED_FROM: f64 = 0.005;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| "../shared/traces".to_owned()));
    let accesses_max = arguments.next().map_or(usize::MAX, |text| text.parse().expect("a number"));
    let rows = miss_ratio::compare(&folder, accesses_max, |rows| {
        eprintln!("{}: {} rows", rows[0].trace, rows.len());
    });

    println!("| policy | rows | exact | within 0.5 % | largest difference | where | M accesses/s |");
    println!("|---|---|---|---|---|---|---|");
    for baseline in Baseline::ALL {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.baseline == baseline).collect();
        let Some(worst) = rows.iter().max_by(|a, b| a.difference().abs().total_cmp(&b.difference().abs()))
        else {
            continue;
        };
        let count = |within: f64| rows.iter().filter(|row| row.difference().abs() <= within).count();
        let rate = |row: &&Row| row.accesses as f64 / row.seconds / 1e6;
        let mut rates: Vec<f64> = rows.iter().map(rate).collect();
        rates.sort_by(f64::total_cmp);
        println!(
            "| {} | {} | {} | {} | {:+.2} % | {} | {:.0} ({:.0}–{:.0}) |",
            baseline.name(),
            rows.len(),
            count(0.0),
            count(LISTED_FROM),
            worst.difference() * 100.0,
            if worst.difference() == 0.0 {
                String::new()
            } else {
                format!("{}, {} pages", worst.trace, worst.memory_pages)
            },
            rates[rates.len() / 2],
            rates[0],
            rates[rates.len() - 1],
        );
    }
    println!("\n| trace | pages | policy | libCacheSim | ours | difference |");
    println!("|---|---|---|---|---|---|");
    for row in rows.iter().filter(|row| row.difference().abs() > LISTED_FROM) {
        println!(
            "| {} | {} | {} | {:.4} | {:.4} | {:+.2} % |",
            row.trace,
            row.memory_pages,
            row.baseline.name(),
            row.reference,
            row.miss_ratio,
            row.difference() * 100.0
        );
    }
}
