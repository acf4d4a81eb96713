//! Charges end: random machines with very tight limits, by seed.
//!
//! Limits of a few pages, protections beyond all memory, pages that are held, locked in memory,
//! dirty or on their way for long, failing writes, little swap or none, and OOM kills. Several
//! tasks charge in turns of one step each, under every policy and preset. A charge may fail, but
//! only so many efforts may follow each other without a wait, and only so many waits without a
//! transfer under way.

use crate::random::Random;
use mglru_core::lru::Swappiness;
use mglru_core::lru::switch::{LruSwitch, SwitchStep};
use mglru_core::reclaim::{Background, BackgroundStep, Lowering, ReapStep, Reaping, RequestStep, Watermarks};
use mglru_core::*;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// In about two seconds.
const SEEDS: u64 = 30;
/// In about four seconds.
const CHURNING_SEEDS: u64 = 4;
/// Operations of each task.
const OPERATIONS: u64 = 100;
const TASKS: usize = 4;
/// The most efforts of one charge without a wait between them. Each OOM kill allows 16 more. The
/// most of 600 seeds were 140.
const EFFORTS_MAX: u64 = 300;
/// The most steps of one effort: priorities 12 to 0, three times, for up to six memcgs. The most of
/// 600 seeds were 1629.
const STEPS_MAX: u64 = 5000;
/// The most waits of one charge while no page is read or written. The most of 600 seeds were 125.
const IDLE_WAITS_MAX: u64 = 600;

struct TightHost {
    now: Cell<u64>,
    swaps: SwapOutcome,
    swap_writes: RefCell<Vec<SwapOut>>,
    kills: RefCell<Vec<MemcgId>>,
    efforts: Cell<u64>,
}

impl Host for TightHost {
    fn now(&self) -> Time {
        Time::from_nanos(self.now.get())
    }

    fn wake_flusher(&self, _: FlushReason) {}

    fn wake_background(&self) {}

    fn wake_waiters(&self, _: FolioId) {}

    fn frame_retired(&self, _: FolioId) {}

    fn swap_out(&self, write: SwapOut) -> SwapOutcome {
        if self.swaps == SwapOutcome::Started {
            self.swap_writes.borrow_mut().push(write);
        }
        self.swaps
    }

    fn oom_kill(&self, victim: MemcgId) -> bool {
        self.kills.borrow_mut().push(victim);
        true
    }

    fn event(&self, event: Event) {
        if let Event::Effort { .. } = event {
            self.efforts.set(self.efforts.get() + 1);
        }
    }
}

/// A read, or a write to a file or to swap, and when it ends.
struct Transfer {
    ends: u64,
    is_read: bool,
    mapping: Arc<Mapping>,
    folio: FolioId,
}

/// A charge under way, and its costs so far.
struct Miss {
    charging: Charging,
    tenant: usize,
    anon: bool,
    page: u32,
    dirty: bool,
    steps: u64,
    efforts: u64,
    idle_waits: u64,
}

#[derive(Default)]
struct Actor {
    until: u64,
    left: u64,
    miss: Option<Box<Miss>>,
    lowering: Option<Lowering>,
    held: Vec<FolioId>,
    mlocked: Vec<FolioId>,
}

struct Tenant {
    tasks: Vec<Task>,
    /// Its file and its anonymous memory.
    mappings: [Arc<Mapping>; 2],
}

struct World {
    seed: u64,
    core: Core,
    host: TightHost,
    random: Random,
    tenants: Vec<Tenant>,
    pages: u64,
    transfers: Vec<Transfer>,
    /// Duration of reads and writes, in nanoseconds, and how many of 100 fail.
    read_nanos: u64,
    write_nanos: u64,
    failures: u64,
    flush_period: u64,
    flush_at: u64,
    held_most: usize,
    background: Background,
    reaping: Option<Reaping>,
    /// The charges that succeeded and that failed.
    ended: [u64; 2],
    /// Whether tenants come and go, limits and protections move, files are truncated, and the
    /// policy is switched.
    churns: bool,
    switch: Option<LruSwitch>,
    /// Handles on removed tenants, which charges may still need.
    handles: Vec<MemcgId>,
}

