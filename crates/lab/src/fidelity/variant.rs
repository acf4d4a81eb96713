//! The replays of one kernel run: what is not known of it, tried out.
//!
//! Runs that do not repeat to the page are replayed with some pages more and less, which changes
//! them as another run would. Runs of the classic LRU depend on when the kernel collected its
//! statistics: whenever the lab read them, and every two seconds from a moment on that nobody
//! knows. They are replayed without the latter, and with four such moments.

use super::kernel_run::{Access, KernelRun};
use mglru_core::Lru;
use mglru_core::lru::Refresh;
use mglru_sim::Machine;
use std::time::Duration;

/// Capacities relative to the kernel's.
const AROUND_PAGES: [i64; 5] = [-20, -10, 0, 10, 20];
/// Time between two refreshes.
const PERIOD: Duration = Duration::from_secs(2);
/// Moments of the first one, in halves of a second; a kernel's is any.
const PHASES: [Option<u32>; 5] = [None, Some(0), Some(1), Some(2), Some(3)];
/// The lab read the statistics so many times during a run.
const READS: u64 = 100;

/// One replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its memory.
    pub memory_pages: u64,
    /// When statistics are refreshed.
    pub statistics_refresh: Refresh,
    /// Accesses from one read of the statistics to the next.
    pub statistics_reads: u64,
}

impl Variant {
    /// At the run's own capacity, and with no moment of refresh.
    pub fn plain(run: &KernelRun) -> Variant {
        Variant {
            memory_pages: run.memory_pages,
            statistics_refresh: Refresh::NEVER,
            statistics_reads: (run.records / READS).max(1),
        }
    }

    /// All of a run.
    pub fn of(run: &KernelRun) -> Vec<Variant> {
        let plain = Variant::plain(run);
        match (run.lru, run.access) {
            (Lru::Classic, _) => PHASES
                .map(|phase| Variant {
                    statistics_refresh: phase.map_or(Refresh::NEVER, |phase| refresh(run, phase)),
                    ..plain
                })
                .into(),
            (_, Access::Reads) => vec![plain],
            (Lru::MultiGen | Lru::Ranked, _) => {
                let around =
                    AROUND_PAGES.into_iter().filter_map(|by| plain.memory_pages.checked_add_signed(by));
                around
                    .filter(|&pages| pages > 0)
                    .map(|memory_pages| Variant { memory_pages, ..plain })
                    .collect()
            }
        }
    }
}

/// Every two seconds of the run's clock, as a replay's clock has them.
fn refresh(run: &KernelRun, half_seconds: u32) -> Refresh {
    let scaled = |time: Duration| {
        let accesses = time.as_nanos() as f64 / run.access_nanos;
        Machine::LAB_ACCESS_TIME.mul_f64(accesses)
    };
    let half = Duration::from_millis(500);
    Refresh { first: scaled(half * half_seconds), period: scaled(PERIOD) }
}
