//! Data confirmed by a successful sync is never lost: neither on a device that stalls, sometimes
//! fails, fills up or cannot sync, nor by a power loss or a killed process.
//!
//! Files consist of pages that contain their position and version in every word. Each page belongs
//! to one thread, and its versions grow. A successful sync confirms every version written before it
//! began, by any thread. After the loss, a page must hold a version between the confirmed one and
//! the last one begun, and only one version unless a thread was writing it.
//!
//! There are two kinds of loss. [`MemoryFiles::cut_power`] loses unsynced data, page by page, by
//! chance; it detects syncs that return too early. A killed process loses data that it did not pass
//! to the system; this uses real files and real signals.

use crate::common::{Disk, PAGE, Random, counter, memory, mix};
use mglru_cache::backend::{Fault, FaultEffect, FaultOperation, FaultTrigger, MemoryFiles};
use mglru_cache::{CachedFile, Error, Limits, OpenMode, PageCache, Swap};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const THREADS: u64 = 4;
const FILES: usize = 3;
const PAGES: usize = 600;
const BUDGET_BYTES: u64 = 3 << 20;

/// A word of a page in a version; version 0 is zeros.
fn word(file: u64, index: u64, version: u64, word: u64) -> u64 {
    match (version, word) {
        (0, _) => 0,
        (_, 0) => version,
        _ => mix(mix(file << 32 | index).wrapping_add(version) ^ word),
    }
}

pub fn content(file: u64, index: u64, version: u64) -> Vec<u8> {
    (0..512).flat_map(|at| word(file, index, version, at).to_le_bytes()).collect()
}

/// The version of a page, which must be whole.
pub fn version(file: u64, index: u64, bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(
        bytes == content(file, index, version),
        "file {file}, page {index}: not a whole version {version}, it begins {:x?}",
        &bytes[..32]
    );
    version
}

#[derive(Default)]
struct Page {
    begun: AtomicU64,
    written: AtomicU64,
    confirmed: AtomicU64,
}

pub struct World {
    files: Vec<Vec<Page>>,
    operations: AtomicU64,
    confirmations: AtomicU64,
}

impl World {
    pub fn new() -> World {
        let file = || (0..PAGES).map(|_| Page::default()).collect();
        let files = (0..FILES).map(|_| file()).collect();
        World { files, operations: AtomicU64::new(0), confirmations: AtomicU64::new(0) }
    }

    /// Syncs all files, on a device that is well: everything written is confirmed.
    pub fn recovers(&self, cache: &PageCache) {
        for (number, pages) in self.files.iter().enumerate() {
            let handle = cache.open(number.to_string(), OpenMode::ReadWrite).unwrap();
            // The first sync reports the errors that are still unreported.
            let _ = handle.sync_all();
            handle.sync_all().unwrap();
            for page in pages {
                page.confirmed.store(page.written.load(SeqCst), SeqCst);
            }
        }
    }

    /// Checks that everything on disk is between confirmed and begun. The found versions become the
    /// confirmed ones.
    pub fn verify_after_loss(&self, disk: &Disk, seed: u64) {
        for (number, pages) in self.files.iter().enumerate() {
            let file = number as u64;
            let mut bytes = disk.contents(&number.to_string());
            bytes.resize(PAGES * PAGE, 0);
            for ((index, page), bytes) in (0..).zip(pages).zip(bytes.chunks_mut(PAGE)) {
                let (confirmed, begun) = (page.confirmed.load(SeqCst), page.begun.load(SeqCst));
                let mut found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                assert!(
                    (confirmed..=begun).contains(&found),
                    "seed {seed}, file {file}, page {index}: version {found}, {confirmed} was confirmed of {begun}"
                );
                if *bytes != content(file, index, found) {
                    // A page written during the loss may be torn, but only between these two
                    // versions.
                    for (at, got) in (0..).zip(bytes.chunks(8)) {
                        let of = |version| word(file, index, version, at).to_le_bytes() == got;
                        assert!(
                            (confirmed..=begun).any(of),
                            "seed {seed}, file {file}, page {index}, word {at}: {got:x?}"
                        );
                    }
                    // An application would repair it from its log.
                    found = begun;
                    bytes.copy_from_slice(&content(file, index, found));
                }
                page.written.store(found, SeqCst);
                page.confirmed.store(found, SeqCst);
            }
            disk.set(&number.to_string(), &bytes);
        }
    }
}

