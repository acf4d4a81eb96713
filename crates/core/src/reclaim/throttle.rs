//! Throttling: when a reclaimer waits for writeback ([book: writeback#throttling]).
//!
//! The kernel's multi-gen LRU never waits in root reclaim, where it ignores dirty pages. With
//! `global_dirty_throttle`, root reclaim waits as limit reclaim does.

use super::{EffortKind, Orders, Tallies};
use crate::Core;
use crate::host::Throttle;
use crate::memcg::MemcgId;
use crate::sync::Ordering::Relaxed;

/// The wait after a pass over the node, by its obstacles.
pub(super) fn after_pass(core: &Core, orders: &Orders, tallies: &Tallies) -> Option<Throttle> {
    let everywhere = core.mechanisms().global_dirty_throttle();
    if orders.is_root() && !core.habits().waits_for_writeback && !everywhere {
        // The kernel's multi-gen LRU returns from root reclaim before this stage.
        return None;
    }
    let target = core.memcg(orders.target);
    // For the node, only the kernel's background reclaim judges.
    let judges = !orders.is_root() || orders.kind == EffortKind::Background || everywhere;
    if judges && tallies.dirty > 0 && tallies.dirty == tallies.congested {
        target.lruvec.congested.store(true, Relaxed);
    }
    let congested = target.lruvec.congested.load(Relaxed) && orders.kind != EffortKind::Background;
    (congested && waiting_helps(core)).then_some(Throttle::Congested)
}

/// The wait of direct reclaim at its last priority but one, if it has freed nothing.
pub(super) fn after_fruitless_pass(
    core: &Core,
    orders: &Orders,
    priority: u8,
    reclaimed: u64,
) -> Option<Throttle> {
    let stands_still = orders.kind == EffortKind::Direct && priority == 1 && reclaimed == 0;
    (stands_still && waiting_helps(core)).then_some(Throttle::NoProgress)
}

/// Whether waiting can help: background reclaim has not given up, and the obstacles will be clean.
fn waiting_helps(core: &Core) -> bool {
    !core.node.is_hopeless() && write_back_is_in_the_way(core)
}

/// Whether more than half of the reclaimable pages wait to be written.
fn write_back_is_in_the_way(core: &Core) -> bool {
    let reclaimable: u64 = core.reclaimable_kinds().map(|kind| core.folios.listed().pages(kind)).sum();
    2 * core.node.pending.pages() > reclaimable
}

/// Clears the target's congestion mark at the end of an effort.
pub(super) fn end_effort(core: &Core, orders: &Orders) {
    if !orders.is_root() || core.mechanisms().global_dirty_throttle() {
        core.memcg(orders.target).lruvec.congested.store(false, Relaxed);
    }
}

/// The wait of background reclaim when it meets pages again that it already wanted to free. The
/// kernel's multi-gen LRU never sets these flags.
pub(super) fn after_background_pass(core: &Core, orders: &Orders, tallies: &Tallies) -> Option<Throttle> {
    if !core.habits().waits_for_writeback && !core.mechanisms().global_dirty_throttle() {
        return None;
    }
    after_pass(core, orders, tallies);
    if tallies.writeback > 0 && tallies.writeback == tallies.taken {
        core.node.set_full_of_writeback(true);
    }
    (tallies.immediate > 0).then_some(Throttle::Writeback)
}

