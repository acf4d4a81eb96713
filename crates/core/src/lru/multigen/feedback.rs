//! Refault feedback: protects tiers and kinds whose pages refault too often.
//!
//! For each tier of each kind, refaulted pages are counted against evicted and protected ones. A
//! tier with more than 1.5 times the refault ratio of tier 0 (before the working-set rework: twice)
//! is protected until the ratios meet. Counts of a closed generation are folded into moving
//! averages.
//!
//! Source: [book: eviction].

use super::window::TIERS;
use crate::folio::{FolioTable, Kind, Tier};
use crate::lru::{LockedLruvec, Lruvec, Swappiness};
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// A refault ratio and the gain that divides it.
#[derive(Clone, Copy, Debug)]
struct Position {
    refaulted: u64,
    total: u64,
    gain: u64,
}

/// Whether `process` refaults no more than the set point, each divided by its gain. Fewer refaults
/// than `few` count as none; it also is the bias in favour of a set point that has little data.
fn no_worse(set_point: Position, process: Position, few: u64) -> bool {
    process.refaulted < few
        || process.refaulted.wrapping_mul(set_point.total + few).wrapping_mul(set_point.gain)
            <= (set_point.refaulted + 1).wrapping_mul(process.total).wrapping_mul(process.gain)
}

impl Lruvec {
    /// Counters by kind and tier: refaulted, evicted and protected pages since the oldest
    /// generation became the oldest; then the averages of refaulted and of all pages.
    pub(crate) fn feedback(&self, folios: &FolioTable) -> [[[u64; TIERS]; 5]; 2] {
        let locked = self.lock(folios);
        Kind::ALL.map(|kind| {
            let averages = &locked.lists.averages[kind as usize];
            let now = |counts: &[AtomicU64; TIERS]| std::array::from_fn(|tier| counts[tier].load(Relaxed));
            let (refaulted, evicted) =
                (now(&self.refaulted[kind as usize]), now(&self.evicted[kind as usize]));
            [refaulted, evicted, averages.protected, averages.refaulted, averages.total]
        })
    }
}

