//! Reclaim that somebody asked for: `memory.reclaim`, and limits that are lowered.
//!
//! A request is served in slices of a quarter of what is left, as each overshoots a little.
//!
//! Source: spec 60 §8 and §9. Linux before 6.8 asked for the whole request at once ([`Proactive::unsliced`]).
//!
//! # Locking
//!
//! Nothing is held between steps.

use super::{CLUSTER_PAGES, Effort, EffortKind, Orders, Progress, Step};
use crate::Core;
use crate::host::{Host, Throttle};
use crate::lru::Swappiness;
use crate::memcg::{Counter, MemcgId};

/// Fruitless slices before a request fails.
const RETRIES: u32 = 16;

/// What a step of a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStep {
    /// Call again; anybody may run before.
    More,
    /// Wait, then call again.
    Wait(Throttle),
    /// Enough was reclaimed.
    Done(Progress),
    /// Nothing more could be. The kernel answers "try again" (EAGAIN).
    TryAgain(Progress),
}

/// A request to reclaim pages of a subtree.
#[derive(Debug)]
pub struct Proactive {
    orders: Orders,
    left_pages: u64,
    sliced: bool,
    retries: u32,
    effort: Option<Box<Effort>>,
    progress: Progress,
}

impl Proactive {
    /// To reclaim `pages` from `target` and below it; of the root, from everybody. `swappiness`: for this request only.
    pub fn new(
        core: &Core,
        target: MemcgId,
        pages: u64,
        swappiness: Option<Swappiness>,
        cpu: usize,
    ) -> Proactive {
        let swappiness = swappiness.unwrap_or(core.options.swappiness);
        let kind = EffortKind::Proactive;
        Proactive {
            orders: Orders::new(target, kind, 0, swappiness, cpu),
            left_pages: pages,
            sliced: true,
            retries: RETRIES,
            effort: None,
            progress: Progress::default(),
        }
    }

    /// The whole request at once, and from every memcg its share even if the others gave enough: as it was when the
    /// published comparison was made, where it took 425 % of what was asked for.
    pub fn unsliced(self) -> Proactive {
        Proactive { sliced: false, orders: Orders { whole: true, ..self.orders }, ..self }
    }

    /// Reclaims at most one batch.
    pub fn step(&mut self, core: &Core, host: &impl Host) -> RequestStep {
        if let Some(effort) = &mut self.effort {
            match effort.step(core, host) {
                Step::More => return RequestStep::More,
                Step::Wait(throttle) => return RequestStep::Wait(throttle),
                Step::Done(progress) => {
                    self.effort = None;
                    self.progress.scanned += progress.scanned;
                    self.progress.reclaimed += progress.reclaimed;
                    self.progress.memcgs_visited += progress.memcgs_visited;
                    self.left_pages = self.left_pages.saturating_sub(progress.reclaimed);
                    if progress.reclaimed == 0 {
                        if self.retries == 0 {
                            return RequestStep::TryAgain(self.progress);
                        }
                        self.retries -= 1;
                    }
                }
            }
        }
        if self.left_pages == 0 {
            return RequestStep::Done(self.progress);
        }
        if self.retries == 0 {
            core.drain_all(host);
        }
        let wanted = if self.sliced { self.left_pages / 4 } else { self.left_pages };
        let orders = Orders { goal_pages: wanted.max(CLUSTER_PAGES), ..self.orders };
        self.effort = Some(Box::new(Effort::new(core, orders)));
        RequestStep::More
    }
}

/// Makes room below a limit that was lowered.
#[derive(Debug)]
pub struct Lowering {
    memcg: MemcgId,
    high: bool,
    retries: u32,
    drained: bool,
    effort: Option<Box<Effort>>,
    cpu: usize,
}

impl Lowering {
    /// To `memory.max`, or with `high` to `memory.high`, of a memcg that uses more.
    pub fn new(memcg: MemcgId, high: bool, cpu: usize) -> Lowering {
        // The kernel counts one more for `memory.high`.
        let retries = RETRIES + u32::from(high);
        Lowering { memcg, high, retries, drained: false, effort: None, cpu }
    }

    /// Reclaims at most one batch.
    pub fn step(&mut self, core: &Core, host: &impl Host) -> RequestStep {
        if let Some(effort) = &mut self.effort {
            match effort.step(core, host) {
                Step::More => return RequestStep::More,
                Step::Wait(throttle) => return RequestStep::Wait(throttle),
                Step::Done(progress) => {
                    self.effort = None;
                    if progress.reclaimed == 0 {
                        self.retries -= 1;
                    }
                }
            }
        }
        let memcg = core.memcg(self.memcg);
        let limit = if self.high { memcg.memory.high_pages() } else { memcg.memory.max_pages() };
        let usage = memcg.usage_pages();
        if usage <= limit {
            return RequestStep::Done(Progress::default());
        }
        if !self.drained {
            self.drained = true;
            core.drain_stocks(self.memcg);
            return RequestStep::More;
        }
        if self.retries == 0 {
            if !self.high {
                // The kernel kills somebody now, and where it finds nobody leaves it at that.
                memcg.stat.add(Counter::EventOom, 1);
            }
            return RequestStep::TryAgain(Progress::default());
        }
        let orders =
            Orders::new(self.memcg, EffortKind::Limit, usage - limit, core.options.swappiness, self.cpu);
        self.effort = Some(Box::new(Effort::new(core, orders)));
        RequestStep::More
    }
}
