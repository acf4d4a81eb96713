//! Free frames of a zone: those in common, and a few per CPU.
//!
//! Frames near a CPU keep cache lines local: a frame brings along its flags, page and links, and
//! with eight flags per line those of its neighbours. A CPU keeps the frames that it frees and
//! takes them again. It takes a batch from the zone at once and returns two when it has four. An
//! effort frees up to two at once, and with less room they would go back and forth through the zone
//! (two threads: 3.9 M pages per second instead of 4.3 M). Without per-CPU frames, two
//! threads reclaim less together than one alone (docs/experiments/lru-lock.md).
//!
//! Watermarks neither count a CPU's frames as free nor hold them back, as with the kernel's per-CPU
//! pages. All of them return to the zone when background reclaim wakes up, so that none lie idle,
//! and before an allocation fails. An allocation that can still reclaim does so first: threads that
//! run out of frames at once would take those that others have just freed.
//!
//! The kernel's own rules are at hand for comparison ([`crate::pcp`]): there the watermarks come
//! first, whatever a CPU has.
//!
//! # Locking
//!
//! A CPU's frames have a lock, taken before the zone's; both are leaves otherwise. The state of a
//! list that adapts has one between them. Counts are atomic, and written under the lock.

use crate::Time;
use crate::folio::FolioId;
use crate::pcp::{Pcp, PcpSizes, ZoneState};
use crate::sync::{AtomicBool, AtomicU32, Lock, Mutex, MutexGuard, NumberStack, Ordering::Relaxed};
use std::collections::VecDeque;
use std::ops::Range;

/// Frames that a CPU of a large node takes at once: as many as a batch of reclaim frees.
pub const PCP_BATCH_FRAMES: usize = 32;

#[derive(Debug)]
pub(crate) struct FreeFrames {
    /// All frames, free and used, by number.
    frames: Range<u32>,
    zone: Mutex<CommonFrames>,
    zone_count: AtomicU32,
    /// Frames below this number are pinned by the kernel and can never be given back to the system.
    pinned_frames: u32,
    cpus: Box<[CpuFrames]>,
    batch_frames: usize,
    adaptive: Option<Adaptive>,
}

/// The kernel's lists, which adapt ([`crate::pcp`]).
#[derive(Debug)]
struct Adaptive {
    /// One per CPU; taken with the lock of its frames held.
    lists: Box<[Mutex<Pcp>]>,
    high_watermark: u32,
    below_high: AtomicBool,
    reclaims: AtomicBool,
}

impl Adaptive {
    fn zone_state(&self) -> ZoneState {
        ZoneState { below_high: self.below_high.load(Relaxed), reclaims: self.reclaims.load(Relaxed) }
    }
}

/// Free frames that no CPU has. Lists are last in, first out: a recently used frame is still in
/// some CPU's caches.
#[derive(Debug)]
struct CommonFrames {
    pinned: Vec<u32>,
    /// Used only when no pinned frame is left, so that these can pay for metadata. Frames are
    /// retired from the front, where those are that were used the longest ago or never: so holes
    /// lie together and not between pages in use.
    releasable: VecDeque<u32>,
}

/// Free frames near a CPU, last in, first out.
#[derive(Debug)]
#[repr(align(128))]
struct CpuFrames {
    lock: Lock,
    frames: NumberStack,
    count: AtomicU32,
}

impl CpuFrames {
    fn new(most_frames: usize) -> CpuFrames {
        CpuFrames { lock: Lock::default(), frames: NumberStack::new(most_frames), count: AtomicU32::new(0) }
    }

    /// Notes how many there are, with the lock held.
    fn note_count(&self) {
        self.count.store(self.frames.len() as u32, Relaxed);
    }
}

impl CommonFrames {
    fn len(&self) -> usize {
        self.pinned.len() + self.releasable.len()
    }

    fn pop(&mut self) -> Option<u32> {
        self.pinned.pop().or_else(|| self.releasable.pop_back())
    }
}

impl FreeFrames {
    /// All frames free. `batch_frames` of 1: CPUs keep no frames.
    pub(crate) fn new(
        frames: Range<u32>,
        pinned_frames: u32,
        cpus: usize,
        batch_frames: usize,
    ) -> FreeFrames {
        let Range { start, end } = frames;
        let pinned_frames = pinned_frames.clamp(start, end);
        let zone = CommonFrames {
            pinned: (start..pinned_frames).rev().collect(),
            releasable: (pinned_frames..end).rev().collect(),
        };
        let cpus = if batch_frames > 1 { cpus } else { 0 };
        FreeFrames {
            frames,
            zone: Mutex::new(zone),
            zone_count: AtomicU32::new(end - start),
            pinned_frames,
            // With four batches, two go back to the zone.
            cpus: (0..cpus).map(|_| CpuFrames::new(4 * batch_frames)).collect(),
            batch_frames,
            adaptive: None,
        }
    }

