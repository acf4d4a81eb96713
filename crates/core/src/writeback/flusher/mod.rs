//! The flusher: decides when dirty file pages are written in the background, which files, and in
//! which order.
//!
//! ```text
//! woken, or after 5 s ─► which files are due? ─► a pass: a portion of each in turn, in file order ─► again
//!                          none: sleep
//! ```
//!
//! A pass has one of three causes:
//!
//! * *Too many dirty pages.* All dirty file pages exceed the background threshold of memory. Or
//!   those of a memcg and its pages under writeback exceed its free run, above which its writers are
//!   throttled. Or the dirty pages of a memcg exceed its background threshold five seconds after the
//!   last pass or, if nothing was dirty then, after the first page became dirty. The threshold of a
//!   memcg is zero until a page of it has been written, because it is a share by the pages that each
//!   has written lately. All files are due.
//! * *Reclaim asks* ([`FlushReason::Reclaim`](crate::FlushReason)). All files are due.
//! * *Age.* Every five seconds, files whose oldest dirty page is older than 30 s are due.
//!
//! [`Flusher::step`] returns the host's next action. The host takes the pages with
//! [`Core::start_writeback`], writes them, and calls [`Flusher::wrote`].
//!
//! Source: the kernel's documentation of `vm.dirty_background_ratio`,
//! `vm.dirty_writeback_centisecs` and `vm.dirty_expire_centisecs`
//! (Documentation/admin-guide/sysctl/vm.rst). Since Linux 4.2 ("writeback: cgroup writeback
//! support") `balance_dirty_pages` wakes the flusher for a memcg above its free run, and the
//! flusher goes on while `wb_over_bg_thresh` holds, which it also asks when its timer wakes it. The
//! tracepoints `writeback_start` and `writeback_single_inode` of Linux 6.12 show both.
//!
//! A file with refused pages (their writes failed) rests before it is written again, for any of
//! these causes or because too many pages are refused. It rests longer after each failure. Other
//! files do not wait for it.
//!
//! # Locking
//!
//! The list of files with dirty pages is a leaf, below the locks of mappings. Holds no lock between
//! steps.

use super::refused::Refused;
use crate::Core;
use crate::host::{Host, Time};
use crate::mapping::{Mapping, MappingId};
use crate::memcg::MemcgId;
use crate::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

/// The delay of files with refused pages after a write failed; it doubles with each pass in which
/// one fails.
const RETRY_MIN: Duration = Duration::from_millis(1);
/// The longest such delay: the longest sleep of a task that waits for writeback.
const RETRY_MAX: Duration = Duration::from_millis(100);

/// When the flusher writes, and how much at a time. Defaults are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlusherOptions {
    /// Share of all memory that may be dirty before the flusher writes, in thousandths
    /// (`vm.dirty_background_ratio`).
    pub memory_permille: u32,
    /// The timer, and the time between checks for old dirty pages (`vm.dirty_writeback_centisecs`).
    pub period: Duration,
    /// Age at which a dirty page is old (`vm.dirty_expire_centisecs`).
    pub expiry: Duration,
    /// Pages of one file written per turn.
    pub portion_pages: u32,
    /// The most consecutive pages per transfer. 256 pages (1 MiB) keep a device busy.
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

/// An order to write dirty pages of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOrder {
    /// The file.
    pub mapping: MappingId,
    /// Write the next run of dirty pages at or after this position.
    pub from: u32,
    /// The longest run, in pages.
    pub pages_max: u32,
}

/// The host's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlusherStep {
    /// Start to write these pages, then call [`Flusher::wrote`].
    Write(WriteOrder),
    /// Nothing is due. Call again when the flusher is woken, or at this time.
    Sleep(Time),
}

/// The rest of a file's turn in a pass.
#[derive(Clone, Copy, Debug)]
struct Turn {
    mapping: MappingId,
    /// The position to continue at.
    from: u32,
    /// Pages left in this turn.
    left_pages: u32,
}

