//! What is remembered of evicted pages: shadow words, and the refaults they turn into.
//!
//! A shadow takes the place of the page in its slot. It says in which generation the page was evicted, how
//! often it had been accessed, whether it was hot, and whose it was. When the page comes back soon enough, the
//! lruvec learns that it evicted too early from that tier, and a hot page gets its rank back.
//!
//! ```text
//! 62 ............................ 21 20 ........ 1  0
//! |  token: min_seq << 2 | accesses  |  memcg      | workingset |
//! ```
//!
//! Under the classic LRU, the memcg is the one on whose behalf it was evicted, and the token is the reading of its clock.
//!
//! 63 bits: the slot's tag takes one. There are no node bits, as there is one node (spec 50 §2 with NODE_BITS = 0).
//!
//! Source: spec 50. A refault is *recent* while the window has moved by fewer than four generations since the oldest one
//! at eviction; before the working-set rework, while that is still the oldest.
//!
//! # Locking
//!
//! Counts are atomic; the list of leaves that hold only shadows has a lock of its own per lruvec, taken with no
//! other lock held.

use crate::event::Event;
use crate::folio::{Flags, FolioId, Kind, Tier, tier_of};
use crate::host::Host;
use crate::lru::classic::balance::IO_COST;
use crate::lru::turns::group_of;
use crate::lru::{Distance, Lruvec, MAX_GENERATIONS, Seq};
use crate::mapping::ShadowLeaf;
use crate::mechanism::Mechanisms;
use crate::memcg::{Counter, Memcg, MemcgId};
use crate::{Core, sync::Ordering::Relaxed};

const MEMCG_BITS: u32 = MemcgId::BITS;
const TOKEN_BITS: u32 = 63 - 1 - MEMCG_BITS;
const TOKEN_MASK: u64 = (1 << TOKEN_BITS) - 1;
const TOKEN_REFS_BITS: u32 = 2;
/// Leaves of shadows that are trimmed together.
const TRIM_LEAVES: u64 = 128;
const SEQ_BITS: u32 = TOKEN_BITS - TOKEN_REFS_BITS;

/// A shadow word, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// Whose page it was.
    pub memcg: MemcgId,
    /// It had been proved hot.
    pub workingset: bool,
    /// Oldest generation at eviction (low bits), and the accesses − 1.
    pub token: u64,
}

impl Shadow {
    /// The shadow of a folio in state `flags`, evicted while `min` was the oldest generation.
    pub fn of(flags: Flags, memcg: MemcgId, min: Seq, mechanisms: Mechanisms) -> Shadow {
        let nrefs = flags.nrefs(mechanisms);
        let token = min.0 << TOKEN_REFS_BITS | u64::from(nrefs.saturating_sub(1));
        // Before the rework the bit is the one access that the token has no room for.
        let workingset =
            if mechanisms.workingset_rework() { flags.workingset() } else { nrefs > 0 };
        Shadow { memcg, workingset, token: token & TOKEN_MASK }
    }

    /// The word, 63 bits.
    pub fn pack(self) -> u64 {
        self.token << (1 + MEMCG_BITS) | u64::from(self.memcg.0) << 1 | u64::from(self.workingset)
    }

    /// The parts of a word.
    pub fn unpack(word: u64) -> Shadow {
        Shadow {
            memcg: MemcgId((word >> 1) as u32 & ((1 << MEMCG_BITS) - 1)),
            workingset: word & 1 != 0,
            token: word >> (1 + MEMCG_BITS),
        }
    }

    /// The oldest generation when the page was evicted, truncated to the bits that there are for it.
    pub fn seq(self) -> u64 {
        self.token >> TOKEN_REFS_BITS
    }

    fn token_refs(self) -> u32 {
        (self.token & ((1 << TOKEN_REFS_BITS) - 1)) as u32
    }

    /// How long ago a page was evicted that comes back while `min` is the oldest and `max` the youngest generation.
    pub fn distance(self, min: Seq, max: Seq, mechanisms: Mechanisms) -> Distance {
        let since = |seq: Seq| (seq.0 & ((1 << SEQ_BITS) - 1)).abs_diff(self.seq());
        if mechanisms.workingset_rework() {
            Distance { passed: since(max), reach: MAX_GENERATIONS - 1 }
        } else {
            Distance { passed: since(min), reach: 0 }
        }
    }

