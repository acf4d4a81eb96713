//! What replays came to, as a table and as JSON.

use super::baseline::BaselineOutcome;
use super::explain::Life;
use super::run::Outcome;
use crate::cache_report::{generation_json, mechanisms_json, mechanisms_text};
use crate::table::{Table, count, wrapped};
use mglru_core::{Counter, Lru, Mechanisms};
use mglru_sim::{Counts, Tally};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Duration;

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
}

/// One replay: by the engine, or by another policy.
#[derive(Clone, Copy)]
pub enum Row<'a> {
    /// By the engine.
    Engine(&'a Outcome<'a>),
    /// By another policy.
    Baseline(&'a BaselineOutcome<'a>),
}

impl<'a> Row<'a> {
    /// All replays, trace by trace: the engine's first.
    pub fn all(outcomes: &'a [Outcome<'a>], baselines: &'a [BaselineOutcome<'a>]) -> Vec<Row<'a>> {
        let mut rows = Vec::new();
        let of_trace = |a: &Outcome, b: &Outcome| std::ptr::eq(a.plan.trace, b.plan.trace);
        for outcomes in outcomes.chunk_by(of_trace) {
            rows.extend(outcomes.iter().map(Row::Engine));
            let same = |other: &&BaselineOutcome| std::ptr::eq(other.plan.trace, outcomes[0].plan.trace);
            rows.extend(baselines.iter().filter(same).map(Row::Baseline));
        }
        rows
    }

    fn trace(&self) -> &'a Path {
        match self {
            Row::Engine(outcome) => outcome.plan.trace.path(),
            Row::Baseline(outcome) => outcome.plan.trace.path(),
        }
    }

    fn mechanisms(&self) -> Option<Mechanisms> {
        match self {
            Row::Engine(outcome) => Some(outcome.plan.mechanisms),
            Row::Baseline(_) => None,
        }
    }

    /// Who decided which page left.
    fn policy(&self) -> String {
        match self {
            Row::Engine(outcome) => outcome.plan.mechanisms.lru().name().to_owned(),
            Row::Baseline(outcome) => outcome.plan.baseline.name().to_owned(),
        }
    }

    fn memory(&self) -> (&'a str, u64) {
        match self {
            Row::Engine(outcome) => (&outcome.plan.memory, outcome.plan.memory_pages),
            Row::Baseline(outcome) => (&outcome.plan.memory, outcome.plan.memory_pages),
        }
    }

    fn warm_from(&self) -> u64 {
        match self {
            Row::Engine(outcome) => outcome.plan.warm_from,
            Row::Baseline(outcome) => outcome.plan.warm_from,
        }
    }

    fn total(&self) -> Counts {
        match self {
            Row::Engine(outcome) => outcome.report.total().counts,
            Row::Baseline(outcome) => outcome.report.total,
        }
    }

    fn warm(&self) -> Counts {
        match self {
            Row::Engine(outcome) => outcome.warm().counts,
            Row::Baseline(outcome) => outcome.report.warm,
        }
    }

    fn took(&self) -> Duration {
        match self {
            Row::Engine(outcome) => outcome.took,
            Row::Baseline(outcome) => outcome.took,
        }
    }

    fn accesses_per_second(&self) -> f64 {
        self.total().accesses as f64 / self.took().as_secs_f64().max(1e-9)
    }

    /// What all replays have; of the engine's also what only they have.
    fn json(&self) -> Value {
        let (total, warm) = (self.total(), self.warm());
        let mut document = json!({ "trace": self.trace().display().to_string(), "policy": self.policy() });
        if let Row::Engine(outcome) = self {
            document["preset"] = outcome.plan.mechanisms.name().into();
            document["mechanisms"] = mechanisms_json(outcome.plan.mechanisms).into();
        }
        document["memory_pages"] = self.memory().1.into();
        if let Row::Engine(outcome) = self {
            document["swap_pages"] = outcome.plan.swap.map_or(0, |swap| swap.pages).into();
            document["swappiness"] = outcome.plan.swappiness.0.into();
        }
        for (name, value) in counts_json(&total) {
            document[name] = value;
        }
        let mut since = Map::new();
        since.insert("from_access".to_owned(), self.warm_from().into());
        since.extend(counts_json(&warm).map(|(name, value)| (name.to_owned(), value)));
        document["warm"] = since.into();
        if let Row::Engine(outcome) = self {
            let all = outcome.report.total();
            let live = outcome.report.tenants[1].generations.iter().map(generation_json);
            document["warm"]["counters"] = counters(&outcome.warm()).into();
            document["zero_fills"] = total.zero_fills.into();
            document["counters"] = counters(&all).into();
            document["generations"] =
                json!({ "created": outcome.generations_created(), "live": live.collect::<Vec<_>>() });
        }
        document["seconds"] = self.took().as_secs_f64().into();
        document["accesses_per_second"] = (self.accesses_per_second().round() as u64).into();
        if let Row::Engine(outcome) = self
            && let Some(timeline) = &outcome.timeline
        {
            document["timeline"] = json!(timeline);
        }
        if let Row::Engine(outcome) = self
            && !outcome.lives.is_empty()
        {
            document["explain"] = outcome.lives.iter().map(Life::json).collect();
        }
        if let Row::Engine(outcome) = self
            && let notes = outcome.notes()
            && !notes.is_empty()
        {
            document["notes"] = notes.into();
        }
        document
    }
}

