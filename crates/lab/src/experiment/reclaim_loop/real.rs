//! YCSB-B with the real cache: the document store ([`Documents`]) over a file, with every value
//! verified.
//!
//! The published proportions: of 10 parts of memory the store's own cache has 4.5 and the page
//! cache 5.5, for 22 parts of records.

use super::super::Effort;
use super::super::crosscheck;
use super::super::evidence::{Check, Experiment, MetricRow, Published, Values};
use crate::layout;
use crate::load::documents::Documents;
use crate::parallel;
use crate::temporary::TemporaryFolder;
use crate::{Error, Stage, Unit, Watch};
use mglru_cache::PageCache;
use mglru_core::{Mechanisms, PAGE_BYTES};
use mglru_workload::ycsb::{Letter, Ycsb};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// The page cache's part of 48 MiB. The store has the rest.
const LIMIT_BYTES: u64 = 48 * MIB * 11 / 20;
const STORE_CACHE_BYTES: u64 = 48 * MIB * 9 / 20;
/// 20 M for 10 G.
const RECORDS: u32 = 93_750;
/// Divides memory and records of a quick run.
const QUICK_SMALLER: u32 = 12;
/// Divides its times.
const QUICK_SHORTER: u32 = 8;
/// Memory of the cache above the limit, so that only the limit matters.
const ROOM_BYTES: u64 = 8 * MIB;
const CLIENTS: u32 = 4;
const TIME: Duration = Duration::from_secs(3);

const WORKLOAD: &str = "\
The reclaim loop: linux-7.1 (before) against linux-7.1 with reclaim_loop (after), and the default.
  YCSB-B on redb, 4 clients, 93,750 records of 1,000 bytes; of 48 MiB the page cache has 26.4 and the \
store's own cache 21.6; every 200th commit is durable. Each run starts with a new copy of the database, \
fills the caches for 1.5 s and counts for 3 s. read_only: without updates. Every value is verified. \
--quick: a 12th of memory and records, an 8th of the times.
";
const RUNS_MIN: u32 = 6;

/// Runs the experiment. Before, after and default alternate, so that other activity on the machine
/// affects them equally.
///
/// # Errors
/// If files cannot be created or a record is wrong.
pub fn run(
    effort: Effort,
    settings: [Mechanisms; 3],
    directory: &Path,
    watch: &dyn Watch,
) -> Result<Experiment, Error> {
    let runs = effort.runs_at_least(RUNS_MIN);
    let (smaller, shorter) = if effort.is_quick() { (QUICK_SMALLER, QUICK_SHORTER) } else { (1, 1) };
    let prepared = Prepared::new(directory, smaller, shorter, effort.seed, watch)?;
    let stage = Stage::begin(watch, "YCSB-B on redb", u64::from(runs) * 6, Unit::Steps);
    let mut facts = [(); 6].map(|()| Vec::new());
    for seed in effort.seed..effort.seed + u64::from(runs) {
        for (part, writes_percent) in [5, 0].into_iter().enumerate() {
            for (setting, &mechanisms) in settings.iter().enumerate() {
                facts[3 * part + setting].push(prepared.run(mechanisms, writes_percent, seed)?);
                stage.advance(1)?;
            }
        }
    }
    drop(stage);
    let row = |metric, unit, published, part: usize, figure: &dyn Fn(&RealFacts) -> f64| {
        let [before, after, default] =
            [0, 1, 2].map(|setting| facts[3 * part + setting].iter().map(figure).collect());
        // Counts too: jobs run for a fixed time.
        MetricRow { metric, unit, values: Values::Timed, published, before, after, default }
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
        quick: effort.is_quick(),
        untimely: None,
        seconds: 0.0,
        rows,
        checks: vec![
            Check {
                name: format!(
                    "every value matched its key, and none was lost: {verified} records at the end"
                ),
                holds: verified > 0,
            },
            Check { name: "every run had refaults".to_owned(), holds: evicts },
        ],
        crosschecks: crosscheck::REAL_TIME,
        shown: Vec::new(),
    })
}

/// Results of a run.
#[derive(Debug, Clone, Default)]
pub struct RealFacts {
    /// The tenant's counters by name.
    pub counters: BTreeMap<&'static str, u64>,
    /// Pages read from the device.
    pub misses: u64,
    /// Operations of all clients.
    pub operations: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Records verified at the end.
    pub verified_records: u64,
}

impl RealFacts {
    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

/// The store with its initial contents, created once.
struct Prepared {
    folder: TemporaryFolder,
    /// Divides memory and records.
    smaller: u32,
    /// Divides times.
    shorter: u32,
}

impl Prepared {
    /// Creates the store in a directory of its own below `directory`.
    ///
    /// # Errors
    /// If it cannot be created.
    fn new(
        directory: &Path,
        smaller: u32,
        shorter: u32,
        seed: u64,
        watch: &dyn Watch,
    ) -> Result<Prepared, Error> {
        let prepared = Prepared { folder: layout::temporary(directory)?, smaller, shorter };
        Documents::lay_out(&prepared.path("first"), RECORDS / smaller, seed, watch)?;
        Ok(prepared)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs YCSB-B on a copy, with this percentage of writes.
    ///
    /// # Errors
    /// The system's or the store's error, or a wrong record.
    fn run(&self, mechanisms: Mechanisms, writes_percent: u32, seed: u64) -> Result<RealFacts, Error> {
        let path = self.path("run");
        std::fs::copy(self.path("first"), &path)
            .map_err(|error| Error::work(format_args!("cannot create {}: {error}", path.display())))?;
        let smaller = u64::from(self.smaller);
        let limit_bytes = LIMIT_BYTES / smaller;
        let cache = PageCache::builder(limit_bytes + ROOM_BYTES)
            .tenant("store", limit_bytes)
            .mechanisms(mechanisms)
            .build()?;
        let tenant = cache.tenant("store")?;
        let cache_pages = (STORE_CACHE_BYTES / smaller / PAGE_BYTES) as u32;
        let records = RECORDS / self.smaller;
        let ycsb = Ycsb { writes_percent, ..Ycsb::new(Letter::B, records, cache_pages) };
        let documents = Documents::open(&path, ycsb, CLIENTS, seed, &tenant)?;
        // Fill the caches first.
        during(TIME / 2 / self.shorter, &documents)?;
        let before = tenant.stats();
        let began = Instant::now();
        let operations = during(TIME / self.shorter, &documents)?;
        let seconds = began.elapsed().as_secs_f64();
        let after = tenant.stats();
        let earlier: BTreeMap<_, _> = before.counters.iter().collect();
        let since = |(name, now): (&'static str, u64)| (name, now.saturating_sub(earlier[name]));
        let verified_records = documents.verify(false)?.pages + documents.verify(true)?.pages;
        drop(documents);
        cache.close()?;
        Ok(RealFacts {
            counters: after.counters.iter().map(since).collect(),
            misses: after.misses - before.misses,
            operations,
            seconds,
            verified_records,
        })
    }
}

/// Runs clients concurrently until the time is over. Returns their total operations.
fn during(time: Duration, documents: &Documents) -> Result<u64, Error> {
    let began = Instant::now();
    let work = |client| {
        let mut done = 0;
        while began.elapsed() < time {
            documents.step(client, &mut |_| {})?;
            done += 1;
        }
        Ok(done)
    };
    parallel::each(0..CLIENTS as usize, work)?.into_iter().sum()
}
