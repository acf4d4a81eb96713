//! What is known of the use of a page: what its accessed bit said, what is remembered after it was
//! evicted, and how long ago that was.
//!
//! A shadow word takes the place of an evicted page in its slot:
//!
//! ```text
//! 62 ............................ 21 20 ........ 1  0
//! |  token: the policy's          |  memcg      | workingset |
//! ```
//!
//! 63 bits: the slot's tag takes one. There are no node bits, as there is one node
//! ([book: refaults#shadow-layout] with NODE_BITS = 0). What the token says is the business of the
//! policy that wrote it: see `refault.rs` of each.

use crate::memcg::MemcgId;

const MEMCG_BITS: u32 = MemcgId::BITS;
/// Bits of a token.
pub(super) const TOKEN_BITS: u32 = 63 - 1 - MEMCG_BITS;
/// The bits that a token has.
pub(super) const TOKEN_MASK: u64 = (1 << TOKEN_BITS) - 1;
/// Bits of a token of the multi-gen LRU that are for accesses.
pub(super) const TOKEN_REFS_BITS: u32 = 2;

/// A shadow word, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// Whose page it was.
    pub memcg: MemcgId,
    /// It had been proved hot.
    pub workingset: bool,
    /// When it was evicted, by the clock of the policy: oldest generation at eviction (low bits),
    /// and the accesses − 1; classic, the reading of the memcg's clock.
    pub token: u64,
}

impl Shadow {
    /// The word, 63 bits.
    pub fn pack(self) -> u64 {
        self.token << (1 + MEMCG_BITS) | u64::from(self.memcg.0) << 1 | u64::from(self.workingset)
    }

    /// The parts of a word.
    pub fn unpack(word: u64) -> Shadow {
        Shadow {
            memcg: MemcgId((word >> 1) as u32 & ((1 << MEMCG_BITS) - 1)),
            workingset: word & 1 != 0,
            token: word >> (1 + MEMCG_BITS),
        }
    }

    /// The oldest generation when the page was evicted, truncated to the bits that there are for
    /// it.
    pub fn seq(self) -> u64 {
        self.token >> TOKEN_REFS_BITS
    }
}

/// How long ago a page was evicted that is back, and within what reach that is recent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Distance {
    /// Generations from the oldest at its eviction to the youngest now; before the working-set
    /// rework, to the oldest now. Classic: pages evicted and activated since, by the clock.
    pub passed: u64,
    /// Three generations; before the rework, none. Classic: pages on the other lists, which could
    /// have made room.
    pub reach: u64,
}

impl Distance {
    /// Whether the page is back soon enough.
    pub fn is_recent(self) -> bool {
        self.passed <= self.reach
    }
}

/// What the accessed bits of a mapped folio said ([book: access#young-in-eviction]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum References {
    /// Not young.
    None,
    /// Young for the first time.
    First,
    /// Young again.
    Again,
}
