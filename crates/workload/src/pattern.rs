//! Turns the description of a job into its stream of accesses.
//!
//! The meaning is fio's. Where fio's manual is silent, it was measured with fio 3.33:
//!
//! * Blocks are whole and aligned. A remainder at the end of a file that is shorter than a block is
//!   not touched.
//! * A job ends after it has transferred its `io_size` (by default its `size`), reads and writes
//!   together, once per `loops`. With `time_based` it repeats until its runtime stops it.
//! * **Sequential**: reads and writes each have a position that begins at the start of the file and
//!   wraps at the end independently. Each loop begins at the start.
//! * **Random, uniform**: the random map. Every block is touched once, by a read or by a write,
//!   before any block is touched again. Each further pass has another order.
//! * **Random, `norandommap`, zipf, pareto**: independent draws. Visiting each block once would
//!   make every distribution uniform.
//! * **Mixed**: each access draws whether it reads, independently of the others.
//! * **Blocks of two sizes** (`bs=4k,64k`): reads and writes each cut the file into blocks of their
//!   own size and have a map of their own. (fio 3.33 has one map. It ends after about half of the
//!   bytes, when no free block is left for one of the sizes.)

use crate::access::Access;
use crate::distribution::{Distribution, Skewed};
use crate::random::Random;
use crate::random_map::RandomMap;
use std::fmt;

/// Choice of the next block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Order {
    /// The block after the previous one.
    Sequential,
    /// A block drawn from a distribution.
    Random(Distribution),
}

/// Shares of reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Reads and writes.
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

/// The description of a job's accesses. It determines every byte offset and their order.
#[derive(Debug, Clone, PartialEq)]
pub struct Pattern {
    /// Choice of the next block.
    pub order: Order,
    /// Shares of reads and writes.
    pub mix: Mix,
    /// Bytes per access.
    pub block_bytes: BlockBytes,
    /// Size of the used part of the file, from its start, in bytes.
    pub size_bytes: u64,
    /// Condition that ends the pattern.
    pub length: Length,
    /// Seed of all random choices. Equal seeds give equal accesses.
    pub seed: u64,
}

/// Bytes per access. At least 1 each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockBytes {
    /// Bytes per read.
    pub read: u32,
    /// Bytes per write.
    pub write: u32,
}

impl BlockBytes {
    /// The same size for reads and writes.
    pub const fn both(bytes: u32) -> Self {
        Self { read: bytes, write: bytes }
    }

    /// The largest size that occurs in a mix.
    pub fn largest(self, mix: Mix) -> u32 {
        match mix {
            Mix::Read => self.read,
            Mix::Write => self.write,
            Mix::Mixed { .. } => self.read.max(self.write),
        }
    }
}

/// Condition that ends a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// The pattern never ends. fio: `time_based`.
    Endless,
    /// The pattern ends after a number of bytes, repeated several times.
    Loops {
        /// Bytes per loop. fio: `io_size`.
        bytes: u64,
        /// Number of loops, at least 1. fio: `loops`.
        count: u32,
    },
}

/// Error: no whole block fits into the size, or blocks have no bytes, so the pattern has no
/// accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoBlock {
    /// Size of the pattern in bytes.
    pub size_bytes: u64,
    /// Size of the block in bytes: of reads or of writes, whichever is larger. 0 if one of the two
    /// is 0.
    pub block_bytes: u32,
}

impl fmt::Display for NoBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { size_bytes, block_bytes } = self;
        match block_bytes {
            0 => f.write_str("blocks of 0 bytes: a block has at least one byte"),
            _ => write!(f, "a size of {size_bytes} bytes does not hold one block of {block_bytes} bytes"),
        }
    }
}

impl std::error::Error for NoBlock {}

