//! The virtual file system: SQLite's files as files of the page cache.
//!
//! # Durability
//!
//! `xSync` writes all dirty pages of a file and waits until they are on stable storage. Names of
//! files are synced, too: after a file is deleted, and with the first sync of a new file. The cache
//! writes pages in any order before that, so no promise about order is made to SQLite.

use crate::locks::Locks;
use mglru_cache::{CachedFile, Error, OpenMode, Tenant};
use sqlite_plugin::flags::{self, AccessFlags, CreateMode, LockLevel, OpenOpts, ShmLockMode};
use sqlite_plugin::vars;
use sqlite_plugin::vfs::{SqliteErr, Vfs, VfsHandle, VfsResult};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

static TEMPORARY: AtomicU64 = AtomicU64::new(0);

pub(crate) struct CacheVfs {
    tenant: Tenant,
    /// Open databases by path.
    databases: Mutex<BTreeMap<PathBuf, Weak<Database>>>,
    next: AtomicU64,
}

/// State that connections to the same database share.
struct Database {
    locks: Mutex<Locks>,
    /// Keeps other processes out.
    lock: File,
}

impl Drop for Database {
    fn drop(&mut self) {
        // A child that another thread has just forked holds the lock as well, until it calls exec:
        // closing the file alone would not unlock it yet.
        let _ = self.lock.unlock();
    }
}

impl Database {
    fn locks(&self) -> MutexGuard<'_, Locks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open file of a connection.
pub(crate) struct Handle {
    file: CachedFile,
    path: PathBuf,
    read_only: bool,
    delete_on_close: bool,
    /// The file's name is not on stable storage yet.
    is_new: bool,
    number: u64,
    /// For a database file.
    database: Option<Arc<Database>>,
}

impl VfsHandle for Handle {
    fn readonly(&self) -> bool {
        self.read_only
    }

