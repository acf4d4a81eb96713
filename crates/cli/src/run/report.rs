//! Results of a scenario as text and as JSON, with the same numbers.

use crate::cache_report::seconds;
use crate::size;
use crate::table::{Table, count, percent, wrapped};
use mglru_core::PAGE_BYTES;
use mglru_lab::mechanisms::{Settings, describe};
use mglru_lab::run::{Answered, Killed, Outcome, Plan, Refused, TenantRow};
use mglru_workload::scenario::{Action, Scenario, Tenant, What};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The result as text.
pub fn text(plan: &Plan, outcome: &Outcome) -> String {
    let scenario = &plan.scenario;
    let mut text = scenario.name();
    if let Some(description) = &scenario.description {
        text.push_str(&format!(": {}", description.trim()));
    }
    let (lru, seed) = (plan.mechanisms.lru().name(), scenario.machine.seed);
    let (world, memory) = (plan.world.name(), size::show(plan.memory_bytes));
    text.push_str(&format!(
        "\n{world}, memory {memory}, {}, {lru}, seed {seed}; took {}\n\n",
        describe(plan.mechanisms),
        seconds(outcome.time),
    ));
    let mut text = wrapped(&text) + &tenants(plan, outcome);
    if !outcome.answers.is_empty() {
        text.push_str(&format!("\n{}", actions(plan, outcome)));
    }
    if !outcome.kills.is_empty() {
        text.push_str(&format!("\n{}", kills(&outcome.kills)));
    }
    if !outcome.refusals.is_empty() {
        text.push_str(&format!("\n{}", refusals(&outcome.refusals)));
    }
    text + &readings(plan, outcome)
}

fn kills(kills: &[Killed]) -> String {
    let mut table = Table::new(["killed", "at", "for", "why"]).with_words_last();
    for Killed { time, report } in kills {
        let victim = report.victim.clone().unwrap_or_default();
        let time = time.map_or("-".to_owned(), at);
        table.row([victim, time, name_of(&report.tenant), report.to_string()]);
    }
    table.text()
}

fn refusals(refusals: &[Refused]) -> String {
    let mut table = Table::new(["refused", "first at", "for", "why"]).with_words_last();
    for Refused { tenant, time, report } in refusals {
        table.row([name_of(tenant), at(*time), name_of(&report.tenant), report.to_string()]);
    }
    table.text()
}

fn name_of(path: &str) -> String {
    if path.is_empty() { "(root)".to_owned() } else { path.to_owned() }
}

fn tenants(plan: &Plan, outcome: &Outcome) -> String {
    let fixed = ["tenant", "usage", "peak", "hits", "misses", "miss ratio", "refused"];
    let headings = fixed.into_iter().chain(plan.counters.iter().map(String::as_str));
    let mut table = Table::with_headings(headings);
    for tenant in
        outcome.tenants.iter().filter(|tenant| !tenant.path.is_empty() || tenant.hits + tenant.misses > 0)
    {
        let counter = |name: &String| {
            let found = tenant.counters.iter().find(|(known, _)| known == name);
            found.map_or("-".to_owned(), |&(_, value)| count(value))
        };
        let fixed = [
            name_of(&tenant.path),
            size::show(tenant.usage_pages * PAGE_BYTES),
            size::show(tenant.peak_pages * PAGE_BYTES),
            count(tenant.hits),
            count(tenant.misses),
            percent(tenant.misses, tenant.hits + tenant.misses),
            count(tenant.out_of_memory),
        ];
        table.row(fixed.into_iter().chain(plan.counters.iter().map(counter)));
    }
    table.text()
}

