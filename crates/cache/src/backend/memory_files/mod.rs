//! [`MemoryFiles`]: files in memory that fail, lag and fill up on request, for tests.
//!
//! A disk is a name space of sparse files with a capacity, a list of faults and a gate. A test
//! passes it to a cache ([`super::BackendKind::Memory`]), inspects it, or changes it behind the
//! cache's back. The seed decides everything random: which transfer fails, in which order submitted
//! transfers complete, and what survives a power loss. With a single thread every run is the same.
//!
//! No call sleeps for a fixed time. To stop the cache in the middle of a transfer, a test closes
//! the gate with [`MemoryFiles::hold`], waits for a number of transfers with
//! [`MemoryFiles::wait_held`], inspects, and opens the gate with [`MemoryFiles::release`].
//!
//! # Locking
//!
//! One mutex for the whole disk, held while bytes are copied and never while a completion runs.

mod power;

use super::transfer::{BackendFile, Direction, FileIdentity, OpenMode, Progress, Transfer, zero_rest};
use crate::frames::{FRAME_BYTES, Frames};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// The operations that a fault applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultOperation {
    /// Reading pages.
    Read,
    /// Writing pages.
    Write,
    /// `sync_data` and `sync_all`.
    Sync,
    /// Changing the length. The fault applies before the change. The operation also waits at a
    /// closed gate.
    SetLength,
    /// Making a hole. The fault applies before the change.
    PunchHole,
    /// Opening the file.
    Open,
    /// Asking for the length.
    Length,
}

/// Selects operations of a fault's kind on its file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultTrigger {
    /// Every operation.
    Always,
    /// The `n`-th operation after the injection, counted from 1; once.
    Nth(u64),
    /// Every transfer that touches one of these bytes. Never syncs.
    Within(Range<u64>),
    /// One in so many operations on average, chosen by the seed.
    OneIn(u64),
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultEffect {
    /// The operation fails with this error number and transfers nothing.
    Error(i32),
    /// At most so many bytes are transferred, at least 1; the backend continues from there. No
    /// effect on syncs.
    Short(usize),
}

/// A failure of some operations.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The file; `None` for all files.
    pub path: Option<PathBuf>,
    /// The kind of operation.
    pub operation: FaultOperation,
    /// Which of these operations fail.
    pub trigger: FaultTrigger,
    /// The failure.
    pub effect: FaultEffect,
}

impl Fault {
    /// A failure on all files.
    pub fn new(operation: FaultOperation, trigger: FaultTrigger, effect: FaultEffect) -> Fault {
        Fault { path: None, operation, trigger, effect }
    }

    /// The same failure on this file alone.
    pub fn on(self, path: impl Into<PathBuf>) -> Fault {
        Fault { path: Some(path.into()), ..self }
    }
}

/// Operations on a file since its creation, including failed attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Number of reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Number of writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Number of `sync_data` and `sync_all` calls.
    pub syncs: u64,
}

/// A disk of files in memory.
pub struct MemoryFiles {
    state: Mutex<State>,
    /// Signalled when a transfer arrives at the gate and when the gate opens.
    gate: Condvar,
    /// Actions that tests run between reading a length and returning it.
    #[cfg(test)]
    pub(crate) after_looks: crate::tests::Acts,
    /// Actions that tests run between making a hole and returning.
    #[cfg(test)]
    pub(crate) after_holes: crate::tests::Acts,
}

struct State {
    files: BTreeMap<FileIdentity, Content>,
    names: Names,
    files_created: u64,
    faults: Vec<Fault>,
    random: Random,
    capacity_pages: u64,
    used_pages: u64,
    gate_closed: bool,
    powered: bool,
    power_loss: PowerLoss,
    /// Transfers that have started but not passed the gate.
    at_gate: usize,
}

type Page = Box<[u8; FRAME_BYTES]>;

#[derive(Default)]
struct Content {
    bytes: u64,
    /// Pages by number; missing pages are holes.
    pages: BTreeMap<u64, Page>,
    /// State as of the last sync that a power loss may restore: the length, and the pages changed
    /// since.
    synced_bytes: u64,
    unsynced: BTreeMap<u64, Option<Page>>,
    /// All versions since then, if sectors survive independently.
    versions: Option<Versions>,
    counts: Counts,
}

