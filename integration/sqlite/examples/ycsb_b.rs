//! YCSB's load B on SQLite: 95 % reads and 5 % updates of records of 1,000 bytes, of which some are
//! used far more than others. With SQLite's own cache and with the page cache in turns, in the same
//! amount of memory, and both without the system's page cache for the database.
//!
//! ```text
//! cargo run --release -p mglru-sqlite --example ycsb_b -- [MiB] [records] [steps] [turns] [own]
//! ```
//!
//! Without arguments: 16 MiB of memory, 60,000 records (58 MiB), 100,000 operations (steps) and
//! three turns. `own` is the size of SQLite's own cache beside the page cache, in MiB: a 64th of
//! the memory, at least 1. It writes to the current directory, which must be on a disk. The system
//! counts reads and writes of this process (`/proc/self/io`).

use mglru_cache::PageCache;
use mglru_workload::ycsb::{Client, Letter, StoreRequest, Ycsb};
use rusqlite::{Connection, OpenFlags, params};
use sqlite_plugin::flags::{AccessFlags, LockLevel, OpenKind, OpenOpts};
use sqlite_plugin::vars;
use sqlite_plugin::vfs::{RegisterOpts, Vfs, VfsHandle, VfsResult, register_static};
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

const PAGE: usize = 4096;
/// Bytes of a value: ten fields of 100.
const VALUE: usize = 1000;

/// The sizes of a run.
#[derive(Clone, Copy)]
struct Sizes {
    /// Memory for caches, in MiB.
    memory: u64,
    /// Records of the database.
    records: u64,
    /// Operations of a turn.
    operations: u64,
    /// Turns of each cache.
    turns: u64,
    /// The part of the memory that is SQLite's own cache beside the page cache, in MiB.
    own: u64,
}

/// Memory as `O_DIRECT` wants it.
#[repr(align(4096))]
struct Page([u8; PAGE]);

/// SQLite's files without the system's cache for the database. The WAL has it, outside of the
/// memory that is compared: its pages are written in parts.
struct DirectVfs;

struct DirectFile {
    file: File,
    is_direct: bool,
}

impl VfsHandle for DirectFile {
    fn readonly(&self) -> bool {
        false
    }

    fn in_memory(&self) -> bool {
        false
    }
}

impl DirectFile {
    /// Calls `with` for each page of a range, with the page's offset, the part of the page and the
    /// part of the range.
    fn pages(
        offset: usize,
        len: usize,
        mut with: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>) -> io::Result<bool>,
    ) -> io::Result<usize> {
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let within = at % PAGE;
            let part = (PAGE - within).min(len - done);
            if !with((at - within) as u64, within..within + part, done..done + part)? {
                break;
            }
            done += part;
        }
        Ok(done)
    }

    fn read(&self, offset: usize, data: &mut [u8]) -> io::Result<usize> {
        if !self.is_direct {
            let mut done = 0;
            while done < data.len() {
                match self.file.read_at(&mut data[done..], (offset + done) as u64)? {
                    0 => break,
                    read => done += read,
                }
            }
            return Ok(done);
        }
        let mut page = Page([0; PAGE]);
        DirectFile::pages(offset, data.len(), |at, within, part| {
            // The database's length is a multiple of its page size.
            let whole = self.file.read_at(&mut page.0, at)? == PAGE;
            if whole {
                data[part].copy_from_slice(&page.0[within]);
            }
            Ok(whole)
        })
    }

    fn write(&self, offset: usize, data: &[u8]) -> io::Result<usize> {
        if !self.is_direct {
            self.file.write_all_at(data, offset as u64)?;
            return Ok(data.len());
        }
        let mut page = Page([0; PAGE]);
        DirectFile::pages(offset, data.len(), |at, within, part| {
            if within.len() < PAGE {
                let _ = self.file.read_at(&mut page.0, at)?;
            }
            page.0[within].copy_from_slice(&data[part]);
            self.file.write_all_at(&page.0, at)?;
            Ok(true)
        })
    }
}

