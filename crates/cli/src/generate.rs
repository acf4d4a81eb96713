//! `mglru trace generate`: generated loads as traces, for `replay` and for real kernels.

use crate::error::Failure;
use crate::output::Output;
use crate::progress::Bars;
use crate::size;
use crate::table::counted;
use crate::trace_options;
use mglru_core::PAGE_BYTES;
use mglru_lab::generate;
use mglru_workload::Load;
use mglru_workload::trace::Converted;
use serde_json::json;
use std::path::PathBuf;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    load: Kind,
}

const EXAMPLES: &str = "\
Examples:
  mglru trace generate tpcc tpcc.bin.zst --accesses 5000000
  mglru trace generate tpcc small.bin --warehouses 1 --cache 8MiB
  mglru trace generate sweep sweep.bin.zst --size 96MiB --threads 8";
const TPCC: &str = "\
Examples:
  mglru trace generate tpcc tpcc.bin.zst
  mglru trace generate tpcc small.bin --warehouses 1 --cache 8MiB --accesses 100000
  mglru trace generate tpcc other.bin.zst --seed 2 --json";
const SWEEP: &str = "\
Examples:
  mglru trace generate sweep sweep.bin.zst
  mglru trace generate sweep small.bin --size 16MiB --arrays 4 --threads 2
  mglru trace generate sweep other.bin.zst --seed 2 --json";

#[derive(clap::Subcommand)]
enum Kind {
    /// A database load like TPC-C: files by descriptor, and the server's cache in anonymous memory.
    #[command(after_help = TPCC)]
    Tpcc {
        /// Number of warehouses, each of about 80 MiB.
        #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        warehouses: u32,
        /// Size of the server's cache; 0 for none.
        #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = size::parse)]
        cache: u64,
        #[command(flatten)]
        common: Common,
    },
    /// Threads that sweep over arrays of anonymous memory, like LULESH.
    #[command(after_help = SWEEP)]
    Sweep {
        /// Size of all arrays together.
        #[arg(long, value_name = "SIZE", default_value = "96MiB", value_parser = size::parse)]
        size: u64,
        /// Number of arrays.
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(4..=1000))]
        arrays: u32,
        /// Number of threads.
        #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
        threads: u32,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(clap::Args)]
struct Common {
    /// The new trace, in the kernel lab's format: .bin, .bin.gz, .bin.xz or .bin.zst; - is stdout.
    #[arg(value_name = "OUT", value_parser = trace_options::output())]
    to: PathBuf,
    /// Least number of accesses; tpcc ends with a whole transaction.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    accesses: u64,
    /// Seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one JSON document.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// The load is invalid, or the trace cannot be written.
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
    let request = generate::TraceRequest { load, clients, seed: common.seed, accesses: common.accesses };
    let Converted { accesses, renumbered_pages, .. } =
        generate::write(&request, &common.to, &Bars::default())?;
    let (load, pages) = (load.name(), renumbered_pages.unwrap_or(0));
    let mut output = Output::beside(&common.to, common.json);
    let path = common.to.display();
    let (accessed, distinct) = (counted(accesses, ["access", "accesses"]), counted(pages, ["page", "pages"]));
    output.text(&format!("{path}: {load}, {accessed} to {distinct}\n"))?;
    output.document(&json!({
        "to": path.to_string(), "load": load, "seed": common.seed, "accesses": accesses, "distinct_pages": pages,
    }))
}
