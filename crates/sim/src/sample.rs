//! How a run went: hits and generations at evenly spaced accesses, however many of them there will
//! be.
//!
//! Nobody knows beforehand how long a run is. So samples are taken often, and where they become
//! twice as many as wanted, every other one is dropped and only half as many are taken from then
//! on: 4,096 accesses apart, then 8,192, …

use mglru_core::Time;
use mglru_core::lru::GenerationRow;

/// Accesses between two samples, at first: few enough for a short trace to have some.
const EVERY: u64 = 256;

/// How things stood before an access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Accesses that began before.
    pub access: u64,
    /// When.
    pub time: Time,
    /// The root first, then the machine's tenants that are there.
    pub tenants: Vec<TenantSample>,
}

/// How things stood for one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSample {
    /// Its touches so far.
    pub accesses: u64,
    /// Those of cached pages.
    pub hits: u64,
    /// Its live generations, oldest first; none where it has not been made yet.
    pub generations: Vec<GenerationRow>,
}

/// Takes samples.
#[derive(Debug)]
pub(crate) struct Sampler {
    every: u64,
    /// Samples at the end: so many to twice as many.
    wanted: usize,
    samples: Vec<Sample>,
}

impl Sampler {
    pub(crate) fn new(wanted: usize) -> Sampler {
        Sampler { every: EVERY, wanted: wanted.max(1), samples: Vec::new() }
    }

    /// The access before which the next one is to be taken.
    pub(crate) fn next(&self) -> u64 {
        self.samples.last().map_or(0, |last| last.access) + self.every
    }

    /// Takes one, at [`Self::next`].
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
