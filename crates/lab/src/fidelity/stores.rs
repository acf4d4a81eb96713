//! Rows of `stores.csv`: YCSB B on WiredTiger under a memory limit, on real kernels.
//!
//! A row is one run of a kernel: a window of operations after a warm-up, with the pages that the
//! store asked for, that were read from the disk and that reclaim stole, and the generations that
//! were opened. The engine runs a model of the store ([`IndexedYcsb`]) with several seeds. The size
//! of the store's own cache and of its other memory are those of the row; they follow from the
//! store, not from reclaim.

use super::compare::{FURTHER, difference_percent, refuse_outside};
use super::filter::Filter;
use super::kernel_run::{preset_of, version_of};
use super::results::rows;
use crate::clients::{Clients, Window};
use crate::document::document;
use crate::memory::{self, Room};
use crate::parallel;
use crate::run::simulated::{BATCH_TIME, SCAN_TIME};
use crate::statistics::{mean, median, range};
use crate::{Error, Stage, Unit, Watch};
use mglru_core::{Counter, Mechanisms, PAGE_BYTES, Switch};
use mglru_sim::{
    DeviceModel, Interleaving, Lane, Latency, Machine, Operation, SimError, Simulator, Tenant, Writes,
};
use mglru_workload::ycsb::{Eviction, IndexedOperations, IndexedYcsb};
use serde::{Serialize, Serializer};
use std::path::Path;
use std::time::Duration;

const SEEDS: u64 = 6;
/// Largest allowed difference of stolen pages per operation. The kernels' own runs are up to 3 %
/// apart, and depend on the speed of the computer.
pub(super) const STOLEN_PERCENT: f64 = 8.0;
/// Readahead of the recorded runs.
const READAHEAD_PAGES: u32 = 32;
/// The log was synced every 100 ms.
const SYNCS_PER_SECOND: f64 = 10.0;
/// Longest mean duration of a row's reads, in milliseconds.
const READ_MS_MAX: f64 = 10_000.0;
/// WiredTiger's cache, as a part of the limit.
const CACHE_OF_LIMIT: f64 = 0.45;
/// Bytes that WiredTiger counts for a byte of a leaf in its file.
const MEMORY_PER_FILE_BYTE: f64 = 1.11;
/// Part of its cache from which on WiredTiger drops leaves that it reads: half way between its
/// target and its trigger.
const DROPS_FROM: f64 = (0.80 + 0.95) / 2.0;
/// How far the part of the cache in use was from its mean, up and down: samples of each second
/// were spread evenly.
const FILL_SPREAD: f64 = 0.07;
/// Computing time per operation where the disk limits the rate.
const SLOW_DISK_MICROS: u32 = 20;
/// Bytes of the store's model per record, and of the simulator per client.
const RECORD_BYTES: u64 = 8;
const CLIENT_BYTES: u64 = 64 << 10;
/// Most clients, CPUs and records of a row.
const CLIENTS_MAX: u32 = 1024;
const RECORDS_MAX: u32 = 1 << 28;

/// A row of the table.
#[derive(Debug, Clone, serde::Deserialize)]
pub struct StoreRow {
    /// Name of the load.
    pub case: String,
    /// Version of the kernel.
    pub kernel: String,
    /// The kernel lab's name of the policy.
    pub lru: String,
    /// Empty, or `on` or `off`: the kernel was changed so that a new page's generation depends on
    /// whether its referenced flag is set, or does not.
    pub referenced_placement: String,
    /// Percentage of operations that change a record.
    pub updates_percent: u32,
    /// `fast`, or `slow` if it limited the rate.
    pub disk: String,
    /// 1 if the records were inserted under the limit, 0 if the store was opened.
    pub inserts: u8,
    /// Pages of the log that was read when the store was opened.
    pub old_log_pages: u32,
    /// Number of clients.
    pub clients: u32,
    /// Number of CPUs.
    pub cpus: u32,
    /// Limit of the memcg in bytes.
    pub limit_bytes: u64,
    /// Number of records.
    pub records: u32,
    /// Operations before those that count.
    pub warm_operations: u64,
    /// Operations that count.
    pub operations: u64,
    /// Their duration.
    pub seconds: f64,
    /// Mean duration of a read of the disk, in milliseconds.
    pub read_ms: f64,
    /// Pages of anonymous memory, on average.
    pub anon_pages: u32,
    /// Pages of the store's cache that were in use, on average.
    pub cache_pages: u32,
    /// Pages that the store read, cached or not.
    pub pages_asked: u64,
    /// Pages that were read from the disk.
    pub pages_read: u64,
    /// Pages that reclaim freed.
    pub pages_stolen: u64,
    /// Pages that were read from the disk and still remembered.
    pub refaults: u64,
    /// Generations opened.
    pub generations: u64,
}

