//! Real programs beside the published experiments: what `experiments/apps/run --json` measured.

use crate::error::Failure;
use crate::page::Section;
use crate::table::Table;
use mglru_lab::statistics::median;
use serde_json::{Map, Value};
use std::path::Path;

/// Measures with a heading of their own; the others are rates and times by the program.
const HITS: &str = "hits";
const REFAULTS: &str = "refaults/s";

/// One load of one program under one preset.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    load: String,
    preset: String,
    /// By measure, a value for each run.
    measures: Vec<(String, Vec<f64>)>,
}

/// Rows of real programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Apps {
    rows: Vec<Row>,
    document: Value,
}

impl Apps {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read, or `experiments/apps/run --json` did not write it.
    pub fn read(path: &Path) -> Result<Apps, Failure> {
        let failed = |reason: &dyn std::fmt::Display| {
            let path = path.display();
            format!("--apps {path}: {reason}; expected what `experiments/apps/run --json` wrote")
        };
        // A missing file is no wrong usage.
        let text = std::fs::read_to_string(path).map_err(|error| Failure::work(failed(&error)))?;
        Apps::parse(&text).map_err(|reason| Failure::usage(failed(&reason)))
    }

    fn parse(text: &str) -> Result<Apps, String> {
        let document: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let mut rows = Vec::new();
        for (program, loads) in object(&document, "the file")? {
            for (load, presets) in object(loads, program)? {
                for (preset, measures) in object(presets, load)? {
                    let mut row = Row {
                        load: format!("{program}: {load}"),
                        preset: preset.clone(),
                        measures: Vec::new(),
                    };
                    for (measure, values) in object(measures, preset)? {
                        let values = values.as_array().ok_or_else(|| format!("`{measure}` is no list"))?;
                        // The host's cache does not count; its values are null.
                        let numbers = values.iter().filter_map(Value::as_f64).collect();
                        row.measures.push((measure.clone(), numbers));
                    }
                    rows.push(row);
                }
            }
        }
        if rows.is_empty() { Err("no program was measured".to_owned()) } else { Ok(Apps { rows, document }) }
    }

    /// A row per load and preset.
    pub fn table(&self) -> Table {
        let headings = ["program: load", "preset", "hits, %", "refaults/s", "throughput and latency"];
        let mut table = Table::new(headings).with_words_last();
        for row in &self.rows {
            let of = |name: &str| row.measures.iter().find(|(measure, _)| measure == name);
            let cell = |name: &str| of(name).map_or("-".to_owned(), |(_, values)| shown(values));
            let rest = row.measures.iter().filter(|(name, values)| {
                ![HITS, "misses/s", REFAULTS].contains(&name.as_str()) && !values.is_empty()
            });
            let rest: Vec<String> = rest.map(|(name, values)| format!("{name} {}", shown(values))).collect();
            table.row([row.load.clone(), row.preset.clone(), cell(HITS), cell(REFAULTS), rest.join(", ")]);
        }
        table
    }

    /// Table and its words as text.
    pub fn text(&self) -> String {
        format!("\n{ABOUT}\n\n{}", self.table().text())
    }

    /// The section of the report.
    pub fn section(&self) -> Section {
        let mut section = Section::new("real programs");
        section.text(ABOUT.to_owned());
        section.parts.push(crate::page::Part::Table(self.table()));
        section
    }

    /// The file's document.
    pub fn document(&self) -> &Value {
        &self.document
    }
}

const ABOUT: &str = "Real programs on a mount, as `experiments/apps/run` measured them: medians, with the smallest and the largest run.";

fn object<'v>(value: &'v Value, what: &str) -> Result<&'v Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("`{what}` is no object"))
}

/// The median with the range; a dash without values.
fn shown(values: &[f64]) -> String {
    let short = |value: f64| if value < 1000.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    match values {
        [] => "-".to_owned(),
        [one] => short(*one),
        all => {
            let least = all.iter().copied().fold(f64::INFINITY, f64::min);
            let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            format!("{} ({} to {})", short(median(all)), short(least), short(most))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_row_for_each_load_and_preset() {
        let text = r#"{"sqlite": {"mixed": {
            "default": {"hits": [90.0, 80.0, 85.0], "misses/s": [1, 2, 3], "refaults/s": [5, 4, 6], "p99 ms": [2.5, 1, 3]},
            "host": {"hits": [null], "refaults/s": [null], "p99 ms": [1.5]}}}}"#;
        let apps = Apps::parse(text).unwrap();
        let rows = [
            [
                "sqlite: mixed",
                "default",
                "85.0 (80.0 to 90.0)",
                "5.0 (4.0 to 6.0)",
                "p99 ms 2.5 (1.0 to 3.0)",
            ],
            ["sqlite: mixed", "host", "-", "-", "p99 ms 1.5"],
        ];
        assert_eq!(apps.table().parts().1, rows.map(|row| row.map(str::to_owned).to_vec()));
        for (wrong, reason) in [
            ("{", "EOF"),
            ("[]", "`the file` is no object"),
            ("{}", "no program was measured"),
            (r#"{"a": {"b": {"c": {"hits": 3}}}}"#, "`hits` is no list"),
        ] {
            let error = Apps::parse(wrong).unwrap_err();
            assert!(error.contains(reason), "{wrong}: {error}");
        }
    }
}
