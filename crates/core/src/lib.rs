//! Linux's page reclaim as a library of decisions: which pages stay when memory runs short.
//!
//! This crate only decides. I/O, the clock, threads and page bytes belong to its host: the page
//! cache (`mglru-cache`) runs it under threads over real files, the simulator (`mglru-sim`) under a
//! virtual clock. Both run the same compiled code, and a single thread gets the same results bit
//! for bit.
//!
//! Follow a page through the modules: [`access`] looks it up and [`charge`] pays for it. When
//! memory is short, [`reclaim`] runs, [`lru`] ranks pages and [`pageout`] frees the cold ones.
//! Dirty pages are written by [`writeback`], anonymous ones go to [`swap`]. [`workingset`]
//! remembers evicted pages until they return.

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

// The unit tests share the integration tests' harness, which imports this crate as `mglru_core`.
#[cfg(all(test, not(loom)))]
extern crate self as mglru_core;

pub mod access;
mod bias;
pub mod charge;
mod content;
pub mod control;
pub mod event;
pub mod folio;
mod free_frames;
pub mod host;
#[cfg(all(test, loom))]
mod loom_tests;
pub mod lru;
pub mod mapping;
pub mod mechanism;
pub mod memcg;
pub mod mm;
mod node;
pub mod options;
pub mod pageout;
mod pcp;
mod random;
pub mod readahead;
pub mod reclaim;
mod residency;
mod segments;
pub mod swap;
mod sync;
#[cfg(all(test, not(loom)))]
mod testing;
mod tunables;
mod validate;
pub mod workingset;
pub mod writeback;
mod zone;

pub use access::{Arrival, Hit, LockAttempt, Lookup, Peek, Task};
pub use bias::{Bias, VisibleReader, VisibleReaders};
pub use charge::{ChargeStep, Charging, NewFolio};
pub use control::{ControlError, ControlStep, ControlWrite, Errno};
pub use event::Event;
pub use folio::{FolioId, Kind, WriteAttempt};
pub use free_frames::PCP_BATCH_FRAMES;
pub use host::{FlushReason, Host, Silent, Throttle, Time};
pub use mapping::{InsertError, Mapping, MappingId};
pub use mechanism::{Idle, Lru, LruLock, MechanismError, Mechanisms, Preset, Switch};
pub use memcg::{
    Counter, Effective, HostCharge, Limits, Memcg, MemcgError, MemcgId, Memcgs, PressureStats, Stall,
    UNLIMITED,
};
pub use options::{Grain, Options, PAGE_BYTES, Refresh};
pub use pcp::PcpSizes;
pub use reclaim::{OomDecision, OomPolicy, OutOfMemory};
pub use residency::PagesInRange;
pub use swap::{SwapOptions, SwapOut, SwapOutcome, SwapSlot, SwapStore};
pub use sync::LockCounts;
pub use zone::Zone;

use folio::FolioTable;
use lru::Arrivals;
use mapping::{LeafPool, MAPPING_PAGES_MAX, MappingTable};
use node::Node;
use std::sync::Arc;
use swap::SwapArea;
use sync::{AtomicU64, Mutex};
use tunables::Tunables;

/// One node and everything cached on it. All threads share it.
#[derive(Debug)]
pub struct Core {
    pub(crate) options: Options,
    pub(crate) folios: FolioTable,
    pub(crate) leaves: LeafPool,
    pub(crate) mappings: MappingTable,
    pub(crate) memcgs: Memcgs,
    pub(crate) node: Node,
    pub(crate) arrivals: Arrivals,
    pub(crate) swap: SwapArea,
    pub(crate) tunables: Tunables,
    /// Pages reclaimed since the start, counted with `subtree_lru` only: the clock of the node.
    pub(crate) reclaimed: AtomicU64,
    /// Memcgs that own shadow-only leaves.
    pub(crate) remembering: workingset::Remembering,
    /// Shadows whose leaves were dropped.
    pub(crate) compact_shadows: lru::CompactShadows,
    /// Removed memcgs that may still pay for parts of the index.
    pub(crate) left_behind: Mutex<Vec<MemcgId>>,
    /// Files and memcgs for the flusher to visit.
    pub(crate) flushing: writeback::Flushing,
    pub(crate) oom: reclaim::Oom,
    /// Time of the next refresh of the list sizes that the classic LRU uses, in nanoseconds.
    pub(crate) statistics_due_ns: AtomicU64,
}

