//! Operations of a job, most of them accesses to one page.
//!
//! A page is named by 64 bits, which mean either a file in the high half and a position in the low
//! half, or an opaque key ([`Numbering`]).

use mglru_core::lru::Swappiness;
use mglru_core::{Lru, Time};
use mglru_workload::load::Step;
use mglru_workload::trace::{PageAccess, Record, RequestStart, Trim};
use std::error::Error;

/// The meaning of the 64 bits of a page name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Numbering {
    /// The high 32 bits name a file, the low 32 bits a position in it. Consecutive names are
    /// adjacent pages.
    #[default]
    Files,
    /// An opaque key. Pages get positions in one file in the order of their first access, so that
    /// per-page state stays dense.
    Keys,
}

/// An access to one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The page's name.
    pub page: u64,
    /// Whether it is a write.
    pub write: bool,
    /// Whether it goes through a mapping instead of a descriptor.
    pub mapped: bool,
    /// Anonymous memory, always through a mapping. `page` is in a separate name space from files.
    /// Without swap, such a page stays until it is released.
    pub anon: bool,
    /// Whether it begins inside of the page, so that it may continue the one before.
    pub inside: bool,
    /// Whether a mapped access is a fault: the process had no page-table entry for the page.
    pub fault: bool,
}

impl Access {
    /// A read through a descriptor.
    pub fn read(page: u64) -> Access {
        Access { page, write: false, mapped: false, anon: false, inside: false, fault: false }
    }

    /// Whether it is [`Self::read`] of some page.
    #[inline]
    pub(crate) fn is_plain_read(&self) -> bool {
        let Access { page: _, write, mapped, anon, inside, fault } = *self;
        !(write | mapped | anon | inside | fault)
    }

    /// A write through a descriptor.
    pub fn write(page: u64) -> Access {
        Access { write: true, ..Access::read(page) }
    }

    /// A load through a mapping.
    pub fn load(page: u64) -> Access {
        Access { mapped: true, ..Access::read(page) }
    }

    /// A load through a mapping by a process that had not mapped the page.
    pub fn fault(page: u64) -> Access {
        Access { fault: true, ..Access::load(page) }
    }

    /// A store through a mapping.
    pub fn store(page: u64) -> Access {
        Access { write: true, mapped: true, ..Access::read(page) }
    }

    /// The same access to anonymous memory.
    pub fn anon(self) -> Access {
        Access { anon: true, ..self }
    }
}

impl From<PageAccess> for Access {
    fn from(access: PageAccess) -> Access {
        let PageAccess { page, write, mapped, anon, inside, fault } = access;
        Access { page, write, mapped, anon, inside, fault }
    }
}

/// An operation of a job. Where it concerns a file, `page` is any page of that file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Accesses a page.
    Access(Access),
    /// Begins a request of several accesses, or through an open file that is known by number.
    Request(RequestStart),
    /// Loads from several of 64 pages through a mapping, in any order. Needs [`Numbering::Files`].
    Loads {
        /// The first of the 64 pages: a multiple of 64.
        first: u64,
        /// Bit `n` selects page `first + n`.
        pages: u64,
    },
    /// Writes the dirty pages of a file and waits for the device (`fsync`).
    Sync {
        /// A page of the file.
        page: u64,
    },
    /// Truncates a file before this page.
    Truncate {
        /// The first page that is cut off.
        page: u64,
    },
    /// Punches pages out of a file, dirty or not.
    Punch {
        /// The first page.
        page: u64,
        /// Number of pages.
        pages: u32,
    },
    /// Advises that pages are no longer needed (`fadvise`): clean pages are dropped at once.
    Discard {
        /// The first page.
        page: u64,
        /// Number of pages.
        pages: u32,
    },
    /// Keeps a page of a file in memory until the run ends, if it is there: reclaim rejects it. A
    /// file system does so with a block that it works on.
    Hold {
        /// The page.
        page: u64,
    },
    /// Unmaps a file from the job's address space (`munmap`).
    Unmap {
        /// A page of the file.
        page: u64,
    },
    /// Frees anonymous memory (`munmap`), both in memory and in swap.
    Release {
        /// The first page.
        page: u64,
        /// Number of pages.
        pages: u32,
    },
    /// Continues as another process of the job ([`crate::Simulator::add_job_of`]).
    Switch {
        /// Number of the process, from 0; the run ends with an error if the job does not have it.
        process: usize,
    },
    /// Switches the LRU policy while other jobs run, and waits until the switch is complete.
    SwitchLru {
        /// The new policy.
        to: Lru,
        /// Folios moved per step.
        folios: u32,
    },
    /// Keeps the job's CPU busy. Jobs of one CPU compute one after the other, in the order in which
    /// they ask. Accesses and waits need no CPU.
    Compute {
        /// Duration, in nanoseconds.
        nanos: u64,
    },
    /// Pauses the job.
    Rest {
        /// Duration, in nanoseconds.
        nanos: u64,
    },
    /// Pauses the job until a time, unless it has passed.
    RestUntil {
        /// Virtual time.
        time: Time,
    },
    /// Reclaims pages of a tenant and all below it (`memory.reclaim`).
    Reclaim(Request),
    /// Writes a control file, and waits until the write is done
    /// ([`crate::Simulator::control_writes`]).
    Control {
        /// Number of the write, from 0; a number without a write ends the run with an error.
        write: usize,
    },
    /// Removes a file. Its name then refers to a new, empty file.
    Remove {
        /// A page of the file.
        page: u64,
    },
}

