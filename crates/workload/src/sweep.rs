//! A hydrodynamics-like sweep: threads repeatedly scan several arrays of anonymous memory.
//!
//! The shape is that of LULESH (Karlin, Keasler and Neely, "LULESH 2.0 updates and changes", LLNL
//! 2013). A time step is a sequence of kernels. Each kernel reads some arrays and writes another,
//! element by element, and every thread owns the same part of each array. The access pattern is
//! cyclic: two touches of a page are a whole time step apart, and each thread has its own position.
//! The seed decides the position at which each thread begins. Runs of the real program differ only
//! in that.

use crate::random::Random;
use crate::trace::PageAccess;

/// Operands of a kernel, as offsets from its own number: two arrays that it reads and one that it
/// writes.
const OPERANDS: [(usize, bool); 3] = [(0, false), (1, false), (3, true)];

/// Parameters of the sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sweep {
    /// Number of arrays, at least 4. Each is a region of anonymous memory.
    pub arrays: u32,
    /// Pages of each array.
    pub array_pages: u32,
    /// Number of threads, each with its part of every array.
    pub threads: u32,
    /// Seed of the positions at which threads begin.
    pub seed: u64,
}

impl Sweep {
    /// Touches of a thread that belong together: the same element of each operand.
    pub const STEP_TOUCHES: usize = OPERANDS.len();

    /// Pages of all arrays together.
    pub fn pages(&self) -> u64 {
        u64::from(self.arrays) * u64::from(self.array_pages)
    }

    /// The endless touches of one thread.
    ///
    /// # Panics
    /// If there are fewer than four arrays, or a thread has no page.
    pub fn thread(&self, thread: u32) -> impl Iterator<Item = PageAccess> + use<> {
        assert!(self.arrays >= 4, "a sweep has at least four arrays");
        let part = self.array_pages / self.threads;
        assert!(thread < self.threads && part > 0, "a thread has at least a page of each array");
        let first = thread * part;
        let phase = Random::stream(self.seed, u64::from(thread)).below(u64::from(part)) as u32;
        let arrays = self.arrays as usize;
        let kernel = move |kernel: usize| {
            (0..part).flat_map(move |at| {
                let index = first + (at + phase) % part;
                OPERANDS.map(|(operand, write)| PageAccess {
                    write,
                    mapped: true,
                    anon: true,
                    ..PageAccess::read((((kernel + operand) % arrays) as u64 + 1) << 32 | u64::from(index))
                })
            })
        };
        (0..arrays).cycle().flat_map(kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SWEEP: Sweep = Sweep { arrays: 5, array_pages: 40, threads: 4, seed: 3 };

    #[test]
    fn a_step_touches_each_page_of_a_thread_as_often() {
        // Five kernels, ten pages each, three operands.
        let step: Vec<PageAccess> = SWEEP.thread(1).take(150).collect();
        let pages: BTreeSet<u64> = step.iter().map(|access| access.page).collect();
        assert_eq!(pages.len(), 50);
        assert!(pages.iter().all(|page| (10..20).contains(&(page & 0xffff_ffff))));
        for page in pages {
            let of_page = step.iter().filter(|access| access.page == page);
            assert_eq!(of_page.clone().count(), 3);
            assert_eq!(of_page.filter(|access| access.write).count(), 1);
        }
        assert!(SWEEP.thread(1).skip(150).take(150).eq(step), "and the next step is the same");
    }

    #[test]
    fn seeds_move_the_beginning_only() {
        let first = |seed, thread| Sweep { seed, ..SWEEP }.thread(thread).next().unwrap();
        assert_eq!(first(1, 2), first(1, 2));
        let beginnings: BTreeSet<u64> = (0..50).map(|seed| first(seed, 2).page).collect();
        assert!(beginnings.len() > 5, "{beginnings:?}");
    }
}
