//! A mount of a temporary directory.

use mglru_cache::PageCache;
use mglru_mount::{Address, Error, Member, Mount, Options, RecordOptions, Summary, Unmounted, Unmounter};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Says that a test skips, once for each reason. Written past the test harness, which hides what
/// passing tests print.
pub fn skipped(reason: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap().insert(reason.to_owned()) {
        io::stderr().write_all(format!("skipped: {reason}\n").as_bytes()).unwrap();
    }
}

/// Memory of a cache that is smaller than most tests' files.
pub const MEMORY: u64 = 4 << 20;

/// A directory, mounted until this is dropped.
pub struct Mounted {
    directory: TempDir,
    point: TempDir,
    listening: Vec<Address>,
    unmounter: Unmounter,
    served: Option<JoinHandle<Result<Summary, Error>>>,
}

/// Settings of a test beyond an empty directory.
#[derive(Default)]
pub struct Setup {
    /// The cache's memory; [`MEMORY`] if `None`.
    pub memory: Option<u64>,
    pub record: Option<RecordOptions>,
    pub tenants: Vec<(&'static str, u64)>,
    pub members: Vec<Member>,
    pub threads: Option<usize>,
    pub descriptors: Option<u64>,
    pub listen: Vec<Address>,
}

/// A new empty directory, mounted; `None` where that is forbidden.
pub fn mounted() -> Option<Mounted> {
    mounted_with(Setup::default())
}

/// As [`mounted`], with more.
pub fn mounted_with(setup: Setup) -> Option<Mounted> {
    start(tempfile::tempdir().unwrap(), setup)
}

/// Mounts a directory.
pub fn mount_again(directory: TempDir) -> Option<Mounted> {
    start(directory, Setup::default())
}

/// Mounts a directory, with more.
pub fn mounted_in(directory: TempDir, setup: Setup) -> Option<Mounted> {
    start(directory, setup)
}

/// Mounts without serving.
pub fn try_mount(directory: &Path, point: &Path, setup: Setup) -> Result<Mount, Error> {
    let builder = PageCache::builder(setup.memory.unwrap_or(MEMORY));
    let builder = setup.tenants.iter().fold(builder, |builder, (path, max)| builder.tenant(path, *max));
    let Setup { record, members, listen, descriptors, .. } = setup;
    let threads = setup.threads.unwrap_or(Options::default().threads);
    let options = Options { record, members, threads, listen, descriptors, ..Options::default() };
    Mount::new(directory, point, builder.build().unwrap(), options)
}

fn start(directory: TempDir, setup: Setup) -> Option<Mounted> {
    let point = tempfile::tempdir().unwrap();
    let mut mount = match try_mount(directory.path(), point.path(), setup) {
        Ok(mount) => mount,
        Err(reason) => {
            // Each test has a mount point of its own.
            let reason = reason.to_string();
            skipped(&reason.replace(&point.path().display().to_string(), "a new folder"));
            return None;
        }
    };
    let unmounter = mount.unmounter();
    let listening = mount.listening().cloned().collect();
    let served = Some(std::thread::spawn(|| mount.serve()));
    Some(Mounted { directory, point, listening, unmounter, served })
}

impl Mounted {
    /// A path below the mount point.
    pub fn at(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }

    /// The mounted directory itself.
    pub fn below(&self) -> &Path {
        self.directory.path()
    }

    /// Where the state is served.
    pub fn listening(&self) -> &[Address] {
        &self.listening
    }

    /// A counter of the root's `memory.stat`, in its unit.
    pub fn counter(&self, name: &str) -> u64 {
        let stat = std::fs::read_to_string(self.at(".mglru/memory.stat")).unwrap();
        let of_name = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(' ')?.parse().unwrap());
        stat.lines().find_map(of_name).expect("a counter's name")
    }

    /// Frees the mount point.
    pub fn unmount(&self) -> Unmounted {
        self.unmounter.unmount().unwrap()
    }

    /// Unmounts, and returns the directory when everything is written.
    pub fn finish(self) -> TempDir {
        self.finish_with_summary().0
    }

    /// As [`Self::finish`], with what was served.
    pub fn finish_with_summary(self) -> (TempDir, Summary) {
        let (directory, ended) = self.finish_with_result();
        (directory, ended.unwrap())
    }

    /// As [`Self::finish_with_summary`], or with the reason why data is lost.
    pub fn finish_with_result(mut self) -> (TempDir, Result<Summary, Error>) {
        self.unmounter.unmount().unwrap();
        let ended = self.served.take().expect("it is taken once").join().unwrap();
        (std::mem::replace(&mut self.directory, tempfile::tempdir().unwrap()), ended)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // After a failed test: the folders below cannot be removed while the mount is there.
        if let Some(served) = self.served.take() {
            let _ = self.unmounter.unmount();
            let _ = served.join();
        }
    }
}

/// Waits until a number of bytes is small. Only a thread that is never run would take so long.
pub fn wait_for_at_most(most: u64, bytes: impl Fn() -> u64) {
    let end = Instant::now() + Duration::from_secs(30);
    while bytes() > most {
        assert!(Instant::now() < end, "{} bytes, and not {most}", bytes());
        std::thread::yield_now();
    }
}
