//! YCSB on redb: records of 1,000 bytes, of which some are used far more than others. With redb's
//! own cache and with the page cache in turns, in the same amount of memory, and both without the
//! system's page cache.
//!
//! ```text
//! cargo run --release -p mglru-redb --example ycsb_b -- [MiB] [records] [operations] [turns] [own]
//! cargo run --release -p mglru-redb --example ycsb_b -- presets [--quick] [LOADS]
//! ```
//!
//! The first form runs load B. Without arguments: 16 MiB of memory, 60,000 records (about 64 MiB),
//! 100,000 operations and one turn. `own` is the size of redb's own cache beside the page cache, in
//! MiB: a 64th of the memory, at least 1. The second form runs the loads A to F, or those of LOADS
//! (as `abf`), with the page cache under the presets of three kernels and the default: six turns,
//! or with `--quick` one of a smaller database.
//!
//! | load | reads | others | records |
//! |---|---|---|---|
//! | A | 50 % | 50 % updates | zipfian |
//! | B | 95 % | 5 % updates | zipfian |
//! | C | 100 % | | zipfian |
//! | D | 95 % | 5 % inserts | the latest |
//! | E | 95 % scans of up to 100 records | 5 % inserts | zipfian |
//! | F | 50 % | 50 % reads with an update | zipfian |
//!
//! It writes to the current directory, which must be on a disk; reads and writes are those that the
//! system counts for this process (`/proc/self/io`).

use mglru_cache::{Mechanisms, PageCache, Preset};
use mglru_redb::FileBackend;
use mglru_workload::ycsb::{Client, Letter, StoreRequest, Ycsb};
use redb::{Builder, Database, Durability, ReadableDatabase, StorageBackend, TableDefinition};
use std::error::Error;
use std::fmt::Write;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("usertable");
const PAGE: u64 = 4096;
/// Bytes of a value: ten fields of 100.
const VALUE: usize = 1000;
/// Writes until one is put on stable storage.
const WRITES_PER_SYNC: u64 = 100;

/// The sizes of a run.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Memory for caches, in bytes.
    pub memory: u64,
    /// Records of the database.
    pub records: u64,
    /// Operations of a turn.
    pub operations: u64,
    /// Turns of each cache.
    pub turns: u64,
    /// The part of the memory that is redb's own cache beside the page cache, in bytes.
    pub own: u64,
}

/// Memory as `O_DIRECT` wants it.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Aligned([u8; PAGE as usize]);

/// A file without the system's cache, as redb's storage.
#[derive(Debug)]
struct DirectFile(File);

impl DirectFile {
    fn open(path: &Path) -> io::Result<DirectFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(libc::O_DIRECT);
        Ok(DirectFile(options.open(path)?))
    }

    /// The whole pages around a range, and the range's first byte in them.
    fn around(&self, offset: u64, len: usize) -> io::Result<(u64, usize, Vec<Aligned>)> {
        let start = offset / PAGE * PAGE;
        let pages = (offset + len as u64).div_ceil(PAGE) - offset / PAGE;
        let mut buffer = vec![Aligned::new_zeroed(); pages as usize];
        let bytes = buffer.as_mut_bytes();
        let mut done = 0;
        // Less than the whole at the end of the file.
        while done < bytes.len() {
            match self.0.read_at(&mut bytes[done..], start + done as u64)? {
                0 => break,
                read => done += read,
            }
        }
        Ok((start, (offset - start) as usize, buffer))
    }
}

