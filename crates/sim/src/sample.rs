//! Samples of hits and generations at evenly spaced accesses.
//!
//! The length of a run is not known in advance. So samples are taken frequently, and once there are
//! twice as many as wanted, every other one is dropped and the interval doubles: 256 accesses, then
//! 512, …

use mglru_core::Time;
use mglru_core::lru::GenerationRow;

/// Initial number of accesses between samples, small enough for short traces.
const EVERY: u64 = 256;

/// The state before an access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Number of accesses before the sample.
    pub access: u64,
    /// Time of the sample.
    pub time: Time,
    /// The root first, then the machine's existing tenants.
    pub tenants: Vec<TenantSample>,
}

/// A tenant's part of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSample {
    /// Its accesses so far.
    pub accesses: u64,
    /// Accesses to cached pages so far.
    pub hits: u64,
    /// Its cached pages.
    pub pages: u64,
    /// Pages reclaimed from it so far.
    pub stolen_pages: u64,
    /// Its live generations, oldest first; empty before the tenant is created.
    pub generations: Vec<GenerationRow>,
}

#[derive(Debug)]
pub(crate) struct Sampler {
    every: u64,
    /// Minimum number of samples at the end; the maximum is twice that.
    wanted: usize,
    samples: Vec<Sample>,
}

impl Sampler {
    pub(crate) fn new(wanted: usize) -> Sampler {
        Sampler { every: EVERY, wanted: wanted.max(1), samples: Vec::new() }
    }

    /// The access before which the next sample is due.
    pub(crate) fn next(&self) -> u64 {
        self.samples.last().map_or(0, |last| last.access) + self.every
    }

    /// Adds the sample due at [`Self::next`].
    pub(crate) fn take(&mut self, sample: Sample) {
        debug_assert_eq!(sample.access, self.next());
        self.samples.push(sample);
        if self.samples.len() == 2 * self.wanted {
            self.every *= 2;
            let every = self.every;
            self.samples.retain(|sample| sample.access.is_multiple_of(every));
        }
    }

    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_evenly_spaced_and_never_too_many() {
        for accesses in [1, 300, 5_000, 123_456, 10_000_000] {
            let mut sampler = Sampler::new(10);
            while sampler.next() <= accesses {
                let access = sampler.next();
                sampler.take(Sample { access, time: Time::from_nanos(access), tenants: Vec::new() });
            }
            let at: Vec<u64> = sampler.samples().iter().map(|sample| sample.access).collect();
            assert!(at.len() < 20 && (at.len() >= 10 || accesses < 10 * EVERY), "{accesses}: {at:?}");
            assert!(at.iter().enumerate().all(|(n, &access)| access == (n as u64 + 1) * sampler.every));
        }
    }
}
