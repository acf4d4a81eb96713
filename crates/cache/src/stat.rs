//! Counters of handles and statistics of tenants.

use crate::host::{known_thread_number, thread_number};
use mglru_core::lru::GenerationRow;
use mglru_core::{Counter, PressureStats};
use std::fmt;
use std::ops::Index;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Counters of one handle. Aligned to cache lines of its own, so that threads with separate handles
/// do not contend.
///
/// One lane counts for all threads until many hits of a second thread have shown that threads share
/// the handle. From then on each thread has a lane of [`HandleStats::lanes`], and the words here
/// are only read: sixteen threads on one lane make no more hits per second than one.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct HandleStats {
    first: Lane,
    lanes: OnceLock<Box<[Apart]>>,
    /// First accesses through a map: to pages in memory that had no page-table entry, and to pages
    /// that were missing, which count as misses as well.
    map_faults: [AtomicU64; 2],
}

/// Counts and notes of a thread that reads through a handle.
#[derive(Debug)]
struct Lane {
    /// Number of the thread that counts its hits in `own_hits`; [`NO_OWNER`] until a first hit. An
    /// atomic addition would keep the processor from starting the next access early.
    owner: AtomicUsize,
    own_hits: AtomicU64,
    /// Hits of other threads.
    hits: AtomicU64,
    misses: AtomicU64,
    /// Page in which the last read ended, plus one. A read that continues in that page counts as
    /// the same access.
    last_page: AtomicU64,
}

/// A lane in cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart(Lane);

/// Hits of threads that do not own the first lane, after which a handle gets lanes.
const SHARED_HITS: u64 = 1024;

/// Accesses through the handles of a tenant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accesses {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    /// As in [`HandleStats`].
    pub(crate) map_faults: [u64; 2],
}

impl Accesses {
    pub(crate) fn add(&mut self, stats: &HandleStats) {
        self.hits += stats.hits();
        self.misses += stats.misses();
        for (sum, faults) in self.map_faults.iter_mut().zip(&stats.map_faults) {
            *sum += faults.load(Relaxed);
        }
    }

    /// Hits through maps at least: first accesses to pages in memory, or as many as accessed bits
    /// were found. Each miss sets a bit, which a scan finds once at most and which is no hit.
    pub(crate) fn mapped_hits(&self, young: u64) -> u64 {
        let [minor, major] = self.map_faults;
        minor.max(young.saturating_sub(major))
    }
}

/// The owner of a lane that has none yet.
const NO_OWNER: usize = usize::MAX;
/// The owner of the first lane once there are others.
const MOVED: usize = usize::MAX - 1;

impl Default for Lane {
    fn default() -> Lane {
        Lane {
            owner: AtomicUsize::new(NO_OWNER),
            own_hits: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            last_page: AtomicU64::new(0),
        }
    }
}

impl Lane {
    /// Counts a hit of the thread that owns the lane. `false`: it is another thread's.
    #[inline(always)]
    fn hit_of_owner(&self) -> bool {
        let is_own = self.owner.load(Relaxed) == known_thread_number();
        if is_own {
            // Only this thread writes the word: thread numbers are not reused.
            self.own_hits.store(self.own_hits.load(Relaxed) + 1, Relaxed);
        }
        is_own
    }

    /// Whether the thread becomes the owner, because the lane lacks one.
    fn is_first(&self, thread: usize) -> bool {
        let is_free = self.owner.load(Relaxed) == NO_OWNER;
        is_free && self.owner.compare_exchange(NO_OWNER, thread, Relaxed, Relaxed).is_ok()
    }

    /// Reading the same page again writes nothing: threads that share the lane would contend.
    #[inline(always)]
    fn note_last_page(&self, page: u64) {
        if self.last_page.load(Relaxed) != page + 1 {
            self.last_page.store(page + 1, Relaxed);
        }
    }
}

impl HandleStats {
    /// Bytes of the lanes for `threads` threads.
    pub(crate) fn lanes_bytes(threads: usize) -> u64 {
        (threads.next_power_of_two() * size_of::<Apart>()) as u64
    }

