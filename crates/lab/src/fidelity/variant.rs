//! The replays of one kernel run, which vary its unknown properties.
//!
//! Runs that are not repeatable to the page, as all with readahead or several tasks, are replayed
//! with some pages more and fewer, which has the same effect as repeating the run. Runs of the
//! classic LRU depend on when the kernel collected its statistics: at each read by the lab, and
//! every two seconds from an unknown start. They are replayed without the periodic refresh, and
//! with four starts. Background reclaim decides by the root's statistics, which the lab does not
//! read: only the periodic refresh counts there, and the first of these replays is left out.

use super::kernel_run::{Access, KernelRun};
use mglru_core::{Lru, Refresh};
use std::time::Duration;

/// Capacities relative to the kernel's.
const AROUND_PAGES: [i64; 5] = [-20, -10, 0, 10, 20];
/// Time between two refreshes.
const PERIOD: Duration = Duration::from_secs(2);
/// Start of the refreshes in half seconds; `None` to disable them.
const PHASES: [Option<u32>; 5] = [None, Some(0), Some(1), Some(2), Some(3)];
/// Number of times that the lab read the statistics during a run.
const READS: u64 = 100;

/// A replay of a kernel run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Memory in pages.
    pub memory_pages: u64,
    /// Refresh of the statistics.
    pub statistics_refresh: Refresh,
    /// Accesses between two reads of the statistics.
    pub statistics_reads: u64,
    /// Seed of what the policy draws.
    pub seed: u64,
}

impl Variant {
    /// A replay at the run's own capacity, without periodic refresh.
    pub fn plain(run: &KernelRun) -> Variant {
        Variant {
            memory_pages: run.memory_pages,
            statistics_refresh: Refresh::NEVER,
            statistics_reads: (run.records / READS).max(1),
            seed: 1,
        }
    }

    /// All replays of a run.
    pub fn of(run: &KernelRun) -> Vec<Variant> {
        let plain = Variant::plain(run);
        match (run.lru, run.access) {
            (Lru::Classic, _) => PHASES
                .into_iter()
                .filter(|phase| phase.is_some() || !run.setting.background)
                .map(|phase| Variant { statistics_refresh: phase.map_or(Refresh::NEVER, refresh), ..plain })
                .collect(),
            (_, Access::Reads) if !run.setting.is_loose() => vec![plain],
            _ => {
                let around =
                    AROUND_PAGES.into_iter().filter_map(|by| plain.memory_pages.checked_add_signed(by));
                let seed = |number: u64| if run.setting.draws_memcgs() { 1 + number } else { plain.seed };
                (0..)
                    .zip(around.filter(|&pages| pages > 0))
                    .map(|(number, memory_pages)| Variant { memory_pages, seed: seed(number), ..plain })
                    .collect()
            }
        }
    }
}

/// A refresh every two seconds, the first after so many half seconds.
fn refresh(half_seconds: u32) -> Refresh {
    Refresh { first: Duration::from_millis(500) * half_seconds, period: PERIOD }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::controls::Controls;

    /// Only where background reclaim takes from several memcgs does a replay draw by its number.
    #[test]
    fn seeds_differ_under_background_reclaim_of_several_memcgs() {
        let seeds = |background, other: &str| -> Vec<u64> {
            let mut run = KernelRun::example();
            run.setting.background = background;
            run.setting.controls = Controls::parse((10, 0), "", "", other).unwrap();
            Variant::of(&run).iter().map(|variant| variant.seed).collect()
        };
        assert_eq!(seeds(true, "1;2"), [1, 2, 3, 4, 5]);
        assert_eq!(seeds(true, "1"), [1; 5]);
        assert_eq!(seeds(false, "1;2"), [1], "one reader below a limit");
    }
}
