//! Visits to the memcgs of a subtree, one after the other.
//!
//! A visitor holds a handle on the memcg that it is at: otherwise another thread could release
//! that memcg, and its number could be reused for a memcg elsewhere. The top of the subtree needs
//! none, since the caller refers to it, and the root is never released.
//!
//! # Locking
//!
//! A handle is taken under the tree's lock or without one, and dropped without one.

use super::{Memcg, MemcgId};
use crate::Core;

/// Whether a visitor of `memcg` holds it.
pub(super) fn is_held(memcg: MemcgId, top: MemcgId) -> bool {
    memcg != top && memcg != MemcgId::ROOT
}

impl Core {
    /// Ends the visit to a memcg below `top`, or to `top` itself.
    pub(crate) fn end_visit(&self, memcg: MemcgId, top: MemcgId) {
        if is_held(memcg, top) {
            self.drop_handle(memcg);
        }
    }

    /// A memcg and its descendants in the order of a tree walk: parents before children, siblings
    /// in order of creation. Each is kept until the next one is taken. The caller refers to `top`
    /// and holds no lock but that of the choice of a victim.
    pub fn subtree(&self, top: MemcgId) -> impl Iterator<Item = &Memcg> {
        Subtree { core: self, top, at: None, ended: false }
    }
}

/// See [`Core::subtree`].
struct Subtree<'a> {
    core: &'a Core,
    top: MemcgId,
    at: Option<MemcgId>,
    ended: bool,
}

impl<'a> Iterator for Subtree<'a> {
    type Item = &'a Memcg;

    fn next(&mut self) -> Option<&'a Memcg> {
        if self.ended {
            return None;
        }
        let next = self.core.memcgs.hold_next(self.top, self.at);
        if let Some(before) = std::mem::replace(&mut self.at, next) {
            self.core.end_visit(before, self.top);
        }
        self.ended = next.is_none();
        Some(self.core.memcg(next?))
    }
}

impl Drop for Subtree<'_> {
    fn drop(&mut self) {
        if let Some(at) = self.at {
            self.core.end_visit(at, self.top);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::memcg::{MemcgId, tree::NUMBERS_RESTING};
    use crate::testing::{Harness, QuietHost};
    use crate::{Core, Options, Time, UNLIMITED};

    fn add(core: &Core, parent: MemcgId, name: &str) -> MemcgId {
        core.add_child(parent, name, UNLIMITED, Time::ZERO).unwrap().id()
    }

    fn remove(core: &Core, memcg: MemcgId) {
        core.remove_memcg(&QuietHost::default(), memcg).unwrap();
        core.drop_handle(memcg);
    }

    /// A memcg is removed during the visit to it: the ones behind it are still visited, and nothing
    /// holds it afterwards.
    #[test]
    fn a_visited_memcg_that_is_removed_does_not_end_the_walk() {
        let core = Core::new(Options::new(64), Time::ZERO);
        let [a, b, c] = ["a", "b", "c"].map(|name| add(&core, MemcgId::ROOT, name));
        let mut visited = Vec::new();
        for memcg in core.subtree(MemcgId::ROOT) {
            visited.push(memcg.id());
            if memcg.id() == b {
                remove(&core, b);
            }
        }
        assert_eq!(visited, [MemcgId::ROOT, a, b, c]);
        assert_eq!(core.memcgs.iter().count(), 3, "it has been released");
        assert_eq!(core.subtree(MemcgId::ROOT).nth(1).map(|memcg| memcg.id()), Some(a));
        remove(&core, a);
        assert_eq!(core.memcgs.iter().count(), 2, "a walk that stops holds nothing");
    }

    /// Limit reclaim is at a memcg that is removed, and many others come and go: the turn does not
    /// go on with another tenant's pages, which have the number then.
    #[test]
    fn reclaim_never_meets_another_memcg_of_the_same_number() {
        use crate::reclaim::{Context, NodeWalk, Orders, Scan, WalkStep};
        for preset in [crate::Preset::Default, crate::Preset::Linux612, crate::Preset::Linux72] {
            let mut harness = Harness::with_preset(preset, 4096, 31);
            let parent = harness.task.memcg;
            let child = add(&harness.core, parent, "child");
            harness.task = harness.core.new_task(child, 0);
            harness.bring_at(0..1000, 4);
            let orders = Orders { target: parent, ..harness.orders(500) };
            let mut scan = Scan::default();
            let mut walk =
                NodeWalk::new(&mut Context::new(&harness.core, &harness.host, &orders, &mut scan), 1, true);
            // Until the child's turn has freed a batch.
            while scan.progress.reclaimed == 0 {
                walk.step(&mut Context::new(&harness.core, &harness.host, &orders, &mut scan));
            }
            assert!(harness.core.truncate(&harness.host, &harness.mapping, 0, 1 << 32).is_none());
            harness.core.unmap(&harness.host, &harness.task, &harness.mapping);
            harness.core.end_task(&harness.task);
            remove(&harness.core, child);
            let mut names = (0..3 * NUMBERS_RESTING).map(|number| number.to_string());
            let reused = names.find_map(|name| {
                let memcg = add(&harness.core, MemcgId::ROOT, &name);
                if memcg != child {
                    remove(&harness.core, memcg);
                }
                (memcg == child).then_some(memcg)
            });
            let other = reused.unwrap_or_else(|| add(&harness.core, MemcgId::ROOT, "other"));
            harness.task = harness.core.new_task(other, 0);
            harness.bring_at(0..500, 4);
            let before = harness.core.memcg(other).usage_pages();
            while walk.step(&mut Context::new(&harness.core, &harness.host, &orders, &mut scan))
                != WalkStep::Finished
            {}
            let left = harness.core.memcg(other).usage_pages();
            assert_eq!(left, before, "{preset:?}: {} of the number {other:?} was taken", before - left);
            assert_ne!(other, child, "{preset:?}: the visitor holds the number");
            let rest = harness.core.memcgs.iter().map(|memcg| memcg.id()).collect::<Vec<_>>();
            assert_eq!(rest, [MemcgId::ROOT, parent, other], "{preset:?}: it was released after the visit");
        }
    }
}
