//! The idealised harness of [book: golden-traces#harness]: one memcg, one task, no I/O. Pages are
//! clean unless a test writes to them.

#![allow(dead_code, reason = "each test uses its part")]

use mglru_core::folio::Flags;
use mglru_core::lru::{Seq, Swappiness};
use mglru_core::reclaim::{Effort, EffortKind, Orders, Progress, Step, Watermarks};
use mglru_core::*;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// The way of accessing a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    Read,
    Mapped,
}

/// A finished effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffortSeen {
    pub scanned: u64,
    pub reclaimed: u64,
    pub priority: u8,
}

/// A host that records events and acts only on calls of a test.
#[derive(Debug, Default)]
pub struct QuietHost {
    now_ns: Cell<u64>,
    recent: Cell<u64>,
    pub flushes: RefCell<Vec<FlushReason>>,
    pub isolated_wakes: Cell<u32>,
    efforts: RefCell<Vec<EffortSeen>>,
    pub evicted: RefCell<Vec<(MappingId, u32)>>,
}

impl QuietHost {
    pub fn recent_refaults(&self) -> u64 {
        self.recent.get()
    }

    pub fn efforts(&self) -> Vec<EffortSeen> {
        self.efforts.borrow().clone()
    }

    pub fn advance(&self, by: std::time::Duration) {
        self.now_ns.set(self.now_ns.get() + by.as_nanos() as u64);
    }
}

impl Host for QuietHost {
    fn now(&self) -> Time {
        Time::from_nanos(self.now_ns.get())
    }

    fn wake_flusher(&self, reason: FlushReason) {
        self.flushes.borrow_mut().push(reason);
    }

    fn wake_background(&self) {}

    fn wake_waiters(&self, _: FolioId) {}

    fn wake_isolated(&self) {
        self.isolated_wakes.set(self.isolated_wakes.get() + 1);
    }

    fn frame_retired(&self, _: FolioId) {}

    fn event(&self, event: Event) {
        match event {
            Event::Refault { recent: true, .. } => self.recent.set(self.recent.get() + 1),
            Event::Evicted { page, .. } => self.evicted.borrow_mut().push(page),
            Event::Effort { scanned, reclaimed, priority, .. } => {
                self.efforts.borrow_mut().push(EffortSeen { scanned, reclaimed, priority });
            }
            _ => {}
        }
    }
}

/// One memcg with a limit, one file, one task.
pub struct Harness {
    pub core: Core,
    pub host: QuietHost,
    pub task: Task,
    pub mapping: Arc<Mapping>,
    pub misses: u64,
}

impl Harness {
    /// The default preset with the multi-gen LRU, whose generations most tests watch.
    pub fn new(limit_pages: u64, batch_folios: usize) -> Harness {
        Harness::with_preset(Preset::Default, limit_pages, batch_folios)
    }

    /// The mechanisms of [`Self::new`], with `subtree_lru`.
    pub fn subtree_lru() -> Mechanisms {
        let with_subtree = Mechanisms::compose(Preset::Default, &[Switch::SubtreeLru], &[]).unwrap();
        with_subtree.with_lru(Lru::MultiGen)
    }

    /// Options of a core of so many frames that runs the multi-gen LRU.
    pub fn multigen_options(frames: u32) -> Options {
        Options { mechanisms: Mechanisms::default().with_lru(Lru::MultiGen), ..Options::new(frames) }
    }

    /// As [`Self::new`], with a preset's switches.
    pub fn with_preset(preset: Preset, limit_pages: u64, batch_folios: usize) -> Harness {
        let mechanisms = Mechanisms::preset(preset).with_lru(Lru::MultiGen);
        Harness::with_mechanisms(mechanisms, limit_pages, batch_folios)
    }

    /// As [`Self::new`], with these mechanisms.
    pub fn with_mechanisms(mechanisms: Mechanisms, limit_pages: u64, batch_folios: usize) -> Harness {
        let mut options = Options::new(limit_pages as u32 + 64);
        options.watermarks = Watermarks { min: 0, low: 0, high: 0 };
        options.batch_folios = batch_folios;
        options.mechanisms = mechanisms;
        Harness::with_options(options, limit_pages)
    }

    pub fn with_options(options: Options, limit_pages: u64) -> Harness {
        let core = Core::new(options, Time::ZERO);
        let memcg = core.add_memcg("golden", limit_pages, Time::ZERO).unwrap().id();
        let task = core.new_task(memcg, 0);
        let mapping = core.open_mapping(Kind::File);
        // Whole page tables, as in the models.
        core.map(&task, &mapping, 1 << 20);
        Harness { core, host: QuietHost::default(), task, mapping, misses: 0 }
    }

    pub fn memcg(&self) -> &Memcg {
        self.core.memcg(self.task.memcg)
    }

