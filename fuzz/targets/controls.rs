//! Writes of control files while jobs run: three tenants in memory for 200 pages, with files and
//! anonymous memory, in the simulator, whose checker recounts everything now and then.
//!
//! An input has commands, separated by empty lines. A command has the file in its first line, and
//! the value in the others; `create`, `remove` and `move` are commands for tenants. The bytes after
//! the first NUL choose the machine.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mglru_core::{Lru, Mechanisms, OomPolicy, Preset, Time};
use mglru_fuzz::said;
use mglru_sim::{Access, Command, Machine, Operation, Simulator, SwapDevice, SwapModel, Tenant, Writes};
use mglru_workload::Random;
use std::time::Duration;

const COMMANDS_MAX: usize = 16;
const OPERATIONS: u64 = 300;
/// A job whose requests fail makes no progress but in time.
const STEPS_MAX: u64 = 20_000;

fn machine(choices: &[u8]) -> Machine {
    let choice = |number: usize| usize::from(choices.get(number).copied().unwrap_or_default());
    let preset = Preset::ALL[choice(0) % 4];
    let lru = Lru::ALL.get(choice(1) % 4);
    let mechanisms = Mechanisms::preset(preset);
    let device = if choice(2) & 4 != 0 { SwapDevice::zram() } else { SwapDevice::lab_disk() };
    Machine {
        mechanisms: lru.map_or(mechanisms, |&lru| mechanisms.with_lru(lru)),
        tenants: [("a", 150), ("a/b", 90), ("c", 120)].map(|(path, max)| Tenant::new(path, max)).into(),
        cpus: 1 + (choice(2) & 1),
        swap: (choice(2) & 2 != 0).then_some(SwapModel { pages: 80, device }),
        oom_policy: [OomPolicy::Fail, OomPolicy::Victim, OomPolicy::Ask][choice(3) % 3],
        charge_metadata: choice(2) & 8 != 0,
        charge_batch_pages: if choice(2) & 16 != 0 { 64 } else { 1 },
        batch_time: Duration::from_micros(20),
        scan_time: Duration::from_micros(1),
        writes: Writes::Overwrite,
        readahead_pages: if choice(2) & 32 != 0 { 8 } else { 0 },
        ..Machine::new(200)
    }
}

fn commands(text: &str) -> Vec<(Time, Command)> {
    let each = text.split("\n\n").take(COMMANDS_MAX).enumerate();
    let parsed = each.map(|(number, command)| {
        let (file, value) = command.split_once('\n').unwrap_or((command, ""));
        let tenant = value.bytes().next().map_or(0, |byte| usize::from(byte) % 4);
        let command = match file {
            "create" => Command::Create(3),
            "remove" => Command::Remove(tenant),
            "move" => Command::Move { job: number % 3..number % 3 + 1, to: tenant.checked_sub(1) },
            _ => Command::Write { file: file.to_owned(), value: value.to_owned() },
        };
        (Time::from_nanos(100_000 * (number as u64 + 1)), command)
    });
    parsed.collect()
}

fn operation(random: &mut Random, job: u64) -> Operation {
    let page = random.below(100).min(random.below(100));
    let file = (job % 2) << 32;
    match random.below(40) {
        0 => Operation::Sync { page: file },
        1 => Operation::Truncate { page: file | page },
        2 => Operation::Discard { page: file | page, pages: 8 },
        3 => Operation::Release { page: job << 32 | page, pages: 8 },
        4..9 => Access::write(file | page).into(),
        9..15 => Access::load(file | page).into(),
        15..18 => Access::store(file | page).into(),
        18..24 => Access::store(job << 32 | page).anon().into(),
        24..28 => Access::load(job << 32 | page).anon().into(),
        _ => Access::read(file | page).into(),
    }
}

fuzz_target!(|data: &[u8]| {
    let text_bytes = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let text = String::from_utf8_lossy(&data[..text_bytes]);
    let choices = data.get(text_bytes + 1..).unwrap_or_default();
    let mut simulator = Simulator::new(&machine(choices)).expect("a sound machine");
    let files = commands(&text);
    let written = files.iter().filter_map(|(_, command)| match command {
        Command::Write { file, .. } => Some(file.clone()),
        _ => None,
    });
    let read = written.collect();
    simulator.administer(vec![Tenant::new("a/new", 40)], files, Some((Duration::from_micros(700), read)));
    for job in 0..3u64 {
        let mut random = Random::stream(job, choices.get(4).copied().unwrap_or_default().into());
        let operations = (0..OPERATIONS).map(move |_| operation(&mut random, job));
        simulator.add_job(job as usize, operations);
    }
    simulator.check_every(499);
    while simulator.steps() < STEPS_MAX {
        match simulator.step() {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => panic!("{error}"),
        }
    }
    for answer in simulator.answers() {
        if let Err(error) = &answer.result {
            said(error);
        }
    }
    for reading in simulator.readings() {
        match &reading.text {
            Ok(text) => assert!(text.is_empty() || text.ends_with('\n'), "{text:?}"),
            Err(error) => said(error),
        }
    }
});
