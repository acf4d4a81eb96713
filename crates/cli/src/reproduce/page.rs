//! Experiments as a page, and as figures for the documentation.

use super::summary::{self, Done};
use super::text::{self, figure, percent};
use crate::error::Failure;
use crate::page::chart::{self, Axes, Bar, BarGroup, Series};
use crate::page::{Figure, Page, Part, Section, command_line};
use crate::table::Table;
use crate::timeline_figures::{self, Along, Runs};
use crate::whole_file::WholeFile;
use mglru_lab::experiment::{Crosschecks, Experiment, MetricRow, PairChanges, Shares, Shown, Verdict};
use mglru_lab::statistics::{median, quartiles};
use serde_json::Value;
use std::path::Path;

fn parts(shown: &Shown, experiment: &str) -> Vec<Part> {
    match shown {
        Shown::Timelines { name, about, timelines } => {
            let name = format!("{experiment}-{name}");
            timeline_figures::figures(&name, about, timelines, Along::Seconds, Runs::AgainstFirst)
        }
        Shown::Fairness { about, who, settings } => {
            vec![Part::Figure(fairness(experiment, about, who, settings))]
        }
        Shown::Steps { about, steps, columns } => {
            let table = Part::Table(text::steps_table(steps, columns));
            let published = text::published_steps(columns).into_iter().map(Part::Text);
            [Part::Text(format!("{about}:")), table].into_iter().chain(published).collect()
        }
        Shown::Pairs { metrics } => vec![Part::Figure(pairs(experiment, metrics))],
    }
}

/// The share of each tenant, relative to an equal share.
fn fairness(experiment: &str, about: &str, who: &str, settings: &[Shares]) -> Figure {
    let shares = |values: &[f64]| -> Vec<f64> {
        let mean = mglru_lab::statistics::mean(values).max(f64::MIN_POSITIVE);
        values.iter().map(|value| 100.0 * value / mean).collect()
    };
    let series = settings.iter().map(|setting| Series {
        label: format!("{} (Jain {:.4})", setting.label, setting.jain),
        points: shares(&setting.values)
            .into_iter()
            .enumerate()
            .map(|(at, share)| (at as f64 + 1.0, Some(share)))
            .collect(),
    });
    let series: Vec<Series> = series.collect();
    let mut table =
        Table::with_headings([who].into_iter().chain(settings.iter().map(|setting| setting.label)));
    for tenant in 0..settings.first().map_or(0, |setting| setting.values.len()) {
        let cells = settings.iter().map(|setting| format!("{:.0}", setting.values[tenant]));
        table.row(std::iter::once((tenant + 1).to_string()).chain(cells));
    }
    let title = format!("Fairness: {about}.");
    let caption = format!(
        "Share of each {who}, in order of creation, in percent of the mean: 100 is fair. Jain's index is 1 for equal \
         shares."
    );
    let axes = Axes { x: who, y: "% of the mean", range: (0.0, 120.0), log: false, has_reference: true };
    let chart = chart::lines(&title, &caption, axes, &series);
    Figure { name: format!("{experiment}-fairness"), title, caption, chart, table }
}

/// The change of each pair of runs.
fn pairs(experiment: &str, metrics: &[PairChanges]) -> Figure {
    let series: Vec<Series> = metrics
        .iter()
        .map(|of| Series {
            label: of.metric.to_owned(),
            points: of
                .change_percent
                .iter()
                .enumerate()
                .map(|(run, &change)| (run as f64 + 1.0, Some(change)))
                .collect(),
        })
        .collect();
    let mut table = Table::with_headings(["run"].into_iter().chain(metrics.iter().map(|of| of.metric)));
    for run in 0..metrics.first().map_or(0, |of| of.change_percent.len()) {
        let cells = metrics.iter().map(|of| format!("{:+.1} %", of.change_percent[run]));
        table.row(std::iter::once((run + 1).to_string()).chain(cells));
    }
    let title = "Run by run: after against before.".to_owned();
    let caption =
        "Both settings took turns on the same memory. The sign test counts the changes above 0.".to_owned();
    let axes = Axes { x: "run", y: "change, %", range: (-5.0, 5.0), log: false, has_reference: false };
    let chart = chart::lines(&title, &caption, axes, &series);
    Figure { name: format!("{experiment}-pairs"), title, caption, chart, table }
}

fn group(experiment: &Experiment, row: &MetricRow) -> BarGroup {
    let bar = |label: &str, values: &[f64]| Bar {
        label: label.to_owned(),
        value: median(values),
        range: quartiles(values),
        shown: figure(median(values)),
    };
    let verdict = match experiment.verdict_of(row) {
        Verdict::Unpublished => percent(row.change()),
        _ => format!("{}, {}", percent(row.change()), experiment.verdict_text(row)),
    };
    let mark = row.published_change().map(|change| {
        (median(&row.before) * (1.0 + change), format!("as published: {} of before", percent(change)))
    });
    BarGroup {
        name: format!("{}, {}", row.metric, row.unit),
        note: verdict,
        bars: vec![bar("before", &row.before), bar("after", &row.after), bar("default", &row.default)],
        mark,
    }
}

