//! Leaves: 64 slots each, from one pool, so that their memory is bounded and counted.
//!
//! A leaf belongs to 64 consecutive pages of one mapping, and exists only while one of them is
//! cached or has a shadow. Leaves have numbers and are reused. Their segments stay where they are;
//! a segment without leaves in use may return its memory, and then reads as zero. So a lock-free
//! reader that still holds the number of a freed leaf reads the slots of another mapping, and
//! notices because the directory no longer names that leaf (see [`super::Mapping::find`]).
//!
//! # Locking
//!
//! Counts of a leaf change under the lock of its part of the mapping; the free list has a lock of
//! its own. Reservations are atomic counts: every charged page needs one, and most are given back
//! unused, so each CPU keeps some and takes them from the pool in batches.

use super::directory::DirectoryPool;
use super::layout::{IN_RANGE, LEAF_SLOTS};
use super::numbers::{FreeNumbers, return_zeros};
use super::slot::AtomicSlot;
use crate::host::Host;
use crate::memcg::MemcgId;
use crate::sync::{
    AtomicBool, AtomicU32, AtomicU64, Held, Lock, Mutex, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};
use std::sync::OnceLock;

/// Leaves allocated together: 16 KiB, so that a segment costs 4 or 5 frames. A cache of 1 MiB has
/// only 23 frames that can pay.
#[cfg(not(loom))]
const SEGMENT_LEAVES: usize = 32;
/// Few, since loom creates every word anew for every interleaving.
#[cfg(loom)]
const SEGMENT_LEAVES: usize = 2;

/// Number of a leaf in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafId(pub(crate) u32);

impl LeafId {
    /// The leaf that a directory entry names.
    #[inline]
    pub(super) fn of_entry(entry: u32) -> Option<LeafId> {
        (entry & !IN_RANGE).checked_sub(1).map(LeafId)
    }
}

/// A leaf: 64 slots and their counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf<'a> {
    pub(crate) slots: &'a [AtomicSlot; LEAF_SLOTS],
    counts: &'a AtomicU64,
}

/// Leaves allocated together. Their counts lie close together, apart from the slots: every
/// insertion and removal changes one, so they stay in the CPU's caches.
#[derive(Debug)]
struct Segment {
    slots: [Slots; SEGMENT_LEAVES],
    /// Present folios (low 7 bits), shadows (next 7), the memcg that pays for a shadow-only leaf
    /// (next 20), and above them a stamp that changes whenever the leaf becomes shadow-only or
    /// stops being so.
    counts: [AtomicU64; SEGMENT_LEAVES],
    /// The number of the memcg that pays for each leaf, if memcgs do.
    payers: [AtomicU32; SEGMENT_LEAVES],
}

/// The slots of one leaf, aligned to cache lines.
#[derive(Debug)]
#[repr(align(64))]
struct Slots([AtomicSlot; LEAF_SLOTS]);

impl Slots {
    fn new() -> Slots {
        Slots(std::array::from_fn(|_| AtomicSlot::new()))
    }
}

/// Bytes of a leaf with its counts.
pub(crate) const LEAF_BYTES: u64 = (size_of::<Segment>() / SEGMENT_LEAVES) as u64;

/// The counts of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) folios: u8,
    pub(crate) shadows: u8,
    /// The memcg that lists the leaf while it is shadow-only.
    pub(crate) owner: MemcgId,
    pub(crate) stamp: u32,
}

/// Bits of a count of up to 64.
const COUNT_BITS: u32 = 7;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
const STAMP_SHIFT: u32 = 2 * COUNT_BITS + MemcgId::BITS;

impl Counts {
    /// Changes the stamp: the leaf becomes shadow-only or stops being so.
    pub(crate) fn restamp(&mut self) {
        self.stamp = self.stamp.wrapping_add(1) & (u32::MAX >> (STAMP_SHIFT - u32::BITS));
    }

    /// Whether the leaf holds shadows and no folio.
    pub(crate) fn only_shadows(self) -> bool {
        self.folios == 0 && self.shadows > 0
    }
}

impl Segment {
    fn new() -> Segment {
        Segment {
            slots: std::array::from_fn(|_| Slots::new()),
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            payers: std::array::from_fn(|_| AtomicU32::new(MemcgId::NONE)),
        }
    }
}

impl Leaf<'_> {
    pub(crate) fn counts(&self) -> Counts {
        let word = self.counts.load(Relaxed);
        Counts {
            folios: (word & COUNT_MASK) as u8,
            shadows: (word >> COUNT_BITS & COUNT_MASK) as u8,
            owner: MemcgId((word >> (2 * COUNT_BITS)) as u32 & ((1 << MemcgId::BITS) - 1)),
            stamp: (word >> STAMP_SHIFT) as u32,
        }
    }

    /// The caller holds the lock of its part.
    pub(crate) fn set_counts(&self, counts: Counts) {
        let word = u64::from(counts.stamp) << STAMP_SHIFT
            | u64::from(counts.owner.0) << (2 * COUNT_BITS)
            | u64::from(counts.shadows) << COUNT_BITS
            | u64::from(counts.folios);
        self.counts.store(word, Relaxed);
    }
}

