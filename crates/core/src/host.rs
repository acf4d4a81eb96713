//! The world outside: what a decision of the core needs to know, and what it asks for.
//!
//! The core performs nothing. It asks its host for the time, and tells it what should happen; the
//! cache does it with threads and files, the simulator with an event queue.

use crate::event::Event;
use crate::folio::FolioId;
use crate::mapping::MappingId;
use crate::memcg::MemcgId;
use std::time::Duration;

/// A moment, as nanoseconds since the host began. Monotonic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// When the host began.
    pub const ZERO: Time = Time(0);

    /// `nanos` nanoseconds after the host began.
    pub fn from_nanos(nanos: u64) -> Time {
        Time(nanos)
    }

    /// Nanoseconds since the host began.
    pub fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero if that is in the future.
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

/// Why the flusher is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushReason {
    /// A batch of reclaim consisted of dirty pages that nobody is writing.
    Reclaim,
    /// More pages are dirty than may be in the background.
    Background,
}

/// Number of a swap slot, which holds one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwapSlot(pub u32);

/// A page that is to be written to its swap slot. Its folio is locked and mapped nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapOut {
    /// Which page.
    pub page: (MappingId, u32),
    /// The folio, whose frame has its bytes.
    pub folio: FolioId,
    /// Where they go.
    pub slot: SwapSlot,
}

/// What became of the wish to write a page to swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapOutcome {
    /// It is being written: [`Core::end_writeback`](crate::Core::end_writeback) will tell how that
    /// ended.
    Started,
    /// It is written.
    Done,
    /// It cannot be written now, and stays in memory.
    Refused,
}

/// Pages of a tenant and all below it in the generations of one distance from the youngest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GenerationPages {
    /// Anonymous pages.
    pub anon_pages: u64,
    /// File pages.
    pub file_pages: u64,
}

/// A page could not be had. Not a crash: the request that needed it fails, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Whose limit was met; empty for the budget of the whole cache.
    pub tenant: String,
    /// Who was killed for it, and whose request failed for that; or, for a callback that is asked,
    /// who would be. Nobody where the request just failed.
    pub victim: Option<String>,
    /// Pages charged to the tenant whose limit was met.
    pub usage_pages: u64,
    /// Pages it may have.
    pub max_pages: u64,
    /// Of its pages, anonymous ones.
    pub anon_pages: u64,
    /// Swap slots that its anonymous pages could still go to, of all who have some: the most that
    /// is left to one of them. Fewer than [`FREE_SLOTS_MIN`](crate::swap::FREE_SLOTS_MIN), and
    /// reclaim leaves them alone.
    pub free_swap_pages: u64,
    /// Of its pages, dirty ones that could not be freed.
    pub dirty_pages: u64,
    /// Of its pages, those being written.
    pub writeback_pages: u64,
    /// Of its pages, file pages that are mapped, which stay while they are touched again and again.
    pub mapped_pages: u64,
    /// Of its pages, those that `memory.min` of tenants below it spares.
    pub protected_pages: u64,
    /// Of its pages, those that must not be reclaimed.
    pub unevictable_pages: u64,
    /// Its pages by generation, the youngest last: of all tenants below it, those equally far from
    /// their youngest together.
    pub generations: Vec<GenerationPages>,
}

/// What a host decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OomDecision {
    /// The request fails.
    Fail,
    /// The tenant of this path, below the limit that was met, is killed, with its group. If it
    /// cannot be, because it is not there or was killed already, the request fails.
    Kill(String),
    /// The host made room, or hopes for some: reclaim begins anew. Who always says so waits for
    /// ever.
    Retry,
}

/// What the core asks of the world it runs in. All calls return at once; none may call back into
/// the core.
pub trait Host {
    /// The time now.
    fn now(&self) -> Time;

    /// Dirty pages should be written.
    fn wake_flusher(&self, reason: FlushReason);

    /// Free memory is below the low watermark: background reclaim should run.
    fn wake_background(&self);

    /// Whoever sleeps until this folio is unlocked or written should look again.
    fn wake_waiters(&self, folio: FolioId);

    /// Whoever waits because of [`Throttle::Isolated`] may go on. A hint: the wait ends in time
    /// anyway, and where no two reclaim at the same moment, it never begins.
    fn wake_isolated(&self) {}

    /// An anonymous page is to be written to its swap slot. Not called where there is no swap; a
    /// host that has some must answer.
    fn swap_out(&self, write: SwapOut) -> SwapOutcome {
        let _ = write;
        SwapOutcome::Refused
    }

    /// Nobody wants what is in a swap slot any more. It may be written anew as soon as this
    /// returns.
    fn swap_freed(&self, slot: SwapSlot) {
        let _ = slot;
    }

    /// Under [`crate::OomPolicy::Ask`], a page cannot be had: what is to be done? `report.victim`
    /// is who would be killed under `Victim`. Here: nothing, and the request fails.
    fn out_of_memory(&self, report: &OutOfMemory) -> OomDecision {
        let _ = report;
        OomDecision::Fail
    }

    /// A memcg is killed: its anonymous memory is to be taken, soon, with a
    /// [`crate::reclaim::Reaping`]. `false`: this host cannot do that. Then nobody is killed.
    fn oom_kill(&self, victim: MemcgId) -> bool {
        let _ = victim;
        false
    }

    /// What lies at that address is written soon, so that the host may have the processor fetch it.
    /// A hint: whatever is done, no value is changed. Here, nothing is done.
    #[inline]
    fn prefetch<T>(&self, at: &T) {
        let _ = at;
    }

    /// A frame pays for metadata from now on: its memory can be given back to the system.
    fn frame_retired(&self, frame: FolioId);

    /// Whether somebody wants to know what happens to each folio. Asked before such an event is
    /// made.
    #[inline]
    fn observes(&self) -> bool {
        false
    }

    /// Something happened that an observer may want to see.
    fn event(&self, event: Event) {
        let _ = event;
    }
}

/// A host that nobody listens to, at the beginning of time: for benchmarks and tests of the core
/// alone, in which nobody sleeps, nothing waits for a flusher and no memory is given back.
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

/// Why somebody has to wait, and for how long at most ([book: writeback#throttling]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Throttle {
    /// Pages under write-back, or being read, are in the way: until some are done, at most 100 ms.
    Writeback,
    /// The target met nothing but dirty pages that are queued already: one tick.
    Congested,
    /// Direct reclaim is about to have looked at everything, and freed nothing: one tick.
    NoProgress,
    /// Classic: others who reclaim have taken more pages off the inactive lists than they leave
    /// there: until they put them back ([`Host::wake_isolated`]), at most 20 ms.
    Isolated,
    /// Who charges is above `memory.high`: this long.
    OverHigh(Duration),
    /// Who dirties pages does so faster than they are written: this long.
    Dirty(Duration),
}

impl Throttle {
    /// The longest wait.
    pub fn timeout(self) -> Duration {
        match self {
            Throttle::Writeback => Duration::from_millis(100),
            // One tick of the 250 Hz clock of the kernels that the counts were measured on.
            Throttle::Congested | Throttle::NoProgress => Duration::from_millis(4),
            Throttle::Isolated => Duration::from_millis(20),
            Throttle::OverHigh(pause) | Throttle::Dirty(pause) => pause,
        }
    }
}
