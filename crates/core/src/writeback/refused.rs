//! Refused pages: those whose last write failed. They stay in memory, dirty, until a write
//! succeeds.
//!
//! A file or device that takes no writes must not stop writers to others. So refused pages do not
//! count as dirty, up to twice the limit of dirty pages. They shrink that limit instead, to half of
//! what they leave of twice the limit. So each file that turns out to be failing adds less than the
//! one before, and writers to healthy files always go on.
//!
//! From the background threshold on, writers to a file with refused pages get its error
//! ([`Core::refuses_more`]). The flusher retries such files with delays of their own.
//!
//! The kernel needs none of this: it drops pages that a device refuses.
//!
//! # Locking
//!
//! The table of refused pages is a leaf, below the locks of mappings. Pages are added and, if they
//! are not under writeback, removed under the lock of their part of the mapping.

use super::DirtyLevel;
use crate::Core;
use crate::mapping::{Mapping, MappingId};
use crate::memcg::{Memcg, MemcgId};
use crate::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// Refused pages by file.
#[derive(Debug, Default)]
pub(super) struct Refused {
    files: Mutex<BTreeMap<MappingId, BTreeSet<u32>>>,
}

impl Refused {
    /// Adds a page. `true`: it was not refused before.
    pub(super) fn add(&self, mapping: MappingId, index: u32) -> bool {
        self.files.lock().entry(mapping).or_default().insert(index)
    }

    /// Removes a page. `true`: it was refused.
    pub(super) fn remove(&self, mapping: MappingId, index: u32) -> bool {
        let mut files = self.files.lock();
        let Some(pages) = files.get_mut(&mapping) else { return false };
        let was_refused = pages.remove(&index);
        if pages.is_empty() {
            files.remove(&mapping);
        }
        was_refused
    }

    pub(super) fn has(&self, mapping: MappingId, index: u32) -> bool {
        self.files.lock().get(&mapping).is_some_and(|pages| pages.contains(&index))
    }

    pub(super) fn has_file(&self, mapping: MappingId) -> bool {
        self.files.lock().contains_key(&mapping)
    }

    /// Files with such pages.
    pub(super) fn files(&self) -> BTreeSet<MappingId> {
        self.files.lock().keys().copied().collect()
    }

    /// Their number of pages.
    pub(super) fn pages(&self) -> u64 {
        self.files.lock().values().map(|pages| pages.len() as u64).sum()
    }
}

impl DirtyLevel<'_> {
    /// Pages known to be dirty or under writeback, without refused ones up to twice the limit.
    pub(super) fn counted_pages(&self) -> u64 {
        let pages = if self.is_late { self.pending.known_dirty_pages().1 } else { self.pending.pages() };
        pages.saturating_sub(self.pending.refused_pages().min(2 * self.full_limits.pages))
    }

    /// Dirty pages that the flusher finds, now or at the last refresh, if that is more; without
    /// refused ones up to twice the limit.
    pub(super) fn counted_dirty_pages(&self) -> u64 {
        let known = if self.is_late { self.pending.known_dirty_pages().0 } else { 0 };
        let left_out = self.pending.refused_dirty_pages().min(2 * self.full_limits.pages);
        self.pending.dirty_pages().max(known).saturating_sub(left_out)
    }

    /// Whether so many pages are refused that no more should be.
    pub(super) fn refuses_more(&self) -> bool {
        self.pending.refused_pages() > self.full_limits.background_pages
    }
}

impl Core {
    /// Whether a task must not dirty more pages of this file: it has refused pages, and so many
    /// pages are refused that `memcg` or an ancestor pays for, or of all, that no more should be.
    /// Then wake the flusher, which retries such files about every tenth of a second.
    pub fn refuses_more(&self, memcg: MemcgId, mapping: &Mapping) -> bool {
        self.has_refused()
            && self.flushing.refused.has_file(mapping.id())
            && self.dirty_levels(self.memcgs.payer(memcg)).any(|level| level.refuses_more())
    }

    /// Whether any page is refused.
    pub(super) fn has_refused(&self) -> bool {
        self.node.pending.refused_pages() > 0
    }

    /// The write of a page failed; it is dirty. The caller holds the lock of its part.
    pub(super) fn note_refused(&self, mapping: &Mapping, index: u32, memcg: &Memcg) {
        let was_refused = !self.flushing.refused.add(mapping.id(), index);
        self.each_pending(memcg, |pending| pending.change_refused(1, -i64::from(was_refused)));
    }

    /// A dirty page is being written. The caller holds the lock of its part.
    pub(super) fn note_tried_again(&self, mapping: &Mapping, index: u32, memcg: &Memcg) {
        if self.has_refused() && self.flushing.refused.has(mapping.id(), index) {
            self.each_pending(memcg, |pending| pending.change_refused(-1, 1));
        }
    }

