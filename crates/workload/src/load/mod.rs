//! The built-in loads, by name and parameters. `trace generate`, `fio`, scenarios and experiments
//! all use this list.
//!
//! A load is written as its name and the parameters that differ from the defaults, for example
//! `tpcc:warehouses=2,cache=16m` ([`text`]). It is started for a number of clients, which are the
//! threads of the program that it models, and gives each client its next steps.
//!
//! `tpcc`, `sweep` and `ycsb` have contents and also run on real files. The others are page
//! workloads for the simulator.

mod text;

use crate::PAGE_BYTES;
use crate::compile::{Compile, Compilers};
use crate::file_anon::{FileAnon, Rounds};
use crate::requests::{Requests, Workers};
use crate::select::{Select, Selects};
use crate::sweep::Sweep;
use crate::tpcc::Tpcc;
use crate::trace::PageAccess;
use crate::ycsb::{Letter, Operations, Ycsb};

const MIB_PAGES: u64 = (1 << 20) / PAGE_BYTES;
/// Upper limit of clients per load.
pub(crate) const CLIENTS_MAX: u32 = 10_000;

/// A load and its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// [`Tpcc`]: files, and the server's own cache in anonymous memory. Files are accessed by
    /// descriptor unless the caller chooses otherwise.
    Tpcc {
        /// Number of warehouses, each of about 80 MiB; at least 1. `warehouses=`
        warehouses: u32,
        /// Size of the server's own cache, in pages; 0 for none. `cache=`
        cache_pages: u32,
    },
    /// [`Sweep`]: anonymous memory only.
    Sweep {
        /// Number of arrays; at least 4. `arrays=`
        arrays: u32,
        /// Pages of each array; at least one per client. `size=` gives the total of all arrays.
        array_pages: u32,
    },
    /// YCSB on a document store: a file of leaves and the engine's cache. On real files the caller
    /// provides the store. `workload=`, `records=`, `cache=`, `writes=`, `requests=`
    Ycsb(Ycsb),
    /// Point selects on a database with a buffer pool. `rows=`, `cache=`
    Select(Select),
    /// Requests to workers, each with a heap of its own. `heap=`
    Requests(Requests),
    /// Readers of a mapped file beside tasks that allocate and free memory. `file=`, `anon=`,
    /// `readers=`
    FileAnon(FileAnon),
    /// Compilers: many small files, and heaps that grow and are freed. `sources=`, `heap=`
    Compile(Compile),
}

impl Load {
    /// TPC-C-like: four warehouses and a cache of 32 MiB.
    pub const TPCC: Load = Load::Tpcc { warehouses: 4, cache_pages: 32 * MIB_PAGES as u32 };
    /// LULESH-like: 96 MiB in ten arrays.
    pub const SWEEP: Load = Load::Sweep { arrays: 10, array_pages: (96 * MIB_PAGES / 10) as u32 };
    /// Workload B with 100,000 records in 112 MiB and a cache of 23 MiB: the proportions of the
    /// published run.
    pub const YCSB: Load = Load::Ycsb(Ycsb::new(Letter::B, 100_000, 23 * MIB_PAGES as u32));
    /// 500,000 rows in 112 MiB, and a buffer pool that holds all of them.
    pub const SELECT: Load = Load::Select(Select { rows: 500_000, cache_pages: 112 * MIB_PAGES as u32 });
    /// A heap of 16 MiB per worker.
    pub const REQUESTS: Load = Load::Requests(Requests { heap_pages: 16 * MIB_PAGES as u32 });
    /// The published sizes, in MiB instead of GiB.
    pub const FILE_ANON: Load = Load::FileAnon(FileAnon {
        file_pages: 8 * MIB_PAGES as u32,
        anon_pages: 44 * MIB_PAGES as u32,
        readers: 8,
    });
    /// A tree of 20,000 source files, and 8 MiB per compiler.
    pub const COMPILE: Load = Load::Compile(Compile { sources: 20_000, heap_pages: 8 * MIB_PAGES as u32 });

