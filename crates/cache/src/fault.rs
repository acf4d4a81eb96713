//! The miss path: charges a page that is not in memory, reads it once, and publishes it.
//!
//! Of all threads that want a page, the one that inserts the folio into the page's slot reads it.
//! The others find it pending, sleep until it is unlocked, and look again.
//!
//! # Locking
//!
//! While a page is charged or read, the thread holds only the locks of the folios being read, and
//! only readers of those pages wait for them. So other threads can always free the memory that a
//! fault waits for.

use crate::backend::{Direction, Transfer, as_worker};
use crate::error::Error;
#[cfg(feature = "async")]
use crate::flight::Outcome;
use crate::flight::{Flight, Waiter};
use crate::host::CacheHost;
use crate::inode::Inode;
use crate::shared::Shared;
use crate::trace::slow_path;
use mglru_core::readahead::{FillStep, Filling, ReadRun, Window};
use mglru_core::{
    Arrival, ChargeStep, Charging, FolioId, HostCharge, InsertError, Mapping, NewFolio, PAGE_BYTES, Task,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of attempts to charge the metadata of a file. Each attempt reclaims 32 pages, but frames
/// that are pinned as registered buffers cannot pay.
const PAYMENTS: u32 = 64;

/// The window of a page alone. A page that was evicted before its reader came back to it is read
/// again this way: in a memory smaller than the window, readahead would evict it every time.
pub(crate) fn alone(index: u32) -> Window {
    Window { first: index, pages: 1, mark: None }
}

/// Whether a read of `pages` pages that failed says nothing about one of them: another one may be
/// the unreadable one, so the wanted page is read again, alone. Some errors are of the whole file,
/// and a read that was waited for until the deadline is not waited for again.
pub(crate) fn may_be_of_another_page(kind: io::ErrorKind, pages: usize) -> bool {
    use io::ErrorKind as Kind;
    let is_of_the_file = matches!(
        kind,
        Kind::Deadlock
            | Kind::NotFound
            | Kind::PermissionDenied
            | Kind::StaleNetworkFileHandle
            | Kind::TimedOut
            | Kind::Unsupported
    );
    pages > 1 && !is_of_the_file
}

/// Metadata that was charged. Dropped, it is uncharged.
pub(crate) struct Metadata<'a> {
    shared: &'a Shared,
    charge: Option<HostCharge>,
}

impl Metadata<'_> {
    /// Hands the charge over; [`Shared::uncharge_metadata`] ends it.
    pub(crate) fn keep(mut self) -> HostCharge {
        self.charge.take().expect("it is taken once")
    }
}

impl Drop for Metadata<'_> {
    fn drop(&mut self) {
        if let Some(mut charge) = self.charge.take() {
            self.shared.uncharge_metadata(&mut charge);
        }
    }
}

impl Shared {
    /// Ends a charge of [`Self::charge_metadata`].
    pub(crate) fn uncharge_metadata(&self, charge: &mut HostCharge) {
        self.core.forget_host_bytes(charge.bytes());
        self.core.uncharge_host(charge);
        self.core.return_many_frames(&self.host);
    }

    /// Brings page `index` in, with as much of the surrounding window as is possible without
    /// waiting for memory. The page may have been in memory before, and may be evicted again before
    /// the caller looks it up.
    pub(crate) fn fault(
        &self,
        inode: &Arc<Inode>,
        task: &Task,
        index: u32,
        window: Window,
        arrival: Arrival,
    ) -> Result<(), Error> {
        inode.refuse_in_own_call()?;
        let marked = Arrival { readahead_mark: window.mark == Some(index), ..arrival };
        let Some(folio) = self.insert_new(inode, task, index, marked)? else { return Ok(()) };
        let memcg = task.memcg;
        let mut filling =
            Filling::around(&self.core, memcg, window, file_pages(inode), (index, folio), arrival);
        let mut result = Ok(());
        let mut pages = 0;
        while let Some(run) = self.fill(&mut filling, &inode.mapping, task) {
            if run.folios.contains(&folio) {
                pages = run.folios.len();
                result = self.read_pages(inode, folio, &run);
            } else {
                self.submit_read(inode, run, None);
            }
        }
        match result {
            Err(error) if may_be_of_another_page(error.kind(), pages) => {
                self.fault(inode, task, index, alone(index), arrival)
            }
            result => result,
        }
    }