    /// A page was written, or left its file. It is one of `dirty` pages or of those under
    /// `writeback`.
    pub(super) fn note_not_refused(
        &self,
        mapping: &Mapping,
        index: u32,
        memcg: &Memcg,
        (dirty, writeback): (i64, i64),
    ) {
        if self.has_refused() && self.flushing.refused.remove(mapping.id(), index) {
            self.each_pending(memcg, |pending| pending.change_refused(-dirty, -writeback));
        }
    }

    /// Checks the count of refused pages.
    pub(crate) fn validate_refused(&self) -> Result<(), String> {
        let (listed, counted) = (self.flushing.refused.pages(), self.node.pending.refused_pages());
        if listed == counted {
            return Ok(());
        }
        Err(format!("{listed} pages are refused, and {counted} counted"))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::mapping::Mapping;
    use crate::testing::Harness;
    use crate::writeback::Dirtier;
    use crate::{Kind, Options};

    /// Starts the writes of all dirty pages and ends them.
    fn write_out(harness: &Harness, written: bool) {
        for folio in harness.start_writeback() {
            harness.core.end_writeback(&harness.host, &harness.mapping, folio, written, 0);
        }
    }

    /// Whether a task of the harness must pause.
    fn pauses(harness: &Harness) -> bool {
        harness.core.balance_dirty(&harness.host, harness.task.memcg, &mut Dirtier::default()).is_some()
    }

    #[test]
    fn refused_pages_leave_writers_of_other_files_their_limits() {
        // 200 may be dirty, and as many refused.
        for memcg_limits in [false, true] {
            let frames = if memcg_limits { 10_000 } else { 1000 };
            let options = Options { memcg_dirty_limits: memcg_limits, ..Options::new(frames) };
            let mut harness = Harness::with_options(options, 1000);
            let refuses =
                |harness: &Harness, file: &Mapping| harness.core.refuses_more(harness.task.memcg, file);
            harness.read_ahead(0..300);
            (0..100).for_each(|page| harness.write(page));
            write_out(&harness, false);
            assert!(!refuses(&harness, &harness.mapping), "not above the background threshold");
            (100..249).for_each(|page| harness.write(page));
            assert!(!pauses(&harness));
            harness.write(249);
            assert!(pauses(&harness), "150 dirty pages beside 100 refused");
            (250..300).for_each(|page| harness.write(page));
            write_out(&harness, false);
            assert!(refuses(&harness, &harness.mapping) && !pauses(&harness), "300 refused");
            // Refused pages are left out while they are written again.
            let written = harness.start_writeback();
            assert!(refuses(&harness, &harness.mapping) && !pauses(&harness));
            for (at, folio) in written.into_iter().enumerate() {
                harness.core.end_writeback(&harness.host, &harness.mapping, folio, at < 100, 0);
            }
            harness.core.validate().unwrap();
            let other = harness.core.open_mapping(Kind::File);
            let refused = std::mem::replace(&mut harness.mapping, other);
            harness.read_ahead(0..100);
            (0..99).for_each(|page| harness.write(page));
            assert!(!pauses(&harness));
            assert!(refuses(&harness, &refused) && !refuses(&harness, &harness.mapping));
            harness.write(99);
            assert!(pauses(&harness), "100 dirty pages beside 200 refused");
            assert_eq!(harness.core.truncate(&harness.host, &refused, 0, 1 << 32), None);
            assert!(!refuses(&harness, &refused));
            write_out(&harness, true);
            assert_eq!(harness.core.pending_pages(), 0);
            harness.core.validate().unwrap();
        }
    }

    /// A page that was written to during its failed write, and then is written, is like any other.
    #[test]
    fn a_written_page_is_refused_no_more() {
        let mut harness = Harness::with_options(Options::new(1000), 1000);
        harness.read_ahead(0..1);
        let counts = |harness: &Harness| {
            let pending = &harness.core.node.pending;
            (pending.refused_dirty_pages(), pending.refused_pages(), pending.dirty_pages())
        };
        harness.write(0);
        let folios = harness.start_writeback();
        harness.write(0);
        harness.core.end_writeback(&harness.host, &harness.mapping, folios[0], false, 0);
        assert_eq!(counts(&harness), (1, 1, 1));
        let folios = harness.start_writeback();
        assert_eq!(counts(&harness), (0, 1, 0));
        harness.write(0);
        assert_eq!(counts(&harness), (0, 1, 1));
        harness.core.end_writeback(&harness.host, &harness.mapping, folios[0], true, 0);
        assert_eq!(counts(&harness), (0, 0, 1));
        harness.core.validate().unwrap();
    }
}
