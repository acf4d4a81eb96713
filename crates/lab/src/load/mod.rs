//! The project's own loads on a real cache, with contents that are verified.
//!
//! `mglru_workload` says what a load touches and what each page should hold; here pages are read,
//! checked, changed and written: [`tables`] for the database, [`arrays`] for the sweep,
//! [`documents`] for the document store.

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

/// A touch that was performed, and how long it took.
#[derive(Debug, Clone, Copy)]
pub struct Performed {
    /// What was touched. A page that was looked at and changed in one go counts as written.
    pub access: PageAccess,
    /// The call, or calls.
    pub time: Duration,
}

/// A load, and where it runs.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    /// What is run.
    pub load: Load,
    /// By so many clients at once.
    pub clients: u32,
    /// Decides every random choice.
    pub seed: u64,
    /// What it brings in is charged to this tenant.
    pub tenant: &'a Tenant,
    /// Where its files are made.
    pub directory: &'a Path,
    /// Their names begin with this.
    pub name: &'a str,
    /// Files of a database are reached through mappings.
    pub mapped: bool,
}

/// A load that runs on a cache, for some clients at once.
pub struct RealLoad {
    contents: Contents,
    /// A step failed, perhaps half-way.
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

/// What was verified after a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    /// Pages that are what they should be; of a store, records.
    pub pages: u64,
}

/// Why a load does not go on.
#[derive(Debug)]
pub enum LoadError {
    /// A page cannot be had, or cannot be written.
    Cache(mglru_cache::Error),
    /// A file cannot be read past the cache, or the store on it does not work.
    Device(String),
    /// A page is not what it should be, or pages do not agree.
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
    /// Whether it has contents, so that it can run on a cache.
    ///
    /// # Errors
    /// It has none.
    pub fn check(load: &Load) -> Result<(), Error> {
        match load.has_contents() {
            true => Ok(()),
            false => Err(Error::usage(format_args!(
                "{} is a page workload without contents: run it in the simulator (--world sim)",
                load.name()
            ))),
        }
    }

    /// Sets a load up. Files of a database or store are laid out anew.
    ///
    /// # Errors
    /// Files cannot be made, memory cannot be had, or the load has no room for so many clients.
    pub fn new(setup: &Setup, watch: &dyn Watch) -> Result<RealLoad, Error> {
        let &Setup { load, clients, seed, tenant, directory, name, .. } = setup;
        RealLoad::check(&load)?;
        // What is wrong with the load shows before files are made.
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
            _ => unreachable!("it was checked"),
        };
        Ok(RealLoad { contents, failed: AtomicBool::new(false) })
    }

    /// From now on, what it brings in is charged to another tenant.
    ///
    /// # Errors
    /// The tenant is another cache's.
    pub fn move_to(&mut self, tenant: &Tenant) -> Result<(), Error> {
        match &mut self.contents {
            Contents::Tables(tables) => tables.move_to(tenant),
            Contents::Arrays(arrays) => arrays.move_to(tenant),
            Contents::Documents(documents) => documents.move_to(tenant),
        }
    }

    /// Performs what a client does next, as much as belongs together, and tells each touch. Clients
    /// run at once, each in one thread.
    ///
    /// # Errors
    /// A page cannot be read or written, or is not what it should be.
    pub fn step(&self, client: usize, tell: &mut dyn FnMut(Performed)) -> Result<(), LoadError> {
        let done = match &self.contents {
            Contents::Tables(tables) => tables.step(tell),
            Contents::Arrays(arrays) => arrays.step(client, tell),
            Contents::Documents(documents) => documents.step(client, tell),
        };
        self.failed.fetch_or(done.is_err(), Relaxed);
        done
    }

    /// Reads everything once more and checks it, while no client runs: through the cache, or
    /// `on_device`, past it, what was synced. After a step that failed there is nothing to verify:
    /// nobody knows how far it came.
    ///
    /// # Errors
    /// What is not as it should be.
    pub fn verify(&self, on_device: bool) -> Result<Verified, LoadError> {
        match &self.contents {
            _ if self.failed.load(Relaxed) => Ok(Verified::default()),
            Contents::Tables(tables) => tables.verify(on_device),
            Contents::Arrays(arrays) => arrays.verify(),
            Contents::Documents(documents) => documents.verify(on_device),
        }
    }

    /// Writes what is dirty of its files to the device.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn sync(&self) -> Result<(), LoadError> {
        match &self.contents {
            Contents::Tables(tables) => tables.sync(),
            Contents::Arrays(_) => Ok(()),
            Contents::Documents(documents) => documents.sync(),
        }
    }
}

/// Does something and measures how long it takes.
fn timed<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed())
}
