//! A reproducible random stream: splitmix64 (Steele, Lea and Flood 2014), seeded by the options.
//!
//! The core uses it where the kernel draws a random bin to spread reclaimers.

/// 2^64 divided by the golden ratio, and odd.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number below `below`, a power of two, uniformly distributed.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        debug_assert!(below.is_power_of_two());
        let drawn = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        drawn >> (u64::BITS - below.trailing_zeros()).min(63) & (below - 1)
    }
}

/// Spreads a word over 64 bits, by one step and the finaliser of splitmix64: every input bit
/// affects every output bit.
pub(crate) fn mix(word: u64) -> u64 {
    let z = word.wrapping_add(STEP);
    let z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_come_equally_often() {
        let mut random = Random::new(1);
        let mut counts = [0; 8];
        (0..8000).for_each(|_| counts[random.below(8) as usize] += 1);
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
        assert_eq!(random.below(1), 0);
    }
}
