//! Shadows of evicted pages: leaves that hold only shadows, their limit, and their removal.
//!
//! A shadow takes the page's place in its slot. When its leaf is dropped, `ranked` keeps it
//! elsewhere (`lru/ranked/compact.rs`). Each policy decides its content and its effect on a
//! refault (`lru/multigen/refault.rs`, `lru/classic/refault.rs`, `lru/ranked/refault.rs`).
//!
//! Source: [book: refaults#shadow-limit].
//!
//! # Locking
//!
//! Counts are atomic. Each lruvec has a list of its shadow-only leaves with a lock of its own,
//! taken with no other lock held.

use crate::Core;
use crate::lru::{self, turns::group_of};
use crate::mapping::ShadowLeaf;
use crate::memcg::{Counter, Life, Memcg, MemcgId};
use crate::options::{Grain, PAGE_BYTES};
use crate::sync::{Mutex, Ordering::Relaxed};
use std::collections::BTreeSet;

pub use crate::lru::Shadow;

/// Shadow-only leaves that are trimmed together.
const TRIM_LEAVES: u64 = Grain::KERNEL.shadow_batch_leaves;

/// Memcgs that own shadow-only leaves, keyed by the base-2 logarithm of their peak number of such
/// leaves.
#[derive(Debug, Default)]
pub(crate) struct Remembering(Mutex<BTreeSet<(u32, MemcgId)>>);

impl Remembering {
    /// Registers a memcg that got one more shadow-only leaf in its size class.
    fn note(&self, memcg: &Memcg) {
        let (group, listed) =
            (group_of(memcg.stat.get(Counter::WorkingsetNodes)), &memcg.lruvec.shadow_group);
        if group > listed.load(Relaxed) {
            let mut remembering = self.0.lock();
            remembering.remove(&(listed.swap(group, Relaxed), memcg.id()));
            remembering.insert((group, memcg.id()));
        }
    }

    /// Unregisters a memcg that is being removed for good.
    pub(crate) fn forget(&self, memcg: &Memcg) {
        let listed = &memcg.lruvec.shadow_group;
        if listed.load(Relaxed) > 0 {
            let mut remembering = self.0.lock();
            remembering.remove(&(listed.swap(0, Relaxed), memcg.id()));
        }
    }
}

/// Registers a leaf that now holds only shadows.
pub(crate) fn note_leaf(core: &Core, memcg: &Memcg, leaf: ShadowLeaf) {
    memcg.stat.add(Counter::WorkingsetNodes, 1);
    core.remembering.note(memcg);
    list_leaf(core, memcg, leaf);
    if memcg.life() == Life::Free {
        // Another thread handed the page over to an heir meanwhile, and released the memcg.
        forget_released(core, memcg);
    }
}

/// Drops all shadows of a memcg that was released: no refault can be charged to it any more. A leaf
/// that is noted later is dropped by the thread that notes it.
pub(crate) fn forget_released(core: &Core, memcg: &Memcg) {
    trim(core, memcg, u64::MAX);
    core.remembering.forget(memcg);
}

fn list_leaf(core: &Core, memcg: &Memcg, leaf: ShadowLeaf) {
    let mut leaves = memcg.lruvec.shadow_leaves.lock();
    leaves.push_back(leaf);
    // Entries of leaves that were used again are dropped once they outnumber the others: each
    // entry is visited twice on average.
    if leaves.len() as u64 > 2 * memcg.stat.get(Counter::WorkingsetNodes) + TRIM_LEAVES {
        leaves.retain(|leaf| is_shadow_leaf(core, leaf));
    }
}

