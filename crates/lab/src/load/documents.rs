//! YCSB on a real store: redb, an ordered tree of keys in one file, over a
//! [`mglru_cache::CachedFile`].
//!
//! A record is a value of 1,000 bytes that contains its number and its number of writes
//! ([`verify`]). Its key is in random order, as YCSB's hashed keys are. The committed state of each
//! record is kept outside the store ([`Truth`]). A value that is read must belong to its key, and
//! must be at least as new as the last commit before the read. A scan must return keys in order and
//! omit none. At the end all records are read through the cache, and again from a copy of the file
//! on the device, which the store opens as after a crash.
//!
//! The store never overwrites a page in place. Only every [`COMMITS_PER_SYNC`]th commit syncs;
//! nothing in between is durable, so dirty pages wait for the flusher. The store's own cache is
//! memory of the process, which is not charged to a tenant.
//!
//! # Locking
//!
//! One client writes at a time. It holds `writer` from the start of its transaction until the
//! commit is recorded. Readers hold no lock, so they may find one write more than is recorded.

use super::{LoadError, PAGE, Performed, Verified, timed};
use crate::layout;
use crate::{Error, Stage, Unit, Watch};
use mglru_cache::{OpenMode, Tenant};
use mglru_core::PAGE_BYTES;
use mglru_redb::FileBackend;
use mglru_workload::random::mix;
use mglru_workload::trace::PageAccess;
use mglru_workload::verify::{self, Identity};
use mglru_workload::ycsb::{Client, Letter, StoreRequest, Ycsb};
use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};

/// Ten fields of 100 bytes.
const VALUE_BYTES: usize = 1000;
/// Upper limit of file bytes per record during layout, with leaves half full.
const LAID_OUT_BYTES: u64 = 2500;
/// Commits per durable commit.
const COMMITS_PER_SYNC: u64 = 200;

const TABLE: TableDefinition<&str, &[u8]> = TableDefinition::new("usertable");

/// A file of the cache as the store's backend, with the accesses to its pages.
#[derive(Debug)]
struct Backend {
    file: FileBackend,
    /// Page accesses since the last query.
    performed: Arc<Mutex<Vec<Performed>>>,
}

impl Backend {
    /// Accesses a part of the file, and records the touched pages.
    fn perform(
        &self,
        write: bool,
        offset: u64,
        bytes: usize,
        work: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let time = timed(work)?;
        let pages = offset / PAGE_BYTES..(offset + bytes as u64).div_ceil(PAGE_BYTES);
        let time = time / (pages.end - pages.start).max(1) as u32;
        let of_page = |page| Performed { access: PageAccess { write, ..PageAccess::read(page) }, time };
        self.performed.lock().expect("no panic").extend(pages.map(of_page));
        Ok(())
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.perform(false, offset, out.len(), || self.file.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.perform(true, offset, data.len(), || self.file.write(offset, data))
    }
}

/// The committed state.
struct Truth {
    /// Number of writes of each record.
    generations: Vec<u32>,
    /// Positions of all records in the store's order, if the workload scans.
    ordered: Option<BTreeSet<u64>>,
}

impl Truth {
    /// The initial state: each record was written once.
    fn first(ycsb: Ycsb) -> Truth {
        let scans = ycsb.letter == Letter::E;
        Truth {
            generations: vec![1; ycsb.records as usize],
            ordered: scans.then(|| (0..u64::from(ycsb.records)).map(position).collect()),
        }
    }

    fn records(&self) -> u64 {
        self.generations.len() as u64
    }

    /// Number of writes of a record; 0 if it does not exist.
    fn generation(&self, number: u64) -> u64 {
        self.generations.get(number as usize).copied().map_or(0, u64::from)
    }

    fn note(&mut self, number: u64, generation: u64) {
        match self.generations.get_mut(number as usize) {
            Some(noted) => *noted = generation as u32,
            None => self.generations.push(generation as u32),
        }
        if let Some(ordered) = &mut self.ordered {
            ordered.insert(position(number));
        }
    }

