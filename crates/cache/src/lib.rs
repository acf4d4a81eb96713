//! A page cache over real files with a hard memory budget. By default it reclaims pages by a policy
//! of its own, `ranked`; the multi-generational LRU of three Linux versions and the classic LRU are
//! there, too ([`Preset`]).
//!
//! It is meant for storage engines, databases and file services that keep their own buffer pool:
//!
//! - scans do not flush the working set;
//! - each tenant has its own limits, and writers are throttled when too many pages are dirty;
//! - counters and statistics have the kernel's names.
//!
//! Start with [`PageCache`]. The module `guide` has the guide: descriptors and maps, futures, other
//! sources of bytes, tenants, durability, counters and errors.
//!
//! ```
//! use mglru_cache::{OpenMode, PageCache};
//!
//! # fn main() -> Result<(), mglru_cache::Error> {
//! # let directory = tempfile::tempdir().expect("a temporary folder");
//! # let path = directory.path().join("table.db");
//! let cache = PageCache::builder(64 << 20).build()?; // bytes, for everything
//! let file = cache.open(&path, OpenMode::Create)?;
//! file.write_at(&[7; 8 * 4096], 0)?; // in memory; in the file after a sync
//! let mut page = [0; 4096];
//! file.read_at(&mut page, 0)?; // counted: a page read often is protected from scans
//! let map = file.map()?;
//! let guard = map.page(7)?; // lent, without a copy; kept in memory while the guard lives
//! assert_eq!(guard.len(), 4096);
//! # Ok(()) }
//! ```
//!
//! # Unsafe code
//!
//! Unsafe code is confined to:
//!
//! - `frames` and `racing`: memory that readers copy while writers write;
//! - `backend/uring` and `backend/threads`: system calls on that memory;
//! - `backend/signals`: the signal mask of a thread;
//! - one place in `guard`: lent pages;
//! - `prefetch`: one instruction.

#![warn(missing_debug_implementations)]

mod anon;
mod available;
pub mod backend;
mod cache;
#[doc(hidden)]
pub mod cgroup;
mod compress;
mod control;
mod discard;
mod error;
mod events;
mod export;
mod fault;
mod file;
mod flight;
mod frames;
#[cfg(feature = "async")]
mod future;
mod guard;
#[cfg(all(doc, not(doctest)))]
pub mod guide;
mod hit;
mod host;
mod inode;
mod keepers;
mod latch;
mod many;
mod mapped;
mod oom;
mod open;
mod outside;
mod piece;
mod prefetch;
mod racing;
mod range;
mod regions;
mod reserved;
mod resize;
mod shared;
mod slot_range;
mod source;
mod space;
mod stat;
mod stream;
mod swap;
mod swapping;
mod tenant;
mod tenants;
#[cfg(test)]
mod tests;
mod tier;
mod trace;
mod view;
mod waking;
mod workers;

pub use anon::AnonRegion;
pub use available::{available_memory_bytes, file_system_room_bytes};
pub use backend::{BackendKind, OpenMode};
pub use cache::{Builder, CacheStats, FRAME_METADATA_BYTES, PageCache};
pub use cgroup::memory_limit_bytes;
pub use control::Control;
pub use error::Error;
pub use events::Events;
pub use file::{Advice, CachedFile};
#[cfg(feature = "async")]
pub use future::{ReadAt, SyncFile, WriteAt};
pub use guard::{OwnedPageGuard, PageGuard};
pub use host::Observer;
pub use many::{ReadRequest, ReadStream};
pub use mapped::{Map, MapAdvice};
pub use prefetch::prefetch_for_write;
pub use range::LockedRange;
pub use reserved::Reserved;
pub use source::{BlockSource, FileSource, RangeRequest, SourceState};
pub use stat::{Counters, Pressure, TenantStats};
pub use stream::FileCursor;
pub use swap::Swap;
pub use tenant::Tenant;
pub use tier::{DiskTier, DiskTierStats};
pub use view::{PageCursor, PageView};

pub use mglru_core::lru::{GenerationRow, Swappiness};
pub use mglru_core::reclaim::GenerationPages;
pub use mglru_core::workingset::Shadow;
pub use mglru_core::{
    ControlError, Counter, Errno, Event, FolioId, Limits, Lru, LruLock, MappingId, MechanismError,
    Mechanisms, MemcgError, MemcgId, OomDecision, OomPolicy, OutOfMemory, PAGE_BYTES, PagesInRange, Preset,
    Switch,
};
