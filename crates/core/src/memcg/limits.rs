//! All limits and protections of a memcg together, in bytes.

use super::{MemcgId, Memcgs, UNLIMITED};
use crate::options::PAGE_BYTES;

/// Limits and protections of a tenant, in bytes. Default: unlimited and unprotected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct Limits {
    /// `memory.min`: reclaim for others never takes this much. `u64::MAX`: protects everything.
    pub min_bytes: u64,
    /// `memory.low`: reclaim for others takes this much only if nothing else is left. `u64::MAX`:
    /// protects everything.
    pub low_bytes: u64,
    /// `memory.high`: above this usage, the tenant's tasks are throttled. `None`: never.
    pub high_bytes: Option<u64>,
    /// `memory.max`: the highest usage. `None`: only the ancestors' limits hold.
    pub max_bytes: Option<u64>,
    /// `memory.swap.high`: above this use of swap, the tenant's tasks are throttled. `None`: never.
    pub swap_high_bytes: Option<u64>,
    /// `memory.swap.max`: the highest use of swap. `None`: only the ancestors' limits hold.
    pub swap_max_bytes: Option<u64>,
}

impl Limits {
    /// Only `memory.max`, of `bytes`.
    pub fn max(bytes: u64) -> Limits {
        Limits { max_bytes: Some(bytes), ..Limits::default() }
    }

    /// The same limits with this `memory.min`.
    pub fn with_min(self, bytes: u64) -> Limits {
        Limits { min_bytes: bytes, ..self }
    }

    /// The same limits with this `memory.low`.
    pub fn with_low(self, bytes: u64) -> Limits {
        Limits { low_bytes: bytes, ..self }
    }

    /// The same limits with this `memory.high`.
    pub fn with_high(self, bytes: u64) -> Limits {
        Limits { high_bytes: Some(bytes), ..self }
    }

    /// The same limits with this `memory.max`.
    pub fn with_max(self, bytes: u64) -> Limits {
        Limits { max_bytes: Some(bytes), ..self }
    }

    /// The same limits with this `memory.swap.high`.
    pub fn with_swap_high(self, bytes: u64) -> Limits {
        Limits { swap_high_bytes: Some(bytes), ..self }
    }

    /// The same limits with this `memory.swap.max`.
    pub fn with_swap_max(self, bytes: u64) -> Limits {
        Limits { swap_max_bytes: Some(bytes), ..self }
    }
}

fn whole_pages(bytes: Option<u64>) -> u64 {
    bytes.map_or(UNLIMITED, |bytes| bytes / PAGE_BYTES)
}

impl Memcgs {
    /// Sets all limits and protections of a memcg except `memory.max`, which is set at its creation
    /// ([`crate::Core::add_child`]).
    pub fn set_limits(&self, memcg: MemcgId, limits: &Limits) {
        self.set_min(memcg, limits.min_bytes / PAGE_BYTES);
        self.set_low(memcg, limits.low_bytes / PAGE_BYTES);
        let memcg = self.get(memcg);
        memcg.set_high_pages(whole_pages(limits.high_bytes));
        memcg.set_swap_high_pages(whole_pages(limits.swap_high_bytes));
        memcg.set_swap_max_pages(whole_pages(limits.swap_max_bytes));
    }
}
