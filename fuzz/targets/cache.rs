//! The cache over a file in memory, beside a vector of bytes: reads, writes, maps, cuts, holes,
//! advice, syncs, and limits of the tenant.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use mglru_cache::backend::MemoryFiles;
use mglru_cache::{
    Advice, AnonRegion, BackendKind, CachedFile, Error, Map, MapAdvice, OpenMode, PageCache, Swap, Tenant,
};
use mglru_core::{Lru, Mechanisms, Preset};
use mglru_fuzz::said;
use std::sync::Arc;

const PAGE: u64 = 4096;
/// The file and the region of anonymous memory have at most so many bytes, or a few more.
const BYTES_MAX: u64 = 400 * PAGE;
const OPERATIONS_MAX: usize = 300;

struct World {
    cache: PageCache,
    tenant: Tenant,
    files: Arc<MemoryFiles>,
    file: CachedFile,
    map: Option<Map>,
    region: AnonRegion,
    bytes: Vec<u8>,
    region_bytes: Vec<u8>,
}

/// A place in the file or the region: often at an edge of a page or at the end.
fn place(u: &mut Unstructured, len: u64) -> Result<u64> {
    let page = u64::from(u.arbitrary::<u16>()?) % (BYTES_MAX / PAGE);
    Ok(match u.int_in_range(0..=5)? {
        0 => len,
        1 => len.saturating_sub(u64::from(u.arbitrary::<u16>()?)),
        2 => page * PAGE,
        3 => page * PAGE + u64::from(u.arbitrary::<u16>()?) % PAGE,
        4 => page * PAGE + PAGE - 1,
        _ => u64::from(u.arbitrary::<u8>()?),
    })
}

fn length(u: &mut Unstructured) -> Result<u64> {
    let small = u64::from(u.arbitrary::<u8>()?);
    Ok(match u.int_in_range(0..=3)? {
        0 => small,
        1 => small * 64,
        2 => PAGE,
        _ => small % 80 * PAGE,
    })
}

fn content(seed: u8, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|at| seed.wrapping_mul(31).wrapping_add((at ^ at >> 8) as u8) | 1).collect()
}

/// A limit may be so low that requests fail. They then have no effect, or one of their pages.
fn is_refusal(error: &Error) -> bool {
    said(error);
    matches!(error, Error::OutOfMemory { .. })
}

impl World {
    fn new(u: &mut Unstructured) -> Result<World> {
        let files = MemoryFiles::new(u64::from(u.arbitrary::<u8>()?));
        let bytes = content(3, place(u, 0)?);
        files.set_contents("file", &bytes);
        let preset = *u.choose(&Preset::ALL)?;
        let mechanisms = Mechanisms::preset(preset).with_lru(*u.choose(&Lru::ALL)?);
        let budget = *u.choose(&[2 << 20, 4 << 20, 8 << 20])?;
        let builder = PageCache::builder(budget).backend(BackendKind::Memory(files.clone()));
        let builder = builder.mechanisms(mechanisms).tenant("a", 512 << 10);
        let builder = if u.arbitrary()? { builder.swap(Swap::compressed(1 << 20)) } else { builder };
        let cache = builder.build().expect("a small cache");
        let tenant = cache.tenant("a").expect("it was built with it");
        let file = tenant.open("file", OpenMode::ReadWrite).expect("the file is there");
        let region = tenant.anonymous(40 * PAGE + 5).expect("a small region");
        let region_bytes = vec![0; region.len() as usize];
        Ok(World { cache, tenant, files, file, map: None, region, bytes, region_bytes })
    }

    fn map(&mut self) -> &Map {
        self.map.get_or_insert_with(|| self.file.map().expect("a map of an open file"))
    }

