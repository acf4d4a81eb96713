//! Scan balance: costs of both kinds, the length of the active list, and the mode of a pass.
//!
//! Source: [book: classic-lru].

use super::state::{Costs, LISTS};
use super::statistics::{self, Sizes};
use crate::Core;
use crate::folio::Kind;
use crate::host::Host;
use crate::lru::{Context, LockedLruvec, Swappiness};
use crate::mechanism::Switch;
use crate::memcg::{Counter, Memcg};

/// One page of I/O costs as much as this many pages scanned in vain.
pub(crate) const IO_COST: u64 = 32;

/// Whether the inactive list is so short that the active one must give up pages. The active list
/// may be `sqrt(10 × GiB)` times as long as the inactive one, or equally long if both together are
/// less than 1 GiB (2^18 pages).
pub(crate) fn is_low(inactive_pages: u64, active_pages: u64) -> bool {
    let gibibytes = (inactive_pages + active_pages) >> 18;
    let ratio = if gibibytes > 0 { (10 * gibibytes).isqrt() } else { 1 };
    inactive_pages * ratio < active_pages
}

impl Sizes {
    pub(crate) fn is_low(&self, kind: Kind) -> bool {
        is_low(self.inactive(kind), self.active(kind))
    }
}

impl Costs {
    /// Adds a reclaim cost for a kind. If the sum exceeds a quarter of the `pages` on the lists,
    /// both costs are halved.
    fn add(&mut self, kind: Kind, cost: u64, pages: u64) {
        self.0[kind as usize] += cost;
        if self.0[0] + self.0[1] > pages / 4 {
            self.0.iter_mut().for_each(|cost| *cost /= 2);
        }
    }

    /// Adds the costs of a removed memcg, which its ancestors know already, as the kernel does.
    pub(in crate::lru) fn inherit(&mut self, costs: Costs) {
        self.0.iter_mut().zip(costs.0).for_each(|(own, cost)| *own += cost);
    }

    /// The scan shares of both kinds, by [`Kind`]. Twice the cost halves the share, but no kind
    /// gets less than a third, before swappiness.
    fn shares(self, swappiness: Swappiness) -> [u64; 2] {
        let all = self.0[0] + self.0[1];
        let limited = self.0.map(|cost| all + cost);
        let all = limited[0] + limited[1];
        let weights = [u64::from(swappiness.get()), 200 - u64::from(swappiness.get())];
        std::array::from_fn(|kind| weights[kind] * (all + 1) / (limited[kind] + 1))
    }
}

/// Circumstances that the scan amounts depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Circumstances {
    /// [`Orders::is_of_memcg`](crate::lru::scan_control::Orders::is_of_memcg).
    pub(crate) of_memcg: bool,
    /// Anonymous pages can be swapped out.
    pub(crate) can_swap: bool,
    pub(crate) swappiness: Swappiness,
    pub(crate) offline: bool,
    pub(crate) priority: u8,
}

/// Decisions for one pass over the target's lruvecs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Balance {
    /// Whether the active list of a kind may be scanned, by [`Kind`].
    may_deactivate: [bool; 2],
    /// The target's inactive list of anonymous pages is low.
    anon_is_low: bool,
    costs: Costs,
    /// Inactive file pages are plenty: no need to swap.
    trims_cache: bool,
    /// File pages are so few that taking them would not help.
    file_is_tiny: bool,
}

impl Balance {
    /// Decides about a pass over the target, which is the root if the node is short.
    pub(in crate::lru) fn new(cx: &Context<'_, impl Host>, priority: u8) -> Balance {
        let (core, orders) = (cx.core, cx.orders);
        let target = core.memcg(orders.target);
        let known = statistics::known_sizes(core, cx.host, target);
        let news = statistics::has_new_refaults(core, cx.host, target);
        let may_deactivate =
            Kind::ALL.map(|kind| cx.scan.force_deactivation || news[kind as usize] || known.is_low(kind));
        let may = |kind: Kind| may_deactivate[kind as usize];
        // The counters of the node are exact.
        let file_is_tiny = || {
            let file = core.folios.listed().pages(Kind::File);
            let anon = core.folios.listed().inactive_pages(Kind::Anon);
            file + u64::from(core.node.free_pages()) <= core.node.high_pages(0)
                && !may(Kind::Anon)
                && anon >> priority != 0
        };
        Balance {
            may_deactivate,
            anon_is_low: known.is_low(Kind::Anon),
            costs: target.lruvec.lock(&core.folios).lists.costs,
            trims_cache: known.inactive(Kind::File) >> priority != 0
                && !may(Kind::File)
                && !cx.scan.no_cache_trim,
            file_is_tiny: !orders.is_of_memcg() && file_is_tiny(),
        }
    }

