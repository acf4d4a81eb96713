//! Counters of a memcg, under the kernel's names.
//!
//! # Locking
//!
//! Lock-free: relaxed atomic words, exact while no thread changes them. Otherwise a reader may see
//! a page counted in one place and not yet in another.

use crate::folio::Kind;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident $name:literal;)*) => {
        /// A counter or a size. Counters count pages or events and only grow; sizes are in pages,
        /// except for the two of metadata (`slab_…`), which are in bytes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum Counter { $($(#[$doc])* $variant),* }

        impl Counter {
            /// All counters, in the order of output.
            pub const ALL: &[Counter] = &[$(Counter::$variant),*];

            /// Sizes: what is present now.
            pub const SIZES: &[Counter] = &[
                Counter::Anon,
                Counter::File,
                Counter::FileMapped,
                Counter::FileDirty,
                Counter::FileWriteback,
                Counter::FileReading,
                Counter::WorkingsetNodes,
                Counter::SlabReclaimable,
                Counter::SlabUnreclaimable,
            ];

            /// The kernel's name, or a new name for counters that the kernel lacks.
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
    /// Size: dirty pages that are not under writeback.
    FileDirty "file_dirty";
    /// Size: pages under writeback, to files or, as in the kernel, to swap.
    FileWriteback "file_writeback";
    /// Not in the kernel; size: pages being read.
    FileReading "file_reading";
    /// Refaults of anonymous pages.
    WorkingsetRefaultAnon "workingset_refault_anon";
    /// Refaults of file pages.
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
    /// Size, in bytes: leaves and directories of mappings.
    SlabReclaimable "slab_reclaimable";
    /// Size, in bytes: open files, handles, regions and tenants.
    SlabUnreclaimable "slab_unreclaimable";
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
    /// Pages sorted by scans: moved to their generation, or protected. Classic: scanned on active
    /// lists.
    Pgrefill "pgrefill";
    /// Pages moved to a younger generation by eviction. Classic: to the active list, except by
    /// refaults.
    Pgactivate "pgactivate";
    /// Pages moved to the old side on advice. Classic: also from the active to the inactive list.
    Pgdeactivate "pgdeactivate";
    /// Pages moved to the tail when their writeback ended.
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
    /// Not in the kernel: pages that scans moved up a generation because of their tier.
    Pgprotected "pgprotected";
    /// Not in the kernel: accessed bits of file pages that scans found. Each stands for one mapped
    /// access or more since the scan before.
    Pgyoung "pgyoung";
    /// Not in the kernel: writes to the classic LRU's clock of refaults; each also writes to the
    /// clocks of all ancestors.
    NonresidentAgeWrites "nonresident_age_writes";
    /// Not in the kernel: generations opened.
    Aged "aged";
    /// Not in the kernel: reclaim efforts, at least one for a charge at the limit or a request.
    Efforts "efforts";
    /// Runs of background reclaim.
    Pageoutrun "pageoutrun";
    /// Runs that a need of memory began while background reclaim napped after the run before.
    KswapdLowWmarkHitQuickly "kswapd_low_wmark_hit_quickly";
    /// Runs that began because free memory was below the high watermark right after the run before,
    /// or after the nap.
    KswapdHighWmarkHitQuickly "kswapd_high_wmark_hit_quickly";
    /// Not in the kernel: charges that had to reclaim, because of a limit, or because background
    /// reclaim fell behind.
    Allocstall "allocstall";
    /// Efforts of charges because background reclaim fell behind. The kernel counts by the highest
    /// zone that the pages may be in, which of these pages is `movable`.
    AllocstallMovable "allocstall_movable";
    /// Efforts of charges that first waited for background reclaim
    /// ([`crate::Throttle::Background`]).
    PgscanDirectThrottle "pgscan_direct_throttle";
    /// Times that reclaim took pages while the memcg was below `memory.low`.
    EventLow "low";
    /// Times that reclaim ran or a task was throttled because of `memory.high`.
    EventHigh "high";
    /// Charges that hit `memory.max`.
    EventMax "max";
    /// Charges that failed after all reclaim.
    EventOom "oom";
    /// Victims of the OOM policy.
    EventOomKill "oom_kill";
    /// OOM kills of whole groups of tenants (`memory.oom.group`).
    EventOomGroupKill "oom_group_kill";
    /// Swap slots charged above `memory.swap.high`.
    EventSwapHigh "swap_high";
    /// Swap slots that `memory.swap.max` refused.
    EventSwapMax "swap_max";
    /// Swap slots that could not be had, for any reason.
    EventSwapFail "swap_fail";
}

/// The first event; all later counters are events, too.
const FIRST_EVENT: usize = Counter::EventLow as usize;
const EVENTS: usize = Counter::ALL.len() - FIRST_EVENT;

/// All counters of one memcg, including those of removed children, but not of present ones.
#[derive(Debug)]
pub struct Stat {
    counters: [AtomicU64; Counter::ALL.len()],
    /// Events of removed children, if any had some; `memory.events.local` excludes them.
    inherited: OnceLock<Box<[AtomicU64; EVENTS]>>,
}

impl Stat {
    pub(crate) fn new() -> Stat {
        Stat { counters: std::array::from_fn(|_| AtomicU64::new(0)), inherited: OnceLock::new() }
    }

    /// An event count without those of removed children.
    pub(crate) fn get_local(&self, event: Counter) -> u64 {
        let inherited = self.inherited.get().map(|events| events[event as usize - FIRST_EVENT].load(Relaxed));
        self.get(event).saturating_sub(inherited.unwrap_or(0))
    }

    /// The current value.
    pub fn get(&self, counter: Counter) -> u64 {
        // A decrease may become visible before the increase that belongs to it; the result is never
        // negative.
        (self.counters[counter as usize].load(Relaxed) as i64).max(0) as u64
    }

    /// The raw value. A size counted in two places may be negative in one of them.
    pub(crate) fn signed(&self, counter: Counter) -> i64 {
        self.counters[counter as usize].load(Relaxed) as i64
    }

    pub(crate) fn add(&self, counter: Counter, pages: u64) {
        self.counters[counter as usize].fetch_add(pages, Relaxed);
    }

    /// Counts accessed bits that a scan found and cleared: all that is known of mapped hits.
    pub(crate) fn found_young(&self, kind: Kind, pages: u64) {
        if kind == Kind::File && pages > 0 {
            self.add(Counter::Pgyoung, pages);
        }
    }

    pub(crate) fn change(&self, counter: Counter, pages: i64) {
        if pages != 0 {
            self.counters[counter as usize].fetch_add(pages as u64, Relaxed);
        }
    }

    pub(crate) fn sub(&self, counter: Counter, pages: u64) {
        self.counters[counter as usize].fetch_sub(pages, Relaxed);
    }

    pub(super) fn move_sizes(&self, heir: &Stat) {
        Counter::SIZES.iter().for_each(|&counter| self.move_one(counter, heir));
    }

    pub(super) fn move_all(&self, heir: &Stat) {
        Counter::ALL.iter().for_each(|&counter| self.move_one(counter, heir));
    }

    /// Moves counts that arrived after [`Self::move_all`] to `heir`.
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
