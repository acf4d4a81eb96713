//! Removal of memcgs.
//!
//! A removed memcg is *offline*: its name and its protection are gone, and it is not charged. Its
//! pages go to its *heir*, list by list to the old end, since pages of a removed memcg are taken to
//! be colder. A folio that is on no list at that moment keeps its old owner until it is put on one.
//! The number is free once no page, swap slot, child or handle refers to it.
//!
//! Before Linux 7.1 (`reparent_offline` off), an offline memcg keeps its pages until they are
//! reclaimed.
//!
//! Source: [book: memcgs#offline-memcgs].
//!
//! # Locking
//!
//! The handover takes both lists of address spaces and then two lruvec locks, the child's first; no
//! other code takes two. Under both locks the heir is set and the owners of folios change. Code
//! that locks an lruvec for a folio checks afterwards that the memcg has no heir and still owns the
//! folio.
//!
//! Memcgs are released without a lock held: a release may drop the last reference to a memcg, whose
//! shadows are then dropped.

use super::{Life, Memcg, MemcgError, MemcgId, charging};
use crate::Core;
use crate::folio::{FolioId, Kind};
use crate::host::Host;
use crate::lru::{Aging, LockedLruvec, MAX_GENERATIONS, order};
use crate::mm::LockedSpaces;
use crate::sync::Ordering::{AcqRel, Release, SeqCst};
use crate::sync::fence;
use crate::workingset;

impl Memcg {
    /// Prepares to own a page charged to a descendant, and so to this memcg: only the root counts
    /// just its own pages. Called before that page can be released.
    fn inherit_charge(&self) {
        if self.id == MemcgId::ROOT {
            self.memory.charge(1);
        }
    }
}

impl Core {
    /// Removes a memcg. Its pages stay cached and become its parent's (before Linux 7.1: they stay
    /// without an owner). The caller's handle stays: see [`Self::drop_handle`].
    ///
    /// # Errors
    /// The memcg is the root, has children, or was already removed.
    pub fn remove_memcg(&self, host: &impl Host, memcg: MemcgId) -> Result<(), MemcgError> {
        let memcg = self.memcg(memcg);
        self.memcgs.take_offline(memcg)?;
        charging::drain_stocks(self, memcg.id);
        self.memcgs.set_min(memcg.id, 0);
        self.memcgs.set_low(memcg.id, 0);
        if self.mechanisms().reparent_offline() {
            self.drain_all(host);
            self.reparent(memcg, host);
        } else {
            order::age(self, memcg.id);
        }
        self.trim_all_shadows(memcg);
        self.settle_index();
        self.note_index_left_behind(memcg);
        self.release_if_unused(memcg);
        Ok(())
    }

    /// Drops a handle: an owner outside the core no longer charges to the memcg. After the last
    /// handle, and once the memcg is removed and empty, its number may be reused.
    pub fn drop_handle(&self, memcg: MemcgId) {
        let memcg = self.memcg(memcg);
        let before = memcg.handles.fetch_sub(1, AcqRel);
        assert!(before > 0, "a handle on memcg {:?} was dropped twice", memcg.id);
        self.release_if_unused(memcg);
    }

    /// Uncharges `pages` from a memcg and its ancestors.
    pub(crate) fn uncharge_pages(&self, memcg: MemcgId, pages: u64) {
        let payers = self.memcgs.ancestors_first(memcg);
        let left = payers.map(|payer| self.memcgs.uncharge_one(payer, pages)).last();
        if left == Some(0) {
            self.release_if_offline(memcg);
        }
    }

    /// Takes back the charge of a page that waits for a frame.
    pub(crate) fn uncharge_waiting(&self, memcg: MemcgId) {
        self.memcgs.cancel_waiting(memcg);
        self.release_if_offline(memcg);
    }

    /// The memcg has lost its last charge.
    fn release_if_offline(&self, memcg: MemcgId) {
        let memcg = self.memcg(memcg);
        // A thread that removes it sees that, or is seen here ([`Self::release_if_unused`]).
        fence(SeqCst);
        if !memcg.is_online() {
            self.release_if_unused(memcg);
        }
    }

    /// Uncharges a swap slot from a memcg and its ancestors.
    pub(crate) fn uncharge_swap(&self, memcg: MemcgId) {
        for payer in self.memcgs.ancestors_first(memcg) {
            let usage = payer.swap.uncharge(1);
            assert!(usage.is_some(), "memcg {:?} gave back a swap slot that it did not have", payer.id);
        }
        self.release_if_unused(self.memcg(memcg));
    }

    /// The memcg that owns a folio.
    #[inline]
    pub(crate) fn owner_of(&self, folio: FolioId) -> &Memcg {
        self.memcgs.living(self.folios.memcg_of(folio))
    }

    /// Locks the lists of a memcg, or of its heir.
    pub(crate) fn lock_living(&self, memcg: MemcgId) -> (&Memcg, LockedLruvec<'_>) {
        loop {
            let memcg = self.memcgs.living(memcg);
            let locked = memcg.lruvec.lock(&self.folios);
            if memcg.heir().is_none() {
                return (memcg, locked);
            }
        }
    }

