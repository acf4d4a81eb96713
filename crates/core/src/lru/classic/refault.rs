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
use crate::memcg::Memcg;

impl Core {
    /// Whether a page of a kind, which was evicted on behalf of `target` when its clock was at `token`, is back within
    /// reach. Of both, the bits in `mask` are known.
    pub(crate) fn is_within_reach(
        &self,
        host: &impl Host,
        target: &Memcg,
        kind: Kind,
        token: u64,
        mask: u64,
    ) -> bool {
        let distance = target.lruvec.classic.nonresident_age().wrapping_sub(token) & mask;
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
        distance <= pages
    }
}
