//! Distributions of random accesses over the blocks of a file.
//!
//! They follow fio's `random_distribution`, so that a job hits as often here as under fio:
//!
//! * **uniform** (`random`): every block is equally likely and occurs once per pass; with
//!   `norandommap` each draw is independent.
//! * **zipf:θ**: the block of rank `r` (1 is the hottest) is drawn with a probability proportional
//!   to `1 / r^θ`.
//! * **pareto:h**: the self-similar distribution (the same paper). A share `1 - h` of the draws
//!   goes to the hottest `h` of the blocks, a share `1 - h` of these to the hottest `h` of those,
//!   and so on. `pareto:0.2` is 80-20.
//!
//! # Drawing a rank
//!
//! The method is that of Gray, Sundaresan, Englert, Baclawski and Weinberger, "Quickly generating
//! billion-record synthetic databases", SIGMOD 1994, section 3.2. The two hottest ranks are drawn
//! with their exact probabilities `1/ζ(n)` and `2^-θ/ζ(n)`. The others invert the continuous curve
//! that approximates the sum. A draw costs one power and no table. The derivation requires θ < 1;
//! fio applies the same formula above 1, and so does this file. θ = 1 divides by zero and is
//! refused.
//!
//! # From rank to block
//!
//! If rank 1 were block 0 and rank 2 block 1, all hot blocks would share a few neighbouring pages,
//! and readahead and locality would flatter the cache. fio multiplies the rank by a constant (2⁶⁴
//! over the squared golden ratio: multiplicative hashing, Knuth, TAOCP 3, §6.4), takes it modulo
//! the number of blocks, and rotates the result by a random offset per job. This file does the
//! same. Unless the number of blocks is a power of two, the hash is not a bijection: of 10,000
//! blocks only 4,822 are ever drawn (measured with fio 3.33, and here). A "better" scrambling would
//! double the working set and change hit ratios.

use crate::random::Random;

/// 2⁶⁴ / φ², odd: the hash multiplier.
const HASH_MULTIPLIER: u64 = 0x61C8_8646_80B5_83EB;

/// Number of terms after which fio stops summing ζ (files over 40 GB with 4 KiB blocks). This limit
/// is kept because the value of ζ decides how hot the hottest block is.
const ZETA_TERMS_MAX: u64 = 10_000_000;

/// Distribution of random accesses over the blocks of a file.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Distribution {
    /// Every block is equally likely and occurs once per pass. fio: `random`.
    #[default]
    Uniform,
    /// Every block is equally likely in each independent draw, so some repeat within a pass and
    /// others are missed. fio: `random` with `norandommap`.
    Independent,
    /// A few blocks get most accesses. fio: `zipf:θ`.
    Zipf {
        /// The skew: 0 is uniform over the blocks that the hash reaches, 0.99 the usual model of
        /// web and key-value traffic, above 1 very hot. At least 0, finite, not 1.
        theta: f64,
    },
    /// A few blocks get most accesses. fio: `pareto:h`.
    Pareto {
        /// The share of blocks that gets a share of `1 - h` of the accesses: 0.2 is 80-20. Between
        /// 0 and 1.
        h: f64,
    },
}

impl Distribution {
    /// The zipf distribution of skew `theta`, or `None` if `theta` is negative, infinite, NaN or
    /// exactly 1.
    pub fn zipf(theta: f64) -> Option<Self> {
        (theta.is_finite() && theta >= 0.0 && theta != 1.0).then_some(Self::Zipf { theta })
    }

    /// The pareto distribution of share `h`, or `None` unless `h` is between 0 and 1.
    pub fn pareto(h: f64) -> Option<Self> {
        (h > 0.0 && h < 1.0).then_some(Self::Pareto { h })
    }
}

/// Generator of skewed block numbers.
#[derive(Debug, Clone)]
pub(crate) struct Skewed {
    blocks: u64,
    /// Block of the hottest rank.
    hottest: u64,
    curve: Curve,
}

/// Method of drawing a rank.
#[derive(Debug, Clone)]
enum Curve {
    Zipf {
        zeta: f64,
        /// ζ(2). `zeta_two / zeta` is the share of the first two ranks.
        zeta_two: f64,
        eta: f64,
        alpha: f64,
    },
    /// The rank is `blocks · u^exponent` for a uniform `u`.
    Pareto { exponent: f64 },
}

impl Skewed {
    /// A zipf generator over `blocks` blocks, the hottest at a random place.
    pub fn zipf(theta: f64, blocks: u64, placement: &mut Random) -> Self {
        Self::zipf_of_terms(theta, blocks, blocks.min(ZETA_TERMS_MAX), placement)
    }

    /// A zipf generator whose ζ has all its terms, as in Gray et al. and YCSB.
    pub fn whole_zipf(theta: f64, blocks: u64, placement: &mut Random) -> Self {
        Self::zipf_of_terms(theta, blocks, blocks, placement)
    }

