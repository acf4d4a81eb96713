//! Runs of real kernels: what was measured, under which parameters, and what represents the kernel.

use crate::document::document;
use crate::replay::controls::Controls;
use crate::replay::run::ReclaimTime;
use mglru_core::lru::Swappiness;
use mglru_core::{Counter, Lru, Preset, Zone};
use mglru_sim::{Latency, Machine, SwapBatches, SwapDevice, SwapModel, Writes};
use serde::{Serialize, Serializer};
use std::f64::consts::LN_2;
use std::time::Duration;

/// Half of the pages that one reclaim effort frees. Memory oscillates between the limit and a full
/// effort below it. A replay's limit is the mean plus this ([book: agreement#multigen-agreement]).
pub const HALF_AN_EFFORT_PAGES: u64 = 28;

/// Swap of a replay, 1 GiB. The rows use a hundredth of it.
const SWAP_PAGES: u32 = 1 << 18;

/// Time of an access that reads nothing, in rows that do not name theirs: the shortest average of a
/// run, one with few misses.
pub(super) const HIT_TIME: Duration = Duration::from_micros(17);

/// Swappiness of rows that do not name theirs.
pub(super) const DEFAULT_SWAPPINESS: u8 = 60;

/// A count that kernel runs and replays both have. It covers the counted part unless stated
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Misses of the whole replay.
    TotalMisses,
    /// Misses.
    Misses,
    /// Evicted pages that came back.
    Refaults,
    /// Scanned pages.
    Scanned,
    /// Freed pages.
    Stolen,
    /// Pages sorted to their generation, in the whole replay. In older versions the counted part
    /// has few, and with writes a single flush more or less changes them by about a third. The
    /// book's tolerances are for whole replays.
    Sorted,
    /// Pages moved to a younger generation.
    Activated,
    /// Refaults of pages that had been hot.
    Restored,
    /// Refaults that were activated. Classic LRU only.
    ActivatedRefaults,
    /// Generations created in the whole replay. Multi-gen LRU only.
    Generations,
    /// Pages read from swap in the whole replay. Runs with swap only.
    SwapIns,
    /// Pages written to swap in the whole replay. Runs with swap only.
    SwapOuts,
    /// A counter of background reclaim, in the whole replay: its runs, those of them that began
    /// during the nap after the run before, those that began at its end or without a nap, or the
    /// efforts of tasks that first waited for it. Runs without a limit whose table has them.
    Background(Counter),
}

impl Measure {
    /// All measures.
    pub const ALL: [Measure; 16] = [
        Measure::TotalMisses,
        Measure::Misses,
        Measure::Refaults,
        Measure::Scanned,
        Measure::Stolen,
        Measure::Sorted,
        Measure::Activated,
        Measure::Restored,
        Measure::ActivatedRefaults,
        Measure::Generations,
        Measure::SwapIns,
        Measure::SwapOuts,
        Measure::Background(Counter::Pageoutrun),
        Measure::Background(Counter::KswapdLowWmarkHitQuickly),
        Measure::Background(Counter::KswapdHighWmarkHitQuickly),
        Measure::Background(Counter::PgscanDirectThrottle),
    ];

    /// The measures of a run, which depend on its policy, swap and limit. Transfers of swap and
    /// runs of background reclaim are counted for the machine only.
    pub fn of(run: &KernelRun) -> impl Iterator<Item = Measure> + use<> {
        let is_machine = run.setting.memcg.is_empty();
        let has_swap = run.setting.has_swap() && is_machine;
        // Older tables do not have such columns, or have zeros.
        let has_background_runs =
            run.is_background() && run.count(Measure::Background(Counter::Pageoutrun)) > 0.0 && is_machine;
        let lru = run.lru;
        Self::ALL.into_iter().filter(move |measure| match measure {
            Measure::Generations => lru != Lru::Classic,
            Measure::ActivatedRefaults => lru == Lru::Classic,
            Measure::SwapIns | Measure::SwapOuts => has_swap,
            Measure::Background(_) => has_background_runs,
            _ => true,
        })
    }

    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Measure::TotalMisses => "total_misses",
            Measure::Misses => "misses",
            Measure::Refaults => "workingset_refault_file",
            Measure::Scanned => "pgscan",
            Measure::Stolen => "pgsteal",
            Measure::Sorted => "pgrefill",
            Measure::Activated => "pgactivate",
            Measure::Restored => "workingset_restore_file",
            Measure::ActivatedRefaults => "workingset_activate_file",
            Measure::Generations => "generations_created",
            Measure::SwapIns => "pswpin",
            Measure::SwapOuts => "pswpout",
            Measure::Background(counter) => counter.name(),
        }
    }
}

