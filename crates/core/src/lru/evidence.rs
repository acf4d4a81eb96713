//! Evidence about the use of a page: accessed bits, shadows of evicted pages, refault distances.
//!
//! A shadow word takes the place of an evicted page in its slot:
//!
//! ```text
//! 62 ............................ 21 20 ........ 1  0
//! |  token: the policy's          |  memcg      | workingset |
//! ```
//!
//! It has 63 bits, because the slot's tag takes one, and no node bits, because the engine has one
//! node ([book: refaults#shadow-layout] with NODE_BITS = 0). The token belongs to the policy that
//! wrote it: see `refault.rs` of each.

use crate::memcg::MemcgId;

const MEMCG_BITS: u32 = MemcgId::BITS;
pub(super) const TOKEN_BITS: u32 = 63 - 1 - MEMCG_BITS;
pub(super) const TOKEN_MASK: u64 = (1 << TOKEN_BITS) - 1;
/// Bits for accesses in a token of the multi-gen LRU.
pub(super) const TOKEN_REFS_BITS: u32 = 2;

/// A shadow word, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Shadow {
    /// The memcg that the page was charged to.
    pub memcg: MemcgId,
    /// Whether the page had been proved hot.
    pub workingset: bool,
    /// The eviction time by the policy's clock. Multi-gen: the oldest generation at eviction, and
    /// in the low bits the accesses − 1. Classic: the reading of the memcg's clock.
    pub token: u64,
}

impl Shadow {
    /// The shadow as a word of 63 bits.
    pub fn pack(self) -> u64 {
        self.token << (1 + MEMCG_BITS) | u64::from(self.memcg.0) << 1 | u64::from(self.workingset)
    }

    /// The parts of a shadow word.
    pub fn unpack(word: u64) -> Shadow {
        Shadow {
            memcg: MemcgId((word >> 1) as u32 & ((1 << MEMCG_BITS) - 1)),
            workingset: word & 1 != 0,
            token: word >> (1 + MEMCG_BITS),
        }
    }

    /// The oldest generation at eviction, truncated to the bits it has.
    pub fn seq(self) -> u64 {
        self.token >> TOKEN_REFS_BITS
    }
}

/// The distance of a refault, and the reach within which it is recent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Distance {
    /// Generations from the oldest at eviction to the youngest now; before the working-set rework,
    /// to the oldest now. Classic: pages evicted and activated since, by the clock.
    pub passed: u64,
    /// Three generations; before the rework, none. Classic: pages on the other lists, which could
    /// have made room.
    pub reach: u64,
}

impl Distance {
    /// Whether the distance is within reach.
    pub fn is_recent(self) -> bool {
        self.passed <= self.reach
    }
}

/// Result of reading a mapped folio's accessed bits ([book: access#young-in-eviction]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum References {
    /// Not young.
    None,
    /// Young for the first time.
    First,
    /// Young again.
    Again,
}
