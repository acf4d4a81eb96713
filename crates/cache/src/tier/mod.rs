//! The disk tier: a file of slots on a local disk, below the memory of a cache. It keeps what
//! sources ([`crate::BlockSource`]) returned, also over a restart, so that a bucket is read once.
//!
//! ```text
//! miss ──► the tier has it: read into the frames, checked page by page ──► published
//!   │                              └─ a checksum disagrees ─┐
//!   └────► it has not ──► the source answers ◄──────────────┘
//!                              ├──► published: readers go on
//!                              └──► copied into spare frames, if some are free ──► a slot
//! ```
//!
//! A thread of its own writes slots, so no reader waits for a write. If the disk is slower than the
//! source, answers that find no spare frame are dropped; the next read may store them.
//!
//! An answer is stored only if the source named its version and that is the file's. Sources that
//! are writable or have no version are left out.
//!
//! `format` has the file's bytes and what a crash leaves; `index` decides which pieces are evicted.
//!
//! # Locking
//!
//! The index is locked to look something up or to change it, never during a transfer. Only the
//! writing thread takes and frees slots. A reader that was overtaken by it finds another page's
//! bytes in the slot, which its checksum does not fit.

mod format;
mod index;
#[cfg(test)]
mod tests;

use crate::backend::{Backend, BackendFile, OpenMode, Queue, Transfer, is_worker, join, spawn};
use crate::error::Error;
use crate::frames::{FRAME_BYTES, Frames};
use crate::trace::slow_path;
pub(crate) use format::SourceKey;
use format::{Entry, Found, Layout, header, identity, page_sum, piece_key, read_header};
use index::Index;
use mglru_core::Mechanisms;
use rustix::fs::{FlockOperation, SeekFrom, flock};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Bytes of a slot, unless the settings say otherwise.
const SLOT_BYTES: u64 = 64 << 10;
/// Spare frames: a 16th of the cache's memory, within these bounds.
const SPARE_FRAMES_MIN: u64 = 64;
const SPARE_FRAMES_MAX: u64 = 4096;
/// Pages of the table that are read at once at the start.
const TABLE_PAGES_AT_ONCE: u64 = 32;

/// The disk tier of a cache: a file on a local disk that keeps what sources returned. See
/// [`crate::Builder::disk_tier`].
#[derive(Clone, Debug)]
pub struct DiskTier {
    path: PathBuf,
    bytes: u64,
    slot_bytes: u64,
}

impl DiskTier {
    /// A tier in the file at `path`, of `bytes` at most. The file is created if it is missing, and
    /// its space is reserved. The content of an earlier run's file is used, if size and slots are
    /// the same as then.
    ///
    /// Its index takes memory from the cache's budget: with the default slots, 0.5 % of `bytes`,
    /// and a 16th of the budget (at most 16 MiB) for writes under way.
    pub fn new(path: impl Into<PathBuf>, bytes: u64) -> DiskTier {
        DiskTier { path: path.into(), bytes, slot_bytes: SLOT_BYTES }
    }

    /// Sets the size of a slot: a power of two from 4,096 to 262,144 bytes. Default: 65,536. A slot
    /// holds neighbouring pages of one source. It should not be larger than what sources are asked
    /// for at once ([`crate::BlockSource::block_bytes`]), or slots stay partly empty. Smaller ones
    /// take more memory for the index: 5 % of the file's size with slots of 4,096 bytes.
    #[must_use]
    pub fn slot_bytes(self, bytes: u64) -> DiskTier {
        DiskTier { slot_bytes: bytes, ..self }
    }

    pub(crate) fn plan(&self, budget_bytes: u64) -> Result<Plan, Error> {
        let layout = Layout::new(self.bytes, self.slot_bytes)
            .map_err(|source| Error::io("make room for the disk tier", &self.path, source))?;
        let page = FRAME_BYTES as u64;
        let spare = (budget_bytes / 16 / page).clamp(SPARE_FRAMES_MIN, SPARE_FRAMES_MAX) as u32;
        Ok(Plan { path: self.path.clone(), layout, spare_frames: spare })
    }
}

