//! The series patch by patch: each step has all patches up to it.

use super::{BASE, Part, Task};
use crate::Error;
use crate::clients::Facts;
use crate::experiment::Effort;
use crate::experiment::evidence::{Column, Shown};
use mglru_core::{Counter, Mechanisms, Switch};

/// A patch and the switches that it turns on.
struct Patch {
    /// Its title without "mm/mglru:" or "mm/vmscan:".
    title: &'static str,
    switches: &'static [Switch],
}

/// The patches that change what reclaim decides, in the order of the merged series. The others
/// rename, move or remove code. One removes a check for reclaim that must not start I/O, which does
/// not exist here.
const PATCHES: [Patch; 8] = [
    Patch { title: "restructure the reclaim loop", switches: &[Switch::FixedBudget, Switch::AgingApart] },
    Patch { title: "scan and count the exact number of folios", switches: &[Switch::ExactScan] },
    Patch {
        title: "avoid reclaim type fall back when isolation makes no progress",
        switches: &[Switch::SameType],
    },
    Patch { title: "use a smaller batch for reclaim", switches: &[Switch::SmallBatches] },
    Patch { title: "don't abort scan immediately right after aging", switches: &[Switch::ScanAfterAging] },
    Patch {
        title: "use the common routine for dirty/writeback reactivation",
        switches: &[Switch::IsolateDirty, Switch::KeepReclaimMark],
    },
    Patch { title: "simplify and improve dirty writeback handling", switches: &[Switch::FlushPerBatch] },
    Patch { title: "unify writeback reclaim statistic and throttling", switches: &[Switch::DirtyTallies] },
];
/// A row of the second version, which the merged one lacks.
const MINIMUM: &str = "(version 2) the same, with its minimum scan of 32 pages";

/// The metric whose values were published patch by patch.
const SELECTS: &str = "select_transactions_per_second";
/// MySQL's transactions per second without the series, after four of its steps, and after all
/// ([book: published-experiments#reclaim-loop], row 5).
const PUBLISHED_SELECTS: [f64; 6] = [17_237.57, 17_259.98, 17_230.48, 17_250.32, 17_278.93, 17_265.36];

/// The steps of the series: before it, each patch, and the second version's minimum.
fn steps() -> Result<Vec<(&'static str, Mechanisms)>, Error> {
    let mut with: Vec<Switch> = Vec::new();
    let mut steps = vec![("before the series", Mechanisms::preset(BASE))];
    let last = Patch { title: MINIMUM, switches: &[Switch::MinimumScan] };
    for patch in PATCHES.iter().chain([&last]) {
        with.extend(patch.switches);
        steps.push((patch.title, Mechanisms::compose(BASE, &with, &[]).map_err(Error::work)?));
    }
    Ok(steps)
}

/// The loads that run once with each step.
const PARTS: [Part; 4] = [Part::SmallStore, Part::Selects, Part::MappedReads, Part::SmallWriter];

/// The steps, and a run of each load with each of them.
pub struct Steps {
    titles: Vec<&'static str>,
    /// By load, then by step.
    tasks: Vec<Task>,
}

impl Steps {
    /// All runs, with the first seed.
    pub fn new(effort: Effort) -> Result<Steps, Error> {
        let steps = steps()?;
        // A quick run checks that the table can be made; the store has its comparison elsewhere.
        let shorter = if effort.is_quick() { 4 * effort.shorter } else { 1 };
        let task = |part, mechanisms| Task { part, mechanisms, seed: effort.seed, shorter, watched: false };
        let of_part = |&part: &Part| steps.iter().map(move |&(_, with)| task(part, with));
        Ok(Steps {
            titles: steps.iter().map(|&(title, _)| title).collect(),
            tasks: PARTS.iter().flat_map(of_part).collect(),
        })
    }

    /// The runs.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// The table of the steps.
    pub fn shown<'f>(&self, facts: impl Fn(&Task) -> &'f Facts) -> Shown {
        let column = |metric, unit, part: usize, figure: &dyn Fn(&Facts) -> f64| {
            let of_part = &self.tasks[part * self.titles.len()..][..self.titles.len()];
            let values = of_part.iter().map(|task| figure(facts(task))).collect();
            let published = if metric == SELECTS { &PUBLISHED_SELECTS[..] } else { &[] };
            Column { metric, unit, values, published }
        };
        Shown::Steps {
            about: "the series patch by patch, one run each",
            steps: self.titles.clone(),
            columns: vec![
                column("ycsb_b_refault_file", "pages", 0, &|facts| {
                    facts.count(Counter::WorkingsetRefaultFile)
                }),
                column("ycsb_b_pages_read", "pages", 0, &|facts| facts.pages_read as f64),
                column("ycsb_b_pages_per_effort", "pages", 0, &|facts| {
                    facts.efforts.reclaimed as f64 / facts.efforts.count().max(1) as f64
                }),
                column(SELECTS, "1/s", 1, &Facts::rate),
                column("mapped_zipf12_mib_per_second", "MiB/s", 2, &|facts| facts.rate() / 256.0),
                column("dd_survives", "1", 3, &|facts| f64::from(!facts.died)),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patches_are_the_whole_loop_in_its_order() {
        let of_patches: Vec<Switch> = PATCHES.iter().flat_map(|patch| patch.switches).copied().collect();
        assert_eq!(of_patches, Switch::ReclaimLoop.parts());
        let steps = steps().unwrap();
        assert_eq!(steps.len(), PATCHES.len() + 2);
        assert_eq!(steps[0].1, Mechanisms::preset(BASE));
        let merged = steps[PATCHES.len()].1;
        assert_eq!(merged, Mechanisms::compose(BASE, &[Switch::ReclaimLoop], &[]).unwrap());
        assert!(!merged.is_on(Switch::MinimumScan));
        assert!(steps.windows(2).all(|pair| pair[0].1 != pair[1].1));
    }
}
