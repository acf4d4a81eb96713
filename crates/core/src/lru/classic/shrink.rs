//! Shrinking active and inactive lists: inactive folios are isolated to be examined, active ones
//! are deactivated.
//!
//! Source: [book: classic-lru#reference-check], [book: classic-lru#deactivation],
//! [book: classic-lru#inactive-scan], [book: classic-lru#lru-lock].

use super::balance::{Cost, IO_COST};
use super::state::list_of;
use crate::Core;
use crate::event::{Event, ListedFrom};
use crate::folio::{FolioId, Kind};
use crate::host::{FlushReason, Host};
use crate::lru::accessed_bit::take_accessed;
use crate::lru::lists::{AHEAD, NEXT, TAIL};
use crate::lru::scan_control::{Context, Isolated, PagedOut, Scan, Tallies};
use crate::lru::{LockedLruvec, References, emit, order};
use crate::mapping::Mapping;
use crate::mechanism::Switch;
use crate::memcg::{Counter, Memcg};

impl LockedLruvec<'_> {
    /// Isolates up to `request` pages from the tail of a list into an empty `batch`. Folios that
    /// cannot be isolated count as scanned and move out of the way.
    pub(in crate::lru) fn isolate_from(
        &mut self,
        host: &impl Host,
        kind: Kind,
        active: bool,
        request: u64,
        batch: &mut Isolated,
    ) {
        batch.kind = Some(kind);
        let list = list_of(kind, active);
        match self.looks_ahead(list, true) {
            AHEAD => self.take::<AHEAD>(host, list, request, batch),
            NEXT => self.take::<NEXT>(host, list, request, batch),
            _ => self.take::<TAIL>(host, list, request, batch),
        }
    }

    fn take<const LOOK: u8>(&mut self, host: &impl Host, list: usize, request: u64, batch: &mut Isolated) {
        let mut next = None;
        while batch.scanned < request {
            let Some(folio) = next.or_else(|| self.lists.lists.tail(list)) else { break };
            next = self.look_ahead::<LOOK>(host, folio);
            batch.scanned += 1;
            if self.isolate_folio(host, folio) {
                batch.folios.push(folio);
            } else {
                self.relist(folio, list, true);
            }
        }
    }
}

/// Isolates up to `request` pages from the tail of a list. Pages that the memcg has handed
/// over to its heir are not part of the request.
fn isolate(cx: &mut Context<'_, impl Host>, memcg: &Memcg, (kind, active): (Kind, bool), request: u64) {
    let (core, host) = (cx.core, cx.host);
    let mut batch = cx.scan.take_batch(host);
    core.drain(host, cx.orders.cpu);
    let mut locked = memcg.lruvec.lock(&core.folios);
    if memcg.heir().is_none() {
        locked.isolate_from(host, kind, active, request, &mut batch);
    }
    drop(locked);
    batch.taken = batch.folios.len() as u64;
    emit::isolated(host, memcg, &batch);
    cx.scan.batch = batch;
}

/// Isolates up to `request` inactive pages, to be examined. `true`: the batch is not empty.
pub(super) fn isolate_inactive(
    cx: &mut Context<'_, impl Host>,
    memcg: &Memcg,
    kind: Kind,
    request: u64,
) -> bool {
    isolate(cx, memcg, (kind, false), request);
    let Isolated { scanned, taken, .. } = cx.scan.batch;
    if scanned > 0 {
        memcg.stat.add(cx.orders.kind.pgscan(), scanned);
        let counter = if kind == Kind::Anon { Counter::PgscanAnon } else { Counter::PgscanFile };
        memcg.stat.add(counter, scanned);
    }
    cx.scan.progress.scanned += taken;
    if taken > 0 {
        cx.core.node.note_isolated(kind, taken);
    }
    taken > 0
}

pub(super) fn put_back_inactive(cx: &mut Context<'_, impl Host>, memcg: &Memcg, outcome: PagedOut) {
    let (core, host) = (cx.core, cx.host);
    let PagedOut { tallies, freed } = outcome;
    let Isolated { kind, scanned, taken, .. } = cx.scan.batch;
    let kind = kind.expect("a batch of folios is of one kind");
    let pages = IO_COST * tallies.swapped + (scanned - freed);
    put_back(core, host, cx.scan, memcg, Some(Cost { kind, pages, aged: 0, scanned: true }));
    core.node.note_put_back(kind, taken);
    if tallies.unqueued_dirty == taken {
        host.wake_flusher(FlushReason::Reclaim);
    }
    cx.scan.tallies.add(&Tallies { taken, ..tallies });
}

