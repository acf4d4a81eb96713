//! Results of replays: a row per replay, and curves of them.

use super::baseline::BaselineOutcome;
use super::life::Life;
use super::run::ReplayOutcome;
use crate::document::Map;
use crate::mechanisms::Settings;
use crate::size::count;
use crate::statistics::{deviation, mean};
use crate::timeline::Timeline;
use crate::trace_file::TraceFile;
use mglru_core::{Counter, Lru, Mechanisms};
use mglru_sim::{Counts, Tally};
use serde::{Serialize, Serializer};

/// Result of one replay, by the engine or by another policy. It serialises to an element of `runs`
/// in JSON documents.
#[derive(Debug, Clone, Serialize)]
pub struct ReplayRow {
    /// Path of the trace.
    pub trace: String,
    /// Name of the policy.
    pub policy: &'static str,
    /// Preset of the engine; `None` for other policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<&'static str>,
    /// Mechanisms of the engine; `None` for other policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mechanisms: Option<Settings>,
    /// Memory as requested.
    #[serde(skip)]
    pub memory: String,
    /// Memory in pages.
    pub memory_pages: u64,
    /// Swap of the engine, in pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_pages: Option<u32>,
    /// Swappiness of the engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swappiness: Option<u8>,
    /// All touches.
    #[serde(flatten)]
    pub total: Touches,
    /// Counts since counting restarted.
    pub warm: Warm,
    /// Values that only the engine has.
    #[serde(flatten)]
    pub engine: Option<Engine>,
    /// Duration of the replay in seconds.
    pub seconds: f64,
    /// Replay speed in accesses per second.
    pub accesses_per_second: u64,
    /// Timeline, if recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// Lives of the requested pages.
    #[serde(rename = "explain", skip_serializing_if = "Vec::is_empty")]
    pub lives: Vec<Life>,
    /// Remarks that the reader needs to interpret the numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Where a sample was replayed. The remark on it is the last one.
    #[serde(skip)]
    sample: Option<SampleMemory>,
    /// The spread of several samples, whose means the counts are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<Spread>,
}

/// A sample and its memory.
#[derive(Debug, Clone, Copy, PartialEq)]
struct SampleMemory {
    /// Share of the pages, in percent.
    percent: f64,
    /// Its part of the memory, in pages.
    pages: u64,
}

/// Counters by the kernel's names.
pub type Counters = Vec<(&'static str, u64)>;

/// The spread of samples that have different salts. A deviation is the standard deviation of one
/// sample, estimated from all; the mean of *n* deviates by a root of *n* less.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Number of samples.
    pub salts: u32,
    /// Deviation of the miss ratio over all accesses.
    pub miss_ratio_deviation: f64,
    /// Deviation of the miss ratio since counting restarted.
    pub warm_miss_ratio_deviation: f64,
}

/// Counts of page touches.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Touches {
    /// All touches.
    pub accesses: u64,
    /// Touches of cached pages.
    pub hits: u64,
    /// Touches of other pages.
    pub misses: u64,
    /// Misses per access.
    pub miss_ratio: f64,
}

/// Counts since counting restarted.
#[derive(Debug, Clone, Serialize)]
pub struct Warm {
    /// The access at which counting restarted.
    pub from_access: u64,
    /// Touches since then.
    #[serde(flatten)]
    pub touches: Touches,
    /// Counters of the engine, by the kernel's names.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "some_map")]
    pub counters: Option<Counters>,
}

/// Values that only the engine has.
#[derive(Debug, Clone, Serialize)]
pub struct Engine {
    /// Anonymous pages that were filled with zeroes.
    pub zero_fills: u64,
    /// Counters by the kernel's names; `pgscan` and `pgsteal` are sums, as in memory.stat.
    #[serde(serialize_with = "map")]
    pub counters: Counters,
    /// Generations of the multi-gen LRU.
    pub generations: Generations,
    /// Lists of the policy `ranked` at the end: newcomers, then the main list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<ListRow>,
}

