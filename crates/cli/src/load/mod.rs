//! The project's own loads on a real cache, with contents that are verified.
//!
//! `mglru_workload` says what a load touches and what each page should hold; here pages are read, checked, changed and
//! written: [`tables`] for the database, [`arrays`] for the sweep, [`documents`] for the document store.

mod arrays;
pub mod documents;
mod tables;

use crate::error::Failure;
use arrays::Arrays;
use documents::Documents;
use mglru_cache::Tenant;
use mglru_workload::Load;
use mglru_workload::trace::PageAccess;
use std::path::Path;
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

/// A load that runs on a cache, for some clients at once.
pub enum RealLoad {
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

impl RealLoad {
    /// Whether it has contents, so that it can run on a cache.
    ///
    /// # Errors
    /// It has none.
    pub fn check(load: &Load) -> Result<(), Failure> {
        match load.has_contents() {
            true => Ok(()),
            false => Err(Failure::usage(format_args!(
                "{} is a page workload without contents: run it in the simulator (--world sim)",
                load.name()
            ))),
        }
    }

    /// Sets a load up for a tenant. The files of a database or store are laid out anew in `directory`, their names beginning with
    /// `name`; `mapped`: those of a database are reached through mappings.
    ///
    /// # Errors
    /// Files cannot be made, memory cannot be had, or the load has no room for so many clients.
    pub fn new(
        load: Load,
        clients: u32,
        seed: u64,
        tenant: &Tenant,
        directory: &Path,
        name: &str,
        mapped: bool,
    ) -> Result<RealLoad, Failure> {
        RealLoad::check(&load)?;
        // What is wrong with the load shows before files are made.
        let running = load.start(clients, seed).map_err(Failure::usage)?;
        match (load, running) {
            (Load::Tpcc { cache_pages, .. }, mglru_workload::load::Running::Tpcc(tpcc)) => {
                let tables = Tables::new(*tpcc, cache_pages, tenant, directory, name, mapped)?;
                Ok(RealLoad::Tables(Box::new(tables)))
            }
            (Load::Sweep { arrays, array_pages }, mglru_workload::load::Running::Sweep(threads)) => {
                Ok(RealLoad::Arrays(Arrays::new(arrays, array_pages, threads, seed, tenant)?))
            }
            (Load::Ycsb(ycsb), _) => {
                let path = directory.join(format!("{name}.redb"));
                Documents::lay_out(&path, ycsb.records, seed)?;
                let documents = Documents::open(&path, ycsb, clients, seed, tenant)?;
                Ok(RealLoad::Documents(Box::new(documents)))
            }
            _ => unreachable!("it was checked"),
        }
    }

    /// From now on, what it brings in is charged to another tenant.
    ///
    /// # Errors
    /// The tenant is another cache's.
    pub fn move_to(&mut self, tenant: &Tenant) -> Result<(), Failure> {
        match self {
            RealLoad::Tables(tables) => tables.move_to(tenant),
            RealLoad::Arrays(arrays) => arrays.move_to(tenant),
            RealLoad::Documents(documents) => documents.move_to(tenant),
        }
    }

    /// Performs what a client does next, as much as belongs together, and tells each touch. Clients run at once, each
    /// in one thread.
    ///
    /// # Errors
    /// A page cannot be read or written, or is not what it should be.
    pub fn step(&self, client: usize, tell: &mut dyn FnMut(Performed)) -> Result<(), Failure> {
        match self {
            RealLoad::Tables(tables) => tables.step(tell),
            RealLoad::Arrays(arrays) => arrays.step(client, tell),
            RealLoad::Documents(documents) => documents.step(client, tell),
        }
    }

    /// Reads everything once more and checks it, while no client runs: through the cache, or `on_device`, past it, what was
    /// synced.
    ///
    /// # Errors
    /// What is not as it should be.
    pub fn verify(&self, on_device: bool) -> Result<Verified, Failure> {
        match self {
            RealLoad::Tables(tables) => tables.verify(on_device),
            RealLoad::Arrays(arrays) => arrays.verify(),
            RealLoad::Documents(documents) => documents.verify(on_device),
        }
    }
}

/// Does something and measures how long it takes.
fn timed<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let began = Instant::now();
    work()?;
    Ok(began.elapsed())
}
