//! Scenarios and grids of sweeps: any text, checked as far as without running it; a scenario of a
//! small machine also runs for a moment in the simulator.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mglru_fuzz::{Moment, said};
use mglru_lab::run::{Overrides, Plan, World, run_watched};
use mglru_lab::{Error, sweep::Sweep};
use mglru_workload::scenario::{Scenario, Work};
use std::path::Path;

/// Most memory of a machine that runs.
const MEMORY_BYTES_MAX: u64 = 32 << 20;
/// Steps of the simulator.
const STEPS: u64 = 300;

fn is_small(scenario: &Scenario) -> bool {
    let is_small = |work: &Work| match work {
        Work::Fio(jobs) => {
            jobs.len() <= 20
                && jobs.iter().all(|job| {
                    let sizes = (0..job.files.len()).map(|file| job.size_bytes(file, None));
                    // A table of zipf may be as large as the file.
                    job.files.len() <= 20 && sizes.flatten().all(|size| size <= MEMORY_BYTES_MAX)
                })
        }
        Work::Load { load, clients, .. } => load.memory_bytes() <= MEMORY_BYTES_MAX && *clients <= 100,
        // A trace is a file, which another target has.
        Work::Trace { .. } => false,
    };
    let machine = &scenario.machine;
    machine.memory_bytes <= MEMORY_BYTES_MAX
        && machine.swap.is_none_or(|swap| swap.bytes <= MEMORY_BYTES_MAX)
        && scenario.jobs.len() <= 20
        && scenario.jobs.iter().all(|job| is_small(&job.work))
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    match Sweep::parse(&text, Path::new("a.toml")) {
        Ok(sweep) => assert!(sweep.units() > 0 && !sweep.traces().is_empty()),
        Err(error) => said(&error),
    }
    // Job files of fio may name another file.
    if text.contains("include") {
        return;
    }
    let scenario = match Scenario::parse(&text, Path::new("a.toml"), None) {
        Ok(scenario) => scenario,
        Err(error) => return said(&error),
    };
    for world in [World::Real, World::Sim] {
        match Plan::new(scenario.clone(), world, &Overrides::default()) {
            Ok(plan) if world == World::Sim && is_small(&plan.scenario) => {
                match run_watched(&plan, None, &Moment::new(STEPS)) {
                    Ok(_) | Err(Error::Cancelled) => {}
                    Err(error) => {
                        said(&error);
                        assert!(!error.to_string().contains("bug"), "{error}");
                    }
                }
            }
            Ok(_) => {}
            Err(error) => said(&error),
        }
    }
});
