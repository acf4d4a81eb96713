//! Several threads on files with pages in many parts of 128 MiB, while the index counts as memory:
//! charges, insertions, truncation and writeback in different parts overlap, and meanwhile files
//! are closed, tenants are removed, and limits change. In the end nothing is left, and nobody pays
//! for it.

use mglru_core::reclaim::{Effort, EffortKind, Orders, Step, Watermarks};
use mglru_core::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const FRAMES: u32 = 700;
const FILES: usize = 3;
const TENANTS: usize = 3;
const PART_PAGES: u32 = 32_768;
const ROUNDS: u32 = 4_000;

/// Each round has other CPUs, parts, distances and limits.
const SEEDS: u64 = 12;

/// A host that lets other threads run at its calls, some of which come with a lock held.
struct Jolting;

fn jolt(one_in: u32) {
    thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }
    CALLS.set(CALLS.get() + 1);
    if CALLS.get().is_multiple_of(one_in) {
        std::thread::yield_now();
    }
}

impl Host for Jolting {
    fn now(&self) -> Time {
        jolt(3);
        Time::ZERO
    }

    fn wake_flusher(&self, _: FlushReason) {}

    fn wake_background(&self) {}

    fn wake_waiters(&self, _: FolioId) {
        jolt(2);
    }

    fn frame_retired(&self, _: FolioId) {
        jolt(2);
    }

    fn zeros_unused(&self, _: std::ops::Range<*const u8>) -> bool {
        true
    }

    fn event(&self, _: Event) {
        jolt(5);
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as u32 % end
    }
}

#[derive(Clone)]
struct File {
    mapping: Arc<Mapping>,
    number: u64,
}

impl File {
    /// The value that a page is filled with.
    fn bytes_of(&self, page: u32) -> u64 {
        self.number << 32 | u64::from(page)
    }
}

struct World {
    core: Core,
    /// Files that come and go.
    files: Vec<Mutex<File>>,
    /// Tenants that come and go.
    tenants: Vec<Mutex<MemcgId>>,
    /// Content of each frame.
    frames: Vec<AtomicU64>,
    /// The next number of a file or tenant.
    number: AtomicU64,
    inserted: AtomicU64,
    closed: AtomicU64,
    /// Parts of each file with pages.
    parts: u32,
    limit_pages: u32,
}

impl World {
    fn new(mechanisms: Mechanisms, seed: u64) -> World {
        let mut options = Options::new(FRAMES);
        options.mechanisms = mechanisms;
        options.watermarks = Watermarks { min: 10, low: 30, high: 50 };
        options.cpus = [2, 4, 8, 64][seed as usize % 4];
        options.pcp_batch_frames = 4;
        options.charge_metadata = true;
        let core = Core::new(options, Time::ZERO);
        let tenant = |number| {
            let added = core.add_memcg(&format!("tenant {number}"), 200, Time::ZERO);
            Mutex::new(added.unwrap().id())
        };
        let file = |number| Mutex::new(File { mapping: core.open_mapping(Kind::File), number });
        let (tenants, files) = ((0..TENANTS).map(tenant).collect(), (0..FILES as u64).map(file).collect());
        World {
            files,
            tenants,
            frames: (0..FRAMES).map(|_| AtomicU64::new(u64::MAX)).collect(),
            number: AtomicU64::new((FILES + TENANTS) as u64),
            inserted: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            // The table of directories grows from 33 on.
            parts: [3, 9, 40, 70][(seed / 4) as usize % 4],
            limit_pages: if seed.is_multiple_of(2) { 60 } else { 250 },
            core,
        }
    }

    /// Writes dirty pages from a position on; an eighth of the writes fail.
    fn flush(&self, file: &File, from: u32) {
        let mut from = from;
        while let Some(run) = self.core.start_writeback(&file.mapping, from, 1 << 32, 16) {
            from = run.first + run.folios.len() as u32;
            for folio in run.folios {
                self.core.end_writeback(&Jolting, &file.mapping, folio, folio.0 % 8 != 0, 0);
            }
        }
    }

