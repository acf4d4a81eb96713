//! The faked machine: what it has, and how long things take on it.

use crate::device::{DeviceModel, Lane, Latency, Trouble};
use crate::operation::Numbering;
use crate::swap::{Swap, SwapModel};
use mglru_core::lru::{Refresh, Swappiness};
use mglru_core::reclaim::Watermarks;
use mglru_core::writeback::FlusherOptions;
use mglru_core::{Mechanisms, OomPolicy, Options, PAGE_BYTES, UNLIMITED};
use std::time::Duration;

/// Who pays for pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its path, unique: `a`, or `a/b` for a child of `a`, which comes before it.
    pub path: String,
    /// `memory.max`, in pages.
    pub max_pages: u64,
    /// `memory.high`, in pages.
    pub high_pages: u64,
    /// `memory.low`, in pages.
    pub low_pages: u64,
    /// `memory.min`, in pages.
    pub min_pages: u64,
    /// `memory.swap.max`, in pages.
    pub swap_max_pages: u64,
    /// `memory.swap.high`, in pages.
    pub swap_high_pages: u64,
}

impl Tenant {
    /// A tenant with a limit, and nothing else.
    pub fn new(path: &str, max_pages: u64) -> Tenant {
        Tenant {
            path: path.to_owned(),
            max_pages,
            high_pages: UNLIMITED,
            low_pages: 0,
            min_pages: 0,
            swap_max_pages: UNLIMITED,
            swap_high_pages: UNLIMITED,
        }
    }
}

/// How a write through a descriptor treats a page that is not cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Writes {
    /// The page is read first, which counts as an access, and then written to, which does not:
    /// read-modify-write, as the kernel lab does it.
    #[default]
    AfterRead,
    /// The page is written whole: nothing is read, and nothing counts as an access.
    Overwrite,
}

/// Where there are fewer CPUs than tasks, a task that reclaims may have to let others go first, in
/// the middle of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// On average it keeps its CPU for so long.
    pub slice: Duration,
    /// Until it has one again.
    pub away: Latency,
}

/// Which of several actors goes on that could go on at the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Interleaving {
    /// The one that could go on first. The seed plays no part.
    #[default]
    InOrder,
    /// Any; the seed chooses.
    Seeded,
}

/// A machine. All fields can be changed before it is given to [`crate::Simulator::new`].
#[derive(Clone, Debug)]
pub struct Machine {
    /// Memory for pages, all tenants together.
    pub memory_pages: u32,
    /// When free memory is short.
    pub watermarks: Watermarks,
    /// Who pays. A job belongs to one of them.
    pub tenants: Vec<Tenant>,
    /// Which behaviours are on.
    pub mechanisms: Mechanisms,
    /// CPUs, each with its own batches of folios. Jobs take turns on them.
    pub cpus: usize,
    /// The CPU on which transfers end: in whose batches written pages are collected.
    pub device_cpu: usize,
    /// Folios per batch of arrivals, 1…31.
    pub batch_folios: usize,
    /// Pages that a CPU charges at once: 1, so that counts can be compared page by page, or 64, as
    /// in the kernel.
    pub charge_batch_pages: u64,
    /// Frames that a CPU takes from the node at once: 1, so that watermarks are compared with all
    /// that are free, or more, as in the kernel ([`Options::pcp_batch_frames`]).
    pub pcp_batch_frames: usize,
    /// When the list sizes by which the classic LRU decides are refreshed, unless they are exact.
    pub statistics_refresh: Refresh,
    /// Somebody reads the tenants' statistics whenever so many accesses have begun, which refreshes
    /// them, too.
    pub statistics_reads: Option<u64>,
    /// Whether index memory takes frames away.
    pub charge_metadata: bool,
    /// Where files are.
    pub device: DeviceModel,
    /// What that device goes through.
    pub trouble: Trouble,
    /// Where anonymous pages go; `None`: they stay.
    pub swap: Option<SwapModel>,
    /// How willing reclaim is to take them, 0…201.
    pub swappiness: Swappiness,
    /// Who writes dirty pages back; `None`: only a sync does.
    pub flusher: Option<FlusherOptions>,
    /// What a touch of a page takes, besides what it waits for.
    pub access_time: Duration,
    /// What reclaiming one batch takes.
    pub batch_time: Duration,
    /// What reclaim takes besides for each page that it takes off a list and examines. Sorting is
    /// almost free beside that.
    pub scan_time: Duration,
    /// What a walk over page tables takes for each entry that it looks at.
    pub walk_time: Duration,
    /// How a task that reclaims loses its CPU to others; `None`: never.
    pub preemption: Option<Preemption>,
    /// Whether what a tenant has dirty is held against its own limit
    /// ([`Options::memcg_dirty_limits`]).
    pub memcg_dirty_limits: bool,
    /// What is done where no page can be had. A tenant that is killed loses its anonymous memory,
    /// and its jobs end. Asked ([`OomPolicy::Ask`]), the host kills the victim twice of four times,
    /// refuses once, and once says to try again.
    pub oom_policy: OomPolicy,
    /// What page names mean.
    pub numbering: Numbering,
    /// How writes through descriptors treat missing pages.
    pub writes: Writes,
    /// The largest window of readahead, in pages, for reads through descriptors in order and around
    /// misses through mappings; 0: nothing is read ahead. The kernel's default is 32
    /// ([`mglru_core::readahead::DEFAULT_MAX_PAGES`]). Needs [`Numbering::Files`].
    pub readahead_pages: u32,
    /// The aligned window, in pages, in which a load through a mapping maps all pages that are in
    /// memory; 0: each load maps its page. The kernel's default is 16
    /// ([`mglru_core::readahead::FAULT_AROUND_PAGES`]).
    pub fault_around_pages: u32,
    /// Whether a second access in a row to the same page, through the same descriptor, counts. In
    /// the kernel it does not.
    pub count_repeats: bool,
    /// Who goes on, where several could.
    pub interleaving: Interleaving,
    /// Decides everything that is left to chance.
    pub seed: u64,
}

