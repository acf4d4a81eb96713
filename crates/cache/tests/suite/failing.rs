//! A failing device, or failing sources, beside a naive model, one byte vector per file: reads,
//! writes, stores, truncations, holes, evictions and syncs at random offsets, by calls and by
//! futures, while the device refuses, shortens and fails them.
//!
//! The model knows what each failed operation leaves. A failed truncation, a failed hole and a
//! failed write or store within one page change nothing, and `write_some_at` says how much it
//! wrote. After a sync that returned `Ok`, the file on the device is the model.
//!
//! `MGLRU_FAILING=N` tries so many seeds, `MGLRU_FAILING_SEED=S` begins with `S`.

use crate::common::{Context, Disk, PAGE, Random, assert_same, memory, mix};
#[cfg(feature = "async")]
use crate::tasks::block_on;
use mglru_cache::backend::{Fault, FaultEffect, FaultOperation, FaultTrigger, MemoryFiles};
use mglru_cache::{
    Advice, BlockSource, CachedFile, Error, OpenMode, PageCache, RangeRequest, ReadRequest, SourceState,
};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

const FILES: u64 = 2;
const BYTES_MAX: u64 = 300 * PAGE as u64;
const STEPS: u64 = 400;
/// Seeds tried without `MGLRU_FAILING`.
const SEEDS: u64 = 40;

/// The result, if the device did not fail.
#[track_caller]
fn unless_failed<T>(result: Result<T, Error>) -> Option<T> {
    let is_known = |error: &Error| matches!(error, Error::Io { .. } | Error::WriteBack { .. });
    result.inspect_err(|error| assert!(is_known(error), "{error:?}")).ok()
}

/// A source in memory. Of each kind of call, one in so many fails; none if it is 0.
#[derive(Debug)]
struct Flaky {
    name: String,
    state: Mutex<FlakyState>,
}

#[derive(Debug)]
struct FlakyState {
    bytes: Vec<u8>,
    random: Random,
    /// Of state, read, write, length and sync.
    one_in: [u64; 5],
}

impl Flaky {
    /// The state, unless a call of this kind fails.
    fn call(&self, kind: usize) -> io::Result<MutexGuard<'_, FlakyState>> {
        let mut state = self.state.lock().unwrap();
        let one_in = state.one_in[kind];
        match one_in > 0 && state.random.one_in(one_in) {
            true => Err(io::Error::other("a test")),
            false => Ok(state),
        }
    }
}

impl BlockSource for Flaky {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn state(&self) -> io::Result<SourceState> {
        Ok(SourceState::new(self.call(0)?.bytes.len() as u64))
    }

    fn read_ranges(&self, requests: Vec<RangeRequest>) {
        for request in requests {
            let (from, to) = (request.range().start as usize, request.range().end as usize);
            let bytes = self.call(1).map(|state| state.bytes[from..to.min(state.bytes.len())].to_vec());
            match bytes {
                Ok(bytes) => request.fulfil(None, &bytes),
                Err(error) => request.fail(error),
            }
        }
    }

    fn is_writable(&self) -> bool {
        true
    }

    /// A write that fails has written a part.
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let failed = self.call(2).map(drop);
        let mut state = self.state.lock().unwrap();
        let count = match failed {
            Ok(()) => bytes.len(),
            Err(_) => state.random.below(bytes.len() as u64) as usize,
        };
        let (from, to) = (offset as usize, offset as usize + count);
        if count > 0 {
            let len = state.bytes.len().max(to);
            state.bytes.resize(len, 0);
            state.bytes[from..to].copy_from_slice(&bytes[..count]);
        }
        failed
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.call(3)?.bytes.resize(len as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.call(4).map(drop)
    }
}

enum Device {
    Disk(Disk, Arc<MemoryFiles>),
    Sources(Vec<Arc<Flaky>>),
}

impl Device {
    fn open(&self, cache: &PageCache, file: usize) -> Result<CachedFile, Error> {
        match self {
            Device::Disk(..) => cache.open(name(file), OpenMode::ReadWrite),
            Device::Sources(sources) => cache.open_source(sources[file].clone(), OpenMode::ReadWrite),
        }
    }

    fn contents(&self, file: usize) -> Vec<u8> {
        match self {
            Device::Disk(disk, _) => disk.contents(&name(file)),
            Device::Sources(sources) => sources[file].state.lock().unwrap().bytes.clone(),
        }
    }

    fn is_well_again(&self) {
        match self {
            Device::Disk(_, files) => {
                files.clear_faults();
                files.set_capacity_pages(u64::MAX);
            }
            Device::Sources(sources) => {
                sources.iter().for_each(|source| source.state.lock().unwrap().one_in = [0; 5]);
            }
        }
    }

