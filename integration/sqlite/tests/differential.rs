//! Random statements on two databases, one through the cache and one on SQLite's own file system.
//! Each statement must have the same rows or the same error on both.

use mglru_cache::PageCache;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use std::fmt::Write;
use std::path::Path;

const STATEMENTS: usize = 400;
/// Connections to each database, of which one is used at a time.
const CONNECTIONS: usize = 2;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }

    fn table(&mut self) -> &'static str {
        self.pick(&["t0", "t1", "t2"])
    }

    /// A value; some need several overflow pages.
    fn value(&mut self) -> String {
        match self.below(8) {
            0 => "NULL".to_owned(),
            1 => format!("zeroblob({})", self.below(20_000)),
            2 => format!("'{}'", "text ".repeat(self.below(400) as usize)),
            3 => format!("{}.5", self.below(1000)),
            _ => self.below(1000).to_string(),
        }
    }

    fn range(&mut self) -> String {
        let start = self.below(900);
        format!("a BETWEEN {start} AND {}", start + self.below(100))
    }

    fn insert(&mut self) -> String {
        let mut text = format!(
            "INSERT OR {} INTO {} (a, b, c) VALUES ",
            self.pick(&["IGNORE", "REPLACE", "ABORT"]),
            self.table()
        );
        for row in 0..1 + self.below(30) {
            let comma = if row > 0 { ", " } else { "" };
            let (b, c) = (self.value(), self.value());
            write!(text, "{comma}({}, {b}, {c})", self.below(1000)).unwrap();
        }
        text
    }

    fn select(&mut self) -> String {
        let (one, two, range) = (self.table(), self.table(), self.range());
        match self.below(6) {
            0 => format!("SELECT count(*), sum(a), total(length(b)), max(c) FROM {one}"),
            1 => format!("SELECT rowid, a, b, c FROM {one} WHERE {range} ORDER BY b DESC, rowid"),
            2 => {
                let joined = format!("{one} JOIN {two} AS o USING (a)");
                format!("SELECT {one}.a, count(*) FROM {joined} WHERE {one}.{range} GROUP BY 1 ORDER BY 1")
            }
            3 => format!("SELECT typeof(b), count(DISTINCT c), min(a) FROM {one} GROUP BY 1 ORDER BY 1"),
            4 => format!("SELECT a FROM {one} EXCEPT SELECT a FROM {two} ORDER BY 1 LIMIT 20"),
            _ => "SELECT name, sql FROM sqlite_schema ORDER BY name".to_owned(),
        }
    }

    fn statement(&mut self) -> String {
        let (table, other) = (self.table(), self.table());
        match self.below(40) {
            0..9 => self.insert(),
            9..13 => format!("UPDATE {table} SET b = {}, c = rowid WHERE {}", self.value(), self.range()),
            13..16 => format!("DELETE FROM {table} WHERE {}", self.range()),
            16 => format!(
                "INSERT OR IGNORE INTO {table} (a, b, c) SELECT a + 1, c, b FROM {other} WHERE {}",
                self.range()
            ),
            17..25 => self.select(),
            25..27 => format!("BEGIN {}", self.pick(&["DEFERRED", "IMMEDIATE", "EXCLUSIVE"])),
            27..30 => "COMMIT".to_owned(),
            30 => "ROLLBACK".to_owned(),
            31 => self.pick(&["SAVEPOINT s", "ROLLBACK TO s", "RELEASE s"]).to_owned(),
            32 => format!(
                "CREATE INDEX IF NOT EXISTS i{} ON {table} ({})",
                self.below(4),
                self.pick(&["b", "c, a", "length(b)"])
            ),
            33 => format!("DROP INDEX IF EXISTS i{}", self.below(4)),
            34 => format!(
                "PRAGMA journal_mode = {}",
                self.pick(&["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "WAL"])
            ),
            35 => {
                format!("PRAGMA wal_checkpoint({})", self.pick(&["PASSIVE", "FULL", "RESTART", "TRUNCATE"]))
            }
            36 => self.pick(&["VACUUM", "PRAGMA incremental_vacuum(3)", "REINDEX", "ANALYZE"]).to_owned(),
            37 => format!("CREATE TEMP TABLE IF NOT EXISTS u AS SELECT * FROM {table} ORDER BY c"),
            38 => self
                .pick(&[
                    "PRAGMA page_count",
                    "PRAGMA freelist_count",
                    "PRAGMA user_version = 7",
                    "DROP TABLE temp.u",
                ])
                .to_owned(),
            _ => "PRAGMA integrity_check".to_owned(),
        }
    }
}

/// The rows of a statement as text, or its error.
fn outcome(database: &Connection, statement: &str) -> Result<String, String> {
    let run = || {
        let mut prepared = database.prepare(statement)?;
        let columns = prepared.column_count();
        let mut rows = prepared.query([])?;
        let mut text = String::new();
        while let Some(row) = rows.next()? {
            // Of a checkpoint, only whether it met a lock: how many pages are in the WAL depends on
            // which of them left SQLite's own cache early.
            let compared = if statement.contains("checkpoint") { 1 } else { columns };
            for column in 0..compared {
                let _ = match row.get_ref(column)? {
                    ValueRef::Null => write!(text, "NULL|"),
                    ValueRef::Integer(number) => write!(text, "{number}|"),
                    ValueRef::Real(number) => write!(text, "{number:?}|"),
                    ValueRef::Text(bytes) => write!(text, "{}|", String::from_utf8_lossy(bytes)),
                    // All blobs are zeros.
                    ValueRef::Blob(bytes) => {
                        assert!(bytes.iter().all(|byte| *byte == 0));
                        write!(text, "{} zeros|", bytes.len())
                    }
                };
            }
            text.push('\n');
        }
        Ok::<_, rusqlite::Error>(text)
    };
    run().map_err(|error| format!("{error:?}"))
}

fn open(path: &Path, vfs: Option<&str>, synchronous: &str) -> Connection {
    let database = match vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs).unwrap(),
        None => Connection::open(path).unwrap(),
    };
    database.busy_timeout(std::time::Duration::ZERO).unwrap();
    database
        .execute_batch(&format!(
            "PRAGMA cache_size = 10; PRAGMA synchronous = {synchronous}; PRAGMA temp_store = FILE"
        ))
        .unwrap();
    database
}

