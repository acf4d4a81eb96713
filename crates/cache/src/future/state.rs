//! State that the futures of a cache share.

use super::syncs::Syncs;
use super::timer::Timer;
use super::turns::{Place, Turns};
use std::task::Context;

/// State that the futures of a cache share.
#[derive(Default)]
pub(crate) struct Futures {
    pub(super) timer: Timer,
    pub(super) turns: Turns,
    pub(super) syncs: Syncs,
}

impl Futures {
    /// As [`Turns::take`].
    pub(super) fn take_turn(&self, place: &mut Place, cx: &Context<'_>) -> bool {
        self.turns.take(place, cx.waker(), &self.timer)
    }

    /// Wakes all tasks that wait for the cache, because it is closed.
    pub(crate) fn close(&self) {
        self.timer.close();
        self.turns.close();
        self.syncs.close();
    }
}
