//! Background reclaim: frees pages ahead of those who need them, when the core asks.

use crate::shared::Shared;
use mglru_core::reclaim::{Background, BackgroundStep};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long it sleeps when nobody wakes it: a bound on how late a missed cause is noticed.
const IDLE: Duration = Duration::from_secs(1);

pub(super) fn run(shared: &Shared) {
    let mut background = Background::new(&shared.core, shared.cpu());
    let mut heard = 0;
    while !shared.stopping.load(Ordering::Acquire) {
        let progress = shared.host.progress.rings();
        let at_work = shared.at_work.read();
        let step = background.step(&shared.core, &shared.host);
        shared.submit_swap_outs();
        drop(at_work);
        shared.reap_victims();
        match step {
            BackgroundStep::More => {}
            BackgroundStep::Wait(throttle) => shared.host.park(throttle, progress),
            BackgroundStep::Sleep => heard = shared.host.background.wait(heard, IDLE),
        }
    }
}
