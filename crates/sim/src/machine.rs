//! The simulated machine: its resources and its timing.

use crate::device::{DeviceModel, Lane, Latency, Trouble};
use crate::operation::Numbering;
use crate::swap::{Swap, SwapBatches, SwapDevice, SwapModel};
use mglru_core::folio::ZONES_MAX;
use mglru_core::lru::Swappiness;
use mglru_core::mapping::TABLE_PAGES;
use mglru_core::readahead::SWAP_PAGES_MAX;
use mglru_core::reclaim::Watermarks;
use mglru_core::writeback::FlusherOptions;
use mglru_core::{Grain, Mechanisms, OomPolicy, Options, PAGE_BYTES, PcpSizes, Refresh, UNLIMITED, Zone};
use std::time::Duration;

/// A tenant of the machine. Limits are in pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Unique path: `a`, or `a/b` for a child of `a`, which must come first.
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
    /// A tenant with `memory.max` and no other limit.
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

/// How a write through a descriptor treats an uncached page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Writes {
    /// Reads the page first, which counts as an access, then writes to it, which does not: a
    /// read-modify-write, as in the kernel lab.
    #[default]
    AfterRead,
    /// Writes the whole page without a read, and does not count as an access.
    Overwrite,
    /// As `Overwrite` where the request covers the whole page. Otherwise it reads the page first.
    /// It counts as an access in neither case, as in the cache. The source has to tell requests
    /// ([`crate::Operation::Request`]).
    AsRequested,
}

/// Preemption of reclaiming tasks, for a machine with fewer CPUs than tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// Average time for which a task keeps its CPU.
    pub slice: Duration,
    /// Time until it has a CPU again.
    pub away: Latency,
}

/// Stalls of a CPU that moves written pages to be evicted next: it has taken over a page's place on
/// its list and waits for the lock of the lists, as an emulated CPU that the host does not run. No
/// scan can take the page meanwhile, and the rest of the write has not ended yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainStalls {
    /// Stalls per million batches of written pages.
    pub per_million: u32,
    /// Their duration.
    pub time: Latency,
}

/// How long a flusher that sleeps takes from the call that wakes it to its first transfer: it waits
/// for a CPU, and the file system chooses blocks for the pages. The first time, the file system
/// also reads and scans its maps of free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlusherStart {
    /// Its duration the first time.
    pub first: Latency,
    /// Its duration later.
    pub later: Latency,
}

/// Which of several runnable actors runs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Interleaving {
    /// The one that became runnable first, independent of the seed.
    #[default]
    InOrder,
    /// Any; the seed chooses.
    Seeded,
}

