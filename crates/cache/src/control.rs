//! Control files of the cache, in the kernel's formats, read and written by path.

use crate::cache::PageCache;
use crate::error::Error;
use crate::shared::Shared;
use mglru_core::{ControlStep, ControlWrite, Host, Throttle};
use std::fmt;
use std::sync::Arc;

/// Reads and writes control files.
///
/// - `memory.*` of each tenant by its path, such as `a/b/memory.stat`; of the root, such as
///   `memory.stat`;
/// - `lru_gen`, `lru_gen_full`, `lru_gen/enabled`, `lru_gen/min_ttl_ms` and `vmstat`.
///
/// Values are the kernel's: sizes in bytes, optionally with the suffix K, M, G or T; `max` for no
/// limit.
///
/// ```
/// # fn main() -> Result<(), mglru_cache::Error> {
/// # let cache = mglru_cache::PageCache::builder(8 << 20).tenant("a", 4 << 20).build()?;
/// let control = cache.control();
/// control.write("a/memory.high", "3M")?;
/// assert_eq!(control.read("a/memory.high")?.trim_end(), "3145728");
/// assert!(control.read("a/memory.stat")?.contains("workingset_refault_file 0\n"));
/// // Nothing is in memory yet that could be reclaimed.
/// assert!(control.write("memory.reclaim", "1M swappiness=0").is_err());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

impl PageCache {
    /// Access to the control files.
    pub fn control(&self) -> Control {
        Control { shared: self.shared.clone() }
    }
}

impl Control {
    /// The text of a file. Statistics such as `memory.stat` include all tenants below this one.
    ///
    /// # Errors
    /// [`Error::Control`]: the file or tenant does not exist, or the file is write-only.
    pub fn read(&self, path: &str) -> Result<String, Error> {
        self.shared.core.read_control(path, self.shared.host.now()).map_err(Error::Control)
    }

    /// Writes a value to a file and waits until it has taken effect. A write to `memory.reclaim`,
    /// or one that lowers a limit, waits until reclaim is done.
    ///
    /// # Errors
    /// [`Error::Control`]: the file or tenant does not exist; the value is invalid and nothing
    /// changed; or less was reclaimed than requested. [`Error::Closed`]: the cache was closed
    /// meanwhile.
    pub fn write(&self, path: &str, value: &str) -> Result<(), Error> {
        let shared = &self.shared;
        let write = shared.core.write_control(path, value, shared.cpu()).map_err(Error::Control)?;
        let step = |write: &mut ControlWrite| match write.step(&shared.core, &shared.host) {
            Ok(ControlStep::More) => Ok(Some(None)),
            Ok(ControlStep::Wait(throttle)) => Ok(Some(Some(throttle))),
            Ok(ControlStep::Done) => Ok(None),
            Err(error) => Err(Error::Control(error)),
        };
        shared.run_steps(write, step, |write| write.cancel(&shared.core, &shared.host))
    }

    /// Lists a tenant's files, then its children, each with a trailing slash. The empty path is the
    /// root, which also has the system-wide files.
    ///
    /// # Errors
    /// [`Error::Control`]: the tenant does not exist.
    pub fn list(&self, path: &str) -> Result<Vec<String>, Error> {
        self.shared.core.list_control(path).map_err(Error::Control)
    }
}

impl Shared {
    /// Calls `step` on the calling thread until it returns `None` or an error, and waits between
    /// calls as `step` asks. Calls `cancel` if the cache is closed before.
    pub(crate) fn run_steps<W>(
        &self,
        mut work: W,
        mut step: impl FnMut(&mut W) -> Result<Option<Option<Throttle>>, Error>,
        cancel: impl FnOnce(W),
    ) -> Result<(), Error> {
        loop {
            if let Err(closed) = self.check_open() {
                cancel(work);
                return Err(closed);
            }
            let rings_before = self.host.progress.rings();
            let next = step(&mut work);
            self.submit_swap_outs();
            self.reap_victims();
            match next? {
                None => return Ok(()),
                Some(None) => {}
                Some(Some(throttle)) => self.park(throttle, rings_before),
            }
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("cache", &self.shared.number).finish_non_exhaustive()
    }
}
