//! The miss path: a page that is not in memory is paid for, read once, and published.
//!
//! However many threads want a page, one reads it: who inserts the folio into the page's slot. The
//! others find it pending, sleep until it is unlocked, and look again.
//!
//! # Locking
//!
//! Nothing is held while a page is paid for or read, except the locks of the folios that are being
//! read, which only readers of those pages wait for. All memory that a fault waits for can
//! therefore be freed by others.

use crate::backend::{Direction, Transfer};
use crate::error::Error;
use crate::flight::Flight;
use crate::host::CacheHost;
use crate::inode::Inode;
use crate::shared::Shared;
use mglru_core::readahead::{FillStep, Filling, ReadRun, Window};
use mglru_core::{Arrival, ChargeStep, Charging, FolioId, InsertError, NewFolio, PAGE_BYTES, Task};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Shared {
    /// Brings page `index` in, and of the window around it what is to be had without waiting for
    /// memory. The page may be there before or gone again afterwards: look it up.
    pub(crate) fn fault(
        &self,
        inode: &Arc<Inode>,
        task: &Task,
        index: u32,
        window: Window,
        arrival: Arrival,
    ) -> Result<(), Error> {
        let marked = Arrival { readahead_mark: window.mark == Some(index), ..arrival };
        let Some(folio) = self.insert_new(inode, task, index, marked)? else { return Ok(()) };
        let memcg = task.memcg;
        let mut filling =
            Filling::around(&self.core, memcg, window, file_pages(inode), (index, folio), arrival);
        let mut result = Ok(());
        while let Some(run) = self.fill(&mut filling, inode, task) {
            match run.folios.contains(&folio) {
                true => result = self.read_pages(inode, folio, &run),
                false => self.submit_read(inode, run),
            }
        }
        match result {
            // A bad spot in what was read beside it must not fail the page that is wanted.
            Err(_) if window.pages > 1 => {
                self.fault(inode, task, index, Window { first: index, pages: 1, mark: None }, arrival)
            }
            result => result,
        }
    }

    /// Begins to read a window that nobody waits for.
    pub(crate) fn read_ahead(&self, inode: &Arc<Inode>, task: &Task, window: Window) {
        let mut filling = Filling::ahead(&self.core, task.memcg, window, file_pages(inode));
        while let Some(run) = self.fill(&mut filling, inode, task) {
            self.submit_read(inode, run);
        }
    }

    /// Inserts one missing page, if that needs no waiting: locked, without content. `None`: it is
    /// there already, or there is no memory.
    pub(crate) fn try_insert(&self, inode: &Inode, task: &Task, index: u32) -> Option<FolioId> {
        let window = Window { first: index, pages: 1, mark: None };
        let mut filling = Filling::ahead(&self.core, task.memcg, window, file_pages(inode));
        self.fill(&mut filling, inode, task).map(|run| run.folios[0])
    }

    /// Goes on with a window: the next pages to read, locked, without content. `None`: there are
    /// none.
    fn fill(&self, filling: &mut Filling, inode: &Inode, task: &Task) -> Option<ReadRun> {
        loop {
            let step = filling.step(&self.core, &self.host, task, &inode.mapping);
            self.submit_swap_outs();
            self.reap_victims();
            match step {
                FillStep::More => {}
                FillStep::Read(run) => return Some(run),
                FillStep::Done => return None,
            }
        }
    }

    /// Begins to read pages that were inserted, and that nobody here waits for.
    fn submit_read(&self, inode: &Arc<Inode>, run: ReadRun) {
        let ReadRun { first, folios } = run;
        let transfer = self.transfer(inode, first, &folios);
        let flight = Flight::Read { inode: inode.clone(), folios, first };
        self.backend.submit(Direction::Read, transfer, self.in_flight.begin(flight));
    }

    /// Pays for a page that somebody needs, and waits as long as there is hope.
    pub(crate) fn pay(&self, task: &Task) -> Result<NewFolio<'_, CacheHost>, Error> {
        if self.stopping.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        let mut charging = Charging::new(task.memcg, task.cpu);
        loop {
            let heard = self.host.progress.rings();
            let step = charging.step(&self.core, &self.host);
            self.submit_swap_outs();
            self.reap_victims();
            match step {
                ChargeStep::Charged(new) => return Ok(new),
                ChargeStep::More => {}
                ChargeStep::Wait(throttle) => self.park(throttle, heard),
                ChargeStep::OutOfMemory(report) => return Err(report.into()),
            }
        }
    }

    /// Pays for what is kept about files, where it grew.
    pub(crate) fn pay_for_index(&self, task: &Task) -> Result<(), Error> {
        if self.core.owes_frames() {
            if self.core.retired_pages() >= self.core.folios().len() / 2 {
                // The rest is for pages.
                return Err(Error::TooManyFiles { open: self.inodes().len() });
            }
            // The index is paid for together with a page, which is not needed.
            drop(self.pay(task)?);
        }
        Ok(())
    }

    /// Pays for and inserts one page that the caller fills itself. `None`: it is there already.
    pub(crate) fn insert_new(
        &self,
        inode: &Inode,
        task: &Task,
        index: u32,
        arrival: Arrival,
    ) -> Result<Option<FolioId>, Error> {
        let new = self.pay(task)?;
        match self.core.insert(&self.host, task, &inode.mapping, index, new, arrival) {
            Ok(folio) => Ok(Some(folio)),
            Err(InsertError::Occupied) => Ok(None),
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
        let stall = self.core.begin_refault(&self.host, wanted);
        let result = self.backend.read(&self.transfer(inode, run.first, &run.folios));
        if let Some(stall) = stall {
            self.core.end_stall(&self.host, stall);
        }
        self.end_read(inode, run.first, &run.folios, result.as_ref().ok().copied());
        result.map(|_| ()).map_err(|source| inode.error("read", source))
    }

    /// A read is over; so many bytes were there.
    pub(crate) fn end_read(&self, inode: &Inode, first: u32, folios: &[FolioId], bytes: Option<usize>) {
        if let Some(bytes) = bytes {
            let end = u64::from(first) * PAGE_BYTES + bytes as u64;
            inode.note_read(end, bytes, folios.len() * PAGE_BYTES as usize);
        }
        for &folio in folios {
            if bytes.is_some() {
                self.core.publish(&self.host, &inode.mapping, folio);
            } else {
                self.core.abandon(&self.host, &inode.mapping, folio);
            }
        }
        // A page that was locked until now can be freed.
        self.host.progress.ring();
    }
}

/// Pages of a file as far as it reaches now.
fn file_pages(inode: &Inode) -> u64 {
    inode.len().div_ceil(PAGE_BYTES)
}
