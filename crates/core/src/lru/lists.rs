//! The lists of one lruvec, of all policies: adding and removing folios.
//!
//! They form one group, so that a folio is taken off whichever list it is on. The mark in its state
//! word names its policy.
//!
//! # Locking
//!
//! The lruvec lock: only [`LockedLruvec`] reaches the lists.

use super::LockedLruvec;
use super::terms::UNEVICTABLE;
use crate::folio::{Flags, FolioId};
use crate::host::Host;
use crate::mechanism::Switch;

/// A scan that looks at the tail of the list only.
pub(crate) const TAIL: u8 = 0;
/// A scan that prefetches the next folio's state.
pub(crate) const NEXT: u8 = 1;
/// A scan that follows links and prefetches two folios ahead.
pub(crate) const AHEAD: u8 = 2;

impl LockedLruvec<'_> {
    pub(crate) fn add_unevictable(&mut self, folio: FolioId) {
        self.folios.flags(folio).enlist_unevictable();
        self.resize_unevictable(1);
        self.push(folio, UNEVICTABLE, true);
    }

    /// Takes a folio off its list. The caller has cleared its `lru` flag.
    pub(crate) fn remove(&mut self, folio: FolioId) {
        let before = self.folios.flags(folio).delist();
        self.unlink(folio, before);
    }

    /// Takes a folio off its list for reclaim, with a reference, and prefetches the word with its
    /// page. `false`: it is being freed, or another thread has isolated it.
    #[inline]
    pub(crate) fn isolate_folio(&mut self, host: &impl Host, folio: FolioId) -> bool {
        let mechanisms = self.folios.mechanisms();
        let Some(before) = self.folios.flags(folio).isolate(mechanisms) else { return false };
        if mechanisms.prefetch() {
            host.prefetch(self.folios.page_word(folio));
        }
        self.unlink(folio, before);
        true
    }

    #[inline]
    fn unlink(&mut self, folio: FolioId, before: Flags) {
        self.lists.lists.remove(self.folios, folio);
        let kind = self.kind_of(folio);
        if before.unevictable() {
            self.resize_unevictable(-1);
        } else {
            self.count_off(kind, before);
        }
    }

    /// Puts a folio that is on no list at an end of one.
    #[inline]
    pub(super) fn push(&mut self, folio: FolioId, list: usize, at_head: bool) {
        if at_head {
            self.lists.lists.push_head(self.folios, list, folio);
        } else {
            self.lists.lists.push_tail(self.folios, list, folio);
        }
    }

    /// How a scan of this list looks ahead: [`TAIL`], [`NEXT`] or [`AHEAD`]; decided once per
    /// batch. Not [`AHEAD`] if the folios at the old end are in the order of their frames: the
    /// processor prefetches those by itself, and a list that fits into a cache is scanned 8 %
    /// faster. `classic`: it is a list of the classic LRU, for which kernels prefetch.
    pub(crate) fn looks_ahead(&self, list: usize, classic: bool) -> u8 {
        let mechanisms = self.folios.mechanisms();
        if !mechanisms.prefetch() {
            return if classic || mechanisms.is_on(Switch::PrefetchNext) { NEXT } else { TAIL };
        }
        let lists = &self.lists.lists;
        let next = |folio| lists.next(self.folios, folio);
        let in_order = |folio: FolioId| next(folio).filter(|next| next.0.abs_diff(folio.0) <= 1);
        if lists.tail(list).and_then(in_order).and_then(in_order).is_none() { AHEAD } else { TAIL }
    }

    /// With [`AHEAD`], the next folio of the scan, if there is one. Asked before this folio is
    /// taken off its list, so that the load of the link overlaps that of the state. Meanwhile the
    /// words to be written of the folio after the next, its state and its links, are prefetched
    /// ([book: eviction#prefetch]). Otherwise the scan asks the list for its tail each time, as in
    /// the kernel; with [`NEXT`], the next folio's state is prefetched, as in the published patch.
    /// The variants tried are in docs/experiments/prefetch.md.
    #[inline(always)]
    pub(crate) fn look_ahead<const LOOK: u8>(&self, host: &impl Host, folio: FolioId) -> Option<FolioId> {
        if LOOK == TAIL {
            return None;
        }
        let next = self.lists.lists.next(self.folios, folio)?;
        if LOOK == NEXT {
            host.prefetch(self.folios.flags(next));
            return None;
        }
        if let Some(further) = self.lists.lists.next(self.folios, next) {
            host.prefetch(self.folios.flags(further));
            host.prefetch(self.folios.links(further));
        }
        Some(next)
    }

    /// Moves a folio to an end of a list of the lruvec; label and sizes stay.
    pub(crate) fn relist(&mut self, folio: FolioId, list: usize, at_head: bool) {
        self.lists.lists.remove(self.folios, folio);
        self.push(folio, list, at_head);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::folio::Kind;
    use crate::lru::all_lists;
    use crate::lru::{Isolated, Swappiness};
    use crate::testing::{Fetching, Harness};
    use crate::{Lru, Mechanisms, Preset, Switch};

    fn harness(lru: Lru, prefetch: bool) -> (Harness, [FolioId; 5]) {
        let without = [Switch::Prefetch];
        let without = if prefetch { &[] } else { &without[..] };
        Harness::with_scattered(Mechanisms::compose(Preset::Default, &[], without).unwrap().with_lru(lru))
    }

    /// [book: eviction#prefetch]: "look up the next folio towards the head … and issue a prefetch
    /// for writing to the cache line of its flag word. No prefetch at the last element." This
    /// engine prefetches the folio after the next, with its links, and the page of an isolated
    /// folio.
    #[test]
    fn the_folio_after_the_next_is_prefetched() {
        for lru in [Lru::MultiGen, Lru::Classic] {
            let (harness, [a, b, c, d, e]) = harness(lru, true);
            let folios = &harness.core.folios;
            let state = |folio| std::ptr::from_ref(folios.flags(folio)).addr();
            let links = |folio| std::ptr::from_ref(folios.links(folio)).addr();
            let page = |folio| std::ptr::from_ref(folios.page_word(folio)).addr();
            let (host, mut batch) = (Fetching::default(), Isolated::default());
            let mut locked = harness.memcg().lruvec.lock(folios);
            match lru {
                Lru::MultiGen => locked.isolate(&host, 64, 64, Swappiness::FILE_ONLY, &mut batch),
                _ => locked.isolate_from(&host, Kind::File, false, 64, &mut batch),
            }
            assert_eq!(batch.folios, [a, b, c, d, e]);
            let ahead = |folio| [state(folio), links(folio)];
            let [[sc, lc], [sd, ld], [se, le]] = [c, d, e].map(ahead);
            let expected = [sc, lc, page(a), sd, ld, page(b), se, le, page(c), page(d), page(e)];
            assert_eq!(*host.0.borrow(), expected, "{lru:?}");
        }
    }

    #[test]
    fn making_room_prefetches_the_moved_folios() {
        let (harness, [_, _, c, d, e]) = harness(Lru::MultiGen, true);
        let host = Fetching::default();
        assert!(harness.aging_on(&host).open_generation());
        let folios = &harness.core.folios;
        let fetched = [c, d, e].map(|folio| {
            [std::ptr::from_ref(folios.flags(folio)).addr(), std::ptr::from_ref(folios.links(folio)).addr()]
        });
        assert_eq!(*host.0.borrow(), fetched.as_flattened());
    }

    /// A scan by links meets folios that it puts back on its own list just as a scan by tails does.
    #[test]
    fn folios_that_cannot_be_isolated_make_way_alike() {
        for (lru, busy) in
            [Lru::MultiGen, Lru::Classic].into_iter().flat_map(|lru| (0..32u32).map(move |busy| (lru, busy)))
        {
            let scan = |prefetch| {
                let (harness, folios) = harness(lru, prefetch);
                let busy = (0..5).filter(|folio| busy >> folio & 1 == 1).map(|folio| folios[folio]);
                busy.for_each(|folio| {
                    assert!(harness.core.folios.flags(folio).clear_lru(), "another thread has it")
                });
                let mut batch = Isolated::default();
                let mut locked = harness.memcg().lruvec.lock(&harness.core.folios);
                match lru {
                    Lru::MultiGen => {
                        locked.isolate(&harness.host, 9, 9, Swappiness::FILE_ONLY, &mut batch);
                    }
                    _ => locked.isolate_from(&harness.host, Kind::File, false, 9, &mut batch),
                }
                let order: Vec<Vec<FolioId>> = all_lists()
                    .map(|list| locked.lists.lists.iter(&harness.core.folios, list).collect())
                    .collect();
                (batch.folios, batch.scanned, order)
            };
            assert_eq!(scan(true), scan(false), "{lru:?}, {busy:05b}");
        }
    }

    /// The processor prefetches such a list by itself.
    #[test]
    fn a_list_in_the_order_of_its_frames_is_not_looked_ahead_on() {
        let mechanisms = Mechanisms::preset(Preset::Default).with_lru(Lru::MultiGen);
        let mut harness = Harness::with_mechanisms(mechanisms, 200, 1);
        harness.read_ahead(0..40);
        let host = Fetching::default();
        assert!(harness.aging_on(&host).open_generation());
        assert_eq!(host.0.borrow().len(), 0);
        assert_eq!(harness.list(1).len(), 40, "they were moved");
    }

    /// The published patch, and what kernels do for the classic lists: the state of the next folio,
    /// and nothing else.
    #[test]
    fn the_patch_alone_prefetches_the_next_state() {
        for (lru, on) in [(Lru::MultiGen, true), (Lru::Classic, false), (Lru::Classic, true)] {
            let (harness, [_, b, c, d, e]) = harness(lru, true);
            harness.core.set_prefetch_next(on);
            let folios = &harness.core.folios;
            let (host, mut batch) = (Fetching::default(), Isolated::default());
            let mut locked = harness.memcg().lruvec.lock(folios);
            match lru {
                Lru::MultiGen => locked.isolate(&host, 64, 64, Swappiness::FILE_ONLY, &mut batch),
                _ => locked.isolate_from(&host, Kind::File, false, 64, &mut batch),
            }
            let states = [b, c, d, e].map(|folio| std::ptr::from_ref(folios.flags(folio)).addr());
            assert_eq!(*host.0.borrow(), states, "{lru:?}");
        }
    }

    #[test]
    fn nothing_is_prefetched_without_it() {
        for from_the_beginning in [true, false] {
            let (harness, _) = harness(Lru::MultiGen, !from_the_beginning);
            harness.core.set_prefetch(false);
            let (host, mut batch) = (Fetching::default(), Isolated::default());
            let mut locked = harness.memcg().lruvec.lock(&harness.core.folios);
            locked.isolate(&host, 64, 64, Swappiness::FILE_ONLY, &mut batch);
            assert_eq!((batch.folios.len(), host.0.borrow().len()), (5, 0));
        }
    }
}
