//! The host interface: what the core needs to know from outside, and what it asks for.
//!
//! The core asks its host for the time and orders its actions. The cache acts with threads and
//! files, the simulator with an event queue.

use crate::event::Event;
use crate::folio::FolioId;
use crate::mapping::MappingId;
use crate::memcg::MemcgId;
use std::time::Duration;

/// A moment: nanoseconds since the host started. Monotonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The start of the host.
    pub const ZERO: Time = Time(0);

    /// The moment `nanos` nanoseconds after the start of the host.
    pub fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the start of the host.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Time {
    type Output = Time;

    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The reason to wake the flusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushReason {
    /// A batch of reclaim met only dirty pages that are not being written.
    Reclaim,
    /// More pages are dirty than the background limit allows.
    Background,
}

/// Number of a swap slot, which holds one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwapSlot(pub u32);

/// A request to write a page to its swap slot. The folio is locked and mapped nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapOut {
    /// The page.
    pub page: (MappingId, u32),
    /// The folio whose frame holds the bytes.
    pub folio: FolioId,
    /// The destination.
    pub slot: SwapSlot,
}

/// The host's answer to a [`SwapOut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapOutcome {
    /// The write has started; [`Core::end_writeback`](crate::Core::end_writeback) will report its
    /// result.
    Started,
    /// The page is written.
    Done,
    /// The page cannot be written now and stays in memory.
    Refused,
}

/// Pages of a tenant and its descendants, in the generations at one distance from the youngest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GenerationPages {
    /// Anonymous pages.
    pub anon_pages: u64,
    /// File pages.
    pub file_pages: u64,
}

/// Report of a page that could not be had. Only the request that needed the page fails.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The tenant whose limit was hit; empty for the budget of the whole cache.
    pub tenant: String,
    /// The tenant that was killed, so that the request failed. In [`Host::out_of_memory`], the
    /// tenant that would be killed. `None`: the request just failed.
    pub victim: Option<String>,
    /// Pages that the request needed at once: one, or more for the index of pages far apart.
    pub wanted_pages: u64,
    /// Pages charged to `tenant`.
    pub usage_pages: u64,
    /// The tenant's limit, in pages.
    pub max_pages: u64,
    /// The tenant's anonymous pages.
    pub anon_pages: u64,
    /// The largest number of swap slots still open to any of the memcgs that own anonymous pages.
    /// If it is below `swap::FREE_SLOTS_MIN` of `mglru_core`, reclaim takes no anonymous pages.
    pub free_swap_pages: u64,
    /// The tenant's dirty pages that could not be freed.
    pub dirty_pages: u64,
    /// The tenant's pages under writeback.
    pub writeback_pages: u64,
    /// The tenant's mapped file pages, which stay while they are accessed again and again.
    pub mapped_pages: u64,
    /// The tenant's pages that `memory.min` of its descendants protects.
    pub protected_pages: u64,
    /// The tenant's unevictable pages.
    pub unevictable_pages: u64,
    /// Pages of metadata that the tenant and those below it pay for: the index of its pages, open
    /// files, handles, regions and tenants. Of the whole cache, if `tenant` is empty.
    pub metadata_pages: u64,
    /// The tenant's pages by generation, the youngest last. Generations of descendants are added by
    /// their distance from the youngest.
    pub generations: Vec<GenerationPages>,
}

/// The host's answer to [`Host::out_of_memory`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OomDecision {
    /// The request fails.
    Fail,
    /// Kill the tenant of this path, below the limit that was hit, with its OOM group. If it does
    /// not exist or was already killed, the request fails.
    Kill(String),
    /// Reclaim starts anew, since the host made room or expects some. A host that always answers
    /// this may wait forever.
    Retry,
}

/// The services that the core asks of its surroundings. All calls return at once. An implementation
/// must not call back into the core.
pub trait Host {
    /// The current time.
    fn now(&self) -> Time;

    /// Dirty pages should be written.
    fn wake_flusher(&self, reason: FlushReason);

    /// Free memory is below the low watermark: background reclaim should run.
    fn wake_background(&self);

    /// Threads that wait for this folio to be unlocked or written should look again.
    fn wake_waiters(&self, folio: FolioId);

    /// Threads that wait for [`Throttle::Isolated`] may go on. A hint: the wait also ends by its
    /// timeout, and it never begins while only one thread reclaims.
    fn wake_isolated(&self) {}