/// Takes up to `wanted` off a count. Returns the number taken.
fn take_up_to(count: &AtomicU32, wanted: u32) -> u32 {
    let before = count.fetch_update(Relaxed, Relaxed, |left| (left > 0).then(|| left.saturating_sub(wanted)));
    before.map_or(0, |left| left.min(wanted))
}

/// All leaves of all mappings.
#[derive(Debug)]
pub(crate) struct LeafPool {
    /// The first leaves, enough if cached pages are neighbours. Allocated at the start, since a hit
    /// reaches them in fewer steps.
    first_slots: Box<[Slots]>,
    first_counts: Box<[AtomicU64]>,
    first_payers: Box<[AtomicU32]>,
    segments: Box<[OnceLock<Box<Segment>>]>,
    /// Held while paying for a segment, so that two threads do not add two for the price of one.
    growing: Lock,
    free: Mutex<FreeNumbers>,
    /// Leaves allocated, including resting ones.
    allocated: AtomicU32,
    /// Bytes that resting leaves returned.
    resting_bytes: AtomicU64,
    in_use: AtomicU32,
    /// Free leaves without a reservation, except those of CPUs.
    unreserved: AtomicU32,
    /// Free leaves without a reservation, near each CPU.
    cpus: Box<[CpuLeaves]>,
    batch_leaves: u32,
    /// Bytes of open mappings besides leaves, counted here because they are paid for together.
    other_bytes: AtomicU64,
    /// Whether memcgs pay for leaves and directories.
    pub(crate) is_charged: bool,
    /// Bytes freed that are not uncharged yet, with the memcgs that pay for them.
    freed: Mutex<Vec<(MemcgId, u64)>>,
    has_freed: AtomicBool,
    pub(crate) directories: DirectoryPool,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct CpuLeaves(AtomicU32);

impl LeafPool {
    /// A pool of `first` leaves that can grow to at least `leaves`, and of `directories`
    /// directories. CPUs take `batch_leaves` leaves at a time.
    ///
    /// [`Self::charged`] makes memcgs pay.
    pub(crate) fn new(first: u32, leaves: u32, directories: u32, cpus: usize, batch_leaves: u32) -> LeafPool {
        let cpus = if batch_leaves > 1 { cpus } else { 0 };
        // Directory entries have room for this many: a TiB of leaves.
        let leaves = leaves.min(IN_RANGE / 2);
        let segments = (leaves.saturating_sub(first) as usize).div_ceil(SEGMENT_LEAVES).max(1);
        LeafPool {
            first_slots: (0..first).map(|_| Slots::new()).collect(),
            first_counts: (0..first).map(|_| AtomicU64::new(0)).collect(),
            first_payers: (0..first).map(|_| AtomicU32::new(MemcgId::NONE)).collect(),
            segments: (0..segments).map(|_| OnceLock::new()).collect(),
            growing: Lock::default(),
            free: Mutex::new(FreeNumbers::new(first, SEGMENT_LEAVES as u32)),
            allocated: AtomicU32::new(first),
            resting_bytes: AtomicU64::new(0),
            in_use: AtomicU32::new(0),
            unreserved: AtomicU32::new(first),
            cpus: (0..cpus).map(|_| CpuLeaves::default()).collect(),
            batch_leaves,
            other_bytes: AtomicU64::new(0),
            is_charged: false,
            freed: Mutex::default(),
            has_freed: AtomicBool::new(false),
            directories: DirectoryPool::new(directories),
        }
    }

    /// Makes memcgs pay for leaves and directories, or not.
    pub(crate) fn charged(self, is_charged: bool) -> LeafPool {
        LeafPool { is_charged, ..self }
    }

    /// Notes freed bytes that memcgs pay for, for [`Self::next_freed`].
    pub(super) fn note_freed(&self, payer: u32, bytes: u64) {
        let mut freed = self.freed.lock();
        match freed.last_mut() {
            Some((last, sum)) if last.0 == payer => *sum += bytes,
            _ => freed.push((MemcgId(payer), bytes)),
        }
        self.has_freed.store(true, Relaxed);
    }

    /// Takes bytes that were freed and are still charged to a memcg.
    pub(crate) fn next_freed(&self) -> Option<(MemcgId, u64)> {
        if !self.has_freed.load(Relaxed) {
            return None;
        }
        let mut freed = self.freed.lock();
        let next = freed.pop();
        self.has_freed.store(!freed.is_empty(), Relaxed);
        next
    }

