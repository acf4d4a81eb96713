//! The database on real files: a load with verified contents, not a database.
//!
//! Every visit of a transaction reads its page, from the server's cache if it is there. It checks
//! the page's identity, version and checksum, and the sum of its columns. It changes rows, and
//! writes the page to the server's cache and to its file. The expected state of a page is kept
//! apart from it ([`Truth`]). At the end all files are read and checked, and their rows must be
//! consistent in TPC-C's sense.
//!
//! # Locking
//!
//! A page of a file has one place in the server's cache. A visit holds the lock of that place and
//! no other lock. Clients thus run concurrently, and each page is changed by one client at a time.
//! Changes are additions, so their order does not matter.

use super::{LoadError, PAGE, Performed, Setup, Verified, timed};
use crate::{Error, Stage, Unit, Watch, layout};
use mglru_cache::{self as cache, AnonRegion, CachedFile, Map, OpenMode, Tenant};
use mglru_core::PAGE_BYTES;
use mglru_workload::tpcc::page::{self, Truth};
use mglru_workload::tpcc::{Consistency, File, Tpcc, Visit, place_of};
use mglru_workload::trace::PageAccess;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Number of locks if the server has no cache.
const PLACES_WITHOUT_CACHE: u32 = 1024;
/// Step by which files grow.
const GROWTH_BYTES: u64 = 64 * PAGE_BYTES;
/// Pages per write while files are laid out.
const LAYOUT_PAGES: u64 = 256;

/// A place of the server's cache.
#[derive(Default)]
struct Place {
    /// The page in this place, + 1; 0 if empty.
    tag: u64,
    /// Expected state of the changed pages that belong in this place.
    truths: BTreeMap<u64, Truth>,
}

/// An open file of the database.
struct Open {
    of: File,
    file: CachedFile,
    /// The mapping, if files are mapped.
    map: Option<Map>,
    /// Held while the file grows.
    growing: Mutex<()>,
}

/// The database, its server, and its clients.
pub struct Tables {
    /// Files by number.
    files: BTreeMap<u64, Open>,
    tpcc: Mutex<Tpcc>,
    warehouses: u64,
    cache: Option<AnonRegion>,
    places: Vec<Mutex<Place>>,
}

/// Initial size of all files in bytes.
fn file_bytes(warehouses: u64) -> u64 {
    File::all().map(|file| file.first_pages(warehouses)).sum::<u64>() * PAGE_BYTES
}

fn path_of(directory: &Path, name: &str, file: File) -> PathBuf {
    let nodes = if file.nodes { ".nodes" } else { "" };
    directory.join(format!("{name}.{}{nodes}", file.table.name()))
}

/// Writes the initial contents of all files, bypassing the cache.
fn lay_out(directory: &Path, name: &str, warehouses: u64, watch: &dyn Watch) -> Result<(), Error> {
    let bytes = file_bytes(warehouses);
    layout::check_space(directory, 2 * bytes, "choose another directory, or fewer warehouses")?;
    let stage = Stage::begin(watch, name, bytes, Unit::Bytes);
    for file in File::all() {
        let path = path_of(directory, name, file);
        let fill = || {
            let mut out = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
            let pages = file.first_pages(warehouses);
            let mut buffer = vec![0; LAYOUT_PAGES as usize * PAGE];
            for first in (0..pages).step_by(LAYOUT_PAGES as usize) {
                let count = LAYOUT_PAGES.min(pages - first) as usize;
                for (index, page) in (first..).zip(buffer.chunks_mut(PAGE).take(count)) {
                    page::lay_out(page, file, index, warehouses);
                }
                out.write_all(&buffer[..count * PAGE])?;
                watch.advance((count * PAGE) as u64);
            }
            layout::drop_from_system_cache(&out)
        };
        fill().map_err(|error| Error::work(format_args!("cannot create {}: {error}", path.display())))?;
        stage.advance(0)?;
    }
    Ok(())
}

