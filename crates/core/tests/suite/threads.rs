//! Several threads on one core: readers, writers, a flusher, truncation and background reclaim, on
//! two small tenants.
//!
//! Each frame holds the name of its page, so that a reader whose copy was confirmed can check whose
//! bytes it has. In the end everything is given back, and every counter must have its initial
//! value. The machine decides the interleavings; `loom_tests.rs` explores single steps in every
//! order.

use mglru_core::lru::switch::SwitchStep;
use mglru_core::reclaim::{Background, BackgroundStep, Effort, EffortKind, Orders, Step, Watermarks};
use mglru_core::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

const FRAMES: u32 = 300;
const PAGES: u32 = 400;
/// Neighbours lie so far apart: under different locks of their file.
const APART_PAGES: u32 = 32_768;
const TENANTS: usize = 2;
const ROUNDS: u32 = 200_000;

struct World {
    core: Core,
    /// One file per tenant.
    files: Vec<(MemcgId, Arc<Mapping>)>,
    /// Content of each frame.
    frames: Vec<AtomicU64>,
    accepted: AtomicU64,
    refused: AtomicU64,
}

/// The value that a page is filled with.
fn bytes_of(tenant: usize, page: u32) -> u64 {
    (tenant as u64) << 32 | u64::from(page)
}

impl World {
    fn new(mechanisms: Mechanisms) -> World {
        let mut options = Options::new(FRAMES);
        options.mechanisms = mechanisms;
        // The first tenant reaches its limit, the second the watermarks.
        options.watermarks = Watermarks { min: 10, low: 30, high: 50 };
        options.cpus = 3;
        options.pcp_batch_frames = 4;
        let core = Core::new(options, Time::ZERO);
        let files = [100, UNLIMITED].into_iter().enumerate().map(|(tenant, max)| {
            let memcg = core.add_memcg(&format!("tenant {tenant}"), max, Time::ZERO).unwrap().id();
            (memcg, core.open_mapping(Kind::File))
        });
        let files = files.collect();
        let frames = (0..FRAMES).map(|_| AtomicU64::new(u64::MAX)).collect();
        World { core, files, frames, accepted: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }

    /// Charges a page; during waits, writes the dirty pages.
    fn charge(&self, task: &Task) -> Option<NewFolio<'_, Silent>> {
        let mut charging = Charging::new(task.memcg, task.cpu);
        loop {
            match charging.step(&self.core, &Silent) {
                ChargeStep::Charged(new) => return Some(new),
                ChargeStep::More => {}
                ChargeStep::Wait(_) => self.flush(),
                ChargeStep::OutOfMemory(_) => return None,
            }
        }
    }

    /// Writes the dirty pages once; an eighth of the writes fail.
    fn flush(&self) {
        for (_, mapping) in &self.files {
            let mut from = 0;
            while let Some(run) = self.core.start_writeback(mapping, from, 1 << 32, 16) {
                from = run.first + run.folios.len() as u32;
                for folio in run.folios {
                    self.core.end_writeback(&Silent, mapping, folio, folio.0 % 8 != 0, 0);
                }
            }
        }
    }

    /// Brings a page in, unless another thread does.
    fn bring(&self, tenant: usize, page: u32, task: &Task, arrival: Arrival) {
        let mapping = &self.files[tenant].1;
        let Some(new) = self.charge(task) else { return };
        let Ok(folio) = self.core.insert(&Silent, task, mapping, page, new, arrival) else { return };
        if page.is_multiple_of(97) {
            return self.core.abandon(&Silent, mapping, folio);
        }
        self.frames[folio.0 as usize].store(bytes_of(tenant, page), Relaxed);
        self.core.publish(&Silent, mapping, folio);
    }

