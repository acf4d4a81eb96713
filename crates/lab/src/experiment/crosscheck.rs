//! Cross-checks of simulated experiments ([book: published-experiments#cross-checks]): events and
//! counters must agree, and the regime of reclaim is reported.
//!
//! One run of each setting is observed event by event. An isolated folio is reclaimed or put back.
//! At the end of the run, each reclaimer may still hold up to one batch. One check of the book is
//! missing: tier evictions are halved into averages when a generation is closed, so their sum
//! cannot be recounted.

use super::evidence::{Check, Crosschecks};
use crate::size::count;
use mglru_core::event::{Event, List, ListedFrom};
use mglru_core::{Counter, Time};
use mglru_sim::{Observer, Simulator, Tally};
use std::cell::RefCell;
use std::rc::Rc;

/// Largest number of folios that one reclaim effort holds.
const BATCH: u64 = 64;
/// At the first priority, the budget of a turn is the list's length divided by this. If that is
/// less than a batch, a batch is scanned.
const FIRST_SHARE: u64 = 4096;

/// Result for experiments in real time.
pub const REAL_TIME: Crosschecks = Crosschecks::NotApplicable {
    not_applicable: "events are not observed in real time; tests compare the counts with the simulator's",
};

/// Observed events of a run, and its counters.
#[derive(Debug, Clone)]
pub struct Crosscheck {
    seen: Seen,
    /// Counters during the observation.
    tally: Tally,
    /// Refaults and evictions since the start of the run.
    refaults: u64,
    evictions: u64,
    longest_list_pages: u64,
}

#[derive(Debug, Clone, Default)]
struct Seen {
    isolated: u64,
    reclaimed: u64,
    put_back: u64,
    sorted: u64,
    refaults: u64,
    aged: u64,
    /// Number of efforts, by their final priority.
    efforts: [u64; 13],
    /// Whether folios of the classic LRU were put back.
    classic: bool,
}

/// Observes a run.
pub struct Watcher {
    seen: Seeing,
    before: Tally,
}

#[derive(Clone, Default)]
struct Seeing(Rc<RefCell<Seen>>);

impl Watcher {
    /// Starts observing all events. No reclaim may be in progress.
    pub fn watch(simulator: &mut Simulator) -> Watcher {
        let seen = Seeing::default();
        simulator.observe(seen.clone());
        Watcher { seen, before: simulator.report().total() }
    }

    /// Ends the observation.
    pub fn finish(&self, simulator: &Simulator) -> Crosscheck {
        let total = simulator.report().total();
        let tally = total.since(&self.before);
        let refaults = [Counter::WorkingsetRefaultFile, Counter::WorkingsetRefaultAnon];
        let samples = simulator.samples();
        let generations =
            samples.iter().flat_map(|sample| &sample.tenants).flat_map(|tenant| &tenant.generations);
        Crosscheck {
            seen: self.seen.0.borrow().clone(),
            refaults: refaults.into_iter().map(|counter| total.counters.get(counter)).sum(),
            evictions: total.counters.pgsteal(),
            longest_list_pages: generations.map(|row| row.anon_pages.max(row.file_pages)).max().unwrap_or(0),
            tally,
        }
    }
}

impl Observer for Seeing {
    fn event(&mut self, _: Time, event: &Event) {
        let mut seen = self.0.borrow_mut();
        match *event {
            Event::Isolated { .. } => seen.isolated += 1,
            Event::Evicted { .. } => seen.reclaimed += 1,
            Event::Listed { from: ListedFrom::Isolation, list, .. } => {
                seen.put_back += 1;
                seen.classic |= matches!(list, List::Active | List::Inactive);
            }
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

/// Evaluates several runs together. `reclaimers` is the number of concurrent reclaimers.
pub fn of<'a>(runs: impl Iterator<Item = &'a Crosscheck> + Clone, reclaimers: u64) -> Crosschecks {
    let check = |name: &str, holds: &dyn Fn(&Crosscheck) -> bool| Check {
        name: name.to_owned(),
        holds: runs.clone().all(holds),
    };
    let must = vec![
        check("scanned = sorted + isolated (pgscan, pgrefill)", &|run| {
            let (seen, counters) = (&run.seen, &run.tally.counters);
            let (scanned, refilled) = (counters.pgscan(), counters.get(Counter::Pgrefill));
            seen.sorted + seen.isolated == scanned + refilled && (seen.classic || seen.sorted == refilled)
        }),
        check(
            "isolated = reclaimed + put back (pgsteal; each reclaimer may hold a batch at the end)",
            &|run| {
                let seen = &run.seen;
                let in_hand = seen.isolated.checked_sub(seen.reclaimed + seen.put_back);
                seen.reclaimed == run.tally.counters.pgsteal()
                    && in_hand.is_some_and(|pages| pages <= reclaimers * BATCH)
            },
        ),
        check("no more refaults than evictions", &|run| run.refaults <= run.evictions),
    ];
    let mut efforts = [0; 13];
    for run in runs.clone() {
        run.seen.efforts.iter().enumerate().for_each(|(priority, of)| efforts[priority] += of);
    }
    let histogram: Vec<String> = (0..efforts.len())
        .rev()
        .filter(|&priority| efforts[priority] > 0)
        .map(|priority| format!("{} at {priority}", count(efforts[priority])))
        .collect();
    let range = |of: &dyn Fn(&Crosscheck) -> u64| {
        let (least, most) =
            (runs.clone().map(of).min().unwrap_or(0), runs.clone().map(of).max().unwrap_or(0));
        if least == most { count(most) } else { format!("{} to {}", count(least), count(most)) }
    };
    let longest = runs.clone().map(|run| run.longest_list_pages).max().unwrap_or(0);
    let regime = vec![
        format!("generations opened in a run: {}", range(&|run| run.seen.aged)),
        format!(
            "longest list of a generation: {} pages, {} of them for a turn at priority 12",
            count(longest),
            count(longest / FIRST_SHARE)
        ),
        format!("efforts ended at priorities: {}", histogram.join(", ")),
    ];
    Crosschecks::Seen { must, regime }
}
