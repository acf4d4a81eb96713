//! Compilers: many small files that are read once, some files that every unit reads, and heaps that
//! grow and are freed.
//!
//! The shape is that of a kernel build with many jobs. A unit reads a source file of a few pages
//! and dozens of headers, some of which nearly every unit includes (zipfian 0.99). It writes an
//! object file. Its heap grows while it is compiled, is read again, and is freed. A tenth of the
//! tree's files are headers.

use crate::distribution::Skewed;
use crate::load::Step;
use crate::random::{Random, mix};
use crate::trace::PageAccess;

/// Headers per unit.
const HEADERS: u64 = 60;
const OBJECT_PAGES: u64 = 8;
/// Computing time per page of the heap.
const HEAP_PAGE_NANOS: u64 = 100_000;
/// File numbers. Sources, headers and objects are each laid out one after the other, as on a file
/// system.
const SOURCES: u64 = 1 << 32;
const HEADERS_FILE: u64 = 2 << 32;
const OBJECTS: u64 = 3 << 32;
/// Pages reserved per file.
const FILE_PAGES_MAX: u64 = 16;

/// The source tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compile {
    /// Number of units; at least 1.
    pub sources: u32,
    /// Average heap of each compiler in pages; at least 1.
    pub heap_pages: u32,
}

/// The compilers of one tree.
#[derive(Debug)]
pub struct Compilers {
    sources: u64,
    heap_pages: u64,
    popular: Skewed,
    random: Random,
    /// The next unit. After the last unit the tree is compiled again.
    next: u64,
}

impl Compilers {
    /// Starts the compilers of one tree. Their number does not matter: each takes the next unit.
    pub fn new(compile: Compile, seed: u64) -> Compilers {
        let headers = u64::from(compile.sources / 10).max(1);
        Compilers {
            sources: u64::from(compile.sources),
            heap_pages: u64::from(compile.heap_pages),
            popular: Skewed::zipf(0.99, headers, &mut Random::stream(seed, 1)),
            random: Random::stream(seed, 0xCC),
            next: 0,
        }
    }

    /// Appends the steps of the next unit.
    pub fn next(&mut self, client: usize, steps: &mut Vec<Step>) {
        let unit = self.next % self.sources;
        self.next += 1;
        let file = |page, write| Step::Touch(PageAccess { write, ..PageAccess::read(page) });
        // File sizes are 1 to 15 pages, with small sizes more frequent.
        let pages = |number: u64| {
            1 + mix(number) % FILE_PAGES_MAX * (mix(number + 1) % FILE_PAGES_MAX) / FILE_PAGES_MAX
        };
        let read = |first: u64, number: u64, steps: &mut Vec<Step>| {
            let (first, pages) = (first + number * FILE_PAGES_MAX, pages(number));
            steps.push(Step::Request { pages: pages as u32 });
            steps.extend((first..first + pages).map(|page| file(page, false)));
        };
        read(SOURCES, unit, steps);
        for _ in 0..HEADERS {
            read(HEADERS_FILE, self.popular.block(&mut self.random), steps);
        }
        // Half to one and a half times the average.
        let heap = self.heap_pages / 2 + self.random.below(self.heap_pages + 1);
        let first = (client as u64 + 1) << 32;
        for page in 0..heap.max(1) {
            let anon = |page, write| {
                Step::Touch(PageAccess { write, mapped: true, anon: true, ..PageAccess::read(page) })
            };
            steps.push(anon(first + page, true));
            steps.push(anon(first + self.random.below(page + 1), false));
            steps.push(Step::Compute { nanos: HEAP_PAGE_NANOS });
        }
        steps.push(Step::Request { pages: OBJECT_PAGES as u32 });
        steps.extend((0..OBJECT_PAGES).map(|page| file(OBJECTS + unit * OBJECT_PAGES + page, true)));
        steps.push(Step::Release { page: first, pages: heap.max(1) as u32 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_unit_reads_writes_and_gives_its_memory_up() {
        let mut compilers = Compilers::new(Compile { sources: 1000, heap_pages: 50 }, 3);
        let mut read = BTreeMap::new();
        for unit in 0..200u64 {
            let mut steps = Vec::new();
            compilers.next(1, &mut steps);
            assert!(matches!(steps.last(), Some(Step::Release { pages: 25..=76, .. })), "{:?}", steps.last());
            let mut written = 0;
            for step in &steps {
                match step {
                    Step::Touch(touch) if touch.anon => assert_eq!(touch.page >> 32, 2),
                    Step::Touch(touch) if touch.write => {
                        written += u64::from(touch.page >= OBJECTS + unit * 8)
                    }
                    Step::Touch(touch) => *read.entry(touch.page).or_insert(0) += 1,
                    _ => {}
                }
            }
            assert_eq!(written, 8);
        }
        let of =
            |file: u64| read.iter().filter(move |(page, _)| **page >> 32 == file).map(|(_, count)| *count);
        assert!(of(1).all(|count| count == 1), "each source once");
        assert!(of(2).max() > Some(1000), "popular headers again and again");
    }
}