    fn read(&self, tenant: usize, page: u32, task: &Task, mapped: bool) {
        let mapping = &self.files[tenant].1;
        match self.core.lookup(mapping, page) {
            Lookup::Miss => {
                self.bring(tenant, page, task, Arrival { in_fault: mapped, ..Arrival::default() })
            }
            Lookup::Pending(_) => std::thread::yield_now(),
            Lookup::Hit(hit) => {
                let bytes = self.frames[hit.folio.0 as usize].load(Relaxed);
                if !self.core.confirm(mapping, page, &hit) {
                    self.refused.fetch_add(1, Relaxed);
                    return;
                }
                assert_eq!(bytes, bytes_of(tenant, page), "a reader of page {page} got another page");
                self.accepted.fetch_add(1, Relaxed);
                if mapped {
                    self.core.touch(task, mapping, page, &hit)
                } else {
                    self.core.accessed(&Silent, || task.cpu, &hit)
                }
            }
        }
    }

    fn write(&self, tenant: usize, page: u32) {
        let mapping = &self.files[tenant].1;
        let Lookup::Hit(hit) = self.core.lookup(mapping, page) else { return };
        if self.core.begin_write(&Silent, mapping, page, &hit) != WriteAttempt::Begun {
            return;
        }
        let frame = &self.frames[hit.folio.0 as usize];
        assert_eq!(
            frame.swap(u64::MAX, Relaxed),
            bytes_of(tenant, page),
            "a writer of page {page} got another page"
        );
        frame.store(bytes_of(tenant, page), Relaxed);
        self.core.end_write(&Silent, mapping, hit.folio);
    }

    /// Holds a page for a moment: its frame is not given to another page meanwhile.
    fn hold(&self, tenant: usize, page: u32) {
        let mapping = &self.files[tenant].1;
        let Lookup::Hit(hit) = self.core.lookup(mapping, page) else { return };
        if self.core.try_get(mapping, page, &hit) {
            std::thread::yield_now();
            let version = self.core.folios().flags(hit.folio).load().version();
            let bytes = self.frames[hit.folio.0 as usize].load(Relaxed);
            assert!(bytes == bytes_of(tenant, page) || version != hit.flags.version() || bytes == u64::MAX);
            self.core.put(&Silent, hit.folio);
        }
    }

    /// The work of one thread.
    fn work(&self, thread: usize) {
        let tasks: Vec<Task> =
            self.files.iter().map(|(memcg, mapping)| self.new_task(*memcg, mapping, thread)).collect();
        let mut state = thread as u64 + 1;
        for _ in 0..ROUNDS {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let random = (state >> 33) as u32;
            let tenant = random as usize % TENANTS;
            let page = (random >> 4) % PAGES * ((random >> 13) % 3) / 2;
            let page = page + page % 3 * APART_PAGES;
            let task = &tasks[tenant];
            match random >> 20 & 63 {
                0 => {
                    let pages = if (random >> 26).is_multiple_of(16) { APART_PAGES } else { 9 };
                    let end = u64::from(page + pages);
                    self.core.truncate(&Silent, &self.files[tenant].1, page, end);
                }
                1 => self.core.invalidate(&Silent, &self.files[tenant].1, page, u64::from(page) + 9, thread),
                2..4 => self.flush(),
                4 => self.reclaim(task),
                5..8 => self.hold(tenant, page),
                8..16 => self.write(tenant, page),
                16..36 => self.read(tenant, page, task, true),
                _ => self.read(tenant, page, task, false),
            }
        }
    }

    fn new_task(&self, memcg: MemcgId, mapping: &Arc<Mapping>, cpu: usize) -> Task {
        let task = self.core.new_task(memcg, cpu);
        self.core.map(&task, mapping, u64::from(2 * APART_PAGES + PAGES));
        task
    }

    fn reclaim(&self, task: &Task) {
        let swappiness = lru::Swappiness::FILE_ONLY;
        let (target, kind, cpu) = (task.memcg, EffortKind::Proactive, task.cpu);
        let mut effort = Effort::new(&self.core, Orders::new(target, kind, 32, swappiness, cpu));
        while !matches!(effort.step(&self.core, &Silent), Step::Done(_)) {}
    }

    /// Switches the policy back and forth, 20 folios at a time, and now and then stops midway.
    fn switch(&self, stop: &AtomicBool) {
        for round in 0.. {
            let mut switch = self.core.switch_lru(Lru::ALL[round % Lru::ALL.len()]);
            while switch.step(&self.core, 20) == SwitchStep::More && round % 7 != 0 {
                std::thread::yield_now();
            }
            if stop.load(Relaxed) {
                let mut last = self.core.switch_lru(Lru::MultiGen);
                while last.step(&self.core, 20) == SwitchStep::More {}
                return;
            }
        }
    }

