//! Bloom filters of page tables that are worth walking.
//!
//! Two filters alternate: the walk that creates generation `s + 1` asks filter `s % 2` which tables
//! to walk, and adds the dense ones it meets to filter `(s + 1) % 2`. Eviction adds dense tables to
//! the filter of `max_seq`. A missing filter passes every table.
//!
//! Source: [book: aging#bloom-filters]. With 2^15 bits and two hashes, one "yes" in five is wrong
//! at 10,000 tables.
//!
//! # Locking
//!
//! Each filter has a lock, a leaf, taken once per 512 pages scanned.

use crate::lru::Seq;
use crate::mapping::MappingId;
use crate::random::mix;
use crate::sync::Mutex;

const HASH_BITS: u32 = 15;
const WORDS: usize = (1 << HASH_BITS) / u64::BITS as usize;

/// A filter; `None` while it is missing.
type Filter = Mutex<Option<Box<[u64; WORDS]>>>;
const BYTES: u64 = WORDS as u64 * 8;

/// The two filters of an lruvec. Each takes 4 KiB once a walk has created it.
#[derive(Debug)]
pub(crate) struct Filters([Filter; 2]);

/// Two bit numbers, from one 30-bit hash of the table's identity.
fn hashes(mapping: MappingId, table: u32) -> [usize; 2] {
    let z = mix(u64::from(mapping.0) << 32 | u64::from(table));
    let mask = (1 << HASH_BITS) - 1;
    [z as usize & mask, (z >> HASH_BITS) as usize & mask]
}

impl Filters {
    pub(crate) fn new() -> Filters {
        Filters([Mutex::new(None), Mutex::new(None)])
    }

    fn of(&self, seq: Seq) -> &Filter {
        &self.0[(seq.0 % 2) as usize]
    }

    /// Empties the filter of `seq`, or creates it and counts its bytes. Returns these, or 0.
    pub(crate) fn clear(&self, seq: Seq, count: impl FnOnce(u64)) -> u64 {
        let mut filter = self.of(seq).lock();
        if let Some(bits) = &mut *filter {
            bits.fill(0);
            return 0;
        }
        // Before another thread can remove the filter and subtract them.
        count(BYTES);
        *filter = Some(Box::new([0; WORDS]));
        BYTES
    }

    /// Removes the filter of `seq`. Returns the bytes that it took.
    pub(crate) fn remove(&self, seq: Seq) -> u64 {
        if self.of(seq).lock().take().is_some() { BYTES } else { 0 }
    }

    /// Removes both filters. Returns the bytes that they took.
    pub(crate) fn forget(&self) -> u64 {
        [Seq(0), Seq(1)].map(|seq| self.remove(seq)).iter().sum()
    }

    /// Whether a table may be worth walking while `seq` is the youngest generation.
    pub(crate) fn may_contain(&self, seq: Seq, mapping: MappingId, table: u32) -> bool {
        let filter = self.of(seq).lock();
        let contains =
            |bits: &[u64]| hashes(mapping, table).iter().all(|&bit| bits[bit / 64] & 1 << (bit % 64) != 0);
        filter.as_ref().is_none_or(|bits| contains(&bits[..]))
    }

    /// Adds a dense table. Has no effect while the filter is missing.
    pub(crate) fn insert(&self, seq: Seq, mapping: MappingId, table: u32) {
        let mut filter = self.of(seq).lock();
        let Some(bits) = &mut *filter else { return };
        for bit in hashes(mapping, table) {
            bits[bit / 64] |= 1 << (bit % 64);
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().filter(|filter| filter.lock().is_some()).count() as u64 * BYTES
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_missing_filter_passes_everything_and_keeps_nothing() {
        let filters = Filters::new();
        filters.insert(Seq(3), MappingId(0), 7);
        assert!(filters.may_contain(Seq(3), MappingId(0), 8));
        filters.clear(Seq(3), |_| ());
        assert!(!filters.may_contain(Seq(3), MappingId(0), 7));
        assert!(filters.may_contain(Seq(4), MappingId(0), 7), "the other one is still missing");
        assert_eq!(filters.forget(), 4096);
        filters.insert(Seq(3), MappingId(0), 7);
        assert!(filters.may_contain(Seq(3), MappingId(0), 8), "forgotten, it is missing again");
        let mut counted = 0;
        let added = [3, 3, 4].map(|seq| filters.clear(Seq(seq), |bytes| counted += bytes));
        assert_eq!((added, counted), ([4096, 0, 4096], 8192));
        assert!(!filters.may_contain(Seq(3), MappingId(0), 7));
    }

    /// [book: aging#bloom-filters]: about 1/5 wrong answers at 10,000 entries, 1/2 at 20,000.
    #[test]
    fn false_positives_are_as_published() {
        let filters = Filters::new();
        filters.clear(Seq(0), |_| ());
        let wrong = |from: u32| {
            (from..from + 10_000).filter(|&t| filters.may_contain(Seq(0), MappingId(1), t)).count()
        };
        (0..10_000).for_each(|table| filters.insert(Seq(0), MappingId(0), table));
        assert!((1500..2500).contains(&wrong(0)), "{}", wrong(0));
        (10_000..20_000).for_each(|table| filters.insert(Seq(0), MappingId(0), table));
        assert!((4000..6000).contains(&wrong(0)), "{}", wrong(0));
        assert!((0..20_000).all(|table| filters.may_contain(Seq(0), MappingId(0), table)));
    }
}