/// Counts of a window, per operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Pages that the store read, cached or not.
    pub asked: f64,
    /// Pages read from the disk.
    pub read: f64,
    /// Pages that reclaim freed.
    pub stolen: f64,
    /// Pages read from the disk that were still remembered.
    pub refaults: f64,
    /// Generations opened, per 100,000 operations.
    pub generations: f64,
}

impl Rates {
    fn new(operations: u64, [asked, read, stolen, refaults, generations]: [u64; 5]) -> Rates {
        let per_operation = |count: u64| count as f64 / operations as f64;
        Rates {
            asked: per_operation(asked),
            read: per_operation(read),
            stolen: per_operation(stolen),
            refaults: per_operation(refaults),
            generations: 1e5 * per_operation(generations),
        }
    }

    /// Pages found in memory, in percent of those that the store asked for.
    pub fn hit_percent(&self) -> f64 {
        100.0 * (1.0 - self.read / self.asked)
    }
}

/// Rows of one kernel and load, with the engine's results.
#[derive(Debug, Clone)]
pub struct Compared {
    /// The kernel's runs, at least one.
    pub rows: Vec<StoreRow>,
    /// The engine's runs, one per seed.
    pub ours: Vec<Rates>,
}

/// Whether the file's header is that of this table.
pub(super) fn is_meant(header: &str) -> bool {
    header.contains("pages_asked")
}

/// Runs the loads of all rows.
///
/// # Errors
/// If the file cannot be read, the filter selects no row, a row cannot be simulated, or of a bug in
/// the simulator.
pub fn compare(path: &Path, filter: &Filter, watch: &dyn Watch) -> Result<Vec<Compared>, Error> {
    let all = rows::<StoreRow>(path)?;
    let names: Vec<[&str; 3]> =
        all.iter().map(|row| [row.kernel.as_str(), row.case.as_str(), row.lru.as_str()]).collect();
    filter.check(&[path], &names)?;
    let of_path = |what: String| Error::work(format_args!("{}: {what}", path.display()));
    let mut compared: Vec<Compared> = Vec::new();
    for row in all {
        if !filter.wants(&row.kernel, &row.lru) || !filter.wants_workload(&row.case) {
            continue;
        }
        row.check().map_err(of_path)?;
        match compared.iter_mut().find(|one| one.rows[0].group() == row.group()) {
            Some(one) => one.rows.push(row),
            None => compared.push(Compared { rows: vec![row], ours: Vec::new() }),
        }
    }
    let tasks: Vec<(usize, u64)> =
        (0..compared.len()).flat_map(|one| (1..=SEEDS).map(move |seed| (one, seed))).collect();
    let needs = compared.iter().map(|one| one.rows[0].needed_bytes()).max().unwrap_or(0);
    let room = Room::for_runs(parallel::threads().min(tasks.len()));
    room.check(needs, path.display(), "choose rows with smaller stores")?;
    let stage = Stage::begin(watch, "runs of a store", tasks.len() as u64, Unit::Steps);
    let runs = parallel::all(&tasks, parallel::threads(), |_, &(one, seed)| {
        let run = compared[one].run(seed, watch)?;
        stage.advance(1)?;
        Ok(run)
    })?;
    for (one, runs) in compared.iter_mut().zip(runs.chunks(SEEDS as usize)) {
        one.ours = runs.to_vec();
    }
    Ok(compared)
}

/// Percentage of the time in which WiredTiger's cache is so full that it drops leaves that it
/// reads, from the mean number of their pages.
fn dropped_percent(cache_pages: u32, limit_pages: u64) -> u32 {
    let fill = f64::from(cache_pages) * MEMORY_PER_FILE_BYTE / (CACHE_OF_LIMIT * limit_pages as f64);
    let above = (fill + FILL_SPREAD - DROPS_FROM) / (2.0 * FILL_SPREAD);
    (100.0 * above.clamp(0.0, 1.0)).round() as u32
}

