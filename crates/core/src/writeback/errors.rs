//! Writeback errors, kept until open files report them.
//!
//! Most writes are asynchronous, so an error is kept: each open file reports it once, from its next
//! sync, however many writes failed in between. If the file is not open any more, the next open
//! file reports it.
//!
//! Source: the kernel's `errseq_t` (Linux 4.13), without its wrap-around.

/// The error count of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorSequence {
    count: u64,
    /// Whether the last error was reported.
    reported: bool,
}

impl ErrorSequence {
    /// Counts an error.
    pub fn note(&mut self) {
        *self = ErrorSequence { count: self.count + 1, reported: false };
    }

    /// All errors so far.
    pub fn count(self) -> u64 {
        self.count
    }

    /// The reported errors of a newly opened file: all, unless the last one has not been reported.
    pub fn reported_at_open(self) -> u64 {
        if self.reported { self.count } else { self.count.saturating_sub(1) }
    }

    /// Whether there are errors that an open file has not reported. `reported` is the file's count
    /// of reported errors, which becomes current.
    pub fn report(&mut self, reported: &mut u64) -> bool {
        let is_new = *reported < self.count;
        if is_new {
            (*reported, self.reported) = (self.count, true);
        }
        is_new
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_open_handle_gets_an_error_once() {
        let mut errors = ErrorSequence::default();
        let (mut one, mut other) = (errors.reported_at_open(), errors.reported_at_open());
        assert!(!errors.report(&mut one));
        errors.note();
        errors.note();
        assert!(errors.report(&mut one) && !errors.report(&mut one));
        let mut late = errors.reported_at_open();
        assert!(!errors.report(&mut late), "it opened the file after a handle had reported the error");
        assert!(errors.report(&mut other) && !errors.report(&mut other));
        errors.note();
        assert!(errors.report(&mut one) && errors.report(&mut other) && errors.report(&mut late));
        assert_eq!(errors.count(), 3);
    }

    #[test]
    fn an_unreported_error_waits_for_the_next_handle() {
        let mut errors = ErrorSequence::default();
        errors.note();
        let (mut one, mut other) = (errors.reported_at_open(), errors.reported_at_open());
        assert!(errors.report(&mut one) && errors.report(&mut other));
    }
}
