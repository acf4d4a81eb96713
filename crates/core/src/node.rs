//! The node: its free frames, watermarks, and counts of dirty pages.
//!
//! # Locking
//!
//! Free frames have locks of their own ([`crate::free_frames`]), taken last, under that of the
//! retired ones. Counts are atomic.

use crate::Time;
use crate::folio::{FolioId, Kind};
use crate::free_frames::FreeFrames;
use crate::memcg::Pending;
use crate::options::Options;
use crate::reclaim::Watermarks;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering::Relaxed};

#[derive(Debug)]
pub(crate) struct Node {
    free: FreeFrames,
    retired: AtomicU32,
    retired_frames: Mutex<Vec<FolioId>>,
    /// The most frames that are ever retired: not those that the kernel pins, and at most half of
    /// all.
    retired_max: u32,
    watermarks: Watermarks,
    pub(crate) pending: Pending,
    writeback: AtomicBool,
    /// Pages that classic reclaim has isolated, by kind.
    isolated: [AtomicU64; 2],
    /// Set while a thread waits for fewer isolated pages.
    isolated_waiters: AtomicBool,
    hopeless_failures: AtomicU32,
}

/// Result of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// A frame.
    Frame(FolioId),
    /// A frame, and background reclaim should start.
    Low(FolioId),
    /// Below the min watermark: reclaim first.
    BelowMin,
}

