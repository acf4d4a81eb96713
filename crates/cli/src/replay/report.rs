//! What replays came to, as a table and as JSON.

use super::run::Outcome;
use crate::cache_report::{generation_json, mechanisms_json};
use crate::table::{Table, count};
use mglru_core::Counter;
use mglru_sim::Tally;
use serde_json::{Map, Value, json};

/// Tables are no wider.
const COLUMNS_MAX: usize = 100;
/// A trace's name is not cut shorter than this.
const NAME_MIN: usize = 12;

impl Outcome<'_> {
    /// From the access on from which counting started again.
    pub fn warm(&self) -> Tally {
        // A replay has at least one access, and the warm point is one of them.
        self.report.warm().unwrap_or_default()
    }

    /// Generations that were created.
    pub fn generations_created(&self) -> u64 {
        self.report.total().counters.get(Counter::Aged)
    }

    fn preset(&self) -> &'static str {
        self.plan.mechanisms.name()
    }

    fn accesses_per_second(&self) -> f64 {
        self.report.accesses() as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// What a reader should know about the numbers.
    pub fn notes(&self) -> Vec<String> {
        let total = self.report.total();
        let mut notes = Vec::new();
        let peak = self.report.tenants[1].peak_pages;
        if total.counters.pgsteal() == 0 && peak < self.plan.memory_pages {
            notes.push(format!(
                "memory is larger than the trace: {} of {} pages were ever used, every miss is a first touch",
                count(peak),
                count(self.plan.memory_pages)
            ));
        }
        if self.skipped > 0 {
            notes.push(format!("{} bad records were skipped", count(self.skipped)));
        }
        if total.counts.out_of_memory > 0 {
            notes.push(format!(
                "{} accesses found no page that could be freed, and failed: memory is too small for what is under way",
                count(total.counts.out_of_memory)
            ));
        }
        notes
    }

    fn json(&self) -> Value {
        let total = self.report.total();
        let warm = self.warm();
        let live: Vec<Value> = self.report.tenants[1].generations.iter().map(generation_json).collect();
        let mut document = json!({
            "trace": self.plan.trace.path().display().to_string(),
            "preset": self.preset(),
            "mechanisms": mechanisms_json(self.plan.mechanisms),
            "memory_pages": self.plan.memory_pages,
            "swap_pages": self.plan.swap.map_or(0, |swap| swap.pages),
            "swappiness": self.plan.swappiness.0,
            "accesses": total.counts.accesses,
            "hits": total.counts.hits,
            "misses": total.counts.misses,
            "miss_ratio": total.counts.miss_ratio(),
            "warm": {
                "from_access": self.plan.warm_from,
                "accesses": warm.counts.accesses,
                "hits": warm.counts.hits,
                "misses": warm.counts.misses,
                "miss_ratio": warm.counts.miss_ratio(),
                "counters": counters(&warm),
            },
            "zero_fills": total.counts.zero_fills,
            "counters": counters(&total),
            "generations": { "created": self.generations_created(), "live": live },
            "seconds": self.took.as_secs_f64(),
            "accesses_per_second": self.accesses_per_second().round() as u64,
        });
        let notes = self.notes();
        if !notes.is_empty() {
            document["notes"] = notes.into();
        }
        document
    }
}