    /// Gives each of `threads` threads a lane; further threads share them.
    pub(crate) fn add_lanes(&self, threads: usize) {
        self.lanes.get_or_init(|| (0..threads.next_power_of_two()).map(|_| Apart::default()).collect());
        // Its owner finds its new lane, too.
        self.first.owner.store(MOVED, Relaxed);
    }

    /// The lane of the calling thread.
    #[inline(always)]
    fn lane(&self) -> &Lane {
        match self.lanes.get() {
            None => &self.first,
            // Their number is a power of two.
            Some(lanes) => &lanes[known_thread_number() & (lanes.len() - 1)].0,
        }
    }

    fn all_lanes(&self) -> impl Iterator<Item = &Lane> {
        let lanes = self.lanes.get().map_or(&[][..], |lanes| lanes);
        std::iter::once(&self.first).chain(lanes.iter().map(|Apart(lane)| lane))
    }

    /// Counts a hit that ended in `page`, of a thread that owns the first lane. `false`: another
    /// thread's, and nothing was noted. The fewest instructions, as most handles have one thread.
    #[inline(always)]
    pub(crate) fn hit_of_owner(&self, page: u64) -> bool {
        let is_own = self.first.hit_of_owner();
        if is_own {
            self.first.note_last_page(page);
        }
        is_own
    }

    /// Counts a hit. `true`: the handle should get lanes.
    #[inline]
    pub(crate) fn hit(&self) -> bool {
        let lane = self.lane();
        let is_own = lane.hit_of_owner() || lane.is_first(thread_number()) && lane.hit_of_owner();
        !is_own
            && lane.hits.fetch_add(1, Relaxed) % SHARED_HITS == SHARED_HITS - 1
            && self.lanes.get().is_none()
    }

    pub(crate) fn miss(&self) {
        self.lane().misses.fetch_add(1, Relaxed);
    }

    /// Counts an access through a map that needed a page-table entry.
    pub(crate) fn map_fault(&self, missed: bool) {
        self.map_faults[usize::from(missed)].fetch_add(1, Relaxed);
        if missed {
            self.miss();
        }
    }

    /// Whether the last read of the thread ended in `page`; of any thread, while there is one lane.
    #[inline(always)]
    pub(crate) fn has_last_read(&self, page: u64) -> bool {
        self.lane().last_page.load(Relaxed) == page + 1
    }

    /// Notes the page in which a read of the thread ended.
    #[inline(always)]
    pub(crate) fn note_last_page(&self, page: u64) {
        self.lane().note_last_page(page);
    }

    pub(crate) fn hits(&self) -> u64 {
        self.all_lanes().map(|lane| lane.own_hits.load(Relaxed) + lane.hits.load(Relaxed)).sum()
    }

    pub(crate) fn misses(&self) -> u64 {
        self.all_lanes().map(|lane| lane.misses.load(Relaxed)).sum()
    }
}

/// The values of all [`Counter`]s at one time.
///
/// Counters count pages or events and only grow. Sizes are in pages ([`Counter::SIZES`]), except
/// for the two of metadata (`slab_…`), which are in bytes. Names are the kernel's.
///
/// ```
/// # use mglru_cache::{Counter, PageCache};
/// # let cache = PageCache::builder(1 << 20).build()?;
/// let counters = cache.tenant("")?.stats().counters;
/// assert_eq!(counters[Counter::WorkingsetRefaultFile], 0);
/// assert_eq!(counters.by_name("pgscan_direct"), Some(0));
/// # Ok::<(), mglru_cache::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Counters([u64; Counter::ALL.len()]);

impl Counters {
    pub(crate) fn new(value_of: impl Fn(Counter) -> u64) -> Counters {
        Counters(std::array::from_fn(|at| value_of(Counter::ALL[at])))
    }

    /// The value of a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self[counter]
    }

    /// The value of the counter with this name, if one has it.
    pub fn by_name(&self, name: &str) -> Option<u64> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Names and values, in the order of [`Counter::ALL`].
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'static str, u64)> + '_ {
        Counter::ALL.iter().zip(&self.0).map(|(counter, &value)| (counter.name(), value))
    }
}

impl Index<Counter> for Counters {
    type Output = u64;

    fn index(&self, counter: Counter) -> &u64 {
        &self.0[counter as usize]
    }
}