fn at(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

fn actions(plan: &Plan, outcome: &Outcome) -> String {
    let mut table = Table::new(["action", "began", "took", "result"]).with_words_last();
    for (action, answer) in plan.scenario.actions.iter().zip(&outcome.answers) {
        let what = match &action.what {
            What::Write { file, value } => format!("{file} = {value}"),
            What::Create(number) => format!("create {}", plan.scenario.tenants[*number].path),
            What::Remove(number) => format!("remove {}", plan.scenario.tenants[*number].path),
            What::Move { job, to } => {
                let scenario = &plan.scenario;
                let to = to.map_or("", |to| &scenario.tenants[to].path);
                format!("move {} to {}", scenario.jobs[*job].name.as_deref().unwrap_or_default(), name_of(to))
            }
        };
        let took = answer.ended.saturating_sub(answer.began);
        let result = answer.error.clone().unwrap_or_else(|| "done".to_owned());
        table.row([what, at(answer.began), seconds(took), result]);
    }
    table.text()
}

/// Files of one line are columns over time. Of other files, the last reading is shown.
fn readings(plan: &Plan, outcome: &Outcome) -> String {
    let files = &plan.scenario.print.files;
    let of_file = |file: usize| outcome.readings.iter().filter(move |reading| reading.file == file);
    let is_long = |file: &usize| {
        of_file(*file).any(|reading| reading.text.as_ref().is_ok_and(|text| text.trim_end().contains('\n')))
    };
    let (long, short): (Vec<usize>, Vec<usize>) = (0..files.len()).partition(is_long);
    let mut text = String::new();
    if !short.is_empty() {
        let names = short.iter().map(|&file| files[file].value.as_str());
        let mut table = Table::with_headings(["time"].into_iter().chain(names));
        for moment in outcome.readings.chunk_by(|one, next| one.time == next.time && one.file < next.file) {
            let cell = |&file: &usize| {
                let found = moment.iter().find(|reading| reading.file == file);
                found.and_then(|reading| reading.text.as_deref().ok()).unwrap_or("-").trim_end().to_owned()
            };
            table.row(std::iter::once(at(moment[0].time)).chain(short.iter().map(cell)));
        }
        text.push_str(&format!("\n{}", table.text()));
    }
    for file in long {
        let Some(last) = of_file(file).rfind(|reading| reading.text.is_ok()) else { continue };
        let lines = last.text.as_deref().unwrap_or_default();
        text.push_str(&format!("\n{} at {}\n", files[file].value, at(last.time)));
        lines.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    text
}

/// The result as a document.
pub fn document(plan: &Plan, outcome: &Outcome) -> Value {
    let scenario = &plan.scenario;
    // Tenants that could not be created have no row.
    let mut tenants = scenario.tenants.iter();
    json!({
        "scenario": scenario.name(),
        "world": plan.world.name(),
        "memory_pages": plan.memory_bytes / PAGE_BYTES,
        "preset": plan.mechanisms.name(),
        "mechanisms": Settings(plan.mechanisms),
        "seed": scenario.machine.seed,
        "seconds": outcome.time.as_secs_f64(),
        "tenants": outcome.tenants.iter().map(|row| {
            let tenant = if row.path.is_empty() { None } else { tenants.find(|tenant| tenant.path == row.path) };
            tenant_json(row, tenant)
        }).collect::<Vec<_>>(),
        "actions": scenario.actions.iter().zip(&outcome.answers).map(|(action, answer)| {
            action_json(scenario, action, answer)
        }).collect::<Vec<_>>(),
        "kills": outcome.kills.iter().map(kill_json).collect::<Vec<_>>(),
        "refusals": outcome.refusals.iter().map(|Refused { tenant, time, report }| json!({
            "seconds": time.as_secs_f64(),
            "tenant": tenant,
            "limit_of": report.tenant,
            "report": report.to_string(),
        })).collect::<Vec<_>>(),
        "readings": outcome.readings.iter().map(|reading| json!({
            "seconds": reading.time.as_secs_f64(),
            "file": scenario.print.files[reading.file].value,
            "text": reading.text.as_deref().ok(),
        })).collect::<Vec<_>>(),
        "failures": outcome.failures,
    })
}

fn tenant_json(row: &TenantRow, tenant: Option<&Tenant>) -> Value {
    let accesses = row.hits + row.misses;
    let counters: Map<String, Value> =
        row.counters.iter().map(|&(name, value)| (name.to_owned(), value.into())).collect();
    json!({
        "path": row.path,
        "created_seconds": tenant.map_or(0.0, |tenant| tenant.from.as_secs_f64()),
        "removed_seconds": tenant.and_then(|tenant| tenant.until).map(|until| until.as_secs_f64()),
        "usage_pages": row.usage_pages,
        "peak_pages": row.peak_pages,
        "hits": row.hits,
        "misses": row.misses,
        "miss_ratio": (accesses > 0).then(|| row.misses as f64 / accesses as f64),
        "out_of_memory": row.out_of_memory,
        "counters": counters,
    })
}

fn kill_json(Killed { time, report }: &Killed) -> Value {
    json!({
        "seconds": time.map(|time| time.as_secs_f64()),
        "victim": report.victim,
        "limit_of": report.tenant,
        "usage_pages": report.usage_pages,
        "max_pages": report.max_pages,
        "anon_pages": report.anon_pages,
        "report": report.to_string(),
    })
}

fn action_json(scenario: &Scenario, action: &Action, answer: &Answered) -> Value {
    let tenants = &scenario.tenants;
    let mut value = json!({
        "at_seconds": action.at.as_secs_f64(),
        "began_seconds": answer.began.as_secs_f64(),
        "ended_seconds": answer.ended.as_secs_f64(),
    });
    match &action.what {
        What::Write { file, value: written } => value["write"] = json!({ file: written }),
        What::Create(number) => value["create"] = tenants[*number].path.clone().into(),
        What::Remove(number) => value["remove"] = tenants[*number].path.clone().into(),
        What::Move { job, to } => {
            value["move"] = scenario.jobs[*job].name.clone().into();
            value["to"] = to.map_or("", |to| &tenants[to].path).into();
        }
    }
    value["error"] = answer.error.clone().into();
    value
}