impl StorageBackend for DirectFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let (_, within, buffer) = self.around(offset, out.len())?;
        out.copy_from_slice(&buffer.as_bytes()[within..within + out.len()]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let is_whole = offset.is_multiple_of(PAGE) && data.len().is_multiple_of(PAGE as usize);
        let (start, within, mut buffer) = match is_whole {
            true => (offset, 0, vec![Aligned::new_zeroed(); data.len() / PAGE as usize]),
            false => self.around(offset, data.len())?,
        };
        buffer.as_mut_bytes()[within..within + data.len()].copy_from_slice(data);
        self.0.write_all_at(buffer.as_bytes(), start)
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

/// The result of a turn: operations per second, the time that 99 % of them stay below, and bytes
/// read and written.
struct Outcome {
    rate: f64,
    p99: Duration,
    bytes: [u64; 2],
}

fn load(database: &Database, sizes: Sizes) -> Result<(), Box<dyn Error>> {
    for first in (0..sizes.records).step_by(10_000) {
        let write = database.begin_write()?;
        let mut table = write.open_table(TABLE)?;
        for key in first..sizes.records.min(first + 10_000) {
            table.insert(key, &value(key, 0)[..])?;
        }
        drop(table);
        write.commit()?;
    }
    Ok(())
}

fn read(database: &Database, key: u64) -> Result<(), Box<dyn Error>> {
    let table = database.begin_read()?.open_table(TABLE)?;
    let found = table.get(key)?.ok_or("a record is missing")?;
    assert_eq!(found.value()[..8], key.to_le_bytes(), "the record of another key");
    Ok(())
}

fn scan(database: &Database, keys: std::ops::RangeFrom<u64>, records: usize) -> Result<(), Box<dyn Error>> {
    let table = database.begin_read()?.open_table(TABLE)?;
    for entry in table.range(keys)?.take(records) {
        let (key, found) = entry?;
        assert_eq!(found.value()[..8], key.value().to_le_bytes(), "the record of another key");
    }
    Ok(())
}

/// Half of the operations warm the cache and are not measured.
fn operate(database: &Database, letter: Letter, sizes: Sizes) -> Result<Outcome, Box<dyn Error>> {
    let records = u32::try_from(sizes.records)?;
    let mut client = Client::new(Ycsb::new(letter, records, 0), 1);
    let (mut began, mut before) = (Instant::now(), transferred());
    let (mut writes, mut records) = (0, sizes.records);
    let mut times = Vec::with_capacity(sizes.operations.div_ceil(2) as usize);
    for number in 0..sizes.operations {
        if number == sizes.operations / 2 {
            (began, before) = (Instant::now(), transferred());
            times.clear();
        }
        let request = client.next(records);
        let start = Instant::now();
        let written = match request {
            StoreRequest::Read { key } => {
                read(database, key)?;
                None
            }
            StoreRequest::Scan { key, records } => {
                scan(database, key.., records as usize)?;
                None
            }
            StoreRequest::Update { key } => Some(key),
            StoreRequest::ReadModifyWrite { key } => {
                read(database, key)?;
                Some(key)
            }
            StoreRequest::Insert => {
                records += 1;
                Some(records - 1)
            }
        };
        if let Some(key) = written {
            writes += 1;
            let mut write = database.begin_write()?;
            let is_synced = writes % WRITES_PER_SYNC == 0;
            write.set_durability(if is_synced { Durability::Immediate } else { Durability::None })?;
            write.open_table(TABLE)?.insert(key, &value(key, number)[..])?;
            write.commit()?;
        }
        times.push(start.elapsed());
    }
    let rate = times.len() as f64 / began.elapsed().as_secs_f64();
    let after = transferred();
    times.sort_unstable();
    let p99 = times.get(times.len() * 99 / 100).copied().unwrap_or_default();
    Ok(Outcome { rate, p99, bytes: [after[0] - before[0], after[1] - before[1]] })
}

fn with_own_cache(path: &Path, sizes: Sizes) -> Result<Outcome, Box<dyn Error>> {
    let backend = DirectFile::open(path)?;
    let database = Builder::new().set_cache_size(sizes.memory as usize).create_with_backend(backend)?;
    operate(&database, Letter::B, sizes)
}

fn with_page_cache(
    path: &Path,
    preset: Preset,
    letter: Letter,
    sizes: Sizes,
) -> Result<Outcome, Box<dyn Error>> {
    // redb keeps pages that it is about to write in its own cache, and the upper pages of the tree.
    let mechanisms = Mechanisms::preset(preset);
    let cache = PageCache::builder(sizes.memory - sizes.own).mechanisms(mechanisms).build()?;
    let backend = FileBackend::open(&cache.tenant("")?, path)?;
    let database = Builder::new().set_cache_size(sizes.own as usize).create_with_backend(backend)?;
    let outcome = operate(&database, letter, sizes)?;
    drop(database);
    cache.close()?;
    Ok(outcome)
}

fn create(path: &Path, sizes: Sizes) -> Result<(), Box<dyn Error>> {
    load(&Builder::new().set_cache_size(64 << 20).create_with_backend(DirectFile::open(path)?)?, sizes)
}

/// Runs loads under each preset, each on a new database, the presets in turns. Returns a table of
/// medians, with the least and the most that a turn read.
pub fn run_presets(directory: &Path, letters: &[Letter], sizes: Sizes) -> Result<String, Box<dyn Error>> {
    let mut text = String::from(
        "| load | preset | operations/s | p99, µs | MiB read | least, most | MiB written |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let path = directory.join("ycsb.redb");
    for &letter in letters {
        let mut turns = Preset::ALL.map(|_| Vec::new());
        for _ in 0..sizes.turns {
            for (preset, outcomes) in Preset::ALL.into_iter().zip(&mut turns) {
                create(&path, sizes)?;
                outcomes.push(with_page_cache(&path, preset, letter, sizes)?);
                std::fs::remove_file(&path)?;
            }
        }
        for (preset, outcomes) in Preset::ALL.into_iter().zip(turns) {
            let of = |value| least_median_most(&outcomes, value);
            let [_, rate, _] = of(|outcome| outcome.rate);
            let [_, p99, _] = of(|outcome| outcome.p99.as_secs_f64() * 1e6);
            let [least, middle, most] = of(|outcome| mib(outcome.bytes[0]));
            let [_, written, _] = of(|outcome| mib(outcome.bytes[1]));
            let name = preset.name();
            write!(
                text,
                "| {letter:?} | {name} | {rate:.0} | {p99:.0} | {middle:.1} | {least:.1}, {most:.1} "
            )?;
            writeln!(text, "| {written:.1} |")?;
        }
    }
    Ok(text)
}

/// Of some value of all turns.
fn least_median_most(outcomes: &[Outcome], value: fn(&Outcome) -> f64) -> [f64; 3] {
    let mut values: Vec<f64> = outcomes.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    [values[0], (values[last / 2] + values[values.len() / 2]) / 2.0, values[last]]
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Runs the load both ways, in turns. Returns what `main` prints: medians, and all rates.
pub fn run(directory: &Path, sizes: Sizes) -> Result<String, Box<dyn Error>> {
    let path = directory.join("ycsb.redb");
    create(&path, sizes)?;
    let mut text = format!(
        "YCSB-B, {} records in {} MiB, {} MiB of memory, {} operations measured\n",
        sizes.records,
        std::fs::metadata(&path)?.len() >> 20,
        sizes.memory >> 20,
        sizes.operations - sizes.operations / 2
    );
    let (mut own, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..sizes.turns {
        own.push(with_own_cache(&path, sizes)?);
        ours.push(with_page_cache(&path, Preset::Default, Letter::B, sizes)?);
    }
    for (name, outcomes) in [("redb's own cache", own), ("the page cache", ours)] {
        let [slowest, rate, fastest] = least_median_most(&outcomes, |outcome| outcome.rate);
        let [_, read, _] = least_median_most(&outcomes, |outcome| mib(outcome.bytes[0]));
        let [_, written, _] = least_median_most(&outcomes, |outcome| mib(outcome.bytes[1]));
        write!(text, "{name:17} {rate:8.0} operations/s {read:8.1} MiB read, {written:8.1} MiB written")?;
        if outcomes.len() > 1 {
            write!(text, "; turns: {slowest:.0} to {fastest:.0}")?;
        }
        writeln!(text)?;
    }
    Ok(text)
}

/// The loads with these letters.
///
/// # Errors
/// A letter is not a load's.
pub fn letters(text: &str) -> Result<Vec<Letter>, String> {
    let named = |letter: char| {
        let name = letter.to_lowercase().to_string();
        Letter::ALL.into_iter().find(|load| load.name() == name)
    };
    let parsed: Option<Vec<Letter>> = text.chars().map(named).collect();
    parsed.ok_or_else(|| format!("`{text}` are no loads; expected letters from a to f"))
}

fn of_presets(arguments: impl Iterator<Item = String>) -> Result<String, Box<dyn Error>> {
    let (mut quick, mut loads) = (false, Letter::ALL.to_vec());
    for argument in arguments {
        match argument.as_str() {
            "--quick" => quick = true,
            text => loads = letters(text)?,
        }
    }
    let (records, operations, turns) = if quick { (10_000, 8_000, 1) } else { (60_000, 100_000, 6) };
    let memory = if quick { 4 << 20 } else { 16 << 20 };
    let sizes = Sizes { memory, records, operations, turns, own: memory / 16 };
    run_presets(tempfile::tempdir_in(".")?.path(), &loads, sizes)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|argument| argument == "presets").is_some() {
        print!("{}", of_presets(arguments)?);
        return Ok(());
    }
    let mut numbers = arguments.map(|argument| argument.parse::<u64>());
    let mut next = |or: u64| numbers.next().unwrap_or(Ok(or));
    let memory = next(16)?;
    let (records, operations, turns) = (next(60_000)?, next(100_000)?, next(1)?.max(1));
    let own = next((memory / 64).max(1))?;
    if own >= memory {
        return Err("redb's own cache must be smaller than the memory".into());
    }
    let sizes = Sizes { memory: memory << 20, records, operations, turns, own: own << 20 };
    let directory = tempfile::tempdir_in(".")?;
    print!("{}", run(directory.path(), sizes)?);
    Ok(())
}