/// Sizes of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ListRow {
    /// `newcomers` or `main`.
    pub name: &'static str,
    /// Anonymous pages.
    pub anon: u64,
    /// File pages.
    pub file: u64,
}

impl From<&mglru_core::lru::ListRow> for ListRow {
    fn from(row: &mglru_core::lru::ListRow) -> ListRow {
        ListRow { name: row.name, anon: row.anon_pages, file: row.file_pages }
    }
}

/// Generations of the multi-gen LRU.
#[derive(Debug, Clone, Serialize)]
pub struct Generations {
    /// Number of created generations.
    pub created: u64,
    /// Generations at the end, oldest first.
    pub live: Vec<GenerationRow>,
}

/// Sizes of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GenerationRow {
    /// Sequence number.
    pub seq: u64,
    /// Age in milliseconds.
    pub age_ms: u64,
    /// Anonymous pages.
    pub anon: u64,
    /// File pages.
    pub file: u64,
}

impl From<&mglru_core::lru::GenerationRow> for GenerationRow {
    fn from(row: &mglru_core::lru::GenerationRow) -> GenerationRow {
        GenerationRow { seq: row.seq, age_ms: row.age_ms, anon: row.anon_pages, file: row.file_pages }
    }
}

fn map<S: Serializer>(pairs: &[(&'static str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    Map(pairs).serialize(serializer)
}

fn some_map<S: Serializer>(pairs: &Option<Counters>, serializer: S) -> Result<S::Ok, S::Error> {
    map(pairs.as_deref().unwrap_or_default(), serializer)
}

impl From<Counts> for Touches {
    fn from(counts: Counts) -> Touches {
        let Counts { accesses, hits, misses, .. } = counts;
        Touches { accesses, hits, misses, miss_ratio: counts.miss_ratio() }
    }
}

impl Touches {
    /// The counts of a trace or of its sample. Those of a sample have as many accesses as average
    /// pages would have; the difference is hits of pages that are always in memory.
    fn of(counts: Counts, all: &Counts, trace: &TraceFile) -> Touches {
        let Some(sampled) = trace.sampled() else { return counts.into() };
        let expected = sampled.expected(sampled.accesses) as f64;
        let part = counts.accesses as f64 / all.accesses.max(1) as f64;
        let (accesses, misses) = (((expected * part).round() as u64).max(counts.misses), counts.misses);
        Touches {
            accesses,
            hits: accesses - misses,
            misses,
            miss_ratio: misses as f64 / accesses.max(1) as f64,
        }
    }
}

/// Memory of a row in pages: that of the whole trace, also if a sample was replayed.
fn whole_pages(trace: &TraceFile, pages: u64) -> u64 {
    trace.sampled().map_or(pages, |sampled| sampled.sample.whole(pages))
}

/// Pages of memory with which a sample's ratios were within two points in most of the measured
/// cases ([book: python#samples-of-long-traces]).
const SAMPLED_PAGES_ENOUGH: u64 = 1000;

impl SampleMemory {
    /// The sample, if the trace is one.
    fn of(trace: &TraceFile, memory_pages: u64) -> Option<SampleMemory> {
        // 0.07 × 100 is 7.000000000000001.
        let percent = (trace.sampled()?.sample.share() * 1e8).round() / 1e6;
        Some(SampleMemory { percent, pages: memory_pages })
    }

    fn is_small(self) -> bool {
        self.pages < SAMPLED_PAGES_ENOUGH
    }

    /// The way to an estimate in a memory that is not small.
    fn advice(self) -> String {
        let enough = self.percent * SAMPLED_PAGES_ENOUGH as f64 / self.pages.max(1) as f64;
        match enough {
            ..1.0 => format!("choose a sample of {} %", (enough * 100.0).ceil() / 100.0),
            1.0..100.0 => format!("choose a sample of {} %", enough.ceil()),
            _ => "replay the whole trace".to_owned(),
        }
    }

    /// Remark on the sample.
    fn note(self) -> String {
        let (percent, pages) = (self.percent, count(self.pages));
        let what = format!("a sample of {percent} % of the pages was replayed in");
        match self.is_small() {
            false => format!("{what} {pages} pages of memory: ratios are estimates"),
            true => format!(
                "{what} only {pages} pages of memory: ratios are estimates, and may be several points off; {}, or \
                 compare samples with other salts",
                self.advice()
            ),
        }
    }

    /// Remark on the mean of several.
    fn note_of_mean(self, Spread { salts, miss_ratio_deviation, .. }: Spread) -> String {
        let (percent, pages) = (self.percent, count(self.pages));
        let (one, mean) =
            (miss_ratio_deviation * 100.0, miss_ratio_deviation * 100.0 / f64::from(salts).sqrt());
        let small = match self.is_small() {
            false => String::new(),
            true => format!("; so small a memory may also shift it: {}", self.advice()),
        };
        format!(
            "the means of {salts} samples of {percent} % of the pages, each in {pages} pages of memory: one deviates by \
             {one:.2} points, their mean by {mean:.2}{small}"
        )
    }
}

fn counters(tally: &Tally) -> Counters {
    let sums = [("pgscan", tally.counters.pgscan()), ("pgsteal", tally.counters.pgsteal())];
    sums.into_iter().chain(tally.counters.iter()).collect()
}

impl ReplayRow {
    /// Mechanisms of the engine.
    pub fn mechanisms(&self) -> Option<Mechanisms> {
        self.mechanisms.map(|settings| settings.0)
    }

    /// A counter of the engine, by the kernel's name.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let counters = &self.engine.as_ref()?.counters;
        counters.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
    }

    /// The row of a replay by the engine.
    pub fn of(outcome: ReplayOutcome<'_>) -> ReplayRow {
        let (all, warm, mut notes) = (outcome.report.total(), outcome.warm(), outcome.notes());
        let generations = Generations {
            created: outcome.generations_created(),
            live: outcome.report.tenants[1].generations.iter().map(GenerationRow::from).collect(),
        };
        let plan = outcome.plan;
        let lists = match plan.mechanisms.lru() {
            Lru::Ranked => outcome.report.tenants[1].lists.iter().map(ListRow::from).collect(),
            _ => Vec::new(),
        };
        let sample = SampleMemory::of(plan.trace, plan.memory_pages);
        notes.extend(sample.map(SampleMemory::note));
        ReplayRow {
            preset: Some(plan.mechanisms.name()),
            mechanisms: Some(Settings(plan.mechanisms)),
            swap_pages: Some(plan.swap.map_or(0, |swap| swap.pages)),
            swappiness: Some(plan.swappiness.get()),
            warm: Warm {
                from_access: plan.warm_from,
                touches: Touches::of(warm.counts, &all.counts, plan.trace),
                counters: Some(counters(&warm)),
            },
            engine: Some(Engine {
                zero_fills: all.counts.zero_fills,
                counters: counters(&all),
                generations,
                lists,
            }),
            timeline: outcome.timeline,
            lives: outcome.lives,
            notes,
            sample,
            ..ReplayRow::plain(
                plan.trace,
                plan.mechanisms.lru().name(),
                (plan.memory, plan.memory_pages),
                all.counts,
                outcome.took.as_secs_f64(),
            )
        }
    }

    /// The row of a replay by another policy.
    pub fn of_baseline(outcome: BaselineOutcome<'_>) -> ReplayRow {
        let plan = outcome.plan;
        let touches = Touches::of(outcome.report.warm, &outcome.report.total, plan.trace);
        let sample = SampleMemory::of(plan.trace, plan.memory_pages);
        ReplayRow {
            warm: Warm { from_access: plan.warm_from, touches, counters: None },
            notes: sample.map(SampleMemory::note).into_iter().collect(),
            sample,
            ..ReplayRow::plain(
                plan.trace,
                plan.baseline.name(),
                (plan.memory, plan.memory_pages),
                outcome.report.total,
                outcome.took.as_secs_f64(),
            )
        }
    }

    fn plain(
        trace: &TraceFile,
        policy: &'static str,
        (memory, memory_pages): (String, u64),
        total: Counts,
        seconds: f64,
    ) -> ReplayRow {
        let total = Touches::of(total, &total, trace);
        ReplayRow {
            trace: trace.path().display().to_string(),
            policy,
            preset: None,
            mechanisms: None,
            memory,
            memory_pages: whole_pages(trace, memory_pages),
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
            sample: None,
            samples: None,
        }
    }

    /// The means of at least two samples with different salts, and their spread. A mean has neither
    /// a timeline nor live generations; `seconds` are those of all samples together.
    fn mean(rows: &[&ReplayRow]) -> ReplayRow {
        let of = |count: &dyn Fn(&ReplayRow) -> u64| {
            let sum: u64 = rows.iter().map(|row| count(row)).sum();
            (sum as f64 / rows.len() as f64).round() as u64
        };
        let counters = |counters: &dyn Fn(&ReplayRow) -> Option<&Counters>| {
            let names = counters(rows[0])?.iter().enumerate();
            let mean = |(at, &(name, _)): (usize, &(&'static str, u64))| {
                (name, of(&|row| counters(row).map_or(0, |counters| counters[at].1)))
            };
            Some(names.map(mean).collect::<Counters>())
        };
        let (total, miss_ratio_deviation) = Touches::mean(rows, |row| row.total);
        let (warm, warm_miss_ratio_deviation) = Touches::mean(rows, |row| row.warm.touches);
        let samples = Spread { salts: rows.len() as u32, miss_ratio_deviation, warm_miss_ratio_deviation };
        let created = |row: &ReplayRow| row.engine.as_ref().map_or(0, |engine| engine.generations.created);
        let zero_fills = |row: &ReplayRow| row.engine.as_ref().map_or(0, |engine| engine.zero_fills);
        let engine =
            counters(&|row| row.engine.as_ref().map(|engine| &engine.counters)).map(|counters| Engine {
                zero_fills: of(&zero_fills),
                counters,
                generations: Generations { created: of(&created), live: Vec::new() },
                lists: Vec::new(),
            });
        let seconds: f64 = rows.iter().map(|row| row.seconds).sum();
        let accesses: u64 = rows.iter().map(|row| row.total.accesses).sum();
        let mut notes = remarks_of(rows);
        notes.extend(rows[0].sample.map(|sample| sample.note_of_mean(samples)));
        ReplayRow {
            memory_pages: of(&|row| row.memory_pages),
            total,
            warm: Warm {
                from_access: of(&|row| row.warm.from_access),
                touches: warm,
                counters: counters(&|row| row.warm.counters.as_ref()),
            },
            engine,
            seconds,
            accesses_per_second: (accesses as f64 / seconds.max(1e-9)).round() as u64,
            timeline: None,
            notes,
            samples: Some(samples),
            ..rows[0].clone()
        }
    }
}

/// The remarks of all samples, but for those on the samples themselves. One that only some samples
/// have, or that says something else of each, says of which.
fn remarks_of(rows: &[&ReplayRow]) -> Vec<String> {
    let mut samples_of: Vec<(&str, Vec<usize>)> = Vec::new();
    for (sample, row) in (1..).zip(rows) {
        // The last one is on the sample.
        let own = row.notes.len() - usize::from(row.sample.is_some());
        for note in &row.notes[..own] {
            match samples_of.iter_mut().find(|(known, _)| known == note) {
                Some((_, samples)) => samples.push(sample),
                None => samples_of.push((note, vec![sample])),
            }
        }
    }
    let remark = |(note, samples): (&str, Vec<usize>)| match &samples[..] {
        all if all.len() == rows.len() => note.to_owned(),
        [one] => format!("sample {one} of {}: {note}", rows.len()),
        some => {
            let numbers: Vec<String> = some.iter().map(ToString::to_string).collect();
            format!("samples {} of {}: {note}", numbers.join(", "), rows.len())
        }
    };
    samples_of.into_iter().map(remark).collect()
}

/// The means of samples. `rows` are those of traces with `salts` adjacent samples each, every
/// sample with as many rows in the same order; so are the means, with one sample per trace. Without
/// a trace there are none.
pub fn means(rows: &[ReplayRow], salts: usize, rows_per_sample: usize) -> Vec<ReplayRow> {
    let of_trace = |rows: &[ReplayRow]| -> Vec<ReplayRow> {
        let place = |at: usize| rows[at..].iter().step_by(rows_per_sample).collect::<Vec<&ReplayRow>>();
        (0..rows_per_sample).map(|at| ReplayRow::mean(&place(at))).collect()
    };
    rows.chunks((salts * rows_per_sample).max(1)).flat_map(of_trace).collect()
}

impl Touches {
    /// The means of counts and of miss ratios, and the deviation of these.
    fn mean(rows: &[&ReplayRow], touches: impl Fn(&ReplayRow) -> Touches) -> (Touches, f64) {
        let of = |value: fn(Touches) -> f64| rows.iter().map(|row| value(touches(row))).collect::<Vec<f64>>();
        let ratios = of(|touches| touches.miss_ratio);
        let accesses = mean(&of(|touches| touches.accesses as f64)).round() as u64;
        let misses = mean(&of(|touches| touches.misses as f64)).round() as u64;
        let hits = accesses.saturating_sub(misses);
        (Touches { accesses, hits, misses, miss_ratio: mean(&ratios) }, deviation(&ratios))
    }
}

impl ReplayOutcome<'_> {
    /// Counts since counting restarted.
    pub fn warm(&self) -> Tally {
        // A replay has at least one access, and the warm point is one of them.
        self.report.warm().unwrap_or_default()
    }

    /// Number of created generations.
    pub fn generations_created(&self) -> u64 {
        self.report.total().counters.get(Counter::Aged)
    }

    /// Remarks that the reader needs to interpret the numbers.
    fn notes(&self) -> Vec<String> {
        let total = self.report.total();
        let mut notes = Vec::new();
        let peak = self.report.tenants[1].peak_pages;
        if total.counters.pgsteal() == 0 && peak < self.plan.memory_pages {
            notes.push(format!(
                "memory is larger than the trace: {} of {} pages were used, so none was evicted",
                count(peak),
                count(self.plan.memory_pages)
            ));
        }
        match self.skipped {
            0 => {}
            1 => notes.push("one bad record was skipped".to_owned()),
            skipped => notes.push(format!("{} bad records were skipped", count(skipped))),
        }
        if total.counts.out_of_memory > 0 {
            notes.push(format!(
                "{} accesses failed because no page could be freed: memory is too small for the I/O in flight",
                count(total.counts.out_of_memory)
            ));
        }
        notes
    }
}

/// Miss ratio of one trace under one policy, by memory. It serialises to an element of `curves` in
/// JSON documents.
#[derive(Debug, Clone, Serialize)]
pub struct Curve {
    /// Path of the trace.
    pub trace: String,
    /// Name of the policy.
    pub policy: &'static str,
    /// Preset of the engine; `None` for other policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<&'static str>,
    /// Mechanisms of the engine; `None` for other policies.
    #[serde(skip)]
    pub mechanisms: Option<Mechanisms>,
    /// The access at which counting restarted.
    #[serde(skip)]
    pub warm_from: u64,
    /// Points in the order of the requested sizes.
    pub points: Vec<Point>,
}

/// A point of a curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Memory as requested.
    pub memory: String,
    /// Memory in pages.
    pub memory_pages: u64,
    /// Misses over all accesses.
    #[serde(skip)]
    pub misses: u64,
    /// Miss ratio over all accesses.
    pub miss_ratio: f64,
    /// Miss ratio since counting restarted.
    pub warm_miss_ratio: f64,
    /// The spread of several samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<Spread>,
}

