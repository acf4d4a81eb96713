//! Dirty pages leave: what is dirty, when it has to be written, and what happens when it was.
//!
//! A page is dirty (indexed by its mapping, in file order), then under write-back, then clean, or
//! dirty again if the write failed or somebody wrote to it meanwhile. Reclaim never writes file
//! pages; it wakes the flusher. Dirty pages of anonymous memory are in no index and under no limit:
//! they leave when they are cold ([`crate::pageout`]).
//!
//! When and what the flusher writes is a [`Flusher`]. A host that writes takes pages with
//! [`Core::start_writeback`] and reports with [`Core::end_writeback`]. Source:
//! [book: writeback#flusher].
//!
//! Who dirties pages faster than they are written is slowed down by [`balance`].
//!
//! # Locking
//!
//! The index of dirty pages is under the mapping lock, and so is the step from dirty to write-back.

mod balance;
mod errors;
mod flusher;
mod limits;

pub use balance::Dirtier;
pub use errors::ErrorSequence;
pub(crate) use flusher::Flushing;
pub use flusher::{Flusher, FlusherOptions, FlusherStep, WriteOrder};
pub use limits::{BACKGROUND_DIRTY_PERCENT, DIRTY_PERCENT, DirtyLimits};

use crate::Core;
use crate::folio::{FolioId, Kind};
use crate::host::{FlushReason, Host};
use crate::lru::{self, Queue};
use crate::mapping::Mapping;
use crate::memcg::{Counter, Memcg, MemcgId, Pending};
use crate::sync::Ordering::Relaxed;

/// Limits, and what they are held against.
struct DirtyLevel<'a> {
    /// Whose they are; the root, if those of all.
    memcg: &'a Memcg,
    pending: &'a Pending,
    limits: DirtyLimits,
}

/// Whether it is asked, at so many dirty pages, if those are too many: at each while that is as
/// many as a small tenant may have, then every few dozen.
fn asks_at(dirty_pages: u64) -> bool {
    dirty_pages <= 64 || dirty_pages.is_multiple_of(32)
}

/// A run of consecutive pages that begin to be written together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritebackRun {
    /// The first page's index.
    pub first: u32,
    /// Their folios, in file order. Each carries a reference until [`Core::end_writeback`].
    pub folios: Vec<FolioId>,
}

/// Which pages are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    All,
    Clean,
    CleanAndUnmapped,
    /// Those charged to this memcg, in memory or in swap.
    Of(MemcgId),
}

/// What became of a page that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removal {
    /// It is gone.
    Done,
    /// It is not of the kind that is removed.
    Stays,
    /// Somebody uses or writes it: wait, then try again.
    Busy,
    /// It is another page by now, or none.
    Gone,
}

impl Core {
    /// The page was written to. Its folio is locked by the caller, and its bytes are there already:
    /// a flusher that sees it dirty writes what is in it. `true`: it is a page of a file, and was
    /// clean ([`Dirtier::dirtied`]).
    pub fn set_dirty(&self, host: &impl Host, mapping: &Mapping, folio: FolioId) -> bool {
        let (flags, index) = (self.folios.flags(folio), self.folios.index(folio));
        lru::dirtied(self, folio);
        if flags.redirty() {
            return false;
        }
        if mapping.kind() == Kind::Anon {
            // No flusher writes it: reclaim does, when it is cold.
            flags.set_dirty();
            return false;
        }
        let mut locked = mapping.lock(&self.leaves);
        if locked.slot(index).folio() != Some(folio) || !flags.set_dirty() {
            return false;
        }
        if locked.tree.dirty.is_empty() {
            self.flushing.note_dirty(mapping, host.now());
        }
        locked.tree.dirty.insert(index);
        drop(locked);
        self.count_dirtied(host, self.owner_of(folio));
        true
    }

    /// A page became dirty. Every few dozen pages it is asked whether those are too many.
    fn count_dirtied(&self, host: &impl Host, memcg: &Memcg) {
        memcg.stat.change(Counter::FileDirty, 1);
        let frames = u64::from(self.folios.len());
        let mut over = false;
        for level in self.memcgs.with_ancestors(memcg.id()) {
            let dirty = level.pending.add_dirty();
            let asks = self.options.memcg_dirty_limits && asks_at(dirty);
            if asks && dirty > self.dirty_limits(level).background_pages {
                self.note_over_background(level);
                over = true;
            }
        }
        let dirty = self.node.pending.add_dirty();
        over |= asks_at(dirty) && dirty > DirtyLimits::of(frames).background_pages;
        if over {
            host.wake_flusher(FlushReason::Background);
        }
    }