impl StoreRow {
    /// Properties shared by repetitions of a load.
    fn group(&self) -> ([&str; 5], u64, [u32; 6]) {
        let StoreRow { case, kernel, lru, referenced_placement, disk, .. } = self;
        let StoreRow { updates_percent, inserts, old_log_pages, clients, cpus, records, .. } = *self;
        (
            [case, kernel, lru, referenced_placement, disk],
            self.limit_bytes,
            [updates_percent, inserts.into(), old_log_pages, clients, cpus, records],
        )
    }

    fn check(&self) -> Result<(), String> {
        let what = if !["", "on", "off"].contains(&self.referenced_placement.as_str()) {
            "referenced_placement is empty, on or off"
        } else if !["fast", "slow"].contains(&self.disk.as_str()) {
            "disk is fast or slow"
        } else if self.inserts > 1 || self.updates_percent > 100 {
            "inserts is 0 or 1, and updates_percent at most 100"
        } else if !(1..=CLIENTS_MAX).contains(&self.clients) || !(1..=CLIENTS_MAX).contains(&self.cpus) {
            "clients and cpus are 1 to 1,024"
        } else if !(1..=RECORDS_MAX).contains(&self.records) {
            "records are 1 to 2^28"
        } else if self.operations == 0 || !(self.seconds > 0.0 && self.seconds.is_finite()) {
            "operations and seconds are more than 0"
        } else if !(0.0..=READ_MS_MAX).contains(&self.read_ms) {
            "read_ms is 0 to 10,000"
        } else if self.cache_pages > self.anon_pages || self.anon_pages > u32::MAX / 4 {
            "cache_pages are at most anon_pages, and those less than 4 TiB"
        } else if self.limit_pages() <= u64::from(self.anon_pages) + u64::from(self.old_log_pages) {
            "anon_pages and old_log_pages have room below limit_bytes"
        } else if self.limit_pages() > u64::from(u32::MAX / 4) {
            "limit_bytes are less than 4 TiB"
        } else if self.pages_asked == 0 || self.pages_stolen == 0 {
            "pages_asked and pages_stolen are more than 0"
        } else {
            return self.mechanisms().map(drop);
        };
        let StoreRow { case, kernel, lru, .. } = self;
        Err(format!("{case} {kernel} {lru}: cannot be simulated: {what}"))
    }

    fn limit_pages(&self) -> u64 {
        self.limit_bytes / PAGE_BYTES
    }

    /// Memory that a run needs at most, in bytes.
    fn needed_bytes(&self) -> u64 {
        let (records, clients) = (u64::from(self.records), u64::from(self.clients));
        memory::of_machine(3 * self.limit_pages()) + records * RECORD_BYTES + clients * CLIENT_BYTES
    }

    fn mechanisms(&self) -> Result<Mechanisms, String> {
        let (preset, lru) = preset_of(&self.kernel, &self.lru)?;
        let mechanisms = Mechanisms::preset(preset).with_lru(lru);
        let changed = |on| mechanisms.with_switch(Switch::ReferencedPlacement, on);
        match self.referenced_placement.as_str() {
            "on" => changed(true),
            "off" => changed(false),
            _ => return Ok(mechanisms),
        }
        .map_err(|error| format!("{} {}: {error}", self.case, self.kernel))
    }

    fn rates(&self) -> Rates {
        let StoreRow { pages_asked, pages_read, pages_stolen, refaults, generations, .. } = *self;
        Rates::new(self.operations, [pages_asked, pages_read, pages_stolen, refaults, generations])
    }
}