impl World {
    fn new(seed: u64, churns: bool) -> World {
        let mut random = Random(seed);
        let r = &mut random;
        let frames = r.one_of(&[16, 40, 100, 300]);
        let mut options = Options::new(frames);
        let preset = r.one_of(&[Preset::Default, Preset::Default, Preset::Linux72, Preset::Linux612]);
        options.mechanisms = Mechanisms::preset(preset).with_lru(r.one_of(&Lru::ALL));
        let (min, step) = (r.one_of(&[0, 1, frames / 8]), r.one_of(&[0, 1, frames / 8]));
        options.watermarks = Watermarks { min, low: min + step, high: min + 2 * step };
        options.cpus = 1 + r.below(2u64) as usize;
        options.batch_folios = r.one_of(&[1, 31]);
        options.charge_batch_pages = r.one_of(&[1, 8]);
        options.pcp_batch_frames = r.one_of(&[1, 4]);
        options.charge_metadata = r.one_in(3);
        options.oom_policy = r.one_of(&[OomPolicy::Fail, OomPolicy::Victim]);
        let store = r.one_of(&[SwapStore::Device, SwapStore::Memory]);
        options.swap = SwapOptions { pages: r.one_of(&[0, 10, 70, 1000]), store };
        options.swappiness = Swappiness::new(r.one_of(&[0, 60, 200])).expect("at most 200");
        if churns {
            options.swap.pages = r.one_of(&[0, 1, 2, 64, 65, 70, 1000]);
            options.swappiness = Swappiness::new(r.one_of(&[0, 1, 60, 200, 201])).expect("at most 201");
        }
        let swaps = r.one_of(&match store {
            SwapStore::Device => [SwapOutcome::Started, SwapOutcome::Refused],
            SwapStore::Memory => [SwapOutcome::Done, SwapOutcome::Refused],
        });
        let cpus = options.cpus;
        let core = Core::new(options, Time::ZERO);
        let mut tenants: Vec<Tenant> = Vec::new();
        let number = 1 + r.below(if churns { 12 } else { 5u64 }) as usize;
        let limit = |r: &mut Random| match r.below(4u64) {
            0 => 1 + r.below(4),
            1 | 2 => 4 + r.below(60),
            _ => UNLIMITED,
        };
        let protection = |r: &mut Random| r.one_of(&[0, 0, 5, 20, 10 * u64::from(frames)]);
        for n in 0..number {
            let above = if churns { tenants.last() } else { tenants.first() };
            let parent = match above {
                Some(above) if r.one_in(2) || churns && r.one_in(2) => above.tasks[0].memcg,
                _ => MemcgId::ROOT,
            };
            let memcg = core.add_child(parent, &n.to_string(), limit(r), Time::ZERO).unwrap();
            if r.one_in(4) {
                memcg.set_high_pages(limit(r));
            }
            memcg.set_swap_max_pages(r.one_of(&[UNLIMITED, UNLIMITED, 1, 70]));
            let memcg = memcg.id();
            core.memcgs().set_min(memcg, protection(r));
            core.memcgs().set_low(memcg, protection(r));
            let mappings = [Kind::File, Kind::Anon].map(|kind| core.open_mapping(kind));
            let tasks = (0..cpus).map(|cpu| core.new_task(memcg, cpu)).collect::<Vec<_>>();
            let mapped = tasks.iter().flat_map(|task| mappings.iter().map(move |mapping| (task, mapping)));
            mapped.for_each(|(task, mapping)| core.map(task, mapping, 512));
            tenants.push(Tenant { tasks, mappings });
        }
        let host = TightHost {
            now: Cell::new(1),
            swaps,
            swap_writes: RefCell::default(),
            kills: RefCell::default(),
            efforts: Cell::new(0),
        };
        World {
            seed,
            pages: 2 + u64::from(frames) * r.one_of(&[1, 3]) / number as u64,
            transfers: Vec::new(),
            read_nanos: r.one_of(&[0, 100_000, 200_000_000]),
            write_nanos: r.one_of(&[0, 100_000, 200_000_000]),
            failures: r.one_of(&[0, 0, 5, 100]),
            flush_period: r.one_of(&[1_000_000, 5_000_000_000]),
            flush_at: 0,
            held_most: r.one_of(&[0, 3, 50]),
            background: Background::new(&core, 0),
            reaping: None,
            ended: [0; 2],
            churns,
            switch: None,
            handles: Vec::new(),
            core,
            host,
            random,
            tenants,
        }
    }

    fn now(&self) -> u64 {
        self.host.now.get()
    }

    fn begin_transfer(&mut self, is_read: bool, mapping: Arc<Mapping>, folio: FolioId) {
        let ends = self.now() + if is_read { self.read_nanos } else { self.write_nanos };
        self.transfers.push(Transfer { ends, is_read, mapping, folio });
    }

