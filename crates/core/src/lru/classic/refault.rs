//! Whether a page that comes back was evicted so short a time ago that it deserves the active list.
//!
//! ```text
//!  evicted: token = clock                  back: distance = clock − token
//! ───────────┬──────────────── evictions, activations ───────────┬──────────►
//!            └──────── had the inactive list been longer by the distance, it would still be here
//! ```
//!
//! The pages on the other lists could have made that room, so the distance is held against their number.
//!
//! Source: spec 50 §4.

use crate::Core;
use crate::folio::Kind;
use crate::host::Host;
use crate::lru::Distance;
use crate::memcg::Memcg;

impl Core {
    /// How long ago a page of a kind was evicted on behalf of `target`, whose clock was at `token` then. Of both, the bits in
    /// `mask` are known.
    pub(crate) fn refault_distance(
        &self,
        host: &impl Host,
        target: &Memcg,
        kind: Kind,
        token: u64,
        mask: u64,
    ) -> Distance {
        let passed = target.lruvec.classic.nonresident_age().wrapping_sub(token) & mask;
        let known = self.known_sizes(host, target);
        let mut pages = known.active(Kind::File);
        if kind == Kind::Anon {
            pages += known.inactive(Kind::File);
        }
        if self.free_swap_pages() > 0 && target.swap.margin_pages() > 0 {
            pages += known.active(Kind::Anon);
            if kind == Kind::File {
                pages += known.inactive(Kind::Anon);
            }
        }
        Distance { passed, reach: pages }
    }
}
