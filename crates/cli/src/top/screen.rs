//! The screen of `mglru top`: the whole cache, its tenants, and the chosen tenant in detail.

use super::rates::{Rates, Sort, TenantRates, percent, short};
use crate::error::Failure;
use crate::size;
use crate::table::wrapped_within;
use mglru_watch::State;
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table, TableState};
use std::collections::{BTreeMap, VecDeque};

/// Looks that a sparkline remembers.
const KEPT: usize = 200;
/// Columns of a bar.
const BAR: usize = 12;
/// Columns of the longest size, such as `1023.5 MiB`.
const SIZE: u16 = 10;
/// Headings and widths of all columns but the tenant's.
const COLUMNS: [(&str, u16); 8] = [
    ("MEMORY", SIZE),
    ("OF LIMIT", BAR as u16),
    ("HITS", 6),
    ("MISSES", 6),
    ("REFAULTS", 8),
    ("PRESSURE", 8),
    ("DIRTY", SIZE),
    ("LISTS", BAR as u16),
];
/// Numbers of [`COLUMNS`], those first that a narrow terminal keeps longest.
const KEPT_LONGEST: [usize; 8] = [0, 2, 3, 4, 5, 6, 1, 7];
/// A longer name is cut before a column is left out.
const NAME: usize = 16;
/// The narrowest chart of hit ratios.
const CHART: u16 = 20;
/// Lines of the panel below the tenants.
const DETAIL: u16 = 8;
/// From this share of the limit on, memory stands out.
const NEARLY_FULL: f64 = 0.97;
/// From this share of time on, pressure stands out, in percent.
const PRESSED: f64 = 10.0;
/// Shades from the coldest list to the youngest.
const SHADES: [char; 4] = ['░', '▒', '▓', '█'];

/// The content of the screen.
#[derive(Debug)]
pub struct Screen {
    rates: Rates,
    sort: Sort,
    /// The chosen tenant.
    chosen: String,
    /// Hit ratios of the last looks, by tenant, in tenths of a percent.
    history: BTreeMap<String, VecDeque<Option<u64>>>,
    paused: bool,
    /// Why the last look failed.
    failure: Option<String>,
    table: TableState,
}

/// A bar of as many columns, shared by lists in proportion to their bytes.
pub fn bar(lists: &[u64], columns: usize) -> String {
    let sum: u64 = lists.iter().sum();
    if sum == 0 {
        return String::new();
    }
    let shade = |at: usize| match lists.len() {
        2 => SHADES[at * 2 + 1],
        _ => SHADES[at.min(SHADES.len() - 1)],
    };
    let (mut text, mut so_far, mut drawn) = (String::new(), 0, 0);
    for (at, bytes) in lists.iter().enumerate() {
        so_far += bytes;
        // Rounded as a whole, so that all parts together have all columns.
        let end = (u128::from(so_far) * columns as u128 * 2 / u128::from(sum)).div_ceil(2) as usize;
        text.extend(std::iter::repeat_n(shade(at), end.saturating_sub(drawn)));
        drawn = end.max(drawn);
    }
    text
}

/// The columns that fit beside the names, by number, and the columns left for names. A column is
/// shown whole or not at all: the end of a number would be another number.
fn fitting(width: u16, longest: usize, sorted: Option<usize>) -> (Vec<usize>, u16) {
    let name = longest.clamp("TENANT".len(), NAME) as u16;
    let (mut shown, mut left) = (Vec::new(), width);
    let others = KEPT_LONGEST.into_iter().filter(|&at| Some(at) != sorted);
    for at in sorted.into_iter().chain(others) {
        // A space separates it from the column before.
        let needed = COLUMNS[at].1 + 1;
        // One column of numbers is worth more than the end of a name.
        let name = if shown.is_empty() { "TENANT".len() as u16 } else { name };
        if left < name + needed {
            break;
        }
        shown.push(at);
        left -= needed;
    }
    shown.sort_unstable();
    (shown, left)
}

/// The end of a path, which differs where paths begin alike.
fn cut(name: &str, columns: u16) -> String {
    let (long, columns) = (name.chars().count(), usize::from(columns));
    match long.checked_sub(columns) {
        None | Some(0) => name.to_owned(),
        Some(more) => std::iter::once('…').chain(name.chars().skip(more + 1)).take(columns).collect(),
    }
}