/// The index starts with one leaf per this many frames. 64 would do if all cached pages were
/// neighbours; the rest is for shadows. Leaves take 11 bytes per frame.
const FRAMES_PER_FIRST_LEAF: u32 = 48;

/// A directory is there from the beginning for every so many frames: enough for files of 64 times
/// as many pages. They take 4 bytes per frame.
const FRAMES_PER_FIRST_DIRECTORY: u32 = 512;

/// In a simulator, whose metadata nobody pays for, it starts with more, since a look-up reaches the
/// first ones in fewer steps: a leaf per frame up to this many (8 MiB), …
const SIMULATED_FIRST_LEAVES: u32 = 1 << 14;

/// … and this many directories (1 MiB).
const SIMULATED_FIRST_DIRECTORIES: u32 = 1 << 9;

/// The numbers of leaves and of directories that are there from the beginning.
fn first_of_index(options: &Options, one_thread: bool) -> (u32, u32) {
    let frames = options.frames;
    let (leaves, directories) = (frames / FRAMES_PER_FIRST_LEAF, 1 + frames / FRAMES_PER_FIRST_DIRECTORY);
    match one_thread && !options.charge_metadata {
        // Loom creates every word anew for every interleaving.
        _ if cfg!(loom) => (0, 0),
        true => {
            let simulated = SIMULATED_FIRST_LEAVES.min(frames);
            (leaves.max(simulated), directories.max(SIMULATED_FIRST_DIRECTORIES))
        }
        false => (leaves, directories),
    }
}

impl Core {
    /// An empty node with a root memcg. `now` is the birth time of its first generations.
    ///
    /// # Panics
    /// If there are more than two lower zones, or they leave no frame for the highest one.
    pub fn new(options: Options, now: Time) -> Core {
        sync::share();
        Core::make(options, now, false)
    }

    /// As [`Self::new`], for a host that never calls it from two threads at once: as long as all
    /// nodes of the process are such, it takes fewer cycles. If two threads call it all the same,
    /// its counts and lists become wrong. It has up to 9 MiB more of metadata, unless that is
    /// charged.
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn of_one_thread(options: Options, now: Time) -> Core {
        sync::alone();
        Core::make(options, now, true)
    }

    fn make(options: Options, now: Time, one_thread: bool) -> Core {
        // One leaf per frame if no two cached pages are neighbours; for shadows, one per eight
        // frames ([book: refaults#shadow-limit]) and as many again before they are trimmed; some
        // more so that a tiny node works. Entries of swapped pages are never trimmed: in the worst
        // case each needs a leaf of its own.
        let leaves = (options.frames + options.frames / 4 + 1024).saturating_add(options.swap.pages);
        let (first_leaves, first_directories) = first_of_index(&options, one_thread);
        let lower_zones: Vec<u32> = options.lower_zones.iter().map(|zone| zone.pages).collect();
        let lower_pages: u64 = lower_zones.iter().map(|&pages| u64::from(pages)).sum();
        assert!(lower_zones.len() < folio::ZONES_MAX, "a node has at most two lower zones");
        assert!(
            lower_zones.is_empty() || lower_pages < options.frames.into(),
            "lower zones leave no frame for the highest one"
        );
        let core = Core {
            folios: FolioTable::with_mechanisms(options.frames, options.mechanisms)
                .with_few_refaults(options.grain.few_refaults)
                .with_lower_zones(&lower_zones),
            leaves: LeafPool::new(
                first_leaves,
                leaves,
                first_directories,
                options.cpus,
                options.pcp_batch_frames as u32,
            )
            .charged(options.charge_metadata),
            mappings: MappingTable::new(options.cpus),
            node: Node::new(&options),
            arrivals: Arrivals::new(options.cpus, options.batch_folios),
            memcgs: Memcgs::new(
                memcg::Stocks::new(options.cpus, options.charge_batch_pages),
                options.mechanisms.charge_near_limit(),
                now,
            ),
            swap: SwapArea::new(options.swap, options.frames),
            tunables: Tunables::new(),
            reclaimed: AtomicU64::new(0),
            remembering: workingset::Remembering::default(),
            compact_shadows: lru::CompactShadows::new(options.frames),
            left_behind: Mutex::default(),
            flushing: writeback::Flushing::default(),
            oom: reclaim::Oom::default(),
            statistics_due_ns: AtomicU64::new(options.statistics_refresh.after(Time::ZERO).as_nanos()),
            options,
        };
        lru::order::join(&core, MemcgId::ROOT);
        core
    }

