//! Databases that connections of this process have open.
//!
//! The first connection takes an advisory lock (`flock`) on the database file, which keeps other
//! processes out. The last one writes out what was not synced and gives the lock back. Another
//! process that gets it then reads the data of the last commit, also with `synchronous=OFF`.
//!
//! A database is known by its name and by the file that has it. A file that is renamed or deleted
//! while it is open is another database than the next one with its name.
//!
//! # Locking
//!
//! The list of databases is locked while the last connection leaves: another one that opens the
//! database meanwhile waits, and takes the `flock` itself. The locks in a database come after that.

use crate::disk::{Disk, Identity};
use crate::locks::Locks;
use mglru_cache::{CachedFile, Error};
use sqlite_plugin::vars;
use sqlite_plugin::vfs::VfsResult;
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What SQLite appends to a database's name for its journal and its WAL.
const SUFFIXES: [&str; 2] = ["-journal", "-wal"];

/// The database that a journal or a WAL belongs to.
pub(crate) fn database_of(path: &Path) -> Option<&Path> {
    let text = path.to_str()?;
    SUFFIXES.iter().find_map(|suffix| text.strip_suffix(suffix)).map(Path::new)
}

/// Open databases by path; several files may have had the same one, one after the other.
#[derive(Default)]
pub(crate) struct Databases(Mutex<BTreeMap<Key, Open>>);

/// The path, and the number of the first connection.
type Key = (PathBuf, u64);

struct Open {
    database: Arc<Database>,
    connections: usize,
}

/// State that connections to the same database share.
struct Database {
    locks: Mutex<Locks>,
    /// Files of the database that were closed with changes that were not synced, by path.
    unsynced: Mutex<BTreeMap<PathBuf, CachedFile>>,
    /// Keeps other processes out.
    flock: Option<File>,
}

/// The keys of all databases that were opened by this path.
fn all_of(path: &Path) -> RangeInclusive<Key> {
    (path.to_owned(), 0)..=(path.to_owned(), u64::MAX)
}

impl Database {
    /// Whether this is the database in `file`. Asked anew each time, because a file of an overlay
    /// gets another number when it is first opened for writing.
    fn is(&self, file: Identity) -> bool {
        self.flock.as_ref().is_none_or(|flock| Identity::of(flock).is_ok_and(|mine| mine == file))
    }

    fn unsynced(&self) -> MutexGuard<'_, BTreeMap<PathBuf, CachedFile>> {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes out files with changes that were not synced.
    fn write_out(&self) -> Result<(), Error> {
        let files = std::mem::take(&mut *self.unsynced());
        // Each of them is tried.
        files.into_values().map(|file| file.sync_data_again()).fold(Ok(()), Result::and)
    }
}

/// A connection's use of a database.
pub(crate) struct Lease {
    databases: Arc<Databases>,
    database: Arc<Database>,
    key: Key,
    /// Identifies the connection in the locks.
    number: u64,
}

impl Databases {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, for which this process gets the lock if it does not have it.
    pub(crate) fn open(self: &Arc<Self>, disk: &Disk, path: &Path, number: u64) -> VfsResult<Lease> {
        let mut all = self.lock();
        let file = disk.identity(path).map_err(|_| vars::SQLITE_CANTOPEN)?;
        let known = all.range_mut(all_of(path)).find(|(_, open)| open.database.is(file));
        let (key, database) = match known {
            Some((key, open)) => {
                open.connections += 1;
                (key.clone(), open.database.clone())
            }
            None => {
                let flock = disk.open_for_lock(path).map_err(|_| vars::SQLITE_CANTOPEN)?;
                if let Some(flock) = &flock {
                    flock.try_lock().map_err(|error| match error {
                        TryLockError::WouldBlock => vars::SQLITE_BUSY,
                        TryLockError::Error(_) => vars::SQLITE_IOERR_LOCK,
                    })?;
                }
                let database =
                    Arc::new(Database { locks: Mutex::default(), unsynced: Mutex::default(), flock });
                let key = (path.to_owned(), number);
                all.insert(key.clone(), Open { database: database.clone(), connections: 1 });
                (key, database)
            }
        };
        Ok(Lease { databases: self.clone(), database, key, number })
    }

    /// The database that a journal or a WAL belongs to, if it is open.
    fn database_of(&self, path: &Path) -> Option<Arc<Database>> {
        let all = self.lock();
        // Of several files that had the name, any will do.
        all.range(all_of(database_of(path)?)).next().map(|(_, open)| open.database.clone())
    }

    /// Keeps a closed journal or WAL that was not synced, if its database is open.
    pub(crate) fn keep(&self, path: &Path, file: CachedFile) {
        if let Some(database) = self.database_of(path) {
            database.unsynced().insert(path.to_owned(), file);
        }
    }

    /// Forgets a file that is being deleted.
    pub(crate) fn forget(&self, path: &Path) {
        if let Some(database) = self.database_of(path) {
            database.unsynced().remove(path);
        }
    }
}

impl Lease {
    /// The locks of the database.
    pub(crate) fn locks(&self) -> MutexGuard<'_, Locks> {
        self.database.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Identifies the connection in the locks.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the database file has lost its name. Then a journal or a WAL with the database's
    /// name may be that of another file, which has the name now.
    pub(crate) fn is_moved(&self, disk: &Disk) -> bool {
        !disk.identity(&self.key.0).is_ok_and(|now| self.database.is(now))
    }

    /// Ends a connection. `unsynced`: its file, if that has changes that were not synced.
    ///
    /// # Errors
    /// It is the last one, and the cache cannot write.
    pub(crate) fn end(self, unsynced: Option<CachedFile>) -> Result<(), Error> {
        if let Some(file) = unsynced {
            self.database.unsynced().insert(self.key.0.clone(), file);
        }
        let is_last = self.databases.lock().get(&self.key).is_some_and(|open| open.connections == 1);
        // Here, because other databases can be opened meanwhile, and errors can be returned.
        if is_last { self.database.write_out() } else { Ok(()) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.locks().close(self.number);
        let mut all = self.databases.lock();
        let Some(open) = all.get_mut(&self.key) else { return };
        open.connections -= 1;
        if open.connections > 0 {
            return;
        }
        // Nothing, unless another connection has come and gone since `end`.
        let _ = self.database.write_out();
        if let Some(flock) = &self.database.flock {
            // A child that another thread has just forked holds the lock as well, until it calls
            // exec: closing the file alone would not unlock it yet.
            let _ = flock.unlock();
        }
        all.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A connection that comes while the last one is leaving waits; it does not meet the lock of
    /// its own process.
    #[test]
    fn a_newcomer_waits_for_the_last_connection_to_leave() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db");
        File::create(&path).unwrap();
        let databases = Arc::<Databases>::default();
        let last = databases.open(&Disk::System, &path, 1).unwrap();
        let database = last.database.clone();
        let (left, came) = thread::scope(|scope| {
            // It leaves and stops before it unlocks the file.
            let stop = database.unsynced();
            let leaver = scope.spawn(move || drop(last));
            let is_there =
                |all: &BTreeMap<Key, Open>| all.values().next().is_some_and(|open| open.connections > 0);
            while databases.0.try_lock().is_ok_and(|all| is_there(&all)) {
                thread::yield_now();
            }
            let newcomer = scope.spawn(|| databases.open(&Disk::System, &path, 2).map(drop));
            drop(stop);
            (leaver.join(), newcomer.join())
        });
        assert!(left.is_ok());
        assert_eq!(came.unwrap(), Ok(()));
        // Afterwards other processes can have it.
        File::open(&path).unwrap().try_lock().unwrap();
    }
}