    fn reclaim_in_the_background(&self, stop: &AtomicBool) {
        let mut background = Background::new(&self.core, TENANTS);
        while !stop.load(Relaxed) {
            if background.step(&self.core, &Silent) != BackgroundStep::More {
                std::thread::yield_now();
            }
        }
    }
}

#[test]
fn threads_leave_nothing_behind() {
    leave_nothing_behind(Mechanisms::default(), false);
    leave_nothing_behind(Mechanisms::default().with_lru(Lru::MultiGen), false);
}

/// The same under the classic LRU, with one lock for all lists and late statistics, and while the
/// policy is switched back and forth all the time.
#[test]
fn threads_leave_nothing_behind_under_the_classic_lru() {
    leave_nothing_behind(Mechanisms::default().with_lru(Lru::Classic), false);
    let linux = Mechanisms::preset(Preset::Linux72).with_lru_lock(LruLock::Node);
    leave_nothing_behind(linux.with_lru(Lru::Classic), false);
    leave_nothing_behind(Mechanisms::default(), true);
    leave_nothing_behind(linux, true);
}

/// Prefetching is a bit of the same word as the policy. Turned on and off all the time, it does not
/// keep a switch of the policy from its end.
#[test]
fn a_switch_ends_while_prefetching_changes() {
    let core = Core::new(Options::new(10), Time::ZERO);
    let (begun, stop) = (std::sync::Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begun.wait();
            while !stop.load(Relaxed) {
                core.set_prefetch(false);
                core.set_prefetch(true);
            }
        });
        begun.wait();
        let mut ends = (0..300_000).map(|round| {
            let mut switch = core.switch_lru(Lru::ALL[round % 2]);
            std::iter::repeat_with(|| switch.step(&core, 1)).find(|&step| step != SwitchStep::More)
        });
        let all_end = ends.all(|end| end == Some(SwitchStep::Done));
        stop.store(true, Relaxed);
        assert!(all_end, "another switch has begun");
    });
}

fn leave_nothing_behind(mechanisms: Mechanisms, switching: bool) {
    let world = World::new(mechanisms);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| world.reclaim_in_the_background(&stop));
        if switching {
            scope.spawn(|| world.switch(&stop));
        }
        let workers = [0, 1, 2].map(|thread| {
            let world = &world;
            scope.spawn(move || world.work(thread))
        });
        let outcomes = workers.map(std::thread::ScopedJoinHandle::join);
        stop.store(true, Relaxed);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    let core = &world.core;
    core.validate().unwrap();
    let stat = |counter| core.memcgs().iter().map(|memcg| memcg.stat().get(counter)).sum::<u64>();
    assert!(
        world.accepted.load(Relaxed) > 1000 && stat(Counter::PgstealFile) > 1000,
        "there was not enough pressure"
    );
    let worked = match mechanisms.lru() {
        Lru::MultiGen => Counter::Aged,
        Lru::Classic => Counter::Pgdeactivate,
        _ => Counter::Pgprotected,
    };
    assert!(stat(worked) > 0 && core.written_pages() > 100);
    // Close everything.
    for (_, mapping) in &world.files {
        assert!(core.close_mapping(&Silent, mapping).is_none());
    }
    core.drain_all(&Silent);
    core.validate().unwrap();
    for counter in [
        Counter::File,
        Counter::FileMapped,
        Counter::FileDirty,
        Counter::FileWriteback,
        Counter::WorkingsetNodes,
    ] {
        assert_eq!(stat(counter), 0, "{}", counter.name());
    }
    assert_eq!((core.free_pages(), core.leaves_in_use()), (FRAMES, 0));
    for memcg in core.memcgs().iter() {
        let pages: u64 = memcg.lruvec().generations(Time::ZERO).iter().map(|row| row.file_pages).sum();
        assert_eq!((memcg.usage_pages(), pages), (0, 0), "{}", memcg.name());
    }
}
