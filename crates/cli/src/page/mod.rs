//! A report as one HTML file: readable without a network, light or dark, on paper, and with a
//! screen reader.
//!
//! A mode makes a [`Page`] of what it also prints: the same tables ([`Table`]), each chart with a
//! table of its numbers beside it, and the JSON document, which stands in the page as it is
//! (`document` in a script element). Nothing in a page is code that runs.

pub mod chart;
#[cfg(test)]
mod tests;

use crate::error::Failure;
use crate::output::refuse_input;
use crate::table::Table;
use chart::Chart;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::str::FromStr;

const STYLE: [&str; 2] = [include_str!("page.css"), include_str!("chart.css")];

/// Where the page is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportFile(PathBuf);

impl FromStr for ReportFile {
    type Err = String;

    fn from_str(text: &str) -> Result<ReportFile, String> {
        let path = PathBuf::from(text);
        let is_page = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"));
        if is_page { Ok(ReportFile(path)) } else { Err("a report is a file that ends in .html".to_owned()) }
    }
}

impl ReportFile {
    /// Where it is going to be.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Fails now if it cannot be written, or is one of the files that are read: some of what it
    /// shows takes minutes.
    ///
    /// # Errors
    /// So it is.
    pub fn try_out<'p>(&self, inputs: impl IntoIterator<Item = &'p PathBuf>) -> Result<(), Failure> {
        refuse_input("--report", &self.0, inputs)?;
        let open = std::fs::OpenOptions::new().append(true).create(true).open(&self.0);
        open.map(drop).map_err(|error| self.failure(&error))
    }

    /// Writes the page.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, page: &Page) -> Result<(), Failure> {
        std::fs::write(&self.0, page.html()).map_err(|error| self.failure(&error))
    }

    fn failure(&self, error: &std::io::Error) -> Failure {
        Failure::work(format_args!("cannot write the report to {}: {error}", self.0.display()))
    }
}

/// A report.
pub struct Page<'a> {
    /// What it is about.
    pub title: String,
    /// What it says, in a sentence or two each.
    pub summary: Vec<String>,
    /// What was typed to get it.
    pub command: String,
    /// The rest.
    pub sections: Vec<Section>,
    /// The same as JSON.
    pub document: &'a Value,
}

/// A part with a heading.
pub struct Section {
    /// The heading.
    pub heading: String,
    /// What is in it.
    pub parts: Vec<Part>,
}

/// Something in a section.
pub enum Part {
    /// A paragraph.
    Text(String),
    /// What to type, or text in columns.
    Verbatim(String),
    /// A table.
    Table(Table),
    /// A chart, with its numbers.
    Figure(Figure),
}

/// A chart and its numbers.
pub struct Figure {
    /// A name for a file: letters, digits and `-`.
    pub name: String,
    /// What it shows, in one line.
    pub title: String,
    /// How to read it.
    pub caption: String,
    /// It.
    pub chart: Chart,
    /// Its numbers.
    pub table: Table,
}

impl Section {
    /// A section that gets its parts later.
    pub fn new(heading: impl Into<String>) -> Section {
        Section { heading: heading.into(), parts: Vec::new() }
    }

    /// Adds a paragraph.
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
    /// The file.
    pub fn html(&self) -> String {
        let mut charts = 0;
        let mut bodies = Vec::new();
        for section in &self.sections {
            let parts: Vec<Markup> = section.parts.iter().map(|part| part_html(part, &mut charts)).collect();
            bodies.push(html! { section id=(section.id()) { h2 { (section.heading) } @for part in &parts { (part) } } });
        }
        // Within a script element, only this could end it.
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
                            "mglru " (env!("CARGO_PKG_VERSION")) ". The figures as JSON stand in this page, in the element "
                            code { "document" } "."
                        }
                    }
                    script type="application/json" id="document" { (PreEscaped(document)) }
                }
            }
        };
        page.into_string()
    }

    /// The charts, each with a name for its file.
    pub fn charts(&self) -> impl Iterator<Item = (&str, &Chart)> {
        self.sections.iter().flat_map(|section| &section.parts).filter_map(|part| match part {
            Part::Figure(figure) => Some((figure.name.as_str(), &figure.chart)),
            _ => None,
        })
    }
}

/// `charts`: pictures so far.
fn part_html(part: &Part, charts: &mut usize) -> Markup {
    match part {
        Part::Text(text) => html! { p { (text) } },
        Part::Verbatim(text) => html! { pre { code { (text) } } },
        Part::Table(table) => table_html(table),
        Part::Figure(figure) => html! {
            // Of several pictures, some may be on the next sheet.
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

/// Verdicts have a colour, too.
fn verdict_class(cell: &str) -> Option<&'static str> {
    // A verdict may have a caveat in brackets.
    match cell.split(" (").next().unwrap_or(cell) {
        "reproduced" | "holds" => Some("good"),
        "weaker" | "changes" => Some("fair"),
        "not reproduced" | "DOES NOT HOLD" => Some("bad"),
        "noise" | "uncertain" | "too noisy to tell" | "cannot be told here" => Some("noise"),
        _ => None,
    }
}

/// What was typed.
pub fn command_line() -> String {
    let arguments = std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    std::iter::once("mglru".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}
