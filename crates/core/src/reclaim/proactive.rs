//! Proactive reclaim (`memory.reclaim`), and reclaim for limits that are lowered.
//!
//! A request is served in slices of a quarter of the rest, since each slice overshoots a little.
//! With `subtree_lru` no slice overshoots, and the last is as small as the rest.
//!
//! Source: [book: memcgs#limits] and [book: memcgs#proactive-reclaim]. Linux before 6.8 reclaimed
//! the whole request at once ([`Proactive::unsliced`]).

use super::{CLUSTER_PAGES, Effort, EffortKind, LastResort, LastStep, Orders, Progress, Step};
use crate::Core;
use crate::host::{Host, Throttle};
use crate::lru::Swappiness;
use crate::memcg::MemcgId;
use crate::memcg::charging;

/// Fruitless slices before a request fails.
const RETRIES: u32 = 16;

/// Result of a step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStep {
    /// Call again; other threads may run before.
    More,
    /// Wait, then call again.
    Wait(Throttle),
    /// The requested pages were reclaimed.
    Done(Progress),
    /// No more pages could be reclaimed. The kernel returns EAGAIN.
    TryAgain(Progress),
}

/// A request to reclaim pages of a subtree. Step it to the end, or cancel it.
#[derive(Debug)]
#[must_use = "a request that is dropped halfway may keep its memcg from aging; cancel it"]
pub struct Proactive {
    orders: Orders,
    left_pages: u64,
    sliced: bool,
    retries: u32,
    effort: Option<Box<Effort>>,
    progress: Progress,
}

impl Proactive {
    /// Requests `pages` pages of `target` and its descendants. `swappiness` holds for this request
    /// only.
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
            orders: Orders {
                exact: core.mechanisms().subtree_lru(),
                ..Orders::new(target, kind, 0, swappiness, cpu)
            },
            left_pages: pages,
            sliced: true,
            retries: RETRIES,
            effort: None,
            progress: Progress::default(),
        }
    }

    /// Requests all pages at once, and from every memcg its share even if the others gave enough.
    /// The published comparison was made with this behaviour and reclaimed 425 % of its requests.
    pub fn unsliced(self) -> Proactive {
        Proactive { sliced: false, orders: Orders { whole: true, exact: false, ..self.orders }, ..self }
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
        let wanted = wanted.max(CLUSTER_PAGES);
        let goal_pages = if self.orders.exact { wanted.min(self.left_pages) } else { wanted };
        let orders = Orders { goal_pages, ..self.orders };
        self.effort = Some(Box::new(Effort::new(core, orders)));
        RequestStep::More
    }

    /// Cancels the request. Pages that were reclaimed stay so, and an aging that other threads wait
    /// for is completed.
    pub fn cancel(self, core: &Core, host: &impl Host) {
        cancel(self.effort, core, host);
    }
}

fn cancel(effort: Option<Box<Effort>>, core: &Core, host: &impl Host) {
    if let Some(effort) = effort {
        effort.abandon(core, host);
    }
}

/// Makes room below a lowered limit. For `memory.max`, the OOM policy applies if reclaim does not
/// suffice, as for a failed charge. The kernel kills one memcg after the other without another try;
/// here a try follows each kill, which kills fewer. Step it to the end, or cancel it.
#[derive(Debug)]
#[must_use = "a limit makes no room unless this is stepped; cancel it if it is no longer wanted"]
pub struct Lowering {
    memcg: MemcgId,
    high: bool,
    retries: u32,
    last_resort: Option<Box<LastResort>>,
    drained: bool,
    effort: Option<Box<Effort>>,
    cpu: usize,
}

impl Lowering {
    /// Reclaims to `memory.max`, or with `high` to `memory.high`, of a memcg that uses more.
    pub fn new(memcg: MemcgId, high: bool, cpu: usize) -> Lowering {
        // The kernel tries once more for `memory.high`.
        let retries = RETRIES + u32::from(high);
        Lowering { memcg, high, retries, last_resort: None, drained: false, effort: None, cpu }
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
                    // Reclaim cannot reach folios in the batches of other CPUs.
                    if self.retries == 0 {
                        core.drain_all(host);
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
            charging::drain_stocks(core, self.memcg);
            return RequestStep::More;
        }
        let last_resort = self.last_resort.get_or_insert_with(|| Box::new(LastResort::new(core)));
        if let Some(throttle) = last_resort.rest(core, host, self.memcg) {
            return RequestStep::Wait(throttle);
        }
        if self.retries == 0 && self.high {
            return RequestStep::TryAgain(Progress::default());
        }
        if self.retries == 0 {
            match last_resort.step(core, host, self.memcg, 1) {
                LastStep::Fail(_) => return RequestStep::TryAgain(Progress::default()),
                LastStep::Retry => self.retries = RETRIES,
                LastStep::Wait(throttle) => {
                    self.retries = 1;
                    return RequestStep::Wait(throttle);
                }
            }
        }
        let orders =
            Orders::new(self.memcg, EffortKind::Limit, usage - limit, core.options.swappiness, self.cpu);
        self.effort = Some(Box::new(Effort::new(core, orders)));
        RequestStep::More
    }

