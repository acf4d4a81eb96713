//! Progress on stderr, only where that is a terminal; elsewhere every bar is invisible.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use mglru_lab::{Unit, Watch};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

/// How often figures change on the screen: quick enough to look alive, slow enough to be read.
pub const TICK: Duration = Duration::from_millis(250);

/// Whether somebody watches.
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("templates are constant and tested");
    style.progress_chars("=> ")
}

/// A bar for `bytes` that are being written, with their rate and what remains.
pub fn of_bytes(bytes: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    bar.set_style(style("{msg} [{bar:30}] {bytes}/{total_bytes} {binary_bytes_per_sec} eta {eta}"));
    bar.set_message(what.to_owned());
    bar
}

/// A bar for shares of a whole, with a message beside it.
pub fn of_share(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    bar.set_style(style("[{bar:24}] {percent:>3}% {msg}"));
    bar
}

/// A bar for every stage of the work; the one that began last moves.
#[derive(Default)]
pub struct Bars(Mutex<Vec<ProgressBar>>);

impl Watch for Bars {
    fn begin(&self, what: &str, steps: u64, unit: Unit) {
        let bar = match unit {
            Unit::Bytes => of_bytes(steps, what),
            Unit::Steps => of_share(steps).with_message(what.to_owned()),
        };
        self.0.lock().expect("no panic").push(bar);
    }

    fn advance(&self, steps: u64) {
        if let Some(bar) = self.0.lock().expect("no panic").last() {
            bar.inc(steps);
        }
    }

    fn end(&self) {
        if let Some(bar) = self.0.lock().expect("no panic").pop() {
            bar.finish_and_clear();
        }
    }
}

/// An existing bar, moved by what a library does.
impl Watch for Moves<'_> {
    fn advance(&self, steps: u64) {
        self.0.inc(steps);
    }
}

/// A bar that somebody else made.
pub struct Moves<'b>(pub &'b ProgressBar);

/// A bar above, and one line of text for each name below it.
pub struct Board {
    bars: MultiProgress,
    above: ProgressBar,
    lines: Vec<ProgressBar>,
}

impl Board {
    /// `steps`: how many the bar above has.
    pub fn new(what: &str, steps: u64, lines: usize) -> Board {
        let bars = MultiProgress::new();
        let above = bars.add(ProgressBar::new(steps));
        above.set_style(style("{msg} [{bar:40}] {percent:>3}%"));
        above.set_message(what.to_owned());
        let line = || {
            let line = bars.add(ProgressBar::new_spinner());
            line.set_style(style("{msg}"));
            line
        };
        let lines = (0..lines).map(|_| line()).collect();
        Board { bars, above, lines }
    }

    /// Moves the bar above.
    pub fn advance_to(&self, step: u64) {
        self.above.set_position(step);
    }

    /// Replaces the text of a line.
    pub fn set_line(&self, line: usize, text: String) {
        self.lines[line].set_message(text);
    }

    /// Takes it off the screen.
    pub fn clear(self) {
        // A terminal that went away has nothing to be cleared.
        let _ = self.bars.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_right() {
        of_bytes(1, "file");
        of_share(1);
        let board = Board::new("cache", 1, 2);
        board.set_line(1, "text".to_owned());
        board.clear();
    }
}
