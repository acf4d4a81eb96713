//! The generation lists of one lruvec: where a folio is put, and which is next.

use crate::Core;
use crate::folio::{FolioId, GenIndex, Kind};
use crate::lru::lruvec::LISTS;
use crate::lru::multigen::window::GENERATION_LISTS;
use crate::lru::{LockedLruvec, MAX_GENERATIONS, Seq};

/// The list of a generation's folios, of those in the highest zone.
pub(crate) fn list_of(generation: GenIndex, kind: Kind) -> usize {
    list_in(0, generation, kind)
}

/// The list of a generation's folios in a zone; 0 is the highest one.
pub(super) fn list_in(zone: usize, generation: GenIndex, kind: Kind) -> usize {
    let first = if zone == 0 { 0 } else { LISTS + (zone - 1) * GENERATION_LISTS };
    first + generation.as_usize() * 2 + kind as usize
}

/// The zone and kind of such a list; `None` for the lists of other policies.
pub(in crate::lru) fn zone_and_kind(list: usize) -> Option<(usize, Kind)> {
    let (zone, place) = match list {
        _ if list < GENERATION_LISTS => (0, list),
        _ if list >= LISTS => {
            let lower = list - LISTS;
            (1 + lower / GENERATION_LISTS, lower % GENERATION_LISTS)
        }
        _ => return None,
    };
    Some((zone, Kind::ALL[place % 2]))
}

impl LockedLruvec<'_> {
    /// Puts a folio into the generation that the distance rule chooses: at the head, or at the tail
    /// for a rotation.
    pub(in crate::lru) fn add_to_generation(&mut self, folio: FolioId, rotation: bool) -> Seq {
        let flags = &self.folios.flags(folio);
        let kind = self.kind_of(folio);
        let mechanisms = self.folios.mechanisms();
        let seq = self.lruvec.window.place(kind, flags.load(), rotation, mechanisms);
        flags.enlist(seq.index(), mechanisms);
        self.resize(seq.index(), kind, 1);
        self.push(folio, self.generation_list(folio, seq.index(), kind), !rotation);
        seq
    }

    /// The lists of all generations, youngest first.
    pub(in crate::lru) fn generation_lists(&self) -> Vec<usize> {
        let max = self.lruvec.window.max();
        (0..MAX_GENERATIONS)
            .flat_map(|age| Kind::ALL.map(|kind| (Seq(max.0 - age).index(), kind)))
            .flat_map(|(label, kind)| self.folios.zones().map(move |zone| list_in(zone, label, kind)))
            .collect()
    }

    /// Detaches a folio from its generation for another policy; it counts as active if it was in
    /// one of the two youngest.
    pub(in crate::lru) fn leave_generation(&mut self, folio: FolioId) {
        let max = self.lruvec.window.max();
        let youngest = [max.index(), Seq(max.0 - 1).index()];
        let (before, _) = self.folios.flags(folio).leave_generation(|label| youngest.contains(&label));
        let kind = self.kind_of(folio);
        if let Some(label) = before.generation() {
            self.resize(label, kind, -1);
        }
    }

    /// Attaches a listed folio without a mark, at the old end of the generation that the distance
    /// rule chooses.
    pub(in crate::lru) fn join_generation(&mut self, folio: FolioId) {
        let flags = self.folios.flags(folio);
        let (now, kind, mechanisms) = (flags.load(), self.kind_of(folio), self.folios.mechanisms());
        let seq = self.lruvec.window.place(kind, now, false, mechanisms);
        flags.join_generation(seq.index(), mechanisms);
        self.resize(seq.index(), kind, 1);
        self.relist(folio, self.generation_list(folio, seq.index(), kind), false);
    }

    /// The list of a generation for this folio.
    #[inline]
    pub(super) fn generation_list(&self, folio: FolioId, generation: GenIndex, kind: Kind) -> usize {
        list_in(self.folios.zone_of(folio), generation, kind)
    }

    /// Whether a generation has no folio in any zone.
    pub(super) fn is_empty(&self, generation: GenIndex, kind: Kind) -> bool {
        self.folios.zones().all(|zone| self.lists.lists.is_empty(list_in(zone, generation, kind)))
    }
}