    /// What the page gets if it was evicted recently (spec 50 §3.3).
    fn regained(self, in_fault: bool, mechanisms: Mechanisms) -> Regained {
        if !mechanisms.workingset_rework() {
            return self.regained_before(in_fault);
        }
        let refs = self.token_refs();
        Regained {
            tier: if self.workingset { 3 } else { tier_of(refs + 1) },
            activated: in_fault && (self.workingset || !mechanisms.fault_placement()),
            workingset: self.workingset,
            refs: if self.workingset { 0 } else { refs },
        }
    }

    /// The same before the rework: every recent refault counts as an activation, and one by a fault, or of a page that
    /// had been accessed often, makes the page hot and protected from the start.
    fn regained_before(self, in_fault: bool) -> Regained {
        let nrefs = self.token_refs() + u32::from(self.workingset);
        let hot = in_fault || nrefs >= 3;
        Regained { tier: tier_of(nrefs + 1), activated: true, workingset: hot, refs: if hot { 3 } else { 0 } }
    }
}

/// What a page gets that came back soon after its eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Regained {
    /// The tier that it is counted for.
    tier: Tier,
    /// Whether it counts as activated.
    activated: bool,
    /// It is hot again, and counts as restored.
    workingset: bool,
    /// The count of accesses.
    refs: u32,
}

/// A batch of evictions. With `batch_nonresident_age` the classic clock has gone on for all of them, in one walk to the root, and
/// each gets its own time, the same that it would have got one by one; batches of several CPUs get different ones. The five
/// remedies of spec 80 §8 leave evictions alone, which are two thirds of what is written to the ancestors' clocks when mapped
/// files are read, and more when hardly anything is activated.
///
/// A clock that is set back may be behind what another CPU's batch took meanwhile, by 31 pages at most: the next pages get the
/// same times, and a page of that batch that returned in this moment would count as long gone.
#[derive(Debug)]
pub(crate) struct Evictions {
    target: MemcgId,
    /// The time of the next one.
    next: u64,
    /// Those that the clock has gone on for, and have not come.
    left: u64,
}

impl Lruvec {
    /// The shadow of a page that is evicted now. `min_seq` is read without the lock: it is the oldest generation now,
    /// which may be one newer than the folio's.
    pub(crate) fn shadow_of(&self, kind: Kind, flags: Flags, mechanisms: Mechanisms) -> u64 {
        Shadow::of(flags, self.memcg, self.window.min(kind), mechanisms).pack()
    }

    /// Counts evictions, by tier.
    pub(crate) fn count_evicted(&self, kind: Kind, tiers: [u64; 4]) {
        for (count, pages) in self.evicted[kind as usize].iter().zip(tiers) {
            if pages > 0 {
                count.fetch_add(pages, Relaxed);
            }
        }
    }
}

impl Core {
    /// Up to so many pages will be evicted on behalf of `target`; [`Self::end_evictions`] is to be called after them.
    pub(crate) fn begin_evictions(&self, target: MemcgId, pages: u64) -> Evictions {
        let mechanisms = self.mechanisms();
        let target = self.memcg(target);
        if pages == 0 || !mechanisms.is_classic() || !mechanisms.batch_nonresident_age() {
            return Evictions { target: target.id(), next: 0, left: 0 };
        }
        let next = self.advance_nonresident_age(target, pages);
        Evictions { target: target.id(), next, left: pages }
    }

    /// The memory of a page of `memcg` in state `flags`, which is evicted now. Under the classic LRU, the target's clock goes on.
    pub(crate) fn remember(&self, memcg: &Memcg, evictions: &mut Evictions, kind: Kind, flags: Flags) -> u64 {
        if !self.mechanisms().is_classic() {
            return memcg.lruvec.shadow_of(kind, flags, self.mechanisms());
        }
        let target = self.memcg(evictions.target);
        let age = if evictions.left > 0 {
            evictions.left -= 1;
            evictions.next += 1;
            evictions.next - 1
        } else {
            self.advance_nonresident_age(target, 1)
        };
        Shadow { memcg: target.id(), workingset: flags.workingset(), token: age & TOKEN_MASK }.pack()
    }

