//! The turn of one lruvec: takes batches from the tail of the newcomers or of the main list, by the
//! newcomers' share.

use super::constants::{
    DIRTY_PART, HAND_STEPS, LOOK_SHARE, LOOKING_PAGES, STUCK_NEWCOMERS_MAX, STUCK_PART, TURN_SHARE,
};
use super::place::Manner;
use super::state::{List, Ranked, RankedOnUse};
use super::walk::walk;
use crate::Core;
use crate::folio::{FolioId, Kind};
use crate::host::{FlushReason, Host};
use crate::lru::accessed_bit::take_accessed;
use crate::lru::scan_control::Tallies;
use crate::lru::{
    Context, Grant, PagedOut, References, Swappiness, TURN_PAGES, TurnStep, Visit, emit, order,
};
use crate::memcg::{Counter, Effective, Memcg, MemcgId};
use crate::sync::Ordering::Relaxed;

/// Folios per step: one lock hold.
const STEP_FOLIOS: u64 = 64;

#[derive(Debug)]
pub(in crate::lru) struct RankedTurn {
    memcg: MemcgId,
    priority: u8,
    /// The swappiness at the begin of the turn.
    swappiness: Swappiness,
    budget: u64,
    scanned: u64,
    /// Pages of each list not yet scanned in this turn. Once all were, the rest cannot be taken:
    /// they are dirty.
    left: [u64; 2],
    /// The last batch had newcomers in it.
    has_newcomers: bool,
    /// Protected pages of the memcg.
    spared: Effective,
    below_min: bool,
    /// Pages in use are left alone: memcgs take turns by age, and it is not the effort's last pass.
    spares_used: bool,
    /// Steps of the hand over pages in use after which such a turn ends.
    looks_left: u64,
    /// The turn ended by that.
    in_use: bool,
    /// The turn ended because all that could be given is yet to be read.
    unread: bool,
}

impl RankedTurn {
    pub(in crate::lru) fn begin(cx: &mut Context<'_, impl Host>, grant: Grant<'_>) -> RankedTurn {
        let Grant { memcg, spared, priority, by_age, only_looks } = grant;
        let core = cx.core;
        core.drain(cx.host, cx.orders.cpu);
        let ranked = &memcg.lruvec.ranked;
        ranked.begin_reclaim(core.swappiness_of(memcg.id(), core.options.swappiness));
        let swappiness = core.swappiness_of(memcg.id(), cx.orders.swappiness);
        // The last pass may find no anonymous memory that it can take.
        let swappiness = if priority > 0 { ranked.sparing_files(swappiness) } else { swappiness };
        walk(core, memcg, swappiness);
        let pages = pages(ranked, swappiness);
        let now = order::pages_reclaimed(core);
        if by_age && ranked.is_behind(now) {
            let _locked = memcg.lruvec.lock(&core.folios);
            ranked.follow(now);
        }
        let budget = if memcg.is_online() {
            let (pages, by_low) = spared.leaves(pages, memcg.usage_pages(), cx.scan.low_override);
            cx.scan.low_skipped |= by_low;
            // A memcg alone gives all that is wanted: passes over few pages cost more than they
            // find. (The mark for children is kept with `subtree_lru` only.)
            let is_alone = core.mechanisms().subtree_lru()
                && cx.orders.target == memcg.id()
                && !memcg.has_children.load(Relaxed);
            let most = match (by_age, is_alone) {
                (true, _) => TURN_PAGES,
                (false, true) => cx.orders.goal_pages,
                (false, false) => 0,
            };
            let least = (pages / TURN_SHARE).min(most);
            let most = if only_looks && priority > 0 { LOOKING_PAGES } else { u64::MAX };
            (pages >> priority).max(least).min(most)
        } else {
            pages
        };
        let left = ranked.takeable_with(swappiness);
        let memcg = memcg.id();
        RankedTurn {
            memcg,
            priority,
            swappiness,
            budget,
            scanned: 0,
            left,
            has_newcomers: false,
            spared,
            below_min: false,
            spares_used: by_age && priority > 0,
            looks_left: pages / LOOK_SHARE,
            in_use: false,
            unread: false,
        }
    }

    /// The outcome of the turn so far.
    pub(in crate::lru) fn visit(&self, core: &Core) -> Visit {
        let memcg = core.memcg(self.memcg);
        let pages = pages(&memcg.lruvec.ranked, self.swappiness);
        let sizable = if memcg.is_online() { pages >> self.priority > 0 } else { pages > 0 };
        let (scanned, below_min, unread) = (self.scanned, self.below_min, self.unread);
        Visit { sizable, scanned, below_min, unread, ..Visit::default() }
    }

