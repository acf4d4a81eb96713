//! The options of a core.

use crate::folio::FEW_REFAULTS;
use crate::host::Time;
use crate::lru::{BATCH_FOLIOS, CLUSTER_PAGES, Swappiness};
use crate::mechanism::{MechanismError, Mechanisms, choose};
use crate::pcp::PcpSizes;
use crate::swap::SwapOptions;
use crate::zone::{Watermarks, Zone};
use std::time::Duration;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// Quantities that are the same whatever the size of memory. A replay of a sample of a trace has
/// fewer of each ([book: python#samples-of-long-traces]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grain {
    /// Leaves of shadows that are dropped together when a memcg has too many. 128 in the kernel
    /// ([book: refaults#shadow-limit]).
    pub shadow_batch_leaves: u64,
    /// The fewest pages that the multi-gen LRU tries to free at a limit; 32 in the kernel. One scan
    /// takes at most twice as many.
    pub reclaim_pages: u64,
    /// Fewer refaults than this from a tier of the multi-gen LRU count as none, and as many pages
    /// are the bias of the tier that it is compared with; 64 in the kernel
    /// ([book: eviction#refault-positions]).
    pub few_refaults: u64,
}

impl Grain {
    /// The kernel's quantities.
    pub const KERNEL: Grain =
        Grain { shadow_batch_leaves: 128, reclaim_pages: CLUSTER_PAGES, few_refaults: FEW_REFAULTS };
}

/// The options of a core, fixed at creation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Frames of the node.
    pub frames: u32,
    /// Frames below this number are pinned by the kernel and never pay for metadata. Default: 0.
    pub pinned_frames: u32,
    /// Watermarks of the highest zone. Default: the kernel's marks for `frames`.
    pub watermarks: Watermarks,
    /// The zones below the highest one, the highest of them first, at most two. They take their
    /// pages from the end of `frames`. Default: none, so that all memory is one zone.
    pub lower_zones: Vec<Zone>,
    /// The switches that are on.
    pub mechanisms: Mechanisms,
    /// The swap area for anonymous pages. Default: none.
    pub swap: SwapOptions,
    /// Relative cost of reclaiming file against anonymous pages: 0 to 200; 201 takes only anonymous
    /// pages ([book: aging#swappiness]). Default: 60. Without swap, or with fewer than 64 free swap
    /// slots, reclaim takes only file pages.
    pub swappiness: Swappiness,
    /// CPUs, each with its own batches: the number of threads that may run at once. Default: 1.
    pub cpus: usize,
    /// Folios per batch of arrivals, 1 to 31. Default: 31; smaller ones serve comparison with the
    /// golden traces.
    pub batch_folios: usize,
    /// Refresh of the list sizes that the classic LRU uses, unless they are exact. Default: every 2
    /// s.
    pub statistics_refresh: Refresh,
    /// Pages that a CPU charges at once, in advance. Default: 1, so that counts compare page by
    /// page with measurements of kernels; a cache sets 64 ([`crate::memcg::CHARGE_BATCH_PAGES`]).
    pub charge_batch_pages: u64,
    /// Frames that a CPU takes from the node at once; it keeps up to four times as many of the
    /// frames that it freed. Default: 1, which turns the per-CPU lists off, so that watermarks
    /// count every free frame. A cache sets up to 32 ([`crate::PCP_BATCH_FRAMES`]).
    pub pcp_batch_frames: usize,
    /// The kernel's lists per CPU instead, which adapt their sizes: watermarks then neither count
    /// their frames nor let them be taken. Default: none, as in the golden traces.
    pub pcp_sizes: Option<PcpSizes>,
    /// Quantities that do not depend on the size of memory. Default: the kernel's.
    pub grain: Grain,
    /// Seed of the random choice of bins in the memcg LRU. Default: 0.
    pub seed: u64,
    /// Whether dirty pages of a memcg are also limited by its own memory. False: only the global
    /// limit holds, as on Linux if the I/O controller is not on the unified hierarchy. Default:
    /// true.
    pub memcg_dirty_limits: bool,
    /// Whether a memcg's writers know its dirty pages as of the last refresh of statistics, as on
    /// Linux while nobody reads `memory.stat`; without effect under `exact_statistics`. False: at
    /// once, as if somebody read it all the time. Default: false.
    pub late_dirty_counts: bool,
    /// The action when a page cannot be had. Default: the request fails.
    pub oom_policy: OomPolicy,
    /// Whether index memory takes frames away. Default: false, as in the golden traces; a cache
    /// sets true.
    pub charge_metadata: bool,
}

