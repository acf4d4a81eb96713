//! SQLite itself over the cache: contents, journal modes, connections at once, killed processes.

use mglru_cache::PageCache;
use rusqlite::{Connection, OpenFlags, params};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// One cache for all tests of the process: a registered VFS stays.
fn cache() -> &'static PageCache {
    static CACHE: OnceLock<PageCache> = OnceLock::new();
    CACHE.get_or_init(|| {
        let cache = PageCache::builder(4 << 20).tenant("sql", 1 << 20).build().unwrap();
        mglru_sqlite::register("mglru", cache.tenant("sql").unwrap()).unwrap();
        cache
    })
}

fn open(path: &Path) -> Connection {
    cache();
    let database = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), "mglru").unwrap();
    database.busy_timeout(Duration::from_secs(60)).unwrap();
    database.execute_batch("PRAGMA cache_size = 20; PRAGMA synchronous = FULL;").unwrap();
    database
}

fn set_mode(database: &Connection, mode: &str) {
    let set: String =
        database.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get(0)).unwrap();
    assert_eq!(set, mode);
}

fn intact(database: &Connection) {
    let found: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(found, "ok");
}

fn text(key: i64, generation: i64) -> String {
    let word = (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ generation as u64;
    format!("{key}/{generation}/{word:016x}").repeat(1 + (key as usize % 40))
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn check(database: &Connection, model: &BTreeMap<i64, i64>) {
    let mut rows = database.prepare("SELECT key, value FROM t ORDER BY key").unwrap();
    let rows = rows.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?))).unwrap();
    let found: Vec<(i64, String)> = rows.map(Result::unwrap).collect();
    let expected: Vec<(i64, String)> =
        model.iter().map(|(&key, &generation)| (key, text(key, generation))).collect();
    assert!(found == expected, "{} rows for {}", found.len(), expected.len());
}

#[test]
fn every_journal_mode_keeps_every_row_of_a_database_larger_than_the_limit() {
    for mode in ["delete", "truncate", "persist", "wal", "memory"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let mut model = BTreeMap::new();
        let mut random = Random(5);
        for session in 0..2 {
            let mut database = open(&path);
            set_mode(&database, mode);
            if session == 0 {
                database
                    .execute_batch(
                        "CREATE TABLE t (key INTEGER PRIMARY KEY, value TEXT); CREATE INDEX i ON t (value);",
                    )
                    .unwrap();
            }
            check(&database, &model);
            for step in 0..12u64 {
                let write = database.transaction().unwrap();
                let mut changed = model.clone();
                for _ in 0..150 {
                    let key = random.below(3000) as i64;
                    if random.below(5) == 0 {
                        write.execute("DELETE FROM t WHERE key = ?1", [key]).unwrap();
                        changed.remove(&key);
                    } else {
                        let generation = changed.get(&key).map_or(0, |known| known + 1);
                        write
                            .execute(
                                "INSERT OR REPLACE INTO t VALUES (?1, ?2)",
                                params![key, text(key, generation)],
                            )
                            .unwrap();
                        changed.insert(key, generation);
                    }
                }
                if step % 4 == 3 {
                    write.rollback().unwrap();
                } else {
                    write.commit().unwrap();
                    model = changed;
                }
            }
            check(&database, &model);
            if session == 1 {
                database.execute_batch("VACUUM").unwrap();
                check(&database, &model);
            }
            intact(&database);
            database.close().unwrap();
        }
        // SQLite's own file system finds the same.
        let plain = Connection::open(&path).unwrap();
        intact(&plain);
        check(&plain, &model);
        let stats = cache().tenant("sql").unwrap().stats();
        assert!(stats.peak_pages <= 256 && stats.misses > 0, "{stats:?}");
    }
}

/// Threads with connections of their own move amounts between accounts; every sum that a reader
/// sees is the same.
#[test]
fn connections_at_once_see_whole_transactions() {
    for mode in ["delete", "wal"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bank");
        let database = open(&path);
        set_mode(&database, mode);
        database.execute_batch("CREATE TABLE a (id INTEGER PRIMARY KEY, n INTEGER, filler TEXT)").unwrap();
        for id in 0..300 {
            database.execute("INSERT INTO a VALUES (?1, 100, ?2)", params![id, text(id, 0)]).unwrap();
        }
        let sum = |database: &Connection| {
            database.query_row("SELECT sum(n) FROM a", [], |row| row.get::<_, i64>(0)).unwrap()
        };
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let path = &path;
                scope.spawn(move || {
                    let mut database = open(path);
                    let mut random = Random(thread);
                    for _ in 0..25 {
                        let write = database
                            .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
                            .unwrap();
                        let (from, to) = (random.below(300), random.below(300));
                        write.execute("UPDATE a SET n = n - 1 WHERE id = ?1", [from as i64]).unwrap();
                        write.execute("UPDATE a SET n = n + 1 WHERE id = ?1", [to as i64]).unwrap();
                        write.commit().unwrap();
                    }
                });
                scope.spawn(move || {
                    let database = open(path);
                    (0..40).for_each(|_| assert_eq!(sum(&database), 30_000));
                });
            }
        });
        assert_eq!(sum(&database), 30_000);
        intact(&database);
    }
}