    fn step(&mut self, u: &mut Unstructured) -> Result<()> {
        let len = self.bytes.len() as u64;
        let (kind, at, count) = (u.int_in_range(0..=25)?, place(u, len)?, length(u)?);
        let end = at + count;
        match kind {
            0..=3 => self.read(at, count),
            4..=7 => {
                let new = content(u.arbitrary()?, count);
                match self.file.write_at(&new, at) {
                    Ok(written) => assert_eq!(written as u64, count),
                    // The model has to know what was written before the failure.
                    Err(error) if is_refusal(&error) => return self.read_again(),
                    Err(error) => panic!("write: {error}"),
                }
                if count > 0 {
                    self.bytes.resize(len.max(end) as usize, 0);
                    self.bytes[at as usize..end as usize].copy_from_slice(&new);
                }
            }
            8 | 9 => {
                let mut out = vec![0x55; count as usize];
                let expected = self.bytes.get(at as usize..end as usize).map(<[u8]>::to_vec);
                match (self.map().load(at, &mut out), expected) {
                    (Ok(()), Some(expected)) => assert!(out == expected, "load of {count} at {at}"),
                    (Err(error), None) => said(&error),
                    (Err(error), Some(_)) if is_refusal(&error) => {}
                    (loaded, _) => panic!("load of {count} at {at} of {len}: {loaded:?}"),
                }
            }
            10 | 11 => {
                let new = content(u.arbitrary()?, count);
                match (self.map().store(at, &new), end <= len) {
                    (Ok(()), true) => self.bytes[at as usize..end as usize].copy_from_slice(&new),
                    (Err(error), false) => said(&error),
                    (Err(error), true) if is_refusal(&error) => return self.read_again(),
                    (stored, _) => panic!("store of {count} at {at} of {len}: {stored:?}"),
                }
            }
            12 => {
                let page = (at / PAGE) as usize;
                let expected = self.bytes.chunks(PAGE as usize).nth(page).map(<[u8]>::to_vec);
                match (self.map().page(page as u32), expected) {
                    (Ok(guard), Some(expected)) => assert!(guard[..] == expected, "view of page {page}"),
                    (Err(error), None) => said(&error),
                    (Err(error), Some(_)) if is_refusal(&error) => {}
                    (viewed, _) => panic!("view of page {page} of {len} bytes: {:?}", viewed.err()),
                }
            }
            13 | 14 => match self.file.truncate(at) {
                Ok(()) => self.bytes.resize(at as usize, 0),
                Err(error) => assert!(is_refusal(&error), "truncate: {error}"),
            },
            15 => match self.file.punch_hole(at..end) {
                Ok(()) => {
                    assert!(count > 0, "a hole of nothing");
                    let (from, to) = (at.min(len) as usize, end.min(len) as usize);
                    self.bytes[from..to].fill(0);
                }
                Err(error) => assert!(is_refusal(&error) || count == 0, "hole: {error}"),
            },
            16 => {
                let keep_len = u.arbitrary()?;
                match self.file.allocate(at..end, keep_len) {
                    Ok(()) if !keep_len => self.bytes.resize(len.max(end) as usize, 0),
                    Ok(()) => {}
                    Err(error) => said(&error),
                }
            }
            17 => {
                use Advice::{DontNeed, NoReuse, Normal, Random, Sequential, WillNeed};
                let advice = *u.choose(&[Normal, Sequential, Random, WillNeed, DontNeed, NoReuse])?;
                if let Err(error) = self.file.advise(advice, at..end) {
                    assert!(is_refusal(&error), "{advice:?}: {error}");
                }
                let advice = *u.choose(&[MapAdvice::Normal, MapAdvice::NoRecency])?;
                self.map().advise(advice);
            }
            18 => {
                match u.int_in_range(0..=3)? {
                    0 => self.file.sync_data(),
                    1 => self.file.sync_all(),
                    2 => self.cache.sync(),
                    _ => self.file.write_back(),
                }
                .unwrap_or_else(|error| panic!("sync: {error}"));
                assert!(self.files.contents("file").as_deref() == Some(&self.bytes[..]), "on disk");
            }
            19 => {
                self.map = None;
                let reopened = self.tenant.open("file", OpenMode::ReadWrite);
                match reopened {
                    Ok(file) => self.file = file,
                    Err(error) => assert!(is_refusal(&error), "open: {error}"),
                }
            }
            20..=22 => {
                let (at, end) = (at as usize, end as usize);
                let inside = end <= self.region_bytes.len();
                let result = match kind {
                    20 => {
                        let mut out = vec![0x55; count as usize];
                        self.region.load(at as u64, &mut out).map(|()| {
                            assert!(out == self.region_bytes[at..end], "anonymous load of {count} at {at}");
                        })
                    }
                    21 => {
                        let new = content(u.arbitrary()?, count);
                        self.region
                            .store(at as u64, &new)
                            .map(|()| self.region_bytes[at..end].copy_from_slice(&new))
                    }
                    _ => self.region.discard(at as u64..end as u64).map(|()| {
                        let to = if end == self.region_bytes.len() { end } else { end & !4095 };
                        let from = at.next_multiple_of(4096);
                        self.region_bytes.get_mut(from..to).unwrap_or_default().fill(0);
                    }),
                };
                match result {
                    Ok(()) => assert!(inside, "anonymous {at}..{end}"),
                    Err(error) if inside && kind != 20 => {
                        assert!(is_refusal(&error), "anonymous {kind} {at}..{end}: {error}");
                        self.region_again();
                    }
                    Err(error) => assert!(is_refusal(&error) || !inside, "anonymous {at}..{end}: {error}"),
                }
            }
            _ => {
                let bytes = *u.choose(&[None, Some(100 << 10), Some(300 << 10), Some(500 << 10)])?;
                // Not `memory.high` and its like: their pauses take seconds.
                let set = match u.int_in_range(0..=3)? {
                    0 => self.tenant.set_max(bytes),
                    1 => self.tenant.set_low(bytes.unwrap_or(u64::MAX)),
                    2 => self.tenant.set_min(bytes.unwrap_or(u64::MAX)),
                    _ => self.tenant.set_swap_max(bytes),
                };
                if let Err(error) = set {
                    said(&error);
                }
            }
        }
        assert_eq!(self.file.len(), self.bytes.len() as u64, "length after {kind}");
        Ok(())
    }

