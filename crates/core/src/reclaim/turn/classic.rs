//! The turn of the active and inactive lists of one lruvec.
//!
//! Its lists are scanned in rounds of up to 32 pages each, until their budgets, fixed at the beginning, are used up. Once
//! the goal is reached, the kind that has less left is let off, and the other is scanned to the same share of its budget.
//!
//! Source: spec 80 §6.

use crate::Core;
use crate::folio::Kind;
use crate::host::{Host, Throttle};
use crate::lru::Visit;
use crate::lru::classic::LISTS;
use crate::lru::classic::balance::{Balance, Circumstances};
use crate::memcg::{Effective, Memcg, MemcgId};
use crate::reclaim::order::WalkStep;
use crate::reclaim::scan::{EffortKind, Orders, Scan};
use crate::reclaim::{CLUSTER_PAGES, PRIORITY_DEFAULT, throttle};

/// The turn of one lruvec's active and inactive lists.
#[derive(Debug)]
pub(super) struct ClassicTurn {
    memcg: MemcgId,
    balance: Balance,
    priority: u8,
    can_swap: bool,
    /// Pages to scan of each list, as [`LISTS`].
    budgets: [u64; 4],
    /// Of these, those that are left.
    left: [u64; 4],
    /// The list that comes next in this round.
    next: usize,
    /// It waited, as others have too many pages isolated, and does not again for this batch.
    stalled: bool,
    /// Pages that this turn freed; what the effort freed before does not count.
    reclaimed: u64,
    /// The whole budget is used, whatever was freed.
    whole: bool,
    /// Background reclaim begins with a little of the active anonymous list, where the node has few inactive ones.
    ages_anon: bool,
}

fn lists_of(kind: Kind) -> std::ops::Range<usize> {
    kind as usize * 2..kind as usize * 2 + 2
}

impl ClassicTurn {
    /// It is the turn of a memcg, of which protection spares some.
    pub(super) fn begin(
        core: &Core,
        orders: &Orders,
        scan: &mut Scan,
        (memcg, spared): (&Memcg, Effective),
        balance: Balance,
        priority: u8,
    ) -> ClassicTurn {
        let can_swap = core.can_swap(memcg.id());
        let usage = memcg.usage_pages();
        let sizes = LISTS.map(|(kind, active)| {
            let pages = memcg.lruvec.classic.size(kind, active);
            let (pages, by_low) = spared.leaves(pages, usage, scan.low_override);
            scan.low_skipped |= by_low;
            pages
        });
        let how = Circumstances {
            of_memcg: !orders.is_root(),
            can_swap,
            swappiness: orders.swappiness,
            offline: !memcg.is_online(),
            priority,
        };
        let ages_anon = orders.kind == EffortKind::Background && can_swap && balance.anon_is_low();
        let budgets = balance.amounts(sizes, how);
        let whole = orders.is_root() && orders.kind == EffortKind::Direct && priority == PRIORITY_DEFAULT;
        ClassicTurn {
            memcg: memcg.id(),
            balance,
            priority,
            can_swap,
            budgets,
            left: budgets,
            next: 0,
            stalled: false,
            reclaimed: 0,
            whole,
            ages_anon,
        }
    }

    /// What the turn came to.
    pub(super) fn visit(&self, core: &Core) -> Visit {
        let memcg = core.memcg(self.memcg);
        let pages: u64 = Kind::ALL.map(|kind| memcg.lruvec.classic.pages(kind)).iter().sum();
        let sizable = if memcg.is_online() { pages >> self.priority > 0 } else { pages > 0 };
        Visit { sizable, ..Visit::default() }
    }

    /// Scans one list for up to 32 pages.
    pub(super) fn step(
        &mut self,
        core: &Core,
        host: &impl Host,
        orders: &Orders,
        scan: &mut Scan,
    ) -> WalkStep {
        let memcg = core.memcg(self.memcg);
        if std::mem::take(&mut self.ages_anon) {
            core.shrink_active(host, memcg, Kind::Anon, CLUSTER_PAGES, orders.cpu, scan);
            return WalkStep::More;
        }
        loop {
            if self.next == LISTS.len() {
                self.next = 0;
                self.end_round(orders);
            }
            // The active list of anonymous pages alone is not worth another round.
            if self.next == 0
                && self.left.iter().zip(LISTS).all(|(&left, list)| left == 0 || list == (Kind::Anon, true))
            {
                break;
            }
            let (kind, active) = LISTS[self.next];
            let left = &mut self.left[self.next];
            if !active && *left > 0 && throttle::too_many_isolated(core, host, orders, kind) {
                self.stalled = !self.stalled;
                if self.stalled {
                    return WalkStep::Wait(Throttle::Isolated);
                }
                // It waited once: this batch is given up.
                *left -= CLUSTER_PAGES.min(*left);
                self.next += 1;
                return WalkStep::More;
            }
            self.stalled = false;
            self.next += 1;
            let request = CLUSTER_PAGES.min(*left);
            *left -= request;
            if request == 0 {
                continue;
            }
            if !active {
                self.reclaimed += core.shrink_inactive(host, memcg, kind, request, orders, scan);
            } else if self.balance.may_deactivate(kind) {
                core.shrink_active(host, memcg, kind, request, orders.cpu, scan);
            } else {
                scan.skipped_deactivation = true;
                continue;
            }
            return WalkStep::More;
        }
        // Swapping out needs pages that were on the inactive list for a while.
        if self.can_swap && core.known_sizes(host, memcg).is_low(Kind::Anon) {
            core.shrink_active(host, memcg, Kind::Anon, CLUSTER_PAGES, orders.cpu, scan);
        }
        WalkStep::Finished
    }

    /// Each list had its share. If that was enough, at least one kind is done.
    fn end_round(&mut self, orders: &Orders) {
        if self.whole || self.reclaimed < orders.goal_pages {
            return;
        }
        let left = Kind::ALL.map(|kind| self.left[lists_of(kind)].iter().sum::<u64>());
        let less =
            if left[Kind::File as usize] > left[Kind::Anon as usize] { Kind::Anon } else { Kind::File };
        if left.contains(&0) {
            self.left = [0; 4];
            return;
        }
        let budget: u64 = self.budgets[lists_of(less)].iter().sum();
        let percent_left = left[less as usize] * 100 / (budget + 1);
        self.left[lists_of(less)].fill(0);
        for list in lists_of(less.other()) {
            let scanned = self.budgets[list] - self.left[list];
            let share = self.budgets[list] * (100 - percent_left) / 100;
            self.left[list] = share.saturating_sub(scanned);
        }
    }
}
