//! Results of replays as text and as JSON.

use super::explain;
use crate::table::{Table, count, wrapped};
use mglru_lab::mechanisms::{describe, other_policy};
use mglru_lab::replay::rows::{Curve, GenerationRow, ListRow, ReplayRow, Spread};
use serde_json::{Value, json};

/// Replays and curves as one document.
pub fn document(rows: &[ReplayRow], curves: &[Curve]) -> Value {
    match curves {
        [] => json!({ "runs": rows }),
        curves => json!({ "runs": rows, "curves": curves }),
    }
}

fn ratio(ratio: f64) -> String {
    format!("{:.2} %", ratio * 100.0)
}

/// The file name of a trace.
pub fn name(trace: &str) -> &str {
    trace.rsplit('/').next().unwrap_or(trace)
}

/// A row per replay; for a single one also its counters and lists.
pub fn text(rows: &[ReplayRow]) -> String {
    let mut text = table(rows).text();
    if rows.iter().any(|row| row.engine.is_some()) && rows.iter().any(|row| row.engine.is_none()) {
        text += &format!("{ENGINE} the engine; the others are baselines\n");
    }
    if let [row] = rows
        && row.engine.is_some()
    {
        text += &format!("\n{}", counters_table(row).text());
        if row.samples.is_none() {
            text += &format!("\n{}", lists_table(row).text());
        }
    }
    for life in rows.iter().flat_map(|row| &row.lives) {
        text += &format!("\n{}", explain::text(life));
    }
    text + &notes_text(rows)
}

/// A row per replay.
pub fn table(rows: &[ReplayRow]) -> Table {
    let warm = rows.iter().any(|row| row.warm.from_access > 0);
    let baselines = rows.iter().any(|row| row.engine.is_none());
    let salts = rows.iter().any(|row| row.samples.is_some());
    let headings = [
        "trace",
        if baselines { "policy" } else { "preset" },
        "pages",
        "accesses",
        "misses",
        "miss ratio",
        DEVIATION,
        if warm { "counted" } else { "refaults" },
        "generations",
        SPEED,
    ];
    // Samples run at the same time, so they have no speed.
    let left_out = if salts { SPEED } else { DEVIATION };
    let mut table = Table::with_headings(headings.into_iter().filter(|&heading| heading != left_out));
    for row in rows {
        let policy = match row.mechanisms() {
            Some(mechanisms) if baselines => format!("{ENGINE} {} {}", row.policy, describe(mechanisms)),
            Some(mechanisms) => match other_policy(mechanisms) {
                Some(policy) => format!("{policy} {}", describe(mechanisms)),
                None => describe(mechanisms),
            },
            None => row.policy.to_owned(),
        };
        // Baselines have neither refaults nor generations.
        let known = |number: Option<u64>| number.map_or("-".to_owned(), count);
        let cells = [
            name(&row.trace).to_owned(),
            policy,
            count(row.memory_pages),
            count(row.total.accesses),
            count(row.total.misses),
            ratio(row.total.miss_ratio),
            deviation(row.samples),
            match warm {
                true => ratio(row.warm.touches.miss_ratio),
                false => known(row.counter("workingset_refault_file")),
            },
            known(row.engine.as_ref().map(|engine| engine.generations.created)),
            format!("{:.1}", row.accesses_per_second as f64 / 1e6),
        ];
        let kept = cells.into_iter().zip(headings).filter(|&(_, heading)| heading != left_out);
        table.row(kept.map(|(cell, _)| cell));
    }
    table
}

const SPEED: &str = "M acc./s";

/// Marks the engine's rows among baselines.
const ENGINE: &str = "*";

/// Heading of the standard deviation of one sample, in points.
const DEVIATION: &str = "± points";

fn deviation(samples: Option<Spread>) -> String {
    samples.map_or("-".to_owned(), |spread| format!("{:.2}", spread.miss_ratio_deviation * 100.0))
}

