//! How a core is set up.

use crate::lru::{BATCH_FOLIOS, Refresh, Swappiness};
use crate::mechanism::Mechanisms;
use crate::reclaim::{OomPolicy, Watermarks};
use crate::swap::SwapOptions;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// How a core is set up. Nothing of it changes afterwards.
#[derive(Clone, Debug)]
pub struct Options {
    /// Frames of the node.
    pub frames: u32,
    /// Frames 0… up to this number are held by the kernel and never pay for metadata. Default: 0.
    pub pinned_frames: u32,
    /// When free memory is short. Default: the kernel's marks for `frames`.
    pub watermarks: Watermarks,
    /// Which behaviours are on.
    pub mechanisms: Mechanisms,
    /// Where anonymous pages go. Default: nowhere, there is no swap.
    pub swap: SwapOptions,
    /// How willing reclaim is to take anonymous pages: 0…200, or 201, which takes no others
    /// ([book: aging#swappiness]). Default: 60. Without swap, or where less than 64 of its pages
    /// are free, only file pages are taken.
    pub swappiness: Swappiness,
    /// CPUs, each with its own batches: threads that may arrive at the same time. Default: 1.
    pub cpus: usize,
    /// Folios per batch of arrivals, 1…31. Default 31; smaller ones only for comparison with the
    /// golden traces.
    pub batch_folios: usize,
    /// When the list sizes by which the classic LRU decides are refreshed, unless they are exact.
    /// Default: every 2 s.
    pub statistics_refresh: Refresh,
    /// Pages that a CPU charges at once, for those to come. Default: 1, so that counts can be
    /// compared page by page, as what is measured of kernels does without them; a cache says 64
    /// ([`crate::memcg::CHARGE_BATCH_PAGES`]).
    pub charge_batch_pages: u64,
    /// Frames that a CPU takes from the node at once, for pages to come; it keeps up to four times
    /// as many of those that it freed. Default: 1, so that it has none, and watermarks are compared
    /// with all that nobody uses. A cache says up to 32 ([`crate::PCP_BATCH_FRAMES`]).
    pub pcp_batch_frames: usize,
    /// Of what is drawn by chance: bins of the memcg LRU. Default: 0.
    pub seed: u64,
    /// Whether what a memcg has dirty is held against its own memory; false: only what all have, as
    /// on Linux where the I/O controller is not on the unified hierarchy. Default: yes.
    pub memcg_dirty_limits: bool,
    /// What is done where a page cannot be had. Default: the request fails.
    pub oom_policy: OomPolicy,
    /// Whether index memory takes frames away. Default: no, as in the golden traces; a cache says
    /// yes.
    pub charge_metadata: bool,
}

impl Options {
    /// Defaults for a node of so many frames.
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
            seed: 0,
            memcg_dirty_limits: true,
            oom_policy: OomPolicy::default(),
            charge_metadata: false,
        }
    }
}