    /// Replaces all faults by others, or by none.
    fn change_weather(&self, random: &mut Random) {
        match self {
            Device::Disk(_, files) => change_faults(files, random),
            Device::Sources(sources) => {
                for source in sources {
                    let one_in = [(); 5].map(|()| if random.one_in(2) { 0 } else { 1 + random.below(8) });
                    source.state.lock().unwrap().one_in = one_in;
                }
            }
        }
    }
}

fn name(file: usize) -> String {
    format!("f{file}")
}

struct World<'a> {
    device: &'a Device,
    cache: PageCache,
    random: Random,
    handles: Vec<Option<CachedFile>>,
    model: Vec<Vec<u8>>,
}

impl World<'_> {
    /// A place inside of the file or a little behind its end, often at an edge of a page.
    fn range(&mut self, file: usize) -> (u64, usize) {
        let random = &mut self.random;
        let len = self.model[file].len() as u64;
        let offset = match random.below(5) {
            0 => len,
            1 => len.saturating_sub(random.below(2 * PAGE as u64)),
            2 => random.below(BYTES_MAX / PAGE as u64) * PAGE as u64,
            3 => random.below(BYTES_MAX),
            _ => random.below(len + 1),
        };
        let length = match random.below(5) {
            0 => random.below(100),
            1 => PAGE as u64,
            2 => random.below(3 * PAGE as u64),
            3 => random.below(30) * PAGE as u64,
            _ => random.below(60_000),
        };
        (offset, length as usize)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let seed = self.random.word();
        (0..length as u64)
            .map(|at| mix(seed.wrapping_add(at / 8)).to_le_bytes()[at as usize % 8] | 1)
            .collect()
    }

    fn open(&mut self, file: usize) {
        if self.handles[file].is_none() {
            self.handles[file] = unless_failed(self.device.open(&self.cache, file));
        }
    }

    fn step(&mut self) -> String {
        let file = self.random.below(FILES) as usize;
        self.open(file);
        let (at, length) = self.range(file);
        let kind = self.random.below(100);
        let what = format!("operation {kind} with {length} bytes at {at} of {file}");
        let bytes = self.bytes(length);
        let Some(handle) = &self.handles[file] else { return what };
        let model = &mut self.model[file];
        match kind {
            0..25 => {
                if let Some(written) = unless_failed(handle.write_some_at(&bytes, at))
                    && written > 0
                {
                    let end = at as usize + written;
                    model.resize(model.len().max(end), 0);
                    model[at as usize..end].copy_from_slice(&bytes[..written]);
                }
            }
            #[cfg(feature = "async")]
            25..28 => {
                // Within one page: otherwise nothing says how much a failed one has written.
                let length = length.min(PAGE - at as usize % PAGE);
                if unless_failed(block_on(handle.write_at_async(&bytes[..length], at))).is_some()
                    && length > 0
                {
                    let end = at as usize + length;
                    model.resize(model.len().max(end), 0);
                    model[at as usize..end].copy_from_slice(&bytes[..length]);
                }
            }
            25..32 => {
                let from = at as usize;
                let to = model.len().min(from + length).min((from / PAGE + 1) * PAGE);
                if from < to
                    && let Some(map) = unless_failed(handle.map())
                    && unless_failed(map.store(at, &bytes[..to - from])).is_some()
                {
                    model[from..to].copy_from_slice(&bytes[..to - from]);
                }
            }
            32..52 => {
                let mut out = vec![0; length];
                let read = match kind {
                    #[cfg(feature = "async")]
                    32..37 => block_on(handle.read_at_async(&mut out, at)),
                    37..40 => {
                        let mut requests = [ReadRequest { offset: at, buffer: &mut out, read: 0 }];
                        handle.read_many(&mut requests).map(|()| requests[0].read)
                    }
                    _ => handle.read_at(&mut out, at),
                };
                if let Some(read) = unless_failed(read) {
                    let from = model.len().min(at as usize);
                    assert_same(&out[..read], &model[from..model.len().min(from + length)], &what);
                }
            }
            52..60 => {
                if unless_failed(handle.truncate(at)).is_some() {
                    model.resize(at as usize, 0);
                }
            }
            60..68 if length > 0 => {
                let to = model.len().min(at as usize + length);
                if unless_failed(handle.punch_hole(at..at + length as u64)).is_some() {
                    model.get_mut(at as usize..to).unwrap_or_default().fill(0);
                }
            }
            68..73 => {
                let synced = match kind {
                    68 => handle.sync_all(),
                    #[cfg(feature = "async")]
                    69 | 70 => block_on(handle.sync_data_async()),
                    _ => handle.sync_data(),
                };
                if unless_failed(synced).is_some() {
                    assert_same(&self.device.contents(file), model, "on disk");
                }
            }
            73..75 => _ = unless_failed(handle.write_back()),
            75..80 => _ = unless_failed(handle.evict(at..at + length as u64)),
            80..82 => _ = unless_failed(handle.invalidate()),
            82..84 => handle.advise(Advice::DontNeed, at..at + length as u64).unwrap(),
            84..86 => _ = unless_failed(handle.lock(at..at + length as u64)),
            86..88 => _ = unless_failed(self.cache.sync()),
            88..90 => self.handles[file] = None,
            _ => self.device.change_weather(&mut self.random),
        }
        if let Some(handle) = &self.handles[file] {
            assert_eq!(handle.len(), self.model[file].len() as u64, "length");
        }
        what
    }
}

