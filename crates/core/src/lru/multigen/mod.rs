//! The multi-generational LRU (spec 10–50).
//!
//! A kind's folios are in two to four generations. New folios enter at the old side, accesses seen through page
//! tables move labels to the youngest generation, accesses through descriptors count tiers, and eviction takes
//! from the oldest generation what neither protects.

pub(crate) mod aging;
pub(crate) mod bloom;
pub(crate) mod eviction;
pub(crate) mod feedback;
pub(crate) mod lists;
pub(crate) mod look_around;
pub(crate) mod memcg_lru;
pub(crate) mod walk;
pub(crate) mod window;