/// By the kernel's names; `pgscan` and `pgsteal` are sums, as in memory.stat.
fn counters(tally: &Tally) -> Map<String, Value> {
    let sums = [("pgscan", tally.counters.pgscan()), ("pgsteal", tally.counters.pgsteal())];
    sums.into_iter()
        .chain(tally.counters.iter())
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

/// All replays as one document; with curves, those as well.
pub fn document(outcomes: &[Outcome], curves: &[Curve]) -> Value {
    let mut document = json!({ "runs": outcomes.iter().map(Outcome::json).collect::<Vec<_>>() });
    if !curves.is_empty() {
        document["curves"] = curves.iter().map(Curve::json).collect();
    }
    document
}

fn ratio(ratio: f64) -> String {
    format!("{:.2} %", ratio * 100.0)
}

/// The file's name, cut to `width`.
fn name(outcome: &Outcome, width: usize) -> String {
    let path = outcome.plan.trace.path();
    let name = path
        .file_name()
        .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    if name.chars().count() <= width {
        return name;
    }
    name.chars().take(width - 1).chain(['…']).collect()
}

/// A row per replay; for a single one also its counters and generations.
pub fn text(outcomes: &[Outcome]) -> String {
    let warm = outcomes.iter().any(|outcome| outcome.plan.warm_from > 0);
    let mut text = table(outcomes, warm, usize::MAX);
    let width = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    if width(&text) > COLUMNS_MAX {
        let longest =
            outcomes.iter().map(|outcome| name(outcome, usize::MAX).chars().count()).max().unwrap_or(0);
        let too_much = width(&text) - COLUMNS_MAX;
        text = table(outcomes, warm, longest.saturating_sub(too_much).max(NAME_MIN));
    }
    if let [outcome] = outcomes {
        text.push('\n');
        text.push_str(&counters_text(outcome));
        text.push('\n');
        text.push_str(&generations_text(outcome));
    }
    text.push_str(&notes_text(outcomes));
    text
}

fn table(outcomes: &[Outcome], warm: bool, name_width: usize) -> String {
    let counted = if warm { "counted" } else { "refaults" };
    let mut table = Table::new([
        "trace",
        "preset",
        "pages",
        "accesses",
        "misses",
        "miss ratio",
        counted,
        "generations",
        "M acc./s",
    ]);
    for outcome in outcomes {
        let total = outcome.report.total();
        let refaults = total.counters.get(Counter::WorkingsetRefaultFile);
        table.row([
            name(outcome, name_width),
            outcome.preset().to_owned(),
            count(outcome.plan.memory_pages),
            count(total.counts.accesses),
            count(total.counts.misses),
            ratio(total.counts.miss_ratio()),
            if warm { ratio(outcome.warm().counts.miss_ratio()) } else { count(refaults) },
            count(outcome.generations_created()),
            format!("{:.1}", outcome.accesses_per_second() / 1e6),
        ]);
    }
    table.text()
}

/// Counters that are not 0.
fn counters_text(outcome: &Outcome) -> String {
    let (total, warm) = (outcome.report.total(), outcome.warm());
    let from = format!("from access {}", count(outcome.plan.warm_from));
    let mut table = match outcome.plan.warm_from {
        0 => Table::new(["counter", "all"]),
        _ => Table::new(["counter", "all", &from]),
    };
    let sums = |tally: &Tally| [tally.counters.pgscan(), tally.counters.pgsteal()];
    let names =
        ["misses", "pgscan", "pgsteal"].into_iter().chain(total.counters.iter().map(|(name, _)| name));
    let values = |tally: &Tally| -> Vec<u64> {
        let first = [tally.counts.misses].into_iter().chain(sums(tally));
        first.chain(tally.counters.iter().map(|(_, value)| value)).collect()
    };
    for ((name, all), counted) in names.zip(values(&total)).zip(values(&warm)) {
        if all > 0 && outcome.plan.warm_from > 0 {
            table.row([name.to_owned(), count(all), count(counted)]);
        } else if all > 0 {
            table.row([name.to_owned(), count(all)]);
        }
    }
    table.text()
}

fn generations_text(outcome: &Outcome) -> String {
    let rows = &outcome.report.tenants[1].generations;
    let anon = rows.iter().any(|row| row.anon_pages > 0);
    let mut table = match anon {
        true => Table::new(["generation, oldest first", "age", "file pages", "anon pages"]),
        false => Table::new(["generation, oldest first", "age", "file pages"]),
    };
    for row in rows {
        let age = format!("{:.3} s", row.age_ms as f64 / 1000.0);
        let cells = [row.seq.to_string(), age, count(row.file_pages), count(row.anon_pages)];
        table.row(cells.into_iter().take(if anon { 4 } else { 3 }));
    }
    table.text()
}

/// Notes, each once, with the traces they are about.
pub fn notes_text(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        for note in outcome.notes() {
            let about = match outcomes.len() {
                1 => String::new(),
                _ => format!("{}, {}: ", name(outcome, usize::MAX), outcome.plan.memory),
            };
            text.push_str(&format!("\nnote: {about}{note}"));
        }
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// The miss ratio of one trace under one preset, by memory.
pub struct Curve {
    /// The trace.
    pub trace: String,
    /// The preset.
    pub preset: &'static str,
    /// In the order of `--curve`.
    pub points: Vec<Point>,
}

/// One point of a curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// As it was asked for.
    pub memory: String,
    /// In pages.
    pub memory_pages: u64,
    /// Of all accesses.
    pub miss_ratio: f64,
    /// Of the counted ones.
    pub warm_miss_ratio: f64,
}

impl Curve {
    /// The curves of replays that are sorted by trace, preset and memory.
    pub fn of(outcomes: &[Outcome], points: usize) -> Vec<Curve> {
        let curve = |outcomes: &[Outcome]| Curve {
            trace: outcomes[0].plan.trace.path().display().to_string(),
            preset: outcomes[0].preset(),
            points: outcomes.iter().map(Point::of).collect(),
        };
        outcomes.chunks(points).map(curve).collect()
    }

    /// Its name in a legend: the trace's file name, and the preset where there are several.
    pub fn name(&self, with_preset: bool) -> String {
        let name = self.trace.rsplit('/').next().unwrap_or(&self.trace);
        if with_preset { format!("{name}, {}", self.preset) } else { name.to_owned() }
    }

    fn json(&self) -> Value {
        let point = |point: &Point| {
            json!({
                "memory": point.memory,
                "memory_pages": point.memory_pages,
                "miss_ratio": point.miss_ratio,
                "warm_miss_ratio": point.warm_miss_ratio,
            })
        };
        json!({
            "trace": self.trace,
            "preset": self.preset,
            "points": self.points.iter().map(point).collect::<Vec<_>>(),
        })
    }
}

impl Point {
    fn of(outcome: &Outcome) -> Point {
        Point {
            memory: outcome.plan.memory.clone(),
            memory_pages: outcome.plan.memory_pages,
            miss_ratio: outcome.report.total().counts.miss_ratio(),
            warm_miss_ratio: outcome.warm().counts.miss_ratio(),
        }
    }
}

/// A table per curve.
pub fn curves_text(outcomes: &[Outcome], curves: &[Curve]) -> String {
    let mut text = String::new();
    for (curve, outcomes) in curves.iter().zip(outcomes.chunks(curves[0].points.len())) {
        text.push_str(&format!("{}, preset {}\n", curve.trace, curve.preset));
        let warm_from = outcomes[0].plan.warm_from;
        let counted = format!("from access {}", count(warm_from));
        let mut table = match warm_from {
            0 => Table::new(["memory", "pages", "misses", "miss ratio"]),
            _ => Table::new(["memory", "pages", "misses", "miss ratio", &counted]),
        };
        for (point, outcome) in curve.points.iter().zip(outcomes) {
            let mut cells = vec![
                point.memory.clone(),
                count(point.memory_pages),
                count(outcome.report.total().counts.misses),
                ratio(point.miss_ratio),
            ];
            if warm_from > 0 {
                cells.push(ratio(point.warm_miss_ratio));
            }
            table.row(cells);
        }
        text.push_str(&table.text());
        text.push('\n');
    }
    let notes = notes_text(outcomes);
    text.truncate(text.trim_end().len());
    text + "\n" + &notes
}
