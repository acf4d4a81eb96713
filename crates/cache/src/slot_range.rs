//! Ranges of slots for mapped files (see `mglru_core::mapping`): who gets one, and who pays.
//!
//! A mapped file gets 8 bytes for each of its pages, and is charged for all of them at once. The
//! system provides the memory when slots are first used. Ranges take at most 1/64 of the cache's
//! budget, which is enough for files of eight times as many pages as the cache has; a file for
//! which nothing is left has its slots in the pool, where a hit takes some more steps.
//!
//! # Locking
//!
//! `Shared::slot_charges` is a leaf.

use crate::file::CachedFile;
use crate::frames::{use_huge_pages, zeroed_slots};
use crate::inode::Inode;
use crate::shared::Shared;
use mglru_core::mapping::SlotRange;
use mglru_core::{HostCharge, MappingId, PAGE_BYTES};
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

/// The part of the budget that ranges may take.
const PART_OF_BUDGET: u64 = 64;

/// Charges for ranges, by mapping.
#[derive(Default)]
pub(crate) struct SlotCharges {
    bytes: u64,
    by_mapping: BTreeMap<MappingId, HostCharge>,
}

impl Shared {
    fn slot_charges(&self) -> MutexGuard<'_, SlotCharges> {
        self.slot_charges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the mapping of a file that is being mapped a range, if it has none and can pay for it.
    /// Returns the range; without pages if it has none.
    pub(crate) fn range_of(&self, file: &CachedFile) -> Arc<SlotRange> {
        let mapping = &file.inode.mapping;
        if mapping.range().is_none() {
            self.give_range(file);
        }
        mapping.range().cloned().unwrap_or_else(|| Arc::new(SlotRange::new(Box::default())))
    }

    fn give_range(&self, file: &CachedFile) {
        let pages = file.len().div_ceil(PAGE_BYTES);
        let bytes = SlotRange::bytes(pages);
        {
            let mut charges = self.slot_charges();
            if pages == 0 || charges.bytes + bytes > self.budget_bytes / PART_OF_BUDGET {
                return;
            }
            charges.bytes += bytes;
        }
        let mapping = &file.inode.mapping;
        let charge = self.charge_metadata(&file.task(), bytes);
        let mut charges = self.slot_charges();
        match charge {
            Ok(charge) if !charges.by_mapping.contains_key(&mapping.id()) => {
                charges.by_mapping.insert(mapping.id(), charge.keep());
                let range = mapping.set_range(|| zeroed_slots(SlotRange::slots(pages) as usize));
                if self.frames.huge_pages() {
                    use_huge_pages(range.addresses());
                }
            }
            // There is no memory for it, or another thread was faster.
            not_needed => {
                charges.bytes -= bytes;
                drop(charges);
                drop(not_needed);
            }
        }
    }

    /// Takes the charge for the range of a file that is about to be forgotten, before the number of
    /// its mapping can be reused. The caller ends it.
    pub(crate) fn take_slot_charge(&self, inode: &Inode) -> Option<HostCharge> {
        let mut charges = self.slot_charges();
        let charge = charges.by_mapping.remove(&inode.mapping.id());
        charges.bytes -= charge.as_ref().map_or(0, HostCharge::bytes);
        charge
    }
}