    /// The positions that follow from `from` on.
    fn following(&self, from: u64, records: u64) -> Vec<u64> {
        self.ordered
            .iter()
            .flat_map(|ordered| ordered.range(from..))
            .take(records as usize)
            .copied()
            .collect()
    }
}

/// Pseudo-random position of a record in the order of keys.
fn position(number: u64) -> u64 {
    mix(number) >> 1
}

fn key(number: u64) -> String {
    format!("user{:019}", position(number))
}

fn value(number: u64, generation: u64, seed: u64) -> [u8; VALUE_BYTES] {
    let mut bytes = [0; VALUE_BYTES];
    verify::fill(&mut bytes, Identity { offset: number, generation, seed });
    bytes
}

fn failed(what: &str, error: impl std::fmt::Display) -> LoadError {
    LoadError::Device(format!("redb {what}: {error}"))
}

/// Decodes the record that the store has under a key: its number, and its number of writes.
fn record(key: &str, value: &[u8]) -> Result<(u64, u64), LoadError> {
    // A value contains the number of its record, which must match the key.
    let number = value.get(8..16).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    match number.filter(|&number| value.len() == VALUE_BYTES && self::key(number) == key) {
        Some(number) => {
            let identity = verify::check(value, number).map_err(LoadError::contents)?;
            Ok((number, identity.generation))
        }
        None => Err(LoadError::contents(format_args!("{key} has no value, or that of another record"))),
    }
}

/// A store and its clients.
pub struct Documents {
    path: PathBuf,
    database: Database,
    file: FileBackend,
    performed: Arc<Mutex<Vec<Performed>>>,
    /// Each is locked only by its own thread.
    clients: Vec<Mutex<Client>>,
    truth: RwLock<Truth>,
    writer: Mutex<()>,
    commits: AtomicU64,
    seed: u64,
}

impl Documents {
    /// Creates a store of `records` records, bypassing the cache.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn lay_out(path: &Path, records: u32, seed: u64, watch: &dyn Watch) -> Result<(), Error> {
        let directory = path.parent().unwrap_or(Path::new("/"));
        let bytes = u64::from(records) * LAID_OUT_BYTES;
        layout::check_space(directory, bytes, "choose another directory, or fewer records")?;
        let fail = |error| Error::work(format_args!("cannot create {}: {error}", path.display()));
        // Truncate: an existing store would be opened instead.
        OpenOptions::new().write(true).create(true).truncate(true).open(path).map_err(fail)?;
        let stage = Stage::begin(watch, "records", u64::from(records) * VALUE_BYTES as u64, Unit::Bytes);
        let mut database = Builder::new().create(path).map_err(|error| failed("create", error))?;
        let write = database.begin_write().map_err(|error| failed("begin", error))?;
        {
            let mut table = write.open_table(TABLE).map_err(|error| failed("open", error))?;
            for number in 0..u64::from(records) {
                let value = value(number, 1, seed);
                table.insert(&*key(number), &value[..]).map_err(|error| failed("insert", error))?;
                stage.advance(VALUE_BYTES as u64)?;
            }
        }
        write.commit().map_err(|error| failed("commit", error))?;
        database.compact().map_err(|error| failed("compact", error))?;
        Ok(())
    }

    /// Opens a store that was laid out, for a tenant.
    ///
    /// # Errors
    /// The system's or the store's error.
    pub fn open(
        path: &Path,
        ycsb: Ycsb,
        clients: u32,
        seed: u64,
        tenant: &Tenant,
    ) -> Result<Documents, Error> {
        let fail = |error| Error::work(format_args!("cannot open {}: {error}", path.display()));
        let file = OpenOptions::new().write(true).open(path).map_err(fail)?;
        layout::drop_from_system_cache(&file).map_err(fail)?;
        let performed = Arc::new(Mutex::new(Vec::new()));
        let file = FileBackend::new(tenant.open(path, OpenMode::ReadWrite)?);
        let database = Builder::new()
            .set_cache_size(ycsb.cache_pages as usize * PAGE)
            .create_with_backend(Backend { file: file.clone(), performed: performed.clone() })
            .map_err(|error| failed("open", error))?;
        let seeds =
            (0..clients).map(|client| seed.wrapping_mul(u64::from(clients)).wrapping_add(u64::from(client)));
        Ok(Documents {
            path: path.to_owned(),
            database,
            file,
            performed,
            clients: seeds.map(|seed| Mutex::new(Client::new(ycsb, seed))).collect(),
            truth: RwLock::new(Truth::first(ycsb)),
            writer: Mutex::new(()),
            commits: AtomicU64::new(0),
            seed,
        })
    }

