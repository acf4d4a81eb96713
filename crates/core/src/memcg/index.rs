//! Metadata that a memcg pays for, in bytes: leaves and directories of mappings, and what a host
//! keeps per file, handle or tenant.
//!
//! The memcg whose request makes an object pays for it until the object is freed. Whole pages of a
//! memcg's bytes are charged to it and to its ancestors, as the kernel charges slab objects; the
//! first bytes, up to a page, are free. A memcg that is removed keeps paying, and its ancestors
//! with it, until its heir takes the objects over ([`Core::reparent_index`]). The heir may need
//! more pages by rounding, or another thread may have taken their room meanwhile: pages that fit
//! under no limit stay unpaid until as many bytes were freed.
//!
//! Nothing is charged without [`crate::Options::charge_metadata`].
//!
//! # Locking
//!
//! One atomic word per memcg ([`Bill`]). Pages are charged before its bytes rise and uncharged
//! after they fall, so the page counter never runs short. Objects are freed under a mapping's lock,
//! where no memcg may be released: their bytes are noted in the pool and uncharged later
//! ([`Core::settle_index`]).

use super::charging;
use super::{Charge, Counter, Memcg, MemcgId, Memcgs};
use crate::Core;
use crate::options::PAGE_BYTES;
use crate::sync::{Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use std::collections::BTreeSet;

/// Removed memcgs with objects left before their heirs take these over. One visit of the whole
/// index serves all of them.
const LEFT_BEHIND_MAX: usize = 32;

/// Bits of a [`Bill`] for its bytes: 4 TiB of metadata.
const BYTES_BITS: u32 = 42;

/// Metadata of a memcg, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bill {
    /// All bytes of its objects.
    bytes: u64,
    /// Whole pages of these bytes that are charged to nobody.
    unpaid_pages: u64,
}

impl Bill {
    fn of(word: u64) -> Bill {
        Bill { bytes: word & ((1 << BYTES_BITS) - 1), unpaid_pages: word >> BYTES_BITS }
    }

    fn word(self) -> u64 {
        debug_assert!(self.bytes < 1 << BYTES_BITS && self.unpaid_pages <= self.bytes / PAGE_BYTES);
        self.unpaid_pages << BYTES_BITS | self.bytes
    }

    /// Pages that are charged.
    fn pages(self) -> u64 {
        self.bytes / PAGE_BYTES - self.unpaid_pages
    }

    /// With `bytes` more. `None`: a bill has no room for as many.
    fn plus(self, bytes: u64) -> Option<Bill> {
        let bytes = self.bytes.checked_add(bytes).filter(|bytes| *bytes < 1 << BYTES_BITS)?;
        Some(Bill { bytes, ..self })
    }

    /// Less `bytes`, of which whole pages first settle what is unpaid. `None`: there are not as
    /// many.
    fn minus(self, bytes: u64) -> Option<Bill> {
        let left = self.bytes.checked_sub(bytes)?;
        let fewer_pages = self.bytes / PAGE_BYTES - left / PAGE_BYTES;
        Some(Bill { bytes: left, unpaid_pages: self.unpaid_pages.saturating_sub(fewer_pages) })
    }
}

/// Bytes of the index that are paid for in advance, for objects that do not exist yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexPaid {
    pub(crate) memcg: MemcgId,
    pub(crate) bytes: u64,
}

/// A charge for metadata that a host keeps. [`Core::uncharge_host`] ends it.
#[derive(Debug)]
#[must_use = "only `Core::uncharge_host` ends the charge"]
pub struct HostCharge {
    memcg: MemcgId,
    bytes: u64,
}

impl HostCharge {
    /// The size of the metadata, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn pack(&self) -> u64 {
        debug_assert!(self.bytes < 1 << (u64::BITS - MemcgId::BITS));
        self.bytes << MemcgId::BITS | u64::from(self.memcg.0)
    }

    fn unpack(word: u64) -> HostCharge {
        HostCharge { memcg: MemcgId(word as u32 & ((1 << MemcgId::BITS) - 1)), bytes: word >> MemcgId::BITS }
    }
}

impl Memcg {
    /// Bytes of metadata that the memcg pays for.
    pub fn index_bytes(&self) -> u64 {
        Bill::of(self.index_bill.load(Acquire)).bytes
    }

    /// Pages that are charged for metadata.
    pub(crate) fn index_pages(&self) -> u64 {
        Bill::of(self.index_bill.load(Acquire)).pages()
    }

    pub(super) fn pays_for_index(&self) -> bool {
        self.index_bytes() > 0
    }

