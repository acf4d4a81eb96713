//! Tables of the kernel lab that `mglru fidelity` reads: any bytes as a file, whose loads are begun
//! and cancelled.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mglru_fuzz::{Moment, said};
use mglru_lab::Error;
use mglru_lab::fidelity::{Filter, Table, TableKind, Variant, memcg_reclaim, oom, stores, subjects};
use std::path::PathBuf;

/// Questions of a load whether it is cancelled.
const QUESTIONS: u64 = 3;
/// Most digits of a number in a table of stores whose loads are begun: a million records or bytes.
const DIGITS_MAX: usize = 6;

/// Whether stores of the table fit into a fuzzer's memory and time.
fn is_small(table: &[u8]) -> bool {
    table.split(|byte| !byte.is_ascii_digit()).all(|digits| digits.len() <= DIGITS_MAX)
}

fn ended<T>(result: Result<T, Error>) {
    match result {
        Ok(_) | Err(Error::Cancelled) => {}
        Err(error) => said(&error),
    }
}

fuzz_target!(|data: &[u8]| {
    let path = PathBuf::from(format!("/dev/shm/mglru-fuzz-{}.csv", std::process::id()));
    std::fs::write(&path, data).expect("a file in memory");
    let filter = Filter::default();
    match TableKind::of(&path) {
        Ok(TableKind::Counts) => match Table::read(&path, &filter) {
            Ok(table) => {
                assert!(!table.runs.is_empty() || !table.skipped.is_empty());
                for run in &table.runs {
                    let _ = (
                        run.setting.writes(),
                        run.swap(),
                        run.swappiness(),
                        run.access_time(),
                        run.read_time(),
                    );
                    let _ = (
                        run.read_latency(),
                        run.is_predicted(),
                        run.setting.is_loose(),
                        run.setting.conditions(),
                    );
                    assert!(!Variant::of(run).is_empty());
                }
                subjects(&table.runs);
            }
            Err(error) => said(&error),
        },
        Ok(TableKind::MemcgReclaim) => ended(memcg_reclaim::compare(&path, &filter, &Moment::new(QUESTIONS))),
        Ok(TableKind::Oom) => ended(oom::compare(&[&path], &filter, &Moment::new(QUESTIONS))),
        Ok(TableKind::Stores) if is_small(data) => {
            ended(stores::compare(&path, &filter, &Moment::new(QUESTIONS)));
        }
        Ok(TableKind::Stores) => {}
        Err(error) => said(&error),
    }
    std::fs::remove_file(&path).expect("it was just written");
});
