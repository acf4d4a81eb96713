//! The idealised harness of spec 97 §1: one memcg, one task, no I/O, every page clean.

#![allow(dead_code, reason = "each test uses its part")]

use mglru_core::reclaim::Watermarks;
use mglru_core::*;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// How a page is touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// By a read through a descriptor.
    Read,
    /// By a load through a mapping.
    Mapped,
}

/// One finished effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffortSeen {
    pub scanned: u64,
    pub reclaimed: u64,
    pub priority: u8,
}

/// A host on which nothing happens but what the test says.
#[derive(Debug, Default)]
pub struct QuietHost {
    now_ns: Cell<u64>,
    recent: Cell<u64>,
    pub flushes: RefCell<Vec<FlushReason>>,
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
    pub fn new(limit_pages: u64, batch_folios: usize) -> Harness {
        let mut options = Options::new(limit_pages as u32 + 64);
        options.watermarks = Watermarks { min: 0, low: 0, high: 0 };
        options.batch_folios = batch_folios;
        let core = Core::new(options, Time::ZERO);
        let memcg = core.add_memcg("golden", limit_pages, Time::ZERO).unwrap().id();
        let task = core.new_task(memcg, 0);
        let mapping = core.open_mapping(Kind::File);
        // Whole page tables, as the models have them.
        core.map(&task, &mapping, 1 << 20);
        Harness { core, host: QuietHost::default(), task, mapping, misses: 0 }
    }

    pub fn memcg(&self) -> &Memcg {
        self.core.memcg(self.task.memcg)
    }

    /// Charges a page, running efforts as long as it takes.
    pub fn charge(&self) -> NewFolio {
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
            Channel::Read => self.core.accessed(&hit),
            Channel::Mapped => self.core.touch(&self.task, &self.mapping, page, &hit),
        }
    }
}
