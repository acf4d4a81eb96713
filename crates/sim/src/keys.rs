//! Maps opaque keys to positions 0, 1, 2, … in the order of first use.
//!
//! A trace of keys uses a few million of 2^64 names. The core's index stores 64 adjacent pages
//! together, so scattered names would cost a leaf of 520 bytes each; positions cost 8.
//!
//! ```text
//! entries   one u32 per slot: | part of the hash | position + 1 |    open addressing, linear probing, load ≤ 7/8
//! keys      position → key
//! ```
//!
//! A slot holds as many bits of the hash as the position leaves free. So a probe reads `keys` only
//! for the matching key: two cache lines per look-up, and 13 bytes per key.

use std::ops::Range;

/// Initial number of slots, a power of two.
const SLOTS_AT_FIRST: usize = 1 << 10;

#[derive(Debug)]
pub(crate) struct KeyTable {
    entries: Box<[u32]>,
    keys: Vec<u64>,
    /// Bits of an entry that hold the position + 1.
    position_bits: u32,
}

/// Fibonacci hashing: adjacent keys, which are frequent, spread evenly over the top bits.
#[inline]
fn hash(key: u64) -> u64 {
    let h = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (h ^ h >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

impl Default for KeyTable {
    fn default() -> Self {
        KeyTable::with_slots(SLOTS_AT_FIRST, Vec::new())
    }
}

impl KeyTable {
    fn with_slots(slots: usize, keys: Vec<u64>) -> KeyTable {
        // One more than the positions need: 0 is an empty slot.
        let position_bits = usize::BITS - slots.leading_zeros();
        let mut table = KeyTable { entries: vec![0; slots].into(), keys, position_bits };
        for position in 0..table.keys.len() {
            let h = hash(table.keys[position]);
            let mut slot = table.first_slot(h);
            while table.entries[slot] != 0 {
                slot = table.next_slot(slot);
            }
            table.entries[slot] = table.entry(h, position as u32);
        }
        table
    }

    /// The hash scaled to the number of slots, which need not be a power of two.
    #[inline]
    fn first_slot(&self, h: u64) -> usize {
        ((u128::from(h) * self.entries.len() as u128) >> 64) as usize
    }

    #[inline]
    fn next_slot(&self, slot: usize) -> usize {
        if slot + 1 == self.entries.len() { 0 } else { slot + 1 }
    }

    /// The entry holds the low bits of the hash; the slot comes from the high bits.
    #[inline]
    fn entry(&self, h: u64, position: u32) -> u32 {
        (h as u32).checked_shl(self.position_bits).unwrap_or(0) | (position + 1)
    }

    /// The position of a key; a new one on first use.
    #[inline]
    pub(crate) fn position(&mut self, key: u64) -> u32 {
        let h = hash(key);
        match self.look(key, h) {
            Ok(position) => position,
            Err(slot) => self.add(key, h, slot),
        }
    }

    /// The positions of those keys that were used, in ascending order.
    pub(crate) fn positions_in(&self, keys: Range<u64>) -> Vec<u32> {
        let is_short = keys.end - keys.start < self.keys.len() as u64;
        let mut positions: Vec<u32> = match is_short {
            true => keys.filter_map(|key| self.look(key, hash(key)).ok()).collect(),
            false => (0u32..).zip(&self.keys).filter(|(_, key)| keys.contains(key)).map(|(p, _)| p).collect(),
        };
        positions.sort_unstable();
        positions
    }

    /// The position of a key, or the slot that it would have.
    #[inline]
    fn look(&self, key: u64, h: u64) -> Result<u32, usize> {
        let mask = 1u32.checked_shl(self.position_bits).map_or(u32::MAX, |bit| bit - 1);
        let wanted = self.entry(h, 0) & !mask;
        let mut slot = self.first_slot(h);
        loop {
            let entry = self.entries[slot];
            if entry == 0 {
                return Err(slot);
            }
            let position = (entry & mask) - 1;
            if entry & !mask == wanted && self.keys[position as usize] == key {
                return Ok(position);
            }
            slot = self.next_slot(slot);
        }
    }

    pub(crate) fn key(&self, position: u32) -> u64 {
        self.keys[position as usize]
    }

    #[cold]
    fn add(&mut self, key: u64, h: u64, slot: usize) -> u32 {
        let position = self.keys.len() as u32;
        assert!(position < u32::MAX - 1, "a trace has at most 2^32 - 2 keys");
        if self.keys.len() == self.keys.capacity() {
            // Doubling would leave up to half unused; growing by an eighth rarely copies.
            self.keys.reserve_exact(self.keys.len() / 8 + SLOTS_AT_FIRST);
        }
        self.keys.push(key);
        self.entries[slot] = self.entry(h, position);
        if self.keys.len() * 8 > self.entries.len() * 7 {
            let slots = self.entries.len() + self.entries.len() / 4;
            self.entries = Box::default();
            *self = KeyTable::with_slots(slots, std::mem::take(&mut self.keys));
        }
        position
    }

    pub(crate) fn bytes(&self) -> u64 {
        (self.entries.len() * size_of::<u32>() + self.keys.capacity() * size_of::<u64>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Compares the table with a map: adjacent keys, multiples of large powers of two, and
    /// scattered keys.
    #[test]
    fn positions_agree_with_a_map() {
        let mut table = KeyTable::default();
        let mut model: BTreeMap<u64, u32> = BTreeMap::new();
        let mut random = mglru_workload::Random::new(5);
        for step in 0..200_000u64 {
            let key = match step % 4 {
                0 => step / 8,
                1 => random.below(5000) << 40,
                2 => u64::MAX - random.below(1000),
                _ => mglru_workload::Random::new(random.below(30_000)).next_u64(),
            };
            let next = model.len() as u32;
            assert_eq!(table.position(key), *model.entry(key).or_insert(next));
        }
        for range in [0..0, 100..20_000, 1 << 40..1 << 50, u64::MAX - 999..u64::MAX] {
            let mut expected: Vec<u32> = model.range(range.clone()).map(|(_, &position)| position).collect();
            expected.sort_unstable();
            assert_eq!(table.positions_in(range), expected);
        }
        let keys = model.len() as u64;
        assert!(keys > 50_000 && table.bytes() < keys * 16, "{} bytes for {keys} keys", table.bytes());
    }
}
