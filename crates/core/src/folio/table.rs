//! The table of all folios of a node: 32 bytes each, two to a cache line.

use super::FolioFlags;
use crate::sync::{AtomicU32, Ordering::Relaxed};

/// Number of a folio, and of the frame that holds its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FolioId(pub u32);

/// Most folios of one node: 8 TiB of 4 KiB pages. One bit of a list link is needed to mark its end.
pub const MAX_FOLIOS: u32 = 1 << 31;

/// What is kept per page of memory, 32 bytes.
///
/// `mapping`, `index` and `memcg` are written by whoever allocated the folio, before it becomes reachable, and
/// stay until it is freed; who holds no reference must check against the slot what they say.
#[derive(Debug)]
#[repr(align(32))]
pub struct Folio {
    /// State, references and content version.
    pub flags: FolioFlags,
    pub(crate) mapping: AtomicU32,
    pub(crate) index: AtomicU32,
    pub(crate) memcg: AtomicU32,
    pub(crate) towards_head: AtomicU32,
    pub(crate) towards_tail: AtomicU32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Folio>() == 32);

impl Folio {
    fn new() -> Folio {
        Folio {
            flags: FolioFlags::new(),
            mapping: AtomicU32::new(0),
            index: AtomicU32::new(0),
            memcg: AtomicU32::new(0),
            towards_head: AtomicU32::new(0),
            towards_tail: AtomicU32::new(0),
        }
    }

    /// Page index inside its mapping.
    pub fn index(&self) -> u32 {
        self.index.load(Relaxed)
    }
}

/// All folios of a node, by number.
#[derive(Debug)]
pub struct FolioTable(Box<[Folio]>);

impl FolioTable {
    /// `folios` free ones.
    pub fn new(folios: u32) -> FolioTable {
        assert!(folios < MAX_FOLIOS);
        FolioTable((0..folios).map(|_| Folio::new()).collect())
    }

    /// How many there are, used and free.
    pub fn len(&self) -> u32 {
        self.0.len() as u32
    }

    /// Whether the table has no folio at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The folio of that number.
    #[inline]
    pub fn get(&self, folio: FolioId) -> &Folio {
        &self.0[folio.0 as usize]
    }
}
