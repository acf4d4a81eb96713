//! Folios that a scan took off the lists, and what it met on the way.

use crate::event::Sorted;
use crate::folio::{FolioId, GenIndex, Kind};

/// One isolated batch.
#[derive(Debug, Default)]
pub(crate) struct Isolated {
    /// In the order of isolation, which is the order in which they are examined.
    pub(crate) folios: Vec<FolioId>,
    /// Folios set aside because they could not be isolated; empty between scans.
    pub(crate) skipped: Vec<FolioId>,
    /// What the folios are.
    pub(crate) kind: Option<Kind>,
    /// Pages looked at: sorted, isolated and skipped. What counts as looked at before the reclaim loop of 7.2, says
    /// [`LockedLruvec::isolate`](super::LockedLruvec).
    pub(crate) scanned: u64,
    /// Pages moved to where they belong instead.
    pub(crate) sorted: u64,
    /// Of these, pages moved up because of their tier.
    pub(crate) protected: u64,
    /// Of the sorted pages, dirty ones of files, which 7.1 does not isolate.
    pub(crate) dirty: u64,
    /// Of these, those that nobody writes.
    pub(crate) unqueued_dirty: u64,
    /// Somebody wants to know which folios were sorted.
    pub(crate) observed: bool,
    /// These, where they went and why, if so.
    pub(crate) sorted_folios: Vec<(FolioId, GenIndex, Sorted)>,
}

impl Isolated {
    /// Empty, for the next batch; memory is kept.
    pub(crate) fn clear(&mut self) {
        self.folios.clear();
        self.skipped.clear();
        self.sorted_folios.clear();
        let Isolated { kind, scanned, sorted, protected, dirty, unqueued_dirty, .. } = self;
        (*kind, *scanned, *sorted, *protected, *dirty, *unqueued_dirty) = (None, 0, 0, 0, 0, 0);
    }

    /// Notes for an observer that a folio was sorted.
    #[inline]
    pub(crate) fn note_sorted(&mut self, folio: FolioId, to: GenIndex, why: Sorted) {
        if self.observed {
            self.sorted_folios.push((folio, to, why));
        }
    }
}