    /// Whether active folios of a kind may become inactive.
    pub(crate) fn may_deactivate(&self, kind: Kind) -> bool {
        self.may_deactivate[kind as usize]
    }

    pub(crate) fn anon_is_low(&self) -> bool {
        self.anon_is_low
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn file_is_tiny(&self) -> bool {
        self.file_is_tiny
    }

    pub(crate) fn trims_cache(&self) -> bool {
        self.trims_cache
    }

    /// Pages to scan of each list, in the order of [`LISTS`], for lists of these `sizes`.
    pub(crate) fn amounts(&self, sizes: [u64; 4], how: Circumstances) -> [u64; 4] {
        // From a removed memcg, at least some pages.
        let shifted = sizes.map(|pages| match pages >> how.priority {
            0 if how.offline => pages.min(32),
            shifted => shifted,
        });
        let only =
            |kind: Kind| std::array::from_fn(|list| if LISTS[list].0 == kind { shifted[list] } else { 0 });
        if !how.can_swap || how.of_memcg && how.swappiness == Swappiness::FILE_ONLY {
            only(Kind::File)
        } else if how.swappiness == Swappiness::ANON_ONLY {
            only(Kind::Anon)
        } else if how.priority == 0 && how.swappiness != Swappiness::FILE_ONLY {
            shifted
        } else if self.file_is_tiny {
            only(Kind::Anon)
        } else if self.trims_cache {
            only(Kind::File)
        } else {
            let shares = self.costs.shares(how.swappiness);
            let share = |list: usize| shares[LISTS[list].0 as usize];
            let all = shares[0] + shares[1];
            let scaled = |list: usize| shifted[list] * share(list);
            std::array::from_fn(
                |list| if how.offline { scaled(list).div_ceil(all) } else { scaled(list) / all },
            )
        }
    }
}

/// The cost of reclaim of a kind: pages that were scanned in vain, or read and written.
pub(in crate::lru) struct Cost {
    pub(super) kind: Kind,
    pub(super) pages: u64,
    /// Pages by which the clocks advance in the same walk.
    pub(super) aged: u64,
    /// Whether inactive pages were scanned, maybe without a cost.
    pub(super) scanned: bool,
}

impl Cost {
    /// Whether it adds to the costs, or halves them if they are too high.
    pub(super) fn has_effect(&self, core: &Core) -> bool {
        self.pages > 0 || self.scanned && core.mechanisms().is_on(Switch::DecayWithoutCost)
    }