/// Versions since the last sync.
#[derive(Default)]
struct Versions {
    /// Earlier contents of each changed page; `None` for a hole.
    pages: BTreeMap<u64, Vec<Option<Page>>>,
    lengths: Vec<u64>,
}

/// Names of the directory, at some time.
type Names = BTreeMap<PathBuf, FileIdentity>;

/// How the disk loses power.
#[derive(Default)]
struct PowerLoss {
    /// Whether sectors survive independently.
    tears: bool,
    /// Number of further operations before the power fails.
    after: Option<u64>,
    /// Earlier names since the last sync of the directory.
    names: Vec<Names>,
}

/// SplitMix64, which accepts any seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % limit
    }
}

impl MemoryFiles {
    /// Creates an empty disk of unlimited capacity.
    pub fn new(seed: u64) -> Arc<MemoryFiles> {
        let state = State {
            files: BTreeMap::new(),
            names: BTreeMap::new(),
            files_created: 0,
            faults: Vec::new(),
            random: Random(seed),
            capacity_pages: u64::MAX,
            used_pages: 0,
            gate_closed: false,
            powered: true,
            power_loss: PowerLoss::default(),
            at_gate: 0,
        };
        Arc::new(MemoryFiles {
            state: Mutex::new(state),
            gate: Condvar::new(),
            #[cfg(test)]
            after_looks: Default::default(),
            #[cfg(test)]
            after_holes: Default::default(),
        })
    }

    /// Limits the disk to `pages` written pages; further writes fail with `ENOSPC`. Holes take no
    /// space.
    pub fn set_capacity_pages(&self, pages: u64) {
        self.lock().capacity_pages = pages;
    }

    /// Sets a file's content, like another process would. An existing file keeps its identity.
    pub fn set_contents(&self, path: impl AsRef<Path>, contents: &[u8]) {
        let mut state = self.lock();
        let identity = state.create(path.as_ref());
        state.set_len(identity, 0);
        for (number, page) in contents.chunks(FRAME_BYTES).enumerate() {
            let file = state.files.get_mut(&identity).expect("just created");
            let mut whole = Box::new([0; FRAME_BYTES]);
            whole[..page.len()].copy_from_slice(page);
            file.pages.insert(number as u64, whole);
            state.used_pages += 1;
        }
        state.set_len(identity, contents.len() as u64);
        state.content(identity).synced();
    }

    /// The content of the file, if it exists.
    pub fn contents(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let state = self.lock();
        let file = &state.files[state.names.get(path.as_ref())?];
        let mut contents = vec![0; file.bytes as usize];
        for (number, page) in &file.pages {
            let start = *number as usize * FRAME_BYTES;
            let length = FRAME_BYTES.min(contents.len() - start);
            contents[start..start + length].copy_from_slice(&page[..length]);
        }
        Some(contents)
    }

    /// Removes the name. Open handles keep the file; a later open creates another file. Returns
    /// whether the name existed.
    pub fn remove(&self, path: impl AsRef<Path>) -> bool {
        self.lock().names.remove(path.as_ref()).is_some()
    }

    /// The operations on the file with this name.
    pub fn counts(&self, path: impl AsRef<Path>) -> Counts {
        let state = self.lock();
        state.names.get(path.as_ref()).map_or_else(Counts::default, |identity| state.files[identity].counts)
    }

