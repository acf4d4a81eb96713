//! Where the gain begins: size of the limit × share of writes × speed of the device, by descriptor and mapped.

use super::super::Effort;
use super::clients::Facts;
use super::store::{Disk, PUBLISHED_LIMIT_PAGES, StoreRun};
use super::{SETTINGS, settings};
use crate::error::Failure;
use crate::table::Table;
use crate::{parallel, progress};
use mglru_core::Counter;
use serde_json::{Value, json};

/// The published limit is divided by these.
const SMALLER: [u64; 2] = [256, 32];
const WRITES_PERCENT: [u32; 3] = [5, 25, 50];
/// Settings that are compared with linux-7.1: linux-7.2, 7.2 without fault_placement, 7.1 with it.
const COMPARED: [(usize, &str); 3] = [(1, "linux-7.2"), (3, "loop alone"), (4, "placement alone")];

/// A place on the map.
struct Place {
    run: StoreRun,
    /// By setting.
    facts: Vec<Facts>,
}

/// The map.
pub struct Map {
    places: Vec<Place>,
}

/// Runs it: every place once.
///
/// # Errors
/// The simulator has a bug.
pub fn run(effort: Effort) -> Result<Map, Failure> {
    let settings = settings()?;
    let mut places = Vec::new();
    for smaller in SMALLER {
        for writes_percent in WRITES_PERCENT {
            for disk in Disk::ALL {
                for mapped in [false, true] {
                    let limit_pages = PUBLISHED_LIMIT_PAGES / smaller;
                    let run = StoreRun::new(settings[0], limit_pages, effort.seed);
                    let shorter = u64::from(effort.shorter);
                    places.push(StoreRun { writes_percent, disk, mapped, shorter, ..run });
                }
            }
        }
    }
    let tasks: Vec<StoreRun> = places
        .iter()
        .flat_map(|place| settings.iter().map(|&mechanisms| StoreRun { mechanisms, ..*place }))
        .collect();
    let bar = progress::of_share(tasks.len() as u64);
    bar.set_message("the map");
    let facts = parallel::all(&tasks, parallel::threads(), |_, run| {
        let facts = run.run()?;
        bar.inc(1);
        Ok(facts)
    })?;
    bar.finish_and_clear();
    let places = places.into_iter().zip(facts.chunks(SETTINGS));
    Ok(Map { places: places.map(|(run, facts)| Place { run, facts: facts.to_vec() }).collect() })
}

impl Place {
    /// Refaults of files and operations per second, of a setting against linux-7.1, in percent.
    fn change(&self, setting: usize) -> (f64, f64) {
        let percent = |of: &dyn Fn(&Facts) -> f64| {
            let before = of(&self.facts[0]);
            if before == 0.0 { 0.0 } else { 100.0 * (of(&self.facts[setting]) / before - 1.0) }
        };
        (percent(&|facts| facts.count(Counter::WorkingsetRefaultFile)), percent(&Facts::rate))
    }
}

impl Map {
    /// As text: changes of refaults / of operations per second.
    pub fn text(&self) -> String {
        let mut table =
            Table::new(["limit", "writes", "device", "files", COMPARED[0].1, COMPARED[1].1, COMPARED[2].1]);
        for place in &self.places {
            let run = &place.run;
            let [after, only_loop, placement] = COMPARED.map(|(setting, _)| {
                let (refaults, rate) = place.change(setting);
                format!("{refaults:+.1} / {rate:+.1} %")
            });
            table.row([
                format!("{} MiB", run.limit_pages / 256),
                format!("{} %", run.writes_percent),
                run.disk.name().to_owned(),
                if run.mapped { "mapped" } else { "descriptor" }.to_owned(),
                after,
                only_loop,
                placement,
            ]);
        }
        format!("Against linux-7.1: refaults of files / operations per second\n\n{}", table.text())
    }

    /// As JSON.
    pub fn document(&self) -> Value {
        let place = |place: &Place| {
            let changes = COMPARED.map(|(setting, name)| {
                let (refaults, rate) = place.change(setting);
                json!({"setting": name, "refault_file_percent": refaults, "operations_per_second_percent": rate})
            });
            let run = &place.run;
            json!({
                "limit_pages": run.limit_pages,
                "writes_percent": run.writes_percent,
                "device": run.disk.name(),
                "mapped": run.mapped,
                "changes": changes,
            })
        };
        json!({"reclaim_loop_map": self.places.iter().map(place).collect::<Vec<_>>()})
    }
}
