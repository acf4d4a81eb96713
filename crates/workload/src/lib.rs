//! What users do: the inputs of the cache and of the simulator.
//!
//! A workload is a stream of [`Access`]es. It comes from a job in fio's language ([`fio`]), whose
//! [`Pattern`] draws accesses from a [`Distribution`] with a seed ([`random`]), or from a recorded
//! trace ([`trace`]). What touches many files and memory at once is a [`Load`]; a [`scenario`] has
//! several of them, in tenants, over time. Nothing here performs an access: hosts do, and may let
//! [`verify`] fill and check the bytes.
//!
//! Everything is deterministic: no clock, no thread, no unordered iteration, and one seed per
//! stream.

#![forbid(unsafe_code)]

pub mod access;
pub mod compile;
pub mod distribution;
pub mod file_anon;
pub mod fio;
pub mod load;
pub mod pattern;
pub mod random;
mod random_map;
pub mod requests;
pub mod scenario;
pub mod select;
pub mod size;
pub mod sweep;
pub mod tpcc;
pub mod trace;
pub mod verify;
pub mod ycsb;

pub use access::Access;
pub use distribution::Distribution;
pub use load::Load;
pub use mglru_core::PAGE_BYTES;
pub use pattern::{Accesses, BlockBytes, Length, Mix, Order, Pattern};
pub use random::Random;
