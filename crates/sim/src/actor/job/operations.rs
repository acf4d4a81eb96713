//! Operations other than page accesses: on whole files, on time, on the policy, and reclaim
//! requests.

use super::process::Descriptor;
use super::{Job, State, rest, wait_for, wait_out};
use crate::actor::Writing;
use crate::files::{Cuts, FileNumber};
use crate::operation::{Operation, Request, SourceError};
use crate::report::RequestReport;
use crate::world::{Pause, World};
use mglru_core::lru::switch::{LruSwitch, SwitchStep};
use mglru_core::reclaim::{Proactive, RequestStep};
use mglru_core::{Kind, Lookup, Mapping};
use std::sync::Arc;

impl Job {
    /// Refuses what the machine does not have.
    ///
    /// # Errors
    /// The operation names another process than those of the job, or a tenant that is not there.
    pub(super) fn check(&self, world: &World, operation: Operation) -> Result<(), SourceError> {
        match operation {
            Operation::Switch { process } if process > self.others.len() => {
                let processes = self.others.len() + 1;
                Err(format!("it switches to process {process} of {processes}, which are numbered from 0")
                    .into())
            }
            Operation::Reclaim(Request { tenant: Some(tenant), .. })
                if world.tenants.get(tenant + 1).is_none_or(|tenant| tenant.memcg.is_none()) =>
            {
                Err(format!("it reclaims from tenant {tenant}, which the machine does not have now").into())
            }
            Operation::Control { write } if write >= world.control_writes.len() => {
                let writes = world.control_writes.len();
                Err(format!("it writes control file number {write} of {writes}, which are numbered from 0")
                    .into())
            }
            _ => Ok(()),
        }
    }

    /// Starts an operation on a whole file.
    pub(super) fn begin(&mut self, world: &mut World, operation: Operation) -> Pause {
        match operation {
            Operation::Access(_) | Operation::Loads { .. } | Operation::Request(_) => {
                unreachable!("touches are dealt with before")
            }
            Operation::Sync { page } => {
                let file = world.files.file_of(&world.core, page);
                self.begin_sync(world, file);
                Pause::Ready
            }
            Operation::Truncate { page } => {
                let (file, from) = world.files.locate(&world.core, Kind::File, page);
                self.state = State::Truncate(file, vec![(from, 1 << 32)]);
                Pause::Ready
            }
            Operation::Punch { page, pages } => {
                let (file, cuts) = world.files.locate_run(&world.core, Kind::File, page, pages);
                self.state = State::Truncate(file, cuts);
                Pause::Ready
            }
            Operation::Release { page, pages } => {
                let (region, cuts) = world.files.locate_run(&world.core, Kind::Anon, page, pages);
                self.state = State::Truncate(region, cuts);
                Pause::Ready
            }
            Operation::Discard { page, pages } => {
                let (file, cuts) = world.files.locate_run(&world.core, Kind::File, page, pages);
                let mapping = &world.files.get(file).mapping;
                for (from, end) in cuts {
                    world.core.invalidate(&world.host, mapping, from, end, self.process.task.cpu);
                    world.note_dropped(mapping, from, end);
                }
                rest(world, world.access_nanos)
            }
            Operation::Hold { page } => {
                let (file, index) = world.files.locate(&world.core, Kind::File, page);
                let mapping = &world.files.get(file).mapping;
                if let Lookup::Hit(hit) = world.core.lookup(mapping, index) {
                    // Nobody takes it back.
                    _ = world.core.lend(&world.host, mapping, index, &hit);
                }
                Pause::Ready
            }
            Operation::Unmap { page } => {
                let file = world.files.file_of(&world.core, page);
                world.core.unmap(&world.host, &self.process.task, &world.files.get(file).mapping);
                if let Some(descriptor) = self.process.descriptors.get_mut(file.0 as usize) {
                    descriptor.mapped = false;
                }
                rest(world, world.access_nanos)
            }
            Operation::Switch { process } => {
                let files = self.process.descriptors.len();
                self.switch(process);
                if self.process.descriptors.len() < files {
                    self.process.descriptors.resize(files, Descriptor::default());
                }
                self.notice_replacements(world);
                Pause::Ready
            }
            Operation::Compute { nanos } => world.compute(self.process.task.cpu, nanos),
            Operation::Rest { nanos } => rest(world, nanos),
            Operation::RestUntil { time } if time > world.now() => Pause::Until(time),
            Operation::RestUntil { .. } => Pause::Ready,
            Operation::Reclaim(Request { tenant, pages, swappiness, unsliced }) => {
                let tenant = tenant.map_or(0, |tenant| tenant + 1);
                let target = world.tenants[tenant].memcg.expect("a job asks tenants that are there");
                let request = Proactive::new(&world.core, target, pages, swappiness, self.process.task.cpu);
                let request = if unsliced { request.unsliced() } else { request };
                self.state = State::Reclaim(pages, Box::new(request));
                Pause::Ready
            }
            Operation::Control { write } => {
                // Statistics are read after an access, thus before what precedes the next one.
                world.read_statistics();
                let (file, value) = world.control_writes[write].clone();
                if let Some(writing) = Writing::begin(world, &file, &value, self.process.task.cpu) {
                    self.state = State::Control(writing);
                }
                Pause::Ready
            }
            Operation::SwitchLru { to, folios } => {
                self.state = State::SwitchLru(world.core.switch_lru(to), folios);
                Pause::Ready
            }
            Operation::Remove { page } => {
                let file = world.files.file_of(&world.core, page);
                let old = world.files.replace(&world.core, file);
                world.tasks.iter().for_each(|task| world.core.unmap(&world.host, task, &old));
                self.notice_replacements(world);
                self.state = State::Close(old);
                Pause::Ready
            }
        }
    }

