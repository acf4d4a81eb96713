//! Reuse distances: how many other pages a trace touches between two accesses to the same page.
//!
//! An access with reuse distance `d` hits an LRU of more than `d` pages. Source: Mattson et al.,
//! "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970.
//!
//! ```
//! use mglru_lab::{Unwatched, reuse::distances, trace_file::TraceFile};
//!
//! let trace = TraceFile::of_pages("abcab", [1, 2, 3, 1, 1]).unwrap();
//! assert_eq!(distances(&trace, &Unwatched).unwrap(), [None, None, None, Some(2), Some(0)]);
//! ```

use crate::error::Error;
use crate::trace_file::TraceFile;
use crate::watch::Watch;
use mglru_workload::trace::Record;
use std::collections::HashMap;

/// Accesses between two looks whether the work was cancelled.
const LOOK_EVERY: usize = 1 << 16;

/// The reuse distance of each access, in distinct other pages; `None` for the first access to a
/// page. Takes 8 bytes of memory per access and 24 per page beside the result, and a time of the
/// order of `n log n`.
///
/// # Errors
/// If the trace is too long to be kept decoded, or the work was cancelled.
pub fn distances(trace: &TraceFile, watch: &dyn Watch) -> Result<Vec<Option<u64>>, Error> {
    let accesses =
        trace.records()?.iter().filter_map(Record::access).map(|access| (access.page, access.anon));
    let length = accesses.clone().count();
    let mut latest: HashMap<(u64, bool), usize> = HashMap::new();
    let mut marks = Marks(vec![0; length + 1]);
    let distance = |(now, page)| {
        if now % LOOK_EVERY == 0 {
            watch.check()?;
        }
        Ok(match latest.insert(page, now) {
            None => {
                marks.add(now, 1);
                None
            }
            Some(before) => {
                // Marked are the latest accesses of all pages: those after `before` are of other
                // pages.
                let between = marks.up_to(now) - marks.up_to(before);
                marks.add(before, -1);
                marks.add(now, 1);
                Some(between as u64)
            }
        })
    };
    accesses.enumerate().map(distance).collect()
}

/// Counts of marked positions: a Fenwick tree.
struct Marks(Vec<i64>);

impl Marks {
    fn add(&mut self, position: usize, by: i64) {
        let mut at = position + 1;
        while at < self.0.len() {
            self.0[at] += by;
            at += at & at.wrapping_neg();
        }
    }

    /// Marks at positions up to and including this one.
    fn up_to(&self, position: usize) -> i64 {
        let (mut at, mut sum) = (position + 1, 0);
        at = at.min(self.0.len() - 1);
        while at > 0 {
            sum += self.0[at];
            at &= at - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unwatched;
    use crate::replay::grid::Grid;
    use crate::watch::CancelAfter;

    #[test]
    fn distances_end_when_they_are_cancelled() {
        let trace = TraceFile::of_pages("two", [1, 2]).unwrap();
        assert!(matches!(distances(&trace, &CancelAfter::looks(0)), Err(Error::Cancelled)));
    }

    #[test]
    fn distances_predict_the_misses_of_an_lru_of_any_size() {
        let pages: Vec<u64> = (0..4000u64).map(|n| (n * n + n / 7) % 193).collect();
        let trace = TraceFile::of_pages("mixed", pages).unwrap();
        let distances = distances(&trace, &Unwatched).unwrap();
        let sizes = [1u64, 2, 10, 60, 150, 193];
        let grid = Grid {
            policies: vec!["lru".parse().unwrap()],
            sizes: sizes.map(|pages| format!("{pages}p").parse().unwrap()).into(),
            ..Grid::default()
        };
        let done = grid.run(&[trace], 1, &Unwatched).unwrap();
        for (pages, done) in sizes.iter().zip(done) {
            let misses =
                distances.iter().filter(|distance| distance.is_none_or(|distance| distance >= *pages));
            assert_eq!(done.row.total.misses, misses.count() as u64, "{pages} pages");
        }
    }
}
