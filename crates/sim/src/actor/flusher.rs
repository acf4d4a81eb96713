//! The flusher: writes dirty pages because many are dirty, because reclaim met nothing else, or because they are old.
//!
//! Whatever the reason, it makes a *pass*: all dirty pages of the files that are due, in file order, a portion of
//! each file at a time, as fast as the device takes them. In a small tenant the number of dirty pages is
//! therefore a saw-tooth, as the lab measured it (spec 70 §7).

use crate::files::FileNumber;
use crate::machine::FlusherModel;
use crate::world::{Pause, World};
use mglru_core::{Counter, Memcg, Time};
use std::collections::VecDeque;
use std::time::Duration;

/// After a pass in which a write failed. What failed is dirty again: a device that refuses in no time would be asked for ever, in one
/// and the same moment.
const AFTER_FAILURE: Duration = Duration::from_millis(1);

/// The rest of one file's share in a pass.
#[derive(Clone, Copy, Debug)]
struct Turn {
    file: FileNumber,
    /// The position at which it goes on.
    from: u32,
    /// Pages until it is another file's turn.
    left_pages: u32,
}

/// The actor that writes dirty pages.
#[derive(Debug)]
pub(crate) struct FlusherActor {
    model: FlusherModel,
    pass: VecDeque<Turn>,
    /// A page was written in this pass.
    wrote: bool,
    /// Somebody asked for a pass that has not begun.
    asked: bool,
    next_period: Time,
    /// Writes that had failed when the last pass ended.
    failures_seen: u64,
}

impl FlusherActor {
    pub(crate) fn new(model: FlusherModel) -> FlusherActor {
        assert!(!model.period.is_zero() && model.portion_pages > 0, "a flusher that never rests: {model:?}");
        let next_period = Time::ZERO + model.period;
        FlusherActor {
            model,
            pass: VecDeque::new(),
            wrote: false,
            asked: false,
            next_period,
            failures_seen: 0,
        }
    }

    /// Asks it to write everything, whatever the thresholds.
    pub(crate) fn ask(&mut self) {
        self.asked = true;
    }

    /// Begins to write one run of consecutive pages, or rests.
    pub(crate) fn step(&mut self, world: &mut World) -> Pause {
        if self.pass.is_empty() {
            if std::mem::replace(&mut self.failures_seen, world.failed_writes) != world.failed_writes {
                return Pause::Until(world.now() + AFTER_FAILURE);
            }
            if !self.begin_pass(world) {
                return Pause::Called(Some(self.next_period));
            }
        }
        if let Some(room) = world.device.write_full_until(world.now()) {
            return Pause::Until(room);
        }
        let turn = self.pass.pop_front().expect("a pass that has begun has a turn");
        match world.write_next(turn.file, turn.from) {
            Some(pages) => self.go_on(turn, pages),
            None => end_turn(world, turn.file),
        }
        if self.pass.is_empty() && !self.wrote {
            // All that is dirty is being written already, in an older version.
            return Pause::Written(Some(self.next_period));
        }
        Pause::Ready
    }

    /// `pages` begin to be written; what is behind them comes next, or after the other files' turns.
    fn go_on(&mut self, turn: Turn, pages: std::ops::Range<u64>) {
        self.wrote = true;
        let left_pages = turn.left_pages.saturating_sub((pages.end - pages.start) as u32);
        // The end of the last possible page is not a position: nothing is behind it.
        let Ok(from) = u32::try_from(pages.end) else { return };
        if left_pages > 0 {
            self.pass.push_front(Turn { from, left_pages, ..turn });
        } else {
            self.pass.push_back(Turn { from, left_pages: self.model.portion_pages, ..turn });
        }
    }

    /// Makes turns for the files that are due. `false`: none is.
    fn begin_pass(&mut self, world: &World) -> bool {
        let now = world.now();
        let periodic = now >= self.next_period;
        if periodic {
            self.next_period = now + self.model.period;
        }
        let everything = std::mem::take(&mut self.asked) || self.too_much_is_dirty(world);
        let is_due = |since: Time| everything || periodic && now.since(since) >= self.model.expiry;
        let due = world.files.dirty().filter(|&file| world.files.get(file).dirty_since.is_some_and(is_due));
        let left_pages = self.model.portion_pages;
        self.pass.extend(due.map(|file| Turn { file, from: 0, left_pages }));
        self.wrote = false;
        !self.pass.is_empty()
    }

    fn too_much_is_dirty(&self, world: &World) -> bool {
        let memory_pages = u64::from(world.core.folios().len());
        let over = |pending: u64, pages: u64, permille: u32| pending > pages * u64::from(permille) / 1000;
        let mut all = 0;
        for memcg in world.core.memcgs().iter() {
            let pending = pending_pages(memcg);
            all += pending;
            if world.memcg_dirty_limits
                && over(pending, memcg.max_pages().min(memory_pages), self.model.tenant_permille)
            {
                return true;
            }
        }
        over(all, memory_pages, self.model.memory_permille)
    }
}

/// Pages that are dirty or being written.
fn pending_pages(memcg: &Memcg) -> u64 {
    memcg.stat().get(Counter::FileDirty) + memcg.stat().get(Counter::FileWriteback)
}

/// The file has no more dirty pages behind the flusher's position. Those before it became dirty meanwhile.
fn end_turn(world: &mut World, file: FileNumber) {
    if world.core.dirty_pages(&world.files.get(file).mapping) == 0 {
        world.files.note_clean(file);
    } else {
        world.files.note_written(file, world.now());
    }
}

#[cfg(test)]
mod tests {
    use crate::{Access, Lane, Machine, Operation, Simulator, Trouble};
    use mglru_core::Time;
    use std::time::Duration;

    /// A device that is full, and refuses in no time: time goes on, until it is well again.
    #[test]
    fn refusals_in_no_time_do_not_stop_the_clock() {
        let mut machine = Machine::new(1000);
        machine.device.write = Lane::IDEAL;
        let well_from = Some(Time::ZERO + Duration::from_millis(500));
        machine.trouble = Trouble { full_after_pages: Some(0), well_from, stall: None };
        let mut simulator = Simulator::new(&machine).unwrap();
        let store = |page| Operation::from(Access::store(page));
        let sleep = Operation::Rest { nanos: 1_000_000_000 };
        simulator.add_job(0, (0..500).map(store).chain([sleep]).chain((0..500).map(store)));
        let report = simulator.run().unwrap();
        assert_eq!(report.accesses(), 1000);
        assert!(report.now.since(Time::ZERO) < Duration::from_secs(3));
        assert!(simulator.steps() < 100_000, "{} steps", simulator.steps());
    }
}
