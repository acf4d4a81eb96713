//! Results of replays as a page.

use super::explain;
use super::report;
use crate::page::chart::{self, Axes, Series};
use crate::page::{Figure, Page, Part, Section, command_line};
use crate::table::Table;
use crate::timeline_figures::{self, Along, Runs};
use mglru_lab::replay::life::Life;
use mglru_lab::replay::rows::{Curve, ReplayRow};
use mglru_lab::timeline::Timeline;
use serde_json::Value;

/// The page of replays and curves: charts first, then tables.
pub fn page<'a>(rows: &[ReplayRow], curves: &[Curve], document: &'a Value) -> Page<'a> {
    let mut sections = Vec::new();
    if !curves.is_empty() {
        let mut section = Section::new("Miss ratio by memory");
        section.parts.push(Part::Figure(curves_figure(curves)));
        sections.push(section);
    }
    for rows in rows.chunk_by(|a, b| a.trace == b.trace) {
        let timelines: Vec<Timeline> = rows.iter().filter_map(|row| row.timeline.clone()).collect();
        if timelines.is_empty() {
            continue;
        }
        let name = report::name(&rows[0].trace);
        let mut section = Section::new(format!("{name} over time"));
        section.parts = timeline_figures::figures("replay", name, &timelines, Along::Accesses, Runs::Alike);
        sections.push(section);
    }
    let mut replays = Section::new("Replays");
    replays.parts.push(Part::Table(report::table(rows)));
    let notes = report::notes_text(rows);
    notes.lines().filter(|line| !line.is_empty()).for_each(|line| replays.text(line));
    sections.push(replays);
    if let [row] = rows
        && row.engine.is_some()
    {
        let mut section = Section::new("Counters");
        section.parts.push(Part::Table(report::counters_table(row)));
        section.parts.push(Part::Table(report::lists_table(row)));
        sections.push(section);
    }
    let lives: Vec<&Life> = rows.iter().flat_map(|row| &row.lives).collect();
    if !lives.is_empty() {
        let mut section = Section::new("Histories of pages");
        for life in lives {
            section.text(explain::summary(life));
            section.parts.extend(explain::table(life).map(Part::Table));
        }
        sections.push(section);
    }
    Page {
        title: "Traces, replayed".to_owned(),
        summary: vec![
            "Replays run under a virtual clock: the same command gives the same counts on every machine."
                .to_owned(),
        ],
        command: command_line(),
        sections,
        document,
    }
}

/// All curves in one chart.
pub fn curves_figure(curves: &[Curve]) -> Figure {
    let mut table = Table::new(["curve", "memory", "pages", "misses", "miss ratio"]);
    let series = curves.iter().map(|curve| {
        let label = format!("{}, {}", report::name(&curve.trace), report::policy_label(curve));
        let mut points: Vec<(f64, Option<f64>)> = Vec::new();
        for point in &curve.points {
            let ratio = if curve.warm_from > 0 { point.warm_miss_ratio } else { point.miss_ratio };
            points.push((point.memory_pages as f64, Some(100.0 * ratio)));
            table.row([
                label.clone(),
                point.memory.clone(),
                point.memory_pages.to_string(),
                point.misses.to_string(),
                format!("{:.2} %", 100.0 * ratio),
            ]);
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { label, points }
    });
    let series: Vec<Series> = series.collect();
    let title = "Miss ratio by memory.".to_owned();
    let caption =
        "Share of the counted accesses: those after the warm point, if the trace has one.".to_owned();
    let (x, y) = ("memory, pages of 4 KiB", "miss ratio, %");
    let axes = Axes { x, y, range: (0.0, 0.0), log: true, has_reference: false };
    let chart = chart::lines(&title, &caption, axes, &series);
    Figure { name: "replay-curves".to_owned(), title, caption, chart, table }
}
