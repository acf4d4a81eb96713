//! The job's next operations: takes them from the source in batches, locates their pages,
//! prefetches their slots, and handles reads of cached pages together.

use super::Job;
use super::process::Descriptor;
use super::touch::Touch;
use crate::files::FileNumber;
use crate::operation::{Access, Operation, SourceError};
use crate::world::World;
use mglru_core::mapping::LEAF_SLOTS;
use mglru_core::{Host, Kind, Time};
use mglru_workload::trace::RequestStart;

/// Number of accesses by which slots are prefetched ahead.
const AHEAD_ACCESSES: usize = 32;

/// Leaves of the index in use from which on slots are prefetched: their 1 MiB of slots does not fit
/// beside the rest in a processor's second-level cache. For smaller ones it takes longer.
const PREFETCHED_LEAVES: u32 = 2048;

#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    /// A whole read of a file's page through the process's only descriptor. Most accesses of most
    /// traces are such reads, so they are short.
    Read(FileNumber, u32),
    /// Any other access.
    Touch(Touch),
    Loads(Loads),
    Other(Operation),
}

impl Next {
    /// The page, if it is an access to one.
    fn place(&self) -> Option<(FileNumber, u32)> {
        match self {
            &Next::Read(file, index) => Some((file, index)),
            Next::Touch(touch) => Some((touch.file, touch.index)),
            _ => None,
        }
    }
}

/// Loads through a mapping from pages of one leaf, as a bit set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loads {
    pub(super) file: FileNumber,
    pub(super) first: u32,
    pub(super) pages: u64,
}

impl Loads {
    pub(super) const NONE: Loads = Loads { file: FileNumber(0), first: 0, pages: 0 };

    /// Takes one of them.
    pub(super) fn pop(&mut self) -> Option<Touch> {
        let at = self.pages.trailing_zeros();
        self.pages &= self.pages.checked_sub(1)?;
        Some(Touch::of(self.file, self.first + at, Access::load(0)))
    }
}

/// The reason why a job cannot read further pages together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The next page is not cached, and its access is [`Next::Read`].
    Missing,
    /// Any other.
    Other,
}

/// The request that the next accesses are part of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    start: RequestStart,
    left: u32,
}

impl Request {
    pub(super) const NONE: Request = Request {
        start: RequestStart { pages: 0, handle: RequestStart::NO_HANDLE, ends_inside: false },
        left: 0,
    };

    /// An access as a part of the request, if it is one.
    fn next(&mut self, touch: Touch) -> Touch {
        if self.left == 0 {
            return touch;
        }
        let RequestStart { pages, handle, ends_inside } = self.start;
        let request = self.left;
        self.left -= 1;
        let part = touch.part || ends_inside && request == 1;
        Touch { part, goes_on: request < pages, request, handle, ..touch }
    }
}

impl Job {
    /// Takes the next batch of operations and locates their pages.
    pub(super) fn refill(&mut self, world: &mut World) -> Result<(), SourceError> {
        self.batch.clear();
        self.located.clear();
        (self.next, self.prefetched) = (0, 0);
        if world.tenants[self.process.tenant].gone || self.source.end().is_some_and(|end| world.now() >= end)
        {
            return Ok(());
        }
        self.source.at(world.now());
        self.source.fill(&mut self.batch)?;
        if let [Operation::Request(_)] = self.batch[..] {
            // An empty batch would end the job.
            self.source.fill(&mut self.batch)?;
        }
        let mut files = 0;
        self.located.reserve(self.batch.len());
        // Each arm pushes by itself: as one value, the variants would be copied field by field.
        for operation in &self.batch {
            match *operation {
                Operation::Access(access) if self.request.left == 0 && access.is_plain_read() => {
                    let (file, index) = world.files.locate(&world.core, Kind::File, access.page);
                    files = files.max(file.0 as usize + 1);
                    self.located.push(Next::Read(file, index));
                }
                Operation::Access(access) => {
                    let kind = if access.anon { Kind::Anon } else { Kind::File };
                    let (file, index) = world.files.locate(&world.core, kind, access.page);
                    files = files.max(file.0 as usize + 1);
                    let touch = self.request.next(Touch::of(file, index, access));
                    self.located.push(Next::Touch(touch));
                }
                Operation::Request(request) => {
                    self.request = Request { start: request, left: request.pages };
                }
                Operation::Loads { first, pages } => {
                    let (file, first) = world.files.locate(&world.core, Kind::File, first);
                    files = files.max(file.0 as usize + 1);
                    self.located.push(Next::Loads(Loads { file, first, pages }));
                }
                other => self.located.push(Next::Other(other)),
            }
        }
        if self.process.descriptors.len() < files {
            self.process.descriptors.resize(files, Descriptor::default());
        }
        Ok(())
    }