impl Vfs for DirectVfs {
    type Handle = DirectFile;

    fn open(&self, path: Option<&str>, options: OpenOpts) -> VfsResult<DirectFile> {
        let path = path.ok_or(vars::SQLITE_CANTOPEN)?;
        let is_direct = options.kind() == OpenKind::MainDb;
        let mut open = OpenOptions::new();
        open.read(true).write(true).create(true).truncate(false);
        open.custom_flags(if is_direct { libc::O_DIRECT } else { 0 });
        let file = open.open(path).map_err(|_| vars::SQLITE_CANTOPEN)?;
        Ok(DirectFile { file, is_direct })
    }

    fn delete(&self, path: &str) -> VfsResult<()> {
        std::fs::remove_file(path).map_err(|_| vars::SQLITE_IOERR_DELETE)
    }

    fn access(&self, path: &str, _: AccessFlags) -> VfsResult<bool> {
        Ok(Path::new(path).exists())
    }

    fn file_size(&self, handle: &mut DirectFile) -> VfsResult<usize> {
        handle.file.metadata().map(|data| data.len() as usize).map_err(|_| vars::SQLITE_IOERR_FSTAT)
    }

    fn truncate(&self, handle: &mut DirectFile, size: usize) -> VfsResult<()> {
        handle.file.set_len(size as u64).map_err(|_| vars::SQLITE_IOERR_TRUNCATE)
    }

    fn write(&self, handle: &mut DirectFile, offset: usize, data: &[u8]) -> VfsResult<usize> {
        handle.write(offset, data).map_err(|_| vars::SQLITE_IOERR_WRITE)
    }

    fn read(&self, handle: &mut DirectFile, offset: usize, data: &mut [u8]) -> VfsResult<usize> {
        handle.read(offset, data).map_err(|_| vars::SQLITE_IOERR_READ)
    }

    // One connection.
    fn lock(&self, _: &mut DirectFile, _: LockLevel) -> VfsResult<()> {
        Ok(())
    }

    fn unlock(&self, _: &mut DirectFile, _: LockLevel) -> VfsResult<()> {
        Ok(())
    }

    fn check_reserved_lock(&self, _: &mut DirectFile) -> VfsResult<bool> {
        Ok(false)
    }

    fn sync(&self, handle: &mut DirectFile) -> VfsResult<()> {
        handle.file.sync_data().map_err(|_| vars::SQLITE_IOERR_FSYNC)
    }

    fn close(&self, _: DirectFile) -> VfsResult<()> {
        Ok(())
    }

    fn device_characteristics(&self, _: &mut DirectFile) -> VfsResult<i32> {
        Ok(vars::SQLITE_IOCAP_POWERSAFE_OVERWRITE)
    }
}

fn value(key: u64, version: u64) -> Vec<u8> {
    let mut value = vec![(key ^ version) as u8; VALUE];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value
}

/// Bytes that this process had read from disks and written to them.
fn transferred() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    ["read_bytes: ", "write_bytes: "].map(|name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
    })
}

/// The result of a turn: operations per second, and bytes read and written.
struct Outcome {
    rate: f64,
    bytes: [u64; 2],
}

/// Opens the database with so many MiB of SQLite's own cache.
fn open(path: &Path, vfs: &str, own: u64) -> Result<Connection, Box<dyn Error>> {
    let database = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), vfs)?;
    database.execute_batch(&format!(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA page_size = 4096; PRAGMA cache_size = -{};
         PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 250",
        own << 10
    ))?;
    Ok(database)
}

