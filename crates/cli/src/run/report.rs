//! Results of a scenario as text.

use crate::cache_report::{name_of, seconds};
use crate::size;
use crate::table::{Table, count, percent, wrapped};
use mglru_core::PAGE_BYTES;
use mglru_lab::mechanisms::describe;
use mglru_lab::run::{Killed, Plan, Read, Refused, ScenarioOutcome};
use mglru_workload::scenario::Command;
use std::time::Duration;

/// The result as text.
pub fn text(plan: &Plan, outcome: &ScenarioOutcome) -> String {
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
    match outcome.skipped_records {
        0 => {}
        1 => text.push_str("\nOne bad record of a trace was skipped.\n"),
        skipped => text.push_str(&format!("\n{} bad records of traces were skipped.\n", count(skipped))),
    }
    if !outcome.answers.is_empty() {
        text.push_str(&format!("\n{}", actions(outcome)));
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
        table.row([victim, time, name_of(&report.tenant).to_owned(), report.to_string()]);
    }
    table.text()
}

fn refusals(refusals: &[Refused]) -> String {
    let mut table = Table::new(["refused", "first at", "for", "why"]).with_words_last();
    for Refused { tenant, time, report } in refusals {
        table.row([
            name_of(tenant).to_owned(),
            at(*time),
            name_of(&report.tenant).to_owned(),
            report.to_string(),
        ]);
    }
    table.text()
}

fn tenants(plan: &Plan, outcome: &ScenarioOutcome) -> String {
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
            name_of(&tenant.path).to_owned(),
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

fn actions(outcome: &ScenarioOutcome) -> String {
    let mut table = Table::new(["action", "began", "took", "result"]).with_words_last();
    for answer in &outcome.answers {
        let what = match &answer.command {
            Command::Write { file, value } => format!("{file} = {value}"),
            Command::Create(tenant) => format!("create {tenant}"),
            Command::Remove(tenant) => format!("remove {tenant}"),
            Command::Move { job, to } => {
                let (job, to) = (job.as_deref().unwrap_or_default(), to.as_deref().unwrap_or_default());
                format!("move {job} to {}", name_of(to))
            }
        };
        let took = answer.ended.saturating_sub(answer.began);
        let result = answer.error.clone().unwrap_or_else(|| "done".to_owned());
        table.row([what, at(answer.began), seconds(took), result]);
    }
    table.text()
}

/// Files of one line are columns over time. Of other files, the last reading is shown.
fn readings(plan: &Plan, outcome: &ScenarioOutcome) -> String {
    let files = plan.scenario.print.files.iter().map(|file| file.value.as_str());
    fn of_file<'a>(outcome: &'a ScenarioOutcome, file: &'a str) -> impl DoubleEndedIterator<Item = &'a Read> {
        outcome.readings.iter().filter(move |reading| reading.file == file)
    }
    let is_long = |file: &&str| {
        of_file(outcome, file)
            .any(|reading| reading.text.as_ref().is_ok_and(|text| text.trim_end().contains('\n')))
    };
    let (long, short): (Vec<&str>, Vec<&str>) = files.partition(is_long);
    let mut text = String::new();
    if !short.is_empty() {
        let mut table = Table::with_headings(["time"].into_iter().chain(short.iter().copied()));
        for moment in outcome.readings.chunks(short.len() + long.len()) {
            let cell = |file: &&str| {
                let found = moment.iter().find(|reading| reading.file == *file);
                found.and_then(|reading| reading.text.as_deref().ok()).unwrap_or("-").trim_end().to_owned()
            };
            table.row(std::iter::once(at(moment[0].time)).chain(short.iter().map(cell)));
        }
        text.push_str(&format!("\n{}", table.text()));
    }
    for file in long {
        let Some(last) = of_file(outcome, file).rfind(|reading| reading.text.is_ok()) else { continue };
        let lines = last.text.as_deref().unwrap_or_default();
        text.push_str(&format!("\n{file} at {}\n", at(last.time)));
        lines.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
    text
}