    /// Starts reading an inserted page, with as much of the surrounding window as is possible
    /// without waiting. If the page cannot be read, it is given up, and `outcome` has the error.
    #[cfg(feature = "async")]
    pub(crate) fn submit_fault(
        &self,
        inode: &Arc<Inode>,
        task: &Task,
        (index, folio): (u32, FolioId),
        window: Window,
        arrival: Arrival,
        outcome: Arc<Outcome>,
    ) {
        let pages = file_pages(inode);
        let mut filling = Filling::around(&self.core, task.memcg, window, pages, (index, folio), arrival);
        while let Some(run) = self.fill(&mut filling, &inode.mapping, task) {
            let waiter = run.folios.contains(&folio).then(|| Waiter {
                outcome: outcome.clone(),
                pages: run.folios.len(),
                stall: self.core.begin_refault(&self.host, folio),
            });
            // A task never waits: others may have taken the room that it saw.
            as_worker(|| self.submit_read(inode, run, waiter));
        }
    }

    /// Starts reading a window asynchronously, unless the cache is closed. `waits`: waits for room
    /// in the queue of the device; otherwise a full queue takes the window, too.
    pub(crate) fn read_ahead(&self, inode: &Arc<Inode>, task: &Task, window: Window, waits: bool) {
        if self.stopping.load(Ordering::Acquire) {
            return;
        }
        let mut filling = Filling::ahead(&self.core, task.memcg, window, file_pages(inode), false);
        while let Some(run) = self.fill(&mut filling, &inode.mapping, task) {
            match waits {
                true => self.submit_read(inode, run, None),
                false => as_worker(|| self.submit_read(inode, run, None)),
            }
        }
    }

    /// Inserts one missing page, locked and without content, if no waiting is needed. `None`: the
    /// page is in memory already, there is no free memory, or the cache is closed.
    pub(crate) fn try_insert(&self, inode: &Inode, task: &Task, index: u32) -> Option<FolioId> {
        if self.stopping.load(Ordering::Acquire) {
            return None;
        }
        let mut filling = Filling::ahead(&self.core, task.memcg, alone(index), file_pages(inode), false);
        self.fill(&mut filling, &inode.mapping, task).map(|run| run.folios[0])
    }

    /// Inserts the next run of pages of a window, locked and without content. `None`: the window is
    /// done.
    fn fill(&self, filling: &mut Filling, mapping: &Mapping, task: &Task) -> Option<ReadRun> {
        loop {
            let step = filling.step(&self.core, &self.host, task, mapping);
            self.submit_swap_outs();
            self.reap_victims();
            match step {
                FillStep::More => {}
                FillStep::Read(run) => return Some(run),
                FillStep::Done => return None,
            }
        }
    }

    /// Starts reading inserted pages asynchronously.
    fn submit_read(&self, inode: &Arc<Inode>, run: ReadRun, waiter: Option<Waiter>) {
        let ReadRun { first, folios } = run;
        let transfer = self.transfer(inode, first, &folios);
        let flight = Flight::Read { inode: inode.clone(), folios, first, waiter };
        self.backend.submit(Direction::Read, transfer, self.in_flight.begin(flight));
    }

