//! The flusher: writes dirty pages back, in file order and in large runs.
//!
//! The core decides when and what to write ([`Flusher`]) and how much to slow down faster writers
//! ([`Dirtier`]); this file executes its orders. Dirty pages of files without open handles are
//! written at once.
//!
//! # Locking
//!
//! The flusher holds no lock while it submits; pages under writeback hold references.

use crate::backend::{Direction, Transfer};
use crate::error::Error;
use crate::flight::Flight;
use crate::inode::{Failed, Inode};
use crate::shared::Shared;
use crate::source::source_of;
use crate::trace::slow_path;
use mglru_core::writeback::{Dirtier, Flusher, FlusherOptions, FlusherStep, WriteOrder};
use mglru_core::{Host, MemcgId, PAGE_BYTES, Throttle, Time};
use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest write while a thread waits for it: 1 MiB keeps a device busy and frees 256 pages when it
/// ends.
const RUN_PAGES: usize = 256;
/// Number of pauses, each up to 200 ms and without any page written, after which a writer gets the
/// write-back error. If every file with dirty pages fails, the pauses end with the next write
/// attempts.
const FRUITLESS_PAUSES: u32 = 16;

/// The pauses of one task before it dirties a page.
#[derive(Debug, Default)]
pub(crate) struct Pacing {
    has_paused: bool,
    /// Pauses in a row without any page written.
    fruitless: u32,
    /// Pages written when it was last asked.
    written: u64,
}

/// Time after which files that were held up are looked at again, and for which the flusher may wait
/// for a write before it looks why it was rung.
const HELD_UP: Duration = Duration::from_millis(100);

/// The result of a sync. The outer error is of the file's length, before anything was written. The
/// inner one is of a write, of the system's sync, or of the length afterwards.
pub(crate) type Synced = Result<Result<(), Error>, Error>;

/// A file is held up.
struct MustWait;

pub(super) fn run(shared: &Shared) {
    let mut flusher = Flusher::new(FlusherOptions::default(), shared.host.now());
    let mut rings_before = 0;
    let mut has_slept = true;
    let mut ended_before = 0;
    while !shared.stopping.load(Ordering::Acquire) {
        let at_work = shared.at_work.read();
        if shared.host.flush_for_reclaim.swap(false, Ordering::AcqRel) {
            flusher.ask();
        }
        if std::mem::take(&mut has_slept) {
            // Before the pass: it may have met the page whose write ends during it.
            ended_before = shared.host.writes_ended.load(Ordering::SeqCst);
            shared.want_idle(&mut flusher);
        }
        let now = shared.host.now();
        match flusher.step(&shared.core, &shared.host) {
            FlusherStep::Write(order) => match shared.write_ordered(order) {
                Ok(pages) => {
                    if let Some(until) = flusher.wrote(&shared.core, &shared.host, pages) {
                        drop(at_work);
                        rings_before = shared.await_write(rings_before, ended_before, until);
                        has_slept = true;
                    }
                }
                Err(MustWait) => {
                    if flusher.passed_over() {
                        drop(at_work);
                        rings_before = shared.host.flusher.wait(rings_before, HELD_UP);
                        has_slept = true;
                    }
                }
            },
            FlusherStep::Sleep(until) => {
                drop(at_work);
                rings_before = shared.host.flusher.wait(rings_before, until.since(now));
                has_slept = true;
            }
        }
    }
}

impl Shared {
    /// Sleeps until more writes than `ended_before` have ended, at most until `end`, and at most
    /// [`HELD_UP`] if the flusher is rung for another reason, such as a file that was closed.
    /// Returns the rings of the flusher, as its bell does.
    fn await_write(&self, mut rings_before: u64, ended_before: u64, mut end: Time) -> u64 {
        let host = &self.host;
        let patience = host.now() + HELD_UP;
        // Announce before checking: a write that ends rings, or ended before this check.
        host.flusher_awaits_write.store(true, Ordering::SeqCst);
        while host.writes_ended.load(Ordering::SeqCst) == ended_before
            && !self.stopping.load(Ordering::Acquire)
            && host.now() < end
        {
            let rings = host.flusher.wait(rings_before, end.since(host.now()));
            if rings > rings_before {
                end = end.min(patience);
            }
            rings_before = rings;
        }
        host.flusher_awaits_write.store(false, Ordering::SeqCst);
        rings_before
    }