/// Replaces all faults by up to three others, or by none.
fn change_faults(files: &MemoryFiles, random: &mut Random) {
    use FaultOperation::{Length, Open, PunchHole, Read, SetLength, Sync, Write};
    files.clear_faults();
    let full = random.one_in(6);
    files.set_capacity_pages(if full { random.below(600) } else { u64::MAX });
    for _ in 0..random.below(4) {
        let kinds = [Read, Write, Write, Write, Sync, SetLength, Open, Length, PunchHole];
        let operation = kinds[random.below(kinds.len() as u64) as usize];
        let first = random.below(BYTES_MAX);
        let trigger = match random.below(4) {
            0 => FaultTrigger::Always,
            1 => FaultTrigger::Within(first..first + 1 + random.below(20 * PAGE as u64)),
            2 => FaultTrigger::Nth(1 + random.below(20)),
            _ => FaultTrigger::OneIn(2 + random.below(10)),
        };
        let errors = [libc::EIO, libc::ENOSPC, libc::EDQUOT, libc::EFBIG, libc::ENOMEM];
        let effect = match random.below(3) {
            0 => FaultEffect::Short(1 + random.below(3 * PAGE as u64) as usize),
            _ => FaultEffect::Error(errors[random.below(errors.len() as u64) as usize]),
        };
        files.inject(Fault::new(operation, trigger, effect));
    }
}

fn run(seed: u64) {
    let mut random = Random(mix(seed ^ 0xfa11));
    let (disk, files) = memory(seed);
    let of_source = |file: u64| {
        let state = FlakyState { bytes: Vec::new(), random: Random(mix(seed << 1 | file)), one_in: [0; 5] };
        Arc::new(Flaky { name: name(file as usize), state: Mutex::new(state) })
    };
    let budget = [1 << 20, 2 << 20, 8 << 20][random.below(3) as usize];
    let cache = disk.builder(budget).build().unwrap();
    let device = match random.one_in(3) {
        true => Device::Sources((0..FILES).map(of_source).collect()),
        false => Device::Disk(disk, files),
    };
    let handles = (0..FILES).map(|_| None).collect();
    let mut world = World { device: &device, cache, random, handles, model: Vec::new() };
    for file in 0..FILES as usize {
        let length = world.random.below(100_000) as usize;
        let bytes = world.bytes(length);
        match &device {
            Device::Disk(disk, _) => disk.set(&name(file), &bytes),
            Device::Sources(sources) => sources[file].state.lock().unwrap().bytes = bytes.clone(),
        }
        world.model.push(bytes);
    }
    let mut last = String::new();
    for step in 0..STEPS {
        let context = Context(format!("seed {seed}, step {step}, after {last}"));
        last = world.step();
        drop(context);
    }
    let _context = Context(format!("seed {seed}, in the end"));
    device.is_well_again();
    for file in 0..FILES as usize {
        world.open(file);
        let handle = world.handles[file].as_ref().unwrap();
        // The first sync reports the errors that are still unreported.
        let _ = handle.sync_all();
        handle.sync_all().unwrap();
        assert_same(&device.contents(file), &world.model[file], "on disk");
        let mut bytes = vec![0; world.model[file].len() + 1];
        let read = handle.read_at(&mut bytes, 0).unwrap();
        assert_same(&bytes[..read], &world.model[file], "in memory");
    }
    let World { cache, handles, .. } = world;
    drop(handles);
    cache.validate().unwrap();
    cache.close().unwrap();
}

#[test]
fn a_device_that_fails_leaves_what_the_model_says() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("MGLRU_FAILING_SEED").unwrap_or(0);
    let count = number("MGLRU_FAILING").unwrap_or(if first > 0 { 1 } else { SEEDS });
    (first..first + count).for_each(run);
}