impl Machine {
    /// What an access takes in [`Self::kernel_lab`], what it waits for included.
    pub const LAB_ACCESS_TIME: Duration = Duration::from_micros(40);

    /// A machine with so much memory and one tenant, `all`, that may have all of it. Kernel's
    /// watermarks, an NVMe disk, no swap, a flusher, a microsecond per touch.
    pub fn new(memory_pages: u32) -> Machine {
        Machine {
            memory_pages,
            watermarks: Watermarks::for_pages(memory_pages),
            tenants: vec![Tenant::new("all", u64::from(memory_pages))],
            mechanisms: Mechanisms::default(),
            cpus: 1,
            device_cpu: 0,
            batch_folios: 31,
            charge_batch_pages: 1,
            pcp_batch_frames: 1,
            statistics_refresh: Refresh::default(),
            statistics_reads: None,
            charge_metadata: false,
            device: DeviceModel::nvme(),
            trouble: Trouble::default(),
            swap: None,
            swappiness: Swappiness::DEFAULT,
            flusher: Some(FlusherOptions::default()),
            access_time: Duration::from_micros(1),
            batch_time: Duration::ZERO,
            scan_time: Duration::ZERO,
            walk_time: Duration::ZERO,
            preemption: None,
            memcg_dirty_limits: true,
            oom_policy: OomPolicy::Fail,
            numbering: Numbering::Files,
            writes: Writes::AfterRead,
            readahead_pages: 0,
            fault_around_pages: 0,
            count_repeats: false,
            interleaving: Interleaving::InOrder,
            seed: 1,
        }
    }

    /// The idealised harness of the golden traces ([book: golden-traces#harness]): one tenant with
    /// a limit on a machine that is never short of memory, nothing takes time, nothing is ever
    /// written, every access counts.
    pub fn ideal(limit_pages: u64, batch_folios: usize) -> Machine {
        Machine {
            watermarks: Watermarks { min: 0, low: 0, high: 0 },
            tenants: vec![Tenant::new("ideal", limit_pages)],
            batch_folios,
            device: DeviceModel::IDEAL,
            flusher: None,
            access_time: Duration::ZERO,
            count_repeats: true,
            ..Machine::new(spare(limit_pages))
        }
    }

    /// The machine of the kernel lab, as far as it matters for counts
    /// ([book: agreement#multigen-agreement]): one tenant with a limit on a machine that is never
    /// short of memory.
    ///
    /// Time is counted in accesses of 40 µs: the lab's runs took 36 to 150 µs per access, reads
    /// included, so reads take none of their own here. The device writes two pages per access, with
    /// 60 under way at a time, so that a write ends 30 accesses after it began. Transfers end on a
    /// CPU of their own, whose batches reclaim does not drain.
    ///
    /// A run of the lab with `memory.max` at 8192 pages also paid for index nodes and page tables.
    /// `limit_pages` is what it had left: its measured mean of cached pages, and 28 more, which is
    /// half of what one effort frees.
    pub fn kernel_lab(limit_pages: u64) -> Machine {
        let access_time = Machine::LAB_ACCESS_TIME;
        let write = Lane {
            latency: Latency::ZERO,
            bytes_per_second: 2 * PAGE_BYTES * 1_000_000 / 40,
            depth: 60,
            burst: Duration::ZERO,
            failures_per_million: 0,
        };
        Machine {
            watermarks: Watermarks { min: 0, low: 0, high: 0 },
            tenants: vec![Tenant::new("lab", limit_pages)],
            cpus: 2,
            device_cpu: 1,
            device: DeviceModel { read: Lane::IDEAL, write },
            // The lab's machine has far more memory than its limit: only the limit matters.
            flusher: Some(FlusherOptions { memory_permille: 1000, ..FlusherOptions::default() }),
            access_time,
            ..Machine::new(spare(limit_pages))
        }
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            watermarks: self.watermarks,
            mechanisms: self.mechanisms,
            cpus: self.cpus,
            batch_folios: self.batch_folios,
            charge_batch_pages: self.charge_batch_pages,
            pcp_batch_frames: self.pcp_batch_frames,
            seed: self.seed,
            statistics_refresh: self.statistics_refresh,
            charge_metadata: self.charge_metadata,
            swap: Swap::options(self.swap),
            swappiness: self.swappiness,
            memcg_dirty_limits: self.memcg_dirty_limits,
            oom_policy: self.oom_policy,
            ..Options::new(self.memory_pages)
        }
    }
}

/// Memory of a machine on which only a limit of `limit_pages` is ever short.
fn spare(limit_pages: u64) -> u32 {
    u32::try_from(limit_pages + 64).expect("a limit of less than 2^32 pages")
}
