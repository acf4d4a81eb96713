//! The screen of `mglru top`: the whole cache, its tenants, and the chosen tenant in detail.

use super::rates::{Rates, Sort, TenantRates, percent, short};
use crate::error::Failure;
use crate::size;
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
        let heading = self.rates.heading();
        let failures = u16::from(self.failure.is_some());
        let above = heading.len() as u16 + failures;
        let detail = if frame.area().height > above + 1 + DETAIL + 4 { DETAIL } else { 0 };
        let parts = [above, 0, detail, 1].map(Constraint::Length);
        let parts = [parts[0], Constraint::Min(2), parts[2], parts[3]];
        let [top, middle, below, bottom] = Layout::vertical(parts).areas(frame.area());
        let failure = self.failure.iter().map(|failure| {
            let text = format!("no answer, the figures are old: {failure}");
            Line::styled(text, Style::new().fg(Color::Red).add_modifier(Modifier::BOLD))
        });
        let lines: Vec<Line<'_>> = heading.into_iter().map(Line::raw).chain(failure).collect();
        frame.render_widget(Paragraph::new(lines), top);
        let rows = self.rates.rows(self.sort);
        self.draw_tenants(frame, middle, &rows);
        if detail > 0 {
            self.draw_detail(frame, below);
        }
        let paused = if self.paused { "PAUSED  " } else { "" };
        let keys = "q quit  ↑↓ choose  sort: t tenant m memory h hits i misses r refaults p pressure d dirty  a pause";
        frame.render_widget(
            Line::styled(format!("{paused}{keys}"), Style::new().add_modifier(Modifier::DIM)),
            bottom,
        );
    }

    fn draw_tenants(&mut self, frame: &mut Frame<'_>, area: Rect, rows: &[TenantRates]) {
        let sorted = match self.sort {
            Sort::Tenant => 0,
            Sort::Memory => 1,
            Sort::Hits => 3,
            Sort::Misses => 4,
            Sort::Refaults => 5,
            Sort::Pressure => 6,
            Sort::Dirty => 7,
        };
        let headings =
            ["TENANT", "MEMORY", "OF LIMIT", "HITS", "MISSES", "REFAULTS", "PRESSURE", "DIRTY", "LISTS"];
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let heading = |(at, text): (usize, &'static str)| {
            let style = if at == sorted { bold.add_modifier(Modifier::UNDERLINED) } else { bold };
            let line = Line::styled(text, style);
            Cell::new(if (1..8).contains(&at) && at != 2 { line.right_aligned() } else { line })
        };
        let header = Row::new(headings.into_iter().enumerate().map(heading));
        let line = |row: &TenantRates| {
            let full = row.limit.is_some_and(|limit| row.memory as f64 >= limit as f64 * NEARLY_FULL);
            let pressed = row.pressure >= PRESSED;
            let right = |text: String| Cell::new(Line::raw(text).right_aligned());
            let marked = |cell: Cell<'static>, marked, colour| {
                if marked { cell.style(Style::new().fg(colour)) } else { cell }
            };
            Row::new([
                Cell::new(row.name.clone()),
                right(size::show(row.memory)),
                marked(Cell::new(filled(row.memory, row.limit)), full, Color::Yellow),
                right(percent(row.hits)),
                right(short(row.misses)),
                right(short(row.refaults)),
                marked(right(percent(Some(row.pressure))), pressed, Color::Red),
                right(size::show(row.dirty)),
                Cell::new(bar(&row.lists, BAR)),
            ])
        };
        let bar = BAR as u16;
        let widths = [9, bar, 6, 6, 8, 8, 9, bar].map(Constraint::Length);
        let widths = [Constraint::Min(8)].into_iter().chain(widths);
        self.table.select(rows.iter().position(|row| row.name == self.chosen));
        let reversed = Style::new().add_modifier(Modifier::REVERSED);
        let table = Table::new(rows.iter().map(line), widths).header(header).row_highlight_style(reversed);
        frame.render_stateful_widget(table, area, &mut self.table);
    }

    /// The chosen tenant: its hit ratio over time, and its lists.
    fn draw_detail(&self, frame: &mut Frame<'_>, area: Rect) {
        let [left, right] = Layout::horizontal([Constraint::Percentage(50); 2]).areas(area);
        let block = Block::bordered().title(format!(" hit ratio of {}, 0 to 100 % ", self.chosen));
        let looks = self.history.get(&self.chosen);
        let room = usize::from(left.width.saturating_sub(2));
        let values: Vec<Option<u64>> = looks.into_iter().flatten().copied().collect();
        let values = values[values.len().saturating_sub(room)..].to_vec();
        frame.render_widget(Sparkline::default().block(block).data(values).max(1000), left);

        let path = if self.chosen == "all" { "" } else { &self.chosen };
        let tenant = self.rates.state().tenants.iter().find(|tenant| tenant.path == path);
        let lists = tenant.map(|tenant| tenant.lists.as_slice()).unwrap_or_default();
        let most = lists.iter().map(|list| list.anon_bytes + list.file_bytes).max().unwrap_or(0).max(1);
        let columns = usize::from(right.width.saturating_sub(44));
        let line = |list: &mglru_watch::ListState| {
            let name = match list.age_ms {
                Some(age) => format!("generation {}, {:.1} s old", list.name, age as f64 / 1000.0),
                None => list.name.clone(),
            };
            let bytes = list.anon_bytes + list.file_bytes;
            let long = (bytes as f64 / most as f64 * columns as f64).round() as usize;
            Line::raw(format!("{name:<28} {:>10} {}", size::show(bytes), "█".repeat(long)))
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
    fn bars_have_all_their_columns() {
        assert_eq!(bar(&[1, 1, 1, 1], 8), "░░▒▒▓▓██");
        assert_eq!(bar(&[1, 3], 8), "▒▒██████");
        assert_eq!((bar(&[0, 0], 8), bar(&[], 8)), (String::new(), String::new()));
        assert_eq!(bar(&[1, 1, 1], 10).chars().count(), 10);
        assert_eq!((filled(1, Some(2)), filled(9, Some(3))), ("██████······".into(), "█".repeat(12)));
        assert_eq!(filled(1, None).trim(), "");
    }
}
