//! The eviction: sorting the oldest generation, and isolating what neither accesses nor tiers protect.
//!
//! Source: spec 40 §1–7 (Linux 7.2).
//!
//! # Locking
//!
//! One scan of at most 64 folios holds the lruvec lock; what becomes of the isolated folios is decided and done
//! without it, in [`crate::pageout`].

use super::lists::list_of;
use crate::folio::{Climb, Kind, Tier};
use crate::lru::{Isolated, LockedLruvec, MIN_GENERATIONS, Swappiness};

/// Isolated (or skipped) pages at which a scan stops.
const STOP_PAGES: usize = 64;

impl LockedLruvec<'_> {
    /// Isolates up to `request` pages of the kind that suffers least, into an empty `batch`.
    pub(crate) fn isolate(&mut self, request: u64, swappiness: Swappiness, batch: &mut Isolated) {
        self.drop_empty_generations(swappiness);
        let mut kind = self.first_kind(swappiness);
        for _ in swappiness.evictable() {
            let before = batch.scanned;
            let limit = self.tier_limit(kind);
            self.scan(kind, limit, request, batch);
            if !batch.folios.is_empty() {
                break;
            }
            // Something was looked at, only not isolated: the same kind again.
            if batch.scanned == before && swappiness.evicts(kind.other()) {
                kind = kind.other();
            }
        }
        if batch.scanned > 0 {
            self.drop_empty_generations(swappiness);
        }
    }

    /// Scans the oldest generation of one kind from the tail. Tiers above `limit` are protected.
    fn scan(&mut self, kind: Kind, limit: Tier, request: u64, batch: &mut Isolated) {
        let window = &self.lruvec.window;
        if window.generations(kind) == MIN_GENERATIONS {
            return;
        }
        batch.kind = Some(kind);
        let oldest = window.min(kind).index();
        let mut left = request;
        while left > 0 && batch.folios.len() < STOP_PAGES && batch.skipped.len() < STOP_PAGES {
            let Some(folio) = self.tail(oldest, kind) else { break };
            left -= 1;
            batch.scanned += 1;
            if self.sort(folio, kind, oldest, limit, batch) {
                batch.sorted += 1;
                continue;
            }
            let flags = &self.folios.get(folio).flags;
            if flags.isolate() {
                flags.forget_stale_refs();
                self.remove(folio);
                batch.folios.push(folio);
            } else {
                // Being freed, or another thread has it. Out of the way until the scan is over.
                self.lists.lists.remove(self.folios, folio);
                batch.skipped.push(folio);
            }
        }
        for &folio in &batch.skipped {
            self.lists.lists.push_head(self.folios, list_of(oldest, kind), folio);
        }
        batch.skipped.clear();
    }

    /// Moves a folio to where it belongs if that is not here (spec 40 §6.1). `false`: it may be isolated.
    fn sort(
        &mut self,
        folio: crate::folio::FolioId,
        kind: Kind,
        oldest: crate::folio::GenIndex,
        limit: Tier,
        batch: &mut Isolated,
    ) -> bool {
        let flags = &self.folios.get(folio).flags;
        let now = flags.load();
        if now.mlocked() {
            // Passes to isolation; put-back sends it to the unevictable list.
            return false;
        }
        if let Some(label) = now.generation()
            && label != oldest
        {
            self.relist(folio, list_of(label, kind), true);
            return true;
        }
        if now.tier() <= limit && !now.saturated() {
            return false;
        }
        match flags.climb(oldest) {
            Climb::Moved(next) => {
                self.resize(oldest, kind, -1);
                self.resize(next, kind, 1);
                self.relist(folio, list_of(next, kind), true);
                batch.protected += 1;
                if !now.saturated() {
                    self.lists.averages[kind as usize].protected[usize::from(now.tier())] += 1;
                }
            }
            Climb::Relabelled(label) => self.relist(folio, list_of(label, kind), true),
        }
        true
    }
}
