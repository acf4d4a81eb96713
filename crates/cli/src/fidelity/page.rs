//! The comparison of a table of counts as a page.

use super::report::{Counts, delta_load, delta_verdict, sides};
use crate::page::chart::agreement::{self, Point};
use crate::page::{Figure, Page, Part, Section};
use mglru_lab::fidelity::deltas::{SIGN_MATTERS_PERCENT, SIZE_POINTS, SIZE_SHARE};
use serde_json::Value;
use std::path::Path;

impl Counts<'_> {
    /// The page. It begins with the changes, which are new to most readers.
    pub fn page<'a>(&self, results: &Path, document: &'a Value) -> Page<'a> {
        let mut sections = Vec::new();
        if !self.0.deltas.is_empty() {
            let mut section = Section::new("Changes between kernels and policies");
            section.text(format!("{}.", self.delta_verdict()));
            section.parts.push(Part::Figure(self.delta_figure()));
            sections.push(section);
        }
        let mut section = Section::new("Pages that the limit leaves");
        section.text(format!("{}.", self.capacity_verdict()));
        section.text(
            "The prediction knows the limit and the trace: index nodes, buffer heads of written pages, page tables, and half of what one \
             reclaim effort frees are subtracted.",
        );
        section.parts.push(Part::Table(self.capacity_table()));
        sections.push(section);
        let mut section = Section::new("Every count");
        section.text(format!("{}.", self.verdict()));
        section.parts.push(Part::Table(self.table()));
        sections.push(section);
        Page {
            title: "The engine beside real kernels".to_owned(),
            summary: vec![format!("Rows of {}. {}.", results.display(), self.verdict())],
            command: crate::page::command_line(),
            sections,
            document,
        }
    }

    fn delta_figure(&self) -> Figure {
        let points = self.0.deltas.iter().map(|delta| {
            let (from, to) = sides(delta);
            Point {
                x: delta.kernel_percent,
                y: delta.our_percent,
                group: usize::from(delta.from.kernel == delta.to.kernel),
                is_off: delta_verdict(delta).starts_with("OTHER"),
                label: format!("{}: {from} → {to}", delta_load(delta)),
            }
        });
        let points: Vec<Point> = points.collect();
        let title = "Change of all misses, engine against kernel.";
        let caption = format!(
            "One dot per load and change; on the diagonal both are equal. The band is what is allowed: {:.0} % or {SIZE_POINTS} points. The \
             sign of a change below {SIGN_MATTERS_PERCENT} % in the kernel does not count.",
            100.0 * SIZE_SHARE
        );
        let axes = agreement::Axes {
            x: "change in the kernel, %",
            y: "change in the engine, %",
            groups: ["from kernel to kernel", "from multi-gen to classic"],
            share: SIZE_SHARE,
            points: SIZE_POINTS,
        };
        Figure {
            name: "fidelity-deltas".to_owned(),
            title: title.to_owned(),
            caption: caption.clone(),
            chart: agreement::chart(title, &caption, &axes, &points),
            table: self.delta_table(),
        }
    }
}