impl LockedLruvec<'_> {
    fn position(&self, kind: Kind, tiers: std::ops::Range<usize>, gain: u64) -> Position {
        let averages = &self.lists.averages[kind as usize];
        let mut position = Position { refaulted: 0, total: 0, gain };
        for tier in tiers {
            let evicted = self.lruvec.evicted[kind as usize][tier].load(Relaxed);
            position.refaulted +=
                averages.refaulted[tier] + self.lruvec.refaulted[kind as usize][tier].load(Relaxed);
            position.total += averages.total[tier] + evicted + averages.protected[tier];
        }
        position
    }

    fn no_worse(&self, set_point: Position, process: Position) -> bool {
        no_worse(set_point, process, self.folios.few_refaults())
    }

    /// The highest evictable tier; higher ones are protected.
    pub(crate) fn tier_limit(&self, kind: Kind) -> Tier {
        let (first, others) = if self.folios.mechanisms().workingset_rework() { (2, 3) } else { (1, 2) };
        self.tier_limit_against(self.position(kind, 0..1, first), kind, others)
    }

    /// The highest tier of `kind` below the first that refaults more than the set point.
    fn tier_limit_against(&self, set_point: Position, kind: Kind, gain: u64) -> Tier {
        let protected =
            (1..TIERS).find(|&tier| !self.no_worse(set_point, self.position(kind, tier..tier + 1, gain)));
        protected.unwrap_or(TIERS) as Tier - 1
    }

    /// The kind to evict from first, and its highest evictable tier if that is known as well.
    pub(crate) fn first_kind(&self, swappiness: Swappiness) -> (Kind, Option<Tier>) {
        if !self.folios.mechanisms().workingset_rework() {
            return self.first_kind_before(swappiness);
        }
        let kind = match swappiness.get() {
            0 | 1 => Kind::File,
            200.. => Kind::Anon,
            gain => {
                let set_point = self.position(Kind::Anon, 0..TIERS, u64::from(gain));
                let process = self.position(Kind::File, 0..TIERS, 200 - u64::from(gain));
                if self.no_worse(set_point, process) { Kind::File } else { Kind::Anon }
            }
        };
        (kind, None)
    }

    /// As [`Self::first_kind`], before the rework: the kind with the older oldest generation goes
    /// first. If they are equally old, only tier 0 of both kinds is compared, and then the tiers of
    /// one kind with tier 0 of the *other*.
    fn first_kind_before(&self, swappiness: Swappiness) -> (Kind, Option<Tier>) {
        let window = &self.lruvec.window;
        match swappiness.get() {
            0 => (Kind::File, None),
            _ if window.min(Kind::Anon) < window.min(Kind::File) => (Kind::Anon, None),
            1 => (Kind::File, None),
            200.. => (Kind::Anon, None),
            gain => {
                let gain_of = |kind| u64::from(if kind == Kind::Anon { gain } else { 200 - gain });
                let tier_0 = |kind| self.position(kind, 0..1, gain_of(kind));
                let file_first = self.no_worse(tier_0(Kind::Anon), tier_0(Kind::File));
                let kind = if file_first { Kind::File } else { Kind::Anon };
                (kind, Some(self.tier_limit_against(tier_0(kind.other()), kind, gain_of(kind))))
            }
        }
    }

    /// Folds the counts of a kind's oldest generation into the averages, as it is being closed.
    pub(super) fn carry_over(&mut self, kind: Kind) {
        let lruvec = self.lruvec;
        let averages = &mut self.lists.averages[kind as usize];
        for tier in 0..TIERS {
            let refaulted = lruvec.refaulted[kind as usize][tier].swap(0, Relaxed);
            let evicted = lruvec.evicted[kind as usize][tier].swap(0, Relaxed);
            averages.refaulted[tier] = (averages.refaulted[tier] + refaulted) / 2;
            averages.total[tier] = (averages.total[tier] + evicted + averages.protected[tier]) / 2;
            averages.protected[tier] = 0;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memcg::MemcgId;

    /// An lruvec with these counts of (refaulted, total) per kind and tier.
    fn with(counts: &[(Kind, usize, u64, u64)]) -> Lruvec {
        let lruvec = Lruvec::new(MemcgId(0), crate::Time::ZERO);
        for &(kind, tier, refaulted, total) in counts {
            lruvec.refaulted[kind as usize][tier].store(refaulted, Relaxed);
            lruvec.evicted[kind as usize][tier].store(total, Relaxed);
        }
        lruvec
    }

    fn limit(counts: &[(Kind, usize, u64, u64)]) -> Tier {
        with(counts).lock(&FolioTable::new(1)).tier_limit(Kind::File)
    }

    /// [book: eviction#checks]: "All refault counters < 64: tier limit 3".
    #[test]
    fn few_refaults_protect_nothing() {
        assert_eq!(limit(&[]), 3);
        assert_eq!(limit(&[(Kind::File, 1, 63, 63), (Kind::File, 2, 63, 63), (Kind::File, 3, 63, 63)]), 3);
    }

    /// A sample of a tenth protects a tier with a tenth of the refaults.
    #[test]
    fn a_sample_protects_tiers_as_its_whole_does() {
        let of = |few: u64, counts: &[(Kind, usize, u64, u64)]| {
            with(counts).lock(&FolioTable::new(1).with_few_refaults(few)).tier_limit(Kind::File)
        };
        let whole = [(Kind::File, 0, 100, 1000), (Kind::File, 1, 160, 1000)];
        let tenth = whole.map(|(kind, tier, refaulted, total)| (kind, tier, refaulted / 10, total / 10));
        assert_eq!([of(64, &whole), of(64, &tenth), of(6, &tenth)], [0, 3, 0]);
    }

    /// [book: eviction#checks]: "tier 0 has refaulted 100 of 1000; tier 1 160 of 1000 → limit 0.
    /// With tier 1 at 140 → not protected".
    #[test]
    fn a_tier_with_half_as_many_refaults_again_is_protected() {
        assert_eq!(limit(&[(Kind::File, 0, 100, 1000), (Kind::File, 1, 160, 1000)]), 0);
        assert_eq!(limit(&[(Kind::File, 0, 100, 1000), (Kind::File, 1, 140, 1000)]), 3);
        assert_eq!(limit(&[(Kind::File, 0, 100, 1000), (Kind::File, 3, 160, 1000)]), 2);
    }

    /// [book: eviction#checks]: "s = 60, anon (1000, 10000), file (3000, 10000) → anon chosen. File
    /// at 2000 → file chosen".
    #[test]
    fn the_kind_that_refaults_less_is_chosen() {
        let first = |file| {
            let lruvec = with(&[(Kind::Anon, 0, 1000, 10_000), (Kind::File, 2, file, 10_000)]);
            lruvec.lock(&FolioTable::new(1)).first_kind(Swappiness::DEFAULT).0
        };
        assert_eq!(first(3000), Kind::Anon);
        assert_eq!(first(2000), Kind::File);
    }

    /// [book: aging#swappiness], last column of the table.
    #[test]
    fn swappiness_at_its_ends() {
        let lruvec = with(&[]);
        let folios = FolioTable::new(1);
        let locked = lruvec.lock(&folios);
        let first = |s| locked.first_kind(Swappiness::new(s).unwrap()).0;
        assert_eq!([0, 1, 200, 201].map(first), [Kind::File, Kind::File, Kind::Anon, Kind::Anon]);
    }

    /// [book: eviction#checks]: "Carry-over of (avg 10, refaulted 5) gives 7".
    #[test]
    fn carry_over_halves() {
        let lruvec = with(&[(Kind::File, 1, 5, 9)]);
        let folios = FolioTable::new(1);
        let mut locked = lruvec.lock(&folios);
        let averages = &mut locked.lists.averages[Kind::File as usize];
        (averages.refaulted[1], averages.total[1], averages.protected[1]) = (10, 20, 4);
        locked.carry_over(Kind::File);
        let averages = &locked.lists.averages[Kind::File as usize];
        assert_eq!((averages.refaulted[1], averages.total[1], averages.protected[1]), (7, 16, 0));
        assert_eq!(lruvec.refaulted[1][1].load(Relaxed), 0);
    }

    /// [book: eviction#checks]: "Before the rework, the same data: 160×1064×1 = 170 240 ≤
    /// 101×1000×2 = 202 000 → not protected; at 190: 202 160 > 202 000 → protected".
    #[test]
    fn a_tier_had_to_refault_twice_as_often() {
        let limit = |refaulted| {
            let lruvec = with(&[(Kind::File, 0, 100, 1000), (Kind::File, 1, refaulted, 1000)]);
            lruvec.lock(&before()).tier_limit(Kind::File)
        };
        assert_eq!((limit(160), limit(190)), (3, 0));
    }

    fn before() -> FolioTable {
        FolioTable::with_mechanisms(1, crate::Mechanisms::preset(crate::Preset::Linux612))
    }

    /// [book: eviction#type-choice], the table "before the rework".
    #[test]
    fn the_first_kind_before_the_rework() {
        let folios = before();
        let lruvec = with(&[]);
        let locked = lruvec.lock(&folios);
        let first = |s| locked.first_kind(Swappiness::new(s).unwrap());
        assert_eq!([0, 1, 200].map(|s| first(s).0), [Kind::File, Kind::File, Kind::Anon]);
        assert_eq!(first(60), (Kind::File, Some(3)));
        drop(locked);
        // Only tier 0 counts; here anonymous pages refault less.
        let counts = [(Kind::Anon, 0, 1000, 10_000), (Kind::File, 2, 9000, 10_000)];
        assert_eq!(with(&counts).lock(&folios).first_kind(Swappiness::DEFAULT).0, Kind::File);
        let counts = [(Kind::Anon, 0, 1000, 10_000), (Kind::File, 0, 3000, 10_000)];
        assert_eq!(with(&counts).lock(&folios).first_kind(Swappiness::DEFAULT).0, Kind::Anon);
        // Tiers of files against tier 0 of anonymous pages, by the gains of the kinds:
        // 3000×10064×60 > 1001×10000×140.
        let counts = [(Kind::Anon, 0, 1000, 10_000), (Kind::File, 1, 3000, 10_000)];
        assert_eq!(with(&counts).lock(&folios).first_kind(Swappiness::DEFAULT), (Kind::File, Some(0)));
        // The older kind goes first.
        let lruvec = with(&[]);
        lruvec.window.close_until(Kind::File, crate::lru::Seq(1));
        let first = |s| lruvec.lock(&folios).first_kind(Swappiness::new(s).unwrap()).0;
        assert_eq!([0, 1, 60].map(first), [Kind::File, Kind::Anon, Kind::Anon]);
    }
}
