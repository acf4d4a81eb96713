//! The queues of each CPU: batches of folios on their way to a list.
//!
//! # Locking
//!
//! Each CPU's batches have a lock, under which nothing else is locked, and which covers their
//! words. Each queued folio holds a reference for its batch.

use crate::folio::FolioId;
use crate::sync::{Lock, Mutex, NumberStack};

/// Folios per batch ([book: overview#constants]; 15 in Linux 6.1).
pub(crate) const BATCH_FOLIOS: usize = 31;

/// The purpose of a batch. Queues are drained in this order ([book: folios#batches]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// A new folio, to be put on its first list.
    Add = 0,
    /// Its writeback ended and it is to be freed: to the tail of the oldest generation.
    Rotate = 1,
    /// Advised to be unneeded, perhaps dirty: to the old side.
    DeactivateFile = 2,
    /// Found young beside a folio under eviction: to a younger generation. Classic: accessed twice.
    Activate = 3,
}

impl Queue {
    pub(crate) const ALL: [Queue; 4] = [Queue::Add, Queue::Rotate, Queue::DeactivateFile, Queue::Activate];
}

/// A batch of up to 31 folios that was taken out, in order of arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    folios: [FolioId; BATCH_FOLIOS],
    len: usize,
}

impl Batch {
    pub(crate) fn as_slice(&self) -> &[FolioId] {
        &self.folios[..self.len]
    }
}

/// The batches of a CPU, each in order of arrival.
#[derive(Debug)]
struct CpuBatches {
    lock: Lock,
    queues: [NumberStack; Queue::ALL.len()],
}

impl CpuBatches {
    fn new() -> CpuBatches {
        CpuBatches { lock: Lock::default(), queues: Queue::ALL.map(|_| NumberStack::new(BATCH_FOLIOS)) }
    }

    /// Takes all folios of a queue, with the lock held.
    fn take(&self, queue: Queue) -> Batch {
        let queued = &self.queues[queue as usize];
        let mut batch = Batch { folios: [FolioId(0); BATCH_FOLIOS], len: queued.len() };
        batch.folios.iter_mut().zip(queued.iter()).for_each(|(folio, number)| *folio = FolioId(number));
        queued.clear();
        batch
    }
}

#[derive(Debug)]
pub(crate) struct Arrivals {
    cpus: Box<[CpuBatches]>,
    batch_folios: usize,
    /// The folio whose drain is stopped ([`crate::Core::stall_drain`]).
    stalled: Mutex<Option<FolioId>>,
}

impl Arrivals {
    /// Batches of `batch_folios` folios (1 to 31) for `cpus` CPUs.
    pub(crate) fn new(cpus: usize, batch_folios: usize) -> Arrivals {
        assert!(cpus > 0 && (1..=BATCH_FOLIOS).contains(&batch_folios));
        let cpus = (0..cpus).map(|_| CpuBatches::new()).collect();
        Arrivals { cpus, batch_folios, stalled: Mutex::new(None) }
    }

    /// Notes the folio as the one whose drain is stopped, unless there is one or `take` fails.
    pub(crate) fn stall(&self, folio: FolioId, take: impl FnOnce() -> bool) -> bool {
        let mut stalled = self.stalled.lock();
        let may = stalled.is_none() && take();
        if may {
            *stalled = Some(folio);
        }
        may
    }

    /// Forgets the folio whose drain is stopped, and returns it.
    pub(crate) fn resume(&self) -> Option<FolioId> {
        self.stalled.lock().take()
    }

    /// The folio whose drain is stopped.
    pub(crate) fn stalled(&self) -> Option<FolioId> {
        *self.stalled.lock()
    }

    pub(crate) fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Queues a folio. Returns the batch if it is full and must be drained. `small_activations`:
    /// batches of activated folios, too, have the configured size.
    #[inline]
    pub(crate) fn push(
        &self,
        cpu: usize,
        queue: Queue,
        folio: FolioId,
        small_activations: bool,
    ) -> Option<Batch> {
        let cpu = self.cpu(cpu);
        let _held = cpu.lock.lock();
        let queued = &cpu.queues[queue as usize];
        queued.push(folio.0);
        // The golden traces configure the size of arrivals
        // ([book: golden-traces#descriptor-traces]) and of activations
        // ([book: golden-traces#classic-traces]).
        let small = queue == Queue::Add || small_activations && queue == Queue::Activate;
        let full = if small { self.batch_folios } else { BATCH_FOLIOS };
        (queued.len() >= full).then(|| cpu.take(queue))
    }

    fn cpu(&self, cpu: usize) -> &CpuBatches {
        // The division is for hosts that number their threads without end.
        self.cpus.get(cpu).unwrap_or_else(|| &self.cpus[cpu % self.cpus.len()])
    }

    /// Runs `act` if the folio is in the batch, which cannot be drained meanwhile. Searches from
    /// the last arrival on.
    pub(crate) fn while_queued(&self, cpu: usize, queue: Queue, folio: FolioId, act: impl FnOnce()) {
        let cpu = self.cpu(cpu);
        let _held = cpu.lock.lock();
        if cpu.queues[queue as usize].iter().rev().any(|queued| queued == folio.0) {
            act();
        }
    }

    pub(crate) fn take(&self, cpu: usize, queue: Queue) -> Option<Batch> {
        let cpu = self.cpu(cpu);
        let _held = cpu.lock.lock();
        (cpu.queues[queue as usize].len() > 0).then(|| cpu.take(queue))
    }

    /// All queued folios, for validation.
    pub(crate) fn queued(&self) -> Vec<(Queue, FolioId)> {
        let mut all = Vec::new();
        for cpu in &self.cpus {
            let _held = cpu.lock.lock();
            for queue in Queue::ALL {
                all.extend(cpu.queues[queue as usize].iter().map(|folio| (queue, FolioId(folio))));
            }
        }
        all
    }
}
