//! Counters of a memory cgroup, under the kernel's names.
//!
//! # Locking
//!
//! None: relaxed atomic words. They are exact once nobody changes them; a reader in between may see
//! a page counted in one place and not yet in another.

use crate::sync::{AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident $name:literal;)*) => {
        /// One counter or size. Counts are of pages or events and only grow; sizes are of pages.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum Counter { $($(#[$doc])* $variant),* }

        impl Counter {
            /// All of them, in the order in which they are printed.
            pub const ALL: &[Counter] = &[$(Counter::$variant),*];

            /// Those that are sizes: of pages that are there now.
            pub const SIZES: &[Counter] = &[
                Counter::Anon,
                Counter::File,
                Counter::FileMapped,
                Counter::FileDirty,
                Counter::FileWriteback,
                Counter::FileReading,
                Counter::WorkingsetNodes,
            ];

            /// The kernel's name (or ours, where the kernel has no such counter).
            pub fn name(self) -> &'static str {
                match self { $(Counter::$variant => $name),* }
            }
        }
    };
}

counters! {
    /// Size: anonymous pages.
    Anon "anon";
    /// Size: page-cache pages.
    File "file";
    /// Size: page-cache pages with a page-table entry.
    FileMapped "file_mapped";
    /// Size: dirty pages that are not being written.
    FileDirty "file_dirty";
    /// Size: pages being written, to files or, as in the kernel, to swap.
    FileWriteback "file_writeback";
    /// Ours, size: pages that are being read.
    FileReading "file_reading";
    /// Evicted anonymous pages that came back.
    WorkingsetRefaultAnon "workingset_refault_anon";
    /// Evicted file pages that came back.
    WorkingsetRefaultFile "workingset_refault_file";
    /// Refaulted anonymous pages that were activated at once.
    WorkingsetActivateAnon "workingset_activate_anon";
    /// Refaulted file pages that were activated at once.
    WorkingsetActivateFile "workingset_activate_file";
    /// Refaulted anonymous pages that had been hot.
    WorkingsetRestoreAnon "workingset_restore_anon";
    /// Refaulted file pages that had been hot.
    WorkingsetRestoreFile "workingset_restore_file";
    /// Leaves whose shadows were dropped.
    WorkingsetNodereclaim "workingset_nodereclaim";
    /// Size: leaves that hold only shadows.
    WorkingsetNodes "workingset_nodes";
    /// Pages reclaimed by background reclaim.
    PgstealKswapd "pgsteal_kswapd";
    /// Pages reclaimed by the thread that needed memory.
    PgstealDirect "pgsteal_direct";
    /// Pages reclaimed on request.
    PgstealProactive "pgsteal_proactive";
    /// Pages isolated by background reclaim.
    PgscanKswapd "pgscan_kswapd";
    /// Pages isolated by the thread that needed memory.
    PgscanDirect "pgscan_direct";
    /// Pages isolated on request.
    PgscanProactive "pgscan_proactive";
    /// Isolated anonymous pages.
    PgscanAnon "pgscan_anon";
    /// Isolated file pages.
    PgscanFile "pgscan_file";
    /// Reclaimed anonymous pages.
    PgstealAnon "pgsteal_anon";
    /// Reclaimed file pages.
    PgstealFile "pgsteal_file";
    /// Pages sorted by scans: moved to the generation they belong to, or protected. Classic: looked
    /// at on active lists.
    Pgrefill "pgrefill";
    /// Pages moved to a younger generation by eviction. Classic: to the active list, but for
    /// refaults.
    Pgactivate "pgactivate";
    /// Pages moved to the old side on advice. Classic: also from the active to the inactive list.
    Pgdeactivate "pgdeactivate";
    /// Pages moved to the tail when their write-back ended.
    Pgrotated "pgrotated";
    /// Pages written to their file.
    NrWritten "nr_written";
    /// Mapped accesses that needed a page-table entry.
    Pgfault "pgfault";
    /// Mapped accesses that needed a read, from a file or from swap.
    Pgmajfault "pgmajfault";
    /// Pages read from swap.
    Pswpin "pswpin";
    /// Pages written to swap.
    Pswpout "pswpout";
    /// Dirty pages that reclaim met at the tail.
    NrVmscanImmediateReclaim "nr_vmscan_immediate_reclaim";
    /// Ours: pages that scans moved up a generation because of their tier.
    Pgprotected "pgprotected";
    /// Ours: writes to the clock of refaults, and as many to that of each ancestor (classic LRU).
    NonresidentAgeWrites "nonresident_age_writes";
    /// Ours: new youngest generations.
    Aged "aged";
    /// Reclaim efforts: one each time a charge met the limit, plus those of background reclaim and
    /// requests.
    Pageoutrun "pageoutrun";
    /// Charges that had to reclaim by themselves: because of `memory.max`, or as background reclaim
    /// did not keep up.
    Allocstall "allocstall";
    /// Times that reclaim took pages although the memcg was below `memory.low`.
    EventLow "low";
    /// Times that reclaim ran, or somebody was slowed down, because of `memory.high`.
    EventHigh "high";
    /// Charges that met `memory.max`.
    EventMax "max";
    /// Charges that failed although reclaim tried everything.
    EventOom "oom";
    /// Victims of the OOM policy.
    EventOomKill "oom_kill";
    /// Groups of tenants that were killed together (`memory.oom.group`).
    EventOomGroupKill "oom_group_kill";
    /// Swap slots that were over `memory.swap.high`.
    EventSwapHigh "swap_high";
    /// Swap slots that `memory.swap.max` refused.
    EventSwapMax "swap_max";
    /// Swap slots that could not be had, for whatever reason.
    EventSwapFail "swap_fail";
}

