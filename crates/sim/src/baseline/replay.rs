//! Replay of operations by a reference policy. Only page accesses count; other operations are
//! ignored.
//!
//! Anonymous pages are treated like file pages: their first access is a miss.

use super::arc::Arc;
use super::clock::Clock;
use super::fifo::Fifo;
use super::lirs::Lirs;
use super::lru::Lru;
use super::opt::Opt;
use super::s3_fifo::S3Fifo;
use super::sieve::Sieve;
use super::two_q::TwoQ;
use super::w_tiny_lfu::WTinyLfu;
use super::{Baseline, Policy};
use crate::keys::KeyTable;
use crate::operation::{Access, Operation, Source, SourceError};
use crate::report::Counts;
use std::ops::ControlFlow;

/// Results of a replay: only accesses, hits and misses are set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BaselineReport {
    /// All accesses.
    pub total: Counts,
    /// Accesses from the warm point on.
    pub warm: Counts,
}

/// Progress of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More of the source was read and, except for the optimum, replayed.
    Read,
    /// The source is read completely, and the next access to each page is being found: the
    /// optimum's first pass.
    Linked {
        /// Accesses whose next ones are known.
        accesses: u64,
        /// Total accesses.
        of: u64,
    },
    /// The source is read completely and partly replayed.
    Replayed {
        /// Accesses replayed so far.
        accesses: u64,
        /// Total accesses.
        of: u64,
    },
}

/// Accesses between progress reports.
pub(super) const ACCESSES_PER_REPORT: usize = 1 << 16;

/// Replays a source with a memory of `memory_pages` pages. Warm counts start at access `warm_from`.
/// `advance` is called now and then, and ends the replay with [`ControlFlow::Break`]: the report
/// then has what was counted so far.
///
/// # Errors
/// The source cannot be read, or, for the optimum, it has 2^32 - 1 accesses or more.
///
/// # Panics
/// If `memory_pages` is 0.
pub fn replay(
    baseline: Baseline,
    memory_pages: u64,
    warm_from: u64,
    source: &mut dyn Source,
    advance: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<BaselineReport, SourceError> {
    assert!(memory_pages > 0, "every policy keeps at least one page");
    // Larger than the number of distinguishable pages: all of them fit.
    let memory = u32::try_from(memory_pages).unwrap_or(u32::MAX);
    let mut replay = Replay { source, advance, is_ended: false, warm_from, pages: Positions::default() };
    match baseline {
        Baseline::Fifo => replay.online(&mut Fifo::new(memory)),
        Baseline::Lru => replay.online(&mut Lru::new(memory)),
        Baseline::Clock => replay.online(&mut Clock::new(memory)),
        Baseline::TwoQ => replay.online(&mut TwoQ::new(memory)),
        Baseline::Arc => replay.online(&mut Arc::new(memory)),
        Baseline::Lirs => replay.online(&mut Lirs::new(memory)),
        Baseline::S3Fifo => replay.online(&mut S3Fifo::new(memory)),
        Baseline::Sieve => replay.online(&mut Sieve::new(memory)),
        Baseline::WTinyLfu => replay.online(&mut WTinyLfu::new(memory)),
        Baseline::Opt => replay.offline(memory),
    }
}

/// Replays a source with a policy of your own. Warm counts start at access `warm_from`. `advance`
/// is called after each part that was read, and ends the replay as in [`replay`].
///
/// The policy gets pages by their positions: the first page that the source names is 0, the next
/// new one 1, and so on. It decides how much memory it has.
///
/// ```
/// use mglru_sim::baseline::{Policy, replay, replay_policy};
/// use mglru_sim::{Access, Baseline, Operation};
/// use std::ops::ControlFlow;
///
/// /// Evicts the page that was used last.
/// struct MostRecent {
///     pages: Vec<u32>,
///     memory_pages: usize,
/// }
///
/// impl Policy for MostRecent {
///     fn touch(&mut self, page: u32) -> bool {
///         let found = self.pages.iter().position(|&cached| cached == page);
///         match found {
///             Some(at) => drop(self.pages.remove(at)),
///             None if self.pages.len() == self.memory_pages => drop(self.pages.pop()),
///             None => {}
///         }
///         self.pages.push(page);
///         found.is_some()
///     }
/// }
///
/// # fn main() -> Result<(), mglru_sim::SourceError> {
/// let cycle = || (0..1000).map(|n| Operation::from(Access::read(n % 120)));
/// let mut policy = MostRecent { pages: Vec::new(), memory_pages: 100 };
/// let on = &mut |_| ControlFlow::Continue(());
/// let own = replay_policy(&mut policy, 0, &mut cycle(), on)?;
/// let lru = replay(Baseline::Lru, 100, 0, &mut cycle(), on)?;
/// assert_eq!((own.total.misses, lru.total.misses), (260, 1000));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The source cannot be read.
pub fn replay_policy(
    policy: &mut impl Policy,
    warm_from: u64,
    source: &mut dyn Source,
    advance: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<BaselineReport, SourceError> {
    Replay { source, advance, is_ended: false, warm_from, pages: Positions::default() }.online(policy)
}

struct Replay<'a> {
    source: &'a mut dyn Source,
    advance: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    /// Whether `advance` has ended the replay.
    is_ended: bool,
    warm_from: u64,
    pages: Positions,
}

impl Replay<'_> {
    /// Reads a batch of positions into `pages`. Returns `false` at the end of the source, or of the
    /// replay.
    fn read(&mut self, operations: &mut Vec<Operation>, pages: &mut Vec<u32>) -> Result<bool, SourceError> {
        operations.clear();
        pages.clear();
        self.source.fill(operations)?;
        self.is_ended = (self.advance)(Progress::Read).is_break();
        if self.is_ended {
            return Ok(false);
        }
        // Separate from the policy, so that the cache misses of a batch's look-ups overlap.
        pages.extend(operations.iter().filter_map(|operation| match operation {
            Operation::Access(access) => Some(self.pages.of(access)),
            _ => None,
        }));
        Ok(!operations.is_empty())
    }

    fn online(&mut self, policy: &mut impl Policy) -> Result<BaselineReport, SourceError> {
        let mut counting = Counting::new(self.warm_from);
        let (mut operations, mut pages) = (Vec::new(), Vec::new());
        while self.read(&mut operations, &mut pages)? {
            counting.touch(policy, &pages);
        }
        Ok(counting.report())
    }

    fn offline(&mut self, memory_pages: u32) -> Result<BaselineReport, SourceError> {
        let mut trace = Vec::new();
        let (mut operations, mut pages) = (Vec::new(), Vec::new());
        while self.read(&mut operations, &mut pages)? {
            trace.extend_from_slice(&pages);
            if trace.len() >= u32::MAX as usize {
                return Err(
                    "the optimum needs the whole trace and supports fewer than 2^32 - 1 accesses".into()
                );
            }
        }
        let accesses = trace.len();
        let mut counting = Counting::new(self.warm_from);
        if self.is_ended {
            return Ok(counting.report());
        }
        let of = accesses as u64;
        let linked = &mut |known: usize| (self.advance)(Progress::Linked { accesses: known as u64, of });
        let Some(mut policy) = Opt::watched(memory_pages, trace, linked) else {
            return Ok(counting.report());
        };
        let zeros = vec![0; ACCESSES_PER_REPORT.min(accesses)];
        let mut done = 0;
        while done < accesses {
            // The optimum knows the pages already.
            let step = zeros.len().min(accesses - done);
            counting.touch(&mut policy, &zeros[..step]);
            done += step;
            if (self.advance)(Progress::Replayed { accesses: done as u64, of }).is_break() {
                break;
            }
        }
        Ok(counting.report())
    }
}

