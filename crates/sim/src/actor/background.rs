//! Background reclaim as an actor: one batch per step.

use super::rest;
use crate::world::{Pause, World};
use mglru_core::Core;
use mglru_core::reclaim::{Background, BackgroundStep};

/// The actor that keeps free memory between the watermarks.
#[derive(Debug)]
pub(crate) struct BackgroundActor {
    background: Background,
}

impl BackgroundActor {
    pub(crate) fn new(core: &Core, cpu: usize) -> BackgroundActor {
        BackgroundActor { background: Background::new(core, cpu) }
    }

    pub(crate) fn step(&mut self, world: &mut World) -> Pause {
        match self.background.step(&world.core, &world.host) {
            BackgroundStep::More => {
                let nanos = world.take_batch_nanos();
                rest(world, nanos)
            }
            BackgroundStep::Wait(throttle) => Pause::Written(Some(world.now() + throttle.timeout())),
            BackgroundStep::Nap(time) => Pause::Called(Some(world.now() + time)),
            BackgroundStep::Sleep => Pause::Called(None),
        }
    }
}
