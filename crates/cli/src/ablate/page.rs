//! Results of an ablation as a page.

use super::report::Shown;
use crate::effect::{difference, value};
use crate::page::chart::{self, Bar, BarGroup};
use crate::page::{Figure, Page, Part, Section};
use crate::statistics::{median, range};
use crate::table::{Table, capital};
use crate::timeline_figures::{self, Along, Runs};
use serde_json::Value;
use std::path::Path;

impl Shown<'_> {
    /// The page.
    pub fn page<'a>(&self, input: &Path, document: &'a Value) -> Page<'a> {
        let mut sections = Vec::new();
        for (number, metric) in self.metrics.iter().enumerate() {
            let mut section = Section::new(capital(metric.words()));
            section.parts.push(Part::Figure(self.effects_figure(number)));
            if let Some(table) = self.pairs_table(number) {
                section.text(
                    "Two at a time: the joint effect, and the part of it beyond the sum of both effects.",
                );
                section.parts.push(Part::Table(table));
            }
            sections.push(section);
        }
        let mut rest = Section::new("Not in the charts");
        self.not_run().into_iter().for_each(|line| rest.text(line));
        sections.push(rest);
        if !self.tenants[0].is_empty() {
            let mut section = Section::new("Tenants");
            section.parts.push(Part::Figure(self.tenants_figure()));
            sections.push(section);
        }
        if let Some(timeline) = &self.timeline {
            let mut section = Section::new("Over time");
            section.parts = timeline_figures::figures(
                "ablate",
                &file_name(input),
                std::slice::from_ref(timeline),
                if self.has_time { Along::Seconds } else { Along::Accesses },
                Runs::Alike,
            );
            sections.push(section);
        }
        Page {
            title: format!("Effect of each mechanism: {}", file_name(input)),
            summary: vec![self.setting(), self.how()],
            command: crate::page::command_line(),
            sections,
            document,
        }
    }

    fn effects_figure(&self, metric: usize) -> Figure {
        let rows = self.rows_by(metric, false);
        let is_percent =
            rows.iter().filter_map(|row| row.effects.get(metric)).all(|effect| effect.is_percent);
        let effects = rows.iter().filter_map(|row| {
            let effect = row.effects.get(metric)?;
            let first = row.name.split(" + ").next()?;
            let and = match row.without.len() {
                0 | 1 => String::new(),
                parts => format!(" + {} more", parts - 1),
            };
            let show = |figure| difference(figure, effect.is_percent);
            Some(chart::Effect {
                label: format!("{first}{and}"),
                value: effect.median,
                range: (effect.interval.low, effect.interval.high),
                is_noise: effect.is_noise() != Some(false),
                shown: show(effect.median),
            })
        });
        let effects: Vec<chart::Effect> = effects.collect();
        let words = self.metrics[metric].words();
        let title = format!("{} without each mechanism.", capital(words));
        let caption = format!(
            "With all mechanisms the median is {}. To the right: more without the mechanism. Lines are intervals; grey effects are noise or uncertain.",
            value(median(&self.full[metric]))
        );
        let unit = if is_percent { "change when switched off, %" } else { "change when switched off" };
        let chart = chart::effects(&title, &caption, unit, &effects);
        let name = format!("ablate-{}", self.metrics[metric].name().replace('_', "-"));
        Figure { name, title, caption, chart, table: self.table(metric) }
    }

    fn tenants_figure(&self) -> Figure {
        let names: Vec<&str> = self.tenants[0].iter().map(|tenant| tenant.name.as_str()).collect();
        let mut table = Table::new(["tenant", "hit ratio", "least", "most"]);
        let bars = names.iter().map(|name| {
            let of_seed = |seed: &Vec<mglru_lab::ablate::TenantCounts>| {
                let tenant = seed.iter().find(|tenant| tenant.name == *name)?;
                Some(100.0 * tenant.hits as f64 / (tenant.hits + tenant.misses).max(1) as f64)
            };
            let ratios: Vec<f64> = self.tenants.iter().filter_map(of_seed).collect();
            let (middle, ends) = (median(&ratios), range(&ratios));
            let show = |ratio: f64| format!("{ratio:.2} %");
            table.row([(*name).to_owned(), show(middle), show(ends.0), show(ends.1)]);
            Bar { label: (*name).to_owned(), value: middle, range: ends, shown: show(middle) }
        });
        let group =
            BarGroup { name: "hit ratio".to_owned(), note: String::new(), bars: bars.collect(), mark: None };
        let (title, caption) = (
            "Hit ratio of each tenant, with all mechanisms.",
            "Median of the seeds; lines show the minimum and the maximum.",
        );
        let chart = chart::bars(title, caption, &[group]);
        Figure {
            name: "ablate-tenants".to_owned(),
            title: title.to_owned(),
            caption: caption.to_owned(),
            chart,
            table,
        }
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}
