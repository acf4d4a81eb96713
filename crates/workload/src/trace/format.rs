//! The trace formats: their names, decoders and encoders.

use super::decode::{Decode, Fault, Lines, Records};
use super::source::Sample;
use super::write::Encode;
use super::*;
use std::fmt;
use std::str::FromStr;

/// A trace format. The names are those of `--format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// `kernel-lab`: 32-bit words with flags.
    KernelLab,
    /// `shared-text`: lines of `op page count`.
    SharedText,
    /// `oracle-general`: libCacheSim's binary with next-access times.
    OracleGeneral,
    /// `libcachesim-csv`: columns of time, id and size, or of lbn and size.
    LibCacheSimCsv,
    /// `vscsi`: CloudPhysics' binary, version 1 and 2.
    Vscsi,
    /// `msr`: CSV of MSR Cambridge.
    Msr,
    /// `arc`: `start count ignored number` lines (`.lis`).
    Arc,
    /// `mqsim`: block requests in the text of the SSD simulator.
    MqSim,
    /// `lirs`: one block per line, and lines of `*`.
    Lirs,
    /// `fio-iolog`: version 2 and 3.
    FioIolog,
    /// `blkparse`: default output of blkparse.
    Blkparse,
    /// `address`: loads and stores of a program.
    Address,
    /// `cachelib`: CSV of CacheBench, keys and values or a block store.
    CacheLib,
    /// `plain`: one number per line.
    Plain,
    /// `keys`: one word per line, hashed.
    Keys,
}

impl Format {
    /// Every format, in the order in which help lists them.
    pub const ALL: [Format; 15] = [
        Format::KernelLab,
        Format::SharedText,
        Format::OracleGeneral,
        Format::LibCacheSimCsv,
        Format::Vscsi,
        Format::Msr,
        Format::Arc,
        Format::MqSim,
        Format::Lirs,
        Format::FioIolog,
        Format::Blkparse,
        Format::Address,
        Format::CacheLib,
        Format::Plain,
        Format::Keys,
    ];

    /// The formats that [`TraceWriter`] writes.
    pub const WRITABLE: [Format; 4] =
        [Format::KernelLab, Format::SharedText, Format::FioIolog, Format::Plain];

    /// The name, as `--format` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Format::KernelLab => "kernel-lab",
            Format::SharedText => "shared-text",
            Format::OracleGeneral => "oracle-general",
            Format::LibCacheSimCsv => "libcachesim-csv",
            Format::Vscsi => "vscsi",
            Format::Msr => "msr",
            Format::Arc => "arc",
            Format::MqSim => "mqsim",
            Format::Lirs => "lirs",
            Format::FioIolog => "fio-iolog",
            Format::Blkparse => "blkparse",
            Format::Address => "address",
            Format::CacheLib => "cachelib",
            Format::Plain => "plain",
            Format::Keys => "keys",
        }
    }

    /// Description in one line for help: the meaning of a record, its size and its offset.
    pub fn summary(self) -> &'static str {
        match self {
            Format::KernelLab => "binary, u32: bit 31 write, 30 mapped, 29 anonymous, low 29 bits page",
            Format::SharedText => {
                "lines of op page count; op R, W, F (fault), L (mapped load) or S (fsync); 4 KiB pages"
            }
            Format::OracleGeneral => "binary, 24 bytes: time, id, size, next access; an id is one page",
            Format::LibCacheSimCsv => {
                "columns time, id, size (an id is one page), or op, size, lbn in units or byte offset"
            }
            Format::Vscsi => "binary, version 1 or 2; SCSI reads and writes, lbn in units, length in bytes",
            Format::Msr => "CSV: time, host, disk, Read|Write, offset in bytes, size in bytes, latency",
            Format::Arc => "lines of start count ignored number, in units",
            Format::MqSim => "lines of time device sector sectors type; sectors of 512 bytes, type 0 writes",
            Format::Lirs => "one page per line; lines of * are no accesses",
            Format::FioIolog => "fio's own log, version 2 or 3, offset and length in bytes",
            Format::Blkparse => "blkparse's text, Q events, position and length in units",
            Format::Address => "lines of l|s 0xADDRESS number; load or store of the page with this byte",
            Format::CacheLib => {
                "CSV: a key is one page, op_count times; or bytes io_offset, io_size of block_id"
            }
            Format::Plain => "one number per line, decimal or 0x: a page each",
            Format::Keys => "one word per line, hashed to a page each",
        }
    }

    /// Whether it is not text.
    pub(super) fn is_binary(self) -> bool {
        matches!(self, Format::KernelLab | Format::OracleGeneral | Format::Vscsi)
    }

    /// Whether [`OpenOptions::unit_bytes`] applies.
    pub fn counts_units(self) -> bool {
        matches!(self, Format::LibCacheSimCsv | Format::Vscsi | Format::Arc | Format::Blkparse)
    }

    /// Which events are accesses, for the message about traces without any.
    pub(super) fn access_events(self) -> Option<&'static str> {
        match self {
            Format::Blkparse => Some("only Q events count"),
            Format::FioIolog => Some("only read and write count"),
            _ => None,
        }
    }

    /// The decoder, or an error if the beginning contradicts the format.
    pub(super) fn decoder(
        self,
        sample: &Sample,
        unit_bytes: u64,
        sidecar: Option<Sidecar>,
    ) -> Result<Box<dyn Decode>, Fault> {
        Ok(match self {
            Format::KernelLab => Box::new(Records(kernel_lab::KernelLab::new(sidecar))),
            Format::SharedText => Box::new(Lines(shared_text::SharedText)),
            Format::OracleGeneral => Box::new(Records(oracle_general::OracleGeneral)),
            Format::LibCacheSimCsv => {
                Box::new(Lines(libcachesim_csv::LibCacheSimCsv::new(sample, unit_bytes)?))
            }
            Format::Vscsi => Box::new(Records(vscsi::Vscsi::new(sample, unit_bytes)?)),
            Format::Msr => Box::new(Lines(msr::Msr::new(sample)?)),
            Format::Arc => Box::new(Lines(arc::Arc { unit_bytes })),
            Format::MqSim => Box::new(Lines(mqsim::MqSim::default())),
            Format::Lirs => Box::new(Lines(lirs::Lirs)),
            Format::FioIolog => Box::new(Lines(fio_iolog::FioIolog::new(sample)?)),
            Format::Blkparse => Box::new(Lines(blkparse::Blkparse::new(unit_bytes))),
            Format::Address => Box::new(Lines(address::Address)),
            Format::CacheLib => Box::new(Lines(cachelib::CacheLib::new(sample)?)),
            Format::Plain => Box::new(Lines(plain::Plain)),
            Format::Keys => Box::new(Lines(plain::Keys)),
        })
    }

    /// The encoder; `None` if the format is read only.
    pub(super) fn encoder(self) -> Option<Box<dyn Encode>> {
        match self {
            Format::KernelLab => Some(Box::new(kernel_lab::KernelLabEncoder)),
            Format::SharedText => Some(Box::new(shared_text::SharedTextEncoder)),
            Format::FioIolog => Some(Box::new(fio_iolog::FioIologEncoder::default())),
            Format::Plain => Some(Box::new(plain::PlainEncoder)),
            _ => None,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        // libCacheSim writes oracleGeneral, and others oracle_general.
        let letters = |name: &str| name.to_ascii_lowercase().replace(['-', '_'], "");
        let wanted = letters(name);
        Format::ALL.into_iter().find(|format| letters(format.name()) == wanted).ok_or_else(|| {
            let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
            format!("unknown trace format \"{name}\"; expected one of {}", names.join(", "))
        })
    }
}
