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
//! A thread that decides holds `oom_lock`, taken with no other lock held. The locks of reports are
//! leaves.

mod reaping;

pub use reaping::{ReapStep, Reaping};

use super::OutOfMemory;
use crate::Core;
use crate::host::Host;
use crate::memcg::{Counter, Memcg, MemcgId};

pub use crate::host::OomDecision;
pub use crate::options::OomPolicy;

/// A candidate for an OOM kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomCandidate {
    /// The memcg.
    pub memcg: MemcgId,
    /// Pages charged to the memcg itself.
    pub usage_pages: u64,
    /// Pages that `memory.min` and `memory.low` protect, relative to the memcg whose limit was hit.
    pub protected_pages: u64,
    /// Pages that killing it frees.
    pub anon_pages: u64,
}

/// The victim: the candidate with anonymous pages and the highest usage above its protection; of
/// equals, the one with more anonymous pages, then the lower number.
pub fn choose_victim(candidates: impl IntoIterator<Item = OomCandidate>) -> Option<MemcgId> {
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

impl Core {
    /// The report of the kill, if the memcg was killed and not revived.
    #[inline]
    pub fn oom_killed(&self, memcg: MemcgId) -> Option<Box<OutOfMemory>> {
        if self.memcg(memcg).oom.is_alive() {
            return None;
        }
        self.oom_reports.lock().get(&memcg).cloned()
    }

    /// Allows a killed memcg to charge again. `false`: it was not killed, or its memory is still
    /// being taken.
    pub fn oom_revive(&self, memcg: MemcgId) -> bool {
        self.memcg(memcg).oom.revive()
    }

    /// Handles a charge of `wanted_pages` at once that failed at the limit of `target`.
    /// `kills_seen`: number of kills when it began to reclaim.
    pub(super) fn out_of_memory(
        &self,
        host: &impl Host,
        target: MemcgId,
        wanted_pages: u64,
        kills_seen: &mut u64,
    ) -> OomStep {
        let report = || {
            self.memcg(target).stat.add(Counter::EventOom, 1);
            Box::new(OutOfMemory::of(self, target, wanted_pages, host.now()))
        };
        let policy = self.options.oom_policy;
        if policy == OomPolicy::Fail {
            return OomStep::Fail(report());
        }
        let mut kills = self.oom_lock.lock();
        if self.memcgs.subtree(target).any(|memcg| memcg.oom.is_dying()) {
            return OomStep::Wait;
        }
        if std::mem::replace(kills_seen, *kills) != *kills {
            return OomStep::Retry;
        }
        let mut report = report();
        let choice =
            choose_victim(self.memcgs.subtree(target).filter_map(|memcg| self.candidate(memcg, target)));
        report.victim = choice.map(|victim| self.memcgs.path(victim));
        let victim = match policy {
            OomPolicy::Ask => match host.out_of_memory(&report) {
                OomDecision::Retry => return OomStep::Retry,
                OomDecision::Fail => None,
                OomDecision::Kill(path) => self.memcgs.find(&path).ok(),
            },
            OomPolicy::Victim | OomPolicy::Fail => choice,
        };
        let killed = victim.is_some_and(|victim| self.kill(host, victim, target, &report));
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
    pub(crate) fn kill_for_thrashing(&self, host: &impl Host) {
        if self.options.oom_policy == OomPolicy::Fail {
            self.memcg(MemcgId::ROOT).stat.add(Counter::EventOom, 1);
            return;
        }
        let mut kills_seen = self.oom_kills();
        // No caller waits for the result.
        let _ = self.out_of_memory(host, MemcgId::ROOT, 1, &mut kills_seen);
    }

    pub(crate) fn oom_kills(&self) -> u64 {
        *self.oom_lock.lock()
    }

    fn candidate(&self, memcg: &Memcg, target: MemcgId) -> Option<OomCandidate> {
        if memcg.id() == MemcgId::ROOT || !memcg.is_online() || !memcg.oom.is_alive() {
            return None;
        }
        let anon_pages = memcg.stat.get(Counter::Anon);
        let effective = self.memcgs.effective_protection(memcg.id(), target);
        Some(OomCandidate {
            memcg: memcg.id(),
            usage_pages: anon_pages + memcg.stat.get(Counter::File),
            protected_pages: effective.min_pages.max(effective.low_pages),
            anon_pages,
        })
    }

    /// Kills `victim`; or the whole subtree of its highest ancestor, up to `target`, that has
    /// `memory.oom.group` set.
    fn kill(&self, host: &impl Host, victim: MemcgId, target: MemcgId, report: &OutOfMemory) -> bool {
        if !self.memcgs.is_within(victim, target) {
            return false;
        }
        let up_to_target =
            self.memcgs.with_ancestors(victim).filter(|memcg| self.memcgs.is_within(memcg.id(), target));
        let group = up_to_target.filter(|memcg| memcg.oom_group()).last();
        let members: Vec<&Memcg> = match group {
            Some(group) => self.memcgs.subtree(group.id()).collect(),
            None => vec![self.memcg(victim)],
        };
        let mut killed = false;
        for member in members {
            if member.id() == MemcgId::ROOT || !member.is_online() || !member.oom.is_alive() {
                continue;
            }
            // Before the kill is marked, so that a thread that sees the mark finds the report.
            let of_member = OutOfMemory { victim: Some(self.memcgs.path(member.id())), ..report.clone() };
            self.oom_reports.lock().insert(member.id(), Box::new(of_member));
            member.oom.kill();
            if host.oom_kill(member.id()) {
                member.stat.add(Counter::EventOomKill, 1);
                killed = true;
            } else {
                member.oom.reset();
            }
        }
        if killed && let Some(group) = group {
            group.stat.add(Counter::EventOomGroupKill, 1);
        }
        killed
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
