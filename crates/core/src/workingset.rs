//! Memories of evicted pages: leaves that hold nothing but shadows, how many may stay, and who
//! gives them up.
//!
//! A shadow takes the place of the page in its slot. What it says, and what a page gets that comes
//! back, each policy decides (`lru/multigen/refault.rs`, `lru/classic/refault.rs`).
//!
//! Source: [book: refaults#shadow-limit].
//!
//! # Locking
//!
//! Counts are atomic; the list of leaves that hold only shadows has a lock of its own per lruvec,
//! taken with no other lock held.

use crate::lru::turns::group_of;
use crate::mapping::ShadowLeaf;
use crate::memcg::{Counter, Memcg};
use crate::{Core, sync::Ordering::Relaxed};

pub use crate::lru::Shadow;

/// Leaves of shadows that are trimmed together.
const TRIM_LEAVES: u64 = 128;

impl Core {
    /// Notes that a leaf holds only shadows now.
    pub(crate) fn note_shadow_leaf(&self, memcg: &Memcg, leaf: ShadowLeaf) {
        memcg.stat.add(Counter::WorkingsetNodes, 1);
        self.note_remembering(memcg);
        let mut leaves = memcg.lruvec.shadow_leaves.lock();
        leaves.push_back(leaf);
        // Entries of leaves that were used again are dropped once they are as many as the others:
        // each entry is looked at twice on average.
        if leaves.len() as u64 > 2 * memcg.stat.get(Counter::WorkingsetNodes) + TRIM_LEAVES {
            leaves.retain(|leaf| self.is_shadow_leaf(leaf));
        }
    }

    /// Drops the oldest memories of `memcg` beyond its limit ([book: refaults#shadow-limit]): a
    /// leaf with shadows may exist for every eight cached pages. One call trims half of the
    /// surplus, in whole batches of 128.
    pub(crate) fn shrink_shadows(&self, memcg: &Memcg) {
        let limit = memcg.lruvec.size_of_all_lists() / 8;
        let surplus = memcg.stat.get(Counter::WorkingsetNodes).saturating_sub(limit);
        self.trim_shadows(memcg, surplus / 2 / TRIM_LEAVES * TRIM_LEAVES);
    }

    /// Drops the oldest memories of whoever has most, or half as many, because no leaf is left for
    /// pages. `false`: nobody has any.
    pub(crate) fn give_up_shadows(&self) -> bool {
        loop {
            let mut remembering = self.remembering.lock();
            let Some((group, id)) = remembering.pop_last() else { return false };
            // It may have become smaller since it was put there.
            let memcg = self.memcg(id);
            let now = group_of(memcg.stat.get(Counter::WorkingsetNodes)).min(group);
            memcg.lruvec.shadow_group.store(now, Relaxed);
            if now > 0 {
                remembering.insert((now, id));
            }
            drop(remembering);
            if now == group {
                return self.trim_shadows(memcg, TRIM_LEAVES);
            }
        }
    }

    /// A memcg has a leaf with shadows more, and may be among those who have more now.
    fn note_remembering(&self, memcg: &Memcg) {
        let (group, listed) =
            (group_of(memcg.stat.get(Counter::WorkingsetNodes)), &memcg.lruvec.shadow_group);
        if group > listed.load(Relaxed) {
            let mut remembering = self.remembering.lock();
            remembering.remove(&(listed.swap(group, Relaxed), memcg.id()));
            remembering.insert((group, memcg.id()));
        }
    }

    /// A memcg goes for good.
    pub(crate) fn forget_remembering(&self, memcg: &Memcg) {
        let listed = &memcg.lruvec.shadow_group;
        if listed.load(Relaxed) > 0 {
            let mut remembering = self.remembering.lock();
            remembering.remove(&(listed.swap(0, Relaxed), memcg.id()));
        }
    }

    /// Drops the memories in the `most` oldest leaves. `true`: there were some.
    pub(crate) fn trim_shadows(&self, memcg: &Memcg, most: u64) -> bool {
        let mut trimmed = 0;
        while trimmed < most {
            let Some(leaf) = memcg.lruvec.shadow_leaves.lock().pop_front() else { break };
            // A leaf that was used again is still listed, and is no longer what the entry says.
            let mapping = self.mappings.get(leaf.mapping);
            let shadows = mapping.and_then(|m| m.lock(&self.leaves).trim(leaf.leaf_index, leaf.stamp));
            trimmed += u64::from(shadows.is_some());
        }
        let stat = &self.memcgs.living(memcg.id()).stat;
        stat.sub(Counter::WorkingsetNodes, trimmed);
        stat.add(Counter::WorkingsetNodereclaim, trimmed);
        trimmed > 0
    }

    fn is_shadow_leaf(&self, leaf: &ShadowLeaf) -> bool {
        let mapping = self.mappings.get(leaf.mapping);
        mapping.is_some_and(|m| m.lock(&self.leaves).is_shadow_leaf(leaf.leaf_index, leaf.stamp))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::Harness;

    /// Memories are given up by who has most of them, within a factor of two, without a look at the
    /// others.
    #[test]
    fn who_has_most_gives_up_memories() {
        let mut harness = Harness::new(64, 1);
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
        while harness.core.give_up_shadows() {
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