    /// What [`Self::next_freed`] has still to return, for validation.
    pub(crate) fn freed_bytes(&self) -> Vec<(MemcgId, u64)> {
        self.freed.lock().clone()
    }

    /// Bytes that growing takes.
    pub(crate) fn growth_bytes(&self) -> u64 {
        self.free.lock().waking_bytes().unwrap_or(size_of::<Segment>() as u64)
    }

    /// Bytes of all leaves and directories, used and free, without resting ones; and of hosts'
    /// data.
    pub(crate) fn bytes(&self) -> u64 {
        (u64::from(self.allocated.load(Relaxed)) * LEAF_BYTES + self.other_bytes.load(Relaxed))
            .saturating_sub(self.resting_bytes.load(Relaxed))
            + self.directories.bytes()
    }

    pub(crate) fn count_bytes(&self, bytes: u64) {
        self.other_bytes.fetch_add(bytes, Relaxed);
    }

    /// Subtracts the bytes of a closed mapping.
    pub(crate) fn forget_bytes(&self, bytes: u64) {
        self.other_bytes.fetch_sub(bytes, Relaxed);
    }

    pub(crate) fn in_use(&self) -> u32 {
        self.in_use.load(Relaxed)
    }

    /// The lock for paying for a segment and adding it. Taken before all other locks except hosts'.
    pub(crate) fn growing(&self) -> Held<'_> {
        self.growing.lock()
    }

    /// Whether [`Self::reserve`] would succeed.
    pub(crate) fn has_unreserved(&self) -> bool {
        self.unreserved.load(Relaxed) > 0 || self.cpus.iter().any(|cpu| cpu.0.load(Relaxed) > 0)
    }

    /// Whether the pool can grow, or some leaves rest.
    pub(crate) fn can_grow(&self) -> bool {
        (self.allocated.load(Acquire) as usize)
            < self.first_slots.len() + self.segments.len() * SEGMENT_LEAVES
            || self.resting_bytes.load(Relaxed) > 0
    }

    /// Wakes a segment, or adds one. `false`: the pool has its maximum size.
    pub(crate) fn grow(&self) -> bool {
        let mut free = self.free.lock();
        if let Some(bytes) = free.wake() {
            self.resting_bytes.fetch_sub(bytes, Relaxed);
        } else {
            let Some(segment) = self.segments.get(free.segments() as usize) else { return false };
            segment.get_or_init(|| Box::new(Segment::new()));
            free.add_segment();
            self.allocated.fetch_add(SEGMENT_LEAVES as u32, Release);
        }
        self.unreserved.fetch_add(SEGMENT_LEAVES as u32, Relaxed);
        true
    }

    /// Returns the memory of free leaves and directories to the system.
    pub(crate) fn rest(&self, host: &impl Host) {
        self.directories.rest(host);
        let mut free = self.free.lock();
        let rested = free.rest_unused(|number| {
            let segment = self.segments[number as usize].get()?;
            // They no longer have reservations.
            let withdrawn = take_up_to(&self.unreserved, SEGMENT_LEAVES as u32);
            let is_whole = withdrawn == SEGMENT_LEAVES as u32;
            let bytes = is_whole.then(|| return_zeros(host, &segment.slots)).flatten();
            if bytes.is_none() {
                self.unreserved.fetch_add(withdrawn, Relaxed);
            }
            bytes
        });
        self.resting_bytes.fetch_add(rested, Relaxed);
    }

    /// Reserves a leaf, so that the next `take` succeeds. `false`: no leaf is free.
    pub(crate) fn reserve(&self, cpu: usize) -> bool {
        let Some(near) = self.cpus.get(cpu) else { return take_up_to(&self.unreserved, 1) > 0 };
        if take_up_to(&near.0, 1) > 0 {
            return true;
        }
        let mut taken = take_up_to(&self.unreserved, self.batch_leaves);
        if taken == 0 {
            let called_back = self.cpus.iter().map(|cpu| cpu.0.swap(0, Relaxed)).sum();
            self.unreserved.fetch_add(called_back, Relaxed);
            taken = take_up_to(&self.unreserved, 1);
        }
        if taken > 1 {
            near.0.fetch_add(taken - 1, Relaxed);
        }
        taken > 0
    }

    /// Gives back an unused reservation. `cpu`: the CPU that made it, if known.
    pub(crate) fn unreserve(&self, cpu: Option<usize>) {
        let Some(near) = cpu.and_then(|cpu| self.cpus.get(cpu)) else {
            self.unreserved.fetch_add(1, Relaxed);
            return;
        };
        if near.0.fetch_add(1, Relaxed) + 1 >= 2 * self.batch_leaves {
            let surplus = take_up_to(&near.0, self.batch_leaves);
            self.unreserved.fetch_add(surplus, Relaxed);
        }
    }