    /// Injects a fault. If several faults apply to an operation, the one injected first takes
    /// effect.
    pub fn inject(&self, fault: Fault) {
        if let FaultEffect::Short(bytes) = fault.effect {
            assert!(bytes > 0, "a transfer of nothing would never end");
        }
        assert!(!matches!(fault.trigger, FaultTrigger::Nth(0) | FaultTrigger::OneIn(0)), "counts start at 1");
        self.lock().faults.push(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.lock().faults.clear();
    }

    /// Closes the gate: transfers that start from now on stop before they touch anything.
    pub fn hold(&self) {
        self.lock().gate_closed = true;
    }

    /// Opens the gate.
    pub fn release(&self) {
        self.lock().gate_closed = false;
        self.gate.notify_all();
    }

    /// Number of transfers that wait at the gate.
    pub fn held(&self) -> usize {
        self.lock().at_gate
    }

    /// Waits until at least `count` transfers wait at the gate, or the gate is opened.
    pub fn wait_held(&self, count: usize) {
        let mut state = self.lock();
        while state.gate_closed && state.at_gate < count {
            state = self.wait(state);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics under the disk's lock")
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.gate.wait(state).expect("no test panics under the disk's lock")
    }

    /// Opens a file, as [`super::Backend::open`] does.
    pub(super) fn open(self: &Arc<Self>, path: &Path, mode: OpenMode) -> io::Result<MemoryFile> {
        let mut state = self.lock();
        if let Some(FaultEffect::Error(number)) = state.fault(path, FaultOperation::Open, 0..0) {
            return Err(io::Error::from_raw_os_error(number));
        }
        if mode != OpenMode::Create && !state.names.contains_key(path) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        let identity = state.create(path);
        Ok(MemoryFile { files: self.clone(), identity, path: path.to_owned(), mode })
    }

    pub(super) fn random_below(&self, limit: usize) -> usize {
        self.lock().random.below(limit as u64) as usize
    }

    /// Counts a transfer as waiting at the gate; [`MemoryFiles::transfer`] follows.
    pub(super) fn arrive(&self) {
        self.lock().at_gate += 1;
        self.gate.notify_all();
    }

    pub(super) fn pass(&self) {
        drop(self.wait_open());
    }

    fn wait_open(&self) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.gate_closed {
            state = self.wait(state);
        }
        state
    }

    /// Passes the gate and carries out a transfer.
    pub(super) fn transfer(
        &self,
        frames: &Frames,
        direction: Direction,
        transfer: &Transfer,
    ) -> io::Result<usize> {
        let mut state = self.wait_open();
        state.at_gate -= 1;
        state.count_down();
        let file: &dyn Any = &*transfer.file;
        let file: &MemoryFile =
            file.downcast_ref().expect("a transfer goes to the backend that opened its file");
        let counts = &mut state.content(file.identity).counts;
        match direction {
            Direction::Read => counts.reads += 1,
            Direction::Write => counts.writes += 1,
        }
        let mut progress = Progress::new(direction, transfer);
        let result = loop {
            let done = state.step(file, frames, transfer, &progress);
            let counts = &mut state.content(file.identity).counts;
            match direction {
                Direction::Read => counts.read_bytes += *done.as_ref().unwrap_or(&0) as u64,
                Direction::Write => counts.written_bytes += *done.as_ref().unwrap_or(&0) as u64,
            }
            if let Some(result) = progress.advance(done) {
                break result;
            }
        };
        drop(state);
        if direction == Direction::Read
            && let Ok(bytes) = &result
        {
            zero_rest(frames, transfer, *bytes);
        }
        result
    }
}

impl fmt::Debug for MemoryFiles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MemoryFiles")
            .field("names", &self.lock().names.keys())
            .finish_non_exhaustive()
    }
}

impl Content {
    /// Truncates the file; bytes beyond read as zero if it grows again. Returns the removed pages.
    fn cut_to(&mut self, bytes: u64) -> BTreeMap<u64, Page> {
        let cut = self.pages.split_off(&bytes.div_ceil(FRAME_BYTES as u64));
        if let Some(last) = self.pages.get_mut(&(bytes / FRAME_BYTES as u64)) {
            last[bytes as usize % FRAME_BYTES..].fill(0);
        }
        self.bytes = bytes;
        cut
    }

    /// Zeroes the bytes in `range`, and frees the pages that lie wholly in it. Returns how many it
    /// freed.
    fn punch(&mut self, range: Range<u64>) -> u64 {
        let page_bytes = FRAME_BYTES as u64;
        let mut freed = 0;
        let touched = range.start / page_bytes..range.end.div_ceil(page_bytes);
        let numbers: Vec<u64> = self.pages.range(touched).map(|(number, _)| *number).collect();
        for number in numbers {
            self.note_change(number);
            let page = number * page_bytes;
            let start = range.start.max(page) - page;
            let end = range.end.min(page + page_bytes) - page;
            if end - start == page_bytes {
                self.pages.remove(&number);
                freed += 1;
            } else if let Some(kept) = self.pages.get_mut(&number) {
                kept[start as usize..end as usize].fill(0);
            }
        }
        freed
    }

