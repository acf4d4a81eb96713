//! The clock of an lruvec: pages brought in, counted in generations of a quarter of its memory.
//!
//! A stamp is the generation in which a page was last found accessed, or brought in. Stamps are
//! only compared by age, so neither the unit nor its change with the size of memory matters.

use super::constants::{GENERATIONS_PER_MEMORY, PERIOD_SHIFT};
use crate::folio::{STAMP_BITS, Stamp};

/// Generations that stamps can distinguish. After so many, some 1,000 turnovers of memory, an old
/// page looks young for equally long, at the price of a few wrong refusals.
const GENERATIONS: u64 = 1 << STAMP_BITS;

/// A reading of the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock {
    /// Pages brought in.
    pages: u64,
    /// The value of `pages` when the generation began.
    begun: u64,
    /// Number of the generation.
    generation: u64,
}

impl Clock {
    pub(super) fn new(pages: u64, begun: u64, generation: u64) -> Clock {
        Clock { pages, begun, generation }
    }

    /// The fields: `pages`, `begun`, `generation`.
    pub(super) fn words(self) -> (u64, u64, u64) {
        (self.pages, self.begun, self.generation)
    }

    /// Pages per generation, in a memory of `memory_pages`.
    pub(super) fn unit(memory_pages: u64) -> u64 {
        (memory_pages / GENERATIONS_PER_MEMORY).max(1)
    }

    /// The clock after one more page was brought in.
    pub(super) fn tick(self, memory_pages: u64) -> Clock {
        let pages = self.pages + 1;
        if pages - self.begun < Clock::unit(memory_pages) {
            return Clock { pages, ..self };
        }
        Clock { pages, begun: pages, generation: self.generation + 1 }
    }

    /// The next generation begins.
    pub(super) fn next_generation(self) -> Clock {
        Clock { begun: self.pages, generation: self.generation + 1, ..self }
    }

    /// The stamp of the current generation.
    pub(super) fn stamp(self) -> Stamp {
        Stamp::new(self.generation)
    }

    /// Generations since `then`.
    pub(super) fn age(self, then: Stamp) -> u64 {
        self.generation.wrapping_sub(then.value()) % GENERATIONS
    }

    /// Pages brought in since the generation of `then` began.
    pub(super) fn age_pages(self, then: Stamp, memory_pages: u64) -> u64 {
        // A refault reads the words without the lists' lock: a generation may begin meanwhile.
        self.age(then) * Clock::unit(memory_pages) + self.pages.saturating_sub(self.begun)
    }

    /// The stamp of this age in generations, or the oldest that can be distinguished.
    pub(super) fn stamp_of_age(self, age: u64) -> Stamp {
        Stamp::new(self.generation.wrapping_sub(age.min(GENERATIONS - 1)))
    }

    /// The stamp midway between `then` and now.
    pub(super) fn midway(self, then: Stamp) -> Stamp {
        self.stamp_of_age(self.age(then).div_ceil(2))
    }
}

/// The period of the main list: pages brought in, on average, until one of its pages is found
/// accessed again or leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period(u64);

impl Period {
    /// The value before any page was observed.
    pub(super) const UNKNOWN: Period = Period(u64::MAX);

    pub(super) fn from_word(word: u64) -> Period {
        Period(word)
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// The average after one more observation of `age_pages`.
    pub(super) fn seen(self, age_pages: u64) -> Period {
        let age_pages = age_pages.min(1 << 48);
        if self == Period::UNKNOWN {
            return Period(age_pages << PERIOD_SHIFT);
        }
        Period(self.0 - (self.0 >> PERIOD_SHIFT) + age_pages)
    }

    /// The part of `pages` left after `age_pages` without use: zero after a whole period.
    pub(super) fn discounted(self, pages: u64, age_pages: u64) -> u64 {
        if self == Period::UNKNOWN {
            return pages;
        }
        let period = self.0 >> PERIOD_SHIFT;
        if age_pages >= period {
            return 0;
        }
        (u128::from(pages) * u128::from(period - age_pages) / u128::from(period)) as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_a_quarter_of_memory() {
        let clock = (0..100).fold(Clock::default(), |clock, _| clock.tick(100));
        assert_eq!(clock.words(), (100, 100, 4));
        let clock = (0..30).fold(clock, |clock, _| clock.tick(100));
        assert_eq!((clock.words(), clock.age(Stamp::new(1))), ((130, 125, 5), 4));
        assert_eq!(
            clock.age_pages(Stamp::new(1), 100),
            105,
            "four generations of 25, and 5 pages of this one"
        );
        // A very small memory has generations of one page.
        assert_eq!((0..3).fold(Clock::default(), |clock, _| clock.tick(1)).words(), (3, 3, 3));
    }

    #[test]
    fn ages_are_distinguished_within_the_range() {
        let clock = Clock::new(0, 0, GENERATIONS + 5);
        assert_eq!(clock.age(clock.stamp()), 0);
        for age in [0, 1, 7, GENERATIONS - 1] {
            assert_eq!(clock.age(clock.stamp_of_age(age)), age);
        }
        assert_eq!(clock.age(clock.stamp_of_age(GENERATIONS * 3)), GENERATIONS - 1);
    }

    #[test]
    fn midway_is_younger_than_then() {
        let clock = Clock::new(0, 0, 10);
        let age = |age| clock.age(clock.midway(clock.stamp_of_age(age)));
        assert_eq!([0, 1, 2, 5, 8].map(age), [0, 1, 1, 3, 4]);
    }

    #[test]
    fn the_period_is_an_average_of_64() {
        assert_eq!(Period::UNKNOWN.seen(100), Period(6400));
        assert_eq!(Period(6400).seen(164), Period(6464));
        let settled = (0..1000).fold(Period(6400), |period, _| period.seen(500));
        assert!((499..=500).contains(&(settled.0 >> PERIOD_SHIFT)), "{settled:?}");
    }

    /// "0.5 N · (1 − (T − stamp) / rev)".
    #[test]
    fn returns_after_a_long_absence_are_discounted() {
        let period = Period::UNKNOWN.seen(100);
        assert_eq!([0, 25, 50, 99, 100, 1000].map(|age| period.discounted(60, age)), [60, 45, 30, 0, 0, 0]);
        assert_eq!(Period::UNKNOWN.discounted(60, 1 << 40), 60);
        assert_eq!(Period::UNKNOWN.seen(0).discounted(60, 0), 0, "a period of nothing discounts all");
    }
}