fn dump(path: &Path) -> Vec<Result<String, String>> {
    let database = open(path, None, "OFF");
    let tables = ["t0", "t1", "t2"].map(|table| format!("SELECT rowid, a, b, c FROM {table}"));
    let mut all: Vec<_> = tables.iter().map(|statement| outcome(&database, statement)).collect();
    all.push(outcome(&database, "PRAGMA integrity_check"));
    all
}

/// Returns how many statements succeeded, and how many met a lock.
fn run(seed: u64) -> (usize, usize) {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["ours", "plain"].map(|name| directory.path().join(name));
    let vfs = [Some("mglru-differential"), None];
    let mut random = Random(seed);
    let page_bytes = random.pick(&["512", "1024", "4096", "8192", "65536"]);
    let synchronous = random.pick(&["OFF", "NORMAL"]);
    let open_all = || {
        [0, 1].map(|side| {
            (0..CONNECTIONS).map(|_| open(&paths[side], vfs[side], synchronous)).collect::<Vec<_>>()
        })
    };
    let mut databases = open_all();
    let (mut done, mut busy) = (0, 0);
    for side in &databases {
        let schema = format!(
            "PRAGMA page_size = {page_bytes}; PRAGMA auto_vacuum = {};
             CREATE TABLE t0 (a INTEGER PRIMARY KEY, b, c); CREATE TABLE t1 (a UNIQUE, b, c);
             CREATE TABLE t2 (a, b, c); CREATE INDEX i0 ON t2 (a);",
            seed % 3
        );
        side[0].execute_batch(&schema).unwrap();
    }
    for number in 0..STATEMENTS {
        if random.below(60) == 0 {
            // Connections with a transaction roll it back.
            drop(databases);
            databases = open_all();
        }
        let connection = random.below(CONNECTIONS as u64) as usize;
        let statement = random.statement();
        let [ours, plain] = [0, 1].map(|side| outcome(&databases[side][connection], &statement));
        assert!(
            ours == plain,
            "seed {seed}, statement {number}, connection {connection}: {statement:.200}\n\
             ours:  {ours:.300?}\nplain: {plain:.300?}"
        );
        match ours {
            Ok(_) => done += 1,
            Err(error) => busy += usize::from(error.contains("DatabaseBusy")),
        }
    }
    drop(databases);
    let [ours, plain] = paths.each_ref().map(|path| dump(path));
    assert!(ours == plain, "seed {seed}: other contents");
    assert_eq!(ours[3], Ok("ok|\n".to_owned()), "seed {seed}");
    (done, busy)
}

/// `MGLRU_SEED` and `MGLRU_SEEDS` choose other and more seeds.
#[test]
fn random_statements_have_the_same_results_as_without_the_cache() {
    let number = |name: &str, or: u64| std::env::var(name).map_or(or, |text| text.parse().unwrap());
    let cache = PageCache::builder(2 << 20).tenant("sql", 1 << 20).build().unwrap();
    mglru_sqlite::register("mglru-differential", cache.tenant("sql").unwrap()).unwrap();
    let first = number("MGLRU_SEED", 0);
    let (mut done, mut busy) = (0, 0);
    let seeds = number("MGLRU_SEEDS", 4);
    for seed in first..first + seeds {
        let (some, met) = run(seed);
        (done, busy) = (done + some, busy + met);
    }
    println!("{seeds} seeds: {done} statements succeeded, {busy} met a lock");
    assert!(done > seeds as usize * STATEMENTS / 3 && busy > 0, "{done} succeeded, {busy} met a lock");
    let stats = cache.tenant("sql").unwrap().stats();
    assert!(stats.counters.by_name("pgsteal_file") > Some(0), "{stats:?}");
}
