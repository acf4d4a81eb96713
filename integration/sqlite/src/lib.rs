//! SQLite on mglru's page cache.
//!
//! [`register`] adds a virtual file system to the SQLite of this process. Databases that are opened
//! with it, by rusqlite or any other binding, read and write through a page cache: one memory
//! budget for many databases and other files, with a tenant's limits and protection.
//!
//! ```
//! use mglru_cache::PageCache;
//! use rusqlite::{Connection, OpenFlags};
//!
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("db");
//! let cache = PageCache::builder(64 << 20).tenant("sql", 32 << 20).build()?;
//! mglru_sqlite::register("mglru-doc", cache.tenant("sql")?)?;
//! let database = Connection::open_with_flags_and_vfs(&path, OpenFlags::default(), "mglru-doc")?;
//! database.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (7);")?;
//! assert_eq!(database.query_row("SELECT a FROM t", [], |row| row.get::<_, i64>(0))?, 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! SQLite has a cache per connection, too: make it small (`PRAGMA cache_size`), so that pages are
//! not in memory twice.
//!
//! # What works
//!
//! Rollback journals in every mode, and WAL with any number of connections of this process; locks
//! are those of SQLite. The index of a WAL is memory of the process, 32 KiB for each 4,096 pages in
//! the WAL, outside of the cache's budget.
//!
//! # What is on stable storage
//!
//! A commit is where SQLite says that it is after a power loss, also if the process is killed. What
//! the process wrote and did not sync is in its own memory only, so a killed process is to SQLite
//! what a power loss is. With SQLite's own file system the kernel would still have that data.
//! Therefore choose `synchronous` as for power losses:
//!
//! * `FULL`: no commit is lost.
//! * `NORMAL`, with a WAL: a killed process may lose its last commits. The database is not damaged.
//! * `OFF`: a killed process can damage the database.
//!
//! The last connection writes out what was not synced when it is closed, before another process can
//! have the database.
//!
//! # Other processes
//!
//! One process at a time has a database open: an advisory lock (`flock`) keeps other processes that
//! use this file system out. Programs that use SQLite's own file system do not see that lock: do
//! not let them open the database meanwhile.

mod databases;
mod disk;
mod locks;
#[cfg(test)]
mod power_tests;
mod vfs;

use mglru_cache::Tenant;
use std::ffi::CString;
use std::io;

/// Registers a virtual file system whose files belong to `tenant`. Open databases with its name:
/// rusqlite's `open_with_flags_and_vfs`, or `vfs=` in a URI. It stays registered, and keeps the
/// cache's memory, until the process ends. Keep the [`mglru_cache::PageCache`], too: once it is
/// dropped, no database can be opened.
///
/// # Errors
/// The name contains a zero byte, or SQLite refuses.
pub fn register(name: &str, tenant: Tenant) -> io::Result<()> {
    register_on(name, tenant, disk::Disk::System)
}

fn register_on(name: &str, tenant: Tenant, disk: disk::Disk) -> io::Result<()> {
    let text = name.to_owned();
    let name = CString::new(name).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let options = sqlite_plugin::vfs::RegisterOpts { make_default: false };
    match sqlite_plugin::vfs::register_static(name, vfs::CacheVfs::new(tenant, disk), options) {
        Ok(_) => Ok(()),
        Err(code) => {
            Err(io::Error::other(format!("SQLite refused to register the VFS {text}: error {code}")))
        }
    }
}
