//! `memory.high`: a task that charges above it reclaims and is then throttled, in proportion to the
//! square of the excess.
//!
//! Source: [book: memcgs#limits].

use super::{CLUSTER_PAGES, Effort, EffortKind, Orders, Step};
use crate::Core;
use crate::host::{Host, Throttle};
use crate::memcg::{CHARGE_BATCH_PAGES, Counter, MemcgId};
use std::time::Duration;

const RETRIES: u32 = 16;
const DELAY_MAX: Duration = Duration::from_secs(2);
/// Shorter pauses are skipped.
const DELAY_MIN: Duration = Duration::from_millis(10);

/// The pause after charging `pages`, for an overage in 2^-20 of the limit.
fn delay(overage: u64, pages: u64) -> Duration {
    // A thousand times the limit is far more than 2 s; the cap prevents an overflow.
    let (overage, pages) = (u128::from(overage.min(1 << 30)), u128::from(pages.min(1 << 30)));
    // overage² >> 34 is in seconds; to nanoseconds before the shift, as it is a fraction.
    let nanos = ((overage * overage * 1_000_000_000) >> 34) * pages / u128::from(CHARGE_BATCH_PAGES);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(DELAY_MAX)
}

/// The debt of a task that charged above `memory.high`.
#[derive(Debug)]
pub(crate) struct OverHigh {
    memcg: MemcgId,
    cpu: usize,
    charged_pages: u64,
    goal_pages: u64,
    retries: u32,
    /// The next ancestor to check; `None`: all are checked in this round.
    next: Option<MemcgId>,
    reclaimed: u64,
    effort: Option<Box<Effort>>,
    paused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HighStep {
    More,
    Wait(Throttle),
    Done,
}

impl OverHigh {
    /// `Some` if, after charging `charged_pages`, `memcg` or an ancestor is above its high limit
    /// and no earlier check was for these pages, too.
    #[inline]
    pub(crate) fn after(core: &Core, memcg: MemcgId, charged_pages: u64, cpu: usize) -> Option<OverHigh> {
        let over = core
            .memcgs
            .with_ancestors(memcg)
            .any(|payer| payer.memory.overage() > 0 || payer.swap.overage() > 0);
        let charged_pages = core.memcgs.pages_to_check(memcg, charged_pages, over);
        (charged_pages > 0).then(|| OverHigh {
            memcg,
            cpu,
            charged_pages,
            goal_pages: charged_pages,
            retries: RETRIES,
            next: Some(memcg),
            reclaimed: 0,
            effort: None,
            paused: false,
        })
    }

    /// Abandons the debt, because the task ends.
    pub(crate) fn abandon(self, core: &Core, host: &impl Host) {
        if let Some(effort) = self.effort {
            effort.abandon(core, host);
        }
    }

    pub(crate) fn step(&mut self, core: &Core, host: &impl Host) -> HighStep {
        if let Some(effort) = &mut self.effort {
            match effort.step(core, host) {
                Step::More => return HighStep::More,
                Step::Wait(throttle) => return HighStep::Wait(throttle),
                Step::Done(progress) => self.reclaimed += progress.reclaimed,
            }
            self.effort = None;
        }
        if self.paused {
            return HighStep::Done;
        }
        while let Some(memcg) = self.next {
            let payer = core.memcg(memcg);
            self.next = Some(payer.parent()).filter(|&parent| parent != MemcgId::ROOT);
            if payer.memory.overage() > 0 {
                payer.stat.add(Counter::EventHigh, 1);
                let orders =
                    Orders::new(memcg, EffortKind::Limit, self.goal_pages, core.options.swappiness, self.cpu);
                self.effort = Some(Box::new(Effort::new(core, orders)));
                return HighStep::More;
            }
        }
        self.end_round(core)
    }

    fn end_round(&mut self, core: &Core) -> HighStep {
        let most = |overage: fn(&crate::Memcg) -> u64| {
            core.memcgs.with_ancestors(self.memcg).map(overage).max().unwrap_or(0)
        };
        let of = |overage| delay(overage, self.charged_pages);
        let delay = (of(most(|memcg| memcg.memory.overage())) + of(most(|memcg| memcg.swap.overage())))
            .min(DELAY_MAX);
        if delay <= DELAY_MIN {
            return HighStep::Done;
        }
        if self.reclaimed > 0 || self.retries > 0 {
            self.retries -= u32::from(self.reclaimed == 0);
            self.goal_pages = CLUSTER_PAGES;
            self.reclaimed = 0;
            self.next = Some(self.memcg);
            return HighStep::More;
        }
        self.paused = true;
        HighStep::Wait(Throttle::OverHigh(delay))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::Harness;
    use crate::{Mechanisms, Preset};

    /// As traced in Linux 6.12 and 7.2, 2026-11-29: an effort for `memory.high` wants 64 pages. The
    /// next 63 pages are charged without a check.
    #[test]
    fn a_check_is_for_64_pages() {
        let goals = |max_pages| {
            let mut options = Harness::multigen_options(2000);
            options.mechanisms = Mechanisms::preset(Preset::Linux72);
            let mut harness = Harness::with_options(options, max_pages);
            harness.bring_at(0..1000, 4);
            let (core, memcg) = (&harness.core, harness.task.memcg);
            core.memcg(memcg).set_high_pages(1000);
            assert!(OverHigh::after(core, memcg, 1, 0).is_none());
            core.memcg(memcg).set_high_pages(900);
            let after = || OverHigh::after(core, memcg, 1, 0).map(|over| over.goal_pages);
            std::iter::repeat_with(after).take(65).collect::<Vec<_>>()
        };
        let goals_far_below = goals(1063);
        assert_eq!((goals_far_below[0], goals_far_below[64]), (Some(64), Some(64)));
        assert_eq!(goals_far_below[1..64], [None; 63]);
        assert_eq!(goals(1062), [Some(1); 65], "the limit leaves no room for a batch");
    }

    /// [book: memcgs#limits]: "Computed delays with high = 100 MB: 101 MB → 6 ms, 105 → 159 ms, 110
    /// → 639 ms, ≥ 118 → 2000 ms."
    #[test]
    fn delays_grow_with_the_square() {
        let pages = 25_600;
        let ms = |mb: u64| delay(((mb * 256 - pages) << 20) / pages, 64).as_millis();
        assert_eq!([101, 105, 110, 118, 200].map(ms), [6, 159, 639, 2000, 2000]);
        let overage = ((110 * 256 - pages) << 20) / pages;
        assert_eq!(delay(overage, 1).as_millis(), 9, "one page instead of 64");
        assert_eq!(delay(u64::MAX, u64::MAX), DELAY_MAX);
    }
}