/// Asserts that total memory is within the budget.
pub fn look_at_memory(cache: &PageCache) {
    let stats = cache.stats();
    let used = stats.frame_bytes + stats.metadata_bytes + stats.swap_bytes;
    assert!(used <= BUDGET_BYTES, "{stats:?}");
}

pub struct Actor<'a> {
    world: &'a World,
    cache: &'a PageCache,
    files: &'a MemoryFiles,
    pub handles: Vec<CachedFile>,
    thread: u64,
    random: Random,
    /// Accepts errors that an operation may have.
    allowed: fn(Result<(), Error>) -> Option<()>,
}

/// Errors of a device alone.
fn of_the_device(result: Result<(), Error>) -> Option<()> {
    result
        .inspect_err(|error| {
            assert!(matches!(error, Error::Io { .. } | Error::WriteBack { .. }), "{error:?}")
        })
        .ok()
}

impl<'a> Actor<'a> {
    pub fn new(
        world: &'a World,
        cache: &'a PageCache,
        files: &'a MemoryFiles,
        thread: u64,
        seed: u64,
    ) -> Actor<'a> {
        let open = |number: usize| cache.open(number.to_string(), OpenMode::Create).unwrap();
        let handles = (0..FILES).map(open).collect();
        let random = Random(mix(seed ^ thread << 40));
        Actor { world, cache, files, handles, thread, random, allowed: of_the_device }
    }

    /// Accepts the errors that `allowed` accepts.
    pub fn failing(self, allowed: fn(Result<(), Error>) -> Option<()>) -> Actor<'a> {
        Actor { allowed, ..self }
    }

    fn check<T>(&self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| (self.allowed)(Err(error))).ok()
    }

    pub fn write(&mut self, file: usize) {
        let mine = self.random.below(PAGES as u64 / THREADS) * THREADS + self.thread;
        let page = &self.world.files[file][mine as usize];
        let next = page.begun.fetch_add(1, SeqCst) + 1;
        let bytes = content(file as u64, mine, next);
        if self.check(self.handles[file].write_at(&bytes, mine * PAGE as u64)).is_some() {
            page.written.store(next, SeqCst);
        }
    }

    /// Syncs a file. On success, everything written before is confirmed.
    pub fn sync(&mut self, file: usize) {
        let pages = &self.world.files[file];
        let written: Vec<u64> = pages.iter().map(|page| page.written.load(SeqCst)).collect();
        if self.check(self.handles[file].sync_data()).is_some() {
            self.world.confirmations.fetch_add(1, SeqCst);
            for (page, written) in pages.iter().zip(written) {
                page.confirmed.fetch_max(written, SeqCst);
            }
        }
    }

    pub fn read(&mut self, file: usize) {
        let index = self.random.below(PAGES as u64);
        let page = &self.world.files[file][index as usize];
        let written = page.written.load(SeqCst);
        let mut bytes = vec![0; PAGE];
        if self.check(self.handles[file].read_at(&mut bytes, index * PAGE as u64)).is_some() {
            let found = version(file as u64, index, &bytes);
            let begun = page.begun.load(SeqCst);
            assert!(
                (written..=begun).contains(&found),
                "file {file}, page {index}: {found} of {written}..={begun}"
            );
        }
    }

    /// Stalls the device for a while. Its users wait, and memory stays within the budget.
    fn stall(&mut self) {
        self.files.hold();
        std::thread::scope(|scope| {
            let (cache, world, files) = (self.cache, self.world, self.files);
            let (thread, seed) = (self.thread, self.random.word());
            scope.spawn(move || {
                let mut actor = Actor::new(world, cache, files, thread, seed);
                (0..PAGES / 2).for_each(|_| actor.write(0));
                actor.sync(0);
            });
            files.wait_held(1);
            self.look_at_memory();
            files.release();
        });
    }

    fn look_at_memory(&self) {
        look_at_memory(self.cache);
    }

    /// Changes the device's faults.
    fn change_weather(&mut self) {
        let (files, kind) = (self.files, self.random.below(6));
        files.clear_faults();
        files.set_capacity_pages(u64::MAX);
        let fail = |operation, one_in, error| {
            files.inject(Fault::new(operation, FaultTrigger::OneIn(one_in), FaultEffect::Error(error)));
        };
        match kind {
            0 => fail(FaultOperation::Write, 100, libc::EIO),
            1 => fail(FaultOperation::Write, 3, libc::EIO),
            2 => files.set_capacity_pages(PAGES as u64),
            3 => fail(FaultOperation::Sync, 2, libc::EIO),
            _ => {}
        }
        self.look_at_memory();
    }

    fn step(&mut self) {
        let file = self.random.below(FILES as u64) as usize;
        match self.random.below(400) {
            0 => self.stall(),
            1..4 => self.change_weather(),
            4..14 => self.sync(file),
            14..200 => self.read(file),
            _ => self.write(file),
        }
        self.world.operations.fetch_add(1, SeqCst);
    }
}

