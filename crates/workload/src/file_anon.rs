//! Some read a file through mappings, batch by batch, and pause; others allocate anonymous memory
//! and free it.
//!
//! Published with the reclaim loop of Linux 7.2 ([book: published-experiments#reclaim-loop] test
//! 3): readers pause 120 ms per batch, 44 GiB of anonymous memory and a file of 8 GiB meet a limit
//! of 48 GiB without swap, and the multi-gen LRU before that series killed after 10 to 20 rounds. A
//! batch is the reader's part of the file. A round is an allocator's part of the memory: stored to
//! page by page, held until all allocators have theirs, and given up as a whole, as where real
//! kernels ran it (`../shared/kernel/README.md`, B). So each round meets the whole 52 GiB, however
//! unevenly its allocators get on. Where all is so many times smaller, so is the pause.

use crate::load::Step;
use crate::random::Random;
use crate::trace::PageAccess;

/// Between two batches of the published file, and its size. A smaller file is paused for as much
/// less, so that a round of the allocators meets as many batches at any size.
const PAUSE_NANOS: u64 = 120_000_000;
const PUBLISHED_FILE_PAGES: u64 = 8 << 18;
/// So often in a pause an allocator looks whether the others have theirs.
const LOOKS: u64 = 240;
/// Pages of one draw at most, so that a batch need not lie in memory.
const DRAW_PAGES: u32 = 4096;

/// The mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileAnon {
    /// The file; at least a page.
    pub file_pages: u32,
    /// All anonymous memory together; at least a page.
    pub anon_pages: u32,
    /// Clients that read; the others allocate.
    pub readers: u32,
}

/// Its clients.
#[derive(Debug)]
pub struct Rounds {
    mix: FileAnon,
    allocators: u32,
    /// Of each client, pages of its part that were touched in this batch or round; more than all:
    /// it waits for the others.
    touched: Vec<u32>,
    /// Of each client, rounds that it has ended. A reader has none.
    rounds: Vec<u64>,
    /// Parts that allocators have filled, of all rounds.
    filled: u64,
}

impl Rounds {
    /// So many clients; more than readers. The seed decides where in their parts readers begin.
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
            // Now it has stored to the last page, too.
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
        steps.extend(
            pages.map(|page| Step::Touch(PageAccess { page, write: !reads, mapped: true, anon: !reads })),
        );
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
        // The first batch of a reader may begin anywhere in its part; the third turn is for what an
        // allocator gives up.
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
    fn nobody_gives_up_before_all_are_done() {
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
        assert_eq!(of(1), looks, "the other one was told of its stores, and has not done them");
        assert_eq!(of(2), gives_up(2));
        assert_eq!(of(1), gives_up(1));
        assert_eq!(of(1).len(), 10, "the next round");
        assert_eq!(of(1), looks);
    }
}
