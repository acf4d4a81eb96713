//! The tests of the core from outside, in one binary: linking is what a build of tests waits for.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "tests are hosts"
)]

mod access;
mod common;
mod golden;
mod links;
mod model;
mod naive;
mod policies;
mod pressure;
mod threads;
mod tidy;
mod writeback;
