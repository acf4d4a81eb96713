//! Random operations beside a model in memory, as fsx does: contents, lengths and names agree after
//! each, and again after the mount is gone.
//!
//! `MGLRU_MOUNT_OPERATIONS` sets how many (default: 4,000), `MGLRU_MOUNT_SEED` which.

use crate::common::{Mounted, mount_again, mounted};
use mglru_workload::random::Random;
use rustix::fs::{FallocateFlags, fallocate};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Longest file: larger than the cache would hold of all of them.
const LEN_MAX: u64 = 300_000;
const NAMES: u64 = 24;

/// The expected files. Contents are by file, because two names may belong to one file.
#[derive(Default)]
struct Model {
    contents: Vec<Vec<u8>>,
    names: BTreeMap<String, usize>,
    /// Open files: as the system has them, and which they are.
    open: Vec<(File, usize)>,
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

impl Model {
    /// A name, perhaps of no file.
    fn any_name(random: &mut Random) -> String {
        format!("name-{}", random.below(NAMES))
    }

    fn a_name(&self, random: &mut Random) -> Option<String> {
        let count = self.names.len() as u64;
        (count > 0).then(|| self.names.keys().nth(random.below(count) as usize).cloned()).flatten()
    }

    fn step(&mut self, mounted: &Mounted, random: &mut Random) {
        let action = random.below(100);
        if action < 70 {
            if self.open.is_empty() {
                return self.open_one(mounted, random);
            }
            let chosen = random.below(self.open.len() as u64) as usize;
            let (file, number) = &self.open[chosen];
            change(file, &mut self.contents[*number], action, random);
            return;
        }
        match action {
            70..78 => self.open_one(mounted, random),
            78..86 if self.open.len() > 2 => {
                let chosen = random.below(self.open.len() as u64) as usize;
                self.open.swap_remove(chosen);
            }
            86..90 => {
                let (Some(from), to) = (self.a_name(random), Self::any_name(random)) else { return };
                fs::rename(mounted.at(&from), mounted.at(&to)).unwrap();
                // Two names of one file both stay.
                if self.names.get(&from) != self.names.get(&to) {
                    let number = self.names.remove(&from).expect("it is a name");
                    self.names.insert(to, number);
                }
            }
            90..93 => {
                let (Some(from), to) = (self.a_name(random), Self::any_name(random)) else { return };
                let linked = fs::hard_link(mounted.at(&from), mounted.at(&to));
                assert_eq!(linked.is_err(), self.names.contains_key(&to));
                if linked.is_ok() {
                    let number = self.names[&from];
                    self.names.insert(to, number);
                }
            }
            93..96 => {
                let Some(name) = self.a_name(random) else { return };
                fs::remove_file(mounted.at(&name)).unwrap();
                self.names.remove(&name);
            }
            _ => {
                let Some(name) = self.a_name(random) else { return };
                let expected = &self.contents[self.names[&name]];
                assert_eq!(fs::metadata(mounted.at(&name)).unwrap().len(), expected.len() as u64);
                assert!(fs::read(mounted.at(&name)).unwrap() == *expected, "{name}");
            }
        }
    }

    fn open_one(&mut self, mounted: &Mounted, random: &mut Random) {
        let name = Self::any_name(random);
        let file = open(&mounted.at(&name));
        let number = *self.names.entry(name).or_insert_with(|| {
            self.contents.push(Vec::new());
            self.contents.len() - 1
        });
        self.open.push((file, number));
    }

    fn check(&self, folder: &Path) {
        let mut found = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let expected = &self.contents[self.names[&name]];
            assert!(fs::read(folder.join(&name)).unwrap() == *expected, "{name}");
            found += 1;
        }
        assert_eq!(found, self.names.len());
    }
}

/// Changes or reads one open file and its model.
fn change(file: &File, content: &mut Vec<u8>, action: u64, random: &mut Random) {
    let start = random.below(LEN_MAX);
    // Mostly short, sometimes many pages.
    let most = if random.below(8) == 0 { 100_000 } else { 6000 };
    let end = (start + 1 + random.below(most)).min(LEN_MAX);
    let range = start as usize..end as usize;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match action {
        0..30 => {
            let mut buffer = vec![0; range.len()];
            let read = file.read_at(&mut buffer, start).unwrap();
            let there = range.start.min(content.len())..range.end.min(content.len());
            assert!(buffer[..read] == content[there], "read of {range:?}");
        }
        30..52 => {
            let bytes = vec![random.below(256) as u8; range.len()];
            file.write_all_at(&bytes, start).unwrap();
            content.resize(content.len().max(range.end), 0);
            content[range].copy_from_slice(&bytes);
        }
        52..57 => {
            file.set_len(start).unwrap();
            content.resize(range.start, 0);
        }
        57..61 => {
            fallocate(file, hole, start, end - start).unwrap();
            let there = range.start.min(content.len())..range.end.min(content.len());
            content[there].fill(0);
        }
        61..63 => {
            fallocate(file, FallocateFlags::empty(), start, end - start).unwrap();
            content.resize(content.len().max(range.end), 0);
        }
        63..65 => {
            fallocate(file, FallocateFlags::ZERO_RANGE, start, end - start).unwrap();
            content.resize(content.len().max(range.end), 0);
            content[range].fill(0);
        }
        65..67 => file.sync_data().unwrap(),
        _ => assert_eq!(file.metadata().unwrap().len(), content.len() as u64),
    }
}

#[test]
fn random_operations_agree_with_a_model() {
    let Some(mut mounted) = mounted() else { return };
    let (operations, seed) = (setting("MGLRU_MOUNT_OPERATIONS", 4000), setting("MGLRU_MOUNT_SEED", 1));
    let mut random = Random::new(seed);
    let mut model = Model::default();
    for number in 0..operations {
        model.step(&mounted, &mut random);
        // Contents of removed files would fill the memory of a long run.
        if number % 2000 == 1999 {
            model.open.clear();
            model.check(&mounted.at(""));
            let directory = mounted.finish();
            model.check(directory.path());
            let names = std::mem::take(&mut model.names);
            let mut kept = Model::default();
            let mut moved = BTreeMap::new();
            for (name, number) in names {
                let number = *moved.entry(number).or_insert_with(|| {
                    kept.contents.push(std::mem::take(&mut model.contents[number]));
                    kept.contents.len() - 1
                });
                kept.names.insert(name, number);
            }
            model = kept;
            mounted = mount_again(directory).expect("it could be mounted before");
        }
    }
    model.check(&mounted.at(""));
}
