//! Compares the cache with a naive model, one byte vector per file: all operations of handles and
//! maps, at random offsets and lengths, on every backend, checked after each operation.

use crate::common::{Context, Disk, PAGE, Random, assert_same};
use mglru_cache::{Advice, CachedFile, Map, MapAdvice, OpenMode, PageCache};

const FILES: usize = 3;
const FILE_BYTES_MAX: u64 = 600 * PAGE as u64;

struct World<'a> {
    disk: &'a Disk,
    cache: PageCache,
    random: Random,
    handles: Vec<Vec<CachedFile>>,
    maps: Vec<Option<Map>>,
    model: Vec<Vec<u8>>,
}

fn name(file: usize) -> String {
    format!("file{file}")
}

impl<'a> World<'a> {
    fn new(disk: &'a Disk, seed: u64) -> World<'a> {
        let mut random = Random(seed);
        let budget = [1 << 20, 3 << 20, 20 << 20][random.below(3) as usize];
        let limit = [60 * PAGE as u64, 1 << 20][random.below(2) as usize];
        let cache = disk.builder(budget).tenant("tight", limit).build().unwrap();
        let mut model = Vec::new();
        for file in 0..FILES {
            // Empty, an odd number of bytes, or whole pages.
            let bytes = [0, random.below(200_000), 64 * PAGE as u64][file];
            let contents: Vec<u8> = (0..bytes).map(|_| random.word() as u8).collect();
            disk.set(&name(file), &contents);
            model.push(contents);
        }
        let mut world = World {
            disk,
            cache,
            random,
            handles: Vec::new(),
            maps: (0..FILES).map(|_| None).collect(),
            model,
        };
        world.handles = (0..FILES).map(|file| vec![world.open(file)]).collect();
        world
    }

    fn open(&mut self, file: usize) -> CachedFile {
        let tenant = if self.random.one_in(2) { "tight" } else { "" };
        let tenant = self.cache.tenant(tenant).unwrap();
        tenant.open(self.disk.path(&name(file)), OpenMode::ReadWrite).unwrap()
    }

    fn handle(&mut self, file: usize) -> CachedFile {
        let count = self.handles[file].len() as u64;
        let which = self.random.below(count) as usize;
        if self.random.one_in(2) {
            self.handles[file].swap(0, which)
        }
        self.handles[file][0].try_clone().unwrap()
    }

    /// A random offset and length: small or large, aligned or not, inside the file or beyond its
    /// end.
    fn range(&mut self, file: usize) -> (u64, usize) {
        let random = &mut self.random;
        let len = self.model[file].len() as u64;
        let length = match random.below(6) {
            0 => random.below(9),
            1 => random.below(600),
            2 => PAGE as u64,
            3 => random.below(3 * PAGE as u64),
            4 => PAGE as u64 * random.below(40),
            _ => random.below(200_000),
        };
        let offset = match random.below(6) {
            0 => len,
            1 => len.saturating_sub(random.below(PAGE as u64 * 2)),
            2 => random.below(FILE_BYTES_MAX / PAGE as u64) * PAGE as u64,
            3 => 0,
            _ => random.below(len + 1),
        };
        (offset, length as usize)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut word = self.random.word();
        (0..length)
            .map(|index| {
                word = word.rotate_left(8).wrapping_add(index as u64);
                word as u8
            })
            .collect()
    }

    fn step(&mut self) -> String {
        let file = self.random.below(FILES as u64) as usize;
        let (offset, length) = self.range(file);
        match self.random.below(40) {
            0..10 => {
                self.read(file, offset, length);
                format!("read of {length} bytes at {offset} of {file}")
            }
            10..18 => {
                let bytes = self.bytes(length);
                let handle = self.handle(file);
                assert_eq!(handle.write_at(&bytes, offset).unwrap(), length);
                let model = &mut self.model[file];
                if length > 0 {
                    let end = offset as usize + length;
                    model.resize(model.len().max(end), 0);
                    model[offset as usize..end].copy_from_slice(&bytes);
                }
                format!("write of {length} bytes at {offset} of {file}")
            }
            18..22 => {
                let mut bytes = vec![0x55; length];
                let result = self.map(file).load(offset, &mut bytes);
                let model = &self.model[file];
                match model.get(offset as usize..offset as usize + length) {
                    Some(expected) => {
                        result.unwrap();
                        assert_same(&bytes, expected, "load");
                    }
                    None => drop(result.unwrap_err()),
                }
                format!("load of {length} bytes at {offset} of {file}")
            }
            22..26 => {
                let bytes = self.bytes(length);
                let result = self.map(file).store(offset, &bytes);
                let model = &mut self.model[file];
                match model.get_mut(offset as usize..offset as usize + length) {
                    Some(place) => {
                        result.unwrap();
                        place.copy_from_slice(&bytes);
                    }
                    None => drop(result.unwrap_err()),
                }
                format!("store of {length} bytes at {offset} of {file}")
            }
            26..29 => {
                let index = offset / PAGE as u64;
                self.map(file);
                let guard = self.maps[file].as_ref().unwrap().page(index as u32);
                match self.model[file].chunks(PAGE).nth(index as usize) {
                    Some(expected) => assert_same(&guard.unwrap(), expected, "view"),
                    None => drop(guard.err().unwrap()),
                }
                format!("view of page {index} of {file}")
            }
            29..32 => {
                self.handle(file).truncate(offset).unwrap();
                self.model[file].resize(offset as usize, 0);
                format!("truncation of {file} to {offset}")
            }
            32 => {
                let handle = self.handle(file);
                if self.random.one_in(2) { handle.sync_all() } else { handle.sync_data() }.unwrap();
                assert_same(&self.disk.contents(&name(file)), &self.model[file], "on disk");
                format!("sync of {file}")
            }
            33 => {
                self.cache.sync().unwrap();
                for file in 0..FILES {
                    assert_same(&self.disk.contents(&name(file)), &self.model[file], "on disk");
                }
                "sync of all".to_owned()
            }
            34..37 => {
                let advice = [
                    Advice::Normal,
                    Advice::Sequential,
                    Advice::Random,
                    Advice::WillNeed,
                    Advice::DontNeed,
                    Advice::NoReuse,
                ][self.random.below(6) as usize];
                self.handles[file][0].advise(advice, offset..offset + length as u64).unwrap();
                format!("{advice:?} for {length} bytes at {offset} of {file}")
            }
            37 => {
                let advice = if self.random.one_in(2) { MapAdvice::Normal } else { MapAdvice::NoRecency };
                self.map(file).advise(advice);
                format!("{advice:?} for the map of {file}")
            }
            38 => {
                // Closes all handles, so that the cache may forget the file, and opens it again.
                self.maps[file] = None;
                self.handles[file].clear();
                let handle = self.open(file);
                self.handles[file].push(handle);
                format!("{file} closed and opened")
            }
            _ => {
                let handle = self.open(file);
                self.handles[file].push(handle);
                self.maps[file] = None;
                format!("{file} opened once more")
            }
        }
    }

    fn read(&mut self, file: usize, offset: u64, length: usize) {
        let mut buffer = vec![0x55; length];
        let bytes = self.handle(file).read_at(&mut buffer, offset).unwrap();
        let model = &self.model[file];
        let from = model.len().min(offset as usize);
        assert_same(&buffer[..bytes], &model[from..model.len().min(from + length)], "read");
        assert!(buffer[bytes..].iter().all(|byte| *byte == 0x55), "nothing is put behind the end");
    }

    fn map(&mut self, file: usize) -> &Map {
        if self.maps[file].is_none() {
            self.maps[file] = Some(self.handles[file][0].map().unwrap());
        }
        self.maps[file].as_ref().unwrap()
    }
}

#[test]
fn handles_and_maps_agree_with_a_vector() {
    // Set this to more than six for a longer test.
    let seeds = std::env::var("MGLRU_MODEL_SEEDS").ok().map_or(6, |text| text.parse().unwrap());
    for seed in 0..seeds {
        for disk in Disk::each(seed) {
            let mut world = World::new(&disk, seed);
            let mut last = String::new();
            for step in 0..400 {
                // Printed if a step panics.
                let context = Context(format!("seed {seed}, step {step}, after {last}"));
                last = world.step();
                for (file, handles) in world.handles.iter().enumerate() {
                    assert_eq!(handles[0].len() as usize, world.model[file].len(), "after {last}");
                }
                drop(context);
            }
            for file in 0..FILES {
                world.read(file, 0, world.model[file].len() + 1);
            }
            let World { cache, handles, maps, model, .. } = world;
            drop((handles, maps));
            cache.validate().unwrap_or_else(|what| panic!("seed {seed}: {what}"));
            cache.close().unwrap();
            for (file, model) in model.iter().enumerate() {
                assert_same(
                    &disk.contents(&name(file)),
                    model,
                    format!("in the end, seed {seed}, file {file}"),
                );
            }
        }
    }
}
