//! The node: its free frames and watermarks, and what is dirty on it.
//!
//! # Locking
//!
//! Free frames have their own ([`crate::free_frames`]), taken last, under that of the retired ones.
//! Counts are atomic.

use crate::folio::{FolioId, Kind};
use crate::free_frames::FreeFrames;
use crate::memcg::Pending;
use crate::options::Options;
use crate::reclaim::Watermarks;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering::Relaxed};

/// One node.
#[derive(Debug)]
pub(crate) struct Node {
    free: FreeFrames,
    retired: AtomicU32,
    retired_frames: Mutex<Vec<FolioId>>,
    /// More are never retired: those that the kernel holds cannot be, and half of all are for pages.
    retired_max: u32,
    watermarks: Watermarks,
    pub(crate) pending: Pending,
    writeback: AtomicBool,
    /// Pages that classic reclaim has taken off lists to look at them.
    isolated: [AtomicU64; 2],
    /// Somebody waits until there are fewer.
    isolated_waiters: AtomicBool,
    hopeless_failures: AtomicU32,
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
    pub(crate) fn new(options: &Options) -> Node {
        let Options { frames, pinned_frames, cpus, pcp_batch_frames, .. } = *options;
        Node {
            free: FreeFrames::new(frames, pinned_frames, cpus, pcp_batch_frames),
            retired: AtomicU32::new(0),
            retired_frames: Mutex::default(),
            retired_max: frames.saturating_sub(pinned_frames).min(frames / 2),
            watermarks: options.watermarks,
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

    /// Frames that nobody uses and no CPU has: what watermarks are compared with.
    pub(crate) fn free_pages(&self) -> u32 {
        self.free.node_frames()
    }

    /// Frames that nobody uses.
    pub(crate) fn unused_pages(&self) -> u32 {
        self.free.all_frames()
    }

    /// Frames that pay for metadata.
    pub(crate) fn retired_pages(&self) -> u32 {
        self.retired.load(Relaxed)
    }

    /// Takes a frame for `cpu`. `urgent`: also below the min watermark, as reclaim itself may, and
    /// who reclaimed already.
    pub(crate) fn allocate(&self, cpu: usize, urgent: bool) -> Allocation {
        match self.free.take(cpu, self.spared_frames(urgent)) {
            None => Allocation::BelowMin,
            Some((folio, Some(left))) if left < self.watermarks.low => Allocation::Low(folio),
            Some((folio, _)) => Allocation::Frame(folio),
        }
    }

    fn spared_frames(&self, urgent: bool) -> usize {
        if urgent { 0 } else { self.watermarks.min as usize }
    }

    /// Returns frames. `cpu`: who freed them.
    pub(crate) fn release(&self, cpu: Option<usize>, frames: &[FolioId]) {
        self.free.give(cpu, frames);
    }

    /// Takes a frame for good, whose memory is to be given back to the system. `None`: none that
    /// could be is free, or the node is below its min watermark and this is not `urgent`.
    pub(crate) fn retire(&self, urgent: bool) -> Option<FolioId> {
        let mut retired = self.retired_frames.lock();
        if retired.len() >= self.retired_max as usize {
            return None;
        }
        let frame = self.free.take_releasable(self.spared_frames(urgent))?;
        retired.push(frame);
        self.retired.store(retired.len() as u32, Relaxed);
        Some(frame)
    }

    /// How many frames may pay for metadata at most.
    pub(crate) fn retired_max(&self) -> u32 {
        self.retired_max
    }

    /// Takes a frame back that paid for metadata: it is free again. `None`: no more than `needed`
    /// frames pay.
    pub(crate) fn restore(&self, needed: u64) -> Option<FolioId> {
        let mut retired = self.retired_frames.lock();
        let frame = if retired.len() as u64 > needed { retired.pop()? } else { return None };
        self.retired.store(retired.len() as u32, Relaxed);
        self.free.give(None, &[frame]);
        Some(frame)
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

    /// Somebody begins to wait until fewer are isolated; or, `false`, nobody has to any more.
    /// Whether somebody did.
    pub(crate) fn set_isolated_waiters(&self, waits: bool) -> bool {
        // Asked for each batch, and almost always the same.
        self.isolated_waiters.load(Relaxed) != waits && self.isolated_waiters.swap(waits, Relaxed)
    }

    /// Counts a fruitless run of background reclaim; 16 without progress in between make the node
    /// hopeless.
    pub(crate) fn note_fruitless_run(&self) {
        self.hopeless_failures.fetch_add(1, Relaxed);
    }

    /// Somebody reclaimed pages. Only where that was enough does it give hope: else the next
    /// fruitless runs would each begin to count from zero ([book: reclaim-loop#watermarks], 7.2).
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
