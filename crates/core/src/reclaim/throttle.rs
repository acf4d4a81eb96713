//! When a reclaimer has to wait for write-back (spec 70 §8).
//!
//! The rest of the reasons come with the throttling of the reclaim loop as a whole.

use super::scan::{EffortKind, Orders, Tallies};
use crate::Core;
use crate::host::Throttle;
use crate::memcg::MemcgId;
use crate::sync::Ordering::Relaxed;

/// Judges what stood in the way of one pass over the node.
pub(super) fn after_pass(core: &Core, orders: &Orders, tallies: &Tallies) -> Option<Throttle> {
    if orders.is_root() && !core.mechanisms().is_classic() {
        // The multi-gen LRU returns from root reclaim before this stage.
        return None;
    }
    let target = core.memcg(orders.target);
    // Of the node, background reclaim judges.
    let judges = !orders.is_root() || orders.kind == EffortKind::Background;
    if judges && tallies.dirty > 0 && tallies.dirty == tallies.congested {
        target.lruvec.congested.store(true, Relaxed);
    }
    let congested = target.lruvec.congested.load(Relaxed) && orders.kind != EffortKind::Background;
    (congested && write_back_is_in_the_way(core)).then_some(Throttle::Congested)
}

/// More than half of what could be reclaimed waits to be written.
fn write_back_is_in_the_way(core: &Core) -> bool {
    let swappiness = core.swappiness_now(core.options.swappiness);
    let reclaimable: u64 = swappiness.evictable().map(|kind| core.folios.listed().pages(kind)).sum();
    2 * core.node.pending.pages() > reclaimable
}

/// The end of an effort: its target is judged afresh by the next.
pub(super) fn end_effort(core: &Core, orders: &Orders) {
    if !orders.is_root() {
        core.memcg(orders.target).lruvec.congested.store(false, Relaxed);
    }
}

/// The same of background reclaim under the classic LRU, which waits where it meets pages again that it had wanted freed
/// before. Under the multi-gen LRU these flags are never set.
pub(super) fn after_background_pass(core: &Core, orders: &Orders, tallies: &Tallies) -> Option<Throttle> {
    if !core.mechanisms().is_classic() {
        return None;
    }
    after_pass(core, orders, tallies);
    if tallies.writeback > 0 && tallies.writeback == tallies.taken {
        core.node.set_full_of_writeback(true);
    }
    (tallies.immediate > 0).then_some(Throttle::Writeback)
}

/// The node is balanced: it is judged afresh.
pub(super) fn end_background(core: &Core) {
    core.node.set_full_of_writeback(false);
    core.memcg(MemcgId::ROOT).lruvec.congested.store(false, Relaxed);
}