    fn read(&self, at: u64, count: u64) {
        let mut out = vec![0x55; count as usize];
        let read = match self.file.read_at(&mut out, at) {
            Ok(read) => read,
            Err(error) => return assert!(is_refusal(&error), "read: {error}"),
        };
        let from = self.bytes.len().min(at as usize);
        let to = self.bytes.len().min((at + count) as usize);
        assert!(out[..read] == self.bytes[from..to], "read of {count} at {at}");
        assert!(out[read..].iter().all(|&byte| byte == 0x55), "read behind the end");
    }

    /// Makes room, and takes the file as the model. Bytes that no failed request may have changed
    /// are not checked.
    fn read_again(&mut self) -> Result<()> {
        self.make_room();
        self.bytes.resize(self.file.len() as usize, 0);
        let read = self.file.read_at(&mut self.bytes, 0).unwrap_or_else(|error| panic!("again: {error}"));
        assert_eq!(read, self.bytes.len());
        Ok(())
    }

    fn region_again(&mut self) {
        self.make_room();
        self.region.load(0, &mut self.region_bytes).unwrap_or_else(|error| panic!("again: {error}"));
    }

    fn make_room(&self) {
        self.tenant.set_max(None).expect("a limit may be lifted");
        self.tenant.set_min(0).expect("a protection may be lifted");
        self.tenant.set_low(0).expect("a protection may be lifted");
        self.tenant.set_swap_max(None).expect("a limit may be lifted");
    }
}

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let Ok(mut world) = World::new(&mut u) else { return };
    for _ in 0..OPERATIONS_MAX {
        if u.is_empty() || world.step(&mut u).is_err() {
            break;
        }
    }
    world.make_room();
    world.read(0, world.bytes.len() as u64 + 1);
    let World { cache, tenant, files, file, map, region, bytes, .. } = world;
    drop((map, file, region, tenant));
    cache.validate().unwrap_or_else(|what| panic!("{what}"));
    cache.close().unwrap_or_else(|error| panic!("close: {error}"));
    assert!(files.contents("file").as_deref() == Some(&bytes[..]), "in the end");
});
