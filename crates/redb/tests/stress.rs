//! A database on the cache against a model of it, with a budget that evicts all the time.

use mglru_cache::{BackendKind, Error, OpenMode, PageCache};
use mglru_redb::FileBackend;
use redb::{
    Builder, Database, Durability, ReadableDatabase, ReadableTable, ReadableTableMetadata, StorageBackend,
    TableDefinition,
};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("values");

fn cache() -> PageCache {
    let builder = PageCache::builder(3 << 20).tenant("db", 1 << 20).tenant("other", 1 << 20);
    builder.backend(BackendKind::Auto).build().unwrap()
}

fn open(cache: &PageCache, path: &Path) -> Database {
    let backend = FileBackend::open(&cache.tenant("db").unwrap(), path).unwrap();
    Builder::new().set_cache_size(64 << 10).create_with_backend(backend).unwrap()
}

fn value(key: u64, generation: u64) -> Vec<u8> {
    let mut word = key << 20 | generation;
    (0..100 + key % 900)
        .map(|_| {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (word >> 56) as u8
        })
        .collect()
}

/// Every key and value of the database is that of the model.
fn check(database: &Database, model: &BTreeMap<u64, u64>) {
    let table = database.begin_read().unwrap().open_table(TABLE).unwrap();
    assert_eq!(table.len().unwrap(), model.len() as u64);
    for (entry, (&key, &generation)) in table.iter().unwrap().zip(model) {
        let (found, bytes) = entry.unwrap();
        assert_eq!(found.value(), key);
        assert!(bytes.value() == value(key, generation), "key {key}");
    }
}

#[test]
fn a_database_larger_than_its_tenants_limit_keeps_every_value() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let mut model = BTreeMap::new();
    let mut state = 7u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for session in 0..3 {
        let cache = cache();
        let mut database = open(&cache, &path);
        if session > 0 {
            check(&database, &model);
        }
        for transaction in 0..30u64 {
            let mut write = database.begin_write().unwrap();
            let mut changed = model.clone();
            {
                let mut table = write.open_table(TABLE).unwrap();
                for _ in 0..100 {
                    let key = random(8000);
                    if random(4) == 0 {
                        let removed = table.remove(key).unwrap().is_some();
                        assert_eq!(removed, changed.remove(&key).is_some());
                    } else {
                        let generation = changed.get(&key).map_or(0, |known| known + 1);
                        table.insert(key, &value(key, generation)[..]).unwrap();
                        changed.insert(key, generation);
                    }
                }
            }
            match transaction % 5 {
                4 => write.abort().unwrap(),
                kind => {
                    if kind > 0 {
                        write.set_durability(Durability::None).unwrap();
                    }
                    write.commit().unwrap();
                    model = changed;
                }
            }
        }
        check(&database, &model);
        assert!(database.check_integrity().unwrap());
        let stats = cache.tenant("db").unwrap().stats();
        assert!(stats.peak_pages <= 256 && stats.misses > 0, "{stats:?}");
        drop(database);
        cache.close().unwrap();
    }
    // The system's own reader finds the same.
    check(&Database::open(&path).unwrap(), &model);
}

#[test]
fn a_file_has_one_database_and_moves_between_tenants() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let cache = cache();
    let backend = FileBackend::open(&cache.tenant("db").unwrap(), &path).unwrap();
    let database = Builder::new().create_with_backend(backend.clone()).unwrap();
    let error = FileBackend::open(&cache.tenant("other").unwrap(), &path).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert!(error.to_string().contains("close that one first"), "{error}");

    backend.move_to(&cache.tenant("other").unwrap()).unwrap();
    let elsewhere = PageCache::builder(1 << 20).build().unwrap();
    assert!(matches!(backend.move_to(&elsewhere.tenant("").unwrap()), Err(Error::ForeignTenant(_))));
    let write = database.begin_write().unwrap();
    write.open_table(TABLE).unwrap().insert(1, &value(1, 0)[..]).unwrap();
    write.commit().unwrap();
    assert!(cache.tenant("other").unwrap().stats().usage_pages > 0);
    // The database closes its backend, of which a clone is still there.
    drop(database);
    assert!(FileBackend::open(&cache.tenant("db").unwrap(), &path).is_ok());
    let closed = backend.read(0, &mut [0]).unwrap_err();
    assert!(closed.kind() == io::ErrorKind::NotConnected && closed.to_string().contains("is closed"));
    drop(backend);
    assert!(FileBackend::open(&cache.tenant("db").unwrap(), &path).is_ok());

    // Errors of the cache reach the caller of the database.
    let read_only = cache.open(&path, OpenMode::ReadOnly).unwrap();
    let write = || -> Result<(), redb::Error> {
        let database = Builder::new().create_with_backend(FileBackend::new(read_only))?;
        let write = database.begin_write()?;
        write.open_table(TABLE)?.insert(2, &value(2, 0)[..])?;
        Ok(write.commit()?)
    };
    let refused = write();
    assert!(refused.unwrap_err().to_string().contains("opened for reading only"));
}

#[allow(dead_code, reason = "only the example program calls its main")]
#[path = "../examples/ycsb_b.rs"]
mod ycsb_b;

/// The example works, with sizes that take little time. It checks the key of each record.
#[test]
fn the_example_reads_what_it_wrote() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (memory, own) = (2 << 20, 128 << 10);
    let sizes = ycsb_b::Sizes { memory, records: 4000, operations: 2000, turns: 2, own };
    let text = ycsb_b::run(directory.path(), sizes).unwrap();
    assert_eq!(text.matches("operations/s").count(), 2, "{text}");
}

/// Each of YCSB's loads runs under each preset, and reads what it wrote.
#[test]
fn the_example_runs_all_loads() {
    let directory = tempfile::tempdir_in(".").unwrap();
    let (memory, own) = (2 << 20, 128 << 10);
    let sizes = ycsb_b::Sizes { memory, records: 3000, operations: 400, turns: 1, own };
    let text = ycsb_b::run_presets(directory.path(), &ycsb_b::letters("abCDef").unwrap(), sizes).unwrap();
    for load in ["A", "B", "C", "D", "E", "F"] {
        for preset in ["linux-6.12", "linux-7.1", "linux-7.2", "default"] {
            assert_eq!(text.matches(&format!("| {load} | {preset} |")).count(), 1, "{text}");
        }
    }
    assert!(ycsb_b::letters("ag").unwrap_err().contains("`ag` are no loads"));
}