    /// Takes at most one batch.
    pub(in crate::lru) fn step(&mut self, cx: &mut Context<'_, impl Host>) -> TurnStep {
        let (core, host) = (cx.core, cx.host);
        let memcg = core.memcg(self.memcg);
        self.below_min = self.spared.min_pages > 0 && self.spared.min_pages >= memcg.usage_pages();
        if self.scanned >= self.budget || self.below_min || self.in_use || self.unread {
            return TurnStep::Finished;
        }
        let mut batch = cx.scan.take_batch(host);
        // Not under the lock.
        batch.folios.reserve(STEP_FOLIOS as usize);
        let mut locked = memcg.lruvec.lock(&core.folios);
        // No more than the goal: further free pages would be unused memory.
        let wanted = if cx.orders.whole {
            STEP_FOLIOS
        } else {
            cx.orders.goal_pages.saturating_sub(cx.scan.progress.reclaimed).clamp(1, STEP_FOLIOS)
        };
        let amounts = (wanted, (self.budget - self.scanned).min(STEP_FOLIOS));
        // Once it is removed, its pages are its heir's.
        let mut all_in_use = false;
        if memcg.heir().is_none() {
            // The last pass leaves no page out.
            let are_stuck = self.priority > 0 && cx.scan.stuck.pages_of(self.memcg) >= STUCK_NEWCOMERS_MAX;
            let mut left = self.left;
            if are_stuck {
                left[List::Newcomers as usize] = 0;
            }
            let manner = Manner { left, spares_used: self.spares_used, swappiness: self.swappiness };
            let looked =
                locked.isolate_ranked((core, host), amounts, manner, &mut cx.scan.last_mapping, &mut batch);
            for (left, looked) in self.left.iter_mut().zip(looked.of_lists) {
                *left = left.saturating_sub(looked);
            }
            self.has_newcomers = looked.of_lists[List::Newcomers as usize] > 0;
            all_in_use = looked.all_in_use;
            self.unread = looked.unread;
        }
        drop(locked);
        emit::isolated(host, memcg, &batch);
        batch.taken = batch.folios.len() as u64;
        self.scanned += batch.scanned;
        cx.scan.progress.scanned += batch.taken;
        count_scan(cx, memcg, &batch.folios, batch.sorted);
        let (taken, scanned) = (batch.taken, batch.scanned);
        cx.scan.batch = batch;
        if all_in_use {
            self.looks_left = self.looks_left.saturating_sub(HAND_STEPS);
            self.in_use = self.looks_left == 0;
        }
        match (taken, scanned) {
            (0, 0) if self.in_use || !all_in_use => TurnStep::Finished,
            (0, _) => TurnStep::More,
            _ => TurnStep::PageOut,
        }
    }

    /// Puts the examined folios that were not freed back, at the young end of their list.
    pub(in crate::lru) fn put_back(
        &mut self,
        cx: &mut Context<'_, impl Host>,
        outcome: PagedOut,
    ) -> TurnStep {
        let (core, host) = (cx.core, cx.host);
        let tallies = Tallies { taken: cx.scan.batch.taken, ..outcome.tallies };
        if tallies.unqueued_dirty * DIRTY_PART >= tallies.taken.max(1) {
            host.wake_flusher(FlushReason::Reclaim);
        }
        cx.scan.tallies.add(&tallies);
        order::count_reclaimed(core, outcome.freed);
        if self.has_newcomers && outcome.freed * STUCK_PART < tallies.taken {
            cx.scan.stuck.note(self.memcg, tallies.taken - outcome.freed);
        } else if self.has_newcomers {
            cx.scan.stuck = Default::default();
        }
        let memcg = core.memcg(self.memcg);
        put_back(cx, memcg);
        // Other efforts may end the turn from here on.
        memcg.lruvec.ranked.end_reclaim();
        if !cx.orders.whole && cx.should_stop() { TurnStep::Finished } else { TurnStep::More }
    }
}

fn pages(ranked: &Ranked, swappiness: Swappiness) -> u64 {
    swappiness.evictable().map(|kind| ranked.pages(kind)).sum()
}

fn count_scan(cx: &Context<'_, impl Host>, memcg: &Memcg, folios: &[FolioId], promoted: u64) {
    let is_anon = |&&folio: &&FolioId| cx.core.folios.flags(folio).load().swapbacked();
    let anon = folios.iter().filter(is_anon).count() as u64;
    let counts = [
        (cx.orders.kind.pgscan(), folios.len() as u64),
        (Counter::PgscanAnon, anon),
        (Counter::PgscanFile, folios.len() as u64 - anon),
        (Counter::Pgprotected, promoted),
    ];
    counts
        .into_iter()
        .filter(|&(_, pages)| pages > 0)
        .for_each(|(counter, pages)| memcg.stat.add(counter, pages));
}

fn put_back(cx: &mut Context<'_, impl Host>, memcg: &Memcg) {
    let (core, host, scan) = (cx.core, cx.host, &mut *cx.scan);
    if scan.rejected.is_empty() {
        return;
    }
    let mut back = std::mem::take(&mut scan.back);
    back.extend(scan.rejected.drain(..).map(|folio| (folio, core.folios.flags(folio).load().mlocked())));
    core.put_back_isolated(host, memcg.id(), &mut back);
    scan.back = back;
}

/// The accessed bit of an isolated folio. Isolation has cleared it, so it was set since.
pub(in crate::lru) fn references(cx: &mut Context<'_, impl Host>, folio: FolioId) -> References {
    let core = cx.core;
    let Some(mapping) = cx.scan.last_mapping.get(core, core.folios.mapping_of(folio)) else {
        return References::None;
    };
    if take_accessed(core, mapping, folio) && core.folios.flags(folio).found_accessed().refs() > 0 {
        References::First
    } else {
        References::None
    }
}

impl RankedOnUse {
    /// Pages of a kind that are reported as active and as inactive.
    pub(in crate::lru) fn reported(&self, kind: Kind) -> [u64; 2] {
        [self.size(List::Main, kind), self.size(List::Newcomers, kind)]
    }
}