impl Compared {
    /// The machine and the load of the engine's runs: the first row's, with the mean sizes.
    fn model(&self, seed: u64) -> Result<(Machine, IndexedYcsb), Error> {
        let row = &self.rows[0];
        let pages = |of: fn(&StoreRow) -> u32| {
            mean(&self.rows.iter().map(|row| f64::from(of(row))).collect::<Vec<f64>>()) as u32
        };
        let (anon_pages, cache_pages) = (pages(|row| row.anon_pages), pages(|row| row.cache_pages));
        let is_slow = row.disk == "slow";
        let micros_each = 1e6 * f64::from(row.cpus) * row.seconds / row.operations as f64;
        let DeviceModel { write, .. } = if is_slow { DeviceModel::slow() } else { DeviceModel::nvme() };
        let read_ms = mean(&self.rows.iter().map(|row| row.read_ms).collect::<Vec<f64>>());
        let read = Lane { latency: Latency::Fixed(Duration::from_secs_f64(read_ms / 1000.0)), ..Lane::IDEAL };
        let machine = Machine {
            mechanisms: row.mechanisms().map_err(Error::work)?,
            cpus: row.cpus as usize,
            reads_need_cpu: true,
            device: DeviceModel { read, write },
            tenants: vec![Tenant::new("store", row.limit_pages())],
            scan_time: SCAN_TIME,
            batch_time: BATCH_TIME,
            writes: Writes::Overwrite,
            readahead_pages: READAHEAD_PAGES,
            interleaving: Interleaving::Seeded,
            seed,
            // The recorded machines had three times the limit: only the limit matters.
            ..Machine::new(3 * row.limit_pages() as u32)
        };
        let load = IndexedYcsb {
            records: row.records,
            updates_percent: row.updates_percent,
            cache_pages,
            eviction: if is_slow { Eviction::Any } else { Eviction::Young },
            dropped_percent: dropped_percent(cache_pages, row.limit_pages()),
            heap_pages: anon_pages - cache_pages,
            old_log_pages: row.old_log_pages,
            inserts: row.inserts == 1,
            sync_every: ((row.operations as f64 / row.seconds / SYNCS_PER_SECOND) as u64).max(1),
            compute_micros: if is_slow { SLOW_DISK_MICROS } else { (micros_each as u32).max(1) },
        };
        Ok((machine, load))
    }

    fn run(&self, seed: u64, watch: &dyn Watch) -> Result<Rates, Error> {
        let row = &self.rows[0];
        let failed = |error: Error| error.at(&self.name());
        let bug = |error: SimError| failed(Error::work(error));
        let (machine, load) = self.model(seed)?;
        let mut operations = IndexedOperations::new(load, seed);
        let window = Window {
            warm_draws: row.warm_operations + operations.insertions(),
            draws: row.operations,
            ..Window::default()
        };
        let mut opening = Vec::new();
        operations.open(&mut opening);
        let mut simulator = Simulator::new(&machine).map_err(bug)?;
        simulator.add_job(0, opening.into_iter().map(Operation::from));
        while simulator.step().map_err(bug)? {
            watch.check()?;
        }
        let number = row.clients;
        let clients =
            Clients { tenants: &machine.tenants, number, allocators: number, window, watched: false };
        let facts = clients.run(simulator, move |_, steps| operations.next(steps), watch).map_err(failed)?;
        if facts.died {
            return Err(failed(Error::work("limit_bytes are too few for this store: it got no memory")));
        }
        let counters = &facts.tally.counters;
        let [refaults, generations] =
            [Counter::WorkingsetRefaultFile, Counter::Aged].map(|counter| counters.get(counter));
        let counts = [facts.file_reads, facts.pages_read, counters.pgsteal(), refaults, generations];
        Ok(Rates::new(facts.operations, counts))
    }

    /// The mean of the kernel's runs.
    pub fn kernel(&self, of: fn(&Rates) -> f64) -> f64 {
        mean(&self.rows.iter().map(|row| of(&row.rates())).collect::<Vec<f64>>())
    }

    /// The median of the engine's runs.
    pub fn ours(&self, of: fn(&Rates) -> f64) -> f64 {
        median(&self.ours.iter().map(of).collect::<Vec<f64>>())
    }

    /// Minimum and maximum of the engine's runs.
    pub fn our_range(&self, of: fn(&Rates) -> f64) -> (f64, f64) {
        range(&self.ours.iter().map(of).collect::<Vec<f64>>())
    }

    /// Difference of stolen pages per operation, in percent of the kernel's.
    pub fn difference_percent(&self) -> f64 {
        difference_percent(self.kernel(|rates| rates.stolen), self.ours(|rates| rates.stolen)).unwrap_or(0.0)
    }

