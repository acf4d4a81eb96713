//! The demo's result as a page: charts first, tables below them.

use super::report::{Report, microseconds, percent};
use crate::page::chart::{self, Bar, BarGroup};
use crate::page::{Figure, Page, Part, Section, command_line};
use crate::size;
use crate::table::{Table, count};
use mglru_lab::demo::CacheRun;
use serde_json::Value;

/// A figure of a run, and how it is shown.
type Measure<'m> = &'m dyn Fn(&CacheRun) -> (f64, String);

impl Report {
    /// As a page.
    pub fn page<'a>(&self, document: &'a Value) -> Page<'a> {
        let mut kept = Section::new("What the reader keeps");
        kept.parts.push(Part::Figure(self.figure("hits", Report::QUESTION, &|run| {
            (100.0 * run.hit_ratio().unwrap_or(0.0), percent(run.hit_ratio()))
        })));
        kept.text(self.answer());
        let mut speed = Section::new("What that is worth");
        speed.parts.push(Part::Figure(self.figure("reads", "Reads of the reader per second", &|run| {
            (run.reads_per_second(), count(run.reads_per_second() as u64))
        })));
        speed.parts.push(Part::Figure(self.figure("p99", "99 of 100 reads took no longer, in µs", &|run| {
            let ns = run.latencies.percentile_ns(99.0) as f64;
            (ns / 1000.0, microseconds(ns))
        })));
        speed.text(Report::COLUMNS);
        speed.parts.push(Part::Table(self.speed()));
        let mut inside = Section::new("What the caches did");
        inside.parts.extend(self.engines().map(Part::Table));
        inside.text(Report::EVICTED);
        self.notes().into_iter().for_each(|note| inside.text(note));
        let request = &self.0.request;
        Page {
            title: "A scan beside a skewed reader".to_owned(),
            summary: vec![format!(
                "A reader picks pages from {}, some far more often than others. A scan reads {} from front to back beside it. Each cache has {}.",
                size::show(request.reader_bytes()),
                size::show(request.scan_bytes()),
                size::show(request.budget_bytes)
            )],
            command: command_line(),
            sections: vec![kept, speed, inside],
            document,
        }
    }

    fn figure(&self, name: &str, title: &str, measure: Measure<'_>) -> Figure {
        let mut table = Table::new(["cache", name]);
        let bars = self.0.runs.iter().map(|run| {
            let (value, shown) = measure(run);
            table.row([run.cache.name(), shown.clone()]);
            Bar { label: run.cache.name(), value, range: (value, value), shown }
        });
        let group = BarGroup { name: String::new(), note: String::new(), bars: bars.collect(), mark: None };
        let (title, caption) =
            (format!("{title}."), "One run of each cache, with the same memory.".to_owned());
        let chart = chart::bars(&title, &caption, &[group]);
        Figure { name: format!("demo-{name}"), title, caption, chart, table }
    }
}
