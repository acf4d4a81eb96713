//! Progress of the work, and its cancellation.

use crate::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Receives the progress of the work. Threads that work in parallel call it concurrently.
///
/// Stages may be nested. Steps then belong to the innermost open stage.
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
/// assert_eq!(done, 2, "the third step returns that the work is cancelled");
/// ```
pub trait Watch: Sync {
    /// A stage begins, with its name and number of steps.
    fn begin(&self, _what: &str, _steps: u64, _unit: Unit) {}

    /// `steps` more steps are done.
    fn advance(&self, _steps: u64) {}

    /// A line of text about the innermost stage; it replaces the previous line.
    fn note(&self, _text: &str) {}

    /// The innermost stage has ended.
    fn end(&self) {}

    /// Whether to end the work early with [`Error::Cancelled`].
    fn is_cancelled(&self) -> bool {
        false
    }

    /// Ends the work early if that is wanted.
    ///
    /// # Errors
    /// [`Error::Cancelled`].
    fn check(&self) -> Result<(), Error> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

/// Unit of the steps of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Parts of the whole.
    Steps,
    /// Bytes read or written.
    Bytes,
}

/// A [`Watch`] that ignores progress and never cancels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// A [`Watch`] of tests, which cancels the work after so many looks: with 0 at once.
#[cfg(test)]
pub(crate) struct CancelAfter(AtomicU64);

#[cfg(test)]
impl CancelAfter {
    pub(crate) fn looks(looks: u64) -> CancelAfter {
        CancelAfter(AtomicU64::new(looks))
    }
}

#[cfg(test)]
impl Watch for CancelAfter {
    fn is_cancelled(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err()
    }
}

/// A [`Watch`] of a part of the work: it passes on whether to cancel, and ignores progress.
pub struct Quiet<'w>(pub &'w dyn Watch);

impl Watch for Quiet<'_> {
    fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// A stage of the work. It ends when this value is dropped.
pub struct Stage<'w> {
    watch: &'w dyn Watch,
    steps: u64,
    done: AtomicU64,
}

impl<'w> Stage<'w> {
    /// Begins a stage of `steps` steps.
    pub fn begin(watch: &'w dyn Watch, what: &str, steps: u64, unit: Unit) -> Stage<'w> {
        watch.begin(what, steps, unit);
        Stage { watch, steps, done: AtomicU64::new(0) }
    }

    /// Reports `steps` more steps.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the watch cancelled the work.
    pub fn advance(&self, steps: u64) -> Result<(), Error> {
        self.watch.advance(steps);
        self.watch.check()
    }

    /// Reports that a share of the steps, 0 to 1, is done. A share below an earlier one changes
    /// nothing.
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