    /// Whether stolen pages are within the tolerance, and generations are opened in both or in
    /// neither.
    pub fn within(&self) -> bool {
        let opens = [self.kernel(|rates| rates.generations), self.ours(|rates| rates.generations)];
        self.difference_percent().abs() <= STOLEN_PERCENT && (opens[0] > 0.0) == (opens[1] > 0.0)
    }

    /// Name of the load in documents and columns.
    pub(super) fn workload(&self) -> String {
        let StoreRow { case, referenced_placement, .. } = &self.rows[0];
        match referenced_placement.as_str() {
            "" => case.clone(),
            on_or_off => format!("{case} referenced_placement={on_or_off}"),
        }
    }

    /// Description of the rows.
    pub fn name(&self) -> String {
        format!("{} {}", self.rows[0].case, self.kernel_name())
    }

    /// The kernel, and what was changed in it.
    fn kernel_name(&self) -> String {
        let StoreRow { kernel, referenced_placement, .. } = &self.rows[0];
        let changed = match referenced_placement.as_str() {
            "" => "",
            "on" => ", flag counts",
            _ => ", flag ignored",
        };
        version_of(kernel) + changed
    }
}

/// The change of stolen pages per operation from one kernel to another, with the same load.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Change {
    /// The load and the first kernel.
    pub from: String,
    /// The other kernel, or what was changed.
    pub to: String,
    /// Change in the kernels, in percent.
    pub kernel_percent: f64,
    /// Change in the engine, in percent.
    pub our_percent: f64,
}

/// The changes of each load: from the first of its kernels to the others.
pub fn changes(compared: &[Compared]) -> Vec<Change> {
    let mut changes = Vec::new();
    for (at, to) in compared.iter().enumerate() {
        let is_same_load = |from: &&Compared| from.rows[0].case == to.rows[0].case;
        let Some(from) = compared[..at].iter().find(is_same_load) else { continue };
        let stolen = |rates: &Rates| rates.stolen;
        let percent = |from, to| difference_percent(from, to).unwrap_or(0.0);
        changes.push(Change {
            from: from.name(),
            to: to.kernel_name(),
            kernel_percent: percent(from.kernel(stolen), to.kernel(stolen)),
            our_percent: percent(from.ours(stolen), to.ours(stolen)),
        });
    }
    changes
}

/// A group of rows, in the form of the other rows of `mglru fidelity --json`.
impl Serialize for Compared {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = &self.rows[0];
        let (least, most) = self.our_range(|rates| rates.stolen);
        document!(serializer, {
            "workload": self.workload(),
            "kernel": row.kernel,
            "lru": row.lru,
            "counter": "pgsteal_per_operation",
            "kernel_runs": self.rows.len(),
            "kernel_count": self.kernel(|rates| rates.stolen),
            "our_count": self.ours(|rates| rates.stolen),
            "our_least": least,
            "our_most": most,
            "difference_percent": self.difference_percent(),
            "tolerance_percent": STOLEN_PERCENT,
            "kernel_asked_per_operation": self.kernel(|rates| rates.asked),
            "our_asked_per_operation": self.ours(|rates| rates.asked),
            "kernel_hit_percent": self.kernel(Rates::hit_percent),
            "our_hit_percent": self.ours(Rates::hit_percent),
            "kernel_refaults_per_operation": self.kernel(|rates| rates.refaults),
            "our_refaults_per_operation": self.ours(|rates| rates.refaults),
            "kernel_generations_per_100000": self.kernel(|rates| rates.generations),
            "our_generations_per_100000": self.ours(|rates| rates.generations),
            "within": self.within(),
        })
    }
}

