//! Integration tests of the core, in one binary to save linking time.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "tests are hosts"
)]

mod access;
mod common;
mod cycles;
mod golden;
mod links;
mod model;
mod naive;
mod parts;
mod policies;
mod pressure;
mod random;
mod threads;
mod tidy;
mod tight;
mod writeback;
