//! All tuned numbers. The optimum is flat around each.

use crate::lru::CLUSTER_PAGES;

/// Walks over page tables per turnover of memory. More gain no more than .001.
pub(super) const WALKS_PER_MEMORY: u64 = 3;
/// A walk leaves out a leaf with less than one cached page in so many mapped ones: with all leaves
/// it looks at three to four times as many entries where few pages are cached, for .001.
pub(super) const WALKED_PART: u64 = 8;
/// Generations of the clock per turnover of memory: ages need no finer unit than a quarter.
pub(super) const GENERATIONS_PER_MEMORY: u64 = 4;
/// Accesses after the first that promote a newcomer. With one, bursts and scans would get in. An
/// accessed bit counts as two.
pub(super) const PROMOTING_REFS: u32 = 2;
/// Most steps of the hand per page to admit, to bound the work of a miss. In 90 % of the cases
/// fewer than three suffice.
pub(super) const HAND_STEPS: u64 = 64;
/// Evictions for which a shadow counts, in memory sizes: two are slightly worse.
pub(super) const SHADOW_MEMORIES: u64 = 3;
/// A newcomer that returns within evictions of a third of a memory would have stayed, had the list
/// been so much longer.
pub(super) const NEWCOMER_REACH_PERCENT: u64 = 30;
/// A page that left the main list and returns within evictions of a tenth of a memory left too
/// early.
pub(super) const MAIN_REACH_PERCENT: u64 = 10;
/// Weight of a page that returns to the main list; a newcomer has 1. Such pages were used before
/// and are rarer.
pub(super) const MAIN_WEIGHT: u64 = 2;
/// A refused page counts a fifth of a step: enough to end a growth without gain.
pub(super) const REFUSALS_PER_STEP: u64 = 5;
/// Signals in one direction that double the step, so that a shift of the working set is followed in
/// time.
pub(super) const RUN_PER_STEP: u32 = 8;
/// The largest step, in steps beyond the first.
pub(super) const STEPS_MAX: u32 = 7;
/// The initial share of newcomers, in percent of memory.
pub(super) const SHARE_PERCENT: u64 = 5;
/// Minimum and maximum of the share: neither list is ever empty.
pub(super) const SHARE_PERCENT_MIN: u64 = 1;
pub(super) const SHARE_PERCENT_MAX: u64 = 99;
/// Averaging window of the main list's period, as a power of two: 64 pages.
pub(super) const PERIOD_SHIFT: u32 = 6;
/// Reclaim takes at most this part of a small memory at once: with less, efforts cost more; with
/// more, memory stays unused.
pub(super) const BATCHES_PER_MEMORY: u64 = 32;
/// Pages brought in between two checks of the limits, before the first reclaim.
pub(super) const ASK_EVERY: u64 = 64;
/// Initial growth of memory between two efforts: one batch of pages.
pub(super) const SLACK_PAGES: u64 = 64;
/// Generations whose beginnings are known by the node's clock: four memories of pages. Older ones
/// count as no older.
pub(super) const BIRTHS: usize = 16;
/// Where memcgs take turns by age, a memcg gives at least so many pages in a turn: one in 32, but
/// not more than are worth the visit.
pub(super) const TURN_SHARE: u64 = 32;
/// The flusher is woken if one in so many pages of a batch is dirty and not queued for writing. The
/// kernel waits until all are. Here, a short list of newcomers would meet the same pages again and
/// again, and they would take the place of others: with 2, `fs_compile` with memory for 40 % of its
/// pages misses 7 % more. With 8, YCSB B on redb wrote 18 % more than under Linux 7.2; with 3 it
/// writes 5 % more.
pub(super) const DIRTY_PART: u64 = 3;
/// Newcomers are stuck if less than one in so many pages of their batches can be freed.
pub(super) const STUCK_PART: u64 = 8;
/// Newcomers in a row that cannot be freed, mostly because they are being written, before an effort
/// passes to the main list. It would look at all of them again in each pass.
pub(super) const STUCK_NEWCOMERS_MAX: u64 = 64;
/// The hand looks at so much of a memcg before all of it is taken to be in use: an eighth, so that
/// one that went to sleep is found after eight visits by access counted.
pub(super) const LOOK_SHARE: u64 = 8;
/// The fewest pages that the hand looks at before it judges their use.
pub(super) const LOOKED_MIN: u64 = 16;
/// A memcg is in use if one in so many of the pages that the hand meets was accessed since the last
/// lap: of a stream's, none is.
pub(super) const USED_PART: u64 = 8;
/// The most pages that a memcg in use gives in a turn that is to find out whether it still is. With
/// whole turns, one beside a fast stream gave a twentieth of its pages each second; with 16 pages,
/// it missed 3.6 % more often than under Linux 7.2.
pub(super) const LOOKING_PAGES: u64 = 4;
/// A memcg is missed if one in so many of its evicted pages came back soon: a stream's pages do not
/// come back, and of pages that are used alike most do.
pub(super) const MISSED_PART: u64 = 4;
/// The fewest evictions of a period in which returning pages are counted.
pub(super) const PERIOD_EVICTIONS: u64 = 64;
/// The fewest pages that must come back in a period before a memcg is missed.
pub(super) const RETURNS_MIN: u64 = 16;
/// Periods in a row after which a memcg is not missed any more.
pub(super) const UNMISSED_PERIODS: u32 = 8;

/// Newcomers that were read ahead and not read yet are kept up to this part of the memory that the
/// memcg may have: with an eighth, 16 streams in 8 MiB read everything twice.
pub(super) const UNREAD_PART: u64 = 2;

/// Such a page was evicted too early if it comes back within evictions of an eighth of that memory.
pub(super) const UNREAD_REACH_PART: u64 = 8;

/// The least such number of evictions, up to half of memory: the readahead of 16 streams.
pub(super) const UNREAD_REACH_MIN: u64 = 1024;

/// So many more of them are kept for each that comes back so soon, and one less for each that is
/// evicted: more than half must come back. Of what is read around random misses, a quarter may.
pub(super) const UNREAD_STEP: u64 = 2;

/// Turns after which a larger growth is forgotten, as a power of two.
pub(super) const SLACK_SHIFT: u32 = 6;

/// The fewest pages reclaimed at once under a limit: 1/32 of it, but at most the kernel's 32. Free
/// pages are unused memory, and 32 pages are much of a small one.
pub(in crate::lru) fn fewest_pages(limit_pages: u64) -> u64 {
    (limit_pages / BATCHES_PER_MEMORY).clamp(1, CLUSTER_PAGES)
}
