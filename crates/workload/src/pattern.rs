//! From a job's description to its stream of accesses.
//!
//! What fio means, measured with fio 3.33 where its manual is silent:
//!
//! * Blocks are whole and aligned; what is left at the end of a file after the last whole block is not
//!   touched.
//! * A job of `size` bytes ends after it has transferred `size` bytes, reads and writes together. With
//!   `time_based` it starts again, without end; its runtime stops it.
//! * **Sequential**: reads and writes have a position each, from the start of the file. A position that
//!   reaches the end wraps, alone.
//! * **Random, uniform**: the random map. Every block is touched once, by a read or by a write, before
//!   one is touched again; each further pass has another order.
//! * **Random, zipf**: independent draws; there is no random map, since visiting each block once would
//!   make every distribution uniform.
//! * **Mixed**: each access draws whether it reads, independent of the others.

use crate::access::Access;
use crate::distribution::{Distribution, Zipf};
use crate::random::Random;
use crate::random_map::RandomMap;
use std::fmt;

/// Where the next access goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Order {
    /// The block after the last one.
    Sequential,
    /// A block drawn from a distribution.
    Random(Distribution),
}

/// What share of the accesses reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// All of them.
    Read,
    /// None.
    Write,
    /// Some.
    Mixed {
        /// Chance of a read, in percent, 0..=100. fio: `rwmixread`.
        read_percent: u8,
    },
}

impl Mix {
    /// Whether any access may read.
    pub fn reads(self) -> bool {
        !matches!(self, Mix::Write | Mix::Mixed { read_percent: 0 })
    }

    /// Whether any access may write.
    pub fn writes(self) -> bool {
        !matches!(self, Mix::Read | Mix::Mixed { read_percent: 100.. })
    }
}

/// Everything that decides which bytes a job touches, in which order.
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    /// Where accesses go.
    pub order: Order,
    /// How many read.
    pub mix: Mix,
    /// Bytes per access. At least 1.
    pub block_bytes: u32,
    /// The part of the file that is used, from its start, and the bytes that one pass transfers.
    pub size_bytes: u64,
    /// Whether it starts again when all bytes are transferred. fio: `time_based`.
    pub repeat: bool,
    /// Decides every random choice; same seed, same accesses.
    pub seed: u64,
}

/// A pattern that has no accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoBlock {
    /// The size of the pattern.
    pub size_bytes: u64,
    /// The block that does not fit into it.
    pub block_bytes: u32,
}

impl fmt::Display for NoBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size_bytes, block_bytes } = self;
        write!(f, "a size of {size_bytes} bytes does not hold one block of {block_bytes} bytes")
    }
}

impl std::error::Error for NoBlock {}

impl Pattern {
    /// The accesses, from the first.
    ///
    /// # Errors
    /// If the size does not hold a whole block, or the block has no bytes.
    ///
    /// # Panics
    /// If a zipf skew is one that [`Distribution::zipf`] refuses.
    pub fn accesses(&self) -> Result<Accesses, NoBlock> {
        let blocks = match self.block_bytes {
            0 => 0,
            block_bytes => self.size_bytes / u64::from(block_bytes),
        };
        if blocks == 0 {
            return Err(NoBlock { size_bytes: self.size_bytes, block_bytes: self.block_bytes });
        }
        // A stream per kind of choice: a job with another mix still visits the same blocks.
        let [mut placement, blocks_random, mix_random] =
            [0, 1, 2].map(|stream| Random::stream(self.seed, stream));
        let cursor = match self.order {
            Order::Sequential => Cursor::Sequential { read: 0, write: 0 },
            Order::Random(Distribution::Uniform) => Cursor::Map {
                map: RandomMap::new(blocks, placement.next_u64()),
                position: 0,
                keys: placement,
            },
            Order::Random(Distribution::Zipf { theta }) => {
                Cursor::Zipf { zipf: Zipf::new(theta, blocks, &mut placement), random: blocks_random }
            }
        };
        Ok(Accesses {
            cursor,
            mix: self.mix,
            mix_random,
            block_bytes: self.block_bytes,
            blocks,
            left: (!self.repeat).then_some(blocks),
        })
    }
}

/// The accesses of a [`Pattern`]: an iterator that ends after one pass, or never if the pattern repeats.
#[derive(Debug, Clone)]
pub struct Accesses {
    cursor: Cursor,
    mix: Mix,
    mix_random: Random,
    block_bytes: u32,
    blocks: u64,
    /// Accesses that remain; `None`: without end.
    left: Option<u64>,
}

#[derive(Debug, Clone)]
enum Cursor {
    /// The next block to read and the next to write.
    Sequential {
        read: u64,
        write: u64,
    },
    /// A position in the random map, and where the next pass takes its map's key from.
    Map {
        map: RandomMap,
        position: u64,
        keys: Random,
    },
    Zipf {
        zipf: Zipf,
        random: Random,
    },
}

impl Accesses {
    fn next_block(&mut self, write: bool) -> u64 {
        match &mut self.cursor {
            Cursor::Sequential { read, write: written } => {
                let position = if write { written } else { read };
                let block = *position;
                *position = if block + 1 == self.blocks { 0 } else { block + 1 };
                block
            }
            Cursor::Map { map, position, keys } => {
                if *position == self.blocks {
                    *map = RandomMap::new(self.blocks, keys.next_u64());
                    *position = 0;
                }
                let block = map.block(*position);
                *position += 1;
                block
            }
            Cursor::Zipf { zipf, random } => zipf.block(random),
        }
    }
}

