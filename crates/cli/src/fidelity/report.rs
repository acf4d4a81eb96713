//! The comparison as a table and as JSON.

use super::compare::Comparison;
use super::kernel_run::Skipped;
use crate::table::{Table, count};
use serde_json::{Value, json};

/// A row per number; what all rows of a run share stands in the first, and the kernel in the second.
pub fn text(comparisons: &[Comparison], skipped: &[Skipped]) -> String {
    let mut table = Table::new([
        "workload",
        "limit",
        "memory",
        "counter",
        "kernel",
        "mglru",
        "difference",
        "allowed",
        "",
    ]);
    let mut previous = None;
    let mut kernel = "";
    for comparison in comparisons {
        let setting = &comparison.setting;
        let run = (setting, comparison.limit_pages, comparison.kernel_runs);
        let is_new = previous.replace(run) != Some(run);
        let in_first = |text: String| if is_new { text } else { String::new() };
        let workload = match comparison.kernel_runs {
            1 => setting.workload.clone(),
            runs => format!("{}, mean of {runs}", setting.workload),
        };
        let name = if is_new { workload } else { std::mem::take(&mut kernel).to_owned() };
        if is_new {
            kernel = &setting.kernel;
        }
        table.row([
            name,
            in_first(count(comparison.limit_pages)),
            in_first(count(comparison.memory_pages)),
            comparison.measure.name().to_owned(),
            count(comparison.kernel.round() as u64),
            count(comparison.ours.round() as u64),
            comparison.difference_percent().map_or("-".to_owned(), |percent| format!("{percent:+.2} %")),
            allowed(comparison),
            if comparison.within() { "" } else { "OUT" }.to_owned(),
        ]);
    }
    let out = comparisons.iter().filter(|comparison| !comparison.within()).count();
    let verdict = match out {
        0 => format!("all {} counts are within what is allowed", comparisons.len()),
        _ => format!("{out} of {} counts are outside of what is allowed", comparisons.len()),
    };
    format!("{}\n{verdict}\n{}", table.text(), skipped_text(skipped))
}

fn allowed(comparison: &Comparison) -> String {
    let tolerance = comparison.tolerance;
    match tolerance.count > comparison.kernel * tolerance.percent / 100.0 || comparison.kernel == 0.0 {
        true => format!("± {}", tolerance.count),
        false => format!("{:.1} %", tolerance.percent),
    }
}

/// Rows per reason.
fn skipped_text(skipped: &[Skipped]) -> String {
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for row in skipped {
        match reasons.iter_mut().find(|(reason, _)| *reason == row.reason) {
            Some((_, rows)) => *rows += 1,
            None => reasons.push((&row.reason, 1)),
        }
    }
    let mut text = String::new();
    for (reason, rows) in reasons {
        let rows = if rows == 1 { "1 row".to_owned() } else { format!("{rows} rows") };
        text.push_str(&format!("skipped {rows}: {reason}\n"));
    }
    text
}

/// A count is a whole number, a mean may not be.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 { json!(value as u64) } else { json!((value * 10.0).round() / 10.0) }
}

/// Two decimals more than tolerances have.
fn rounded(percent: f64) -> f64 {
    (percent * 1000.0).round() / 1000.0
}

/// The same numbers as one document.
pub fn document(comparisons: &[Comparison], skipped: &[Skipped]) -> Value {
    let row = |comparison: &Comparison| {
        json!({
            "workload": comparison.setting.workload,
            "kernel": comparison.setting.kernel,
            "lru": comparison.setting.lru,
            "limit_pages": comparison.limit_pages,
            "memory_pages": comparison.memory_pages,
            "counter": comparison.measure.name(),
            "kernel_count": number(comparison.kernel),
            "our_count": number(comparison.ours),
            "difference_percent": comparison.difference_percent().map(rounded),
            "tolerance_percent": comparison.tolerance.percent_of(comparison.kernel).map(rounded),
            "within": comparison.within(),
            "kernel_runs": comparison.kernel_runs,
            "our_runs": comparison.our_runs,
        })
    };
    let skip = |row: &Skipped| {
        json!({
            "workload": row.setting.workload,
            "kernel": row.setting.kernel,
            "lru": row.setting.lru,
            "swap": row.setting.swap,
            "limit_pages": row.limit_pages,
            "tag": row.tag,
            "reason": row.reason,
        })
    };
    json!({
        "rows": comparisons.iter().map(row).collect::<Vec<_>>(),
        "skipped": skipped.iter().map(skip).collect::<Vec<_>>(),
    })
}