    /// Adds the cost to a memcg's lruvec and those of its ancestors. `locked`: the memcg's lruvec
    /// lock, which is released before an ancestor is touched ([book: classic-lru#lru-lock],
    /// remedy 3).
    pub(super) fn note(self, core: &Core, host: &impl Host, memcg: &Memcg, locked: Option<LockedLruvec<'_>>) {
        let Cost { kind, pages, aged, .. } = self;
        if !self.has_effect(core) {
            drop(locked);
            if aged > 0 {
                core.memcgs.advance_nonresident_age(memcg, aged);
            }
            return;
        }
        // Without remedy 3 the lock is released here, and taken again for the cost.
        let mut locked = locked.filter(|_| core.mechanisms().is_on(Switch::CostReleasesLock));
        for ancestor in core.memcgs.lineage(memcg) {
            let known_pages = statistics::known_pages(core, host, ancestor);
            let mut locked = locked.take().unwrap_or_else(|| ancestor.lruvec.lock(&core.folios));
            locked.lists.costs.add(kind, pages, known_pages);
            drop(locked);
            ancestor.lruvec.classic.advance(aged);
        }
        if aged > 0 {
            memcg.stat.add(Counter::NonresidentAgeWrites, 1);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// [book: classic-lru#deactivation], the table; [book: classic-lru#checks]: "inactive 250 MB,
    /// active 750 MB (total < 1 GiB): ratio 1 → low. With 1 GiB total ratio 3: inactive 65536 pages
    /// × 3 = active 196608 → not low; move one page to active → low".
    #[test]
    fn how_long_the_active_list_may_be() {
        assert!(is_low(64_000, 192_000));
        assert!(!is_low(65_536, 196_608) && is_low(65_535, 196_609));
        let gib = 1 << 18;
        for (gibibytes, ratio) in [(1, 3), (10, 10), (100, 31), (1024, 101)] {
            let all = gibibytes * gib;
            let inactive = all / (ratio + 1);
            assert!(!is_low(inactive + 1, all - inactive - 1) && is_low(inactive - 1, all - inactive + 1));
        }
        assert!(!is_low(0, 0) && is_low(0, 1));
    }

    /// [book: classic-lru#checks]: "Costs (a=100, f=0, s=100): … ap = 149, fp = 298 → anon share
    /// 1/3"; "Costs equal, s=60: ap:fp = 60:140".
    #[test]
    fn shares_by_cost_and_swappiness() {
        assert_eq!(Costs([100, 0]).shares(Swappiness::new(100).unwrap()), [149, 298]);
        let [anon, file] = Costs([5000, 5000]).shares(Swappiness::DEFAULT);
        assert!((anon * 140 / 60).abs_diff(file) <= 2, "{anon}:{file}");
        assert_eq!(Costs::default().shares(Swappiness::DEFAULT), [60, 140]);
    }

    /// [book: classic-lru#checks]: "Lists of 4000 pages: cost sum reaching 1001 halves both".
    #[test]
    fn costs_decay() {
        let mut costs = Costs([400, 500]);
        costs.add(Kind::Anon, 100, 4000);
        assert_eq!(costs, Costs([500, 500]));
        costs.add(Kind::File, 1, 4000);
        assert_eq!(costs, Costs([250, 250]));
    }

    const SIZES: [u64; 4] = [1000, 2000, 3000, 4000];

    fn amounts(balance: Balance, change: impl Fn(&mut Circumstances)) -> [u64; 4] {
        let mut how = Circumstances {
            of_memcg: true,
            can_swap: true,
            swappiness: Swappiness::DEFAULT,
            offline: false,
            priority: 2,
        };
        change(&mut how);
        balance.amounts(SIZES, how)
    }

    /// [book: classic-lru#scan-amounts], the table of modes, first match.
    #[test]
    fn modes_of_a_pass() {
        assert_eq!(
            amounts(Balance::default(), |how| (how.offline, how.priority) = (true, 12)),
            [10, 10, 23, 23]
        );
        let all = Balance { trims_cache: true, file_is_tiny: true, ..Balance::default() };
        let file = [0, 0, 750, 1000];
        let anon = [250, 500, 0, 0];
        assert_eq!(amounts(all, |how| how.can_swap = false), file);
        assert_eq!(amounts(all, |how| how.swappiness = Swappiness::FILE_ONLY), file);
        assert_eq!(amounts(all, |how| how.swappiness = Swappiness::ANON_ONLY), anon);
        assert_eq!(amounts(all, |how| how.priority = 0), SIZES, "equal");
        assert_eq!(amounts(all, |_| ()), anon, "tiny");
        let trims = Balance { file_is_tiny: false, ..all };
        assert_eq!(amounts(trims, |_| ()), file);
        // 60 and 140 of 200.
        assert_eq!(amounts(Balance::default(), |_| ()), [75, 150, 525, 700]);
        assert_eq!(
            amounts(Balance::default(), |how| (how.of_memcg, how.swappiness) =
                (false, Swappiness::FILE_ONLY)),
            [0, 0, 750, 1000],
            "the node is short, and anonymous pages have no share"
        );
    }
}
