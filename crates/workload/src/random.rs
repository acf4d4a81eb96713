//! Deterministic random numbers from a seed.
//!
//! Every run must be repeatable: the same job with the same seed touches the same blocks in the
//! same order on every machine. This module therefore uses neither clocks nor threads nor the
//! system's entropy.
//!
//! The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", OOPSLA 2014). It is six lines, passes BigCrush, and accepts any 64-bit state, so
//! streams can be opened freely. A dependency could change its numbers in a later version.

/// Increment of the state: 2⁶⁴ divided by the golden ratio, made odd.
pub const INCREMENT: u64 = 0x9E37_79B9_7F4A_7C15;

/// Mixes a word so that every input bit can change every output bit. A bijection.
#[inline]
pub fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// A deterministic source of random numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The generator of `seed`. Every seed is equally good, including 0.
    pub fn new(seed: u64) -> Self {
        Self { state: mix(seed.wrapping_add(INCREMENT)) }
    }

    /// Stream number `stream` of `seed`. Use one stream per job, or per kind of choice within a
    /// job, so that more draws of one kind do not change another.
    pub fn stream(seed: u64, stream: u64) -> Self {
        // The stream number is mixed before it is combined with the seed, so that (seed, 1) and
        // (seed + 1, 0) differ.
        Self::new(mix(seed.wrapping_add(INCREMENT)) ^ mix(stream.wrapping_mul(INCREMENT) ^ 0xD1B5_4A32))
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(INCREMENT);
        mix(self.state)
    }

    /// Skips so many numbers.
    #[inline]
    pub fn skip(&mut self, numbers: u64) {
        self.state = self.state.wrapping_add(INCREMENT.wrapping_mul(numbers));
    }

    /// A uniform number in `0..bound`, with a bias of at most `bound / 2⁶⁴`. No workload is long
    /// enough to show the bias.
    ///
    /// # Panics
    /// If `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound is positive");
        // The high half of the product maps the draw onto the range without a division (Lemire,
        // 2019).
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `0.0..1.0` with 53 random bits.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        // First outputs of the published reference implementation for the state 1234567.
        let mut random = Random { state: 1_234_567 };
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
        assert_eq!(random.next_u64(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn skipped_numbers_are_not_drawn() {
        let (mut drawn, mut skipped) = (Random::new(5), Random::new(5));
        for _ in 0..1000 {
            drawn.next_u64();
        }
        skipped.skip(1000);
        assert_eq!(drawn, skipped);
    }

    #[test]
    fn a_seed_repeats_and_streams_differ() {
        let draw = |mut random: Random| (0..8).map(|_| random.next_u64()).collect::<Vec<_>>();
        assert_eq!(draw(Random::stream(7, 3)), draw(Random::stream(7, 3)));
        let mut all: Vec<_> =
            (0..10).flat_map(|seed| (0..10).map(move |stream| draw(Random::stream(seed, stream)))).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 100);
    }

    #[test]
    fn below_is_even_and_within_bounds() {
        let mut random = Random::new(1);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
        }
        // 10,000 expected each; five standard deviations are 5 × √(100,000 × 0.1 × 0.9) = 474.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 474), "{counts:?}");
        assert_eq!(random.below(1), 0);
    }

    #[test]
    fn unit_stays_below_one() {
        let mut random = Random::new(2);
        let draws: Vec<f64> = (0..100_000).map(|_| random.unit()).collect();
        assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
    }
}
