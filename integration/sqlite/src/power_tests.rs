//! SQLite on a disk in memory that loses power: no reported commit is lost with `synchronous=FULL`,
//! a WAL with `synchronous=NORMAL` loses the last ones only, and no database is damaged.

use crate::disk::Disk;
use mglru_cache::backend::{Fault, FaultEffect, FaultOperation, FaultTrigger, MemoryFiles};
use mglru_cache::{BackendKind, PageCache};
use rusqlite::{Connection, OpenFlags, params};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows by key.
type Model = BTreeMap<i64, i64>;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn text(key: i64, generation: i64) -> String {
    format!("{key}/{generation} ").repeat(1 + (key * 7 % 90) as usize)
}

/// A new cache over the disk, and a connection to its database.
fn open(files: &Arc<MemoryFiles>, pragmas: &str) -> rusqlite::Result<(PageCache, Connection)> {
    open_named(files, pragmas).map(|(cache, database, _)| (cache, database))
}

/// As [`open`], with the name of the file system for other connections.
fn open_named(files: &Arc<MemoryFiles>, pragmas: &str) -> rusqlite::Result<(PageCache, Connection, String)> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("mglru-power-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let builder = PageCache::builder(1 << 20).backend(BackendKind::Memory(files.clone()));
    let cache = builder.build().unwrap();
    crate::register_on(&name, cache.tenant("").unwrap(), Disk::Memory(files.clone())).unwrap();
    let database = Connection::open_with_flags_and_vfs("db", OpenFlags::default(), &*name)?;
    database.execute_batch(pragmas)?;
    Ok((cache, database, name))
}

/// One transaction of some changes.
fn change(database: &mut Connection, model: &mut Model, random: &mut Random) -> rusqlite::Result<()> {
    let write = database.transaction()?;
    for _ in 0..1 + random.below(30) {
        let key = random.below(400) as i64;
        if random.below(4) == 0 {
            write.execute("DELETE FROM t WHERE key = ?1", [key])?;
            model.remove(&key);
        } else {
            let generation = model.get(&key).map_or(0, |known| known + 1);
            let row = params![key, generation, text(key, generation)];
            write.execute("INSERT OR REPLACE INTO t VALUES (?1, ?2, ?3)", row)?;
            model.insert(key, generation);
        }
    }
    write.commit()
}

fn rows(database: &Connection) -> Model {
    let mut rows = database.prepare("SELECT key, generation, value FROM t").unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?))).unwrap();
    let checked = rows.map(|row| {
        let (key, generation, value) = row.unwrap();
        assert_eq!(value, text(key, generation));
        (key, generation)
    });
    checked.collect()
}

/// Changes a database until the power fails. Returns the state after each transaction, beginning
/// with the empty one, and how many were reported as committed. The last state may be of one that
/// was not.
fn until_power_fails(files: &Arc<MemoryFiles>, pragmas: &str, random: &mut Random) -> (Vec<Model>, usize) {
    let (cache, database) = open(files, pragmas).unwrap();
    database.execute_batch("CREATE TABLE t (key INTEGER PRIMARY KEY, generation, value)").unwrap();
    drop(database);
    cache.sync().unwrap();
    let (again, mut database) = open(files, pragmas).unwrap();
    files.cut_power_after(random.below(400));
    let mut states = vec![Model::new()];
    let mut commits = 0;
    loop {
        let mut model = states[commits].clone();
        let done = change(&mut database, &mut model, random);
        states.push(model);
        match done {
            Ok(()) => commits += 1,
            Err(_) => break,
        }
    }
    drop(database);
    // Without power, so what is in memory is lost.
    let _ = (cache.close(), again.close());
    files.restore_power();
    (states, commits)
}

#[test]
fn a_power_loss_loses_no_reported_commit() {
    for (number, mode) in ["DELETE", "TRUNCATE", "PERSIST", "WAL"].into_iter().enumerate() {
        for seed in 0..12 {
            let mut random = Random(seed * 4 + number as u64);
            let files = MemoryFiles::new(seed);
            files.tear_sectors();
            let pragmas =
                format!("PRAGMA cache_size = 20; PRAGMA journal_mode = {mode}; PRAGMA synchronous = FULL");
            let (states, commits) = until_power_fails(&files, &pragmas, &mut random);
            let (_cache, database) = open(&files, &pragmas).unwrap();
            let found = rows(&database);
            assert!(
                found == states[commits] || found == states[commits + 1],
                "{mode}, seed {seed}: {} rows after {commits} commits",
                found.len()
            );
            let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(check, "ok", "{mode}, seed {seed}");
        }
    }
}

#[test]
fn a_wal_that_is_not_synced_loses_the_last_commits_only() {
    let mut lost = 0;
    for seed in 0..24 {
        let mut random = Random(seed);
        let files = MemoryFiles::new(seed);
        files.tear_sectors();
        let pragmas = "PRAGMA cache_size = 20; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
             PRAGMA wal_autocheckpoint = 50";
        let (states, commits) = until_power_fails(&files, pragmas, &mut random);
        let (_cache, database) = open(&files, pragmas).unwrap();
        let found = rows(&database);
        let kept = states.iter().rposition(|state| *state == found);
        let kept = kept.unwrap_or_else(|| panic!("seed {seed}: the state of no commit"));
        lost += u64::from(kept < commits);
        let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok", "seed {seed}");
    }
    assert!(lost > 0, "the test is to lose commits");
}

/// A connection that syncs nothing creates the WAL; another one commits to it and syncs.
#[test]
fn a_commit_is_kept_whoever_created_the_wal() {
    for seed in 0..8 {
        let files = MemoryFiles::new(seed);
        files.tear_sectors();
        let (_cache, database) = open(&files, "CREATE TABLE t (a); PRAGMA journal_mode = WAL").unwrap();
        database.close().unwrap();
        files.sync_names();
        let (cache, first, name) = open_named(&files, "PRAGMA synchronous = OFF").unwrap();
        first.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        let second = Connection::open_with_flags_and_vfs("db", OpenFlags::default(), &*name).unwrap();
        second.execute_batch("PRAGMA synchronous = FULL; INSERT INTO t VALUES (2)").unwrap();
        files.cut_power();
        drop((first, second));
        let _ = cache.close();
        files.restore_power();
        let (_cache, database) = open(&files, "").unwrap();
        let sum: Option<i64> = database.query_row("SELECT sum(a) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(sum, Some(3), "seed {seed}");
    }
}

/// A write that fails once: SQLite does not hear of it if the data is on the disk after all, and so
/// does not undo what is there.
#[test]
fn a_failure_that_is_over_fails_no_commit() {
    for mode in ["DELETE", "WAL"] {
        let files = MemoryFiles::new(1);
        let pragmas = format!("PRAGMA synchronous = FULL; PRAGMA journal_mode = {mode}; CREATE TABLE t (a)");
        let (_cache, database) = open(&files, &pragmas).unwrap();
        let fails = FaultEffect::Error(libc::EIO);
        files.inject(Fault::new(FaultOperation::Write, FaultTrigger::Nth(1), fails));
        database.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        assert_eq!(database.query_row("SELECT a FROM t", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    }
}