    fn in_memory(&self) -> bool {
        false
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(database) = &self.database {
            database.locks().close(self.number);
        }
    }
}

/// SQLite's code for an error during an operation whose own code is `otherwise`.
fn code(error: &Error, otherwise: SqliteErr) -> SqliteErr {
    match error.kind() {
        io::ErrorKind::OutOfMemory => vars::SQLITE_IOERR_NOMEM,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            vars::SQLITE_FULL
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => vars::SQLITE_READONLY,
        _ => otherwise,
    }
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

impl CacheVfs {
    pub(crate) fn new(tenant: Tenant) -> CacheVfs {
        CacheVfs { tenant, databases: Mutex::default(), next: AtomicU64::new(1) }
    }

    /// The shared state of a database, for which this process gets the lock.
    fn database(&self, path: &Path) -> VfsResult<Arc<Database>> {
        let mut databases = self.databases.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(database) = databases.get(path).and_then(Weak::upgrade) {
            return Ok(database);
        }
        databases.retain(|_, database| database.strong_count() > 0);
        let lock = File::open(path).map_err(|_| vars::SQLITE_CANTOPEN)?;
        lock.try_lock().map_err(|_| vars::SQLITE_BUSY)?;
        let database = Arc::new(Database { locks: Mutex::default(), lock });
        databases.insert(path.to_owned(), Arc::downgrade(&database));
        Ok(database)
    }
}

impl Vfs for CacheVfs {
    type Handle = Handle;

    fn canonical_path<'a>(&self, path: Cow<'a, str>) -> VfsResult<Cow<'a, str>> {
        // Two names of one database must have the same locks.
        if let Ok(known) = fs::canonicalize(&*path) {
            return Ok(known.to_str().ok_or(vars::SQLITE_CANTOPEN)?.to_owned().into());
        }
        let absolute = std::path::absolute(&*path).map_err(|_| vars::SQLITE_CANTOPEN)?;
        let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
            return Err(vars::SQLITE_CANTOPEN);
        };
        let parent = fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned());
        Ok(parent.join(name).to_str().ok_or(vars::SQLITE_CANTOPEN)?.to_owned().into())
    }

    fn open(&self, path: Option<&str>, opts: OpenOpts) -> VfsResult<Handle> {
        let (path, delete_on_close) = match path {
            Some(path) => (PathBuf::from(path), opts.delete_on_close()),
            None => {
                let number = TEMPORARY.fetch_add(1, Ordering::Relaxed);
                let name = format!("mglru-sqlite-{}-{number}", std::process::id());
                (std::env::temp_dir().join(name), true)
            }
        };
        let (mode, is_new) = match opts.mode() {
            flags::OpenMode::ReadOnly => (OpenMode::ReadOnly, false),
            flags::OpenMode::ReadWrite { create: CreateMode::None } => (OpenMode::ReadWrite, false),
            flags::OpenMode::ReadWrite { create: CreateMode::Create } => (OpenMode::Create, !path.exists()),
            flags::OpenMode::ReadWrite { create: CreateMode::MustCreate } => {
                File::create_new(&path).map_err(|_| vars::SQLITE_CANTOPEN)?;
                (OpenMode::ReadWrite, true)
            }
        };
        let file = self.tenant.open(&path, mode).map_err(|error| code(&error, vars::SQLITE_CANTOPEN))?;
        let database = match opts.kind() {
            flags::OpenKind::MainDb => Some(self.database(&path)?),
            _ => None,
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let read_only = mode == OpenMode::ReadOnly;
        Ok(Handle { file, path, read_only, delete_on_close, is_new, number, database })
    }

    fn delete(&self, path: &str) -> VfsResult<()> {
        // Its dirty pages are of no use any more: the cache would write them first.
        if let Ok(file) = self.tenant.open(path, OpenMode::ReadWrite) {
            let _ = file.truncate(0);
        }
        match fs::remove_file(path) {
            Ok(()) => sync_directory_of(Path::new(path)).map_err(|_| vars::SQLITE_IOERR_DIR_FSYNC),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(vars::SQLITE_IOERR_DELETE_NOENT),
            Err(_) => Err(vars::SQLITE_IOERR_DELETE),
        }
    }

    fn access(&self, path: &str, flags: AccessFlags) -> VfsResult<bool> {
        Ok(match (fs::metadata(path), flags) {
            (Err(_), _) => false,
            // As SQLite's own: an empty file is as good as none.
            (Ok(data), AccessFlags::Exists) => !data.is_file() || data.len() > 0 || self.len_of(path) > 0,
            (Ok(_), AccessFlags::Read) => File::open(path).is_ok(),
            (Ok(_), AccessFlags::ReadWrite) => File::options().write(true).open(path).is_ok(),
        })
    }

    fn file_size(&self, handle: &mut Handle) -> VfsResult<usize> {
        Ok(handle.file.len() as usize)
    }

    fn truncate(&self, handle: &mut Handle, size: usize) -> VfsResult<()> {
        handle.file.truncate(size as u64).map_err(|error| code(&error, vars::SQLITE_IOERR_TRUNCATE))
    }

    fn write(&self, handle: &mut Handle, offset: usize, data: &[u8]) -> VfsResult<usize> {
        handle.file.write_at(data, offset as u64).map_err(|error| code(&error, vars::SQLITE_IOERR_WRITE))
    }

    fn read(&self, handle: &mut Handle, offset: usize, data: &mut [u8]) -> VfsResult<usize> {
        handle.file.read_at(data, offset as u64).map_err(|error| code(&error, vars::SQLITE_IOERR_READ))
    }

    fn lock(&self, handle: &mut Handle, level: LockLevel) -> VfsResult<()> {
        match &handle.database {
            Some(database) => database.locks().lock(handle.number, level),
            None => Ok(()),
        }
    }

    fn unlock(&self, handle: &mut Handle, level: LockLevel) -> VfsResult<()> {
        if let Some(database) = &handle.database {
            database.locks().unlock(handle.number, level);
        }
        Ok(())
    }

    fn check_reserved_lock(&self, handle: &mut Handle) -> VfsResult<bool> {
        Ok(handle.database.as_ref().is_some_and(|database| database.locks().is_reserved()))
    }

    fn sync(&self, handle: &mut Handle) -> VfsResult<()> {
        handle.file.sync_data().map_err(|error| code(&error, vars::SQLITE_IOERR_FSYNC))?;
        if std::mem::take(&mut handle.is_new) && !handle.delete_on_close {
            sync_directory_of(&handle.path).map_err(|_| vars::SQLITE_IOERR_DIR_FSYNC)?;
        }
        Ok(())
    }

    fn close(&self, handle: Handle) -> VfsResult<()> {
        if handle.delete_on_close {
            let _ = handle.file.truncate(0);
            fs::remove_file(&handle.path).map_err(|_| vars::SQLITE_IOERR_DELETE)?;
        }
        Ok(())
    }

    fn device_characteristics(&self, _: &mut Handle) -> VfsResult<i32> {
        // A write changes no other byte: pages are written whole, with the bytes they had.
        Ok(vars::SQLITE_IOCAP_POWERSAFE_OVERWRITE)
    }

    fn shm_map(
        &self,
        handle: &mut Handle,
        region_idx: usize,
        region_size: usize,
        extend: bool,
    ) -> VfsResult<Option<NonNull<u8>>> {
        let database = handle.database.as_ref().ok_or(vars::SQLITE_IOERR_SHMMAP)?;
        Ok(database.locks().map_index(handle.number, region_idx, region_size, extend))
    }

    fn shm_lock(&self, handle: &mut Handle, offset: u32, count: u32, mode: ShmLockMode) -> VfsResult<()> {
        let database = handle.database.as_ref().ok_or(vars::SQLITE_IOERR_SHMLOCK)?;
        database.locks().lock_index(handle.number, offset, count, mode)
    }

    fn shm_barrier(&self, handle: &mut Handle) {
        if let Some(database) = &handle.database {
            drop(database.locks());
        }
        fence(Ordering::SeqCst);
    }

    fn shm_unmap(&self, handle: &mut Handle, _delete: bool) -> VfsResult<()> {
        if let Some(database) = &handle.database {
            database.locks().unmap_index(handle.number);
        }
        Ok(())
    }
}

impl CacheVfs {
    /// The length of a file as the cache knows it: data may not be on disk yet.
    fn len_of(&self, path: &str) -> u64 {
        self.tenant.open(path, OpenMode::ReadOnly).map_or(0, |file| file.len())
    }
}