    /// The batch is over. Of pages that turned out to be in use the clock takes no notice.
    pub(crate) fn end_evictions(&self, evictions: Evictions) {
        if evictions.left > 0 {
            self.set_back_nonresident_age(self.memcg(evictions.target), evictions.left);
        }
    }

    /// A page with a shadow is back as `folio`, not yet on a list (spec 50 §3.3).
    pub(crate) fn refault(
        &self,
        host: &impl Host,
        folio: FolioId,
        kind: Kind,
        memcg: &Memcg,
        word: u64,
        in_fault: bool,
    ) {
        let shadow = Shadow::unpack(word);
        if self.mechanisms().is_classic() {
            self.refault_classic(host, folio, kind, memcg, shadow);
            return;
        }
        if shadow.memcg != memcg.id() {
            return;
        }
        let anon = kind == Kind::Anon;
        let pick = |for_anon, for_file| if anon { for_anon } else { for_file };
        memcg.stat.add(pick(Counter::WorkingsetRefaultAnon, Counter::WorkingsetRefaultFile), 1);
        let window = &memcg.lruvec.window;
        let mechanisms = self.mechanisms();
        let distance = shadow.distance(window.min(kind), window.max(), mechanisms);
        let recent = distance.is_recent();
        host.event(Event::Refault { folio, memcg: memcg.id(), shadow, distance: Some(distance), recent });
        if !recent {
            return;
        }
        let regained = shadow.regained(in_fault, mechanisms);
        memcg.lruvec.refaulted[kind as usize][usize::from(regained.tier)].fetch_add(1, Relaxed);
        if regained.activated {
            memcg.stat.add(pick(Counter::WorkingsetActivateAnon, Counter::WorkingsetActivateFile), 1);
        }
        if regained.workingset {
            memcg.stat.add(pick(Counter::WorkingsetRestoreAnon, Counter::WorkingsetRestoreFile), 1);
        }
        self.folios.flags(folio).restore(regained.workingset, regained.refs);
    }

    /// The same under the classic LRU (spec 50 §4).
    fn refault_classic(&self, host: &impl Host, folio: FolioId, kind: Kind, memcg: &Memcg, shadow: Shadow) {
        let [refault, activate, restore] = match kind {
            Kind::Anon => [
                Counter::WorkingsetRefaultAnon,
                Counter::WorkingsetActivateAnon,
                Counter::WorkingsetRestoreAnon,
            ],
            Kind::File => [
                Counter::WorkingsetRefaultFile,
                Counter::WorkingsetActivateFile,
                Counter::WorkingsetRestoreFile,
            ],
        };
        memcg.stat.add(refault, 1);
        let target = self.memcg(shadow.memcg);
        let distance =
            target.is_online().then(|| self.refault_distance(host, target, kind, shadow.token, TOKEN_MASK));
        let recent = distance.is_some_and(Distance::is_recent);
        host.event(Event::Refault { folio, memcg: memcg.id(), shadow, distance, recent });
        if !recent {
            return;
        }
        self.folios.flags(folio).refault_active(shadow.workingset);
        memcg.stat.add(activate, 1);
        if !shadow.workingset {
            self.advance_nonresident_age(memcg, 1);
            return;
        }
        memcg.stat.add(restore, 1);
        // The clock goes on in the walk that notes the cost, or in one of its own before.
        let batched = self.mechanisms().batch_nonresident_age();
        if !batched {
            self.advance_nonresident_age(memcg, 1);
        }
        self.note_cost(host, memcg, None, kind, IO_COST, u64::from(batched));
    }

    /// Notes that a leaf holds only shadows now.
    pub(crate) fn note_shadow_leaf(&self, memcg: &Memcg, leaf: ShadowLeaf) {
        memcg.stat.add(Counter::WorkingsetNodes, 1);
        self.note_remembering(memcg);
        let mut leaves = memcg.lruvec.shadow_leaves.lock();
        leaves.push_back(leaf);
        // Entries of leaves that were used again are dropped once they are as many as the others: each entry is
        // looked at twice on average.
        if leaves.len() as u64 > 2 * memcg.stat.get(Counter::WorkingsetNodes) + TRIM_LEAVES {
            leaves.retain(|leaf| self.is_shadow_leaf(leaf));
        }
    }

