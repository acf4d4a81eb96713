//! The control files: their names, and where they are.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    Current,
    Peak,
    Min,
    Low,
    High,
    Max,
    Reclaim,
    Stat,
    NumaStat,
    Events,
    EventsLocal,
    Pressure,
    OomGroup,
    SwapCurrent,
    SwapPeak,
    SwapHigh,
    SwapMax,
    SwapEvents,
    Vmstat,
    LruGen,
    LruGenFull,
    Enabled,
    MinTtl,
}

/// The directories that have a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Every memcg but the root.
    BelowRoot,
    Everywhere,
    System,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Description {
    pub(super) name: &'static str,
    pub(super) file: File,
    pub(super) place: Place,
    /// Whether the file can be read, and whether it can be written.
    pub(super) access: (bool, bool),
}

const fn description(name: &'static str, file: File, place: Place, access: (bool, bool)) -> Description {
    Description { name, file, place, access }
}

const READ: (bool, bool) = (true, false);
const WRITE: (bool, bool) = (false, true);
const BOTH: (bool, bool) = (true, true);

/// All files, in the order of listings.
pub(super) const FILES: &[Description] = &[
    description("memory.current", File::Current, Place::BelowRoot, READ),
    description("memory.peak", File::Peak, Place::BelowRoot, BOTH),
    description("memory.min", File::Min, Place::BelowRoot, BOTH),
    description("memory.low", File::Low, Place::BelowRoot, BOTH),
    description("memory.high", File::High, Place::BelowRoot, BOTH),
    description("memory.max", File::Max, Place::BelowRoot, BOTH),
    description("memory.reclaim", File::Reclaim, Place::Everywhere, WRITE),
    description("memory.stat", File::Stat, Place::Everywhere, READ),
    description("memory.numa_stat", File::NumaStat, Place::Everywhere, READ),
    description("memory.events", File::Events, Place::BelowRoot, READ),
    description("memory.events.local", File::EventsLocal, Place::BelowRoot, READ),
    description("memory.pressure", File::Pressure, Place::Everywhere, BOTH),
    description("memory.oom.group", File::OomGroup, Place::BelowRoot, BOTH),
    description("memory.swap.current", File::SwapCurrent, Place::BelowRoot, READ),
    description("memory.swap.peak", File::SwapPeak, Place::BelowRoot, BOTH),
    description("memory.swap.high", File::SwapHigh, Place::BelowRoot, BOTH),
    description("memory.swap.max", File::SwapMax, Place::BelowRoot, BOTH),
    description("memory.swap.events", File::SwapEvents, Place::BelowRoot, READ),
    description("vmstat", File::Vmstat, Place::System, READ),
    description("lru_gen", File::LruGen, Place::System, BOTH),
    description("lru_gen_full", File::LruGenFull, Place::System, READ),
    description("lru_gen/enabled", File::Enabled, Place::System, BOTH),
    description("lru_gen/min_ttl_ms", File::MinTtl, Place::System, BOTH),
];
