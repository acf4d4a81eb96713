//! The processes of a job: their tenants and open files.

use super::batch::{Next, Stop};
use super::touch::Touch;
use super::{Job, State};
use crate::files::FileNumber;
use crate::world::{TenantState, World};
use mglru_core::readahead::{Readahead, SwapReadahead};
use mglru_core::{Hit, Lookup, Peek, Task};
use mglru_workload::trace::RequestStart;
use std::collections::BTreeMap;

/// An open file of a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Descriptor {
    /// Position of the last access, plus 1.
    pub(super) previous: u64,
    /// Whether the file is mapped in the job's address space.
    pub(super) mapped: bool,
}

impl Descriptor {
    /// Records an access, and returns whether it counts: not if the last access was to the same
    /// page, unless the policy or the machine has it so.
    #[inline]
    pub(super) fn counts(&mut self, world: &World, index: u32, inside: bool) -> bool {
        let position = u64::from(index) + 1;
        std::mem::replace(&mut self.previous, position) != position
            || world.count_repeats
            || world.core.counts_reread(inside)
    }
}

/// An open file that the source knows by number.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    /// The number may have been another file's.
    file: FileNumber,
    descriptor: Descriptor,
    readahead: Option<Readahead>,
}

impl OpenFile {
    /// Its readahead state.
    pub(super) fn readahead(&mut self, world: &World) -> &mut Readahead {
        self.readahead.get_or_insert_with(|| world.core.new_readahead(world.readahead_pages))
    }
}

/// A process of a job: its tenant and open files.
#[derive(Debug)]
pub(crate) struct Process {
    pub(super) number: usize,
    pub(super) tenant: usize,
    pub(super) task: Task,
    /// Indexed by file number.
    pub(super) descriptors: Vec<Descriptor>,
    /// Readahead state by descriptor and by mapping, indexed by file number, as far as used.
    pub(super) readahead: Vec<[Readahead; 2]>,
    /// Readahead state of anonymous memory, indexed by file number, as far as used.
    pub(super) swap_readahead: Vec<SwapReadahead>,
    /// Open files that the source knows by number, by that number.
    pub(super) handles: Vec<Option<OpenFile>>,
    /// Number of file replacements for which these are valid.
    pub(super) replacements: u64,
    /// Write-back errors already reported to it, by file and incarnation. It counts as having had
    /// every file open from the start.
    pub(super) reported_errors: BTreeMap<(FileNumber, u64), u64>,
}

impl Process {
    pub(crate) fn new(number: usize, tenant: usize, task: Task) -> Process {
        Process {
            number,
            tenant,
            task,
            descriptors: Vec::new(),
            readahead: Vec::new(),
            swap_readahead: Vec::new(),
            handles: Vec::new(),
            replacements: 0,
            reported_errors: BTreeMap::new(),
        }
    }

    /// [`Descriptor::counts`] of the open file, or of the process's only one.
    #[inline]
    pub(super) fn counts(&mut self, world: &World, touch: &Touch) -> bool {
        let descriptor = match self.handle(touch) {
            Some(open) => &mut open.descriptor,
            None => &mut self.descriptors[touch.file.0 as usize],
        };
        descriptor.counts(world, touch.index, touch.inside)
    }

    /// Performs reads of cached pages. Returns how many, and what is in the way of the next one.
    #[inline]
    pub(super) fn read_together(&mut self, world: &World, coming: &[Next]) -> (usize, Stop) {
        let mut done = 0;
        while let Some(next) = coming.get(done) {
            let is_read = match next {
                &Next::Read(file, _) => match self.read_file(world, file, &coming[done..]) {
                    (read, None) => {
                        done += read;
                        continue;
                    }
                    (read, Some(stop)) => return (done + read, stop),
                },
                Next::Touch(touch) if touch.write => false,
                Next::Touch(touch) if touch.mapped => self.load(world, touch),
                Next::Touch(touch) => self.read(world, touch),
                _ => false,
            };
            if !is_read {
                break;
            }
            done += 1;
        }
        (done, Stop::Other)
    }

