//! When reclaim has tried everything: who pays for it, as the user chose.
//!
//! ```text
//! a charge fails ─► somebody is dying? wait ─► somebody was killed since it began? try again
//!                ─► policy: fail the request, or kill a tenant and try again
//! background reclaim would thrash (`lru_gen/min_ttl_ms`) ─► the same, and no request fails
//! ```
//!
//! *Killing* a tenant takes its anonymous memory ([`Reaping`]). No byte of a file is lost. A tenant
//! that was killed charges nothing, so that its requests fail, until it is revived or removed.
//! Nobody is killed twice, the root never, and who is dying is waited for, as in the kernel: so
//! each charge ends.
//!
//! Source: [book: memcgs#limits], [book: reclaim-loop#oom], [book: aging#thrash-prevention]; Linux
//! 7.2 `memory.oom.group`. The score is ours: the kernel compares tasks by their memory, we compare
//! tenants by what they use above their protection.
//!
//! # Locking
//!
//! Who decides holds `oom_lock`, taken with nothing held. The locks of reports are leaves.

mod reaping;

pub use reaping::{ReapStep, Reaping};

use super::OutOfMemory;
use crate::Core;
use crate::host::Host;
use crate::mechanism::{MechanismError, choose};
use crate::memcg::{Counter, Memcg, MemcgId};

/// What is done where a page cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OomPolicy {
    /// The request that needs it fails.
    #[default]
    Fail,
    /// Of the tenants with anonymous memory below the limit that was met, the one that uses most
    /// above its protection is killed; or all of its group (`memory.oom.group`). Where there is
    /// none, the request fails.
    Victim,
    /// The host decides: [`Host::out_of_memory`].
    Ask,
}

impl OomPolicy {
    /// Those that need nobody who is asked.
    pub const NAMED: [OomPolicy; 2] = [OomPolicy::Fail, OomPolicy::Victim];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            OomPolicy::Fail => "fail",
            OomPolicy::Victim => "victim",
            OomPolicy::Ask => "ask",
        }
    }

    /// Finds one of [`Self::NAMED`] by name.
    ///
    /// # Errors
    /// [`MechanismError::UnknownChoice`] for a name that is none.
    pub fn parse(name: &str) -> Result<OomPolicy, MechanismError> {
        choose("oom_policy", name, &OomPolicy::NAMED, OomPolicy::name)
    }
}

pub use crate::host::OomDecision;

/// Of whom a victim is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomCandidate {
    /// Who it is.
    pub memcg: MemcgId,
    /// Pages that it uses itself.
    pub usage_pages: u64,
    /// Pages that `memory.min` and `memory.low` let it have, as seen from whose limit was met.
    pub protected_pages: u64,
    /// Pages that killing it frees.
    pub anon_pages: u64,
}

/// The victim: of those with anonymous pages, who uses most above its protection; of several, who
/// has more anonymous pages, then the lower number.
pub fn choose_victim(candidates: impl IntoIterator<Item = OomCandidate>) -> Option<MemcgId> {
    let score = |one: &OomCandidate| {
        let above = one.usage_pages.saturating_sub(one.protected_pages);
        (above, one.anon_pages, std::cmp::Reverse(one.memcg))
    };
    candidates.into_iter().filter(|one| one.anon_pages > 0).max_by_key(score).map(|one| one.memcg)
}

/// What a charge that failed does next.
pub(super) enum OomStep {
    Fail(Box<OutOfMemory>),
    Retry,
    /// Somebody is dying.
    Wait,
}

impl Core {
    /// Why a memcg was killed, if it was, and not revived.
    #[inline]
    pub fn oom_killed(&self, memcg: MemcgId) -> Option<Box<OutOfMemory>> {
        if self.memcg(memcg).oom.is_alive() {
            return None;
        }
        self.oom_reports.lock().get(&memcg).cloned()
    }

    /// A memcg that was killed may charge again. `false`: it was not, or its memory is still being
    /// given up.
    pub fn oom_revive(&self, memcg: MemcgId) -> bool {
        self.memcg(memcg).oom.revive()
    }

    /// A charge could not be met, because of the limit of `target`. `kills_seen`: how many were
    /// killed when it began to reclaim.
    pub(super) fn out_of_memory(&self, host: &impl Host, target: MemcgId, kills_seen: &mut u64) -> OomStep {
        let report = || {
            self.memcg(target).stat.add(Counter::EventOom, 1);
            Box::new(OutOfMemory::of(self, target, host.now()))
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

    /// Background reclaim would thrash the working set (`lru_gen/min_ttl_ms`). Somebody is killed,
    /// or asked, as for a charge of the root; nobody's request fails. While somebody is dying,
    /// nothing is done.
    pub(crate) fn kill_for_thrashing(&self, host: &impl Host) {
        if self.options.oom_policy == OomPolicy::Fail {
            self.memcg(MemcgId::ROOT).stat.add(Counter::EventOom, 1);
            return;
        }
        let mut kills_seen = self.oom_kills();
        // Nobody waits for what came of it.
        let _ = self.out_of_memory(host, MemcgId::ROOT, &mut kills_seen);
    }

    /// How many were killed so far.
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

    /// Kills `victim`, or the whole subtree of its highest ancestor below `target`, or `target`,
    /// that wants its members killed together.
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
            // Before it is marked: whoever finds it killed finds out why.
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
