//! The switches by name, and those that are parts of another.

use super::{Lru, MechanismError};

macro_rules! switches {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// One behaviour that is on or off.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Switch {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Switch {
            /// All switches.
            pub const ALL: [Switch; [$($text),+].len()] = [$(Switch::$name),+];

            /// The name on the command line and in JSON.
            pub fn name(self) -> &'static str {
                match self {
                    $(Switch::$name => $text,)+
                }
            }
        }
    };
}

switches! {
    /// Protection of the working set as reworked in Linux 6.14.
    WorkingsetRework = "workingset_rework",
    /// The rework's correction: a page found young for the first time is kept but not activated.
    LuleshFix = "lulesh_fix",
    /// Root reclaim by generations of memcgs. Off: a walk over the tree.
    MemcgLru = "memcg_lru",
    /// The reclaim loop of Linux 7.2: all switches of [`Switch::parts`], which are its patches. It
    /// is on if all are on; to turn it on or off is to turn all of them.
    ReclaimLoop = "reclaim_loop",
    /// A page brought in by a fault or a read starts old and must earn its place (Linux 7.2): all
    /// switches of [`Switch::parts`].
    FaultPlacement = "fault_placement",
    /// The refault clock of the classic LRU advances once per batch: all switches of
    /// [`Switch::parts`], which are published remedies and one of this project's.
    BatchNonresidentAge = "batch_nonresident_age",
    /// Scans prefetch the words that they will write for the folios ahead
    /// ([book: eviction#prefetch]), as this project extended the published patch: state and links
    /// of the folio after the next, by links, and the page of an isolated folio; under `ranked` the
    /// stamp, too. A drained batch prefetches the words of all its folios. Decisions do not change.
    Prefetch = "prefetch",
    /// Decide by current list sizes. Off: by sizes up to 2 s old.
    ExactStatistics = "exact_statistics",
    /// Of every subtree, the memcg with the coldest page gives next. Needs ages that compare across
    /// memcgs, so it works under the policy `ranked` only. The other policies walk the tree.
    SubtreeLru = "subtree_lru",
    /// Hand the pages of a removed memcg to its parent (Linux 7.1). Off: they stay without an owner
    /// until reclaimed.
    ReparentOffline = "reparent_offline",
    /// Root reclaim, too, waits for dirty pages.
    GlobalDirtyThrottle = "global_dirty_throttle",
    /// Before a request fails for lack of memory, wait for pages being written or read. Off: fail
    /// after 16 fruitless retries.
    WaitBeforeOom = "wait_before_oom",
    /// CPUs charge pages in advance even where the limit leaves less than a batch.
    ChargeNearLimit = "charge_near_limit",
    /// Policy `ranked`: a page that returns goes to the main list only if it is younger than that
    /// list's candidate. Off: always.
    RankByGeneration = "rank_by_generation",
    /// Policy `ranked`: newcomers go straight to the main list while it has room.
    FillMain = "fill_main",
    /// Policy `ranked`: keep shadows of pages evicted from the main list.
    MainShadows = "main_shadows",
    /// Policy `ranked`: the newcomers' share of memory follows their refaults. Off: a
    /// twentieth.
    AdaptiveNewcomers = "adaptive_newcomers",
    /// Policy `ranked`: the weight of a newcomer's refault is discounted by the main list's period.
    PeriodDiscount = "period_discount",
    /// Policy `ranked`: pages that the main list refuses shrink the newcomers' share.
    RefusalPressure = "refusal_pressure",
    /// Policy `ranked`: repeated steps of the newcomers' share in one direction grow.
    ShareMomentum = "share_momentum",
    /// Policy `ranked`: the access of the fault that brings a page in does not count. Off: its
    /// accessed bit counts.
    FirstLook = "first_look",
    /// Policy `ranked`: a read that begins at a page's first byte counts, even if the open file's
    /// previous read was of the same page. Off: reads of one page in a row count once, as in the
    /// kernel.
    Rereads = "rereads",
    /// Policy `ranked`: walks over page tables count accessed bits, three times per turnover of
    /// memory. Off: bits are only read at the ends of the lists.
    PageWalk = "page_walk",
    /// Policy `ranked`: a fault on a cached page counts as an access at once, once for each process
    /// that maps the page. Off: it sets the page's one accessed bit.
    FaultUses = "fault_uses",
    /// Policy `ranked`: newcomers that were read ahead stay until they are read, if many that were
    /// evicted unread soon come back.
    KeepUnread = "keep_unread",
    /// Policy `ranked`: the shadows of a leaf that is dropped are kept outside of the index.
    CompactShadows = "compact_shadows",
    /// Reclaim loop, patch "restructure the reclaim loop": the scan budget of a turn is fixed when
    /// it begins. Off: each step computes it anew from the pages left.
    FixedBudget = "fixed_budget",
    /// Reclaim loop, the same patch: aging is not part of the budget. The budget is always shifted
    /// by the priority, and aging that must come first comes at every priority. Off: a turn that
    /// ages has no budget, and the first priority does not age.
    AgingApart = "aging_apart",
    /// Reclaim loop, patch "scan and count the exact number of folios": a scan counts what it
    /// looked at, and empty generations are dropped before it. Off: a scan that isolates nothing
    /// counts as 0 unless it used up its request, and a dropped generation counts as a page.
    ExactScan = "exact_scan",
    /// Reclaim loop, patch "avoid reclaim type fall back when isolation makes no progress": the
    /// scan goes over to the other type only if it found nothing to look at. Off: if it isolated
    /// nothing.
    SameType = "same_type",
    /// Reclaim loop, patch "use a smaller batch for reclaim": steps of 64 folios. Off: steps of up
    /// to 4096.
    SmallBatches = "small_batches",
    /// Reclaim loop, patch "don't abort scan immediately right after aging": a turn that aged, or
    /// found another thread aging, goes on to evict; root reclaim for one step. Off: it ends.
    ScanAfterAging = "scan_after_aging",
    /// Reclaim loop, patch "use the common routine for dirty/writeback reactivation": dirty folios
    /// are isolated and examined as all others. Off: the scan moves them to the second oldest
    /// generation. Late updates of 6.12 have it, too.
    IsolateDirty = "isolate_dirty",
    /// Reclaim loop, the same patch: isolation keeps the mark "free it when it is clean". So do
    /// late updates of 6.12.
    KeepReclaimMark = "keep_reclaim_mark",
    /// Reclaim loop, patch "simplify and improve dirty writeback handling": the flusher is woken
    /// after each batch of only dirty folios. Off: at the end of a turn that met no others.
    FlushPerBatch = "flush_per_batch",
    /// Reclaim loop, patch "unify writeback reclaim statistic and throttling": dirty and congested
    /// folios are counted, so that limit reclaim waits for writeback.
    DirtyTallies = "dirty_tallies",
    /// Fault placement: a page that a fault brings in counts one access, and is not activated
    /// unless it was hot.
    FaultCounts = "fault_counts",
    /// Fault placement: a page that was accessed before it is put on a list goes to the second
    /// oldest generation. Off: to the oldest.
    ReferencedPlacement = "referenced_placement",
    /// Batches of nonresident age, published remedy 1: put-back sums the activated pages of a
    /// batch, and the clocks advance once. Off: once per page.
    AgePerBatch = "age_per_batch",
    /// Published remedy 2: put-back advances the clocks after it has released the lock. Off: while
    /// it holds the lock.
    AgeAfterUnlock = "age_after_unlock",
    /// Published remedy 4: the walk that notes the cost advances the clocks, too. Off: a walk of
    /// its own does.
    AgeWithCost = "age_with_cost",
    /// Published remedy 5: a refault advances the clocks in the walk that notes its cost. Off: a
    /// second walk does.
    AgeOncePerRefault = "age_once_per_refault",
    /// This project's addition: the evictions of a batch advance the clocks once, too.
    AgeEvictionsPerBatch = "age_evictions_per_batch",
    /// Published remedy 3 for the classic LRU: noting the cost takes over the held lock and
    /// releases it. Off: put-back releases the lock, and noting the cost takes it again. 7.1 has
    /// it; no count depends on it.
    CostReleasesLock = "cost_releases_lock",
    /// The published patch of [`Switch::Prefetch`] alone: scans of generations prefetch the flag
    /// word of the next folio. Scans of the classic lists do so in every kernel. `prefetch`
    /// replaces both.
    PrefetchNext = "prefetch_next",
    /// The second version of the reclaim loop's series: a turn scans at least 32 pages, however
    /// small the memcg and its share are. The merged version has no such minimum.
    MinimumScan = "minimum_scan",
    /// Multi-gen: `memory.min` and `memory.low` shrink the scan budget in proportion. Between 6.12
    /// and 7.1.
    ProportionalProtection = "proportional_protection",
    /// Multi-gen: a step scans no more than the budget. Off: up to 4096 folios, however small the
    /// budget. Between 6.12 and 7.1.
    BoundedSteps = "bounded_steps",
    /// Multi-gen: the limit of shadow-only index nodes goes by the pages on the lists. Off, as in
    /// 7.1 and 7.2: by slab pages alone, so that a hundredth of them is allowed.
    ShadowsBySize = "shadows_by_size",
    /// Windows that are read ahead end at multiples of four pages. Between 6.12 and 7.1.
    AlignedReadahead = "aligned_readahead",
    /// Reading around mapped misses stops when they outnumber faults on cached pages by a hundred
    /// (7.2). Off: pages that a fault maps around its own count as such faults, too.
    MissesPerFault = "misses_per_fault",
    /// Cached pages before a miss that continues no read are the trace of a sequential reader, and
    /// the window is as long as the trace. Off: such a miss reads what was asked for.
    ContextReadahead = "context_readahead",
    /// Reclaim's mark of a folio that it met dirty is the readahead mark, one bit in kernels: the
    /// next read brings in pages behind the folio, and the folio is not freed first once clean.
    SharedMark = "shared_mark",
    /// A store that faults on a page with a slot on a swap device frees the slot, as in 6.12: the
    /// copy there is of no use any more. Off, as in 7.1 and 7.2: the page keeps its slot.
    StoresFreeSlots = "stores_free_slots",
    /// Multi-gen: limit reclaim stops after the step that reaches its goal, as all other reclaim
    /// does. Off: it goes on to the end of its budget. Between 6.12 and 7.1.
    StopAtGoal = "stop_at_goal",
    /// Classic: a scan of inactive pages that costs nothing still halves the costs if they exceed a
    /// quarter of the lists, as in 6.12. Off: only a scan that adds to them does.
    DecayWithoutCost = "decay_without_cost",
    /// Background reclaim that has given up goes on once the node is balanced. Off: after any page
    /// that was reclaimed, also below a limit. Between 6.12 and 7.1.
    HopeByBalance = "hope_by_balance",
}