    /// Forgets files without open handles, after writing their dirty pages.
    fn want_idle(&self, flusher: &mut Flusher) {
        for inode in self.inodes() {
            if inode.handles.load(Ordering::Acquire) == 0 {
                flusher.want(inode.mapping.id());
                self.forget_if_idle(&inode);
            }
        }
    }

    /// Executes an order of the core. Returns the positions of the pages whose write starts, if
    /// any.
    ///
    /// # Errors
    /// The flusher would have to wait for a truncation or for a source. Other files are not to wait
    /// for that.
    fn write_ordered(&self, order: WriteOrder) -> Result<Option<Range<u64>>, MustWait> {
        let Some(inode) = self.lock_inodes().of_mapping(order.mapping) else { return Ok(None) };
        if source_of(&inode.file).is_some() && !self.backend.has_room(&inode.file) {
            return Err(MustWait);
        }
        let number = inode.try_begin_transfer().ok_or(MustWait)?;
        Ok(self.submit_run(&inode, order.from, 1 << 32, order.pages_max as usize, number))
    }

    /// Starts writing all dirty pages.
    pub(crate) fn submit_dirty(&self, inode: &Arc<Inode>) {
        self.submit_dirty_in(inode, 0, 1 << 32);
    }

    /// Starts writing the dirty pages from `first` to `end`.
    pub(crate) fn submit_dirty_in(&self, inode: &Arc<Inode>, first: u32, end: u64) {
        let mut next = first;
        while let Some(pages) = self.submit_run(inode, next, end, RUN_PAGES, inode.begin_transfer()) {
            let Ok(after) = u32::try_from(pages.end) else { return };
            next = after;
        }
    }

    /// Starts writing the next run of dirty pages between `first` and `end`, at most `most` pages.
    /// Returns their positions, if there is such a run.
    ///
    /// The write is registered as `number` before pages are taken, because a sync that finds them
    /// clean waits for it; and before the length is read, because a truncation waits for it and
    /// lets none start meanwhile.
    fn submit_run(
        &self,
        inode: &Arc<Inode>,
        first: u32,
        end: u64,
        most: usize,
        number: u64,
    ) -> Option<Range<u64>> {
        let run = inode
            .writable()
            .and_then(|file| Some((file, self.core.start_writeback(&inode.mapping, first, end, most)?)));
        let Some((file, run)) = run else {
            inode.end_transfer(number);
            return None;
        };
        let pages = u64::from(run.first)..u64::from(run.first) + run.folios.len() as u64;
        let offset = pages.start * PAGE_BYTES;
        let run_end = (pages.end * PAGE_BYTES).min(inode.len());
        let bytes = run_end.saturating_sub(offset) as usize;
        let mut folios = run.folios;
        // Pages beyond the end are being truncated: they are not written, and are about to be
        // dropped.
        for folio in folios.split_off(bytes.div_ceil(PAGE_BYTES as usize)) {
            self.core.end_writeback(&self.host, &inode.mapping, folio, false, self.cpu());
        }
        if bytes == 0 {
            inode.end_transfer(number);
        } else {
            let frames = folios.iter().map(|folio| folio.0).collect();
            let transfer = Transfer { file, offset, frames, bytes };
            let flight = Flight::Write { inode: inode.clone(), folios, number, end: run_end };
            self.backend.submit(Direction::Write, transfer, self.in_flight.begin(flight));
        }
        Some(pages)
    }

    /// Writes all dirty pages and waits for them. Errors are recorded in the inode.
    pub(crate) fn write_out(&self, inode: &Arc<Inode>) {
        let errors = inode.error_count();
        // The first pass skips pages that were under writeback and dirtied again. If the flusher
        // takes them since, no page is dirty, and its writes are waited for in the second pass.
        for _ in 0..2 {
            self.submit_dirty(inode);
            inode.wait_for_transfers();
            if inode.error_count() != errors || !self.has_unwritten(inode) {
                return;
            }
        }
    }

