//! Presents the results, as a table and as JSON.

use crate::counters::Counts;
use crate::measure::{Figures, Quartiles};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Target of a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    AtMost(f64),
    AtLeast(f64),
    /// No target.
    Any,
}

impl Wanted {
    fn text(self) -> String {
        match self {
            Wanted::AtMost(limit) => format!("at most {limit}"),
            Wanted::AtLeast(limit) => format!("at least {limit}"),
            Wanted::Any => "-".to_owned(),
        }
    }

    fn verdict(self, value: f64) -> &'static str {
        let met = match self {
            Wanted::AtMost(limit) => value <= limit,
            Wanted::AtLeast(limit) => value >= limit,
            Wanted::Any => return "",
        };
        if met { "met" } else { "NOT MET" }
    }
}

/// The ratio of two times: the median over all rounds.
struct Ratio {
    name: &'static str,
    /// Name and number of threads.
    numerator: (&'static str, usize),
    denominator: (&'static str, usize),
    /// Operations in the denominator's time per operation of the numerator.
    factor: f64,
    /// Numerator and denominator of another ratio, which this one is divided by.
    relative_to: Option<[(&'static str, usize); 2]>,
    wanted: Wanted,
}

const fn ratio(
    name: &'static str,
    numerator: (&'static str, usize),
    denominator: (&'static str, usize),
    wanted: Wanted,
) -> Ratio {
    Ratio { name, numerator, denominator, factor: 1.0, relative_to: None, wanted }
}

/// All ratios. A ratio of throughputs is inverted, because more time is less throughput.
const RATIOS: [Ratio; 20] = [
    ratio("mapped_hit_over_mmap", ("mapped_hit", 1), ("mmap", 1), Wanted::AtMost(0.85)),
    ratio("mapped_hit_over_huge_array", ("mapped_hit", 1), ("huge_array", 1), Wanted::AtMost(3.0)),
    ratio("quick_cache_over_mapped_hit", ("quick_cache", 1), ("mapped_hit", 1), Wanted::AtLeast(4.5)),
    ratio("moka_over_mapped_hit", ("moka", 1), ("mapped_hit", 1), Wanted::AtLeast(27.0)),
    ratio("foyer_over_mapped_hit", ("foyer", 1), ("mapped_hit", 1), Wanted::Any),
    ratio("sqlite_pool_over_mapped_hit", ("sqlite_pool", 1), ("mapped_hit_again", 1), Wanted::Any),
    ratio("pread_over_descriptor_hit", ("pread", 1), ("descriptor_hit", 1), Wanted::Any),
    ratio("pread_over_descriptor_hit_256", ("pread_256", 1), ("descriptor_hit_256", 1), Wanted::AtLeast(3.0)),
    ratio("descriptor_hit_over_bare_copy", ("descriptor_hit", 1), ("bare_copy", 1), Wanted::AtMost(1.15)),
    ratio("miss_iops_over_fio_one_job", ("fio", 1), ("miss", 1), Wanted::AtLeast(0.95)),
    ratio("miss_iops_over_fio_two_jobs", ("fio", 2), ("miss", 2), Wanted::AtLeast(0.95)),
    ratio(
        "miss_processor_time_over_fio_and_copy",
        ("miss_processor_time", 1),
        ("fio_and_copy_processor_time", 1),
        Wanted::AtMost(1.0),
    ),
    Ratio {
        // Each of the two threads makes one access in its time.
        factor: 2.0,
        ..ratio("two_threads_over_one", ("mapped_hit", 1), ("mapped_hit", 2), Wanted::Any)
    },
    // The machine's own scaling at that time: the array's threads share nothing.
    Ratio {
        factor: 2.0,
        ..ratio("two_threads_over_one_of_huge_array", ("huge_array", 1), ("huge_array", 2), Wanted::Any)
    },
    // 1.8 where the array's threads do 1.9.
    Ratio {
        relative_to: Some([("huge_array", 1), ("huge_array", 2)]),
        ..ratio(
            "scaling_over_that_of_huge_array",
            ("mapped_hit", 1),
            ("mapped_hit", 2),
            Wanted::AtLeast(0.947),
        )
    },
    ratio(
        "tenant_hit_throughput_while_other_thrashes",
        ("tenant_hit_alone", 1),
        ("tenant_hit_beside_thrashing", 1),
        Wanted::AtLeast(0.9),
    ),
    // The machine's own limit, without any cache.
    ratio(
        "tenant_hit_throughput_while_direct_reads_run",
        ("tenant_hit_alone", 1),
        ("tenant_hit_beside_direct_reads", 1),
        Wanted::Any,
    ),
    ratio(
        "p999_under_reclaim_over_median",
        ("timed_hit_p999_under_reclaim", 1),
        ("timed_hit_median", 1),
        Wanted::AtMost(3.0),
    ),
    // The machine's own limit, without any cache.
    ratio(
        "p999_of_array_under_reclaim_over_median",
        ("timed_array_load_p999_under_reclaim", 1),
        ("timed_array_load_median", 1),
        Wanted::Any,
    ),
    ratio(
        "reclaimed_page_over_that_of_multigen",
        ("reclaimed_clean_page", 1),
        ("reclaimed_clean_page_multigen", 1),
        Wanted::AtMost(1.15),
    ),
];

/// All results.
pub struct Report {
    /// Results of each way.
    pub figures: Vec<Figures>,
}

impl Report {
    fn find(&self, (name, threads): (&str, usize)) -> Option<&Figures> {
        self.figures.iter().find(|figures| (figures.name, figures.threads) == (name, threads))
    }

    /// The ratio; `None` if a part is missing.
    fn value(&self, ratio: &Ratio) -> Option<Quartiles> {
        let value = self.find(ratio.numerator)?.over(self.find(ratio.denominator)?);
        let value = match ratio.relative_to {
            Some([numerator, denominator]) => {
                value.over(&self.find(numerator)?.over(self.find(denominator)?))
            }
            None => value,
        };
        let quartiles = value.quartiles().times(ratio.factor);
        quartiles.median.is_finite().then_some(quartiles)
    }

    /// One JSON document. Times and ratios are three numbers each: lower quartile, median, upper
    /// quartile. A ratio that was not measured is null.
    pub fn json(&self) -> Value {
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        let results: Vec<Value> = self
            .figures
            .iter()
            .map(|figures| {
                json!({
                    "name": figures.name,
                    "threads": figures.threads,
                    "quartiles_ns": figures.quartiles_ns().values().map(rounded),
                    "counts": figures.counts.map(Counts::json),
                })
            })
            .collect();
        let ratios: Map<String, Value> = RATIOS
            .iter()
            .map(|ratio| {
                let quartiles = self.value(ratio).map(|quartiles| quartiles.values().map(rounded).to_vec());
                (ratio.name.to_owned(), quartiles.into())
            })
            .collect();
        json!({ "results": results, "ratios": ratios })
    }

    /// Throughput by number of threads, of ways that were measured with at least three.
    fn scaling(&self) -> String {
        let mut rows: Vec<(&str, Vec<&Figures>)> = Vec::new();
        for figures in &self.figures {
            match rows.iter_mut().find(|(name, _)| *name == figures.name) {
                Some((_, row)) => row.push(figures),
                None => rows.push((figures.name, vec![figures])),
            }
        }
        let mut text = String::new();
        for (name, row) in rows.iter().filter(|(_, row)| row.len() > 2) {
            if text.is_empty() {
                text = format!("\n{:<30}", "million per second, by threads");
                row.iter().for_each(|figures| _ = write!(text, " {:>8}", figures.threads));
                text.push('\n');
            }
            let _ = write!(text, "{name:<30}");
            for figures in row {
                let rate = figures.threads as f64 * 1e3 / figures.quartiles_ns().median;
                let _ = write!(text, " {rate:>8.2}");
            }
            text.push('\n');
        }
        text
    }

    /// Two tables, at most 100 columns wide, and one of [`Report::scaling`], whose width depends on
    /// the numbers of threads.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{:<44} {:>7} {:>12} {:>12} {:>12}\n",
            "nanoseconds per operation", "threads", "quartile", "median", "quartile"
        );
        for figures in &self.figures {
            let [lower, median, upper] = figures.quartiles_ns().values().map(|ns| format!("{ns:.1}"));
            let (name, threads) = (figures.name, figures.threads);
            let _ = writeln!(text, "{name:<44} {threads:>7} {lower:>12} {median:>12} {upper:>12}");
        }
        text += &self.scaling();
        let counted = self.figures.iter().filter_map(|figures| Some((figures.name, figures.counts?)));
        for (at, (name, counts)) in counted.enumerate() {
            if at == 0 {
                let _ = writeln!(
                    text,
                    "\n{:<44} {:>14} {:>14} {:>14}",
                    "counts per operation", "instructions", "cache misses", "TLB misses"
                );
            }
            let Counts { instructions, cache_misses, tlb_misses } = counts;
            let _ = writeln!(text, "{name:<44} {instructions:>14.1} {cache_misses:>14.2} {tlb_misses:>14.2}");
        }
        if self.figures.iter().all(|figures| figures.counts.is_none()) {
            let _ = writeln!(text, "\nThis machine counts neither instructions nor misses.");
        }
        let _ = writeln!(
            text,
            "\n{:<44} {:>8} {:>8} {:>8}  {:<14}",
            "ratio, of each round", "quartile", "median", "quartile", "wanted"
        );
        for ratio in &RATIOS {
            let value = self.value(ratio);
            let ([lower, median, upper], verdict) = match value {
                Some(value) => {
                    (value.values().map(|value| format!("{value:.2}")), ratio.wanted.verdict(value.median))
                }
                None => (["-"; 3].map(str::to_owned), "not measured"),
            };
            let wanted = ratio.wanted.text();
            let line =
                format!("{:<44} {lower:>8} {median:>8} {upper:>8}  {wanted:<14} {verdict}", ratio.name);
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let figures = |name, threads, ns: f64| Figures::new(name, threads, vec![ns, ns * 0.9, ns * 1.5]);
        Report {
            figures: vec![
                figures("mapped_hit", 1, 20.0),
                figures("mapped_hit", 2, 25.0),
                figures("huge_array", 1, 10.0),
                figures("huge_array", 2, 10.0),
                figures("mmap", 1, 40.0),
                figures("quick_cache", 1, 80.0),
                figures("miss", 2, 20_000.0),
                figures("fio", 2, 19_000.0),
            ],
        }
    }

    #[test]
    fn json_has_the_documented_fields() {
        let json = report().json();
        let first =
            json!({"name": "mapped_hit", "threads": 1, "quartiles_ns": [19.0, 20.0, 25.0], "counts": null});
        assert_eq!(json["results"][0], first);
        let ratios = &json["ratios"];
        assert_eq!(ratios["mapped_hit_over_mmap"], json!([0.5, 0.5, 0.5]));
        assert_eq!(ratios["quick_cache_over_mapped_hit"], json!([4.0, 4.0, 4.0]));
        assert_eq!(ratios["two_threads_over_one"], json!([1.6, 1.6, 1.6]));
        assert_eq!(ratios["scaling_over_that_of_huge_array"], json!([0.8, 0.8, 0.8]));
        assert_eq!(ratios["miss_iops_over_fio_two_jobs"], json!([0.95, 0.95, 0.95]));
        for absent in ["descriptor_hit_over_bare_copy", "moka_over_mapped_hit", "pread_over_descriptor_hit"] {
            assert!(ratios.get(absent).is_some_and(Value::is_null), "{absent}");
        }
    }

    #[test]
    fn throughput_is_shown_by_threads() {
        let mut report = report();
        assert_eq!(report.scaling(), "");
        let [one, two, four] = [1, 2, 4].map(|threads| Figures::new("way", threads, vec![100.0]));
        report.figures.extend([one, two, four]);
        let text = report.scaling();
        let lines: Vec<&str> = text.trim().lines().collect();
        assert!(lines[0].ends_with("       1        2        4"), "{text}");
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["way", "10.00", "20.00", "40.00"]);
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn the_table_marks_met_goals_and_fits() {
        let text = report().text();
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line("mapped_hit_over_mmap").ends_with("0.50     0.50     0.50  at most 0.85   met"));
        assert!(line("quick_cache_over").ends_with("NOT MET"));
        assert!(line("moka_over").ends_with("not measured"));
    }
}
