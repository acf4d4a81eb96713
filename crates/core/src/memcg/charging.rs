//! Charges of memcgs and of all above them, from the stocks of CPUs where those have pages.
//!
//! Kernels charge page by page where a limit leaves less than 64. Reclaim frees 32 pages at a time,
//! so a memcg at its limit has no more for long, and every page writes to each ancestor's count.
//! With `charge_near_limit`, which no kernel has, a CPU takes half of the rest, but at most 1/1024
//! of the limit, as that much may lie unused near each CPU while another one reclaims. Two threads
//! in tenants at their limits, four levels down, then bring in 3.9 M instead of 2.9 M pages per
//! second together (two cores, default preset).
//!
//! Source: [book: memcgs#limits].

use super::stock::Charge;
use super::{CHARGE_BATCH_PAGES, Counter, Memcg, MemcgId, Memcgs};
use crate::Core;
use crate::sync::Ordering::Relaxed;

/// Near the limit, a CPU may charge 1/1024 of it at once.
const NEAR_LIMIT_SHARE: u64 = 1024;

impl Memcgs {
    /// Charges a memcg and all its ancestors. If one refuses, the earlier charges are taken back.
    fn charge_all(
        &self,
        memcg: MemcgId,
        charge: impl Fn(&Memcg) -> bool,
        uncharge: impl Fn(&Memcg),
    ) -> Result<(), MemcgId> {
        let Some(refused) = self.with_ancestors(memcg).find(|&payer| !charge(payer)) else { return Ok(()) };
        self.with_ancestors(memcg).take_while(|paid| paid.id != refused.id).for_each(uncharge);
        Err(refused.id)
    }

    /// Charges `pages` to a memcg and its ancestors.
    ///
    /// # Errors
    /// The memcg whose limit this would exceed; nothing was charged.
    #[inline]
    pub(crate) fn charge_pages(&self, memcg: MemcgId, pages: u64) -> Result<(), MemcgId> {
        let charge = |payer: &Memcg| {
            let is_charged = payer.memory.try_charge(pages);
            if is_charged {
                self.update_protection(payer);
            }
            is_charged
        };
        self.charge_all(memcg, charge, |paid| _ = self.set_usage(paid, paid.memory.cancel(pages)))
    }

    /// Uncharges pages from one memcg, and returns its new usage.
    pub(super) fn uncharge_one(&self, payer: &Memcg, pages: u64) -> u64 {
        self.set_usage(payer, payer.memory.uncharge(pages))
    }

    fn set_usage(&self, payer: &Memcg, usage: Option<u64>) -> u64 {
        let usage = usage.unwrap_or_else(|| panic!("memcg {:?} was uncharged below zero", payer.id));
        self.update_protection(payer);
        usage
    }

    /// Pages that are charged to a memcg begin to wait for frames.
    pub(crate) fn begin_wait(&self, memcg: MemcgId, pages: u64) {
        self.with_ancestors(memcg).for_each(|payer| payer.memory.begin_wait(pages));
    }

    /// Pages that are charged to a memcg have their frames.
    pub(crate) fn end_wait(&self, memcg: MemcgId, pages: u64) {
        self.with_ancestors(memcg).for_each(|payer| payer.memory.end_wait(pages));
    }

    /// Takes back the charge of a page that waits for a frame.
    pub(super) fn cancel_waiting(&self, memcg: MemcgId) {
        for payer in self.ancestors_first(memcg) {
            // First: without its last charge, a removed memcg may be released.
            payer.memory.end_wait(1);
            self.set_usage(payer, payer.memory.cancel(1));
        }
    }

    /// Charges a swap slot to a memcg and its ancestors.
    ///
    /// # Errors
    /// The memcg whose swap limit this would exceed.
    pub(crate) fn charge_swap(&self, memcg: MemcgId) -> Result<(), MemcgId> {
        self.charge_all(memcg, |payer| payer.swap.try_charge(1), |paid| _ = paid.swap.cancel(1))?;
        let over = self.with_ancestors(memcg).filter(|payer| payer.swap.overage() > 0);
        over.for_each(|payer| payer.stat.add(Counter::EventSwapHigh, 1));
        Ok(())
    }

