//! How a core is set up.

use crate::lru::{BATCH_FOLIOS, Swappiness};
use crate::mechanism::Mechanisms;
use crate::reclaim::Watermarks;

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
    /// CPUs, each with its own batches: threads that may arrive at the same time. Default: 1.
    pub cpus: usize,
    /// Folios per batch of arrivals, 1…31. Default 31; smaller ones only for comparison with the golden traces.
    pub batch_folios: usize,
    /// Whether index memory takes frames away. Default: no, as in the golden traces; a cache says yes.
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
            cpus: 1,
            batch_folios: BATCH_FOLIOS,
            charge_metadata: false,
        }
    }

    /// How willing reclaim is to take anonymous pages: not at all, as there is no swap.
    pub fn swappiness(&self) -> Swappiness {
        Swappiness::FILE_ONLY
    }
}
