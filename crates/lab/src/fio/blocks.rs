//! Expected contents of a file, as one instance knows them.
//!
//! The instance remembers the generation of each block that it wrote or that was laid out for it. A
//! block that it reads must have that generation, or come from another job that writes the same
//! file. A job that only reads accepts any generation.

use super::plan::PlannedUse;
use mglru_workload::fio::Job;
use mglru_workload::verify::{self, Difference, Identity, VerifyError};

/// Expected state of the blocks of a file.
pub struct Blocks {
    /// Generation of each block; 0 if unknown.
    generations: Vec<u32>,
    block_bytes: u64,
    first_offset: u64,
    /// Blocks from here on had generation 1 when the job began.
    laid_out_from: u64,
    seed: u64,
    /// Seeds of other jobs that write the same file.
    others: Vec<u64>,
    /// Whether any generation is accepted, because the job only reads.
    any_generation: bool,
}

impl Blocks {
    /// State before the job begins. `others` are the seeds of other jobs that write the file.
    pub fn new(job: &Job, of: &PlannedUse, others: Vec<u64>) -> Blocks {
        let block_bytes = u64::from(job.block_bytes.largest(job.mix));
        let count = of.size_bytes / block_bytes;
        let generation = |block| u32::from(of.offset_bytes + block * block_bytes >= of.laid_out_from);
        let any_generation = !job.mix.writes();
        Blocks {
            generations: if any_generation { Vec::new() } else { (0..count).map(generation).collect() },
            block_bytes,
            first_offset: of.offset_bytes,
            laid_out_from: of.laid_out_from,
            seed: job.seed,
            others,
            any_generation,
        }
    }

    fn number(&self, offset: u64) -> usize {
        ((offset - self.first_offset) / self.block_bytes) as usize
    }

    /// Fills a block that is about to be written.
    pub fn fill(&mut self, block: &mut [u8], offset: u64) {
        let number = self.number(offset);
        let generation = &mut self.generations[number];
        *generation += 1;
        verify::fill(block, Identity { offset, generation: u64::from(*generation), seed: self.seed });
    }

    /// Checks a block that was read.
    pub fn check(&self, block: &[u8], offset: u64) -> Result<(), VerifyError> {
        if self.any_generation {
            return verify::check(block, offset).map(drop);
        }
        let expected = u64::from(self.generations[self.number(offset)]);
        if expected == 0 {
            return Ok(());
        }
        let identity = verify::check(block, offset)?;
        if identity.generation == expected || self.others.contains(&identity.seed) {
            return Ok(());
        }
        let difference = Difference::Generation { expected, found: identity.generation };
        Err(VerifyError { offset, difference })
    }

    /// Offsets that the job has written, in order.
    pub fn written(&self) -> Vec<u64> {
        let blocks = self.generations.iter().enumerate();
        blocks
            .map(|(block, &generation)| (self.first_offset + block as u64 * self.block_bytes, generation))
            .filter(|&(offset, generation)| generation > u32::from(offset >= self.laid_out_from))
            .map(|(offset, _)| offset)
            .collect()
    }
}
