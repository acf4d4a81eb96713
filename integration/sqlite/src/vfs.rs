//! The virtual file system: SQLite's files as files of the page cache.
//!
//! # Durability
//!
//! `xSync` writes all dirty pages of a file and waits until they are on stable storage. Names of
//! files are synced, too: after a file is deleted, and with the first sync of a new file. The cache
//! writes pages in any order before that, so no promise about order is made to SQLite.

use crate::databases::{Databases, Lease, database_of};
use crate::disk::Disk;
use mglru_cache::{CachedFile, Error, OpenMode, Tenant};
use sqlite_plugin::flags::{self, AccessFlags, CreateMode, LockLevel, OpenOpts, ShmLockMode};
use sqlite_plugin::vars;
use sqlite_plugin::vfs::{SqliteErr, Vfs, VfsHandle, VfsResult};
use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

pub(crate) struct CacheVfs {
    tenant: Tenant,
    disk: Disk,
    databases: Arc<Databases>,
    /// The number of the next connection.
    next: AtomicU64,
}

/// An open file of a connection.
pub(crate) struct Handle {
    file: CachedFile,
    path: PathBuf,
    read_only: bool,
    /// The file has lost its name: its data ends when it is closed.
    is_temporary: bool,
    /// The file's name may not be on stable storage yet.
    is_new: bool,
    /// The file was changed since it was synced.
    is_unsynced: bool,
    /// For a database file.
    lease: Option<Lease>,
}

impl VfsHandle for Handle {
    fn readonly(&self) -> bool {
        self.read_only
    }

    fn in_memory(&self) -> bool {
        false
    }
}

