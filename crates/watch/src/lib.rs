//! A page cache seen from outside: its tenants, their hits and misses, and their memory pressure.
//!
//! [`Watch`] serves three things over HTTP, on a Unix socket (mode 0600) or on a TCP port:
//!
//! | path | what |
//! |---|---|
//! | `/state.json` | [`State`]: tenants with sizes, hits, refaults, pressure and generations |
//! | `/metrics` | the text of [`PageCache::prometheus_text`], for Prometheus |
//! | `/` | a page with live charts; it needs no network beyond this |
//!
//! Nothing is served unless a program starts a watch. One thread serves all clients. It copies
//! counters and holds no lock of the cache while it talks to a client, so that a client which
//! sends nonsense, or never reads its answer, delays neither the cache nor other clients.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use mglru_cache::PageCache;
//! use mglru_watch::{Address, State, Watch};
//! use std::sync::Arc;
//!
//! let cache = Arc::new(PageCache::builder(1 << 20).tenant("db", 1 << 19).build()?);
//! let watch = Watch::start(&"127.0.0.1:0".parse()?, &cache)?;
//! // Another process: `curl http://ADDRESS/state.json`, `mglru top ADDRESS`, or this.
//! let state = State::fetch(watch.address())?;
//! assert_eq!(state.tenants[1].path, "db");
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod address;
mod answer;
mod client;
mod error;
mod listener;
mod server;
mod state;

pub use address::Address;
pub use error::Error;
pub use mglru_cache::Pressure;
pub use server::Watch;
pub use state::{ListState, Requests, State, TenantState, Watched};

#[cfg(doc)]
use mglru_cache::PageCache;
