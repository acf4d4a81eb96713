//! A crash at a random point loses nothing that a sync confirmed: overwritten and appended records,
//! lengths after truncations, and files that replace others by a rename.
//!
//! ```text
//! Script   random operations by seed, and what a file may contain after a crash
//! power    a disk in memory that keeps any version of each unsynced sector of 512 bytes
//! kill     a process on real files, ended by signal 9
//! ```
//!
//! After a crash each byte must be one that the file had there since its last confirmed sync, and
//! the length must lie between the least and the greatest since then. The next life begins with the
//! state that the check found.
//!
//! `MGLRU_CRASH=N` sets the number of crashes of each kind (`make crash`: 1000). Each failure names
//! the seed; `MGLRU_CRASH_SEED=N` runs that one.

use crate::common::{Disk, PAGE, Random, memory, mix};
use mglru_cache::{CachedFile, Error, OpenMode, PageCache};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

const FILES: usize = 3;
/// Three such files are larger than the cache.
const FILE_BYTES_MAX: u64 = 1 << 20;
const BUDGET_BYTES: u64 = 2 << 20;
/// Lives of one disk, each ended by a crash.
const LIVES: u64 = 4;

/// The possible contents of a file: a confirmed state, and the changes since.
#[derive(Default)]
struct History {
    confirmed: Vec<u8>,
    changes: Vec<Change>,
    /// The state after all changes.
    current: Vec<u8>,
}

enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Truncate { len: usize },
}

impl Change {
    fn apply(&self, state: &mut Vec<u8>) {
        match self {
            Change::Write { at, bytes } => {
                let end = at + bytes.len();
                if end > state.len() {
                    state.resize(end, 0);
                }
                state[*at..end].copy_from_slice(bytes);
            }
            Change::Truncate { len } => state.resize(*len, 0),
        }
    }
}

impl History {
    fn new(state: Vec<u8>) -> History {
        History { confirmed: state.clone(), changes: Vec::new(), current: state }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.changes.push(change);
    }

    fn confirm(&mut self) {
        self.changes.clear();
        self.confirmed.clone_from(&self.current);
    }

    /// Checks what is found after a crash.
    fn check(&self, found: &[u8]) -> Result<(), String> {
        let mut state = self.confirmed.clone();
        let byte = |state: &[u8], at: usize| state.get(at).copied().unwrap_or(0);
        let mut fits: Vec<bool> = (0..found.len()).map(|at| found[at] == byte(&state, at)).collect();
        let (mut least, mut greatest) = (state.len(), state.len());
        for change in &self.changes {
            let from = match change {
                Change::Write { at, .. } => (*at).min(state.len()),
                Change::Truncate { len } => (*len).min(state.len()),
            };
            let to = match change {
                Change::Write { at, bytes } => (at + bytes.len()).min(found.len()),
                Change::Truncate { .. } => found.len(),
            };
            change.apply(&mut state);
            (from..to).for_each(|at| fits[at] |= found[at] == byte(&state, at));
            (least, greatest) = (least.min(state.len()), greatest.max(state.len()));
        }
        if !(least..=greatest).contains(&found.len()) {
            return Err(format!("it has {} bytes, expected {least} to {greatest}", found.len()));
        }
        match fits.iter().position(|fits| !fits) {
            None => Ok(()),
            Some(at) => Err(format!(
                "byte {at} of {} (page {}, sector {}) is {:#x}: none of its {} versions since the last sync, which \
                 had {:#x}",
                found.len(),
                at / PAGE,
                at % PAGE / 512,
                found[at],
                self.changes.len() + 1,
                byte(&self.confirmed, at),
            )),
        }
    }
}

enum Operation {
    Write {
        file: usize,
        at: u64,
        bytes: Vec<u8>,
    },
    Truncate {
        file: usize,
        len: u64,
    },
    Sync {
        file: usize,
    },
    /// Write a new file, sync it, and give it the name of the old one.
    Replace {
        number: u64,
    },
}

/// Random operations, and their effects.
struct Script {
    random: Random,
    files: Vec<History>,
    /// The replacement that is certainly there, and later ones that may be.
    replaced: (u64, Vec<u64>),
    life: u64,
    steps: u64,
}

fn noise(seed: u64, bytes: u64) -> Vec<u8> {
    let words = (0..bytes.div_ceil(8)).flat_map(|word| mix(mix(seed) ^ word).to_le_bytes());
    words.take(bytes as usize).collect()
}

/// The content of a replacement: its number, and noise.
fn replacement(number: u64) -> Vec<u8> {
    [&number.to_le_bytes()[..], &noise(number, mix(number) % 20_000)].concat()
}

