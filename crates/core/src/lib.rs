//! Linux's page reclaim as a library of decisions: which pages stay when memory runs short.
//!
//! This crate decides; it performs nothing. It has no I/O, no clock, no threads and no page bytes.
//! A host runs it: the page cache (`mglru-cache`) under threads over real files, the simulator
//! (`mglru-sim`) under a virtual clock. The same compiled code runs in both, and one thread alone
//! gets the same answers bit for bit.
//!
//! Follow a page through the modules: [`access`] (it is touched), [`charge`] (it is paid for),
//! [`reclaim`] (memory is short), [`lru`] (which pages are cold), [`pageout`] (what becomes of
//! them), [`writeback`] (dirty ones are written), [`swap`] (anonymous ones go there),
//! [`workingset`] (what is remembered), and back.

#![forbid(unsafe_code)]

// Unit tests use the harness of the integration tests, which knows this crate by its name.
#[cfg(all(test, not(loom)))]
extern crate self as mglru_core;

pub mod access;
pub mod charge;
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
mod random;
pub mod readahead;
pub mod reclaim;
mod segments;
pub mod swap;
mod sync;
#[cfg(all(test, not(loom)))]
mod testing;
mod tunables;
mod validate;
pub mod workingset;
pub mod writeback;

pub use access::{Arrival, Hit, LockAttempt, Lookup, Task};
pub use charge::{ChargeStep, Charging, NewFolio};
pub use control::{ControlError, ControlStep, ControlWrite, Errno};
pub use event::Event;
pub use folio::{FolioId, Kind};
pub use free_frames::PCP_BATCH_FRAMES;
pub use host::{FlushReason, Host, Silent, Throttle, Time};
pub use mapping::{InsertError, Mapping, MappingId};
pub use mechanism::{Lru, LruLock, MechanismError, Mechanisms, Preset, Switch};
pub use memcg::{Counter, Effective, Limits, Memcg, MemcgError, MemcgId, Memcgs, Stall, UNLIMITED};
pub use options::{Options, PAGE_BYTES};
pub use reclaim::{OomDecision, OomPolicy, OutOfMemory};
pub use swap::{SwapOptions, SwapOut, SwapOutcome, SwapSlot, SwapStore};
pub use sync::LockCounts;

use folio::FolioTable;
use lru::Arrivals;
use mapping::{LeafPool, MappingTable};
use node::Node;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use swap::SwapArea;
use sync::{AtomicU64, Mutex};
use tunables::Tunables;

/// One node and everything that is cached on it. Shared by all threads.
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
    /// Pages written since the beginning.
    pub(crate) written: AtomicU64,
    /// Who has leaves with shadows only, by the logarithm of how many there were at most.
    pub(crate) remembering: Mutex<BTreeSet<(u32, MemcgId)>>,
    /// Files and memcgs that the flusher looks at.
    pub(crate) flushing: writeback::Flushing,
    /// Who was killed so far; held by who decides whether somebody is to be.
    pub(crate) oom_lock: Mutex<u64>,
    /// What each memcg was killed for last, of those numbers that ever were.
    pub(crate) oom_reports: Mutex<BTreeMap<MemcgId, Box<OutOfMemory>>>,
    /// When list sizes are refreshed next, of which the classic LRU decides.
    pub(crate) statistics_due_ns: AtomicU64,
}

/// A leaf is there from the beginning for every so many frames: 64 would do for pages that are all
/// neighbours; the others are for memories. They take 11 bytes per frame.
const FRAMES_PER_FIRST_LEAF: u32 = 48;

