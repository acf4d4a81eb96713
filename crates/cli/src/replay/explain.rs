//! `--explain PAGE`: the history of a page, in words.

use crate::table::{Table, count};
use mglru_core::Lru;
use mglru_core::event::{FoundBy, List, ListedFrom, Sorted};
use mglru_core::lru::Distance;
use mglru_lab::replay::life::Life;
use mglru_lab::replay::record::{Refault, What, list_word, verdict_words};

/// One line: how often the page was touched, missed and evicted.
pub fn summary(life: &Life) -> String {
    if life.entries.is_empty() {
        return format!("{}: never touched", life.page);
    }
    let (touches, misses) = (times("touched", life.touches), times("missed", life.misses));
    format!("{}: {touches}, {misses}, {}", life.page, times("evicted", life.evictions))
}

/// All events of the page, if there are any.
pub fn table(life: &Life) -> Option<Table> {
    if life.entries.is_empty() {
        return None;
    }
    let mut table = Table::new(["access", "seconds", "event"]).with_words_last();
    for entry in &life.entries {
        let mut what = match entry.record.what {
            What::Touch { mapped, .. } if entry.writes > 0 && entry.writes < entry.times => {
                let how = if mapped { "loaded and stored to through a mapping" } else { "read and written" };
                format!("{how} ({} writes): hit", count(entry.writes))
            }
            what => words(what),
        };
        if entry.times > 1 {
            what += &format!(", {} times until access {}", count(entry.times), count(entry.last_access));
        }
        let seconds = entry.record.now.as_nanos() as f64 / 1e9;
        table.row([count(entry.record.access), format!("{seconds:.6}"), what]);
    }
    Some(table)
}

/// Summary and table.
pub fn text(life: &Life) -> String {
    format!("{}\n{}", summary(life), table(life).map_or(String::new(), |table| table.text()))
}

fn times(what: &str, number: u64) -> String {
    match number {
        0 => format!("never {what}"),
        1 => format!("{what} once"),
        more => format!("{what} {} times", count(more)),
    }
}

/// An event in words.
fn words(what: What) -> String {
    match what {
        What::Touch { write, mapped, hit } => {
            let how = match (mapped, write) {
                (false, false) => "read",
                (false, true) => "written",
                (true, false) => "loaded through a mapping",
                (true, true) => "stored to through a mapping",
            };
            format!("{how}: {}", if hit { "hit" } else { "miss" })
        }
        What::Insert(None) => "inserted; no record of an earlier eviction".to_owned(),
        What::Insert(Some(Refault { recent, distance, lru })) => {
            let recent = if recent { "recent" } else { "too long ago" };
            let of = match lru {
                Lru::Classic => "evictions and activations",
                Lru::Ranked => "evictions from its former list",
                _ => "generations",
            };
            let distance = distance.map(|Distance { passed, reach }| {
                format!(", after {} {of} (recent up to {})", count(passed), count(reach))
            });
            format!("inserted: a refault, {recent}{}", distance.unwrap_or_default())
        }
        What::List(list, from) => {
            let why = match from {
                ListedFrom::Arrivals => "added",
                ListedFrom::Rotation => "written back and next to be evicted: moved",
                ListedFrom::Deactivation => "advised as not needed: moved",
                ListedFrom::Activation if matches!(list, List::Generation(_)) => {
                    "found young beside another page: moved"
                }
                ListedFrom::Activation => "accessed twice: moved",
                ListedFrom::Isolation => "put back",
            };
            match list {
                List::Generation(seq) => format!("{why} to generation {seq}"),
                other => format!("{why} to the {} list", list_word(other).text()),
            }
        }
        What::Promote(seq, by) => {
            let by = match by {
                FoundBy::Walk => "by a walk of page tables",
                FoundBy::LookAround => "by a look around another page",
            };
            format!("found young {by}: promoted to generation {seq}")
        }
        What::Sort(seq, why) => match why {
            Sorted::Relabelled => {
                format!("scanned at the old end: relabelled, moved to generation {seq}")
            }
            Sorted::Protected(tier) => {
                format!(
                    "scanned at the old end: protected because pages of tier {tier} refault; to generation {seq}"
                )
            }
            Sorted::Saturated => {
                format!(
                    "scanned at the old end: protected because its access count is saturated; to generation {seq}"
                )
            }
            Sorted::Dirty => format!("scanned at the old end: dirty or under writeback; to generation {seq}"),
        },
        What::Isolate => "isolated".to_owned(),
        What::Judge(verdict) => {
            let (verdict, reason) = verdict_words(verdict);
            let verdict = verdict.text().replace('_', " ");
            match reason {
                Some(reason) => {
                    format!("verdict: {verdict}, because it is {}", reason.text().replace('_', " "))
                }
                None => format!("verdict: {verdict}"),
            }
        }
        What::Evict(Some(seq)) => format!("evicted; the oldest generation is {seq}"),
        What::Evict(None) => "evicted".to_owned(),
        What::Remove => "removed: its bytes were truncated, or its owner was killed".to_owned(),
        What::Age(seq) => format!("generation {seq} was created"),
        What::Dirty => "became dirty".to_owned(),
        What::Effort { scanned, reclaimed, priority, .. } => {
            format!("a reclaim run ended at priority {priority}: {scanned} scanned, {reclaimed} reclaimed")
        }
        What::Deactivate { taken, deactivated, .. } => {
            format!("the active list was shrunk: {taken} taken, {deactivated} deactivated")
        }
        What::Wake => "background reclaim woke".to_owned(),
        What::Sleep => "background reclaim went to sleep".to_owned(),
    }
}
