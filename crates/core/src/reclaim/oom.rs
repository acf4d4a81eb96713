//! When reclaim has tried everything: the report that a failed charge carries.

use crate::Core;
use crate::memcg::{Counter, MemcgId};

/// A page could not be had. Not a crash: the request that needed it fails, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Whose limit was met; empty for the budget of the whole cache.
    pub tenant: String,
    /// Pages charged to it.
    pub usage_pages: u64,
    /// Pages it may have.
    pub max_pages: u64,
    /// Of its pages, dirty ones that could not be freed.
    pub dirty_pages: u64,
    /// Of its pages, those being written.
    pub writeback_pages: u64,
    /// Of its pages, those that must not be reclaimed.
    pub unevictable_pages: u64,
}

impl OutOfMemory {
    pub(crate) fn of(core: &Core, memcg: MemcgId) -> OutOfMemory {
        let totals = core.subtree_totals(memcg);
        let frames = u64::from(core.folios.len());
        let (usage_pages, max_pages) = if memcg == MemcgId::ROOT {
            (frames - u64::from(core.free_pages()), frames)
        } else {
            (core.memcg(memcg).usage_pages(), core.memcg(memcg).max_pages())
        };
        OutOfMemory {
            tenant: core.memcg_path(memcg),
            usage_pages,
            max_pages,
            dirty_pages: totals.get(Counter::FileDirty),
            writeback_pages: totals.get(Counter::FileWriteback),
            unevictable_pages: totals.unevictable_pages(),
        }
    }
}

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.tenant.is_empty() {
            write!(f, "no page could be freed for the cache as a whole: ")?;
        } else {
            write!(f, "no page could be freed for tenant '{}': ", self.tenant)?;
        }
        write!(
            f,
            "{} of {} pages are in use, {} dirty, {} being written, {} unevictable, the rest held by guards or \
             I/O; drop guards, sync, or raise the limit",
            self.usage_pages, self.max_pages, self.dirty_pages, self.writeback_pages, self.unevictable_pages
        )
    }
}

impl std::error::Error for OutOfMemory {}
