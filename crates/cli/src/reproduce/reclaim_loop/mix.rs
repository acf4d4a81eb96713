//! The mix of files and anonymous memory alone, at any size: each seed is told as soon as it ends, as large ones take long.

use super::{Effort, loads, settings};
use crate::error::Failure;
use crate::output::Output;
use mglru_core::{Counter, Mechanisms};
use serde_json::json;
use std::time::Instant;

/// Who was killed, was killed after 10 to 20 rounds.
const ROUNDS: u64 = 30;

/// Runs it, so many times smaller than published, one after the other: with these presets, or linux-7.1, linux-7.2 and default.
///
/// # Errors
/// The simulator has a bug.
pub fn run(
    effort: Effort,
    smaller: u64,
    preset: Option<(String, Mechanisms)>,
    output: &mut Output,
) -> Result<(), Failure> {
    let all = ["linux-7.1", "linux-7.2", "default"].map(str::to_owned).into_iter().zip(settings()?);
    let settings: Vec<(String, Mechanisms)> = preset.map_or_else(|| all.collect(), |one| vec![one]);
    let rounds = ROUNDS / u64::from(effort.shorter);
    output.text(&format!(
        "{} GiB of memory, {rounds} rounds\n{:>10} {:>5} {:>7} {:>7} {:>8} {:>10} {:>10} {:>6} {:>8} {:>12} {:>8}\n",
        48.0 / smaller as f64, "preset", "seed", "killed", "rounds", "seconds", "stolen", "refaults", "aged", "efforts",
        "to the last", "took s"
    ))?;
    let mut rows = Vec::new();
    for (name, mechanisms) in &settings {
        for seed in effort.seed..effort.seed + u64::from(effort.runs) {
            let began = Instant::now();
            let facts = loads::file_anon(*mechanisms, seed, smaller, rounds)?;
            let count = |counter| facts.count(counter) as u64;
            let (stolen, refaults) = (facts.tally.counters.pgsteal(), count(Counter::WorkingsetRefaultFile));
            // At the last priority, an effort has done all that it can.
            let (efforts, to_the_last) = (facts.efforts.count(), facts.efforts.at_priority[0]);
            output.text(&format!(
                "{name:>10} {seed:>5} {:>7} {:>7.1} {:>8.1} {stolen:>10} {refaults:>10} {:>6} {efforts:>8} {to_the_last:>12} {:>8.0}\n",
                if facts.died { "yes" } else { "no" },
                facts.rounds,
                facts.seconds,
                count(Counter::Aged),
                began.elapsed().as_secs_f64(),
            ))?;
            rows.push(json!({
                "preset": name, "seed": seed, "killed": facts.died, "rounds": facts.rounds, "seconds": facts.seconds,
                "pgsteal": stolen, "workingset_refault_file": refaults, "aged": count(Counter::Aged), "efforts": efforts,
            }));
        }
    }
    output.document(&json!({"file_anon_mix": rows, "smaller": smaller, "rounds": rounds}))
}
