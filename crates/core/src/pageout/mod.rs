//! What becomes of cold pages: carrying out verdicts, and putting rejected folios back.
//!
//! Source: spec 40 §8–10 (Linux 7.2).
//!
//! # Locking
//!
//! Folios here are isolated: this thread owns their list membership. Each is examined with its folio lock, which is
//! only tried. A folio leaves its mapping under the mapping lock, in the same moment in which its last references
//! are taken.

mod verdict;

pub use verdict::{Facts, Reason, References, Verdict, judge};

use crate::Core;
use crate::event::Event;
use crate::folio::{Flags, FolioId, Kind};
use crate::host::{FlushReason, Host};
use crate::lru::Swappiness;
use crate::lru::multigen::walk::WalkBatch;
use crate::mapping::{Mapping, MappingId};
use crate::memcg::{Counter, Memcg};
use crate::reclaim::{EffortKind, Orders, Scan, Tallies};
use crate::workingset::Shadow;
use std::sync::Arc;

/// References of an isolated folio that nobody else uses: the mapping's and the isolation's.
const EXPECTED_REFERENCES: u32 = 2;

/// The mapping that was used last: folios that are neighbours on a list often belong to the same file.
#[derive(Debug, Default)]
pub(crate) struct LastMapping(Option<Arc<Mapping>>);

impl LastMapping {
    fn get(&mut self, core: &Core, id: MappingId) -> Option<&Arc<Mapping>> {
        if self.0.as_ref().is_none_or(|mapping| mapping.id() != id) {
            self.0 = core.mappings.get(id);
        }
        self.0.as_ref()
    }
}

impl Core {
    /// One eviction step: isolate, examine, put back (spec 40 §1). Pages looked at.
    pub(crate) fn evict_step(
        &self,
        host: &impl Host,
        memcg: &Memcg,
        request: u64,
        swappiness: Swappiness,
        orders: &Orders,
        scan: &mut Scan,
    ) -> u64 {
        let mut batch = std::mem::take(&mut scan.batch);
        batch.clear();
        memcg.lruvec.lock(&self.folios).isolate(request, swappiness, &mut batch);
        let scanned = batch.scanned;
        self.count_scan(memcg, orders.kind, &batch);
        scan.progress.scanned += batch.folios.len() as u64;
        if !batch.folios.is_empty() {
            let taken = batch.folios.len() as u64;
            let tallies = self.shrink(host, memcg, orders, scan, &mut batch.folios, true);
            if tallies.unqueued_dirty == taken {
                // Every page of the batch is dirty and nobody writes it.
                host.wake_flusher(FlushReason::Reclaim);
            }
            scan.tallies.add(&Tallies { taken, ..tallies });
            if !batch.folios.is_empty() {
                self.shrink(host, memcg, orders, scan, &mut batch.folios, false);
            }
        }
        if let Some(walk) = &mut scan.walk {
            walk.flush(&memcg.lruvec, &self.folios);
        }
        scan.batch = batch;
        scanned
    }

    fn count_scan(&self, memcg: &Memcg, kind: EffortKind, batch: &crate::lru::Isolated) {
        let isolated = batch.folios.len() as u64;
        if isolated > 0 {
            memcg.stat.add(kind.pgscan(), isolated);
            let anon = batch.kind == Some(Kind::Anon);
            memcg.stat.add(if anon { Counter::PgscanAnon } else { Counter::PgscanFile }, isolated);
        }
        if batch.sorted > 0 {
            memcg.stat.add(Counter::Pgrefill, batch.sorted);
        }
        if batch.protected > 0 {
            memcg.stat.add(Counter::Pgprotected, batch.protected);
        }
    }

    /// Examines isolated folios, frees what can be freed and puts the rest back. With `retry`, clean folios that
    /// were only rejected by chance are left in `folios` for one more try.
    fn shrink(
        &self,
        host: &impl Host,
        memcg: &Memcg,
        orders: &Orders,
        scan: &mut Scan,
        folios: &mut Vec<FolioId>,
        retry: bool,
    ) -> Tallies {
        let mut tallies = Tallies::default();
        let mut rejected = std::mem::take(&mut scan.rejected);
        let mut freed = [0u64; 2];
        for &folio in folios.iter() {
            let kind = if self.folios.get(folio).flags.load().swapbacked() { Kind::Anon } else { Kind::File };
            if self.examine(host, memcg, orders, scan, folio, &mut tallies) {
                freed[kind as usize] += 1;
            } else {
                rejected.push(folio);
            }
        }
        folios.clear();
        let total = freed[0] + freed[1];
        if total > 0 {
            memcg.stat.add(orders.kind.pgsteal(), total);
            memcg.stat.add(Counter::PgstealAnon, freed[Kind::Anon as usize]);
            memcg.stat.add(Counter::PgstealFile, freed[Kind::File as usize]);
            scan.progress.reclaimed += total;
        }
        self.put_back(host, memcg, scan, &mut rejected, retry, folios);
        scan.rejected = rejected;
        tallies
    }

    fn is_evictable(&self, last: &mut LastMapping, folio: FolioId, flags: Flags) -> bool {
        let mapping = last.get(self, self.mapping_of(folio));
        !flags.mlocked() && !mapping.is_some_and(|mapping| mapping.is_unevictable())
    }