impl Pattern {
    /// The accesses, from the first.
    ///
    /// # Errors
    /// If the size holds no whole block, or the block size is 0.
    ///
    /// # Panics
    /// If [`Distribution::zipf`] or [`Distribution::pareto`] would reject the skew.
    pub fn accesses(&self) -> Result<Accesses, NoBlock> {
        let largest = self.block_bytes.largest(self.mix);
        let smallest = self.block_bytes.read.min(self.block_bytes.write);
        if smallest == 0 || self.size_bytes < u64::from(largest) {
            let block_bytes = if smallest == 0 { 0 } else { largest };
            return Err(NoBlock { size_bytes: self.size_bytes, block_bytes });
        }
        // One stream per kind of choice, so that a job with another mix visits the same blocks.
        let [placement, blocks_random, mix_random] =
            [0, 1, 2].map(|stream| Random::stream(self.seed, stream));
        let cursor = |block_bytes: u32| {
            // A block size that the mix does not use may be larger than the file.
            let blocks = (self.size_bytes / u64::from(block_bytes)).max(1);
            let (mut placement, random) = (placement.clone(), blocks_random.clone());
            let place = match self.order {
                Order::Sequential => Place::Sequential { next: 0 },
                Order::Random(Distribution::Uniform) => Place::Map {
                    map: RandomMap::new(blocks, placement.next_u64()),
                    position: 0,
                    keys: placement,
                },
                Order::Random(Distribution::Independent) => Place::Independent { random },
                Order::Random(Distribution::Zipf { theta }) => {
                    Place::Skewed { skewed: Skewed::zipf(theta, blocks, &mut placement), random }
                }
                Order::Random(Distribution::Pareto { h }) => {
                    Place::Skewed { skewed: Skewed::pareto(h, blocks, &mut placement), random }
                }
            };
            Cursor { blocks, place }
        };
        let apart = self.order == Order::Sequential || self.block_bytes.read != self.block_bytes.write;
        Ok(Accesses {
            cursor: cursor(self.block_bytes.read),
            write_cursor: apart.then(|| cursor(self.block_bytes.write)),
            mix: self.mix,
            mix_random,
            block_bytes: self.block_bytes,
            largest: largest.into(),
            length: self.length,
            left_bytes: match self.length {
                Length::Endless => u64::MAX,
                Length::Loops { bytes, .. } => bytes,
            },
            loops_done: 0,
        })
    }
}

/// Iterator over the accesses of a [`Pattern`]. It may be endless.
#[derive(Debug, Clone)]
pub struct Accesses {
    /// Position of reads, and of writes unless these have a cursor of their own.
    cursor: Cursor,
    /// Position of writes, if it differs from that of reads.
    write_cursor: Option<Cursor>,
    mix: Mix,
    mix_random: Random,
    block_bytes: BlockBytes,
    /// Larger block size of the mix. A loop ends when its remainder is smaller.
    largest: u64,
    length: Length,
    /// Bytes that remain in this loop.
    left_bytes: u64,
    loops_done: u32,
}

/// A position in the file.
#[derive(Debug, Clone)]
struct Cursor {
    blocks: u64,
    place: Place,
}

#[derive(Debug, Clone)]
enum Place {
    Sequential {
        next: u64,
    },
    /// A position in the random map, and the source of the key for the next pass.
    Map {
        map: RandomMap,
        position: u64,
        keys: Random,
    },
    Independent {
        random: Random,
    },
    Skewed {
        skewed: Skewed,
        random: Random,
    },
}

impl Cursor {
    fn next_block(&mut self) -> u64 {
        let blocks = self.blocks;
        match &mut self.place {
            Place::Sequential { next } => {
                let block = *next;
                *next = if block + 1 == blocks { 0 } else { block + 1 };
                block
            }
            Place::Map { map, position, keys } => {
                if *position == blocks {
                    *map = RandomMap::new(blocks, keys.next_u64());
                    *position = 0;
                }
                let block = map.block(*position);
                *position += 1;
                block
            }
            Place::Independent { random } => random.below(blocks),
            Place::Skewed { skewed, random } => skewed.block(random),
        }
    }

