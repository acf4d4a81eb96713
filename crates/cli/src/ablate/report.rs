//! What was found, as text and as JSON with the same numbers.

use super::effect::{Ablation, Effect, Metric, Row, sort};
use crate::cache_report::mechanisms_json;
use crate::statistics::{median, median_interval};
use crate::table::{Table, count, wrapped};
use serde_json::{Value, json};

/// A value of a metric.
pub fn value(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1000.0.. => count(value.round() as u64),
        _ => format!("{value:.3}"),
    }
}

/// A difference.
pub fn difference(difference: f64, is_percent: bool) -> String {
    match is_percent {
        true => format!("{difference:+.2} %"),
        false if difference.abs() >= 1000.0 => format!("{difference:+.0}"),
        false => format!("{difference:+.3}"),
    }
}

impl Row {
    /// What is to be said of an effect.
    fn verdict(effect: &Effect) -> &'static str {
        if effect.is_noise() { "noise" } else { "" }
    }
}

impl Ablation {
    /// Runs of each variant.
    pub fn runs(&self) -> usize {
        self.full[0].len()
    }

    /// How sure the intervals are.
    pub fn confidence(&self) -> f64 {
        median_interval(&self.full[0]).confidence
    }

    /// What was run, in a sentence.
    pub fn what(&self, seed: u64) -> String {
        let (lru, runs) = (self.mechanisms.lru().name(), self.runs());
        let memory = count(self.memory_pages);
        format!(
            "{}: {}, {lru}, {memory} pages; {runs} seeds from {seed} on, which vary {}.",
            self.kind.1,
            self.mechanisms.name(),
            self.varied
        )
    }

    /// How the intervals are to be read.
    pub fn how(&self) -> String {
        let certain = match self.confidence() {
            confidence if confidence >= 0.95 => format!("{:.0} %", 100.0 * confidence),
            confidence => format!("only {:.0} %, as there are fewer than six seeds", 100.0 * confidence),
        };
        format!(
            "Each row is what happens without a mechanism, compared with all of them, seed by seed: the median of the differences, and \
             from … to … its interval ({certain}). Where it has 0 in it, the effect is within the noise (noise)."
        )
    }

    /// Single mechanisms, or pairs, that change something: by their effect on a metric.
    pub fn rows_by(&self, metric: usize, pairs: bool) -> Vec<Row> {
        let mut rows: Vec<Row> =
            self.rows.iter().filter(|row| row.is_pair == pairs && !row.changes_nothing).cloned().collect();
        sort(&mut rows, metric);
        rows
    }

    /// The effects on a metric.
    pub fn table(&self, metric: usize) -> Table {
        let mut table =
            Table::new(["without", "all", "without", "effect", "from", "to", ""]).with_words_last();
        let all = value(median(&self.full[metric]));
        for row in self.rows_by(metric, false) {
            let name = row.name.clone();
            let Some(effect) = row.effects.get(metric) else {
                let none = || "-".to_owned();
                let failed = row.failed.clone().unwrap_or_default();
                table.row([
                    name,
                    all.clone(),
                    none(),
                    none(),
                    none(),
                    none(),
                    format!("could not be run: {failed}"),
                ]);
                continue;
            };
            let show = |figure| difference(figure, effect.is_percent);
            table.row([
                name,
                all.clone(),
                value(effect.without),
                show(effect.median),
                show(effect.interval.low),
                show(effect.interval.high),
                Row::verdict(effect).to_owned(),
            ]);
        }
        table
    }

    /// What pairs do; none if there are none.
    pub fn pairs_table(&self, metric: usize) -> Option<Table> {
        let mut table =
            Table::new(["without both", "effect", "beyond the sum", "from", "to", ""]).with_words_last();
        let mut rows = self.rows_by(metric, true);
        let size = |row: &Row| {
            row.effects.get(metric).and_then(|effect| effect.beyond).map_or(0.0, |(beyond, _)| beyond.abs())
        };
        rows.sort_by(|a, b| size(b).total_cmp(&size(a)));
        let mut sums = 0;
        for row in &rows {
            let Some(effect) = row.effects.get(metric) else { continue };
            let Some((beyond, interval)) = effect.beyond else { continue };
            if [beyond, interval.low, interval.high] == [0.0; 3] {
                sums += 1;
                continue;
            }
            let show = |figure| difference(figure, effect.is_percent);
            let verdict = if interval.contains(0.0) { "noise" } else { "" };
            table.row([
                row.name.clone(),
                show(effect.median),
                show(beyond),
                show(interval.low),
                show(interval.high),
                verdict.to_owned(),
            ]);
        }
        if sums > 0 {
            let name = format!("{sums} others: in every run the sum of both");
            let nothing = || "-".to_owned();
            table.row([name, nothing(), "0".to_owned(), nothing(), nothing(), String::new()]);
        }
        (!rows.is_empty()).then_some(table)
    }