/// Cuts the power repeatedly while threads work. After the last time, the device recovers, and the
/// cache with it.
fn losses(seed: u64) -> u64 {
    let (disk, files) = memory(seed);
    let world = World::new();
    let mut random = Random(seed);
    (0..FILES).for_each(|number| disk.set(&number.to_string(), &[]));
    for round in 0..5 {
        let cache = disk.builder(BUDGET_BYTES).build().unwrap();
        let cut_at = world.operations.load(SeqCst) + 200 + random.below(1500);
        let last = round == 4;
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (world, cache, files) = (&world, &cache, &*files);
                scope.spawn(move || {
                    let mut actor = Actor::new(world, cache, files, thread, seed * 100 + round);
                    while world.operations.load(SeqCst) < cut_at {
                        actor.step();
                    }
                    if !last {
                        // Threads in the middle of an operation continue without power.
                        files.cut_power();
                    }
                });
            }
        });
        files.clear_faults();
        files.set_capacity_pages(u64::MAX);
        if last {
            world.recovers(&cache);
            cache.validate().unwrap();
            cache.close().unwrap();
        } else {
            assert!(cache.close().is_err() || files.contents("0").is_some());
            files.restore_power();
        }
        world.verify_after_loss(&disk, seed);
    }
    world.confirmations.into_inner()
}

/// Several at once, because each mostly waits for its threads.
#[test]
fn a_loss_of_power_takes_nothing_that_was_confirmed() {
    const AT_ONCE: usize = 4;
    let seconds = std::env::var("MGLRU_STRESS_SECONDS").ok().map(|text| text.parse::<u64>().unwrap());
    let began = Instant::now();
    let next = AtomicU64::new(1);
    let work = || loop {
        let seed = next.fetch_add(1, SeqCst);
        if seconds.map_or(seed > 20, |seconds| began.elapsed().as_secs() >= seconds) {
            return;
        }
        let confirmations = losses(seed);
        assert!(confirmations > 10, "seed {seed}: {confirmations} syncs confirm too little to test anything");
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(work))));
}