/// A tier whose sizes are known.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    path: PathBuf,
    layout: Layout,
    /// Frames for writes under way; the last one is for pages of the table.
    pub(crate) spare_frames: u32,
}

impl Plan {
    /// Share of the cache's budget, in bytes.
    pub(crate) fn budget_bytes(&self) -> u64 {
        // The spare frames have counts of guards, as all frames have.
        index::memory_bytes(&self.layout) + u64::from(self.spare_frames) * (FRAME_BYTES as u64 + 4)
    }
}

/// Sizes and counters of a disk tier.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DiskTierStats {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes of a slot.
    pub slot_bytes: u64,
    /// Slots of the file.
    pub slots: u64,
    /// Slots that hold something.
    pub used_slots: u64,
    /// Memory of the index and of writes under way, in bytes; a part of the budget.
    pub memory_bytes: u64,
    /// Slots that an earlier run had filled, when the cache was built.
    pub found_slots: u64,
    /// The reason why nothing of an existing file was used, as a sentence.
    pub why_empty: Option<String>,
    /// Pages that misses found in the tier.
    pub hits: u64,
    /// Pages that misses did not find, of sources that the tier keeps.
    pub misses: u64,
    /// Pages written to slots.
    pub stored: u64,
    /// Pages that were not stored because too many writes were under way, or no slot could be
    /// freed.
    pub skipped: u64,
    /// Pages whose checksum disagreed. They were read from their source again.
    pub damaged: u64,
    /// Reads and writes of the file that failed.
    pub failures: u64,
}

#[derive(Default)]
struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    stored: AtomicU64,
    skipped: AtomicU64,
    damaged: AtomicU64,
    failures: AtomicU64,
}

/// Neighbouring pages of a source that wait to be written.
struct Write {
    source: SourceKey,
    first: u64,
    frames: Vec<u32>,
}

/// An open tier.
pub(crate) struct Tier {
    files: Arc<dyn Backend>,
    frames: Arc<Frames>,
    file: Arc<dyn BackendFile>,
    /// Keeps the file locked against other caches.
    lock: Option<File>,
    layout: Layout,
    seed: u64,
    memory_bytes: u64,
    index: Mutex<Index>,
    spare: Mutex<Vec<u32>>,
    table_frame: u32,
    writes: Queue<Write>,
    writer: Mutex<Option<JoinHandle<()>>>,
    written: AtomicU64,
    found_slots: u32,
    why_empty: Option<String>,
    counts: Counts,
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tier").field("file", &self.file).field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl Tier {
    /// Opens the file, reads its table and starts the thread that writes. `first_spare`: the first
    /// of the plan's spare frames.
    pub(crate) fn start(
        plan: &Plan,
        files: Arc<dyn Backend>,
        frames: Arc<Frames>,
        first_spare: u32,
        mechanisms: Mechanisms,
    ) -> Result<Arc<Tier>, Error> {
        let fail = |doing| move |source| Error::io(doing, &plan.path, source);
        let lock = match files.name() {
            "memory" => None,
            _ => Some(lock(&plan.path).map_err(fail("lock the disk tier"))?),
        };
        let file = files.open(&plan.path, OpenMode::Create).map_err(fail("open the disk tier"))?;
        let layout = plan.layout;
        let spare: Vec<u32> = (first_spare..first_spare + plan.spare_frames - 1).collect();
        let mut tier = Tier {
            files,
            frames,
            file,
            lock,
            layout,
            seed: 0,
            memory_bytes: plan.budget_bytes(),
            index: Mutex::new(Index::new(&layout, mechanisms)),
            spare: Mutex::new(spare),
            table_frame: first_spare + plan.spare_frames - 1,
            writes: Queue::new(usize::MAX),
            writer: Mutex::default(),
            written: AtomicU64::new(0),
            found_slots: 0,
            why_empty: None,
            counts: Counts::default(),
        };
        let found = tier.look_at_header().map_err(fail("read the header of the disk tier"))?;
        match found {
            Found::Tier(seed) => tier.seed = seed,
            Found::Foreign => {
                let what =
                    "the file has other content, which would be lost: choose another path, or remove it";
                return Err(fail("use as a disk tier")(io::Error::new(io::ErrorKind::AlreadyExists, what)));
            }
            Found::Nothing => tier.seed = random(),
            Found::Unusable(ref why) => {
                tier.seed = random();
                tier.why_empty = Some(why.clone());
            }
        }
        tier.reserve().map_err(fail("reserve the space of the disk tier"))?;
        if let Found::Tier(_) = found {
            tier.load();
        } else {
            tier.frames.copy_in(tier.table_frame, 0, &header(&layout, tier.seed));
            tier.files.write(&tier.table_page(0)).map_err(fail("write the header of the disk tier"))?;
            tier.file.sync_data().map_err(fail("write the header of the disk tier"))?;
        }
        let tier = Arc::new(tier);
        let for_thread = tier.clone();
        let writer = spawn("mglru-tier-write", move || for_thread.write_behind());
        *tier.writer.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(writer.map_err(fail("start the writer of the disk tier"))?);
        Ok(tier)
    }

