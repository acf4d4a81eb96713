//! Stress test. Eight threads in four tenants read, write, map, truncate, sync, advise and reopen a
//! few files in a much smaller cache, on every backend, with and without faults, and verify every
//! byte they read. Meanwhile other tenants, up to four levels deep, are created and removed with
//! open files, and limits change at random.
//!
//! A file consists of units (pages, or sectors of 512 bytes). Every word of a unit contains its
//! file, its position and its version, so that any read detects a torn, misplaced or stale unit.
//! Versions of a unit grow. A read must return the last version completely written before it began,
//! or a newer one. If the file is truncated meanwhile, zeros are also correct, but nothing that was
//! cut off before the read began. Finally everything is synced, and both the cache and the files on
//! disk must hold the last version of every unit.
//!
//! The short form runs a fixed number of operations. The long form is `MGLRU_STRESS_SECONDS=600
//! cargo test --release -p mglru-cache --test suite -- stress`.

use crate::common::{Disk, PAGE, Random, mix};
use mglru_cache::backend::{Fault, FaultEffect, FaultOperation, FaultTrigger, MemoryFiles};
use mglru_cache::{Advice, CachedFile, Error, Limits, Map, OpenMode, PageCache, Tenant};
use mglru_core::{Errno, MemcgError};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, RwLock, mpsc};
use std::time::{Duration, Instant};

const THREADS: u64 = 8;
const TENANTS: [(&str, u64); 4] = [("a", 2 << 20), ("b", 1 << 20), ("c", 512 << 10), ("d", 4 << 20)];

/// How strictly a read unit can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Never truncated: the last version or a newer one.
    Stable,
    /// Truncated, but not during a write.
    Cut,
    /// Truncated during writes: whole, in its place, and not newer than the last issued version.
    Wild,
}

struct Unit {
    /// Held by the writing thread, so that versions arrive in order.
    writing: Mutex<()>,
    issued: AtomicU64,
    /// The last completely written version.
    written: AtomicU64,
    /// Versions up to this one were cut off.
    cut: AtomicU64,
}

struct File {
    number: u64,
    class: Class,
    unit_bytes: usize,
    units: Vec<Unit>,
    cutting: RwLock<()>,
    cuts_begun: AtomicU64,
    cuts_ended: AtomicU64,
}

fn word(file: u64, unit: u64, version: u64, index: usize) -> u64 {
    match index {
        0 => file << 32 | unit | 1 << 63,
        1 => version,
        _ => mix(mix(file << 32 | unit).wrapping_add(version) ^ index as u64),
    }
}

impl File {
    fn new(number: u64, random: &mut Random) -> File {
        let class = [Class::Stable, Class::Stable, Class::Cut, Class::Wild][number as usize % 4];
        let unit_bytes = if random.one_in(2) { PAGE } else { 512 };
        let pages = [40, 300, 900, 2500][random.below(4) as usize];
        let units = (0..pages * PAGE / unit_bytes)
            .map(|_| Unit {
                writing: Mutex::new(()),
                issued: AtomicU64::new(0),
                written: AtomicU64::new(0),
                cut: AtomicU64::new(0),
            })
            .collect();
        let (cuts_begun, cuts_ended) = (AtomicU64::new(0), AtomicU64::new(0));
        File { number, class, unit_bytes, units, cutting: RwLock::new(()), cuts_begun, cuts_ended }
    }

    fn name(&self) -> String {
        format!("file{}", self.number)
    }

    fn content(&self, unit: usize, version: u64) -> Vec<u8> {
        (0..self.unit_bytes / 8)
            .flat_map(|index| word(self.number, unit as u64, version, index).to_le_bytes())
            .collect()
    }

    /// The version of a unit, which must be whole; 0 for zeros.
    fn version(&self, unit: usize, bytes: &[u8]) -> u64 {
        let words: Vec<u64> =
            bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        if words.iter().all(|word| *word == 0) {
            return 0;
        }
        for (index, found) in words.iter().enumerate() {
            let expected = word(self.number, unit as u64, words[1], index);
            assert!(
                *found == expected,
                "{self}, unit {unit} in version {}: word {index} is {found:#x}, expected {expected:#x}; it begins {:#x?}",
                words[1],
                &words[..4]
            );
        }
        words[1]
    }
}

impl std::fmt::Display for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {} with units of {} bytes", self.class, self.name(), self.unit_bytes)
    }
}

