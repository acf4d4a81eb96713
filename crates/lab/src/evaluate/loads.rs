//! The standard loads: small, generated, and each hard on a different rule of reclaim.

use mglru_workload::Random;
use mglru_workload::trace::{PageAccess, Record};

/// Length of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Number of accesses.
    pub accesses: u64,
    /// Number of pages that the load may access.
    pub pages: u64,
}

impl Default for Size {
    fn default() -> Size {
        Size { accesses: 120_000, pages: 12_000 }
    }
}

impl Size {
    /// Memory: a fifth of the pages.
    pub fn memory_pages(self) -> u64 {
        (self.pages / 5).max(64)
    }
}

/// A standard load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Stable name.
    pub name: &'static str,
    /// A description in a few words.
    pub words: &'static str,
    shape: Shape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Skewed { percent: u32, mapped: bool, writes_percent: u64 },
    Cycle,
    Scan,
    Moving,
    Anon,
}

/// All standard loads.
pub const LOADS: [Load; 8] = [
    Load {
        name: "skewed",
        words: "reads, skew 0.9",
        shape: Shape::Skewed { percent: 90, mapped: false, writes_percent: 0 },
    },
    Load {
        name: "flat",
        words: "reads, skew 0.5",
        shape: Shape::Skewed { percent: 50, mapped: false, writes_percent: 0 },
    },
    Load {
        name: "writes",
        words: "skew 0.9, a third written",
        shape: Shape::Skewed { percent: 90, mapped: false, writes_percent: 33 },
    },
    Load {
        name: "mapped",
        words: "mapped reads, skew 0.9",
        shape: Shape::Skewed { percent: 90, mapped: true, writes_percent: 0 },
    },
    Load { name: "cycle", words: "a cycle of 1.2 times the memory", shape: Shape::Cycle },
    Load { name: "scan", words: "skewed reads beside a scan", shape: Shape::Scan },
    Load { name: "moving", words: "a hot set that moves eight times", shape: Shape::Moving },
    Load { name: "anon", words: "skewed file reads, anonymous memory and swap", shape: Shape::Anon },
];

impl Load {
    /// The accesses that a seed draws.
    pub fn records(&self, size: Size, seed: u64) -> Vec<Record> {
        let mut draw = Random::stream(seed, 0xE7A1);
        let pages = size.pages.max(16);
        let mut records = Vec::with_capacity(size.accesses as usize);
        for number in 0..size.accesses {
            let mut access = PageAccess::read(0);
            match self.shape {
                Shape::Skewed { percent, mapped, writes_percent } => {
                    access.page = scattered(skewed(&mut draw, pages, percent), pages);
                    access.mapped = mapped;
                    access.write = writes_percent > 0 && draw.unit() * 100.0 < writes_percent as f64;
                }
                Shape::Cycle => access.page = number % (size.memory_pages() * 6 / 5),
                Shape::Scan => {
                    let hot = pages / 4;
                    access.page = match number % 2 {
                        0 => scattered(skewed(&mut draw, hot, 90), hot),
                        _ => hot + number / 2 % (pages - hot),
                    };
                }
                Shape::Moving => {
                    let phase = number * 8 / size.accesses;
                    let base = phase * pages / 8;
                    access.page = (base + skewed(&mut draw, pages / 3, 90)) % pages;
                }
                Shape::Anon => {
                    let anonymous = size.memory_pages() * 3 / 4;
                    access.anon = number % 2 == 0;
                    access.mapped = access.anon;
                    if access.anon {
                        access.page = scattered(skewed(&mut draw, anonymous, 60), anonymous);
                        access.write = draw.unit() < 0.5;
                    } else {
                        access.page = scattered(skewed(&mut draw, pages, 90), pages);
                    }
                }
            }
            records.push(Record::Access(access));
        }
        records
    }

    /// Whether it needs swap.
    pub fn has_anon(&self) -> bool {
        self.shape == Shape::Anon
    }
}

/// A rank from 0 to `count - 1`. Popularity falls with the rank to the power of `percent` / 100,
/// which is below 1.
fn skewed(draw: &mut Random, count: u64, percent: u32) -> u64 {
    // The inverse of the continuous distribution: the share of the first x ranks is (x/n)^(1-s).
    let power = 1.0 / (1.0 - f64::from(percent) / 100.0);
    ((draw.unit().powf(power) * count as f64) as u64).min(count - 1)
}

/// The page of a rank: popular pages are spread over the file.
fn scattered(rank: u64, pages: u64) -> u64 {
    // Steps of an odd number that is prime to most counts visit all pages or a large part of them.
    rank.wrapping_mul(0x9E37_79B1) % pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SIZE: Size = Size { accesses: 4000, pages: 1000 };

    fn accesses(load: &Load, seed: u64) -> Vec<PageAccess> {
        let access = |record: Record| record.access().expect("no load syncs or trims");
        load.records(SIZE, seed).into_iter().map(access).collect()
    }

    #[test]
    fn loads_have_their_length_and_stay_in_their_pages() {
        let names: HashSet<&str> = LOADS.iter().map(|load| load.name).collect();
        assert_eq!(names.len(), LOADS.len());
        for load in LOADS {
            let accesses = accesses(&load, 1);
            assert_eq!(accesses.len(), 4000, "{}", load.name);
            assert!(accesses.iter().all(|access| access.page < SIZE.pages), "{}", load.name);
            assert_eq!(accesses.iter().any(|access| access.anon), load.has_anon(), "{}", load.name);
            let distinct: HashSet<(bool, u64)> = accesses.iter().map(|a| (a.anon, a.page)).collect();
            assert!(distinct.len() as u64 > SIZE.memory_pages(), "{}: memory is short", load.name);
        }
    }

    #[test]
    fn seeds_draw_other_accesses() {
        for load in LOADS.iter().filter(|load| load.shape != Shape::Cycle) {
            assert_ne!(accesses(load, 1), accesses(load, 2), "{}", load.name);
            assert_eq!(accesses(load, 1), accesses(load, 1), "{}", load.name);
        }
    }

    #[test]
    fn popularity_falls_with_the_rank() {
        let mut draw = Random::stream(1, 1);
        let ranks: Vec<u64> = (0..10_000).map(|_| skewed(&mut draw, 1000, 90)).collect();
        let below = |limit: u64| ranks.iter().filter(|&&rank| rank < limit).count();
        // (1/10)^0.1 and (1/2)^0.1 of the accesses.
        assert!((7700..8200).contains(&below(100)) && (9200..9500).contains(&below(500)));
    }
}
