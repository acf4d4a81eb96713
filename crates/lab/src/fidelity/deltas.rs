//! Changes from kernel to kernel and from policy to policy: the kernel's beside the engine's.
//!
//! A count may agree because it hardly depends on the rules of reclaim. A change between two
//! kernels depends on nothing else: load, machine and limit are the same on both sides.
//!
//! ```text
//! rows of one load:   6.12 multi-gen ──► 7.1 multi-gen ──► 7.2 multi-gen
//!                          │                  │                  │
//!                          ▼                  ▼                  ▼
//!                     6.12 classic  ──► 7.1 classic   ──► 7.2 classic
//! ```

use super::compare::Comparison;
use super::kernel_run::{Measure, Setting, version_rank};
use crate::document::{document, rounded};
use serde::{Serialize, Serializer};

/// The kernel's change, in percent, above which the engine's must have the same sign.
pub const SIGN_MATTERS_PERCENT: f64 = 0.5;
/// Allowed distance of both changes, as a share of the kernel's.
pub const SIZE_SHARE: f64 = 0.15;
/// Allowed distance of both changes, in points of a percent, where that is more.
pub const SIZE_POINTS: f64 = 0.5;

/// One side of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Side {
    /// Version of the kernel.
    pub kernel: String,
    /// `mglru` or `classic`.
    pub lru: String,
}

/// A change of the misses of a whole trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Delta {
    /// The workload.
    pub workload: String,
    /// `none`, `disk` or `zram`.
    pub swap: String,
    /// `memory.max` in pages.
    pub limit_pages: u64,
    /// Number of kernel runs on each side.
    pub runs: usize,
    /// The kernel and the policy before the change.
    pub from: Side,
    /// The kernel and the policy after the change.
    pub to: Side,
    /// Change in the kernel, in percent.
    pub kernel_percent: f64,
    /// Change in the engine, in percent.
    pub our_percent: f64,
}

impl Delta {
    /// Whether both changes have the same sign; `None` if the kernel's is too small to matter.
    pub fn sign_agrees(&self) -> Option<bool> {
        let matters = self.kernel_percent.abs() > SIGN_MATTERS_PERCENT;
        matters.then_some(self.kernel_percent * self.our_percent > 0.0)
    }

    /// Distance of both changes, in points of a percent.
    pub fn apart(&self) -> f64 {
        (self.our_percent - self.kernel_percent).abs()
    }

    /// Whether both changes have the same size: within [`SIZE_SHARE`] or [`SIZE_POINTS`].
    pub fn size_agrees(&self) -> bool {
        // Slack for rounding: both are quotients of counts below 2^32.
        self.apart() <= (SIZE_SHARE * self.kernel_percent.abs()).max(SIZE_POINTS) + 1e-9
    }
}

impl Serialize for Delta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        document!(serializer, {
            "workload": self.workload,
            "swap": self.swap,
            "limit_pages": self.limit_pages,
            "runs": self.runs,
            "from": self.from,
            "to": self.to,
            "kernel_percent": rounded(self.kernel_percent),
            "our_percent": rounded(self.our_percent),
            "sign_agrees": self.sign_agrees(),
            "size_agrees": self.size_agrees(),
        })
    }
}

/// How many changes agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Agreement {
    /// All changes.
    pub deltas: usize,
    /// Changes whose sign matters.
    pub signs: usize,
    /// Those with the kernel's sign.
    pub signs_agree: usize,
    /// Changes of the kernel's size.
    pub sizes_agree: usize,
}

impl Agreement {
    /// Counts the changes that agree.
    pub fn of(deltas: &[Delta]) -> Agreement {
        let signs = || deltas.iter().filter_map(Delta::sign_agrees);
        Agreement {
            deltas: deltas.len(),
            signs: signs().count(),
            signs_agree: signs().filter(|&agrees| agrees).count(),
            sizes_agree: deltas.iter().filter(|delta| delta.size_agrees()).count(),
        }
    }
}

/// The changes that the rows of a table allow, load by load: first from kernel to kernel with each
/// policy, then from multi-gen to classic in each kernel.
pub fn deltas(comparisons: &[Comparison]) -> Vec<Delta> {
    let misses: Vec<&Comparison> =
        comparisons.iter().filter(|one| one.measure == Measure::TotalMisses && one.kernel > 0.0).collect();
    let mut firsts: Vec<&Comparison> = Vec::new();
    for one in &misses {
        if !firsts.iter().any(|first| same_load(first, one)) {
            firsts.push(one);
        }
    }
    firsts
        .iter()
        .flat_map(|first| of_load(misses.iter().copied().filter(|one| same_load(first, one))))
        .collect()
}

fn same_load(a: &Comparison, b: &Comparison) -> bool {
    let load = |one: &Comparison| (one.limit_pages, one.kernel_runs);
    a.setting.same_load(&b.setting) && load(a) == load(b)
}

