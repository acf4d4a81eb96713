//! The processes as which a job acts: whose they are, and what each has open.

use super::{Job, State};
use crate::files::FileNumber;
use crate::world::{TenantState, World};
use mglru_core::Task;
use mglru_core::readahead::Readahead;
use std::collections::BTreeMap;

/// What a job has open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Descriptor {
    /// The position of the last access, plus 1.
    pub(super) previous: u64,
    /// The file is in the job's address space.
    pub(super) mapped: bool,
}

impl Descriptor {
    /// An access to a page. `false`: the last one was to the same page.
    #[inline]
    pub(super) fn goes_to(&mut self, index: u32) -> bool {
        let position = u64::from(index) + 1;
        std::mem::replace(&mut self.previous, position) != position
    }
}

/// One of the processes as which a job acts: whose it is, and what it has open.
#[derive(Debug)]
pub(crate) struct Process {
    pub(super) number: usize,
    pub(super) tenant: usize,
    pub(super) task: Task,
    /// By file number.
    pub(super) descriptors: Vec<Descriptor>,
    /// What it reads ahead, by file number, as far as it did.
    pub(super) readahead: Vec<Readahead>,
    /// They are right as long as this is the number of files that were replaced.
    pub(super) replacements: u64,
    /// How many errors of write-back it was told of, where it was. It counts as having had every
    /// file open all the time.
    pub(super) told: BTreeMap<(FileNumber, u64), u64>,
}

impl Process {
    /// `number`: of all processes.
    pub(crate) fn new(number: usize, tenant: usize, task: Task) -> Process {
        Process {
            number,
            tenant,
            task,
            descriptors: Vec::new(),
            readahead: Vec::new(),
            replacements: 0,
            told: BTreeMap::new(),
        }
    }

    /// Enters its tenant, if that was made meanwhile or is another. `false`: it is not there yet.
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
    /// Moves to another tenant, all its processes together. What it is doing is finished first,
    /// where it began. Who is to end because its tenant was killed does not get away.
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

    /// What was open of a file that was replaced is not open any more.
    pub(super) fn notice_replacements(&mut self, world: &World) {
        if self.process.replacements != world.files.replacements() {
            self.process.descriptors.fill(Descriptor::default());
            self.process.readahead.clear();
            self.process.replacements = world.files.replacements();
        }
    }

    /// Goes on as another process. Each one's place among the others is its number less one; of the
    /// one that it is now, the first has it.
    pub(super) fn switch(&mut self, number: usize) {
        for place in [self.number, number] {
            if place > 0 {
                std::mem::swap(&mut self.process, &mut self.others[place - 1]);
            }
        }
        self.number = number;
    }
}