    /// Judges one folio until it is settled. `true`: it was freed.
    fn examine(
        &self,
        host: &impl Host,
        memcg: &Memcg,
        orders: &Orders,
        scan: &mut Scan,
        folio: FolioId,
        tallies: &mut Tallies,
    ) -> bool {
        let flags = &self.folios.get(folio).flags;
        let locked = flags.try_lock();
        let now = flags.load();
        if locked && !now.swapbacked() {
            tallies.dirty += u64::from(now.dirty() || now.writeback());
            tallies.unqueued_dirty += u64::from(now.dirty() && !now.writeback());
            tallies.congested += u64::from(now.writeback() && now.reclaim());
        }
        let mut references = None;
        let freed = loop {
            let now = flags.load();
            let verdict = judge(Facts {
                locked_by_other: !locked,
                evictable: self.is_evictable(&mut scan.last_mapping, folio, now),
                mapped: now.mapped(),
                writeback: now.writeback(),
                reclaim: now.reclaim(),
                dirty: now.dirty(),
                kind: if now.swapbacked() { Kind::Anon } else { Kind::File },
                node_writeback: orders.kind == EffortKind::Background && self.node.is_full_of_writeback(),
                references,
            });
            match verdict {
                Verdict::LookAtMappings => {
                    references = Some(self.check_references(host, memcg, orders.cpu, scan, folio));
                }
                Verdict::Unmap => {
                    if let Some(mapping) = scan.last_mapping.get(self, self.mapping_of(folio)) {
                        self.unmap_folio(mapping, memcg, folio);
                    } else {
                        flags.clear_mapped();
                    }
                }
                Verdict::Free => break self.free_isolated(host, memcg, scan, folio),
                Verdict::Keep(_) => break false,
                Verdict::Activate(reason) => {
                    match reason {
                        Reason::Immediate => tallies.immediate += 1,
                        Reason::Writeback => {
                            tallies.writeback += 1;
                            flags.set_reclaim();
                        }
                        Reason::Dirty => {
                            flags.set_reclaim();
                            memcg.stat.add(Counter::NrVmscanImmediateReclaim, 1);
                        }
                        _ => {}
                    }
                    if !now.mlocked() {
                        flags.set_active();
                        memcg.stat.add(Counter::Pgactivate, 1);
                    }
                    break false;
                }
            }
        };
        if locked && !freed && flags.unlock() {
            host.wake_waiters(folio);
        }
        freed
    }

    /// Reads the accessed bits of a mapped folio.
    fn check_references(
        &self,
        host: &impl Host,
        memcg: &Memcg,
        cpu: usize,
        scan: &mut Scan,
        folio: FolioId,
    ) -> References {
        let Some(mapping) = scan.last_mapping.get(self, self.mapping_of(folio)) else {
            return References::None;
        };
        let walk: Option<&mut WalkBatch> = scan.walk.as_mut();
        if !self.look_around(host, memcg, mapping, folio, cpu, walk) || !mapping.has_recency() {
            return References::None;
        }
        if self.folios.get(folio).flags.found_young_by_eviction() {
            References::Again
        } else {
            References::First
        }
    }

    /// Takes a folio out of its mapping, leaving a shadow, and frees it, if nobody uses it. It is locked and isolated.
    fn free_isolated(&self, host: &impl Host, memcg: &Memcg, scan: &mut Scan, folio: FolioId) -> bool {
        let id = self.mapping_of(folio);
        let Some(mapping) = scan.last_mapping.get(self, id) else { return false };
        let index = self.folios.get(folio).index();
        let mut locked = mapping.lock(&self.leaves);
        // A folio that was truncated while it was isolated is no longer there; the references that it has are others'.
        if locked.slot(index).folio() != Some(folio) {
            return false;
        }
        let Some(before) = self.folios.get(folio).flags.freeze(EXPECTED_REFERENCES) else { return false };
        let word = memcg.lruvec.evicted(mapping.kind(), before);
        let shadow_leaf = locked.remove(index, folio, Some(word)).expect("the folio is in its slot");
        drop(locked);
        if before.waiters() {
            host.wake_waiters(folio);
        }
        host.event(Event::Evicted { page: (id, index), memcg: memcg.id(), shadow: Shadow::unpack(word) });
        let kind = mapping.kind();
        if let Some(leaf) = shadow_leaf {
            self.note_shadow_leaf(memcg, leaf);
        }
        self.forget_folio(memcg, kind);
        self.release_frame(memcg, folio);
        true
    }

    /// Puts rejected folios back, the earliest first (spec 40 §9). Those to try again go to `again`.
    fn put_back(
        &self,
        host: &impl Host,
        memcg: &Memcg,
        scan: &mut Scan,
        rejected: &mut Vec<FolioId>,
        retry: bool,
        again: &mut Vec<FolioId>,
    ) {
        if rejected.is_empty() {
            return;
        }
        let window = &memcg.lruvec.window;
        let mut back = std::mem::take(&mut scan.back);
        for folio in rejected.drain(..) {
            let flags = &self.folios.get(folio).flags;
            let now = flags.load();
            let kind = if now.swapbacked() { Kind::Anon } else { Kind::File };
            if !self.is_evictable(&mut scan.last_mapping, folio, now) {
                back.push((folio, true));
                continue;
            }
            if retry && !now.active() && !now.mapped() && !now.dirty() && !now.writeback() {
                again.push(folio);
                continue;
            }
            if window.place(kind, now, false) == window.min(kind) {
                flags.reject();
            }
            back.push((folio, false));
        }
        if !back.is_empty() {
            let mut locked = memcg.lruvec.lock(&self.folios);
            for &(folio, unevictable) in &back {
                if unevictable {
                    locked.add_unevictable(folio);
                } else {
                    locked.add(folio, false);
                }
            }
            drop(locked);
            for (folio, _) in back.drain(..) {
                self.put(host, folio);
            }
        }
        scan.back = back;
    }
}