impl Tables {
    /// Creates the files and opens them.
    pub fn new(tpcc: Tpcc, cache_pages: u32, setup: &Setup, watch: &dyn Watch) -> Result<Tables, Error> {
        let &Setup { tenant, directory, name, mapped, .. } = setup;
        let warehouses = tpcc.warehouses();
        lay_out(directory, name, warehouses, watch)?;
        let mut files = BTreeMap::new();
        for of in File::all() {
            let file = tenant.open(path_of(directory, name, of), OpenMode::ReadWrite)?;
            let map = if mapped { Some(file.map()?) } else { None };
            files.insert(of.number(), Open { of, file, map, growing: Mutex::new(()) });
        }
        let cache = match cache_pages {
            0 => None,
            pages => Some(tenant.anonymous(u64::from(pages) * PAGE_BYTES)?),
        };
        let places = if cache_pages == 0 { PLACES_WITHOUT_CACHE } else { cache_pages };
        let places = (0..places).map(|_| Mutex::default()).collect();
        Ok(Tables { files, tpcc: Mutex::new(tpcc), warehouses, cache, places })
    }

    /// Moves the files and the server's cache to another tenant.
    pub fn move_to(&mut self, tenant: &Tenant) -> Result<(), Error> {
        for open in self.files.values_mut() {
            open.file.move_to(tenant)?;
            open.map.as_mut().map_or(Ok(()), |map| map.move_to(tenant))?;
        }
        Ok(self.cache.as_mut().map_or(Ok(()), |cache| cache.move_to(tenant))?)
    }

    /// Performs one transaction.
    pub fn step(&self, report: &mut dyn FnMut(Performed)) -> Result<(), LoadError> {
        let mut visits = Vec::new();
        self.tpcc.lock().expect("no panic").next_visits(&mut visits);
        let mut buffer = [0; PAGE];
        visits.iter().try_for_each(|visit| self.visit(visit, &mut buffer, report))
    }

    fn visit(
        &self,
        visit: &Visit,
        bytes: &mut [u8],
        report: &mut dyn FnMut(Performed),
    ) -> Result<(), LoadError> {
        let number = visit.page();
        let at = place_of(number, self.places.len() as u64);
        let place = &mut *self.places[at as usize].lock().expect("no panic");
        let open = &self.files[&visit.file.number()];
        let truth = place.truths.get(&number).copied();
        let truth = truth.unwrap_or_else(|| Truth::first(visit.file, visit.index, self.warehouses));
        let access = |write| PageAccess { write, mapped: open.map.is_some(), ..PageAccess::read(number) };

        let there = place.tag == number + 1;
        let mut cache_time = match &self.cache {
            Some(cache) if there => timed(|| cache.load(at * PAGE_BYTES, bytes))?,
            _ => {
                let time = timed(|| open.read(visit.index, bytes))?;
                report(Performed { access: access(false), time });
                std::time::Duration::ZERO
            }
        };
        page::check(bytes, visit.file, visit.index, truth).map_err(LoadError::contents)?;
        let write = visit.add.is_some();
        if write {
            page::change(bytes, visit);
            place.truths.insert(number, truth.visited(visit));
        }
        if let Some(cache) = &self.cache {
            place.tag = number + 1;
            if write || !there {
                cache_time += timed(|| cache.store(at * PAGE_BYTES, bytes))?;
            }
            let access =
                PageAccess { write: write || !there, mapped: true, anon: true, ..PageAccess::read(at) };
            report(Performed { access, time: cache_time });
        }
        if write {
            let time = timed(|| open.write(visit.index, bytes))?;
            report(Performed { access: access(true), time });
        }
        Ok(())
    }

    /// Verifies all pages of all files, the contents of the server's cache, and the consistency of
    /// all rows. With `on_device` files are read past the cache, which must have been synced.
    pub fn verify(&self, on_device: bool) -> Result<Verified, LoadError> {
        let mut consistency = Consistency::new(self.warehouses);
        let (mut bytes, mut verified) = (vec![0; PAGE], Verified::default());
        let mut changed: usize =
            self.places.iter().map(|place| place.lock().expect("no panic").truths.len()).sum();
        for open in self.files.values() {
            let fail =
                |error| LoadError::Device(format!("cannot read {}: {error}", open.file.path().display()));
            let device =
                if on_device { Some(std::fs::File::open(open.file.path()).map_err(fail)?) } else { None };
            for index in 0..open.file.len() / PAGE_BYTES {
                let number = open.of.number() << 32 | index;
                let at = place_of(number, self.places.len() as u64);
                let place = self.places[at as usize].lock().expect("no panic");
                let truth = place.truths.get(&number).copied();
                changed -= usize::from(truth.is_some());
                let truth = truth.unwrap_or_else(|| Truth::first(open.of, index, self.warehouses));
                match &device {
                    Some(file) => file.read_exact_at(&mut bytes, index * PAGE_BYTES).map_err(fail)?,
                    None => open.read(index, &mut bytes)?,
                }
                page::check(&bytes, open.of, index, truth).map_err(LoadError::contents)?;
                page::rows(&bytes, open.of, index)
                    .for_each(|(number, row)| consistency.row(open.of.table, number, &row));
                if let Some(cache) = &self.cache
                    && place.tag == number + 1
                {
                    cache.load(at * PAGE_BYTES, &mut bytes)?;
                    page::check(&bytes, open.of, index, truth).map_err(LoadError::contents)?;
                    verified.pages += 1;
                }
                verified.pages += 1;
            }
        }
        if changed > 0 {
            return Err(LoadError::contents(format_args!(
                "{changed} written pages are beyond the end of their file"
            )));
        }
        consistency.check().map_err(LoadError::contents)?;
        Ok(verified)
    }