/// The patches of the reclaim loop's series that change what reclaim decides, in the order of the
/// series. A patch with two effects is two switches.
const RECLAIM_LOOP: [Switch; 10] = [
    Switch::FixedBudget,
    Switch::AgingApart,
    Switch::ExactScan,
    Switch::SameType,
    Switch::SmallBatches,
    Switch::ScanAfterAging,
    Switch::IsolateDirty,
    Switch::KeepReclaimMark,
    Switch::FlushPerBatch,
    Switch::DirtyTallies,
];

const FAULT_PLACEMENT: [Switch; 2] = [Switch::FaultCounts, Switch::ReferencedPlacement];
const BATCH_NONRESIDENT_AGE: [Switch; 5] = [
    Switch::AgePerBatch,
    Switch::AgeAfterUnlock,
    Switch::AgeWithCost,
    Switch::AgeOncePerRefault,
    Switch::AgeEvictionsPerBatch,
];

/// The first switch that cannot change at run time. The switches before it fit below the policy's
/// number in the word that can.
const FIRST_RULE: u32 = Switch::RankByGeneration as u32;
const _: () = assert!(FIRST_RULE == super::POLICY_SHIFT);

impl Switch {
    /// Finds a switch by name.
    ///
    /// # Errors
    /// [`MechanismError::UnknownSwitch`] if no switch has this name.
    pub fn parse(name: &str) -> Result<Switch, MechanismError> {
        let found = Switch::ALL.into_iter().find(|switch| switch.name() == name);
        found.ok_or_else(|| MechanismError::UnknownSwitch(name.to_owned()))
    }

