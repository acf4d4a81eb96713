//! Tables as text: words to the left, figures to the right.
//!
//! On a terminal they have at most 100 columns. In a pipe or a file, a row is one line of any
//! length, so that other programs can read it.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};
pub use mglru_lab::size::count;
use std::borrow::Cow;
use std::io::IsTerminal;

/// Text with escapes for control characters, which names of files may have: a terminal would obey
/// them, and SVG may not contain them.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_control = |letter: char| letter.is_control() && !matches!(letter, '\n' | '\t');
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let shown = |letter: char| match is_control(letter) {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    Cow::Owned(text.chars().map(shown).collect())
}

/// A table that is filled row by row.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// The first column holds words, and perhaps the last.
    last_is_words: bool,
}

/// No line on a terminal is longer.
const COLUMNS_MAX: usize = 100;
/// Blanks before each column.
const GAP: usize = 2;
/// Words may be broken into lines of this length.
const WORDS_MIN: usize = 16;

impl Table {
    /// A table with these headings.
    pub fn new<const COLUMNS: usize>(headings: [&str; COLUMNS]) -> Table {
        Table::with_headings(headings)
    }

    /// A table with these headings, of any number.
    pub fn with_headings<'h>(headings: impl IntoIterator<Item = &'h str>) -> Table {
        Table { rows: vec![headings.into_iter().map(str::to_owned).collect()], last_is_words: false }
    }

    /// The last column holds words, as the first does.
    pub fn with_words_last(mut self) -> Table {
        self.last_is_words = true;
        self
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If the number of cells differs from that of the headings.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.rows[0].len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// Its headings and its rows.
    pub fn parts(&self) -> (&[String], &[Vec<String>]) {
        (&self.rows[0], &self.rows[1..])
    }

    /// Whether the last column holds words.
    pub fn has_words_last(&self) -> bool {
        self.last_is_words
    }

    /// The table as lines, for what stdout is: a terminal or not.
    pub fn text(&self) -> String {
        if std::io::stdout().is_terminal() { self.wrapped() } else { self.lines(&self.all(), None) }
    }

    fn all(&self) -> Vec<usize> {
        (0..self.rows[0].len()).collect()
    }

    /// The table as lines of at most 100 columns. Long words are broken; columns that find no room
    /// stand in a further block below, beside the first column.
    fn wrapped(&self) -> String {
        let room = |block: &[usize]| block.iter().map(|&column| GAP + self.least(column)).sum::<usize>();
        let mut blocks = vec![vec![0]];
        for column in 1..self.rows[0].len() {
            let block = blocks.last_mut().expect("there is one");
            block.push(column);
            if room(block) > COLUMNS_MAX && block.len() > 2 {
                block.pop();
                blocks.push(vec![0, column]);
            }
        }
        let lines = blocks.iter().map(|block| self.lines(block, Some(COLUMNS_MAX as u16)));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn is_words(&self, column: usize) -> bool {
        column == 0 || self.last_is_words && column + 1 == self.rows[0].len()
    }

    /// Width that a column cannot do without: figures stay whole, headings break at blanks.
    fn least(&self, column: usize) -> usize {
        let heading = self.rows[0][column].split(' ').map(length).max().unwrap_or(0);
        let cells = self.rows[1..].iter().map(|row| length(&row[column])).max().unwrap_or(0);
        let least = cells.max(heading);
        if self.is_words(column) || cells > WORDS_MIN { least.min(WORDS_MIN) } else { least }
    }

    /// `width` is that of the widest line; `None`: any.
    fn lines(&self, columns: &[usize], width: Option<u16>) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        match width {
            Some(width) => {
                table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
            }
            None => {
                table.set_content_arrangement(ContentArrangement::Disabled);
            }
        }
        for (at, row) in self.rows.iter().enumerate() {
            let cells = columns.iter().map(|&column| row[column].as_str());
            if at == 0 {
                table.set_header(cells)
            } else {
                table.add_row(cells)
            };
        }
        for (&of, column) in columns.iter().zip(table.column_iter_mut()) {
            column.set_padding((GAP as u16, 0));
            if width.is_some() {
                let least = Width::Fixed((GAP + self.least(of)) as u16);
                column.set_constraint(ColumnConstraint::LowerBoundary(least));
            }
            if !self.is_words(of) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

/// A share of a whole, in percent; a dash where there is no whole.
pub fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.2} %", part as f64 / whole as f64 * 100.0),
    }
}

/// A number and what is counted, in the singular and in the plural: `1 load`, `1,200 loads`.
pub fn counted(number: u64, [one, several]: [&str; 2]) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { several })
}

/// A word of a command line as a shell takes it: in quotes, if it has blanks or special letters.
pub fn shell_word(word: &str) -> Cow<'_, str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_@%+=:,./-".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => Cow::Borrowed(word),
        false => Cow::Owned(format!("'{}'", word.replace('\'', r"'\''"))),
    }
}