    /// Drops the oldest memories of `memcg` beyond its limit (spec 50 §5): a leaf with shadows may exist for every
    /// eight cached pages. One call trims half of the surplus, in whole batches of 128.
    pub(crate) fn shrink_shadows(&self, memcg: &Memcg) {
        let limit = memcg.lruvec.size_of_all_lists() / 8;
        let surplus = memcg.stat.get(Counter::WorkingsetNodes).saturating_sub(limit);
        self.trim_shadows(memcg, surplus / 2 / TRIM_LEAVES * TRIM_LEAVES);
    }

    /// Drops the oldest memories of whoever has most, or half as many, because no leaf is left for pages. `false`: nobody has
    /// any.
    pub(crate) fn give_up_shadows(&self) -> bool {
        loop {
            let mut remembering = self.remembering.lock();
            let Some((group, id)) = remembering.pop_last() else { return false };
            // It may have become smaller since it was put there.
            let memcg = self.memcg(id);
            let now = group_of(memcg.stat.get(Counter::WorkingsetNodes)).min(group);
            memcg.lruvec.shadow_group.store(now, Relaxed);
            if now > 0 {
                remembering.insert((now, id));
            }
            drop(remembering);
            if now == group {
                return self.trim_shadows(memcg, TRIM_LEAVES);
            }
        }
    }

    /// A memcg has a leaf with shadows more, and may be among those who have more now.
    fn note_remembering(&self, memcg: &Memcg) {
        let (group, listed) =
            (group_of(memcg.stat.get(Counter::WorkingsetNodes)), &memcg.lruvec.shadow_group);
        if group > listed.load(Relaxed) {
            let mut remembering = self.remembering.lock();
            remembering.remove(&(listed.swap(group, Relaxed), memcg.id()));
            remembering.insert((group, memcg.id()));
        }
    }

    /// A memcg goes for good.
    pub(crate) fn forget_remembering(&self, memcg: &Memcg) {
        let listed = &memcg.lruvec.shadow_group;
        if listed.load(Relaxed) > 0 {
            let mut remembering = self.remembering.lock();
            remembering.remove(&(listed.swap(0, Relaxed), memcg.id()));
        }
    }

    /// Drops the memories in the `most` oldest leaves. `true`: there were some.
    pub(crate) fn trim_shadows(&self, memcg: &Memcg, most: u64) -> bool {
        let mut trimmed = 0;
        while trimmed < most {
            let Some(leaf) = memcg.lruvec.shadow_leaves.lock().pop_front() else { break };
            // A leaf that was used again is still listed, and is no longer what the entry says.
            let mapping = self.mappings.get(leaf.mapping);
            let shadows = mapping.and_then(|m| m.lock(&self.leaves).trim(leaf.leaf_index, leaf.stamp));
            trimmed += u64::from(shadows.is_some());
        }
        let stat = &self.living(memcg.id()).stat;
        stat.sub(Counter::WorkingsetNodes, trimmed);
        stat.add(Counter::WorkingsetNodereclaim, trimmed);
        trimmed > 0
    }

