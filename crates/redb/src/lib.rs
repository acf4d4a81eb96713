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
//! # Readers
//!
//! Any number of processes, and of databases of one process, read a database at once. Each opens it
//! with [`FileBackend::open_read_only`] and `Builder::open_read_only_with_backend`. They share a
//! lock on the file that keeps writers out, and a writer keeps readers out: the pages that a
//! process has in memory do not change on the disk. redb's own databases follow the same locks, so
//! those in its default mode (`ConcurrencyMode::ExclusiveWriter`) may read beside this adapter.
//!
//! ```
//! # use mglru_cache::PageCache;
//! # use mglru_redb::FileBackend;
//! # use redb::{Builder, ReadableDatabase, TableDefinition};
//! # const TABLE: TableDefinition<u64, &str> = TableDefinition::new("t");
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("db");
//! # let cache = PageCache::builder(64 << 20).build()?;
//! # let tenant = cache.tenant("")?;
//! # let database = Builder::new().create_with_backend(FileBackend::open(&tenant, &path)?)?;
//! # let write = database.begin_write()?;
//! # write.open_table(TABLE)?.insert(7, "seven")?;
//! # write.commit()?;
//! # drop(database);
//! let reader = FileBackend::open_read_only(&tenant, &path)?;
//! let reader = Builder::new().set_cache_size(1 << 20).open_read_only_with_backend(reader)?;
//! assert_eq!(reader.begin_read()?.open_table(TABLE)?.get(7)?.unwrap().value(), "seven");
//! let writer = FileBackend::open(&tenant, &path).unwrap_err(); // until the reader is closed
//! assert_eq!(writer.kind(), std::io::ErrorKind::WouldBlock);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! redb refuses to read a database whose last process was killed (`DatabaseError::RepairAborted`):
//! open it for writing once, which repairs it.
//!
//! # Durability
//!
//! redb syncs when a commit asks for it, and a sync of the cached file writes all dirty pages and
//! waits until they are on stable storage. Commits without durability stay in memory until the
//! cache writes them.

use mglru_cache::{CachedFile, Error, OpenMode, Tenant};
use redb::{BackendError, StorageBackend};
use std::fs::{File, TryLockError};
use std::io;
use std::ops::Bound;
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

/// A file locked with `flock`, and the locks on its bytes that redb takes when it opens a database.
///
/// It is unlocked, not only closed: a child that another thread has just forked holds the locks as
/// well, until it calls exec.
#[derive(Debug)]
struct Lock {
    file: File,
    is_shared: bool,
    bytes: redb::backends::FileBackend,
}

impl Lock {
    /// Locks the file at `path`, for reading only or for writing. `None`: another database has it
    /// open.
    fn try_new(path: &Path, file: File, is_shared: bool) -> io::Result<Option<Lock>> {
        match if is_shared { file.try_lock_shared() } else { file.try_lock() } {
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(cannot("lock", path, &error)),
            Ok(()) => {}
        }
        let copy = file.try_clone().map_err(|error| cannot("lock", path, &error))?;
        let bytes = redb::backends::FileBackend::new(copy);
        let bytes = bytes.map_err(|error| cannot("lock", path, &io::Error::other(error)))?;
        Ok(Some(Lock { file, is_shared, bytes }))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing it unlocks it, too, once the child has closed its copy.
        let _ = self.bytes.close();
        let _ = self.file.unlock();
    }
}

fn cannot(doing: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {doing} {}: {error}", path.display()))
}

