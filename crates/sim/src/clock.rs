//! Virtual time and planned events.
//!
//! Time stands still while any actor acts, and jumps to the next event when none does. Simultaneous
//! events happen in the order in which they were planned, so that every run is the same.

use mglru_core::Time;
use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// The time of the simulated machine.
#[derive(Debug, Default)]
pub struct Clock(Cell<Time>);

impl Clock {
    /// The current time.
    #[inline]
    pub fn now(&self) -> Time {
        self.0.get()
    }

    /// Advances the time.
    ///
    /// # Panics
    /// If `to` is in the past.
    #[inline]
    pub fn advance(&self, to: Time) {
        assert!(to >= self.now(), "time went back from {:?} to {to:?}", self.now());
        self.0.set(to);
    }
}

#[derive(Debug)]
struct Planned<E> {
    at: Time,
    sequence: u64,
    event: E,
}

// Reversed, because `BinaryHeap` returns the greatest element and the earliest is needed.
impl<E> Ord for Planned<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<E> PartialOrd for Planned<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Planned<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Planned<E> {}

/// Planned events.
#[derive(Debug)]
pub struct Events<E> {
    planned: BinaryHeap<Planned<E>>,
    sequence: u64,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Events { planned: BinaryHeap::new(), sequence: 0 }
    }
}

impl<E> Events<E> {
    /// Plans an event.
    pub fn plan(&mut self, at: Time, event: E) {
        self.planned.push(Planned { at, sequence: self.sequence, event });
        self.sequence += 1;
    }

    /// Time of the next event.
    #[inline]
    pub fn next_time(&self) -> Option<Time> {
        self.planned.peek().map(|planned| planned.at)
    }

    /// Takes the next event that is due at `now`.
    pub fn take_due(&mut self, now: Time) -> Option<E> {
        if self.next_time()? > now {
            return None;
        }
        self.planned.pop().map(|planned| planned.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_planning() {
        let mut events = Events::default();
        for (at, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            events.plan(Time::from_nanos(at), event);
        }
        assert_eq!(events.next_time(), Some(Time::from_nanos(3)));
        let mut due =
            |now| -> String { std::iter::from_fn(|| events.take_due(Time::from_nanos(now))).collect() };
        assert_eq!([due(2), due(5), due(8), due(100)], ["", "abcd", "", "e"]);
        assert_eq!(events.next_time(), None);
    }

    #[test]
    #[should_panic(expected = "time went back")]
    fn time_does_not_go_back() {
        let clock = Clock::default();
        clock.advance(Time::from_nanos(2));
        clock.advance(Time::from_nanos(1));
    }
}