/// Drops the oldest shadows of `memcg` beyond its limit ([book: refaults#shadow-limit]): one
/// shadow-only leaf per eight cached pages. A call at `priority` wants half of the surplus and
/// a part of what earlier calls left, and trims it in whole batches
/// ([`Grain::shadow_batch_leaves`]), or at once if it is more than the surplus.
pub(crate) fn shrink(core: &Core, memcg: &Memcg, priority: u8) {
    let habits = core.habits();
    let limit = if habits.has_generations && !core.mechanisms().shadows_by_size() {
        // The slab pages that are counted allow a few leaves.
        0
    } else {
        memcg.lruvec.size_of_all_lists() / 8
    };
    let surplus = memcg.stat.get(Counter::WorkingsetNodes).saturating_sub(limit);
    if surplus == 0 {
        return;
    }
    let batch = core.options.grain.shadow_batch_leaves.max(1);
    let deferred = if habits.trims_at_once { 0 } else { memcg.lruvec.deferred_leaves.swap(0, Relaxed) };
    let wanted = ((deferred >> priority) + surplus / 2).min(2 * surplus);
    let is_little = wanted < batch && wanted >= surplus;
    let trimmed = if is_little { wanted } else { wanted / batch * batch };
    let later = (deferred + surplus / 2).saturating_sub(trimmed).min(2 * surplus);
    memcg.lruvec.deferred_leaves.store(later, Relaxed);
    trim(core, memcg, trimmed);
}

/// Drops the older half of a memcg's shadows, at most 128 leaves, if the index takes more than
/// a quarter of what is charged to the memcg: pages are worth more than memories of pages.
pub(crate) fn shrink_charged(core: &Core, memcg: MemcgId) {
    let memcg = core.memcg(memcg);
    let nodes = memcg.stat.get(Counter::WorkingsetNodes);
    if nodes > 0 && 4 * memcg.index_bytes() > memcg.usage_pages() * PAGE_BYTES {
        trim(core, memcg, nodes.div_ceil(2).min(TRIM_LEAVES));
    }
}

/// Frees leaves that a subtree pays for, when it has no page to give: drops the oldest shadows
/// of one of its memcgs or, as others may remember pages in its leaves, of the memcg with the
/// most.
pub(crate) fn give_up_charged(core: &Core, top: MemcgId) {
    if !core.options.charge_metadata {
        return;
    }
    let mut subtree = core.subtree(top);
    if !subtree.any(|memcg| trim(core, memcg, TRIM_LEAVES)) && core.memcg(top).index_bytes() >= PAGE_BYTES {
        give_up(core);
    }
    core.settle_index();
}

/// Frees leaves for pages: drops the oldest shadows of a memcg that owns the most, within a
/// factor of two. `false`: no memcg has any.
pub(crate) fn give_up(core: &Core) -> bool {
    loop {
        let mut remembering = core.remembering.0.lock();
        let Some((group, id)) = remembering.pop_last() else { return false };
        // The memcg may have dropped shadows since it was registered.
        let memcg = core.memcg(id);
        let now = group_of(memcg.stat.get(Counter::WorkingsetNodes)).min(group);
        memcg.lruvec.shadow_group.store(now, Relaxed);
        if now > 0 {
            remembering.insert((now, id));
        }
        drop(remembering);
        if now == group {
            return trim(core, memcg, TRIM_LEAVES);
        }
    }
}

/// Drops the shadows in the `most` oldest leaves. `true`: there were some.
pub(crate) fn trim(core: &Core, memcg: &Memcg, most: u64) -> bool {
    let mut trimmed = 0;
    while trimmed < most {
        let Some(leaf) = memcg.lruvec.shadow_leaves.lock().pop_front() else { break };
        // A leaf that was used again is still listed, but no longer matches its entry.
        let mapping = core.mappings.get(leaf.mapping);
        let shadows = mapping.and_then(|mapping| {
            let keep = |era: &_, index, word| lru::leaf_dropped(core, era, index, word);
            mapping.lock(&core.leaves, leaf.first_index()).trim(&leaf, keep)
        });
        trimmed += u64::from(shadows.is_some());
    }
    let stat = &core.memcgs.living(memcg.id()).stat;
    stat.sub(Counter::WorkingsetNodes, trimmed);
    stat.add(Counter::WorkingsetNodereclaim, trimmed);
    trimmed > 0
}

