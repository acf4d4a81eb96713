//! The administrator: writes to control files, makes and removes tenants, at their times; and who reads control files.
//!
//! One order after the other. A write takes as long as what it makes reclaim do, and orders behind it wait for it, as the
//! lines of a shell script do.
//!
//! When a tenant is removed, its jobs end before their next batch of operations. What one of them has begun is finished
//! and charged to the parent, so that it does not matter how far they are.

use super::{rest, wait_out};
use crate::machine::Tenant;
use crate::world::{Pause, World, add_tenant};
use mglru_core::{ControlError, ControlStep, ControlWrite, MemcgError, Time};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// On whose behalf control files are written.
const CPU: usize = 0;

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Writes a value to a control file.
    Write {
        /// Like `a/b/memory.max`.
        file: String,
        /// As to the kernel.
        value: String,
    },
    /// Makes the tenant of this number.
    Create(usize),
    /// Ends the jobs of the tenant of this number, and removes it.
    Remove(usize),
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The control file refused the value, or could not do all that was asked for.
    Control(ControlError),
    /// The tenant cannot be made or removed.
    Tenant(MemcgError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Control(error) => error.fmt(f),
            Refusal::Tenant(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

/// What came of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// When it began, and when it ended.
    pub time: (Time, Time),
    /// Whether it was carried out.
    pub result: Result<(), Refusal>,
}

/// The text of a control file at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// When.
    pub time: Time,
    /// The number of the file among those that are read.
    pub file: usize,
    /// The text; or there is no such file, as its tenant is not there.
    pub text: Result<String, ControlError>,
}

/// The actor that carries out orders.
#[derive(Debug)]
pub(crate) struct Administrator {
    /// The number of the first of the tenants that are made later.
    first_later: usize,
    later: Vec<Tenant>,
    orders: VecDeque<(Time, Order)>,
    /// A write on its way, and when it began.
    write: Option<(Time, ControlWrite)>,
}

impl Administrator {
    /// `first_later`: the place of the first of the `later` tenants among all, the root being the first.
    pub(crate) fn new(first_later: usize, later: Vec<Tenant>, orders: Vec<(Time, Order)>) -> Administrator {
        Administrator { first_later, later, orders: orders.into(), write: None }
    }

    /// Carries out an order, or goes on with one.
    pub(crate) fn step(&mut self, world: &mut World) -> Pause {
        if let Some((began, write)) = self.write.take() {
            return self.go_on(world, began, write);
        }
        let now = world.now();
        match self.orders.front() {
            None => return Pause::Done,
            Some((time, _)) if *time > now => return Pause::Until(*time),
            Some(_) => {}
        }
        let Some((_, order)) = self.orders.pop_front() else { unreachable!("it was there") };
        let result = match order {
            Order::Write { file, value } => match world.core.write_control(&file, &value, CPU) {
                Ok(write) => return self.go_on(world, now, write),
                Err(error) => Err(Refusal::Control(error)),
            },
            Order::Create(number) => self.create(world, number + 1).map_err(Refusal::Tenant),
            Order::Remove(number) => remove(world, number + 1).map_err(Refusal::Tenant),
        };
        world.answers.push(Answer { time: (now, now), result });
        Pause::Ready
    }

    fn go_on(&mut self, world: &mut World, began: Time, mut write: ControlWrite) -> Pause {
        let result = match write.step(&world.core, &world.host) {
            Ok(ControlStep::More) => {
                self.write = Some((began, write));
                let nanos = world.take_batch_nanos();
                return rest(world, nanos);
            }
            Ok(ControlStep::Wait(throttle)) => {
                self.write = Some((began, write));
                return wait_out(world, throttle);
            }
            Ok(ControlStep::Done) => Ok(()),
            Err(error) => Err(Refusal::Control(error)),
        };
        world.answers.push(Answer { time: (began, world.now()), result });
        Pause::Ready
    }

    fn create(&self, world: &mut World, tenant: usize) -> Result<(), MemcgError> {
        let wanted = &self.later[tenant - self.first_later];
        let made = add_tenant(&world.core, wanted, world.now());
        let state = &mut world.tenants[tenant];
        match made {
            Ok(memcg) => state.memcg = Some(memcg),
            Err(_) => state.gone = true,
        }
        made.map(drop)
    }
}

fn remove(world: &mut World, tenant: usize) -> Result<(), MemcgError> {
    let state = &mut world.tenants[tenant];
    let memcg = state.memcg.ok_or(MemcgError::Gone)?;
    // Its jobs still use the number, and the report reads its counters.
    world.core.add_handle(memcg);
    let removed = world.core.remove_memcg(&world.host, memcg);
    match removed {
        Ok(()) => state.gone = true,
        Err(_) => world.core.drop_handle(memcg),
    }
    removed
}

/// The actor that reads control files again and again. It does not keep the machine running.
#[derive(Debug)]
pub(crate) struct ControlReader {
    every: Duration,
    files: Vec<String>,
    next: Time,
}

impl ControlReader {
    pub(crate) fn new(every: Duration, files: Vec<String>) -> ControlReader {
        assert!(!every.is_zero(), "who reads all the time leaves no time");
        ControlReader { every, files, next: Time::ZERO }
    }

    pub(crate) fn step(&mut self, world: &mut World) -> Pause {
        let time = world.now();
        if time >= self.next {
            let read = |(file, path): (usize, &String)| Reading { time, file, text: world.core.read_control(path, time) };
            let readings: Vec<Reading> = self.files.iter().enumerate().map(read).collect();
            world.readings.extend(readings);
            self.next = self.next + self.every;
        }
        Pause::Until(self.next)
    }
}