    /// Takes a leaf with empty slots; uses up the caller's reservation.
    pub(crate) fn take(&self) -> LeafId {
        let leaf = self.free.lock().take().expect("a reservation stands for a free leaf");
        self.in_use.fetch_add(1, Relaxed);
        LeafId(leaf)
    }

    /// The number of the memcg that pays for a leaf. Changes under the lock of its part.
    pub(super) fn payer(&self, id: LeafId) -> &AtomicU32 {
        self.first_payers.get(id.0 as usize).unwrap_or_else(|| {
            let (segment, at) = self.later(id);
            &segment.payers[at]
        })
    }

    /// Returns a leaf with empty slots.
    pub(crate) fn give_back(&self, id: LeafId) {
        let leaf = self.get(id);
        debug_assert!(leaf.slots.iter().all(AtomicSlot::is_empty), "a leaf was freed with pages in it");
        // The stamp keeps growing, so that an old entry of a list of shadow leaves cannot match.
        let mut counts = Counts { folios: 0, shadows: 0, owner: MemcgId::ROOT, ..leaf.counts() };
        counts.restamp();
        leaf.set_counts(counts);
        if self.is_charged {
            self.note_freed(self.payer(id).load(Relaxed), LEAF_BYTES);
        }
        self.free.lock().give_back(id.0);
        self.unreserved.fetch_add(1, Relaxed);
        self.in_use.fetch_sub(1, Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self, id: LeafId) -> Leaf<'_> {
        self.with_slots(id, self.slots(id))
    }

    /// A leaf that has its slots elsewhere.
    #[inline]
    pub(super) fn with_slots<'a>(&'a self, id: LeafId, slots: &'a [AtomicSlot; LEAF_SLOTS]) -> Leaf<'a> {
        let counts = self.first_counts.get(id.0 as usize).unwrap_or_else(|| {
            let (segment, at) = self.later(id);
            &segment.counts[at]
        });
        Leaf { slots, counts }
    }

    /// The slots of a leaf.
    #[inline]
    pub(super) fn slots(&self, id: LeafId) -> &[AtomicSlot; LEAF_SLOTS] {
        let slots = self.first_slots.get(id.0 as usize).unwrap_or_else(|| {
            let (segment, at) = self.later(id);
            &segment.slots[at]
        });
        &slots.0
    }

    /// The segment of a leaf that is none of the first ones, and its place there.
    #[inline]
    fn later(&self, id: LeafId) -> (&Segment, usize) {
        let number = id.0 as usize - self.first_slots.len();
        let segment = self.segments[number / SEGMENT_LEAVES].get().expect("leaf numbers come from the pool");
        (segment, number % SEGMENT_LEAVES)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Every reservation stands for a leaf, wherever that is.
    #[test]
    fn cpus_reserve_in_batches_and_are_called_back() {
        let leaves = LeafPool::new(10, 10, 1, 2, 4);
        let left = || {
            [leaves.unreserved.load(Relaxed), leaves.cpus[0].0.load(Relaxed), leaves.cpus[1].0.load(Relaxed)]
        };
        assert!(leaves.reserve(0) && leaves.reserve(1));
        assert_eq!(left(), [2, 3, 3]);
        (0..4).for_each(|_| assert!(leaves.reserve(0)));
        assert_eq!(left(), [0, 1, 3], "two were left for the last batch");
        assert!(leaves.reserve(0) && leaves.reserve(0));
        assert_eq!(left(), [2, 0, 0], "the other's three were called back");
        assert!(leaves.reserve(1) && leaves.reserve(1));
        assert!(!leaves.has_unreserved() && !leaves.reserve(0), "all ten are promised");
        (0..10).for_each(|_| _ = leaves.take());
        (0..10).for_each(|leaf| leaves.give_back(LeafId(leaf)));
        assert_eq!(left(), [10, 0, 0]);
    }

    #[test]
    fn a_cpu_keeps_less_than_two_batches() {
        let leaves = LeafPool::new(10, 10, 1, 1, 4);
        (0..10).for_each(|_| assert!(leaves.reserve(0)));
        (0..7).for_each(|_| leaves.unreserve(Some(0)));
        assert_eq!((leaves.unreserved.load(Relaxed), leaves.cpus[0].0.load(Relaxed)), (0, 7));
        leaves.unreserve(Some(0));
        leaves.unreserve(None);
        assert_eq!((leaves.unreserved.load(Relaxed), leaves.cpus[0].0.load(Relaxed)), (5, 4));
    }
}
