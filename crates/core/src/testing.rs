//! Support for unit tests: the integration tests' harness, and what only this crate can see of it.

#[path = "../tests/suite/common/mod.rs"]
mod common;

pub(crate) use common::*;

use crate::lru::multigen::lists::list_of;
use crate::lru::multigen::window::WalkBatch;
use crate::lru::{Aging, Isolated, Seq, Swappiness};
use crate::memcg::MemcgId;
use crate::reclaim::{Context, EffortKind, NodeWalk, Orders, Scan, WalkStep, evict_step};
use crate::{Counter, FlushReason, FolioId, Host, Kind, Mechanisms, Time};
use std::cell::RefCell;

impl Harness {
    /// Orders of limit reclaim with a goal of `goal_pages`.
    pub(crate) fn orders(&self, goal_pages: u64) -> Orders {
        Orders::new(self.task.memcg, EffortKind::Limit, goal_pages, Swappiness::FILE_ONLY, 0)
    }

    /// Orders of root reclaim with a goal of `goal_pages`.
    pub(crate) fn root_orders(&self, goal_pages: u64) -> Orders {
        Orders { target: MemcgId::ROOT, kind: EffortKind::Direct, ..self.orders(goal_pages) }
    }

    /// The file pages on the list of a generation, from tail to head. Their labels may differ.
    pub(crate) fn list(&self, seq: u64) -> Vec<u32> {
        let locked = self.memcg().lruvec.lock(&self.core.folios);
        let list = list_of(Seq(seq).index(), Kind::File);
        locked.lists.lists.iter(&self.core.folios, list).map(|folio| self.page_of(folio)).collect()
    }

    fn page_of(&self, folio: FolioId) -> u32 {
        self.core.folios.index(folio)
    }

    /// One scan, as in an eviction step. The isolated folios stay in the batch.
    pub(crate) fn isolate(&self, request: u64) -> Isolated {
        let mut batch = Isolated::default();
        let mut locked = self.memcg().lruvec.lock(&self.core.folios);
        locked.isolate(&self.host, request, u64::MAX, Swappiness::FILE_ONLY, &mut batch);
        batch
    }

    /// The pages that a scan isolated.
    pub(crate) fn pages(&self, batch: &Isolated) -> Vec<u32> {
        batch.folios.iter().map(|&folio| self.page_of(folio)).collect()
    }

    /// One eviction step. Returns the pages scanned, and the state of the effort.
    pub(crate) fn evict(&self, request: u64) -> (u64, Scan) {
        let mut scan = Scan::default();
        let orders = self.orders(1);
        let cx = &mut Context::new(&self.core, &self.host, &orders, &mut scan);
        let scanned = evict_step(cx, self.memcg(), request);
        (scanned, scan)
    }

    /// One pass over the target at one priority. Returns the sizes of its batches, by the growth of
    /// `pgscan` and `pgrefill`.
    pub(crate) fn pass(&self, orders: Orders, priority: u8) -> (Vec<u64>, Scan) {
        let mut scan = Scan::default();
        let cx = &mut Context::new(&self.core, &self.host, &orders, &mut scan);
        let mut walk = NodeWalk::new(cx, priority, false);
        let mut steps = Vec::new();
        loop {
            let before = self.looked_at();
            let step = walk.step(cx);
            let scanned = self.looked_at() - before;
            if scanned > 0 {
                steps.push(scanned);
            }
            if step == WalkStep::Finished {
                return (steps, scan);
            }
        }
    }

    fn looked_at(&self) -> u64 {
        self.stat(Counter::PgscanDirect) + self.stat(Counter::Pgrefill)
    }

    /// Opens the next generation without a walk.
    pub(crate) fn open_generation(&self) -> bool {
        self.aging().open_generation()
    }

