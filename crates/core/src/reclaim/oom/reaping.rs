//! What a kill takes: the anonymous memory of the victim, region by region.
//!
//! The regions are those that address spaces of the victim have mapped at the moment of the kill,
//! as a killed process loses its address space. A region goes whole, in memory and in swap,
//! whichever memcg its pages are charged to. Of a region that tasks of other memcgs map, too, only
//! the pages go that are charged to the victim. Pages that the victim paid for in a region that
//! moved to another memcg stay. Pages of files stay as well: no byte of a file is lost.
//!
//! The last region goes first. Pages that are locked or under writeback are waited for. Until the
//! end, the victim counts as dying, and charges that fail wait for it
//! ([`Throttle::NoProgress`](crate::Throttle)).
//!
//! Source: "The OOM killer" in the kernel's documentation of the memory controller (cgroup-v2.rst,
//! `memory.oom.group`), and the OOM reaper ("mm, oom: introduce oom reaper", Linux 4.6), which goes
//! through an address space from its end since Linux 6.18.
//!
//! # Locking
//!
//! Nothing is held between steps. Lists of address spaces are locked one at a time.

use crate::Core;
use crate::folio::{FolioId, Kind};
use crate::host::Host;
use crate::mapping::Mapping;
use crate::memcg::{Memcg, MemcgId};
use crate::mm::AddressSpace;
use std::sync::Arc;

/// What the host does next.
#[derive(Debug)]
pub enum ReapStep {
    /// This region is about to lose pages. A host whose users may touch it later marks it as lost;
    /// then call again.
    Begin(Arc<Mapping>),
    /// This region gave its pages up. Call again; anybody may run before.
    Taken(Arc<Mapping>),
    /// Some pages of this region are gone; the folio is locked or under writeback. Wait for it,
    /// then call again.
    Wait(Arc<Mapping>, FolioId),
    /// The victim has no anonymous memory any more.
    Done,
}

/// The taking of one victim's memory.
#[derive(Debug)]
pub struct Reaping {
    victim: MemcgId,
    /// Regions that are left, in the order of their numbers.
    regions: Vec<Arc<Mapping>>,
    /// The last of them, which loses its pages now, and whether others use it.
    current: Option<(Arc<Mapping>, bool)>,
}

impl Reaping {
    /// Begins to take the memory of `victim`: to be called when [`Host::oom_kill`] names it, before
    /// its tasks end.
    pub fn new(core: &Core, victim: MemcgId) -> Reaping {
        let mut regions = Vec::new();
        for space in core.spaces_of(core.memcg(victim)) {
            regions.extend(space.regions().into_iter().filter(|region| region.kind() == Kind::Anon));
        }
        regions.sort_by_key(|region| region.id());
        regions.dedup_by_key(|region| region.id());
        Reaping { victim, regions, current: None }
    }

    /// The memcg that was killed.
    pub fn victim(&self) -> MemcgId {
        self.victim
    }

    /// Goes on with one region.
    pub fn step(&mut self, core: &Core, host: &impl Host) -> ReapStep {
        let Some((region, is_shared)) = self.current.take() else {
            let Some(region) = self.regions.pop() else {
                core.memcg(self.victim).oom.reaped();
                return ReapStep::Done;
            };
            let is_shared = core.is_mapped_by_others(&region, self.victim);
            self.current = Some((region.clone(), is_shared));
            return ReapStep::Begin(region);
        };
        let busy = match is_shared {
            true => core.reap(host, &region, self.victim),
            false => core.truncate(host, &region, 0, 1 << 32),
        };
        let Some(folio) = busy else { return ReapStep::Taken(region) };
        self.current = Some((region.clone(), is_shared));
        ReapStep::Wait(region, folio)
    }
}

impl Core {
    fn spaces_of(&self, memcg: &Memcg) -> Vec<Arc<AddressSpace>> {
        memcg.spaces.lock().all().cloned().collect()
    }

    /// Whether a task of another memcg than `victim`, and of none that was killed, maps a region.
    fn is_mapped_by_others(&self, region: &Arc<Mapping>, victim: MemcgId) -> bool {
        let maps = |space: &Arc<AddressSpace>| space.maps(region);
        let others = self.memcgs.iter().filter(|memcg| memcg.id() != victim && memcg.oom.is_alive());
        let mut spaces = others.map(|memcg| memcg.spaces.lock());
        spaces.any(|spaces| spaces.all().any(maps))
    }
}