    /// Writes the dirty pages to the device.
    pub fn sync(&self) -> Result<(), LoadError> {
        Ok(self.files.values().try_for_each(|open| open.file.sync_data())?)
    }
}

impl Open {
    /// Reads a page. A page beyond the end is blank.
    fn read(&self, index: u64, bytes: &mut [u8]) -> Result<(), cache::Error> {
        let offset = index * PAGE_BYTES;
        if offset >= self.file.len() {
            bytes.fill(0);
            return Ok(());
        }
        match &self.map {
            Some(map) => map.load(offset, bytes),
            None => self.file.read_at(bytes, offset).map(drop),
        }
    }

    /// Writes a page. The file grows as needed.
    fn write(&self, index: u64, bytes: &[u8]) -> Result<(), cache::Error> {
        let offset = index * PAGE_BYTES;
        if offset >= self.file.len() {
            let _growing = self.growing.lock().expect("no panic");
            let len = (offset + PAGE_BYTES).next_multiple_of(GROWTH_BYTES);
            if offset >= self.file.len() {
                self.file.truncate(len)?;
            }
        }
        match &self.map {
            Some(map) => map.store(offset, bytes),
            None => self.file.write_at(bytes, offset).map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unwatched;
    use mglru_cache::{BackendKind, PageCache, Swap};
    use mglru_workload::Load;

    const CACHE_PAGES: u32 = 400;

    fn tables(cache: &PageCache, directory: &Path, mapped: bool) -> Tables {
        let tpcc = Tpcc::new(1, CACHE_PAGES, 3);
        let (load, tenant) =
            (Load::Tpcc { warehouses: 1, cache_pages: CACHE_PAGES }, &cache.tenant("").unwrap());
        let setup = Setup { load, clients: 1, seed: 3, tenant, directory, name: "t", mapped };
        Tables::new(tpcc, CACHE_PAGES, &setup, &Unwatched).unwrap()
    }

    fn cache() -> PageCache {
        let builder = PageCache::builder(6 << 20).backend(BackendKind::Threads);
        builder.swap(Swap::compressed(1 << 20)).build().unwrap()
    }

    /// The performed touches equal the generated ones, page by page.
    #[test]
    fn one_client_touches_the_generated_pages() {
        let directory = tempfile::tempdir().unwrap();
        let cache = cache();
        let tables = tables(&cache, directory.path(), false);
        let (mut expected, mut performed) = (Vec::new(), Vec::new());
        let mut tpcc = Tpcc::new(1, CACHE_PAGES, 3);
        for _ in 0..300 {
            tpcc.next_transaction(&mut expected);
            tables.step(&mut |done| performed.push(done.access)).unwrap();
        }
        assert_eq!(performed, expected);
        assert!(tables.verify(false).unwrap().pages > 20_000);
    }

    #[test]
    fn clients_at_once_leave_consistent_rows_and_one_wrong_byte_is_found() {
        for mapped in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let cache = cache();
            let tables = tables(&cache, directory.path(), mapped);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| (0..400).for_each(|_| tables.step(&mut |_| {}).unwrap()));
                }
            });
            tables.verify(false).unwrap();
            cache.sync().unwrap();
            tables.verify(true).unwrap();
            let stats = cache.tenant("").unwrap().stats();
            assert!(stats.counter("pswpin").unwrap() > 0, "{stats:?}");
            let stock = &tables.files[&8];
            stock.file.write_at(&[1], 5 * PAGE_BYTES + 700).unwrap();
            let error = format!("{:?}", tables.verify(false).unwrap_err());
            assert!(error.contains("page 5 of stock"), "{error}");
        }
    }
}
