//! Batches of folios on their way to a list: new ones, activated ones, rotated ones.
//!
//! A list is changed under the lruvec lock, so folios are collected and added 31 at a time. This is more than an
//! optimisation: where a new folio goes depends on whether it was accessed *before its batch was drained*, and
//! that decides how many generations are made (spec 97 §2, B = 1 against B = 31).
//!
//! # Locking
//!
//! One set of batches per CPU, each behind a lock that is never held while anything else is locked: a full
//! batch is taken out first and drained afterwards. Every queued folio carries a reference of its batch.

use crate::folio::FolioId;
use crate::sync::Mutex;

/// Folios per batch (spec 00 §7; 15 before Linux 6.2).
pub(crate) const BATCH_FOLIOS: usize = 31;

/// Where a queued folio is going. Drained in this order (spec 10 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// New: onto a list for the first time.
    Add = 0,
    /// Its write-back ended and it is to be freed: to the tail of the oldest generation.
    Rotate = 1,
    /// Advised to be unneeded, perhaps dirty: to the old side.
    DeactivateFile = 2,
    /// Found young by eviction beside the folio it looked at: to a younger generation. Classic: accessed twice.
    Activate = 3,
}

impl Queue {
    pub(crate) const ALL: [Queue; 4] = [Queue::Add, Queue::Rotate, Queue::DeactivateFile, Queue::Activate];
}

/// Up to 31 folios, in order of arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    folios: [FolioId; BATCH_FOLIOS],
    len: usize,
}

impl Batch {
    const EMPTY: Batch = Batch { folios: [FolioId(0); BATCH_FOLIOS], len: 0 };

    pub(crate) fn as_slice(&self) -> &[FolioId] {
        &self.folios[..self.len]
    }
}

/// The batches of all CPUs.
#[derive(Debug)]
pub(crate) struct Arrivals {
    cpus: Box<[Mutex<[Batch; Queue::ALL.len()]>]>,
    batch_folios: usize,
}

impl Arrivals {
    /// Batches of `batch_folios` (1…31) for `cpus` CPUs.
    pub(crate) fn new(cpus: usize, batch_folios: usize) -> Arrivals {
        assert!(cpus > 0 && (1..=BATCH_FOLIOS).contains(&batch_folios));
        Arrivals { cpus: (0..cpus).map(|_| Mutex::new([Batch::EMPTY; 4])).collect(), batch_folios }
    }

    pub(crate) fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Queues a folio; the batch, if it is full now and must be drained. `classic`: the policy.
    pub(crate) fn push(&self, cpu: usize, queue: Queue, folio: FolioId, classic: bool) -> Option<Batch> {
        let mut batches = self.cpus[cpu % self.cpus.len()].lock();
        let batch = &mut batches[queue as usize];
        batch.folios[batch.len] = folio;
        batch.len += 1;
        // Arrivals are configurable, as in the golden traces of spec 97: §2, and §5 with activations.
        let small = queue == Queue::Add || classic && queue == Queue::Activate;
        let full = if small { self.batch_folios } else { BATCH_FOLIOS };
        if batch.len < full {
            return None;
        }
        Some(std::mem::replace(batch, Batch::EMPTY))
    }

    /// Does something about a folio while it is in a batch, which cannot be drained meanwhile; nothing if it is not there.
    /// What came last is looked at first.
    pub(crate) fn while_queued(&self, cpu: usize, queue: Queue, folio: FolioId, act: impl FnOnce()) {
        let batches = self.cpus[cpu % self.cpus.len()].lock();
        if batches[queue as usize].as_slice().iter().rev().any(|&queued| queued == folio) {
            act();
        }
    }

    /// Takes what is queued.
    pub(crate) fn take(&self, cpu: usize, queue: Queue) -> Option<Batch> {
        let mut batches = self.cpus[cpu % self.cpus.len()].lock();
        let batch = &mut batches[queue as usize];
        if batch.len == 0 {
            return None;
        }
        Some(std::mem::replace(batch, Batch::EMPTY))
    }

    /// Everything that is queued now, for validation.
    pub(crate) fn queued(&self) -> Vec<(Queue, FolioId)> {
        let mut all = Vec::new();
        for cpu in &self.cpus {
            let batches = cpu.lock();
            for queue in Queue::ALL {
                all.extend(batches[queue as usize].as_slice().iter().map(|&folio| (queue, folio)));
            }
        }
        all
    }
}