/// Counters with a value above 0.
pub fn counters_table(row: &ReplayRow) -> Table {
    let from_access = row.warm.from_access;
    let from = format!("from access {}", count(from_access));
    let mut table = match from_access {
        0 => Table::new(["counter", "all"]),
        _ => Table::new(["counter", "all", &from]),
    };
    let counters = row.engine.iter().flat_map(|engine| &engine.counters).map(|&(_, value)| value);
    let counted = row.warm.counters.iter().flatten();
    let all = [row.total.misses].into_iter().chain(counters);
    let warm = [("misses", row.warm.touches.misses)].into_iter().chain(counted.copied());
    for (all, (name, counted)) in all.zip(warm).filter(|(all, _)| *all > 0) {
        match from_access {
            0 => table.row([name.to_owned(), count(all)]),
            _ => table.row([name.to_owned(), count(all), count(counted)]),
        }
    }
    table
}

/// The lists at the end: those of `ranked`, or the generations.
pub fn lists_table(row: &ReplayRow) -> Table {
    match &row.engine {
        Some(engine) if !engine.lists.is_empty() => ranked_table(&engine.lists),
        Some(engine) => generations_table(&engine.generations.live),
        None => generations_table(&[]),
    }
}

fn ranked_table(rows: &[ListRow]) -> Table {
    let columns = if rows.iter().any(|row| row.anon > 0) { 3 } else { 2 };
    let mut table = Table::with_headings(["list", "file pages", "anon pages"].into_iter().take(columns));
    for row in rows {
        table.row([row.name.to_owned(), count(row.file), count(row.anon)].into_iter().take(columns));
    }
    table
}

fn generations_table(rows: &[GenerationRow]) -> Table {
    let columns = if rows.iter().any(|row| row.anon > 0) { 4 } else { 3 };
    let headings = ["generation, oldest first", "age", "file pages", "anon pages"];
    let mut table = Table::with_headings(headings.into_iter().take(columns));
    for row in rows {
        let age = format!("{:.3} s", row.age_ms as f64 / 1000.0);
        let cells = [row.seq.to_string(), age, count(row.file), count(row.anon)];
        table.row(cells.into_iter().take(columns));
    }
    table
}

/// Notes, each with its trace if there are several rows.
pub fn notes_text(rows: &[ReplayRow]) -> String {
    let engines = rows.iter().filter(|row| row.engine.is_some()).count();
    let mut text = String::new();
    for row in rows {
        for note in &row.notes {
            let about = match engines {
                1 => String::new(),
                _ => format!("{}, {}: ", name(&row.trace), row.memory),
            };
            text.push_str(&wrapped(&format!("\nnote: {about}{note}")));
        }
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// The policy or the preset of a curve: `preset default`, `policy opt`, or both: `policy ranked,
/// preset linux-7.2`.
pub fn policy_label(curve: &Curve) -> String {
    match curve.mechanisms {
        None => format!("policy {}", curve.policy),
        Some(mechanisms) => {
            let policy =
                other_policy(mechanisms).map_or(String::new(), |policy| format!("policy {policy}, "));
            format!("{policy}preset {}", describe(mechanisms))
        }
    }
}

fn points_table(curve: &Curve) -> Table {
    let counted = format!("from access {}", count(curve.warm_from));
    let salts = curve.points.iter().any(|point| point.samples.is_some());
    let mut headings = vec!["memory", "pages", "misses", "miss ratio"];
    headings.extend(salts.then_some(DEVIATION));
    headings.extend((curve.warm_from > 0).then_some(counted.as_str()));
    let mut table = Table::with_headings(headings);
    for point in &curve.points {
        let mut cells = vec![
            point.memory.clone(),
            count(point.memory_pages),
            count(point.misses),
            ratio(point.miss_ratio),
        ];
        if salts {
            cells.push(deviation(point.samples));
        }
        if curve.warm_from > 0 {
            cells.push(ratio(point.warm_miss_ratio));
        }
        table.row(cells);
    }
    table
}

/// A table per curve.
pub fn curves_text(rows: &[ReplayRow], curves: &[Curve]) -> String {
    let mut text = String::new();
    for curve in curves {
        let heading = wrapped(&format!("{}, {}", curve.trace, policy_label(curve)));
        text.push_str(&format!("{heading}\n{}\n", points_table(curve).text()));
    }
    let notes = notes_text(rows);
    text.truncate(text.trim_end().len());
    text + "\n" + &notes
}
