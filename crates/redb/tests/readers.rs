//! Databases that are read by several processes at once, and written by none meanwhile.

use mglru_cache::PageCache;
use mglru_redb::FileBackend;
use redb::{
    Builder, ConcurrencyMode, Database, DatabaseError, ReadOnlyDatabase, ReadableDatabase,
    ReadableTableMetadata, StorageError, TableDefinition,
};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const TABLE: TableDefinition<u64, u64> = TableDefinition::new("squares");
const ROWS: u64 = 2000;

fn cache() -> PageCache {
    PageCache::builder(2 << 20).tenant("db", 256 << 10).build().unwrap()
}

fn create(cache: &PageCache, path: &Path) -> Database {
    let backend = FileBackend::open(&cache.tenant("db").unwrap(), path).unwrap();
    Builder::new().set_cache_size(64 << 10).create_with_backend(backend).unwrap()
}

/// Adds `rows` rows.
fn add(database: &Database, rows: u64) {
    let write = database.begin_write().unwrap();
    {
        let mut table = write.open_table(TABLE).unwrap();
        let first = table.len().unwrap();
        (first..first + rows).for_each(|n| drop(table.insert(n, n * n).unwrap()));
    }
    write.commit().unwrap();
}

fn backend(cache: &PageCache, path: &Path) -> io::Result<FileBackend> {
    FileBackend::open_read_only(&cache.tenant("db").unwrap(), path)
}

fn open(cache: &PageCache, path: &Path) -> ReadOnlyDatabase {
    let reader = backend(cache, path).unwrap();
    Builder::new().set_cache_size(64 << 10).open_read_only_with_backend(reader).unwrap()
}

/// Reads all rows, and returns how many there are.
fn check(database: &impl ReadableDatabase) -> u64 {
    let table = database.begin_read().unwrap().open_table(TABLE).unwrap();
    let rows = table.len().unwrap();
    (0..rows).for_each(|n| assert_eq!(table.get(n).unwrap().unwrap().value(), n * n));
    rows
}

fn is_refused(result: io::Result<FileBackend>, why: &str) {
    let error = result.map(drop).unwrap_err();
    assert!(error.kind() == io::ErrorKind::WouldBlock && error.to_string().contains(why), "{error}");
}

const CHILD: &str = "MGLRU_READER_CHILD";

/// Not a test by itself, but another process that reads until its input ends.
#[test]
fn child_that_reads() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let cache = cache();
    let database = open(&cache, path.as_ref());
    println!("\nread {}", check(&database));
    io::stdin().lines().for_each(drop);
}

/// A process that has read the database and still has it open.
fn reader(path: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_reads", "--nocapture"])
        .env(CHILD, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == format!("read {ROWS}")), "the child ended");
    child
}

#[test]
fn processes_read_at_once_and_keep_writers_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let cache = cache();
    let tenant = cache.tenant("db").unwrap();
    assert_eq!(backend(&cache, &path).unwrap_err().kind(), io::ErrorKind::NotFound);
    let writer = create(&cache, &path);
    add(&writer, ROWS);
    is_refused(backend(&cache, &path), "open for writing in another database");
    drop(writer);

    let mut children = [reader(&path), reader(&path)];
    let here = [open(&cache, &path), open(&cache, &path)];
    here.iter().for_each(|database| assert_eq!(check(database), ROWS));
    is_refused(FileBackend::open(&tenant, &path), "being read");
    here.into_iter().for_each(|database| database.close().unwrap());
    is_refused(FileBackend::open(&tenant, &path), "being read");
    for child in &mut children {
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
    add(&create(&cache, &path), 1);
    assert_eq!(check(&open(&cache, &path)), ROWS + 1);
}

fn of_mode(mode: ConcurrencyMode) -> Builder {
    let mut builder = Builder::new();
    builder.set_concurrency_mode(mode);
    builder
}

/// redb's own files follow the same locks.
#[test]
fn databases_of_redb_share_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let cache = cache();
    let tenant = cache.tenant("db").unwrap();
    add(&create(&cache, &path), ROWS);
    let modes =
        [ConcurrencyMode::ExclusiveWriter, ConcurrencyMode::SingleWriter, ConcurrencyMode::MultiWriter];
    let reader = open(&cache, &path);
    for mode in modes {
        let writer = of_mode(mode).open(&path).map(drop);
        assert!(matches!(writer, Err(DatabaseError::DatabaseAlreadyOpen)), "{mode:?}: {writer:?}");
    }
    assert_eq!(check(&ReadOnlyDatabase::open(&path).unwrap()), ROWS);
    assert_eq!(check(&reader), ROWS);
    drop(reader);
    for mode in modes {
        let writer = of_mode(mode).open(&path).unwrap();
        // Where processes share a database, redb finds the writer, and else the adapter.
        match backend(&cache, &path) {
            Ok(backend) => {
                let opened = Builder::new().open_read_only_with_backend(backend).map(drop);
                assert!(matches!(opened, Err(DatabaseError::DatabaseAlreadyOpen)), "{mode:?}: {opened:?}");
            }
            refused => is_refused(refused, "open for writing in another database"),
        }
        is_refused(FileBackend::open(&tenant, &path), "close that one first");
        drop(writer);
    }
    let reader = ReadOnlyDatabase::open(&path).unwrap();
    is_refused(FileBackend::open(&tenant, &path), "being read");
    assert_eq!(check(&open(&cache, &path)), ROWS);
    drop(reader);
    add(&create(&cache, &path), 1);
}

/// Each process would have pages of its own.
#[test]
fn modes_for_a_writer_beside_readers_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let cache = cache();
    let tenant = cache.tenant("db").unwrap();
    add(&create(&cache, &path), ROWS);
    for mode in [ConcurrencyMode::SingleWriter, ConcurrencyMode::MultiWriter] {
        let reader = of_mode(mode).open_read_only_with_backend(backend(&cache, &path).unwrap()).map(drop);
        let writer = of_mode(mode).create_with_backend(FileBackend::open(&tenant, &path).unwrap()).map(drop);
        for refused in [reader, writer] {
            let refused = refused.unwrap_err();
            assert!(matches!(&refused, DatabaseError::Storage(StorageError::Unsupported)), "{refused:?}");
        }
    }
    assert_eq!(check(&open(&cache, &path)), ROWS);
}

/// A transaction outlives its database, which is closed, and its pages are still in memory when
/// another process has written and the database is opened again.
#[test]
fn pages_of_a_closed_database_are_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let (cache, other) = (cache(), cache());
    add(&create(&other, &path), ROWS);
    let reader = open(&cache, &path);
    assert_eq!(check(&reader), ROWS);
    let transaction = reader.begin_read().unwrap();
    reader.close().unwrap();
    add(&create(&other, &path), 50);
    assert_eq!(check(&open(&cache, &path)), ROWS + 50);
    drop(transaction);
}

/// A backend that only reads is no storage for a database that writes.
#[test]
fn a_reader_writes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let cache = cache();
    add(&create(&cache, &path), ROWS);
    let before = std::fs::read(&path).unwrap();
    let error = Builder::new().create_with_backend(backend(&cache, &path).unwrap()).map(drop).unwrap_err();
    assert!(error.to_string().contains("only reads: use `Builder::open_read_only_with_backend`"), "{error}");
    assert!(error.to_string().contains(&format!("cannot lock {}: ", path.display())), "{error}");
    drop(open(&cache, &path));
    assert!(std::fs::read(&path).unwrap() == before);
}
