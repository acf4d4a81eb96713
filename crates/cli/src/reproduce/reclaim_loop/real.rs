//! YCSB-B for real: an ordered key-value store (redb) over a [`CachedFile`], with contents that are verified.
//!
//! The published proportions: of 10 parts of memory the store's own cache has 4.5 and the page cache 5.5, for 22 parts of records.
//! The store writes to other places than before and syncs every so many commits, in between nothing is durable: so
//! dirty pages wait for the flusher. Each value that is read must be of its key, and no older than what was committed before
//! the read began; at the end all are read through the cache, and then past it.

use super::super::Effort;
use super::super::crosscheck;
use super::super::evidence::{Check, Experiment, Published, Row, Values};
use crate::error::Failure;
use crate::interrupt::TemporaryFolder;
use crate::layout;
use crate::progress;
use mglru_cache::{CachedFile, OpenMode, PageCache};
use mglru_core::Mechanisms;
use mglru_workload::verify::{self, Identity};
use mglru_workload::ycsb::{Keys, Letter, Ycsb};
use redb::{Builder, Database, Durability, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The page cache's part of 48 MiB, and the store's.
const LIMIT_BYTES: u64 = 48 * MIB * 11 / 20;
const STORE_CACHE_BYTES: u64 = 48 * MIB * 9 / 20;
/// 20 M for 10 G.
const RECORDS: u32 = 93_750;
/// What the cache has besides, so that only the limit matters.
const ROOM_BYTES: u64 = 8 * MIB;
/// Ten fields of 100 bytes.
const VALUE_BYTES: usize = 1000;
const CLIENTS: u64 = 4;
/// Commits until one is durable.
const COMMITS_PER_SYNC: u64 = 200;
const TIME: Duration = Duration::from_secs(3);

const TABLE: TableDefinition<&str, &[u8]> = TableDefinition::new("usertable");

/// A file of the cache, as a store sees it.
struct Backend(CachedFile);

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Backend").field(&self.0.path()).finish()
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < out.len() {
            match self.0.read_at(&mut out[done..], offset + done as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => done += read,
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(self.0.truncate(len)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(self.0.sync_data()?)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(data, offset)?;
        Ok(())
    }
}

const WORKLOAD: &str = "\
The reclaim loop: linux-7.1 (before) against linux-7.2 (after), and our default.
  YCSB-B on redb, 4 clients, 93,750 records of 1,000 bytes; of 48 MiB the page cache has 26.4, the store's \
own cache 21.6; every 200th commit is durable; each run begins with a new copy of the database, 1.5 s \
fill the caches and 3 s count; read_only: without updates. Every value is verified.
";
/// Runs of each setting, at least.
const RUNS_MIN: u32 = 6;

/// Runs the experiment; before, after and default in turn, so that what else happens on the machine hits all alike.
///
/// # Errors
/// Files cannot be made, or a record is not what it should be.
pub fn run(effort: Effort, settings: [Mechanisms; 3], directory: &Path) -> Result<Experiment, Failure> {
    let runs = if effort.shorter == 1 { effort.runs.max(RUNS_MIN) } else { effort.runs };
    let prepared = Prepared::new(directory, effort.seed)?;
    let bar = progress::of_share(u64::from(runs) * 6);
    bar.set_message("YCSB-B on redb");
    let mut facts = [(); 6].map(|()| Vec::new());
    for seed in effort.seed..effort.seed + u64::from(runs) {
        for (part, writes_percent) in [5, 0].into_iter().enumerate() {
            for (setting, &mechanisms) in settings.iter().enumerate() {
                facts[3 * part + setting].push(prepared.run(
                    mechanisms,
                    writes_percent,
                    seed,
                    effort.shorter.min(2),
                )?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    let row = |metric, unit, published, part: usize, figure: &dyn Fn(&RealFacts) -> f64| {
        let [before, after, default] =
            [0, 1, 2].map(|setting| facts[3 * part + setting].iter().map(figure).collect());
        // Also what is counted: jobs run for a time.
        Row { metric, unit, values: Values::Timed, published, before, after, default }
    };
    let change = |before, after| Published::Change { before, after };
    let refaults = |facts: &RealFacts| facts.counters["workingset_refault_file"] as f64;
    let each = |facts: &RealFacts, count: f64| count / facts.operations as f64;
    let rows = vec![
        row("ycsb_b_refault_file", "pages", change(34_365_441.0, 18_934_364.0), 0, &refaults),
        row("ycsb_b_pgpgin", "kB", change(164_636_727.0, 108_820_685.0), 0, &|facts| {
            4.0 * facts.misses as f64
        }),
        row("ycsb_b_operations_per_second", "1/s", change(63_050.38, 79_937.12), 0, &RealFacts::rate),
        row("ycsb_b_refaults_per_operation", "pages", change(5.7276, 3.1557), 0, &|facts| {
            each(facts, refaults(facts))
        }),
        row("ycsb_b_misses_per_operation", "pages", Published::Nothing, 0, &|facts| {
            each(facts, facts.misses as f64)
        }),
        row("read_only_misses_per_operation", "pages", Published::Same, 1, &|facts| {
            each(facts, facts.misses as f64)
        }),
        row("read_only_operations_per_second", "1/s", Published::Same, 1, &RealFacts::rate),
    ];
    let verified: u64 = facts.iter().flatten().map(|facts| facts.verified_records).sum();
    let evicts = facts.iter().flatten().all(|facts| refaults(facts) > 0.0);
    Ok(Experiment {
        name: "reclaim-loop",
        world: "real",
        workload: WORKLOAD.to_owned(),
        runs,
        quick: effort.shorter > 1,
        untimely: None,
        seconds: 0.0,
        rows,
        checks: vec![
            Check {
                name: format!(
                    "all values were of their keys, and none was lost: {verified} records at the end"
                ),
                holds: verified > 0,
            },
            Check { name: "pages came back in every run".to_owned(), holds: evicts },
        ],
        crosschecks: crosscheck::REAL_TIME,
        shown: Vec::new(),
    })
}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct RealFacts {
    /// The tenant's counters, by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// Pages read from the device.
    pub misses: u64,
    /// Operations of all clients.
    pub operations: u64,
    /// What they took.
    pub seconds: f64,
    /// Records that were checked at the end.
    pub verified_records: u64,
}

impl RealFacts {
    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

/// The database with its first contents, made once.
pub struct Prepared {
    directory: TemporaryFolder,
    seed: u64,
}

fn ycsb(writes_percent: u32) -> Ycsb {
    Ycsb { letter: Letter::B, writes_percent, records: RECORDS, cache_pages: 0, uniform: false }
}

fn key(number: u64) -> String {
    // In no order, as YCSB's hashed keys.
    format!("user{:019}", mglru_workload::random::mix(number) >> 1)
}

fn value(number: u64, generation: u32, seed: u64) -> [u8; VALUE_BYTES] {
    let mut bytes = [0; VALUE_BYTES];
    verify::fill(&mut bytes, Identity { offset: number, generation: u64::from(generation), seed });
    bytes
}

fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::work(format_args!("redb {what}: {error}"))
}

impl Prepared {
    /// Makes it in a directory of its own below `directory`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(directory: &Path, seed: u64) -> Result<Prepared, Failure> {
        let prepared = Prepared { directory: layout::temporary(directory)?, seed };
        let mut database =
            Builder::new().create(prepared.path("first")).map_err(|error| failed("create", error))?;
        let write = database.begin_write().map_err(|error| failed("begin", error))?;
        {
            let mut table = write.open_table(TABLE).map_err(|error| failed("open", error))?;
            for number in 0..u64::from(RECORDS) {
                let value = value(number, 1, seed);
                table.insert(&*key(number), &value[..]).map_err(|error| failed("insert", error))?;
            }
        }
        write.commit().map_err(|error| failed("commit", error))?;
        database.compact().map_err(|error| failed("compact", error))?;
        Ok(prepared)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs YCSB-B on a copy, with so many writes in a hundred operations, `shorter` times as short.
    ///
    /// # Errors
    /// The system's, the store's; or a record is not what it should be.
    pub fn run(
        &self,
        mechanisms: Mechanisms,
        writes_percent: u32,
        seed: u64,
        shorter: u32,
    ) -> Result<RealFacts, Failure> {
        let path = self.path("run");
        let fail = |error| Failure::work(format_args!("cannot make {}: {error}", path.display()));
        std::fs::copy(self.path("first"), &path).map_err(fail)?;
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(fail)?;
        layout::drop_from_system_cache(&file).map_err(fail)?;
        let cache = PageCache::builder(LIMIT_BYTES + ROOM_BYTES)
            .tenant("store", LIMIT_BYTES)
            .mechanisms(mechanisms)
            .build()?;
        let tenant = cache.tenant("store")?;
        let database = Builder::new()
            .set_cache_size(STORE_CACHE_BYTES as usize)
            .create_with_backend(Backend(tenant.open(&path, OpenMode::ReadWrite)?))
            .map_err(|error| failed("open", error))?;
        let store = Store {
            database,
            generations: Generations::new(),
            seed: self.seed,
            writer: Mutex::new(()),
            commits: AtomicU64::new(0),
        };
        // Caches are filled first.
        during(TIME / 2 / shorter, |client| store.client(writes_percent, seed * 2 * CLIENTS + client))?;
        let before = tenant.stats();
        let began = Instant::now();
        let operations =
            during(TIME / shorter, |client| store.client(writes_percent, (seed * 2 + 1) * CLIENTS + client))?;
        let seconds = began.elapsed().as_secs_f64();
        let after = tenant.stats();
        let earlier: BTreeMap<_, _> = before.counters.iter().copied().collect();
        let since = |(name, now): (&'static str, u64)| (name, now.saturating_sub(earlier[name]));
        let mut verified = store.verify()?;
        let Store { database, generations, .. } = store;
        drop(database);
        cache.close()?;
        let database = Builder::new().open(&path).map_err(|error| failed("open past the cache", error))?;
        verified += verify_all(&database, &generations)?;
        Ok(RealFacts {
            counters: after.counters.iter().copied().map(since).collect(),
            misses: after.misses - before.misses,
            operations,
            seconds,
            verified_records: verified,
        })
    }
}

/// Has clients work at once until the time is over. Their operations, together.
fn during<C: FnMut() -> Result<(), Failure>>(
    time: Duration,
    client: impl Fn(u64) -> C + Sync,
) -> Result<u64, Failure> {
    let began = Instant::now();
    let work = |number| {
        let (mut operation, mut done) = (client(number), 0);
        while began.elapsed() < time {
            operation()?;
            done += 1;
        }
        Ok(done)
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).sum()
    })
}

/// What is committed of each record.
struct Generations(Vec<AtomicU32>);

impl Generations {
    fn new() -> Generations {
        Generations((0..RECORDS).map(|_| AtomicU32::new(1)).collect())
    }

    fn of(&self, number: u64) -> u32 {
        self.0[number as usize].load(SeqCst)
    }
}

/// A store at work.
struct Store {
    database: Database,
    generations: Generations,
    seed: u64,
    /// Held from the begin of a write to the note of what it committed.
    writer: Mutex<()>,
    commits: AtomicU64,
}

impl Store {
    /// The operations of a client.
    fn client(&self, writes_percent: u32, seed: u64) -> impl FnMut() -> Result<(), Failure> + '_ {
        let mut keys = Keys::new(ycsb(writes_percent), seed);
        move || {
            let write = keys.writes();
            let number = keys.scattered();
            if write { self.update(number) } else { self.read(number) }
        }
    }

    fn read(&self, number: u64) -> Result<(), Failure> {
        let committed = self.generations.of(number);
        let read = self.database.begin_read().map_err(|error| failed("begin", error))?;
        let table = read.open_table(TABLE).map_err(|error| failed("open", error))?;
        let found = table.get(&*key(number)).map_err(|error| failed("get", error))?;
        let found = found.ok_or_else(|| Failure::work(format_args!("record {number} is gone")))?;
        let identity = verify::check(found.value(), number).map_err(Failure::work)?;
        // One more may be committed, and not noted yet.
        if identity.generation < u64::from(committed)
            || identity.generation > u64::from(self.generations.of(number)) + 1
        {
            return Err(Failure::work(format_args!(
                "record {number} is of generation {}, where {committed} was committed",
                identity.generation
            )));
        }
        Ok(())
    }

    fn update(&self, number: u64) -> Result<(), Failure> {
        let _writer = self.writer.lock().expect("no panic");
        let generation = self.generations.of(number) + 1;
        let mut write = self.database.begin_write().map_err(|error| failed("begin", error))?;
        let durable = (self.commits.fetch_add(1, SeqCst) + 1).is_multiple_of(COMMITS_PER_SYNC);
        let durability = if durable { Durability::Immediate } else { Durability::None };
        write.set_durability(durability).map_err(|error| failed("durability", error))?;
        {
            let mut table = write.open_table(TABLE).map_err(|error| failed("open", error))?;
            let value = value(number, generation, self.seed);
            table.insert(&*key(number), &value[..]).map_err(|error| failed("insert", error))?;
        }
        write.commit().map_err(|error| failed("commit", error))?;
        self.generations.0[number as usize].store(generation, SeqCst);
        Ok(())
    }

    /// Makes all durable, and reads every record through the cache.
    fn verify(&self) -> Result<u64, Failure> {
        let write = self.database.begin_write().map_err(|error| failed("begin", error))?;
        write.commit().map_err(|error| failed("commit", error))?;
        verify_all(&self.database, &self.generations)
    }
}

/// Every record is what was committed last.
fn verify_all(database: &Database, generations: &Generations) -> Result<u64, Failure> {
    let read = database.begin_read().map_err(|error| failed("begin", error))?;
    let table = read.open_table(TABLE).map_err(|error| failed("open", error))?;
    let mut records = 0;
    for entry in table.iter().map_err(|error| failed("iterate", error))? {
        let (found, value) = entry.map_err(|error| failed("next", error))?;
        // A value says of which record it is, which then has to be that of the key.
        let number = value
            .value()
            .get(8..16)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(u64::MAX, u64::from_le_bytes);
        if number >= u64::from(RECORDS) || key(number) != found.value() {
            return Err(Failure::work(format_args!("{} has the value of another record", found.value())));
        }
        let generation = u64::from(generations.of(number));
        verify::check_generation(value.value(), number, generation).map_err(Failure::work)?;
        records += 1;
    }
    if records != u64::from(RECORDS) {
        return Err(Failure::work(format_args!("{records} of {RECORDS} records are left")));
    }
    Ok(records)
}
