//! Shadows and refaults of the policy `ranked`.

use super::memory::Memory;
use super::place::memory_limit;
use super::state::List;
use crate::Core;
use crate::event::Event;
use crate::folio::{Flags, FolioId, Kind};
use crate::host::Host;
use crate::lru::{Refault, Shadow};
use crate::mapping::ShadowEra;
use crate::mechanism::Switch;
use crate::memcg::{Counter, Memcg};

/// Evictions of a batch, by list. They are counted together at its end: an atomic addition for each
/// page was a tenth of the cost of its reclaim.
#[derive(Debug, Default)]
pub(in crate::lru) struct Evictions {
    of_lists: [u64; 2],
    /// Newcomers that were read ahead in vain.
    unread: u64,
}

impl Evictions {
    /// The shadow of a folio of `memcg` in state `flags` that is evicted now.
    #[inline]
    pub(in crate::lru) fn shadow(
        &mut self,
        core: &Core,
        memcg: &Memcg,
        folio: FolioId,
        flags: Flags,
    ) -> Shadow {
        let (ranked, mechanisms) = (&memcg.lruvec.ranked, core.mechanisms());
        let from_main = flags.active();
        let list = if from_main { List::Main } else { List::Newcomers };
        let stamp = core.folios.stamp(folio);
        // The one access of a newcomer happened some time between then and now.
        let stamp = if !from_main && flags.refs() > 0 { ranked.clock().midway(stamp) } else { stamp };
        let forgotten = from_main && !mechanisms.is_on(Switch::MainShadows);
        let evicted = ranked.evicted(list) + self.of_lists[list as usize];
        self.of_lists[list as usize] += 1;
        self.unread += u64::from(!from_main && !flags.referenced());
        let memory = Memory::new(from_main, forgotten || !flags.referenced(), stamp, evicted);
        Shadow { memcg: memcg.id(), workingset: from_main, token: memory.token() }
    }

    /// Ends the batch. A memcg that does not use the policy has no state of it.
    pub(in crate::lru) fn end(self, memcg: &Memcg) {
        if self.of_lists != [0; 2] {
            memcg.lruvec.ranked.count_evicted(self.of_lists, self.unread);
        }
    }
}

/// Keeps a shadow whose leaf is dropped, if it still counts.
pub(in crate::lru) fn leaf_dropped(core: &Core, era: &ShadowEra, index: u32, word: u64) {
    if !core.mechanisms().is_on(Switch::CompactShadows) {
        return;
    }
    let shadow = Shadow::unpack(word);
    let memory = Memory::from_token(shadow.workingset, shadow.token);
    if core.memcg(shadow.memcg).lruvec.ranked.distance(memory).is_recent() {
        core.compact_shadows.keep(era, index, word);
    }
}

/// The shadow of a page that returns and has none in its slot.
pub(in crate::lru) fn shadow_outside(core: &Core, era: &ShadowEra, index: u32) -> Option<u64> {
    let is_on = core.mechanisms().is_on(Switch::CompactShadows);
    if is_on { core.compact_shadows.take(era, index) } else { None }
}

/// Handles a page that returns while its shadow exists; it is not on a list yet. Adjusts the
/// newcomers' share. Whether the page gets its rank is decided when it is put on a list.
#[inline]
pub(in crate::lru) fn refaulted(core: &Core, host: &impl Host, refault: Refault<'_>) {
    let Refault { folio, kind, memcg, shadow, ahead, .. } = refault;
    if shadow.memcg != memcg.id() {
        return;
    }
    let anon = kind == Kind::Anon;
    let pick = |for_anon, for_file| if anon { for_anon } else { for_file };
    memcg.stat.add(pick(Counter::WorkingsetRefaultAnon, Counter::WorkingsetRefaultFile), 1);
    let (ranked, mechanisms) = (&memcg.lruvec.ranked, core.mechanisms());
    let memory = Memory::from_token(shadow.workingset, shadow.token);
    let distance = ranked.distance(memory);
    // Pages that were read ahead and not accessed before eviction are no evidence, nor are pages
    // that readahead brings in now.
    let recent = distance.is_recent() && !memory.untouched() && !ahead;
    host.event(Event::Refault { folio, memcg: memcg.id(), shadow, distance: Some(distance), recent });
    let was_unread = memory.untouched() && !memory.left_main();
    if was_unread && mechanisms.is_on(Switch::KeepUnread) {
        ranked.note_unread_return(distance.passed, memory_limit(core, memcg.id()));
    }
    if !recent {
        return;
    }
    ranked.note_return(distance.passed);
    if let Some(signal) = ranked.judge(memory, distance.passed, mechanisms) {
        ranked.signal(core, signal);
    }
    if memory.left_main() {
        memcg.stat.add(pick(Counter::WorkingsetRestoreAnon, Counter::WorkingsetRestoreFile), 1);
    }
    memcg.stat.add(pick(Counter::WorkingsetActivateAnon, Counter::WorkingsetActivateFile), 1);
    core.folios.set_stamp(folio, memory.stamp());
    core.folios.flags(folio).returns(memory.left_main());
}
