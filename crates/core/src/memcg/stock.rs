//! Per-CPU stocks of pages charged in advance.
//!
//! A charge walks up the tree and writes one shared word per level. So a CPU charges 64 pages at
//! once and hands them out one by one. It keeps stocks of seven memcgs, so that memcgs that share a
//! CPU do not evict each other's.
//!
//! Source: [book: memcgs#limits] ("charge batch"); Linux keeps seven stocks since 6.16.
//!
//! # Locking
//!
//! One lock per CPU, a leaf, taken only by threads on the CPU and by those that drain.

use super::MemcgId;
use crate::sync::Mutex;

/// Pages charged at once.
pub const CHARGE_BATCH_PAGES: u64 = 64;
const MEMCGS_PER_CPU: usize = 7;

#[derive(Clone, Copy, Debug, Default)]
struct Stock {
    memcg: u32,
    pages: u64,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct CpuStocks {
    stocks: Mutex<[Stock; MEMCGS_PER_CPU]>,
}

#[derive(Debug)]
pub(crate) struct Stocks {
    cpus: Box<[CpuStocks]>,
    pub(super) batch_pages: u64,
}

impl Stocks {
    /// Empty stocks. `batch_pages` of 1: nothing is ever stocked.
    pub(crate) fn new(cpus: usize, batch_pages: u64) -> Stocks {
        Stocks { cpus: (0..cpus).map(|_| CpuStocks::default()).collect(), batch_pages }
    }

    pub(super) fn take(&self, cpu: usize, memcg: MemcgId) -> bool {
        let mut stocks = self.cpus[cpu].stocks.lock();
        let found = stocks.iter_mut().find(|stock| stock.memcg == memcg.0 && stock.pages > 0);
        found.map(|stock| stock.pages -= 1).is_some()
    }

    /// Puts pages into a stock. Returns the stock that it replaced, to be uncharged.
    pub(super) fn put(&self, cpu: usize, memcg: MemcgId, pages: u64) -> Option<(MemcgId, u64)> {
        let mut stocks = self.cpus[cpu].stocks.lock();
        let own = stocks.iter().position(|stock| stock.memcg == memcg.0 && stock.pages > 0);
        // Otherwise replace the smallest stock.
        let place = own.or_else(|| (0..MEMCGS_PER_CPU).min_by_key(|&at| stocks[at].pages))?;
        let stock = &mut stocks[place];
        if own.is_some() {
            stock.pages += pages;
            return None;
        }
        let before = std::mem::replace(stock, Stock { memcg: memcg.0, pages });
        (before.pages > 0).then_some((MemcgId(before.memcg), before.pages))
    }

    /// Empties the stocks of the selected memcgs, and hands over what they held.
    pub(super) fn drain(&self, of: impl Fn(MemcgId) -> bool, uncharge: impl Fn(MemcgId, u64)) {
        for cpu in &self.cpus {
            let mut stocks = cpu.stocks.lock();
            let selected = |stock: &&mut Stock| stock.pages > 0 && of(MemcgId(stock.memcg));
            let drained: Vec<Stock> = stocks.iter_mut().filter(selected).map(std::mem::take).collect();
            drop(stocks);
            drained.into_iter().for_each(|stock| uncharge(MemcgId(stock.memcg), stock.pages));
        }
    }

    /// Unused pages in the stocks of the selected memcgs.
    pub(super) fn pages(&self, of: impl Fn(MemcgId) -> bool) -> u64 {
        let of_cpu = |cpu: &CpuStocks| -> u64 {
            let stocks = cpu.stocks.lock();
            let counts = |stock: &&Stock| stock.pages > 0 && of(MemcgId(stock.memcg));
            stocks.iter().filter(counts).map(|stock| stock.pages).sum()
        };
        self.cpus.iter().map(of_cpu).sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charge {
    /// From stock; limits were checked when that was filled.
    FromStock,
    /// This many pages were charged, and one of them is used now.
    Charged(u64),
    /// The limit of this memcg is reached.
    Refused(MemcgId),
}
