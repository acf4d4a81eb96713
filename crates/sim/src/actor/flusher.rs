//! The flusher as an actor: writes one run of pages per step, as [`Flusher`] orders, as fast as the
//! device takes them.

use crate::machine::FlusherStart;
use crate::world::{Pause, World};
use mglru_core::writeback::{Flusher, FlusherOptions, FlusherStep, WriteOrder};

/// The actor that writes dirty pages.
#[derive(Debug)]
pub(crate) struct FlusherActor {
    flusher: Flusher,
    /// An order that waits for room in the device's queue, or for the flusher's start.
    order: Option<WriteOrder>,
    start: Option<FlusherStart>,
    /// Whether it slept since its last order.
    slept: bool,
}

impl FlusherActor {
    pub(crate) fn new(options: FlusherOptions, start: Option<FlusherStart>, world: &World) -> FlusherActor {
        FlusherActor { flusher: Flusher::new(options, world.now()), order: None, start, slept: false }
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
                FlusherStep::Sleep(until) => {
                    self.slept = true;
                    return Pause::Called(Some(until));
                }
            },
        };
        if std::mem::take(&mut self.slept)
            && let Some(start) = &mut self.start
        {
            let late = world.draw(std::mem::replace(&mut start.first, start.later));
            self.order = Some(order);
            return Pause::Until(world.now() + late);
        }
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
    use crate::{Access, FlusherStart, Lane, Latency, Machine, Operation, Simulator, Trouble};
    use mglru_core::{Counter, Time};
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

    /// The times in microseconds of the first writes of two groups of pages, where the flusher
    /// starts so many milliseconds late the first time and later.
    fn written_at(first_ms: u64, later_ms: u64) -> [u64; 2] {
        let of = |ms| Latency::Fixed(Duration::from_millis(ms));
        let mut machine = Machine::new(1000);
        machine.device.write = Lane::IDEAL;
        machine.flusher_start = Some(FlusherStart { first: of(first_ms), later: of(later_ms) });
        let mut simulator = Simulator::new(&machine).unwrap();
        let [first, second] = [0..200, 200..400].map(|pages| pages.map(|page| Access::store(page).into()));
        let sleep = Operation::Rest { nanos: 200_000_000 };
        simulator.add_job(0, first.chain([sleep]).chain(second).chain([sleep]));
        let tenant = simulator.core().memcgs().find("all").unwrap();
        let mut written = [0; 2];
        let mut dirtied = 0;
        while simulator.step().unwrap() {
            let dirty = simulator.core().memcg(tenant).stat().get(Counter::FileDirty);
            let at = &mut written[usize::from(simulator.accesses() > 200)];
            if dirty < dirtied && *at == 0 {
                *at = simulator.now().since(Time::ZERO).as_micros() as u64;
            }
            dirtied = dirty;
        }
        written
    }

    #[test]
    fn a_flusher_starts_late_and_later_the_first_time() {
        let [first, second] = written_at(0, 0);
        assert!(0 < first && first < 200_000 && second > 200_000, "{first} {second}");
        assert_eq!(written_at(20, 0)[0], first + 20_000);
        assert_eq!(written_at(0, 3), [first, second + 3000]);
    }
}