fn metrics(experiment: &Experiment) -> Figure {
    let groups: Vec<BarGroup> = experiment.rows.iter().map(|row| group(experiment, row)).collect();
    let title = format!("{}: before, after, and by default.", experiment.name);
    let caption = "Medians of the runs; lines show the middle half of the runs. Each metric has its own scale, from 0. The dashed line is \
                   where 'after' would be with the published change.";
    let chart = chart::bars(&title, caption, &groups);
    let table = text::table(experiment);
    Figure { name: format!("{}-metrics", experiment.name), title, caption: caption.to_owned(), chart, table }
}

fn section(done: &Done) -> Section {
    let experiment = &done.experiment;
    let mut section = Section::new(experiment.name);
    section.parts.extend(experiment.workload.lines().map(|line| Part::Text(line.trim().to_owned())));
    section.text(format!(
        "{} runs of each setting, {:.0} s: {}",
        experiment.runs, experiment.seconds, done.command
    ));
    if let Some(reason) = experiment.untimely {
        section.text(format!("Times are meaningless here: {reason}."));
    }
    section.parts.push(Part::Figure(metrics(experiment)));
    let mut checks = Table::new(["check", ""]).with_words_last();
    for check in experiment.all_checks() {
        checks.row([check.name.clone(), check.word().to_owned()]);
    }
    section.parts.push(Part::Table(checks));
    match &experiment.crosschecks {
        Crosschecks::NotApplicable { not_applicable } => {
            section.text(format!("Cross-checks do not apply: {not_applicable}."))
        }
        Crosschecks::Seen { regime, .. } => {
            section.text(format!("Observed in the cross-checked runs: {}.", regime.join("; ")))
        }
    }
    section.parts.extend(experiment.shown.iter().flat_map(|shown| parts(shown, experiment.name)));
    section
}

/// The page of all experiments.
pub fn page<'a>(done: &[Done], document: &'a Value) -> Page<'a> {
    let mut all = Section::new("Summary");
    all.parts.push(Part::Table(summary::table(done)));
    all.parts.push(Part::Table(summary::commands(done)));
    Page {
        title: "Published experiments, run again".to_owned(),
        summary: vec![
            "Before and after are the kernel versions or settings that each publication compared; default is this project's preset. All \
             figures are medians over runs with different seeds."
                .to_owned(),
            "Reproduced: the change has the published direction and at least 70 % of the published size. Weaker: only the direction agrees. \
             A control holds if it changes by less than 2 %, and by less than 5 % with 95 % confidence; the same rule and word apply \
             where almost no change was published. One run has no verdict, and values that the setup decides are by construction. \
             Verdicts use the interval of the changes of pairs of runs. If the interval is too wide, \
             the verdict is: too noisy to tell."
                .to_owned(),
        ],
        command: command_line(),
        sections: std::iter::once(all).chain(done.iter().map(section)).collect(),
        document,
    }
}

/// Makes the directory of figures, before the work, which may take minutes.
///
/// # Errors
/// The directory cannot be made, or not be written to.
pub fn try_out_figures(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).and_then(|()| tempfile::tempfile_in(directory)).map(drop).map_err(
        |error| Failure::work(format_args!("cannot write figures to {}: {error}", directory.display())),
    )
}

/// Writes each chart of a page into a file; returns the number of charts.
///
/// # Errors
/// A file cannot be written.
pub fn write_figures(page: &Page, directory: &Path) -> Result<usize, Failure> {
    let failure = |path: &Path, error: std::io::Error| {
        Failure::work(format_args!("cannot write the figure {}: {error}", path.display()))
    };
    let mut written = 0;
    for (name, chart) in page.charts() {
        let path = directory.join(format!("{name}.svg"));
        WholeFile::write_all(&path, chart.file()).map_err(|error| failure(&path, error))?;
        written += 1;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fairness_is_shown_in_shares_of_the_mean() {
        let settings =
            vec![Shares::new("even", vec![5.0; 4]), Shares::new("uneven", vec![20.0, 0.0, 0.0, 0.0])];
        let shown = Shown::Fairness { about: "pages", who: "tenant", settings };
        let document = json!(shown);
        assert_eq!(
            (document["settings"][0]["jain"].as_f64(), document["settings"][1]["jain"].as_f64()),
            (Some(1.0), Some(0.25))
        );
        let parts = parts(&shown, "x");
        let [Part::Figure(figure)] = &parts[..] else { panic!("one figure") };
        assert_eq!(figure.name, "x-fairness");
        let (headings, rows) = figure.table.parts();
        assert_eq!(
            (headings, &rows[0]),
            (
                &["tenant", "even", "uneven"].map(str::to_owned)[..],
                &vec!["1".to_owned(), "5".to_owned(), "20".to_owned()]
            )
        );
        assert!(figure.chart.file().contains("uneven (Jain 0.2500)"));
    }

    #[test]
    fn pairs_are_shown_run_by_run() {
        let shown = Shown::Pairs {
            metrics: [("a", vec![1.0, -2.5]), ("b", vec![0.0, 30.0])]
                .map(|(metric, change_percent)| PairChanges { metric, change_percent })
                .into(),
        };
        assert_eq!(json!(shown)["metrics"][0]["change_percent"], json!([1.0, -2.5]));
        let parts = parts(&shown, "x");
        let [Part::Figure(figure)] = &parts[..] else { panic!("one figure") };
        assert_eq!(figure.name, "x-pairs");
        assert_eq!(figure.table.parts().1[1], ["2", "-2.5 %", "+30.0 %"].map(str::to_owned));
    }
}
