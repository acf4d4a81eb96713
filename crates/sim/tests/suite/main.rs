//! Integration tests of the simulator, in one binary to save linking time.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "tests are hosts"
)]

mod baselines;
mod beside;
mod cpus;
mod dirty;
mod events;
mod faults;
mod golden;
mod held;
mod loads;
mod policy_pages;
mod protection;
mod readahead;
mod refused;
mod rereads;
mod samples;
mod swarm;
mod trouble;
mod zones;
