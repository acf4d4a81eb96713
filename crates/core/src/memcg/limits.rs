//! What a memcg may use, and what of that is spared: the limits of its control files, together.

use super::{MemcgId, Memcgs, UNLIMITED};
use crate::options::PAGE_BYTES;

/// What a tenant may use, and what of that is spared, in bytes. The default is no limit, and no
/// protection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `memory.min`: so much is never taken to make room for others. `u64::MAX`: all that the
    /// tenant has.
    pub min_bytes: u64,
    /// `memory.low`: so much is taken only if nothing else is left. `u64::MAX`: all that the tenant
    /// has.
    pub low_bytes: u64,
    /// `memory.high`: a tenant that uses more is slowed down. `None`: at no size.
    pub high_bytes: Option<u64>,
    /// `memory.max`: the tenant uses no more. `None`: no limit of its own.
    pub max_bytes: Option<u64>,
    /// `memory.swap.high`: a tenant that has more in swap is slowed down. `None`: at no size.
    pub swap_high_bytes: Option<u64>,
    /// `memory.swap.max`: the tenant has no more in swap. `None`: no limit of its own.
    pub swap_max_bytes: Option<u64>,
}

impl Limits {
    /// At most `bytes`, and nothing else.
    pub fn max(bytes: u64) -> Limits {
        Limits { max_bytes: Some(bytes), ..Limits::default() }
    }
}

fn whole_pages(bytes: Option<u64>) -> u64 {
    bytes.map_or(UNLIMITED, |bytes| bytes / PAGE_BYTES)
}

impl Memcgs {
    /// Sets all limits and protections of a memcg but `memory.max`, under which it is made
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
