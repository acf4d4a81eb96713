//! The report of a failed charge: the limit, the pages present, and why none could be freed.

use crate::memcg::{Counter, MemcgId};
use crate::swap::FREE_SLOTS_MIN;
use crate::{Core, Kind, Time};

pub use crate::host::{GenerationPages, OutOfMemory};

impl OutOfMemory {
    /// `wanted_pages`: those that the request needs at once.
    pub(crate) fn of(core: &Core, memcg: MemcgId, wanted_pages: u64, now: Time) -> OutOfMemory {
        let totals = core.memcgs.subtree_totals(memcg);
        let frames = u64::from(core.folios.len());
        let (usage_pages, max_pages) = if memcg == MemcgId::ROOT {
            (frames - u64::from(core.free_pages()), frames)
        } else {
            (core.memcg(memcg).usage_pages(), core.memcg(memcg).max_pages())
        };
        let mut generations = Vec::new();
        let mut protected_pages = 0;
        let mut free_swap_pages = 0;
        for member in core.subtree(memcg) {
            if member.lruvec.active_pages(Kind::Anon) + member.lruvec.inactive_pages(Kind::Anon) > 0 {
                free_swap_pages = free_swap_pages.max(core.free_swap_pages_of(member.id()));
            }
            for (distance, row) in member.lruvec.generations(now).iter().rev().enumerate() {
                if generations.len() == distance {
                    generations.push(GenerationPages::default());
                }
                generations[distance].anon_pages += row.anon_pages;
                generations[distance].file_pages += row.file_pages;
            }
            // Only children of the target: their protection includes that of their descendants.
            if member.id() != memcg && member.parent() == memcg {
                let min_pages = core.memcgs.effective_protection(member.id(), memcg).min_pages;
                protected_pages += min_pages.min(member.usage_pages());
            }
        }
        generations.reverse();
        let metadata_pages = if memcg == MemcgId::ROOT {
            u64::from(core.retired_pages())
        } else {
            core.subtree(memcg).map(|member| member.index_pages()).sum()
        };
        let listed = |active| totals.listed_pages(Kind::Anon, active);
        OutOfMemory {
            tenant: core.memcgs.path(memcg),
            victim: None,
            wanted_pages,
            usage_pages,
            max_pages,
            anon_pages: listed(false) + listed(true),
            free_swap_pages,
            dirty_pages: totals.get(Counter::FileDirty),
            writeback_pages: totals.get(Counter::FileWriteback),
            mapped_pages: totals.get(Counter::FileMapped),
            protected_pages,
            unevictable_pages: totals.unevictable_pages(),
            metadata_pages,
            generations,
        }
    }
}

impl std::fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.wanted_pages {
            ..=1 => write!(f, "no page could be freed for ")?,
            pages => write!(f, "{pages} pages of metadata are needed at once and could not be freed for ")?,
        }
        match &*self.tenant {
            "" => write!(f, "the cache as a whole: ")?,
            tenant => write!(f, "tenant '{tenant}': ")?,
        }
        let unused = match self.free_swap_pages {
            pages if (1..u64::from(FREE_SLOTS_MIN)).contains(&pages) => {
                format!(" (fewer than {FREE_SLOTS_MIN} are not used)")
            }
            _ => String::new(),
        };
        write!(
            f,
            "{} of {} pages are in use, {} dirty, {} being written, {} mapped, {} anonymous with {} pages of swap left{unused}, \
             {} protected by memory.min, {} unevictable, {} of metadata, the rest held by guards or I/O",
            self.usage_pages,
            self.max_pages,
            self.dirty_pages,
            self.writeback_pages,
            self.mapped_pages,
            self.anon_pages,
            self.free_swap_pages,
            self.protected_pages,
            self.unevictable_pages,
            self.metadata_pages
        )?;
        // Only the multi-gen LRU has pages in generations.
        if self.generations.iter().any(|generation| *generation != GenerationPages::default()) {
            write!(f, "; by generation, the oldest first, file+anonymous:")?;
            for generation in &self.generations {
                write!(f, " {}+{}", generation.file_pages, generation.anon_pages)?;
            }
        }
        match &self.victim {
            None => write!(f, "; drop guards, close files, sync, or raise the limit"),
            Some(victim) => write!(
                f,
                "; tenant '{victim}' was chosen to be killed for it: its anonymous memory is gone; raise the limit, then \
                 revive or remove the tenant, and create its regions again"
            ),
        }
    }
}

impl std::error::Error for OutOfMemory {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Options;

    #[test]
    fn generations_are_reported_where_pages_are_in_some() {
        let core = Core::new(Options::new(64), Time::ZERO);
        let mut report = OutOfMemory::of(&core, MemcgId::ROOT, 1, Time::ZERO);
        let text = report.to_string();
        assert!(
            text.ends_with("held by guards or I/O; drop guards, close files, sync, or raise the limit"),
            "{text}"
        );
        report.generations =
            vec![GenerationPages { file_pages: 3, anon_pages: 1 }, GenerationPages::default()];
        let text = report.to_string();
        assert!(
            text.contains("guards or I/O; by generation, the oldest first, file+anonymous: 3+1 0+0; drop"),
            "{text}"
        );
    }
}
