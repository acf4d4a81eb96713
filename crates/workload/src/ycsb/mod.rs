//! YCSB's core workloads A to F, as the pages that a document store touches.
//!
//! Source: Cooper et al., "Benchmarking cloud serving systems with YCSB", SoCC 2010, and the
//! published definition of the core workloads. A record has 10 fields of 100 bytes. A reads 50 %
//! and updates 50 %; B reads 95 % and updates 5 %; C reads. D reads recent records and inserts 5 %.
//! E scans up to 100 records and inserts 5 %. F reads 50 %, and in the other 50 % reads and then
//! updates a record. Keys are zipfian: 0.99 over ten thousand million ranks, scattered over the
//! records by the FNV hash; for D by age. Records are inserted in hashed order, so the record of a
//! key can lie anywhere in the tree.
//!
//! [`store`] models the document store. A record takes 1,170 bytes (the fields, their names, the
//! key), so a leaf of 32 KiB holds 28.

mod indexed;
mod leaf_file;
mod store;

pub use indexed::{Eviction, IndexedOperations, IndexedYcsb};
pub(crate) use store::Store;

use crate::distribution::Skewed;
use crate::hash::fnv1a;
use crate::load::Step;
use crate::random::Random;

const RECORDS_PER_LEAF: u64 = 28;
const LEAF_PAGES: u32 = 8;
const THETA: f64 = 0.99;
/// Ranks of the scattered zipfian distribution, independent of the number of records.
const SCATTERED_RANKS: u64 = 10_000_000_000;
/// Upper limit of records per scan in E.
const SCAN_RECORDS: u64 = 100;
/// The server's computing time per operation, by default.
const OPERATION_MICROS: u32 = 150;
/// Operations per hundred records between checkpoints. With 20 M records and the published 63,000
/// operations per second this is about one a minute, WiredTiger's default.
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
    /// All six workloads.
    pub const ALL: [Letter; 6] = [Letter::A, Letter::B, Letter::C, Letter::D, Letter::E, Letter::F];

    /// The letter as text.
    pub fn name(self) -> &'static str {
        ["a", "b", "c", "d", "e", "f"][self as usize]
    }

    /// Percentage of operations that update or insert a record.
    pub const fn writes_percent(self) -> u32 {
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
    /// The workload.
    pub letter: Letter,
    /// Percentage of operations that write. By default this is the workload's own share.
    pub writes_percent: u32,
    /// Initial number of records; at least 1.
    pub records: u32,
    /// Pages of the engine's cache.
    pub cache_pages: u32,
    /// Whether records are uniformly likely instead of zipfian. Does not apply to D, whose keys go
    /// by age.
    pub uniform: bool,
    /// The server's computing time per operation, in microseconds.
    pub compute_micros: u32,
}

impl Ycsb {
    /// A workload with its own share of writes and its own distribution of keys.
    pub const fn new(letter: Letter, records: u32, cache_pages: u32) -> Ycsb {
        Ycsb {
            letter,
            writes_percent: letter.writes_percent(),
            records,
            cache_pages,
            uniform: false,
            compute_micros: OPERATION_MICROS,
        }
    }

    /// Initial pages of the file.
    pub fn file_pages(&self) -> u64 {
        u64::from(self.records).div_ceil(RECORDS_PER_LEAF) * u64::from(LEAF_PAGES)
    }
}

/// A client's request to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreRequest {
    /// Read a record.
    Read {
        /// Key of the record, from 0.
        key: u64,
    },
    /// Replace the contents of a record.
    Update {
        /// Key of the record.
        key: u64,
    },
    /// Insert a record. Its key is the current number of records.
    Insert,
    /// Read records in the store's order.
    Scan {
        /// Key of the first record.
        key: u64,
        /// Upper limit of records.
        records: u64,
    },
    /// Read a record, then replace its contents.
    ReadModifyWrite {
        /// Key of the record.
        key: u64,
    },
}

/// Generator of a client's requests.
#[derive(Debug)]
pub struct Client {
    ycsb: Ycsb,
    /// Ranks of ages for D, where 0 is the latest record; for the others, ranks to be scattered.
    ranks: Skewed,
    random: Random,
}

impl Client {
    /// Starts a client.
    pub fn new(ycsb: Ycsb, seed: u64) -> Client {
        let ranks = if ycsb.letter == Letter::D { u64::from(ycsb.records) } else { SCATTERED_RANKS };
        // Only ranks are drawn, so the placement of the hottest block does not matter.
        let ranks = Skewed::whole_zipf(THETA, ranks, &mut Random::new(0));
        Client { ycsb, ranks, random: Random::stream(seed, 0x9C5B) }
    }