/// Parameters of a run other than the limit. Runs with equal parameters differ by chance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The workload. Its trace is beside the table.
    pub workload: String,
    /// Version of the kernel.
    pub kernel: String,
    /// `mglru` or `classic`.
    pub lru: String,
    /// `none`, `disk` or `zram`.
    pub swap: String,
    /// `rmw` or `blind`.
    pub(super) wmode: String,
    /// The largest readahead window in pages; 0: off.
    pub readahead_pages: u32,
    /// The window in pages that a mapped miss maps; 0: off.
    pub fault_around_pages: u32,
    /// Number of tasks, to which the accesses belong in turn.
    pub tasks: u32,
    /// Whether background reclaim frees memory, because the machine has little, and no limit does.
    pub background: bool,
    /// `vm.swappiness`, 0…200.
    pub swappiness: u8,
    /// Memcgs below the limited one, and control files that the run writes.
    pub controls: Controls,
    /// The memcg whose counts these are: one below the limited one, or that itself (empty).
    pub memcg: String,
}

impl Setting {
    /// Whether a second run has other counts: with readahead, several tasks or background reclaim,
    /// the order of events is not certain.
    pub fn is_loose(&self) -> bool {
        self.readahead_pages > 0 || self.tasks > 1 || self.background
    }

    /// Whether background reclaim takes from several memcgs, so that the policy draws whose turn it
    /// is.
    pub fn draws_memcgs(&self) -> bool {
        self.background && self.controls.memcgs() > 1
    }

    /// The conditions that differ from one task without readahead below a limit, in words; empty if
    /// none does.
    pub fn conditions(&self) -> String {
        let mut words = Vec::new();
        if self.readahead_pages > 0 {
            words.push(format!("readahead {} KiB", 4 * u64::from(self.readahead_pages)));
        }
        if self.fault_around_pages > 0 {
            words.push(format!("fault-around {} KiB", 4 * u64::from(self.fault_around_pages)));
        }
        if self.tasks > 1 {
            words.push(format!("{} tasks", self.tasks));
        }
        if self.background {
            words.push("background reclaim".to_owned());
        }
        if self.swappiness != DEFAULT_SWAPPINESS {
            words.push(format!("swappiness {}", self.swappiness));
        }
        if !self.memcg.is_empty() {
            words.push(format!("memcg {}", self.memcg));
        }
        words.join(", ")
    }
}

/// The policy that a row names.
pub(super) fn lru_of(name: &str) -> Option<Lru> {
    match name {
        "mglru" => Some(Lru::MultiGen),
        "classic" => Some(Lru::Classic),
        _ => None,
    }
}

/// Presets that represent kernels, with the kernels' versions.
const KERNELS: [(&str, Preset); 3] =
    [("6.12", Preset::Linux612), ("7.1", Preset::Linux71), ("7.2", Preset::Linux72)];

/// The version of a kernel without its patch level: 7.1 of 7.1.13.
pub fn version_of(kernel: &str) -> String {
    kernel.split('.').take(2).collect::<Vec<_>>().join(".")
}