#[test]
fn big_sorts_use_temporary_files_that_disappear() {
    let directory = tempfile::tempdir().unwrap();
    let given = ["SQLITE_TMPDIR", "TMPDIR"].into_iter().find_map(std::env::var_os);
    let temporary = given.map_or("/var/tmp".into(), std::path::PathBuf::from);
    // An earlier process with this number was killed and left names behind.
    let name = |number| format!("mglru-sqlite-{}-{number}", std::process::id());
    let names: Vec<_> = (0..200).map(|number| temporary.join(name(number))).collect();
    let names: Vec<_> = names.into_iter().filter(|name| File::create_new(name).is_ok()).collect();
    names.iter().for_each(|name| std::fs::write(name, "other").unwrap());
    let database = open(&directory.path().join("db"));
    database
        .execute_batch(
            "PRAGMA temp_store = FILE; CREATE TABLE t (a INTEGER, b TEXT);
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)
             INSERT INTO t SELECT i * 7919 % 60013, printf('%0100d', i) FROM n;
             CREATE TEMP TABLE u AS SELECT * FROM t ORDER BY b DESC;",
        )
        .unwrap();
    let mut rows = database.prepare("SELECT a FROM t ORDER BY a").unwrap();
    let sorted: Vec<i64> = rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert!(sorted.len() == 60_000 && sorted.is_sorted());
    let same: i64 =
        database.query_row("SELECT count(*) FROM t JOIN u USING (a, b)", [], |row| row.get(0)).unwrap();
    assert_eq!(same, 60_000);
    // Temporary files lose their names when they are opened: a killed process leaves none behind.
    let found = |name: &std::path::PathBuf| std::fs::read(name).is_ok_and(|bytes| bytes == b"other");
    assert!(names.iter().all(found), "the files of another process were changed");
    names.iter().for_each(|name| std::fs::remove_file(name).unwrap());
    let mine = format!("mglru-sqlite-{}-", std::process::id());
    let left = std::fs::read_dir(&temporary).unwrap().flatten();
    let left: Vec<_> = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(&mine)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Connections that come while the last one leaves.
#[test]
fn a_database_is_never_busy_for_its_own_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    open(&path).execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (7)").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let flags = OpenFlags::default();
                    drop(Connection::open_with_flags_and_vfs(&path, flags, "mglru").unwrap());
                }
            });
        }
    });
}

/// Without syncs, the data is in the file by the time that another process can have the database.
#[test]
fn the_last_connection_writes_out_what_was_not_synced() {
    for mode in ["delete", "truncate", "persist", "wal"] {
        for round in 0..8 {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("db");
            let database = open(&path);
            set_mode(&database, mode);
            database.execute_batch("PRAGMA synchronous = OFF; CREATE TABLE t (a INTEGER, b TEXT)").unwrap();
            for row in 0..50 {
                database.execute("INSERT INTO t VALUES (?1, ?2)", params![row, text(row, round)]).unwrap();
            }
            // A connection that writes nothing is the last one.
            let last = open(&path);
            assert_eq!(last.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap(), 50);
            database.close().unwrap();
            last.close().unwrap();
            let plain = Connection::open(&path).unwrap();
            let sum: i64 = plain.query_row("SELECT sum(a) FROM t", [], |row| row.get(0)).unwrap();
            assert_eq!(sum, 49 * 50 / 2, "{mode}");
            intact(&plain);
        }
    }
}

#[test]
fn a_journal_is_as_secret_as_its_database() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let database = open(&path);
    database.execute_batch("CREATE TABLE t (a)").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    for (mode, suffix) in [("persist", "journal"), ("wal", "wal")] {
        set_mode(&database, mode);
        database.execute_batch("INSERT INTO t VALUES (7)").unwrap();
        let data = std::fs::metadata(directory.path().join(format!("db-{suffix}"))).unwrap();
        assert_eq!(data.permissions().mode() & 0o777, 0o600, "{suffix}");
    }
}

