//! A key-value store on a map: a hash table in a file that is four times as large as the memory
//! that the cache may use.
//!
//! `cargo run --release -p mglru-cache --example key_value`

use mglru_cache::{Advice, CachedFile, Error, Map, OpenMode, PageCache};
use std::fmt::Write;
use std::path::Path;

/// Bytes of a record: key, length of the value, value. A power of two, so that no record crosses
/// the end of a page.
const RECORD: u64 = 64;
/// The longest value, in bytes.
const VALUE_MAX: usize = RECORD as usize - 9;

/// A hash table with open addressing. A record with key 0 is empty.
struct Store {
    file: CachedFile,
    map: Map,
    records: u64,
}

impl Store {
    /// Opens a store with room for `records`, a power of two, in a file that keeps its content.
    fn open(cache: &PageCache, path: &Path, records: u64) -> Result<Store, Error> {
        let file = cache.open(path, OpenMode::Create)?;
        if file.len() < records * RECORD {
            file.truncate(records * RECORD)?; // a hole: it reads as zeros
        }
        // Keys are spread by a hash: pages around a missing one are of no use.
        file.advise(Advice::Random, 0..0)?;
        let map = file.map()?;
        Ok(Store { file, map, records })
    }

    /// The place of a key, or the empty record where it belongs.
    fn find(&self, key: u64, record: &mut [u8; RECORD as usize]) -> Result<u64, Error> {
        assert!(key != 0, "0 marks empty records");
        let mut at = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        loop {
            let offset = at % self.records * RECORD;
            // The key alone first: most records on the way are others.
            let found: u64 = self.map.load_value(offset)?;
            if found == key || found == 0 {
                self.map.load(offset, record)?;
                return Ok(offset);
            }
            at += 1;
        }
    }

    fn put(&self, key: u64, value: &[u8]) -> Result<(), Error> {
        assert!(value.len() <= VALUE_MAX, "a value has at most {VALUE_MAX} bytes");
        let mut record = [0; RECORD as usize];
        let offset = self.find(key, &mut record)?;
        record[..8].copy_from_slice(&key.to_le_bytes());
        record[8] = value.len() as u8;
        record[9..9 + value.len()].copy_from_slice(value);
        self.map.store(offset, &record)
    }

    fn get(&self, key: u64) -> Result<Option<Vec<u8>>, Error> {
        let mut record = [0; RECORD as usize];
        self.find(key, &mut record)?;
        let is_there = record[..8] == key.to_le_bytes();
        Ok(is_there.then(|| record[9..9 + usize::from(record[8])].to_vec()))
    }

    /// Puts everything on stable storage.
    fn sync(&self) -> Result<(), Error> {
        self.file.sync_data()
    }
}

/// Fills a store, and reads it after a restart. Returns what `main` prints.
pub fn run(directory: &Path) -> Result<String, Error> {
    let path = directory.join("table");
    let (records, keys) = (1 << 16, 40_000);
    let budget_bytes = records * RECORD / 4;
    let mut text = String::new();
    let mut say =
        |line: std::fmt::Arguments<'_>| writeln!(text, "{line}").expect("a string takes everything");

    let cache = PageCache::builder(budget_bytes).build()?;
    let store = Store::open(&cache, &path, records)?;
    for key in 1..=keys {
        store.put(key, format!("value of {key}").as_bytes())?;
    }
    store.sync()?;
    say(format_args!(
        "{keys} keys in a file of {} KiB, through {} KiB of memory",
        store.map.len() >> 10,
        budget_bytes >> 10
    ));
    drop(store);
    cache.close()?;

    let cache = PageCache::builder(budget_bytes).build()?;
    let store = Store::open(&cache, &path, records)?;
    // Nine of ten reads are of a tenth of the keys.
    let mut state = 1u64;
    for _ in 0..50_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let hot = !(state >> 40).is_multiple_of(10);
        let key = 1 + (state >> 33) % if hot { keys / 10 } else { keys };
        assert_eq!(store.get(key)?.as_deref(), Some(format!("value of {key}").as_bytes()));
    }
    assert_eq!(store.get(keys + 1)?, None);
    let misses = cache.tenant("")?.stats().misses;
    say(format_args!("after a restart: 50000 reads, of which {misses} missed"));
    drop(store);
    cache.close()?;
    Ok(text)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    print!("{}", run(directory.path())?);
    Ok(())
}
