//! A recording of a mount, replayed as the mount prints, has the mount's counts.

use crate::common::{document, skewed};
use crate::mount::{mounted_with, signal};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Pages of the file: three times as many as fit into memory.
const PAGES: u64 = 3000;

/// Skewed requests for one or two pages, some of which follow each other, and a tenth of writes.
fn load(point: &Path) {
    let file = File::options().read(true).write(true).open(point.join("f")).unwrap();
    let mut buffer = [7; 8192];
    for (number, page) in skewed(15_000, PAGES - 1).enumerate() {
        let (offset, bytes) = (page * 4096, if number % 3 == 0 { 8192 } else { 4096 });
        if number % 10 == 9 {
            file.write_all_at(&buffer[..4096], offset).unwrap();
        } else {
            file.read_exact_at(&mut buffer[..bytes], offset).unwrap();
        }
        if number % 50 == 0 {
            let mut run = vec![0; 4096];
            (0..20.min(PAGES - page))
                .for_each(|at| file.read_exact_at(&mut run, offset + at * 4096).unwrap());
        }
    }
}

/// Checks hits, misses, refaults and reclaimed pages of a mount with these options.
fn compare(options: &str) {
    let here = tempfile::tempdir().unwrap();
    let Some((mut child, mut stderr)) = mounted_with(here.path(), &format!("--record trace.zst {options}"))
    else {
        return;
    };
    fs::write(here.path().join("dir/f"), vec![1; PAGES as usize * 4096]).unwrap();
    load(&here.path().join("point"));
    let state = fs::read(here.path().join("point/.mglru/mglru.state")).unwrap();
    let state: Value = serde_json::from_slice(&state).unwrap();
    signal(&child, Signal::TERM);
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    let command = said.split("as it was mounted: `mglru ").nth(1).and_then(|rest| rest.split('`').next());
    let replayed = &document(here.path(), command.expect("the mount says it"))["runs"][0];
    let counters = &replayed["warm"]["counters"];
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{state} {replayed}"));
    let mounted = |name: &str| number(&state["tenants"][0][name]);
    let (hits, misses) = (mounted("hits"), mounted("misses"));
    let again = number(&replayed["misses"]);
    assert_eq!(hits + misses, number(&replayed["accesses"]), "{options}");
    // Which pages are read ahead depends on how fast earlier reads end, and more of them are read
    // than asked for: refaults and reclaimed pages differ by up to 5 % between runs of a mount.
    for (what, mounted, replayed, most) in [
        ("hits", hits, number(&replayed["accesses"]) - again, 0.05),
        ("misses", misses, again, 0.05),
        ("refaults", mounted("refaults"), number(&counters["workingset_refault_file"]), 0.1),
        ("reclaimed", mounted("reclaimed"), number(&counters["pgsteal"]), 0.1),
    ] {
        eprintln!("{options}: {what} {mounted}, replayed {replayed}");
        let difference = mounted.abs_diff(replayed) as f64 / mounted as f64;
        assert!(difference < most, "{options}: {what}: {mounted}, replayed {replayed}");
    }
}

#[test]
fn a_replay_of_a_kernels_rules_has_the_counts_of_the_mount() {
    compare("--preset linux-7.1");
}

#[test]
fn a_replay_of_the_default_has_the_counts_of_the_mount() {
    compare("");
}
