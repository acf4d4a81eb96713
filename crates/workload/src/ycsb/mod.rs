//! YCSB's core workloads A to F, as the pages that a document store touches.
//!
//! Source: Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010, and the core workloads' published
//! definition: a record has 10 fields of 100 bytes; A reads and updates half and half, B 95 % and 5 %, C reads; D reads what was
//! inserted lately and inserts 5 %; E scans up to 100 records and inserts 5 %; F reads, and reads, modifies and writes.
//! Keys are zipfian (0.99 over ten thousand million ranks, scattered over the records by the FNV hash), for D by age. Records
//! are inserted in hashed order: the record of a key lies anywhere in the tree.
//!
//! What the store is, says [`store`]. Records of 1,170 bytes (the fields, their names, the key) make 28 in a leaf of 32 KiB.

mod store;

pub(crate) use store::Store;

use crate::distribution::Skewed;
use crate::load::Step;
use crate::random::Random;

const RECORDS_PER_LEAF: u64 = 28;
const LEAF_PAGES: u32 = 8;
const THETA: f64 = 0.99;
/// Ranks that the scattered zipfian distribution draws from, however many records there are.
const SCATTERED_RANKS: u64 = 10_000_000_000;
/// Most records that a scan of E reads.
const SCAN_RECORDS: u64 = 100;
/// What the server computes for one operation.
const OPERATION_NANOS: u64 = 150_000;
/// A checkpoint comes after so many operations per hundred records: with 20 M records about every minute, as WiredTiger has it, at the
/// 63,000 operations per second that were published.
const CHECKPOINT_PERCENT: u64 = 19;

/// One of the six workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letter {
    /// Update heavy.
    A,
    /// Read mostly.
    B,
    /// Read only.
    C,
    /// Read latest.
    D,
    /// Short ranges.
    E,
    /// Read, modify, write.
    F,
}

impl Letter {
    /// All of them.
    pub const ALL: [Letter; 6] = [Letter::A, Letter::B, Letter::C, Letter::D, Letter::E, Letter::F];

    /// As it is written.
    pub fn name(self) -> &'static str {
        ["a", "b", "c", "d", "e", "f"][self as usize]
    }

    /// Of a hundred operations, those that change a record, or insert one.
    pub fn writes_percent(self) -> u32 {
        match self {
            Letter::A | Letter::F => 50,
            Letter::B | Letter::D | Letter::E => 5,
            Letter::C => 0,
        }
    }
}

/// A workload and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ycsb {
    /// Which one.
    pub letter: Letter,
    /// Of a hundred operations, those that write; the workload's own share, unless somebody wants to know what another does.
    pub writes_percent: u32,
    /// Records at first; at least 1.
    pub records: u32,
    /// The engine's cache.
    pub cache_pages: u32,
    /// Each record is as likely as the others, in place of the zipfian distribution (not for D, whose keys go by age).
    pub uniform: bool,
}

impl Ycsb {
    /// Pages of the file at first.
    pub fn file_pages(&self) -> u64 {
        u64::from(self.records).div_ceil(RECORDS_PER_LEAF) * u64::from(LEAF_PAGES)
    }
}

/// Draws keys, and whether they are written to.
#[derive(Debug)]
pub struct Keys {
    ycsb: Ycsb,
    scattered: Skewed,
    random: Random,
    /// Records, with those that were inserted.
    records: u64,
}

impl Keys {
    /// From the beginning.
    pub fn new(ycsb: Ycsb, seed: u64) -> Keys {
        // Only ranks are asked for: where the hottest would lie does not matter.
        let scattered = Skewed::whole_zipf(THETA, SCATTERED_RANKS, &mut Random::new(0));
        Keys { ycsb, scattered, random: Random::stream(seed, 0x9C5B), records: u64::from(ycsb.records) }
    }

    /// Whether the next operation writes.
    pub fn writes(&mut self) -> bool {
        self.random.below(100) < u64::from(self.ycsb.writes_percent)
    }

    /// A key, from 0 on, as A, B, C, E and F draw it.
    pub fn scattered(&mut self) -> u64 {
        match self.ycsb.uniform {
            true => self.random.below(self.records),
            false => fnv_hash(self.scattered.rank(&mut self.random)) % self.records,
        }
    }
}

/// A workload that runs.
#[derive(Debug)]
pub struct Operations {
    keys: Keys,
    store: Store,
    /// Of ages, 0 the latest.
    ages: Skewed,
    begun: u64,
    checkpoint_every: u64,
}

impl Operations {
    /// From the beginning.
    ///
    /// # Panics
    /// If there is no record.
    pub fn new(ycsb: Ycsb, seed: u64) -> Operations {
        let records = u64::from(ycsb.records);
        let leaves = records.div_ceil(RECORDS_PER_LEAF) as u32;
        Operations {
            keys: Keys::new(ycsb, seed),
            store: Store::new(leaves, LEAF_PAGES, u64::from(ycsb.cache_pages)),
            ages: Skewed::whole_zipf(THETA, records, &mut Random::new(0)),
            begun: 0,
            checkpoint_every: (records * CHECKPOINT_PERCENT / 100).max(1),
        }
    }

