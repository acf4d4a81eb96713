//! The memory that ranges of slots for mapped files take (see `mglru_core::mapping`), and who pays.
//!
//! A mapped file gets 8 bytes for each of its pages, and is charged for all of them at once. The
//! system provides the memory when slots are first used. Ranges take at most 1/64 of the cache's
//! budget, which is enough for files of eight times as many pages as the cache has; a file for
//! which nothing is left has its slots in the pool, where a hit takes some more steps.
//!
//! # Locking
//!
//! One mutex, a leaf.

use mglru_core::mapping::{AtomicSlot, SlotRange};
use mglru_core::{HostCharge, Mapping, MappingId};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The part of the budget that ranges may take.
const PART_OF_BUDGET: u64 = 64;

/// Charges for the slots of mapped files.
pub(crate) struct SlotCharges {
    bytes_max: u64,
    charges: Mutex<Charges>,
}

#[derive(Default)]
struct Charges {
    bytes: u64,
    by_mapping: BTreeMap<MappingId, HostCharge>,
}

impl SlotCharges {
    pub(crate) fn new(budget_bytes: u64) -> SlotCharges {
        SlotCharges { bytes_max: budget_bytes / PART_OF_BUDGET, charges: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Charges> {
        self.charges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets `bytes` aside for a range, before they are charged. `false`: that is too much.
    pub(crate) fn reserve(&self, bytes: u64) -> bool {
        let mut charges = self.lock();
        let has_room = charges.bytes + bytes <= self.bytes_max;
        if has_room {
            charges.bytes += bytes;
        }
        has_room
    }

    /// Gives back what was set aside.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.lock().bytes -= bytes;
    }

    /// Keeps the charge for reserved bytes and gives the mapping its range. `None`: another thread
    /// was faster, and the mapping has one.
    pub(crate) fn settle<'a>(
        &self,
        mapping: &'a Mapping,
        charge: impl FnOnce() -> HostCharge,
        slots: impl FnOnce() -> Box<[AtomicSlot]>,
    ) -> Option<&'a SlotRange> {
        let mut charges = self.lock();
        if charges.by_mapping.contains_key(&mapping.id()) {
            return None;
        }
        charges.by_mapping.insert(mapping.id(), charge());
        Some(mapping.set_range(slots))
    }

    /// Takes the charge for the range of a file that is about to be forgotten, before the number of
    /// its mapping can be reused. The caller ends it.
    pub(crate) fn take(&self, mapping: MappingId) -> Option<HostCharge> {
        let mut charges = self.lock();
        let charge = charges.by_mapping.remove(&mapping);
        charges.bytes -= charge.as_ref().map_or(0, HostCharge::bytes);
        charge
    }
}