    fn zipf_of_terms(theta: f64, blocks: u64, terms: u64, placement: &mut Random) -> Self {
        assert!(blocks > 0, "a file has at least one block");
        assert!(Distribution::zipf(theta).is_some(), "theta {theta}");
        let zeta = zeta(terms, theta);
        let zeta_two = 1.0 + libm::pow(0.5, theta);
        let curve = Curve::Zipf {
            zeta,
            zeta_two,
            // NaN with one or two blocks, where it is never used.
            eta: (1.0 - libm::pow(2.0 / blocks as f64, 1.0 - theta)) / (1.0 - zeta_two / zeta),
            alpha: 1.0 / (1.0 - theta),
        };
        Self { blocks, hottest: placement.below(blocks), curve }
    }

    /// A pareto generator over `blocks` blocks, the hottest at a random place.
    pub fn pareto(h: f64, blocks: u64, placement: &mut Random) -> Self {
        assert!(blocks > 0, "a file has at least one block");
        assert!(Distribution::pareto(h).is_some(), "h {h}");
        let curve = Curve::Pareto { exponent: libm::log(h) / libm::log1p(-h) };
        Self { blocks, hottest: placement.below(blocks), curve }
    }

    /// The next block.
    pub fn block(&self, random: &mut Random) -> u64 {
        self.place(self.rank(random))
    }

    /// The next rank, from 0 for the hottest.
    pub(crate) fn rank(&self, random: &mut Random) -> u64 {
        let draw = random.unit();
        let share = match self.curve {
            Curve::Pareto { exponent } => libm::pow(draw, exponent),
            Curve::Zipf { zeta, .. } if draw * zeta < 1.0 || self.blocks == 1 => return 0,
            Curve::Zipf { zeta, zeta_two, .. } if draw * zeta < zeta_two || self.blocks == 2 => return 1,
            Curve::Zipf { eta, alpha, .. } => libm::pow(eta * draw - eta + 1.0, alpha),
        };
        ((self.blocks as f64 * share) as u64).min(self.blocks - 1)
    }

    /// Block number of a rank.
    fn place(&self, rank: u64) -> u64 {
        let scattered = rank.wrapping_mul(HASH_MULTIPLIER) % self.blocks;
        let to_end = self.blocks - self.hottest;
        if scattered < to_end { scattered + self.hottest } else { scattered - to_end }
    }
}

