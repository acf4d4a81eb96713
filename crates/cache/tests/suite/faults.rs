//! Fault swarm: in any combination that a seed chooses, operations of the device fail, stall, are
//! short and come out of order, while threads read, write, map, truncate, punch holes, swap, reopen
//! files and change limits. No byte that was written is lost or wrong, nothing is stuck, memory
//! stays within the budget, and once the device is well again, so is the cache.
//!
//! Most operations may fail; what they leave is known exactly. A failed write of one page, a failed
//! truncation, a failed hole and a failed store change nothing.
//!
//! `MGLRU_SWARM=N` tries so many seeds, `MGLRU_SWARM_SEED=S` begins with `S`. The seed decides what
//! happens on the device; the system decides how threads interleave.

use crate::common::{Disk, PAGE, Random, memory, mix};
use crate::reliability::{Actor, World, content, look_at_memory, version};
use mglru_cache::backend::{Fault, FaultEffect, FaultOperation, FaultTrigger, MemoryFiles};
use mglru_cache::{
    Advice, AnonRegion, CachedFile, Error, Limits, Map, OomPolicy, OpenMode, PageCache, Swap, Tenant,
};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

const BUDGET_BYTES: u64 = 3 << 20;
/// Operations of each thread.
const STEPS: u64 = 250;
/// Pages of the file and of the region that a thread has for itself.
const OWN_PAGES: u64 = 300;
/// Seeds tried without `MGLRU_SWARM`.
const SEEDS: u64 = 60;
/// The longest time for one seed. Most take some milliseconds, on a busy machine a second.
const PATIENCE: Duration = Duration::from_secs(300);

/// A thread with files and memory.
struct Worker<'a> {
    shared: Actor<'a>,
    cache: &'a PageCache,
    random: Random,
    number: u64,
    /// A file of its own, which is truncated: the version of each page, to the file's end.
    own: Option<CachedFile>,
    own_versions: Vec<u64>,
    map: Option<Map>,
    /// A region of its own: the version of each page, 0 for zeros.
    region: Option<AnonRegion>,
    region_versions: Vec<u64>,
    next_version: u64,
}

/// The result, if there is one. Errors are those of a device, or lack of memory: pages that are
/// being read cannot be reclaimed, so a device that stalls can have a tenant killed.
fn allowed<T>(result: Result<T, Error>) -> Option<T> {
    let is_known = |error: &Error| {
        matches!(
            error,
            Error::Io { .. }
                | Error::WriteBack { .. }
                | Error::OutOfMemory(_)
                | Error::Killed(_)
                | Error::TooManyFiles { .. }
                | Error::TooManyTenants { .. }
        )
    };
    result.inspect_err(|error| assert!(is_known(error), "{error:?}")).ok()
}