/// State of a unit before it is read.
#[derive(Debug)]
struct Before {
    written: u64,
    cut: u64,
    cuts_begun: u64,
    cuts_ended: u64,
}

impl Before {
    fn of(file: &File, unit: usize) -> Before {
        let cuts_ended = file.cuts_ended.load(SeqCst);
        let unit = &file.units[unit];
        let (written, cut) = (unit.written.load(SeqCst), unit.cut.load(SeqCst));
        Before { written, cut, cuts_begun: file.cuts_begun.load(SeqCst), cuts_ended }
    }

    fn verify(&self, file: &File, unit: usize, bytes: &[u8], how: &str) {
        let version = file.version(unit, bytes);
        let issued = file.units[unit].issued.load(SeqCst);
        assert!(version <= issued, "{how} {file}, unit {unit}: version {version} of {issued}");
        let right = match file.class {
            Class::Wild => true,
            Class::Stable => version >= self.written,
            Class::Cut => {
                let quiet =
                    file.cuts_begun.load(SeqCst) == self.cuts_ended && self.cuts_begun == self.cuts_ended;
                let not_cut_off = version == 0 || version > self.cut;
                let there = !quiet || self.written <= self.cut || version >= self.written;
                not_cut_off && there
            }
        };
        assert!(right, "{how} {file}, unit {unit}: version {version}, but {self:?}");
    }
}

struct World {
    files: Vec<File>,
    /// Faults are injected, so their errors are expected.
    faulty: bool,
    operations: AtomicUsize,
    failures: AtomicUsize,
}

struct Actor<'a> {
    world: &'a World,
    disk: &'a Disk,
    cache: &'a PageCache,
    tenants: Vec<Tenant>,
    random: Random,
    handles: Vec<CachedFile>,
    maps: Vec<Option<Map>>,
}

