//! The comparison as a table and as JSON.

use crate::table::{Table, count};
use mglru_lab::equal_memcgs::Rounds;
use mglru_lab::fidelity::load::Outcome;
use mglru_lab::fidelity::oom::{kernel_kills, kills};
use mglru_lab::fidelity::{Comparison, Skipped, memcg_reclaim, oom};
use mglru_lab::statistics::median;
use serde_json::{Value, json};

/// A row per count. The first row of a run has its setting, and the second its kernel.
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
        0 => format!("all {} counts are within their tolerance", comparisons.len()),
        _ => format!("{out} of {} counts are outside of their tolerance", comparisons.len()),
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

/// Number of skipped rows per reason.
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

/// A count as a whole number, or a mean with one decimal.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 { json!(value as u64) } else { json!((value * 10.0).round() / 10.0) }
}

/// Three decimals.
fn rounded(percent: f64) -> f64 {
    (percent * 1000.0).round() / 1000.0
}

/// The comparison as a document.
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

/// Rows of `memcg-reclaim.csv`.
pub fn memcg_reclaim(compared: &[memcg_reclaim::Compared]) -> String {
    let mut table = Table::new([
        "kernel, memcgs × pages, request",
        "stolen/asked",
        "ours",
        "stddev/mean",
        "ours",
        "median",
        "1st qu.",
        "ours",
        "scan/st.",
        "ours",
        "",
    ])
    .with_words_last();
    for one in compared {
        let [ratio, deviation] = one.figures();
        let percent = |value: f64| format!("{value:.1} %");
        let scan_per_steal =
            one.ours(|rounds| rounds.scanned_pages as f64 / rounds.stolen_pages.iter().sum::<u64>() as f64);
        table.row([
            one.name(),
            percent(ratio.kernel),
            percent(ratio.ours),
            percent(deviation.kernel),
            format!("{:.0}–{:.0} %", deviation.range.0, deviation.range.1),
            percent(deviation.ours),
            percent(one.row.first_quarter_percent),
            percent(one.ours(Rounds::first_quarter_percent)),
            format!("{:.1}", one.row.scan_per_steal),
            format!("{scan_per_steal:.1}"),
            ratio.place().max(deviation.place()).word().to_owned(),
        ]);
    }
    table.text()
}

/// Rows of `oom.csv`.
pub fn oom(compared: &[oom::Compared]) -> String {
    let mut table = Table::new([
        "case, kernel, limit, disk",
        "killed",
        "ours",
        "default",
        "after",
        "ours",
        "s",
        "ours",
        "peak dirty",
        "ours",
        "scanned",
        "ours",
        "",
    ])
    .with_words_last();
    for one in compared {
        let row = &one.rows[0];
        let of = |figure: fn(&Outcome) -> f64| median(&one.ours.iter().map(figure).collect::<Vec<f64>>());
        let ratio = |part: usize, all: usize| if all == 0 { "-".to_owned() } else { format!("{part}/{all}") };
        table.row([
            one.name(),
            ratio(kernel_kills(&one.rows), one.rows.len()),
            ratio(kills(&one.ours), one.ours.len()),
            ratio(kills(&one.default), one.default.len()),
            row.iterations.to_string(),
            format!("{:.0}", of(|outcome| outcome.iterations as f64)),
            format!("{:.2}", row.seconds),
            format!("{:.2}", of(|outcome| outcome.end.as_nanos() as f64 / 1e9)),
            row.peak_dirty_pages.map_or(String::new(), |pages| pages.to_string()),
            format!("{:.0}", of(|outcome| outcome.peak_dirty_pages as f64)),
            row.pgscan_file.to_string(),
            format!("{:.0}", of(|outcome| outcome.scanned_pages as f64)),
            (if one.within() { "" } else { "OUTSIDE" }).to_owned(),
        ]);
    }
    table.text()
}
