//! Recognition of formats, by content first and by name second.
//!
//! A text format fits if more than half of the sampled lines are its records. A damaged trace is
//! thus still recognised, and its reader then reports the place of the damage. The text formats
//! exclude each other by shape, except that a column of numbers may be `lirs` or `plain`. Both name
//! the same pages, so the result is `plain` unless a `*` or the name indicates LIRS.
//!
//! A byte order mark of UTF-8 before a text is skipped. A few control characters are damage of a
//! text, if its first line has none.
//!
//! Binary formats have no magic number. `vscsi` and `oracle-general` have fields that must agree
//! from record to record, and their names are believed. Any bytes are a possible kernel-lab trace,
//! so that format requires the name `.bin` or an explicit `--format`.

use super::source::{Sample, name_inside};
use super::text::{decimal, field, fields};
use super::{
    Advice, Format, TraceError, address, blkparse, cachelib, fio_iolog, libcachesim_csv, mqsim, msr,
    oracle_general, plain, shared_text, vscsi,
};
use std::path::Path;

/// Number of lines that recognition examines.
const LINES: usize = 200;

/// Reason why no format could be chosen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unsure {
    Unknown,
    /// Text of comments and empty lines only.
    Empty,
    Ambiguous(Vec<Format>),
}

impl Unsure {
    pub fn at(self, path: &Path, advice: Advice) -> TraceError {
        let path = path.to_path_buf();
        match self {
            Unsure::Unknown => TraceError::UnknownFormat { path, advice },
            Unsure::Empty => TraceError::Empty { path, format: None, skipped: 0, advice },
            Unsure::Ambiguous(candidates) => TraceError::Ambiguous { path, candidates, advice },
        }
    }
}

/// Chooses the format of a trace named `name` that begins with `sample`.
pub(super) fn recognise(name: &str, sample: &Sample) -> Result<Format, Unsure> {
    let is_text = is_text(&sample.bytes);
    let candidates = if is_text || is_damaged_text(sample) { text(sample) } else { binary(sample) };
    let named = named(name_inside(name));
    match (candidates.as_slice(), named) {
        (fit, Some(named)) if fit.contains(&named) => Ok(named),
        // No content fits, or only `keys`, which accepts any word: trust the name. Its reader
        // reports the error.
        ([] | [Format::Keys], Some(named)) => Ok(named),
        // The bytes are those of kernel-lab only because any are.
        ([Format::KernelLab], Some(named)) if named.is_binary() => Ok(named),
        ([], None) if is_text && sample.complete && lines(sample).next().is_none() => Err(Unsure::Empty),
        ([], None) => Err(Unsure::Unknown),
        ([only], _) if *only != Format::KernelLab => Ok(*only),
        // Both read the same pages from a column of numbers.
        ([Format::Plain, Format::Lirs], _) => Ok(Format::Plain),
        (several, _) => Err(Unsure::Ambiguous(several.to_vec())),
    }
}

/// Whether a file name suggests a binary format.
pub(super) fn is_named_binary(name: &str) -> bool {
    named(name_inside(name)).is_some_and(Format::is_binary)
}

/// The format that a file name suggests.
fn named(name: &str) -> Option<Format> {
    let name = name.to_ascii_lowercase();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    if name.contains("oraclegeneral") || name.contains("oracle-general") || name.contains("oracle_general") {
        return Some(Format::OracleGeneral);
    }
    match extension {
        "bin" => Some(Format::KernelLab),
        "vscsi" | "vscsi1" | "vscsi2" => Some(Format::Vscsi),
        "lis" => Some(Format::Arc),
        "lirs" => Some(Format::Lirs),
        "csv" => Some(Format::LibCacheSimCsv),
        "iolog" => Some(Format::FioIolog),
        "blkparse" | "blktrace" => Some(Format::Blkparse),
        "keys" => Some(Format::Keys),
        _ if name.contains("lirs") => Some(Format::Lirs),
        _ => None,
    }
}

/// Whether the bytes have no control characters but white space. Other encodings than ASCII are
/// text.
fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte >= b' ' && *byte != 0x7f || byte.is_ascii_whitespace())
}

/// Whether control characters are few, and none is in the first line: zeroes that a crash left in
/// a text, whose reader reports their place. Binary formats have more.
fn is_damaged_text(sample: &Sample) -> bool {
    let damaged = sample.bytes.iter().filter(|byte| !is_text(std::slice::from_ref(*byte))).count();
    damaged * 8 < sample.bytes.len()
        && sample.lines().next().is_some_and(is_text)
        && !matches!(text(sample)[..], [] | [Format::Keys])
}

/// The lines that may be records.
fn lines(sample: &Sample) -> impl Iterator<Item = &[u8]> {
    sample.lines().filter(|line| !line.starts_with(b"#") && *line != b"*")
}

fn text(sample: &Sample) -> Vec<Format> {
    let lines: Vec<&[u8]> = lines(sample).take(LINES).collect();
    let most = |fits: &dyn Fn(&[u8]) -> bool| {
        let fitting = lines.iter().filter(|line| fits(line)).count();
        fitting * 2 > lines.len()
    };
    if sample.lines().next().is_some_and(fio_iolog::is_header) {
        vec![Format::FioIolog]
    } else if most(&shared_text::is_record) {
        vec![Format::SharedText]
    } else if most(&blkparse::is_record) {
        vec![Format::Blkparse]
    } else if most(&msr::is_record) {
        vec![Format::Msr]
    } else if most(&address::is_record) {
        vec![Format::Address]
    } else if most(&mqsim::is_record) {
        vec![Format::MqSim]
    } else if cachelib::fits(sample) {
        vec![Format::CacheLib]
    } else if libcachesim_csv::fits(sample) {
        vec![Format::LibCacheSimCsv]
    } else if most(&is_arc) {
        vec![Format::Arc]
    } else if most(&plain::is_number) {
        // Marks may be anywhere: also at the end, beyond the sample.
        if sample.lines().any(|line| line == b"*") {
            vec![Format::Lirs]
        } else {
            vec![Format::Plain, Format::Lirs]
        }
    } else if !lines.is_empty() && lines.iter().all(|line| is_word(line)) {
        vec![Format::Keys]
    } else {
        Vec::new()
    }
}

fn is_arc(line: &[u8]) -> bool {
    fields::<4>(line).is_some_and(|fields| fields.iter().all(|field| decimal(field).is_some()))
}

fn is_word(line: &[u8]) -> bool {
    let mut rest = line;
    field(&mut rest).is_some_and(|word| word.len() == line.len() && !word.contains(&b','))
}

fn binary(sample: &Sample) -> Vec<Format> {
    if vscsi::fits(sample) {
        vec![Format::Vscsi]
    } else {
        match oracle_general::fits(sample) {
            oracle_general::Fit::Yes => vec![Format::OracleGeneral],
            oracle_general::Fit::Perhaps => vec![Format::OracleGeneral, Format::KernelLab],
            oracle_general::Fit::No => vec![Format::KernelLab],
        }
    }
}
