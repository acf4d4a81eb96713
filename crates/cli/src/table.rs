//! Tables of text: words to the left, figures to the right, two blanks between.

/// A table that is filled row by row.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Columns of words: the first, and perhaps the last.
    last_is_words: bool,
}

const INDENT: &str = "  ";
const GAP: &str = "  ";

impl Table {
    /// A table with these headings.
    pub fn new<const COLUMNS: usize>(headings: [&str; COLUMNS]) -> Table {
        Table::with_headings(headings)
    }

    /// A table with these headings, as many as they are.
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
    /// If it has another number of columns than the headings.
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

    /// The table as lines, each ended.
    pub fn text(&self) -> String {
        let columns = self.rows[0].len();
        let width_of = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width_of(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = INDENT.to_owned();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                match column {
                    0 => line.push_str(&format!("{cell:<width$}")),
                    _ if self.last_is_words && column + 1 == columns => {
                        line.push_str(&format!("{GAP}{cell}"))
                    }
                    _ => line.push_str(&format!("{GAP}{cell:>width$}")),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// A count, in groups of three digits.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share of a whole, in percent; a dash where there is no whole.
pub fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.2} %", part as f64 / whole as f64 * 100.0),
    }
}

/// Text in lines of at most 100 columns. What is indented goes on further in.
pub fn wrapped(text: &str) -> String {
    const COLUMNS: usize = 100;
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let indent = line.len() - line.trim_start_matches(' ').len();
        lines.push(line[..indent].to_owned());
        let mut is_begun = false;
        for word in line[indent..].split(' ') {
            let last = lines.last_mut().expect("there is one");
            if is_begun && last.chars().count() + 1 + word.chars().count() > COLUMNS {
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
    fn figures_line_up() {
        let mut table = Table::new(["tenant", "hits"]);
        table.row(["a".to_owned(), count(1_234_567)]);
        table.row(["longer name".to_owned(), count(12)]);
        assert_eq!(
            table.text(),
            "  tenant            hits\n  a            1,234,567\n  longer name         12\n"
        );
    }

    #[test]
    fn counts_and_shares() {
        assert_eq!([0, 999, 1000, 1_000_000].map(count), ["0", "999", "1,000", "1,000,000"]);
        assert_eq!(percent(1, 3), "33.33 %");
        assert_eq!(percent(0, 0), "-");
    }
}
