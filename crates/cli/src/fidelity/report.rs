//! The comparison as tables.

use crate::table::{Table, count, counted};
use mglru_lab::equal_memcgs::Rounds;
use mglru_lab::fidelity::counts::Compared;
use mglru_lab::fidelity::deltas::{Agreement, Delta, SIGN_MATTERS_PERCENT, SIZE_POINTS, SIZE_SHARE};
use mglru_lab::fidelity::load::LoadOutcome;
use mglru_lab::fidelity::oom::{kernel_kills, kills};
use mglru_lab::fidelity::stores::Rates;
use mglru_lab::fidelity::{Comparison, Setting, Skipped, memcg_reclaim, oom, stores, version_of};
use mglru_lab::statistics::median;

/// Wanted distance of a predicted capacity.
const CAPACITY_PERCENT: f64 = 1.0;

/// The comparison of a table of counts.
pub struct Counts<'a>(pub &'a Compared);

impl Counts<'_> {
    /// All tables, each with its verdict below.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n{}\n", self.table().text(), self.verdict());
        text += &skipped_text(&self.0.skipped);
        text += &format!("\nPages that the limit leaves\n{}\n", self.capacity_table().text());
        text += &format!("{}\n", self.capacity_verdict());
        if !self.0.deltas.is_empty() {
            text +=
                &format!("\nChange of all misses\n{}\n{}\n", self.delta_table().text(), self.delta_verdict());
        }
        text
    }

    /// How many counts are within their tolerance.
    pub fn verdict(&self) -> String {
        let comparisons = &self.0.comparisons;
        let out = comparisons.iter().filter(|comparison| !comparison.within()).count();
        match out {
            0 => format!("all {} counts are within their tolerance", comparisons.len()),
            _ => format!("{out} of {} counts are outside of their tolerance", comparisons.len()),
        }
    }

    /// A row per count. The first row of a run has its setting, and the second its kernel.
    pub fn table(&self) -> Table {
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
        for comparison in &self.0.comparisons {
            let setting = &comparison.setting;
            let run = (setting, comparison.limit_pages, comparison.kernel_runs);
            let is_new = previous.replace(run) != Some(run);
            let in_first = |text: String| if is_new { text } else { String::new() };
            let workload = match comparison.kernel_runs {
                1 => workload_name(setting),
                runs => format!("{}, mean of {runs}", workload_name(setting)),
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
        table
    }

    /// The capacity of each row, predicted and measured.
    pub fn capacity_table(&self) -> Table {
        let mut table = Table::new([
            "workload, kernel, policy",
            "limit",
            "index",
            "buffers",
            "tables",
            "predicted",
            "measured",
            "difference",
        ]);
        for one in &self.0.capacities {
            let (setting, predicted) = (&one.run.setting, one.predicted);
            let tag = if one.run.tag.is_empty() { String::new() } else { format!(" {}", one.run.tag) };
            table.row([
                format!(
                    "{} {} {}{tag}",
                    load_name(&setting.workload, &setting.swap),
                    setting.kernel,
                    setting.lru
                ),
                count(one.run.limit_pages),
                format!("{:.0}", predicted.index_pages),
                format!("{:.0}", predicted.buffer_head_pages),
                format!("{:.0}", predicted.page_tables),
                count(predicted.pages.round() as u64),
                count(one.run.capacity_pages.round() as u64),
                format!("{:+.2} %", one.difference_percent()),
            ]);
        }
        table
    }

    /// The largest distance of a predicted capacity.
    pub fn capacity_verdict(&self) -> String {
        let capacities = &self.0.capacities;
        let most = capacities.iter().map(|one| one.difference_percent().abs()).fold(0.0, f64::max);
        let within =
            capacities.iter().filter(|one| one.difference_percent().abs() <= CAPACITY_PERCENT).count();
        format!(
            "{within} of {} capacities are predicted within {CAPACITY_PERCENT} %; the largest difference is {most:.2} %",
            capacities.len()
        )
    }

    /// A row per change.
    pub fn delta_table(&self) -> Table {
        let headings = ["load", "from", "to", "kernel", "mglru", "apart", "verdict"];
        let mut table = Table::new(headings).with_words_last();
        for delta in &self.0.deltas {
            let (from, to) = sides(delta);
            table.row([
                delta_load(delta),
                from,
                to,
                format!("{:+.2} %", delta.kernel_percent),
                format!("{:+.2} %", delta.our_percent),
                format!("{:.2}", delta.apart()),
                delta_verdict(delta).to_owned(),
            ]);
        }
        table
    }

    /// How many changes agree in sign and size.
    pub fn delta_verdict(&self) -> String {
        let Agreement { deltas, signs, signs_agree, sizes_agree } = Agreement::of(&self.0.deltas);
        format!(
            "{signs_agree} of {signs} signs agree where the kernel's change exceeds {SIGN_MATTERS_PERCENT} %; \
             {sizes_agree} of {deltas} sizes are within {:.0} % or {SIZE_POINTS} points",
            100.0 * SIZE_SHARE
        )
    }
}

/// The workload, with what differs from one task without readahead.
fn workload_name(setting: &Setting) -> String {
    match setting.conditions().as_str() {
        "" => setting.workload.clone(),
        conditions => format!("{}, {conditions}", setting.workload),
    }
}

/// The load, with its swap and its limit where a table has several.
pub fn delta_load(delta: &Delta) -> String {
    let name = load_name(&delta.workload, &delta.swap);
    match delta.runs {
        1 => name,
        runs => format!("{name}, mean of {runs}"),
    }
}

fn load_name(workload: &str, swap: &str) -> String {
    if swap == "none" { workload.to_owned() } else { format!("{workload}, {swap}") }
}

/// Both sides of a change, in as few words as tell them apart.
pub fn sides(delta: &Delta) -> (String, String) {
    let policy = |lru: &str| if lru == "mglru" { "multi-gen" } else { "classic" };
    let (from, to) = (&delta.from, &delta.to);
    match from.kernel == to.kernel {
        true => (format!("{} {}", version_of(&from.kernel), policy(&from.lru)), policy(&to.lru).to_owned()),
        false => (format!("{} {}", version_of(&from.kernel), policy(&from.lru)), version_of(&to.kernel)),
    }
}

/// A word about a change.
pub fn delta_verdict(delta: &Delta) -> &'static str {
    match (delta.sign_agrees(), delta.size_agrees()) {
        (Some(false), _) => "OTHER SIGN",
        (_, false) => "OTHER SIZE",
        (Some(true), true) => "agrees",
        (None, true) => "small in both",
    }
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
        text.push_str(&format!("skipped {}: {reason}\n", counted(rows as u64, ["row", "rows"])));
    }
    text
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
        let of = |figure: fn(&LoadOutcome) -> f64| median(&one.ours.iter().map(figure).collect::<Vec<f64>>());
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