    /// Reads cached pages as [`Self::run`] would, as long as nothing else happens, but counts them
    /// together.
    pub(super) fn touch_ahead(&mut self, world: &mut World, horizon: Time) -> Stop {
        let most = world.accesses_before(horizon).min(u64::from(self.left - 1));
        let begin = self.next;
        // One past the last access that is done here at most.
        let last = self.next.saturating_add(usize::try_from(most).unwrap_or(usize::MAX));
        let last = last.min(self.located.len());
        let mut stop = Stop::Other;
        while self.next < last {
            let end = self.prefetch(world).min(last);
            let (read, reason) = self.process.read_together(world, &self.located[self.next..end]);
            self.next += read;
            if self.next < end {
                stop = reason;
                break;
            }
        }
        let reads = (self.next - begin) as u64;
        let counts = &mut world.tenants[self.process.tenant].counts;
        counts.accesses += reads;
        counts.hits += reads;
        if world.times_accesses {
            world.tenants[self.process.tenant].latencies.record_many(world.access_nanos, reads);
        }
        self.left -= reads as u32;
        world.pass(reads);
        stop
    }

    /// Prefetches slots of coming accesses. Returns the place in the batch at which it is due
    /// again.
    fn prefetch(&mut self, world: &World) -> usize {
        let all = self.located.len();
        if world.core.leaves_in_use() < PREFETCHED_LEAVES {
            return all;
        }
        // Some accesses at once, and always that many ahead.
        if self.prefetched <= self.next + AHEAD_ACCESSES && self.prefetched < all {
            let end = all.min(self.next + 2 * AHEAD_ACCESSES);
            for next in &self.located[self.prefetched.max(self.next)..end] {
                if let Some((file, index)) = next.place() {
                    let mapping = &world.files.get(file).mapping;
                    world.core.prefetch_slot(mapping, index, |slot| world.host.prefetch(slot));
                }
            }
            self.prefetched = end;
        }
        if self.prefetched == all { all } else { self.prefetched - AHEAD_ACCESSES }
    }

    /// Loads from the mapped pages among them together.
    pub(super) fn load_together(&mut self, world: &mut World, horizon: Time) {
        let Loads { file, first, pages } = self.loads;
        let mapping = &world.files.get(file).mapping;
        let is_mapped = self.process.descriptors[file.0 as usize].mapped
            && mapping.mapped_pages() >= u64::from(first) + LEAF_SLOTS as u64;
        let most = world.accesses_before(horizon).min(u64::from(self.left - 1));
        if !is_mapped || u64::from(pages.count_ones()) > most {
            return;
        }
        self.loads.pages = world.core.touch_mapped(&self.process.task, mapping, first, pages);
        let reads = pages.count_ones() - self.loads.pages.count_ones();
        let counts = &mut world.tenants[self.process.tenant].counts;
        counts.accesses += u64::from(reads);
        counts.hits += u64::from(reads);
        if world.times_accesses {
            world.tenants[self.process.tenant].latencies.record_many(world.access_nanos, u64::from(reads));
        }
        self.left -= reads;
        world.pass(u64::from(reads));
    }
}
