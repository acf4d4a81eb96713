//! Queues folios for the lists, and drains the batches: new, rotated, deactivated and activated
//! folios.
//!
//! Adding to a list takes the lruvec lock, so folios are collected and added 31 at a time. Batches
//! are more than an optimisation: a new folio's generation depends on accesses *before its batch is
//! drained*, and that decides how many generations are created
//! ([book: golden-traces#descriptor-traces], B = 1 against B = 31).
//!
//! # Locking
//!
//! A full batch is taken out under the lock of its CPU and drained afterwards.

use super::batches::Queue;
use super::{LockedLruvec, emit, order};
use crate::Core;
use crate::event::ListedFrom;
use crate::folio::FolioId;
use crate::host::Host;
use crate::memcg::{Counter, Memcg, MemcgId};

impl Core {
    /// Queues a folio with a reference of its own, and drains the batch if it is full. Does nothing
    /// if the folio waits in many batches already.
    pub(crate) fn enqueue(&self, host: &impl Host, cpu: usize, queue: Queue, folio: FolioId) {
        if self.folios.flags(folio).try_get_queued() {
            self.enqueue_held(host, cpu, queue, folio);
        }
    }

    /// Queues a folio with the caller's reference, and drains the batch if it is full.
    pub(crate) fn enqueue_held(&self, host: &impl Host, cpu: usize, queue: Queue, folio: FolioId) {
        if let Some(batch) = self.arrivals.push(cpu, queue, folio, self.habits().activates_in_arrival_batches)
        {
            self.drain_batch(host, queue, batch.as_slice());
        }
    }

    /// Sends a folio that was written to be evicted next. Until its batch is drained it stays where
    /// it is on its list; a scan that takes it cannot free it.
    pub(crate) fn rotate(&self, host: &impl Host, cpu: usize, folio: FolioId) {
        if !self.folios.flags(folio).try_get_queued() {
            return;
        }
        if self.habits().rotates_at_once {
            self.drain_batch(host, Queue::Rotate, &[folio]);
        } else {
            self.enqueue_held(host, cpu, Queue::Rotate, folio);
        }
    }

    /// Stops a CPU in the middle of a drain: it has taken over the folio's place on its list and
    /// waits for the lock of the lists. No scan can take the folio before [`Core::resume_drain`].
    /// For a simulator of CPUs that lose time there ([book: fidelity#fidelity-kills]). `false`:
    /// the folio's place is not to be had, or a drain is stopped already.
    pub fn stall_drain(&self, folio: FolioId) -> bool {
        self.arrivals.stall(folio, || self.folios.flags(folio).hold_place())
    }

    /// Goes on with the drain that [`Core::stall_drain`] stopped: moves the folio to be evicted
    /// next.
    pub fn resume_drain(&self, host: &impl Host) {
        if let Some(folio) = self.arrivals.resume() {
            self.folios.flags(folio).return_place();
            self.drain_batch(host, Queue::Rotate, &[folio]);
        }
    }

    /// Drains the batches of one CPU: puts the folios queued there on their lists.
    pub fn drain(&self, host: &impl Host, cpu: usize) {
        for queue in Queue::ALL {
            if let Some(batch) = self.arrivals.take(cpu, queue) {
                self.drain_batch(host, queue, batch.as_slice());
            }
        }
    }

    /// Drains the batches of all CPUs, so that every folio is on a list.
    pub fn drain_all(&self, host: &impl Host) {
        (0..self.arrivals.cpus()).for_each(|cpu| self.drain(host, cpu));
    }

    /// Moves queued folios to their lists, with one lock hold per run of folios of one lruvec
    /// ([book: folios#batches]).
    pub(crate) fn drain_batch(&self, host: &impl Host, queue: Queue, folios: &[FolioId]) {
        if self.mechanisms().prefetch() {
            // Neighbours in the table have been written by other CPUs since the folio arrived, and
            // the lists are locked while a word comes back.
            for &folio in folios {
                host.prefetch(self.folios.flags(folio));
                host.prefetch(self.folios.links(folio));
            }
        }
        let mut rest = folios;
        while let Some(&first) = rest.first() {
            let (memcg, mut locked) = self.lock_owner_of(first);
            // The lock fixes the owner of a folio.
            let is_of_memcg = |folio: FolioId| {
                self.folios.memcg_of(folio) == memcg.id() || std::ptr::eq(self.owner_of(folio), memcg)
            };
            let run = rest.iter().take_while(|&&folio| is_of_memcg(folio)).count();
            let mut went = Vec::new();
            for &folio in &rest[..run] {
                went.extend(self.drain_one(host, memcg, &mut locked, queue, folio));
            }
            order::grew(self, memcg);
            drop(locked);
            self.release_unused(&went);
            rest = &rest[run..];
        }
        folios.iter().for_each(|&folio| self.put(host, folio));
    }