    /// Appends what one operation touches.
    pub fn next(&mut self, steps: &mut Vec<Step>) {
        steps.push(Step::Rest { nanos: OPERATION_NANOS });
        let write = self.keys.writes();
        match self.keys.ycsb.letter {
            Letter::A | Letter::B | Letter::C | Letter::F => {
                let key = self.keys.scattered();
                self.visit(key, write, steps);
            }
            Letter::D | Letter::E if write => {
                let key = self.keys.records;
                self.keys.records += 1;
                self.visit(key, true, steps);
            }
            Letter::D => {
                let age = self.ages.rank(&mut self.keys.random);
                self.visit(self.keys.records - 1 - age, false, steps);
            }
            Letter::E => {
                let key = self.keys.scattered();
                let records = 1 + self.keys.random.below(SCAN_RECORDS);
                let first = self.leaf(key);
                // The first record lies anywhere in its leaf.
                let last = u64::from(first)
                    + (self.keys.random.below(RECORDS_PER_LEAF) + records - 1) / RECORDS_PER_LEAF;
                for leaf in first..=last.min(u64::from(self.store.leaves()) - 1) as u32 {
                    self.store.visit(leaf, 0, false, steps);
                }
            }
        }
        self.begun += 1;
        if self.begun.is_multiple_of(self.checkpoint_every) && self.keys.ycsb.writes_percent > 0 {
            self.store.checkpoint(steps);
        }
    }

    /// Records lie in the order of their hashed keys.
    fn leaf(&self, key: u64) -> u32 {
        ((u128::from(fnv_hash(key)) * u128::from(self.store.leaves())) >> 63) as u32
    }

    fn visit(&mut self, key: u64, write: bool, steps: &mut Vec<Step>) {
        let leaf = self.leaf(key);
        // Any bits that did not choose the leaf.
        self.store.visit(leaf, fnv_hash(key) & 0xffff, write, steps);
    }
}

/// The hash that YCSB scatters keys with: 64-bit FNV-1a over the value's bytes, without its sign.
fn fnv_hash(value: u64) -> u64 {
    let hash = value.to_le_bytes().iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
    });
    (hash as i64).unsigned_abs() & (i64::MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn operations(letter: Letter, records: u32) -> Operations {
        let cache_pages = records / 28 * 8 / 4;
        let writes_percent = letter.writes_percent();
        Operations::new(Ycsb { letter, writes_percent, records, cache_pages, uniform: false }, 7)
    }

    /// Steps of so many operations: pages read of the file, pages written to it.
    fn file_pages(letter: Letter, count: u32) -> (u64, u64) {
        let mut operations = operations(letter, 100_000);
        let (mut read, mut written, mut steps) = (0, 0, Vec::new());
        for _ in 0..count {
            steps.clear();
            operations.next(&mut steps);
            for step in &steps {
                if let Step::Touch(touch) = step
                    && !touch.anon
                {
                    *(if touch.write { &mut written } else { &mut read }) += 1;
                }
            }
        }
        (read, written)
    }

    #[test]
    fn hashes_are_ycsbs() {
        // FNV-1a over eight bytes, the lowest first, each as a positive number; computed apart.
        let hashes = [0x5738_07CD_D7E5_C63B, 0x7632_CED6_E2D5_105C, 0x209F_B53A_28D9_31E7];
        assert_eq!([0, 1, 123_456_789].map(fnv_hash), hashes);
        assert!((0..1000).all(|value| fnv_hash(value) >> 63 == 0));
    }

    #[test]
    fn the_hottest_key_gets_its_share() {
        let mut operations = operations(Letter::C, 1_000_000);
        let mut counts = BTreeMap::new();
        for _ in 0..200_000 {
            *counts.entry(operations.keys.scattered()).or_insert(0) += 1;
        }
        // YCSB's ζ(10¹⁰, 0.99) is 26.469: the first rank has 1 / 26.469 of all draws, plus nothing to speak of.
        let most = *counts.values().max().unwrap() as f64 / 200_000.0;
        assert!((most * 26.469 - 1.0).abs() < 0.05, "{most}");
    }

    #[test]
    fn workloads_differ_in_what_they_write() {
        let [a, b, c, d, e, f] = Letter::ALL.map(|letter| file_pages(letter, 20_000));
        assert_eq!(c.1, 0);
        assert!(a.1 > 3 * b.1 && f.1 == a.1, "{a:?} {b:?} {f:?}");
        assert!(d.1 > 0 && e.1 > 0, "{d:?} {e:?}");
        assert!(e.0 > 2 * c.0, "scans read neighbours: {e:?} {c:?}");
        assert!(d.0 < c.0, "the latest records are few: {d:?} {c:?}");
    }

    #[test]
    fn a_seed_repeats() {
        let draw = || {
            let (mut operations, mut steps) = (operations(Letter::B, 10_000), Vec::new());
            (0..3000).for_each(|_| operations.next(&mut steps));
            steps
        };
        let steps = draw();
        assert_eq!(steps, draw());
        assert_eq!(
            steps.iter().filter(|step| matches!(step, Step::Sync { .. })).count(),
            1,
            "one checkpoint in 1,900"
        );
    }
}
