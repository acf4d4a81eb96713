//! Where the working-set rework gains and where it loses, and which of its rules does it.
//!
//! *The map*: the load of experiment A with other shares of pages reached through mappings, other swappiness, and fewer
//! files. *The rules*, in three places of the map: each alone, and all without it ([`ReworkRule`]). No kernel was ever so;
//! rules that were made for each other are apart here. Without any rule, 7.1 is not quite 6.12, whose late updates have a part
//! of the reclaim loop of 7.2; that rest has a line of its own.

use super::Effort;
use super::simulated::{LIMIT_PAGES, LoadRun};
use super::workingset::{CLIENTS, Run, kernel};
use crate::error::Failure;
use crate::table::Table;
use crate::{parallel, progress};
use mglru_core::lru::Swappiness;
use mglru_core::{Counter, Mechanisms, Preset, ReworkRule};
use mglru_workload::Load;
use serde_json::{Value, json};
use std::time::Duration;

const TIME: Duration = Duration::from_secs(8);
/// Runs of each setting where rules are apart; the map has one.
const RULE_RUNS: u64 = 2;

/// A place of the map.
#[derive(Clone, Copy)]
struct Place {
    warehouses: u32,
    mapped_percent: u64,
    swappiness: u8,
}

const WAREHOUSES: [u32; 2] = [4, 1];
const MAPPED_PERCENT: [u64; 3] = [0, 50, 100];
const SWAPPINESS: [u8; 3] = [1, 60, 200];
/// Where rules are apart: both forms of experiment A, and where the rework gains most.
const APART: [Place; 3] = [
    Place { warehouses: 4, mapped_percent: 0, swappiness: 60 },
    Place { warehouses: 4, mapped_percent: 100, swappiness: 60 },
    Place { warehouses: 1, mapped_percent: 100, swappiness: 200 },
];

/// What is compared.
#[derive(Clone, Copy)]
struct Outcome {
    transactions: f64,
    file: f64,
    anon: f64,
}

/// One place: what was before, the rework, and both with one rule more or less.
struct Apart {
    place: Place,
    before: Outcome,
    after: Outcome,
    /// Without any rule.
    rest: Outcome,
    only: Vec<Outcome>,
    without: Vec<Outcome>,
}

/// What was found.
pub struct Ablation {
    map: Vec<(Place, Outcome, Outcome)>,
    apart: Vec<Apart>,
}

impl Place {
    fn run(self, mechanisms: Mechanisms, seed: u64, shorter: u32) -> Result<Outcome, Failure> {
        let run = LoadRun {
            load: Load::Tpcc { warehouses: self.warehouses, cache_pages: LIMIT_PAGES as u32 / 2 },
            clients: CLIENTS,
            mapped_percent: self.mapped_percent,
            mechanisms,
            limit_pages: LIMIT_PAGES,
            swappiness: Swappiness(self.swappiness),
            seed,
            time: TIME / shorter,
            watched: false,
        };
        run.run().map(Outcome::of)
    }

    /// Files of a warehouse are 1.3 times the limit.
    fn files(self) -> f64 {
        1.28 * f64::from(self.warehouses)
    }

    fn cells(self) -> [String; 3] {
        let mapped = format!("{} %", self.mapped_percent);
        [format!("{:.1}", self.files()), mapped, self.swappiness.to_string()]
    }

    fn json(self) -> Value {
        json!({
            "warehouses": self.warehouses,
            "mapped_percent": self.mapped_percent,
            "swappiness": self.swappiness,
        })
    }
}

impl Outcome {
    fn of(run: Run) -> Outcome {
        Outcome {
            transactions: run.transactions as f64,
            file: run.count(Counter::WorkingsetRefaultFile),
            anon: run.count(Counter::WorkingsetRefaultAnon),
        }
    }

    /// Of several runs.
    fn mean(outcomes: &[Outcome]) -> Outcome {
        let mean = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64;
        Outcome {
            transactions: mean(|one| one.transactions),
            file: mean(|one| one.file),
            anon: mean(|one| one.anon),
        }
    }

    /// Transactions in the same time, refaults of files per transaction, and of anonymous pages.
    fn changes(self, to: Outcome) -> [f64; 3] {
        // Infinite from none to some, which JSON has no number for: it is null there.
        let change = |before: f64, after: f64| match before == after {
            true => 0.0,
            false => 100.0 * (after / before - 1.0),
        };
        let each = |one: Outcome, refaults: f64| refaults / one.transactions.max(1.0);
        [
            change(self.transactions, to.transactions),
            change(each(self, self.file), each(to, to.file)),
            change(each(self, self.anon), each(to, to.anon)),
        ]
    }
}

fn cells(changes: [f64; 3]) -> [String; 3] {
    changes.map(|change| if change.is_finite() { format!("{change:+.1} %") } else { "from 0".to_owned() })
}

fn changes_json([transactions, file, anon]: [f64; 3]) -> Value {
    json!({
        "transactions_percent": transactions,
        "refault_file_per_transaction_percent": file,
        "refault_anon_per_transaction_percent": anon,
    })
}

