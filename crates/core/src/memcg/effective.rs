//! Sets protections in the tree of memcgs, and says what they come to for a reclaimer.
//!
//! Source: [book: memcgs#protections].

use super::protection::{Claim, Effective, effective};
use super::{Memcg, MemcgId, Memcgs};
use crate::sync::Ordering::Relaxed;

impl Memcgs {
    /// Effective protection of `memcg` against a reclaimer of `target`. The target and the root
    /// have none.
    pub fn effective_protection(&self, memcg: MemcgId, target: MemcgId) -> Effective {
        if memcg == target || memcg == MemcgId::ROOT {
            return Effective::default();
        }
        let own = self.get(memcg);
        let parent = own.parent();
        let (min, low) = (&own.protection.min, &own.protection.low);
        if parent == target || parent == MemcgId::ROOT {
            return Effective { min_pages: min.setting.load(Relaxed), low_pages: low.setting.load(Relaxed) };
        }
        let above = self.effective_protection(parent, target);
        let parent: &Memcg = self.get(parent);
        let usage = own.memory.usage_pages();
        let of = |claim: &Claim, above: u64, siblings: &Claim| {
            let claimed = usage.min(claim.setting.load(Relaxed));
            effective(usage, claimed, parent.memory.usage_pages(), above, siblings.children_pages())
        };
        Effective {
            min_pages: of(min, above.min_pages, &parent.protection.min),
            low_pages: of(low, above.low_pages, &parent.protection.low),
        }
    }

    /// Sets `memory.min`, in pages. The effect is capped at `memory.max`.
    pub fn set_min(&self, memcg: MemcgId, pages: u64) {
        let memcg = self.get(memcg);
        memcg.protection.set_min(pages);
        self.update_protection(memcg);
    }

    /// Sets `memory.low`, in pages.
    pub fn set_low(&self, memcg: MemcgId, pages: u64) {
        let memcg = self.get(memcg);
        memcg.protection.set_low(pages);
        self.update_protection(memcg);
    }

    /// Reports what a memcg claims to its parent, after its usage or a protection changed.
    #[inline]
    pub(super) fn update_protection(&self, memcg: &Memcg) {
        memcg.protection.update(|| memcg.usage_pages(), || &self.get(memcg.parent()).protection);
    }

    /// Checks that each memcg claims as much of its protections as it uses, and that each parent
    /// knows the sums.
    pub(crate) fn validate_claims(&self) -> Result<(), String> {
        fn claim(memcg: &Memcg, is_low: bool) -> &Claim {
            if is_low { &memcg.protection.low } else { &memcg.protection.min }
        }
        for (is_low, name) in [(false, "min"), (true, "low")] {
            let mut sums = vec![0; self.numbers() as usize];
            for memcg in self.iter().filter(|memcg| memcg.id() != MemcgId::ROOT) {
                let claim = claim(memcg, is_low);
                let expected = memcg.usage_pages().min(claim.setting.load(Relaxed));
                let claimed = claim.claimed.load(Relaxed);
                if claimed != expected {
                    let tenant = memcg.name();
                    return Err(format!("'{tenant}' claims {claimed} pages of {name}, not {expected}"));
                }
                sums[memcg.parent().0 as usize] += claimed;
            }
            for memcg in self.iter() {
                let (known, sum) = (claim(memcg, is_low).children_pages(), sums[memcg.id().0 as usize]);
                if known != sum {
                    let tenant = memcg.name();
                    return Err(format!("'{tenant}' counts {known} claimed pages of {name}, not {sum}"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Core, Options, Time, UNLIMITED};

    /// Effective low of the children of a parent below the root; children have (usage, low).
    fn lows(parent_low: u64, children: &[(u64, u64)]) -> Vec<u64> {
        let core = Core::new(Options::new(64), Time::ZERO);
        let parent = core.add_memcg("parent", UNLIMITED, Time::ZERO).unwrap().id();
        core.memcgs.set_low(parent, parent_low);
        let child = |(n, &(usage, low)): (usize, &(u64, u64))| {
            let child = core.add_child(parent, &format!("c{n}"), UNLIMITED, Time::ZERO).unwrap().id();
            core.memcgs.set_low(child, low);
            core.memcgs.charge_pages(child, usage).unwrap();
            child
        };
        let children: Vec<_> = children.iter().enumerate().map(child).collect();
        children
            .into_iter()
            .map(|child| core.memcgs.effective_protection(child, MemcgId::ROOT).low_pages)
            .collect()
    }

    /// [book: memcgs#checks]: "Effective low with children lows 6+6, parent low 6, both used fully
    /// at 6: each 3".
    #[test]
    fn overcommitted_claims_are_shared() {
        assert_eq!(lows(6, &[(6, 6), (6, 6)]), [3, 3]);
    }

    /// [book: memcgs#checks]: "Recursive: parent low 10, one child low 0 usage 5, other child low 4
    /// usage 8 …: 3 and 6".
    #[test]
    fn unclaimed_protection_goes_to_larger_users() {
        assert_eq!(lows(10, &[(5, 0), (8, 4)]), [3, 6]);
    }

    /// The kernel's documentation of memory.low: children B, C, D and E of A with low of 75, 25, 0
    /// and 500. B, C and D use 50 each, E nothing; A has low 100 and usage 150. An unused claim
    /// does not count.
    #[test]
    fn an_unused_claim_protects_no_other_memcg() {
        // B and C claim 50 and 25 of the parent's 100: the rest is shared by C (25 above its claim)
        // and D (50 above).
        assert_eq!(lows(100, &[(50, 75), (50, 25), (50, 0), (0, 500)]), [50, 33, 16, 0]);
        assert_eq!(
            lows(50, &[(50, 75), (50, 25), (50, 0), (0, 500)]),
            [33, 16, 0, 0],
            "two thirds and one third"
        );
    }

    /// A page that is being charged is counted by the child and not yet by the parent, which
    /// protects everything.
    #[test]
    fn a_parent_that_protects_everything_protects_each_child() {
        assert_eq!(effective(10, 4, 3, UNLIMITED, 0), UNLIMITED);
    }

    /// [book: memcgs#protections]: a child of the target has its full claim, the target itself
    /// none.
    #[test]
    fn protection_is_relative_to_the_target() {
        let core = Core::new(Options::new(64), Time::ZERO);
        let a = core.add_memcg("a", UNLIMITED, Time::ZERO).unwrap().id();
        let b = core.add_child(a, "b", UNLIMITED, Time::ZERO).unwrap().id();
        core.memcgs.set_min(b, 7);
        core.memcgs.charge_pages(b, 20).unwrap();
        let min = |target| core.memcgs.effective_protection(b, target).min_pages;
        assert_eq!((min(MemcgId::ROOT), min(a), min(b)), (0, 7, 0), "a itself has no protection to pass on");
    }

    /// [book: memcgs#checks]: "Proportional: size 1000, usage 1000, low 500 (not override): 501
    /// pages"; never fewer than 32.
    #[test]
    fn pressure_is_proportional() {
        let low = Effective { min_pages: 0, low_pages: 500 };
        assert_eq!(low.leaves(1000, 1000, false), (501, true));
        assert_eq!(low.leaves(1000, 1000, true), (1000, false));
        assert_eq!(Effective { min_pages: 990, low_pages: 0 }.leaves(1000, 1000, true), (32, false));
        assert_eq!(Effective::default().leaves(5, 5, false), (5, false));
    }
}