    fn look_at_header(&self) -> io::Result<Found> {
        if self.file.len()? == 0 {
            return Ok(Found::Nothing);
        }
        self.files.read(&self.table_page(0))?;
        let mut page = [0; FRAME_BYTES];
        self.frames.copy_out(self.table_frame, 0, &mut page);
        match read_header(&page, &self.layout) {
            // Images of some disks and file systems begin with a page of zeros.
            Found::Nothing if !self.is_empty()? => Ok(Found::Foreign),
            found => Ok(found),
        }
    }

    /// Whether a file whose first page is zeros has nothing else: its space was set aside, by an
    /// earlier start that ended before it wrote the header or by an administrator.
    fn is_empty(&self) -> io::Result<bool> {
        let frames = self.some_spare();
        let end = self.file.len()?.div_ceil(FRAME_BYTES as u64);
        let mut first = 1;
        while first < end {
            if let Some(file) = &self.lock {
                match rustix::fs::seek(file, SeekFrom::Data(first * FRAME_BYTES as u64)) {
                    Ok(data) => first = data / FRAME_BYTES as u64,
                    Err(rustix::io::Errno::NXIO) => return Ok(true),
                    // A file system that does not tell.
                    Err(_) => {}
                }
            }
            let count = TABLE_PAGES_AT_ONCE.min(end.saturating_sub(first)) as usize;
            let frames = &frames[..count];
            if count > 0 {
                self.files.read(&self.pages(first, frames.to_vec()))?;
            }
            if !frames.iter().all(|&frame| self.frames.is_zero(frame)) {
                return Ok(false);
            }
            first += TABLE_PAGES_AT_ONCE;
        }
        Ok(true)
    }

