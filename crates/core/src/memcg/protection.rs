//! `memory.min` and `memory.low`: the pages of a memcg that reclaim spares.
//!
//! A claim counts as far as the memcg uses it. If the children of a parent claim more than the
//! parent has itself, each gets its share. If they claim less, the rest protects children that use
//! more than they claim, in proportion.
//!
//! Reclaim passes over a memcg whose usage is within its effective protection. Above that it scans
//! the memcg less, in proportion to the protected share.
//!
//! Source: [book: memcgs#protections] (Linux 6.12 to 7.2, with recursive protection). Effective
//! protections are computed at each visit, from the target down; the kernel's walk over the memcg
//! LRU uses values that background reclaim or the last tree walk computed.
//!
//! # Locking
//!
//! None: atomic words. Each memcg reports its claim to its parent whenever its usage changes,
//! because every visit needs the sum over perhaps thousands of siblings.

use super::{Memcg, MemcgId, Memcgs};
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// The fewest pages to scan that protection leaves.
const SCAN_PAGES_MIN: u64 = 32;

/// One of the two protections.
#[derive(Debug)]
struct Claim {
    /// Requested protection, in pages.
    setting: AtomicU64,
    /// min(usage, setting), as the parent knows it.
    claimed: AtomicU64,
    /// Sum of the children's `claimed`.
    children: AtomicU64,
}

impl Claim {
    fn new() -> Claim {
        Claim { setting: AtomicU64::new(0), claimed: AtomicU64::new(0), children: AtomicU64::new(0) }
    }

    fn reset(&self) {
        [&self.setting, &self.claimed, &self.children].into_iter().for_each(|word| word.store(0, Relaxed));
    }

    /// Reports a change of the claim to the parent.
    #[inline]
    fn update<'a>(&self, usage_pages: u64, parent: impl FnOnce() -> &'a Claim) {
        let claim = usage_pages.min(self.setting.load(Relaxed));
        if claim != self.claimed.load(Relaxed) {
            let before = self.claimed.swap(claim, Relaxed);
            parent().children.fetch_add(claim.wrapping_sub(before), Relaxed);
        }
    }
}

#[derive(Debug)]
pub(super) struct Protection {
    min: Claim,
    low: Claim,
}

impl Protection {
    pub(super) fn new() -> Protection {
        Protection { min: Claim::new(), low: Claim::new() }
    }

    pub(super) fn reset(&self) {
        self.min.reset();
        self.low.reset();
    }

    pub(super) fn min_pages(&self) -> u64 {
        self.min.setting.load(Relaxed)
    }

    pub(super) fn low_pages(&self) -> u64 {
        self.low.setting.load(Relaxed)
    }

    pub(super) fn set_min(&self, pages: u64) {
        self.min.setting.store(pages, Relaxed);
    }

    pub(super) fn set_low(&self, pages: u64) {
        self.low.setting.store(pages, Relaxed);
    }

    /// Updates the claims after the memcg's usage changed.
    #[inline]
    pub(super) fn update<'a>(&self, usage_pages: u64, parent: impl Fn() -> &'a Protection) {
        self.min.update(usage_pages, || &parent().min);
        self.low.update(usage_pages, || &parent().low);
    }
}

/// Effective protection of a memcg, as seen by a reclaimer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effective {
    /// Never taken.
    pub min_pages: u64,
    /// Taken only if nothing else is left.
    pub low_pages: u64,
}

/// Effective protection of one kind. `usage` and `claimed` are the memcg's, `parent` the parent's
/// effective protection, `siblings` the sum of all children's claims.
fn effective(usage: u64, claimed: u64, parent_usage: u64, parent: u64, siblings: u64) -> u64 {
    let share = |part: u64, of: u64, whole: u64| {
        (u128::from(part) * u128::from(of) / u128::from(whole.max(1))) as u64
    };
    if siblings > parent {
        return share(claimed, parent, siblings);
    }
    if parent > siblings && parent_usage > siblings && usage > claimed {
        return claimed + share(parent - siblings, usage - claimed, parent_usage - siblings);
    }
    claimed
}

impl Effective {
    /// The part of `pages` to scan after protection ([book: memcgs#protections], "proportional
    /// pressure"). `override_low`: only `min` protects. Also returns whether `low` reduced it.
    pub(crate) fn leaves(self, pages: u64, usage_pages: u64, override_low: bool) -> (u64, bool) {
        if self == Effective::default() {
            return (pages, false);
        }
        let by_low = !override_low && self.low_pages > self.min_pages;
        let protection = if by_low { self.low_pages } else { self.min_pages };
        let usage = usage_pages.max(protection);
        let spared = (u128::from(pages) * u128::from(protection) / (u128::from(usage) + 1)) as u64;
        ((pages - spared).max(SCAN_PAGES_MIN), by_low)
    }
}

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
            effective(usage, claimed, parent.memory.usage_pages(), above, siblings.children.load(Relaxed))
        };
        Effective {
            min_pages: of(min, above.min_pages, &parent.protection.min),
            low_pages: of(low, above.low_pages, &parent.protection.low),
        }
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
