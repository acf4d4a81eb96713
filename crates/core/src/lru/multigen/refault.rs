//! Shadows and refaults of the multi-gen LRU.
//!
//! A shadow holds the generation in which a page was evicted, its access count and whether it was
//! hot. When the page returns soon enough, the lruvec learns that it evicted too early from that
//! tier, and a hot page gets its rank back.
//!
//! Source: [book: refaults]. A refault is *recent* while the window has moved by fewer than four
//! generations since the oldest one at eviction; before the working-set rework, while that one is
//! still the oldest.

use crate::Core;
use crate::event::Event;
use crate::folio::{Flags, Kind, Tier, tier_of};
use crate::host::Host;
use crate::lru::evidence::{TOKEN_BITS, TOKEN_MASK, TOKEN_REFS_BITS};
use crate::lru::{Distance, Lruvec, MAX_GENERATIONS, Refault, Seq, Shadow};
use crate::mechanism::Mechanisms;
use crate::memcg::{Counter, MemcgId};
use crate::sync::Ordering::Relaxed;

const SEQ_BITS: u32 = TOKEN_BITS - TOKEN_REFS_BITS;

impl Shadow {
    /// The shadow of a folio in state `flags`, evicted while `min` is the oldest generation.
    fn of(flags: Flags, memcg: MemcgId, min: Seq, mechanisms: Mechanisms) -> Shadow {
        let nrefs = flags.nrefs(mechanisms);
        let token = min.0 << TOKEN_REFS_BITS | u64::from(nrefs.saturating_sub(1));
        // Before the rework, the bit is the one access that the token has no room for.
        let workingset = if mechanisms.workingset_rework() { flags.workingset() } else { nrefs > 0 };
        Shadow { memcg, workingset, token: token & TOKEN_MASK }
    }

    fn token_refs(self) -> u32 {
        (self.token & ((1 << TOKEN_REFS_BITS) - 1)) as u32
    }

    /// Distance of a refault while `min` is the oldest and `max` the youngest generation.
    fn distance(self, min: Seq, max: Seq, mechanisms: Mechanisms) -> Distance {
        let since = |seq: Seq| (seq.0 & ((1 << SEQ_BITS) - 1)).abs_diff(self.seq());
        if mechanisms.workingset_rework() {
            Distance { passed: since(max), reach: MAX_GENERATIONS - 1 }
        } else {
            Distance { passed: since(min), reach: 0 }
        }
    }

    /// Effects of a recent refault on the page ([book: refaults#refault-processing]).
    fn regained(self, in_fault: bool, mechanisms: Mechanisms) -> Regained {
        if !mechanisms.workingset_rework() {
            return self.regained_before(in_fault);
        }
        let refs = self.token_refs();
        Regained {
            tier: if self.workingset { 3 } else { tier_of(refs + 1) },
            activated: in_fault && (self.workingset || !mechanisms.fault_counts()),
            workingset: self.workingset,
            refs: if self.workingset { 0 } else { refs },
        }
    }

