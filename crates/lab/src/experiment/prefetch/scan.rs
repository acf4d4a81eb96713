//! Scan rates of folio lists that exceed the processor's caches, directly on the core.
//!
//! The scans never read page contents, so frames are fake: a machine whose folio states and links
//! alone exceed the last-level cache would otherwise need hundreds of gigabytes. Tenants take
//! frames in turn, and each puts its folios on its list in random order, so that list neighbours
//! are not memory neighbours.

use crate::cpu::thread_seconds;
use mglru_cache::prefetch_for_write;
use mglru_core::lru::Swappiness;
use mglru_core::reclaim::{Proactive, RequestStep, Watermarks};
use mglru_core::{
    Arrival, ChargeStep, Charging, ControlStep, Core, Counter, FlushReason, FolioId, Host, Kind, Mapping,
    Mechanisms, Options, Task, Time, UNLIMITED,
};
use mglru_workload::Random;
use std::sync::Arc;
use std::time::Instant;

/// The core's host: real time, and a processor that prefetches if `FETCHES`.
struct Clock<const FETCHES: bool>(Instant);

impl<const FETCHES: bool> Host for Clock<FETCHES> {
    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wake_flusher(&self, _: FlushReason) {}

    fn wake_background(&self) {}

    fn wake_waiters(&self, _: FolioId) {}

    fn frame_retired(&self, _: FolioId) {}

    #[inline]
    fn prefetch<T>(&self, at: &T) {
        if FETCHES {
            prefetch_for_write(at);
        }
    }
}

/// The number of ways.
pub const WAYS: usize = 4;

/// How a scan finds the next folio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Read the list's tail each time. A classic scan prefetches the next folio's state all the
    /// same, as kernels do.
    Tail,
    /// The published patch: the same, and prefetch the next folio's state.
    Next,
    /// Follow links, and prefetch what will be written soon.
    Ahead,
    /// Follow links without prefetching.
    Silent,
}

impl Way {
    /// All ways.
    pub const ALL: [Way; WAYS] = [Way::Tail, Way::Next, Way::Ahead, Way::Silent];
}

/// Processed folios and their time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scanned {
    /// Number of folios.
    pub folios: u64,
    /// Processor time of the thread in seconds.
    pub seconds: f64,
}

impl Scanned {
    /// The sum of two measurements.
    pub fn and(self, other: Scanned) -> Scanned {
        Scanned { folios: self.folios + other.folios, seconds: self.seconds + other.seconds }
    }

    /// Folios per second.
    pub fn rate(self) -> f64 {
        self.folios as f64 / self.seconds
    }
}

struct Tenant {
    task: Task,
    mapping: Arc<Mapping>,
}

/// A node full of folios of some tenants.
pub struct ScanMachine {
    core: Core,
    /// Start of its clock.
    began: Instant,
    tenants: Vec<Tenant>,
}

impl ScanMachine {
    /// Creates a node with all folios in the oldest generation of their tenants.
    pub fn new(mechanisms: Mechanisms, folios: u32, tenants: u32, seed: u64) -> ScanMachine {
        let mut options = Options::new(folios);
        options.watermarks = Watermarks { min: 0, low: 0, high: 0 };
        options.mechanisms = mechanisms;
        let (core, began) = (Core::new(options, Time::ZERO), Instant::now());
        let host = Clock::<true>(began);
        let tenants: Vec<Tenant> = (0..tenants)
            .map(|number| {
                let memcg = core.add_memcg(&format!("t{number}"), UNLIMITED, Time::ZERO);
                let task = core.new_task(memcg.expect("the names are distinct and few").id(), 0);
                Tenant { task, mapping: core.open_mapping(Kind::File) }
            })
            .collect();
        let mut random = Random::stream(seed, 0);
        let mut pages = vec![0; tenants.len()];
        for _ in 0..folios {
            let number = random.below(tenants.len() as u64) as usize;
            bring(&core, &host, &tenants[number], pages[number]);
            pages[number] += 1;
        }
        core.drain_all(&host);
        ScanMachine { core, began, tenants }
    }

    fn set(&self, way: Way) {
        match way {
            Way::Tail => self.core.set_prefetch(false),
            Way::Next => self.core.set_prefetch_next(true),
            Way::Ahead | Way::Silent => self.core.set_prefetch(true),
        }
    }

    /// Creates a generation of a tenant, for which the oldest is merged into the next one.
    pub fn make_room(&self, way: Way, tenant: usize) -> Scanned {
        self.set(way);
        match way {
            Way::Silent => self.make_room_with(&Clock::<false>(self.began), tenant),
            _ => self.make_room_with(&Clock::<true>(self.began), tenant),
        }
    }

    fn make_room_with(&self, host: &impl Host, tenant: usize) -> Scanned {
        let memcg = self.core.memcg(self.tenants[tenant].task.memcg);
        let (max, oldest) =
            (memcg.lruvec().max_seq().0, memcg.lruvec().generations(Time::ZERO)[0].file_pages);
        let command = format!("+ {} 0 {max}", memcg.id().0);
        let began = thread_seconds();
        let mut write = self.core.write_control("lru_gen", &command, 0).expect("the command is valid");
        while write.step(&self.core, host).expect("the command is valid") != ControlStep::Done {}
        Scanned { folios: oldest, seconds: thread_seconds() - began }
    }

    /// Reclaims pages from a tenant.
    pub fn reclaim(&self, way: Way, tenant: usize, pages: u64) -> Scanned {
        self.set(way);
        match way {
            Way::Silent => self.reclaim_with(&Clock::<false>(self.began), tenant, pages),
            _ => self.reclaim_with(&Clock::<true>(self.began), tenant, pages),
        }
    }

    fn reclaim_with(&self, host: &impl Host, tenant: usize, pages: u64) -> Scanned {
        let memcg = self.core.memcg(self.tenants[tenant].task.memcg);
        let before = memcg.stat().get(Counter::PgscanProactive);
        let began = thread_seconds();
        let mut request = Proactive::new(&self.core, memcg.id(), pages, Some(Swappiness::FILE_ONLY), 0);
        while !matches!(request.step(&self.core, host), RequestStep::Done(_) | RequestStep::TryAgain(_)) {}
        let seconds = thread_seconds() - began;
        Scanned { folios: memcg.stat().get(Counter::PgscanProactive) - before, seconds }
    }

    /// Bytes of all metadata.
    pub fn metadata_bytes(&self) -> u64 {
        self.core.metadata_bytes()
    }

    /// Counters by name, summed over all tenants.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let of = |&counter: &Counter| {
            let memcgs = self.tenants.iter().map(|tenant| self.core.memcg(tenant.task.memcg));
            (counter.name(), memcgs.map(|memcg| memcg.stat().get(counter)).sum())
        };
        Counter::ALL.iter().map(of).collect()
    }
}

/// Charges a page and adds it to the list.
fn bring(core: &Core, host: &Clock<true>, tenant: &Tenant, page: u32) {
    let mut charging = Charging::new(tenant.task.memcg, 0);
    let new = loop {
        match charging.step(core, host) {
            ChargeStep::Charged(new) => break new,
            ChargeStep::More | ChargeStep::Wait(_) => {}
            ChargeStep::OutOfMemory(report) => panic!("there is a frame for each: {report:?}"),
        }
    };
    let folio = core.insert(host, &tenant.task, &tenant.mapping, page, new, Arrival::default());
    core.publish(host, &tenant.mapping, folio.expect("no other thread inserts"));
}