/// Lines of at most as many columns, where no word is longer.
fn wrapped(text: &str, columns: u16) -> Vec<String> {
    wrapped_within(text, columns.into()).split('\n').map(str::to_owned).collect()
}

/// Memory in use, as a bar of its limit.
fn filled(memory: u64, limit: Option<u64>) -> String {
    let Some(limit) = limit.filter(|&limit| limit > 0) else { return " ".repeat(BAR) };
    let columns = ((memory as f64 / limit as f64).min(1.0) * BAR as f64).round() as usize;
    format!("{}{}", "█".repeat(columns), "·".repeat(BAR - columns))
}

impl Screen {
    /// The screen with a first state.
    pub fn new(state: State, sort: Sort) -> Screen {
        let mut screen = Screen {
            rates: Rates::since_start(state),
            sort,
            chosen: "all".to_owned(),
            history: BTreeMap::new(),
            paused: false,
            failure: None,
            table: TableState::default(),
        };
        screen.remember();
        screen
    }

    /// Looks again, unless paused. A failure leaves the last state on the screen.
    pub fn look(&mut self, state: impl FnOnce() -> Result<State, Failure>) {
        if self.paused {
            return;
        }
        match state() {
            Ok(state) => {
                self.rates.advance(state);
                self.failure = None;
                self.remember();
            }
            Err(failure) => self.failure = Some(failure.text().to_owned()),
        }
    }

    fn remember(&mut self) {
        let rows = self.rates.rows(self.sort);
        self.history.retain(|name, _| rows.iter().any(|row| row.name == *name));
        for row in rows {
            let looks = self.history.entry(row.name).or_default();
            looks.push_back(row.hits.map(|hits| (hits * 10.0) as u64));
            if looks.len() > KEPT {
                looks.pop_front();
            }
        }
    }

