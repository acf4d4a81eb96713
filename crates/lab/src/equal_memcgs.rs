//! Many equal memcgs that are asked for pages together: the load behind `reproduce memcg-lru` and
//! the fidelity of global reclaim.
//!
//! N memcgs, each with one process that maps a file of its own. First everybody loads all of its
//! pages. Then, round by round: everybody touches some of its pages, drawn by chance; then somebody
//! asks the root for pages (`memory.reclaim`). Nothing else is short of memory. This is the recipe
//! of `../shared/kernel/README.md`, with a file per process, as the pages of two processes never
//! share a page table there either.

use mglru_core::reclaim::Watermarks;
use mglru_core::{Counter, MemcgId};
use mglru_sim::{
    Access, FlusherModel, Machine, Operation, Request, SimError, Simulator, Source, SourceError, Tenant,
};
use mglru_workload::random::{INCREMENT, mix};

/// The load.
#[derive(Debug, Clone, Copy)]
pub struct EqualMemcgs {
    /// How many.
    pub memcgs: usize,
    /// Pages of each.
    pub pages_each: u32,
    /// Of them, the share that is touched between two requests.
    pub touched: f64,
    /// How they are chosen.
    pub draws: Draws,
    /// Each request at once, as before they were sliced.
    pub unsliced: bool,
    /// Seed of what is touched.
    pub seed: u64,
}

/// How pages are chosen that are touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draws {
    /// Each at random, so that some are drawn more often: the kernel lab's, page by page.
    Lab,
    /// Each page with the same chance, in order, 64 at a time: to the accessed bits it is the same,
    /// and a touch takes 5 ns.
    InOrder,
}

/// Rounds that are alike.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    /// How many.
    pub rounds: u32,
    /// Pages per request.
    pub request_pages: u64,
    /// Time that passes after each.
    pub rest_nanos: u64,
}

/// What some rounds came to.
#[derive(Debug, Clone)]
pub struct Rounds {
    /// Pages asked for.
    pub requested_pages: u64,
    /// Pages that each memcg lost.
    pub stolen_pages: Vec<u64>,
    /// Pages scanned, of all.
    pub scanned_pages: u64,
    /// Memcgs visited per request, each as often as it was.
    pub memcgs_visited: f64,
    /// Requests that fell short.
    pub fell_short: usize,
}

impl Rounds {
    /// What was stolen for a page that was asked for, in percent.
    pub fn ratio_percent(&self) -> f64 {
        100.0 * self.stolen_pages.iter().sum::<u64>() as f64 / self.requested_pages as f64
    }

    /// Standard deviation over the memcgs (all there are), in percent of the mean.
    pub fn deviation_percent(&self) -> f64 {
        let count = self.stolen_pages.len() as f64;
        let mean = self.stolen_pages.iter().sum::<u64>() as f64 / count;
        let squares: f64 = self.stolen_pages.iter().map(|&pages| (pages as f64 - mean).powi(2)).sum();
        100.0 * (squares / count).sqrt() / mean
    }

    /// What the first quarter of them, in the order in which they were made, lost of all, in
    /// percent.
    pub fn first_quarter_percent(&self) -> f64 {
        let sum = |pages: &[u64]| pages.iter().sum::<u64>() as f64;
        100.0 * sum(&self.stolen_pages[..self.stolen_pages.len() / 4]) / sum(&self.stolen_pages)
    }
}

/// The machine while it runs.
pub struct Running {
    simulator: Simulator,
    memcgs: usize,
    requests_seen: usize,
    stolen_seen: Vec<u64>,
    scanned_seen: u64,
}

impl EqualMemcgs {
    /// Begins, on a machine on which only requests take pages; one phase after the other.
    ///
    /// # Errors
    /// The machine cannot be built.
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

    /// A machine that has memory for all pages, so that nothing but requests takes any.
    pub fn machine(&self) -> Machine {
        let watermarks = Watermarks { min: 0, low: 0, high: 0 };
        Machine { watermarks, ..Machine::new(self.memcgs as u32 * self.pages_each + 4096) }
    }

    /// Touches between two requests, of all.
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
    /// The machine, to be watched.
    pub fn simulator(&mut self) -> &mut Simulator {
        &mut self.simulator
    }

    /// Runs until `requests` more have ended.
    ///
    /// # Errors
    /// The simulator has a bug.
    pub fn run(&mut self, requests: usize) -> Result<Rounds, SimError> {
        let until = self.requests_seen + requests;
        while self.simulator.requests().len() < until && self.simulator.step()? {}
        assert_eq!(self.simulator.requests().len(), until, "a step ends at a request at the latest");
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

/// What the one job does, as all processes in turn.
struct Touches {
    load: EqualMemcgs,
    phases: Vec<Phase>,
    phase: usize,
    round: u32,
    /// Rounds of the phases before.
    first_round: u32,
    filled: bool,
    memcg: usize,
    /// Of the memcg whose turn it is, pages that were loaded, or drawn, already.
    page: u32,
}

/// Pages at a time, in whole leaves: the job's batch stays in the processor's caches.
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

/// 64 bits each of which is set by that chance; number `number` of the seed.
fn draw_bits(seed: u64, number: u32, chance: f64) -> u64 {
    // The chance in binary, from its last digit to its first: each halves what is there, and adds a
    // half for a one.
    let digits = (chance * f64::from(1 << CHANCE_DIGITS)) as u32;
    (0..CHANCE_DIGITS).fold(0, |bits, digit| {
        let drawn = draw(seed, number * CHANCE_DIGITS + digit);
        if digits >> digit & 1 == 1 { bits | drawn } else { bits & drawn }
    })
}

const CHANCE_DIGITS: u32 = 16;

/// Draw `number` of the splitmix64 of `seed`; its upper half is what the kernel lab draws.
fn draw(seed: u64, number: u32) -> u64 {
    mix(seed.wrapping_add(INCREMENT.wrapping_mul(u64::from(number) + 1)))
}
