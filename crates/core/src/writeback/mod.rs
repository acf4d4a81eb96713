//! Writeback of dirty pages: their index, their writes, and truncation.
//!
//! A page is dirty (indexed by its mapping, in file order), then under writeback, then clean; or
//! dirty again if the write failed or the page was written to meanwhile. Reclaim never writes file
//! pages; it wakes the flusher. Dirty anonymous pages are outside of the index and of
//! the limits: they leave when they are cold ([`crate::pageout`]).
//!
//! The [`Flusher`] decides when and what to write. A host that writes takes pages with
//! [`Core::start_writeback`] and reports with [`Core::end_writeback`]. [`balance`] throttles tasks
//! that dirty pages faster than they are written.
//!
//! Source: [book: writeback#flusher].
//!
//! # Locking
//!
//! The lock of a mapping's part guards the step of its pages from dirty to writeback. The index of
//! dirty pages has a lock of its own, taken after it.

mod balance;
mod errors;
mod flusher;
mod limits;
mod refused;

pub use balance::Dirtier;
pub use errors::ErrorSequence;
pub(crate) use flusher::Flushing;
pub use flusher::{Flusher, FlusherOptions, FlusherStep, WriteOrder};
use limits::DirtyLimits;

use crate::Core;
use crate::event::Event;
use crate::folio::{FolioId, Kind};
use crate::host::{FlushReason, Host};
use crate::lru;
use crate::mapping::{MAPPING_PAGES_MAX, Mapping};
use crate::memcg::{Counter, Memcg, MemcgId, Pending};
use crate::workingset;
use std::collections::BTreeSet;

/// Limits, and the pages they apply to.
struct DirtyLevel<'a> {
    /// The memcg whose limits they are; the root for the global ones.
    memcg: &'a Memcg,
    pending: &'a Pending,
    /// Whether writers know its counts as they were at the last refresh ([book:
    /// classic-lru#late-statistics]).
    is_late: bool,
    limits: DirtyLimits,
    /// The limits if no page were refused.
    full_limits: DirtyLimits,
}

impl<'a> DirtyLevel<'a> {
    fn new(memcg: &'a Memcg, pending: &'a Pending, full_limits: DirtyLimits) -> DirtyLevel<'a> {
        let limits = full_limits.beside_refused(pending.refused_pages());
        DirtyLevel { memcg, pending, is_late: false, limits, full_limits }
    }
}

/// The number of dirty pages of a memcg above which the flusher writes when it looks: none until
/// any page of the memcg has been written.
fn background_pages(pending: &Pending, limits: DirtyLimits) -> u64 {
    if pending.any_written() { limits.background_pages } else { 0 }
}

/// Whether to check limits at this number of dirty pages: at every page up to the limit of a small
/// tenant, then every few dozen.
fn asks_at(dirty_pages: u64) -> bool {
    dirty_pages <= 64 || dirty_pages.is_multiple_of(32)
}

/// A run of consecutive pages whose write starts together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritebackRun {
    /// The first page's index.
    pub first: u32,
    /// Their folios, in file order. Each holds a reference until [`Core::end_writeback`].
    pub folios: Vec<FolioId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    All,
    Clean,
    CleanAndUnmapped,
    /// Pages charged to this memcg, in memory or in swap.
    Of(MemcgId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    Done,
    /// The page is not one of those to remove.
    Stays,
    /// The page is in use or under writeback: wait, then try again.
    Busy,
    /// The folio holds another page by now, or none.
    Gone,
}