/// The state of the flusher. A host has one.
#[derive(Debug)]
pub struct Flusher {
    options: FlusherOptions,
    pass: VecDeque<Turn>,
    /// Whether a page was written in this pass.
    has_written: bool,
    /// Whether reclaim asked for a pass that has not begun.
    is_asked: bool,
    /// Files that the host wants written in the next pass.
    wanted: BTreeSet<MappingId>,
    /// The next look for old files.
    next_period: Time,
    /// When the timer was set: at the start, at the last pass for all files, or when it ran out.
    timer_set: Time,
    /// Count of failed page writes at the end of the last pass.
    failed_pages: u64,
    /// The delay after the next failed pass.
    retry: Duration,
    /// Until then, files with refused pages are not written.
    retry_at: Time,
}

impl Flusher {
    /// A flusher that starts at `now`.
    ///
    /// # Panics
    /// If the period is zero, or a portion or transfer has no pages.
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
            timer_set: now,
            failed_pages: 0,
            retry: RETRY_MIN,
            retry_at: now,
        }
    }

    /// Makes all files due in the next pass, after reclaim met only dirty pages.
    pub fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Makes a file due in the next pass, even if its dirty pages are young: it is not open any
    /// more.
    pub fn want(&mut self, mapping: MappingId) {
        self.wanted.insert(mapping);
    }

    /// The host's next action: write pages of a file, or sleep.
    pub fn step(&mut self, core: &Core, host: &impl Host) -> FlusherStep {
        if self.pass.is_empty() {
            let now = host.now();
            let [_, failed_pages] = core.ended_writes(MemcgId::ROOT);
            if std::mem::replace(&mut self.failed_pages, failed_pages) != failed_pages {
                self.retry_at = now + self.retry;
                self.retry = (2 * self.retry).min(RETRY_MAX);
            }
            core.refresh_dirty_counts(host);
            if !self.begin_pass(core, now) {
                return FlusherStep::Sleep(self.next_look(core, now));
            }
        }
        let &Turn { mapping, from, .. } = self.pass.front().expect("a pass that has begun has a turn");
        FlusherStep::Write(WriteOrder { mapping, from, pages_max: self.options.transfer_pages })
    }

    /// Reports that the host carried out the last [`WriteOrder`]: the write of these pages has
    /// started, or none were dirty. `Some`: the pass ends, and all dirty pages still have an older
    /// version under writeback; call [`Self::step`] when a write ends, or at this time.
    pub fn wrote(&mut self, core: &Core, host: &impl Host, pages: Option<Range<u64>>) -> Option<Time> {
        let turn = self.pass.pop_front()?;
        match pages {
            Some(pages) => self.go_on(turn, &pages),
            None => core.flushing.note_visited(turn.mapping, host.now()),
        }
        self.is_fruitless().then(|| self.next_look(core, host.now()))
    }

    /// Reports that the host did not carry out the last [`WriteOrder`], for which it would have had
    /// to wait: the file is due again in the next pass. `true`: the pass ends, and nothing was
    /// written; let some time pass before [`Self::step`].
    pub fn passed_over(&mut self) -> bool {
        self.wanted.extend(self.pass.pop_front().map(|turn| turn.mapping));
        self.is_fruitless()
    }

    fn is_fruitless(&self) -> bool {
        self.pass.is_empty() && !self.has_written
    }

    /// Queues the rest behind `pages`, next in this turn or after the turns of other files.
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

    /// When the timer runs out.
    fn timer_end(&self, core: &Core) -> Time {
        self.timer_set.max(core.flushing.files.lock().first_dirtied) + self.options.period
    }

    /// When to look again between passes: when the timer runs out, or earlier if a file rests that
    /// is due.
    fn next_look(&self, core: &Core, now: Time) -> Time {
        let timer_end = self.timer_end(core);
        // Files that were passed over are wanted, too, and do not rest.
        let rests = !self.wanted.is_empty() && now < self.retry_at;
        if rests { timer_end.min(self.retry_at) } else { timer_end }
    }

    /// Creates turns for all due files. `false`: none is due.
    fn begin_pass(&mut self, core: &Core, now: Time) -> bool {
        let is_timer = now >= self.timer_end(core);
        let is_period = now >= self.next_period;
        if is_period {
            self.next_period = now + self.options.period;
        }
        let over = core.look_at_limits(self.options.memory_permille, is_timer);
        let everything = over.dirty | std::mem::take(&mut self.is_asked);
        if is_timer || everything {
            self.timer_set = now;
        }
        let wanted = std::mem::take(&mut self.wanted);
        let refused = core.flushing.refused.files();
        if refused.is_empty() {
            self.retry = RETRY_MIN;
        }
        self.has_written = false;
        for (&mapping, &since) in &core.flushing.files.lock().dirty_since {
            let is_old = is_period && now.since(since) >= self.options.expiry;
            let is_refused = refused.contains(&mapping);
            if !(everything || is_old || wanted.contains(&mapping) || is_refused && over.refused) {
                continue;
            }
            if is_refused && now < self.retry_at {
                self.wanted.insert(mapping);
            } else {
                self.pass.push_back(Turn { mapping, from: 0, left_pages: self.options.portion_pages });
            }
        }
        !self.pass.is_empty()
    }
}

