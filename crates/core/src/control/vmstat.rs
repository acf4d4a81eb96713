//! `vmstat`: counters of the node.

use crate::Core;
use crate::folio::Kind;
use crate::memcg::{Counter, MemcgId};
use std::fmt::Write;

/// Lines that sum counters of the memcgs.
const COUNTERS: &[(&str, Counter)] = &[
    ("nr_anon_pages", Counter::Anon),
    ("nr_mapped", Counter::FileMapped),
    ("nr_file_pages", Counter::File),
    ("nr_dirty", Counter::FileDirty),
    ("nr_writeback", Counter::FileWriteback),
    ("workingset_nodes", Counter::WorkingsetNodes),
    ("workingset_refault_anon", Counter::WorkingsetRefaultAnon),
    ("workingset_refault_file", Counter::WorkingsetRefaultFile),
    ("workingset_activate_anon", Counter::WorkingsetActivateAnon),
    ("workingset_activate_file", Counter::WorkingsetActivateFile),
    ("workingset_restore_anon", Counter::WorkingsetRestoreAnon),
    ("workingset_restore_file", Counter::WorkingsetRestoreFile),
    ("workingset_nodereclaim", Counter::WorkingsetNodereclaim),
    // Only reclaim writes to swap, and it writes nothing else itself.
    ("nr_vmscan_write", Counter::Pswpout),
    ("nr_vmscan_immediate_reclaim", Counter::NrVmscanImmediateReclaim),
    ("nr_written", Counter::NrWritten),
    ("pswpin", Counter::Pswpin),
    ("pswpout", Counter::Pswpout),
    ("allocstall_movable", Counter::AllocstallMovable),
    ("pgactivate", Counter::Pgactivate),
    ("pgdeactivate", Counter::Pgdeactivate),
    ("pgfault", Counter::Pgfault),
    ("pgmajfault", Counter::Pgmajfault),
    ("pgrefill", Counter::Pgrefill),
    ("pgsteal_kswapd", Counter::PgstealKswapd),
    ("pgsteal_direct", Counter::PgstealDirect),
    ("pgsteal_proactive", Counter::PgstealProactive),
    ("pgscan_kswapd", Counter::PgscanKswapd),
    ("pgscan_direct", Counter::PgscanDirect),
    ("pgscan_proactive", Counter::PgscanProactive),
    ("pgscan_direct_throttle", Counter::PgscanDirectThrottle),
    ("pgscan_anon", Counter::PgscanAnon),
    ("pgscan_file", Counter::PgscanFile),
    ("pgsteal_anon", Counter::PgstealAnon),
    ("pgsteal_file", Counter::PgstealFile),
    ("kswapd_low_wmark_hit_quickly", Counter::KswapdLowWmarkHitQuickly),
    ("kswapd_high_wmark_hit_quickly", Counter::KswapdHighWmarkHitQuickly),
    ("pageoutrun", Counter::Pageoutrun),
    ("pgrotated", Counter::Pgrotated),
    ("oom_kill", Counter::EventOomKill),
];

pub(super) fn text(core: &Core) -> String {
    let totals = core.memcgs.subtree_totals(MemcgId::ROOT);
    let sizes = [
        ("nr_free_pages", u64::from(core.free_pages())),
        ("nr_inactive_anon", totals.listed_pages(Kind::Anon, false)),
        ("nr_active_anon", totals.listed_pages(Kind::Anon, true)),
        ("nr_inactive_file", totals.listed_pages(Kind::File, false)),
        ("nr_active_file", totals.listed_pages(Kind::File, true)),
        ("nr_unevictable", totals.unevictable_pages()),
        ("nr_isolated_anon", core.node.isolated_pages(Kind::Anon)),
        ("nr_isolated_file", core.node.isolated_pages(Kind::File)),
    ];
    let counters = COUNTERS.iter().map(|&(name, counter)| (name, totals.get(counter)));
    sizes.into_iter().chain(counters).fold(String::new(), |mut text, (name, value)| {
        _ = writeln!(text, "{name} {value}");
        text
    })
}
