//! The virtual file system of `mglru-sqlite` as the default one of a C program. The program is
//! linked with this library, and with an SQLite compiled with `SQLITE_EXTRA_INIT=mglru_extra_init`.

use mglru_cache::PageCache;
use std::error::Error;
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// The budget of the cache, in bytes: a number in the environment. Without it, the program keeps
/// SQLite's own file system.
const BUDGET: &str = "MGLRU_SQLITE_BUDGET";

unsafe extern "C" {
    fn sqlite3_vfs_find(name: *const c_char) -> *mut c_void;
    fn sqlite3_vfs_register(vfs: *mut c_void, make_default: c_int) -> c_int;
}

/// Called by SQLite at the end of each initialisation. Returns SQLite's code for success or error.
#[unsafe(no_mangle)]
pub extern "C" fn mglru_extra_init(_: *const c_char) -> c_int {
    // The cache ends with the process.
    static CACHE: OnceLock<Option<PageCache>> = OnceLock::new();
    let cache = CACHE.get_or_init(|| register().unwrap_or_else(|error| panic!("mglru: {error}")));
    match cache {
        // SAFETY: the name ends with a zero byte, and SQLite is initialised.
        Some(_) => unsafe { sqlite3_vfs_register(sqlite3_vfs_find(c"mglru".as_ptr()), 1) },
        None => 0,
    }
}

/// Makes the cache and registers its file system. `None`: there is no budget.
fn register() -> Result<Option<PageCache>, Box<dyn Error>> {
    let Some(budget) = std::env::var_os(BUDGET) else { return Ok(None) };
    let budget = budget.to_str().and_then(|text| text.parse().ok());
    let budget = budget.ok_or_else(|| format!("{BUDGET} is not a number of bytes"))?;
    let cache = PageCache::builder(budget).build()?;
    mglru_sqlite::register("mglru", cache.tenant("")?)?;
    Ok(Some(cache))
}