fn of_load<'c>(rows: impl Iterator<Item = &'c Comparison>) -> Vec<Delta> {
    let mut rows: Vec<&Comparison> = rows.collect();
    rows.sort_by_key(|row| version_rank(&row.setting.kernel));
    let of = |lru: &str| rows.iter().filter(|row| row.setting.lru == lru).copied().collect::<Vec<_>>();
    let (multigen, classic) = (of("mglru"), of("classic"));
    let versions =
        |rows: &[&Comparison]| rows.windows(2).map(|pair| delta(pair[0], pair[1])).collect::<Vec<_>>();
    let mut deltas = versions(&multigen);
    deltas.extend(versions(&classic));
    deltas.extend(multigen.iter().filter_map(|from| {
        let to = classic.iter().find(|to| to.setting.kernel == from.setting.kernel)?;
        Some(delta(from, to))
    }));
    deltas
}

fn delta(from: &Comparison, to: &Comparison) -> Delta {
    let change = |before: f64, after: f64| if before > 0.0 { 100.0 * (after / before - 1.0) } else { 0.0 };
    let side = |setting: &Setting| Side { kernel: setting.kernel.clone(), lru: setting.lru.clone() };
    Delta {
        workload: from.setting.workload.clone(),
        swap: from.setting.swap.clone(),
        limit_pages: from.limit_pages,
        runs: from.kernel_runs,
        from: side(&from.setting),
        to: side(&to.setting),
        kernel_percent: change(from.kernel, to.kernel),
        our_percent: change(from.ours, to.ours),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fidelity::tolerance::Tolerance;

    fn row(workload: &str, kernel: &str, lru: &str, [kernel_count, ours]: [f64; 2]) -> Comparison {
        Comparison {
            setting: Setting::new(workload, kernel, lru),
            limit_pages: 100,
            memory_pages: 90,
            measure: Measure::TotalMisses,
            kernel: kernel_count,
            kernel_runs: 1,
            ours,
            our_runs: 1,
            tolerance: Tolerance { percent: 1.0, count: 0.0 },
        }
    }

    #[test]
    fn kernels_are_compared_in_order_and_policies_within_a_kernel() {
        let rows = [
            row("a", "7.2.12", "mglru", [110.0, 120.0]),
            row("a", "6.12.117", "mglru", [100.0, 100.0]),
            row("b", "7.1.13", "mglru", [50.0, 50.0]),
            row("a", "7.1.13", "mglru", [105.0, 104.0]),
            row("a", "7.2.12", "classic", [99.0, 132.0]),
        ];
        let of = |delta: &Delta| {
            let side = |side: &Side| format!("{} {}", side.kernel, side.lru);
            (delta.workload.clone(), side(&delta.from), side(&delta.to))
        };
        let deltas = deltas(&rows);
        let words = |a: &str, b: &str| ("a".to_owned(), a.to_owned(), b.to_owned());
        assert_eq!(
            deltas.iter().map(of).collect::<Vec<_>>(),
            [
                words("6.12.117 mglru", "7.1.13 mglru"),
                words("7.1.13 mglru", "7.2.12 mglru"),
                words("7.2.12 mglru", "7.2.12 classic")
            ]
        );
        let percents: Vec<(i64, i64)> = deltas
            .iter()
            .map(|delta| {
                ((10.0 * delta.kernel_percent).round() as i64, (10.0 * delta.our_percent).round() as i64)
            })
            .collect();
        assert_eq!(percents, [(50, 40), (48, 154), (-100, 100)]);
    }

    #[test]
    fn sign_and_size_agree_or_not() {
        let delta = |kernel_percent, our_percent| Delta {
            kernel_percent,
            our_percent,
            ..delta(&row("a", "7.1.13", "mglru", [1.0, 1.0]), &row("a", "7.2.12", "mglru", [1.0, 1.0]))
        };
        let judged = |kernel, ours| (delta(kernel, ours).sign_agrees(), delta(kernel, ours).size_agrees());
        // The sign of a small change does not matter.
        assert_eq!(judged(0.5, -0.1), (None, false));
        assert_eq!(judged(0.4, -0.1), (None, true));
        assert_eq!(judged(0.6, 0.1), (Some(true), true));
        assert_eq!(judged(0.6, -0.1), (Some(false), false));
        // 15 % of a large change, 0.5 points of a small one.
        assert_eq!(judged(-10.0, -8.5), (Some(true), true));
        assert_eq!(judged(-10.0, -8.4), (Some(true), false));
        let all = [delta(0.5, -0.1), delta(0.6, -0.1), delta(-10.0, -8.5)];
        let expected = Agreement { deltas: 3, signs: 2, signs_agree: 1, sizes_agree: 1 };
        assert_eq!(Agreement::of(&all), expected);
    }

    #[test]
    fn other_limits_and_other_counts_are_not_mixed() {
        let wider = Comparison { limit_pages: 200, ..row("a", "7.2.12", "mglru", [1.0, 1.0]) };
        let scanned = Comparison { measure: Measure::Scanned, ..row("a", "7.2.12", "mglru", [1.0, 1.0]) };
        assert_eq!(deltas(&[row("a", "7.1.13", "mglru", [1.0, 1.0]), wider, scanned]), []);
    }
}
