//! `mglru mount`: a directory mounted with its files' content in the cache.

use crate::cache_options::{CacheOptions, with_mechanisms};
use crate::error::Failure;
use crate::size;
use mglru_mount::{Mount, Options, Unmounted};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  mglru mount /srv/data /mnt/data --memory 1GiB
  mglru mount /srv/data /mnt/data --memory 256MiB --preset linux-6.12
  mglru mount ~/src /mnt/src --memory 64MiB --threads 4

Runs until it is interrupted, or until `umount MOUNTPOINT`, and then writes everything back. Locks,
mapped files and what a crash leaves: docs/mount.md.";

/// Mount a directory with its files' content in the cache, for unmodified programs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, after_long_help = with_mechanisms(EXAMPLES))]
pub struct Args {
    /// The directory with the files.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Where programs find the files: an empty directory outside of DIR.
    #[arg(value_name = "MOUNTPOINT")]
    mountpoint: PathBuf,
    /// Threads that answer requests, and so requests in progress at once.
    #[arg(long, value_name = "N", default_value_t = Options::default().threads)]
    threads: usize,
    #[command(flatten)]
    cache: CacheOptions,
}

/// An error of the mount, with its exit status.
fn failure(error: mglru_mount::Error) -> Failure {
    match error {
        mglru_mount::Error::Usage(text) => Failure::Usage(text),
        mglru_mount::Error::Work(text) => Failure::Work(text),
    }
}

pub fn run(args: Args) -> Result<(), Failure> {
    let budget = args.cache.budget();
    let (builder, mechanisms) = args.cache.builder(budget)?;
    let cache = builder.build()?;
    let options = Options { threads: args.threads, ..Options::default() };
    let mut mount = Mount::new(&args.directory, &args.mountpoint, cache, &options).map_err(failure)?;
    let unmounter = mount.unmounter();
    let at = args.mountpoint.display().to_string();
    ctrlc::set_handler(move || match unmounter.unmount() {
        Ok(Unmounted::Now) => {}
        Ok(Unmounted::WhenClosed) => {
            eprintln!("mglru: programs have files in {at} open; the mount ends when they close them");
        }
        Err(error) => eprintln!("mglru: {error}"),
    })
    .map_err(Failure::work)?;
    eprintln!(
        "mglru: {} is mounted at {} with {} of cache ({}); interrupt to unmount",
        args.directory.display(),
        args.mountpoint.display(),
        size::show(budget.bytes),
        mechanisms.name(),
    );
    mount.serve().map_err(failure)?;
    eprintln!("mglru: {} is unmounted, and everything is written", args.mountpoint.display());
    Ok(())
}