    /// [`Self::read_together`] for whole reads of this file. `None` is in the way of an access that
    /// is no such read.
    #[inline]
    fn read_file(&mut self, world: &World, file: FileNumber, coming: &[Next]) -> (usize, Option<Stop>) {
        let mapping = &*world.files.get(file).mapping;
        let descriptor = &mut self.descriptors[file.0 as usize];
        for (done, next) in coming.iter().enumerate() {
            let index = match next {
                &Next::Read(of, index) if of == file => index,
                _ => return (done, None),
            };
            match world.core.peek(mapping, index) {
                Peek::Readable(folio, flags) => {
                    if descriptor.counts(world, index, false) {
                        world.core.accessed_folio(&world.host, || self.task.cpu, folio, flags);
                    }
                }
                Peek::Missing => return (done, Some(Stop::Missing)),
                Peek::Other => return (done, Some(Stop::Other)),
            }
        }
        (coming.len(), None)
    }

    /// Reads a page through a descriptor. `false`, and nothing is done: it is not readable at once.
    fn read(&mut self, world: &World, touch: &Touch) -> bool {
        let mapping = &world.files.get(touch.file).mapping;
        let Peek::Readable(folio, flags) = world.core.peek(mapping, touch.index) else { return false };
        if self.counts(world, touch) {
            world.core.accessed_folio(&world.host, || self.task.cpu, folio, flags);
        }
        true
    }

    /// [`Self::read`] through a mapping.
    fn load(&self, world: &World, touch: &Touch) -> bool {
        let mapping = &world.files.get(touch.file).mapping;
        let is_mapped =
            self.descriptors[touch.file.0 as usize].mapped && mapping.mapped_pages() > u64::from(touch.index);
        if !is_mapped {
            return false;
        }
        match world.core.lookup(mapping, touch.index) {
            Lookup::Hit(hit)
                if hit.has_entry() && hit.flags.mapped() && !world.core.has_readahead_mark(&hit) =>
            {
                self.touch_mapped(world, touch, &hit);
                true
            }
            _ => false,
        }
    }

    /// Counts an access through a mapping.
    #[inline]
    pub(super) fn touch_mapped(&self, world: &World, touch: &Touch, hit: &Hit) {
        let mapping = &world.files.get(touch.file).mapping;
        if touch.fault {
            world.core.touch_by_fault(&self.task, mapping, touch.index, hit);
        } else {
            world.core.touch(&self.task, mapping, touch.index, hit);
        }
    }

    /// The open file of an access, if the source knows it.
    #[inline]
    pub(super) fn handle(&mut self, touch: &Touch) -> Option<&mut OpenFile> {
        if touch.handle == RequestStart::NO_HANDLE {
            return None;
        }
        let (number, file) = (touch.handle as usize, touch.file);
        if self.handles.len() <= number {
            self.handles.resize(number + 1, None);
        }
        let place = &mut self.handles[number];
        if place.as_ref().is_none_or(|open| open.file != file) {
            *place = Some(OpenFile { file, descriptor: Descriptor::default(), readahead: None });
        }
        place.as_mut()
    }

    /// Enters its tenant if that was created meanwhile or changed. Returns `false` if it does not
    /// exist yet.
    pub(super) fn enter(&mut self, world: &mut World) -> bool {
        let &TenantState { memcg, gone, .. } = &world.tenants[self.tenant];
        match memcg {
            Some(memcg) if memcg != self.task.memcg => world.move_task(&mut self.task, memcg),
            Some(_) => {}
            None => return gone,
        }
        true
    }
}

impl Job {
    /// Moves all its processes to another tenant, after its current operation. A job that must end
    /// because its tenant was killed does not move.
    pub(crate) fn move_to(&mut self, world: &mut World, tenant: usize) {
        self.moving = Some(tenant);
        self.go_on_moving(world);
    }

    pub(super) fn go_on_moving(&mut self, world: &mut World) {
        if !matches!(self.state, State::Next) || self.is_cut_short(world) {
            return;
        }
        let Some(tenant) = self.moving.take() else { return };
        for process in std::iter::once(&mut self.process).chain(&mut self.others) {
            process.tenant = tenant;
            process.enter(world);
        }
    }

    /// Resets the open files after a file was replaced.
    pub(super) fn notice_replacements(&mut self, world: &World) {
        if self.process.replacements != world.files.replacements() {
            self.process.descriptors.fill(Descriptor::default());
            self.process.readahead.clear();
            self.process.handles.clear();
            self.process.replacements = world.files.replacements();
        }
    }

    /// Continues as another process. A process's place in `others` is its number less one; the
    /// current one's place holds the first process.
    pub(super) fn switch(&mut self, number: usize) {
        for place in [self.number, number] {
            if place > 0 {
                std::mem::swap(&mut self.process, &mut self.others[place - 1]);
            }
        }
        self.number = number;
    }
}