/// Whether a kernel has this version or a later patch level of it.
fn is_version(kernel: &str, version: &str) -> bool {
    kernel.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Position of a kernel among those with presets, from the oldest; unknown kernels are last.
pub(super) fn version_rank(kernel: &str) -> usize {
    KERNELS.iter().position(|(version, _)| is_version(kernel, version)).unwrap_or(KERNELS.len())
}

/// The preset that represents a kernel, and the policy with this name.
///
/// # Errors
/// A message that names the unknown one.
pub fn preset_of(kernel: &str, lru: &str) -> Result<(Preset, Lru), String> {
    let Some(policy) = lru_of(lru) else {
        return Err(format!("unknown lru `{lru}`; expected mglru or classic"));
    };
    let Some((_, preset)) = KERNELS.iter().find(|(version, _)| is_version(kernel, version)) else {
        let versions = KERNELS.map(|(version, _)| version).join(", ");
        return Err(format!("no preset for kernel {kernel}; expected {versions}"));
    };
    Ok((*preset, policy))
}

impl Setting {
    /// The preset that represents the setting's kernel, and the policy.
    ///
    /// # Errors
    /// The reason why it cannot be replayed.
    pub fn preset(&self) -> Result<(Preset, Lru), String> {
        let Setting { kernel, lru, swap, .. } = self;
        let found = preset_of(kernel, lru)?;
        if swap != "none" && self.swap_device().is_none() {
            return Err(format!("unknown swap `{swap}`; expected disk or zram"));
        }
        Ok(found)
    }

    /// Whether two settings differ in kernel and policy only.
    pub(super) fn same_load(&self, other: &Setting) -> bool {
        let kernel_aside = Setting { kernel: self.kernel.clone(), lru: self.lru.clone(), ..other.clone() };
        *self == kernel_aside
    }

    /// A setting without swap.
    #[cfg(test)]
    pub(super) fn new(workload: &str, kernel: &str, lru: &str) -> Setting {
        let [workload, kernel, lru, swap, wmode] = [workload, kernel, lru, "none", "rmw"].map(str::to_owned);
        Setting {
            workload,
            kernel,
            lru,
            swap,
            wmode,
            readahead_pages: 0,
            fault_around_pages: 0,
            tasks: 1,
            background: false,
            swappiness: DEFAULT_SWAPPINESS,
            controls: Controls::default(),
            memcg: String::new(),
        }
    }

    fn swap_device(&self) -> Option<SwapDevice> {
        match self.swap.as_str() {
            "disk" => Some(SwapDevice::lab_disk()),
            "zram" => Some(SwapDevice::zram()),
            _ => None,
        }
    }

    pub(super) fn has_swap(&self) -> bool {
        self.swap_device().is_some()
    }

    /// Treatment of writes to pages that are not cached.
    pub fn writes(&self) -> Writes {
        if self.wmode == "blind" { Writes::Overwrite } else { Writes::AfterRead }
    }
}

/// Access type of a run, which determines how exactly the run is repeatable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads by descriptor only.
    Reads,
    /// Loads through a mapping only.
    MappedReads,
    /// Some accesses write.
    Writes,
    /// Some accesses are to anonymous memory, with swap.
    AnonAndFile,
}

/// A row that can be replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelRun {
    /// Parameters of the run.
    pub setting: Setting,
    /// The preset that represents its kernel.
    pub preset: Preset,
    /// The policy.
    pub lru: Lru,
    /// Empty, or `rep2`, `rep3`, … for repetitions.
    pub tag: String,
    /// `memory.max` in pages; without a limit, pages that were free at the beginning.
    pub limit_pages: u64,
    /// Measured mean number of file pages in memory, and with swap also of anonymous pages.
    pub capacity_pages: f64,
    /// Memory of the replay: the capacity plus half an effort or, with background reclaim, plus the
    /// high watermark, until a first replay has told how many pages it keeps free.
    pub memory_pages: u64,
    /// The zones of a run without a limit, the highest of them first; empty if there is one.
    pub zones: Vec<Zone>,
    /// Number of records in the trace.
    pub records: u64,
    /// The access at which counting started.
    pub warm_from: u64,
    /// Access type.
    pub access: Access,
    /// Average time of an access, including waits, in nanoseconds.
    pub access_nanos: f64,
    /// Requests for which the disk was read, in the whole run.
    pub disk_reads: f64,
    /// Time of an access that reads nothing.
    pub hit_time: Duration,
    /// How much reads differ in time: the variance of its natural logarithm; `None`: not measured.
    pub read_log_variance: Option<f64>,
    /// Requests to write to the swap disk; `None`: not measured.
    pub swap_writes: Option<SwapWrites>,
    /// Counts in the order of [`Measure::ALL`].
    pub(super) counts: [f64; Measure::ALL.len()],
}

/// Requests to write to the swap disk, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwapWrites {
    /// Time from the first page of a request to its end.
    pub time: Duration,
    /// Pages per request.
    pub pages: f64,
}

