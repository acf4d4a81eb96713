//! After a crash at a random point, every durable commit is there. Every other one is there as a
//! whole or not at all.
//!
//! Each transaction writes its own number and changes that follow from it. So after a crash the
//! number says which content the database must have; it must not be lower than the last durable
//! commit that was confirmed, nor higher than the last one that was begun.
//!
//! `MGLRU_CRASH=N` sets the number of crashes of each kind (`make crash`: 1000).

use mglru_cache::backend::MemoryFiles;
use mglru_cache::{BackendKind, OpenMode, PageCache};
use mglru_redb::FileBackend;
use redb::{
    Builder, Database, Durability, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("values");
/// The key of the number of the last transaction.
const NUMBER: u64 = u64::MAX;

fn crashes(by_default: u64) -> u64 {
    std::env::var("MGLRU_CRASH").map_or(by_default, |text| text.parse().unwrap())
}

fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn value(key: u64, transaction: u64) -> Vec<u8> {
    let seed = mix(key << 32 | transaction);
    (0..50 + seed % 700).map(|at| mix(seed + at / 8).to_le_bytes()[at as usize % 8]).collect()
}

/// The changes of a transaction: keys, and whether each is inserted or removed.
fn changes(seed: u64, transaction: u64) -> impl Iterator<Item = (u64, bool)> {
    (0..30).map(move |at| {
        let word = mix(seed << 40 | transaction << 8 | at);
        (word % 2000, !(word >> 32).is_multiple_of(4))
    })
}

/// The content after so many transactions: for each key, the one that wrote it.
fn content(seed: u64, transactions: u64) -> BTreeMap<u64, u64> {
    let mut content = BTreeMap::new();
    for transaction in 1..=transactions {
        for (key, is_inserted) in changes(seed, transaction) {
            match is_inserted {
                true => _ = content.insert(key, transaction),
                false => _ = content.remove(&key),
            }
        }
    }
    content
}

fn is_durable(seed: u64, transaction: u64) -> bool {
    !mix(seed ^ transaction << 20).is_multiple_of(3)
}

fn transact(database: &Database, seed: u64, transaction: u64) -> Result<(), redb::Error> {
    let mut write = database.begin_write()?;
    if !is_durable(seed, transaction) {
        write.set_durability(Durability::None)?;
    }
    {
        let mut table = write.open_table(TABLE)?;
        for (key, is_inserted) in changes(seed, transaction) {
            match is_inserted {
                true => drop(table.insert(key, &value(key, transaction)[..])?),
                false => drop(table.remove(key)?),
            }
        }
        table.insert(NUMBER, &transaction.to_le_bytes()[..])?;
    }
    Ok(write.commit()?)
}

/// Checks what a database has after a crash, and returns its number of transactions.
fn check(database: &mut Database, seed: u64, possible: std::ops::RangeInclusive<u64>) -> u64 {
    assert!(database.check_integrity().unwrap(), "seed {seed}");
    let read = database.begin_read().unwrap();
    let table = match read.open_table(TABLE) {
        Ok(table) => table,
        Err(error) => {
            assert_eq!(*possible.start(), 0, "seed {seed}: {error}");
            return 0;
        }
    };
    let number = u64::from_le_bytes(table.get(NUMBER).unwrap().unwrap().value().try_into().unwrap());
    assert!(possible.contains(&number), "seed {seed}: transaction {number} of {possible:?}");
    let expected = content(seed, number);
    assert_eq!(table.len().unwrap(), expected.len() as u64 + 1, "seed {seed}, transaction {number}");
    for (entry, (key, transaction)) in table.iter().unwrap().zip(expected) {
        let (found, bytes) = entry.unwrap();
        assert!(found.value() == key && bytes.value() == value(key, transaction), "seed {seed}, key {key}");
    }
    number
}

fn open(cache: &PageCache, path: &str) -> Result<Database, redb::Error> {
    let file = cache.tenant("db").and_then(|tenant| tenant.open(path, OpenMode::Create));
    let file = file.map_err(std::io::Error::from)?;
    Ok(Builder::new().set_cache_size(64 << 10).create_with_backend(FileBackend::new(file))?)
}

/// The disk keeps any version of each sector that was not synced.
#[test]
fn power() {
    let mut confirmed_in_all = 0;
    for seed in 0..crashes(20) {
        let files = MemoryFiles::new(seed);
        files.tear_sectors();
        let (mut confirmed, mut begun) = (0, 0);
        for life in 0..4 {
            let builder = PageCache::builder(2 << 20).backend(BackendKind::Memory(files.clone()));
            let cache = builder.tenant("db", 256 << 10).build().unwrap();
            let mut database = match open(&cache, "db") {
                Ok(database) => database,
                Err(error) => {
                    // The power failed while it was being created.
                    assert_eq!(confirmed, 0, "seed {seed}: {error}");
                    files.remove("db");
                    open(&cache, "db").unwrap()
                }
            };
            let mut last = check(&mut database, seed, confirmed..=begun);
            confirmed = last;
            files.cut_power_after(mix(seed << 8 | life) % 1500);
            loop {
                begun = last + 1;
                if transact(&database, seed, begun).is_err() {
                    break;
                }
                last = begun;
                if is_durable(seed, begun) {
                    confirmed = begun;
                    confirmed_in_all += 1;
                }
            }
            drop(database);
            drop(cache);
            files.restore_power();
        }
    }
    assert!(confirmed_in_all > 20, "{confirmed_in_all} commits were confirmed");
}

const CHILD: &str = "MGLRU_CRASH_CHILD";

/// Not a test by itself, but the killed process.
#[test]
fn child_that_is_killed() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let (seed, path) = arguments.split_once(' ').unwrap();
    let seed = seed.parse().unwrap();
    let cache = PageCache::builder(2 << 20).tenant("db", 256 << 10).build().unwrap();
    let database = open(&cache, path).unwrap();
    for transaction in 1.. {
        transact(&database, seed, transaction).unwrap();
        if is_durable(seed, transaction) {
            println!("\nconfirmed {transaction}");
            std::io::stdout().flush().unwrap();
        }
    }
}

#[test]
fn kill() {
    for seed in 0..crashes(4) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_is_killed", "--nocapture"])
            .env(CHILD, format!("{seed} {}", path.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (kill_at, mut confirmed, mut count) = (1 + mix(seed) % 60, 0, 0);
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Some(number) = line.strip_prefix("confirmed ") else { continue };
            confirmed = number.parse().unwrap();
            count += 1;
            if count == kill_at {
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success() && count >= kill_at, "seed {seed}: it ended by itself");
        recovers(&path, seed, confirmed);
    }
}

/// Both the cache and the system's own reader find every confirmed commit.
fn recovers(path: &Path, seed: u64, confirmed: u64) {
    let mut plain = Database::open(path).unwrap();
    let number = check(&mut plain, seed, confirmed..=u64::MAX);
    drop(plain);
    let cache = PageCache::builder(2 << 20).tenant("db", 256 << 10).build().unwrap();
    let mut database = open(&cache, path.to_str().unwrap()).unwrap();
    assert_eq!(check(&mut database, seed, confirmed..=u64::MAX), number);
}