    /// Moves the file to another tenant.
    pub fn move_to(&mut self, tenant: &Tenant) -> Result<(), Error> {
        Ok(self.file.move_to(tenant)?)
    }

    /// Performs one operation of a client.
    pub fn step(&self, client: usize, report: &mut dyn FnMut(Performed)) -> Result<(), LoadError> {
        let records = self.truth.read().expect("no panic").records();
        let request = self.clients[client].lock().expect("no panic").next(records);
        match request {
            StoreRequest::Read { key } => self.read(key)?,
            StoreRequest::Update { key } => self.write(Some(key))?,
            StoreRequest::Insert => self.write(None)?,
            StoreRequest::Scan { key, records } => self.scan(key, records)?,
            StoreRequest::ReadModifyWrite { key } => {
                self.read(key)?;
                self.write(Some(key))?;
            }
        }
        // This may include accesses of concurrent clients, which then report none.
        std::mem::take(&mut *self.performed.lock().expect("no panic")).into_iter().for_each(report);
        Ok(())
    }

    fn read(&self, number: u64) -> Result<(), LoadError> {
        let committed = self.truth.read().expect("no panic").generation(number);
        let read = self.database.begin_read().map_err(|error| failed("begin", error))?;
        let table = read.open_table(TABLE).map_err(|error| failed("open", error))?;
        let key = key(number);
        let found = table.get(&*key).map_err(|error| failed("get", error))?;
        let found = found.ok_or_else(|| LoadError::contents(format_args!("record {number} is gone")))?;
        self.check(&key, found.value(), committed).map(drop)
    }

    /// Checks a record that was read. `committed` is its number of writes committed before. Returns
    /// the record's number.
    fn check(&self, key: &str, value: &[u8], committed: u64) -> Result<u64, LoadError> {
        let (number, generation) = record(key, value)?;
        // One more write may be committed and not yet recorded.
        let most = self.truth.read().expect("no panic").generation(number) + 1;
        if !(committed..=most).contains(&generation) {
            return Err(LoadError::contents(format_args!(
                "record {number} is of generation {generation}, where {committed} to {most} were committed"
            )));
        }
        Ok(number)
    }

    fn scan(&self, first: u64, records: u64) -> Result<(), LoadError> {
        let expected = self.truth.read().expect("no panic").following(position(first), records);
        let read = self.database.begin_read().map_err(|error| failed("begin", error))?;
        let table = read.open_table(TABLE).map_err(|error| failed("open", error))?;
        let range = table.range(&*key(first)..).map_err(|error| failed("scan", error))?;
        let (mut missing, mut last) = (expected.into_iter().peekable(), None);
        let mut left = records;
        for entry in range.take(records as usize) {
            let (key, value) = entry.map_err(|error| failed("next", error))?;
            let at = position(self.check(key.value(), value.value(), 1)?);
            if last.is_some_and(|last| at <= last) {
                return Err(LoadError::contents(format_args!(
                    "a scan from record {first} on is out of order"
                )));
            }
            // Concurrent inserts may lie in between.
            missing.next_if_eq(&at);
            last = Some(at);
            left -= 1;
        }
        match missing.next() {
            Some(at) if left > 0 || last.is_some_and(|last| at < last) => Err(LoadError::contents(
                format_args!("a scan from record {first} on leaves user{at:019} out"),
            )),
            _ => Ok(()),
        }
    }

