//! Frames that pay for metadata: the index, and what hosts keep per file, handle or tenant.
//!
//! With [`crate::Options::charge_metadata`], the index is part of the budget of memory: for each
//! page of memory that it takes, one frame is *retired*, and its memory goes back to the system.
//! Frames return to pages when the index becomes smaller. The memcgs that pay for it in bytes are
//! another matter ([`crate::memcg::HostCharge`]).
//!
//! # Locking
//!
//! A thread that pays for more of the index holds the lock of its growth, so that two threads do
//! not add two pieces for the price of one.

use crate::Core;
use crate::host::Host;
use crate::mapping::Mapping;
use crate::memcg::{Counter, IndexPaid};
use crate::options::PAGE_BYTES;
use crate::workingset;

/// Frames that are returned together after small objects were freed.
const RETURNED_MIN: u64 = 16;

/// Why a page gets no room in the index yet.
pub(super) enum MetadataShort {
    /// Too few frames pay for it: reclaim, then try again.
    Frames,
    /// The memcg must pay for more than the charge began with.
    Unpaid,
}

impl Core {
    /// Reserves a leaf, and creates the directory of `place`, with what was paid for the index. If
    /// metadata is part of the budget, retires one frame per page of memory that leaves and
    /// directories take.
    ///
    /// Only a request that makes the index larger needs a frame. Without a free one, it returns
    /// unused memory of the index and, after a reclaim effort or if reclaim cannot help, gives up
    /// shadows. Other requests go on.
    #[inline]
    pub(super) fn pay_for_metadata(
        &self,
        host: &impl Host,
        cpu: usize,
        urgent: bool,
        place: Option<(&Mapping, u32, &mut IndexPaid)>,
    ) -> Result<(), MetadataShort> {
        // For the metadata of hosts and filters: one effort per request. The request that added the
        // metadata insists on its own (`Self::owes_frames`).
        let owed = self.leaves.bytes();
        if self.pay_for(host, urgent, owed).is_err() && !urgent && self.may_retire(owed) {
            return Err(MetadataShort::Frames);
        }
        if let Some((mapping, index, paid)) = place {
            self.pay_for_directory(host, urgent, mapping, index, paid)?;
        }
        loop {
            if self.leaves.reserve(cpu) {
                return Ok(());
            }
            let growing = self.leaves.growing();
            if self.leaves.has_unreserved() {
                continue;
            }
            let bytes = self.leaves.bytes() + self.leaves.growth_bytes();
            if self.leaves.can_grow() && self.pay_for(host, urgent, bytes).is_ok() {
                self.leaves.grow();
                continue;
            }
            drop(growing);
            // Shadows fill all leaves that may exist: once reclaim has run, they give way to pages.
            let may_have_more = self.leaves.can_grow() && !urgent && self.may_retire(bytes);
            if may_have_more || !workingset::give_up(self) {
                return Err(MetadataShort::Frames);
            }
        }
    }

    /// Creates the directory of a page if it is missing.
    fn pay_for_directory(
        &self,
        host: &impl Host,
        urgent: bool,
        mapping: &Mapping,
        index: u32,
        paid: &mut IndexPaid,
    ) -> Result<(), MetadataShort> {
        loop {
            let growing = self.leaves.growing();
            if mapping.has_directory(index) {
                return Ok(());
            }
            let grown = mapping.directory_growth_bytes(&self.leaves, index);
            let bytes = self.leaves.bytes() + grown;
            if grown == 0 || self.pay_for(host, urgent, bytes).is_ok() {
                let mut locked = mapping.lock(&self.leaves, index);
                if locked.is_closed() {
                    // Nobody would free it. The insertion fails.
                    return Ok(());
                }
                if !self.try_pay(paid, mapping.missing_bytes(&self.leaves, index)) {
                    return Err(MetadataShort::Unpaid);
                }
                let (_, added) = locked.directory_or_new(index, paid.memcg);
                self.use_up_index(paid, added);
                return Ok(());
            }
            drop(growing);
            let may_have_more = !urgent && self.may_retire(bytes);
            if !self.shrink_index(host, !may_have_more) {
                return Err(MetadataShort::Frames);
            }
        }
    }

