//! The sliding window of generations, and the place of a folio in it.
//!
//! # Locking
//!
//! Written under the lruvec lock, read without it.

use crate::folio::{Flags, GenIndex, Kind, Neighbour};
use crate::host::Time;
use crate::mechanism::{Mechanisms, Switch};
use crate::sync::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// The fewest generations of a kind.
pub const MIN_GENERATIONS: u64 = 2;
/// The most generations of a kind; also the number of list sets.
pub const MAX_GENERATIONS: u64 = 4;

/// Number of generation lists: generations × kinds.
pub(in crate::lru) const GENERATION_LISTS: usize = MAX_GENERATIONS as usize * 2;
pub(super) const TIERS: usize = 4;

/// Sequence number of a generation. Only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seq(pub u64);

impl Seq {
    /// The list set that holds the generation.
    #[inline]
    pub fn index(self) -> GenIndex {
        GenIndex::new((self.0 % MAX_GENERATIONS) as u8)
    }

    /// The next younger generation.
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }

    /// This generation and all younger ones up to `youngest`.
    pub(crate) fn to(self, youngest: Seq) -> impl DoubleEndedIterator<Item = Seq> {
        (self.0..=youngest.0).map(Seq)
    }
}

/// The youngest generation, the oldest of each kind, and the creation times.
#[derive(Debug)]
pub(crate) struct Window {
    max: AtomicU64,
    min: [AtomicU64; 2],
    birth_ns: [AtomicU64; MAX_GENERATIONS as usize],
}

impl Window {
    pub(crate) fn new(now: Time) -> Window {
        Window {
            max: AtomicU64::new(MAX_GENERATIONS - 1),
            min: [AtomicU64::new(0), AtomicU64::new(0)],
            birth_ns: std::array::from_fn(|_| AtomicU64::new(now.as_nanos())),
        }
    }

    pub(crate) fn reset(&self, now: Time) {
        self.birth_ns.iter().for_each(|birth| birth.store(now.as_nanos(), Relaxed));
        self.min.iter().for_each(|min| min.store(0, Release));
        self.max.store(MAX_GENERATIONS - 1, Release);
    }

    #[inline]
    pub(crate) fn max(&self) -> Seq {
        Seq(self.max.load(Acquire))
    }

    #[inline]
    pub(crate) fn min(&self, kind: Kind) -> Seq {
        Seq(self.min[kind as usize].load(Acquire))
    }

    /// Number of generations of a kind. Without the lock, the result may be an earlier number or a
    /// larger one.
    pub(crate) fn generations(&self, kind: Kind) -> u64 {
        // Load `min` first, since both only grow: otherwise generations might be opened and closed
        // in between until the oldest is younger than the loaded youngest. A reused memcg begins
        // with 0 again.
        let min = self.min(kind);
        (self.max().0 + 1).saturating_sub(min.0)
    }

    pub(crate) fn birth(&self, seq: Seq) -> Time {
        Time::from_nanos(self.birth_ns[seq.index().as_usize()].load(Relaxed))
    }

    /// Opens the next generation. The caller holds the lruvec lock.
    pub(in crate::lru) fn open(&self, now: Time) {
        let next = self.max().next();
        for kind in Kind::ALL {
            assert!(next.0 - self.min(kind).0 < MAX_GENERATIONS, "a kind has no room for another generation");
        }
        self.birth_ns[next.index().as_usize()].store(now.as_nanos(), Relaxed);
        self.max.store(next.0, Release);
    }

    /// Closes the generations of `kind` before `min`. The caller holds the lruvec lock.
    pub(super) fn close_until(&self, kind: Kind, min: Seq) {
        assert!(min >= self.min(kind) && min <= self.max());
        self.min[kind as usize].store(min.0, Release);
    }

    /// The generation that a folio is put into ([book: access#distance-rule]): counted from the
    /// young end, and never older than the oldest. `rotation`: it goes to the tail, to be evicted
    /// next.
    pub(crate) fn place(&self, kind: Kind, flags: Flags, rotation: bool, mechanisms: Mechanisms) -> Seq {
        if !mechanisms.workingset_rework() {
            return self.place_before(kind, flags, rotation);
        }
        // Only since 7.2 does an access by a fault or a read count here.
        let accessed = flags.referenced() && mechanisms.is_on(Switch::ReferencedPlacement);
        let distance = if flags.active() {
            if flags.workingset() { 1 } else { 2 }
        } else if rotation {
            4
        } else if waits_for_its_backing(kind, flags) {
            2
        } else if flags.workingset() || accessed {
            3
        } else {
            4
        };
        Seq((self.max().0 + 1).saturating_sub(distance).max(self.min(kind).0))
    }

