//! The grid of a sweep as a file.

use super::Sweep;
use super::remote::is_url;
use crate::arguments::{each_once, named, optional};
use crate::error::Error;
use crate::replay::grid::{Choice, Grid};
use crate::replay::memory::Memory;
use crate::replay::text::{TextOptions, TextSwap};
use crate::sampling::Sample;
use mglru_sim::Baseline;
use mglru_workload::trace::{Format, OpenOptions, OptionOrigin};
use serde::Deserialize;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A grid as it is written in TOML or JSON. Paths are relative to the folder of the file; a path
/// may also be a URL. A trace, policy, size or seed that is named twice counts once.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridFile {
    traces: Vec<TraceEntry>,
    policies: Vec<String>,
    memory: Vec<Amount>,
    #[serde(default = "one")]
    seeds: Vec<u64>,
    warm: Option<Amount>,
    writes: Option<String>,
    swap: Option<Amount>,
    swap_device: Option<String>,
    swappiness: Option<Amount>,
    swap_readahead: Option<Amount>,
    readahead: Option<Amount>,
    fault_around: Option<Amount>,
}

fn one() -> Vec<u64> {
    vec![1]
}

/// A trace: its path alone, or with options.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected the path of a trace, or { path = \"...\", format = \"...\" }")]
enum TraceEntry {
    Path(PathBuf),
    Options(TraceOptions),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceOptions {
    path: PathBuf,
    format: Option<String>,
    #[serde(default)]
    lossy: bool,
    unit_bytes: Option<u32>,
    sample: Option<Amount>,
    storage_options: Option<toml::Table>,
}

/// A size or a share, as text or as a number.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected text such as \"10%\" or \"64MiB\", or a number")]
enum Amount {
    Text(String),
    Whole(u64),
    Real(f64),
}

impl Amount {
    fn text(&self) -> String {
        match self {
            Amount::Text(text) => text.clone(),
            Amount::Whole(number) => number.to_string(),
            Amount::Real(number) => number.to_string(),
        }
    }
}

fn text(amount: &Option<Amount>) -> Option<String> {
    amount.as_ref().map(Amount::text)
}

/// A trace of a sweep.
#[derive(Debug, Clone)]
pub struct SweepTrace {
    /// Its path as the grid has it, for the rows.
    pub name: String,
    /// The file to open, or its URL.
    pub path: PathBuf,
    /// How to open it.
    pub open: OpenOptions,
    /// Share of its pages to replay.
    pub sample: Option<Sample>,
    /// Options of the file system behind a URL.
    pub storage_options: toml::Table,
}

impl SweepTrace {
    pub(super) fn new(path: &Path, folder: &Path) -> SweepTrace {
        SweepTrace {
            name: path.display().to_string(),
            path: if is_url(path) { path.to_path_buf() } else { folder.join(path) },
            open: OpenOptions { origin: OptionOrigin::Keys, ..OpenOptions::default() },
            sample: None,
            storage_options: toml::Table::new(),
        }
    }

    /// Whether it is at a URL.
    pub fn is_remote(&self) -> bool {
        is_url(&self.path)
    }
}

impl GridFile {
    /// Parses TOML.
    ///
    /// # Errors
    /// With line and column.
    pub fn parse(text: &str) -> Result<GridFile, Error> {
        toml::from_str(text).map_err(|error| Error::usage(error.to_string().trim_end()))
    }

    /// The sweep, with paths relative to `folder`. Traces are not read yet.
    ///
    /// # Errors
    /// The first unknown name or invalid value, with its key.
    pub fn sweep(&self, folder: &Path) -> Result<Sweep, Error> {
        let mut policies: Vec<Choice> = Vec::new();
        for name in &self.policies {
            match name.as_str() {
                "all" => policies.extend(Baseline::ALL.map(Choice::Baseline)),
                name => policies.push(name.parse::<Choice>().map_err(|error| error.at("policies"))?),
            }
        }
        let sizes = self.memory.iter().map(|size| named("memory", size.text().parse::<Memory>()));
        let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
        // There may be millions of them and of traces.
        let mut known = HashSet::new();
        let seeds = self.seeds.iter().copied().filter(|&seed| known.insert(seed)).collect();
        let of_files = [&self.warm, &self.readahead, &self.fault_around];
        let [warm, readahead, fault_around] = of_files.map(text);
        let [size, swappiness, swap_readahead] =
            [&self.swap, &self.swappiness, &self.swap_readahead].map(text);
        let swap = TextSwap {
            size: size.as_deref(),
            device: self.swap_device.as_deref(),
            swappiness: swappiness.as_deref(),
            readahead: swap_readahead.as_deref(),
        };
        let options = TextOptions {
            warm: warm.as_deref(),
            writes: self.writes.as_deref(),
            swap,
            readahead: readahead.as_deref(),
            fault_around: fault_around.as_deref(),
        };
        let options = options.options()?;
        let grid = Grid { policies: each_once(policies), sizes: each_once(sizes), seeds, options };
        let mut known = HashSet::new();
        let traces = self.traces.iter().filter(|entry| known.insert(format!("{entry:?}")));
        let traces = traces.map(|entry| entry.trace(folder)).collect::<Result<_, _>>()?;
        Sweep::new(grid, traces)
    }
}

impl TraceEntry {
    fn trace(&self, folder: &Path) -> Result<SweepTrace, Error> {
        let options = match self {
            TraceEntry::Path(path) => return Ok(SweepTrace::new(path, folder)),
            TraceEntry::Options(options) => options,
        };
        let format = options.format.as_deref().map(|name| named("format", name.parse::<Format>()));
        let open = OpenOptions {
            format: format.transpose()?,
            lossy: options.lossy,
            unit_bytes: options.unit_bytes,
            origin: OptionOrigin::Keys,
            ..OpenOptions::default()
        };
        let sample = optional("sample", text(&options.sample).as_deref(), str::parse::<Sample>)?;
        let trace = SweepTrace::new(&options.path, folder);
        if options.storage_options.is_some() && !trace.is_remote() {
            let reason = format_args!("storage_options: only for a URL, and `{}` is a file", trace.name);
            return Err(Error::usage(reason).at("traces"));
        }
        let storage_options = options.storage_options.clone().unwrap_or_default();
        Ok(SweepTrace { open, sample, storage_options, ..trace })
    }
}
