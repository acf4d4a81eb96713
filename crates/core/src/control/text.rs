//! The content of memcg files.
//!
//! All values cover the subtree, except in `memory.events.local`. Counts of things that do not
//! exist here, such as shared memory, are 0, because readers look for their keys.

use super::error::Failure;
use super::file::File;
use super::value::{bytes_text, limit_text};
use super::{lru_gen, vmstat};
use crate::folio::Kind;
use crate::memcg::{Counter, Memcg, MemcgId, Totals};
use crate::options::PAGE_BYTES;
use crate::tunables::MAIN;
use crate::{Core, Time};
use Counter::{
    Anon, EventHigh, EventLow, EventMax, EventOom, EventOomGroupKill, EventOomKill, EventSwapFail,
    EventSwapHigh, EventSwapMax, FileDirty, FileMapped, FileWriteback, Pgactivate, Pgdeactivate, Pgfault,
    Pgmajfault, Pgrefill, PgscanDirect, PgscanKswapd, PgscanProactive, PgstealDirect, PgstealKswapd,
    PgstealProactive, Pswpin, Pswpout, SlabReclaimable, SlabUnreclaimable, WorkingsetActivateAnon,
    WorkingsetActivateFile, WorkingsetNodereclaim, WorkingsetRefaultAnon, WorkingsetRefaultFile,
    WorkingsetRestoreAnon, WorkingsetRestoreFile,
};
use std::fmt::Write;

/// Source of a line's value.
#[derive(Clone, Copy)]
enum Source {
    /// A size, in bytes.
    Size(Counter),
    /// Pages of a kind on the active lists (true) or on the others, in bytes.
    Listed(Kind, bool),
    /// Unevictable pages, in bytes.
    Unevictable,
    /// The sum of sizes that are in bytes.
    Bytes(&'static [Counter]),
    /// The sum of counters, in pages or events.
    Count(&'static [Counter]),
    /// Always 0.
    Nothing,
}

use Source::{Bytes, Count, Listed, Nothing, Size, Unevictable};

/// Lines that `memory.numa_stat` also has.
const STATE: &[(&str, Source)] = &[
    ("anon", Size(Anon)),
    ("file", Size(Counter::File)),
    ("shmem", Nothing),
    ("file_mapped", Size(FileMapped)),
    ("file_dirty", Size(FileDirty)),
    ("file_writeback", Size(FileWriteback)),
    ("inactive_anon", Listed(Kind::Anon, false)),
    ("active_anon", Listed(Kind::Anon, true)),
    ("inactive_file", Listed(Kind::File, false)),
    ("active_file", Listed(Kind::File, true)),
    ("unevictable", Unevictable),
    ("slab_reclaimable", Bytes(&[SlabReclaimable])),
    ("slab_unreclaimable", Bytes(&[SlabUnreclaimable])),
    ("slab", Bytes(SLAB)),
    ("workingset_refault_anon", Count(&[WorkingsetRefaultAnon])),
    ("workingset_refault_file", Count(&[WorkingsetRefaultFile])),
    ("workingset_activate_anon", Count(&[WorkingsetActivateAnon])),
    ("workingset_activate_file", Count(&[WorkingsetActivateFile])),
    ("workingset_restore_anon", Count(&[WorkingsetRestoreAnon])),
    ("workingset_restore_file", Count(&[WorkingsetRestoreFile])),
    ("workingset_nodereclaim", Count(&[WorkingsetNodereclaim])),
];

/// Metadata: all that the kernel's line `kernel` would count here.
const SLAB: &[Counter] = &[SlabReclaimable, SlabUnreclaimable];
const SCANNED: &[Counter] = &[PgscanKswapd, PgscanDirect, PgscanProactive];
const STOLEN: &[Counter] = &[PgstealKswapd, PgstealDirect, PgstealProactive];

/// The other lines of `memory.stat`.
const EVENTS: &[(&str, Source)] = &[
    ("pgdemote_kswapd", Nothing),
    ("pgdemote_direct", Nothing),
    ("pgdemote_khugepaged", Nothing),
    ("pgdemote_proactive", Nothing),
    ("pgsteal_kswapd", Count(&[PgstealKswapd])),
    ("pgsteal_direct", Count(&[PgstealDirect])),
    ("pgsteal_khugepaged", Nothing),
    ("pgsteal_proactive", Count(&[PgstealProactive])),
    ("pgscan_kswapd", Count(&[PgscanKswapd])),
    ("pgscan_direct", Count(&[PgscanDirect])),
    ("pgscan_khugepaged", Nothing),
    ("pgscan_proactive", Count(&[PgscanProactive])),
    ("pgrefill", Count(&[Pgrefill])),
    ("pgscan", Count(SCANNED)),
    ("pgsteal", Count(STOLEN)),
    ("pswpin", Count(&[Pswpin])),
    ("pswpout", Count(&[Pswpout])),
    ("pgfault", Count(&[Pgfault])),
    ("pgmajfault", Count(&[Pgmajfault])),
    ("pgactivate", Count(&[Pgactivate])),
    ("pgdeactivate", Count(&[Pgdeactivate])),
    ("pglazyfree", Nothing),
    ("pglazyfreed", Nothing),
];

const MEMORY_EVENTS: &[(&str, Option<Counter>)] = &[
    ("low", Some(EventLow)),
    ("high", Some(EventHigh)),
    ("max", Some(EventMax)),
    ("oom", Some(EventOom)),
    ("oom_kill", Some(EventOomKill)),
    ("oom_group_kill", Some(EventOomGroupKill)),
    ("sock_throttled", None),
];

const SWAP_EVENTS: &[(&str, Option<Counter>)] =
    &[("high", Some(EventSwapHigh)), ("max", Some(EventSwapMax)), ("fail", Some(EventSwapFail))];

impl Source {
    fn value(self, totals: &Totals) -> u64 {
        match self {
            Size(counter) => totals.get(counter) * PAGE_BYTES,
            Listed(kind, active) => totals.listed_pages(kind, active) * PAGE_BYTES,
            Unevictable => totals.unevictable_pages() * PAGE_BYTES,
            Bytes(counters) | Count(counters) => counters.iter().map(|&counter| totals.get(counter)).sum(),
            Nothing => 0,
        }
    }
}

fn lines<'a>(rows: impl IntoIterator<Item = (&'a str, u64)>) -> String {
    rows.into_iter().fold(String::new(), |mut text, (name, value)| {
        _ = writeln!(text, "{name} {value}");
        text
    })
}