    /// Pays for `bytes` of index before they are added. `false`: a limit leaves no room for those
    /// that other threads have freed since the charge began.
    pub(super) fn try_pay(&self, paid: &mut IndexPaid, bytes: u64) -> bool {
        if !self.options.charge_metadata || bytes <= paid.bytes {
            return true;
        }
        let is_paid = self.memcgs.try_charge_index(paid.memcg, bytes - paid.bytes);
        if is_paid {
            paid.bytes = bytes;
        }
        is_paid
    }

    /// Counts bytes of the index that were paid for as existing.
    pub(crate) fn use_up_index(&self, paid: &mut IndexPaid, added_bytes: u64) {
        if self.options.charge_metadata && added_bytes > 0 {
            paid.bytes -= added_bytes;
            self.memcgs.living(paid.memcg).stat.add(Counter::SlabReclaimable, added_bytes);
        }
    }

    /// Returns unused memory of the index to the system, or else gives up some shadows if `shadows`
    /// allows that. Returns `false` if neither freed any.
    fn shrink_index(&self, host: &impl Host, shadows: bool) -> bool {
        let before = self.leaves.bytes();
        self.leaves.rest(host);
        self.leaves.bytes() < before || shadows && workingset::give_up(self)
    }

    /// Gives up index memory that no page needs: unused leaves and directories or, if there are
    /// none, some shadows. Returns `false` if there was nothing to give up.
    pub fn give_up_index(&self, host: &impl Host) -> bool {
        self.shrink_index(host, true)
    }

    /// Whether the maximum number of frames pays for the index.
    pub fn index_is_full(&self) -> bool {
        self.node.retired_pages() >= self.node.retired_max()
    }

    /// Whether frames could cover `bytes` of index if enough of them were free.
    fn may_retire(&self, bytes: u64) -> bool {
        bytes.div_ceil(PAGE_BYTES) <= u64::from(self.node.retired_max())
    }

    /// Retires frames until they cover `bytes` of index.
    #[inline]
    fn pay_for(&self, host: &impl Host, urgent: bool, bytes: u64) -> Result<(), MetadataShort> {
        let owed = bytes.div_ceil(PAGE_BYTES);
        while self.options.charge_metadata && u64::from(self.node.retired_pages()) < owed {
            if !self.node.retire(urgent, |frame| host.frame_retired(frame)) {
                return Err(MetadataShort::Frames);
            }
        }
        Ok(())
    }

    /// As [`Self::return_frames`], if that returns at least 16 frames.
    pub fn return_many_frames(&self, host: &impl Host) {
        if u64::from(self.node.retired_pages()) >= self.leaves.bytes().div_ceil(PAGE_BYTES) + RETURNED_MIN {
            self.return_frames(host);
        }
    }

    /// Returns the memory of unused leaves and directories to the system, and the frames that paid
    /// for it to pages. To be called after the index became smaller.
    pub fn return_frames(&self, host: &impl Host) {
        if !self.options.charge_metadata {
            return;
        }
        self.settle_index();
        // No thread pays for more index in the meantime.
        let _growing = self.leaves.growing();
        self.leaves.rest(host);
        let needed = || self.leaves.bytes().div_ceil(PAGE_BYTES);
        while self.node.restore(needed(), |frame| host.frame_restored(frame)) {}
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::testing::Harness;
    use crate::{Arrival, ChargeStep, Charging, InsertError, Kind, Options, UNLIMITED};

    /// A file is closed while a page of it is paid for, and a new file gets its number. The charge
    /// makes no directory in the new one, where no page needs it.
    #[test]
    fn another_mapping_of_the_number_gets_no_directory() {
        let options = Options { charge_metadata: true, ..Harness::multigen_options(2048) };
        let harness = Harness::with_options(options, UNLIMITED);
        let (core, host, task) = (&harness.core, &harness.host, &harness.task);
        let closed = core.open_mapping(Kind::File);
        let page = 1 << 16;
        let mut charging = Charging::new(task.memcg, 0).for_page(core, &closed, page);
        assert_eq!(core.close_mapping(host, &closed), None);
        let other = core.open_mapping(Kind::File);
        assert_eq!(other.id(), closed.id());
        let ChargeStep::Charged(new) = charging.step(core, host) else { panic!("there is room") };
        assert!(!other.has_directory(page) && !closed.has_directory(page));
        let inserted = core.insert(host, task, &closed, page, new, Arrival::default());
        assert_eq!(inserted, Err(InsertError::Closed));
        assert_eq!((harness.memcg().usage_pages(), harness.memcg().index_bytes()), (0, 0));
        core.validate().unwrap();
    }
}
