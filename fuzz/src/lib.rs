//! Code that the targets share: traces that are written and read back, texts of errors, and work
//! that ends soon.

use mglru_lab::Watch;
use mglru_workload::trace::{
    self, Format, OpenOptions, PageAccess, Record, TraceError, TraceWriter, Trim, WriteOptions,
};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Writes records in a format to a file in memory, reads them back, and removes the file.
/// `extension` chooses a compression.
///
/// # Errors
/// The format cannot represent the records.
///
/// # Panics
/// The file cannot be written, or what was written cannot be read.
pub fn written_and_read_back(
    records: &[Record],
    format: Format,
    extension: &str,
    options: WriteOptions,
) -> Result<Vec<Record>, TraceError> {
    let path = PathBuf::from(format!("/dev/shm/mglru-fuzz-{}{extension}", std::process::id()));
    let mut writer = TraceWriter::create(&path, format, options).unwrap();
    writer.write(records)?;
    writer.finish().unwrap_or_else(|error| panic!("{format}: {error}"));
    let reader = match trace::open(&path, OpenOptions { format: Some(format), ..OpenOptions::default() }) {
        Err(TraceError::Empty { .. }) => None,
        reader => Some(reader.unwrap_or_else(|error| panic!("{format}: {error}"))),
    };
    let mut back = Vec::new();
    for record in reader.into_iter().flatten() {
        match record {
            Ok(record) => back.push(record),
            Err(TraceError::Empty { .. }) => break,
            Err(error) => panic!("{format}: {error}"),
        }
    }
    std::fs::remove_file(&path).unwrap();
    Ok(back)
}

/// The records as a log of fio has them, with files numbered from 0 in order of first use; as they
/// are in other formats.
pub fn renumbered(records: &[Record], format: Format) -> Vec<Record> {
    let mut ids = HashMap::new();
    let mut id = |file: u32| {
        let next = ids.len() as u32;
        *ids.entry(file).or_insert(next)
    };
    let mut page = |page: u64| u64::from(id((page >> 32) as u32)) << 32 | page & 0xffff_ffff;
    let all = records.iter().map(|record| match *record {
        record if format != Format::FioIolog => record,
        Record::Access(access) => Record::Access(PageAccess { page: page(access.page), ..access }),
        Record::Sync { file } => Record::Sync { file: (page(u64::from(file) << 32) >> 32) as u32 },
        Record::Trim(trim) => Record::Trim(Trim { page: page(trim.page), ..trim }),
        request => request,
    });
    all.collect()
}

/// Checks that an error has a text, and not too much of it.
///
/// # Panics
/// It has not.
pub fn said(error: &dyn std::fmt::Display) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() < 1 << 14, "{} bytes of error", text.len());
}

/// Cancels the work after so many questions.
#[derive(Debug)]
pub struct Moment(AtomicU64);

impl Moment {
    /// Cancels after `questions`.
    pub fn new(questions: u64) -> Moment {
        Moment(AtomicU64::new(questions))
    }
}

impl Watch for Moment {
    fn is_cancelled(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err()
    }
}
