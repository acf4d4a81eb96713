//! The load of the experiment: threads that read more than their tenants' limits, directly on the
//! core.
//!
//! Pages have no contents. A page is charged, inserted and published at once, without I/O, so that
//! only the LRU, its reclaim and their locks are measured.
//!
//! ```text
//! root ── a1 ── … ── a(depth−1) ─┬─ t0   a thread, its file, its limit
//!                                └─ t1
//! ```

use crate::Error;
use crate::cpu::thread_seconds;
use mglru_core::Refresh;
use mglru_core::lru::Swappiness;
use mglru_core::reclaim::{Effort, EffortKind, Orders, Proactive, RequestStep, Step, Watermarks};
use mglru_core::{
    Arrival, ChargeStep, Charging, Core, Counter, FlushReason, FolioId, Hit, Host, Kind, LockCounts, Lookup,
    LruLock, Mapping, Mechanisms, MemcgId, Options, PCP_BATCH_FRAMES, Task, Time, UNLIMITED,
};
use mglru_workload::Random;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Reads between the first and the second read of a page.
const LAG_READS: usize = 64;
/// Reads between two checks of the time.
const READS_PER_LOOK: usize = 256;
/// Interval of checks whether a lock is held.
const BETWEEN_LOOKS: Duration = Duration::from_micros(20);
/// Refresh interval of list sizes. Kernels refresh every 2 s, but runs there last minutes.
const REFRESH: Duration = Duration::from_millis(20);

/// Work of each thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Read random pages by descriptor, each a second time shortly after, so that they are
    /// activated (vm-scalability's lru-file-readtwice).
    ReadTwice,
    /// Load random pages through a mapping, so that reclaim finds accessed bits
    /// (lru-file-mmap-read).
    Mapped,
    /// Fill the tenant, then reclaim all of it on request. Only the reclaim is timed.
    Request,
}

/// Parameters of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Mechanisms of the run.
    pub mechanisms: Mechanisms,
    /// Work of the threads.
    pub load: Load,
    /// Number of threads, each in its own tenant.
    pub threads: usize,
    /// Levels from the root down to the tenants.
    pub depth: u32,
    /// Whether to sample the shared lock, which slows the run slightly.
    pub watched: bool,
    /// Divisor of the sizes of tenants and files.
    pub smaller: u32,
}

/// Size and duration of a run.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// `memory.max` of each tenant in pages. Its file is twice as large.
    pub tenant_pages: u32,
    /// Duration of the timed part.
    pub time: Duration,
    /// Seed of all draws.
    pub seed: u64,
}

/// Results of all threads of a run.
#[derive(Debug, Clone, Copy)]
pub struct LockOutcome {
    /// Pages reclaimed in the timed part.
    pub reclaimed: u64,
    /// Pages reclaimed per second, summed over the threads.
    pub reclaimed_per_second: f64,
    /// Average number of processors used. Less than the number of threads means waiting, or a busy
    /// machine.
    pub processors: f64,
    /// Writes to the tenants' clocks. Each implies a write to the clock of every ancestor.
    pub clock_writes: u64,
    /// Counts of the shared locks: the node's, or those of the ancestors' lruvecs.
    pub shared: LockCounts,
    /// Share of time that the node's lock, or the root's lruvec lock, was held; 0 if not sampled.
    pub held: f64,
}

struct Clock(Instant);

impl Host for Clock {
    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wake_flusher(&self, _: FlushReason) {}

    fn wake_background(&self) {}

    fn wake_waiters(&self, _: FolioId) {}

    fn frame_retired(&self, _: FolioId) {}
}

struct LockMachine {
    core: Core,
    host: Clock,
    tenants: Vec<MemcgId>,
}

impl LockMachine {
    fn new(setting: &Setting, size: Size) -> LockMachine {
        let mut options = Options::new((setting.threads as u32 + 1) * size.tenant_pages + 1024);
        options.watermarks = Watermarks { min: 0, low: 0, high: 0 };
        options.mechanisms = setting.mechanisms;
        options.cpus = setting.threads;
        options.pcp_batch_frames = PCP_BATCH_FRAMES;
        options.statistics_refresh = Refresh { first: REFRESH, period: REFRESH };
        let core = Core::new(options, Time::ZERO);
        let add = |parent, name: &str, max| {
            let memcg = core.add_child(parent, name, max, Time::ZERO);
            memcg.expect("the names are distinct and few").id()
        };
        let parent = (1..setting.depth)
            .fold(MemcgId::ROOT, |parent, level| add(parent, &format!("a{level}"), UNLIMITED));
        let tenants = (0..setting.threads)
            .map(|tenant| add(parent, &format!("t{tenant}"), u64::from(size.tenant_pages)))
            .collect();
        LockMachine { core, host: Clock(Instant::now()), tenants }
    }