    /// Records a page's content before its first change since the last sync.
    fn note_change(&mut self, number: u64) {
        self.note_version(number);
        self.unsynced.entry(number).or_insert_with(|| self.pages.get(&number).cloned());
    }

    fn synced(&mut self) {
        self.unsynced.clear();
        self.forget_versions();
        self.synced_bytes = self.bytes;
    }
}

impl State {
    fn create(&mut self, path: &Path) -> FileIdentity {
        if let Some(identity) = self.names.get(path) {
            return *identity;
        }
        self.files_created += 1;
        let identity = FileIdentity { device: 0, inode: self.files_created };
        self.names.insert(path.to_owned(), identity);
        let content = self.new_content();
        self.files.insert(identity, content);
        identity
    }

    fn content(&mut self, identity: FileIdentity) -> &mut Content {
        self.files.get_mut(&identity).expect("files stay, only names are removed")
    }

    fn set_len(&mut self, identity: FileIdentity, bytes: u64) {
        let file = self.files.get_mut(&identity).expect("files stay, only names are removed");
        let kept = bytes / FRAME_BYTES as u64;
        let changed: Vec<u64> = file.pages.range(kept..).map(|(number, _)| *number).collect();
        changed.into_iter().for_each(|number| file.note_change(number));
        file.note_length();
        self.used_pages -= file.cut_to(bytes).len() as u64;
    }

    /// The effect of the fault that applies to this operation.
    fn fault(&mut self, path: &Path, operation: FaultOperation, bytes: Range<u64>) -> Option<FaultEffect> {
        // Opening a file and reading its length need no disk access, so they work without power.
        let needs_power = !matches!(operation, FaultOperation::Open | FaultOperation::Length);
        if needs_power && !self.powered {
            return Some(FaultEffect::Error(libc::EIO));
        }
        let mut effect = None;
        let State { faults, random, .. } = self;
        faults.retain_mut(|fault| {
            if fault.operation != operation || fault.path.as_ref().is_some_and(|only| only != path) {
                return true;
            }
            // Every fault counts and draws its random number, whichever takes effect, so that
            // faults are independent of one another.
            let strikes = match &mut fault.trigger {
                FaultTrigger::Always => true,
                FaultTrigger::Within(range) => range.start < bytes.end && bytes.start < range.end,
                FaultTrigger::OneIn(limit) => random.below(*limit) == 0,
                FaultTrigger::Nth(left) => {
                    *left -= 1;
                    if *left > 0 {
                        return true;
                    }
                    effect = effect.or(Some(fault.effect));
                    return false;
                }
            };
            effect = effect.or(strikes.then_some(fault.effect));
            true
        });
        effect
    }