impl Iterator for Accesses {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        let write = match self.mix {
            Mix::Read => false,
            Mix::Write => true,
            Mix::Mixed { read_percent } => self.mix_random.below(100) >= u64::from(read_percent),
        };
        let offset = self.next_block(write) * u64::from(self.block_bytes);
        Some(Access { offset, bytes: self.block_bytes, write })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self.left {
            Some(left) => (usize::try_from(left).unwrap_or(usize::MAX), usize::try_from(left).ok()),
            None => (usize::MAX, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFORM: Order = Order::Random(Distribution::Uniform);

    fn pattern(order: Order, mix: Mix) -> Pattern {
        Pattern { order, mix, block_bytes: 4096, size_bytes: 256 * 4096, repeat: false, seed: 42 }
    }

    fn blocks(accesses: impl Iterator<Item = Access>) -> Vec<u64> {
        accesses.map(|access| access.offset / 4096).collect()
    }

    #[test]
    fn a_sequential_job_reads_the_file_once() {
        let accesses = pattern(Order::Sequential, Mix::Read).accesses().unwrap();
        assert_eq!(accesses.size_hint(), (256, Some(256)));
        assert_eq!(blocks(accesses), (0..256).collect::<Vec<_>>());
    }

    #[test]
    fn a_repeating_job_wraps() {
        let repeating = Pattern { repeat: true, ..pattern(Order::Sequential, Mix::Write) };
        let first: Vec<Access> = repeating.accesses().unwrap().take(300).collect();
        assert_eq!(first[256], Access { offset: 0, bytes: 4096, write: true });
        assert_eq!(first[299].offset, 43 * 4096);
    }

    #[test]
    fn mixed_sequential_reads_and_writes_have_their_own_positions() {
        let accesses: Vec<_> =
            pattern(Order::Sequential, Mix::Mixed { read_percent: 70 }).accesses().unwrap().collect();
        assert_eq!(accesses.len(), 256, "reads and writes together transfer the size");
        for write in [false, true] {
            let positions = blocks(accesses.iter().copied().filter(|access| access.write == write));
            assert_eq!(positions, (0..positions.len() as u64).collect::<Vec<_>>());
            assert!(!positions.is_empty());
        }
    }

    #[test]
    fn the_random_map_touches_every_block_once_per_pass() {
        let mixed = Pattern { repeat: true, ..pattern(UNIFORM, Mix::Mixed { read_percent: 50 }) };
        let order = blocks(mixed.accesses().unwrap().take(3 * 256));
        for pass in order.chunks(256) {
            let mut sorted = pass.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..256).collect::<Vec<_>>());
        }
        assert_ne!(order[..256], order[256..512]);
        assert_ne!(order[256..512], order[512..]);
    }

    #[test]
    fn the_share_of_reads_is_that_of_the_mix() {
        let mixed = |read_percent| Pattern {
            size_bytes: 100_000 * 4096,
            ..pattern(UNIFORM, Mix::Mixed { read_percent })
        };
        let reads = |pattern: Pattern| pattern.accesses().unwrap().filter(|access| !access.write).count();
        // Five standard deviations: 5 × √(100,000 × 0.7 × 0.3) = 725.
        assert!(reads(mixed(70)).abs_diff(70_000) < 725);
        assert_eq!(reads(mixed(0)), 0);
        assert_eq!(reads(mixed(100)), 100_000);
    }

    #[test]
    fn zipf_repeats_blocks_and_ends_after_its_size() {
        let order =
            blocks(pattern(Order::Random(Distribution::Zipf { theta: 1.2 }), Mix::Read).accesses().unwrap());
        assert_eq!(order.len(), 256);
        let distinct: std::collections::BTreeSet<_> = order.iter().collect();
        assert!(distinct.len() < 128, "{}", distinct.len());
    }

    #[test]
    fn a_seed_decides_everything() {
        for order in [UNIFORM, Order::Random(Distribution::Zipf { theta: 0.9 })] {
            let with_seed = |seed| {
                let pattern = Pattern { seed, ..pattern(order, Mix::Mixed { read_percent: 30 }) };
                pattern.accesses().unwrap().collect::<Vec<_>>()
            };
            assert_eq!(with_seed(1), with_seed(1));
            assert_ne!(with_seed(1), with_seed(2));
        }
    }

    #[test]
    fn another_mix_visits_the_same_blocks() {
        let with = |mix| blocks(pattern(UNIFORM, mix).accesses().unwrap());
        assert_eq!(with(Mix::Read), with(Mix::Mixed { read_percent: 20 }));
    }

    #[test]
    fn only_whole_blocks_are_touched() {
        for order in [Order::Sequential, UNIFORM, Order::Random(Distribution::Zipf { theta: 0.5 })] {
            let pattern = Pattern { size_bytes: 10 * 1024, ..pattern(order, Mix::Read) };
            let accesses: Vec<_> = pattern.accesses().unwrap().collect();
            assert_eq!(accesses.len(), 2);
            assert!(accesses.iter().all(|access| access.end() <= 8192));
        }
    }

    #[test]
    fn a_size_below_one_block_is_an_error() {
        let small = Pattern { size_bytes: 4095, ..pattern(UNIFORM, Mix::Read) };
        assert_eq!(small.accesses().unwrap_err(), NoBlock { size_bytes: 4095, block_bytes: 4096 });
        assert!(Pattern { block_bytes: 0, ..small }.accesses().is_err());
    }

    #[test]
    fn a_mix_knows_what_it_never_does() {
        assert!(Mix::Read.reads() && !Mix::Read.writes());
        assert!(!Mix::Write.reads() && Mix::Write.writes());
        assert!(!Mix::Mixed { read_percent: 100 }.writes());
        assert!(!Mix::Mixed { read_percent: 0 }.reads());
    }
}
