//! Readers of a mapped file beside tasks that allocate and free anonymous memory.
//!
//! Published with the reclaim loop of Linux 7.2 ([book: published-experiments#reclaim-loop] test
//! 3). There, readers pause 120 ms per batch, and 44 GiB of anonymous memory and a file of 8 GiB
//! meet a limit of 48 GiB without swap. The multi-gen LRU before that series killed a task after 10
//! to 20 rounds.
//!
//! A batch is one reader's part of the file. A round is one allocator's part of the memory: the
//! allocator stores to it page by page, holds it until all allocators have filled theirs, and frees
//! it as a whole, as the program on real kernels did. So each round meets the whole 52 GiB, even if
//! the allocators progress unevenly. The pause scales with the file size.

use crate::load::Step;
use crate::random::Random;
use crate::trace::PageAccess;

/// Pause between two batches, and the file size, of the published run. The pause shrinks with the
/// file, so that a round of the allocators meets as many batches at any size.
const PAUSE_NANOS: u64 = 120_000_000;
const PUBLISHED_FILE_PAGES: u64 = 8 << 18;
/// How many times per pause a waiting allocator checks whether the others are done.
const LOOKS: u64 = 240;
/// Upper limit of pages per call of [`Rounds::next`], so that a batch need not fit in memory.
const DRAW_PAGES: u32 = 4096;

/// Sizes of the mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileAnon {
    /// Pages of the file; at least 1.
    pub file_pages: u32,
    /// Pages of all anonymous memory together; at least 1.
    pub anon_pages: u32,
    /// Number of clients that read. The others allocate.
    pub readers: u32,
}

/// The running readers and allocators.
#[derive(Debug)]
pub struct Rounds {
    mix: FileAnon,
    allocators: u32,
    /// Per client, pages of its part touched in this batch or round. A value above the part's size
    /// means that the client waits for the others.
    touched: Vec<u32>,
    /// Per client, completed rounds. Always 0 for readers.
    rounds: Vec<u64>,
    /// Parts filled by allocators, over all rounds.
    filled: u64,
}

impl Rounds {
    /// Starts `clients` clients, which must be more than the readers. The seed decides the position
    /// at which each reader begins.
    pub fn new(mix: FileAnon, clients: u32, seed: u64) -> Rounds {
        let mut random = Random::stream(seed, 0xF11E);
        let mut touched = vec![0; clients as usize];
        let part = (mix.file_pages / mix.readers.max(1)).max(1);
        for reader in &mut touched[..mix.readers as usize] {
            *reader = random.below(u64::from(part)) as u32;
        }
        let rounds = vec![0; clients as usize];
        Rounds { mix, allocators: clients - mix.readers, touched, rounds, filled: 0 }
    }

    fn pause_nanos(&self) -> u64 {
        (PAUSE_NANOS * u64::from(self.mix.file_pages) / PUBLISHED_FILE_PAGES).max(LOOKS)
    }

    /// Appends some touches of a client, or its wait for the others. A round of an allocator ends
    /// with [`Step::Release`].
    pub fn next(&mut self, client: usize, steps: &mut Vec<Step>) {
        let reads = (client as u32) < self.mix.readers;
        let (pages, parts) = if reads {
            (self.mix.file_pages, self.mix.readers)
        } else {
            (self.mix.anon_pages, self.allocators)
        };
        let part = (pages / parts).max(1);
        let pause_nanos = self.pause_nanos();
        let touched = &mut self.touched[client];
        let first = match reads {
            true => 1 << 32 | u64::from((client as u32 * part) % pages),
            false => (client as u64 + 1) << 32,
        };
        if *touched == part {
            // The store to the last page is complete only now.
            *touched += 1;
            self.filled += 1;
        }
        if *touched > part {
            let round = &mut self.rounds[client];
            if self.filled < (*round + 1) * u64::from(self.allocators) {
                return steps.push(Step::Rest { nanos: pause_nanos / LOOKS });
            }
            (*round, *touched) = (*round + 1, 0);
            return steps.push(Step::Release { page: first, pages: part });
        }
        let count = DRAW_PAGES.min(part - *touched);
        let pages = (*touched..*touched + count).map(|page| first + u64::from(page));
        steps.extend(pages.map(|page| {
            Step::Touch(PageAccess { write: !reads, mapped: true, anon: !reads, ..PageAccess::read(page) })
        }));
        *touched += count;
        if *touched == part && reads {
            *touched = 0;
            steps.push(Step::Rest { nanos: pause_nanos });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn readers_share_the_file_and_allocators_the_memory() {
        let mix = FileAnon { file_pages: 100, anon_pages: 60, readers: 4 };
        let mut rounds = Rounds::new(mix, 7, 1);
        let (mut file, mut anon, mut releases) = (BTreeSet::new(), BTreeSet::new(), 0);
        // A reader may begin anywhere in its part, so the first batch can be short. The third turn
        // lets the allocators free their memory.
        for client in (0..7).chain(0..7).chain(4..7) {
            let mut steps = Vec::new();
            rounds.next(client, &mut steps);
            for step in steps {
                match step {
                    Step::Touch(touch) if touch.anon => _ = anon.insert(touch.page),
                    Step::Touch(touch) => _ = file.insert(touch.page),
                    Step::Release { pages, .. } => releases += pages,
                    _ => {}
                }
            }
        }
        assert_eq!((file.len(), anon.len(), releases), (100, 60, 60));
    }

    #[test]
    fn clients_release_memory_only_after_all_have_stored() {
        let mut rounds = Rounds::new(FileAnon { file_pages: 1, anon_pages: 20, readers: 1 }, 3, 1);
        let mut of = |client| {
            let mut steps = Vec::new();
            rounds.next(client, &mut steps);
            steps
        };
        let looks = [Step::Rest { nanos: 1 }];
        let gives_up = |client: u64| [Step::Release { page: (client + 1) << 32, pages: 10 }];
        assert_eq!(of(1).len(), 10);
        assert_eq!(of(1), looks);
        assert_eq!(of(2).len(), 10);
        assert_eq!(of(1), looks, "the other one got its stores and has not done them");
        assert_eq!(of(2), gives_up(2));
        assert_eq!(of(1), gives_up(1));
        assert_eq!(of(1).len(), 10, "the next round");
        assert_eq!(of(1), looks);
    }
}
