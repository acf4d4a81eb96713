//! Results of an ablation as text.

use crate::effect::{difference, value, verdict};
use crate::statistics::{CONFIDENCE, median};
use crate::table::{Table, count, counted, wrapped};
use mglru_lab::ablate::{Ablation, NoEffect, VariantRow, ends, sort};
use mglru_lab::effect::is_noise;
use mglru_lab::mechanisms::describe;

/// An ablation, for output.
pub struct Shown<'a>(pub &'a Ablation);

impl std::ops::Deref for Shown<'_> {
    type Target = Ablation;

    fn deref(&self) -> &Ablation {
        self.0
    }
}

impl Shown<'_> {
    /// The setting, in a sentence.
    pub fn setting(&self) -> String {
        let (lru, runs, seed) = (self.mechanisms.lru().name(), self.runs(), self.seed);
        let memory = count(self.memory_pages);
        let seeds = match runs {
            1 => format!("1 seed ({seed}), which varies"),
            _ => format!("{runs} seeds from {seed} on, which vary"),
        };
        let mechanisms = describe(self.mechanisms);
        format!("{}: {mechanisms}, {lru}, {memory} pages; {seeds} {}.", self.kind.1, self.varied)
    }

    /// An explanation of the columns.
    pub fn how(&self) -> String {
        let how = "Each row compares runs without a mechanism with runs with all of them, seed by seed";
        match self.confidence() {
            0.0 => format!("{how}. One seed gives no confidence."),
            confidence if confidence < CONFIDENCE => format!(
                "{how}: the median of the differences, and its interval from … to … (only {:.0} % confidence, because there are fewer \
                 than six seeds).",
                100.0 * confidence
            ),
            confidence => format!(
                "{how}: the median of the differences, and its interval from … to … ({:.0} % confidence). An interval that contains 0 is \
                 marked as noise.",
                100.0 * confidence
            ),
        }
    }

    /// Rows of single mechanisms or of pairs that change a counter, sorted by their effect on a
    /// metric.
    pub fn rows_by(&self, metric: usize, pairs: bool) -> Vec<VariantRow> {
        let mut rows: Vec<VariantRow> =
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
            let [low, high] = ends(&effect.interval).map(|end| end.map_or("-".to_owned(), show));
            let verdict = verdict(&effect.interval);
            table.row([name, all.clone(), value(effect.after), show(effect.median), low, high, verdict]);
        }
        table
    }

    /// The effects of pairs; `None` without pairs.
    pub fn pairs_table(&self, metric: usize) -> Option<Table> {
        let mut table =
            Table::new(["without both", "effect", "beyond the sum", "from", "to", ""]).with_words_last();
        let mut rows = self.rows_by(metric, true);
        rows.retain(|row| row.same_as.is_none());
        let beyond = |row: &VariantRow| row.effects.get(metric).and_then(|effect| effect.beyond);
        let rank = |row: &VariantRow| {
            let (size, noise) = beyond(row)
                .map_or((0.0, false), |(size, interval)| (size.abs(), is_noise(&interval) == Some(true)));
            (noise, -size)
        };
        rows.sort_by(|a, b| {
            let ((a_noise, a_size), (b_noise, b_size)) = (rank(a), rank(b));
            a_noise.cmp(&b_noise).then(a_size.total_cmp(&b_size))
        });
        let mut sums = 0;
        for row in &rows {
            let Some(effect) = row.effects.get(metric) else { continue };
            let Some((beyond, interval)) = beyond(row) else { continue };
            if [beyond, interval.low, interval.high] == [0.0; 3] {
                sums += 1;
                continue;
            }
            let show = |figure| difference(figure, effect.is_percent);
            let [low, high] = ends(&interval).map(|end| end.map_or("-".to_owned(), show));
            table.row([row.name.clone(), show(effect.median), show(beyond), low, high, verdict(&interval)]);
        }
        if sums > 0 {
            let name = format!("{sums} others: exactly the sum of both");
            let nothing = || "-".to_owned();
            table.row([name, nothing(), "0".to_owned(), nothing(), nothing(), String::new()]);
        }
        (!rows.is_empty()).then_some(table)
    }

    /// Variants that were not run and effects that are not shown, a sentence each.
    pub fn not_run(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut by_reason: Vec<(NoEffect, Vec<&str>)> = Vec::new();
        for &(name, why) in &self.variants.cannot_matter {
            match by_reason.iter_mut().find(|(of, _)| *of == why) {
                Some((_, names)) => names.push(name),
                None => by_reason.push((why, vec![name])),
            }
        }
        for (why, names) in by_reason {
            lines.push(match names[..] {
                [name] => format!("{name} has no effect here: {}.", why.clause(false)),
                _ => {
                    let why = why.clause(true);
                    format!("These have no effect here, because {why}: {}.", names.join(", "))
                }
            });
        }
        for (name, sentence) in &self.variants.not_alone {
            lines.push(format!("{name} is not switched off alone: {sentence}. They are off together."));
        }
        let nothing: Vec<&str> = self
            .rows
            .iter()
            .filter(|row| row.changes_nothing && !row.is_pair)
            .map(|row| row.name.as_str())
            .collect();
        if !nothing.is_empty() {
            lines.push(format!("No counter of any run changes without: {}.", nothing.join(", ")));
        }
        let with_one = self.rows.iter().filter(|row| !row.changes_nothing);
        let with_one: Vec<String> =
            with_one.filter_map(|row| Some(format!("{} ({})", row.name, row.same_as.as_ref()?))).collect();
        if !with_one.is_empty() {
            lines.push(format!(
                "Pairs with the same counters as one of them alone (in brackets), because the other depends on it: {}.",
                with_one.join(", ")
            ));
        }
        if !self.variants.off.is_empty() {
            let preset = self.mechanisms.name();
            lines.push(format!("Off in {preset} anyway: {}.", self.variants.off.join(", ")));
        }
        lines
    }

    /// The results as text.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n{}\n", wrapped(&self.setting()), wrapped(&self.how()));
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
        let runs = self.runs() * self.variants.run.len();
        text + &format!("\n{} in {:.1} s\n", counted(runs as u64, ["run", "runs"]), self.seconds)
    }
}
