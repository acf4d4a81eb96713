//! Late statistics: list sizes and activated refaults of a subtree, as reclaim knows them, and its
//! dirty pages, as writers know them.
//!
//! The kernel collects these from per-CPU increments every two seconds, or when a user reads the
//! memcg's statistics. In between all decisions that use them stay the same: whether the active
//! list gives up pages is frozen, so its length swings far around the balance. Without this delay
//! the engine disagrees with every measured kernel ([book: agreement#classic-rules-worth]).
//!
//! The mechanism `exact_statistics` keeps them exact.
//!
//! Source: [book: classic-lru#late-statistics].

use super::state::LISTS;
use crate::Core;
use crate::folio::Kind;
use crate::host::Host;
use crate::memcg::{Counter, Memcg, MemcgId};
use crate::sync::Ordering::Relaxed;

/// Known list sizes of a memcg and its descendants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes([u64; 4]);

impl Sizes {
    pub(crate) fn inactive(&self, kind: Kind) -> u64 {
        self.0[kind as usize * 2]
    }

    pub(crate) fn active(&self, kind: Kind) -> u64 {
        self.0[kind as usize * 2 + 1]
    }

    pub(crate) fn pages(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The exact sizes of one memcg alone.
    fn of(memcg: &Memcg) -> Sizes {
        let lruvec = &memcg.lruvec;
        Sizes(LISTS.map(
            |(kind, active)| {
                if active { lruvec.active_pages(kind) } else { lruvec.inactive_pages(kind) }
            },
        ))
    }

    fn plus(self, other: Sizes) -> Sizes {
        Sizes(std::array::from_fn(|list| self.0[list] + other.0[list]))
    }
}

/// Counters of activated refaults, by kind.
const ACTIVATED: [Counter; 2] = [Counter::WorkingsetActivateAnon, Counter::WorkingsetActivateFile];

impl Core {
    /// Refreshes the statistics of all memcgs, as the kernel's periodic work does.
    pub fn refresh_statistics(&self) {
        self.refresh_statistics_of(MemcgId::ROOT);
    }

    /// Refreshes the statistics of a memcg and its descendants, as reading its statistics does in
    /// the kernel. Its ancestors' stay as they are.
    pub fn refresh_statistics_of(&self, top: MemcgId) {
        let within = |memcg: &&Memcg| self.memcgs.is_within(memcg.id(), top);
        let mut sums = vec![(Sizes::default(), [0; 2]); self.memcgs.numbers() as usize];
        for memcg in self.memcgs.iter().filter(within) {
            let (sizes, activated) = (Sizes::of(memcg), ACTIVATED.map(|counter| memcg.stat.get(counter)));
            for ancestor in self.memcgs.lineage(memcg) {
                let Some(sum) = sums.get_mut(ancestor.id().0 as usize) else { continue };
                sum.0 = sum.0.plus(sizes);
                sum.1 = [sum.1[0] + activated[0], sum.1[1] + activated[1]];
            }
        }
        for memcg in self.memcgs.iter().filter(within) {
            // A memcg that was created meanwhile has nothing yet.
            let (sizes, activated) = sums.get(memcg.id().0 as usize).copied().unwrap_or_default();
            let aggregated = &memcg.lruvec.classic.aggregated;
            aggregated.sizes.iter().zip(sizes.0).for_each(|(word, pages)| word.store(pages, Relaxed));
            aggregated.activated.iter().zip(activated).for_each(|(word, pages)| word.store(pages, Relaxed));
            memcg.pending.refresh();
        }
    }

    /// Refreshes statistics that are not exact, if the time has come.
    pub(crate) fn refresh_if_due(&self, host: &impl Host) {
        let now = host.now();
        let due = self.statistics_due_ns.load(Relaxed);
        if now.as_nanos() >= due {
            let next = self.options.statistics_refresh.after(now).as_nanos();
            // Of the threads that notice, one refreshes.
            if self.statistics_due_ns.compare_exchange(due, next, Relaxed, Relaxed).is_ok() {
                self.refresh_statistics();
            }
        }
    }
}

/// Known list sizes of a memcg and its descendants.
pub(crate) fn known_sizes(core: &Core, host: &impl Host, memcg: &Memcg) -> Sizes {
    if !core.mechanisms().exact_statistics() {
        core.refresh_if_due(host);
        let sizes = &memcg.lruvec.classic.aggregated.sizes;
        return Sizes(std::array::from_fn(|list| sizes[list].load(Relaxed)));
    }
    if memcg.id() == MemcgId::ROOT {
        // Node counters exist anyway; a sum over all memcgs may be one over thousands.
        let listed = core.folios.listed();
        return Sizes(LISTS.map(|(kind, active)| {
            let inactive = listed.inactive_pages(kind);
            if active { listed.pages(kind).saturating_sub(inactive) } else { inactive }
        }));
    }
    if !memcg.has_children.load(Relaxed) {
        return Sizes::of(memcg);
    }
    let mut sum = Sizes::default();
    core.memcgs.visit(memcg.id(), |memcg| sum = sum.plus(Sizes::of(memcg)));
    sum
}

/// About the sum of [`known_sizes`], as the bound of a memcg's costs. Of a memcg with
/// children it is what is charged: a sum over its subtree would be made by each batch, from
/// words that other threads write, and took a tenth of the time with 8 threads four levels
/// down.
pub(crate) fn known_pages(core: &Core, host: &impl Host, memcg: &Memcg) -> u64 {
    let is_inner = memcg.id() != MemcgId::ROOT && memcg.has_children.load(Relaxed);
    if is_inner && core.mechanisms().exact_statistics() {
        memcg.usage_pages()
    } else {
        known_sizes(core, host, memcg).pages()
    }
}

/// Known activated refaults of a memcg and its descendants, by kind.
fn known_activated(core: &Core, host: &impl Host, memcg: &Memcg) -> [u64; 2] {
    if !core.mechanisms().exact_statistics() {
        core.refresh_if_due(host);
        return std::array::from_fn(|kind| memcg.lruvec.classic.aggregated.activated[kind].load(Relaxed));
    }
    ACTIVATED.map(|counter| core.memcgs.subtree_stat(memcg.id(), counter))
}

/// Notes at the end of an effort on `memcg` the activated refaults known by now; they are not
/// news for the next effort.
pub(crate) fn note_refaults_seen(core: &Core, host: &impl Host, memcg: &Memcg) {
    let known = known_activated(core, host, memcg);
    memcg.lruvec.classic.refaults_seen.iter().zip(known).for_each(|(seen, known)| seen.store(known, Relaxed));
}

/// Whether refaults were activated since the last effort on `memcg` ended, by kind, as far as
/// known.
pub(crate) fn has_new_refaults(core: &Core, host: &impl Host, memcg: &Memcg) -> [bool; 2] {
    let known = known_activated(core, host, memcg);
    let seen = &memcg.lruvec.classic.refaults_seen;
    std::array::from_fn(|kind| seen[kind].load(Relaxed) != known[kind])
}

#[cfg(all(test, not(loom)))]
impl crate::lru::Lruvec {
    /// Sets the number of inactive file pages that late statistics know of.
    pub(crate) fn know_inactive_file_pages(&self, pages: u64) {
        self.classic.aggregated.sizes[Kind::File as usize * 2].store(pages, Relaxed);
    }
}
