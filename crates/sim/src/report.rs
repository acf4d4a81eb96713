//! What a run came to, as plain numbers.

use crate::device::DeviceCounts;
use mglru_core::lru::GenerationRow;
use mglru_core::reclaim::Progress;
use mglru_core::{Counter, Memcg, OutOfMemory, Time};

/// What became of accesses. `accesses` = `hits` + `misses`; the others are among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Touches of a page.
    pub accesses: u64,
    /// The page was cached, or somebody else was reading it already; or it is one of anonymous
    /// memory that nobody had stored to: nothing has to be read.
    pub hits: u64,
    /// The page had to be brought in, from its file or from swap, or could not be.
    pub misses: u64,
    /// Touches that waited for somebody else's read.
    pub waits: u64,
    /// Pages of anonymous memory that were made by a store to them: they are full of zeros, and
    /// nothing is read.
    pub zero_fills: u64,
    /// Mapped accesses to a cached page that had no page-table entry, zero fills among them.
    pub minor_faults: u64,
    /// Accesses that failed because the device did.
    pub read_errors: u64,
    /// Accesses that failed because no page could be freed, or because their tenant was killed
    /// meanwhile.
    pub out_of_memory: u64,
    /// Pauses of writers because too much was dirty.
    pub dirty_pauses: u64,
    /// Syncs that ended.
    pub syncs: u64,
    /// Of them, those that told of an error of write-back.
    pub sync_errors: u64,
}

impl Counts {
    /// Misses per access, 0 where there was none.
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

/// The core's counters of a tenant, by the kernel's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters([u64; Counter::ALL.len()]);

impl Counters {
    pub(crate) fn of(memcg: &Memcg) -> Counters {
        Counters(std::array::from_fn(|counter| memcg.stat().get(Counter::ALL[counter])))
    }

    /// One of them.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// Pages isolated by anybody.
    pub fn pgscan(&self) -> u64 {
        self.get(Counter::PgscanFile) + self.get(Counter::PgscanAnon)
    }

    /// Pages reclaimed by anybody.
    pub fn pgsteal(&self) -> u64 {
        self.get(Counter::PgstealFile) + self.get(Counter::PgstealAnon)
    }

    /// Names and values, in the order in which they are printed.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Counter::ALL.iter().map(|&counter| (counter.name(), self.get(counter)))
    }

    /// Sizes are how things stand, not something that happened: they are not subtracted.
    fn is_size(counter: Counter) -> bool {
        matches!(
            counter,
            Counter::Anon
                | Counter::File
                | Counter::FileMapped
                | Counter::FileDirty
                | Counter::FileWriteback
                | Counter::FileReading
                | Counter::WorkingsetNodes
        )
    }
}

/// What happened to one tenant, or to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Of its jobs.
    pub counts: Counts,
    /// Of its memcg.
    pub counters: Counters,
}

impl Default for Tally {
    fn default() -> Self {
        Tally { counts: Counts::default(), counters: Counters([0; Counter::ALL.len()]) }
    }
}

impl Tally {
    /// What happened since `earlier`. Sizes are those of now.
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

    /// Both together.
    pub fn plus(&self, other: &Tally) -> Tally {
        let counters = std::array::from_fn(|at| self.counters.0[at] + other.counters.0[at]);
        Tally { counts: self.counts.zip(&other.counts, |a, b| a + b), counters: Counters(counters) }
    }
}

/// What came of a request to reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestReport {
    /// Pages asked for.
    pub pages: u64,
    /// What was scanned and reclaimed, and of how many memcgs.
    pub progress: Progress,
    /// It was too little ("try again").
    pub fell_short: bool,
}

/// A tenant was killed to make room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// When.
    pub time: Time,
    /// Who it was (`victim`), because of whose limit (`tenant`), and why nothing else could be
    /// done.
    pub report: OutOfMemory,
}

/// The first request of a tenant's jobs that failed, as no page could be freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// When.
    pub time: Time,
    /// The path of the tenant whose request it was.
    pub tenant: String,
    /// Because of whose limit, and why.
    pub report: OutOfMemory,
}

/// What happened to one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantReport {
    /// Its name; empty for the root, to which what background reclaim does as a whole is counted.
    pub name: String,
    /// Its limit.
    pub max_pages: u64,
    /// Pages charged to it at the end.
    pub usage_pages: u64,
    /// Most pages that were ever charged to it.
    pub peak_pages: u64,
    /// From the beginning to the end.
    pub total: Tally,
    /// From the warm point to the end.
    pub warm: Option<Tally>,
    /// Its generations at the end, oldest first.
    pub generations: Vec<GenerationRow>,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How long it took on the simulated machine.
    pub now: Time,
    /// The access from which [`TenantReport::warm`] counts, if it was reached.
    pub warm_from: Option<u64>,
    /// Requests to reclaim, in the order in which they ended.
    pub requests: Vec<RequestReport>,
    /// Tenants that were killed, in the order in which they were ([`crate::Machine::oom_policy`]).
    pub kills: Vec<Kill>,
    /// For whom no page could be freed, in the order in which it happened first.
    pub refusals: Vec<Refusal>,
    /// The root first, then the machine's tenants in their order.
    pub tenants: Vec<TenantReport>,
    /// What the device did.
    pub device: DeviceCounts,
    /// What swap did, if there is some.
    pub swap: Option<DeviceCounts>,
}

impl Report {
    /// All tenants together.
    pub fn total(&self) -> Tally {
        self.tenants.iter().fold(Tally::default(), |sum, tenant| sum.plus(&tenant.total))
    }

    /// All tenants together, from the warm point on.
    pub fn warm(&self) -> Option<Tally> {
        self.warm_from?;
        let warm = self.tenants.iter().filter_map(|tenant| tenant.warm);
        Some(warm.fold(Tally::default(), |sum, tenant| sum.plus(&tenant)))
    }

    /// Accesses, all jobs together.
    pub fn accesses(&self) -> u64 {
        self.total().counts.accesses
    }
}
