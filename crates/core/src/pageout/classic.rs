//! Shrinking the lists of the classic LRU: inactive folios are examined and freed, active ones become inactive.
//!
//! Source: spec 80 §3, §4, §7, §8.

use super::{LastMapping, References};
use crate::Core;
use crate::event::ListedFrom;
use crate::folio::{FolioId, Kind};
use crate::host::{FlushReason, Host};
use crate::lru::Isolated;
use crate::lru::classic::balance::IO_COST;
use crate::mapping::Mapping;
use crate::memcg::{Counter, Memcg};
use crate::reclaim::{Orders, Scan, Tallies};

/// What a scan of an inactive list cost.
pub(super) struct Cost {
    kind: Kind,
    cost: u64,
}

impl Core {
    /// Looks at up to `request` pages of an inactive list, and frees what can be freed. Pages freed.
    pub(crate) fn shrink_inactive(
        &self,
        host: &impl Host,
        memcg: &Memcg,
        kind: Kind,
        request: u64,
        orders: &Orders,
        scan: &mut Scan,
    ) -> u64 {
        let mut batch = std::mem::take(&mut scan.batch);
        batch.clear();
        scan.last_mapping = LastMapping::default();
        self.drain(host, orders.cpu);
        self.isolate_classic(host, memcg, (kind, false), request, &mut batch);
        self.tell_isolated(host, memcg, &batch);
        if batch.scanned > 0 {
            memcg.stat.add(orders.kind.pgscan(), batch.scanned);
            let counter = if kind == Kind::Anon { Counter::PgscanAnon } else { Counter::PgscanFile };
            memcg.stat.add(counter, batch.scanned);
        }
        let taken = batch.folios.len() as u64;
        scan.progress.scanned += taken;
        let mut reclaimed = 0;
        if taken > 0 {
            self.node.note_isolated(kind, taken);
            let mut rejected = std::mem::take(&mut scan.rejected);
            let (tallies, freed) =
                self.examine_and_free(host, memcg, orders, scan, &batch.folios, &mut rejected);
            let cost = IO_COST * tallies.swapped + (batch.scanned - freed);
            self.put_back_classic(host, memcg, scan, &mut rejected, Some(Cost { kind, cost }));
            scan.rejected = rejected;
            self.node.note_put_back(kind, taken);
            if tallies.unqueued_dirty == taken {
                host.wake_flusher(FlushReason::Reclaim);
            }
            scan.tallies.add(&Tallies { taken, ..tallies });
            reclaimed = freed;
        }
        scan.batch = batch;
        reclaimed
    }

    /// Makes up to `request` pages of an active list inactive, in their order (spec 80 §4). They lose their accessed bits,
    /// and nothing else that was said for them.
    pub(crate) fn shrink_active(
        &self,
        host: &impl Host,
        memcg: &Memcg,
        kind: Kind,
        request: u64,
        cpu: usize,
        scan: &mut Scan,
    ) {
        let mut batch = std::mem::take(&mut scan.batch);
        batch.clear();
        scan.last_mapping = LastMapping::default();
        self.drain(host, cpu);
        self.isolate_classic(host, memcg, (kind, true), request, &mut batch);
        self.tell_isolated(host, memcg, &batch);
        if batch.scanned > 0 {
            memcg.stat.add(Counter::Pgrefill, batch.scanned);
        }
        let taken = batch.folios.len() as u64;
        self.node.note_isolated(kind, taken);
        let mut deactivated = 0;
        for &folio in &batch.folios {
            let flags = self.folios.flags(folio);
            let now = flags.load();
            if !self.is_evictable(&mut scan.last_mapping, folio, now) {
                continue;
            }
            let mapping = scan.last_mapping.get(self, self.mapping_of(folio));
            if let (true, Some(mapping)) = (now.mapped(), mapping) {
                self.take_accessed(mapping, folio);
            }
            flags.deactivate();
            deactivated += 1;
        }
        if deactivated > 0 {
            memcg.stat.add(Counter::Pgdeactivate, deactivated);
        }
        self.put_back_classic(host, memcg, scan, &mut batch.folios, None);
        self.node.note_put_back(kind, taken);
        scan.batch = batch;
    }

    /// Takes up to `request` pages off a list. What its heir has is not for those to take who are after its own.
    fn isolate_classic(
        &self,
        host: &impl Host,
        memcg: &Memcg,
        (kind, active): (Kind, bool),
        request: u64,
        batch: &mut Isolated,
    ) {
        let mut locked = memcg.lruvec.lock(&self.folios);
        if memcg.heir().is_none() {
            locked.isolate_from(host, kind, active, request, batch);
        }
    }

    /// Tests and clears the accessed bit of a folio, if its mapping is one in which use says something.
    fn take_accessed(&self, mapping: &Mapping, folio: FolioId) -> bool {
        let slot = mapping.slot(&self.leaves, self.folios.index(folio));
        mapping.has_recency() && slot.is_some_and(|slot| slot.clear_accessed(folio))
    }

    /// The reference check (spec 80 §3). A folio has one mapping at most, and none is executable.
    pub(super) fn check_references_classic(&self, mapping: &Mapping, folio: FolioId) -> References {
        let flags = self.folios.flags(folio);
        let young = flags.load().mapped() && self.take_accessed(mapping, folio);
        match (young, flags.take_referenced(young)) {
            (false, _) => References::None,
            (true, false) => References::First,
            (true, true) => References::Again,
        }
    }

    /// Puts isolated folios back, the earliest first, each at the head of the list that its state names.
    ///
    /// The clock goes on by the number of activated ones. With `batch_nonresident_age` that is done at once and after the
    /// lock is given back, in the walk that notes the cost; without, folio by folio (spec 80 §8, remedies 1, 2 and 4).
    /// Noting the cost takes over the lock in either case (remedy 3), as in all kernels that were measured.
    pub(super) fn put_back_classic(
        &self,
        host: &impl Host,
        memcg: &Memcg,
        scan: &mut Scan,
        folios: &mut Vec<FolioId>,
        cost: Option<Cost>,
    ) {
        let batched = self.mechanisms().batch_nonresident_age();
        let mut back = std::mem::take(&mut scan.back);
        back.extend(folios.drain(..).map(|folio| {
            let now = self.folios.flags(folio).load();
            (folio, !self.is_evictable(&mut scan.last_mapping, folio, now))
        }));
        let mut activated = 0;
        if !back.is_empty() || cost.as_ref().is_some_and(|cost| cost.cost > 0) {
            let (owner, mut locked) = self.lock_living(memcg.id());
            let mut went = None;
            for &(folio, unevictable) in &back {
                went = self.adopt(owner, folio).or(went);
                if unevictable {
                    locked.add_unevictable(folio);
                    self.tell_listed(host, owner, folio, ListedFrom::Isolation);
                    continue;
                }
                let active = self.folios.flags(folio).load().active();
                locked.add(folio, false);
                self.tell_listed(host, owner, folio, ListedFrom::Isolation);
                if !active {
                } else if batched {
                    activated += 1;
                } else {
                    self.advance_nonresident_age(owner, 1);
                }
            }
            self.grew(owner);
            let Cost { kind, cost } = cost.unwrap_or(Cost { kind: Kind::File, cost: 0 });
            self.note_cost(host, owner, Some(locked), kind, cost, activated);
            if let Some(went) = went {
                self.release_if_unused(self.memcg(went));
            }
            for (folio, _) in back.drain(..) {
                self.put(host, folio);
            }
        }
        scan.back = back;
    }
}
