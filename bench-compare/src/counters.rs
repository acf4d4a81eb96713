//! The processor's own counts of a way: instructions, and misses of the last cache and of the TLB.
//!
//! Many virtual machines count none of these.

use crate::measure::Way;
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware};
use perf_event::{Builder, Group};
use serde_json::{Value, json};
use std::hint::black_box;
use std::io;

/// Counts per operation.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Instructions.
    pub instructions: f64,
    /// Reads that missed the last level of the processor's caches.
    pub cache_misses: f64,
    /// Reads that missed the TLB of data.
    pub tlb_misses: f64,
}

impl Counts {
    /// Counts one thread's accesses at `offsets`.
    ///
    /// # Errors
    /// The machine or its configuration (`kernel.perf_event_paranoid`) counts none of these.
    pub fn of(way: &Way<'_>, offsets: &[u64]) -> io::Result<Counts> {
        let mut group = Group::new()?;
        let tlb = Cache { which: CacheId::DTLB, operation: CacheOp::READ, result: CacheResult::MISS };
        let instructions = group.add(&Builder::new(Hardware::INSTRUCTIONS))?;
        let cache_misses = group.add(&Builder::new(Hardware::CACHE_MISSES))?;
        let tlb_misses = group.add(&Builder::new(tlb))?;
        group.enable()?;
        black_box(way.run(offsets));
        group.disable()?;
        let counts = group.read()?;
        let each = |counter| counts[counter] as f64 / offsets.len() as f64;
        Ok(Counts {
            instructions: each(&instructions),
            cache_misses: each(&cache_misses),
            tlb_misses: each(&tlb_misses),
        })
    }

    /// The counts as JSON.
    pub fn json(self) -> Value {
        let Counts { instructions, cache_misses, tlb_misses } = self;
        json!({ "instructions": instructions, "cache_misses": cache_misses, "tlb_misses": tlb_misses })
    }
}