    fn stat(&self, counter: Counter) -> u64 {
        self.tenants.iter().map(|&tenant| self.core.memcg(tenant).stat().get(counter)).sum()
    }

    fn has_node_lock(&self) -> bool {
        self.core.options().mechanisms.lru_lock() == LruLock::Node
    }

    /// Counts of the locks that threads share.
    fn locks(&self) -> LockCounts {
        if self.has_node_lock() {
            return self.core.folios().node_lock_counts();
        }
        let ancestors = self.core.memcgs().iter().filter(|memcg| !self.tenants.contains(&memcg.id()));
        ancestors.map(|memcg| memcg.lruvec().lock_counts()).fold(LockCounts::default(), |sum, of| {
            LockCounts { taken: sum.taken + of.taken, waited: sum.waited + of.waited }
        })
    }

    /// Share of time that the lock shared by all threads is held, sampled while `working` is true.
    fn watch(&self, working: impl Fn() -> bool) -> f64 {
        let (mut looks, mut held) = (0u64, 0u64);
        while working() {
            std::thread::sleep(BETWEEN_LOOKS);
            let locked = if self.has_node_lock() {
                self.core.folios().is_node_locked()
            } else {
                self.core.memcg(MemcgId::ROOT).lruvec().is_locked()
            };
            looks += 1;
            held += u64::from(locked);
        }
        held as f64 / looks.max(1) as f64
    }
}

struct Worker<'a> {
    world: &'a LockMachine,
    task: Task,
    mapping: Arc<Mapping>,
    load: Load,
    tenant_pages: u32,
    random: Random,
    /// Recently read pages that will be read again.
    again: [u32; LAG_READS],
    reads: usize,
}

impl Worker<'_> {
    fn new(world: &LockMachine, load: Load, number: usize, size: Size) -> Worker<'_> {
        let task = world.core.new_task(world.tenants[number], number);
        let mapping = world.core.open_mapping(Kind::File);
        if load == Load::Mapped {
            world.core.map(&task, &mapping, 2 * u64::from(size.tenant_pages));
        }
        let random = Random::stream(size.seed, number as u64);
        let (tenant_pages, again) = (size.tenant_pages, [0; LAG_READS]);
        Worker { world, task, mapping, load, tenant_pages, random, again, reads: 0 }
    }

    /// Looks up the page, and inserts it on a miss.
    fn find(&self, page: u32) -> Hit {
        let (core, host) = (&self.world.core, &self.world.host);
        loop {
            match core.lookup(&self.mapping, page) {
                Lookup::Hit(hit) => return hit,
                Lookup::Pending(_) => unreachable!("pages are published by the thread that inserted them"),
                Lookup::Miss => {}
            }
            let mut charging = Charging::new(self.task.memcg, self.task.cpu);
            let new = loop {
                match charging.step(core, host) {
                    ChargeStep::Charged(new) => break new,
                    ChargeStep::More | ChargeStep::Wait(_) => {}
                    ChargeStep::OutOfMemory(report) => panic!("all pages are clean: {report:?}"),
                }
            };
            let arrival = Arrival { in_fault: self.load == Load::Mapped, ..Arrival::default() };
            let folio = core.insert(host, &self.task, &self.mapping, page, new, arrival);
            core.publish(host, &self.mapping, folio.expect("no other thread inserts"));
        }
    }

    fn access(&self, page: u32) {
        let hit = self.find(page);
        if self.load == Load::Mapped {
            self.world.core.touch(&self.task, &self.mapping, page, &hit);
        } else {
            self.world.core.accessed(&self.world.host, || self.task.cpu, &hit);
        }
    }

    fn read(&mut self) {
        let page = self.random.below(2 * u64::from(self.tenant_pages)) as u32;
        self.access(page);
        if self.load == Load::ReadTwice {
            let earlier = std::mem::replace(&mut self.again[self.reads % LAG_READS], page);
            self.access(earlier);
        }
        self.reads += 1;
    }

    fn reclaimed(&self) -> u64 {
        self.world.core.memcg(self.task.memcg).stat().get(Counter::PgstealFile)
    }

    /// Fills the tenant and lets its lists settle.
    fn warm(&mut self) {
        match self.load {
            Load::Request => (0..self.tenant_pages).for_each(|page| _ = self.find(page)),
            _ => (0..4 * self.tenant_pages).for_each(|_| self.read()),
        }
    }

    /// Works for `time`. Returns pages reclaimed per second, and the share of time that the thread
    /// ran.
    fn work(&mut self, time: Duration) -> (f64, f64) {
        let (before, ran, began) = (self.reclaimed(), thread_seconds(), Instant::now());
        if self.load == Load::Request {
            // Some pages are in per-CPU batches, so the last few may be unreachable.
            let (core, host) = (&self.world.core, &self.world.host);
            let pages = u64::from(self.tenant_pages);
            let mut request = Proactive::new(core, self.task.memcg, pages, None, self.task.cpu);
            while !matches!(request.step(core, host), RequestStep::Done(_) | RequestStep::TryAgain(_)) {}
        } else {
            while began.elapsed() < time {
                (0..READS_PER_LOOK).for_each(|_| self.read());
            }
        }
        let took = began.elapsed().as_secs_f64();
        ((self.reclaimed() - before) as f64 / took, (thread_seconds() - ran) / took)
    }
}