    /// Charges a page, waiting as long as reclaim may succeed and the cache is open. `page`: the
    /// page that the charge is for, if there is one.
    pub(crate) fn pay(
        &self,
        task: &Task,
        page: Option<(&Mapping, u32)>,
    ) -> Result<NewFolio<'_, CacheHost>, Error> {
        self.check_open()?;
        let charging = Charging::new(task.memcg, task.cpu);
        self.run_charge(match page {
            Some((mapping, index)) => charging.for_page(&self.core, mapping, index),
            None => charging,
        })
    }

    fn run_charge(&self, mut charging: Charging) -> Result<NewFolio<'_, CacheHost>, Error> {
        loop {
            let rings_before = self.host.progress.rings();
            let step = charging.step(&self.core, &self.host);
            self.submit_swap_outs();
            self.reap_victims();
            match step {
                ChargeStep::Charged(new) => return Ok(new),
                ChargeStep::More => {}
                ChargeStep::Wait(throttle) => {
                    if let Err(closed) = self.check_open() {
                        charging.cancel(&self.core, &self.host);
                        return Err(closed);
                    }
                    self.park(throttle, rings_before);
                }
                ChargeStep::OutOfMemory(report) => return Err(report.into()),
            }
        }
    }

    /// Charges `bytes` of metadata of this cache to the task's tenant and to the budget. Waits as
    /// long as reclaim may make room for them.
    pub(crate) fn charge_metadata(&self, task: &Task, bytes: u64) -> Result<Metadata<'_>, Error> {
        let charge = self.charge_to_tenant(task, bytes)?;
        self.core.count_host_bytes(bytes);
        let metadata = Metadata { shared: self, charge: Some(charge) };
        self.pay_for_index(task)?;
        Ok(metadata)
    }

    /// [`Self::charge_metadata`] without waiting. `None`: there is no room now.
    pub(crate) fn try_charge_metadata(&self, task: &Task, bytes: u64) -> Option<HostCharge> {
        if self.core.index_is_full() {
            return None;
        }
        let charge = self.core.charge_host(task.memcg, task.cpu, bytes).ok()?;
        // The next charge pays for what the index grows by.
        self.core.count_host_bytes(bytes);
        Some(charge)
    }

    /// Charges `bytes` of metadata to the task's tenant alone.
    pub(crate) fn charge_to_tenant(&self, task: &Task, bytes: u64) -> Result<HostCharge, Error> {
        self.core.charge_host(task.memcg, task.cpu, bytes).or_else(|_| {
            let charging = Charging::new(task.memcg, task.cpu).for_host(&self.core, bytes);
            Ok(self.run_charge(charging)?.into_host_charge())
        })
    }

    /// Charges the growth of index memory, if any.
    pub(crate) fn pay_for_index(&self, task: &Task) -> Result<(), Error> {
        for _ in 0..PAYMENTS {
            if !self.core.owes_frames() {
                return Ok(());
            }
            if !self.core.index_is_full() {
                // The index is charged together with a page, which is not needed here.
                drop(self.pay(task, None)?);
            } else if !self.core.give_up_index(&self.host) {
                break;
            }
        }
        // The other frames are reserved for pages.
        Err(Error::TooManyFiles { open: self.inodes().len() })
    }

    /// Charges and inserts one page that the caller fills. `None`: another thread was faster, so
    /// the caller looks again.
    pub(crate) fn insert_new(
        &self,
        inode: &Inode,
        task: &Task,
        index: u32,
        arrival: Arrival,
    ) -> Result<Option<FolioId>, Error> {
        let new = self.pay(task, Some((&inode.mapping, index)))?;
        match self.core.insert(&self.host, task, &inode.mapping, index, new, arrival) {
            Ok(folio) => Ok(Some(folio)),
            Err(InsertError::Occupied | InsertError::Unpaid) => Ok(None),
            Err(InsertError::Closed) => Err(Error::Closed),
        }
    }

    pub(crate) fn transfer(&self, inode: &Inode, first: u32, folios: &[FolioId]) -> Transfer {
        let frames = folios.iter().map(|folio| folio.0).collect();
        Transfer::pages(inode.file.clone(), u64::from(first) * PAGE_BYTES, frames)
    }

    /// Reads inserted pages on the calling thread, which waits for `wanted`, and publishes or
    /// abandons them.
    fn read_pages(&self, inode: &Arc<Inode>, wanted: FolioId, run: &ReadRun) -> Result<(), Error> {
        slow_path!(
            "read",
            file = tracing::field::display(inode.file.path().display()),
            page = run.first,
            pages = run.folios.len(),
        );
        let stall = self.core.begin_refault(&self.host, wanted);
        let result = self.backend.read(&self.transfer(inode, run.first, &run.folios));
        if let Some(stall) = stall {
            self.core.end_stall(&self.host, stall);
        }
        self.end_read(inode, run.first, &run.folios, result.as_ref().ok().copied());
        result.map(|_| ()).map_err(|source| inode.error("read", source))
    }

    /// Ends a read that returned `bytes`, or failed (`None`). Pages that a truncation has cut off
    /// on disk, but not here yet, are given up: their readers look again.
    pub(crate) fn end_read(&self, inode: &Inode, first: u32, folios: &[FolioId], bytes: Option<usize>) {
        let wanted = folios.len() * PAGE_BYTES as usize;
        let bytes = bytes.filter(|&bytes| bytes == wanted || !inode.being_cut.load(Ordering::SeqCst));
        if let Some(bytes) = bytes {
            let end = u64::from(first) * PAGE_BYTES + bytes as u64;
            inode.note_read(end, bytes, wanted);
            self.lock_inserted(inode, first, folios);
        }
        for &folio in folios {
            if bytes.is_some() {
                self.core.publish(&self.host, &inode.mapping, folio);
            } else {
                self.core.abandon(&self.host, &inode.mapping, folio);
            }
        }
        // The page was locked until now; reclaim can take it from here on.
        self.host.progress.ring();
    }
}

fn file_pages(inode: &Inode) -> u64 {
    inode.len().div_ceil(PAGE_BYTES)
}
