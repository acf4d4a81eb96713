//! Errors of write-back, and who has to know of them.
//!
//! Nobody waits for most writes, so an error is kept until somebody asks: each open file tells it
//! once, from its next sync, however many failed in between; and if nobody had it open any more,
//! whoever opens the file next.
//!
//! Source: the kernel's `errseq_t` (Linux 4.13), without its wrap-around.

/// Errors of one file, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorSequence {
    count: u64,
    /// Somebody told of the last one.
    told: bool,
}

impl ErrorSequence {
    /// One more.
    pub fn note(&mut self) {
        *self = ErrorSequence { count: self.count + 1, told: false };
    }

    /// All errors so far.
    pub fn count(self) -> u64 {
        self.count
    }

    /// How many errors who opens the file now counts as told: all, unless nobody told of the last
    /// one.
    pub fn told_at_open(self) -> u64 {
        if self.told { self.count } else { self.count.saturating_sub(1) }
    }

    /// Whether there are errors that an open file has not told of, where `told` is what it has: now
    /// it has.
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
    fn everybody_who_was_there_hears_of_it_once() {
        let mut errors = ErrorSequence::default();
        let (mut one, mut other) = (errors.told_at_open(), errors.told_at_open());
        assert!(!errors.tell(&mut one));
        errors.note();
        errors.note();
        assert!(errors.tell(&mut one) && !errors.tell(&mut one));
        let mut late = errors.told_at_open();
        assert!(!errors.tell(&mut late), "it opened the file after somebody knew");
        assert!(errors.tell(&mut other) && !errors.tell(&mut other));
        errors.note();
        assert!(errors.tell(&mut one) && errors.tell(&mut other) && errors.tell(&mut late));
        assert_eq!(errors.count(), 3);
    }

    #[test]
    fn an_error_that_nobody_heard_of_waits_for_who_opens_the_file_next() {
        let mut errors = ErrorSequence::default();
        errors.note();
        let (mut one, mut other) = (errors.told_at_open(), errors.told_at_open());
        assert!(errors.tell(&mut one) && errors.tell(&mut other));
    }
}
