//! The table of all folios of a node: 28 bytes each, in four columns.
//!
//! Hits, scans and evictions use different words: a hit needs the state and, if it copies, the
//! page; a scan needs links and states. At 100,000 folios each column fits into a level-2 cache of
//! 2 MiB. Columns save four bytes per folio over rows; their effect on the speed of a replay was
//! not measurable.
//!
//! # Locking
//!
//! States change by compare-and-swap. Links, memcg and stamp change under the lock of the folio's
//! lists; until it is queued for a list, they belong to the thread that brings it in. The settings
//! change by compare-and-swap, rarely.

use super::{CountedFull, FolioFlags, Kind};
use crate::mechanism::{LruLock, Mechanisms};
use crate::sync::{
    AtomicI64, AtomicU32, AtomicU64, LockCounts, Mutex, MutexGuard, Ordering::Relaxed, RareU64,
};

/// Places in the word of settings: the switches are lowest.
const CHANGES_SHIFT: u32 = 16;
const FULL_SHIFT: u32 = 48;

/// Number of a folio, and of the frame that holds its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FolioId(pub u32);

/// A node has fewer folios than this: fewer than 8 TiB in 4 KiB pages. One bit of a list link marks
/// the end.
pub const MAX_FOLIOS: u32 = 1 << 31;

/// The most zones of a node.
pub const ZONES_MAX: usize = 3;

/// The kernel's threshold of refault feedback ([`crate::Grain::few_refaults`]).
pub(crate) const FEW_REFAULTS: u64 = 64;
/// Bits of a memcg's number.
pub(crate) const MEMCG_BITS: u32 = 20;
/// Bits of a stamp: the rest of the memcg column.
pub(crate) const STAMP_BITS: u32 = u32::BITS - MEMCG_BITS;
const STAMP_MASK: u32 = (1 << STAMP_BITS) - 1;
const MEMCG_MASK: u32 = (1 << MEMCG_BITS) - 1;

/// The low bits of a lruvec's clock at an event of a folio. Used by the policy `ranked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u32);

impl Stamp {
    pub(crate) fn new(time: u64) -> Stamp {
        Stamp(time as u32 & STAMP_MASK)
    }

    pub(crate) fn value(self) -> u64 {
        u64::from(self.0)
    }
}

#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) towards_head: AtomicU32,
    pub(crate) towards_tail: AtomicU32,
}

/// Numbers of listed folios of the node, kept to avoid a sum over thousands of memcgs.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Listed {
    pages: [AtomicI64; 2],
    active: [AtomicI64; 2],
}

impl Listed {
    fn new() -> Listed {
        let zeros = || [AtomicI64::new(0), AtomicI64::new(0)];
        Listed { pages: zeros(), active: zeros() }
    }

    /// Reclaimable pages of a kind.
    pub(crate) fn pages(&self, kind: Kind) -> u64 {
        self.pages[kind as usize].load(Relaxed).max(0) as u64
    }

    /// Reclaimable pages outside the two youngest generations of their lruvec.
    pub(crate) fn inactive_pages(&self, kind: Kind) -> u64 {
        let inactive = self.pages[kind as usize].load(Relaxed) - self.active[kind as usize].load(Relaxed);
        inactive.max(0) as u64
    }

    pub(crate) fn change(&self, kind: Kind, pages: i64, active: i64) {
        if pages != 0 {
            self.pages[kind as usize].fetch_add(pages, Relaxed);
        }
        if active != 0 {
            self.active[kind as usize].fetch_add(active, Relaxed);
        }
    }
}

/// All folios of a node, by number.
///
/// The allocating thread writes a folio's page and memcg before the folio becomes reachable. They
/// stay until the folio is freed, except that a memcg that is removed is replaced by its heir, with
/// the lists locked. A reader without a reference must check afterwards that the version of the
/// state did not change.
#[derive(Debug)]
pub struct FolioTable {
    flags: Box<[FolioFlags]>,
    links: Box<[Links]>,
    /// Number of the mapping (high half) and index in it.
    pages: Box<[AtomicU64]>,
    /// Number of the memcg (low bits) and stamp.
    memcgs: Box<[AtomicU32]>,
    listed: Listed,
    mechanisms: Mechanisms,
    /// The switches now: `mechanisms` under the current policy; how often the policy was switched;
    /// and [`CountedFull`], which a hit then need not look up.
    settings: RareU64,
    node_lock: Mutex<LockCounts>,
    few_refaults: u64,
    /// The first folio of each lower zone, and [`MAX_FOLIOS`] for those that are missing.
    zone_starts: [u32; ZONES_MAX - 1],
    zones: usize,
}