    /// An aging of the harness's memcg, of file pages only.
    pub(crate) fn aging(&self) -> Aging<'_, QuietHost> {
        self.aging_on(&self.host)
    }

    /// As [`Self::aging`], on another host.
    pub(crate) fn aging_on<'a, H>(&'a self, host: &'a H) -> Aging<'a, H> {
        let memcg = self.memcg();
        let (seq, swappiness) = (memcg.lruvec.max_seq(), Swappiness::FILE_ONLY);
        Aging { core: &self.core, host, memcg, seq, swappiness, force: false }
    }

    /// Walks the page tables, then opens the next generation.
    pub(crate) fn age(&self) -> bool {
        self.aging().run(&mut WalkBatch::default())
    }

    /// Whether the page-table entry of a page is young.
    pub(crate) fn is_young(&self, page: u32) -> bool {
        self.mapping.slot(&self.core.leaves, page).is_some_and(|slot| slot.load().accessed())
    }

    /// Counters by tier of the oldest generation of file pages: refaulted, evicted, protected.
    pub(crate) fn feedback(&self) -> [[u64; 4]; 3] {
        use crate::sync::Ordering::Relaxed;
        let lruvec = &self.memcg().lruvec;
        let file = Kind::File as usize;
        let protected = lruvec.lock(&self.core.folios).lists.averages[file].protected;
        let counts = |words: &[crate::sync::AtomicU64; 4]| std::array::from_fn(|t| words[t].load(Relaxed));
        [counts(&lruvec.refaulted[file]), counts(&lruvec.evicted[file]), protected]
    }
}

impl Harness {
    /// Brings pages in with the label `max_seq − distance + 1`: distance 2, 3 or 4.
    pub(crate) fn bring_at(&mut self, pages: impl IntoIterator<Item = u32>, distance: u64) {
        for page in pages {
            self.drain();
            let referenced = distance == 3;
            let folio = self.bring(page, crate::Arrival { referenced, ..Default::default() });
            let flags = &self.core.folios.flags(folio);
            if distance == 2 {
                assert!(flags.load().generation().is_none(), "it is on a list already: use larger batches");
                flags.set_active();
            }
            self.drain();
        }
    }

    /// Makes a page hot, as a refault that restores `workingset` does.
    pub(crate) fn make_hot(&self, page: u32) {
        self.core.folios.flags(self.folio(page)).restore(true, 0);
    }

    /// Relabels a page as youngest, as the second walk that finds it young does.
    pub(crate) fn promote(&self, page: u32) {
        let youngest = self.memcg().lruvec.max_seq().index();
        let flags = &self.core.folios.flags(self.folio(page));
        let mut batch = WalkBatch::default();
        let mechanisms = self.core.mechanisms();
        batch.note(Kind::File, flags.found_young_by_walk(youngest, mechanisms));
        batch.note(Kind::File, flags.found_young_by_walk(youngest, mechanisms));
        batch.flush(&self.core, self.memcg().id());
    }

    /// An anonymous folio in no mapping, at the tail of the oldest generation.
    pub(crate) fn add_anon(&self) -> FolioId {
        let folio = match self.core.node.allocate(0, true, Time::default) {
            crate::node::Allocation::BelowMin => panic!("no frame is left"),
            crate::node::Allocation::Frame(folio) | crate::node::Allocation::Low(folio) => folio,
        };
        self.core.folios.flags(folio).allocate(true, 1);
        self.memcg().lruvec.lock(&self.core.folios).place(folio, true);
        folio
    }

    /// A harness with five file pages on one list: four far from each other in memory, and one
    /// beside the fourth.
    pub(crate) fn with_scattered(mechanisms: Mechanisms) -> (Harness, [FolioId; 5]) {
        let mut harness = Harness::with_mechanisms(mechanisms, 200, 1);
        harness.read_ahead(0..77);
        for page in (0..75).filter(|page| page % 25 != 0) {
            let end = u64::from(page) + 1;
            assert!(harness.core.truncate(&harness.host, &harness.mapping, page, end).is_none());
        }
        let folios = [0, 25, 50, 75, 76].map(|page| harness.folio(page));
        (harness, folios)
    }
}

/// A host that records the addresses to prefetch.
#[derive(Default)]
pub(crate) struct Fetching(pub(crate) RefCell<Vec<usize>>);

impl Host for Fetching {
    fn now(&self) -> Time {
        Time::ZERO
    }

    fn wake_flusher(&self, _: FlushReason) {}

    fn wake_background(&self) {}

    fn wake_waiters(&self, _: FolioId) {}

    fn frame_retired(&self, _: FolioId) {}

    fn prefetch<T>(&self, at: &T) {
        self.0.borrow_mut().push(std::ptr::from_ref(at).addr());
    }
}
