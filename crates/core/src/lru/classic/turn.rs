//! The turn of one lruvec's active and inactive lists.
//!
//! The lists are scanned in rounds of up to 32 pages each, until the budgets, fixed at the start,
//! are used up. Once the goal is reached, the kind with less left is dropped, and the other is
//! scanned to the same share of its budget.
//!
//! Source: [book: classic-lru#scan-amounts].

use super::balance::{Balance, Circumstances};
use super::shrink::{isolate_inactive, put_back_inactive, shrink_active};
use super::state::LISTS;
use super::statistics;
use crate::Core;
use crate::folio::Kind;
use crate::host::{Host, Throttle};
use crate::lru::CLUSTER_PAGES;
use crate::lru::scan_control::{Context, EffortKind, Orders, PRIORITY_DEFAULT, PagedOut};
use crate::lru::{Grant, TurnStep, Visit};
use crate::memcg::MemcgId;

#[derive(Debug)]
pub(in crate::lru) struct ClassicTurn {
    memcg: MemcgId,
    balance: Balance,
    priority: u8,
    /// Pages to scan of each list, in the order of [`LISTS`].
    budgets: [u64; 4],
    /// Pages still to scan of each list.
    left: [u64; 4],
    next: usize,
    /// Whether the turn has waited for other reclaimers to put pages back; it waits once per batch.
    stalled: bool,
    /// Pages that this turn freed, without those that the effort freed before.
    reclaimed: u64,
    /// Whether to use the whole budget, whatever was freed.
    whole: bool,
}

/// Whether anonymous pages are deactivated even if none is to be scanned: there is swap, be it full
/// or forbidden to the memcg. It may have room again before the pages are needed.
fn ages_anon(core: &Core) -> bool {
    core.swap.slots() > 0
}

fn lists_of(kind: Kind) -> std::ops::Range<usize> {
    kind as usize * 2..kind as usize * 2 + 2
}

impl ClassicTurn {
    pub(in crate::lru) fn begin(
        cx: &mut Context<'_, impl Host>,
        grant: Grant<'_>,
        balance: Balance,
    ) -> ClassicTurn {
        let Grant { memcg, spared, priority, .. } = grant;
        let (core, orders) = (cx.core, cx.orders);
        if orders.kind == EffortKind::Background && ages_anon(core) && balance.anon_is_low() {
            shrink_active(cx, memcg, Kind::Anon, CLUSTER_PAGES);
        }
        let usage = memcg.usage_pages();
        let sizes = LISTS.map(|(kind, active)| {
            let pages = memcg.lruvec.classic.size(kind, active);
            let (pages, by_low) = spared.leaves(pages, usage, cx.scan.low_override);
            cx.scan.low_skipped |= by_low;
            pages
        });
        let how = Circumstances {
            of_memcg: orders.is_of_memcg(),
            can_swap: core.can_swap(memcg.id()),
            swappiness: orders.swappiness,
            offline: !memcg.is_online(),
            priority,
        };
        let budgets = balance.amounts(sizes, how);
        let whole = orders.is_root() && orders.kind == EffortKind::Direct && priority == PRIORITY_DEFAULT;
        ClassicTurn {
            memcg: memcg.id(),
            balance,
            priority,
            budgets,
            left: budgets,
            next: 0,
            stalled: false,
            reclaimed: 0,
            whole,
        }
    }

    pub(in crate::lru) fn visit(&self, core: &Core) -> Visit {
        let memcg = core.memcg(self.memcg);
        let pages: u64 = Kind::ALL.map(|kind| memcg.lruvec.classic.pages(kind)).iter().sum();
        let sizable = if memcg.is_online() { pages >> self.priority > 0 } else { pages > 0 };
        Visit { sizable, ..Visit::default() }
    }

    /// Scans up to 32 pages of one list.
    pub(in crate::lru) fn step(&mut self, cx: &mut Context<'_, impl Host>) -> TurnStep {
        let core = cx.core;
        let memcg = core.memcg(self.memcg);
        loop {
            if self.next == LISTS.len() {
                self.next = 0;
                self.end_round(cx.orders);
            }
            // The active anonymous list alone does not deserve another round.
            if self.next == 0
                && self.left.iter().zip(LISTS).all(|(&left, list)| left == 0 || list == (Kind::Anon, true))
            {
                break;
            }
            let (kind, active) = LISTS[self.next];
            let left = &mut self.left[self.next];
            if !active && *left > 0 && too_many_isolated(cx, kind) {
                self.stalled = !self.stalled;
                if self.stalled {
                    return TurnStep::Wait(Throttle::Isolated);
                }
                // After one wait, this batch is skipped.
                *left -= CLUSTER_PAGES.min(*left);
                self.next += 1;
                return TurnStep::More;
            }
            self.stalled = false;
            self.next += 1;
            let request = CLUSTER_PAGES.min(*left);
            *left -= request;
            if request == 0 {
                continue;
            }
            if !active {
                if isolate_inactive(cx, memcg, kind, request) {
                    return TurnStep::PageOut;
                }
            } else if self.balance.may_deactivate(kind) {
                shrink_active(cx, memcg, kind, request);
            } else {
                cx.scan.skipped_deactivation = true;
                continue;
            }
            return TurnStep::More;
        }
        // Swapping needs pages that have been on the inactive list for a while.
        if ages_anon(core) && statistics::known_sizes(core, cx.host, memcg).is_low(Kind::Anon) {
            shrink_active(cx, memcg, Kind::Anon, CLUSTER_PAGES);
        }
        TurnStep::Finished
    }

    pub(in crate::lru) fn put_back(
        &mut self,
        cx: &mut Context<'_, impl Host>,
        outcome: PagedOut,
    ) -> TurnStep {
        put_back_inactive(cx, cx.core.memcg(self.memcg), outcome);
        self.reclaimed += outcome.freed;
        TurnStep::More
    }

    /// Ends a round, in which each list had its share. If the goal is reached, at least one kind is
    /// done.
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

/// Whether concurrent reclaimers have isolated so much of the inactive lists that this one must
/// wait. Background reclaim never waits. The kernel allows callers without I/O a whole list length,
/// and others an eighth, so that they do not wait for each other; here all callers can do I/O.
fn too_many_isolated(cx: &Context<'_, impl Host>, kind: Kind) -> bool {
    let core = cx.core;
    if cx.orders.kind == EffortKind::Background {
        return false;
    }
    let too_many = core.node.isolated_pages(kind) > core.folios.listed().inactive_pages(kind) / 8;
    if core.node.set_isolated_waiters(too_many) && !too_many {
        cx.host.wake_isolated();
    }
    too_many
}