fn load(path: &Path, sizes: Sizes) -> Result<(), Box<dyn Error>> {
    let mut database = open(path, "direct", 64)?;
    database.execute_batch("CREATE TABLE usertable (key INTEGER PRIMARY KEY, value BLOB)")?;
    for first in (0..sizes.records).step_by(10_000) {
        let write = database.transaction()?;
        let mut insert = write.prepare("INSERT INTO usertable VALUES (?1, ?2)")?;
        for key in first..sizes.records.min(first + 10_000) {
            insert.execute(params![key as i64, value(key, 0)])?;
        }
        drop(insert);
        write.commit()?;
    }
    database.close().map_err(|(_, error)| error.into())
}

/// Half of the operations warm the cache and are not measured.
fn operate(database: Connection, sizes: Sizes) -> Result<Outcome, Box<dyn Error>> {
    let records = u32::try_from(sizes.records)?;
    let mut client = Client::new(Ycsb::new(Letter::B, records, 0), 1);
    let (mut began, mut before) = (Instant::now(), transferred());
    let mut read = database.prepare("SELECT value FROM usertable WHERE key = ?1")?;
    let mut update = database.prepare("UPDATE usertable SET value = ?2 WHERE key = ?1")?;
    for number in 0..sizes.operations {
        if number == sizes.operations / 2 {
            (began, before) = (Instant::now(), transferred());
        }
        match client.next(sizes.records) {
            StoreRequest::Read { key } => {
                let is_right = read.query_row([key as i64], |row| {
                    let found = row.get_ref(0)?.as_blob()?;
                    Ok(found.len() == VALUE && found[..8] == key.to_le_bytes())
                })?;
                assert!(is_right, "the record of another key");
            }
            StoreRequest::Update { key } => _ = update.execute(params![key as i64, value(key, number)])?,
            other => unreachable!("load B has no {other:?}"),
        }
    }
    let rate = (sizes.operations - sizes.operations / 2) as f64 / began.elapsed().as_secs_f64();
    let after = transferred();
    Ok(Outcome { rate, bytes: [after[0] - before[0], after[1] - before[1]] })
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let mut next = |or: u64| numbers.next().unwrap_or(Ok(or));
    let memory = next(16)?;
    let (records, operations, turns) = (next(60_000)?, next(100_000)?, next(3)?.max(1));
    let own = next((memory / 64).max(1))?;
    if own >= memory {
        return Err("SQLite's own cache must be smaller than the memory".into());
    }
    let sizes = Sizes { memory, records, operations, turns, own };
    let refused = |code| format!("SQLite refused to register a VFS: error {code}");
    register_static(c"direct".to_owned(), DirectVfs, RegisterOpts { make_default: false })
        .map_err(refused)?;
    let cache = PageCache::builder((sizes.memory - sizes.own) << 20).build()?;
    mglru_sqlite::register("mglru", cache.tenant("")?)?;
    let directory = tempfile::tempdir_in(".")?;
    // Absolute, because the direct files' names are what SQLite makes of this one.
    let path = directory.path().canonicalize()?.join("ycsb.db");
    load(&path, sizes)?;
    println!(
        "YCSB-B, {records} records in {} MiB, {memory} MiB of memory, {} operations measured",
        std::fs::metadata(&path)?.len() >> 20,
        operations - operations / 2
    );
    let (mut own, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..sizes.turns {
        own.push(operate(open(&path, "direct", sizes.memory)?, sizes)?);
        ours.push(operate(open(&path, "mglru", sizes.own)?, sizes)?);
    }
    for (name, mut outcomes) in [("SQLite's own cache", own), ("the page cache", ours)] {
        outcomes.sort_by(|one, other| one.rate.total_cmp(&other.rate));
        let Outcome { rate, bytes } = outcomes[outcomes.len() / 2];
        let [read, written] = bytes.map(|bytes| bytes as f64 / f64::from(1 << 20));
        let (slowest, fastest) = (outcomes[0].rate, outcomes[outcomes.len() - 1].rate);
        println!(
            "{name:18} {rate:8.0} operations/s {read:8.1} MiB read, {written:8.1} MiB written; \
             turns: {slowest:.0} to {fastest:.0}"
        );
    }
    Ok(())
}
