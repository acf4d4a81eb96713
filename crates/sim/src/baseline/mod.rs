//! Reference replacement policies, for comparing their misses with the engine's on the same traces.
//!
//! A policy is far simpler than the engine: it sees page numbers and reports hit or miss, without
//! files, dirty pages or time. Each follows the paper cited in its file. Where the paper leaves a
//! choice, it follows libCacheSim (2024-10-07), with whose miss ratios the tests compare.
//! `docs/baselines.md` lists the differences.
//!
//! ```text
//! operations ─► positions  keys.rs        0, 1, 2, … in the order of first use
//!            ─► Policy     one per file   arrays by position, queues through them: queue.rs
//!            ─► Counts     replay.rs
//! ```
//!
//! An access takes constant time at any memory size ([`opt`]: the logarithm of the memory) and
//! allocates only for new pages. Nothing is shared or locked.

pub mod arc;
pub mod clock;
pub mod fifo;
pub mod lirs;
pub mod lru;
pub mod opt;
mod queue;
pub mod replay;
pub mod s3_fifo;
pub mod sieve;
pub mod two_q;
pub mod w_tiny_lfu;

pub use replay::{BaselineReport, Progress, replay, replay_policy};

/// A replacement policy for a memory of a fixed number of pages, at least one. [`replay_policy`]
/// runs one of your own.
pub trait Policy {
    /// Accesses a page, named by its position in the order of first use. A missing page is brought
    /// in, and evicts another if memory is full. Returns whether the page was in memory.
    fn touch(&mut self, page: u32) -> bool;
}

/// The reference policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// First in, first out.
    Fifo,
    /// Least recently used.
    Lru,
    /// Second chance.
    Clock,
    /// 2Q, full version.
    TwoQ,
    /// Adaptive replacement cache.
    Arc,
    /// Low inter-reference recency set.
    Lirs,
    /// Three FIFO queues, a small one first.
    S3Fifo,
    /// A hand that moves over a FIFO queue from old to new.
    Sieve,
    /// A small LRU window, then admission by frequency.
    WTinyLfu,
    /// Belady's optimum, which needs the whole trace.
    Opt,
}

impl Baseline {
    /// All policies in the order of publication, the optimum last.
    pub const ALL: [Baseline; 10] = [
        Baseline::Fifo,
        Baseline::Lru,
        Baseline::Clock,
        Baseline::TwoQ,
        Baseline::Lirs,
        Baseline::Arc,
        Baseline::WTinyLfu,
        Baseline::S3Fifo,
        Baseline::Sieve,
        Baseline::Opt,
    ];

    /// The name on the command line and in documents.
    pub fn name(self) -> &'static str {
        match self {
            Baseline::Fifo => "fifo",
            Baseline::Lru => "lru",
            Baseline::Clock => "clock",
            Baseline::TwoQ => "2q",
            Baseline::Arc => "arc",
            Baseline::Lirs => "lirs",
            Baseline::S3Fifo => "s3-fifo",
            Baseline::Sieve => "sieve",
            Baseline::WTinyLfu => "w-tinylfu",
            Baseline::Opt => "opt",
        }
    }

    /// The policy with this name.
    ///
    /// # Errors
    /// The name is unknown; the message lists the known ones.
    pub fn parse(name: &str) -> Result<Baseline, String> {
        Baseline::ALL.into_iter().find(|baseline| baseline.name() == name).ok_or_else(|| {
            let names = Baseline::ALL.map(Baseline::name).join(", ");
            format!("unknown policy `{name}`; expected one of {names}")
        })
    }
}

/// `h` or `.` for each page of a sequence of letters.
#[cfg(test)]
fn hits(policy: &mut impl Policy, pages: &str) -> String {
    let page = |letter: u8| u32::from(letter - b'a');
    pages.bytes().map(|letter| if policy.touch(page(letter)) { 'h' } else { '.' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_unknown_ones_are_refused() {
        for baseline in Baseline::ALL {
            assert_eq!(Baseline::parse(baseline.name()), Ok(baseline));
        }
        let error = Baseline::parse("mru").unwrap_err();
        assert!(error.contains("`mru`") && error.contains("fifo, lru, clock, 2q"), "{error}");
    }
}