    /// Writes all dirty pages of a file and waits until the system has synced it. All errors are
    /// recorded in the inode: the system reports each once, but every handle must report it.
    ///
    /// # Errors
    /// One that came up meanwhile: another sync through the same handle may have reported it, but
    /// this one cannot promise that the data is stored.
    pub(crate) fn write_out_and_sync(&self, inode: &Arc<Inode>, all: bool) -> Result<(), Error> {
        slow_path!("sync", file = tracing::field::display(inode.file.path().display()));
        let errors = inode.error_count();
        self.write_out(inode);
        let file = inode.writable().unwrap_or_else(|| inode.file.clone());
        if let Err(error) = if all { file.sync_all() } else { file.sync_data() } {
            inode.note_error(Failed::Sync, error);
        }
        inode.error_since(errors).map_or(Ok(()), Err)
    }

    /// Syncs a file for [`CachedFile::sync_data`], and finds out whether another process changed
    /// it.
    ///
    /// # Errors
    /// See [`Synced`].
    ///
    /// [`CachedFile::sync_data`]: crate::CachedFile::sync_data
    pub(crate) fn sync(&self, inode: &Arc<Inode>, all: bool) -> Synced {
        // Must come first: once our pages extend a file that another process truncated, the
        // truncation can no longer be seen.
        inode.revalidate(self)?;
        Ok(self.write_out_and_sync(inode, all).and_then(|()| inode.revalidate(self)))
    }

    /// Writes all dirty pages of a file. Fails if one of them could not be written now.
    pub(crate) fn write_back(&self, inode: &Arc<Inode>) -> Result<(), Error> {
        let errors = inode.error_count();
        self.write_out(inode);
        inode.error_since(errors).map_or(Ok(()), Err)
    }

    /// Pauses a task that dirties pages of a file faster than pages can be written.
    pub(crate) fn pause_dirtying(&self, memcg: MemcgId, inode: &Inode) -> Result<(), Error> {
        let mut pacing = Pacing::default();
        loop {
            let rings_before = self.host.progress.rings();
            match self.pace(memcg, inode, &mut pacing)? {
                None => return Ok(()),
                Some((pause, true)) => self.host.park(pause, rings_before),
                Some((pause, false)) => self.park(pause, rings_before),
            }
        }
    }

    /// The pause that a task must make now before it dirties a page of a file, if any, and whether
    /// the next failing write is the only event to wait for. Called again after the pause.
    ///
    /// # Errors
    /// The file's write-back error, if too many pages are refused; see [`Core::refuses_more`]. That
    /// of another file, if only failing writes are in the way.
    ///
    /// [`Core::refuses_more`]: mglru_core::Core::refuses_more
    pub(crate) fn pace(
        &self,
        memcg: MemcgId,
        inode: &Inode,
        pacing: &mut Pacing,
    ) -> Result<Option<(Throttle, bool)>, Error> {
        let mut dirtier = self.dirtier();
        if pacing.has_paused {
            let now = self.core.written_pages();
            pacing.fruitless = if now == pacing.written { pacing.fruitless + 1 } else { 0 };
            pacing.written = now;
        } else if dirtier.must_look() {
            pacing.written = self.core.written_pages();
        }
        self.check_open()?;
        if self.core.refuses_more(memcg, &inode.mapping)
            && let Some(error) = inode.error_since(0)
        {
            self.host.flusher.ring();
            return Err(error);
        }
        if !pacing.has_paused && !dirtier.must_look() {
            return Ok(None);
        }
        let pause = self.core.balance_dirty(&self.host, memcg, &mut dirtier);
        self.set_dirtier(dirtier);
        let Some(pause) = pause else {
            *pacing = Pacing::default();
            return Ok(None);
        };
        pacing.has_paused = true;
        // The pages in the way may belong to another file or tenant. A device that is merely slow
        // is waited for.
        match self.failing() {
            (Some(error), _) if pacing.fruitless >= FRUITLESS_PAUSES => {
                dirtier.look_again();
                self.set_dirtier(dirtier);
                Err(error)
            }
            (Some(_), all_fail) => Ok(Some((pause, all_fail))),
            (None, _) => Ok(Some((pause, false))),
        }
    }