    /// Begins another loop.
    fn rewind(&mut self) {
        match &mut self.place {
            Place::Sequential { next } => *next = 0,
            // The next access finds the map exhausted and draws a new one.
            Place::Map { position, .. } => *position = self.blocks,
            Place::Independent { .. } | Place::Skewed { .. } => {}
        }
    }
}

impl Accesses {
    /// The next access, where the caller may override whether it writes. `choose` receives the
    /// drawn choice and returns the final one. It is called only if the mix has both reads and
    /// writes.
    pub fn next_chosen(&mut self, choose: impl FnOnce(bool) -> bool) -> Option<Access> {
        if self.left_bytes < self.largest {
            let Length::Loops { bytes, count } = self.length else { unreachable!("only loops run out") };
            let is_last = self.loops_done.saturating_add(1) >= count;
            if is_last || bytes < self.largest {
                return None;
            }
            self.loops_done += 1;
            self.left_bytes = bytes;
            self.cursor.rewind();
            self.write_cursor.iter_mut().for_each(Cursor::rewind);
        }
        let write = match self.mix {
            Mix::Read => false,
            Mix::Write => true,
            Mix::Mixed { read_percent } => {
                let drawn = self.mix_random.below(100) >= u64::from(read_percent);
                if self.mix.reads() && self.mix.writes() { choose(drawn) } else { drawn }
            }
        };
        let bytes = if write { self.block_bytes.write } else { self.block_bytes.read };
        if self.length != Length::Endless {
            self.left_bytes -= u64::from(bytes);
        }
        let cursor = match &mut self.write_cursor {
            Some(cursor) if write => cursor,
            _ => &mut self.cursor,
        };
        Some(Access { offset: cursor.next_block() * u64::from(bytes), bytes, write })
    }
}

impl Iterator for Accesses {
    type Item = Access;

