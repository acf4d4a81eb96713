//! Many equal memcgs under reclaim from the root: the load of `reproduce memcg-lru` and of the
//! fidelity of global reclaim.
//!
//! N memcgs have one process each, which maps a file of its own. At first every process loads all
//! of its pages. Then rounds follow: every process touches some of its pages, drawn at random, and
//! then pages are requested from the root (`memory.reclaim`). There is no other memory pressure.
//! The runs on real kernels follow the same recipe. There is one file per process, because on real
//! kernels, too, the pages of two processes never share a page table.

use crate::{Error, Watch};
use mglru_core::reclaim::Watermarks;
use mglru_core::{Counter, MemcgId};
use mglru_sim::{
    Access, FlusherModel, Machine, Operation, Request, SimError, Simulator, Source, SourceError, Tenant,
};
use mglru_workload::random::{INCREMENT, mix};

/// Parameters of the load.
#[derive(Debug, Clone, Copy)]
pub struct EqualMemcgs {
    /// Number of memcgs.
    pub memcgs: usize,
    /// Pages of each memcg.
    pub pages_each: u32,
    /// Share of a memcg's pages that is touched between two requests.
    pub touched: f64,
    /// Choice of the touched pages.
    pub draws: Draws,
    /// Whether requests are unsliced, as in kernels before slicing.
    pub unsliced: bool,
    /// Seed of the touched pages.
    pub seed: u64,
}

/// Choice of the touched pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draws {
    /// Independent random draws, page by page, so that some pages repeat: as in the runs on real
    /// kernels.
    Lab,
    /// Each page with the same probability, in order, 64 at a time. The resulting accessed bits are
    /// equivalent, and a touch takes 5 ns.
    InOrder,
}

/// A sequence of equal rounds.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    /// Number of rounds.
    pub rounds: u32,
    /// Pages per request.
    pub request_pages: u64,
    /// Time that passes after each round, in nanoseconds.
    pub rest_nanos: u64,
}

/// Results of some rounds.
#[derive(Debug, Clone)]
pub struct Rounds {
    /// Requested pages.
    pub requested_pages: u64,
    /// Pages reclaimed from each memcg.
    pub stolen_pages: Vec<u64>,
    /// Scanned pages, of all memcgs.
    pub scanned_pages: u64,
    /// Memcg visits per request, repeated visits included.
    pub memcgs_visited: f64,
    /// Number of requests that were not met in full.
    pub fell_short: usize,
}

impl Rounds {
    /// Reclaimed pages in percent of requested ones.
    pub fn ratio_percent(&self) -> f64 {
        100.0 * self.stolen_pages.iter().sum::<u64>() as f64 / self.requested_pages as f64
    }

    /// Standard deviation over all memcgs, in percent of the mean.
    pub fn deviation_percent(&self) -> f64 {
        let count = self.stolen_pages.len() as f64;
        let mean = self.stolen_pages.iter().sum::<u64>() as f64 / count;
        let squares: f64 = self.stolen_pages.iter().map(|&pages| (pages as f64 - mean).powi(2)).sum();
        100.0 * (squares / count).sqrt() / mean
    }

    /// Share reclaimed from the first quarter of the memcgs in order of creation, in percent.
    pub fn first_quarter_percent(&self) -> f64 {
        let sum = |pages: &[u64]| pages.iter().sum::<u64>() as f64;
        100.0 * sum(&self.stolen_pages[..self.stolen_pages.len() / 4]) / sum(&self.stolen_pages)
    }
}

/// The running machine.
pub struct Running {
    simulator: Simulator,
    memcgs: usize,
    requests_seen: usize,
    stolen_seen: Vec<u64>,
    scanned_seen: u64,
}

impl EqualMemcgs {
    /// Starts the load on a machine on which only requests reclaim pages. The phases run one after
    /// the other.
    ///
    /// # Errors
    /// If the machine cannot be built.
    pub fn start(self, machine: Machine, phases: Vec<Phase>) -> Result<Running, SimError> {
        let tenants =
            (0..self.memcgs).map(|m| Tenant::new(&format!("m{m}"), mglru_core::UNLIMITED)).collect();
        let machine = Machine { tenants, flusher: None::<FlusherModel>, ..machine };
        let mut simulator = Simulator::new(&machine)?;
        let processes: Vec<Option<usize>> = (0..self.memcgs).map(Some).chain([None]).collect();
        let source = Touches {
            load: self,
            phases,
            phase: 0,
            round: 0,
            first_round: 0,
            filled: false,
            memcg: 0,
            page: 0,
        };
        simulator.add_job_of(&processes, source);
        let stolen_seen = vec![0; self.memcgs];
        Ok(Running { simulator, memcgs: self.memcgs, requests_seen: 0, stolen_seen, scanned_seen: 0 })
    }

    /// A machine with memory for all pages, so that only requests reclaim.
    pub fn machine(&self) -> Machine {
        let watermarks = Watermarks { min: 0, low: 0, high: 0 };
        Machine { watermarks, ..Machine::new(self.memcgs as u32 * self.pages_each + 4096) }
    }

    /// Touches between two requests, of all memcgs.
    pub fn touches_per_round(&self) -> u64 {
        let of_one = match self.draws {
            Draws::Lab => u64::from(self.draws()),
            Draws::InOrder => (self.touched * f64::from(self.pages_each)) as u64,
        };
        self.memcgs as u64 * of_one
    }

