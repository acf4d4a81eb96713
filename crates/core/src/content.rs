//! Changing the bytes of a page in memory.
//!
//! ```text
//! begin_write ──► write the bytes ──► end_write      a page that is there
//! insert      ──► fill the frame  ──► end_filling    a new one: then set_dirty, unlock
//! try_lock, begin_content ─► … ─► end_content        where the lock is held for longer
//! ```
//!
//! # Locking
//!
//! The folio's lock. Readers take none: two marks, in the folio's word and in the slot, tell them
//! that bytes are changing, and the version in both tells that they have changed.

use crate::Core;
use crate::access::Hit;
use crate::folio::{Flags, FolioId, WriteAttempt};
use crate::host::Host;
use crate::lru;
use crate::mapping::Mapping;
use crate::sync::{Ordering, fence};

impl Core {
    /// Begins to change bytes of a page in memory: takes a reference and the lock of its folio.
    /// Only after [`WriteAttempt::Begun`], which [`Core::end_write`] must follow.
    pub fn begin_write(&self, host: &impl Host, mapping: &Mapping, index: u32, hit: &Hit) -> WriteAttempt {
        let flags = self.folios.flags(hit.folio);
        let attempt = flags.begin_write();
        if attempt != WriteAttempt::Begun {
            return attempt;
        }
        // A locked folio is neither truncated nor evicted: it stays this page until unlocked.
        if self.is_page(mapping, index, hit.folio) && mapping.still_there(&self.leaves, index, &hit.found) {
            self.mark_changing(mapping, hit.folio);
            return WriteAttempt::Begun;
        }
        self.end_hold(host, hit.folio, flags.cancel_write());
        WriteAttempt::Gone
    }

    /// Ends what [`Core::begin_write`] began, and makes the page dirty. `true`: it is a file page
    /// that was clean ([`Dirtier::dirtied`](crate::writeback::Dirtier::dirtied)).
    pub fn end_write(&self, host: &impl Host, mapping: &Mapping, folio: FolioId) -> bool {
        let flags = self.folios.flags(folio);
        lru::dirtied(self, folio);
        self.set_uptodate(mapping, folio, flags.load().version().wrapping_add(1));
        if let Some(ended) = flags.end_write() {
            self.end_hold(host, folio, ended);
            return false;
        }
        flags.end_content();
        let was_clean = self.set_dirty(host, mapping, folio);
        self.unlock(host, folio);
        self.put(host, folio);
        was_clean
    }

    /// After a step that dropped lock and reference, with what it returned.
    fn end_hold(&self, host: &impl Host, folio: FolioId, (after, wakes): (Flags, bool)) {
        if !after.is_held() {
            self.free(folio);
        }
        if wakes {
            host.wake_waiters(folio);
        }
    }

    /// As [`Self::publish`], but the caller keeps the lock, to make the page dirty before it can be
    /// evicted.
    pub fn end_filling(&self, mapping: &Mapping, folio: FolioId) {
        self.end_content(mapping, folio);
        self.end_reading(folio);
    }

    fn set_uptodate(&self, mapping: &Mapping, folio: FolioId, version: u32) {
        mapping.set_uptodate(&self.leaves, self.folios.index(folio), folio, version);
    }

    /// The lock holder begins to change the bytes: [`Self::confirm`] fails for copies taken from
    /// now on. `false`: the bytes are lent and must not change. The caller unlocks the folio before
    /// it waits, because the borrower may need to read the page before it gives it back.
    #[must_use]
    pub fn begin_content(&self, mapping: &Mapping, folio: FolioId) -> bool {
        if !self.folios.flags(folio).begin_content() {
            return false;
        }
        self.mark_changing(mapping, folio);
        true
    }

    /// Marks the slot, too: [`Core::glance`] looks at no folio.
    fn mark_changing(&self, mapping: &Mapping, folio: FolioId) {
        if let Some(slot) = mapping.slot(&self.leaves, self.folios.index(folio)) {
            slot.clear_uptodate(folio);
        }
        // A reader that sees a byte of the change sees both marks, too.
        fence(Ordering::Release);
    }

    /// Takes [`Self::begin_content`] back: no byte has changed, so earlier copies are valid.
    pub fn cancel_content(&self, host: &impl Host, mapping: &Mapping, folio: FolioId) {
        let flags = self.folios.flags(folio);
        self.set_uptodate(mapping, folio, flags.load().version());
        if flags.cancel_content() {
            host.wake_waiters(folio);
        }
    }

    /// Marks the bytes of a folio as valid again, under a new version.
    pub fn end_content(&self, mapping: &Mapping, folio: FolioId) {
        let version = self.folios.flags(folio).end_content();
        self.set_uptodate(mapping, folio, version);
    }

    /// As [`Self::end_content`], for a page of which a part was zeroed because the file ends there
    /// now. A mapped access that looked at the length before does not keep the slot settled.
    pub fn end_cut(&self, mapping: &Mapping, folio: FolioId) {
        if let Some(slot) = mapping.slot(&self.leaves, self.folios.index(folio)) {
            slot.unsettle();
        }
        self.end_content(mapping, folio);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::Harness;
    use crate::{Lru, Mechanisms, Options};

    const CPUS: usize = 32;

    fn harness(lru: Lru) -> Harness {
        let mechanisms = Mechanisms::default().with_lru(lru);
        let mut harness = Harness::with_options(Options { cpus: CPUS, mechanisms, ..Options::new(100) }, 100);
        harness.read_ahead([0]);
        harness.drain();
        harness
    }

    fn can_be_written(harness: &Harness) -> bool {
        let (core, host, mapping) = (&harness.core, &harness.host, &harness.mapping);
        let crate::Lookup::Hit(hit) = core.lookup(mapping, 0) else { panic!("it is cached") };
        let attempt = core.begin_write(host, mapping, 0, &hit);
        if attempt == WriteAttempt::Begun {
            core.end_write(host, mapping, hit.folio);
        }
        attempt == WriteAttempt::Begun
    }

    /// Advice about a mapped page waits in the batches of many CPUs, as does an activation of the
    /// classic LRU. Their references once filled the counter, and a writer looked the page up
    /// forever.
    #[test]
    fn a_page_that_waits_in_many_batches_can_be_written() {
        for lru in [Lru::Classic, Lru::Ranked] {
            let mut harness = harness(lru);
            harness.load(0);
            for cpu in 0..CPUS {
                (0..30).for_each(|_| harness.core.invalidate(&harness.host, &harness.mapping, 0, 1, cpu));
            }
            assert!(harness.flags(0).references() > 1 && can_be_written(&harness), "{}", lru.name());
            harness.core.drain_all(&harness.host);
            assert_eq!(harness.flags(0).references(), 1);
            harness.core.validate().unwrap();
        }
        let harness = harness(Lru::Classic);
        let hit = || match harness.core.lookup(&harness.mapping, 0) {
            crate::Lookup::Hit(hit) => hit,
            other => panic!("{other:?}"),
        };
        for cpu in 0..CPUS {
            (0..60).for_each(|_| harness.core.accessed(&harness.host, || cpu, &hit()));
        }
        assert!(harness.flags(0).references() > 1 && can_be_written(&harness));
        harness.core.drain_all(&harness.host);
        assert_eq!(harness.flags(0).references(), 1);
        harness.core.validate().unwrap();
    }
}