    /// The devices, the flusher and the reaper.
    fn serve(&mut self) {
        for write in self.host.swap_writes.take() {
            let mapping = self.core.mapping(write.page.0).expect("it is open");
            self.begin_transfer(false, mapping, write.folio);
        }
        let now = self.now();
        let (ended, rest) = std::mem::take(&mut self.transfers).into_iter().partition(|one| one.ends <= now);
        self.transfers = rest;
        let ended: Vec<Transfer> = ended;
        for Transfer { is_read, mapping, folio, .. } in ended {
            let succeeds = self.random.below(100) >= self.failures;
            match (is_read, succeeds) {
                (true, true) => _ = self.core.publish(&self.host, &mapping, folio),
                (true, false) => self.core.abandon(&self.host, &mapping, folio),
                (false, _) => self.core.end_writeback(&self.host, &mapping, folio, succeeds, 0),
            }
        }
        if self.flush_at <= now {
            self.flush_at = now + self.flush_period;
            for tenant in 0..self.tenants.len() {
                let mapping = self.tenants[tenant].mappings[0].clone();
                let mut from = 0;
                while let Some(run) = self.core.start_writeback(&mapping, from, 1 << 32, 16) {
                    from = run.first + run.folios.len() as u32;
                    run.folios
                        .into_iter()
                        .for_each(|folio| self.begin_transfer(false, mapping.clone(), folio));
                }
            }
        }
        let victim = || self.host.kills.borrow_mut().pop().map(|victim| Reaping::new(&self.core, victim));
        if let Some(mut reaping) = self.reaping.take().or_else(victim) {
            match reaping.step(&self.core, &self.host) {
                ReapStep::Done => {}
                _ => self.reaping = Some(reaping),
            }
        }
    }

    fn wait(&self, actor: &mut Actor, throttle: Throttle) {
        actor.until = self.now() + throttle.timeout().as_nanos() as u64;
    }

    fn step(&mut self, actor: &mut Actor) {
        if let Some(miss) = actor.miss.take() {
            return self.charge(actor, miss);
        }
        if let Some(mut lowering) = actor.lowering.take() {
            match lowering.step(&self.core, &self.host) {
                RequestStep::More => actor.lowering = Some(lowering),
                RequestStep::Wait(throttle) => {
                    self.wait(actor, throttle);
                    actor.lowering = Some(lowering);
                }
                RequestStep::Done(_) | RequestStep::TryAgain(_) => {}
            }
            return;
        }
        actor.left -= 1;
        if self.churns && self.random.one_in(8) {
            return self.churn();
        }
        let r = &mut self.random;
        let (tenant, page) = (r.below(self.tenants.len() as u64) as usize, r.below(self.pages) as u32);
        let drawn = r.below(100u64);
        let memcg = self.tenants[tenant].tasks[0].memcg;
        let anon = r.one_in(2);
        match drawn {
            0 => {
                let pages = r.one_of(&[UNLIMITED, 3, 30]);
                self.core.memcg(memcg).set_max_pages(pages);
                actor.lowering = Some(Lowering::new(memcg, false, 0));
            }
            1 => {
                for folio in actor.held.drain(..) {
                    self.core.put(&self.host, folio);
                }
            }
            2 => {
                for folio in actor.mlocked.drain(..) {
                    self.core.set_mlocked(folio, false);
                    self.core.rescue(folio);
                    self.core.put(&self.host, folio);
                }
            }
            3..13 => {
                let mapping = &self.tenants[tenant].mappings[usize::from(anon)];
                let Lookup::Hit(hit) = self.core.lookup(mapping, page) else { return };
                if actor.held.len() + actor.mlocked.len() < self.held_most
                    && self.core.try_get(mapping, page, &hit)
                {
                    let mlocks = drawn < 8;
                    if mlocks {
                        self.core.set_mlocked(hit.folio, true);
                    }
                    if mlocks { &mut actor.mlocked } else { &mut actor.held }.push(hit.folio);
                }
            }
            _ => self.access(actor, tenant, anon, page),
        }
    }