/// Text with its first letter as a capital.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Text in lines of at most 100 columns. Continuation lines of indented text are indented further.
pub fn wrapped(text: &str) -> String {
    wrapped_within(text, COLUMNS_MAX)
}

/// As [`wrapped`], in lines of at most so many columns, but for words that are longer.
pub fn wrapped_within(text: &str, columns: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let indent = line.len() - line.trim_start_matches(' ').len();
        lines.push(line[..indent].to_owned());
        let mut is_begun = false;
        for word in line[indent..].split(' ') {
            let last = lines.last_mut().expect("there is one");
            if is_begun && length(last) + 1 + length(word) > columns {
                let further = if indent > 0 { indent + 2 } else { 0 };
                lines.push(" ".repeat(further) + word);
            } else {
                last.push_str(if is_begun { " " } else { "" });
                last.push_str(word);
            }
            is_begun = true;
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_escapes() {
        assert_eq!(printable("a\tb ± c\n"), "a\tb ± c\n");
        assert_eq!(printable("\x1b[31mred\r\u{9b}"), "\\u{1b}[31mred\\r\\u{9b}");
    }

    #[test]
    fn numbers_and_words_are_said_as_they_are_read() {
        let said = [0, 1, 2000].map(|number| counted(number, ["load", "loads"]));
        assert_eq!(said, ["0 loads", "1 load", "2,000 loads"]);
        for (word, quoted) in
            [("a/b.bin", "a/b.bin"), ("1%", "1%"), ("a b", "'a b'"), ("", "''"), ("1%#2", "'1%#2'")]
        {
            assert_eq!(shell_word(word), quoted);
        }
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }

    #[test]
    fn figures_line_up() {
        let mut table = Table::new(["tenant", "hits"]);
        table.row(["a".to_owned(), count(1_234_567)]);
        table.row(["longer name".to_owned(), count(12)]);
        for text in [table.wrapped(), table.lines(&table.all(), None)] {
            assert_eq!(
                text,
                "  tenant            hits\n  a            1,234,567\n  longer name         12\n"
            );
        }
    }

    #[test]
    fn a_row_is_one_line_where_no_terminal_is() {
        let mut table = Table::with_headings((0..30).map(|_| "a tenant's memory.current"));
        table.row((0..30).map(|number| count(number * 1_000_000)));
        let text = table.lines(&table.all(), None);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert_eq!(text.lines().last().unwrap().split_whitespace().count(), 30);
        assert_ne!(table.wrapped().lines().count(), 2);
    }

    #[track_caller]
    fn check(table: &Table) -> String {
        let text = table.wrapped();
        assert!(text.lines().all(|line| length(line) <= 100), "{text}");
        text
    }

    /// Tables of an experiment, of a scenario that reads many files, and of tenants that were
    /// killed.
    #[test]
    fn no_line_is_longer_than_100() {
        let mut table = Table::new(["metric", "before", "after", "verdict"]).with_words_last();
        let name =
            "control_depth_4_mapped_reclaimed_per_second_by_one_thread_in_a_tenant_of_its_own_below_the_root";
        table.row([name.to_owned(), count(1_234_567), count(7), "too noisy to tell (quick)".to_owned()]);
        let text = check(&table);
        assert!(text.contains("1,234,567"), "figures are whole: {text}");
        let names: String = text.lines().skip(1).filter_map(|line| line.split("  ").nth(1)).collect();
        assert_eq!(names, name);

        let headings =
            ["metric", "published", "before", "after", "default", "change", "from", "to", "verdict"];
        let mut table = Table::new(headings).with_words_last();
        let figures = ["+80.0 %", "113.41 M", "113.41 M", "113.41 M", "+89.9 %", "+84.8 %", "+93.5 %"];
        let cells = ["mapped_reclaimed_per_second_2_threads"].into_iter().chain(figures);
        table.row(cells.chain(["not measurable here"]).map(str::to_owned));
        let text = check(&table);
        assert!(figures.iter().all(|figure| text.contains(figure)), "{text}");

        let mut table = Table::with_headings((0..30).map(|_| "tenant/memory.current"));
        table.row((0..30).map(|number| count(number * 1000)));
        let text = check(&table);
        let cells: Vec<&str> = text.split_whitespace().collect();
        assert!((0..30).all(|number| cells.contains(&count(number * 1000).as_str())), "{text}");

        let mut table = Table::new(["killed", "at", "for", "why"]).with_words_last();
        let why = "no page could be freed, and nothing was left to be written. ".repeat(9);
        table.row(
            ["a/rather/long/path/of/a/tenant", "1.000 s", "another/rather/long/path", &why]
                .map(str::to_owned),
        );
        check(&table);
    }

    #[test]
    fn counts_and_shares() {
        assert_eq!([0, 999, 1000, 1_000_000].map(count), ["0", "999", "1,000", "1,000,000"]);
        assert_eq!(percent(1, 3), "33.33 %");
        assert_eq!(percent(0, 0), "-");
    }
}
