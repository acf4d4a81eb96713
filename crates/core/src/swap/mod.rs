//! Swap: a bounded number of swap slots for anonymous pages, and the shadows of the pages in them.
//!
//! ```text
//!            assign            swap_out                 evicted                  touched again
//! resident ─────────► slot, dirty ──► slot, clean ─────────────► entry + shadow ─────────► slot, clean
//!     ▲ release                            │ stored to                                        │
//!     └────────────────────────────────────┴── dirty again: written to the same slot ◄────────┘
//! ```
//!
//! A swapped-out page leaves an *entry* in its slot of the mapping: the number of its swap slot.
//! The swap slot holds its shadow, so that an entry, unlike the shadow of a file page, is never
//! dropped to save memory. A folio with a swap slot is *in the swap cache*; while it is clean, it
//! is freed without a write.
//!
//! The core keeps the numbers, its host the bytes: [`crate::Host::swap_out`] asks the host to write
//! a page to its slot, and [`Core::swap_slot`] says where the bytes of a returning page are.
//!
//! Source: [book: swap#anonymous-pages], [book: aging#swappiness], [book: eviction#verdicts] rows
//! 12–18, [book: refaults#when-shadows] and [book: refaults#refault-processing],
//! [book: swap#swap-out]. [book: refaults#shadow-layout] takes up to five bits of a token for a use
//! count; a slot has one user here, so none is taken.
//!
//! The release of slots follows measurements of Linux 6.12.117, 7.1.13 and 7.2.12
//! ([book: swap#slots-of-stored-pages]). Compressed memory keeps no copy of a resident page (the
//! swap cache was empty at the end). A device keeps it until more than half of its slots are taken,
//! in 7.1 and 7.2 even after stores to the page. In 6.12 a store that faults frees it
//! ([`Core::stored_by_fault`]).
//!
//! # Locking
//!
//! Free slots have a lock of their own, the innermost. The slot of a folio changes only under the
//! folio lock, a shadow only under the lock of the mapping with the entry.

mod area;

pub(crate) use area::SwapArea;
pub use area::{SwapOptions, SwapStore};

use crate::Core;
use crate::folio::{FolioId, Kind};
use crate::host::Host;
pub use crate::host::{SwapOut, SwapOutcome, SwapSlot};
use crate::lru::Swappiness;
use crate::mapping::{MAPPING_PAGES_MAX, Mapping};
use crate::mechanism::Switch;
use crate::memcg::{Counter, Memcg, MemcgId};

/// With fewer free slots than this, reclaim takes no anonymous pages ([book: aging#swappiness]).
pub const FREE_SLOTS_MIN: u32 = 64;

impl Core {
    /// Free swap slots.
    pub fn free_swap_pages(&self) -> u32 {
        self.swap.free_slots()
    }

    /// Taken swap slots: of swapped-out pages, and of those in the swap cache.
    pub fn used_swap_pages(&self) -> u32 {
        self.swap.slots() - self.swap.free_slots()
    }

    /// The slot with the bytes of an inserted anonymous page that has no content yet. `None`: the
    /// page is new and full of zeros. The caller holds the folio lock.
    pub fn swap_slot(&self, folio: FolioId) -> Option<SwapSlot> {
        self.folios.flags(folio).load().swapcache().then(|| self.swap.slot_of(folio))
    }

    /// Whether an anonymous page was never written, or was released: there is nothing to read, and
    /// a load does not need a page of its own.
    pub fn is_untouched(&self, mapping: &Mapping, index: u32) -> bool {
        !mapping.has_directory(index) || mapping.lock(&self.leaves, index).slot(index).is_empty()
    }

    /// Effective swappiness for the pages of one memcg, which may have a swap limit of its own.
    pub(crate) fn swappiness_of(&self, memcg: MemcgId, wish: Swappiness) -> Swappiness {
        let full = |memcg: &Memcg| memcg.swap.margin_pages() < u64::from(FREE_SLOTS_MIN);
        if self.memcgs.with_ancestors(memcg).any(full) {
            Swappiness::FILE_ONLY
        } else {
            self.swap.swappiness_now(wish)
        }
    }

    /// The kinds whose pages count as reclaimable on the node, whatever the swappiness: anonymous
    /// ones while a slot is free.
    pub(crate) fn reclaimable_kinds(&self) -> impl Iterator<Item = Kind> {
        let can_swap = self.free_swap_pages() > 0;
        Kind::ALL.into_iter().filter(move |&kind| kind == Kind::File || can_swap)
    }

    /// Whether a page of this memcg could get a slot now.
    pub(crate) fn can_swap(&self, memcg: MemcgId) -> bool {
        self.free_swap_pages_of(memcg) > 0
    }

    /// Number of slots that pages of this memcg could get.
    pub(crate) fn free_swap_pages_of(&self, memcg: MemcgId) -> u64 {
        let margins = self.memcgs.with_ancestors(memcg).map(|memcg| memcg.swap.margin_pages());
        margins.fold(u64::from(self.swap.free_slots()), u64::min)
    }

    /// Gives a locked folio a slot that it must be written to. `false`: no slot is free, or its
    /// memcg is at its limit.
    pub(crate) fn assign_slot(&self, folio: FolioId) -> bool {
        let memcg = self.owner_of(folio);
        if let Err(refused) = self.memcgs.charge_swap(memcg.id()) {
            self.memcg(refused).stat.add(Counter::EventSwapMax, 1);
            memcg.stat.add(Counter::EventSwapFail, 1);
            return false;
        }
        let Some(slot) = self.swap.take() else {
            self.uncharge_swap(memcg.id());
            memcg.stat.add(Counter::EventSwapFail, 1);
            return false;
        };
        self.swap.set_payer(slot, memcg.id());
        self.swap.set_slot_of(folio, slot);
        self.folios.flags(folio).enter_swap_cache();
        true
    }