impl<'a> Actor<'a> {
    fn new(world: &'a World, disk: &'a Disk, cache: &'a PageCache, seed: u64) -> Actor<'a> {
        let mut random = Random(seed);
        let tenants: Vec<Tenant> = TENANTS.iter().map(|(name, _)| cache.tenant(name).unwrap()).collect();
        let home = random.below(4) as usize;
        let handles: Vec<CachedFile> = world
            .files
            .iter()
            .map(|file| tenants[home].open(disk.path(&file.name()), OpenMode::Create).unwrap())
            .collect();
        let maps = handles.iter().map(|_| None).collect();
        Actor { world, disk, cache, tenants, random, handles, maps }
    }

    /// Returns the value on success. Accepts errors from truncation, short memory and injected
    /// faults.
    fn check<T>(&self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(Error::BeyondEnd { .. }) => None,
            // Guards of eight threads, and windows being read, may briefly hold all 128 pages of a
            // tenant.
            Err(Error::OutOfMemory(_)) => {
                self.world.failures.fetch_add(1, SeqCst);
                None
            }
            Err(error @ (Error::Io { .. } | Error::WriteBack { .. })) if self.world.faulty => {
                let number = error.io_error().unwrap().raw_os_error().unwrap();
                assert!(matches!(number, libc::EIO | libc::ENOSPC), "{error}");
                self.world.failures.fetch_add(1, SeqCst);
                None
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    fn pick(&mut self) -> (usize, &'a File, usize) {
        let number = self.random.below(self.world.files.len() as u64) as usize;
        let file = &self.world.files[number];
        let count = file.units.len() as u64;
        // Some units are hot.
        let limit = if self.random.one_in(2) { (count / 16).max(1) } else { count };
        (number, file, self.random.below(limit) as usize)
    }

    fn step(&mut self) {
        match self.random.below(1000) {
            0..10 => self.add_tenant(),
            10..18 => self.remove_tenant(),
            18..30 => self.set_limits(),
            30..40 => self.look_at_control_files(),
            40..50 => self.move_handle(),
            50..300 => self.read(),
            300..450 => self.load(),
            450..550 => self.lend(),
            550..750 => self.write(),
            750..850 => self.store(),
            850..870 => self.scan(),
            870..885 => self.truncate(),
            885..890 => self.sync(),
            890..950 => self.advise(),
            950..990 => self.reopen(),
            990..992 => drop(self.check(self.cache.sync())),
            _ => drop(self.cache.stats()),
        }
        self.world.operations.fetch_add(1, SeqCst);
    }

    fn verify_read(&self, file: &File, before: &[Before], first: usize, bytes: &[u8], how: &str) {
        for (index, bytes) in bytes.chunks_exact(file.unit_bytes).enumerate() {
            before[index].verify(file, first + index, bytes, how);
        }
    }

    fn read_units(&mut self, number: usize, first: usize, count: usize) {
        let file = &self.world.files[number];
        let count = count.min(file.units.len() - first);
        let before: Vec<Before> = (first..first + count).map(|unit| Before::of(file, unit)).collect();
        let mut buffer = vec![0xaa; count * file.unit_bytes];
        let result = self.handles[number].read_at(&mut buffer, (first * file.unit_bytes) as u64);
        if let Some(bytes) = self.check(result) {
            self.verify_read(file, &before, first, &buffer[..bytes], "read of");
        }
    }

    fn read(&mut self) {
        let (number, _, first) = self.pick();
        let count = if self.random.one_in(4) { 1 + self.random.below(40) as usize } else { 1 };
        self.read_units(number, first, count);
    }

    fn scan(&mut self) {
        let (number, file, first) = self.pick();
        let step = 1 + self.random.below(16) as usize;
        for first in (first..file.units.len()).step_by(step).take(40) {
            self.read_units(number, first, step);
        }
    }

    /// The map of a file. `None`: its tenant has no memory for the map's metadata.
    fn map(&mut self, number: usize) -> Option<&Map> {
        if self.maps[number].is_none() || self.random.one_in(50) {
            self.maps[number] = match self.handles[number].map() {
                Ok(map) => Some(map),
                Err(Error::TooManyFiles { .. } | Error::OutOfMemory(_)) => None,
                Err(error) => panic!("{error:?}"),
            };
        }
        self.maps[number].as_ref()
    }

    fn load(&mut self) {
        let (number, file, unit) = self.pick();
        let before = Before::of(file, unit);
        let mut bytes = vec![0xaa; file.unit_bytes];
        let Some(map) = self.map(number) else { return };
        let result = map.load((unit * file.unit_bytes) as u64, &mut bytes);
        if self.check(result).is_some() {
            before.verify(file, unit, &bytes, "load of");
        }
    }

    /// Checks a lent page, and checks it again after reading it in other ways.
    fn lend(&mut self) {
        let (number, file, unit) = self.pick();
        let index = unit * file.unit_bytes / PAGE;
        let in_page = PAGE / file.unit_bytes;
        let before: Vec<Before> =
            (index * in_page..(index + 1) * in_page).map(|unit| Before::of(file, unit)).collect();
        self.map(number);
        let Some(map) = &self.maps[number] else { return };
        let Some(guard) = self.check(map.page(index as u32)) else { return };
        self.verify_read(file, &before, index * in_page, &guard, "view of");
        let copy = guard.to_vec();
        if self.random.one_in(2) {
            let mut again = vec![0; copy.len()];
            let result = map.load((index * PAGE) as u64, &mut again);
            if file.class == Class::Stable && self.check(result).is_some() {
                assert!(again == copy, "{file}, page {index} changed while it was lent");
            }
            let result = map.page(index as u32);
            if file.class == Class::Stable
                && let Some(second) = self.check(result)
            {
                // Another thread may have extended the file beyond this page, but not in it.
                let (first, added) = second.split_at(copy.len());
                assert!(first == copy, "{file}, page {index} changed while it was lent");
                assert!(added.iter().all(|byte| *byte == 0), "{file}, page {index} grew while it was lent");
            }
        }
        assert!(guard[..] == copy, "{file}, page {index} changed under its guard");
    }

    fn write_unit(&mut self, number: usize, unit: usize, mapped: bool) {
        let file = &self.world.files[number];
        let _not_cut = (file.class == Class::Cut).then(|| file.cutting.read().unwrap());
        let state = &file.units[unit];
        let _writing = state.writing.lock().unwrap();
        let version = state.issued.fetch_add(1, SeqCst) + 1;
        let (bytes, offset) = (file.content(unit, version), (unit * file.unit_bytes) as u64);
        let result = if mapped {
            self.maps[number].as_ref().unwrap().store(offset, &bytes)
        } else {
            self.handles[number].write_at(&bytes, offset).map(|written| assert_eq!(written, bytes.len()))
        };
        if self.check(result).is_some() {
            state.written.store(version, SeqCst);
        }
    }

    fn write(&mut self) {
        let (number, file, first) = self.pick();
        let count = if self.random.one_in(8) { self.random.below(64) as usize } else { 1 };
        for unit in first..(first + count).min(file.units.len()) {
            self.write_unit(number, unit, false);
        }
    }

    fn store(&mut self) {
        let (number, _, unit) = self.pick();
        if self.map(number).is_some() {
            self.write_unit(number, unit, true);
        }
    }

    fn truncate(&mut self) {
        let (number, file, unit) = self.pick();
        if file.class == Class::Stable {
            return;
        }
        let alone = (file.class == Class::Cut).then(|| file.cutting.write().unwrap());
        file.cuts_begun.fetch_add(1, SeqCst);
        let written: Vec<u64> = file.units[unit..].iter().map(|unit| unit.written.load(SeqCst)).collect();
        let handle = &self.handles[number];
        let len = (unit * file.unit_bytes) as u64;
        let grown = handle.len() < len;
        if self.check(handle.truncate(len)).is_some() && !grown {
            for (unit, written) in file.units[unit..].iter().zip(written) {
                unit.cut.fetch_max(written, SeqCst);
            }
        }
        file.cuts_ended.fetch_add(1, SeqCst);
        drop(alone);
    }

    fn sync(&mut self) {
        let (number, ..) = self.pick();
        let all = self.random.one_in(2);
        let handle = &self.handles[number];
        self.check(if all { handle.sync_all() } else { handle.sync_data() });
    }

    fn advise(&mut self) {
        let (number, file, unit) = self.pick();
        let advice = [
            Advice::Normal,
            Advice::Sequential,
            Advice::Random,
            Advice::WillNeed,
            Advice::DontNeed,
            Advice::Normal,
        ][self.random.below(6) as usize];
        let start = (unit * file.unit_bytes) as u64;
        let result = self.handles[number].advise(advice, start..start + self.random.below(1 << 20));
        self.check(result);
    }

    fn reopen(&mut self) {
        let (number, file, _) = self.pick();
        self.maps[number] = None;
        let tenant = self.tenant();
        let path = self.disk.path(&file.name());
        let handle = match self.random.one_in(3) {
            true => self.handles[number].try_clone(),
            false => tenant.open(&path, OpenMode::ReadWrite),
        };
        match handle {
            Ok(handle) => self.handles[number] = handle,
            // Metadata about tenants takes a part of a small budget.
            Err(Error::TooManyFiles { .. } | Error::OutOfMemory(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    }

    /// The path of a tenant that may exist: a separate one, or up to three levels below one of the
    /// four.
    fn tenant_path(&mut self) -> String {
        let mut path = ["a", "b", "c", "d", "x", "y"][self.random.below(6) as usize].to_owned();
        let least = u64::from(path.as_str() < "x");
        for _ in 0..least + self.random.below(4 - least) {
            path += ["/0", "/1"][self.random.below(2) as usize];
        }
        path
    }

    /// One of the four tenants, or a temporary one.
    fn tenant(&mut self) -> Tenant {
        let path = self.tenant_path();
        let other = self.random.below(4) as usize;
        self.cache.tenant(&path).unwrap_or_else(|_| self.tenants[other].clone())
    }

    fn add_tenant(&mut self) {
        let path = self.tenant_path();
        let max_bytes = self.random.one_in(2).then(|| (128 << 10) + self.random.below(2 << 20));
        let mut limits = Limits::default();
        (limits.min_bytes, limits.low_bytes) = (self.random.below(64 << 10), self.random.below(1 << 20));
        limits.max_bytes = max_bytes;
        match self.cache.add_tenant(&path, &limits) {
            Ok(_)
            | Err(Error::NoSuchTenant(_) | Error::TooManyTenants { .. } | Error::OutOfMemory(_))
            | Err(Error::Tenant(MemcgError::Exists(_) | MemcgError::Gone)) => {}
            Err(error) => panic!("{path}: {error:?}"),
        }
    }

    fn remove_tenant(&mut self) {
        let path = self.tenant_path();
        match self.cache.remove_tenant(&path) {
            Ok(()) | Err(Error::NoSuchTenant(_) | Error::Tenant(MemcgError::HasChildren)) => {}
            Err(error) => panic!("{path}: {error:?}"),
        }
    }

    fn set_limits(&mut self) {
        let path = self.tenant_path();
        let bytes = (128 << 10) + self.random.below(2 << 20);
        let (file, value) = match self.random.below(8) {
            0 => ("memory.max", "max".to_owned()),
            1 => ("memory.high", "max".to_owned()),
            2 | 3 => ("memory.max", bytes.to_string()),
            4 => return self.set_high_for_a_moment(&path, bytes),
            5 => ("memory.low", bytes.to_string()),
            6 => ("memory.min", (bytes / 32).to_string()),
            _ => ("memory.reclaim", (bytes / 8).to_string()),
        };
        match self.cache.control().write(&format!("{path}/{file}"), &value) {
            Ok(()) => {}
            Err(Error::Control(error)) if matches!(error.errno, Errno::NoEntry | Errno::Again) => {}
            Err(error) => panic!("{path}/{file} = {value}: {error:?}"),
        }
    }

    /// Sets `memory.high` briefly: a device without writes makes reclaim fail, and
    /// every charge pauses for two seconds.
    fn set_high_for_a_moment(&mut self, path: &str, bytes: u64) {
        for value in [bytes.to_string(), "max".to_owned()] {
            match self.cache.control().write(&format!("{path}/memory.high"), &value) {
                Ok(()) => self.read(),
                Err(Error::Control(error)) if error.errno == Errno::NoEntry => {}
                Err(error) => panic!("{path}/memory.high = {value}: {error:?}"),
            }
        }
    }

    fn look_at_control_files(&mut self) {
        let path = self.tenant_path();
        let control = self.cache.control();
        let Ok(files) = control.list(&path) else { return };
        for file in files.iter().filter(|file| file.starts_with("memory.")) {
            match control.read(&format!("{path}/{file}")) {
                Ok(text) => assert!(text.ends_with('\n'), "{file}: {text}"),
                Err(Error::Control(error)) => {
                    assert!(matches!(error.errno, Errno::NoEntry | Errno::Invalid), "{error}");
                }
                Err(error) => panic!("{path}/{file}: {error:?}"),
            }
        }
        if self.random.one_in(4) {
            // If another thread switches the policy meanwhile, that switch takes over.
            let enabled = if self.random.one_in(2) { "n" } else { "y" };
            control.write("lru_gen/enabled", enabled).unwrap();
        }
        let generations = control.read("lru_gen").unwrap();
        // Ages and evicts through the control file.
        if let Some(id) = generations.lines().filter_map(|line| line.strip_prefix("memcg ")).next_back() {
            let id = id.split(' ').next().unwrap();
            let result = control.write("lru_gen", &format!("+ {id} 0 0; - {id} 0 1 60 100"));
            assert!(matches!(result, Ok(()) | Err(Error::Control(_))), "{result:?}");
        }
    }

    fn move_handle(&mut self) {
        let (number, ..) = self.pick();
        let tenant = self.tenant();
        self.handles[number].move_to(&tenant).unwrap();
    }
}

/// Ends the process if the test hangs, because then all threads wait.
fn watched(what: String, work: impl FnOnce()) {
    let (done, is_done) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        if is_done.recv_timeout(Duration::from_secs(180)) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{what}: nothing has moved for three minutes");
            std::process::abort();
        }
    });
    work();
    drop(done);
    watch.join().unwrap();
}

fn round(seed: u64, operations: usize) -> (usize, usize) {
    let mut random = Random(seed);
    let (disk, memory) = match random.below(4) {
        0 => (Disk::uring(), None),
        1 => (Disk::threads(), None),
        _ => {
            let files = MemoryFiles::new(seed);
            (Disk::Memory(files.clone()), Some(files))
        }
    };
    let faulty = memory.is_some() && random.one_in(2);
    if let Some(files) = memory.as_ref().filter(|_| faulty) {
        let fault = |operation, one_in, effect| Fault::new(operation, FaultTrigger::OneIn(one_in), effect);
        files.inject(fault(FaultOperation::Read, 200, FaultEffect::Error(libc::EIO)));
        files.inject(fault(FaultOperation::Write, 20, FaultEffect::Error(libc::ENOSPC)));
        files.inject(fault(FaultOperation::Read, 10, FaultEffect::Short(1000)));
        files.inject(fault(FaultOperation::Write, 10, FaultEffect::Short(5000)));
        files.inject(fault(FaultOperation::Sync, 20, FaultEffect::Error(libc::EIO)));
    }
    let budget = [2 << 20, 5 << 20, 12 << 20][random.below(3) as usize];
    let mut builder = disk.builder(budget);
    for (name, bytes) in TENANTS {
        builder = builder.tenant(name, bytes);
    }
    let files = (0..4 + random.below(4)).map(|number| File::new(number, &mut random)).collect();
    let world = World { files, faulty, operations: AtomicUsize::new(0), failures: AtomicUsize::new(0) };
    let cache = builder.build().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (world, disk, cache) = (&world, &disk, &cache);
            scope.spawn(move || {
                let mut actor = Actor::new(world, disk, cache, mix(seed + thread));
                for _ in 0..operations {
                    actor.step();
                }
            });
        }
    });
    // Only the limits of these tenants are never lowered.
    for (name, _) in TENANTS {
        let tenant = cache.tenant(name).unwrap().stats();
        assert!(tenant.max_pages.is_some_and(|max| tenant.peak_pages <= max), "{tenant:?}");
    }
    for top in ["a", "b", "c", "d", "x", "y"] {
        remove_below(&cache, top);
    }
    ["x", "y"].iter().for_each(|name| drop(cache.remove_tenant(name)));
    assert_eq!(cache.stats().tenants, 5, "the others have no handle");
    cache.validate().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    if let Some(files) = &memory {
        files.clear_faults();
    }
    for file in &world.files {
        let path = disk.path(&file.name());
        let handle = cache.open(&path, OpenMode::ReadWrite).unwrap();
        // Earlier errors were reported to the threads' handles, or are reported to this one.
        let _ = handle.sync_all();
        handle.sync_all().unwrap();
        verify_end(file, &|offset, buffer| handle.read_at(buffer, offset).unwrap(), "finally in the cache");
    }
    cache.validate().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    cache.close().unwrap();
    for file in &world.files {
        let contents = disk.contents(&file.name());
        let read = |offset: u64, buffer: &mut [u8]| {
            let rest = contents.get(offset as usize..).unwrap_or(&[]);
            let bytes = rest.len().min(buffer.len());
            buffer[..bytes].copy_from_slice(&rest[..bytes]);
            bytes
        };
        verify_end(file, &read, "finally on disk");
    }
    (world.operations.into_inner(), world.failures.into_inner())
}

