//! What replays came to, as values: a row per replay, and curves of them.

use super::baseline::BaselineOutcome;
use super::life::Life;
use super::run::Outcome;
use crate::mechanisms::{Settings, describe};
use crate::size::count;
use crate::timeline::Timeline;
use mglru_core::{Counter, Mechanisms};
use mglru_sim::{Counts, Tally};
use serde::{Serialize, Serializer};

/// One replay, by the engine or by another policy. Serialised, it is one of the `runs` of a
/// document.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The trace's path.
    pub trace: String,
    /// The policy that decided which page left.
    pub policy: &'static str,
    /// Of the engine: its preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<&'static str>,
    /// Of the engine: its mechanisms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanisms: Option<Settings>,
    /// Memory, as it was asked for.
    #[serde(skip)]
    pub memory: String,
    /// What that is.
    pub memory_pages: u64,
    /// Of the engine: pages of swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_pages: Option<u32>,
    /// Of the engine: how willing reclaim was to take anonymous pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swappiness: Option<u8>,
    /// All touches.
    #[serde(flatten)]
    pub total: Touches,
    /// Those that count.
    pub warm: Warm,
    /// What only the engine has.
    #[serde(flatten)]
    pub engine: Option<Engine>,
    /// How long the replay took.
    pub seconds: f64,
    /// How many accesses that is per second.
    pub accesses_per_second: u64,
    /// How it went over time, if that was noted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// The lives of pages that were asked about.
    #[serde(rename = "explain", skip_serializing_if = "Vec::is_empty")]
    pub lives: Vec<Life>,
    /// What a reader should know about the numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Touches of pages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Touches {
    /// All.
    pub accesses: u64,
    /// The page was there.
    pub hits: u64,
    /// It was not.
    pub misses: u64,
    /// Misses per access.
    pub miss_ratio: f64,
}

/// What happened from the access on from which counting started again.
#[derive(Debug, Clone, Serialize)]
pub struct Warm {
    /// That access.
    pub from_access: u64,
    /// Touches from there on.
    #[serde(flatten)]
    pub touches: Touches,
    /// Of the engine: counters, by the kernel's names.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_map")]
    pub counters: Option<Vec<(&'static str, u64)>>,
}

/// What only the engine counts.
#[derive(Debug, Clone, Serialize)]
pub struct Engine {
    /// Pages of anonymous memory that were made of zeroes.
    pub zero_fills: u64,
    /// By the kernel's names; `pgscan` and `pgsteal` are sums, as in memory.stat.
    #[serde(serialize_with = "map")]
    pub counters: Vec<(&'static str, u64)>,
    /// Of the multi-gen LRU.
    pub generations: Generations,
}

/// Generations.
#[derive(Debug, Clone, Serialize)]
pub struct Generations {
    /// So many were opened.
    pub created: u64,
    /// Those at the end, oldest first.
    pub live: Vec<GenerationRow>,
}

/// A generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GenerationRow {
    /// Its number.
    pub seq: u64,
    /// Time since it was opened.
    pub age_ms: u64,
    /// Anonymous pages.
    pub anon: u64,
    /// Pages of files.
    pub file: u64,
}

impl From<&mglru_core::lru::GenerationRow> for GenerationRow {
    fn from(row: &mglru_core::lru::GenerationRow) -> GenerationRow {
        GenerationRow { seq: row.seq, age_ms: row.age_ms, anon: row.anon_pages, file: row.file_pages }
    }
}

/// Pairs of a name and a value, as a map.
pub fn map<S: Serializer>(pairs: &[(&'static str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().copied())
}

fn some_map<S: Serializer>(
    pairs: &Option<Vec<(&'static str, u64)>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    map(pairs.as_deref().unwrap_or_default(), serializer)
}

impl From<Counts> for Touches {
    fn from(counts: Counts) -> Touches {
        let Counts { accesses, hits, misses, .. } = counts;
        Touches { accesses, hits, misses, miss_ratio: counts.miss_ratio() }
    }
}

fn counters(tally: &Tally) -> Vec<(&'static str, u64)> {
    let sums = [("pgscan", tally.counters.pgscan()), ("pgsteal", tally.counters.pgsteal())];
    sums.into_iter().chain(tally.counters.iter()).collect()
}

impl Row {
    /// The mechanisms of the engine.
    pub fn mechanisms(&self) -> Option<Mechanisms> {
        self.mechanisms.map(|settings| settings.0)
    }

    /// A counter of the engine, by the kernel's name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let counters = &self.engine.as_ref()?.counters;
        counters.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
    }

    /// Of a replay by the engine.
    pub fn of(outcome: Outcome<'_>) -> Row {
        let (all, warm, notes) = (outcome.report.total(), outcome.warm(), outcome.notes());
        let generations = Generations {
            created: outcome.generations_created(),
            live: outcome.report.tenants[1].generations.iter().map(GenerationRow::from).collect(),
        };
        let plan = outcome.plan;
        Row {
            preset: Some(plan.mechanisms.name()),
            mechanisms: Some(Settings(plan.mechanisms)),
            swap_pages: Some(plan.swap.map_or(0, |swap| swap.pages)),
            swappiness: Some(plan.swappiness.0),
            warm: Warm {
                from_access: plan.warm_from,
                touches: warm.counts.into(),
                counters: Some(counters(&warm)),
            },
            engine: Some(Engine { zero_fills: all.counts.zero_fills, counters: counters(&all), generations }),
            timeline: outcome.timeline,
            lives: outcome.lives,
            notes,
            ..Row::plain(
                plan.trace.path().display().to_string(),
                plan.mechanisms.lru().name(),
                (plan.memory, plan.memory_pages),
                all.counts,
                outcome.took.as_secs_f64(),
            )
        }
    }

    /// Of a replay by another policy.
    pub fn of_baseline(outcome: BaselineOutcome<'_>) -> Row {
        let plan = outcome.plan;
        let touches = outcome.report.warm.into();
        Row {
            warm: Warm { from_access: plan.warm_from, touches, counters: None },
            ..Row::plain(
                plan.trace.path().display().to_string(),
                plan.baseline.name(),
                (plan.memory, plan.memory_pages),
                outcome.report.total,
                outcome.took.as_secs_f64(),
            )
        }
    }

    fn plain(
        trace: String,
        policy: &'static str,
        (memory, memory_pages): (String, u64),
        total: Counts,
        seconds: f64,
    ) -> Row {
        let total = Touches::from(total);
        Row {
            trace,
            policy,
            preset: None,
            mechanisms: None,
            memory,
            memory_pages,
            swap_pages: None,
            swappiness: None,
            total,
            warm: Warm { from_access: 0, touches: total, counters: None },
            engine: None,
            seconds,
            accesses_per_second: (total.accesses as f64 / seconds.max(1e-9)).round() as u64,
            timeline: None,
            lives: Vec::new(),
            notes: Vec::new(),
        }
    }
}

impl Outcome<'_> {
    /// From the access on from which counting started again.
    pub fn warm(&self) -> Tally {
        // A replay has at least one access, and the warm point is one of them.
        self.report.warm().unwrap_or_default()
    }

    /// Generations that were opened.
    pub fn generations_created(&self) -> u64 {
        self.report.total().counters.get(Counter::Aged)
    }

    /// What a reader should know about the numbers.
    fn notes(&self) -> Vec<String> {
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
                "{} accesses found no page that could be freed, and failed: memory is too small for what is \
                 under way",
                count(total.counts.out_of_memory)
            ));
        }
        notes
    }
}

