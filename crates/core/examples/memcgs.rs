//! The cost of a reclaim request with many memcgs: memcgs visited, and time per page.
//!
//! ```text
//! cargo run --release -p mglru-core --example memcgs [PRESET]
//! ```
//!
//! Two million pages are spread over the memcgs in use; the others have none, or (second column)
//! four pages each. The root gets a request of 256 MiB, twelve times. Shown are the first request,
//! which meets memcgs not touched for long, and the median, in CPU time.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "an example is a host"
)]

#[path = "../tests/suite/common/mod.rs"]
mod common;

use common::QuietHost;
use mglru_core::memcg::MemcgId;
use mglru_core::reclaim::{Proactive, Progress, RequestStep, Watermarks};
use mglru_core::*;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

const PAGES: u32 = 1 << 21;
const REQUEST_PAGES: u64 = 65_536;
const RUNS: usize = 12;

struct World {
    core: Core,
    host: QuietHost,
}

impl World {
    fn new(preset: Preset, memcgs: u32, in_use: u32, idle_pages: u32) -> World {
        let mut options = Options::new(PAGES + memcgs * idle_pages + 4096);
        options.watermarks = Watermarks { min: 0, low: 0, high: 0 };
        options.mechanisms = Mechanisms::preset(preset);
        let world = World { core: Core::new(options, Time::ZERO), host: QuietHost::default() };
        // Memcgs in use are spread evenly over all.
        let every = memcgs / in_use;
        for n in 0..memcgs {
            let memcg = world.core.add_memcg(&format!("t{n}"), UNLIMITED, Time::ZERO).unwrap().id();
            let pages = if n % every == 0 && n / every < in_use { PAGES / in_use } else { idle_pages };
            world.fill(memcg, pages);
        }
        world.core.drain_all(&world.host);
        world
    }

    fn fill(&self, memcg: MemcgId, pages: u32) {
        if pages == 0 {
            return;
        }
        let task = self.core.new_task(memcg, 0);
        let mapping = self.core.open_mapping(Kind::File);
        for index in 0..pages {
            let mut charging = Charging::new(memcg, 0);
            let new = loop {
                match charging.step(&self.core, &self.host) {
                    ChargeStep::Charged(new) => break new,
                    ChargeStep::More => {}
                    other => panic!("there is room for all: {other:?}"),
                }
            };
            let folio =
                self.core.insert(&self.host, &task, &mapping, index, new, Arrival::default()).unwrap();
            self.core.publish(&self.host, &mapping, folio);
        }
    }

    fn request(&self) -> (Progress, Duration) {
        let began = on_processor();
        let mut request = Proactive::new(&self.core, MemcgId::ROOT, REQUEST_PAGES, None, 0);
        loop {
            match request.step(&self.core, &self.host) {
                RequestStep::Done(progress) => return (progress, on_processor() - began),
                RequestStep::More | RequestStep::Wait(_) => {}
                RequestStep::TryAgain(progress) => panic!("there is enough: {progress:?}"),
            }
        }
    }
}

/// CPU time of this thread, so that other load does not count. (`/proc/thread-self/schedstat` is
/// too coarse: it advances at scheduler ticks of 4 ms, and a request takes 4 ms.)
fn on_processor() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn median<T: Copy + Ord>(values: impl Iterator<Item = T>) -> T {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values[values.len() / 2]
}

fn main() {
    let preset = std::env::args().nth(1).map_or(Ok(Preset::Default), |name| Preset::parse(&name));
    let preset = preset.unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(2)
    });
    println!("{}: a request of {REQUEST_PAGES} pages to the root", preset.name());
    println!("  memcgs   in use   idle pages   visited    of all   reclaimed   ns/page, first   median");
    for (memcgs, in_use) in [(128, 128), (1000, 10), (10_000, 100), (100_000, 1000)] {
        for idle_pages in [0, 4] {
            let world = World::new(preset, memcgs, in_use, idle_pages);
            let runs: Vec<_> = (0..RUNS).map(|_| world.request()).collect();
            let visited = median(runs.iter().map(|(progress, _)| progress.memcgs_visited));
            let reclaimed = median(runs.iter().map(|(progress, _)| progress.reclaimed));
            let per_page = |nanos: u128| nanos as f64 / reclaimed as f64;
            let first = per_page(runs[0].1.as_nanos());
            let nanos = per_page(median(runs.iter().map(|(_, took)| took.as_nanos())));
            let share = 100.0 * visited as f64 / f64::from(memcgs);
            println!(
                "  {memcgs:>6}   {in_use:>6}   {idle_pages:>10}   {visited:>7}   {share:>5.1} %   {reclaimed:>9}   {first:>14.1}   {nanos:>6.1}"
            );
        }
    }
}
