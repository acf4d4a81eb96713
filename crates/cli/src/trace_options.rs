//! How traces are read.

use mglru_workload::trace::{Format, OpenOptions};

/// How traces are read.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct TraceOptions {
    /// The format, where it is not recognised: see `mglru trace formats`
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Skip and count bad records instead of stopping at the first
    #[arg(long)]
    lossy: bool,
    /// Bytes per unit of block numbers, where a format has them: 512, or 4096 for ARC's OLTP
    #[arg(long, value_name = "BYTES")]
    unit: Option<u32>,
}

impl TraceOptions {
    /// As the readers want them.
    pub fn open_options(&self) -> OpenOptions {
        OpenOptions { format: self.format, lossy: self.lossy, unit_bytes: self.unit }
    }
}