/// The miss ratio of one trace under one policy, by memory. Serialised, it is one of the `curves`
/// of a document.
#[derive(Debug, Clone, Serialize)]
pub struct Curve {
    /// The trace's path.
    pub trace: String,
    /// The policy that decided which page left.
    pub policy: &'static str,
    /// Of the engine: its preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<&'static str>,
    /// Of the engine: its mechanisms.
    #[serde(skip)]
    pub mechanisms: Option<Mechanisms>,
    /// The access from which the counted ones begin.
    #[serde(skip)]
    pub warm_from: u64,
    /// In the order in which the sizes were asked for.
    pub points: Vec<Point>,
}

/// One point of a curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Memory, as it was asked for.
    pub memory: String,
    /// In pages.
    pub memory_pages: u64,
    /// Of all accesses.
    #[serde(skip)]
    pub misses: u64,
    /// Of all accesses.
    pub miss_ratio: f64,
    /// Of the counted ones.
    pub warm_miss_ratio: f64,
}

impl Curve {
    /// The curves of rows that are sorted by trace, policy and memory, with so many points each.
    pub fn of(rows: &[Row], points: usize) -> Vec<Curve> {
        let curve = |rows: &[Row]| Curve {
            trace: rows[0].trace.clone(),
            policy: rows[0].policy,
            preset: rows[0].preset,
            mechanisms: rows[0].mechanisms(),
            warm_from: rows[0].warm.from_access,
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
        self.mechanisms.map_or_else(|| self.policy.to_owned(), describe)
    }
}

impl Point {
    fn of(row: &Row) -> Point {
        Point {
            memory: row.memory.clone(),
            memory_pages: row.memory_pages,
            misses: row.total.misses,
            miss_ratio: row.total.miss_ratio,
            warm_miss_ratio: row.warm.touches.miss_ratio,
        }
    }
}