impl Script {
    fn new(life: u64, files: Vec<Vec<u8>>, replaced: &[u8]) -> Script {
        let number = u64::from_le_bytes(replaced[..8].try_into().unwrap());
        Script {
            random: Random(mix(life)),
            files: files.into_iter().map(History::new).collect(),
            replaced: (number, Vec::new()),
            life,
            steps: 0,
        }
    }

    /// The next operation. Its effect is possible from now on.
    fn next(&mut self) -> Operation {
        self.steps += 1;
        let random = &mut self.random;
        let file = random.below(FILES as u64) as usize;
        let len = self.files[file].current.len() as u64;
        let kind = random.below(100);
        if kind < 6 {
            return Operation::Sync { file };
        }
        if kind < 8 {
            let number = self.life << 32 | self.steps;
            self.replaced.1.push(number);
            return Operation::Replace { number };
        }
        if kind < 12 || len > FILE_BYTES_MAX {
            // Shorter in most cases, sometimes longer.
            let len = random.below(len + 1).max(random.below(len + 1)) + random.below(5) / 4 * 5000;
            self.files[file].change(Change::Truncate { len: len as usize });
            return Operation::Truncate { file, len };
        }
        let at = if random.below(2) == 0 { len } else { random.below(len + 1) };
        let most = 1 << random.below(16);
        let bytes = noise(self.life << 32 | self.steps, 1 + random.below(most));
        self.files[file].change(Change::Write { at: at as usize, bytes: bytes.clone() });
        Operation::Write { file, at, bytes }
    }

    /// Notes that an operation was confirmed.
    fn confirm(&mut self, operation: &Operation) {
        match operation {
            Operation::Sync { file } => self.files[*file].confirm(),
            Operation::Replace { number } => self.replaced = (*number, Vec::new()),
            Operation::Write { .. } | Operation::Truncate { .. } => {}
        }
    }