/// Checks that all rows are within.
///
/// # Errors
/// A message that names those that are not.
pub fn check(compared: &[Compared]) -> Result<(), Error> {
    let outside = compared.iter().filter(|one| !one.within()).map(|one| {
        let [kernel, ours] = [one.kernel(|rates| rates.stolen), one.ours(|rates| rates.stolen)];
        format!("{}: {ours:.2} pages stolen per operation, the kernel's {kernel:.2}", one.name())
    });
    refuse_outside(FURTHER, outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kernel: &str) -> StoreRow {
        StoreRow {
            case: "reopened".to_owned(),
            kernel: kernel.to_owned(),
            lru: "mglru".to_owned(),
            referenced_placement: String::new(),
            updates_percent: 5,
            disk: "fast".to_owned(),
            inserts: 0,
            old_log_pages: 600,
            clients: 8,
            cpus: 2,
            limit_bytes: 12 << 20,
            records: 24_000,
            warm_operations: 4000,
            operations: 8000,
            seconds: 2.0,
            read_ms: 0.1,
            anon_pages: 1400,
            cache_pages: 1000,
            pages_asked: 40_000,
            pages_read: 32_000,
            pages_stolen: 34_000,
            refaults: 16_000,
            generations: 0,
        }
    }

    fn compared(rows: &[StoreRow], ours: &[(f64, f64)]) -> Compared {
        let rates = |&(stolen, generations): &(f64, f64)| Rates {
            asked: 5.0,
            read: 4.0,
            stolen,
            refaults: 2.0,
            generations,
        };
        Compared { rows: rows.to_vec(), ours: ours.iter().map(rates).collect() }
    }

    #[test]
    fn rates_are_per_operation() {
        let rates = row("7.1.13").rates();
        assert_eq!((rates.asked, rates.read, rates.stolen), (5.0, 4.0, 4.25));
        assert_eq!((rates.refaults, rates.generations), (2.0, 0.0));
        assert!((rates.hit_percent() - 20.0).abs() < 1e-9);
        assert_eq!(StoreRow { generations: 8, ..row("7.2.12") }.rates().generations, 100.0);
    }

    /// Stolen pages may differ by 8 %; a generation that only one of both opens is wrong.
    #[test]
    fn a_row_is_outside_by_its_pages_or_by_its_generations() {
        let one = |ours| compared(&[row("7.1.13")], &[ours]);
        assert!(one((4.5, 0.0)).within());
        assert!(!one((4.6, 0.0)).within());
        assert!(!one((4.25, 1.0)).within());
        let opens = StoreRow { generations: 8, ..row("7.2.12") };
        assert!(compared(std::slice::from_ref(&opens), &[(4.25, 3.0)]).within());
        assert!(!compared(&[opens], &[(4.25, 0.0)]).within());
        let message = check(&[one((4.6, 0.0))]).unwrap_err().to_string();
        assert!(
            message.contains("reopened 7.1: 4.60 pages stolen per operation, the kernel's 4.25"),
            "{message}"
        );
        assert!(check(&[one((4.5, 0.0))]).is_ok());
    }

    /// 7.1 without the condition is the first of its load; runs of other loads are no change of it.
    #[test]
    fn changes_are_from_the_first_kernel_of_a_load() {
        let other = StoreRow { case: "loaded".to_owned(), ..row("7.1.13") };
        let changed = StoreRow { referenced_placement: "on".to_owned(), ..row("7.1.13") };
        let less = StoreRow { pages_stolen: 17_000, ..row("7.2.12") };
        let all = [
            compared(&[row("7.1.13")], &[(4.0, 0.0)]),
            compared(&[other], &[(1.0, 0.0)]),
            compared(&[less], &[(3.0, 0.0)]),
            compared(&[changed], &[(4.0, 0.0)]),
        ];
        let changes = changes(&all);
        assert_eq!(changes.len(), 2);
        let percents = [changes[0].kernel_percent, changes[0].our_percent];
        assert_eq!((changes[0].from.as_str(), changes[0].to.as_str()), ("reopened 7.1", "7.2"));
        assert_eq!(percents, [-50.0, -25.0]);
        assert_eq!(changes[1].to, "7.1, flag counts");
    }

    /// The log that was read when the store was opened fills memory that 7.1 never gets back, as it
    /// opens no generation; 7.2 opens some. Without that log both have more hits, 7.1 most of all.
    #[test]
    fn a_log_that_was_read_stays_in_memory_until_a_generation_is_opened() {
        let stolen = |kernel: &str, old_log_pages| {
            let one = Compared { rows: vec![StoreRow { old_log_pages, ..row(kernel) }], ours: Vec::new() };
            one.run(1, &crate::Unwatched).unwrap()
        };
        let [old_71, old_72] = ["7.1.13", "7.2.12"].map(|kernel| stolen(kernel, 600));
        let [new_71, new_72] = ["7.1.13", "7.2.12"].map(|kernel| stolen(kernel, 0));
        assert!(old_71.stolen > 1.03 * new_71.stolen, "{old_71:?} {new_71:?}");
        assert!(old_72.stolen < 1.03 * new_72.stolen, "{old_72:?} {new_72:?}");
        assert_eq!(old_71.generations, 0.0);
        assert!(old_72.generations > 0.0);
        assert!((old_71.asked - old_72.asked).abs() < 1e-9, "the store does the same on both");
    }

    /// WiredTiger's cache has 46,494 pages of leaves when it is full to seven eighths. The recorded
    /// runs that opened the store with 5 % updates had it so full for 38 and 41 % of their seconds,
    /// those with a slow disk never.
    #[test]
    fn leaves_are_dropped_while_the_cache_is_fuller_than_half_way_to_its_trigger() {
        let dropped = |cache_pages| dropped_percent(cache_pages, 131_072);
        assert_eq!([0, 43_000, 46_494, 50_300, u32::MAX].map(dropped), [0, 3, 50, 100, 100]);
        assert_eq!([45_431, 45_644].map(dropped), [36, 39]);
    }

    /// Runs of one load are compared as one, those of others are not.
    #[test]
    fn repetitions_have_the_same_load() {
        let good = row("7.2.12");
        let repeated = StoreRow { operations: 9000, seconds: 1.0, cache_pages: 900, ..good.clone() };
        assert_eq!(good.group(), repeated.group());
        for other in [StoreRow { cpus: 4, ..good.clone() }, StoreRow { updates_percent: 20, ..good.clone() }]
        {
            assert_ne!(good.group(), other.group());
        }
    }

    #[test]
    fn a_store_without_memory_is_an_error() {
        let tight = StoreRow {
            limit_bytes: 1402 << 12,
            old_log_pages: 0,
            warm_operations: 1,
            operations: 200,
            ..row("7.2.12")
        };
        assert_eq!(tight.check(), Ok(()));
        let error = Compared { rows: vec![tight], ours: Vec::new() }.run(1, &crate::Unwatched).unwrap_err();
        assert!(error.to_string().contains("reopened 7.2: limit_bytes are too few"), "{error}");
    }

    /// Counts the questions whether the work is cancelled.
    #[derive(Default)]
    struct Asked(std::sync::atomic::AtomicU64);

    impl Watch for Asked {
        fn is_cancelled(&self) -> bool {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            false
        }
    }

    #[test]
    fn a_run_can_be_cancelled_while_its_store_is_opened() {
        let asked = |old_log_pages| {
            let rows =
                vec![StoreRow { old_log_pages, limit_bytes: 160 << 20, warm_operations: 0, ..row("7.1.13") }];
            let asked = Asked::default();
            Compared { rows, ours: Vec::new() }.run(1, &asked).unwrap();
            asked.0.into_inner()
        };
        let [short, long] = [0, 30_000].map(asked);
        assert!(long > short + 2, "{short} and {long} questions");
    }

    #[test]
    fn rows_that_cannot_be_simulated_are_refused() {
        let good = row("7.2.12");
        assert_eq!(good.check(), Ok(()));
        let wrong = [
            StoreRow { referenced_placement: "yes".to_owned(), ..good.clone() },
            StoreRow { disk: "tape".to_owned(), ..good.clone() },
            StoreRow { inserts: 2, ..good.clone() },
            StoreRow { updates_percent: 101, ..good.clone() },
            StoreRow { clients: 0, ..good.clone() },
            StoreRow { cpus: 5000, ..good.clone() },
            StoreRow { records: 0, ..good.clone() },
            StoreRow { operations: 0, ..good.clone() },
            StoreRow { seconds: f64::NAN, ..good.clone() },
            StoreRow { read_ms: -0.1, ..good.clone() },
            StoreRow { read_ms: f64::NAN, ..good.clone() },
            StoreRow { cache_pages: 1401, ..good.clone() },
            StoreRow { limit_bytes: 1 << 20, ..good.clone() },
            StoreRow { limit_bytes: u64::MAX, ..good.clone() },
            StoreRow { pages_stolen: 0, ..good.clone() },
        ];
        for row in wrong {
            assert!(row.check().unwrap_err().contains("cannot be simulated: "), "{row:?}");
        }
        let unknown = StoreRow { kernel: "5.4".to_owned(), ..good };
        assert!(unknown.check().unwrap_err().contains("no preset for kernel 5.4"));
    }
}
