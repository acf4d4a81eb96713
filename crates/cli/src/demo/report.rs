//! The demo's result as text.

use crate::size;
use crate::table::{Table, count, wrapped};
use console::Style;
use mglru_lab::cache_counts::evictions;
use mglru_lab::demo::{Cache, CacheRun, DemoOutcome, DemoRequest, is_in_memory};

/// Columns of the longest bar.
const BAR_COLUMNS: f64 = 44.0;

/// The outcome of a demo, for output.
pub struct Report(pub DemoOutcome);

/// The question, and how the demo answers it.
pub fn introduction(request: &DemoRequest) -> String {
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
    /// Explains the columns of [`Self::engines`].
    pub const EVICTED: &str = "\
        Waits for the disk: reads, of reader and scan, of pages that were not in memory yet. Most pages of the scan are read ahead of \
        it. Evicted: pages that left the cache to make room.";

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
            text += &format!("\n{}\n{}\n", table.text(), wrapped(Report::EVICTED));
        }
        for note in self.notes() {
            text += &format!("\n{}\n", wrapped(&note));
        }
        text
    }

    /// Horizontal bars; our default stands out.
    fn chart(&self) -> String {
        let names: Vec<String> = self.0.runs.iter().map(|run| run.cache.name()).collect();
        let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let bars = self.0.runs.iter().zip(&names).enumerate().map(|(number, (run, name))| {
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
        let [first, others @ ..] = self.0.runs.as_slice() else { return String::new() };
        let mut others: Vec<String> =
            others.iter().map(|run| format!("{} under {}", kept(run), in_sentence(run))).collect();
        let last = others.pop().unwrap_or_default();
        let others = if others.is_empty() { last } else { format!("{} and {last}", others.join(", ")) };
        wrapped(&format!(
            "Beside the scan, the reader finds {} of its pages in memory under {}, {others}. All caches have {}.",
            kept(first),
            in_sentence(first),
            size::show(self.0.request.budget_bytes),
        ))
    }

    /// How fast each cache was.
    pub fn speed(&self) -> Table {
        let mut table =
            Table::new(["cache", "from memory", "reads/s", "mean µs", "p99 µs", "scan MiB/s", "both MiB/s"]);
        for run in &self.0.runs {
            table.row([
                run.cache.name(),
                percent(run.hit_ratio()),
                count(run.reads_per_second() as u64),
                microseconds(run.latencies.mean_ns()),
                microseconds(run.latencies.percentile_ns(99.0) as f64),
                size::mib(run.scanned_per_second()),
                size::mib(run.bytes_per_second()),
            ]);
        }
        table
    }

    /// Counts of our caches, if one ran.
    pub fn engines(&self) -> Option<Table> {
        let mut table = Table::new(["cache", "waits for the disk", "evicted"]);
        for run in &self.0.runs {
            let Some(root) = run.engine.as_ref().and_then(|engine| engine.tenants.first()) else { continue };
            table.row([run.cache.name(), count(root.misses), count(evictions(root))]);
        }
        (!table.parts().1.is_empty()).then_some(table)
    }

    /// Conditions of the comparison.
    pub fn notes(&self) -> Vec<String> {
        let memory = size::show(self.0.request.budget_bytes);
        let mut notes = vec![format!(
            "{} pages were read and verified, and none was wrong. The file was written in {:.1} s.",
            count(self.0.pages_verified()),
            self.0.layout.as_secs_f64()
        )];
        notes.push(match &self.0.system_left_out {
            None => format!("\"this system\" is the page cache of the running kernel, held to {memory} by a memory cgroup."),
            Some(reason) => format!(
                "The system's own page cache is left out: it cannot be held to {memory} here ({reason}). Plain LRU, as most caches have it, \
                 stands in. Run the demo as root, or in a cgroup that was delegated to you, to compare with the system."
            ),
        });
        for run in self.0.runs.iter().filter(|run| !run.warmed) {
            notes.push(format!(
                "{}: the disk is too slow to fill the cache in time; counting began while it was filling. Use a larger --seconds.",
                run.cache.name()
            ));
        }
        notes
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