    /// As [`Self::place`], before the working-set rework: to one end of the window or beside it,
    /// whatever the folio's history. The oldest of four generations is passed over, as it does not
    /// last.
    fn place_before(&self, kind: Kind, flags: Flags, rotation: bool) -> Seq {
        let (min, max) = (self.min(kind), self.max());
        if flags.active() {
            max
        } else if waits_for_its_backing(kind, flags) {
            Seq(max.0 - 1)
        } else if rotation || min.0 + 2 >= max.0 {
            min
        } else {
            min.next()
        }
    }
}

/// Whether the folio cannot be evicted at once: it has no swap slot, or must be written.
fn waits_for_its_backing(kind: Kind, flags: Flags) -> bool {
    kind == Kind::Anon && !flags.swapcache() || flags.reclaim() && (flags.dirty() || flags.writeback())
}

/// Moving averages of one kind, and the protected pages of its oldest generation.
#[derive(Debug, Default, Clone)]
pub(crate) struct Averages {
    pub(crate) refaulted: [u64; TIERS],
    pub(crate) total: [u64; TIERS],
    pub(crate) protected: [u64; TIERS],
}

/// Size changes for relabelled folios that are not applied yet.
#[derive(Debug, Default)]
pub(crate) struct WalkBatch {
    pub(super) pages: [[i64; 2]; MAX_GENERATIONS as usize],
    pub(super) changes: u32,
}