    /// Gives the file its length, and its space where the file system can reserve it.
    fn reserve(&self) -> io::Result<()> {
        let bytes = self.layout.bytes();
        if self.file.len()? > bytes {
            self.file.set_len(bytes)?;
        }
        match self.file.allocate(0..bytes, false) {
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => self.file.set_len(bytes),
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
                let what = format!("the disk has no room for {bytes} bytes: make room or use a smaller tier");
                Err(io::Error::new(io::ErrorKind::StorageFull, what))
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the table. Entries that cannot be read, or are damaged, count as absent.
    fn load(&mut self) {
        let mut found = Vec::new();
        let end = 1 + self.layout.table_pages();
        let per_page = self.layout.entries_per_page();
        let frames = self.some_spare();
        for first in (1..end).step_by(TABLE_PAGES_AT_ONCE as usize) {
            let count = TABLE_PAGES_AT_ONCE.min(end - first) as usize;
            let transfer = self.pages(first, frames[..count].to_vec());
            if self.files.read(&transfer).is_err() {
                self.counts.failures.fetch_add(1, Relaxed);
                continue;
            }
            let mut page = [0; FRAME_BYTES];
            for (at, &frame) in frames[..count].iter().enumerate() {
                self.frames.copy_out(frame, 0, &mut page);
                let first_slot = (first as u32 - 1 + at as u32) * per_page;
                let entries = page.chunks_exact(self.layout.entry_bytes());
                for (slot, bytes) in (first_slot..self.layout.slots).zip(entries) {
                    found.extend(Entry::decode(bytes, self.seed, slot).map(|entry| (entry, slot)));
                }
            }
        }
        found.sort_by_key(|(entry, _)| entry.written);
        *self.written.get_mut() = found.last().map_or(0, |(last, _)| last.written);
        let pieces = found.into_iter().map(|(entry, slot)| (entry.key, slot, entry.sums));
        self.found_slots = self.index.get_mut().unwrap_or_else(PoisonError::into_inner).restore(pieces);
    }

    /// As many spare frames as are read at once at the start, when nothing else uses them.
    fn some_spare(&self) -> Vec<u32> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare[..TABLE_PAGES_AT_ONCE as usize].to_vec()
    }

    /// The identity of a source in this tier.
    pub(crate) fn key_of(&self, name: &str, version: &str, len: u64) -> SourceKey {
        identity(self.seed, name, version, len)
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages(&self, first: u64, frames: Vec<u32>) -> Transfer {
        Transfer::pages(self.file.clone(), first * FRAME_BYTES as u64, frames)
    }

    fn table_page(&self, page: u64) -> Transfer {
        self.pages(page, vec![self.table_frame])
    }

    /// Runs of pages of a source that are in the same piece: the piece's key, and the run.
    fn pieces(&self, source: SourceKey, pages: Range<u64>) -> impl Iterator<Item = (u128, Range<u64>)> {
        let size = self.layout.slot_pages as u64;
        let mut at = pages.start;
        std::iter::from_fn(move || {
            let start = at;
            at = ((start / size + 1) * size).min(pages.end);
            (start < pages.end).then(|| (piece_key(source, start / size), start..at))
        })
    }

    /// Whether the tier has any of these pages. If not, they are counted as missed.
    pub(crate) fn has_some(&self, source: SourceKey, pages: Range<u64>) -> bool {
        let index = self.index();
        let has = self.pieces(source, pages.clone()).any(|(key, _)| index.slot(key, false).is_some());
        drop(index);
        if !has {
            self.counts.misses.fetch_add(pages.end - pages.start, Relaxed);
        }
        has
    }

    /// Reads what the tier has of the first `pages` pages of a transfer. Returns the ranges of the
    /// transfer's pages that it has not.
    pub(crate) fn read(&self, source: SourceKey, transfer: &Transfer, pages: usize) -> Vec<Range<usize>> {
        let first = transfer.offset / FRAME_BYTES as u64;
        // By page: where it is in the file, and its checksum.
        let mut places: Vec<Option<(u64, u64)>> = Vec::with_capacity(pages);
        {
            let index = self.index();
            for (key, run) in self.pieces(source, first..first + pages as u64) {
                let slot = index.slot(key, true);
                places.extend(run.map(|page| {
                    let (slot, within) = (slot?, (page % self.layout.slot_pages as u64) as usize);
                    let sum = index.sums(slot)[within];
                    (sum != 0).then(|| (self.layout.data_page(slot) + within as u64, sum))
                }));
            }
        }
        let mut at = 0;
        while at < pages {
            let Some((page, _)) = places[at] else {
                at += 1;
                continue;
            };
            let mut end = at + 1;
            while end < pages && places[end].is_some_and(|(next, _)| next == page + (end - at) as u64) {
                end += 1;
            }
            self.read_run(source, first, page, transfer, at..end, &mut places);
            at = end;
        }
        let mut missing: Vec<Range<usize>> = Vec::new();
        for at in (0..pages).filter(|&at| places[at].is_none()) {
            match missing.last_mut() {
                Some(last) if last.end == at => last.end += 1,
                _ => missing.push(at..at + 1),
            }
        }
        let missed = missing.iter().map(|range| range.len() as u64).sum();
        self.counts.misses.fetch_add(missed, Relaxed);
        self.counts.hits.fetch_add(pages as u64 - missed, Relaxed);
        missing
    }

    /// Reads pages that are neighbours in the file, from `page` on, and checks them. Those that are
    /// not as they were written lose their place.
    fn read_run(
        &self,
        source: SourceKey,
        first: u64,
        page: u64,
        transfer: &Transfer,
        run: Range<usize>,
        places: &mut [Option<(u64, u64)>],
    ) {
        slow_path!("tier_read", page = page, pages = run.len());
        if self.files.read(&self.pages(page, transfer.frames[run.clone()].to_vec())).is_err() {
            self.counts.failures.fetch_add(1, Relaxed);
            places[run].fill(None);
            return;
        }
        let mut bytes = [0; FRAME_BYTES];
        for at in run {
            self.frames.copy_out(transfer.frames[at], 0, &mut bytes);
            let number = first + at as u64;
            let (_, sum) = places[at].expect("it is a part of the run");
            if page_sum(source, number, &bytes) != sum {
                places[at] = None;
                self.forget(source, number, sum);
            }
        }
    }

    /// Forgets a damaged page, unless it was evicted before it was read.
    fn forget(&self, source: SourceKey, page: u64, sum: u64) {
        let size = self.layout.slot_pages as u64;
        let mut index = self.index();
        if let Some(slot) = index.slot(piece_key(source, page / size), false) {
            let known = &mut index.sums_mut(slot)[(page % size) as usize];
            if *known == sum {
                *known = 0;
                self.counts.damaged.fetch_add(1, Relaxed);
            }
        }
    }

    /// Stores bytes that a source returned, later, if spare frames are free.
    pub(crate) fn offer(&self, source: SourceKey, offset: u64, bytes: &[u8]) {
        let pages = bytes.len().div_ceil(FRAME_BYTES);
        let frames = {
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            let left = spare.len().saturating_sub(pages);
            spare.split_off(left)
        };
        self.counts.skipped.fetch_add((pages - frames.len()) as u64, Relaxed);
        if frames.is_empty() {
            return;
        }
        for (&frame, page) in frames.iter().zip(bytes.chunks(FRAME_BYTES)) {
            self.frames.copy_in(frame, 0, page);
            self.frames.zero(frame, page.len()..FRAME_BYTES);
        }
        self.writes.push_with(|| Write { source, first: offset / FRAME_BYTES as u64, frames });
    }

    /// Writes what was offered, until the tier is closed.
    fn write_behind(&self) {
        while let Some(write) = self.writes.pop() {
            let mut changed = BTreeMap::new();
            let pages = write.first..write.first + write.frames.len() as u64;
            for (key, run) in self.pieces(write.source, pages) {
                if let Some(slot) = self.store(&write, key, run) {
                    changed.insert(slot, key);
                }
            }
            self.note(&changed);
            self.spare.lock().unwrap_or_else(PoisonError::into_inner).extend(write.frames);
            self.writes.finish(|| {});
        }
    }

    /// Stores pages of one piece. Returns its slot if that has changed.
    fn store(&self, write: &Write, key: u128, pages: Range<u64>) -> Option<u32> {
        slow_path!("tier_store", pages = pages.end - pages.start);
        let size = self.layout.slot_pages as u64;
        let (slot, new, lacking) = {
            let mut index = self.index();
            let (slot, new) = match index.slot(key, false) {
                Some(slot) => (slot, None),
                None => match index.begin(key) {
                    Some(piece) => (piece.slot, Some(piece)),
                    None => {
                        self.counts.skipped.fetch_add(pages.end - pages.start, Relaxed);
                        return None;
                    }
                },
            };
            let sums = index.sums(slot);
            let lacking: Vec<u64> = pages.filter(|page| sums[(page % size) as usize] == 0).collect();
            (slot, new, lacking)
        };
        let mut sums = Vec::with_capacity(lacking.len());
        let mut bytes = [0; FRAME_BYTES];
        for run in lacking.chunk_by(|before, after| before + 1 == *after) {
            let at = (run[0] - write.first) as usize;
            let frames = &write.frames[at..at + run.len()];
            if self
                .files
                .write(&self.pages(self.layout.data_page(slot) + run[0] % size, frames.to_vec()))
                .is_err()
            {
                self.counts.failures.fetch_add(1, Relaxed);
                continue;
            }
            for (&page, &frame) in run.iter().zip(frames) {
                self.frames.copy_out(frame, 0, &mut bytes);
                sums.push((page, page_sum(write.source, page, &bytes)));
            }
        }
        self.counts.stored.fetch_add(sums.len() as u64, Relaxed);
        let mut index = self.index();
        for &(page, sum) in &sums {
            index.sums_mut(slot)[(page % size) as usize] = sum;
        }
        match new {
            Some(piece) if sums.is_empty() => index.abandon(piece),
            Some(piece) => index.publish(piece),
            None => {}
        }
        (!sums.is_empty()).then_some(slot)
    }

    /// Writes the entries of changed slots, by slot their keys. An entry that cannot be written is
    /// one that a restart does not find.
    fn note(&self, changed: &BTreeMap<u32, u128>) {
        let mut slots = changed.iter().peekable();
        while let Some(&(&slot, _)) = slots.peek() {
            let (page, _) = self.layout.entry_at(slot);
            let has_page = self.files.read(&self.table_page(page)).is_ok();
            while let Some((&slot, &key)) = slots.next_if(|(slot, _)| self.layout.entry_at(**slot).0 == page)
            {
                let written = self.written.fetch_add(1, Relaxed) + 1;
                let entry = Entry { key, written, sums: self.index().sums(slot).to_vec() };
                let at = self.layout.entry_at(slot).1;
                self.frames.copy_in(self.table_frame, at, &entry.encode(self.seed, slot));
            }
            if !has_page || self.files.write(&self.table_page(page)).is_err() {
                self.counts.failures.fetch_add(1, Relaxed);
            }
        }
    }

    pub(crate) fn stats(&self) -> DiskTierStats {
        let Counts { hits, misses, stored, skipped, damaged, failures } = &self.counts;
        DiskTierStats {
            file_bytes: self.layout.bytes(),
            slot_bytes: (self.layout.slot_pages * FRAME_BYTES) as u64,
            slots: self.layout.slots.into(),
            used_slots: self.index().used_slots().into(),
            memory_bytes: self.memory_bytes,
            found_slots: self.found_slots.into(),
            why_empty: self.why_empty.clone(),
            hits: hits.load(Relaxed),
            misses: misses.load(Relaxed),
            stored: stored.load(Relaxed),
            skipped: skipped.load(Relaxed),
            damaged: damaged.load(Relaxed),
            failures: failures.load(Relaxed),
        }
    }

    /// Waits until everything offered is written.
    pub(crate) fn drain(&self) {
        self.writes.drain();
    }

    /// Ends the thread, once it has written what was offered, and unlocks the file.
    pub(crate) fn close(&self) {
        if !is_worker() {
            self.drain();
        }
        self.writes.close();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer {
            join(writer);
            // Slots that are not on stable storage are found to be torn after a power cut.
            let _ = self.file.sync_data();
            // Closing the descriptor is not enough: a child that another thread has just forked
            // holds the lock as well, until it calls exec.
            if let Some(file) = &self.lock {
                let _ = flock(file, FlockOperation::Unlock);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn validate(&self) -> Result<(), String> {
        let index = self.index();
        index.validate()
    }
}

/// Locks the file against other caches, in this process and in others. A new file can be read by
/// its owner only.
fn lock(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let what = "another cache uses the file: close that cache, or choose another path";
            Err(io::Error::new(io::ErrorKind::ResourceBusy, what))
        }
        // A file system without locks.
        Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOLCK) => Ok(file),
        Err(error) => Err(error.into()),
    }
}

/// A random number: the standard library's hashers have random keys.
fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