impl Core {
    /// Marks a page dirty. The caller holds the folio lock and has changed the bytes, so that a
    /// flusher that sees the page dirty writes the new content. `true`: it is a file page that was
    /// clean ([`Dirtier::dirtied`]).
    pub fn set_dirty(&self, host: &impl Host, mapping: &Mapping, folio: FolioId) -> bool {
        let (flags, index) = (self.folios.flags(folio), self.folios.index(folio));
        lru::dirtied(self, folio);
        if flags.redirty() {
            return false;
        }
        if mapping.kind() == Kind::Anon {
            // Reclaim, not the flusher, writes it when it is cold.
            flags.set_dirty();
            return false;
        }
        let locked = mapping.lock(&self.leaves, index);
        if locked.slot(index).folio() != Some(folio) || !flags.set_dirty() {
            return false;
        }
        self.add_dirty(host, mapping, index);
        drop(locked);
        let memcg = self.owner_of(folio);
        if host.observes() {
            host.event(Event::Dirtied { folio, memcg: memcg.id() });
        }
        self.count_dirtied(host, memcg);
        true
    }

    /// Puts a page into the index of dirty pages. The caller holds the lock of its part.
    fn add_dirty(&self, host: &impl Host, mapping: &Mapping, index: u32) {
        let mut dirty = mapping.dirty();
        if dirty.is_empty() {
            self.flushing.note_dirty(mapping, host.now());
        }
        dirty.insert(index);
    }

    /// Takes a page out of the index of dirty pages. The caller holds the lock of its part.
    fn remove_dirty(&self, mapping: &Mapping, dirty: &mut BTreeSet<u32>, index: u32) {
        dirty.remove(&index);
        if dirty.is_empty() {
            self.flushing.note_clean(mapping);
        }
    }

    /// Counts a page that became dirty. Checks the limits every few dozen pages.
    fn count_dirtied(&self, host: &impl Host, memcg: &Memcg) {
        memcg.stat.change(Counter::FileDirty, 1);
        let frames = u64::from(self.folios.len());
        let mut over = false;
        for level in self.memcgs.with_ancestors(memcg.id()) {
            let dirty = level.pending.add_dirty();
            if !self.options.memcg_dirty_limits || !asks_at(dirty) {
                continue;
            }
            let limits = self.dirty_limits(level);
            if dirty > background_pages(&level.pending, limits) {
                self.flushing.note_over_background(level);
                over |= dirty > limits.background_pages;
            }
        }
        let dirty = self.node.pending.add_dirty();
        over |= asks_at(dirty) && dirty > DirtyLimits::of(frames).background_pages;
        if over {
            host.wake_flusher(FlushReason::Background);
        }
    }

    /// Adds to the counts of dirty and writeback pages; negative numbers subtract.
    pub(crate) fn count_pending(&self, memcg: &Memcg, dirty: i64, writeback: i64) {
        memcg.stat.change(Counter::FileDirty, dirty);
        memcg.stat.change(Counter::FileWriteback, writeback);
        self.each_pending(memcg, |pending| pending.change(dirty, writeback));
    }

    /// The counts in which a page of a memcg is: those of the memcg, of its ancestors, and of all.
    fn each_pending(&self, memcg: &Memcg, change: impl Fn(&Pending)) {
        self.memcgs.with_ancestors(memcg.id()).for_each(|memcg| change(&memcg.pending));
        change(&self.node.pending);
    }

    /// Limits of the dirty pages of a memcg's subtree.
    fn dirty_limits(&self, memcg: &Memcg) -> DirtyLimits {
        let frames = u64::from(self.folios.len());
        DirtyLimits::of(memcg.memory.limit_pages().min(frames))
    }

    /// Whether writers and the flusher know a memcg's dirty pages as of the last refresh.
    fn has_late_dirty_counts(&self) -> bool {
        self.options.late_dirty_counts && !self.mechanisms().exact_statistics()
    }

    /// Refreshes these counts, if the time has come.
    fn refresh_dirty_counts(&self, host: &impl Host) {
        if self.has_late_dirty_counts() {
            self.refresh_if_due(host);
        }
    }

