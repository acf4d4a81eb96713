//! Background reclaim: frees pages before threads need them, when the core asks for it.

use crate::shared::Shared;
use mglru_core::reclaim::{Background, BackgroundStep};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest sleep without a wake-up, which bounds the delay if a wake-up is missed.
const IDLE: Duration = Duration::from_secs(1);

pub(super) fn run(shared: &Shared) {
    let mut background = Background::new(&shared.core, shared.cpu());
    let mut rings_before = 0;
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
            BackgroundStep::Nap(time) => rings_before = shared.host.background.wait(rings_before, time),
            BackgroundStep::Sleep => rings_before = shared.host.background.wait(rings_before, IDLE),
        }
    }
}
