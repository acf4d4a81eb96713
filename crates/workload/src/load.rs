//! The loads that the project brings along, by name and parameters: one way for `trace generate`, `fio`, scenarios and
//! experiments to ask for them.
//!
//! A load is written as its name and what differs from its defaults, `tpcc:warehouses=2,cache=16m`. Started for some
//! clients (threads of the program that it stands for), it gives each of them the pages that it touches next.

use crate::sweep::Sweep;
use crate::tpcc::Tpcc;
use crate::trace::PageAccess;
use std::fmt;

const PAGE_BYTES: u64 = 4096;
const MIB_PAGES: u64 = (1 << 20) / PAGE_BYTES;
/// Warehouses, arrays and clients are at most as many.
const COUNT_MAX: u64 = 10_000;

/// A load and its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// [`Tpcc`]: files by descriptor (or as the host likes), and the server's own cache in anonymous memory.
    Tpcc {
        /// Each of some 80 MiB; at least 1. `warehouses=`
        warehouses: u32,
        /// The server's own cache; 0: none. `cache=`
        cache_pages: u32,
    },
    /// [`Sweep`]: anonymous memory only.
    Sweep {
        /// At least 4. `arrays=`
        arrays: u32,
        /// Pages of each; at least one for each client. `size=`, of all arrays together
        array_pages: u32,
    },
}

impl Load {
    /// TPC-C-like, four warehouses, 32 MiB of cache.
    pub const TPCC: Load = Load::Tpcc { warehouses: 4, cache_pages: 32 * MIB_PAGES as u32 };
    /// LULESH-like, 96 MiB in ten arrays.
    pub const SWEEP: Load = Load::Sweep { arrays: 10, array_pages: (96 * MIB_PAGES / 10) as u32 };

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Load::Tpcc { .. } => "tpcc",
            Load::Sweep { .. } => "sweep",
        }
    }

    /// Reads a load as [`Load`]'s `Display` writes it.
    ///
    /// # Errors
    /// What makes no sense, and what would.
    pub fn parse(text: &str) -> Result<Load, String> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let mut load = match name {
            "tpcc" => Load::TPCC,
            "sweep" => Load::SWEEP,
            _ => return Err(format!("there is no load `{name}`; there are tpcc and sweep")),
        };
        let mut size = None;
        for parameter in parameters.split(',').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match (&mut load, key) {
                (Load::Tpcc { warehouses, .. }, "warehouses") => *warehouses = count(key, value, 1)?,
                (Load::Tpcc { cache_pages, .. }, "cache") => *cache_pages = pages_32(key, value)?,
                (Load::Sweep { arrays, .. }, "arrays") => *arrays = count(key, value, 4)?,
                (Load::Sweep { .. }, "size") => size = Some(pages(key, value)?),
                (Load::Tpcc { .. }, _) => {
                    return Err(format!("tpcc has no parameter `{key}`; it has warehouses and cache"));
                }
                (Load::Sweep { .. }, _) => {
                    return Err(format!("sweep has no parameter `{key}`; it has size and arrays"));
                }
            }
        }
        if let (Load::Sweep { arrays, array_pages }, pages) = (&mut load, size) {
            let pages = pages.unwrap_or(96 * MIB_PAGES) / u64::from(*arrays);
            *array_pages = u32::try_from(pages).map_err(|_| "`size`: an array has at most 2^32 pages")?;
        }
        Ok(load)
    }

    /// Its touches, of so many clients.
    ///
    /// # Errors
    /// There are too many clients for it, or none.
    pub fn start(self, clients: u32, seed: u64) -> Result<Running, String> {
        if !(1..=COUNT_MAX as u32).contains(&clients) {
            return Err(format!("a load has 1 to {COUNT_MAX} clients, not {clients}"));
        }
        match self {
            Load::Tpcc { warehouses, cache_pages } => {
                Ok(Running::Tpcc(Box::new(Tpcc::new(warehouses, cache_pages, seed))))
            }
            Load::Sweep { array_pages, .. } if array_pages < clients => Err(format!(
                "each of {clients} threads needs at least a page of each array, which have {array_pages}: give the sweep \
                 more size, or fewer threads"
            )),
            Load::Sweep { arrays, array_pages } => {
                let sweep = Sweep { arrays, array_pages, threads: clients, seed };
                let thread = |thread| Box::new(sweep.thread(thread)) as Box<_>;
                Ok(Running::Sweep((0..clients).map(thread).collect()))
            }
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Load::Tpcc { warehouses, cache_pages } => {
                write!(f, "tpcc:warehouses={warehouses},cache={cache_pages}p")
            }
            Load::Sweep { arrays, array_pages } => {
                let pages = u64::from(arrays) * u64::from(array_pages);
                write!(f, "sweep:size={pages}p,arrays={arrays}")
            }
        }
    }
}