    /// Charges a page and brings it in, unless another thread does, or gives up somewhere.
    fn bring(&self, file: &File, page: u32, task: &Task, random: &mut Random) {
        let mut charging = Charging::new(task.memcg, task.cpu).for_page(&self.core, &file.mapping, page);
        let gives_up_after = if random.below(16) == 0 { random.below(4) } else { u32::MAX };
        let mut steps = 0;
        let new = loop {
            if steps == gives_up_after {
                return charging.cancel(&self.core, &Jolting);
            }
            steps += 1;
            match charging.step(&self.core, &Jolting) {
                ChargeStep::Charged(new) => break new,
                ChargeStep::More => {}
                ChargeStep::Wait(_) => self.flush(file, 0),
                ChargeStep::OutOfMemory(_) => return,
            }
        };
        if random.below(32) == 0 {
            return;
        }
        match self.core.insert(&Jolting, task, &file.mapping, page, new, Arrival::default()) {
            Ok(folio) if random.below(64) == 0 => self.core.abandon(&Jolting, &file.mapping, folio),
            Ok(folio) => {
                self.frames[folio.0 as usize].store(file.bytes_of(page), Relaxed);
                self.core.publish(&Jolting, &file.mapping, folio);
                self.inserted.fetch_add(1, Relaxed);
            }
            Err(_) => {}
        }
    }

    fn access(&self, file: &File, page: u32, task: &Task, random: &mut Random) {
        let mapping = &file.mapping;
        match self.core.lookup(mapping, page) {
            Lookup::Miss => self.bring(file, page, task, random),
            Lookup::Pending(_) => std::thread::yield_now(),
            Lookup::Hit(hit) => {
                let bytes = self.frames[hit.folio.0 as usize].load(Relaxed);
                if !self.core.confirm(mapping, page, &hit) {
                    return;
                }
                assert_eq!(bytes, file.bytes_of(page), "a reader of page {page} got another page");
                match random.below(4) {
                    0 => self.core.touch(task, mapping, page, &hit),
                    1 if self.core.try_lock(&Jolting, mapping, page, &hit) == LockAttempt::Locked => {
                        self.core.set_dirty(&Jolting, mapping, hit.folio);
                        self.core.unlock(&Jolting, hit.folio);
                        self.core.put(&Jolting, hit.folio);
                    }
                    _ => self.core.accessed(&Jolting, || task.cpu, &hit),
                }
            }
        }
    }

    /// Closes a file, which other threads may still use, and opens the next one.
    fn reopen(&self, place: &Mutex<File>) {
        let number = self.number.fetch_add(1, Relaxed);
        let new = File { mapping: self.core.open_mapping(Kind::File), number };
        let old = std::mem::replace(&mut *place.lock().unwrap(), new);
        self.close(&old);
        self.closed.fetch_add(1, Relaxed);
    }

    fn close(&self, file: &File) {
        while self.core.close_mapping(&Jolting, &file.mapping).is_some() {
            std::thread::yield_now();
        }
    }

    /// Removes a tenant, to which other threads may still charge, and adds the next one.
    fn replace_tenant(&self, place: &Mutex<MemcgId>) {
        let name = format!("tenant {}", self.number.fetch_add(1, Relaxed));
        let new = self.core.add_memcg(&name, self.limit_pages.into(), Time::ZERO).unwrap().id();
        let old = std::mem::replace(&mut *place.lock().unwrap(), new);
        self.core.remove_memcg(&Jolting, old).unwrap();
        self.core.drop_handle(old);
    }

    fn reclaim(&self, task: &Task) {
        let (target, cpu) = (task.memcg, task.cpu);
        let orders = Orders::new(target, EffortKind::Proactive, 32, lru::Swappiness::FILE_ONLY, cpu);
        let mut effort = Effort::new(&self.core, orders);
        while !matches!(effort.step(&self.core, &Jolting), Step::Done(_)) {}
    }

