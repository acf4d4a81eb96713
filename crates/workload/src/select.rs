//! Point selects on a database whose buffer pool is larger than its memory limit.
//!
//! The shape is that of sysbench's read-only point selects on InnoDB with its defaults. A row has
//! about 220 bytes, and a leaf of 16 KiB holds 70 rows. A transaction selects ten rows. Of a
//! hundred selects, 75 hit a hundredth of the rows ("special"). The pool is anonymous memory that
//! is filled once and then swapped; after that the file is rarely read.

use crate::load::Step;
use crate::random::Random;
use crate::ycsb::Store;

const ROWS_PER_LEAF: u64 = 70;
const LEAF_PAGES: u32 = 4;
const SELECTS: u32 = 10;
/// The server's computing time per select.
const SELECT_NANOS: u64 = 50_000;

/// The database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Select {
    /// Rows of all tables together; at least 1.
    pub rows: u32,
    /// Pages of the buffer pool.
    pub cache_pages: u32,
}

/// A running load.
#[derive(Debug)]
pub struct Selects {
    rows: u64,
    store: Store,
    random: Random,
}

impl Selects {
    /// Starts with an empty pool.
    ///
    /// # Panics
    /// If there is no row.
    pub fn new(select: Select, seed: u64) -> Selects {
        assert!(select.rows > 0, "a database has at least one row");
        let rows = u64::from(select.rows);
        let leaves = rows.div_ceil(ROWS_PER_LEAF) as u32;
        let store = Store::new(leaves, LEAF_PAGES, u64::from(select.cache_pages));
        Selects { rows, store, random: Random::stream(seed, 0x5E1E) }
    }

    /// Appends the touches of one transaction.
    pub fn next(&mut self, steps: &mut Vec<Step>) {
        for _ in 0..SELECTS {
            steps.push(Step::Compute { nanos: SELECT_NANOS });
            let special = self.random.below(100) < 75;
            // The special rows lie in the middle, as in sysbench.
            let few = (self.rows / 100).max(1);
            let row = if special {
                (self.rows - few) / 2 + self.random.below(few)
            } else {
                self.random.below(self.rows)
            };
            self.store.visit((row / ROWS_PER_LEAF) as u32, row, false, steps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_holds_all_reads_each_leaf_once() {
        let mut selects = Selects::new(Select { rows: 7000, cache_pages: 400 }, 1);
        let mut steps = Vec::new();
        (0..2000).for_each(|_| selects.next(&mut steps));
        let reads = steps.iter().filter(|step| matches!(step, Step::Touch(touch) if !touch.anon));
        assert_eq!(reads.count(), 100 * 4 + 1, "100 leaves and their inner page");
        assert!(!steps.iter().any(|step| matches!(step, Step::Touch(touch) if !touch.anon && touch.write)));
    }

    #[test]
    fn a_hundredth_of_the_rows_gets_three_quarters() {
        let mut selects = Selects::new(Select { rows: 700_000, cache_pages: 0 }, 1);
        let mut steps = Vec::new();
        (0..2000).for_each(|_| selects.next(&mut steps));
        let leaf = |step: &Step| match step {
            Step::Touch(touch) if !touch.anon && touch.page >> 32 == 1 => {
                Some((touch.page & 0xffff_ffff) / 4)
            }
            _ => None,
        };
        let leaves: Vec<u64> = steps.iter().filter_map(leaf).collect();
        let special = leaves.iter().filter(|leaf| (4949..5051).contains(*leaf)).count();
        let share = special as f64 / leaves.len() as f64;
        assert!((0.70..0.80).contains(&share), "{share}");
    }
}
