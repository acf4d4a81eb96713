//! The node: the free frames and watermarks of its zones, and counts of dirty pages.
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
use crate::pcp::PcpSizes;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering::Relaxed};
use crate::zone::Watermarks;
use std::ops::Range;

#[derive(Debug)]
pub(crate) struct Node {
    highest: ZoneFrames,
    /// The zones below, the highest of them first.
    lower: Box<[ZoneFrames]>,
    retired: AtomicU32,
    retired_frames: Mutex<Vec<FolioId>>,
    /// The most frames that are ever retired: not those that the kernel pins, and at most half of
    /// all.
    retired_max: u32,
    pub(crate) pending: Pending,
    writeback: AtomicBool,
    /// Pages that classic reclaim has isolated, by kind.
    isolated: [AtomicU64; 2],
    /// Set while a thread waits for fewer isolated pages.
    isolated_waiters: AtomicBool,
    /// Set while a thread waits for background reclaim.
    throttled_waiters: AtomicBool,
    hopeless_failures: AtomicU32,
}

/// The free frames of a zone.
#[derive(Debug)]
struct ZoneFrames {
    free: FreeFrames,
    watermarks: Watermarks,
    /// Pages beyond a watermark that stay free.
    spared_pages: u32,
}

impl ZoneFrames {
    /// Takes a frame, and `urgent` even below the mark. Also returns the free frames that remain,
    /// if they were looked at.
    #[inline]
    fn take(
        &self,
        cpu: usize,
        mark: u32,
        urgent: bool,
        now: impl FnOnce() -> Time,
    ) -> Option<(FolioId, Option<u32>)> {
        let spared_frames = mark.saturating_add(self.spared_pages) as usize;
        match self.free.are_adaptive() {
            true => self.free.take_adaptively(cpu, spared_frames, urgent, now()),
            false => self.free.take(cpu, if urgent { 0 } else { spared_frames }, urgent),
        }
    }

