//! A scenario by the cache on real files.

use super::plan::Plan;
use super::report::Outcome;
use crate::error::Failure;
use std::path::Path;

/// Runs a plan.
///
/// # Errors
/// Files cannot be made.
pub fn run(_plan: &Plan, _directory: Option<&Path>) -> Result<Outcome, Failure> {
    Err(Failure::usage("--world real: not yet"))
}