    /// Gives up making room. The limit holds all the same. As [`Proactive::cancel`].
    pub fn cancel(self, core: &Core, host: &impl Host) {
        cancel(self.effort, core, host);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::Harness;
    use crate::{Counter, Mechanisms, Options, Preset};

    /// Pages that requests of these sizes take, from one memcg and from several together.
    fn taken(mechanisms: Mechanisms, requests: &[u64]) -> Vec<u64> {
        let mut options = Options::new(20_000);
        options.mechanisms = mechanisms;
        let mut harness = Harness::with_options(options, 20_000);
        let parent = harness.task.memcg;
        for child in 0..3 {
            let memcg =
                harness.core.add_child(parent, &child.to_string(), 20_000, crate::Time::ZERO).unwrap();
            harness.task = harness.core.new_task(memcg.id(), 0);
            harness.bring_at(child * 4000..(child + 1) * 4000, 4);
        }
        let mut before = 0;
        let targets = [MemcgId::ROOT, parent, harness.task.memcg].into_iter().cycle();
        let ask = |(&pages, target): (&u64, MemcgId)| {
            let mut request = Proactive::new(&harness.core, target, pages, None, 0);
            let reported = loop {
                match request.step(&harness.core, &harness.host) {
                    RequestStep::More | RequestStep::Wait(_) => {}
                    RequestStep::Done(progress) => break progress.reclaimed,
                    RequestStep::TryAgain(progress) => panic!("{progress:?}"),
                }
            };
            let now = harness.core.memcgs.subtree_stat(MemcgId::ROOT, Counter::PgstealProactive);
            let taken = now - std::mem::replace(&mut before, now);
            assert_eq!(taken, reported);
            taken
        };
        requests.iter().zip(targets).map(ask).collect()
    }

    /// A rule of this engine: a request takes exactly its number of pages. The kernel takes whole
    /// batches ([book: memcgs#proactive-reclaim]: slices of at least 32, each of which may take up
    /// to 63 more).
    #[test]
    fn a_request_takes_exactly_its_number_of_pages() {
        let requests = [1, 2, 31, 32, 33, 60, 64, 65, 100, 333, 500, 1000];
        assert_eq!(taken(Harness::subtree_lru(), &requests), requests);
        let kernels = taken(Mechanisms::preset(Preset::Linux72), &requests);
        assert!(kernels.iter().zip(requests).all(|(&taken, wanted)| taken >= wanted.max(32)), "{kernels:?}");
        assert!(kernels.iter().sum::<u64>() > requests.iter().sum::<u64>() + 100, "{kernels:?}");
    }

    /// [book: reclaim-loop#abort-test]: limit reclaim spends its budget in 6.12, and stops at its
    /// goal since 7.1.
    #[test]
    fn limit_reclaim_stops_at_its_goal_since_7_1() {
        let lowered = |preset| {
            let mut harness = Harness::with_preset(preset, 1000, 31);
            harness.bring_at(0..1000, 4);
            let memcg = harness.memcg();
            memcg.set_max_pages(150);
            let mut lowering = Lowering::new(memcg.id(), false, 0);
            while !matches!(lowering.step(&harness.core, &harness.host), RequestStep::Done(_)) {}
            memcg.usage_pages()
        };
        let usage = [Preset::Linux612, Preset::Linux71, Preset::Linux72].map(lowered);
        assert!(usage[0] < 86 && usage[1..].iter().all(|&pages| (86..=150).contains(&pages)), "{usage:?}");
    }

    /// [book: memcgs#checks]: "A proactive request of 1000 pages first asks for 250, then a quarter
    /// of the rest".
    #[test]
    fn a_request_is_sliced() {
        let mut harness = Harness::with_mechanisms(Harness::subtree_lru(), 4096, 31);
        harness.bring_at(0..4096, 4);
        let mut request = Proactive::new(&harness.core, harness.task.memcg, 1000, None, 0);
        let mut goals = Vec::new();
        while !matches!(request.step(&harness.core, &harness.host), RequestStep::Done(_)) {
            let goal = request.effort.as_ref().map(|effort| effort.orders.goal_pages);
            if goal.is_some() && goals.last() != goal.as_ref() {
                goals.extend(goal);
            }
        }
        assert_eq!(goals[..2], [250, 187], "{goals:?}");
    }

    /// A request that is cancelled after it walked the page tables opens the generation: no other
    /// thread will.
    #[test]
    fn a_cancelled_request_leaves_its_memcg_able_to_age() {
        for steps in 1..20 {
            let mut harness = Harness::with_preset(Preset::Linux72, 2000, 31);
            harness.bring_at(0..2000, 2);
            (0..2).for_each(|_| drop(harness.isolate(0)));
            assert_eq!(harness.max_seq() - harness.min_seq() + 1, crate::lru::MIN_GENERATIONS);
            let (core, host, memcg) = (&harness.core, &harness.host, harness.task.memcg);
            let mut request = Proactive::new(core, memcg, 1000, None, 0);
            (0..steps).for_each(|_| assert_eq!(request.step(core, host), RequestStep::More));
            request.cancel(core, host);
            let mut next = Proactive::new(core, memcg, 100, None, 0);
            let mut ends = std::iter::repeat_with(|| next.step(core, host));
            let end = ends.find(|&step| step != RequestStep::More);
            assert!(matches!(end, Some(RequestStep::Done(_))), "after {steps} steps: {end:?}");
        }
    }
}
