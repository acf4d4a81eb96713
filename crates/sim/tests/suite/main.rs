//! The tests of the simulator from outside, in one binary: linking is what a build of tests waits
//! for.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "tests are hosts"
)]

mod baselines;
mod dirty;
mod events;
mod golden;
mod loads;
mod protection;
mod readahead;
mod samples;
mod trouble;