    /// Rewrites a record; `None` inserts a new one.
    fn write(&self, number: Option<u64>) -> Result<(), LoadError> {
        let _writer = self.writer.lock().expect("no panic");
        let (number, generation) = {
            let truth = self.truth.read().expect("no panic");
            let number = number.unwrap_or(truth.records());
            (number, truth.generation(number) + 1)
        };
        let mut write = self.database.begin_write().map_err(|error| failed("begin", error))?;
        let durable = (self.commits.fetch_add(1, Relaxed) + 1).is_multiple_of(COMMITS_PER_SYNC);
        let durability = if durable { Durability::Immediate } else { Durability::None };
        write.set_durability(durability).map_err(|error| failed("durability", error))?;
        {
            let mut table = write.open_table(TABLE).map_err(|error| failed("open", error))?;
            let value = value(number, generation, self.seed);
            table.insert(&*key(number), &value[..]).map_err(|error| failed("insert", error))?;
        }
        write.commit().map_err(|error| failed("commit", error))?;
        self.truth.write().expect("no panic").note(number, generation);
        Ok(())
    }

    /// Makes all commits durable.
    pub fn sync(&self) -> Result<(), LoadError> {
        let write = self.database.begin_write().map_err(|error| failed("begin", error))?;
        write.commit().map_err(|error| failed("commit", error))
    }

    /// Makes all commits durable and reads every record: through the cache, or directly with
    /// `on_device`.
    pub fn verify(&self, on_device: bool) -> Result<Verified, LoadError> {
        self.sync()?;
        let truth = self.truth.read().expect("no panic");
        if !on_device {
            return verify_all(&self.database, &truth);
        }
        let copy = self.path.with_extension("copy");
        let fail = |error| LoadError::Device(format!("cannot copy {}: {error}", self.path.display()));
        std::fs::copy(&self.path, &copy).map_err(fail)?;
        let verified = Builder::new()
            .open(&copy)
            .map_err(|error| failed("open past the cache", error))
            .and_then(|database| verify_all(&database, &truth));
        std::fs::remove_file(&copy).map_err(fail)?;
        verified
    }
}

