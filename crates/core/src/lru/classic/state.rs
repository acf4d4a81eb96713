//! What active and inactive lists keep of an lruvec: sizes, the clock, costs, and what was known of
//! them last.

use crate::folio::Kind;
use crate::lru::multigen::window::GENERATION_LISTS;
use crate::sync::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Inactive and active list of each kind, in the order in which a turn goes through them.
pub(crate) const LISTS: [(Kind, bool); 4] =
    [(Kind::Anon, false), (Kind::Anon, true), (Kind::File, false), (Kind::File, true)];

/// Number of the list of a kind's active or inactive folios.
pub(crate) fn list_of(kind: Kind, active: bool) -> usize {
    GENERATION_LISTS + kind as usize * 2 + usize::from(active)
}

/// What reclaim of each kind cost lately, by [`Kind`] ([book: classic-lru#scan-cost]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Costs(pub(crate) [u64; 2]);

/// The clock. All threads below write to it. `clock_apart` is for the benchmark, as `lock_apart`
/// is.
#[derive(Debug)]
#[cfg_attr(lruvec_layout = "clock_apart", repr(align(128)))]
struct NonresidentAge(AtomicU64);

/// The classic part of an lruvec.
#[derive(Debug)]
pub(crate) struct Classic {
    /// Pages on each list, as [`LISTS`]. May be negative for a moment.
    pub(super) sizes: [AtomicI64; 4],
    /// Evictions and activations here and below, in pages: the clock by which refaults are judged.
    nonresident_age: NonresidentAge,
    /// What is known of this lruvec and those below it.
    pub(super) aggregated: Aggregated,
    /// Refaults that were activated, by kind, when the last effort on this lruvec ended.
    pub(super) refaults_seen: [AtomicU64; 2],
}

impl Classic {
    pub(in crate::lru) fn new() -> Classic {
        Classic {
            sizes: std::array::from_fn(|_| AtomicI64::new(0)),
            nonresident_age: NonresidentAge(AtomicU64::new(0)),
            aggregated: Aggregated::new(),
            refaults_seen: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// As new, for the next memcg of that number.
    pub(in crate::lru) fn reset(&self) {
        self.sizes.iter().for_each(|size| size.store(0, Relaxed));
        self.nonresident_age.0.store(0, Relaxed);
        self.aggregated.reset();
        self.refaults_seen.iter().for_each(|seen| seen.store(0, Relaxed));
    }

    /// Pages on a list.
    pub(crate) fn size(&self, kind: Kind, active: bool) -> u64 {
        self.sizes[kind as usize * 2 + usize::from(active)].load(Relaxed).max(0) as u64
    }

    /// Pages on both lists of a kind.
    pub(crate) fn pages(&self, kind: Kind) -> u64 {
        self.size(kind, false) + self.size(kind, true)
    }

    /// The clock.
    pub(crate) fn nonresident_age(&self) -> u64 {
        self.nonresident_age.0.load(Relaxed)
    }

    /// The clock before.
    pub(super) fn advance(&self, pages: u64) -> u64 {
        if pages == 0 { self.nonresident_age() } else { self.nonresident_age.0.fetch_add(pages, Relaxed) }
    }

    pub(super) fn set_back(&self, pages: u64) {
        self.nonresident_age.0.fetch_sub(pages, Relaxed);
    }
}

/// What was known at the last refresh.
#[derive(Debug)]
pub(super) struct Aggregated {
    /// Pages, as [`LISTS`].
    pub(super) sizes: [AtomicU64; 4],
    /// Refaults that were activated, by kind.
    pub(super) activated: [AtomicU64; 2],
}

impl Aggregated {
    fn new() -> Aggregated {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Aggregated { sizes: zeros(), activated: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    fn reset(&self) {
        self.sizes.iter().chain(&self.activated).for_each(|word| word.store(0, Relaxed));
    }
}
