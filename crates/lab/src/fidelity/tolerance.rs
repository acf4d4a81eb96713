//! Allowed differences between a replay and a kernel ([book: agreement#tolerances]).
//!
//! Descriptor reads are repeatable to the page, so their tolerance is small. Mapped reads are
//! unstable in 7.2 itself: ten pages of capacity change the misses by 3 %, so only means over
//! several limits have a narrow tolerance. Older kernels are steady.

use super::kernel_run::{Access, Measure};
use mglru_core::{Lru, Preset};

/// A tolerance: the larger of both values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Percent of the kernel's count.
    pub percent: f64,
    /// Absolute difference.
    pub count: f64,
}

impl Tolerance {
    /// Whether the difference of the counts is allowed.
    pub fn allows(self, kernel: f64, ours: f64) -> bool {
        // Slack for rounding: both sides are sums of a few numbers below 2^32.
        (ours - kernel).abs() <= self.of(kernel) + 1e-6
    }

    /// The tolerance in percent of the kernel's count; `None` if that is 0.
    pub fn percent_of(self, kernel: f64) -> Option<f64> {
        (kernel > 0.0).then(|| 100.0 * self.of(kernel) / kernel)
    }

    fn of(self, kernel: f64) -> f64 {
        (kernel * self.percent / 100.0).max(self.count)
    }

    /// The tolerance, raised to `percent`, the spread of equal kernel runs.
    pub fn or_noise(self, percent: f64) -> Tolerance {
        Tolerance { percent: self.percent.max(percent), ..self }
    }
}

/// Key into the table of the book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowKind {
    /// The preset that represents the kernel.
    pub preset: Preset,
    /// The policy.
    pub lru: Lru,
    /// Access type.
    pub access: Access,
    /// Whether the working set moves, by the workload's name.
    pub shifts: bool,
    /// Whether no order of events is certain: readahead, several tasks, background reclaim.
    pub is_loose: bool,
    /// Whether means over at least five limits are compared.
    pub means: bool,
    /// `memory.max` in pages.
    pub limit_pages: u64,
}

/// The tolerance of a measure.
pub fn tolerance(kind: RowKind, measure: Measure) -> Tolerance {
    // Misses, refaults, scanned and stolen, sorted, activated and restored.
    let percents = match kind {
        RowKind { is_loose: true, .. } => [2.0, 4.0, 4.0, 25.0, 25.0],
        RowKind { lru: Lru::Classic, access, .. } => return classic(access, measure),
        RowKind { access: Access::Reads, shifts: false, .. } => [0.3, 0.5, 0.6, 5.0, 6.0],
        RowKind { access: Access::Reads, shifts: true, .. } => [1.0, 1.0, 0.6, 5.0, 6.0],
        RowKind { access: Access::MappedReads, preset: Preset::Linux612 | Preset::Linux71, .. } => {
            [0.4, 0.6, 0.7, 15.0, 10.0]
        }
        RowKind { access: Access::MappedReads, means: false, .. } => [3.5, 6.0, 6.0, 25.0, 15.0],
        RowKind { access: Access::MappedReads, means: true, .. } => [0.5, 1.0, 1.5, 5.0, 5.0],
        RowKind { access: Access::Writes, preset: Preset::Linux71, limit_pages: 0..=4096, .. } => {
            [2.0, 2.5, 2.0, 15.0, 25.0]
        }
        RowKind { access: Access::Writes, preset: Preset::Linux71, .. } => [0.5, 1.0, 1.0, 15.0, 25.0],
        RowKind { access: Access::Writes, limit_pages: 0..=4096, .. } => [2.0, 2.5, 2.0, 18.0, 25.0],
        RowKind { access: Access::Writes, .. } => [0.5, 1.0, 1.0, 7.0, 25.0],
        RowKind { access: Access::AnonAndFile, .. } => [0.5, 0.6, 0.5, 3.0, 25.0],
    };
    let (percent, count) = match measure {
        Measure::TotalMisses | Measure::Misses => (percents[0], 0.0),
        Measure::Refaults => (percents[1], 0.0),
        Measure::Scanned | Measure::Stolen => (percents[2], 0.0),
        Measure::Sorted => (percents[3], 1.0),
        Measure::Activated | Measure::Restored | Measure::ActivatedRefaults => (percents[4], 20.0),
        Measure::Generations => (10.0, 1.0),
        Measure::SwapIns | Measure::SwapOuts => (25.0, 0.0),
        Measure::Background(_) => (25.0, 20.0),
    };
    Tolerance { percent, count }
}

