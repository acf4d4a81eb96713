//! Evaluates a change of reclaim over the standard loads, with intervals.
//!
//! ```text
//! Change       mechanisms off and on | a preset before and after | another build of this program
//!   × setting  where it is tried: three presets, or the pair of presets itself
//!   × load     standard loads, generated from a seed                            loads.rs
//!   × seed     before and after see the same accesses                           measure.rs
//! Evaluation   per load and setting: effects with intervals, and a verdict      result.rs, crate::effect
//! ```
//!
//! All runs are simulated: the same request gives the same figures on every machine. The other
//! build of a [`Change::Build`] is asked for its [`Counts`] through its own command, and is stopped
//! if it takes far longer than this build.
//!
//! ```
//! use mglru_core::{Preset, Switch};
//! use mglru_lab::Unwatched;
//! use mglru_lab::evaluate::{Change, EvaluationRequest, Size, evaluate};
//!
//! # fn main() -> Result<(), mglru_lab::Error> {
//! let change = Change::Mechanisms(vec![Switch::ReclaimLoop]);
//! let size = Size { accesses: 2000, pages: 500 };
//! let request = EvaluationRequest::new(change);
//! let request = EvaluationRequest { presets: vec![Preset::Linux71], runs: 2, size, ..request };
//! for row in evaluate(&request, &Unwatched)?.rows {
//!     println!("{}: {:+.2} % misses", row.load, row.misses().median);
//! }
//! # Ok(())
//! # }
//! ```

mod loads;
mod measure;
mod result;
mod revision;

pub use loads::{LOADS, Load, Size};
pub use measure::{CountRow, Counts, counts};
pub use result::{Evaluation, LoadRow, METRICS, NOTABLE_PERCENT};
pub use revision::{Revision, Revisions};

use crate::arguments::each_once;
use crate::error::Error;
use crate::watch::Watch;
use measure::Limit;
use mglru_core::{MechanismError, Mechanisms, Preset, Switch};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The evaluated change.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Mechanisms, all of them off before and on after. One that needs another one is evaluated
    /// together with it.
    Mechanisms(Vec<Switch>),
    /// A preset, and the one after it.
    Presets(Preset, Preset),
    /// This build before, and another build of this program after.
    Build {
        /// The other program.
        binary: PathBuf,
    },
}

impl Change {
    /// The change, in a line.
    pub fn words(&self) -> String {
        match self {
            Change::Mechanisms(mechanisms) => {
                let names: Vec<&str> = mechanisms.iter().map(|mechanism| mechanism.name()).collect();
                format!("{}: off → on", names.join(", "))
            }
            Change::Presets(before, after) => format!("preset {} → {}", before.name(), after.name()),
            Change::Build { binary } => format!("this build → {}", binary.display()),
        }
    }
}

/// A request for an evaluation.
#[derive(Debug, Clone)]
pub struct EvaluationRequest {
    /// The evaluated change.
    pub change: Change,
    /// The presets on which a mechanism or a build is tried.
    pub presets: Vec<Preset>,
    /// Names of the loads; empty for all.
    pub loads: Vec<String>,
    /// The first seed.
    pub seed: u64,
    /// Number of seeds. With fewer than six no effect reaches 95 % confidence.
    pub runs: u32,
    /// Length of each load.
    pub size: Size,
}

impl EvaluationRequest {
    /// The revisions of the builds that are compared, as far as they lie in checkouts.
    fn revisions(&self) -> Revisions {
        let before = std::env::current_exe().ok().and_then(|own| Revision::of_program(&own));
        let after = match &self.change {
            Change::Build { binary } => Revision::of_program(binary),
            _ => before.clone(),
        };
        Revisions { before, after }
    }

    /// Whether another build is this one, byte for byte.
    fn is_same_program(&self) -> Result<bool, Error> {
        let Change::Build { binary } = &self.change else { return Ok(false) };
        let other = std::fs::metadata(binary).map_err(|error| measure::cannot_be_run(binary, &error))?;
        let Ok(own) = std::env::current_exe() else { return Ok(false) };
        // Devices have no end.
        let is_as_long = other.is_file() && own.metadata().is_ok_and(|own| own.len() == other.len());
        let bytes = |path: &Path| std::fs::read(path).ok();
        Ok(is_as_long && bytes(&own).is_some_and(|own| bytes(binary) == Some(own)))
    }