/// A request waits while the others of its pass are collected, and few take very long. So the disk
/// takes a part of its mean time: 15 to 30 %, as the median of each of four traced runs
/// ([book: fidelity#fidelity-late-writes]).
const DISK_SHARE: f64 = 0.25;
/// Standard deviation of the base-2 logarithm of the disk's times, in thousandths: the median of
/// the same four, by their quartiles.
const DISK_SPREAD_PERMILLE: u32 = 1100;
/// The kernel sends off so many requests at once, also in the middle of a pass, and a request once
/// it is full: 512 KiB ([book: fidelity#fidelity-late-writes]).
const REQUESTS_MOST: f64 = 32.0;
const REQUEST_PAGES_MOST: u64 = 128;
/// Time to send off a pass's writes, from the same runs, and for each request.
const SEND: [Duration; 2] = [Duration::from_micros(70), Duration::from_micros(10)];

impl KernelRun {
    /// Value of a measure.
    pub fn count(&self, measure: Measure) -> f64 {
        let known = Measure::ALL.iter().zip(self.counts).find(|(one, _)| **one == measure);
        known.map_or(0.0, |(_, count)| count)
    }

    /// Swap for anonymous pages, large enough to be never short.
    pub fn swap(&self) -> Option<SwapModel> {
        let device = self.setting.swap_device()?;
        let device = match (device, self.swap_writes) {
            (SwapDevice::Disk { .. }, Some(SwapWrites { time, .. })) => {
                let median = time.mul_f64(DISK_SHARE);
                SwapDevice::lab_disk_with(Latency::Skewed { median, spread_permille: DISK_SPREAD_PERMILLE })
            }
            (device, _) => device,
        };
        Some(SwapModel { pages: SWAP_PAGES, device })
    }

    /// Durations of reclaim's steps in the replay, where they decide something: of writes to swap,
    /// and of background reclaim beside the tasks.
    pub fn reclaim_time(&self) -> Option<ReclaimTime> {
        match self.is_background() {
            true => Some(ReclaimTime::BACKGROUND),
            false => self.swap_writes.map(|_| ReclaimTime::LAB),
        }
    }

    /// Whether background reclaim keeps memory free, without a limit.
    pub fn is_background(&self) -> bool {
        !self.zones.is_empty()
    }

    /// Whether these are counts of the same run, of another memcg or all.
    pub fn is_of_run(&self, other: &KernelRun) -> bool {
        let setting = Setting { memcg: other.setting.memcg.clone(), ..self.setting.clone() };
        KernelRun { setting, counts: other.counts, ..self.clone() } == *other
    }

    /// How the replay collects the writes of a pass of reclaim to swap.
    pub fn swap_batches(&self) -> Option<SwapBatches> {
        let SwapWrites { pages, .. } = self.swap_writes?;
        let [send, send_request] = SEND;
        let most_pages = ((REQUESTS_MOST * pages) as u64).clamp(1, REQUEST_PAGES_MOST);
        Some(SwapBatches { most_pages, send, send_page: send_request.div_f64(pages.max(1.0)) })
    }

    /// Swappiness of the replay.
    pub fn swappiness(&self) -> Swappiness {
        Swappiness::new(self.setting.swappiness).unwrap_or(Swappiness::DEFAULT)
    }

    /// Whether the capacity can be predicted from the limit: one that holds from the first access
    /// to the last, for one memcg.
    pub fn is_predicted(&self) -> bool {
        !self.is_background() && self.setting.controls.is_plain()
    }

    /// Number of tasks that run at the same time.
    fn running(&self) -> u32 {
        self.setting.tasks.min(Machine::LAB_CPUS as u32)
    }

    /// Time of an access for a task that has a CPU. Of several tasks with a CPU each, the one that
    /// reads waits, and the others go on: the reads take the time, and the tasks get apart
    /// ([book: fidelity#fidelity-apart]).
    pub fn access_time(&self) -> Duration {
        let time = Duration::from_nanos(self.access_nanos as u64) * self.running();
        if self.has_own_cpus() { time.min(self.hit_time) } else { time }
    }

    /// Whether there are several tasks, each with a CPU.
    fn has_own_cpus(&self) -> bool {
        self.setting.tasks > 1 && self.setting.tasks == self.running()
    }

    /// Time of a read. A task that reads gives up its CPU, and goes on when those before it have
    /// had their turns, each up to its own next read. So when a batch of new pages is moved to the
    /// lists, some of them have not been accessed yet, which the policy may look at
    /// ([book: fidelity#fidelity-turns]). A task with a CPU of its own waits for the disk only.
    pub fn read_time(&self) -> Duration {
        let accesses_per_read = self.records as f64 / self.disk_reads.max(1.0);
        let turn_nanos = self.access_nanos * accesses_per_read;
        if self.has_own_cpus() {
            let hits_nanos = self.access_time().as_nanos() as f64 * accesses_per_read;
            let tasks = f64::from(self.setting.tasks);
            return Duration::from_nanos((turn_nanos * tasks - hits_nanos).max(0.0) as u64);
        }
        Duration::from_nanos(turn_nanos as u64) * (self.setting.tasks - self.running())
    }