    /// Takes a key. Returns `true` to quit.
    pub fn key(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('q') | KeyCode::Esc => return true,
            KeyCode::Char('a') => self.paused = !self.paused,
            KeyCode::Char('t') => self.sort = Sort::Tenant,
            KeyCode::Char('m') => self.sort = Sort::Memory,
            KeyCode::Char('h') => self.sort = Sort::Hits,
            KeyCode::Char('i') => self.sort = Sort::Misses,
            KeyCode::Char('r') => self.sort = Sort::Refaults,
            KeyCode::Char('p') => self.sort = Sort::Pressure,
            KeyCode::Char('d') => self.sort = Sort::Dirty,
            KeyCode::Up => self.choose(-1),
            KeyCode::Down => self.choose(1),
            KeyCode::PageUp => self.choose(-10),
            KeyCode::PageDown => self.choose(10),
            KeyCode::Home => self.choose(isize::MIN),
            KeyCode::End => self.choose(isize::MAX),
            _ => {}
        }
        false
    }

    /// Chooses the tenant some lines further down.
    fn choose(&mut self, lines: isize) {
        let rows = self.rates.rows(self.sort);
        let at = rows.iter().position(|row| row.name == self.chosen).unwrap_or(0);
        let to = at.saturating_add_signed(lines).min(rows.len().saturating_sub(1));
        if let Some(row) = rows.get(to) {
            self.chosen = row.name.clone();
        }
    }

    /// Draws everything.
    pub fn draw(&mut self, frame: &mut Frame<'_>) {
        let wide = frame.area().width;
        let heading = self.rates.heading();
        let heading = heading.iter().flat_map(|line| wrapped(line, wide)).map(Line::raw);
        let failure = self.failure.iter().flat_map(|failure| {
            let style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
            let text = format!("no answer, the figures are old: {failure}");
            wrapped(&text, wide).into_iter().map(move |line| Line::styled(line, style))
        });
        let heading: Vec<Line<'_>> = heading.chain(failure).collect();
        let paused = if self.paused { "PAUSED " } else { "" };
        let keys = "q quit ↑↓ choose, sort: t tenant m memory h hits i misses r refaults p pressure d dirty, a pause";
        let dim = Style::new().add_modifier(Modifier::DIM);
        let keys = wrapped(&format!("{paused}{keys}"), wide).into_iter();
        let keys: Vec<Line<'_>> = keys.map(|line| Line::styled(line, dim)).collect();
        let (above, below) = (heading.len() as u16, keys.len() as u16);
        let detail = if frame.area().height > above + below + DETAIL + 4 { DETAIL } else { 0 };
        let parts = [above, 0, detail, below].map(Constraint::Length);
        let parts = [parts[0], Constraint::Min(2), parts[2], parts[3]];
        let [top, middle, below, bottom] = Layout::vertical(parts).areas(frame.area());
        frame.render_widget(Paragraph::new(heading), top);
        let rows = self.rates.rows(self.sort);
        self.draw_tenants(frame, middle, &rows);
        if detail > 0 {
            self.draw_detail(frame, below);
        }
        frame.render_widget(Paragraph::new(keys), bottom);
    }

    fn draw_tenants(&mut self, frame: &mut Frame<'_>, area: Rect, rows: &[TenantRates]) {
        let sorted = match self.sort {
            Sort::Tenant => None,
            Sort::Memory => Some(0),
            Sort::Hits => Some(2),
            Sort::Misses => Some(3),
            Sort::Refaults => Some(4),
            Sort::Pressure => Some(5),
            Sort::Dirty => Some(6),
        };
        let longest = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let (shown, name) = fitting(area.width, longest, sorted);
        let heading = |at: Option<usize>| {
            let bold = Style::new().add_modifier(Modifier::BOLD);
            let style = if at == sorted { bold.add_modifier(Modifier::UNDERLINED) } else { bold };
            let line = Line::styled(at.map_or("TENANT", |at| COLUMNS[at].0), style);
            let is_bar = at.is_none_or(|at| COLUMNS[at].1 == BAR as u16);
            Cell::new(if is_bar { line } else { line.right_aligned() })
        };
        let header = Row::new(std::iter::once(None).chain(shown.iter().copied().map(Some)).map(heading));
        let line = |row: &TenantRates| {
            let full = row.limit.is_some_and(|limit| row.memory as f64 >= limit as f64 * NEARLY_FULL);
            let pressed = row.pressure >= PRESSED;
            let right = |text: String| Cell::new(Line::raw(text).right_aligned());
            let marked = |cell: Cell<'static>, marked, colour| {
                if marked { cell.style(Style::new().fg(colour)) } else { cell }
            };
            let cell = |at: &usize| match at {
                0 => right(size::show(row.memory)),
                1 => marked(Cell::new(filled(row.memory, row.limit)), full, Color::Yellow),
                2 => right(percent(row.hits)),
                3 => right(short(row.misses)),
                4 => right(short(row.refaults)),
                5 => marked(right(percent(Some(row.pressure))), pressed, Color::Red),
                6 => right(size::show(row.dirty)),
                _ => Cell::new(bar(&row.lists, BAR)),
            };
            Row::new(std::iter::once(Cell::new(cut(&row.name, name))).chain(shown.iter().map(cell)))
        };
        let widths = std::iter::once(name).chain(shown.iter().map(|&at| COLUMNS[at].1));
        let widths = widths.map(Constraint::Length);
        self.table.select(rows.iter().position(|row| row.name == self.chosen));
        let reversed = Style::new().add_modifier(Modifier::REVERSED);
        let table = Table::new(rows.iter().map(line), widths).header(header).row_highlight_style(reversed);
        frame.render_stateful_widget(table, area, &mut self.table);
    }

    /// The chosen tenant: its hit ratio over time, and its lists.
    fn draw_detail(&self, frame: &mut Frame<'_>, area: Rect) {
        let path = if self.chosen == "all" { "" } else { &self.chosen };
        let tenant = self.rates.state().tenants.iter().find(|tenant| tenant.path == path);
        let lists = tenant.map(|tenant| tenant.lists.as_slice()).unwrap_or_default();
        let name = |list: &mglru_watch::ListState| match list.age_ms {
            Some(age) => format!("generation {}, {:.1} s old", list.name, age as f64 / 1000.0),
            None => list.name.clone(),
        };
        let longest = lists.iter().map(|list| name(list).chars().count()).max().unwrap_or(0);
        // The names, the sizes, and the border.
        let needed = longest as u16 + 1 + SIZE + 2;
        let lists_wide = needed.max(area.width / 2).min(area.width);
        let lists_wide = if area.width - lists_wide < CHART { area.width } else { lists_wide };
        let [left, right] =
            Layout::horizontal([Constraint::Min(0), Constraint::Length(lists_wide)]).areas(area);
        if left.width > 0 {
            let block = Block::bordered().title(format!(" hit ratio of {}, 0 to 100 % ", self.chosen));
            let looks = self.history.get(&self.chosen);
            let room = usize::from(left.width.saturating_sub(2));
            let values: Vec<Option<u64>> = looks.into_iter().flatten().copied().collect();
            let values = values[values.len().saturating_sub(room)..].to_vec();
            frame.render_widget(Sparkline::default().block(block).data(values).max(1000), left);
        }
        let most = lists.iter().map(|list| list.anon_bytes + list.file_bytes).max().unwrap_or(0).max(1);
        let columns = usize::from(right.width.saturating_sub(needed + 1));
        let line = |list: &mglru_watch::ListState| {
            let bytes = list.anon_bytes + list.file_bytes;
            let long = (bytes as f64 / most as f64 * columns as f64).round() as usize;
            Line::raw(format!("{:<longest$} {:>10} {}", name(list), size::show(bytes), "█".repeat(long)))
        };
        let lines: Vec<Line<'_>> = lists.iter().map(line).collect();
        let block = Block::bordered().title(format!(" lists of {}, coldest first ", self.chosen));
        frame.render_widget(Paragraph::new(lines).block(block), right);
    }
}

