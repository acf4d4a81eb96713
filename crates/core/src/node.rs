//! The node: its free frames and watermarks, and what is dirty on it.
//!
//! # Locking
//!
//! The free list has a lock of its own, taken last. Counts are atomic.

use crate::folio::{FolioId, Kind};
use crate::memcg::Pending;
use crate::reclaim::Watermarks;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering::Relaxed};

/// One node.
#[derive(Debug)]
pub(crate) struct Node {
    free: Mutex<Free>,
    /// Frames below this number are held by the kernel and can never be given back to the system.
    pinned_frames: u32,
    free_count: AtomicU32,
    retired: AtomicU32,
    watermarks: Watermarks,
    pub(crate) pending: Pending,
    writeback: AtomicBool,
    /// Pages that classic reclaim has taken off lists to look at them.
    isolated: [AtomicU64; 2],
    /// Somebody waits until there are fewer.
    isolated_waiters: AtomicBool,
    hopeless_failures: AtomicU32,
}

/// Free frames, each list last in, first out: a frame used a moment ago is still in the CPU's caches.
#[derive(Debug)]
struct Free {
    pinned: Vec<u32>,
    /// Used only when no pinned one is left, so that these can pay for metadata.
    releasable: Vec<u32>,
}

impl Free {
    fn len(&self) -> usize {
        self.pinned.len() + self.releasable.len()
    }
}

/// Whether an allocation may take a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// Here it is.
    Frame(FolioId),
    /// Here it is, and background reclaim should start.
    Low(FolioId),
    /// Below the min watermark: reclaim first.
    BelowMin,
}

impl Node {
    pub(crate) fn new(frames: u32, pinned_frames: u32, watermarks: Watermarks) -> Node {
        let pinned_frames = pinned_frames.min(frames);
        let (pinned, releasable) =
            ((0..pinned_frames).rev().collect(), (pinned_frames..frames).rev().collect());
        Node {
            free: Mutex::new(Free { pinned, releasable }),
            pinned_frames,
            free_count: AtomicU32::new(frames),
            retired: AtomicU32::new(0),
            watermarks,
            pending: Pending::default(),
            writeback: AtomicBool::new(false),
            isolated: [AtomicU64::new(0), AtomicU64::new(0)],
            isolated_waiters: AtomicBool::new(false),
            hopeless_failures: AtomicU32::new(0),
        }
    }

    pub(crate) fn watermarks(&self) -> Watermarks {
        self.watermarks
    }

    /// Frames nobody uses.
    pub(crate) fn free_pages(&self) -> u32 {
        self.free_count.load(Relaxed)
    }

    /// Frames that pay for metadata.
    pub(crate) fn retired_pages(&self) -> u32 {
        self.retired.load(Relaxed)
    }

    /// Takes a frame. `urgent`: also below the min watermark, as reclaim itself may, and who reclaimed already.
    pub(crate) fn allocate(&self, urgent: bool) -> Allocation {
        let mut free = self.free.lock();
        if free.len() <= self.watermarks.min as usize && !urgent {
            return Allocation::BelowMin;
        }
        let Some(frame) = free.pinned.pop().or_else(|| free.releasable.pop()) else {
            return Allocation::BelowMin;
        };
        self.free_count.store(free.len() as u32, Relaxed);
        if free.len() < self.watermarks.low as usize {
            return Allocation::Low(FolioId(frame));
        }
        Allocation::Frame(FolioId(frame))
    }

    /// Returns frames.
    pub(crate) fn release(&self, frames: &[FolioId]) {
        let mut free = self.free.lock();
        for frame in frames {
            if frame.0 < self.pinned_frames {
                free.pinned.push(frame.0);
            } else {
                free.releasable.push(frame.0);
            }
        }
        self.free_count.store(free.len() as u32, Relaxed);
    }

    /// Takes a frame for good, whose memory is to be given back to the system. `None`: none that could be is
    /// free, or the node is below its min watermark and this is not `urgent`.
    pub(crate) fn retire(&self, urgent: bool) -> Option<FolioId> {
        let mut free = self.free.lock();
        if free.len() <= self.watermarks.min as usize && !urgent {
            return None;
        }
        let frame = free.releasable.pop()?;
        self.free_count.store(free.len() as u32, Relaxed);
        self.retired.fetch_add(1, Relaxed);
        Some(FolioId(frame))
    }

    /// Whether background reclaim has reached its goal.
    pub(crate) fn is_balanced(&self) -> bool {
        self.free_pages() > self.watermarks.high
    }

    /// Background reclaim met nothing but pages under write-back.
    pub(crate) fn is_full_of_writeback(&self) -> bool {
        self.writeback.load(Relaxed)
    }

    pub(crate) fn set_full_of_writeback(&self, full: bool) {
        self.writeback.store(full, Relaxed);
    }

    /// Classic reclaim took pages off lists.
    pub(crate) fn note_isolated(&self, kind: Kind, pages: u64) {
        self.isolated[kind as usize].fetch_add(pages, Relaxed);
    }

    /// They were freed or put back.
    pub(crate) fn note_put_back(&self, kind: Kind, pages: u64) {
        self.isolated[kind as usize].fetch_sub(pages, Relaxed);
    }

    pub(crate) fn isolated_pages(&self, kind: Kind) -> u64 {
        self.isolated[kind as usize].load(Relaxed)
    }

    /// Somebody begins to wait until fewer are isolated; or, `false`, nobody has to any more. Whether somebody did.
    pub(crate) fn set_isolated_waiters(&self, waits: bool) -> bool {
        // Asked for each batch, and almost always the same.
        self.isolated_waiters.load(Relaxed) != waits && self.isolated_waiters.swap(waits, Relaxed)
    }

    /// Counts a fruitless run of background reclaim; 16 without progress in between make the node hopeless.
    pub(crate) fn note_fruitless_run(&self) {
        self.hopeless_failures.fetch_add(1, Relaxed);
    }

    /// Somebody reclaimed pages. Only where that was enough does it give hope: else the next fruitless runs would
    /// each begin to count from zero (spec 70 §6, 7.2).
    pub(crate) fn note_progress(&self) {
        if self.is_balanced() && self.hopeless_failures.load(Relaxed) != 0 {
            self.hopeless_failures.store(0, Relaxed);
        }
    }

    /// Background reclaim gave up; it is left to those who allocate.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.hopeless_failures.load(Relaxed) >= 16
    }
}
