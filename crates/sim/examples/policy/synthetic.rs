//! Random loads that show where recency counts, and a loop barely larger than memory. Each has a
//! seed of its own, so that a run repeats.

use mglru_sim::{Access, Operation};
use mglru_workload::Random;

/// Pages that are in use at a time.
const PAGES: u64 = 20_000;
const ACCESSES: u64 = 600_000;

/// Names of the loads, in the order of their seeds.
pub const NAMES: [&str; 7] = ["loop 1.02", "zigzag", "drift", "shift", "new pages", "stack", "shift 5"];

/// A file much larger than memory, read at random. Only a load if it is asked for: it is long.
pub const SPARSE: &str = "sparse";
const SPARSE_PAGES: u64 = 3_000_000;
const SPARSE_ACCESSES: u64 = 4_000_000;

/// Skewed reads of one file, whose pages are numbered as they lie in it.
pub fn sparse() -> Vec<Operation> {
    let (zipf, mut random) = (Zipf::new(0.8, SPARSE_PAGES), Random::stream(21, NAMES.len() as u64));
    // A multiplication by a number that has no common factor with the pages permutes them.
    let place = |rank: u64| rank * 0x9e37_79b1 % SPARSE_PAGES;
    (0..SPARSE_ACCESSES).map(|_| Operation::from(Access::read(place(zipf.rank(&mut random))))).collect()
}

/// The load with this name. A loop is 1.02 times as large as the memory of `memory_pages`.
pub fn load(name: &str, memory_pages: u64) -> Vec<Operation> {
    let seed = NAMES.iter().position(|known| *known == name).expect("a known name");
    let mut random = Random::stream(21, seed as u64);
    let pages: Vec<u64> = match name {
        "loop 1.02" => {
            let length = (memory_pages * 102).div_ceil(100);
            (0..ACCESSES.min(30 * length)).map(|at| at % length).collect()
        }
        "zigzag" => (0..ACCESSES).map(zigzag).collect(),
        "drift" => {
            // The hottest page is replaced every 20 accesses, and all others gain a rank.
            let zipf = Zipf::new(0.9, PAGES);
            (0..ACCESSES).map(|at| at / 20 + zipf.rank(&mut random)).collect()
        }
        // The ranks of the same pages change 20 times, or five times.
        "shift" => shift(20, &mut random),
        "shift 5" => shift(5, &mut random),
        "new pages" => {
            let zipf = Zipf::new(0.8, PAGES);
            (0..ACCESSES).map(|at| at / (ACCESSES / 6) * PAGES + zipf.rank(&mut random)).collect()
        }
        _ => stack(&mut random),
    };
    // Neighbouring ranks are no neighbours in the file.
    pages
        .into_iter()
        .map(|page| Operation::from(Access::read(page.wrapping_mul(0x9e37_79b9) & 0xffff_ffff)))
        .collect()
}

/// Skewed reads of the same pages, whose ranks change `times` times.
fn shift(times: u64, random: &mut Random) -> Vec<u64> {
    let zipf = Zipf::new(0.9, PAGES);
    (0..ACCESSES).map(|at| (zipf.rank(random) + at / (ACCESSES / times) * (PAGES / 7)) % PAGES).collect()
}

/// Forwards and backwards over all pages.
fn zigzag(at: u64) -> u64 {
    let place = at % (2 * PAGES);
    if place < PAGES { place } else { 2 * PAGES - 1 - place }
}

/// Stack distances with an exponential distribution of mean 3,000: recency is all.
fn stack(random: &mut Random) -> Vec<u64> {
    let mut stack: Vec<u64> = (0..PAGES).collect();
    let mut next = || {
        let distance = (-(1.0 - random.unit()).ln() * 3000.0) as usize;
        let place = stack.len() - 1 - distance.min(stack.len() - 1);
        let page = stack.remove(place);
        stack.push(page);
        page
    };
    (0..ACCESSES / 2).map(|_| next()).collect()
}

/// Ranks from 0, of which the rank `r` has the weight `1 / (r + 1)^theta`.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(theta: f64, pages: u64) -> Zipf {
        let mut sum = 0.0;
        let weight = |rank: u64| ((rank + 1) as f64).powf(-theta);
        Zipf(
            (0..pages)
                .map(|rank| {
                    sum += weight(rank);
                    sum
                })
                .collect(),
        )
    }

    fn rank(&self, random: &mut Random) -> u64 {
        let drawn = random.unit() * self.0.last().expect("there are pages");
        self.0.partition_point(|&sum| sum <= drawn) as u64
    }
}