/// Files with dirty pages that are not under writeback.
#[derive(Debug, Default)]
struct DirtyFiles {
    /// The time of the oldest page: when the first one became dirty after the file had none, or
    /// after the flusher's last visit.
    dirty_since: BTreeMap<MappingId, Time>,
    /// When a page became dirty while there were no such files.
    first_dirtied: Time,
}

#[derive(Debug, Default)]
pub(crate) struct Flushing {
    files: Mutex<DirtyFiles>,
    /// Memcgs that exceeded their background threshold at the last check.
    over_background: Mutex<BTreeSet<MemcgId>>,
    pub(super) refused: Refused,
}

/// Limits that are exceeded, of a memcg or of all memory.
#[derive(Clone, Copy, Debug)]
struct Over {
    /// Too many pages are dirty.
    dirty: bool,
    /// No more pages should be refused.
    refused: bool,
}

impl Flushing {
    /// Registers a file with its first dirty page. The caller holds the lock of the index.
    pub(super) fn note_dirty(&self, mapping: &Mapping, now: Time) {
        let mut files = self.files.lock();
        if files.dirty_since.is_empty() {
            files.first_dirtied = now;
        }
        files.dirty_since.insert(mapping.id(), now);
    }

    /// Unregisters a file without dirty pages. The caller holds the lock of the index.
    pub(super) fn note_clean(&self, mapping: &Mapping) {
        self.files.lock().dirty_since.remove(&mapping.id());
    }

    /// Resets a file's time after a visit: pages dirty now became dirty since.
    fn note_visited(&self, mapping: MappingId, now: Time) {
        if let Some(since) = self.files.lock().dirty_since.get_mut(&mapping) {
            *since = now;
        }
    }
}

impl Core {
    /// The registered time of a file's oldest dirty page; `None`: all pages are clean.
    pub fn dirty_since(&self, mapping: &Mapping) -> Option<Time> {
        self.flushing.files.lock().dirty_since.get(&mapping.id()).copied()
    }

    /// Which limits are exceeded: by dirty pages in all, if they are more than `memory_permille`
    /// thousandths of memory, or in a memcg. Such a memcg exceeded its background threshold when
    /// pages were dirtied. Now it exceeds its free run or, if the flusher's timer has run out,
    /// still the threshold. (When a limit is lowered, reclaim makes room and wakes the flusher.)
    fn look_at_limits(&self, memory_permille: u32, is_timer: bool) -> Over {
        let all = self.level_of_all();
        let frames = u64::from(self.folios.len());
        let mut background_pages = frames * u64::from(memory_permille) / 1000;
        if self.has_refused() {
            background_pages = background_pages.min(all.limits.background_pages);
        }
        let dirty = all.counted_dirty_pages() > background_pages;
        let mut over = Over { dirty, refused: all.refuses_more() };
        self.flushing.over_background.lock().retain(|&memcg| {
            let level = self.level_of(self.memcg(memcg));
            // First, so that a thread that notes it again waits for the lock.
            level.pending.forget_over_background();
            if level.memcg.heir().is_some() {
                // Its dirty pages are the heir's. Its own counts stay as they were.
                return false;
            }
            let is_over = level.counted_dirty_pages() > super::background_pages(level.pending, level.limits);
            over.dirty |= is_over && (is_timer || level.counted_pages() > level.limits.free_run_pages());
            over.refused |= level.refuses_more();
            (is_over || level.refuses_more()) && level.pending.note_over_background()
        });
        over
    }
}

impl Flushing {
    /// Registers a memcg above its background threshold, for the flusher's next look.
    pub(super) fn note_over_background(&self, memcg: &crate::memcg::Memcg) {
        if memcg.pending.note_over_background() {
            self.over_background.lock().insert(memcg.id());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
