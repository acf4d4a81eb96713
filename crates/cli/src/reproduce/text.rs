//! Experiments as text.

use crate::table::{Table, wrapped};
use mglru_lab::experiment::{Column, Crosschecks, Experiment, Shown};
use mglru_lab::statistics::median;

/// Explains the columns.
const HOW: &str = "\n  Changes are in percent. between: the interval of the median change of pairs of runs (95 % from six pairs on); verdicts use it. runs: per setting. direction: of the whole interval; open if it contains both.";

/// A figure with three or four digits and a unit prefix.
pub fn figure(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1e9.. => format!("{:.2} G", value / 1e9),
        1e6.. => format!("{:.2} M", value / 1e6),
        1e4.. => format!("{:.1} k", value / 1e3),
        100.0.. => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

/// A figure with three digits and a unit prefix.
pub fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        1e9.. => (value / 1e9, " G"),
        1e6.. => (value / 1e6, " M"),
        1e4.. => (value / 1e3, " k"),
        _ => (value, ""),
    };
    match value.abs() {
        0.0 => "0".to_owned(),
        100.0.. => format!("{value:.0}{unit}"),
        10.0.. => format!("{value:.1}{unit}"),
        _ => format!("{value:.2}{unit}"),
    }
}

/// A change in percent, with its sign.
pub fn percent(change: f64) -> String {
    format!("{:+.1} %", 100.0 * change)
}

/// The same for a column of percentages, with two significant digits.
fn signed(change: f64) -> String {
    let percent = 100.0 * change;
    if percent.abs() < 9.95 { format!("{percent:+.1}") } else { format!("{percent:+.0}") }
}

/// The metrics of an experiment.
pub fn table(experiment: &Experiment) -> Table {
    let mut table = Table::new([
        "metric",
        "published",
        "before",
        "after",
        "default",
        "change",
        "between",
        "runs",
        "direction",
        "verdict",
    ])
    .with_words_last();
    for row in &experiment.rows {
        let published = row.published_change();
        let interval = row.interval();
        table.row([
            row.metric.to_owned(),
            published.map_or("-".to_owned(), signed),
            figure(median(&row.before)),
            figure(median(&row.after)),
            figure(median(&row.default)),
            signed(row.change()),
            format!("{}…{}", signed(interval.low), signed(interval.high)),
            row.runs().to_string(),
            row.direction().to_owned(),
            experiment.verdict_text(row),
        ]);
    }
    table
}

/// Steps as rows, with a column per metric. After the first step, the change from it.
pub fn steps_table(steps: &[&str], columns: &[Column]) -> Table {
    let headings = columns.iter().map(|column| format!("{}, {}", column.metric, column.unit));
    let headings: Vec<String> = headings.chain(["with all patches up to".to_owned()]).collect();
    let mut table = Table::with_headings(headings.iter().map(String::as_str)).with_words_last();
    for (at, step) in steps.iter().enumerate() {
        let cells = columns.iter().map(|column| {
            let (first, value) = (column.values[0], column.values[at]);
            match first != 0.0 && at > 0 {
                true => format!("{} ({})", figure(value), percent(value / first - 1.0)),
                false => figure(value),
            }
        });
        table.row(cells.chain([(*step).to_owned()]));
    }
    table
}

/// Published values of steps, a line per metric that has some.
pub fn published_steps(columns: &[Column]) -> Vec<String> {
    let line = |column: &Column| {
        let (first, rest) = column.published.split_first()?;
        let rest: Vec<String> = rest.iter().map(|value| percent(value / first - 1.0)).collect();
        let (last, between) = rest.split_last()?;
        Some(format!(
            "published, {}: {} without the series, then step by step {}, and {last} with all of it",
            column.metric,
            figure(*first),
            between.join(", "),
        ))
    };
    columns.iter().filter_map(line).collect()
}

/// An experiment as text.
pub fn text(experiment: &Experiment) -> String {
    let mut checks = String::new();
    for check in &experiment.checks {
        checks.push_str(&format!("\n  {}: {}", check.word(), check.name));
    }
    checks.push_str(&crosschecks_text(&experiment.crosschecks));
    if let Some(reason) = experiment.untimely {
        checks.push_str(&format!("\n  times are meaningless here: {reason}"));
    }
    checks.push_str(HOW);
    let mut text = format!("{}\n\n{}", wrapped(&experiment.workload), table(experiment).text());
    for shown in &experiment.shown {
        if let Shown::Steps { about, steps, columns } = shown {
            text.push_str(&format!("\n  {about}:\n\n{}", steps_table(steps, columns).text()));
            for line in published_steps(columns) {
                text.push_str(&wrapped(&format!("\n  {line}\n")));
            }
        }
    }
    text.push_str(&wrapped(&checks));
    text.push_str(&format!(
        "\n\n  {} runs of each setting, {:.0} s in all\n",
        experiment.runs, experiment.seconds
    ));
    text
}

fn crosschecks_text(crosschecks: &Crosschecks) -> String {
    match crosschecks {
        Crosschecks::NotApplicable { not_applicable } => {
            format!("\n  cross-checks do not apply: {not_applicable}")
        }
        Crosschecks::Seen { must, regime } => {
            let must = must.iter().map(|check| format!("\n  {}: {}", check.word(), check.name));
            must.chain(regime.iter().map(|words| format!("\n  regime: {words}"))).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let of = [0.0, 0.991, 16.0, 425.0, 8747.6, 134_743.7, 5_019_627.0, 34_365_441.0, 1_294_678_786.0];
        assert_eq!(
            of.map(short),
            ["0", "0.99", "16.0", "425", "8748", "135 k", "5.02 M", "34.4 M", "1.29 G"]
        );
        assert_eq!(of[6..].iter().map(|&of| figure(of)).collect::<Vec<_>>(), ["5.02 M", "34.37 M", "1.29 G"]);
    }
}