/// Deactivates up to `request` pages of an active list, in their order
/// ([book: classic-lru#deactivation]). They lose their accessed bits but keep their flags.
pub(super) fn shrink_active(cx: &mut Context<'_, impl Host>, memcg: &Memcg, kind: Kind, request: u64) {
    isolate(cx, memcg, (kind, true), request);
    let (core, host) = (cx.core, cx.host);
    let Isolated { scanned, taken, .. } = cx.scan.batch;
    if scanned > 0 {
        memcg.stat.add(Counter::Pgrefill, scanned);
    }
    core.node.note_isolated(kind, taken);
    let Scan { batch, rejected, last_mapping, .. } = &mut *cx.scan;
    let mut deactivated = 0;
    for &folio in &batch.folios {
        let flags = core.folios.flags(folio);
        let now = flags.load();
        if now.mlocked() {
            continue;
        }
        let mapping = last_mapping.get(core, core.folios.mapping_of(folio));
        if let (true, Some(mapping)) = (now.mapped(), mapping) {
            take_accessed(core, mapping, folio);
        }
        flags.deactivate();
        deactivated += 1;
    }
    if deactivated > 0 {
        memcg.stat.add(Counter::Pgdeactivate, deactivated);
    }
    rejected.append(&mut batch.folios);
    if host.observes() && taken > 0 {
        host.event(Event::Deactivated { memcg: memcg.id(), kind, taken, deactivated });
    }
    put_back(core, host, cx.scan, memcg, None);
    core.node.note_put_back(kind, taken);
}

/// The reference check ([book: classic-lru#reference-check]). A folio has one mapping at most, and
/// none is executable.
pub(in crate::lru) fn references(core: &Core, mapping: &Mapping, folio: FolioId) -> References {
    let flags = core.folios.flags(folio);
    let young = flags.load().mapped() && take_accessed(core, mapping, folio);
    match (young, flags.take_referenced(young)) {
        (false, _) => References::None,
        (true, false) => References::First,
        (true, true) => References::Again,
    }
}

/// Puts isolated folios back in order, each at the head of the list that its state names.
///
/// The clock counts activated folios. `age_per_batch` adds them at once; without it, they are added
/// folio by folio ([book: classic-lru#lru-lock], remedy 1). `age_after_unlock` adds them after the
/// lock is released (remedy 2). With `age_with_cost` (remedy 4) the walk that notes the cost adds
/// those of a batch.
pub(in crate::lru) fn put_back(
    core: &Core,
    host: &impl Host,
    scan: &mut Scan,
    memcg: &Memcg,
    cost: Option<Cost>,
) {
    let mechanisms = core.mechanisms();
    let batched = mechanisms.is_on(Switch::AgePerBatch);
    let after_unlock = mechanisms.is_on(Switch::AgeAfterUnlock);
    let mut back = std::mem::take(&mut scan.back);
    back.extend(scan.rejected.drain(..).map(|folio| (folio, core.folios.flags(folio).load().mlocked())));
    let mut activated = 0;
    if !back.is_empty() || cost.as_ref().is_some_and(|cost| cost.has_effect(core)) {
        let (owner, mut locked) = core.lock_living(memcg.id());
        let mut went = None;
        for &(folio, unevictable) in &back {
            went = core.adopt(owner, folio).or(went);
            // Once more, under the lock, as in [`Core::put_back_isolated`].
            if unevictable && core.folios.flags(folio).load().mlocked() {
                locked.add_unevictable(folio);
                emit::listed(core, host, owner, folio, ListedFrom::Isolation);
                continue;
            }
            let active = core.folios.flags(folio).load().active();
            locked.place(folio, false);
            emit::listed(core, host, owner, folio, ListedFrom::Isolation);
            if !active {
            } else if batched || after_unlock {
                activated += 1;
            } else {
                core.memcgs.advance_nonresident_age(owner, 1);
            }
        }
        order::grew(core, owner);
        let cost = cost.unwrap_or(Cost { kind: Kind::File, pages: 0, aged: 0, scanned: false });
        let carried = if batched && mechanisms.is_on(Switch::AgeWithCost) { activated } else { 0 };
        let (times, pages) = if batched { (1, activated - carried) } else { (activated, 1) };
        let advance = || {
            (0..times.min(activated - carried))
                .for_each(|_| _ = core.memcgs.advance_nonresident_age(owner, pages));
        };
        if !after_unlock {
            advance();
        }
        Cost { aged: carried, ..cost }.note(core, host, owner, Some(locked));
        if after_unlock {
            advance();
        }
        if let Some(went) = went {
            core.release_if_unused(core.memcg(went));
        }
        for (folio, _) in back.drain(..) {
            core.put(host, folio);
        }
    }
    scan.back = back;
}