    fn draws(&self) -> u32 {
        (-(1.0 - self.touched).ln() * f64::from(self.pages_each) + 0.5) as u32
    }
}

impl Running {
    /// The simulator, for observation.
    pub fn simulator(&mut self) -> &mut Simulator {
        &mut self.simulator
    }

    /// Runs until `requests` more requests have ended.
    ///
    /// # Errors
    /// A bug in the simulator, or [`Error::Cancelled`].
    pub fn run(&mut self, requests: usize, watch: &dyn Watch) -> Result<Rounds, Error> {
        let until = self.requests_seen + requests;
        while self.simulator.requests().len() < until && self.simulator.step().map_err(Error::work)? {
            watch.check()?;
        }
        assert_eq!(self.simulator.requests().len(), until, "a step ends at most one request");
        let done = &self.simulator.requests()[self.requests_seen..];
        let core = self.simulator.core();
        let stat = |m: usize, counter| core.memcg(MemcgId(m as u32 + 1)).stat().get(counter);
        let stolen: Vec<u64> = (0..self.memcgs).map(|m| stat(m, Counter::PgstealProactive)).collect();
        let scanned: u64 = (0..self.memcgs).map(|m| stat(m, Counter::PgscanProactive)).sum();
        let rounds = Rounds {
            requested_pages: done.iter().map(|request| request.pages).sum(),
            stolen_pages: stolen.iter().zip(&self.stolen_seen).map(|(now, before)| now - before).collect(),
            scanned_pages: scanned - self.scanned_seen,
            memcgs_visited: done.iter().map(|request| request.progress.memcgs_visited as f64).sum::<f64>()
                / requests as f64,
            fell_short: done.iter().filter(|request| request.fell_short).count(),
        };
        (self.requests_seen, self.stolen_seen, self.scanned_seen) = (until, stolen, scanned);
        Ok(rounds)
    }
}

/// The single job, which acts as all processes in turn.
struct Touches {
    load: EqualMemcgs,
    phases: Vec<Phase>,
    phase: usize,
    round: u32,
    /// Number of rounds in earlier phases.
    first_round: u32,
    filled: bool,
    memcg: usize,
    /// Pages that were loaded or drawn in the current memcg.
    page: u32,
}

/// Pages at a time, in whole leaves, so that the job's batch stays in the processor's caches.
const BATCH: u32 = 4096;

impl Source for Touches {
    fn fill(&mut self, batch: &mut Vec<Operation>) -> Result<(), SourceError> {
        let Some(&Phase { rounds, request_pages, rest_nanos }) = self.phases.get(self.phase) else {
            return Ok(());
        };
        let first = (self.memcg as u64) << 32;
        let touch = |page: u32| Operation::Access(Access::load(first | u64::from(page)));
        batch.push(Operation::Switch { process: self.memcg });
        let seed = 1_000_000_007u64
            .wrapping_mul(self.load.seed)
            .wrapping_add(65_536 * u64::from(self.first_round + self.round))
            .wrapping_add(self.memcg as u64);
        let pages = self.load.pages_each;
        let in_order = !self.filled || self.load.draws == Draws::InOrder;
        let end = if in_order { pages } else { self.load.draws() };
        let to = end.min(self.page + BATCH);
        if !self.filled {
            batch.extend((self.page..to).map(touch));
        } else if in_order {
            batch.extend((self.page..to).step_by(64).map(|page| Operation::Loads {
                first: first | u64::from(page),
                pages: draw_bits(seed, page / 64, self.load.touched)
                    & u64::MAX >> 64u32.saturating_sub(end - page),
            }));
        } else {
            let drawn = (self.page..to).map(|number| draw(seed, number) >> 32);
            batch.extend(drawn.map(|drawn| touch(((drawn * u64::from(pages)) >> 32) as u32)));
        }
        self.page = if to == end { 0 } else { to };
        if self.page > 0 {
            return Ok(());
        }
        self.memcg += 1;
        if self.memcg < self.load.memcgs {
            return Ok(());
        }
        self.memcg = 0;
        if !std::mem::replace(&mut self.filled, true) {
            return Ok(());
        }
        batch.push(Operation::Switch { process: self.load.memcgs });
        let unsliced = self.load.unsliced;
        batch.push(Operation::Reclaim(Request {
            tenant: None,
            pages: request_pages,
            swappiness: None,
            unsliced,
        }));
        if rest_nanos > 0 {
            batch.push(Operation::Rest { nanos: rest_nanos });
        }
        self.round += 1;
        if self.round == rounds {
            self.first_round += rounds;
            (self.phase, self.round) = (self.phase + 1, 0);
        }
        Ok(())
    }
}

/// 64 random bits, each set with probability `chance`. They are draw `number` of the seed.
fn draw_bits(seed: u64, number: u32, chance: f64) -> u64 {
    // From the last binary digit of the probability to the first: each halves the value, and a one
    // adds a half.
    let digits = (chance * f64::from(1 << CHANCE_DIGITS)) as u32;
    (0..CHANCE_DIGITS).fold(0, |bits, digit| {
        let drawn = draw(seed, number * CHANCE_DIGITS + digit);
        if digits >> digit & 1 == 1 { bits | drawn } else { bits & drawn }
    })
}

const CHANCE_DIGITS: u32 = 16;

/// Draw `number` of the SplitMix64 of `seed`. The runs on real kernels use its upper half.
fn draw(seed: u64, number: u32) -> u64 {
    mix(seed.wrapping_add(INCREMENT.wrapping_mul(u64::from(number) + 1)))
}
