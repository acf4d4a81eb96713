//! An evaluation as text and Markdown, with the same numbers.

use crate::effect::{difference, median_and_interval};
use crate::table::{Table, capital, counted, wrapped};
use mglru_core::{Idle, Mechanisms, Preset, Switch};
use mglru_lab::effect::{Effect, Metric, Verdict};
use mglru_lab::evaluate::{
    Change, Evaluation, EvaluationRequest, LoadRow, METRICS, NOTABLE_PERCENT, Revision, Revisions,
};
use mglru_lab::mechanisms::on_speed_only;

/// An evaluation, for output.
pub struct Shown<'a> {
    pub evaluation: &'a Evaluation,
    pub request: &'a EvaluationRequest,
}

impl Shown<'_> {
    /// The report for a mail.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n{}\n", self.heading(), wrapped(&self.setting()));
        for line in self.verdicts() {
            text += &format!("{}\n", wrapped(&line));
        }
        text += &format!("\n{}\n{}", self.misses_heading(), self.misses().text());
        for (heading, costs) in self.costs() {
            text += &format!("\n{heading}\n{}", costs.text());
        }
        text += &format!("\n{}\n{}\n", wrapped(&self.how()), crate::page::command_line());
        text
    }

    /// The report for a merge request.
    pub fn markdown(&self) -> String {
        let mut text = format!("## {}\n\n{}\n\n", self.heading(), self.setting());
        for line in self.verdicts() {
            text += &format!("* {line}\n");
        }
        text += &format!("\n### {}\n\n{}", self.misses_heading(), markdown(&self.misses()));
        for (heading, costs) in self.costs() {
            text += &format!("\n### {heading}\n\n{}", markdown(&costs));
        }
        text + &format!("\n{}\n\n```sh\n{}\n```\n", self.how(), crate::page::command_line())
    }

    fn heading(&self) -> String {
        format!("Evaluation of {}", self.evaluation.change)
    }

    fn setting(&self) -> String {
        let size = self.request.size;
        let sizes = format!(
            "{} × {} × {}, simulated by mglru {}: {} accesses to {} pages in a memory of {} pages each.",
            counted(self.loads().len() as u64, ["load", "loads"]),
            counted(self.evaluation.settings.len() as u64, ["setting", "settings"]),
            counted(self.evaluation.runs as u64, ["seed", "seeds"]),
            env!("CARGO_PKG_VERSION"),
            size.accesses,
            size.pages,
            size.memory_pages(),
        );
        sizes + &self.revisions()
    }

    /// The revisions of the builds, if any is known.
    fn revisions(&self) -> String {
        let Revisions { before, after } = &self.evaluation.revisions;
        let known = |revision: &Option<Revision>| match revision {
            Some(revision) => format!("revision {revision}"),
            None => "of an unknown revision".to_owned(),
        };
        match (&self.request.change, before) {
            (Change::Build { .. }, None) if after.is_none() => String::new(),
            (Change::Build { .. }, _) => format!(" Before is {}, after is {}.", known(before), known(after)),
            (_, Some(own)) => format!(" This build is revision {own}."),
            (_, None) => String::new(),
        }
    }

    /// Which loads gain, lose, or show nothing.
    fn verdicts(&self) -> Vec<String> {
        let list = |verdict: Verdict, words: &str| {
            let rows = self.evaluation.with(verdict);
            (!rows.is_empty()).then(|| format!("{words}: {}.", rows.join(", ")))
        };
        let mut lines: Vec<String> = [
            list(Verdict::Gains, "Fewer misses"),
            list(Verdict::Loses, "More misses"),
            list(Verdict::Nothing, "No certain change of misses"),
            list(Verdict::Untouched, "Every count the same"),
            list(Verdict::Uncertain, "Too few runs to tell"),
        ]
        .into_iter()
        .flatten()
        .collect();
        lines.extend(self.notable_costs());
        lines.extend(
            self.evaluation.refused.iter().map(|(preset, why)| format!("Not tried on {preset}: {why}.")),
        );
        lines.extend(
            self.idle()
                .into_iter()
                .map(|(setting, name, why)| format!("Under {setting}, {name} has no effect: {why}.")),
        );
        lines.extend(self.on_speed_only());
        lines.extend(self.same_program());
        lines
    }

    /// A sentence about another build that is this one: cargo takes two work trees with one target
    /// folder for the same packages.
    fn same_program(&self) -> Option<String> {
        let words = "Both builds are the same program, byte for byte: give the work tree of the branch a target folder \
                     of its own, and build it.";
        self.evaluation.is_same_program.then(|| words.to_owned())
    }

    /// The costs that rise or fall clearly.
    fn notable_costs(&self) -> Vec<String> {
        let costs = METRICS.iter().enumerate().skip(1);
        let both = costs.flat_map(|(at, metric)| [(at, metric, true), (at, metric, false)]);
        let line = |(at, metric, up): (usize, &Metric, bool)| {
            let loads = self.evaluation.with_cost(at, up);
            let word = if up { "More" } else { "Fewer" };
            (!loads.is_empty()).then(|| format!("{word} {}: {}.", metric.words(), loads.join(", ")))
        };
        both.filter_map(line).collect()
    }

    /// Sentences about mechanisms that no simulated run can show.
    fn on_speed_only(&self) -> Vec<String> {
        let Change::Mechanisms(switches) = &self.request.change else { return Vec::new() };
        let sentence = |switch: &Switch| {
            let does = on_speed_only(*switch)?;
            Some(format!("{} has no effect here: it {does}.", switch.name()))
        };
        switches.iter().filter_map(sentence).collect()
    }

    /// Presets, and mechanisms that do nothing there, with the reasons.
    fn idle(&self) -> Vec<(&'static str, &'static str, Idle)> {
        let Change::Mechanisms(switches) = &self.request.change else { return Vec::new() };
        let of = |preset: Preset| {
            let all_on = Mechanisms::compose(preset, switches, &[]).ok();
            let idle = move |switch: &Switch| Some((preset.name(), switch.name(), all_on?.idle(*switch)?));
            switches.iter().filter_map(idle)
        };
        self.request.presets.iter().flat_map(|&preset| of(preset)).collect()
    }

    fn how(&self) -> String {
        let how = "Before and after see the same accesses, seed by seed";
        match self.evaluation.confidence() {
            0.0 => format!("{how}. One seed gives no interval."),
            confidence => {
                let confidence = 100.0 * confidence;
                format!(
                    "{how}. A change is certain if all of its interval is on one side of 0; the interval holds the \
                     median with {confidence:.1} % confidence. Costs are listed above if they change by {NOTABLE_PERCENT} % \
                     or more for certain."
                )
            }
        }
    }

    fn loads(&self) -> Vec<&'static str> {
        let mut loads: Vec<&'static str> = self.evaluation.rows.iter().map(|row| row.load).collect();
        loads.dedup();
        loads
    }

    /// A row per load with something to show under any setting, and a column per setting.
    fn table(&self, shows: impl Fn(&LoadRow) -> bool, cell: impl Fn(&LoadRow) -> String) -> Table {
        let settings = self.evaluation.settings.iter().map(String::as_str);
        let mut table = Table::with_headings(["load"].into_iter().chain(settings));
        let by_load = self.evaluation.rows.chunk_by(|a, b| a.load == b.load);
        for rows in by_load.filter(|rows| rows.iter().any(&shows)) {
            table.row(std::iter::once(rows[0].load.to_owned()).chain(rows.iter().map(&cell)));
        }
        table
    }

    fn misses_heading(&self) -> &'static str {
        if self.evaluation.runs == 1 { "Misses: change" } else { "Misses: median change, and its interval" }
    }

    fn misses(&self) -> Table {
        let change = |row: &LoadRow| {
            let misses = row.misses();
            match self.evaluation.runs {
                _ if misses.is_same => "same".to_owned(),
                1 => difference(misses.median, misses.is_percent),
                _ => median_and_interval(misses),
            }
        };
        self.table(|_| true, change)
    }

    /// The costs with their headings: each that a load has, of the loads that have it.
    fn costs(&self) -> impl Iterator<Item = (String, Table)> {
        let cost = |effect: &Effect| match effect {
            Effect { before, is_same: true, .. } => format!("{before:.2}"),
            Effect { before, after, .. } => format!("{before:.2} → {after:.2}"),
        };
        let has_cost = |effect: &Effect| !effect.is_same || effect.before > 0.0;
        METRICS.iter().enumerate().skip(1).filter_map(move |(at, metric)| {
            let is_anywhere = self.evaluation.rows.iter().any(|row| has_cost(&row.effects[at]));
            let table = || self.table(|row| has_cost(&row.effects[at]), |row| cost(&row.effects[at]));
            is_anywhere.then(|| (format!("{}, before → after", capital(metric.words())), table()))
        })
    }
}

fn markdown(table: &Table) -> String {
    let (headings, rows) = table.parts();
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule: Vec<String> =
        (0..headings.len()).map(|column| if column == 0 { "---" } else { "---:" }.to_owned()).collect();
    let rows: String = rows.iter().map(|row| line(row)).collect();
    line(headings) + &format!("|{}|\n", rule.join("|")) + &rows
}