/// Whether a file may not be written, or not be opened at all.
fn is_read_only(error: io::ErrorKind) -> bool {
    matches!(error, io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// SQLite's code for an error during an operation whose own code is `otherwise`.
fn code(error: &Error, otherwise: SqliteErr) -> SqliteErr {
    if matches!(error, Error::TooManyFiles { .. }) {
        // Metadata of files takes as much of the budget as it may: the disk is not full.
        return vars::SQLITE_IOERR_NOMEM;
    }
    match error.kind() {
        io::ErrorKind::OutOfMemory => vars::SQLITE_IOERR_NOMEM,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            vars::SQLITE_FULL
        }
        kind if is_read_only(kind) => vars::SQLITE_READONLY,
        _ => otherwise,
    }
}

impl CacheVfs {
    pub(crate) fn new(tenant: Tenant, disk: Disk) -> CacheVfs {
        CacheVfs { tenant, disk, databases: Arc::default(), next: AtomicU64::new(1) }
    }

    /// The length of a file as the cache knows it: data may not be on disk yet.
    fn len_of(&self, path: &str) -> u64 {
        self.tenant.open(path, OpenMode::ReadOnly).map_or(0, |file| file.len())
    }
}

impl Vfs for CacheVfs {
    type Handle = Handle;

    fn canonical_path<'a>(&self, path: Cow<'a, str>) -> VfsResult<Cow<'a, str>> {
        // sqlite-plugin replaces what is not UTF-8 by this character, which names another file.
        if path.contains(char::REPLACEMENT_CHARACTER) {
            return Err(vars::SQLITE_CANTOPEN);
        }
        // Two names of one database must have the same locks.
        let path = self.disk.canonical(Path::new(&*path)).map_err(|_| vars::SQLITE_CANTOPEN)?;
        Ok(path.to_str().ok_or(vars::SQLITE_CANTOPEN)?.to_owned().into())
    }

    fn open(&self, path: Option<&str>, opts: OpenOpts) -> VfsResult<Handle> {
        let has_name = path.is_some();
        let (path, is_temporary) = match path {
            Some(path) => (PathBuf::from(path), opts.delete_on_close()),
            None => (self.disk.create_temporary().map_err(|_| vars::SQLITE_CANTOPEN)?, true),
        };
        let kind = opts.kind();
        let is_journal = matches!(
            kind,
            flags::OpenKind::MainJournal | flags::OpenKind::SuperJournal | flags::OpenKind::Wal
        );
        let create = || {
            self.disk.create(&path, database_of(&path)).map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied if is_journal => vars::SQLITE_READONLY_DIRECTORY,
                _ => vars::SQLITE_CANTOPEN,
            })
        };
        let (mode, is_new) = match opts.mode() {
            flags::OpenMode::ReadOnly => (OpenMode::ReadOnly, false),
            flags::OpenMode::ReadWrite { create: CreateMode::None } => (OpenMode::ReadWrite, false),
            // A journal that is there may be that of a process that was killed before it synced the
            // name, or of a connection that never syncs.
            flags::OpenMode::ReadWrite { create: CreateMode::Create } => {
                (OpenMode::ReadWrite, create()? || is_journal)
            }
            flags::OpenMode::ReadWrite { create: CreateMode::MustCreate } => match !has_name || create()? {
                true => (OpenMode::ReadWrite, true),
                false => return Err(vars::SQLITE_CANTOPEN),
            },
        };
        // Before the cache opens the file, so that it finds what another process has just written.
        let lease = match kind {
            flags::OpenKind::MainDb => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                Some(self.databases.open(&self.disk, &path, number)?)
            }
            _ => None,
        };
        let mut read_only = mode == OpenMode::ReadOnly;
        let opened = match self.tenant.open(&path, mode) {
            // As SQLite's own: what may not be written is opened for reading.
            Err(error) if !read_only && is_read_only(error.kind()) => {
                read_only = true;
                self.tenant.open(&path, OpenMode::ReadOnly)
            }
            opened => opened,
        };
        let file = opened.map_err(|error| match error.kind() {
            kind if is_read_only(kind) => vars::SQLITE_CANTOPEN,
            _ => code(&error, vars::SQLITE_CANTOPEN),
        })?;
        if lease.as_ref().is_some_and(|lease| lease.is_moved(&self.disk)) {
            // While it was opened, so the cache may have another file than the one that is locked.
            return Err(vars::SQLITE_CANTOPEN);
        }
        if is_temporary {
            // At once: a process that is killed leaves no file behind.
            self.disk.remove(&path).map_err(|_| vars::SQLITE_CANTOPEN)?;
        }
        Ok(Handle { file, path, read_only, is_temporary, is_new, is_unsynced: false, lease })
    }

    fn delete(&self, path: &str) -> VfsResult<()> {
        let name = Path::new(path);
        // Opened before it loses its name, and changed afterwards: a journal that stays undoes a
        // commit that SQLite reports as failed.
        let file = self.tenant.open(path, OpenMode::ReadWrite);
        self.disk.remove(name).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => vars::SQLITE_IOERR_DELETE_NOENT,
            _ => vars::SQLITE_IOERR_DELETE,
        })?;
        if let Ok(file) = file {
            // Its dirty pages are of no use any more: the cache would write them first.
            let _ = file.truncate(0);
        }
        self.databases.forget(name);
        self.disk.sync_directory_of(name).map_err(|_| vars::SQLITE_IOERR_DIR_FSYNC)
    }

    fn access(&self, path: &str, flags: AccessFlags) -> VfsResult<bool> {
        let name = Path::new(path);
        Ok(match (self.disk.len(name), flags) {
            (Err(_), _) => false,
            // As SQLite's own: an empty file is as good as none.
            (Ok(len), AccessFlags::Exists) => len > 0 || self.len_of(path) > 0,
            (Ok(_), AccessFlags::Read) => self.disk.may_use(name, false),
            (Ok(_), AccessFlags::ReadWrite) => self.disk.may_use(name, true),
        })
    }

    fn file_size(&self, handle: &mut Handle) -> VfsResult<usize> {
        Ok(handle.file.len() as usize)
    }

    fn truncate(&self, handle: &mut Handle, size: usize) -> VfsResult<()> {
        handle.is_unsynced = true;
        handle.file.truncate(size as u64).map_err(|error| code(&error, vars::SQLITE_IOERR_TRUNCATE))
    }

    fn write(&self, handle: &mut Handle, offset: usize, data: &[u8]) -> VfsResult<usize> {
        handle.is_unsynced = true;
        handle.file.write_at(data, offset as u64).map_err(|error| code(&error, vars::SQLITE_IOERR_WRITE))
    }

    fn read(&self, handle: &mut Handle, offset: usize, data: &mut [u8]) -> VfsResult<usize> {
        handle.file.read_at(data, offset as u64).map_err(|error| code(&error, vars::SQLITE_IOERR_READ))
    }

    fn lock(&self, handle: &mut Handle, level: LockLevel) -> VfsResult<()> {
        let Some(lease) = &handle.lease else { return Ok(()) };
        // A connection that writes may create and delete a journal, and delete a WAL, by the
        // database's name.
        let writes = !matches!(level, LockLevel::Unlocked | LockLevel::Shared);
        if writes && lease.is_moved(&self.disk) {
            return Err(vars::SQLITE_READONLY_DBMOVED);
        }
        lease.locks().lock(lease.number(), level)
    }

    fn unlock(&self, handle: &mut Handle, level: LockLevel) -> VfsResult<()> {
        if let Some(lease) = &handle.lease {
            lease.locks().unlock(lease.number(), level);
        }
        Ok(())
    }

    fn check_reserved_lock(&self, handle: &mut Handle) -> VfsResult<bool> {
        Ok(handle.lease.as_ref().is_some_and(|lease| lease.locks().is_reserved()))
    }

    fn sync(&self, handle: &mut Handle) -> VfsResult<()> {
        // For an earlier failure that is over, SQLite would undo a commit that is on the disk.
        handle.file.sync_data_again().map_err(|error| code(&error, vars::SQLITE_IOERR_FSYNC))?;
        handle.is_unsynced = false;
        if std::mem::take(&mut handle.is_new) && !handle.is_temporary {
            self.disk.sync_directory_of(&handle.path).map_err(|_| vars::SQLITE_IOERR_DIR_FSYNC)?;
        }
        Ok(())
    }

    fn close(&self, handle: Handle) -> VfsResult<()> {
        let Handle { file, path, is_temporary, is_unsynced, lease, .. } = handle;
        if is_temporary {
            let _ = file.truncate(0);
            return Ok(());
        }
        match lease {
            Some(lease) => {
                let ended = lease.end(is_unsynced.then_some(file));
                ended.map_err(|error| code(&error, vars::SQLITE_IOERR_FSYNC))
            }
            None => {
                if is_unsynced {
                    self.databases.keep(&path, file);
                }
                Ok(())
            }
        }
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
        let lease = handle.lease.as_ref().ok_or(vars::SQLITE_IOERR_SHMMAP)?;
        Ok(lease.locks().map_index(lease.number(), region_idx, region_size, extend))
    }

    fn shm_lock(&self, handle: &mut Handle, offset: u32, count: u32, mode: ShmLockMode) -> VfsResult<()> {
        let lease = handle.lease.as_ref().ok_or(vars::SQLITE_IOERR_SHMLOCK)?;
        lease.locks().lock_index(lease.number(), offset, count, mode)
    }

    fn shm_barrier(&self, handle: &mut Handle) {
        if let Some(lease) = &handle.lease {
            drop(lease.locks());
        }
        fence(Ordering::SeqCst);
    }

    fn shm_unmap(&self, handle: &mut Handle, _delete: bool) -> VfsResult<()> {
        if let Some(lease) = &handle.lease {
            lease.locks().unmap_index(lease.number());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_cache::PageCache;
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;

    /// It was emptied before: a transaction whose commit SQLite reports as failed could not be
    /// undone.
    #[test]
    fn a_journal_that_cannot_be_deleted_keeps_its_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db-journal");
        fs::write(&path, [7; 5000]).unwrap();
        let cache = PageCache::builder(1 << 20).build().unwrap();
        let vfs = CacheVfs::new(cache.tenant("").unwrap(), Disk::System);
        // By this name the file can be opened, but the name cannot be removed.
        let held = File::open(&path).unwrap();
        let name = format!("/proc/self/fd/{}", held.as_raw_fd());
        assert_eq!(vfs.delete(&name), Err(vars::SQLITE_IOERR_DELETE));
        assert!(fs::read(&path).unwrap() == [7; 5000], "it is as it was");
        assert_eq!(vfs.delete(path.to_str().unwrap()), Ok(()));
        assert!(!path.exists());
        assert_eq!(vfs.delete(path.to_str().unwrap()), Err(vars::SQLITE_IOERR_DELETE_NOENT));
    }
}