/// The word of settings, for switches and for how often the policy was switched.
fn settings_word((mechanisms, changes): (Mechanisms, u32)) -> u64 {
    let full = mechanisms.lru().habits().counted_full;
    u64::from(full.0) << FULL_SHIFT | u64::from(changes) << CHANGES_SHIFT | u64::from(mechanisms.word())
}

impl FolioTable {
    pub(crate) const FOLIO_BYTES: u64 = 28;

    /// A table of `folios` free folios, with the default mechanisms.
    pub fn new(folios: u32) -> FolioTable {
        FolioTable::with_mechanisms(folios, Mechanisms::default())
    }

    /// A table of `folios` free folios.
    pub fn with_mechanisms(folios: u32, mechanisms: Mechanisms) -> FolioTable {
        assert!(folios < MAX_FOLIOS);
        let links = || Links { towards_head: AtomicU32::new(0), towards_tail: AtomicU32::new(0) };
        FolioTable {
            flags: (0..folios).map(|_| FolioFlags::new()).collect(),
            links: (0..folios).map(|_| links()).collect(),
            pages: (0..folios).map(|_| AtomicU64::new(0)).collect(),
            memcgs: (0..folios).map(|_| AtomicU32::new(0)).collect(),
            listed: Listed::new(),
            mechanisms,
            settings: RareU64::new(settings_word((mechanisms, 0))),
            node_lock: Mutex::default(),
            few_refaults: FEW_REFAULTS,
            zone_starts: [MAX_FOLIOS; ZONES_MAX - 1],
            zones: 1,
        }
    }

    /// The table with another threshold of refault feedback ([`crate::Grain::few_refaults`]).
    pub(crate) fn with_few_refaults(self, few_refaults: u64) -> FolioTable {
        FolioTable { few_refaults, ..self }
    }

    /// The table with lower zones of so many pages, the highest of them first
    /// ([`crate::Options::lower_zones`]).
    pub(crate) fn with_lower_zones(mut self, pages: &[u32]) -> FolioTable {
        let mut end = self.len();
        for (start, pages) in self.zone_starts.iter_mut().zip(pages).rev() {
            end -= pages;
            *start = end;
        }
        self.zones = 1 + pages.len();
        self
    }

    /// The zone of a folio; 0 is the highest one.
    #[inline]
    pub(crate) fn zone_of(&self, folio: FolioId) -> usize {
        let [second, third] = self.zone_starts;
        usize::from(folio.0 >= second) + usize::from(folio.0 >= third)
    }

    /// All zones, the highest first.
    #[inline]
    pub(crate) fn zones(&self) -> std::ops::Range<usize> {
        0..self.zones
    }

    /// The threshold of refault feedback ([`crate::Grain::few_refaults`]).
    #[inline]
    pub(crate) fn few_refaults(&self) -> u64 {
        self.few_refaults
    }

    #[inline]
    pub(crate) fn listed(&self) -> &Listed {
        &self.listed
    }

    /// The switches that transitions of state words obey, the same for all folios.
    #[inline]
    pub fn mechanisms(&self) -> Mechanisms {
        self.mechanisms.with_word(self.settings.load(Relaxed) as u16)
    }

    /// The switches now, and how often the policy was switched.
    pub(crate) fn settings(&self) -> (Mechanisms, u32) {
        let word = self.settings.load(Relaxed);
        (self.mechanisms.with_word(word as u16), (word >> CHANGES_SHIFT) as u32)
    }

    /// Replaces the settings. `false`: another thread changed them since `known`.
    pub(crate) fn set_settings(&self, known: (Mechanisms, u32), to: (Mechanisms, u32)) -> bool {
        self.settings.compare_exchange(settings_word(known), settings_word(to), Relaxed, Relaxed).is_ok()
    }