impl Node {
    pub(crate) fn new(options: &Options) -> Node {
        let Options { frames, pinned_frames, cpus, pcp_batch_frames, watermarks, .. } = *options;
        let free = FreeFrames::new(frames, pinned_frames, cpus, pcp_batch_frames);
        Node {
            free: match options.pcp_sizes {
                Some(sizes) => free.with_adaptive_lists(sizes, cpus, watermarks.high),
                None => free,
            },
            retired: AtomicU32::new(0),
            retired_frames: Mutex::default(),
            retired_max: frames.saturating_sub(pinned_frames).min(frames / 2),
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

    /// The node's free frames without those near CPUs; watermarks are compared with these.
    pub(crate) fn free_pages(&self) -> u32 {
        self.free.node_frames()
    }

    /// All free frames.
    pub(crate) fn unused_pages(&self) -> u32 {
        self.free.all_frames()
    }

    pub(crate) fn retired_pages(&self) -> u32 {
        self.retired.load(Relaxed)
    }

    /// Takes a frame for `cpu`. `urgent`: even below the min watermark, and another CPU's, as for a
    /// charge that has already reclaimed. `now` is asked for only where lists of CPUs adapt.
    pub(crate) fn allocate(&self, cpu: usize, urgent: bool, now: impl FnOnce() -> Time) -> Allocation {
        let taken = match self.free.are_adaptive() {
            true => self.free.take_adaptively(cpu, self.watermarks.min as usize, urgent, now()),
            false => self.free.take(cpu, self.spared_frames(urgent), urgent),
        };
        match taken {
            None => Allocation::BelowMin,
            Some((folio, Some(left))) if left < self.watermarks.low => Allocation::Low(folio),
            Some((folio, _)) => Allocation::Frame(folio),
        }
    }

    fn spared_frames(&self, urgent: bool) -> usize {
        if urgent { 0 } else { self.watermarks.min as usize }
    }

    /// Returns frames. `cpu`: the CPU that freed them, if known.
    pub(crate) fn release(&self, cpu: Option<usize>, frames: &[FolioId]) {
        self.free.give(cpu, frames);
    }

    /// Returns all CPUs' free frames to the node, where they count. Lists that adapt return frames
    /// by their own rules.
    pub(crate) fn call_back_frames(&self) {
        if !self.free.are_adaptive() {
            self.free.call_back();
        }
    }

    /// Background reclaim wakes up or goes to sleep; CPUs' lists that adapt have less room while it
    /// is awake.
    pub(crate) fn set_reclaims(&self, reclaims: bool) {
        self.free.set_reclaims(reclaims);
    }

    /// Takes a frame, whose memory `give_back` returns to the system. `false`: all such frames are
    /// in use, or the node is below its min watermark without `urgent`.
    pub(crate) fn retire(&self, urgent: bool, give_back: impl FnOnce(FolioId)) -> bool {
        let mut retired = self.retired_frames.lock();
        if retired.len() >= self.retired_max as usize {
            return false;
        }
        let Some(frame) = self.free.take_releasable(self.spared_frames(urgent)) else { return false };
        // Before another thread can find it: once restored, it holds a page again, whose bytes
        // would be lost.
        give_back(frame);
        retired.push(frame);
        self.retired.store(retired.len() as u32, Relaxed);
        true
    }

    /// The most frames that may pay for metadata.
    pub(crate) fn retired_max(&self) -> u32 {
        self.retired_max
    }

    /// Takes back a frame that paid for metadata: it is free again. Before other threads can find
    /// it, `take_back` prepares its memory. `false`: at most `needed` frames pay.
    pub(crate) fn restore(&self, needed: u64, take_back: impl FnOnce(FolioId)) -> bool {
        let mut retired = self.retired_frames.lock();
        if retired.len() as u64 <= needed {
            return false;
        }
        let frame = retired.pop().expect("more than are needed");
        self.retired.store(retired.len() as u32, Relaxed);
        take_back(frame);
        self.free.give(None, &[frame]);
        true
    }

    /// Whether background reclaim has reached its goal.
    pub(crate) fn is_balanced(&self) -> bool {
        self.free_pages() > self.watermarks.high
    }

    /// Whether background reclaim has met only pages under writeback.
    pub(crate) fn is_full_of_writeback(&self) -> bool {
        self.writeback.load(Relaxed)
    }

    pub(crate) fn set_full_of_writeback(&self, full: bool) {
        self.writeback.store(full, Relaxed);
    }

    /// Counts pages that classic reclaim isolates.
    pub(crate) fn note_isolated(&self, kind: Kind, pages: u64) {
        self.isolated[kind as usize].fetch_add(pages, Relaxed);
    }

    /// Counts isolated pages that were freed or put back.
    pub(crate) fn note_put_back(&self, kind: Kind, pages: u64) {
        self.isolated[kind as usize].fetch_sub(pages, Relaxed);
    }

    pub(crate) fn isolated_pages(&self, kind: Kind) -> u64 {
        self.isolated[kind as usize].load(Relaxed)
    }

    /// Notes that a thread waits for fewer isolated pages, or with `false` that none must wait.
    /// Returns the former state, if it changed.
    pub(crate) fn set_isolated_waiters(&self, waits: bool) -> bool {
        // Checked first: it is asked for each batch, and rarely changes.
        self.isolated_waiters.load(Relaxed) != waits && self.isolated_waiters.swap(waits, Relaxed)
    }

    /// Counts a fruitless run of background reclaim. After 16 without progress the node is
    /// hopeless.
    pub(crate) fn note_fruitless_run(&self) {
        self.hopeless_failures.fetch_add(1, Relaxed);
    }

    /// Resets that count after progress, if `anyway` or if the node is balanced. Otherwise further
    /// fruitless runs would always start from zero ([book: reclaim-loop#watermarks]).
    pub(crate) fn note_progress(&self, anyway: bool) {
        if (anyway || self.is_balanced()) && self.hopeless_failures.load(Relaxed) != 0 {
            self.hopeless_failures.store(0, Relaxed);
        }
    }

    /// Whether background reclaim has given up and leaves reclaim to allocating threads.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.hopeless_failures.load(Relaxed) >= 16
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// One thread retires a frame while another restores it and writes a page to it: the memory
    /// goes back to the system before the page comes, not after it.
    #[test]
    fn a_frame_that_is_restored_keeps_its_new_page() {
        loom::model(|| {
            let node = Arc::new(Node::new(&Options::new(2)));
            let byte = Arc::new(AtomicU32::new(0));
            let (node_of_other, byte_of_other) = (node.clone(), byte.clone());
            let other = thread::spawn(move || {
                let is_restored = node_of_other.restore(0, |_| ());
                if is_restored {
                    byte_of_other.store(1, Relaxed);
                }
                is_restored
            });
            assert!(node.retire(true, |_| byte.store(0, Relaxed)));
            let is_restored = other.join().unwrap();
            assert_eq!(byte.load(Relaxed), u32::from(is_restored));
        });
    }
}
