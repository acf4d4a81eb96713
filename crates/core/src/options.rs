//! The options of a core.

use crate::lru::{BATCH_FOLIOS, Refresh, Swappiness};
use crate::mechanism::Mechanisms;
use crate::reclaim::{OomPolicy, Watermarks};
use crate::swap::SwapOptions;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Leaves of shadows that the kernel drops together ([`Options::shadow_batch_leaves`]).
pub const SHADOW_BATCH_LEAVES: u64 = 128;

/// The options of a core, fixed at creation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Frames of the node.
    pub frames: u32,
    /// Frames below this number are pinned by the kernel and never pay for metadata. Default: 0.
    pub pinned_frames: u32,
    /// Watermarks of free memory. Default: the kernel's marks for `frames`.
    pub watermarks: Watermarks,
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
    /// Leaves of shadows that are dropped together when a memcg has too many. Default: 128, as in
    /// the kernel ([book: refaults#shadow-limit]); a replay of a sample of a trace sets fewer.
    pub shadow_batch_leaves: u64,
    /// Seed of the random choice of bins in the memcg LRU. Default: 0.
    pub seed: u64,
    /// Whether dirty pages of a memcg are also limited by its own memory. False: only the global
    /// limit holds, as on Linux if the I/O controller is not on the unified hierarchy. Default:
    /// true.
    pub memcg_dirty_limits: bool,
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
            mechanisms: Mechanisms::default(),
            swap: SwapOptions::default(),
            swappiness: Swappiness::DEFAULT,
            cpus: 1,
            batch_folios: BATCH_FOLIOS,
            statistics_refresh: Refresh::default(),
            charge_batch_pages: 1,
            pcp_batch_frames: 1,
            shadow_batch_leaves: SHADOW_BATCH_LEAVES,
            seed: 0,
            memcg_dirty_limits: true,
            oom_policy: OomPolicy::default(),
            charge_metadata: false,
        }
    }
}
