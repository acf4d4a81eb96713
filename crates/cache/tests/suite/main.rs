//! Integration tests of the cache, in one binary to save linking time.

mod anon;
mod api;
#[path = "../common/mod.rs"]
mod common;
mod crash;
mod endings;
mod equivalence;
mod failing;
mod faults;
mod flusher;
#[cfg(feature = "async")]
mod guide;
mod index;
mod limits;
mod misses;
mod model;
mod oom;
mod outside;
mod reliability;
mod smoke;
mod stress;
#[cfg(feature = "async")]
mod tasks;
mod tenants;
mod writing;