    fn churn(&mut self) {
        let (core, host, r) = (&self.core, &self.host, &mut self.random);
        let at = r.below(self.tenants.len() as u64) as usize;
        let tenant = &mut self.tenants[at];
        let memcg = tenant.tasks[0].memcg;
        let mapping = tenant.mappings[r.below(2u64) as usize].clone();
        let pages = r.one_of(&[0, 1, 5, 64, 1000, UNLIMITED]);
        let (from, end) = (r.below(self.pages) as u32, r.one_of(&[self.pages / 2, self.pages, 1 << 32]));
        match r.below(16u64) {
            0 | 1 => self.switch = Some(core.switch_lru(r.one_of(&Lru::ALL))),
            2 | 3 => {
                let most = r.one_of(&[1, 5, 4096]);
                if let Some(switch) = &mut self.switch
                    && switch.step(core, most) != SwitchStep::More
                {
                    self.switch = None;
                }
            }
            4 => {
                let parents = [MemcgId::ROOT, memcg, core.memcg(memcg).parent()];
                let parent = r.one_of(&parents);
                if core.remove_memcg(host, memcg).is_err() {
                    return;
                }
                self.handles.push(memcg);
                let name = r.next().to_string();
                let parent = if core.memcg(parent).is_online() { parent } else { MemcgId::ROOT };
                let limit = r.one_of(&[1, 2, 7, 30, UNLIMITED]);
                let memcg = core.add_child(parent, &name, limit, host.now()).unwrap().id();
                for task in &mut tenant.tasks {
                    core.end_task(task);
                    *task = core.new_task(memcg, task.cpu);
                    tenant.mappings.iter().for_each(|mapping| core.map(task, mapping, 512));
                }
            }
            5 => core.memcg(memcg).set_high_pages(pages),
            6 => core.memcg(memcg).set_swap_max_pages(pages),
            7 => core.memcgs().set_min(memcg, pages),
            8 => core.memcgs().set_low(memcg, pages),
            9 => _ = core.truncate(host, &mapping, from, end),
            10 => core.invalidate(host, &mapping, from, end, 0),
            11 if mapping.kind() == Kind::File => _ = core.drop_clean(host, &mapping, from, end),
            12 => {
                core.unmap(host, &tenant.tasks[0], &mapping);
                core.map(&tenant.tasks[0], &mapping, 512);
            }
            13 => core.drain_all(host),
            14 => _ = core.give_up_index(host),
            _ => core.return_frames(host),
        }
    }

    fn access(&mut self, actor: &mut Actor, tenant: usize, anon: bool, page: u32) {
        let dirty = self.random.one_in(2);
        let (core, host) = (&self.core, &self.host);
        let Tenant { tasks, mappings } = &self.tenants[tenant];
        let mapping = &mappings[usize::from(anon)];
        let task = &tasks[self.random.below(tasks.len() as u64) as usize];
        match core.lookup(mapping, page) {
            Lookup::Pending(_) => {}
            Lookup::Miss => {
                let charging = Charging::new(task.memcg, task.cpu).for_page(core, mapping, page);
                let (steps, efforts, idle_waits) = (0, 0, 0);
                let miss = Miss { charging, tenant, anon, page, dirty, steps, efforts, idle_waits };
                actor.miss = Some(Box::new(miss));
            }
            Lookup::Hit(hit) => {
                core.touch(task, mapping, page, &hit);
                if dirty && core.try_lock(host, mapping, page, &hit) == LockAttempt::Locked {
                    core.set_dirty(host, mapping, hit.folio);
                    core.unlock(host, hit.folio);
                    core.put(host, hit.folio);
                }
            }
        }
    }

    fn charge(&mut self, actor: &mut Actor, mut miss: Box<Miss>) {
        let (core, host) = (&self.core, &self.host);
        let Tenant { tasks, mappings } = &self.tenants[miss.tenant];
        let mapping = &mappings[usize::from(miss.anon)];
        let arrival = Arrival { in_fault: miss.anon, ..Arrival::default() };
        let insert = |new| core.insert(host, &tasks[0], mapping, miss.page, new, arrival);
        let efforts = host.efforts.get();
        let step = miss.charging.step(core, host).map(insert);
        miss.steps += 1;
        if host.efforts.get() != efforts {
            (miss.steps, miss.efforts) = (0, miss.efforts + 1);
        }
        // Twice as many memcgs, and all policies at once while one is switched.
        let steps_max = STEPS_MAX * if self.churns { 6 } else { 1 };
        let costs = (miss.efforts, miss.steps, miss.idle_waits);
        assert!(
            costs.0 <= EFFORTS_MAX && costs.1 <= steps_max && costs.2 <= IDLE_WAITS_MAX,
            "seed {}: efforts, steps and waits {costs:?}: {:?}",
            self.seed,
            miss.charging
        );
        match step {
            ChargeStep::More => actor.miss = Some(miss),
            ChargeStep::Wait(throttle) => {
                miss.efforts = 0;
                let is_idle = self.transfers.is_empty() && !matches!(throttle, Throttle::OverHigh(_));
                miss.idle_waits += u64::from(is_idle);
                self.wait(actor, throttle);
                actor.miss = Some(miss);
            }
            ChargeStep::OutOfMemory(_) => {
                self.ended[1] += 1;
                if self.random.one_in(10) {
                    core.oom_revive(tasks[0].memcg);
                }
            }
            ChargeStep::Charged(Err(_)) => {}
            ChargeStep::Charged(Ok(folio)) => {
                self.ended[0] += 1;
                if miss.anon && core.swap_slot(folio).is_none() {
                    core.end_filling(mapping, folio);
                    if miss.dirty {
                        core.set_dirty(host, mapping, folio);
                    }
                    core.unlock(host, folio);
                } else {
                    let mapping = mapping.clone();
                    self.begin_transfer(true, mapping, folio);
                }
            }
        }
    }