/// As on SQLite's own file system.
#[test]
fn a_link_to_nothing_names_the_database_that_is_created() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::os::unix::fs::symlink("between", at("link")).unwrap();
    std::os::unix::fs::symlink(at("database"), at("between")).unwrap();
    let database = open(&at("link"));
    set_mode(&database, "wal");
    database.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (7);").unwrap();
    assert!(at("database").is_file() && at("database-wal").is_file(), "beside the file, not the link");
    let other = open(&at("database"));
    assert_eq!(other.query_row("SELECT a FROM t", [], |row| row.get::<_, i64>(0)).unwrap(), 7);
    std::os::unix::fs::symlink("loop", at("loop")).unwrap();
    assert!(Connection::open_with_flags_and_vfs(at("loop"), OpenFlags::default(), "mglru").is_err());
    // A directory for temporary files is one that may be written to.
    let directive = format!("PRAGMA temp_store_directory = '{}'", directory.path().display());
    database.execute_batch(&directive).unwrap();
    database.execute_batch("PRAGMA temp_store_directory = ''").unwrap();
}

#[test]
fn what_cannot_be_opened_is_an_error_of_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    open(&path).execute_batch("CREATE TABLE t (a)").unwrap();
    let try_open = |path: &Path, flags| {
        let database = Connection::open_with_flags_and_vfs(path, flags, "mglru")?;
        database.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0))
    };
    let code = |result: rusqlite::Result<i64>| result.unwrap_err().sqlite_error_code().unwrap();
    // Another process has it open.
    let other = File::open(&path).unwrap();
    other.lock().unwrap();
    assert_eq!(code(try_open(&path, OpenFlags::default())), rusqlite::ErrorCode::DatabaseBusy);
    drop(other);
    assert_eq!(try_open(&path, OpenFlags::default()).unwrap(), 0);
    let missing = directory.path().join("none/db");
    assert_eq!(code(try_open(&missing, OpenFlags::default())), rusqlite::ErrorCode::CannotOpen);
    let missing = directory.path().join("none");
    assert_eq!(code(try_open(&missing, OpenFlags::SQLITE_OPEN_READ_ONLY)), rusqlite::ErrorCode::CannotOpen);
    let reader =
        Connection::open_with_flags_and_vfs(&path, OpenFlags::SQLITE_OPEN_READ_ONLY, "mglru").unwrap();
    let error = reader.execute("INSERT INTO t VALUES (1)", []).unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::ReadOnly));
    drop(reader);
    std::fs::write(&path, [7; 10_000]).unwrap();
    assert_eq!(code(try_open(&path, OpenFlags::default())), rusqlite::ErrorCode::NotADatabase);
    assert!(mglru_sqlite::register("a\0b", cache().tenant("").unwrap()).is_err());
}

/// A database that loses its name while it is open leaves the journal and the WAL of the next one
/// with that name alone. As on SQLite's own file system, it can be read.
#[test]
fn a_moved_database_leaves_its_successor_alone() {
    for (mode, is_deleted) in [("wal", false), ("delete", false), ("persist", true)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let old = open(&path);
        set_mode(&old, mode);
        old.execute_batch("CREATE TABLE old (a); INSERT INTO old VALUES (1)").unwrap();
        match is_deleted {
            true => std::fs::remove_file(&path).unwrap(),
            false => std::fs::rename(&path, directory.path().join("moved")).unwrap(),
        }
        // If there is one.
        let _ = std::fs::rename(directory.path().join("db-wal"), directory.path().join("moved-wal"));
        // Another process would use SQLite's own file system in the same way.
        for new in [open(&path), Connection::open(&path).unwrap()] {
            set_mode(&new, mode);
            new.execute_batch("CREATE TABLE IF NOT EXISTS new (a); BEGIN; INSERT INTO new VALUES (7)")
                .unwrap();
            if mode != "wal" {
                let error = old.execute("INSERT INTO old VALUES (2)", []).unwrap_err();
                let dbmoved = error.sqlite_error().map(|error| error.extended_code);
                assert_eq!(dbmoved, Some(1032), "{mode}: {error}"); // SQLITE_READONLY_DBMOVED
            }
            assert_eq!(old.query_row("SELECT sum(a) FROM old", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
            new.execute_batch("COMMIT").unwrap();
            new.close().unwrap();
        }
        let new = open(&path);
        new.execute_batch("INSERT INTO new VALUES (8)").unwrap();
        old.close().unwrap();
        new.close().unwrap();
        let plain = Connection::open(&path).unwrap();
        assert_eq!(plain.query_row("SELECT sum(a) FROM new", [], |row| row.get::<_, i64>(0)).unwrap(), 22);
        intact(&plain);
    }
}

/// A file that may not be written is opened for reading, also by a connection that wants to write.
#[test]
fn a_write_protected_database_is_opened_for_reading() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    open(&path).execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (7)").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let read = move || {
        // Root may write in spite of the permissions. The system call is about this thread alone.
        // SAFETY: it takes numbers only.
        unsafe { libc::syscall(libc::SYS_setresuid, -1, 65_534, -1) };
        let database = Connection::open_with_flags_and_vfs(&path, OpenFlags::default(), "mglru").unwrap();
        assert_eq!(database.query_row("SELECT a FROM t", [], |row| row.get::<_, i64>(0)).unwrap(), 7);
        let error = database.execute("INSERT INTO t VALUES (8)", []).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::ReadOnly));
    };
    std::thread::spawn(read).join().unwrap();
}

