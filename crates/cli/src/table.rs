//! Tables of text: words to the left, figures to the right, two blanks between.

pub use mglru_lab::size::count;

/// A table that is filled row by row.
#[derive(Debug, Clone)]
pub struct Table {
    rows: Vec<Vec<String>>,
    /// Columns of words: the first, and perhaps the last.
    last_is_words: bool,
}

/// No line is longer.
const COLUMNS_MAX: usize = 100;
const INDENT: &str = "  ";
const GAP: &str = "  ";
/// Where words stand that found no room in their row.
const BELOW: &str = "      ";
/// Words at the end of a row for which room is kept.
const WORDS_SHORT: usize = 30;
/// With less room words go below their row.
const WORDS_ROOM_MIN: usize = 40;
/// A name in the first column is not broken shorter than this, nor than the other for the sake of
/// words at the end.
const NAMES_MIN: usize = 16;
const NAMES_WHOLE: usize = 24;
/// Cells between that are longer are no figures, and can be broken.
const FIGURES_LONG: usize = 16;

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

    /// The table as lines, each ended, of at most 100 columns. What is wider goes on in further
    /// lines: headings, names in the first column, long words in the last or below their row.
    /// Columns that are still too many stand below the others.
    pub fn text(&self) -> String {
        let columns = self.rows[0].len();
        let last_words = self.last_is_words.then_some(columns - 1);
        let mut widths: Vec<usize> = (0..columns).map(|column| self.width(column, usize::MAX)).collect();
        if line_width(&widths) <= COLUMNS_MAX {
            return self.lines(&(0..columns).collect::<Vec<_>>(), &widths, last_words);
        }
        let mut least: Vec<usize> = (0..columns).map(|column| self.width(column, FIGURES_LONG)).collect();
        least[0] = NAMES_MIN;
        if let Some(column) = last_words {
            let short =
                self.rows.iter().map(|row| length(&row[column])).filter(|&width| width <= WORDS_SHORT);
            let (names, short) = (widths[0].min(NAMES_WHOLE), short.max().unwrap_or(0));
            let narrowest = line_width(&[&[names], &least[1..column], &[short]].concat());
            // Else they stand below, but for what is next to nothing.
            widths[column] = if narrowest <= COLUMNS_MAX { short } else { 1 };
            least[column] = widths[column];
        }
        // The widest gives way first, and no more than it has to: names can be found as long as
        // they are whole.
        while line_width(&widths) > COLUMNS_MAX {
            let widest = (0..columns)
                .filter(|&column| widths[column] > least[column])
                .max_by_key(|&column| widths[column]);
            let Some(column) = widest else { break };
            widths[column] -= 1;
        }
        let mut text = String::new();
        let mut block = vec![0];
        for column in 1..columns {
            block.push(column);
            let is_whole = |block: &[usize]| {
                line_width(&block.iter().map(|&column| widths[column]).collect::<Vec<_>>()) <= COLUMNS_MAX
            };
            if !is_whole(&block) && block.len() > 2 {
                block.pop();
                text.push_str(&self.lines(&block, &widths, last_words));
                text.push('\n');
                block = vec![0, column];
            }
        }
        text + &self.lines(&block, &widths, last_words)
    }

    /// Of a column, if its heading is broken, and cells longer than that are.
    fn width(&self, column: usize, long: usize) -> usize {
        let broken = |cell: &str| pieces(cell, 0).iter().map(|piece| length(piece)).max().unwrap_or(0);
        let of = |(row, cells): (usize, &Vec<String>)| match &cells[column] {
            heading if row == 0 && long < usize::MAX => broken(heading),
            cell if length(cell) > long => broken(cell),
            cell => length(cell),
        };
        self.rows.iter().enumerate().map(of).max().unwrap_or(0)
    }

    /// Some of its columns.
    fn lines(&self, columns: &[usize], widths: &[usize], last_words: Option<usize>) -> String {
        let mut text = String::new();
        let before_words: Vec<usize> = columns
            .iter()
            .filter(|&&column| last_words != Some(column))
            .map(|&column| widths[column])
            .collect();
        let room = COLUMNS_MAX.saturating_sub(line_width(&before_words) + GAP.len());
        for row in &self.rows {
            let mut below = None;
            let cells: Vec<Vec<String>> = columns
                .iter()
                .map(|&column| match &row[column] {
                    cell if last_words != Some(column) => pieces(cell, widths[column]),
                    cell if length(cell) <= room => vec![cell.clone()],
                    cell if room >= WORDS_ROOM_MIN => pieces(cell, room),
                    cell => {
                        below = Some(cell);
                        Vec::new()
                    }
                })
                .collect();
            for number in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
                let mut line = INDENT.to_owned();
                for (&column, cell) in columns.iter().zip(&cells) {
                    let (cell, width) = (cell.get(number).map_or("", String::as_str), widths[column]);
                    match column {
                        0 => line.push_str(&format!("{cell:<width$}")),
                        _ if last_words == Some(column) => line.push_str(&format!("{GAP}{cell}")),
                        _ => line.push_str(&format!("{GAP}{cell:>width$}")),
                    }
                }
                text.push_str(line.trim_end());
                text.push('\n');
            }
            for line in below.iter().flat_map(|words| pieces(words, COLUMNS_MAX - BELOW.len())) {
                text.push_str(&format!("{BELOW}{line}\n"));
            }
        }
        text
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
}

