//! Records of any kind, written in every format that is written, and read back.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use mglru_fuzz::{renumbered, written_and_read_back};
use mglru_workload::trace::{Format, PageAccess, Record, TraceWriter, Trim, WriteOptions};
use std::path::PathBuf;

fn page(u: &mut Unstructured) -> Result<u64> {
    let small = u64::from(u.arbitrary::<u8>()?);
    Ok(match u.int_in_range(0..=9)? {
        0..=2 => small,
        3 => small << 32 | u64::from(u.arbitrary::<u8>()?),
        4 => u32::MAX as u64 - small,
        5 => (small << 32) + u32::MAX as u64,
        6 => (1 << 29) - small,
        7 => u64::MAX - small,
        8 => (1 << 32) * small - 1u64.min(small),
        _ => u.arbitrary()?,
    })
}

fn records(u: &mut Unstructured) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    let simple = u.arbitrary::<bool>()?;
    while !u.is_empty() && records.len() < 5000 {
        let kind = u.int_in_range(0..=9)?;
        match kind {
            0 => records.push(Record::Sync { file: u.arbitrary()? }),
            1 => {
                let page = page(u)?;
                let most = (1u64 << 32) - (page & 0xffff_ffff);
                let pages = u.arbitrary::<u32>()?.max(1).min(u32::try_from(most).unwrap_or(u32::MAX));
                records.push(Record::Trim(Trim { page, pages }));
            }
            _ => {
                let flags: u8 = if simple { u.arbitrary::<u8>()? & 1 } else { u.arbitrary()? };
                let first = page(u)?;
                let count = if kind < 6 { 1 } else { u64::from(u.arbitrary::<u16>()?) % 300 };
                for n in 0..count {
                    records.push(Record::Access(PageAccess {
                        page: first.wrapping_add(n),
                        write: flags & 1 != 0,
                        mapped: flags & 2 != 0,
                        anon: flags & 4 != 0,
                        inside: flags & 8 != 0 && n == 0,
                        fault: flags & 16 != 0,
                    }));
                }
            }
        }
    }
    Ok(records)
}

fuzz_target!(|data: &[u8]| {
    let mut u = Unstructured::new(data);
    let Ok(choice) = u.arbitrary::<u8>() else { return };
    let Ok(records) = records(&mut u) else { return };
    let extension = ["", "", "", ".gz", ".zst", ".xz"][usize::from(choice % 6)];
    let renumber = choice & 64 != 0;
    let drops = choice & 128 != 0;
    for format in Format::WRITABLE {
        let options = WriteOptions { renumber, drop: drops };
        // As much as the format can represent: the records before the first refused. A refused
        // record may leave a writer half way, so this one is given up.
        let path = PathBuf::from(format!("/dev/shm/mglru-rt-{}{extension}", std::process::id()));
        let mut writer = TraceWriter::create(&path, format, options).unwrap();
        let mut written = Vec::new();
        for record in &records {
            match writer.write(std::slice::from_ref(record)) {
                Ok(()) => written.push(*record),
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    break;
                }
            }
        }
        drop(writer);
        let back = written_and_read_back(&written, format, extension, options).unwrap();
        if !renumber && !drops {
            let written = renumbered(&written, format);
            let at =
                written.iter().zip(&back).position(|(a, b)| a != b).unwrap_or(written.len().min(back.len()));
            assert!(
                back == written,
                "{format}: record {at} of {} and {}: {:?} {:?}",
                written.len(),
                back.len(),
                written.get(at),
                back.get(at)
            );
        } else {
            let accesses = |records: &[Record]| records.iter().filter_map(Record::access).count();
            assert_eq!(accesses(&written), accesses(&back), "{format}");
        }
    }
});
