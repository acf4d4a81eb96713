//! The flusher: when dirty pages of files are written without anybody waiting, which files, and in
//! which order.
//!
//! ```text
//! woken, or every 5 s ─► which files are due? ─► a pass: a portion of each in turn, in file order ─► again
//!                          none: sleep
//! ```
//!
//! Three causes make a pass:
//!
//! * *Much is dirty.* Dirty pages of all files exceed the background threshold of memory; or those
//!   of a memcg do, and together with pages under writeback they exceed its free run, from which on
//!   its writers are slowed down. All files are due.
//! * *Reclaim asks* ([`FlushReason::Reclaim`](crate::FlushReason)). All files are due.
//! * *Age.* Every five seconds, files whose oldest dirty page is older than 30 s are due.
//!
//! [`Flusher::step`] says what the host does next, as [`crate::Charging`] does for a charge. The
//! host takes the pages with [`Core::start_writeback`], writes them, and tells [`Flusher::wrote`].
//!
//! Source: the kernel's documentation of `vm.dirty_background_ratio`,
//! `vm.dirty_writeback_centisecs` and `vm.dirty_expire_centisecs`
//! (Documentation/admin-guide/sysctl/vm.rst). Since Linux 4.2 ("writeback: cgroup writeback
//! support") `balance_dirty_pages` wakes the flusher for a memcg above its free run, and the
//! flusher goes on where `wb_over_bg_thresh` holds. The delay after failed writes is ours: the
//! kernel gives pages up that a device refuses.
//!
//! # Locking
//!
//! The list of files with dirty pages is a leaf, below the mapping lock. Nothing is held between
//! steps.

use crate::Core;
use crate::host::{Host, Time};
use crate::mapping::{Mapping, MappingId};
use crate::memcg::MemcgId;
use crate::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

/// First delay after a pass in which a write failed; it doubles as long as passes fail.
const RETRY_MIN: Duration = Duration::from_millis(1);
/// The longest such delay: as long as a task that waits for writeback sleeps at most.
const RETRY_MAX: Duration = Duration::from_millis(100);

/// When the flusher writes, and how much at a time. The default is the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlusherOptions {
    /// Share of all memory that may be dirty before the flusher writes, in thousandths
    /// (`vm.dirty_background_ratio`).
    pub memory_permille: u32,
    /// How often files are looked at whose dirty pages are old (`vm.dirty_writeback_centisecs`).
    pub period: Duration,
    /// Age at which a dirty page is old (`vm.dirty_expire_centisecs`).
    pub expiry: Duration,
    /// Pages of one file that are written before it is the next file's turn.
    pub portion_pages: u32,
    /// Consecutive pages that are written by one transfer, at most. 256 pages (1 MiB) keep a device
    /// busy.
    pub transfer_pages: u32,
}

impl Default for FlusherOptions {
    fn default() -> FlusherOptions {
        FlusherOptions {
            memory_permille: 100,
            period: Duration::from_secs(5),
            expiry: Duration::from_secs(30),
            portion_pages: 1024,
            transfer_pages: 256,
        }
    }
}

/// Dirty pages that the host is to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOrder {
    /// The file.
    pub mapping: MappingId,
    /// The run of dirty pages is the next one at or after this position.
    pub from: u32,
    /// The longest run, in pages.
    pub pages_max: u32,
}

/// What the flusher does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlusherStep {
    /// Begin to write these, then call [`Flusher::wrote`].
    Write(WriteOrder),
    /// Writes failed. Call again at that time, whatever happens before.
    Rest(Time),
    /// Nothing is due. Call again when somebody wakes the flusher, or at that time.
    Sleep(Time),
}

/// The rest of one file's turn in a pass.
#[derive(Clone, Copy, Debug)]
struct Turn {
    mapping: MappingId,
    /// The position at which it goes on.
    from: u32,
    /// Pages until it is another file's turn.
    left_pages: u32,
}

/// The flusher's place in its work. A host has one.
#[derive(Debug)]
pub struct Flusher {
    options: FlusherOptions,
    pass: VecDeque<Turn>,
    /// A page was written in this pass.
    has_written: bool,
    /// Reclaim asked for a pass that has not begun.
    is_asked: bool,
    /// Files that the host wants written in the next pass.
    wanted: BTreeSet<MappingId>,
    next_period: Time,
    /// Pages that had failed to be written when the last pass ended.
    failed_pages: u64,
    /// Delay after the next pass that fails.
    retry: Duration,
}

impl Flusher {
    /// A flusher that begins at `now`.
    ///
    /// # Panics
    /// If the period is zero, or a portion or a transfer has no pages.
    pub fn new(options: FlusherOptions, now: Time) -> Flusher {
        assert!(
            !options.period.is_zero() && options.portion_pages > 0 && options.transfer_pages > 0,
            "a flusher that never rests, or never gets on: {options:?}"
        );
        Flusher {
            options,
            pass: VecDeque::new(),
            has_written: false,
            is_asked: false,
            wanted: BTreeSet::new(),
            next_period: now + options.period,
            failed_pages: 0,
            retry: RETRY_MIN,
        }
    }

    /// Reclaim met nothing but dirty pages: all files are due in the next pass.
    pub fn ask(&mut self) {
        self.is_asked = true;
    }

    /// A file is due in the next pass, however young its dirty pages are: nobody has it open any
    /// more.
    pub fn want(&mut self, mapping: MappingId) {
        self.wanted.insert(mapping);
    }