impl FileBackend {
    /// Opens a database file for a tenant, and creates it if it is missing. Advisory locks keep
    /// other backends from the file, in this process and in others, until the database is closed or
    /// the last clone is dropped.
    ///
    /// # Errors
    /// The file cannot be opened, or another database has it open, for reading or for writing
    /// (`WouldBlock`).
    pub fn open(tenant: &Tenant, path: impl AsRef<Path>) -> io::Result<FileBackend> {
        let path = path.as_ref();
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| cannot("open", path, &error))?;
        let lock = Lock::try_new(path, file, false)?.ok_or_else(|| {
            let path = path.display();
            let what = format!("{path} is open in another database, or being read: close that one first");
            io::Error::new(io::ErrorKind::WouldBlock, what)
        })?;
        FileBackend::locked(tenant, path, OpenMode::ReadWrite, lock)
    }

    /// Opens a database file for a tenant, for reading only: for
    /// `Builder::open_read_only_with_backend`. Until the database is closed or the last clone is
    /// dropped, other databases can read the file, too, in this process and in others, and none can
    /// write to it.
    ///
    /// # Errors
    /// The file is missing or cannot be opened, or another database has it open for writing
    /// (`WouldBlock`).
    pub fn open_read_only(tenant: &Tenant, path: impl AsRef<Path>) -> io::Result<FileBackend> {
        let path = path.as_ref();
        let refused = |error| cannot("open", path, &error);
        // Opening a FIFO would wait for its other end.
        if !std::fs::metadata(path).map_err(refused)?.is_file() {
            let what = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
            return Err(refused(what));
        }
        let lock = Lock::try_new(path, File::open(path).map_err(refused)?, true)?.ok_or_else(|| {
            let path = path.display();
            let what = format!("{path} is open for writing in another database: close that one first");
            io::Error::new(io::ErrorKind::WouldBlock, what)
        })?;
        FileBackend::locked(tenant, path, OpenMode::ReadOnly, lock)
    }

    /// Opens a locked file.
    fn locked(tenant: &Tenant, path: &Path, mode: OpenMode, lock: Lock) -> io::Result<FileBackend> {
        let file = tenant.open(path, mode)?;
        file.invalidate()?;
        Ok(FileBackend::with_lock(file, Some(lock)))
    }

    /// Calls `act` with the lock. A backend without one has no locks on bytes. `doing`: for its
    /// error, which gets the path.
    fn with_bytes<R>(
        &self,
        doing: &str,
        act: impl FnOnce(&Lock) -> Result<R, BackendError>,
    ) -> Result<R, BackendError> {
        let result = {
            let lock = self.0.lock.lock().unwrap_or_else(PoisonError::into_inner);
            lock.as_ref().map_or(Err(BackendError::Unsupported), act)
        };
        result.map_err(|error| match error {
            BackendError::Io(error) => BackendError::Io(cannot(doing, self.file().path(), &error)),
            other => other,
        })
    }

    /// Forgets what the file was before it was locked: pages of a closed database that is still
    /// referred to are in memory, and other processes may have written to the file since.
    fn is_locked(&self, locked: bool) -> Result<bool, BackendError> {
        if locked {
            self.file().invalidate().map_err(|error| BackendError::Io(error.into()))?;
        }
        Ok(locked)
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

    // redb locks and unlocks the bytes of a database that it opens. Those modes in which processes
    // share a database while one writes need `lock_range` and `lock_shared_range`, too. There are
    // none, because the processes would not see each other's pages.

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        let locked = self.with_bytes("lock", |lock| match lock.is_shared {
            false => lock.bytes.try_lock_range(start, end),
            true => {
                let what = "this backend only reads: use `Builder::open_read_only_with_backend`";
                Err(BackendError::Io(io::Error::new(io::ErrorKind::PermissionDenied, what)))
            }
        })?;
        self.is_locked(locked)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.is_locked(self.with_bytes("lock", |lock| lock.bytes.try_lock_shared_range(start, end))?)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.with_bytes("unlock", |lock| lock.bytes.unlock_range(start, end))
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.with_bytes("look for locks on", |lock| lock.bytes.query_lock_range(start, end))
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
        let forked = first.0.lock.lock().unwrap().as_ref().unwrap().file.try_clone().unwrap();
        drop(first);
        let error = FileBackend::open(&tenant, &path).unwrap_err();
        assert!(error.kind() == io::ErrorKind::WouldBlock && error.to_string().contains("another database"));
        drop(clone);
        FileBackend::open(&tenant, &path).unwrap();
        drop(forked);
    }

    /// A descriptor that only names the file cannot be locked.
    #[test]
    fn a_refused_lock_names_the_file() {
        use std::os::unix::fs::OpenOptionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        let named = File::options().read(true).custom_flags(libc::O_PATH).open(file.path()).unwrap();
        let error = Lock::try_new(file.path(), named, false).unwrap_err();
        let prefix = format!("cannot lock {}: ", file.path().display());
        assert!(error.to_string().starts_with(&prefix), "{error}");
    }

    #[test]
    fn only_a_regular_file_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let cache = PageCache::builder(2 << 20).build().unwrap();
        let tenant = cache.tenant("").unwrap();
        for path in [&*fifo, directory.path(), &directory.path().join("missing/file")] {
            let errors = [FileBackend::open(&tenant, path), FileBackend::open_read_only(&tenant, path)];
            for error in errors.map(Result::unwrap_err) {
                let prefix = format!("cannot open {}: ", path.display());
                assert!(error.to_string().starts_with(&prefix), "{error}");
            }
        }
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
