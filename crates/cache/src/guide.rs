// The pages are those of the repository's documentation. Links that lead elsewhere there come
// before each page here: of several definitions of a link, the first counts.

//! The guide, as pages of this documentation.
//!
//! [`tenants`] has limits and protection, [`durability`] the guarantees of a sync, [`promises`]
//! their tests, [`your_program`] counters to watch and the remedy for each error, [`control_files`]
//! the kernel's files of a tenant, and [`counters`] explains every counter.
//!
//! [adapters]: https://docs.rs/mglru-redb
//! [counters]: counters
//! [durability]: durability
//! [errors]: your_program#errors
//! [metadata]: tenants#metadata
//! [tenants]: tenants
//! [watch]: your_program#what-to-watch
#![doc = include_str!("../docs/guide.md")]

/// Tenants: limits, protection, and the ways in which memory is found when it is short.
///
/// [control-files]: control_files
/// [engine-files]: control_files#engine-files
/// [memcg-lru]: crate::Switch::MemcgLru
/// [ranked-tenants]: mglru_core::lru
/// [scenarios]: https://docs.rs/mglru-sim
#[doc = include_str!("../docs/tenants.md")]
pub mod tenants {}

/// The guarantees of a sync.
///
/// [promises]: promises
#[doc = include_str!("../docs/durability.md")]
pub mod durability {}

/// Every promise, with its tests. Names of tests are those of the repository.
///
/// [benchmarks]: https://docs.rs/crate/mglru-cache/latest/source/benches/
/// [durability]: durability
/// [fidelity]: https://docs.rs/mglru-lab
/// [guide]: crate::guide
#[doc = include_str!("../docs/promises.md")]
pub mod promises {}

/// The channel for each access, counters to watch, and the remedy for each error.
///
/// [counters]: counters
/// [counting]: mglru_core::Core::accessed
/// [flusher]: mglru_core::writeback
/// [limits]: tenants
/// [swap]: crate::Swap
/// [walks]: mglru_core::lru
#[doc = include_str!("../docs/your_program.md")]
pub mod your_program {}

/// The kernel's files of a tenant and of the cache: [`crate::Control`] reads and writes them.
///
/// [counters]: counters
#[doc = include_str!("../docs/control_files.md")]
pub mod control_files {}

/// Every counter.
///
/// [refault-counters]: mglru_core::workingset
/// [sizes]: mglru_core::lru
#[doc = include_str!("../docs/counters.md")]
pub mod counters {}