/// Releases the device when dropped, also if a check fails, so that the other threads end.
pub struct Held<'f>(pub &'f MemoryFiles);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// The device stalls while writers are at their dirty limit, memory is full of pages waiting for
/// swap, and syncs wait. No caller gets an error, cached data stays readable, memory stays within
/// its budget, and afterwards all data is correct. With `make stress` the device stalls for a
/// minute; here, until all threads wait.
#[test]
fn a_stalled_device_only_makes_callers_wait() {
    const LIMIT_PAGES: u64 = 300;
    const WRITTEN: u64 = 400;
    const STORED: u64 = 1000;
    const CALM: u64 = 64;
    let stall = std::env::var_os("MGLRU_STRESS_SECONDS").map_or(Duration::ZERO, |_| Duration::from_secs(60));
    let (disk, files) = memory(11);
    let blank = |name: &str| disk.set(name, &[]);
    ["0", "1", "2"].iter().for_each(|name| blank(name));
    disk.set("calm", &(0..CALM).flat_map(|index| content(9, index, 1)).collect::<Vec<_>>());
    let builder = disk.builder(BUDGET_BYTES).swap(Swap::file("swap", 8 << 20));
    // More than the pages themselves, because usage above the floor may be reclaimed.
    let min = Limits::default().with_min(2 * CALM * PAGE as u64);
    let builder = builder.tenant("writers", LIMIT_PAGES * PAGE as u64).tenant_with("calm", min);
    let cache = builder.tenant_with("anon", Limits::default()).build().unwrap();
    let open = |tenant: &str, name: &str, mode| cache.tenant(tenant).unwrap().open(name, mode).unwrap();
    let calm = open("calm", "calm", OpenMode::ReadOnly);
    let read = |file: &CachedFile, number: u64, index: u64| {
        let mut bytes = vec![0; PAGE];
        assert_eq!(file.read_at(&mut bytes, index * PAGE as u64).unwrap(), PAGE);
        assert_eq!(version(number, index, &bytes), 1);
    };
    (0..CALM).for_each(|index| read(&calm, 9, index));
    let handles: Vec<CachedFile> =
        (0..3).map(|number: u64| open("writers", &number.to_string(), OpenMode::ReadWrite)).collect();
    // Some pages of a third file wait for the sync.
    (0..8).for_each(|index| _ = handles[2].write_at(&content(2, index, 1), index * PAGE as u64).unwrap());

    let progress = [const { AtomicU64::new(0) }; 4];
    let [first, second, stored, synced] = &progress;
    std::thread::scope(|scope| {
        files.hold();
        let held = Held(&files);
        for (number, done) in [(0, first), (1, second)] {
            let file = &handles[number];
            scope.spawn(move || {
                for index in 0..WRITTEN {
                    file.write_at(&content(number as u64, index, 1), index * PAGE as u64).unwrap();
                    done.store(index + 1, SeqCst);
                }
                file.sync_data().unwrap();
            });
        }
        scope.spawn(|| {
            synced.store(1, SeqCst);
            handles[2].sync_data().unwrap();
            synced.store(2, SeqCst);
        });

        // Dirty pages cannot be evicted: their writers read them, and the calm tenant reads its
        // protected pages.
        let look = || {
            look_at_memory(&cache);
            (0..CALM).for_each(|index| read(&calm, 9, index));
            for (number, done) in [(0, first), (1, second)] {
                (0..done.load(SeqCst)).for_each(|index| read(&handles[number as usize], number, index));
            }
        };
        let began = Instant::now();
        let pending = |tenant: &str| {
            ["file_dirty", "file_writeback"].map(|name| counter(&cache, tenant, name)).iter().sum::<u64>()
        };
        // Writers pause once 15 % of their limit is dirty or under writeback.
        while pending("writers") < LIMIT_PAGES * 15 / 100 || synced.load(SeqCst) == 0 {
            look();
        }
        let region = cache.tenant("anon").unwrap().anonymous(STORED * PAGE as u64).unwrap();
        scope.spawn(move || {
            for index in 0..STORED {
                region.store(index * PAGE as u64, &content(8, index, 1)).unwrap();
                stored.store(index + 1, SeqCst);
            }
            let mut bytes = vec![0; PAGE];
            for index in 0..STORED {
                region.load(index * PAGE as u64, &mut bytes).unwrap();
                assert_eq!(version(8, index, &bytes), 1);
            }
        });
        // Some of the tenant's pages are on their way to swap.
        while pending("anon") == 0 || files.held() < 2 {
            look();
        }
        let mut looks = 0;
        while looks < 50 || began.elapsed() < stall {
            look();
            looks += 1;
        }
        let [first, second, stored, synced] = [first, second, stored, synced].map(|done| done.load(SeqCst));
        assert!(first + second < LIMIT_PAGES && stored < STORED, "{first}, {second} and {stored} pages");
        assert_eq!(synced, 1, "it waits, too");
        drop(held);
    });
    assert_eq!(progress.map(AtomicU64::into_inner), [WRITTEN, WRITTEN, STORED, 2]);
    for (number, pages) in [(0, WRITTEN), (1, WRITTEN), (2, 8)] {
        let expected: Vec<u8> = (0..pages).flat_map(|index| content(number, index, 1)).collect();
        crate::common::assert_same(
            &disk.contents(&number.to_string()),
            &expected,
            format_args!("file {number}"),
        );
    }
    let oom = ["", "writers", "anon", "calm"].map(|tenant| counter(&cache, tenant, "oom"));
    assert_eq!(oom, [0; 4], "waiting is no lack of memory");
    drop((handles, calm));
    cache.validate().unwrap();
    cache.close().unwrap();
}

