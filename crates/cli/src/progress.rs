//! Progress bars on stderr, drawn only if it is a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use mglru_lab::{Unit, Watch};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

/// Time between updates of figures on the screen.
pub const TICK: Duration = Duration::from_millis(250);

/// Whether stderr is a terminal.
pub fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).expect("templates are constant and tested");
    style.progress_chars("=> ")
}

/// A bar for `bytes` that are being written, with the rate and the remaining time.
pub fn of_bytes(bytes: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    bar.set_style(style("{msg} [{bar:30}] {bytes}/{total_bytes} {binary_bytes_per_sec} eta {eta}"));
    bar.set_message(what.to_owned());
    bar
}

/// A bar in percent, with a message beside it.
pub fn of_share(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    bar.set_style(style("[{bar:24}] {percent:>3}% {msg}"));
    bar
}

/// A bar per stage of the work; the bar of the latest stage moves.
#[derive(Default)]
pub struct Bars(Mutex<Vec<ProgressBar>>);

impl Bars {
    /// Prints something while no bar is on the screen.
    pub fn hidden<R>(&self, print: impl FnOnce() -> R) -> R {
        let bar = self.0.lock().expect("no panic").last().cloned();
        match bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

impl Watch for Bars {
    fn begin(&self, what: &str, steps: u64, unit: Unit) {
        let bar = match unit {
            Unit::Bytes => of_bytes(steps, what),
            Unit::Steps => of_share(steps).with_message(what.to_owned()),
        };
        // Also a stage whose first step takes long is on the screen.
        bar.tick();
        self.0.lock().expect("no panic").push(bar);
    }

    fn advance(&self, steps: u64) {
        if let Some(bar) = self.0.lock().expect("no panic").last() {
            bar.inc(steps);
        }
    }

    fn note(&self, text: &str) {
        if let Some(bar) = self.0.lock().expect("no panic").last() {
            bar.set_message(text.to_owned());
        }
    }

    fn end(&self) {
        if let Some(bar) = self.0.lock().expect("no panic").pop() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_right() {
        of_bytes(1, "file");
        of_share(1);
    }
}