fn events(kinds: &[(&'static str, Option<Counter>)], of: impl Fn(Counter) -> u64) -> String {
    lines(kinds.iter().map(|&(name, counter)| (name, counter.map_or(0, &of))))
}

/// The content of a readable file.
pub(super) fn read(core: &Core, file: File, id: MemcgId, now: Time) -> Result<String, Failure> {
    let memcg: &Memcg = core.memcg(id);
    let totals = || core.memcgs.subtree_totals(id);
    Ok(match file {
        File::Current => bytes_text(memcg.memory.held_pages()),
        File::Peak => bytes_text(memcg.peak_pages()),
        File::Min => limit_text(memcg.min_pages()),
        File::Low => limit_text(memcg.low_pages()),
        File::High => limit_text(memcg.memory.high_pages()),
        File::Max => limit_text(memcg.max_pages()),
        File::SwapCurrent => bytes_text(memcg.swap.usage_pages()),
        File::SwapPeak => bytes_text(memcg.swap.peak_pages()),
        File::SwapHigh => limit_text(memcg.swap.high_pages()),
        File::SwapMax => limit_text(memcg.swap.max_pages()),
        File::OomGroup => format!("{}\n", u8::from(memcg.oom_group())),
        File::Stat => {
            let totals = totals();
            let state = STATE.iter().map(|&(name, source)| (name, source.value(&totals)));
            // Between the state of pages and that of slabs, the kernel has one line that is not
            // per node.
            let (first, rest): (Vec<_>, Vec<_>) = (state.clone().take(2).collect(), state.skip(2).collect());
            let events = EVENTS.iter().map(|&(name, source)| (name, source.value(&totals)));
            lines(first.into_iter().chain([("kernel", Bytes(SLAB).value(&totals))]).chain(rest).chain(events))
        }
        File::NumaStat => {
            let totals = totals();
            STATE.iter().fold(String::new(), |mut text, (name, source)| {
                _ = writeln!(text, "{name} N0={}", source.value(&totals));
                text
            })
        }
        File::Events => {
            let totals = totals();
            events(MEMORY_EVENTS, |counter| totals.get(counter))
        }
        File::EventsLocal => events(MEMORY_EVENTS, |counter| memcg.stat.get_local(counter)),
        File::SwapEvents => {
            let totals = totals();
            events(SWAP_EVENTS, |counter| totals.get(counter))
        }
        File::Pressure => memcg.pressure_text(now),
        File::Vmstat => vmstat::text(core),
        File::LruGen => lru_gen::text(core, now, false),
        File::LruGenFull => lru_gen::text(core, now, true),
        File::Enabled => {
            let main = if core.habits().has_generations { MAIN } else { 0 };
            format!("0x{:04x}\n", core.tunables.walk_capabilities() | main)
        }
        File::MinTtl => format!("{}\n", core.tunables.min_ttl_ms()),
        File::Reclaim => unreachable!("it can only be written to"),
    })
}