    /// Puts isolated folios of a memcg back on its lists in order, under one hold of the lruvec
    /// lock, and drops the references of their isolation. `true` beside a folio sends it to the
    /// unevictable list, if it is still locked in memory. Leaves `folios` empty.
    pub(super) fn put_back_isolated(
        &self,
        host: &impl Host,
        memcg: MemcgId,
        folios: &mut Vec<(FolioId, bool)>,
    ) {
        if folios.is_empty() {
            return;
        }
        let (owner, mut locked) = self.lock_living(memcg);
        let mut went = Vec::new();
        for &(folio, unevictable) in folios.iter() {
            went.extend(self.adopt(owner, folio));
            // Once more, under the lock: a thread that has unlocked it in memory meanwhile found it
            // on no list ([`Core::rescue`]).
            if unevictable && self.folios.flags(folio).load().mlocked() {
                locked.add_unevictable(folio);
            } else {
                locked.place(folio, false);
            }
            emit::listed(self, host, owner, folio, ListedFrom::Isolation);
        }
        order::grew(self, owner);
        drop(locked);
        self.release_unused(&went);
        for (folio, _) in folios.drain(..) {
            self.put(host, folio);
        }
    }

    /// Moves one folio. Returns its former owner, if that was removed meanwhile.
    fn drain_one(
        &self,
        host: &impl Host,
        memcg: &Memcg,
        locked: &mut LockedLruvec<'_>,
        queue: Queue,
        folio: FolioId,
    ) -> Option<MemcgId> {
        let flags = &self.folios.flags(folio);
        if queue == Queue::Add {
            // With only the batch's reference left, it is freed instead.
            if flags.load().references() > 1 {
                let went = self.adopt(memcg, folio);
                if flags.load().mlocked() {
                    locked.add_unevictable(folio);
                } else {
                    locked.place_new(self, host, folio);
                }
                emit::listed(self, host, memcg, folio, queue.into());
                return went;
            }
            return None;
        }
        let now = flags.load();
        let leave = match queue {
            Queue::Rotate => false,
            Queue::DeactivateFile => now.mapped(),
            Queue::Activate | Queue::Add => now.active(),
        };
        if leave || now.unevictable() || !flags.clear_lru() {
            return None;
        }
        locked.remove(folio);
        match queue {
            Queue::Rotate => {
                locked.rotated(folio);
                locked.place(folio, true);
                memcg.stat.add(Counter::Pgrotated, 1);
            }
            Queue::DeactivateFile => {
                let counts = locked.make_cold(folio);
                let dirty = now.dirty() || now.writeback();
                locked.place(folio, !dirty);
                if dirty {
                    // Set after adding: the folio goes to the old side and is rotated when its
                    // writeback ends.
                    flags.set_reclaim();
                }
                if counts {
                    memcg.stat.add(Counter::Pgdeactivate, 1);
                }
            }
            Queue::Activate | Queue::Add => {
                flags.set_active();
                locked.place(folio, false);
                memcg.stat.add(Counter::Pgactivate, 1);
            }
        }
        emit::listed(self, host, memcg, folio, queue.into());
        None
    }

    /// Locks a folio in memory, or unlocks it. Reclaim moves a locked folio to the unevictable list
    /// when it meets it.
    pub fn set_mlocked(&self, folio: FolioId, mlocked: bool) {
        self.folios.flags(folio).set_mlocked(mlocked);
    }

    /// Puts a folio from the unevictable list back on its list, if it may be reclaimed again.
    pub fn rescue(&self, folio: FolioId) {
        let flags = &self.folios.flags(folio);
        let (memcg, mut locked) = self.lock_owner_of(folio);
        let now = flags.load();
        if now.unevictable() && !now.mlocked() && flags.clear_lru() {
            locked.remove(folio);
            locked.place(folio, false);
            order::grew(self, memcg);
        }
    }
}
