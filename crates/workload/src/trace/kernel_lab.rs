//! The traces that were replayed on real kernels: `NAME.bin`, with `NAME.json` beside it.
//!
//! One little-endian `u32` per access:
//!
//! ```text
//! bit   31      30       29     28 ............. 0
//!     write | mapped | anonymous |   page number
//! ```
//!
//! *Offset:* the page number in one flat space of 4 KiB pages, or, with bit 29, in a separate space
//! of anonymous pages: anonymous page 5 and file page 5 are different pages. *Size:* always one
//! page. There are no fsyncs.
//!
//! Any four bytes are a valid record. Damage is therefore detectable only as a length that is not a
//! multiple of 4, or as a number of records other than the sidecar's `n`. Both are errors.

use super::decode::{Parsed, RecordFormat, Request};
use super::source::name_inside;
use super::write::{Encode, Run};
use super::{PageAccess, RequestStart, TraceError};
use crate::text_file;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const WRITE: u32 = 1 << 31;
const MAPPED: u32 = 1 << 30;
const ANON: u32 = 1 << 29;
const PAGE: u32 = ANON - 1;
const _: () = assert!(WRITE ^ MAPPED ^ ANON ^ PAGE == u32::MAX);

/// Contents of `NAME.json`, which describes `NAME.bin`. Every field is optional; unknown fields are
/// ignored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sidecar {
    /// Name of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Records in the trace (`n`).
    #[serde(default, rename = "n", skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// Size of the page space. Every page number is smaller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<u64>,
    /// Number of anonymous pages among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anon_pages: Option<u64>,
    /// Fraction of the accesses before counting starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<f64>,
    /// Distinct pages in the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct: Option<u64>,
    /// Writes in the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<u64>,
    /// Description of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Path of a trace's sidecar: `x.bin` and `x.bin.zst` have `x.json`; other names have none.
pub(super) fn sidecar_path(trace: &Path) -> Option<PathBuf> {
    let name = name_inside(trace.file_name()?.to_str()?).strip_suffix(".bin")?;
    Some(trace.with_file_name(format!("{name}.json")))
}

/// Reads the sidecar of a kernel-lab trace. `None` if the file is missing.
///
/// # Errors
/// If the file exists and is not a sidecar.
pub fn sidecar(trace: &Path) -> Result<Option<Sidecar>, TraceError> {
    let Some(path) = sidecar_path(trace) else { return Ok(None) };
    let text = match text_file::read(&path, text_file::BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(TraceError::Io { path, source }),
    };
    let sidecar: Sidecar = match serde_json::from_str(&text) {
        Ok(sidecar) => sidecar,
        Err(error) => {
            let what = format!("not a description of {}: {error}; correct or remove it", trace.display());
            return Err(TraceError::Usage { path, what });
        }
    };
    if let Some(warm) = sidecar.warm
        && !(0.0..=1.0).contains(&warm)
    {
        let what = format!("warm is {warm}, expected a fraction of the accesses, 0 to 1");
        return Err(TraceError::Usage { path, what });
    }
    Ok(Some(sidecar))
}

pub(super) struct KernelLab {
    expected_records: Option<u64>,
}

impl KernelLab {
    pub fn new(sidecar: Option<Sidecar>) -> Self {
        Self { expected_records: sidecar.and_then(|sidecar| sidecar.records) }
    }
}

impl RecordFormat for KernelLab {
    fn size(&self) -> usize {
        4
    }

    #[inline]
    fn record(&mut self, record: &[u8]) -> Result<Parsed, String> {
        let word = u32::from_le_bytes([record[0], record[1], record[2], record[3]]);
        Ok(Parsed::Request(Request {
            page: u64::from(word & PAGE),
            pages: 1,
            step: 1,
            write: word & WRITE != 0,
            mapped: word & MAPPED != 0,
            anon: word & ANON != 0,
            inside: false,
            ends_inside: false,
            fault: false,
            handle: RequestStart::NO_HANDLE,
        }))
    }

    fn finish(&self, records: u64) -> Result<(), String> {
        match self.expected_records {
            Some(expected) if expected != records => Err(format!(
                "the trace ends after {records} records, but the .json beside it says {expected}"
            )),
            _ => Ok(()),
        }
    }
}

pub(super) struct KernelLabEncoder;

impl Encode for KernelLabEncoder {
    fn pages_max(&self) -> u64 {
        u64::from(PAGE) + 1
    }

    fn nearest(&self, access: PageAccess) -> PageAccess {
        PageAccess { inside: false, fault: false, ..access }
    }

    fn access(&mut self, run: Run, out: &mut Vec<u8>) {
        let PageAccess { page, write, mapped, anon, .. } = run.first;
        let flag = |set: bool, bit: u32| if set { bit } else { 0 };
        let flags = flag(write, WRITE) | flag(mapped, MAPPED) | flag(anon, ANON);
        for page in (0..run.pages).map(|index| page + index) {
            assert!(page <= u64::from(PAGE));
            out.extend_from_slice(&(page as u32 | flags).to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_flags_on_top() {
        let record = |word: u32| KernelLab::new(None).record(&word.to_le_bytes());
        let request = Request::pages(5, 1).unwrap();
        assert_eq!(record(5), Ok(Parsed::Request(request)));
        assert_eq!(record(5 | 1 << 31), Ok(Parsed::Request(request.writing(true))));
        let all = Request::pages((1 << 29) - 1, 1).unwrap();
        let all = Request { write: true, mapped: true, anon: true, ..all };
        assert_eq!(record(u32::MAX), Ok(Parsed::Request(all)));
    }

    #[test]
    fn the_sidecar_is_beside_the_trace() {
        let path = |trace: &str| sidecar_path(Path::new(trace)).map(|path| path.display().to_string());
        assert_eq!(path("a/tpcc.bin.zst").as_deref(), Some("a/tpcc.json"));
        assert_eq!(path("tpcc.v2.bin").as_deref(), Some("tpcc.v2.json"));
        assert_eq!(path("tpcc.txt.zst"), None);
    }
}