/// Runs one setting.
pub fn run(setting: &Setting, size: Size) -> LockOutcome {
    let size = Size { tenant_pages: size.tenant_pages / setting.smaller, ..size };
    let world = &LockMachine::new(setting, size);
    let barrier = &Barrier::new(setting.threads + 1);
    std::thread::scope(|scope| {
        let worker = |number| {
            move || {
                let mut worker = Worker::new(world, setting.load, number, size);
                worker.warm();
                // First barrier: all threads are warm, and counters are read. Second: start.
                barrier.wait();
                barrier.wait();
                worker.work(size.time)
            }
        };
        let workers: Vec<_> = (0..setting.threads).map(|number| scope.spawn(worker(number))).collect();
        let counts =
            || [Counter::PgstealFile, Counter::NonresidentAgeWrites].map(|counter| world.stat(counter));
        barrier.wait();
        let ([reclaimed, writes], locks) = (counts(), world.locks());
        barrier.wait();
        let working = || !workers.iter().all(|worker| worker.is_finished());
        let held = if setting.watched { world.watch(working) } else { 0.0 };
        let (mut reclaimed_per_second, mut processors) = (0.0, 0.0);
        for worker in workers {
            let (rate, share) = worker.join().expect("no panic");
            (reclaimed_per_second, processors) = (reclaimed_per_second + rate, processors + share);
        }
        let ([reclaimed_after, writes_after], locks_after) = (counts(), world.locks());
        LockOutcome {
            reclaimed: reclaimed_after - reclaimed,
            reclaimed_per_second,
            processors,
            clock_writes: writes_after - writes,
            shared: LockCounts {
                taken: locks_after.taken - locks.taken,
                waited: locks_after.waited - locks.waited,
            },
            held,
        }
    })
}

/// Writes to each ancestor's clock when reclaim puts back a batch of 31 folios that it found in
/// use.
///
/// All pages are dirty and therefore kept. An effort scans 1/4096 of the list, then 1/2048, and so
/// on. With this number of pages, the fifth pass scans 31.
///
/// # Errors
/// If no such batch occurred.
pub fn clock_writes_per_batch(mechanisms: Mechanisms, depth: u32) -> Result<u64, Error> {
    const BATCH: u64 = 31;
    const PAGES: u32 = 2030;
    let size = Size { tenant_pages: 2 * PAGES, time: Duration::ZERO, seed: 0 };
    let load = Load::ReadTwice;
    let setting = Setting { mechanisms, load, threads: 1, depth, watched: false, smaller: 1 };
    let world = LockMachine::new(&setting, size);
    let worker = Worker::new(&world, load, 0, size);
    for page in 0..PAGES {
        let hit = worker.find(page);
        world.core.set_dirty(&world.host, &worker.mapping, hit.folio);
    }
    world.core.drain_all(&world.host);
    let (target, swappiness) = (worker.task.memcg, Swappiness::FILE_ONLY);
    let (goal_pages, kind) = (BATCH, EffortKind::Proactive);
    let mut effort = Effort::new(&world.core, Orders::new(target, kind, goal_pages, swappiness, 0));
    loop {
        let counts =
            || [Counter::NonresidentAgeWrites, Counter::Pgactivate].map(|counter| world.stat(counter));
        let [writes, activated] = counts();
        let step = effort.step(&world.core, &world.host);
        let [writes_after, activated_after] = counts();
        if activated_after - activated == BATCH {
            return Ok(writes_after - writes);
        }
        if matches!(step, Step::Done(_)) {
            return Err(Error::work("lru-lock: reclaim put back no batch of 31 folios"));
        }
    }
}