impl Options {
    /// Defaults for a node of `frames` frames.
    pub fn new(frames: u32) -> Options {
        Options {
            frames,
            pinned_frames: 0,
            watermarks: Watermarks::for_pages(frames),
            lower_zones: Vec::new(),
            mechanisms: Mechanisms::default(),
            swap: SwapOptions::default(),
            swappiness: Swappiness::DEFAULT,
            cpus: 1,
            batch_folios: BATCH_FOLIOS,
            statistics_refresh: Refresh::default(),
            charge_batch_pages: 1,
            pcp_batch_frames: 1,
            pcp_sizes: None,
            grain: Grain::KERNEL,
            seed: 0,
            memcg_dirty_limits: true,
            late_dirty_counts: false,
            oom_policy: OomPolicy::default(),
            charge_metadata: false,
        }
    }
}

/// The action when a page cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum OomPolicy {
    /// The request that needs it fails.
    #[default]
    Fail,
    /// Kills the tenant below the limit that was hit with the highest usage above its protection,
    /// or its whole group (`memory.oom.group`). Only tenants with anonymous memory qualify; without
    /// one, the request fails.
    Victim,
    /// The host decides, by `Host::out_of_memory` of `mglru_core`.
    Ask,
}

impl OomPolicy {
    /// The policies that need no answer from the host.
    pub const NAMED: [OomPolicy; 2] = [OomPolicy::Fail, OomPolicy::Victim];

    /// The name of the policy.
    pub fn name(self) -> &'static str {
        match self {
            OomPolicy::Fail => "fail",
            OomPolicy::Victim => "victim",
            OomPolicy::Ask => "ask",
        }
    }

    /// Finds one of [`Self::NAMED`] by name.
    ///
    /// # Errors
    /// [`MechanismError::UnknownChoice`] if no such policy has this name.
    pub fn parse(name: &str) -> Result<OomPolicy, MechanismError> {
        choose("oom_policy", name, &OomPolicy::NAMED, OomPolicy::name)
    }
}

/// Times of the automatic refreshes of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refresh {
    /// Time of the first refresh, since the start of the host.
    pub first: Duration,
    /// Time between refreshes.
    pub period: Duration,
}

impl Default for Refresh {
    /// Every two seconds.
    fn default() -> Refresh {
        let period = Duration::from_secs(2);
        Refresh { first: period, period }
    }
}

impl Refresh {
    /// No automatic refresh: only when statistics are read.
    pub const NEVER: Refresh = Refresh { first: Duration::MAX, period: Duration::MAX };

    /// The first refresh after `now`.
    pub(crate) fn after(self, now: Time) -> Time {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let (first, period) = (nanos(self.first), nanos(self.period).max(1));
        let passed = now.as_nanos().checked_sub(first).map_or(0, |since| since / period + 1);
        Time::from_nanos(first.saturating_add(period.saturating_mul(passed)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn refreshes_keep_their_phase() {
        let seconds = |seconds: u64| Duration::from_secs(seconds);
        let at = |refresh: Refresh, now| refresh.after(Time::ZERO + seconds(now));
        let refresh = Refresh { first: seconds(1), period: seconds(2) };
        assert_eq!(
            [0, 1, 2, 3, 8].map(|now| at(refresh, now)),
            [1, 3, 3, 5, 9].map(|s| Time::ZERO + seconds(s))
        );
        assert_eq!(at(Refresh::NEVER, 1_000_000).as_nanos(), u64::MAX);
    }
}