    /// The error of a file whose write-back fails at present, if any, and whether all files with
    /// something to write fail.
    pub(crate) fn failing(&self) -> (Option<Error>, bool) {
        let (mut first, mut all_fail) = (None, true);
        for inode in self.inodes() {
            if self.has_unwritten(&inode) {
                let error = inode.failing();
                all_fail &= error.is_some();
                first = first.or(error);
            }
        }
        (first, all_fail)
    }

    /// Records that the calling thread dirtied a clean page.
    pub(crate) fn note_dirtied(&self) {
        let mut dirtier = self.dirtier();
        dirtier.dirtied();
        self.set_dirtier(dirtier);
    }

    /// The calling thread's dirtying state in this cache. Without one it looks first: a thread that
    /// is new, or that writes to many caches, must pause as well.
    fn dirtier(&self) -> Dirtier {
        let (cache, dirtier) = DIRTIERS.with(|places| places[self.place_of_dirtier()].get());
        if cache == self.number {
            return dirtier;
        }
        let mut new = Dirtier::default();
        new.look_again();
        new
    }

    fn set_dirtier(&self, dirtier: Dirtier) {
        DIRTIERS.with(|places| places[self.place_of_dirtier()].set((self.number, dirtier)));
    }

    fn place_of_dirtier(&self) -> usize {
        (self.number % DIRTIER_PLACES as u64) as usize
    }
}

/// Caches in which a thread that writes to all of them has a state.
const DIRTIER_PLACES: usize = 4;

thread_local! {
    /// Per thread: numbers of caches, and the thread's states in them, by the caches' numbers.
    static DIRTIERS: [Cell<(u64, Dirtier)>; DIRTIER_PLACES] = Default::default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{BackendKind, MemoryFiles};
    use crate::{OpenMode, PageCache};
    use mglru_core::FlushReason;

    /// All dirty pages have an older version under writeback, and the device stands still: the
    /// flusher hears of another file that is closed, and not only when its timer runs out or a
    /// write ends.
    #[test]
    fn while_it_waits_for_a_write_the_flusher_hears_of_closed_files() {
        let files = MemoryFiles::new(1);
        let cache = PageCache::builder(2 << 20).backend(BackendKind::Memory(files.clone())).build().unwrap();
        let open = |name: &str| cache.open(name, OpenMode::Create).unwrap();
        let (first, second) = (open("first"), open("second"));
        let host = &first.shared.host;
        second.write_at(b"closed", 0).unwrap();
        second.sync_data().unwrap();
        files.hold();
        first.write_at(b"older", 0).unwrap();
        first.shared.submit_dirty(&first.inode);
        first.write_at(b"newer", 0).unwrap();
        files.wait_held(1);
        let sleeps = || host.flusher.sleeps.load(Ordering::SeqCst);
        // It looks at the first file, whose page it cannot write.
        let before = sleeps() + host.progress.sleeps.load(Ordering::SeqCst);
        host.wake_flusher(FlushReason::Reclaim);
        while sleeps() + host.progress.sleeps.load(Ordering::SeqCst) == before
            || host.flush_for_reclaim.load(Ordering::SeqCst)
        {
            std::thread::yield_now();
        }
        second.write_at(b"is now", 0).unwrap();
        drop(second);
        files.wait_held(2);
        let missed = host.progress.sleeps.load(Ordering::SeqCst);
        files.release();
        assert_eq!(missed, 0, "the flusher slept until a write ended or its timer ran out");
        // Of both files: the write of the closed one may still be under way.
        cache.sync().unwrap();
        assert!(
            files.contents("first").unwrap() == b"newer" && files.contents("second").unwrap() == b"is now"
        );
    }
}
