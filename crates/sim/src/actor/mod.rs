//! Actors of the machine: jobs, background reclaim, the flusher, the reaper, the administrator.
//!
//! An actor has a `step` that acts until it must wait and returns what it waits for. It never
//! blocks. Within a step nothing else happens; between steps anything may. An actor suspends where
//! the core returns a wait, where the device takes time, and between batches of reclaim.

mod administrator;
mod background;
mod flusher;
mod job;
mod reaper;

pub(crate) use administrator::{Administrator, ControlReader, Writing};
pub use administrator::{Answer, Command, Reading};
pub(crate) use background::BackgroundActor;
pub(crate) use flusher::FlusherActor;
pub(crate) use job::{Job, Process};
pub(crate) use reaper::Reaper;

use crate::operation::SourceError;
use crate::world::{Pause, World};
use job::{wait_for, wait_out};
use mglru_core::Time;

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a machine has a handful of actors")]
pub(crate) enum Actor {
    Job(Box<Job>),
    Background(BackgroundActor),
    Flusher(FlusherActor),
    Reaper(Reaper),
    Administrator(Administrator),
    Reader(ControlReader),
}

impl Actor {
    /// Its kind, for error texts.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Actor::Job(_) => "a job",
            Actor::Background(_) => "background reclaim",
            Actor::Flusher(_) => "the flusher",
            Actor::Reaper(_) => "the reaper",
            Actor::Administrator(_) => "the administrator",
            Actor::Reader(_) => "a reader of control files",
        }
    }

    /// Acts until it must wait. `alone`: no other actor is runnable.
    pub(crate) fn step(&mut self, world: &mut World, alone: bool) -> Result<Pause, SourceError> {
        match self {
            Actor::Job(job) => job.step(world, alone),
            Actor::Background(background) => Ok(background.step(world)),
            Actor::Flusher(flusher) => Ok(flusher.step(world)),
            Actor::Reaper(reaper) => Ok(reaper.step(world)),
            Actor::Administrator(administrator) => Ok(administrator.step(world)),
            Actor::Reader(reader) => Ok(reader.step(world)),
        }
    }
}

/// The time `nanos` after `now`, or the end of time. Quicker than with a [`std::time::Duration`].
#[inline]
pub(crate) fn after(now: Time, nanos: u64) -> Time {
    Time::from_nanos(now.as_nanos().saturating_add(nanos))
}

/// Rests for a while. With 0, another runnable actor may run first.
#[inline]
fn rest(world: &World, nanos: u64) -> Pause {
    if nanos == 0 { Pause::Ready } else { Pause::Until(after(world.now(), nanos)) }
}