    /// The next request to a store that currently has `records` records.
    pub fn next(&mut self, records: u64) -> StoreRequest {
        let write = self.random.below(100) < u64::from(self.ycsb.writes_percent);
        match (self.ycsb.letter, write) {
            (Letter::D | Letter::E, true) => StoreRequest::Insert,
            (Letter::D, false) => StoreRequest::Read { key: records - 1 - self.ranks.rank(&mut self.random) },
            (Letter::E, false) => {
                StoreRequest::Scan { key: self.scattered(), records: 1 + self.random.below(SCAN_RECORDS) }
            }
            (Letter::F, true) => StoreRequest::ReadModifyWrite { key: self.scattered() },
            (Letter::A | Letter::B | Letter::C, true) => StoreRequest::Update { key: self.scattered() },
            (_, false) => StoreRequest::Read { key: self.scattered() },
        }
    }

    /// A key among the initial records. YCSB also spreads keys over future records, whose number it
    /// knows. A load here has no end. Scattering over the current number of records would map each
    /// rank to another record after every insert.
    fn scattered(&mut self) -> u64 {
        let records = u64::from(self.ycsb.records);
        match self.ycsb.uniform {
            true => self.random.below(records),
            false => fnv_hash(self.ranks.rank(&mut self.random)) % records,
        }
    }
}

/// A running workload.
#[derive(Debug)]
pub struct Operations {
    client: Client,
    store: Store,
    /// Current number of records, including inserted ones.
    records: u64,
    begun: u64,
    checkpoint_every: u64,
}

impl Operations {
    /// Starts the workload.
    ///
    /// # Panics
    /// If there is no record.
    pub fn new(ycsb: Ycsb, seed: u64) -> Operations {
        let records = u64::from(ycsb.records);
        let leaves = records.div_ceil(RECORDS_PER_LEAF) as u32;
        Operations {
            client: Client::new(ycsb, seed),
            store: Store::new(leaves, LEAF_PAGES, u64::from(ycsb.cache_pages)),
            records,
            begun: 0,
            checkpoint_every: checkpoint_every(ycsb.records),
        }
    }

    /// Appends the steps of one operation.
    pub fn next(&mut self, steps: &mut Vec<Step>) {
        let computes = Step::Compute { nanos: u64::from(self.client.ycsb.compute_micros) * 1000 };
        steps.push(computes);
        match self.client.next(self.records) {
            StoreRequest::Read { key } => self.visit(key, false, steps),
            StoreRequest::Update { key } => self.visit(key, true, steps),
            StoreRequest::Insert => {
                self.visit(self.records, true, steps);
                self.records += 1;
            }
            StoreRequest::Scan { key, records } => {
                let first = self.leaf(key);
                // The first record can be at any position in its leaf.
                let last = u64::from(first)
                    + (self.client.random.below(RECORDS_PER_LEAF) + records - 1) / RECORDS_PER_LEAF;
                for leaf in first..=last.min(u64::from(self.store.leaves()) - 1) as u32 {
                    self.store.visit(leaf, 0, false, steps);
                }
            }
            StoreRequest::ReadModifyWrite { key } => {
                self.visit(key, false, steps);
                // Two requests to the server.
                steps.push(computes);
                self.visit(key, true, steps);
            }
        }
        self.begun += 1;
        if self.begun.is_multiple_of(self.checkpoint_every) && self.client.ycsb.writes_percent > 0 {
            self.store.checkpoint(steps);
        }
    }

    /// Records are in the order of their hashed keys.
    fn leaf(&self, key: u64) -> u32 {
        leaf_of(fnv_hash(key), self.store.leaves())
    }

    fn visit(&mut self, key: u64, write: bool, steps: &mut Vec<Step>) {
        let leaf = self.leaf(key);
        // Bits that did not select the leaf.
        self.store.visit(leaf, fnv_hash(key) & 0xffff, write, steps);
    }
}

/// Operations between two checkpoints.
fn checkpoint_every(records: u32) -> u64 {
    (u64::from(records) * CHECKPOINT_PERCENT / 100).max(1)
}

/// The leaf of a key in a tree of `leaves` leaves that is ordered by the keys' hash.
fn leaf_of(hash: u64, leaves: u32) -> u32 {
    ((u128::from(hash) * u128::from(leaves)) >> 63) as u32
}

