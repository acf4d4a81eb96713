//! Some read a file through mappings, batch by batch, and pause; others allocate anonymous memory and free it.
//!
//! Published with the reclaim loop of Linux 7.2 (spec 95 E5, 3): readers pause 120 ms per batch, 44 GiB of anonymous memory and
//! a file of 8 GiB meet a limit of 48 GiB without swap, and the multi-gen LRU before that series killed after 10 to 20 rounds.
//! A batch is the reader's part of the file, a round an allocator's part of the memory, stored to page by page and given
//! up as a whole; in between the two it holds it as long as a reader pauses.

use crate::load::Step;
use crate::random::Random;
use crate::trace::PageAccess;

/// Between two batches.
const PAUSE_NANOS: u64 = 120_000_000;
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
    /// Of each client, pages of its part that were touched in this batch or round.
    touched: Vec<u32>,
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
        Rounds { mix, allocators: clients - mix.readers, touched }
    }

    /// Appends some touches of a client. A round of an allocator ends with [`Step::Release`].
    pub fn next(&mut self, client: usize, steps: &mut Vec<Step>) {
        let reads = (client as u32) < self.mix.readers;
        let (pages, parts) = if reads {
            (self.mix.file_pages, self.mix.readers)
        } else {
            (self.mix.anon_pages, self.allocators)
        };
        let part = (pages / parts).max(1);
        let touched = &mut self.touched[client];
        let first = match reads {
            true => 1 << 32 | u64::from((client as u32 * part) % pages),
            false => (client as u64 + 1) << 32,
        };
        let count = DRAW_PAGES.min(part - *touched);
        let pages = (*touched..*touched + count).map(|page| first + u64::from(page));
        steps.extend(
            pages.map(|page| Step::Touch(PageAccess { page, write: !reads, mapped: true, anon: !reads })),
        );
        *touched += count;
        if *touched == part {
            *touched = 0;
            steps.push(Step::Rest { nanos: PAUSE_NANOS });
            if !reads {
                steps.push(Step::Release { page: first, pages: part });
            }
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
        for client in 0..7 {
            let mut steps = Vec::new();
            // The first batch of a reader may begin anywhere in its part.
            (0..2).for_each(|_| rounds.next(client, &mut steps));
            for step in steps {
                match step {
                    Step::Touch(touch) if touch.anon => _ = anon.insert(touch.page),
                    Step::Touch(touch) => _ = file.insert(touch.page),
                    Step::Release { pages, .. } => releases += pages,
                    _ => {}
                }
            }
        }
        assert_eq!((file.len(), anon.len(), releases), (100, 60, 120));
    }
}
