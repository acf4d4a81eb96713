//! A sync: writes a file's dirty pages and reports errors.

use super::{Job, State};
use crate::actor::rest;
use crate::files::{File, FileNumber};
use crate::world::{Pause, World};

/// Progress of a sync.
#[derive(Clone, Copy, Debug)]
pub(super) enum Syncing {
    /// Waits for the writes that began before the sync: so many, counted from the first one ever.
    Settle(u64),
    /// Writes dirty pages from here on.
    Write(u32),
    /// Waits for its own writes.
    Finish(u64),
}

impl Job {
    /// Starts a sync; first waits for earlier writes.
    pub(super) fn begin_sync(&mut self, world: &World, file: FileNumber) {
        if let Some(model) = &world.host.model {
            let mapping = world.files.get(file).mapping.id();
            model.borrow_mut().content.sync_begins(self.process.number, mapping);
        }
        self.state = State::Sync(file, Syncing::Settle(world.writes.begun()));
    }

    pub(super) fn sync(&mut self, world: &mut World, file: FileNumber, syncing: Syncing) -> Pause {
        let (next, pause) = match syncing {
            Syncing::Settle(begun) if world.is_writing(file, begun) => (syncing, Pause::Written(None)),
            Syncing::Settle(_) => (Syncing::Write(0), Pause::Ready),
            Syncing::Write(from) => match world.device.write_full_until(world.now()) {
                Some(room) => (syncing, Pause::Until(room)),
                None => {
                    let pages = world.write_next(file, from);
                    let rest = pages.and_then(|pages| u32::try_from(pages.end).ok());
                    (rest.map_or(Syncing::Finish(world.writes.begun()), Syncing::Write), Pause::Ready)
                }
            },
            Syncing::Finish(begun) if world.is_writing(file, begun) => (syncing, Pause::Written(None)),
            Syncing::Finish(_) => {
                self.end_sync(world, file);
                return rest(world, world.access_nanos);
            }
        };
        self.state = State::Sync(file, next);
        pause
    }

    /// Ends a sync: everything dirty at its start is written, or there is an error to report.
    fn end_sync(&mut self, world: &mut World, file: FileNumber) {
        let File { incarnation, ref mapping, .. } = *world.files.get(file);
        let mapping = mapping.id();
        let reported = self.process.reported_errors.entry((file, incarnation)).or_default();
        let error = world.files.report_error(file, reported);
        let counts = &mut world.tenants[self.process.tenant].counts;
        counts.syncs += 1;
        counts.sync_errors += u64::from(error);
        if let Some(model) = &world.host.model {
            model.borrow_mut().content.sync_ends(self.process.number, mapping, error);
        }
    }
}
