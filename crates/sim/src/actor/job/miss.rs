//! A miss: the page is charged, inserted into its slot, and read.

use super::touch::Touch;
use super::{Job, State, rest, wait_out};
use crate::checker::judge_out_of_memory;
use crate::host::SimHost;
use crate::report::Refusal;
use crate::world::{Pause, World};
use mglru_core::{Arrival, ChargeStep, Charging, FolioId, Hit, InsertError, Mapping, NewFolio, Stall};
use std::sync::Arc;

/// An active read.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) index: u32,
    pub(crate) folio: FolioId,
    ok: bool,
    /// Present for a refault of a page in the working set.
    stall: Option<Stall>,
}

impl Job {
    #[inline]
    pub(super) fn charge(&mut self, world: &mut World, touch: Touch, mut charging: Charging) -> Pause {
        let step = charging.step(&world.core, &world.host).map(|new| self.insert(world, touch, new));
        let pause = match step {
            ChargeStep::More => {
                let nanos = world.take_batch_nanos();
                rest(world, nanos)
            }
            ChargeStep::Wait(throttle) => wait_out(world, throttle),
            ChargeStep::Charged(inserted) => return self.bring(world, touch, inserted),
            ChargeStep::OutOfMemory(report) => {
                // Charges of a tenant killed earlier fail with the old report.
                if let Some(model) = &world.host.model
                    && !world.kills.iter().any(|kill| kill.report == *report)
                    && let Some(wrong) = judge_out_of_memory(world, &report)
                {
                    model.borrow_mut().complain(wrong);
                }
                let tenant = self.process.tenant;
                if world.tenants[tenant].counts.out_of_memory == 0 {
                    let path = world
                        .memcg(tenant)
                        .map_or_else(String::new, |memcg| world.core.memcgs().path(memcg.id()));
                    world.refusals.push(Refusal { time: world.now(), tenant: path, report: *report });
                }
                self.fail(world, touch);
                // Return to the caller, which may stop the run.
                self.left = self.left.min(1);
                return rest(world, world.access_nanos);
            }
        };
        self.state = State::Charge(touch, charging);
        pause
    }

    /// Inserts the charged page into its slot.
    #[inline]
    pub(super) fn insert(
        &self,
        world: &World,
        touch: Touch,
        new: NewFolio<'_, SimHost>,
    ) -> Result<FolioId, InsertError> {
        let mapping = &world.files.get(touch.file).mapping;
        let arrival =
            Arrival { in_fault: touch.mapped, overwrite: overwrites(world, touch), ..Arrival::default() };
        world.core.insert(&world.host, &self.process.task, mapping, touch.index, new, arrival)
    }

    /// Requests the inserted page from the device.
    #[inline]
    pub(super) fn bring(
        &mut self,
        world: &mut World,
        touch: Touch,
        inserted: Result<FolioId, InsertError>,
    ) -> Pause {
        let Ok(folio) = inserted else {
            // Another job has inserted it meanwhile, or freed its place in the index.
            self.state = State::Look(touch);
            return Pause::Ready;
        };
        let mapping = &world.files.get(touch.file).mapping;
        let overwrite = overwrites(world, touch);
        let swapped = world.core.swap_slot(folio).is_some();
        let zeros = touch.anon && !swapped;
        world.tenants[self.process.tenant].counts.zero_fills += u64::from(zeros);
        if overwrite || zeros {
            let hit = world.core.publish(&world.host, mapping, folio);
            return self.touch_published(world, touch, hit);
        }
        let window =
            if touch.anon { self.swap_window_of(world, touch) } else { self.window_of(world, touch) };
        if let Some(window) = window {
            return self.bring_window(world, touch, window, folio);
        }
        let now = world.now();
        let completion = match &mut world.swap {
            Some(swap) if swapped => swap.read(now, 1),
            _ => world.device.read(now, 1),
        };
        let stall = world.core.begin_refault(&world.host, folio);
        let at_once = completion.ok && !world.reads_need_cpu;
        if at_once && self.skips(world, Pause::Until(completion.at)) {
            end_stall(world, stall);
            self.drain_before_store(world, touch, swapped);
            let mapping = &world.files.get(touch.file).mapping;
            let hit = world.core.publish(&world.host, mapping, folio);
            return self.touch_published(world, touch, hit);
        }
        let mapping = world.files.get(touch.file).mapping.clone();
        let reading = Reading { mapping, index: touch.index, folio, ok: completion.ok, stall };
        self.state = State::Read(touch, reading);
        Pause::Until(completion.at)
    }

    /// Puts the new pages of this CPU on their lists, if the access is a store to a page that comes
    /// from swap: it still has its slot.
    #[inline]
    fn drain_before_store(&self, world: &World, touch: Touch, swapped: bool) {
        if swapped && touch.write && world.stores_drain() {
            world.core.drain(&world.host, self.process.task.cpu);
        }
    }

    /// Touches a page that was inserted and has got its content in one step, without looking it up
    /// once more.
    #[inline]
    fn touch_published(&mut self, world: &mut World, touch: Touch, hit: Option<Hit>) -> Pause {
        let Some(hit) = hit else { return self.look(world, touch) };
        if touch.mapped {
            self.map(world, touch);
        }
        self.touch(world, touch, &hit)
    }

    /// Ends the device's read.
    pub(super) fn arrive(&mut self, world: &mut World, touch: Touch, reading: Reading) -> Pause {
        end_stall(world, reading.stall);
        if reading.ok {
            self.drain_before_store(world, touch, world.core.swap_slot(reading.folio).is_some());
            world.core.publish(&world.host, &reading.mapping, reading.folio);
            // The file may have been replaced meanwhile.
            return self.look_with_cpu(world, touch);
        }
        world.core.abandon(&world.host, &reading.mapping, reading.folio);
        world.note_dropped(&reading.mapping, reading.index, u64::from(reading.index) + 1);
        let counts = &mut world.tenants[self.process.tenant].counts;
        counts.read_errors += 1;
        // The page was new at its look-up; meanwhile another job wrote it, and it was swapped out.
        counts.hits += u64::from(!touch.missed);
        rest(world, world.access_nanos)
    }

    /// Looks a page up whose read has ended, once the job has a CPU.
    pub(super) fn look_with_cpu(&mut self, world: &mut World, touch: Touch) -> Pause {
        let free = world.end_of_computation(self.process.task.cpu);
        if free == world.now() {
            return self.look(world, touch);
        }
        self.state = State::Look(touch);
        Pause::Until(free)
    }

    /// Records a failure to get a page.
    pub(super) fn fail(&self, world: &mut World, touch: Touch) {
        let counts = &mut world.tenants[self.process.tenant].counts;
        counts.out_of_memory += 1;
        counts.misses += u64::from(!touch.missed);
    }
}

/// Whether an access overwrites its whole page, so that nothing is read first.
fn overwrites(world: &World, touch: Touch) -> bool {
    world.overwrite && touch.write && !touch.mapped && !(world.parts && touch.part)
}

/// Ends a refault's stall, after success or failure.
pub(super) fn end_stall(world: &World, stall: Option<Stall>) {
    if let Some(stall) = stall {
        world.core.end_stall(&world.host, stall);
    }
}
