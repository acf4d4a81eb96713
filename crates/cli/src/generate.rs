//! `mglru trace generate`: the project's own loads as traces, for `replay` and for real kernels.

use crate::error::Failure;
use crate::output::Output;
use crate::progress::Bars;
use crate::size;
use crate::table::count;
use mglru_core::PAGE_BYTES;
use mglru_lab::generate;
use mglru_workload::Load;
use mglru_workload::trace::Converted;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of the action.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    load: Kind,
}

#[derive(clap::Subcommand)]
enum Kind {
    /// A TPC-C-like database load: files by descriptor, the server's own cache in anonymous memory
    Tpcc {
        /// Warehouses, each of some 80 MiB
        #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        warehouses: u32,
        /// The server's own cache; 0: none
        #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = size::parse)]
        cache: u64,
        #[command(flatten)]
        common: Common,
    },
    /// Threads that sweep arrays of anonymous memory in turns, LULESH-like
    Sweep {
        /// All arrays together
        #[arg(long, value_name = "SIZE", default_value = "96MiB", value_parser = size::parse)]
        size: u64,
        /// Arrays
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(4..=1000))]
        arrays: u32,
        /// Threads
        #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
        threads: u32,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(clap::Args)]
struct Common {
    /// The new trace, in the kernel lab's format: its name ends with .bin, or .bin.gz, .bin.xz,
    /// .bin.zst
    #[arg(value_name = "OUT")]
    to: PathBuf,
    /// Accesses, at least: the last transaction is whole
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    accesses: u64,
    /// Decides every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// Runs the action.
///
/// # Errors
/// The load makes no sense, or the trace cannot be written.
pub fn run(args: Args) -> Result<(), Failure> {
    let (load, clients, common) = match args.load {
        Kind::Tpcc { warehouses, cache, common } => {
            let cache_pages = u32::try_from(cache / PAGE_BYTES)
                .map_err(|_| Failure::usage("--cache: at most 16 TiB, which are 2^32 pages"))?;
            (Load::Tpcc { warehouses, cache_pages }, 1, common)
        }
        Kind::Sweep { size, arrays, threads, common } => {
            let array_pages = u32::try_from(size / PAGE_BYTES / u64::from(arrays)).map_err(|_| {
                Failure::usage(format_args!("--size {}: an array has at most 2^32 pages", size::show(size)))
            })?;
            (Load::Sweep { arrays, array_pages }, threads, common)
        }
    };
    let request = generate::Request { load, clients, seed: common.seed, accesses: common.accesses };
    let Converted { accesses, renumbered_pages, .. } =
        generate::write(&request, &common.to, &Bars::default())?;
    let (load, pages) = (load.name(), renumbered_pages.unwrap_or(0));
    let mut output = Output::new(common.json);
    let path = common.to.display();
    output.text(&format!("{path}: {load}, {} accesses to {} pages\n", count(accesses), count(pages)))?;
    output.document(&json!({
        "to": path.to_string(), "load": load, "seed": common.seed, "accesses": accesses, "distinct_pages": pages,
    }))
}