    /// Takes what is paid for this memcg, when its number becomes free.
    pub(super) fn take_own_charge(&self) -> HostCharge {
        HostCharge::unpack(self.own_charge.swap(0, AcqRel))
    }
}

impl Memcgs {
    /// Charges pages to a memcg and its ancestors, regardless of limits.
    fn charge_pages_anyway(&self, memcg: MemcgId, pages: u64) {
        for payer in self.with_ancestors(memcg) {
            payer.memory.charge(pages);
            self.update_protection(payer);
        }
    }

    /// Charges bytes of metadata if limits allow. Takes neither locks nor pages of a stock.
    pub(crate) fn try_charge_index(&self, memcg: MemcgId, bytes: u64) -> bool {
        let charge = |pages| self.charge_pages(memcg, pages).is_ok();
        self.raise_index(memcg, bytes, charge)
    }

    /// Charges bytes of metadata regardless of limits, for an object that must exist. Takes no
    /// lock.
    pub(crate) fn charge_index_anyway(&self, memcg: MemcgId, bytes: u64) {
        let charge = |pages| {
            self.charge_pages_anyway(memcg, pages);
            true
        };
        let is_charged = self.raise_index(memcg, bytes, charge);
        debug_assert!(is_charged, "memcg {memcg:?} has no room for {bytes} bytes of index");
    }

    /// Takes over bytes of metadata from a removed memcg. If limits leave no room for a page that
    /// they need, it stays unpaid. Takes no lock.
    fn take_index_over(&self, heir: MemcgId, bytes: u64) {
        if self.try_charge_index(heir, bytes) {
            return;
        }
        let with_unpaid = |word| {
            let before = Bill::of(word);
            let after = before.plus(bytes)?;
            let unpaid_pages = before.unpaid_pages + (after.pages() - before.pages());
            Some(Bill { unpaid_pages, ..after }.word())
        };
        let updated = self.get(heir).index_bill.fetch_update(AcqRel, Acquire, with_unpaid);
        debug_assert!(updated.is_ok());
    }

    /// Uncharges bytes of metadata and returns the rest. Takes no lock.
    fn lower_index(&self, memcg: MemcgId, bytes: u64) -> u64 {
        let less = |word| Some(Bill::of(word).minus(bytes)?.word());
        let before = self.get(memcg).index_bill.fetch_update(AcqRel, Acquire, less);
        let before = before
            .unwrap_or_else(|word| panic!("memcg {memcg:?} gave back {bytes} bytes of {:?}", Bill::of(word)));
        let before = Bill::of(before);
        let after = before.minus(bytes).expect("the update has succeeded");
        self.give_pages_back(memcg, before.pages() - after.pages());
        after.bytes
    }

    fn give_pages_back(&self, memcg: MemcgId, pages: u64) {
        if pages > 0 {
            self.ancestors_first(memcg).for_each(|payer| _ = self.uncharge_one(payer, pages));
        }
    }

    /// Raises the bytes of a memcg, after `charge` has charged the pages that this takes. `false`:
    /// it refused, or a bill has no room for as many bytes.
    fn raise_index(&self, memcg: MemcgId, bytes: u64, charge: impl Fn(u64) -> bool) -> bool {
        let bill = &self.get(memcg).index_bill;
        let (mut charged, mut before) = (0, bill.load(Relaxed));
        loop {
            let Some(after) = Bill::of(before).plus(bytes) else {
                self.give_pages_back(memcg, charged);
                return false;
            };
            let wanted = after.pages() - Bill::of(before).pages();
            if wanted > charged {
                if !charge(wanted - charged) {
                    self.give_pages_back(memcg, charged);
                    return false;
                }
                charged = wanted;
            }
            match bill.compare_exchange_weak(before, after.word(), AcqRel, Relaxed) {
                Ok(_) => {
                    self.give_pages_back(memcg, charged - wanted);
                    return true;
                }
                Err(now) => before = now,
            }
        }
    }
}

impl Core {
    /// Charges bytes of metadata on behalf of a task on `cpu`.
    ///
    /// # Errors
    /// The memcg whose limit this would exceed; nothing was charged.
    pub(crate) fn charge_index(&self, memcg: MemcgId, cpu: usize, bytes: u64) -> Result<(), MemcgId> {
        let refused = std::cell::Cell::new(memcg);
        let charge = |pages| {
            let charged = self.charge_whole_pages(memcg, cpu, pages);
            charged.map_err(|limited| refused.set(limited)).is_ok()
        };
        if self.memcgs.raise_index(memcg, bytes, charge) { Ok(()) } else { Err(refused.get()) }
    }