/// Without write-back and sync, the simulated disk does lose data.
#[test]
fn unsynced_pages_may_be_lost_in_a_power_cut() {
    let (disk, files) = memory(7);
    disk.set("f", &[]);
    let cache = disk.builder(BUDGET_BYTES).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    for index in 0..64 {
        file.write_at(&content(0, index, 1), index * PAGE as u64).unwrap();
    }
    file.sync_data().unwrap();
    for index in 0..64 {
        file.write_at(&content(0, index, 2), index * PAGE as u64).unwrap();
    }
    cache.sync().unwrap();
    files.cut_power();
    assert!(file.sync_data().is_err(), "there is no power");
    files.restore_power();
    let bytes = disk.contents("f");
    let survived =
        (0..64).filter(|&index| version(0, index, &bytes[index as usize * PAGE..][..PAGE]) == 2).count();
    assert!((10..54).contains(&survived), "{survived} of 64 survived");
}

/// Page number and version of a thread's `step`th write in a `life` of the process.
fn write_of(life: u64, step: u64) -> (u64, u64) {
    (mix(life << 32 | step) % PAGES as u64, life << 32 | step)
}

const CHILD: &str = "MGLRU_KILLED_CHILD";

/// Not a test by itself, but the killed process: each thread writes its own file and prints which
/// of its writes a sync confirmed.
#[test]
fn child_that_is_killed() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let (life, directory) = arguments.split_once(' ').unwrap();
    let life: u64 = life.parse().unwrap();
    let disk = if life.is_multiple_of(2) { Disk::uring() } else { Disk::threads() };
    let cache = disk.builder(BUDGET_BYTES).build().unwrap();
    std::thread::scope(|scope| {
        for number in 0..FILES as u64 {
            let (cache, directory) = (&cache, &directory);
            scope.spawn(move || {
                let path = std::path::Path::new(directory).join(number.to_string());
                let file = cache.open(&path, OpenMode::Create).unwrap();
                let mut random = Random(life << 8 | number);
                for step in 1.. {
                    let (index, version) = write_of(life, step);
                    file.write_at(&content(number, index, version), index * PAGE as u64).unwrap();
                    if random.one_in(30) {
                        file.sync_data().unwrap();
                        println!("confirmed {number} {step}");
                        std::io::stdout().flush().unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn a_killed_process_takes_nothing_that_was_confirmed() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = Random(1);
    // The confirmed version of each page, over all lives.
    let mut confirmed = vec![vec![0; PAGES]; FILES];
    for life in 1..=10u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "reliability::child_that_is_killed", "--nocapture"])
            .env(CHILD, format!("{life} {}", directory.path().display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (kill_at, mut rings_before) = (1 + random.below(60), 0);
        let mut steps = [0; FILES];
        for line in lines {
            // The last line may be incomplete.
            let line = line.unwrap();
            let Some(rest) = line.split_once("confirmed ").map(|(_, rest)| rest) else { continue };
            let Some((number, step)) = rest.split_once(' ') else { continue };
            let number: usize = number.parse().unwrap();
            steps[number] = step.parse::<u64>().unwrap().max(steps[number]);
            rings_before += 1;
            if rings_before == kill_at {
                child.kill().unwrap();
            }
        }
        assert!(
            !child.wait().unwrap().success() && rings_before >= kill_at,
            "life {life}: it ended by itself"
        );
        for (number, pages) in confirmed.iter_mut().enumerate() {
            for (index, version) in (1..=steps[number]).map(|step| write_of(life, step)) {
                pages[index as usize] = version;
            }
            let path = directory.path().join(number.to_string());
            let mut bytes = std::fs::read(&path).unwrap_or_default();
            bytes.resize(PAGES * PAGE, 0);
            for ((index, confirmed), bytes) in (0..).zip(pages).zip(bytes.chunks_mut(PAGE)) {
                // Later writes of this life, which was killed.
                let later = (1..steps[number] + 5000).map(|step| write_of(life, step));
                let later =
                    later.filter(|write| write.0 == index && write.1 > *confirmed).map(|write| write.1);
                let possible: Vec<u64> = later.chain([*confirmed]).collect();
                let whole = |version: &&u64| *bytes == content(number as u64, index, **version);
                if let Some(found) = possible.iter().find(whole) {
                    *confirmed = *found;
                    continue;
                }
                for (at, got) in (0..).zip(bytes.chunks(8)) {
                    let of = |version: &u64| word(number as u64, index, *version, at).to_le_bytes() == got;
                    assert!(
                        possible.iter().any(of),
                        "life {life}, file {number}, page {index}, word {at}: {got:x?}"
                    );
                }
                bytes.copy_from_slice(&content(number as u64, index, *confirmed));
            }
            std::fs::write(&path, bytes).unwrap();
        }
    }
}