    /// The options that it was created with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    #[inline]
    pub(crate) fn mechanisms(&self) -> mechanism::Mechanisms {
        self.folios.mechanisms()
    }

    /// All folios, by number.
    pub fn folios(&self) -> &FolioTable {
        &self.folios
    }

    /// Free frames, with those near CPUs.
    pub fn free_pages(&self) -> u32 {
        self.node.unused_pages()
    }

    /// Frames given up to pay for index memory.
    pub fn retired_pages(&self) -> u32 {
        self.node.retired_pages()
    }

    /// Reclaimable pages of one kind, in all memcgs. Excludes pages in per-CPU batches, which are
    /// on no list yet.
    pub fn reclaimable_pages(&self, kind: Kind) -> u64 {
        self.folios.listed().pages(kind)
    }

    // Memcgs.

    /// Creates a memcg under the root; see [`Self::add_child`].
    ///
    /// # Errors
    /// The name is taken or invalid, or there are too many memcgs.
    pub fn add_memcg(&self, name: &str, max_pages: u64, now: Time) -> Result<&Memcg, MemcgError> {
        self.add_child(MemcgId::ROOT, name, max_pages, now)
    }

    /// Creates a memcg under `parent`. The caller holds a handle on it; [`Self::drop_handle`] gives
    /// the handle back.
    ///
    /// # Errors
    /// The name is taken or invalid, the parent was removed, or there are too many memcgs or
    /// levels.
    pub fn add_child(
        &self,
        parent: MemcgId,
        name: &str,
        max_pages: u64,
        now: Time,
    ) -> Result<&Memcg, MemcgError> {
        // Before a thread can find the child and charge to it.
        lru::order::begin(self, self.memcg(parent));
        let memcg = self.memcgs.add(parent, name, max_pages, now)?;
        lru::order::join(self, memcg.id());
        Ok(memcg)
    }

    /// The memcg with this number.
    #[inline]
    pub fn memcg(&self, id: MemcgId) -> &Memcg {
        self.memcgs.get(id)
    }

    /// All memcgs: their tree, their charges and their protection.
    pub fn memcgs(&self) -> &Memcgs {
        &self.memcgs
    }

    /// A task of `memcg` with an address space of its own.
    pub fn new_task(&self, memcg: MemcgId, cpu: usize) -> Task {
        let task = Task { memcg, space: Arc::default(), cpu };
        self.begin_task(&task);
        task
    }

    /// Registers a task: page-table walks visit its address space from now on.
    pub fn begin_task(&self, task: &Task) {
        self.with_spaces(task.memcg, |spaces| spaces.add(task.space.clone()));
    }

    /// Moves a task to another memcg, which pays for the pages that the task brings in from now on.
    /// Earlier pages stay charged where they are, as in cgroup v2.
    pub fn move_task(&self, task: &mut Task, memcg: MemcgId) {
        self.with_spaces(task.memcg, |spaces| spaces.remove(&task.space));
        self.with_spaces(memcg, |spaces| spaces.add(task.space.clone()));
        task.memcg = memcg;
    }

    /// Unregisters a task: walks no longer visit its address space.
    pub fn end_task(&self, task: &Task) {
        self.with_spaces(task.memcg, |spaces| spaces.remove(&task.space));
    }