    /// Whether metadata of `bytes` would not fit even if it took all frames.
    pub(crate) fn exceeds_all_frames(&self, bytes: u64) -> bool {
        bytes.div_ceil(PAGE_BYTES) > u64::from(self.folios.len())
    }

    fn charge_whole_pages(&self, memcg: MemcgId, cpu: usize, pages: u64) -> Result<(), MemcgId> {
        if pages > 1 {
            return self.memcgs.charge_pages(memcg, pages);
        }
        match charging::charge_one(self, memcg, cpu) {
            Charge::Refused(limited) => Err(limited),
            Charge::FromStock | Charge::Charged(_) => Ok(()),
        }
    }

    /// Uncharges bytes of metadata. The caller holds no lock: this may release the memcg.
    pub(crate) fn uncharge_index(&self, memcg: MemcgId, bytes: u64) {
        if bytes > 0 && self.memcgs.lower_index(memcg, bytes) == 0 {
            self.release_if_unused(self.memcg(memcg));
        }
    }

    /// As [`Self::uncharge_index`], for bytes of which `pages` wait for frames. These are not noted
    /// in the peak.
    pub(crate) fn uncharge_waiting_index(&self, memcg: MemcgId, bytes: u64, pages: u64) {
        // The last byte keeps the memcg until they wait no more.
        self.memcgs.lower_index(memcg, bytes - 1);
        self.memcgs.end_wait(memcg, pages);
        self.uncharge_index(memcg, 1);
    }

    /// Uncharges the objects of the index that were freed since the last call. Called before limits
    /// are checked and sizes are read, without a lock held.
    pub fn settle_index(&self) {
        while let Some((memcg, bytes)) = self.leaves.next_freed() {
            self.memcgs.living(memcg).stat.sub(Counter::SlabReclaimable, bytes);
            self.uncharge_index(memcg, bytes);
        }
    }

    /// Notes a removed memcg that still pays for objects.
    pub(super) fn note_index_left_behind(&self, memcg: &Memcg) {
        if !memcg.pays_for_index() || memcg.heir().is_none() {
            return;
        }
        let mut left_behind = self.left_behind.lock();
        left_behind.push(memcg.id);
        if left_behind.len() < LEFT_BEHIND_MAX {
            return;
        }
        left_behind.clear();
        drop(left_behind);
        self.reparent_index();
    }

    /// Hands the objects that removed memcgs pay for over to their heirs, which pay from now on, so
    /// that the numbers can be reused. Their sizes were counted there since the removal.
    pub(crate) fn reparent_index(&self) {
        let mut relieved = BTreeSet::new();
        for mapping in self.mappings.all() {
            // Under the mapping's locks, no other thread frees what changes its payer.
            mapping.lock_all(&self.leaves).change_payers(|payer, bytes| {
                let heir = self.memcgs.living(payer).id;
                if heir != payer {
                    if relieved.insert(payer) {
                        // It pays, so it was not released. The handle keeps it, and with it the
                        // heir, an ancestor, which may be removed meanwhile.
                        self.memcgs.add_handle(payer);
                    }
                    self.memcgs.lower_index(payer, bytes);
                    self.memcgs.take_index_over(heir, bytes);
                }
                heir
            });
        }
        relieved.into_iter().for_each(|memcg| self.drop_handle(memcg));
    }

    /// Charges `bytes` of metadata that the host keeps for a task of `memcg` on `cpu`.
    ///
    /// # Errors
    /// The memcg whose limit this would exceed, or the root if all frames together are too few.
    /// Nothing was charged: [`crate::Charging::for_host`] reclaims first.
    pub fn charge_host(&self, memcg: MemcgId, cpu: usize, bytes: u64) -> Result<HostCharge, MemcgId> {
        let bytes = if self.options.charge_metadata { bytes } else { 0 };
        if self.exceeds_all_frames(bytes) {
            return Err(MemcgId::ROOT);
        }
        self.settle_index();
        let memcg = self.memcgs.payer(memcg).id;
        self.charge_index(memcg, cpu, bytes)?;
        Ok(self.host_charge(IndexPaid { memcg, bytes }))
    }

    /// Turns bytes paid in advance into a charge of the host.
    pub(crate) fn host_charge(&self, paid: IndexPaid) -> HostCharge {
        let IndexPaid { memcg, bytes } = paid;
        self.memcgs.living(memcg).stat.add(Counter::SlabUnreclaimable, bytes);
        HostCharge { memcg, bytes }
    }

    /// Ends a charge of [`Self::charge_host`], which is 0 bytes afterwards. The caller holds no
    /// lock of the core.
    pub fn uncharge_host(&self, charge: &mut HostCharge) {
        let bytes = std::mem::take(&mut charge.bytes);
        self.memcgs.living(charge.memcg).stat.sub(Counter::SlabUnreclaimable, bytes);
        self.uncharge_index(charge.memcg, bytes);
    }