    /// Checks what is on the disk after a crash.
    fn check(&self, files: &[Vec<u8>], replaced: &[u8]) -> Result<(), String> {
        for (number, (history, found)) in self.files.iter().zip(files).enumerate() {
            history.check(found).map_err(|what| format!("file {number}: {what}"))?;
        }
        let number = replaced.get(..8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let (certain, possible) = &self.replaced;
        match number {
            Some(number) if replaced != replacement(number) => {
                Err(format!("replacement {number:#x} is not whole"))
            }
            Some(number) if number == *certain || possible.contains(&number) => Ok(()),
            number => Err(format!("replacement {number:x?}, expected {certain:#x} or one of {possible:x?}")),
        }
    }
}

/// Carries out an operation. Returns whether it is confirmed.
fn perform(
    operation: &Operation,
    cache: &PageCache,
    handles: &[CachedFile],
    new: &std::path::Path,
    rename: &dyn Fn() -> bool,
) -> Result<bool, Error> {
    match operation {
        Operation::Write { file, at, bytes } => handles[*file].write_at(bytes, *at).map(|_| false),
        Operation::Truncate { file, len } => handles[*file].truncate(*len).map(|()| false),
        Operation::Sync { file } => handles[*file].sync_data().map(|()| true),
        Operation::Replace { number } => {
            let file = cache.open(new, OpenMode::Create)?;
            file.truncate(0)?;
            file.write_at(&replacement(*number), 0)?;
            file.sync_all()?;
            Ok(rename())
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// The seeds of this run.
fn seeds(default: u64) -> std::ops::Range<u64> {
    match number("MGLRU_CRASH_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("MGLRU_CRASH").unwrap_or(default),
    }
}

fn fails(test: &str, seed: u64, what: &str) -> ! {
    panic!(
        "{what}\nrepeat it: MGLRU_CRASH_SEED={seed} cargo test -p mglru-cache --test suite -- crash::{test}"
    )
}

/// Cuts the power at an operation of the disk that the seed chooses. Returns how many operations
/// were confirmed.
fn power_fails(seed: u64) -> u64 {
    let mut confirmed = 0;
    let (disk, files) = memory(seed);
    files.tear_sectors();
    let name = |number: usize| number.to_string();
    (0..FILES).for_each(|number| disk.set(&name(number), &[]));
    disk.set("whole", &replacement(0));
    let mut random = Random(seed);
    for life in 0..LIVES {
        let on_disk = || (0..FILES).map(|number| disk.contents(&name(number))).collect::<Vec<_>>();
        let mut script = Script::new(seed << 8 | life, on_disk(), &disk.contents("whole"));
        let cache = disk.builder(BUDGET_BYTES).build().unwrap();
        let open = |number| cache.open(name(number), OpenMode::ReadWrite).unwrap();
        let handles: Vec<CachedFile> = (0..FILES).map(open).collect();
        let most = 1 << random.below(11);
        files.cut_power_after(random.below(most));
        let rename = || {
            files.rename("new", "whole");
            seed.is_multiple_of(2) && files.sync_names()
        };
        loop {
            let operation = script.next();
            match perform(&operation, &cache, &handles, "new".as_ref(), &rename) {
                Ok(true) => {
                    script.confirm(&operation);
                    confirmed += 1;
                }
                Ok(false) => {}
                Err(_) => break,
            }
        }
        drop(handles);
        drop(cache);
        files.restore_power();
        if let Err(what) = script.check(&on_disk(), &disk.contents("whole")) {
            fails("power", seed, &format!("life {life}, after {} operations: {what}", script.steps));
        }
        files.remove("new");
    }
    confirmed
}

#[test]
fn power() {
    let seeds = seeds(20);
    let (crashes, confirmed) = (LIVES * seeds.clone().count() as u64, seeds.map(power_fails).sum::<u64>());
    assert!(confirmed > crashes || crashes < 20, "{crashes} crashes after {confirmed} confirmed operations");
}

/// Without a sync, the disk does lose sectors and lengths: the test above is not empty.
#[test]
fn unsynced_sectors_are_torn() {
    let (disk, files) = memory(5);
    files.tear_sectors();
    disk.set("f", &[1; 64 * PAGE]);
    let cache = disk.builder(BUDGET_BYTES).build().unwrap();
    let file = cache.open("f", OpenMode::ReadWrite).unwrap();
    file.write_at(&[2; 64 * PAGE], 0).unwrap();
    file.sync_data().unwrap();
    drop(file);
    disk.set("g", &[3; PAGE]);
    let file = cache.open("g", OpenMode::ReadWrite).unwrap();
    file.write_at(&[4; PAGE], 0).unwrap();
    drop((file, cache));
    files.cut_power();
    files.restore_power();
    assert_eq!(disk.contents("f"), [2; 64 * PAGE], "it was synced");
    let sectors = disk.contents("g");
    let sectors: Vec<u8> = sectors.chunks(512).map(|sector| sector[0]).collect();
    assert!(sectors.contains(&3) && sectors.contains(&4), "{sectors:?}");
}

const CHILD: &str = "MGLRU_CRASH_CHILD";

/// Not a test by itself, but the killed process.
#[test]
fn child_that_is_killed() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let (life, directory) = arguments.split_once(' ').unwrap();
    let life: u64 = life.parse().unwrap();
    let directory = std::path::Path::new(directory);
    let path = |number: usize| directory.join(number.to_string());
    let read = |path: &std::path::Path| std::fs::read(path).unwrap();
    let files = (0..FILES).map(|number| read(&path(number))).collect();
    let mut script = Script::new(life, files, &read(&directory.join("whole")));
    let disk = if (life >> 8).is_multiple_of(2) { Disk::uring() } else { Disk::threads() };
    let cache = disk.builder(BUDGET_BYTES).build().unwrap();
    let open = |number| cache.open(path(number), OpenMode::ReadWrite).unwrap();
    let handles: Vec<CachedFile> = (0..FILES).map(open).collect();
    let rename = || std::fs::rename(directory.join("new"), directory.join("whole")).is_ok();
    let report = |word: &str| {
        println!("\nscript {word}");
        std::io::stdout().flush().unwrap();
    };
    loop {
        let operation = script.next();
        report("begun");
        if perform(&operation, &cache, &handles, &directory.join("new"), &rename).unwrap() {
            report("confirmed");
            script.confirm(&operation);
        }
    }
}

#[test]
fn kill() {
    for seed in seeds(4) {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        (0..FILES).for_each(|number| std::fs::write(path(&number.to_string()), []).unwrap());
        std::fs::write(path("whole"), replacement(0)).unwrap();
        let on_disk = || {
            let files = (0..FILES).map(|number| std::fs::read(path(&number.to_string())).unwrap());
            (files.collect::<Vec<_>>(), std::fs::read(path("whole")).unwrap())
        };
        let life = seed << 8;
        let (files, whole) = on_disk();
        let mut script = Script::new(life, files, &whole);
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::child_that_is_killed", "--nocapture"])
            .env(CHILD, format!("{life} {}", directory.path().display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (kill_at, mut rings_before, mut operation) = (1 + Random(seed).below(400), 0, None);
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            match line.unwrap().as_str() {
                "script begun" => operation = Some(script.next()),
                "script confirmed" => script.confirm(operation.as_ref().unwrap()),
                _ => continue,
            }
            rings_before += 1;
            if rings_before == kill_at {
                child.kill().unwrap();
            }
        }
        assert!(
            !child.wait().unwrap().success() && rings_before >= kill_at,
            "seed {seed}: it ended by itself"
        );
        let (files, whole) = on_disk();
        if let Err(what) = script.check(&files, &whole) {
            fails("kill", seed, &format!("after {} operations: {what}", script.steps));
        }
    }
}