/// The hash with which YCSB scatters keys: 64-bit FNV-1a over the value's bytes, without its sign.
fn fnv_hash(value: u64) -> u64 {
    (fnv1a(value.to_le_bytes()) as i64).unsigned_abs() & (i64::MAX as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn operations(letter: Letter, records: u32) -> Operations {
        let cache_pages = records / 28 * 8 / 4;
        Operations::new(Ycsb::new(letter, records, cache_pages), 7)
    }

    /// Runs `count` operations and returns the pages read from the file and the pages written to
    /// it.
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
        // FNV-1a over eight bytes, the lowest first, each as a positive number; computed
        // separately.
        let hashes = [0x5738_07CD_D7E5_C63B, 0x7632_CED6_E2D5_105C, 0x209F_B53A_28D9_31E7];
        assert_eq!([0, 1, 123_456_789].map(fnv_hash), hashes);
        assert!((0..1000).all(|value| fnv_hash(value) >> 63 == 0));
    }

    #[test]
    fn the_hottest_key_gets_its_share() {
        let mut operations = operations(Letter::C, 1_000_000);
        let mut counts = BTreeMap::new();
        for _ in 0..200_000 {
            *counts.entry(operations.client.scattered()).or_insert(0) += 1;
        }
        // YCSB's ζ(10¹⁰, 0.99) is 26.469, so the first rank has 1 / 26.469 of all draws. Other
        // ranks that hash to the same record add a negligible share.
        let most = *counts.values().max().unwrap() as f64 / 200_000.0;
        assert!((most * 26.469 - 1.0).abs() < 0.05, "{most}");
    }

    #[test]
    fn requests_are_in_the_published_proportions() {
        // Reads, updates, inserts, scans, and reads with updates, in percent.
        let published = [
            (Letter::A, [50, 50, 0, 0, 0]),
            (Letter::B, [95, 5, 0, 0, 0]),
            (Letter::C, [100, 0, 0, 0, 0]),
            (Letter::D, [95, 0, 5, 0, 0]),
            (Letter::E, [0, 0, 5, 95, 0]),
            (Letter::F, [50, 0, 0, 0, 50]),
        ];
        const COUNT: u64 = 100_000;
        for (letter, shares) in published {
            let mut client = operations(letter, 1000).client;
            let (mut counts, mut records, mut scanned, mut latest) = ([0; 5], 1000, 0, 0);
            for _ in 0..COUNT {
                let (kind, key) = match client.next(records) {
                    StoreRequest::Read { key } => (0, key),
                    StoreRequest::Update { key } => (1, key),
                    StoreRequest::Insert => (2, records),
                    StoreRequest::Scan { key, records } => {
                        scanned += records;
                        (3, key)
                    }
                    StoreRequest::ReadModifyWrite { key } => (4, key),
                };
                assert!(key < records || kind == 2);
                latest += u64::from(kind == 0 && key + 10 >= records);
                records += u64::from(kind == 2);
                counts[kind] += 1;
            }
            let percent = counts.map(|count| count as f64 * 100.0 / COUNT as f64);
            let is_near =
                percent.iter().zip(shares).all(|(&found, share)| (found - f64::from(share)).abs() < 0.6);
            assert!(is_near, "{letter:?}: {percent:?}");
            if letter == Letter::E {
                let mean = scanned as f64 / counts[3] as f64;
                assert!((mean - 50.5).abs() < 0.5, "scans of 1 to 100 records, {mean} on average");
            }
            // 0.99-zipfian over 1000: ζ(10) / ζ(1000) = 2.95 / 7.73 of all reads.
            let share = latest as f64 / counts[0].max(1) as f64;
            assert_eq!(
                share > 0.3,
                letter == Letter::D,
                "{letter:?}: {share} of the reads are of the latest ten"
            );
        }
    }

    #[test]
    fn workloads_touch_different_pages() {
        let [a, b, c, d, e, _] = Letter::ALL.map(|letter| file_pages(letter, 20_000));
        assert_eq!(c.1, 0);
        assert!(a.1 > 3 * b.1, "{a:?} {b:?}");
        assert!(d.1 > 0 && e.1 > 0, "{d:?} {e:?}");
        assert!(e.0 > 2 * c.0, "scans read neighbours: {e:?} {c:?}");
        assert!(d.0 < c.0, "the latest records are few: {d:?} {c:?}");
    }

    #[test]
    fn a_read_modify_write_reads_the_record_that_it_then_writes() {
        let mut operations = operations(Letter::F, 1000);
        let (mut steps, mut both) = (Vec::new(), 0);
        for _ in 0..1000 {
            steps.clear();
            operations.next(&mut steps);
            let rests: Vec<usize> =
                (0..steps.len()).filter(|&at| matches!(steps[at], Step::Compute { .. })).collect();
            let [_, second] = rests[..] else { continue };
            let (Step::Touch(read), Step::Touch(write)) = (steps[second - 1], steps[second + 2]) else {
                panic!("a record is touched last: {steps:?}");
            };
            assert!(!read.write && write.write && read.page == write.page, "{steps:?}");
            both += 1;
        }
        assert!((450..550).contains(&both), "{both}");
    }

    #[test]
    fn popular_records_stay_popular_when_records_are_inserted() {
        let mut client = operations(Letter::E, 1000).client;
        let mut counts = BTreeMap::new();
        for records in 1000..11_000 {
            if let StoreRequest::Scan { key, .. } = client.next(records) {
                *counts.entry(key).or_insert(0) += 1;
            }
        }
        assert!(counts.values().max() > Some(&300), "one draw of 26 is of the same key");
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
