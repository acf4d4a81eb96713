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
    told: bool,
}

impl ErrorSequence {
    /// Counts an error.
    pub fn note(&mut self) {
        *self = ErrorSequence { count: self.count + 1, told: false };
    }

    /// All errors so far.
    pub fn count(self) -> u64 {
        self.count
    }

    /// The reported errors of a newly opened file: all, unless the last one has not been reported.
    pub fn told_at_open(self) -> u64 {
        if self.told { self.count } else { self.count.saturating_sub(1) }
    }

    /// Whether there are errors that an open file has not reported. `told` is the file's count of
    /// reported errors, which becomes current.
    pub fn tell(&mut self, told: &mut u64) -> bool {
        let tells = *told < self.count;
        if tells {
            (*told, self.told) = (self.count, true);
        }
        tells
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_open_handle_gets_an_error_once() {
        let mut errors = ErrorSequence::default();
        let (mut one, mut other) = (errors.told_at_open(), errors.told_at_open());
        assert!(!errors.tell(&mut one));
        errors.note();
        errors.note();
        assert!(errors.tell(&mut one) && !errors.tell(&mut one));
        let mut late = errors.told_at_open();
        assert!(!errors.tell(&mut late), "it opened the file after a handle had reported the error");
        assert!(errors.tell(&mut other) && !errors.tell(&mut other));
        errors.note();
        assert!(errors.tell(&mut one) && errors.tell(&mut other) && errors.tell(&mut late));
        assert_eq!(errors.count(), 3);
    }

    #[test]
    fn an_unreported_error_waits_for_the_next_handle() {
        let mut errors = ErrorSequence::default();
        errors.note();
        let (mut one, mut other) = (errors.told_at_open(), errors.told_at_open());
        assert!(errors.tell(&mut one) && errors.tell(&mut other));
    }
}
