//! The guide, as pages of this documentation.
//!
//! [`tenants`] has limits and protection, [`durability`] the guarantees of a sync, [`your_program`]
//! signs to watch and the remedy for each error, and [`counters`] explains every counter.
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
#[doc = ""]
#[doc = include_str!("../docs/tenants.md")]
pub mod tenants {}

/// The guarantees of a sync.
#[doc = ""]
#[doc = include_str!("../docs/durability.md")]
pub mod durability {}

/// Sizes to choose, signs to watch, and the remedy for each error.
///
/// [counters]: counters
#[doc = include_str!("../docs/your_program.md")]
pub mod your_program {}

/// Every counter.
#[doc = ""]
#[doc = include_str!("../docs/counters.md")]
pub mod counters {}