    /// Times of single reads, whose mean is [`KernelRun::read_time`]. Tasks with a CPU each pass
    /// each other, as their reads take longer or shorter ([book: fidelity#fidelity-apart]).
    pub fn read_latency(&self) -> Latency {
        let mean = self.read_time();
        match self.read_log_variance.filter(|_| self.has_own_cpus()) {
            None => Latency::Fixed(mean),
            Some(variance) => Latency::Skewed {
                median: mean.mul_f64((-variance / 2.0).exp()),
                spread_permille: (1000.0 * variance.sqrt() / LN_2) as u32,
            },
        }
    }
}

/// A row that cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Parameters of the run.
    pub setting: Setting,
    /// Tag of the row.
    pub tag: String,
    /// Limit of the row, in pages.
    pub limit_pages: u64,
    /// Reason.
    pub reason: String,
}

impl Serialize for Skipped {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document!(serializer, {
            "workload": self.setting.workload,
            "kernel": self.setting.kernel,
            "lru": self.setting.lru,
            "swap": self.setting.swap,
            "limit_pages": self.limit_pages,
            "tag": self.tag,
            "reason": self.reason,
        })
    }
}

#[cfg(test)]
impl KernelRun {
    /// A run of the multi-gen LRU of 7.2 without counts.
    pub(super) fn example() -> KernelRun {
        KernelRun {
            setting: Setting::new("load", "7.2.12", "mglru"),
            preset: Preset::Linux72,
            lru: Lru::MultiGen,
            tag: String::new(),
            limit_pages: 100,
            capacity_pages: 90.0,
            memory_pages: 90,
            zones: Vec::new(),
            records: 4000,
            warm_from: 0,
            access: Access::Reads,
            access_nanos: 500.0,
            disk_reads: 1000.0,
            hit_time: HIT_TIME,
            read_log_variance: None,
            swap_writes: None,
            counts: [0.0; Measure::ALL.len()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with these tasks, of which a quarter of the accesses read.
    fn run(tasks: u32, access_nanos: f64, read_log_variance: Option<f64>) -> KernelRun {
        let example = KernelRun::example();
        let setting = Setting { tasks, ..example.setting };
        KernelRun { setting, access_nanos, read_log_variance, ..example }
    }

    /// All accesses together take as long as in the kernel, with any number of tasks.
    #[test]
    fn tasks_take_turns_in_the_time_of_the_row() {
        let times = |tasks, access_nanos: f64| {
            let run = run(tasks, access_nanos, None);
            let all = (4000 * run.access_time() + 1000 * run.read_time()) / tasks;
            assert_eq!(all, 4000 * Duration::from_nanos(access_nanos as u64), "{tasks} tasks");
            [run.access_time(), run.read_time()].map(|time| time.as_nanos())
        };
        let short = [[500, 0], [1000, 0], [1000, 2000], [1000, 60_000]];
        assert_eq!([1, 2, 3, 32].map(|tasks| times(tasks, 500.0)), short);
        // Two tasks with a CPU each: 17 µs of 200 are the access, and a quarter of them read.
        let long = [[100_000, 0], [17_000, 732_000], [200_000, 400_000]];
        assert_eq!([1, 2, 3].map(|tasks| times(tasks, 100_000.0)), long);
    }

    /// Reads that were measured to differ differ in the replay, around the same mean. Tasks that
    /// take turns wait for each other instead.
    #[test]
    fn reads_differ_in_time_as_measured() {
        let latency = |tasks, variance| run(tasks, 100_000.0, variance).read_latency();
        assert_eq!(latency(2, None), Latency::Fixed(Duration::from_micros(732)));
        assert_eq!(latency(3, Some(0.81)), Latency::Fixed(Duration::from_micros(400)));
        // 732 µs × exp(−0.405), and 0.9 / ln 2.
        let median = Duration::from_micros(732).mul_f64((-0.405f64).exp());
        assert_eq!(latency(2, Some(0.81)), Latency::Skewed { median, spread_permille: 1298 });
    }
}
