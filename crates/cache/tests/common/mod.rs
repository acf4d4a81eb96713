//! Helpers of the tests: seeded random numbers, files on any backend, and pages with unique
//! content.

#![allow(dead_code, reason = "each test file uses its part")]

use mglru_cache::backend::MemoryFiles;
use mglru_cache::{BackendKind, Builder, CachedFile, PageCache};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

pub const PAGE: usize = 4096;

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

pub fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The content of a page, different from all others in every word.
pub fn page(number: u64) -> Vec<u8> {
    (0..512u64).flat_map(|word| mix(number << 16 | word).to_le_bytes()).collect()
}

pub fn pages(numbers: std::ops::Range<u64>) -> Vec<u8> {
    numbers.flat_map(page).collect()
}

/// The storage of a test's files.
pub enum Disk {
    Real(tempfile::TempDir, BackendKind),
    Memory(Arc<MemoryFiles>),
}

impl Disk {
    /// One of each kind of backend.
    pub fn each(seed: u64) -> [Disk; 3] {
        [Disk::uring(), Disk::threads(), Disk::Memory(MemoryFiles::new(seed))]
    }

    /// io_uring if the system permits it.
    pub fn uring() -> Disk {
        Disk::Real(tempfile::tempdir().unwrap(), BackendKind::Auto)
    }

    pub fn threads() -> Disk {
        Disk::Real(tempfile::tempdir().unwrap(), BackendKind::Threads)
    }

    pub fn builder(&self, budget_bytes: u64) -> Builder {
        let kind = match self {
            Disk::Real(_, kind) => kind.clone(),
            Disk::Memory(files) => BackendKind::Memory(files.clone()),
        };
        PageCache::builder(budget_bytes).backend(kind)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        match self {
            Disk::Real(directory, _) => directory.path().join(name),
            Disk::Memory(_) => PathBuf::from(name),
        }
    }

    /// Sets a file's content, like another process would.
    pub fn set(&self, name: &str, contents: &[u8]) {
        match self {
            Disk::Real(..) => fs::write(self.path(name), contents).unwrap(),
            Disk::Memory(files) => files.set_contents(name, contents),
        }
    }

    pub fn contents(&self, name: &str) -> Vec<u8> {
        match self {
            Disk::Real(..) => fs::read(self.path(name)).unwrap(),
            Disk::Memory(files) => files.contents(name).unwrap(),
        }
    }

    pub fn remove(&self, name: &str) {
        match self {
            Disk::Real(..) => fs::remove_file(self.path(name)).unwrap(),
            Disk::Memory(files) => assert!(files.remove(name)),
        }
    }

    /// Extends or truncates a file, like another process would.
    pub fn resize(&self, name: &str, bytes: usize) {
        match self {
            Disk::Real(..) => {
                fs::File::options().write(true).open(self.path(name)).unwrap().set_len(bytes as u64).unwrap()
            }
            Disk::Memory(_) => {
                let mut contents = self.contents(name);
                contents.resize(bytes, 0);
                self.set(name, &contents);
            }
        }
    }

    /// Appends to a file, like another process would.
    pub fn append(&self, name: &str, bytes: &[u8]) {
        match self {
            Disk::Real(..) => {
                use std::io::Write;
                fs::File::options().append(true).open(self.path(name)).unwrap().write_all(bytes).unwrap()
            }
            Disk::Memory(_) => self.set(name, &[&self.contents(name), bytes].concat()),
        }
    }
}

pub fn memory(seed: u64) -> (Disk, Arc<MemoryFiles>) {
    let files = MemoryFiles::new(seed);
    (Disk::Memory(files.clone()), files)
}

/// Reads the whole range, which must exist.
pub fn read(file: &CachedFile, offset: usize, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0xaa; bytes];
    assert_eq!(file.read_at(&mut buffer, offset as u64).unwrap(), bytes, "{bytes} bytes at {offset}");
    buffer
}

/// A counter of a tenant.
pub fn counter(cache: &PageCache, tenant: &str, name: &str) -> u64 {
    cache.tenant(tenant).unwrap().stats().counter(name).unwrap()
}

/// The operating system's number of an error.
pub fn number<T: std::fmt::Debug>(result: Result<T, mglru_cache::Error>) -> i32 {
    let error = result.unwrap_err();
    error.io_error().unwrap_or_else(|| panic!("{error:?}")).raw_os_error().unwrap()
}

/// Asserts that two contents are equal, and reports only the first difference.
#[track_caller]
pub fn assert_same(got: &[u8], expected: &[u8], what: impl std::fmt::Display) {
    if let Some(at) = got.iter().zip(expected).position(|(a, b)| a != b) {
        panic!(
            "{what}: byte {at} of {} (page {}, {} in it) is {:#x}, expected {:#x}",
            expected.len(),
            at / PAGE,
            at % PAGE,
            got[at],
            expected[at]
        );
    }
    assert_eq!(got.len(), expected.len(), "{what}: length");
}

/// Says where a test was, if it panics there.
pub struct Context(pub String);

impl Drop for Context {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}