    /// The switches that this one stands for, in the order of the published patches; empty for
    /// most.
    pub const fn parts(self) -> &'static [Switch] {
        match self {
            Switch::ReclaimLoop => &RECLAIM_LOOP,
            Switch::FaultPlacement => &FAULT_PLACEMENT,
            Switch::BatchNonresidentAge => &BATCH_NONRESIDENT_AGE,
            _ => &[],
        }
    }

    /// Whether another switch stands for this one, with others.
    pub fn is_part(self) -> bool {
        self.whole().is_some()
    }

    /// The switch that this one is a part of.
    pub fn whole(self) -> Option<Switch> {
        let all = [Switch::ReclaimLoop, Switch::FaultPlacement, Switch::BatchNonresidentAge];
        all.into_iter().find(|whole| whole.parts().contains(&self))
    }

    /// The policy that this switch is an optional rule of, if it concerns a single policy.
    pub fn policy(self) -> Option<Lru> {
        match self {
            Switch::WorkingsetRework | Switch::LuleshFix | Switch::FaultPlacement => Some(Lru::MultiGen),
            Switch::PrefetchNext
            | Switch::MinimumScan
            | Switch::ProportionalProtection
            | Switch::BoundedSteps
            | Switch::ShadowsBySize
            | Switch::StopAtGoal => Some(Lru::MultiGen),
            Switch::BatchNonresidentAge | Switch::CostReleasesLock | Switch::DecayWithoutCost => {
                Some(Lru::Classic)
            }
            Switch::ReclaimLoop => None,
            _ if self.is_part() => {
                let of_classic = self.whole() == Some(Switch::BatchNonresidentAge);
                Some(if of_classic { Lru::Classic } else { Lru::MultiGen })
            }
            _ if (FIRST_RULE..=Switch::CompactShadows as u32).contains(&(self as u32)) => Some(Lru::Ranked),
            _ => None,
        }
    }

    /// The policy that this switch is a rule of, if it changes nothing under `lru`.
    pub(super) fn of_other_policy(self, lru: Lru) -> Option<Lru> {
        match self {
            // The kernel's order of memcgs needs generations. `subtree_lru` extends it to `ranked`.
            Switch::MemcgLru if lru == Lru::Classic => Some(Lru::MultiGen),
            _ => self.policy().filter(|of| *of != lru),
        }
    }

    /// The switch's bit in the word that can change at run time. A switch with parts has none, so
    /// that one of those bits is free.
    pub(super) const fn bit(self) -> u16 {
        if matches!(self, Switch::PrefetchNext) {
            return 1 << Switch::ReclaimLoop as u32;
        }
        assert!((self as u32) < FIRST_RULE && self.parts().is_empty());
        1 << self as u32
    }

    /// The switch's bits among the rules that never change: its own, or those of its parts; 0 for
    /// switches that can change at run time.
    pub(super) const fn rules(self) -> u64 {
        if matches!(self, Switch::PrefetchNext) {
            return 0;
        }
        let number = self as u32;
        let parts = self.parts();
        let (mut bits, mut at) = (if number < FIRST_RULE { 0 } else { 1 << (number - FIRST_RULE) }, 0);
        while at < parts.len() {
            bits |= parts[at].rules();
            at += 1;
        }
        bits
    }
}

const _: () = assert!(Switch::ALL.len() as u32 <= FIRST_RULE + u64::BITS);
