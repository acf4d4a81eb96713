//! The generation lists of one lruvec: adding and removing folios.

use super::feedback::Averages;
use crate::folio::{FolioId, FolioLists, GenIndex, Kind};
use crate::lru::{LockedLruvec, MAX_GENERATIONS, Seq};

/// Lists of four generations × two kinds, then the unevictable list.
const LISTS: usize = MAX_GENERATIONS as usize * 2 + 1;
pub(crate) const UNEVICTABLE: usize = LISTS - 1;

/// Number of the list of a generation and kind.
pub(crate) fn list_of(generation: GenIndex, kind: Kind) -> usize {
    usize::from(generation.0) * 2 + kind as usize
}

/// What the lruvec lock protects.
#[derive(Debug)]
pub(crate) struct MultiGen {
    pub(crate) lists: FolioLists<LISTS>,
    pub(crate) averages: [Averages; 2],
}

impl MultiGen {
    pub(crate) fn new() -> MultiGen {
        MultiGen { lists: FolioLists::new(), averages: Default::default() }
    }
}

impl LockedLruvec<'_> {
    /// Puts a folio where the distance rule says: at the head, or at the tail as a rotation.
    pub(crate) fn add(&mut self, folio: FolioId, rotation: bool) -> Seq {
        let flags = &self.folios.get(folio).flags;
        let kind = self.kind_of(folio);
        let seq = self.lruvec.window.place(kind, flags.load(), rotation);
        flags.enlist(seq.index());
        self.resize(seq.index(), kind, 1);
        let list = list_of(seq.index(), kind);
        if rotation {
            self.lists.lists.push_tail(self.folios, list, folio);
        } else {
            self.lists.lists.push_head(self.folios, list, folio);
        }
        seq
    }

    /// Puts a folio that must not be reclaimed out of the way of scans.
    pub(crate) fn add_unevictable(&mut self, folio: FolioId) {
        self.folios.get(folio).flags.enlist_unevictable();
        self.resize_unevictable(1);
        self.lists.lists.push_head(self.folios, UNEVICTABLE, folio);
    }

    /// Takes a folio off its list, whichever that is. The caller has cleared its `lru` flag.
    pub(crate) fn remove(&mut self, folio: FolioId) {
        let kind = self.kind_of(folio);
        self.lists.lists.remove(self.folios, folio);
        match self.folios.get(folio).flags.delist() {
            Some(generation) => self.resize(generation, kind, -1),
            None => self.resize_unevictable(-1),
        }
    }

    /// Moves a folio that stays on lists to the head or tail of a generation's list; label and sizes as they are.
    pub(crate) fn relist(&mut self, folio: FolioId, list: usize, at_head: bool) {
        self.lists.lists.remove(self.folios, folio);
        if at_head {
            self.lists.lists.push_head(self.folios, list, folio);
        } else {
            self.lists.lists.push_tail(self.folios, list, folio);
        }
    }

    /// The scan's next folio of a generation.
    pub(crate) fn tail(&self, generation: GenIndex, kind: Kind) -> Option<FolioId> {
        self.lists.lists.tail(list_of(generation, kind))
    }

    pub(crate) fn is_empty(&self, generation: GenIndex, kind: Kind) -> bool {
        self.lists.lists.is_empty(list_of(generation, kind))
    }
}