    /// Name of the load, as it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Load::Tpcc { .. } => "tpcc",
            Load::Sweep { .. } => "sweep",
            Load::Ycsb(_) => "ycsb",
            Load::Select(_) => "select",
            Load::Requests(_) => "requests",
            Load::FileAnon(_) => "file-anon",
            Load::Compile(_) => "compile",
        }
    }

    /// Whether the load has contents and can run on real files.
    pub fn has_contents(self) -> bool {
        matches!(self, Load::Tpcc { .. } | Load::Sweep { .. } | Load::Ycsb(_))
    }

    /// Checks that the load can start for `clients` clients, without allocating its memory.
    ///
    /// # Errors
    /// If the number of clients is too large or too small for this load.
    pub fn check(self, clients: u32) -> Result<(), String> {
        if !(1..=CLIENTS_MAX).contains(&clients) {
            return Err(format!("a load has 1 to {CLIENTS_MAX} clients, not {clients}"));
        }
        match self {
            Load::Sweep { array_pages, .. } if array_pages < clients => Err(format!(
                "each of {clients} threads needs at least a page of each array, which have {array_pages}: give the \
                 sweep more size, or fewer threads"
            )),
            Load::FileAnon(mix) if mix.readers >= clients => Err(format!(
                "{} of {clients} clients read, so no client allocates: give it more clients, or fewer readers",
                mix.readers
            )),
            _ => Ok(()),
        }
    }

    /// Memory of the load itself, in bytes: what its program knows about its records, warehouses
    /// and cached pages, on files and in the simulator. An upper limit at the start; a TPC-C load
    /// that runs for long remembers more orders.
    pub fn memory_bytes(self) -> u64 {
        match self {
            // The server's cache keeps 64 bytes per page.
            Load::Tpcc { warehouses, cache_pages } => {
                u64::from(warehouses) * Tpcc::WAREHOUSE_BYTES + u64::from(cache_pages) * 64
            }
            // Workload E keeps all records in order.
            Load::Ycsb(ycsb) => u64::from(ycsb.records) * if ycsb.letter == Letter::E { 36 } else { 8 },
            _ => 0,
        }
    }

    /// Starts the load for `clients` clients.
    ///
    /// # Errors
    /// If the number of clients is too large or too small for this load.
    pub fn start(self, clients: u32, seed: u64) -> Result<Running, String> {
        self.check(clients)?;
        Ok(match self {
            Load::Tpcc { warehouses, cache_pages } => {
                Running::Tpcc(Box::new(Tpcc::new(warehouses, cache_pages, seed)))
            }
            Load::Sweep { arrays, array_pages } => {
                let sweep = Sweep { arrays, array_pages, threads: clients, seed };
                let thread = |thread| Box::new(sweep.thread(thread)) as Box<_>;
                Running::Sweep((0..clients).map(thread).collect())
            }
            Load::Ycsb(ycsb) => Running::Ycsb(Box::new(Operations::new(ycsb, seed))),
            Load::Select(select) => Running::Select(Box::new(Selects::new(select, seed))),
            Load::Requests(requests) => Running::Requests(Workers::new(requests, clients, seed)),
            Load::FileAnon(mix) => Running::FileAnon(Rounds::new(mix, clients, seed)),
            Load::Compile(compile) => Running::Compile(Compilers::new(compile, seed)),
        })
    }
}

/// The next step of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Touch a page.
    Touch(PageAccess),
    /// Begin a request of several pages, which are the next touches. Readahead needs to know: the
    /// pages of one read are no sequential reader.
    Request {
        /// Number of pages.
        pages: u32,
    },
    /// Compute, which needs a CPU.
    Compute {
        /// Duration in nanoseconds.
        nanos: u64,
    },
    /// Wait.
    Rest {
        /// Duration in nanoseconds.
        nanos: u64,
    },
    /// Free anonymous memory.
    Release {
        /// First page.
        page: u64,
        /// Number of pages.
        pages: u32,
    },
    /// Sync a file, and wait for it.
    Sync {
        /// Any page of the file.
        page: u64,
    },
}

/// A running load. Its clients share it; the order of their turns determines the next steps.
pub enum Running {
    /// Transactions of one database.
    Tpcc(Box<Tpcc>),
    /// One endless stream of touches per thread.
    Sweep(Vec<Box<dyn Iterator<Item = PageAccess> + Send>>),
    /// Operations on one store.
    Ycsb(Box<Operations>),
    /// Selects on one database.
    Select(Box<Selects>),
    /// Requests of each worker.
    Requests(Workers),
    /// Readers and allocators.
    FileAnon(Rounds),
    /// Compilers of one tree.
    Compile(Compilers),
}

impl Running {
    /// Appends the next unit of work of a client: a transaction, an operation, a request or one
    /// step of a thread. The high half of a page number is the number of the file or array.
    /// Anonymous pages of `tpcc` belong to the server's cache and have no such number.
    ///
    /// # Panics
    /// If the load has a part per client, and `client` is not one of them.
    pub fn draw(&mut self, client: usize, steps: &mut Vec<Step>) {
        match self {
            Running::Tpcc(tpcc) => {
                let mut touches = Vec::new();
                tpcc.next_transaction(&mut touches);
                steps.extend(touches.into_iter().map(Step::Touch));
            }
            Running::Sweep(threads) => {
                steps.extend(threads[client].by_ref().take(Sweep::STEP_TOUCHES).map(Step::Touch));
            }
            Running::Ycsb(operations) => operations.next(steps),
            Running::Select(selects) => selects.next(steps),
            Running::Requests(workers) => workers.next(client, steps),
            Running::FileAnon(rounds) => rounds.next(client, steps),
            Running::Compile(compilers) => compilers.next(client, steps),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_clients_are_refused() {
        let few = Load::parse("sweep:size=40p,arrays=10").unwrap();
        assert!(few.start(4, 1).is_ok_and(|running| matches!(running, Running::Sweep(_))));
        assert!(few.start(5, 1).err().unwrap().contains("fewer threads"));
        assert!(Load::TPCC.start(0, 1).is_err());
        assert!(Load::FILE_ANON.start(8, 1).err().unwrap().contains("fewer readers"));
    }

    #[test]
    fn a_draw_is_one_sweep_step_or_one_transaction() {
        let mut steps = Vec::new();
        Load::parse("sweep:size=80p,arrays=4").unwrap().start(2, 1).unwrap().draw(1, &mut steps);
        let anonymous =
            |step: &Step| matches!(step, Step::Touch(touch) if touch.anon && touch.page >> 32 > 0);
        assert!(steps.len() == 3 && steps.iter().all(anonymous));
        steps.clear();
        Load::parse("tpcc:warehouses=1").unwrap().start(1, 7).unwrap().draw(0, &mut steps);
        let mut expected = Vec::new();
        Tpcc::new(1, 8192, 7).next_transaction(&mut expected);
        assert!(steps.into_iter().eq(expected.into_iter().map(Step::Touch)));
    }
}