fn line_width(widths: &[usize]) -> usize {
    INDENT.len() + widths.iter().sum::<usize>() + GAP.len() * (widths.len() - 1)
}

/// A text in pieces of at most that many columns, where it can be broken: behind blanks and what
/// joins words. With 0: wherever it can be. What cannot be is cut.
fn pieces(text: &str, columns: usize) -> Vec<String> {
    if length(text) <= columns {
        return vec![text.to_owned()];
    }
    let mut pieces: Vec<String> = vec![String::new()];
    for part in text.split_inclusive([' ', '_', '/', '.', '-', '\n']) {
        let last = pieces.last_mut().expect("there is one");
        if !last.is_empty() && (length(last) + length(part.trim_end()) > columns || last.ends_with('\n')) {
            pieces.push(String::new());
        }
        for letter in part.chars() {
            let last = pieces.last_mut().expect("there is one");
            if columns > 0 && length(last) >= columns && !letter.is_whitespace() {
                pieces.push(String::new());
            }
            pieces.last_mut().expect("there is one").push(letter);
        }
    }
    pieces.into_iter().map(|piece| piece.trim().to_owned()).filter(|piece| !piece.is_empty()).collect()
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
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        let indent = line.len() - line.trim_start_matches(' ').len();
        lines.push(line[..indent].to_owned());
        let mut is_begun = false;
        for word in line[indent..].split(' ') {
            let last = lines.last_mut().expect("there is one");
            if is_begun && last.chars().count() + 1 + word.chars().count() > COLUMNS_MAX {
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

    fn widest(text: &str) -> usize {
        text.lines().map(length).max().unwrap_or(0)
    }

    /// A table of an experiment, of a scenario that reads many files, and of tenants that were
    /// killed.
    #[test]
    fn no_line_is_longer_than_100() {
        let mut table = Table::new(["metric", "before", "after", "verdict"]).with_words_last();
        let name =
            "control_depth_4_mapped_reclaimed_per_second_by_one_thread_in_a_tenant_of_its_own_below_the_root";
        table.row([name.to_owned(), count(1_234_567), count(7), "too noisy to tell (quick)".to_owned()]);
        let text = table.text();
        assert!(widest(&text) <= 100 && text.lines().count() == 3, "{text}");
        assert!(
            text.lines().nth(1).unwrap().ends_with("1,234,567      7  too noisy to tell (quick)"),
            "{text}"
        );
        assert_eq!(
            text.lines().skip(1).map(|line| line.split("  ").nth(1).unwrap()).collect::<String>(),
            name
        );

        // As experiments have it: where names and figures leave no room, verdicts stand below.
        let headings =
            ["metric", "published", "before", "after", "default", "change", "from", "to", "verdict"];
        let mut table = Table::new(headings).with_words_last();
        let cells = |metric: &str, verdict: &str| {
            let figures = ["+80.0 %", "113.41 M", "113.41 M", "113.41 M", "+89.9 %", "+84.8 %", "+93.5 %"];
            [metric].into_iter().chain(figures).chain([verdict]).map(str::to_owned).collect::<Vec<_>>()
        };
        table.row(cells("reclaimed_by_two", "cannot be told here"));
        table.row(cells("mapped_reclaimed_per_second_2_threads", "-"));
        let text = table.text();
        assert!(widest(&text) <= 100, "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[2].starts_with("  reclaimed_by_two ") && lines[3] == "      cannot be told here",
            "{text}"
        );
        assert!(
            lines[4].starts_with("  mapped_reclaimed_per_") && lines[4].ends_with("+93.5 %  -"),
            "{text}"
        );

        let mut table = Table::with_headings((0..30).map(|_| "tenant/memory.current"));
        table.row((0..30).map(|number| count(number * 1000)));
        let text = table.text();
        assert!(widest(&text) <= 100, "{text}");
        let cells: Vec<&str> = text.split_whitespace().collect();
        assert!((0..30).all(|number| cells.contains(&count(number * 1000).as_str())), "{text}");

        let mut table = Table::new(["killed", "at", "for", "why"]).with_words_last();
        let why = "no page could be had, and nothing was left to be written. ".repeat(9);
        table.row(
            ["a/rather/long/path/of/a/tenant", "1.000 s", "another/rather/long/path", &why]
                .map(str::to_owned),
        );
        let text = table.text();
        assert!(widest(&text) <= 100 && text.lines().nth(2).unwrap().starts_with("      no page"), "{text}");

        assert_eq!(pieces("a_long.name", 7), ["a_long.", "name"]);
        assert_eq!(pieces("unbroken", 3), ["unb", "rok", "en"]);
        assert_eq!(pieces("one two three", 7), ["one two", "three"]);
    }

    #[test]
    fn counts_and_shares() {
        assert_eq!([0, 999, 1000, 1_000_000].map(count), ["0", "999", "1,000", "1,000,000"]);
        assert_eq!(percent(1, 3), "33.33 %");
        assert_eq!(percent(0, 0), "-");
    }
}
