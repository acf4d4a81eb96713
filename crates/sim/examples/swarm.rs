//! Runs swarm seeds: `cargo run --release -p mglru-sim --example swarm FROM COUNT`. Exits with
//! status 1 if a seed fails.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "an example is a host"
)]

#[path = "../tests/suite/swarm.rs"]
mod swarm;

use std::process::ExitCode;
use std::time::Instant;
use swarm::run_seed;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().expect("a number"));
    let from = arguments.next().unwrap_or(0);
    let count = arguments.next().unwrap_or(1000);
    let begin = Instant::now();
    let (mut steps, mut accesses, mut failures, mut kills, mut killing) = (0, 0, 0, 0, 0);
    for seed in from..from + count {
        let one = Instant::now();
        match run_seed(seed) {
            Ok(report) => {
                steps += report.steps;
                accesses += report.report.accesses();
                kills += report.report.kills.len();
                killing += u32::from(!report.report.kills.is_empty());
            }
            Err(failure) => {
                println!("{failure}");
                failures += 1;
            }
        }
        if one.elapsed().as_millis() > 1000 {
            println!("seed {seed} took {:?}", one.elapsed());
        }
    }
    let time = begin.elapsed();
    println!(
        "{count} seeds, {steps} steps, {accesses} accesses, {kills} kills in {killing} seeds, {failures} failures, {time:?}"
    );
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