    /// A memcg's own limits.
    fn level_of<'a>(&self, memcg: &'a Memcg) -> DirtyLevel<'a> {
        let is_late = self.has_late_dirty_counts();
        DirtyLevel { is_late, ..DirtyLevel::new(memcg, &memcg.pending, self.dirty_limits(memcg)) }
    }

    /// The limits of all memory.
    fn level_of_all(&self) -> DirtyLevel<'_> {
        let limits = DirtyLimits::of(u64::from(self.folios.len()));
        DirtyLevel::new(self.memcg(MemcgId::ROOT), &self.node.pending, limits)
    }

    /// The limits that apply to pages of a memcg: its own and its ancestors', if memcg limits are
    /// on, and the global ones.
    fn dirty_levels<'a>(&'a self, memcg: &'a Memcg) -> impl Iterator<Item = DirtyLevel<'a>> {
        let own = self.options.memcg_dirty_limits;
        let of_memcgs = self.memcgs.with_ancestors(memcg.id()).filter(move |_| own);
        of_memcgs.map(|memcg| self.level_of(memcg)).chain([self.level_of_all()])
    }

    /// File pages that are dirty or under writeback, in all memcgs.
    pub fn pending_pages(&self) -> u64 {
        self.node.pending.pages()
    }

    /// Dirty pages of a mapping, without those under writeback.
    pub fn dirty_pages(&self, mapping: &Mapping) -> usize {
        mapping.dirty().len()
    }

    /// The index of the last dirty page of a mapping.
    pub fn last_dirty(&self, mapping: &Mapping) -> Option<u32> {
        mapping.dirty().last().copied()
    }

    /// Starts the write of the next run of dirty pages at or after `from` and before `end`, of at
    /// most `most` pages.
    pub fn start_writeback(
        &self,
        mapping: &Mapping,
        from: u32,
        end: u64,
        most: usize,
    ) -> Option<WritebackRun> {
        let mut run: Option<WritebackRun> = None;
        let mut from = from;
        let mut locked = mapping.lock(&self.leaves, from);
        let mut dirty = mapping.dirty();
        loop {
            let next = run.as_ref().map_or(from, |run| run.first + run.folios.len() as u32);
            let Some(&index) = dirty.range(next..).next() else { break };
            if u64::from(index) >= end
                || run.as_ref().is_some_and(|run| index != next || run.folios.len() == most)
            {
                break;
            }
            if !locked.covers(index) {
                // The lock of a part comes first; meanwhile the page may be no longer dirty.
                drop(dirty);
                drop(locked);
                locked = mapping.lock(&self.leaves, index);
                dirty = mapping.dirty();
                continue;
            }
            let Some(folio) = locked.slot(index).folio() else { unreachable!("a dirty page is cached") };
            let flags = self.folios.flags(folio);
            if !flags.start_writeback() {
                // Dirty again while an older version is still being written: later.
                if run.is_some() {
                    break;
                }
                let Some(after) = index.checked_add(1) else { break };
                from = after;
                continue;
            }
            self.remove_dirty(mapping, &mut dirty, index);
            let memcg = self.owner_of(folio);
            self.count_pending(memcg, -1, 1);
            self.note_tried_again(mapping, index, memcg);
            run.get_or_insert_with(|| WritebackRun { first: index, folios: Vec::new() }).folios.push(folio);
            if index == u32::MAX {
                break;
            }
        }
        run
    }

    /// Ends the write of one page of a run, or of one that [`Host::swap_out`] started. If it
    /// failed, the page is dirty again and stays in memory.
    pub fn end_writeback(
        &self,
        host: &impl Host,
        mapping: &Mapping,
        folio: FolioId,
        written: bool,
        cpu: usize,
    ) {
        let (flags, index) = (self.folios.flags(folio), self.folios.index(folio));
        let memcg = self.owner_of(folio);
        if !written && mapping.kind() == Kind::Anon {
            flags.set_dirty();
        } else if !written {
            let locked = mapping.lock(&self.leaves, index);
            if locked.slot(index).folio() == Some(folio) {
                if flags.set_dirty() {
                    self.add_dirty(host, mapping, index);
                    self.count_pending(memcg, 1, 0);
                }
                self.note_refused(mapping, index, memcg);
            }
        } else {
            self.note_not_refused(mapping, index, memcg, (0, 1));
        }
        let before = flags.end_writeback();
        memcg.stat.change(Counter::FileWriteback, -1);
        self.each_pending(memcg, |pending| pending.end_write(written));
        if !written {
            // They are dirty again without a task that dirtied them.
            if self.options.memcg_dirty_limits {
                self.memcgs
                    .with_ancestors(memcg.id())
                    .for_each(|memcg| self.flushing.note_over_background(memcg));
            }
        }
        if written {
            if mapping.kind() == Kind::File {
                memcg.stat.add(Counter::NrWritten, 1);
                if !memcg.pending.any_written() {
                    self.memcgs.with_ancestors(memcg.id()).for_each(|memcg| memcg.pending.note_any_written());
                }
                self.node.pending.note_written();
            }
            // An isolated folio is not queued, which would hold it: the isolating thread finds it
            // clean and frees it.
            let movable = before.lru() && !before.locked() && !before.dirty() && !before.unevictable();
            if before.reclaim() && movable {
                self.rotate(host, cpu, folio);
            }
        }
        if before.waiters() {
            host.wake_waiters(folio);
        }
        self.put(host, folio);
    }

    /// Writes of pages in the subtree of `target` that succeeded and that failed, since the start.
    pub(crate) fn ended_writes(&self, target: MemcgId) -> [u64; 2] {
        let pending = if target == MemcgId::ROOT { &self.node.pending } else { &self.memcg(target).pending };
        pending.ended_writes()
    }

    /// Pages written since the start, to files and to swap.
    pub fn written_pages(&self) -> u64 {
        self.node.pending.ended_writes()[0]
    }

    /// Truncates the pages from `from` to `end`: removes them, even dirty ones, and leaves no
    /// shadows. `Some`: this folio is in use or under writeback; wait for it, then call again.
    pub fn truncate(&self, host: &impl Host, mapping: &Mapping, from: u32, end: u64) -> Option<FolioId> {
        self.remove_range(host, mapping, from, end, Leaves::All)
    }

    /// Removes the pages of a region of anonymous memory that are charged to `victim`, in memory
    /// and in swap. `Some`: this folio is in use or under writeback; wait for it, then call again.
    pub(crate) fn reap(&self, host: &impl Host, region: &Mapping, victim: MemcgId) -> Option<FolioId> {
        self.remove_range(host, region, 0, MAPPING_PAGES_MAX, Leaves::Of(victim))
    }

    /// Removes the clean pages from `from` to `end`, mapped or not, because the file's content has
    /// changed. Dirty and writeback pages stay. `Some`: this folio is in use; wait for it, then
    /// call again.
    pub fn drop_clean(&self, host: &impl Host, mapping: &Mapping, from: u32, end: u64) -> Option<FolioId> {
        self.remove_range(host, mapping, from, end, Leaves::Clean)
    }

    /// Follows advice that pages are not needed: removes clean, unmapped, unused ones and moves the
    /// others to the old side. Pages that are locked in memory stay as they are; the kernel's are
    /// mapped.
    pub fn invalidate(&self, host: &impl Host, mapping: &Mapping, from: u32, end: u64, cpu: usize) {
        let mut at = from;
        loop {
            let Some((_, index, slot)) = mapping.lock_next(&self.leaves, at, end) else { return };
            if let Some(folio) = slot.folio()
                && !self.folios.flags(folio).load().mlocked()
            {
                match self.remove_page(host, mapping, index, folio, Leaves::CleanAndUnmapped) {
                    Removal::Stays | Removal::Busy => lru::advise_cold(self, host, cpu, folio),
                    Removal::Done | Removal::Gone => {}
                }
            }
            let Some(next) = index.checked_add(1) else { return };
            at = next;
        }
    }

    fn remove_range(
        &self,
        host: &impl Host,
        mapping: &Mapping,
        from: u32,
        end: u64,
        leaves: Leaves,
    ) -> Option<FolioId> {
        let end = end.min(MAPPING_PAGES_MAX);
        self.compact_shadows.forget(&mapping.shadow_era, from, end);
        let mut at = from;
        loop {
            let (mut locked, index, slot) = mapping.lock_next(&self.leaves, at, end)?;
            match slot.folio() {
                None => {
                    let entry = slot.shadow().filter(|_| mapping.kind() == Kind::Anon);
                    let stays = match leaves {
                        Leaves::Of(memcg) => {
                            entry.is_none_or(|entry| self.swap.payer_of_entry(entry) != memcg)
                        }
                        Leaves::All | Leaves::Clean | Leaves::CleanAndUnmapped => false,
                    };
                    if stays {
                        at = index.checked_add(1)?;
                        continue;
                    }
                    let owner = locked.forget(index);
                    drop(locked);
                    if let Some(entry) = entry {
                        self.drop_entry(host, entry);
                    }
                    if let Some(owner) = owner {
                        self.memcgs.living(owner).stat.sub(Counter::WorkingsetNodes, 1);
                    }
                }
                Some(folio) => {
                    drop(locked);
                    match self.remove_page(host, mapping, index, folio, leaves) {
                        Removal::Done | Removal::Stays => {}
                        Removal::Busy => return Some(folio),
                        Removal::Gone => continue,
                    }
                }
            }
            at = index.checked_add(1)?;
        }
    }

    fn remove_page(
        &self,
        host: &impl Host,
        mapping: &Mapping,
        index: u32,
        folio: FolioId,
        leaves: Leaves,
    ) -> Removal {
        let flags = self.folios.flags(folio);
        // Only under the lock does the slot prove that the folio is this page.
        let mut locked = mapping.lock(&self.leaves, index);
        if locked.slot(index).folio() != Some(folio) {
            return Removal::Gone;
        }
        if let Leaves::Of(memcg) = leaves
            && self.owner_of(folio).id() != memcg
        {
            return Removal::Stays;
        }
        if !flags.try_lock() {
            return Removal::Busy;
        }
        let now = flags.load();
        let stays = match leaves {
            Leaves::All | Leaves::Of(_) => false,
            Leaves::Clean => now.dirty() || now.writeback(),
            // Advice drops no page in use: a lent page would get another frame, whose bytes a
            // writer could change beside the lent ones. Nor one locked in memory meanwhile.
            Leaves::CleanAndUnmapped => {
                now.dirty() || now.writeback() || now.mapped() || now.lent() || now.mlocked()
            }
        };
        if stays || now.writeback() {
            drop(locked);
            if flags.unlock() {
                host.wake_waiters(folio);
            }
            return if stays { Removal::Stays } else { Removal::Busy };
        }
        let memcg = self.owner_of(folio);
        let shadow_leaf = locked.remove(index, folio, None, memcg.id()).expect("it is in its slot");
        if mapping.kind() == Kind::File && flags.clear_dirty() {
            self.remove_dirty(mapping, &mut mapping.dirty(), index);
            self.count_pending(memcg, -1, 0);
            self.note_not_refused(mapping, index, memcg, (1, 0));
        }
        drop(locked);
        if mapping.kind() == Kind::Anon {
            // Without the lock: the slot may be the last thing that a removed memcg pays for.
            self.release_slot(host, folio);
            flags.clear_dirty();
        }
        if flags.leave_mapping() && mapping.kind() == Kind::File {
            memcg.stat.sub(Counter::FileMapped, 1);
        }
        if let Some(leaf) = shadow_leaf {
            workingset::note_leaf(self, memcg, leaf);
        }
        if flags.unlock() {
            host.wake_waiters(folio);
        }
        self.forget_folios(memcg, mapping.kind(), 1);
        if host.observes() {
            host.event(Event::Removed { folio, memcg: memcg.id() });
        }
        self.put(host, folio);
        Removal::Done
    }
}