    /// The work of one thread.
    fn work(&self, thread: usize, seed: u64) {
        let core = &self.core;
        let mut random = Random(seed << 8 | thread as u64);
        for _ in 0..ROUNDS {
            let place = &self.files[random.below(FILES as u32) as usize];
            let file = place.lock().unwrap().clone();
            let tenant = &self.tenants[random.below(TENANTS as u32) as usize];
            let memcg = {
                let held = tenant.lock().unwrap();
                core.memcgs().add_handle(*held);
                *held
            };
            let task = core.new_task(memcg, thread % core.options().cpus);
            let apart = if random.below(2) == 0 { 3 } else { 192 };
            let page = random.below(self.parts) * PART_PAGES + random.below(40) * apart;
            let end = u64::from(page) + [9, u64::from(2 * PART_PAGES), 1 << 31][random.below(3) as usize];
            match random.below(1024) {
                0..2 => self.reopen(place),
                2..6 => self.replace_tenant(tenant),
                6..16 => core.memcg(memcg).set_max_pages((self.limit_pages / 2 + random.below(100)).into()),
                16..24 => _ = core.truncate(&Jolting, &file.mapping, page, end),
                24..32 => _ = core.drop_clean(&Jolting, &file.mapping, page, end),
                32..40 => core.invalidate(&Jolting, &file.mapping, page, end, task.cpu),
                40..72 => self.flush(&file, if random.below(2) == 0 { 0 } else { page }),
                72..80 => self.reclaim(&task),
                80..88 => {
                    core.map(&task, &file.mapping, (self.parts * PART_PAGES).into());
                    self.access(&file, page, &task, &mut random);
                    core.unmap(&Jolting, &task, &file.mapping);
                }
                88..92 => _ = core.give_up_index(&Jolting),
                92..96 => core.return_frames(&Jolting),
                96..104 => _ = core.pages_in(&file.mapping, page.into(), end),
                104..112 => _ = core.next_in_memory(&file.mapping, page.into(), end),
                _ => self.access(&file, page, &task, &mut random),
            }
            core.end_task(&task);
            core.drop_handle(memcg);
        }
    }
}

#[test]
fn threads_in_many_parts_leave_nothing_behind() {
    for seed in 0..SEEDS {
        let mechanisms = match seed / 2 % 3 {
            0 => Mechanisms::default(),
            1 => Mechanisms::default().with_lru(Lru::MultiGen),
            _ => Mechanisms::default().with_lru(Lru::Classic),
        };
        leave_nothing_behind(mechanisms, seed);
    }
}

fn leave_nothing_behind(mechanisms: Mechanisms, seed: u64) {
    let world = World::new(mechanisms, seed);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let world = &world;
            scope.spawn(move || world.work(thread, seed));
        }
    });
    let core = &world.core;
    core.validate().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    let [inserted, closed] = [&world.inserted, &world.closed].map(|count| count.load(Relaxed));
    assert!(inserted > 1000 && closed > 5, "seed {seed}: {inserted} pages, {closed} files");
    world.files.iter().for_each(|file| world.close(&file.lock().unwrap()));
    core.drain_all(&Jolting);
    core.settle_index();
    core.validate().unwrap_or_else(|what| panic!("seed {seed}, at the end: {what}"));
    assert_eq!(core.leaves_in_use(), 0);
    for memcg in core.memcgs().iter() {
        let index = memcg.stat().get(Counter::SlabReclaimable);
        // The rest are Bloom filters.
        let filter_pages = memcg.index_bytes() / PAGE_BYTES;
        assert_eq!((memcg.usage_pages(), index), (filter_pages, 0), "seed {seed}: '{}'", memcg.name());
        let has_filters = mechanisms.lru() == Lru::MultiGen;
        assert!(has_filters || memcg.index_bytes() == 0, "seed {seed}: '{}'", memcg.name());
    }
}