/// Clears the node's marks once the node is balanced.
pub(super) fn end_background(core: &Core) {
    core.node.set_full_of_writeback(false);
    core.memcg(MemcgId::ROOT).lruvec.congested.store(false, Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memcg::Counter;
    use crate::reclaim::{Background, BackgroundStep, Effort, Step, Watermarks};
    use crate::testing::Harness;
    use crate::{Kind, Lru, Mechanisms, Options, Preset, UNLIMITED};

    /// The waits of an effort, and the pages that it scanned.
    fn says(harness: &Harness, orders: Orders) -> (Vec<Throttle>, u64) {
        let before = harness.stat(Counter::PgscanFile);
        let mut effort = Effort::new(&harness.core, orders);
        let mut waits = Vec::new();
        loop {
            match effort.step(&harness.core, &harness.host) {
                Step::More => {}
                Step::Wait(throttle) => waits.push(throttle),
                Step::Done(_) => return (waits, harness.stat(Counter::PgscanFile) - before),
            }
        }
    }

    /// With the classic LRU, 800 inactive pages: an eighth are 100.
    fn classic() -> Harness {
        let mut options = Options::new(1000);
        options.watermarks = Watermarks { min: 0, low: 300, high: 400 };
        options.mechanisms = Mechanisms::preset(Preset::Default).with_lru(Lru::Classic);
        let mut harness = Harness::with_options(options, 900);
        harness.read_ahead(0..800);
        harness.drain();
        harness
    }

    /// [book: writeback#throttling]: "classic direct reclaim, when isolated > inactive (÷ 8 for
    /// callers that can do I/O and FS); at most once, then give up with 0", "woken early by someone
    /// finding the condition gone".
    #[test]
    fn reclaimers_wait_for_pages_that_others_isolated() {
        for kind in [EffortKind::Limit, EffortKind::Direct, EffortKind::Proactive] {
            let harness = classic();
            let target = if kind == EffortKind::Direct { MemcgId::ROOT } else { harness.task.memcg };
            let orders = Orders { kind, target, ..harness.orders(32) };
            // An effort takes 47 of 800 pages: at its end, less than an eighth are isolated.
            harness.core.node.note_isolated(Kind::File, 90);
            let (waits, scanned) = says(&harness, orders);
            assert!(waits.is_empty() && scanned > 32, "{kind:?}: {waits:?}, {scanned}");

            harness.core.node.note_isolated(Kind::File, 20);
            let mut effort = Effort::new(&harness.core, orders);
            let mut until_wait = || loop {
                match effort.step(&harness.core, &harness.host) {
                    Step::More => {}
                    step => return step,
                }
            };
            let (scanned, total) = (harness.stat(Counter::PgscanFile), || harness.stat(Counter::PgscanFile));
            assert_eq!(until_wait(), Step::Wait(Throttle::Isolated));
            // Still there after the wait: this batch is skipped, and the next one waits anew.
            assert_eq!((until_wait(), total()), (Step::Wait(Throttle::Isolated), scanned));
            assert_eq!(harness.host.isolated_wakes.get(), 0);
            harness.core.node.note_put_back(Kind::File, 110);
            assert!(matches!(until_wait(), Step::Done(progress) if progress.reclaimed >= 32), "{kind:?}");
            assert_eq!(harness.host.isolated_wakes.get(), 1, "a waiting thread is woken, once");
            assert_eq!(harness.core.node.isolated_pages(Kind::File), 0, "its own are put back or freed");
        }
    }

    /// An effort that skips all batches ends without progress.
    #[test]
    fn waiting_in_vain_ends_without_progress() {
        let harness = classic();
        harness.core.node.note_isolated(Kind::File, 801);
        let (waits, scanned) = says(&harness, harness.orders(32));
        assert!(scanned == 0 && waits.len() > 10, "{scanned} {waits:?}");
        assert!(waits.iter().all(|&throttle| throttle == Throttle::Isolated), "{waits:?}");
        assert_eq!(Throttle::Isolated.timeout().as_millis(), 20);
    }

    /// Background reclaim does not wait for other reclaimers, nor does the multi-gen LRU.
    #[test]
    fn some_reclaimers_do_not_wait_for_isolated_pages() {
        let harness = classic();
        harness.core.node.note_isolated(Kind::File, 801);
        let mut background = Background::new(&harness.core, 0);
        let mut steps = std::iter::repeat_with(|| background.step(&harness.core, &harness.host));
        let end = steps.find(|step| *step != BackgroundStep::More);
        assert!(matches!(end, Some(BackgroundStep::Nap(_))), "{end:?}");
        assert!(harness.core.free_pages() > 400);

        let mut harness = Harness::new(900, 31);
        harness.bring_at(0..800, 4);
        harness.core.node.note_isolated(Kind::File, 801);
        let (waits, scanned) = says(&harness, harness.orders(32));
        assert!(waits.is_empty() && scanned > 0, "{waits:?} {scanned}");
    }

    /// A node of 200 frames under the kernel's 7.2, with `pages` of 190 pages under writeback.
    fn writing(pages: u32) -> Harness {
        let mut options = Options::new(200);
        options.watermarks = Watermarks { min: 0, low: 50, high: 60 };
        options.mechanisms = Mechanisms::preset(Preset::Linux72);
        let mut harness = Harness::with_options(options, UNLIMITED);
        harness.bring_at(0..190, 4);
        (0..pages).for_each(|page| harness.write(page));
        let folios = harness.start_writeback();
        assert_eq!(folios.len(), pages as usize);
        harness
    }

    /// [book: writeback#throttling]: "direct global reclaim at priority 1 with nothing reclaimed";
    /// not "if kswapd is hopeless or if 2 × write-pending pages ≤ reclaimable pages of the node".
    /// It is the multi-gen LRU's only throttle of root reclaim.
    #[test]
    fn direct_reclaim_waits_when_it_stands_still() {
        let harness = writing(190);
        let mut effort = Effort::new(&harness.core, harness.root_orders(32));
        let mut steps = std::iter::repeat_with(|| effort.step(&harness.core, &harness.host));
        assert_eq!(steps.find(|step| *step != Step::More), Some(Step::Wait(Throttle::NoProgress)));
        // Once more in the repetition.
        assert_eq!(says(&harness, harness.root_orders(32)).0, [Throttle::NoProgress; 2]);
        let limit = harness.orders(32);
        assert!(
            !says(&harness, limit).0.contains(&Throttle::NoProgress),
            "that is for the limit's owner only"
        );
        let background = Orders { kind: EffortKind::Background, ..harness.root_orders(32) };
        assert_eq!(says(&harness, background).0, []);
        (0..16).for_each(|_| harness.core.node.note_fruitless_run());
        assert_eq!(says(&harness, harness.root_orders(32)).0, [], "waiting is hopeless");

        // 60 pages can be freed, and are.
        assert_eq!(says(&writing(130), writing(130).root_orders(32)).0, []);
    }

    /// The same if pages cannot be freed for another reason: writeback is not the obstacle.
    #[test]
    fn tasks_do_not_wait_where_writeback_is_not_the_obstacle() {
        let harness = writing(0);
        (0..190).for_each(|page| harness.core.set_mlocked(harness.folio(page), true));
        assert_eq!(says(&harness, harness.root_orders(32)).0, []);
        assert_eq!(harness.core.free_pages(), 10);
    }
}