impl Core {
    /// An empty node with a root memcg. `now` is the birth of its first generations.
    pub fn new(options: Options, now: Time) -> Core {
        // One leaf per frame if no two cached pages are neighbours, one per eight for memories
        // ([book: refaults#shadow-limit], and as many again before they are trimmed), and some so
        // that a tiny node can work. Entries of swapped pages are never trimmed: in the worst case
        // each is alone in its leaf.
        let leaves = (options.frames + options.frames / 4 + 1024).saturating_add(options.swap.pages);
        let core = Core {
            folios: FolioTable::with_mechanisms(options.frames, options.mechanisms),
            leaves: LeafPool::new(
                if cfg!(loom) { 0 } else { options.frames / FRAMES_PER_FIRST_LEAF },
                leaves,
                options.cpus,
                options.pcp_batch_frames as u32,
            ),
            mappings: MappingTable::default(),
            node: Node::new(&options),
            arrivals: Arrivals::new(options.cpus, options.batch_folios),
            memcgs: Memcgs::new(
                memcg::Stocks::new(options.cpus, options.charge_batch_pages),
                options.mechanisms.charge_near_limit(),
                now,
            ),
            swap: SwapArea::new(options.swap, options.frames),
            tunables: Tunables::new(),
            written: AtomicU64::new(0),
            remembering: Mutex::default(),
            flushing: writeback::Flushing::default(),
            oom_lock: Mutex::default(),
            oom_reports: Mutex::default(),
            statistics_due_ns: AtomicU64::new(options.statistics_refresh.after(Time::ZERO).as_nanos()),
            options,
        };
        core.join_order(MemcgId::ROOT);
        core
    }

    /// How it was set up.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Which behaviours are on.
    #[inline]
    pub(crate) fn mechanisms(&self) -> mechanism::Mechanisms {
        self.folios.mechanisms()
    }

    /// All folios, by number.
    pub fn folios(&self) -> &FolioTable {
        &self.folios
    }

    /// Frames that nobody uses.
    pub fn free_pages(&self) -> u32 {
        self.node.unused_pages()
    }

    /// Frames that pay for index memory.
    pub fn retired_pages(&self) -> u32 {
        self.node.retired_pages()
    }

    /// Pages of a kind, of everybody, that could be reclaimed: those on their way to a list are not
    /// among them yet.
    pub fn reclaimable_pages(&self, kind: Kind) -> u64 {
        self.folios.listed().pages(kind)
    }

    // Memcgs.

    /// Makes a memcg under the root; see [`Self::add_child`].
    ///
    /// # Errors
    /// The name is taken or cannot be one, or there are too many.
    pub fn add_memcg(&self, name: &str, max_pages: u64, now: Time) -> Result<&Memcg, MemcgError> {
        self.add_child(MemcgId::ROOT, name, max_pages, now)
    }

    /// Makes a memcg under another. The caller has a handle on it, which [`Self::drop_handle`]
    /// gives back.
    ///
    /// # Errors
    /// The name is taken or cannot be one, the parent was removed, or there are too many, beside or
    /// above each other.
    pub fn add_child(
        &self,
        parent: MemcgId,
        name: &str,
        max_pages: u64,
        now: Time,
    ) -> Result<&Memcg, MemcgError> {
        // Before somebody finds the child and charges to it.
        self.begin_order(self.memcg(parent));
        let memcg = self.memcgs.add(parent, name, max_pages, now)?;
        self.join_order(memcg.id());
        Ok(memcg)
    }

    /// The memcg of that number.
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

    /// A task begins: its address space is looked at from now on.
    pub fn begin_task(&self, task: &Task) {
        self.with_spaces(task.memcg, |spaces| spaces.add(task.space.clone()));
    }

    /// Moves a task to another memcg, which pays for what it brings in from now on. Pages that it
    /// brought before stay where they are charged, as in the kernel's unified hierarchy.
    pub fn move_task(&self, task: &mut Task, memcg: MemcgId) {
        self.with_spaces(task.memcg, |spaces| spaces.remove(&task.space));
        self.with_spaces(memcg, |spaces| spaces.add(task.space.clone()));
        task.memcg = memcg;
    }

    /// A task ends: nobody looks at its address space any more.
    pub fn end_task(&self, task: &Task) {
        self.with_spaces(task.memcg, |spaces| spaces.remove(&task.space));
    }

    #[inline]
    pub(crate) fn memcg_of(&self, folio: FolioId) -> MemcgId {
        MemcgId(self.folios.memcg(folio))
    }

    #[inline]
    pub(crate) fn mapping_of(&self, folio: FolioId) -> MappingId {
        self.page_of(folio).0
    }

    /// The page that a folio is.
    #[inline]
    pub(crate) fn page_of(&self, folio: FolioId) -> (MappingId, u32) {
        let (mapping, index) = self.folios.page(folio);
        (MappingId(mapping), index)
    }

    // Mappings.

