//! How far a replay may be from a kernel ([book: agreement#tolerances]).
//!
//! Descriptor reads repeat to the page, so little is allowed. Mapped reads are unstable in 7.2
//! itself: ten pages more or less move the misses by 3 %, so only means over several limits can be
//! judged narrowly. Older kernels are steady.

use super::kernel_run::{Access, Measure};
use mglru_core::{Lru, Preset};

/// What is allowed: the larger of both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Percent of the kernel's count.
    pub percent: f64,
    /// So many, however small the count.
    pub count: f64,
}

impl Tolerance {
    /// Whether the counts are so close.
    pub fn allows(self, kernel: f64, ours: f64) -> bool {
        // Both sides are sums of a few roundings of numbers below 2^32.
        (ours - kernel).abs() <= self.of(kernel) + 1e-6
    }

    /// In percent of the kernel's count; `None`: that is 0.
    pub fn percent_of(self, kernel: f64) -> Option<f64> {
        (kernel > 0.0).then(|| 100.0 * self.of(kernel) / kernel)
    }

    fn of(self, kernel: f64) -> f64 {
        (kernel * self.percent / 100.0).max(self.count)
    }

    /// At least what kernels that ran the same differ by.
    pub fn or_noise(self, percent: f64) -> Tolerance {
        Tolerance { percent: self.percent.max(percent), ..self }
    }
}

/// Which rows of the table in the book apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowKind {
    /// What stands for the kernel.
    pub preset: Preset,
    /// The policy.
    pub lru: Lru,
    /// How pages were touched.
    pub access: Access,
    /// Whether the working set moves, by the workload's name.
    pub shifts: bool,
    /// Whether it is about means over at least five limits.
    pub means: bool,
    /// `memory.max`.
    pub limit_pages: u64,
}

/// What is allowed.
pub fn tolerance(kind: RowKind, measure: Measure) -> Tolerance {
    // Misses, refaults, scanned and stolen, sorted, activated and restored.
    let percents = match kind {
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
    };
    Tolerance { percent, count }
}

/// What is allowed of the classic LRU ([book: agreement#classic-agreement]), besides what replays
/// differ by among themselves. Restored pages are few, and of mapped reads one refresh of the
/// statistics more or less decides about a tenth of them.
fn classic(access: Access, measure: Measure) -> Tolerance {
    let (percent, count) = match measure {
        Measure::Restored if access == Access::MappedReads => (10.0, 20.0),
        Measure::TotalMisses | Measure::Misses => (0.5, 0.0),
        Measure::Refaults | Measure::Scanned | Measure::Stolen => (0.7, 0.0),
        Measure::Activated | Measure::ActivatedRefaults => (3.0, 20.0),
        Measure::Sorted | Measure::Restored => (5.0, 20.0),
        Measure::SwapIns | Measure::SwapOuts => (5.0, 0.0),
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

    /// The lines of the table in [book: agreement#tolerances] that are about files.
    #[test]
    fn tolerances_are_those_of_the_specification() {
        let of = |preset, access, shifts, means, limit_pages| {
            let kind = RowKind { preset, lru: Lru::MultiGen, access, shifts, means, limit_pages };
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