impl Curve {
    /// The curves of rows sorted by trace, policy and memory, with `points` points each; none of no
    /// rows.
    pub fn of(rows: &[ReplayRow], points: usize) -> Vec<Curve> {
        let curve = |rows: &[ReplayRow]| Curve {
            trace: rows[0].trace.clone(),
            policy: rows[0].policy,
            preset: rows[0].preset,
            mechanisms: rows[0].mechanisms(),
            warm_from: rows[0].warm.from_access,
            points: rows.iter().map(Point::of).collect(),
        };
        rows.chunks(points.max(1)).map(curve).collect()
    }
}

impl Point {
    fn of(row: &ReplayRow) -> Point {
        Point {
            memory: row.memory.clone(),
            memory_pages: row.memory_pages,
            misses: row.total.misses,
            miss_ratio: row.total.miss_ratio,
            warm_miss_ratio: row.warm.touches.miss_ratio,
            samples: row.samples,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unwatched;
    use crate::replay::{Options, replay_salts};
    use crate::sampling::Sample;

    #[test]
    fn remarks_on_samples_have_round_percentages() {
        let note = |sample: &str, pages| {
            let trace = TraceFile::of_pages("trace", 0..1_000_000).unwrap();
            let trace = trace.sample(sample.parse().unwrap()).unwrap();
            SampleMemory::of(&trace, pages).unwrap().note()
        };
        for (sample, pages, begin, advice) in [
            ("7%", 700, "a sample of 7 % of the pages", "choose a sample of 10 %"),
            ("0.29", 100, "a sample of 29 % of the pages", "replay the whole trace"),
            ("0.01%", 500, "a sample of 0.01 % of the pages", "choose a sample of 0.02 %"),
        ] {
            let note = note(sample, pages);
            assert!(note.starts_with(begin) && note.contains(advice), "{note}");
        }
    }

    /// The mean had the remarks of the first sample, also if only that had them.
    #[test]
    fn a_mean_has_the_remarks_of_all_samples() {
        let trace = TraceFile::of_pages("trace", (0..3000).map(|access| access % 1000)).unwrap();
        let samples: Vec<TraceFile> = "50%"
            .parse::<Sample>()
            .unwrap()
            .with_salts(3)
            .map(|sample| trace.sample(sample).unwrap())
            .collect();
        let options = Options { sizes: vec!["100%".parse().unwrap()], ..Options::default() };
        let mut rows = crate::replay::replay(&samples, &options, 1, None, &Unwatched).unwrap();
        let last = |row: &mut ReplayRow| row.notes.pop().unwrap();
        let of_sample = rows.iter_mut().map(last).next_back().unwrap();
        assert!(of_sample.starts_with("a sample of 50 %"), "{of_sample}");
        let texts: [&[&str]; 3] = [&["all"], &["all", "one"], &["two", "all"]];
        for (row, texts) in rows.iter_mut().zip(texts) {
            row.notes = texts.iter().map(ToString::to_string).chain([of_sample.clone()]).collect();
        }
        let mean = means(&rows, 3, 1).pop().unwrap();
        let [notes @ .., spread] = &mean.notes[..] else { panic!("{:?}", mean.notes) };
        assert_eq!(notes, ["all", "sample 2 of 3: one", "sample 3 of 3: two"]);
        assert!(spread.starts_with("the means of 3 samples"), "{spread}");
        rows[0].notes.insert(0, "two".to_owned());
        let mean = means(&rows, 3, 1).pop().unwrap();
        assert_eq!(mean.notes[0], "samples 1, 3 of 3: two");
    }

    /// They were divided by their number.
    #[test]
    fn no_traces_have_no_rows() {
        assert!(replay_salts(&[], 3, &Options::default(), 1, &Unwatched).unwrap().is_empty());
        assert!(Curve::of(&[], 0).is_empty());
    }
}