/// The first of the counters behind which there are only events.
const FIRST_EVENT: usize = Counter::EventLow as usize;
const EVENTS: usize = Counter::ALL.len() - FIRST_EVENT;

/// All counters of one memcg, its children not included; those of children that went are.
#[derive(Debug)]
pub struct Stat {
    counters: [AtomicU64; Counter::ALL.len()],
    /// Of the events, those of children that went, if any did: `memory.events.local` is without
    /// them.
    inherited: OnceLock<Box<[AtomicU64; EVENTS]>>,
}

impl Stat {
    pub(crate) fn new() -> Stat {
        Stat { counters: std::array::from_fn(|_| AtomicU64::new(0)), inherited: OnceLock::new() }
    }

    /// The value of an event, without those of children that went.
    pub(crate) fn get_local(&self, event: Counter) -> u64 {
        let inherited = self.inherited.get().map(|events| events[event as usize - FIRST_EVENT].load(Relaxed));
        self.get(event).saturating_sub(inherited.unwrap_or(0))
    }

    /// The value now.
    pub fn get(&self, counter: Counter) -> u64 {
        // A size may be decreased before the increase that belongs to it is seen; it is never
        // reported negative.
        (self.counters[counter as usize].load(Relaxed) as i64).max(0) as u64
    }

    /// The word as it is: a size that is counted in two places may be negative in one of them.
    pub(crate) fn signed(&self, counter: Counter) -> i64 {
        self.counters[counter as usize].load(Relaxed) as i64
    }

    pub(crate) fn add(&self, counter: Counter, pages: u64) {
        self.counters[counter as usize].fetch_add(pages, Relaxed);
    }

    pub(crate) fn change(&self, counter: Counter, pages: i64) {
        if pages != 0 {
            self.counters[counter as usize].fetch_add(pages as u64, Relaxed);
        }
    }

    pub(crate) fn sub(&self, counter: Counter, pages: u64) {
        self.counters[counter as usize].fetch_sub(pages, Relaxed);
    }

    /// Sizes are counted by `heir` from now on.
    pub(super) fn move_sizes(&self, heir: &Stat) {
        Counter::SIZES.iter().for_each(|&counter| self.move_one(counter, heir));
    }

    /// Everything is.
    pub(super) fn move_all(&self, heir: &Stat) {
        Counter::ALL.iter().for_each(|&counter| self.move_one(counter, heir));
    }

    /// Whatever is still there is, if only anything is.
    pub(super) fn move_late(&self, heir: &Stat) {
        let there = |&&counter: &&Counter| self.counters[counter as usize].load(Relaxed) != 0;
        Counter::ALL.iter().filter(there).for_each(|&counter| self.move_one(counter, heir));
    }

    fn move_one(&self, counter: Counter, heir: &Stat) {
        let value = self.counters[counter as usize].swap(0, Relaxed);
        heir.counters[counter as usize].fetch_add(value, Relaxed);
        if let Some(event) = (counter as usize).checked_sub(FIRST_EVENT) {
            if let Some(inherited) = self.inherited.get() {
                inherited[event].store(0, Relaxed);
            }
            if value != 0 {
                let none = || Box::new(std::array::from_fn(|_| AtomicU64::new(0)));
                heir.inherited.get_or_init(none)[event].fetch_add(value, Relaxed);
            }
        }
    }
}