#[cfg(test)]
mod tests {
    use super::super::rates::tests::state;
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    const TENANTS: [(&str, u64, u64, u64, u64); 3] =
        [("", 6 << 20, 90, 10, 4), ("db", 4 << 20, 80, 4, 3), ("web/free", 1 << 20, 10, 990, 1)];

    fn press(screen: &mut Screen, key: KeyCode) -> bool {
        screen.key(KeyEvent::new(key, KeyModifiers::NONE))
    }

    /// The text of the screen.
    fn drawn(screen: &mut Screen, columns: u16, lines: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line =
            |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..lines).map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn tenants_with_their_bars() {
        let mut screen = Screen::new(state(1000, &TENANTS), Sort::Memory);
        let text = drawn(&mut screen, 100, 24);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "/srv/data: process 42, preset linux-7.1, threads");
        let words = |at: usize| lines[at].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(3), "TENANT MEMORY OF LIMIT HITS MISSES REFAULTS PRESSURE DIRTY LISTS");
        assert_eq!(words(4), "all 6 MiB ████████████ 90.0% 10 4 1.0% 4 KiB ▒▒▒█████████");
        assert_eq!(words(5), "db 4 MiB ████████████ 95.2% 4 3 0.4% 4 KiB ▒▒▒█████████");
        assert_eq!(words(6), "web/free 1 MiB 1.0% 990 1 99.0% 4 KiB ▒▒▒█████████");
        assert!(text.contains("generation 7, 12.0 s old"), "{text}");
        assert!(text.contains("hit ratio of all"), "{text}");
    }

    #[test]
    fn keys_sort_choose_pause_and_quit() {
        let mut screen = Screen::new(state(1000, &TENANTS), Sort::Memory);
        press(&mut screen, KeyCode::Char('h'));
        press(&mut screen, KeyCode::Down);
        let text = drawn(&mut screen, 100, 24);
        assert!(text.contains("lists of web/free"), "{text}");
        assert!(text.find("web/free").unwrap() < text.find("db ").unwrap(), "{text}");
        press(&mut screen, KeyCode::End);
        assert!(drawn(&mut screen, 100, 24).contains("lists of db"));
        press(&mut screen, KeyCode::Home);
        press(&mut screen, KeyCode::Up);
        assert!(drawn(&mut screen, 100, 24).contains("lists of all"));
        press(&mut screen, KeyCode::Char('a'));
        screen.look(|| panic!("it is paused"));
        assert!(drawn(&mut screen, 100, 24).contains("PAUSED"));
        assert!(press(&mut screen, KeyCode::Char('q')) && !press(&mut screen, KeyCode::Char('x')));
        assert!(screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }

    #[test]
    fn a_look_that_fails_leaves_the_last_figures() {
        let mut screen = Screen::new(state(1000, &TENANTS), Sort::Memory);
        screen.look(|| Err(Failure::work("it is gone")));
        let text = drawn(&mut screen, 100, 24);
        assert!(
            text.contains("no answer, the figures are old: it is gone") && text.contains("web/free"),
            "{text}"
        );
        screen.look(|| Ok(state(2000, &TENANTS[..2])));
        let text = drawn(&mut screen, 100, 24);
        assert!(
            !text.contains("no answer") && !text.contains("web/free") && text.contains("per second"),
            "{text}"
        );
    }

    #[test]
    fn any_size_of_the_terminal_will_do() {
        let many: Vec<_> = (0..50).map(|number| format!("tenant-{number:02}")).collect();
        let mut tenants = vec![("", 1, 1, 1, 1)];
        tenants.extend(many.iter().map(|name| (name.as_str(), 1, 1, 1, 1)));
        let mut screen = Screen::new(state(1000, &tenants), Sort::Tenant);
        for (columns, lines) in [(1, 1), (10, 3), (40, 12), (80, 24), (300, 80)] {
            drawn(&mut screen, columns, lines);
        }
        // The chosen one is in view.
        press(&mut screen, KeyCode::End);
        assert!(drawn(&mut screen, 100, 24).contains("tenant-49"));
        assert!(drawn(&mut screen, 100, 10).contains("tenant-49"));
        let mut empty = Screen::new(State::default(), Sort::Memory);
        press(&mut empty, KeyCode::Down);
        drawn(&mut empty, 80, 24);
    }

    #[test]
    fn a_narrow_terminal_shows_fewer_columns_and_whole_numbers() {
        let long = "web/cart/a-long-name-of-a-tenant";
        let tenants = [("", 1023 << 20, 90, 10, 4), (long, 3 << 19, 80, 4, 3), ("web/cart/b", 1, 1, 1, 1)];
        let mut screen = Screen::new(state(1000, &tenants), Sort::Memory);
        let words = |text: &str, at: usize| {
            let line = text.lines().skip_while(|line| !line.starts_with("TENANT")).nth(at).unwrap();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let text = drawn(&mut screen, 80, 24);
        assert_eq!(words(&text, 0), "TENANT MEMORY HITS MISSES REFAULTS PRESSURE DIRTY");
        assert_eq!(words(&text, 1), "all 1023 MiB 90.0% 10 4 1.0% 4 KiB");
        assert_eq!(words(&text, 2), "…t/a-long-name-of-a-tenant 1.50 MiB 95.2% 4 3 0.4% 4 KiB");
        assert!(text.contains("budget 8 MiB, free 0 B") && text.contains("a pause"), "{text}");
        assert!(text.contains("generation 8, 0.5 s old   767.2 MiB"), "{text}");
        let text = drawn(&mut screen, 40, 24);
        assert_eq!(words(&text, 0), "TENANT MEMORY HITS");
        assert_eq!(words(&text, 1), "all 1023 MiB 90.0%");
        assert!(text.contains("dirty or under") && text.contains("writeback 0 B"), "{text}");
        assert!(text.contains("generation 8, 0.5 s old   767.2 MiB"), "{text}");
        assert!(text.contains("a pause") && !text.contains("hit ratio of"), "{text}");
        assert_eq!(words(&drawn(&mut screen, 17, 12), 1), "all 1023 MiB");
        // The column by which tenants are sorted is there at any width.
        press(&mut screen, KeyCode::Char('d'));
        assert_eq!(words(&drawn(&mut screen, 30, 12), 0), "TENANT DIRTY");
    }

    #[test]
    fn long_names_keep_their_ends_and_lines_end_between_words() {
        assert_eq!((cut("web/cart", 8), cut("web/cart", 5)), ("web/cart".to_owned(), "…cart".to_owned()));
        assert_eq!((cut("web/cart", 1), cut("web/cart", 0)), ("…".to_owned(), String::new()));
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensible is one word", 4), ["incomprehensible", "is", "one", "word"]);
    }

    #[test]
    fn bars_have_all_their_columns() {
        assert_eq!(bar(&[1, 1, 1, 1], 8), "░░▒▒▓▓██");
        assert_eq!(bar(&[1, 3], 8), "▒▒██████");
        assert_eq!((bar(&[0, 0], 8), bar(&[], 8)), (String::new(), String::new()));
        assert_eq!(bar(&[1, 1, 1], 10).chars().count(), 10);
        assert_eq!((filled(1, Some(2)), filled(9, Some(3))), ("██████······".into(), "█".repeat(12)));
        assert_eq!(filled(1, None).trim(), "");
    }
}
