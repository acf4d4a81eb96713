//! The built-in loads on a real cache, with verified contents.
//!
//! `mglru_workload` defines the accesses of a load and the expected contents of each page. This
//! module reads, checks, changes and writes the pages: [`tables`] for the database, [`arrays`] for
//! the sweep, [`documents`] for the document store.

mod arrays;
pub mod documents;
mod tables;

use crate::{Error, Watch};
use arrays::Arrays;
use documents::Documents;
use mglru_cache::Tenant;
use mglru_workload::Load;
use mglru_workload::trace::PageAccess;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tables::Tables;

/// Bytes of a page, of files as of anonymous memory.
const PAGE: usize = mglru_core::PAGE_BYTES as usize;

/// A performed touch and its duration.
#[derive(Debug, Clone, Copy)]
pub struct Performed {
    /// The touched page. A combined read and change counts as a write.
    pub access: PageAccess,
    /// Duration of the call or calls.
    pub time: Duration,
}

/// A load and its environment.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// The load.
    pub load: Load,
    /// Number of concurrent clients.
    pub clients: u32,
    /// Seed of all random choices.
    pub seed: u64,
    /// The tenant to charge.
    pub tenant: &'a Tenant,
    /// Directory of its files.
    pub directory: &'a Path,
    /// Prefix of its file names.
    pub name: &'a str,
    /// Whether a database maps its files.
    pub mapped: bool,
}

/// A load that runs on a cache with several concurrent clients.
pub struct RealLoad {
    contents: Contents,
    /// Whether a step failed, perhaps partway.
    failed: AtomicBool,
}

enum Contents {
    /// A database on files.
    Tables(Box<Tables>),
    /// Anonymous memory.
    Arrays(Arrays),
    /// Records in a store.
    Documents(Box<Documents>),
}

/// Result of verifying a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    /// Number of correct pages; for a store, of correct records.
    pub pages: u64,
}

/// Reason why a load cannot continue.
#[derive(Debug)]
pub enum LoadError {
    /// A page could not be allocated or written.
    Cache(mglru_cache::Error),
    /// A file could not be read past the cache, or the store on it failed.
    Device(String),
    /// A page has unexpected contents, or pages contradict each other.
    Contents(String),
}

impl LoadError {
    fn contents(reason: impl fmt::Display) -> LoadError {
        LoadError::Contents(reason.to_string())
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Cache(error) => error.fmt(f),
            LoadError::Device(text) | LoadError::Contents(text) => text.fmt(f),
        }
    }
}

impl From<mglru_cache::Error> for LoadError {
    fn from(error: mglru_cache::Error) -> LoadError {
        LoadError::Cache(error)
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Error {
        Error::work(error)
    }
}

impl RealLoad {
    /// Checks that the load has contents, so that it can run on a cache.
    ///
    /// # Errors
    /// If it has none.
    pub fn check(load: &Load) -> Result<(), Error> {
        match load.has_contents() {
            true => Ok(()),
            false => Err(Error::usage(format_args!(
                "{} has no contents to run on files; run it in the simulator (--world sim)",
                load.name()
            ))),
        }
    }

    /// Sets a load up. Files of a database or store are created anew.
    ///
    /// # Errors
    /// If files or memory cannot be allocated, or the load has no room for this number of clients.
    pub fn new(setup: &Setup, watch: &dyn Watch) -> Result<RealLoad, Error> {
        let &Setup { load, clients, seed, tenant, directory, name, .. } = setup;
        RealLoad::check(&load)?;
        // Errors of the load come before files are created.
        let running = load.start(clients, seed).map_err(Error::usage)?;
        let contents = match (load, running) {
            (Load::Tpcc { cache_pages, .. }, mglru_workload::load::Running::Tpcc(tpcc)) => {
                let tables = Tables::new(*tpcc, cache_pages, setup, watch)?;
                Contents::Tables(Box::new(tables))
            }
            (Load::Sweep { arrays, array_pages }, mglru_workload::load::Running::Sweep(threads)) => {
                Contents::Arrays(Arrays::new(arrays, array_pages, threads, seed, tenant)?)
            }
            (Load::Ycsb(ycsb), _) => {
                let path = directory.join(format!("{name}.redb"));
                Documents::lay_out(&path, ycsb.records, seed, watch)?;
                let documents = Documents::open(&path, ycsb, clients, seed, tenant)?;
                Contents::Documents(Box::new(documents))
            }
            _ => unreachable!("check() rejects loads without contents"),
        };
        Ok(RealLoad { contents, failed: AtomicBool::new(false) })
    }

    /// Charges the load's future pages to another tenant.
    ///
    /// # Errors
    /// If the tenant belongs to another cache.
    pub fn move_to(&mut self, tenant: &Tenant) -> Result<(), Error> {
        match &mut self.contents {
            Contents::Tables(tables) => tables.move_to(tenant),
            Contents::Arrays(arrays) => arrays.move_to(tenant),
            Contents::Documents(documents) => documents.move_to(tenant),
        }
    }

    /// Performs the next unit of work of a client, and calls `report` with each touch. Clients run
    /// concurrently, each in one thread.
    ///
    /// # Errors
    /// If a page cannot be read or written, or has unexpected contents.
    pub fn step(&self, client: usize, report: &mut dyn FnMut(Performed)) -> Result<(), LoadError> {
        let done = match &self.contents {
            Contents::Tables(tables) => tables.step(report),
            Contents::Arrays(arrays) => arrays.step(client, report),
            Contents::Documents(documents) => documents.step(client, report),
        };
        self.failed.fetch_or(done.is_err(), Relaxed);
        done
    }

    /// Reads and checks everything while no client runs: through the cache, or with `on_device` the
    /// synced files directly. After a failed step nothing is verified, because the load's state is
    /// unknown.
    ///
    /// # Errors
    /// The first difference found.
    pub fn verify(&self, on_device: bool) -> Result<Verified, LoadError> {
        match &self.contents {
            _ if self.failed.load(Relaxed) => Ok(Verified::default()),
            Contents::Tables(tables) => tables.verify(on_device),
            Contents::Arrays(arrays) => arrays.verify(),
            Contents::Documents(documents) => documents.verify(on_device),
        }
    }

    /// Writes the dirty pages of its files to the device.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn sync(&self) -> Result<(), LoadError> {
        match &self.contents {
            Contents::Tables(tables) => tables.sync(),
            Contents::Arrays(_) => Ok(()),
            Contents::Documents(documents) => documents.sync(),
        }
    }
}

fn timed<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed())
}
