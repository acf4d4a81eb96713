//! The slots of swap: which are free, who pays for the others, and the shadows of their pages.
//!
//! # Locking
//!
//! The list of free slots has a lock, a leaf. The other words belong to the owner of the slot or of
//! the folio.

use crate::folio::FolioId;
use crate::host::SwapSlot;
use crate::memcg::MemcgId;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering::Relaxed};

/// The kind of swap store: when writes complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SwapStore {
    /// Asynchronously, as on a disk. The slot of a returned page is kept, so that the page need not
    /// be written again.
    #[default]
    Device,
    /// Synchronously, as in compressed memory. The slot of a returned page is freed, since it would
    /// be a second copy in memory.
    Memory,
}

/// Options of swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SwapOptions {
    /// Number of slots, of one page each. 0, the default: no swap; anonymous pages stay in memory
    /// until they are released.
    pub pages: u32,
    /// The kind of store.
    pub store: SwapStore,
}

impl SwapOptions {
    /// Metadata bytes of each slot: its shadow, its payer and its place in the free list. And, as a
    /// swapped page may be alone in its leaf, 16 bytes of the table of leaves per 32 slots, rounded
    /// up.
    pub const SLOT_BYTES: u64 =
        (size_of::<AtomicU64>() + size_of::<AtomicU32>() + size_of::<u32>()) as u64 + 1;
}

#[derive(Debug)]
pub(crate) struct SwapArea {
    store: SwapStore,
    /// Shadow word × 2 + 1 of the page in each slot; 0: no shadow.
    shadows: Box<[AtomicU64]>,
    /// The slot of each folio, if any.
    of_folios: Box<[AtomicU32]>,
    /// The memcg that pays for each taken slot.
    payers: Box<[AtomicU32]>,
    free: Mutex<FreeSlots>,
    free_slots: AtomicU32,
}

/// Free slots: those given back, and all from `unused_from` on, so that slots are used in order.
#[derive(Debug)]
struct FreeSlots {
    given_back: Vec<u32>,
    unused_from: u32,
}

impl SwapArea {
    pub(crate) fn new(options: SwapOptions, frames: u32) -> SwapArea {
        let frames = if options.pages > 0 { frames } else { 0 };
        SwapArea {
            store: options.store,
            shadows: (0..options.pages).map(|_| AtomicU64::new(0)).collect(),
            of_folios: (0..frames).map(|_| AtomicU32::new(0)).collect(),
            payers: (0..options.pages).map(|_| AtomicU32::new(0)).collect(),
            // Allocated in full: growing could take up to twice as much, and old and new at the
            // same time.
            free: Mutex::new(FreeSlots {
                given_back: Vec::with_capacity(options.pages as usize),
                unused_from: 0,
            }),
            free_slots: AtomicU32::new(options.pages),
        }
    }

    pub(crate) fn slots(&self) -> u32 {
        self.shadows.len() as u32
    }

    pub(super) fn free_slots(&self) -> u32 {
        self.free_slots.load(Relaxed)
    }

    /// Bytes of metadata for slots and folios.
    pub(crate) fn bytes(&self) -> u64 {
        u64::from(self.slots()) * SwapOptions::SLOT_BYTES + size_of_val(&*self.of_folios) as u64
    }

    pub(super) fn take(&self) -> Option<SwapSlot> {
        let mut free = self.free.lock();
        let slot = match free.given_back.pop() {
            Some(slot) => slot,
            None if free.unused_from < self.slots() => {
                free.unused_from += 1;
                free.unused_from - 1
            }
            None => return None,
        };
        self.free_slots.fetch_sub(1, Relaxed);
        Some(SwapSlot(slot))
    }

    pub(super) fn give_back(&self, slot: SwapSlot) {
        self.shadows[slot.0 as usize].store(0, Relaxed);
        let mut free = self.free.lock();
        debug_assert!(slot.0 < free.unused_from, "{slot:?} was never taken");
        free.given_back.push(slot.0);
        self.free_slots.fetch_add(1, Relaxed);
    }

    /// The memcg that pays for a taken slot.
    pub(super) fn payer(&self, slot: SwapSlot) -> MemcgId {
        MemcgId(self.payers[slot.0 as usize].load(Relaxed))
    }

    pub(super) fn set_payer(&self, slot: SwapSlot, memcg: MemcgId) {
        self.payers[slot.0 as usize].store(memcg.0, Relaxed);
    }

    /// Stores the shadow of a page that is swapped out to `slot`.
    pub(crate) fn remember(&self, slot: SwapSlot, word: u64) {
        self.shadows[slot.0 as usize].store(word << 1 | 1, Relaxed);
    }

    /// Takes the shadow of a page that returns from `slot`.
    pub(crate) fn recall(&self, slot: SwapSlot) -> Option<u64> {
        let word = self.shadows[slot.0 as usize].swap(0, Relaxed);
        (word != 0).then_some(word >> 1)
    }

    pub(crate) fn slot_of(&self, folio: FolioId) -> SwapSlot {
        SwapSlot(self.of_folios[folio.0 as usize].load(Relaxed))
    }

    pub(crate) fn set_slot_of(&self, folio: FolioId, slot: SwapSlot) {
        self.of_folios[folio.0 as usize].store(slot.0, Relaxed);
    }

    /// Whether slots are too short to keep copies of resident pages: copies are themselves in
    /// memory, or more than half of the slots are taken.
    pub(super) fn is_short(&self) -> bool {
        self.store == SwapStore::Memory || u64::from(self.free_slots()) * 2 < u64::from(self.slots())
    }
}
