//! The comparisons of any kind of table as columns.

use super::compare::difference_percent;
use super::memcg_reclaim::Place;
use super::{Comparison, Filter, TableKind, counts, memcg_reclaim, oom, stores};
use crate::columns::{Columns, Get};
use crate::error::Error;
use crate::watch::Watch;
use mglru_core::PAGE_BYTES;
use std::path::Path;

/// One compared value.
struct Line {
    workload: String,
    kernel: String,
    lru: String,
    limit_pages: Option<u64>,
    counter: &'static str,
    kernel_count: f64,
    our_count: f64,
    tolerance_percent: Option<f64>,
    within: bool,
}

/// Repeats the runs of a table that pass the filter, and returns a row per compared value. `also`
/// has further runs of the same cases, for a table like `oom.csv`.
///
/// # Errors
/// The table or a trace cannot be read, no row can be repeated, or `also` is for another kind of
/// table.
pub fn columns(
    table: &Path,
    also: Option<&Path>,
    filter: &Filter,
    watch: &dyn Watch,
) -> Result<Columns, Error> {
    let kind = TableKind::of(table)?;
    let tables = kind.tables(table, also)?;
    let lines: Vec<Line> = match kind {
        TableKind::Counts => {
            let compared = counts::compare(table, filter, counts::MemoryFrom::Measured, watch)?;
            compared.comparisons.iter().map(Line::of_count).collect()
        }
        TableKind::MemcgReclaim => {
            let compared = memcg_reclaim::compare(table, filter, watch)?;
            compared.iter().flat_map(Line::of_memcg_reclaim).collect()
        }
        TableKind::Oom => oom::compare(&tables, filter, watch)?.iter().map(Line::of_oom).collect(),
        TableKind::Stores => stores::compare(table, filter, watch)?.iter().map(Line::of_store).collect(),
    };
    Ok(Columns::of(
        &lines,
        &[
            ("workload", Get::Text(|line| Some(line.workload.clone()))),
            ("kernel", Get::Text(|line| Some(line.kernel.clone()))),
            ("lru", Get::Text(|line| Some(line.lru.clone()))),
            ("limit_pages", Get::Whole(|line| line.limit_pages)),
            ("counter", Get::Text(|line| Some(line.counter.to_owned()))),
            ("kernel_count", Get::Real(|line| Some(line.kernel_count))),
            ("our_count", Get::Real(|line| Some(line.our_count))),
            ("difference_percent", Get::Real(|line| difference_percent(line.kernel_count, line.our_count))),
            ("tolerance_percent", Get::Real(|line| line.tolerance_percent)),
            ("within", Get::Flag(|line| Some(line.within))),
        ],
    ))
}

impl Line {
    fn of_count(one: &Comparison) -> Line {
        Line {
            workload: one.setting.workload.clone(),
            kernel: one.setting.kernel.clone(),
            lru: one.setting.lru.clone(),
            limit_pages: Some(one.limit_pages),
            counter: one.measure.name(),
            kernel_count: one.kernel,
            our_count: one.ours,
            tolerance_percent: one.tolerance.percent_of(one.kernel),
            within: one.within(),
        }
    }

    fn of_memcg_reclaim(one: &memcg_reclaim::Compared) -> [Line; 2] {
        one.figures().map(|figure| Line {
            workload: one.workload(),
            kernel: one.row.kernel.clone(),
            lru: one.row.lru.clone(),
            limit_pages: None,
            counter: figure.counter,
            kernel_count: figure.kernel,
            our_count: figure.ours,
            tolerance_percent: Some(100.0 * figure.tolerance / figure.kernel),
            within: figure.place() == Place::Near,
        })
    }

    fn of_store(one: &stores::Compared) -> Line {
        let row = &one.rows[0];
        Line {
            workload: one.workload(),
            kernel: row.kernel.clone(),
            lru: row.lru.clone(),
            limit_pages: Some(row.limit_bytes / PAGE_BYTES),
            counter: "pgsteal_per_operation",
            kernel_count: one.kernel(|rates| rates.stolen),
            our_count: one.ours(|rates| rates.stolen),
            tolerance_percent: Some(stores::STOLEN_PERCENT),
            within: one.within(),
        }
    }

    fn of_oom(one: &oom::Compared) -> Line {
        let row = &one.rows[0];
        let [kernel_count, our_count] = one.killed_percent();
        Line {
            workload: one.workload(),
            kernel: row.kernel.clone(),
            lru: row.lru.clone(),
            limit_pages: Some(row.limit_bytes / PAGE_BYTES),
            counter: "killed_percent",
            kernel_count,
            our_count,
            tolerance_percent: None,
            within: one.within(),
        }
    }
}
