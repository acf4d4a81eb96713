//! Memory cgroups ("tenants"): who pays for a page.
//!
//! Flat for now: a root and its children, each with `memory.max` and its own lruvec. The tree, protections
//! and the memcg LRU take their place here.
//!
//! # Locking
//!
//! Usage and limit are atomic words. Memcgs are only ever added; one is found by number without a lock.

mod stat;

pub use stat::{Counter, Stat};

use crate::lru::Lruvec;
use crate::mm::SpaceList;
use crate::segments::Segments;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering::AcqRel, Ordering::Relaxed};

/// Number of a memcg; it fits the 16 bits of a shadow word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemcgId(pub u16);

impl MemcgId {
    /// The root, which all others are children of.
    pub const ROOT: MemcgId = MemcgId(0);
}

/// `memory.max` of a memcg without a limit.
pub const UNLIMITED: u64 = u64::MAX;

/// One memory cgroup.
#[derive(Debug)]
pub struct Memcg {
    id: MemcgId,
    name: String,
    max_pages: AtomicU64,
    usage_pages: AtomicU64,
    peak_pages: AtomicU64,
    pub(crate) stat: Stat,
    pub(crate) lruvec: Lruvec,
    pub(crate) spaces: SpaceList,
}

impl Memcg {
    /// Its number.
    pub fn id(&self) -> MemcgId {
        self.id
    }

    /// Its name, unique among its siblings; empty for the root.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `memory.max`, in pages.
    pub fn max_pages(&self) -> u64 {
        self.max_pages.load(Relaxed)
    }

    /// Sets `memory.max`, in pages. A smaller limit takes effect with the next charge.
    pub fn set_max_pages(&self, pages: u64) {
        self.max_pages.store(pages, Relaxed);
    }

    /// `memory.current`, in pages.
    pub fn usage_pages(&self) -> u64 {
        self.usage_pages.load(Relaxed)
    }

    /// `memory.peak`, in pages.
    pub fn peak_pages(&self) -> u64 {
        self.peak_pages.load(Relaxed)
    }

    /// Its counters.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Its lists.
    pub fn lruvec(&self) -> &Lruvec {
        &self.lruvec
    }

    /// Charges `pages` if they fit under the limit.
    pub(crate) fn try_charge(&self, pages: u64) -> bool {
        let max = self.max_pages();
        let charged = self.usage_pages.fetch_update(AcqRel, Relaxed, |usage| {
            let next = usage + pages;
            (next <= max).then_some(next)
        });
        let Ok(before) = charged else { return false };
        if before + pages > self.peak_pages.load(Relaxed) {
            self.peak_pages.fetch_max(before + pages, Relaxed);
        }
        true
    }

    pub(crate) fn uncharge(&self, pages: u64) {
        let before = self.usage_pages.fetch_sub(pages, AcqRel);
        assert!(before >= pages, "memcg {} was uncharged below zero", self.name);
    }

    /// Pages that may still be charged.
    pub(crate) fn margin_pages(&self) -> u64 {
        self.max_pages().saturating_sub(self.usage_pages())
    }
}

/// 2^16 memcgs.
const SEGMENTS: usize = 12;

/// Why a memcg could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemcgError {
    /// The name is taken.
    Exists(String),
    /// 65,535 exist already: their number has 16 bits in shadow entries.
    TooMany,
}

impl std::fmt::Display for MemcgError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MemcgError::Exists(name) => {
                write!(f, "a tenant named '{name}' exists already: choose another name")
            }
            MemcgError::TooMany => write!(f, "there are 65,535 tenants already, which is the most"),
        }
    }
}

impl std::error::Error for MemcgError {}

/// All memcgs, found by number without a lock.
#[derive(Debug)]
pub(crate) struct MemcgTable {
    memcgs: Segments<Memcg, SEGMENTS>,
    len: AtomicU32,
    adding: Mutex<()>,
}

impl MemcgTable {
    pub(crate) fn new() -> MemcgTable {
        MemcgTable { memcgs: Segments::new(), len: AtomicU32::new(0), adding: Mutex::new(()) }
    }

    pub(crate) fn add(&self, name: &str, max_pages: u64, now: crate::Time) -> Result<&Memcg, MemcgError> {
        let _adding = self.adding.lock();
        if self.iter().any(|memcg| memcg.name == name) {
            return Err(MemcgError::Exists(name.to_owned()));
        }
        let number = self.len.load(Relaxed);
        let id = MemcgId(u16::try_from(number).map_err(|_| MemcgError::TooMany)?);
        let memcg = self.memcgs.get_or_init(number, || Memcg {
            id,
            name: name.to_owned(),
            max_pages: AtomicU64::new(max_pages),
            usage_pages: AtomicU64::new(0),
            peak_pages: AtomicU64::new(0),
            stat: Stat::new(),
            lruvec: Lruvec::new(id, now),
            spaces: SpaceList::new(),
        });
        self.len.store(number + 1, crate::sync::Ordering::Release);
        Ok(memcg)
    }

    pub(crate) fn len(&self) -> u32 {
        self.len.load(crate::sync::Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn get(&self, id: MemcgId) -> &Memcg {
        self.memcgs
            .get(u32::from(id.0))
            .expect("memcg numbers are handed out by the table and never taken back")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Memcg> {
        (0..self.len()).map(|number| self.get(MemcgId(number as u16)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn charges_stop_at_the_limit() {
        let table = MemcgTable::new();
        let memcg = table.add("a", 10, crate::Time::ZERO).unwrap();
        assert!(memcg.try_charge(8) && !memcg.try_charge(3) && memcg.try_charge(2));
        memcg.uncharge(4);
        assert_eq!((memcg.usage_pages(), memcg.peak_pages(), memcg.margin_pages()), (6, 10, 4));
    }

    #[test]
    fn names_are_unique_and_numbers_found() {
        let table = MemcgTable::new();
        for n in 0..100 {
            table.add(&format!("t{n}"), UNLIMITED, crate::Time::ZERO).unwrap();
        }
        assert_eq!(table.add("t7", 1, crate::Time::ZERO).unwrap_err(), MemcgError::Exists("t7".into()));
        assert!(table.iter().enumerate().all(|(n, memcg)| memcg.name() == format!("t{n}")));
    }
}