#[test]
fn a_name_that_is_not_utf_8_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    cache();
    let path = directory.path().join(OsStr::from_bytes(b"caf\xe9"));
    let error = Connection::open_with_flags_and_vfs(&path, OpenFlags::default(), "mglru").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::CannotOpen));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// The writer of the crash test: commits transactions of ten rows and prints the number of each
/// after its commit, until it is killed.
#[test]
fn child_of_the_crash_test() {
    let Ok(path) = std::env::var("MGLRU_SQLITE_CRASH") else { return };
    let mut database = open(Path::new(&path));
    let mode = std::env::var("MGLRU_SQLITE_MODE").unwrap();
    let (mode, synchronous) = mode.split_once(' ').unwrap();
    set_mode(&database, mode);
    database.execute_batch(&format!("PRAGMA synchronous = {synchronous}")).unwrap();
    let first: i64 =
        database.query_row("SELECT coalesce(max(number), 0) FROM t", [], |row| row.get(0)).unwrap();
    for number in first + 1.. {
        let write = database.transaction().unwrap();
        for row in 0..10 {
            write
                .execute("INSERT INTO t VALUES (?1, ?2, ?3)", params![number, row, text(number, row)])
                .unwrap();
        }
        write.execute("UPDATE t SET value = value WHERE number = ?1", [number / 2]).unwrap();
        write.commit().unwrap();
        println!("committed {number}");
    }
}

/// A killed process loses what is only in its cache. Every commit that it reported is there, and no
/// transaction is there in part. With a WAL that is not synced at each commit, the last ones may be
/// missing.
#[test]
fn a_killed_process_loses_no_synced_commit() {
    for mode in ["delete FULL", "wal FULL", "wal NORMAL"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        let database = open(&path);
        set_mode(&database, mode.split(' ').next().unwrap());
        database.execute_batch("CREATE TABLE t (number INTEGER, row INTEGER, value TEXT)").unwrap();
        database.close().unwrap();
        let mut random = Random(11);
        let mut before = 0;
        for _ in 0..5 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["child_of_the_crash_test", "--exact", "--nocapture"])
                .env("MGLRU_SQLITE_CRASH", &path)
                .env("MGLRU_SQLITE_MODE", mode)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
            let committed =
                |line: String| line.strip_prefix("committed ").map(|number| number.parse::<i64>().unwrap());
            let wanted = 3 + random.below(12) as usize;
            let mut last = lines.by_ref().filter_map(committed).nth(wanted).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            last = lines.filter_map(committed).last().unwrap_or(last);
            // SQLite's own file system recovers what the journal says.
            let database = Connection::open(&path).unwrap();
            intact(&database);
            let mut rows = database.prepare("SELECT number, row, value FROM t ORDER BY number, row").unwrap();
            let rows =
                rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?))).unwrap();
            let rows: Vec<(i64, i64, String)> = rows.map(Result::unwrap).collect();
            let numbers = rows.len() as i64 / 10;
            let least = if mode.ends_with("FULL") { last } else { before };
            assert!((least..=last + 1).contains(&numbers), "{numbers} of {last}, {mode}");
            before = numbers;
            for (at, (number, row, value)) in rows.iter().enumerate() {
                assert_eq!((*number, *row), (at as i64 / 10 + 1, at as i64 % 10));
                assert!(*value == text(*number, *row));
            }
        }
    }
}
