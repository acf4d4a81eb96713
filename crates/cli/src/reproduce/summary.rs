//! All experiments in one table: claim, published figure, measured figures and verdict.

use super::text::short;
use crate::table::{Table, wrapped};
use mglru_lab::experiment::{Claim, Experiment, MetricRow, Registration};
use mglru_lab::statistics::median;

/// An experiment and its result.
pub struct Done {
    pub of: &'static Registration,
    pub experiment: Experiment,
    /// The command that repeats it alone.
    pub command: String,
}

impl Done {
    fn claimed(&self) -> impl Iterator<Item = (&Claim, &MetricRow)> {
        let row = |claim: &Claim| self.experiment.rows.iter().find(|row| row.metric == claim.metric);
        self.of.claims.iter().filter_map(move |claim| Some((claim, row(claim)?)))
    }

    fn failed_checks(&self) -> impl Iterator<Item = &str> {
        self.experiment.all_checks().filter(|check| !check.holds).map(|check| check.name.as_str())
    }
}

/// A row per claim.
pub fn table(done: &[Done]) -> Table {
    let mut table = Table::new(["experiment: claim", "published", "before", "after", "default", "verdict"])
        .with_words_last();
    for done in done {
        for (claim, row) in done.claimed() {
            let published = row
                .published_pair()
                .map_or("-".to_owned(), |(before, after)| format!("{} → {}", short(before), short(after)));
            table.row([
                format!("{}: {}", done.of.name, claim.words),
                published,
                short(median(&row.before)),
                short(median(&row.after)),
                short(median(&row.default)),
                done.experiment.verdict_text(row),
            ]);
        }
    }
    table
}

/// A row per experiment: command, runs, time and checks.
pub fn commands(done: &[Done]) -> Table {
    let mut table = Table::new(["command", "runs", "seconds", "checks"]).with_words_last();
    for done in done {
        let (all, failed) = (done.experiment.all_checks().count(), done.failed_checks().count());
        table.row([
            done.command.clone(),
            done.experiment.runs.to_string(),
            format!("{:.0}", done.experiment.seconds),
            match failed {
                0 => format!("all {all} hold"),
                1 => format!("1 of {all} does not hold"),
                some => format!("{some} of {all} do not hold"),
            },
        ]);
    }
    table
}

/// Both tables as text.
pub fn text(done: &[Done]) -> String {
    let mut text = format!("{}\n{}", table(done).text(), commands(done).text());
    for done in done {
        for check in done.failed_checks() {
            text += &wrapped(&format!("\n  {}: DOES NOT HOLD: {check}", done.of.name));
        }
    }
    let seconds: f64 = done.iter().map(|done| done.experiment.seconds).sum();
    text.truncate(text.trim_end().len());
    text + &format!("\n\n  {seconds:.0} s in all\n")
}