/// Forgets accesses on advice that a page is not needed. `true`: the caller moves it to the old
/// side, too.
pub(in crate::lru) fn forget_use(core: &Core, folio: FolioId) -> bool {
    let (flags, mechanisms) = (core.folios.flags(folio), core.mechanisms());
    flags.forget_accesses(mechanisms);
    let lruvec = &core.owner_of(folio).lruvec;
    let kind = flags.load().kind();
    // Before the rework, a folio of the oldest generation moved to its tail, too.
    let stays = flags.load().generation() == Some(lruvec.min_seq(kind).index());
    !stays || !mechanisms.workingset_rework()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::folio::FolioTable;
    use crate::lru::{Lruvec, Swappiness};
    use crate::memcg::MemcgId;
    use crate::testing::Harness;

    /// [book: overview#checks]: "A folio's type is decided by 'swap-backed or not', never by
    /// 'mapped or not'".
    #[test]
    fn the_kind_of_a_folio_follows_from_its_backing() {
        let folios = FolioTable::with_mechanisms(4, crate::Mechanisms::preset(crate::Preset::Linux72));
        let lruvec = Lruvec::new(MemcgId(0), crate::Time::ZERO);
        let mut locked = lruvec.lock(&folios);
        for (number, swapbacked, mapped) in
            [(0, false, false), (1, false, true), (2, true, false), (3, true, true)]
        {
            let flags = &folios.flags(FolioId(number));
            flags.allocate(swapbacked, 1);
            if mapped {
                flags.set_mapped(flags.load());
            }
            locked.place(FolioId(number), true);
        }
        let oldest = GenIndex::new(0);
        let on = |kind| locked.lists.lists.iter(&folios, list_of(oldest, kind)).collect::<Vec<_>>();
        assert_eq!(on(Kind::File), [FolioId(1), FolioId(0)]);
        assert_eq!(on(Kind::Anon), [FolioId(3), FolioId(2)]);
        assert_eq!((lruvec.size(oldest, Kind::File), lruvec.size(oldest, Kind::Anon)), (2, 2));
    }

    /// [book: folios#checks]: "`nr_pages` may be read as negative internally but is reported as ≥
    /// 0".
    #[test]
    fn sizes_are_never_reported_negative() {
        let folios = FolioTable::new(1);
        let lruvec = Lruvec::new(MemcgId(0), crate::Time::ZERO);
        let mut locked = lruvec.lock(&folios);
        locked.resize(GenIndex::new(1), Kind::File, -3);
        locked.resize(GenIndex::new(2), Kind::File, 2);
        drop(locked);
        assert_eq!(lruvec.size(GenIndex::new(1), Kind::File), 0);
        assert_eq!(lruvec.evictable_pages(Swappiness::FILE_ONLY), 2);
        assert_eq!((lruvec.inactive_pages(Kind::File), lruvec.active_pages(Kind::File)), (0, 2));
        lruvec.lock(&folios).resize(GenIndex::new(1), Kind::File, 4);
        assert_eq!(lruvec.size(GenIndex::new(1), Kind::File), 1, "it was remembered");
    }

    /// [book: overview#checks]: "File-descriptor accesses never move a folio between lists at
    /// access time".
    #[test]
    fn reads_move_nothing() {
        let mut harness = Harness::new(100, 1);
        harness.bring_at([10, 11, 12], 3);
        harness.read_ahead([0, 1, 2]);
        let before = (harness.list(0), harness.list(1), harness.sizes());
        for page in [0, 1, 11, 1, 0, 0, 0, 0, 0, 10] {
            harness.read(page);
            assert_eq!((harness.list(0), harness.list(1), harness.sizes()), before);
        }
        assert!(harness.flags(0).saturated(harness.core.mechanisms()));
    }

    /// [book: access#rotation-and-advice]: rotation goes to the tail of the oldest generation.
    #[test]
    fn a_rotated_folio_is_next() {
        let mut harness = Harness::new(100, 1);
        harness.bring_at([10], 3);
        harness.read_ahead([0, 1]);
        let folio = harness.folio(10);
        let mut locked = harness.memcg().lruvec.lock(&harness.core.folios);
        assert!(harness.core.folios.flags(folio).clear_lru());
        locked.remove(folio);
        assert_eq!(locked.add_to_generation(folio, true), Seq(0));
        drop(locked);
        assert_eq!((harness.list(0), harness.list(1)), (vec![10, 0, 1], vec![]));
        harness.core.validate().unwrap();
    }
}
