//! How far the work is, and whether it shall go on.

use crate::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Hears how far the work is. Threads that work side by side call it at the same time.
///
/// Stages may lie in each other: what is told is about the one that began last and has not ended.
///
/// ```
/// use mglru_lab::{Stage, Unit, Watch};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// /// Ends the work after three steps.
/// struct Three(AtomicU64);
///
/// impl Watch for Three {
///     fn advance(&self, steps: u64) {
///         self.0.fetch_add(steps, Relaxed);
///     }
///     fn is_cancelled(&self) -> bool {
///         self.0.load(Relaxed) >= 3
///     }
/// }
///
/// let watch = Three(AtomicU64::new(0));
/// let stage = Stage::begin(&watch, "counting", 10, Unit::Steps);
/// let done = (0..10).take_while(|_| stage.advance(1).is_ok()).count();
/// assert_eq!(done, 2, "the third step is told that it was the last");
/// ```
pub trait Watch: Sync {
    /// Part of the work begins: its name, and how many steps it takes.
    fn begin(&self, _what: &str, _steps: u64, _unit: Unit) {}

    /// So many more steps are done.
    fn advance(&self, _steps: u64) {}

    /// The part that began last is over.
    fn end(&self) {}

    /// Whether the work shall end early, with [`Error::Cancelled`].
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// What the steps of a stage are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Parts of a whole.
    Steps,
    /// Bytes read or written.
    Bytes,
}

/// Nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// Part of the work, which ends when this is dropped.
pub struct Stage<'w> {
    watch: &'w dyn Watch,
    steps: u64,
    done: AtomicU64,
}

impl<'w> Stage<'w> {
    /// Begins.
    pub fn begin(watch: &'w dyn Watch, what: &str, steps: u64, unit: Unit) -> Stage<'w> {
        watch.begin(what, steps, unit);
        Stage { watch, steps, done: AtomicU64::new(0) }
    }

    /// So many more steps are done.
    ///
    /// # Errors
    /// [`Error::Cancelled`]: whoever watches wants no more.
    pub fn advance(&self, steps: u64) -> Result<(), Error> {
        self.watch.advance(steps);
        if self.watch.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// That share of the steps, 0 to 1, is done. A share below an earlier one changes nothing.
    ///
    /// # Errors
    /// As [`Stage::advance`].
    pub fn advance_to(&self, share: f64) -> Result<(), Error> {
        let done = (share * self.steps as f64) as u64;
        let before = self.done.fetch_max(done, Relaxed);
        self.advance(done.saturating_sub(before))
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.watch.end();
    }
}