    /// Locks the lists that a folio is on, or belongs on.
    pub(crate) fn lock_owner_of(&self, folio: FolioId) -> (&Memcg, LockedLruvec<'_>) {
        loop {
            let (memcg, locked) = self.lock_living(self.folios.memcg_of(folio));
            if std::ptr::eq(self.owner_of(folio), memcg) {
                return (memcg, locked);
            }
        }
    }

    /// Makes `memcg`, whose lists are locked, the owner of a folio that is put on them. Returns the
    /// former owner if it was removed: pass it to [`Self::release_unused`] without the lock.
    #[inline]
    pub(crate) fn adopt(&self, memcg: &Memcg, folio: FolioId) -> Option<MemcgId> {
        let label = self.folios.memcg_of(folio);
        if label == memcg.id {
            return None;
        }
        memcg.inherit_charge();
        self.folios.set_memcg(folio, memcg.id.0);
        self.end_charge(label, memcg, 1);
        Some(label)
    }

    /// Ends the charge of pages to `from` and its ancestors below `to`, which owns them now and is
    /// one of these ancestors.
    fn end_charge(&self, from: MemcgId, to: &Memcg, pages: u64) {
        let between = self.memcgs.with_ancestors(from).skip(1).take_while(|payer| payer.id != to.id);
        // As in [`Memcgs::ancestors_first`].
        between.chain([self.memcg(from)]).for_each(|payer| _ = self.memcgs.uncharge_one(payer, pages));
    }

    /// Runs `work` on the address spaces of a memcg, or of its heir.
    pub(crate) fn with_spaces<R>(&self, memcg: MemcgId, work: impl FnOnce(&mut LockedSpaces<'_>) -> R) -> R {
        loop {
            let memcg = self.memcgs.living(memcg);
            let mut spaces = memcg.spaces.lock();
            if memcg.heir().is_none() {
                return work(&mut spaces);
            }
        }
    }

    /// Hands the pages, lists and counters of an offline memcg over to its heir.
    fn reparent(&self, child: &Memcg, host: &impl Host) {
        loop {
            let parent = self.memcgs.living(child.parent());
            // A label of the child must name a live generation of the parent.
            let full = |kind| parent.lruvec.window.generations(kind) == MAX_GENERATIONS;
            while !Kind::ALL.into_iter().all(full) {
                let (seq, swappiness) = (parent.lruvec.window.max(), self.options.swappiness);
                let aging = Aging { core: self, host, memcg: parent, seq, swappiness, force: false };
                aging.open_generation();
            }
            let mut spaces = child.spaces.lock();
            let mut spaces_of_heir = parent.spaces.lock();
            let mut from = child.lruvec.lock(&self.folios);
            let mut to = parent.lruvec.lock_beside(&from);
            if parent.heir().is_some() || !Kind::ALL.into_iter().all(full) {
                continue;
            }
            let mut moved = 0;
            from.hand_over(&mut to, |folio| {
                parent.inherit_charge();
                self.folios.set_memcg(folio, parent.id.0);
                moved += 1;
            });
            spaces.hand_over(&mut spaces_of_heir);
            child.heir.store(parent.id.0, Release);
            order::grew(self, parent);
            order::leave(self, child);
            drop((from, to, spaces, spaces_of_heir));
            child.stat.move_sizes(&parent.stat);
            // Memcgs between the two may have been removed meanwhile.
            self.end_charge(child.id, parent, moved);
            self.leaves.forget_bytes(child.lruvec.filters.forget());
            return;
        }
    }

    /// Frees the numbers of those removed memcgs that nothing refers to any more.
    pub(crate) fn release_unused(&self, went: &[MemcgId]) {
        went.iter().for_each(|&went| self.release_if_unused(self.memcg(went)));
    }

    /// Frees the number of a memcg that nothing refers to any more, and then its parent's likewise.
    pub(crate) fn release_if_unused(&self, memcg: &Memcg) {
        let mut memcg = memcg;
        // Between the removal and the look at the charges.
        fence(SeqCst);
        loop {
            let unused = || {
                !memcg.has_handles()
                    && !memcg.pays_for_index()
                    && memcg.memory.is_unused()
                    && memcg.swap.is_unused()
            };
            if memcg.life() != Life::Offline || !unused() {
                return;
            }
            self.trim_all_shadows(memcg);
            let parent = self.memcg(memcg.parent());
            let mut own_charge = None;
            let released = self.memcgs.release(memcg, || {
                let unused = unused();
                if unused {
                    own_charge = Some(memcg.take_own_charge());
                    order::leave(self, memcg);
                    self.remembering.forget(memcg);
                    self.memcgs.update_protection(memcg);
                    self.leaves.forget_bytes(memcg.lruvec.filters.forget());
                    // A thread that looked up an owner before its removal may have counted here
                    // what moved to the heir. Threads that still do so are waited for
                    // ([`super::tree`]).
                    memcg.stat.move_all(&self.memcgs.living(parent.id).stat);
                }
                unused
            });
            if !released {
                return;
            }
            // Of pages that another thread was removing when the heir got them.
            workingset::forget_released(self, memcg);
            if let Some(mut charge) = own_charge {
                self.uncharge_host(&mut charge);
            }
            memcg = parent;
        }
    }

    /// Drops all shadows of a memcg: no refault can be charged to it any more.
    fn trim_all_shadows(&self, memcg: &Memcg) {
        workingset::trim(self, memcg, u64::MAX);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
