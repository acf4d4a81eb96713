//! The token of a shadow.
//!
//! ```text
//! 41 ............ 30  29  28 ............................ 0
//! |  stamp        | untouched |  evictions from its list    |
//! ```
//!
//! The shadow's `workingset` bit says whether the page left from the main list.

use crate::folio::{STAMP_BITS, Stamp};
use crate::lru::evidence::TOKEN_BITS;

const EVICTIONS_BITS: u32 = TOKEN_BITS - STAMP_BITS - 1;
const EVICTIONS_MASK: u64 = (1 << EVICTIONS_BITS) - 1;
const UNTOUCHED: u64 = 1 << EVICTIONS_BITS;
const STAMP_SHIFT: u32 = EVICTIONS_BITS + 1;
/// Three times the pages of a memory must fit; otherwise a page evicted long ago would seem recent.
/// The limit is 682 GiB.
const _: () = assert!(EVICTIONS_BITS >= 29 && STAMP_SHIFT + STAMP_BITS == TOKEN_BITS);

/// The fields of a shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// Whether the page left from the main list.
    from_main: bool,
    /// Whether it was read ahead in vain: never accessed.
    untouched: bool,
    /// The time it was last found accessed, or brought in.
    stamp: Stamp,
    /// Earlier evictions from that list; the low bits.
    evictions: u64,
}

impl Memory {
    /// For a page that is evicted now.
    pub(super) fn new(from_main: bool, untouched: bool, stamp: Stamp, evictions: u64) -> Memory {
        Memory { from_main, untouched, stamp, evictions: evictions & EVICTIONS_MASK }
    }

    /// The token, without `from_main`.
    pub(super) fn token(self) -> u64 {
        let untouched = if self.untouched { UNTOUCHED } else { 0 };
        self.stamp.value() << STAMP_SHIFT | untouched | self.evictions
    }

    /// The fields of a token.
    pub(super) fn from_token(from_main: bool, token: u64) -> Memory {
        Memory {
            from_main,
            untouched: token & UNTOUCHED != 0,
            stamp: Stamp::new(token >> STAMP_SHIFT),
            evictions: token & EVICTIONS_MASK,
        }
    }

    pub(super) fn left_main(self) -> bool {
        self.from_main
    }

    pub(super) fn untouched(self) -> bool {
        self.untouched
    }

    pub(super) fn stamp(self) -> Stamp {
        self.stamp
    }

    /// Evictions from that list since, if there were `evictions` until now.
    pub(super) fn evictions_since(self, evictions: u64) -> u64 {
        evictions.wrapping_sub(self.evictions) & EVICTIONS_MASK
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn tokens_keep_everything() {
        for (from_main, untouched) in [(false, false), (false, true), (true, false), (true, true)] {
            for (stamp, evictions) in [(0, 0), (7, 1), (Stamp::new(u64::MAX).value(), EVICTIONS_MASK)] {
                let memory = Memory::new(from_main, untouched, Stamp::new(stamp), evictions);
                assert!(memory.token() < 1 << TOKEN_BITS);
                assert_eq!(Memory::from_token(from_main, memory.token()), memory);
            }
        }
    }

    #[test]
    fn evictions_are_counted_around_the_end_of_the_clock() {
        let memory = Memory::new(true, false, Stamp::new(3), EVICTIONS_MASK - 1);
        assert_eq!(memory.evictions_since(EVICTIONS_MASK + 4), 5);
        assert_eq!(memory.evictions_since(EVICTIONS_MASK - 1), 0);
    }
}
