//! [redb](https://docs.rs/redb) on mglru's page cache.
//!
//! A [`FileBackend`] is a `StorageBackend` over a [`CachedFile`]. The database's pages then compete
//! for one memory budget with other files, within the limits of a tenant, and scans of it do not
//! push out what is in use. redb has a cache of its own, too; make it small
//! (`Builder::set_cache_size`), so that pages are not in memory twice.
//!
//! ```
//! use mglru_cache::PageCache;
//! use mglru_redb::FileBackend;
//! use redb::{Builder, ReadableDatabase, TableDefinition};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("db");
//! const TABLE: TableDefinition<u64, &str> = TableDefinition::new("t");
//! let cache = PageCache::builder(64 << 20).tenant("db", 32 << 20).build()?;
//! let backend = FileBackend::open(&cache.tenant("db")?, &path)?;
//! let database = Builder::new().set_cache_size(1 << 20).create_with_backend(backend)?;
//! let write = database.begin_write()?;
//! write.open_table(TABLE)?.insert(7, "seven")?;
//! write.commit()?; // synced
//! assert_eq!(database.begin_read()?.open_table(TABLE)?.get(7)?.unwrap().value(), "seven");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Durability
//!
//! redb syncs when a commit asks for it, and a sync of the cached file writes all dirty pages and
//! waits until they are on stable storage. Commits without durability stay in memory until the
//! cache writes them.

use mglru_cache::{CachedFile, Error, OpenMode, Tenant};
use redb::StorageBackend;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

/// A file of a page cache as the storage of a redb database. Clones share the file.
#[derive(Clone, Debug)]
pub struct FileBackend(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Locked exclusively only while the file moves to another tenant.
    file: RwLock<CachedFile>,
    /// Keeps other backends away from the file, until the database closes it.
    lock: Mutex<Option<Lock>>,
    is_closed: AtomicBool,
}

/// A locked file. It is unlocked, not only closed: a child that another thread has just forked
/// holds the lock as well, until it calls exec.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing it unlocks it, too, once the child has closed its copy.
        let _ = self.0.unlock();
    }
}

impl FileBackend {
    /// Opens a database file for a tenant, and creates it if it is missing. An advisory lock
    /// (`flock`) keeps a second backend from the file, in this process and in others, until the
    /// database is closed or the last clone is dropped.
    ///
    /// # Errors
    /// The file cannot be opened, or another database has it open (`WouldBlock`).
    pub fn open(tenant: &Tenant, path: impl AsRef<Path>) -> io::Result<FileBackend> {
        let path = path.as_ref();
        let lock = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                let what = format!("{} is open in another database: close that one first", path.display());
                io::Error::new(io::ErrorKind::WouldBlock, what)
            }
            TryLockError::Error(error) => error,
        })?;
        Ok(FileBackend::with_lock(tenant.open(path, OpenMode::ReadWrite)?, Some(Lock(lock))))
    }

    /// Uses an open file, without a lock. The handle must be writable, and nothing else may write
    /// to the file.
    pub fn new(file: CachedFile) -> FileBackend {
        FileBackend::with_lock(file, None)
    }

    fn with_lock(file: CachedFile, lock: Option<Lock>) -> FileBackend {
        let (file, lock) = (RwLock::new(file), Mutex::new(lock));
        FileBackend(Arc::new(Inner { file, lock, is_closed: AtomicBool::new(false) }))
    }

    /// The file. While the returned guard lives, [`Self::move_to`] waits.
    pub fn file(&self) -> RwLockReadGuard<'_, CachedFile> {
        self.0.file.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file, for the database.
    fn open_file(&self) -> io::Result<RwLockReadGuard<'_, CachedFile>> {
        let file = self.file();
        if self.0.is_closed.load(Ordering::Acquire) {
            let what =
                format!("the database {} is closed: open it with another backend", file.path().display());
            return Err(io::Error::new(io::ErrorKind::NotConnected, what));
        }
        Ok(file)
    }

    /// Charges pages that the database brings in from now on to another tenant of the same cache.
    ///
    /// # Errors
    /// The tenant belongs to another cache.
    pub fn move_to(&self, tenant: &Tenant) -> Result<(), Error> {
        self.0.file.write().unwrap_or_else(PoisonError::into_inner).move_to(tenant)
    }
}

impl StorageBackend for FileBackend {
    fn len(&self) -> io::Result<u64> {
        Ok(self.open_file()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Ok(self.open_file()?.read_exact_at(out, offset)?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(self.open_file()?.truncate(len)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        // An earlier failure that is over would have redb refuse all further work.
        Ok(self.open_file()?.sync_data_again()?)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.open_file()?.write_at(data, offset)?;
        Ok(())
    }

    /// Writes what is not written yet, and unlocks the file. If a page cannot be written, the lock
    /// is kept until the last clone is dropped: the cache still tries to write it.
    fn close(&self) -> io::Result<()> {
        let file = self.file();
        self.0.is_closed.store(true, Ordering::Release);
        let pages = file.pages_in(0..u64::MAX);
        if pages.dirty + pages.writeback > 0 {
            file.sync_data_again()?;
        }
        drop(self.0.lock.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_cache::backend::{Fault, FaultEffect, FaultOperation, FaultTrigger, MemoryFiles};
    use mglru_cache::{BackendKind, PageCache};

    #[test]
    fn a_file_is_unlocked_when_its_last_backend_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("database");
        let cache = PageCache::builder(2 << 20).tenant("db", 1 << 20).build().unwrap();
        let tenant = cache.tenant("db").unwrap();
        let first = FileBackend::open(&tenant, &path).unwrap();
        let clone = first.clone();
        // As a child that is forked just now, and has its parent's open files until it calls exec.
        let forked = first.0.lock.lock().unwrap().as_ref().unwrap().0.try_clone().unwrap();
        drop(first);
        let error = FileBackend::open(&tenant, &path).unwrap_err();
        assert!(error.kind() == io::ErrorKind::WouldBlock && error.to_string().contains("another database"));
        drop(clone);
        FileBackend::open(&tenant, &path).unwrap();
        drop(forked);
    }

    #[test]
    fn a_failure_that_is_over_fails_no_sync() {
        let files = MemoryFiles::new(1);
        let kind = BackendKind::Memory(files.clone());
        let cache = PageCache::builder(2 << 20).backend(kind).build().unwrap();
        let open = || FileBackend::new(cache.tenant("").unwrap().open("db", OpenMode::Create).unwrap());
        let first = open();
        let fails = |trigger| Fault::new(FaultOperation::Write, trigger, FaultEffect::Error(libc::ENOSPC));
        first.write(0, b"one").unwrap();
        files.inject(fails(FaultTrigger::Nth(1)));
        first.sync_data().unwrap();
        assert_eq!(files.contents("db").unwrap(), b"one");
        // The last session of the file could not write, and nobody heard of it.
        files.inject(fails(FaultTrigger::Always));
        first.write(0, b"two").unwrap();
        drop(first);
        cache.sync().unwrap_err();
        let second = open();
        second.sync_data().unwrap_err();
        files.clear_faults();
        second.sync_data().unwrap();
        assert_eq!(files.contents("db").unwrap(), b"two");
    }
}