/// ζ(n, θ) = Σ 1/k^θ for k in 1..=n.
///
/// The first thousand terms are summed. The Euler–Maclaurin formula gives the rest with a first
/// neglected term below 10⁻¹⁵. This takes microseconds; ten million powers take a second.
fn zeta(terms: u64, theta: f64) -> f64 {
    const SUMMED: u64 = 1024;
    let term = |k: u64| libm::pow(k as f64, -theta);
    let head: f64 = (1..=terms.min(SUMMED)).map(term).sum();
    if terms <= SUMMED {
        return head;
    }
    let (from, to) = (SUMMED as f64, terms as f64);
    // ∫ x^-θ, in a form without cancellation when θ is close to 1.
    let exponent = 1.0 - theta;
    let integral = libm::pow(from, exponent) * libm::expm1(exponent * libm::log(to / from)) / exponent;
    let first_derivative = |x: f64| -theta * libm::pow(x, -theta - 1.0);
    // The sum over from..=to without its first term, which `head` includes.
    head + integral
        + (term(terms) - term(SUMMED)) / 2.0
        + (first_derivative(to) - first_derivative(from)) / 12.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws `draws` blocks and returns the counts, highest first.
    fn frequencies(theta: f64, blocks: u64, draws: u64, seed: u64) -> Vec<u64> {
        let zipf = Skewed::zipf(theta, blocks, &mut Random::stream(seed, 0));
        let mut random = Random::stream(seed, 1);
        let mut counts = vec![0; blocks as usize];
        (0..draws).for_each(|_| counts[zipf.block(&mut random) as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    }

    #[test]
    fn zeta_is_the_sum() {
        for theta in [0.0, 0.5, 0.99, 0.999_999, 1.2, 2.5] {
            for terms in [1, 2, 1024, 1025, 100_000] {
                let sum: f64 = (1..=terms).map(|k| (k as f64).powf(-theta)).sum();
                let ours = zeta(terms, theta);
                assert!((ours / sum - 1.0).abs() < 1e-11, "θ {theta}, {terms} terms: {ours}, not {sum}");
            }
        }
    }

    #[test]
    fn ranks_follow_the_law() {
        // The first two ranks are exact. Further down, the published approximation is within a few
        // percent of 1/r^θ for θ < 1, summed over ranges of ranks.
        let (theta, blocks, draws) = (0.99, 100_000u64, 2_000_000u64);
        let zipf = Skewed::zipf(theta, blocks, &mut Random::new(5));
        let mut random = Random::new(6);
        let mut counts = vec![0u64; blocks as usize];
        (0..draws).for_each(|_| counts[zipf.rank(&mut random) as usize] += 1);
        let zeta_all = zeta(blocks, theta);
        for (from, to, tolerance) in [(1, 1, 0.01), (2, 2, 0.02), (3, 100, 0.1), (101, 10_000, 0.05)] {
            let counted: u64 = counts[from - 1..to].iter().sum();
            let expected = (zeta(to as u64, theta)
                - if from > 1 { zeta(from as u64 - 1, theta) } else { 0.0 })
                / zeta_all
                * draws as f64;
            let ratio = counted as f64 / expected;
            assert!((ratio - 1.0).abs() < tolerance, "ranks {from}..={to}: {ratio} of the theory");
        }
    }

    #[test]
    fn hits_as_often_as_fio() {
        // Measured with fio 3.33 --ioengine=null --rw=randread --bs=4k --size=40000k
        // --io_size=1600m --random_distribution=zipf:θ --write_iolog, counting offsets of 409,600
        // accesses to 10,000 blocks: accesses to the hottest and second hottest block, shares of
        // the 100 and 1,000 hottest, and the number of distinct blocks.
        for (theta, first, second, top_100, top_1000, distinct) in [
            (0.5, 2133.0, 1504.0, 0.106_567, 0.427_998, 4822.0),
            (0.99, 40_415.0, 20_049.0, 0.534_368, 0.794_556, 4819.0),
            (1.2, 85_546.0, 37_319.0, 0.766_416, 0.920_186, 4704.0),
        ] {
            let counts = frequencies(theta, 10_000, 409_600, 89);
            let near = |ours: f64, fio: f64, tolerance: f64, what: &str| {
                assert!((ours / fio - 1.0).abs() < tolerance, "zipf:{theta} {what}: {ours}, fio {fio}");
            };
            let top = |n: usize| counts[..n].iter().sum::<u64>() as f64 / 409_600.0;
            // Four standard deviations of the difference of two samples.
            near(counts[0] as f64, first, 5.7 / f64::sqrt(first), "hottest");
            near(counts[1] as f64, second, 5.7 / f64::sqrt(second), "second");
            near(top(100), top_100, 0.02, "hottest 100");
            near(top(1000), top_1000, 0.01, "hottest 1000");
            near(counts.iter().filter(|&&count| count > 0).count() as f64, distinct, 0.01, "distinct");
        }
    }

    #[test]
    fn hot_blocks_lie_apart_where_fio_puts_them() {
        // fio 3.33, same job: the hottest blocks were 4297, 7428, 559 and 2074.
        let zipf = Skewed::zipf(0.99, 10_000, &mut Random::new(0));
        let from_hottest = |rank| (zipf.place(rank) + 10_000 - zipf.hottest) % 10_000;
        let of_fio = |block: i32| (block - 4297).rem_euclid(10_000) as u64;
        assert_eq!([1, 2, 3].map(from_hottest), [7428, 559, 2074].map(of_fio));
    }

    #[test]
    fn a_power_of_two_reaches_every_block() {
        let zipf = Skewed::zipf(0.5, 1 << 12, &mut Random::new(1));
        let places: std::collections::BTreeSet<_> = (0..1 << 12).map(|rank| zipf.place(rank)).collect();
        assert_eq!(places.len(), 1 << 12);
    }

    #[test]
    fn tiny_and_huge_files_stay_in_bounds() {
        for theta in [0.0, 0.5, 0.99, 1.2, 3.0] {
            for blocks in [1, 2, 3, 7, 1 << 40, u64::MAX] {
                let zipf = Skewed::zipf(theta, blocks, &mut Random::new(1));
                let mut random = Random::new(2);
                assert!((0..10_000).all(|_| zipf.block(&mut random) < blocks), "θ {theta}, {blocks} blocks");
            }
        }
    }

    #[test]
    fn pareto_is_self_similar_and_hits_as_often_as_fio() {
        let pareto = Skewed::pareto(0.2, 10_000, &mut Random::new(3));
        let mut random = Random::new(4);
        let draws = 409_600;
        let ranks: Vec<u64> = (0..draws).map(|_| pareto.rank(&mut random)).collect();
        let share = |below: u64| ranks.iter().filter(|&&rank| rank < below).count() as f64 / draws as f64;
        // The hottest 20 %, 4 % and 0.8 %, and the hottest block: fio 3.33 gave it 0.2759 of
        // 102,400 accesses.
        for (below, expected) in [(2000, 0.8), (400, 0.64), (80, 0.512), (1, 0.2759)] {
            assert!((share(below) - expected).abs() < 0.007, "{below}: {}", share(below));
        }
        assert!((0..10_000).all(|_| Skewed::pareto(0.9, 3, &mut Random::new(1)).block(&mut random) < 3));
    }

    #[test]
    fn impossible_skews_are_refused() {
        for theta in [1.0, -0.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Distribution::zipf(theta), None);
        }
        assert_eq!(Distribution::zipf(1.2), Some(Distribution::Zipf { theta: 1.2 }));
        for h in [0.0, 1.0, -0.2, f64::NAN] {
            assert_eq!(Distribution::pareto(h), None);
        }
    }
}
