//! Selection of rows by kernel, workload and policy, in tables of all kinds.

use super::kernel_run::lru_of;
use crate::Error;
use mglru_core::Lru;
use std::path::Path;

/// Filter of rows. Empty lists select all.
#[derive(Debug, Default)]
pub struct Filter {
    /// Kernel versions.
    pub kernels: Vec<String>,
    /// Workload names.
    pub workloads: Vec<String>,
    /// The policy.
    pub lru: Option<Lru>,
}

/// The paths of tables, for a message.
pub(super) fn shown(tables: &[&Path]) -> String {
    tables.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}

impl Filter {
    /// Whether the filter selects a kernel and a policy.
    pub fn wants(&self, kernel: &str, lru: &str) -> bool {
        let policy = self.lru.is_none_or(|wanted| lru_of(lru) == Some(wanted));
        policy && (self.kernels.is_empty() || self.kernels.iter().any(|wanted| wanted == kernel))
    }

    /// Whether the filter selects a workload.
    pub fn wants_workload(&self, workload: &str) -> bool {
        self.workloads.is_empty() || self.workloads.iter().any(|wanted| wanted == workload)
    }

    /// Checks that the filter selects something: a comparison of nothing would succeed. `rows` are
    /// the kernel, the workload and the policy of each row of the tables.
    ///
    /// # Errors
    /// The tables have no rows, a name in the filter does not occur in them, or no row has all.
    pub fn check(&self, tables: &[&Path], rows: &[[&str; 3]]) -> Result<(), Error> {
        let tables = shown(tables);
        if rows.is_empty() {
            return Err(Error::work(format_args!("{tables}: no rows in it")));
        }
        let policy = |lru: &str| lru_of(lru).map_or_else(|| lru.to_owned(), |lru| lru.name().to_owned());
        let wanted_lru: Vec<String> = self.lru.iter().map(|lru| lru.name().to_owned()).collect();
        let mut asked = Vec::new();
        for (option, wanted, column) in
            [("--kernel", &self.kernels, 0), ("--workload", &self.workloads, 1), ("--lru", &wanted_lru, 2)]
        {
            let name = |row: &[&str; 3]| if column == 2 { policy(row[2]) } else { row[column].to_owned() };
            let mut there: Vec<String> = rows.iter().map(name).collect();
            there.sort_unstable();
            there.dedup();
            if let Some(name) = wanted.iter().find(|name| !there.contains(name)) {
                return Err(Error::usage(format_args!(
                    "{option} {name}: {tables} has no such row; it has {}",
                    there.join(", ")
                )));
            }
            if !wanted.is_empty() {
                asked.push(format!("{option} {}", wanted.join(",")));
            }
        }
        let is_wanted =
            |[kernel, workload, lru]: &[&str; 3]| self.wants(kernel, lru) && self.wants_workload(workload);
        if !rows.iter().any(is_wanted) {
            return Err(Error::usage(format_args!("{tables}: no row has {} together", asked.join(" and "))));
        }
        Ok(())
    }
}