/// Tolerance of the classic LRU ([book: agreement#classic-agreement]), in addition to the spread of
/// its replays. There are few restored pages; with mapped reads, one refresh of the statistics
/// changes them by about a tenth.
fn classic(access: Access, measure: Measure) -> Tolerance {
    let (percent, count) = match measure {
        Measure::Restored if access == Access::MappedReads => (10.0, 20.0),
        Measure::TotalMisses | Measure::Misses => (0.5, 0.0),
        Measure::Refaults | Measure::Scanned | Measure::Stolen => (0.7, 0.0),
        Measure::Activated | Measure::ActivatedRefaults => (3.0, 20.0),
        Measure::Sorted | Measure::Restored => (5.0, 20.0),
        Measure::SwapIns | Measure::SwapOuts => (5.0, 0.0),
        Measure::Background(_) => (25.0, 20.0),
        Measure::Generations => (0.0, 0.0),
    };
    Tolerance { percent, count }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_percent_and_count_is_allowed() {
        let tolerance = Tolerance { percent: 6.0, count: 20.0 };
        assert!(tolerance.allows(1000.0, 1060.0) && !tolerance.allows(1000.0, 1061.0));
        assert!(tolerance.allows(4.0, 24.0) && !tolerance.allows(4.0, 25.0));
        assert!(tolerance.allows(0.0, 20.0) && !tolerance.allows(0.0, 21.0));
        assert_eq!(tolerance.percent_of(100.0), Some(20.0));
        assert_eq!(tolerance.percent_of(0.0), None);
        assert_eq!(tolerance.or_noise(50.0).percent_of(100.0), Some(50.0));
        assert_eq!(tolerance.or_noise(1.0), tolerance);
    }

    #[test]
    fn tolerances_of_the_classic_lru() {
        let of = |access, measure| {
            let kind = RowKind {
                preset: Preset::Linux72,
                lru: Lru::Classic,
                access,
                shifts: false,
                is_loose: false,
                means: false,
                limit_pages: 8192,
            };
            tolerance(kind, measure).percent
        };
        let measures = [Measure::Misses, Measure::Refaults, Measure::Scanned, Measure::Activated];
        for access in [Access::Reads, Access::MappedReads, Access::Writes, Access::AnonAndFile] {
            assert_eq!(measures.map(|measure| of(access, measure)), [0.5, 0.7, 0.7, 3.0]);
        }
        assert_eq!([Access::Reads, Access::MappedReads].map(|a| of(a, Measure::Restored)), [5.0, 10.0]);
    }

    /// The lines of the table in [book: agreement#tolerances] that concern files.
    #[test]
    fn tolerances_are_those_of_the_book() {
        let of = |preset, access, shifts, means, limit_pages| {
            let (lru, is_loose) = (Lru::MultiGen, false);
            let kind = RowKind { preset, lru, access, shifts, is_loose, means, limit_pages };
            [Measure::Misses, Measure::Refaults, Measure::Scanned, Measure::Sorted, Measure::Activated]
                .map(|measure| tolerance(kind, measure).percent)
        };
        let percents =
            |access, shifts, means, limit_pages| of(Preset::Linux72, access, shifts, means, limit_pages);
        for preset in [Preset::Linux612, Preset::Linux71] {
            assert_eq!(of(preset, Access::Reads, false, false, 8192), [0.3, 0.5, 0.6, 5.0, 6.0]);
            assert_eq!(of(preset, Access::MappedReads, false, false, 8192), [0.4, 0.6, 0.7, 15.0, 10.0]);
        }
        assert_eq!(of(Preset::Linux612, Access::Writes, false, false, 8192), [0.5, 1.0, 1.0, 7.0, 25.0]);
        assert_eq!(of(Preset::Linux71, Access::Writes, false, false, 8192), [0.5, 1.0, 1.0, 15.0, 25.0]);
        assert_eq!(of(Preset::Linux71, Access::Writes, false, false, 4096), [2.0, 2.5, 2.0, 15.0, 25.0]);
        assert_eq!(percents(Access::Reads, false, false, 4096), [0.3, 0.5, 0.6, 5.0, 6.0]);
        assert_eq!(percents(Access::Reads, true, false, 8192), [1.0, 1.0, 0.6, 5.0, 6.0]);
        assert_eq!(percents(Access::MappedReads, false, false, 8192), [3.5, 6.0, 6.0, 25.0, 15.0]);
        assert_eq!(percents(Access::MappedReads, false, true, 8192), [0.5, 1.0, 1.5, 5.0, 5.0]);
        assert_eq!(percents(Access::Writes, false, false, 8192), [0.5, 1.0, 1.0, 7.0, 25.0]);
        assert_eq!(percents(Access::Writes, false, false, 4096), [2.0, 2.5, 2.0, 18.0, 25.0]);
        assert_eq!(percents(Access::AnonAndFile, false, false, 8192), [0.5, 0.6, 0.5, 3.0, 25.0]);
    }
}
