//! Compares the baselines with libCacheSim and prints the tables of `docs/baselines.md`.
//!
//! ```text
//! cargo run --release -p mglru-sim --example baselines TRACES [ACCESSES_MAX]
//! ```

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "an example is a host"
)]
#[path = "../tests/suite/baselines/miss_ratio.rs"]
mod miss_ratio;
#[path = "../tests/suite/baselines/reference.rs"]
mod reference;

use mglru_sim::Baseline;
use miss_ratio::Row;
use std::path::PathBuf;

/// Rows with a smaller difference are not listed. Rates are measured on sufficiently long traces.
const LISTED_FROM: f64 = 0.005;
/// Number of hashes tried for the filter of libCacheSim's W-TinyLFU.
const HASHES: u64 = 4;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| "../shared/traces".to_owned()));
    let accesses_max = arguments.next().map_or(usize::MAX, |text| text.parse().expect("a number"));
    let rows = miss_ratio::compare(&folder, accesses_max, |rows| {
        eprintln!("{}: {} rows", rows[0].trace, rows.len());
    });

    println!("| policy | rows | the same | within 0.5 % | largest difference | M accesses/s |");
    println!("|---|---|---|---|---|---|");
    for baseline in Baseline::ALL {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.baseline == baseline).collect();
        let within = |limit: f64| rows.iter().filter(|row| row.difference().abs() <= limit).count();
        let Some(worst) = rows.iter().max_by(|a, b| a.difference().abs().total_cmp(&b.difference().abs()))
        else {
            continue;
        };
        let most = match worst.difference() {
            0.0 => "none".to_owned(),
            most => format!("{:+.2} %: {}, {} pages", most * 100.0, worst.trace, worst.memory_pages),
        };
        let rate = |row: &&Row| row.accesses as f64 / row.seconds / 1e6;
        let mut rates: Vec<f64> = rows.iter().filter(|row| row.accesses > 900_000).map(rate).collect();
        rates.sort_by(f64::total_cmp);
        let rates = match rates[..] {
            [least, .., most] => format!("{:.0} ({least:.0}–{most:.0})", rates[rates.len() / 2]),
            _ => String::new(),
        };
        println!(
            "| {} | {} | {} | {} | {most} | {rates} |",
            baseline.name(),
            rows.len(),
            within(0.0),
            within(LISTED_FROM),
        );
    }
    println!("\n| trace | pages | libCacheSim | its rules, {HASHES} hashes | ours | difference |");
    println!("|---|---|---|---|---|---|");
    let w_tiny_lfu: Vec<&Row> = rows.iter().filter(|row| row.baseline == Baseline::WTinyLfu).collect();
    for rows in w_tiny_lfu.chunk_by(|a, b| a.trace == b.trace) {
        let pages = miss_ratio::positions(&miss_ratio::accesses(&folder, &rows[0].trace));
        for row in rows {
            let (least, most) = miss_ratio::their_w_tiny_lfu(row.memory_pages, &pages, HASHES);
            println!(
                "| {} | {} | {:.4} | {least:.4}–{most:.4} | {:.4} | {:+.2} % |",
                row.trace,
                row.memory_pages,
                row.reference,
                row.miss_ratio,
                row.difference() * 100.0
            );
        }
    }
    println!("\n| trace | pages | policy | libCacheSim | ours | difference |");
    println!("|---|---|---|---|---|---|");
    let others = rows.iter().filter(|row| row.baseline != Baseline::WTinyLfu);
    for row in others.filter(|row| row.difference().abs() > LISTED_FROM) {
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
