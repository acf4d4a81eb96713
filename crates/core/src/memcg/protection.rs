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

use super::pace::scale;
use crate::sync::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed, Ordering::SeqCst, fence};

/// The fewest pages to scan that protection leaves.
const SCAN_PAGES_MIN: u64 = 32;

/// One of the two protections.
#[derive(Debug)]
pub(super) struct Claim {
    /// Requested protection, in pages.
    pub(super) setting: AtomicU64,
    /// min(usage, setting), as the parent knows it.
    pub(super) claimed: AtomicU64,
    /// Sum of the children's `claimed`. A decrease may come before the increase that it follows.
    children: AtomicU64,
}

impl Claim {
    fn new() -> Claim {
        Claim { setting: AtomicU64::new(0), claimed: AtomicU64::new(0), children: AtomicU64::new(0) }
    }

    fn reset(&self) {
        [&self.setting, &self.claimed, &self.children].into_iter().for_each(|word| word.store(0, Relaxed));
    }

    /// The claims of all children, in pages.
    pub(super) fn children_pages(&self) -> u64 {
        self.children.load(Relaxed).cast_signed().max(0).cast_unsigned()
    }

    /// Reports a change of the claim to the parent, after a fence. Looks at usage and setting after
    /// each report, too: another thread may have changed them and seen the report before.
    #[inline]
    fn update<'a>(&self, usage_pages: impl Fn() -> u64, parent: impl Fn() -> &'a Claim) {
        // Most memcgs are not protected.
        if self.setting.load(Relaxed) == 0 && self.claimed.load(Relaxed) == 0 {
            return;
        }
        loop {
            let claim = usage_pages().min(self.setting.load(Relaxed));
            if claim == self.claimed.load(Relaxed) {
                return;
            }
            let before = self.claimed.swap(claim, AcqRel);
            parent().children.fetch_add(claim.wrapping_sub(before), Relaxed);
            fence(SeqCst);
        }
    }
}

#[derive(Debug)]
pub(super) struct Protection {
    pub(super) min: Claim,
    pub(super) low: Claim,
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
    pub(super) fn update<'a>(&self, usage_pages: impl Fn() -> u64, parent: impl Fn() -> &'a Protection) {
        // Between the change, or a report, and the looks at the words of others: of two threads
        // that change something at the same time, the one that looks last sees both changes.
        fence(SeqCst);
        self.min.update(&usage_pages, || &parent().min);
        self.low.update(&usage_pages, || &parent().low);
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
pub(super) fn effective(usage: u64, claimed: u64, parent_usage: u64, parent: u64, siblings: u64) -> u64 {
    if siblings > parent {
        return scale(claimed, parent, siblings);
    }
    if parent > siblings && parent_usage > siblings && usage > claimed {
        // The parent may protect everything, and may not count a page yet that its child counts.
        let rest = scale(parent - siblings, usage - claimed, parent_usage - siblings);
        return claimed.saturating_add(rest);
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

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// A memcg is removed, and loses its protection, while another thread uncharges a page: in the
    /// end its parent counts no claim.
    #[test]
    fn loom_a_removed_memcg_claims_nothing() {
        loom::model(|| {
            let world = Arc::new((Protection::new(), Protection::new()));
            let (memcg, parent) = &*world;
            memcg.set_min(5);
            memcg.update(|| 2, || parent);
            let uncharging = {
                let world = world.clone();
                loom::thread::spawn(move || world.0.update(|| 1, || &world.1))
            };
            memcg.set_min(0);
            memcg.update(|| 1, || parent);
            uncharging.join().unwrap();
            assert_eq!(parent.min.children_pages(), 0);
        });
    }

    /// A memcg gets its first protection while another thread charges pages to it: in the end its
    /// parent counts the claim.
    #[test]
    fn loom_a_first_protection_is_claimed() {
        loom::model(|| {
            let world = Arc::new((Protection::new(), Protection::new(), AtomicU64::new(0)));
            fn report((memcg, parent, usage): &(Protection, Protection, AtomicU64)) {
                memcg.update(|| usage.load(Relaxed), || parent);
            }
            let charge = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    world.2.fetch_add(2, AcqRel);
                    report(&world);
                })
            };
            world.0.set_min(5);
            report(&world);
            charge.join().unwrap();
            assert_eq!(world.1.min.children_pages(), 2);
        });
    }

    /// A charge and the end of the protection are reported at once, while the parent looks: the
    /// claims of its children do not wrap around, which would leave each of them next to nothing.
    #[test]
    fn loom_claims_do_not_wrap_around() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let world = Arc::new((Protection::new(), Protection::new(), AtomicU64::new(1)));
            fn report((memcg, parent, usage): &(Protection, Protection, AtomicU64)) {
                memcg.update(|| usage.load(Relaxed), || parent);
            }
            world.0.set_min(5);
            report(&world);
            let charge = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    world.2.fetch_add(2, AcqRel);
                    report(&world);
                })
            };
            let unprotect = {
                let world = world.clone();
                loom::thread::spawn(move || {
                    world.0.set_min(0);
                    report(&world);
                })
            };
            // Increases may come before the decreases between them.
            assert!(world.1.min.children_pages() < 100);
            charge.join().unwrap();
            unprotect.join().unwrap();
            assert_eq!(world.1.min.children_pages(), 0);
        });
    }
}
