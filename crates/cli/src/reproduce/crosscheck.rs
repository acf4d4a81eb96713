//! What every reproduction reports besides its figures (spec 95, "Cross-checks"): that events and counters say the same, and in which regime
//! reclaim was.
//!
//! Of one run of each setting every event is seen. A folio that was isolated is reclaimed or put back; some are in hand when time
//! is over, at most a batch for everybody who may reclaim.

use super::evidence::Check;
use crate::table::count;
use mglru_core::event::{Event, ListedFrom};
use mglru_core::{Counter, Time};
use mglru_sim::{Counters, Observer, Simulator};
use std::cell::RefCell;
use std::rc::Rc;

/// Folios that one reclaim effort has in hand.
const BATCH: u64 = 64;
/// With fewer, averages over generations mean nothing.
const GENERATIONS_MIN: u64 = 4;

/// What was seen of a run, and what its counters say.
#[derive(Debug, Clone)]
pub struct Crosscheck {
    seen: Seen,
    counters: Counters,
}

#[derive(Debug, Clone, Default)]
struct Seen {
    isolated: u64,
    reclaimed: u64,
    put_back: u64,
    sorted: u64,
    refaults: u64,
    aged: u64,
    /// Efforts, by the priority at which they ended.
    efforts: [u64; 13],
}

/// Sees a run.
#[derive(Clone, Default)]
pub struct Watcher(Rc<RefCell<Seen>>);

impl Watcher {
    /// Has it see everything from here on.
    pub fn watch(simulator: &mut Simulator) -> Watcher {
        let watcher = Watcher::default();
        simulator.observe(watcher.clone());
        watcher
    }

    /// At the end.
    pub fn finish(&self, simulator: &Simulator) -> Crosscheck {
        Crosscheck { seen: self.0.borrow().clone(), counters: simulator.report().total().counters }
    }
}

impl Observer for Watcher {
    fn event(&mut self, _: Time, event: &Event) {
        let mut seen = self.0.borrow_mut();
        match *event {
            Event::Isolated { .. } => seen.isolated += 1,
            Event::Evicted { .. } => seen.reclaimed += 1,
            Event::Listed { from: ListedFrom::Isolation, .. } => seen.put_back += 1,
            Event::Sorted { .. } => seen.sorted += 1,
            Event::Refault { .. } => seen.refaults += 1,
            Event::Aged { .. } => seen.aged += 1,
            Event::Effort { priority, .. } => seen.efforts[usize::from(priority).min(12)] += 1,
            _ => {}
        }
    }

    fn sees_folios(&self) -> bool {
        true
    }
}

/// What is told of some runs together. `reclaimers`: so many may reclaim at the same time.
pub fn checks<'a>(runs: impl Iterator<Item = &'a Crosscheck> + Clone, reclaimers: u64) -> Vec<Check> {
    let check = |name: &str, holds: &dyn Fn(&Seen, &Counters) -> bool| Check {
        name: name.to_owned(),
        holds: runs.clone().all(|run| holds(&run.seen, &run.counters)),
    };
    let refaults =
        |of: &Counters| of.get(Counter::WorkingsetRefaultFile) + of.get(Counter::WorkingsetRefaultAnon);
    let in_hand = |seen: &Seen| seen.isolated.checked_sub(seen.reclaimed + seen.put_back);
    let fewest = runs.clone().map(|run| run.seen.aged).min().unwrap_or(0);
    let mut efforts = [0; 13];
    for run in runs.clone() {
        run.seen.efforts.iter().enumerate().for_each(|(priority, of)| efforts[priority] += of);
    }
    let histogram: Vec<String> = (0..efforts.len())
        .rev()
        .filter(|&priority| efforts[priority] > 0)
        .map(|priority| format!("{} at {priority}", count(efforts[priority])))
        .collect();
    vec![
        check("scanned = sorted + isolated (pgrefill, pgscan)", &|seen, counters| {
            seen.sorted == counters.get(Counter::Pgrefill) && seen.isolated == counters.pgscan()
        }),
        check(
            "isolated = reclaimed + put back (pgsteal; a batch for each may be in hand at the end)",
            &|seen, counters| {
                seen.reclaimed == counters.pgsteal()
                    && in_hand(seen).is_some_and(|pages| pages <= reclaimers * BATCH)
            },
        ),
        check("no more refaults than evictions", &|seen, counters| {
            seen.refaults >= refaults(counters) && refaults(counters) <= seen.reclaimed
        }),
        Check {
            name: format!(
                "each run opened {GENERATIONS_MIN} generations or more (the fewest: {})",
                count(fewest)
            ),
            holds: fewest >= GENERATIONS_MIN,
        },
        Check {
            name: format!("efforts ended at priorities: {}", histogram.join(", ")),
            holds: !histogram.is_empty(),
        },
    ]
}
