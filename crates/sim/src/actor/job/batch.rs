//! The job's next operations: takes them from the source in batches, locates their pages, and
//! handles reads of cached pages together.

use super::Job;
use super::process::Descriptor;
use super::touch::Touch;
use crate::files::FileNumber;
use crate::operation::{Access, Operation, SourceError};
use crate::world::World;
use mglru_core::mapping::LEAF_SLOTS;
use mglru_core::{Hit, Kind, Lookup, Time};
use mglru_workload::trace::RequestStart;

/// Number of pages to look up together before accessing them, so that their cache misses overlap.
const AHEAD_PAGES: usize = 32;

#[derive(Clone, Copy, Debug)]
pub(super) enum Next {
    Touch(Touch),
    Loads(Loads),
    Other(Operation),
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

/// Pages looked up in advance.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// Their places in the batch.
    pub(super) range: std::ops::Range<usize>,
    /// Cached pages that are only read.
    pub(super) hits: [Option<Hit>; AHEAD_PAGES],
}

impl Ahead {
    /// Forgets what was seen of a page that is accessed by itself: a write makes its content
    /// another one, and a fault maps it. `next`: the place of the next operation in `located`.
    pub(super) fn forget(&mut self, located: &[Next], next: usize, accessed: Touch) {
        let first = self.range.start;
        let rest = next.max(first)..self.range.end;
        if rest.is_empty() {
            return;
        }
        for (touch, hit) in located[rest.clone()].iter().zip(&mut self.hits[rest.start - first..]) {
            if let Next::Touch(touch) = touch
                && (touch.file, touch.index) == (accessed.file, accessed.index)
            {
                *hit = None;
            }
        }
    }
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
        self.ahead.range = 0..0;
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
        for &operation in &self.batch {
            let next = match operation {
                Operation::Access(access) => {
                    let kind = if access.anon { Kind::Anon } else { Kind::File };
                    let (file, index) = world.files.locate(&world.core, kind, access.page);
                    files = files.max(file.0 as usize + 1);
                    Next::Touch(self.request.next(Touch::of(file, index, access)))
                }
                Operation::Request(request) => {
                    self.request = Request { start: request, left: request.pages };
                    continue;
                }
                Operation::Loads { first, pages } => {
                    let (file, first) = world.files.locate(&world.core, Kind::File, first);
                    files = files.max(file.0 as usize + 1);
                    Next::Loads(Loads { file, first, pages })
                }
                other => Next::Other(other),
            };
            self.located.push(next);
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
        let mut reads = 0;
        while reads < most && self.next < self.located.len() {
            if !self.ahead.range.contains(&self.next) {
                self.look_ahead(world);
            }
            let Some(hit) = &self.ahead.hits[self.next - self.ahead.range.start] else { break };
            let Next::Touch(touch) = self.located[self.next] else {
                unreachable!("only reads are looked up")
            };
            let mapping = &world.files.get(touch.file).mapping;
            if touch.mapped {
                // Its entry may have been made or looked at since then, when other pages arrived.
                match world.core.lookup(mapping, touch.index) {
                    Lookup::Hit(now) if now.flags.mapped() => {
                        self.process.touch_mapped(world, touch, &now);
                    }
                    _ => break,
                }
            } else if self.process.counts(world, touch) {
                world.core.accessed(&world.host, || self.process.task.cpu, hit);
            }
            self.next += 1;
            reads += 1;
        }
        let counts = &mut world.tenants[self.process.tenant].counts;
        counts.accesses += reads;
        counts.hits += reads;
        if world.times_accesses {
            world.tenants[self.process.tenant].latencies.record_many(world.access_nanos, reads);
        }
        self.left -= reads as u32;
        world.pass(reads);
    }

    /// Looks up the next pages. The results are valid until pages are reclaimed or another actor
    /// runs.
    pub(super) fn look_ahead(&mut self, world: &World) {
        let end = self.located.len().min(self.next + AHEAD_PAGES);
        self.ahead.range = self.next..end;
        let coming = &self.located[self.next..end];
        let mut peeked = [None; AHEAD_PAGES];
        for (peeked, next) in peeked.iter_mut().zip(coming) {
            if let Next::Touch(touch) = next {
                *peeked = world.core.peek(&world.files.get(touch.file).mapping, touch.index);
            }
        }
        for ((hit, next), peeked) in self.ahead.hits.iter_mut().zip(coming).zip(peeked) {
            *hit = match next {
                Next::Touch(touch) if !touch.write => {
                    let mapping = &world.files.get(touch.file).mapping;
                    let maps = || {
                        self.process.descriptors[touch.file.0 as usize].mapped
                            && mapping.mapped_pages() > u64::from(touch.index)
                    };
                    match world.core.lookup_peeked(mapping, touch.index, peeked) {
                        // Excludes pages that need a fault or that have the readahead mark.
                        Lookup::Hit(hit) if hit.readahead() => None,
                        Lookup::Hit(hit) if !touch.mapped || hit.flags.mapped() && maps() => Some(hit),
                        _ => None,
                    }
                }
                _ => None,
            };
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
