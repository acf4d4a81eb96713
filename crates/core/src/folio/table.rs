//! The table of all folios of a node: 28 bytes each, in four columns.
//!
//! Columns, because who hits, who sorts and who evicts look at different words: a hit needs the
//! state and, where it copies, the page; a scan of a list needs links and states. With 100,000
//! folios each column is smaller than a level-2 cache of 2 MiB. It saves four bytes per folio over
//! rows; alone, it made no measurable difference to the speed of a replay.

use super::{FolioFlags, Kind};
use crate::mechanism::{LruLock, Mechanisms};
use crate::sync::{
    AtomicI64, AtomicU32, AtomicU64, LockCounts, Mutex, MutexGuard, Ordering::Relaxed, SettingsWord,
};

/// Number of a folio, and of the frame that holds its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FolioId(pub u32);

/// Most folios of one node: 8 TiB of 4 KiB pages. One bit of a list link is needed to mark its end.
pub const MAX_FOLIOS: u32 = 1 << 31;

/// Bits of the number of a memcg.
pub(crate) const MEMCG_BITS: u32 = 20;
/// Bits of a stamp: those of the memcgs' column that numbers of memcgs leave.
pub(crate) const STAMP_BITS: u32 = u32::BITS - MEMCG_BITS;
const STAMP_MASK: u32 = (1 << STAMP_BITS) - 1;
const MEMCG_MASK: u32 = (1 << MEMCG_BITS) - 1;

/// When something happened to a folio, by the clock of its lruvec, of which these are the low bits.
/// The policy `ranked` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp(u32);

impl Stamp {
    /// The low bits of the time.
    pub(crate) fn new(time: u64) -> Stamp {
        Stamp(time as u32 & STAMP_MASK)
    }

    /// These bits.
    pub(crate) fn value(self) -> u64 {
        u64::from(self.0)
    }
}

/// Neighbours on a list.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) towards_head: AtomicU32,
    pub(crate) towards_tail: AtomicU32,
}

/// How many folios of a node are on lists, over all memcgs: what would else have to be summed over
/// thousands of them.
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

    /// Pages of a kind that could be reclaimed.
    pub(crate) fn pages(&self, kind: Kind) -> u64 {
        self.pages[kind as usize].load(Relaxed).max(0) as u64
    }

    /// Those that are not in the two youngest generations of their lruvec.
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
/// Which page a folio is, and whose, is written by whoever allocated it, before it becomes
/// reachable, and stays until it is freed (but for whose it is, if that memcg is removed: it
/// changes with the lists locked); who holds no reference must check afterwards that the version of
/// its state did not move.
#[derive(Debug)]
pub struct FolioTable {
    flags: Box<[FolioFlags]>,
    links: Box<[Links]>,
    /// Mapping (high half) and index inside it.
    pages: Box<[AtomicU64]>,
    /// Number of the memcg (low bits), and stamp.
    memcgs: Box<[AtomicU32]>,
    listed: Listed,
    mechanisms: Mechanisms,
    /// What is on now: `mechanisms`, but for the policy, which can be switched. The high half
    /// counts such switches.
    settings: SettingsWord,
    node_lock: Mutex<LockCounts>,
}

impl FolioTable {
    /// Bytes per folio.
    pub(crate) const FOLIO_BYTES: u64 = 28;

    /// `folios` free ones, in the default set of mechanisms.
    pub fn new(folios: u32) -> FolioTable {
        FolioTable::with_mechanisms(folios, Mechanisms::default())
    }

    /// `folios` free ones.
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
            settings: SettingsWord::new(u32::from(mechanisms.word())),
            node_lock: Mutex::default(),
        }
    }

    /// How many are on lists.
    #[inline]
    pub(crate) fn listed(&self) -> &Listed {
        &self.listed
    }

    /// By which rules states change: the same for all folios, so that whoever changes one has them
    /// at hand.
    #[inline]
    pub fn mechanisms(&self) -> Mechanisms {
        self.mechanisms.with_word(self.settings.load(Relaxed) as u16)
    }

    /// What is on now, and the number of times that it was changed.
    pub(crate) fn settings(&self) -> (Mechanisms, u32) {
        let word = self.settings.load(Relaxed);
        (self.mechanisms.with_word(word as u16), word >> 16)
    }

    /// Changes what is on. `false`: somebody else did since `known`.
    pub(crate) fn set_settings(&self, known: (Mechanisms, u32), to: (Mechanisms, u32)) -> bool {
        let word = |(mechanisms, changes): (Mechanisms, u32)| changes << 16 | u32::from(mechanisms.word());
        self.settings.compare_exchange(word(known), word(to), Relaxed, Relaxed).is_ok()
    }

    /// The lock that covers all lists of the node, where there is one.
    #[inline]
    pub(crate) fn node_lock(&self) -> Option<MutexGuard<'_, LockCounts>> {
        (self.mechanisms.lru_lock() == LruLock::Node).then(|| {
            let (mut counts, waited) = self.node_lock.lock_noting();
            counts.count(waited);
            counts
        })
    }

    /// How often the lock that covers all lists of the node was taken; never, where each lruvec has
    /// its own.
    pub fn node_lock_counts(&self) -> LockCounts {
        *self.node_lock.lock()
    }

    /// Whether somebody holds that lock now.
    pub fn is_node_locked(&self) -> bool {
        self.node_lock.try_lock().is_none()
    }

    /// How many there are, used and free.
    pub fn len(&self) -> u32 {
        self.flags.len() as u32
    }

    /// Whether the table has no folio at all.
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

    /// Where the page that a folio is stands, for who will look at it soon.
    #[inline]
    pub(crate) fn page_word(&self, folio: FolioId) -> &AtomicU64 {
        &self.pages[folio.0 as usize]
    }

    /// The page that a folio is: the number of its mapping, and its index inside that.
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

    /// The number of the memcg that a folio is charged to.
    #[inline]
    pub(crate) fn memcg(&self, folio: FolioId) -> u32 {
        self.memcgs[folio.0 as usize].load(Relaxed) & MEMCG_MASK
    }

    /// As the stamp, it is changed with the lists locked, or before anybody else knows the folio.
    pub(crate) fn set_memcg(&self, folio: FolioId, memcg: u32) {
        debug_assert!(memcg <= MEMCG_MASK);
        let word = &self.memcgs[folio.0 as usize];
        word.store(word.load(Relaxed) & !MEMCG_MASK | memcg, Relaxed);
    }

    /// What the policy noted of a folio last.
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