    /// Charges several pages at once. Returns their number, or 0.
    fn charge_batch(&self, memcg: MemcgId) -> u64 {
        let Err(limited) = self.charge_pages(memcg, self.stocks.batch_pages) else {
            return self.stocks.batch_pages;
        };
        if !self.charge_near_limit {
            return 0;
        }
        let counter = &self.get(limited).memory;
        let half = counter.margin_pages().div_ceil(2);
        let pages = half.min(counter.max_pages() / NEAR_LIMIT_SHARE).min(self.stocks.batch_pages);
        if pages > 1 && self.charge_pages(memcg, pages).is_ok() { pages } else { 0 }
    }

    /// Pages on whose behalf `memory.high` is checked after a charge of `charged` pages. A kernel
    /// charges 64 pages at once where no limit is near, and checks then. Where this engine charges
    /// page by page, a check is for the next 63 pages, too; 0: this page was one of them.
    pub(crate) fn pages_to_check(&self, memcg: MemcgId, charged: u64, is_over: bool) -> u64 {
        if self.stocks.batch_pages > 1 {
            return if is_over { charged } else { 0 };
        }
        let ahead = &self.get(memcg).checked_ahead;
        if !is_over {
            if ahead.load(Relaxed) > 0 {
                ahead.store(0, Relaxed);
            }
            return 0;
        }
        let rest = CHARGE_BATCH_PAGES - 1;
        if ahead.fetch_update(Relaxed, Relaxed, |pages| pages.checked_sub(1)).is_ok() {
            0
        } else if self.with_ancestors(memcg).any(|payer| payer.memory.margin_pages() < rest) {
            charged
        } else {
            ahead.store(rest, Relaxed);
            CHARGE_BATCH_PAGES
        }
    }

    /// Pages charged to a memcg and its subtree, without those in stock, which `memory.current`
    /// includes.
    pub fn used_pages(&self, memcg: MemcgId) -> u64 {
        // The root is charged only for its own.
        let within = |owner| owner == memcg || memcg != MemcgId::ROOT && self.is_within(owner, memcg);
        let stocked = self.stocked_pages(within);
        self.get(memcg).usage_pages().saturating_sub(stocked)
    }

    /// Unused pages in stocks of the selected memcgs.
    pub(crate) fn stocked_pages(&self, of: impl Fn(MemcgId) -> bool) -> u64 {
        self.stocks.pages(of)
    }
}

/// Charges one page on behalf of a task on `cpu`.
#[inline]
pub(crate) fn charge_one(core: &Core, memcg: MemcgId, cpu: usize) -> Charge {
    let stocks = &core.memcgs.stocks;
    if stocks.batch_pages > 1 {
        if stocks.take(cpu, memcg) {
            return Charge::FromStock;
        }
        let charged = if core.memcg(memcg).is_online() { core.memcgs.charge_batch(memcg) } else { 0 };
        if charged > 0 {
            if let Some((other, pages)) = stocks.put(cpu, memcg, charged - 1) {
                core.uncharge_pages(other, pages);
            }
            if !core.memcg(memcg).is_online() {
                // The thread that removed it may have drained the stocks before.
                drain_stocks(core, memcg);
            }
            return Charge::Charged(charged);
        }
    }
    core.memcgs.charge_pages(memcg, 1).map_or_else(Charge::Refused, |()| Charge::Charged(1))
}

