//! Ranges of slots for mapped files (see `mglru_core::mapping`): who gets one, and who pays.
//!
//! A mapped file gets 8 bytes for each of its pages, and is charged for all of them at once. The
//! system provides the memory when slots are first used. Ranges take at most 1/64 of the cache's
//! budget, which is enough for files of eight times as many pages as the cache has; a file for
//! which nothing is left has its slots in the pool, where a hit takes some more steps.
//!
//! # Locking
//!
//! `Inode::range_charge` is a leaf.

use crate::file::CachedFile;
use crate::frames::{use_huge_pages, zeroed_slots};
use crate::inode::Inode;
use crate::shared::Shared;
use mglru_core::PAGE_BYTES;
use mglru_core::mapping::SlotRange;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// The part of the budget that ranges may take.
const PART_OF_BUDGET: u64 = 64;

impl Shared {
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
        let fits =
            |taken: u64| (taken + bytes <= self.budget_bytes / PART_OF_BUDGET).then_some(taken + bytes);
        let taken = &self.range_bytes;
        if pages == 0 || taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            return;
        }
        let charge = self.charge_metadata(&file.task(), bytes);
        let mut charged = file.inode.range_charge.lock().unwrap_or_else(PoisonError::into_inner);
        match charge {
            Ok(charge) if charged.is_none() => {
                *charged = Some(charge.keep());
                drop(charged);
                let range = file.inode.mapping.set_range(|| zeroed_slots(SlotRange::slots(pages) as usize));
                if self.frames.huge_pages() {
                    use_huge_pages(range.addresses());
                }
            }
            // Another thread was faster, or there is no memory for it.
            _ => {
                drop(charged);
                taken.fetch_sub(bytes, Ordering::Relaxed);
            }
        }
    }

    /// Ends the charge for the range of a file that is forgotten.
    pub(crate) fn uncharge_range(&self, inode: &Inode) {
        let charge = inode.range_charge.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut charge) = charge {
            self.range_bytes.fetch_sub(charge.bytes(), Ordering::Relaxed);
            self.uncharge_metadata(&mut charge);
        }
    }
}
