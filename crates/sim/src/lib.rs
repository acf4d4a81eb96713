//! The simulator: runs the cache's core on a simulated machine in virtual time.
//!
//! A [`Machine`] describes the hardware and the limits: memory, tenants, a device, swap, a flusher.
//! A [`Simulator`] runs jobs on it, each a stream of [`Operation`]s, and returns a [`Report`]. It
//! is free of threads and real clocks: the same machine, jobs and seed give the same report, bit
//! for bit, on every computer.
//!
//! ```
//! use mglru_sim::{Access, Machine, Simulator};
//!
//! let mut simulator = Simulator::new(&Machine::kernel_lab(100))?;
//! simulator.add_job(0, (0..1000).map(|n| Access::read(n % 120).into()));
//! let report = simulator.run()?;
//! // A cycle of 120 pages in memory for 100: LRU would miss every time.
//! assert_eq!(report.total().counts.misses, 293);
//! # Ok::<(), mglru_sim::SimError>(())
//! ```
//!
//! Continue with [`simulator`] (scheduling), then `actor` (what runs), [`device`] and `world`.
//! [`baseline`] contains other policies for comparison.

#![forbid(unsafe_code)]

mod actor;
pub mod baseline;
mod checker;
mod clock;
mod content;
mod device;
mod files;
mod host;
mod keys;
mod machine;
mod operation;
mod report;
mod sample;
mod simulator;
mod swap;
mod transfers;
mod world;

pub use actor::{Answer, Command, Reading};
pub use baseline::Baseline;
pub use mglru_core::writeback::FlusherOptions as FlusherModel;

pub use device::{DeviceCounts, DeviceModel, Lane, Latency, Trouble};
pub use host::{Observer, PageTouch, SimHost};
pub use machine::{DrainStalls, FlusherStart, Interleaving, Machine, Preemption, Tenant, Writes};
pub use operation::{Access, Numbering, Operation, Request, Source, SourceError, TraceSource};
pub use report::{Counters, Counts, Kill, Refusal, Report, RequestReport, Tally, TenantReport};
pub use sample::{Sample, TenantSample};
pub use simulator::{SimError, Simulator};
pub use swap::{SwapBatches, SwapDevice, SwapModel};