impl WalkBatch {
    pub(crate) fn note(&mut self, kind: Kind, change: Neighbour) {
        if let Neighbour::Relabelled(old, new) = change {
            self.pages[old.as_usize()][kind as usize] -= 1;
            self.pages[new.as_usize()][kind as usize] += 1;
            self.changes += 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::folio::FolioFlags;
    use crate::mechanism::Preset;

    const NOW: Mechanisms = Mechanisms::preset(Preset::Linux72);
    const SEVEN_ONE: Mechanisms = Mechanisms::preset(Preset::Linux71);
    const BEFORE: Mechanisms = Mechanisms::preset(Preset::Linux612);

    fn window(max: u64, min: u64) -> Window {
        let window = Window::new(Time::ZERO);
        window.max.store(max, Release);
        window.min.iter().for_each(|m| m.store(min, Release));
        window
    }

    fn flags(change: impl Fn(&FolioFlags)) -> Flags {
        let flags = FolioFlags::new();
        flags.allocate(false, 1);
        change(&flags);
        flags.load()
    }

    fn file_under(mechanisms: Mechanisms, window: &Window, change: impl Fn(&FolioFlags)) -> u64 {
        window.place(Kind::File, flags(change), false, mechanisms).0
    }

    fn file(window: &Window, change: impl Fn(&FolioFlags)) -> u64 {
        file_under(NOW, window, change)
    }

    /// [book: folios#checks]: "New lruvec: `max_seq=3`, both `min_seq=0`, 4 generations, all births
    /// equal".
    #[test]
    fn a_new_window() {
        let window = Window::new(Time::from_nanos(17));
        assert_eq!((window.max(), window.min(Kind::Anon), window.min(Kind::File)), (Seq(3), Seq(0), Seq(0)));
        assert!(Kind::ALL.iter().all(|&kind| window.generations(kind) == 4));
        assert!(Seq(0).to(Seq(3)).all(|seq| window.birth(seq) == Time::from_nanos(17)));
    }

    /// [book: access#distance-rule], every row of the table "after the rework", with 4 and with 3
    /// generations.
    #[test]
    fn the_distance_rule() {
        let (four, three) = (window(10, 7), window(10, 8));
        let both = |change: &dyn Fn(&FolioFlags)| (file(&four, change), file(&three, change));
        assert_eq!(both(&|f| (f.set_active(), f.restore(true, 0)).0), (10, 10), "row 1");
        assert_eq!(both(&|f| f.set_active()), (9, 9), "row 2");
        let anon = flags(|_| ());
        assert_eq!(four.place(Kind::Anon, anon, true, NOW).0, 7, "row 3");
        assert_eq!(four.place(Kind::Anon, anon, false, NOW).0, 9, "row 4");
        assert_eq!(both(&|f| (f.set_dirty(), f.set_reclaim()).1), (9, 9), "row 5, dirty");
        let written = |f: &FolioFlags| (f.set_dirty(), f.start_writeback(), f.set_reclaim()).2;
        assert_eq!(both(&written), (9, 9), "row 5, under write-back");
        assert_eq!(both(&|f| f.restore(true, 0)), (8, 8), "row 6a, W");
        assert_eq!(both(&|f| f.mark_accessed(f.load(), NOW)), (8, 8), "row 6a, R");
        assert_eq!(both(&|_| ()), (7, 8), "row 6b");
        assert_eq!(both(&|f| f.set_reclaim()), (7, 8), "row 5 needs a dirty folio");
    }

    /// [book: access#checks]: "7.2: fault-in places in `max_seq − 2` with 4 generations, or in the
    /// oldest with 3; R=1"; "fault-in of a refaulted folio with W places it in `max_seq`".
    #[test]
    fn placement_of_faults() {
        let (four, three) = (window(10, 7), window(10, 8));
        assert_eq!(file(&four, |f| f.mark_faulted_in(NOW)), 8);
        assert_eq!(file(&three, |f| f.mark_faulted_in(NOW)), 8);
        assert!(flags(|f| f.mark_faulted_in(NOW)).referenced());
        let hot = |f: &FolioFlags| {
            f.restore(true, 0);
            f.mark_faulted_in(NOW);
        };
        assert_eq!(file(&four, hot), 10);
    }

    /// [book: access#checks]: "with 4 generations, a folio read by fd once before its add batch
    /// drains goes to the second oldest generation; read-ahead-only goes to the oldest";
    /// "Read-ahead alone leaves R=0".
    #[test]
    fn placement_of_reads() {
        let four = window(10, 7);
        assert_eq!(file(&four, |f| f.mark_accessed(f.load(), NOW)), 8);
        assert_eq!(file(&four, |_| ()), 7);
        assert!(!flags(|_| ()).referenced());
    }

    /// [book: access#distance-rule], every row of the table "before the rework", with 4 and with 3
    /// generations.
    #[test]
    fn the_rule_before_the_rework() {
        let (four, three) = (window(10, 7), window(10, 8));
        let both = |change: &dyn Fn(&FolioFlags)| {
            (file_under(BEFORE, &four, change), file_under(BEFORE, &three, change))
        };
        assert_eq!(both(&|f| f.set_active()), (10, 10), "row 1");
        let anon = flags(|_| ());
        assert_eq!(four.place(Kind::Anon, anon, false, BEFORE).0, 9, "row 2, anonymous");
        assert_eq!(both(&|f| (f.set_dirty(), f.set_reclaim()).1), (9, 9), "row 2, dirty");
        assert_eq!(four.place(Kind::File, anon, true, BEFORE).0, 7, "row 3, rotation");
        assert_eq!(both(&|_| ()), (8, 8), "rows 4 and 3");
        let hot = |f: &FolioFlags| (0..5).for_each(|_| f.mark_accessed(f.load(), BEFORE));
        assert_eq!(both(&hot), (8, 8), "its history says nothing");
    }

    /// [book: access#checks]: "7.1: fault-in places a file folio in `max_seq − 1`"; "Before the
    /// rework, fault-in places in `max_seq`"; only in 7.2 does a read influence the place.
    #[test]
    fn placement_in_older_versions() {
        let four = window(10, 7);
        assert_eq!(file_under(SEVEN_ONE, &four, |f| f.mark_faulted_in(SEVEN_ONE)), 9);
        assert_eq!(file_under(BEFORE, &four, |f| f.mark_faulted_in(BEFORE)), 10);
        assert_eq!(file_under(SEVEN_ONE, &four, |f| f.mark_accessed(f.load(), SEVEN_ONE)), 7);
        assert_eq!(file_under(SEVEN_ONE, &four, |f| f.restore(true, 0)), 8);
    }
}
