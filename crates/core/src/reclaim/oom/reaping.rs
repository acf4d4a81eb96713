//! Reaping: takes the anonymous memory of a killed memcg, region by region.
//!
//! The regions are those that address spaces of the victim map at the moment of the kill, as a
//! killed process loses its address space. A region goes as a whole, in memory and in swap,
//! whichever memcg its pages are charged to. If tasks of other memcgs map it, too, only pages
//! charged to the victim go. Pages that the victim paid for in a region that moved to another memcg
//! stay, and so do file pages.
//!
//! The last region goes first. Reaping waits for pages that are locked or under writeback. Until it
//! ends, the victim counts as dying, and failing charges wait for it
//! ([`Throttle::NoProgress`](crate::Throttle)).
//!
//! Source: "The OOM killer" in the kernel's documentation of the memory controller (cgroup-v2.rst,
//! `memory.oom.group`), and the OOM reaper ("mm, oom: introduce oom reaper", Linux 4.6), which goes
//! through an address space from its end since Linux 6.18.
//!
//! # Locking
//!
//! Holds no lock between steps. Lists of address spaces are locked one at a time. From its kill to
//! the end of its reaping, a victim has a handle, so that its number stays its own if it is removed
//! meanwhile.

use crate::Core;
use crate::folio::{FolioId, Kind};
use crate::host::Host;
use crate::mapping::{MAPPING_PAGES_MAX, Mapping};
use crate::memcg::{MemcgId, Memcgs};
use crate::mm::AddressSpace;
use std::sync::Arc;

/// The host's next action.
#[derive(Debug)]
pub enum ReapStep {
    /// This region is about to lose pages: a host whose users may still touch it marks it as lost,
    /// and then calls again.
    Begin(Arc<Mapping>),
    /// This region has lost its pages. Call again; other threads may run before.
    Taken(Arc<Mapping>),
    /// This region has lost some pages; the folio is locked or under writeback. Wait for it, then
    /// call again.
    Wait(Arc<Mapping>, FolioId),
    /// The victim has no anonymous memory left.
    Done,
}

/// The reaping of one victim.
#[derive(Debug)]
pub struct Reaping {
    victim: MemcgId,
    /// Regions still to be reaped, in the order of their numbers.
    regions: Vec<Arc<Mapping>>,
    /// The region being reaped, and whether other memcgs use it.
    current: Option<(Arc<Mapping>, bool)>,
}

impl Reaping {
    /// Begins to reap `victim`. To be called when [`Host::oom_kill`] names it, before its tasks
    /// end.
    pub fn new(core: &Core, victim: MemcgId) -> Reaping {
        let spaces = core.memcg(victim).spaces.lock();
        let regions = spaces.all().flat_map(|space| space.regions());
        let mut regions: Vec<_> = regions.filter(|region| region.kind() == Kind::Anon).collect();
        drop(spaces);
        regions.sort_by_key(|region| region.id());
        regions.dedup_by_key(|region| region.id());
        Reaping { victim, regions, current: None }
    }

    /// The killed memcg.
    pub fn victim(&self) -> MemcgId {
        self.victim
    }

    /// Continues with one region.
    pub fn step(&mut self, core: &Core, host: &impl Host) -> ReapStep {
        let Some((region, is_shared)) = self.current.take() else {
            let Some(region) = self.regions.pop() else {
                // The kill took a handle.
                if core.memcg(self.victim).oom.reaped() {
                    core.drop_handle(self.victim);
                }
                return ReapStep::Done;
            };
            let is_shared = core.memcgs.is_mapped_by_others(&region, self.victim);
            self.current = Some((region.clone(), is_shared));
            return ReapStep::Begin(region);
        };
        let busy = match is_shared {
            true => core.reap(host, &region, self.victim),
            false => core.truncate(host, &region, 0, MAPPING_PAGES_MAX),
        };
        let Some(folio) = busy else { return ReapStep::Taken(region) };
        self.current = Some((region.clone(), is_shared));
        ReapStep::Wait(region, folio)
    }
}

impl Memcgs {
    /// Whether a task of another, living memcg maps a region.
    fn is_mapped_by_others(&self, region: &Arc<Mapping>, victim: MemcgId) -> bool {
        let maps = |space: &Arc<AddressSpace>| space.maps(region);
        let others = self.iter().filter(|memcg| memcg.id() != victim && memcg.oom.is_alive());
        let mut spaces = others.map(|memcg| memcg.spaces.lock());
        spaces.any(|spaces| spaces.all().any(maps))
    }
}
