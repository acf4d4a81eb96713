//! The demo's result as text and as JSON.

use crate::cache_options::Budget;
use crate::cache_report::{CacheReport, evictions};
use crate::table::{Table, count, wrapped};
use crate::{layout, size};
use console::Style;
use mglru_lab::demo::{Cache, CacheRun, Outcome, Request, is_in_memory};
use serde_json::{Value, json};

/// Columns of the longest bar.
const BAR_COLUMNS: f64 = 44.0;

/// Request and outcome of a demo.
pub struct Report {
    pub request: Request,
    pub budget: Budget,
    pub outcome: Outcome,
}

/// The question, and how the demo answers it.
pub fn introduction(request: &Request) -> String {
    let in_memory = match is_in_memory(request) {
        true => {
            "\n\nThis directory is in memory (tmpfs), so no read waits for a disk. Choose a directory on a disk with \
             --directory."
        }
        false => "",
    };
    wrapped(&format!(
        "A scan reads past a cache. Does the cache keep the pages that another reader needs?\n\n\
         The file has {}, in {}. A reader picks single pages from {} of it, some far more often than others \
         (zipf 0.99). A scan reads the other {} from front to back, again and again: one page for each page of the \
         reader. Each cache gets {}, first fills up, and is then measured for {} s. Every page is verified.{in_memory}\n\n",
        size::show(request.file_bytes),
        request.directory.display(),
        size::show(request.reader_bytes()),
        size::show(request.scan_bytes()),
        size::show(request.budget_bytes),
        request.time.as_secs_f64(),
    ))
}

/// Nanoseconds as microseconds.
pub fn microseconds(ns: f64) -> String {
    format!("{:.1}", ns / 1000.0)
}

/// A hit ratio in percent.
pub fn percent(ratio: Option<f64>) -> String {
    ratio.map_or("unknown".to_owned(), |ratio| format!("{:.1} %", 100.0 * ratio))
}

impl Report {
    /// The question that the chart answers.
    pub const QUESTION: &str = "Reads of the reader that found their page in memory, beside the scan";
    /// Explains the columns.
    pub const COLUMNS: &str = "\
        From memory: share of the reader's reads that waited for no disk. p99: 99 of 100 of its reads took no longer. Both MiB/s: of \
        reader and scan together.";
    /// Explains evictions and refaults.
    pub const REFAULT: &str = "\
        Evicted: pages that left the cache to make room. A refault is a read from disk of a page that had left only shortly before: it \
        should have stayed.";

