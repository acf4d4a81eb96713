//! The OOM policy: what happens after reclaim has tried everything.
//!
//! ```text
//! a charge fails ─► a memcg is dying? wait ─► one was killed since the charge began? try again
//!                ─► policy: fail the request, or kill a tenant and try again
//! background reclaim would thrash (`lru_gen/min_ttl_ms`) ─► the same, and no request fails
//! ```
//!
//! A *kill* takes a tenant's anonymous memory ([`Reaping`]); file content is never lost. A killed
//! tenant cannot charge, so its requests fail, until it is revived or removed. As in the kernel, no
//! tenant is killed twice, the root never is, and charges wait for a dying tenant. So each charge
//! ends.
//!
//! Source: [book: memcgs#limits], [book: reclaim-loop#oom], [book: aging#thrash-prevention]; Linux
//! 7.2 `memory.oom.group`. The score differs: the kernel compares tasks by their memory, this
//! engine compares tenants by their usage above their protection.
//!
//! # Locking
//!
//! A thread that decides holds the lock of [`Oom::kills`], taken with no other lock held. The locks
//! of reports are leaves.

mod reaping;

pub use reaping::{ReapStep, Reaping};

use super::OutOfMemory;
use crate::Core;
use crate::host::Host;
use crate::memcg::{Counter, Memcg, MemcgId, Memcgs};
use crate::sync::Mutex;
use std::collections::BTreeMap;

pub use crate::host::OomDecision;
pub use crate::options::OomPolicy;

/// A candidate for an OOM kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OomCandidate {
    memcg: MemcgId,
    /// Pages charged to the memcg itself.
    usage_pages: u64,
    /// Pages that `memory.min` and `memory.low` protect, relative to the memcg whose limit was hit.
    protected_pages: u64,
    /// Pages that killing it frees.
    anon_pages: u64,
}

/// The victim: the candidate with anonymous pages and the highest usage above its protection; of
/// equals, the one with more anonymous pages, then the lower number.
fn choose_victim(candidates: impl IntoIterator<Item = OomCandidate>) -> Option<MemcgId> {
    let score = |one: &OomCandidate| {
        let above = one.usage_pages.saturating_sub(one.protected_pages);
        (above, one.anon_pages, std::cmp::Reverse(one.memcg))
    };
    candidates.into_iter().filter(|one| one.anon_pages > 0).max_by_key(score).map(|one| one.memcg)
}

pub(super) enum OomStep {
    Fail(Box<OutOfMemory>),
    Retry,
    /// A memcg is dying: wait for it.
    Wait,
}

/// The kills of a node.
#[derive(Debug, Default)]
pub(crate) struct Oom {
    /// Their number. The thread that chooses a victim holds the lock.
    kills: Mutex<u64>,
    /// The last report of each killed memcg.
    reports: Mutex<BTreeMap<MemcgId, Box<OutOfMemory>>>,
}

impl Oom {
    pub(super) fn kills(&self) -> u64 {
        *self.kills.lock()
    }
}

impl Core {
    /// The report of the kill, if the memcg was killed and not revived.
    #[inline]
    pub fn oom_killed(&self, memcg: MemcgId) -> Option<Box<OutOfMemory>> {
        if self.memcg(memcg).oom.is_alive() { None } else { self.oom_report_of(memcg) }
    }

    #[cold]
    fn oom_report_of(&self, memcg: MemcgId) -> Option<Box<OutOfMemory>> {
        self.oom.reports.lock().get(&memcg).cloned()
    }

    /// Allows a killed memcg to charge again. `false`: it was not killed, or its memory is still
    /// being taken.
    pub fn oom_revive(&self, memcg: MemcgId) -> bool {
        self.memcg(memcg).oom.revive()
    }
}

/// Handles a charge of `wanted_pages` at once that failed at the limit of `target`.
/// `kills_seen`: number of kills when it began to reclaim.
pub(super) fn out_of_memory(
    core: &Core,
    host: &impl Host,
    target: MemcgId,
    wanted_pages: u64,
    kills_seen: &mut u64,
) -> OomStep {
    let report = || {
        core.memcg(target).stat.add(Counter::EventOom, 1);
        Box::new(OutOfMemory::of(core, target, wanted_pages, host.now()))
    };
    let policy = core.options.oom_policy;
    if policy == OomPolicy::Fail {
        return OomStep::Fail(report());
    }
    let mut kills = core.oom.kills.lock();
    if core.subtree(target).any(|memcg| memcg.oom.is_dying()) {
        return OomStep::Wait;
    }
    if std::mem::replace(kills_seen, *kills) != *kills {
        return OomStep::Retry;
    }
    let mut report = report();
    let choice =
        choose_victim(core.subtree(target).filter_map(|memcg| core.memcgs.oom_candidate(memcg, target)));
    report.victim = choice.map(|victim| core.memcgs.path(victim));
    let victim = match policy {
        OomPolicy::Ask => match host.out_of_memory(&report) {
            OomDecision::Retry => return OomStep::Retry,
            OomDecision::Fail => None,
            OomDecision::Kill(path) => core.memcgs.find(&path).ok(),
        },
        OomPolicy::Victim | OomPolicy::Fail => choice,
    };
    let killed = victim.is_some_and(|victim| kill(core, host, victim, target, &report));
    if !killed {
        report.victim = None;
        return OomStep::Fail(report);
    }
    *kills += 1;
    *kills_seen = *kills;
    OomStep::Retry
}

