//! A report as one HTML file: readable without a network, in light and dark mode, on paper, and
//! with a screen reader.
//!
//! A command makes a [`Page`] of the tables that it also prints, of charts with a table of their
//! numbers each, and of the JSON document, which is embedded in a script element. No script runs.

pub mod chart;
#[cfg(test)]
mod tests;

use crate::error::Failure;
use crate::output::Output;
use crate::table::{Table, printable, shell_word};
use crate::whole_file::{WholeFile, refuse_input};
use chart::Chart;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;

const STYLE: [&str; 2] = [include_str!("page.css"), include_str!("chart.css")];

/// The file that the page is written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportFile(PathBuf);

impl FromStr for ReportFile {
    type Err = String;

    fn from_str(text: &str) -> Result<ReportFile, String> {
        let path = PathBuf::from(text);
        let is_page = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"));
        if is_page { Ok(ReportFile(path)) } else { Err("expected a name that ends in .html".to_owned()) }
    }
}

impl ReportFile {
    /// Checks before the work, which may take minutes, that the file can be written.
    ///
    /// # Errors
    /// The file cannot be written, or it is one of the inputs.
    pub fn try_out<P: AsRef<Path>>(&self, inputs: impl IntoIterator<Item = P>) -> Result<(), Failure> {
        refuse_input("--report", &self.0, inputs)?;
        WholeFile::try_out(&self.0).map_err(|error| self.failure(&error))
    }

    /// Writes the page, and says where it is.
    ///
    /// # Errors
    /// The file or the output cannot be written.
    pub fn write(&self, page: &Page, output: &mut Output) -> Result<(), Failure> {
        WholeFile::write_all(&self.0, page.html()).map_err(|error| self.failure(&error))?;
        output.text(&format!("\nThe report is in {}\n", self.0.display()))
    }

    fn failure(&self, error: &std::io::Error) -> Failure {
        Failure::work(format_args!("cannot write the report to {}: {error}", self.0.display()))
    }
}

pub struct Page<'a> {
    pub title: String,
    /// A few sentences below the title.
    pub summary: Vec<String>,
    /// The command line.
    pub command: String,
    pub sections: Vec<Section>,
    /// The JSON document.
    pub document: &'a Value,
}

pub struct Section {
    pub heading: String,
    pub parts: Vec<Part>,
}

pub enum Part {
    Text(String),
    Table(Table),
    Figure(Figure),
}

/// A chart and its numbers.
pub struct Figure {
    /// Name for a file: letters, digits and `-`.
    pub name: String,
    /// One line.
    pub title: String,
    pub caption: String,
    pub chart: Chart,
    pub table: Table,
}

impl Section {
    /// A section without parts.
    pub fn new(heading: impl Into<String>) -> Section {
        Section { heading: heading.into(), parts: Vec::new() }
    }

    pub fn text(&mut self, text: impl Into<String>) {
        self.parts.push(Part::Text(text.into()));
    }

    fn id(&self) -> String {
        let letters =
            self.heading.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' });
        letters.collect::<String>().to_ascii_lowercase()
    }
}

impl Page<'_> {
    pub fn html(&self) -> String {
        let mut charts = 0;
        let mut bodies = Vec::new();
        for section in &self.sections {
            let parts: Vec<Markup> = section.parts.iter().map(|part| part_html(part, &mut charts)).collect();
            bodies.push(html! { section id=(section.id()) { h2 { (section.heading) } @for part in &parts { (part) } } });
        }
        // A script element ends at the first `</`.
        let document = format!("{:#}", self.document).replace('<', "\\u003c");
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) }
                    style { @for style in STYLE { (PreEscaped(style)) } }
                }
                body {
                    main {
                        h1 { (self.title) }
                        @for text in &self.summary { p { (text) } }
                        pre { code { (self.command) } }
                        nav aria-label="Contents" {
                            ul { @for section in &self.sections { li { a href=(format!("#{}", section.id())) { (section.heading) } } } }
                        }
                        @for body in &bodies { (body) }
                        p class="soft" {
                            "mglru " (env!("CARGO_PKG_VERSION")) ". The script element " code { "document" } " of this page has the figures as JSON."
                        }
                    }
                    script type="application/json" id="document" { (PreEscaped(document)) }
                }
            }
        };
        printable(&page.into_string()).into_owned()
    }

    /// The charts, each with the name of its figure.
    pub fn charts(&self) -> impl Iterator<Item = (&str, &Chart)> {
        self.sections.iter().flat_map(|section| &section.parts).filter_map(|part| match part {
            Part::Figure(figure) => Some((figure.name.as_str(), &figure.chart)),
            _ => None,
        })
    }
}

/// `charts` counts the pictures of the page.
fn part_html(part: &Part, charts: &mut usize) -> Markup {
    match part {
        Part::Text(text) => html! { p { (text) } },
        Part::Table(table) => table_html(table),
        Part::Figure(figure) => html! {
            // A figure of several pictures may break across printed pages.
            figure class=[figure.chart.is_single().then_some("whole")] {
                figcaption { b { (figure.title) } " " (figure.caption) }
                (figure.chart.inline(charts))
                details { summary { "The numbers as a table" } (table_html(&figure.table)) }
            }
        },
    }
}

fn table_html(table: &Table) -> Markup {
    let (headings, rows) = table.parts();
    html! {
        div class="wide" {
            table class=(if table.has_words_last() { "words" } else { "figures" }) {
                thead { tr { @for heading in headings { th scope="col" { (heading) } } } }
                tbody { @for row in rows { tr { @for cell in row { td class=[verdict_class(cell)] { (cell) } } } } }
            }
        }
    }
}

/// The colour of a verdict.
fn verdict_class(cell: &str) -> Option<&'static str> {
    // A caveat in brackets may follow.
    match cell.split(" (").next().unwrap_or(cell) {
        "reproduced" | "holds" => Some("good"),
        "weaker" | "changes" => Some("fair"),
        "not reproduced" | "DOES NOT HOLD" => Some("bad"),
        "noise" | "uncertain" | "too noisy to tell" | "not measurable here" => Some("noise"),
        _ => None,
    }
}

static ARGUMENTS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Keeps the arguments of the command for [`command_line`]. Those of the process are others where
/// the command runs in an interpreter.
pub fn keep_arguments(arguments: &[OsString]) {
    let _ = ARGUMENTS.set(arguments.to_vec());
}

/// The command line of this command.
pub fn command_line() -> String {
    let arguments = ARGUMENTS.get().into_iter().flatten().skip(1);
    let arguments = arguments.map(|argument| shell_word(&argument.to_string_lossy()).into_owned());
    std::iter::once("mglru".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}