    /// Whether a frame is one of these.
    pub(crate) fn has(&self, folio: FolioId) -> bool {
        self.frames.contains(&folio.0)
    }

    /// With the kernel's lists for `cpus`.
    pub(crate) fn with_adaptive_lists(self, sizes: PcpSizes, cpus: usize, high_watermark: u32) -> FreeFrames {
        let most_frames = sizes.most_pages().min(self.frames.len());
        FreeFrames {
            cpus: (0..cpus).map(|_| CpuFrames::new(most_frames)).collect(),
            adaptive: Some(Adaptive {
                lists: (0..cpus).map(|_| Mutex::new(Pcp::new(sizes))).collect(),
                high_watermark,
                below_high: AtomicBool::new(false),
                reclaims: AtomicBool::new(false),
            }),
            ..self
        }
    }

    /// Whether CPUs have the kernel's lists.
    pub(crate) fn are_adaptive(&self) -> bool {
        self.adaptive.is_some()
    }

    /// Background reclaim wakes up or goes to sleep.
    pub(crate) fn set_reclaims(&self, reclaims: bool) {
        if let Some(adaptive) = &self.adaptive {
            adaptive.reclaims.store(reclaims, Relaxed);
        }
    }

    /// Free frames that no CPU has.
    pub(crate) fn zone_frames(&self) -> u32 {
        self.zone_count.load(Relaxed)
    }

    /// Free frames of the zone with those near CPUs, never more than all frames. Exact while no
    /// thread takes or frees one.
    pub(crate) fn all_frames(&self) -> u32 {
        let near_cpus: u32 = self.cpus.iter().map(|cpu| cpu.count.load(Relaxed)).sum();
        // A frame on its way from one to the other may be seen in both.
        (self.zone_frames() + near_cpus).min(self.frames.len() as u32)
    }

    /// As [`Self::take`], by the kernel's rules: watermarks come before a CPU's own frames, and an
    /// urgent request below them calls all frames back first. Returns the zone's frames before the
    /// refill.
    pub(crate) fn take_adaptively(
        &self,
        cpu: usize,
        spared_frames: usize,
        urgent: bool,
        now: Time,
    ) -> Option<(FolioId, Option<u32>)> {
        let adaptive = self.adaptive.as_ref()?;
        let before = self.zone_frames();
        if before <= adaptive.high_watermark {
            adaptive.below_high.store(true, Relaxed);
        }
        if before as usize <= spared_frames {
            if !urgent {
                return None;
            }
            self.call_back();
        }
        let near = &self.cpus[cpu];
        let _held = near.lock.lock();
        let mut list = adaptive.lists[cpu].lock();
        let count = |frames: &NumberStack| frames.len() as u32;
        let drained = list.decay(count(&near.frames), now);
        self.return_oldest(near, drained);
        let refill = list.take(count(&near.frames), adaptive.zone_state());
        if refill > 0 {
            let mut zone = self.zone.lock();
            let taken: Vec<u32> = (0..refill).map_while(|_| zone.pop()).collect();
            self.count(&zone);
            taken.iter().rev().for_each(|&frame| near.frames.push(frame));
        }
        let frame = near.frames.pop();
        near.note_count();
        frame.map(|frame| (FolioId(frame), Some(before.saturating_sub(1))))
    }

    /// Returns the frames of a CPU that were freed first.
    fn return_oldest(&self, near: &CpuFrames, frames: u32) {
        if frames > 0 {
            let all: Vec<u32> = near.frames.iter().collect();
            let (surplus, kept) = all.split_at(all.len().min(frames as usize));
            self.give_zone(surplus.iter().copied());
            near.frames.clear();
            kept.iter().for_each(|&frame| near.frames.push(frame));
        }
    }

    fn give_adaptively(&self, adaptive: &Adaptive, cpu: usize, freed: &[FolioId]) {
        let near = &self.cpus[cpu];
        let _held = near.lock.lock();
        let mut list = adaptive.lists[cpu].lock();
        for folio in freed {
            near.frames.push(folio.0);
            let surplus = list.give(near.frames.len() as u32, adaptive.zone_state());
            self.return_oldest(near, surplus);
            if surplus > 0 && self.zone_frames() > adaptive.high_watermark {
                adaptive.below_high.store(false, Relaxed);
            }
        }
        near.note_count();
    }