/// Handles background reclaim that would thrash the working set (`lru_gen/min_ttl_ms`): kills a
/// memcg or asks the host, as for a charge of the root, but no request fails. Does nothing
/// while a memcg is dying.
pub(super) fn kill_for_thrashing(core: &Core, host: &impl Host) {
    if core.options.oom_policy == OomPolicy::Fail {
        core.memcg(MemcgId::ROOT).stat.add(Counter::EventOom, 1);
        return;
    }
    let mut kills_seen = core.oom.kills();
    // No caller waits for the result.
    let _ = out_of_memory(core, host, MemcgId::ROOT, 1, &mut kills_seen);
}

/// Kills `victim`; or the whole subtree of its highest ancestor, up to `target`, that has
/// `memory.oom.group` set, without memcgs that only hold others.
fn kill(core: &Core, host: &impl Host, victim: MemcgId, target: MemcgId, report: &OutOfMemory) -> bool {
    if !core.memcgs.is_within(victim, target) {
        return false;
    }
    let up_to_target =
        core.memcgs.with_ancestors(victim).filter(|memcg| core.memcgs.is_within(memcg.id(), target));
    let group = up_to_target.filter(|memcg| memcg.oom_group()).last();
    let members: Vec<&Memcg> = match group {
        Some(group) => {
            let has_tasks = |memcg: &&Memcg| memcg.id() == victim || core.memcgs.may_have_tasks(memcg);
            core.subtree(group.id()).filter(has_tasks).collect()
        }
        None => vec![core.memcg(victim)],
    };
    let mut killed = false;
    for member in members {
        // A number may have gone to another memcg since it was looked up. From now on it stays,
        // until the memcg is reaped.
        core.memcgs.add_handle(member.id());
        if is_mortal(member)
            && core.memcgs.is_within(member.id(), target)
            && kill_one(core, host, member, report)
        {
            killed = true;
        } else {
            core.drop_handle(member.id());
        }
    }
    if killed && let Some(group) = group {
        group.stat.add(Counter::EventOomGroupKill, 1);
    }
    killed
}

/// Kills a memcg on which the caller has a handle. `false`: the host cannot.
fn kill_one(core: &Core, host: &impl Host, memcg: &Memcg, report: &OutOfMemory) -> bool {
    // Before the kill is marked, so that a thread that sees the mark finds the report.
    let of_memcg = OutOfMemory { victim: Some(core.memcgs.path(memcg.id())), ..report.clone() };
    core.oom.reports.lock().insert(memcg.id(), Box::new(of_memcg));
    memcg.oom.kill();
    if !host.oom_kill(memcg.id()) {
        memcg.oom.reset();
        return false;
    }
    memcg.stat.add(Counter::EventOomKill, 1);
    true
}

/// Whether a memcg can be killed.
fn is_mortal(memcg: &Memcg) -> bool {
    memcg.id() != MemcgId::ROOT && memcg.is_online() && memcg.oom.is_alive()
}

impl Memcgs {
    /// Whether a memcg of a group that is killed has tasks to kill. In cgroup v2 one with children
    /// has none. Here it may, and then it has regions.
    fn may_have_tasks(&self, memcg: &Memcg) -> bool {
        let has_regions = || memcg.spaces.lock().all().any(|space| !space.regions().is_empty());
        !self.has_online_children(memcg.id()) || has_regions()
    }

    fn oom_candidate(&self, memcg: &Memcg, target: MemcgId) -> Option<OomCandidate> {
        if !is_mortal(memcg) {
            return None;
        }
        let anon_pages = memcg.stat.get(Counter::Anon);
        let effective = self.effective_protection(memcg.id(), target);
        Some(OomCandidate {
            memcg: memcg.id(),
            usage_pages: anon_pages + memcg.stat.get(Counter::File),
            protected_pages: effective.min_pages.max(effective.low_pages),
            anon_pages,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