    /// Threads that wait for [`Throttle::Background`] may go on.
    fn wake_throttled(&self) {}

    /// Asks to write an anonymous page to its swap slot. A host with swap must implement this; the
    /// others are never asked.
    fn swap_out(&self, write: SwapOut) -> SwapOutcome {
        let _ = write;
        SwapOutcome::Refused
    }

    /// A pass of reclaim over a memcg is over, or its task begins to wait: a host that collects the
    /// writes of a pass to swap sends them off now. Default: does nothing.
    fn end_swap_outs(&self) {}

    /// The content of a swap slot is no longer needed. The slot may be reused as soon as this
    /// returns.
    fn swap_freed(&self, slot: SwapSlot) {
        let _ = slot;
    }

    /// A page cannot be had under [`crate::OomPolicy::Ask`]: the host decides. `report.victim` is
    /// the tenant that `Victim` would kill. Default: the request fails.
    fn out_of_memory(&self, report: &OutOfMemory) -> OomDecision {
        let _ = report;
        OomDecision::Fail
    }

    /// A memcg is killed: the host should soon run a [`crate::reclaim::Reaping`] on its anonymous
    /// memory. `false`: the host cannot, and no memcg is killed.
    fn oom_kill(&self, victim: MemcgId) -> bool {
        let _ = victim;
        false
    }

    /// The memory at this address is about to be written: the host may prefetch it. A hint that
    /// never changes a value. Default: does nothing.
    #[inline]
    fn prefetch<T>(&self, at: &T) {
        let _ = at;
    }

    /// A frame pays for metadata from now on: the host may return its memory to the system. Called
    /// under a lock, before another thread can find the frame.
    fn frame_retired(&self, frame: FolioId);

    /// A frame no longer pays for metadata and may hold pages again. As [`Self::frame_retired`].
    fn frame_restored(&self, frame: FolioId) {
        let _ = frame;
    }

    /// These whole pages of the process's memory hold only zeros and are not needed for now. The
    /// host may return their memory to the system if they still read as zero and can be written
    /// later. Returns whether it did. Default: no.
    fn zeros_unused(&self, pages: std::ops::Range<*const u8>) -> bool {
        let _ = pages;
        false
    }

    /// Whether the host observes each folio. The core asks before it creates such an event.
    #[inline]
    fn observes(&self) -> bool {
        false
    }

    /// Reports an event to observers.
    fn event(&self, event: Event) {
        let _ = event;
    }
}

/// A host that observes nothing, at time zero. For benchmarks and tests of the core alone, without
/// sleeping threads, a flusher or retired memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Host for Silent {
    fn now(&self) -> Time {
        Time::ZERO
    }

    fn wake_flusher(&self, _: FlushReason) {}

    fn wake_background(&self) {}

    fn wake_waiters(&self, _: FolioId) {}

    fn frame_retired(&self, _: FolioId) {}
}

/// The reason for a wait, and with it the longest duration ([book: writeback#throttling]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttle {
    /// Pages under writeback, or being read, are in the way: until some are done, at most 100 ms.
    Writeback,
    /// The target met only dirty pages that are already queued: one tick.
    Congested,
    /// Direct reclaim is about to have scanned everything and freed nothing: one tick.
    NoProgress,
    /// Classic: concurrent reclaimers have isolated more pages than they left on the inactive
    /// lists: until they put them back ([`Host::wake_isolated`]), at most 20 ms.
    Isolated,
    /// Less than half of the pages below the min watermark are free: direct reclaim begins when
    /// background reclaim has freed some ([`Host::wake_throttled`]), at the latest after a second.
    /// Only where CPUs have the kernel's lists ([`crate::Options::pcp_sizes`]).
    Background,
    /// The charging task is above `memory.high`: this long.
    OverHigh(Duration),
    /// The task dirties pages faster than they are written: this long.
    Dirty(Duration),
}

impl Throttle {
    /// The longest wait.
    pub fn timeout(self) -> Duration {
        match self {
            Throttle::Writeback => Duration::from_millis(100),
            // One tick of the 250 Hz clock of the measured kernels.
            Throttle::Congested | Throttle::NoProgress => Duration::from_millis(4),
            Throttle::Isolated => Duration::from_millis(20),
            Throttle::Background => Duration::from_secs(1),
            Throttle::OverHigh(pause) | Throttle::Dirty(pause) => pause,
        }
    }
}