    /// The marks of a folio whose accesses through descriptors are all counted.
    #[inline(always)]
    pub(crate) fn counted_full(&self) -> CountedFull {
        CountedFull((self.settings.load(Relaxed) >> FULL_SHIFT) as u8)
    }

    /// Locks all lists of the node, if one lock covers them.
    #[inline]
    pub(crate) fn node_lock(&self) -> Option<MutexGuard<'_, LockCounts>> {
        (self.mechanisms.lru_lock() == LruLock::Node).then(|| {
            let (mut counts, waited) = self.node_lock.lock_noting();
            counts.count(waited);
            counts
        })
    }

    /// Counts of the node-wide list lock; zero if each lruvec has its own lock.
    pub fn node_lock_counts(&self) -> LockCounts {
        *self.node_lock.lock()
    }

    /// Whether a thread holds the node-wide list lock.
    pub fn is_node_locked(&self) -> bool {
        self.node_lock.try_lock().is_none()
    }

    /// Number of folios, used and free.
    pub fn len(&self) -> u32 {
        self.flags.len() as u32
    }

    /// Whether the table has no folios.
    pub fn is_empty(&self) -> bool {
        self.flags.is_empty()
    }

    /// State, references and content version of a folio.
    #[inline]
    pub fn flags(&self, folio: FolioId) -> &FolioFlags {
        &self.flags[folio.0 as usize]
    }

    #[inline]
    pub(crate) fn links(&self, folio: FolioId) -> &Links {
        &self.links[folio.0 as usize]
    }

    /// The word with the folio's page, to be prefetched.
    #[inline]
    pub(crate) fn page_word(&self, folio: FolioId) -> &AtomicU64 {
        &self.pages[folio.0 as usize]
    }

    /// The word with the folio's memcg and stamp, to be prefetched.
    #[inline]
    pub(crate) fn memcg_word(&self, folio: FolioId) -> &AtomicU32 {
        &self.memcgs[folio.0 as usize]
    }

    /// The folio's page: number of the mapping, and index in it.
    #[inline]
    pub(crate) fn page(&self, folio: FolioId) -> (u32, u32) {
        let page = self.pages[folio.0 as usize].load(Relaxed);
        ((page >> 32) as u32, page as u32)
    }

    /// Index of a folio's page inside its mapping.
    #[inline]
    pub fn index(&self, folio: FolioId) -> u32 {
        self.page(folio).1
    }

    pub(crate) fn set_page(&self, folio: FolioId, mapping: u32, index: u32) {
        self.pages[folio.0 as usize].store(u64::from(mapping) << 32 | u64::from(index), Relaxed);
    }

    #[inline]
    pub(crate) fn memcg(&self, folio: FolioId) -> u32 {
        self.memcgs[folio.0 as usize].load(Relaxed) & MEMCG_MASK
    }

    /// Changed, like the stamp, only with the lists locked or before the folio is queued for one.
    pub(crate) fn set_memcg(&self, folio: FolioId, memcg: u32) {
        debug_assert!(memcg <= MEMCG_MASK);
        let word = &self.memcgs[folio.0 as usize];
        word.store(word.load(Relaxed) & !MEMCG_MASK | memcg, Relaxed);
    }

    /// The stamp that the policy set last.
    #[inline]
    pub(crate) fn stamp(&self, folio: FolioId) -> Stamp {
        Stamp(self.memcgs[folio.0 as usize].load(Relaxed) >> MEMCG_BITS)
    }

    pub(crate) fn set_stamp(&self, folio: FolioId, stamp: Stamp) {
        let word = &self.memcgs[folio.0 as usize];
        word.store(word.load(Relaxed) & MEMCG_MASK | stamp.0 << MEMCG_BITS, Relaxed);
    }
}

#[cfg(not(loom))]
const _: () = assert!(
    FolioTable::FOLIO_BYTES as usize
        == size_of::<FolioFlags>() + size_of::<Links>() + size_of::<AtomicU64>() + size_of::<AtomicU32>()
);