    fn is_shadow_leaf(&self, leaf: &ShadowLeaf) -> bool {
        let mapping = self.mappings.get(leaf.mapping);
        mapping.is_some_and(|m| m.lock(&self.leaves).is_shadow_leaf(leaf.leaf_index, leaf.stamp))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::folio::FolioFlags;
    use crate::mechanism::Preset;
    use crate::testing::Harness;

    const NOW: Mechanisms = Mechanisms::preset(Preset::Linux72);
    const SEVEN_ONE: Mechanisms = Mechanisms::preset(Preset::Linux71);
    const BEFORE: Mechanisms = Mechanisms::preset(Preset::Linux612);

    fn flags(accesses: u32, workingset: bool) -> Flags {
        let flags = FolioFlags::new();
        flags.allocate(false, 1);
        if workingset {
            flags.restore(true, 0);
        }
        (0..accesses).for_each(|_| flags.mark_accessed(flags.load(), NOW));
        flags.load()
    }

    /// spec 50 §9: "Token of a folio with R=1,F=2,W=0 evicted at `min_seq = 7`: 30, workingset 0".
    #[test]
    fn token_of_a_counted_folio() {
        let shadow = Shadow::of(flags(3, false), MemcgId(9), Seq(7), NOW);
        assert_eq!((shadow.token, shadow.workingset, shadow.regained(false, NOW).tier), (30, false, 2));
        assert_eq!(Shadow::unpack(shadow.pack()), shadow);
    }

    /// spec 50 §9: "Token of R=0,W=1: (seq<<2)|0, workingset 1; tier 3".
    #[test]
    fn token_of_a_workingset_folio() {
        let shadow = Shadow::of(flags(0, true), MemcgId(0xF_FFFF), Seq(5), NOW);
        assert_eq!((shadow.token, shadow.workingset, shadow.regained(false, NOW).tier), (20, true, 3));
        assert_eq!(flags(0, true).tier(NOW), 3);
        assert_eq!(Shadow::unpack(shadow.pack()), shadow);
    }

    /// spec 50 §9: "evict with `max_seq=9, min_seq=7`; refault at `max_seq=10` is recent, at 11 is not. Evict
    /// with `max_seq=10, min_seq=7`; refault at 10 is recent, at 11 is not".
    #[test]
    fn recent_means_less_than_four_generations() {
        let shadow = Shadow::of(flags(1, false), MemcgId(0), Seq(7), NOW);
        let recent = |max| shadow.distance(Seq(8), Seq(max), NOW).is_recent();
        assert!(recent(9) && recent(10) && !recent(11));
    }

    /// Tokens are compared modulo their width.
    #[test]
    fn recent_survives_truncation() {
        let seq = Seq((1 << SEQ_BITS) + 5);
        let shadow = Shadow::of(flags(1, false), MemcgId(0), seq, NOW);
        assert_eq!(shadow.distance(seq, Seq(seq.0 + 2), NOW), Distance { passed: 2, reach: 3 });
        let before = Shadow::of(flags(1, false), MemcgId(0), seq, BEFORE);
        assert_eq!(before.distance(seq, Seq(seq.0 + 2), BEFORE), Distance { passed: 0, reach: 0 });
    }

    const COUNTS: [Counter; 3] =
        [Counter::WorkingsetRefaultFile, Counter::WorkingsetActivateFile, Counter::WorkingsetRestoreFile];

    /// Refaulted, activated and restored pages.
    fn counts(harness: &Harness) -> [u64; 3] {
        COUNTS.map(|counter| harness.stat(counter))
    }

    /// Page 0 evicted after so many accesses, hot or not, and other pages that keep the window open.
    fn evicted(accesses: u32, hot: bool) -> Harness {
        let mut harness = Harness::new(100, 31);
        harness.read_ahead(0..3);
        harness.drain();
        (0..accesses).for_each(|_| harness.read(0));
        if hot {
            harness.make_hot(0);
        }
        harness.evict(1);
        assert_eq!(harness.evicted(), [0]);
        harness
    }

    /// spec 50 §9: "Token of R=0,W=1: …; tier 3 counted in `evicted`".
    #[test]
    fn evictions_are_counted_by_tier() {
        for (accesses, hot, tier) in
            [(0, false, 0), (1, false, 0), (2, false, 1), (3, false, 2), (4, false, 2), (0, true, 3)]
        {
            let mut expected = [0; 4];
            expected[tier] = 1;
            assert_eq!(evicted(accesses, hot).feedback()[1], expected, "after {accesses}, hot: {hot}");
        }
    }

    /// spec 50 §9: "A non-recent refault increments `workingset_refault` but none of `refaulted`, `activate`, `restore`".
    /// spec 00 §8: "The refault counter increases when a miss finds a shadow of the *same* lruvec, even if the refault is
    /// judged 'not recent'".
    #[test]
    fn late_refaults_are_only_counted() {
        let mut harness = evicted(3, true);
        (0..4).for_each(|_| assert!(harness.open_generation()));
        harness.bring(0, crate::Arrival { in_fault: true, ..Default::default() });
        assert_eq!((counts(&harness), harness.host.recent_refaults()), ([1, 0, 0], 0));
        assert_eq!(harness.feedback()[0], [0; 4]);
        assert!(!harness.flags(0).workingset());
    }

    /// spec 50 §3.2: with four generations at eviction, a refault is recent until the next one is opened.
    #[test]
    fn refaults_are_recent_for_less_than_four_generations() {
        for (opened, recent) in [(0, 1), (1, 0)] {
            let mut harness = evicted(1, false);
            (0..opened).for_each(|_| assert!(harness.open_generation()));
            harness.bring(0, crate::Arrival::default());
            assert_eq!(harness.host.recent_refaults(), recent, "after {opened}");
        }
    }

    /// spec 50 §9: "A refault of a page that moved to another memcg changes no counter at all".
    #[test]
    fn a_page_that_another_memcg_brings_back_is_no_refault() {
        let mut harness = evicted(1, true);
        let first = harness.task.memcg;
        let other = harness.core.add_memcg("other", 100, crate::Time::ZERO).unwrap().id();
        harness.task = harness.core.new_task(other, 0);
        harness.bring(0, crate::Arrival::default());
        for memcg in [first, other] {
            assert_eq!(COUNTS.map(|counter| harness.core.memcg(memcg).stat.get(counter)), [0; 3]);
        }
        assert!(!harness.flags(0).workingset());
    }

    /// spec 50 §9: "Plain read refault, no workingset bit, token bits 3: new folio has F=3, R=0; after its first read F=0,
    /// R=1, tier 0".
    #[test]
    fn a_read_wipes_what_a_refault_restored() {
        let mut harness = evicted(4, false);
        harness.bring(0, crate::Arrival::default());
        assert_eq!(harness.rfw(0), (false, 3, false));
        assert_eq!(harness.feedback()[0], [0, 0, 1, 0], "it was of tier 2");
        harness.read(0);
        assert_eq!((harness.rfw(0), harness.flags(0).tier(NOW)), ((true, 0, false), 0));
    }

    /// spec 50 §3.3: "R is already set when the folio was created by an access-marking path": then F goes on counting.
    #[test]
    fn a_folio_created_by_an_access_keeps_what_was_restored() {
        let mut harness = evicted(4, false);
        harness.bring(0, crate::Arrival { referenced: true, ..Default::default() });
        assert_eq!((harness.rfw(0), harness.flags(0).tier(NOW)), ((true, 3, false), 2));
        harness.read(0);
        assert!(harness.flags(0).saturated(NOW));
    }

    /// spec 50 §9: "Read refault with the workingset bit: W=1; with 4 generations it is added to the second oldest
    /// generation; `restore` grows; `activate` does not grow".
    #[test]
    fn a_hot_page_that_is_read_again_is_restored() {
        let mut harness = evicted(0, true);
        harness.bring(0, crate::Arrival::default());
        harness.drain();
        assert_eq!((harness.rfw(0), harness.seq_of(0)), ((false, 0, true), Some(1)));
        assert_eq!((counts(&harness), harness.feedback()[0]), ([1, 0, 1], [0, 0, 0, 1]));
    }

    /// spec 20 §10: "V7.2: fault-in of a refaulted folio with W places it in `max_seq`"; spec 50 §3.4: that is the only
    /// refault which counts as activated.
    #[test]
    fn a_hot_page_that_is_faulted_in_is_activated() {
        let mut harness = evicted(0, true);
        harness.bring(0, crate::Arrival { in_fault: true, ..Default::default() });
        harness.drain();
        assert_eq!((harness.seq_of(0), counts(&harness)), (Some(3), [1, 1, 1]));
        let mut harness = evicted(4, false);
        harness.bring(0, crate::Arrival { in_fault: true, ..Default::default() });
        assert_eq!(counts(&harness), [1, 0, 0]);
    }

    /// spec 50 §9: "Overwriting a whole evicted page through a 'will be overwritten' insert causes no refault count",
    /// and the memory is gone.
    #[test]
    fn an_overwritten_page_is_no_refault() {
        let mut harness = evicted(3, true);
        harness.bring(0, crate::Arrival { overwrite: true, ..Default::default() });
        assert_eq!((counts(&harness), harness.rfw(0)), ([0; 3], (false, 0, false)));
        assert!(harness.core.truncate(&harness.host, &harness.mapping, 0, 1).is_none());
        harness.bring(0, crate::Arrival::default());
        assert_eq!(counts(&harness), [0; 3]);
    }

    /// spec 50 §9: "Before the rework the same folio (F=0,W=1): nrefs=1 → token bits 0, workingset 1; at refault nrefs =
    /// 0+1 = 1, tier 1"; its other folio, with R=1 only, leaves no access.
    #[test]
    fn tokens_before_the_rework() {
        let shadow = Shadow::of(flags(0, true), MemcgId(0), Seq(5), BEFORE);
        assert_eq!((shadow.token, shadow.workingset), (20, true));
        assert_eq!(shadow.regained(false, BEFORE).tier, 1);
        let shadow = Shadow::of(flags(1, false), MemcgId(0), Seq(5), BEFORE);
        assert_eq!((shadow.token, shadow.workingset), (20, false));
        assert_eq!(shadow.regained(false, BEFORE).tier, 0);
    }

    /// spec 50 §9: "Before the rework: recent iff `min_seq[type]` has not changed since eviction".
    #[test]
    fn recent_before_the_rework() {
        let shadow = Shadow::of(flags(1, false), MemcgId(0), Seq(7), BEFORE);
        let recent = |min| shadow.distance(Seq(min), Seq(10), BEFORE).is_recent();
        assert!(recent(7) && !recent(8));
    }

    /// spec 50 §9: "V6.12: read refault with nrefs 2: activate grows, restore does not; with nrefs 3 both do"; a fault
    /// makes every page hot.
    #[test]
    fn what_a_page_got_back_before_the_rework() {
        let regained = |token, in_fault| {
            let shadow = Shadow { memcg: MemcgId(0), workingset: true, token };
            let Regained { tier, activated, workingset, refs } = shadow.regained(in_fault, BEFORE);
            assert!(activated);
            (tier, workingset, refs)
        };
        assert_eq!(regained(1, false), (2, false, 0));
        assert_eq!(regained(2, false), (2, true, 3));
        assert_eq!(regained(3, false), (3, true, 3));
        assert_eq!(regained(0, true), (1, true, 3));
    }

    /// spec 50 §3.3, row `workingset_activate`: "only if in fault" in 7.1, "only if in fault **and** workingset" in 7.2.
    #[test]
    fn which_refaults_are_activations() {
        for (workingset, in_fault, older, newer) in [
            (false, false, false, false),
            (true, false, false, false),
            (false, true, true, false),
            (true, true, true, true),
        ] {
            let shadow = Shadow { memcg: MemcgId(0), workingset, token: 0 };
            let activated = |mechanisms| shadow.regained(in_fault, mechanisms).activated;
            assert_eq!((activated(SEVEN_ONE), activated(NOW)), (older, newer));
        }
    }

    /// Memories are given up by who has most of them, within a factor of two, without a look at the others.
    #[test]
    fn who_has_most_gives_up_memories() {
        let mut harness = Harness::new(64, 1);
        let few = harness.task.memcg;
        let other = harness.core.add_memcg("other", 64, crate::Time::ZERO).unwrap().id();
        let nodes = |harness: &Harness, memcg| harness.core.memcg(memcg).stat.get(Counter::WorkingsetNodes);
        // Each page in a leaf of its own.
        harness.read_all((0..100).map(|n| n * 64));
        harness.task = harness.core.new_task(other, 0);
        harness.read_all((100..1000).map(|n| n * 64));
        assert!(!harness.core.memcg(few).lruvec.shadow_leaves.lock().is_empty());
        let before = [few, other].map(|memcg| nodes(&harness, memcg));
        assert!(before[0] > 0 && before[1] > 4 * before[0], "{before:?}");
        let mut gave = [0; 2];
        while harness.core.give_up_shadows() {
            let now = [few, other].map(|memcg| nodes(&harness, memcg));
            gave[0] += u64::from(now[0] < before[0]);
            gave[1] += 1;
            assert!(now[0] == before[0] || 2 * now[0] + 2 * TRIM_LEAVES >= now[1], "{now:?}");
        }
        assert!(gave[0] > 0 && gave[1] > gave[0], "{gave:?}");
        assert_eq!([few, other].map(|memcg| nodes(&harness, memcg)), [0, 0]);
        harness.core.validate().unwrap();
    }
}
