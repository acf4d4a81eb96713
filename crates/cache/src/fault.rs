//! The miss path: a page that is not in memory is paid for, read once, and published.
//!
//! However many threads want a page, one reads it: who inserts the folio into the page's slot. The others find it
//! pending, sleep until it is unlocked, and look again.
//!
//! # Locking
//!
//! Nothing is held while a page is paid for or read, except the locks of the folios that are being read, which only
//! readers of those pages wait for. All memory that a fault waits for can therefore be freed by others.

use crate::backend::{Direction, Transfer};
use crate::cache::Shared;
use crate::error::Error;
use crate::host::CacheHost;
use crate::inode::Inode;
use crate::workers::Flight;
use mglru_core::readahead::Window;
use mglru_core::{Arrival, ChargeStep, Charging, FolioId, InsertError, Lookup, NewFolio, PAGE_BYTES, Task};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How much a fault may wait for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// As long as there is hope: somebody needs the page.
    Needed,
    /// Not at all: the page is only likely to be needed.
    Ahead,
}

impl Shared {
    /// Brings page `window.first` in, and the rest of the window as far as memory is to be had without waiting.
    /// `window.first` may be there before or gone again afterwards: look it up.
    pub(crate) fn fault(
        &self,
        inode: &Arc<Inode>,
        task: &Task,
        window: Window,
        arrival: Arrival,
    ) -> Result<(), Error> {
        let folios = self.insert_window(inode, task, window, arrival, Patience::Needed)?;
        if folios.is_empty() {
            return Ok(());
        }
        match self.read_pages(inode, window.first, &folios) {
            Ok(()) => Ok(()),
            // A bad spot in what was read ahead must not fail the page that is wanted.
            Err(_) if folios.len() > 1 => {
                self.fault(inode, task, Window { pages: 1, mark: None, ..window }, arrival)
            }
            Err(error) => Err(error),
        }
    }

    /// Begins to read a window that nobody waits for.
    pub(crate) fn read_ahead(&self, inode: &Arc<Inode>, task: &Task, window: Window) {
        let arrival = Arrival::default();
        // Pages that are there already split the window.
        let file_end = inode.len().div_ceil(PAGE_BYTES);
        let (mut at, end) =
            (u64::from(window.first), (u64::from(window.first) + u64::from(window.pages)).min(file_end));
        while at < end {
            let first = at as u32;
            if !matches!(self.core.lookup(&inode.mapping, first), Lookup::Miss) {
                at += 1;
                continue;
            }
            let rest = Window { first, pages: (end - at) as u32, mark: window.mark };
            // Out of memory ends readahead, and nobody needs to know.
            let Ok(folios) = self.insert_window(inode, task, rest, arrival, Patience::Ahead) else { return };
            if folios.is_empty() {
                at += 1;
                continue;
            }
            at += folios.len() as u64;
            let transfer = self.transfer(inode, first, &folios);
            let flight = Flight::Read { inode: inode.clone(), folios, first };
            self.backend.submit(Direction::Read, transfer, self.in_flight.begin(flight));
        }
    }

    /// Inserts as many consecutive pages of a window as are missing; locked, without content. Empty: the first is
    /// there already.
    pub(crate) fn insert_window(
        &self,
        inode: &Inode,
        task: &Task,
        window: Window,
        arrival: Arrival,
        patience: Patience,
    ) -> Result<Vec<FolioId>, Error> {
        let end = inode.len().div_ceil(PAGE_BYTES);
        let most = self.pages_ahead_max(task).clamp(1, u64::from(window.pages)) as u32;
        let mut folios = Vec::with_capacity(most as usize);
        // The last page of the largest file has no successor.
        for index in window.first..=window.first.saturating_add(most - 1) {
            let needed = index == window.first && patience == Patience::Needed;
            if !needed && u64::from(index) >= end {
                break;
            }
            let new = match self.pay(task, if needed { Patience::Needed } else { Patience::Ahead }) {
                Ok(new) => new,
                Err(error) if needed => return Err(error),
                Err(_) => break,
            };
            let arrival = Arrival { readahead_mark: window.mark == Some(index), ..arrival };
            match self.core.insert(&self.host, task, &inode.mapping, index, new, arrival) {
                Ok(folio) => folios.push(folio),
                Err(InsertError::Closed) if needed => return Err(Error::Closed),
                Err(InsertError::Occupied | InsertError::Closed) => break,
            }
        }
        Ok(folios)
    }

    /// How much may be read ahead at once: a quarter of a small tenant's memory, or of all, is enough.
    pub(crate) fn pages_ahead_max(&self, task: &Task) -> u64 {
        self.core.memcg(task.memcg).max_pages().min(u64::from(self.core.folios().len())) / 4
    }

    /// Pays for a page.
    fn pay(&self, task: &Task, patience: Patience) -> Result<NewFolio<'_, CacheHost>, Error> {
        if self.stopping.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        let mut charging = Charging::new(task.memcg, task.cpu);
        if patience == Patience::Ahead {
            charging = charging.optional();
        }
        loop {
            let heard = self.host.progress.rings();
            let step = charging.step(&self.core, &self.host);
            self.submit_swap_outs();
            self.reap_victims();
            match step {
                ChargeStep::Charged(new) => return Ok(new),
                ChargeStep::More => {}
                ChargeStep::Wait(throttle) if patience == Patience::Needed => self.park(throttle, heard),
                // What it holds so far is given back.
                ChargeStep::Wait(_) => {
                    charging.cancel(&self.core, &self.host);
                    return Err(Error::Busy);
                }
                ChargeStep::OutOfMemory(report) => return Err(report.into()),
            }
        }
    }

    /// Pays for a page of anonymous memory.
    pub(crate) fn pay_for_page(&self, task: &Task) -> Result<NewFolio<'_, CacheHost>, Error> {
        self.pay(task, Patience::Needed)
    }

    /// Pays for what is kept about files, where it grew.
    pub(crate) fn pay_for_index(&self, task: &Task) -> Result<(), Error> {
        if self.core.owes_frames() {
            if self.core.retired_pages() >= self.core.folios().len() / 2 {
                // The rest is for pages.
                return Err(Error::TooManyFiles { open: self.inodes().len() });
            }
            // The index is paid for together with a page, which is not needed.
            drop(self.pay(task, Patience::Needed)?);
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
        let new = self.pay(task, Patience::Needed)?;
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

    /// Reads inserted pages on the calling thread, and publishes or abandons them.
    fn read_pages(&self, inode: &Arc<Inode>, first: u32, folios: &[FolioId]) -> Result<(), Error> {
        // The others are read ahead.
        let stall = self.core.begin_refault(&self.host, folios[0]);
        let result = self.backend.read(&self.transfer(inode, first, folios));
        if let Some(stall) = stall {
            self.core.end_stall(&self.host, stall);
        }
        self.end_read(inode, first, folios, result.as_ref().ok().copied());
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