fn is_shadow_leaf(core: &Core, leaf: &ShadowLeaf) -> bool {
    let mapping = core.mappings.get(leaf.mapping);
    mapping.is_some_and(|m| m.lock(&core.leaves, leaf.first_index()).is_shadow_leaf(leaf))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::Harness;
    use crate::{Lru, Mechanisms, Preset};

    /// 600 leaves of one page each are evicted by 4,096 pages side by side, which allow 512 leaves.
    /// In 7.1 and 7.2 the pages on the lists of the multi-gen LRU do not count.
    #[test]
    fn cached_pages_allow_shadows_except_in_late_kernels() {
        let left = |preset, lru| {
            let mechanisms = Mechanisms::preset(preset).with_lru(lru);
            let mut harness = Harness::with_mechanisms(mechanisms, 4096, 1);
            harness.read_all((0..600).map(|n| n * 64));
            harness.read_all((0..4096).map(|n| 64 * 600 + n));
            harness.core.validate().unwrap();
            let stat = &harness.memcg().stat;
            let counts = [Counter::WorkingsetNodes, Counter::WorkingsetNodereclaim];
            assert_eq!(counts.map(|counter| stat.get(counter)).iter().sum::<u64>(), 600);
            stat.get(counts[0])
        };
        assert_eq!(left(Preset::Linux612, Lru::MultiGen), 600);
        for preset in [Preset::Linux71, Preset::Linux72] {
            assert_eq!(left(preset, Lru::Classic), 600, "{preset:?}");
            let few = left(preset, Lru::MultiGen);
            assert!((128..256).contains(&few), "{preset:?}: {few}");
        }
    }

    /// Below a batch, nothing is trimmed at once; what is left adds up, and counts at low
    /// priorities.
    #[test]
    fn surplus_that_is_less_than_a_batch_is_deferred() {
        let mut harness = Harness::with_preset(Preset::Linux71, 4096, 1);
        harness.read_all((0..200).map(|n| n * 64));
        harness.read_all((0..4096).map(|n| 64 * 200 + n));
        let core = &harness.core;
        let nodes = || harness.memcg().stat.get(Counter::WorkingsetNodes);
        assert_eq!(nodes(), 200);
        // At most twice the surplus is deferred: 400. An eighth of it and half of the surplus are a
        // batch and 22 more.
        (0..10).for_each(|_| shrink(core, harness.memcg(), 12));
        assert_eq!(nodes(), 200);
        shrink(core, harness.memcg(), 3);
        assert_eq!(nodes(), 72);
        shrink(core, harness.memcg(), 0);
        assert_eq!(nodes(), 0);
    }

    /// A memcg with the most shadows, within a factor of two, gives some up; the others are not
    /// visited.
    #[test]
    fn the_memcg_with_most_shadows_gives_some_up() {
        let mut harness = Harness::with_mechanisms(Mechanisms::default(), 64, 1);
        let few = harness.task.memcg;
        let other = harness.core.add_memcg("other", 64, crate::Time::ZERO).unwrap().id();
        let nodes = |harness: &Harness, memcg| harness.core.memcg(memcg).stat.get(Counter::WorkingsetNodes);
        // Each page in a leaf of its own.
        harness.read_all((0..100).map(|n| n * 64));
        harness.task = harness.core.new_task(other, 0);
        harness.read_all((100..1000).map(|n| n * 64));
        assert!(!harness.core.memcg(few).lruvec.shadow_leaves.lock().is_empty());
        let before = [few, other].map(|memcg| nodes(&harness, memcg));
        assert!(before[0] > 0 && before[1] > 4 * before[0], "{before:?}");
        let mut gave = [0; 2];
        while give_up(&harness.core) {
            let now = [few, other].map(|memcg| nodes(&harness, memcg));
            gave[0] += u64::from(now[0] < before[0]);
            gave[1] += 1;
            assert!(now[0] == before[0] || 2 * now[0] + 2 * TRIM_LEAVES >= now[1], "{now:?}");
        }
        assert!(gave[0] > 0 && gave[1] > gave[0], "{gave:?}");
        assert_eq!([few, other].map(|memcg| nodes(&harness, memcg)), [0, 0]);
        harness.core.validate().unwrap();
    }
}