    /// What was not run, and why: a sentence each.
    pub fn not_run(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, why) in &self.variants.cannot_matter {
            lines.push(format!("{name} cannot matter here: {why}."));
        }
        for (name, sentence) in &self.variants.not_alone {
            lines.push(format!("{name} is not turned off alone: {sentence}. They are off together."));
        }
        let nothing: Vec<&str> = self
            .rows
            .iter()
            .filter(|row| row.changes_nothing && !row.is_pair)
            .map(|row| row.name.as_str())
            .collect();
        if !nothing.is_empty() {
            lines.push(format!("Changes nothing here, in no counter of any run: {}.", nothing.join(", ")));
        }
        if !self.variants.off.is_empty() {
            let preset = self.mechanisms.name();
            lines.push(format!("Off in {preset} as it is: {}.", self.variants.off.join(", ")));
        }
        lines
    }

    /// As text.
    pub fn text(&self, seed: u64) -> String {
        let mut text = format!("{}\n{}\n", wrapped(&self.what(seed)), wrapped(&self.how()));
        for (number, metric) in self.metrics.iter().enumerate() {
            text += &format!("\n{}\n\n{}", metric.words(), self.table(number).text());
            if let Some(table) = self.pairs_table(number) {
                text += &format!("\n{}, pairs\n\n{}", metric.words(), table.text());
            }
        }
        text.push('\n');
        for line in self.not_run() {
            text += &format!("{}\n", wrapped(&line));
        }
        text + &format!("\n{} runs in {:.1} s\n", self.runs() * self.variants.run.len(), self.seconds)
    }

    /// As a document.
    pub fn document(&self, seed: u64) -> Value {
        let full = self.metrics.iter().zip(&self.full).map(
            |(metric, values)| json!({"metric": metric.name(), "median": median(values), "values": values}),
        );
        let not_alone = self.variants.not_alone.iter();
        let cannot_matter = self.variants.cannot_matter.iter();
        let tenants = |of_seed: &Vec<_>| {
            let of_seed: &Vec<super::input::TenantCounts> = of_seed;
            let tenants = of_seed.iter();
            tenants
                .map(|tenant| json!({"name": tenant.name, "hits": tenant.hits, "misses": tenant.misses}))
                .collect::<Vec<_>>()
        };
        json!({"ablation": {
            "input": self.kind.1,
            "kind": self.kind.0,
            "preset": self.mechanisms.name(),
            "mechanisms": mechanisms_json(self.mechanisms),
            "memory_pages": self.memory_pages,
            "runs": self.runs(),
            "seed": seed,
            "varied": self.varied,
            "confidence": self.confidence(),
            "seconds": self.seconds,
            "full": full.collect::<Vec<_>>(),
            "variants": self.rows.iter().map(|row| self.row_json(row)).collect::<Vec<_>>(),
            "cannot_matter": cannot_matter.map(|(name, why)| json!({"mechanism": name, "why": why})).collect::<Vec<_>>(),
            "not_alone": not_alone.map(|(name, why)| json!({"mechanism": name, "why": why})).collect::<Vec<_>>(),
            "off": self.variants.off,
            "tenants": self.tenants.iter().map(tenants).collect::<Vec<_>>(),
            "timeline": self.timeline.as_ref().map(|timeline| timeline.json()),
        }})
    }

    fn row_json(&self, row: &Row) -> Value {
        let effect = |(metric, effect): (&Metric, &Effect)| {
            let mut value = json!({
                "metric": metric.name(),
                "without": effect.without,
                "unit": if effect.is_percent { "%" } else { "1" },
                "effect": effect.median,
                "low": effect.interval.low,
                "high": effect.interval.high,
                "within_noise": effect.is_noise(),
            });
            if let Some((beyond, interval)) = effect.beyond {
                value["beyond"] = json!({"effect": beyond, "low": interval.low, "high": interval.high});
            }
            value
        };
        json!({
            "without": row.without,
            "pair": row.is_pair,
            "changes_nothing": row.changes_nothing,
            "failed": row.failed,
            "effects": self.metrics.iter().zip(&row.effects).map(effect).collect::<Vec<_>>(),
        })
    }
}
