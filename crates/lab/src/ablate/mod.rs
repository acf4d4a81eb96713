//! Ablation: each mechanism switched off alone and compared with the full set, over several seeds.
//!
//! ```text
//! Variant   which mechanisms are off together       variant.rs
//! Input     a trace or a scenario, run once         input.rs
//! Ablation  effects with their significance      result.rs, crate::effect
//! ```
//!
//! All runs are simulated, so equal requests give equal results on every machine.
//!
//! # Example
//!
//! ```
//! use mglru_lab::Unwatched;
//! use mglru_lab::ablate::{Input, AblationRequest, ablate};
//!
//! # fn main() -> Result<(), mglru_lab::Error> {
//! # let directory = tempfile::tempdir().expect("a temporary folder");
//! # let path = directory.path().join("trace.txt");
//! # let text: String = (0..5000).map(|at| format!("{}\n", at * at % 1009)).collect();
//! # std::fs::write(&path, text).expect("room for a trace");
//! let request = AblationRequest {
//!     input: path, // of a trace: here, 5,000 accesses to 505 pages
//!     overrides: Default::default(),
//!     memory: Some("10%".parse().expect("a share of the trace's pages")),
//!     seed: 1,
//!     runs: 2,
//!     pairs: false,
//!     warm: None,
//!     swap: Default::default(),
//!     open: Default::default(),
//! };
//! let input = Input::load(&request, &Unwatched)?;
//! let rows = ablate(&input, &request, &Unwatched)?.rows;
//! # assert!(!rows.is_empty());
//! for row in rows {
//!     if let Some(misses) = row.effects.first() {
//!         let unit = if misses.is_percent { " %" } else { "" };
//!         println!("without {}: {:+.1}{unit} misses", row.name, misses.median);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod input;
mod result;
mod variant;

pub use input::{Input, TenantCounts};
pub use result::{Ablation, VariantRow, ends, sort};
pub use variant::{NoEffect, Variant, Variants};

use crate::error::Error;
use crate::memory::Room;
use crate::parallel;
use crate::replay::memory::{Memory, Swap};
use crate::run::Overrides;
use crate::watch::{Quiet, Stage, Unit, Watch};
use input::Run;
use mglru_workload::trace::OpenOptions;
use std::path::PathBuf;
use std::time::Instant;

/// A request for an ablation.
#[derive(Debug, Clone)]
pub struct AblationRequest {
    /// A trace, or a scenario (`.toml`).
    pub input: PathBuf,
    /// Behaviours of the full set.
    pub overrides: Overrides,
    /// Memory. `None` is a tenth of a trace's distinct pages, or a scenario's own memory.
    pub memory: Option<Memory>,
    /// The first seed.
    pub seed: u64,
    /// Number of seeds.
    pub runs: u32,
    /// Whether to switch off pairs of mechanisms as well.
    pub pairs: bool,
    /// For a trace, the share of accesses after which counting starts.
    pub warm: Option<f64>,
    /// For a trace, the swap for anonymous pages.
    pub swap: Swap,
    /// Options for opening the trace.
    pub open: OpenOptions,
}

/// Runs each variant with each seed, and compares them.
///
/// # Errors
/// If this machine has too little memory, the full set cannot be run, or the work was cancelled.
/// The first seed uses the requested memory unchanged.
pub fn ablate(input: &Input, request: &AblationRequest, watch: &dyn Watch) -> Result<Ablation, Error> {
    let began = Instant::now();
    let variants = Variants::of(input.mechanisms(), request.pairs);
    let first = request.seed;
    let seeds = (0..u64::from(request.runs)).map(|number| first.wrapping_add(number));
    let tasks: Vec<(usize, u64)> =
        seeds.flat_map(|seed| (0..variants.run.len()).map(move |variant| (variant, seed))).collect();
    let threads = parallel::threads();
    let (_, name) = input.kind();
    Room::for_runs(threads.min(tasks.len())).check(
        input.needed_bytes()?,
        name,
        "choose less memory or swap",
    )?;
    let stage = Stage::begin(watch, &format!("{} runs", tasks.len()), tasks.len() as u64, Unit::Steps);
    let runs = parallel::all(&tasks, threads, |_, &(variant, seed)| {
        let looks = variant == 0 && seed == first;
        let run = input.run(variants.run[variant].mechanisms, (seed, first), looks, &Quiet(watch));
        stage.advance(1)?;
        match run {
            // Without that mechanism the load may need more memory. This is a result, too.
            Err(Error::Work(reason)) if variant > 0 => Ok(Err(reason)),
            run => run.map(Ok),
        }
    })?;
    let mut by_variant: Vec<Vec<Result<Run, String>>> = variants.run.iter().map(|_| Vec::new()).collect();
    for (&(variant, _), run) in tasks.iter().zip(runs) {
        by_variant[variant].push(run);
    }
    Ok(Ablation::new(input, variants, by_variant, first, began.elapsed().as_secs_f64()))
}