/// A map of names and values.
#[cfg(feature = "serde")]
impl serde::Serialize for Counters {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// `memory.pressure`: the share of time in which at least one task waited for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Pressure {
    /// Over the last 10 seconds, in percent.
    pub avg10: f64,
    /// Over the last minute, in percent.
    pub avg60: f64,
    /// Over the last five minutes, in percent.
    pub avg300: f64,
    /// In all, in microseconds.
    pub total_us: u64,
}

impl From<PressureStats> for Pressure {
    fn from(stats: PressureStats) -> Pressure {
        let [avg10, avg60, avg300] = stats.average_basis_points.map(|hundredths| hundredths as f64 / 100.0);
        Pressure { avg10, avg60, avg300, total_us: stats.total_us }
    }
}

/// Sizes, limits and counters of a tenant.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TenantStats {
    /// The tenant's path; empty for the root.
    pub name: String,
    /// `memory.min`, in pages.
    pub min_pages: u64,
    /// `memory.low`, in pages.
    pub low_pages: u64,
    /// `memory.high`, in pages; `None`: unlimited.
    pub high_pages: Option<u64>,
    /// `memory.max`, in pages; `None`: unlimited.
    pub max_pages: Option<u64>,
    /// Pages charged to the tenant and all below it, with whole pages of metadata; for the root, to
    /// the root itself only.
    pub usage_pages: u64,
    /// The maximum of `usage_pages` so far.
    pub peak_pages: u64,
    /// Pages in swap, of the tenant and all below it.
    pub swap_pages: u64,
    /// Page accesses through file handles that found the page in memory.
    pub hits: u64,
    /// Page accesses, through handles and maps, that did not find the page in memory.
    pub misses: u64,
    /// Page accesses through maps that found the page in memory: an estimate, and at most the true
    /// number. A mapped hit counts nothing; it sets an accessed bit, once until the next scan
    /// looks. This has first accesses to pages in memory, and accessed bits that scans found
    /// ([`Counter::Pgyoung`]).
    pub mapped_hits: u64,
    /// Counters and sizes under the kernel's names, in pages or events (`slab_…`: in bytes), of
    /// this tenant only. The control files include the tenants below it.
    pub counters: Counters,
    /// `memory.pressure`: time that tasks of the tenant and all below it waited for memory.
    pub pressure: Pressure,
    /// The tenant's live generations, oldest first.
    pub generations: Vec<GenerationRow>,
}

impl TenantStats {
    /// Share of page accesses that found the page in memory, from 0 to 1; `None` without accesses.
    /// With maps it is an estimate: see [`Self::mapped_hits`].
    pub fn hit_ratio(&self) -> Option<f64> {
        let hits = self.hits + self.mapped_hits;
        (hits + self.misses > 0).then(|| hits as f64 / (hits + self.misses) as f64)
    }

    /// The counter with this name, if it exists.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.by_name(name)
    }

    /// The generations, oldest first; none while another policy than the multi-gen one has the
    /// tenant's pages.
    pub fn generations_in_use(&self) -> &[GenerationRow] {
        let has_pages = self.generations.iter().any(|row| row.anon_pages + row.file_pages > 0);
        if has_pages { &self.generations } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_with_lanes_continue_their_own_reads() {
        let (stats, here) = (HandleStats::default(), thread_number());
        stats.note_last_page(3);
        assert!(stats.has_last_read(3));
        stats.add_lanes(2);
        assert!(!stats.hit());
        stats.note_last_page(5);
        // Threads with the other lane. Two of them may be needed, or more if other tests number
        // threads meanwhile.
        let is_elsewhere = || {
            let is_apart = (thread_number() ^ here) & 1 == 1;
            if is_apart {
                assert!(!stats.has_last_read(5));
                stats.note_last_page(7);
                assert!(!stats.hit());
                stats.miss();
            }
            is_apart
        };
        while !std::thread::scope(|scope| scope.spawn(is_elsewhere).join().unwrap()) {}
        assert!(stats.has_last_read(5) && !stats.has_last_read(7));
        assert_eq!((stats.hits(), stats.misses()), (2, 1));
    }
}