/// A reclaim request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The machine's tenant number; `None`: the root. The run ends with an error if it has no such
    /// tenant.
    pub tenant: Option<usize>,
    /// Number of pages.
    pub pages: u64,
    /// Overrides the machine's swappiness.
    pub swappiness: Option<Swappiness>,
    /// Reclaims the whole request at once, as before requests were sliced
    /// ([`mglru_core::reclaim::Proactive::unsliced`]).
    pub unsliced: bool,
}

impl From<Access> for Operation {
    fn from(access: Access) -> Operation {
        Operation::Access(access)
    }
}

impl From<Step> for Operation {
    fn from(step: Step) -> Operation {
        match step {
            Step::Touch(access) => Operation::Access(access.into()),
            Step::Request { pages } => Operation::Request(RequestStart {
                pages,
                handle: RequestStart::NO_HANDLE,
                ends_inside: false,
            }),
            Step::Compute { nanos } => Operation::Compute { nanos },
            Step::Rest { nanos } => Operation::Rest { nanos },
            Step::Release { page, pages } => Operation::Release { page, pages },
            Step::Sync { page } => Operation::Sync { page },
        }
    }
}

impl From<Record> for Operation {
    fn from(record: Record) -> Operation {
        match record {
            Record::Access(access) => Operation::Access(access.into()),
            Record::Sync { file } => Operation::Sync { page: u64::from(file) << 32 },
            Record::Trim(Trim { page, pages }) => Operation::Punch { page, pages },
            Record::Request(request) => Operation::Request(request),
        }
    }
}

/// The error of a source.
pub type SourceError = Box<dyn Error + Send + Sync>;

/// A source of a job's operations. Every iterator over operations is a source.
pub trait Source {
    /// Puts the next available operations into the empty `batch`. An empty batch ends the job.
    ///
    /// # Errors
    /// The input cannot be read; the run ends with this error.
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError>;

    /// Called at time `now` before a batch is taken, after all operations of the previous batch are
    /// done.
    fn at(&mut self, now: Time) {
        let _ = now;
    }

    /// The time at which the job ends: no batch is taken from then on.
    fn end(&self) -> Option<Time> {
        None
    }
}

/// Operations per batch of an iterator: small enough for the first-level cache.
const BATCH_OPERATIONS: usize = 1024;

impl<I: Iterator<Item = Operation>> Source for I {
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        batch.extend(self.by_ref().take(BATCH_OPERATIONS));
        Ok(())
    }
}

/// A recorded trace as a source.
#[derive(Debug)]
pub struct TraceSource {
    reader: mglru_workload::trace::TraceReader,
    records: Vec<Record>,
}

impl TraceSource {
    /// The rest of the trace.
    pub fn new(reader: mglru_workload::trace::TraceReader) -> TraceSource {
        TraceSource { reader, records: Vec::new() }
    }
}

impl Source for TraceSource {
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        self.reader.next_batch(&mut self.records)?;
        batch.extend(self.records.iter().map(|&record| Operation::from(record)));
        Ok(())
    }
}