    /// Whether more pages are free than this mark asks for.
    fn has_above(&self, mark: u32) -> bool {
        self.free.zone_frames() > mark.saturating_add(self.spared_pages)
    }
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
        let Options { frames, pinned_frames, cpus, pcp_batch_frames, watermarks, pcp_sizes, .. } = *options;
        let zone = |frames: Range<u32>, watermarks: Watermarks, spared_pages, sizes: Option<PcpSizes>| {
            let free = FreeFrames::new(frames, pinned_frames, cpus, pcp_batch_frames);
            let high_pages = watermarks.high.saturating_add(spared_pages);
            let free = match sizes {
                Some(sizes) => free.with_adaptive_lists(sizes, cpus, high_pages),
                None => free,
            };
            ZoneFrames { free, watermarks, spared_pages }
        };
        let mut start = frames - options.lower_zones.iter().map(|zone| zone.pages).sum::<u32>();
        let highest = zone(0..start, watermarks, 0, pcp_sizes);
        let lower = options.lower_zones.iter().map(|lower| {
            let frames = start..start + lower.pages;
            start = frames.end;
            zone(frames, lower.watermarks, lower.spared_pages, lower.pcp_sizes)
        });
        Node {
            highest,
            lower: lower.collect(),
            retired: AtomicU32::new(0),
            retired_frames: Mutex::default(),
            retired_max: frames.saturating_sub(pinned_frames).min(frames / 2),
            pending: Pending::default(),
            writeback: AtomicBool::new(false),
            isolated: [AtomicU64::new(0), AtomicU64::new(0)],
            isolated_waiters: AtomicBool::new(false),
            throttled_waiters: AtomicBool::new(false),
            hopeless_failures: AtomicU32::new(0),
        }
    }

    fn zones(&self) -> impl Iterator<Item = &ZoneFrames> {
        std::iter::once(&self.highest).chain(&self.lower)
    }

    /// The sum of the high watermarks, each at least `least_pages`.
    pub(crate) fn high_pages(&self, least_pages: u64) -> u64 {
        self.zones().map(|zone| u64::from(zone.watermarks.high).max(least_pages)).sum()
    }

    /// Free frames that an urgent request can have: all but the reserves of lower zones.
    pub(crate) fn urgent_pages(&self) -> u32 {
        let reserve_pages = |zone: &ZoneFrames| zone.watermarks.min.saturating_add(zone.spared_pages);
        let lower = self.lower.iter();
        self.highest.free.all_frames()
            + lower.map(|zone| zone.free.all_frames().saturating_sub(reserve_pages(zone))).sum::<u32>()
    }

    /// Free frames without those near CPUs; watermarks are compared with these.
    pub(crate) fn free_pages(&self) -> u32 {
        self.zones().map(|zone| zone.free.zone_frames()).sum()
    }

    /// All free frames.
    pub(crate) fn unused_pages(&self) -> u32 {
        self.zones().map(|zone| zone.free.all_frames()).sum()
    }

    pub(crate) fn retired_pages(&self) -> u32 {
        self.retired.load(Relaxed)
    }

    /// Takes a frame for `cpu`. `urgent`: even below the min watermark, and another CPU's, as for a
    /// charge that has already reclaimed. `now` is asked for only where lists of CPUs adapt.
    pub(crate) fn allocate(&self, cpu: usize, urgent: bool, now: impl FnOnce() -> Time) -> Allocation {
        let Watermarks { min, low, .. } = self.highest.watermarks;
        if !self.lower.is_empty() {
            return self.allocate_in_zones(cpu, urgent, now());
        }
        match self.highest.take(cpu, min, urgent, now) {
            None => Allocation::BelowMin,
            Some((folio, Some(left))) if left < low => Allocation::Low(folio),
            Some((folio, _)) => Allocation::Frame(folio),
        }
    }

    /// As [`Self::allocate`], from the highest zone above its low watermark, else above its min
    /// watermark ([book: reclaim-loop#zones]).
    #[cold]
    fn allocate_in_zones(&self, cpu: usize, urgent: bool, now: Time) -> Allocation {
        let above = |mark: fn(Watermarks) -> u32| {
            self.zones().find_map(|zone| zone.take(cpu, mark(zone.watermarks), false, || now))
        };
        if let Some((folio, _)) = above(|marks| marks.low) {
            return Allocation::Frame(folio);
        }
        let or_urgent = || {
            if !urgent {
                return None;
            }
            self.zones().for_each(|zone| zone.free.call_back());
            above(|marks| marks.min).or_else(|| self.highest.take(cpu, 0, true, || now))
        };
        match above(|marks| marks.min).or_else(or_urgent) {
            Some((folio, _)) => Allocation::Low(folio),
            None => Allocation::BelowMin,
        }
    }

    /// Returns frames. `cpu`: the CPU that freed them, if known.
    pub(crate) fn release(&self, cpu: Option<usize>, frames: &[FolioId]) {
        if self.lower.is_empty() {
            return self.highest.free.give(cpu, frames);
        }
        let zone_of = |folio| self.zones().find(|zone| zone.free.has(folio));
        let are_of_one =
            |&one: &FolioId, &next: &FolioId| zone_of(one).is_some_and(|zone| zone.free.has(next));
        for frames in frames.chunk_by(are_of_one) {
            if let Some(zone) = zone_of(frames[0]) {
                zone.free.give(cpu, frames);
            }
        }
    }

    /// Returns all CPUs' free frames to the node, where they count. Lists that adapt return frames
    /// by their own rules.
    pub(crate) fn call_back_frames(&self) {
        self.zones().filter(|zone| !zone.free.are_adaptive()).for_each(|zone| zone.free.call_back());
    }

    /// Background reclaim wakes up or goes to sleep; CPUs' lists that adapt have less room while it
    /// is awake.
    pub(crate) fn set_reclaims(&self, reclaims: bool) {
        self.zones().for_each(|zone| zone.free.set_reclaims(reclaims));
    }

    /// Takes a frame, whose memory `give_back` returns to the system. `false`: all such frames are
    /// in use, or the node is below its min watermark without `urgent`.
    pub(crate) fn retire(&self, urgent: bool, give_back: impl FnOnce(FolioId)) -> bool {
        let mut retired = self.retired_frames.lock();
        if retired.len() >= self.retired_max as usize {
            return false;
        }
        let spared_frames = if urgent { 0 } else { self.highest.watermarks.min };
        let Some(frame) = self.highest.free.take_releasable(spared_frames as usize) else { return false };
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
        self.release(None, &[frame]);
        true
    }

    /// Whether background reclaim has reached its goal: a zone is above its high watermark.
    pub(crate) fn is_balanced(&self) -> bool {
        self.zones().any(|zone| zone.has_above(zone.watermarks.high))
    }

    /// Whether direct reclaim must wait for background reclaim, since less than half of the pages
    /// below the min watermarks are free. Only where lists of CPUs adapt. The caller waits if so.
    pub(crate) fn throttle(&self) -> bool {
        let waits = self.highest.free.are_adaptive() && self.is_exhausted();
        if waits {
            // If background reclaim frees enough before it sees this, the wait ends by its timeout.
            self.throttled_waiters.store(true, Relaxed);
        }
        waits
    }

    /// Whether threads wait that need not any longer, or with `anyway` must not.
    pub(crate) fn unthrottle(&self, anyway: bool) -> bool {
        self.throttled_waiters.load(Relaxed)
            && (anyway || !self.is_exhausted())
            && self.throttled_waiters.swap(false, Relaxed)
    }

    fn is_exhausted(&self) -> bool {
        let reserve_pages: u32 = self.zones().map(|zone| zone.watermarks.min).sum();
        self.free_pages() <= reserve_pages / 2 && !self.is_hopeless()
    }

    /// Whether every zone has `slack_pages` more than its high watermark.
    pub(crate) fn has_plenty(&self, slack_pages: u32) -> bool {
        self.zones().all(|zone| zone.has_above(zone.watermarks.high.saturating_add(slack_pages)))
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Zone;

    /// Frames 0 to 69 and, in the lower zone, 70 to 99.
    fn two_zones() -> Node {
        let mut options = Options::new(100);
        options.watermarks = Watermarks { min: 5, low: 10, high: 20 };
        let watermarks = Watermarks { min: 2, low: 4, high: 6 };
        options.lower_zones = vec![Zone { pages: 30, watermarks, spared_pages: 8, pcp_sizes: None }];
        Node::new(&options)
    }

    /// The zones of the frames that allocations get, and whether they are `Low`, in turns.
    fn allocations(node: &Node, urgent: bool) -> Vec<(char, bool, usize)> {
        let next = || match node.allocate(0, urgent, Time::default) {
            Allocation::Frame(folio) => Some((folio, false)),
            Allocation::Low(folio) => Some((folio, true)),
            Allocation::BelowMin => None,
        };
        let mut turns: Vec<(char, bool, usize)> = Vec::new();
        for (folio, low) in std::iter::from_fn(next) {
            let zone = if folio.0 < 70 { 'h' } else { 'l' };
            match turns.last_mut() {
                Some((last, is_low, count)) if (*last, *is_low) == (zone, low) => *count += 1,
                _ => turns.push((zone, low, 1)),
            }
        }
        turns
    }

    /// [book: reclaim-loop#zones]: "The highest zone above its low watermark serves a request, else
    /// the highest above its min watermark. In a lower zone, the reserve comes on top of each
    /// mark."
    #[test]
    fn zones_serve_from_the_highest_down() {
        let node = two_zones();
        let expected = [('h', false, 60), ('l', false, 18), ('h', true, 5), ('l', true, 2)];
        assert_eq!(allocations(&node, false), expected);
        assert_eq!((node.free_pages(), node.urgent_pages()), (15, 5));
        assert_eq!(allocations(&node, true), [('h', true, 5)], "the reserve is for other requests");
        assert_eq!((node.free_pages(), node.urgent_pages()), (10, 0));
        node.release(Some(0), &[FolioId(99), FolioId(3), FolioId(98)]);
        assert_eq!(allocations(&node, true), [('l', true, 2), ('h', true, 1)], "each is back in its zone");
    }

    /// [book: reclaim-loop#zones]: "Background reclaim ends when one zone is above its high
    /// watermark. A multi-gen pass ends early only when all zones are."
    #[test]
    fn one_zone_balances_the_node_and_all_are_plenty() {
        let node = two_zones();
        assert!(node.has_plenty(15) && !node.has_plenty(16), "14 and 50 pages above the high marks");
        allocations(&node, false);
        assert!(!node.is_balanced());
        node.release(None, &[FolioId(70), FolioId(71), FolioId(72), FolioId(73)]);
        assert!(!node.is_balanced(), "14 free pages: 6 and the reserve of 8");
        node.release(None, &[FolioId(74)]);
        assert!(node.is_balanced() && !node.has_plenty(0));
        assert_eq!((node.high_pages(0), node.high_pages(16)), (26, 36));
    }

    /// [book: writeback#throttling]: "free pages … below half of the sum of `min`".
    #[test]
    fn a_task_waits_below_half_of_the_min_watermarks() {
        let mut options = Options::new(16);
        options.watermarks = Watermarks { min: 8, low: 10, high: 12 };
        let throttled = |options: &Options, left: u32| {
            let node = Node::new(options);
            while node.free_pages() > left {
                assert_ne!(node.allocate(0, true, Time::default), Allocation::BelowMin);
            }
            (node.throttle(), node.unthrottle(false), node.unthrottle(true), node.unthrottle(true))
        };
        assert_eq!(throttled(&options, 4), (false, false, false, false), "only with the kernel's lists");
        options.pcp_sizes = Some(crate::PcpSizes { batch_pages: 1, high_min_pages: 4, high_max_pages: 4 });
        assert_eq!(throttled(&options, 5), (false, false, false, false));
        assert_eq!(throttled(&options, 4), (true, false, true, false), "woken once");
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