/// Runs all of it.
///
/// # Errors
/// The simulator has a bug.
pub fn run(effort: Effort) -> Result<Ablation, Failure> {
    let (before, after) = (kernel(Preset::Linux612, &[])?, kernel(Preset::Linux71, &[])?);
    let but = |rule| ReworkRule::ALL.into_iter().filter(|&other| other != rule).collect::<Vec<_>>();
    let mut places = Vec::new();
    for warehouses in WAREHOUSES {
        for mapped_percent in MAPPED_PERCENT {
            places.extend(SWAPPINESS.map(|swappiness| Place { warehouses, mapped_percent, swappiness }));
        }
    }
    let mut tasks: Vec<(Place, Mechanisms, u64)> = Vec::new();
    tasks.extend(places.iter().flat_map(|&place| [before, after].map(|set| (place, set, effort.seed))));
    let mut settings = vec![before, after, after.with_rework_rules(&[])];
    settings.extend(ReworkRule::ALL.map(|rule| after.with_rework_rules(&[rule])));
    settings.extend(ReworkRule::ALL.map(|rule| after.with_rework_rules(&but(rule))));
    // Whether it works: one place, and one run.
    let (apart, runs) = if effort.shorter > 1 { (&APART[..1], 1) } else { (&APART[..], RULE_RUNS) };
    let seeds = || effort.seed..effort.seed + runs;
    for &place in apart {
        tasks.extend(settings.iter().flat_map(|&set| seeds().map(move |seed| (place, set, seed))));
    }
    let bar = progress::of_share(tasks.len() as u64);
    bar.set_message("regimes and rules");
    let outcomes = parallel::all(&tasks, parallel::threads(), |_, &(place, set, seed)| {
        let outcome = place.run(set, seed, effort.shorter);
        bar.inc(1);
        outcome
    });
    bar.finish_and_clear();
    let outcomes = outcomes?;
    let (map, rules) = outcomes.split_at(2 * places.len());
    let map = places.iter().zip(map.chunks(2)).map(|(&place, pair)| (place, pair[0], pair[1])).collect();
    let runs = runs as usize;
    let apart = apart.iter().zip(rules.chunks(settings.len() * runs)).map(|(&place, outcomes)| {
        let means: Vec<Outcome> = outcomes.chunks(runs).map(Outcome::mean).collect();
        let ([before, after, rest], rules) = means.split_first_chunk().expect("three settings without rules");
        let (only, without) = rules.split_at(ReworkRule::ALL.len());
        let (only, without) = (only.to_vec(), without.to_vec());
        Apart { place, before: *before, after: *after, rest: *rest, only, without }
    });
    Ok(Ablation { map, apart: apart.collect() })
}

impl Ablation {
    /// As text.
    pub fn text(&self) -> String {
        let mut text = "\
Where the working-set rework gains and loses: TPC-C-like as in experiment A, limit 64 MiB, 8 s; from
linux-6.12 to linux-7.1. Files are so many times the limit; refaults are per transaction.

"
        .to_owned();
        let mut map =
            Table::new(["files", "mapped", "swappiness", "transactions", "refault_file", "refault_anon"]);
        for (place, before, after) in &self.map {
            let ([a, b, c], [d, e, f]) = (place.cells(), cells(before.changes(*after)));
            map.row([a, b, c, d, e, f]);
        }
        text.push_str(&map.text());
        for Apart { place, before, after, rest, only, without } in &self.apart {
            let [files, mapped, swappiness] = place.cells();
            text.push_str(&format!(
                "\nIts rules, with files {files} times the limit, {mapped} mapped, swappiness {swappiness}: each alone \
                 (against\nnone), and all but this (against linux-7.1)\n\n"
            ));
            let mut table = Table::new([
                "rule",
                "alone: transactions",
                "refault_file",
                "refault_anon",
                "all but it: transactions",
                "refault_file",
                "refault_anon",
            ]);
            for ((rule, only), without) in ReworkRule::ALL.iter().zip(only).zip(without) {
                let ([a, b, c], [d, e, f]) = (cells(rest.changes(*only)), cells(after.changes(*without)));
                table.row([rule.name().to_owned(), a, b, c, d, e, f]);
            }
            let ([a, b, c], none) = (cells(before.changes(*rest)), "-".to_owned());
            table.row(["none, from 6.12".to_owned(), a, b, c, none.clone(), none.clone(), none]);
            text.push_str(&table.text());
        }
        text
    }

    /// As a document.
    pub fn document(&self) -> Value {
        let map = self.map.iter().map(|(place, before, after)| {
            json!({"place": place.json(), "rework": changes_json(before.changes(*after))})
        });
        let apart = self.apart.iter().map(|Apart { place, before, after, rest, only, without }| {
            let rules = ReworkRule::ALL.iter().zip(only).zip(without);
            let rules = rules.map(|((rule, only), without)| {
                json!({
                    "rule": rule.name(),
                    "alone": changes_json(rest.changes(*only)),
                    "all_but_it": changes_json(after.changes(*without)),
                })
            });
            json!({
                "place": place.json(),
                "rework": changes_json(before.changes(*after)),
                "none": changes_json(before.changes(*rest)),
                "rules": rules.collect::<Vec<_>>(),
            })
        });
        json!({"world": "sim", "map": map.collect::<Vec<_>>(), "rules": apart.collect::<Vec<_>>()})
    }
}