/// Rows of `stores.csv`, and the changes from kernel to kernel.
pub fn stores(compared: &[stores::Compared], changes: &[stores::Change]) -> String {
    let mut table = Table::new([
        "load, kernel",
        "runs",
        "stolen/op.",
        "ours",
        "range",
        "apart",
        "hits",
        "ours",
        "gen./100k",
        "ours",
        "",
    ])
    .with_words_last();
    for one in compared {
        let stolen = |rates: &Rates| rates.stolen;
        let (least, most) = one.our_range(stolen);
        table.row([
            one.name(),
            one.rows.len().to_string(),
            format!("{:.2}", one.kernel(stolen)),
            format!("{:.2}", one.ours(stolen)),
            format!("{least:.2}–{most:.2}"),
            format!("{:+.1} %", one.difference_percent()),
            format!("{:.1} %", one.kernel(Rates::hit_percent)),
            format!("{:.1} %", one.ours(Rates::hit_percent)),
            format!("{:.1}", one.kernel(|rates| rates.generations)),
            format!("{:.1}", one.ours(|rates| rates.generations)),
            if one.within() { "" } else { "OUTSIDE" }.to_owned(),
        ]);
    }
    let mut text = table.text();
    if !changes.is_empty() {
        let mut table = Table::new(["load, from", "to", "kernel", "ours"]);
        for change in changes {
            table.row([
                change.from.clone(),
                change.to.clone(),
                format!("{:+.1} %", change.kernel_percent),
                format!("{:+.1} %", change.our_percent),
            ]);
        }
        text += &format!("\nChange of stolen pages per operation\n{}", table.text());
    }
    text
}
