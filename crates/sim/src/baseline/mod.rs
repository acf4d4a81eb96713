//! Other replacement policies, on the same traces as the engine: what its misses are compared with.
//!
//! A policy is far less than the engine: it sees the numbers of pages and says hit or miss. It
//! knows no files, no dirty pages and no time. Each is written after the paper that its file names;
//! where the paper leaves a choice, it is libCacheSim's (2024-10-07), whose miss ratios the tests
//! compare with. `docs/baselines.md` has the differences.
//!
//! ```text
//! operations ─► positions  keys.rs        0, 1, 2, … in the order of first use
//!            ─► Policy     one per file   arrays by position, queues through them: queue.rs
//!            ─► Counts     replay.rs
//! ```
//!
//! An access takes a few steps, whatever the size of memory, and allocates nothing but to make room
//! for pages never seen before ([`opt`] takes log₂ of the memory). Nothing is shared and nothing is
//! locked.

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

pub use replay::{BaselineReport, Progress, replay};

/// Which pages stay in a memory of a fixed number of pages. There is always at least one.
pub trait Policy {
    /// Touches a page, by its position in the order of first use. A page that is not in memory is
    /// brought in, for which another one leaves if memory is full. Whether it was in memory.
    fn touch(&mut self, page: u32) -> bool;
}

/// The policies by name.
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
    /// Three queues, a small one first.
    S3Fifo,
    /// A hand that moves over a queue from old to new.
    Sieve,
    /// A window, and admission by frequency behind it.
    WTinyLfu,
    /// Belady's optimum, which knows the future.
    Opt,
}

impl Baseline {
    /// All of them, in the order of their publication; the optimum last.
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

    /// The policy of that name.
    ///
    /// # Errors
    /// There is none; the message lists those that there are.
    pub fn parse(name: &str) -> Result<Baseline, String> {
        Baseline::ALL.into_iter().find(|baseline| baseline.name() == name).ok_or_else(|| {
            let names = Baseline::ALL.map(Baseline::name).join(", ");
            format!("there is no policy `{name}`; there are {names}")
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
    fn names_lead_back_and_others_are_told() {
        for baseline in Baseline::ALL {
            assert_eq!(Baseline::parse(baseline.name()), Ok(baseline));
        }
        let error = Baseline::parse("mru").unwrap_err();
        assert!(error.contains("`mru`") && error.contains("fifo, lru, clock, 2q"), "{error}");
    }
}
