//! Loads as text: a name and the parameters that differ from the defaults.

use super::{Load, MIB_PAGES};
use crate::PAGE_BYTES;
use crate::compile::Compile;
use crate::ycsb::Letter;
use std::fmt;

/// Upper limit of warehouses and of arrays.
const COUNT_MAX: u64 = 10_000;
/// Upper limit of records and of rows.
const RECORDS_MAX: u64 = 1 << 31;
/// Upper limit of computing time per operation, in microseconds.
const COMPUTE_MAX: u64 = 1_000_000;

impl Load {
    /// Each load with its defaults, and the parameters that it accepts.
    pub const ALL: [(Load, &str); 7] = [
        (Load::TPCC, "warehouses and cache"),
        (Load::SWEEP, "size and arrays"),
        (Load::YCSB, "workload, records, cache, writes, requests and compute_us"),
        (Load::SELECT, "rows and cache"),
        (Load::REQUESTS, "heap"),
        (Load::FILE_ANON, "file, anon and readers"),
        (Load::COMPILE, "sources and heap"),
    ];

    /// Parses a load in the form that `Display` writes.
    ///
    /// # Errors
    /// A message that names the wrong part and a valid one.
    pub fn parse(text: &str) -> Result<Load, String> {
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        let Some(&(mut load, has)) = Load::ALL.iter().find(|(load, _)| load.name() == name) else {
            return Err(unknown(name, |_| true));
        };
        let (mut size, mut writes) = (None, None);
        let mut given: Vec<&str> = Vec::new();
        for parameter in parameters.split(',').filter(|parameter| !parameter.is_empty()) {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if given.contains(&key) {
                return Err(format!("{name} has the parameter `{key}` twice; give it once"));
            }
            given.push(key);
            match (&mut load, key) {
                (Load::Tpcc { warehouses, .. }, "warehouses") => {
                    *warehouses = count(key, value, 1..=COUNT_MAX)?;
                }
                (Load::Tpcc { cache_pages, .. }, "cache") => *cache_pages = pages_32(key, value)?,
                (Load::Sweep { arrays, .. }, "arrays") => *arrays = count(key, value, 4..=COUNT_MAX)?,
                (Load::Sweep { .. }, "size") => size = Some(pages(key, value)?),
                (Load::Ycsb(ycsb), "workload") => {
                    let letter = Letter::ALL.into_iter().find(|letter| letter.name() == value);
                    ycsb.letter = letter.ok_or("`workload` must be one of a, b, c, d, e and f")?;
                }
                (Load::Ycsb(ycsb), "records") => ycsb.records = count(key, value, 1..=RECORDS_MAX)?,
                (Load::Ycsb(ycsb), "cache") => ycsb.cache_pages = pages_32(key, value)?,
                (Load::Ycsb(ycsb), "requests") => {
                    ycsb.uniform = match value {
                        "uniform" => true,
                        "zipfian" => false,
                        _ => return Err("`requests` must be zipfian or uniform".to_owned()),
                    }
                }
                (Load::Ycsb(ycsb), "compute_us") => ycsb.compute_micros = count(key, value, 0..=COMPUTE_MAX)?,
                (Load::Ycsb(_), "writes") => writes = Some(count(key, value, 0..=100)?),
                (Load::Select(select), "rows") => select.rows = count(key, value, 1..=RECORDS_MAX)?,
                (Load::Select(select), "cache") => select.cache_pages = pages_32(key, value)?,
                (Load::Requests(requests), "heap") => requests.heap_pages = some_pages(key, value)?,
                (Load::FileAnon(mix), "file") => mix.file_pages = some_pages(key, value)?,
                (Load::FileAnon(mix), "anon") => mix.anon_pages = some_pages(key, value)?,
                (Load::FileAnon(mix), "readers") => mix.readers = count(key, value, 0..=COUNT_MAX)?,
                (Load::Compile(compile), "sources") => compile.sources = count(key, value, 1..=1_000_000)?,
                (Load::Compile(compile), "heap") => {
                    compile.heap_pages = some_pages(key, value)?;
                    if compile.heap_pages > Compile::HEAP_PAGES_MAX {
                        return Err(format!("`{key}` must be at most 8 TiB, an average"));
                    }
                }
                _ => return Err(format!("{name} has no parameter `{key}`; it has {has}")),
            }
        }
        match &mut load {
            Load::Sweep { arrays, array_pages } => {
                let pages = size.unwrap_or(96 * MIB_PAGES) / u64::from(*arrays);
                *array_pages =
                    u32::try_from(pages).map_err(|_| "`size` must give each array at most 2^32 pages")?;
            }
            Load::Ycsb(ycsb) if ycsb.uniform && ycsb.letter == Letter::D => {
                return Err(
                    "workload d reads by age, so `requests=uniform` does nothing: leave it out".to_owned()
                );
            }
            Load::Ycsb(ycsb) => ycsb.writes_percent = writes.unwrap_or(ycsb.letter.writes_percent()),
            _ => {}
        }
        Ok(load)
    }
}