    fn next(&mut self) -> Option<Access> {
        self.next_chosen(|write| write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFORM: Order = Order::Random(Distribution::Uniform);

    fn pattern(order: Order, mix: Mix) -> Pattern {
        Pattern {
            order,
            mix,
            block_bytes: BlockBytes::both(4096),
            size_bytes: 256 * 4096,
            length: once(256 * 4096),
            seed: 42,
        }
    }

    fn once(bytes: u64) -> Length {
        Length::Loops { bytes, count: 1 }
    }

    fn blocks(accesses: impl Iterator<Item = Access>) -> Vec<u64> {
        accesses.map(|access| access.offset / 4096).collect()
    }

    #[test]
    fn a_sequential_job_reads_the_file_once() {
        let accesses = pattern(Order::Sequential, Mix::Read).accesses().unwrap();
        assert_eq!(blocks(accesses), (0..256).collect::<Vec<_>>());
    }

    #[test]
    fn a_repeating_job_wraps() {
        let repeating = Pattern { length: Length::Endless, ..pattern(Order::Sequential, Mix::Write) };
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
        let mixed = Pattern { length: Length::Endless, ..pattern(UNIFORM, Mix::Mixed { read_percent: 50 }) };
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
            length: once(100_000 * 4096),
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
            let pattern =
                Pattern { size_bytes: 10 * 1024, length: once(10 * 1024), ..pattern(order, Mix::Read) };
            let accesses: Vec<_> = pattern.accesses().unwrap().collect();
            assert_eq!(accesses.len(), 2);
            assert!(accesses.iter().all(|access| access.end() <= 8192));
        }
    }

    #[test]
    fn io_size_and_loops_say_how_much() {
        let lengths = |order, bytes, count| {
            let length = Length::Loops { bytes, count };
            blocks(Pattern { length, ..pattern(order, Mix::Read) }.accesses().unwrap())
        };
        // Shorter than the file; the next loop starts at its beginning.
        assert_eq!(lengths(Order::Sequential, 3 * 4096, 2), [0, 1, 2, 0, 1, 2]);
        assert_eq!(lengths(Order::Sequential, 300 * 4096, 1)[255..258], [255, 0, 1]);
        for bytes in [3 * 4096, 256 * 4096, 600 * 4096] {
            assert_eq!(lengths(UNIFORM, bytes, 3).len() as u64, 3 * bytes / 4096);
        }
        assert!(lengths(UNIFORM, 4095, 9).is_empty());
        // An ended pattern stays ended.
        for (bytes, count, accesses) in [(4095, u32::MAX, 0), (8192, 1, 2)] {
            let length = Length::Loops { bytes, count };
            let mut ended = Pattern { length, ..pattern(UNIFORM, Mix::Read) }.accesses().unwrap();
            assert_eq!((0..5).filter(|_| ended.next().is_some()).count(), accesses);
        }
    }

    #[test]
    fn without_a_map_blocks_come_by_chance() {
        let order = blocks(pattern(Order::Random(Distribution::Independent), Mix::Read).accesses().unwrap());
        let distinct: std::collections::BTreeSet<_> = order.iter().collect();
        // 256 draws from 256 blocks miss a share of 1/e.
        assert_eq!(order.len(), 256);
        assert!(distinct.len().abs_diff(162) < 30, "{}", distinct.len());
    }

    #[test]
    fn reads_and_writes_may_have_blocks_of_two_sizes() {
        let block_bytes = BlockBytes { read: 4096, write: 65_536 };
        for order in [Order::Sequential, UNIFORM] {
            let mixed = Pattern { block_bytes, ..pattern(order, Mix::Mixed { read_percent: 50 }) };
            let accesses: Vec<_> = mixed.accesses().unwrap().collect();
            let bytes: u64 = accesses.iter().map(|access| u64::from(access.bytes)).sum();
            assert!(bytes > 255 * 4096 - 65_536 && bytes <= 256 * 4096, "{bytes}");
            for access in accesses {
                assert_eq!(access.bytes, if access.write { 65_536 } else { 4096 });
                assert!(access.offset.is_multiple_of(access.bytes.into()) && access.end() <= 256 * 4096);
            }
        }
        let reader = Pattern { block_bytes, size_bytes: 8192, ..pattern(UNIFORM, Mix::Read) };
        assert!(reader.accesses().is_ok(), "a size that is never used does not matter");
    }

    #[test]
    fn a_caller_may_filter_the_draws_of_a_mix() {
        let mut mixed = pattern(UNIFORM, Mix::Mixed { read_percent: 50 }).accesses().unwrap();
        assert!((0..100).all(|_| mixed.next_chosen(|_| true).unwrap().write));
        for mix in [Mix::Read, Mix::Mixed { read_percent: 100 }] {
            let mut reads = pattern(UNIFORM, mix).accesses().unwrap();
            assert!(!reads.next_chosen(|_| true).unwrap().write);
        }
    }

    #[test]
    fn a_size_below_one_block_is_an_error() {
        let small = Pattern { size_bytes: 4095, ..pattern(UNIFORM, Mix::Read) };
        assert_eq!(small.accesses().unwrap_err(), NoBlock { size_bytes: 4095, block_bytes: 4096 });
        // The error names the block that does not fit.
        let block_bytes = BlockBytes { read: 4096, write: 65_536 };
        let mixed = Pattern { block_bytes, ..pattern(UNIFORM, Mix::Mixed { read_percent: 50 }) };
        let error = Pattern { size_bytes: 8192, ..mixed }.accesses().unwrap_err();
        assert_eq!(error, NoBlock { size_bytes: 8192, block_bytes: 65_536 });
        let block_bytes = BlockBytes { read: 4096, write: 0 };
        let error = Pattern { block_bytes, ..small }.accesses().unwrap_err().to_string();
        assert_eq!(error, "blocks of 0 bytes: a block has at least one byte");
    }

    #[test]
    fn a_mix_excludes_reads_or_writes_it_never_makes() {
        assert!(Mix::Read.reads() && !Mix::Read.writes());
        assert!(!Mix::Write.reads() && Mix::Write.writes());
        assert!(!Mix::Mixed { read_percent: 100 }.writes());
        assert!(!Mix::Mixed { read_percent: 0 }.reads());
    }
}