    /// Pages became dirty again, or began to be written; or, negative, no longer are.
    pub(crate) fn count_pending(&self, memcg: &Memcg, dirty: i64, writeback: i64) {
        memcg.stat.change(Counter::FileDirty, dirty);
        memcg.stat.change(Counter::FileWriteback, writeback);
        self.memcgs.with_ancestors(memcg.id()).for_each(|memcg| memcg.pending.change(dirty, writeback));
        self.node.pending.change(dirty, writeback);
    }

    /// How much of a memcg and all below it may be dirty.
    fn dirty_limits(&self, memcg: &Memcg) -> DirtyLimits {
        let frames = u64::from(self.folios.len());
        DirtyLimits::of(memcg.max_pages().min(memcg.memory.high_pages()).min(frames))
    }

    /// Whose limits hold for pages of a memcg: its own and those above it, if those count, and
    /// those of all.
    fn dirty_levels<'a>(&'a self, memcg: &'a Memcg) -> impl Iterator<Item = DirtyLevel<'a>> {
        let own = self.options.memcg_dirty_limits;
        let of_memcg = |memcg: &'a Memcg| DirtyLevel {
            memcg,
            pending: &memcg.pending,
            limits: self.dirty_limits(memcg),
        };
        let limits = DirtyLimits::of(u64::from(self.folios.len()));
        let all = DirtyLevel { memcg: self.memcg(MemcgId::ROOT), pending: &self.node.pending, limits };
        self.memcgs.with_ancestors(memcg.id()).filter(move |_| own).map(of_memcg).chain([all])
    }

    /// Pages of files, of everybody, that are dirty or being written.
    pub fn pending_pages(&self) -> u64 {
        self.node.pending.pages()
    }

    /// Dirty pages of a mapping; those that are being written are not among them.
    pub fn dirty_pages(&self, mapping: &Mapping) -> usize {
        mapping.lock(&self.leaves).tree.dirty.len()
    }

    /// The last dirty page of a mapping.
    pub fn last_dirty(&self, mapping: &Mapping) -> Option<u32> {
        mapping.lock(&self.leaves).tree.dirty.last().copied()
    }

    /// Takes the next run of dirty pages at or after `from` and before `end` to be written, at most
    /// `most` of them.
    pub fn start_writeback(
        &self,
        mapping: &Mapping,
        from: u32,
        end: u64,
        most: usize,
    ) -> Option<WritebackRun> {
        let mut locked = mapping.lock(&self.leaves);
        let mut run: Option<WritebackRun> = None;
        let mut from = from;
        loop {
            let next = run.as_ref().map_or(from, |run| run.first + run.folios.len() as u32);
            let Some(&index) = locked.tree.dirty.range(next..).next() else { break };
            if u64::from(index) >= end
                || run.as_ref().is_some_and(|run| index != next || run.folios.len() == most)
            {
                break;
            }
            let Some(folio) = locked.slot(index).folio() else { unreachable!("a dirty page is cached") };
            let flags = self.folios.flags(folio);
            if !flags.start_writeback() {
                // Dirty again while its last version is still being written: later.
                if run.is_some() {
                    break;
                }
                let Some(after) = index.checked_add(1) else { break };
                from = after;
                continue;
            }
            locked.tree.dirty.remove(&index);
            self.count_pending(self.owner_of(folio), -1, 1);
            run.get_or_insert_with(|| WritebackRun { first: index, folios: Vec::new() }).folios.push(folio);
            if index == u32::MAX {
                break;
            }
        }
        if run.is_some() && locked.tree.dirty.is_empty() {
            self.flushing.note_clean(mapping);
        }
        run
    }

    /// One page of a run was written, or one that [`Host::swap_out`] began to write; or the write
    /// failed: then it is dirty again, and stays in memory.
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
            let mut locked = mapping.lock(&self.leaves);
            if locked.slot(index).folio() == Some(folio) && flags.set_dirty() {
                if locked.tree.dirty.is_empty() {
                    self.flushing.note_dirty(mapping, host.now());
                }
                locked.tree.dirty.insert(index);
                self.count_pending(memcg, 1, 0);
            }
        }
        let before = flags.end_writeback();
        self.count_pending(memcg, 0, -1);
        if !written {
            self.memcgs.with_ancestors(memcg.id()).for_each(|memcg| memcg.pending.note_failure());
            self.node.pending.note_failure();
            // They are dirty again, without anybody who dirtied them.
            if self.options.memcg_dirty_limits {
                self.memcgs.with_ancestors(memcg.id()).for_each(|memcg| self.note_over_background(memcg));
            }
        }
        if written {
            self.written.fetch_add(1, Relaxed);
            if mapping.kind() == Kind::File {
                memcg.stat.add(Counter::NrWritten, 1);
                self.node.pending.note_written();
            }
            // One that is isolated now is not held up by a batch: who isolated it finds it clean
            // and frees it.
            let movable = before.lru() && !before.locked() && !before.dirty() && !before.unevictable();
            if before.reclaim() && movable {
                self.enqueue(host, cpu, Queue::Rotate, folio);
            }
        }
        if before.waiters() {
            host.wake_waiters(folio);
        }
        self.put(host, folio);
    }

    /// Pages of `target` and all below it that could not be written, since the beginning.
    pub(crate) fn failed_writes(&self, target: MemcgId) -> u64 {
        let pending = if target == MemcgId::ROOT { &self.node.pending } else { &self.memcg(target).pending };
        pending.failed_pages()
    }

    /// Pages written since the beginning.
    pub fn written_pages(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Takes the pages from `from` to `end` out of the cache, as a truncation does: dirty ones too,
    /// and without a memory. `Some`: this folio is in use or being written; wait for it, then call
    /// again.
    pub fn truncate(&self, host: &impl Host, mapping: &Mapping, from: u32, end: u64) -> Option<FolioId> {
        self.remove_range(host, mapping, from, end, Leaves::All)
    }

    /// Takes the pages of a region of anonymous memory that are charged to `victim`, in memory and
    /// in swap, out of it. `Some`: this folio is in use or being written; wait for it, then call
    /// again.
    pub(crate) fn reap(&self, host: &impl Host, region: &Mapping, victim: MemcgId) -> Option<FolioId> {
        self.remove_range(host, region, 0, 1 << 32, Leaves::Of(victim))
    }

    /// Takes the clean pages from `from` to `end` out of the cache, whoever uses or maps them,
    /// because what they hold is no longer what the file holds. Dirty pages, and those being
    /// written, stay. `Some`: this folio is in use; wait for it, then call again.
    pub fn drop_clean(&self, host: &impl Host, mapping: &Mapping, from: u32, end: u64) -> Option<FolioId> {
        self.remove_range(host, mapping, from, end, Leaves::Clean)
    }

    /// Takes clean, unmapped pages out of the cache that nobody uses, as advice that they are not
    /// needed does. The others are moved to the old side instead.
    pub fn invalidate(&self, host: &impl Host, mapping: &Mapping, from: u32, end: u64, cpu: usize) {
        let mut at = from;
        loop {
            let next = mapping.lock(&self.leaves).next(at, end);
            let Some((index, slot)) = next else { return };
            if let Some(folio) = slot.folio()
                && self.remove_page(host, mapping, index, folio, Leaves::CleanAndUnmapped) != Removal::Done
            {
                lru::advise_cold(self, host, cpu, folio);
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
        let mut at = from;
        loop {
            let mut locked = mapping.lock(&self.leaves);
            let (index, slot) = locked.next(at, end)?;
            match slot.folio() {
                None => {
                    let entry = slot.shadow().filter(|_| mapping.kind() == Kind::Anon);
                    let stays = match leaves {
                        Leaves::Of(memcg) => entry.is_none_or(|entry| self.payer_of_entry(entry) != memcg),
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

    /// Removes one page.
    fn remove_page(
        &self,
        host: &impl Host,
        mapping: &Mapping,
        index: u32,
        folio: FolioId,
        leaves: Leaves,
    ) -> Removal {
        let flags = self.folios.flags(folio);
        // The folio is only known to be this page while its slot is looked at under the lock.
        let mut locked = mapping.lock(&self.leaves);
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
            Leaves::CleanAndUnmapped => now.dirty() || now.writeback() || now.mapped(),
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
        self.release_slot(host, folio);
        if flags.clear_dirty() && mapping.kind() == Kind::File {
            locked.tree.dirty.remove(&index);
            if locked.tree.dirty.is_empty() {
                self.flushing.note_clean(mapping);
            }
            self.count_pending(memcg, -1, 0);
        }
        drop(locked);
        if flags.leave_mapping() && mapping.kind() == Kind::File {
            memcg.stat.sub(Counter::FileMapped, 1);
        }
        if let Some(leaf) = shadow_leaf {
            self.note_shadow_leaf(memcg, leaf);
        }
        if flags.unlock() {
            host.wake_waiters(folio);
        }
        self.forget_folios(memcg, mapping.kind(), 1);
        self.put(host, folio);
        Removal::Done
    }
}