/// A load that runs. It is shared by its clients, whose turns decide what comes next.
pub enum Running {
    /// Transactions of one database.
    Tpcc(Box<Tpcc>),
    /// Each thread's part.
    Sweep(Vec<Box<dyn Iterator<Item = PageAccess> + Send>>),
}

impl Running {
    /// Appends what a client touches next, as much as belongs together: a transaction, or one step of a thread. A file's or
    /// array's number is in the high half of a page's; anonymous pages of `tpcc` are the server's cache, and have none.
    ///
    /// # Panics
    /// If there is no such client of a sweep.
    pub fn draw(&mut self, client: usize, touches: &mut Vec<PageAccess>) {
        match self {
            Running::Tpcc(tpcc) => {
                tpcc.next_transaction(touches);
            }
            Running::Sweep(threads) => touches.extend(threads[client].by_ref().take(Sweep::STEP_TOUCHES)),
        }
    }
}

fn count(key: &str, value: &str, least: u64) -> Result<u32, String> {
    let count = value.parse().ok().filter(|count| (least..=COUNT_MAX).contains(count));
    let count = count.ok_or_else(|| format!("`{key}` must be a whole number from {least} to {COUNT_MAX}"))?;
    Ok(count as u32)
}

fn pages(key: &str, value: &str) -> Result<u64, String> {
    let wrong = || format!("`{key}` must be a size such as 32m (k, m and g are powers of 1024, p is a page)");
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = value.split_at(digits);
    let bytes = match unit {
        "" => 1,
        "p" => PAGE_BYTES,
        "k" | "KiB" => 1 << 10,
        "m" | "MiB" => 1 << 20,
        "g" | "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(bytes));
    Ok(bytes.ok_or_else(wrong)? / PAGE_BYTES)
}

fn pages_32(key: &str, value: &str) -> Result<u32, String> {
    u32::try_from(pages(key, value)?).map_err(|_| format!("`{key}` is at most 16 TiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_read_as_they_are_written() {
        for text in ["tpcc:warehouses=2,cache=4096p", "sweep:size=500p,arrays=5"] {
            assert_eq!(Load::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Load::parse("tpcc"), Ok(Load::TPCC));
        assert_eq!(Load::parse("sweep:"), Ok(Load::SWEEP));
        assert_eq!(Load::parse("tpcc:cache=16m"), Load::parse("tpcc:warehouses=4,cache=4096p"));
        assert_eq!(Load::parse("tpcc:cache=0").unwrap().to_string(), "tpcc:warehouses=4,cache=0p");
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        for (text, expected) in [
            ("tpch", "there are tpcc and sweep"),
            ("tpcc:size=1m", "it has warehouses and cache"),
            ("sweep:threads=2", "it has size and arrays"),
            ("tpcc:warehouses=0", "from 1 to 10000"),
            ("tpcc:warehouses", "from 1 to 10000"),
            ("sweep:arrays=3", "from 4"),
            ("tpcc:cache=much", "such as 32m"),
            ("tpcc:cache=99999999999g", "such as 32m"),
            ("tpcc:cache=17179869184k", "16 TiB"),
        ] {
            let error = Load::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let few = Load::parse("sweep:size=40p,arrays=10").unwrap();
        assert!(few.start(4, 1).is_ok_and(|running| matches!(running, Running::Sweep(_))));
        assert!(few.start(5, 1).err().unwrap().contains("fewer threads"));
        assert!(Load::TPCC.start(0, 1).is_err());
    }

    #[test]
    fn a_draw_is_what_belongs_together() {
        let mut touches = Vec::new();
        Load::parse("sweep:size=80p,arrays=4").unwrap().start(2, 1).unwrap().draw(1, &mut touches);
        assert!(touches.len() == 3 && touches.iter().all(|touch| touch.anon && touch.page >> 32 > 0));
        touches.clear();
        Load::parse("tpcc:warehouses=1").unwrap().start(1, 7).unwrap().draw(0, &mut touches);
        let mut expected = Vec::new();
        Tpcc::new(1, 8192, 7).next_transaction(&mut expected);
        assert_eq!(touches, expected);
    }
}