impl Load {
    /// As [`Load::parse`], of loads that have contents to verify.
    ///
    /// # Errors
    /// As [`Load::parse`], or if the load has no contents.
    pub fn parse_with_contents(text: &str) -> Result<Load, String> {
        let name = text.split_once(':').map_or(text, |(name, _)| name);
        if !Load::ALL.iter().any(|(load, _)| load.name() == name) {
            return Err(unknown(name, Load::has_contents));
        }
        match Load::parse(text)? {
            load if load.has_contents() => Ok(load),
            _ => Err(format!("{name} is a page workload: write it as `load = \"{name}\"` of a scenario")),
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
            Load::Ycsb(ycsb) => write!(
                f,
                "ycsb:workload={},records={},cache={}p,writes={},requests={},compute_us={}",
                ycsb.letter.name(),
                ycsb.records,
                ycsb.cache_pages,
                ycsb.writes_percent,
                if ycsb.uniform { "uniform" } else { "zipfian" },
                ycsb.compute_micros
            ),
            Load::Select(select) => write!(f, "select:rows={},cache={}p", select.rows, select.cache_pages),
            Load::Requests(requests) => write!(f, "requests:heap={}p", requests.heap_pages),
            Load::FileAnon(mix) => {
                write!(
                    f,
                    "file-anon:file={}p,anon={}p,readers={}",
                    mix.file_pages, mix.anon_pages, mix.readers
                )
            }
            Load::Compile(compile) => {
                write!(f, "compile:sources={},heap={}p", compile.sources, compile.heap_pages)
            }
        }
    }
}

/// Error about an unknown name, with the loads that are expected instead.
fn unknown(name: &str, is_expected: impl Fn(Load) -> bool) -> String {
    let expected = Load::ALL.into_iter().map(|(load, _)| load).filter(|&load| is_expected(load));
    let names: Vec<&str> = expected.map(Load::name).collect();
    format!("unknown load `{name}`; expected one of {}", names.join(", "))
}

fn count(key: &str, value: &str, range: std::ops::RangeInclusive<u64>) -> Result<u32, String> {
    let count = value.parse().ok().filter(|count| range.contains(count));
    let count = count
        .ok_or_else(|| format!("`{key}` must be a whole number from {} to {}", range.start(), range.end()))?;
    Ok(count as u32)
}

fn pages(key: &str, value: &str) -> Result<u64, String> {
    let bytes = crate::size::parse(value).map_err(|reason| format!("`{key}`: {reason}"))?;
    Ok(bytes / PAGE_BYTES)
}

fn pages_32(key: &str, value: &str) -> Result<u32, String> {
    u32::try_from(pages(key, value)?).map_err(|_| format!("`{key}` must be at most 16 TiB"))
}

/// Parses a size of at least one page.
fn some_pages(key: &str, value: &str) -> Result<u32, String> {
    match pages_32(key, value)? {
        0 => Err(format!("`{key}` must be at least a page of 4 KiB")),
        pages => Ok(pages),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_read_as_they_are_written() {
        for text in [
            "tpcc:warehouses=2,cache=4096p",
            "sweep:size=500p,arrays=5",
            "ycsb:workload=f,records=1000,cache=16p,writes=50,requests=uniform,compute_us=7",
            "select:rows=1000,cache=0p",
            "requests:heap=7p",
            "file-anon:file=8p,anon=44p,readers=3",
            "compile:sources=10,heap=5p",
        ] {
            assert_eq!(Load::parse(text).unwrap().to_string(), text);
        }
        for (load, _) in Load::ALL {
            assert_eq!(Load::parse(load.name()), Ok(load));
        }
        assert_eq!(Load::parse("sweep:"), Ok(Load::SWEEP));
        assert_eq!(Load::parse("tpcc:cache=16m"), Load::parse("tpcc:warehouses=4,cache=4096p"));
        assert_eq!(Load::parse("tpcc:cache=0").unwrap().to_string(), "tpcc:warehouses=4,cache=0p");
        assert!(Load::parse("ycsb:workload=a").unwrap().to_string().contains("writes=50"));
        assert!(Load::parse("ycsb:writes=25,workload=a").unwrap().to_string().contains("writes=25"));
    }

    #[test]
    fn only_loads_with_contents_are_expected_where_they_are_verified() {
        let error = |text| Load::parse_with_contents(text).unwrap_err();
        assert_eq!(error("tpch:size=1m"), "unknown load `tpch`; expected one of tpcc, sweep, ycsb");
        assert!(error("select").contains("page workload") && error("tpcc:size=1m").contains("no parameter"));
        assert_eq!(Load::parse_with_contents("tpcc"), Ok(Load::TPCC));
    }

    #[test]
    fn invalid_loads_are_refused_with_valid_choices() {
        for (text, expected) in [
            ("tpch", "expected one of tpcc, sweep, ycsb"),
            ("tpcc:size=1m", "it has warehouses and cache"),
            ("sweep:threads=2", "it has size and arrays"),
            ("tpcc:warehouses=0", "from 1 to 10000"),
            ("tpcc:warehouses", "from 1 to 10000"),
            ("tpcc:warehouses=1,cache=8m,warehouses=2", "tpcc has the parameter `warehouses` twice"),
            ("sweep:arrays=3", "from 4"),
            ("tpcc:cache=much", "`cache`: a size is a whole number"),
            ("tpcc:cache=99999999999g", "`cache`: `99999999999g` is too large"),
            ("tpcc:cache=17179869184k", "16 TiB"),
            ("ycsb:workload=g", "a, b, c, d, e and f"),
            ("ycsb:writes=101", "from 0 to 100"),
            ("ycsb:requests=uniform,workload=d", "`requests=uniform` does nothing"),
            ("requests:heap=1k", "at least a page"),
            ("compile:heap=8193g", "at most 8 TiB"),
        ] {
            let error = Load::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