    /// A change over all loads, on three presets, with six seeds.
    pub fn new(change: Change) -> EvaluationRequest {
        let presets = vec![Preset::Linux71, Preset::Linux72, Preset::Default];
        EvaluationRequest { change, presets, loads: Vec::new(), seed: 1, runs: 6, size: Size::default() }
    }

    /// The loads, each of them once.
    ///
    /// # Errors
    /// A name is unknown.
    pub fn loads(&self) -> Result<Vec<Load>, Error> {
        if self.loads.is_empty() {
            return Ok(LOADS.to_vec());
        }
        let find = |name: &String| {
            let found = LOADS.into_iter().find(|load| load.name == name);
            found.ok_or_else(|| {
                let names: Vec<&str> = LOADS.iter().map(|load| load.name).collect();
                Error::usage(format_args!("unknown load `{name}`; expected {}", names.join(", ")))
            })
        };
        let loads: Result<Vec<Load>, Error> = self.loads.iter().map(find).collect();
        loads.map(each_once)
    }
}

/// Where a change is tried.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Name of the preset, or of both.
    pub name: String,
    before: Mechanisms,
    after: Mechanisms,
}

/// The settings, and the presets on which the change cannot be tried, with reasons.
type Settings = (Vec<Setting>, Vec<(&'static str, String)>);

impl EvaluationRequest {
    fn settings(&self) -> Settings {
        let (mut settings, mut refused) = (Vec::new(), Vec::new());
        let both = |preset: Preset| -> Result<[Mechanisms; 2], MechanismError> {
            match &self.change {
                Change::Mechanisms(switches) => {
                    let before = Mechanisms::compose(preset, &[], switches)?;
                    Ok([before, Mechanisms::compose(preset, switches, &[])?])
                }
                _ => Ok([Mechanisms::preset(preset); 2]),
            }
        };
        if let Change::Presets(before, after) = self.change {
            let name = format!("{} → {}", before.name(), after.name());
            let (before, after) = (Mechanisms::preset(before), Mechanisms::preset(after));
            return (vec![Setting { name, before, after }], refused);
        }
        for &preset in &self.presets {
            match both(preset) {
                Ok([before, after]) => {
                    settings.push(Setting { name: preset.name().to_owned(), before, after });
                }
                Err(error) => refused.push((preset.name(), error.to_string())),
            }
        }
        (settings, refused)
    }
}

/// Evaluates a change.
///
/// # Errors
/// The request is invalid, or a load cannot be run.
pub fn evaluate(request: &EvaluationRequest, watch: &dyn Watch) -> Result<Evaluation, Error> {
    let loads = request.loads()?;
    let (settings, refused) = request.settings();
    if settings.is_empty() {
        let reasons: Vec<String> =
            refused.iter().map(|(preset, reason)| format!("{preset}: {reason}")).collect();
        return Err(Error::usage(format_args!(
            "the change cannot be tried on any preset: {}",
            reasons.join("; ")
        )));
    }
    let is_same_program = request.is_same_program()?;
    let before: Vec<Mechanisms> = settings.iter().map(|setting| setting.before).collect();
    let after: Vec<Mechanisms> = settings.iter().map(|setting| setting.after).collect();
    let (before, after) = match &request.change {
        Change::Build { binary } => {
            let begun = Instant::now();
            let before = measure::measure(&loads, &before, request, watch)?;
            let after = Counts::of_build(binary, request, Limit::after(begun.elapsed()), watch)?;
            (before, after.of(&loads, &settings, request)?)
        }
        _ => {
            let both: Vec<Mechanisms> = before.iter().chain(&after).copied().collect();
            let mut measured = measure::measure(&loads, &both, request, watch)?;
            let after = measured.split_off(settings.len());
            (measured, after)
        }
    };
    let evaluation = Evaluation::new(request, &loads, &settings, refused, &before, &after);
    Ok(Evaluation { is_same_program, ..evaluation })
}