fn counts_json(counts: &Counts) -> [(&'static str, Value); 4] {
    [
        ("accesses", counts.accesses.into()),
        ("hits", counts.hits.into()),
        ("misses", counts.misses.into()),
        ("miss_ratio", counts.miss_ratio().into()),
    ]
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
pub fn document(rows: &[Row], curves: &[Curve]) -> Value {
    let mut document = json!({ "runs": rows.iter().map(Row::json).collect::<Vec<_>>() });
    if !curves.is_empty() {
        document["curves"] = curves.iter().map(Curve::json).collect();
    }
    document
}

fn ratio(ratio: f64) -> String {
    format!("{:.2} %", ratio * 100.0)
}

/// The file's name.
pub fn name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// A row per replay; for a single one also its counters and generations.
pub fn text(outcomes: &[Outcome], rows: &[Row]) -> String {
    let mut text = table(rows).text();
    if let [Row::Engine(outcome)] = rows {
        text.push('\n');
        text.push_str(&counters_table(outcome).text());
        text.push('\n');
        text.push_str(&generations_table(outcome).text());
    }
    for life in outcomes.iter().flat_map(|outcome| &outcome.lives) {
        text.push('\n');
        text.push_str(&life.text());
    }
    text.push_str(&notes_text(outcomes));
    text
}

/// A row per replay.
pub fn table(rows: &[Row]) -> Table {
    let warm = rows.iter().any(|row| row.warm_from() > 0);
    let baselines = rows.iter().any(|row| row.mechanisms().is_none());
    let mut table = Table::new([
        "trace",
        if baselines { "policy" } else { "preset" },
        "pages",
        "accesses",
        "misses",
        "miss ratio",
        if warm { "counted" } else { "refaults" },
        "generations",
        "M acc./s",
    ]);
    for row in rows {
        let total = row.total();
        let policy = match row.mechanisms() {
            Some(mechanisms) if baselines || mechanisms.lru() == Lru::Classic => {
                format!("{} {}", row.policy(), mechanisms_text(mechanisms))
            }
            Some(mechanisms) => mechanisms_text(mechanisms),
            None => row.policy(),
        };
        // Other policies know neither refaults nor generations.
        let (refaults, generations) = match row {
            Row::Engine(outcome) => {
                let refaults = outcome.report.total().counters.get(Counter::WorkingsetRefaultFile);
                (count(refaults), count(outcome.generations_created()))
            }
            Row::Baseline(_) => ("-".to_owned(), "-".to_owned()),
        };
        table.row([
            name(row.trace()),
            policy,
            count(row.memory().1),
            count(total.accesses),
            count(total.misses),
            ratio(total.miss_ratio()),
            if warm { ratio(row.warm().miss_ratio()) } else { refaults },
            generations,
            format!("{:.1}", row.accesses_per_second() / 1e6),
        ]);
    }
    table
}

/// Counters that are not 0.
pub fn counters_table(outcome: &Outcome) -> Table {
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
    table
}

/// The generations at the end.
pub fn generations_table(outcome: &Outcome) -> Table {
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
    table
}

/// Notes, each once, with the traces they are about.
pub fn notes_text(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        for note in outcome.notes() {
            let about = match outcomes.len() {
                1 => String::new(),
                _ => format!("{}, {}: ", name(outcome.plan.trace.path()), outcome.plan.memory),
            };
            text.push_str(&wrapped(&format!("\nnote: {about}{note}")));
        }
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// The miss ratio of one trace under one policy, by memory.
pub struct Curve {
    /// The trace.
    pub trace: String,
    /// Who decides which page leaves.
    pub policy: String,
    /// Those of the engine's.
    pub mechanisms: Option<Mechanisms>,
    /// The access from which the counted ones begin.
    pub warm_from: u64,
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
    pub misses: u64,
    /// Of all accesses.
    pub miss_ratio: f64,
    /// Of the counted ones.
    pub warm_miss_ratio: f64,
}

impl Curve {
    /// The curves of replays that are sorted by trace, policy and memory.
    pub fn of(rows: &[Row], points: usize) -> Vec<Curve> {
        let curve = |rows: &[Row]| Curve {
            trace: rows[0].trace().display().to_string(),
            policy: rows[0].policy(),
            mechanisms: rows[0].mechanisms(),
            warm_from: rows[0].warm_from(),
            points: rows.iter().map(Point::of).collect(),
        };
        rows.chunks(points).map(curve).collect()
    }

    /// Its name in a legend: the trace's file name, and the policy where there are several.
    pub fn name(&self, with_policy: bool) -> String {
        let name = self.trace.rsplit('/').next().unwrap_or(&self.trace);
        if with_policy { format!("{name}, {}", self.preset_or_policy()) } else { name.to_owned() }
    }

    /// What tells it from the other curves of its trace.
    pub fn preset_or_policy(&self) -> String {
        self.mechanisms.map_or_else(|| self.policy.clone(), mechanisms_text)
    }

    /// Who decides, in words.
    pub fn who(&self) -> String {
        match self.mechanisms {
            Some(mechanisms) => format!("preset {}", mechanisms_text(mechanisms)),
            None => format!("policy {}", self.policy),
        }
    }

    /// Its points.
    pub fn table(&self) -> Table {
        let counted = format!("from access {}", count(self.warm_from));
        let mut table = match self.warm_from {
            0 => Table::new(["memory", "pages", "misses", "miss ratio"]),
            _ => Table::new(["memory", "pages", "misses", "miss ratio", &counted]),
        };
        for point in &self.points {
            let mut cells = vec![
                point.memory.clone(),
                count(point.memory_pages),
                count(point.misses),
                ratio(point.miss_ratio),
            ];
            if self.warm_from > 0 {
                cells.push(ratio(point.warm_miss_ratio));
            }
            table.row(cells);
        }
        table
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
        let mut document = json!({ "trace": self.trace, "policy": self.policy });
        if let Some(mechanisms) = self.mechanisms {
            document["preset"] = mechanisms.name().into();
        }
        document["points"] = self.points.iter().map(point).collect();
        document
    }
}

impl Point {
    fn of(row: &Row) -> Point {
        let (memory, memory_pages) = row.memory();
        let total = row.total();
        Point {
            memory: memory.to_owned(),
            memory_pages,
            misses: total.misses,
            miss_ratio: total.miss_ratio(),
            warm_miss_ratio: row.warm().miss_ratio(),
        }
    }
}

/// A table per curve.
pub fn curves_text(outcomes: &[Outcome], curves: &[Curve]) -> String {
    let mut text = String::new();
    for curve in curves {
        let heading = wrapped(&format!("{}, {}", curve.trace, curve.who()));
        text.push_str(&format!("{heading}\n{}\n", curve.table().text()));
    }
    let notes = notes_text(outcomes);
    text.truncate(text.trim_end().len());
    text + "\n" + &notes
}