    /// Takes a frame for `cpu`: one of its own, else one of the zone's if that keeps at least
    /// `spared_frames`, else, if it is urgent, one of another CPU's. Also returns the zone's
    /// remaining free frames, if the zone was asked.
    #[inline]
    pub(crate) fn take(
        &self,
        cpu: usize,
        spared_frames: usize,
        urgent: bool,
    ) -> Option<(FolioId, Option<u32>)> {
        let Some(near) = self.cpus.get(cpu) else {
            let mut zone = self.zone.lock();
            let frame = (zone.len() > spared_frames).then(|| zone.pop()).flatten()?;
            return Some((FolioId(frame), Some(self.count(&zone))));
        };
        let held = near.lock.lock();
        if let Some(frame) = near.frames.pop() {
            near.note_count();
            return Some((FolioId(frame), None));
        }
        let mut zone = self.zone.lock();
        if zone.len() <= spared_frames {
            drop((zone, held));
            return if urgent { self.take_from_others(spared_frames) } else { None };
        }
        let batch = self.batch_frames.min(zone.len() - spared_frames);
        let taken: Vec<u32> = (0..batch).map_while(|_| zone.pop()).collect();
        // In the order of their numbers, as without batches.
        taken.iter().rev().for_each(|&frame| near.frames.push(frame));
        let frame = near.frames.pop()?;
        near.note_count();
        Some((FolioId(frame), Some(self.count(&zone))))
    }

    /// As [`Self::take`], from the frames of other CPUs.
    #[cold]
    fn take_from_others(&self, spared_frames: usize) -> Option<(FolioId, Option<u32>)> {
        self.call_back();
        let mut zone = self.zone.lock();
        let frame = (zone.len() > spared_frames).then(|| zone.pop()).flatten()?;
        Some((FolioId(frame), Some(self.count(&zone))))
    }

    /// Takes a frame for good, to give its memory back to the system, if the zone keeps at least
    /// `spared_frames`.
    pub(crate) fn take_releasable(&self, spared_frames: usize) -> Option<FolioId> {
        let take = || {
            let mut zone = self.zone.lock();
            let frame = (zone.len() > spared_frames).then(|| zone.releasable.pop_front()).flatten()?;
            self.count(&zone);
            Some(FolioId(frame))
        };
        take().or_else(|| {
            self.call_back();
            take()
        })
    }

    /// Returns frames. `cpu`: the CPU that is likely to need them next, if known.
    pub(crate) fn give(&self, cpu: Option<usize>, freed: &[FolioId]) {
        let Some(near) = cpu.and_then(|cpu| self.cpus.get(cpu)) else {
            self.give_zone(freed.iter().map(|folio| folio.0));
            return;
        };
        if let (Some(adaptive), Some(cpu)) = (&self.adaptive, cpu) {
            return self.give_adaptively(adaptive, cpu, freed);
        }
        let _held = near.lock.lock();
        let freed = freed.iter().map(|folio| folio.0);
        if near.frames.len() + freed.len() < 4 * self.batch_frames {
            freed.for_each(|frame| near.frames.push(frame));
        } else {
            // The zone gets the frames that were freed first.
            let all: Vec<u32> = near.frames.iter().chain(freed).collect();
            let (surplus, kept) = all.split_at(all.len() - 2 * self.batch_frames);
            self.give_zone(surplus.iter().copied());
            near.frames.clear();
            kept.iter().for_each(|&frame| near.frames.push(frame));
        }
        near.note_count();
    }

    fn give_zone(&self, freed: impl Iterator<Item = u32>) {
        let mut zone = self.zone.lock();
        for frame in freed {
            if frame < self.pinned_frames {
                zone.pinned.push(frame);
            } else {
                zone.releasable.push_back(frame);
            }
        }
        self.count(&zone);
    }

    /// Returns all CPUs' frames to the zone.
    pub(crate) fn call_back(&self) {
        for near in &self.cpus {
            if near.count.load(Relaxed) == 0 {
                continue;
            }
            let _held = near.lock.lock();
            self.give_zone(near.frames.iter());
            near.frames.clear();
            near.note_count();
        }
    }