/// Positions of pages, in the order of first use.
#[derive(Default)]
struct Positions {
    table: KeyTable,
}

/// Bit of anonymous pages. In traces with anonymous pages, page numbers are smaller than this.
const ANON: u64 = 1 << 63;

impl Positions {
    #[inline]
    fn of(&mut self, access: &Access) -> u32 {
        self.table.position(if access.anon { access.page ^ ANON } else { access.page })
    }
}

struct Counting {
    warm_from: u64,
    total: Counts,
    /// Counts before the warm point, once it is reached.
    cold: Option<Counts>,
}

impl Counting {
    fn new(warm_from: u64) -> Counting {
        Counting { warm_from, total: Counts::default(), cold: None }
    }

    #[inline]
    fn touch(&mut self, policy: &mut impl Policy, pages: &[u32]) {
        let until_warm = self.warm_from.saturating_sub(self.total.accesses);
        if self.cold.is_none() && until_warm < pages.len() as u64 {
            let (cold, warm) = pages.split_at(until_warm as usize);
            self.count(policy, cold);
            self.cold = Some(self.total);
            self.count(policy, warm);
        } else {
            self.count(policy, pages);
        }
    }

    #[inline]
    fn count(&mut self, policy: &mut impl Policy, pages: &[u32]) {
        let hits = pages.iter().map(|&page| u64::from(policy.touch(page))).sum::<u64>();
        self.total.accesses += pages.len() as u64;
        self.total.hits += hits;
        self.total.misses += pages.len() as u64 - hits;
    }

    fn report(self) -> BaselineReport {
        let total = self.total;
        let warm = self.cold.map_or(Counts::default(), |cold| Counts {
            accesses: total.accesses - cold.accesses,
            hits: total.hits - cold.hits,
            misses: total.misses - cold.misses,
            ..Counts::default()
        });
        BaselineReport { total, warm }
    }
}
