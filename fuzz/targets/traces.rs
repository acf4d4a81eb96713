//! Traces: any bytes as any format; and what is read is written and read back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mglru_fuzz::{renumbered, written_and_read_back};
use mglru_workload::trace::{self, Format, OpenOptions, Record, TraceError, WriteOptions};
use std::io::Cursor;

const BATCHES_MAX: usize = 4;

fn records(
    name: &str,
    bytes: &[u8],
    options: OpenOptions,
) -> (Vec<Record>, Result<bool, TraceError>, Option<Format>) {
    let mut records = Vec::new();
    let mut reader = match trace::from_reader(name, Box::new(Cursor::new(bytes.to_vec())), options) {
        Ok(reader) => reader,
        Err(error) => return (records, Err(error), None),
    };
    let format = Some(reader.format());
    let mut batch = Vec::new();
    for _ in 0..BATCHES_MAX {
        match reader.next_batch(&mut batch) {
            Ok(0) => return (records, Ok(true), format),
            Ok(_) => records.extend_from_slice(&batch),
            Err(error) => return (records, Err(error), format),
        }
    }
    (records, Ok(false), format)
}

fn checked(error: &TraceError) {
    let text = error.to_string();
    assert!(text.len() < 4096, "{} bytes of error", text.len());
    assert!(!text.contains('\n'), "{text:?}");
    assert!(!text.chars().any(|c| c.is_control()), "{text:?}");
    if let TraceError::Damaged { line, format, .. } = error {
        let binary = [Format::KernelLab, Format::OracleGeneral, Format::Vscsi].contains(format);
        assert!(binary || line.is_some(), "{text}");
    }
}

fuzz_target!(|data: &[u8]| {
    let [choice, flags, bytes @ ..] = data else { return };
    let format = Format::ALL.get(usize::from(*choice % 20)).copied();
    let counts = format.is_some_and(Format::counts_units);
    let unit_bytes = (counts && flags & 1 == 1).then(|| [1, 4096, 1 << 20, 7][usize::from(flags >> 1 & 3)]);
    let requests = flags & 8 != 0;
    let name = ["t", "t.csv", "t.lis", "t.vscsi", "t.oracleGeneral", "t.iolog", "t.lirs", "t.keys"]
        [usize::from(flags >> 4 & 7)];
    let options = OpenOptions { format, unit_bytes, requests, ..OpenOptions::default() };
    let (strict, end, found) = records(name, bytes, options);
    if let Err(error) = &end {
        checked(error);
    }
    let (lossy, lossy_end, _) = records(name, bytes, OpenOptions { lossy: true, ..options });
    if let Err(error) = &lossy_end {
        checked(error);
    }
    assert!(lossy.starts_with(&strict), "lossy reading lost good records");
    if end.as_ref().is_ok_and(|ended| *ended) {
        assert_eq!(lossy, strict);
    }
    // Request starts agree with the accesses that follow.
    if requests && found.is_some() {
        let mut left = 0u64;
        for record in &strict {
            match record {
                Record::Request(start) => {
                    assert_eq!(left, 0, "a request within a request");
                    left = u64::from(start.pages);
                }
                Record::Access(_) => left = left.saturating_sub(1),
                _ => assert_eq!(left, 0),
            }
        }
        let (plain, _, _) = records(name, bytes, OpenOptions { requests: false, ..options });
        let without: Vec<_> = strict.iter().filter(|r| !matches!(r, Record::Request(_))).copied().collect();
        let both = without.len().min(plain.len());
        assert_eq!(without[..both], plain[..both]);
    }
    // Round trip.
    if flags & 128 != 0 && !strict.is_empty() {
        let accesses: Vec<_> = strict.iter().filter(|r| !matches!(r, Record::Request(_))).copied().collect();
        for format in Format::WRITABLE {
            let extension = ["", ".gz", ".zst", ".xz"][usize::from(choice / 20 % 3)];
            let back = match written_and_read_back(&accesses, format, extension, WriteOptions::default()) {
                Ok(back) => back,
                Err(error) => {
                    checked(&error);
                    continue;
                }
            };
            let accesses = renumbered(&accesses, format);
            assert!(back == accesses, "{format}: {accesses:?}\n{back:?}");
        }
    }
});
