//! When a reclaimer has to wait for write-back (spec 70 §8).
//!
//! The kernel's multi-gen LRU never waits in root reclaim, of which dirty pages are nobody's business then; with
//! `global_dirty_throttle` it does as reclaim for a limit does.

use super::scan::{EffortKind, Orders, Tallies};
use crate::Core;
use crate::host::Throttle;
use crate::memcg::MemcgId;
use crate::sync::Ordering::Relaxed;

/// Judges what stood in the way of one pass over the node.
pub(super) fn after_pass(core: &Core, orders: &Orders, tallies: &Tallies) -> Option<Throttle> {
    let everywhere = core.mechanisms().global_dirty_throttle();
    if orders.is_root() && !core.mechanisms().is_classic() && !everywhere {
        // The kernel's multi-gen LRU returns from root reclaim before this stage.
        return None;
    }
    let target = core.memcg(orders.target);
    // Of the node, the kernel's background reclaim judges alone.
    let judges = !orders.is_root() || orders.kind == EffortKind::Background || everywhere;
    if judges && tallies.dirty > 0 && tallies.dirty == tallies.congested {
        target.lruvec.congested.store(true, Relaxed);
    }
    let congested = target.lruvec.congested.load(Relaxed) && orders.kind != EffortKind::Background;
    (congested && waiting_helps(core)).then_some(Throttle::Congested)
}

/// Direct reclaim that is at its last priority but one, and has found nothing.
pub(super) fn after_fruitless_pass(
    core: &Core,
    orders: &Orders,
    priority: u8,
    reclaimed: u64,
) -> Option<Throttle> {
    let stands_still = orders.kind == EffortKind::Direct && priority == 1 && reclaimed == 0;
    (stands_still && waiting_helps(core)).then_some(Throttle::NoProgress)
}

/// Whether time may change anything: background reclaim has not given up, and what is in the way will be clean.
fn waiting_helps(core: &Core) -> bool {
    !core.node.is_hopeless() && write_back_is_in_the_way(core)
}

/// More than half of what could be reclaimed waits to be written.
fn write_back_is_in_the_way(core: &Core) -> bool {
    let swappiness = core.swappiness_now(core.options.swappiness);
    let reclaimable: u64 = swappiness.evictable().map(|kind| core.folios.listed().pages(kind)).sum();
    2 * core.node.pending.pages() > reclaimable
}

/// The end of an effort: its target is judged afresh by the next.
pub(super) fn end_effort(core: &Core, orders: &Orders) {
    if !orders.is_root() || core.mechanisms().global_dirty_throttle() {
        core.memcg(orders.target).lruvec.congested.store(false, Relaxed);
    }
}

/// The same of background reclaim, which waits where it meets pages again that it had wanted freed before. Under the kernel's
/// multi-gen LRU these flags are never set.
pub(super) fn after_background_pass(core: &Core, orders: &Orders, tallies: &Tallies) -> Option<Throttle> {
    if !core.mechanisms().is_classic() && !core.mechanisms().global_dirty_throttle() {
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
