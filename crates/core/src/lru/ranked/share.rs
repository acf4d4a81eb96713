//! The newcomers' share of memory: as many pages as they earn.
//!
//! A newcomer that soon returns would have stayed in a longer list of newcomers; a page that soon
//! returns after it left the main list, in a longer main list. Each such refault moves the share by
//! a step, and steps in one direction grow.

use super::constants::{
    MAIN_WEIGHT, REFUSALS_PER_STEP, RUN_PER_STEP, SHARE_PERCENT, SHARE_PERCENT_MAX, SHARE_PERCENT_MIN,
    STEPS_MAX,
};

/// Bits of the share: a fraction, so that it follows the size of memory.
const FRACTION_BITS: u32 = 48;
const ONE: u64 = 1 << FRACTION_BITS;

const fn percent(percent: u64) -> u64 {
    ONE / 100 * percent
}

/// Evidence about the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// A newcomer was evicted too early.
    Larger,
    /// A page of the main list was evicted too early.
    Smaller,
    /// The main list refused a page as too old.
    Refused,
}

/// The rules of the share that are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShareRules {
    /// The share moves at all.
    pub(super) adapts: bool,
    /// Refusals count.
    pub(super) refusals: bool,
    /// Steps in one direction grow.
    pub(super) momentum: bool,
}

/// The newcomers' share of memory, and its last run of signals in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// In units of 2^-48.
    fraction: u64,
    /// Length of the run; positive: signals to grow.
    run: i16,
}

impl Share {
    /// The share before any signal.
    pub(super) const START: Share = Share { fraction: percent(SHARE_PERCENT), run: 0 };

    /// The share as one word, for atomic changes.
    pub(super) fn pack(self) -> u64 {
        self.fraction | u64::from(self.run as u16) << FRACTION_BITS
    }

    /// The fields of the word.
    pub(super) fn unpack(word: u64) -> Share {
        Share { fraction: word & (ONE - 1), run: (word >> FRACTION_BITS) as i16 }
    }

    /// The newcomers' pages in a memory of this size: at least one.
    pub(super) fn pages(self, memory_pages: u64) -> u64 {
        let scaled = u128::from(self.fraction) * u128::from(memory_pages);
        ((scaled + u128::from(ONE / 2)) >> FRACTION_BITS).max(1) as u64
    }

    /// The share in percent of memory.
    pub(super) fn percent(self) -> u64 {
        (self.fraction * 100 + ONE / 2) / ONE
    }

    /// The share after a signal, in a memory of this size.
    pub(super) fn after(self, signal: Signal, memory_pages: u64, rules: ShareRules) -> Share {
        if !rules.adapts || signal == Signal::Refused && !rules.refusals {
            return self;
        }
        let page = ONE / memory_pages.max(1);
        if signal == Signal::Refused {
            return self.moved(-((page / REFUSALS_PER_STEP) as i64));
        }
        let direction = if signal == Signal::Larger { 1 } else { -1 };
        let run =
            if i32::from(self.run) * i32::from(direction) < 0 { direction } else { self.run + direction };
        // Longer runs have no further effect.
        let run_max = (RUN_PER_STEP * STEPS_MAX) as i16;
        let run = run.clamp(-run_max, run_max);
        // In parts of a page.
        let step = if rules.momentum { RUN_PER_STEP + u32::from(run.unsigned_abs()) } else { RUN_PER_STEP };
        let step = u64::from(step) * page / u64::from(RUN_PER_STEP);
        let change = if signal == Signal::Larger { step as i64 } else { -((step * MAIN_WEIGHT) as i64) };
        Share { run, ..self }.moved(change)
    }

    fn moved(self, change: i64) -> Share {
        let fraction = self.fraction.saturating_add_signed(change);
        Share { fraction: fraction.clamp(percent(SHARE_PERCENT_MIN), percent(SHARE_PERCENT_MAX)), ..self }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ALL: ShareRules = ShareRules { adapts: true, refusals: true, momentum: true };

    fn pages_after(signals: &[(Signal, usize)], rules: ShareRules) -> u64 {
        let signals = signals.iter().flat_map(|&(signal, times)| std::iter::repeat_n(signal, times));
        signals.fold(Share::START, |share, signal| share.after(signal, 10_000, rules)).pages(10_000)
    }

    /// Newcomers weigh one, pages of the main list two, refusals a fifth.
    #[test]
    fn signals_have_different_weights() {
        let plain = ShareRules { momentum: false, ..ALL };
        assert_eq!(pages_after(&[], plain), 500);
        assert_eq!(pages_after(&[(Signal::Larger, 10)], plain), 510);
        assert_eq!(pages_after(&[(Signal::Smaller, 10)], plain), 480);
        assert_eq!(pages_after(&[(Signal::Refused, 10)], plain), 498);
    }

    /// `step = 1 + min(run / 8, 7)`; a signal in the other direction begins a new run.
    #[test]
    fn runs_make_larger_steps() {
        // 64 + (1 + 2 + … + 56) / 8 + 8 × 7, rounded down.
        assert_eq!(pages_after(&[(Signal::Larger, 64)], ALL), 500 + 64 + 199 + 56);
        let long = pages_after(&[(Signal::Larger, 300)], ALL);
        assert_eq!(pages_after(&[(Signal::Larger, 400)], ALL) - long, 100 * 8);
        assert_eq!(pages_after(&[(Signal::Larger, 300), (Signal::Smaller, 1)], ALL), long - 2);
    }

    #[test]
    fn neither_list_is_ever_without_pages() {
        assert_eq!(pages_after(&[(Signal::Smaller, 100_000)], ALL), 100);
        assert_eq!(pages_after(&[(Signal::Larger, 100_000)], ALL), 9900);
        assert_eq!((Share::START.pages(3), Share::START.pages(0)), (1, 1));
    }

    /// When memory shrinks or grows, the share follows at once.
    #[test]
    fn the_share_is_a_fraction() {
        let share = (0..500).fold(Share::START, |share, _| share.after(Signal::Larger, 1000, ALL));
        assert_eq!((share.pages(1000), share.pages(10_000), share.percent()), (990, 9900, 99));
    }

    #[test]
    fn rules_can_be_off() {
        let signals = [(Signal::Larger, 100), (Signal::Refused, 100)];
        assert_eq!(pages_after(&signals, ShareRules { adapts: false, ..ALL }), 500);
        let with = pages_after(&signals, ALL);
        assert_eq!(pages_after(&signals, ShareRules { refusals: false, ..ALL }), with + 20);
    }

    #[test]
    fn the_share_fits_one_word() {
        for signals in [[(Signal::Larger, 70)], [(Signal::Smaller, 70)]] {
            let signals = std::iter::repeat_n(signals[0].0, signals[0].1);
            let share = signals.fold(Share::START, |share, signal| share.after(signal, 500, ALL));
            assert_eq!(Share::unpack(share.pack()), share);
        }
    }
}