    fn run(&mut self) {
        let mut actors: Vec<Actor> =
            (0..TASKS).map(|_| Actor { left: OPERATIONS, ..Actor::default() }).collect();
        let is_busy = |actor: &Actor| actor.left > 0 || actor.miss.is_some() || actor.lowering.is_some();
        while actors.iter().any(is_busy) {
            self.serve();
            if self.background.step(&self.core, &self.host) == BackgroundStep::More {
                self.host.now.set(self.now() + 1000);
            }
            let now = self.now();
            let ready: Vec<usize> =
                (0..TASKS).filter(|&at| is_busy(&actors[at]) && actors[at].until <= now).collect();
            if ready.is_empty() {
                self.host.now.set(now + 1_000_000);
                continue;
            }
            let at = self.random.one_of(&ready);
            self.step(&mut actors[at]);
            self.host.now.set(self.now() + 1000);
            if self.churns {
                self.check(&actors);
            }
        }
        for actor in &mut actors {
            for folio in actor.mlocked.drain(..).chain(actor.held.drain(..)) {
                self.core.put(&self.host, folio);
            }
        }
    }
}

impl World {
    /// Ends all transfers and removes all pages and tenants.
    fn wind_up(&mut self) {
        (self.failures, self.flush_at) = (0, u64::MAX);
        while !self.transfers.is_empty() || self.reaping.is_some() || !self.host.kills.borrow().is_empty() {
            self.host.now.set(self.now() + 1_000_000);
            self.serve();
        }
        let (core, host, seed) = (&self.core, &self.host, self.seed);
        core.drain_all(host);
        for mapping in self.tenants.iter().flat_map(|tenant| &tenant.mappings) {
            assert_eq!(core.close_mapping(host, mapping), None, "seed {seed}");
        }
        self.handles.drain(..).for_each(|memcg| core.drop_handle(memcg));
        let mut left: Vec<MemcgId> = self.tenants.iter().map(|tenant| tenant.tasks[0].memcg).collect();
        while !left.is_empty() {
            let before = left.len();
            left.retain(|&memcg| {
                core.remove_memcg(host, memcg).is_err() || {
                    core.drop_handle(memcg);
                    false
                }
            });
            assert!(left.len() < before, "seed {seed}: {left:?}");
        }
        core.drain_all(host);
        core.settle_index();
        core.validate().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(core.memcgs().iter().count(), 1, "seed {seed}");
        assert_eq!((core.used_swap_pages(), core.leaves_in_use()), (0, 0), "seed {seed}");
    }

    /// Checks everything now and then.
    fn check(&mut self, actors: &[Actor]) {
        if actors.iter().all(|actor| actor.miss.is_none() && actor.lowering.is_none()) {
            self.handles.drain(..).for_each(|memcg| self.core.drop_handle(memcg));
        }
        let charging = actors.iter().filter_map(|actor| actor.miss.as_ref()?.charging.owes_frame());
        let charged: Vec<MemcgId> = charging.collect();
        if self.random.one_in(64) {
            let valid = self.core.validate_while_charging(&charged);
            valid.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        }
    }
}

/// Tenants come and go up to twelve levels deep, limits and protections move, files are truncated,
/// and the policy is switched. In the end nothing is left, and nobody pays for it.
#[test]
fn charges_end_while_everything_changes() {
    for seed in 0..CHURNING_SEEDS {
        let mut world = World::new(seed, true);
        world.run();
        world.wind_up();
    }
}

#[test]
fn charges_end_under_very_tight_limits() {
    let mut ended = [0; 2];
    for seed in 0..SEEDS {
        let mut world = World::new(seed, false);
        world.run();
        world.core.validate().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        ended = [0, 1].map(|at| ended[at] + world.ended[at]);
    }
    assert!(ended.iter().all(|&charges| charges > 1000), "charges that succeed and that fail: {ended:?}");
}