    // Mappings.

    /// An empty mapping: of a file, or, for [`Kind::Anon`], of a region of anonymous memory.
    pub fn open_mapping(&self, kind: Kind) -> Arc<Mapping> {
        self.mappings.open(kind)
    }

    /// Adds bytes that the host keeps to the metadata, which the next page pays for; see
    /// [`Self::owes_frames`]. [`Self::charge_host`] charges them to a memcg.
    pub fn count_host_bytes(&self, bytes: u64) {
        self.leaves.count_bytes(bytes);
    }

    /// Subtracts bytes that the host no longer keeps.
    pub fn forget_host_bytes(&self, bytes: u64) {
        self.leaves.forget_bytes(bytes);
    }

    /// The open mapping with this number.
    pub fn mapping(&self, id: MappingId) -> Option<Arc<Mapping>> {
        self.mappings.get(id)
    }

    /// Whether metadata has grown since the last charge, so that the next one retires a frame.
    pub fn owes_frames(&self) -> bool {
        self.options.charge_metadata
            && u64::from(self.retired_pages()) < self.leaves.bytes().div_ceil(PAGE_BYTES)
    }

    /// Forbids further insertions into a mapping. [`Self::close_mapping`] must still be called.
    pub fn seal_mapping(&self, mapping: &Mapping) {
        mapping.lock_all(&self.leaves).seal();
    }

    /// Removes a mapping with all its cached pages and shadows. `Some`: this folio is in use or
    /// being written; wait for it, then call again. Dirty pages are lost: write them first.
    pub fn close_mapping(&self, host: &impl Host, mapping: &Mapping) -> Option<FolioId> {
        self.seal_mapping(mapping);
        if let Some(busy) = self.truncate(host, mapping, 0, MAPPING_PAGES_MAX) {
            return Some(busy);
        }
        if self.mappings.close(mapping) {
            mapping.lock_all(&self.leaves).close_index();
            self.return_frames(host);
        }
        None
    }

    // Memory.

    /// Bytes of all metadata, that is, everything but page contents.
    pub fn metadata_bytes(&self) -> u64 {
        let per_frame = FolioTable::FOLIO_BYTES + size_of::<u32>() as u64;
        let index_bytes = self.leaves.bytes() + self.compact_shadows.bytes();
        u64::from(self.folios.len()) * per_frame + index_bytes + self.swap.bytes()
    }

    /// Leaves of the index in use; each covers 64 consecutive pages of a file.
    pub fn leaves_in_use(&self) -> u32 {
        self.leaves.in_use()
    }

    // References.

    /// Drops a reference. The last one frees the folio, unless it is lent.
    pub fn put(&self, host: &impl Host, folio: FolioId) {
        let after = self.folios.flags(folio).put();
        if !after.is_held() {
            self.free(folio);
            if after.waiters() {
                host.wake_waiters(folio);
            }
        }
    }

    /// As [`Self::put`], for a reference held so briefly that no thread can have begun to wait.
    pub(crate) fn put_without_host(&self, folio: FolioId) {
        if !self.folios.flags(folio).put().is_held() {
            self.free(folio);
        }
    }

    /// Frees a folio that nobody holds: takes it off its list, uncharges it and returns its frame.
    pub(crate) fn free(&self, folio: FolioId) {
        if self.folios.flags(folio).clear_lru() {
            self.lock_owner_of(folio).1.remove(folio);
        }
        // The folio keeps its label.
        self.release_frames(self.memcg(self.folios.memcg_of(folio)), None, &[folio]);
    }

    /// Uncharges folios that are on no list, and returns their frames. `cpu`: the CPU that frees
    /// them, if known.
    pub(crate) fn release_frames(&self, memcg: &Memcg, cpu: Option<usize>, folios: &[FolioId]) {
        debug_assert!(folios.iter().all(|&folio| !self.folios.flags(folio).load().is_held()));
        self.node.release(cpu, folios);
        self.uncharge_pages(memcg.id(), folios.len() as u64);
    }
}