    fn count(&self, zone: &MutexGuard<'_, CommonFrames>) -> u32 {
        self.zone_count.store(zone.len() as u32, Relaxed);
        zone.len() as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn ids(frames: impl IntoIterator<Item = u32>) -> Vec<FolioId> {
        frames.into_iter().map(FolioId).collect()
    }

    fn take(free: &FreeFrames, cpu: usize, spared_frames: usize) -> Option<u32> {
        free.take(cpu, spared_frames, true).map(|(folio, _)| folio.0)
    }

    #[test]
    fn a_cpu_takes_a_batch_and_reuses_its_last_freed_frame() {
        let free = FreeFrames::new(0..16, 0, 2, 4);
        assert_eq!(free.take(0, 0, true), Some((FolioId(0), Some(12))));
        assert_eq!(free.take(0, 0, true), Some((FolioId(1), None)), "from those that it has");
        assert_eq!(free.take(1, 0, true), Some((FolioId(4), Some(8))), "the other has its own");
        assert_eq!((free.zone_frames(), free.all_frames()), (8, 13));
        free.give(Some(0), &ids([0, 1]));
        assert_eq!((take(&free, 0, 0), take(&free, 0, 0)), (Some(1), Some(0)));
    }

    #[test]
    fn four_batches_are_too_many() {
        let free = FreeFrames::new(0..20, 0, 1, 4);
        let taken: Vec<_> = (0..16).map(|_| take(&free, 0, 0).unwrap()).collect();
        assert_eq!((free.zone_frames(), free.all_frames()), (4, 4));
        free.give(Some(0), &ids(taken[..15].iter().copied()));
        assert_eq!((free.zone_frames(), free.all_frames()), (4, 19));
        free.give(Some(0), &ids([taken[15]]));
        assert_eq!((free.zone_frames(), free.all_frames()), (12, 20), "two are left");
        assert_eq!(take(&free, 0, 0), Some(taken[15]), "of those freed last");
    }

    #[test]
    fn frames_of_other_cpus_are_called_back_before_a_take_fails() {
        let free = FreeFrames::new(0..8, 0, 2, 4);
        assert_eq!((take(&free, 0, 0), take(&free, 1, 0)), (Some(0), Some(4)));
        assert_eq!((free.zone_frames(), free.all_frames()), (0, 6));
        let own: Vec<_> = std::iter::from_fn(|| free.take(0, 0, false)).collect();
        assert_eq!((own.len(), free.all_frames()), (3, 3), "not those of the other");
        let rest: Vec<_> = std::iter::from_fn(|| take(&free, 0, 0)).collect();
        assert_eq!((rest.len(), free.all_frames()), (3, 0));
        free.give(None, &ids([5]));
        assert_eq!((free.zone_frames(), take(&free, 1, 0)), (1, Some(5)));
    }

    #[test]
    fn the_node_keeps_its_spared_frames() {
        let free = FreeFrames::new(0..8, 0, 1, 4);
        assert_eq!(free.take(0, 6, true), Some((FolioId(0), Some(6))), "two, not four");
        assert_eq!(take(&free, 0, 6), Some(1));
        assert_eq!(take(&free, 0, 6), None);
        assert_eq!(free.take_releasable(6), None);
        assert_eq!((take(&free, 0, 0), free.zone_frames()), (Some(2), 2));
    }

    /// The kernel's lists: an allocation fails below the watermark though its CPU has frames, and
    /// an urgent one calls back all frames first.
    #[test]
    fn watermarks_come_before_adaptive_lists() {
        let sizes = PcpSizes { batch_pages: 4, high_min_pages: 16, high_max_pages: 16 };
        let free = FreeFrames::new(0..20, 0, 2, 1).with_adaptive_lists(sizes, 2, 12);
        let take = |urgent| free.take_adaptively(0, 8, urgent, Time::ZERO);
        let refilled: Vec<_> = (0..5).map(|_| take(false).unwrap().1.unwrap()).collect();
        assert_eq!(refilled, [19, 15, 15, 15, 15], "what was free before");
        assert_eq!((free.zone_frames(), free.all_frames()), (8, 15), "4, then 8");
        assert_eq!(take(false), None, "with seven of its own");
        assert_eq!(take(true).map(|(_, left)| left), Some(Some(7)));
        assert_eq!((free.zone_frames(), free.all_frames()), (3, 14), "called back, and refilled");
        free.give(Some(1), &ids([0, 1]));
        assert_eq!((free.zone_frames(), free.all_frames()), (3, 16), "near the CPU that freed them");
    }

    #[test]
    fn pinned_frames_never_pay_for_metadata() {
        for batch_frames in [1, 4] {
            let free = FreeFrames::new(0..6, 3, 1, batch_frames);
            let taken: Vec<_> = (0..5).map(|_| take(&free, 0, 0).unwrap()).collect();
            assert_eq!(taken[..3], [0, 1, 2]);
            free.give(Some(0), &ids(taken));
            let paid: Vec<_> = std::iter::from_fn(|| free.take_releasable(0)).map(|folio| folio.0).collect();
            assert_eq!(paid.len(), 3, "even those near a CPU");
            assert!(paid.iter().all(|&frame| frame >= 3), "{paid:?}");
            assert_eq!(free.all_frames(), 3);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Frames on their way between the zone and a CPU are not counted twice: more free frames than
    /// there are would make the used ones negative.
    #[test]
    fn no_more_frames_are_free_than_there_are() {
        loom::model(|| {
            let frames = Arc::new(FreeFrames::new(0..2, 0, 1, 2));
            let other = {
                let frames = frames.clone();
                thread::spawn(move || {
                    let (folio, _) = frames.take(0, 0, false).unwrap();
                    frames.give(Some(0), &[folio]);
                    frames.call_back();
                })
            };
            assert!(frames.all_frames() <= 2);
            other.join().unwrap();
            assert_eq!(frames.all_frames(), 2);
        });
    }
}