    /// Moves some folios to the other policy. Other actors may run in between.
    pub(super) fn switch_lru(&mut self, world: &mut World, mut switch: LruSwitch, folios: u32) -> Pause {
        if switch.step(&world.core, folios) == SwitchStep::More {
            self.state = State::SwitchLru(switch, folios);
        }
        rest(world, world.access_nanos)
    }

    pub(super) fn reclaim(&mut self, world: &mut World, pages: u64, mut request: Box<Proactive>) -> Pause {
        let (progress, fell_short) = match request.step(&world.core, &world.host) {
            RequestStep::More => {
                self.state = State::Reclaim(pages, request);
                let nanos = world.take_batch_nanos();
                return rest(world, nanos);
            }
            RequestStep::Wait(throttle) => {
                self.state = State::Reclaim(pages, request);
                return wait_out(world, throttle);
            }
            RequestStep::Done(progress) => (progress, false),
            RequestStep::TryAgain(progress) => (progress, true),
        };
        world.requests.push(RequestReport { pages, progress, fell_short });
        // The step ends here, so that a caller of the simulator sees the state after each request.
        self.left = 0;
        Pause::Ready
    }

    pub(super) fn control(&mut self, world: &mut World, writing: Writing) -> Pause {
        let (pause, left) = writing.step(world);
        if let Some(writing) = left {
            self.state = State::Control(writing);
        }
        pause
    }

    pub(super) fn truncate(&mut self, world: &mut World, file: FileNumber, mut cuts: Cuts) -> Pause {
        while let Some(&(from, end)) = cuts.last() {
            let mapping = &world.files.get(file).mapping;
            let busy = world.core.truncate(&world.host, mapping, from, end);
            world.note_cut(mapping, from, end);
            if let Some(folio) = busy {
                self.state = State::Truncate(file, cuts);
                return wait_for(&world.core, folio);
            }
            cuts.pop();
        }
        rest(world, world.access_nanos)
    }

    pub(super) fn close(&mut self, world: &mut World, mapping: Arc<Mapping>) -> Pause {
        let busy = world.core.close_mapping(&world.host, &mapping);
        world.note_cut(&mapping, 0, 1 << 32);
        let Some(folio) = busy else {
            world.note_closed(&mapping);
            return rest(world, world.access_nanos);
        };
        self.state = State::Close(mapping);
        wait_for(&world.core, folio)
    }
}