/// Checks that every record is as last committed.
fn verify_all(database: &Database, truth: &Truth) -> Result<Verified, LoadError> {
    let read = database.begin_read().map_err(|error| failed("begin", error))?;
    let table = read.open_table(TABLE).map_err(|error| failed("open", error))?;
    let mut records = 0;
    for entry in table.iter().map_err(|error| failed("iterate", error))? {
        let (key, value) = entry.map_err(|error| failed("next", error))?;
        let (number, _) = record(key.value(), value.value())?;
        verify::check_generation(value.value(), number, truth.generation(number))
            .map_err(LoadError::contents)?;
        records += 1;
    }
    if records != truth.records() {
        let committed = truth.records();
        return Err(LoadError::contents(format_args!(
            "found {records} records, but {committed} were committed"
        )));
    }
    Ok(Verified { pages: records })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_cache::{BackendKind, PageCache};

    const RECORDS: u32 = 3000;
    const CLIENTS: u32 = 3;

    fn cache() -> PageCache {
        PageCache::builder(3 << 20).backend(BackendKind::Threads).build().unwrap()
    }

    fn ycsb(letter: Letter, cache_pages: u32) -> Ycsb {
        Ycsb::new(letter, RECORDS, cache_pages)
    }

    fn laid_out(directory: &Path, ycsb: Ycsb, cache: &PageCache) -> Documents {
        let path = directory.join("records");
        Documents::lay_out(&path, ycsb.records, 7, &crate::Unwatched).unwrap();
        Documents::open(&path, ycsb, CLIENTS, 7, &cache.tenant("").unwrap()).unwrap()
    }

    /// Runs `operations` operations per client concurrently. Returns the pages read and written.
    fn work(documents: &Documents, operations: u32) -> [u64; 2] {
        let touched = [AtomicU64::new(0), AtomicU64::new(0)];
        std::thread::scope(|scope| {
            for client in 0..CLIENTS as usize {
                let touched = &touched;
                scope.spawn(move || {
                    for _ in 0..operations {
                        let report = &mut |done: Performed| {
                            touched[usize::from(done.access.write)].fetch_add(1, Relaxed);
                        };
                        documents.step(client, report).unwrap();
                    }
                });
            }
        });
        touched.map(AtomicU64::into_inner)
    }

    /// All at once, because each mostly waits for the disk.
    #[test]
    fn each_workload_keeps_its_committed_records() {
        std::thread::scope(|scope| {
            for letter in Letter::ALL {
                scope.spawn(move || keeps_its_committed_records(letter));
            }
        });
    }

    fn keeps_its_committed_records(letter: Letter) {
        let (directory, cache) = (tempfile::tempdir().unwrap(), cache());
        let documents = laid_out(directory.path(), ycsb(letter, 64), &cache);
        let [read, written] = work(&documents, 300);
        assert!(read > 100, "{letter:?}: {read} pages are read");
        // Opening the store writes the header.
        assert_eq!(written > 1, letter != Letter::C, "{letter:?}: {written} pages are written");
        documents.verify(false).unwrap();
        // As after a crash.
        let verified = documents.verify(true).unwrap();
        let Documents { database, file, truth, .. } = documents;
        let truth = truth.into_inner().unwrap();
        let (inserted, updated) = match letter {
            Letter::A | Letter::F => (0..=0, 400..=500),
            Letter::B => (0..=0, 25..=70),
            Letter::C => (0..=0, 0..=0),
            Letter::D | Letter::E => (25..=70, 0..=0),
        };
        let writes: u64 = truth.generations.iter().map(|&generation| u64::from(generation)).sum();
        assert!(inserted.contains(&(truth.records() - u64::from(RECORDS))), "{letter:?}");
        assert!(updated.contains(&(writes - truth.records())), "{letter:?}: {writes}");
        assert_eq!(verified.pages, truth.records());
        // After closing, through another cache.
        drop((database, file));
        cache.close().unwrap();
        let cache = self::cache();
        let file = cache.tenant("").unwrap().open(directory.path().join("records"), OpenMode::ReadWrite);
        let backend = Backend { file: FileBackend::new(file.unwrap()), performed: Arc::default() };
        let database = Builder::new().create_with_backend(backend).unwrap();
        assert_eq!(verify_all(&database, &truth).unwrap(), verified);
    }

    #[test]
    fn a_record_that_is_wrong_old_or_gone_is_found() {
        let (directory, cache) = (tempfile::tempdir().unwrap(), cache());
        let documents = laid_out(directory.path(), ycsb(Letter::E, 0), &cache);
        let error_of = |result: Result<(), LoadError>| result.unwrap_err().to_string();
        let scanned = documents.truth.read().unwrap().following(position(5), 3);
        documents.scan(5, 3).unwrap();
        let behind = (0..u64::from(RECORDS)).find(|&number| position(number) == scanned[1]).unwrap();

        documents.truth.write().unwrap().note(5, 2);
        assert!(error_of(documents.read(5)).contains("record 5 is of generation 1"));
        assert!(documents.verify(false).unwrap_err().to_string().contains("stale"));
        documents.truth.write().unwrap().note(5, 1);

        let write = documents.database.begin_write().unwrap();
        write.open_table(TABLE).unwrap().remove(&*key(behind)).unwrap();
        write.commit().unwrap();
        assert!(error_of(documents.read(behind)).contains("is gone"));
        assert!(error_of(documents.scan(5, 3)).contains(&format!("leaves {} out", key(behind))));
        assert!(documents.verify(true).unwrap_err().to_string().contains("found 2999 records, but"));

        let path = directory.path().join("records");
        let bytes = std::fs::read(&path).unwrap();
        let file = cache.tenant("").unwrap().open(&path, OpenMode::ReadWrite).unwrap();
        for at in bytes.windows(8).enumerate().filter(|(_, window)| window.starts_with(b"mglr\xE8\x03")) {
            file.write_at(&[1, 2], at.0 as u64 + 500).unwrap();
        }
        assert!(error_of(documents.read(5)).contains("differs from byte 500"));
    }
}
