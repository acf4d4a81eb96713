//! Jobs in fio's language, from files and from command lines: parsed, and the first accesses drawn.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mglru_fuzz::said;
use mglru_workload::fio::{Invocation, Job, jobs_of_text};
use std::path::Path;

fn draw(jobs: &[Job]) {
    for job in jobs.iter().take(20) {
        for file in 0..job.files.len().min(3) {
            for existing in [None, Some(0), Some(1 << 20), Some(u64::MAX)] {
                let size = match job.size_bytes(file, existing) {
                    Ok(size) => size,
                    Err(error) => {
                        said(&error);
                        continue;
                    }
                };
                let pattern = job.pattern(file, size);
                job.limit_bytes();
                // A table of zipf may be as large as the file.
                if size > 1 << 26 {
                    continue;
                }
                for access in pattern.accesses().expect("the size holds a block").take(200) {
                    assert!(access.offset + u64::from(access.bytes) <= size, "{access:?} in {size}: {job:?}");
                }
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    if first % 2 == 0 {
        if text.contains("include") {
            return;
        }
        match jobs_of_text(&text, Path::new("a.fio"), 1) {
            Ok(jobs) => draw(&jobs),
            Err(error) => said(&error),
        }
        return;
    }
    let arguments: Vec<String> = text
        .lines()
        .map(|line| if line.starts_with('-') { line.to_owned() } else { format!("-{line}") })
        .collect();
    match Invocation::parse(&arguments) {
        Ok(invocation) => draw(&invocation.jobs),
        Err(error) => said(&error),
    }
});