    /// Charges a page, running as many efforts as needed.
    pub fn charge(&self) -> NewFolio<'_, QuietHost> {
        let mut charging = Charging::new(self.task.memcg, self.task.cpu);
        loop {
            match charging.step(&self.core, &self.host) {
                ChargeStep::More => {}
                ChargeStep::Charged(new) => return new,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Brings a page in.
    pub fn bring(&mut self, page: u32, arrival: Arrival) -> FolioId {
        self.misses += 1;
        let new = self.charge();
        let folio = self.core.insert(&self.host, &self.task, &self.mapping, page, new, arrival).unwrap();
        self.core.publish(&self.host, &self.mapping, folio);
        folio
    }

    pub fn hit(&self, page: u32) -> Option<Hit> {
        match self.core.lookup(&self.mapping, page) {
            Lookup::Hit(hit) => Some(hit),
            Lookup::Miss => None,
            Lookup::Pending(folio) => panic!("{folio:?} is busy"),
        }
    }

    /// One access of the harness.
    pub fn access(&mut self, page: u32, channel: Channel) {
        let hit = self.hit(page).unwrap_or_else(|| {
            self.bring(page, Arrival { in_fault: channel == Channel::Mapped, ..Arrival::default() });
            self.hit(page).expect("it was just brought in")
        });
        match channel {
            Channel::Read => self.core.accessed(&self.host, || self.task.cpu, &hit),
            Channel::Mapped => self.core.touch(&self.task, &self.mapping, page, &hit),
        }
    }

    /// Reads a page through a descriptor.
    pub fn read(&mut self, page: u32) {
        self.access(page, Channel::Read);
    }

    /// Reads pages in order.
    pub fn read_all(&mut self, pages: impl IntoIterator<Item = u32>) {
        pages.into_iter().for_each(|page| self.read(page));
    }

    /// Brings pages in by readahead, without an access.
    pub fn read_ahead(&mut self, pages: impl IntoIterator<Item = u32>) {
        for page in pages {
            self.bring(page, Arrival::default());
        }
    }

    /// Loads from a page through a mapping.
    pub fn load(&mut self, page: u32) {
        self.access(page, Channel::Mapped);
    }

    /// Writes to a cached page without counting an access.
    pub fn write(&self, page: u32) {
        let folio = self.folio(page);
        let flags = &self.core.folios().flags(folio);
        assert!(flags.try_lock());
        assert!(self.core.begin_content(&self.mapping, folio));
        self.core.end_content(&self.mapping, folio);
        self.core.set_dirty(&self.host, &self.mapping, folio);
        flags.unlock();
    }

    /// Starts to write all dirty pages, in runs of any length.
    pub fn start_writeback(&self) -> Vec<FolioId> {
        let mut folios = Vec::new();
        while let Some(run) = self.core.start_writeback(&self.mapping, 0, 1 << 32, usize::MAX) {
            folios.extend(run.folios);
        }
        folios
    }

    /// Ends the writes of these folios.
    pub fn end_writeback(&self, folios: Vec<FolioId>) {
        for folio in folios {
            self.core.end_writeback(&self.host, &self.mapping, folio, true, self.task.cpu);
        }
    }

    /// Moves queued folios to their lists.
    pub fn drain(&self) {
        self.core.drain(&self.host, self.task.cpu);
    }

    /// The folio of a cached page.
    pub fn folio(&self, page: u32) -> FolioId {
        self.hit(page).expect("the page is cached").folio
    }

    pub fn flags(&self, page: u32) -> Flags {
        self.core.folios().flags(self.folio(page)).load()
    }

    /// `R`, `F` and `W` of a page.
    pub fn rfw(&self, page: u32) -> (bool, u32, bool) {
        let flags = self.flags(page);
        (flags.referenced(), flags.refs(), flags.workingset())
    }

    /// The generation that a page is labelled with.
    pub fn seq_of(&self, page: u32) -> Option<u64> {
        let label = self.flags(page).generation()?;
        let max = self.max_seq();
        (max - 3..=max).find(|&seq| Seq(seq).index() == label)
    }

    pub fn is_cached(&self, page: u32) -> bool {
        self.hit(page).is_some()
    }

    pub fn stat(&self, counter: Counter) -> u64 {
        self.memcg().stat().get(counter)
    }

    pub fn max_seq(&self) -> u64 {
        self.memcg().lruvec().max_seq().0
    }

    pub fn min_seq(&self) -> u64 {
        self.memcg().lruvec().min_seq(Kind::File).0
    }

    /// Pages labelled with each live generation, oldest first.
    pub fn sizes(&self) -> Vec<u64> {
        let rows = self.memcg().lruvec().generations(self.host.now());
        rows.iter().filter(|row| row.seq >= self.min_seq()).map(|row| row.file_pages).collect()
    }

    /// The pages evicted since the last call, in order.
    pub fn evicted(&self) -> Vec<u32> {
        self.host.evicted.take().into_iter().map(|(_, index)| index).collect()
    }

    /// Runs one effort on the memcg to its end, ignoring waits.
    pub fn effort(&self, kind: EffortKind, goal_pages: u64) -> Progress {
        let (target, cpu) = (self.task.memcg, self.task.cpu);
        let orders = Orders::new(target, kind, goal_pages, Swappiness::FILE_ONLY, cpu);
        let mut effort = Effort::new(&self.core, orders);
        loop {
            if let Step::Done(progress) = effort.step(&self.core, &self.host) {
                return progress;
            }
        }
    }
}
