//! Folios: the state word, the table and the lists. A folio is one page of cached memory.

mod flags;
mod list;
#[cfg(all(test, loom))]
mod loom_tests;
mod table;

pub(crate) use flags::VERSION_BITS;
pub(crate) use flags::{Climb, CountedFull, HandStep, MAIN, NEWCOMER, Neighbour, tier_of};
pub use flags::{Flags, FolioFlags, GenIndex, LOANS_MAX, NotLent, Tier, WriteAttempt};
pub(crate) use list::FolioLists;
pub(crate) use table::{FEW_REFAULTS, MEMCG_BITS, STAMP_BITS, Stamp};
pub use table::{FolioId, FolioTable, MAX_FOLIOS, ZONES_MAX};

/// The backing of a folio: swap or a file, whether the folio is mapped or not
/// ([book: overview#terms]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[repr(u8)]
pub enum Kind {
    /// Anonymous memory, backed by swap.
    Anon = 0,
    /// Page cache, backed by a file.
    File = 1,
}

impl Kind {
    /// Both kinds, in the order of loops over kinds.
    pub const ALL: [Kind; 2] = [Kind::Anon, Kind::File];

    /// The other kind.
    pub fn other(self) -> Kind {
        match self {
            Kind::Anon => Kind::File,
            Kind::File => Kind::Anon,
        }
    }
}
