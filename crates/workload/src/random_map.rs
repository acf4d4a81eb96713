//! The random map: a permutation of the blocks that looks random and needs no memory.
//!
//! fio keeps a bit per block and draws until it finds an unvisited one. The resulting order is a
//! permutation of the blocks, so this module computes a permutation instead.
//!
//! A Feistel network turns any function into a bijection on words of `w` bits. With `w` as small as
//! the number of blocks allows, fewer than half of the words are not block numbers. Such a word is
//! encrypted again until it is one (*cycle walking*: Black and Rogaway, "Ciphers with arbitrary
//! finite domains", CT-RSA 2002). Ten blocks need four bits: position 3 may become word 12, 12
//! becomes 5, and 5 is the block.

use crate::random::mix;

/// Rounds of the network. Four already shuffle large maps well (Luby and Rackoff). Small maps have
/// few bits per half, and eight rounds cost just 20 ns.
const ROUNDS: u64 = 8;

/// A permutation of `0..blocks`, chosen by a key.
#[derive(Debug, Clone)]
pub(crate) struct RandomMap {
    blocks: u64,
    left_bits: u32,
    right_bits: u32,
    key: u64,
}

impl RandomMap {
    pub fn new(blocks: u64, key: u64) -> Self {
        assert!(blocks > 0, "a map has at least one block");
        let bits = (u64::BITS - (blocks - 1).leading_zeros()).max(2);
        Self { blocks, left_bits: bits / 2, right_bits: bits - bits / 2, key }
    }

    /// The block at `position` of the order.
    pub fn block(&self, position: u64) -> u64 {
        assert!(position < self.blocks, "the map has {} blocks", self.blocks);
        let mut word = position;
        loop {
            word = self.permute(word);
            if word < self.blocks {
                return word;
            }
        }
    }

    /// The network: the two halves, whose widths differ by at most one bit, alternately mix into
    /// each other.
    fn permute(&self, word: u64) -> u64 {
        let (left_mask, right_mask) = (low_bits(self.left_bits), low_bits(self.right_bits));
        let (mut left, mut right) = (word >> self.right_bits, word & right_mask);
        for round in 0..ROUNDS {
            let round_key = self.key.wrapping_add(round << 56);
            if round % 2 == 0 {
                left ^= mix(right ^ round_key) & left_mask;
            } else {
                right ^= mix(left ^ round_key) & right_mask;
            }
        }
        left << self.right_bits | right
    }
}

fn low_bits(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_comes_exactly_once() {
        for blocks in (1..130).chain([255, 256, 257, 1000, 4096, 10_007]) {
            let map = RandomMap::new(blocks, mix(blocks));
            let mut visits = vec![0; blocks as usize];
            (0..blocks).for_each(|position| visits[map.block(position) as usize] += 1);
            assert!(visits.iter().all(|&count| count == 1), "{blocks} blocks: {visits:?}");
        }
    }

    #[test]
    fn the_largest_map_stays_within_its_blocks() {
        let map = RandomMap::new(u64::MAX, 3);
        let distinct: std::collections::BTreeSet<_> = (0..1000).map(|position| map.block(position)).collect();
        assert_eq!(distinct.len(), 1000);
    }

    #[test]
    fn the_order_looks_random() {
        // In a random permutation, two of the `blocks` adjacent pairs are one block apart, up or
        // down; and half of the positions in the first half of the order are in the first half of
        // the file.
        let blocks = 100_000;
        let map = RandomMap::new(blocks, 11);
        let order: Vec<u64> = (0..blocks).map(|position| map.block(position)).collect();
        let neighbours = order.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
        assert!(neighbours < 15, "{neighbours}");
        let low = order[..50_000].iter().filter(|&&block| block < 50_000).count();
        assert!(low.abs_diff(25_000) < 600, "{low}");
    }

    #[test]
    fn small_maps_reach_every_order() {
        let orders: std::collections::BTreeSet<Vec<u64>> = (0..2000)
            .map(|key| {
                let map = RandomMap::new(4, mix(key));
                (0..4).map(|position| map.block(position)).collect()
            })
            .collect();
        // A Feistel network of two single-bit halves gives even permutations: at least the twelve
        // of A₄.
        assert!(orders.len() >= 12, "{}", orders.len());
    }
}