    /// What the host does next.
    pub fn step(&mut self, core: &Core, host: &impl Host) -> FlusherStep {
        if self.pass.is_empty() {
            let now = host.now();
            let failed_pages = core.failed_writes(MemcgId::ROOT);
            if std::mem::replace(&mut self.failed_pages, failed_pages) != failed_pages {
                let delay = self.retry;
                self.retry = (2 * delay).min(RETRY_MAX);
                self.has_written = false;
                return FlusherStep::Rest(now + delay);
            }
            if std::mem::take(&mut self.has_written) {
                // A pass that went well.
                self.retry = RETRY_MIN;
            }
            if !self.begin_pass(core, now) {
                return FlusherStep::Sleep(self.next_period);
            }
        }
        let &Turn { mapping, from, .. } = self.pass.front().expect("a pass that has begun has a turn");
        FlusherStep::Write(WriteOrder { mapping, from, pages_max: self.options.transfer_pages })
    }

    /// The host carried the last [`WriteOrder`] out: these pages begin to be written, or there were
    /// none. `Some`: the pass ends, and all that is dirty is still being written in an older
    /// version; call [`Self::step`] when a write ended, or at that time.
    pub fn wrote(&mut self, core: &Core, host: &impl Host, pages: Option<Range<u64>>) -> Option<Time> {
        let turn = self.pass.pop_front()?;
        match pages {
            Some(pages) => self.go_on(turn, &pages),
            None => core.flushing.note_visited(turn.mapping, host.now()),
        }
        (self.pass.is_empty() && !self.has_written).then_some(self.next_period)
    }

    /// What is behind `pages` comes next, or after the turns of other files.
    fn go_on(&mut self, turn: Turn, pages: &Range<u64>) {
        self.has_written = true;
        let left_pages = turn.left_pages.saturating_sub((pages.end - pages.start) as u32);
        // The end of the last possible page is not a position: nothing is behind it.
        let Ok(from) = u32::try_from(pages.end) else { return };
        if left_pages > 0 {
            self.pass.push_front(Turn { from, left_pages, ..turn });
        } else {
            self.pass.push_back(Turn { from, left_pages: self.options.portion_pages, ..turn });
        }
    }

    /// Makes turns for the files that are due. `false`: none is.
    fn begin_pass(&mut self, core: &Core, now: Time) -> bool {
        let is_period = now >= self.next_period;
        if is_period {
            self.next_period = now + self.options.period;
        }
        // In this order: the list of memcgs over their limits is brought up to date in any case.
        let everything = core.flush_is_due(self.options.memory_permille) | std::mem::take(&mut self.is_asked);
        let wanted = std::mem::take(&mut self.wanted);
        let is_due = |mapping: MappingId, since: Time| {
            everything || is_period && now.since(since) >= self.options.expiry || wanted.contains(&mapping)
        };
        let left_pages = self.options.portion_pages;
        let dirty = core.flushing.dirty_since.lock();
        let due = dirty.iter().filter(|&(&mapping, &since)| is_due(mapping, since));
        self.pass.extend(due.map(|(&mapping, _)| Turn { mapping, from: 0, left_pages }));
        self.has_written = false;
        !self.pass.is_empty()
    }
}

/// What the flusher goes by.
#[derive(Debug, Default)]
pub(crate) struct Flushing {
    /// Files with dirty pages that are not being written, each with the time of its oldest dirty
    /// page: of the first since the file had none, or since the flusher went through it.
    dirty_since: Mutex<BTreeMap<MappingId, Time>>,
    /// Memcgs that exceeded their background threshold when it was last looked at.
    over_background: Mutex<BTreeSet<MemcgId>>,
}

impl Flushing {
    /// A file that had no dirty page has one. The caller holds the mapping lock.
    pub(super) fn note_dirty(&self, mapping: &Mapping, now: Time) {
        self.dirty_since.lock().insert(mapping.id(), now);
    }

    /// A file has no dirty page any more. The caller holds the mapping lock.
    pub(super) fn note_clean(&self, mapping: &Mapping) {
        self.dirty_since.lock().remove(&mapping.id());
    }

    /// The flusher went through a file: pages that are dirty now became so since.
    fn note_visited(&self, mapping: MappingId, now: Time) {
        if let Some(since) = self.dirty_since.lock().get_mut(&mapping) {
            *since = now;
        }
    }
}

impl Core {
    /// A memcg exceeds its background threshold: the flusher that is woken for it finds out which
    /// one it is.
    pub(super) fn note_over_background(&self, memcg: &crate::memcg::Memcg) {
        if memcg.pending.note_over_background() {
            self.flushing.over_background.lock().insert(memcg.id());
        }
    }

    /// When the oldest dirty page of a file became dirty, as far as the flusher goes by it; `None`:
    /// no page is dirty.
    pub fn dirty_since(&self, mapping: &Mapping) -> Option<Time> {
        self.flushing.dirty_since.lock().get(&mapping.id()).copied()
    }

    /// Whether much is dirty, so that the flusher writes without being asked: of all together,
    /// where `memory_permille` thousandths of memory may be dirty, or of a memcg that exceeded its
    /// background threshold when pages were dirtied. (Where a limit is lowered, reclaim makes room,
    /// and asks.)
    fn flush_is_due(&self, memory_permille: u32) -> bool {
        let mut is_due = false;
        self.flushing.over_background.lock().retain(|&memcg| {
            let pending = &self.memcg(memcg).pending;
            // In this order: who notes it from now on waits for the lock.
            pending.forget_over_background();
            let limits = self.dirty_limits(self.memcg(memcg));
            let is_over = pending.dirty_pages() > limits.background_pages;
            is_due |= is_over && pending.pages() > limits.free_run_pages();
            is_over && pending.note_over_background()
        });
        let frames = u64::from(self.folios.len());
        is_due || self.node.pending.dirty_pages() > frames * u64::from(memory_permille) / 1000
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
