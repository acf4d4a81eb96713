//! Compares mglru's page cache in one run with its alternatives: the kernel's `mmap` and `pread`,
//! fio, an array in huge pages, SQLite's page cache, and the libraries quick_cache, moka and foyer.
//!
//! ```sh
//! cargo run --release --manifest-path bench-compare/Cargo.toml               # tables; --quick takes a minute
//! cargo run --release --manifest-path bench-compare/Cargo.toml -- --json     # one JSON document
//! ```
//!
//! [`hits`], [`misses`], [`pressure`] and [`neighbours`] measure, using [`measure`]; [`report`] and
//! [`plot`] present the results. The file is created in `TMPDIR`, which thereby selects the device.

mod counters;
mod file;
mod hits;
mod measure;
mod memory;
mod misses;
mod neighbours;
mod plot;
mod pressure;
mod report;
mod sqlite;

use clap::Parser;
use file::DataFile;
use measure::Effort;
use report::Report;
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The reason for a missing result, as text.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Memory left free for other processes.
const MEMORY_LEFT_BYTES: u64 = 1 << 30;
/// Minimum number of pages; the hot pages of two tenants must be a part of them.
const PAGES_MIN: u64 = 1 << 16;

/// Compare mglru's page cache with mmap, pread, fio, SQLite's page cache and library caches, side
/// by side in one run.
#[derive(Parser)]
#[command(name = "bench-compare", version)]
struct Arguments {
    /// Print one JSON document instead of tables.
    #[arg(long)]
    json: bool,
    /// Take fewer and shorter samples: about a minute in total.
    #[arg(long)]
    quick: bool,
    /// Measure one part: hits, misses, reads with memory for an eighth of the pages, or hits beside
    /// a busy neighbour.
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
    /// Resident pages of 4 KiB: a power of two, at least 65536; reduced if memory is short.
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = pages)]
    pages: u64,
    /// Numbers of threads by which hits and reads under pressure are measured; some ratios need 1
    /// and 2.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 2], value_parser = threads)]
    threads: Vec<usize>,
    /// Samples of each way, at least 5.
    #[arg(long, value_name = "N", value_parser = rounds)]
    rounds: Option<usize>,
    /// Write a bar chart of the medians.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

/// A part of the measurements.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Hits,
    Misses,
    Pressure,
    Neighbours,
}

/// Parses `--pages`. Hot pages are spread by a multiplication that reaches every page only of a
/// power of two.
fn pages(text: &str) -> Result<u64, String> {
    let pages = text.parse().ok().filter(|&pages: &u64| pages.is_power_of_two() && pages >= PAGES_MIN);
    pages.ok_or_else(|| format!("not a power of two from {PAGES_MIN} on"))
}

fn threads(text: &str) -> Result<usize, String> {
    let threads = text.parse().ok().filter(|threads| (1..=1024).contains(threads));
    threads.ok_or_else(|| "not a number from 1 to 1024".to_owned())
}

fn rounds(text: &str) -> Result<usize, String> {
    let rounds = text.parse().ok().filter(|&rounds| rounds >= 5);
    rounds.ok_or_else(|| "not a number from 5 on".to_owned())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench-compare: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let effort = effort(arguments);
    let (mut notes, mut failures) = (Vec::new(), Vec::new());
    let pages = affordable(arguments.pages, &mut notes)?;
    eprintln!("laying out {} MiB in {}", pages >> 8, std::env::temp_dir().display());
    let data = DataFile::lay_out(pages)?;
    let mut figures = Vec::new();
    let takes_part = |part| arguments.only.is_none_or(|only| only == part);
    if takes_part(Part::Hits) {
        eprintln!("hits of {pages} pages, {} rounds", effort.hit_rounds);
        figures.extend(hits::measure(&data, effort, &arguments.threads, &mut notes)?);
    }
    if takes_part(Part::Misses) {
        eprintln!("misses");
        figures.extend(misses::measure(&data, effort, &mut notes)?);
    }
    if takes_part(Part::Pressure) {
        eprintln!("reads under pressure");
        figures.extend(pressure::measure(effort, &arguments.threads, &mut notes)?);
    }
    if takes_part(Part::Neighbours) {
        eprintln!("hits beside others");
        figures.extend(neighbours::tenants(&data, effort, &mut notes)?);
        figures.extend(neighbours::reclaim(&data, effort, &mut notes, &mut failures)?);
        figures.extend(neighbours::cost_of_reclaim(&data, effort)?);
    }
    let report = Report { figures };
    if let Some(path) = &arguments.plot {
        plot::draw(path, &report.figures)?;
    }
    notes.iter().for_each(|note| eprintln!("note: {note}"));
    if arguments.json {
        println!("{:#}", report.json());
    } else {
        print!("\n{}", report.text());
    }
    if !failures.is_empty() {
        return Err(failures.join("; ").into());
    }
    Ok(())
}

fn effort(arguments: &Arguments) -> Effort {
    let [hit_sample, long_sample] =
        if arguments.quick { [50, 400] } else { [50, 1000] }.map(Duration::from_millis);
    let (hit_rounds, long_rounds) = if arguments.quick { (7, 5) } else { (41, 9) };
    Effort {
        hit_rounds: arguments.rounds.unwrap_or(hit_rounds),
        hit_sample,
        long_rounds: arguments.rounds.unwrap_or(long_rounds),
        long_sample,
    }
}

/// The requested number of pages, or as many as fit into memory.
fn affordable(wanted: u64, notes: &mut Vec<String>) -> Result<u64, Failure> {
    let memory = std::fs::read_to_string("/proc/meminfo")
        .map_err(|error| format!("/proc/meminfo cannot be read: {error}"))?;
    let available = kib_of(&memory, "MemAvailable:").ok_or("/proc/meminfo has no line MemAvailable")?;
    let fits = |&pages: &u64| hits::memory_bytes(pages) + MEMORY_LEFT_BYTES <= available;
    let halves = std::iter::successors(Some(wanted), |pages| Some(pages / 2));
    let pages = halves.take_while(|&pages| pages >= PAGES_MIN).find(fits).ok_or_else(|| {
        let needed = hits::memory_bytes(PAGES_MIN) + MEMORY_LEFT_BYTES;
        format!("{PAGES_MIN} pages take {needed} bytes of memory, {available} are available; free some")
    })?;
    if pages < wanted {
        notes.push(format!("{pages} pages instead of {wanted}: {available} bytes of memory are available"));
    }
    Ok(pages)
}

/// The value of a line `name value kB`, in bytes.
pub fn kib_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parse = |text: &str| Arguments::try_parse_from(text.split(' ')).map(|a| (a.pages, a.rounds));
        assert_eq!(parse("x --pages 65536 --rounds 5").unwrap(), (65536, Some(5)));
        for (wrong, what) in [
            ("x --pages 70000", "power of two"),
            ("x --rounds 4", "from 5 on"),
            ("x --threads 1,0", "from 1 to"),
        ] {
            assert!(parse(wrong).unwrap_err().to_string().contains(what), "{wrong}");
        }
    }

    #[test]
    fn lines_of_memory_are_read() {
        assert_eq!(kib_of("MemFree: 1 kB\nMemAvailable:   20 kB\n", "MemAvailable:"), Some(20 << 10));
        assert_eq!(kib_of("MemFree: 1 kB\n", "MemAvailable:"), None);
    }
}
