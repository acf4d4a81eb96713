//! Writing to control files.

use super::error::{ControlError, ControlStep, Errno, Failure};
use super::file::File;
use super::lru_gen::Commands;
use super::value;
use crate::Core;
use crate::host::Host;
use crate::lru::switch::{LruSwitch, SWITCH_FOLIOS, SwitchStep};
use crate::mechanism::Lru;
use crate::memcg::MemcgId;
use crate::reclaim::{Lowering, Proactive, RequestStep};
use crate::tunables::MAIN;

/// The rest of a write.
#[derive(Debug)]
pub(super) enum Work {
    Nothing,
    /// Makes room below a limit.
    Lower(Lowering),
    Reclaim(Proactive),
    Commands(Box<Commands>),
    Switch(LruSwitch),
}

/// A write to a control file. Step it to the end, or cancel it.
#[derive(Debug)]
#[must_use = "the write makes no progress unless it is stepped; cancel it if it is no longer wanted"]
pub struct ControlWrite {
    path: String,
    memcg: MemcgId,
    cpu: usize,
    work: Work,
}

impl ControlWrite {
    pub(super) fn new(path: &str, memcg: MemcgId, cpu: usize, work: Work) -> ControlWrite {
        ControlWrite { path: path.to_owned(), memcg, cpu, work }
    }

    /// Does at most one batch. Not to be called again after `Done` or an error.
    ///
    /// # Errors
    /// Fewer pages could be reclaimed than requested, or a command is invalid. Earlier effects
    /// stay.
    pub fn step(&mut self, core: &Core, host: &impl Host) -> Result<ControlStep, ControlError> {
        let step = match &mut self.work {
            Work::Nothing => Ok(ControlStep::Done),
            Work::Lower(lowering) => Ok(match lowering.step(core, host) {
                RequestStep::More => ControlStep::More,
                RequestStep::Wait(throttle) => ControlStep::Wait(throttle),
                // The limit was written all the same.
                RequestStep::Done(_) | RequestStep::TryAgain(_) => ControlStep::Done,
            }),
            Work::Reclaim(request) => match request.step(core, host) {
                RequestStep::More => Ok(ControlStep::More),
                RequestStep::Wait(throttle) => Ok(ControlStep::Wait(throttle)),
                RequestStep::Done(_) => Ok(ControlStep::Done),
                RequestStep::TryAgain(progress) => Err((
                    Errno::Again,
                    format!(
                        "pages that could be reclaimed: {}; ask for less, or again later",
                        progress.reclaimed
                    ),
                )),
            },
            Work::Commands(commands) => commands.step(core, host, self.cpu),
            Work::Switch(switch) => Ok(match switch.step(core, SWITCH_FOLIOS) {
                SwitchStep::More => ControlStep::More,
                // The write that took over does the rest.
                SwitchStep::Done | SwitchStep::Superseded => ControlStep::Done,
            }),
        };
        let step = step.map_err(|(errno, reason)| ControlError::new(errno, &self.path, reason));
        if !matches!(step, Ok(ControlStep::More | ControlStep::Wait(_))) {
            self.end(core);
        }
        step
    }

    /// Checks the syntax of all commands before any is executed. The kernel executes commands up to
    /// the first invalid one.
    ///
    /// # Errors
    /// `EINVAL`: an `lru_gen` command is invalid.
    pub fn check(&self) -> Result<(), ControlError> {
        match &self.work {
            Work::Commands(commands) => {
                commands.check().map_err(|(errno, reason)| ControlError::new(errno, &self.path, reason))
            }
            _ => Ok(()),
        }
    }

    /// Cancels the write. Earlier effects stay.
    pub fn cancel(mut self, core: &Core, host: &impl Host) {
        match std::mem::replace(&mut self.work, Work::Nothing) {
            Work::Lower(lowering) => lowering.cancel(core, host),
            Work::Reclaim(request) => request.cancel(core, host),
            work => self.work = work,
        }
        self.end(core);
    }

    fn end(&mut self, core: &Core) {
        if let Work::Commands(commands) = &mut self.work {
            commands.end(core);
        }
        self.work = Work::Nothing;
        core.drop_handle(self.memcg);
    }
}

/// Checks a value, and sets what can be set at once.
pub(super) fn begin(core: &Core, file: File, id: MemcgId, text: &str, cpu: usize) -> Result<Work, Failure> {
    let memcg = core.memcg(id);
    match file {
        File::Min => core.memcgs.set_min(id, value::limit(text)?),
        File::Low => core.memcgs.set_low(id, value::limit(text)?),
        File::High => {
            memcg.set_high_pages(value::limit(text)?);
            return Ok(Work::Lower(Lowering::new(id, true, cpu)));
        }
        File::Max => {
            memcg.set_max_pages(value::limit(text)?);
            return Ok(Work::Lower(Lowering::new(id, false, cpu)));
        }
        File::SwapHigh => memcg.set_swap_high_pages(value::limit(text)?),
        File::SwapMax => memcg.set_swap_max_pages(value::limit(text)?),
        File::Peak => memcg.memory.reset_peak(),
        File::SwapPeak => memcg.swap.reset_peak(),
        File::OomGroup => memcg.set_oom_group(value::flag(text)?),
        File::Reclaim => {
            let (pages, swappiness) = value::request(text)?;
            return Ok(Work::Reclaim(Proactive::new(core, id, pages, swappiness, cpu)));
        }
        File::LruGen if core.habits().shows_lists => {
            let lru = core.lru().name();
            return Err((
                Errno::NotSupported,
                format!(
                    "the policy `{lru}` has no generations that can be opened or evicted: use memory.reclaim"
                ),
            ));
        }
        File::LruGen => return Ok(Work::Commands(Box::new(Commands::new(text)))),
        File::Enabled => {
            let to = match Lru::parse(text.trim()) {
                Ok(policy) => policy,
                Err(_) => {
                    let bits = value::capabilities(text)?;
                    core.tunables.set_walk_capabilities(bits);
                    Lru::by_generations(bits & MAIN != 0)
                }
            };
            // Takes over a switch under way, so that this write ends when folios are where it
            // wants them.
            if core.lru() != to || core.mechanisms().is_switching() {
                return Ok(Work::Switch(core.switch_lru(to)));
            }
        }
        File::MinTtl => core.tunables.set_min_ttl_ms(value::small_number(text.trim())?),
        File::Pressure => {
            return Err((
                Errno::NotSupported,
                "pressure triggers are not supported: read the file periodically".to_owned(),
            ));
        }
        _ => unreachable!("it can only be read"),
    }
    Ok(Work::Nothing)
}
