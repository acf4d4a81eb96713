//! What a job does: a stream of operations, most of them touches of one page.
//!
//! A page is named by 64 bits. What they mean is the machine's choice ([`Numbering`]): a file in
//! the high half and a position in the low half, or an opaque key.

use mglru_core::lru::Swappiness;
use mglru_core::{Lru, Time};
use mglru_workload::load::Step;
use mglru_workload::trace::{PageAccess, Record};
use std::error::Error;

/// What the 64 bits of a page name mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Numbering {
    /// The high 32 bits name a file, the low 32 bits a position in it. Neighbours are neighbours.
    #[default]
    Files,
    /// An opaque key, the same for all operations that name one. Pages get positions in one file in
    /// the order in which they are first touched, so that what is kept per page stays dense.
    Keys,
}

/// One touch of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Which page.
    pub page: u64,
    /// It is written to.
    pub write: bool,
    /// Through a mapping, not through a descriptor.
    pub mapped: bool,
    /// Anonymous memory, through a mapping: `page` is of another space than those of files. Where
    /// the machine has no swap, such a page stays until it is given up.
    pub anon: bool,
}

impl Access {
    /// A read through a descriptor.
    pub fn read(page: u64) -> Access {
        Access { page, write: false, mapped: false, anon: false }
    }

    /// A write through a descriptor.
    pub fn write(page: u64) -> Access {
        Access { write: true, ..Access::read(page) }
    }

    /// A load through a mapping.
    pub fn load(page: u64) -> Access {
        Access { mapped: true, ..Access::read(page) }
    }

    /// A store through a mapping.
    pub fn store(page: u64) -> Access {
        Access { write: true, mapped: true, ..Access::read(page) }
    }
}

impl Access {
    /// The same, of anonymous memory.
    pub fn anon(self) -> Access {
        Access { anon: true, ..self }
    }
}

impl From<PageAccess> for Access {
    fn from(access: PageAccess) -> Access {
        let PageAccess { page, write, mapped, anon } = access;
        Access { page, write, mapped, anon }
    }
}

/// One thing that a job does. Where a file is meant, `page` is any page of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Touches a page.
    Access(Access),
    /// Loads from several of 64 pages through a mapping, in any order. Where pages are
    /// [`Numbering::Files`].
    Loads {
        /// The first of the 64: a multiple of 64.
        first: u64,
        /// Bit `n`: from page `first + n`.
        pages: u64,
    },
    /// Writes the dirty pages of a file and waits for the device (fsync).
    Sync {
        /// A page of the file.
        page: u64,
    },
    /// Cuts a file off before this page.
    Truncate {
        /// The first page that goes.
        page: u64,
    },
    /// Advice that pages are not needed any more (fadvise): the clean ones go at once.
    Discard {
        /// The first page.
        page: u64,
        /// How many.
        pages: u32,
    },
    /// Takes a file out of the job's address space (munmap).
    Unmap {
        /// A page of the file.
        page: u64,
    },
    /// Gives anonymous memory up (munmap): pages go, in memory or in swap.
    Release {
        /// The first page.
        page: u64,
        /// How many.
        pages: u32,
    },
    /// The job goes on as another of its processes ([`crate::Simulator::add_job_of`]).
    Switch {
        /// Its number.
        process: usize,
    },
    /// Switches the policy that ranks pages, while the others go on, and waits until that is done.
    SwitchLru {
        /// To this one.
        to: Lru,
        /// Folios moved at a time.
        folios: u32,
    },
    /// Does nothing for a while.
    Rest {
        /// How long.
        nanos: u64,
    },
    /// Does nothing until that time, unless it is over.
    RestUntil {
        /// The time on the machine.
        time: Time,
    },
    /// Asks for pages of a tenant and all below it to be reclaimed (`memory.reclaim`).
    Reclaim(Request),
    /// Removes a file. Its name stands for a new, empty one afterwards.
    Remove {
        /// A page of the file.
        page: u64,
    },
}

/// A request to reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number of the machine's tenant; `None`: everybody's pages.
    pub tenant: Option<usize>,
    /// How many pages.
    pub pages: u64,
    /// Which kinds, if not as everywhere on the machine.
    pub swappiness: Option<Swappiness>,
    /// The whole request at once, as before it was sliced
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
        }
    }
}

/// Why a source could not go on.
pub type SourceError = Box<dyn Error + Send + Sync>;

/// Where a job's operations come from. Any iterator over operations is a source.
pub trait Source {
    /// Puts the next operations, as many as are at hand, into the empty `batch`. None: the job is
    /// at its end.
    ///
    /// # Errors
    /// The input cannot be read: the run ends with this error.
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError>;

    /// It is `now`, and a batch is going to be taken: what came of the last one is done.
    fn at(&mut self, now: Time) {
        let _ = now;
    }

    /// The time from which on no batch is taken any more: the job is at its end.
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
