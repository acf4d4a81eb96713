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
/// Upper limit of heap pages per call of [`Compilers::next`], so that a heap need not fit in the
/// memory of this program.
const DRAW_PAGES: u64 = 4096;

/// The source tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compile {
    /// Number of units; at least 1.
    pub sources: u32,
    /// Average heap of each compiler in pages; 1 to [`Compile::HEAP_PAGES_MAX`].
    pub heap_pages: u32,
}

impl Compile {
    /// Largest average heap, 8 TiB in pages. The largest heap is half as large again, and a
    /// compiler has 2^32 page numbers.
    pub const HEAP_PAGES_MAX: u32 = 1 << 31;
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
    /// Per client, the unit that it compiles.
    units: Vec<Option<Unit>>,
}

/// A unit under way, whose files were read.
#[derive(Debug)]
struct Unit {
    number: u64,
    /// Size of the heap, and the pages that were filled.
    heap: u64,
    filled: u64,
    /// Draws the pages that are read again.
    random: Random,
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
            units: Vec::new(),
        }
    }

    /// Appends the steps of the next unit of a client, or of a part of it if its heap is large.
    pub fn next(&mut self, client: usize, steps: &mut Vec<Step>) {
        if self.units.len() <= client {
            self.units.resize_with(client + 1, || None);
        }
        let mut unit = self.units[client].take().unwrap_or_else(|| self.begin(steps));
        let first = (client as u64 + 1) << 32;
        let end = unit.heap.min(unit.filled + DRAW_PAGES);
        for page in unit.filled..end {
            let anon = |page, write| {
                Step::Touch(PageAccess { write, mapped: true, anon: true, ..PageAccess::read(page) })
            };
            steps.push(anon(first + page, true));
            steps.push(anon(first + unit.random.below(page + 1), false));
            steps.push(Step::Compute { nanos: HEAP_PAGE_NANOS });
        }
        unit.filled = end;
        if unit.filled < unit.heap {
            self.units[client] = Some(unit);
            return;
        }
        let object = OBJECTS + unit.number * OBJECT_PAGES;
        steps.push(Step::Request { pages: OBJECT_PAGES as u32 });
        steps.extend((object..object + OBJECT_PAGES).map(|page| touch(page, true)));
        steps.push(Step::Release { page: first, pages: unit.heap as u32 });
    }

    /// Begins the next unit, with the steps that read its files.
    fn begin(&mut self, steps: &mut Vec<Step>) -> Unit {
        let number = self.next % self.sources;
        self.next += 1;
        // File sizes are 1 to 15 pages, with small sizes more frequent.
        let pages = |number: u64| {
            1 + mix(number) % FILE_PAGES_MAX * (mix(number + 1) % FILE_PAGES_MAX) / FILE_PAGES_MAX
        };
        let read = |first: u64, number: u64, steps: &mut Vec<Step>| {
            let (first, pages) = (first + number * FILE_PAGES_MAX, pages(number));
            steps.push(Step::Request { pages: pages as u32 });
            steps.extend((first..first + pages).map(|page| touch(page, false)));
        };
        read(SOURCES, number, steps);
        for _ in 0..HEADERS {
            read(HEADERS_FILE, self.popular.block(&mut self.random), steps);
        }
        // Half to one and a half times the average.
        let heap = (self.heap_pages / 2 + self.random.below(self.heap_pages + 1)).max(1);
        let random = self.random.clone();
        // The units have numbers of one stream, whether their parts are drawn in turn or not.
        self.random.skip(heap);
        Unit { number, heap, filled: 0, random }
    }
}

fn touch(page: u64, write: bool) -> Step {
    Step::Touch(PageAccess { write, ..PageAccess::read(page) })
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

    /// All steps of a unit were once drawn at once: a heap of a terabyte took the memory of the
    /// program.
    #[test]
    fn a_large_heap_is_drawn_in_parts_with_the_same_pages() {
        let heap_pages = 3 * DRAW_PAGES as u32;
        let mut compilers = Compilers::new(Compile { sources: 1000, heap_pages }, 3);
        // A second client draws in between.
        let (mut units, mut parts) = ([Vec::new(), Vec::new()], 0);
        for client in [0, 1].into_iter().cycle() {
            if matches!(units[0].last(), Some(Step::Release { .. })) {
                break;
            }
            let before = units[client].len();
            compilers.next(client, &mut units[client]);
            assert!(units[client].len() - before <= 3 * DRAW_PAGES as usize + 2000);
            parts += 1;
        }
        assert!(parts >= 4, "{parts}");
        let filled = |step: &&Step| matches!(step, Step::Touch(touch) if touch.anon && touch.write);
        let heap = units[0].iter().filter(filled).count() as u64;
        let mut random = Random::stream(3, 0xCC);
        let headers = units[0].iter().filter(|step| matches!(step, Step::Request { .. })).count() - 2;
        // One number per header in this tree, and one for the size of the heap.
        random.skip(headers as u64);
        assert_eq!(u64::from(heap_pages) / 2 + random.below(u64::from(heap_pages) + 1), heap);
        let read = units[0].iter().filter_map(|step| match step {
            Step::Touch(touch) if touch.anon && !touch.write => Some(touch.page & 0xffff_ffff),
            _ => None,
        });
        assert!(read.eq((0..heap).map(|page| random.below(page + 1))));

        let largest = Compile { sources: 1, heap_pages: Compile::HEAP_PAGES_MAX };
        let mut steps = Vec::new();
        Compilers::new(largest, 1).next(0, &mut steps);
        assert!(steps.len() < 4 * DRAW_PAGES as usize);
    }
}