    /// Frees the slot of a folio, whose copy in memory becomes the only one.
    pub(crate) fn release_slot(&self, host: &impl Host, folio: FolioId) {
        if self.folios.flags(folio).leave_swap_cache(true) {
            self.free_slot(host, self.swap.slot_of(folio));
        }
    }

    fn free_slot(&self, host: &impl Host, slot: SwapSlot) {
        // First, since afterwards another page may be written to the slot.
        host.swap_freed(slot);
        let payer = self.swap.payer(slot);
        self.swap.give_back(slot);
        self.uncharge_swap(payer);
    }

    /// As [`Self::release_slot`], if slots are short and the locked folio is not under writeback.
    pub(crate) fn release_slot_if_short(&self, host: &impl Host, folio: FolioId) {
        let flags = self.folios.flags(folio).load();
        if flags.swapcache() && !flags.writeback() && (self.swap.is_short() || self.owner_is_short(folio)) {
            self.release_slot(host, folio);
        }
    }

    /// Notes a store of a task on `cpu` that faulted on a locked anonymous folio, i.e. found no
    /// page-table entry. With [`Switch::StoresFreeSlots`], a folio that nobody else uses loses its
    /// slot. Its batch is no user: the new pages of the CPU are put on their lists first.
    pub fn stored_by_fault(&self, host: &impl Host, cpu: usize, folio: FolioId) {
        let flags = self.folios.flags(folio);
        if !self.mechanisms().is_on(Switch::StoresFreeSlots) || !flags.load().swapcache() {
            return;
        }
        if !flags.load().lru() {
            self.drain(host, cpu);
        }
        let now = flags.load();
        if now.references() == 1 && !now.writeback() {
            self.release_slot(host, folio);
        }
    }

    /// Whether the memcg that pays for a folio, or an ancestor, uses more than half of its swap
    /// limit ([book: swap#swap-out]).
    fn owner_is_short(&self, folio: FolioId) -> bool {
        self.memcgs
            .with_ancestors(self.folios.memcg_of(folio))
            .any(|memcg| memcg.swap.usage_pages().saturating_mul(2) >= memcg.swap.limit_pages())
    }

    /// Puts a page that had `entry` into the swap cache as `folio`, which no other thread can use
    /// yet. Returns its shadow.
    #[cold]
    pub(crate) fn leave_entry(&self, folio: FolioId, entry: u64) -> Option<u64> {
        let slot = slot_in(entry);
        self.swap.set_slot_of(folio, slot);
        self.folios.flags(folio).return_to_swap_cache();
        self.swap.recall(slot)
    }

    /// Releases a swapped-out page.
    pub(crate) fn drop_entry(&self, host: &impl Host, entry: u64) {
        self.free_slot(host, slot_in(entry));
    }

    /// Recounts the slots: each belongs to at most one page, and exactly those are taken. Slow: for
    /// tests and the simulator's checker.
    ///
    /// # Errors
    /// The first violation, in words.
    pub(crate) fn validate_swap(&self) -> Result<(), String> {
        let mut taken = vec![false; self.swap.slots() as usize];
        let mut number = 0;
        for mapping in self.mappings.all() {
            if mapping.kind() != Kind::Anon {
                continue;
            }
            let locked = mapping.lock_all(&self.leaves);
            let mut at = 0;
            while let Some((index, slot)) = locked.next(at, MAPPING_PAGES_MAX) {
                let of_folio = slot.folio().and_then(|folio| self.swap_slot(folio));
                if let Some(SwapSlot(had)) = of_folio.or(slot.shadow().map(slot_in)) {
                    let taken = taken.get_mut(had as usize);
                    if taken.is_none_or(|taken| std::mem::replace(taken, true)) {
                        return Err(format!(
                            "swap slot {had} of page {index} does not exist, or has two pages"
                        ));
                    }
                    number += 1;
                }
                let Some(next) = index.checked_add(1) else { break };
                at = next;
            }
        }
        if number == self.used_swap_pages() {
            return Ok(());
        }
        Err(format!("{} swap slots are taken, and {number} belong to pages", self.used_swap_pages()))
    }
}

fn slot_in(entry: u64) -> SwapSlot {
    SwapSlot(entry as u32)
}

impl SwapArea {
    /// The entry of a page that is swapped out or could not be read from its slot. The caller holds
    /// the lock of its part of the mapping.
    #[cold]
    pub(crate) fn entry_of(&self, folio: FolioId, shadow: Option<u64>) -> u64 {
        let slot = self.slot_of(folio);
        if let Some(word) = shadow {
            self.remember(slot, word);
        }
        u64::from(slot.0)
    }

    /// The memcg that pays for the slot of a swapped-out page.
    pub(crate) fn payer_of_entry(&self, entry: u64) -> MemcgId {
        self.payer(slot_in(entry))
    }

    /// Effective swappiness: only file pages if swap has no room ([book: aging#swappiness]).
    pub(crate) fn swappiness_now(&self, wish: Swappiness) -> Swappiness {
        if self.free_slots() < FREE_SLOTS_MIN { Swappiness::FILE_ONLY } else { wish }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