/// Removes all tenants below one.
fn remove_below(cache: &PageCache, path: &str) {
    for child in cache.control().list(path).unwrap_or_default() {
        if let Some(name) = child.strip_suffix('/') {
            let child = format!("{path}/{name}");
            remove_below(cache, &child);
            cache.remove_tenant(&child).unwrap();
        }
    }
}

fn verify_end(file: &File, read: &dyn Fn(u64, &mut [u8]) -> usize, how: &str) {
    for (unit, state) in file.units.iter().enumerate() {
        let mut bytes = vec![0; file.unit_bytes];
        read((unit * file.unit_bytes) as u64, &mut bytes);
        let version = file.version(unit, &bytes);
        let (written, cut) = (state.written.load(SeqCst), state.cut.load(SeqCst));
        let right = match file.class {
            Class::Stable => version == written,
            Class::Cut => version == if written > cut { written } else { 0 },
            Class::Wild => version == 0 || version == written,
        };
        assert!(
            right,
            "{how}, {file}, unit {unit}: version {version}, but {written} was written and {cut} cut"
        );
    }
}

#[test]
fn reads_never_return_wrong_bytes() {
    let seconds = std::env::var("MGLRU_STRESS_SECONDS").ok().map(|text| text.parse::<u64>().unwrap());
    let first = std::env::var("MGLRU_STRESS_SEED").ok().map_or(1, |text| text.parse::<u64>().unwrap());
    let began = Instant::now();
    let mut seed = first;
    loop {
        let operations = if seconds.is_some() { 20_000 } else { 1_500 };
        watched(format!("seed {seed}"), || {
            let (operations, failures) = round(seed, operations);
            let elapsed = began.elapsed().as_secs();
            println!(
                "{elapsed:5} s: seed {seed}, {operations} operations verified, {failures} failures injected"
            );
        });
        seed += 1;
        let over = match seconds {
            Some(seconds) => began.elapsed() >= Duration::from_secs(seconds),
            None => seed == first + 12,
        };
        if over {
            return;
        }
    }
}
