//! Workloads: deterministic streams of page accesses for the cache and the simulator.
//!
//! A workload is a stream of [`Access`]es. A job in fio's language ([`fio`]) has a [`Pattern`],
//! which draws accesses from a [`Distribution`] with a seed ([`random`]). A recorded trace
//! ([`trace`]) replays accesses. A [`Load`] models a program that uses many files and memory at
//! once, such as a database. A [`scenario`] runs several of these in tenants over time. This crate
//! performs no access: the caller does, and can use [`verify`] to fill and check the bytes.
//!
//! Results are reproducible: the crate uses neither clocks, threads nor unordered iteration, and
//! each stream has its own seed.

#![forbid(unsafe_code)]

pub mod access;
pub mod compile;
pub mod distribution;
pub mod file_anon;
pub mod fio;
pub mod hash;
pub mod load;
pub mod names;
pub mod pattern;
pub mod random;
mod random_map;
pub mod requests;
pub mod scenario;
pub mod select;
pub mod size;
pub mod sweep;
pub mod text_file;
pub mod tpcc;
pub mod trace;
pub mod unfinished;
pub mod verify;
pub mod ycsb;

pub use access::Access;
pub use distribution::Distribution;
pub use load::Load;
pub use mglru_core::PAGE_BYTES;
pub use pattern::{Accesses, BlockBytes, Length, Mix, Order, Pattern};
pub use random::Random;
