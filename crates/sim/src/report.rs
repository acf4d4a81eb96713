//! Results of a run, as plain numbers.

use crate::device::DeviceCounts;
use mglru_core::lru::{GenerationRow, ListRow};
use mglru_core::reclaim::Progress;
use mglru_core::{Counter, Memcg, OutOfMemory, Time};

/// Outcomes of accesses. `accesses` = `hits` + `misses`; the other counts are subsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Page accesses.
    pub accesses: u64,
    /// Accesses that read nothing: the page was cached, another job was already reading it, or it
    /// was anonymous memory without content.
    pub hits: u64,
    /// Accesses whose page had to be read from its file or from swap, or could not be.
    pub misses: u64,
    /// Accesses that waited for another job's read.
    pub waits: u64,
    /// Pages of anonymous memory that a first store allocated, zero-filled, without a read.
    pub zero_fills: u64,
    /// Mapped accesses to a cached page without a page-table entry, including zero fills.
    pub minor_faults: u64,
    /// Accesses that failed because the device did.
    pub read_errors: u64,
    /// Accesses that failed because no page could be freed or their tenant was killed.
    pub out_of_memory: u64,
    /// Pauses of writers because of too many dirty pages.
    pub dirty_pauses: u64,
    /// Completed syncs.
    pub syncs: u64,
    /// Syncs that reported a write-back error.
    pub sync_errors: u64,
}

impl Counts {
    /// Misses per access; 0 without accesses.
    pub fn miss_ratio(&self) -> f64 {
        if self.accesses == 0 { 0.0 } else { self.misses as f64 / self.accesses as f64 }
    }

    fn zip(&self, other: &Counts, f: impl Fn(u64, u64) -> u64) -> Counts {
        Counts {
            accesses: f(self.accesses, other.accesses),
            hits: f(self.hits, other.hits),
            misses: f(self.misses, other.misses),
            waits: f(self.waits, other.waits),
            zero_fills: f(self.zero_fills, other.zero_fills),
            minor_faults: f(self.minor_faults, other.minor_faults),
            read_errors: f(self.read_errors, other.read_errors),
            out_of_memory: f(self.out_of_memory, other.out_of_memory),
            dirty_pauses: f(self.dirty_pauses, other.dirty_pauses),
            syncs: f(self.syncs, other.syncs),
            sync_errors: f(self.sync_errors, other.sync_errors),
        }
    }
}

/// The core's counters of a tenant, under the kernel's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters([u64; Counter::ALL.len()]);

impl Counters {
    pub(crate) fn of(memcg: &Memcg) -> Counters {
        Counters(std::array::from_fn(|counter| memcg.stat().get(Counter::ALL[counter])))
    }

    /// The value of one counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Scanned pages, of all scanners.
    pub fn pgscan(&self) -> u64 {
        self.get(Counter::PgscanFile) + self.get(Counter::PgscanAnon)
    }

    /// Reclaimed pages, of all reclaimers.
    pub fn pgsteal(&self) -> u64 {
        self.get(Counter::PgstealFile) + self.get(Counter::PgstealAnon)
    }

    /// Names and values, in printing order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Counter::ALL.iter().map(|&counter| (counter.name(), self.get(counter)))
    }

    /// Sizes are states, not event counts, and are not subtracted.
    fn is_size(counter: Counter) -> bool {
        Counter::SIZES.contains(&counter)
    }
}

/// Counts and counters of one tenant, or of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Counts of its jobs.
    pub counts: Counts,
    /// Counters of its memcg.
    pub counters: Counters,
}

impl Default for Tally {
    fn default() -> Self {
        Tally { counts: Counts::default(), counters: Counters([0; Counter::ALL.len()]) }
    }
}

impl Tally {
    /// The difference since `earlier`. Sizes are the current ones.
    pub fn since(&self, earlier: &Tally) -> Tally {
        let counters = std::array::from_fn(|at| {
            let before = if Counters::is_size(Counter::ALL[at]) { 0 } else { earlier.counters.0[at] };
            self.counters.0[at] - before
        });
        Tally {
            counts: self.counts.zip(&earlier.counts, |now, then| now - then),
            counters: Counters(counters),
        }
    }

    /// The sum of both.
    pub fn plus(&self, other: &Tally) -> Tally {
        let counters = std::array::from_fn(|at| self.counters.0[at] + other.counters.0[at]);
        Tally { counts: self.counts.zip(&other.counts, |a, b| a + b), counters: Counters(counters) }
    }
}

/// Result of a reclaim request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestReport {
    /// Requested pages.
    pub pages: u64,
    /// Scanned and reclaimed pages, and the number of memcgs.
    pub progress: Progress,
    /// Whether too little was reclaimed (`EAGAIN`).
    pub fell_short: bool,
}

/// An OOM kill of a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kill {
    /// Time of the kill.
    pub time: Time,
    /// The victim (`victim`), the tenant whose limit was reached (`tenant`), and the reason.
    pub report: OutOfMemory,
}

/// The first failed request of a tenant's jobs because no page could be freed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// Time of the failure.
    pub time: Time,
    /// Path of the requesting tenant.
    pub tenant: String,
    /// The tenant whose limit was reached, and the reason.
    pub report: OutOfMemory,
}

/// Results of one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantReport {
    /// Its path; empty for the root, which also counts global background reclaim.
    pub name: String,
    /// Its limit (`memory.max`), in pages.
    pub max_pages: u64,
    /// Pages charged to it at the end.
    pub usage_pages: u64,
    /// Maximum number of pages ever charged to it.
    pub peak_pages: u64,
    /// From start to end.
    pub total: Tally,
    /// From the warm point to the end.
    pub warm: Option<Tally>,
    /// Its generations at the end, oldest first.
    pub generations: Vec<GenerationRow>,
    /// Its lists under the policy `ranked` at the end.
    pub lists: [ListRow; 2],
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Duration of the run in virtual time.
    pub now: Time,
    /// The access from which [`TenantReport::warm`] counts, if it was reached.
    pub warm_from: Option<u64>,
    /// Reclaim requests, in the order of their completion.
    pub requests: Vec<RequestReport>,
    /// OOM kills, in order ([`crate::Machine::oom_policy`]).
    pub kills: Vec<Kill>,
    /// Tenants for whose jobs no page could be freed, in the order of their first failure.
    pub refusals: Vec<Refusal>,
    /// The root first, then the machine's tenants in order.
    pub tenants: Vec<TenantReport>,
    /// Counts of the device.
    pub device: DeviceCounts,
    /// Counts of swap, if the machine has one.
    pub swap: Option<DeviceCounts>,
}

impl Report {
    /// Sum of all tenants.
    pub fn total(&self) -> Tally {
        self.tenants.iter().fold(Tally::default(), |sum, tenant| sum.plus(&tenant.total))
    }

    /// Sum of all tenants, from the warm point on.
    pub fn warm(&self) -> Option<Tally> {
        self.warm_from?;
        let warm = self.tenants.iter().filter_map(|tenant| tenant.warm);
        Some(warm.fold(Tally::default(), |sum, tenant| sum.plus(&tenant)))
    }

    /// Accesses of all jobs.
    pub fn accesses(&self) -> u64 {
        self.total().counts.accesses
    }
}
