//! CloudPhysics' `vscsi` binary: SCSI commands of virtual disks, in two versions, little-endian.
//!
//! ```text
//! version 1, 32 bytes:  u32 sn | u32 len | u32 segments | u16 cmd | u16 ver | u64 lbn | u64 time
//! version 2, 40 bytes:  u16 cmd | u16 ver | u32 sn | u32 len | u32 segments | u64 lbn | u64 time, response
//! ```
//!
//! The high byte of `ver` is the version, which is taken from the first records. *Offset:* `lbn` in
//! units (512-byte sectors by default), in one flat space. *Size:* `len` in bytes; every touched 4
//! KiB page counts, including partial ones. Commands that move no data are skipped, SYNCHRONIZE
//! CACHE is an fsync of file 0, and any command that is not a SCSI block command is damage.

use super::decode::{Fault, Parsed, RecordFormat, Request};
use super::source::Sample;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    fn size(self) -> usize {
        match self {
            Version::One => 32,
            Version::Two => 40,
        }
    }

    /// Command, version, length and block of a record.
    fn parts(self, record: &[u8]) -> (u16, u16, u32, u64) {
        let u16_at = |at: usize| u16::from_le_bytes([record[at], record[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().expect("8 bytes"));
        match self {
            Version::One => (u16_at(12), u16_at(14), u32_at(4), u64_at(16)),
            Version::Two => (u16_at(0), u16_at(2), u32_at(8), u64_at(16)),
        }
    }

    fn is_of(self, version: u16) -> bool {
        version >> 8 == if self == Version::One { 1 } else { 2 }
    }

    /// The version that more than half of the sampled records have.
    fn of(sample: &Sample) -> Option<Version> {
        [Version::Two, Version::One].into_iter().find(|version| {
            let records = sample.bytes.chunks_exact(version.size()).take(100);
            let fitting = records.clone().filter(|record| {
                let (command, found, _, _) = version.parts(record);
                version.is_of(found) && operation(command).is_some()
            });
            fitting.count() * 2 > records.count()
        })
    }
}

/// Effect of a SCSI command on a disk's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
    Sync,
    Other,
}

fn operation(command: u16) -> Option<Operation> {
    match command {
        // READ 6, 10, 12, 16.
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Operation::Read),
        // WRITE 6, 10, 12, 16, WRITE AND VERIFY 10, 12, 16.
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Some(Operation::Write),
        // SYNCHRONIZE CACHE 10, 16.
        0x35 | 0x91 => Some(Operation::Sync),
        // TEST UNIT READY, REQUEST SENSE, INQUIRY, MODE SENSE 6 and 10, START STOP, READ CAPACITY
        // 10 and 16, VERIFY 10 and 16, WRITE SAME 10 and 16, UNMAP, LOG SENSE, RESERVE, RELEASE,
        // REPORT LUNS.
        0x00 | 0x03 | 0x12 | 0x1a | 0x5a | 0x1b | 0x25 | 0x9e | 0x2f | 0x8f | 0x41 | 0x93 | 0x42 | 0x4d
        | 0x16 | 0x17 | 0xa0 => Some(Operation::Other),
        _ => None,
    }
}

/// Whether a sample is of this format.
pub(super) fn fits(sample: &Sample) -> bool {
    Version::of(sample).is_some()
}

pub(super) struct Vscsi {
    version: Version,
    unit_bytes: u64,
}

impl Vscsi {
    pub fn new(sample: &Sample, unit_bytes: u64) -> Result<Self, Fault> {
        if sample.complete && sample.bytes.len() < Version::One.size() {
            let need = Version::One.size();
            return Err(Fault::Truncated { offset: 0, have: sample.bytes.len(), need });
        }
        match Version::of(sample) {
            Some(version) => Ok(Self { version, unit_bytes }),
            None => {
                let what = "the first records are of neither version 1 nor version 2".to_string();
                Err(Fault::Bad { offset: 0, line: None, what })
            }
        }
    }
}

impl RecordFormat for Vscsi {
    fn size(&self) -> usize {
        self.version.size()
    }

    fn record(&mut self, record: &[u8]) -> Result<Parsed, String> {
        let (command, version, length, block) = self.version.parts(record);
        if !self.version.is_of(version) {
            return Err(format!("version field {version:#06x} in a trace of version {:?}", self.version));
        }
        match operation(command) {
            Some(Operation::Other) => Ok(Parsed::Nothing),
            Some(Operation::Sync) => Ok(Parsed::Sync(0)),
            Some(kind) => {
                let request = Request::units(block, self.unit_bytes, u64::from(length))?;
                Ok(Parsed::Request(request.writing(kind == Operation::Write)))
            }
            None => Err(format!("command {command:#04x} is not a SCSI block command")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(version: Version, command: u16, length: u32, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; version.size()];
        let (command_at, version_at, length_at) =
            if version == Version::One { (12, 14, 4) } else { (0, 2, 8) };
        bytes[command_at..command_at + 2].copy_from_slice(&command.to_le_bytes());
        bytes[version_at + 1] = if version == Version::One { 1 } else { 2 };
        bytes[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
        bytes[16..24].copy_from_slice(&block.to_le_bytes());
        bytes
    }

    #[test]
    fn both_versions() {
        for version in [Version::One, Version::Two] {
            let bytes = [record(version, 0x2a, 4096, 17), record(version, 0x28, 512, 8)].concat();
            let mut format = Vscsi::new(&Sample { bytes: bytes.clone(), complete: true }, 512).unwrap();
            assert_eq!(format.version, version);
            let write = Request::pages(2, 2).unwrap().writing(true);
            let write = Request { inside: true, ends_inside: true, ..write };
            assert_eq!(format.record(&bytes[..version.size()]), Ok(Parsed::Request(write)));
            let read = Request { page: 1, pages: 1, write: false, inside: false, ..write };
            assert_eq!(format.record(&bytes[version.size()..]), Ok(Parsed::Request(read)));
            assert_eq!(format.record(&record(version, 0x35, 0, 0)), Ok(Parsed::Sync(0)));
            assert_eq!(format.record(&record(version, 0x12, 0, 0)), Ok(Parsed::Nothing));
            assert!(format.record(&record(version, 0xff, 512, 0)).is_err());
            assert!(format.record(&vec![0; version.size()]).is_err());
        }
    }
}
