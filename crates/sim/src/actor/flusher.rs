//! The flusher as an actor: writes one run of pages per step, as [`Flusher`] orders, as fast as the
//! device takes them.

use crate::world::{Pause, World};
use mglru_core::writeback::{Flusher, FlusherOptions, FlusherStep, WriteOrder};

/// The actor that writes dirty pages.
#[derive(Debug)]
pub(crate) struct FlusherActor {
    flusher: Flusher,
    /// An order that waits for room in the device's queue.
    order: Option<WriteOrder>,
}

impl FlusherActor {
    pub(crate) fn new(options: FlusherOptions, world: &World) -> FlusherActor {
        FlusherActor { flusher: Flusher::new(options, world.now()), order: None }
    }

    /// Requests that everything is written, regardless of the thresholds.
    pub(crate) fn ask(&mut self) {
        self.flusher.ask();
    }

    /// Starts writing one run of consecutive pages, or rests.
    pub(crate) fn step(&mut self, world: &mut World) -> Pause {
        let order = match self.order.take() {
            Some(order) => order,
            None => match self.flusher.step(&world.core, &world.host) {
                FlusherStep::Write(order) => order,
                FlusherStep::Sleep(until) => return Pause::Called(Some(until)),
            },
        };
        if let Some(room) = world.device.write_full_until(world.now()) {
            self.order = Some(order);
            return Pause::Until(room);
        }
        let pages = world.write(order);
        match self.flusher.wrote(&world.core, &world.host, pages) {
            Some(until) => Pause::Written(Some(until)),
            None => Pause::Ready,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Access, Lane, Machine, Operation, Simulator, Trouble};
    use mglru_core::Time;
    use std::time::Duration;

    /// A full device refuses writes instantly: time must still advance until it recovers.
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