    /// Makes a charge to the parent of `memcg` last as long as the number of `memcg` is in use. The
    /// caller has a handle on `memcg`.
    pub fn pay_for_memcg(&self, memcg: MemcgId, charge: HostCharge) {
        let HostCharge { memcg: parent, bytes } = charge;
        let sum = |word| {
            let before = HostCharge::unpack(word);
            let same = if before.memcg == parent { before.bytes } else { 0 };
            Some(HostCharge { memcg: parent, bytes: bytes + same }.pack())
        };
        let before = self.memcg(memcg).own_charge.fetch_update(AcqRel, Acquire, sum);
        let mut before = HostCharge::unpack(before.unwrap_or_else(|word| word));
        if before.memcg != parent {
            // A thread that looked up the former memcg of this number has added to it since.
            self.uncharge_host(&mut before);
        }
    }

    /// Charges bytes that a memcg needs for itself, such as filters, to its parent. `false`: its
    /// limit leaves no room for them.
    pub(crate) fn grow_memcg(&self, memcg: &Memcg, bytes: u64) -> bool {
        if !self.options.charge_metadata || bytes == 0 {
            return true;
        }
        let parent = memcg.parent();
        let has_room = self.memcgs.try_charge_index(parent, bytes);
        if has_room {
            self.pay_for_memcg(memcg.id, self.host_charge(IndexPaid { memcg: parent, bytes }));
        }
        has_room
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::Harness;
    use crate::{Arrival, Options, Time, UNLIMITED};

    #[test]
    fn freed_bytes_first_settle_what_is_unpaid() {
        let bill = Bill { bytes: 3 * PAGE_BYTES + 100, unpaid_pages: 2 };
        assert_eq!(Bill::of(bill.word()), bill);
        assert_eq!((bill.pages(), bill.plus(PAGE_BYTES).unwrap().pages()), (1, 2));
        let most = (1 << BYTES_BITS) - 1 - bill.bytes;
        assert!(bill.plus(most).is_some() && bill.plus(most + 1).is_none() && bill.plus(u64::MAX).is_none());
        let less = |bytes| bill.minus(bytes).map(|less| (less.bytes, less.unpaid_pages, less.pages()));
        assert_eq!(less(100), Some((3 * PAGE_BYTES, 2, 1)));
        assert_eq!(less(101), Some((3 * PAGE_BYTES - 1, 1, 1)));
        assert_eq!(less(2 * PAGE_BYTES + 101), Some((PAGE_BYTES - 1, 0, 0)));
        assert_eq!((less(bill.bytes), less(bill.bytes + 1)), (Some((0, 0, 0)), None));
    }

    /// The free parts of pages of many removed children add up to pages for which their parent,
    /// at its limit, has no room.
    #[test]
    fn an_heir_at_its_limit_does_not_exceed_it() {
        let options = Options { charge_metadata: true, ..Harness::multigen_options(2048) };
        let mut harness = Harness::with_options(options, UNLIMITED);
        let parent = harness.task.memcg;
        let mut page = 0;
        let children: Vec<_> = (0..LEFT_BEHIND_MAX)
            .map(|number| {
                let child =
                    harness.core.add_child(parent, &number.to_string(), UNLIMITED, Time::ZERO).unwrap().id();
                harness.task = harness.core.new_task(child, 0);
                for _ in 0..7 {
                    // Each in a leaf of its own.
                    harness.bring(page, Arrival::default());
                    page += 64;
                }
                child
            })
            .collect();
        let core = &harness.core;
        let heir = core.memcg(parent);
        let max_pages = heir.usage_pages();
        heir.set_max_pages(max_pages);
        for &child in &children {
            core.remove_memcg(&harness.host, child).unwrap();
            core.drop_handle(child);
        }
        assert_eq!(core.subtree(parent).count(), 1, "no child keeps its number for its objects");
        assert_eq!((heir.usage_pages(), heir.memory().peak_pages()), (max_pages, max_pages));
        let unpaid_pages = heir.index_bytes() / PAGE_BYTES - heir.index_pages();
        assert!(unpaid_pages > 20, "{unpaid_pages} pages of {} bytes are unpaid", heir.index_bytes());
        core.validate().unwrap();
        assert_eq!(core.truncate(&harness.host, &harness.mapping, 0, 1 << 32), None);
        core.settle_index();
        assert_eq!((heir.usage_pages(), heir.index_bytes()), (0, 0));
        core.validate().unwrap();
    }
}