/// A machine. All fields may be changed before [`crate::Simulator::new`].
#[derive(Clone, Debug)]
pub struct Machine {
    /// Memory for pages, of all tenants together.
    pub memory_pages: u32,
    /// Thresholds of free memory.
    pub watermarks: Watermarks,
    /// The zones below the highest one ([`Options::lower_zones`]). Their pages are a part of
    /// `memory_pages`.
    pub lower_zones: Vec<Zone>,
    /// The tenants. A job belongs to one of them.
    pub tenants: Vec<Tenant>,
    /// The enabled mechanisms.
    pub mechanisms: Mechanisms,
    /// Number of CPUs, each with its own batches of folios. Jobs are assigned to them in turn, and
    /// those of one CPU compute one after the other ([`crate::Operation::Compute`]).
    pub cpus: usize,
    /// Whether a job that waited for a read goes on only when the job that computes on its CPU at
    /// the end of the read has ended its computation, before those that ask for the CPU. Otherwise
    /// it goes on at once.
    pub reads_need_cpu: bool,
    /// The CPU on which transfers end; its batches collect written pages.
    pub device_cpu: usize,
    /// Folios per batch of new pages, 1…31.
    pub batch_folios: usize,
    /// Pages that a CPU charges at once: 1 for counts that are exact per page, or 64 as in the
    /// kernel.
    pub charge_batch_pages: u64,
    /// Frames that a CPU takes from the node at once. With 1, watermarks are compared with the
    /// exact number of free frames; the kernel takes more ([`Options::pcp_batch_frames`]).
    pub pcp_batch_frames: usize,
    /// The kernel's lists of free pages per CPU instead ([`Options::pcp_sizes`]).
    pub pcp_sizes: Option<PcpSizes>,
    /// Quantities that do not depend on the size of memory.
    pub grain: Grain,
    /// When the list sizes that the classic LRU uses are refreshed, unless they are exact.
    pub statistics_refresh: Refresh,
    /// Reads the tenants' statistics every so many accesses, which also refreshes theirs, but not
    /// those of memcgs above them.
    pub statistics_reads: Option<u64>,
    /// Whether index memory takes frames away.
    pub charge_metadata: bool,
    /// The device that holds the files.
    pub device: DeviceModel,
    /// Temporary failures of that device.
    pub trouble: Trouble,
    /// Swap for anonymous pages; `None`: they stay in memory.
    pub swap: Option<SwapModel>,
    /// Reclaim's preference for anonymous pages, 0…201.
    pub swappiness: Swappiness,
    /// Write-back of dirty pages; `None`: only a sync writes.
    pub flusher: Option<FlusherOptions>,
    /// How late the flusher starts; `None`: at once.
    pub flusher_start: Option<FlusherStart>,
    /// Duration of a page access, without waiting.
    pub access_time: Duration,
    /// Duration of reclaiming one batch.
    pub batch_time: Duration,
    /// Additional duration for each page that reclaim takes off a list and examines.
    pub scan_time: Duration,
    /// Additional duration for each page that reclaim begins to write to a swap disk.
    pub swap_out_time: Duration,
    /// How the writes of a pass of reclaim to a swap disk are collected. `None`: each begins at
    /// once.
    pub swap_batches: Option<SwapBatches>,
    /// Pages per million that compressed swap does not take, chosen by the seed: its pool is full,
    /// or the page does not become smaller. They stay in memory, and the time is lost.
    pub swap_refusals_per_million: u32,
    /// Most pages that a fault reads from a swap disk, as far as they are swapped out
    /// ([`mglru_core::readahead::SwapReadahead`]); up to 1: its own page. The kernel's default is 8
    /// ([`mglru_core::readahead::DEFAULT_SWAP_PAGES`]), its maximum 32.
    pub swap_readahead_pages: u32,
    /// Additional duration for each page that reclaim moves on without examining it: sorted to
    /// another generation, or scanned on an active list.
    pub sort_time: Duration,
    /// Duration of a page table walk per entry.
    pub walk_time: Duration,
    /// Preemption of reclaiming tasks; `None`: never.
    pub preemption: Option<Preemption>,
    /// Whether a tenant's dirty pages are limited in proportion to its own limit
    /// ([`Options::memcg_dirty_limits`]).
    pub memcg_dirty_limits: bool,
    /// Whether writers know a tenant's dirty pages late ([`Options::late_dirty_counts`]).
    pub late_dirty_counts: bool,
    /// Stalls of the CPU that ends writes, `device_cpu`, while it moves written pages; `None`:
    /// never.
    pub drain_stalls: Option<DrainStalls>,
    /// The action if no page can be freed. A killed tenant loses its anonymous memory, and its jobs
    /// end. With [`OomPolicy::Ask`], out of four requests the simulated host kills the victim for
    /// two, refuses one and retries one.
    pub oom_policy: OomPolicy,
    /// The meaning of page names.
    pub numbering: Numbering,
    /// How writes through descriptors treat missing pages.
    pub writes: Writes,
    /// Maximum readahead window in pages, for sequential reads through descriptors and around
    /// misses through mappings; 0: no readahead. The kernel's default is 32
    /// ([`mglru_core::readahead::DEFAULT_MAX_PAGES`]). Needs [`Numbering::Files`].
    pub readahead_pages: u32,
    /// Aligned window in pages in which a load through a mapping maps all cached pages
    /// (fault-around); 0: only its own page. The kernel's default is 16
    /// ([`mglru_core::readahead::FAULT_AROUND_PAGES`]).
    pub fault_around_pages: u32,
    /// Whether consecutive accesses to the same page through the same descriptor count more than
    /// once. In the kernel they do not.
    pub count_repeats: bool,
    /// Which of several runnable actors runs next.
    pub interleaving: Interleaving,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Machine {
    /// Duration of an access in [`Self::kernel_lab`], including its waits.
    pub const LAB_ACCESS_TIME: Duration = Duration::from_micros(40);
    /// Number of CPUs of [`Self::kernel_lab`].
    pub const LAB_CPUS: usize = 2;

    /// A machine with one tenant, `all`, that may use all memory. It has the kernel's watermarks,
    /// an NVMe disk, no swap, a flusher, and accesses of 1 µs.
    pub fn new(memory_pages: u32) -> Machine {
        Machine {
            memory_pages,
            watermarks: Watermarks::for_pages(memory_pages),
            lower_zones: Vec::new(),
            tenants: vec![Tenant::new("all", u64::from(memory_pages))],
            mechanisms: Mechanisms::default(),
            cpus: 1,
            reads_need_cpu: false,
            device_cpu: 0,
            batch_folios: 31,
            charge_batch_pages: 1,
            pcp_batch_frames: 1,
            pcp_sizes: None,
            grain: Grain::KERNEL,
            statistics_refresh: Refresh::default(),
            statistics_reads: None,
            charge_metadata: false,
            device: DeviceModel::nvme(),
            trouble: Trouble::default(),
            swap: None,
            swappiness: Swappiness::DEFAULT,
            flusher: Some(FlusherOptions::default()),
            flusher_start: None,
            access_time: Duration::from_micros(1),
            batch_time: Duration::ZERO,
            scan_time: Duration::ZERO,
            swap_out_time: Duration::ZERO,
            swap_batches: None,
            swap_refusals_per_million: 0,
            swap_readahead_pages: 0,
            sort_time: Duration::ZERO,
            walk_time: Duration::ZERO,
            preemption: None,
            memcg_dirty_limits: true,
            late_dirty_counts: false,
            drain_stalls: None,
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

    /// This machine with the kernel's page allocator on a PC: zones and lists of free pages per
    /// CPU, which decide when background reclaim runs ([book: fidelity#fidelity-zones]). Set `cpus`
    /// first.
    pub fn with_kernel_allocator(mut self) -> Machine {
        self.set_zones(&Zone::of_pc(self.memory_pages, self.cpus));
        self
    }

    /// Gives the machine these zones, the highest of them first; none: it stays as it is. The
    /// highest has what the others leave of `memory_pages`.
    pub fn set_zones(&mut self, zones: &[Zone]) {
        if let Some((highest, lower)) = zones.split_first() {
            self.watermarks = highest.watermarks;
            self.pcp_sizes = highest.pcp_sizes;
            self.lower_zones = lower.to_vec();
        }
    }

    /// The idealised harness of the golden traces ([book: golden-traces#harness]): one tenant with
    /// a limit, on a machine that is never short of memory. Work takes no time, dirty pages are not
    /// written, and every access counts.
    ///
    /// # Panics
    /// If the limit has 2^32 − 64 pages or more.
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

    /// The kernel lab's machine, as far as it matters for counts
    /// ([book: agreement#multigen-agreement]): one tenant with a limit, on a machine that is never
    /// short of memory.
    ///
    /// Time is counted in accesses of 40 µs, reads included, so reads take no extra time here. The
    /// device writes two pages per access, 60 at a time, so that a write ends 30 accesses after it
    /// starts. Transfers end on a separate CPU, whose batches reclaim does not drain.
    ///
    /// A lab run with `memory.max` at 8192 pages also paid for index nodes and page tables.
    /// `limit_pages` is the rest: its measured mean of cached pages plus 28, half of what one
    /// reclaim attempt frees.
    ///
    /// # Panics
    /// If the limit has 2^32 − 64 pages or more.
    pub fn kernel_lab(limit_pages: u64) -> Machine {
        Machine::kernel_lab_at(Machine::LAB_ACCESS_TIME, limit_pages)
    }

    /// [`Machine::kernel_lab`] for a run that took another time per access: 17 to 820 µs were
    /// measured. The device writes as many pages per access; the flusher comes after the same time,
    /// so after fewer or more accesses.
    ///
    /// # Panics
    /// If an access takes no time, or the limit has 2^32 − 64 pages or more.
    pub fn kernel_lab_at(access_time: Duration, limit_pages: u64) -> Machine {
        let bytes_per_second = u128::from(2 * PAGE_BYTES * 1_000_000_000) / access_time.as_nanos();
        let write = Lane {
            // 0 would be a device that takes no time.
            bytes_per_second: (bytes_per_second as u64).max(1),
            depth: 60,
            ..Lane::IDEAL
        };
        Machine {
            watermarks: Watermarks { min: 0, low: 0, high: 0 },
            tenants: vec![Tenant::new("lab", limit_pages)],
            cpus: Machine::LAB_CPUS,
            device_cpu: 1,
            device: DeviceModel { read: Lane::IDEAL, write },
            // The lab's machine has far more memory than its limit: only the limit matters.
            flusher: Some(FlusherOptions { memory_permille: 1000, ..FlusherOptions::default() }),
            access_time,
            ..Machine::new(spare(limit_pages))
        }
    }

    /// Why this machine cannot be built, and what to set instead.
    pub(crate) fn flaw(&self) -> Option<&'static str> {
        let swap = self.swap.map(|swap| swap.device);
        let (swap_disk, swap_cpu) = match swap {
            Some(SwapDevice::Disk { model, cpu }) => (Some(model), Some(cpu)),
            Some(SwapDevice::Memory { .. }) | None => (None, None),
        };
        let devices = std::iter::once(self.device).chain(swap_disk);
        let lanes: Vec<Lane> = devices.flat_map(|device| [device.read, device.write]).collect();
        let around = self.fault_around_pages;
        let flaws = [
            (self.memory_pages == 0, "it has no memory: set at least one page"),
            (
                self.cpus == 0 || self.device_cpu >= self.cpus,
                "transfers end on a CPU that does not exist: set device_cpu below cpus",
            ),
            (
                !(1..=BATCH_FOLIOS_MAX).contains(&self.batch_folios),
                "a batch of new pages has 1 to 31 folios: set batch_folios to that",
            ),
            (
                self.charge_batch_pages > u64::from(u32::MAX) || self.pcp_batch_frames > u32::MAX as usize,
                "a CPU takes more pages at once than any memory has: set charge_batch_pages and pcp_batch_frames lower",
            ),
            (
                self.lower_zones.len() >= ZONES_MAX,
                "it has more zones than a kernel would give it: set at most two in lower_zones",
            ),
            (
                self.lower_zones.iter().map(|zone| u64::from(zone.pages)).sum::<u64>()
                    >= self.memory_pages.into(),
                "its lower zones leave no memory for the highest one: set memory_pages to more than all lower_zones",
            ),
            (
                self.all_pcp_sizes().any(|sizes| !sizes.are_sound()),
                "a CPU's list of free pages has no room for four batches: set pcp_sizes' high_min_pages to that at least, \
                 and high_max_pages to no less",
            ),
            (
                self.swap.is_some_and(|swap| swap.pages == 0),
                "its swap has 0 pages: set at least one, or no swap",
            ),
            (
                swap_cpu.is_some_and(|cpu| cpu >= self.cpus),
                "swap writes end on a CPU that does not exist: set its cpu below cpus",
            ),
            (
                lanes.iter().any(|lane| lane.depth == 0),
                "a device runs at least one transfer at a time: set the depth of its lanes",
            ),
            (
                lanes.iter().any(|lane| lane.failures_per_million > 1_000_000),
                "a device fails at most a million of a million transfers: set failures_per_million to that",
            ),
            (
                self.swap_refusals_per_million > 1_000_000,
                "swap refuses at most a million of a million pages: set swap_refusals_per_million to that",
            ),
            (
                self.swap_readahead_pages > SWAP_PAGES_MAX,
                "a fault reads at most 32 pages from swap: set swap_readahead_pages to that",
            ),
            (
                self.preemption.is_some_and(|preemption| preemption.slice.is_zero()),
                "a task keeps its CPU for no time: set the slice of the preemption",
            ),
            (
                self.drain_stalls.is_some_and(|stalls| stalls.per_million > 1_000_000),
                "at most a million of a million batches stall: set per_million of the stalls to that",
            ),
            (
                self.readahead_pages > 0 && self.numbering == Numbering::Keys,
                "readahead needs pages that are positions in files, and here they are opaque keys",
            ),
            (
                around != 0 && (!around.is_power_of_two() || around > TABLE_PAGES),
                "fault-around is of 1, 2, 4, 8, … pages, up to a page table of 512, or 0: off",
            ),
        ];
        flaws.into_iter().find_map(|(is_there, flaw)| is_there.then_some(flaw))
    }

    /// The lists of free pages per CPU, of all zones.
    fn all_pcp_sizes(&self) -> impl Iterator<Item = PcpSizes> {
        let lower = self.lower_zones.iter().map(|zone| zone.pcp_sizes);
        std::iter::once(self.pcp_sizes).chain(lower).flatten()
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            watermarks: self.watermarks,
            lower_zones: self.lower_zones.clone(),
            mechanisms: self.mechanisms,
            cpus: self.cpus,
            batch_folios: self.batch_folios,
            charge_batch_pages: self.charge_batch_pages,
            pcp_batch_frames: self.pcp_batch_frames,
            pcp_sizes: self.pcp_sizes,
            grain: self.grain,
            seed: self.seed,
            statistics_refresh: self.statistics_refresh,
            charge_metadata: self.charge_metadata,
            swap: Swap::options(self.swap),
            swappiness: self.swappiness,
            memcg_dirty_limits: self.memcg_dirty_limits,
            late_dirty_counts: self.late_dirty_counts,
            oom_policy: self.oom_policy,
            ..Options::new(self.memory_pages)
        }
    }
}

/// Folios in the kernel's batch of new pages, the largest that the core takes.
pub(crate) const BATCH_FOLIOS_MAX: usize = 31;

/// Memory size with which only a limit of `limit_pages` is ever reached.
fn spare(limit_pages: u64) -> u32 {
    let pages = limit_pages.checked_add(64).and_then(|pages| u32::try_from(pages).ok());
    pages.expect("a limit of less than 2^32 − 64 pages")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The device of accesses that take hours took no time itself, and one length divided by zero.
    #[test]
    fn the_device_of_slow_accesses_is_slow() {
        let speed = |time| Machine::kernel_lab_at(time, 100).device.write.bytes_per_second;
        assert_eq!(speed(Duration::from_secs(1)), 2 * PAGE_BYTES);
        assert_eq!(speed(Duration::from_secs(1 << 40)), 1);
        assert_eq!(speed(Duration::from_nanos(1 << 63) * 2), 1, "2^64 nanoseconds");
    }
}