/// Gives back the stocks of the memcgs below `top`.
pub(crate) fn drain_stocks(core: &Core, top: MemcgId) {
    if core.memcgs.stocks.batch_pages == 1 {
        return;
    }
    let within = |memcg| core.memcgs.is_within(memcg, top);
    core.memcgs.stocks.drain(within, |memcg, pages| core.uncharge_pages(memcg, pages));
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Mechanisms, Options, Preset, Time, UNLIMITED};

    fn core(batch_pages: u64) -> (Core, [MemcgId; 2]) {
        let mut options = Options::new(1024);
        options.cpus = 2;
        options.charge_batch_pages = batch_pages;
        let core = Core::new(options, Time::ZERO);
        let parent = core.add_memcg("parent", 200, Time::ZERO).unwrap().id();
        let child = core.add_child(parent, "child", 100, Time::ZERO).unwrap().id();
        (core, [parent, child])
    }

    /// One walk up the tree pays for 64 pages; near the limit, each pays for itself.
    #[test]
    fn charges_are_made_in_batches() {
        let (core, [parent, child]) = core(64);
        let usage = |memcg| core.memcg(memcg).usage_pages();
        assert_eq!(charge_one(&core, child, 0), Charge::Charged(64));
        assert!((0..63).all(|_| charge_one(&core, child, 0) == Charge::FromStock));
        assert_eq!((usage(parent), usage(child)), (64, 64));
        assert_eq!(charge_one(&core, child, 0), Charge::Charged(1), "128 would be too many");
        core.uncharge_pages(child, 30);
        assert_eq!(charge_one(&core, child, 1), Charge::Charged(64));
        assert_eq!(charge_one(&core, child, 0), Charge::Charged(1), "the other CPU's stock is not its own");
        assert_eq!(charge_one(&core, child, 0), Charge::Refused(child));
        assert_eq!((core.memcgs.stocked_pages(|id| id == child), usage(parent)), (63, 100));
        drain_stocks(&core, parent);
        assert_eq!((core.memcgs.stocked_pages(|id| id == child), usage(parent), usage(child)), (0, 37, 37));
    }

    /// With `charge_near_limit`, half of the rest up to 1/1024 of the limit; without, one by one.
    #[test]
    fn near_a_limit_batches_are_smaller() {
        let charges = |preset, max_pages, left_pages| {
            let mut options = Options::new(1024);
            options.charge_batch_pages = 64;
            options.mechanisms = Mechanisms::preset(preset);
            let core = Core::new(options, Time::ZERO);
            let parent = core.add_memcg("parent", max_pages, Time::ZERO).unwrap().id();
            let child = core.add_child(parent, "child", UNLIMITED, Time::ZERO).unwrap().id();
            core.memcgs.charge_pages(parent, max_pages - left_pages).unwrap();
            let mut batches = Vec::new();
            for _ in 0..left_pages {
                match charge_one(&core, child, 0) {
                    Charge::Charged(pages) => batches.push(pages),
                    Charge::FromStock => {}
                    Charge::Refused(_) => panic!("there is room for all"),
                }
            }
            assert_eq!(charge_one(&core, child, 0), Charge::Refused(parent), "and no more");
            assert_eq!(core.memcg(parent).usage_pages(), max_pages);
            batches
        };
        assert_eq!(charges(Preset::Default, 1 << 20, 32), [16, 8, 4, 2, 1, 1]);
        assert_eq!(charges(Preset::Default, 1 << 20, 100), [64, 18, 9, 5, 2, 1, 1]);
        assert_eq!(charges(Preset::Default, 5 << 10, 12), [5, 4, 2, 1]);
        assert_eq!(charges(Preset::Default, 2047, 12), [1; 12], "a small one is not to lose any");
        assert_eq!(charges(Preset::Linux72, 1 << 20, 32), [1; 32]);
    }

    #[test]
    fn an_ancestor_refuses_and_nothing_is_charged() {
        let (core, [parent, child]) = core(1);
        core.memcg(parent).set_max_pages(5);
        assert!((0..5).all(|_| charge_one(&core, child, 0) == Charge::Charged(1)));
        assert_eq!(charge_one(&core, child, 0), Charge::Refused(parent));
        assert_eq!([parent, child].map(|memcg| core.memcg(memcg).usage_pages()), [5, 5]);
        assert_eq!(core.memcg(child).peak_pages(), 5, "the refused page was never its own");
    }

    #[test]
    fn more_memcgs_than_places_take_each_others() {
        let (core, [parent, _]) = core(16);
        core.memcg(parent).set_max_pages(crate::UNLIMITED);
        let children: Vec<_> = (0..9)
            .map(|n| core.add_child(parent, &format!("c{n}"), 1000, Time::ZERO).unwrap().id())
            .collect();
        for &child in &children {
            assert_eq!(charge_one(&core, child, 0), Charge::Charged(16));
        }
        let used: u64 = children.len() as u64;
        let stocked: u64 = children.iter().map(|&child| core.memcgs.stocked_pages(|id| id == child)).sum();
        assert_eq!((stocked, core.memcg(parent).usage_pages()), (7 * 15, 7 * 15 + used));
    }
}