impl Worker<'_> {
    fn own_name(&self) -> String {
        format!("own{}", self.number)
    }

    fn tenant(&mut self) -> Tenant {
        self.cache.tenant(["", "t", "kept"][self.random.below(3) as usize]).unwrap()
    }

    fn version(&mut self) -> u64 {
        self.next_version += 1;
        self.next_version
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..40 => self.share(),
            40..55 => self.write_own(),
            55..65 => self.read_own(),
            65..67 => self.truncate_own(),
            67 => self.punch_own(),
            68..78 => self.store(),
            78..86 => self.load(),
            86..88 => self.discard(),
            88..91 => self.reopen(),
            91..93 => self.advise(),
            93..96 => _ = self.own.as_ref().map(|own| allowed(own.sync_data())),
            96..98 => self.change_limits(),
            _ => self.make_tenant(),
        }
    }

    /// Uses the files that all threads share.
    fn share(&mut self) {
        if self.shared.handles.is_empty() {
            return;
        }
        let file = self.random.below(self.shared.handles.len() as u64) as usize;
        match self.random.below(10) {
            0 => self.shared.sync(file),
            1..6 => self.shared.write(file),
            _ => self.shared.read(file),
        }
    }

    fn write_own(&mut self) {
        let (index, version) = (self.random.below(OWN_PAGES), self.version());
        let Some(own) = &self.own else { return };
        let bytes = content(100 + self.number, index, version);
        let (at, known) = (index * PAGE as u64, self.own_versions.len() as u64);
        let map = self.map.as_ref().filter(|_| index < known && self.random.one_in(3));
        let written = match map {
            Some(map) => map.store(at, &bytes),
            None => own.write_at(&bytes, at).map(|_| ()),
        };
        if allowed(written).is_some() {
            self.own_versions.resize((index + 1).max(known) as usize, 0);
            self.own_versions[index as usize] = version;
        }
        self.check_length();
    }

    fn check_length(&self) {
        let Some(own) = &self.own else { return };
        assert_eq!(own.len(), self.own_versions.len() as u64 * PAGE as u64, "{}", self.own_name());
    }

    fn read_own(&mut self) {
        let index = self.random.below(OWN_PAGES);
        let Some(own) = &self.own else { return };
        let at = index * PAGE as u64;
        let mut bytes = vec![0; PAGE];
        let expected = self.own_versions.get(index as usize);
        let read = match (&self.map, expected) {
            (Some(map), Some(_)) if self.random.one_in(2) => map.load(at, &mut bytes).map(|()| PAGE),
            _ => own.read_at(&mut bytes, at),
        };
        if let Some(read) = allowed(read) {
            assert_eq!(read, expected.map_or(0, |_| PAGE), "page {index} of {}", self.own_name());
            if let Some(expected) = expected {
                assert_eq!(version(100 + self.number, index, &bytes), *expected, "page {index}");
            }
        }
    }

    fn truncate_own(&mut self) {
        let pages = self.random.below(OWN_PAGES);
        let Some(own) = &self.own else { return };
        if allowed(own.truncate(pages * PAGE as u64)).is_some() {
            self.own_versions.resize(pages as usize, 0);
        }
        self.check_length();
    }

    fn punch_own(&mut self) {
        let first = self.random.below(OWN_PAGES);
        let end = first + 1 + self.random.below(20);
        let Some(own) = &self.own else { return };
        if allowed(own.punch_hole(first * PAGE as u64..end * PAGE as u64)).is_some() {
            let end = self.own_versions.len().min(end as usize);
            self.own_versions.get_mut(first as usize..end).unwrap_or_default().fill(0);
        }
        self.check_length();
    }

    fn store(&mut self) {
        let (index, version) = (self.random.below(OWN_PAGES), self.version());
        if self.region.is_none() {
            let tenant = self.tenant();
            self.region = self.alive(tenant.anonymous(OWN_PAGES * PAGE as u64));
            self.region_versions = vec![0; OWN_PAGES as usize];
        }
        let Some(region) = &self.region else { return };
        let stored = region.store(index * PAGE as u64, &content(200 + self.number, index, version));
        if self.alive(stored).is_some() {
            self.region_versions[index as usize] = version;
        }
    }

    fn load(&mut self) {
        let index = self.random.below(OWN_PAGES);
        let Some(region) = &self.region else { return };
        let mut bytes = vec![0; PAGE];
        let loaded = region.load(index * PAGE as u64, &mut bytes);
        if self.alive(loaded).is_some() {
            let expected = self.region_versions[index as usize];
            assert_eq!(version(200 + self.number, index, &bytes), expected, "page {index} of memory");
        }
    }

    fn discard(&mut self) {
        let first = self.random.below(OWN_PAGES);
        let end = first + self.random.below(OWN_PAGES - first + 1);
        let Some(region) = &self.region else { return };
        let discarded = region.discard(first * PAGE as u64..end * PAGE as u64);
        if self.alive(discarded).is_some() {
            self.region_versions[first as usize..end as usize].fill(0);
        }
    }

    /// The result of an operation on the region. If its tenant was killed, the region is lost.
    fn alive<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        if let Err(Error::Killed(_)) = result {
            self.region = None;
            self.revive_tenants();
            return None;
        }
        allowed(result)
    }

    fn revive_tenants(&self) {
        ["", "t", "kept"].iter().for_each(|name| _ = self.cache.tenant(name).unwrap().revive());
    }

    fn reopen(&mut self) {
        self.map = None;
        if self.random.one_in(2) {
            self.own = None;
        }
        let tenant = self.tenant();
        if let Some(own) = self.open(&tenant) {
            self.own = Some(own);
            self.check_length();
        }
        if self.random.one_in(2) {
            self.map = self.own.as_ref().and_then(|own| allowed(own.map()));
        }
    }

    fn open(&self, tenant: &Tenant) -> Option<CachedFile> {
        allowed(tenant.open(self.own_name(), OpenMode::ReadWrite))
    }

    fn advise(&mut self) {
        let advice = [Advice::Normal, Advice::WillNeed, Advice::DontNeed][self.random.below(3) as usize];
        let first = self.random.below(OWN_PAGES) * PAGE as u64;
        if let Some(own) = &self.own {
            allowed(own.advise(advice, first..first + (1 << 18)));
        }
    }

    fn change_limits(&mut self) {
        let bytes = (256 << 10) + self.random.below(1 << 20);
        let tenant = self.cache.tenant("t").unwrap();
        match self.random.below(3) {
            0 => tenant.set_max(Some(bytes)),
            1 => tenant.set_min(bytes / 4),
            _ => tenant.set_max(None),
        }
        .unwrap();
    }

    fn make_tenant(&mut self) {
        let path = format!("t/{}", self.number);
        match self.cache.remove_tenant(&path) {
            Ok(()) | Err(Error::NoSuchTenant(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
        if let Some(tenant) = allowed(self.cache.add_tenant(&path, &Limits::max(512 << 10)))
            && let Some(own) = self.open(&tenant)
        {
            self.own = Some(own);
        }
    }

    /// After the device is well: everything works, and everything is there.
    fn verify(mut self, disk: &Disk) {
        self.map = None;
        self.revive_tenants();
        let own = self.cache.open(self.own_name(), OpenMode::ReadWrite).unwrap();
        self.own = Some(own);
        self.check_length();
        self.cache.tenant("t").unwrap().set_max(None).unwrap();
        let own = self.own.take().unwrap();
        // The first sync reports the errors that are still unreported.
        let _ = own.sync_all();
        own.sync_all().unwrap();
        let mut bytes = vec![0; PAGE];
        for (index, expected) in (0..).zip(&self.own_versions) {
            assert_eq!(own.read_at(&mut bytes, index * PAGE as u64).unwrap(), PAGE);
            assert_eq!(version(100 + self.number, index, &bytes), *expected, "page {index}");
        }
        let written = disk.contents(&self.own_name());
        let versions =
            written.chunks(PAGE).zip(0..).map(|(page, index)| version(100 + self.number, index, page));
        assert!(versions.eq(self.own_versions.iter().copied()), "{} on disk", self.own_name());
        let Some(region) = &self.region else { return };
        for (index, expected) in (0..).zip(&self.region_versions) {
            match region.load(index * PAGE as u64, &mut bytes) {
                Ok(()) => assert_eq!(version(200 + self.number, index, &bytes), *expected, "page {index}"),
                Err(Error::Killed(_)) => return,
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}

/// Troubles of the device, by seed.
struct Weather<'a> {
    files: &'a MemoryFiles,
    random: Random,
}

impl Weather<'_> {
    /// Replaces all faults by up to four others.
    fn change(&mut self) {
        self.files.clear_faults();
        let full = self.random.one_in(6);
        self.files.set_capacity_pages(if full { 200 + self.random.below(1000) } else { u64::MAX });
        for _ in 0..self.random.below(5) {
            let fault = self.fault();
            self.files.inject(fault);
        }
    }

    fn fault(&mut self) -> Fault {
        use FaultOperation::{Length, Open, PunchHole, Read, SetLength, Sync, Write};
        let random = &mut self.random;
        let paths = [None, None, Some("0"), Some("own0"), Some("own1"), Some("swap")];
        let path = paths[random.below(paths.len() as u64) as usize];
        let operation = [Read, Write, Sync, SetLength, Open, Length, PunchHole][random.below(7) as usize];
        let first = random.below(OWN_PAGES * PAGE as u64);
        let (trigger, lasts) = match random.below(8) {
            0 => (FaultTrigger::Always, true),
            1 => (FaultTrigger::Within(first..first + 20 * PAGE as u64), true),
            2 | 3 => (FaultTrigger::Nth(1 + random.below(50)), false),
            _ => (FaultTrigger::OneIn(2 + random.below(100)), false),
        };
        let effect = if random.one_in(4) {
            FaultEffect::Short(1 + random.below(3 * PAGE as u64) as usize)
        } else {
            // The first two are repeated at once, so they may not last.
            let errors = [libc::EINTR, libc::EAGAIN, libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::ENOMEM];
            let first = if lasts { 2 } else { 0 };
            FaultEffect::Error(errors[first + random.below((errors.len() - first) as u64) as usize])
        };
        let fault = Fault::new(operation, trigger, effect);
        match path {
            Some(path) => fault.on(path),
            None => fault,
        }
    }

    /// Stalls the device until a transfer waits, or for a moment.
    fn stall(&mut self, cache: &PageCache, working: &AtomicUsize) {
        self.files.hold();
        let _held = super::reliability::Held(self.files);
        for _ in 0..100 + self.random.below(400) {
            if working.load(SeqCst) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        look_at_memory(cache);
    }
}

/// Counts a thread as done when dropped, also if it panics, so that the weather ends.
struct Working<'a>(&'a AtomicUsize);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn run(seed: u64) {
    let mut random = Random(mix(seed));
    let (disk, files) = memory(seed);
    let threads = 1 + random.below(3);
    (0..3).for_each(|number: u64| disk.set(&number.to_string(), &[]));
    (0..threads).for_each(|number| disk.set(&format!("own{number}"), &[]));
    let mut builder = disk.builder(BUDGET_BYTES).tenant("t", 1 << 20);
    builder = builder.tenant_with("kept", Limits::default().with_min(128 << 10));
    match random.below(4) {
        0 => {}
        1 => builder = builder.swap(Swap::compressed(512 << 10)),
        _ => builder = builder.swap(Swap::file("swap", 4 << 20)),
    }
    if random.one_in(4) {
        builder = builder.oom_policy(OomPolicy::Victim);
    }
    let cache = builder.build().unwrap();
    let world = World::new();
    let working = AtomicUsize::new(threads as usize);
    let finished = AtomicU64::new(0);
    let workers: Vec<Worker<'_>> = std::thread::scope(|scope| {
        let (world, cache, files, working) = (&world, &cache, &*files, &working);
        // Before the first fault: these opens must succeed.
        let worker = |number| {
            let seed = mix(seed << 8 | number);
            let own = cache.open(format!("own{number}"), OpenMode::ReadWrite);
            Worker {
                shared: Actor::new(world, cache, files, number, seed).failing(allowed::<()>),
                cache,
                random: Random(seed),
                number,
                own: Some(own.unwrap()),
                own_versions: Vec::new(),
                map: None,
                region: None,
                region_versions: Vec::new(),
                next_version: 0,
            }
        };
        let ready: Vec<Worker> = (0..threads).map(worker).collect();
        let finished = &finished;
        let mut workers = Vec::new();
        for mut worker in ready {
            workers.push(scope.spawn(move || {
                let _working = Working(working);
                for _ in 0..STEPS {
                    worker.step();
                    finished.fetch_add(1, SeqCst);
                }
                worker
            }));
        }
        let mut weather = Weather { files, random: Random(mix(seed ^ 0x5eed)) };
        while working.load(SeqCst) > 0 {
            let until = finished.load(SeqCst) + 1 + weather.random.below(60);
            while working.load(SeqCst) > 0 && finished.load(SeqCst) < until {
                std::thread::yield_now();
            }
            weather.change();
            if weather.random.one_in(3) {
                weather.stall(cache, working);
            }
        }
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    files.clear_faults();
    files.set_capacity_pages(u64::MAX);
    workers.into_iter().for_each(|worker| worker.verify(&disk));
    world.recovers(&cache);
    cache.validate().unwrap();
    cache.close().unwrap();
    world.verify_after_loss(&disk, seed);
}

#[test]
fn failures_of_any_kind_lose_no_data_and_block_no_call() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("MGLRU_SWARM_SEED").unwrap_or(0);
    let count = number("MGLRU_SWARM").unwrap_or(if first > 0 { 1 } else { SEEDS });
    for seed in first..first + count {
        let (ended, end) = mpsc::channel();
        let runner = std::thread::spawn(move || {
            run(seed);
            ended.send(()).unwrap();
        });
        let stuck = end.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout);
        assert!(
            !stuck && runner.join().is_ok(),
            "seed {seed} {}. Repeat it: MGLRU_SWARM_SEED={seed} MGLRU_SWARM=1 cargo test -p mglru-cache --test suite -- faults",
            if stuck { "is stuck" } else { "failed" }
        );
    }
}
