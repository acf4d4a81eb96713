//! Every number that was tuned, not derived. The optimum is flat around each.

/// Generations of the clock in a memory's worth of pages: ages need no more than a quarter.
pub(super) const GENERATIONS_PER_MEMORY: u64 = 4;
/// Accesses after the first at which a newcomer goes to the main list: one more would be a burst,
/// and lets scans in.
pub(super) const PROMOTING_REFS: u32 = 2;
/// The same where an accessed bit was found set, which stands for any number of accesses.
pub(super) const PROMOTING_LOOKS: u32 = 1;
/// Steps of the hand for one page that wants in: bounds the work of a miss; 90 % of the cases need
/// fewer than three.
pub(super) const HAND_STEPS: u32 = 64;
/// Shadows count for so many memories of evictions: one is a little worse, more is no better.
pub(super) const SHADOW_MEMORIES: u64 = 2;
/// A newcomer that is back within half a memory of evictions would have stayed in a list of
/// newcomers half a memory longer.
pub(super) const NEWCOMER_REACH_PERCENT: u64 = 50;
/// A page that left the main list and is back within a tenth of a memory left it a moment too
/// early.
pub(super) const MAIN_REACH_PERCENT: u64 = 10;
/// Weight of a page that returns to the main list; a newcomer has 1. Such pages were used before and
/// are rarer.
pub(super) const MAIN_WEIGHT: u64 = 2;
/// A page that was refused counts a fifth of a step: enough to end a growth that gains nothing.
pub(super) const REFUSALS_PER_STEP: u64 = 5;
/// Signals in one direction until a step is twice as large: a shift of the working set is followed
/// in time.
pub(super) const RUN_PER_STEP: u32 = 32;
/// Largest step, in steps beyond the first.
pub(super) const STEPS_MAX: u32 = 7;
/// The newcomers' share to begin with, in percent of memory.
pub(super) const SHARE_PERCENT: u64 = 10;
/// Least and most of it: neither list is ever without pages.
pub(super) const SHARE_PERCENT_MIN: u64 = 1;
pub(super) const SHARE_PERCENT_MAX: u64 = 99;
/// Pages over which the period of the main list is averaged, as a power of two: 64.
pub(super) const PERIOD_SHIFT: u32 = 6;
/// Reclaim takes no more than such a share of a small memory at once: less costs efforts, more
/// leaves memory unused.
pub(super) const BATCHES_PER_MEMORY: u64 = 64;
/// Pages brought in from one question for the limits to the next, before anything was reclaimed:
/// seldom enough to cost nothing.
pub(super) const ASK_EVERY: u64 = 64;
/// Memory grows by so many pages between two efforts where nothing is known of it yet: one batch.
pub(super) const SLACK_PAGES: u64 = 64;
/// Generations whose beginnings are known by the node's clock: four memories of pages. Older ones count
/// as no older.
pub(super) const BIRTHS: usize = 16;
/// Where memcgs take turns by age, a memcg gives at least so many pages in a turn: a sixteenth, but not
/// more than are worth the visit.
pub(super) const TURN_SHARE: u64 = 16;
/// The hand looks at so much of a memcg before all of it is taken to be in use: an eighth, so that one
/// that went to sleep is found after eight visits by access counted.
pub(super) const LOOK_SHARE: u64 = 8;
/// Turns after which a larger growth is forgotten, as a power of two.
pub(super) const SLACK_SHIFT: u32 = 6;
