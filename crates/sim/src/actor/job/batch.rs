//! The job's next operations: takes them from the source in batches, locates their pages, and
//! handles reads of cached pages together.

use super::Job;
use super::process::Descriptor;
use super::touch::Touch;
use crate::files::FileNumber;
use crate::operation::{Access, Operation, SourceError};
use crate::world::World;
use mglru_core::mapping::{LEAF_SLOTS, Slot};
use mglru_core::{Kind, Time};
use mglru_workload::trace::RequestStart;

/// Number of pages to look up together before accessing them, so that their cache misses overlap.
const AHEAD_PAGES: usize = 32;

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

/// Pages looked up in advance. Valid until pages are reclaimed or another actor runs.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Their places in the batch.
    pub(super) range: std::ops::Range<usize>,
    slots: [Slot; AHEAD_PAGES],
    /// The place in the batch up to which slots were prefetched.
    prefetched: usize,
}

impl Ahead {
    pub(super) const NONE: Ahead = Ahead { range: 0..0, slots: [Slot::EMPTY; AHEAD_PAGES], prefetched: 0 };
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
        self.ahead = Ahead::NONE;
        self.next = 0;
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

    /// Reads cached pages as [`Self::run`] would, as long as nothing else happens, but looks them
    /// up and counts them together.
    pub(super) fn touch_ahead(&mut self, world: &mut World, horizon: Time) {
        let most = world.accesses_before(horizon).min(u64::from(self.left - 1));
        let begin = self.next;
        // One past the last access that is done here at most.
        let last = self.next.saturating_add(usize::try_from(most).unwrap_or(usize::MAX));
        while self.next < last.min(self.located.len()) {
            if !self.ahead.range.contains(&self.next) {
                self.look_ahead(world);
            }
            let coming = &self.located[self.next..self.ahead.range.end.min(last)];
            let slots = &self.ahead.slots[self.next - self.ahead.range.start..];
            let read =
                coming.iter().zip(slots).take_while(|&(next, &slot)| self.process.read(world, next, slot));
            let read = read.count();
            self.next += read;
            if read < coming.len() {
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
    }

    /// Looks up the next pages, and prefetches the slots of those behind them.
    pub(super) fn look_ahead(&mut self, world: &World) {
        let end = self.located.len().min(self.next + AHEAD_PAGES);
        self.ahead.range = self.next..end;
        if world.core.leaves_in_use() >= PREFETCHED_LEAVES {
            let far = self.located.len().min(end + AHEAD_PAGES);
            for next in &self.located[self.ahead.prefetched.clamp(end, far)..far] {
                if let Some((file, index)) = next.place() {
                    world.core.prefetch_slot(&world.host, &world.files.get(file).mapping, index);
                }
            }
            self.ahead.prefetched = far;
        }
        let coming = &self.located[self.next..end];
        for (slot, next) in self.ahead.slots.iter_mut().zip(coming) {
            *slot = next
                .place()
                .map_or(Slot::EMPTY, |(file, index)| world.core.peek(&world.files.get(file).mapping, index));
        }
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