    /// An empty mapping for a file, or, of [`Kind::Anon`], an empty region of anonymous memory.
    pub fn open_mapping(&self, kind: Kind) -> Arc<Mapping> {
        self.open_mapping_with(kind, 0)
    }

    /// The same, where the host keeps `host_bytes` bytes about each file, which are metadata, too:
    /// they are paid for with the next page, or before, if [`Self::owes_frames`].
    pub fn open_mapping_with(&self, kind: Kind, host_bytes: u64) -> Arc<Mapping> {
        self.leaves.count_bytes(host_bytes);
        self.mappings.open(kind, host_bytes)
    }

    /// The host keeps so many bytes more, which are metadata, too: they are paid for with the next
    /// page, or before, if [`Self::owes_frames`].
    pub fn count_host_bytes(&self, bytes: u64) {
        self.leaves.count_bytes(bytes);
    }

    /// The host keeps so many bytes less.
    pub fn forget_host_bytes(&self, bytes: u64) {
        self.leaves.forget_bytes(bytes);
    }

    /// The open mapping of that number.
    pub fn mapping(&self, id: MappingId) -> Option<Arc<Mapping>> {
        self.mappings.get(id)
    }

    /// Whether metadata grew since the last page was paid for, so that the next one will retire a
    /// frame.
    pub fn owes_frames(&self) -> bool {
        self.options.charge_metadata
            && u64::from(self.retired_pages()) < self.leaves.bytes().div_ceil(PAGE_BYTES)
    }

    /// Nothing is inserted into a mapping any more; [`Self::close_mapping`] is still to be called.
    pub fn seal_mapping(&self, mapping: &Mapping) {
        mapping.lock(&self.leaves).tree.closed = true;
    }

    /// Removes everything that is cached or remembered of a mapping, and the mapping. `Some`: this
    /// folio is in use or being written; wait for it, then call again. Dirty pages are lost: write
    /// them first.
    pub fn close_mapping(&self, host: &impl Host, mapping: &Mapping) -> Option<FolioId> {
        self.seal_mapping(mapping);
        if let Some(busy) = self.truncate(host, mapping, 0, 1 << 32) {
            return Some(busy);
        }
        if self.mappings.close(mapping.id()) {
            self.leaves.forget_bytes(mapping.index_bytes());
        }
        None
    }

    // Memory.

    /// Bytes of everything that is kept besides page contents.
    pub fn metadata_bytes(&self) -> u64 {
        let per_frame = FolioTable::FOLIO_BYTES + size_of::<u32>() as u64;
        u64::from(self.folios.len()) * per_frame + self.leaves.bytes() + self.swap.bytes()
    }

    /// Leaves of the index in use, each for 64 consecutive pages of a file.
    pub fn leaves_in_use(&self) -> u32 {
        self.leaves.in_use()
    }

    // References.

    /// Drops a reference; the last one frees the folio.
    pub fn put(&self, host: &impl Host, folio: FolioId) {
        let after = self.folios.flags(folio).put();
        if after.references() == 0 {
            self.free(folio);
            if after.waiters() {
                host.wake_waiters(folio);
            }
        }
    }

    /// As [`Self::put`], for a reference that was held so shortly that nobody can have begun to
    /// wait.
    pub(crate) fn put_without_host(&self, folio: FolioId) {
        if self.folios.flags(folio).put().references() == 0 {
            self.free(folio);
        }
    }

    /// Frees a folio without references: off its list, uncharged, its frame back to the node.
    fn free(&self, folio: FolioId) {
        if self.folios.flags(folio).clear_lru() {
            self.lock_owner_of(folio).1.remove(folio);
        }
        // Off the lists, it keeps its label.
        self.release_frames(self.memcg(self.memcg_of(folio)), None, &[folio]);
    }

    /// Uncharges folios that are on no list, and returns their frames. `cpu`: who freed them, if
    /// that is known.
    pub(crate) fn release_frames(&self, memcg: &Memcg, cpu: Option<usize>, folios: &[FolioId]) {
        debug_assert!(folios.iter().all(|&folio| self.folios.flags(folio).load().references() == 0));
        self.node.release(cpu, folios);
        self.uncharge_pages(memcg.id(), folios.len() as u64);
    }
}