    /// As [`Self::regained`], before the rework: every recent refault counts as an activation. One
    /// by a fault, or of a page that had been accessed often, makes the page hot and protected from
    /// the start.
    fn regained_before(self, in_fault: bool) -> Regained {
        let nrefs = self.token_refs() + u32::from(self.workingset);
        let hot = in_fault || nrefs >= 3;
        Regained { tier: tier_of(nrefs + 1), activated: true, workingset: hot, refs: if hot { 3 } else { 0 } }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Regained {
    /// The tier that it is counted for.
    tier: Tier,
    activated: bool,
    /// Whether the page is hot again and counts as restored.
    workingset: bool,
    refs: u32,
}

impl Lruvec {
    /// The shadow of a page that is evicted now. `min_seq` is read without the lock: it may be one
    /// newer than the folio's generation.
    pub(in crate::lru) fn shadow_of(&self, kind: Kind, flags: Flags, mechanisms: Mechanisms) -> Shadow {
        Shadow::of(flags, self.memcg, self.window.min(kind), mechanisms)
    }

    pub(in crate::lru) fn count_evicted(&self, kind: Kind, tiers: [u64; 4]) {
        for (count, pages) in self.evicted[kind as usize].iter().zip(tiers) {
            if pages > 0 {
                count.fetch_add(pages, Relaxed);
            }
        }
    }
}

/// Handles a page that returns while its shadow exists; it is not on a list yet
/// ([book: refaults#refault-processing]).
pub(in crate::lru) fn refaulted(core: &Core, host: &impl Host, refault: Refault<'_>) {
    let Refault { folio, kind, memcg, shadow, in_fault, .. } = refault;
    if shadow.memcg != memcg.id() {
        return;
    }
    let anon = kind == Kind::Anon;
    let pick = |for_anon, for_file| if anon { for_anon } else { for_file };
    memcg.stat.add(pick(Counter::WorkingsetRefaultAnon, Counter::WorkingsetRefaultFile), 1);
    let window = &memcg.lruvec.window;
    let mechanisms = core.mechanisms();
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
    core.folios.flags(folio).restore(regained.workingset, regained.refs);
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

    /// [book: refaults#checks]: "Token of a folio with R=1,F=2,W=0 evicted at `min_seq = 7`: 30,
    /// workingset 0".
    #[test]
    fn token_of_a_counted_folio() {
        let shadow = Shadow::of(flags(3, false), MemcgId(9), Seq(7), NOW);
        assert_eq!((shadow.token, shadow.workingset, shadow.regained(false, NOW).tier), (30, false, 2));
        assert_eq!(Shadow::unpack(shadow.pack()), shadow);
    }

    /// [book: refaults#checks]: "Token of R=0,W=1: (seq<<2)|0, workingset 1; tier 3".
    #[test]
    fn token_of_a_workingset_folio() {
        let shadow = Shadow::of(flags(0, true), MemcgId(0xF_FFFF), Seq(5), NOW);
        assert_eq!((shadow.token, shadow.workingset, shadow.regained(false, NOW).tier), (20, true, 3));
        assert_eq!(flags(0, true).tier(NOW), 3);
        assert_eq!(Shadow::unpack(shadow.pack()), shadow);
    }

    /// [book: refaults#checks]: "evict with `max_seq=9, min_seq=7`; refault at `max_seq=10` is
    /// recent, at 11 is not. Evict with `max_seq=10, min_seq=7`; refault at 10 is recent, at 11 is
    /// not".
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

    /// Page 0 evicted after this many accesses, hot or not, and other pages that keep the window
    /// open.
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

    /// [book: refaults#checks]: "Token of R=0,W=1: …; tier 3 counted in `evicted`".
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

    /// [book: refaults#checks]: "A non-recent refault increments `workingset_refault` but none of
    /// `refaulted`, `activate`, `restore`". [book: overview#checks]: "The refault counter increases
    /// when a miss finds a shadow of the *same* lruvec, even if the refault is judged 'not
    /// recent'".
    #[test]
    fn late_refaults_are_only_counted() {
        let mut harness = evicted(3, true);
        (0..4).for_each(|_| assert!(harness.open_generation()));
        harness.bring(0, crate::Arrival { in_fault: true, ..Default::default() });
        assert_eq!((counts(&harness), harness.host.recent_refaults()), ([1, 0, 0], 0));
        assert_eq!(harness.feedback()[0], [0; 4]);
        assert!(!harness.flags(0).workingset());
    }

    /// [book: refaults#recent]: with four generations at eviction, a refault is recent until the
    /// next one is opened.
    #[test]
    fn refaults_are_recent_for_less_than_four_generations() {
        for (opened, recent) in [(0, 1), (1, 0)] {
            let mut harness = evicted(1, false);
            (0..opened).for_each(|_| assert!(harness.open_generation()));
            harness.bring(0, crate::Arrival::default());
            assert_eq!(harness.host.recent_refaults(), recent, "after {opened}");
        }
    }

    /// [book: refaults#checks]: "A refault of a page that moved to another memcg changes no counter
    /// at all".
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

    /// [book: refaults#checks]: "Plain read refault, no workingset bit, token bits 3: new folio has
    /// F=3, R=0; after its first read F=0, R=1, tier 0".
    #[test]
    fn a_read_wipes_the_restored_access_count() {
        let mut harness = evicted(4, false);
        harness.bring(0, crate::Arrival::default());
        assert_eq!(harness.rfw(0), (false, 3, false));
        assert_eq!(harness.feedback()[0], [0, 0, 1, 0], "it was of tier 2");
        harness.read(0);
        assert_eq!((harness.rfw(0), harness.flags(0).tier(NOW)), ((true, 0, false), 0));
    }

    /// [book: refaults#refault-processing]: "R is already set when the folio was created by an
    /// access-marking path": then F goes on counting.
    #[test]
    fn a_folio_created_by_an_access_keeps_the_restored_count() {
        let mut harness = evicted(4, false);
        harness.bring(0, crate::Arrival { referenced: true, ..Default::default() });
        assert_eq!((harness.rfw(0), harness.flags(0).tier(NOW)), ((true, 3, false), 2));
        harness.read(0);
        assert!(harness.flags(0).saturated(NOW));
    }

    /// [book: refaults#checks]: "Read refault with the workingset bit: W=1; with 4 generations it
    /// is added to the second oldest generation; `restore` grows; `activate` does not grow".
    #[test]
    fn a_hot_page_that_is_read_again_is_restored() {
        let mut harness = evicted(0, true);
        harness.bring(0, crate::Arrival::default());
        harness.drain();
        assert_eq!((harness.rfw(0), harness.seq_of(0)), ((false, 0, true), Some(1)));
        assert_eq!((counts(&harness), harness.feedback()[0]), ([1, 0, 1], [0, 0, 0, 1]));
    }

    /// [book: access#checks]: "7.2: fault-in of a refaulted folio with W places it in `max_seq`";
    /// [book: refaults#refault-counters]: that is the only refault which counts as activated.
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

    /// [book: refaults#checks]: "Overwriting a whole evicted page through a 'will be overwritten'
    /// insert causes no refault count", and the shadow is gone.
    #[test]
    fn an_overwritten_page_is_no_refault() {
        let mut harness = evicted(3, true);
        harness.bring(0, crate::Arrival { overwrite: true, ..Default::default() });
        assert_eq!((counts(&harness), harness.rfw(0)), ([0; 3], (false, 0, false)));
        assert!(harness.core.truncate(&harness.host, &harness.mapping, 0, 1).is_none());
        harness.bring(0, crate::Arrival::default());
        assert_eq!(counts(&harness), [0; 3]);
    }

    /// [book: refaults#checks]: "Before the rework the same folio (F=0,W=1): nrefs=1 → token bits
    /// 0, workingset 1; at refault nrefs = 0+1 = 1, tier 1"; the other folio, with R=1 only, leaves
    /// no access in its shadow.
    #[test]
    fn tokens_before_the_rework() {
        let shadow = Shadow::of(flags(0, true), MemcgId(0), Seq(5), BEFORE);
        assert_eq!((shadow.token, shadow.workingset), (20, true));
        assert_eq!(shadow.regained(false, BEFORE).tier, 1);
        let shadow = Shadow::of(flags(1, false), MemcgId(0), Seq(5), BEFORE);
        assert_eq!((shadow.token, shadow.workingset), (20, false));
        assert_eq!(shadow.regained(false, BEFORE).tier, 0);
    }

    /// [book: refaults#checks]: "Before the rework: recent iff `min_seq[type]` has not changed
    /// since eviction".
    #[test]
    fn recent_before_the_rework() {
        let shadow = Shadow::of(flags(1, false), MemcgId(0), Seq(7), BEFORE);
        let recent = |min| shadow.distance(Seq(min), Seq(10), BEFORE).is_recent();
        assert!(recent(7) && !recent(8));
    }

    /// [book: refaults#checks]: "6.12: read refault with nrefs 2: activate grows, restore does not;
    /// with nrefs 3 both do"; a fault makes every page hot.
    #[test]
    fn refaults_before_the_rework_restore_by_access_count() {
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

    /// [book: refaults#refault-processing], row `workingset_activate`: "only if in fault" in 7.1,
    /// "only if in fault **and** workingset" in 7.2.
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
}