    /// Everything after the introduction.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}\n\n{}\n{}",
            Style::new().bold().apply_to(Report::QUESTION),
            self.chart(),
            self.answer()
        );
        text += &format!("\n\n{}\n{}\n", self.speed().text(), wrapped(Report::COLUMNS));
        if let Some(table) = self.engines() {
            text += &format!("\n{}\n{}\n", table.text(), wrapped(Report::REFAULT));
        }
        for note in self.notes() {
            text += &format!("\n{}\n", wrapped(&note));
        }
        text
    }

    /// Horizontal bars; our default stands out.
    fn chart(&self) -> String {
        let names: Vec<String> = self.outcome.runs.iter().map(|run| run.cache.name()).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let bars = self.outcome.runs.iter().zip(&names).enumerate().map(|(number, (run, name))| {
            let style = match number {
                0 => Style::new().green().bold(),
                _ if matches!(run.cache, Cache::System) => Style::new().cyan(),
                _ => Style::new().yellow(),
            };
            let columns = (BAR_COLUMNS * run.hit_ratio().unwrap_or(0.0)).round() as usize;
            let bar = format!("{:<1$}", "█".repeat(columns), BAR_COLUMNS as usize);
            format!(
                "  {name:<width$}  {}  {}\n",
                style.apply_to(bar),
                style.apply_to(percent(run.hit_ratio()))
            )
        });
        bars.collect()
    }

    /// The headline, in a sentence.
    pub fn answer(&self) -> String {
        let kept = |run: &CacheRun| percent(run.hit_ratio());
        let [first, others @ ..] = self.outcome.runs.as_slice() else { return String::new() };
        let mut others: Vec<String> =
            others.iter().map(|run| format!("{} under {}", kept(run), in_sentence(run))).collect();
        let last = others.pop().unwrap_or_default();
        let others = if others.is_empty() { last } else { format!("{} and {last}", others.join(", ")) };
        wrapped(&format!(
            "Beside the scan, the reader finds {} of its pages in memory under {}, {others}. All caches have {}.",
            kept(first),
            in_sentence(first),
            size::show(self.request.budget_bytes),
        ))
    }

    /// How fast each cache was.
    pub fn speed(&self) -> Table {
        let mut table =
            Table::new(["cache", "from memory", "reads/s", "mean µs", "p99 µs", "scan MiB/s", "both MiB/s"]);
        for run in &self.outcome.runs {
            table.row([
                run.cache.name(),
                percent(run.hit_ratio()),
                count(run.reads_per_second() as u64),
                microseconds(run.latencies.mean_ns()),
                microseconds(run.latencies.percentile_ns(99.0) as f64),
                size::mib(run.scanned_bytes as f64 / run.seconds.max(1e-9)),
                size::mib(run.bytes_per_second()),
            ]);
        }
        table
    }

    /// Counts of our caches, if one ran.
    pub fn engines(&self) -> Option<Table> {
        let mut table = Table::new(["cache", "read from disk", "evicted", "refaults"]);
        for run in &self.outcome.runs {
            let Some(root) = run.engine.as_ref().and_then(|engine| engine.tenants.first()) else { continue };
            let refaults = root.counter("workingset_refault_file").unwrap_or(0);
            table.row([run.cache.name(), count(root.misses), count(evictions(root)), count(refaults)]);
        }
        (!table.parts().1.is_empty()).then_some(table)
    }

    /// Conditions of the comparison.
    pub fn notes(&self) -> Vec<String> {
        let memory = size::show(self.request.budget_bytes);
        let verified: u64 = self.outcome.runs.iter().map(|run| run.pages_verified).sum();
        let mut notes = vec![format!(
            "{} pages were read and verified, and none was wrong. The file was written in {:.1} s.",
            count(verified),
            self.outcome.layout.as_secs_f64()
        )];
        notes.push(match &self.outcome.system_left_out {
            None => format!("\"this system\" is the page cache of the running kernel, held to {memory} by a memory cgroup."),
            Some(reason) => format!(
                "The system's own page cache is left out: it cannot be held to {memory} here ({reason}). Plain LRU, as most caches have it, \
                 stands in. Run the demo as root, or in a cgroup that was delegated to you, to compare with the system."
            ),
        });
        for run in self.outcome.runs.iter().filter(|run| !run.warmed) {
            notes.push(format!(
                "{}: the disk is too slow to fill the cache in time; counting began while it was filling. Use a larger --seconds.",
                run.cache.name()
            ));
        }
        notes
    }

    /// Everything as one document.
    pub fn json(&self) -> Value {
        let Report { request, outcome, .. } = self;
        json!({
            "demo": {
                "file_bytes": request.file_bytes,
                "reader_bytes": request.reader_bytes(),
                "scan_bytes": request.scan_bytes(),
                "budget_bytes": request.budget_bytes,
                "directory": request.directory.display().to_string(),
                "in_memory": layout::is_in_memory(&request.directory),
                "seed": request.seed,
                "layout_seconds": outcome.layout.as_secs_f64(),
                "pages_verified": outcome.runs.iter().map(|run| run.pages_verified).sum::<u64>(),
                "pages_wrong": 0,
                "caches": outcome.runs.iter().map(|run| self.run_json(run)).collect::<Vec<_>>(),
                "system_left_out": outcome.system_left_out,
            },
        })
    }

    fn run_json(&self, run: &CacheRun) -> Value {
        let kind = match run.cache {
            Cache::Mglru(_) => "mglru",
            Cache::PlainLru => "plain-lru",
            Cache::System => "system",
        };
        json!({
            "name": run.cache.name(),
            "kind": kind,
            "warmed": run.warmed,
            "seconds": run.seconds,
            "reader": {
                "reads": run.reads,
                "hits": run.hits,
                "hit_ratio": run.hit_ratio(),
                "reads_per_second": run.reads_per_second(),
                "latency_ns": {
                    "mean": run.latencies.mean_ns(),
                    "p50": run.latencies.percentile_ns(50.0),
                    "p99": run.latencies.percentile_ns(99.0),
                    "max": run.latencies.max_ns(),
                },
            },
            "scan": { "bytes": run.scanned_bytes, "bytes_per_second": run.scanned_bytes as f64 / run.seconds.max(1e-9) },
            "bytes_per_second": run.bytes_per_second(),
            "pages_verified": run.pages_verified,
            "mglru": self.engine_json(run),
        })
    }

    fn engine_json(&self, run: &CacheRun) -> Option<Value> {
        let (Cache::Mglru(mechanisms), Some(engine)) = (run.cache, &run.engine) else { return None };
        let (stats, tenants) = (engine.stats.clone(), engine.tenants.clone());
        Some(CacheReport { budget: self.budget, mechanisms, stats, tenants, sync: None }.json())
    }
}

/// The name of the cache within a sentence.
fn in_sentence(run: &CacheRun) -> String {
    match run.cache {
        Cache::Mglru(_) => run.cache.name().trim_start_matches("mglru, ").to_owned(),
        Cache::PlainLru => "plain LRU".to_owned(),
        Cache::System => "this system's own cache".to_owned(),
    }
}
