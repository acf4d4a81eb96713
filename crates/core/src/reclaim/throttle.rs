//! When a reclaimer has to wait for write-back (spec 70 §8).
//!
//! The rest of the reasons come with the throttling of the reclaim loop as a whole.

use super::scan::{EffortKind, Orders, Tallies};
use crate::Core;
use crate::host::Throttle;
use crate::sync::Ordering::Relaxed;

/// Judges what stood in the way of one pass over the node.
pub(super) fn after_pass(core: &Core, orders: &Orders, tallies: &Tallies) -> Option<Throttle> {
    if orders.is_root() {
        // The multi-gen LRU returns from root reclaim before this stage.
        return None;
    }
    let target = core.memcg(orders.target);
    if tallies.dirty > 0 && tallies.dirty == tallies.congested {
        target.lruvec.congested.store(true, Relaxed);
    }
    let congested = target.lruvec.congested.load(Relaxed) && orders.kind != EffortKind::Background;
    (congested && write_back_is_in_the_way(core)).then_some(Throttle::Congested)
}

/// More than half of what could be reclaimed waits to be written.
fn write_back_is_in_the_way(core: &Core) -> bool {
    let swappiness = core.swappiness_now(core.options.swappiness);
    let reclaimable: u64 = swappiness.evictable().map(|kind| core.folios.listed().pages(kind)).sum();
    2 * core.node.pending_pages() > reclaimable
}

/// The end of an effort: its target is judged afresh by the next.
pub(super) fn end_effort(core: &Core, orders: &Orders) {
    core.memcg(orders.target).lruvec.congested.store(false, Relaxed);
}