    /// Performs one system call's worth of a transfer.
    fn step(
        &mut self,
        file: &MemoryFile,
        frames: &Frames,
        transfer: &Transfer,
        progress: &Progress,
    ) -> io::Result<usize> {
        let start = transfer.offset + progress.done as u64;
        let mut end = transfer.offset + progress.wanted as u64;
        let operation = match progress.direction {
            Direction::Read => FaultOperation::Read,
            Direction::Write => FaultOperation::Write,
        };
        match self.fault(&file.path, operation, start..end) {
            Some(FaultEffect::Error(number)) => return Err(io::Error::from_raw_os_error(number)),
            Some(FaultEffect::Short(bytes)) => end = end.min(start + bytes as u64),
            None => {}
        }
        if progress.direction == Direction::Read {
            end = end.min(self.content(file.identity).bytes);
        } else if file.mode == OpenMode::ReadOnly {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let mut at = start;
        for (frame, range) in transfer.parts_from(progress.done) {
            if at >= end {
                break;
            }
            let range = range.start..range.end.min(range.start + (end - at) as usize);
            match progress.direction {
                Direction::Read => self.read_page(file.identity, at, frames, frame, range.clone()),
                Direction::Write if self.write_page(file.identity, at, frames, frame, range.clone()) => {}
                Direction::Write if at == start => return Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                Direction::Write => break,
            }
            at += range.len() as u64;
        }
        if progress.direction == Direction::Write {
            let content = self.content(file.identity);
            if at > content.bytes {
                content.note_length();
                content.bytes = at;
            }
        }
        Ok(at.saturating_sub(start) as usize)
    }

    fn read_page(
        &mut self,
        identity: FileIdentity,
        at: u64,
        frames: &Frames,
        frame: u32,
        range: Range<usize>,
    ) {
        match self.content(identity).pages.get(&(at / FRAME_BYTES as u64)) {
            Some(page) => frames.copy_in(frame, range.start, &page[range]),
            None => frames.zero(frame, range),
        }
    }

    /// Writes one page. Returns `false` if the disk is full.
    fn write_page(
        &mut self,
        identity: FileIdentity,
        at: u64,
        frames: &Frames,
        frame: u32,
        range: Range<usize>,
    ) -> bool {
        let full = self.used_pages >= self.capacity_pages;
        let file = self.content(identity);
        let number = at / FRAME_BYTES as u64;
        let is_new = !file.pages.contains_key(&number);
        if is_new && full {
            return false;
        }
        file.note_change(number);
        let page = file.pages.entry(number).or_insert_with(|| Box::new([0; FRAME_BYTES]));
        frames.copy_out(frame, range.start, &mut page[range]);
        self.used_pages += u64::from(is_new);
        true
    }
}

#[derive(Debug)]
pub(super) struct MemoryFile {
    files: Arc<MemoryFiles>,
    identity: FileIdentity,
    path: PathBuf,
    mode: OpenMode,
}

impl BackendFile for MemoryFile {
    fn len(&self) -> io::Result<u64> {
        let bytes = {
            let mut state = self.files.lock();
            if let Some(FaultEffect::Error(number)) = state.fault(&self.path, FaultOperation::Length, 0..0) {
                return Err(io::Error::from_raw_os_error(number));
            }
            state.content(self.identity).bytes
        };
        #[cfg(test)]
        self.files.after_looks.next();
        Ok(bytes)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        if self.mode == OpenMode::ReadOnly {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.files.arrive();
        let mut state = self.files.wait_open();
        state.at_gate -= 1;
        state.count_down();
        if let Some(FaultEffect::Error(number)) = state.fault(&self.path, FaultOperation::SetLength, 0..0) {
            return Err(io::Error::from_raw_os_error(number));
        }
        state.set_len(self.identity, bytes);
        Ok(())
    }

    fn punch_hole(&self, range: Range<u64>) -> io::Result<()> {
        {
            let mut state = self.files.lock();
            state.count_down();
            let effect = state.fault(&self.path, FaultOperation::PunchHole, range.clone());
            if let Some(FaultEffect::Error(number)) = effect {
                return Err(io::Error::from_raw_os_error(number));
            }
            state.used_pages -= state.content(self.identity).punch(range);
        }
        #[cfg(test)]
        self.files.after_holes.next();
        Ok(())
    }

    /// As ext4 does, extends the file until the disk is full. Reserves nothing beyond its end.
    fn allocate(&self, range: Range<u64>, keep_len: bool) -> io::Result<()> {
        if range.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut state = self.files.lock();
        state.count_down();
        if !state.powered {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let page_bytes = FRAME_BYTES as u64;
        let len = state.content(self.identity).bytes;
        let wanted_end = if keep_len { range.end.min(len) } else { range.end };
        let reached = (range.start / page_bytes..wanted_end.div_ceil(page_bytes)).find(|number| {
            if state.content(self.identity).pages.contains_key(number) {
                return false;
            }
            if state.used_pages >= state.capacity_pages {
                return true;
            }
            let file = state.content(self.identity);
            file.note_change(*number);
            file.pages.insert(*number, Box::new([0; FRAME_BYTES]));
            state.used_pages += 1;
            false
        });
        let end = reached.map_or(wanted_end, |full| full * page_bytes);
        if end > len {
            state.set_len(self.identity, end);
        }
        reached.map_or(Ok(()), |_| Err(io::Error::from_raw_os_error(libc::ENOSPC)))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.files.lock();
        state.count_down();
        state.content(self.identity).counts.syncs += 1;
        match state.fault(&self.path, FaultOperation::Sync, 0..0) {
            Some(FaultEffect::Error(number)) => Err(io::Error::from_raw_os_error(number)),
            Some(FaultEffect::Short(_)) | None => {
                state.content(self.identity).synced();
                Ok(())
            }
        }
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn identity(&self) -> FileIdentity {
        self.identity
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn is_direct(&self) -> bool {
        true
    }
}
