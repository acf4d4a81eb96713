//! Replays a trace with a policy of your own, here random replacement, beside those of papers.
//!
//! ```text
//! cargo run --release -p mglru-sim --example own_policy TRACE PAGES
//! ```
//!
//! `mglru replay TRACE --memory PAGESp` has the engine's misses on the same accesses.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "an example is a host"
)]
use mglru_sim::baseline::{BaselineReport, Policy, replay, replay_policy};
use mglru_sim::{Baseline, SourceError, TraceSource};
use mglru_workload::Random;
use mglru_workload::trace::{self, OpenOptions};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Evicts any page.
struct Any {
    /// The pages in memory.
    cached: Vec<u32>,
    memory_pages: usize,
    /// By page: its place in `cached`. Pages are numbered in the order of their first accesses, so
    /// that a new one is the next number.
    places: Vec<Option<u32>>,
    random: Random,
}

impl Policy for Any {
    fn touch(&mut self, page: u32) -> bool {
        if self.places.len() <= page as usize {
            self.places.resize(page as usize + 1, None);
        }
        if self.places[page as usize].is_some() {
            return true;
        }
        if self.cached.len() == self.memory_pages {
            let place = self.random.below(self.memory_pages as u64) as usize;
            let victim = std::mem::replace(&mut self.cached[place], page);
            self.places[victim as usize] = None;
            self.places[page as usize] = Some(place as u32);
        } else {
            self.places[page as usize] = Some(self.cached.len() as u32);
            self.cached.push(page);
        }
        false
    }
}

fn main() -> Result<(), SourceError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, pages] = &arguments[..] else { return Err("expected TRACE PAGES".into()) };
    let (path, memory_pages) = (PathBuf::from(path), pages.parse::<u32>()?);
    if memory_pages == 0 {
        return Err("expected at least one page".into());
    }
    let open = || trace::open(&path, OpenOptions::default()).map(TraceSource::new);
    let advance = &mut |_| ControlFlow::Continue(());
    let show = |name: &str, report: BaselineReport| {
        let counts = report.total;
        println!("{name:10} {:12} misses of {}", counts.misses, counts.accesses);
    };

    let random = Random::new(1);
    let mut own = Any { cached: Vec::new(), memory_pages: memory_pages as usize, places: Vec::new(), random };
    show("random", replay_policy(&mut own, 0, &mut open()?, advance)?);
    for baseline in Baseline::ALL {
        show(baseline.name(), replay(baseline, memory_pages.into(), 0, &mut open()?, advance)?);
    }
    Ok(())
}
