//! A folio: one page of cached memory, its state word and its place on a list.

mod flags;
mod list;
#[cfg(all(test, loom))]
mod loom_tests;
mod table;

pub(crate) use flags::{Climb, HandStep, MAIN, NEWCOMER, Neighbour, tier_of};
pub use flags::{Flags, FolioFlags, GenIndex, LENT_REFERENCES_MAX, Tier};
pub(crate) use list::FolioLists;
pub use table::{FolioId, FolioTable, MAX_FOLIOS};
pub(crate) use table::{MEMCG_BITS, STAMP_BITS, Stamp};

/// What backs a folio. Decided by "swap-backed or not", never by "mapped or not"
/// ([book: overview#terms]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Anonymous memory: swap backs it.
    Anon = 0,
    /// Page cache: a file backs it.
    File = 1,
}

impl Kind {
    /// Both kinds, in the order in which loops over kinds run.
    pub const ALL: [Kind; 2] = [Kind::Anon, Kind::File];

    /// The other one.
    pub fn other(self) -> Kind {
        match self {
            Kind::Anon => Kind::File,
            Kind::File => Kind::Anon,
        }
    }
}
